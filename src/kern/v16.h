/* v16.h - the virtual vector of sixteen floats, in which all float kernels are written.
 *
 * An instruction set supplies the type and the operations below; the kernels are
 * compiled once for each.  Every operation has one result, whatever the machine:
 * each lane is rounded once to nearest even, max and min are a comparison and a
 * choice, and the sum of the lanes is a fixed tree.  NaN is no part of that, but
 * it is carried along, never lost.
 *
 * The including file defines one of V16_SCALAR, V16_AVX2, V16_AVX512.
 *
 *   v16_zero() v16_set1(x)
 *   v16_load(p) v16_store(p, a)              16 floats, any alignment
 *   v16_load_n(p, n) v16_store_n(p, a, n)    the first n (0..16); other lanes are 0
 *   v16_load_f16 v16_load_f16_n v16_load_bf16 v16_load_bf16_n    exact widening
 *   v16_load_i8(p) v16_set1_f16(h)           exact as well
 *   v16_store_f16                            rounds to nearest even
 *   v16_load_twice(p, n)                     lane i = p[i / 2], the first n (0..8) of p
 *   v16_add v16_sub v16_mul v16_div (a, b)
 *   v16_fma(a, b, c)                         a * b + c, rounded once
 *   v16_max(a, b)                            a > b ? a : b
 *   v16_min(a, b)                            a < b ? a : b
 *   v16_less(a, b, x, y)                     a < b ? x : y
 *   v16_abs(a) v16_copysign(a, s)            s gives the sign
 *   v16_negate(a)                            changes the sign, of zeros too
 *   v16_swap_pairs(a)                        lanes 1 0 3 2 5 4 ...
 *   v16_negate_even(a)                       changes the sign of lanes 0 2 4 ...
 *   v16_pow2_biased(t)                       2^n for t = n + V16_BIAS, n in -126..127;
 *                                            infinity for n = 128
 *   v16_split(x, &m)                         x = m * 2^e for a normal x > 0, m in [2/3, 4/3);
 *                                            returns e
 *   v16_sum(a)                               the sum of the lanes, see below
 *   v16_sum16(t, out)                        out[i] = v16_sum(t[i]), i in 0..15
 *   v16_max_lane(a)                          the largest lane
 *   v16_transpose(t, out, ld)                out[i * ld + j] = lane i of t[j], i and j in 0..15
 *
 * Sixteen integer sums v16i of products with v16c, four codes -127..127 for each lane:
 *
 *   v16c_load(p)                             64 codes
 *   v16i_dot4_start(sum)                     0; sum: of all the q that will follow
 *   v16i_dot4(acc, codes, q)                 lane i: + the sum of codes[4 * i + j] * q[j], j in 0..3
 *   v16i_to_float(acc)                       exact below 2^24
 *
 * The sum of lanes is a tree of halves, part of the contract:
 *
 *   for (h = 8; h > 0; h /= 2)
 *       for (i = 0; i < h; i++)
 *           t[i] = t[i] + t[i + h];
 *
 * and so is the tree of v16_max_lane, which decides between 0 and -0. */
#ifndef V16_H
#define V16_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kern/fpguard.h"

/* Adding this to |x| < 2^22 rounds x to an integer, which then is in the low bits. */
#define V16_BIAS 0x1.8p23f

/* Bits of the float 2/3: where v16_split starts a new power of two. */
#define V16_TWO_THIRDS 0x3F2AAAAB

/* Vector code lives in registers only when all of it is inlined.  Arrays do not; under
 * sanitizers the scalar tier would even take minutes to compile. */
#if defined(V16_SCALAR) && defined(__SANITIZE_ADDRESS__)
#define INLINE static __attribute__((noinline, unused))
#elif defined(V16_SCALAR)
#define INLINE static inline
#else
#define INLINE static inline __attribute__((always_inline))
#endif

#define NOINLINE __attribute__((noinline))

#if defined(V16_AVX512)
#include "kern/v16_avx512.h"
#elif defined(V16_AVX2)
#include "kern/v16_avx2.h"
#elif defined(V16_SCALAR)
#include "kern/v16_scalar.h"
#else
#error "define V16_SCALAR, V16_AVX2 or V16_AVX512"
#endif

INLINE v16 v16_negate(v16 a)
{
    return v16_sub(v16_set1(-0.0f), a);
}

#endif

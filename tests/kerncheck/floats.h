/* floats.h - inputs and comparison for the checks of float kernels. */
#ifndef FLOATS_H
#define FLOATS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"

/* Sanitized code is many times slower; the full set of cases runs in the other builds.  A
 * prime, so that all values of each dimension still occur. */
#if defined(__SANITIZE_ADDRESS__)
enum { EVERY = 11 };
#else
enum { EVERY = 1 };
#endif

static inline void print_thinning(const char *what)
{
    if (EVERY > 1) {
        printf("  %s: one case of %d under the sanitizer\n", what, EVERY);
    }
}

enum fill { FILL_PLAIN, FILL_WIDE, FILL_TINY, FILL_ZEROS, FILL_SPIKE, FILLS };

static inline float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

/* Values of one kind; all are finite, and sums of products stay so but for FILL_WIDE. */
static inline void fill_floats(float *x, size_t n, enum fill kind, struct rng *rng)
{
    for (size_t i = 0; i < n; i++) {
        const uint64_t r = rng_next(rng);
        const float u = (float)(rng_unit(r) * 8.0 - 4.0);

        switch (kind) {
        case FILL_WIDE:  /* any finite bits */
            x[i] = float_of((uint32_t)r);
            x[i] = isfinite(x[i]) ? x[i] : 1.0f;
            break;
        case FILL_TINY:  /* subnormal */
            x[i] = float_of((uint32_t)r & 0x807FFFFF);
            break;
        case FILL_ZEROS:
            x[i] = r & 1 ? -0.0f : 0.0f;
            break;
        case FILL_SPIKE:  /* one huge among tiny */
            x[i] = i == n / 2 ? 1e15f : u * 1e-15f;
            break;
        default:
            x[i] = u;
            break;
        }
    }
}

/* Index of the first difference in bits, or n.  Any NaN equals any other. */
static inline size_t floats_differ(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (memcmp(&a[i], &b[i], 4) != 0 && !(isnan(a[i]) && isnan(b[i]))) {
            return i;
        }
    }
    return n;
}

/* Compares and reports; true when equal. */
static inline bool same_floats(const char *what, const char *isa, const float *want,
                               const float *got, size_t n)
{
    const size_t i = floats_differ(want, got, n);

    if (i < n) {
        printf("  %s on %s: value %zu of %zu is %a, not %a\n", what, isa, i, n, (double)got[i],
               (double)want[i]);
    }
    return i == n;
}

/* The sum of sixteen lanes as the contract has it. */
static inline float lane_sum(const float lanes[16])
{
    float t[16];

    memcpy(t, lanes, sizeof t);
    for (int h = 8; h > 0; h /= 2) {
        for (int i = 0; i < h; i++) {
            t[i] = t[i] + t[i + h];
        }
    }
    return t[0];
}

/* A v16 chain of products and its tree, written from the definition. */
static inline float plain_dot(const float *a, const float *b, int n)
{
    float lanes[16] = { 0 };

    for (int i = 0; i < (n + 15) / 16 * 16; i++) {
        lanes[i % 16] = fmaf(i < n ? a[i] : 0.0f, i < n ? b[i] : 0.0f, lanes[i % 16]);
    }
    return lane_sum(lanes);
}

#endif

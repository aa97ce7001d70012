/* unpack_avx512.h - codes and scales of a panel as AVX-512 vectors, one set of functions per type.
 *
 * A vector of codes is [16 rows][4 k]: a lane is a row.  Codes come as unsigned
 * bytes (the first operand of vpdpbusd), so signed types arrive with a bias that
 * the activation sums take away again:
 *
 *   q4_0 8   q5_0 16   q8_0 128   q3_K 4   q6_K 32
 *   iq4_nl mxfp4 nvfp4 q1_0 q2_0 128   others 0
 *
 * The bytes of a file hold two sub-blocks each (low and high nibble, or two
 * neighbouring 2-bit fields); unpacking yields both at once.  Where the second
 * one may stay in its place it does (q4_K: 16 times the code, q2_K and q3_K: 4
 * times), because a shift that is needed later anyway removes the factor.
 *
 * A panel of a K type is walked in four outer steps o and one or two inner steps
 * c, each of a few vectors i; `struct walk` gives the activations they belong to. */
#ifndef UNPACK_AVX512_H
#define UNPACK_AVX512_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "kern/dot.h"
#include "kern/panel.h"
#include "quant/iq_tables.h"

#define INLINE static inline __attribute__((always_inline))

/* Full unrolling of a short loop, so that arrays of vectors live in registers; and the opposite. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#define NO_UNROLL _Pragma("clang loop unroll(disable)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#define NO_UNROLL _Pragma("GCC unroll 1")
#endif

struct codes {
    __m512i a, b;
};

INLINE __m512i load512(const uint8_t *p)
{
    return _mm512_loadu_si512(p);
}

INLINE __m128i load128(const uint8_t *p)
{
    return _mm_loadu_si128((const void *)p);
}

INLINE __m512i low_nibbles(__m512i v)
{
    return _mm512_and_si512(v, _mm512_set1_epi8(15));
}

INLINE __m512i high_nibbles(__m512i v)
{
    return low_nibbles(_mm512_srli_epi16(v, 4));
}

/* a | (b & c) */
INLINE __m512i or_and(__m512i a, __m512i b, __m512i c)
{
    return _mm512_ternarylogic_epi32(a, b, c, 0xF8);
}

INLINE __m512 scales_f16(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p));
}

/* ---- types of 32 weights: a = vector i, b = vector 4 + i of the block's eight -------------- */

INLINE struct codes unpack_q4_0(const uint8_t *p, int i)
{
    const __m512i v = load512(p + 32 + 64 * i);
    return (struct codes){ low_nibbles(v), high_nibbles(v) };
}

INLINE struct codes unpack_q4_1(const uint8_t *p, int i)
{
    return unpack_q4_0(p + 32, i);
}

INLINE __mmask64 load_mask(const uint8_t *p)
{
    uint64_t m;
    memcpy(&m, p, sizeof m);
    return m;
}

/* h: the eight masks of fifth bits; q: nibbles. */
INLINE struct codes unpack_q5(const uint8_t *h, const uint8_t *q, int i)
{
    const __m512i v = load512(q + 64 * i), bit = _mm512_set1_epi8(16);
    const __m512i a = low_nibbles(v), b = high_nibbles(v);

    return (struct codes){ _mm512_mask_add_epi8(a, load_mask(h + 8 * i), a, bit),
                           _mm512_mask_add_epi8(b, load_mask(h + 8 * i + 32), b, bit) };
}

INLINE struct codes unpack_q5_0(const uint8_t *p, int i)
{
    return unpack_q5(p + 32, p + 96, i);
}

INLINE struct codes unpack_q5_1(const uint8_t *p, int i)
{
    return unpack_q5(p + 64, p + 128, i);
}

INLINE struct codes unpack_q8_0(const uint8_t *p, int i)
{
    const __m512i flip = _mm512_set1_epi8((char)0x80);

    return (struct codes){ _mm512_xor_si512(load512(p + 32 + 64 * i), flip),
                           _mm512_xor_si512(load512(p + 288 + 64 * i), flip) };
}

/* Bytes of a table of signed values by the low nibbles of v, with the bias of 128. */
INLINE __m512i biased_values(const int8_t values[16], __m512i v)
{
    const __m512i t = _mm512_broadcast_i32x4(load128((const uint8_t *)values));
    return _mm512_shuffle_epi8(_mm512_xor_si512(t, _mm512_set1_epi8((char)0x80)), v);
}

INLINE struct codes unpack_values(const int8_t values[16], const uint8_t *q, int i)
{
    const __m512i v = load512(q + 64 * i);
    return (struct codes){ biased_values(values, low_nibbles(v)),
                           biased_values(values, high_nibbles(v)) };
}

/* The two sixteens of a half of the block; low nibbles are the first eight weights of each. */
INLINE struct codes unpack_nvfp4(const uint8_t *p, int part, int i)
{
    const uint8_t *q = p + 64 + 64 * (4 * part + i % 2);
    const __m512i a = load512(q), b = load512(q + 128);

    if (i < 2) {
        return (struct codes){ biased_values(fp4_values, low_nibbles(a)),
                               biased_values(fp4_values, low_nibbles(b)) };
    }
    return (struct codes){ biased_values(fp4_values, high_nibbles(a)),
                           biased_values(fp4_values, high_nibbles(b)) };
}

INLINE struct codes unpack_q1_0(const uint8_t *p, int part, int i)
{
    const uint8_t *masks = p + 32 + 64 * part + 8 * i;
    const __m512i minus = _mm512_set1_epi8((char)127), plus = _mm512_set1_epi8((char)129);

    return (struct codes){ _mm512_mask_blend_epi8(load_mask(masks), minus, plus),
                           _mm512_mask_blend_epi8(load_mask(masks + 32), minus, plus) };
}

/* The four weights in byte i of each lane. */
INLINE __m512i spread_q2_0(__m512i v, int i)
{
    const __m512i first = _mm512_set4_epi32(0x0C0C0C0C, 0x08080808, 0x04040404, 0);
    const __m512i fields = _mm512_set1_epi32(0x0C030C03);
    /* From a field in its place, 0 .. 3 or 0, 4, 8, 12, to -1 .. 2. */
    const __m512i values = _mm512_broadcast_i32x4(
        _mm_setr_epi8(127, (char)128, (char)129, (char)130, (char)128, 0, 0, 0, (char)129, 0, 0, 0,
                      (char)130, 0, 0, 0));
    const __m512i b = _mm512_shuffle_epi8(v, _mm512_add_epi8(first, _mm512_set1_epi8((char)i)));
    const __m512i high = _mm512_mask_srli_epi16(b, 0xAAAAAAAA, b, 4);

    return _mm512_shuffle_epi8(values, _mm512_and_si512(high, fields));
}

INLINE struct codes unpack_q2_0(const uint8_t *p, int part, int i)
{
    const uint8_t *q = p + 32 + 128 * part;
    return (struct codes){ spread_q2_0(load512(q), i), spread_q2_0(load512(q + 64), i) };
}

/* 2^(e - 128) of the 16 exponents of an mxfp4 panel; subnormal for e below 2. */
INLINE __m512 scales_mxfp4(const uint8_t *p)
{
    const __m512i e = _mm512_cvtepu8_epi32(load128(p));
    const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    const __mmask16 tiny = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));

    return _mm512_castsi512_ps(
        _mm512_mask_sllv_epi32(normal, tiny, _mm512_set1_epi32(0x00200000), e));
}

/* Half of the small floats at byte i of each lane of an nvfp4 panel. */
INLINE __m512 scales_nvfp4(const uint8_t *p, int i)
{
    const __m512i bits = _mm512_and_si512(_mm512_srli_epi32(load512(p), 8 * (unsigned)i),
                                          _mm512_set1_epi32(0x7F));
    const __mmask16 is_number = _mm512_cmpneq_epi32_mask(bits, _mm512_set1_epi32(0x7F));
    const __m256i half = _mm512_maskz_cvtepi32_epi16(is_number, _mm512_slli_epi32(bits, 7));

    return _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(128));
}

/* ---- K types -------------------------------------------------------------------------------- */

/* Step (o, c) of type: vectors a of the step go with activation vectors ka + i, vectors b with
 * kb + i.  With 32-wide sub-blocks o is the pair of sub-blocks; with 16-wide ones it is
 * 2 * (half of 128) + (half of a sub-block pair). */
struct walk {
    int ka, kb;
};

INLINE int walk_inner(uint32_t type)  /* inner steps */
{
    return type == QT_Q4_K || type == QT_Q5_K ? 1 : 2;
}

INLINE int walk_vectors(uint32_t type)  /* vectors per step */
{
    return type == QT_Q4_K || type == QT_Q5_K ? 8 : 4;
}

INLINE struct walk walk_at(uint32_t type, int o, int c)
{
    if (type == QT_Q4_K || type == QT_Q5_K) {
        return (struct walk){ 16 * o, 16 * o + 8 };
    }
    const int base = 32 * (o / 2) + 4 * (o % 2);
    if (type == QT_Q6_K) {
        return (struct walk){ base + 8 * c, base + 8 * c + 16 };
    }
    return (struct walk){ base + 16 * c, base + 16 * c + 8 };
}

INLINE struct codes unpack_q4_K(const uint8_t *p, int o, int i)
{
    const __m512i v = load512(p + 256 + 64 * (8 * o + i));
    return (struct codes){ low_nibbles(v), _mm512_and_si512(v, _mm512_set1_epi8((char)0xF0)) };
}

INLINE struct codes unpack_q5_K(const uint8_t *p, int o, int i)
{
    const __m512i v = load512(p + 768 + 64 * (8 * o + i)), h = load512(p + 256 + 64 * i);
    const __m512i bit = _mm512_set1_epi8(16), a = low_nibbles(v), b = high_nibbles(v);
    const __mmask64 ma = _mm512_test_epi8_mask(h, _mm512_set1_epi8((char)(1 << 2 * o)));
    const __mmask64 mb = _mm512_test_epi8_mask(h, _mm512_set1_epi8((char)(2 << 2 * o)));

    return (struct codes){ _mm512_mask_add_epi8(a, ma, a, bit),
                           _mm512_mask_add_epi8(b, mb, b, bit) };
}

INLINE struct codes unpack_q2_K(const uint8_t *p, int o, int c, int i)
{
    __m512i v = load512(p + 320 + 64 * (4 * o + i));

    if (c) {
        v = _mm512_srli_epi16(v, 4);
    }
    return (struct codes){ _mm512_and_si512(v, _mm512_set1_epi8(3)),
                           _mm512_and_si512(v, _mm512_set1_epi8(12)) };
}

INLINE struct codes unpack_q3_K(const uint8_t *p, int o, int c, int i)
{
    const __m512i h = load512(p + 224 + 64 * (4 * (o % 2) + i));
    const int bit = 4 * (o / 2) + 2 * c;
    const __mmask64 ma = _mm512_test_epi8_mask(h, _mm512_set1_epi8((char)(1 << bit)));
    const __mmask64 mb = _mm512_test_epi8_mask(h, _mm512_set1_epi8((char)(2 << bit)));
    const struct codes v = unpack_q2_K(p + 736 - 320, o, c, i);

    return (struct codes){ _mm512_mask_add_epi8(v.a, ma, v.a, _mm512_set1_epi8(4)),
                           _mm512_mask_add_epi8(v.b, mb, v.b, _mm512_set1_epi8(16)) };
}

INLINE struct codes unpack_q6_K(const uint8_t *p, int o, int c, int i)
{
    const int n = o / 2, k = 4 * (o % 2) + i;
    const __m512i l = load512(p + 288 + 64 * (16 * n + 8 * c + k));
    const __m512i h = load512(p + 2336 + 64 * (8 * n + k)), m = _mm512_set1_epi8(0x30);

    if (c) {
        return (struct codes){ or_and(low_nibbles(l), _mm512_slli_epi16(h, 2), m),
                               or_and(high_nibbles(l), _mm512_srli_epi16(h, 2), m) };
    }
    return (struct codes){ or_and(low_nibbles(l), _mm512_slli_epi16(h, 4), m),
                           or_and(high_nibbles(l), h, m) };
}

INLINE struct codes unpack_k(uint32_t type, const uint8_t *p, int o, int c, int i)
{
    switch (type) {
    case QT_Q2_K: return unpack_q2_K(p, o, c, i);
    case QT_Q3_K: return unpack_q3_K(p, o, c, i);
    case QT_Q4_K: return unpack_q4_K(p, o, i);
    case QT_Q5_K: return unpack_q5_K(p, o, i);
    default: return unpack_q6_K(p, o, c, i);
    }
}

/* Scales of all sub-blocks of a panel in the order of the walk, step s = o * walk_inner + c.
 *   q2_K q3_K q4_K   s[s]: scale of a in the low, of b in the high word of each lane
 *   q5_K q6_K        s[2 * s], s[2 * s + 1]: scales of a and of b as dwords
 * m[s]: minimums as pairs of words, in the same way. */
struct scales {
    __m512i s[16], m[8];
};

/* Words (2j, 2j+1) of the four bytes of each lane, zero-extended. */
INLINE __m512i byte_pairs(__m512i v, int j)
{
    const __m512i first = _mm512_set4_epi32((int)0x800D800C, (int)0x80098008, (int)0x80058004,
                                            (int)0x80018000);
    return _mm512_shuffle_epi8(v, _mm512_add_epi8(first, _mm512_set1_epi16((short)(2 * j))));
}

/* Byte j of each lane, zero-extended to the lane. */
INLINE __m512i byte_dwords(__m512i v, int j)
{
    const __m512i first = _mm512_set4_epi32((int)0x8080800C, (int)0x80808008, (int)0x80808004,
                                            (int)0x80808000);
    return _mm512_shuffle_epi8(v, _mm512_add_epi8(first, _mm512_set1_epi32(j)));
}

/* The 6-bit scales (sc) and minimums (mn) of eight sub-blocks, four bytes to a lane. */
INLINE void scales_6bit(const uint8_t *a, __m512i sc[2], __m512i mn[2])
{
    const __m512i a0 = load512(a), a1 = load512(a + 64), a2 = load512(a + 128);
    const __m512i m6 = _mm512_set1_epi8(63), top = _mm512_set1_epi8(0x30);

    sc[0] = _mm512_and_si512(a0, m6);
    mn[0] = _mm512_and_si512(a1, m6);
    sc[1] = or_and(low_nibbles(a2), _mm512_srli_epi16(a0, 2), top);
    mn[1] = or_and(high_nibbles(a2), _mm512_srli_epi16(a1, 2), top);
}

INLINE void scales_q4_K(const uint8_t *p, struct scales *out)
{
    __m512i sc[2], mn[2];

    scales_6bit(p + 64, sc, mn);
    UNROLL
    for (int j = 0; j < 4; j++) {
        out->s[j] = byte_pairs(sc[j / 2], j % 2);
        out->m[j] = byte_pairs(mn[j / 2], j % 2);
    }
}

INLINE void scales_q5_K(const uint8_t *p, struct scales *out)
{
    __m512i sc[2], mn[2];

    scales_6bit(p + 64, sc, mn);
    UNROLL
    for (int j = 0; j < 8; j++) {
        out->s[j] = byte_dwords(sc[j / 4], j % 4);
    }
    UNROLL
    for (int j = 0; j < 4; j++) {
        out->m[j] = byte_pairs(mn[j / 2], j % 2);
    }
}

/* Where the 16 scales of a's sub-block in step s of a q6_K or q2_K panel begin. */
INLINE const uint8_t *scale_bytes(uint32_t type, const uint8_t *p, int s)
{
    const int n = s / 4, h = s / 2 % 2, c = s % 2;

    return type == QT_Q6_K ? p + 32 + 16 * (8 * n + 2 * c + h) : p + 64 + 16 * (8 * n + 4 * c + h);
}

INLINE void scales_q2_K(const uint8_t *p, struct scales *out)
{
    const __m512i across = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i within = _mm512_set4_epi32(0x0F0B0703, 0x0E0A0602, 0x0D090501, 0x0C080400);
    const __m512i m4 = _mm512_set1_epi32(0x000F000F);

    /* Four sub-blocks of a row come into a lane; step (n, h, c) has bytes h and h + 2 of it. */
    UNROLL
    for (int j = 0; j < 4; j++) {
        const int s = 4 * (j / 2) + j % 2;
        const __m512i v = _mm512_shuffle_epi8(
            _mm512_permutexvar_epi32(across, load512(p + 64 + 64 * j)), within);

        out->s[s] = _mm512_and_si512(v, m4);
        out->m[s] = _mm512_and_si512(_mm512_srli_epi32(v, 4), m4);
        out->s[s + 2] = _mm512_and_si512(_mm512_srli_epi32(v, 8), m4);
        out->m[s + 2] = _mm512_and_si512(_mm512_srli_epi32(v, 12), m4);
    }
}

/* The sixteen scales of a row as signed bytes, four to a lane. */
INLINE void bytes_q3_K(const uint8_t *p, __m512i sc[4])
{
    const __m512i a0 = load512(p + 32), a1 = load512(p + 96), a2 = load512(p + 160);
    const __m512i top = _mm512_set1_epi8(0x30), bias = _mm512_set1_epi8(32);

    sc[0] = _mm512_sub_epi8(or_and(low_nibbles(a0), _mm512_slli_epi16(a2, 4), top), bias);
    sc[1] = _mm512_sub_epi8(or_and(low_nibbles(a1), _mm512_slli_epi16(a2, 2), top), bias);
    sc[2] = _mm512_sub_epi8(or_and(high_nibbles(a0), a2, top), bias);
    sc[3] = _mm512_sub_epi8(or_and(high_nibbles(a1), _mm512_srli_epi16(a2, 2), top), bias);
}

/* Step (n, h, c) has the sub-blocks h and h + 2 of byte vector 2n + c. */
INLINE void scales_q3_K(const uint8_t *p, struct scales *out)
{
    __m512i sc[4];

    bytes_q3_K(p, sc);
    UNROLL
    for (int j = 0; j < 4; j++) {
        const int s = 4 * (j / 2) + j % 2;
        out->s[s] = _mm512_srai_epi16(_mm512_slli_epi16(sc[j], 8), 8);
        out->s[s + 2] = _mm512_srai_epi16(sc[j], 8);
    }
}

INLINE void scales_q6_K(const uint8_t *p, struct scales *out)
{
    UNROLL
    for (int s = 0; s < 8; s++) {
        const uint8_t *sc = scale_bytes(QT_Q6_K, p, s);
        out->s[2 * s] = _mm512_cvtepi8_epi32(load128(sc));
        out->s[2 * s + 1] = _mm512_cvtepi8_epi32(load128(sc + 64));
    }
}

#endif

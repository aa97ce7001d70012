/* unpack_avx2.h - panels of each type as unsigned codes and 16-bit scales, for AVX2.
 *
 * A panel is seen as units; a unit has `planes` runs of codes that share the same
 * bytes (the two nibbles, the four bit pairs), each `cols` steps of 4 k long.  A
 * step gives one vector per plane: 8 rows (a half of the panel) x 4 codes.  What
 * a code stands for, with u the unsigned code that is unpacked:
 *
 *   q4_0 u - 8    q4_1 u    q5_0 u - 16    q5_1 u    q8_0 itself, signed
 *   q4_K u        q5_K u    q6_K u - 32
 *   mxfp4, nvfp4 u - 16    q1_0 q2_0 u - 8    iq4_nl itself, signed
 *   q2_K, q3_K    planes 0 and 2 as they are, planes 1 and 3 four times the code
 *                 (which saves shifts); the scales of planes 0 and 2 are four
 *                 times theirs, so the sum of a block is four times too large.
 *                 q3_K: u - 4, or 4 * u - 16.
 *
 * maddubs adds two products in 16 bits and saturates, so unsigned codes stay at
 * most 128; how many such sums fit 16 bits is said in `chain`. */
#ifndef UNPACK_AVX2_H
#define UNPACK_AVX2_H

#include <immintrin.h>

#include "kern/dot.h"
#include "kern/panel.h"
#include "quant/iq_tables.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

ALWAYS_INLINE __m256i load_256(const void *p)
{
    return _mm256_loadu_si256(p);
}

ALWAYS_INLINE __m128i load_128(const void *p)
{
    return _mm_loadu_si128(p);
}

/* x >> n or x << n in every byte, keeping the bits of mask. */
ALWAYS_INLINE __m256i right_and(__m256i x, int n, int mask)
{
    return _mm256_and_si256(_mm256_srli_epi16(x, n), _mm256_set1_epi8((char)mask));
}

ALWAYS_INLINE __m256i left_and(__m256i x, int n, int mask)
{
    return _mm256_and_si256(_mm256_slli_epi16(x, n), _mm256_set1_epi8((char)mask));
}

/* ---- shapes ----------------------------------------------------------------------- */

/* A part of 32 weights of a longer block is a unit of one plane. */
struct shape {
    int units, planes, cols;
    int unit_k, half_unit_k;  /* k / 4 of a unit: (unit / 2) * unit_k + (unit % 2) * half_unit_k */
    int plane_k;              /* k / 4 from one plane to the next */
    int chain;                /* steps of 4 k whose sums fit 16 bits */
    int scale_k;              /* k / 4 that share a scale */
    bool single;              /* a single step does not fit 16 bits twice: scaled at once */
};

/* Largest sum of a 16-bit lane, which takes 2 of 4 k: chain * 2 * 127 * code.
 *   q4: 8 * 2 * 127 * 15 = 30480       q5 unsigned: 4 * 2 * 127 * 31 = 31496
 *   q5_0 less 16: 8 * 2 * 127 * 16 = 32512, q6_K less 32: 4 * 2 * 127 * 32 = 32512;
 *   both start at minus the offset, intermediate sums may wrap.
 *   q2_K: 4 * 2 * 127 * 12 = 12192     q3_K: 4 * 2 * 127 * 28 = 28448
 *   iq1 with 9: 4 * 2 * 127 * 18 = 18288    iq3_s with 15: 4 * 2 * 127 * 30 = 30480
 *   tq with 1: 32 * 2 * 127 * 3 = 24384     iq2 with 43: 2 * 127 * 86 = 21844, one step
 *   iq3_xxs with 62: 2 * 127 * 124 = 31496, one step
 *   mxfp4 and nvfp4 less 16: 8 * 2 * 127 * 12 = 24384, and its intermediate sums may wrap too */
ALWAYS_INLINE struct shape shape_of(uint32_t id)
{
    const struct shape nibbles = { 1, 2, 4, 0, 0, 4, 8, 8, false };
    const struct shape five_bits = { 1, 2, 4, 0, 0, 4, 4, 8, false };
    const struct shape bytes = { 1, 1, 8, 0, 0, 8, 1, 8, false };
    const struct shape two_parts = { 2, 1, 8, 0, 8, 8, 8, 8, false };
    const struct shape four_parts = { 4, 1, 8, 16, 8, 8, 8, 8, false };
    const struct shape k_nibbles = { 4, 2, 8, 32, 16, 8, 8, 8, false };
    const struct shape k_five_bits = { 4, 2, 8, 32, 16, 8, 4, 8, false };
    const struct shape k_pairs = { 4, 4, 4, 32, 4, 8, 4, 4, false };
    /* Opened panels (unpack_iq_avx2.h) have nothing but chains and scales. */
    const struct shape chain_16 = { .chain = 4, .scale_k = 4 };
    const struct shape chain_32 = { .chain = 4, .scale_k = 8 };
    const struct shape chain_256 = { .chain = 32, .scale_k = 64 };
    const struct shape single_16 = { .chain = 4, .scale_k = 4, .single = true };
    const struct shape single_32 = { .chain = 8, .scale_k = 8, .single = true };

    switch (id) {
    case QT_Q8_0: return bytes;
    case QT_Q5_1: return five_bits;
    case QT_Q4_K: return k_nibbles;
    case QT_Q5_K: return k_five_bits;
    case QT_Q2_K:
    case QT_Q3_K:
    case QT_Q6_K: return k_pairs;
    case QT_NVFP4:
    case QT_Q2_0: return two_parts;
    case QT_Q1_0: return four_parts;
    case QT_IQ1_M: return chain_16;
    case QT_IQ1_S:
    case QT_IQ3_S: return chain_32;
    case QT_TQ1_0:
    case QT_TQ2_0: return chain_256;
    case QT_IQ2_XS:
    case QT_IQ2_S: return single_16;
    case QT_IQ2_XXS:
    case QT_IQ3_XXS:
    case QT_IQ4_XS: return single_32;
    default: return nibbles;
    }
}

/* ---- codes: panel, unit, step, plane, half of the rows -> 8 rows x 4 codes --------- */

ALWAYS_INLINE __m256i codes_nibbles(const uint8_t *q, int col, int plane, int half)
{
    return right_and(load_256(q + 64 * col + 32 * half), 4 * plane, 15);
}

/* All ones where the bit of a lane is set; mask: 32 bits, lane i has bit i. */
ALWAYS_INLINE __m256i mask_lanes(const uint8_t *mask)
{
    const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1,
                                            2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    const __m256i bit = _mm256_set1_epi64x((int64_t)0x8040201008040201);
    int32_t m;

    __builtin_memcpy(&m, mask, sizeof m);
    const __m256i x = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(m), spread), bit);
    return _mm256_cmpeq_epi8(x, bit);
}

ALWAYS_INLINE __m256i fifth_bits(const uint8_t *mask)
{
    return _mm256_and_si256(mask_lanes(mask), _mm256_set1_epi8(16));
}

/* h: eight masks of 64 bits, q behind them. */
ALWAYS_INLINE __m256i codes_five_bits(const uint8_t *h, int col, int plane, int half)
{
    return _mm256_or_si256(codes_nibbles(h + 64, col, plane, half),
                           fifth_bits(h + 8 * (col + 4 * plane) + 4 * half));
}

ALWAYS_INLINE __m256i codes_q2_k(const uint8_t *p, int unit, int col, int plane, int half)
{
    const int c = 8 * (unit / 2) + 4 * (unit % 2) + col;
    const __m256i x = load_256(p + 320 + 64 * c + 32 * half);

    return right_and(x, plane / 2 * 4, plane % 2 == 0 ? 3 : 12);
}

ALWAYS_INLINE __m256i codes_q3_k(const uint8_t *p, int unit, int col, int plane, int half)
{
    const int c = 4 * (unit % 2) + col;
    const __m256i x = load_256(p + 736 + 64 * (8 * (unit / 2) + c) + 32 * half);
    const __m256i h = load_256(p + 224 + 64 * c + 32 * half);
    /* Bits 0..3 are the third bits of planes 0..3. */
    const __m256i bits = _mm256_srli_epi16(h, 4 * (unit / 2));

    switch (plane) {
    case 0: return _mm256_or_si256(right_and(x, 0, 3), left_and(bits, 2, 4));
    case 1: return _mm256_or_si256(right_and(x, 0, 12), left_and(bits, 3, 16));
    case 2: return _mm256_or_si256(right_and(x, 4, 3), right_and(bits, 0, 4));
    default: return _mm256_or_si256(right_and(x, 4, 12), left_and(bits, 1, 16));
    }
}

ALWAYS_INLINE __m256i codes_q5_k(const uint8_t *p, int unit, int col, int plane, int half)
{
    const __m256i h = load_256(p + 256 + 64 * col + 32 * half);
    /* Bits 0 and 1 are the fifth bits of the planes. */
    const __m256i bits = _mm256_srli_epi16(h, 2 * unit);

    return _mm256_or_si256(codes_nibbles(p + 768 + 512 * unit, col, plane, half),
                           left_and(bits, 4 - plane, 16));
}

ALWAYS_INLINE __m256i codes_q6_k(const uint8_t *p, int unit, int col, int plane, int half)
{
    const int n = unit / 2, c = 4 * (unit % 2) + col;
    const __m256i x = load_256(p + 288 + 1024 * n + 512 * (plane % 2) + 64 * c + 32 * half);
    const __m256i h = load_256(p + 2336 + 512 * n + 64 * c + 32 * half);

    switch (plane) {
    case 0: return _mm256_or_si256(right_and(x, 0, 15), left_and(h, 4, 48));
    case 1: return _mm256_or_si256(right_and(x, 0, 15), left_and(h, 2, 48));
    case 2: return _mm256_or_si256(right_and(x, 4, 15), right_and(h, 0, 48));
    default: return _mm256_or_si256(right_and(x, 4, 15), right_and(h, 2, 48));
    }
}

/* Values of nibbles, plus `offset`. */
ALWAYS_INLINE __m256i codes_values(const int8_t values[16], int offset, const uint8_t *q, int col,
                                   int plane, int half)
{
    const __m256i table = _mm256_add_epi8(_mm256_broadcastsi128_si256(load_128(values)),
                                          _mm256_set1_epi8((char)offset));
    return _mm256_shuffle_epi8(table, codes_nibbles(q, col, plane, half));
}

/* Seven or nine: the code and 8. */
ALWAYS_INLINE __m256i codes_q1_0(const uint8_t *p, int unit, int col, int half)
{
    const __m256i set = mask_lanes(p + 32 + 64 * unit + 8 * col + 4 * half);
    return _mm256_add_epi8(_mm256_set1_epi8(7), _mm256_and_si256(set, _mm256_set1_epi8(2)));
}

/* Seven to ten: the code and 8; the four weights in a byte. */
ALWAYS_INLINE __m256i codes_q2_0(const uint8_t *p, int unit, int col, int half)
{
    const __m256i x = load_256(p + 32 + 64 * (2 * unit + col / 4) + 32 * half);
    const __m256i first = _mm256_broadcastsi128_si256(
        _mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0C0C0C0C));
    const __m256i v = _mm256_shuffle_epi8(x, _mm256_add_epi8(first,
                                                             _mm256_set1_epi8((char)(col % 4))));
    const __m256i mixed = _mm256_blend_epi16(v, _mm256_srli_epi16(v, 4), 0xAA);
    /* From a field in its place, 0 .. 3 or 0, 4, 8, 12. */
    const __m256i values = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(7, 8, 9, 10, 8, 0, 0, 0, 9, 0, 0, 0, 10, 0, 0, 0));

    return _mm256_shuffle_epi8(values, _mm256_and_si256(mixed, _mm256_set1_epi32(0x0C030C03)));
}

/* The low nibbles of two dwords are the first eight weights of a sixteen. */
ALWAYS_INLINE __m256i codes_nvfp4(const uint8_t *p, int unit, int col, int half)
{
    return codes_values(fp4_values, 16, p + 64 + 64 * (4 * unit + 2 * (col / 4)), col % 2,
                        col / 2 % 2, half);
}

ALWAYS_INLINE __m256i codes_of(uint32_t id, const uint8_t *p, int unit, int col, int plane,
                               int half)
{
    switch (id) {
    case QT_Q4_0: return codes_nibbles(p + 32, col, plane, half);
    case QT_Q4_1: return codes_nibbles(p + 64, col, plane, half);
    case QT_Q5_0: return codes_five_bits(p + 32, col, plane, half);
    case QT_Q5_1: return codes_five_bits(p + 64, col, plane, half);
    case QT_Q8_0: return load_256(p + 32 + 64 * col + 32 * half);
    case QT_IQ4_NL: return codes_values(iq4_values, 0, p + 32, col, plane, half);
    case QT_MXFP4: return codes_values(fp4_values, 16, p + 16, col, plane, half);
    case QT_NVFP4: return codes_nvfp4(p, unit, col, half);
    case QT_Q1_0: return codes_q1_0(p, unit, col, half);
    case QT_Q2_0: return codes_q2_0(p, unit, col, half);
    case QT_Q2_K: return codes_q2_k(p, unit, col, plane, half);
    case QT_Q3_K: return codes_q3_k(p, unit, col, plane, half);
    case QT_Q4_K: return codes_nibbles(p + 256 + 512 * unit, col, plane, half);
    case QT_Q5_K: return codes_q5_k(p, unit, col, plane, half);
    default: return codes_q6_k(p, unit, col, plane, half);
    }
}

/* ---- scales of K types ------------------------------------------------------------ */

struct scales {
    __m256i scale[16][2];  /* [group of 4 * scale_k weights][half]: twice in 32 bits, per row */
    __m256i min[8][2];     /* [pair of groups][half]: (even, odd); q3_K: of its scales */
};

/* Bytes of 8 rows, each twice, as 16 bits. */
ALWAYS_INLINE __m256i twice_unsigned(__m128i x, int half)
{
    return _mm256_cvtepu8_epi16(half ? _mm_unpackhi_epi8(x, x) : _mm_unpacklo_epi8(x, x));
}

ALWAYS_INLINE void scales_q2_k(const uint8_t *p, struct scales *s)
{
    const __m128i low = _mm_set1_epi8(15);

    for (int j = 0; j < 8; j++) {
        const __m128i x = load_128(p + 64 + 32 * j), y = load_128(p + 80 + 32 * j);
        /* Four times the scale for planes 0 and 2: the bits of a byte have room. */
        const int factor = j % 2 == 0 ? 2 : 0;
        const __m128i sx = _mm_slli_epi16(_mm_and_si128(x, low), factor);
        const __m128i sy = _mm_slli_epi16(_mm_and_si128(y, low), factor);
        const __m128i mx = _mm_and_si128(_mm_srli_epi16(x, 4), low);
        const __m128i my = _mm_and_si128(_mm_srli_epi16(y, 4), low);
        for (int half = 0; half < 2; half++) {
            s->scale[2 * j][half] = twice_unsigned(sx, half);
            s->scale[2 * j + 1][half] = twice_unsigned(sy, half);
        }
        s->min[j][0] = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(mx, my));
        s->min[j][1] = _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(mx, my));
    }
}

/* From a dword of four bytes per row: byte a to the low, byte b to the high 16 bits,
 * in the upper or the lower byte of them. */
ALWAYS_INLINE __m256i pick_high(__m256i x, int a, int b)
{
    const __m128i i = _mm_setr_epi8(-1, (char)a, -1, (char)b, -1, (char)(a + 4), -1,
                                    (char)(b + 4), -1, (char)(a + 8), -1, (char)(b + 8), -1,
                                    (char)(a + 12), -1, (char)(b + 12));
    return _mm256_shuffle_epi8(x, _mm256_broadcastsi128_si256(i));
}

ALWAYS_INLINE __m256i pick_low(__m256i x, int a, int b)
{
    const __m128i i = _mm_setr_epi8((char)a, -1, (char)b, -1, (char)(a + 4), -1, (char)(b + 4),
                                    -1, (char)(a + 8), -1, (char)(b + 8), -1, (char)(a + 12), -1,
                                    (char)(b + 12), -1);
    return _mm256_shuffle_epi8(x, _mm256_broadcastsi128_si256(i));
}

ALWAYS_INLINE void scales_q3_k(const uint8_t *p, struct scales *s)
{
    for (int half = 0; half < 2; half++) {
        const __m256i a = load_256(p + 32 + 32 * half), b = load_256(p + 96 + 32 * half);
        const __m256i c = load_256(p + 160 + 32 * half);
        const __m256i bytes[4] = {  /* scales 4j .. 4j + 3 of a row, plus 32 */
            _mm256_or_si256(right_and(a, 0, 15), left_and(c, 4, 48)),
            _mm256_or_si256(right_and(b, 0, 15), left_and(c, 2, 48)),
            _mm256_or_si256(right_and(a, 4, 15), right_and(c, 0, 48)),
            _mm256_or_si256(right_and(b, 4, 15), right_and(c, 2, 48)),
        };
        for (int j = 0; j < 4; j++) {
            const __m256i x = _mm256_sub_epi8(bytes[j], _mm256_set1_epi8(32));
            /* Groups 4j, 4j + 1 are of planes 0 or 2 and get four times the scale. */
            s->scale[4 * j][half] = _mm256_srai_epi16(pick_high(x, 0, 0), 6);
            s->scale[4 * j + 1][half] = _mm256_srai_epi16(pick_high(x, 1, 1), 6);
            s->scale[4 * j + 2][half] = _mm256_srai_epi16(pick_high(x, 2, 2), 8);
            s->scale[4 * j + 3][half] = _mm256_srai_epi16(pick_high(x, 3, 3), 8);
            s->min[2 * j][half] = _mm256_srai_epi16(pick_high(x, 0, 1), 8);
            s->min[2 * j + 1][half] = _mm256_srai_epi16(pick_high(x, 2, 3), 8);
        }
    }
}

/* q4_K and q5_K */
ALWAYS_INLINE void scales_six_bits(const uint8_t *p, struct scales *s)
{
    for (int half = 0; half < 2; half++) {
        const __m256i a = load_256(p + 64 + 32 * half), b = load_256(p + 128 + 32 * half);
        const __m256i c = load_256(p + 192 + 32 * half);
        const __m256i scale[2] = {
            right_and(a, 0, 63), _mm256_or_si256(right_and(c, 0, 15), right_and(a, 2, 48))
        };
        const __m256i min[2] = {
            right_and(b, 0, 63), _mm256_or_si256(right_and(c, 4, 15), right_and(b, 2, 48))
        };
        for (int j = 0; j < 2; j++) {
            s->scale[4 * j][half] = pick_low(scale[j], 0, 0);
            s->scale[4 * j + 1][half] = pick_low(scale[j], 1, 1);
            s->scale[4 * j + 2][half] = pick_low(scale[j], 2, 2);
            s->scale[4 * j + 3][half] = pick_low(scale[j], 3, 3);
            s->min[2 * j][half] = pick_low(min[j], 0, 1);
            s->min[2 * j + 1][half] = pick_low(min[j], 2, 3);
        }
    }
}

ALWAYS_INLINE void scales_q6_k(const uint8_t *p, struct scales *s)
{
    for (int i = 0; i < 16; i++) {
        const __m128i x = load_128(p + 32 + 16 * i);
        s->scale[i][0] = _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(x, x));
        s->scale[i][1] = _mm256_cvtepi8_epi16(_mm_unpackhi_epi8(x, x));
    }
}

ALWAYS_INLINE void scales_of(uint32_t id, const uint8_t *p, struct scales *s)
{
    switch (id) {
    case QT_Q2_K: scales_q2_k(p, s); break;
    case QT_Q3_K: scales_q3_k(p, s); break;
    case QT_Q4_K:
    case QT_Q5_K: scales_six_bits(p, s); break;
    case QT_Q6_K: scales_q6_k(p, s); break;
    default: break;
    }
}

#endif

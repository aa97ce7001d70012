/* dot_avx512.h - quantised activations of the AVX-512 and AMX tiers.
 *
 * Quantising writes one block of one token as a column of dwords: codes, scale, and
 * the sums that products need, ready to be broadcast.  The VNNI kernels interleave the
 * columns of a group of tokens; dot_amx.c makes tiles of them. */
#ifndef DOT_AVX512_H
#define DOT_AVX512_H

#include <float.h>

#include "kern/fpguard.h"
#include "kern/unpack_avx512.h"

size_t act_bytes_avx512(enum act_kind kind, int k, int n_tok);
void act_quant_avx512(enum act_kind kind, const float *x, size_t ldx, int k, int n_tok, int t0,
                      int t1, void *act);

#define DECLARE_MM(ID, codec, ...) kern_mm_fn mm_##codec##_avx512;
QUANT_INTEGER_TYPES(DECLARE_MM)
#undef DECLARE_MM

/* Tokens side by side in a group of activations. */
enum { GROUP = 8 };

/* Tokens that a group of n (1 .. GROUP) has room for.  There are kernels for these widths only:
 * 5 and 7 tokens gain too little from one of their own. */
static inline int group_width(int n)
{
    return n == 5 || n == 7 ? n + 1 : n;
}

/* Tokens are taken in pieces whose activations leave room in the second-level cache. */
enum { PIECE_BYTES = 512 * 1024 };

/* Rows of a column of 32 values.  s is the sum of the codes. */
enum {
    A32_Q = 0,      /* 8: codes, four to a dword */
    A32_D = 8,      /* scale */
    A32_S = 9,      /* s as float */
    A32_S8 = 10,    /* -8 * s, then -16 * s and -128 * s: what the bias of the codes adds */
    A32_S16 = 11,
    A32_S128 = 12,
    A32_H128 = 13,  /* -128 times the sum of the first 16 codes */
    A32_ROWS = 14
};

/* Rows of a column of 256 values.  Pairs are int16, a low and b high, in the order of the walk
 * (unpack_avx512.h); s16 and s32 are sums of 16 and 32 codes. */
enum {
    A256_Q = 0,     /* 64: codes */
    A256_P16 = 64,  /* 8: pairs of s16, walk of q2_K */
    A256_P32 = 72,  /* 4: pairs of s32, walk of q4_K */
    A256_D = 76,    /* scale */
    A256_B3 = 77,   /* AMX: -124 times the sum of all codes */
    /* AMX needs nothing behind. */
    A256_Q3K = 80,  /* 8 x 2: -4 * s16, -16 * s16 */
    A256_Q6K = 96,  /* 8 x 2: -32 * s16 each */
    A256_Q4K = 112, /* 4 x 2: -8 * s32, -128 * s32 */
    A256_ROWS = 120
};

/* Dwords that quantising writes, whole vectors. */
enum { COLUMN_32 = 16, COLUMN_256 = 128 };

/* Scale of a block whose largest magnitude has these bits, and the factor that makes codes of it.
 *
 * The maximum is taken over bit patterns without sign, so that infinity and NaN come out on
 * top: such a block has that scale and codes 0.  Where 127 / amax overflows, it counts as zero.
 * A factor of 0 says that the codes are 0. */
INLINE float code_scale(__m512i max_bits, float *factor)
{
    const int32_t top = (int32_t)_mm512_reduce_max_epu32(max_bits);
    const float amax = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(top)));
    const float f = 127.0f / amax;

    *factor = 0.0f;
    if (top >= 0x7F800000) {
        return amax;
    }
    if (!(f <= FLT_MAX)) {
        return 0.0f;
    }
    *factor = f;
    return amax / 127.0f;
}

INLINE __m512i abs_bits(const float *x)
{
    return _mm512_and_si512(_mm512_castps_si512(_mm512_loadu_ps(x)), _mm512_set1_epi32(INT32_MAX));
}

/* 16 codes as dwords; the factor is not 0. */
INLINE __m512i codes16(const float *x, __m512 factor)
{
    return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), factor));
}

/* The sum of four dwords in each of them. */
INLINE __m128i sum_in_lanes(__m128i v)
{
    v = _mm_add_epi32(v, _mm_shuffle_epi32(v, 0x4E));
    return _mm_add_epi32(v, _mm_shuffle_epi32(v, 0xB1));
}

INLINE void quant_32(const float *x, int32_t *column)
{
    float factor;
    const float d = code_scale(_mm512_max_epu32(abs_bits(x), abs_bits(x + 16)), &factor);
    __m128i lo = _mm_setzero_si128(), hi = lo;

    if (factor != 0.0f) {
        const __m512 f = _mm512_set1_ps(factor);
        lo = _mm512_cvtepi32_epi8(codes16(x, f));
        hi = _mm512_cvtepi32_epi8(codes16(x + 16, f));
    }
    _mm_storeu_si128((void *)column, lo);
    _mm_storeu_si128((void *)(column + 4), hi);

    const __m128i ones = _mm_set1_epi8(1);
    const __m128i first = sum_in_lanes(_mm_dpbusd_epi32(_mm_setzero_si128(), ones, lo));
    const __m128i s = _mm_add_epi32(first,
                                    sum_in_lanes(_mm_dpbusd_epi32(_mm_setzero_si128(), ones, hi)));
    const __m128 head = _mm_move_ss(_mm_cvtepi32_ps(s), _mm_set_ss(d));
    const __m128i tail = _mm_mullo_epi32(_mm_blend_epi32(s, first, 8),
                                         _mm_setr_epi32(-8, -16, -128, -128));
    _mm_storeu_si128((void *)(column + A32_D), _mm_castps_si128(head));
    _mm_storeu_si128((void *)(column + A32_S8), tail);
}

/* The sums of 16 codes, in order; q: [4] vectors of 64 codes. */
INLINE __m512i sums_of_16(const __m512i *q)
{
    __m512i v[4];

    UNROLL
    for (int j = 0; j < 4; j++) {  /* then lane l of v[j] has s16[4 * j + l] in all four dwords */
        v[j] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), q[j]);
        v[j] = _mm512_add_epi32(v[j], _mm512_shuffle_epi32(v[j], (_MM_PERM_ENUM)0x4E));
        v[j] = _mm512_add_epi32(v[j], _mm512_shuffle_epi32(v[j], (_MM_PERM_ENUM)0xB1));
    }
    const __m512i a = _mm512_mask_blend_epi32(0xAAAA, v[0], v[1]);
    const __m512i b = _mm512_mask_blend_epi32(0xAAAA, v[2], v[3]);
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(order, _mm512_mask_blend_epi32(0xCCCC, a, b));
}

INLINE void quant_256(const float *x, int32_t *column, bool for_tiles)
{
    /* Sub-blocks a and b of the steps of the walks of q2_K and q6_K. */
    const __m512i walk2 = _mm512_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    const __m512i walk6 = _mm512_setr_epi32(0, 4, 2, 6, 1, 5, 3, 7, 8, 12, 10, 14, 9, 13, 11, 15);
    /* Packing to bytes works within lanes: dword i of vector j to its place. */
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i zero = _mm512_setzero_si512();
    __m512i q[4] = { zero, zero, zero, zero }, top = zero;
    float factor;

    for (int i = 0; i < 256; i += 16) {
        top = _mm512_max_epu32(top, abs_bits(x + i));
    }
    const float d = code_scale(top, &factor);
    if (factor != 0.0f) {
        const __m512 f = _mm512_set1_ps(factor);
        UNROLL
        for (int j = 0; j < 4; j++) {
            const float *v = x + 64 * j;
            const __m512i lo = _mm512_packs_epi32(codes16(v, f), codes16(v + 16, f));
            const __m512i hi = _mm512_packs_epi32(codes16(v + 32, f), codes16(v + 48, f));
            q[j] = _mm512_permutexvar_epi32(order, _mm512_packs_epi16(lo, hi));
        }
    }
    UNROLL
    for (int j = 0; j < 4; j++) {
        _mm512_storeu_si512(column + A256_Q + 16 * j, q[j]);
    }

    const __m512i s16 = sums_of_16(q), by2 = _mm512_permutexvar_epi32(walk2, s16);
    const __m512i twos = _mm512_add_epi32(s16, _mm512_srli_epi64(s16, 32));
    const __m256i s32 = _mm512_cvtepi64_epi32(twos);
    _mm256_storeu_si256((void *)(column + A256_P16), _mm512_cvtepi32_epi16(by2));
    _mm_storeu_si128((void *)(column + A256_P32), _mm256_cvtepi32_epi16(s32));

    const int32_t total = for_tiles ? _mm512_reduce_add_epi32(s16) : 0;
    const __m128i bias = _mm_setr_epi32(0, -124 * total, 0, 0);
    const __m128 head = _mm_move_ss(_mm_castsi128_ps(bias), _mm_set_ss(d));
    _mm_storeu_ps((float *)(column + A256_D), head);
    if (!for_tiles) {
        const __m512i by6 = _mm512_permutexvar_epi32(walk6, s16);
        const __m512i shift3 = _mm512_set4_epi32(4, 2, 4, 2);
        const __m256i shift4 = _mm256_setr_epi32(3, 7, 3, 7, 3, 7, 3, 7);
        const __m256i start4 = _mm256_sub_epi32(_mm256_setzero_si256(),
                                                _mm256_sllv_epi32(s32, shift4));

        _mm512_storeu_si512(column + A256_Q3K,
                            _mm512_sub_epi32(zero, _mm512_sllv_epi32(by2, shift3)));
        _mm512_storeu_si512(column + A256_Q6K,
                            _mm512_sub_epi32(zero, _mm512_slli_epi32(by6, 5)));
        _mm256_storeu_si256((void *)(column + A256_Q4K), start4);
    }
}

/* ---- of kernels ------------------------------------------------------------------------------ */

INLINE int act_block(enum act_kind kind)
{
    return kind == ACT_Q32 ? 32 : 256;
}

INLINE int act_rows(enum act_kind kind)
{
    return kind == ACT_Q32 ? A32_ROWS : A256_ROWS;
}

INLINE int min_int(int a, int b)
{
    return a < b ? a : b;
}

INLINE __m512i dword(const int32_t *p)
{
    return _mm512_set1_epi32(*p);
}

INLINE __m512 dword_ps(const int32_t *p)
{
    return _mm512_castsi512_ps(_mm512_set1_epi32(*p));
}

/* Vectors i and 4 + i of the 32 weights of a part of a block. */
INLINE struct codes unpack_32(uint32_t type, const uint8_t *p, int part, int i)
{
    switch (type) {
    case QT_Q4_0: return unpack_q4_0(p, i);
    case QT_Q4_1: return unpack_q4_1(p, i);
    case QT_Q5_0: return unpack_q5_0(p, i);
    case QT_Q5_1: return unpack_q5_1(p, i);
    case QT_IQ4_NL: return unpack_values(iq4_values, p + 32, i);
    case QT_MXFP4: return unpack_values(fp4_values, p + 16, i);
    case QT_NVFP4: return unpack_nvfp4(p, part, i);
    case QT_Q1_0: return unpack_q1_0(p, part, i);
    case QT_Q2_0: return unpack_q2_0(p, part, i);
    default: return unpack_q8_0(p, i);
    }
}

/* Scales of the rows for vectors 0 .. 3 of a part, and for 4 .. 7 where they differ. */
INLINE __m512 scales_32(uint32_t type, const uint8_t *p, int part, int half)
{
    switch (type) {
    case QT_MXFP4: return scales_mxfp4(p);
    case QT_NVFP4: return scales_nvfp4(p, 2 * part + half);
    default: return scales_f16(p);
    }
}

/* Distances of the two prefetches in bytes: where memory is slow, 8 KiB to the second level costs
 * 6 to 8% of its rate against these. */
enum { AHEAD_L2 = 4608, AHEAD_L1 = 2304 };

/* Step i of `steps` through a stretch of `bytes` at p: requests its share of the lines. */
INLINE void fetch_ahead(const uint8_t *p, int bytes, int i, int steps)
{
    const int lines = (bytes + 63) / 64;

    for (int l = i * lines / steps; l < (i + 1) * lines / steps; l++) {
        _mm_prefetch((const char *)p + 64 * l + AHEAD_L2, _MM_HINT_T1);
        _mm_prefetch((const char *)p + 64 * l + AHEAD_L1, _MM_HINT_T0);
    }
}

#endif

/* v16_avx512.h - the vector as one zmm register.
 *
 * Included by v16.h only. */
#ifndef V16_AVX512_H
#define V16_AVX512_H

#include <immintrin.h>

#define V16_ISA avx512

/* Tile of dot products: 24 accumulators of 32 registers. */
#define V16_TILE_X 6
#define V16_TILE_W(nx) ((nx) <= 3 ? 8 : 4)

/* Groups of sixteen keys that a tile of a prompt's scores takes: 24 accumulators again. */
#define V16_KEY_GROUPS 2

/* Groups of sixteen keys that a tile of quantised scores takes: 24 accumulators again. */
#define V16_Q8_GROUPS(nx) ((nx) <= 3 ? 4 : 2)

typedef __m512 v16;
typedef __m512i v16i, v16c;

/* The lowest n bits, n in 0..16. */
INLINE __mmask16 v16_mask(int n)
{
    return (__mmask16)((1u << n) - 1);
}

INLINE v16 v16_set1(float x) { return _mm512_set1_ps(x); }
INLINE v16 v16_zero(void) { return _mm512_setzero_ps(); }
INLINE v16 v16_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void v16_store(float *p, v16 a) { _mm512_storeu_ps(p, a); }

INLINE v16 v16_load_n(const float *p, int n)
{
    return _mm512_maskz_loadu_ps(v16_mask(n), p);
}

INLINE void v16_store_n(float *p, v16 a, int n)
{
    _mm512_mask_storeu_ps(p, v16_mask(n), a);
}

INLINE v16 v16_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

INLINE v16 v16_load_f16_n(const uint16_t *p, int n)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(v16_mask(n), p));
}

INLINE v16 v16_set1_f16(uint16_t h)
{
    return _mm512_cvtph_ps(_mm256_set1_epi16((int16_t)h));
}

INLINE v16 v16_load_i8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

/* Codes become unsigned, 128 more than they are; the start takes that back. */
INLINE v16c v16c_load(const int8_t *p)
{
    return _mm512_xor_si512(_mm512_loadu_si512(p), _mm512_set1_epi8(-128));
}

INLINE v16i v16i_dot4_start(int32_t sum)
{
    return _mm512_set1_epi32(-128 * sum);
}

INLINE v16i v16i_dot4(v16i acc, v16c codes, const int8_t *q)
{
    int32_t four;

    memcpy(&four, q, sizeof four);
    return _mm512_dpbusd_epi32(acc, codes, _mm512_set1_epi32(four));
}

INLINE v16 v16i_to_float(v16i a) { return _mm512_cvtepi32_ps(a); }

INLINE v16 v16_widen_bf16(__m256i h)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

INLINE v16 v16_load_bf16(const uint16_t *p)
{
    return v16_widen_bf16(_mm256_loadu_si256((const __m256i *)p));
}

INLINE v16 v16_load_bf16_n(const uint16_t *p, int n)
{
    return v16_widen_bf16(_mm256_maskz_loadu_epi16(v16_mask(n), p));
}

INLINE void v16_store_f16(uint16_t *p, v16 a)
{
    _mm256_storeu_si256((__m256i *)p,
                        _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

INLINE v16 v16_load_twice(const float *p, int n)
{
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);

    return _mm512_permutexvar_ps(twice, v16_load_n(p, n));
}

INLINE v16 v16_add(v16 a, v16 b) { return _mm512_add_ps(a, b); }
INLINE v16 v16_sub(v16 a, v16 b) { return _mm512_sub_ps(a, b); }
INLINE v16 v16_mul(v16 a, v16 b) { return _mm512_mul_ps(a, b); }
INLINE v16 v16_div(v16 a, v16 b) { return _mm512_div_ps(a, b); }
INLINE v16 v16_fma(v16 a, v16 b, v16 c) { return _mm512_fmadd_ps(a, b, c); }
INLINE v16 v16_max(v16 a, v16 b) { return _mm512_max_ps(a, b); }
INLINE v16 v16_min(v16 a, v16 b) { return _mm512_min_ps(a, b); }

INLINE v16 v16_less(v16 a, v16 b, v16 x, v16 y)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}

INLINE v16 v16_abs(v16 a)
{
    return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a);
}

INLINE v16 v16_copysign(v16 a, v16 s)
{
    const v16 sign = _mm512_set1_ps(-0.0f);

    return _mm512_or_ps(_mm512_andnot_ps(sign, a), _mm512_and_ps(sign, s));
}

INLINE v16 v16_swap_pairs(v16 a)
{
    return _mm512_permute_ps(a, 0xB1);
}

INLINE v16 v16_negate_even(v16 a)
{
    return _mm512_xor_ps(a, _mm512_castsi512_ps(_mm512_set1_epi64(0x80000000)));
}

INLINE v16 v16_pow2_biased(v16 t)
{
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(_mm512_castps_si512(t), 23),
                                                _mm512_set1_epi32(0x3F800000)));
}

INLINE v16 v16_split(v16 x, v16 *m)
{
    const __m512i u = _mm512_castps_si512(x);
    const __m512i e =
        _mm512_srai_epi32(_mm512_sub_epi32(u, _mm512_set1_epi32(V16_TWO_THIRDS)), 23);

    *m = _mm512_castsi512_ps(_mm512_sub_epi32(u, _mm512_slli_epi32(e, 23)));
    return _mm512_cvtepi32_ps(e);
}

/* Lanes 0..7 hold the first step of the tree, then 0..3 and so on. */
INLINE float v16_sum(v16 a)
{
    const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    const __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    const __m128 d = _mm_add_ps(q, _mm_movehl_ps(q, q));

    return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}

INLINE float v16_max_lane(v16 a)
{
    const __m256 h = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    const __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    const __m128 d = _mm_max_ps(q, _mm_movehl_ps(q, q));

    return _mm_cvtss_f32(_mm_max_ss(d, _mm_movehdup_ps(d)));
}

/* The tree of v16_sum for sixteen vectors at once: a step adds the halves of two
 * vectors and leaves both results in one.  Written as one shuffle and one blend,
 * (a1 b0) + (a0 b1); the two terms of an addition may change places. */
INLINE v16 v16_halves(v16 a, v16 b)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x4E), _mm512_mask_blend_ps(0xFF00, a, b));
}

INLINE v16 v16_quarters(v16 a, v16 b)
{
    const v16 swapped = _mm512_shuffle_f32x4(a, b, 0xDD);  /* a1 a3 b1 b3 */

    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), swapped);
}

INLINE void v16_sum16(const v16 *t, float *out)
{
    v16 z[4];

    for (int i = 0; i < 4; i++) {
        /* Four floats for each of t[i], t[i + 4], t[i + 8], t[i + 12]. */
        z[i] = v16_quarters(v16_halves(t[i], t[i + 4]), v16_halves(t[i + 8], t[i + 12]));
    }
    /* Lanes 0 1 with 2 3, by pairs of vectors; then 0 with 1. */
    const v16 x = _mm512_add_ps(
        _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(z[0]), _mm512_castps_pd(z[1]))),
        _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(z[0]), _mm512_castps_pd(z[1]))));
    const v16 y = _mm512_add_ps(
        _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(z[2]), _mm512_castps_pd(z[3]))),
        _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(z[2]), _mm512_castps_pd(z[3]))));

    v16_store(out, _mm512_add_ps(_mm512_shuffle_ps(x, y, 0x88), _mm512_shuffle_ps(x, y, 0xDD)));
}

INLINE void v16_transpose(const v16 *t, float *out, size_t ld)
{
    v16 z[16];

    for (int i = 0; i < 16; i += 4) {
        /* Lanes j, j + 4, j + 8, j + 12 of four rows in z[i + j]. */
        const v16 a = _mm512_unpacklo_ps(t[i], t[i + 1]), b = _mm512_unpackhi_ps(t[i], t[i + 1]);
        const v16 c = _mm512_unpacklo_ps(t[i + 2], t[i + 3]);
        const v16 d = _mm512_unpackhi_ps(t[i + 2], t[i + 3]);

        z[i] = _mm512_shuffle_ps(a, c, 0x44);
        z[i + 1] = _mm512_shuffle_ps(a, c, 0xEE);
        z[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
        z[i + 3] = _mm512_shuffle_ps(b, d, 0xEE);
    }
    for (int j = 0; j < 4; j++) {
        const v16 a = _mm512_shuffle_f32x4(z[j], z[j + 4], 0x88);       /* lanes j, j + 8 */
        const v16 b = _mm512_shuffle_f32x4(z[j], z[j + 4], 0xDD);       /* j + 4, j + 12 */
        const v16 c = _mm512_shuffle_f32x4(z[j + 8], z[j + 12], 0x88);
        const v16 d = _mm512_shuffle_f32x4(z[j + 8], z[j + 12], 0xDD);

        v16_store(out + (size_t)j * ld, _mm512_shuffle_f32x4(a, c, 0x88));
        v16_store(out + (size_t)(j + 4) * ld, _mm512_shuffle_f32x4(b, d, 0x88));
        v16_store(out + (size_t)(j + 8) * ld, _mm512_shuffle_f32x4(a, c, 0xDD));
        v16_store(out + (size_t)(j + 12) * ld, _mm512_shuffle_f32x4(b, d, 0xDD));
    }
}

#endif

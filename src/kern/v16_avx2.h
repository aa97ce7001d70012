/* v16_avx2.h - the vector as two ymm registers.
 *
 * Included by v16.h only. */
#ifndef V16_AVX2_H
#define V16_AVX2_H

#include <immintrin.h>

#define V16_ISA avx2

/* Tile of dot products: 12 accumulators of 16 registers. */
#define V16_TILE_X 3
#define V16_TILE_W(nx) ((nx) == 1 ? 4 : 2)

/* Groups of sixteen keys that a tile of a prompt's scores takes: 12 accumulators again. */
#define V16_KEY_GROUPS 1

/* Groups of sixteen keys that a tile of quantised scores takes. */
#define V16_Q8_GROUPS(nx) ((nx) == 1 ? 2 : 1)

/* Lanes 0..7 and 8..15. */
typedef struct { __m256 a, b; } v16;
typedef struct { __m256i a, b; } v16i, v16c;

/* All bits of the lowest n lanes, n in 0..8. */
INLINE __m256i v16_mask8(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

INLINE v16 v16_set1(float x)
{
    return (v16){ _mm256_set1_ps(x), _mm256_set1_ps(x) };
}

INLINE v16 v16_zero(void)
{
    return (v16){ _mm256_setzero_ps(), _mm256_setzero_ps() };
}

INLINE v16 v16_load(const float *p)
{
    return (v16){ _mm256_loadu_ps(p), _mm256_loadu_ps(p + 8) };
}

INLINE void v16_store(float *p, v16 x)
{
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}

/* Masked lanes are not accessed; the second half is left alone where it has none. */
INLINE v16 v16_load_n(const float *p, int n)
{
    if (n <= 8) {
        return (v16){ _mm256_maskload_ps(p, v16_mask8(n)), _mm256_setzero_ps() };
    }
    return (v16){ _mm256_loadu_ps(p), _mm256_maskload_ps(p + 8, v16_mask8(n - 8)) };
}

INLINE void v16_store_n(float *p, v16 x, int n)
{
    if (n <= 8) {
        _mm256_maskstore_ps(p, v16_mask8(n), x.a);
    } else {
        _mm256_storeu_ps(p, x.a);
        _mm256_maskstore_ps(p + 8, v16_mask8(n - 8), x.b);
    }
}

INLINE v16 v16_load_f16(const uint16_t *p)
{
    return (v16){ _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                  _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8))) };
}

INLINE v16 v16_load_f16_n(const uint16_t *p, int n)
{
    uint16_t t[16] = {0};

    memcpy(t, p, (size_t)n * sizeof *p);
    return v16_load_f16(t);
}

INLINE v16 v16_set1_f16(uint16_t h)
{
    const __m256 t = _mm256_cvtph_ps(_mm_set1_epi16((int16_t)h));

    return (v16){ t, t };
}

INLINE __m256 v16_widen_i8(const int8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

INLINE v16 v16_load_i8(const int8_t *p)
{
    return (v16){ v16_widen_i8(p), v16_widen_i8(p + 8) };
}

INLINE v16c v16c_load(const int8_t *p)
{
    return (v16c){ _mm256_loadu_si256((const __m256i *)p),
                   _mm256_loadu_si256((const __m256i *)(p + 32)) };
}

INLINE v16i v16i_dot4_start(int32_t sum)
{
    (void)sum;
    return (v16i){ _mm256_setzero_si256(), _mm256_setzero_si256() };
}

/* The sign of a code moves to the other factor, so that two products fit 16 bits. */
INLINE __m256i v16i_dot4_half(__m256i acc, __m256i codes, __m256i q)
{
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(q, codes));

    return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

INLINE v16i v16i_dot4(v16i acc, v16c codes, const int8_t *q)
{
    int32_t four;

    memcpy(&four, q, sizeof four);
    const __m256i all = _mm256_set1_epi32(four);
    return (v16i){ v16i_dot4_half(acc.a, codes.a, all), v16i_dot4_half(acc.b, codes.b, all) };
}

INLINE v16 v16i_to_float(v16i x)
{
    return (v16){ _mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b) };
}

INLINE __m256 v16_widen_bf16(const uint16_t *p)
{
    const __m256i u = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));

    return _mm256_castsi256_ps(_mm256_slli_epi32(u, 16));
}

INLINE v16 v16_load_bf16(const uint16_t *p)
{
    return (v16){ v16_widen_bf16(p), v16_widen_bf16(p + 8) };
}

INLINE v16 v16_load_bf16_n(const uint16_t *p, int n)
{
    uint16_t t[16] = {0};

    memcpy(t, p, (size_t)n * sizeof *p);
    return v16_load_bf16(t);
}

INLINE void v16_store_f16(uint16_t *p, v16 x)
{
    enum { NEAREST = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC };

    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x.a, NEAREST));
    _mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(x.b, NEAREST));
}

INLINE v16 v16_load_twice(const float *p, int n)
{
    const __m256 t = _mm256_maskload_ps(p, v16_mask8(n));

    return (v16){ _mm256_permutevar8x32_ps(t, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3)),
                  _mm256_permutevar8x32_ps(t, _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7)) };
}

INLINE v16 v16_add(v16 x, v16 y)
{
    return (v16){ _mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b) };
}

INLINE v16 v16_sub(v16 x, v16 y)
{
    return (v16){ _mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b) };
}

INLINE v16 v16_mul(v16 x, v16 y)
{
    return (v16){ _mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b) };
}

INLINE v16 v16_div(v16 x, v16 y)
{
    return (v16){ _mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b) };
}

INLINE v16 v16_fma(v16 x, v16 y, v16 z)
{
    return (v16){ _mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b) };
}

INLINE v16 v16_max(v16 x, v16 y)
{
    return (v16){ _mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b) };
}

INLINE v16 v16_min(v16 x, v16 y)
{
    return (v16){ _mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b) };
}

INLINE v16 v16_less(v16 a, v16 b, v16 x, v16 y)
{
    return (v16){ _mm256_blendv_ps(y.a, x.a, _mm256_cmp_ps(a.a, b.a, _CMP_LT_OQ)),
                  _mm256_blendv_ps(y.b, x.b, _mm256_cmp_ps(a.b, b.b, _CMP_LT_OQ)) };
}

INLINE v16 v16_abs(v16 x)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);

    return (v16){ _mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b) };
}

INLINE v16 v16_copysign(v16 x, v16 s)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);

    return (v16){ _mm256_or_ps(_mm256_andnot_ps(sign, x.a), _mm256_and_ps(sign, s.a)),
                  _mm256_or_ps(_mm256_andnot_ps(sign, x.b), _mm256_and_ps(sign, s.b)) };
}

INLINE v16 v16_swap_pairs(v16 x)
{
    return (v16){ _mm256_permute_ps(x.a, 0xB1), _mm256_permute_ps(x.b, 0xB1) };
}

INLINE v16 v16_negate_even(v16 x)
{
    const __m256 sign = _mm256_castsi256_ps(_mm256_set1_epi64x(0x80000000));

    return (v16){ _mm256_xor_ps(x.a, sign), _mm256_xor_ps(x.b, sign) };
}

INLINE __m256 v16_pow2_half(__m256 t)
{
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(t), 23),
                                                _mm256_set1_epi32(0x3F800000)));
}

INLINE v16 v16_pow2_biased(v16 t)
{
    return (v16){ v16_pow2_half(t.a), v16_pow2_half(t.b) };
}

INLINE __m256 v16_split_half(__m256 x, __m256 *m)
{
    const __m256i u = _mm256_castps_si256(x);
    const __m256i e =
        _mm256_srai_epi32(_mm256_sub_epi32(u, _mm256_set1_epi32(V16_TWO_THIRDS)), 23);

    *m = _mm256_castsi256_ps(_mm256_sub_epi32(u, _mm256_slli_epi32(e, 23)));
    return _mm256_cvtepi32_ps(e);
}

INLINE v16 v16_split(v16 x, v16 *m)
{
    v16 e;

    e.a = v16_split_half(x.a, &m->a);
    e.b = v16_split_half(x.b, &m->b);
    return e;
}

INLINE float v16_sum(v16 x)
{
    const __m256 h = _mm256_add_ps(x.a, x.b);
    const __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    const __m128 d = _mm_add_ps(q, _mm_movehl_ps(q, q));

    return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}

INLINE float v16_max_lane(v16 x)
{
    const __m256 h = _mm256_max_ps(x.a, x.b);
    const __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    const __m128 d = _mm_max_ps(q, _mm_movehl_ps(q, q));

    return _mm_cvtss_f32(_mm_max_ss(d, _mm_movehdup_ps(d)));
}

/* Lanes 0 1 plus lanes 2 3 of each quarter, of x into the lower pair and of y into the upper. */
INLINE __m256 v16_pairs(__m256 x, __m256 y)
{
    const __m256d p = _mm256_castps_pd(x), q = _mm256_castps_pd(y);

    return _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(p, q)),
                         _mm256_castpd_ps(_mm256_unpackhi_pd(p, q)));
}

/* The tree of v16_sum for eight vectors: each step adds the halves of two and
 * leaves both results in one register.  (a1 b0) + (a0 b1) needs one lane-crossing
 * shuffle; the two terms of an addition may change places. */
INLINE __m256 v16_sum8(const v16 *t)
{
    __m256 z[4];

    for (int i = 0; i < 4; i++) {
        const __m256 a = _mm256_add_ps(t[i].a, t[i].b);
        const __m256 b = _mm256_add_ps(t[i + 4].a, t[i + 4].b);

        z[i] = _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x21), _mm256_blend_ps(a, b, 0xF0));
    }
    const __m256 x = v16_pairs(z[0], z[1]), y = v16_pairs(z[2], z[3]);

    return _mm256_add_ps(_mm256_shuffle_ps(x, y, 0x88), _mm256_shuffle_ps(x, y, 0xDD));
}

INLINE void v16_sum16(const v16 *t, float *out)
{
    _mm256_storeu_ps(out, v16_sum8(t));
    _mm256_storeu_ps(out + 8, v16_sum8(t + 8));
}

/* Eight rows of eight floats; row i goes to out + i * ld. */
INLINE void v16_transpose8(const __m256 *t, float *out, size_t ld)
{
    __m256 z[8];

    for (int i = 0; i < 8; i += 4) {
        /* Lanes 0 and 4 of four rows, 1 and 5, 2 and 6, 3 and 7. */
        const __m256 a = _mm256_unpacklo_ps(t[i], t[i + 1]), b = _mm256_unpackhi_ps(t[i], t[i + 1]);
        const __m256 c = _mm256_unpacklo_ps(t[i + 2], t[i + 3]);
        const __m256 d = _mm256_unpackhi_ps(t[i + 2], t[i + 3]);

        z[i] = _mm256_shuffle_ps(a, c, 0x44);
        z[i + 1] = _mm256_shuffle_ps(a, c, 0xEE);
        z[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
        z[i + 3] = _mm256_shuffle_ps(b, d, 0xEE);
    }
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps(out + (size_t)i * ld, _mm256_permute2f128_ps(z[i], z[i + 4], 0x20));
        _mm256_storeu_ps(out + (size_t)(i + 4) * ld, _mm256_permute2f128_ps(z[i], z[i + 4], 0x31));
    }
}

INLINE void v16_transpose(const v16 *t, float *out, size_t ld)
{
    for (int j = 0; j < 16; j += 8) {
        __m256 a[8], b[8];

        for (int i = 0; i < 8; i++) {
            a[i] = t[j + i].a;
            b[i] = t[j + i].b;
        }
        v16_transpose8(a, out + j, ld);
        v16_transpose8(b, out + 8 * ld + j, ld);
    }
}

#endif

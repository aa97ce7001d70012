/* dot_avx512.h - what the AVX-512 tier lends to the AMX tier. */
#ifndef DOT_AVX512_H
#define DOT_AVX512_H

#include <float.h>

#include "kern/unpack_avx512.h"

size_t act_bytes_avx512(enum act_kind kind, int k, int n_tok);
void act_quant_avx512(enum act_kind kind, const float *x, size_t ldx, int k, int n_tok, int t0,
                      int t1, void *act);

kern_mm_fn mm_q4_0_avx512, mm_q4_1_avx512, mm_q5_0_avx512, mm_q5_1_avx512, mm_q8_0_avx512;
kern_mm_fn mm_q2_K_avx512, mm_q3_K_avx512, mm_q4_K_avx512, mm_q5_K_avx512, mm_q6_K_avx512;

/* Scale of a block of n values, n a multiple of 16, and the factor that makes codes of them.
 *
 * The maximum is taken over bit patterns without sign, so that infinity and NaN come out on
 * top: such a block has that scale and codes 0.  Where 127 / amax overflows, it counts as zero. */
INLINE float code_scale(const float *x, int n, float *factor)
{
    const __m512i sign = _mm512_set1_epi32(INT32_MIN);
    __m512i m = _mm512_setzero_si512();

    for (int i = 0; i < n; i += 16) {
        const __m512i v = _mm512_castps_si512(_mm512_loadu_ps(x + i));
        m = _mm512_max_epu32(m, _mm512_andnot_si512(sign, v));
    }
    const int32_t top = (int32_t)_mm512_reduce_max_epu32(m);
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

/* 16 codes, four to a dword; all zero for factor 0. */
INLINE __m128i codes16(const float *x, float factor)
{
    const __m512 v = _mm512_mul_ps(_mm512_loadu_ps(x), _mm512_set1_ps(factor));
    const __mmask16 some = factor != 0.0f ? 0xFFFF : 0;
    return _mm512_maskz_cvtepi32_epi8(some, _mm512_cvtps_epi32(v));
}

/* Sum of 16 codes. */
INLINE int32_t sum16(__m128i q)
{
    __m128i s = _mm_dpbusd_epi32(_mm_setzero_si128(), _mm_set1_epi8(1), q);
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1));
    return _mm_cvtsi128_si32(s);
}

INLINE int32_t pair(int32_t low, int32_t high)
{
    return (int32_t)((uint32_t)(uint16_t)low | (uint32_t)high << 16);
}

#endif

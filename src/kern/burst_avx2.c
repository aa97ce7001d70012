/* burst_avx2.c - bytes times bytes in pairs, then words to sums; eight chains, which only
 * unrolled loops keep in registers. */
#include "kern/burst.h"

#include <immintrin.h>

uint64_t burst_avx2(int n)
{
    volatile int seed = 1;
    const __m256i a = _mm256_set1_epi32(seed), one = _mm256_set1_epi16(1);
    __m256i s[8], b[8];

#pragma GCC unroll 16
    for (int j = 0; j < 8; j++) {
        s[j] = _mm256_setzero_si256();
        b[j] = _mm256_set1_epi32(seed + j);
    }
    for (int i = 0; i < n; i++) {
#pragma GCC unroll 16
        for (int j = 0; j < 8; j++) {
            const __m256i pairs = _mm256_maddubs_epi16(b[j], a);
            s[j] = _mm256_add_epi32(s[j], _mm256_madd_epi16(pairs, one));
            __asm__ volatile("" : "+x"(b[j]));  /* the same product again, not once for all */
        }
    }
#pragma GCC unroll 16
    for (int j = 1; j < 8; j++) {
        s[0] = _mm256_add_epi32(s[0], s[j]);
    }
    seed = _mm256_extract_epi32(s[0], 0);
    return (uint64_t)n * 8 * 32;
}

/* burst_avx512.c - VNNI products, sixteen chains, which only unrolled loops keep in registers. */
#include "kern/burst.h"

#include <immintrin.h>

uint64_t burst_avx512(int n)
{
    volatile int seed = 1;
    const __m512i a = _mm512_set1_epi32(seed), b = _mm512_set1_epi32(seed + 1);
    __m512i s[16];

#pragma GCC unroll 16
    for (int j = 0; j < 16; j++) {
        s[j] = _mm512_setzero_si512();
    }
    for (int i = 0; i < n; i++) {
#pragma GCC unroll 16
        for (int j = 0; j < 16; j++) {
            s[j] = _mm512_dpbusd_epi32(s[j], a, b);
            __asm__ volatile("" : "+v"(s[j]));
        }
    }
#pragma GCC unroll 16
    for (int j = 1; j < 16; j++) {
        s[0] = _mm512_add_epi32(s[0], s[j]);
    }
    seed = _mm512_cvtsi512_si32(s[0]);
    return (uint64_t)n * 16 * 64;
}

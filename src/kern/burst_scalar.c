/* burst_scalar.c - the portable products, four chains. */
#include "kern/burst.h"

uint64_t burst_scalar(int n)
{
    volatile int8_t seed = 3;
    const int a = seed, b = seed + 1;
    int32_t s[4] = {0};

    for (int i = 0; i < n; i++) {
        for (int j = 0; j < 4; j++) {
            s[j] += (a + (i & 7)) * (b + j);
        }
    }
    seed = (int8_t)(s[0] ^ s[1] ^ s[2] ^ s[3]);
    return (uint64_t)n * 4;
}

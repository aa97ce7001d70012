/* q_float.c - the float formats: conversions of one value, decoding of rows. */
#include <string.h>

#include "quant/blocks.h"

static float from_bits(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof x);
    return x;
}

static uint32_t to_bits(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof u);
    return u;
}

float f16_to_f32(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    const uint32_t exponent = (h >> 10) & 31u, fraction = h & 0x3FFu;

    if (exponent == 0) {  /* zero and subnormals: fraction * 2^-24 */
        const float x = (float)fraction * 0x1p-24f;
        return from_bits(sign | to_bits(x));
    }
    if (exponent == 31) { /* infinity; NaNs become quiet, as the hardware makes them */
        const uint32_t quiet = fraction != 0 ? 0x00400000u : 0;
        return from_bits(sign | 0x7F800000u | quiet | fraction << 13);
    }
    return from_bits(sign | (exponent + 112u) << 23 | fraction << 13);
}

uint16_t f32_to_f16(float x)
{
    const uint32_t u = to_bits(x), a = u & 0x7FFFFFFFu;
    const uint32_t sign = (u >> 16) & 0x8000u;

    if (a > 0x7F800000u) {   /* NaN: quiet, with what fits of the payload */
        return (uint16_t)(sign | 0x7E00u | ((a >> 13) & 0x1FFu));
    }
    if (a >= 0x477FF000u) {  /* 65520 is the first value that rounds to infinity */
        return (uint16_t)(sign | 0x7C00u);
    }
    if (a < 0x38800000u) {   /* below 2^-14; next to 0.5 a float counts in steps of 2^-24 */
        return (uint16_t)(sign | (to_bits(from_bits(a) + 0.5f) - to_bits(0.5f)));
    }
    /* Half a unit less one, and one more where the last kept bit is odd: nearest even. */
    return (uint16_t)(sign | (((a + 0xFFFu + ((a >> 13) & 1u)) >> 13) - (112u << 10)));
}

void f32_decode(const void *blocks, size_t n, float *out)
{
    memcpy(out, blocks, n * sizeof *out);
}

void f16_decode(const void *blocks, size_t n, float *out)
{
    const uint16_t *h = blocks;

    for (size_t i = 0; i < n; i++) {
        out[i] = f16_to_f32(h[i]);
    }
}

void bf16_decode(const void *blocks, size_t n, float *out)
{
    const uint16_t *h = blocks;

    for (size_t i = 0; i < n; i++) {
        out[i] = bf16_to_f32(h[i]);
    }
}

/* q_fp4.c - integer views of the 4-bit float types.
 *
 * Codes are twice the value of a float of two exponent bits and one of mantissa; the half
 * is in the scale. */
#include "quant/blocks.h"
#include "quant/iq_tables.h"

/* 2^(e - 128), a subnormal for e below 2. */
static float half_power(uint8_t e)
{
    const union { uint32_t u; float f; } v = { e < 2 ? 0x00200000u << e : (e - 1u) << 23 };

    return v.f;
}

void mxfp4_unpack(const void *block, struct qblock *out)
{
    const struct block_mxfp4 *b = block;

    set_single_scale(out, half_power(b->e));
    for (int i = 0; i < 16; i++) {
        out->code[i] = fp4_values[b->q[i] & 15];
        out->code[i + 16] = fp4_values[b->q[i] >> 4];
    }
}

/* Half of the float with four exponent bits and three of mantissa in the low seven bits of x;
 * the code that would be NaN is 0. */
static float half_e4m3(uint8_t x)
{
    const unsigned bits = x & 0x7Fu;

    /* An f16 with the same fields is 2^-8 of it. */
    return bits == 0x7F ? 0 : f16_to_f32((uint16_t)(bits << 7)) * 128.0f;
}

void nvfp4_unpack(const void *block, struct qblock *out)
{
    const struct block_nvfp4 *b = block;

    set_single_scale(out, 0);
    for (int s = 0; s < 4; s++) {
        out->d[s] = half_e4m3(b->sc[s]);
        for (int i = 0; i < 8; i++) {
            const uint8_t byte = b->q[8 * s + i];
            out->code[16 * s + i] = fp4_values[byte & 15];
            out->code[16 * s + i + 8] = fp4_values[byte >> 4];
        }
    }
}

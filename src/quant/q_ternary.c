/* q_ternary.c - integer views of the types with two or three, or four, values per weight. */
#include "quant/blocks.h"

/* Digit n of five base-3 digits, the first one most significant, of a fraction of 256. */
static int ternary_digit(uint8_t byte, int n)
{
    static const uint8_t power[5] = { 1, 3, 9, 27, 81 };

    return (uint8_t)(byte * power[n]) * 3 >> 8;
}

void tq1_0_unpack(const void *block, struct qblock *out)
{
    const struct block_tq1_0 *b = block;
    int8_t *code = out->code;

    set_single_scale(out, f16_to_f32(b->d));
    for (int i = 0; i < 160; i++) {
        *code++ = (int8_t)(ternary_digit(b->q[i % 32], i / 32) - 1);
    }
    for (int i = 0; i < 80; i++) {
        *code++ = (int8_t)(ternary_digit(b->q[32 + i % 16], i / 16) - 1);
    }
    for (int i = 0; i < 16; i++) {
        *code++ = (int8_t)(ternary_digit(b->qh[i % 4], i / 4) - 1);
    }
}

void tq2_0_unpack(const void *block, struct qblock *out)
{
    const struct block_tq2_0 *b = block;

    set_single_scale(out, f16_to_f32(b->d));
    for (int i = 0; i < 256; i++) {
        const int half = i / 128, run = i % 128 / 32;
        out->code[i] = (int8_t)((b->q[32 * half + i % 32] >> 2 * run & 3) - 1);
    }
}

void q1_0_unpack(const void *block, struct qblock *out)
{
    const struct block_q1_0 *b = block;

    set_single_scale(out, f16_to_f32(b->d));
    for (int i = 0; i < 128; i++) {
        out->code[i] = b->q[i / 8] >> (i % 8) & 1 ? 1 : -1;
    }
}

void q2_0_unpack(const void *block, struct qblock *out)
{
    const struct block_q2_0 *b = block;

    set_single_scale(out, f16_to_f32(b->d));
    for (int i = 0; i < 64; i++) {
        out->code[i] = (int8_t)((b->q[i / 4] >> 2 * (i % 4) & 3) - 1);
    }
}

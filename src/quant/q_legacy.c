/* q_legacy.c - integer views of the types with 32 weights in a block. */
#include <string.h>

#include "quant/blocks.h"

/* One scale and, for types with a minimum, one minimum for the whole block. */
static void set_unit_scales(struct qblock *out)
{
    for (int i = 0; i < 2; i++) {
        out->scale[i] = 1;
        out->min[i] = 1;
    }
}

/* code = nibble - zero */
static void unpack_nibbles(const uint8_t q[16], int zero, int8_t *code)
{
    for (int i = 0; i < 16; i++) {
        code[i] = (int8_t)((q[i] & 15) - zero);
        code[i + 16] = (int8_t)((q[i] >> 4) - zero);
    }
}

/* code += 16 * bit */
static void add_fifth_bits(const uint8_t h[4], int8_t *code)
{
    for (int i = 0; i < 32; i++) {
        code[i] = (int8_t)(code[i] + ((h[i / 8] >> (i % 8)) & 1) * 16);
    }
}

void q4_0_unpack(const void *block, struct qblock *out)
{
    const struct block_q4_0 *b = block;

    out->d[0] = f16_to_f32(b->d);
    out->e = 0;
    set_unit_scales(out);
    unpack_nibbles(b->q, 8, out->code);
}

void q4_1_unpack(const void *block, struct qblock *out)
{
    const struct block_q4_1 *b = block;

    out->d[0] = f16_to_f32(b->d);
    out->e = f16_to_f32(b->m);
    set_unit_scales(out);
    unpack_nibbles(b->q, 0, out->code);
}

void q5_0_unpack(const void *block, struct qblock *out)
{
    const struct block_q5_0 *b = block;

    out->d[0] = f16_to_f32(b->d);
    out->e = 0;
    set_unit_scales(out);
    unpack_nibbles(b->q, 16, out->code);
    add_fifth_bits(b->h, out->code);
}

void q5_1_unpack(const void *block, struct qblock *out)
{
    const struct block_q5_1 *b = block;

    out->d[0] = f16_to_f32(b->d);
    out->e = f16_to_f32(b->m);
    set_unit_scales(out);
    unpack_nibbles(b->q, 0, out->code);
    add_fifth_bits(b->h, out->code);
}

void q8_0_unpack(const void *block, struct qblock *out)
{
    const struct block_q8_0 *b = block;

    out->d[0] = f16_to_f32(b->d);
    out->e = 0;
    set_unit_scales(out);
    memcpy(out->code, b->q, sizeof b->q);
}

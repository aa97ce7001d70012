/* encode_types.c - the table of encoders: the integers of each type as data. */
#include "quant/encode.h"

#include <assert.h>
#include <string.h>

#include "quant/iq_tables.h"
#include "quant/quant.h"

struct encoder {
    struct grid grid;
    pack_fn *pack;
};

/* Weights of a block and a sub-block; ranges of code, scale and minimum. */
static const struct encoder encoders[QT_COUNT] = {
    [QT_Q4_0] = { { 32, 32, -8, 7, NULL, 1, 1, 0, 0 }, q4_0_pack },
    [QT_Q4_1] = { { 32, 32, 0, 15, NULL, 1, 1, 1, 1 }, q4_1_pack },
    [QT_Q5_0] = { { 32, 32, -16, 15, NULL, 1, 1, 0, 0 }, q5_0_pack },
    [QT_Q5_1] = { { 32, 32, 0, 31, NULL, 1, 1, 1, 1 }, q5_1_pack },
    [QT_Q8_0] = { { 32, 32, -127, 127, NULL, 1, 1, 0, 0 }, q8_0_pack },
    [QT_Q2_K] = { { 256, 16, 0, 3, NULL, 0, 15, 0, 15 }, q2_k_pack },
    [QT_Q3_K] = { { 256, 16, -4, 3, NULL, -32, 31, 0, 0 }, q3_k_pack },
    [QT_Q4_K] = { { 256, 32, 0, 15, NULL, 0, 63, 0, 63 }, q4_k_pack },
    [QT_Q5_K] = { { 256, 32, 0, 31, NULL, 0, 63, 0, 63 }, q5_k_pack },
    [QT_Q6_K] = { { 256, 16, -32, 31, NULL, -128, 127, 0, 0 }, q6_k_pack },
    [QT_IQ4_NL] = { { 32, 32, -127, 113, iq4_values, 1, 1, 0, 0 }, iq4_nl_pack },
    [QT_IQ4_XS] = { { 256, 32, -127, 113, iq4_values, -32, 31, 0, 0 }, iq4_xs_pack },
};

/* ---- floats ---------------------------------------------------------------------- */

static void encode_f16(const float *x, size_t n, uint16_t *out)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = f32_to_f16(x[i]);
    }
}

/* Nearest even. */
static void encode_bf16(const float *x, size_t n, uint16_t *out)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &x[i], sizeof u);
        out[i] = (uint16_t)((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
    }
}

/* ---- all ------------------------------------------------------------------------- */

static bool is_float(uint32_t type)
{
    return type == QT_F32 || type == QT_F16 || type == QT_BF16;
}

bool quant_can_encode(uint32_t type)
{
    return is_float(type) || (type < QT_COUNT && encoders[type].pack);
}

float quant_encode_max(uint32_t type)
{
    switch (type) {
    case QT_F32:
        return 0x1.fffffep127f;
    case QT_BF16:
        return 0x1.fep127f;
    default:
        return 65504.0f;  /* of a half: of the weights themselves, or of scales and minima */
    }
}

void quant_encode(uint32_t type, const float *x, size_t n, void *blocks)
{
    assert(quant_can_encode(type));
    switch (type) {
    case QT_F32:
        memcpy(blocks, x, n * sizeof *x);
        return;
    case QT_F16:
        encode_f16(x, n, blocks);
        return;
    case QT_BF16:
        encode_bf16(x, n, blocks);
        return;
    }
    const struct encoder *e = &encoders[type];
    const size_t bytes = (size_t)quant_type(type)->block_bytes;
    uint8_t *out = blocks;
    struct fitted b;

    assert(n % (size_t)e->grid.block == 0);
    for (size_t i = 0; i < n; i += (size_t)e->grid.block, out += bytes) {
        fit_block(&e->grid, x + i, &b);
        e->pack(&b, out);
    }
}

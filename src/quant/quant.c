/* quant.c - the table of weight types, and decoding by way of the integer view. */
#include "quant/quant.h"

#include <string.h>

#include "quant/blocks.h"

/* Values of one block.  The products are exact: 11 bits of d and at most 13 of scale and
 * code fit the 24 of a float (q6_K has 8 + 6, of which code 32 is a power of two).  A minimum
 * costs one rounding. */
static void block_values(const struct quant_type *type, const struct qblock *b, float *out)
{
    for (int i = 0; i < type->block; i++) {
        out[i] = b->d[i / type->step] * (float)b->scale[i / 16] * (float)b->code[i];
        if (type->has_min) {
            out[i] += b->e * (float)b->min[i / 16];
        }
    }
}

static void decode_blocks(const struct quant_type *type, const void *blocks, size_t n, float *out)
{
    const uint8_t *p = blocks;
    struct qblock b;

    assert(n % (size_t)type->block == 0);
    for (size_t i = 0; i < n; i += (size_t)type->block, p += type->block_bytes) {
        type->unpack(p, &b);
        block_values(type, &b, out + i);
    }
}

#define DECODE(ID, codec, ...)                                            \
    static void codec##_decode(const void *blocks, size_t n, float *out)  \
    {                                                                     \
        decode_blocks(quant_type(QT_##ID), blocks, n, out);               \
    }
QUANT_INTEGER_TYPES(DECODE)

#define ROW(ID, codec, weights, in_step, kind, minimum)                           \
    [QT_##ID] = { .id = QT_##ID, .name = #ID, .block = weights, .step = in_step,  \
                  .block_bytes = sizeof(struct block_##codec), .act = kind,       \
                  .has_min = minimum, .decode = codec##_decode,                   \
                  .unpack = codec##_unpack },

static const struct quant_type types[QT_COUNT] = {
    [QT_F32] = { .id = QT_F32, .name = "F32", .block = 1, .block_bytes = 4, .act = ACT_F32,
                 .decode = f32_decode },
    [QT_F16] = { .id = QT_F16, .name = "F16", .block = 1, .block_bytes = 2, .act = ACT_F32,
                 .decode = f16_decode },
    [QT_BF16] = { .id = QT_BF16, .name = "BF16", .block = 1, .block_bytes = 2, .act = ACT_F32,
                  .decode = bf16_decode },
    QUANT_INTEGER_TYPES(ROW)
};

const struct quant_type *quant_type(uint32_t id)
{
    return id < QT_COUNT && types[id].name != NULL ? &types[id] : NULL;
}

/* The top nibbles of four words, the first one the lowest. */
static void set_iq1_m_scale(struct block_iq1_m *b, uint16_t d)
{
    for (int i = 0; i < 4; i++) {
        b->s[i] = (uint16_t)((b->s[i] & 0x0FFFu) | (unsigned)(d >> 4 * i & 15) << 12);
    }
}

/* The float of four exponent bits and three of mantissa at or below the size of an f16. */
static int e4m3_of(uint16_t d)
{
    const float x = f16_to_f32(d & 0x7FFFu);

    if (x < 0x1p-6f) {  /* counts 2^-9 */
        return (int)(x * 512);
    }
    return x < 448 ? ((d & 0x7FFF) >> 7) - (8 << 3) : 0x7E;
}

void quant_set_scales(const struct quant_type *type, void *block, uint16_t d, uint16_t e)
{
    enum { NONE = -1 };
    static const int16_t d_at[QT_COUNT] = {
        [QT_Q2_K] = offsetof(struct block_q2_k, d), [QT_Q3_K] = offsetof(struct block_q3_k, d),
        [QT_Q6_K] = offsetof(struct block_q6_k, d), [QT_TQ1_0] = offsetof(struct block_tq1_0, d),
        [QT_TQ2_0] = offsetof(struct block_tq2_0, d),  /* the others begin with it */
        [QT_IQ1_M] = NONE, [QT_MXFP4] = NONE, [QT_NVFP4] = NONE,
    };
    const int at = d_at[type->id];

    if (at != NONE) {
        memcpy((uint8_t *)block + at, &d, sizeof d);
        if (type->has_min) {
            memcpy((uint8_t *)block + at + sizeof d, &e, sizeof e);
        }
    } else if (type->id == QT_IQ1_M) {
        set_iq1_m_scale(block, d);
    } else if (type->id == QT_MXFP4) {  /* the exponents of f16 and float differ by 112 */
        ((struct block_mxfp4 *)block)->e = (uint8_t)((d >> 10 & 31) + 113);
    } else {
        memset(((struct block_nvfp4 *)block)->sc, e4m3_of(d), 4);
    }
}

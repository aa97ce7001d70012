/* quant.c - the table of weight types, and decoding by way of the integer view. */
#include "quant/quant.h"

#include "quant/blocks.h"

/* id, codec prefix, name, weights in a block, activations, has_min */
#define INTEGER_TYPES(X)                         \
    X(Q4_0, q4_0, "Q4_0", 32, ACT_Q32, false)    \
    X(Q4_1, q4_1, "Q4_1", 32, ACT_Q32, true)     \
    X(Q5_0, q5_0, "Q5_0", 32, ACT_Q32, false)    \
    X(Q5_1, q5_1, "Q5_1", 32, ACT_Q32, true)     \
    X(Q8_0, q8_0, "Q8_0", 32, ACT_Q32, false)    \
    X(Q2_K, q2_k, "Q2_K", 256, ACT_Q256, true)   \
    X(Q3_K, q3_k, "Q3_K", 256, ACT_Q256, false)  \
    X(Q4_K, q4_k, "Q4_K", 256, ACT_Q256, true)   \
    X(Q5_K, q5_k, "Q5_K", 256, ACT_Q256, true)   \
    X(Q6_K, q6_k, "Q6_K", 256, ACT_Q256, false)

/* Values of one block.  The products are exact: 11 bits of d, at most 8 of a scale
 * and 6 of a code fit the 24 of a float.  A minimum costs one rounding. */
static void block_values(const struct quant_type *type, const struct qblock *b, float *out)
{
    for (int i = 0; i < type->block; i++) {
        out[i] = b->d * (float)b->scale[i / 16] * (float)b->code[i];
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
INTEGER_TYPES(DECODE)

#define ROW(ID, codec, text, weights, kind, minimum)                              \
    [QT_##ID] = { .id = QT_##ID, .name = text, .block = weights,                  \
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
    INTEGER_TYPES(ROW)
};

const struct quant_type *quant_type(uint32_t id)
{
    return id < QT_COUNT && types[id].name != NULL ? &types[id] : NULL;
}

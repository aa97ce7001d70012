/* quant.h - the table of weight types: what a block means.
 *
 * A row of a matrix is a sequence of blocks.  Every quantised block has two
 * views: its exact float values (decode) and small integers with scales
 * (unpack), from which the integer products of kern/dot.h are made.  Both are
 * written here once, in plain C, and are the definition that kernels equal. */
#ifndef QUANT_H
#define QUANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Ids as in the file. */
enum {
    QT_F32 = 0, QT_F16 = 1, QT_Q4_0 = 2, QT_Q4_1 = 3, QT_Q5_0 = 6, QT_Q5_1 = 7, QT_Q8_0 = 8,
    QT_Q2_K = 10, QT_Q3_K = 11, QT_Q4_K = 12, QT_Q5_K = 13, QT_Q6_K = 14, QT_BF16 = 30,
    QT_COUNT = 43
};

/* How the activations of a product with this type are quantised. */
enum act_kind {
    ACT_F32,   /* not at all: float weights */
    ACT_Q32,   /* blocks of 32 int8 codes with a float scale and their sum */
    ACT_Q256,  /* blocks of 256 with sixteen sums of 16 */
    ACT_KINDS
};

/* One block as integers: weight i = d * scale[i / 16] * code[i] + e * min[i / 16].
 * With activations a (codes q, scale da) a product adds to its float chain
 *     acc = fma(d * da, (float)S, acc)       S = sum scale[i / 16] * code[i] * q[i]
 *     acc = fma(e * da, (float)M, acc)       M = sum min[i / 16] * q[i], only if has_min
 * S and M are exact in int32.  Types of 32 weights have scale 1; types without a
 * minimum have e = 0 and no second step.  K types have e = -dmin. */
struct qblock {
    float d, e;
    int16_t scale[16];
    int16_t min[16];
    int8_t code[256];
};

struct quant_type {
    uint32_t id;
    const char *name;
    int block;         /* weights in a block */
    int block_bytes;
    enum act_kind act;
    bool has_min;
    /* Exact values of n weights, n a multiple of block. */
    void (*decode)(const void *blocks, size_t n, float *out);
    /* Integer view of one block; NULL for float types. */
    void (*unpack)(const void *block, struct qblock *out);
};

/* NULL for a type that the engine does not compute with. */
const struct quant_type *quant_type(uint32_t id);

/* Exact conversions between the 16-bit float formats and float. */
float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float x);  /* nearest even */
static inline float bf16_to_f32(uint16_t h)
{
    union { uint32_t u; float f; } v = { (uint32_t)h << 16 };
    return v.f;
}

#endif

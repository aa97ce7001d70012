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
    QT_Q2_K = 10, QT_Q3_K = 11, QT_Q4_K = 12, QT_Q5_K = 13, QT_Q6_K = 14, QT_IQ2_XXS = 16,
    QT_IQ2_XS = 17, QT_IQ3_XXS = 18, QT_IQ1_S = 19, QT_IQ4_NL = 20, QT_IQ3_S = 21,
    QT_IQ2_S = 22, QT_IQ4_XS = 23, QT_IQ1_M = 29, QT_BF16 = 30, QT_TQ1_0 = 34, QT_TQ2_0 = 35,
    QT_MXFP4 = 39, QT_NVFP4 = 40, QT_Q1_0 = 41, QT_Q2_0 = 42,
    QT_COUNT = 43
};

/* The types with an integer view, one line each; the rest of the program makes its tables
 * from this list.
 * id, name in functions, weights in a block, weights in a step, activations, has_min */
#define QUANT_INTEGER_TYPES(X)                     \
    X(Q4_0, q4_0, 32, 32, ACT_Q32, false)          \
    X(Q4_1, q4_1, 32, 32, ACT_Q32, true)           \
    X(Q5_0, q5_0, 32, 32, ACT_Q32, false)          \
    X(Q5_1, q5_1, 32, 32, ACT_Q32, true)           \
    X(Q8_0, q8_0, 32, 32, ACT_Q32, false)          \
    X(Q2_K, q2_k, 256, 256, ACT_Q256, true)        \
    X(Q3_K, q3_k, 256, 256, ACT_Q256, false)       \
    X(Q4_K, q4_k, 256, 256, ACT_Q256, true)        \
    X(Q5_K, q5_k, 256, 256, ACT_Q256, true)        \
    X(Q6_K, q6_k, 256, 256, ACT_Q256, false)       \
    X(IQ2_XXS, iq2_xxs, 256, 256, ACT_Q256, false) \
    X(IQ2_XS, iq2_xs, 256, 256, ACT_Q256, false)   \
    X(IQ3_XXS, iq3_xxs, 256, 256, ACT_Q256, false) \
    X(IQ1_S, iq1_s, 256, 256, ACT_Q256, false)     \
    X(IQ4_NL, iq4_nl, 32, 32, ACT_Q32, false)      \
    X(IQ3_S, iq3_s, 256, 256, ACT_Q256, false)     \
    X(IQ2_S, iq2_s, 256, 256, ACT_Q256, false)     \
    X(IQ4_XS, iq4_xs, 256, 256, ACT_Q256, false)   \
    X(IQ1_M, iq1_m, 256, 256, ACT_Q256, false)     \
    X(TQ1_0, tq1_0, 256, 256, ACT_Q256, false)     \
    X(TQ2_0, tq2_0, 256, 256, ACT_Q256, false)     \
    X(MXFP4, mxfp4, 32, 32, ACT_Q32, false)        \
    X(NVFP4, nvfp4, 64, 16, ACT_Q32, false)        \
    X(Q1_0, q1_0, 128, 32, ACT_Q32, false)         \
    X(Q2_0, q2_0, 64, 32, ACT_Q32, false)

/* How the activations of a product with this type are quantised. */
enum act_kind {
    ACT_F32,   /* not at all: float weights */
    ACT_Q32,   /* blocks of 32 int8 codes with a float scale and their sum */
    ACT_Q256,  /* blocks of 256 with sixteen sums of 16 */
    ACT_KINDS
};

/* One block as integers.  A block is a list of steps of the same length, one unless the
 * block is longer than the activations that go with it:
 *     weight i = d[i / step] * scale[i / 16] * code[i] + e * min[i / 16]
 * With activations a (codes q, scale da) every step adds to the float chain of a product
 *     acc = fma(d * da, (float)S, acc)       S = sum scale[i / 16] * code[i] * q[i]
 *     acc = fma(e * da, (float)M, acc)       M = sum min[i / 16] * q[i], only if has_min
 * S and M are exact in int32.  Powers of two are in d, so that codes are integers.  Only
 * types of one step have a minimum; those without have e = 0.  K types have e = -dmin. */
enum { QBLOCK_STEPS = 4 };

struct qblock {
    float d[QBLOCK_STEPS], e;
    int16_t scale[16];
    int16_t min[16];
    int8_t code[256];
};

struct quant_type {
    uint32_t id;
    const char *name;
    int block;         /* weights in a block */
    int block_bytes;
    int step;          /* weights in a step of the chain */
    enum act_kind act;
    bool has_min;
    /* Exact values of n weights, n a multiple of block. */
    void (*decode)(const void *blocks, size_t n, float *out);
    /* Integer view of one block; NULL for float types. */
    void (*unpack)(const void *block, struct qblock *out);
};

/* NULL for a type that the engine does not compute with. */
const struct quant_type *quant_type(uint32_t id);

/* Puts 16-bit float d in the place of a block's scale, and e in that of its second one where
 * it has two; exponents only, or the nearest below in size, where the type holds no more.  It
 * makes a block of random bytes a block of ordinary weights. */
void quant_set_scales(const struct quant_type *type, void *block, uint16_t d, uint16_t e);

/* Exact conversions between the 16-bit float formats and float. */
float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float x);  /* nearest even */
static inline float bf16_to_f32(uint16_t h)
{
    union { uint32_t u; float f; } v = { (uint32_t)h << 16 };
    return v.f;
}

#endif

/* blocks.h - the blocks as they lie in the file, and the codecs behind the type table.
 *
 * Little-endian; a block with 16-bit fields has an even size, so they are aligned
 * wherever a row begins at an even address. */
#ifndef BLOCKS_H
#define BLOCKS_H

#include <assert.h>

#include "quant/quant.h"

/* Thirty-two weights.  Element i < 16 is the low nibble of q[i], element i >= 16
 * the high nibble of q[i - 16]; bit i of h is the fifth bit of element i. */
struct block_q4_0 {
    uint16_t d;
    uint8_t q[16];
};
struct block_q4_1 {
    uint16_t d, m;
    uint8_t q[16];
};
struct block_q5_0 {
    uint16_t d;
    uint8_t h[4];
    uint8_t q[16];
};
struct block_q5_1 {
    uint16_t d, m;
    uint8_t h[4];
    uint8_t q[16];
};
struct block_q8_0 {
    uint16_t d;
    int8_t q[32];
};

/* Two hundred and fifty-six weights with a small scale per 16 or 32 of them. */
struct block_q2_k {
    uint8_t sc[16];  /* low nibble scale, high nibble minimum */
    uint8_t q[64];
    uint16_t d, dmin;
};
struct block_q3_k {
    uint8_t h[32];
    uint8_t q[64];
    uint8_t a[12];   /* sixteen scales of 6 bits */
    uint16_t d;
};
struct block_q4_k {
    uint16_t d, dmin;
    uint8_t a[12];   /* eight pairs of scale and minimum, 6 bits each */
    uint8_t q[128];
};
struct block_q5_k {
    uint16_t d, dmin;
    uint8_t a[12];
    uint8_t h[32];
    uint8_t q[128];
};
struct block_q6_k {
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t sc[16];
    uint16_t d;
};

/* Codebook types: indices of groups of 8 or 4 weights in a table, and their signs. */
struct block_iq2_xxs {
    uint16_t d;
    uint8_t q[64];   /* per 32 weights: four indices; 4 x 7 bits of signs, 4 of scale */
};
struct block_iq2_xs {
    uint16_t d;
    uint16_t q[32];  /* 9 bits of index, 7 of signs */
    uint8_t sc[8];   /* a nibble for every 16 weights */
};
struct block_iq2_s {
    uint16_t d;
    uint8_t q[32];   /* low bits of the indices */
    uint8_t sg[32];  /* signs */
    uint8_t qh[8];   /* two more bits of each index */
    uint8_t sc[8];
};
struct block_iq3_xxs {
    uint16_t d;
    uint8_t q[64];
    uint8_t w[32];   /* per 32 weights 4 x 7 bits of signs, 4 of scale */
};
struct block_iq3_s {
    uint16_t d;
    uint8_t q[64];
    uint8_t qh[8];
    uint8_t sg[32];
    uint8_t sc[4];   /* a nibble for every 32 weights */
};
struct block_iq1_s {
    uint16_t d;
    uint8_t q[32];
    uint16_t qh[8];  /* 4 x 3 bits of index, 3 of scale, the sign of the offset */
};
struct block_iq1_m {
    uint8_t q[32];
    uint8_t qh[16];  /* per 8 weights 3 bits of index and the sign of the offset */
    uint16_t s[4];   /* per 16 weights 3 bits of scale; the top nibbles make the f16 d */
};
struct block_iq4_nl {
    uint16_t d;
    uint8_t q[16];
};
struct block_iq4_xs {
    uint16_t d;
    uint16_t sh;     /* high two bits of eight scales of 6 bits */
    uint8_t sl[4];
    uint8_t q[128];
};

/* Ternary types.  Five base-3 digits to a byte of q, four to a byte of qh. */
struct block_tq1_0 {
    uint8_t q[48];
    uint8_t qh[4];
    uint16_t d;
};
struct block_tq2_0 {
    uint8_t q[64];
    uint16_t d;
};

/* One or two bits per weight. */
struct block_q1_0 {
    uint16_t d;
    uint8_t q[16];
};
struct block_q2_0 {
    uint16_t d;
    uint8_t q[16];
};

/* Four-bit floats; an exponent for 32 weights, or a small float for every 16. */
struct block_mxfp4 {
    uint8_t e;
    uint8_t q[16];
};
struct block_nvfp4 {
    uint8_t sc[4];
    uint8_t q[32];
};

static_assert(sizeof(struct block_q4_0) == 18, "q4_0");
static_assert(sizeof(struct block_q4_1) == 20, "q4_1");
static_assert(sizeof(struct block_q5_0) == 22, "q5_0");
static_assert(sizeof(struct block_q5_1) == 24, "q5_1");
static_assert(sizeof(struct block_q8_0) == 34, "q8_0");
static_assert(sizeof(struct block_q2_k) == 84, "q2_K");
static_assert(sizeof(struct block_q3_k) == 110, "q3_K");
static_assert(sizeof(struct block_q4_k) == 144, "q4_K");
static_assert(sizeof(struct block_q5_k) == 176, "q5_K");
static_assert(sizeof(struct block_q6_k) == 210, "q6_K");
static_assert(sizeof(struct block_iq2_xxs) == 66, "iq2_xxs");
static_assert(sizeof(struct block_iq2_xs) == 74, "iq2_xs");
static_assert(sizeof(struct block_iq2_s) == 82, "iq2_s");
static_assert(sizeof(struct block_iq3_xxs) == 98, "iq3_xxs");
static_assert(sizeof(struct block_iq3_s) == 110, "iq3_s");
static_assert(sizeof(struct block_iq1_s) == 50, "iq1_s");
static_assert(sizeof(struct block_iq1_m) == 56, "iq1_m");
static_assert(sizeof(struct block_iq4_nl) == 18, "iq4_nl");
static_assert(sizeof(struct block_iq4_xs) == 136, "iq4_xs");
static_assert(sizeof(struct block_tq1_0) == 54, "tq1_0");
static_assert(sizeof(struct block_tq2_0) == 66, "tq2_0");
static_assert(sizeof(struct block_q1_0) == 18, "q1_0");
static_assert(sizeof(struct block_q2_0) == 18, "q2_0");
static_assert(sizeof(struct block_mxfp4) == 17, "mxfp4");
static_assert(sizeof(struct block_nvfp4) == 36, "nvfp4");

/* q_float.c */
void f32_decode(const void *blocks, size_t n, float *out);
void f16_decode(const void *blocks, size_t n, float *out);
void bf16_decode(const void *blocks, size_t n, float *out);

/* q_legacy.c, q_k.c, q_iq.c, q_ternary.c, q_fp4.c */
#define DECLARE_UNPACK(ID, codec, ...) \
    void codec##_unpack(const void *block, struct qblock *out);
QUANT_INTEGER_TYPES(DECLARE_UNPACK)
#undef DECLARE_UNPACK

/* One scale of the whole block, or of all of its steps, and no minimum. */
static inline void set_single_scale(struct qblock *out, float d)
{
    out->e = 0;
    for (int i = 0; i < QBLOCK_STEPS; i++) {
        out->d[i] = d;
    }
    for (int i = 0; i < 16; i++) {
        out->scale[i] = 1;
        out->min[i] = 0;
    }
}

#endif

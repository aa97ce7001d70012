/* blocks.h - the blocks as they lie in the file, and the codecs behind the type table.
 *
 * Little-endian; every block has an even size, so its 16-bit fields are aligned
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

/* q_float.c */
void f32_decode(const void *blocks, size_t n, float *out);
void f16_decode(const void *blocks, size_t n, float *out);
void bf16_decode(const void *blocks, size_t n, float *out);

/* q_legacy.c */
void q4_0_unpack(const void *block, struct qblock *out);
void q4_1_unpack(const void *block, struct qblock *out);
void q5_0_unpack(const void *block, struct qblock *out);
void q5_1_unpack(const void *block, struct qblock *out);
void q8_0_unpack(const void *block, struct qblock *out);

/* q_k.c */
void q2_k_unpack(const void *block, struct qblock *out);
void q3_k_unpack(const void *block, struct qblock *out);
void q4_k_unpack(const void *block, struct qblock *out);
void q5_k_unpack(const void *block, struct qblock *out);
void q6_k_unpack(const void *block, struct qblock *out);

#endif

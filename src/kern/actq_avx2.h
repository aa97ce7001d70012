/* actq_avx2.h - quantised activations of the AVX2 tier: their layout.
 *
 * Tokens stand in groups of four; the last group is as wide as it has tokens, so
 * that a single token is read as one dense stream.  Within a group block follows
 * block, and a block is a list of dwords, each [width]: one dword per token side
 * by side.  A tile of tokens thus has one base pointer and fixed distances.
 *
 * "Lane sums" are what a chain of maddubs with weights of one would leave: two
 * 16-bit sums of the codes with k % 4 < 2 and with k % 4 >= 2. */
#ifndef ACTQ_AVX2_H
#define ACTQ_AVX2_H

#include <stddef.h>
#include <stdint.h>

#include "quant/quant.h"

enum { ACT_GROUP = 4 };

/* Dwords of a block of 32, times the width of the group. */
enum {
    A32_Q = 0,         /* 8: four codes each */
    A32_START_8 = 8,   /* -8 times the lane sums */
    A32_START_16 = 9,  /* -16 times the lane sums */
    A32_SUM = 10,      /* float: sum of the codes */
    A32_D = 11,        /* float: scale */
    A32_START_FIRST = 12,  /* of A32_START_16 what the first 16 codes give */
    A32_DWORDS = 13
};

/* Dwords of a block of 256, times the width of the group. */
enum {
    A256_Q = 0,          /* 64: four codes each */
    A256_START_32 = 64,  /* 16: -32 times the lane sums of 16 codes */
    A256_PAIR_16 = 80,   /* 8: sums of two neighbouring sixteens, 16 bits each */
    A256_PAIR_32 = 88,   /* 4: sums of two neighbouring thirty-twos */
    A256_D = 92,         /* float: scale */
    A256_DWORDS = 96     /* whole cache lines; the last three are unused */
};

static inline int act_width(int n_tok, int group)
{
    const int rest = n_tok - group * ACT_GROUP;

    return rest < ACT_GROUP ? rest : ACT_GROUP;
}

/* Dwords of one token over k values. */
static inline size_t act_dwords(enum act_kind kind, int k)
{
    return kind == ACT_Q32 ? (size_t)(k / 32) * A32_DWORDS : (size_t)(k / 256) * A256_DWORDS;
}

size_t act_bytes_avx2(enum act_kind kind, int k, int n_tok);
void act_quant_avx2(enum act_kind kind, const float *x, size_t ldx, int k, int n_tok, int t0,
                    int t1, void *act);

#endif

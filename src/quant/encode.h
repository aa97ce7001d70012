/* encode.h - from floats to the blocks of a type.
 *
 * An encoder first finds the integers and factors that come nearest to the weights of a
 * block, then packs them into the bytes of its type.  Which integers a type has is data,
 * so one search serves all types. */
#ifndef ENCODE_H
#define ENCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The integers of a type.  Weight i is d * scale * code + e * min, and scale and min
 * belong to a sub-block.  Where scale_lo = scale_hi = 1 the sub-block is the block and d
 * does the work alone; the same holds for min and e. */
struct grid {
    int block, sub;           /* weights of a block and of a sub-block, multiples of 8 */
    int code_lo, code_hi;
    const int8_t *codes;      /* or the 16 possible codes, ascending */
    int scale_lo, scale_hi;
    int min_lo, min_hi;       /* 0, 0: no minimum */
};

/* A block as integers: weight i is about d * scale[i / sub] * code[i] + e * min[i / sub].
 * d and e are values of a half. */
struct fitted {
    float d, e;
    int scale[16], min[16];
    int8_t code[256];
};

/* The block with the least squared error that the search finds; x [grid->block], finite
 * and at most 65504 in magnitude. */
void fit_block(const struct grid *grid, const float *x, struct fitted *out);

/* Into the bytes of a type: the inverse of its unpack, in encode_pack.c. */
typedef void pack_fn(const struct fitted *b, void *block);
pack_fn q4_0_pack, q4_1_pack, q5_0_pack, q5_1_pack, q8_0_pack;
pack_fn q2_k_pack, q3_k_pack, q4_k_pack, q5_k_pack, q6_k_pack;
pack_fn iq4_nl_pack, iq4_xs_pack;

/* Whether there is an encoder for a type, and the largest magnitude that it takes. */
bool quant_can_encode(uint32_t type);
float quant_encode_max(uint32_t type);

/* Blocks of the type for n weights, a multiple of its block size, all finite and within
 * quant_encode_max.  The bytes depend on the weights alone. */
void quant_encode(uint32_t type, const float *x, size_t n, void *blocks);

#endif

/* iq_tables.h - the codebooks of the IQ types and the values of 4-bit codes.
 *
 * Entry i of a grid holds the magnitudes of eight weights (iq1: their values) as the bytes of
 * a 64-bit number, weight j in bits 8j .. 8j + 7; the iq3 grids have four weights in 32 bits. */
#ifndef IQ_TABLES_H
#define IQ_TABLES_H

#include <stdint.h>

extern const uint64_t iq2xxs_grid[256], iq2xs_grid[512], iq2s_grid[1024];
extern const uint64_t iq1_grid[2048];  /* iq1_s and iq1_m: -1, 0, 1 */
extern const uint32_t iq3xxs_grid[256], iq3s_grid[512];

extern const int8_t iq4_values[16];    /* iq4_nl, iq4_xs */
extern const int8_t fp4_values[16];    /* mxfp4, nvfp4: twice the value */

/* The eight signs that seven bits stand for: the number of negative ones is even. */
static inline uint8_t iq_signs(unsigned seven_bits)
{
    return (uint8_t)(seven_bits | (unsigned)__builtin_parity(seven_bits) << 7);
}

#endif

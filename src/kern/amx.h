/* amx.h - what both files with AMX kernels need: the shape of tiles, order of memory accesses. */
#ifndef AMX_H
#define AMX_H

#include "kern/dot_avx512.h"

/* Tokens of a tile. */
enum { TILE_TOK = 16 };

/* The tile intrinsics of GCC 12 say nothing of memory: this makes stores to p happen before,
 * and loads from p after. */
#define FENCE(p) __asm__ volatile("" : : "r"(p) : "memory")

INLINE int tiles_of(int n_tok)
{
    return (n_tok + TILE_TOK - 1) / TILE_TOK;
}

/* Tiles for products over `width` of K, at most 64: 4 and 6 are [16 tokens][width], 5 and 7
 * [width / 4][16 rows][4], 0 to 3 [16 tokens][16 rows] of sums.  With a width of 64 all are
 * alike. */
INLINE void tiles_begin(int width)
{
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = { .palette = 1 };

    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = (uint16_t)(i == 4 || i == 6 ? width : 64);
        config.rows[i] = (uint8_t)(i == 5 || i == 7 ? width / 4 : 16);
    }
    FENCE(&config);
    _tile_loadconfig(&config);
}

/* dot_32_amx.c: types of 32 weights.  From AMX_32_MIN tokens on, activations have a layout of
 * their own. */
enum { AMX_32_MIN = 13 };

size_t act_bytes_32_amx(int k, int n_tok);
void act_quant_32_amx(const float *x, size_t ldx, int k, int n_tok, int t0, int t1, void *act);
void dot_32_amx_fill(struct kern *k);

#endif

/* dot.h - integer products: the order of their float steps, and the panel layout.
 *
 * For output row r and token t one float chain runs over the blocks of the row in
 * ascending order, with the steps that quant.h gives for a block.  Everything
 * inside a block is exact in int32, so each instruction set does it its own way.
 *
 * A panel holds 16 rows of one block: the same bytes as in the file, ordered so
 * that a lane is a row.  Panels of a row group follow one another along K, row
 * groups follow each other, so a thread reads one forward stream.  A missing row
 * of the last group is zero.  Notation [a][16][w]: w consecutive bytes of a row;
 * codes q keep the pairing of nibbles and 2-bit fields of the file.
 *
 *   q4_0   288  d[16] | q[4][16][4]
 *   q4_1   320  d[16] m[16] | q[4][16][4]
 *   q5_0   352  d[16] | h[8] | q[4][16][4]        h: 64-bit masks over [16][4], one for
 *   q5_1   384  d[16] m[16] | h[8] | q[4][16][4]     every four k (k = 4 * i .. 4 * i + 3)
 *   q8_0   544  d[16] | q[8][16][4]
 *   q2_K  1344  d[16] dmin[16] | sc[16][16][1] | q[16][16][4]
 *   q3_K  1760  d[16] | a[3][16][4] | h[8][16][4] | q[16][16][4]
 *   q4_K  2304  d[16] dmin[16] | a[3][16][4] | q[32][16][4]
 *   q5_K  2816  d[16] dmin[16] | a[3][16][4] | h[8][16][4] | q[32][16][4]
 *   q6_K  3360  d[16] | sc[16][16][1] | ql[32][16][4] | qh[16][16][4]
 *
 *   iq2_xxs  1056  d[16] | q[16][16][4]           iq4_nl   288  d[16] | q[4][16][4]
 *   iq2_xs   1184  d[16] | q[16].. sc[2]..        iq4_xs  2176  d[16] sh[16] | sl[1].. q[32]..
 *   iq2_s    1312  d[16] | q[8].. sg[8].. qh[2].. sc[2]..
 *   iq3_xxs  1568  d[16] | q[16].. w[8]..         tq1_0    864  d[16] | q[12].. qh[1]..
 *   iq3_s    1760  d[16] | q[16].. qh[2].. sg[8].. sc[1]..
 *   iq1_s     800  d[16] | q[8].. qh[4]..         tq2_0   1056  d[16] | q[16]..
 *   iq1_m     896  q[8].. qh[4].. s[2]..          q2_0     288  d[16] | q[4]..
 *   mxfp4     272  e[16] | q[4]..                 nvfp4    576  sc[1].. q[8]..
 *   q1_0      288  d[16] | q[4][8]: masks as h, for every 32 weights
 */
#ifndef DOT_H
#define DOT_H

#include "kern/kern.h"

enum { PANEL_ROWS = 16 };

/* Packs n_rows (1..16) rows of k weights, row_bytes apart, into the panels of one
 * row group: 16 * row_bytes bytes at `panels`. */
void panel_pack(const struct quant_type *type, const void *rows, size_t row_bytes, int k,
                int n_rows, void *panels);

/* The inverse, for tests. */
void panel_unpack(const struct quant_type *type, const void *panels, size_t row_bytes, int k,
                  int n_rows, void *rows);

/* Each tier fills in its part of the table: act_bytes, act_quant, mm, pack, panels. */
void dot_scalar_fill(struct kern *k);
void dot_avx2_fill(struct kern *k);
void dot_avx512_fill(struct kern *k);
void dot_amx_fill(struct kern *k);

#endif

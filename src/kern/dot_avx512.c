/* dot_avx512.c - integer products with AVX-512 VNNI: a tile is 16 rows x up to 8 tokens.
 *
 * Weights are panels (dot.h): a lane is a row, so no sum crosses lanes.  The
 * activations of eight tokens are interleaved by dwords of four codes, so that
 * each vpdpbusd broadcasts its operand from one moving base; the last group of a
 * batch is hardly wider than it has tokens, and there is a kernel for each width.
 *
 * Memory is the limit of a single token.  Every line of the weights is therefore
 * requested by software exactly once, spread between the arithmetic: to the
 * second-level cache far ahead, then from there to the first. */
#include "kern/dot_avx512.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "kern/panel.h"

/* ---- activations -------------------------------------------------------------------------------
 *
 * A group of n tokens: for each block of K the columns (dot_avx512.h) of the tokens side by side,
 * rows of group_width(n) dwords.  A column without a token holds zeros. */

size_t act_bytes_avx512(enum act_kind kind, int k, int n_tok)
{
    const size_t rows = (size_t)(k / act_block(kind)) * (size_t)act_rows(kind);
    const int last = n_tok % GROUP, width = last ? group_width(last) : 0;
    return align_up(4 * rows * (size_t)(n_tok - last + width), 64);
}

/* Row r of eight columns, with row r + 8 behind it: lanes (a, b) and (a, b) of 16 bytes. */
INLINE void put_rows(int32_t *out, __m512i v, int r, int rows)
{
    if (r < rows) {
        _mm256_storeu_si256((void *)(out + GROUP * r), _mm512_castsi512_si256(v));
    }
    if (r + 8 < rows) {
        _mm256_storeu_si256((void *)(out + GROUP * (r + 8)), _mm512_extracti64x4_epi64(v, 1));
    }
}

/* 16 rows (or `rows` of them) of eight columns that are `step` dwords apart. */
INLINE void interleave_8(const int32_t *column, int step, int rows, int32_t *out)
{
    const __m512i even = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
    const __m512i odd = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
    __m512i v[2][4];

    UNROLL
    for (int h = 0; h < 2; h++) {  /* lane l of v[h][j]: row 4 * l + j of tokens 4 * h .. + 3 */
        const int32_t *c = column + 4 * h * step;
        const __m512i c0 = _mm512_loadu_si512(c), c1 = _mm512_loadu_si512(c + step);
        const __m512i c2 = _mm512_loadu_si512(c + 2 * step);
        const __m512i c3 = _mm512_loadu_si512(c + 3 * step);
        const __m512i a = _mm512_unpacklo_epi32(c0, c1), b = _mm512_unpacklo_epi32(c2, c3);
        const __m512i d = _mm512_unpackhi_epi32(c0, c1), e = _mm512_unpackhi_epi32(c2, c3);
        v[h][0] = _mm512_unpacklo_epi64(a, b);
        v[h][1] = _mm512_unpackhi_epi64(a, b);
        v[h][2] = _mm512_unpacklo_epi64(d, e);
        v[h][3] = _mm512_unpackhi_epi64(d, e);
    }
    UNROLL
    for (int j = 0; j < 4; j++) {
        put_rows(out, _mm512_permutex2var_epi64(v[0][j], even, v[1][j]), j, rows);
        put_rows(out, _mm512_permutex2var_epi64(v[0][j], odd, v[1][j]), 4 + j, rows);
    }
}

/* Tokens t .. t + n - 1, a whole group. */
INLINE void quant_group(enum act_kind kind, const float *x, size_t ldx, int k, int t, int n,
                        int32_t *act)
{
    const int block = act_block(kind), rows = act_rows(kind);
    const int step = kind == ACT_Q32 ? COLUMN_32 : COLUMN_256;
    _Alignas(64) int32_t column[GROUP * COLUMN_256];
    int32_t *out = act + (size_t)(k / block) * (size_t)rows * (size_t)t;

    const int width = group_width(n);

    if (n < width) {
        memset(column + step * n, 0, 4 * (size_t)step);
    }
    for (int i = 0; i < k; i += block, out += rows * width) {
        for (int j = 0; j < n; j++) {
            const float *v = x + (size_t)(t + j) * ldx + i;
            if (kind == ACT_Q32) {
                quant_32(v, column + step * j);
            } else {
                quant_256(v, column + step * j, false);
            }
        }
        if (n == GROUP) {
            UNROLL
            for (int r = 0; r < rows; r += 16) {
                interleave_8(column + r, step, rows - r, out + GROUP * r);
            }
        } else {
            for (int r = 0; r < rows; r++) {
                for (int j = 0; j < width; j++) {
                    out[width * r + j] = column[step * j + r];
                }
            }
        }
    }
}

void act_quant_avx512(enum act_kind kind, const float *x, size_t ldx, int k, int n_tok, int t0,
                      int t1, void *act)
{
    assert(t0 % 16 == 0 && (t1 % 16 == 0 || t1 == n_tok));
    for (int t = t0; t < t1; t += GROUP) {
        const int n = t1 - t < GROUP ? t1 - t : GROUP;

        if (kind == ACT_Q32) {
            if (n == GROUP) {
                quant_group(ACT_Q32, x, ldx, k, t, GROUP, act);
            } else {
                quant_group(ACT_Q32, x, ldx, k, t, n, act);
            }
        } else if (n == GROUP) {
            quant_group(ACT_Q256, x, ldx, k, t, GROUP, act);
        } else {
            quant_group(ACT_Q256, x, ldx, k, t, n, act);
        }
    }
}

/* ---- tiles ---------------------------------------------------------------------------------- */

/* Where a tile goes: tokens t0 .. t1-1 of its group, rows of the mask. */
struct out {
    float *y;
    size_t ldy;
    int t0, t1;
    __mmask16 rows;
    bool cached;  /* an earlier group has brought the weights into the cache */
};

typedef void tile_fn(const uint8_t *p, const int32_t *x, int n_blocks, const struct out *out);

INLINE void put(const struct out *out, int t, __m512 v)
{
    if (t >= out->t0 && t < out->t1) {
        _mm512_mask_storeu_ps(out->y + (size_t)t * out->ldy, out->rows, v);
    }
}

/* Sums that take the bias of the codes away, at the start of a part. */
INLINE struct codes start_32(uint32_t type, const int32_t *x, int n, int t)
{
    const __m512i zero = _mm512_setzero_si512();

    switch (type) {
    case QT_Q4_1:
    case QT_Q5_1: return (struct codes){ zero, zero };
    case QT_Q4_0: return (struct codes){ dword(x + A32_S8 * n + t), zero };
    case QT_Q5_0: return (struct codes){ dword(x + A32_S16 * n + t), zero };
    case QT_NVFP4: {
        const __m512i first = dword(x + A32_H128 * n + t);
        return (struct codes){ first, _mm512_sub_epi32(dword(x + A32_S128 * n + t), first) };
    }
    default: return (struct codes){ dword(x + A32_S128 * n + t), zero };
    }
}

/* The float steps of a part for one token; v: sums of vectors 0 .. 3 and 4 .. 7. */
INLINE __m512 steps_32(uint32_t type, const uint8_t *p, const __m512 d[2], struct codes v,
                       const int32_t *x, int n, int t, __m512 acc)
{
    const __m512 da = dword_ps(x + A32_D * n + t);

    if (type == QT_NVFP4) {
        acc = _mm512_fmadd_ps(_mm512_mul_ps(d[0], da), _mm512_cvtepi32_ps(v.a), acc);
        return _mm512_fmadd_ps(_mm512_mul_ps(d[1], da), _mm512_cvtepi32_ps(v.b), acc);
    }
    acc = _mm512_fmadd_ps(_mm512_mul_ps(d[0], da),
                          _mm512_cvtepi32_ps(_mm512_add_epi32(v.a, v.b)), acc);
    if (type == QT_Q4_1 || type == QT_Q5_1) {
        acc = _mm512_fmadd_ps(_mm512_mul_ps(scales_f16(p + 32), da), dword_ps(x + A32_S * n + t),
                              acc);
    }
    return acc;
}

/* n tokens of a type whose activations are blocks of 32: each block of weights is one or more
 * parts of 32.  `ahead` when the weights come from memory. */
INLINE void tile_32(uint32_t type, int n, bool ahead, const uint8_t *p, const int32_t *x,
                    int n_blocks, const struct out *out)
{
    const int parts = type_block(type) / 32, stretch = panel_bytes(type) / parts;
    __m512 acc[GROUP];

    UNROLL
    for (int t = 0; t < n; t++) {
        acc[t] = _mm512_setzero_ps();
    }
    NO_UNROLL
    for (int b = 0; b < n_blocks; b++, p += panel_bytes(type)) {
        NO_UNROLL
        for (int part = 0; part < parts; part++, x += A32_ROWS * n) {
            struct codes v[GROUP];

            UNROLL
            for (int t = 0; t < n; t++) {
                v[t] = start_32(type, x, n, t);
            }
            UNROLL
            for (int i = 0; i < 4; i++) {
                const struct codes w = unpack_32(type, p, part, i);

                if (ahead) {
                    fetch_ahead(p + part * stretch, stretch, i, 4);
                }
                UNROLL
                for (int t = 0; t < n; t++) {
                    v[t].a = _mm512_dpbusd_epi32(v[t].a, w.a, dword(x + (A32_Q + i) * n + t));
                    v[t].b = _mm512_dpbusd_epi32(v[t].b, w.b, dword(x + (A32_Q + 4 + i) * n + t));
                }
            }
            const __m512 d[2] = { scales_32(type, p, part, 0), scales_32(type, p, part, 1) };
            UNROLL
            for (int t = 0; t < n; t++) {
                acc[t] = steps_32(type, p, d, v[t], x, n, t, acc[t]);
            }
        }
    }
    UNROLL
    for (int t = 0; t < n; t++) {
        put(out, t, acc[t]);
    }
}

INLINE void scales_k(uint32_t type, const uint8_t *p, struct scales *out)
{
    switch (type) {
    case QT_Q2_K: scales_q2_K(p, out); break;
    case QT_Q3_K: scales_q3_K(p, out); break;
    case QT_Q4_K: scales_q4_K(p, out); break;
    case QT_Q5_K: scales_q5_K(p, out); break;
    default: scales_q6_K(p, out); break;
    }
}

/* Starts of the two sums of step s. */
INLINE struct codes start_k(uint32_t type, const int32_t *x, int n, int s, int t)
{
    int row;

    switch (type) {
    case QT_Q3_K: row = A256_Q3K; break;
    case QT_Q4_K: row = A256_Q4K; break;
    case QT_Q6_K: row = A256_Q6K; break;
    default: return (struct codes){ _mm512_setzero_si512(), _mm512_setzero_si512() };
    }
    return (struct codes){ dword(x + (row + 2 * s) * n + t), dword(x + (row + 2 * s + 1) * n + t) };
}

/* Adds the sums v of step s, times their scales, to the sum of the block.
 *
 * Where the sums of a sub-block fit 16 bits, two share a dword and one vpdpwssd multiplies
 * both.  The shift that moves b to the upper word removes the factor of its codes. */
INLINE __m512i add_scaled(uint32_t type, __m512i sum, struct codes v, const struct scales *sc,
                          int s)
{
    switch (type) {
    case QT_Q2_K:
    case QT_Q3_K:
        v.b = _mm512_slli_epi32(v.b, 14);
        break;
    case QT_Q4_K:
        v.b = _mm512_slli_epi32(v.b, 12);
        break;
    default:
        sum = _mm512_add_epi32(sum, _mm512_mullo_epi32(v.a, sc->s[2 * s]));
        return _mm512_add_epi32(sum, _mm512_mullo_epi32(v.b, sc->s[2 * s + 1]));
    }
    return _mm512_dpwssd_epi32(sum, _mm512_mask_blend_epi16(0xAAAAAAAA, v.a, v.b), sc->s[s]);
}

/* q4_K sums of 32 codes fit 16 bits only as code - 8: 8 * scale * (sum of activations) returns
 * what the start of the sums took away too much. */
INLINE __m512i start_block(uint32_t type, const struct scales *sc, const int32_t *x, int n, int t)
{
    __m512i sum = _mm512_setzero_si512();

    if (type == QT_Q4_K) {
        UNROLL
        for (int j = 0; j < 4; j++) {
            sum = _mm512_dpwssd_epi32(sum, sc->s[j], dword(x + (A256_P32 + j) * n + t));
        }
        sum = _mm512_slli_epi32(sum, 3);
    }
    return sum;
}

INLINE __m512i min_sum(uint32_t type, const struct scales *sc, const int32_t *x, int n, int t)
{
    const int pairs = type == QT_Q2_K ? 8 : 4, row = type == QT_Q2_K ? A256_P16 : A256_P32;
    __m512i m = _mm512_setzero_si512();

    UNROLL
    for (int j = 0; j < pairs; j++) {
        m = _mm512_dpwssd_epi32(m, sc->m[j], dword(x + (row + j) * n + t));
    }
    return m;
}

/* Outer step o of a panel for n tokens. */
INLINE void step_k(uint32_t type, int n, bool ahead, const uint8_t *p, const int32_t *x, int o,
                   const struct scales *sc, __m512i *sum)
{
    const int stretch = panel_bytes(type) / 4, inner = walk_inner(type);
    const int vectors = walk_vectors(type);

    UNROLL
    for (int c = 0; c < inner; c++) {
        const int s = o * inner + c;
        const struct walk k = walk_at(type, o, c);
        struct codes v[GROUP];

        UNROLL
        for (int t = 0; t < n; t++) {
            v[t] = start_k(type, x, n, s, t);
        }
        UNROLL
        for (int i = 0; i < vectors; i++) {
            const struct codes w = unpack_k(type, p, o, c, i);

            if (ahead) {
                fetch_ahead(p + o * stretch, stretch, c * vectors + i, 8);
            }
            UNROLL
            for (int t = 0; t < n; t++) {
                v[t].a = _mm512_dpbusd_epi32(v[t].a, w.a, dword(x + (k.ka + i) * n + t));
                v[t].b = _mm512_dpbusd_epi32(v[t].b, w.b, dword(x + (k.kb + i) * n + t));
            }
        }
        UNROLL
        for (int t = 0; t < n; t++) {
            sum[t] = add_scaled(type, sum[t], v[t], sc, s);
        }
    }
}

/* n tokens of a K type. */
INLINE void tile_k(uint32_t type, int n, bool ahead, const uint8_t *p, const int32_t *x,
                   int n_blocks, const struct out *out)
{
    const int bytes = panel_bytes(type);
    __m512 acc[GROUP];

    UNROLL
    for (int t = 0; t < n; t++) {
        acc[t] = _mm512_setzero_ps();
    }
    NO_UNROLL
    for (int b = 0; b < n_blocks; b++, p += bytes, x += A256_ROWS * n) {
        struct scales sc;
        __m512i sum[GROUP];

        scales_k(type, p, &sc);
        UNROLL
        for (int t = 0; t < n; t++) {
            sum[t] = start_block(type, &sc, x, n, t);
        }
        if (n == 1 && type == QT_Q3_K) {  /* 26 -> 30 GB/s from cache; others do not gain */
            UNROLL
            for (int o = 0; o < 4; o++) {
                step_k(type, n, ahead, p, x, o, &sc, sum);
            }
        } else {
            NO_UNROLL
            for (int o = 0; o < 4; o++) {
                step_k(type, n, ahead, p, x, o, &sc, sum);
            }
        }

        const __m512 d = scales_f16(p);
        UNROLL
        for (int t = 0; t < n; t++) {
            const __m512 da = dword_ps(x + A256_D * n + t);

            acc[t] = _mm512_fmadd_ps(_mm512_mul_ps(d, da), _mm512_cvtepi32_ps(sum[t]), acc[t]);
            if (type == QT_Q2_K || type == QT_Q4_K || type == QT_Q5_K) {
                const __m512i m = min_sum(type, &sc, x, n, t);
                acc[t] = _mm512_fnmadd_ps(_mm512_mul_ps(scales_f16(p + 32), da),
                                          _mm512_cvtepi32_ps(m), acc[t]);
            }
        }
    }
    UNROLL
    for (int t = 0; t < n; t++) {
        put(out, t, acc[t]);
    }
}

/* The kernels of a type, by the number of tokens in a group.  Only full groups can follow one that
 * has brought the weights into the cache. */
#define TILE(ID, name, n)                                                                \
    static void name(const uint8_t *p, const int32_t *x, int n_blocks, const struct out *out) \
    {                                                                                    \
        const bool ahead = n < GROUP || !out->cached;                                    \
        if (type_act(QT_##ID) == ACT_Q32) {                                              \
            tile_32(QT_##ID, n, ahead, p, x, n_blocks, out);                             \
        } else {                                                                         \
            tile_k(QT_##ID, n, ahead, p, x, n_blocks, out);                              \
        }                                                                                \
    }

#define TILES_OF(ID, q)                                                                  \
    TILE(ID, q##_1, 1)                                                                   \
    TILE(ID, q##_2, 2)                                                                   \
    TILE(ID, q##_3, 3)                                                                   \
    TILE(ID, q##_4, 4)                                                                   \
    TILE(ID, q##_6, 6)                                                                   \
    TILE(ID, q##_8, 8)                                                                   \
    static tile_fn *const q##_tiles[GROUP] = { q##_1, q##_2, q##_3, q##_4, q##_6, q##_6,   \
                                               q##_8, q##_8 };                           \
    void mm_##q##_avx512(const void *w, int k, int n_rows, const void *act, int n_tok,   \
                         int t0, int t1, float *y, size_t ldy)                           \
    {                                                                                    \
        mm_tiles(QT_##ID, q##_tiles, w, k, n_rows, act, n_tok, t0, t1, y, ldy);          \
    }

/* Tokens [t0, t1) of one row group, in groups of activations. */
static void row_group(tile_fn *const *tiles, const uint8_t *panels, int n_blocks,
                      const int32_t *act, size_t tok_dwords, int n_tok, int t0, int t1,
                      struct out *out, float *y)
{
    for (int g = t0 / GROUP * GROUP; g < t1; g += GROUP) {
        const int n = min_int(GROUP, n_tok - g);

        out->cached = g > t0;
        out->y = y + (size_t)g * out->ldy;
        out->t0 = t0 - g;
        out->t1 = t1 - g;
        tiles[n - 1](panels, act + tok_dwords * (size_t)g, n_blocks, out);
    }
}

/* Tokens in pieces outside, row groups inside: the activations of a piece stay in the cache, and
 * so does a row group while all tokens of the piece use it. */
static void mm_tiles(uint32_t type, tile_fn *const *tiles, const void *w, int k, int n_rows,
                     const void *act, int n_tok, int t0, int t1, float *y, size_t ldy)
{
    const enum act_kind kind = type_act(type);
    const int n_blocks = k / type_block(type);
    const size_t group_bytes = (size_t)n_blocks * (size_t)panel_bytes(type);
    const size_t tok_dwords = (size_t)(k / act_block(kind)) * (size_t)act_rows(kind);
    const size_t fit = PIECE_BYTES / (4 * tok_dwords * 2 * GROUP) * 2 * GROUP;
    const int piece = fit < 4 * GROUP ? 4 * GROUP : fit < 4096 ? (int)fit : 4096;

    for (int a = t0, e; a < t1; a = e) {
        const uint8_t *p = w;

        e = min_int(t1, a / GROUP * GROUP + piece);
        for (int r = 0; r < n_rows; r += PANEL_ROWS, p += group_bytes) {
            const int rows = min_int(PANEL_ROWS, n_rows - r);
            struct out out = { .ldy = ldy, .rows = (__mmask16)((1u << rows) - 1) };

            row_group(tiles, p, n_blocks, act, tok_dwords, n_tok, a, e, &out, y + r);
        }
    }
}

TILES_OF(Q4_0, q4_0)
TILES_OF(Q4_1, q4_1)
TILES_OF(Q5_0, q5_0)
TILES_OF(Q5_1, q5_1)
TILES_OF(Q8_0, q8_0)
TILES_OF(Q2_K, q2_k)
TILES_OF(Q3_K, q3_k)
TILES_OF(Q4_K, q4_k)
TILES_OF(Q5_K, q5_k)
TILES_OF(Q6_K, q6_k)
TILES_OF(IQ4_NL, iq4_nl)
TILES_OF(MXFP4, mxfp4)
TILES_OF(NVFP4, nvfp4)
TILES_OF(Q1_0, q1_0)
TILES_OF(Q2_0, q2_0)

#define ENTRY(ID, codec, ...) k->mm[QT_##ID] = mm_##codec##_avx512;

void dot_avx512_fill(struct kern *k)
{
    k->act_bytes = act_bytes_avx512;
    k->act_quant = act_quant_avx512;
    k->panels = true;
    k->pack = panel_pack_avx512;
    QUANT_INTEGER_TYPES(ENTRY)
}

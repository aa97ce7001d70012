/* dot_iq_avx512.c - integer products of the codebook and ternary types with AVX-512 VNNI.
 *
 * A panel is opened into bytes (unpack_iq_avx512.h) for a piece of tokens whose float sums
 * wait in memory; then a tile of up to 8 tokens is as in dot_avx512.c.  One token goes the
 * same way: what the detour over the first-level cache costs is little beside the look-ups. */
#include <assert.h>
#include <string.h>

#include "kern/unpack_iq_avx512.h"

/* Most tokens that share an opened panel: their sums take 8 KiB. */
enum { TOK_MAX = 128 };

/* Sum over the block of 128 * scale * activation, which the bias adds; pairs of scales go with
 * pairs of activation sums. */
INLINE __m512i bias_sum(int scale, const __m512i *pairs, const int32_t *x, int n, int t)
{
    const bool sixteens = scale == 16;
    const int n_pairs = sixteens ? 8 : 4;
    const int32_t *sums = x + (sixteens ? A256_P16 : A256_P32) * n + t;
    __m512i v = _mm512_setzero_si512();

    UNROLL
    for (int j = 0; j < n_pairs; j++) {
        v = _mm512_dpwssd_epi32(v, pairs[j], dword(sums + j * n));
    }
    return _mm512_slli_epi32(v, 7);
}

/* Scales a and b of each row as words of a dword. */
INLINE __m512i pair_of(__m512i a, __m512i b)
{
    return _mm512_mask_blend_epi16(0xAAAAAAAA, a, _mm512_slli_epi32(b, 16));
}

/* Scales in the order of the activation sums. */
INLINE void pair_scales(uint32_t type, const struct opened *w, __m512i pairs[8])
{
    /* dot_avx512.h: the walk of q2_K. */
    static const int8_t first[8] = { 0, 4, 1, 5, 8, 12, 9, 13 };

    UNROLL
    for (int j = 0; j < 8; j++) {
        switch (scale_width(type)) {
        case 16: pairs[j] = pair_of(w->s[first[j]], w->s[first[j] + 2]); break;
        case 32: pairs[j] = j < 4 ? pair_of(w->s[2 * j], w->s[2 * j + 1]) : pairs[0]; break;
        default: pairs[j] = _mm512_set1_epi16(1); break;
        }
    }
}

/* One block of 16 rows with n tokens, `scale` weights to a scale; acc: [n][16]. */
INLINE void tile(int scale, int n, const struct opened *w, const __m512i *pairs,
                 const int32_t *x, float *acc)
{
    /* Ternary sums have no scale, but short chains that do not wait for each other. */
    const bool scaled = scale < 256;
    const int width = scaled ? scale / 4 : 8;
    const int n_scales = 64 / width;
    __m512i sum[GROUP];

    UNROLL
    for (int t = 0; t < n; t++) {
        sum[t] = _mm512_setzero_si512();
    }
    NO_UNROLL
    for (int j = 0; j < n_scales; j++) {
        const uint8_t (*q)[64] = &w->q[width * j];
        const int32_t *a = x + (A256_Q + width * j) * n;
        __m512i v[GROUP];

        UNROLL
        for (int t = 0; t < n; t++) {
            v[t] = _mm512_setzero_si512();
        }
        UNROLL
        for (int i = 0; i < width; i++) {
            const __m512i codes = _mm512_load_si512(q[i]);
            UNROLL
            for (int t = 0; t < n; t++) {
                v[t] = _mm512_dpbusd_epi32(v[t], codes, dword(a + i * n + t));
            }
        }
        UNROLL
        for (int t = 0; t < n; t++) {
            v[t] = scaled ? _mm512_mullo_epi32(v[t], w->s[j]) : v[t];
            sum[t] = _mm512_add_epi32(sum[t], v[t]);
        }
    }
    UNROLL
    for (int t = 0; t < n; t++) {
        const __m512i s = _mm512_sub_epi32(sum[t], bias_sum(scale, pairs, x, n, t));
        const __m512 d = _mm512_mul_ps(w->d, dword_ps(x + A256_D * n + t));
        _mm512_store_ps(acc + 16 * t, _mm512_fmadd_ps(d, _mm512_cvtepi32_ps(s),
                                                      _mm512_load_ps(acc + 16 * t)));
    }
}

/* An opened panel no longer shows its type, so wide tiles are shared by types with scales for so
 * many weights.  Narrow ones would notice the call. */
#define TILE(scale, n)                                                                       \
    static __attribute__((noinline)) void tile_##scale##_##n(                                \
        const struct opened *w, const __m512i *pairs, const int32_t *x, float *acc)          \
    {                                                                                        \
        tile(scale, n, w, pairs, x, acc);                                                    \
    }
TILE(16, 6)
TILE(32, 6)
TILE(32, 8)
TILE(256, 6)
TILE(256, 8)

INLINE void tile_wide(uint32_t type, int n, const struct opened *w, const __m512i *pairs,
                      const int32_t *x, float *acc)
{
    switch (scale_width(type)) {
    case 16:
        if (n <= 6) {
            tile_16_6(w, pairs, x, acc);
        } else {  /* 8% slower when shared */
            tile(16, 8, w, pairs, x, acc);
        }
        break;
    case 32: (n <= 6 ? tile_32_6 : tile_32_8)(w, pairs, x, acc); break;
    default: (n <= 6 ? tile_256_6 : tile_256_8)(w, pairs, x, acc); break;
    }
}

INLINE void tile_n(uint32_t type, int n, const struct opened *w, const __m512i *pairs,
                   const int32_t *x, float *acc)
{
    switch (n) {
    case 1: tile(scale_width(type), 1, w, pairs, x, acc); break;
    case 2: tile(scale_width(type), 2, w, pairs, x, acc); break;
    case 3: tile(scale_width(type), 3, w, pairs, x, acc); break;
    case 4: tile(scale_width(type), 4, w, pairs, x, acc); break;
    default: tile_wide(type, n, w, pairs, x, acc); break;
    }
}

/* One row group, activation groups that begin at tokens g0, g0 + 8 .. below t1; acc: their
 * sums. */
INLINE void row_group(uint32_t type, const uint8_t *p, int n_blocks, const int32_t *act, int n_tok,
                      int g0, int t1, float *acc)
{
    const size_t tok_dwords = (size_t)n_blocks * A256_ROWS;
    struct opened w;
    __m512i pairs[8];

    for (int b = 0; b < n_blocks; b++, p += panel_bytes(type)) {
        open_panel(type, p, true, &w);
        pair_scales(type, &w, pairs);
        for (int g = g0; g < t1; g += GROUP) {
            const int n = min_int(GROUP, n_tok - g);
            const size_t block_dwords = (size_t)(A256_ROWS * group_width(n));
            const int32_t *x = act + tok_dwords * (size_t)g + block_dwords * (size_t)b;
            tile_n(type, n, &w, pairs, x, acc + PANEL_ROWS * (g - g0));
        }
    }
}

INLINE void mm(uint32_t type, const void *w, int k, int n_rows, const void *act, int n_tok, int t0,
               int t1, float *y, size_t ldy)
{
    _Alignas(64) float acc[TOK_MAX * PANEL_ROWS];
    const int n_blocks = k / 256;
    const size_t group_bytes = (size_t)n_blocks * (size_t)panel_bytes(type);
    const size_t tok_bytes = 4 * (size_t)n_blocks * A256_ROWS;
    const size_t fit = PIECE_BYTES / (tok_bytes * 4 * GROUP) * 4 * GROUP;
    const int piece = fit < 4 * GROUP ? 4 * GROUP : fit < TOK_MAX ? (int)fit : TOK_MAX;

    assert(k % 256 == 0);
    for (int a = t0 / GROUP * GROUP; a < t1; a += piece) {
        const int e = min_int(t1, a + piece);
        const uint8_t *p = w;

        for (int r = 0; r < n_rows; r += PANEL_ROWS, p += group_bytes) {
            const int rows = min_int(PANEL_ROWS, n_rows - r);

            memset(acc, 0, sizeof *acc * (size_t)(PANEL_ROWS * ((e - a + GROUP - 1) & -GROUP)));
            row_group(type, p, n_blocks, act, n_tok, a, e, acc);
            for (int t = a < t0 ? t0 : a; t < e; t++) {
                _mm512_mask_storeu_ps(y + (size_t)t * ldy + r, (__mmask16)((1u << rows) - 1),
                                      _mm512_load_ps(acc + PANEL_ROWS * (t - a)));
            }
        }
    }
}

#define MM(ID, codec)                                                                        \
    void mm_##codec##_avx512(const void *w, int k, int n_rows, const void *act, int n_tok,    \
                             int t0, int t1, float *y, size_t ldy)                            \
    {                                                                                         \
        mm(QT_##ID, w, k, n_rows, act, n_tok, t0, t1, y, ldy);                                \
    }

MM(IQ1_S, iq1_s)
MM(IQ1_M, iq1_m)
MM(IQ2_XXS, iq2_xxs)
MM(IQ2_XS, iq2_xs)
MM(IQ2_S, iq2_s)
MM(IQ3_XXS, iq3_xxs)
MM(IQ3_S, iq3_s)
MM(IQ4_XS, iq4_xs)
MM(TQ1_0, tq1_0)
MM(TQ2_0, tq2_0)

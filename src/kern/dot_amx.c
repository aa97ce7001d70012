/* dot_amx.c - products of types of 256 weights with AMX int8 tiles, from about ten tokens on.
 *
 * Code times sub-scale is a small integer, so a superblock of a row becomes one or
 * two planes of bytes and all of K = 256 runs through the tiles without a step between
 * sub-blocks:
 *
 *   q2_K   code * scale                                            at most 45
 *   q3_K   (code - 4) * scale + 124                                at most 252
 *   q4_K   8 * [code * (scale / 8)] + [code * (scale % 8)]         at most 105 each
 *   q5_K   the same                                                at most 217 each
 *   q6_K   256 * [x >> 8] + [x & 255], x = (code - 32) * scale     the first one signed
 *   iq     the same, x = code * scale
 *   tq     code + 124
 *
 * What q3_K and tq add comes out again through the sum of the activation codes.  The
 * planes of a 16-row panel are B tiles as they are; the activations, token after
 * token, are A tiles, and a C tile is [16 tokens][16 rows].  Everything is exact, so
 * the one float step per superblock sees the same integers as in other tiers.
 *
 * Vector work for one unit of tiles (sums, float steps) is done between the tile
 * products of the next.  Fewer tokens, and types of 32 weights, where a float step
 * per 32 would leave tiles idle, use the VNNI kernels.
 *
 * Tiles are configured at the start of each call and released at its end, so any
 * thread may call. */
#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "kern/unpack_iq_avx512.h"

/* Tokens of a batch from which tiles are faster. */
enum { AMX_MIN = 10 };

/* Tokens of a tile, and the most that one pass over the weights takes: their sums (16 KiB)
 * should stay in the first-level cache, their activations in the second. */
enum { TILE_TOK = 16, PASS_TOK = 128, PASS_BYTES = 1280 * 1024 };

/* Row groups whose planes exist at the same time. */
enum { GROUPS = 2 };

/* The tile intrinsics of GCC 12 say nothing of memory: this makes stores to p happen before,
 * and loads from p after. */
#define FENCE(p) __asm__ volatile("" : : "r"(p) : "memory")

/* ---- activations ----------------------------------------------------------------------------- */

/* 256 values of one token, a column of dot_avx512.h.  Records of one block follow each other token
 * by token, padded to whole tiles; then comes the next block. */
struct record {
    int32_t row[A256_TILE_ROWS];
};
static_assert(sizeof(struct record) == 320, "records are whole cache lines");

static size_t padded(int n_tok)
{
    return align_up((size_t)n_tok, TILE_TOK);
}

static bool use_tiles(enum act_kind kind, int n_tok)
{
    return kind == ACT_Q256 && n_tok >= AMX_MIN;
}

static size_t act_bytes_amx(enum act_kind kind, int k, int n_tok)
{
    if (!use_tiles(kind, n_tok)) {
        return act_bytes_avx512(kind, k, n_tok);
    }
    return (size_t)(k / 256) * padded(n_tok) * sizeof(struct record);
}

static void act_quant_amx(enum act_kind kind, const float *x, size_t ldx, int k, int n_tok, int t0,
                          int t1, void *act)
{
    if (!use_tiles(kind, n_tok)) {
        act_quant_avx512(kind, x, ldx, k, n_tok, t0, t1, act);
        return;
    }
    const size_t step = padded(n_tok), end = t1 == n_tok ? step : (size_t)t1;
    struct record *r = act;

    for (int b = 0; b < k / 256; b++, r += step) {
        for (int t = t0; t < t1; t++) {
            quant_256(x + (size_t)t * ldx + 256 * (size_t)b, r[t].row, true);
        }
        memset(r + t1, 0, (end - (size_t)t1) * sizeof *r);
    }
}

/* ---- planes ---------------------------------------------------------------------------------- */

/* One panel: bytes as [64 k4][16 rows][4], and what the float step needs of each row. */
struct planes {
    uint8_t q[2][64][64];
    __m512i m[8];
    __m512 d, dmin;
};

/* Byte j of each lane, zero-extended, in both words. */
INLINE __m512i byte_words(__m512i v, int j)
{
    const __m512i first = _mm512_set4_epi32((int)0x800C800C, (int)0x80088008, (int)0x80048004,
                                            (int)0x80008000);
    return _mm512_shuffle_epi8(v, _mm512_add_epi8(first, _mm512_set1_epi16((short)j)));
}

/* The same, sign-extended. */
INLINE __m512i byte_words_signed(__m512i v, int j)
{
    const __m512i first = _mm512_set4_epi32((int)0x0C800C80, (int)0x08800880, (int)0x04800480,
                                            (int)0x00800080);
    const __m512i at = _mm512_add_epi8(first, _mm512_set1_epi16((short)(256 * j)));
    return _mm512_srai_epi16(_mm512_shuffle_epi8(v, at), 8);
}

/* Scales of step s as words, the same in both words of a row. */
INLINE struct codes word_scales(uint32_t type, const uint8_t *p, int s)
{
    __m512i sc[4], mn[2];

    switch (type) {
    case QT_Q4_K:
    case QT_Q5_K:
        scales_6bit(p + 64, sc, mn);
        return (struct codes){ byte_words(sc[s / 2], 2 * (s % 2)),
                               byte_words(sc[s / 2], 2 * (s % 2) + 1) };
    case QT_Q3_K:
        bytes_q3_K(p, sc);
        return (struct codes){ byte_words_signed(sc[2 * (s / 4) + s % 2], s / 2 % 2),
                               byte_words_signed(sc[2 * (s / 4) + s % 2], s / 2 % 2 + 2) };
    case QT_Q2_K:
        sc[0] = _mm512_cvtepu8_epi32(load128(scale_bytes(type, p, s)));
        sc[1] = _mm512_cvtepu8_epi32(load128(scale_bytes(type, p, s) + 32));
        return (struct codes){ low_nibbles(byte_words(sc[0], 0)),
                               low_nibbles(byte_words(sc[1], 0)) };
    default:
        sc[0] = _mm512_cvtepi8_epi32(load128(scale_bytes(type, p, s)));
        sc[1] = _mm512_cvtepi8_epi32(load128(scale_bytes(type, p, s) + 64));
        return (struct codes){ byte_words_signed(sc[0], 0), byte_words_signed(sc[1], 0) };
    }
}

/* Bits of a where the mask is 1, else of b. */
INLINE __m512i bit_select(__m512i mask, __m512i a, __m512i b)
{
    return _mm512_ternarylogic_epi32(mask, a, b, 0xCA);
}

/* High and low bytes of the signed codes v times the words s, at vector k. */
INLINE void put_bytes(struct planes *out, int k, __m512i v, __m512i s)
{
    const __m512i even = _mm512_set1_epi16(255);
    const __m512i a = _mm512_mullo_epi16(_mm512_srai_epi16(_mm512_slli_epi16(v, 8), 8), s);
    const __m512i b = _mm512_mullo_epi16(_mm512_srai_epi16(v, 8), s);

    _mm512_store_si512(out->q[0][k], bit_select(even, _mm512_srli_epi16(a, 8), b));
    _mm512_store_si512(out->q[1][k], bit_select(even, a, _mm512_slli_epi16(b, 8)));
}

/* Plane bytes of the codes v, all of one sub-block with scale s, at vector k. */
INLINE void put_planes(uint32_t type, struct planes *out, int k, __m512i v, __m512i s)
{
    const __m512i even = _mm512_set1_epi16(255);
    __m512i a, b, hi, lo;

    switch (type) {
    case QT_Q2_K:
        _mm512_store_si512(out->q[0][k], _mm512_mullo_epi16(v, s));
        return;
    case QT_Q3_K:
        /* Bytes modulo 256: v * s + (124 - 4 * s).  An odd byte alone in its word takes no borrow
         * from the even one. */
        a = _mm512_mullo_epi16(_mm512_and_si512(v, even), s);
        b = _mm512_mullo_epi16(_mm512_andnot_si512(even, v), s);
        hi = _mm512_sub_epi16(_mm512_set1_epi16(124), _mm512_slli_epi16(s, 2));
        hi = bit_select(even, hi, _mm512_slli_epi16(hi, 8));
        _mm512_store_si512(out->q[0][k], _mm512_add_epi8(bit_select(even, a, b), hi));
        return;
    case QT_Q4_K:
    case QT_Q5_K:
        hi = _mm512_mullo_epi16(v, _mm512_srli_epi16(s, 3));
        lo = _mm512_mullo_epi16(v, _mm512_and_si512(s, _mm512_set1_epi16(7)));
        break;
    default:
        put_bytes(out, k, _mm512_sub_epi8(v, _mm512_set1_epi8(32)), s);
        return;
    }
    _mm512_store_si512(out->q[0][k], hi);
    _mm512_store_si512(out->q[1][k], lo);
}

INLINE bool has_min(uint32_t type)
{
    return type == QT_Q2_K || type == QT_Q4_K || type == QT_Q5_K;
}

INLINE bool is_ternary(uint32_t type)
{
    return type == QT_TQ1_0 || type == QT_TQ2_0;
}

INLINE bool two_planes(uint32_t type)
{
    return type != QT_Q2_K && type != QT_Q3_K && !is_ternary(type);
}

/* Two planes, the first one of signed high bytes. */
INLINE bool signed_high(uint32_t type)
{
    return type == QT_Q6_K || (type > QT_Q6_K && !is_ternary(type));
}

/* One plane, whose bytes have 124 too much. */
INLINE bool biased_124(uint32_t type)
{
    return type == QT_Q3_K || is_ternary(type);
}

/* The planes of codebook and ternary types. */
INLINE void open_planes(uint32_t type, const uint8_t *p, struct planes *out)
{
    const __m512i flip = _mm512_set1_epi8((char)0x80), four = _mm512_set1_epi8(4);
    const int width = scale_width(type) / 4;
    struct opened w;

    open_panel(type, p, false, &w);
    out->d = w.d;
    for (int j = 0; j < 64 / width; j++) {
        const __m512i low = _mm512_and_si512(w.s[j], _mm512_set1_epi32(0xFFFF));
        const __m512i s = _mm512_or_si512(low, _mm512_slli_epi32(w.s[j], 16));
        for (int k = width * j; k < width * (j + 1); k++) {
            const __m512i v = _mm512_load_si512(w.q[k]);
            if (is_ternary(type)) {
                _mm512_store_si512(out->q[0][k], _mm512_sub_epi8(v, four));
            } else {
                put_bytes(out, k, _mm512_xor_si512(v, flip), s);
            }
        }
    }
}

INLINE void unpack_planes(uint32_t type, const uint8_t *p, struct planes *out)
{
    if (type > QT_Q6_K) {
        open_planes(type, p, out);
        return;
    }
    const int inner = walk_inner(type), vectors = walk_vectors(type);
    struct scales sc;

    out->d = scales_f16(p);
    if (has_min(type)) {
        if (type == QT_Q2_K) {
            scales_q2_K(p, &sc);
        } else {
            scales_q4_K(p, &sc);
        }
        for (int j = 0; j < (type == QT_Q2_K ? 8 : 4); j++) {
            out->m[j] = sc.m[j];
        }
        out->dmin = scales_f16(p + 32);
    }
    UNROLL
    for (int o = 0; o < 4; o++) {
        UNROLL
        for (int c = 0; c < inner; c++) {
            const struct walk k = walk_at(type, o, c);
            const struct codes s = word_scales(type, p, o * inner + c);
            NO_UNROLL
            for (int i = 0; i < vectors; i++) {
                struct codes v = unpack_k(type, p, o, c, i);
                if (type == QT_Q4_K) {
                    v.b = _mm512_srli_epi16(v.b, 4);
                } else if (type == QT_Q2_K || type == QT_Q3_K) {
                    v.b = _mm512_srli_epi16(v.b, 2);
                }
                put_planes(type, out, k.ka + i, v.a, s.a);
                put_planes(type, out, k.kb + i, v.b, s.b);
            }
        }
    }
}

/* ---- units ----------------------------------------------------------------------------------- */

/* What runs through the tiles at a time: two halves, each 16 tokens x one panel.  PAIR: the same
 * panel, neighbouring tokens.  ROWS: neighbouring panels, the same tokens.  ONE: only one half. */
enum mode { PAIR, ROWS, ONE };

struct unit {
    const struct planes *w[2];
    const struct record *a[2];
    float *y[2];  /* [16 tokens][GROUPS * 16 rows] */
};

/* Sums of two units, [2 * half + plane] as [16 tokens][16 rows]. */
struct sums {
    _Alignas(64) int32_t c[4][256];
};

/* Tile c += tile a * tile b of the first plane. */
#define PRODUCT(type, c, a, b)                                                                \
    do {                                                                                      \
        if (signed_high(type)) {                                                              \
            _tile_dpbssd(c, a, b);                                                            \
        } else {                                                                              \
            _tile_dpbsud(c, a, b);                                                            \
        }                                                                                     \
    } while (0)

/* Products of one unit for 64 of K, step k of four.  With one plane the steps alternate between
 * two tiles, so that a product need not wait for the one before it. */
INLINE void products(uint32_t type, enum mode mode, const struct unit *u, int k)
{
    const struct planes *w0 = u->w[0], *w1 = u->w[1];
    const int32_t *a0 = u->a[0]->row + 16 * k, *a1 = u->a[1]->row + 16 * k;
    const size_t step = sizeof(struct record);

    _tile_loadd(4, a0, step);
    _tile_loadd(5, w0->q[0][16 * k], 64);
    if (mode == PAIR) {
        _tile_loadd(6, a1, step);
    }
    if (two_planes(type)) {
        PRODUCT(type, 0, 4, 5);
        if (mode == PAIR) {
            PRODUCT(type, 2, 6, 5);
        }
        _tile_loadd(7, w0->q[1][16 * k], 64);
        _tile_dpbsud(1, 4, 7);
        if (mode == PAIR) {
            _tile_dpbsud(3, 6, 7);
        } else if (mode == ROWS) {
            _tile_loadd(6, w1->q[0][16 * k], 64);
            PRODUCT(type, 2, 4, 6);
            _tile_loadd(5, w1->q[1][16 * k], 64);
            _tile_dpbsud(3, 4, 5);
        }
        return;
    }
    if (mode == ROWS) {
        _tile_loadd(6, w1->q[0][16 * k], 64);
    }
    if (k % 2 == 0) {
        _tile_dpbsud(0, 4, 5);
        if (mode == PAIR) {
            _tile_dpbsud(2, 6, 5);
        } else if (mode == ROWS) {
            _tile_dpbsud(2, 4, 6);
        }
    } else {
        _tile_dpbsud(1, 4, 5);
        if (mode == PAIR) {
            _tile_dpbsud(3, 6, 5);
        } else if (mode == ROWS) {
            _tile_dpbsud(3, 4, 6);
        }
    }
}

INLINE void clear_tiles(void)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

INLINE void store_tiles(enum mode mode, struct sums *out)
{
    _tile_stored(0, out->c[0], 64);
    _tile_stored(1, out->c[1], 64);
    if (mode != ONE) {
        _tile_stored(2, out->c[2], 64);
        _tile_stored(3, out->c[3], 64);
    }
    FENCE(out);
}

/* What the float steps need of the 16 rows of a panel, kept in registers. */
struct rows {
    __m512i m[8];
    __m512 d, dmin;
};

INLINE int min_pairs(uint32_t type)
{
    return type == QT_Q2_K ? 8 : has_min(type) ? 4 : 0;
}

INLINE void load_rows(uint32_t type, const struct planes *w, struct rows *out)
{
    out->d = w->d;
    out->dmin = w->dmin;
    UNROLL
    for (int j = 0; j < min_pairs(type); j++) {
        out->m[j] = w->m[j];
    }
}

/* The float step of one token; c: its sums in the tiles of both planes, 256 apart. */
INLINE void float_step(uint32_t type, const struct rows *w, const int32_t *act, const int32_t *c,
                       float *out)
{
    const __m512 da = _mm512_castsi512_ps(_mm512_set1_epi32(act[A256_D]));
    __m512i s = _mm512_load_si512(c);

    if (type == QT_Q4_K || type == QT_Q5_K) {
        s = _mm512_slli_epi32(s, 3);
    } else if (signed_high(type)) {
        s = _mm512_slli_epi32(s, 8);
    } else if (biased_124(type)) {
        s = _mm512_add_epi32(s, _mm512_set1_epi32(act[A256_B3]));
    }
    s = _mm512_add_epi32(s, _mm512_load_si512(c + 256));

    __m512 acc = _mm512_fmadd_ps(_mm512_mul_ps(w->d, da), _mm512_cvtepi32_ps(s),
                                 _mm512_load_ps(out));
    if (has_min(type)) {
        const int32_t *sums = act + (type == QT_Q2_K ? A256_P16 : A256_P32);
        __m512i m = _mm512_setzero_si512();
        UNROLL
        for (int j = 0; j < min_pairs(type); j++) {
            m = _mm512_dpwssd_epi32(m, w->m[j], _mm512_set1_epi32(sums[j]));
        }
        acc = _mm512_fnmadd_ps(_mm512_mul_ps(w->dmin, da), _mm512_cvtepi32_ps(m), acc);
    }
    _mm512_store_ps(out, acc);
}

/* A quarter of the float steps of a unit; its first `live` tokens exist. */
INLINE void float_steps(uint32_t type, enum mode mode, const struct unit *u, const struct sums *c,
                        int quarter, int live)
{
    const int32_t *a0 = u->a[0]->row, *a1 = u->a[1]->row;
    float *y0 = u->y[0], *y1 = u->y[1];
    const int act_step = A256_TILE_ROWS, y_step = GROUPS * PANEL_ROWS;
    struct rows w0, w1;

    load_rows(type, u->w[0], &w0);
    if (mode == ROWS) {
        load_rows(type, u->w[1], &w1);
    }
    UNROLL
    for (int i = 4 * quarter; i < 4 * quarter + 4; i++) {
        if (mode != PAIR && i >= live) {
            break;
        }
        float_step(type, &w0, a0 + act_step * i, c->c[0] + 16 * i, y0 + y_step * i);
        if (mode != ONE) {
            float_step(type, mode == ROWS ? &w1 : &w0, a1 + act_step * i, c->c[2] + 16 * i,
                       y1 + y_step * i);
        }
    }
}

/* The float steps lag one and a half units behind the products.  Less, and they would wait for
 * sums that are still being stored, filling the scheduler so that no product could start. */
INLINE void run_units(uint32_t type, enum mode mode, const struct unit *u, int n, int live)
{
    struct sums c[2];

    NO_UNROLL
    for (int i = 0; i <= n + 1; i++) {
        if (i < n) {
            clear_tiles();
        }
        UNROLL
        for (int k = 0; k < 4; k++) {
            const int done = k < 2 ? i - 2 : i - 1;

            if (i < n) {
                products(type, mode, u + i, k);
            }
            if (done >= 0 && done < n) {
                float_steps(type, mode, u + done, &c[done % 2], (k + 2) % 4, live);
            }
        }
        if (i < n) {
            store_tiles(mode, &c[i % 2]);
        }
    }
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void tiles_begin(void)
{
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = { .palette = 1 };

    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = 64;
        config.rows[i] = 16;
    }
    FENCE(&config);
    _tile_loadconfig(&config);
}

/* Up to PASS_TOK tokens, a whole number of tiles, of one or two row groups. */
struct pass {
    const uint8_t *w;
    size_t group_bytes;
    int n_groups, n_blocks, n_tiles;
    int n_tok;                 /* of the tokens, those that are wanted */
    const struct record *act;  /* first token, first block */
    size_t act_step;           /* records from block to block */
};

/* y: [16 * n_tiles][GROUPS * 16]. */
INLINE void run_pass(uint32_t type, const struct pass *s, float *y)
{
    _Alignas(64) struct planes w[GROUPS];
    struct unit u[PASS_TOK / TILE_TOK];
    const int bytes = panel_bytes(type), pairs = s->n_tiles / 2;

    for (int b = 0; b < s->n_blocks; b++) {
        const uint8_t *p = s->w + (size_t)b * (size_t)bytes;
        const struct record *a = s->act + (size_t)b * s->act_step;

        for (int g = 0; g < s->n_groups; g++) {
            const uint8_t *panel = p + (size_t)g * s->group_bytes;
            for (int i = 0; i < bytes; i += 64) {
                _mm_prefetch((const char *)panel + GROUPS * s->group_bytes + i, _MM_HINT_T1);
            }
            unpack_planes(type, panel, &w[g]);
        }
        FENCE(w);

        int n = 0;
        for (int t = 0; t < pairs; t++) {
            for (int g = 0; g < s->n_groups; g++, n++) {
                for (int h = 0; h < 2; h++) {
                    const int tok = TILE_TOK * (2 * t + h);
                    u[n].w[h] = &w[g];
                    u[n].a[h] = a + tok;
                    u[n].y[h] = y + GROUPS * PANEL_ROWS * tok + PANEL_ROWS * g;
                }
            }
        }
        if (n > 0) {
            run_units(type, PAIR, u, n, TILE_TOK);
        }
        if (s->n_tiles % 2 != 0) {
            const int tok = TILE_TOK * (s->n_tiles - 1);
            for (int g = 0; g < GROUPS; g++) {
                u[0].w[g] = &w[g];
                u[0].a[g] = a + tok;
                u[0].y[g] = y + GROUPS * PANEL_ROWS * tok + PANEL_ROWS * g;
            }
            if (s->n_groups == GROUPS) {
                run_units(type, ROWS, u, 1, s->n_tok - tok);
            } else {
                run_units(type, ONE, u, 1, s->n_tok - tok);
            }
        }
    }
}

/* Tokens of a pass: as few passes as fit the caches, of equal size, in whole pairs of tiles. */
static int pass_tokens(int n_tok, int n_blocks)
{
    const int pair_tok = 2 * TILE_TOK;
    const size_t fit = PASS_BYTES / ((size_t)n_blocks * sizeof(struct record) * (size_t)pair_tok);
    const int most = fit < 1 ? pair_tok : min_int(PASS_TOK, (int)min_int(64, (int)fit) * pair_tok);
    const int passes = (n_tok + most - 1) / most;

    return ((n_tok + passes - 1) / passes + pair_tok - 1) / pair_tok * pair_tok;
}

INLINE void mm_amx(uint32_t type, const void *w, int k, int n_rows, const void *act, int n_tok,
                   int t0, int t1, float *y, size_t ldy)
{
    _Alignas(64) float sum[PASS_TOK * GROUPS * PANEL_ROWS];
    const int n_blocks = k / 256, first = t0 / TILE_TOK * TILE_TOK;
    const int most = pass_tokens(t1 - first, n_blocks);
    struct pass s = { .group_bytes = (size_t)n_blocks * (size_t)panel_bytes(type),
                      .n_blocks = n_blocks, .act_step = padded(n_tok) };

    tiles_begin();
    for (int a = first; a < t1; a += most) {
        const int e = min_int(t1, a + most);

        s.n_tok = e - a;
        s.n_tiles = (s.n_tok + TILE_TOK - 1) / TILE_TOK;
        s.act = (const struct record *)act + a;
        s.w = w;
        for (int r = 0; r < n_rows; r += GROUPS * PANEL_ROWS, s.w += GROUPS * s.group_bytes) {
            const int rows = min_int(GROUPS * PANEL_ROWS, n_rows - r);
            const uint64_t mask = (1ull << rows) - 1;

            s.n_groups = rows > PANEL_ROWS ? 2 : 1;
            memset(sum, 0, sizeof *sum * (size_t)(s.n_tiles * TILE_TOK * GROUPS * PANEL_ROWS));
            run_pass(type, &s, sum);
            for (int t = a < t0 ? t0 : a; t < e; t++) {
                const float *v = sum + GROUPS * PANEL_ROWS * (t - a);
                float *out = y + (size_t)t * ldy + r;
                _mm512_mask_storeu_ps(out, (__mmask16)mask, _mm512_load_ps(v));
                if (s.n_groups == 2) {
                    _mm512_mask_storeu_ps(out + 16, (__mmask16)(mask >> 16),
                                          _mm512_load_ps(v + 16));
                }
            }
        }
    }
    _tile_release();
}

#define MM(ID, q)                                                                             \
    static void mm_##q##_amx(const void *w, int k, int n_rows, const void *act, int n_tok,    \
                             int t0, int t1, float *y, size_t ldy)                            \
    {                                                                                         \
        if (n_tok < AMX_MIN) {                                                                \
            mm_##q##_avx512(w, k, n_rows, act, n_tok, t0, t1, y, ldy);                        \
        } else if (t0 < t1) {                                                                 \
            mm_amx(QT_##ID, w, k, n_rows, act, n_tok, t0, t1, y, ldy);                             \
        }                                                                                     \
    }

/* The types of 256 weights. */
#define AMX_TYPES(X)                                                                          \
    X(Q2_K, q2_k) X(Q3_K, q3_k) X(Q4_K, q4_k) X(Q5_K, q5_k) X(Q6_K, q6_k)                     \
    X(IQ1_S, iq1_s) X(IQ1_M, iq1_m) X(IQ2_XXS, iq2_xxs) X(IQ2_XS, iq2_xs) X(IQ2_S, iq2_s)     \
    X(IQ3_XXS, iq3_xxs) X(IQ3_S, iq3_s) X(IQ4_XS, iq4_xs) X(TQ1_0, tq1_0) X(TQ2_0, tq2_0)

AMX_TYPES(MM)

#define ENTRY(ID, codec) k->mm[QT_##ID] = mm_##codec##_amx;

void dot_amx_fill(struct kern *k)
{
    k->act_bytes = act_bytes_amx;
    k->act_quant = act_quant_amx;
    AMX_TYPES(ENTRY)
}

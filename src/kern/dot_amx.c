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
 * What q3_K and tq add comes out again through the sum of the activation codes; sums
 * with minimums are tile products too.  The planes of a 16-row panel are B tiles as they
 * are, activations are A tiles, and a C tile is [16 tokens][16 rows].  Everything is
 * exact, so the one float step per superblock sees the same integers as in other tiers.
 *
 * Vector work (unpacking, float steps) is done between tile products.  While those are on
 * their way, a core has one port for multiplications and shifts of 512 bits instead of two,
 * but both for additions and shuffles: that, and what fits the first-level cache, decides
 * the shape of everything here.
 *
 * Fewer tokens use the VNNI kernels, types of 32 weights those of dot_32_amx.c.
 *
 * Tiles are configured at the start of each call and released at its end, so any
 * thread may call. */
#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "kern/amx.h"
#include "kern/unpack_iq_avx512.h"

/* Tokens of a batch from which tiles are faster. */
enum { AMX_MIN = 10 };

/* The most tokens that one pass over the weights takes.  K is taken in pieces whose activations
 * leave room in the second-level cache. */
enum { PASS_TOK = 256, PASS_BYTES = 1280 * 1024 };

/* Row groups whose planes exist at the same time. */
enum { GROUPS = 2 };

/* ---- activations ----------------------------------------------------------------------------- */

/* 256 values of 16 tokens as A tiles.  Tiles of one block follow each other, then comes the next
 * block. */
struct act_tile {
    int8_t q[4][TILE_TOK][64];   /* codes, 64 of K at a time */
    int32_t s[TILE_TOK][16];     /* sums of 16 codes: multiples of 16 and rest, a pair of bf16 */
    int32_t d[TILE_TOK];         /* scales */
    int32_t bias[TILE_TOK];      /* -124 times the sum of all codes */
};
static_assert(sizeof(struct act_tile) % 64 == 0, "tiles are whole cache lines");

static size_t act_bytes_amx(enum act_kind kind, int k, int n_tok)
{
    if (n_tok < (kind == ACT_Q32 ? AMX_32_MIN : AMX_MIN)) {
        return act_bytes_avx512(kind, k, n_tok);
    }
    if (kind == ACT_Q32) {
        return act_bytes_32_amx(k, n_tok);
    }
    return (size_t)(k / 256) * (size_t)tiles_of(n_tok) * sizeof(struct act_tile);
}

/* Whole numbers of at most eight bits as bf16 in the upper half of each lane. */
INLINE __m512i bf16_of(__m512i v)
{
    return _mm512_castps_si512(_mm512_cvtepi32_ps(v));
}

/* Sums of 16 codes, of at most 12 bits, as pairs that bf16 holds exactly. */
INLINE __m512i bf16_pairs(__m512i s)
{
    const __m512i rest = _mm512_and_si512(s, _mm512_set1_epi32(15));
    return _mm512_or_si512(bf16_of(rest),
                           _mm512_srli_epi32(bf16_of(_mm512_sub_epi32(s, rest)), 16));
}

static void quant_tile(const float *x, size_t ldx, int n, struct act_tile *out)
{
    _Alignas(64) int32_t column[COLUMN_256];

    for (int t = 0; t < n; t++) {
        quant_256(x + (size_t)t * ldx, column, true);
        for (int i = 0; i < 4; i++) {
            _mm512_store_si512(out->q[i][t], _mm512_load_si512(column + A256_Q + 16 * i));
        }
        const __m256i s16 = _mm256_load_si256((const void *)(column + A256_P16));
        _mm512_store_si512(out->s[t], bf16_pairs(_mm512_cvtepi16_epi32(s16)));
        out->d[t] = column[A256_D];
        out->bias[t] = column[A256_B3];
    }
    for (int t = n; t < TILE_TOK; t++) {
        for (int i = 0; i < 4; i++) {
            _mm512_store_si512(out->q[i][t], _mm512_setzero_si512());
        }
        _mm512_store_si512(out->s[t], _mm512_setzero_si512());
        out->d[t] = out->bias[t] = 0;
    }
}

static void act_quant_amx(enum act_kind kind, const float *x, size_t ldx, int k, int n_tok, int t0,
                          int t1, void *act)
{
    if (n_tok < (kind == ACT_Q32 ? AMX_32_MIN : AMX_MIN)) {
        act_quant_avx512(kind, x, ldx, k, n_tok, t0, t1, act);
        return;
    }
    if (kind == ACT_Q32) {
        act_quant_32_amx(x, ldx, k, n_tok, t0, t1, act);
        return;
    }
    const int step = tiles_of(n_tok);
    struct act_tile *out = act;

    for (int b = 0; b < k / 256; b++, out += step) {
        for (int t = t0; t < t1; t += TILE_TOK) {
            quant_tile(x + (size_t)t * ldx + 256 * (size_t)b, ldx, min_int(TILE_TOK, t1 - t),
                       out + t / TILE_TOK);
        }
    }
}

/* ---- planes ---------------------------------------------------------------------------------- */

/* One panel as B tiles: bytes as [64 k4][16 rows][4]. */
struct planes {
    uint8_t q[2][64][64];
    int32_t m[16][16];  /* minimums [16 of K][16 rows], as pairs of the same bf16 */
};

/* What the float steps need of the 16 rows of a panel. */
struct rows {
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

/* High and low bytes of the codes v, less `bias` (32 or 128), times the words s, at vector k.
 * Shuffles stand for shifts. */
INLINE void put_bytes(struct planes *out, int k, __m512i v, int bias, __m512i s)
{
    const __m512i down = _mm512_set4_epi32(0x0F0F0D0D, 0x0B0B0909, 0x07070505, 0x03030101);
    const __m512i up = _mm512_set4_epi32(0x0E0E0C0C, 0x0A0A0808, 0x06060404, 0x02020000);
    const __mmask64 even = 0x5555555555555555;
    const __m512i less = _mm512_slli_epi16(s, bias == 32 ? 5 : 7);
    const __m512i a = _mm512_sub_epi16(
        _mm512_mullo_epi16(_mm512_and_si512(v, _mm512_set1_epi16(255)), s), less);
    const __m512i b = _mm512_sub_epi16(
        _mm512_mullo_epi16(_mm512_maskz_shuffle_epi8(even, v, down), s), less);

    _mm512_store_si512(out->q[0][k], _mm512_mask_shuffle_epi8(b, even, a, down));
    _mm512_store_si512(out->q[1][k], _mm512_mask_shuffle_epi8(a, ~even, b, up));
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
        put_bytes(out, k, v, 32, s);
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
INLINE void open_planes(uint32_t type, const uint8_t *p, struct planes *out, struct rows *rows)
{
    const __m512i four = _mm512_set1_epi8(4);
    const int width = scale_width(type) / 4;
    struct opened w;

    open_panel(type, p, false, &w);
    rows->d = w.d;
    for (int j = 0; j < 64 / width; j++) {
        const __m512i low = _mm512_and_si512(w.s[j], _mm512_set1_epi32(0xFFFF));
        const __m512i s = _mm512_or_si512(low, _mm512_slli_epi32(w.s[j], 16));
        for (int k = width * j; k < width * (j + 1); k++) {
            const __m512i v = _mm512_load_si512(w.q[k]);
            if (is_ternary(type)) {
                _mm512_store_si512(out->q[0][k], _mm512_sub_epi8(v, four));
            } else {
                put_bytes(out, k, v, 128, s);
            }
        }
    }
}

/* Unpacking is cut into slices, so that it can go on between products.  The first two slices of a
 * K type make the first half of the planes. */
INLINE int n_slices(uint32_t type)
{
    return type > QT_Q6_K ? 1 : 4;
}

/* Words of the minimums of a panel, pairs in m, as pairs of the same bf16. */
INLINE __m512i min_pair(__m512i m, int word)
{
    const __m512i f = bf16_of(word ? _mm512_srli_epi32(m, 16)
                                   : _mm512_and_si512(m, _mm512_set1_epi32(0xFFFF)));

    return _mm512_or_si512(f, _mm512_srli_epi32(f, 16));
}

/* What belongs to the rows of a panel of a K type.  Minimums come in the order in which quant_256
 * leaves the sums of 16 codes, the walk of q2_K. */
INLINE void unpack_scales(uint32_t type, const uint8_t *p, struct planes *out, struct rows *rows)
{
    struct scales sc;

    rows->d = scales_f16(p);
    if (!has_min(type)) {
        return;
    }
    rows->dmin = scales_f16(p + 32);
    if (type == QT_Q2_K) {
        scales_q2_K(p, &sc);
        UNROLL
        for (int i = 0; i < 16; i++) {
            _mm512_store_si512(out->m[i], min_pair(sc.m[i / 2], i % 2));
        }
        return;
    }
    scales_q4_K(p, &sc);
    UNROLL
    for (int i = 0; i < 8; i++) {
        const __m512i v = min_pair(sc.m[i / 2], i % 2);
        /* Both halves of sub-block i of 32. */
        _mm512_store_si512(out->m[i + i / 4 * 4], v);
        _mm512_store_si512(out->m[i + i / 4 * 4 + 4], v);
    }
}

/* Outer step o of the walk of a K type. */
INLINE void unpack_step(uint32_t type, const uint8_t *p, int o, struct planes *out)
{
    const int inner = walk_inner(type), vectors = walk_vectors(type);

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

INLINE void unpack_slice(uint32_t type, const uint8_t *p, int slice, struct planes *out,
                         struct rows *rows)
{
    if (type > QT_Q6_K) {
        open_planes(type, p, out, rows);
        return;
    }
    switch (slice) {
    case 0:
        unpack_step(type, p, 0, out);
        break;
    case 1:
        unpack_step(type, p, 1, out);
        break;
    case 2:
        unpack_step(type, p, 2, out);
        break;
    default:
        unpack_step(type, p, 3, out);
        unpack_scales(type, p, out, rows);
        break;
    }
}

/* ---- units ----------------------------------------------------------------------------------- */

/* What runs through the tiles at a time: one panel and 32 tokens, or as many as there are. */
struct unit {
    const struct planes *w;
    const struct rows *rows;
    const struct act_tile *a;
    int n_tok;
    float *y;  /* [n_tok][GROUPS * 16 rows] */
};

/* Sums of a unit as [16 tokens][16 rows]: those of each plane, [2 * tile + plane], and those with
 * minimums. */
struct sums {
    _Alignas(64) int32_t c[4][256];
    float m[2][256];
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

/* Makes a tile ready for a new sum, once that of the unit before is stored. */
#define RENEW(tile, k, before)                                                                \
    do {                                                                                      \
        if ((k) == 0) {                                                                       \
            _tile_stored(tile, (before)->c[tile], 64);                                        \
            _tile_zero(tile);                                                                 \
        }                                                                                     \
    } while (0)

/* Product q of four for 64 of K, step k of four: both tiles of tokens with the first plane, then
 * with the second.  The first step also stores the sums of the unit before, each when its tile is
 * needed: products go on meanwhile.  Activations stream through the first-level cache, where they
 * had better not take the place of the planes. */
INLINE void product(uint32_t type, const struct unit *u, int k, int q, struct sums *before)
{
    switch (q) {
    case 0:
        _tile_stream_loadd(4, u->a[0].q[k], 64);
        _tile_loadd(5, u->w->q[0][16 * k], 64);
        RENEW(0, k, before);
        PRODUCT(type, 0, 4, 5);
        break;
    case 1:
        RENEW(2, k, before);
        if (u->n_tok > TILE_TOK) {
            _tile_stream_loadd(6, u->a[1].q[k], 64);
            PRODUCT(type, 2, 6, 5);
        }
        break;
    case 2:
        if (two_planes(type)) {
            _tile_loadd(7, u->w->q[1][16 * k], 64);
            RENEW(1, k, before);
            _tile_dpbsud(1, 4, 7);
        }
        break;
    default:
        if (two_planes(type)) {
            RENEW(3, k, before);
            if (u->n_tok > TILE_TOK) {
                _tile_dpbsud(3, 6, 7);
            }
        }
        break;
    }
}

/* The sums with minimums of one unit.  They are whole numbers below 2^24: bf16 products add up to
 * them exactly, as floats. */
INLINE void min_products(const struct unit *u, struct sums *out)
{
    _tile_loadd(4, u->a[0].s, 64);
    _tile_loadd(5, u->w->m, 64);
    _tile_zero(6);
    _tile_dpbf16ps(6, 4, 5);
    _tile_stored(6, out->m[0], 64);
    if (u->n_tok > TILE_TOK) {
        _tile_loadd(4, u->a[1].s, 64);
        _tile_zero(7);
        _tile_dpbf16ps(7, 4, 5);
        _tile_stored(7, out->m[1], 64);
    }
}

INLINE void store_tiles(uint32_t type, struct sums *out)
{
    _tile_stored(0, out->c[0], 64);
    _tile_stored(2, out->c[2], 64);
    if (two_planes(type)) {
        _tile_stored(1, out->c[1], 64);
        _tile_stored(3, out->c[3], 64);
    }
}

/* The float step of one token; c: its sums in the tiles of both planes, 256 apart.  Additions and
 * a shuffle stand for shifts. */
INLINE void float_step(uint32_t type, const struct rows *w, const int32_t *d, const int32_t *bias,
                       const int32_t *c, const float *m, float *out)
{
    const __m512 da = _mm512_castsi512_ps(_mm512_set1_epi32(*d));
    __m512i s = _mm512_load_si512(c);

    if (type == QT_Q4_K || type == QT_Q5_K) {
        s = _mm512_add_epi32(s, s);
        s = _mm512_add_epi32(s, s);
        s = _mm512_add_epi32(s, s);
    } else if (signed_high(type)) {
        s = _mm512_maskz_mov_epi8(0xEEEEEEEEEEEEEEEE, _mm512_bslli_epi128(s, 1));
    } else if (biased_124(type)) {
        s = _mm512_add_epi32(s, _mm512_set1_epi32(*bias));
    }
    if (two_planes(type)) {
        s = _mm512_add_epi32(s, _mm512_load_si512(c + 256));
    }
    __m512 acc = _mm512_fmadd_ps(_mm512_mul_ps(w->d, da), _mm512_cvtepi32_ps(s),
                                 _mm512_load_ps(out));
    if (has_min(type)) {
        acc = _mm512_fnmadd_ps(_mm512_mul_ps(w->dmin, da), _mm512_load_ps(m), acc);
    }
    _mm512_store_ps(out, acc);
}

/* The float steps of token i of each tile of a unit. */
INLINE void float_steps(uint32_t type, const struct unit *u, const struct rows *rows,
                        const struct sums *c, int i)
{
    const struct act_tile *a = u->a;
    float *y = u->y + GROUPS * PANEL_ROWS * i;

    if (i < u->n_tok) {
        float_step(type, rows, a[0].d + i, a[0].bias + i, c->c[0] + 16 * i, c->m[0] + 16 * i, y);
    }
    if (i + TILE_TOK < u->n_tok) {
        float_step(type, rows, a[1].d + i, a[1].bias + i, c->c[2] + 16 * i, c->m[1] + 16 * i,
                   y + GROUPS * PANEL_ROWS * TILE_TOK);
    }
}

/* ---- calls ----------------------------------------------------------------------------------- */

struct pass;
struct refill;

/* How panels of a type become planes. */
struct opening {
    void (*slice)(const struct pass *s, struct refill *r);
    int panel_bytes, n_slices;
};

/* Up to PASS_TOK tokens and a piece of K, of one or two row groups. */
struct pass {
    const struct opening *type;
    const uint8_t *w;
    size_t group_bytes;
    int n_groups, n_blocks, n_tok;
    const struct act_tile *act;  /* first tile, first block */
    size_t act_step;             /* tiles from block to block */
    float *out;                  /* of the first token, where results go */
    size_t ldy;
};

/* Unit i of block b. */
INLINE struct unit unit_at(const struct pass *s, const struct planes *w, const struct rows *rows,
                           int b, int i, float *y)
{
    const int g = i % s->n_groups, tile = i / s->n_groups * 2;

    return (struct unit){ .w = w + g, .rows = rows + g,
                          .a = s->act + (size_t)b * s->act_step + tile,
                          .n_tok = s->n_tok - tile * TILE_TOK,
                          .y = y + GROUPS * PANEL_ROWS * TILE_TOK * tile + PANEL_ROWS * g };
}

/* A panel on its way to planes, of which some slices are done. */
struct refill {
    const uint8_t *panel;
    struct planes *w;
    struct rows *rows;
    int slice;
};

INLINE struct refill refill_begin(const struct pass *s, int b, int g, struct planes *w,
                                  struct rows *rows)
{
    const size_t at = (size_t)b * (size_t)s->type->panel_bytes + (size_t)g * s->group_bytes;
    return (struct refill){ s->w + at, w + g, rows + g, 0 };
}

/* The next slice.  The same panel of the row groups that follow is requested. */
INLINE void refill_slice(uint32_t type, const struct pass *s, struct refill *r)
{
    const int stretch = panel_bytes(type) / n_slices(type);
    const uint8_t *ahead = r->panel + GROUPS * s->group_bytes + stretch * r->slice;
    for (int i = 0; i < stretch; i += 64) {
        _mm_prefetch((const char *)ahead + i, _MM_HINT_T1);
    }
    unpack_slice(type, r->panel, r->slice, r->w, r->rows);
    FENCE(r->w);
    r->slice++;
}

/* Brings the lines of results for tokens [from, to) into the cache: copying them there would wait
 * for each. */
INLINE void fetch_out(const struct pass *s, int from, int to)
{
    for (int t = from; t < to; t++) {
        const float *out = s->out + (size_t)t * s->ldy;

        __asm__ volatile("prefetchw %0" : : "m"(out[0]));
        if (s->n_groups == GROUPS) {
            __asm__ volatile("prefetchw %0" : : "m"(out[PANEL_ROWS]));
        }
    }
}

/* y: [s->n_tok][GROUPS * 16].
 *
 * One stream of units over all blocks.  While a unit runs through the tiles, the float steps of
 * the one two before it are computed.  Less distance, and they would wait for sums that are still
 * being stored, filling the scheduler so that no product could start.  A panel's planes are
 * replaced by those of the next block as soon as their last unit is half through.
 *
 * type is one of those that are alike but for their panels. */
INLINE void run_pass(uint32_t type, const struct pass *s, float *y)
{
    _Alignas(64) struct planes w[GROUPS];
    _Alignas(64) struct rows rows[4][GROUPS];
    struct sums c[2];
    struct unit u[4];
    struct refill refill;
    const int per_block = (tiles_of(s->n_tok) + 1) / 2 * s->n_groups;
    const int n = per_block * s->n_blocks;
    /* Slices may begin after this step; with one slice the whole planes have to be free. */
    const int n_slices = s->type->n_slices, begin = n_slices == 1 ? 3 : 1;
    int b = 0, at = 0;  /* block, and unit in it */

    for (int g = 0; g < s->n_groups; g++) {
        refill = refill_begin(s, 0, g, w, rows[0]);
        for (int i = 0; i < n_slices; i++) {
            s->type->slice(s, &refill);
        }
    }
    for (int i = 0; i < 4; i++) {
        u[i] = unit_at(s, w, rows[0], 0, 0, y);
    }
    NO_UNROLL
    for (int i = 0; i < n + 2; i++) {
        const struct unit *new = &u[i % 4], *done = &u[(i + 2) % 4];
        struct sums *sums = &c[i % 2], *before = &c[(i + 1) % 2];
        const struct rows r = *done->rows;
        const bool last = b + 1 < s->n_blocks && at + s->n_groups >= per_block;

        if (i < n) {
            u[i % 4] = unit_at(s, w, rows[b % 4], b, at, y);
        } else if (i == n) {
            store_tiles(type, before);
        }
        UNROLL
        for (int k = 0; k < 4; k++) {
            UNROLL
            for (int q = 0; q < 4; q++) {
                if (i < n) {
                    product(type, new, k, q, before);
                }
                if (i >= 2) {
                    float_steps(type, done, &r, sums, 4 * k + q);
                }
            }
            FENCE(c);
            if (refill.slice < n_slices) {
                s->type->slice(s, &refill);
            }
            if (last && k == begin) {
                refill = refill_begin(s, b + 1, at % s->n_groups, w, rows[(b + 1) % 4]);
            }
        }
        if (i >= n) {
            continue;
        }
        if (has_min(type)) {
            min_products(new, sums);
        }
        if (s->n_groups == 1) {
            while (refill.slice < n_slices) {
                s->type->slice(s, &refill);
            }
        }
        fetch_out(s, s->n_tok * i / n, s->n_tok * (i + 1) / n);
        if (++at == per_block) {
            at = 0;
            b++;
        }
    }
}

/* Copies `rows` results of tokens from `from` on to their place, or from there. */
INLINE void copy_sums(const struct pass *s, int rows, int from, float *sum, bool back)
{
    const uint32_t mask = (uint32_t)((1ull << rows) - 1);

    for (int t = from; t < s->n_tok; t++) {
        for (int g = 0; g < s->n_groups; g++) {
            float *v = sum + PANEL_ROWS * (GROUPS * t + g);
            float *out = s->out + (size_t)t * s->ldy + PANEL_ROWS * g;
            const __mmask16 m = (__mmask16)(mask >> PANEL_ROWS * g);
            if (back) {
                _mm512_store_ps(v, _mm512_maskz_loadu_ps(m, out));
            } else {
                _mm512_mask_storeu_ps(out, m, _mm512_load_ps(v));
            }
        }
    }
}

INLINE void mm_amx(uint32_t type, const struct opening *opening, const void *w, int k, int n_rows,
                   const void *act, int n_tok, int t0, int t1, float *y, size_t ldy)
{
    _Alignas(64) float sum[PASS_TOK * GROUPS * PANEL_ROWS];
    const int n_blocks = k / 256;
    const size_t panel = (size_t)opening->panel_bytes;
    struct pass s = { .type = opening, .group_bytes = (size_t)n_blocks * panel,
                      .act_step = (size_t)tiles_of(n_tok), .ldy = ldy };

    tiles_begin(64);
    for (int a = t0 / TILE_TOK * TILE_TOK; a < t1; a += PASS_TOK) {
        const int from = a < t0 ? t0 - a : 0;
        s.n_tok = min_int(t1 - a, PASS_TOK);
        const int fit = (int)(PASS_BYTES / sizeof(struct act_tile)) / tiles_of(s.n_tok);
        const int pieces = (n_blocks + fit - 1) / fit, piece = (n_blocks + pieces - 1) / pieces;

        for (int b = 0; b < n_blocks; b += piece) {
            s.n_blocks = min_int(piece, n_blocks - b);
            s.act = (const struct act_tile *)act + (size_t)b * s.act_step + a / TILE_TOK;
            s.w = (const uint8_t *)w + (size_t)b * panel;
            for (int r = 0; r < n_rows; r += GROUPS * PANEL_ROWS, s.w += GROUPS * s.group_bytes) {
                const int rows = min_int(GROUPS * PANEL_ROWS, n_rows - r);

                s.n_groups = rows > PANEL_ROWS ? 2 : 1;
                s.out = y + (size_t)a * ldy + r;
                if (b == 0) {
                    memset(sum, 0, sizeof *sum * (size_t)(s.n_tok * GROUPS * PANEL_ROWS));
                } else {
                    copy_sums(&s, rows, from, sum, true);
                }
                run_pass(type, &s, sum);
                copy_sums(&s, rows, from, sum, false);
            }
        }
    }
    _tile_release();
}

/* The code for types that are alike once they are planes. */
#define ALIKE(name, ID)                                                                       \
    static __attribute__((noinline)) void mm_##name(const struct opening *opening,            \
                                                    const void *w, int k, int n_rows,         \
                                                    const void *act, int n_tok, int t0,       \
                                                    int t1, float *y, size_t ldy)             \
    {                                                                                         \
        mm_amx(QT_##ID, opening, w, k, n_rows, act, n_tok, t0, t1, y, ldy);                   \
    }

ALIKE(min, Q2_K)
ALIKE(biased, Q3_K)
ALIKE(planes_min, Q4_K)
ALIKE(planes, Q6_K)

#define MM(ID, q, name)                                                                       \
    static void slice_##q(const struct pass *s, struct refill *r)                             \
    {                                                                                         \
        refill_slice(QT_##ID, s, r);                                                          \
    }                                                                                         \
    static void mm_##q##_amx(const void *w, int k, int n_rows, const void *act, int n_tok,    \
                             int t0, int t1, float *y, size_t ldy)                            \
    {                                                                                         \
        const struct opening opening = { slice_##q, panel_bytes(QT_##ID), n_slices(QT_##ID) };\
                                                                                              \
        if (n_tok < AMX_MIN) {                                                                \
            mm_##q##_avx512(w, k, n_rows, act, n_tok, t0, t1, y, ldy);                        \
        } else if (t0 < t1) {                                                                 \
            mm_##name(&opening, w, k, n_rows, act, n_tok, t0, t1, y, ldy);                    \
        }                                                                                     \
    }

/* The types of 256 weights. */
#define AMX_TYPES(X)                                                                          \
    X(Q2_K, q2_k, min) X(Q3_K, q3_k, biased) X(Q4_K, q4_k, planes_min)                        \
    X(Q5_K, q5_k, planes_min) X(Q6_K, q6_k, planes) X(IQ1_S, iq1_s, planes)                   \
    X(IQ1_M, iq1_m, planes) X(IQ2_XXS, iq2_xxs, planes) X(IQ2_XS, iq2_xs, planes)             \
    X(IQ2_S, iq2_s, planes) X(IQ3_XXS, iq3_xxs, planes) X(IQ3_S, iq3_s, planes)               \
    X(IQ4_XS, iq4_xs, planes) X(TQ1_0, tq1_0, biased) X(TQ2_0, tq2_0, biased)

AMX_TYPES(MM)

#define ENTRY(ID, codec, name) k->mm[QT_##ID] = mm_##codec##_amx;

void dot_amx_fill(struct kern *k)
{
    k->act_bytes = act_bytes_amx;
    k->act_quant = act_quant_amx;
    AMX_TYPES(ENTRY)
    dot_32_amx_fill(k);
}

/* dot_32_amx.c - products of types of 32 weights with AMX int8 tiles.
 *
 * A float step is due after every 32 of K (nvfp4: 16), so a tile product is one block and its
 * result goes through memory to the vector units, which are what limits: tiles would do ten times
 * as much.  Sixteen tokens of 16 rows keep their accumulators in registers over a stretch of K.
 *
 * The codes of a row group are unpacked once per stretch and serve all tokens. */
#include <string.h>

#include "base/mem.h"
#include "kern/amx.h"

/* Blocks of 32 in a stretch of K, whose codes, with the activations of a tile of tokens, stay in
 * the first-level cache. */
enum { STRETCH = 32 };

/* Products are this many float steps ahead, sums that are stored one less. */
enum { LAG = 4 };

/* ---- activations ----------------------------------------------------------------------------- */

/* 32 values of 16 tokens.  Those of consecutive blocks follow each other, then come the next
 * tokens. */
struct act_tile {
    int8_t q[TILE_TOK][32];
    float d[TILE_TOK], s[TILE_TOK];  /* scale, and sum of the codes */
};

/* A smaller number of tokens in the layout of AVX-512 must fit too. */
size_t act_bytes_32_amx(int k, int n_tok)
{
    const size_t own = (size_t)(k / 32) * (size_t)tiles_of(n_tok) * sizeof(struct act_tile);
    const size_t other = act_bytes_avx512(ACT_Q32, k, min_int(n_tok, AMX_32_MIN - 1));

    return own > other ? own : other;
}

void act_quant_32_amx(const float *x, size_t ldx, int k, int n_tok, int t0, int t1, void *act)
{
    const int n_blocks = k / 32;
    const int end = t1 == n_tok ? TILE_TOK * tiles_of(n_tok) : t1;

    for (int t = t0; t < end; t++) {
        struct act_tile *out = (struct act_tile *)act + (size_t)(t / TILE_TOK) * (size_t)n_blocks;
        const int i = t % TILE_TOK;

        for (int b = 0; b < n_blocks; b++, out++) {
            _Alignas(64) int32_t column[COLUMN_32] = { 0 };
            if (t < t1) {
                quant_32(x + (size_t)t * ldx + 32 * (size_t)b, column);
            }
            memcpy(out->q[i], column + A32_Q, 32);
            memcpy(out->d + i, column + A32_D, 4);
            memcpy(out->s + i, column + A32_S, 4);
        }
    }
}

/* ---- weights --------------------------------------------------------------------------------- */

INLINE bool has_min(uint32_t type)
{
    return type == QT_Q4_1 || type == QT_Q5_1;
}

/* Of K between float steps. */
INLINE int step_width(uint32_t type)
{
    return type == QT_NVFP4 ? 16 : 32;
}

/* A stretch of a row group as B tiles, with scales and minimums of its rows by float step. */
struct stretch {
    int8_t q[STRETCH][8][64];
    float d[2 * STRETCH][16];
    float m[STRETCH][16];
};

/* What unpack_32 adds to the codes of a type. */
INLINE int code_bias(uint32_t type)
{
    switch (type) {
    case QT_Q4_1:
    case QT_Q5_1: return 0;
    case QT_Q4_0: return 8;
    case QT_Q5_0: return 16;
    default: return 128;
    }
}

/* Signed codes of vectors i and 4 + i of part `part` of a block. */
INLINE struct codes signed_codes(uint32_t type, const uint8_t *p, int part, int i)
{
    const __m512i bias = _mm512_set1_epi8((char)code_bias(type));
    const struct codes v = unpack_32(type, p, part, i);

    return (struct codes){ _mm512_sub_epi8(v.a, bias), _mm512_sub_epi8(v.b, bias) };
}

/* n blocks of 32 from part `first` of the row group at p.  `ahead` bytes behind them, the next row
 * group is requested. */
INLINE void unpack_stretch(uint32_t type, const uint8_t *p, int first, int n, size_t ahead,
                           struct stretch *out)
{
    const int parts = type_block(type) / 32, bytes = panel_bytes(type);
    const int steps = 32 / step_width(type);

    NO_UNROLL
    for (int b = 0; b < n; b += parts) {
        const uint8_t *panel = p + (size_t)((first + b) / parts) * (size_t)bytes;

        for (int i = 0; i < bytes; i += 64) {
            _mm_prefetch((const char *)panel + ahead + i, _MM_HINT_T1);
        }
        UNROLL
        for (int part = 0; part < parts; part++) {
            UNROLL
            for (int i = 0; i < 4; i++) {
                const struct codes v = signed_codes(type, panel, part, i);
                _mm512_store_si512(out->q[b + part][i], v.a);
                _mm512_store_si512(out->q[b + part][4 + i], v.b);
            }
            for (int i = 0; i < steps; i++) {
                _mm512_store_ps(out->d[steps * (b + part) + i],
                                scales_32(type, panel, part, i));
            }
            if (has_min(type)) {
                _mm512_store_ps(out->m[b + part], scales_f16(panel + 32));
            }
        }
    }
    FENCE(out);
}

/* ---- units ----------------------------------------------------------------------------------- */

/* Sums start at the bits of 1.5 * 2^23.  As they stay below 2^22, what comes out is the float of
 * that number plus the sum, and a subtraction, which is exact, is all the conversion there is:
 * while tiles are at work, a core has two ports for additions of 512 bits, but one for conversions
 * and products. */
static const _Alignas(64) float sum_start[16] = {
    12582912, 12582912, 12582912, 12582912, 12582912, 12582912, 12582912, 12582912,
    12582912, 12582912, 12582912, 12582912, 12582912, 12582912, 12582912, 12582912
};

/* The product for float step i of a stretch.  Two tiles take turns, so that the next product need
 * not wait for the sums of this one to be stored. */
INLINE void product(uint32_t type, const struct stretch *w, const struct act_tile *a, int i,
                    bool odd)
{
    const int width = step_width(type), steps = 32 / width;
    const int8_t *q = a[i / steps].q[0] + width * (i % steps);
    const int8_t *codes = w->q[0][0] + 16 * width * i;

    if (odd) {
        _tile_loadd(6, q, 32);
        _tile_loadd(7, codes, 64);
        _tile_loadd(1, sum_start, 0);
        _tile_dpbssd(1, 6, 7);
    } else {
        _tile_loadd(4, q, 32);
        _tile_loadd(5, codes, 64);
        _tile_loadd(0, sum_start, 0);
        _tile_dpbssd(0, 4, 5);
    }
}

INLINE void store_sums(bool odd, float *sums)
{
    if (odd) {
        _tile_stored(1, sums, 64);
    } else {
        _tile_stored(0, sums, 64);
    }
    FENCE(sums);
}

/* Float step i of the tokens from `from` to `to`, whose sums are [16 tokens][16 rows]. */
INLINE void float_step(uint32_t type, const struct stretch *w, const struct act_tile *a, int i,
                       const float *sums, int from, int to, __m512 *acc)
{
    const int steps = 32 / step_width(type);
    const struct act_tile *t = a + i / steps;
    const __m512 d = _mm512_load_ps(w->d[i]), m = _mm512_load_ps(w->m[i / steps]);
    const __m512 start = _mm512_load_ps(sum_start);

    UNROLL
    for (int j = from; j < to; j++) {
        const __m512 da = _mm512_set1_ps(t->d[j]);
        const __m512 sum = _mm512_sub_ps(_mm512_load_ps(sums + 16 * j), start);
        acc[j] = _mm512_fmadd_ps(_mm512_mul_ps(d, da), sum, acc[j]);
        if (has_min(type)) {
            acc[j] = _mm512_fmadd_ps(_mm512_mul_ps(m, da), _mm512_set1_ps(t->s[j]), acc[j]);
        }
    }
}

/* Where the results of a unit go: tokens [from, to) of 16, rows of the mask.  `next` is where the
 * first token of the following unit has its results. */
struct out {
    float *y;
    const float *next;
    size_t ldy;
    int from, to;
    __mmask16 rows;
};

/* n float steps for 16 tokens and a row group; `first` where their sums begin.  Results are far
 * apart in memory: the lines of the following unit are requested one by one. */
INLINE void unit(uint32_t type, const struct stretch *w, const struct act_tile *a, int n,
                 bool first, const struct out *out)
{
    _Alignas(64) float sums[LAG][256];
    __m512 acc[TILE_TOK];

    UNROLL
    for (int i = 0; i < LAG; i++) {
        if (i < n) {
            product(type, w, a, i, i % 2);
        }
        if (i > 0 && i <= n) {
            store_sums((i - 1) % 2, sums[i - 1]);
        }
    }
    UNROLL
    for (int j = 0; j < TILE_TOK; j++) {
        acc[j] = _mm512_setzero_ps();
        if (!first && j >= out->from && j < out->to) {
            acc[j] = _mm512_maskz_loadu_ps(out->rows, out->y + (size_t)j * out->ldy);
        }
    }
    NO_UNROLL
    for (int i = 0; i < n; i += 2) {
        UNROLL
        for (int h = 0; h < 2; h++) {
            const int at = i + h, ahead = at + LAG;

            if (ahead < n) {
                product(type, w, a, ahead, h);
            }
            if (ahead <= n) {
                store_sums(!h, sums[(ahead - 1) % LAG]);
            }
            if (at < TILE_TOK) {
                __asm__ volatile("prefetchw %0" : : "m"(out->next[(size_t)at * out->ldy]));
            }
            if (at < n) {
                float_step(type, w, a, at, sums[at % LAG], 0, TILE_TOK / 2, acc);
                if (out->to > TILE_TOK / 2) {
                    float_step(type, w, a, at, sums[at % LAG], TILE_TOK / 2, TILE_TOK, acc);
                }
            }
        }
    }
    UNROLL
    for (int j = 0; j < TILE_TOK; j++) {
        if (j >= out->from && j < out->to) {
            _mm512_mask_storeu_ps(out->y + (size_t)j * out->ldy, out->rows, acc[j]);
        }
    }
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* unpack_stretch of a type. */
typedef void unpack_fn(const uint8_t *p, int first, int n, size_t ahead, struct stretch *out);

/* Stretches of K outside, then row groups: the activations of a stretch stay in the second-level
 * cache.  type is one of those that are alike but for their panels. */
INLINE void mm_32_amx(uint32_t type, unpack_fn *unpack, size_t group_bytes, const void *w, int k,
                      int n_rows, const void *act, int t0, int t1, float *y, size_t ldy)
{
    _Alignas(64) struct stretch s;
    const int n_blocks = k / 32, steps = 32 / step_width(type);
    const int first = t0 / TILE_TOK * TILE_TOK;

    tiles_begin(step_width(type));
    for (int b = 0; b < n_blocks; b += STRETCH) {
        const int n = min_int(STRETCH, n_blocks - b);
        const uint8_t *p = w;

        for (int r = 0; r < n_rows; r += PANEL_ROWS, p += group_bytes) {
            unpack(p, b, n, group_bytes, &s);
            for (int t = first / TILE_TOK; t * TILE_TOK < t1; t++) {
                const int begin = t * TILE_TOK, end = begin + TILE_TOK;
                float *here = y + (size_t)begin * ldy + r;
                const struct out out = {
                    .y = here,
                    .next = end < t1 ? here + TILE_TOK * ldy
                                     : y + (size_t)first * ldy + r + PANEL_ROWS,
                    .ldy = ldy,
                    .from = begin < t0 ? t0 - begin : 0, .to = min_int(TILE_TOK, t1 - begin),
                    .rows = (__mmask16)((1u << min_int(PANEL_ROWS, n_rows - r)) - 1)
                };
                unit(type, &s, (const struct act_tile *)act + (size_t)t * (size_t)n_blocks + b,
                     steps * n, b == 0, &out);
            }
        }
    }
    _tile_release();
}

/* The code for types that are alike once they are unpacked. */
#define ALIKE(name, ID)                                                                       \
    static __attribute__((noinline)) void mm_##name(unpack_fn *unpack, size_t group_bytes,    \
                                                    const void *w, int k, int n_rows,         \
                                                    const void *act, int t0, int t1,          \
                                                    float *y, size_t ldy)                     \
    {                                                                                         \
        mm_32_amx(QT_##ID, unpack, group_bytes, w, k, n_rows, act, t0, t1, y, ldy);           \
    }

ALIKE(plain, Q4_0)
ALIKE(min, Q4_1)
ALIKE(by16, NVFP4)

#define MM(ID, q, name)                                                                       \
    static void unpack_stretch_##q(const uint8_t *p, int first, int n, size_t ahead,          \
                                   struct stretch *out)                                       \
    {                                                                                         \
        unpack_stretch(QT_##ID, p, first, n, ahead, out);                                     \
    }                                                                                         \
    static void mm_##q##_amx(const void *w, int k, int n_rows, const void *act, int n_tok,    \
                             int t0, int t1, float *y, size_t ldy)                            \
    {                                                                                         \
        const size_t panels = (size_t)(k / type_block(QT_##ID));                              \
                                                                                              \
        if (n_tok < AMX_32_MIN) {                                                             \
            mm_##q##_avx512(w, k, n_rows, act, n_tok, t0, t1, y, ldy);                        \
        } else if (t0 < t1) {                                                                 \
            mm_##name(unpack_stretch_##q, panels * (size_t)panel_bytes(QT_##ID), w, k,        \
                      n_rows, act, t0, t1, y, ldy);                                           \
        }                                                                                     \
    }

#define AMX_32_TYPES(X)                                                                       \
    X(Q4_0, q4_0, plain) X(Q4_1, q4_1, min) X(Q5_0, q5_0, plain) X(Q5_1, q5_1, min)           \
    X(Q8_0, q8_0, plain) X(IQ4_NL, iq4_nl, plain) X(MXFP4, mxfp4, plain)                      \
    X(NVFP4, nvfp4, by16) X(Q1_0, q1_0, plain) X(Q2_0, q2_0, plain)

AMX_32_TYPES(MM)

#define ENTRY(ID, codec, name) k->mm[QT_##ID] = mm_##codec##_amx;

void dot_32_amx_fill(struct kern *k)
{
    AMX_32_TYPES(ENTRY)
}

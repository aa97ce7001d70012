/* dot_scalar.c - the definition of integer products and of quantised activations.
 *
 * Works for every type of the table through its integer view, on rows as they
 * lie in the file.  Other tiers must equal it bit for bit. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "kern/dot.h"

/* ---- activations ------------------------------------------------------------------
 *
 * Token after token, block after block: [n_tok][k / n] of struct act_qN. */

struct act_q32 {
    float d;
    int16_t sum[2];  /* of 16 codes each */
    int8_t q[32];
};

struct act_q256 {
    float d;
    int16_t sum[16];
    int8_t q[256];
};

static int act_block(enum act_kind kind)
{
    return kind == ACT_Q32 ? 32 : 256;
}

static size_t act_block_bytes(enum act_kind kind)
{
    return kind == ACT_Q32 ? sizeof(struct act_q32) : sizeof(struct act_q256);
}

static size_t act_row_bytes(enum act_kind kind, int k)
{
    return (size_t)(k / act_block(kind)) * act_block_bytes(kind);
}

static size_t act_bytes_scalar(enum act_kind kind, int k, int n_tok)
{
    return (act_row_bytes(kind, k) * (size_t)n_tok + 63) / 64 * 64;
}

/* Nearest even by adding 1.5 * 2^23, where a float counts in ones; |x| < 2^22. */
static int8_t round_to_code(float x)
{
    union { float f; uint32_t u; } v = { x + 12582912.0f };

    return (int8_t)(uint8_t)(v.u & 255u);
}

/* Codes of n values and their scale.
 *
 * The maximum is taken over bit patterns without sign, an order that puts NaN on
 * top: a block with NaN or infinity has such a scale and codes 0, so that its
 * products are NaN and the fault is seen.  Where 127 / amax overflows, the block
 * counts as zero. */
static float quantise_block(const float *x, int n, int8_t *q)
{
    union { uint32_t u; float f; } top = { 0 };

    for (int i = 0; i < n; i++) {
        union { float f; uint32_t u; } v = { x[i] };
        v.u &= 0x7FFFFFFFu;
        top.u = v.u > top.u ? v.u : top.u;
    }
    const float amax = top.f, inverse = 127.0f / amax;
    const bool finite = top.u < 0x7F800000u;
    if (!finite || !(inverse <= 0x1.fffffep127f)) {
        memset(q, 0, (size_t)n);
        return finite ? 0.0f : amax;
    }
    for (int i = 0; i < n; i++) {
        q[i] = round_to_code(x[i] * inverse);
    }
    return amax / 127.0f;
}

static void sum_sixteens(const int8_t *q, int n, int16_t *sum)
{
    for (int s = 0; s < n / 16; s++) {
        int total = 0;
        for (int i = 0; i < 16; i++) {
            total += q[16 * s + i];
        }
        sum[s] = (int16_t)total;
    }
}

static void act_quant_scalar(enum act_kind kind, const float *x, size_t ldx, int k, int n_tok,
                             int t0, int t1, void *act)
{
    const int n = act_block(kind);

    assert(k % n == 0 && t0 % 16 == 0 && (t1 % 16 == 0 || t1 == n_tok));
    for (int t = t0; t < t1; t++) {
        uint8_t *row = (uint8_t *)act + (size_t)t * act_row_bytes(kind, k);
        const float *xt = x + (size_t)t * ldx;
        for (int b = 0; b < k / n; b++) {
            if (kind == ACT_Q32) {
                struct act_q32 *a = (struct act_q32 *)row + b;
                a->d = quantise_block(xt + 32 * b, 32, a->q);
                sum_sixteens(a->q, 32, a->sum);
            } else {
                struct act_q256 *a = (struct act_q256 *)row + b;
                a->d = quantise_block(xt + 256 * b, 256, a->q);
                sum_sixteens(a->q, 256, a->sum);
            }
        }
    }
}

/* ---- products --------------------------------------------------------------------- */

/* Sum of scale * code * q over n weights. */
static int32_t code_sum(const int8_t *code, const int16_t *scale, const int8_t *q, int n)
{
    int32_t total = 0;

    for (int s = 0; s < n / 16; s++) {
        int32_t part = 0;
        for (int i = 0; i < 16; i++) {
            part += code[16 * s + i] * q[16 * s + i];
        }
        total += scale[s] * part;
    }
    return total;
}

/* Sum of min * q over n weights, from the sums of 16 codes. */
static int32_t min_sum(const struct qblock *w, const int16_t *sum, int n)
{
    int32_t total = 0;

    for (int s = 0; s < n / 16; s++) {
        total += w->min[s] * sum[s];
    }
    return total;
}

/* The steps of the chain that a block adds; act: the blocks of activations beside it. */
static float chain_block(const struct quant_type *type, const struct qblock *w,
                         const uint8_t *act, float acc)
{
    const int n = type->step;

    if (type->act == ACT_Q256) {
        const struct act_q256 *a = (const struct act_q256 *)act;
        acc = fmaf(w->d[0] * a->d, (float)code_sum(w->code, w->scale, a->q, n), acc);
        return type->has_min ? fmaf(w->e * a->d, (float)min_sum(w, a->sum, n), acc) : acc;
    }
    for (int i = 0; i < type->block; i += n) {
        const struct act_q32 *a = (const struct act_q32 *)act + i / 32;
        const int32_t s = code_sum(w->code + i, w->scale + i / 16, a->q + i % 32, n);
        acc = fmaf(w->d[i / n] * a->d, (float)s, acc);
        if (type->has_min) {
            acc = fmaf(w->e * a->d, (float)min_sum(w, a->sum, n), acc);
        }
    }
    return acc;
}

/* As many tokens share one unpacking of a block. */
enum { TILE = 16 };

static void mm_rows(const struct quant_type *type, const void *w, int k, int n_rows,
                    const void *act, int t0, int t1, float *y, size_t ldy)
{
    const int n_blocks = k / type->block;
    const size_t act_row = act_row_bytes(type->act, k);
    const size_t act_step = act_row_bytes(type->act, type->block);
    const uint8_t *block = w;

    assert(k % type->block == 0);
    for (int r = 0; r < n_rows; r++, block += (size_t)n_blocks * (size_t)type->block_bytes) {
        for (int tile = t0; tile < t1; tile += TILE) {
            const int n = t1 - tile < TILE ? t1 - tile : TILE;
            const uint8_t *a = (const uint8_t *)act + (size_t)tile * act_row;
            float acc[TILE] = { 0 };
            for (int b = 0; b < n_blocks; b++) {
                struct qblock q;
                type->unpack(block + (size_t)b * (size_t)type->block_bytes, &q);
                for (int t = 0; t < n; t++) {
                    acc[t] = chain_block(type, &q, a + (size_t)t * act_row + (size_t)b * act_step,
                                         acc[t]);
                }
            }
            for (int t = 0; t < n; t++) {
                y[(size_t)(tile + t) * ldy + (size_t)r] = acc[t];
            }
        }
    }
}

#define MM(ID, codec, ...)                                                                    \
    static void dot_##codec##_scalar(const void *w, int k, int n_rows, const void *act,       \
                                     int n_tok, int t0, int t1, float *y, size_t ldy)         \
    {                                                                                         \
        (void)n_tok;                                                                          \
        mm_rows(quant_type(QT_##ID), w, k, n_rows, act, t0, t1, y, ldy);                      \
    }
QUANT_INTEGER_TYPES(MM)

#define ENTRY(ID, codec, ...) k->mm[QT_##ID] = dot_##codec##_scalar;

void dot_scalar_fill(struct kern *k)
{
    k->act_bytes = act_bytes_scalar;
    k->act_quant = act_quant_scalar;
    k->panels = false;
    k->pack = NULL;
    QUANT_INTEGER_TYPES(ENTRY)
}

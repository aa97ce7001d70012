/* kern.h - the kernels of one instruction set, as a table of functions.
 *
 * Every entry computes the same bits in every tier: the scalar one is the
 * definition.  Kernels hold no state, take no locks, allocate nothing and know
 * nothing of threads; callers split work so that outputs are disjoint.  Float
 * rows need no alignment.  No kernel reads beyond the lengths given, except
 * where said. */
#ifndef KERN_H
#define KERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cpu.h"
#include "quant/quant.h"

/* Attention cuts keys at absolute multiples of this many positions. */
enum { ATTN_SEGMENT = 256 };

/* A page of keys and values holds this many positions; it divides ATTN_SEGMENT. */
enum { KV_PAGE = 64, ATTN_SEGMENT_PAGES = ATTN_SEGMENT / KV_PAGE };

/* Keys and values as 32-bit or 16-bit floats, or in blocks of 32 codes of eight bits with a scale
 * of 16 bits. */
enum kv_type { KV_F32, KV_F16, KV_Q8_0, KV_TYPES };

/* Elements of a row of dim floats in a page; those behind dim are zero. */
static inline int kv_stride(enum kv_type kv, int dim)
{
    return kv == KV_Q8_0 ? (dim + 31) & ~31 : (dim + 15) & ~15;
}

/* Bytes of the KV_PAGE rows of one head in a page, a multiple of 64.  Rows of floats follow each
 * other; the layout of codes is that of store_key and store_value in kv_q8.inc.c. */
static inline size_t kv_head_bytes(enum kv_type kv, int dim)
{
    const size_t n = (size_t)KV_PAGE * (size_t)kv_stride(kv, dim);

    return kv == KV_F32 ? n * 4 : kv == KV_F16 ? n * 2 : n + n / 16;
}

/* Gated activations: g[i] = f(g[i]) * u[i]. */
enum gate_fn { GATE_SILU, GATE_GELU, GATE_SIGMOID, GATE_FNS };

/* Elementwise functions, for tests and rare uses. */
enum unary_fn { UNARY_EXP, UNARY_SIGMOID, UNARY_SILU, UNARY_GELU, UNARY_TANH, UNARY_LOG,
                UNARY_SOFTPLUS, UNARY_ERF, UNARY_FNS };

/* One segment of attention for query rows that share a key-value head.
 *
 * Per row, positions relative to the segment: the score of a key is one v16 chain over
 * k_dim and its tree, times scale, then the cap; m the largest score; p = exp(score - m);
 * l one v16 chain of additions with lane = position mod 16 (0 for keys not seen), and its
 * tree; o[d] = fma(p, v[d], o[d]) over the keys seen, ascending, from 0.  With KV_Q8_0 the
 * query is quantised in blocks of 32 as activations are, the score is one chain of
 * fma(dk * dq, (float)S, acc) over the blocks, S the exact sum of products of codes, and
 * v[d] is scale times code, which is exact.  Rows share loads and nothing else.  Keys and values
 * that no row sees are not read, their pages may be NULL (a prefetch may touch the cache lines of a
 * page that is partly seen). */
struct attn_seg {
    int n_q;                   /* query rows */
    int k_dim, v_dim;          /* head sizes in floats */
    int k_stride, v_stride;    /* elements from one position to the next in a page; multiples of
                                * 16, with KV_Q8_0 of 32; the rest of a row is zero */
    enum kv_type kv;
    const float *q;            /* row i at q + q_off[i], k_dim floats */
    const size_t *q_off;
    const void *k_page[ATTN_SEGMENT_PAGES];  /* what the head has in each page */
    const void *v_page[ATTN_SEGMENT_PAGES];
    const void *next;          /* page that the caller will need next, or NULL: it is requested */
    const int *k_begin, *k_end;/* keys row i sees, relative to the segment: [begin, end) in
                                * 0..256 */
    float scale;
    float softcap;             /* s = cap * tanh(s / cap) when not 0, with a true division */
    float *m, *l;              /* out [n_q]: maximum score and sum of weights; -inf and 0 if none */
    float *o;                  /* out: row i at o + i * o_stride, v_dim floats, not normalised */
    size_t o_stride;
    float *scratch;            /* attn_scratch_floats, which many rows use, or NULL */
};

/* For the keys and values of a segment. */
static inline size_t attn_scratch_floats(int k_dim, int v_dim)
{
    return (size_t)ATTN_SEGMENT * (size_t)(kv_stride(KV_F32, k_dim) + kv_stride(KV_F32, v_dim));
}

/* Taps of a short convolution. */
enum { CONV_TAPS_MAX = 8 };

/* A causal convolution of each channel by itself, over consecutive tokens of a sequence. */
struct conv_run {
    int n_tok;
    int n;                     /* channels, a multiple of 16 */
    int taps;                  /* 2..CONV_TAPS_MAX; the last one is for the current token */
    const float *w;            /* tap j of channel c at w + j * ld_history + c */
    float *history;            /* the last taps - 1 inputs, oldest first, the same way; updated */
    size_t ld_history;
    float *x;                  /* token t at x + t * ldx: input, replaced by the output */
    size_t ldx;
};

/* Sixteen value columns of the state of a delta-rule head, over consecutive tokens. */
struct delta_run {
    int n_tok;
    int n;                     /* size of a key, a multiple of 4 */
    float *state;              /* [n][16]; updated */
    const float *q, *k;        /* token t at + t * ldqk, n floats */
    const float *v;            /* token t at + t * ldv, 16 floats */
    const float *decay, *beta; /* one float of token t at + t * ldg */
    float *o;                  /* token t at + t * ldo, 16 floats; not v */
    size_t ldqk, ldv, ldg, ldo;
    float scale;               /* of the output */
};

/* y[t * ldy + r] for the n_rows rows at w and tokens t0..t1-1 of the quantised
 * activations.  w: panels of consecutive row groups where kern.panels, else rows
 * as in the file.  n_rows need not be a multiple of 16, w starts a row group.
 * May prefetch beyond w. */
typedef void kern_mm_fn(const void *w, int k, int n_rows, const void *act, int n_tok, int t0,
                        int t1, float *y, size_t ldy);

/* The same with float weights (rows as in the file) and float activations x[t * ldx]: one
 * v16 chain acc = fma(w, x, acc) over k, both widened exactly, the tail padded by zeros; then
 * the tree. */
typedef void kern_fmm_fn(const void *w, int k, int n_rows, const float *x, size_t ldx, int n_tok,
                         float *y, size_t ldy);

struct kern {
    enum isa isa;

    /* ---- quantised activations: the layout is the tier's own ---- */

    /* Bytes for n_tok tokens of k values; a multiple of 64. */
    size_t (*act_bytes)(enum act_kind kind, int k, int n_tok);
    /* Quantises tokens t0..t1-1 (t0 a multiple of 16, t1 too or n_tok) of x[t * ldx] into act,
     * 64-byte aligned.  Per block: amax, d = amax / 127, q = rne(x * (127 / amax)); where
     * 127 / amax overflows d = 0 and all codes 0.  A block with NaN or infinity has that as its
     * scale and codes 0, so that its products are NaN and the fault is seen. */
    void (*act_quant)(enum act_kind kind, const float *x, size_t ldx, int k, int n_tok, int t0,
                      int t1, void *act);

    /* ---- products, by type id; NULL where the type is of the other kind ---- */

    bool panels;  /* mm wants panels */
    kern_mm_fn *mm[QT_COUNT];
    kern_fmm_fn *fmm[QT_COUNT];
    /* Packs one row group, see panel_pack in dot.h. */
    void (*pack)(const struct quant_type *type, const void *rows, size_t row_bytes, int k,
                 int n_rows, void *panels);

    /* ---- float rows ---- */

    /* y = (x * s) * w with s = 1 / sqrt(sum / n + eps), sum a v16 chain of fma(x, x, acc) and its
     * tree, true division and root; w may be NULL; y may be x. */
    void (*rmsnorm)(float *y, const float *x, const float *w, int n, float eps);
    /* mean m by v16 sum; variance v of x - m the same way; y = ((x - m) / sqrt(v + eps)) * w + b
     * with one rounding each, the division as a product with 1 / sqrt; b may be NULL; y may be
     * x. */
    void (*layernorm)(float *y, const float *x, const float *w, const float *b, int n, float eps);
    /* y += x */
    void (*add)(float *y, const float *x, int n);
    /* y *= x */
    void (*mul)(float *y, const float *x, int n);
    /* y = x * (1 / sqrt(sum(x^2) + eps)), the sum as in rmsnorm; y may be x. */
    void (*l2norm)(float *y, const float *x, int n, float eps);
    /* y *= s */
    void (*scale)(float *y, float s, int n);
    /* g = f(g) * u, f as unary. */
    void (*gate[GATE_FNS])(float *g, const float *u, int n);
    /* x = cap * tanh(x / cap) */
    void (*softcap)(float *x, float cap, int n);
    /* Rotates the pairs of one head in place: (x[2j], x[2j+1]) or (x[j], x[j + n_rot/2]).
     * cs: cos[n_rot/2] then sin[n_rot/2].  (a, b) becomes
     * (fma(a, c, -(b * s)), fma(b, c, a * s)). */
    void (*rope_pairs)(float *x, const float *cs, int n_rot);
    void (*rope_halves)(float *x, const float *cs, int n_rot);
    /* f32 to f16, nearest even. */
    void (*to_f16)(uint16_t *y, const float *x, int n);
    /* The functions of math16.h, whose formulas are part of the contract; y may be x. */
    void (*unary[UNARY_FNS])(float *y, const float *x, int n);
    /* Largest value; -inf for n = 0. */
    float (*max)(const float *x, int n);
    bool (*has_nan)(const float *x, int n);

    /* ---- attention ---- */

    /* Writes the row of position `slot` into what a head has in a page, zeroed once; x: dim floats,
     * at most 1024 for KV_Q8_0.  Codes are made as in act_quant, their scale is then rounded. */
    void (*store_key)(enum kv_type kv, void *head, int slot, const float *x, int dim);
    void (*store_value)(enum kv_type kv, void *head, int slot, const float *x, int dim);

    void (*attn_segment)(const struct attn_seg *s);
    /* Folds a segment's (m, l, o) of one row into the running (m, l, o): start with m = -inf and
     * l = 0 and o zero.  A segment with m_s = -inf changes nothing.  t = max(m, m_s),
     * a = exp(m - t), b = exp(m_s - t), l = fma(l_s, b, l * a), o = fma(o_s, b, o * a).  A single
     * segment is folded too: the result has no -0 then; o_s may be o for the first one. */
    void (*attn_fold)(float *m, float *l, float *o, float m_s, float l_s, const float *o_s, int n);
    /* y = o * (1 / l), the quotient rounded first; y = 0 for l = 0; y may be o. */
    void (*attn_finish)(float *y, const float *o, float l, int n);

    /* ---- recurrent layers ---- */

    /* x = silu(sum over j of w[j] * input j), a chain of fma from the oldest input to the current
     * one that starts at 0. */
    void (*conv_silu)(const struct conv_run *r);
    /* For each token: s = m * decay; d = (v - sum of s * k) * beta; m = fma(k, d, s);
     * o = (sum of m * q) * scale.  Sums over rows i are four chains of fma by i mod 4, added as
     * (0 + 1) + (2 + 3). */
    void (*delta_rule)(const struct delta_run *r);

    /* Whether the float kernels of this tier were compiled as the contract wants. */
    bool (*canary)(void);
};

/* The table of a tier, built once; isa must be one that the CPU has (assert). */
const struct kern *kern_get(enum isa isa);

/* Compares each entry of k with scalar on a sample of inputs; the first
 * difference is described in `what`. */
bool kern_selftest(const struct kern *k, char *what, size_t cap);

/* Each ISA file fills in the float part of the table. */
void ops_scalar_fill(struct kern *k);
void ops_avx2_fill(struct kern *k);
void ops_avx512_fill(struct kern *k);

/* Whether this build computes as the contract wants, in every tier that the CPU
 * has: no contraction, no extra precision, gradual underflow, nearest rounding. */
bool kern_canary(void);

#endif

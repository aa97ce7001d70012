/* selftest.c - compares the kernels of a tier with the scalar ones on this machine.
 *
 * A sample of each entry on ordinary inputs, quick enough for a user to run; the
 * program kerncheck does the same with extreme inputs, every size and memory that must
 * not be touched. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kern/dot.h"

/* Sizes of a sample: more rows and tokens than any tile, not a multiple of one. */
enum { MM_K = 512, MM_ROWS = 35, MM_TOKENS = 21, MM_LDY = MM_ROWS + 1 };
enum { FLOATS = 1000 };
enum { SEG_DIM = 80, SEG_QUERIES = 5 };

struct test {
    const struct kern *k, *scalar;
    struct rng rng;
    char *what;
    size_t cap;
};

/* Describes a difference and is false unless the bytes are equal. */
static bool same(struct test *t, const char *name, const void *want, const void *got, size_t bytes)
{
    if (memcmp(want, got, bytes) == 0) {
        return true;
    }
    snprintf(t->what, t->cap, "%s", name);
    return false;
}

static bool no_memory(struct test *t)
{
    snprintf(t->what, t->cap, "not enough memory for the test");
    return false;
}

static void fill_floats(struct test *t, float *x, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = ((float)rng_unit(rng_next(&t->rng)) - 0.5f) * scale;
    }
}

/* ---- integer products ---------------------------------------------------------------- */

struct product {
    const struct quant_type *type;
    size_t row_bytes, group_bytes;
    unsigned char *rows, *panels;   /* panels: whole groups */
    float *x, *want, *got;          /* [MM_TOKENS][MM_K], [MM_TOKENS][MM_LDY] */
};

/* Random codes; the 16-bit scales are some thousandths. */
static void fill_rows(struct test *t, const struct product *p)
{
    for (size_t i = 0; i < MM_ROWS * p->row_bytes; i++) {
        p->rows[i] = (unsigned char)rng_next(&t->rng);
    }
    for (size_t b = 0; b < MM_ROWS * p->row_bytes; b += (size_t)p->type->block_bytes) {
        const uint64_t bits = rng_next(&t->rng);
        const uint16_t d = (uint16_t)((bits & 0x8000u) | (0x1800u + bits % 0x0800u));
        quant_set_scales(p->type, p->rows + b, d, (uint16_t)(d ^ (bits >> 16 & 0x81FFu)));
    }
}

/* Weights in the layout that the tier wants. */
static const void *lay_out(const struct kern *k, const struct product *p)
{
    if (!k->panels) {
        return p->rows;
    }
    for (int r = 0; r < MM_ROWS; r += PANEL_ROWS) {
        k->pack(p->type, p->rows + (size_t)r * p->row_bytes, p->row_bytes, MM_K,
                MM_ROWS - r < PANEL_ROWS ? MM_ROWS - r : PANEL_ROWS,
                p->panels + (size_t)r / PANEL_ROWS * p->group_bytes);
    }
    return p->panels;
}

/* Quantises the activations of the first n_tok tokens and multiplies. */
static bool multiply(const struct kern *k, const struct product *p, int n_tok, float *y)
{
    void *act = mem_alloc_aligned(k->act_bytes(p->type->act, MM_K, n_tok));

    if (!act) {
        return false;
    }
    memset(y, 0, sizeof(float[MM_TOKENS][MM_LDY]));
    k->act_quant(p->type->act, p->x, MM_K, MM_K, n_tok, 0, n_tok, act);
    k->mm[p->type->id](lay_out(k, p), MM_K, MM_ROWS, act, n_tok, 0, n_tok, y, MM_LDY);
    mem_free(act);
    return true;
}

static bool check_product(struct test *t, const struct product *p)
{
    static const int tokens[] = { 1, 2, 7, 16, MM_TOKENS };
    char name[64];

    fill_rows(t, p);
    fill_floats(t, p->x, MM_TOKENS * MM_K, 4);
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
        if (!multiply(t->scalar, p, tokens[i], p->want) ||
            !multiply(t->k, p, tokens[i], p->got)) {
            return no_memory(t);
        }
        snprintf(name, sizeof name, "product with %s, %d tokens", p->type->name, tokens[i]);
        if (!same(t, name, p->want, p->got, sizeof(float[MM_TOKENS][MM_LDY]))) {
            return false;
        }
    }
    return true;
}

static bool check_float_product(struct test *t, const struct product *p)
{
    char name[64];

    fill_floats(t, p->x, MM_TOKENS * MM_K, 4);
    for (int i = 0; i < MM_ROWS * MM_K; i++) {
        const float w = (float)rng_unit(rng_next(&t->rng)) - 0.5f;
        uint32_t bits;
        memcpy(&bits, &w, sizeof bits);
        if (p->type->id == QT_F32) {
            ((float *)(void *)p->rows)[i] = w;
        } else {
            ((uint16_t *)(void *)p->rows)[i] =
                p->type->id == QT_F16 ? f32_to_f16(w) : (uint16_t)(bits >> 16);
        }
    }
    for (int n_tok = 1; n_tok <= MM_TOKENS; n_tok += 4) {
        memset(p->want, 0, sizeof(float[MM_TOKENS][MM_LDY]));
        memset(p->got, 0, sizeof(float[MM_TOKENS][MM_LDY]));
        t->scalar->fmm[p->type->id](p->rows, MM_K, MM_ROWS, p->x, MM_K, n_tok, p->want, MM_LDY);
        t->k->fmm[p->type->id](p->rows, MM_K, MM_ROWS, p->x, MM_K, n_tok, p->got, MM_LDY);
        snprintf(name, sizeof name, "product with %s, %d tokens", p->type->name, n_tok);
        if (!same(t, name, p->want, p->got, sizeof(float[MM_TOKENS][MM_LDY]))) {
            return false;
        }
    }
    return true;
}

static bool check_type(struct test *t, uint32_t id)
{
    const struct quant_type *type = quant_type(id);
    struct product p = { .type = type };
    bool ok = false;

    if (!type) {
        return true;
    }
    p.row_bytes = (size_t)MM_K / (size_t)type->block * (size_t)type->block_bytes;
    p.group_bytes = PANEL_ROWS * p.row_bytes;
    p.rows = mem_alloc_aligned(MM_ROWS * p.row_bytes);
    p.panels = mem_alloc_aligned((MM_ROWS / PANEL_ROWS + 1) * p.group_bytes);
    p.x = mem_alloc_aligned(sizeof(float[MM_TOKENS][MM_K]));
    p.want = mem_alloc_aligned(sizeof(float[MM_TOKENS][MM_LDY]));
    p.got = mem_alloc_aligned(sizeof(float[MM_TOKENS][MM_LDY]));
    if (!p.rows || !p.panels || !p.x || !p.want || !p.got) {
        no_memory(t);
    } else {
        ok = type->unpack ? check_product(t, &p) : check_float_product(t, &p);
    }
    mem_free(p.rows);
    mem_free(p.panels);
    mem_free(p.x);
    mem_free(p.want);
    mem_free(p.got);
    return ok;
}

/* ---- float rows -------------------------------------------------------------------------- */

/* Each entry on the same row of n floats, a for scalar and b for the tier. */
static bool check_row(struct test *t, int n, float *a, float *b, const float *x, const float *w)
{
    static const char *const unary[UNARY_FNS] = { "exp", "sigmoid", "silu", "gelu",
                                                  "tanh", "log", "softplus", "erf" };
    const struct kern *s = t->scalar, *k = t->k;
    const size_t bytes = (size_t)n * sizeof(float);
    const int pairs = n / 2 * 2;
    uint16_t half[2][FLOATS];

#define BOTH(name, call_a, call_b)                                                             \
    do {                                                                                       \
        memcpy(a, x, bytes);                                                                   \
        memcpy(b, x, bytes);                                                                   \
        call_a;                                                                                \
        call_b;                                                                                \
        if (!same(t, name, a, b, bytes)) {                                                     \
            return false;                                                                      \
        }                                                                                      \
    } while (0)

    BOTH("rmsnorm", s->rmsnorm(a, x, w, n, 1e-5f), k->rmsnorm(b, x, w, n, 1e-5f));
    BOTH("add", s->add(a, w, n), k->add(b, w, n));
    BOTH("scale", s->scale(a, 0.37f, n), k->scale(b, 0.37f, n));
    BOTH("gate silu", s->gate[GATE_SILU](a, w, n), k->gate[GATE_SILU](b, w, n));
    BOTH("gate gelu", s->gate[GATE_GELU](a, w, n), k->gate[GATE_GELU](b, w, n));
    BOTH("gate sigmoid", s->gate[GATE_SIGMOID](a, w, n), k->gate[GATE_SIGMOID](b, w, n));
    BOTH("mul", s->mul(a, w, n), k->mul(b, w, n));
    BOTH("l2norm", s->l2norm(a, x, n, 1e-6f), k->l2norm(b, x, n, 1e-6f));
    BOTH("softcap", s->softcap(a, 30, n), k->softcap(b, 30, n));
    BOTH("rope of pairs", s->rope_pairs(a, w, pairs), k->rope_pairs(b, w, pairs));
    BOTH("rope of halves", s->rope_halves(a, w, pairs), k->rope_halves(b, w, pairs));
    for (int fn = 0; fn < UNARY_FNS; fn++) {
        BOTH(unary[fn], s->unary[fn](a, x, n), k->unary[fn](b, x, n));
    }
    BOTH("fold of attention",
         (a[0] = -1, s->attn_fold(&a[0], &a[1], a + 2, 0.5f, 3, w, n - 2)),
         (b[0] = -1, k->attn_fold(&b[0], &b[1], b + 2, 0.5f, 3, w, n - 2)));
    BOTH("end of attention", s->attn_finish(a, x, 3.7f, n), k->attn_finish(b, x, 3.7f, n));
#undef BOTH

    s->to_f16(half[0], x, n);
    k->to_f16(half[1], x, n);
    const float max[2] = { s->max(x, n), k->max(x, n) };
    return same(t, "to_f16", half[0], half[1], (size_t)n * sizeof half[0][0]) &&
           same(t, "max", &max[0], &max[1], sizeof max[0]);
}

static bool check_rows(struct test *t)
{
    static const int sizes[] = { 3, 15, 16, 17, 64, 100, 576, FLOATS };
    float a[FLOATS], b[FLOATS], x[FLOATS], w[FLOATS];

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (float scale = 0.01f; scale < 1000; scale *= 10) {
            fill_floats(t, x, FLOATS, scale);
            fill_floats(t, w, FLOATS, 2);
            if (!check_row(t, sizes[i], a, b, x, w)) {
                return false;
            }
        }
    }
    return true;
}

/* ---- attention ---------------------------------------------------------------------------- */

struct seg_out {
    float m[SEG_QUERIES], l[SEG_QUERIES], o[SEG_QUERIES][SEG_DIM];
};

/* Bytes of the key and value pages of a segment in the largest type. */
enum { SEG_BYTES = 2 * ATTN_SEGMENT * SEG_DIM * 4 };

/* pages[2]: SEG_BYTES each, for what either tier stores. */
static bool check_segment(struct test *t, enum kv_type kv, float softcap, char *const pages[2])
{
    static const char *const names[KV_TYPES] = { "attention, f32", "attention, f16",
                                                 "attention, q8_0" };
    const size_t bytes = kv_head_bytes(kv, SEG_DIM);
    size_t q_off[SEG_QUERIES];
    int begin[SEG_QUERIES], end[SEG_QUERIES];
    float q[SEG_QUERIES * SEG_DIM], row[SEG_DIM];
    struct seg_out out[2];
    struct attn_seg s = {
        .n_q = SEG_QUERIES, .k_dim = SEG_DIM, .v_dim = SEG_DIM,
        .k_stride = kv_stride(kv, SEG_DIM), .v_stride = kv_stride(kv, SEG_DIM), .kv = kv,
        .q = q, .q_off = q_off, .k_begin = begin, .k_end = end,
        .scale = 0.11f, .softcap = softcap, .o_stride = SEG_DIM,
    };

    fill_floats(t, q, SEG_QUERIES * SEG_DIM, 4);
    memset(pages[0], 0, SEG_BYTES);
    memset(pages[1], 0, SEG_BYTES);
    for (int j = 0; j < 2 * ATTN_SEGMENT; j++) {
        const size_t at = (size_t)(j / KV_PAGE) * bytes;
        fill_floats(t, row, SEG_DIM, 2);
        for (int i = 0; i < 2; i++) {
            const struct kern *k = i == 0 ? t->scalar : t->k;
            (j < ATTN_SEGMENT ? k->store_key : k->store_value)(kv, pages[i] + at, j % KV_PAGE, row,
                                                               SEG_DIM);
        }
    }
    if (!same(t, names[kv], pages[0], pages[1], SEG_BYTES)) {
        return false;
    }
    for (int j = 0; j < ATTN_SEGMENT_PAGES; j++) {
        s.k_page[j] = pages[0] + (size_t)j * bytes;
        s.v_page[j] = pages[0] + (size_t)(ATTN_SEGMENT_PAGES + j) * bytes;
    }
    for (int i = 0; i < SEG_QUERIES; i++) {
        q_off[i] = (size_t)i * SEG_DIM;
        begin[i] = i * 9;
        end[i] = i == 0 ? ATTN_SEGMENT : 50 * i + 3;
    }
    memset(out, 0, sizeof out);
    for (int i = 0; i < 2; i++) {
        s.m = out[i].m;
        s.l = out[i].l;
        s.o = out[i].o[0];
        const struct kern *k = i == 0 ? t->scalar : t->k;
        k->attn_segment(&s);
    }
    return same(t, names[kv], &out[0], &out[1], sizeof out[0]);
}

static bool check_attention(struct test *t)
{
    char *const pages[2] = { mem_alloc_aligned(SEG_BYTES), mem_alloc_aligned(SEG_BYTES) };
    bool ok = (pages[0] && pages[1]) || no_memory(t);

    for (int i = 0; ok && i < 2 * KV_TYPES; i++) {
        ok = check_segment(t, (enum kv_type)(i % KV_TYPES), i < KV_TYPES ? 0.0f : 20.0f, pages);
    }
    mem_free(pages[0]);
    mem_free(pages[1]);
    return ok;
}

/* ---- recurrent layers --------------------------------------------------------------------- */

enum { REC_DIM = 32, REC_TOKENS = 5, REC_TAPS = 4 };

struct rec_state {
    float state[REC_DIM * 16], o[REC_TOKENS * 16];
    float history[(REC_TAPS - 1) * REC_DIM], x[REC_TOKENS * REC_DIM];
};

static bool check_recurrent(struct test *t)
{
    struct rec_state a, b;
    float in[3][REC_TOKENS * REC_DIM], w[REC_TAPS * REC_DIM], gates[2][REC_TOKENS];
    const struct kern *const ks[] = { t->scalar, t->k };

    memset(&a, 0, sizeof a);
    fill_floats(t, a.state, REC_DIM * 16, 1);
    fill_floats(t, a.history, (REC_TAPS - 1) * REC_DIM, 4);
    fill_floats(t, a.x, REC_TOKENS * REC_DIM, 4);
    fill_floats(t, in[0], 3 * REC_TOKENS * REC_DIM, 1);
    fill_floats(t, w, REC_TAPS * REC_DIM, 1);
    fill_floats(t, gates[0], 2 * REC_TOKENS, 1);
    b = a;
    for (int i = 0; i < 2; i++) {
        struct rec_state *s = i == 0 ? &a : &b;
        const struct conv_run conv = {
            .n_tok = REC_TOKENS, .n = REC_DIM, .taps = REC_TAPS, .w = w, .history = s->history,
            .ld_history = REC_DIM, .x = s->x, .ldx = REC_DIM,
        };
        const struct delta_run delta = {
            .n_tok = REC_TOKENS, .n = REC_DIM, .state = s->state, .q = in[0], .k = in[1],
            .v = in[2], .decay = gates[0], .beta = gates[1], .o = s->o, .ldqk = REC_DIM,
            .ldv = REC_DIM, .ldg = 1, .ldo = 16, .scale = 0.17f,
        };
        ks[i]->conv_silu(&conv);
        ks[i]->delta_rule(&delta);
    }
    return same(t, "short convolution", a.x, b.x, sizeof a.x) &&
           same(t, "short convolution", a.history, b.history, sizeof a.history) &&
           same(t, "delta rule", a.o, b.o, sizeof a.o) &&
           same(t, "delta rule", a.state, b.state, sizeof a.state);
}

bool kern_selftest(const struct kern *k, char *what, size_t cap)
{
    struct test t = { k, kern_get(ISA_SCALAR), { 2026 }, what, cap };
    bool ok = check_rows(&t) && check_attention(&t) && check_recurrent(&t);

    for (uint32_t id = 0; ok && id < QT_COUNT; id++) {
        ok = check_type(&t, id);
    }
    return ok;
}

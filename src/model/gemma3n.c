/* gemma3n.c - Gemma 3n: four residual streams of which one is computed on, sparse MLPs in the
 * first layers, inputs of their own for every layer, layers that share keys and values.
 *
 * Each layer predicts all streams from all of them, computes the first one, and corrects the
 * others by the difference that made. */
#include "model/forward.h"

#include <math.h>
#include <string.h>

#include "model/load.h"

enum {
    STREAMS = 4,
    LAUREL = 64,           /* rank of the path beside attention */
    SPARSE_LAYERS = 10,    /* MLPs that keep only the strongest part of their gates */
    KV_LAYERS = 20,        /* layers before those that share, where the file does not say */
};

/* Gates below this many standard deviations over the mean are off: 95 of 100. */
static const double SPARSE_DEVIATIONS = 1.6448533535003662;

struct gemma3n_layer {
    struct layer base;
    struct layer_in in;
    struct weight router;            /* [STREAMS][n_embd] */
    struct norm router_norm;
    const float *predict, *correct;  /* [STREAMS * STREAMS][STREAMS], [STREAMS][STREAMS] */
    const float *correct_scale;      /* [n_embd] */
    struct weight laurel_l, laurel_r;
    struct norm laurel_norm;
};

/* ---- metadata and tensors ------------------------------------------------------------------- */

static bool read_sharing(struct hparams *hp, const struct gguf *g, slm_error *err)
{
    int n_shared = hp->n_layer > KV_LAYERS ? hp->n_layer - KV_LAYERS : 0;

    if (!hparams_int(hp, g, "attention.shared_kv_layers", false, 0, hp->n_layer - 1, &n_shared,
                     err)) {
        return false;
    }
    return hparams_share_kv(hp, n_shared, err);
}

static bool gemma3n_hparams(struct hparams *hp, const struct gguf *g, slm_error *err)
{
    float base = 10000;

    hp->final_softcap = 30;
    if (!hparams_rms_eps(hp, g, err) ||
        !hparams_int(hp, g, "attention.sliding_window", true, 1, INT32_MAX, &hp->window, err) ||
        !hparams_sliding(hp, g, 5, err) || !read_sharing(hp, g, err) ||
        !hparams_float(hp, g, "rope.freq_base_swa", false, &base, err) ||
        !hparams_int(hp, g, "embedding_length_per_layer_input", true, 1, 65536,
                     &hp->n_embd_layer, err) ||
        !hparams_float(hp, g, "final_logit_softcapping", false, &hp->final_softcap, err)) {
        return false;
    }
    if (!(base > 0) || !(hp->final_softcap > 0)) {
        return slm_fail(err, SLM_E_FORMAT, "gemma3n.rope.freq_base_swa is %g and "
                        "final_logit_softcapping %g; both must be positive", (double)base,
                        (double)hp->final_softcap);
    }
    hparams_sliding_rope(hp, base);
    hp->attn_scale = 1;
    hp->embd_scale = sqrtf((float)hp->n_embd);
    hp->n_stream = STREAMS - 1;
    hp->scratch_floats = hp->n_embd_layer * hp->n_layer + STREAMS * hp->n_embd + LAUREL + STREAMS;
    return true;
}

static const struct tensor_row gemma3n_top_rows[] = {
    ROWS_LAYER_IN,
    { "altup_proj.weight", offsetof(struct top, stream_in), DIM_EMBD, DIM_EMBD, NEED, false,
      DIM_IS(STREAMS - 1) },
    { "altup_unembd_proj.weight", offsetof(struct top, stream_out), DIM_EMBD, DIM_EMBD, NEED, false,
      DIM_IS(STREAMS - 1) },
};

#define ROW3(field, name, in, out)                                                       \
    { name, offsetof(struct gemma3n_layer, field), in, out, NEED, false, DIM_NONE }
#define ROW3_FLOATS(field, name, in, out)                                                \
    { name, offsetof(struct gemma3n_layer, field), in, out, NEED, true, DIM_NONE }
static const struct tensor_row gemma3n_rows[] = {
    ROWS_ATTN_NORM, ROWS_ATTN_SHARED(NEED_KV_UNFUSED), ROWS_FFN_NORM, ROWS_MLP, ROWS_POST_NORMS,
    ROWS_LAYER_IN_OF(struct gemma3n_layer, in),
    ROW3(router, "blk.%d.altup_router.weight", DIM_EMBD, DIM_IS(STREAMS)),
    ROW3(router_norm.w, "blk.%d.altup_router_norm.weight", DIM_EMBD, DIM_NONE),
    ROW3_FLOATS(predict, "blk.%d.altup_predict_coef.weight", DIM_IS(STREAMS),
                DIM_IS(STREAMS * STREAMS)),
    ROW3_FLOATS(correct, "blk.%d.altup_correct_coef.weight", DIM_IS(STREAMS), DIM_IS(STREAMS)),
    ROW3(correct_scale, "blk.%d.altup_correct_scale.weight", DIM_EMBD, DIM_NONE),
    ROW3(laurel_l, "blk.%d.laurel_l.weight", DIM_EMBD, DIM_IS(LAUREL)),
    ROW3(laurel_r, "blk.%d.laurel_r.weight", DIM_IS(LAUREL), DIM_EMBD),
    ROW3(laurel_norm.w, "blk.%d.laurel_post_norm.weight", DIM_EMBD, DIM_NONE),
};

static void gemma3n_each_weight(void *layer, const struct hparams *hp,
                                void (*fn)(void *arg, struct weight *w), void *arg)
{
    struct gemma3n_layer *l = layer;

    layer_each_weight(layer, hp, fn, arg);
    fn(arg, &l->in.gate);
    fn(arg, &l->in.proj);
    fn(arg, &l->router);
    fn(arg, &l->laurel_l);
    fn(arg, &l->laurel_r);
}

/* ---- streams --------------------------------------------------------------------------------- */

struct stream_op {
    struct step *st;
    const struct gemma3n_layer *l;
    float *x;            /* the main stream */
    float *y;            /* what a layer computed, or rows to be scaled */
    float *mod;          /* [n_tok][STREAMS] */
};

/* Row t of stream s, 0 being the main one. */
static float *stream_row(const struct stream_op *op, int s, int t)
{
    const size_t n_embd = (size_t)op->st->hp->n_embd;
    float *rows = s == 0 ? op->x : op->st->streams +
                                   (size_t)(s - 1) * (size_t)op->st->n_tok * n_embd;

    return rows + (size_t)t * n_embd;
}

static double length(const float *x, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++) {
        sum += (double)x[i] * (double)x[i];
    }
    return sqrt(sum);
}

/* Gives row t of y the length of the main stream's. */
static void match_length(void *arg, int t, int worker)
{
    const struct stream_op *op = arg;
    const int n_embd = op->st->hp->n_embd;
    float *y = op->y + (size_t)t * (size_t)n_embd;
    const double have = length(y, n_embd), want = length(stream_row(op, 0, t), n_embd);

    (void)worker;
    op->st->k->scale(y, have > 0 ? (float)(want / have) : 0, n_embd);
}

static void gemma3n_begin(struct step *st, float *x)
{
    const size_t n_embd = (size_t)st->hp->n_embd, all = (size_t)st->n_tok * n_embd;

    layer_in_begin(st, x);
    st->streams = scratch_rows(st, (STREAMS - 1) * st->hp->n_embd);
    for (int s = 0; s < STREAMS - 1; s++) {
        struct stream_op op = { .st = st, .x = x, .y = st->streams + (size_t)s * all };
        const struct product p = { &st->model->top.stream_in[s], NULL, op.y, n_embd };
        matmul(st, &p, 1, x, n_embd, st->n_tok);
        op_rows(st, st->n_tok, match_length, &op);
    }
}

static void gemma3n_end(struct step *st, float *x)
{
    const size_t n_embd = (size_t)st->hp->n_embd, all = (size_t)st->n_tok * n_embd;
    float *h = scratch_rows(st, st->hp->n_embd);

    /* The lengths are those of the main stream alone, so the sum comes after all of them. */
    for (int s = 0; s < STREAMS - 1; s++) {
        float *stream = st->streams + (size_t)s * all;
        struct stream_op op = { .st = st, .x = x, .y = h };
        const struct product p = { &st->model->top.stream_out[s], NULL, h, n_embd };
        matmul(st, &p, 1, stream, n_embd, st->n_tok);
        op_rows(st, st->n_tok, match_length, &op);
        memcpy(stream, h, all * sizeof *h);
    }
    for (int s = 0; s < STREAMS - 1; s++) {
        op_add(st, x, st->streams + (size_t)s * all);
    }
    op_scale(st, x, 1.0f / STREAMS, st->hp->n_embd);
}

/* mod = router(norm(y) / n_embd); tanh follows where it is used. */
static void route(struct step *st, const struct gemma3n_layer *l, const float *y, float *h,
                  float *mod)
{
    const struct product p = { &l->router, NULL, mod, STREAMS };

    op_norm(st, h, y, l->router_norm);
    op_scale(st, h, 1.0f / (float)st->hp->n_embd, st->hp->n_embd);
    matmul(st, &p, 1, h, (size_t)st->hp->n_embd, st->n_tok);
}

/* Row r of a table of coefficients times mod. */
static float coefficient(const float *table, int r, const float *mod)
{
    float sum = 0;

    for (int i = 0; i < STREAMS; i++) {
        sum += table[r * STREAMS + i] * mod[i];
    }
    return sum;
}

/* Every stream plus a mixture of all. */
static void predict_row(void *arg, int t, int worker)
{
    const struct stream_op *op = arg;
    float *mod = op->mod + (size_t)t * STREAMS;
    float *x[STREAMS], c[STREAMS][STREAMS];

    (void)worker;
    op->st->k->unary[UNARY_TANH](mod, mod, STREAMS);
    for (int s = 0; s < STREAMS; s++) {
        x[s] = stream_row(op, s, t);
        for (int a = 0; a < STREAMS; a++) {
            c[s][a] = coefficient(op->l->predict, s * STREAMS + a, mod);
        }
    }
    for (int i = 0; i < op->st->hp->n_embd; i++) {
        const float v[STREAMS] = { x[0][i], x[1][i], x[2][i], x[3][i] };
        for (int s = 0; s < STREAMS; s++) {
            float sum = v[s];
            for (int a = 0; a < STREAMS; a++) {
                sum += c[s][a] * v[a];
            }
            x[s][i] = sum;
        }
    }
}

/* Every stream plus its share of what the layer changed: y - x. */
static void correct_row(void *arg, int t, int worker)
{
    const struct stream_op *op = arg;
    const int n_embd = op->st->hp->n_embd;
    const float *y = op->y + (size_t)t * (size_t)n_embd;
    float *mod = op->mod + (size_t)t * STREAMS;
    float *x[STREAMS], c[STREAMS];

    (void)worker;
    op->st->k->unary[UNARY_TANH](mod, mod, STREAMS);
    for (int s = 0; s < STREAMS; s++) {
        x[s] = stream_row(op, s, t);
        c[s] = coefficient(op->l->correct, s, mod) + 1;
    }
    for (int i = 0; i < n_embd; i++) {
        const float delta = y[i] - x[0][i];
        for (int s = 0; s < STREAMS; s++) {
            x[s][i] += c[s] * delta;
        }
    }
}

/* y = main stream * correct_scale */
static void scale_row(void *arg, int t, int worker)
{
    const struct stream_op *op = arg;
    const float *x = stream_row(op, 0, t);
    float *y = op->y + (size_t)t * (size_t)op->st->hp->n_embd;

    (void)worker;
    for (int i = 0; i < op->st->hp->n_embd; i++) {
        y[i] = x[i] * op->l->correct_scale[i];
    }
}

/* ---- blocks ---------------------------------------------------------------------------------- */

struct sparse_op {
    float *g;
    int n;
};

/* g = max(0, g - (mean + deviations * standard deviation)) */
static void sparse_row(void *arg, int t, int worker)
{
    const struct sparse_op *op = arg;
    float *g = op->g + (size_t)t * (size_t)op->n;
    double sum = 0, squares = 0;

    (void)worker;
    for (int i = 0; i < op->n; i++) {
        sum += (double)g[i];
    }
    const double mean = sum / op->n;
    for (int i = 0; i < op->n; i++) {
        squares += ((double)g[i] - mean) * ((double)g[i] - mean);
    }
    const double least = mean + SPARSE_DEVIATIONS * sqrt(squares / (op->n > 1 ? op->n - 1 : 1));
    for (int i = 0; i < op->n; i++) {
        const double over = (double)g[i] - least;
        g[i] = over > 0 ? (float)over : 0;
    }
}

/* y = down(gelu(sparse(gate h)) * up h) */
static void mlp_sparse(struct step *st, const struct mlp *m, const float *h, float *y)
{
    const size_t mark = scratch_mark(st), n_ff = (size_t)m->gate.n_out;
    const size_t n_embd = (size_t)st->hp->n_embd;
    float *g = scratch_rows(st, (int)n_ff), *u = scratch_rows(st, (int)n_ff);
    const struct product in[] = { { &m->gate, m->gate_bias, g, n_ff },
                                  { &m->up, m->up_bias, u, n_ff } };
    const struct product out = { &m->down, m->down_bias, y, n_embd };
    struct sparse_op op = { g, (int)n_ff };

    matmul(st, in, 2, h, n_embd, st->n_tok);
    op_rows(st, st->n_tok, sparse_row, &op);
    op_gate(st, GATE_GELU, g, u, n_ff, (int)n_ff);
    matmul(st, &out, 1, g, n_ff, st->n_tok);
    scratch_release(st, mark);
}

/* y = h + norm(laurel_r laurel_l h) */
static void laurel(struct step *st, const struct gemma3n_layer *l, float *h, float *y)
{
    const size_t mark = scratch_mark(st), n_embd = (size_t)st->hp->n_embd;
    float *low = scratch_rows(st, LAUREL);
    const struct product down = { &l->laurel_l, NULL, low, LAUREL };
    const struct product up = { &l->laurel_r, NULL, y, n_embd };

    matmul(st, &down, 1, h, n_embd, st->n_tok);
    matmul(st, &up, 1, low, LAUREL, st->n_tok);
    op_norm(st, y, y, l->laurel_norm);
    op_add(st, y, h);
    scratch_release(st, mark);
}

/* y = the main stream after attention and MLP; h is scratch. */
static void compute_main(struct step *st, const struct gemma3n_layer *g, int il, float *x, float *h,
                         float *y)
{
    const struct layer *l = &g->base;
    const int n_embd = st->hp->n_embd;

    op_norm(st, h, x, l->attn_norm);
    laurel(st, g, h, y);
    attn_block(st, &l->attn, il, kv_of(st, il), h, h);
    op_norm(st, h, h, l->post_attn_norm);
    op_add(st, h, x);
    op_add(st, y, h);
    op_scale(st, y, 1.0f / sqrtf(2.0f), n_embd);

    op_norm(st, h, y, l->ffn_norm);
    if (il < SPARSE_LAYERS) {
        mlp_sparse(st, &l->mlp, h, h);
    } else {
        mlp_gated(st, &l->mlp, GATE_GELU, h, h);
    }
    op_norm(st, h, h, l->post_ffn_norm);
    op_add(st, y, h);
}

static void gemma3n_layer(struct step *st, const void *layer, int il, float *x)
{
    const struct gemma3n_layer *l = layer;
    const size_t all = (size_t)st->n_tok * (size_t)st->hp->n_embd;
    float *h = scratch_rows(st, st->hp->n_embd), *y = scratch_rows(st, st->hp->n_embd);
    struct stream_op op = { st, l, x, y, scratch_rows(st, STREAMS) };

    route(st, l, x, h, op.mod);
    op_rows(st, st->n_tok, predict_row, &op);
    compute_main(st, l, il, x, h, y);
    route(st, l, y, h, op.mod);
    op_rows(st, st->n_tok, correct_row, &op);

    /* The layer's own input goes to the other streams. */
    op.y = h;
    op_rows(st, st->n_tok, scale_row, &op);
    layer_in_block(st, &l->in, il, h, h);
    for (size_t s = 0; s < STREAMS - 1; s++) {
        op_add(st, st->streams + s * all, h);
    }
}

const struct arch arch_gemma3n = {
    .name        = "gemma3n",
    .hparams     = gemma3n_hparams,
    .top_rows    = gemma3n_top_rows,
    .n_top_rows  = sizeof gemma3n_top_rows / sizeof *gemma3n_top_rows,
    .rows        = gemma3n_rows,
    .n_rows      = sizeof gemma3n_rows / sizeof *gemma3n_rows,
    .layer_size  = sizeof(struct gemma3n_layer),
    .finish      = layer_finish_shared,
    .each_weight = gemma3n_each_weight,
    .begin       = gemma3n_begin,
    .layer       = gemma3n_layer,
    .end         = gemma3n_end,
};

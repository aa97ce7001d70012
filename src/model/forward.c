/* forward.c - attention block, MLP block and row operations over all tokens of a step. */
#include "model/forward.h"

#include <assert.h>
#include <string.h>

#include "model/load.h"
#include "model/work.h"

/* Below this many tokens a parallel region costs more than it saves. */
enum { ROW_TASK_MIN = 8 };

/* ---- scratch ---------------------------------------------------------------------- */

float *scratch_rows(struct step *st, int n)
{
    struct work *w = st->work;
    const size_t floats = align_up((size_t)st->n_tok * (size_t)n, 16);

    assert(w->rows_used + floats <= w->rows_cap);
    float *rows = w->rows + w->rows_used;
    w->rows_used += floats;
    return rows;
}

size_t scratch_mark(const struct step *st)
{
    return st->work->rows_used;
}

void scratch_release(struct step *st, size_t mark)
{
    st->work->rows_used = mark;
}

/* ---- rows -------------------------------------------------------------------------- */

void op_rows(struct step *st, int n, pool_fn *fn, void *arg)
{
    if (n >= ROW_TASK_MIN) {
        pool_run(st->pool, fn, arg, n);
        return;
    }
    for (int i = 0; i < n; i++) {
        fn(arg, i, 0);
    }
}

/* Runs fn for every token. */
static void each_row(struct step *st, pool_fn *fn, void *arg)
{
    op_rows(st, st->n_tok, fn, arg);
}

struct row_op {
    struct step *st;
    float *sum, *y;
    const float *x;
    struct norm norm;
};

void norm_row(const struct step *st, float *y, const float *x, struct norm norm)
{
    const struct hparams *hp = st->hp;

    if (hp->layer_norm) {
        st->k->layernorm(y, x, norm.w, norm.b, hp->n_embd, hp->norm_eps);
    } else {
        st->k->rmsnorm(y, x, norm.w, hp->n_embd, hp->norm_eps);
    }
}

static void norm_task(void *arg, int t, int worker)
{
    const struct row_op *op = arg;
    const size_t at = (size_t)t * (size_t)op->st->hp->n_embd;

    (void)worker;
    norm_row(op->st, op->y + at, op->x + at, op->norm);
}

void op_norm(struct step *st, float *y, const float *x, struct norm norm)
{
    struct row_op op = { .st = st, .y = y, .x = x, .norm = norm };

    each_row(st, norm_task, &op);
}

static void add_task(void *arg, int t, int worker)
{
    const struct row_op *op = arg;
    const struct hparams *hp = op->st->hp;
    const size_t at = (size_t)t * (size_t)hp->n_embd;

    (void)worker;
    if (hp->residual_scale != 1) {
        op->st->k->scale(op->y + at, hp->residual_scale, hp->n_embd);
    }
    op->st->k->add(op->sum + at, op->y + at, hp->n_embd);
}

void op_add(struct step *st, float *x, float *y)
{
    struct row_op op = { .st = st, .sum = x, .y = y };

    each_row(st, add_task, &op);
}

struct scale_op {
    struct step *st;
    float *y;
    float s;
    int n;
};

static void scale_task(void *arg, int t, int worker)
{
    const struct scale_op *op = arg;

    (void)worker;
    op->st->k->scale(op->y + (size_t)t * (size_t)op->n, op->s, op->n);
}

void op_scale(struct step *st, float *y, float s, int n)
{
    struct scale_op op = { st, y, s, n };

    each_row(st, scale_task, &op);
}

/* ---- attention block ---------------------------------------------------------------- */

struct qkv_op {
    struct step *st;
    const struct attn *a;
    const struct layer_shape *shape;
    const float *rope;     /* NULL: no rotation */
    int n_rot, il_kv;
    float *q, *k, *v;
};

/* Norms the n_head heads of one token. */
static void norm_heads(const struct qkv_op *op, float *x, int n_head, const float *w)
{
    const struct kern *k = op->st->k;
    const float eps = op->st->hp->norm_eps;
    const int k_dim = op->shape->k_dim;
    const size_t dim = (size_t)k_dim;

    if (op->a->qk_norm == QK_WHOLE) {
        k->rmsnorm(x, x, w, n_head * k_dim, eps);
        return;
    }
    for (size_t h = 0; h < (size_t)n_head; h++) {
        if (op->a->qk_norm == QK_HEAD_LN) {
            k->layernorm(x + h * dim, x + h * dim, w + h * dim, NULL, k_dim, eps);
        } else {
            k->rmsnorm(x + h * dim, x + h * dim, w, k_dim, eps);
        }
    }
}

/* Norms and rotates n_head heads of token t. */
static void finish_heads(const struct qkv_op *op, int t, float *x, int n_head, const float *norm)
{
    const struct step *st = op->st;

    if (norm) {
        norm_heads(op, x, n_head, norm);
    }
    for (int h = 0; op->rope && h < n_head; h++) {
        (st->rope_pairs ? st->k->rope_pairs : st->k->rope_halves)(
            x + (size_t)h * (size_t)op->shape->k_dim, op->rope + (size_t)t * (size_t)op->n_rot,
            op->n_rot);
    }
}

/* The factor by which queries grow with their position. */
static float temperature(const struct hparams *hp, int pos)
{
    return (float)(1 + (double)hp->temp_scale * rope_log(1 + (double)(pos / hp->temp_context)));
}

static void qkv_row(void *arg, int t, int worker)
{
    const struct qkv_op *op = arg;
    const struct step *st = op->st;
    const struct hparams *hp = st->hp;
    const struct layer_shape *l = op->shape;
    const enum kv_type kv = st->in->kv;
    const struct step_seq *seq = &st->in->seq[st->seq[t]];
    const int pos = st->pos[t];
    char *page = seq->pages[(size_t)op->il_kv * (size_t)seq->page_stride + (size_t)(pos / KV_PAGE)];
    float *q = op->q + (size_t)t * (size_t)(l->n_head * l->k_dim);
    float *k = op->k + (size_t)t * (size_t)(l->n_head_kv * l->k_dim);
    float *v = op->v + (size_t)t * (size_t)(l->n_head_kv * l->v_dim);
    char *values = page + (size_t)l->n_head_kv * kv_head_bytes(kv, l->k_dim);

    (void)worker;
    finish_heads(op, t, q, l->n_head, op->a->q_norm);
    if (hp->temp_scale != 0) {
        st->k->scale(q, temperature(hp, pos), l->n_head * l->k_dim);
    }
    if (!op->a->k.rows) {
        return;
    }
    if (!op->a->v.rows) {
        memcpy(v, k, (size_t)(l->n_head_kv * l->v_dim) * sizeof *v);
    }
    for (int h = 0; op->a->v_norm && h < l->n_head_kv; h++) {
        float *head = v + (size_t)h * (size_t)l->v_dim;
        st->k->rmsnorm(head, head, NULL, l->v_dim, hp->norm_eps);
    }
    finish_heads(op, t, k, l->n_head_kv, op->a->k_norm);
    for (int h = 0; h < l->n_head_kv; h++) {
        st->k->store_key(kv, page + (size_t)h * kv_head_bytes(kv, l->k_dim), pos % KV_PAGE,
                         k + (size_t)h * (size_t)l->k_dim, l->k_dim);
        st->k->store_value(kv, values + (size_t)h * kv_head_bytes(kv, l->v_dim), pos % KV_PAGE,
                           v + (size_t)h * (size_t)l->v_dim, l->v_dim);
    }
}

void attn_heads(struct step *st, const struct attn *a, int il, int il_kv, float *q, float *k,
                float *v)
{
    const int kind = st->hp->rope_of[il];
    struct qkv_op op = { .st = st, .a = a, .shape = &st->hp->layer[il], .il_kv = il_kv,
                         .q = q, .k = k, .v = v };

    if (kind != ROPE_NONE) {
        op.rope = st->rope[kind];
        op.n_rot = st->hp->rope[kind].n_rot;
    }
    each_row(st, qkv_row, &op);
}

void attn_block(struct step *st, const struct attn *a, int il, int il_kv, const float *h, float *y)
{
    const struct hparams *hp = st->hp;
    const size_t mark = scratch_mark(st);
    const int n_q = dim_size(hp, il, DIM_Q), n_k = dim_size(hp, il, DIM_K);
    const int n_v = dim_size(hp, il, DIM_V), n_o = dim_size(hp, il, DIM_ATT);
    float *q = scratch_rows(st, n_q), *k = scratch_rows(st, n_k), *v = scratch_rows(st, n_v);
    float *o = scratch_rows(st, n_o);
    const struct product qkv[] = {
        { &a->q, a->q_bias, q, (size_t)n_q },
        { &a->k, a->k_bias, k, (size_t)n_k },
        { &a->v, a->v_bias, v, (size_t)n_v },
    };
    const struct product out = { &a->out, a->out_bias, y, (size_t)hp->n_embd };

    matmul(st, qkv, a->v.rows ? 3 : a->k.rows ? 2 : 1, h, (size_t)hp->n_embd, st->n_tok);
    attn_heads(st, a, il, il_kv, q, k, v);
    attention(st, il, il_kv, q, o);
    matmul(st, &out, 1, o, (size_t)n_o, st->n_tok);
    scratch_release(st, mark);
}

/* ---- MLP ------------------------------------------------------------------------------ */

struct gate_op {
    struct step *st;
    enum gate_fn fn;
    float *g;
    const float *u;
    size_t ldu;
    int n;
};

static void gate_row(void *arg, int t, int worker)
{
    const struct gate_op *op = arg;

    (void)worker;
    op->st->k->gate[op->fn](op->g + (size_t)t * (size_t)op->n, op->u + (size_t)t * op->ldu, op->n);
}

void op_gate(struct step *st, enum gate_fn fn, float *g, const float *u, size_t ldu, int n)
{
    struct gate_op op = { st, fn, g, u, ldu, n };

    each_row(st, gate_row, &op);
}

void mlp_gated(struct step *st, const struct mlp *m, enum gate_fn fn, const float *h, float *y)
{
    const struct hparams *hp = st->hp;
    const size_t mark = scratch_mark(st);
    const size_t n_ff = (size_t)m->gate.n_out;
    float *g = scratch_rows(st, (int)n_ff), *u = scratch_rows(st, (int)n_ff);
    const struct product in[] = {
        { &m->gate, m->gate_bias, g, n_ff },
        { &m->up, m->up_bias, u, n_ff },
    };
    const struct product out = { &m->down, m->down_bias, y, (size_t)hp->n_embd };

    matmul(st, in, 2, h, (size_t)hp->n_embd, st->n_tok);
    op_gate(st, fn, g, u, n_ff, (int)n_ff);
    matmul(st, &out, 1, g, n_ff, st->n_tok);
    scratch_release(st, mark);
}

struct unary_op {
    struct step *st;
    float *x;
    int n;
    enum unary_fn fn;
};

static void unary_task(void *arg, int t, int worker)
{
    const struct unary_op *op = arg;
    float *x = op->x + (size_t)t * (size_t)op->n;

    (void)worker;
    op->st->k->unary[op->fn](x, x, op->n);
}

void mlp_plain(struct step *st, const struct mlp *m, enum unary_fn fn, const float *h, float *y)
{
    const size_t mark = scratch_mark(st);
    const size_t n_ff = (size_t)m->up.n_out, n_embd = (size_t)st->hp->n_embd;
    float *u = scratch_rows(st, (int)n_ff);
    const struct product up = { &m->up, m->up_bias, u, n_ff };
    const struct product down = { &m->down, m->down_bias, y, n_embd };
    struct unary_op op = { st, u, (int)n_ff, fn };

    matmul(st, &up, 1, h, n_embd, st->n_tok);
    each_row(st, unary_task, &op);
    matmul(st, &down, 1, u, n_ff, st->n_tok);
    scratch_release(st, mark);
}

/* ---- layers of the usual kind --------------------------------------------------------- */

bool layer_finish(void *layer, const struct hparams *hp, int il, slm_error *err)
{
    struct attn *a = &((struct layer *)layer)->attn;
    struct mlp *m = &((struct layer *)layer)->mlp;
    const int n_q = dim_size(hp, il, DIM_Q), n_k = dim_size(hp, il, DIM_K);
    const int n_v = dim_size(hp, il, DIM_V), n_ff = dim_size(hp, il, DIM_FF);

    if (a->qkv.rows) {
        if (a->q.rows || a->k.rows || a->v.rows) {
            return slm_fail(err, SLM_E_FORMAT, "tensor %s stands beside separate projections",
                            a->qkv.tensor->name);
        }
        weight_slice(&a->q, &a->qkv, 0, n_q);
        weight_slice(&a->k, &a->qkv, n_q, n_k);
        weight_slice(&a->v, &a->qkv, n_q + n_k, n_v);
    }
    if (a->qkv_bias) {
        a->q_bias = a->qkv_bias;
        a->k_bias = a->qkv_bias + n_q;
        a->v_bias = a->qkv_bias + n_q + n_k;
    }
    if (m->gate_up.rows) {
        weight_slice(&m->gate, &m->gate_up, 0, n_ff);
        weight_slice(&m->up, &m->gate_up, n_ff, n_ff);
    }
    return true;
}

bool layer_finish_shared(void *layer, const struct hparams *hp, int il, slm_error *err)
{
    struct attn *a = &((struct layer *)layer)->attn;

    if (!layer_finish(layer, hp, il, err)) {
        return false;
    }
    a->v_norm = true;
    if (!layer_owns_kv(hp, il)) {
        a->k.rows = a->v.rows = NULL;  /* some files carry them */
    }
    return true;
}

void layer_each_weight(void *layer, const struct hparams *hp,
                       void (*fn)(void *arg, struct weight *w), void *arg)
{
    struct layer *l = layer;
    struct weight *const all[] = { &l->attn.q, &l->attn.k, &l->attn.v, &l->attn.out,
                                   &l->mlp.gate, &l->mlp.up, &l->mlp.down, &l->moe.router };
    struct weight *const stacks[] = { l->moe.gate, l->moe.up, l->moe.gate_up, l->moe.down };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i]->rows) {
            fn(arg, all[i]);
        }
    }
    for (size_t i = 0; i < sizeof stacks / sizeof *stacks; i++) {
        for (int e = 0; stacks[i] && e < hp->n_expert; e++) {
            fn(arg, &stacks[i][e]);
        }
    }
}

void layer_prenorm(struct step *st, const void *layer, int il, float *x)
{
    const struct layer *l = layer;
    float *h = scratch_rows(st, st->hp->n_embd);

    op_norm(st, h, x, l->attn_norm);
    attn_block(st, &l->attn, il, kv_of(st, il), h, h);
    op_add(st, x, h);

    op_norm(st, h, x, l->ffn_norm);
    if (l->moe.router.rows) {
        float *y = scratch_rows(st, st->hp->n_embd);
        moe_block(st, &l->moe, GATE_SILU, h, h, y);
        op_add(st, x, y);
    } else {
        mlp_gated(st, &l->mlp, GATE_SILU, h, h);
        op_add(st, x, h);
    }
}

void layer_sandwich(struct step *st, const void *layer, int il, float *x)
{
    const struct layer *l = layer;
    float *h = scratch_rows(st, st->hp->n_embd);

    op_norm(st, h, x, l->attn_norm);
    attn_block(st, &l->attn, il, kv_of(st, il), h, h);
    op_norm(st, h, h, l->post_attn_norm);
    op_add(st, x, h);

    op_norm(st, h, x, l->ffn_norm);
    mlp_gated(st, &l->mlp, GATE_GELU, h, h);
    op_norm(st, h, h, l->post_ffn_norm);
    op_add(st, x, h);
}

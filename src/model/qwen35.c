/* qwen35.c - Qwen 3.5 and later: most layers are recurrent, the others have attention whose
 * output is gated; a block that drafts tokens may follow the layers. */
#include "model/forward.h"

#include <string.h>

struct qwen35_layer {
    struct layer base;     /* attn only in layers with attention; ffn_norm is the second norm */
    struct delta delta;    /* only in recurrent layers */
};

/* ---- metadata ---------------------------------------------------------------------------- */

static bool read_delta(struct hparams *hp, const struct gguf *g, slm_error *err)
{
    struct delta_shape *d = &hp->delta;
    int inner = 0;

    if (!hparams_int(hp, g, "ssm.conv_kernel", true, 2, CONV_TAPS_MAX, &d->taps, err) ||
        !hparams_int(hp, g, "ssm.state_size", true, 16, 1024, &d->head_dim, err) ||
        !hparams_int(hp, g, "ssm.group_count", true, 1, 1024, &d->n_k_head, err) ||
        !hparams_int(hp, g, "ssm.time_step_rank", true, 1, 1024, &d->n_v_head, err) ||
        !hparams_int(hp, g, "ssm.inner_size", true, 1, INT32_MAX, &inner, err)) {
        return false;
    }
    if (d->head_dim % 16 != 0 || d->n_v_head % d->n_k_head != 0 ||
        inner != d->head_dim * d->n_v_head) {
        return slm_fail(err, SLM_E_FORMAT,
                        "qwen35.ssm: state_size %d must be a multiple of 16, time_step_rank %d one "
                        "of group_count %d, and inner_size %d their product %d", d->head_dim,
                        d->n_v_head, d->n_k_head, inner, d->head_dim * d->n_v_head);
    }
    return true;
}

/* Which layers are recurrent: a list with an entry for each, or all but every n-th. */
static bool read_kinds(struct hparams *hp, const struct gguf *g, slm_error *err)
{
    const struct gguf_kv *list = gguf_find(g, "qwen35.attention.recurrent_layers");
    int interval = 4;

    if (list && (list->type != GGUF_ARR || list->n < (uint64_t)hp->n_layer ||
                 (list->elem != GGUF_BOOL && !gguf_is_int(list->elem)))) {
        return slm_fail(err, SLM_E_FORMAT, "qwen35.attention.recurrent_layers must be an array "
                        "with a bool for each of %d layers", hp->n_layer);
    }
    if (!hparams_int(hp, g, "full_attention_interval", false, 1, LAYER_MAX, &interval, err)) {
        return false;
    }
    hp->n_kv_layer = 0;
    for (int il = 0; il < hp->n_layer; il++) {
        struct layer_shape *l = &hp->layer[il];
        l->recurrent = list ? gguf_int_at(list, (uint64_t)il) != 0 : (il + 1) % interval != 0;
        if (l->recurrent) {
            l->state = hp->n_state++;
        } else {
            hp->kv_owner[hp->n_kv_layer] = (uint16_t)il;
            l->kv = hp->n_kv_layer++;
        }
    }
    if (hp->n_kv_layer == 0 && hp->n_layer > 0) {
        return slm_fail(err, SLM_E_UNSUPPORTED, "all layers are recurrent, none has attention");
    }
    return true;
}

/* Text has one position, which all sections of a rotation share but the last. */
static bool read_sections(const struct hparams *hp, const struct gguf *g, slm_error *err)
{
    const struct gguf_kv *kv = gguf_find(g, "qwen35.rope.dimension_sections");

    if (!kv) {
        return true;
    }
    if (kv->type != GGUF_ARR || !gguf_is_int(kv->elem) || kv->n < 3) {
        return slm_fail(err, SLM_E_FORMAT,
                        "qwen35.rope.dimension_sections must be an array of integers");
    }
    const int64_t t = gguf_int_at(kv, 0), h = gguf_int_at(kv, 1), w = gguf_int_at(kv, 2);
    for (int j = 0; j < hp->rope[ROPE_FULL].n_rot / 2; j++) {
        if (j >= 3 * (j % 3 == 0 ? t : j % 3 == 1 ? h : w)) {
            return slm_fail(err, SLM_E_UNSUPPORTED, "qwen35.rope.dimension_sections leaves pair %d "
                            "of %d without a position", j, hp->rope[ROPE_FULL].n_rot / 2);
        }
    }
    return true;
}

static bool qwen35_hparams(struct hparams *hp, const struct gguf *g, slm_error *err)
{
    if (!hparams_rms_eps(hp, g, err) || !read_delta(hp, g, err) || !read_sections(hp, g, err) ||
        !hparams_int(hp, g, "nextn_predict_layers", false, 0, 1, &hp->n_draft, err)) {
        return false;
    }
    if (hp->k_dim != hp->v_dim) {
        return slm_fail(err, SLM_E_FORMAT, "qwen35.attention: keys of %d must be as long as values "
                        "of %d", hp->k_dim, hp->v_dim);
    }
    hp->n_layer -= hp->n_draft;
    if (hp->n_draft > 0) {
        hp->layer[hp->n_layer].kv = 0;
    }
    /* Queries and gates side by side; a pair of rows for the draft. */
    int gated = 0;
    for (int il = 0; il < hp->n_layer + hp->n_draft; il++) {
        const int n = dim_size(hp, il, DIM_Q2);
        gated = n > gated ? n : gated;
    }
    hp->scratch_floats = gated + 2 * hp->n_draft * hp->n_embd;
    return read_kinds(hp, g, err);
}

/* ---- tensors ------------------------------------------------------------------------------ */

#define ROW_DELTA(field, name, in, out)                                                  \
    { name, offsetof(struct qwen35_layer, delta.field), in, out, NEED_DELTA, false, DIM_NONE }

static const struct tensor_row qwen35_rows[] = {
    ROWS_ATTN_NORM,
    ROW(attn.q, "blk.%d.attn_q.weight", DIM_EMBD, DIM_Q2, NEED_ATTN),
    ROW(attn.k, "blk.%d.attn_k.weight", DIM_EMBD, DIM_K, NEED_ATTN),
    ROW(attn.v, "blk.%d.attn_v.weight", DIM_EMBD, DIM_V, NEED_ATTN),
    ROW(attn.out, "blk.%d.attn_output.weight", DIM_ATT, DIM_EMBD, NEED_ATTN),
    ROW(attn.q_norm, "blk.%d.attn_q_norm.weight", DIM_HEAD, DIM_NONE, NEED_ATTN),
    ROW(attn.k_norm, "blk.%d.attn_k_norm.weight", DIM_HEAD, DIM_NONE, NEED_ATTN),
    ROW_DELTA(qkv, "blk.%d.attn_qkv.weight", DIM_EMBD, DIM_DELTA_IN),
    ROW_DELTA(gate, "blk.%d.attn_gate.weight", DIM_EMBD, DIM_DELTA_OUT),
    ROW_DELTA(alpha, "blk.%d.ssm_alpha.weight", DIM_EMBD, DIM_DELTA_HEADS),
    ROW_DELTA(beta, "blk.%d.ssm_beta.weight", DIM_EMBD, DIM_DELTA_HEADS),
    ROW_DELTA(out, "blk.%d.ssm_out.weight", DIM_DELTA_OUT, DIM_EMBD),
    ROW_DELTA(dt, "blk.%d.ssm_dt.bias", DIM_DELTA_HEADS, DIM_NONE),
    ROW_DELTA(a, "blk.%d.ssm_a", DIM_DELTA_HEADS, DIM_NONE),
    ROW_DELTA(norm, "blk.%d.ssm_norm.weight", DIM_DELTA_HEAD, DIM_NONE),
    { "blk.%d.ssm_conv1d.weight", offsetof(struct qwen35_layer, delta.conv), DIM_DELTA_TAPS,
      DIM_DELTA_IN, NEED_DELTA, true, DIM_NONE },
    ROW(ffn_norm.w, "blk.%d.post_attention_norm.weight", DIM_EMBD, DIM_NONE, NEED),
    ROWS_MLP,
};

static bool qwen35_finish(void *layer, const struct hparams *hp, int il, slm_error *err)
{
    return !hp->layer[il].recurrent ||
           delta_finish(&((struct qwen35_layer *)layer)->delta, hp, err);
}

static void qwen35_each_weight(void *layer, const struct hparams *hp,
                               void (*fn)(void *arg, struct weight *w), void *arg)
{
    struct delta *d = &((struct qwen35_layer *)layer)->delta;
    struct weight *const all[] = { &d->qkv, &d->gate, &d->alpha, &d->beta, &d->out };

    layer_each_weight(layer, hp, fn, arg);
    for (size_t i = 0; d->qkv.rows && i < sizeof all / sizeof *all; i++) {
        fn(arg, all[i]);
    }
}

/* ---- forward ------------------------------------------------------------------------------- */

struct split_op {
    const float *both;   /* [n_tok][n_head][2][dim]: a head's query, then its gate */
    float *q, *gate;     /* [n_tok][n_head][dim] */
    int n_head, dim;
};

static void split_row(void *arg, int t, int worker)
{
    const struct split_op *op = arg;
    const size_t dim = (size_t)op->dim, n_head = (size_t)op->n_head;

    (void)worker;
    for (size_t h = (size_t)t * n_head; h < ((size_t)t + 1) * n_head; h++) {
        memcpy(op->q + h * dim, op->both + 2 * h * dim, dim * sizeof *op->q);
        memcpy(op->gate + h * dim, op->both + (2 * h + 1) * dim, dim * sizeof *op->gate);
    }
}

/* Attention whose output is multiplied by the sigmoid of what the query projection gives besides;
 * h is replaced. */
static void gated_attention(struct step *st, const struct attn *a, int il, float *h)
{
    const struct hparams *hp = st->hp;
    const size_t mark = scratch_mark(st), n_embd = (size_t)hp->n_embd;
    const int n_q = dim_size(hp, il, DIM_Q), n_k = dim_size(hp, il, DIM_K);
    const int n_v = dim_size(hp, il, DIM_V);
    float *both = scratch_rows(st, 2 * n_q), *q = scratch_rows(st, n_q);
    float *gate = scratch_rows(st, n_q), *k = scratch_rows(st, n_k), *v = scratch_rows(st, n_v);
    const struct product in[] = {
        { &a->q, NULL, both, 2 * (size_t)n_q },
        { &a->k, NULL, k, (size_t)n_k },
        { &a->v, NULL, v, (size_t)n_v },
    };
    const struct product out = { &a->out, NULL, h, n_embd };
    struct split_op split = { both, q, gate, hp->layer[il].n_head, hp->layer[il].k_dim };

    matmul(st, in, 3, h, n_embd, st->n_tok);
    op_rows(st, st->n_tok, split_row, &split);
    attn_heads(st, a, il, kv_of(st, il), q, k, v);
    attention(st, il, kv_of(st, il), q, both);
    op_gate(st, GATE_SIGMOID, gate, both, (size_t)n_q, n_q);
    matmul(st, &out, 1, gate, (size_t)n_q, st->n_tok);
    scratch_release(st, mark);
}

static void qwen35_layer(struct step *st, const void *layer, int il, float *x)
{
    const struct qwen35_layer *l = layer;
    float *h = scratch_rows(st, st->hp->n_embd);

    op_norm(st, h, x, l->base.attn_norm);
    if (st->hp->layer[il].recurrent) {
        delta_block(st, &l->delta, il, h, h);
    } else {
        gated_attention(st, &l->base.attn, il, h);
    }
    op_add(st, x, h);

    op_norm(st, h, x, l->base.ffn_norm);
    mlp_gated(st, &l->base.mlp, GATE_SILU, h, h);
    op_add(st, x, h);
}

const struct arch arch_qwen35 = {
    .name        = "qwen35",
    .hparams     = qwen35_hparams,
    .rows        = qwen35_rows,
    .n_rows      = sizeof qwen35_rows / sizeof *qwen35_rows,
    .layer_size  = sizeof(struct qwen35_layer),
    .finish      = qwen35_finish,
    .each_weight = qwen35_each_weight,
    .layer       = qwen35_layer,
};

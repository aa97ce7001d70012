/* gemma4.c - Gemma 4: heads of different sizes on sliding and full layers, layers that share
 * keys and values, inputs of their own for every layer, experts beside the MLP. */
#include "model/forward.h"

#include <math.h>

struct gemma4_layer {
    struct layer base;
    struct layer_in in;
    const float *out_scale;            /* one factor of the whole residual stream, or NULL */
    struct norm router_norm, expert_norm;        /* on what router and experts see */
    struct norm post_mlp_norm, post_expert_norm; /* on what MLP and experts give */
};

/* ---- metadata ---------------------------------------------------------------------------- */

/* Sizes of heads by kind of layer. */
static bool read_heads(struct hparams *hp, const struct gguf *g, slm_error *err)
{
    struct rope_params *slide = &hp->rope[ROPE_SLIDING];
    int k_dim = 0, v_dim = 0;
    float base = 10000;

    if (!hparams_int(hp, g, "attention.key_length_swa", true, 2, 1024, &k_dim, err) ||
        !hparams_int(hp, g, "attention.value_length_swa", true, 2, 1024, &v_dim, err)) {
        return false;
    }
    if (hp->k_dim != hp->v_dim || k_dim != v_dim) {
        return slm_fail(err, SLM_E_FORMAT, "gemma4.attention: keys of %d and %d (sliding) must be "
                        "as long as values of %d and %d", hp->k_dim, k_dim, hp->v_dim, v_dim);
    }
    slide->n_rot = k_dim;
    if (!hparams_int(hp, g, "rope.dimension_count_swa", false, 2, k_dim, &slide->n_rot, err) ||
        !hparams_float(hp, g, "rope.freq_base_swa", false, &base, err)) {
        return false;
    }
    if (!(base > 0) || slide->n_rot % 2 != 0) {
        return slm_fail(err, SLM_E_FORMAT, "gemma4.rope.freq_base_swa is %g, must be positive, and "
                        "dimension_count_swa %d, must be even", (double)base, slide->n_rot);
    }
    hparams_sliding_rope(hp, base);
    for (int il = 0; il < hp->n_layer; il++) {
        if (hp->sliding[il]) {
            hp->layer[il].k_dim = hp->layer[il].v_dim = k_dim;
        }
    }
    return true;
}

static bool gemma4_hparams(struct hparams *hp, const struct gguf *g, slm_error *err)
{
    const struct gguf_kv *pattern = gguf_find(g, "gemma4.attention.sliding_window_pattern");
    int n_shared = 0;

    hp->final_softcap = 30;
    if (!hparams_rms_eps(hp, g, err)) {
        return false;
    }
    if (!pattern || pattern->type != GGUF_ARR) {
        return slm_fail(err, SLM_E_FORMAT, "gemma4.attention.sliding_window_pattern must be an "
                        "array with an entry for each layer");
    }
    if (!hparams_int(hp, g, "attention.sliding_window", true, 1, INT32_MAX, &hp->window, err) ||
        !hparams_sliding(hp, g, 1, err) || !read_heads(hp, g, err) ||
        !hparams_int(hp, g, "attention.shared_kv_layers", false, 0, hp->n_layer - 1, &n_shared,
                     err) ||
        !hparams_share_kv(hp, n_shared, err) ||
        !hparams_experts(hp, g, err) ||
        !hparams_int(hp, g, "embedding_length_per_layer_input", true, 0, 65536,
                     &hp->n_embd_layer, err) ||
        !hparams_float(hp, g, "final_logit_softcapping", false, &hp->final_softcap, err)) {
        return false;
    }
    if (hp->final_softcap < 0) {
        return slm_fail(err, SLM_E_FORMAT, "gemma4.final_logit_softcapping is %g, must not be "
                        "negative", (double)hp->final_softcap);
    }
    hp->attn_scale = 1;
    hp->embd_scale = sqrtf((float)hp->n_embd);
    hp->scratch_floats = hp->n_embd_layer * hp->n_layer + (hp->n_expert ? 2 * hp->n_embd : 0);
    return true;
}

/* ---- tensors ------------------------------------------------------------------------------ */

static const struct tensor_row gemma4_top_rows[] = {
    ROWS_LAYER_IN,
    ROW_TOP(rope_freqs, "rope_freqs.weight", DIM_PAIRS, DIM_NONE, NEED),
};

#define ROW4(field, name, in, out, need)                                                 \
    { name, offsetof(struct gemma4_layer, field), in, out, need, false, DIM_NONE }
static const struct tensor_row gemma4_rows[] = {
    ROWS_ATTN_NORM, ROWS_ATTN_SHARED(MAYBE), ROWS_FFN_NORM,
    ROW(mlp.gate, "blk.%d.ffn_gate.weight", DIM_EMBD, DIM_FF, NEED),
    ROW(mlp.up, "blk.%d.ffn_up.weight", DIM_EMBD, DIM_FF, NEED),
    ROW(mlp.down, "blk.%d.ffn_down.weight", DIM_FF, DIM_EMBD, NEED),
    ROWS_POST_NORMS,
    ROWS_LAYER_IN_OF(struct gemma4_layer, in),
    ROW4(out_scale, "blk.%d.layer_output_scale.weight", DIM_IS(1), DIM_NONE, MAYBE),
    ROW(moe.router, "blk.%d.ffn_gate_inp.weight", DIM_EMBD, DIM_EXPERTS, MAYBE),
    ROW_STACK(moe.gate_up, "blk.%d.ffn_gate_up_exps.weight", DIM_EMBD, DIM_FF2_EXP, MAYBE),
    ROW_STACK(moe.gate, "blk.%d.ffn_gate_exps.weight", DIM_EMBD, DIM_FF_EXP, MAYBE),
    ROW_STACK(moe.up, "blk.%d.ffn_up_exps.weight", DIM_EMBD, DIM_FF_EXP, MAYBE),
    ROW_STACK(moe.down, "blk.%d.ffn_down_exps.weight", DIM_FF_EXP, DIM_EMBD, MAYBE),
    ROW4(router_norm.w, "blk.%d.ffn_gate_inp.scale", DIM_EMBD, DIM_NONE, MAYBE),
    ROW4(expert_norm.w, "blk.%d.pre_ffw_norm_2.weight", DIM_EMBD, DIM_NONE, MAYBE),
    ROW4(post_mlp_norm.w, "blk.%d.post_ffw_norm_1.weight", DIM_EMBD, DIM_NONE, MAYBE),
    ROW4(post_expert_norm.w, "blk.%d.post_ffw_norm_2.weight", DIM_EMBD, DIM_NONE, MAYBE),
};

static bool gemma4_finish(void *layer, const struct hparams *hp, int il, slm_error *err)
{
    struct gemma4_layer *l = layer;
    const struct moe *m = &l->base.moe;

    if (!layer_finish_shared(layer, hp, il, err)) {
        return false;
    }
    if (m->router.rows &&
        !(m->down && (m->gate_up || (m->gate && m->up)) && l->router_norm.w && l->expert_norm.w &&
          l->post_mlp_norm.w && l->post_expert_norm.w)) {
        return slm_fail(err, SLM_E_FORMAT, "layer %d has blk.%d.ffn_gate_inp.weight but not all of "
                        "ffn_gate_inp.scale, ffn_gate_up_exps, ffn_down_exps, pre_ffw_norm_2, "
                        "post_ffw_norm_1 and post_ffw_norm_2", il, il);
    }
    return true;
}

static void gemma4_each_weight(void *layer, const struct hparams *hp,
                               void (*fn)(void *arg, struct weight *w), void *arg)
{
    struct gemma4_layer *l = layer;

    layer_each_weight(layer, hp, fn, arg);
    if (l->in.gate.rows) {
        fn(arg, &l->in.gate);
        fn(arg, &l->in.proj);
    }
}

/* ---- the layer ----------------------------------------------------------------------------- */

/* Experts beside the MLP: h = norm(MLP(norm x)) + norm(experts(norm x)). */
static void mlp_and_experts(struct step *st, const struct gemma4_layer *l, const float *x, float *h)
{
    const int n_embd = st->hp->n_embd;
    const size_t mark = scratch_mark(st);
    float *r = scratch_rows(st, n_embd), *in = scratch_rows(st, n_embd);
    float *e = scratch_rows(st, n_embd);

    op_norm(st, h, h, l->post_mlp_norm);
    op_norm(st, r, x, l->router_norm);
    op_scale(st, r, 1.0f / sqrtf((float)n_embd), n_embd);
    op_norm(st, in, x, l->expert_norm);
    moe_block(st, &l->base.moe, GATE_GELU, r, in, e);
    op_norm(st, e, e, l->post_expert_norm);
    op_add(st, h, e);
    scratch_release(st, mark);
}

static void gemma4_layer(struct step *st, const void *layer, int il, float *x)
{
    const struct gemma4_layer *g = layer;
    const struct layer *l = &g->base;
    float *h = scratch_rows(st, st->hp->n_embd);

    op_norm(st, h, x, l->attn_norm);
    attn_block(st, &l->attn, il, kv_of(st, il), h, h);
    op_norm(st, h, h, l->post_attn_norm);
    op_add(st, x, h);

    op_norm(st, h, x, l->ffn_norm);
    mlp_gated(st, &l->mlp, GATE_GELU, h, h);
    if (l->moe.router.rows) {
        mlp_and_experts(st, g, x, h);
    }
    op_norm(st, h, h, l->post_ffn_norm);
    op_add(st, x, h);

    if (g->in.gate.rows) {
        layer_in_block(st, &g->in, il, x, h);
        op_add(st, x, h);
    }
    if (g->out_scale) {
        op_scale(st, x, *g->out_scale, st->hp->n_embd);
    }
}

const struct arch arch_gemma4 = {
    .name        = "gemma4",
    .hparams     = gemma4_hparams,
    .top_rows    = gemma4_top_rows,
    .n_top_rows  = sizeof gemma4_top_rows / sizeof *gemma4_top_rows,
    .rows        = gemma4_rows,
    .n_rows      = sizeof gemma4_rows / sizeof *gemma4_rows,
    .layer_size  = sizeof(struct gemma4_layer),
    .finish      = gemma4_finish,
    .each_weight = gemma4_each_weight,
    .begin       = layer_in_begin,
    .layer       = gemma4_layer,
};

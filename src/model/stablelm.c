/* stablelm.c - StableLM: layer norms, partial rotation, and in the 12B model norms per query
 * head and blocks side by side. */
#include "model/forward.h"

static const struct tensor_row stablelm_rows[] = {
    ROWS_ATTN_NORM,
    ROW(attn_norm.b, "blk.%d.attn_norm.bias", DIM_EMBD, DIM_NONE, MAYBE),
    ROWS_ATTN,
    ROW_FLOATS(attn.q_norm, "blk.%d.attn_q_norm.weight", DIM_HEAD, DIM_HEADS, MAYBE),
    ROW_FLOATS(attn.k_norm, "blk.%d.attn_k_norm.weight", DIM_HEAD, DIM_HEADS_KV, MAYBE),
    ROW(ffn_norm.w, "blk.%d.ffn_norm.weight", DIM_EMBD, DIM_NONE, MAYBE),
    ROW(ffn_norm.b, "blk.%d.ffn_norm.bias", DIM_EMBD, DIM_NONE, MAYBE),
    ROWS_MLP,
};

static bool stablelm_finish(void *layer, const struct hparams *hp, int il, slm_error *err)
{
    ((struct layer *)layer)->attn.qk_norm = QK_HEAD_LN;
    return layer_finish(layer, hp, il, err);
}

static void stablelm_layer(struct step *st, const void *layer, int il, float *x)
{
    const struct layer *l = layer;
    float *h = scratch_rows(st, st->hp->n_embd), *a = scratch_rows(st, st->hp->n_embd);

    op_norm(st, h, x, l->attn_norm);
    attn_block(st, &l->attn, il, kv_of(st, il), h, a);
    op_add(st, x, a);
    if (l->ffn_norm.w) {
        op_norm(st, h, x, l->ffn_norm);
    }
    mlp_gated(st, &l->mlp, GATE_SILU, h, h);
    op_add(st, x, h);
}

const struct arch arch_stablelm = {
    .name        = "stablelm",
    .hparams     = hparams_layer_norm,
    .rows        = stablelm_rows,
    .n_rows      = sizeof stablelm_rows / sizeof *stablelm_rows,
    .layer_size  = sizeof(struct layer),
    .finish      = stablelm_finish,
    .each_weight = layer_each_weight,
    .layer       = stablelm_layer,
};

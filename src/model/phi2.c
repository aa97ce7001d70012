/* phi2.c - Phi-1.5 and Phi-2: layer norms, attention and MLP side by side, biases everywhere. */
#include "model/forward.h"

static const struct tensor_row phi2_rows[] = {
    ROWS_ATTN_NORM,
    ROW(attn_norm.b, "blk.%d.attn_norm.bias", DIM_EMBD, DIM_NONE, NEED),
    ROWS_ATTN,
    ROW(mlp.up, "blk.%d.ffn_up.weight", DIM_EMBD, DIM_FF, NEED),
    ROW(mlp.up_bias, "blk.%d.ffn_up.bias", DIM_FF, DIM_NONE, NEED),
    ROW(mlp.down, "blk.%d.ffn_down.weight", DIM_FF, DIM_EMBD, NEED),
    ROW(mlp.down_bias, "blk.%d.ffn_down.bias", DIM_EMBD, DIM_NONE, NEED),
};

static void phi2_layer(struct step *st, const void *layer, int il, float *x)
{
    const struct layer *l = layer;
    float *h = scratch_rows(st, st->hp->n_embd), *a = scratch_rows(st, st->hp->n_embd);

    op_norm(st, h, x, l->attn_norm);
    attn_block(st, &l->attn, il, kv_of(st, il), h, a);
    op_add(st, x, a);
    mlp_plain(st, &l->mlp, UNARY_GELU, h, h);
    op_add(st, x, h);
}

const struct arch arch_phi2 = {
    .name        = "phi2",
    .hparams     = hparams_layer_norm,
    .rows        = phi2_rows,
    .n_rows      = sizeof phi2_rows / sizeof *phi2_rows,
    .layer_size  = sizeof(struct layer),
    .finish      = layer_finish,
    .each_weight = layer_each_weight,
    .layer       = phi2_layer,
};

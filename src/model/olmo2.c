/* olmo2.c - OLMo 2 and 3: norms after the blocks only, and over whole queries and keys. */
#include "model/forward.h"

static bool olmo2_hparams(struct hparams *hp, const struct gguf *g, slm_error *err)
{
    if (!hparams_rms_eps(hp, g, err) || !hparams_sliding(hp, g, 4, err)) {
        return false;
    }
    /* Sliding layers are not scaled. */
    hparams_sliding_rope(hp, (float)hp->rope[ROPE_FULL].base);
    return true;
}

static const struct tensor_row olmo2_rows[] = {
    ROWS_ATTN, ROWS_MLP, ROWS_POST_NORMS,
    ROW(attn.q_norm, "blk.%d.attn_q_norm.weight", DIM_Q, DIM_NONE, NEED),
    ROW(attn.k_norm, "blk.%d.attn_k_norm.weight", DIM_K, DIM_NONE, NEED),
};

static bool olmo2_finish(void *layer, const struct hparams *hp, int il, slm_error *err)
{
    ((struct layer *)layer)->attn.qk_norm = QK_WHOLE;
    return layer_finish(layer, hp, il, err);
}

static void olmo2_layer(struct step *st, const void *layer, int il, float *x)
{
    const struct layer *l = layer;
    float *h = scratch_rows(st, st->hp->n_embd);

    attn_block(st, &l->attn, il, kv_of(st, il), x, h);
    op_norm(st, h, h, l->post_attn_norm);
    op_add(st, x, h);

    mlp_gated(st, &l->mlp, GATE_SILU, x, h);
    op_norm(st, h, h, l->post_ffn_norm);
    op_add(st, x, h);
}

const struct arch arch_olmo2 = {
    .name        = "olmo2",
    .hparams     = olmo2_hparams,
    .rows        = olmo2_rows,
    .n_rows      = sizeof olmo2_rows / sizeof *olmo2_rows,
    .layer_size  = sizeof(struct layer),
    .finish      = olmo2_finish,
    .each_weight = layer_each_weight,
    .layer       = olmo2_layer,
};

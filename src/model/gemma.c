/* gemma.c - Gemma 1: llama with scaled embeddings and GELU. */
#include "model/forward.h"

#include <math.h>

static bool gemma_hparams(struct hparams *hp, const struct gguf *g, slm_error *err)
{
    hp->embd_scale = sqrtf((float)hp->n_embd);
    return hparams_rms_eps(hp, g, err);
}

static const struct tensor_row gemma_rows[] = {
    ROWS_ATTN_NORM, ROWS_ATTN, ROWS_FFN_NORM, ROWS_MLP,
};

static void gemma_layer(struct step *st, const void *layer, int il, float *x)
{
    const struct layer *l = layer;
    float *h = scratch_rows(st, st->hp->n_embd);

    op_norm(st, h, x, l->attn_norm);
    attn_block(st, &l->attn, il, kv_of(st, il), h, h);
    op_add(st, x, h);

    op_norm(st, h, x, l->ffn_norm);
    mlp_gated(st, &l->mlp, GATE_GELU, h, h);
    op_add(st, x, h);
}

const struct arch arch_gemma = {
    .name        = "gemma",
    .hparams     = gemma_hparams,
    .rows        = gemma_rows,
    .n_rows      = sizeof gemma_rows / sizeof *gemma_rows,
    .layer_size  = sizeof(struct layer),
    .finish      = layer_finish,
    .each_weight = layer_each_weight,
    .layer       = gemma_layer,
};

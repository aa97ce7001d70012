/* granite.c - Granite 3: llama with scales on embeddings, attention, residuals and logits. */
#include "model/forward.h"

static bool granite_hparams(struct hparams *hp, const struct gguf *g, slm_error *err)
{
    float embd = 0, attn = 0, residual = 0;
    bool rope = true;

    if (!hparams_rms_eps(hp, g, err) ||
        !hparams_float(hp, g, "embedding_scale", false, &embd, err) ||
        !hparams_float(hp, g, "attention.scale", false, &attn, err) ||
        !hparams_float(hp, g, "residual_scale", false, &residual, err) ||
        !hparams_float(hp, g, "logit_scale", true, &hp->logit_scale, err) ||
        !gguf_get_bool(g, "granite.rope.scaling.finetuned", &rope, err)) {
        return false;
    }
    if (hp->logit_scale == 0) {
        return slm_fail(err, SLM_E_FORMAT, "granite.logit_scale must not be zero");
    }
    /* Zero means that the usual value stands. */
    hp->embd_scale = embd != 0 ? embd : hp->embd_scale;
    hp->attn_scale = attn != 0 ? attn : hp->attn_scale;
    hp->residual_scale = residual != 0 ? residual : hp->residual_scale;
    for (int il = 0; il < hp->n_layer; il++) {
        hp->rope_of[il] = rope ? ROPE_FULL : ROPE_NONE;
    }
    return true;
}

static const struct tensor_row granite_rows[] = {
    ROWS_ATTN_NORM, ROWS_ATTN, ROWS_FFN_NORM, ROWS_MLP,
};

const struct arch arch_granite = {
    .name        = "granite",
    .rope_pairs  = true,
    .hparams     = granite_hparams,
    .rows        = granite_rows,
    .n_rows      = sizeof granite_rows / sizeof *granite_rows,
    .layer_size  = sizeof(struct layer),
    .finish      = layer_finish,
    .each_weight = layer_each_weight,
    .layer       = layer_prenorm,
};

/* llama.c - Llama 2 and 3, Mistral-7B, Mixtral, TinyLlama, SmolLM2 and many others. */
#include "model/forward.h"

static bool llama_hparams(struct hparams *hp, const struct gguf *g, slm_error *err)
{
    if (!hparams_rms_eps(hp, g, err) || !hparams_experts(hp, g, err)) {
        return false;
    }
    hp->n_ff_expert = hp->n_ff;
    /* A sliding window in the file is not applied: these models are run with full attention. */
    if (hp->rope[ROPE_FULL].n_rot != hp->k_dim) {
        return slm_fail(err, SLM_E_FORMAT, "llama.rope.dimension_count is %d, must be the head "
                        "size %d", hp->rope[ROPE_FULL].n_rot, hp->k_dim);
    }
    return true;
}

static const struct tensor_row llama_rows[] = {
    ROWS_ATTN_NORM, ROWS_ATTN, ROWS_FFN_NORM, ROWS_MLP, ROWS_MOE,
};

const struct arch arch_llama = {
    .name        = "llama",
    .rope_pairs  = true,
    .hparams     = llama_hparams,
    .rows        = llama_rows,
    .n_rows      = sizeof llama_rows / sizeof *llama_rows,
    .layer_size  = sizeof(struct layer),
    .finish      = layer_finish,
    .each_weight = layer_each_weight,
    .layer       = layer_prenorm,
};

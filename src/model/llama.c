/* llama.c - Llama 2 and 3, Mistral-7B, TinyLlama, SmolLM2 and many others. */
#include "model/forward.h"

static bool llama_hparams(struct hparams *hp, const struct gguf *g, slm_error *err)
{
    int n_expert = 0;

    if (!hparams_rms_eps(hp, g, err) ||
        !hparams_int(hp, g, "expert_count", false, 0, 65536, &n_expert, err)) {
        return false;
    }
    if (n_expert > 0) {
        return slm_fail(err, SLM_E_UNSUPPORTED,
                        "the model has %d experts; mixtures of experts are not supported",
                        n_expert);
    }
    /* A sliding window in the file is not applied: these models are run with full attention. */
    if (hp->rope[ROPE_FULL].n_rot != hp->k_dim) {
        return slm_fail(err, SLM_E_FORMAT, "llama.rope.dimension_count is %d, must be the head "
                        "size %d", hp->rope[ROPE_FULL].n_rot, hp->k_dim);
    }
    return true;
}

static const struct tensor_row llama_rows[] = { ROWS_ATTN_NORM, ROWS_ATTN, ROWS_FFN_NORM, ROWS_MLP };

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

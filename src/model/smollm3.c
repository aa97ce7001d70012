/* smollm3.c - SmolLM3: llama in which every fourth layer does without rotation. */
#include "model/forward.h"

static bool smollm3_hparams(struct hparams *hp, const struct gguf *g, slm_error *err)
{
    for (int il = 0; il < hp->n_layer; il++) {
        hp->rope_of[il] = (il + 1) % 4 == 0 ? ROPE_NONE : ROPE_FULL;
    }
    return hparams_rms_eps(hp, g, err);
}

static const struct tensor_row smollm3_rows[] = {
    ROWS_ATTN_NORM, ROWS_ATTN, ROWS_FFN_NORM, ROWS_MLP,
};

const struct arch arch_smollm3 = {
    .name        = "smollm3",
    .rope_pairs  = true,
    .hparams     = smollm3_hparams,
    .rows        = smollm3_rows,
    .n_rows      = sizeof smollm3_rows / sizeof *smollm3_rows,
    .layer_size  = sizeof(struct layer),
    .finish      = layer_finish,
    .each_weight = layer_each_weight,
    .layer       = layer_prenorm,
};

/* mistral3.c - Ministral 3: llama with YaRN and queries that grow with the position. */
#include "model/forward.h"

static bool mistral3_hparams(struct hparams *hp, const struct gguf *g, slm_error *err)
{
    hp->temp_context = hp->rope[ROPE_FULL].orig_context;
    return hparams_rms_eps(hp, g, err) &&
           hparams_float(hp, g, "attention.temperature_scale", false, &hp->temp_scale, err);
}

static const struct tensor_row mistral3_rows[] = {
    ROWS_ATTN_NORM, ROWS_ATTN, ROWS_FFN_NORM, ROWS_MLP,
};

const struct arch arch_mistral3 = {
    .name        = "mistral3",
    .rope_pairs  = true,
    .hparams     = mistral3_hparams,
    .rows        = mistral3_rows,
    .n_rows      = sizeof mistral3_rows / sizeof *mistral3_rows,
    .layer_size  = sizeof(struct layer),
    .finish      = layer_finish,
    .each_weight = layer_each_weight,
    .layer       = layer_prenorm,
};

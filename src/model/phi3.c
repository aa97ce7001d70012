/* phi3.c - Phi-3, Phi-3.5 and Phi-4-mini: fused projections, partial rotation with factors for
 * long contexts, a sliding window where the file has one. */
#include "model/forward.h"

static bool phi3_hparams(struct hparams *hp, const struct gguf *g, slm_error *err)
{
    /* All layers slide; the rotation is the same everywhere. */
    return hparams_rms_eps(hp, g, err) && hparams_window_all(hp, g, err);
}

static const struct tensor_row phi3_rows[] = {
    ROWS_ATTN_NORM, ROWS_ATTN, ROWS_FFN_NORM,
    ROW(mlp.gate_up, "blk.%d.ffn_up.weight", DIM_EMBD, DIM_FF2, NEED),
    ROW(mlp.down, "blk.%d.ffn_down.weight", DIM_FF, DIM_EMBD, NEED),
};

const struct arch arch_phi3 = {
    .name        = "phi3",
    .hparams     = phi3_hparams,
    .rows        = phi3_rows,
    .n_rows      = sizeof phi3_rows / sizeof *phi3_rows,
    .layer_size  = sizeof(struct layer),
    .finish      = layer_finish,
    .each_weight = layer_each_weight,
    .layer       = layer_prenorm,
};

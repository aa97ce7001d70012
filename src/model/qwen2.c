/* qwen2.c - Qwen2 and Qwen2.5: llama with biases on q, k and v and rotated halves. */
#include "model/forward.h"

static const struct tensor_row qwen2_rows[] = { ROWS_ATTN_NORM, ROWS_ATTN, ROWS_FFN_NORM, ROWS_MLP };

const struct arch arch_qwen2 = {
    .name        = "qwen2",
    .hparams     = hparams_rms_eps,
    .rows        = qwen2_rows,
    .n_rows      = sizeof qwen2_rows / sizeof *qwen2_rows,
    .layer_size  = sizeof(struct layer),
    .finish      = layer_finish,
    .each_weight = layer_each_weight,
    .layer       = layer_prenorm,
};

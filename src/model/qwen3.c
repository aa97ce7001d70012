/* qwen3.c - Qwen3: no biases, every query and key head is normed before its rotation. */
#include "model/forward.h"

static const struct tensor_row qwen3_rows[] = {
    ROWS_ATTN_NORM, ROWS_ATTN, ROWS_QK_NORM, ROWS_FFN_NORM, ROWS_MLP,
};

const struct arch arch_qwen3 = {
    .name        = "qwen3",
    .hparams     = hparams_rms_eps,
    .rows        = qwen3_rows,
    .n_rows      = sizeof qwen3_rows / sizeof *qwen3_rows,
    .layer_size  = sizeof(struct layer),
    .finish      = layer_finish,
    .each_weight = layer_each_weight,
    .layer       = layer_prenorm,
};

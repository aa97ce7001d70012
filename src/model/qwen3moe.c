/* qwen3moe.c - Qwen3 with experts: the attention of Qwen3, a mixture in every layer. */
#include "model/forward.h"

static bool qwen3moe_hparams(struct hparams *hp, const struct gguf *g, slm_error *err)
{
    if (!hparams_rms_eps(hp, g, err) || !hparams_experts(hp, g, err)) {
        return false;
    }
    if (hp->n_expert == 0) {
        return slm_fail(err, SLM_E_FORMAT, "qwen3moe.expert_count is missing or 0");
    }
    /* Without a size of their own the experts share the MLP's. */
    if (!gguf_find(g, "qwen3moe.expert_feed_forward_length")) {
        hp->n_ff_expert = hp->n_ff / hp->n_expert_used;
    }
    return true;
}

static const struct tensor_row qwen3moe_rows[] = {
    ROWS_ATTN_NORM, ROWS_ATTN, ROWS_QK_NORM, ROWS_FFN_NORM, ROWS_MOE,
};

const struct arch arch_qwen3moe = {
    .name        = "qwen3moe",
    .hparams     = qwen3moe_hparams,
    .rows        = qwen3moe_rows,
    .n_rows      = sizeof qwen3moe_rows / sizeof *qwen3moe_rows,
    .layer_size  = sizeof(struct layer),
    .finish      = layer_finish,
    .each_weight = layer_each_weight,
    .layer       = layer_prenorm,
};

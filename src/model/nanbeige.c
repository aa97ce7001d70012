/* nanbeige.c - Nanbeige 4.2: llama whose layers run several times in a row. */
#include "model/forward.h"

static bool nanbeige_hparams(struct hparams *hp, const struct gguf *g, slm_error *err)
{
    const int n = hp->n_layer;
    bool skip_norm = false;

    if (!hparams_rms_eps(hp, g, err) ||
        !hparams_int(hp, g, "num_loops", false, 1, LAYER_MAX / n, &hp->n_loop, err) ||
        !gguf_get_bool(g, "nanbeige.skip_loop_final_norm", &skip_norm, err)) {
        return false;
    }
    hp->loop_norm = !skip_norm;
    hp->n_kv_layer = hp->n_loop * n;
    for (int i = 0; i < hp->n_kv_layer; i++) {
        hp->kv_owner[i] = (uint16_t)(i % n);
    }
    return true;
}

static const struct tensor_row nanbeige_rows[] = {
    ROWS_ATTN_NORM, ROWS_ATTN, ROWS_FFN_NORM, ROWS_MLP,
};

const struct arch arch_nanbeige = {
    .name        = "nanbeige",
    .rope_pairs  = true,
    .hparams     = nanbeige_hparams,
    .rows        = nanbeige_rows,
    .n_rows      = sizeof nanbeige_rows / sizeof *nanbeige_rows,
    .layer_size  = sizeof(struct layer),
    .finish      = layer_finish,
    .each_weight = layer_each_weight,
    .layer       = layer_prenorm,
};

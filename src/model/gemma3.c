/* gemma3.c - Gemma 3 text models: norms around both blocks, sliding windows with their own
 * rotation, scaled embeddings, GELU. */
#include "model/forward.h"

#include <math.h>

/* The 27B model, known by its depth, scales queries by the width instead of the head size. */
enum { LAYERS_27B = 62 };

static bool gemma3_hparams(struct hparams *hp, const struct gguf *g, slm_error *err)
{
    float base = 10000;

    if (!hparams_rms_eps(hp, g, err) || !hparams_sliding(hp, g, 6, err) ||
        !hparams_float(hp, g, "rope.freq_base_swa", false, &base, err) ||
        !hparams_float(hp, g, "final_logit_softcapping", false, &hp->final_softcap, err)) {
        return false;
    }
    if (!(base > 0) || hp->final_softcap < 0) {
        return slm_fail(err, SLM_E_FORMAT,
                        "gemma3.rope.freq_base_swa is %g and final_logit_softcapping %g; the first "
                        "must be positive, the second not negative", (double)base,
                        (double)hp->final_softcap);
    }
    /* Sliding layers are not scaled, whatever the file says for the full ones. */
    hparams_sliding_rope(hp, base);
    hp->embd_scale = sqrtf((float)hp->n_embd);
    if (hp->n_layer == LAYERS_27B) {
        hp->attn_scale = 1.0f / sqrtf((float)hp->n_embd / (float)hp->n_head);
    }
    return true;
}

static const struct tensor_row gemma3_rows[] = {
    ROWS_ATTN_NORM, ROWS_ATTN, ROWS_QK_NORM, ROWS_FFN_NORM, ROWS_MLP, ROWS_POST_NORMS,
};

const struct arch arch_gemma3 = {
    .name        = "gemma3",
    .hparams     = gemma3_hparams,
    .rows        = gemma3_rows,
    .n_rows      = sizeof gemma3_rows / sizeof *gemma3_rows,
    .layer_size  = sizeof(struct layer),
    .finish      = layer_finish,
    .each_weight = layer_each_weight,
    .layer       = layer_sandwich,
};

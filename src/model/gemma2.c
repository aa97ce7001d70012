/* gemma2.c - Gemma 2: norms around both blocks, soft caps, every other layer slides. */
#include "model/forward.h"

#include <math.h>

/* The 27B model, known by its depth, scales queries by the width instead of the head size. */
enum { LAYERS_27B = 46 };

static bool gemma2_hparams(struct hparams *hp, const struct gguf *g, slm_error *err)
{
    float base = (float)hp->rope[ROPE_FULL].base;

    hp->window = 4096;
    hp->attn_softcap = 50;
    hp->final_softcap = 30;
    if (!hparams_rms_eps(hp, g, err) || !hparams_sliding(hp, g, 2, err) ||
        !hparams_float(hp, g, "rope.freq_base_swa", false, &base, err) ||
        !hparams_float(hp, g, "attn_logit_softcapping", false, &hp->attn_softcap, err) ||
        !hparams_float(hp, g, "final_logit_softcapping", false, &hp->final_softcap, err)) {
        return false;
    }
    if (!(base > 0) || hp->attn_softcap < 0 || hp->final_softcap < 0) {
        return slm_fail(err, SLM_E_FORMAT, "gemma2.rope.freq_base_swa must be positive, the soft "
                        "caps must not be negative");
    }
    hp->rope[ROPE_SLIDING].base = base;
    for (int il = 0; il < hp->n_layer; il++) {
        hp->rope_of[il] = hp->sliding[il] ? ROPE_SLIDING : ROPE_FULL;
    }
    hp->embd_scale = sqrtf((float)hp->n_embd);
    if (hp->n_layer == LAYERS_27B) {
        hp->attn_scale = 1.0f / sqrtf((float)hp->n_embd / (float)hp->n_head);
    }
    return true;
}

static const struct tensor_row gemma2_rows[] = {
    ROWS_ATTN_NORM, ROWS_ATTN, ROWS_FFN_NORM, ROWS_MLP, ROWS_POST_NORMS,
};

const struct arch arch_gemma2 = {
    .name        = "gemma2",
    .hparams     = gemma2_hparams,
    .rows        = gemma2_rows,
    .n_rows      = sizeof gemma2_rows / sizeof *gemma2_rows,
    .layer_size  = sizeof(struct layer),
    .finish      = layer_finish,
    .each_weight = layer_each_weight,
    .layer       = layer_sandwich,
};

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
    hp->rope[ROPE_SLIDING].scaling = ROPE_SCALE_NONE;
    hp->rope[ROPE_SLIDING].factor = 1;
    hp->rope[ROPE_SLIDING].attn_factor = 1;
    hp->rope[ROPE_SLIDING].base = base;
    hp->embd_scale = sqrtf((float)hp->n_embd);
    if (hp->n_layer == LAYERS_27B) {
        hp->attn_scale = 1.0f / sqrtf((float)hp->n_embd / (float)hp->n_head);
    }
    return true;
}

static const struct tensor_row gemma3_rows[] = {
    ROWS_ATTN, ROWS_QK_NORM, ROWS_MLP,
    ROW(post_attn_norm, "blk.%d.post_attention_norm.weight", DIM_EMBD, DIM_NONE, NEED),
    ROW(post_ffn_norm, "blk.%d.post_ffw_norm.weight", DIM_EMBD, DIM_NONE, NEED),
};

static void gemma3_layer(struct step *st, const void *layer, int il, float *x)
{
    const struct layer *l = layer;
    float *h = scratch_rows(st, st->hp->n_embd);

    op_rmsnorm(st, h, x, l->attn_norm);
    attn_block(st, &l->attn, il, il, h, h);
    op_rmsnorm(st, h, h, l->post_attn_norm);
    op_add(st, x, h);

    op_rmsnorm(st, h, x, l->ffn_norm);
    mlp_gated(st, &l->mlp, GATE_GELU, h, h);
    op_rmsnorm(st, h, h, l->post_ffn_norm);
    op_add(st, x, h);
}

const struct arch arch_gemma3 = {
    .name        = "gemma3",
    .hparams     = gemma3_hparams,
    .rows        = gemma3_rows,
    .n_rows      = sizeof gemma3_rows / sizeof *gemma3_rows,
    .layer_size  = sizeof(struct layer),
    .finish      = layer_finish,
    .each_weight = layer_each_weight,
    .layer       = gemma3_layer,
};

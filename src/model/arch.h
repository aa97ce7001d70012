/* arch.h - what an architecture is: metadata, tensors, and the forward pass of a layer.
 *
 * One file per architecture defines a const struct arch; arch.c lists them. */
#ifndef ARCH_H
#define ARCH_H

#include "model/weights.h"

/* The table of architectures: NAME.c defines arch_NAME, and NAME is general.architecture. */
#define ARCH_TABLE(X)                                                                    \
    X(llama) X(mistral3) X(smollm3) X(granite)                                           \
    X(qwen2) X(qwen3)                                                                    \
    X(gemma) X(gemma2) X(gemma3)                                                         \
    X(phi2) X(phi3) X(stablelm) X(olmo2)                                                 \
    X(qwen3moe) X(gemma4) X(nanbeige) X(gemma3n) X(qwen35)

struct step;

/* Weight and, in some architectures, bias of a norm; both NULL where there is none. */
struct norm {
    const float *w, *b;
};

/* Tensors outside the layers; the same names everywhere. */
struct top {
    struct weight token_embd;
    struct weight output;            /* token_embd where the file has none (tied) */
    struct norm output_norm;
    const float *output_bias;
    const float *rope_freqs;         /* divisors of the rotation frequencies, or NULL */
    const float *rope_long, *rope_short; /* the same for long and short contexts */
    struct weight layer_embd;        /* rows of n_embd_layer values for each layer */
    struct weight layer_proj;        /* the same made from the embedding */
    const float *layer_proj_norm;
    struct weight *stream_in, *stream_out; /* make further residual streams, and end them */
};

struct arch {
    const char *name;                /* general.architecture */
    bool rope_pairs;                 /* rotates (2j, 2j+1); else (j, j + n_rot/2) */

    /* Reads and checks the architecture's own metadata after hparams_read. */
    bool (*hparams)(struct hparams *hp, const struct gguf *g, slm_error *err);

    const struct tensor_row *top_rows; /* besides arch_top_rows, bound into struct top; or NULL */
    size_t n_top_rows;
    const struct tensor_row *rows;   /* bound into each layer's struct */
    size_t n_rows, layer_size;

    /* Completes a bound layer (fused projections become views).  May be NULL. */
    bool (*finish)(void *layer, const struct hparams *hp, int il, slm_error *err);

    /* Calls fn for every matrix of a layer, for packing. */
    void (*each_weight)(void *layer, const struct hparams *hp,
                        void (*fn)(void *arg, struct weight *w), void *arg);

    /* Runs before the layers, on the embeddings.  Scratch taken here lasts for the step.  May be
     * NULL. */
    void (*begin)(struct step *st, float *x);

    /* Runs after the layers, before the output norm.  May be NULL. */
    void (*end)(struct step *st, float *x);

    /* One layer over all tokens of the step: x [n_tok][n_embd], in place. */
    void (*layer)(struct step *st, const void *layer, int il, float *x);
};

/* NULL where the name is not supported. */
const struct arch *arch_find(const char *name, size_t n);

/* Architecture i of the table, NULL past the end. */
const struct arch *arch_at(size_t i);

/* Top-level rows of the usual kind: embedding, norm, optional output and rope factors. */
extern const struct tensor_row arch_top_rows[];
extern const size_t arch_n_top_rows;

#define X(name) extern const struct arch arch_##name;
ARCH_TABLE(X)
#undef X

#endif

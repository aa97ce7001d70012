/* hparams.h - the sizes and constants of a model, read from metadata and checked. */
#ifndef HPARAMS_H
#define HPARAMS_H

#include "base/error.h"
#include "gguf/gguf.h"
#include "kern/rope.h"

enum { LAYER_MAX = 512, EXPERT_MAX = 1024 };

/* Rotations come in up to two kinds, usually of full-attention and of sliding-window layers;
 * some layers have none. */
enum { ROPE_FULL, ROPE_SLIDING, ROPE_KINDS, ROPE_NONE = ROPE_KINDS };

/* What may differ from layer to layer. */
struct layer_shape {
    int n_head, n_head_kv;   /* n_head is a multiple of n_head_kv */
    int k_dim, v_dim;        /* sizes of a key and of a value head */
    int n_ff;
    int kv;                  /* the KV layer that it reads, and fills if it has keys of its own */
    bool recurrent;          /* no attention but a state of fixed size */
    int state;               /* which of the states, in recurrent layers */
};

/* Recurrent layers: a gated delta net behind a short convolution. */
struct delta_shape {
    int taps;                /* of the convolution; 0: the model has no such layers */
    int head_dim;            /* of keys and values; a multiple of 16 */
    int n_k_head, n_v_head;  /* value head h goes with key head h mod n_k_head */
};

struct hparams {
    char arch[32];           /* prefix of the metadata keys */
    int n_layer, n_embd, n_vocab, context_max;
    int n_head, n_head_kv, k_dim, v_dim, n_ff; /* of layer 0, and of all unless layer[] differs */
    struct layer_shape layer[LAYER_MAX];
    int n_kv_layer;          /* KV layers, usually one per layer */
    int n_loop;              /* times that all layers run in a row, with KV layers for each */
    bool loop_norm;          /* the output norm stands between two loops */
    uint16_t kv_owner[LAYER_MAX]; /* a layer with the shape of each KV layer */
    int n_expert, n_expert_used; /* 0 experts: none */
    int n_ff_expert;
    struct delta_shape delta;
    int n_state;             /* recurrent layers */
    int n_draft;             /* 1: a block that drafts tokens lies behind, as layer[n_layer] */
    int n_embd_layer;        /* size of what every layer gets of each token; 0: nothing */
    int n_stream;            /* residual streams besides the main one */
    int scratch_floats;      /* per token of a step, that the architecture takes besides */
    float norm_eps;
    bool layer_norm;         /* norms subtract the mean and may have biases; else RMS norms */
    float attn_scale;        /* of q * k; 1 / sqrt(k_dim) unless the architecture differs */
    float attn_softcap;      /* 0: none */
    float final_softcap;     /* 0: none */
    float embd_scale;        /* of token embeddings */
    float residual_scale;    /* of what a block adds to the residual stream */
    float logit_scale;       /* divides the logits */
    float temp_scale;        /* queries grow by 1 + temp_scale * ln(1 + floor(pos / temp_context)) */
    int temp_context;
    int window;              /* sliding window in tokens, itself counted; 0: none */
    bool sliding[LAYER_MAX]; /* layers that see only the window */
    uint8_t rope_of[LAYER_MAX]; /* ROPE_FULL, ROPE_SLIDING or ROPE_NONE */
    struct rope_params rope[ROPE_KINDS];
};

/* Channels of the convolution: queries, keys and values of one token. */
static inline int delta_channels(const struct delta_shape *d)
{
    return d->head_dim * (2 * d->n_k_head + d->n_v_head);
}

/* Whether the layer has keys and values of its own, and does not use another layer's. */
static inline bool layer_owns_kv(const struct hparams *hp, int il)
{
    return !hp->layer[il].recurrent && hp->kv_owner[hp->layer[il].kv] == il;
}

/* Reads what every architecture has; n_vocab comes from the token list. */
bool hparams_read(struct hparams *hp, const struct gguf *g, const char *arch, slm_error *err);

/* Typed reads of "<arch>.<suffix>" with a range, for the architectures' own keys.  A
 * missing key leaves *out alone, or is an error where `required`. */
bool hparams_int(const struct hparams *hp, const struct gguf *g, const char *suffix, bool required,
                 int min, int max, int *out, slm_error *err);
bool hparams_float(const struct hparams *hp, const struct gguf *g, const char *suffix,
                   bool required, float *out, slm_error *err);

/* The same where layers may differ: an array with a value for each, or one number for all. */
bool hparams_ints(const struct hparams *hp, const struct gguf *g, const char *suffix, bool required,
                  int min, int max, int out[LAYER_MAX], slm_error *err);

/* Numbers and sizes of experts; none where the file does not have expert_count. */
bool hparams_experts(struct hparams *hp, const struct gguf *g, slm_error *err);

/* The attention.layer_norm_rms_epsilon that RMS-norm architectures must have. */
bool hparams_rms_eps(struct hparams *hp, const struct gguf *g, slm_error *err);

/* The attention.layer_norm_epsilon of architectures with layer norms. */
bool hparams_layer_norm(struct hparams *hp, const struct gguf *g, slm_error *err);

/* All layers slide over attention.sliding_window where the file has one. */
bool hparams_window_all(struct hparams *hp, const struct gguf *g, slm_error *err);

/* Fills sliding[] from attention.sliding_window_pattern (an array with one entry per
 * layer, or a number n) or, where the key is missing, from `pattern`: layer i slides
 * unless i % n == n - 1. */
bool hparams_sliding(struct hparams *hp, const struct gguf *g, int pattern, slm_error *err);

/* Gives sliding layers (sliding[] is known) a rotation with its own base and no scaling. */
void hparams_sliding_rope(struct hparams *hp, float base);

/* Lets the last n_shared layers read what the last layer of their kind before them has stored:
 * the last one before them where they do not slide, the one before it where they do. */
bool hparams_share_kv(struct hparams *hp, int n_shared, slm_error *err);

#endif

/* model.h - a model: hyper-parameters, weights, and one step of computation.
 *
 * A model is made from an open GGUF file, which must outlive it.  It is immutable
 * but for packing: weights may move from the mapping into panels at any time
 * without changing a bit of any result.  Weights that do not fit into memory are read
 * from the file as the steps need them. */
#ifndef MODEL_H
#define MODEL_H

#include "base/error.h"
#include "base/thread.h"
#include "gguf/gguf.h"
#include "kern/kern.h"

struct model;
struct profile;

enum model_pack { MODEL_PACK_AUTO, MODEL_PACK_OFF, MODEL_PACK_WAIT };

/* Reads and checks everything that a step needs.  The pool and k must outlive the
 * model.  NULL and *err on failure; all missing tensors are named at once. */
struct model *model_load(const struct gguf *g, struct pool *pool, const struct kern *k,
                         slm_error *err);
void model_free(struct model *m);

/* Where the weights are kept. */
struct model_place {
    enum model_pack pack;
    uint64_t room_bytes;  /* memory they may take.  Where it is too little, as much of them as fits
                           * is copied into memory and the rest read from the file in every step;
                           * packing then is what the copies are.  0: they stay mapped. */
    bool drafts;          /* whether drafts will be computed: where their weights belong */
    size_t piece_bytes;   /* read at once, and ... */
    int slots;            /* ... how many of these ahead; 0: chosen */
};

/* Decides and does it; once, before the first step.  False and *err on failure, when the model
 * can only be freed.  No result depends on it. */
bool model_place(struct model *m, const struct model_place *place, slm_error *err);

/* What it decides: bytes of weights. */
struct model_where {
    uint64_t pinned_bytes;   /* copied into memory for good */
    uint64_t streamed_bytes; /* read from the file for every step of one token; 0: all fit */
    uint64_t window_bytes;   /* memory for reading ahead */
};
bool model_where(const struct model *m, const struct model_place *place, struct model_where *out,
                 slm_error *err);

/* What was decided. */
struct model_where model_placed(const struct model *m);

/* Both, with all weights mapped. */
struct model *model_new(const struct gguf *g, struct pool *pool, const struct kern *k,
                        enum model_pack pack, slm_error *err);

/* Tells model files apart (gguf_identity). */
uint64_t model_identity(const struct model *m);

/* Whether steps with work for this context use rotations of their own for long contexts. */
bool model_long_rope(const struct model *m, int context_max);

/* Sizes that the layers above need. */
struct model_shape {
    const char *arch;
    int n_layer, n_embd, n_head, n_head_kv, n_vocab;
    int context_max;          /* trained context */
    int n_kv_layer;           /* layers with keys and values of their own */
    int n_state;              /* recurrent layers, which have a state instead */
    bool can_draft;           /* model_draft works */
    bool only_drafts;         /* and model_step does not: the file holds the draft block alone */
    uint64_t weight_bytes, n_params;
    uint64_t token_bytes;     /* read to generate a token: experts in use, no embeddings */
    uint64_t prompt_params;   /* multiplied with each token of a prompt: without the output's */
};
const struct model_shape *model_shape(const struct model *m);

/* Bytes of one KV page of KV_PAGE positions in KV layer il: what each head has of keys, then of
 * values (kv_head_bytes in kern.h).  Fresh pages must be zero. */
size_t model_kv_page_bytes(const struct model *m, int il, enum kv_type kv);

/* Positions that tokens see in KV layer il, their own counted; 0: all earlier ones. */
int model_kv_window(const struct model *m, int il);

/* Bytes of the state of one sequence in each recurrent layer.  A fresh state is zero. */
size_t model_state_bytes(const struct model *m);

/* ---- a step -------------------------------------------------------------------- */

/* Consecutive tokens of one sequence within a step. */
struct step_seq {
    int n_tok;
    int pos0;              /* position of the first of them */
    void *const *pages;    /* page j of KV layer il is pages[il * page_stride + j]; there must be
                            * pages for positions 0 .. pos0 + n_tok - 1, in layers with a window
                            * for those that the tokens see */
    int page_stride;
    float *const *states;  /* [n_state], 64-byte aligned: what the tokens before pos0 have left;
                            * advanced by the step, also where it fails */
    float *trial;          /* NULL; or model_trial_bytes(m, n_tok): the states are left as they are,
                            * and what advances them is noted here for model_commit */
};

/* All rows of a step, sequence after sequence. */
struct step_in {
    int n_tok;
    const int32_t *tok;    /* [n_tok] */
    int n_seq;
    const struct step_seq *seq;
    enum kv_type kv;
    const bool *want;      /* [n_tok]: logits wanted after this token */
    float *hidden;         /* [n_tok][n_embd], gets the normed rows that logits are made from; or
                            * NULL */
    bool *broken;          /* [n_want]: gets whether a logit after the token is NaN, which then does
                            * not fail the step; or NULL */
};

/* Scratch memory for steps of at most n_tok_max tokens with n_want_max logit rows
 * in a context of at most context_max positions.  A step allocates nothing.  Models with
 * rotation factors for long contexts use them where context_max exceeds the original one. */
struct work;
struct work *work_new(const struct model *m, int n_tok_max, int n_want_max, int context_max,
                      slm_error *err);
void work_free(struct work *w);
size_t work_bytes(const struct model *m, int n_tok_max, int n_want_max, int context_max);

/* Computes the step: extends keys and values of each sequence and writes the
 * logits of the wanted tokens, in order, to logits [n_want][n_vocab].  Fails when a
 * token is out of range, weights cannot be read (SLM_E_IO) or, without in->broken, a logit is NaN
 * (SLM_E_NUMERIC). */
bool model_step(struct model *m, struct work *w, const struct step_in *in, float *logits,
                slm_error *err);

/* Begins to measure where the time of steps goes, from zero; see profile.h. */
bool model_profile(struct model *m, slm_error *err);

/* What was measured, or NULL.  Lives as long as the model. */
const struct profile *model_profiled(const struct model *m);

/* ---- drafts ---------------------------------------------------------------------- */

/* Bytes of what a trial of n_tok tokens notes; 0 in models without recurrent layers. */
size_t model_trial_bytes(const struct model *m, int n_tok);

/* Advances the states of a sequence over the first n_keep of its n_tok tokens, which a step has
 * computed as a trial, to the same bits as if these alone had been computed. */
void model_commit(struct model *m, struct work *w, const struct step_seq *seq, int n_keep);

/* Bytes of a page of the draft block's own keys and values. */
size_t model_draft_page_bytes(const struct model *m, enum kv_type kv);

/* A step of the block that drafts tokens, in models that can.  Row t gets the token at a
 * position and hidden [n_tok][n_embd]: the row before that token, as model_step gives it in
 * in->hidden, or zeros before the first token.  Its logits predict the token after; its own
 * in->hidden is what the next draft takes.  Page j of a sequence is seq.pages[j], states are not
 * used.  The same scratch as for model_step. */
bool model_draft(struct model *m, struct work *w, const struct step_in *in, const float *hidden,
                 float *logits, slm_error *err);

/* Names of the supported architectures, separated by ", ". */
const char *model_arch_names(void);

#endif

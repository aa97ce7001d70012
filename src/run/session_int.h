/* session_int.h - what a session is made of, for the files that are part of it. */
#ifndef SESSION_INT_H
#define SESSION_INT_H

#include "run/kv.h"
#include "run/recur.h"
#include "run/session.h"

struct session {
    struct model *model;
    struct kv_pool *pool;
    struct kv_seq *kv;
    struct recur *recur;   /* NULL in models without recurrent layers */
    struct work *work;
    enum kv_type kv_type;
    int32_t *tok;          /* [context] */
    int len, context, chunk, want_max;
    int keep;              /* where the last prompt ended: sliding layers can go back there */
    float *logits;         /* [n_vocab] */
    bool *want;            /* [chunk] */
    bool has_logits;
    int trial_max, n_trial;  /* n_trial > 0 between session_try and session_keep */
    float *trial_logits;   /* [trial_max][n_vocab] */
    float *trial;          /* what model_commit takes, or NULL */
    float *rows;           /* [1 + chunk][n_embd]: the hidden row of token len - 1, then those of
                            * the step at hand; or NULL */
    session_follow_fn *follow;
    void *follow_arg;
    pthread_mutex_t *step_lock;
    session_progress_fn *progress;
    void *progress_arg;
};

/* Floats of n hidden rows, and of n rows of logits. */
static inline size_t row_floats(const struct model *m, int n)
{
    return (size_t)n * (size_t)model_shape(m)->n_embd;
}

static inline size_t logit_floats(const struct model *m, int n)
{
    return (size_t)n * (size_t)model_shape(m)->n_vocab;
}

/* Everything that can be wrong with n more tokens behind `len`. */
bool session_check_ids(const struct session *s, int len, const int32_t *ids, size_t n,
                       slm_error *err);

/* One step: appends n checked tokens, 1..chunk, and writes the logits of the last one, or of all of
 * them, to `out`; none where it is NULL.  They count only when it succeeded. */
bool session_step(struct session *s, const int32_t *ids, int n, bool want_all, float *out,
                  slm_error *err);

#endif

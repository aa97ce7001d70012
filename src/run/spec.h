/* spec.h - drafts: tokens guessed ahead and verified together in one step.
 *
 * Every token is drawn from the model's own logits with the key of its position.  A draft is kept
 * exactly when it equals the token that is drawn there, so drafts change how long an answer takes
 * and nothing else. */
#ifndef SPEC_H
#define SPEC_H

#include "run/pace.h"
#include "run/session.h"

enum draft_kind { DRAFT_OFF, DRAFT_NGRAM, DRAFT_MTP, DRAFT_MODEL, DRAFT_KINDS };

/* Drafts of a step at most: more than that are rarely all right. */
enum { SPEC_MAX = PACE_MAX };

struct spec_params {
    enum draft_kind kind;
    int max;                     /* drafts of a step, 1..SPEC_MAX; unused with DRAFT_OFF */
    struct model *model;         /* what drafts, for DRAFT_MODEL and DRAFT_MTP (can_draft there);
                                  * n_vocab, for DRAFT_MTP n_embd too, as the session's */
    pthread_mutex_t *step_lock;  /* of the pool that it computes with; see session_params */
    bool steady;                 /* drafts in every step, whether they gain or lose; for tests */
};

struct spec;

/* Completes the parameters of a session that is to have drafts: call it before session_new. */
void spec_session_params(const struct spec_params *p, struct session_params *session);

/* Bytes that spec_new will allocate, beside the session's. */
size_t spec_bytes(const struct spec_params *p, const struct session_params *session);

/* Drafts for a session that was made with these parameters and has no tokens yet; it must outlive
 * them.  NULL and *err on failure. */
struct spec *spec_new(struct session *s, const struct spec_params *p,
                      const struct session_params *session, slm_error *err);
void spec_free(struct spec *sp);

/* How a token is drawn, and which ones are never computed. */
struct spec_chooser {
    /* The token behind hist [n_hist], from the logits there. */
    bool (*draw)(void *arg, const float *logits, const int32_t *hist, size_t n_hist, int32_t *id,
                 slm_error *err);
    void *arg;
    bool (*is_end)(const void *arg, int32_t id);
    const void *is_end_arg;
};

/* Draws the next token and as many more as drafts find, 1..cap, and appends them to the session,
 * which must have logits.  A token that ends an answer is the last one and is not appended.  On
 * failure the session is as after a failed feed. */
bool spec_decode(struct spec *sp, const struct spec_chooser *c, int32_t *ids, size_t cap, size_t *n,
                 slm_error *err);

struct spec_stats { uint64_t steps, drafted, accepted, tokens, paused; };
const struct spec_stats *spec_stats(const struct spec *sp);

/* ---- for sources of drafts ------------------------------------------------------------ */

/* What a source is made for. */
struct draft_setup {
    struct model *model;         /* as in spec_params */
    pthread_mutex_t *step_lock;
    int max, context;
    enum kv_type kv;
};

struct draft_source {
    const char *name;
    bool rows;   /* follow is told hidden rows */

    /* Bytes that make allocates; SIZE_MAX where they do not fit. */
    size_t (*bytes)(const struct draft_setup *setup);
    void *(*make)(const struct draft_setup *setup, slm_error *err);
    void (*drop)(void *drafter);

    /* The session appended tokens: session_follow_fn.  NULL where it does not matter. */
    session_follow_fn *follow;

    /* Catches up with a text that has grown by more than some tokens, as after a prompt.  Not
     * counted as time of drafting.  May be NULL. */
    void (*prepare)(void *drafter, const int32_t *tok, int n);

    /* Guesses up to max tokens behind tok [n], of which the session has computed all but the last,
     * and returns how many it has.  There is room for them in the context. */
    int (*propose)(void *drafter, const int32_t *tok, int n, int max, int32_t *out);
};

extern const struct draft_source draft_ngram, draft_mtp, draft_model;

/* NULL for DRAFT_OFF. */
const struct draft_source *spec_source(enum draft_kind kind);

/* The most likely token, the lowest id of equal ones. */
int32_t draft_argmax(const float *logits, int n_vocab);

#endif

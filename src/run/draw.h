/* draw.h - drawing the next tokens of many texts at once.
 *
 * A text gets one token from the logits after its last one, and one more after each of its drafts
 * that was right.  Texts share nothing, so they are drawn in parallel. */
#ifndef DRAW_H
#define DRAW_H

#include "base/thread.h"
#include "run/sample.h"

enum { DRAW_TOP_MAX = 20 };

/* A token drawn from a row of logits. */
struct drawn {
    int32_t id;
    slm_logprob chosen;
    slm_logprob top[DRAW_TOP_MAX];
    int n_top;
};

/* What is drawn for one text. */
struct draws {
    struct sampler *sampler;
    const int32_t *tok;    /* [n_tok], then the drafts [n_draft] */
    int n_tok, n_draft;
    int n_top;             /* -1: no log-probabilities; else up to DRAW_TOP_MAX */
    const float *logits;   /* [n_draft + 1][n_vocab]: after tok, and after each draft */
    const bool *broken;    /* [n_draft + 1]: whether a logit is NaN */
    struct drawn *out;     /* [n_draft + 1]: gets n tokens */
    int n;
    bool ok;               /* 1..n_draft + 1 tokens; else the draw after n tokens failed */
    slm_error error;
};

/* Draws for n texts.  Allocates nothing. */
void draw_all(struct pool *pool, const struct kern *k, int n_vocab, struct draws *draws, int n);

#endif

/* drafts.h - drafts for the requests of a batch: a drafter for each seat.
 *
 * Drafts are made in steps that compute answers only, and only few of them: many requests use the
 * weights that a step reads well enough without.  How many drafts pay is learnt for each number of
 * answers by itself. */
#ifndef DRAFTS_H
#define DRAFTS_H

#include "run/spec.h"

/* More answers than this go on without drafts. */
enum { DRAFTS_TOGETHER = 4 };

struct drafts_params {
    struct spec_params draft;  /* kind DRAFT_NGRAM or DRAFT_MTP */
    int n_seats, context;
    int rows_max;              /* rows of a step */
    enum kv_type kv;
};

struct drafts;

/* Bytes that it allocates; SIZE_MAX where that does not fit. */
size_t drafts_bytes(const struct model *m, const struct drafts_params *p);

struct drafts *drafts_new(const struct model *m, const struct drafts_params *p, slm_error *err);
void drafts_free(struct drafts *d);

/* Where a step's hidden rows [rows_max][n_embd] go; NULL where they are not needed. */
float *drafts_hidden(const struct drafts *d);

/* What a step notes of the i-th answer with drafts, see step_seq; NULL in models without recurrent
 * layers. */
float *drafts_trial(const struct drafts *d, int i);

/* A new text begins in a seat. */
void drafts_begin(struct drafts *d, int seat);

/* n tokens at position pos0 stay in a seat; the step's first row of them is `row`. */
void drafts_follow(struct drafts *d, int seat, const int32_t *ids, int n, int pos0, int row);

/* Drafts for each answer of a step with n_answers of them. */
int drafts_choose(struct drafts *d, int n_answers);

/* Guesses up to `want` tokens behind tok [n], of which all but the last are computed; how many it
 * has. */
int drafts_make(struct drafts *d, int seat, const int32_t *tok, int n, int want, int32_t *out);

/* An answer with n drafts, of which n_right were right, in a step that took so long. */
void drafts_learn(struct drafts *d, int n_answers, int n, int n_right, double seconds);

/* Counted for the statistics. */
void drafts_stats(const struct drafts *d, slm_draft_stats *out);

#endif

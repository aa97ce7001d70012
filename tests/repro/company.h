/* company.h - answers of a batch: alone, beside others, with the prompt cached and with drafts. */
#ifndef COMPANY_H
#define COMPANY_H

#include "run/batch.h"

/* In what company a request is computed. */
struct company {
    const char *what;
    int neighbours;        /* other requests in the same steps */
    bool again;            /* its prompt has been there before */
    enum draft_kind draft;
};

/* Ended by a NULL name. */
extern const struct company companies[];

/* Hash of the tokens of an answer and of their log-probabilities, n_out tokens behind n_prompt; 0
 * and *err where it fails. */
uint64_t company_hash(struct model *m, struct pool *pool, const struct kern *k,
                      const struct company *c, int n_prompt, int n_out, slm_error *err);

#endif

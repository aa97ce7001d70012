/* logprob.h - log-probabilities: the log-softmax of raw logits.
 *
 * The sum has a fixed order and the functions are those of the kernels, so the bits are the same
 * on every instruction set. */
#ifndef LOGPROB_H
#define LOGPROB_H

#include "base/error.h"
#include "kern/kern.h"

/* What log-probabilities are made with: a logit x has (x - max) - log_sum. */
struct logprob_base {
    float max, log_sum;
};

/* Of n logits, none of which is NaN or +inf, and not all -inf. */
struct logprob_base logprob_base(const struct kern *k, const float *logits, int n);

static inline float logprob_of(struct logprob_base base, float logit)
{
    return (logit - base.max) - base.log_sum;
}

/* The n_top tokens with the largest logits, best first, of equal ones the one with the lower id
 * first.  Returns how many there are: n_top or n. */
int logprob_top(const struct kern *k, struct logprob_base base, const float *logits, int n,
                slm_logprob *top, int n_top);

#endif

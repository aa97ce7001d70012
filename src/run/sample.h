/* sample.h - from logits to a token: a chain of samplers, then one keyed draw. */
#ifndef SAMPLE_H
#define SAMPLE_H

#include "base/error.h"

struct sample_params {
    float temperature;        /* 0: greedy */
    int top_k;                /* 0: off */
    float top_p, min_p;       /* 1 and 0: off */
    float repeat_penalty, presence_penalty, frequency_penalty;  /* 1, 0, 0: off */
    int penalty_window;       /* last tokens looked at; -1: all */
    uint64_t seed, choice;
};

struct sampler;

/* Fails naming a value that is out of range. */
struct sampler *sampler_new(const struct sample_params *p, int n_vocab, slm_error *err);
void sampler_free(struct sampler *s);

/* Token for position n_hist (hist: the tokens before it).  Ties go to the lower id.
 * Fails when a logit is NaN or all are -inf. */
bool sampler_draw(struct sampler *s, const float *logits, const int32_t *hist, size_t n_hist,
                  int32_t *id, slm_error *err);

#endif

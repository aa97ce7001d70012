/* sample.h - from logits to a token: a chain of samplers, then one keyed draw.
 *
 * The chain works on the list of candidates, always in the order of their ids.  The
 * samplers and their order are the table in samplers.c.  Every step is defined
 * exactly, so a draw is the same on every instruction set. */
#ifndef SAMPLE_H
#define SAMPLE_H

#include "base/error.h"
#include "kern/kern.h"

/* As slm_sampling says. */
struct sample_params {
    float temperature;        /* 0: greedy */
    int top_k;                /* 0: off */
    float top_p, min_p;       /* 1 and 0: off */
    float repeat_penalty, presence_penalty, frequency_penalty;  /* 1, 0, 0: off */
    int penalty_window;       /* last tokens looked at; -1: all */
    float typical_p;          /* 1: off */
    float xtc_probability, xtc_threshold;  /* probability 0: off */
    float dry_multiplier, dry_base;        /* multiplier 0: off */
    int dry_allowed, dry_window;           /* window -1: all */
    float mirostat_tau, mirostat_eta;      /* tau 0: off */
    const struct slm_bias *logit_bias;     /* [n_logit_bias] */
    size_t n_logit_bias;
    uint64_t seed, choice;
};

struct sampler;

/* A language that the tokens from position `start` on belong to. */
struct constraint {
    /* Sets a bit for every token that may follow ids[0..n), the tokens since `start`, and clears
     * the others: bits [n_vocab / 64 rounded up].  It has to cope with any history, since drafts
     * are tried and taken back.  Fails where the ids are none of the language. */
    bool (*allow)(void *arg, const int32_t *ids, size_t n, uint64_t *bits, slm_error *err);
    void *arg;
    size_t start;
    /* Frees arg, for those who say that they take a constraint over; NULL: nothing to free. */
    void (*release)(void *arg);
};

/* Fails naming a value that is out of range.  The biases are copied; k must outlive the
 * sampler. */
struct sampler *sampler_new(const struct sample_params *p, int n_vocab, const struct kern *k,
                            slm_error *err);
void sampler_free(struct sampler *s);

/* From now on draws follow the constraint, which is copied (NULL: none).  Fails without memory. */
bool sampler_constrain(struct sampler *s, const struct constraint *c, slm_error *err);

/* Token for position n_hist (hist: the tokens before it).  Ties go to the lower id.
 * Fails when a logit is NaN or +inf or all are -inf.  Allocates nothing.
 *
 * Depends on nothing but its arguments, with Mirostat also on which tokens of hist this
 * sampler drew: see mirostat in sample.c. */
bool sampler_draw(struct sampler *s, const float *logits, const int32_t *hist, size_t n_hist,
                  int32_t *id, slm_error *err);

/* ---- for the table of samplers ----------------------------------------------------- */

/* Candidates are looked at in blocks of this many, so that a block without a promising
 * one costs a comparison of its maximum only. */
enum { CAND_BLOCK = 256 };

/* The candidates: logits, relative to the best one times 1 / temperature once that is
 * applied, and their exponentials where has_p. */
struct cands {
    int n;
    float *x, *p;             /* [n] */
    int32_t *id;              /* [n], ascending; where all_ids, candidate i has id i instead */
    bool all_ids, has_p;
    const int32_t *hist;      /* tokens before this one */
    size_t n_hist;
    double mu;                /* Mirostat: the largest surprise in bits that stays */
    double center;            /* scratch of the typical sampler */
    int n_vocab;
    uint32_t *count;          /* [n_vocab], zero between uses */
    int32_t *order;           /* [n_vocab], scratch */
    double *sum;              /* [n_vocab / CAND_BLOCK + 1], scratch */
    const struct kern *kern;
};

struct sampler_stage {
    const char *name;
    /* Whether the parameters ask for it. */
    bool (*active)(const struct sample_params *p);
    void (*apply)(const struct sample_params *p, struct cands *c);
};

/* In the order of application, after the biases, ended by a NULL name. */
extern const struct sampler_stage sampler_stages[];

/* Ranges of the parameters for a vocabulary of n_vocab tokens. */
bool sample_params_check(const struct sample_params *p, int n_vocab, slm_error *err);

/* Surprise in bits of candidate i, whose share is p[i] of `total`. */
double cands_surprise(const struct cands *c, int i, double total);

/* First block at or after candidate b, a multiple of CAND_BLOCK, in which a value of v
 * (x or p) is at least t; n where there is none. */
int cands_block(const struct cands *c, const float *v, int b, float t);

/* End of the block that begins at b. */
static inline int cands_block_end(const struct cands *c, int b)
{
    return c->n - b < CAND_BLOCK ? c->n : b + CAND_BLOCK;
}

/* Fills p with exp(x); nothing where that is done already. */
void cands_exp(struct cands *c);

/* Sums of p: of each block in a fixed order to c->sum, and of all blocks in order. */
double cands_total(const struct cands *c);

#endif

/* batch.h - many requests in the steps of one model.
 *
 * Requests wait in a bounded queue, are admitted first come first served, and share every step: a
 * token of each answer, and pieces of the prompts that are not computed yet.  Tokens and
 * log-probabilities of a request depend on nothing but its own arguments.  Used by one thread;
 * the model, pool and kernels must outlive it. */
#ifndef BATCH_H
#define BATCH_H

#include <pthread.h>

#include "model/model.h"
#include "run/sample.h"
#include "run/spec.h"

struct batch;

struct batch_params {
    int context;         /* tokens of a request with its answer, 1.. */
    int parallel;        /* requests computed at once, 1.. */
    int queue;           /* further ones that may wait */
    int chunk;           /* prompt tokens per step while answers go on; 0: chosen */
    enum kv_type kv;
    uint64_t cache_bytes;/* bound on keys, values and states, at least batch_cost's least */
    struct spec_params draft; /* DRAFT_OFF, DRAFT_NGRAM or DRAFT_MTP */
    struct pool *pool;
    const struct kern *kern;
    bool (*is_end)(const void *arg, int32_t id);  /* whether a token ends an answer */
    const void *is_end_arg;
    pthread_mutex_t *step_lock;                   /* as of a session; or NULL */
};

/* What cache_bytes must be at least and with how much no running request ever waits for another
 * one's memory; and the bytes that are allocated besides.  Saturating. */
struct batch_cost { uint64_t cache_least, cache_most, work_bytes; };
struct batch_cost batch_cost(const struct model *m, const struct batch_params *p);

struct batch *batch_new(struct model *m, const struct batch_params *p, slm_error *err);
/* Ends all requests without telling them. */
void batch_free(struct batch *b);

struct batch_request {
    const int32_t *ids;      /* the prompt, copied */
    size_t n_ids;
    struct sample_params sampling;  /* the biases are copied */
    struct constraint guide; /* without allow: none; taken over, also where submitting fails */
    int max_tokens;          /* 0: what the context allows */
    int n_top;               /* -1: no log-probabilities; else up to 20 beside the chosen token's */
    bool ignore_end;
    slm_event_fn *on_event;  /* called by batch_step and batch_cancel; may submit and cancel */
    void *arg;
};

/* Fails naming a wrong argument, or with SLM_E_BUSY, SLM_E_CONTEXT or SLM_E_NOMEM. */
bool batch_submit(struct batch *b, const struct batch_request *request, uint64_t *id,
                  slm_error *err);

/* The end is told during this call, or, where that is made by an event, during the call that
 * tells the event.  Nothing for an id that has ended. */
void batch_cancel(struct batch *b, uint64_t id);

/* One step for all.  *more: whether requests are left.  Fails when called by an event. */
bool batch_step(struct batch *b, bool *more, slm_error *err);

void batch_stats(const struct batch *b, slm_batch_stats *out);

#endif

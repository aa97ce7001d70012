/* tiny_run.h - runs a small model step by step, for tests that look at logits.
 *
 * Pages and work are made here by hand, so that these tests need nothing above
 * the model layer. */
#ifndef TINY_RUN_H
#define TINY_RUN_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "model/model.h"

struct tiny {
    struct gguf *gguf;
    struct pool *pool;
    struct model *model;
    struct work *work;
    void **pages;
    size_t page_stride;   /* pages per layer */
    float **states;       /* of recurrent layers */
    int n_pos;            /* tokens so far */
    int context;
    enum kv_type kv;
};

static inline void tiny_close(struct tiny *t)
{
    const int n_layer = t->model ? model_shape(t->model)->n_kv_layer : 0;

    for (size_t i = 0; t->pages && i < (size_t)n_layer * t->page_stride; i++) {
        mem_free(t->pages[i]);
    }
    free(t->pages);
    for (int i = 0; t->states && i < model_shape(t->model)->n_state; i++) {
        mem_free(t->states[i]);
    }
    free(t->states);
    work_free(t->work);
    model_free(t->model);
    pool_free(t->pool);
    gguf_close(t->gguf);
}

/* False and *err when the file cannot be run; t may then still be closed. */
static inline bool tiny_open_at(struct tiny *t, const char *path, enum isa isa, int threads,
                                const struct model_place *place, enum kv_type kv, int context,
                                slm_error *err)
{
    *t = (struct tiny){ .context = context, .kv = kv };
    t->gguf = gguf_open(path, err);
    t->pool = pool_new(threads, err);
    if (!t->gguf || !t->pool) {
        return false;
    }
    t->model = model_load(t->gguf, t->pool, kern_get(isa), err);
    if (!t->model || !model_place(t->model, place, err)) {
        return false;
    }
    const int n_layer = model_shape(t->model)->n_kv_layer;
    t->work = work_new(t->model, context, context, context, err);
    t->page_stride = (size_t)context / KV_PAGE + 1;
    t->pages = calloc((size_t)n_layer * t->page_stride, sizeof *t->pages);
    const size_t n_state = (size_t)model_shape(t->model)->n_state;
    t->states = calloc(n_state + 1, sizeof *t->states);
    if (!t->work || !t->pages || !t->states) {
        return false;
    }
    for (size_t i = 0; i < n_state; i++) {
        t->states[i] = mem_alloc_aligned(model_state_bytes(t->model));
        memset(t->states[i], 0, model_state_bytes(t->model));
    }
    for (int il = 0; il < n_layer; il++) {
        const size_t bytes = model_kv_page_bytes(t->model, il, kv);
        for (size_t j = 0; j < t->page_stride; j++) {
            void *page = mem_alloc_aligned(bytes);
            memset(page, 0, bytes);
            t->pages[(size_t)il * t->page_stride + j] = page;
        }
    }
    return true;
}

static inline bool tiny_open(struct tiny *t, const char *path, enum isa isa, int threads,
                             enum model_pack pack, enum kv_type kv, int context, slm_error *err)
{
    const struct model_place place = { .pack = pack };

    return tiny_open_at(t, path, isa, threads, &place, kv, context, err);
}

/* Feeds n tokens in steps of `chunk` and writes the logits after each to out [n][n_vocab]. */
static inline bool tiny_feed(struct tiny *t, const int32_t *ids, int n, int chunk, float *out,
                             slm_error *err)
{
    const size_t n_vocab = (size_t)model_shape(t->model)->n_vocab;
    bool *want = malloc((size_t)chunk * sizeof *want);
    bool ok = true;

    for (int i = 0; i < chunk; i++) {
        want[i] = true;
    }
    for (int i = 0; i < n && ok; i += chunk) {
        const int m = n - i < chunk ? n - i : chunk;
        const struct step_seq seq = { .n_tok = m, .pos0 = t->n_pos, .pages = t->pages,
                                      .page_stride = (int)t->page_stride, .states = t->states };
        const struct step_in in = { m, ids + i, 1, &seq, t->kv, want, NULL, NULL };
        ok = model_step(t->model, t->work, &in, out + (size_t)i * n_vocab, err);
        t->n_pos += m;
    }
    free(want);
    return ok;
}

/* Highest logit, the lower id where two are equal. */
static inline int32_t tiny_argmax(const float *logits, size_t n)
{
    size_t best = 0;

    for (size_t i = 1; i < n; i++) {
        if (logits[i] > logits[best]) {
            best = i;
        }
    }
    return (int32_t)best;
}

#endif

/* samplers.c - the samplers and the order in which they apply.
 *
 * Each one changes the logits of the candidates or removes candidates, and keeps them
 * in the order of their ids.  A new sampler is a function and a line in the table. */
#include "run/sample.h"

#include <assert.h>
#include <float.h>
#include <limits.h>

/* ---- ranges ---------------------------------------------------------------------- */

static bool in_range(const char *name, double v, double min, double max, slm_error *err)
{
    if (v >= min && v <= max) {
        return true;
    }
    return slm_fail(err, SLM_E_ARG, "%s must be from %g to %g, not %g", name, min, max, v);
}

bool sample_params_check(const struct sample_params *p, slm_error *err)
{
    return in_range("temperature", (double)p->temperature, 0, 100, err) &&
           in_range("top_k", p->top_k, 0, INT_MAX, err) &&
           in_range("top_p", (double)p->top_p, 0, 1, err) &&
           in_range("min_p", (double)p->min_p, 0, 1, err) &&
           in_range("repeat_penalty", (double)p->repeat_penalty, (double)0.01f, 100, err) &&
           in_range("presence_penalty", (double)p->presence_penalty, -100, 100, err) &&
           in_range("frequency_penalty", (double)p->frequency_penalty, -100, 100, err) &&
           in_range("penalty_window", p->penalty_window, -1, INT_MAX, err);
}

/* ---- helpers --------------------------------------------------------------------- */

/* Moves candidate i to place `to` <= i. */
static void keep(struct cands *c, int to, int i)
{
    c->x[to] = c->x[i];
    c->p[to] = c->p[i];
    c->id[to] = c->id[i];
}

/* Whether candidate a comes before b: larger logit, then lower id.  Candidates lie by
 * ascending id, so places can be compared. */
static bool before(const struct cands *c, int32_t a, int32_t b)
{
    return c->x[a] > c->x[b] || (c->x[a] == c->x[b] && a < b);
}

/* Restores the heap below place i: each parent comes after its children, so the root is
 * the last in order. */
static void sift(const struct cands *c, int32_t *heap, int n, int i)
{
    for (;;) {
        int worst = i;
        for (int child = 2 * i + 1; child <= 2 * i + 2 && child < n; child++) {
            worst = before(c, heap[worst], heap[child]) ? child : worst;
        }
        if (worst == i) {
            return;
        }
        const int32_t t = heap[i];
        heap[i] = heap[worst];
        heap[worst] = t;
        i = worst;
    }
}

/* Sorts n places in `heap` (a heap as sift makes it) so that the best comes first. */
static void sort_heap(const struct cands *c, int32_t *heap, int n)
{
    for (int end = n - 1; end > 0; end--) {
        const int32_t t = heap[0];
        heap[0] = heap[end];
        heap[end] = t;
        sift(c, heap, end, 0);
    }
}

static void make_heap(const struct cands *c, int32_t *heap, int n)
{
    for (int i = n / 2 - 1; i >= 0; i--) {
        sift(c, heap, n, i);
    }
}

/* Removes every candidate that comes after candidate `cut`. */
static void cut_after(struct cands *c, int32_t cut)
{
    const float x_cut = c->x[cut];
    int n = 0;

    for (int i = 0; i < c->n; i++) {
        if (c->x[i] > x_cut || (c->x[i] == x_cut && i <= cut)) {
            keep(c, n++, i);
        }
    }
    c->n = n;
}

/* ---- penalties ------------------------------------------------------------------- */

static bool penalties_active(const struct sample_params *p)
{
    return p->penalty_window != 0 && (p->repeat_penalty != 1 || p->presence_penalty != 0 ||
                                      p->frequency_penalty != 0);
}

/* Each token of the window once: a positive logit is divided by the repeat penalty, a
 * negative one multiplied; then presence and count * frequency are subtracted. */
static void penalties_apply(const struct sample_params *p, struct cands *c)
{
    const size_t all = c->n_hist;
    const size_t window = p->penalty_window < 0 ? all : (size_t)p->penalty_window;
    const size_t begin = all > window ? all - window : 0;

    for (size_t i = begin; i < all; i++) {
        c->count[c->hist[i]]++;
    }
    for (size_t i = begin; i < all; i++) {
        const int32_t id = c->hist[i];
        if (c->count[id] == 0) {
            continue;
        }
        float x = c->x[id];
        x = x > 0 ? x / p->repeat_penalty : x * p->repeat_penalty;
        x -= p->presence_penalty;
        x -= p->frequency_penalty * (float)c->count[id];
        c->x[id] = x < FLT_MAX ? x : FLT_MAX;
        c->count[id] = 0;
    }
}

/* ---- temperature ----------------------------------------------------------------- */

static bool temperature_active(const struct sample_params *p)
{
    return p->temperature != 0;
}

/* Also makes the logits relative to the best one, which no later step can see in a
 * probability. */
static void temperature_apply(const struct sample_params *p, struct cands *c)
{
    const float max = c->kern->max(c->x, c->n);

    for (int i = 0; i < c->n; i++) {
        c->x[i] = (c->x[i] - max) / p->temperature;
    }
}

/* ---- top-k ----------------------------------------------------------------------- */

static bool top_k_active(const struct sample_params *p)
{
    return p->top_k > 0 && p->temperature != 0;
}

/* The k best by a heap of k: nearly all candidates fail the first comparison. */
static void top_k_apply(const struct sample_params *p, struct cands *c)
{
    const int k = p->top_k;
    int32_t *heap = c->order;

    if (k >= c->n) {
        return;
    }
    for (int i = 0; i < k; i++) {
        heap[i] = i;
    }
    make_heap(c, heap, k);
    for (int i = k; i < c->n; i++) {
        if (c->x[i] > c->x[heap[0]]) {
            heap[0] = i;
            sift(c, heap, k, 0);
        }
    }
    cut_after(c, heap[0]);
}

/* ---- top-p ----------------------------------------------------------------------- */

static bool top_p_active(const struct sample_params *p)
{
    return p->top_p < 1 && p->temperature != 0;
}

/* The smallest set of best candidates whose probability reaches top_p.  Candidates below
 * (1 - top_p) / n hold less than 1 - top_p together, so the set lies above that line and
 * only what is above it is sorted. */
static void top_p_apply(const struct sample_params *p, struct cands *c)
{
    cands_exp(c);
    const double total = cands_sum(c->p, c->n);
    const double goal = (double)p->top_p * total;
    const float line = (float)((1 - (double)p->top_p) * total / c->n);
    int32_t *order = c->order;
    int n = 0, last = 0;

    for (int i = 0; i < c->n; i++) {
        if (c->p[i] >= line) {
            order[n++] = i;
        }
    }
    assert(n > 0);  /* the best is not below the mean */
    make_heap(c, order, n);
    sort_heap(c, order, n);
    for (double sum = 0; last < n; last++) {
        sum += (double)c->p[order[last]];
        if (sum >= goal) {
            break;
        }
    }
    cut_after(c, order[last < n ? last : n - 1]);
}

/* ---- min-p ----------------------------------------------------------------------- */

static bool min_p_active(const struct sample_params *p)
{
    return p->min_p > 0 && p->temperature != 0;
}

/* Candidates at least min_p times as likely as the best, whose exponential is 1. */
static void min_p_apply(const struct sample_params *p, struct cands *c)
{
    int n = 0;

    cands_exp(c);
    for (int i = 0; i < c->n; i++) {
        if (c->p[i] >= p->min_p) {
            keep(c, n++, i);
        }
    }
    c->n = n;
}

const struct sampler_stage sampler_stages[] = {
    { "penalties", penalties_active, penalties_apply },
    { "temperature", temperature_active, temperature_apply },
    { "top-k", top_k_active, top_k_apply },
    { "top-p", top_p_active, top_p_apply },
    { "min-p", min_p_active, min_p_apply },
    { NULL, NULL, NULL },
};

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
    c->id[to] = c->all_ids ? i : c->id[i];
}

/* After the last keep. */
static void kept(struct cands *c, int n)
{
    c->n = n;
    c->all_ids = false;
}

/* Whether candidate a comes before b: larger logit, then lower id.  Candidates lie by
 * ascending id, so places can be compared. */
static bool before(const struct cands *c, int32_t a, int32_t b)
{
    return c->x[a] > c->x[b] || (c->x[a] == c->x[b] && a < b);
}

/* Restores the heap of places below place i: each parent comes after its children, or
 * before them where best_first. */
static void sift(const struct cands *c, int32_t *heap, int n, int i, bool best_first)
{
    for (;;) {
        int top = i;
        for (int child = 2 * i + 1; child <= 2 * i + 2 && child < n; child++) {
            top = before(c, heap[child], heap[top]) == best_first ? child : top;
        }
        if (top == i) {
            return;
        }
        const int32_t t = heap[i];
        heap[i] = heap[top];
        heap[top] = t;
        i = top;
    }
}

static void make_heap(const struct cands *c, int32_t *heap, int n, bool best_first)
{
    for (int i = n / 2 - 1; i >= 0; i--) {
        sift(c, heap, n, i, best_first);
    }
}

/* Removes every candidate that comes after candidate `cut`. */
static void cut_after(struct cands *c, int32_t cut)
{
    const float t = c->x[cut];
    int n = 0;

    for (int b = cands_block(c, c->x, 0, t); b < c->n;
         b = cands_block(c, c->x, b + CAND_BLOCK, t)) {
        for (int i = b; i < cands_block_end(c, b); i++) {
            if (c->x[i] > t || (c->x[i] == t && i <= cut)) {
                keep(c, n++, i);
            }
        }
    }
    kept(c, n);
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

/* ---- top-k ----------------------------------------------------------------------- */

static bool top_k_active(const struct sample_params *p)
{
    return p->top_k > 0 && p->temperature != 0;
}

/* The k best by a heap of k whose root is the worst of them; nearly all blocks hold
 * nothing better than that. */
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
    make_heap(c, heap, k, false);
    for (int b = k / CAND_BLOCK * CAND_BLOCK; b < c->n; b += CAND_BLOCK) {
        b = cands_block(c, c->x, b, c->x[heap[0]]);
        for (int i = b < k ? k : b; i < cands_block_end(c, b); i++) {
            if (c->x[i] > c->x[heap[0]]) {
                heap[0] = i;
                sift(c, heap, k, 0, false);
            }
        }
    }
    cut_after(c, heap[0]);
}

/* ---- temperature ----------------------------------------------------------------- */

/* Below this a temperature acts like this: 1 / temperature stays finite. */
static const float TEMPERATURE_MIN = 1e-6f;

static bool temperature_active(const struct sample_params *p)
{
    return p->temperature != 0;
}

/* Also makes the logits relative to the best one, which no later step can see in a
 * probability. */
static void temperature_apply(const struct sample_params *p, struct cands *c)
{
    const float max = c->kern->max(c->x, c->n);
    const float inverse = 1 / (p->temperature > TEMPERATURE_MIN ? p->temperature : TEMPERATURE_MIN);

    for (int i = 0; i < c->n; i++) {
        c->x[i] = (c->x[i] - max) * inverse;
    }
}

/* ---- top-p ----------------------------------------------------------------------- */

static bool top_p_active(const struct sample_params *p)
{
    return p->top_p < 1 && p->temperature != 0;
}

/* Places of the candidates with p >= t; the sum of their p in *mass. */
static int gather(struct cands *c, float t, double *mass)
{
    int n = 0;

    *mass = 0;
    for (int b = cands_block(c, c->p, 0, t); b < c->n;
         b = cands_block(c, c->p, b + CAND_BLOCK, t)) {
        for (int i = b; i < cands_block_end(c, b); i++) {
            if (c->p[i] >= t) {
                c->order[n++] = i;
                *mass += (double)c->p[i];
            }
        }
    }
    return n;
}

/* The smallest set of best candidates whose probability reaches top_p.  Lower and lower
 * lines are tried until what lies above one has the probability; only that is put in
 * order, and only as far as the set goes. */
static void top_p_apply(const struct sample_params *p, struct cands *c)
{
    cands_exp(c);
    const double goal = (double)p->top_p * cands_total(c);
    int32_t *heap = c->order;
    float line = 1.0f / 16;
    double mass, sum = 0;

    int n = gather(c, line, &mass);
    while (mass < goal && line > 0) {
        line = line > FLT_MIN ? line / 64 : 0;
        n = gather(c, line, &mass);
    }
    assert(n > 0);  /* the best has p = 1 */
    make_heap(c, heap, n, true);
    for (;;) {
        sum += (double)c->p[heap[0]];
        if (sum >= goal || n == 1) {
            break;
        }
        heap[0] = heap[--n];
        sift(c, heap, n, 0, true);
    }
    cut_after(c, heap[0]);
}

/* ---- min-p ----------------------------------------------------------------------- */

static bool min_p_active(const struct sample_params *p)
{
    return p->min_p > 0 && p->temperature != 0;
}

/* Candidates at least min_p times as likely as the best, whose exponential is 1. */
static void min_p_apply(const struct sample_params *p, struct cands *c)
{
    const float t = p->min_p;
    int n = 0;

    cands_exp(c);
    for (int b = cands_block(c, c->p, 0, t); b < c->n;
         b = cands_block(c, c->p, b + CAND_BLOCK, t)) {
        for (int i = b; i < cands_block_end(c, b); i++) {
            if (c->p[i] >= t) {
                keep(c, n++, i);
            }
        }
    }
    kept(c, n);
}

const struct sampler_stage sampler_stages[] = {
    { "penalties", penalties_active, penalties_apply },
    { "top-k", top_k_active, top_k_apply },
    { "temperature", temperature_active, temperature_apply },
    { "top-p", top_p_active, top_p_apply },
    { "min-p", min_p_active, min_p_apply },
    { NULL, NULL, NULL },
};

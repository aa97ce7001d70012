/* samplers.c - the samplers and the order in which they apply.
 *
 * Each one changes the logits of the candidates or removes candidates, and keeps them
 * in the order of their ids.  A new sampler is a function and a line in the table. */
#include "run/sample.h"

#include <assert.h>
#include <float.h>
#include <limits.h>
#include <math.h>

#include "base/rng.h"
#include "kern/rope.h"

/* ---- ranges ---------------------------------------------------------------------- */

static bool in_range(const char *name, double v, double min, double max, slm_error *err)
{
    if (v >= min && v <= max) {
        return true;
    }
    return slm_fail(err, SLM_E_ARG, "%s must be from %g to %g, not %g", name, min, max, v);
}

static bool check_bias(const struct slm_bias *b, int n_vocab, slm_error *err)
{
    if (b->id < 0 || b->id >= n_vocab) {
        return slm_fail(err, SLM_E_ARG,
                        "logit_bias: token %d is not in the vocabulary of %d tokens", (int)b->id,
                        n_vocab);
    }
    if (b->bias == -INFINITY) {
        return true;
    }
    return in_range("logit_bias", (double)b->bias, -100, 100, err);
}

static bool check_biases(const struct sample_params *p, int n_vocab, slm_error *err)
{
    if (p->n_logit_bias > (size_t)n_vocab || (p->n_logit_bias > 0 && !p->logit_bias)) {
        return slm_fail(err, SLM_E_ARG, "logit_bias: %zu biases for a vocabulary of %d tokens",
                        p->n_logit_bias, n_vocab);
    }
    for (size_t i = 0; i < p->n_logit_bias; i++) {
        if (!check_bias(&p->logit_bias[i], n_vocab, err)) {
            return false;
        }
    }
    return true;
}

bool sample_params_check(const struct sample_params *p, int n_vocab, slm_error *err)
{
    return in_range("temperature", (double)p->temperature, 0, 100, err) &&
           in_range("top_k", p->top_k, 0, INT_MAX, err) &&
           in_range("top_p", (double)p->top_p, 0, 1, err) &&
           in_range("min_p", (double)p->min_p, 0, 1, err) &&
           in_range("repeat_penalty", (double)p->repeat_penalty, (double)0.01f, 100, err) &&
           in_range("presence_penalty", (double)p->presence_penalty, -100, 100, err) &&
           in_range("frequency_penalty", (double)p->frequency_penalty, -100, 100, err) &&
           in_range("penalty_window", p->penalty_window, -1, INT_MAX, err) &&
           in_range("typical_p", (double)p->typical_p, 0, 1, err) &&
           in_range("xtc_probability", (double)p->xtc_probability, 0, 1, err) &&
           in_range("xtc_threshold", (double)p->xtc_threshold, 0, 0.5, err) &&
           in_range("dry_multiplier", (double)p->dry_multiplier, 0, 100, err) &&
           in_range("dry_base", (double)p->dry_base, 1, 100, err) &&
           in_range("dry_allowed", p->dry_allowed, 1, INT_MAX, err) &&
           in_range("dry_window", p->dry_window, -1, INT_MAX, err) &&
           in_range("mirostat_tau", (double)p->mirostat_tau, 0, 100, err) &&
           in_range("mirostat_eta", (double)p->mirostat_eta, 0, 1, err) &&
           check_biases(p, n_vocab, err);
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

/* Whether candidate a comes before b in an order of all candidates.  They lie by ascending
 * id, so places can be compared where the rest is equal. */
typedef bool order_fn(const struct cands *c, int32_t a, int32_t b);

/* The larger logit first. */
static bool better(const struct cands *c, int32_t a, int32_t b)
{
    return c->x[a] > c->x[b] || (c->x[a] == c->x[b] && a < b);
}

static bool worse(const struct cands *c, int32_t a, int32_t b)
{
    return better(c, b, a);
}

/* Restores the heap of places below place i: each parent comes before its children. */
static inline void sift(const struct cands *c, int32_t *heap, int n, int i, order_fn *before)
{
    for (;;) {
        int top = i;
        for (int child = 2 * i + 1; child <= 2 * i + 2 && child < n; child++) {
            top = before(c, heap[child], heap[top]) ? child : top;
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

static inline void make_heap(const struct cands *c, int32_t *heap, int n, order_fn *before)
{
    for (int i = n / 2 - 1; i >= 0; i--) {
        sift(c, heap, n, i, before);
    }
}

/* Takes candidates off the heap until their p reach `goal`, at least one; the last of them. */
static inline int32_t take_mass(const struct cands *c, int32_t *heap, int n, double goal,
                                order_fn *before)
{
    double sum = 0;

    make_heap(c, heap, n, before);
    for (;;) {
        sum += (double)c->p[heap[0]];
        if (sum >= goal || n == 1) {
            return heap[0];
        }
        heap[0] = heap[--n];
        sift(c, heap, n, 0, before);
    }
}

/* A logit that was finite stays so: only the model and the biases forbid a token. */
static void set_logit(struct cands *c, int32_t id, float x)
{
    if (c->x[id] >= -FLT_MAX) {
        c->x[id] = x > FLT_MAX ? FLT_MAX : x < -FLT_MAX ? -FLT_MAX : x;
    }
}

/* Where a window of the last n tokens (-1: all) begins. */
static size_t window_begin(const struct cands *c, int n)
{
    return n < 0 || (size_t)n > c->n_hist ? 0 : c->n_hist - (size_t)n;
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
    const size_t begin = window_begin(c, p->penalty_window);

    for (size_t i = begin; i < c->n_hist; i++) {
        c->count[c->hist[i]]++;
    }
    for (size_t i = begin; i < c->n_hist; i++) {
        const int32_t id = c->hist[i];
        if (c->count[id] == 0) {
            continue;
        }
        float x = c->x[id];
        x = x > 0 ? x / p->repeat_penalty : x * p->repeat_penalty;
        x -= p->presence_penalty;
        x -= p->frequency_penalty * (float)c->count[id];
        set_logit(c, id, x);
        c->count[id] = 0;
    }
}

/* ---- DRY ------------------------------------------------------------------------- */

/* Longer repetitions count as this long: it bounds the time in a text that is one long
 * repetition, and the penalty is beyond any logit long before. */
enum { DRY_MATCH_MAX = 64 };

static bool dry_active(const struct sample_params *p)
{
    return p->dry_multiplier > 0 && p->dry_window != 0;
}

/* Tokens before place i that equal those at the end of the history, not before `begin`. */
static size_t match_before(const struct cands *c, size_t begin, size_t i)
{
    size_t n = 0;

    while (n < DRY_MATCH_MAX && i - n > begin && c->hist[i - n - 1] == c->hist[c->n_hist - n - 1]) {
        n++;
    }
    return n;
}

/* A token that followed the same n tokens that the history ends with, n at least
 * dry_allowed, loses multiplier * base^(n - allowed), by the longest such n. */
static void dry_apply(const struct sample_params *p, struct cands *c)
{
    const size_t begin = window_begin(c, p->dry_window);

    for (size_t i = begin; i < c->n_hist; i++) {
        const uint32_t n = (uint32_t)match_before(c, begin, i);
        if (n >= (uint32_t)p->dry_allowed && n > c->count[c->hist[i]]) {
            c->count[c->hist[i]] = n;
        }
    }
    for (size_t i = begin; i < c->n_hist; i++) {
        const int32_t id = c->hist[i];
        double penalty = (double)p->dry_multiplier;
        if (c->count[id] == 0) {
            continue;
        }
        for (uint32_t n = (uint32_t)p->dry_allowed; n < c->count[id]; n++) {
            penalty *= (double)p->dry_base;
        }
        set_logit(c, id, penalty < (double)FLT_MAX ? c->x[id] - (float)penalty : -FLT_MAX);
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
    make_heap(c, heap, k, worse);
    for (int b = k / CAND_BLOCK * CAND_BLOCK; b < c->n; b += CAND_BLOCK) {
        b = cands_block(c, c->x, b, c->x[heap[0]]);
        for (int i = b < k ? k : b; i < cands_block_end(c, b); i++) {
            if (c->x[i] > c->x[heap[0]]) {
                heap[0] = i;
                sift(c, heap, k, 0, worse);
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

/* ---- typical ---------------------------------------------------------------------- */

/* Whether the samplers that cut by probability are in use; Mirostat takes their place. */
static bool cuts(const struct sample_params *p)
{
    return p->temperature != 0 && p->mirostat_tau == 0;
}

static bool typical_active(const struct sample_params *p)
{
    return p->typical_p < 1 && cuts(p);
}

static double distance(const struct cands *c, int32_t i)
{
    return fabs((double)c->x[i] - c->center);
}

/* The surprise nearer to the expected one first. */
static bool nearer(const struct cands *c, int32_t a, int32_t b)
{
    const double da = distance(c, a), db = distance(c, b);

    return da < db || (da == db && a < b);
}

/* The smallest set of candidates nearest to the expected surprise whose probability
 * reaches typical_p.  Surprise is a constant minus the logit, so the distance is that of
 * the logit from its mean. */
static void typical_apply(const struct sample_params *p, struct cands *c)
{
    double mean = 0;
    int n = 0;

    cands_exp(c);
    const double total = cands_total(c);
    for (int i = 0; i < c->n; i++) {
        if (c->p[i] > 0) {
            mean += (double)c->p[i] * (double)c->x[i];
            c->order[n++] = i;
        }
    }
    c->center = mean / total;
    const int32_t last = take_mass(c, c->order, n, (double)p->typical_p * total, nearer);
    const double reach = distance(c, last);
    n = 0;
    for (int i = 0; i < c->n; i++) {
        const double d = distance(c, i);
        if (c->p[i] > 0 && (d < reach || (d == reach && i <= last))) {
            keep(c, n++, i);
        }
    }
    kept(c, n);
}

/* ---- top-p ----------------------------------------------------------------------- */

static bool top_p_active(const struct sample_params *p)
{
    return p->top_p < 1 && cuts(p);
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
    double mass;

    int n = gather(c, line, &mass);
    while ((n == 0 || mass < goal) && line > 0) {
        line = line > FLT_MIN ? line / 64 : 0;
        n = gather(c, line, &mass);
    }
    assert(n > 0);
    cut_after(c, take_mass(c, heap, n, goal, better));
}

/* ---- min-p ----------------------------------------------------------------------- */

static bool min_p_active(const struct sample_params *p)
{
    return p->min_p > 0 && cuts(p);
}

/* Candidates at least min_p times as likely as the best. */
static void min_p_apply(const struct sample_params *p, struct cands *c)
{
    int n = 0;

    cands_exp(c);
    const float t = p->min_p * c->kern->max(c->p, c->n);
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

/* ---- XTC ------------------------------------------------------------------------- */

static bool xtc_active(const struct sample_params *p)
{
    return p->xtc_probability > 0 && cuts(p);
}

/* The chance is the second number of the key whose first one draws the token. */
static bool xtc_happens(const struct sample_params *p, const struct cands *c)
{
    return rng_unit(rng_mix(rng_bits(p->seed, p->choice, c->n_hist))) < (double)p->xtc_probability;
}

/* Of the candidates that have at least the probability xtc_threshold, only the last in
 * order of likelihood stays, so one good continuation always does. */
static void xtc_apply(const struct sample_params *p, struct cands *c)
{
    int last = -1, n = 0;

    if (!xtc_happens(p, c)) {
        return;
    }
    cands_exp(c);
    const double line = (double)p->xtc_threshold * cands_total(c);
    for (int i = 0; i < c->n; i++) {
        if ((double)c->p[i] >= line && (last < 0 || worse(c, i, last))) {
            last = i;
        }
    }
    if (last < 0) {
        return;
    }
    for (int i = 0; i < c->n; i++) {
        if ((double)c->p[i] < line || i == last) {
            keep(c, n++, i);
        }
    }
    kept(c, n);
}

/* ---- Mirostat 2 ------------------------------------------------------------------ */

double cands_surprise(const struct cands *c, int i, double total)
{
    static const double LN_2 = 0x1.62e42fefa39efp-1;

    return (rope_log(total) - (double)c->x[i]) / LN_2;
}

static bool mirostat_active(const struct sample_params *p)
{
    return p->mirostat_tau > 0 && p->temperature != 0;
}

/* Candidates whose surprise is at most mu, and in any case the best ones. */
static void mirostat_apply(const struct sample_params *p, struct cands *c)
{
    int n = 0;

    (void)p;
    cands_exp(c);
    const double total = cands_total(c);
    for (int i = 0; i < c->n; i++) {
        if (c->x[i] == 0 || cands_surprise(c, i, total) <= c->mu) {
            keep(c, n++, i);
        }
    }
    kept(c, n);
}

const struct sampler_stage sampler_stages[] = {
    { "penalties", penalties_active, penalties_apply },
    { "dry", dry_active, dry_apply },
    { "top-k", top_k_active, top_k_apply },
    { "temperature", temperature_active, temperature_apply },
    { "typical", typical_active, typical_apply },
    { "top-p", top_p_active, top_p_apply },
    { "min-p", min_p_active, min_p_apply },
    { "xtc", xtc_active, xtc_apply },
    { "mirostat", mirostat_active, mirostat_apply },
    { NULL, NULL, NULL },
};

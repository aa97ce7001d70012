/* sample.c - running the chain and drawing.
 *
 * The draw walks the candidates by ascending id, in blocks whose sums have a fixed
 * order, until the sum passes a random point keyed by (seed, choice, position). */
#include "run/sample.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

/* One token that was drawn with Mirostat. */
struct mirostat {
    size_t position;
    uint64_t before;  /* hash of the tokens before it; 0 in an empty entry */
    int32_t id;
    double mu;        /* of the position that follows */
};

/* Power of two.  Going back further than this inside an answer starts at the beginning. */
enum { MIROSTAT_KEPT = 8192 };

struct sampler {
    struct sample_params p;
    struct cands c;
    struct slm_bias *bias;      /* p.logit_bias */
    struct mirostat *mirostat;  /* [MIROSTAT_KEPT], NULL where it is off */
    int n_vocab;
    struct constraint constraint;  /* allow is NULL: none */
    uint64_t *allowed;             /* bits of the tokens, once there was a constraint */
};

struct sampler *sampler_new(const struct sample_params *p, int n_vocab, const struct kern *k,
                            slm_error *err)
{
    if (!sample_params_check(p, n_vocab, err)) {
        return NULL;
    }
    struct sampler *s = mem_zalloc(1, sizeof *s);
    if (!s) {
        slm_fail_nomem(err, "a sampler");
        return NULL;
    }
    const size_t n = (size_t)n_vocab;
    s->p = *p;
    s->n_vocab = n_vocab;
    s->c.kern = k;
    s->c.n_vocab = n_vocab;
    s->c.x = mem_alloc(n, sizeof *s->c.x);
    s->c.p = mem_zalloc(n, sizeof *s->c.p);
    s->c.id = mem_alloc(n, sizeof *s->c.id);
    s->c.order = mem_alloc(n, sizeof *s->c.order);
    s->c.count = mem_zalloc(n, sizeof *s->c.count);
    s->c.sum = mem_alloc(n / CAND_BLOCK + 1, sizeof *s->c.sum);
    s->bias = mem_alloc(p->n_logit_bias, sizeof *s->bias);
    s->mirostat = p->mirostat_tau > 0 ? mem_zalloc(MIROSTAT_KEPT, sizeof *s->mirostat) : NULL;
    if (!s->c.x || !s->c.p || !s->c.id || !s->c.order || !s->c.count || !s->c.sum || !s->bias ||
        (p->mirostat_tau > 0 && !s->mirostat)) {
        sampler_free(s);
        slm_fail_nomem(err, "a sampler");
        return NULL;
    }
    if (p->n_logit_bias > 0) {
        memcpy(s->bias, p->logit_bias, p->n_logit_bias * sizeof *s->bias);
    }
    s->p.logit_bias = s->bias;
    return s;
}

void sampler_free(struct sampler *s)
{
    if (!s) {
        return;
    }
    mem_free(s->c.x);
    mem_free(s->c.p);
    mem_free(s->c.id);
    mem_free(s->c.order);
    mem_free(s->c.count);
    mem_free(s->c.sum);
    mem_free(s->allowed);
    mem_free(s->bias);
    mem_free(s->mirostat);
    mem_free(s);
}

bool sampler_constrain(struct sampler *s, const struct constraint *c, slm_error *err)
{
    if (c && !s->allowed) {
        s->allowed = mem_alloc(((size_t)s->n_vocab + 63) / 64, sizeof *s->allowed);
        if (!s->allowed) {
            return slm_fail_nomem(err, "a constraint");
        }
    }
    s->constraint = c ? *c : (struct constraint){0};
    return true;
}

/* ---- candidates -------------------------------------------------------------------- */

int cands_block(const struct cands *c, const float *v, int b, float t)
{
    while (b < c->n && c->kern->max(v + b, cands_block_end(c, b) - b) < t) {
        b += CAND_BLOCK;
    }
    return b < c->n ? b : c->n;
}

void cands_exp(struct cands *c)
{
    if (!c->has_p) {
        c->kern->unary[UNARY_EXP](c->p, c->x, c->n);
        c->has_p = true;
    }
}

/* Sixteen chains, folded by halves. */
static double block_sum(const float *p, int n)
{
    double lane[16] = {0};
    int i = 0;

    for (; i + 16 <= n; i += 16) {
        for (int j = 0; j < 16; j++) {
            lane[j] += (double)p[i + j];
        }
    }
    for (int j = 0; i + j < n; j++) {
        lane[j] += (double)p[i + j];
    }
    for (int h = 8; h > 0; h /= 2) {
        for (int j = 0; j < h; j++) {
            lane[j] += lane[j + h];
        }
    }
    return lane[0];
}

double cands_total(const struct cands *c)
{
    double total = 0;

    for (int b = 0; b < c->n; b += CAND_BLOCK) {
        const double sum = block_sum(c->p + b, cands_block_end(c, b) - b);
        c->sum[b / CAND_BLOCK] = sum;
        total += sum;
    }
    return total;
}

/* Finds the largest logit, of equal ones the one with the lowest id, in one pass over memory that
 * is larger than the caches.  A model that gives NaN or +inf is broken. */
static bool find_best(const struct cands *c, const float *logits, int *best_id, slm_error *err)
{
    float max = -INFINITY;
    int n_bad = 0, at = 0;

    for (int b = 0, end; b < c->n_vocab; b = end) {
        end = c->n_vocab - b < CAND_BLOCK ? c->n_vocab : b + CAND_BLOCK;
        for (int i = b; i < end; i++) {
            n_bad += !(logits[i] <= FLT_MAX);
        }
        const float block_max = c->kern->max(logits + b, end - b);
        if (block_max > max) {
            max = block_max;
            at = b;
        }
    }
    if (n_bad > 0) {
        return slm_fail(err, SLM_E_NUMERIC, "%d logits are not numbers; the model file is broken",
                        n_bad);
    }
    while (logits[at] < max) {
        at++;
    }
    *best_id = at;
    return true;
}

/* Takes the logits with their biases over as candidates; best_id: the largest logit's.  A model
 * that gives only -inf allows no token. */
static bool take_logits(struct sampler *s, const float *logits, int best_id, slm_error *err)
{
    struct cands *c = &s->c;
    float max = logits[best_id];

    memcpy(c->x, logits, (size_t)c->n_vocab * sizeof *logits);
    if (s->p.n_logit_bias > 0) {
        for (size_t i = 0; i < s->p.n_logit_bias; i++) {
            c->x[s->bias[i].id] += s->bias[i].bias;
        }
        max = c->kern->max(c->x, c->n_vocab);
    }
    if (max < -FLT_MAX) {
        return slm_fail(err, SLM_E_NUMERIC, "no token is possible: all logits%s are -inf",
                        s->p.n_logit_bias > 0 ? " with their biases" : "");
    }
    c->n = c->n_vocab;
    c->all_ids = true;
    c->has_p = false;
    return true;
}

/* Whether draws at this position follow a constraint. */
static bool constrained(const struct sampler *s, size_t n_hist)
{
    return s->constraint.allow && n_hist >= s->constraint.start;
}

/* Makes x[i] impossible wherever bit i is clear; n up to 64.  Masks are mostly full or mostly
 * empty words, so the rarer kind of bits is gone through. */
static void mask_word(float *x, int n, uint64_t bits)
{
    const uint64_t all = n < 64 ? ((uint64_t)1 << n) - 1 : UINT64_MAX;
    float kept[64];

    bits &= all;
    if (__builtin_popcountll(bits) * 2 > n) {
        for (uint64_t left = ~bits & all; left != 0; left &= left - 1) {
            x[__builtin_ctzll(left)] = -INFINITY;
        }
        return;
    }
    for (uint64_t left = bits; left != 0; left &= left - 1) {
        kept[__builtin_ctzll(left)] = x[__builtin_ctzll(left)];
    }
    for (int i = 0; i < n; i++) {
        x[i] = -INFINITY;
    }
    for (uint64_t left = bits; left != 0; left &= left - 1) {
        x[__builtin_ctzll(left)] = kept[__builtin_ctzll(left)];
    }
}

/* Makes every token impossible that the constraint does not allow.  What is left may be nothing:
 * that is an error, never a reason to let other tokens through. */
static bool apply_constraint(struct sampler *s, const int32_t *hist, size_t n_hist,
                             slm_error *err)
{
    const struct constraint *k = &s->constraint;
    struct cands *c = &s->c;

    if (!k->allow(k->arg, hist + k->start, n_hist - k->start, s->allowed, err)) {
        return false;
    }
    for (int b = 0; b < c->n; b += 64) {
        mask_word(c->x + b, c->n - b < 64 ? c->n - b : 64, s->allowed[b / 64]);
    }
    if (c->kern->max(c->x, c->n) < -FLT_MAX) {
        return slm_fail(err, SLM_E_NUMERIC,
                        "no token is possible: the logits of all tokens that the guide allows "
                        "are -inf, or it allows none");
    }
    return true;
}

static int32_t id_of(const struct cands *c, int i)
{
    return c->all_ids ? i : c->id[i];
}

/* The candidate with the largest logit, of equal ones the one with the lowest id. */
static int best(const struct cands *c)
{
    const float max = c->kern->max(c->x, c->n);
    int i = cands_block(c, c->x, 0, max);

    while (i < c->n - 1 && c->x[i] < max) {
        i++;
    }
    return i;
}

/* The candidate at which the running sum passes u * total, 0 <= u < 1. */
static int draw(const struct cands *c, double u)
{
    const double point = u * cands_total(c);
    int last = best(c);  /* where rounding would end beyond the last candidate */
    double sum = 0;
    int i = 0;

    for (; i < c->n; i += CAND_BLOCK) {
        const double after = sum + c->sum[i / CAND_BLOCK];
        if (after > point) {
            break;
        }
        sum = after;
    }
    for (; i < c->n; i++) {
        sum += (double)c->p[i];
        if (sum > point) {
            return i;
        }
        last = c->p[i] > 0 ? i : last;
    }
    return last;
}

/* ---- Mirostat ------------------------------------------------------------------------
 *
 * mu belongs to a position and is a function of the history: 2 tau where the token before
 * was not drawn by this sampler after the same tokens, else what that draw left behind.
 * So drawing again, going back, and drafts that were not kept change nothing. */

static uint64_t history_hash(const int32_t *hist, size_t n)
{
    uint64_t h = n + 1;

    for (size_t i = 0; i < n; i++) {
        h = rng_mix(h ^ (uint32_t)hist[i]);
    }
    return h;
}

static double mirostat_mu(const struct sampler *s, const int32_t *hist, size_t n)
{
    const struct mirostat *last = n > 0 ? &s->mirostat[(n - 1) % MIROSTAT_KEPT] : NULL;

    if (last && last->before != 0 && last->position == n - 1 && last->id == hist[n - 1] &&
        last->before == history_hash(hist, n - 1)) {
        return last->mu;
    }
    return 2 * (double)s->p.mirostat_tau;
}

/* Remembers that candidate i was drawn and moves mu towards the surprise aimed at. */
static void mirostat_note(struct sampler *s, int i)
{
    const struct cands *c = &s->c;
    const double surprise = cands_surprise(c, i, cands_total(c));

    s->mirostat[c->n_hist % MIROSTAT_KEPT] = (struct mirostat){
        .position = c->n_hist,
        .before = history_hash(c->hist, c->n_hist),
        .id = id_of(c, i),
        .mu = c->mu - (double)s->p.mirostat_eta * (surprise - (double)s->p.mirostat_tau),
    };
}

/* ---- the whole ------------------------------------------------------------------------- */

/* Whether nothing but the largest logit matters. */
static bool plain_greedy(const struct sampler *s, size_t n_hist)
{
    if (s->p.temperature != 0 || s->p.n_logit_bias > 0 || constrained(s, n_hist)) {
        return false;
    }
    for (const struct sampler_stage *st = sampler_stages; st->name; st++) {
        if (st->active(&s->p)) {
            return false;
        }
    }
    return true;
}

bool sampler_draw(struct sampler *s, const float *logits, const int32_t *hist, size_t n_hist,
                  int32_t *id, slm_error *err)
{
    struct cands *c = &s->c;
    int best_id = 0;

    if (!find_best(c, logits, &best_id, err)) {
        return false;
    }
    if (plain_greedy(s, n_hist) && logits[best_id] >= -FLT_MAX) {
        *id = best_id;
        return true;
    }
    if (!take_logits(s, logits, best_id, err)) {
        return false;
    }
    if (constrained(s, n_hist) && !apply_constraint(s, hist, n_hist, err)) {
        return false;
    }
    c->hist = hist;
    c->n_hist = n_hist;
    c->mu = s->mirostat ? mirostat_mu(s, hist, n_hist) : 0;
    for (const struct sampler_stage *st = sampler_stages; st->name; st++) {
        if (st->active(&s->p)) {
            st->apply(&s->p, c);
        }
    }
    if (s->p.temperature == 0) {
        *id = id_of(c, best(c));
        return true;
    }
    cands_exp(c);
    const int i = draw(c, rng_unit(rng_bits(s->p.seed, s->p.choice, n_hist)));
    *id = id_of(c, i);
    if (s->mirostat) {
        mirostat_note(s, i);
    }
    return true;
}

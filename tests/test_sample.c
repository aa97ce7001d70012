/* test_sample.c - the sampler chain against a plain version of its definition. */
#include "test.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"
#include "run/sample.h"

static const struct sample_params neutral = {
    .temperature = 1, .top_p = 1, .repeat_penalty = 1, .penalty_window = 64, .seed = 42,
    .typical_p = 1, .dry_base = 1.75f, .dry_allowed = 2, .dry_window = -1, .mirostat_eta = 0.1f,
};

/* The neutral ones where a field is 0 and that has a meaning of its own. */
static struct sample_params complete(struct sample_params p)
{
    p.repeat_penalty = p.repeat_penalty == 0 ? 1 : p.repeat_penalty;
    p.typical_p = p.typical_p == 0 ? 1 : p.typical_p;
    p.dry_base = p.dry_base == 0 ? 1.75f : p.dry_base;
    p.dry_allowed = p.dry_allowed == 0 ? 2 : p.dry_allowed;
    p.dry_window = p.dry_window == 0 ? -1 : p.dry_window;
    return p;
}

static struct sampler *make(const struct sample_params *p, int n_vocab, enum isa isa)
{
    slm_error err = {0};
    struct sampler *s = sampler_new(p, n_vocab, kern_get(isa), &err);

    CHECK(s != NULL);
    return s;
}

/* One draw at position n_hist. */
static int32_t draw(struct sampler *s, const float *logits, const int32_t *hist, size_t n_hist)
{
    slm_error err = {0};
    int32_t id = -1;

    CHECK(sampler_draw(s, logits, hist, n_hist, &id, &err));
    return id;
}

static int32_t draw_once(struct sample_params p, const float *logits, int n, const int32_t *hist,
                         size_t n_hist)
{
    struct sampler *s = make(&p, n, ISA_SCALAR);
    const int32_t id = draw(s, logits, hist, n_hist);

    sampler_free(s);
    return id;
}

/* A history of any length in which no token matters. */
static int32_t history[4096];

/* Logits like those of a model: a few large ones, many small, some equal. */
static void random_logits(float *x, int n, struct rng *rng)
{
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int j = 0; j < 4; j++) {
            sum += rng_unit(rng_next(rng)) - 0.5;
        }
        x[i] = (float)(floor(sum * 600) / 64);
    }
}

/* ---- the plain version ------------------------------------------------------------- */

struct plain {
    double x, p, key;
    int id;
    bool in;
};

static int by_logit(const void *a, const void *b)
{
    const struct plain *x = a, *y = b;

    return x->x != y->x ? (x->x < y->x ? 1 : -1) : x->id - y->id;
}

static int by_key(const void *a, const void *b)
{
    const struct plain *x = a, *y = b;

    return x->key != y->key ? (x->key < y->key ? -1 : 1) : x->id - y->id;
}

static int by_id(const void *a, const void *b)
{
    return ((const struct plain *)a)->id - ((const struct plain *)b)->id;
}

static double mass(const struct plain *c, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++) {
        sum += c[i].in ? c[i].p : 0;
    }
    return sum;
}

/* In the order of c: those stay that are needed to reach the goal. */
static void plain_keep_mass(struct plain *c, int n, double goal)
{
    double sum = 0;
    bool reached = false;

    for (int i = 0; i < n; i++) {
        sum += c[i].in ? c[i].p : 0;
        const bool in = c[i].in;
        c[i].in = in && !reached;
        reached = reached || (in && sum >= goal);
    }
}

static void plain_typical(const struct sample_params *p, struct plain *c, int n)
{
    const double total = mass(c, n);
    double entropy = 0;

    for (int i = 0; i < n; i++) {
        entropy -= c[i].in ? c[i].p / total * log(c[i].p / total) : 0;
    }
    for (int i = 0; i < n; i++) {
        c[i].key = fabs(-log(c[i].p / total) - entropy);
    }
    qsort(c, (size_t)n, sizeof *c, by_key);
    plain_keep_mass(c, n, (double)p->typical_p * total);
    qsort(c, (size_t)n, sizeof *c, by_logit);
}

static void plain_xtc(const struct sample_params *p, struct plain *c, int n, size_t position)
{
    const double line = (double)p->xtc_threshold * mass(c, n);
    const uint64_t bits = rng_mix(rng_bits(p->seed, p->choice, position));
    int last = -1;

    if (rng_unit(bits) >= (double)p->xtc_probability) {
        return;
    }
    for (int i = 0; i < n; i++) {
        last = c[i].in && c[i].p >= line ? i : last;
    }
    for (int i = 0; i < last; i++) {
        c[i].in = false;
    }
}

/* The samplers that cut by probability, candidates by descending logit. */
static void plain_cut(const struct sample_params *p, struct plain *c, int n, size_t position)
{
    double best = 0;

    if (p->typical_p < 1) {
        plain_typical(p, c, n);
    }
    if (p->top_p < 1) {
        plain_keep_mass(c, n, (double)p->top_p * mass(c, n));
    }
    for (int i = 0; i < n; i++) {
        best = c[i].in && c[i].p > best ? c[i].p : best;
    }
    for (int i = 0; i < n; i++) {
        c[i].in = c[i].in && c[i].p >= (double)p->min_p * best;
    }
    if (p->xtc_probability > 0) {
        plain_xtc(p, c, n, position);
    }
}

static double bits_of_surprise(double p, double total)
{
    return -log2(p / total);
}

/* The chain without biases and penalties, by sorting everything; *mu is Mirostat's. */
static int plain_draw(const struct sample_params *p, const float *logits, int n, size_t position,
                      double *mu)
{
    struct plain *c = calloc((size_t)n, sizeof *c);

    for (int i = 0; i < n; i++) {
        c[i] = (struct plain){ .x = (double)logits[i], .id = i, .in = true };
    }
    qsort(c, (size_t)n, sizeof *c, by_logit);
    const double max = c[0].x;
    for (int i = 0; i < n; i++) {
        c[i].x = (double)((float)(c[i].x - max) * (1 / p->temperature));
        c[i].p = exp(c[i].x);
        c[i].in = p->top_k == 0 || i < p->top_k;
    }
    if (p->mirostat_tau > 0) {
        const double total = mass(c, n);
        for (int i = 0; i < n; i++) {
            c[i].in = c[i].in && (c[i].p == 1 || bits_of_surprise(c[i].p, total) <= *mu);
        }
    } else {
        plain_cut(p, c, n, position);
    }
    qsort(c, (size_t)n, sizeof *c, by_id);
    const double total = mass(c, n);
    const double point = rng_unit(rng_bits(p->seed, p->choice, position)) * total;
    double sum = 0;
    int id = 0;
    while (id < n - 1 && (sum += c[id].in ? c[id].p : 0) <= point) {
        id++;
    }
    if (p->mirostat_tau > 0) {
        *mu -= (double)p->mirostat_eta *
               (bits_of_surprise(c[id].p, total) - (double)p->mirostat_tau);
    }
    free(c);
    return id;
}

TEST(chain_equals_the_plain_version)
{
    enum { N = 1000 };
    const struct sample_params cases[] = {
        { .temperature = 1, .top_p = 1 },
        { .temperature = 0.6f, .top_p = 1 },
        { .temperature = 1.5f, .top_p = 1, .top_k = 1 },
        { .temperature = 1.5f, .top_p = 1, .top_k = 40 },
        { .temperature = 1, .top_p = 1, .top_k = N - 1 },
        { .temperature = 1, .top_p = 1, .top_k = N },
        { .temperature = 1, .top_p = 1, .top_k = 256 },
        { .temperature = 1, .top_p = 1, .top_k = 257 },
        { .temperature = 1, .top_p = 1, .top_k = N + 5 },
        { .temperature = 1, .top_p = 0.9f },
        { .temperature = 2, .top_p = 0.5f },
        { .temperature = 100, .top_p = 0.999f },
        { .temperature = 0.05f, .top_p = 0.9999999f },
        { .temperature = 1, .top_p = 0.001f },
        { .temperature = 1, .top_p = 0 },
        { .temperature = 1, .top_p = 1, .min_p = 0.05f },
        { .temperature = 1, .top_p = 1, .min_p = 1 },
        { .temperature = 0.8f, .top_p = 0.95f, .top_k = 40, .min_p = 0.02f },
        { .temperature = 1, .top_p = 1, .typical_p = 0.9f },
        { .temperature = 1, .top_p = 1, .typical_p = 0.2f },
        { .temperature = 0.3f, .top_p = 1, .typical_p = 0.5f, .top_k = 30 },
        { .temperature = 1, .top_p = 0.9f, .typical_p = 0.1f, .min_p = 0.5f },
        { .temperature = 2, .top_p = 0, .typical_p = 0.3f },
        { .temperature = 1, .top_p = 1, .xtc_probability = 1, .xtc_threshold = 0.02f },
        { .temperature = 1, .top_p = 1, .xtc_probability = 0.5f, .xtc_threshold = 0.05f },
        { .temperature = 1, .top_p = 1, .xtc_probability = 1, .xtc_threshold = 0 },
        { .temperature = 1, .top_p = 1, .xtc_probability = 1, .xtc_threshold = 0.5f },
        { .temperature = 1, .top_p = 0.8f, .xtc_probability = 0.7f, .xtc_threshold = 0.1f },
    };
    struct rng rng = { 7 };
    float x[N];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sample_params p = complete(cases[i]);
        p.seed = i + 1;
        struct sampler *s = make(&p, N, ISA_SCALAR);
        for (size_t pos = 0; pos < 20; pos++) {
            random_logits(x, N, &rng);
            CHECK_EQ(draw(s, x, history, pos), plain_draw(&p, x, N, pos, NULL));
        }
        sampler_free(s);
    }
}

TEST(equal_logits_are_cut_by_the_lower_id)
{
    enum { N = 300 };
    const struct sample_params cases[] = {
        { .temperature = 1, .top_p = 1, .top_k = 7 },
        { .temperature = 1, .top_p = 6.5f / N },
    };
    float x[N] = {0};

    for (size_t i = 0; i < 2; i++) {
        const struct sample_params p = complete(cases[i]);
        struct sampler *s = make(&p, N, ISA_SCALAR);
        bool seen[N] = {0};
        for (size_t pos = 0; pos < 200; pos++) {
            seen[draw(s, x, history, pos)] = true;
        }
        for (int id = 0; id < N; id++) {
            CHECK_EQ(seen[id], id < 7);
        }
        sampler_free(s);
    }
}

TEST(greedy_takes_the_largest_and_of_equals_the_first)
{
    struct sample_params p = neutral;
    const float x[] = { -1, 3, 2, 3, -INFINITY };

    p.temperature = 0;
    CHECK_EQ(draw_once(p, x, 5, NULL, 0), 1);
    p.top_k = 2;
    p.top_p = 0.5f;
    CHECK_EQ(draw_once(p, x, 5, NULL, 0), 1);
}

/* ---- penalties ------------------------------------------------------------------------ */

TEST(penalties_change_the_logits_as_documented)
{
    const int32_t hist[] = { 0, 1, 1, 1 };
    struct sample_params p = neutral;

    p.temperature = 0;
    p.repeat_penalty = 2;                       /* 4 / 2 < 2.5, -1 * 2 < -1.5 */
    CHECK_EQ(draw_once(p, (float[]){ 4, -9, 2.5f }, 3, hist, 1), 2);
    CHECK_EQ(draw_once(p, (float[]){ -1, -9, -1.5f }, 3, hist, 1), 2);
    CHECK_EQ(draw_once(p, (float[]){ 4, -9, 1.5f }, 3, hist, 1), 0);

    p = neutral;
    p.temperature = 0;
    p.presence_penalty = 1;                     /* once, however often it occurs */
    CHECK_EQ(draw_once(p, (float[]){ -9, 5, 4.5f }, 3, hist, 4), 2);
    CHECK_EQ(draw_once(p, (float[]){ -9, 5, 3.5f }, 3, hist, 4), 1);

    p.presence_penalty = 0;
    p.frequency_penalty = 1;                    /* three times */
    CHECK_EQ(draw_once(p, (float[]){ -9, 5, 2.5f }, 3, hist, 4), 2);
    CHECK_EQ(draw_once(p, (float[]){ -9, 5, 1.5f }, 3, hist, 4), 1);

    p.frequency_penalty = -1;                   /* an encouragement */
    CHECK_EQ(draw_once(p, (float[]){ -9, 0, 2.5f }, 3, hist, 4), 1);
}

TEST(penalties_look_at_their_window_only)
{
    const int32_t hist[] = { 0, 1, 2 };
    const float x[] = { 5, 4, 3, 0 };
    struct sample_params p = neutral;

    p.temperature = 0;
    p.presence_penalty = 10;
    p.penalty_window = 2;
    CHECK_EQ(draw_once(p, x, 4, hist, 3), 0);
    p.penalty_window = 3;
    CHECK_EQ(draw_once(p, x, 4, hist, 3), 3);
    p.penalty_window = -1;
    CHECK_EQ(draw_once(p, x, 4, hist, 3), 3);
    p.penalty_window = 0;
    CHECK_EQ(draw_once(p, x, 4, hist, 3), 0);

    /* Nothing is left over from one draw for the next. */
    p.penalty_window = -1;
    struct sampler *s = make(&p, 4, ISA_SCALAR);
    CHECK_EQ(draw(s, x, hist, 3), 3);
    CHECK_EQ(draw(s, x, hist, 0), 0);
    sampler_free(s);
}

TEST(penalties_cannot_make_infinity)
{
    const int32_t hist[] = { 1 };
    struct sample_params p = neutral;

    p.repeat_penalty = 0.01f;
    CHECK_EQ(draw_once(p, (float[]){ 0, 3e38f, 1 }, 3, hist, 1), 1);
}

/* ---- DRY ------------------------------------------------------------------------------ */

/* What DRY takes off token `id`, by comparing every place with the end. */
static double plain_dry(const struct sample_params *p, const int32_t *hist, int n, int32_t id)
{
    const int begin = p->dry_window < 0 || p->dry_window > n ? 0 : n - p->dry_window;
    int longest = 0;

    for (int i = begin; i < n; i++) {
        int len = 0;
        while (i - len > begin && hist[i - len - 1] == hist[n - len - 1]) {
            len++;
        }
        longest = hist[i] == id && len > longest ? len : longest;
    }
    longest = longest > 64 ? 64 : longest;
    return longest < p->dry_allowed ? 0 : (double)p->dry_multiplier *
                                              pow((double)p->dry_base, longest - p->dry_allowed);
}

TEST(dry_equals_the_plain_version)
{
    enum { N = 6, HIST = 300 };
    struct rng rng = { 21 };
    int32_t hist[HIST];
    int penalised = 0;

    for (int round = 0; round < 400; round++) {
        struct sample_params p = neutral;
        float x[N], y[N];
        const int alphabet = 1 + (int)(rng_next(&rng) % 4);
        for (int i = 0; i < HIST; i++) {
            hist[i] = (int32_t)(rng_next(&rng) % (uint64_t)alphabet);
        }
        p.temperature = 0;
        p.dry_multiplier = 0.75f;
        p.dry_base = round % 3 == 0 ? 1 : 1.3f;
        p.dry_allowed = 1 + round % 5;
        p.dry_window = round % 7 == 0 ? -1 : (int)(rng_next(&rng) % HIST);
        const int n = (int)(rng_next(&rng) % HIST);
        random_logits(x, N, &rng);
        int want = 0;
        for (int i = 0; i < N; i++) {
            y[i] = x[i] - (float)(p.dry_window == 0 ? 0 : plain_dry(&p, hist, n, i));
            penalised += y[i] != x[i];
            want = y[i] > y[want] ? i : want;
        }
        CHECK_EQ(draw_once(p, x, N, hist, (size_t)n), want);
    }
    CHECK(penalised > 100);
}

TEST(dry_is_bounded)
{
    enum { HIST = 100000 };
    int32_t *hist = calloc(HIST, sizeof *hist);
    struct sample_params p = neutral;

    p.temperature = 0;
    p.dry_multiplier = 100;
    p.dry_base = 100;
    CHECK_EQ(draw_once(p, (float[]){ 3e38f, -3e38f, -INFINITY }, 3, hist, HIST), 1);
    p.dry_allowed = INT_MAX;
    CHECK_EQ(draw_once(p, (float[]){ 2, 1, 0 }, 3, hist, HIST), 0);
    free(hist);
}

/* ---- logit bias ---------------------------------------------------------------------- */

TEST(biases_forbid_and_force)
{
    const float x[] = { 5, 4, 3, 0 };
    struct sample_params p = neutral;

    p.temperature = 0;
    p.logit_bias = (struct slm_bias[]){ { 0, -INFINITY }, { 2, 0.5f } };
    p.n_logit_bias = 2;
    CHECK_EQ(draw_once(p, x, 4, NULL, 0), 1);
    p.logit_bias = (struct slm_bias[]){ { 2, 1.25f }, { 2, 1.25f } };  /* both count */
    CHECK_EQ(draw_once(p, x, 4, NULL, 0), 2);
    p.temperature = 1;
    p.logit_bias = (struct slm_bias[]){ { 3, 100 } };
    p.n_logit_bias = 1;
    for (size_t pos = 0; pos < 50; pos++) {
        CHECK_EQ(draw_once(p, x, 4, history, pos), 3);
    }
}

TEST(biases_are_copied_and_cannot_forbid_all)
{
    struct slm_bias bias[] = { { 0, -INFINITY }, { 1, -INFINITY }, { 2, -100 } };
    struct sample_params p = neutral;
    slm_error err = {0};
    int32_t id;

    p.logit_bias = bias;
    p.n_logit_bias = 3;
    struct sampler *s = make(&p, 3, ISA_SCALAR);
    bias[2].bias = -INFINITY;
    CHECK_EQ(draw(s, (float[]){ 0, 0, -50 }, NULL, 0), 2);
    sampler_free(s);

    s = make(&p, 3, ISA_SCALAR);
    CHECK(!sampler_draw(s, (float[]){ 0, 0, 0 }, NULL, 0, &id, &err));
    CHECK_EQ(err.code, SLM_E_NUMERIC);
    CHECK(strstr(err.msg, "biases") != NULL);
    sampler_free(s);
}

/* ---- Mirostat ------------------------------------------------------------------------- */

TEST(mirostat_equals_the_plain_version)
{
    enum { N = 500, STEPS = 200 };
    const float taus[] = { 0.1f, 2, 5, 100 };
    struct rng rng = { 31 };
    float x[N];
    int32_t hist[STEPS + 10] = {0};

    for (size_t k = 0; k < 4; k++) {
        struct sample_params p = neutral;
        p.mirostat_tau = taus[k];
        p.mirostat_eta = k == 1 ? 1 : 0.1f;
        p.top_k = k == 2 ? 50 : 0;
        p.top_p = 0.0001f;  /* not heeded */
        p.xtc_probability = 1;
        struct sampler *s = make(&p, N, ISA_SCALAR);
        double mu = 2 * (double)p.mirostat_tau;
        for (size_t pos = 10; pos < STEPS; pos++) {
            random_logits(x, N, &rng);
            hist[pos] = draw(s, x, hist, pos);
            CHECK_EQ(hist[pos], plain_draw(&p, x, N, pos, &mu));
        }
        sampler_free(s);
    }
}

/* The logits after a history, as a model would have them. */
static void logits_after(float *x, int n_vocab, const int32_t *hist, size_t n)
{
    struct rng rng = { 77 };

    for (size_t i = 0; i < n; i++) {
        rng.state = rng_mix(rng.state ^ (uint64_t)hist[i]);
    }
    random_logits(x, n_vocab, &rng);
}

TEST(mirostat_gives_the_same_with_drafts_and_repetitions)
{
    enum { N = 200, END = 120, BEGIN = 5 };
    struct sample_params p = neutral;
    int32_t plain[END] = {0}, other[END] = {0};
    float x[N];
    struct rng rng = { 5 };

    p.mirostat_tau = 3;
    p.mirostat_eta = 0.5f;
    struct sampler *s = make(&p, N, ISA_SCALAR);
    for (size_t pos = BEGIN; pos < END; pos++) {
        logits_after(x, N, plain, pos);
        plain[pos] = draw(s, x, plain, pos);
    }
    /* The same sampler goes over it again: back to the beginning, twice at a place, after a
     * wrong draft, and back by some tokens. */
    int differ = 0;
    for (size_t pos = BEGIN; pos < END; pos++) {
        memcpy(other, plain, sizeof other);
        other[pos] = (plain[pos] + 1) % N;
        logits_after(x, N, other, pos + 1);
        draw(s, x, other, pos + 1);
        const size_t back = BEGIN + rng_next(&rng) % (pos - BEGIN + 1);
        for (size_t again = back; again <= pos; again++) {
            logits_after(x, N, plain, again);
            differ += draw(s, x, plain, again) != plain[again];
        }
    }
    CHECK_EQ(differ, 0);
    sampler_free(s);

    /* A history that this sampler did not draw begins anew. */
    s = make(&p, N, ISA_SCALAR);
    logits_after(x, N, plain, END);
    double mu = 6;
    CHECK_EQ(draw(s, x, plain, END), plain_draw(&p, x, N, END, &mu));
    sampler_free(s);
}

/* ---- the draw ---------------------------------------------------------------------------- */

TEST(draw_depends_on_seed_choice_and_position_only)
{
    enum { N = 500 };
    struct sample_params p = neutral;
    struct rng rng = { 3 };
    float x[N], other[N];
    int32_t alone[50];
    int differ_seed = 0, differ_choice = 0, differ_position = 0;

    random_logits(x, N, &rng);
    random_logits(other, N, &rng);
    for (size_t pos = 0; pos < 50; pos++) {
        alone[pos] = draw_once(p, x, N, history, pos);
    }
    struct sampler *s = make(&p, N, ISA_SCALAR);
    for (size_t pos = 50; pos-- > 0;) {
        draw(s, other, history, pos);
        CHECK_EQ(draw(s, x, history, pos), alone[pos]);
    }
    sampler_free(s);
    for (size_t pos = 0; pos < 50; pos++) {
        p = neutral;
        p.seed = 43;
        differ_seed += draw_once(p, x, N, history, pos) != alone[pos];
        p = neutral;
        p.choice = 1;
        differ_choice += draw_once(p, x, N, history, pos) != alone[pos];
        differ_position += alone[pos] != alone[0];
    }
    CHECK(differ_seed > 25 && differ_choice > 25 && differ_position > 25);
}

TEST(draws_have_the_probabilities)
{
    enum { N = 700, DRAWS = 10000 };
    struct sampler *s = make(&neutral, N, ISA_SCALAR);
    float x[N];
    int count[N] = {0};
    double total = 0;

    for (int i = 0; i < N; i++) {
        x[i] = (float)(i % 10) * 0.5f;
        total += exp((double)x[i]);
    }
    for (size_t pos = 0; pos < DRAWS; pos++) {
        count[draw(s, x, history, pos)]++;
    }
    sampler_free(s);
    for (int residue = 0; residue < 10; residue++) {
        double want = 0, got = 0;
        for (int i = residue; i < N; i += 10) {
            want += DRAWS * exp((double)x[i]) / total;
            got += count[i];
        }
        CHECK(fabs(got - want) < 5 * sqrt(want));
    }
}

TEST(extreme_temperatures_are_fine)
{
    const float x[] = { 1, 2, -3e38f, -INFINITY };
    struct sample_params p = neutral;

    p.temperature = 1e-44f;
    CHECK_EQ(draw_once(p, x, 4, NULL, 0), 1);
    p.temperature = 100;
    for (size_t pos = 0; pos < 100; pos++) {
        CHECK(draw_once(p, x, 4, history, pos) <= 1);
    }
}

TEST(every_instruction_set_draws_the_same)
{
    enum { N = 3001 };
    struct sample_params p = neutral;
    struct rng rng = { 11 };
    float x[N];

    p.temperature = 0.9f;
    p.top_p = 0.97f;
    p.min_p = 0.001f;
    p.repeat_penalty = 1.1f;
    p.typical_p = 0.95f;
    p.xtc_probability = 0.5f;
    p.xtc_threshold = 0.05f;
    p.dry_multiplier = 1;
    struct sampler *scalar = make(&p, N, ISA_SCALAR);
    for (enum isa isa = ISA_SCALAR; isa <= cpu_isa_best(); isa++) {
        struct sampler *s = make(&p, N, isa);
        for (size_t pos = 0; pos < 30; pos++) {
            random_logits(x, N, &rng);
            CHECK_EQ(draw(s, x, history, pos), draw(scalar, x, history, pos));
        }
        sampler_free(s);
    }
    sampler_free(scalar);
}

TEST(drawing_does_not_allocate)
{
    enum { N = 1000 };
    struct sample_params p = neutral;
    struct rng rng = { 5 };
    float x[N];

    p.top_k = 40;
    p.top_p = 0.9f;
    p.min_p = 0.01f;
    p.frequency_penalty = 0.5f;
    p.typical_p = 0.9f;
    p.xtc_probability = 0.5f;
    p.dry_multiplier = 1;
    struct sampler *s = make(&p, N, ISA_SCALAR);
    random_logits(x, N, &rng);
    const long before = mem_count();
    for (size_t pos = 0; pos < 20; pos++) {
        draw(s, x, history, pos);
    }
    CHECK_EQ(mem_count(), before);
    sampler_free(s);
}

/* ---- what is refused ----------------------------------------------------------------------- */

TEST(broken_logits_are_errors)
{
    struct sampler *s = make(&neutral, 3, ISA_SCALAR);
    const float bad[][3] = {
        { 0, NAN, 1 }, { 0, INFINITY, 1 }, { -INFINITY, -INFINITY, -INFINITY },
    };

    for (int i = 0; i < 3; i++) {
        slm_error err = {0};
        int32_t id;
        CHECK(!sampler_draw(s, bad[i], NULL, 0, &id, &err));
        CHECK_EQ(err.code, SLM_E_NUMERIC);
    }
    sampler_free(s);
}

static void check_refused(struct sample_params p, const char *name)
{
    slm_error err = {0};

    CHECK(sampler_new(&p, 10, kern_get(ISA_SCALAR), &err) == NULL);
    CHECK_EQ(err.code, SLM_E_ARG);
    CHECK(strstr(err.msg, strncmp(name, "n_", 2) == 0 ? name + 2 : name) != NULL);
}

#define REFUSED(field, value)                                                                \
    do {                                                                                     \
        struct sample_params p_ = neutral;                                                   \
        p_.field = (value);                                                                  \
        check_refused(p_, #field);                                                           \
    } while (0)

TEST(values_out_of_range_are_named)
{
    REFUSED(temperature, -0.1f);
    REFUSED(temperature, 999999);
    REFUSED(temperature, NAN);
    REFUSED(top_k, -5);
    REFUSED(top_p, -1);
    REFUSED(top_p, 1.5f);
    REFUSED(top_p, NAN);
    REFUSED(min_p, -0.5f);
    REFUSED(min_p, 2);
    REFUSED(repeat_penalty, 0);
    REFUSED(repeat_penalty, NAN);
    REFUSED(presence_penalty, INFINITY);
    REFUSED(frequency_penalty, -INFINITY);
    REFUSED(penalty_window, -2);
    REFUSED(typical_p, 1.1f);
    REFUSED(xtc_probability, -0.1f);
    REFUSED(xtc_threshold, 0.6f);
    REFUSED(dry_multiplier, -1);
    REFUSED(dry_base, 0.9f);
    REFUSED(dry_allowed, 0);
    REFUSED(dry_window, -2);
    REFUSED(mirostat_tau, NAN);
    REFUSED(mirostat_eta, 1.1f);
    REFUSED(n_logit_bias, 1);
    const struct slm_bias bad[] = { { -1, 0 }, { 10, 0 }, { 0, 101 }, { 0, NAN }, { 0, INFINITY } };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct sample_params p = neutral;
        p.logit_bias = &bad[i];
        p.n_logit_bias = 1;
        check_refused(p, "logit_bias");
    }
}

/* Allows the ids that leave the remainder `n` when divided by 7; from the fourth token on none. */
static bool allow_sevenths(void *arg, const int32_t *ids, size_t n, uint64_t *bits, slm_error *err)
{
    const int n_vocab = *(const int *)arg;

    CHECK(n == 0 || ids[n - 1] == history[n + 9]);
    memset(bits, 0, ((size_t)n_vocab + 63) / 64 * sizeof *bits);
    for (int i = (int)n; n < 3 && i < n_vocab; i += 7) {
        bits[i / 64] |= (uint64_t)1 << i % 64;
    }
    return n != 4 || slm_fail(err, SLM_E_ARG, "no such history");
}

TEST(constraint_leaves_only_what_it_allows)
{
    enum { N = 1000 };
    int n = N;
    const struct constraint c = { .allow = allow_sevenths, .arg = &n, .start = 10 };
    const struct sample_params params[] = {
        neutral,
        { .temperature = 0, .top_p = 1, .repeat_penalty = 1 },
        { .temperature = 1.5f, .top_k = 300, .top_p = 0.999f, .min_p = 0.001f,
          .repeat_penalty = 1.3f, .presence_penalty = -1, .penalty_window = -1 },
    };
    struct rng rng = {5};
    float x[N];

    for (size_t i = 0; i < 3; i++) {
        const struct sample_params p = complete(params[i]);
        struct sampler *s = make(&p, N, ISA_SCALAR);
        slm_error err = {0};
        int32_t id;

        CHECK(sampler_constrain(s, &c, &err));
        for (int round = 0; round < 100; round++) {
            random_logits(x, N, &rng);
            x[round] = 1000;  /* what would be drawn without it */
            for (int32_t at = 0; at < 3; at++) {
                CHECK_EQ(draw(s, x, history, 10 + (size_t)at) % 7, at);
            }
        }
        CHECK_EQ(draw(s, x, history, 9), 99);  /* before its start */
        CHECK(!sampler_draw(s, x, history, 13, &id, &err));
        CHECK(strstr(err.msg, "allows none") != NULL);
        CHECK(!sampler_draw(s, x, history, 14, &id, &err));
        CHECK_STR(err.msg, "no such history");
        CHECK(sampler_constrain(s, NULL, &err));
        CHECK_EQ(draw(s, x, history, 13), 99);
        sampler_free(s);
    }
}

TEST(failed_allocations_are_errors)
{
    long n = 1;

    for (;; n++) {
        slm_error err = {0};
        mem_fail_after(n);
        struct sample_params p = neutral;
        p.mirostat_tau = 5;
        struct sampler *s = sampler_new(&p, 100, kern_get(ISA_SCALAR), &err);
        mem_fail_after(0);
        if (s) {
            sampler_free(s);
            break;
        }
        CHECK_EQ(err.code, SLM_E_NOMEM);
    }
    CHECK(n > 1);
}

int main(void)
{
    return RUN(T(chain_equals_the_plain_version), T(equal_logits_are_cut_by_the_lower_id),
               T(greedy_takes_the_largest_and_of_equals_the_first),
               T(penalties_change_the_logits_as_documented),
               T(penalties_look_at_their_window_only), T(penalties_cannot_make_infinity),
               T(dry_equals_the_plain_version), T(dry_is_bounded), T(biases_forbid_and_force),
               T(biases_are_copied_and_cannot_forbid_all), T(mirostat_equals_the_plain_version),
               T(mirostat_gives_the_same_with_drafts_and_repetitions),
               T(draw_depends_on_seed_choice_and_position_only), T(draws_have_the_probabilities),
               T(extreme_temperatures_are_fine), T(every_instruction_set_draws_the_same),
               T(drawing_does_not_allocate), T(broken_logits_are_errors),
               T(constraint_leaves_only_what_it_allows),
               T(values_out_of_range_are_named), T(failed_allocations_are_errors));
}

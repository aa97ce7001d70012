/* test_batch.c - a request's tokens and log-probabilities are the same alone, in company, cached
 * and interrupted; and every way in which a request ends.
 *
 * What is compared with is a session and a sampler, one request at a time. */
#include "test.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/api.h"
#include "base/cpu.h"
#include "base/rng.h"
#include "run/batch.h"
#include "tiny_model.h"

enum { CONTEXT = 512, ANSWER_MAX = 64 };

/* Models whose sequences keep different things: keys and values, those of a window, recurrent
 * states, and experts beside. */
static const char *const archs[] = { "llama", "gemma3", "qwen35", "qwen3moe" };
enum { N_ARCH = sizeof archs / sizeof *archs };

static struct fixture {
    slm_engine *engine;
    slm_model *models[N_ARCH];
} fx;

/* The token whose input to the layers is NaN in the model made for that. */
enum { BROKEN_TOKEN = 300 };

/* Writes NaN over what the layers get of a token (its embedding may be a row of the output too, and
 * would break all logits); false where the file does not have it as expected. */
static bool break_token(const char *path, int token)
{
    struct gguf *g = gguf_open(path, NULL);
    const struct gguf_tensor *t = g ? gguf_find_tensor(g, "per_layer_token_embd.weight") : NULL;
    const float nan = NAN;
    FILE *f = t && t->type == QT_F32 ? fopen(path, "r+") : NULL;
    bool ok = f && fseek(f, (long)t->offset + (long)t->ne[0] * token * 4, SEEK_SET) == 0 &&
              fwrite(&nan, sizeof nan, 1, f) == 1;

    ok = f && fclose(f) == 0 && ok;
    gguf_close(g);
    return ok;
}

static slm_model *make_model(const char *name, uint32_t type, int broken_token)
{
    struct tiny_shape shape = TINY_SHAPE;
    const slm_model_params params = { .pack = SLM_PACK_WAIT };
    char path[] = "/tmp/slm-batch-XXXXXX";
    const int fd = mkstemp(path);
    slm_error err = { SLM_E_OK, -1, "" };

    if (fd >= 0) {
        close(fd);
    }
    if (strcmp(name, "gemma3") == 0) {
        shape.layers = 6;  /* every sixth one sees all keys */
    }
    slm_model *m = fd >= 0 && tiny_model_write(path, arch_find(name, strlen(name)),
                                               quant_type(type), &shape, &err) &&
                   (broken_token < 0 || break_token(path, broken_token))
                   ? slm_model_open(fx.engine, path, &params, &err) : NULL;
    unlink(path);
    if (!m) {
        fprintf(stderr, "%s: %s\n", name, err.msg);
    }
    return m;
}

static int setup(void **state)
{
    (void)state;
    fx.engine = slm_engine_new(&(slm_engine_params){ .threads = 2 }, NULL);
    for (int i = 0; fx.engine && i < N_ARCH; i++) {
        fx.models[i] = make_model(archs[i], QT_Q4_0, -1);
        if (!fx.models[i]) {
            return -1;
        }
    }
    return fx.engine ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < N_ARCH; i++) {
        slm_model_free(fx.models[i]);
    }
    slm_engine_free(fx.engine);
    return 0;
}

/* ---- clients ---------------------------------------------------------------------------- */

/* One request, what it asked and what it was told. */
struct client {
    int32_t prompt[CONTEXT];
    int n_prompt;
    slm_request request;
    uint64_t id;
    int32_t out[CONTEXT];
    slm_logprob chosen[CONTEXT], top[CONTEXT][3];
    int n_out, n_ends;
    int stop_after;           /* tokens after which it does not want more; 0: never */
    slm_finish finish;
    slm_error error;
    size_t n_cached;
};

static bool on_event(void *arg, const slm_event *e)
{
    struct client *c = arg;

    CHECK_EQ(c->n_ends, 0);   /* nothing comes after the end */
    CHECK_EQ(e->request, c->id);
    CHECK_EQ(e->n_prompt, (size_t)c->n_prompt);
    if (e->finish != SLM_FINISH_NONE) {
        c->n_ends++;
        c->finish = e->finish;
        CHECK_EQ(e->n_out, (size_t)c->n_out);
        CHECK_EQ(e->error != NULL, e->finish == SLM_FINISH_ERROR);
        CHECK(e->finish == SLM_FINISH_END || e->id == -1);
        if (e->error) {
            c->error = *e->error;
        }
        c->n_cached = e->n_cached;
        return true;
    }
    c->out[c->n_out] = e->id;
    c->chosen[c->n_out] = e->chosen;
    for (int i = 0; i < e->n_top && i < 3; i++) {
        c->top[c->n_out][i] = e->top[i];
    }
    c->n_out++;
    CHECK_EQ(e->n_out, (size_t)c->n_out);
    return c->n_out != c->stop_after;
}

/* A request of n tokens that depend on `seed`, or begin with the tokens that depend on `family`. */
static void client_init(struct client *c, slm_model *m, uint64_t seed, int n, int n_family)
{
    struct rng family = { 77 }, own = { seed * 1000 };
    slm_model_info info;

    slm_model_info_get(m, &info);
    memset(c, 0, sizeof *c);
    c->n_prompt = n;
    for (int i = 0; i < n; i++) {
        const uint64_t x = rng_next(i < n_family ? &family : &own);
        c->prompt[i] = (int32_t)(x % (uint64_t)info.n_vocab);
    }
    c->request = (slm_request){
        .ids = c->prompt, .n_ids = (size_t)n, .max_tokens = 12, .n_top = 3, .ignore_end = true,
        .on_event = on_event, .arg = c,
    };
    slm_sampling_default(m, &c->request.sampling);
    c->request.sampling.temperature = seed % 3 == 0 ? 0.0f : 1.0f;
    c->request.sampling.seed = seed;
    c->request.sampling.repeat_penalty = seed % 2 == 0 ? 1.0f : 1.2f;
}

static void submit(slm_batch *b, struct client *c)
{
    slm_error err = {0};

    if (!slm_batch_submit(b, &c->request, &c->id, &err)) {
        fail_msg("%s", err.msg);
    }
}

static bool step(slm_batch *b)
{
    slm_error err = {0};
    bool more = false;

    if (!slm_batch_step(b, &more, &err)) {
        fail_msg("%s", err.msg);
    }
    return more;
}

static void drain(slm_batch *b)
{
    while (step(b)) {
    }
}

static slm_batch *make(slm_model *m, slm_batch_params params)
{
    slm_error err = {0};

    params.context = params.context > 0 ? params.context : CONTEXT;
    slm_batch *b = slm_batch_new(m, &params, &err);
    if (!b) {
        fail_msg("%s", err.msg);
    }
    return b;
}

/* The request's tokens by a session and a sampler; log-probabilities in double precision are near
 * those told. */
static void check_alone(slm_model *m, const struct client *c, slm_kv_type kv)
{
    const slm_session_params params = { .context = CONTEXT, .kv = kv };
    slm_session *s = slm_session_new(m, &params, NULL);
    slm_sampler *sampler = slm_sampler_new(m, &c->request.sampling, NULL);
    slm_model_info info;

    slm_model_info_get(m, &info);
    CHECK(s && sampler);
    CHECK(slm_sampler_guide(sampler, c->request.guide, (size_t)c->n_prompt, NULL));
    CHECK(slm_session_feed(s, c->prompt, (size_t)c->n_prompt, NULL));
    for (int i = 0; i < c->n_out; i++) {
        const float *x = slm_session_logits(s);
        double sum = 0;
        int32_t id;

        CHECK(slm_sample(sampler, s, &id, NULL));
        CHECK_EQ(c->out[i], id);
        for (int j = 0; j < info.n_vocab; j++) {
            sum += exp((double)x[j] - (double)x[id]);
        }
        if (c->request.n_top >= 0) {
            CHECK_EQ(c->chosen[i].id, id);
            CHECK(fabs((double)c->chosen[i].logprob + log(sum)) < 1e-4);
        }
        CHECK(slm_session_feed(s, &id, 1, NULL));
    }
    slm_sampler_free(sampler);
    slm_session_free(s);
}

/* The same request in a batch of its own says the same, to the bit. */
static void check_equal(slm_model *m, const struct client *c, slm_kv_type kv)
{
    static struct client alone;
    slm_batch *b = make(m, (slm_batch_params){ .parallel = 1, .chunk = 512, .kv = kv });

    alone = *c;
    alone.n_out = alone.n_ends = alone.stop_after = 0;
    alone.request.ids = alone.prompt;
    alone.request.arg = &alone;
    submit(b, &alone);
    drain(b);
    CHECK(alone.n_out >= c->n_out);
    CHECK_MEM(alone.out, c->out, (size_t)c->n_out * sizeof *c->out);
    CHECK_MEM(alone.chosen, c->chosen, (size_t)c->n_out * sizeof *c->chosen);
    CHECK_MEM(alone.top, c->top, (size_t)c->n_out * sizeof *c->top);
    slm_batch_free(b);
}

/* ---- equality ---------------------------------------------------------------------------- */

/* The least bound that a batch accepts. */
static uint64_t least_bytes(const slm_model *m, slm_batch_params params)
{
    const struct batch_params p = {
        .context = CONTEXT, .parallel = params.parallel, .chunk = params.chunk,
        .kv = api_kv_type(params.kv),
    };

    return batch_cost(m->model, &p).cache_least;
}

enum { N_RANDOM = 9 };

/* Requests come at random steps, some are cancelled or stop by themselves. */
static slm_batch_stats random_schedule(slm_model *m, uint64_t seed, slm_batch_params params)
{
    static struct client c[N_RANDOM];
    struct rng rng = { seed };
    slm_batch *b = make(m, params);
    slm_batch_stats stats;
    int next = 0;

    for (int i = 0; i < N_RANDOM; i++) {
        const int n = 1 + (int)(rng_next(&rng) % 250);
        client_init(&c[i], m, seed + (uint64_t)i, n, (int)(rng_next(&rng) % 3) * 100);
        c[i].stop_after = rng_next(&rng) % 8 == 0 ? 3 : 0;
        c[i].request.max_tokens = 1 + (int)(rng_next(&rng) % 40);
    }
    for (bool more = true; more || next < N_RANDOM;) {
        while (next < N_RANDOM && rng_next(&rng) % 2 == 0) {
            submit(b, &c[next++]);
        }
        more = step(b);
        if (next > 0 && rng_next(&rng) % 64 == 0) {
            slm_batch_cancel(b, c[rng_next(&rng) % (uint64_t)next].id);
        }
        slm_batch_stats_get(b, &stats);
        CHECK(stats.cache_bytes <= stats.cache_bytes_max);
        CHECK(stats.running <= params.parallel);
    }
    CHECK_EQ(stats.requests, N_RANDOM);
    CHECK_EQ(stats.finished + stats.cancelled, N_RANDOM);
    CHECK_EQ(stats.running + stats.waiting, 0);
    slm_batch_free(b);
    for (int i = 0; i < N_RANDOM; i++) {
        CHECK_EQ(c[i].n_ends, 1);
        CHECK(c[i].finish != SLM_FINISH_LENGTH || c[i].n_out == c[i].request.max_tokens);
        CHECK(c[i].finish != SLM_FINISH_STOPPED || c[i].n_out == 3);
        check_alone(m, &c[i], params.kv);
        check_equal(m, &c[i], params.kv);
    }
    return stats;
}

/* Sanitizers are slow: there an architecture has one of the three seeds, such that each kind of
 * cache comes up and some prompts are found again. */
static bool has_seed(int arch, uint64_t seed)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    return (uint64_t)(arch + 1) % 3 + 1 == seed;
#else
    (void)arch;
    (void)seed;
    return true;
#endif
}

TEST(company_and_order_never_show)
{
    for (int i = 0; i < N_ARCH; i++) {
        for (uint64_t seed = 1; seed <= 3; seed++) {
            if (!has_seed(i, seed)) {
                continue;
            }
            random_schedule(fx.models[i], seed * 31, (slm_batch_params){
                .parallel = 1 + (int)(seed * 2), .chunk = seed == 1 ? 0 : (int)seed * 9,
                .kv = seed == 2 ? SLM_KV_F32 : seed == 3 ? SLM_KV_Q8_0 : SLM_KV_F16,
            });
        }
    }
}

/* With pages for one request only, requests have to go back to the queue; some of what they had
 * is computed again. */
TEST(short_of_pages_nothing_changes)
{
    uint64_t cached = 0, rows = 0;

    for (int i = 0; i < N_ARCH; i++) {
        for (uint64_t seed = 1; seed <= 3; seed++) {
            if (!has_seed(i, seed)) {
                continue;
            }
            slm_batch_params params = { .parallel = 5, .chunk = 40 };
            params.cache_bytes = least_bytes(fx.models[i], params) * (9 + seed) / 10;
            const slm_batch_stats s = random_schedule(fx.models[i], seed * 37, params);
            cached += s.cached_tokens;
            rows += s.rows + s.cached_tokens - s.prompt_tokens;
            rows -= s.answer_tokens;
        }
    }
    printf("%d tokens cached, %d computed again\n", (int)cached, (int)rows);
    CHECK(cached > 0);
    CHECK((int64_t)rows > 0);
}

TEST(drafts_change_nothing)
{
    slm_draft_stats sum = { 0 };

    for (int i = 0; i < N_ARCH; i++) {
        const bool block = model_shape(fx.models[i]->model)->can_draft;
        const int last = block ? SLM_DRAFT_MTP : SLM_DRAFT_NGRAM;
        for (int kind = SLM_DRAFT_NGRAM; kind <= last; kind++) {
            const slm_batch_stats s = random_schedule(fx.models[i], 41, (slm_batch_params){
                .parallel = 3, .draft = { .kind = (slm_draft_kind)kind, .max = 4 },
            });
            sum.drafted += s.draft.drafted;
            sum.accepted += s.draft.accepted;
        }
    }
    CHECK(model_shape(fx.models[2]->model)->can_draft);
    printf("%d of %d drafts were right\n", (int)sum.accepted, (int)sum.drafted);
    CHECK(sum.accepted > 0);
    CHECK(sum.accepted < sum.drafted);
}

/* ---- cache -------------------------------------------------------------------------------- */

/* Runs a request of n tokens, n_family of them common to all; tokens of it that were cached. */
static size_t cached_of(slm_model *m, slm_batch *b, uint64_t seed, int n, int n_family)
{
    static struct client c;

    client_init(&c, m, seed, n, n_family);
    submit(b, &c);
    drain(b);
    CHECK_EQ(c.finish, SLM_FINISH_LENGTH);
    check_alone(m, &c, SLM_KV_F16);
    return c.n_cached;
}

TEST(a_prompt_is_found_again)
{
    for (int i = 0; i < N_ARCH; i++) {
        slm_model *m = fx.models[i];
        slm_batch *b = make(m, (slm_batch_params){ .parallel = 2 });
        const bool states = model_shape(m->model)->n_state > 0;

        CHECK_EQ(cached_of(m, b, 1, 230, 150), 0);
        CHECK_EQ(cached_of(m, b, 1, 230, 150), states ? 192 : 229);
        /* Another prompt with the same beginning: the first to part from it computes it again
         * where states are needed, and keeps them there. */
        CHECK_EQ(cached_of(m, b, 2, 230, 150), states ? 0 : 150);
        CHECK_EQ(cached_of(m, b, 3, 230, 150), states ? 128 : 150);
        CHECK_EQ(cached_of(m, b, 4, 20, 0), 0);
        CHECK_EQ(cached_of(m, b, 4, 20, 0), states ? 0 : 19);
        slm_batch_free(b);
    }
}

/* Two requests with one prompt: the second one waits for the first one's pages. */
TEST(a_prompt_at_work_is_not_computed_twice)
{
    static struct client c[2];
    slm_batch *b = make(fx.models[0], (slm_batch_params){ .parallel = 2 });
    slm_batch_stats stats;

    for (uint64_t i = 0; i < 2; i++) {
        client_init(&c[i], fx.models[0], 3, 200, 0);
        c[i].request.sampling.choice = i;
        submit(b, &c[i]);
    }
    drain(b);
    slm_batch_stats_get(b, &stats);
    CHECK_EQ(c[1].n_cached, 192);
    CHECK_EQ(stats.cached_tokens, 192);
    CHECK_EQ(stats.rows, 200 + 8 + 2 * 11);
    slm_batch_free(b);
}

/* ---- guides -------------------------------------------------------------------------------- */

/* Guided requests say what the guide allows and what they say alone, with drafts or without, and
 * those beside them what they say alone. */
TEST(guides_hold_in_company_and_with_drafts)
{
    static struct client c[6];
    static const char choices[] = "[\"abab\", \"cabbage\", \"dada\"]";
    static const char regex[] = "[a-z]{3,8}( [0-9]+){2,4}";
    slm_model *m = fx.models[0];
    slm_error err = {0};
    slm_guide *guide[] = {
        NULL, slm_guide_new(m, SLM_GUIDE_CHOICES, choices, sizeof choices - 1, &err),
        slm_guide_new(m, SLM_GUIDE_REGEX, regex, sizeof regex - 1, &err),
    };

    CHECK(guide[1] && guide[2]);
    for (int kind = SLM_DRAFT_OFF; kind <= SLM_DRAFT_NGRAM; kind++) {
        slm_batch *b = make(m, (slm_batch_params){
            .parallel = 4, .draft = { .kind = (slm_draft_kind)kind, .max = 3 },
        });
        for (uint64_t i = 0; i < 6; i++) {
            client_init(&c[i], m, i + 1, 30, 0);
            c[i].request.guide = guide[i % 3];
            c[i].request.ignore_end = i % 3 == 0;
            submit(b, &c[i]);
        }
        drain(b);
        for (int i = 0; i < 6; i++) {
            check_alone(m, &c[i], SLM_KV_F16);
        }
        for (int i = 1; i < 6; i += 3) {
            size_t n;
            char *text = slm_detokenize(m, c[i].out, (size_t)c[i].n_out, false, &n, NULL);
            CHECK_EQ(c[i].finish, SLM_FINISH_END);
            CHECK(n > 0 && strstr(choices, text) != NULL);
            slm_free(text);
        }
        c[1].request.ignore_end = true;
        CHECK(!slm_batch_submit(b, &c[1].request, NULL, &err));
        CHECK(strstr(err.msg, "ignore_end") != NULL);
        slm_batch_free(b);
    }
    slm_guide_free(guide[1]);
    slm_guide_free(guide[2]);
}

/* ---- ends ----------------------------------------------------------------------------------- */

TEST(every_end_is_told_once)
{
    static struct client c[4];
    slm_model *m = fx.models[0];
    slm_batch *b = make(m, (slm_batch_params){ .parallel = 2, .chunk = 8 });

    for (uint64_t i = 0; i < 4; i++) {
        client_init(&c[i], m, i + 1, 30, 0);
    }
    c[1].stop_after = 2;
    c[2].request.max_tokens = 0;   /* until the context is full */
    for (int i = 0; i < 4; i++) {
        submit(b, &c[i]);
    }
    step(b);
    slm_batch_cancel(b, c[3].id);  /* while it waits */
    CHECK_EQ(c[3].finish, SLM_FINISH_CANCELLED);
    CHECK_EQ(c[3].n_ends, 1);
    slm_batch_cancel(b, c[3].id);  /* nothing happens */
    slm_batch_cancel(b, 12345);
    drain(b);
    CHECK_EQ(c[0].finish, SLM_FINISH_LENGTH);
    CHECK_EQ(c[0].n_out, 12);
    CHECK_EQ(c[1].finish, SLM_FINISH_STOPPED);
    CHECK_EQ(c[1].n_out, 2);
    CHECK_EQ(c[2].finish, SLM_FINISH_LENGTH);
    CHECK_EQ(c[2].n_prompt + c[2].n_out, CONTEXT);
    check_alone(m, &c[2], SLM_KV_F16);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(c[i].n_ends, 1);
    }
    slm_batch_free(b);
}

TEST(a_token_that_ends_the_answer_comes_with_the_end)
{
    static struct client c;
    slm_model *m = fx.models[0];
    slm_model_info info;
    slm_batch *b = make(m, (slm_batch_params){ .parallel = 1 });

    slm_model_info_get(m, &info);
    CHECK(info.eos >= 0);
    const struct slm_bias force = { info.eos, 100 };
    client_init(&c, m, 4, 10, 0);
    c.request.ignore_end = false;
    c.request.sampling.logit_bias = &force;
    c.request.sampling.n_logit_bias = 1;
    submit(b, &c);
    drain(b);
    CHECK_EQ(c.finish, SLM_FINISH_END);
    CHECK_EQ(c.n_out, 0);
    slm_batch_free(b);
}

/* Submits another request at its end, and cancels a third one with its first token. */
struct chain {
    slm_batch *batch;
    struct client *next;
    uint64_t victim;
    bool *more_fails;
};

static bool on_chain(void *arg, const slm_event *e)
{
    struct chain *c = arg;
    bool more;

    *c->more_fails = !slm_batch_step(c->batch, &more, NULL);
    if (e->finish == SLM_FINISH_NONE) {
        slm_batch_cancel(c->batch, c->victim);
    } else {
        submit(c->batch, c->next);
    }
    return true;
}

TEST(events_may_submit_and_cancel)
{
    static struct client first, next, victim;
    slm_model *m = fx.models[0];
    slm_batch *b = make(m, (slm_batch_params){ .parallel = 2, .queue = 1 });
    bool fails = false;
    struct chain chain = { b, &next, 0, &fails };

    client_init(&first, m, 1, 5, 0);
    client_init(&victim, m, 2, 5, 0);
    client_init(&next, m, 3, 5, 0);
    first.request.on_event = on_chain;
    first.request.arg = &chain;
    submit(b, &first);
    submit(b, &victim);
    chain.victim = victim.id;
    step(b);
    CHECK(fails);   /* a step inside a step is refused */
    CHECK_EQ(victim.finish, SLM_FINISH_CANCELLED);
    CHECK(victim.n_out <= 1);
    drain(b);
    CHECK_EQ(next.finish, SLM_FINISH_LENGTH);
    CHECK_EQ(next.n_out, 12);
    slm_batch_free(b);
}

/* The neighbours of a request whose logits are NaN go on. */
TEST(nan_ends_its_own_request_only)
{
    static struct client c[3];
    slm_model *m = make_model("gemma3n", QT_F32, BROKEN_TOKEN);
    slm_batch *b = make(m, (slm_batch_params){ .parallel = 3 });
    slm_batch_stats stats;

    CHECK(m != NULL);
    for (uint64_t i = 0; i < 3; i++) {
        client_init(&c[i], m, i + 1, 20, 0);
        for (int j = 0; j < 20; j++) {
            c[i].prompt[j] %= BROKEN_TOKEN;
        }
    }
    const struct slm_bias never = { BROKEN_TOKEN, -INFINITY };
    for (int i = 0; i < 3; i++) {
        c[i].request.sampling.logit_bias = &never;
        c[i].request.sampling.n_logit_bias = 1;
    }
    c[1].prompt[7] = BROKEN_TOKEN;
    for (int i = 0; i < 3; i++) {
        submit(b, &c[i]);
    }
    drain(b);
    CHECK_EQ(c[1].finish, SLM_FINISH_ERROR);
    CHECK_EQ(c[1].error.code, SLM_E_NUMERIC);
    CHECK_EQ(c[0].finish, SLM_FINISH_LENGTH);
    CHECK_EQ(c[2].finish, SLM_FINISH_LENGTH);
    check_alone(m, &c[0], SLM_KV_F16);
    check_alone(m, &c[2], SLM_KV_F16);
    slm_batch_stats_get(b, &stats);
    CHECK_EQ(stats.failed, 1);
    CHECK_EQ(stats.finished, 2);
    slm_batch_free(b);
    slm_model_free(m);
}

/* ---- wrong requests ------------------------------------------------------------------------- */

static void check_refused(slm_batch *b, const struct client *c, slm_code code, const char *word)
{
    slm_error err = {0};
    slm_batch_stats stats;

    CHECK(!slm_batch_submit(b, &c->request, NULL, &err));
    CHECK_EQ(err.code, code);
    if (!strstr(err.msg, word)) {
        fail_msg("\"%s\" does not say %s", err.msg, word);
    }
    slm_batch_stats_get(b, &stats);
    CHECK_EQ(stats.waiting, 0);
}

TEST(wrong_requests_are_refused_by_name)
{
    static struct client good, c;
    slm_model *m = fx.models[0];
    slm_batch *b = make(m, (slm_batch_params){ .parallel = 1 });

    client_init(&good, m, 1, 20, 0);
#define REFUSED(change, code, word)                                                      \
    do {                                                                                 \
        c = good;                                                                        \
        c.request.ids = c.prompt;                                                        \
        change;                                                                          \
        check_refused(b, &c, code, word);                                                \
    } while (0)
    REFUSED(c.request.n_ids = 0, SLM_E_ARG, "ids");
    REFUSED(c.request.ids = NULL, SLM_E_ARG, "ids");
    REFUSED(c.prompt[3] = -1, SLM_E_ARG, "-1");
    REFUSED(c.prompt[3] = 1 << 30, SLM_E_ARG, "token 3");
    REFUSED(c.request.n_ids = CONTEXT, SLM_E_CONTEXT, "512");
    REFUSED(c.request.max_tokens = -1, SLM_E_ARG, "max_tokens");
    REFUSED(c.request.n_top = 21, SLM_E_ARG, "n_top");
    REFUSED(c.request.n_top = -2, SLM_E_ARG, "n_top");
    REFUSED(c.request.on_event = NULL, SLM_E_ARG, "on_event");
    REFUSED(c.request.sampling.top_p = 2, SLM_E_ARG, "top_p");
    REFUSED(c.request.sampling.n_logit_bias = 1, SLM_E_ARG, "logit_bias");
    slm_batch_free(b);
}

TEST(a_full_queue_is_busy)
{
    static struct client c[4];
    slm_error err = {0};
    slm_batch *b = make(fx.models[0], (slm_batch_params){ .parallel = 1, .queue = 2 });

    for (uint64_t i = 0; i < 4; i++) {
        client_init(&c[i], fx.models[0], i, 5, 0);
    }
    for (int i = 0; i < 3; i++) {
        submit(b, &c[i]);
    }
    CHECK(!slm_batch_submit(b, &c[3].request, NULL, &err));
    CHECK_EQ(err.code, SLM_E_BUSY);
    drain(b);
    submit(b, &c[3]);
    drain(b);
    CHECK_EQ(c[3].finish, SLM_FINISH_LENGTH);
    slm_batch_free(b);
}

TEST(wrong_batches_are_refused_by_name)
{
    const struct {
        slm_batch_params params;
        slm_code code;
        const char *word;
    } cases[] = {
        { { .context = -1 }, SLM_E_ARG, "context" },
        { { .parallel = -1 }, SLM_E_ARG, "parallel" },
        { { .parallel = 5000 }, SLM_E_ARG, "parallel" },
        { { .queue = -1 }, SLM_E_ARG, "queue" },
        { { .chunk = -1 }, SLM_E_ARG, "chunk" },
        { { .kv = (slm_kv_type)9 }, SLM_E_ARG, "kv" },
        { { .draft = { .kind = SLM_DRAFT_MODEL } }, SLM_E_UNSUPPORTED, "draft.kind" },
        { { .draft = { .kind = SLM_DRAFT_MTP } }, SLM_E_UNSUPPORTED, "block" },
        { { .draft = { .kind = SLM_DRAFT_NGRAM, .max = 17 } }, SLM_E_ARG, "draft.max" },
        { { .cache_bytes = 1000 }, SLM_E_ARG, "cache_bytes" },
        { { .cache_bytes = UINT64_MAX }, SLM_E_NOMEM, "free" },
        { { .context = 1 << 30 }, SLM_E_NOMEM, "free" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        slm_error err = {0};
        CHECK(!slm_batch_new(fx.models[0], &cases[i].params, &err));
        CHECK_EQ(err.code, cases[i].code);
        if (!strstr(err.msg, cases[i].word)) {
            fail_msg("\"%s\" does not say %s", err.msg, cases[i].word);
        }
    }
    CHECK(!slm_batch_new(NULL, NULL, NULL));
    slm_batch_free(NULL);
    slm_batch_cancel(NULL, 1);
}

/* ---- fairness -------------------------------------------------------------------------------- */

/* While a long prompt is computed, an answer gets a token in every step, and a short prompt that
 * came later is done first. */
TEST(a_long_prompt_holds_nobody_up)
{
    static struct client writer, longer, shorter;
    slm_model *m = fx.models[0];
    slm_batch *b = make(m, (slm_batch_params){ .parallel = 3, .chunk = 16 });

    client_init(&writer, m, 1, 4, 0);
    client_init(&longer, m, 2, 400, 0);
    client_init(&shorter, m, 3, 16, 0);
    writer.request.max_tokens = 100;
    submit(b, &writer);
    step(b);
    submit(b, &longer);
    submit(b, &shorter);
    for (int i = 0; i < 10; i++) {
        step(b);
        CHECK_EQ(writer.n_out, i + 2);
    }
    CHECK(shorter.n_out > 0);
    CHECK_EQ(longer.n_out, 0);
    drain(b);
    check_alone(m, &longer, SLM_KV_F16);
    slm_batch_free(b);
}

/* ---- threads --------------------------------------------------------------------------------- */

/* A session of the same engine that works meanwhile. */
static void *use_session(void *arg)
{
    static struct client c;
    slm_model *m = arg;

    client_init(&c, m, 9, 100, 0);
    for (int i = 0; i < 5; i++) {
        slm_session *s = slm_session_new(m, &(slm_session_params){ .context = CONTEXT }, NULL);
        if (!s || !slm_session_feed(s, c.prompt, (size_t)c.n_prompt, NULL)) {
            return NULL;
        }
        slm_session_free(s);
    }
    return m;
}

TEST(sessions_of_the_engine_may_work_beside_it)
{
    static struct client c[2];
    slm_model *m = fx.models[2];
    slm_batch *b = make(m, (slm_batch_params){ .parallel = 2 });
    pthread_t thread;
    void *result;

    for (uint64_t i = 0; i < 2; i++) {
        client_init(&c[i], m, i + 1, 120, 0);
        submit(b, &c[i]);
    }
    CHECK_EQ(pthread_create(&thread, NULL, use_session, m), 0);
    drain(b);
    pthread_join(thread, &result);
    CHECK(result == m);
    check_alone(m, &c[0], SLM_KV_F16);
    check_alone(m, &c[1], SLM_KV_F16);
    slm_batch_free(b);
}

/* ---- memory ---------------------------------------------------------------------------------- */

TEST(a_step_allocates_only_when_it_admits)
{
    static struct client c[3];
    slm_batch *b = make(fx.models[2], (slm_batch_params){ .parallel = 3, .chunk = 16 });

    for (uint64_t i = 0; i < 3; i++) {
        client_init(&c[i], fx.models[2], i + 1, 150, 64);
        submit(b, &c[i]);
    }
    step(b);
    while (c[2].n_out == 0) {
        step(b);
    }
    const long before = mem_count();
    while (c[0].n_ends + c[1].n_ends + c[2].n_ends < 3) {
        step(b);
    }
    CHECK_EQ(mem_count(), before);
    slm_batch_free(b);
}

/* Makes a batch and runs two requests while the n-th allocation fails; false where that was
 * told. */
static bool run_failing(slm_model *m, long n)
{
    static struct client c[2];
    const slm_batch_params params = { .context = CONTEXT, .parallel = 2 };
    slm_error err = {0};
    bool more = true;

    client_init(&c[0], m, 1, 70, 0);
    client_init(&c[1], m, 2, 70, 0);
    mem_fail_after(n);
    slm_batch *b = slm_batch_new(m, &params, &err);
    bool ok = b && slm_batch_submit(b, &c[0].request, &c[0].id, &err) &&
              slm_batch_submit(b, &c[1].request, &c[1].id, &err);
    while (ok && more) {
        CHECK(slm_batch_step(b, &more, NULL));
    }
    mem_fail_after(0);
    for (int i = 0; ok && i < 2; i++) {
        CHECK_EQ(c[i].n_ends, 1);
        err = c[i].finish == SLM_FINISH_ERROR ? c[i].error : err;
    }
    slm_batch_free(b);
    CHECK(ok || err.code != SLM_E_OK);
    CHECK(err.code == SLM_E_OK || err.code == SLM_E_NOMEM);
    return err.code == SLM_E_OK;
}

TEST(failed_allocations_are_errors)
{
    const long before = mem_count();

    CHECK(run_failing(fx.models[2], 0));
    const long n_all = mem_count() - before;
    int told = 0;
    for (long n = 1; n <= n_all; n++) {
        told += !run_failing(fx.models[2], n);
    }
    CHECK(told > 30);
}

/* Pages and states stay within the bound and everything else is given back. */
TEST(memory_stays_flat_over_many_requests)
{
    static struct client c[4];
    slm_batch *b = make(fx.models[0], (slm_batch_params){ .parallel = 4 });
    uint64_t before = 0;
    const int rounds = 2500;

    for (int round = 0; round < rounds; round++) {
        for (uint64_t i = 0; i < 4; i++) {
            client_init(&c[i], fx.models[0], (uint64_t)round * 4 + i, 3 + round % 5, 0);
            c[i].request.max_tokens = 1;
            submit(b, &c[i]);
        }
        drain(b);
        if (round == rounds / 4) {
            before = cpu_peak_rss_bytes();
        }
    }
#if defined(__SANITIZE_ADDRESS__)
    (void)before;
    printf("skipped: the address sanitizer keeps memory that was freed\n");
#else
    CHECK(cpu_peak_rss_bytes() - before < 1 << 20);
#endif
    slm_batch_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(company_and_order_never_show), T(short_of_pages_nothing_changes),
        T(drafts_change_nothing), T(a_prompt_is_found_again),
        T(a_prompt_at_work_is_not_computed_twice),
        T(guides_hold_in_company_and_with_drafts), T(every_end_is_told_once),
        T(a_token_that_ends_the_answer_comes_with_the_end),
        T(events_may_submit_and_cancel), T(nan_ends_its_own_request_only),
        T(wrong_requests_are_refused_by_name), T(a_full_queue_is_busy),
        T(wrong_batches_are_refused_by_name), T(a_long_prompt_holds_nobody_up),
        T(sessions_of_the_engine_may_work_beside_it),
        T(a_step_allocates_only_when_it_admits), T(failed_allocations_are_errors),
        T(memory_stays_flat_over_many_requests),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}

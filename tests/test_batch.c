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

static slm_model *make_model(const char *name)
{
    const struct tiny_shape shape = TINY_SHAPE;
    const slm_model_params params = { .pack = SLM_PACK_WAIT };
    char path[] = "/tmp/slm-batch-XXXXXX";
    const int fd = mkstemp(path);
    slm_error err = { SLM_E_OK, -1, "" };

    if (fd >= 0) {
        close(fd);
    }
    slm_model *m = fd >= 0 && tiny_model_write(path, arch_find(name, strlen(name)),
                                               quant_type(QT_Q4_0), &shape, &err)
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
        fx.models[i] = make_model(archs[i]);
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

TEST(company_and_order_never_show)
{
    for (int i = 0; i < N_ARCH; i++) {
        for (uint64_t seed = 1; seed <= 3; seed++) {
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(company_and_order_never_show), T(short_of_pages_nothing_changes),
        T(a_prompt_is_found_again), T(a_prompt_at_work_is_not_computed_twice),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}

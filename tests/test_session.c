/* test_session.c - feeding, syncing and truncating never change a logit. */
#include "test.h"

#include <stdlib.h>

#include "base/mem.h"
#include "nomem.h"
#include "run/session.h"

#define MODEL TEST_DATA "/models/llama-Q4_0/model.gguf"

enum { N_IDS = 150 };

/* One model for all tests; its context, 150 tokens, spans three pages. */
static struct fixture {
    struct gguf *gguf;
    struct pool *pool;
    struct model *model;
    int n_vocab;
    int32_t ids[N_IDS];
    float *all;   /* [N_IDS][n_vocab], by one token after the other */
} fx;

static struct session *make(int context, int chunk, enum kv_type kv)
{
    const struct session_params p = { .context = context, .chunk = chunk, .kv = kv };
    slm_error err = {0};
    struct session *s = session_new(fx.model, &p, &err);

    CHECK(s != NULL);
    return s;
}

/* The session has the logits of the first n tokens of the fixture. */
static void check_logits(const struct session *s, size_t n)
{
    CHECK_EQ(session_len(s), n);
    CHECK(session_logits(s) != NULL);
    CHECK_MEM(session_logits(s), fx.all + (n - 1) * (size_t)fx.n_vocab,
              (size_t)fx.n_vocab * sizeof(float));
}

static int setup(void **state)
{
    slm_error err = {0};

    (void)state;
    fx.gguf = gguf_open(MODEL, &err);
    fx.pool = pool_new(2, &err);
    fx.model = fx.gguf ? model_new(fx.gguf, fx.pool, kern_get(cpu_isa_best()), MODEL_PACK_OFF,
                                   &err) : NULL;
    if (!fx.model) {
        fprintf(stderr, "%s\n", err.msg);
        return -1;
    }
    fx.n_vocab = model_shape(fx.model)->n_vocab;
    for (int i = 0; i < N_IDS; i++) {
        fx.ids[i] = (i * 37 + i * i) % fx.n_vocab;
    }
    const size_t row = (size_t)fx.n_vocab * sizeof(float);
    fx.all = malloc(N_IDS * row);
    struct session *s = make(N_IDS, 1, KV_F32);
    for (size_t i = 0; i < N_IDS; i++) {
        if (!session_feed(s, &fx.ids[i], 1, &err)) {
            return -1;
        }
        memcpy(fx.all + i * (size_t)fx.n_vocab, session_logits(s), row);
    }
    session_free(s);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    free(fx.all);
    model_free(fx.model);
    pool_free(fx.pool);
    gguf_close(fx.gguf);
    return 0;
}

/* ---- feeding --------------------------------------------------------------------------- */

TEST(every_chunk_gives_the_same_logits)
{
    const int chunks[] = { 0, 1, 7, 64, 150, 1000 };

    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        struct session *s = make(N_IDS, chunks[i], KV_F32);
        CHECK(session_feed(s, fx.ids, 100, NULL));
        check_logits(s, 100);
        CHECK(session_feed(s, fx.ids + 100, 50, NULL));
        check_logits(s, N_IDS);
        CHECK_MEM(session_tokens(s), fx.ids, sizeof fx.ids);
        session_free(s);
    }
}

TEST(score_gives_the_logits_of_every_token)
{
    const size_t row = (size_t)fx.n_vocab;
    float *out = malloc(N_IDS * row * sizeof *out);
    const int chunks[] = { 0, 7 };

    for (size_t i = 0; i < 2; i++) {
        struct session *s = make(N_IDS, chunks[i], KV_F32);
        memset(out, 0xFF, N_IDS * row * sizeof *out);
        CHECK(session_score(s, fx.ids, 3, out, NULL));
        CHECK(session_score(s, fx.ids + 3, N_IDS - 3, out + 3 * row, NULL));
        CHECK_MEM(out, fx.all, N_IDS * row * sizeof *out);
        check_logits(s, N_IDS);
        session_free(s);
    }
    free(out);
}

TEST(smaller_caches_are_chunk_invariant_too)
{
    const enum kv_type kvs[] = { KV_F16, KV_Q8_0 };

    for (int i = 0; i < 2; i++) {
        struct session *a = make(N_IDS, 1, kvs[i]);
        struct session *b = make(N_IDS, 64, kvs[i]);

        CHECK(session_feed(a, fx.ids, N_IDS, NULL));
        CHECK(session_feed(b, fx.ids, N_IDS, NULL));
        CHECK_MEM(session_logits(a), session_logits(b), (size_t)fx.n_vocab * sizeof(float));
        session_free(a);
        session_free(b);
    }
}

/* Codes of eight bits lose little: the likeliest token is the same, its logit near. */
TEST(a_q8_0_cache_is_close_to_an_exact_one)
{
    struct session *s = make(N_IDS, 0, KV_Q8_0);
    const float *exact = fx.all + (size_t)(N_IDS - 1) * (size_t)fx.n_vocab;
    double error = 0, size = 0;

    CHECK(session_feed(s, fx.ids, N_IDS, NULL));
    for (int i = 0; i < fx.n_vocab; i++) {
        const double d = (double)session_logits(s)[i] - (double)exact[i];
        error += d * d;
        size += (double)exact[i] * (double)exact[i];
    }
    CHECK(error > 0 && error < 1e-3 * size);
    session_free(s);
}

TEST(feeding_nothing_changes_nothing)
{
    struct session *s = make(10, 0, KV_F32);

    CHECK(session_feed(s, NULL, 0, NULL));
    CHECK(session_logits(s) == NULL);
    CHECK(session_feed(s, fx.ids, 5, NULL));
    CHECK(session_feed(s, NULL, 0, NULL));
    check_logits(s, 5);
    session_free(s);
}

/* ---- syncing --------------------------------------------------------------------------- */

TEST(sync_keeps_the_common_prefix)
{
    struct session *s = make(N_IDS, 0, KV_F32);
    int32_t other[N_IDS];
    size_t reused;

    CHECK(session_sync(s, fx.ids, 80, &reused, NULL));
    CHECK_EQ(reused, 0);
    check_logits(s, 80);

    CHECK(session_sync(s, fx.ids, 120, &reused, NULL));  /* longer */
    CHECK_EQ(reused, 80);
    check_logits(s, 120);

    CHECK(session_sync(s, fx.ids, 120, &reused, NULL));  /* the same */
    CHECK_EQ(reused, 120);
    check_logits(s, 120);

    CHECK(session_sync(s, fx.ids, 70, &reused, NULL));   /* shorter: the last one anew */
    CHECK_EQ(reused, 69);
    check_logits(s, 70);

    memcpy(other, fx.ids, sizeof other);                  /* another text from 40 on */
    other[40] = (other[40] + 1) % fx.n_vocab;
    CHECK(session_sync(s, other, 60, &reused, NULL));
    CHECK_EQ(reused, 40);
    CHECK(session_sync(s, fx.ids, N_IDS, &reused, NULL)); /* and back */
    CHECK_EQ(reused, 40);
    check_logits(s, N_IDS);
    session_free(s);
}

TEST(truncate_drops_tokens_and_logits)
{
    struct session *s = make(N_IDS, 0, KV_F32);
    slm_error err = {0};

    CHECK(session_feed(s, fx.ids, 100, NULL));
    CHECK(session_truncate(s, 100, NULL));
    check_logits(s, 100);
    CHECK(session_truncate(s, 63, NULL));
    CHECK_EQ(session_len(s), 63);
    CHECK(session_logits(s) == NULL);
    CHECK(session_feed(s, fx.ids + 63, 87, NULL));
    check_logits(s, N_IDS);
    CHECK(!session_truncate(s, N_IDS + 1, &err));
    CHECK_EQ(err.code, SLM_E_ARG);
    check_logits(s, N_IDS);
    CHECK(session_truncate(s, 0, NULL));
    CHECK(session_sync(s, fx.ids, 1, NULL, NULL));
    check_logits(s, 1);
    session_free(s);
}

/* ---- what is refused ------------------------------------------------------------------- */

TEST(a_full_context_is_an_error_with_both_numbers)
{
    struct session *s = make(10, 0, KV_F32);
    slm_error err = {0};

    CHECK(!session_feed(s, fx.ids, 11, &err));
    CHECK_EQ(err.code, SLM_E_CONTEXT);
    CHECK(strstr(err.msg, "11 tokens") && strstr(err.msg, "10"));
    CHECK_EQ(session_len(s), 0);
    CHECK(session_feed(s, fx.ids, 10, NULL));
    check_logits(s, 10);
    CHECK(!session_feed(s, fx.ids, 1, &err));
    CHECK_EQ(err.code, SLM_E_CONTEXT);
    check_logits(s, 10);
    CHECK(!session_sync(s, fx.ids, 11, NULL, &err));
    CHECK_EQ(err.code, SLM_E_CONTEXT);
    check_logits(s, 10);
    session_free(s);
}

TEST(bad_ids_are_found_before_anything_is_computed)
{
    struct session *s = make(N_IDS, 2, KV_F32);
    int32_t ids[5] = { 1, 2, 3, 4, -1 };
    slm_error err = {0};

    CHECK(!session_feed(s, ids, 5, &err));
    CHECK_EQ(err.code, SLM_E_ARG);
    CHECK(strstr(err.msg, "-1") != NULL);
    ids[4] = fx.n_vocab;
    CHECK(!session_sync(s, ids, 5, NULL, &err));
    CHECK_EQ(err.code, SLM_E_ARG);
    CHECK_EQ(session_len(s), 0);
    CHECK(!session_sync(s, ids, 0, NULL, &err));
    CHECK_EQ(err.code, SLM_E_ARG);
    session_free(s);
}

/* ---- progress -------------------------------------------------------------------------- */

struct watch {
    size_t calls, last, total, cancel_at;
};

static bool on_progress(void *arg, size_t done, size_t total)
{
    struct watch *w = arg;

    w->calls++;
    w->last = done;
    w->total = total;
    return done != w->cancel_at;
}

TEST(progress_is_told_and_can_cancel)
{
    struct session *s = make(N_IDS, 30, KV_F32);
    struct watch w = {0};
    slm_error err = {0};

    session_progress(s, on_progress, &w);
    CHECK(session_feed(s, fx.ids, 100, NULL));
    CHECK_EQ(w.calls, 3);   /* after 30, 60 and 90 */
    CHECK_EQ(w.last, 90);
    CHECK_EQ(w.total, 100);

    CHECK(session_truncate(s, 0, NULL));
    w = (struct watch){ .cancel_at = 60 };
    CHECK(!session_feed(s, fx.ids, 100, &err));
    CHECK_EQ(err.code, SLM_E_CANCELLED);
    CHECK_EQ(session_len(s), 60);
    CHECK(session_logits(s) == NULL);

    w.cancel_at = 0;
    CHECK(session_sync(s, fx.ids, 100, NULL, NULL));   /* and go on from there */
    check_logits(s, 100);
    session_free(s);
}

/* ---- memory ---------------------------------------------------------------------------- */

TEST(no_allocation_between_first_and_last_token)
{
    struct session *s = make(N_IDS, 16, KV_F16);
    float *out = malloc(20 * (size_t)fx.n_vocab * sizeof *out);
    const long before = mem_count();

    CHECK(session_feed(s, fx.ids, 100, NULL));
    for (int i = 100; i < 120; i++) {
        CHECK(session_feed(s, &fx.ids[i], 1, NULL));
    }
    CHECK(session_sync(s, fx.ids, 130, NULL, NULL));
    CHECK(session_score(s, fx.ids, 20, out, NULL));
    CHECK_EQ(mem_count(), before);
    session_free(s);
    free(out);
}

TEST(cost_grows_with_the_context_and_never_wraps)
{
    struct session_params p = { .context = 100, .kv = KV_F16 };
    const struct session_cost small = session_cost(fx.model, &p);

    p.kv = KV_F32;
    CHECK_EQ(session_cost(fx.model, &p).kv_bytes, 2 * small.kv_bytes);
    p.kv = KV_Q8_0;
    CHECK(session_cost(fx.model, &p).kv_bytes < small.kv_bytes);
    p.kv = KV_F16;
    p.context = 1 << 30;
    const struct session_cost large = session_cost(fx.model, &p);
    CHECK(large.kv_bytes / small.kv_bytes == ((uint64_t)1 << 30) / 128);
    CHECK(large.work_bytes >= small.work_bytes);
}

TEST(failed_allocations_are_errors)
{
    struct nomem_session a = { fx.model, { .context = 100, .kv = KV_F16 } };

    CHECK(nomem_each(nomem_make_session, &a) >= 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(every_chunk_gives_the_same_logits), T(score_gives_the_logits_of_every_token),
        T(smaller_caches_are_chunk_invariant_too), T(feeding_nothing_changes_nothing),
        T(a_q8_0_cache_is_close_to_an_exact_one),
        T(sync_keeps_the_common_prefix), T(truncate_drops_tokens_and_logits),
        T(a_full_context_is_an_error_with_both_numbers),
        T(bad_ids_are_found_before_anything_is_computed), T(progress_is_told_and_can_cancel),
        T(no_allocation_between_first_and_last_token),
        T(cost_grows_with_the_context_and_never_wraps), T(failed_allocations_are_errors),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}

/* test_recur.c - sessions with recurrent layers: going back never changes a logit. */
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "nomem.h"
#include "run/recur.h"
#include "run/session.h"
#include "tiny_model.h"

enum { N_IDS = 150, BAD_ID = 5 };

/* A tiny model whose token BAD_ID has an infinite value in its embedding, so that a step with it
 * fails and others only find its logit infinite; and two texts that part at 40. */
static struct fixture {
    struct buf bytes;
    struct gguf *gguf;
    struct pool *pool;
    struct model *model;
    size_t n_vocab;
    int32_t ids[2][N_IDS];
    float *all[2];   /* [N_IDS][n_vocab], by one token after the other */
} fx;

static struct session *make(int chunk, int checkpoints)
{
    const struct session_params p = { .context = N_IDS + 20, .chunk = chunk, .kv = KV_F16,
                                      .checkpoints = checkpoints };
    slm_error err = {0};
    struct session *s = session_new(fx.model, &p, &err);

    CHECK(s != NULL);
    return s;
}

static void check_logits(const struct session *s, int text, size_t n)
{
    CHECK_EQ(session_len(s), n);
    CHECK(session_logits(s) != NULL);
    CHECK_MEM(session_tokens(s), fx.ids[text], n * sizeof(int32_t));
    CHECK_MEM(session_logits(s), fx.all[text] + (n - 1) * fx.n_vocab, fx.n_vocab * sizeof(float));
}

/* Writes the model, reads it back and breaks one value. */
static bool open_model(slm_error *err)
{
    const struct tiny_shape shape = TINY_SHAPE;
    char path[] = "/tmp/slm-test-recur-XXXXXX";
    const int fd = mkstemp(path);

    if (fd < 0) {
        return false;
    }
    close(fd);
    const bool written = tiny_model_write(path, arch_find("qwen35", 6), quant_type(QT_F32), &shape,
                                          err);
    buf_init(&fx.bytes, 0);
    const bool read = written && file_read(path, 1 << 28, &fx.bytes, err);
    unlink(path);
    fx.gguf = read ? gguf_open_mem(fx.bytes.data, fx.bytes.len, err) : NULL;
    if (!fx.gguf) {
        return false;
    }
    const struct gguf_tensor *embd = gguf_find_tensor(fx.gguf, "token_embd.weight");
    const float infinite = INFINITY;
    memcpy((uint8_t *)embd->data + BAD_ID * embd->ne[0] * (int64_t)sizeof(float), &infinite,
           sizeof infinite);
    fx.pool = pool_new(2, err);
    fx.model = fx.pool ? model_new(fx.gguf, fx.pool, kern_get(cpu_isa_best()), MODEL_PACK_OFF, err)
                       : NULL;
    return fx.model != NULL;
}

static int setup(void **state)
{
    slm_error err = {0};

    (void)state;
    if (!open_model(&err)) {
        fprintf(stderr, "%s\n", err.msg);
        return -1;
    }
    fx.n_vocab = (size_t)model_shape(fx.model)->n_vocab;
    for (int i = 0; i < N_IDS; i++) {
        fx.ids[0][i] = 6 + (i * 37 + i * i) % ((int)fx.n_vocab - 6);
        fx.ids[1][i] = i < 40 ? fx.ids[0][i] : 6 + (i * 11) % ((int)fx.n_vocab - 6);
    }
    for (int text = 0; text < 2; text++) {
        struct session *s = make(1, 1);
        fx.all[text] = malloc(N_IDS * fx.n_vocab * sizeof(float));
        for (size_t i = 0; i < N_IDS; i++) {
            if (!session_feed(s, &fx.ids[text][i], 1, &err)) {
                fprintf(stderr, "%s\n", err.msg);
                return -1;
            }
            memcpy(fx.all[text] + i * fx.n_vocab, session_logits(s), fx.n_vocab * sizeof(float));
        }
        session_free(s);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    free(fx.all[0]);
    free(fx.all[1]);
    model_free(fx.model);
    pool_free(fx.pool);
    gguf_close(fx.gguf);
    buf_deinit(&fx.bytes);
    return 0;
}

/* ---- sessions ------------------------------------------------------------------------ */

TEST(every_chunk_gives_the_same_logits)
{
    const int chunks[] = { 0, 1, 3, 7, 64 };
    float *out = malloc(N_IDS * fx.n_vocab * sizeof *out);

    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        struct session *s = make(chunks[i], 2);
        CHECK(session_feed(s, fx.ids[0], 100, NULL));
        check_logits(s, 0, 100);
        CHECK(session_feed(s, fx.ids[0] + 100, 50, NULL));
        check_logits(s, 0, N_IDS);
        CHECK(session_truncate(s, 0, NULL));
        CHECK(session_score(s, fx.ids[0], N_IDS, out, NULL));
        CHECK_MEM(out, fx.all[0], N_IDS * fx.n_vocab * sizeof *out);
        session_free(s);
    }
    free(out);
}

TEST(truncate_computes_from_a_checkpoint)
{
    static const size_t lens[] = { 149, 101, 100, 99, 41, 40, 20, 7, 1, 0 };

    for (int checkpoints = 1; checkpoints <= 4; checkpoints += 3) {
        struct session *s = make(16, checkpoints);
        for (size_t i = 0; i < sizeof lens / sizeof lens[0]; i++) {
            CHECK(session_sync(s, fx.ids[0], 20, NULL, NULL));
            CHECK(session_sync(s, fx.ids[0], 100, NULL, NULL));
            CHECK(session_sync(s, fx.ids[0], N_IDS, NULL, NULL));
            check_logits(s, 0, N_IDS);
            CHECK(session_truncate(s, lens[i], NULL));
            CHECK_EQ(session_len(s), lens[i]);
            CHECK(session_logits(s) == NULL);
            CHECK(session_feed(s, &fx.ids[0][lens[i]], 1, NULL));
            check_logits(s, 0, lens[i] + 1);
        }
        session_free(s);
    }
}

TEST(a_prompt_fed_before_is_there_with_its_logits)
{
    struct session *s = make(0, 2);
    size_t reused;

    CHECK(session_feed(s, fx.ids[0], 100, NULL));
    for (int i = 100; i < 120; i++) {  /* an answer */
        CHECK(session_feed(s, &fx.ids[0][i], 1, NULL));
    }
    CHECK(session_sync(s, fx.ids[0], 100, &reused, NULL));  /* and another one, please */
    CHECK_EQ(reused, 100);
    check_logits(s, 0, 100);
    CHECK(session_sync(s, fx.ids[0], 140, &reused, NULL));
    CHECK_EQ(reused, 100);
    check_logits(s, 0, 140);
    CHECK(session_sync(s, fx.ids[0], 99, &reused, NULL));   /* nothing is kept before 100 */
    CHECK_EQ(reused, 0);
    check_logits(s, 0, 99);
    session_free(s);
}

TEST(a_walk_between_two_texts_never_changes_a_logit)
{
    for (int checkpoints = 1; checkpoints <= 3; checkpoints++) {
        struct session *s = make(checkpoints == 2 ? 5 : 0, checkpoints);
        struct rng rng = { (uint64_t)checkpoints };
        for (int step = 0; step < 30; step++) {
            const int text = (int)(rng_next(&rng) % 2);
            const size_t n = 1 + rng_next(&rng) % N_IDS;
            if (rng_next(&rng) % 3 == 0) {
                CHECK(session_truncate(s, rng_next(&rng) % ((uint64_t)session_len(s) + 1), NULL));
            }
            CHECK(session_sync(s, fx.ids[text], n, NULL, NULL));
            check_logits(s, text, n);
        }
        session_free(s);
    }
}

TEST(a_failed_step_leaves_no_trace)
{
    const int32_t bad = BAD_ID;
    struct session *s = make(0, 2);
    slm_error err = {0};

    CHECK(session_feed(s, fx.ids[0], 50, NULL));
    CHECK(session_feed(s, fx.ids[0] + 50, 3, NULL));
    CHECK(!session_feed(s, &bad, 1, &err));
    CHECK_EQ(err.code, SLM_E_NUMERIC);
    CHECK(session_logits(s) == NULL);
    CHECK_EQ(session_len(s), 50);  /* the checkpoint */
    CHECK(session_feed(s, fx.ids[0] + 50, 30, NULL));
    check_logits(s, 0, 80);
    session_free(s);
}

TEST(no_allocation_between_first_and_last_token)
{
    struct session *s = make(16, 2);
    const long before = mem_count();

    CHECK(session_feed(s, fx.ids[0], 100, NULL));
    CHECK(session_truncate(s, 30, NULL));
    CHECK(session_sync(s, fx.ids[1], 130, NULL, NULL));
    CHECK_EQ(mem_count(), before);
    session_free(s);
}

TEST(cost_counts_states_and_checkpoints)
{
    struct session_params p = { .context = 100, .kv = KV_F16, .checkpoints = 1 };
    const uint64_t one = session_cost(fx.model, &p).work_bytes;
    const uint64_t state = (uint64_t)model_shape(fx.model)->n_state * model_state_bytes(fx.model);

    CHECK(model_shape(fx.model)->n_state == 1 && state > 0);
    p.checkpoints = 5;
    CHECK(session_cost(fx.model, &p).work_bytes >= one + 4 * state);
    p.checkpoints = 0;
    CHECK(session_cost(fx.model, &p).work_bytes > one);
}

TEST(failed_allocations_are_errors)
{
    struct nomem_session a = { fx.model, { .context = 100, .kv = KV_F16 } };

    CHECK(nomem_each(nomem_make_session, &a) >= 6);
}

/* ---- company ----------------------------------------------------------------------------- */

enum { N_SEQ = 2, N_EACH = 50 };

/* Pages and states of one sequence, by hand. */
struct company {
    void *pages[1];        /* of one KV layer: N_EACH tokens fit a page */
    float *states[1];
};

static void company_init(struct company *c)
{
    CHECK(model_shape(fx.model)->n_kv_layer == 1 && model_shape(fx.model)->n_state == 1);
    c->pages[0] = mem_zalloc(1, model_kv_page_bytes(fx.model, 0, KV_F16));
    c->states[0] = mem_alloc_aligned(model_state_bytes(fx.model));
    memset(c->states[0], 0, model_state_bytes(fx.model));
}

TEST(sequences_of_one_step_do_not_meet)
{
    struct work *w = work_new(fx.model, N_SEQ * N_EACH, N_SEQ * N_EACH, N_IDS + 20, NULL);
    struct company c[N_SEQ];
    float *out = malloc(N_SEQ * N_EACH * fx.n_vocab * sizeof *out);
    bool want[N_SEQ * N_EACH];
    const int parts[] = { 1, 20, N_EACH - 21 };  /* each text in steps of these lengths */

    CHECK(w != NULL);
    memset(want, true, sizeof want);
    for (int i = 0; i < N_SEQ; i++) {
        company_init(&c[i]);
    }
    for (int p = 0, done = 0; p < 3; done += parts[p++]) {
        int32_t ids[N_SEQ * N_EACH];
        struct step_seq seq[N_SEQ];
        const int n = parts[p];
        for (int i = 0; i < N_SEQ; i++) {
            memcpy(ids + i * n, fx.ids[i] + done, (size_t)n * sizeof *ids);
            seq[i] = (struct step_seq){ .n_tok = n, .pos0 = done, .pages = c[i].pages,
                                        .page_stride = 1, .states = c[i].states };
        }
        const struct step_in in = { N_SEQ * n, ids, N_SEQ, seq, KV_F16, want, NULL, NULL };
        CHECK(model_step(fx.model, w, &in, out, NULL));
        for (int i = 0; i < N_SEQ; i++) {
            CHECK_MEM(out + (size_t)(i * n) * fx.n_vocab, fx.all[i] + (size_t)done * fx.n_vocab,
                      (size_t)n * fx.n_vocab * sizeof *out);
        }
    }
    for (int i = 0; i < N_SEQ; i++) {
        mem_free(c[i].pages[0]);
        mem_free(c[i].states[0]);
    }
    work_free(w);
    free(out);
}

/* ---- checkpoints ------------------------------------------------------------------------ */

/* The live states become those of position pos, for a test that does not compute. */
static void mark(struct recur *r, int pos)
{
    recur_states(r)[0][0] = (float)pos;
}

TEST(checkpoints_lie_closer_near_the_end)
{
    enum { KEPT = 4, STEP = 10, END = 640 };
    struct recur *r = recur_new(fx.model, KEPT, NULL);
    float *logits = malloc(fx.n_vocab * sizeof *logits);
    bool has_logits;
    int found[KEPT + 1], n = 0;

    CHECK(r != NULL);
    CHECK_EQ(recur_last(r), 0);
    for (int pos = STEP; pos <= END; pos += STEP) {
        mark(r, pos);
        recur_save(r, pos, NULL);
    }
    for (int pos = END;; pos = found[n - 1] - 1) {
        found[n] = recur_restore(r, pos, logits, &has_logits);
        CHECK(found[n] <= pos && !has_logits);
        CHECK_EQ(recur_states(r)[0][0], found[n]);
        if (found[n++] == 0) {
            break;
        }
        CHECK(n <= KEPT);
    }
    CHECK_EQ(n, KEPT + 1);
    CHECK_EQ(found[0], END);
    for (int i = 1; i + 1 < n; i++) {
        CHECK(found[i - 1] - found[i] <= found[i] - found[i + 1]);
    }
    recur_free(r);
    free(logits);
}

TEST(logits_are_kept_where_they_were_given)
{
    struct recur *r = recur_new(fx.model, 2, NULL);
    float *logits = malloc(fx.n_vocab * sizeof *logits);
    bool has_logits;

    CHECK(r != NULL);
    mark(r, 3);
    recur_save(r, 3, fx.all[0]);
    mark(r, 5);
    recur_save(r, 5, NULL);
    CHECK(recur_has_logits(r, 3) && !recur_has_logits(r, 5) && !recur_has_logits(r, 4));
    CHECK_EQ(recur_restore(r, 4, logits, &has_logits), 3);
    CHECK(has_logits);
    CHECK_MEM(logits, fx.all[0], fx.n_vocab * sizeof *logits);
    CHECK_EQ(recur_restore(r, 2, logits, &has_logits), 0);
    CHECK(!has_logits);
    CHECK_EQ(recur_states(r)[0][0], 0);
    recur_free(r);
    free(logits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(every_chunk_gives_the_same_logits), T(truncate_computes_from_a_checkpoint),
        T(a_prompt_fed_before_is_there_with_its_logits),
        T(a_walk_between_two_texts_never_changes_a_logit), T(a_failed_step_leaves_no_trace),
        T(no_allocation_between_first_and_last_token), T(cost_counts_states_and_checkpoints),
        T(failed_allocations_are_errors), T(sequences_of_one_step_do_not_meet),
        T(checkpoints_lie_closer_near_the_end),
        T(logits_are_kept_where_they_were_given),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}

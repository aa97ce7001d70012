/* test_snapshot.c - a session that was saved and loaded goes on as if nothing had happened; other
 * files change nothing.  And embeddings, which leave nothing behind either. */
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "nomem.h"
#include "run/session.h"
#include "run/snapshot.h"
#include "slm.h"
#include "tiny_model.h"
#include "tmpdir.h"

enum { N_IDS = 400, CONTEXT = 512 };

/* A model of each kind of memory: full layers, sliding ones, recurrent ones. */
static const char *const archs[] = { "llama", "gemma3", "qwen35" };
enum { N_ARCHS = sizeof archs / sizeof *archs };

static struct fixture {
    struct gguf *gguf;
    struct model *model;
} fx[N_ARCHS];
static struct pool *pool;
static int32_t ids[N_IDS];

static bool open_one(struct fixture *f, const char *arch, slm_error *err)
{
    struct tiny_shape shape = TINY_SHAPE;

    shape.layers = strcmp(arch, "gemma3") == 0 ? 6 : 2;  /* the sixth sees all keys */
    if (!tiny_model_write(in_dir(arch), arch_find(arch, strlen(arch)), quant_type(QT_Q8_0), &shape,
                          err)) {
        return false;
    }
    f->gguf = gguf_open(in_dir(arch), err);
    f->model = f->gguf ? model_new(f->gguf, pool, kern_get(cpu_isa_best()), MODEL_PACK_OFF, err)
                       : NULL;
    return f->model != NULL;
}

static int setup(void **state)
{
    slm_error err = {0};

    (void)state;
    make_dir();
    pool = pool_new(2, &err);
    for (int i = 0; i < N_ARCHS; i++) {
        if (!open_one(&fx[i], archs[i], &err)) {
            fprintf(stderr, "%s: %s\n", archs[i], err.msg);
            return -1;
        }
    }
    for (int i = 0; i < N_IDS; i++) {
        ids[i] = 6 + (i * 37 + i * i) % 300;
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < N_ARCHS; i++) {
        model_free(fx[i].model);
        gguf_close(fx[i].gguf);
    }
    pool_free(pool);
    remove_tree();
    return 0;
}

static struct session *make(struct model *m, enum kv_type kv, int context, int chunk)
{
    const struct session_params p = { .context = context, .chunk = chunk, .kv = kv };
    struct session *s = session_new(m, &p, NULL);

    CHECK(s != NULL);
    return s;
}

/* Both hold the same and compute the same. */
static void check_same(struct session *a, struct session *b)
{
    const size_t row = (size_t)session_n_vocab(a) * sizeof(float);

    CHECK_EQ(session_len(a), session_len(b));
    CHECK_MEM(session_tokens(a), session_tokens(b), (size_t)session_len(a) * sizeof(int32_t));
    CHECK((session_logits(a) == NULL) == (session_logits(b) == NULL));
    if (session_logits(a)) {
        CHECK_MEM(session_logits(a), session_logits(b), row);
    }
    for (int i = 0; i < 5; i++) {
        CHECK(session_feed(a, &ids[i], 1, NULL));
        CHECK(session_feed(b, &ids[i], 1, NULL));
        CHECK_MEM(session_logits(a), session_logits(b), row);
    }
}

TEST(a_loaded_session_goes_on_as_the_saved_one)
{
    for (int i = 0; i < N_ARCHS; i++) {
        for (int kv = 0; kv < KV_TYPES; kv++) {
            struct session *a = make(fx[i].model, (enum kv_type)kv, CONTEXT, 64);
            struct session *b = make(fx[i].model, (enum kv_type)kv, CONTEXT - 100, 7);

            CHECK(session_feed(b, ids + 100, 250, NULL));   /* something else, to be replaced */
            CHECK(session_feed(a, ids, 333, NULL));
            CHECK(session_save(a, in_dir("a.snap"), NULL));
            const long before = mem_count();
            CHECK(session_load(b, in_dir("a.snap"), NULL));
            CHECK_EQ(mem_count(), before);
            check_same(a, b);
            CHECK(session_truncate(a, 40, NULL));
            CHECK(session_truncate(b, 40, NULL));
            check_same(a, b);
            session_free(a);
            session_free(b);
        }
    }
}

TEST(a_session_that_went_back_is_saved_as_it_is)
{
    for (int i = 0; i < N_ARCHS; i++) {
        struct session *a = make(fx[i].model, KV_F16, CONTEXT, 64);
        struct session *b = make(fx[i].model, KV_F16, CONTEXT, 64);

        CHECK(session_save(a, in_dir("a.snap"), NULL));     /* empty */
        CHECK(session_feed(b, ids, 100, NULL));
        CHECK(session_load(b, in_dir("a.snap"), NULL));
        CHECK_EQ(session_len(b), 0);
        CHECK(session_logits(b) == NULL);

        CHECK(session_feed(a, ids, 400, NULL));
        CHECK(session_truncate(a, 290, NULL));              /* less than a margin is left */
        CHECK(session_logits(a) == NULL);
        CHECK(session_save(a, in_dir("a.snap"), NULL));
        CHECK(session_load(b, in_dir("a.snap"), NULL));
        check_same(a, b);
        session_free(a);
        session_free(b);
    }
}

TEST(the_end_of_a_loaded_text_has_its_logits)
{
    struct session *a = make(fx[2].model, KV_F16, CONTEXT, 64);
    size_t reused;

    CHECK(session_feed(a, ids, 100, NULL));
    CHECK(session_save(a, in_dir("a.snap"), NULL));
    CHECK(session_truncate(a, 0, NULL));
    CHECK(session_load(a, in_dir("a.snap"), NULL));
    CHECK(session_feed(a, ids + 100, 3, NULL));
    CHECK(session_sync(a, ids, 100, &reused, NULL));
    CHECK_EQ(reused, 100);                                 /* a checkpoint, with recurrent layers */
    session_free(a);
}

/* ---- what is refused --------------------------------------------------------------------- */

struct bytes {
    char *data;
    size_t n;
};

static struct bytes snapshot_of(struct session *s)
{
    struct buf b;

    CHECK(session_save(s, in_dir("x.snap"), NULL));
    buf_init(&b, 0);
    CHECK(file_read(in_dir("x.snap"), (size_t)1 << 30, &b, NULL));
    struct bytes bytes = { .n = b.len };
    bytes.data = buf_take(&b, NULL);
    return bytes;
}

/* A session of the first model with 100 tokens, and its logits then. */
static float logits_100[320];

static struct session *make_100(void)
{
    struct session *s = make(fx[0].model, KV_F16, CONTEXT, 64);

    CHECK(session_feed(s, ids, 100, NULL));
    CHECK_EQ(session_n_vocab(s), 320);
    memcpy(logits_100, session_logits(s), sizeof logits_100);
    return s;
}

/* The data is refused with this code, and s is as it was: 100 tokens with logits. */
static void refused(struct session *s, const char *data, size_t n, slm_code code)
{
    slm_error err = {0};

    CHECK(!session_load_mem(s, data, n, &err));
    CHECK_EQ(err.code, code);
    CHECK(err.msg[0] != 0);
    CHECK_EQ(session_len(s), 100);
    CHECK_MEM(session_tokens(s), ids, 100 * sizeof *ids);
    CHECK_MEM(session_logits(s), logits_100, sizeof logits_100);
}

TEST(damaged_files_are_refused)
{
    struct session *a = make(fx[0].model, KV_F16, CONTEXT, 64);
    struct session *s = make_100();
    const size_t cuts[] = { 0, 1, 7, 8, 40, 47, 48, 55, 56, 100, 448, 449, 5000 };

    CHECK(session_feed(a, ids + 7, 90, NULL));
    struct bytes b = snapshot_of(a);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        refused(s, b.data, cuts[i], SLM_E_FORMAT);
    }
    refused(s, b.data, b.n - 1, SLM_E_FORMAT);
    for (size_t at = 60; at < b.n; at += b.n / 20) {         /* one bit */
        b.data[at] ^= 4;
        refused(s, b.data, b.n, SLM_E_FORMAT);
        b.data[at] ^= 4;
    }
    b.data[0] = 'X';
    refused(s, b.data, b.n, SLM_E_FORMAT);
    b.data[0] = 'S';
    b.data[8] = 2;                                           /* the version */
    refused(s, b.data, b.n, SLM_E_UNSUPPORTED);
    b.data[8] = 1;
    CHECK(session_load_mem(s, b.data, b.n, NULL));
    check_same(a, s);
    mem_free(b.data);
    session_free(a);
    session_free(s);
}

TEST(what_is_wrong_under_a_right_checksum_is_refused_too)
{
    struct session *a = make(fx[0].model, KV_F16, CONTEXT, 64);
    struct session *s = make_100();
    const uint32_t counts[] = { 0, 88, 91, 513, 0x7FFFFFFF, 0xFFFFFFFF };
    enum { AT_N_TOK = 24, AT_WINDOW = 28, AT_LOGITS = 32, AT_TOKENS = 40 };

    CHECK(session_feed(a, ids + 7, 90, NULL));
    struct bytes b = snapshot_of(a);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        memcpy(b.data + AT_N_TOK, &counts[i], 4);
        snapshot_seal(b.data, b.n);
        refused(s, b.data, b.n, counts[i] > CONTEXT ? SLM_E_CONTEXT : SLM_E_FORMAT);
    }
    memcpy(b.data + AT_N_TOK, &(uint32_t){ 90 }, 4);
    for (int bad = 1; bad < 4; bad++) {
        memcpy(b.data + AT_WINDOW, &(uint32_t){ (uint32_t)bad * 0x55555555u }, 4);
        snapshot_seal(b.data, b.n);
        refused(s, b.data, b.n, SLM_E_FORMAT);
    }
    memcpy(b.data + AT_WINDOW, &(uint32_t){ 0 }, 4);
    b.data[AT_LOGITS] = 2;
    snapshot_seal(b.data, b.n);
    refused(s, b.data, b.n, SLM_E_FORMAT);
    b.data[AT_LOGITS] = 1;
    memcpy(b.data + AT_TOKENS + 4 * 89, &(int32_t){ 320 }, 4);
    snapshot_seal(b.data, b.n);
    refused(s, b.data, b.n, SLM_E_FORMAT);
    mem_free(b.data);
    session_free(a);
    session_free(s);
}

TEST(snapshots_of_others_are_refused)
{
    struct session *s = make_100();
    struct session *model = make(fx[1].model, KV_F16, CONTEXT, 64);
    struct session *kv = make(fx[0].model, KV_Q8_0, CONTEXT, 64);
    struct session *longer = make(fx[0].model, KV_F16, CONTEXT + 100, 64);
    struct session *others[] = { model, kv, longer };
    slm_error err = {0};

    for (int i = 0; i < 3; i++) {
        CHECK(session_feed(others[i], ids, 380, NULL));
        if (others[i] == longer) {
            CHECK(session_feed(longer, ids, 200, NULL));
        }
        struct bytes b = snapshot_of(others[i]);
        refused(s, b.data, b.n, others[i] == longer ? SLM_E_CONTEXT : SLM_E_ARG);
        mem_free(b.data);
        session_free(others[i]);
    }
    CHECK(!session_load(s, in_dir("nothing.snap"), &err));
    CHECK_EQ(err.code, SLM_E_IO);
    CHECK(strstr(err.msg, "nothing.snap") != NULL);
    put("text.snap", "once upon a time there was a file of another kind, longer than a header");
    CHECK(!session_load(s, in_dir("text.snap"), &err));
    CHECK(strstr(err.msg, "text.snap") != NULL && strstr(err.msg, "not a snapshot") != NULL);
    CHECK_EQ(session_len(s), 100);
    session_free(s);
}

TEST(a_model_that_differs_in_its_weights_only_is_another_one)
{
    struct tiny_shape shape = TINY_SHAPE;
    struct fixture other = { NULL, NULL };

    shape.seed = 2;
    CHECK(tiny_model_write(in_dir("seed2"), arch_find("llama", 5), quant_type(QT_Q8_0), &shape,
                           NULL));
    other.gguf = gguf_open(in_dir("seed2"), NULL);
    CHECK(other.gguf != NULL);
    CHECK_EQ(gguf_file_bytes(other.gguf), gguf_file_bytes(fx[0].gguf));
    CHECK(gguf_identity(other.gguf) != gguf_identity(fx[0].gguf));
    CHECK(gguf_identity(fx[0].gguf) == model_identity(fx[0].model));
    gguf_close(other.gguf);
}

struct saving {
    struct session *s;
    char path[320];
};

static bool save(void *arg, slm_error *err)
{
    const struct saving *a = arg;

    return session_save(a->s, a->path, err);
}

TEST(a_failed_save_leaves_the_old_file)
{
    struct saving a = { .s = make(fx[0].model, KV_F16, CONTEXT, 64) };
    slm_error err = {0};
    struct stat st;

    CHECK(session_feed(a.s, ids, 50, NULL));
    snprintf(a.path, sizeof a.path, "%s", in_dir("a.snap"));
    put("a.snap", "old");
    mem_fail_after(1);
    CHECK(!session_save(a.s, a.path, &err));
    mem_fail_after(0);
    CHECK_EQ(err.code, SLM_E_NOMEM);
    CHECK(stat(a.path, &st) == 0 && st.st_size == 3);
    CHECK(nomem_each(save, &a) >= 1);
    CHECK(!session_save(a.s, in_dir("no/such/folder/a.snap"), &err));
    CHECK_EQ(err.code, SLM_E_IO);
    session_free(a.s);
}

/* ---- embeddings ---------------------------------------------------------------------------- */

TEST(an_embedding_is_the_same_in_any_chunks)
{
    for (int i = 0; i < N_ARCHS; i++) {
        const size_t n = (size_t)model_shape(fx[i].model)->n_embd;
        float *rows = malloc(4 * n * sizeof *rows);
        double length = 0;

        for (int j = 0; j < 2; j++) {
            struct session *s = make(fx[i].model, KV_F16, CONTEXT, j == 0 ? 9 : 128);
            CHECK(session_feed(s, ids, 20, NULL));
            CHECK(session_embed(s, ids, 100, POOL_MEAN, rows + (size_t)j * n, NULL));
            CHECK_EQ(session_len(s), 0);
            CHECK(session_embed(s, ids, 100, POOL_LAST, rows + 2 * n, NULL));
            CHECK(session_embed(s, ids, 1, POOL_FIRST, rows + 3 * n, NULL));
            session_free(s);
        }
        CHECK_MEM(rows, rows + n, n * sizeof *rows);
        CHECK(memcmp(rows, rows + 2 * n, n * sizeof *rows) != 0);
        for (size_t d = 0; d < n; d++) {
            length += (double)rows[d] * (double)rows[d];
        }
        CHECK(fabs(length - 1) < 1e-5);

        /* Of a single token all kinds of pooling are the same. */
        struct session *s = make(fx[i].model, KV_F16, CONTEXT, 0);
        CHECK(session_embed(s, ids, 1, POOL_MEAN, rows, NULL));
        CHECK_MEM(rows, rows + 3 * n, n * sizeof *rows);
        session_free(s);
        free(rows);
    }
}

struct embedding {
    struct session *s;
    float *out;
};

static bool embed(void *arg, slm_error *err)
{
    const struct embedding *a = arg;

    return session_embed(a->s, ids, 10, POOL_MEAN, a->out, err);
}

TEST(an_embedding_that_fails_is_an_error)
{
    struct session *s = make(fx[0].model, KV_F16, 50, 0);
    struct embedding a = { s, malloc((size_t)model_shape(fx[0].model)->n_embd * sizeof(float)) };
    slm_error err = {0};

    CHECK(!session_embed(s, ids, 51, POOL_MEAN, a.out, &err));
    CHECK_EQ(err.code, SLM_E_CONTEXT);
    CHECK(!session_embed(s, ids, 0, POOL_MEAN, a.out, &err));
    CHECK_EQ(err.code, SLM_E_ARG);
    CHECK(nomem_each(embed, &a) >= 2);
    CHECK(session_feed(s, ids, 10, NULL));
    free(a.out);
    session_free(s);
}

/* ---- the public interface -------------------------------------------------------------------- */

TEST(the_public_calls_do_the_same)
{
    slm_engine *engine = slm_engine_new(&(slm_engine_params){ 1 }, NULL);
    slm_model *model = slm_model_open(engine, in_dir("gemma3"), NULL, NULL);
    slm_session *a = slm_session_new(model, &(slm_session_params){ .context = 300 }, NULL);
    slm_session *b = slm_session_new(model, &(slm_session_params){ .context = 300 }, NULL);
    slm_error err = {0};
    float row[256];

    CHECK(a != NULL && b != NULL);
    CHECK(slm_session_feed(a, ids, 280, NULL));
    CHECK(slm_session_save(a, in_dir("api.snap"), NULL));
    CHECK(slm_session_load(b, in_dir("api.snap"), NULL));
    CHECK_EQ(slm_session_len(b), 280);
    CHECK_MEM(slm_session_logits(a), slm_session_logits(b), 320 * sizeof(float));
    CHECK(!slm_session_save(NULL, "x", &err));
    CHECK_EQ(err.code, SLM_E_ARG);
    CHECK(!slm_session_save(a, NULL, &err));
    CHECK(!slm_session_load(NULL, "x", &err));
    CHECK(!slm_session_load(a, NULL, &err));
    CHECK(slm_session_embed(b, ids, 10, row, NULL));
    CHECK_EQ(slm_session_len(b), 0);
    CHECK(!slm_session_embed(b, ids, 0, row, &err));
    CHECK(!slm_session_embed(b, NULL, 1, row, &err));
    CHECK(!slm_session_embed(b, ids, 1, NULL, &err));
    CHECK(!slm_session_embed(NULL, ids, 1, row, &err));
    slm_session_free(a);
    slm_session_free(b);
    slm_model_free(model);
    slm_engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_loaded_session_goes_on_as_the_saved_one),
        T(a_session_that_went_back_is_saved_as_it_is),
        T(the_end_of_a_loaded_text_has_its_logits), T(damaged_files_are_refused),
        T(what_is_wrong_under_a_right_checksum_is_refused_too), T(snapshots_of_others_are_refused),
        T(a_model_that_differs_in_its_weights_only_is_another_one),
        T(a_failed_save_leaves_the_old_file), T(an_embedding_is_the_same_in_any_chunks),
        T(an_embedding_that_fails_is_an_error), T(the_public_calls_do_the_same),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}

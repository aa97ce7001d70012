/* test_draft.c - hidden rows and the draft block of models that have one.
 *
 * Against the float64-checked references where these lie beside the tree, and on a tiny model:
 * how a text is cut into steps does not show in what the block drafts. */
#include "test.h"

#include <math.h>
#include <unistd.h>

#include <jansson.h>

#include "tiny_model.h"
#include "tiny_run.h"

#define GOLDEN TEST_SHARED "/golden/models/qwen35-mtp"

enum { TOKENS_MAX = 256 };

/* A model with the pages of its draft block. */
struct drafter {
    struct tiny t;
    void *pages[TOKENS_MAX / KV_PAGE + 1];
    size_t n_vocab, n_embd;
};

static void drafter_open(struct drafter *d, const char *path, enum isa isa, enum kv_type kv)
{
    slm_error err = {0};

    if (!tiny_open(&d->t, path, isa, 2, MODEL_PACK_WAIT, kv, TOKENS_MAX, &err)) {
        fail_msg("%s", err.msg);
    }
    CHECK(model_shape(d->t.model)->can_draft);
    d->n_vocab = (size_t)model_shape(d->t.model)->n_vocab;
    d->n_embd = (size_t)model_shape(d->t.model)->n_embd;
    const size_t bytes = model_draft_page_bytes(d->t.model, kv);
    for (size_t i = 0; i < sizeof d->pages / sizeof *d->pages; i++) {
        d->pages[i] = mem_alloc_aligned(bytes);
        memset(d->pages[i], 0, bytes);
    }
}

static void drafter_close(struct drafter *d)
{
    for (size_t i = 0; i < sizeof d->pages / sizeof *d->pages; i++) {
        mem_free(d->pages[i]);
    }
    tiny_close(&d->t);
}

/* Hidden rows of the n tokens, by the model itself. */
static void run_model(struct drafter *d, const int32_t *ids, int n, float *hidden)
{
    static const bool want[TOKENS_MAX];
    const struct step_seq seq = { .n_tok = n, .pages = d->t.pages,
                                  .page_stride = (int)d->t.page_stride, .states = d->t.states };
    const struct step_in in = { n, ids, 1, &seq, d->t.kv, want, hidden, NULL };

    CHECK(model_step(d->t.model, d->t.work, &in, NULL, NULL));
}

/* One step of the block: n tokens from position pos0 on; before: the rows before them. */
static void run_draft(struct drafter *d, const int32_t *ids, int n, int pos0, const float *before,
                      float *logits, float *hidden)
{
    bool want[TOKENS_MAX];
    const struct step_seq seq = { .n_tok = n, .pos0 = pos0, .pages = d->pages };
    const struct step_in in = { n, ids, 1, &seq, d->t.kv, want, hidden, NULL };

    for (int i = 0; i < n; i++) {
        want[i] = true;
    }
    CHECK(model_draft(d->t.model, d->t.work, &in, before, logits, NULL));
}

static float *floats(size_t n)
{
    return calloc(n, sizeof(float));
}

/* ---- references ------------------------------------------------------------------------- */

static float *golden_floats(const char *file, size_t n)
{
    char path[512];
    float *v = floats(n);

    snprintf(path, sizeof path, "%s/%s", GOLDEN, file);
    FILE *f = fopen(path, "rb");
    CHECK(f != NULL);
    CHECK_EQ(fread(v, sizeof *v, n, f), n);
    fclose(f);
    return v;
}

/* The tolerance of float arithmetic against these references. */
static void check_close(const char *what, const float *got, const char *file, size_t n)
{
    float *want = golden_floats(file, n);
    double num = 0, den = 0;

    for (size_t i = 0; i < n; i++) {
        const double diff = (double)got[i] - (double)want[i];
        num += diff * diff;
        den += (double)want[i] * (double)want[i];
    }
    printf("%s: nmse %.2e\n", what, num / den);
    CHECK(num / den <= 3e-11);
    free(want);
}

static int golden_ids(const char *file, const char *key, int32_t *ids)
{
    char path[512];

    snprintf(path, sizeof path, "%s/%s", GOLDEN, file);
    json_t *all = json_load_file(path, 0, NULL);
    json_t *list = key ? json_object_get(all, key) : all;
    const int n = (int)json_array_size(list);
    CHECK(n > 0 && n <= TOKENS_MAX);
    for (int i = 0; i < n; i++) {
        ids[i] = (int32_t)json_integer_value(json_array_get(list, (size_t)i));
    }
    json_decref(all);
    return n;
}

/* The chain of drafts after the prompt, each from the row that the one before gave. */
static void check_chain(struct drafter *d, int n, const float *last_row)
{
    int32_t want[TOKENS_MAX], first[1];
    const int n_want = golden_ids("mtp_draft.json", "ids", want);
    float *row = floats(d->n_embd), *logits = floats(d->n_vocab);
    json_t *all = json_load_file(GOLDEN "/mtp_draft.json", 0, NULL);

    first[0] = (int32_t)json_integer_value(json_object_get(all, "first_token"));
    json_decref(all);
    memcpy(row, last_row, d->n_embd * sizeof *row);
    for (int i = 0; i < n_want; i++) {
        run_draft(d, first, 1, n + i, row, logits, row);
        first[0] = tiny_argmax(logits, d->n_vocab);
        CHECK_EQ(first[0], want[i]);
    }
    free(row);
    free(logits);
}

TEST(drafts_equal_the_references)
{
    int32_t ids[TOKENS_MAX];
    struct drafter d;

    if (access(GOLDEN "/model.gguf", R_OK) != 0) {
        printf("the golden model with a draft block is not beside this tree\n");
        skip();
    }
    const int n = golden_ids("tokens.json", NULL, ids);
    for (int isa = ISA_SCALAR; isa <= (int)cpu_isa_best(); isa++) {
        drafter_open(&d, GOLDEN "/model.gguf", (enum isa)isa, KV_F32);
        const size_t rows = (size_t)n * d.n_embd, out = (size_t)n * d.n_vocab;
        /* Row 0 is that before the first token. */
        float *hidden = floats(rows + d.n_embd), *logits = floats(out);

        run_model(&d, ids, n, hidden + d.n_embd);
        check_close("hidden rows", hidden + d.n_embd, "hidden.f32", rows);
        run_draft(&d, ids, n, 0, hidden, logits, NULL);
        check_close("drafts", logits, "mtp_logits.f32", out);
        check_chain(&d, n, hidden + rows);
        /* Where the first token is never fed.  Only distances of positions count, so that the text
         * may as well begin one earlier. */
        run_draft(&d, ids + 1, n - 1, 0, hidden + d.n_embd, logits, NULL);
        check_close("drafts without the first token", logits, "mtp_logits_no0.f32",
                    out - d.n_vocab);
        drafter_close(&d);
        free(hidden);
        free(logits);
    }
}

/* ---- a tiny model -------------------------------------------------------------------------- */

enum { N_TINY = 100 };

/* All tokens at once, then in chunks: the same bits. */
static void check_chunks(struct drafter *d, const int32_t *ids)
{
    static const int chunks[] = { 1, 7, 64 };
    const size_t rows = N_TINY * d->n_embd, out = N_TINY * d->n_vocab;
    float *hidden = floats(rows + d->n_embd);
    float *want = floats(out + rows), *got = floats(out + rows);

    run_model(d, ids, N_TINY, hidden + d->n_embd);
    run_draft(d, ids, N_TINY, 0, hidden, want, want + out);
    for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
        for (int i = 0; i < N_TINY; i += chunks[c]) {
            const int m = N_TINY - i < chunks[c] ? N_TINY - i : chunks[c];
            run_draft(d, ids + i, m, i, hidden + (size_t)i * d->n_embd,
                      got + (size_t)i * d->n_vocab, got + out + (size_t)i * d->n_embd);
        }
        CHECK_MEM(got, want, (out + rows) * sizeof *got);
    }
    free(hidden);
    free(want);
    free(got);
}

TEST(steps_of_the_draft_block_do_not_show)
{
    struct tiny_shape shape = TINY_SHAPE;
    char path[] = "/tmp/slm-test-draft-XXXXXX";
    const int fd = mkstemp(path);
    slm_error err = {0};
    struct drafter d;
    int32_t ids[N_TINY];

    CHECK(fd >= 0);
    close(fd);
    if (!tiny_model_write(path, arch_find("qwen35", 6), quant_type(QT_Q4_K), &shape, &err)) {
        fail_msg("%s", err.msg);
    }
    for (int kv = 0; kv < KV_TYPES; kv++) {
        drafter_open(&d, path, cpu_isa_best(), (enum kv_type)kv);
        for (int i = 0; i < N_TINY; i++) {
            ids[i] = (i * 37 + i * i) % (int)d.n_vocab;
        }
        check_chunks(&d, ids);
        drafter_close(&d);
    }
    unlink(path);
}

int main(void)
{
    return RUN(T(drafts_equal_the_references), T(steps_of_the_draft_block_do_not_show));
}

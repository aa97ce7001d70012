/* test_spec.c - drafts change no token and no logit, whoever makes them and whatever they are. */
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include <jansson.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "nomem.h"
#include "run/sample.h"
#include "run/spec.h"
#include "tiny_model.h"

#define GOLDEN TEST_SHARED "/golden/models/qwen35-mtp"

enum { CONTEXT = 160, N_PROMPT = 40, N_OUT = 60, BAD_ID = 5, NO_END = -1 };

/* ---- models ---------------------------------------------------------------------------- */

struct loaded {
    struct buf bytes;
    struct gguf *gguf;
    struct model *model;
};

static struct pool *pool;

enum change { AS_IS, NEGATED, BROKEN_TOKEN, BLOCK_ONLY };

/* A tiny model.  NEGATED: all logits, so that its likeliest token is the other's least likely one;
 * BROKEN_TOKEN: steps with BAD_ID fail; BLOCK_ONLY: its layers but the draft block have names that
 * nobody asks for. */
static void load(struct loaded *l, const char *arch, enum change change)
{
    const struct tiny_shape shape = TINY_SHAPE;
    char path[] = "/tmp/slm-test-spec-XXXXXX";
    const int fd = mkstemp(path);
    slm_error err = {0};

    CHECK(fd >= 0);
    close(fd);
    CHECK(tiny_model_write(path, arch_find(arch, strlen(arch)), quant_type(QT_F32), &shape, &err));
    buf_init(&l->bytes, 0);
    CHECK(file_read(path, 1 << 28, &l->bytes, &err));
    unlink(path);
    if (change == BLOCK_ONLY) {
        char *at = l->bytes.data, *end = at + l->bytes.len;
        for (; (at = memmem(at, (size_t)(end - at), "blk.", 4)) != NULL; at += 4) {
            memcpy(at, at[4] - '0' < shape.layers ? "old." : "blk.", 4);
        }
    }
    l->gguf = gguf_open_mem(l->bytes.data, l->bytes.len, &err);
    CHECK(l->gguf != NULL);
    if (change == NEGATED) {
        const struct gguf_tensor *t = gguf_find_tensor(l->gguf, "output_norm.weight");
        CHECK(t != NULL);
        for (int64_t i = 0; i < t->ne[0]; i++) {
            ((float *)t->data)[i] *= -1;
        }
    } else if (change == BROKEN_TOKEN) {
        const struct gguf_tensor *t = gguf_find_tensor(l->gguf, "token_embd.weight");
        ((float *)t->data)[BAD_ID * t->ne[0]] = INFINITY;
    }
    l->model = model_new(l->gguf, pool, kern_get(cpu_isa_best()), MODEL_PACK_OFF, &err);
    CHECK(l->model != NULL);
}

static void unload(struct loaded *l)
{
    model_free(l->model);
    gguf_close(l->gguf);
    buf_deinit(&l->bytes);
}

/* ---- a session with drafts ------------------------------------------------------------------ */

struct decoder {
    struct session *session;
    struct spec *spec;
    struct sampler *sampler;
    int32_t end;   /* NO_END: none */
};

static bool draw(void *arg, const float *logits, const int32_t *hist, size_t n_hist, int32_t *id,
                 slm_error *err)
{
    return sampler_draw(((struct decoder *)arg)->sampler, logits, hist, n_hist, id, err);
}

static bool is_end(const void *arg, int32_t id)
{
    return id == ((const struct decoder *)arg)->end;
}

struct setup {
    struct model *model;
    struct spec_params draft;
    float temperature;
    int context, chunk;
};

static bool try_open(struct decoder *d, const struct setup *u, slm_error *err)
{
    const struct sample_params sampling = { .temperature = u->temperature, .top_p = 1,
                                            .typical_p = 1, .dry_base = 1, .dry_allowed = 1,
                                            .penalty_window = 8, .seed = 3,
                                            .repeat_penalty = u->temperature > 0 ? 1.1f : 1 };
    struct session_params p = { .context = u->context, .chunk = u->chunk, .kv = KV_F16 };

    *d = (struct decoder){ .end = NO_END };
    spec_session_params(&u->draft, &p);
    d->session = session_new(u->model, &p, err);
    d->spec = d->session ? spec_new(d->session, &u->draft, &p, err) : NULL;
    d->sampler = d->spec ? sampler_new(&sampling, model_shape(u->model)->n_vocab,
                                       kern_get(cpu_isa_best()), err) : NULL;
    return d->sampler != NULL;
}

static void finish(struct decoder *d)
{
    spec_free(d->spec);
    session_free(d->session);
    sampler_free(d->sampler);
}

/* A session with a prompt that repeats itself. */
static void begin(struct decoder *d, const struct setup *u)
{
    const int n_vocab = model_shape(u->model)->n_vocab;
    int32_t ids[N_PROMPT];

    slm_error err = {0};

    if (!try_open(d, u, &err)) {
        fail_msg("%s", err.msg);
    }
    for (int i = 0; i < N_PROMPT; i++) {
        ids[i] = 6 + (i % 13 * 37 + i % 7) % (n_vocab - 6);
    }
    CHECK(session_feed(d->session, ids, N_PROMPT, NULL));
}

static struct spec_chooser chooser_of(struct decoder *d)
{
    return (struct spec_chooser){ draw, d, is_end, d };
}

/* Draws n tokens to out, at most cap at once, 1 to 6 in turn where that is 0; fewer where an end
 * comes.  Returns how many. */
static int decode(struct decoder *d, int32_t *out, int n, int cap)
{
    const struct spec_chooser c = chooser_of(d);
    int done = 0, turn = 0;

    while (done < n) {
        const int at_most = cap > 0 ? cap : 1 + turn++ % 6;
        size_t got;
        const size_t want = (size_t)(n - done < at_most ? n - done : at_most);
        CHECK(spec_decode(d->spec, &c, out + done, want, &got, NULL));
        CHECK(got >= 1 && got <= want);
        done += (int)got;
        if (out[done - 1] == d->end) {
            break;
        }
    }
    return done;
}

/* The same without anything of drafts. */
static void decode_plainly(struct decoder *d, int32_t *out, int n)
{
    for (int i = 0; i < n; i++) {
        CHECK(draw(d, session_logits(d->session), session_tokens(d->session),
                   (size_t)session_len(d->session), &out[i], NULL));
        CHECK(session_feed(d->session, &out[i], 1, NULL));
    }
}

static void check_same(const struct decoder *a, const struct decoder *b)
{
    const size_t n_vocab = (size_t)session_n_vocab(a->session);

    CHECK_EQ(session_len(a->session), session_len(b->session));
    CHECK_MEM(session_tokens(a->session), session_tokens(b->session),
              (size_t)session_len(a->session) * sizeof(int32_t));
    CHECK_MEM(session_logits(a->session), session_logits(b->session), n_vocab * sizeof(float));
}

/* ---- tokens and logits ---------------------------------------------------------------------- */

/* What the drafts of a case must have come to. */
enum hope { ALL, NONE, ANY };

static void check_drafts(const struct setup *u, enum hope hope)
{
    const struct setup plain = { u->model, { .kind = DRAFT_OFF }, u->temperature, CONTEXT, 0 };
    struct decoder a, b;
    int32_t want[N_OUT], got[N_OUT];

    begin(&a, &plain);
    decode_plainly(&a, want, N_OUT);
    begin(&b, u);
    CHECK_EQ(decode(&b, got, N_OUT, 0), N_OUT);
    CHECK_MEM(got, want, sizeof got);
    check_same(&a, &b);

    const struct spec_stats *s = spec_stats(b.spec);
    CHECK_EQ(s->tokens, N_OUT);
    CHECK_EQ(s->steps + s->accepted, N_OUT);
    CHECK(s->accepted <= s->drafted);
    if (hope == ALL) {
        CHECK(s->drafted > N_OUT / 2);
        CHECK_EQ(s->accepted, s->drafted);
    } else if (hope == NONE) {
        CHECK(s->drafted > N_OUT / 2);
        CHECK_EQ(s->accepted, 0);
    }
    printf("%s, source %d, temperature %g: %d of %d drafts\n", model_shape(u->model)->arch,
           u->draft.kind, (double)u->temperature, (int)s->accepted, (int)s->drafted);
    finish(&a);
    finish(&b);
}

static void check_arch(const char *arch)
{
    struct loaded same, other;

    load(&same, arch, AS_IS);
    load(&other, arch, NEGATED);
    for (int i = 0; i < 2; i++) {
        const float t = i == 0 ? 0 : 0.3f;
        struct setup u = { same.model, { .max = 4, .steady = true }, t, CONTEXT, i == 0 ? 0 : 1 };
        u.draft.kind = DRAFT_NGRAM;
        check_drafts(&u, ANY);
        u.draft.kind = DRAFT_MODEL;
        u.draft.model = other.model;
        check_drafts(&u, t == 0 ? NONE : ANY);
        u.draft.model = same.model;
        check_drafts(&u, t == 0 ? ALL : ANY);
        if (model_shape(same.model)->can_draft) {
            u.draft.kind = DRAFT_MTP;
            check_drafts(&u, ANY);
        }
        u.draft.steady = false;  /* whatever time decides */
        check_drafts(&u, ANY);
    }
    unload(&same);
    unload(&other);
}

TEST(drafts_change_nothing)
{
    check_arch("llama");
}

TEST(drafts_change_nothing_with_sliding_layers)
{
    check_arch("gemma2");
}

TEST(drafts_change_nothing_with_recurrent_layers)
{
    check_arch("qwen35");
}

/* ---- ends ----------------------------------------------------------------------------------- */

/* With the 20th token of an answer as the end, it comes out last and is not fed, also where it is
 * drafted. */
TEST(an_end_is_not_fed)
{
    struct loaded l;
    int32_t want[N_OUT], got[N_OUT];

    load(&l, "qwen35", AS_IS);
    const struct setup plain = { l.model, { .kind = DRAFT_OFF }, 0.3f, CONTEXT, 0 };
    struct decoder a;
    begin(&a, &plain);
    decode_plainly(&a, want, N_OUT);
    int n = 20, first;  /* a token that did not come before */
    do {
        n++;
        for (first = 0; want[first] != want[n]; first++) {
        }
    } while (first < n);
    for (int kind = DRAFT_OFF; kind < DRAFT_KINDS; kind++) {
        const struct setup u = { l.model, { kind, 4, l.model, NULL, true }, 0.3f, CONTEXT, 0 };
        struct decoder b;
        begin(&b, &u);
        b.end = want[n];
        CHECK_EQ(decode(&b, got, N_OUT, 6), n + 1);
        CHECK_MEM(got, want, (size_t)(n + 1) * sizeof *got);
        CHECK_EQ(session_len(b.session), N_PROMPT + n);
        CHECK_MEM(session_tokens(b.session) + N_PROMPT, want, (size_t)n * sizeof *want);
        /* And what follows without it goes on as if nothing had been. */
        b.end = NO_END;
        CHECK_EQ(decode(&b, got, N_OUT - n, 6), N_OUT - n);
        CHECK_MEM(got, want + n, (size_t)(N_OUT - n) * sizeof *got);
        check_same(&a, &b);
        finish(&b);
    }
    finish(&a);
    unload(&l);
}

TEST(the_context_is_filled_to_the_last_token)
{
    struct loaded l;

    load(&l, "qwen35", AS_IS);
    for (int kind = DRAFT_OFF; kind < DRAFT_KINDS; kind++) {
        for (int context = N_PROMPT + 1; context < N_PROMPT + 9; context++) {
            const struct setup u = { l.model, { kind, 4, l.model, NULL, true }, 0, context, 0 };
            const struct setup plain = { l.model, { .kind = DRAFT_OFF }, 0, context, 0 };
            struct decoder a, b;
            int32_t want[16], got[16];
            size_t n;
            slm_error err = {0};
            begin(&a, &plain);
            decode_plainly(&a, want, context - N_PROMPT);
            begin(&b, &u);
            CHECK_EQ(decode(&b, got, context - N_PROMPT, 16), context - N_PROMPT);
            CHECK_MEM(got, want, (size_t)(context - N_PROMPT) * sizeof *got);
            check_same(&a, &b);
            const struct spec_chooser c = chooser_of(&b);
            CHECK(!spec_decode(b.spec, &c, got, 16, &n, &err));
            CHECK_EQ(err.code, SLM_E_CONTEXT);
            CHECK_EQ(n, 0);
            check_same(&a, &b);
            finish(&a);
            finish(&b);
        }
    }
    unload(&l);
}

/* ---- going back, failing ---------------------------------------------------------------------- */

/* Answers, then goes back in various ways and answers again. */
TEST(going_back_between_drafts)
{
    static const char *const archs[] = { "llama", "gemma2", "qwen35" };

    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        struct loaded l;
        load(&l, archs[i], AS_IS);
        for (int kind = DRAFT_NGRAM; kind < DRAFT_KINDS; kind++) {
            if (kind == DRAFT_MTP && !model_shape(l.model)->can_draft) {
                continue;
            }
            const struct setup u = { l.model, { kind, 3, l.model, NULL, true }, 0.3f, CONTEXT, 0 };
            const struct setup plain = { l.model, { .kind = DRAFT_OFF }, 0.3f, CONTEXT, 0 };
            struct decoder a, b;
            int32_t want[N_OUT], got[N_OUT], text[CONTEXT];
            begin(&a, &plain);
            begin(&b, &u);
            decode_plainly(&a, want, 30);
            CHECK_EQ(decode(&b, got, 30, 0), 30);
            for (int n = N_PROMPT + 20; n > 10; n -= 17) {
                const int32_t next = 7;
                CHECK(session_truncate(a.session, (size_t)n, NULL));
                CHECK(session_truncate(b.session, (size_t)n, NULL));
                CHECK(session_feed(a.session, &next, 1, NULL));
                CHECK(session_feed(b.session, &next, 1, NULL));
                decode_plainly(&a, want, 15);
                CHECK_EQ(decode(&b, got, 15, 0), 15);
                CHECK_MEM(got, want, 15 * sizeof *got);
                check_same(&a, &b);
            }
            /* Back to the prompt, whose logits may be at hand. */
            memcpy(text, session_tokens(a.session), sizeof *text * 10);
            CHECK(session_sync(a.session, text, 10, NULL, NULL));
            CHECK(session_sync(b.session, text, 10, NULL, NULL));
            decode_plainly(&a, want, 15);
            CHECK_EQ(decode(&b, got, 15, 0), 15);
            check_same(&a, &b);
            finish(&a);
            finish(&b);
        }
        unload(&l);
    }
}

/* A try that the model cannot compute leaves everything as it was; one that is kept in part leaves
 * no trace of the rest. */
TEST(tries_that_fail_and_tries_kept_in_part)
{
    static const char *const archs[] = { "llama", "gemma2", "qwen35" };
    const int32_t ids[] = { 11, 12, 13, 14 }, bad[] = { 11, 12, BAD_ID };

    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        struct loaded l;
        load(&l, archs[i], BROKEN_TOKEN);
        const size_t n_vocab = (size_t)model_shape(l.model)->n_vocab;
        const struct setup u = { l.model, { .kind = DRAFT_NGRAM, .max = 3 }, 0, CONTEXT, 0 };
        for (int n_keep = 1; n_keep <= 4; n_keep++) {
            struct decoder a, b;
            slm_error err = {0};
            begin(&a, &u);
            begin(&b, &u);
            CHECK(session_try(b.session, bad, 3, &err) == NULL);
            CHECK_EQ(err.code, SLM_E_NUMERIC);
            check_same(&a, &b);
            const float *logits = session_try(b.session, ids, 4, &err);
            CHECK(logits != NULL);
            for (int k = 0; k < n_keep; k++) {
                CHECK(session_feed(a.session, &ids[k], 1, NULL));
                CHECK_MEM(logits + (size_t)k * n_vocab, session_logits(a.session),
                          n_vocab * sizeof *logits);
            }
            session_keep(b.session, n_keep);
            check_same(&a, &b);
            CHECK(session_feed(a.session, ids, 2, NULL));
            CHECK(session_feed(b.session, ids, 2, NULL));
            check_same(&a, &b);
            finish(&a);
            finish(&b);
        }
        unload(&l);
    }
}

static bool make_decoder(void *arg, slm_error *err)
{
    struct decoder d;
    const bool ok = try_open(&d, arg, err);

    finish(&d);
    return ok;
}

TEST(memory_failures_are_errors_and_decoding_allocates_nothing)
{
    struct loaded l;
    int32_t out[N_OUT];

    load(&l, "qwen35", AS_IS);
    for (int kind = DRAFT_OFF; kind < DRAFT_KINDS; kind++) {
        struct setup u = { l.model, { kind, 4, l.model, NULL, true }, 0, CONTEXT, 0 };
        struct decoder d;
        CHECK(nomem_each(make_decoder, &u) > 3);
        begin(&d, &u);
        mem_fail_after(1);
        CHECK_EQ(decode(&d, out, N_OUT, 0), N_OUT);
        mem_fail_after(0);
        finish(&d);
    }
    unload(&l);
}

/* ---- single sources ------------------------------------------------------------------------- */

/* What the block drafts behind a text is the same however the text came about. */
TEST(the_draft_block_follows_every_way_of_feeding)
{
    struct loaded l;
    int32_t out[4][3];
    int32_t text[CONTEXT];

    load(&l, "qwen35", AS_IS);
    const struct setup u = { l.model, { DRAFT_MTP, 3, l.model, NULL, true }, 0, CONTEXT, 0 };
    for (int i = 0; i < 100; i++) {
        text[i] = 6 + (i * 37 + i * i) % (model_shape(l.model)->n_vocab - 6);
    }
    for (int way = 0; way < 4; way++) {
        struct session_params p = { .context = CONTEXT, .kv = KV_F16,
                                    .chunk = way == 1 ? 7 : 0 };
        struct session *s;
        spec_session_params(&u.draft, &p);
        s = session_new(l.model, &p, NULL);
        const struct draft_setup setup = { .model = l.model, .max = 3, .context = CONTEXT,
                                           .kv = KV_F16 };
        void *mtp = draft_mtp.make(&setup, NULL);
        CHECK(s != NULL && mtp != NULL);
        session_follow(s, draft_mtp.follow, mtp);
        if (way < 2) {
            CHECK(session_feed(s, text, 99, NULL));
        } else {
            CHECK(session_feed(s, text, 30, NULL));
            for (int i = 30; i < 99; i += 3) {  /* with a wrong token behind each two or one */
                int32_t ids[4];
                memcpy(ids, text + i, 3 * sizeof *ids);
                ids[3] = 17;
                if (way == 3) {
                    session_show_next(s, ids[0]);
                    CHECK_EQ(draft_mtp.propose(mtp, session_tokens(s), i + 1, 3, out[way]), 3);
                }
                CHECK(session_try(s, ids, 4, NULL) != NULL);
                session_keep(s, 3);
            }
        }
        CHECK_EQ(session_len(s), 99);
        session_show_next(s, text[99]);
        CHECK_EQ(draft_mtp.propose(mtp, session_tokens(s), 100, 3, out[way]), 3);
        CHECK_MEM(out[way], out[0], sizeof out[0]);
        draft_mtp.drop(mtp);
        session_follow(s, NULL, NULL);
        session_free(s);
    }
    unload(&l);
}

/* A file with nothing but the draft block drafts the same for a session of the whole model. */
TEST(the_draft_block_may_be_in_a_file_of_its_own)
{
    struct loaded whole, block;
    struct decoder d[2];
    int32_t out[2][N_OUT];

    load(&whole, "qwen35", AS_IS);
    load(&block, "qwen35", BLOCK_ONLY);
    CHECK(!model_shape(whole.model)->only_drafts);
    CHECK(model_shape(block.model)->only_drafts && model_shape(block.model)->can_draft);
    for (int i = 0; i < 2; i++) {
        const struct setup u = { whole.model,
                                 { DRAFT_MTP, 3, i == 0 ? whole.model : block.model, NULL, true },
                                 0.3f, CONTEXT, 0 };
        begin(&d[i], &u);
        CHECK_EQ(decode(&d[i], out[i], N_OUT, 0), N_OUT);
    }
    CHECK_MEM(out[0], out[1], sizeof out[0]);
    check_same(&d[0], &d[1]);
    CHECK_EQ(spec_stats(d[0].spec)->drafted, spec_stats(d[1].spec)->drafted);
    CHECK_EQ(spec_stats(d[0].spec)->accepted, spec_stats(d[1].spec)->accepted);

    /* The drafts themselves too. */
    const struct draft_setup setup = { .model = whole.model, .max = 3, .context = 64, .kv = KV_F16 };
    struct draft_setup other = setup;
    int32_t text[] = { 9 }, a[3], b[3];
    other.model = block.model;
    void *x = draft_mtp.make(&setup, NULL), *y = draft_mtp.make(&other, NULL);
    CHECK(x != NULL && y != NULL);
    CHECK_EQ(draft_mtp.propose(x, text, 1, 3, a), 3);
    CHECK_EQ(draft_mtp.propose(y, text, 1, 3, b), 3);
    CHECK_MEM(a, b, sizeof a);
    draft_mtp.drop(x);
    draft_mtp.drop(y);
    finish(&d[0]);
    finish(&d[1]);
    unload(&whole);
    unload(&block);
}

/* List `key` of a reference, or the list that it is; returns how many. */
static int golden_ids(const char *file, const char *key, int32_t *ids, int cap)
{
    char path[512];

    snprintf(path, sizeof path, "%s/%s", GOLDEN, file);
    json_t *all = json_load_file(path, 0, NULL);
    json_t *list = key ? json_object_get(all, key) : all;
    const int n = (int)json_array_size(list);
    CHECK(n > 0 && n <= cap);
    for (int i = 0; i < n; i++) {
        ids[i] = (int32_t)json_integer_value(json_array_get(list, (size_t)i));
    }
    json_decref(all);
    return n;
}

TEST(drafts_and_answer_of_the_reference)
{
    enum { CAP = 128 };
    int32_t ids[CAP], want[CAP], got[CAP];
    slm_error err = {0};

    if (access(GOLDEN "/model.gguf", R_OK) != 0) {
        printf("the golden model with a draft block is not beside this tree\n");
        skip();
    }
    struct gguf *g = gguf_open(GOLDEN "/model.gguf", &err);
    struct model *m = g ? model_new(g, pool, kern_get(cpu_isa_best()), MODEL_PACK_WAIT, &err) : NULL;
    CHECK(m != NULL);
    const int n = golden_ids("tokens.json", NULL, ids, CAP);
    const struct spec_params draft = { DRAFT_MTP, 4, m, NULL, true };
    struct session_params p = { .context = 256, .kv = KV_F32 };
    spec_session_params(&draft, &p);

    /* What the block drafts behind the first token of the answer. */
    const struct draft_setup setup = { .model = m, .max = 4, .context = 256, .kv = KV_F32 };
    struct session *s = session_new(m, &p, &err);
    void *mtp = draft_mtp.make(&setup, &err);
    CHECK(s != NULL && mtp != NULL);
    session_follow(s, draft_mtp.follow, mtp);
    CHECK(session_feed(s, ids, (size_t)n, &err));
    const int n_draft = golden_ids("mtp_draft.json", "ids", want, 4);
    session_show_next(s, draft_argmax(session_logits(s), session_n_vocab(s)));
    CHECK_EQ(draft_mtp.propose(mtp, session_tokens(s), n + 1, n_draft, got), n_draft);
    CHECK_MEM(got, want, (size_t)n_draft * sizeof *got);
    session_follow(s, NULL, NULL);
    draft_mtp.drop(mtp);
    session_free(s);

    /* And the answer with it. */
    const struct setup u = { m, draft, 0, 256, 0 };
    struct decoder d;
    CHECK(try_open(&d, &u, &err));
    CHECK(session_feed(d.session, ids, (size_t)n, &err));
    const int n_answer = golden_ids("greedy.json", "ids", want, CAP);
    CHECK_EQ(decode(&d, got, n_answer, 0), n_answer);
    CHECK_MEM(got, want, (size_t)n_answer * sizeof *got);
    finish(&d);
    model_free(m);
    gguf_close(g);
}

TEST(ngrams_find_the_last_longest_match)
{
    const struct draft_setup setup = { .context = 64, .max = 16 };
    void *g = draft_ngram.make(&setup, NULL);
    int32_t out[16];
    const int32_t a[] = { 1, 2, 3, 50, 9, 2, 3, 60, 8, 1, 2, 3 };
    const int32_t b[] = { 1, 2, 3, 70, 2, 3 };
    const int32_t c[] = { 4, 5, 4, 5, 4 };
    const int32_t none[] = { 1, 2, 3, 4, 5, 6 };

    CHECK(g != NULL);
    draft_ngram.prepare(g, a, 12);
    CHECK_EQ(draft_ngram.propose(g, a, 12, 3, out), 3);  /* of three tokens, not the later two */
    CHECK_EQ(out[0], 50);
    CHECK_EQ(out[1], 9);
    CHECK_EQ(out[2], 2);
    /* The text is another one from its fourth token on. */
    draft_ngram.follow(g, b + 3, 2, 3, NULL);
    draft_ngram.prepare(g, b, 6);
    CHECK_EQ(draft_ngram.propose(g, b, 6, 2, out), 2);
    CHECK_EQ(out[0], 70);
    CHECK_EQ(out[1], 2);
    /* A period goes on for ever. */
    draft_ngram.follow(g, c, 4, 0, NULL);
    draft_ngram.prepare(g, c, 5);
    CHECK_EQ(draft_ngram.propose(g, c, 5, 16, out), 16);
    for (int i = 0; i < 16; i++) {
        CHECK_EQ(out[i], i % 2 == 0 ? 5 : 4);
    }
    draft_ngram.follow(g, none, 5, 0, NULL);
    draft_ngram.prepare(g, none, 6);
    CHECK_EQ(draft_ngram.propose(g, none, 6, 16, out), 0);
    CHECK_EQ(draft_ngram.propose(g, none, 1, 16, out), 0);
    draft_ngram.drop(g);
}

/* ---- pace ------------------------------------------------------------------------------------ */

/* Runs n steps of a machine on which a step with so many drafts costs 1 + n * row, and a draft is
 * right with chance `hit`; returns seconds per token. */
static double race(struct pace *p, struct rng *rng, int n, double row, double hit, int *n_plain)
{
    double seconds = 0, tokens = 0;

    for (int i = 0; i < n; i++) {
        const int k = pace_choose(p);
        int right = 0;
        CHECK(k >= 0 && k <= p->max);
        *n_plain += k == 0;
        while (right < k && (double)(rng_next(rng) >> 11) * 0x1p-53 < hit) {
            right++;
        }
        pace_learn(p, k, right, 1 + k * row);
        seconds += 1 + k * row;
        tokens += 1 + right;
    }
    return seconds / tokens;
}

TEST(drafts_pause_while_they_lose_and_come_back)
{
    struct rng rng = { 5 };
    struct pace p;
    int n_plain = 0;

    pace_init(&p, 8);
    CHECK(race(&p, &rng, 1000, 0.1, 0.8, &n_plain) < 0.42);   /* the best is 0.39 */
    CHECK(n_plain < 60);
    n_plain = 0;
    CHECK(race(&p, &rng, 1000, 0.1, 0.02, &n_plain) < 1.05);  /* nothing is to be gained */
    CHECK(n_plain > 900);
    CHECK(p.losing || p.rest == 0);
    race(&p, &rng, 1500, 0.1, 0.8, &n_plain);
    n_plain = 0;
    CHECK(race(&p, &rng, 500, 0.1, 0.8, &n_plain) < 0.45);
    CHECK(n_plain < 60);
    /* Rows have become dear: one draft at most, or none. */
    race(&p, &rng, 200, 0.9, 0.8, &n_plain);
    CHECK(race(&p, &rng, 500, 0.9, 0.8, &n_plain) < 1.1);
    /* The clock stands still. */
    for (int i = 0; i < 100; i++) {
        pace_learn(&p, pace_choose(&p), 0, 0);
    }
}

static int setup_all(void **state)
{
    (void)state;
    pool = pool_new(2, NULL);
    return pool ? 0 : -1;
}

static int teardown_all(void **state)
{
    (void)state;
    pool_free(pool);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(drafts_change_nothing),
        T(drafts_change_nothing_with_sliding_layers),
        T(drafts_change_nothing_with_recurrent_layers),
        T(an_end_is_not_fed),
        T(the_context_is_filled_to_the_last_token),
        T(going_back_between_drafts),
        T(tries_that_fail_and_tries_kept_in_part),
        T(memory_failures_are_errors_and_decoding_allocates_nothing),
        T(the_draft_block_follows_every_way_of_feeding),
        T(the_draft_block_may_be_in_a_file_of_its_own),
        T(drafts_and_answer_of_the_reference),
        T(ngrams_find_the_last_longest_match),
        T(drafts_pause_while_they_lose_and_come_back),
    };

    return cmocka_run_group_tests(tests, setup_all, teardown_all);
}

/* test_stream.c - direct reads, the window of a stream, and models whose weights do not fit. */
#include "model/stream.h"

#include <slm.h>

#include "base/cpu.h"
#include "base/rng.h"
#include "model/arch.h"
#include "test.h"
#include "tiny_model.h"
#include "tiny_run.h"
#include "tmpdir.h"

/* ---- a file of known bytes ------------------------------------------------------------- */

enum { FILE_BYTES = 300000 };

static uint8_t byte_at(uint64_t i)
{
    return (uint8_t)(i * 2654435761u >> 13);
}

static void make_file(const char *name, size_t n)
{
    uint8_t *bytes = malloc(n);
    slm_error err;

    for (size_t i = 0; i < n; i++) {
        bytes[i] = byte_at(i);
    }
    CHECK(file_write(in_dir(name), bytes, n, &err));
    free(bytes);
}

static struct reader *open_file(const char *name)
{
    struct file_map map;
    slm_error err;

    CHECK(file_map_open(&map, in_dir(name), &err));
    struct reader *r = reader_open(in_dir(name), &map, &err);
    CHECK(r != NULL);
    file_map_close(&map);
    return r;
}

static bool bytes_are_right(const uint8_t *data, uint64_t offset, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (data[i] != byte_at(offset + i)) {
            return false;
        }
    }
    return true;
}

static void *room_for(size_t n)
{
    return aligned_alloc(READER_ALIGN, reader_room(n));
}

/* Restores what a test may have set. */
static int no_faults(void **state)
{
    (void)state;
    reader_set_faults(&(struct reader_faults){ .bytes = 0 });
    mem_fail_after(0);
    return 0;
}

/* ---- the reader ------------------------------------------------------------------------- */

TEST(reader_gives_any_range)
{
    static const struct reader_faults faults[] = {
        { .bytes = 0 }, { .bytes = 8192 }, { .refuse_direct = true },
        { .bytes = 777, .refuse_direct = true },
    };
    static const struct { uint64_t at; size_t n; } ranges[] = {
        { 0, 1 }, { 0, 4096 }, { 1, 4096 }, { 4095, 2 }, { 4096, 4096 }, { 12345, 100000 },
        { 0, FILE_BYTES }, { FILE_BYTES - 1, 1 }, { FILE_BYTES - 5000, 5000 },
    };
    slm_error err;

    make_dir();
    make_file("f", FILE_BYTES);
    void *room = room_for(FILE_BYTES);
    for (size_t f = 0; f < sizeof faults / sizeof *faults; f++) {
        struct reader *r = open_file("f");
        reader_set_faults(&faults[f]);
        for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
            const uint8_t *data = reader_read(r, ranges[i].at, ranges[i].n, room, &err);
            CHECK(data != NULL);
            CHECK(bytes_are_right(data, ranges[i].at, ranges[i].n));
        }
        reader_close(r);
    }
    free(room);
    remove_tree();
}

TEST(reader_reports_what_is_missing)
{
    slm_error err;

    make_dir();
    make_file("f", FILE_BYTES);
    struct reader *r = open_file("f");
    void *room = room_for(FILE_BYTES);

    CHECK(reader_read(r, FILE_BYTES - 10, 11, room, &err) == NULL);
    CHECK_EQ(err.code, SLM_E_IO);
    CHECK_EQ(truncate(in_dir("f"), 5000), 0);
    CHECK(reader_read(r, 0, 5000, room, &err) != NULL);
    CHECK(reader_read(r, 4000, 2000, room, &err) == NULL);
    CHECK(strstr(err.msg, in_dir("f")) != NULL);
    CHECK(strstr(err.msg, "ends at byte 5000") != NULL);
    reader_set_faults(&(struct reader_faults){ .fail_after = 2 });
    CHECK(reader_read(r, 0, 100, room, &err) != NULL);
    CHECK(reader_read(r, 0, 100, room, &err) == NULL);
    CHECK_EQ(err.code, SLM_E_IO);
    CHECK(reader_read(r, 0, 100, room, &err) != NULL);
    reader_close(r);
    free(room);
    remove_tree();
}

TEST(reader_refuses_another_file)
{
    struct file_map map;
    slm_error err;

    make_dir();
    make_file("f", 1000);
    CHECK(file_map_open(&map, in_dir("f"), &err));
    make_file("f", 1000);  /* written beside and renamed: another file of the same name */
    CHECK(reader_open(in_dir("f"), &map, &err) == NULL);
    CHECK(strstr(err.msg, "replaced") != NULL);
    CHECK_EQ(unlink(in_dir("f")), 0);
    CHECK(reader_open(in_dir("f"), &map, &err) == NULL);
    CHECK_EQ(err.code, SLM_E_IO);
    file_map_close(&map);
    remove_tree();
}

/* ---- the window -------------------------------------------------------------------------- */

enum { N_PIECES = 40 };

/* Pieces of odd sizes; the last quarter is read by need. */
static void make_pieces(struct reader *r, struct stream_piece *pieces)
{
    uint64_t at = 17;

    for (int i = 0; i < N_PIECES; i++) {
        pieces[i] = (struct stream_piece){ r, at, 1000 + (size_t)i * 131,
                                           i >= N_PIECES * 3 / 4 };
        at += pieces[i].bytes + (uint64_t)(i % 3);
    }
    CHECK(at < FILE_BYTES);
}

static void use_piece(struct stream *s, const struct stream_piece *pieces, int i)
{
    slm_error err;
    const uint8_t *data = stream_get(s, i, &err);

    CHECK(data != NULL);
    CHECK(bytes_are_right(data, pieces[i].offset, pieces[i].bytes));
    stream_release(s);
}

TEST(stream_goes_round)
{
    struct stream_piece pieces[N_PIECES];
    int order[N_PIECES];
    slm_error err;

    make_dir();
    make_file("f", FILE_BYTES);
    struct reader *r = open_file("f");
    make_pieces(r, pieces);
    for (int n_slots = 2; n_slots <= 9; n_slots += 7) {
        struct stream *s = stream_new(pieces, N_PIECES, n_slots, &err);
        const int n = N_PIECES * 3 / 4;
        uint64_t round_bytes = 0;
        CHECK(s != NULL);
        for (int i = 0; i < n; i++) {
            order[i] = n - 1 - i;
            round_bytes += pieces[i].bytes;
        }
        stream_order(s, order, n, true);
        for (int round = 0; round < 3; round++) {
            for (int i = 0; i < n; i++) {
                use_piece(s, pieces, order[i]);
            }
        }
        /* Nothing was read in vain: at most a window ahead of what was used. */
        CHECK(stream_bytes_read(s) >= 3 * round_bytes);
        CHECK(stream_bytes_read(s) <= 3 * round_bytes + 9 * pieces[n - 1].bytes);
        stream_free(s);
    }
    reader_close(r);
    remove_tree();
}

/* Any use is right, however wrong the guesses and announcements. */
TEST(stream_survives_wrong_guesses)
{
    struct stream_piece pieces[N_PIECES];
    struct rng rng = { 3 };
    int order[N_PIECES];
    slm_error err;

    make_dir();
    make_file("f", FILE_BYTES);
    struct reader *r = open_file("f");
    make_pieces(r, pieces);
    for (int i = 0; i < N_PIECES; i++) {
        order[i] = i;
    }
    struct stream *s = stream_new(pieces, N_PIECES, 4, &err);
    CHECK(s != NULL);
    stream_order(s, order, N_PIECES, true);
    for (int i = 0; i < 3000; i++) {
        const int piece = (int)(rng_next(&rng) % N_PIECES);
        switch (rng_next(&rng) % 5) {
        case 0:
            stream_expect(s, piece);
            break;
        case 1:
            for (int j = 0; j < 6; j++) {
                stream_expect(s, N_PIECES - 1 - j);
            }
            for (int j = 0; j < 6; j++) {
                use_piece(s, pieces, N_PIECES - 1 - j);
            }
            break;
        case 2:
            if (i % 50 == 2) {
                stream_forget(s);
            }
            break;
        default:
            use_piece(s, pieces, piece);
        }
    }
    stream_free(s);
    reader_close(r);
    remove_tree();
}

TEST(stream_learns_the_order)
{
    struct stream_piece pieces[N_PIECES];
    const int n = N_PIECES * 3 / 4;
    int order[N_PIECES];
    slm_error err;

    make_dir();
    make_file("f", FILE_BYTES);
    struct reader *r = open_file("f");
    make_pieces(r, pieces);
    for (int i = 0; i < n; i++) {
        order[i] = i;
    }
    struct stream *s = stream_new(pieces, N_PIECES, 4, &err);
    CHECK(s != NULL);
    stream_order(s, order, n, true);
    uint64_t before = 0, bytes[4];
    for (int round = 0; round < 4; round++) {  /* backwards */
        for (int i = n - 1; i >= 0; i--) {
            use_piece(s, pieces, i);
        }
        bytes[round] = stream_bytes_read(s) - before;
        before += bytes[round];
    }
    /* The first round reads most pieces in vain, the later ones only what they use. */
    CHECK(bytes[3] < bytes[0]);
    stream_free(s);
    reader_close(r);
    remove_tree();
}

TEST(stream_reports_errors_and_goes_on)
{
    struct stream_piece pieces[N_PIECES];
    int order[N_PIECES];
    slm_error err;

    make_dir();
    make_file("f", FILE_BYTES);
    struct reader *r = open_file("f");
    make_pieces(r, pieces);
    for (int i = 0; i < N_PIECES; i++) {
        order[i] = i;
    }
    struct stream *s = stream_new(pieces, N_PIECES, 4, &err);
    CHECK(s != NULL);
    CHECK_EQ(truncate(in_dir("f"), 6000), 0);
    stream_order(s, order, N_PIECES, true);
    use_piece(s, pieces, 0);
    for (int i = 10; i < 20; i++) {
        CHECK(stream_get(s, i, &err) == NULL);
        CHECK_EQ(err.code, SLM_E_IO);
    }
    use_piece(s, pieces, 1);
    use_piece(s, pieces, 0);
    stream_free(s);
    reader_close(r);
    remove_tree();
}

/* ---- models -------------------------------------------------------------------------------- */

static const struct tiny_shape shape = TINY_SHAPE;

/* Of this shape, with room to spare. */
enum { MATRIX_BYTES_MAX = 64 << 10 };

/* A tiny model of the named architecture in the test's directory. */
static void make_model(const char *arch)
{
    slm_error err;

    make_dir();
    CHECK(tiny_model_write(in_dir("m.gguf"), arch_find(arch, strlen(arch)), quant_type(QT_Q4_K),
                           &shape, &err));
}

static uint64_t model_bytes(void)
{
    struct tiny t;
    slm_error err;

    CHECK(tiny_open(&t, in_dir("m.gguf"), cpu_isa_best(), 1, MODEL_PACK_OFF, KV_F16, 8, &err));
    const uint64_t bytes = model_shape(t.model)->weight_bytes;
    tiny_close(&t);
    return bytes;
}

static struct model_place place_for(int percent)
{
    return (struct model_place){ .room_bytes = model_bytes() * (uint64_t)percent / 100,
                                 .piece_bytes = 8192, .slots = 4 };
}

static const int32_t ids[] = { 5, 99, 7, 7, 120, 3 };
enum { N_IDS = 6 };

static float *logits_of(const struct model_place *place, int chunk)
{
    struct tiny t;
    slm_error err;

    CHECK(tiny_open_at(&t, in_dir("m.gguf"), cpu_isa_best(), 2, place, KV_F16, 64, &err));
    const size_t n_vocab = (size_t)model_shape(t.model)->n_vocab;
    float *out = malloc(N_IDS * n_vocab * sizeof *out);
    CHECK(tiny_feed(&t, ids, N_IDS, chunk, out, &err));
    tiny_close(&t);
    return out;
}

TEST(model_streams_any_part)
{
    static const char *const archs[] = { "llama", "qwen3moe", "gemma4", "qwen35", "gemma3n" };
    const struct model_place mapped = { .pack = MODEL_PACK_OFF };

    for (size_t a = 0; a < sizeof archs / sizeof *archs; a++) {
        make_model(archs[a]);
        float *want = logits_of(&mapped, N_IDS);
        for (int percent = 5; percent < 100; percent += 30) {
            const struct model_place place = place_for(percent);
            float *got = logits_of(&place, 2);
            CHECK_MEM(got, want, N_IDS * 320 * sizeof *got);
            free(got);
        }
        free(want);
        remove_tree();
    }
}

/* The choice keeps its promise, pins more where there is more room, and nothing where all fits. */
TEST(model_pins_what_fits)
{
    struct tiny t;
    struct model_where where, before = { 0, 0, 0 };
    slm_error err;

    make_model("llama");
    CHECK(tiny_open(&t, in_dir("m.gguf"), cpu_isa_best(), 1, MODEL_PACK_OFF, KV_F16, 8, &err));
    for (int percent = 1; percent < 100; percent++) {
        const struct model_place place = place_for(percent);
        CHECK(model_where(t.model, &place, &where, &err));
        CHECK(where.streamed_bytes > 0);
        CHECK(where.pinned_bytes + where.window_bytes <= place.room_bytes ||
              where.pinned_bytes == 0);
        /* A matrix more or less, for they are not divided. */
        CHECK(where.pinned_bytes + MATRIX_BYTES_MAX >= before.pinned_bytes);
        before = where;
    }
    CHECK(before.pinned_bytes > model_bytes() / 3);
    const struct model_place all = place_for(100);
    CHECK(model_where(t.model, &all, &where, &err));
    CHECK_EQ(where.streamed_bytes, 0);
    tiny_close(&t);
    remove_tree();
}

/* One token at position 0; needs no recurrent state, so it may be computed again. */
static bool one_step(struct tiny *t, float *logits, slm_error *err)
{
    t->n_pos = 0;
    return tiny_feed(t, ids, 1, 1, logits, err);
}

TEST(model_step_fails_where_the_file_does)
{
    const struct reader_faults none = { .bytes = 0 };
    struct tiny t;
    slm_error err;
    float want[320], got[320];

    make_model("llama");
    const struct model_place place = place_for(30);
    CHECK(tiny_open_at(&t, in_dir("m.gguf"), cpu_isa_best(), 2, &place, KV_F16, 64, &err));
    CHECK(one_step(&t, want, &err));
    /* Every read in turn fails once; the step after it is right again. */
    int n_failed = 0;
    for (long n = 1; n < 60; n++) {
        reader_set_faults(&(struct reader_faults){ .fail_after = n });
        for (int i = 0; i < 4; i++) {
            err.code = SLM_E_OK;
            if (!one_step(&t, got, &err)) {
                CHECK_EQ(err.code, SLM_E_IO);
                n_failed++;
            }
        }
        reader_set_faults(&none);
        CHECK(one_step(&t, got, &err));
        CHECK_MEM(got, want, sizeof got);
    }
    CHECK(n_failed > 20);
    /* Somebody cuts the file short. */
    CHECK_EQ(truncate(in_dir("m.gguf"), 100000), 0);
    for (int i = 0; i < 3; i++) {
        CHECK(!one_step(&t, got, &err));
        CHECK_EQ(err.code, SLM_E_IO);
        CHECK(strstr(err.msg, "m.gguf: ends at byte") != NULL);
    }
    tiny_close(&t);
    remove_tree();
}

TEST(model_place_reports_missing_memory)
{
    struct tiny t;
    slm_error err;
    bool ok = false;
    long n = 0;

    make_model("llama");
    const struct model_place place = place_for(50);
    while (!ok) {
        CHECK(++n < 1000);
        struct gguf *g = gguf_open(in_dir("m.gguf"), &err);
        struct pool *pool = pool_new(1, &err);
        struct model *m = model_load(g, pool, kern_get(cpu_isa_best()), &err);
        CHECK(m != NULL);
        mem_fail_after(n);
        ok = model_place(m, &place, &err);
        mem_fail_after(0);
        CHECK(ok || err.code == SLM_E_NOMEM);
        model_free(m);
        pool_free(pool);
        gguf_close(g);
    }
    CHECK(n > 8);
    /* And a file that cannot be read. */
    reader_set_faults(&(struct reader_faults){ .fail_after = 3 });
    CHECK(!tiny_open_at(&t, in_dir("m.gguf"), cpu_isa_best(), 1, &place, KV_F16, 8, &err));
    CHECK_EQ(err.code, SLM_E_IO);
    tiny_close(&t);
    remove_tree();
}

/* ---- the public interface --------------------------------------------------------------------- */

/* Large enough that it does not fit into the least room for weights. */
static void make_large_model(void)
{
    const struct tiny_shape large = { .layers = 3, .embd = 1024, .ff = 2048, .heads = 8,
                                      .kv_heads = 4, .head_dim = 128, .context = 2048,
                                      .window = 24, .seed = 1 };
    slm_error err;

    make_dir();
    CHECK(tiny_model_write(in_dir("m.gguf"), arch_find("llama", 5), quant_type(QT_F16), &large,
                           &err));
}

static void logits_within(const slm_model_params *params, float *out, slm_forecast *forecast)
{
    const slm_session_params session = { .context = 64 };
    slm_error err;
    slm_engine *engine = slm_engine_new(&(slm_engine_params){ .threads = 1 }, &err);
    slm_model *model = slm_model_open(engine, in_dir("m.gguf"), params, &err);

    CHECK(model != NULL);
    CHECK(slm_model_forecast(model, 64, SLM_KV_F16, forecast, &err));
    slm_session *s = slm_session_new(model, &session, &err);
    CHECK(s != NULL && slm_session_feed(s, ids, N_IDS, &err));
    memcpy(out, slm_session_logits(s), 320 * sizeof *out);
    slm_session_free(s);
    slm_model_free(model);
    slm_engine_free(engine);
}

TEST(api_keeps_a_memory_limit)
{
    const slm_session_params session = { .context = 64 };
    slm_model_params params = { .session = &session, .no_stream = true, .pack = SLM_PACK_OFF };
    slm_forecast mapped, streamed;
    float want[320], got[320];
    slm_error err;

#ifdef __SANITIZE_THREAD__
    printf("skipped: the thread sanitizer's own memory counts as the process's\n");
    return;
#endif
    make_large_model();
    logits_within(&params, want, &mapped);
    CHECK_EQ(mapped.streamed_bytes, 0);
    CHECK(mapped.weights_bytes > (uint64_t)40 << 20);

    /* Program, session and 64 MiB for the rest, and too little for the weights. */
    const uint64_t base = cpu_rss_own_bytes() + mapped.kv_bytes + mapped.work_bytes;
    params = (slm_model_params){ .session = &session,
                                 .memory_bytes = base + ((uint64_t)(64 + 40) << 20) };
    logits_within(&params, got, &streamed);
    CHECK(streamed.streamed_bytes > 0);
    CHECK(streamed.pinned_bytes > 0);
    CHECK(streamed.pinned_bytes + streamed.streamed_bytes <= streamed.weights_bytes + (1 << 20));
    CHECK(streamed.total_bytes < mapped.total_bytes);
    CHECK(streamed.total_bytes <= params.memory_bytes);
    CHECK_MEM(got, want, sizeof got);

    slm_engine *engine = slm_engine_new(&(slm_engine_params){ .threads = 1 }, &err);
    params.memory_bytes = (uint64_t)20 << 20;
    CHECK(slm_model_open(engine, in_dir("m.gguf"), &params, &err) == NULL);
    CHECK_EQ(err.code, SLM_E_NOMEM);
    CHECK(strstr(err.msg, "are the least") != NULL);
    slm_engine_free(engine);
    remove_tree();
}

#define TT(name) cmocka_unit_test_teardown(name, no_faults)

int main(void)
{
    return RUN(TT(reader_gives_any_range), TT(reader_reports_what_is_missing),
               TT(reader_refuses_another_file), TT(stream_goes_round),
               TT(stream_survives_wrong_guesses), TT(stream_learns_the_order),
               TT(stream_reports_errors_and_goes_on), TT(model_streams_any_part),
               TT(model_pins_what_fits), TT(model_step_fails_where_the_file_does),
               TT(model_place_reports_missing_memory), TT(api_keeps_a_memory_limit));
}

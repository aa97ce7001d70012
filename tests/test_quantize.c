/* test_quantize.c - whole files in other types: who gets what, what is kept, what is refused. */
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "gguf/gguf.h"
#include "quant/quant.h"
#include "slm.h"
#include "test.h"
#include "tmpdir.h"

static slm_engine *engine;

/* ---- models put together here ---------------------------------------------------- */

enum { LAYERS = 16, WIDE = 512 };

/* Random weights in memory that the writer borrows; freed by free_made. */
static float *made[LAYERS * 8 + 16];
static int n_made;

static float *random_weights(size_t n)
{
    float *x = malloc(n * sizeof *x);
    struct rng rng = { (uint64_t)n_made << 40 };

    CHECK(x != NULL && n_made < (int)(sizeof made / sizeof made[0]));
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)(rng_unit(rng_next(&rng)) + rng_unit(rng_next(&rng)) - 1) / 16;
    }
    made[n_made++] = x;
    return x;
}

static void free_made(void)
{
    while (n_made > 0) {
        free(made[--n_made]);
    }
}

static float *put_f32(struct gguf_writer *w, const char *name, int64_t width, int64_t rows)
{
    const int64_t ne[2] = { width, rows };
    float *x = random_weights((size_t)(width * rows));

    gguf_put_tensor(w, name, QT_F32, rows > 1 ? 2 : 1, ne, x);
    return x;
}

static void put_layer(struct gguf_writer *w, int layer, const char *part, int64_t width)
{
    char name[64];

    snprintf(name, sizeof name, "blk.%d.%s", layer, part);
    put_f32(w, name, width, 2);
}

/* A llama in shape only.  heads per head of keys: 4 in all. */
static struct gguf_writer *begin_model(uint32_t heads_kv, uint32_t experts)
{
    struct gguf_writer *w = gguf_writer_new();

    CHECK(w != NULL);
    gguf_put_str(w, "general.architecture", "llama", 5);
    gguf_put_u32(w, "general.file_type", 0);
    gguf_put_u32(w, "llama.block_count", LAYERS);
    gguf_put_u32(w, "llama.attention.head_count", 4);
    gguf_put_u32(w, "llama.attention.head_count_kv", heads_kv);
    gguf_put_u32(w, "llama.expert_count", experts);
    gguf_put_str(w, "future.thing", "kept\0as it is", 13);
    return w;
}

static void put_layers(struct gguf_writer *w)
{
    put_f32(w, "token_embd.weight", WIDE, 3);
    put_f32(w, "output.weight", WIDE, 3);
    put_f32(w, "output_norm.weight", WIDE, 1);
    for (int i = 0; i < LAYERS; i++) {
        put_layer(w, i, "attn_norm.weight", WIDE);
        put_layer(w, i, "attn_q.weight", WIDE);
        put_layer(w, i, "attn_k.weight", WIDE);
        put_layer(w, i, "attn_v.weight", WIDE);
        put_layer(w, i, "attn_output.weight", WIDE);
        put_layer(w, i, "ffn_down.weight", WIDE);
        put_layer(w, i, "ffn_gate_inp.weight", WIDE);
    }
}

static char in_path[320], out_path[320];

static void save_model(struct gguf_writer *w)
{
    slm_error err;

    snprintf(in_path, sizeof in_path, "%s", in_dir("in.gguf"));
    snprintf(out_path, sizeof out_path, "%s", in_dir("out.gguf"));
    if (!gguf_write_file(w, in_path, &err)) {
        fail_msg("%s", err.msg);
    }
    gguf_writer_free(w);
    free_made();
}

static void quantize(const char *type)
{
    slm_error err;

    if (!slm_quantize(engine, in_path, out_path, type, NULL, NULL, &err)) {
        fail_msg("%s: %s", type, err.msg);
    }
}

static struct gguf *open_out(void)
{
    slm_error err;
    struct gguf *g = gguf_open(out_path, &err);

    if (!g) {
        fail_msg("%s", err.msg);
    }
    return g;
}

static const char *type_of(const struct gguf *g, const char *name)
{
    const struct gguf_tensor *t = gguf_find_tensor(g, name);

    CHECK(t != NULL);
    return gguf_tensor_type(t->type)->name;
}

/* Files in the directory. */
static int count_files(void)
{
    DIR *d = opendir(dir);
    int n = 0;

    CHECK(d != NULL);
    while (readdir(d)) {
        n++;
    }
    closedir(d);
    return n - 2;
}

/* ---- mixes ----------------------------------------------------------------------- */

/* Types of layers 0, 1, 4, 6, 15 in a mix; the layers are sixteen. */
static void check_role(const struct gguf *g, const char *mix, const char *part, const char *want)
{
    static const int layers[] = { 0, 1, 4, 6, 15 };
    char name[64], got[64] = "";

    for (int i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "blk.%d.%s", layers[i], part);
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s", i ? " " : "",
                 type_of(g, name));
    }
    if (strcmp(got, want) != 0) {
        fail_msg("%s %s: %s, expected %s", mix, part, got, want);
    }
}

TEST(mixes_give_more_bits_where_they_count)
{
    static const struct { const char *mix, *output, *q, *v, *down, *attn_output; } rows[] = {
        { "Q4_K_M", "Q6_K", "Q4_K Q4_K Q4_K Q4_K Q4_K", "Q6_K Q6_K Q6_K Q4_K Q6_K",
          "Q6_K Q6_K Q6_K Q4_K Q6_K", "Q4_K Q4_K Q4_K Q4_K Q4_K" },
        { "q4_k_s", "Q6_K", "Q4_K Q4_K Q4_K Q4_K Q4_K", "Q5_K Q5_K Q4_K Q4_K Q4_K",
          "Q5_K Q5_K Q4_K Q4_K Q4_K", "Q4_K Q4_K Q4_K Q4_K Q4_K" },
        { "Q5_K_M", "Q6_K", "Q5_K Q5_K Q5_K Q5_K Q5_K", "Q6_K Q6_K Q6_K Q5_K Q6_K",
          "Q6_K Q6_K Q6_K Q5_K Q6_K", "Q5_K Q5_K Q5_K Q5_K Q5_K" },
        { "Q3_K_M", "Q6_K", "Q3_K Q3_K Q3_K Q3_K Q3_K", "Q5_K Q5_K Q4_K Q4_K Q4_K",
          "Q5_K Q4_K Q4_K Q4_K Q4_K", "Q4_K Q4_K Q4_K Q4_K Q4_K" },
        { "Q3_K_L", "Q6_K", "Q3_K Q3_K Q3_K Q3_K Q3_K", "Q5_K Q5_K Q5_K Q5_K Q5_K",
          "Q5_K Q5_K Q5_K Q5_K Q5_K", "Q5_K Q5_K Q5_K Q5_K Q5_K" },
        { "Q2_K", "Q6_K", "Q2_K Q2_K Q2_K Q2_K Q2_K", "Q3_K Q3_K Q3_K Q3_K Q3_K",
          "Q3_K Q3_K Q3_K Q3_K Q3_K", "Q3_K Q3_K Q3_K Q3_K Q3_K" },
        { "Q6_K", "Q6_K", "Q6_K Q6_K Q6_K Q6_K Q6_K", "Q6_K Q6_K Q6_K Q6_K Q6_K",
          "Q6_K Q6_K Q6_K Q6_K Q6_K", "Q6_K Q6_K Q6_K Q6_K Q6_K" },
        { "Q4_0", "Q6_K", "Q4_0 Q4_0 Q4_0 Q4_0 Q4_0", "Q4_0 Q4_0 Q4_0 Q4_0 Q4_0",
          "Q4_0 Q4_0 Q4_0 Q4_0 Q4_0", "Q4_0 Q4_0 Q4_0 Q4_0 Q4_0" },
        { "Q8_0", "Q8_0", "Q8_0 Q8_0 Q8_0 Q8_0 Q8_0", "Q8_0 Q8_0 Q8_0 Q8_0 Q8_0",
          "Q8_0 Q8_0 Q8_0 Q8_0 Q8_0", "Q8_0 Q8_0 Q8_0 Q8_0 Q8_0" },
        { "IQ4_XS", "Q6_K", "IQ4_XS IQ4_XS IQ4_XS IQ4_XS IQ4_XS",
          "IQ4_XS IQ4_XS IQ4_XS IQ4_XS IQ4_XS", "Q5_K Q5_K IQ4_XS IQ4_XS IQ4_XS",
          "IQ4_XS IQ4_XS IQ4_XS IQ4_XS IQ4_XS" },
        { "BF16", "BF16", "BF16 BF16 BF16 BF16 BF16", "BF16 BF16 BF16 BF16 BF16",
          "BF16 BF16 BF16 BF16 BF16", "BF16 BF16 BF16 BF16 BF16" },
    };

    make_dir();
    struct gguf_writer *w = begin_model(2, 0);
    put_layers(w);
    save_model(w);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        quantize(rows[i].mix);
        struct gguf *g = open_out();
        CHECK_STR(type_of(g, "output.weight"), rows[i].output);
        check_role(g, rows[i].mix, "attn_q.weight", rows[i].q);
        check_role(g, rows[i].mix, "attn_v.weight", rows[i].v);
        check_role(g, rows[i].mix, "ffn_down.weight", rows[i].down);
        check_role(g, rows[i].mix, "attn_output.weight", rows[i].attn_output);
        check_role(g, rows[i].mix, "attn_norm.weight", "F32 F32 F32 F32 F32");
        check_role(g, rows[i].mix, "ffn_gate_inp.weight", "F32 F32 F32 F32 F32");
        CHECK_STR(type_of(g, "output_norm.weight"), "F32");
        gguf_close(g);
    }
    remove_tree();
}

TEST(grouped_heads_and_eight_experts_change_the_attention)
{
    make_dir();
    struct gguf_writer *w = begin_model(1, 0);
    put_layers(w);
    save_model(w);
    quantize("Q2_K");
    struct gguf *g = open_out();
    check_role(g, "Q2_K", "attn_v.weight", "Q4_K Q4_K Q4_K Q4_K Q4_K");
    gguf_close(g);

    w = begin_model(2, 8);
    put_layers(w);
    save_model(w);
    quantize("Q4_K_M");
    g = open_out();
    check_role(g, "Q4_K_M", "attn_v.weight", "Q8_0 Q8_0 Q8_0 Q8_0 Q8_0");
    check_role(g, "Q4_K_M", "attn_k.weight", "Q8_0 Q8_0 Q8_0 Q8_0 Q8_0");
    check_role(g, "Q4_K_M", "attn_output.weight", "Q5_K Q5_K Q5_K Q5_K Q5_K");
    gguf_close(g);
    remove_tree();
}

TEST(tied_embeddings_are_the_output)
{
    make_dir();
    struct gguf_writer *w = begin_model(2, 0);
    put_f32(w, "token_embd.weight", WIDE, 3);
    put_f32(w, "rope_freqs.weight", 32, 2);
    save_model(w);
    quantize("Q4_K_S");
    struct gguf *g = open_out();
    CHECK_STR(type_of(g, "token_embd.weight"), "Q6_K");
    CHECK_STR(type_of(g, "rope_freqs.weight"), "F32");
    gguf_close(g);
    remove_tree();
}

TEST(rows_that_blocks_do_not_divide_get_smaller_blocks)
{
    static const struct { const char *mix, *of_96, *of_40, *output_96; } rows[] = {
        { "Q2_K", "Q4_0", "F16", "Q8_0" },   { "Q3_K_S", "Q4_0", "F16", "Q8_0" },
        { "Q4_K_S", "Q5_0", "F16", "Q8_0" }, { "Q5_K_S", "Q5_1", "F16", "Q8_0" },
        { "Q6_K", "Q8_0", "F16", "Q8_0" },   { "Q4_1", "Q4_1", "F16", "Q8_0" },
        { "IQ4_XS", "IQ4_NL", "F16", "Q8_0" }, { "F32", "F32", "F32", "F32" },
    };

    make_dir();
    struct gguf_writer *w = begin_model(2, 0);
    put_f32(w, "output.weight", 96, 2);
    put_f32(w, "blk.5.attn_q.weight", 96, 2);
    put_f32(w, "blk.5.attn_k.weight", 40, 2);
    save_model(w);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        quantize(rows[i].mix);
        struct gguf *g = open_out();
        CHECK_STR(type_of(g, "blk.5.attn_q.weight"), rows[i].of_96);
        CHECK_STR(type_of(g, "blk.5.attn_k.weight"), rows[i].of_40);
        CHECK_STR(type_of(g, "output.weight"), rows[i].output_96);
        gguf_close(g);
    }
    remove_tree();
}

/* ---- what is kept ---------------------------------------------------------------- */

TEST(metadata_is_kept_and_says_the_new_type)
{
    make_dir();
    struct gguf_writer *w = begin_model(2, 0);
    put_layers(w);
    save_model(w);
    quantize("q5_k_m");
    struct gguf *g = open_out();
    uint64_t v = 0;
    struct gguf_str s = {0};
    CHECK(gguf_get_u64(g, "general.file_type", 0, 100, &v, NULL));
    CHECK_EQ(v, 17);
    CHECK(gguf_get_u64(g, "general.quantization_version", 0, 100, &v, NULL));
    CHECK_EQ(v, 2);
    CHECK(gguf_get_str(g, "future.thing", &s, NULL));
    CHECK_EQ(s.n, 13);
    CHECK_MEM(s.s, "kept\0as it is", 13);
    CHECK_EQ(gguf_n_kv(g), 8);
    CHECK_STR(gguf_kv_at(g, 1)->key, "general.file_type");
    gguf_close(g);
    remove_tree();
}

/* A type that a tensor has already is not computed anew. */
TEST(the_same_type_is_copied)
{
    void *first, *second;
    struct buf a, b;

    make_dir();
    struct gguf_writer *w = begin_model(2, 0);
    put_layers(w);
    save_model(w);
    quantize("Q3_K_M");
    CHECK_EQ(rename(out_path, in_path), 0);
    quantize("Q3_K_M");
    buf_init(&a, 0);
    buf_init(&b, 0);
    CHECK(file_read(in_path, 1 << 24, &a, NULL) && file_read(out_path, 1 << 24, &b, NULL));
    first = a.data;
    second = b.data;
    CHECK_EQ(a.len, b.len);
    CHECK_MEM(first, second, a.len);
    buf_deinit(&a);
    buf_deinit(&b);
    remove_tree();
}

/* ---- the same bytes -------------------------------------------------------------- */

static void quantize_with(int threads, const char *in, const char *out, struct buf *bytes)
{
    const slm_engine_params params = { .threads = threads };
    slm_error err;
    slm_engine *e = slm_engine_new(&params, &err);

    CHECK(e != NULL);
    if (!slm_quantize(e, in, out, "Q4_K_M", NULL, NULL, &err)) {
        fail_msg("%s", err.msg);
    }
    slm_engine_free(e);
    buf_init(bytes, 0);
    CHECK(file_read(out, (size_t)1 << 28, bytes, NULL));
}

TEST(threads_do_not_show)
{
    struct buf a, b;

    make_dir();
    struct gguf_writer *w = begin_model(2, 0);
    put_f32(w, "token_embd.weight", 1024, 701);  /* several tasks, the last one not full */
    put_f32(w, "output.weight", 96, 1501);
    put_layer(w, 0, "attn_q.weight", WIDE);
    save_model(w);
    quantize_with(1, in_path, out_path, &a);
    quantize_with(3, in_path, out_path, &b);
    CHECK_EQ(a.len, b.len);
    CHECK_MEM(a.data, b.data, a.len);
    buf_deinit(&a);
    buf_deinit(&b);
    remove_tree();
}

/* An entry that the writer has no call of its own for. */
static void put_int_kv(struct gguf_writer *w, const char *key, enum gguf_type type, uint32_t v)
{
    const struct gguf_kv kv = { .key = key, .type = type, .elem = type, .n = 1,
                                .data = (const uint8_t *)&v };
    gguf_put_kv(w, &kv);
}

static void save_shard(int no, const char *name)
{
    struct gguf_writer *w = no == 0 ? begin_model(2, 0) : gguf_writer_new();
    char file[64];
    slm_error err;

    put_int_kv(w, "split.no", GGUF_U16, (uint32_t)no);
    put_int_kv(w, "split.count", GGUF_U16, 2);
    put_int_kv(w, "split.tensors.count", GGUF_I32, 2);
    put_f32(w, name, WIDE, 3);
    snprintf(file, sizeof file, "in-%05d-of-00002.gguf", no + 1);
    if (!gguf_write_file(w, in_dir(file), &err)) {
        fail_msg("%s", err.msg);
    }
    gguf_writer_free(w);
}

TEST(split_models_become_one_file)
{
    slm_error err;

    make_dir();
    save_shard(0, "token_embd.weight");
    save_shard(1, "blk.0.attn_q.weight");
    free_made();
    snprintf(in_path, sizeof in_path, "%s", in_dir("in-00001-of-00002.gguf"));
    snprintf(out_path, sizeof out_path, "%s", in_dir("out.gguf"));
    quantize("Q4_0");
    struct gguf *g = open_out();
    CHECK_EQ(gguf_n_tensors(g), 2);
    CHECK_STR(type_of(g, "blk.0.attn_q.weight"), "Q4_0");
    CHECK(gguf_find(g, "split.count") == NULL);
    gguf_close(g);
    /* The second shard is read too, so it cannot be the output. */
    snprintf(out_path, sizeof out_path, "%s", in_dir("in-00002-of-00002.gguf"));
    CHECK(!slm_quantize(engine, in_path, out_path, "Q4_0", NULL, NULL, &err));
    CHECK_EQ(err.code, SLM_E_ARG);
    CHECK(strstr(err.msg, "is the model that is read") != NULL);
    remove_tree();
}

/* ---- refusals -------------------------------------------------------------------- */

/* The output must not be there afterwards, nor anything else. */
static void fails(const char *type, slm_code code, const char *reason)
{
    slm_error err = {0};
    const int before = count_files();
    const bool ok = slm_quantize(engine, in_path, out_path, type, NULL, NULL, &err);

    if (ok || err.code != code || !strstr(err.msg, reason)) {
        fail_msg("expected \"%s\", got \"%s\"", reason, ok ? "success" : err.msg);
    }
    CHECK_EQ(count_files(), before);
}

static void save_with(float value, size_t at)
{
    struct gguf_writer *w = begin_model(2, 0);

    put_f32(w, "token_embd.weight", WIDE, 3);
    float *x = put_f32(w, "blk.0.attn_q.weight", WIDE, 300);
    x[at] = value;
    save_model(w);
}

TEST(weights_that_are_no_numbers_are_named)
{
    make_dir();
    save_with(NAN, 100001);
    fails("Q4_K_M", SLM_E_NUMERIC, "tensor blk.0.attn_q.weight: weight 100001 is not a number");
    fails("BF16", SLM_E_NUMERIC, "is not a number");
    save_with(-INFINITY, 0);
    fails("Q8_0", SLM_E_NUMERIC, "tensor blk.0.attn_q.weight: weight 0 is infinite");
    save_with(70000, 5);
    fails("Q4_0", SLM_E_UNSUPPORTED, "weight 5 is 70000, and Q4_0 cannot hold more than 65504");
    fails("F16", SLM_E_UNSUPPORTED, "F16 cannot hold");
    quantize("BF16");
    remove_tree();
}

TEST(mistakes_are_refused_by_name)
{
    slm_error err = {0};

    make_dir();
    save_with(1, 0);
    fails("Q4_K", SLM_E_ARG, "\"Q4_K\" is not one of F32, F16");
    fails("", SLM_E_ARG, "is not one of");
    CHECK(strstr(slm_quantize_types(), "Q3_K_L, Q4_K_S") != NULL);
    CHECK(!slm_quantize(engine, in_path, in_path, "Q8_0", NULL, NULL, &err));
    CHECK(strstr(err.msg, "is the model that is read") != NULL);
    CHECK_EQ(symlink(in_path, out_path), 0);
    CHECK(!slm_quantize(engine, in_path, out_path, "Q8_0", NULL, NULL, &err));
    CHECK(strstr(err.msg, "is the model that is read") != NULL);
    CHECK_EQ(unlink(out_path), 0);
    snprintf(out_path, sizeof out_path, "%s", in_dir("none/out.gguf"));
    fails("Q8_0", SLM_E_IO, "cannot be created");
    snprintf(out_path, sizeof out_path, "%s", dir);
    fails("Q8_0", SLM_E_IO, "is a directory");
    CHECK(!slm_quantize(engine, in_path, "/dev/full", "Q8_0", NULL, NULL, &err));
    CHECK(strstr(err.msg, "No space left") != NULL);
    CHECK(!slm_quantize(NULL, in_path, out_path, "Q8_0", NULL, NULL, &err));
    CHECK_EQ(err.code, SLM_E_ARG);
    snprintf(in_path, sizeof in_path, "%s", in_dir("none.gguf"));
    fails("Q8_0", SLM_E_IO, "No such file");
    remove_tree();
}

TEST(types_without_decoder_are_refused_where_they_would_change)
{
    static uint8_t bytes[256 * 8];
    const int64_t ne[2] = { 256, 1 };

    make_dir();
    struct gguf_writer *w = begin_model(2, 0);
    gguf_put_tensor(w, "blk.0.attn_q.weight", 28, 2, ne, bytes);  /* F64 */
    gguf_put_tensor(w, "blk.0.table", 26, 2, ne, bytes);          /* I32, no weights: kept */
    save_model(w);
    fails("Q8_0", SLM_E_UNSUPPORTED, "tensor blk.0.attn_q.weight: type F64 cannot be converted");
    remove_tree();
}

/* ---- progress -------------------------------------------------------------------- */

static size_t calls, last_done, last_total;

static bool count_calls(void *arg, size_t done, size_t total)
{
    CHECK(done > last_done && done <= total);
    last_done = done;
    last_total = total;
    return ++calls < *(size_t *)arg;
}

TEST(progress_reaches_the_total_and_can_cancel)
{
    size_t limit = 1000;
    slm_error err = {0};

    make_dir();
    struct gguf_writer *w = begin_model(2, 0);
    put_layers(w);
    save_model(w);
    calls = last_done = 0;
    CHECK(slm_quantize(engine, in_path, out_path, "Q8_0", count_calls, &limit, NULL));
    CHECK(calls > 100 && last_done == last_total);
    CHECK_EQ(unlink(out_path), 0);
    calls = last_done = 0;
    limit = 5;
    CHECK(!slm_quantize(engine, in_path, out_path, "Q8_0", count_calls, &limit, &err));
    CHECK_EQ(err.code, SLM_E_CANCELLED);
    CHECK_EQ(calls, 5);
    CHECK_EQ(count_files(), 1);
    remove_tree();
}

TEST(failing_allocations_are_errors)
{
    slm_error err;
    bool ok = false;

    make_dir();
    struct gguf_writer *w = begin_model(2, 0);
    put_f32(w, "token_embd.weight", WIDE, 3);
    save_model(w);
    for (long n = 1; !ok && n < 1000; n++) {
        mem_fail_after(n);
        ok = slm_quantize(engine, in_path, out_path, "Q8_0", NULL, NULL, &err);
        mem_fail_after(0);
        if (!ok && err.code != SLM_E_NOMEM) {
            fail_msg("allocation %ld: %s", n, err.msg);
        }
        CHECK_EQ(count_files(), ok ? 2 : 1);
    }
    CHECK(ok);
    remove_tree();
}

int main(void)
{
    const slm_engine_params params = { .threads = 2 };

    engine = slm_engine_new(&params, NULL);
    const int failed = RUN(
        T(mixes_give_more_bits_where_they_count),
        T(grouped_heads_and_eight_experts_change_the_attention), T(tied_embeddings_are_the_output),
        T(rows_that_blocks_do_not_divide_get_smaller_blocks),
        T(metadata_is_kept_and_says_the_new_type), T(the_same_type_is_copied),
        T(threads_do_not_show), T(split_models_become_one_file),
        T(weights_that_are_no_numbers_are_named), T(mistakes_are_refused_by_name),
        T(types_without_decoder_are_refused_where_they_would_change),
        T(progress_reaches_the_total_and_can_cancel), T(failing_allocations_are_errors));

    slm_engine_free(engine);
    return failed;
}

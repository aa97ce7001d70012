/* test_api.c - the public interface: arguments, life cycles, threads, the
 * floating-point environment, failing allocations. */
#include "test.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "gguf/gguf.h"
#include "slm.h"

#define MODEL TEST_DATA "/models/llama-Q4_0/model.gguf"
#define OTHER TEST_DATA "/models/qwen2-coder/model.gguf"

enum { N_IDS = 40 };

static slm_engine *engine;
static slm_model *model;
static int n_vocab;
static int32_t ids[N_IDS];

static int setup(void **state)
{
    const slm_engine_params params = { .threads = 2 };
    slm_model_info info;

    (void)state;
    engine = slm_engine_new(&params, NULL);
    model = engine ? slm_model_open(engine, MODEL, NULL, NULL) : NULL;
    if (!model) {
        return -1;
    }
    slm_model_info_get(model, &info);
    n_vocab = info.n_vocab;
    for (int i = 0; i < N_IDS; i++) {
        ids[i] = (i * 37 + i * i) % n_vocab;
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    slm_model_free(model);
    slm_engine_free(engine);
    return 0;
}

static slm_session *make_session(int context)
{
    const slm_session_params params = { .context = context };
    slm_session *s = slm_session_new(model, &params, NULL);

    CHECK(s != NULL);
    return s;
}

/* A copy of the small model with further metadata, in a file of its own. */
struct extra {
    const char *key;
    float number;
    const char *text;   /* NULL: the number */
};

static void write_model(char path[], const struct extra *extra, int n)
{
    slm_error err = {0};
    struct gguf *g = gguf_open(MODEL, &err);
    struct gguf_writer *w = gguf_writer_new();
    const int fd = mkstemp(path);

    CHECK(g && w && fd >= 0);
    close(fd);
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        gguf_put_kv(w, gguf_kv_at(g, i));
    }
    for (int i = 0; i < n; i++) {
        if (extra[i].text) {
            gguf_put_str(w, extra[i].key, extra[i].text, strlen(extra[i].text));
        } else {
            gguf_put_f32(w, extra[i].key, extra[i].number);
        }
    }
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        gguf_put_tensor(w, t->name, t->type, t->n_dims, t->ne, t->data);
    }
    CHECK(gguf_write_file(w, path, &err));
    gguf_writer_free(w);
    gguf_close(g);
}

/* ---- arguments --------------------------------------------------------------------- */

#define REFUSED(call)                                                                          \
    do {                                                                                       \
        slm_error err = {0};                                                                   \
        CHECK(!(call));                                                                        \
        CHECK_EQ(err.code, SLM_E_ARG);                                                         \
        CHECK(err.msg[0] != '\0');                                                             \
    } while (0)

/* Parts of an answer, as letters and texts. */
static bool note_part(void *arg, slm_part part, int index, const char *text, size_t n)
{
    char *out = arg;

    (void)index;
    snprintf(out + strlen(out), 100, "%c:%.*s|", "CRTAE"[part], (int)n, text);
    return true;
}

TEST(wrong_arguments_are_errors)
{
    slm_session *s = make_session(10);
    slm_sampler *sampler = slm_sampler_new(model, NULL, NULL);
    slm_stream *stream = slm_stream_new(model, NULL, 0, NULL);
    const char *const empty_stop[] = { "" };
    const char *const null_stop[] = { NULL };
    slm_forecast forecast;
    int32_t *out, id = -1;
    float logit;
    size_t n;
    const char *text;
    bool stopped;

    REFUSED(slm_machine_get(NULL, &err));
    REFUSED(slm_engine_new(&(slm_engine_params){ .threads = -1 }, &err));
    REFUSED(slm_engine_new(&(slm_engine_params){ .threads = 5000 }, &err));
    REFUSED(slm_model_open(NULL, MODEL, NULL, &err));
    REFUSED(slm_model_open(engine, NULL, NULL, &err));
    REFUSED(slm_model_open(engine, MODEL, &(slm_model_params){ .pack = (slm_pack)7 }, &err));
    REFUSED(slm_model_forecast(NULL, 10, SLM_KV_F16, &forecast, &err));
    REFUSED(slm_model_forecast(model, -1, SLM_KV_F16, &forecast, &err));
    REFUSED(slm_model_forecast(model, 10, (slm_kv_type)9, &forecast, &err));
    REFUSED(slm_model_forecast(model, 10, SLM_KV_F16, NULL, &err));

    REFUSED(slm_tokenize(NULL, "a", 1, true, true, &out, &n, &err));
    REFUSED(slm_tokenize(model, NULL, 1, true, true, &out, &n, &err));
    REFUSED(slm_tokenize(model, "a", 1, true, true, NULL, &n, &err));
    REFUSED(slm_tokenize(model, "a", 1, true, true, &out, NULL, &err));
    REFUSED(slm_detokenize(NULL, ids, 1, true, &n, &err));
    REFUSED(slm_detokenize(model, NULL, 1, true, &n, &err));
    REFUSED(slm_detokenize(model, &id, 1, true, &n, &err));
    REFUSED(slm_render(NULL, "[]", NULL, NULL, true, &err));
    REFUSED(slm_render(model, NULL, NULL, NULL, true, &err));
    REFUSED(slm_render_tokens(NULL, "[]", NULL, NULL, true, &out, &n, NULL, &err));
    REFUSED(slm_render_tokens(model, "[]", NULL, NULL, true, NULL, &n, NULL, &err));
    REFUSED(slm_render_tokens(model, "[]", NULL, NULL, true, &out, NULL, NULL, &err));

    REFUSED(slm_session_new(NULL, NULL, &err));
    REFUSED(slm_session_new(model, &(slm_session_params){ .context = -1 }, &err));
    REFUSED(slm_session_new(model, &(slm_session_params){ .chunk = -1 }, &err));
    REFUSED(slm_session_new(model, &(slm_session_params){ .kv = (slm_kv_type)5 }, &err));
    REFUSED(slm_session_feed(NULL, ids, 1, &err));
    REFUSED(slm_session_feed(s, NULL, 1, &err));
    REFUSED(slm_session_feed(s, &id, 1, &err));
    REFUSED(slm_session_sync(NULL, ids, 1, NULL, &err));
    REFUSED(slm_session_sync(s, NULL, 1, NULL, &err));
    REFUSED(slm_session_sync(s, ids, 0, NULL, &err));
    REFUSED(slm_session_truncate(NULL, 0, &err));
    REFUSED(slm_session_truncate(s, 1, &err));
    REFUSED(slm_session_score(NULL, ids, 1, &logit, &err));
    REFUSED(slm_session_score(s, NULL, 1, &logit, &err));
    REFUSED(slm_session_score(s, ids, 1, NULL, &err));

    REFUSED(slm_sampler_new(NULL, NULL, &err));
    REFUSED(slm_sampler_new(model, &(slm_sampling){ .temperature = -1 }, &err));
    REFUSED(slm_sample(NULL, s, &id, &err));
    REFUSED(slm_sample(sampler, NULL, &id, &err));
    REFUSED(slm_sample(sampler, s, NULL, &err));
    REFUSED(slm_sample(sampler, s, &id, &err));  /* no logits yet */

    REFUSED(slm_stream_new(NULL, NULL, 0, &err));
    REFUSED(slm_stream_new(model, NULL, 1, &err));
    REFUSED(slm_stream_new(model, empty_stop, 1, &err));
    REFUSED(slm_stream_new(model, null_stop, 1, &err));
    REFUSED(slm_stream_push(NULL, 1, &text, &n, &stopped, &err));
    REFUSED(slm_stream_push(stream, 1, NULL, &n, &stopped, &err));
    REFUSED(slm_stream_push(stream, 1, &text, NULL, &stopped, &err));
    REFUSED(slm_stream_push(stream, 1, &text, &n, NULL, &err));
    REFUSED(slm_stream_push(stream, -1, &text, &n, &stopped, &err));
    REFUSED(slm_stream_push(stream, n_vocab, &text, &n, &stopped, &err));
    REFUSED(slm_stream_finish(NULL, &text, &n, &err));
    REFUSED(slm_stream_finish(stream, NULL, &n, &err));
    REFUSED(slm_stream_finish(stream, &text, NULL, &err));

    REFUSED(slm_answer_new(NULL, NULL, false, note_part, NULL, &err));
    REFUSED(slm_answer_new(model, NULL, false, NULL, NULL, &err));
    REFUSED(slm_answer_push(NULL, "", 0, &err));
    REFUSED(slm_answer_finish(NULL, &err));
    slm_answer *answer = slm_answer_new(model, NULL, true, note_part, NULL, NULL);
    REFUSED(slm_answer_push(answer, NULL, 1, &err));
    REFUSED(slm_answer_tools(answer, NULL, &err));
    REFUSED(slm_answer_tools(answer, "{}", &err));
    REFUSED(slm_answer_tools(NULL, "[]", &err));
    slm_answer_free(answer);

    slm_stream_free(stream);
    slm_sampler_free(sampler);
    slm_session_free(s);
}

TEST(null_is_harmless_where_nothing_can_fail)
{
    slm_model_info info;
    slm_tensor_info tensor;
    slm_sampling sampling;
    size_t n = 7;

    slm_engine_free(NULL);
    slm_model_free(NULL);
    slm_session_free(NULL);
    slm_sampler_free(NULL);
    slm_stream_free(NULL);
    slm_free(NULL);
    slm_log_set(NULL, NULL);
    slm_session_progress(NULL, NULL, NULL);
    CHECK_EQ(slm_engine_threads(NULL), 0);
    CHECK_EQ(slm_session_len(NULL), 0);
    CHECK_EQ(slm_session_context(NULL), 0);
    CHECK(slm_session_logits(NULL) == NULL);
    slm_model_info_get(model, NULL);
    slm_model_info_get(NULL, &info);
    CHECK_STR(info.arch, "");
    CHECK(!slm_model_meta(NULL, 0, NULL, NULL, NULL));
    CHECK(slm_model_meta(model, 0, NULL, NULL, NULL));
    CHECK(slm_model_meta_find(NULL, "a") == NULL);
    CHECK(slm_model_meta_find(model, NULL) == NULL);
    CHECK(!slm_model_tensor(NULL, 0, &tensor));
    CHECK(!slm_model_tensor(model, 0, NULL));
    slm_sampling_default(model, NULL);
    slm_sampling_default(NULL, &sampling);
    CHECK(sampling.temperature == 0.6f && sampling.seed == 42);
    CHECK(slm_piece(NULL, 0, true, &n) == NULL);
    CHECK_EQ(n, 0);
    CHECK(slm_piece(model, -1, true, NULL) == NULL);
    CHECK(slm_piece(model, n_vocab, true, NULL) == NULL);
    CHECK(!slm_is_end(NULL, 2));
    CHECK(!slm_is_end(model, -1));
    CHECK(!slm_is_end(model, n_vocab));
    CHECK(slm_bandwidth(0, 1) < 0);
    CHECK(slm_bandwidth(1 << 24, 0) < 0);
    CHECK(slm_bandwidth(SIZE_MAX, 1) < 0);
    CHECK_STR(slm_code_text(SLM_E_OK), "no error");
    CHECK_STR(slm_code_text((slm_code)99), "unknown error");

    /* No err either. */
    CHECK(slm_model_open(engine, "none.gguf", NULL, NULL) == NULL);
    CHECK(!slm_session_feed(NULL, NULL, 1, NULL));
}

/* ---- machine ----------------------------------------------------------------------- */

TEST(machine_is_described_and_checked)
{
    slm_machine m;
    slm_error err = {0};

    CHECK(slm_machine_get(&m, NULL));
    CHECK(m.cores >= 1 && m.cores_why[0] && m.isa[0] && m.ram_bytes > 0);
    CHECK(slm_selftest(&err));
    CHECK(slm_bandwidth(1 << 24, 1) > 0);
    CHECK(strstr(slm_build(), "jansson") != NULL);

    setenv("SLM_ISA", "mmx", 1);
    CHECK(!slm_machine_get(&m, &err));
    CHECK(strstr(err.msg, "mmx") != NULL);
    CHECK(slm_engine_new(NULL, &err) == NULL);
    CHECK(!slm_selftest(NULL));
    setenv("SLM_ISA", "scalar", 1);
    CHECK(slm_machine_get(&m, &err));
    CHECK_STR(m.isa, "scalar");
    unsetenv("SLM_ISA");
}

/* ---- model ------------------------------------------------------------------------- */

TEST(open_errors_name_the_file)
{
    slm_error err = {0};

    CHECK(slm_model_open(engine, "/none/none.gguf", NULL, &err) == NULL);
    CHECK_EQ(err.code, SLM_E_IO);
    CHECK(strstr(err.msg, "/none/none.gguf") != NULL);
    CHECK(strstr(strstr(err.msg, "/none/none.gguf") + 1, "/none/none.gguf") == NULL);
    CHECK(slm_model_open(engine, TEST_DATA, NULL, &err) == NULL);
    CHECK(slm_model_open(engine, __FILE__, NULL, &err) == NULL);
    CHECK_EQ(err.code, SLM_E_FORMAT);
}

TEST(info_tells_what_the_file_says)
{
    slm_model_info i;
    slm_tensor_info t;
    const char *key, *type, *value;
    size_t n = 0, n_tensors = 0;
    uint64_t bytes = 0;

    slm_model_info_get(model, &i);
    CHECK_STR(i.arch, "llama");
    CHECK_STR(i.name, "tiny Mistral-7B-v0.3 / Nemo style");
    CHECK_EQ(i.n_layer, 1);
    CHECK_EQ(i.n_embd, 256);
    CHECK_EQ(i.n_head, 8);
    CHECK_EQ(i.n_head_kv, 2);
    CHECK_EQ(i.n_vocab, 272);
    CHECK_EQ(i.context_max, 32768);
    CHECK_EQ(i.bos, 1);
    CHECK_EQ(i.eos, 2);
    CHECK(i.add_bos && !i.has_template);
    CHECK_EQ(i.file_bytes, 291968);

    while (slm_model_meta(model, n, &key, &type, &value)) {
        CHECK(key[0] && type[0]);
        n++;
    }
    CHECK(n > 20);
    CHECK_STR(slm_model_meta_find(model, "llama.context_length"), "32768");
    CHECK_STR(slm_model_meta_find(model, "tokenizer.ggml.add_bos_token"), "true");
    CHECK_STR(slm_model_meta_find(model, "tokenizer.ggml.token_type"),
              "[2, 3, 3, 6, 6, 6, 6, 6, ...] (272 x i32)");
    CHECK(slm_model_meta_find(model, "no.such.key") == NULL);

    for (; slm_model_tensor(model, n_tensors, &t); n_tensors++) {
        CHECK(t.name[0] && t.n_dims >= 1 && t.dims[0] > 0);
        bytes += t.bytes;
    }
    CHECK_EQ(n_tensors, 12);
    CHECK_EQ(bytes, i.weight_bytes);
}

TEST(parts_of_a_model_can_be_opened)
{
    slm_error err = {0};
    slm_model_info i;
    int32_t *list;
    size_t n;
    slm_model *vocab =
        slm_model_open(engine, MODEL, &(slm_model_params){ .vocab_only = true }, NULL);
    slm_model *meta = slm_model_open(engine, MODEL, &(slm_model_params){ .meta_only = true }, NULL);

    CHECK(vocab && meta);
    slm_model_info_get(vocab, &i);
    CHECK_EQ(i.n_vocab, 272);
    CHECK(slm_tokenize(vocab, "rain", 4, false, false, &list, &n, NULL));
    slm_free(list);
    CHECK(slm_session_new(vocab, NULL, &err) == NULL);
    CHECK_EQ(err.code, SLM_E_ARG);
    CHECK(slm_sampler_new(vocab, NULL, &err) == NULL);
    CHECK(!slm_model_forecast(vocab, 10, SLM_KV_F16, &(slm_forecast){0}, &err));

    slm_model_info_get(meta, &i);
    CHECK_STR(i.arch, "llama");
    CHECK_STR(slm_model_meta_find(meta, "llama.context_length"), "32768");
    err = (slm_error){0};
    CHECK(!slm_tokenize(meta, "rain", 4, false, false, &list, &n, &err));
    CHECK_EQ(err.code, SLM_E_ARG);
    CHECK(slm_session_new(meta, NULL, &err) == NULL);
    CHECK(slm_stream_new(meta, NULL, 0, &err) == NULL);
    slm_model_free(vocab);
    slm_model_free(meta);
}

TEST(forecast_and_refusal_have_the_numbers)
{
    slm_forecast small, large;
    slm_error err = {0};

    CHECK(slm_model_forecast(model, 1000, SLM_KV_F16, &small, NULL));
    CHECK(slm_model_forecast(model, 1000, SLM_KV_F32, &large, NULL));
    CHECK_EQ(small.weights_bytes, 284160);
    CHECK_EQ(2 * small.kv_bytes, large.kv_bytes);
    CHECK(slm_model_forecast(model, 1000, SLM_KV_Q8_0, &large, NULL));
    CHECK(large.kv_bytes < small.kv_bytes);
    CHECK(!slm_model_forecast(model, 1000, (slm_kv_type)(SLM_KV_Q8_0 + 1), &large, NULL));
    CHECK_EQ(small.total_bytes, small.weights_bytes + small.kv_bytes + small.work_bytes);

    CHECK(slm_session_new(model, &(slm_session_params){ .context = 2000000000 }, &err) == NULL);
    CHECK_EQ(err.code, SLM_E_NOMEM);
    CHECK(strstr(err.msg, "2000000000 tokens") && strstr(err.msg, "GiB") &&
          strstr(err.msg, "at most"));
}

TEST(default_context_is_4096_or_less)
{
    slm_session *s = slm_session_new(model, NULL, NULL);

    CHECK_EQ(slm_session_context(s), 4096);
    CHECK_EQ(slm_session_len(s), 0);
    slm_session_free(s);
}

/* ---- text -------------------------------------------------------------------------- */

TEST(text_goes_to_tokens_and_back)
{
    const char text[] = "the rain\0in \xC3\xA4";
    const size_t len = sizeof text - 1;
    int32_t *list;
    size_t n, n_back;

    CHECK(slm_tokenize(model, text, len, true, false, &list, &n, NULL));
    CHECK(n > 4);
    CHECK_EQ(list[0], 1);
    char *back = slm_detokenize(model, list, n, false, &n_back, NULL);
    CHECK_EQ(n_back, len);
    CHECK_MEM(back, text, len);
    slm_free(back);
    slm_free(list);

    CHECK(slm_tokenize(model, NULL, 0, false, false, &list, &n, NULL));
    CHECK_EQ(n, 0);
    back = slm_detokenize(model, list, n, false, &n_back, NULL);
    CHECK_STR(back, "");
    CHECK_EQ(n_back, 0);
    slm_free(back);
    slm_free(list);

    CHECK_MEM(slm_piece(model, 1, true, &n), "<s>", 3);
    CHECK_EQ(n, 3);
    slm_piece(model, 1, false, &n);
    CHECK_EQ(n, 0);
    CHECK(slm_is_end(model, 2) && !slm_is_end(model, 100));
}

static const char template[] =
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
    "{% if mood is defined %}{{ mood }}{% endif %}{{ tools is none }}";

TEST(a_template_that_is_given_is_used)
{
    const char messages[] = "[{\"role\": \"user\", \"content\": \"a</s>b\"}]";
    slm_error err = {0};
    slm_model_info info;
    slm_model *m =
        slm_model_open(engine, MODEL, &(slm_model_params){ .chat_template = template }, &err);
    int32_t *list;
    size_t n;
    char *text;

    CHECK(m != NULL);
    slm_model_info_get(m, &info);
    CHECK(info.has_template);
    text = slm_render(m, messages, NULL, "{\"mood\": \"calm\"}", true, NULL);
    CHECK_STR(text, "<s>[user]a</s>b[assistant]calmTrue");
    slm_free(text);
    text = slm_render(m, messages, "[]", NULL, false, NULL);
    CHECK(text != NULL);
    slm_free(text);

    /* One beginning, and no control token from the message. */
    CHECK(slm_render_tokens(m, messages, NULL, NULL, true, &list, &n, &text, NULL));
    CHECK_STR(text, "<s>[user]a</s>b[assistant]True");
    CHECK_EQ(list[0], 1);
    for (size_t i = 1; i < n; i++) {
        CHECK(list[i] > 2);
    }
    slm_free(list);
    slm_free(text);
    CHECK(slm_render_tokens(m, messages, NULL, NULL, true, &list, &n, NULL, NULL));
    slm_free(list);

    const char *const bad[] = { "", "{}", "null", "[", "[1]]", "\xFF" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        err = (slm_error){0};
        CHECK(slm_render(m, bad[i], NULL, NULL, true, &err) == NULL);
        CHECK(err.code != SLM_E_OK && err.msg[0]);
    }
    CHECK(slm_render(m, messages, "{", NULL, true, &err) == NULL);
    CHECK(slm_render(m, messages, NULL, "[]", true, &err) == NULL);
    slm_model_free(m);
}

/* Control tokens are written out where an answer is split, and the form comes from the template
 * in use. */
TEST(answers_are_split_by_the_template)
{
    const slm_model_params params = { .vocab_only = true,
                                      .chat_template = "<|im_start|><tool_call><think>" };
    const char *text = "<think>a</think>b<tool_call>{\"name\": \"f\", \"arguments\": {}}";
    char parts[500] = "";
    slm_model *m = slm_model_open(engine, TEST_DATA "/models/llama-Q4_0/model.gguf", &params, NULL);
    slm_answer *answer = slm_answer_new(m, "", true, note_part, parts, NULL);

    CHECK(slm_answer_push(answer, text, strlen(text), NULL) && slm_answer_finish(answer, NULL));
    CHECK_STR(parts, "R:a|C:b|T:f|A:{}|E:|");
    slm_answer_free(answer);

    slm_model_info info;
    bool stopped;
    const char *piece;
    size_t n;
    slm_stream *stream = slm_stream_new(m, NULL, 0, NULL);
    slm_model_info_get(m, &info);
    CHECK(slm_stream_push(stream, info.eos, &piece, &n, &stopped, NULL) && n == 0);
    slm_stream_special(stream, true);
    CHECK(slm_stream_push(stream, info.eos, &piece, &n, &stopped, NULL) && n > 0);
    slm_stream_free(stream);
    slm_model_free(m);
}

TEST(templates_that_do_not_work_are_refused_with_their_line)
{
    const char broken[] = "{% for m in messages %}\n{{ m.role }}\n{% endfo %}";
    slm_error err = {0};
    slm_model_info info;

    CHECK(slm_render(model, "[]", NULL, NULL, true, &err) == NULL);
    CHECK_EQ(err.code, SLM_E_TEMPLATE);

    err = (slm_error){0};
    CHECK(slm_model_open(engine, MODEL, &(slm_model_params){ .chat_template = broken }, &err) ==
          NULL);
    CHECK_EQ(err.code, SLM_E_TEMPLATE);
    CHECK_EQ(err.position, 3);

    /* A model that brings a broken one can be opened, but renders nothing. */
    char path[] = "/tmp/slm-test-XXXXXX";
    write_model(path, &(struct extra){ "tokenizer.chat_template", 0, broken }, 1);
    slm_model *m = slm_model_open(engine, path, NULL, &err);
    CHECK(m != NULL);
    slm_model_info_get(m, &info);
    CHECK(info.has_template);
    err = (slm_error){0};
    CHECK(slm_render(m, "[]", NULL, NULL, true, &err) == NULL);
    CHECK_EQ(err.code, SLM_E_TEMPLATE);
    CHECK_EQ(err.position, 3);
    slm_model_free(m);
    unlink(path);
}

/* ---- sampling ---------------------------------------------------------------------- */

static int n_warnings;

static void count_warnings(void *arg, slm_log_level level, const char *line)
{
    CHECK(arg == &n_warnings && line[0]);
    n_warnings += level == SLM_LOG_WARN;
}

TEST(sampling_defaults_come_from_the_file)
{
    const struct extra extra[] = {
        { "general.sampling.temp", 0.25f, NULL },
        { "general.sampling.top_p", 0.5f, NULL },
        { "general.sampling.min_p", 7, NULL },          /* out of range */
        { "general.sampling.penalty_repeat", 0, "x" },  /* no number */
    };
    char path[] = "/tmp/slm-test-XXXXXX";
    slm_sampling s;

    slm_sampling_default(model, &s);
    CHECK(s.temperature == 0.6f && s.top_k == 0 && s.top_p == 1 && s.min_p == 0);
    CHECK(s.repeat_penalty == 1 && s.presence_penalty == 0 && s.frequency_penalty == 0);
    CHECK(s.seed == 42 && s.choice == 0 && s.penalty_window == 64);
    CHECK(s.typical_p == 1 && s.xtc_probability == 0 && s.dry_multiplier == 0);
    CHECK(s.mirostat_tau == 0 && s.n_logit_bias == 0);
    CHECK_STR(slm_sampling_origin(model), "no recommendation");
    CHECK_STR(slm_sampling_origin(NULL), "no recommendation");

    write_model(path, extra, 4);
    slm_model *m = slm_model_open(engine, path, NULL, NULL);
    CHECK(m != NULL);
    n_warnings = 0;
    slm_log_set(count_warnings, &n_warnings);
    slm_sampling_default(m, &s);
    slm_log_set(NULL, NULL);
    CHECK(s.temperature == 0.25f && s.top_p == 0.5f && s.min_p == 0 && s.repeat_penalty == 1);
    CHECK_EQ(n_warnings, 2);
    CHECK_STR(slm_sampling_origin(m), "the file");
    slm_model_free(m);
    unlink(path);
}

TEST(sampling_defaults_come_from_the_family)
{
    const slm_model_params params = { .meta_only = true };
    slm_model *m = slm_model_open(engine, TEST_DATA "/models/qwen3-dense/model.gguf", &params, NULL);
    slm_sampling s;

    slm_sampling_default(m, &s);
    CHECK(s.temperature == 0.6f && s.top_k == 20 && s.top_p == 0.95f && s.repeat_penalty == 1);
    CHECK_STR(slm_sampling_origin(m), "the family Qwen3");
    slm_model_free(m);
}

TEST(sampler_and_session_must_be_of_one_kind)
{
    slm_model *other = slm_model_open(engine, OTHER, NULL, NULL);
    slm_sampler *sampler = slm_sampler_new(other, NULL, NULL);
    slm_session *s = make_session(10);
    slm_error err = {0};
    int32_t id;

    CHECK(slm_session_feed(s, ids, 3, NULL));
    CHECK(!slm_sample(sampler, s, &id, &err));
    CHECK_EQ(err.code, SLM_E_ARG);
    slm_session_free(s);
    slm_sampler_free(sampler);
    slm_model_free(other);
}

/* ---- an answer --------------------------------------------------------------------- */

enum { N_ANSWER = 20 };

/* Feeds the ids and decodes N_ANSWER tokens. */
static void answer(slm_session *s, int32_t out[N_ANSWER])
{
    slm_sampler *sampler = slm_sampler_new(model, NULL, NULL);
    slm_stream *stream = slm_stream_new(model, NULL, 0, NULL);
    const char *text;
    size_t n;
    bool stopped;

    CHECK(sampler && stream);
    CHECK(slm_session_sync(s, ids, N_IDS, NULL, NULL));
    for (int i = 0; i < N_ANSWER; i++) {
        CHECK(slm_sample(sampler, s, &out[i], NULL));
        CHECK(slm_stream_push(stream, out[i], &text, &n, &stopped, NULL));
        CHECK(!stopped);
        CHECK(slm_session_feed(s, &out[i], 1, NULL));
    }
    CHECK(slm_stream_finish(stream, &text, &n, NULL));
    slm_stream_free(stream);
    slm_sampler_free(sampler);
}

TEST(decoding_allocates_nothing)
{
    slm_session *s = make_session(100);
    slm_sampler *sampler = slm_sampler_new(model, NULL, NULL);
    int32_t id;

    const long before = mem_count();
    CHECK(slm_session_feed(s, ids, N_IDS, NULL));
    for (int i = 0; i < N_ANSWER; i++) {
        CHECK(slm_sample(sampler, s, &id, NULL));
        CHECK(slm_session_feed(s, &id, 1, NULL));
    }
    CHECK_EQ(mem_count(), before);
    slm_sampler_free(sampler);
    slm_session_free(s);
}

static void *answer_thread(void *arg)
{
    slm_session *s = make_session(100);

    for (int i = 0; i < 5; i++) {
        answer(s, arg);
        CHECK(slm_session_truncate(s, 7, NULL));
    }
    slm_session_free(s);
    return NULL;
}

TEST(drafts_change_no_answer)
{
    const slm_drafting drafts[] = {
        { .kind = SLM_DRAFT_OFF },
        { .kind = SLM_DRAFT_NGRAM, .max = 16 },
        { .kind = SLM_DRAFT_MODEL, .model = model },
    };
    int32_t want[N_ANSWER], got[N_ANSWER];
    slm_session *plain = make_session(100);
    slm_draft_stats stats;

    answer(plain, want);
    for (size_t i = 0; i < sizeof drafts / sizeof *drafts; i++) {
        const slm_session_params p = { .context = 100, .draft = drafts[i] };
        slm_session *s = slm_session_new(model, &p, NULL);
        slm_sampler *sampler = slm_sampler_new(model, NULL, NULL);
        size_t n;
        CHECK(s && sampler);
        CHECK(slm_session_feed(s, ids, N_IDS, NULL));
        for (size_t done = 0; done < N_ANSWER; done += n) {
            CHECK(slm_decode(s, sampler, got + done, N_ANSWER - done, &n, NULL));
            CHECK(n >= 1 && n <= N_ANSWER - done);
        }
        CHECK_MEM(got, want, sizeof got);
        CHECK_EQ(slm_session_len(s), slm_session_len(plain));
        CHECK_MEM(slm_session_logits(s), slm_session_logits(plain),
                  (size_t)n_vocab * sizeof(float));
        slm_session_draft_stats(s, &stats);
        CHECK_EQ(stats.tokens, N_ANSWER);
        CHECK_EQ(stats.steps + stats.accepted, N_ANSWER);
        slm_sampler_free(sampler);
        slm_session_free(s);
    }
    slm_session_free(plain);
}

TEST(drafts_that_do_not_fit_are_refused)
{
    const slm_model_params vocab_only = { .vocab_only = true };
    const char *path = TEST_DATA "/models/qwen3-dense/model.gguf";
    slm_model *other = slm_model_open(engine, path, NULL, NULL);
    slm_model *vocab = slm_model_open(engine, MODEL, &vocab_only, NULL);
    slm_session *s = make_session(20);
    slm_sampler *sampler = slm_sampler_new(model, NULL, NULL);
    int32_t id;
    size_t n;

    CHECK(other && vocab && s && sampler);
    const slm_drafting wrong[] = {
        { .kind = (slm_draft_kind)9 },
        { .kind = SLM_DRAFT_NGRAM, .max = -1 },
        { .kind = SLM_DRAFT_NGRAM, .max = 17 },
        { .kind = SLM_DRAFT_NGRAM, .model = model },
        { .kind = SLM_DRAFT_MODEL },
        { .kind = SLM_DRAFT_MODEL, .model = vocab },
        { .kind = SLM_DRAFT_MODEL, .model = other },
    };
    const slm_drafting no_block[] = {
        { .kind = SLM_DRAFT_MTP },
        { .kind = SLM_DRAFT_MTP, .model = other },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const slm_session_params p = { .context = 100, .draft = wrong[i] };
        REFUSED(slm_session_new(model, &p, &err));
    }
    for (size_t i = 0; i < sizeof no_block / sizeof *no_block; i++) {
        const slm_session_params p = { .context = 100, .draft = no_block[i] };
        slm_error err = {0};
        CHECK(slm_session_new(model, &p, &err) == NULL);
        CHECK_EQ(err.code, SLM_E_UNSUPPORTED);
    }
    REFUSED(slm_decode(s, sampler, &id, 1, &n, &err));  /* no logits yet */
    CHECK(slm_session_feed(s, ids, 1, NULL));
    REFUSED(slm_decode(NULL, sampler, &id, 1, &n, &err));
    REFUSED(slm_decode(s, NULL, &id, 1, &n, &err));
    REFUSED(slm_decode(s, sampler, NULL, 1, &n, &err));
    REFUSED(slm_decode(s, sampler, &id, 0, &n, &err));
    REFUSED(slm_decode(s, sampler, &id, 1, NULL, &err));
    slm_session_draft_stats(s, NULL);
    slm_sampler_free(sampler);
    slm_session_free(s);
    slm_model_free(vocab);
    slm_model_free(other);
}

TEST(two_threads_with_two_sessions_do_not_meet)
{
    int32_t alone[N_ANSWER], a[N_ANSWER], b[N_ANSWER];
    slm_session *s = make_session(100);
    pthread_t threads[2];

    answer(s, alone);
    slm_session_free(s);
    CHECK_EQ(pthread_create(&threads[0], NULL, answer_thread, a), 0);
    CHECK_EQ(pthread_create(&threads[1], NULL, answer_thread, b), 0);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    CHECK_MEM(a, alone, sizeof alone);
    CHECK_MEM(b, alone, sizeof alone);
}

/* ---- the floating-point environment ------------------------------------------------ */

#if defined(__x86_64__)
/* Flush to zero, denormals are zero, round up: what a careless library may leave. */
enum { ODD_MXCSR = 0x1F80 | 0x8000 | 0x0040 | 0x4000 };

TEST(rounding_and_flush_modes_do_not_matter_and_survive)
{
    const size_t row = (size_t)n_vocab * sizeof(float);
    float *score = malloc(5 * row), *odd_score = malloc(5 * row);
    int32_t tokens[N_ANSWER], odd_tokens[N_ANSWER];
    slm_sampling sampling;

    slm_session *s = make_session(100);
    answer(s, tokens);
    CHECK(slm_session_truncate(s, 0, NULL));
    CHECK(slm_session_score(s, ids, 5, score, NULL));
    slm_session_free(s);

    const unsigned before = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(ODD_MXCSR);
    slm_engine *e = slm_engine_new(&(slm_engine_params){ .threads = 2 }, NULL);
    slm_model *m = slm_model_open(e, MODEL, &(slm_model_params){ .pack = SLM_PACK_WAIT }, NULL);
    slm_model *usual = model;
    model = m;
    slm_sampling_default(m, &sampling);
    s = make_session(100);
    answer(s, odd_tokens);
    const bool truncated = slm_session_truncate(s, 0, NULL);
    const bool scored = slm_session_score(s, ids, 5, odd_score, NULL);
    const bool right = slm_selftest(NULL);
    slm_session_free(s);
    slm_model_free(m);
    slm_engine_free(e);
    model = usual;
    const unsigned after = __builtin_ia32_stmxcsr() & ~0x3Fu;  /* less the sticky flags */
    __builtin_ia32_ldmxcsr(before);

    CHECK(truncated && scored && right);
    CHECK_EQ(after, ODD_MXCSR);
    CHECK_MEM(odd_tokens, tokens, sizeof tokens);
    CHECK_MEM(odd_score, score, 5 * row);
    free(score);
    free(odd_score);
}
#else
TEST(rounding_and_flush_modes_do_not_matter_and_survive)
{
    printf("the control word is tried on x86-64 only\n");
}
#endif

/* ---- failing allocations ----------------------------------------------------------- */

/* Everything from the engine to a token; false where something failed, with a reason. */
static bool whole_life(slm_error *err)
{
    const char *const stops[] = { "stop" };
    const slm_model_params params = { .pack = SLM_PACK_OFF };
    slm_engine *e = slm_engine_new(&(slm_engine_params){ .threads = 1 }, err);
    slm_model *m = e ? slm_model_open(e, MODEL, &params, err) : NULL;
    slm_session *s =
        m ? slm_session_new(m, &(slm_session_params){ .context = 70 }, err) : NULL;
    slm_sampler *sampler = s ? slm_sampler_new(m, NULL, err) : NULL;
    slm_stream *stream = sampler ? slm_stream_new(m, stops, 1, err) : NULL;
    int32_t *list = NULL, id;
    const char *piece;
    char *text = NULL;
    size_t n;
    bool stopped;

    const bool ok = stream && slm_tokenize(m, "the rain", 8, true, false, &list, &n, err) &&
                    slm_session_feed(s, list, n, err) && slm_sample(sampler, s, &id, err) &&
                    slm_stream_push(stream, id, &piece, &n, &stopped, err) &&
                    slm_stream_finish(stream, &piece, &n, err) &&
                    (text = slm_detokenize(m, &id, 1, true, NULL, err)) != NULL;
    slm_free(text);
    slm_free(list);
    slm_stream_free(stream);
    slm_sampler_free(sampler);
    slm_session_free(s);
    slm_model_free(m);
    slm_engine_free(e);
    return ok;
}

TEST(every_failing_allocation_is_an_error)
{
    long n = 1;

    for (;; n++) {
        slm_error err = {0};
        mem_fail_after(n);
        const bool ok = whole_life(&err);
        mem_fail_after(0);
        if (ok) {
            break;
        }
        CHECK_EQ(err.code, SLM_E_NOMEM);
    }
    CHECK(n > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(wrong_arguments_are_errors),
        T(null_is_harmless_where_nothing_can_fail),
        T(machine_is_described_and_checked),
        T(open_errors_name_the_file),
        T(info_tells_what_the_file_says),
        T(parts_of_a_model_can_be_opened),
        T(forecast_and_refusal_have_the_numbers),
        T(default_context_is_4096_or_less),
        T(text_goes_to_tokens_and_back),
        T(a_template_that_is_given_is_used),
        T(answers_are_split_by_the_template),
        T(templates_that_do_not_work_are_refused_with_their_line),
        T(sampling_defaults_come_from_the_file),
        T(sampling_defaults_come_from_the_family),
        T(sampler_and_session_must_be_of_one_kind),
        T(decoding_allocates_nothing),
        T(drafts_change_no_answer),
        T(drafts_that_do_not_fit_are_refused),
        T(two_threads_with_two_sessions_do_not_meet),
        T(rounding_and_flush_modes_do_not_matter_and_survive),
        T(every_failing_allocation_is_an_error),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}

/* test_toolcall.c - answers split into content, reasoning and calls, for every form, however
 * they are cut. */
#include "test.h"

#include <stdlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "text/answer.h"
#include "text/json_scan.h"

/* What was told, written out: C, R, T, A and E with the text of pieces of a kind joined. */
struct told {
    struct buf text;
    slm_part part;
    int index;
    long pieces, stop_after;
};

static bool note(void *arg, slm_part part, int index, const char *text, size_t n)
{
    static const char letters[] = "CRTAE";
    struct told *t = arg;
    const bool goes_on = t->text.len > 0 && part == t->part && index == t->index &&
                         part != SLM_PART_TOOL && part != SLM_PART_TOOL_END;

    CHECK(utf8_valid(text, n));
    if (!goes_on) {
        buf_printf(&t->text, "%s%c%s", t->text.len > 0 ? "|" : "", letters[part],
                   part >= SLM_PART_TOOL && index > 0 ? "1" : "");
        buf_puts(&t->text, part == SLM_PART_TOOL_END ? "" : ":");
    }
    buf_add(&t->text, text, n);
    t->part = part;
    t->index = index;
    return ++t->pieces != t->stop_after;
}

/* Templates that stand for the families. */
#define QWEN3   "<|im_start|> <tool_call> <think>"
#define QWEN35  "<|im_start|> <tool_call> <function= <think>"
#define GEMMA4  "'<|tool_call>call:' <|channel>"
#define LLAMA3  "<|start_header_id|> \"parameters\": "
#define NEMO    "[TOOL_CALLS]["
#define SMALL32 "[TOOL_CALLS] [CALL_ID] [ARGS]"
#define MINI3   "[TOOL_CALLS] [ARGS] [THINK]"
#define PHI4    "<|tool|>"
#define GRANITE "<|start_of_role|> <|tool_call|>"
#define SMOLLM2 "<|im_start|>"

struct split {
    const char *template, *prompt, *tools, *text, *want;
};

#define Q "\""
#define CITY "{\"city\": \"Z\xC3\xBCrich\"}"
#define CALL "{\"name\": \"f\", \"arguments\": " CITY "}"

#define TWICE "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1,\"a\":2}}"

static const char schemas[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"properties\": {"
    "\"s\": {\"type\": \"string\"}, \"u\": {\"type\": [\"string\", \"number\"]},"
    "\"e\": {\"enum\": [\"1\", \"2\"]}}}}}]";

static const struct split splits[] = {
    /* text and reasoning */
    { QWEN3, NULL, NULL, "", "" },
    { QWEN3, NULL, NULL, " Hello \n", "C: Hello \n" },
    { QWEN3, NULL, NULL, "<think>\nwhy\n\nso\n</think>\n\nHi\n", "R:why\n\nso|C:Hi\n" },
    { QWEN3, NULL, NULL, "\n<think>\n\n</think>\n\nHi", "C:Hi" },
    { QWEN3, NULL, NULL, "<think>cut off\n", "R:cut off" },
    { QWEN3, NULL, NULL, "a <think>b</think>", "C:a <think>b</think>" },
    { QWEN3, NULL, NULL, "<thin", "C:<thin" },
    { QWEN3, "..<think>\n", NULL, "why</think>Hi", "R:why|C:Hi" },
    { QWEN3, "..<think>\n", NULL, "<think>\nwhy</think>Hi", "R:why|C:Hi" },
    { QWEN3, "<think>\n\n</think>\n\n", NULL, "Hi", "C:Hi" },
    { QWEN3, "<think>", NULL, "plan\n<tool_call>\n" CALL "\n</tool_call>",
      "R:plan|T:f|A:" CITY "|E" },
    { QWEN3, "<think>", NULL, "say <tool_call> here</think>Hi", "R:say <tool_call> here|C:Hi" },
    { MINI3, NULL, NULL, "[THINK]why[/THINK]Hi[THINK]more[/THINK] ho", "R:why|C:Hi|R:more|C: ho" },
    { GEMMA4, NULL, NULL, "<|channel>thought\nwhy<channel|>Hi<channel|>", "R:why|C:Hi" },
    { GEMMA4, "<|channel>thought\n<channel|>", NULL, "Hi", "C:Hi" },
    { "<response></response>", NULL, NULL, "<think>a</think><response>b</response>", "R:a|C:b" },

    /* JSON between marks */
    { QWEN3, NULL, NULL, "<tool_call>\n" CALL "\n</tool_call>", "T:f|A:" CITY "|E" },
    { QWEN3, NULL, NULL, "Let me.\n\n<tool_call>\n" CALL "\n</tool_call>\n",
      "C:Let me.|T:f|A:" CITY "|E" },
    { QWEN3, NULL, NULL, "<tool_call>" CALL "</tool_call>\n<tool_call>" CALL "</tool_call>\nok",
      "T:f|A:" CITY "|E|T1:f|A1:" CITY "|E1|C:ok" },
    { QWEN3, NULL, NULL, "<tool_call>" CALL, "T:f|A:" CITY "|E" },
    { QWEN3, NULL, NULL, "<tool_call>" CALL " </tool_", "T:f|A:" CITY "|E|C: </tool_" },
    { QWEN3, NULL, NULL, "<tool_call>" CALL "\n" CALL "</tool_call>",
      "T:f|A:" CITY "|E|T1:f|A1:" CITY "|E1" },
    { SMOLLM2, NULL, NULL, "<tool_call>[" CALL ", " CALL "]</tool_call>",
      "T:f|A:" CITY "|E|T1:f|A1:" CITY "|E1" },
    { QWEN3, NULL, NULL, "<tool_call>{\"arguments\":{\"a\":[1,{}]},\"name\":\"f\"}</tool_call>",
      "T:f|A:{\"a\":[1,{}]}|E" },
    { QWEN3, NULL, NULL, "<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1}\"}",
      "T:f|A:{\"a\": 1}|E" },
    { QWEN3, NULL, NULL, "<tool_call>{\"name\":\"f\",\"parameters\":{}}", "T:f|A:{}|E" },
    { QWEN3, NULL, NULL, "<tool_call>{\"name\":\"\\u0066\",\"id\":7,\"arguments\":{}}",
      "T:f|A:{}|E" },
    { QWEN3, NULL, NULL, "```json\n" CALL "\n```", "T:f|A:" CITY "|E" },
    { QWEN3, NULL, NULL, CALL, "T:f|A:" CITY "|E" },
    { QWEN3, NULL, NULL, "```json\n{\"a\": 1}\n```", "C:```json\n{\"a\": 1}\n```" },
    { QWEN3, NULL, NULL, "{\"name\": 1}", "C:{\"name\": 1}" },
    { QWEN3, NULL, schemas, "{\"name\": \"g\", \"arguments\": {}}",
      "C:{\"name\": \"g\", \"arguments\": {}}" },
    { QWEN3, NULL, schemas, "<tool_call>{\"name\": \"g\", \"arguments\": {}}", "T:g|A:{}|E" },

    /* what is no call */
    { QWEN3, NULL, NULL, "see\n<tool_call>\nnothing</tool_call>", "C:see\n<tool_call>\nnothing"
      "</tool_call>" },
    { QWEN3, NULL, NULL, "<tool_call>{\"name\":\"f\"}", "C:<tool_call>{\"name\":\"f\"}" },
    { QWEN3, NULL, NULL, "<tool_call>{\"arguments\":{}}", "C:<tool_call>{\"arguments\":{}}" },
    { QWEN3, NULL, NULL, "<tool_call>{\"name\":\"\",\"arguments\":{}}",
      "C:<tool_call>{\"name\":\"\",\"arguments\":{}}" },
    { QWEN3, NULL, NULL, "<tool_call>{\"name\":\"f\",\"arguments\":[]}",
      "C:<tool_call>{\"name\":\"f\",\"arguments\":[]}" },
    { QWEN3, NULL, NULL, "a\n<tool_call>{\"name\":\"f\",\"arguments\":{\"a\": nix",
      "C:a|T:f|A:{\"a\": n|C:\n<tool_call>{\"name\":\"f\",\"arguments\":{\"a\": nix" },
    { QWEN3, NULL, NULL, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\": 1",
      "T:f|A:{\"a\": 1|C:<tool_call>{\"name\":\"f\",\"arguments\":{\"a\": 1" },
    { QWEN3, NULL, NULL, TWICE "<tool_call>" CALL,
      "T:f|A:{\"a\":1,\"a\":2}|C:" TWICE "|T1:f|A1:" CITY "|E1" },
    { QWEN3, NULL, NULL, "<tool_call><tool_call>" CALL, "C:<tool_call>|T:f|A:" CITY "|E" },
    { "", NULL, NULL, "<tool_call>" CALL "</tool_call>", "C:<tool_call>" CALL "</tool_call>" },

    /* XML */
    { QWEN35, NULL, NULL,
      "Well\n\n<tool_call>\n<function=f>\n<parameter=s>\ntwo\nlines\n</parameter>\n"
      "<parameter=n>\n12\n</parameter>\n</function>\n</tool_call>",
      "C:Well|T:f|A:{\"s\": \"two\\nlines\", \"n\": 12}|E" },
    { QWEN35, NULL, NULL, "<tool_call><function=f></function></tool_call>", "T:f|A:{}|E" },
    { QWEN35, NULL, NULL, "<function=f><parameter=a>True</parameter></function>",
      "T:f|A:{\"a\": true}|E" },
    { QWEN35, NULL, NULL, "<function=f><parameter=a>\"x\"</parameter><parameter=b> [1] "
      "</parameter><parameter=c></parameter></function>",
      "T:f|A:{\"a\": \"\\\"x\\\"\", \"b\": [1], \"c\": \"\"}|E" },
    { QWEN35, NULL, schemas, "<function=f><parameter=s>12</parameter><parameter=u>12</parameter>"
      "<parameter=e>1</parameter></function>",
      "T:f|A:{\"s\": \"12\", \"u\": 12, \"e\": \"1\"}|E" },
    { QWEN35, NULL, schemas, "<function=g></function>", "C:<function=g></function>" },
    { QWEN35, NULL, NULL, "<tool_call>\n<function=f>\n<parameter=a>\nx < y\n",
      "T:f|A:{|C:<tool_call>\n<function=f>\n<parameter=a>\nx < y\n" },
    { QWEN35, NULL, NULL, "use <function=f> so", "C:use <function=f> so" },
    { QWEN35, NULL, NULL, "<tool_call>" CALL "</tool_call>", "T:f|A:" CITY "|E" },
    { LLAMA3, NULL, NULL, "<function=f>{\"a\": 1}</function>", "T:f|A:{\"a\": 1}|E" },

    /* Llama */
    { LLAMA3, NULL, NULL, "{\"name\": \"f\", \"parameters\": {\"a\": 1}}", "T:f|A:{\"a\": 1}|E" },
    { LLAMA3, NULL, NULL, "<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": "
      "{}}; {\"name\": \"f\", \"parameters\": {}}", "T:f|A:{}|E|T1:f|A1:{}|E1" },
    { LLAMA3, NULL, NULL, "{\"a\": 1}, {", "C:{\"a\": 1}, {" },
    { LLAMA3, NULL, NULL, "Use {\"name\": \"f\", \"parameters\": {}}",
      "C:Use {\"name\": \"f\", \"parameters\": {}}" },

    /* Mistral */
    { NEMO, NULL, NULL, "[TOOL_CALLS][" CALL ", {\"name\": \"f\", \"arguments\": {}, \"id\": "
      "\"abc\"}]", "T:f|A:" CITY "|E|T1:f|A1:{}|E1" },
    { MINI3, NULL, NULL, "ok[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]f[ARGS]{}",
      "C:ok|T:f|A:{\"a\": 1}|E|T1:f|A1:{}|E1" },
    { SMALL32, NULL, NULL, "[TOOL_CALLS]f[CALL_ID]abc123456[ARGS]{}", "T:f|A:{}|E" },
    { MINI3, NULL, NULL, "[TOOL_CALLS]f{\"a\":1}", "T:f|A:{\"a\":1}|E" },
    { MINI3, NULL, NULL, "[TOOL_CALLS]f g[ARGS]{}", "C:[TOOL_CALLS]f g[ARGS]{}" },
    { MINI3, NULL, NULL, "[TOOL_CALLS][" CALL "]", "T:f|A:" CITY "|E" },
    { MINI3, NULL, NULL, "[TOOL_CALLS][]", "C:[TOOL_CALLS][]" },

    /* Phi and Granite */
    { PHI4, NULL, NULL, "<|tool_call|>[" CALL "]<|/tool_call|>", "T:f|A:" CITY "|E" },
    { PHI4, NULL, NULL, "<|tool_call|>" CALL, "T:f|A:" CITY "|E" },
    { PHI4, NULL, NULL, "functools[" CALL "]", "T:f|A:" CITY "|E" },
    { PHI4, NULL, NULL, "import functools\n", "C:import functools\n" },
    { GRANITE, NULL, NULL, "<|tool_call|>[" CALL "," CALL "]",
      "T:f|A:" CITY "|E|T1:f|A1:" CITY "|E1" },
    { GRANITE, NULL, NULL, "<|tool_call|>[" CALL " x", "T:f|A:" CITY "|E|C: x" },

    /* Gemma 4 */
    { GEMMA4, NULL, NULL,
      "<|tool_call>call:f{city:<|\"|>Z\xC3\xBCrich<|\"|>}<tool_call|>"
      "<|tool_call>call:f{}<tool_call|>",
      "T:f|A:" "{\"city\": \"Z\xC3\xBCrich\"}" "|E|T1:f|A1:{}|E1" },
    { GEMMA4, NULL, NULL,
      "<|tool_call>call:f{a:[1, -2.5e3,true,null,{b c:<|\"|>x\"y\n<|z<|\"|>}],"
      "<|\"|>q:<|\"|>:{}}<tool_call|>",
      "T:f|A:{\"a\": [1, -2.5e3, true, null, {\"b c\": \"x\\\"y\\n<|z\"}], \"q:\": {}}|E" },
    { GEMMA4, NULL, NULL, "<|tool_call>call:f{a:[None]}<tool_call|><|tool_response>",
      "T:f|A:{\"a\": [null]}|E" },
    { GEMMA4, NULL, NULL, "<|tool_call>call:f{a:[]}<tool_call|>", "T:f|A:{\"a\": []}|E" },
    { GEMMA4, NULL, NULL, "<|tool_call>call:f{a:yes}",
      "T:f|A:{\"a\": |C:<|tool_call>call:f{a:yes}" },
    { GEMMA4, NULL, NULL, "<|tool_call>call:f{a:truth}",
      "T:f|A:{\"a\": |C:<|tool_call>call:f{a:truth}" },
    { GEMMA4, NULL, NULL, "<|tool_call>cal", "C:<|tool_call>cal" },
};

enum { N_SPLITS = sizeof splits / sizeof splits[0] };

static struct answer *make(const struct split *c, struct told *t)
{
    slm_error err = {0};

    *t = (struct told){0};
    buf_init(&t->text, 0);
    struct answer *a =
        answer_new(c->template, strlen(c->template), c->prompt, true, note, t, &err);
    CHECK(a != NULL);
    CHECK(!c->tools || answer_tools(a, c->tools, &err));
    return a;
}

/* Pushes the text in pieces that end at the given places. */
static void check_cut(const struct split *c, const size_t *cuts, int n_cuts)
{
    const size_t n = strlen(c->text);
    struct told t;
    struct answer *a = make(c, &t);
    slm_error err = {0};
    size_t at = 0;

    for (int i = 0; i <= n_cuts; i++) {
        const size_t end = i < n_cuts ? cuts[i] : n;
        CHECK(answer_push(a, c->text + at, end - at, &err));
        at = end;
    }
    CHECK(answer_finish(a, &err));
    CHECK_STR(buf_str(&t.text), c->want);
    answer_free(a);
    buf_deinit(&t.text);
}

TEST(every_form_is_split)
{
    for (int i = 0; i < N_SPLITS; i++) {
        check_cut(&splits[i], NULL, 0);
    }
}

TEST(cuts_do_not_matter)
{
    size_t all[1000];

    for (int i = 0; i < N_SPLITS; i++) {
        const size_t n = strlen(splits[i].text);
        CHECK(n < 1000);
        for (size_t k = 0; k < n; k++) {
            all[k] = k;
            check_cut(&splits[i], &k, 1);
            check_cut(&splits[i], (size_t[]){ k / 2, k }, 2);
        }
        check_cut(&splits[i], all, (int)n);
    }
}

/* Every beginning of an answer gives the beginning of what the answer gives, and text that
 * loses nothing. */
TEST(every_truncation_is_fine)
{
    for (int i = 0; i < N_SPLITS; i++) {
        for (size_t n = 0; n < strlen(splits[i].text); n++) {
            struct told t;
            struct answer *a = make(&splits[i], &t);
            slm_error err = {0};
            const size_t len = n - utf8_incomplete(splits[i].text, n);
            CHECK(answer_push(a, splits[i].text, len, &err) && answer_finish(a, &err));
            answer_free(a);
            buf_deinit(&t.text);
        }
    }
}

TEST(without_tools_calls_are_text)
{
    struct told t = {0};
    slm_error err = {0};
    const char *text = "<think>a</think><tool_call>" CALL "</tool_call>";

    buf_init(&t.text, 0);
    struct answer *a = answer_new(QWEN3, strlen(QWEN3), NULL, false, note, &t, &err);
    CHECK(answer_push(a, text, strlen(text), &err) && answer_finish(a, &err));
    CHECK_STR(buf_str(&t.text), "R:a|C:<tool_call>" CALL "</tool_call>");
    answer_free(a);
    buf_deinit(&t.text);
}

TEST(text_streams_at_once)
{
    const struct split c = { QWEN3, NULL, NULL, NULL, NULL };
    struct told t;
    struct answer *a = make(&c, &t);
    slm_error err = {0};

    CHECK(answer_push(a, "Hello, wor", 10, &err));
    CHECK_STR(buf_str(&t.text), "C:Hello, wor");
    CHECK(answer_push(a, "ld <t", 5, &err));
    CHECK_STR(buf_str(&t.text), "C:Hello, world");
    CHECK(answer_push(a, "his", 3, &err));
    CHECK_STR(buf_str(&t.text), "C:Hello, world <this");
    const char *call = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"lon";
    CHECK(answer_push(a, call, strlen(call), &err));
    CHECK_STR(buf_str(&t.text), "C:Hello, world <this|T:f|A:{\"a\": \"lon");
    answer_free(a);
    buf_deinit(&t.text);
}

TEST(receiver_can_stop)
{
    const char *text = "a<tool_call>" CALL "</tool_call>b";

    for (long n = 1; n < 5; n++) {
        const struct split c = { QWEN3, NULL, NULL, NULL, NULL };
        struct told t;
        struct answer *a = make(&c, &t);
        slm_error err = {0};
        t.stop_after = n;
        const bool ok = answer_push(a, text, strlen(text), &err);
        CHECK(!ok || !answer_finish(a, &err));
        CHECK_EQ(err.code, SLM_E_CANCELLED);
        CHECK_EQ(t.pieces, n);
        answer_free(a);
        buf_deinit(&t.text);
    }
}

TEST(hostile_text_is_bounded)
{
    const char *const begins[] = {
        "<tool_call>{\"name\": \"f\", \"arguments\": ", "<tool_call>", "<tool_call><function=",
        "<tool_call><function=f><parameter=", "<tool_call><function=f><parameter=a>",
        "[TOOL_CALLS]", "<|tool_call>call:", "<|tool_call>call:f{", "<|tool_call>call:f{a:",
        "<|tool_call>call:f{a:<|\"|>", "<|tool_call>call:f{a:1", "", "<think>", "{", "```json",
    };
    const char *const repeats[] = { "{\"a\":", "[", "<", "\n", "{a:", "x", "<|\"|>", "<tool_call>",
                                    "</think>", "<think>", "[ARGS]", "1", " " };
    const char *const templates[] = { QWEN3, QWEN35, GEMMA4, MINI3, LLAMA3 };

    for (size_t i = 0; i < sizeof begins / sizeof begins[0]; i++) {
        for (size_t k = 0; k < sizeof repeats / sizeof repeats[0]; k++) {
            for (size_t j = 0; j < 5; j++) {
                const struct split c = { templates[j], NULL, NULL, NULL, NULL };
                struct told t;
                struct answer *a = make(&c, &t);
                slm_error err = {0};
                CHECK(answer_push(a, begins[i], strlen(begins[i]), &err));
                for (int n = 0; n < 5000; n++) {
                    CHECK(answer_push(a, repeats[k], strlen(repeats[k]), &err));
                }
                CHECK(answer_finish(a, &err));
                CHECK(t.text.len < (size_t)20 << 20);
                answer_free(a);
                buf_deinit(&t.text);
            }
        }
    }
}

TEST(a_call_of_any_length_ends)
{
    const struct split c = { QWEN3, NULL, NULL, NULL, NULL };
    const char *call = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"";
    char block[65536];
    struct told t;
    struct answer *a = make(&c, &t);
    slm_error err = {0};

    memset(block, 'x', sizeof block);
    CHECK(answer_push(a, call, strlen(call), &err));
    for (int i = 0; i < 200; i++) {
        CHECK(answer_push(a, block, sizeof block, &err));
    }
    CHECK(strstr(buf_str(&t.text), "|C:<tool_call>") != NULL);
    CHECK(answer_finish(a, &err));
    answer_free(a);
    buf_deinit(&t.text);
}

TEST(failed_allocations_are_errors)
{
    for (int i = 0; i < N_SPLITS; i += 5) {
        for (long n = 1;; n++) {
            const struct split *c = &splits[i];
            slm_error err = {0};
            struct told t = {0};
            buf_init(&t.text, 0);
            buf_add(&t.text, "", 0);
            buf_puts(&t.text, "                                                            ");
            mem_fail_after(n);
            struct answer *a =
                answer_new(c->template, strlen(c->template), c->prompt, true, note, &t, &err);
            const bool ok = a && (!c->tools || answer_tools(a, c->tools, &err)) &&
                            answer_push(a, c->text, strlen(c->text), &err) &&
                            answer_finish(a, &err);
            mem_fail_after(0);
            const bool noted = !t.text.failed;
            answer_free(a);
            buf_deinit(&t.text);
            if (ok && noted) {
                break;
            }
            CHECK(ok || err.code == SLM_E_NOMEM);
        }
    }
}

/* ---- forms ------------------------------------------------------------------------------ */

TEST(forms_are_recognised)
{
    const struct { const char *template, *name; } rows[] = {
        { QWEN3, "hermes" }, { QWEN35, "qwen-xml" }, { GEMMA4, "gemma4" }, { LLAMA3, "llama3" },
        { NEMO, "mistral-list" }, { SMALL32, "mistral-id" }, { MINI3, "mistral-args" },
        { PHI4, "phi4" }, { GRANITE, "granite" }, { SMOLLM2, "hermes" },
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct tool_form *f = tool_form_find(rows[i].template, strlen(rows[i].template));
        CHECK(f != NULL);
        CHECK_STR(f->name, rows[i].name);
    }
    CHECK(tool_form_find("[INST]", 6) == NULL);
    CHECK(tool_form_find("<tool_call><arg_key>", 20) == NULL);
    CHECK(tool_form_find(NULL, 0) == NULL);
    CHECK(!tool_form_find(SMOLLM2, strlen(SMOLLM2))->taught);
}

/* One call of each form, put together as the table says, is read as that call. */
TEST(what_a_form_writes_is_read)
{
    const char *const templates[] = { QWEN3, QWEN35, GEMMA4, LLAMA3, NEMO, SMALL32, MINI3, PHI4,
                                      GRANITE };

    for (size_t i = 0; i < sizeof templates / sizeof templates[0]; i++) {
        const struct tool_form *f = tool_form_find(templates[i], strlen(templates[i]));
        const int n_calls = f->separator ? 2 : 1;
        struct buf text;
        buf_init(&text, 0);
        buf_puts(&text, f->prefix);
        for (int k = 0; k < n_calls; k++) {
            buf_puts(&text, k > 0 ? f->separator : "");
            switch (f->layout) {
            case CALL_JSON:
                buf_printf(&text, "{\"%s\": \"f\", \"%s\": {\"a\": 1}}", f->name_key, f->args_key);
                break;
            case CALL_NAMED:
                buf_printf(&text, "f%s%s{\"a\": 1}", f->id_digits ? "[CALL_ID]123456789" : "",
                           f->middle);
                break;
            case CALL_XML:
                buf_puts(&text, "<function=f>\n<parameter=a>\n1\n</parameter>\n</function>");
                break;
            case CALL_GEMMA:
                buf_puts(&text, "call:f{a:1}");
                break;
            }
        }
        buf_puts(&text, f->suffix);
        const struct split c = { templates[i], NULL, NULL, buf_str(&text),
                                 n_calls == 2 ? "T:f|A:{\"a\": 1}|E|T1:f|A1:{\"a\": 1}|E1"
                                              : "T:f|A:{\"a\": 1}|E" };
        check_cut(&c, NULL, 0);
        buf_deinit(&text);
    }
}

/* ---- JSON byte by byte -------------------------------------------------------------------- */

TEST(scan_agrees_with_a_parser)
{
    const char alphabet[] = "{}[]\",:\\u0dDcC8-+.eE19 truefalsn\n\x01x";
    const char *const seeds[] = {
        "{\"a\": [1, -0.5e+3, true, false, null, \"x\\n\\u00e4\\ud83d\\ude00\"], \"b\": {}}",
        "[0, 10, 1E5, \"\", {\"k\": [[]]}]",
    };
    struct rng rng = { 3 };
    int good = 0;

    for (int i = 0; i < 200000; i++) {
        char s[128];
        strcpy(s, seeds[i % 2]);
        size_t n = strlen(s);
        for (uint64_t k = rng_next(&rng) % 3; k > 0; k--) {
            s[rng_next(&rng) % n] = alphabet[rng_next(&rng) % (sizeof alphabet - 1)];
        }
        n = i % 3 ? n : rng_next(&rng) % n;
        struct json_scan scan = {0};
        enum json_status status = JSON_MORE;
        size_t k = 0;
        while (k < n && status == JSON_MORE) {
            status = json_scan(&scan, s[k++]);
        }
        json_t *v = json_loadb(s, n, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
        if (json_is_number(v)) {
            json_decref(v);
            continue;  /* alone it has no end to see */
        }
        CHECK_EQ(v != NULL, status == JSON_DONE && strspn(s + k, " \n") >= n - k);
        good += v != NULL;
        json_decref(v);
    }
    CHECK(good > 1000);
}

int main(void)
{
    return RUN(T(every_form_is_split), T(cuts_do_not_matter), T(every_truncation_is_fine),
               T(without_tools_calls_are_text), T(text_streams_at_once), T(receiver_can_stop),
               T(hostile_text_is_bounded), T(a_call_of_any_length_ends),
               T(failed_allocations_are_errors), T(forms_are_recognised),
               T(what_a_form_writes_is_read), T(scan_agrees_with_a_parser));
}

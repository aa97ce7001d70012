/* test_chat.c - conversations through a template: what it sees, and what is refused. */
#include "test.h"

#include "base/mem.h"
#include "text/chat.h"

static const char echo[] =
    "{{ bos_token }}|{{ eos_token }}|{{ tools is none }}|{{ documents is none }}|"
    "{{ add_generation_prompt }}|{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";

static const char hello[] = "[{\"role\": \"user\", \"content\": \"<s>hi\"}]";

struct rendered {
    bool ok;
    struct buf text, spans;
    slm_error err;
};

static struct rendered render(const char *template, const char *messages, const char *tools,
                              const char *variables, bool add_generation_prompt)
{
    struct rendered r = { 0 };
    struct chat *c = NULL;

    buf_init(&r.text, 0);
    buf_init(&r.spans, 0);
    r.ok = chat_new(NULL, NULL, template, &c, &r.err) &&
           chat_render(c, messages, tools, variables, add_generation_prompt, &r.text, &r.spans,
                       &r.err);
    chat_free(c);
    return r;
}

static void rendered_free(struct rendered *r)
{
    buf_deinit(&r->text);
    buf_deinit(&r->spans);
}

static void check_text(const char *template, const char *messages, const char *tools,
                       const char *variables, const char *want)
{
    struct rendered r = render(template, messages, tools, variables, true);

    if (!r.ok) {
        fail_msg("%s: %s", template, r.err.msg);
    }
    CHECK_STR(buf_str(&r.text), want);
    rendered_free(&r);
}

static void check_error(const char *template, const char *messages, const char *tools,
                        const char *variables, const char *part)
{
    struct rendered r = render(template, messages, tools, variables, true);

    if (r.ok || strstr(r.err.msg, part) == NULL) {
        fail_msg("%s\n  not %s", r.ok ? buf_str(&r.text) : r.err.msg, part);
    }
    CHECK_EQ(r.text.len, 0);
    CHECK_EQ(r.spans.len, 0);
    rendered_free(&r);
}

TEST(a_template_sees_what_it_expects)
{
    check_text(echo, hello, NULL, NULL, "||True|True|True|<user><s>hi");
    check_text(echo, "[]", "[{\"a\": 1}]", "{\"bos_token\": \"<s>\", \"documents\": [],"
               " \"add_generation_prompt\": false}", "<s>||False|False|False|");
    check_text("{{ enable_thinking }}{{ reasoning_effort is defined }}", "[]", NULL,
               "{\"enable_thinking\": true}", "TrueFalse");
}

TEST(arguments_of_tool_calls_become_objects)
{
    const char *template = "{% for m in messages %}{% for t in m.tool_calls %}"
                           "{{ (t.function or t).arguments is mapping }}"
                           "{{ (t.function or t).arguments }};{% endfor %}{% endfor %}";

    check_text(template, "[{\"tool_calls\": [{\"function\": {\"arguments\": \"{\\\"b\\\": 1,"
               " \\\"a\\\": [null]}\"}}, {\"arguments\": \"{}\"}, {\"arguments\": \"{x\"},"
               " {\"arguments\": \"[1]\"}, {\"arguments\": {\"k\": 2}}, {\"arguments\": 7}]}]",
               NULL, NULL,
               "True{'b': 1, 'a': [None]};True{};False{x;False[1];True{'k': 2};False7;");
    check_text("{{ messages }}", "[{\"tool_calls\": null}, {\"tool_calls\": [1]}]", NULL, NULL,
               "[{'tool_calls': None}, {'tool_calls': [1]}]");
}

TEST(only_text_of_the_messages_is_marked)
{
    struct rendered r = render("<s>{{ messages[0].content }}</s>{{ tools }}", hello,
                               "[{\"name\": \"<s>\"}]", NULL, true);
    struct span s;

    CHECK(r.ok);
    CHECK_EQ(r.spans.len, sizeof s);
    memcpy(&s, r.spans.data, sizeof s);
    CHECK_EQ(s.begin, 3);
    CHECK_EQ(s.end, 8);
    rendered_free(&r);
}

TEST(input_of_the_wrong_shape_is_named)
{
    check_error(echo, NULL, NULL, NULL, "messages: none");
    check_error(echo, "{}", NULL, NULL, "messages: must be a JSON array");
    check_error(echo, "[{}, 1]", NULL, NULL, "messages: element 1 must be an object");
    check_error(echo, "[\n{,", NULL, NULL, "messages: not valid JSON at line 2");
    check_error(echo, "", NULL, NULL, "messages: not valid JSON");
    check_error(echo, "[]", "{}", NULL, "tools: must be a JSON array");
    check_error(echo, "[]", "[1]", NULL, "tools: element 0");
    check_error(echo, "[]", NULL, "[]", "variables: must be a JSON object");
    check_error(echo, "[]", NULL, "{\"messages\": 1}", "'messages' has its own parameter");
    check_error("{{", "[]", NULL, NULL, "chat template: line 1");
    check_error("\n{{ raise_exception('no user') }}", "[]", NULL, NULL,
                "chat template: line 2: no user");
}

TEST(a_file_without_a_template_has_no_chat)
{
    struct chat *c = (struct chat *)&c;
    slm_error err = { 0 };

    CHECK(chat_new(NULL, NULL, NULL, &c, &err));
    CHECK(c == NULL);
}

/* A model file with nothing but a template. */
static struct gguf *file_with(const char *template, uint8_t **bytes)
{
    struct gguf_writer *w = gguf_writer_new();
    slm_error err = { 0 };
    struct gguf *g;
    size_t n;

    if (template != NULL) {
        gguf_put_str(w, "tokenizer.chat_template", template, strlen(template));
    } else {
        gguf_put_u32(w, "tokenizer.chat_template", 1);
    }
    *bytes = gguf_write_mem(w, &n, &err);
    gguf_writer_free(w);
    CHECK(*bytes != NULL);
    g = gguf_open_mem(*bytes, n, &err);
    if (g == NULL) {
        fail_msg("%s", err.msg);
    }
    return g;
}

TEST(the_template_comes_from_the_file)
{
    uint8_t *bytes;
    struct gguf *g = file_with("[{{ messages | length }}]", &bytes);
    struct chat *c = NULL;
    slm_error err = { 0 };
    struct buf text;

    buf_init(&text, 0);
    CHECK(chat_new(g, NULL, NULL, &c, &err));
    CHECK(chat_render(c, hello, NULL, NULL, false, &text, NULL, &err));
    CHECK_STR(buf_str(&text), "[1]");
    chat_free(c);
    gguf_close(g);
    mem_free(bytes);

    g = file_with(NULL, &bytes);
    CHECK(!chat_new(g, NULL, NULL, &c, &err));
    CHECK(strstr(err.msg, "tokenizer.chat_template") != NULL);
    gguf_close(g);
    mem_free(bytes);
    buf_deinit(&text);
}

TEST(every_allocation_may_fail)
{
    for (long n = 1;; n++) {
        struct rendered r;

        mem_fail_after(n);
        r = render(echo, hello, NULL, NULL, true);
        mem_fail_after(0);
        if (r.ok) {
            CHECK(n > 3);
            rendered_free(&r);
            return;
        }
        CHECK_EQ(r.err.code, SLM_E_NOMEM);
        rendered_free(&r);
    }
}

int main(void)
{
    return RUN(T(a_template_sees_what_it_expects), T(arguments_of_tool_calls_become_objects),
               T(only_text_of_the_messages_is_marked), T(input_of_the_wrong_shape_is_named),
               T(a_file_without_a_template_has_no_chat), T(the_template_comes_from_the_file),
               T(every_allocation_may_fail));
}

/* test_jinja.c - templates against what Jinja2 gives, limits, errors, marks. */
#include "test.h"

#include <dirent.h>
#include <pthread.h>
#include <unistd.h>
#include <stdlib.h>

#include <jansson.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/jinja.h"

/* 2026-10-05 14:30:15, the clock of all reference results. */
static const struct jinja_env golden_env = { .fixed_clock = true, .now = 1791210615 };

/* ---- helpers ------------------------------------------------------------------------- */

struct result {
    bool ok;
    struct buf text, spans;
    slm_error err;
};

static struct result render_env(const char *template, size_t n, json_t *context,
                                const struct jinja_env *env, const char *marked)
{
    struct result r = { 0 };
    struct jinja *j;

    buf_init(&r.text, 0);
    buf_init(&r.spans, 0);
    j = jinja_compile(template, n, &r.err);
    r.ok = j != NULL && jinja_render(j, context, env, marked, &r.text,
                                     marked != NULL ? &r.spans : NULL, &r.err);
    jinja_free(j);
    return r;
}

static struct result render(const char *template, json_t *context)
{
    return render_env(template, strlen(template), context, &golden_env, NULL);
}

static void result_free(struct result *r)
{
    buf_deinit(&r->text);
    buf_deinit(&r->spans);
}

/* want: NULL for whatever text. */
static void check_text(const char *template, const char *context, const char *want)
{
    json_t *json = context != NULL ? json_loads(context, 0, NULL) : NULL;
    struct result r = render(template, json);

    if (!r.ok || (want != NULL && strcmp(buf_str(&r.text), want) != 0)) {
        fail_msg("%s\n  gives %s\n  not   %s", template, r.ok ? buf_str(&r.text) : r.err.msg,
                 want != NULL ? want : "an error");
    }
    result_free(&r);
    json_decref(json);
}

/* The error must contain `part` and name the line. */
static void check_error(const char *template, int line, const char *part)
{
    struct result r = render(template, NULL);
    char head[32];

    snprintf(head, sizeof head, "line %d: ", line);
    if (r.ok || strstr(r.err.msg, part) == NULL || strncmp(r.err.msg, head, strlen(head)) != 0) {
        fail_msg("%s\n  gives %s\n  not   %s...%s", template,
                 r.ok ? buf_str(&r.text) : r.err.msg, head, part);
    }
    CHECK_EQ(r.err.code, SLM_E_TEMPLATE);
    CHECK_EQ(r.err.position, line);
    CHECK_EQ(r.text.len, 0);
    result_free(&r);
}

/* ---- reference results ---------------------------------------------------------------- */

static int n_cases, n_bad;

/* A raised message follows the line; one that is too long for an error is cut. */
static bool raised_as(const slm_error *err, const char *message)
{
    const char *got = strstr(err->msg, ": ");
    size_t n;

    if (got == NULL) {
        return false;
    }
    n = strlen(got += 2);
    return strcmp(got, message) == 0 ||
           (strlen(err->msg) > sizeof err->msg - 5 && n < strlen(message) &&
            strncmp(got, message, n) == 0 && utf8_valid(got, n));
}

/* Compares one rendering with a case of either kind of reference file. */
static void check_case(const char *name, json_t *c, const struct result *r)
{
    const char *expected = json_string_value(json_object_get(c, "expected"));
    const char *kind = json_string_value(json_object_get(c, "error"));
    const char *message = json_string_value(json_object_get(c, "message"));
    bool ok;

    if (expected == NULL && kind == NULL) {
        kind = json_string_value(json_object_get(c, "raises_kind"));
        message = json_string_value(json_object_get(c, "raises"));
    }
    if (expected != NULL) {
        size_t n = json_string_length(json_object_get(c, "expected"));

        ok = r->ok && r->text.len == n && memcmp(buf_str(&r->text), expected, n) == 0;
    } else {
        ok = !r->ok && r->err.position > 0;
        if (strcmp(kind, "raised") == 0 || strcmp(kind, "template") == 0) {
            ok = ok && raised_as(&r->err, message);
        }
    }
    n_cases++;
    if (!ok && n_bad++ < 20) {
        print_message("%s %s: %.300s\n  expected %.300s\n", name,
                      json_string_value(json_object_get(c, "id")),
                      r->ok ? buf_str(&r->text) : r->err.msg,
                      expected != NULL ? expected : message);
    }
}

/* Calls fn for every line of a file of JSON lines. */
static void each_line(const char *path, void (*fn)(json_t *c, const void *arg), const void *arg)
{
    struct buf file;
    slm_error err = { 0 };
    char *line, *end;

    buf_init(&file, 0);
    if (!file_read(path, (size_t)64 << 20, &file, &err)) {
        fail_msg("%s", err.msg);
    }
    for (line = file.data; line < file.data + file.len; line = end + 1) {
        json_t *c;

        end = memchr(line, '\n', (size_t)(file.data + file.len - line));
        end = end != NULL ? end : file.data + file.len;
        c = json_loadb(line, (size_t)(end - line), JSON_ALLOW_NUL, NULL);
        CHECK(c != NULL);
        fn(c, arg);
        json_decref(c);
    }
    buf_deinit(&file);
}

static void language_case(json_t *c, const void *arg)
{
    json_t *template = json_object_get(c, "template");
    struct result r = render_env(json_string_value(template), json_string_length(template),
                                 json_object_get(c, "context"), &golden_env, NULL);

    check_case(arg, c, &r);
    result_free(&r);
}

TEST(renders_the_language_as_jinja2)
{
    n_cases = n_bad = 0;
    each_line(TEST_DATA "/jinja/cases.jsonl", language_case, "cases");
    CHECK_EQ(n_cases, 946);
    CHECK_EQ(n_bad, 0);
}

/* Generated templates with what Jinja2 3.1.6 on Python 3.11 made of them. */
TEST(renders_generated_templates_as_jinja2)
{
    n_cases = n_bad = 0;
    each_line(TEST_DATA "/jinja/more.jsonl", language_case, "more");
    CHECK_EQ(n_cases, 3120);
    CHECK_EQ(n_bad, 0);
}

/* What messages, tools and kwargs of a case make visible to the template. */
static json_t *chat_context(json_t *c)
{
    json_t *context = json_object(), *tools = json_object_get(c, "tools");

    json_object_set(context, "messages", json_object_get(c, "messages"));
    json_object_set_new(context, "tools", tools != NULL ? json_incref(tools) : json_null());
    json_object_set_new(context, "documents", json_null());
    json_object_update(context, json_object_get(c, "kwargs"));
    return context;
}

struct template_run {
    const char *name;
    struct jinja *j;
    bool marks;
};

/* Marked spans are ascending, disjoint, and inside the text. */
static void check_spans(const struct buf *spans, size_t text_len)
{
    size_t n = spans->len / sizeof(struct span), last = 0;

    for (size_t i = 0; i < n; i++) {
        struct span s;

        memcpy(&s, spans->data + i * sizeof s, sizeof s);
        CHECK(s.begin < s.end && s.end <= text_len && (i == 0 || s.begin > last));
        last = s.end;
    }
}

static void template_case(json_t *c, const void *arg)
{
    const struct template_run *t = arg;
    struct result r = { 0 };
    json_t *context = chat_context(c);

    buf_init(&r.text, 0);
    buf_init(&r.spans, 0);
    r.ok = jinja_render(t->j, context, &golden_env, "messages", &r.text, &r.spans, &r.err);
    check_case(t->name, c, &r);
    check_spans(&r.spans, r.text.len);
    result_free(&r);
    json_decref(context);
}

/* Runs the cases of every template below root; -1 where there is no such folder. */
static int run_templates(const char *root)
{
    DIR *dir = opendir(root);
    struct dirent *e;
    int n_templates = 0;

    if (dir == NULL) {
        return -1;
    }
    n_cases = n_bad = 0;
    while ((e = readdir(dir)) != NULL) {
        struct template_run t = { .name = e->d_name };
        char path[600];
        struct buf source;
        slm_error err = { 0 };

        snprintf(path, sizeof path, "%s/%s/template.jinja", root, e->d_name);
        if (access(path, R_OK) != 0) {
            continue;
        }
        buf_init(&source, 0);
        CHECK(file_read(path, 1 << 20, &source, &err));
        t.j = jinja_compile(source.data, source.len, &err);
        if (t.j == NULL) {
            fail_msg("%s: %s", e->d_name, err.msg);
        }
        snprintf(path, sizeof path, "%s/%s/cases.jsonl", root, e->d_name);
        each_line(path, template_case, &t);
        jinja_free(t.j);
        buf_deinit(&source);
        n_templates++;
    }
    closedir(dir);
    return n_templates;
}

TEST(renders_the_templates_of_models)
{
    CHECK_EQ(run_templates(TEST_DATA "/jinja/templates"), 18);
    CHECK_EQ(n_bad, 0);
    if (run_templates(TEST_SHARED "/golden/templates") < 0) {
        printf("the full set of templates is not beside this tree: only tests/data ran\n");
        return;
    }
    CHECK(n_cases >= 2089);
    CHECK_EQ(n_bad, 0);
}

/* ---- errors ------------------------------------------------------------------------------ */

TEST(errors_name_the_line)
{
    check_error("a\nb\n{{ 1 + }}", 3, "unexpected 'end of print statement'");
    check_error("{{ x\n.y\n.z }}", 2, "'x' is undefined");
    check_error("{% macro f() %}\n{{ 1 / 0 }}\n{% endmacro %}\n{{ f() }}", 2, "division by zero");
    check_error("\n{% for a in 1 %}{% endfor %}", 2, "'int' object is not iterable");
    check_error("{# a\nb #}{% nosuch %}", 2, "unknown tag 'nosuch'");
    check_error("{% if a %}\n\n", 2, "endif");
    check_error("{{ 1 | nosuch }}", 1, "No filter named 'nosuch'");
    check_error("{{ 1 is nosuch }}", 1, "No test named 'nosuch'");
    check_error("\n\n{{ raise_exception('no such role') }}", 3, "no such role");
    check_error("{{ raise_exception('two\\nlines\\x1b') }}", 1, "two\nlines?");
    check_error("{% include 'other' %}", 1, "'include' needs another template");
    check_error("{% extends 'other' %}", 1, "'extends' needs another template");
    check_error("{% import 'a' as b %}", 1, "'import' needs another template");
    check_error("{% from 'a' import b, c as d with context %}", 1, "'from' needs another");
    check_text("{{ {'s': 1}['items\\x00\\x00'] }}{{ 'a'['upper\\x00'] }}", NULL, "");
    check_error("{{ '%\\x00' % 1 }}", 1, "unsupported format character");
    check_text("{% if false %}{% include 'other' %}{{ 1 | nosuch }}{% endif %}x", NULL, "x");
}

TEST(long_messages_are_cut_at_a_character)
{
    char template[1200];
    struct result r;

    for (size_t shift = 0; shift < 4; shift++) {
        size_t n = (size_t)sprintf(template, "{{ raise_exception('%.*s", (int)shift, "abc");

        for (int i = 0; i < 300; i++) {
            n += (size_t)sprintf(template + n, "\xE4\xB8\x96");
        }
        sprintf(template + n, "') }}");
        r = render(template, NULL);
        CHECK(!r.ok);
        CHECK(strlen(r.err.msg) > sizeof r.err.msg - 5);
        CHECK(utf8_valid(r.err.msg, strlen(r.err.msg)));
        result_free(&r);
    }
}

TEST(refuses_text_that_is_not_utf8)
{
    struct result r = render("{{ 'a\xFF' }}", NULL);

    CHECK(!r.ok);
    CHECK(strstr(r.err.msg, "UTF-8") != NULL);
    result_free(&r);
}

/* ---- limits ------------------------------------------------------------------------------- */

static void check_limit(const char *template, const struct jinja_env *env, const char *part)
{
    struct result r = render_env(template, strlen(template), NULL, env, NULL);

    if (r.ok || strstr(r.err.msg, part) == NULL) {
        fail_msg("%.100s\n  gives %s\n  not %s", template,
                 r.ok ? "text" : r.err.msg, part);
    }
    result_free(&r);
}

TEST(limits_are_errors_that_name_them)
{
    struct jinja_env steps = { .limits.max_steps = 1000 };
    struct jinja_env output = { .limits.max_output = 100 };
    struct jinja_env memory = { .limits.max_memory = 1 << 20 };
    const char *endless = "{% for a in range(99999) %}{% for b in range(99999) %}"
                          "{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}";

    check_limit(endless, &steps, "limit of 1000 steps");
    check_limit(endless, &(struct jinja_env){ 0 }, "steps");
    check_limit("{{ 'x' * 101 }}", &output, "limit of 100 bytes");
    check_limit("{{ 'x' * 9999999999 }}", &memory, "limit of 1048576 bytes of memory");
    check_limit("{% set ns = namespace(s='x') %}{% for i in range(60) %}"
                "{% set ns.s = ns.s ~ ns.s %}{% endfor %}", &memory, "bytes of memory");
    check_limit("{{ '%99999999d' % 1 }}", &memory, "width");
    check_limit("{{ 2 ** 99999999 }}", &(struct jinja_env){ 0 }, "limit of");
    check_limit("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", &(struct jinja_env){ 0 },
                "deeper than");
    check_limit("{% set ns = namespace(s=[]) %}{% for i in range(9999) %}"
                "{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s }}", &(struct jinja_env){ 0 },
                "deeper than");
    check_limit("{% set ns = namespace(s=[]) %}{% for i in range(50) %}"
                "{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s == [ns.s] }}{{ ns.s | length }}"
                "{{ ns.s | tojson | length }}", &(struct jinja_env){ 0 }, "limit");
}

/* ---- depth: no input may exhaust a small stack ----------------------------------------------- */

struct nest {
    const char *head, *open, *middle, *close, *tail;
};

static const struct nest nests[] = {
    { "{{ ", "(", "1", ")", " }}" },
    { "{{ ", "[", "1", "]", " }}" },
    { "{{ ", "{1:", "1", "}", " }}" },
    { "{{ ", "-", "1", "", " }}" },
    { "{{ ", "not ", "1", "", " }}" },
    { "{{ ", "a[", "1", "]", " }}" },
    { "{{ ", "f(", "1", ")", " }}" },
    { "{{ 1", " if 1 else 1", "", "", " }}" },
    { "{{ ", "1 + ", "1", "", " }}" },
    { "{{ ", "1 ~ ", "1", "", " }}" },
    { "{{ ", "1 == ", "1", "", " }}" },
    { "{{ ", "1 and ", "1", "", " }}" },
    { "{{ ", "2 ** ", "1", "", " }}" },
    { "{{ 1", "|abs", "", "", " }}" },
    { "{{ 1", ".a", "", "", " }}" },
    { "{{ 1", "[0]", "", "", " }}" },
    { "{{ 1", "()", "", "", " }}" },
    { "{{ 1", " is odd", "", "", " }}" },
    { "", "{% if 1 %}", "x", "{% endif %}", "" },
    { "", "{% if 1 %}{% elif 1 %}", "x", "{% endif %}", "" },
    { "{% if 0 %}", "{% elif 0 %}", "x", "", "{% endif %}" },
    { "", "{% for a in [1] %}", "x", "{% endfor %}", "" },
    { "", "{% set a %}", "x", "{% endset %}", "" },
    { "", "{% filter upper %}", "x", "{% endfilter %}", "" },
    { "", "{% macro f() %}", "x", "{% endmacro %}", "" },
    { "", "{% with %}", "x", "{% endwith %}", "" },
    { "{% set ", "(", "a", ",)", " = 1 %}" },
    { "{% for ", "(", "a", ",)", " in [] %}{% endfor %}" },
    { "{{ '", "{:", "x", "}", "'.format(1) }}" },
    { "", "{%", "", "", "" },
    { "", "{#", "", "", "" },
    { "", "{{", "", "", "" },
};

static void *render_nests(void *arg)
{
    static const int depths[] = { 5, 40, 90, 200, 3000 };
    struct buf b;

    (void)arg;
    for (size_t i = 0; i < sizeof nests / sizeof nests[0]; i++) {
        for (size_t d = 0; d < sizeof depths / sizeof depths[0]; d++) {
            struct result r;

            buf_init(&b, 0);
            buf_puts(&b, nests[i].head);
            for (int k = 0; k < depths[d]; k++) {
                buf_puts(&b, nests[i].open);
            }
            buf_puts(&b, nests[i].middle);
            for (int k = 0; k < depths[d]; k++) {
                buf_puts(&b, nests[i].close);
            }
            buf_puts(&b, nests[i].tail);
            r = render(buf_str(&b), NULL);
            result_free(&r);
            buf_deinit(&b);
        }
    }
    return NULL;
}

/* Recursion through every way a template has to call itself, with much between. */
static void *render_recursions(void *arg)
{
    static const char *const templates[] = {
        "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
        "{% macro f(n) %}{% for i in [1] %}{% if 1 %}{% set x %}{% filter upper %}"
        "{{ ((f(n + 1) ~ 'a') | trim) if (1 and not 0) else [1] }}"
        "{% endfilter %}{% endset %}{{ x }}{% endif %}{% endfor %}{% endmacro %}{{ f(0) }}",
        "{% macro f(n) %}{{ [[[{'a': (f(n))}]]] }}{% endmacro %}{{ f(0) }}",
        "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{% block a %}{{ self.a() }}{% endblock %}",
        "{% macro f() %}{{ caller() }}{% endmacro %}{% macro g() %}{% call f() %}{{ g() }}"
        "{% endcall %}{% endmacro %}{{ g() }}",
        "{% macro f(a) %}{{ [1] | map('upper') | map('replace', 'a', f(a)) | list }}"
        "{% endmacro %}{{ f(1) }}",
        "{% macro f(x=f()) %}{% endmacro %}{{ f() }}",
        "{% set ns = namespace(a=[1]) %}{% for i in range(5000) %}{% set ns.a = ns.a | map('abs')"
        " %}{% endfor %}{{ ns.a | list }}",
        "{% set ns = namespace(a=(1,)) %}{% for i in range(5000) %}{% set ns.a = (ns.a,) %}"
        "{% endfor %}{{ {ns.a: 1} }}",
        "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(5000) %}{% set ns.a = [ns.a] %}"
        "{% set ns.b = [ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
        "{% set ns = namespace(a=[1], b=[2]) %}{% for i in range(5000) %}{% set ns.a = [ns.a] %}"
        "{% set ns.b = [ns.b] %}{% endfor %}{{ ns.a < ns.b }}",
        "{% set ns = namespace(a=[1]) %}{% for i in range(5000) %}{% set ns.a = [ns.a] %}"
        "{% endfor %}{{ ns.a | tojson }}",
        "{% set ns = namespace(a=[1]) %}{% for i in range(5000) %}{% set ns.a = [ns.a] %}"
        "{% endfor %}{{ ns.a | pprint }}",
    };

    (void)arg;
    for (size_t i = 0; i < sizeof templates / sizeof templates[0]; i++) {
        struct result r = render(templates[i], NULL);

        if (r.ok || strstr(r.err.msg, "deeper than") == NULL) {
            print_message("%s: %s\n", templates[i], r.ok ? buf_str(&r.text) : r.err.msg);
        }
        CHECK(!r.ok);
        result_free(&r);
    }
    return NULL;
}

#if defined(__SANITIZE_ADDRESS__) || !defined(__OPTIMIZE__)
enum { STACK_BYTES = 2 << 20 };   /* frames are several times larger */
#else
enum { STACK_BYTES = 256 << 10 };
#endif

static void on_small_stack(void *(*fn)(void *arg))
{
    pthread_attr_t attr;
    pthread_t thread;

    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    CHECK_EQ(pthread_create(&thread, &attr, fn, NULL), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
}

TEST(a_small_stack_is_enough_for_any_source)
{
    on_small_stack(render_nests);
}

TEST(a_small_stack_is_enough_for_any_recursion)
{
    on_small_stack(render_recursions);
}

/* ---- marks ------------------------------------------------------------------------------- */

/* Renders with the variable m = {"s": "abc<x>", "l": ["one", "two"]} marked and shows what is
 * marked in brackets. */
static void check_marks(const char *template, const char *want)
{
    json_t *context = json_loads("{\"m\": {\"s\": \"abc<x>\", \"l\": [\"one\", \"Two\"]},"
                                 " \"plain\": \"p\"}", 0, NULL);
    struct result r = render_env(template, strlen(template), context, &golden_env, "m");
    struct buf shown;
    size_t done = 0;

    if (!r.ok) {
        fail_msg("%s: %s", template, r.err.msg);
    }
    buf_init(&shown, 0);
    check_spans(&r.spans, r.text.len);
    for (size_t i = 0; i < r.spans.len; i += sizeof(struct span)) {
        struct span s;

        memcpy(&s, r.spans.data + i, sizeof s);
        buf_add(&shown, r.text.data + done, s.begin - done);
        buf_putc(&shown, '[');
        buf_add(&shown, r.text.data + s.begin, s.end - s.begin);
        buf_putc(&shown, ']');
        done = s.end;
    }
    buf_add(&shown, r.text.data + done, r.text.len - done);
    if (strcmp(buf_str(&shown), want) != 0) {
        fail_msg("%s\n  gives %s\n  not   %s", template, buf_str(&shown), want);
    }
    buf_deinit(&shown);
    result_free(&r);
    json_decref(context);
}

TEST(text_of_the_marked_variable_is_marked)
{
    check_marks("<s>{{ m.s }}</s>{{ plain }}", "<s>[abc<x>]</s>p");
    check_marks("{{ '<' + m.s + '>' }}", "<[abc<x>]>");
    check_marks("{{ '<' ~ m.s ~ 1 }}", "<[abc<x>]1");
    check_marks("{{ m.s[1:4] }}|{{ ('-' ~ m.s)[:2] }}|{{ m.s[::-1] }}", "[bc<]|-[a]|[>x<cba]");
    check_marks("{{ (' ' ~ m.s ~ ' ') | trim }}", "[abc<x>]");
    check_marks("{{ m.s | upper }}{{ ('x' ~ m.s) | title }}", "[ABC<X>]X[abc<X>]");
    check_marks("{{ m.s.replace('b', '--') }}", "[a]--[c<x>]");
    check_marks("{{ 'a-b' | replace('-', m.s) }}", "a[abc<x>]b");
    check_marks("{{ m.s.split('b')[1] }}", "[c<x>]");
    check_marks("{{ m.l | join('</s>') }}", "[one]</s>[Two]");
    check_marks("{{ m.l }}", "['[one]', '[Two]']");
    check_marks("{{ m | tojson }}", "{\"[s]\": \"[abc<x>]\", \"[l]\": [\"[one]\", \"[Two]\"]}");
    check_marks("{{ '<%s>' % m.s }}{{ '<{}|{:>8}>'.format(1, m.s) }}",
                "<[abc<x>]><1|  [abc<x>]>");
    check_marks("{{ m.s | e }}", "[abc]&lt;[x]&gt;");
    check_marks("{% set a %}<{{ m.s }}>{% endset %}{{ a }}", "<[abc<x>]>");
    check_marks("{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(m.s) }}", "<[abc<x>]>");
    check_marks("{% filter upper %}a{{ m.s }}{% endfilter %}", "A[ABC<X>]");
    check_marks("{% for c in m.s %}{{ c }}-{% endfor %}", "[a]-[b]-[c]-[<]-[x]-[>]-");
    check_marks("{{ m.s | list | sort | join }}{{ m.s | length }}", "[<>abcx]6");
    check_marks("{{ m.l[0] | indent(2, true) }}{{ m.s * 2 }}", "  [oneabc<x>abc<x>]");
    check_marks("{{ m.s.center(10, '*') }}{{ m.s | truncate(5, true, '', 0) }}",
                "**[abc<x>]**[abc<x]");
    check_marks("{{ m.s.partition('c') | join('|') }}", "[ab]|[c]|[<x>]");
    check_marks("{{ m.s.encode().decode() }}{{ m.s.translate({97: 'q'}) }}", "[abc<x>]q[bc<x>]");
    check_marks("{% for k, v in m.items() %}{{ k }}={{ v }};{% endfor %}",
                "[s]=[abc<x>];[l]=['[one]', '[Two]'];");
}

/* ---- memory ------------------------------------------------------------------------------- */

static const char busy[] =
    "{% macro g(n) %}{{ caller(n) }}{% endmacro %}"
    "{% macro f(x, y=[1, 2]) %}{{ x }}{{ y | join('-') }}{{ varargs }}{{ kwargs }}{% endmacro %}"
    "{% set ns = namespace(a=1, b='text') %}{% for i, j in [[1, 2], [3, 4]] if i %}"
    "{{ loop.index }}{{ f(i, [3], 4, z=j) }}{% set ns.a = ns.a * 99999999999999999999 %}"
    "{% endfor %}{{ ns.a }}{% set t %}block {{ ns.b }}{% endset %}{{ t | upper | wordwrap(3) }}"
    "{{ m | tojson(indent=2) }}{{ '%s %05.2f %(x)s' | replace('%(x)s', '') % ('a', 1.5) }}"
    "{{ '{0:>9} {1!r:_^20} {a.b}'.format(1, 'x', a={'b': 2}) }}{{ m | dictsort }}{{ undefd }}"
    "{{ m | items | map('first') | map('upper') | list | sort(reverse=true) }}"
    "{{ [3, 1, 2] | groupby('real') }}{{ 'a b c'.split() | batch(2, 'x') | list }}"
    "{% call(q) g(1) %}{{ q }}{% endcall %}{{ range(20) | slice(3) | list }}"
    "{{ {'a': 1, 'b': 2, 'c': 3, 'd': 4, 'e': 5, 'f': 6, 'g': 7, 'h': 8, 'i': 9, 'j': 10} }}";

/* Every allocation of compiling and rendering fails once: an error each time, never a crash. */
static void fail_every_allocation(const char *template, json_t *context)
{
    for (long n = 1;; n++) {
        struct result r;

        mem_fail_after(n);
        r = render_env(template, strlen(template), context, &golden_env, "m");
        mem_fail_after(0);
        if (r.ok || r.err.code != SLM_E_NOMEM) {
            CHECK(n > 3);
            result_free(&r);
            return;
        }
        CHECK(strstr(r.err.msg, "memory") != NULL);
        result_free(&r);
    }
}

TEST(every_allocation_may_fail)
{
    json_t *context = json_loads("{\"m\": {\"k\": [1, 2.5, \"text\", null, {\"x\": true}]}}", 0,
                                 NULL);

    fail_every_allocation("{{ m }}{{ 'x' * 300000 }}{{ m | tojson }}", context);
    fail_every_allocation(busy, context);
    check_text(busy, "{\"m\": {\"k\": [1]}}", NULL);
    json_decref(context);
}

/* A memory limit at every small size: what is out is said, and nothing else happens. */
TEST(every_memory_limit_is_an_error)
{
    json_t *context = json_loads("{\"m\": {\"k\": [1, 2.5, \"text\", null, {\"x\": true}]}}", 0,
                                 NULL);

    for (size_t limit = 1; limit < 16000; limit += 7) {
        struct jinja_env env = golden_env;
        struct result r;

        env.limits.max_memory = limit;
        r = render_env(busy, strlen(busy), context, &env, "m");
        if (r.ok || strstr(r.err.msg, "bytes of memory") == NULL) {
            fail_msg("%zu: %s", limit, r.ok ? "no error" : r.err.msg);
        }
        result_free(&r);
    }
    json_decref(context);
}

int main(void)
{
    return RUN(T(renders_the_language_as_jinja2), T(renders_generated_templates_as_jinja2),
               T(renders_the_templates_of_models),
               T(errors_name_the_line), T(long_messages_are_cut_at_a_character),
               T(refuses_text_that_is_not_utf8), T(limits_are_errors_that_name_them),
               T(a_small_stack_is_enough_for_any_source),
               T(a_small_stack_is_enough_for_any_recursion),
               T(text_of_the_marked_variable_is_marked), T(every_allocation_may_fail),
               T(every_memory_limit_is_an_error));
}

/* tools.c - the language of tool calls, from a row of the table of forms and the tools'
 * schemas.
 *
 * Marks that are control tokens of the vocabulary can only be those tokens; others are
 * text, and text in front of calls is told from them by the texts themselves. */
#include "guide/tools.h"

#include <string.h>

#include "base/mem.h"
#include "guide/charset.h"
#include "guide/schema.h"

struct maker {
    struct grammar *g;
    const struct guide_vocab *t;
    const struct tool_form *form;
    struct json_text j;
    slm_error *err;
};

/* ---- marks -------------------------------------------------------------------------- */

/* Length of the text in < > or [ ] that begins here; 0 where none does. */
static size_t bracketed(const char *s)
{
    const char *end = *s == '<' ? strchr(s, '>') : *s == '[' ? strchr(s, ']') : NULL;

    return end ? (size_t)(end - s) + 1 : 0;
}

static bool is_control(const struct maker *m, const char *s, size_t n)
{
    char name[64];

    if (n == 0 || n >= sizeof name) {
        return false;
    }
    memcpy(name, s, n);
    name[n] = '\0';
    return guide_vocab_has_control(m->t, name);
}

/* Text of a form, its control tokens as such. */
static gram_expr marked(struct maker *m, const char *text)
{
    struct gram_list list = {0};

    while (*text) {
        size_t n = bracketed(text);
        if (is_control(m, text, n)) {
            gram_list_add(m->g, &list, gram_str(m->g, GUIDE_CONTROL));
        } else {
            n = 1;
        }
        gram_list_add(m->g, &list, gram_lit(m->g, text, n));
        text += n;
    }
    const gram_expr e = gram_seq(m->g, list.e, list.n);
    gram_list_deinit(&list);
    return e;
}

/* ---- text in front of calls ------------------------------------------------------------- */

/* How much of `mark` the text ends with after `matched` bytes of it and c (Knuth, Morris and
 * Pratt). */
static size_t match_on(const char *mark, size_t matched, char c)
{
    for (size_t n = matched + 1; n > 0; n--) {
        if (mark[n - 1] == c && memcmp(mark, mark + matched + 1 - n, n - 1) == 0) {
            return n;
        }
    }
    return 0;
}

/* Any characters, and control tokens of thinking where it may be part of the text.  Neither
 * contains `mark`, which is ASCII; NULL: no mark.  Where `behind` is no GRAM_NONE, mark and behind
 * may follow. */
static gram_expr text_without(struct maker *m, const char *mark, gram_expr behind, bool thoughts)
{
    static const char *const thinking[] = { "<think>", "</think>", "[THINK]", "[/THINK]",
                                            "<|channel>", "<channel|>" };
    enum { MARK_MAX = 64 };
    struct grammar *g = m->g;
    const size_t len = mark ? strlen(mark) : 0;
    gram_expr state[MARK_MAX];
    struct charset others = {0};

    if (len > MARK_MAX) {
        g->too_large = true;
        return GRAM_NONE;
    }
    for (size_t i = 0; i < (len > 0 ? len : 1); i++) {
        state[i] = gram_rule(g, "text");
    }
    for (size_t i = 0; mark && mark[i]; i++) {
        charset_add(&others, (unsigned char)mark[i], (unsigned char)mark[i]);
    }
    charset_close(&others);
    charset_invert(&others);
    const gram_expr other = charset_expr(g, &others);
    charset_deinit(&others);
    for (size_t i = 0; i < (len > 0 ? len : 1); i++) {
        struct gram_list alt = {0};
        gram_list_add(g, &alt, GRAM_NOTHING);
        gram_list_add(g, &alt, GRAM_SEQ(g, other, state[0]));
        for (size_t k = 0; thoughts && k < sizeof thinking / sizeof thinking[0]; k++) {
            if (is_control(m, thinking[k], strlen(thinking[k]))) {
                gram_list_add(g, &alt, GRAM_SEQ(g, marked(m, thinking[k]), state[0]));
            }
        }
        for (size_t c = 0; c < len; c++) {
            if (memchr(mark, mark[c], c)) {
                continue;  /* seen already */
            }
            const size_t next = match_on(mark, i, mark[c]);
            const gram_expr one = gram_lit(g, &mark[c], 1);
            gram_list_add(g, &alt, GRAM_SEQ(g, one, next < len ? state[next] : behind));
        }
        gram_define(g, state[i], gram_alt(g, alt.e, alt.n));
        gram_list_deinit(&alt);
    }
    return state[0];
}

/* ---- arguments -------------------------------------------------------------------------- */

static gram_expr json_by(struct maker *m, json_t *root, const json_t *schema, bool *ok)
{
    gram_expr e = GRAM_NONE;

    *ok = *ok && schema_expr(m->g, root, schema, &e, m->err);
    return e;
}

static gram_expr arguments(struct maker *m, json_t *schema, bool *ok)
{
    return !schema || schema_is_empty(schema) ? m->j.object : json_by(m, schema, schema, ok);
}

/* Says which part of a tool's parameters the form cannot constrain. */
static void refuse(struct maker *m, bool *ok, const char *key, const char *why)
{
    if (*ok) {
        *ok = slm_fail(m->err, SLM_E_UNSUPPORTED, "the form %s cannot constrain \"%.80s\": %s",
                       m->form->name, key, why);
    }
}

/* Whether a schema has no keywords but these, apart from annotations. */
static bool says_only(const json_t *schema, const char *const *keywords)
{
    json_t *rest = json_copy((json_t *)(uintptr_t)schema);

    for (; *keywords; keywords++) {
        json_object_del(rest, *keywords);
    }
    const bool only = schema_is_empty(rest);
    json_decref(rest);
    return only;
}

static bool has_type(const json_t *schema, const char *name)
{
    const char *type = json_string_value(json_object_get(schema, "type"));

    return type && strcmp(type, name) == 0;
}

/* A string that is written as it is up to `end`.  Only what needs no reading of it is supported. */
static gram_expr raw_string(struct maker *m, const json_t *schema, const char *key,
                            const char *end, bool *ok)
{
    json_t *list = json_object_get(schema, "enum"), *one = json_object_get(schema, "const");
    json_t *values = one ? json_pack("[O]", one) : json_incref(list);
    struct gram_list alt = {0};

    for (size_t i = 0; i < json_array_size(values); i++) {
        const char *s = json_string_value(json_array_get(values, i));
        if (s && !strstr(s, end)) {
            gram_list_add(m->g, &alt, gram_str(m->g, s));
        }
    }
    const gram_expr e = gram_alt(m->g, alt.e, alt.n);
    gram_list_deinit(&alt);
    json_decref(values);
    if (!says_only(schema, (const char *const[]){ "type", "enum", "const", NULL }) ||
        (list && one)) {
        refuse(m, ok, key, "strings are written as they are, so only enum or const can constrain "
               "them");
    }
    return list || one ? e : text_without(m, end, GRAM_NONE, false);
}

/* <parameter=KEY>...</parameter> of each property, in order. */
static gram_expr xml_arguments(struct maker *m, json_t *schema, bool *ok)
{
    struct grammar *g = m->g;
    struct gram_list list = {0};
    const char *key;
    json_t *value;

    json_object_foreach(json_object_get(schema, "properties"), key, value) {
        const gram_expr v = has_type(value, "string")
                                ? raw_string(m, value, key, "\n</parameter>", ok)
                                : json_by(m, schema, value, ok);
        const gram_expr whole = GRAM_SEQ(g, gram_str(g, "<parameter="), gram_str(g, key),
                                         gram_str(g, ">\n"), v, gram_str(g, "\n</parameter>\n"));
        gram_list_add(g, &list, schema_requires(schema, key) ? whole : gram_optional(g, whole));
    }
    const gram_expr e = gram_seq(g, list.e, list.n);
    gram_list_deinit(&list);
    return e;
}

/* ---- arguments as Gemma writes them ----------------------------------------------------- */

enum {
    DEPTH_MAX = 60,  /* values inside values; a limit for the stack */
    KEY_MAX = 200,   /* bytes; the reader of calls takes somewhat more */
};

static gram_expr gemma_value(struct maker *m, const json_t *schema, const char *key, int depth,
                             bool *ok);

static gram_expr gemma_string(struct maker *m, const json_t *schema, const char *key, bool *ok)
{
    static const char mark[] = "<|\"|>";
    const gram_expr text = raw_string(m, schema, key, mark, ok), quote = marked(m, mark);

    return GRAM_SEQ(m->g, quote, text, quote);
}

static gram_expr gemma_array(struct maker *m, const json_t *schema, const char *key, int depth,
                             bool *ok)
{
    struct grammar *g = m->g;

    if (!says_only(schema, (const char *const[]){ "type", "items", NULL })) {
        refuse(m, ok, key, "of arrays only items is supported");
    }
    const gram_expr item = gemma_value(m, json_object_get(schema, "items"), key, depth + 1, ok);
    const gram_expr more = GRAM_SEQ(g, gram_str(g, ","), item);
    const gram_expr items = GRAM_SEQ(g, item, gram_repeat(g, more, 0, GRAM_INF));

    return GRAM_SEQ(g, gram_str(g, "["), gram_optional(g, items), gram_str(g, "]"));
}

/* Whether each required member is one of the properties. */
static bool names_all_required(const json_t *schema)
{
    const json_t *required = json_object_get(schema, "required");
    bool all = true;

    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        all = all && name && json_object_get(json_object_get(schema, "properties"), name);
    }
    return all;
}

/* Members in the order of the properties, from the last to the first: what follows where none was
 * written yet, and where a comma is needed. */
static gram_expr gemma_object(struct maker *m, const json_t *schema, const char *key, int depth,
                              bool *ok)
{
    static const char *const keywords[] = { "type", "properties", "required",
                                            "additionalProperties", NULL };
    struct grammar *g = m->g;
    json_t *properties = json_object_get(schema, "properties");
    struct { gram_expr pair; bool needed; } *member =
        mem_alloc(json_object_size(properties), sizeof *member);
    gram_expr first = GRAM_NOTHING, further = GRAM_NOTHING;
    size_t n = 0;
    const char *name;
    json_t *value;

    if (!says_only(schema, keywords) || !names_all_required(schema)) {
        refuse(m, ok, key, "of objects only properties and required, which names some of them, "
               "are supported");
    }
    g->no_memory |= !member;
    json_object_foreach(member ? properties : NULL, name, value) {
        if (!*name || strlen(name) > KEY_MAX || strpbrk(name, ":}< \t\r\n")) {
            refuse(m, ok, name, "its name cannot be written without quotes");
        }
        const gram_expr v = gemma_value(m, value, name, depth + 1, ok);
        member[n].pair = GRAM_SEQ(g, gram_str(g, name), gram_str(g, ":"), v);
        member[n++].needed = schema_requires(schema, name);
    }
    while (n-- > 0) {
        const gram_expr begins = GRAM_SEQ(g, member[n].pair, further);
        const gram_expr goes_on = GRAM_SEQ(g, gram_str(g, ","), begins);
        first = member[n].needed ? begins : GRAM_ALT(g, begins, first);
        further = member[n].needed ? goes_on : GRAM_ALT(g, goes_on, further);
    }
    mem_free(member);
    return GRAM_SEQ(g, gram_str(g, "{"), first, gram_str(g, "}"));
}

static gram_expr gemma_value(struct maker *m, const json_t *schema, const char *key, int depth,
                             bool *ok)
{
    static const char *const as_json[] = { "integer", "number", "boolean", "null" };

    if (depth > DEPTH_MAX) {
        refuse(m, ok, key, "it is nested too deeply");
        return GRAM_NONE;
    }
    if (has_type(schema, "string")) {
        return gemma_string(m, schema, key, ok);
    }
    if (has_type(schema, "array")) {
        return gemma_array(m, schema, key, depth, ok);
    }
    if (has_type(schema, "object")) {
        return gemma_object(m, schema, key, depth, ok);
    }
    for (size_t i = 0; i < sizeof as_json / sizeof as_json[0]; i++) {
        if (has_type(schema, as_json[i])) {
            return json_by(m, (json_t *)(uintptr_t)schema, schema, ok);
        }
    }
    refuse(m, ok, key, "it has no type, or more than one");
    return GRAM_NONE;
}

/* ---- calls ------------------------------------------------------------------------------ */

static gram_expr named_call(struct maker *m, const char *name, gram_expr args)
{
    struct grammar *g = m->g;
    gram_expr id = GRAM_NOTHING;

    if (m->form->id_digits > 0) {
        const gram_expr c = GRAM_ALT(g, gram_range(g, '0', '9'), gram_range(g, 'A', 'Z'),
                                     gram_range(g, 'a', 'z'));
        const uint32_t n = (uint32_t)m->form->id_digits;
        id = GRAM_SEQ(g, marked(m, "[CALL_ID]"), gram_repeat(g, c, n, n));
    }
    return GRAM_SEQ(g, gram_str(g, name), id, marked(m, m->form->middle), args);
}

static gram_expr json_call(struct maker *m, const char *name, gram_expr args)
{
    const struct json_text *j = &m->j;
    const char *name_key = m->form->name_key, *args_key = m->form->args_key;

    return json_text_braces(j, "{",
        GRAM_SEQ(m->g, json_text_name(j, name_key, strlen(name_key)), j->colon,
                 json_text_name(j, name, strlen(name)), j->comma,
                 json_text_name(j, args_key, strlen(args_key)), j->colon, args, j->space), "}");
}

static gram_expr xml_call(struct maker *m, const char *name, gram_expr args)
{
    return GRAM_SEQ(m->g, gram_str(m->g, "<function="), gram_str(m->g, name),
                    gram_str(m->g, ">\n"), args, gram_str(m->g, "</function>"));
}

static gram_expr gemma_call(struct maker *m, const char *name, const json_t *schema, bool *ok)
{
    const gram_expr args = schema && !schema_is_empty(schema)
                               ? gemma_object(m, schema, "parameters", 0, ok)
                               : gram_str(m->g, "{}");

    return GRAM_SEQ(m->g, gram_str(m->g, "call:"), gram_str(m->g, name), args);
}

/* A call of the tool; names it in errors. */
static gram_expr one_call(struct maker *m, const json_t *tool, bool *ok)
{
    const char *name = json_string_value(json_object_get(tool, "name"));
    json_t *schema = json_object_get(tool, "parameters");
    gram_expr e;

    if (m->form->layout == CALL_XML) {
        e = xml_call(m, name, xml_arguments(m, schema, ok));
    } else if (m->form->layout == CALL_NAMED) {
        e = named_call(m, name, arguments(m, schema, ok));
    } else if (m->form->layout == CALL_GEMMA) {
        e = gemma_call(m, name, schema, ok);
    } else {
        e = json_call(m, name, arguments(m, schema, ok));
    }
    if (!*ok) {
        slm_wrap(m->err, "tool %.60s", name);
    }
    return e;
}

/* The function of a tool, which may stand alone. */
static const json_t *function_of(const json_t *tool)
{
    const json_t *f = json_object_get(tool, "function");

    return f ? f : tool;
}

/* One call of any tool that `choice` leaves. */
static bool any_call(struct maker *m, const json_t *tools, const char *choice, gram_expr *out)
{
    const bool all = strcmp(choice, "auto") == 0 || strcmp(choice, "required") == 0;
    struct gram_list alt = {0};
    bool ok = true;

    for (size_t i = 0; ok && i < json_array_size(tools); i++) {
        const json_t *f = function_of(json_array_get(tools, i));
        const char *name = json_string_value(json_object_get(f, "name"));
        if (!name || !*name) {
            ok = slm_fail(m->err, SLM_E_ARG, "tool %zu has no name", i);
        } else if (all || strcmp(name, choice) == 0) {
            gram_list_add(m->g, &alt, one_call(m, f, &ok));
        }
    }
    if (ok && alt.n == 0) {
        ok = slm_fail(m->err, SLM_E_ARG, all ? "there are no tools to call" : "there is no tool "
                      "named \"%.80s\"", choice);
    }
    *out = gram_alt(m->g, alt.e, alt.n);
    gram_list_deinit(&alt);
    return ok;
}

/* ---- the whole -------------------------------------------------------------------------- */

/* The part of the prefix by which text is told from calls: its first mark.  NULL where that is a
 * control token, which text cannot contain, or where there is none. */
static const char *text_mark(struct maker *m, char *out, size_t cap)
{
    const size_t n = bracketed(m->form->prefix);

    if (n == 0 || n >= cap || is_control(m, m->form->prefix, n)) {
        return NULL;
    }
    memcpy(out, m->form->prefix, n);
    out[n] = '\0';
    return out;
}

/* Text, then calls if any. */
static gram_expr with_text(struct maker *m, gram_expr calls)
{
    struct grammar *g = m->g;
    char text[64];
    const char *mark = text_mark(m, text, sizeof text);

    if (mark) {
        const gram_expr behind = GRAM_SEQ(g, marked(m, m->form->prefix + strlen(mark)), calls);
        return text_without(m, mark, calls == GRAM_NONE ? GRAM_NONE : behind, true);
    }
    if (*m->form->prefix) {
        const gram_expr all = GRAM_SEQ(g, marked(m, m->form->prefix), calls);
        return GRAM_SEQ(g, text_without(m, NULL, GRAM_NONE, true), gram_optional(g, all));
    }
    /* A bare call is the whole answer; text begins with something else. */
    struct charset first = {0};
    charset_add(&first, '{', '{');
    charset_add(&first, 0, ' ');
    charset_close(&first);
    charset_invert(&first);
    const gram_expr begin = charset_expr(g, &first);
    charset_deinit(&first);
    return GRAM_ALT(g, calls, GRAM_SEQ(g, begin, text_without(m, NULL, GRAM_NONE, true)));
}

bool guide_tools(struct grammar *g, const struct guide_vocab *t, const struct tool_form *form,
                 json_t *tools, const struct tools_opts *o, gram_expr *root, slm_error *err)
{
    struct maker m = { .g = g, .t = t, .form = form, .err = err };
    const bool none = strcmp(o->choice, "none") == 0, automatic = strcmp(o->choice, "auto") == 0;
    gram_expr call = GRAM_NONE;

    if (!json_is_array(tools)) {
        return slm_fail(err, SLM_E_ARG, "tools must be a JSON array");
    }
    json_text_init(&m.j, g);
    if (!none && !any_call(&m, tools, o->choice, &call)) {
        return false;
    }
    gram_expr calls = call;
    if (o->parallel && form->separator) {
        const gram_expr further = GRAM_SEQ(g, marked(&m, form->separator), call);
        calls = GRAM_SEQ(g, call, gram_repeat(g, further, 0, GRAM_INF));
    }
    calls = none ? GRAM_NONE : GRAM_SEQ(g, calls, marked(&m, form->suffix));
    *root = none || automatic ? with_text(&m, calls)
                              : GRAM_SEQ(g, marked(&m, form->prefix), calls);
    return !gram_failed(g) || gram_error(g, err);
}

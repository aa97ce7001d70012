/* call_xml.c - calls as <function=NAME> with <parameter=KEY> elements, or with JSON inside.
 *
 * A value is raw text.  What it means depends on the schema of the argument; without one it is
 * JSON where it can be (but for a string in quotes, which stays text), else a string. */
#include <string.h>

#include "text/call.h"

enum {
    TAG,        /* within "<function=" */
    NAME,       /* up to > */
    BODY,       /* in front of a parameter, the end or JSON */
    BODY_TAG,   /* within one of the tags of the body */
    KEY,        /* up to > */
    VALUE,      /* up to </parameter> */
    ARGUMENTS,  /* within JSON */
    LAST,       /* behind JSON */
    LAST_TAG,
};

static const char FUNCTION[] = "<function=", END[] = "</function>";
static const char PARAMETER[] = "<parameter=", PARAMETER_END[] = "</parameter>";

void call_xml_behind_tag(struct call *c)
{
    c->at.step = NAME;
}

static enum call_status go(struct call *c, int step)
{
    call_clear_text(c);
    c->at.step = step;
    return CALL_MORE;
}

/* Whether the text so far begins tag; *all where it is the whole of it. */
static bool begins(const struct buf *text, const char *tag, bool *all)
{
    const size_t n = strlen(tag);

    *all = text->len == n && memcmp(buf_str(text), tag, n) == 0;
    return text->len <= n && memcmp(buf_str(text), tag, text->len) == 0;
}

/* ---- values ------------------------------------------------------------------------------ */

/* Whether a schema allows nothing but strings. */
static bool only_string(const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type");
    const json_t *values = json_object_get(schema, "enum");

    if (json_is_string(type)) {
        return strcmp(json_string_value(type), "string") == 0;
    }
    for (size_t i = 0; i < json_array_size(values); i++) {
        if (!json_is_string(json_array_get(values, i))) {
            return false;
        }
    }
    return json_array_size(values) > 0;
}

static bool is_json(const char *s, size_t n)
{
    json_t *v = json_loadb(s, n, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);
    const bool ok = v && !json_is_string(v);

    json_decref(v);
    return ok;
}

/* Appends the JSON of an argument's value. */
static bool add_value(const struct call *c, const char *key, size_t n_key, const char *s, size_t n,
                      struct buf *out)
{
    const char *t = s;
    size_t m = n;

    if (only_string(call_schema(c, key, n_key))) {
        return call_quote(out, s, n);
    }
    while (m > 0 && json_space(t[m - 1])) {
        m--;
    }
    while (m > 0 && json_space(*t)) {
        t++, m--;
    }
    const char *word = call_python_word(t, m);
    if (word || is_json(t, m)) {
        buf_add(out, word ? word : t, word ? strlen(word) : m);
        return true;
    }
    return call_quote(out, s, n);
}

/* The value is complete: text is KEY > VALUE, begin the place behind >. */
static bool tell_value(struct call *c)
{
    const char *key = buf_str(&c->text);
    const size_t n_key = c->at.begin - 1;
    const char *s = key + c->at.begin;
    size_t n = c->text.len - c->at.begin - strlen(PARAMETER_END);
    struct buf piece;

    if (n > 0 && *s == '\n') {
        s++, n--;
    }
    n -= n > 0 && s[n - 1] == '\n';
    buf_init(&piece, 0);
    buf_puts(&piece, c->at.n++ > 0 ? ", " : "");
    bool ok = call_quote(&piece, key, n_key);
    buf_puts(&piece, ": ");
    ok = ok && add_value(c, key, n_key, s, n, &piece);
    if (ok) {
        call_tell_args(c, buf_str(&piece), piece.len);
    }
    c->failed |= piece.failed;
    buf_deinit(&piece);
    return ok;
}

/* ---- structure --------------------------------------------------------------------------- */

static enum call_status name(struct call *c, char b)
{
    if (b == '>') {
        if (!call_name_ok(c, buf_str(&c->text), c->text.len)) {
            return CALL_BAD;
        }
        buf_add(&c->name, buf_str(&c->text), c->text.len);
        return go(c, BODY);
    }
    buf_putc(&c->text, b);
    return c->text.len <= CALL_NAME_MAX ? CALL_MORE : CALL_BAD;
}

static enum call_status arguments(struct call *c, char b)
{
    const enum json_status status = json_scan(&c->scan, b);

    if (status == JSON_BAD) {
        return CALL_BAD;
    }
    call_tell_args(c, &b, 1);
    return status == JSON_DONE ? go(c, LAST) : CALL_MORE;
}

static enum call_status body(struct call *c, char b)
{
    if (b == '<') {
        c->at.step = BODY_TAG;
        buf_putc(&c->text, b);
        return CALL_MORE;
    }
    if (b == '{' && !c->named) {
        c->at.step = ARGUMENTS;
        call_tell_name(c);
        return arguments(c, b);
    }
    return json_space(b) ? CALL_MORE : CALL_BAD;
}

static enum call_status body_tag(struct call *c, char b)
{
    bool parameter, end;

    buf_putc(&c->text, b);
    const bool may_be_parameter = begins(&c->text, PARAMETER, &parameter);
    const bool may_be_end = begins(&c->text, END, &end);
    if (!parameter && !end) {
        return may_be_parameter || may_be_end ? CALL_MORE : CALL_BAD;
    }
    if (!c->named) {
        call_tell_name(c);
        call_tell_args(c, "{", 1);
    }
    if (parameter) {
        return go(c, KEY);
    }
    call_tell_args(c, "}", 1);
    return call_finish(c);
}

static enum call_status key(struct call *c, char b)
{
    if (b == '\n' || c->text.len > CALL_NAME_MAX || (b == '>' && c->text.len == 0)) {
        return CALL_BAD;
    }
    buf_putc(&c->text, b);
    if (b == '>') {
        c->at.begin = c->text.len;
        c->at.step = VALUE;
    }
    return CALL_MORE;
}

static enum call_status value(struct call *c, char b)
{
    const size_t n = strlen(PARAMETER_END);

    buf_putc(&c->text, b);
    if (b != '>' || c->text.failed || c->text.len - c->at.begin < n ||
        memcmp(c->text.data + c->text.len - n, PARAMETER_END, n) != 0) {
        return CALL_MORE;
    }
    return tell_value(c) ? go(c, BODY) : CALL_BAD;
}

/* The rest of a tag, then `step`. */
static enum call_status tag(struct call *c, char b, const char *text, bool *all)
{
    buf_putc(&c->text, b);
    return begins(&c->text, text, all) ? CALL_MORE : CALL_BAD;
}

enum call_status call_xml_byte(struct call *c, char b)
{
    enum call_status status;
    bool all;

    switch (c->at.step) {
    case TAG:
        status = tag(c, b, FUNCTION, &all);
        return all ? go(c, NAME) : status;
    case NAME: return name(c, b);
    case BODY: return body(c, b);
    case BODY_TAG: return body_tag(c, b);
    case KEY: return key(c, b);
    case VALUE: return value(c, b);
    case ARGUMENTS: return arguments(c, b);
    case LAST:
        if (json_space(b)) {
            return CALL_MORE;
        }
        c->at.step = LAST_TAG;
        /* fallthrough */
    default:
        status = tag(c, b, END, &all);
        return all ? call_finish(c) : status;
    }
}

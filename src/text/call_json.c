/* call_json.c - calls as JSON objects, {"name": "f", "arguments": {...}}, and calls as a name
 * with arguments behind it, f[ARGS]{...}.
 *
 * The object is kept; its members at depth 1 are told apart while it is scanned, and the
 * arguments are passed on byte by byte once the name is known. */
#include <string.h>

#include "text/call.h"

/* ---- objects --------------------------------------------------------------------------- */

/* Names under which models put the same things, whatever they were taught. */
static bool is_name_key(const char *s, size_t n)
{
    return n == 6 && memcmp(s, "\"name\"", 6) == 0;
}

static bool is_args_key(const char *s, size_t n)
{
    return (n == 11 && memcmp(s, "\"arguments\"", 11) == 0) ||
           (n == 12 && memcmp(s, "\"parameters\"", 12) == 0);
}

static bool is_other_key(const char *s, size_t n)
{
    return (n == 4 && memcmp(s, "\"id\"", 4) == 0) || (n == 6 && memcmp(s, "\"type\"", 6) == 0);
}

/* A key of the call is complete: text[begin..). */
static bool take_key(struct call *c)
{
    const char *key = buf_str(&c->text) + c->at.begin;
    const size_t n = c->text.len - c->at.begin;

    c->at.is_name = is_name_key(key, n);
    c->at.is_args = is_args_key(key, n);
    if ((c->at.is_name && c->name.len > 0) || (c->at.is_args && c->at.has_args)) {
        return false;  /* twice */
    }
    return c->at.is_name || c->at.is_args || !c->strict || is_other_key(key, n);
}

/* A value of the call begins with byte b. */
static bool begin_value(struct call *c, char b)
{
    c->at.begin = c->text.len - 1;
    if (c->at.is_name) {
        return b == '"';
    }
    if (c->at.is_args) {
        c->at.has_args = true;
        c->at.args_begin = c->at.begin;
        c->at.passing = b == '{' && c->name.len > 0;
        if (c->at.passing) {
            call_tell_name(c);
        }
        return b == '{' || b == '"';
    }
    return true;
}

static bool end_value(struct call *c)
{
    if (c->at.is_args) {
        c->at.args_end = c->text.len;
        c->at.passing = false;
    }
    if (!c->at.is_name) {
        return true;
    }
    json_t *name = json_loadb(buf_str(&c->text) + c->at.begin, c->text.len - c->at.begin,
                              JSON_DECODE_ANY, NULL);
    const bool ok = json_is_string(name) &&
                    call_name_ok(c, json_string_value(name), json_string_length(name));
    if (ok) {
        buf_add(&c->name, json_string_value(name), json_string_length(name));
    }
    json_decref(name);
    return ok;
}

/* Arguments that could not be passed on: they stood before the name, or are a JSON text in a
 * string. */
static bool tell_late(struct call *c)
{
    const char *s = buf_str(&c->text) + c->at.args_begin;
    const size_t n = c->at.args_end - c->at.args_begin;
    json_t *text = *s == '"' ? json_loadb(s, n, JSON_DECODE_ANY, NULL) : NULL;

    if (*s == '"' && !text) {
        return false;
    }
    call_tell_name(c);
    call_tell_args(c, text ? json_string_value(text) : s, text ? json_string_length(text) : n);
    json_decref(text);
    return true;
}

enum call_status call_json_byte(struct call *c, char b)
{
    const enum json_state before = c->scan.state;
    const int depth = c->scan.depth;
    bool ok = true;

    buf_putc(&c->text, b);
    const enum json_status status = json_scan(&c->scan, b);
    if (status == JSON_BAD || c->text.failed) {
        return CALL_BAD;
    }
    if (depth == 1) {
        if (before == JS_FIRST_KEY || before == JS_KEY) {
            c->at.begin = b == '"' ? c->text.len - 1 : c->at.begin;
        } else if (before == JS_STRING && c->scan.state == JS_COLON) {
            ok = take_key(c);
        } else if (before == JS_VALUE && !json_space(b)) {
            ok = begin_value(c, b);
        }
    }
    if (ok && c->at.passing) {
        call_tell_args(c, &b, 1);
    }
    if (ok && c->scan.depth == 1 && c->scan.state == JS_NEXT &&
        (before != JS_NEXT || depth != 1)) {
        ok = end_value(c);
        c->at.is_name = c->at.is_args = false;
    }
    if (!ok) {
        return CALL_BAD;
    }
    if (status != JSON_DONE) {
        return CALL_MORE;
    }
    if (c->name.len == 0 || !c->at.has_args || (!c->named && !tell_late(c))) {
        return CALL_BAD;
    }
    return call_finish(c);
}

/* ---- a name and its arguments ------------------------------------------------------------ */

enum { NAME, ID, SPACE, ARGUMENTS };

static const char ID_MARK[] = "[CALL_ID]", ARGS_MARK[] = "[ARGS]";

static bool ends_with(const struct buf *b, const char *s)
{
    const size_t n = strlen(s);

    return b->len >= n && memcmp(b->data + b->len - n, s, n) == 0;
}

static bool take_name(struct call *c, size_t n)
{
    if (!call_name_ok(c, buf_str(&c->text), n)) {
        return false;
    }
    buf_add(&c->name, buf_str(&c->text), n);
    call_clear_text(c);
    return true;
}

static enum call_status go(struct call *c, bool ok, int step)
{
    c->at.step = step;
    return ok ? CALL_MORE : CALL_BAD;
}

static enum call_status arguments(struct call *c, char b)
{
    const enum json_status status = json_scan(&c->scan, b);

    if (status == JSON_BAD) {
        return CALL_BAD;
    }
    call_tell_args(c, &b, 1);
    return status == JSON_DONE ? call_finish(c) : CALL_MORE;
}

static enum call_status begin_arguments(struct call *c)
{
    c->at.step = ARGUMENTS;
    call_tell_name(c);
    return arguments(c, '{');
}

enum call_status call_named_byte(struct call *c, char b)
{
    struct buf *t = &c->text;

    switch (c->at.step) {
    case NAME:
        if (b == '{') {
            return take_name(c, t->len) ? begin_arguments(c) : CALL_BAD;
        }
        buf_putc(t, b);
        if (ends_with(t, ID_MARK)) {
            return go(c, take_name(c, t->len - strlen(ID_MARK)), ID);
        }
        if (ends_with(t, ARGS_MARK)) {
            return go(c, take_name(c, t->len - strlen(ARGS_MARK)), SPACE);
        }
        return (unsigned char)b > ' ' && t->len <= CALL_NAME_MAX + sizeof ID_MARK ? CALL_MORE
                                                                                  : CALL_BAD;
    case ID:
        buf_putc(t, b);
        if (ends_with(t, ARGS_MARK)) {
            return go(c, true, SPACE);
        }
        return (unsigned char)b > ' ' && t->len <= CALL_NAME_MAX ? CALL_MORE : CALL_BAD;
    case SPACE:
        return b == '{' ? begin_arguments(c) : json_space(b) ? CALL_MORE : CALL_BAD;
    default:
        return arguments(c, b);
    }
}

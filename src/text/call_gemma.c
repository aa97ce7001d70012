/* call_gemma.c - calls as call:NAME{key:value,...}, turned into JSON byte by byte. */
#include <string.h>

#include "text/call.h"

enum {
    CALL,       /* within "call:" */
    NAME,       /* up to { */
    FIRST_KEY,  /* a key, or the end of an empty object */
    NEXT_KEY,
    KEY,        /* up to : */
    KEY_QUOTE, KEY_TEXT, KEY_COLON,   /* a key in quotes */
    FIRST_ITEM, /* a value, or the end of an empty array */
    VALUE,
    QUOTE, STRING,
    LITERAL,    /* a number, true, false or null, these as Python has them, too */
    NEXT,       /* , or the end of what is open */
};

static const char CALL_MARK[] = "call:", QUOTE_MARK[] = "<|\"|>";

/* Longest number. */
enum { LITERAL_MAX = 400 };

static enum call_status go(struct call *c, int step)
{
    c->at.step = step;
    c->at.n = 0;
    return CALL_MORE;
}

static void tell(struct call *c, const char *s)
{
    call_tell_args(c, s, strlen(s));
}

/* Another byte of a mark: true while it fits, *all at its end. */
static bool fits(struct call *c, const char *mark, char b, bool *all)
{
    const bool ok = mark[c->at.n] == b;

    *all = ok && mark[++c->at.n] == '\0';
    return ok;
}

/* ---- nesting ----------------------------------------------------------------------------- */

static bool in_object(const struct call *c)
{
    const int d = c->at.depth - 1;

    return c->at.object[d / 64] >> (d % 64) & 1;
}

static enum call_status open(struct call *c, bool object)
{
    const int d = c->at.depth;
    const uint64_t bit = UINT64_C(1) << (d % 64);

    if (d == JSON_DEPTH_MAX) {
        return CALL_BAD;
    }
    c->at.object[d / 64] &= ~bit;
    c->at.object[d / 64] |= object ? bit : 0;
    c->at.depth++;
    tell(c, object ? "{" : "[");
    return go(c, object ? FIRST_KEY : FIRST_ITEM);
}

static enum call_status close(struct call *c)
{
    tell(c, in_object(c) ? "}" : "]");
    c->at.depth--;
    return c->at.depth == 0 ? call_finish(c) : go(c, NEXT);
}

static enum call_status next(struct call *c, char b)
{
    if (json_space(b)) {
        return CALL_MORE;
    }
    if (b == ',') {
        tell(c, ", ");
        return go(c, in_object(c) ? NEXT_KEY : VALUE);
    }
    return b == (in_object(c) ? '}' : ']') ? close(c) : CALL_BAD;
}

/* ---- keys -------------------------------------------------------------------------------- */

static enum call_status end_key(struct call *c, int step)
{
    struct buf key;

    if (c->text.len == 0) {
        return CALL_BAD;
    }
    buf_init(&key, 0);
    const bool ok = call_quote(&key, buf_str(&c->text), c->text.len);
    if (ok) {
        tell(c, buf_str(&key));
        tell(c, step == VALUE ? ": " : "");
    }
    c->failed |= key.failed;
    buf_deinit(&key);
    call_clear_text(c);
    return ok ? go(c, step) : CALL_BAD;
}

static enum call_status key_byte(struct call *c, char b)
{
    if (b == ':') {
        while (c->text.len > 0 && json_space(c->text.data[c->text.len - 1])) {
            c->text.len--;
        }
        return end_key(c, VALUE);
    }
    buf_putc(&c->text, b);
    return b != '}' && c->text.len <= CALL_NAME_MAX ? CALL_MORE : CALL_BAD;
}

static enum call_status begin_key(struct call *c, char b)
{
    if (json_space(b)) {
        return CALL_MORE;
    }
    if (b == '}') {
        return c->at.step == FIRST_KEY ? close(c) : CALL_BAD;
    }
    call_clear_text(c);
    if (b == QUOTE_MARK[0]) {
        go(c, KEY_QUOTE);
        c->at.n = 1;
        return CALL_MORE;
    }
    go(c, KEY);
    return key_byte(c, b);
}

/* ---- strings ----------------------------------------------------------------------------- */

/* One byte of a string, as JSON wants it. */
static void tell_char(struct call *c, char b)
{
    static const char named[] = "\"\\\n\t\r\b\f", letters[] = "\"\\ntrbf";
    const char *at = b ? strchr(named, b) : NULL;
    char escape[8];

    if (at) {
        escape[0] = '\\';
        escape[1] = letters[at - named];
        call_tell_args(c, escape, 2);
    } else if ((unsigned char)b < 0x20) {
        static const char digits[] = "0123456789abcdef";
        memcpy(escape, "\\u00", 4);
        escape[4] = digits[b >> 4];
        escape[5] = digits[b & 15];
        call_tell_args(c, escape, 6);
    } else {
        call_tell_args(c, &b, 1);
    }
}

static void text_char(struct call *c, char b)
{
    if (c->at.step == STRING) {
        tell_char(c, b);
    } else {
        buf_putc(&c->text, b);
    }
}

/* Text up to the quote mark; a part of one that breaks off is text. */
static enum call_status quoted_byte(struct call *c, char b, int then)
{
    bool all;

    if (fits(c, QUOTE_MARK, b, &all)) {
        if (!all) {
            return CALL_MORE;
        }
        if (then == KEY_COLON) {
            return end_key(c, KEY_COLON);
        }
        tell(c, "\"");
        return go(c, then);
    }
    const size_t n = c->at.n;
    c->at.n = 0;
    for (size_t i = 0; i < n; i++) {
        text_char(c, QUOTE_MARK[i]);
    }
    if (b == QUOTE_MARK[0]) {
        c->at.n = 1;
    } else {
        text_char(c, b);
    }
    return c->text.len <= CALL_NAME_MAX ? CALL_MORE : CALL_BAD;
}

/* ---- values ------------------------------------------------------------------------------ */

static enum call_status end_literal(struct call *c, char b)
{
    const char *word = call_python_word(buf_str(&c->text), c->text.len);
    json_t *v = json_loadb(buf_str(&c->text), c->text.len, JSON_DECODE_ANY, NULL);
    const bool ok = word || (v && !json_is_string(v));

    json_decref(v);
    if (!ok) {
        return CALL_BAD;
    }
    tell(c, word ? word : buf_str(&c->text));
    call_clear_text(c);
    go(c, NEXT);
    return next(c, b);
}

static enum call_status literal_byte(struct call *c, char b)
{
    if (json_space(b) || b == ',' || b == '}' || b == ']') {
        return end_literal(c, b);
    }
    buf_putc(&c->text, b);
    return c->text.len <= LITERAL_MAX ? CALL_MORE : CALL_BAD;
}

static enum call_status value(struct call *c, char b)
{
    if (json_space(b)) {
        return CALL_MORE;
    }
    if (b == '{' || b == '[') {
        return open(c, b == '{');
    }
    if (b == ']' && c->at.step == FIRST_ITEM) {
        return close(c);
    }
    call_clear_text(c);
    if (b == QUOTE_MARK[0]) {
        go(c, QUOTE);
        c->at.n = 1;
        return CALL_MORE;
    }
    if (!strchr("-0123456789tfnTFN", b) || b == '\0') {
        return CALL_BAD;
    }
    go(c, LITERAL);
    return literal_byte(c, b);
}

static enum call_status name(struct call *c, char b)
{
    if (b == '{') {
        if (!call_name_ok(c, buf_str(&c->name), c->name.len)) {
            return CALL_BAD;
        }
        call_tell_name(c);
        return open(c, true);
    }
    buf_putc(&c->name, b);
    return c->name.len <= CALL_NAME_MAX ? CALL_MORE : CALL_BAD;
}

enum call_status call_gemma_byte(struct call *c, char b)
{
    bool ok, all;

    switch (c->at.step) {
    case CALL:
        ok = fits(c, CALL_MARK, b, &all);
        return !ok ? CALL_BAD : all ? go(c, NAME) : CALL_MORE;
    case NAME: return name(c, b);
    case FIRST_KEY:
    case NEXT_KEY: return begin_key(c, b);
    case KEY: return key_byte(c, b);
    case KEY_QUOTE:
        ok = fits(c, QUOTE_MARK, b, &all);
        return !ok ? CALL_BAD : all ? go(c, KEY_TEXT) : CALL_MORE;
    case KEY_TEXT: return quoted_byte(c, b, KEY_COLON);
    case KEY_COLON:
        if (b == ':') {
            tell(c, ": ");
            return go(c, VALUE);
        }
        return json_space(b) ? CALL_MORE : CALL_BAD;
    case FIRST_ITEM:
    case VALUE: return value(c, b);
    case QUOTE:
        ok = fits(c, QUOTE_MARK, b, &all);
        if (all) {
            tell(c, "\"");
            return go(c, STRING);
        }
        return ok ? CALL_MORE : CALL_BAD;
    case STRING: return quoted_byte(c, b, NEXT);
    case LITERAL: return literal_byte(c, b);
    default: return next(c, b);
    }
}

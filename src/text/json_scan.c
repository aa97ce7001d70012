/* json_scan.c - the grammar of JSON as a function of state and byte. */
#include "text/json_scan.h"

#include <stddef.h>
#include <string.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool in_object(const struct json_scan *s)
{
    const int d = s->depth - 1;

    return s->object[d / 64] >> (d % 64) & 1;
}

static enum json_status go(struct json_scan *s, enum json_state state)
{
    s->state = state;
    return JSON_MORE;
}

static enum json_status value_done(struct json_scan *s)
{
    s->state = JS_NEXT;
    return s->depth == 0 ? JSON_DONE : JSON_MORE;
}

static enum json_status open(struct json_scan *s, bool object)
{
    const uint64_t bit = UINT64_C(1) << (s->depth % 64);

    if (s->depth == JSON_DEPTH_MAX) {
        return JSON_BAD;
    }
    s->object[s->depth / 64] &= ~bit;
    s->object[s->depth / 64] |= object ? bit : 0;
    s->depth++;
    return go(s, object ? JS_FIRST_KEY : JS_FIRST_ITEM);
}

static enum json_status close(struct json_scan *s)
{
    s->depth--;
    return value_done(s);
}

static enum json_status begin_string(struct json_scan *s, bool key)
{
    s->in_key = key;
    return go(s, JS_STRING);
}

static enum json_status literal(struct json_scan *s, const char *rest)
{
    s->rest = rest;
    return go(s, JS_LITERAL);
}

static enum json_status value(struct json_scan *s, char c)
{
    switch (c) {
    case '{': return open(s, true);
    case '[': return open(s, false);
    case '"': return begin_string(s, false);
    case 't': return literal(s, "rue");
    case 'f': return literal(s, "alse");
    case 'n': return literal(s, "ull");
    case '-': return go(s, JS_MINUS);
    case '0': return go(s, JS_ZERO);
    default: return is_digit(c) ? go(s, JS_DIGITS) : JSON_BAD;
    }
}

static enum json_status next(struct json_scan *s, char c)
{
    if (s->depth == 0) {
        return JSON_BAD;
    }
    if (c == ',') {
        return go(s, in_object(s) ? JS_KEY : JS_VALUE);
    }
    return c == (in_object(s) ? '}' : ']') ? close(s) : JSON_BAD;
}

static enum json_status string(struct json_scan *s, char c)
{
    if (c == '\\') {
        return go(s, JS_ESCAPE);
    }
    if (c == '"') {
        return s->in_key ? go(s, JS_COLON) : value_done(s);
    }
    return (unsigned char)c < 0x20 ? JSON_BAD : JSON_MORE;
}

static enum json_status escape(struct json_scan *s, char c)
{
    if (c == 'u') {
        s->n_hex = 0;
        s->hex = 0;
        s->low = false;
        return go(s, JS_HEX);
    }
    return c != '\0' && strchr("\"\\/bfnrt", c) ? go(s, JS_STRING) : JSON_BAD;
}

static int hex_value(char c)
{
    return is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static enum json_status hex(struct json_scan *s, char c)
{
    const int v = hex_value(c);

    if (v < 0) {
        return JSON_BAD;
    }
    s->hex = s->hex << 4 | (uint32_t)v;
    if (++s->n_hex < 4) {
        return JSON_MORE;
    }
    const bool is_low = s->hex >= 0xDC00 && s->hex <= 0xDFFF;
    const bool is_high = s->hex >= 0xD800 && s->hex <= 0xDBFF;
    if (is_low != s->low) {
        return JSON_BAD;
    }
    return go(s, is_high ? JS_LOW_BACKSLASH : JS_STRING);
}

static enum json_status low_u(struct json_scan *s, char c)
{
    s->n_hex = 0;
    s->hex = 0;
    s->low = true;
    return c == 'u' ? go(s, JS_HEX) : JSON_BAD;
}

static enum json_status in_literal(struct json_scan *s, char c)
{
    if (c != *s->rest) {
        return JSON_BAD;
    }
    return *++s->rest ? JSON_MORE : value_done(s);
}

/* A number ends with the byte behind it, which then stands behind a value. */
static enum json_status number_end(struct json_scan *s, char c)
{
    if (s->depth == 0) {
        return JSON_BAD;
    }
    s->state = JS_NEXT;
    return json_space(c) ? JSON_MORE : next(s, c);
}

static enum json_status number(struct json_scan *s, char c)
{
    const bool e = c == 'e' || c == 'E';

    switch (s->state) {
    case JS_MINUS:
        return c == '0' ? go(s, JS_ZERO) : is_digit(c) ? go(s, JS_DIGITS) : JSON_BAD;
    case JS_ZERO:
        return c == '.' ? go(s, JS_POINT) : e ? go(s, JS_E) : number_end(s, c);
    case JS_DIGITS:
        return is_digit(c) ? JSON_MORE
             : c == '.' ? go(s, JS_POINT) : e ? go(s, JS_E) : number_end(s, c);
    case JS_POINT:
        return is_digit(c) ? go(s, JS_FRACTION) : JSON_BAD;
    case JS_FRACTION:
        return is_digit(c) ? JSON_MORE : e ? go(s, JS_E) : number_end(s, c);
    case JS_E:
        return c == '+' || c == '-' ? go(s, JS_E_SIGN)
             : is_digit(c) ? go(s, JS_E_DIGITS) : JSON_BAD;
    case JS_E_SIGN:
        return is_digit(c) ? go(s, JS_E_DIGITS) : JSON_BAD;
    default:
        return is_digit(c) ? JSON_MORE : number_end(s, c);
    }
}

enum json_status json_scan(struct json_scan *s, char c)
{
    if (s->state <= JS_NEXT && json_space(c)) {
        return JSON_MORE;
    }
    switch (s->state) {
    case JS_VALUE: return value(s, c);
    case JS_FIRST_ITEM: return c == ']' ? close(s) : value(s, c);
    case JS_FIRST_KEY:
        return c == '}' ? close(s) : c == '"' ? begin_string(s, true) : JSON_BAD;
    case JS_KEY: return c == '"' ? begin_string(s, true) : JSON_BAD;
    case JS_COLON: return c == ':' ? go(s, JS_VALUE) : JSON_BAD;
    case JS_NEXT: return next(s, c);
    case JS_STRING: return string(s, c);
    case JS_ESCAPE: return escape(s, c);
    case JS_HEX: return hex(s, c);
    case JS_LOW_BACKSLASH: return c == '\\' ? go(s, JS_LOW_U) : JSON_BAD;
    case JS_LOW_U: return low_u(s, c);
    case JS_LITERAL: return in_literal(s, c);
    default: return number(s, c);
    }
}

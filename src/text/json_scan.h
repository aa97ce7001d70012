/* json_scan.h - strict JSON, one byte at a time.
 *
 * Says of each byte whether it may stand there (RFC 8259, escaped surrogates in pairs), so
 * that JSON can be passed on while it arrives.  Bytes inside strings are taken as UTF-8 that
 * somebody else checks. */
#ifndef JSON_SCAN_H
#define JSON_SCAN_H

#include <stdbool.h>
#include <stdint.h>

enum { JSON_DEPTH_MAX = 128 };

enum json_state {
    JS_VALUE,       /* a value begins */
    JS_FIRST_ITEM,  /* a value, or the end of an empty array */
    JS_FIRST_KEY,   /* a key, or the end of an empty object */
    JS_KEY,
    JS_COLON,
    JS_NEXT,        /* behind a value */
    JS_STRING, JS_ESCAPE, JS_HEX, JS_LOW_BACKSLASH, JS_LOW_U,
    JS_LITERAL,
    JS_MINUS, JS_ZERO, JS_DIGITS, JS_POINT, JS_FRACTION, JS_E, JS_E_SIGN,
    JS_E_DIGITS,
};

struct json_scan {
    enum json_state state;
    int depth;                               /* objects and arrays that are open */
    bool in_key;                             /* the string is one */
    const char *rest;                        /* of a literal */
    int n_hex;
    uint32_t hex;
    bool low;                                /* the escape is a pair's second half */
    uint64_t object[JSON_DEPTH_MAX / 64];    /* bit d: what opened depth d + 1 is an object */
};

enum json_status { JSON_MORE, JSON_DONE, JSON_BAD };

/* A zeroed scan expects a value.  JSON_DONE with the byte that completes the outermost object,
 * array, string or literal; a number alone ends nowhere.  Deeper than JSON_DEPTH_MAX is bad. */
enum json_status json_scan(struct json_scan *s, char c);

static inline bool json_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

#endif

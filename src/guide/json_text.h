/* json_text.h - expressions of JSON: values, strings of a length, numbers in a range. */
#ifndef JSON_TEXT_H
#define JSON_TEXT_H

#include <jansson.h>

#include "guide/grammar.h"

/* Expressions that are used again and again. */
struct json_text {
    struct grammar *g;
    gram_expr space;    /* between tokens: nothing, a blank, or a newline and an indentation */
    gram_expr comma;    /* with the space behind it */
    gram_expr colon;
    gram_expr digit;
    gram_expr string_char, key_char;
    gram_expr string, number, integer;
    gram_expr value, object, array;
};

void json_text_init(struct json_text *j, struct grammar *g);

/* A string of min to max characters, in any spelling. */
gram_expr json_text_string(const struct json_text *j, uint32_t min, uint32_t max);

/* Exactly this value; strings in their shortest spelling. */
gram_expr json_text_value(const struct json_text *j, const json_t *value);

/* A string of exactly these bytes. */
gram_expr json_text_name(const struct json_text *j, const char *s, size_t n);

/* Keys that are none of these names; they are put in order. */
gram_expr json_text_other_key(const struct json_text *j, const char **names, size_t n);

/* An object of members, or an array of elements: each of them with what stands between. */
gram_expr json_text_braces(const struct json_text *j, const char *open, gram_expr inside,
                           const char *close);

/* Integers have at most this many digits, so that any reader can hold them. */
#define JSON_INT_MAX INT64_C(999999999999999999)

/* Integers from lo to hi, between -JSON_INT_MAX and JSON_INT_MAX, that are multiples of
 * m >= 1. */
gram_expr json_text_integers(const struct json_text *j, int64_t lo, int64_t hi, int64_t m);
/* Whether that is possible without too large an expression. */
bool json_text_integers_ok(int64_t lo, int64_t hi, int64_t m);

struct json_bound {
    bool given, exclusive;
    double value;
};

/* Bounds of numbers must be nearer to zero than this. */
#define JSON_BOUND_MAX 1e15

/* Numbers between the bounds, in decimal notation without exponents. */
gram_expr json_text_numbers(const struct json_text *j, struct json_bound lo, struct json_bound hi);

#endif

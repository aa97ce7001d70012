/* regex.h - regular expressions, also as patterns of JSON strings. */
#ifndef REGEX_H
#define REGEX_H

#include "guide/grammar.h"

struct regex_opts {
    bool json;     /* the text is what stands inside a JSON string */
    bool search;   /* a match anywhere will do, unless anchored */
    uint32_t min, max;  /* characters of the text; 0 and GRAM_INF: any */
};

/* Fails with the byte position where the text is no regular expression, uses what is not
 * supported, or is not simple enough to be combined with bounds on its length. */
bool regex_parse(struct grammar *g, const char *text, size_t n, const struct regex_opts *o,
                 gram_expr *out, slm_error *err);

#endif

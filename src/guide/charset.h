/* charset.h - sets of characters, and the expressions of one character of a set, as it
 * is or as it stands in a JSON string. */
#ifndef CHARSET_H
#define CHARSET_H

#include "guide/grammar.h"

struct char_range { uint32_t first, last; };

/* Ranges in any order until charset_close, then ascending, disjoint and without surrogates. */
struct charset {
    struct char_range *r;
    size_t n, cap;
    bool failed;  /* sticky: out of memory */
};

void charset_deinit(struct charset *c);
void charset_add(struct charset *c, uint32_t first, uint32_t last);
void charset_add_all(struct charset *c, const struct charset *other);
/* Adds all characters with one of the class bits of text/unicode.h. */
void charset_add_class(struct charset *c, unsigned bits);
void charset_close(struct charset *c);
/* All other characters; the set is closed before and after. */
void charset_invert(struct charset *c);
bool charset_has(const struct charset *c, uint32_t cp);

/* One character of the closed set in UTF-8. */
gram_expr charset_expr(struct grammar *g, const struct charset *c);

/* The same inside a JSON string, escaped where it has to be and as shortly as it can be. */
gram_expr charset_json(struct grammar *g, const struct charset *c);

/* A text as it stands inside a JSON string, escaped in the same way. */
void json_escape(struct buf *out, const char *s, size_t n);

#endif

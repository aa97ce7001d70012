/* schema.h - what the parts of the schema reader share. */
#ifndef SCHEMA_H
#define SCHEMA_H

#include "guide/json_text.h"

/* The way to a part of the schema, for messages: a list on the stack from the part up. */
struct place {
    const struct place *up;
    const char *key;     /* NULL: index */
    size_t index;
    const char *pointer; /* of a place that begins anew, by a reference; else NULL */
};

#define PLACE_KEY(up, key) (&(struct place){ (up), (key), 0, NULL })
#define PLACE_INDEX(up, i) (&(struct place){ (up), NULL, (i), NULL })

struct schema {
    struct json_text j;
    json_t *root;
    json_t *rules;       /* JSON pointer -> number of its rule */
    json_t *waiting;     /* pointers of rules that are not defined yet */
    long work;           /* done so far, against schemas that grow when they are merged */
    int depth;
    slm_error *err;
    bool failed;
};

/* Remembers the first error: "schema at POINTER/key: what"; key may be NULL.  Returns GRAM_NONE. */
gram_expr schema_refuse(struct schema *s, const struct place *at, const char *key,
                        const char *fmt, ...) PRINTF_LIKE(4, 5);

/* Counts work; false once it is too much. */
bool schema_work(struct schema *s, const struct place *at, size_t units);

gram_expr schema_compile(struct schema *s, const json_t *schema, const struct place *at);

/* A schema out of a document `root`, to which references refer. */
bool schema_expr(struct grammar *g, json_t *root, const json_t *schema, gram_expr *out,
                 slm_error *err);

/* A whole number that is not negative; `none` where the keyword is absent. */
uint32_t schema_count(struct schema *s, const json_t *schema, const char *key, uint32_t none,
                      const struct place *at);

/* ---- schema_scalar.c, schema_object.c: one type each ----------------------------------- */

gram_expr schema_string(struct schema *s, const json_t *schema, const struct place *at);
gram_expr schema_number(struct schema *s, const json_t *schema, bool integer,
                        const struct place *at);
gram_expr schema_object(struct schema *s, const json_t *schema, const struct place *at);
gram_expr schema_array(struct schema *s, const json_t *schema, const struct place *at);

/* Whether an object has to have this member. */
bool schema_requires(const json_t *schema, const char *name);

/* A string, in its quotes, that matches; errors are said of `key`. */
struct regex_opts;
gram_expr schema_regex(struct schema *s, const char *regex, size_t n, const struct regex_opts *o,
                       const struct place *at, const char *key);

/* ---- schema_merge.c: schemas as data --------------------------------------------------- */

/* Whether a schema says nothing, apart from annotations. */
bool schema_is_empty(const json_t *schema);
/* Refuses keywords that are not supported. */
bool schema_check_keywords(struct schema *s, const json_t *schema, const struct place *at);

/* The schema that a reference stands for, borrowed; NULL where there is none. */
json_t *schema_target(struct schema *s, const char *ref, const struct place *at);

/* Both at once, new; NULL where that cannot be said by one schema or on failure (refused). */
json_t *schema_merge(struct schema *s, const json_t *a, const json_t *b, const struct place *at);

/* The schema without its references at the top, new. */
json_t *schema_deref(struct schema *s, const json_t *schema, const struct place *at);

/* Whether it can be told that no value fits both. */
bool schema_disjoint(struct schema *s, const json_t *a, const json_t *b, int depth);

/* Types of values a schema allows, of those it names or that its keywords are about; bits. */
enum {
    TYPE_OBJECT = 1, TYPE_ARRAY = 2, TYPE_STRING = 4, TYPE_NUMBER = 8, TYPE_INTEGER = 16,
    TYPE_BOOLEAN = 32, TYPE_NULL = 64, TYPE_ALL = 111,  /* integers are numbers */
};
unsigned schema_types(struct schema *s, const json_t *schema, const struct place *at);
unsigned schema_type_of(const json_t *value);

#endif

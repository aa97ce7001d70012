/* grammar.h - languages of bytes, built from expressions.
 *
 * An expression is a number; it never changes and may stand in any number of places.
 * Rules are expressions that are declared first and defined later, so languages may be
 * recursive.  Building never fails at once: what goes wrong (no memory, a limit) is
 * remembered and reported by gram_finish. */
#ifndef GRAMMAR_H
#define GRAMMAR_H

#include "base/buf.h"
#include "base/error.h"

enum gram_op {
    GRAM_NEVER,   /* no text */
    GRAM_EMPTY,   /* the empty text */
    GRAM_LIT,     /* bytes */
    GRAM_SET,     /* one byte of a set */
    GRAM_SEQ,     /* one after the other */
    GRAM_ALT,     /* one of them */
    GRAM_REPEAT,  /* min to max times */
    GRAM_RULE,    /* what the rule is defined as */
};

typedef int32_t gram_expr;

/* The expressions of no text and of the empty text. */
enum { GRAM_NONE = 0, GRAM_NOTHING = 1 };

/* No upper bound of a repetition. */
#define GRAM_INF UINT32_MAX

struct gram_set { uint64_t bits[4]; };

struct gram_node {
    uint8_t op;
    bool plain;      /* REPEAT: its body always takes a byte */
    uint32_t at, n;  /* LIT: bytes; SEQ, ALT: members; SET: at = number; REPEAT: n = body;
                      * RULE: n = definition or GRAM_NONE, at = name */
    uint32_t min, max;
    uint32_t dist;   /* bytes of the shortest text, GRAM_INF: it has none */
};

struct grammar {
    struct gram_node *node;
    uint32_t n_nodes, nodes_cap;
    gram_expr *member;      /* of SEQ and ALT */
    uint32_t n_members, members_cap;
    struct gram_set *set;
    uint32_t n_sets, sets_cap;
    struct buf bytes;       /* of LIT, and names of rules with their NUL */
    bool too_large, no_memory;
};

void gram_init(struct grammar *g);
void gram_deinit(struct grammar *g);

/* Whether building has failed, so that there is no point in going on. */
bool gram_failed(const struct grammar *g);
/* Says why; false. */
bool gram_error(const struct grammar *g, slm_error *err);

gram_expr gram_lit(struct grammar *g, const char *s, size_t n);
gram_expr gram_str(struct grammar *g, const char *s);
gram_expr gram_set(struct grammar *g, const struct gram_set *set);
gram_expr gram_range(struct grammar *g, unsigned first, unsigned last);
gram_expr gram_seq(struct grammar *g, const gram_expr *e, size_t n);
gram_expr gram_alt(struct grammar *g, const gram_expr *e, size_t n);
gram_expr gram_repeat(struct grammar *g, gram_expr e, uint32_t min, uint32_t max);
gram_expr gram_optional(struct grammar *g, gram_expr e);

#define GRAM_SEQ(g, ...)                                                                 \
    gram_seq(g, (const gram_expr[]){ __VA_ARGS__ },                                      \
             sizeof (const gram_expr[]){ __VA_ARGS__ } / sizeof(gram_expr))
#define GRAM_ALT(g, ...)                                                                 \
    gram_alt(g, (const gram_expr[]){ __VA_ARGS__ },                                      \
             sizeof (const gram_expr[]){ __VA_ARGS__ } / sizeof(gram_expr))

/* A rule; the name is for messages.  One without a definition has no text. */
gram_expr gram_rule(struct grammar *g, const char *name);
void gram_define(struct grammar *g, gram_expr rule, gram_expr e);
bool gram_defined(const struct grammar *g, gram_expr rule);

/* A list of expressions that grows; failure is remembered by the grammar. */
struct gram_list {
    gram_expr *e;
    size_t n, cap;
};
void gram_list_add(struct grammar *g, struct gram_list *l, gram_expr e);
void gram_list_deinit(struct gram_list *l);

/* Computes what an automaton needs, for all expressions below root.  Fails where building has
 * failed, where a rule begins with itself and where root has no text. */
bool gram_finish(struct grammar *g, gram_expr root, slm_error *err);

#endif

/* jinja_value.h - what a template computes with: Python's values, as far as templates see them.
 *
 * A value is a small tagged struct passed by value; what it points to lives in the arena of
 * the render (or of the compiled template, for constants) and is never changed after it was
 * built, apart from namespaces, cyclers, joiners and iterators.  Constructors never return
 * NULL: when memory is out they record the failure in the run and give an empty object, so
 * code stays straight and the failure surfaces at the next statement. */
#ifndef JINJA_VALUE_H
#define JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "text/span.h"

struct jrun;

enum val_kind {
    V_ABSENT = 0,  /* no value: a parameter that was not given, the end of an iterator */
    V_UNDEF,
    V_NONE,
    V_BOOL,
    V_INT,
    V_BIG,     /* an integer outside int64_t */
    V_FLOAT,
    V_STR,
    V_BYTES,
    V_LIST,
    V_TUPLE,
    V_DICT,
    V_VIEW,    /* keys(), values(), items() of a dict */
    V_RANGE,
    V_ITER,    /* a generator: can be walked once */
    V_FUNC,
    V_METHOD,
    V_MACRO,
    V_SPACE,   /* namespace() */
    V_LOOP,
    V_CYCLER,
    V_JOINER,
    V_SLICE,
    V_BLOCKS,  /* self */
    V_BLOCK,   /* self.name */
    V_TYPE,    /* dict, as the global */
    V_KIND_COUNT
};

struct val {
    enum val_kind kind;
    union {
        bool b;
        int64_t i;
        double f;
        struct big *big;
        struct str *str;      /* V_STR and V_BYTES */
        struct list *list;    /* V_LIST and V_TUPLE */
        struct dict *dict;
        struct view *view;
        struct range *range;
        struct iter *iter;
        struct undef *undef;
        const struct builtin *func;
        struct method *method;
        struct macro *macro;
        struct dict *space;
        struct loop *loop;
        struct cycler *cycler;
        struct joiner *joiner;
        struct slice *slice;
        const struct node *block;
    };
};

/* Text is valid UTF-8, bytes are anything.  `marks` are the spans that came from strings of
 * the marked variable: ascending, disjoint, not touching. */
struct str {
    const char *s;           /* not NUL-terminated */
    size_t n;
    size_t n_chars;          /* SIZE_MAX: not counted yet */
    uint64_t hash;           /* 0: not computed yet */
    const struct span *marks;
    size_t n_marks;
    bool markup;             /* safe for HTML: escaping leaves it alone */
};

/* Magnitude in base 2^32, least significant limb first, no leading zeros. */
struct big {
    bool neg;
    size_t n;
    uint32_t d[];
};

struct list {
    struct val *v;
    size_t n, cap;
    bool group;   /* a tuple made by groupby: has .grouper and .list */
};

struct entry {
    struct val key, value;
    uint64_t hash;
};

/* Keeps the order of insertion.  `index` is a power-of-two hash table of positions + 1. */
struct dict {
    struct entry *e;
    size_t n, cap;
    uint32_t *index;
    size_t index_cap;
};

enum view_kind { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS };

struct view {
    enum view_kind kind;
    struct dict *dict;
};

struct range { int64_t start, stop, step, n; };

struct slice { struct val start, stop, step; };

/* next gives V_ABSENT at the end.  The other members are the state of one kind of iterator. */
struct iter {
    struct val (*next)(struct jrun *r, struct iter *it);
    const char *what;        /* "generator", "list_reverseiterator" */
    struct val src, extra;
    struct iter *in;
    size_t i, n;
    void *state;
    bool done;
};

struct undef {
    const char *hint;        /* the whole message, when not NULL */
    struct str *name;        /* of the variable or attribute; NULL: see `index` */
    struct val index;        /* element that was asked for, when name is NULL */
    enum val_kind owner;     /* kind of object that lacks it; V_ABSENT: a variable */
};

struct method {
    const struct builtin *fn;
    struct val self;
};

struct cycler { struct list *items; size_t pos; };
struct joiner { struct val sep; bool used; };

struct loop {
    struct val iterable;
    struct iter *it;
    struct val before, current, after;
    bool has_after;
    struct val changed;      /* tuple of the last loop.changed() */
    int64_t index0, length;  /* length: -1 while unknown */
    int depth0;
    const struct node *node; /* of a recursive loop, else NULL */
    struct scope *scope;     /* in which the loop stands */
};

/* Arguments of a call as they were evaluated. */
struct args {
    const struct val *pos;
    size_t n_pos;
    struct dict *kw;         /* may be NULL */
};

enum { ARGS_MAX = 10 };

/* A function, filter, test or method that is part of the language.  `sig` names the
 * parameters after self: "a b?" has b optional, "/" makes those before it positional-only,
 * "*args" and "**kwargs" collect the rest.  fn gets self in a[0] and the parameters behind
 * it, V_ABSENT where one was not given. */
struct builtin {
    const char *name;
    const char *sig;
    struct val (*fn)(struct jrun *r, const struct val *a);
};

static inline struct val v_absent(void) { return (struct val){ .kind = V_ABSENT }; }
static inline struct val v_none(void) { return (struct val){ .kind = V_NONE }; }
static inline struct val v_bool(bool b) { return (struct val){ .kind = V_BOOL, .b = b }; }
static inline struct val v_int(int64_t i) { return (struct val){ .kind = V_INT, .i = i }; }
static inline struct val v_float(double f) { return (struct val){ .kind = V_FLOAT, .f = f }; }
static inline struct val v_str(struct str *s) { return (struct val){ .kind = V_STR, .str = s }; }
static inline struct val v_list(struct list *l)
{
    return (struct val){ .kind = V_LIST, .list = l };
}
static inline struct val v_tuple(struct list *l)
{
    return (struct val){ .kind = V_TUPLE, .list = l };
}
static inline struct val v_dict(struct dict *d)
{
    return (struct val){ .kind = V_DICT, .dict = d };
}
static inline struct val v_iter(struct iter *it)
{
    return (struct val){ .kind = V_ITER, .iter = it };
}

static inline bool v_is_int(struct val v)
{
    return v.kind == V_INT || v.kind == V_BOOL || v.kind == V_BIG;
}
static inline bool v_is_num(struct val v) { return v_is_int(v) || v.kind == V_FLOAT; }
static inline bool v_is_seq(struct val v) { return v.kind == V_LIST || v.kind == V_TUPLE; }

/* V_INT and V_BOOL as a number. */
static inline int64_t v_small(struct val v) { return v.kind == V_BOOL ? v.b : v.i; }

/* "int", "str", "NoneType": Python's name of the type. */
const char *v_type(struct val v);
bool v_truth(struct jrun *r, struct val v);
/* -1 where the value has no length. */
int64_t v_len(struct jrun *r, struct val v);
bool v_eq(struct jrun *r, struct val a, struct val b);
/* Python's `is`. */
bool v_same(struct val a, struct val b);
/* a < b; fails where Python has no order. */
bool v_less(struct jrun *r, struct val a, struct val b);
/* a <= b, not the same as !(b < a) for not-a-number. */
bool v_less_eq(struct jrun *r, struct val a, struct val b);
bool v_in(struct jrun *r, struct val item, struct val box);
bool v_hashable(struct val v);
uint64_t v_hash(struct jrun *r, struct val v);

/* An index: integers and booleans; fails for others and for what is beyond int64_t. */
bool v_index(struct jrun *r, struct val v, int64_t *out);

/* ---- lists, dicts, undefined -------------------------------------------------------- */

struct list *list_new(struct jrun *r, size_t cap);
void list_push(struct jrun *r, struct list *l, struct val v);
struct val pair_new(struct jrun *r, struct val a, struct val b);

struct dict *dict_new(struct jrun *r, size_t cap);
void dict_set(struct jrun *r, struct dict *d, struct val key, struct val value);
/* NULL where there is none; the key must be hashable. */
struct val *dict_get(struct jrun *r, const struct dict *d, struct val key);
struct val *dict_get_str(struct jrun *r, const struct dict *d, struct str *key);
struct dict *dict_copy(struct jrun *r, const struct dict *d);

struct val undef_hint(struct jrun *r, const char *hint);
struct val undef_name(struct jrun *r, struct str *name);
struct val undef_attr(struct jrun *r, struct val owner, struct val name);
/* The error that using an undefined value is; gives it back. */
struct val undef_fail(struct jrun *r, struct val v);

/* ---- integers and floats (jinja_num.c, jinja_big.c) --------------------------------- */

struct val big_from_digits(struct jrun *r, const char *s, size_t n, int base, bool neg);
struct val big_add(struct jrun *r, struct val a, struct val b);
struct val big_sub(struct jrun *r, struct val a, struct val b);
struct val big_mul(struct jrun *r, struct val a, struct val b);
/* Floor division; b is not zero.  q and m may be NULL. */
void big_divmod(struct jrun *r, struct val a, struct val b, struct val *q, struct val *m);
struct val big_neg(struct jrun *r, struct val a);
int big_cmp(struct val a, struct val b);
int big_sign(struct val a);
size_t big_bits(struct val a);
int big_popcount(struct val a);
double big_to_double(struct val a);   /* rounded to nearest even; inf when too large */
/* Integer part of a finite double. */
struct val big_from_double(struct jrun *r, double x);
/* a / b rounded once; b is not zero. */
double big_true_div(struct jrun *r, struct val a, struct val b);
/* Digits without sign or prefix, NUL-terminated, in the arena. */
char *big_digits(struct jrun *r, struct val a, int base, size_t *n);
/* a * 2^bits. */
struct val big_shl(struct jrun *r, struct val a, size_t bits);

struct val num_add(struct jrun *r, struct val a, struct val b);
struct val num_sub(struct jrun *r, struct val a, struct val b);
struct val num_mul(struct jrun *r, struct val a, struct val b);
struct val num_div(struct jrun *r, struct val a, struct val b);
struct val num_floordiv(struct jrun *r, struct val a, struct val b);
struct val num_mod(struct jrun *r, struct val a, struct val b);
struct val num_pow(struct jrun *r, struct val a, struct val b);
struct val num_neg(struct jrun *r, struct val a);
struct val num_abs(struct jrun *r, struct val a);
/* -1, 0, 1; 2 when one of them is not a number. */
int num_cmp(struct val a, struct val b);
/* Fails with an overflow error for integers that are too large. */
bool num_double(struct jrun *r, struct val v, double *out);
/* Python's round(). */
struct val num_round(struct jrun *r, struct val v, int64_t digits, bool has_digits);
/* int(text, base) and float(text); false where the text is not a number. */
bool num_parse_int(struct jrun *r, const struct str *s, int base, struct val *out);
bool num_parse_float(struct jrun *r, const struct str *s, double *out);
/* int(float); fails for inf and nan when `fail`, else returns false. */
bool num_trunc(struct jrun *r, double x, bool fail, struct val *out);
/* The shortest text that reads back as x, as Python's repr. */
size_t num_repr(double x, char out[40]);
/* strtod in the C locale over n bytes of well-formed text. */
double num_strtod(const char *s, size_t n);

#endif

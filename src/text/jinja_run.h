/* jinja_run.h - the state of one rendering, and what the parts of the engine offer each other.
 *
 * Errors are sticky: the first one is kept, everything after it does as little as possible,
 * and whoever loops looks at `failed`.  So expressions can be evaluated without a check
 * after each step. */
#ifndef JINJA_RUN_H
#define JINJA_RUN_H

#include "base/mem.h"
#include "text/jinja.h"
#include "text/jinja_ast.h"
#include "text/jinja_str.h"
#include "text/jinja_value.h"

struct binding {
    struct str *name;
    struct val value;
};

/* Variables of a block.  Inner ones are looked up first. */
struct scope {
    struct scope *up;
    struct binding *b;
    uint32_t n, cap;
    bool captured;    /* a macro or a loop refers to it: not to be reused */
};

struct macro {
    const struct node *node;
    struct scope *scope;
    bool escape;      /* autoescape was on where it was defined */
};

enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE };

/* Deep enough for recursive macros over nested schemas, and little enough for a thread with
 * a stack of 256 KiB. */
enum { JINJA_DEPTH_MAX = 420, JINJA_STACK_VALUES = 1 << 14 };

struct jrun {
    struct arena arena;
    const struct jinja *j;
    const struct jinja_env *env;
    slm_error *err;
    bool failed;
    bool autoescape;
    int line;
    int depth;
    enum flow flow;
    uint64_t steps, max_steps;
    size_t max_output;
    struct dict *context;
    struct scope *scope, *root;
    struct sb *out;
    struct sb *page;          /* the outermost output, which max_output bounds */
    struct val block_text;    /* what the filters of a block work on */
    struct val *stack;        /* arguments under evaluation */
    size_t sp;
    uint64_t random;
    struct printing *printing;  /* namespaces that are being printed, innermost first */
    struct list nolist;       /* handed out when memory is out */
    struct dict nodict;
    struct str nostr;
    struct iter noiter;
    struct undef noundef;
};

/* Records "line N: message" unless an error came first, and gives an undefined value. */
struct val run_fail(struct jrun *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* The message as it is, however long; for raise_exception. */
void run_raise(struct jrun *r, const char *msg, size_t n);
void *run_alloc(struct jrun *r, size_t n);   /* NULL after a failure was recorded */
/* Counts work; false when the limit is reached or an error was recorded. */
bool run_step(struct jrun *r, uint64_t n);
bool run_enter(struct jrun *r);              /* depth + 1; always pair with run_leave */
static inline void run_leave(struct jrun *r) { r->depth--; }

/* ---- iteration (jinja_iter.c) ------------------------------------------------------- */

/* Fails where Python's iter() does. */
struct iter *iter_of(struct jrun *r, struct val v);
struct iter *iter_new(struct jrun *r, struct val (*next)(struct jrun *r, struct iter *it),
                      const char *what);
bool v_iterable(struct val v);
/* False at the end and after an error. */
bool iter_next(struct jrun *r, struct iter *it, struct val *out);
struct list *list_of(struct jrun *r, struct val v);
struct iter *iter_reversed(struct jrun *r, struct val v);
/* Stable, by v_less of the keys; keys may be NULL. */
void list_sort(struct jrun *r, struct list *l, struct list *keys, bool reverse);

/* ---- attributes and calls (jinja_attr.c, jinja_call.c) ------------------------------ */

struct val get_attr(struct jrun *r, struct val v, struct str *name);
struct val get_item(struct jrun *r, struct val v, struct val key);
/* The attribute proper, without items; V_ABSENT where there is none. */
struct val get_safe_attr(struct jrun *r, struct val v, struct str *name);
/* A path "a.0.b", an index, or None for v itself, as filters take them; `missing` (V_ABSENT:
 * nothing) stands for what is undefined. */
struct val get_path(struct jrun *r, struct val v, struct val path, struct val missing);
struct val get_slice(struct jrun *r, struct val v, const struct slice *s);
/* Resolves a slice over n elements: first index, step, number of elements. */
bool slice_bounds(struct jrun *r, const struct slice *s, int64_t n, int64_t *start, int64_t *step,
                  int64_t *count);
bool v_callable(struct val v);
struct val call_value(struct jrun *r, struct val fn, const struct args *args);
struct val call_builtin(struct jrun *r, const struct builtin *fn, struct val self,
                        const struct args *args);
struct val call_macro(struct jrun *r, const struct macro *m, const struct args *args);
struct val call_loop(struct jrun *r, struct loop *l, struct val iterable);
struct val call_block(struct jrun *r, const struct node *block, struct scope *scope);
struct val loop_attr(struct jrun *r, struct loop *l, struct str *name);
int64_t loop_length(struct jrun *r, struct loop *l);
struct val apply_named_filter(struct jrun *r, struct val name, struct val v,
                              const struct args *args);
bool apply_named_test(struct jrun *r, struct val name, struct val v, const struct args *args);

/* ---- evaluation (jinja_eval.c, jinja_exec.c) ---------------------------------------- */

struct val expr_eval(struct jrun *r, const struct node *n);
void stmt_exec(struct jrun *r, const struct node *n);
/* Evaluates the arguments of a call onto the stack; the caller restores r->sp. */
struct args eval_args(struct jrun *r, const struct node *n, struct val *extra);
struct val val_binary(struct jrun *r, enum token_kind op, struct val a, struct val b);
struct val scope_get(struct jrun *r, struct str *name);
struct scope *scope_new(struct jrun *r, struct scope *up);
void scope_set(struct jrun *r, struct scope *s, struct str *name, struct val v);
void scope_assign(struct jrun *r, const struct node *target, struct val v);

/* ---- tables ------------------------------------------------------------------------- */

const struct builtin *find_builtin(const struct builtin *table, const char *name, size_t n);
const struct builtin *find_filter(const char *name, size_t n);
const struct builtin *find_test(const char *name, size_t n);
/* Filters are spread over two files, each with a table ended by a NULL name. */
extern const struct builtin jinja_seq_filters[], jinja_text_filters[], jinja_tests[],
    jinja_globals[], jinja_str_methods[], jinja_list_methods[], jinja_tuple_methods[],
    jinja_dict_methods[], jinja_int_methods[], jinja_float_methods[], jinja_bytes_methods[],
    jinja_cycler_methods[], jinja_loop_methods[], jinja_range_methods[];

/* ---- argument helpers --------------------------------------------------------------- */

static inline bool v_given(struct val v) { return v.kind != V_ABSENT; }
/* given and not None */
static inline bool v_given_some(struct val v) { return v.kind != V_ABSENT && v.kind != V_NONE; }
bool arg_true(struct jrun *r, struct val v, bool missing);
int64_t arg_int(struct jrun *r, struct val v, int64_t missing);
/* The string, or a failure naming `what`. */
struct str *arg_str(struct jrun *r, struct val v, const char *what);

#endif

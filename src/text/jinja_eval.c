/* jinja_eval.c - expressions to values. */
#include <string.h>

#include "text/jinja_run.h"

/* ---- names -------------------------------------------------------------------------- */

struct scope *scope_new(struct jrun *r, struct scope *up)
{
    struct scope *s = run_alloc(r, sizeof *s);

    if (s == NULL) {
        return r->root;
    }
    *s = (struct scope){ .up = up };
    return s;
}

void scope_set(struct jrun *r, struct scope *s, struct str *name, struct val v)
{
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->b[i].name == name) {
            s->b[i].value = v;
            return;
        }
    }
    if (s->n == s->cap) {
        uint32_t cap = s->cap ? 2 * s->cap : 4;
        struct binding *grown = run_alloc(r, cap * sizeof *grown);

        if (grown == NULL) {
            return;
        }
        if (s->n > 0) {
            memcpy(grown, s->b, s->n * sizeof *grown);
        }
        s->b = grown;
        s->cap = cap;
    }
    s->b[s->n++] = (struct binding){ .name = name, .value = v };
}

/* Names are interned when the template is parsed, so comparing pointers is enough. */
struct val scope_get(struct jrun *r, struct str *name)
{
    const struct val *found;
    const struct builtin *fn;

    for (const struct scope *s = r->scope; s != NULL; s = s->up) {
        for (uint32_t i = 0; i < s->n; i++) {
            if (s->b[i].name == name) {
                return s->b[i].value;
            }
        }
    }
    found = dict_get_str(r, r->context, name);
    if (found != NULL) {
        return *found;
    }
    fn = find_builtin(jinja_globals, name->s, name->n);
    if (fn != NULL) {
        return str_is(name, "dict") ? (struct val){ .kind = V_TYPE }
                                    : (struct val){ .kind = V_FUNC, .func = fn };
    }
    if (name == r->j->name_self) {
        return (struct val){ .kind = V_BLOCKS };
    }
    return undef_name(r, name);
}

static struct val eval_name(struct jrun *r, const struct node *n)
{
    return scope_get(r, n->name);
}

/* ---- literals ----------------------------------------------------------------------- */

static struct val eval_const(struct jrun *r, const struct node *n)
{
    (void)r;
    return n->value;
}

static struct val eval_bigint(struct jrun *r, const struct node *n)
{
    return big_from_digits(r, n->name->s, n->name->n, n->op, false);
}

static struct val eval_list(struct jrun *r, const struct node *n)
{
    struct list *l = list_new(r, n->n);

    for (uint32_t i = 0; i < n->n && !r->failed; i++) {
        list_push(r, l, expr_eval(r, n->list[i]));
    }
    return n->kind == N_LIST ? v_list(l) : v_tuple(l);
}

static struct val eval_dict(struct jrun *r, const struct node *n)
{
    struct dict *d = dict_new(r, n->n / 2);

    for (uint32_t i = 0; i + 1 < n->n && !r->failed; i += 2) {
        struct val key = expr_eval(r, n->list[i]);

        dict_set(r, d, key, expr_eval(r, n->list[i + 1]));
    }
    return v_dict(d);
}

/* ---- operators ---------------------------------------------------------------------- */

static const char *op_name(enum token_kind op)
{
    static const char *const names[T_KIND_COUNT] = {
        [T_ADD] = "+", [T_SUB] = "-", [T_MUL] = "*", [T_DIV] = "/", [T_FLOORDIV] = "//",
        [T_MOD] = "%", [T_POW] = "** or pow()",
    };

    return names[op];
}

static struct val no_operator(struct jrun *r, enum token_kind op, struct val a, struct val b)
{
    if (a.kind == V_UNDEF || b.kind == V_UNDEF) {
        return undef_fail(r, a.kind == V_UNDEF ? a : b);
    }
    return run_fail(r, "TypeError: unsupported operand type(s) for %s: '%s' and '%s'", op_name(op),
                    v_type(a), v_type(b));
}

/* Text joined to text; when one of them is safe markup, the other is escaped. */
static struct val add_text(struct jrun *r, struct val a, struct val b)
{
    bool markup = a.str->markup || b.str->markup;
    struct sb out;
    struct str *s;

    sb_init(&out, r);
    if (markup && a.kind == V_STR) {
        put_escaped(&out, a);
        put_escaped(&out, b);
    } else {
        sb_str(&out, a.str);
        sb_str(&out, b.str);
    }
    s = sb_take(&out);
    return (struct val){ .kind = a.kind, .str = markup ? str_markup(r, s) : s };
}

static struct val add_lists(struct jrun *r, struct val a, struct val b)
{
    struct list *l = list_new(r, a.list->n + b.list->n);

    run_step(r, (a.list->n + b.list->n) / 16);
    for (size_t i = 0; i < a.list->n; i++) {
        list_push(r, l, a.list->v[i]);
    }
    for (size_t i = 0; i < b.list->n; i++) {
        list_push(r, l, b.list->v[i]);
    }
    return a.kind == V_LIST ? v_list(l) : v_tuple(l);
}

/* A string, bytes, list or tuple `times` times. */
static struct val repeat(struct jrun *r, struct val seq, struct val times)
{
    int64_t n;
    struct list *l;
    struct sb b;
    struct str *s;

    if (!v_index(r, times, &n)) {
        return v_none();
    }
    if (seq.kind == V_STR || seq.kind == V_BYTES) {
        sb_init(&b, r);
        for (int64_t i = 0; i < n && seq.str->n > 0 && run_step(r, 1); i++) {
            sb_str(&b, seq.str);
        }
        s = sb_take(&b);
        return (struct val){ .kind = seq.kind, .str = seq.str->markup ? str_markup(r, s) : s };
    }
    l = list_new(r, 0);
    for (int64_t i = 0; i < n && seq.list->n > 0 && run_step(r, 1); i++) {
        for (size_t k = 0; k < seq.list->n; k++) {
            list_push(r, l, seq.list->v[k]);
        }
    }
    return seq.kind == V_LIST ? v_list(l) : v_tuple(l);
}

static bool repeatable(struct val v)
{
    return v.kind == V_STR || v.kind == V_BYTES || v_is_seq(v);
}

static struct val binary_other(struct jrun *r, enum token_kind op, struct val a, struct val b)
{
    if (op == T_ADD && a.kind == b.kind && (a.kind == V_STR || a.kind == V_BYTES)) {
        return add_text(r, a, b);
    }
    if (op == T_ADD && a.kind == b.kind && v_is_seq(a)) {
        return add_lists(r, a, b);
    }
    if (op == T_MUL && repeatable(a) && v_is_int(b)) {
        return repeat(r, a, b);
    }
    if (op == T_MUL && v_is_int(a) && repeatable(b)) {
        return repeat(r, b, a);
    }
    if (op == T_MOD && a.kind == V_STR) {
        return format_percent(r, a.str, b);
    }
    return no_operator(r, op, a, b);
}

struct val val_binary(struct jrun *r, enum token_kind op, struct val a, struct val b)
{
    if (r->failed) {
        return v_none();
    }
    if (!v_is_num(a) || !v_is_num(b)) {
        return binary_other(r, op, a, b);
    }
    switch (op) {
    case T_ADD:
        return num_add(r, a, b);
    case T_SUB:
        return num_sub(r, a, b);
    case T_MUL:
        return num_mul(r, a, b);
    case T_DIV:
        return num_div(r, a, b);
    case T_FLOORDIV:
        return num_floordiv(r, a, b);
    case T_MOD:
        return num_mod(r, a, b);
    default:
        return num_pow(r, a, b);
    }
}

static struct val eval_binary(struct jrun *r, const struct node *n)
{
    struct val a = expr_eval(r, n->a);
    struct val b = expr_eval(r, n->b);

    r->line = n->line;
    return val_binary(r, (enum token_kind)n->op, a, b);
}

static struct val eval_sign(struct jrun *r, const struct node *n)
{
    struct val v = expr_eval(r, n->a);

    if (r->failed) {
        return v_none();
    }
    if (v.kind == V_UNDEF) {
        return undef_fail(r, v);
    }
    if (!v_is_num(v)) {
        return run_fail(r, "TypeError: bad operand type for unary %s: '%s'",
                        n->kind == N_NEG ? "-" : "+", v_type(v));
    }
    if (n->kind == N_NEG) {
        return num_neg(r, v);
    }
    return v.kind == V_BOOL ? v_int(v.b) : v;
}

static struct val eval_not(struct jrun *r, const struct node *n)
{
    return v_bool(!v_truth(r, expr_eval(r, n->a)));
}

static struct val eval_and_or(struct jrun *r, const struct node *n)
{
    struct val v = expr_eval(r, n->a);

    return v_truth(r, v) == (n->kind == N_AND) ? expr_eval(r, n->b) : v;
}

static struct val eval_concat(struct jrun *r, const struct node *n)
{
    struct sb b;
    struct str *s;

    sb_init(&b, r);
    for (uint32_t i = 0; i < n->n && !r->failed; i++) {
        struct val v = expr_eval(r, n->list[i]);

        if (r->autoescape) {
            put_escaped(&b, v);
        } else {
            put_str(&b, v);
        }
    }
    s = sb_take(&b);
    return v_str(r->autoescape ? str_markup(r, s) : s);
}

static bool compare_one(struct jrun *r, enum token_kind op, struct val a, struct val b)
{
    switch (op) {
    case T_EQ:
        return v_eq(r, a, b);
    case T_NE:
        return !v_eq(r, a, b);
    case T_LT:
        return v_less(r, a, b);
    case T_GT:
        return v_less(r, b, a);
    case T_LE:
        return v_less_eq(r, a, b);
    case T_GE:
        return v_less_eq(r, b, a);
    case T_NAME:
        return v_in(r, a, b);
    default:
        return !v_in(r, a, b);
    }
}

/* a < b < c is a < b and b < c, with b evaluated once. */
static struct val eval_compare(struct jrun *r, const struct node *n)
{
    struct val left = expr_eval(r, n->a);

    for (uint32_t i = 0; i < n->n && !r->failed; i++) {
        struct val right = expr_eval(r, n->list[i]->a);

        r->line = n->line;
        if (r->failed || !compare_one(r, (enum token_kind)n->list[i]->op, left, right)) {
            return v_bool(false);
        }
        left = right;
    }
    return v_bool(true);
}

static struct val eval_cond(struct jrun *r, const struct node *n)
{
    if (v_truth(r, expr_eval(r, n->b))) {
        return expr_eval(r, n->a);
    }
    if (n->c != NULL) {
        return expr_eval(r, n->c);
    }
    return undef_hint(r, "the inline if-expression evaluated to false and no else section was "
                         "defined");
}

/* ---- attributes, items -------------------------------------------------------------- */

static struct val eval_getattr(struct jrun *r, const struct node *n)
{
    struct val v = expr_eval(r, n->a);

    r->line = n->line;
    return r->failed ? v_none() : get_attr(r, v, n->name);
}

static struct val eval_slice(struct jrun *r, const struct node *n)
{
    struct slice *s = run_alloc(r, sizeof *s);

    if (s == NULL) {
        return v_none();
    }
    s->start = n->a != NULL ? expr_eval(r, n->a) : v_none();
    s->stop = n->b != NULL ? expr_eval(r, n->b) : v_none();
    s->step = n->c != NULL ? expr_eval(r, n->c) : v_none();
    return (struct val){ .kind = V_SLICE, .slice = s };
}

/* Literals are folded with the forgiving rules of items, everything else is sliced as Python
 * does. */
static bool is_literal(const struct node *n)
{
    if (n->kind == N_LIST || n->kind == N_TUPLE || n->kind == N_DICT) {
        for (uint32_t i = 0; i < n->n; i++) {
            if (!is_literal(n->list[i])) {
                return false;
            }
        }
        return true;
    }
    if (n->kind == N_NEG || n->kind == N_POS || n->kind == N_BINARY) {
        return is_literal(n->a) && (n->b == NULL || is_literal(n->b));
    }
    return n->kind == N_CONST || n->kind == N_BIGINT;
}

static struct val eval_getitem(struct jrun *r, const struct node *n)
{
    struct val v = expr_eval(r, n->a);
    struct val key = expr_eval(r, n->b);
    struct val out;

    r->line = n->line;
    if (r->failed) {
        return v_none();
    }
    if (n->b->kind != N_SLICE || is_literal(n->a)) {
        return get_item(r, v, key);
    }
    if (v.kind == V_UNDEF) {
        return undef_fail(r, v);
    }
    out = get_slice(r, v, key.slice);
    if (out.kind == V_ABSENT && !r->failed) {
        return run_fail(r, "TypeError: '%s' object cannot be sliced this way", v_type(v));
    }
    return out;
}

/* ---- calls, filters, tests ---------------------------------------------------------- */

static void push(struct jrun *r, struct val v)
{
    if (r->sp >= JINJA_STACK_VALUES) {
        run_fail(r, "a call has more than %d arguments in evaluation", JINJA_STACK_VALUES);
        return;
    }
    r->stack[r->sp++] = v;
}

static void push_all(struct jrun *r, struct val seq)
{
    struct iter *it = iter_of(r, seq);
    struct val v;

    while (iter_next(r, it, &v)) {
        push(r, v);
    }
}

static void add_keywords(struct jrun *r, struct dict *kw, struct val more)
{
    if (more.kind != V_DICT) {
        run_fail(r, "TypeError: argument after ** must be a mapping, not %s", v_type(more));
        return;
    }
    for (size_t i = 0; i < more.dict->n && !r->failed; i++) {
        struct val key = more.dict->e[i].key;

        if (key.kind != V_STR) {
            run_fail(r, "TypeError: keywords must be strings");
        } else if (dict_get(r, kw, key) != NULL) {
            run_fail(r, "TypeError: got multiple values for keyword argument '%.*s'",
                     (int)key.str->n, key.str->s);
        } else {
            dict_set(r, kw, key, more.dict->e[i].value);
        }
    }
}

struct args eval_args(struct jrun *r, const struct node *n, struct val *caller)
{
    struct args args = { .pos = r->stack + r->sp };
    size_t base = r->sp;

    for (uint32_t i = 0; i < n->n && !r->failed; i++) {
        push(r, expr_eval(r, n->list[i]));
    }
    if (n->b != NULL && !r->failed) {
        push_all(r, expr_eval(r, n->b));
    }
    args.n_pos = r->sp - base;
    if (n->n2 == 0 && n->c == NULL && caller == NULL) {
        return args;
    }
    args.kw = dict_new(r, n->n2 + 1);
    for (uint32_t i = 0; i < n->n2 && !r->failed; i++) {
        dict_set(r, args.kw, v_str(n->list2[i]->name), expr_eval(r, n->list2[i]->a));
    }
    if (n->c != NULL && !r->failed) {
        add_keywords(r, args.kw, expr_eval(r, n->c));
    }
    if (caller != NULL && !r->failed) {
        dict_set(r, args.kw, v_str(r->j->name_caller), *caller);
    }
    return args;
}

static struct val eval_call(struct jrun *r, const struct node *n)
{
    struct val fn = expr_eval(r, n->a), out;
    size_t sp = r->sp;
    struct args args = eval_args(r, n, NULL);

    r->line = n->line;
    out = r->failed ? v_none() : call_value(r, fn, &args);
    r->sp = sp;
    return out;
}

static struct val eval_filter(struct jrun *r, const struct node *n)
{
    /* Inside a block filter the innermost filter works on the text of the block. */
    struct val v = n->a != NULL ? expr_eval(r, n->a) : r->block_text, out;
    size_t sp = r->sp;
    struct args args = eval_args(r, n, NULL);

    r->line = n->line;
    if (n->fn == NULL) {
        out = run_fail(r, "No filter named '%.*s'.", (int)n->name->n, n->name->s);
    } else {
        out = call_builtin(r, n->fn, v, &args);
    }
    r->sp = sp;
    return out;
}

static struct val eval_test(struct jrun *r, const struct node *n)
{
    struct val v = expr_eval(r, n->a), out;
    size_t sp = r->sp;
    struct args args = eval_args(r, n, NULL);

    r->line = n->line;
    if (n->fn == NULL) {
        out = run_fail(r, "No test named '%.*s'.", (int)n->name->n, n->name->s);
    } else {
        out = call_builtin(r, n->fn, v, &args);
    }
    r->sp = sp;
    return out;
}

/* ---- dispatch ----------------------------------------------------------------------- */

typedef struct val eval_fn(struct jrun *r, const struct node *n);

static eval_fn *const evals[] = {
    [N_CONST] = eval_const, [N_BIGINT] = eval_bigint, [N_NAME] = eval_name,
    [N_LIST] = eval_list, [N_TUPLE] = eval_list, [N_DICT] = eval_dict,
    [N_NEG] = eval_sign, [N_POS] = eval_sign, [N_NOT] = eval_not, [N_BINARY] = eval_binary,
    [N_AND] = eval_and_or, [N_OR] = eval_and_or, [N_CONCAT] = eval_concat,
    [N_COMPARE] = eval_compare, [N_COND] = eval_cond, [N_GETATTR] = eval_getattr,
    [N_GETITEM] = eval_getitem, [N_SLICE] = eval_slice, [N_CALL] = eval_call,
    [N_FILTER] = eval_filter, [N_TEST] = eval_test,
};

struct val expr_eval(struct jrun *r, const struct node *n)
{
    struct val v;

    if (n->kind == N_CONST) {
        return n->value;
    }
    if (!run_step(r, 1) || !run_enter(r)) {
        return v_none();
    }
    r->line = n->line;
    v = evals[n->kind](r, n);
    run_leave(r);
    return r->failed ? v_none() : v;
}

/* jinja_exec.c - statements: output, loops, assignments, macros, blocks. */
#include <string.h>

#include "text/jinja_run.h"

static void put_output(struct jrun *r, struct val v)
{
    if (r->autoescape) {
        put_escaped(r->out, v);
    } else {
        put_str(r->out, v);
    }
}

static void exec_output(struct jrun *r, const struct node *n)
{
    for (uint32_t i = 0; i < n->n && !r->failed; i++) {
        struct val v = expr_eval(r, n->list[i]);

        if (!r->failed) {
            put_output(r, v);
        }
    }
}

static void exec_body(struct jrun *r, const struct node *n)
{
    for (uint32_t i = 0; i < n->n && !r->failed && r->flow == FLOW_NEXT; i++) {
        stmt_exec(r, n->list[i]);
    }
}

static void exec_if(struct jrun *r, const struct node *n)
{
    if (v_truth(r, expr_eval(r, n->a))) {
        stmt_exec(r, n->b);
        return;
    }
    for (uint32_t i = 0; i < n->n && !r->failed; i++) {
        if (v_truth(r, expr_eval(r, n->list[i]->a))) {
            stmt_exec(r, n->list[i]->b);
            return;
        }
    }
    if (n->c != NULL && !r->failed) {
        stmt_exec(r, n->c);
    }
}

/* ---- assignment --------------------------------------------------------------------- */

static void assign_tuple(struct jrun *r, const struct node *target, struct val v)
{
    struct list *items;

    if (!v_iterable(v)) {
        run_fail(r, "TypeError: cannot unpack non-iterable %s object", v_type(v));
        return;
    }
    items = list_of(r, v);
    if (items->n > target->n) {
        run_fail(r, "ValueError: too many values to unpack (expected %u)", target->n);
    } else if (items->n < target->n) {
        run_fail(r, "ValueError: not enough values to unpack (expected %u, got %zu)", target->n,
                 items->n);
    }
    for (uint32_t i = 0; i < target->n && !r->failed; i++) {
        scope_assign(r, target->list[i], items->v[i]);
    }
}

void scope_assign(struct jrun *r, const struct node *target, struct val v)
{
    struct val space;

    if (r->failed) {
        return;
    }
    switch (target->kind) {
    case N_NAME:
        scope_set(r, r->scope, target->name, v);
        return;
    case N_TUPLE:
        if (run_enter(r)) {
            assign_tuple(r, target, v);
            run_leave(r);
        }
        return;
    default:
        space = scope_get(r, target->name);
        if (space.kind != V_SPACE) {
            run_fail(r, "cannot assign attribute on non-namespace object");
            return;
        }
        dict_set(r, space.space, v_str(target->list[0]->name), v);
    }
}

static void exec_set(struct jrun *r, const struct node *n)
{
    struct val v = expr_eval(r, n->b);

    r->line = n->line;
    scope_assign(r, n->a, v);
}

/* Runs the body in a scope of its own and gives what it wrote. */
static struct val capture(struct jrun *r, const struct node *body)
{
    struct sb *out = r->out, text;
    struct scope *scope = r->scope;
    struct str *s;

    sb_init(&text, r);
    r->out = &text;
    r->scope = scope_new(r, scope);
    stmt_exec(r, body);
    r->scope = scope;
    r->out = out;
    s = sb_take(&text);
    return v_str(r->autoescape ? str_markup(r, s) : s);
}

static void exec_set_block(struct jrun *r, const struct node *n)
{
    struct val v = capture(r, n->c);

    if (n->b != NULL && r->flow == FLOW_NEXT) {
        r->block_text = v;
        v = expr_eval(r, n->b);
    }
    if (r->flow == FLOW_NEXT) {
        r->line = n->line;
        scope_assign(r, n->a, v);
    }
}

static void exec_filter_block(struct jrun *r, const struct node *n)
{
    struct val v = capture(r, n->c);

    if (r->failed || r->flow != FLOW_NEXT) {
        return;
    }
    r->block_text = v;
    v = expr_eval(r, n->a);
    if (!r->failed) {
        put_str(r->out, v);
    }
}

static void exec_with(struct jrun *r, const struct node *n)
{
    struct scope *scope = r->scope, *inner = scope_new(r, scope);
    size_t sp = r->sp;

    /* All values are computed before the first name is bound. */
    for (uint32_t i = 0; i < n->n && !r->failed; i++) {
        struct val v = expr_eval(r, n->list2[i]);

        if (r->sp >= JINJA_STACK_VALUES) {
            run_fail(r, "too many values in evaluation");
            break;
        }
        r->stack[r->sp++] = v;
    }
    r->scope = inner;
    for (uint32_t i = 0; i < n->n && !r->failed; i++) {
        scope_assign(r, n->list[i], r->stack[sp + i]);
    }
    r->sp = sp;
    stmt_exec(r, n->c);
    r->scope = scope;
}

static void exec_scope(struct jrun *r, const struct node *n)
{
    struct scope *scope = r->scope;

    r->scope = scope_new(r, scope);
    stmt_exec(r, n->c);
    r->scope = scope;
}

static void exec_autoescape(struct jrun *r, const struct node *n)
{
    bool old = r->autoescape;

    r->autoescape = v_truth(r, expr_eval(r, n->a));
    exec_scope(r, n);
    r->autoescape = old;
}

/* ---- macros and blocks -------------------------------------------------------------- */

static struct val macro_new(struct jrun *r, const struct node *n)
{
    struct macro *m = run_alloc(r, sizeof *m);

    if (m == NULL) {
        return v_none();
    }
    *m = (struct macro){ .node = n, .scope = r->scope, .escape = r->autoescape };
    /* The macro sees later changes of the variables around it, so those scopes must stay. */
    for (struct scope *s = r->scope; s != NULL && !s->captured; s = s->up) {
        s->captured = true;
    }
    return (struct val){ .kind = V_MACRO, .macro = m };
}

static void exec_macro(struct jrun *r, const struct node *n)
{
    scope_set(r, r->scope, n->name, macro_new(r, n));
}

static void exec_call_block(struct jrun *r, const struct node *n)
{
    struct val caller = macro_new(r, n->b), fn, v;
    struct args args;
    size_t sp = r->sp;

    fn = expr_eval(r, n->a->a);
    args = eval_args(r, n->a, &caller);
    r->line = n->line;
    v = r->failed ? v_none() : call_value(r, fn, &args);
    r->sp = sp;
    if (!r->failed) {
        put_str(r->out, v);
    }
}

static void run_block(struct jrun *r, const struct node *n, struct scope *outer)
{
    struct scope *scope = r->scope;

    if (n->flag & BLOCK_REQUIRED) {
        run_fail(r, "Required block '%.*s' not found", (int)n->name->n, n->name->s);
        return;
    }
    r->scope = scope_new(r, outer);
    scope_set(r, r->scope, r->j->name_super,
              undef_hint(r, "there is no parent block, since no template is extended"));
    stmt_exec(r, n->c);
    r->scope = scope;
}

static void exec_block(struct jrun *r, const struct node *n)
{
    run_block(r, n, n->flag & BLOCK_SCOPED ? r->scope : r->root);
}

struct val call_block(struct jrun *r, const struct node *block, struct scope *scope)
{
    struct sb *out = r->out, text;
    struct str *s;

    sb_init(&text, r);
    r->out = &text;
    if (run_enter(r)) {
        run_block(r, block, scope);
        run_leave(r);
    }
    r->out = out;
    s = sb_take(&text);
    return v_str(r->autoescape ? str_markup(r, s) : s);
}

/* ---- loops -------------------------------------------------------------------------- */

/* State of the iterator behind `for ... if`. */
struct filtered {
    const struct node *n;
    struct scope *scope;
};

/* What the target of a loop holds, tuples being built anew: a filtered loop hands that on. */
static struct val target_value(struct jrun *r, const struct node *target)
{
    struct list *l;

    if (target->kind != N_TUPLE) {
        return scope_get(r, target->name);
    }
    l = list_new(r, target->n);
    for (uint32_t i = 0; i < target->n; i++) {
        list_push(r, l, target_value(r, target->list[i]));
    }
    return v_tuple(l);
}

static struct val next_filtered(struct jrun *r, struct iter *it)
{
    const struct filtered *f = it->state;
    struct val v;

    while (iter_next(r, it->in, &v)) {
        struct scope *scope = r->scope;
        bool keep;

        r->scope = scope_new(r, f->scope);
        scope_assign(r, f->n->a, v);
        keep = !r->failed && v_truth(r, expr_eval(r, f->n->c));
        v = keep ? target_value(r, f->n->a) : v;
        r->scope = scope;
        if (keep && !r->failed) {
            return v;
        }
    }
    return v_absent();
}

static struct val filtered_new(struct jrun *r, const struct node *n, struct val iterable,
                               struct scope *scope)
{
    struct filtered *f = run_alloc(r, sizeof *f);
    struct iter *it = iter_new(r, next_filtered, "generator");

    if (f == NULL || it == &r->noiter) {
        return v_iter(it);
    }
    *f = (struct filtered){ .n = n, .scope = scope };
    it->in = iter_of(r, iterable);
    it->state = f;
    return v_iter(it);
}

static bool loop_advance(struct jrun *r, struct loop *l)
{
    struct val v = l->after;

    if (!l->has_after && !iter_next(r, l->it, &v)) {
        return false;
    }
    if (v.kind == V_ABSENT) {
        return false;
    }
    l->has_after = false;
    l->index0++;
    l->before = l->current;
    l->current = v;
    return true;
}

static void run_loop(struct jrun *r, const struct node *n, struct val iterable, struct scope *outer,
                     int depth0)
{
    struct loop *l = run_alloc(r, sizeof *l);
    struct scope *scope = r->scope, *inner = scope_new(r, outer);
    bool complete = false;
    enum flow flow;

    if (n->c != NULL && !r->failed) {
        iterable = filtered_new(r, n, iterable, outer);
    }
    if (l == NULL || r->failed) {
        return;
    }
    *l = (struct loop){
        .iterable = iterable, .it = iter_of(r, iterable), .before = v_absent(),
        .current = v_absent(), .changed = v_absent(), .index0 = -1, .length = -1,
        .depth0 = depth0, .node = n->flag ? n : NULL, .scope = outer,
    };
    while (!r->failed && loop_advance(r, l)) {
        if (inner->captured) {
            inner = scope_new(r, outer);
        }
        inner->n = 0;
        r->scope = inner;
        r->line = n->line;
        scope_set(r, inner, r->j->name_loop, (struct val){ .kind = V_LOOP, .loop = l });
        scope_assign(r, n->a, l->current);
        stmt_exec(r, n->list[0]);
        r->scope = scope;
        flow = r->flow;
        r->flow = FLOW_NEXT;
        complete = complete || flow == FLOW_NEXT;
        if (flow == FLOW_BREAK) {
            break;
        }
    }
    /* Not as in Python: the else part runs unless an iteration came to its end. */
    if (!complete && n->n > 1 && !r->failed) {
        r->scope = scope_new(r, outer);
        stmt_exec(r, n->list[1]);
        r->scope = scope;
    }
}

static void exec_for(struct jrun *r, const struct node *n)
{
    struct val iterable = expr_eval(r, n->b);

    r->line = n->line;
    if (!r->failed) {
        run_loop(r, n, iterable, r->scope, 0);
    }
}

struct val call_loop(struct jrun *r, struct loop *l, struct val iterable)
{
    struct sb *out = r->out, text;
    struct str *s;

    if (l->node == NULL) {
        return run_fail(r, "TypeError: The loop must have the 'recursive' marker to be called "
                           "recursively.");
    }
    if (!run_enter(r)) {
        return v_none();
    }
    sb_init(&text, r);
    r->out = &text;
    run_loop(r, l->node, iterable, l->scope, l->depth0 + 1);
    r->out = out;
    run_leave(r);
    s = sb_take(&text);
    return v_str(r->autoescape ? str_markup(r, s) : s);
}

int64_t loop_length(struct jrun *r, struct loop *l)
{
    struct list *rest;

    if (l->length >= 0) {
        return l->length;
    }
    l->length = l->iterable.kind == V_LOOP ? -1 : v_len(r, l->iterable);
    if (l->length < 0) {
        /* A generator: what is left is collected, and the loop goes on over that. */
        rest = list_of(r, v_iter(l->it));
        l->it = iter_of(r, v_list(rest));
        l->length = (int64_t)rest->n + l->index0 + 1 + (l->has_after && l->after.kind != V_ABSENT);
    }
    return l->length;
}

static struct val peek(struct jrun *r, struct loop *l)
{
    if (!l->has_after) {
        iter_next(r, l->it, &l->after);
        l->has_after = l->after.kind != V_ABSENT;
    }
    return l->after;
}

struct val loop_attr(struct jrun *r, struct loop *l, struct str *name)
{
    struct val v;

    if (str_is(name, "index")) {
        return v_int(l->index0 + 1);
    }
    if (str_is(name, "index0")) {
        return v_int(l->index0);
    }
    if (str_is(name, "first")) {
        return v_bool(l->index0 == 0);
    }
    if (str_is(name, "last")) {
        return v_bool(peek(r, l).kind == V_ABSENT);
    }
    if (str_is(name, "length")) {
        return v_int(loop_length(r, l));
    }
    if (str_is(name, "revindex")) {
        return v_int(loop_length(r, l) - l->index0);
    }
    if (str_is(name, "revindex0")) {
        return v_int(loop_length(r, l) - l->index0 - 1);
    }
    if (str_is(name, "depth")) {
        return v_int(l->depth0 + 1);
    }
    if (str_is(name, "depth0")) {
        return v_int(l->depth0);
    }
    if (str_is(name, "previtem")) {
        return l->index0 == 0 ? undef_hint(r, "there is no previous item") : l->before;
    }
    if (str_is(name, "nextitem")) {
        v = peek(r, l);
        return v.kind == V_ABSENT ? undef_hint(r, "there is no next item") : v;
    }
    return v_absent();
}

/* ---- dispatch ----------------------------------------------------------------------- */

static void exec_jump(struct jrun *r, const struct node *n)
{
    r->flow = n->kind == N_BREAK ? FLOW_BREAK : FLOW_CONTINUE;
}

static void exec_load(struct jrun *r, const struct node *n)
{
    run_fail(r, "'%.*s' needs another template, and a chat template stands alone",
             (int)n->name->n, n->name->s);
}

typedef void exec_fn(struct jrun *r, const struct node *n);

static exec_fn *const execs[] = {
    [N_OUTPUT] = exec_output, [N_BODY] = exec_body, [N_IF] = exec_if, [N_FOR] = exec_for,
    [N_SET] = exec_set, [N_SETBLOCK] = exec_set_block, [N_WITH] = exec_with,
    [N_MACRO] = exec_macro, [N_CALLBLOCK] = exec_call_block,
    [N_FILTERBLOCK] = exec_filter_block, [N_BLOCK] = exec_block, [N_SCOPE] = exec_scope,
    [N_AUTOESCAPE] = exec_autoescape, [N_BREAK] = exec_jump, [N_CONTINUE] = exec_jump,
    [N_LOAD] = exec_load,
};

void stmt_exec(struct jrun *r, const struct node *n)
{
    if (!run_step(r, 1) || !run_enter(r)) {
        return;
    }
    r->line = n->line;
    execs[n->kind](r, n);
    run_leave(r);
}

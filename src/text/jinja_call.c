/* jinja_call.c - binding arguments and calling what can be called. */
#include <string.h>

#include "text/jinja_run.h"

/* ---- built-in functions ------------------------------------------------------------- */

/* The next parameter of a signature: name without its mark. */
struct param {
    const char *name;
    size_t n;
    char mark;   /* '?' optional, '*' the other positional ones, 'k' the other keywords */
};

static bool next_param(const char **sig, struct param *p)
{
    const char *s = *sig;

    while (*s == ' ') {
        s++;
    }
    if (*s == '\0') {
        return false;
    }
    p->mark = '\0';
    if (*s == '*') {
        p->mark = s[1] == '*' ? 'k' : '*';
        s += p->mark == 'k' ? 2 : 1;
    }
    p->name = s;
    p->n = strcspn(s, " ?");
    s += p->n;
    if (*s == '?') {
        p->mark = '?';
        s++;
    }
    *sig = s;
    return true;
}

static struct val *keyword(struct jrun *r, const struct args *args, const struct param *p)
{
    struct str name = { .s = p->name, .n = p->n, .n_chars = p->n };

    if (args->kw == NULL || args->kw->n == 0) {
        return NULL;
    }
    return dict_get(r, args->kw, v_str(&name));
}

static struct val rest_of(struct jrun *r, const struct args *args, size_t from)
{
    struct list *l = list_new(r, args->n_pos > from ? args->n_pos - from : 0);

    for (size_t i = from; i < args->n_pos; i++) {
        list_push(r, l, args->pos[i]);
    }
    return v_tuple(l);
}

/* Spreads the arguments over out[1..] as the signature asks. */
static bool bind(struct jrun *r, const struct builtin *fn, const struct args *args,
                 struct val *out)
{
    bool by_name = strchr(fn->sig, '/') == NULL, all_kw = false, all_pos = false;
    const char *sig = fn->sig;
    size_t n = 0, used_pos = 0, used_kw = 0;
    struct param p;

    while (next_param(&sig, &p)) {
        struct val *kw;

        if (p.name[0] == '/') {
            by_name = true;
            continue;
        }
        n++;
        if (p.mark == '*') {
            out[n] = rest_of(r, args, used_pos);
            used_pos = args->n_pos > used_pos ? args->n_pos : used_pos;
            all_pos = true;
            continue;
        }
        if (p.mark == 'k') {
            out[n] = v_dict(args->kw != NULL ? args->kw : dict_new(r, 0));
            all_kw = true;
            continue;
        }
        kw = by_name ? keyword(r, args, &p) : NULL;
        out[n] = v_absent();
        if (used_pos < args->n_pos) {
            out[n] = args->pos[used_pos++];
            if (kw != NULL) {
                run_fail(r, "TypeError: %s() got multiple values for argument '%.*s'", fn->name,
                         (int)p.n, p.name);
            }
        } else if (kw != NULL) {
            out[n] = *kw;
            used_kw++;
        } else if (p.mark != '?') {
            run_fail(r, "TypeError: %s() missing the argument '%.*s'", fn->name, (int)p.n, p.name);
        }
    }
    if (used_pos < args->n_pos && !all_pos) {
        run_fail(r, "TypeError: %s() takes at most %zu arguments (%zu given)", fn->name, used_pos,
                 args->n_pos);
    }
    if (args->kw != NULL && used_kw < args->kw->n && !all_kw) {
        run_fail(r, "TypeError: %s() got an unexpected keyword argument", fn->name);
    }
    return !r->failed;
}

struct val call_builtin(struct jrun *r, const struct builtin *fn, struct val self,
                        const struct args *args)
{
    struct val a[ARGS_MAX] = { self };   /* the others are V_ABSENT, which is 0 */

    if (r->failed || !bind(r, fn, args, a)) {
        return v_none();
    }
    return fn->fn(r, a);
}

/* ---- macros ------------------------------------------------------------------------- */

/* The keywords that are not parameters of the macro. */
static struct dict *other_keywords(struct jrun *r, const struct dict *kw, const bool taken[])
{
    struct dict *out = dict_new(r, 0);

    for (size_t i = 0; kw != NULL && i < kw->n; i++) {
        if (!taken[i]) {
            dict_set(r, out, kw->e[i].key, kw->e[i].value);
        }
    }
    return out;
}

static void bind_params(struct jrun *r, const struct node *m, const struct args *args,
                        bool taken[])
{
    for (uint32_t i = 0; i < m->n && !r->failed; i++) {
        struct str *name = m->list[i]->name;
        struct val v = v_absent();

        if (i < args->n_pos) {
            v = args->pos[i];
        } else if (args->kw != NULL) {
            for (size_t k = 0; k < args->kw->n; k++) {
                if (str_eq(args->kw->e[k].key.str, name)) {
                    v = args->kw->e[k].value;
                    taken[k] = true;
                }
            }
        }
        if (v.kind == V_ABSENT && i + m->n2 >= m->n) {
            v = expr_eval(r, m->list2[i + m->n2 - m->n]);
        } else if (v.kind == V_ABSENT) {
            struct str *hint = str_fmt(r, "parameter '%.*s' was not provided%c",
                                       (int)(name->n < 100 ? name->n : 0), name->s, '\0');

            v = undef_hint(r, hint->s);
        }
        scope_set(r, r->scope, name, v);
    }
}

/* caller, kwargs and varargs, as far as the macro uses them. */
static void bind_specials(struct jrun *r, const struct node *m, const struct args *args,
                          bool taken[])
{
    const struct jinja *j = r->j;
    struct dict *rest;

    if ((m->flag & MACRO_CALLER) && !(m->flag & MACRO_OWN_CALLER)) {
        struct val caller = undef_hint(r, "No caller defined");

        for (size_t k = 0; args->kw != NULL && k < args->kw->n; k++) {
            if (str_eq(args->kw->e[k].key.str, j->name_caller)) {
                caller = args->kw->e[k].value;
                taken[k] = true;
            }
        }
        scope_set(r, r->scope, j->name_caller, caller);
    }
    rest = other_keywords(r, args->kw, taken);
    if (m->flag & MACRO_KWARGS) {
        scope_set(r, r->scope, j->name_kwargs, v_dict(rest));
    } else if (rest->n > 0) {
        const struct str *name = rest->e[0].key.str;

        run_fail(r, "TypeError: macro '%.*s' takes no keyword argument '%.*s'", (int)m->name->n,
                 m->name->s, (int)name->n, name->s);
    }
    if (m->flag & MACRO_VARARGS) {
        scope_set(r, r->scope, j->name_varargs, rest_of(r, args, m->n));
    } else if (args->n_pos > m->n) {
        run_fail(r, "TypeError: macro '%.*s' takes not more than %u argument(s)",
                 (int)m->name->n, m->name->s, m->n);
    }
}

struct val call_macro(struct jrun *r, const struct macro *m, const struct args *args)
{
    struct scope *scope = r->scope;
    struct sb *out = r->out;
    struct sb text;
    bool escape = r->autoescape;
    size_t n_kw = args->kw != NULL ? args->kw->n : 0;
    bool *taken = run_alloc(r, n_kw + 1);
    struct str *s;

    if (taken == NULL || !run_enter(r)) {
        return v_none();
    }
    memset(taken, 0, n_kw + 1);
    sb_init(&text, r);
    r->scope = scope_new(r, m->scope);
    r->autoescape = m->escape;
    bind_params(r, m->node, args, taken);
    bind_specials(r, m->node, args, taken);
    r->out = &text;
    stmt_exec(r, m->node->c);
    r->out = out;
    r->scope = scope;
    r->autoescape = escape;
    run_leave(r);
    s = sb_take(&text);
    return v_str(m->escape ? str_markup(r, s) : s);
}

/* ---- anything ----------------------------------------------------------------------- */

static struct val call_joiner(struct jrun *r, struct joiner *j)
{
    if (j->used) {
        return j->sep;
    }
    j->used = true;
    return v_str(&r->nostr);
}

bool v_callable(struct val v)
{
    switch (v.kind) {
    case V_FUNC:
    case V_METHOD:
    case V_MACRO:
    case V_JOINER:
    case V_LOOP:
    case V_BLOCK:
    case V_TYPE:
    case V_UNDEF:
        return true;
    default:
        return false;
    }
}

static bool one_argument(struct jrun *r, const struct args *args, const char *what)
{
    if (args->n_pos != 1 || (args->kw != NULL && args->kw->n > 0)) {
        run_fail(r, "TypeError: %s takes one argument", what);
    }
    return !r->failed;
}

struct val call_value(struct jrun *r, struct val fn, const struct args *args)
{
    if (r->failed) {
        return v_none();
    }
    switch (fn.kind) {
    case V_FUNC:
        return call_builtin(r, fn.func, v_none(), args);
    case V_TYPE:
        return call_builtin(r, find_builtin(jinja_globals, "dict", 4), v_none(), args);
    case V_METHOD:
        return call_builtin(r, fn.method->fn, fn.method->self, args);
    case V_MACRO:
        return call_macro(r, fn.macro, args);
    case V_JOINER:
        return call_joiner(r, fn.joiner);
    case V_LOOP:
        return one_argument(r, args, "loop()") ? call_loop(r, fn.loop, args->pos[0]) : v_none();
    case V_BLOCK:
        return call_block(r, fn.block, r->root);
    case V_UNDEF:
        return undef_fail(r, fn);
    default:
        return run_fail(r, "TypeError: '%s' object is not callable", v_type(fn));
    }
}

/* ---- filters and tests by name ------------------------------------------------------ */

struct val apply_named_filter(struct jrun *r, struct val name, struct val v,
                              const struct args *args)
{
    const struct builtin *fn = NULL;

    if (name.kind == V_STR) {
        fn = find_filter(name.str->s, name.str->n);
    }
    if (fn == NULL) {
        const struct str *s = to_str(r, name);

        return run_fail(r, "No filter named '%.*s'.", (int)s->n, s->s);
    }
    return call_builtin(r, fn, v, args);
}

bool apply_named_test(struct jrun *r, struct val name, struct val v, const struct args *args)
{
    const struct builtin *fn = NULL;

    if (name.kind == V_STR) {
        fn = find_test(name.str->s, name.str->n);
    }
    if (fn == NULL) {
        const struct str *s = to_str(r, name);

        run_fail(r, "No test named '%.*s'.", (int)s->n, s->s);
        return false;
    }
    return v_truth(r, call_builtin(r, fn, v, args));
}

/* ---- arguments ---------------------------------------------------------------------- */

bool arg_true(struct jrun *r, struct val v, bool missing)
{
    return v_given(v) ? v_truth(r, v) : missing;
}

int64_t arg_int(struct jrun *r, struct val v, int64_t missing)
{
    int64_t i = missing;

    if (v_given(v)) {
        v_index(r, v, &i);
    }
    return i;
}

struct str *arg_str(struct jrun *r, struct val v, const char *what)
{
    if (v.kind == V_STR) {
        return v.str;
    }
    run_fail(r, "TypeError: %s must be a string, not %s", what, v_type(v));
    return &r->nostr;
}

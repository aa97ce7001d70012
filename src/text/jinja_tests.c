/* jinja_tests.c - what stands behind `is`. */
#include <string.h>

#include "text/jinja_run.h"

static struct val t_defined(struct jrun *r, const struct val *a)
{
    (void)r;
    return v_bool(a[0].kind != V_UNDEF);
}

static struct val t_undefined(struct jrun *r, const struct val *a)
{
    (void)r;
    return v_bool(a[0].kind == V_UNDEF);
}

static struct val t_none(struct jrun *r, const struct val *a)
{
    (void)r;
    return v_bool(a[0].kind == V_NONE);
}

static struct val t_boolean(struct jrun *r, const struct val *a)
{
    (void)r;
    return v_bool(a[0].kind == V_BOOL);
}

static struct val t_true(struct jrun *r, const struct val *a)
{
    (void)r;
    return v_bool(a[0].kind == V_BOOL && a[0].b);
}

static struct val t_false(struct jrun *r, const struct val *a)
{
    (void)r;
    return v_bool(a[0].kind == V_BOOL && !a[0].b);
}

static struct val t_integer(struct jrun *r, const struct val *a)
{
    (void)r;
    return v_bool(a[0].kind == V_INT || a[0].kind == V_BIG);
}

static struct val t_float(struct jrun *r, const struct val *a)
{
    (void)r;
    return v_bool(a[0].kind == V_FLOAT);
}

static struct val t_number(struct jrun *r, const struct val *a)
{
    (void)r;
    return v_bool(v_is_num(a[0]));
}

static struct val t_string(struct jrun *r, const struct val *a)
{
    (void)r;
    return v_bool(a[0].kind == V_STR);
}

static struct val t_mapping(struct jrun *r, const struct val *a)
{
    (void)r;
    return v_bool(a[0].kind == V_DICT);
}

static struct val t_sequence(struct jrun *r, const struct val *a)
{
    (void)r;
    switch (a[0].kind) {
    case V_STR:
    case V_BYTES:
    case V_LIST:
    case V_TUPLE:
    case V_DICT:
    case V_RANGE:
    case V_UNDEF:
        return v_bool(true);
    default:
        return v_bool(false);
    }
}

static struct val t_iterable(struct jrun *r, const struct val *a)
{
    (void)r;
    return v_bool(v_iterable(a[0]) || a[0].kind == V_LOOP);
}

static struct val t_callable(struct jrun *r, const struct val *a)
{
    (void)r;
    return v_bool(v_callable(a[0]));
}

static struct val t_escaped(struct jrun *r, const struct val *a)
{
    (void)r;
    return v_bool(a[0].kind == V_STR && a[0].str->markup);
}

static struct val t_sameas(struct jrun *r, const struct val *a)
{
    (void)r;
    return v_bool(v_same(a[0], a[1]));
}

/* Whether all cased characters have the wanted case, and there are some. */
static bool all_cased(const struct str *s, bool (*wanted)(uint32_t cp))
{
    struct chars c = chars_of(s);
    bool any = false;

    while (chars_next(&c)) {
        if (uc_cased(c.cp) && !wanted(c.cp)) {
            return false;
        }
        any = any || uc_cased(c.cp);
    }
    return any;
}

static struct val t_lower(struct jrun *r, const struct val *a)
{
    return v_bool(all_cased(to_str(r, a[0]), uc_lower));
}

static struct val t_upper(struct jrun *r, const struct val *a)
{
    return v_bool(all_cased(to_str(r, a[0]), uc_upper));
}

static struct val t_filter(struct jrun *r, const struct val *a)
{
    if (!v_hashable(a[0])) {
        return run_fail(r, "TypeError: unhashable type: '%s'", v_type(a[0]));
    }
    return v_bool(a[0].kind == V_STR && find_filter(a[0].str->s, a[0].str->n) != NULL);
}

static struct val t_test(struct jrun *r, const struct val *a)
{
    if (!v_hashable(a[0])) {
        return run_fail(r, "TypeError: unhashable type: '%s'", v_type(a[0]));
    }
    return v_bool(a[0].kind == V_STR && find_test(a[0].str->s, a[0].str->n) != NULL);
}

static struct val remainder_is(struct jrun *r, struct val a, struct val by, int64_t want)
{
    struct val m = val_binary(r, T_MOD, a, by);

    return v_bool(!r->failed && v_eq(r, m, v_int(want)));
}

static struct val t_odd(struct jrun *r, const struct val *a)
{
    return remainder_is(r, a[0], v_int(2), 1);
}

static struct val t_even(struct jrun *r, const struct val *a)
{
    return remainder_is(r, a[0], v_int(2), 0);
}

static struct val t_divisibleby(struct jrun *r, const struct val *a)
{
    return remainder_is(r, a[0], a[1], 0);
}

static struct val t_eq(struct jrun *r, const struct val *a)
{
    return v_bool(v_eq(r, a[0], a[1]));
}

static struct val t_ne(struct jrun *r, const struct val *a)
{
    return v_bool(!v_eq(r, a[0], a[1]));
}

static struct val t_lt(struct jrun *r, const struct val *a)
{
    return v_bool(v_less(r, a[0], a[1]));
}

static struct val t_le(struct jrun *r, const struct val *a)
{
    return v_bool(v_less_eq(r, a[0], a[1]));
}

static struct val t_gt(struct jrun *r, const struct val *a)
{
    return v_bool(v_less(r, a[1], a[0]));
}

static struct val t_ge(struct jrun *r, const struct val *a)
{
    return v_bool(v_less_eq(r, a[1], a[0]));
}

static struct val t_in(struct jrun *r, const struct val *a)
{
    return v_bool(v_in(r, a[0], a[1]));
}

const struct builtin jinja_tests[] = {
    { "odd", "", t_odd },
    { "even", "", t_even },
    { "divisibleby", "num", t_divisibleby },
    { "defined", "", t_defined },
    { "undefined", "", t_undefined },
    { "filter", "", t_filter },
    { "test", "", t_test },
    { "none", "", t_none },
    { "boolean", "", t_boolean },
    { "false", "", t_false },
    { "true", "", t_true },
    { "integer", "", t_integer },
    { "float", "", t_float },
    { "lower", "", t_lower },
    { "upper", "", t_upper },
    { "string", "", t_string },
    { "mapping", "", t_mapping },
    { "number", "", t_number },
    { "sequence", "", t_sequence },
    { "iterable", "", t_iterable },
    { "callable", "", t_callable },
    { "sameas", "other", t_sameas },
    { "escaped", "", t_escaped },
    { "in", "seq", t_in },
    { "==", "other /", t_eq },
    { "eq", "other /", t_eq },
    { "equalto", "other /", t_eq },
    { "!=", "other /", t_ne },
    { "ne", "other /", t_ne },
    { ">", "other /", t_gt },
    { "gt", "other /", t_gt },
    { "greaterthan", "other /", t_gt },
    { ">=", "other /", t_ge },
    { "ge", "other /", t_ge },
    { "<", "other /", t_lt },
    { "lt", "other /", t_lt },
    { "lessthan", "other /", t_lt },
    { "<=", "other /", t_le },
    { "le", "other /", t_le },
    { NULL, NULL, NULL },
};

const struct builtin *find_test(const char *name, size_t n)
{
    return find_builtin(jinja_tests, name, n);
}

const struct builtin *find_filter(const char *name, size_t n)
{
    const struct builtin *fn = find_builtin(jinja_seq_filters, name, n);

    return fn != NULL ? fn : find_builtin(jinja_text_filters, name, n);
}

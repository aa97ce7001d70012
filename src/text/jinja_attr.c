/* jinja_attr.c - attributes, items and slices, as the immutable sandbox allows them. */
#include <string.h>

#include "text/jinja_run.h"

const struct builtin *find_builtin(const struct builtin *table, const char *name, size_t n)
{
    for (; table->name != NULL; table++) {
        if (strlen(table->name) == n && memcmp(table->name, name, n) == 0) {
            return table;
        }
    }
    return NULL;
}

/* ---- attributes --------------------------------------------------------------------- */

static const struct builtin *method_table(struct val v)
{
    switch (v.kind) {
    case V_STR:
        return jinja_str_methods;
    case V_BYTES:
        return jinja_bytes_methods;
    case V_LIST:
        return jinja_list_methods;
    case V_TUPLE:
        return jinja_tuple_methods;
    case V_DICT:
        return jinja_dict_methods;
    case V_BOOL:
    case V_INT:
    case V_BIG:
        return jinja_int_methods;
    case V_FLOAT:
        return jinja_float_methods;
    case V_CYCLER:
        return jinja_cycler_methods;
    case V_LOOP:
        return jinja_loop_methods;
    case V_RANGE:
        return jinja_range_methods;
    default:
        return NULL;
    }
}

static struct val bound(struct jrun *r, const struct builtin *fn, struct val self)
{
    struct method *m = run_alloc(r, sizeof *m);

    if (m == NULL) {
        return v_none();
    }
    *m = (struct method){ .fn = fn, .self = self };
    return (struct val){ .kind = V_METHOD, .method = m };
}

/* real, imag, numerator, denominator */
static struct val number_attr(struct val v, const struct str *name)
{
    if (str_is(name, "real") || (str_is(name, "numerator") && v.kind != V_FLOAT)) {
        return v.kind == V_BOOL ? v_int(v.b) : v;
    }
    if (str_is(name, "imag")) {
        return v.kind == V_FLOAT ? v_float(0.0) : v_int(0);
    }
    if (str_is(name, "denominator") && v.kind != V_FLOAT) {
        return v_int(1);
    }
    return v_absent();
}

static struct val macro_attr(struct jrun *r, const struct macro *m, const struct str *name)
{
    static const struct { const char *name; int flag; } flags[] = {
        { "catch_kwargs", MACRO_KWARGS }, { "catch_varargs", MACRO_VARARGS },
        { "caller", MACRO_CALLER }, { "explicit_caller", MACRO_OWN_CALLER },
    };
    struct list *l;

    if (str_is(name, "name")) {
        return m->node->flag & MACRO_ANONYMOUS ? v_none() : v_str(m->node->name);
    }
    if (str_is(name, "arguments")) {
        l = list_new(r, m->node->n);
        for (uint32_t i = 0; i < m->node->n; i++) {
            list_push(r, l, v_str(m->node->list[i]->name));
        }
        return v_tuple(l);
    }
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        if (str_is(name, flags[i].name)) {
            return v_bool(m->node->flag & flags[i].flag);
        }
    }
    return v_absent();
}

static struct val object_attr(struct jrun *r, struct val v, struct str *name)
{
    const struct val *found;

    switch (v.kind) {
    case V_BOOL:
    case V_INT:
    case V_BIG:
    case V_FLOAT:
        return number_attr(v, name);
    case V_RANGE:
        return str_is(name, "start") ? v_int(v.range->start)
               : str_is(name, "stop") ? v_int(v.range->stop)
               : str_is(name, "step") ? v_int(v.range->step) : v_absent();
    case V_TUPLE:
        if (v.list->group && v.list->n == 2) {
            return str_is(name, "grouper") ? v.list->v[0]
                   : str_is(name, "list") ? v.list->v[1] : v_absent();
        }
        return v_absent();
    case V_SPACE:
        found = dict_get_str(r, v.space, name);
        return found != NULL ? *found : v_absent();
    case V_LOOP:
        return loop_attr(r, v.loop, name);
    case V_MACRO:
        return macro_attr(r, v.macro, name);
    case V_CYCLER:
        return str_is(name, "current") ? v.cycler->items->v[v.cycler->pos]
               : str_is(name, "items") ? v_tuple(v.cycler->items)
               : str_is(name, "pos") ? v_int((int64_t)v.cycler->pos) : v_absent();
    case V_JOINER:
        return str_is(name, "sep") ? v.joiner->sep
               : str_is(name, "used") ? v_bool(v.joiner->used) : v_absent();
    case V_TYPE:
        if (str_is(name, "fromkeys")) {
            return bound(r, find_builtin(jinja_dict_methods, "fromkeys", 8), v);
        }
        return v_absent();
    case V_BLOCKS:
        for (size_t i = 0; i < r->j->n_blocks; i++) {
            if (str_eq(r->j->blocks[i]->name, name)) {
                return (struct val){ .kind = V_BLOCK, .block = r->j->blocks[i] };
            }
        }
        return v_absent();
    default:
        return v_absent();
    }
}

/* Attributes that every Python object has, and that no template may have. */
static bool is_special(const struct str *name)
{
    static const char *const dunders[] = {
        "__class__", "__doc__", "__init__", "__dict__", "__eq__", "__hash__", "__len__",
        "__str__", "__repr__", "__getattribute__", "__setattr__", "__iter__", "__contains__",
        "__add__", "__mul__", "__mod__", "__getitem__", "__subclasshook__", "__reduce__",
        "__dir__", "__format__", "__sizeof__", "__new__", "__globals__", "__code__",
    };

    for (size_t i = 0; i < sizeof dunders / sizeof dunders[0]; i++) {
        if (str_is(name, dunders[i])) {
            return true;
        }
    }
    return false;
}

static struct val get_own_attr(struct jrun *r, struct val v, struct str *name)
{
    const struct builtin *table = method_table(v);
    const struct builtin *fn = table != NULL ? find_builtin(table, name->s, name->n) : NULL;

    if (fn != NULL) {
        return bound(r, fn, v);
    }
    if (v.kind != V_SPACE && is_special(name)) {
        return v_none();
    }
    return object_attr(r, v, name);
}

static struct val unsafe(struct jrun *r, struct val v, const struct str *name)
{
    struct str *hint = str_fmt(r, "SecurityError: access to attribute '%.*s' of '%s' object is "
                               "unsafe.%c", (int)(name->n < 100 ? name->n : 0), name->s,
                               v_type(v), '\0');

    return undef_hint(r, r->failed ? "access is unsafe" : hint->s);
}

/* The attribute if the sandbox lets a template have it; V_ABSENT where there is none.
 * Methods that change their object have no function in the tables. */
struct val get_safe_attr(struct jrun *r, struct val v, struct str *name)
{
    struct val own = get_own_attr(r, v, name);

    if (own.kind == V_ABSENT) {
        return own;
    }
    if (name->s[0] == '_' || (own.kind == V_METHOD && own.method->fn->fn == NULL)) {
        return unsafe(r, v, name);
    }
    return own;
}

/* v[key] proper; V_ABSENT where Python raises LookupError or TypeError. */
static struct val own_item(struct jrun *r, struct val v, struct val key)
{
    int64_t n, i;
    const struct val *found;

    if (v.kind == V_DICT) {
        found = v_hashable(key) ? dict_get(r, v.dict, key) : NULL;
        return found != NULL ? *found : v_absent();
    }
    if (key.kind == V_SLICE) {
        return get_slice(r, v, key.slice);
    }
    if ((key.kind != V_INT && key.kind != V_BOOL) ||
        !(v_is_seq(v) || v.kind == V_STR || v.kind == V_BYTES || v.kind == V_RANGE)) {
        return v_absent();
    }
    n = v_len(r, v);
    i = v_small(key);
    i += i < 0 ? n : 0;
    if (i < 0 || i >= n) {
        return v_absent();
    }
    if (v.kind == V_RANGE) {
        return v_int(v.range->start + i * v.range->step);
    }
    if (v.kind == V_BYTES) {
        return v_int((unsigned char)v.str->s[i]);
    }
    if (v.kind == V_STR) {
        size_t at = str_at(v.str, (size_t)i), end = at + 1;

        run_step(r, str_len(v.str) == v.str->n ? 0 : v.str->n / 64);
        while (end < v.str->n && ((unsigned char)v.str->s[end] & 0xC0) == 0x80) {
            end++;
        }
        return v_str(str_part(r, v.str, at, end));
    }
    return v.list->v[i];
}

struct val get_attr(struct jrun *r, struct val v, struct str *name)
{
    struct val out;

    if (v.kind == V_UNDEF && !is_special(name)) {
        return undef_fail(r, v);
    }
    out = get_safe_attr(r, v, name);
    if (out.kind == V_ABSENT && v.kind == V_DICT) {
        out = own_item(r, v, v_str(name));
    }
    return out.kind != V_ABSENT ? out : undef_attr(r, v, v_str(name));
}

struct val get_item(struct jrun *r, struct val v, struct val key)
{
    struct val out;

    if (v.kind == V_UNDEF) {
        return undef_fail(r, v);
    }
    out = own_item(r, v, key);
    if (out.kind == V_ABSENT && key.kind == V_STR && key.str->n > 0) {
        out = get_safe_attr(r, v, key.str);
    }
    return out.kind != V_ABSENT ? out : undef_attr(r, v, key);
}

static struct val path_step(struct jrun *r, struct val v, const struct str *path, size_t b,
                            size_t e)
{
    struct str *part = str_part(r, path, b, e);
    struct val index;
    bool digits = part->n > 0 && part->n < 10;

    for (size_t i = 0; i < part->n; i++) {
        digits = digits && part->s[i] >= '0' && part->s[i] <= '9';
    }
    if (digits && num_parse_int(r, part, 10, &index)) {
        return get_item(r, v, index);
    }
    return get_item(r, v, v_str(part));
}

struct val get_path(struct jrun *r, struct val v, struct val path, struct val missing)
{
    size_t begin = 0;

    if (!v_given_some(path)) {
        return v;
    }
    if (path.kind != V_STR) {
        v = get_item(r, v, path);
        return v.kind == V_UNDEF && v_given_some(missing) ? missing : v;
    }
    while (begin <= path.str->n && !r->failed) {
        const char *dot = path.str->n > begin
                          ? memchr(path.str->s + begin, '.', path.str->n - begin) : NULL;
        size_t end = dot != NULL ? (size_t)(dot - path.str->s) : path.str->n;

        v = path_step(r, v, path.str, begin, end);
        if (v.kind == V_UNDEF && v_given_some(missing)) {
            v = missing;
        }
        begin = end + 1;
    }
    return v;
}

/* ---- slices ------------------------------------------------------------------------- */

/* A bound of a slice, clipped to int64_t; false where it is not an integer or None. */
static bool slice_value(struct val v, int64_t missing, int64_t *out)
{
    if (v.kind == V_ABSENT || v.kind == V_NONE) {
        *out = missing;
        return true;
    }
    if (v.kind == V_BIG) {
        *out = v.big->neg ? INT64_MIN / 2 : INT64_MAX / 2;
        return true;
    }
    if (!v_is_int(v)) {
        return false;
    }
    *out = v_small(v);
    return true;
}

static int64_t clip(int64_t i, int64_t n, int64_t low, int64_t high)
{
    if (i < 0) {
        i = i < -n ? low : i + n;
    }
    return i < low ? low : i > high ? high : i;
}

bool slice_bounds(struct jrun *r, const struct slice *s, int64_t n, int64_t *start, int64_t *step,
                  int64_t *count)
{
    int64_t stop;

    *count = 0;
    if (!slice_value(s->step, 1, step)) {
        return false;
    }
    if (*step == 0) {
        run_fail(r, "ValueError: slice step cannot be zero");
        return false;
    }
    if (!slice_value(s->start, *step > 0 ? 0 : INT64_MAX, start) ||
        !slice_value(s->stop, *step > 0 ? INT64_MAX : INT64_MIN, &stop)) {
        return false;
    }
    if (*step > 0) {
        *start = clip(*start, n, 0, n);
        stop = clip(stop, n, 0, n);
        *count = stop > *start ? (stop - *start - 1) / *step + 1 : 0;
    } else {
        uint64_t back = -(uint64_t)*step;

        *start = clip(*start, n, -1, n - 1);
        stop = clip(stop, n, -1, n - 1);
        *count = *start > stop ? (int64_t)((uint64_t)(*start - stop - 1) / back) + 1 : 0;
    }
    return true;
}

static struct val slice_list(struct jrun *r, struct val v, int64_t start, int64_t step,
                             int64_t count)
{
    struct list *l = list_new(r, (size_t)count);

    run_step(r, (uint64_t)count / 8);
    for (int64_t i = 0; i < count && !r->failed; i++) {
        list_push(r, l, v.list->v[start + i * step]);
    }
    return v.kind == V_LIST ? v_list(l) : v_tuple(l);
}

/* Every step-th character, which need not be as many bytes apart. */
static struct val slice_str(struct jrun *r, const struct str *s, int64_t start, int64_t step,
                            int64_t count)
{
    size_t n = str_len(s);
    size_t *at;
    struct sb b;

    run_step(r, s->n / 32);
    if (step == 1) {
        size_t from = str_at(s, (size_t)start);

        return v_str(str_part(r, s, from, from + str_at(&(struct str){
            .s = s->s + from, .n = s->n - from, .n_chars = n - (size_t)start }, (size_t)count)));
    }
    at = run_alloc(r, (n + 1) * sizeof *at);
    if (at == NULL) {
        return v_none();
    }
    for (size_t i = 0, k = 0; i < s->n; i++) {
        if (((unsigned char)s->s[i] & 0xC0) != 0x80) {
            at[k++] = i;
        }
    }
    at[n] = s->n;
    sb_init(&b, r);
    for (int64_t i = 0; i < count && !r->failed; i++) {
        int64_t k = start + i * step;

        sb_part(&b, s, at[k], at[k + 1]);
    }
    return v_str(s->markup ? str_markup(r, sb_take(&b)) : sb_take(&b));
}

static struct val slice_bytes(struct jrun *r, const struct str *s, int64_t start, int64_t step,
                              int64_t count)
{
    struct sb b;

    sb_init(&b, r);
    for (int64_t i = 0; i < count && !r->failed; i++) {
        sb_part(&b, s, (size_t)(start + i * step), (size_t)(start + i * step) + 1);
    }
    return (struct val){ .kind = V_BYTES, .str = sb_take(&b) };
}

static struct val slice_range(struct jrun *r, const struct range *g, int64_t start, int64_t step,
                              int64_t count)
{
    struct range *out = run_alloc(r, sizeof *out);

    if (out == NULL) {
        return v_none();
    }
    /* Ranges are short (the sandbox bounds them), so these products stay small; an enormous
     * step selects one element at most. */
    step = count > 1 ? step : step > 0 ? 1 : -1;
    out->start = g->start + start * g->step;
    out->step = g->step * step;
    out->stop = out->start + count * out->step;
    out->n = count;
    return (struct val){ .kind = V_RANGE, .range = out };
}

struct val get_slice(struct jrun *r, struct val v, const struct slice *s)
{
    int64_t start, step, count;
    int64_t n = v_len(r, v);

    if (!(v_is_seq(v) || v.kind == V_STR || v.kind == V_BYTES || v.kind == V_RANGE) ||
        !slice_bounds(r, s, n, &start, &step, &count)) {
        return v_absent();
    }
    switch (v.kind) {
    case V_STR:
        return slice_str(r, v.str, start, step, count);
    case V_BYTES:
        return slice_bytes(r, v.str, start, step, count);
    case V_RANGE:
        return slice_range(r, v.range, start, step, count);
    default:
        return slice_list(r, v, start, step, count);
    }
}

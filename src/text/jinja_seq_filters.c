/* jinja_seq_filters.c - filters over sequences, mappings and numbers. */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "text/jinja_run.h"

/* Strings in lower case, for comparisons that ignore case. */
static struct val ignore_case(struct jrun *r, struct val v)
{
    return v.kind == V_STR ? v_str(str_lower(r, v.str)) : v;
}

static struct val key_of(struct jrun *r, struct val v, struct val path, struct val missing,
                         bool case_sensitive)
{
    v = get_path(r, v, path, missing);
    return case_sensitive ? v : ignore_case(r, v);
}

/* ---- one element -------------------------------------------------------------------- */

static struct val f_first(struct jrun *r, const struct val *a)
{
    struct val v;

    if (iter_next(r, iter_of(r, a[0]), &v)) {
        return v;
    }
    return undef_hint(r, "No first item, sequence was empty.");
}

static struct val f_last(struct jrun *r, const struct val *a)
{
    struct iter *it = iter_reversed(r, a[0]);
    struct val v;

    if (it == NULL && a[0].kind != V_UNDEF) {
        return run_fail(r, "TypeError: '%s' object is not reversible", v_type(a[0]));
    }
    if (it != NULL && iter_next(r, it, &v)) {
        return v;
    }
    return undef_hint(r, "No last item, sequence was empty.");
}

static struct val f_random(struct jrun *r, const struct val *a)
{
    int64_t n = v_len(r, a[0]);
    struct val i;

    if (n < 0) {
        return run_fail(r, "TypeError: object of type '%s' has no len()", v_type(a[0]));
    }
    if (n == 0) {
        return undef_hint(r, "No random item, sequence was empty.");
    }
    i = v_int((int64_t)(rng_mix(r->random++) % (uint64_t)n));
    if (a[0].kind == V_DICT && dict_get(r, a[0].dict, i) == NULL) {
        return run_fail(r, "KeyError: %lld", (long long)i.i);
    }
    return get_item(r, a[0], i);
}

/* value, case_sensitive, attribute */
static struct val extreme(struct jrun *r, const struct val *a, bool max)
{
    struct iter *it = iter_of(r, a[0]);
    bool case_sensitive = arg_true(r, a[1], false);
    struct val best, best_key, v, key;

    if (!iter_next(r, it, &best)) {
        return undef_hint(r, "No aggregated item, sequence was empty.");
    }
    best_key = key_of(r, best, a[2], v_absent(), case_sensitive);
    while (iter_next(r, it, &v)) {
        key = key_of(r, v, a[2], v_absent(), case_sensitive);
        if (max ? v_less(r, best_key, key) : v_less(r, key, best_key)) {
            best = v;
            best_key = key;
        }
    }
    return best;
}

static struct val f_min(struct jrun *r, const struct val *a) { return extreme(r, a, false); }
static struct val f_max(struct jrun *r, const struct val *a) { return extreme(r, a, true); }

static struct val f_sum(struct jrun *r, const struct val *a)
{
    struct val sum = v_given(a[2]) ? a[2] : v_int(0), v;
    struct iter *it = iter_of(r, a[0]);

    if (sum.kind == V_STR || sum.kind == V_BYTES) {
        return run_fail(r, "TypeError: sum() can't sum strings [use ''.join(seq) instead]");
    }
    while (iter_next(r, it, &v)) {
        sum = val_binary(r, T_ADD, sum, get_path(r, v, a[1], v_absent()));
    }
    return sum;
}

static struct val f_length(struct jrun *r, const struct val *a)
{
    int64_t n = v_len(r, a[0]);

    if (n < 0) {
        return run_fail(r, "TypeError: object of type '%s' has no len()", v_type(a[0]));
    }
    return v_int(n);
}

static struct val f_default(struct jrun *r, const struct val *a)
{
    if (a[0].kind == V_UNDEF || (arg_true(r, a[2], false) && !v_truth(r, a[0]))) {
        return v_given(a[1]) ? a[1] : v_str(&r->nostr);
    }
    return a[0];
}

static struct val f_attr(struct jrun *r, const struct val *a)
{
    struct str *name = arg_str(r, a[1], "attribute name");
    struct val v;

    if (a[0].kind == V_UNDEF && !r->failed) {
        bool special = name->n > 4 && memcmp(name->s, "__", 2) == 0;

        return special ? undef_attr(r, a[0], v_str(name)) : undef_fail(r, a[0]);
    }
    if (r->failed) {
        return v_none();
    }
    v = get_safe_attr(r, a[0], name);
    return v.kind != V_ABSENT ? v : undef_attr(r, a[0], v_str(name));
}

/* ---- whole sequences ---------------------------------------------------------------- */

static struct val f_list(struct jrun *r, const struct val *a)
{
    return v_list(list_of(r, a[0]));
}

static struct val f_join(struct jrun *r, const struct val *a)
{
    struct str *sep = v_given(a[1]) ? to_str(r, a[1]) : &r->nostr;
    struct iter *it = iter_of(r, a[0]);
    struct val v;
    struct sb b;
    bool first = true;

    sb_init(&b, r);
    while (iter_next(r, it, &v)) {
        if (!first) {
            sb_str(&b, sep);
        }
        first = false;
        v = get_path(r, v, a[2], v_absent());
        if (r->autoescape) {
            put_escaped(&b, v);
        } else {
            put_str(&b, v);
        }
    }
    return v_str(r->autoescape ? str_markup(r, sb_take(&b)) : sb_take(&b));
}

static struct val f_reverse(struct jrun *r, const struct val *a)
{
    struct iter *it;
    struct list *l;

    if (a[0].kind == V_STR) {
        struct slice s = { .start = v_none(), .stop = v_none(), .step = v_int(-1) };

        return get_slice(r, a[0], &s);
    }
    if (!v_iterable(a[0])) {
        return run_fail(r, "argument must be iterable");
    }
    it = iter_reversed(r, a[0]);
    if (it != NULL) {
        return v_iter(it);
    }
    l = list_of(r, a[0]);
    for (size_t i = 0; i < l->n / 2; i++) {
        struct val v = l->v[i];

        l->v[i] = l->v[l->n - 1 - i];
        l->v[l->n - 1 - i] = v;
    }
    return v_list(l);
}

/* The values of the attributes "a,b.c" of v as a list. */
static struct val sort_key(struct jrun *r, struct val v, struct val attribute, bool case_sensitive)
{
    struct list *key = list_new(r, 1);
    size_t begin = 0;

    if (!v_given(attribute) || attribute.kind != V_STR) {
        list_push(r, key, key_of(r, v, attribute, v_absent(), case_sensitive));
        return v_list(key);
    }
    while (begin <= attribute.str->n && !r->failed) {
        const struct str *s = attribute.str;
        const char *comma = s->n > begin ? memchr(s->s + begin, ',', s->n - begin) : NULL;
        size_t end = comma != NULL ? (size_t)(comma - s->s) : s->n;

        list_push(r, key, key_of(r, v, v_str(str_part(r, s, begin, end)), v_absent(),
                                 case_sensitive));
        begin = end + 1;
    }
    return v_list(key);
}

/* value, reverse, case_sensitive, attribute */
static struct val f_sort(struct jrun *r, const struct val *a)
{
    struct list *l = list_of(r, a[0]), *keys = list_new(r, l->n);
    bool reverse = arg_true(r, a[1], false), case_sensitive = arg_true(r, a[2], false);

    for (size_t i = 0; i < l->n && !r->failed; i++) {
        list_push(r, keys, sort_key(r, l->v[i], a[3], case_sensitive));
    }
    list_sort(r, l, keys, reverse);
    return v_list(l);
}

static struct val f_dictsort(struct jrun *r, const struct val *a)
{
    bool case_sensitive = arg_true(r, a[1], false);
    size_t pos = 0;
    struct list *l, *keys;

    if (v_given(a[2])) {
        if (a[2].kind != V_STR || !(str_is(a[2].str, "key") || str_is(a[2].str, "value"))) {
            return run_fail(r, "You can only sort by either \"key\" or \"value\"");
        }
        pos = str_is(a[2].str, "value");
    }
    if (a[0].kind != V_DICT) {
        return a[0].kind == V_UNDEF ? undef_fail(r, a[0])
               : run_fail(r, "AttributeError: '%s' object has no attribute 'items'",
                          v_type(a[0]));
    }
    l = list_new(r, a[0].dict->n);
    keys = list_new(r, a[0].dict->n);
    for (size_t i = 0; i < a[0].dict->n && !r->failed; i++) {
        const struct entry *e = &a[0].dict->e[i];

        list_push(r, l, pair_new(r, e->key, e->value));
        list_push(r, keys, case_sensitive ? (pos ? e->value : e->key)
                                          : ignore_case(r, pos ? e->value : e->key));
    }
    list_sort(r, l, keys, arg_true(r, a[3], false));
    return v_list(l);
}

/* value, attribute, default, case_sensitive */
static struct val f_groupby(struct jrun *r, const struct val *a)
{
    bool case_sensitive = arg_true(r, a[3], false);
    struct list *l = list_of(r, a[0]), *keys = list_new(r, l->n), *out = list_new(r, 4);
    struct list *members = NULL;
    struct val last = v_absent();

    for (size_t i = 0; i < l->n && !r->failed; i++) {
        list_push(r, keys, key_of(r, l->v[i], a[1], a[2], case_sensitive));
    }
    list_sort(r, l, keys, false);
    for (size_t i = 0; i < l->n && !r->failed; i++) {
        struct val key = key_of(r, l->v[i], a[1], a[2], case_sensitive);

        if (members == NULL || !(v_same(last, key) || v_eq(r, last, key))) {
            struct val pair;

            members = list_new(r, 4);
            pair = pair_new(r, case_sensitive ? key : get_path(r, l->v[i], a[1], a[2]),
                            v_list(members));
            pair.list->group = true;
            list_push(r, out, pair);
            last = key;
        }
        list_push(r, members, l->v[i]);
    }
    return v_list(out);
}

/* ---- generators --------------------------------------------------------------------- */

static struct iter *generator(struct jrun *r, struct val (*next)(struct jrun *, struct iter *),
                              struct val src)
{
    struct iter *it = iter_new(r, next, "generator");

    if (it != &r->noiter) {
        it->src = src;
    }
    return it;
}

/* The source is opened when the first element is asked for, so a wrong one fails there. */
static bool pull(struct jrun *r, struct iter *it, struct val *v)
{
    if (it->in == NULL) {
        it->in = iter_of(r, it->src);
    }
    return iter_next(r, it->in, v);
}

static struct val next_item(struct jrun *r, struct iter *it)
{
    struct val v;

    if (it->src.kind != V_DICT && it->src.kind != V_UNDEF) {
        return run_fail(r, "TypeError: Can only get item pairs from a mapping.");
    }
    if (it->src.kind == V_UNDEF || it->i >= it->src.dict->n) {
        return v_absent();
    }
    v = pair_new(r, it->src.dict->e[it->i].key, it->src.dict->e[it->i].value);
    it->i++;
    return v;
}

static struct val f_items(struct jrun *r, const struct val *a)
{
    return v_iter(generator(r, next_item, a[0]));
}

struct batcher {
    struct list *rest;    /* elements of the next batch so far */
    int64_t size;         /* -1: no number of elements equals it */
    struct val fill;
};

static struct val next_batch(struct jrun *r, struct iter *it)
{
    struct batcher *b = it->state;
    struct list *out;
    struct val v;

    while (pull(r, it, &v)) {
        out = b->rest;
        if ((int64_t)out->n == b->size) {
            b->rest = list_new(r, 4);
            list_push(r, b->rest, v);
            return v_list(out);
        }
        list_push(r, out, v);
    }
    out = b->rest;
    b->rest = list_new(r, 0);
    if (out->n == 0) {
        return v_absent();
    }
    while (v_given_some(b->fill) && (int64_t)out->n < b->size && run_step(r, 1)) {
        list_push(r, out, b->fill);
    }
    return v_list(out);
}

static struct val f_batch(struct jrun *r, const struct val *a)
{
    struct iter *it = generator(r, next_batch, a[0]);
    struct batcher *b = run_alloc(r, sizeof *b);

    if (b == NULL) {
        return v_none();
    }
    *b = (struct batcher){ .rest = list_new(r, 4), .size = -1, .fill = a[2] };
    if (a[1].kind == V_INT || a[1].kind == V_BOOL) {
        b->size = v_small(a[1]);
    } else if (a[1].kind == V_FLOAT && a[1].f == floor(a[1].f) && fabs(a[1].f) < 1e9) {
        b->size = (int64_t)a[1].f;
    }
    it->state = b;
    return v_iter(it);
}

struct slicer {
    struct list *seq;
    int64_t slices, number;
    struct val fill;
};

static struct val next_slice(struct jrun *r, struct iter *it)
{
    struct slicer *s = it->state;
    int64_t per, more, begin, end;
    struct list *l;

    if (s->seq == NULL) {
        s->seq = list_of(r, it->src);
        if (s->slices == 0) {
            return run_fail(r, "ZeroDivisionError: integer division or modulo by zero");
        }
    }
    if (s->number >= s->slices) {
        return v_absent();
    }
    per = (int64_t)s->seq->n / s->slices;
    more = (int64_t)s->seq->n % s->slices;
    begin = s->number * per + (s->number < more ? s->number : more);
    end = begin + per + (s->number < more);
    l = list_new(r, (size_t)(end - begin));
    for (int64_t i = begin; i < end; i++) {
        list_push(r, l, s->seq->v[i]);
    }
    if (v_given_some(s->fill) && s->number >= more) {
        list_push(r, l, s->fill);
    }
    s->number++;
    return v_list(l);
}

static struct val f_slice(struct jrun *r, const struct val *a)
{
    struct iter *it = generator(r, next_slice, a[0]);
    struct slicer *s = run_alloc(r, sizeof *s);
    int64_t n;

    if (s == NULL || !v_index(r, a[1], &n)) {
        return v_none();
    }
    *s = (struct slicer){ .slices = n, .fill = a[2] };
    it->state = s;
    return v_iter(it);
}

struct uniq {
    struct dict *seen;
    bool case_sensitive;
    struct val attribute;
};

static struct val next_unique(struct jrun *r, struct iter *it)
{
    struct uniq *u = it->state;
    struct val v, key;
    size_t n;

    while (pull(r, it, &v)) {
        key = key_of(r, v, u->attribute, v_absent(), u->case_sensitive);
        n = u->seen->n;
        dict_set(r, u->seen, key, v_none());
        if (u->seen->n > n && !r->failed) {
            return v;
        }
    }
    return v_absent();
}

static struct val f_unique(struct jrun *r, const struct val *a)
{
    struct iter *it = generator(r, next_unique, a[0]);
    struct uniq *u = run_alloc(r, sizeof *u);

    if (u == NULL) {
        return v_none();
    }
    *u = (struct uniq){ .seen = dict_new(r, 0), .case_sensitive = arg_true(r, a[1], false),
                        .attribute = a[2] };
    it->state = u;
    return v_iter(it);
}

/* ---- map, select, reject ------------------------------------------------------------ */

struct mapper {
    struct val name;       /* filter or test; V_ABSENT: none */
    struct args args;      /* for it */
    struct val attribute, missing;
    bool want;             /* of a test: keep what gives this */
    const char *wrong;     /* error to report when there is an element, or NULL */
};

/* Like Python's generators, these look at their arguments only when there are elements. */
static bool mapper_ready(struct jrun *r, struct iter *it)
{
    const struct mapper *m = it->state;

    if (it->i++ > 0) {
        return true;
    }
    if (!v_truth(r, it->src)) {
        return false;
    }
    if (m->wrong != NULL) {
        run_fail(r, "%s", m->wrong);
    }
    return !r->failed;
}

static struct val next_mapped(struct jrun *r, struct iter *it)
{
    const struct mapper *m = it->state;
    struct val v;

    if (!mapper_ready(r, it) || !pull(r, it, &v)) {
        return v_absent();
    }
    if (!v_given(m->name)) {
        return get_path(r, v, m->attribute, m->missing);
    }
    return apply_named_filter(r, m->name, v, &m->args);
}

static struct val next_selected(struct jrun *r, struct iter *it)
{
    const struct mapper *m = it->state;
    struct val v, x;

    if (!mapper_ready(r, it)) {
        return v_absent();
    }
    while (pull(r, it, &v)) {
        bool yes;

        x = v_given(m->attribute) ? get_path(r, v, m->attribute, v_absent()) : v;
        yes = v_given(m->name) ? apply_named_test(r, m->name, x, &m->args) : v_truth(r, x);
        if (!r->failed && yes == m->want) {
            return v;
        }
    }
    return v_absent();
}

/* Arguments from the tuple a[1] from position `from` on, and the keywords a[2]. */
static struct mapper *mapper_new(struct jrun *r, const struct val *a, size_t from)
{
    struct mapper *m = run_alloc(r, sizeof *m);
    const struct list *pos = a[1].list;

    if (m == NULL) {
        return NULL;
    }
    *m = (struct mapper){ .name = v_absent(), .attribute = v_absent(), .missing = v_absent() };
    if (pos->n > from) {
        m->name = pos->v[from];
        m->args = (struct args){ .pos = pos->v + from + 1, .n_pos = pos->n - from - 1,
                                 .kw = a[2].dict };
    }
    return m;
}

static struct val keyword_of(struct jrun *r, const struct dict *kw, const char *name)
{
    struct str s = { .s = name, .n = strlen(name), .n_chars = strlen(name) };
    const struct val *v = dict_get(r, kw, v_str(&s));

    return v != NULL ? *v : v_absent();
}

static struct val f_map(struct jrun *r, const struct val *a)
{
    struct iter *it = generator(r, next_mapped, a[0]);
    struct mapper *m = mapper_new(r, a, 0);
    struct dict *kw = a[2].dict;

    if (m == NULL) {
        return v_none();
    }
    it->state = m;
    if (v_given(m->name)) {
        return v_iter(it);
    }
    m->attribute = keyword_of(r, kw, "attribute");
    m->missing = keyword_of(r, kw, "default");
    if (!v_given(m->attribute)) {
        m->wrong = "map requires a filter argument";
    } else if (kw->n > 1 + (size_t)v_given(m->missing)) {
        m->wrong = "map got an unexpected keyword argument";
    }
    return v_iter(it);
}

static struct val selector(struct jrun *r, const struct val *a, bool by_attribute, bool want)
{
    struct iter *it = generator(r, next_selected, a[0]);
    struct mapper *m = mapper_new(r, a, by_attribute);

    if (m == NULL) {
        return v_none();
    }
    if (by_attribute) {
        if (a[1].list->n == 0) {
            m->wrong = "Missing parameter for attribute name";
        } else {
            m->attribute = a[1].list->v[0];
        }
    }
    m->want = want;
    it->state = m;
    return v_iter(it);
}

static struct val f_select(struct jrun *r, const struct val *a)
{
    return selector(r, a, false, true);
}

static struct val f_reject(struct jrun *r, const struct val *a)
{
    return selector(r, a, false, false);
}

static struct val f_selectattr(struct jrun *r, const struct val *a)
{
    return selector(r, a, true, true);
}

static struct val f_rejectattr(struct jrun *r, const struct val *a)
{
    return selector(r, a, true, false);
}

/* ---- numbers ------------------------------------------------------------------------ */

static struct val f_abs(struct jrun *r, const struct val *a)
{
    if (a[0].kind == V_UNDEF) {
        return undef_fail(r, a[0]);
    }
    if (!v_is_num(a[0])) {
        return run_fail(r, "TypeError: bad operand type for abs(): '%s'", v_type(a[0]));
    }
    return num_abs(r, a[0]);
}

/* value, default, base */
static struct val f_int(struct jrun *r, const struct val *a)
{
    struct val out;
    double x;
    int base = 10;

    if (a[0].kind == V_UNDEF) {
        return undef_fail(r, a[0]);
    }
    if (v_is_int(a[0])) {
        return a[0].kind == V_BOOL ? v_int(a[0].b) : a[0];
    }
    if (a[0].kind == V_FLOAT) {
        if (isnan(a[0].f)) {
            return v_given(a[1]) ? a[1] : v_int(0);
        }
        num_trunc(r, a[0].f, true, &out);
        return out;
    }
    if (a[0].kind == V_STR || a[0].kind == V_BYTES) {
        if (v_given(a[2]) && a[0].kind == V_STR) {
            base = a[2].kind == V_INT && (a[2].i == 0 || (a[2].i >= 2 && a[2].i <= 36))
                   ? (int)a[2].i : -1;
        }
        if (base >= 0 && num_parse_int(r, a[0].str, base, &out)) {
            return out;
        }
        if (num_parse_float(r, a[0].str, &x) && num_trunc(r, x, false, &out)) {
            return out;
        }
    }
    return v_given(a[1]) ? a[1] : v_int(0);
}

static struct val f_float(struct jrun *r, const struct val *a)
{
    double x;

    if (a[0].kind == V_UNDEF) {
        return undef_fail(r, a[0]);
    }
    if (v_is_num(a[0])) {
        return num_double(r, a[0], &x) ? v_float(x) : v_none();
    }
    if ((a[0].kind == V_STR || a[0].kind == V_BYTES) && num_parse_float(r, a[0].str, &x)) {
        return v_float(x);
    }
    return v_given(a[1]) ? a[1] : v_float(0.0);
}

/* func(value * 10 ** precision) / 10 ** precision */
static struct val round_to(struct jrun *r, struct val v, int64_t precision, bool up)
{
    struct val power = num_pow(r, v_int(10), v_int(precision));
    struct val x = val_binary(r, T_MUL, v, power);

    if (x.kind == V_FLOAT && !r->failed) {
        num_trunc(r, up ? ceil(x.f) : floor(x.f), true, &x);
    }
    return val_binary(r, T_DIV, x, power);
}

static struct val f_round(struct jrun *r, const struct val *a)
{
    int64_t precision = arg_int(r, a[1], 0);
    struct str *method = v_given(a[2]) ? to_str(r, a[2]) : NULL;

    if (a[0].kind == V_UNDEF) {
        return undef_fail(r, a[0]);
    }
    if (!v_is_num(a[0])) {
        return run_fail(r, "TypeError: type %s doesn't define __round__ method", v_type(a[0]));
    }
    if (r->failed) {
        return v_none();
    }
    if (method == NULL || str_is(method, "common")) {
        return num_round(r, a[0], precision, true);
    }
    if (!str_is(method, "ceil") && !str_is(method, "floor")) {
        return run_fail(r, "method must be common, ceil or floor");
    }
    return round_to(r, a[0], precision, str_is(method, "ceil"));
}

/* ---- JSON --------------------------------------------------------------------------- */

/* The separators (item, key) when they are given. */
static bool separators(struct jrun *r, struct val v, struct json_style *style)
{
    const char *text[2];

    if (!v_given_some(v)) {
        return true;
    }
    if (!v_is_seq(v) || v.list->n != 2 || v.list->v[0].kind != V_STR ||
        v.list->v[1].kind != V_STR) {
        run_fail(r, "TypeError: separators must be a pair of strings");
        return false;
    }
    for (int i = 0; i < 2; i++) {
        const struct str *s = v.list->v[i].str;
        char *copy = run_alloc(r, s->n + 1);

        if (copy == NULL) {
            return false;
        }
        memcpy(copy, s->s, s->n);
        copy[s->n] = '\0';
        text[i] = copy;
    }
    style->item_sep = text[0];
    style->key_sep = text[1];
    return true;
}

/* value, ensure_ascii, indent, separators, sort_keys */
static struct val f_tojson(struct jrun *r, const struct val *a)
{
    struct json_style style = {
        .item_sep = ", ", .key_sep = ": ", .ascii = arg_true(r, a[1], false),
        .sort_keys = arg_true(r, a[4], false),
    };
    struct sb b;

    if (v_given_some(a[2])) {
        int64_t n = 0;

        style.item_sep = ",";
        if (a[2].kind == V_STR) {
            style.indent = a[2].str;
        } else if (v_index(r, a[2], &n)) {
            sb_init(&b, r);
            sb_fill(&b, ' ', n > 0 ? (size_t)n : 0);
            style.indent = sb_take(&b);
        }
    }
    if (r->failed || !separators(r, a[3], &style)) {
        return v_none();
    }
    sb_init(&b, r);
    put_json(&b, a[0], &style);
    return v_str(sb_take(&b));
}

const struct builtin jinja_seq_filters[] = {
    { "abs", "", f_abs },
    { "attr", "name", f_attr },
    { "batch", "linecount fill_with?", f_batch },
    { "count", "", f_length },
    { "d", "default_value? boolean?", f_default },
    { "default", "default_value? boolean?", f_default },
    { "dictsort", "case_sensitive? by? reverse?", f_dictsort },
    { "first", "", f_first },
    { "float", "default?", f_float },
    { "groupby", "attribute default? case_sensitive?", f_groupby },
    { "int", "default? base?", f_int },
    { "items", "", f_items },
    { "join", "d? attribute?", f_join },
    { "last", "", f_last },
    { "length", "", f_length },
    { "list", "", f_list },
    { "map", "*args **kwargs", f_map },
    { "max", "case_sensitive? attribute?", f_max },
    { "min", "case_sensitive? attribute?", f_min },
    { "random", "", f_random },
    { "reject", "*args **kwargs", f_reject },
    { "rejectattr", "*args **kwargs", f_rejectattr },
    { "reverse", "", f_reverse },
    { "round", "precision? method?", f_round },
    { "select", "*args **kwargs", f_select },
    { "selectattr", "*args **kwargs", f_selectattr },
    { "slice", "slices fill_with?", f_slice },
    { "sort", "reverse? case_sensitive? attribute?", f_sort },
    { "sum", "attribute? start?", f_sum },
    { "tojson", "ensure_ascii? indent? separators? sort_keys?", f_tojson },
    { "unique", "case_sensitive? attribute?", f_unique },
    { NULL, NULL, NULL },
};

/* jinja_value.c - lists, dicts, undefined values; truth, equality, order and hashing. */
#include "text/jinja_value.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "text/jinja_run.h"

static const char *const type_names[V_KIND_COUNT] = {
    [V_ABSENT] = "NoneType", [V_UNDEF] = "Undefined", [V_NONE] = "NoneType", [V_BOOL] = "bool",
    [V_INT] = "int", [V_BIG] = "int", [V_FLOAT] = "float", [V_STR] = "str",
    [V_BYTES] = "bytes", [V_LIST] = "list", [V_TUPLE] = "tuple", [V_DICT] = "dict",
    [V_VIEW] = "dict_keys", [V_RANGE] = "range", [V_ITER] = "generator",
    [V_FUNC] = "function", [V_METHOD] = "builtin_function_or_method", [V_MACRO] = "Macro",
    [V_SPACE] = "Namespace", [V_LOOP] = "LoopContext", [V_CYCLER] = "Cycler",
    [V_JOINER] = "Joiner", [V_SLICE] = "slice", [V_BLOCKS] = "TemplateReference",
    [V_BLOCK] = "BlockReference", [V_TYPE] = "type",
};

const char *v_type(struct val v)
{
    if (v.kind == V_STR && v.str->markup) {
        return "Markup";
    }
    if (v.kind == V_VIEW) {
        static const char *const views[] = { "dict_keys", "dict_values", "dict_items" };

        return views[v.view->kind];
    }
    return v.kind == V_ITER ? v.iter->what : type_names[v.kind];
}

/* ---- lists -------------------------------------------------------------------------- */

struct list *list_new(struct jrun *r, size_t cap)
{
    struct list *l = run_alloc(r, sizeof *l + cap * sizeof *l->v);

    if (l == NULL) {
        r->nolist.n = 0;
        return &r->nolist;
    }
    *l = (struct list){ .v = (struct val *)(l + 1), .cap = cap };
    return l;
}

void list_push(struct jrun *r, struct list *l, struct val v)
{
    if (r->failed) {
        return;
    }
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 4;
        struct val *grown = run_alloc(r, cap * sizeof *grown);

        if (grown == NULL) {
            return;
        }
        if (l->n > 0) {
            memcpy(grown, l->v, l->n * sizeof *grown);
        }
        l->v = grown;
        l->cap = cap;
    }
    l->v[l->n++] = v;
}

struct val pair_new(struct jrun *r, struct val a, struct val b)
{
    struct list *l = list_new(r, 2);

    list_push(r, l, a);
    list_push(r, l, b);
    return v_tuple(l);
}

/* ---- dicts -------------------------------------------------------------------------- */

/* Below this many entries a scan over the hashes is as quick as a table. */
enum { DICT_SCAN = 8 };

struct dict *dict_new(struct jrun *r, size_t cap)
{
    struct dict *d = run_alloc(r, sizeof *d);

    if (d == NULL) {
        return &r->nodict;
    }
    *d = (struct dict){ 0 };
    if (cap > 0) {
        d->e = run_alloc(r, cap * sizeof *d->e);
        d->cap = d->e != NULL ? cap : 0;
    }
    return d;
}

static bool dict_reindex(struct jrun *r, struct dict *d, size_t cap)
{
    uint32_t *index = run_alloc(r, cap * sizeof *index);

    if (index == NULL) {
        return false;
    }
    memset(index, 0, cap * sizeof *index);
    for (size_t i = 0; i < d->n; i++) {
        size_t at = (size_t)d->e[i].hash & (cap - 1);

        while (index[at] != 0) {
            at = (at + 1) & (cap - 1);
        }
        index[at] = (uint32_t)i + 1;
    }
    d->index = index;
    d->index_cap = cap;
    return true;
}

static struct entry *dict_find(struct jrun *r, const struct dict *d, struct val key,
                               uint64_t hash)
{
    if (d->index_cap == 0) {
        for (size_t i = 0; i < d->n; i++) {
            if (d->e[i].hash == hash && (v_same(d->e[i].key, key) || v_eq(r, d->e[i].key, key))) {
                return &d->e[i];
            }
        }
        return NULL;
    }
    for (size_t at = (size_t)hash & (d->index_cap - 1); d->index[at] != 0;
         at = (at + 1) & (d->index_cap - 1)) {
        struct entry *e = &d->e[d->index[at] - 1];

        if (e->hash == hash && (v_same(e->key, key) || v_eq(r, e->key, key))) {
            return e;
        }
    }
    return NULL;
}

static bool dict_grow(struct jrun *r, struct dict *d)
{
    size_t cap = d->cap ? 2 * d->cap : 4;
    struct entry *grown = run_alloc(r, cap * sizeof *grown);

    if (grown == NULL) {
        return false;
    }
    if (d->n > 0) {
        memcpy(grown, d->e, d->n * sizeof *grown);
    }
    d->e = grown;
    d->cap = cap;
    return true;
}

void dict_set(struct jrun *r, struct dict *d, struct val key, struct val value)
{
    uint64_t hash;
    struct entry *e;

    if (!v_hashable(key)) {
        run_fail(r, "TypeError: unhashable type: '%s'", v_type(key));
    }
    if (r->failed) {
        return;
    }
    hash = v_hash(r, key);
    e = dict_find(r, d, key, hash);
    if (e != NULL) {
        e->value = value;
        return;
    }
    if (r->failed || (d->n == d->cap && !dict_grow(r, d))) {
        return;
    }
    d->e[d->n++] = (struct entry){ .key = key, .value = value, .hash = hash };
    if (d->n <= DICT_SCAN) {
        return;
    }
    if (2 * d->n > d->index_cap) {
        dict_reindex(r, d, d->index_cap ? 2 * d->index_cap : 4 * DICT_SCAN);
        return;
    }
    for (size_t at = (size_t)hash & (d->index_cap - 1);; at = (at + 1) & (d->index_cap - 1)) {
        if (d->index[at] == 0) {
            d->index[at] = (uint32_t)d->n;
            return;
        }
    }
}

struct val *dict_get(struct jrun *r, const struct dict *d, struct val key)
{
    struct entry *e = dict_find(r, d, key, v_hash(r, key));

    return e != NULL ? &e->value : NULL;
}

struct val *dict_get_str(struct jrun *r, const struct dict *d, struct str *key)
{
    return dict_get(r, d, v_str(key));
}

struct dict *dict_copy(struct jrun *r, const struct dict *d)
{
    struct dict *out = dict_new(r, d->n);

    for (size_t i = 0; i < d->n && !r->failed; i++) {
        dict_set(r, out, d->e[i].key, d->e[i].value);
    }
    return out;
}

/* ---- undefined ---------------------------------------------------------------------- */

static struct undef *undef_new(struct jrun *r)
{
    struct undef *u = run_alloc(r, sizeof *u);

    if (u == NULL) {
        return &r->noundef;
    }
    *u = (struct undef){ .owner = V_ABSENT };
    return u;
}

struct val undef_hint(struct jrun *r, const char *hint)
{
    struct undef *u = undef_new(r);

    u->hint = hint;
    return (struct val){ .kind = V_UNDEF, .undef = u };
}

struct val undef_name(struct jrun *r, struct str *name)
{
    struct undef *u = undef_new(r);

    u->name = name;
    return (struct val){ .kind = V_UNDEF, .undef = u };
}

struct val undef_attr(struct jrun *r, struct val owner, struct val name)
{
    struct undef *u = undef_new(r);

    u->owner = owner.kind;
    u->index = name;
    if (name.kind == V_STR) {
        u->name = name.str;
    }
    return (struct val){ .kind = V_UNDEF, .undef = u };
}

struct val undef_fail(struct jrun *r, struct val v)
{
    const struct undef *u = v.undef;
    const char *owner = u->owner == V_NONE ? "None" : type_names[u->owner];
    const char *object = u->owner == V_NONE ? "" : " object";

    if (u->hint != NULL) {
        return run_fail(r, "%s", u->hint);
    }
    if (u->owner == V_ABSENT) {
        const struct str *name = u->name != NULL ? u->name : &r->nostr;

        return run_fail(r, "'%.*s' is undefined", (int)name->n, name->s);
    }
    if (u->name != NULL) {
        return run_fail(r, "'%s%s' has no attribute '%.*s'", owner, object, (int)u->name->n,
                        u->name->s);
    }
    if (u->index.kind == V_INT) {
        return run_fail(r, "%s%s has no element %lld", owner, object, (long long)u->index.i);
    }
    return run_fail(r, "%s%s has no such element", owner, object);
}

/* ---- truth, length ------------------------------------------------------------------ */

int64_t v_len(struct jrun *r, struct val v)
{
    switch (v.kind) {
    case V_UNDEF:
        return 0;
    case V_STR:
        return (int64_t)str_len(v.str);
    case V_BYTES:
        return (int64_t)v.str->n;
    case V_LIST:
    case V_TUPLE:
        return (int64_t)v.list->n;
    case V_DICT:
        return (int64_t)v.dict->n;
    case V_VIEW:
        return (int64_t)v.view->dict->n;
    case V_RANGE:
        return v.range->n;
    case V_LOOP:
        return loop_length(r, v.loop);
    default:
        return -1;
    }
}

bool v_truth(struct jrun *r, struct val v)
{
    switch (v.kind) {
    case V_ABSENT:
    case V_UNDEF:
    case V_NONE:
        return false;
    case V_BOOL:
        return v.b;
    case V_INT:
        return v.i != 0;
    case V_FLOAT:
        return v.f != 0.0;
    case V_STR:
    case V_BYTES:
        return v.str->n > 0;
    default:
        return v_len(r, v) != 0;   /* -1 for what has no length is true */
    }
}

/* ---- equality and order ------------------------------------------------------------- */

bool v_same(struct val a, struct val b)
{
    if (a.kind != b.kind) {
        return false;
    }
    switch (a.kind) {
    case V_NONE:
    case V_ABSENT:
    case V_BLOCKS:
    case V_TYPE:
        return true;
    case V_BOOL:
        return a.b == b.b;
    case V_INT:
        return a.i == b.i;
    case V_STR:
        if (a.str->n == b.str->n && a.str->n <= 1 && !a.str->markup && !b.str->markup) {
            return memcmp(a.str->s, b.str->s, a.str->n) == 0;
        }
        return a.str == b.str;
    case V_TUPLE:
        return a.list == b.list || (a.list->n == 0 && b.list->n == 0);
    case V_FLOAT:
        return memcmp(&a.f, &b.f, sizeof a.f) == 0;
    default:
        return a.str == b.str;   /* any of the pointers */
    }
}

static bool list_eq(struct jrun *r, const struct list *a, const struct list *b)
{
    if (a->n != b->n) {
        return false;
    }
    for (size_t i = 0; i < a->n; i++) {
        if (!v_same(a->v[i], b->v[i]) && !v_eq(r, a->v[i], b->v[i])) {
            return false;
        }
    }
    return true;
}

static bool dict_eq(struct jrun *r, const struct dict *a, const struct dict *b)
{
    if (a->n != b->n) {
        return false;
    }
    for (size_t i = 0; i < a->n; i++) {
        const struct entry *e = dict_find(r, b, a->e[i].key, a->e[i].hash);

        if (e == NULL ||
            (!v_same(e->value, a->e[i].value) && !v_eq(r, a->e[i].value, e->value))) {
            return false;
        }
    }
    return true;
}

/* Views of keys and items compare as sets. */
static bool view_eq(struct jrun *r, const struct view *a, const struct view *b)
{
    if (a == b) {
        return true;
    }
    if (a->kind == VIEW_VALUES || b->kind == VIEW_VALUES || a->dict->n != b->dict->n) {
        return false;
    }
    if (a->kind != b->kind) {
        return a->dict->n == 0;
    }
    if (a->kind == VIEW_ITEMS) {
        return dict_eq(r, a->dict, b->dict);
    }
    for (size_t i = 0; i < a->dict->n; i++) {
        if (dict_find(r, b->dict, a->dict->e[i].key, a->dict->e[i].hash) == NULL) {
            return false;
        }
    }
    return true;
}

static bool range_eq(const struct range *a, const struct range *b)
{
    if (a->n != b->n || a->n == 0) {
        return a->n == b->n;
    }
    return a->start == b->start && (a->n == 1 || a->step == b->step);
}

static bool same_kind_eq(struct jrun *r, struct val a, struct val b)
{
    switch (a.kind) {
    case V_UNDEF:
    case V_NONE:
        return true;
    case V_STR:
    case V_BYTES:
        return str_eq(a.str, b.str);
    case V_LIST:
    case V_TUPLE:
        return list_eq(r, a.list, b.list);
    case V_DICT:
        return dict_eq(r, a.dict, b.dict);
    case V_VIEW:
        return view_eq(r, a.view, b.view);
    case V_RANGE:
        return range_eq(a.range, b.range);
    case V_SLICE:
        return v_eq(r, a.slice->start, b.slice->start) && v_eq(r, a.slice->stop, b.slice->stop) &&
               v_eq(r, a.slice->step, b.slice->step);
    case V_METHOD:
        return a.method->fn == b.method->fn && v_same(a.method->self, b.method->self);
    default:
        return v_same(a, b);
    }
}

bool v_eq(struct jrun *r, struct val a, struct val b)
{
    bool eq;

    if (v_is_num(a) && v_is_num(b)) {
        return num_cmp(a, b) == 0;
    }
    if (a.kind != b.kind || !run_step(r, 1) || !run_enter(r)) {
        return false;
    }
    eq = same_kind_eq(r, a, b);
    run_leave(r);
    return eq;
}

static void no_order(struct jrun *r, const char *op, struct val a, struct val b)
{
    if (a.kind == V_UNDEF || b.kind == V_UNDEF) {
        undef_fail(r, a.kind == V_UNDEF ? a : b);
        return;
    }
    run_fail(r, "TypeError: '%s' not supported between instances of '%s' and '%s'", op,
             v_type(a), v_type(b));
}

static bool view_within(struct jrun *r, const struct view *a, const struct view *b)
{
    for (size_t i = 0; i < a->dict->n && !r->failed; i++) {
        const struct entry *e = dict_find(r, b->dict, a->dict->e[i].key, a->dict->e[i].hash);

        if (e == NULL || (a->kind == VIEW_ITEMS && !v_eq(r, e->value, a->dict->e[i].value))) {
            return false;
        }
    }
    return true;
}

/* a < b, or a <= b. */
static bool compare(struct jrun *r, struct val a, struct val b, bool or_equal)
{
    const char *op = or_equal ? "<=" : "<";
    int c;

    if (v_is_num(a) && v_is_num(b)) {
        c = num_cmp(a, b);
        return c != 2 && (c < 0 || (or_equal && c == 0));
    }
    if (a.kind == b.kind && (a.kind == V_STR || a.kind == V_BYTES)) {
        c = str_cmp(a.str, b.str);
        return c < 0 || (or_equal && c == 0);
    }
    if (a.kind == b.kind && a.kind == V_VIEW && a.view->kind == b.view->kind &&
        a.view->kind != VIEW_VALUES) {
        return view_within(r, a.view, b.view) &&
               (or_equal || a.view->dict->n < b.view->dict->n);
    }
    if (a.kind != b.kind || !v_is_seq(a)) {
        no_order(r, op, a, b);
        return false;
    }
    for (size_t i = 0; i < a.list->n && i < b.list->n; i++) {
        struct val x = a.list->v[i], y = b.list->v[i];

        if (!v_same(x, y) && !v_eq(r, x, y)) {
            bool less;

            if (!run_enter(r)) {
                return false;
            }
            less = compare(r, x, y, or_equal);
            run_leave(r);
            return less;
        }
        if (!run_step(r, 1)) {
            return false;
        }
    }
    return or_equal ? a.list->n <= b.list->n : a.list->n < b.list->n;
}

bool v_less(struct jrun *r, struct val a, struct val b)
{
    return compare(r, a, b, false);
}

bool v_less_eq(struct jrun *r, struct val a, struct val b)
{
    return compare(r, a, b, true);
}

static bool in_view(struct jrun *r, struct val item, const struct view *view)
{
    const struct val *v;

    if (view->kind == VIEW_KEYS) {
        return v_in(r, item, v_dict(view->dict));
    }
    if (view->kind == VIEW_ITEMS) {
        if (item.kind != V_TUPLE || item.list->n != 2 || !v_hashable(item.list->v[0])) {
            return false;
        }
        v = dict_get(r, view->dict, item.list->v[0]);
        return v != NULL && v_eq(r, *v, item.list->v[1]);
    }
    for (size_t i = 0; i < view->dict->n && !r->failed; i++) {
        if (v_same(item, view->dict->e[i].value) || v_eq(r, item, view->dict->e[i].value)) {
            return true;
        }
    }
    return false;
}

static bool in_bytes(struct jrun *r, struct val item, const struct str *box)
{
    if (item.kind == V_BYTES) {
        return str_find(box, item.str, 0, box->n) != SIZE_MAX;
    }
    if (!v_is_int(item)) {
        run_fail(r, "TypeError: a bytes-like object is required, not '%s'", v_type(item));
        return false;
    }
    if (item.kind == V_BIG || v_small(item) < 0 || v_small(item) > 255) {
        run_fail(r, "ValueError: byte must be in range(0, 256)");
        return false;
    }
    return box->n > 0 && memchr(box->s, (int)v_small(item), box->n) != NULL;
}

bool v_in(struct jrun *r, struct val item, struct val box)
{
    struct iter *it;
    struct val v;

    switch (box.kind) {
    case V_STR:
        if (item.kind != V_STR) {
            run_fail(r, "TypeError: 'in <string>' requires string as left operand, not %s",
                     v_type(item));
            return false;
        }
        run_step(r, box.str->n / 64);
        return str_find(box.str, item.str, 0, box.str->n) != SIZE_MAX;
    case V_BYTES:
        return in_bytes(r, item, box.str);
    case V_DICT:
        if (!v_hashable(item)) {
            run_fail(r, "TypeError: unhashable type: '%s'", v_type(item));
            return false;
        }
        return dict_get(r, box.dict, item) != NULL;
    case V_VIEW:
        return in_view(r, item, box.view);
    default:
        break;
    }
    if (!v_iterable(box)) {
        run_fail(r, "TypeError: argument of type '%s' is not iterable", v_type(box));
        return false;
    }
    it = iter_of(r, box);
    while (iter_next(r, it, &v)) {
        if (v_same(item, v) || v_eq(r, v, item)) {
            return !r->failed;
        }
    }
    return false;
}

/* ---- hashing ------------------------------------------------------------------------ */

bool v_hashable(struct val v)
{
    if (v.kind == V_TUPLE) {
        for (size_t i = 0; i < v.list->n; i++) {
            /* A tuple inside is looked at when it is hashed; lists are what matters here. */
            if (v.list->v[i].kind != V_TUPLE && !v_hashable(v.list->v[i])) {
                return false;
            }
        }
        return true;
    }
    return v.kind != V_LIST && v.kind != V_DICT && v.kind != V_SLICE &&
           !(v.kind == V_VIEW && v.view->kind != VIEW_VALUES);
}

static uint64_t hash_number(struct jrun *r, struct val v)
{
    if (v.kind == V_FLOAT && isfinite(v.f) && v.f == floor(v.f)) {
        v = big_from_double(r, v.f);
    }
    if (v.kind == V_FLOAT) {
        double f = isnan(v.f) ? 0.0 : v.f;

        return hash_bytes(HASH_INIT, &f, sizeof f);
    }
    if (v.kind == V_BIG) {
        return hash_bytes(HASH_INIT + v.big->neg, v.big->d, v.big->n * sizeof v.big->d[0]);
    }
    return (uint64_t)v_small(v) * 0x9E3779B97F4A7C15u >> 7;
}

static uint64_t hash_str(const struct str *s)
{
    if (s->hash == 0) {
        ((struct str *)(uintptr_t)s)->hash = hash_bytes(HASH_INIT, s->s, s->n) | 1;
    }
    return s->hash;
}

uint64_t v_hash(struct jrun *r, struct val v)
{
    uint64_t h = HASH_INIT;

    if (v_is_num(v)) {
        return hash_number(r, v);
    }
    switch (v.kind) {
    case V_STR:
    case V_BYTES:
        return hash_str(v.str);
    case V_TUPLE:
        if (!run_step(r, 1) || !run_enter(r)) {
            return 0;
        }
        for (size_t i = 0; i < v.list->n && !r->failed; i++) {
            uint64_t item = v_hash(r, v.list->v[i]);

            h = hash_bytes(h, &item, sizeof item);
        }
        run_leave(r);
        return h;
    case V_NONE:
    case V_UNDEF:
        return (uint64_t)v.kind;
    case V_LIST:
    case V_DICT:
        run_fail(r, "TypeError: unhashable type: '%s'", v_type(v));
        return 0;
    case V_RANGE:
        return (uint64_t)v.range->n;
    default:
        return (uint64_t)(uintptr_t)v.str >> 4;
    }
}

bool v_index(struct jrun *r, struct val v, int64_t *out)
{
    *out = 0;
    if (v.kind == V_UNDEF) {
        undef_fail(r, v);
        return false;
    }
    if (v.kind == V_BIG) {
        run_fail(r, "OverflowError: cannot fit 'int' into an index-sized integer");
        return false;
    }
    if (!v_is_int(v)) {
        run_fail(r, "TypeError: '%s' object cannot be interpreted as an integer", v_type(v));
        return false;
    }
    *out = v_small(v);
    return true;
}

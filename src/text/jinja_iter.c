/* jinja_iter.c - walking over values, and sorting.
 *
 * Every iterable becomes a struct iter; generators that filters give are the same struct as a
 * value, so they are lazy and can be walked once, as in Python. */
#include <string.h>

#include "text/jinja_run.h"

struct iter *iter_new(struct jrun *r, struct val (*next)(struct jrun *r, struct iter *it),
                      const char *what)
{
    struct iter *it = run_alloc(r, sizeof *it);

    if (it == NULL) {
        r->noiter.done = true;
        return &r->noiter;
    }
    *it = (struct iter){ .next = next, .what = what };
    return it;
}

static struct val next_list(struct jrun *r, struct iter *it)
{
    (void)r;
    return it->i < it->src.list->n ? it->src.list->v[it->i++] : v_absent();
}

static struct val next_reversed(struct jrun *r, struct iter *it)
{
    (void)r;
    return it->i > 0 ? it->src.list->v[--it->i] : v_absent();
}

static struct val next_view(struct jrun *r, struct iter *it)
{
    const struct view *view = it->src.view;
    const struct entry *e = &view->dict->e[it->i];

    if (it->i >= view->dict->n) {
        return v_absent();
    }
    it->i++;
    return view->kind == VIEW_KEYS ? e->key
           : view->kind == VIEW_VALUES ? e->value : pair_new(r, e->key, e->value);
}

static struct val next_key(struct jrun *r, struct iter *it)
{
    (void)r;
    return it->i < it->src.dict->n ? it->src.dict->e[it->i++].key : v_absent();
}

static struct val next_char(struct jrun *r, struct iter *it)
{
    const struct str *s = it->src.str;
    size_t begin = it->i;

    if (begin >= s->n) {
        return v_absent();
    }
    it->i++;
    while (it->i < s->n && ((unsigned char)s->s[it->i] & 0xC0) == 0x80) {
        it->i++;
    }
    /* Walking gives plain characters, also from safe markup. */
    return v_str(str_plain(r, str_part(r, s, begin, it->i)));
}

static struct val next_byte(struct jrun *r, struct iter *it)
{
    (void)r;
    return it->i < it->src.str->n ? v_int((unsigned char)it->src.str->s[it->i++]) : v_absent();
}

static struct val next_range(struct jrun *r, struct iter *it)
{
    const struct range *g = it->src.range;

    (void)r;
    if ((int64_t)it->i >= g->n) {
        return v_absent();
    }
    return v_int(g->start + (int64_t)it->i++ * g->step);
}

static struct val next_nothing(struct jrun *r, struct iter *it)
{
    (void)r;
    (void)it;
    return v_absent();
}

typedef struct val next_fn(struct jrun *r, struct iter *it);

static next_fn *const nexts[V_KIND_COUNT] = {
    [V_UNDEF] = next_nothing, [V_STR] = next_char, [V_BYTES] = next_byte, [V_LIST] = next_list,
    [V_TUPLE] = next_list, [V_DICT] = next_key, [V_VIEW] = next_view, [V_RANGE] = next_range,
};

bool v_iterable(struct val v)
{
    return v.kind == V_ITER || nexts[v.kind] != NULL;
}

struct iter *iter_of(struct jrun *r, struct val v)
{
    struct iter *it;

    if (v.kind == V_ITER) {
        return v.iter;
    }
    if (nexts[v.kind] == NULL) {
        run_fail(r, "TypeError: '%s' object is not iterable", v_type(v));
        r->noiter.done = true;
        return &r->noiter;
    }
    it = iter_new(r, nexts[v.kind], "iterator");
    it->src = v;
    return it;
}

bool iter_next(struct jrun *r, struct iter *it, struct val *out)
{
    *out = v_absent();
    if (it->done || !run_step(r, 1) || !run_enter(r)) {
        return false;
    }
    *out = it->next(r, it);
    run_leave(r);
    if (out->kind == V_ABSENT || r->failed) {
        it->done = true;
        *out = v_absent();
        return false;
    }
    return true;
}

struct list *list_of(struct jrun *r, struct val v)
{
    struct iter *it = iter_of(r, v);
    int64_t n = v.kind == V_STR || v.kind == V_LOOP ? 0 : v_len(r, v);
    struct list *l = list_new(r, n > 0 ? (size_t)n : 0);
    struct val item;

    while (iter_next(r, it, &item)) {
        list_push(r, l, item);
    }
    return l;
}

struct iter *iter_reversed(struct jrun *r, struct val v)
{
    bool reversible = v_is_seq(v) || v.kind == V_STR || v.kind == V_BYTES || v.kind == V_DICT ||
                      v.kind == V_RANGE || v.kind == V_VIEW;
    struct iter *it;

    if (!reversible) {
        return NULL;
    }
    it = iter_new(r, next_reversed, v.kind == V_LIST ? "list_reverseiterator" : "reversed");
    if (it == &r->noiter) {
        return it;
    }
    it->src = v_is_seq(v) ? v : v_list(list_of(r, v));
    for (size_t i = 0; v.kind == V_STR && v.str->markup && i < it->src.list->n; i++) {
        it->src.list->v[i].str = str_markup(r, it->src.list->v[i].str);
    }
    it->i = it->src.list->n;
    return it;
}

/* ---- sorting ------------------------------------------------------------------------ */

struct sorter {
    struct jrun *r;
    struct val *v, *k;      /* elements and keys, moved together */
    struct val *tv, *tk;
    bool reverse;
};

/* Merges [b, m) and [m, e), taking from the right only what has to go first. */
static void merge(struct sorter *s, size_t b, size_t m, size_t e)
{
    size_t i = b, j = m, out = b;

    while (i < m || j < e) {
        bool right;

        if (i == m || j == e) {
            right = i == m;
        } else {
            right = s->reverse ? v_less(s->r, s->k[i], s->k[j]) : v_less(s->r, s->k[j], s->k[i]);
        }
        s->tv[out] = s->v[right ? j : i];
        s->tk[out++] = s->k[right ? j++ : i++];
    }
    memcpy(s->v + b, s->tv + b, (e - b) * sizeof *s->v);
    memcpy(s->k + b, s->tk + b, (e - b) * sizeof *s->k);
}

void list_sort(struct jrun *r, struct list *l, struct list *keys, bool reverse)
{
    struct sorter s = { .r = r, .v = l->v, .reverse = reverse };

    if (r->failed || l->n < 2) {
        return;
    }
    s.k = run_alloc(r, l->n * sizeof *s.k);
    s.tv = run_alloc(r, l->n * sizeof *s.tv);
    s.tk = run_alloc(r, l->n * sizeof *s.tk);
    if (s.k == NULL || s.tv == NULL || s.tk == NULL) {
        return;
    }
    memcpy(s.k, keys != NULL ? keys->v : l->v, l->n * sizeof *s.k);
    for (size_t width = 1; width < l->n && run_step(r, l->n); width *= 2) {
        for (size_t b = 0; b + width < l->n && !r->failed; b += 2 * width) {
            merge(&s, b, b + width, b + 2 * width < l->n ? b + 2 * width : l->n);
        }
    }
}

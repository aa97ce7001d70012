/* jinja_wrap.c - wordwrap as Python's textwrap does it, and pprint. */
#include <string.h>

#include "text/jinja_text.h"

/* ---- wordwrap ----------------------------------------------------------------------- */

/* A line as code points, so that looking around is simple. */
struct line {
    const struct str *s;
    const uint32_t *cp;
    const size_t *at;      /* byte offset of each character, and of the end */
    size_t n;
};

static bool wrap_space(uint32_t c)
{
    return c == ' ' || (c >= 9 && c <= 13);
}

static bool letter(uint32_t c)
{
    return uc_word(c) && !uc_digit(c) && c != '_';
}

/* [\w!"'&.,?] */
static bool punct_word(uint32_t c)
{
    return uc_word(c) || (c < 0x80 && c != 0 && strchr("!\"'&.,?", (int)c) != NULL);
}

/* Whether two or more hyphens and then a word stand at i; *end gets where the hyphens end. */
static bool dash_at(const struct line *l, size_t i, size_t *end)
{
    size_t k = i;

    while (k < l->n && l->cp[k] == '-') {
        k++;
    }
    *end = k;
    return k - i >= 2 && k < l->n && uc_word(l->cp[k]);
}

/* Whether a hyphen at i may end a piece: two letters before it and letters behind. */
static bool hyphen_breaks(const struct line *l, size_t i)
{
    bool before, behind;

    if (l->cp[i] != '-' || i < 2) {
        return false;
    }
    before = letter(l->cp[i - 1]) &&
             (letter(l->cp[i - 2]) || (i >= 3 && l->cp[i - 2] == '-' && letter(l->cp[i - 3])));
    behind = i + 1 < l->n && letter(l->cp[i + 1]) &&
             ((i + 2 < l->n && letter(l->cp[i + 2])) ||
              (i + 3 < l->n && l->cp[i + 2] == '-' && letter(l->cp[i + 3])));
    return before && behind;
}

/* End of the piece that begins at b. */
static size_t piece_end(const struct line *l, size_t b, bool hyphens)
{
    size_t e = b, dash;

    if (wrap_space(l->cp[b])) {
        while (e < l->n && wrap_space(l->cp[e])) {
            e++;
        }
        return e;
    }
    if (hyphens && b > 0 && punct_word(l->cp[b - 1]) && dash_at(l, b, &dash)) {
        return dash;
    }
    for (e = b + 1; e < l->n && !wrap_space(l->cp[e]); e++) {
        if (hyphens && hyphen_breaks(l, e)) {
            return e + 1;
        }
        if (hyphens && punct_word(l->cp[e - 1]) && dash_at(l, e, &dash)) {
            return e;
        }
    }
    return e;
}

struct wrapper {
    struct jrun *r;
    int64_t width;
    bool break_long, hyphens;
    struct list *lines;
};

/* How much of a piece that is longer than a line still goes on this one. */
static size_t long_piece(const struct wrapper *w, const struct line *l, size_t b, size_t e,
                         int64_t room, bool line_empty)
{
    if (!w->break_long) {
        return line_empty ? e : b;
    }
    if (w->hyphens && (int64_t)(e - b) > room) {
        for (size_t k = b + (size_t)(room > 0 ? room : 0); k > b + 1; k--) {
            if (l->cp[k - 1] == '-') {
                for (size_t i = b; i < k - 1; i++) {
                    if (l->cp[i] != '-') {
                        return k;
                    }
                }
            }
        }
    }
    return b + (size_t)(room > 0 ? room : 0);
}

static bool all_space(const struct line *l, size_t b, size_t e)
{
    for (; b < e; b++) {
        if (!uc_space(l->cp[b])) {
            return false;
        }
    }
    return true;
}

static void wrap_line(struct wrapper *w, const struct line *l)
{
    size_t pos = 0, first = w->lines->n;

    while (pos < l->n && run_step(w->r, 1)) {
        size_t begin, end, e = piece_end(l, pos, w->hyphens), last;

        if (w->lines->n > first && all_space(l, pos, e)) {
            pos = e;
            if (pos == l->n) {
                break;
            }
        }
        begin = end = last = pos;
        while (end < l->n && run_step(w->r, 1)) {
            e = piece_end(l, end, w->hyphens);
            if ((int64_t)(e - begin) > w->width) {
                break;
            }
            last = end;
            end = e;
        }
        if (end < l->n && (int64_t)(e - end) > w->width) {
            last = end;
            end = long_piece(w, l, end, e, w->width - (int64_t)(end - begin), end == begin);
        }
        pos = end;
        if (end > last && all_space(l, last, end)) {
            end = last;
        }
        if (end > begin) {
            list_push(w->r, w->lines, v_str(str_part(w->r, l->s, l->at[begin], l->at[end])));
        }
    }
}

static void wrap_str(struct wrapper *w, const struct str *s)
{
    size_t n = str_len(s);
    uint32_t *cp = run_alloc(w->r, (n + 1) * sizeof *cp);
    size_t *at = run_alloc(w->r, (n + 1) * sizeof *at);
    struct chars c = chars_of(s);
    struct line l = { .s = s, .cp = cp, .at = at, .n = n };

    if (cp == NULL || at == NULL) {
        return;
    }
    for (size_t i = 0; chars_next(&c); i++) {
        cp[i] = c.cp;
        at[i] = c.at;
    }
    at[n] = s->n;
    wrap_line(w, &l);
}

struct val filter_wordwrap(struct jrun *r, const struct val *a)
{
    struct wrapper w = { .r = r, .width = arg_int(r, a[1], 79),
                         .break_long = arg_true(r, a[2], true),
                         .hyphens = arg_true(r, a[4], true) };
    struct str *sep = v_given_some(a[3]) ? arg_str(r, a[3], "wrapstring") : str_lit(r, "\n");
    struct list *lines;
    struct sb b;

    if (a[0].kind == V_UNDEF) {
        return undef_fail(r, a[0]);
    }
    lines = str_splitlines(r, arg_str(r, a[0], "the value of wordwrap"), false);
    sb_init(&b, r);
    for (size_t i = 0; i < lines->n && !r->failed; i++) {
        if (w.width <= 0) {
            return run_fail(r, "ValueError: invalid width %lld (must be > 0)", (long long)w.width);
        }
        w.lines = list_new(r, 4);
        wrap_str(&w, lines->v[i].str);
        if (i > 0) {
            sb_str(&b, sep);
        }
        for (size_t k = 0; k < w.lines->n; k++) {
            if (k > 0) {
                sb_str(&b, sep);
            }
            sb_str(&b, w.lines->v[k].str);
        }
    }
    return v_str(sb_take(&b));
}

/* ---- pprint ------------------------------------------------------------------------- */

enum { PPRINT_WIDTH = 80 };

/* The dict with its keys in order, where they can be ordered. */
static struct dict *sorted_dict(struct jrun *r, struct dict *d)
{
    struct list *order, *keys;
    struct dict *out;

    for (size_t i = 1; i < d->n; i++) {
        bool alike = d->e[i].key.kind == d->e[0].key.kind || (v_is_num(d->e[i].key) &&
                                                              v_is_num(d->e[0].key));

        if (!alike || !(v_is_num(d->e[i].key) || d->e[i].key.kind == V_STR)) {
            return d;
        }
    }
    order = list_new(r, d->n);
    keys = list_new(r, d->n);
    for (size_t i = 0; i < d->n; i++) {
        list_push(r, order, v_int((int64_t)i));
        list_push(r, keys, d->e[i].key);
    }
    list_sort(r, order, keys, false);
    out = dict_new(r, d->n);
    for (size_t i = 0; i < order->n && !r->failed; i++) {
        dict_set(r, out, d->e[order->v[i].i].key, d->e[order->v[i].i].value);
    }
    return out;
}

/* A copy with all dicts sorted. */
static struct val sorted(struct jrun *r, struct val v)
{
    struct val out = v;

    if (!run_step(r, 1) || !run_enter(r)) {
        return v;
    }
    if (v_is_seq(v)) {
        out.list = list_new(r, v.list->n);
        for (size_t i = 0; i < v.list->n; i++) {
            list_push(r, out.list, sorted(r, v.list->v[i]));
        }
    } else if (v.kind == V_DICT) {
        out.dict = sorted_dict(r, v.dict);
        if (out.dict == v.dict) {
            out.dict = dict_copy(r, v.dict);
        }
        for (size_t i = 0; i < out.dict->n; i++) {
            out.dict->e[i].value = sorted(r, out.dict->e[i].value);
        }
    }
    run_leave(r);
    return out;
}

/* `indent` columns are to the left, `allowance` closing brackets to the right. */
static void put_pretty(struct sb *b, struct val v, size_t indent, size_t allowance)
{
    struct str *flat = to_repr(b->r, v);
    const char *open = v.kind == V_LIST ? "[" : v.kind == V_TUPLE ? "(" : "{";
    const char *close = v.kind == V_LIST ? "]" : v.kind == V_TUPLE ? ")" : "}";
    size_t n = v.kind == V_DICT ? v.dict->n : v_is_seq(v) ? v.list->n : 0;

    if (str_len(flat) + indent + allowance <= PPRINT_WIDTH || n == 0 || !run_enter(b->r)) {
        sb_str(b, flat);
        return;
    }
    sb_puts(b, open);
    for (size_t i = 0; i < n && !b->r->failed; i++) {
        size_t more = i + 1 < n ? 1 : allowance + 1, at = indent + 1;

        if (i > 0) {
            sb_puts(b, ",\n");
            sb_fill(b, ' ', indent + 1);
        }
        if (v.kind == V_DICT) {
            struct str *key = to_repr(b->r, v.dict->e[i].key);

            sb_str(b, key);
            sb_puts(b, ": ");
            at += str_len(key) + 2;
            put_pretty(b, v.dict->e[i].value, at, more);
        } else {
            put_pretty(b, v.list->v[i], at, more);
        }
    }
    sb_puts(b, v.kind == V_TUPLE && n == 1 ? "," : "");
    sb_puts(b, close);
    run_leave(b->r);
}

struct val filter_pprint(struct jrun *r, const struct val *a)
{
    struct sb b;

    sb_init(&b, r);
    put_pretty(&b, sorted(r, a[0]), 0, 0);
    return v_str(sb_take(&b));
}

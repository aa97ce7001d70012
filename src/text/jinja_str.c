/* jinja_str.c - strings: building, cutting, searching, with marks carried along. */
#include "text/jinja_str.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "text/jinja_run.h"

/* ---- building ----------------------------------------------------------------------- */

void sb_init(struct sb *b, struct jrun *r)
{
    *b = (struct sb){ .r = r };
}

/* Room for n more bytes; false after a failure. */
static bool sb_room(struct sb *b, size_t n)
{
    size_t cap = b->cap ? b->cap : 32;
    char *grown;

    if (b->r->failed) {
        return false;
    }
    if (n <= b->cap - b->n) {
        return true;
    }
    if (b == b->r->page && b->n + n > b->r->max_output) {
        run_fail(b->r, "the output exceeds the limit of %zu bytes", b->r->max_output);
        return false;
    }
    if (n > b->r->arena.max_bytes) {
        run_alloc(b->r, n);   /* fails with the limit in the message */
        return false;
    }
    while (cap < b->n + n) {
        cap *= 2;
    }
    grown = run_alloc(b->r, cap);
    if (grown == NULL) {
        return false;
    }
    if (b->n > 0) {
        memcpy(grown, b->s, b->n);
    }
    b->s = grown;
    b->cap = cap;
    return true;
}

void sb_add(struct sb *b, const char *s, size_t n)
{
    if (n > 0 && sb_room(b, n)) {
        memcpy(b->s + b->n, s, n);
        b->n += n;
    }
}

void sb_puts(struct sb *b, const char *s)
{
    sb_add(b, s, strlen(s));
}

void sb_putc(struct sb *b, char c)
{
    sb_add(b, &c, 1);
}

void sb_fill(struct sb *b, uint32_t cp, size_t times)
{
    char c[4];
    size_t n = (size_t)utf8_encode(cp, c);
    size_t total;

    if (!size_mul(n, times, &total)) {
        total = SIZE_MAX / 2;
    }
    if (!run_step(b->r, total / 64) || !sb_room(b, total)) {
        return;
    }
    for (size_t i = 0; i < times; i++) {
        memcpy(b->s + b->n, c, n);
        b->n += n;
    }
}

void sb_mark(struct sb *b, size_t from, size_t to)
{
    if (from >= to || to > b->n || b->r->failed) {
        return;
    }
    if (b->n_marks > 0 && b->marks[b->n_marks - 1].end >= from) {
        struct span *last = &b->marks[b->n_marks - 1];

        last->end = to > last->end ? to : last->end;
        return;
    }
    if (b->n_marks == b->cap_marks) {
        size_t cap = b->cap_marks ? 2 * b->cap_marks : 4;
        struct span *grown = run_alloc(b->r, cap * sizeof *grown);

        if (grown == NULL) {
            return;
        }
        if (b->n_marks > 0) {
            memcpy(grown, b->marks, b->n_marks * sizeof *grown);
        }
        b->marks = grown;
        b->cap_marks = cap;
    }
    b->marks[b->n_marks++] = (struct span){ from, to };
}

void sb_part(struct sb *b, const struct str *s, size_t from, size_t to)
{
    size_t base = b->n;

    sb_add(b, s->s + from, to - from);
    for (size_t i = 0; i < s->n_marks && !b->r->failed; i++) {
        size_t begin = s->marks[i].begin > from ? s->marks[i].begin : from;
        size_t end = s->marks[i].end < to ? s->marks[i].end : to;

        if (begin < end) {
            sb_mark(b, base + begin - from, base + end - from);
        }
    }
}

void sb_str(struct sb *b, const struct str *s)
{
    sb_part(b, s, 0, s->n);
}

void sb_char(struct sb *b, uint32_t cp, bool marked)
{
    char c[4];
    int n = utf8_encode(cp, c);

    sb_add(b, c, (size_t)n);
    if (marked && !b->r->failed) {
        sb_mark(b, b->n - (size_t)n, b->n);
    }
}

static struct str *str_over(struct jrun *r, const char *s, size_t n)
{
    struct str *str = n == 0 ? &r->nostr : run_alloc(r, sizeof *str);

    if (str == NULL || str == &r->nostr) {
        return &r->nostr;
    }
    *str = (struct str){ .s = s, .n = n, .n_chars = SIZE_MAX };
    return str;
}

struct str *sb_take(struct sb *b)
{
    struct str *s = b->r->failed ? &b->r->nostr : str_over(b->r, b->s, b->n);

    if (s != &b->r->nostr) {
        s->marks = b->marks;
        s->n_marks = b->n_marks;
    }
    *b = (struct sb){ .r = b->r };
    return s;
}

void sb_pad(struct sb *b, const struct str *s, size_t width, uint32_t fill, char align)
{
    size_t n = str_len(s);
    size_t pad = width > n ? width - n : 0;
    size_t left = align == '>' ? pad : align == '<' ? 0 : pad / 2;

    sb_fill(b, fill, left);
    sb_str(b, s);
    sb_fill(b, fill, pad - left);
}

/* ---- making ------------------------------------------------------------------------- */

struct str *str_new(struct jrun *r, const char *s, size_t n)
{
    struct sb b;

    sb_init(&b, r);
    sb_add(&b, s, n);
    return sb_take(&b);
}

struct str *str_lit(struct jrun *r, const char *s)
{
    return str_over(r, s, strlen(s));
}

struct str *str_fmt(struct jrun *r, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return str_new(r, text, n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

/* Marks of [b, e), moved to 0. */
static void cut_marks(struct jrun *r, struct str *out, const struct str *s, size_t b, size_t e)
{
    size_t n = 0, first = 0;
    struct span *marks;

    while (first < s->n_marks && s->marks[first].end <= b) {
        first++;
    }
    while (first + n < s->n_marks && s->marks[first + n].begin < e) {
        n++;
    }
    marks = n > 0 ? run_alloc(r, n * sizeof *marks) : NULL;
    if (marks == NULL) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const struct span *m = &s->marks[first + i];

        marks[i].begin = m->begin > b ? m->begin - b : 0;
        marks[i].end = (m->end < e ? m->end : e) - b;
    }
    out->marks = marks;
    out->n_marks = n;
}

struct str *str_part(struct jrun *r, const struct str *s, size_t b, size_t e)
{
    struct str *out;

    if (b >= e) {
        return s->markup ? str_markup(r, &r->nostr) : &r->nostr;
    }
    out = str_over(r, s->s + b, e - b);
    if (out == &r->nostr) {
        return out;
    }
    out->markup = s->markup;
    if (s->n_marks > 0) {
        cut_marks(r, out, s, b, e);
    }
    return out;
}

static struct str *with_markup(struct jrun *r, struct str *s, bool markup)
{
    struct str *out;

    if (s->markup == markup) {
        return s;
    }
    out = run_alloc(r, sizeof *out);
    if (out == NULL) {
        return s;
    }
    *out = *s;
    out->markup = markup;
    return out;
}

struct str *str_markup(struct jrun *r, struct str *s)
{
    return with_markup(r, s, true);
}

struct str *str_plain(struct jrun *r, struct str *s)
{
    return with_markup(r, s, false);
}

/* ---- characters --------------------------------------------------------------------- */

bool chars_next(struct chars *c)
{
    const struct str *s = c->s;
    int len;

    if (c->pos >= s->n) {
        return false;
    }
    c->at = c->pos;
    len = utf8_decode(s->s + c->pos, s->n - c->pos, &c->cp);
    c->pos += len > 0 ? (size_t)len : 1;
    while (c->mark < s->n_marks && s->marks[c->mark].end <= c->at) {
        c->mark++;
    }
    c->marked = c->mark < s->n_marks && s->marks[c->mark].begin <= c->at;
    return true;
}

size_t str_len(const struct str *s)
{
    /* Counting is remembered; strings are otherwise constant, so the cast hides a cache. */
    if (s->n_chars == SIZE_MAX) {
        ((struct str *)(uintptr_t)s)->n_chars = utf8_count(s->s, s->n);
    }
    return s->n_chars;
}

size_t str_at(const struct str *s, size_t i)
{
    size_t p = 0;

    if (str_len(s) == s->n) {
        return i < s->n ? i : s->n;
    }
    while (p < s->n) {
        if (((unsigned char)s->s[p] & 0xC0) != 0x80 && i-- == 0) {
            break;
        }
        p++;
    }
    return p;
}

bool str_eq(const struct str *a, const struct str *b)
{
    return a == b || (a->n == b->n && memcmp(a->s, b->s, a->n) == 0);
}

bool str_is(const struct str *s, const char *text)
{
    size_t n = strlen(text);

    return s->n == n && memcmp(s->s, text, n) == 0;
}

int str_cmp(const struct str *a, const struct str *b)
{
    size_t n = a->n < b->n ? a->n : b->n;
    int c = n > 0 ? memcmp(a->s, b->s, n) : 0;   /* the order of UTF-8 is that of code points */

    return c != 0 ? c : (a->n > b->n) - (a->n < b->n);
}

size_t str_find(const struct str *s, const struct str *what, size_t b, size_t e)
{
    const char *at;

    if (b > e || what->n > e - b) {
        return SIZE_MAX;
    }
    if (what->n == 0) {
        return b;
    }
    at = memmem(s->s + b, e - b, what->s, what->n);
    return at != NULL ? (size_t)(at - s->s) : SIZE_MAX;
}

size_t str_rfind(const struct str *s, const struct str *what, size_t b, size_t e)
{
    size_t found = SIZE_MAX;

    if (b > e || what->n > e - b) {
        return SIZE_MAX;
    }
    if (what->n == 0) {
        return e;
    }
    /* Bytes before a match cannot be part of a later one that ends earlier, so walking
     * forward and keeping the last match finds it in linear time. */
    for (size_t at = b; (at = str_find(s, what, at, e)) != SIZE_MAX; at++) {
        found = at;
    }
    return found;
}

/* ---- cutting ------------------------------------------------------------------------ */

static bool in_set(uint32_t cp, const struct str *set)
{
    struct chars c;

    if (set == NULL) {
        return uc_space(cp);
    }
    c = chars_of(set);
    while (chars_next(&c)) {
        if (c.cp == cp) {
            return true;
        }
    }
    return false;
}

struct str *str_strip(struct jrun *r, const struct str *s, const struct str *set, enum strip ends)
{
    struct chars c = chars_of(s);
    size_t b = 0, e = s->n;

    if (ends & STRIP_LEFT) {
        while (chars_next(&c) && in_set(c.cp, set)) {
            b = c.pos;
        }
    }
    while ((ends & STRIP_RIGHT) && e > b) {
        size_t p = e - 1;
        uint32_t cp = 0;

        while (p > b && ((unsigned char)s->s[p] & 0xC0) == 0x80) {
            p--;
        }
        utf8_decode(s->s + p, e - p, &cp);
        if (!in_set(cp, set)) {
            break;
        }
        e = p;
    }
    run_step(r, (s->n - (e - b)) * (set != NULL ? set->n + 1 : 1) / 16);
    return str_part(r, s, b, e);
}

/* Python inserts the replacement between all characters where `old` is empty. */
static void replace_empty(struct sb *b, const struct str *s, const struct str *new, int64_t max)
{
    struct chars c = chars_of(s);
    size_t done = 0;

    for (int64_t i = 0; (max < 0 || i < max) && !b->r->failed; i++) {
        sb_str(b, new);
        if (!chars_next(&c)) {
            return;
        }
        sb_part(b, s, c.at, c.pos);
        done = c.pos;
    }
    sb_part(b, s, done, s->n);
}

struct str *str_replace(struct jrun *r, const struct str *s, const struct str *old,
                        const struct str *new, int64_t max)
{
    struct sb b;
    size_t done = 0, at;

    sb_init(&b, r);
    run_step(r, s->n / 64);
    if (old->n == 0) {
        replace_empty(&b, s, new, max);
        return sb_take(&b);
    }
    for (int64_t i = 0; (max < 0 || i < max) && !r->failed; i++) {
        at = str_find(s, old, done, s->n);
        if (at == SIZE_MAX) {
            break;
        }
        sb_part(&b, s, done, at);
        sb_str(&b, new);
        done = at + old->n;
    }
    sb_part(&b, s, done, s->n);
    return sb_take(&b);
}

struct list *str_splitlines(struct jrun *r, const struct str *s, bool keep_ends)
{
    struct list *out = list_new(r, 4);
    struct chars c = chars_of(s);
    size_t begin = 0;

    while (chars_next(&c) && !r->failed) {
        size_t end = c.at;

        if (!uc_line_break(c.cp)) {
            continue;
        }
        if (c.cp == '\r' && c.pos < s->n && s->s[c.pos] == '\n') {
            c.pos++;
        }
        list_push(r, out, v_str(str_part(r, s, begin, keep_ends ? c.pos : end)));
        begin = c.pos;
    }
    if (begin < s->n) {
        list_push(r, out, v_str(str_part(r, s, begin, s->n)));
    }
    return out;
}

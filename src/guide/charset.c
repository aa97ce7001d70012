/* charset.c - sets of characters as ranges, and as expressions over the bytes of UTF-8. */
#include "guide/charset.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/unicode.h"

enum { CP_MAX = 0x10FFFF, SURROGATE_FIRST = 0xD800, SURROGATE_LAST = 0xDFFF };

/* ---- sets --------------------------------------------------------------------------- */

void charset_deinit(struct charset *c)
{
    mem_free(c->r);
    *c = (struct charset){0};
}

void charset_add(struct charset *c, uint32_t first, uint32_t last)
{
    if (c->failed || first > last || first > CP_MAX) {
        return;
    }
    if (c->n == c->cap) {
        const size_t cap = c->cap ? c->cap * 2 : 16;
        struct char_range *r = mem_realloc(c->r, cap, sizeof *r);
        if (!r) {
            c->failed = true;
            return;
        }
        c->r = r;
        c->cap = cap;
    }
    c->r[c->n++] = (struct char_range){ first, last < CP_MAX ? last : CP_MAX };
}

void charset_add_all(struct charset *c, const struct charset *other)
{
    for (size_t i = 0; i < other->n; i++) {
        charset_add(c, other->r[i].first, other->r[i].last);
    }
    c->failed |= other->failed;
}

void charset_add_class(struct charset *c, unsigned bits)
{
    uint32_t first = 0;

    for (uint32_t cp = 0; cp <= CP_MAX + 1; cp++) {
        if (cp > CP_MAX || !(unicode_class(cp) & bits)) {
            if (first < cp) {
                charset_add(c, first, cp - 1);
            }
            first = cp + 1;
        }
    }
}

static int by_first(const void *a, const void *b)
{
    const struct char_range *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

/* Joins ranges that touch or overlap. */
static void join(struct charset *c)
{
    size_t n = 0;

    if (c->n == 0) {
        return;
    }
    qsort(c->r, c->n, sizeof *c->r, by_first);
    for (size_t i = 1; i < c->n; i++) {
        if (c->r[i].first <= c->r[n].last + 1) {
            c->r[n].last = c->r[i].last > c->r[n].last ? c->r[i].last : c->r[n].last;
        } else {
            c->r[++n] = c->r[i];
        }
    }
    c->n = n + 1;
}

static void without(struct charset *c, uint32_t first, uint32_t last)
{
    const size_t n = c->n;

    for (size_t i = 0; i < n; i++) {
        const struct char_range r = c->r[i];
        if (r.last < first || r.first > last) {
            continue;
        }
        /* What is left below stays in place, empty where nothing is; the rest goes to the end. */
        if (r.first < first) {
            c->r[i].last = first - 1;
        } else {
            c->r[i] = (struct char_range){ 1, 0 };
        }
        if (r.last > last) {
            charset_add(c, last + 1, r.last);
        }
    }
    size_t kept = 0;
    for (size_t i = 0; i < c->n; i++) {
        if (c->r[i].first <= c->r[i].last) {
            c->r[kept++] = c->r[i];
        }
    }
    c->n = kept;
}

void charset_close(struct charset *c)
{
    join(c);
    without(c, SURROGATE_FIRST, SURROGATE_LAST);
    join(c);
}

void charset_invert(struct charset *c)
{
    struct charset out = {0};
    uint32_t next = 0;

    for (size_t i = 0; i < c->n; i++) {
        if (c->r[i].first > next) {
            charset_add(&out, next, c->r[i].first - 1);
        }
        next = c->r[i].last + 1;
    }
    charset_add(&out, next, CP_MAX);
    out.failed |= c->failed;
    charset_deinit(c);
    *c = out;
    charset_close(c);
}

bool charset_has(const struct charset *c, uint32_t cp)
{
    for (size_t i = 0; i < c->n; i++) {
        if (cp >= c->r[i].first && cp <= c->r[i].last) {
            return true;
        }
    }
    return false;
}

/* ---- UTF-8 -------------------------------------------------------------------------- */

/* Characters whose bytes are, one after the other, any of n ranges. */
struct byte_path {
    int n;
    unsigned char first[4], last[4];
};

struct paths {
    struct byte_path *p;
    size_t n, cap;
    bool failed;
};

static void add_path(struct paths *paths, uint32_t first, uint32_t last)
{
    char a[4], b[4];

    if (paths->n == paths->cap) {
        const size_t cap = paths->cap ? paths->cap * 2 : 16;
        struct byte_path *p = mem_realloc(paths->p, cap, sizeof *p);
        if (!p) {
            paths->failed = true;
            return;
        }
        paths->p = p;
        paths->cap = cap;
    }
    struct byte_path *path = &paths->p[paths->n++];
    path->n = utf8_encode(first, a);
    utf8_encode(last, b);
    memcpy(path->first, a, 4);
    memcpy(path->last, b, 4);
}

/* Cuts a range where the length changes and wherever a byte that is not the last one would
 * begin or end a range with the bytes behind it not all free. */
static void add_range(struct paths *paths, uint32_t first, uint32_t last)
{
    static const uint32_t length_end[] = { 0x7F, 0x7FF, 0xFFFF, CP_MAX };

    for (int i = 0; i < 4; i++) {
        if (first <= length_end[i] && last > length_end[i]) {
            add_range(paths, first, length_end[i]);
            first = length_end[i] + 1;
        }
    }
    for (int bits = 6; bits <= 18 && last > 0x7F; bits += 6) {
        const uint32_t mask = ((uint32_t)1 << bits) - 1;
        if ((first & ~mask) == (last & ~mask)) {
            break;
        }
        if ((first & mask) != 0) {
            add_range(paths, first, first | mask);
            add_range(paths, (first | mask) + 1, last);
            return;
        }
        if ((last & mask) != mask) {
            add_range(paths, first, (last & ~mask) - 1);
            add_range(paths, last & ~mask, last);
            return;
        }
    }
    add_path(paths, first, last);
}

static void set_range(struct gram_set *set, unsigned first, unsigned last)
{
    for (unsigned b = first; b <= last; b++) {
        set->bits[b / 64] |= (uint64_t)1 << b % 64;
    }
}

/* The paths from their byte `at` on, which have everything before it in common and, apart from
 * the first byte, the same length. */
static gram_expr join_paths(struct grammar *g, const struct byte_path *p, size_t n, int at)
{
    struct gram_set ends = {{0}};
    struct gram_list alt = {0};

    for (size_t i = 0; i < n;) {
        size_t same = i;
        while (same < n && p[same].n == p[i].n && p[same].first[at] == p[i].first[at] &&
               p[same].last[at] == p[i].last[at]) {
            same++;
        }
        if (at + 1 >= p[i].n || at == 3) {
            set_range(&ends, p[i].first[at], p[i].last[at]);
        } else {
            const gram_expr here = gram_range(g, p[i].first[at], p[i].last[at]);
            const gram_expr rest = join_paths(g, p + i, same - i, at + 1);
            gram_list_add(g, &alt, GRAM_SEQ(g, here, rest));
        }
        i = same;
    }
    gram_list_add(g, &alt, gram_set(g, &ends));
    const gram_expr e = gram_alt(g, alt.e, alt.n);
    gram_list_deinit(&alt);
    return e;
}

gram_expr charset_expr(struct grammar *g, const struct charset *c)
{
    struct paths paths = {0};

    for (size_t i = 0; i < c->n; i++) {
        add_range(&paths, c->r[i].first, c->r[i].last);
    }
    g->no_memory |= paths.failed || c->failed;
    const gram_expr e = gram_failed(g) ? GRAM_NONE : join_paths(g, paths.p, paths.n, 0);
    mem_free(paths.p);
    return e;
}

/* ---- JSON --------------------------------------------------------------------------- */

/* How a character is written that has to be escaped; "" for others. */
static void escaped(uint32_t cp, char out[8])
{
    static const char *const names[] = {
        ['\b'] = "\\b", ['\f'] = "\\f", ['\n'] = "\\n", ['\r'] = "\\r", ['\t'] = "\\t",
        ['"'] = "\\\"", ['\\'] = "\\\\",
    };

    out[0] = '\0';
    if (cp < sizeof names / sizeof names[0] && names[cp]) {
        strcpy(out, names[cp]);
    } else if (cp < 0x20) {
        static const char hex[] = "0123456789abcdef";
        memcpy(out, "\\u00", 4);
        out[4] = hex[cp / 16];
        out[5] = hex[cp % 16];
        out[6] = '\0';
    }
}

gram_expr charset_json(struct grammar *g, const struct charset *c)
{
    struct gram_list alt = {0};
    struct charset plain = {0};

    charset_add_all(&plain, c);
    for (uint32_t cp = 0; cp <= '\\'; cp++) {
        char text[8];
        escaped(cp, text);
        if (text[0] && charset_has(c, cp)) {
            without(&plain, cp, cp);
            gram_list_add(g, &alt, gram_str(g, text));
        }
    }
    charset_close(&plain);
    gram_list_add(g, &alt, charset_expr(g, &plain));
    const gram_expr e = gram_alt(g, alt.e, alt.n);
    gram_list_deinit(&alt);
    charset_deinit(&plain);
    return e;
}

void json_escape(struct buf *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char text[8];
        escaped((unsigned char)s[i], text);
        if (text[0]) {
            buf_puts(out, text);
        } else {
            buf_putc(out, s[i]);
        }
    }
}

/* tok_special.c - special tokens in raw text.
 *
 * The rule is: take the longest special token anywhere in the text, the leftmost of equal
 * ones, cut it out, and go on with what is left on both sides.  Where special tokens do
 * not overlap that is a plain scan for the longest match.  Where they do, the scan climbs
 * from the leftmost match to an overlapping one of higher rank until there is none; that
 * one stands, and what is left of it is searched again.  The set is an array sorted by
 * text: a match narrows a range of it byte by byte. */
#include <stdlib.h>

#include "text/tok.h"

static int compare_texts(const void *pa, const void *pb, void *arg)
{
    const struct vocab *v = arg;
    int32_t a = *(const int32_t *)pa;
    int32_t b = *(const int32_t *)pb;
    struct gguf_str s = v->text[a];
    struct gguf_str t = v->text[b];
    int c = memcmp(s.s, t.s, s.n < t.n ? s.n : t.n);

    if (c != 0) {
        return c;
    }
    if (s.n != t.n) {
        return s.n < t.n ? -1 : 1;
    }
    return a < b ? -1 : a > b;
}

static bool belongs(const struct vocab *v, int32_t id, bool all)
{
    int type = token_type(v, id);

    return v->text[id].n > 0 &&
           (type == TOKEN_USER_DEFINED ||
            (all && (type == TOKEN_CONTROL || type == TOKEN_UNKNOWN)));
}

static bool same_text(struct gguf_str a, struct gguf_str b)
{
    return a.n == b.n && memcmp(a.s, b.s, a.n) == 0;
}

/* Fills the tables by first byte. */
static void index_first(struct specials *sp, const struct vocab *v)
{
    for (int i = 0; i < sp->n; i++) {
        struct gguf_str s = v->text[sp->ids[i]];
        unsigned char c = (unsigned char)s.s[0];

        sp->first[c + 1] = i + 1;
        if (s.n > sp->max_len[c]) {
            sp->max_len[c] = s.n < UINT32_MAX ? (uint32_t)s.n : UINT32_MAX;
        }
        if (v->kind != VOCAB_BPE && token_type(v, sp->ids[i]) == TOKEN_USER_DEFINED &&
            memchr(s.s, ' ', s.n) != NULL) {
            sp->marks = true;
        }
    }
    for (int c = 0; c < 256; c++) {
        if (sp->first[c + 1] < sp->first[c]) {
            sp->first[c + 1] = sp->first[c];
        }
    }
    unsigned char lead = (unsigned char)TOK_MARK[0];

    if (sp->marks && sp->max_len[lead] < sp->max_len[' ']) {
        sp->max_len[lead] = sp->max_len[' '];
    }
}

bool specials_init(struct specials *sp, const struct vocab *v, bool all, slm_error *err)
{
    size_t n = 0;

    for (int32_t id = 0; id < v->n; id++) {
        n += belongs(v, id, all);
    }
    sp->ids = mem_alloc(n, sizeof *sp->ids);
    if (sp->ids == NULL) {
        return slm_fail_nomem(err, "the special tokens");
    }
    n = 0;
    for (int32_t id = 0; id < v->n; id++) {
        if (belongs(v, id, all)) {
            sp->ids[n++] = id;
        }
    }
    qsort_r(sp->ids, n, sizeof *sp->ids, compare_texts, (void *)v);
    for (size_t i = 0; i < n; i++) {
        /* Of repeated texts the lowest id stays. */
        if (sp->n == 0 || !same_text(v->text[sp->ids[sp->n - 1]], v->text[sp->ids[i]])) {
            sp->ids[sp->n++] = sp->ids[i];
        }
    }
    index_first(sp, v);
    return true;
}

void specials_deinit(struct specials *sp)
{
    mem_free(sp->ids);
    *sp = (struct specials){0};
}

/* ---- matching ---------------------------------------------------------------------- */

struct search {
    const struct specials *sp;
    const struct vocab *v;
    const char *text;
    size_t limit;  /* matches end here at the latest */
    const struct span *spans;
    size_t n_spans;
};

struct match {
    size_t begin, end;
    size_t len;   /* of the token's text, which is what ranks */
    int32_t id;   /* -1: none */
};

/* Whether [begin, end) shares a byte with a span. */
static bool touches_span(const struct search *q, size_t begin, size_t end)
{
    size_t lo = 0;
    size_t hi = q->n_spans;

    while (lo < hi) {  /* first span that ends behind begin */
        size_t mid = lo + (hi - lo) / 2;

        if (q->spans[mid].end > begin) {
            hi = mid;
        } else {
            lo = mid + 1;
        }
    }
    for (; lo < q->n_spans && q->spans[lo].begin < end; lo++) {
        if (q->spans[lo].begin < q->spans[lo].end) {
            return true;
        }
    }
    return false;
}

/* Narrows [*lo, *hi), whose texts agree up to depth and are longer, to those with byte c there. */
static void narrow(const struct search *q, int *lo, int *hi, size_t depth, unsigned char c)
{
    const int32_t *ids = q->sp->ids;
    const struct gguf_str *text = q->v->text;

    if ((unsigned char)text[ids[*lo]].s[depth] == c &&
        (unsigned char)text[ids[*hi - 1]].s[depth] == c) {
        return;
    }
    for (int bound = 0; bound < 2; bound++) {
        int a = *lo;
        int b = *hi;

        while (a < b) {
            int mid = a + (b - a) / 2;

            if ((unsigned char)text[ids[mid]].s[depth] < c + bound) {
                a = mid + 1;
            } else {
                b = mid;
            }
        }
        *(bound == 0 ? lo : hi) = a;
    }
}

/* The byte at pos as the tokens spell it, and its length in the text. */
static unsigned char spelled(const struct search *q, size_t pos, size_t *len)
{
    unsigned char c = (unsigned char)q->text[pos];

    *len = 1;
    if (q->sp->marks && c == (unsigned char)TOK_MARK[0] &&
        is_mark(q->text + pos, q->limit - pos)) {
        *len = 3;
        c = ' ';
    }
    return c;
}

/* The longest special token that begins at pos. */
static struct match longest_at(const struct search *q, size_t pos)
{
    struct match best = {.id = -1};
    size_t at = pos;
    size_t step;
    unsigned char c = spelled(q, at, &step);
    int lo = q->sp->first[c];
    int hi = q->sp->first[c + 1];

    for (size_t depth = 1; lo < hi; depth++) {
        at += step;
        int32_t id = q->sp->ids[lo];

        if (q->v->text[id].n == depth) {
            if (token_type(q->v, id) == TOKEN_USER_DEFINED || !touches_span(q, pos, at)) {
                best = (struct match){pos, at, depth, id};
            }
            lo++;
        }
        if (lo == hi || at >= q->limit) {
            break;
        }
        c = spelled(q, at, &step);
        narrow(q, &lo, &hi, depth, c);
    }
    return best;
}

static struct match leftmost(const struct search *q, size_t pos)
{
    for (; pos < q->limit; pos++) {
        if (q->sp->max_len[(unsigned char)q->text[pos]] > 0) {
            struct match m = longest_at(q, pos);

            if (m.id >= 0) {
                return m;
            }
        }
    }
    return (struct match){.id = -1};
}

static bool outranks(struct match a, struct match b)
{
    return a.len > b.len || (a.len == b.len && a.id < b.id);
}

/* From a match to one that no overlapping match outranks. */
static struct match climb(const struct search *q, struct match m)
{
    for (;;) {
        struct match best = m;

        for (size_t pos = m.begin + 1; pos < m.end; pos++) {
            if (q->sp->max_len[(unsigned char)q->text[pos]] >= best.len) {
                struct match other = longest_at(q, pos);

                if (other.id >= 0 && outranks(other, best)) {
                    best = other;
                }
            }
        }
        if (best.begin == m.begin) {
            return m;
        }
        m = best;
    }
}

struct special_match special_next(const struct specials *sp, const struct vocab *v,
                                  const char *text, size_t pos, size_t n,
                                  const struct span *spans, size_t n_spans)
{
    struct search q = {sp, v, text, n, spans, n_spans};
    struct special_match out = {n, n, -1};

    while (sp->n > 0) {
        struct match first = leftmost(&q, pos);

        if (first.id < 0) {
            break;
        }
        struct match top = climb(&q, first);

        out = (struct special_match){top.begin, top.end, top.id};
        if (top.begin == first.begin) {
            break;
        }
        /* What is left of it is searched on its own. */
        pos = first.begin;
        q.limit = top.begin;
    }
    return out;
}

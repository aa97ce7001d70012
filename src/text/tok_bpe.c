/* tok_bpe.c - byte pair encoding by rank: byte-level ("gpt2") and gemma4.
 *
 * Most pieces are one token.  Whether a token's text merges to that token is found out
 * once and remembered, so that such a piece costs one look into the table.  A byte
 * without a token is dropped, as the models' own tokenizers do. */
#include "text/tok_cache.h"
#include "text/tok_merge.h"
#include "text/unicode.h"

static inline struct candidate by_ids(const struct tok_tables *t, int32_t left, int32_t right)
{
    return left < 0 || right < 0 ? (struct candidate){RANK_NONE, -1} : tok_pair(t, left, right);
}

static inline struct candidate merge_bytes_fn(const struct tok_tables *t, const char *s,
                                              struct symbol left, struct symbol right,
                                              uint32_t end)
{
    if (end - left.begin == 2) {
        unsigned char l = (unsigned char)s[left.begin];
        unsigned char r = (unsigned char)s[right.begin];

        return t->byte_pair[l * 256 + r];
    }
    return by_ids(t, left.id, right.id);
}

static inline struct candidate merge_chars_fn(const struct tok_tables *t, const char *s,
                                              struct symbol left, struct symbol right,
                                              uint32_t end)
{
    (void)s;
    (void)end;
    return by_ids(t, left.id, right.id);
}

/* ---- byte-level -------------------------------------------------------------------- */

/* Merges the bytes of a character.  Whether it becomes one token, with its parts before that and
 * the highest rank on the way. */
struct char_merge {
    size_t left, right;    /* bytes of the first and the last part before the last merge */
    struct candidate to;   /* the whole */
    uint32_t highest;
};

static struct char_merge merge_char(const struct tok_tables *t, const char *s, size_t n)
{
    const unsigned char *u = (const unsigned char *)s;
    struct candidate first = t->byte_pair[u[0] * 256 + u[1]];

    if (n == 2) {
        return (struct char_merge){1, 1, first, first.rank};
    }
    struct candidate second = t->byte_pair[u[1] * 256 + u[2]];
    bool at_first = first.rank <= second.rank;
    struct candidate part = at_first ? first : second;
    struct candidate to = at_first ? by_ids(t, part.id, t->byte_id[u[2]])
                                   : by_ids(t, t->byte_id[u[0]], part.id);

    return (struct char_merge){at_first ? 2 : 1, at_first ? 1 : 2, to,
                               part.rank > to.rank ? part.rank : to.rank};
}

/* Whether merging may start from the character's token in place of its bytes, wherever the
 * character stands but behind ASCII.  It may if all merges inside it come before all others that
 * its parts take part in, so that nothing gets between, and before all of the whole, so that
 * these find it complete. */
static bool char_is_apart(const struct tok_tables *t, const char *s, size_t n,
                          const struct char_merge *m)
{
    const struct edge *edge = t->edge;
    size_t last = n - 1;
    uint32_t rank = m->highest;

    return m->to.rank != RANK_NONE && rank < edge[tok_edge_at(s, 1)].right &&
           rank < edge[tok_edge_at(s, m->left)].right &&
           rank < edge[tok_edge_at(s + last, 1)].left &&
           rank < edge[tok_edge_at(s + n - m->right, m->right)].left &&
           rank < edge[tok_edge_at(s, n)].left && rank < edge[tok_edge_at(s, n)].right;
}

/* The token from which merging may start at the character s[0, n) of 2 or 3 bytes that does not
 * stand behind ASCII, or -1. */
static inline int32_t char_start(const struct tok_tables *t, const char *s, size_t n)
{
    uint32_t cp;

    unicode_next(s, &cp);
    int32_t known = atomic_load_explicit(&t->char_start[cp], memory_order_relaxed);

    if (known == 0) {
        struct char_merge m = merge_char(t, s, n);

        known = char_is_apart(t, s, n, &m) ? m.to.id + 1 : -1;
        atomic_store_explicit(&t->char_start[cp], known, memory_order_relaxed);
    }
    return known > 0 ? known - 1 : -1;
}

/* Bytes, and characters where they come to the same.  Returns the number of symbols. */
static size_t byte_symbols(const struct tok_tables *t, const char *s, size_t n, struct symbol *sym)
{
    size_t count = 0;
    size_t i = 0;

    while (i < n) {
        unsigned char c = (unsigned char)s[i];

        if (c >= 0xC0 && c < 0xF0 && (i == 0 || (s[i - 1] & 0x80))) {
            size_t len = c < 0xE0 ? 2 : 3;
            int32_t id = char_start(t, s + i, len);

            if (id >= 0) {
                sym[count++] = (struct symbol){id, (uint32_t)i};
                i += len;
                continue;
            }
        }
        sym[count++] = (struct symbol){t->byte_id[c], (uint32_t)i++};
    }
    sym[count].begin = (uint32_t)n;
    return count;
}

static void push_symbols(struct tok_call *c, const struct symbol *sym, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (sym[i].id >= 0) {
            ids_push(c, sym[i].id);
        }
    }
}

/* A piece of more symbols than bytes fit into merge_short.  Returns what are left, NULL (and
 * failed) without memory. */
static struct symbol *merge_many(struct tok_call *c, const char *s, size_t *n)
{
    struct symbol *sym = tok_work(c, merge_bytes(*n));

    if (sym != NULL) {
        *n = byte_symbols(c->t, s, *n, sym);
        *n = merge_long(c->t, s, sym, *n, merge_bytes_fn);
    }
    return sym;
}

static __attribute__((noinline)) void merge_piece(struct tok_call *c, const char *s, size_t n)
{
    const struct tok_tables *t = c->t;
    int32_t found = tok_find(t, s, n);

    if (tok_is_whole(t, found) || (found >= 0 && (c->v->pre->flags & PRETOK_WHOLE))) {
        ids_push(c, found);
        return;
    }
    /* So many bytes may be as few characters of three. */
    enum { FEW_BYTES = 3 * MERGE_SHORT };
    struct symbol few[FEW_BYTES + 1];
    struct symbol *sym = few;
    size_t count = n <= FEW_BYTES ? byte_symbols(t, s, n, few) : n;

    if (count <= MERGE_SHORT) {
        count = merge_short(t, s, sym, count, merge_bytes_fn);
    } else {
        count = n;
        sym = merge_many(c, s, &count);
        if (sym == NULL) {
            return;
        }
    }
    tok_set_whole(t, found, count == 1);
    push_symbols(c, sym, count);
}

/* Pieces are found some ahead of their tokens, so that entries of the cache come from memory
 * all together. */
void tok_bpe(struct tok_call *c, const char *s, size_t n)
{
    size_t cuts[PRETOK_PASS_MAX] = {0};
    struct cache_ask ask[PRETOK_CUT_MAX];
    uint32_t end[PRETOK_CUT_MAX];
    uint8_t distant[PRETOK_CUT_MAX];  /* pieces whose tokens are records */

    for (size_t at = 0; at < n && !c->failed;) {
        size_t n_pieces = pretok_cut(c->v->pre, s, n, at, cuts, end);
        size_t n_distant = 0;
        size_t pos = at;

        tok_cache_begin(c);
        for (size_t i = 0; i < n_pieces; pos = end[i++]) {
            ask[i] = tok_cache_ask(c, s + pos, end[i] - pos, n - pos);
            if (ask[i].set == NULL && ask[i].hash != 0) {
                distant[n_distant++] = (uint8_t)i;
            }
        }
        for (size_t i = 0; i < n_distant; i++) {
            tok_cache_fetch(c, &ask[distant[i]]);
        }
        for (size_t i = 0; i < n_pieces; at = end[i++]) {
            if (!tok_cache_get(c, &ask[i], s + at, end[i] - at)) {
                size_t first = c->out->n;

                merge_piece(c, s + at, end[i] - at);
                tok_cache_put(c, &ask[i], s + at, end[i] - at, first);
            }
        }
    }
}

/* ---- gemma4 ------------------------------------------------------------------------ */

/* sym has room for n + 1.  Returns the number of characters. */
static size_t char_symbols(const struct tok_tables *t, const char *s, size_t n, struct symbol *sym)
{
    size_t count = 0;

    for (size_t i = 0; i < n;) {
        size_t len = tok_char_len(s + i, n - i);

        sym[count++] = (struct symbol){tok_find(t, s + i, len), (uint32_t)i};
        i += len;
    }
    sym[count].begin = (uint32_t)n;
    return count;
}

static void push_chars(struct tok_call *c, const char *s, const struct symbol *sym, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (sym[i].id >= 0) {
            ids_push(c, sym[i].id);
        } else {
            tok_bytes(c, s + sym[i].begin, sym[i + 1].begin - sym[i].begin);
        }
    }
}

static void merge_chunk(struct tok_call *c, const char *s, size_t n)
{
    const struct tok_tables *t = c->t;
    int32_t found = tok_find(t, s, n);

    if (tok_is_whole(t, found)) {
        ids_push(c, found);
        return;
    }
    struct symbol few[MERGE_SHORT + 1];
    struct symbol *sym = n > MERGE_SHORT ? tok_work(c, merge_bytes(n)) : few;

    if (sym == NULL) {
        return;
    }
    size_t count = char_symbols(t, s, n, sym);

    count = n > MERGE_SHORT ? merge_long(t, s, sym, count, merge_chars_fn)
                            : merge_short(t, s, sym, count, merge_chars_fn);
    tok_set_whole(t, found, count == 1);
    push_chars(c, s, sym, count);
}

static void chunk(struct tok_call *c, const char *s, size_t n)
{
    tok_cache_begin(c);
    struct cache_ask ask = tok_cache_ask(c, s, n, n);

    if (!tok_cache_get(c, &ask, s, n)) {
        size_t first = c->out->n;

        merge_chunk(c, s, n);
        tok_cache_put(c, &ask, s, n, first);
    }
}

/* Lines and runs of newlines are apart; a run of newlines that is a token stays one. */
void tok_gemma4(struct tok_call *c, const char *s, size_t n)
{
    size_t cuts[PRETOK_PASS_MAX] = {0};

    for (size_t pos = 0; pos < n && !c->failed;) {
        size_t end = pretok_next(c->v->pre, s, n, pos, cuts);
        int32_t id = s[pos] == '\n' ? tok_find(c->t, s + pos, end - pos) : -1;

        if (id >= 0) {
            ids_push(c, id);
            pos = end;
            continue;
        }
        while (pos < end && !c->failed) {
            struct gguf_str part;

            pos = tok_chunk(c, s, pos, end, &part);
            if (!c->failed) {
                chunk(c, part.s, part.n);
            }
        }
    }
}

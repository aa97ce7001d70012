/* tok_bpe.c - byte pair encoding by rank: byte-level ("gpt2") and gemma4.
 *
 * Most pieces are one token.  Whether a token's text merges to that token is found out
 * once and remembered, so that such a piece costs one look into the table.  A byte
 * without a token is dropped, as the models' own tokenizers do. */
#include "text/tok_merge.h"

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

static size_t byte_symbols(const struct tok_tables *t, const char *s, size_t n, struct symbol *sym)
{
    for (size_t i = 0; i < n; i++) {
        sym[i] = (struct symbol){t->byte_id[(unsigned char)s[i]], (uint32_t)i};
    }
    sym[n].begin = (uint32_t)n;
    return n;
}

static void push_symbols(struct tok_call *c, const struct symbol *sym, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (sym[i].id >= 0) {
            ids_push(c, sym[i].id);
        }
    }
}

static void long_piece(struct tok_call *c, const char *s, size_t n, int32_t found)
{
    struct symbol *sym = tok_work(c, merge_bytes(n));

    if (sym == NULL) {
        return;
    }
    byte_symbols(c->t, s, n, sym);
    n = merge_long(c->t, s, sym, n, merge_bytes_fn);
    tok_set_whole(c->t, found, n == 1);
    push_symbols(c, sym, n);
}

static __attribute__((noinline)) void merge_piece(struct tok_call *c, const char *s, size_t n)
{
    const struct tok_tables *t = c->t;
    int32_t found = tok_find(t, s, n);

    if (tok_is_whole(t, found) || (found >= 0 && (c->v->pre->flags & PRETOK_WHOLE))) {
        ids_push(c, found);
        return;
    }
    if (n > MERGE_SHORT) {
        long_piece(c, s, n, found);
        return;
    }
    struct symbol sym[MERGE_SHORT + 1];

    byte_symbols(t, s, n, sym);
    n = merge_short(t, s, sym, n, merge_bytes_fn);
    tok_set_whole(t, found, n == 1);
    push_symbols(c, sym, n);
}

/* Pieces are found some ahead of their tokens, so that entries of the cache come from memory
 * all together. */
void tok_bpe(struct tok_call *c, const char *s, size_t n)
{
    size_t cuts[PRETOK_PASS_MAX] = {0};
    struct cache_ask ask[PRETOK_CUT_MAX];
    uint32_t end[PRETOK_CUT_MAX];

    for (size_t at = 0; at < n && !c->failed;) {
        size_t n_pieces = pretok_cut(c->v->pre, s, n, at, cuts, end);
        size_t pos = at;

        for (size_t i = 0; i < n_pieces; pos = end[i++]) {
            ask[i] = tok_cache_ask(c, s + pos, end[i] - pos, n - pos);
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

/* tok_spm.c - merging by score ("llama"), with bytes for what has no token.
 *
 * The rule merges over a whole fragment.  Since every merge gives a token, none can reach
 * across a place where no token has the two bytes that meet there; in front of U+2581 that
 * holds nearly always, so a fragment falls apart into words and the result is the same. */
#include "text/tok_cache.h"
#include "text/tok_merge.h"

static inline struct candidate merge_text_fn(const struct tok_tables *t, const char *s,
                                             struct symbol left, struct symbol right,
                                             uint32_t end)
{
    (void)right;
    int32_t id = tok_find_rare(t, s + left.begin, end - left.begin);

    return (struct candidate){id < 0 ? RANK_NONE : t->score_rank[id], id};
}

/* Copies s with U+2581 for spaces. */
static void copy_marked(struct buf *b, const char *s, size_t n)
{
    size_t copied = 0;

    for (size_t i = 0; i < n; i++) {
        if (s[i] == ' ') {
            buf_add(b, s + copied, i - copied);
            buf_add(b, TOK_MARK, 3);
            copied = i + 1;
        }
    }
    buf_add(b, s + copied, n - copied);
}

size_t tok_chunk(struct tok_call *c, const char *s, size_t pos, size_t n, struct gguf_str *chunk)
{
    const struct tok_tables *t = c->t;
    size_t end = pos;
    bool spaces = false;
    bool joined = true;

    while (end < n && joined) {
        unsigned char last;

        if (s[end] == ' ') {
            spaces = true;
            last = (unsigned char)TOK_MARK[2];
            end++;
        } else {
            end += tok_char_len(s + end, n - end);
            last = (unsigned char)s[end - 1];
        }
        if (end < n) {
            unsigned char next = (unsigned char)s[end];

            joined = next == ' ' || is_mark(s + end, n - end)
                         ? t->beside_mark[last]
                         : t->beside[last][next / 64] >> next % 64 & 1;
        }
    }
    *chunk = (struct gguf_str){s + pos, end - pos};
    if (spaces) {
        buf_clear(&c->chunk);
        copy_marked(&c->chunk, s + pos, end - pos);
        c->failed |= c->chunk.failed;
        *chunk = (struct gguf_str){buf_str(&c->chunk), c->chunk.len};
    }
    return end;
}

void tok_bytes(struct tok_call *c, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int32_t id = c->t->byte_id[(unsigned char)s[i]];

        id = id < 0 ? c->v->unk : id;
        if (id >= 0) {
            ids_push(c, id);
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
    size_t count = 0;

    if (sym == NULL) {
        return;
    }
    for (size_t i = 0; i < n;) {
        sym[count++] = (struct symbol){-1, (uint32_t)i};
        i += tok_char_len(s + i, n - i);
    }
    sym[count].begin = (uint32_t)n;
    count = n > MERGE_SHORT ? merge_long(t, s, sym, count, merge_text_fn)
                            : merge_short(t, s, sym, count, merge_text_fn);
    tok_set_whole(t, found, count == 1);
    for (size_t i = 0; i < count; i++) {
        size_t len = sym[i + 1].begin - sym[i].begin;
        int32_t id = sym[i].id >= 0 ? sym[i].id : tok_find(t, s + sym[i].begin, len);

        if (id >= 0) {
            ids_push(c, id);
        } else {
            tok_bytes(c, s + sym[i].begin, len);
        }
    }
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

void tok_spm(struct tok_call *c, const char *s, size_t n, bool space)
{
    if (n == 0) {
        return;
    }
    if (space) {
        buf_clear(&c->text);
        buf_putc(&c->text, ' ');
        buf_add(&c->text, s, n);
        if (c->text.failed) {
            c->failed = true;
            return;
        }
        s = c->text.data;
        n = c->text.len;
    }
    for (size_t pos = 0; pos < n && !c->failed;) {
        struct gguf_str piece;

        pos = tok_chunk(c, s, pos, n, &piece);
        if (!c->failed) {
            chunk(c, piece.s, piece.n);
        }
    }
}

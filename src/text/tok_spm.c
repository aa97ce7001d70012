/* tok_spm.c - merging by score ("llama"), with bytes for what has no token.
 *
 * The rule merges over a whole fragment.  Since every merge gives a token, none can reach
 * across a place where no token continues; in front of U+2581 that holds nearly always, so
 * a fragment falls apart into words and the result stays the same. */
#include "text/tok_merge.h"

enum { WHOLE_UNKNOWN, WHOLE_YES, WHOLE_NO };

static inline struct candidate merge_text_fn(const struct tok_tables *t, const char *s,
                                             struct symbol left, struct symbol right,
                                             uint32_t end)
{
    (void)right;
    int32_t id = tok_find(t, s + left.begin, end - left.begin);

    return (struct candidate){id < 0 ? RANK_NONE : t->score_rank[id], id};
}

size_t tok_chunk(struct tok_call *c, const char *s, size_t pos, size_t n)
{
    struct buf *b = &c->chunk;
    size_t run = pos;  /* what is not copied yet */
    size_t i = pos;

    buf_clear(b);
    for (;;) {
        while (i < n && s[i] != ' ' && s[i] != TOK_MARK[0]) {
            i++;
        }
        bool mark = i < n && s[i] != ' ';

        if (mark && !is_mark(s + i, n - i)) {
            i++;
            continue;
        }
        buf_add(b, s + run, i - run);
        if (i >= n || (b->len > 0 && !c->t->crosses[(unsigned char)b->data[b->len - 1]])) {
            break;
        }
        buf_add(b, TOK_MARK, 3);
        i += mark ? 3 : 1;
        run = i;
    }
    c->failed |= b->failed;
    return b->failed ? n : i;
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

static void chunk(struct tok_call *c, const char *s, size_t n)
{
    const struct tok_tables *t = c->t;
    int32_t found = tok_find(t, s, n);

    if (found >= 0 &&
        atomic_load_explicit(&t->whole[found], memory_order_relaxed) == WHOLE_YES) {
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
    if (found >= 0) {
        atomic_store_explicit(&t->whole[found], count == 1 ? WHOLE_YES : WHOLE_NO,
                              memory_order_relaxed);
    }
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
        pos = tok_chunk(c, s, pos, n);
        chunk(c, c->chunk.data, c->chunk.len);
    }
}

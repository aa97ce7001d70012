/* mask.c - the trie of a vocabulary, and the bitmap of allowed tokens from a walk of it
 * side by side with the automaton.
 *
 * What is below a node that the automaton cannot enter is skipped, so that a state which
 * allows little costs little; a state in which nearly everything goes costs one look at
 * the table for each node. */
#include "guide/mask.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* Longer tokens are never allowed; none that a model was trained with is near it. */
enum { TOKEN_BYTES_MAX = 4096 };

/* ---- the trie ----------------------------------------------------------------------- */

const char *guide_token(const struct vocab *v, int32_t id, size_t *n, bool *control)
{
    const char *s = vocab_piece(v, id, false, n);

    *control = *n == 0;
    return *control ? vocab_piece(v, id, true, n) : s;
}

struct entry {
    const unsigned char *s;
    uint32_t n;  /* with the byte of GUIDE_CONTROL */
    int32_t id;
    bool control;
};

static unsigned byte_at(const struct entry *e, uint32_t i)
{
    return !e->control ? e->s[i] : i == 0 ? 0xFFu : e->s[i - 1];
}

/* Ordinary tokens never have the byte of GUIDE_CONTROL, so those of control come last. */
static int by_bytes(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    if (x->control != y->control) {
        return x->control ? 1 : -1;
    }
    const uint32_t n = (x->n < y->n ? x->n : y->n) - x->control;
    const int c = memcmp(x->s, y->s, n);
    return c != 0 ? c : x->n != y->n ? (x->n < y->n ? -1 : 1) : x->id - y->id;
}

static uint32_t common(const struct entry *a, const struct entry *b)
{
    uint32_t i = 0;

    while (i < a->n && i < b->n && byte_at(a, i) == byte_at(b, i)) {
        i++;
    }
    return i;
}

static uint32_t collect(const struct vocab *v, struct entry *entry, uint64_t *end)
{
    uint32_t count = 0;

    for (int32_t id = 0; id < vocab_size(v); id++) {
        bool control;
        size_t n;
        const char *s = guide_token(v, id, &n, &control);
        if (vocab_is_end(v, id)) {
            end[id / 64] |= (uint64_t)1 << id % 64;
        } else if (n > 0 && n <= TOKEN_BYTES_MAX && !memchr(s, 0xFF, n)) {
            entry[count++] = (struct entry){ (const unsigned char *)s, (uint32_t)n + control, id,
                                             control };
        }
    }
    return count;
}

static uint32_t count_nodes(const struct entry *entry, uint32_t n)
{
    uint32_t nodes = 1;

    for (uint32_t i = 0; i < n; i++) {
        nodes += entry[i].n - (i > 0 ? common(&entry[i - 1], &entry[i]) : 0);
    }
    return nodes;
}

/* open: scratch, the node at each depth of the token before. */
static void fill_nodes(struct guide_vocab *t, const struct entry *entry, uint32_t n,
                       uint32_t *open)
{
    uint32_t node = 1, depth = 0;

    open[0] = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t same = i > 0 ? common(&entry[i - 1], &entry[i]) : 0;
        for (; depth > same; depth--) {
            t->skip[open[depth]] = node;
        }
        for (; depth < entry[i].n; node++) {
            t->byte[node] = (unsigned char)byte_at(&entry[i], depth);
            t->depth[node] = (uint16_t)++depth;
            t->token[node] = i;
            open[depth] = node;
        }
        t->order[i] = entry[i].id;
        t->depth_max = depth > t->depth_max ? depth : t->depth_max;
    }
    for (;; depth--) {
        t->skip[open[depth]] = node;
        if (depth == 0) {
            break;
        }
    }
    t->token[node] = n;
}

static bool build(struct guide_vocab *t)
{
    const size_t n_vocab = (size_t)vocab_size(t->v);
    struct entry *entry = mem_alloc(n_vocab, sizeof *entry);
    uint32_t *open = mem_alloc(TOKEN_BYTES_MAX + 2, sizeof *open);
    uint32_t n = 0;

    t->words = (n_vocab + 63) / 64;
    t->end = mem_zalloc(t->words, sizeof *t->end);
    if (entry && t->end) {
        n = collect(t->v, entry, t->end);
        qsort(entry, n, sizeof *entry, by_bytes);
        t->n_nodes = count_nodes(entry, n);
    }
    t->byte = mem_zalloc(t->n_nodes, sizeof *t->byte);
    t->depth = mem_zalloc(t->n_nodes, sizeof *t->depth);
    t->skip = mem_zalloc(t->n_nodes, sizeof *t->skip);
    t->token = mem_zalloc((size_t)t->n_nodes + 1, sizeof *t->token);
    t->order = mem_alloc(n, sizeof *t->order);
    const bool ok = entry && open && t->end && t->byte && t->depth && t->skip && t->token &&
                    t->order;
    if (ok) {
        fill_nodes(t, entry, n, open);
    }
    mem_free(entry);
    mem_free(open);
    return ok;
}

struct guide_vocab *guide_vocab_new(const struct vocab *v, slm_error *err)
{
    struct guide_vocab *t = mem_zalloc(1, sizeof *t);

    if (t) {
        t->v = v;
    }
    if (!t || !build(t)) {
        guide_vocab_free(t);
        slm_fail_nomem(err, "the vocabulary of a guide");
        return NULL;
    }
    return t;
}

void guide_vocab_free(struct guide_vocab *t)
{
    if (!t) {
        return;
    }
    mem_free(t->byte);
    mem_free(t->depth);
    mem_free(t->skip);
    mem_free(t->token);
    mem_free(t->order);
    mem_free(t->end);
    mem_free(t);
}

bool guide_vocab_has_control(const struct guide_vocab *t, const char *text)
{
    const size_t len = strlen(text);
    uint32_t node = 1;

    for (size_t i = 0; i <= len; i++) {
        const unsigned char byte = i == 0 ? 0xFF : (unsigned char)text[i - 1];
        while (node < t->n_nodes && t->depth[node] == i + 1 && t->byte[node] != byte) {
            node = t->skip[node];
        }
        if (node >= t->n_nodes || t->depth[node] != i + 1) {
            return false;
        }
        if (i == len) {
            return t->token[node + 1] > t->token[node];
        }
        node++;
    }
    return false;
}

/* ---- masks -------------------------------------------------------------------------- */

static bool walk(struct automaton *a, const struct guide_vocab *t, int32_t state, int32_t *path,
                 uint64_t *bits, slm_error *err)
{
    const struct automaton_table *table = automaton_table(a);

    path[0] = state;
    for (uint32_t i = 1; i < t->n_nodes;) {
        const uint32_t depth = t->depth[i];
        const int32_t from = path[depth - 1];
        int32_t to = table->next[(size_t)from * table->n_classes + table->class_of[t->byte[i]]];
        if (to == STATE_UNKNOWN) {
            to = automaton_step_slow(a, from, t->byte[i], err);
            if (to < 0) {
                return false;
            }
        }
        if (to == STATE_DEAD) {
            i = t->skip[i];
            continue;
        }
        path[depth] = to;
        for (uint32_t k = t->token[i]; k < t->token[i + 1]; k++) {
            bits[t->order[k] / 64] |= (uint64_t)1 << t->order[k] % 64;
        }
        i++;
    }
    return true;
}

const uint64_t *mask_get(struct automaton *a, const struct guide_vocab *t, int32_t state,
                         int32_t *path, slm_error *err)
{
    uint64_t *bits = automaton_data(a, state);

    if (bits) {
        return bits;
    }
    bits = mem_zalloc(t->words, sizeof *bits);
    if (!bits) {
        slm_fail_nomem(err, "the allowed tokens of a state");
        return NULL;
    }
    if (!walk(a, t, state, path, bits, err)) {
        mem_free(bits);
        return NULL;
    }
    automaton_set_data(a, state, bits, t->words * sizeof *bits);
    return bits;
}

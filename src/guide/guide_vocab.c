/* guide_vocab.c - the tokens of a vocabulary as tries of their bytes.
 *
 * Few tokens are long, but what may follow within the reach of the longest one differs in
 * many more states than what may follow within a few bytes.  So the long ones have a trie
 * of their own. */
#include "guide/guide_vocab.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* ---- tokens ------------------------------------------------------------------------- */

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

/* The tokens of text with `least` to `most` bytes. */
static uint32_t collect(const struct vocab *v, struct entry *entry, uint32_t least, uint32_t most)
{
    uint32_t count = 0;

    for (int32_t id = 0; id < vocab_size(v); id++) {
        bool control;
        size_t n;
        const char *s = guide_token(v, id, &n, &control);
        if (n > 0 && n + control >= least && n + control <= most && !vocab_is_end(v, id) &&
            !memchr(s, 0xFF, n)) {
            entry[count++] = (struct entry){ (const unsigned char *)s, (uint32_t)n + control, id,
                                             control };
        }
    }
    return count;
}

/* ---- kinds of bytes ----------------------------------------------------------------- */

/* What a byte may be behind others: of the bytes left of its character there have to be `left`
 * more, the next one between lo and hi. */
struct reading {
    uint8_t left, lo, hi;
    bool broken;
};

uint64_t guide_byte_kind(unsigned char b)
{
    static const char alone[] = "\t\n\r !\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
    const char *at = b ? strchr(alone, b) : NULL;

    return b >= '0' && b <= '9'   ? KIND_DIGIT
           : b >= 'A' && b <= 'Z' ? KIND_UPPER
           : b >= 'a' && b <= 'z' ? KIND_LOWER
           : at                   ? KIND_FIRST_ALONE << (at - alone)
                                  : KIND_CONTROL;
}

static uint64_t lead_kind(unsigned char b, struct reading *r)
{
    *r = (struct reading){ .lo = 0x80, .hi = 0xBF };
    if (b < 0x80) {
        return guide_byte_kind(b);
    }
    if (b < 0xC2 || b > 0xF4) {
        r->broken = true;
        return KIND_BROKEN;
    }
    r->left = b < 0xE0 ? 1 : b < 0xF0 ? 2 : 3;
    r->lo = b == 0xE0 ? 0xA0 : b == 0xF0 ? 0x90 : 0x80;
    r->hi = b == 0xED ? 0x9F : b == 0xF4 ? 0x8F : 0xBF;
    return KIND_CHARACTER;
}

static uint64_t next_kind(unsigned char b, struct reading *r)
{
    if (r->broken || (r->left > 0 && (b < r->lo || b > r->hi))) {
        r->broken = true;
        return KIND_BROKEN;
    }
    if (r->left == 0) {
        return lead_kind(b, r);
    }
    *r = (struct reading){ .left = (uint8_t)(r->left - 1), .lo = 0x80, .hi = 0xBF };
    return KIND_CHARACTER;
}

/* Kinds of the bytes below each node; by_depth, below: scratch [depth_max + 2]. */
static void fill_kinds(struct guide_trie *t, struct reading *by_depth, uint64_t *below)
{
    by_depth[0] = (struct reading){0};
    for (uint32_t i = 1; i < t->n_nodes; i++) {
        struct reading r = by_depth[t->depth[i] - 1];
        t->below[i] = next_kind(t->byte[i], &r);
        by_depth[t->depth[i]] = r;
    }
    memset(below, 0, ((size_t)t->depth_max + 2) * sizeof *below);
    for (uint32_t i = t->n_nodes; i-- > 1;) {
        const uint32_t depth = t->depth[i];
        const uint64_t own = t->below[i];
        t->below[i] = below[depth + 1];
        below[depth] |= own | below[depth + 1];
        below[depth + 1] = 0;
    }
}

/* ---- tries -------------------------------------------------------------------------- */

static uint32_t count_nodes(const struct entry *entry, uint32_t n)
{
    uint32_t nodes = 1;

    for (uint32_t i = 0; i < n; i++) {
        nodes += entry[i].n - (i > 0 ? common(&entry[i - 1], &entry[i]) : 0);
    }
    return nodes;
}

/* open: scratch, the node at each depth of the token before. */
static void fill_nodes(struct guide_trie *t, const struct entry *entry, uint32_t n,
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

/* entry: scratch [vocab_size]. */
static bool build(struct guide_trie *t, const struct vocab *v, uint32_t least, uint32_t most,
                  struct entry *entry)
{
    const uint32_t n = collect(v, entry, least, most);
    const size_t depths = (size_t)most + 2;

    qsort(entry, n, sizeof *entry, by_bytes);
    t->n_nodes = count_nodes(entry, n);
    t->byte = mem_zalloc(t->n_nodes, sizeof *t->byte);
    t->depth = mem_zalloc(t->n_nodes, sizeof *t->depth);
    t->skip = mem_zalloc(t->n_nodes, sizeof *t->skip);
    t->below = mem_zalloc(t->n_nodes, sizeof *t->below);
    t->token = mem_zalloc((size_t)t->n_nodes + 1, sizeof *t->token);
    t->order = mem_alloc(n, sizeof *t->order);
    uint32_t *open = mem_alloc(depths, sizeof *open);
    struct reading *by_depth = mem_alloc(depths, sizeof *by_depth);
    uint64_t *below = mem_alloc(depths, sizeof *below);
    const bool ok = t->byte && t->depth && t->skip && t->below && t->token && t->order && open &&
                    by_depth && below;
    if (ok) {
        fill_nodes(t, entry, n, open);
        fill_kinds(t, by_depth, below);
    }
    mem_free(open);
    mem_free(by_depth);
    mem_free(below);
    return ok;
}

static void trie_deinit(struct guide_trie *t)
{
    mem_free(t->byte);
    mem_free(t->depth);
    mem_free(t->skip);
    mem_free(t->below);
    mem_free(t->token);
    mem_free(t->order);
}

/* Whether a control token of this text is in the trie. */
static bool has_control(const struct guide_trie *t, const char *text)
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

/* ---- the vocabulary ----------------------------------------------------------------- */

static bool fill(struct guide_vocab *t)
{
    const size_t n_vocab = (size_t)vocab_size(t->v);
    struct entry *entry = mem_alloc(n_vocab, sizeof *entry);

    t->words = (n_vocab + 63) / 64;
    t->end = mem_zalloc(t->words, sizeof *t->end);
    for (int32_t id = 0; t->end && (size_t)id < n_vocab; id++) {
        t->end[id / 64] |= (uint64_t)vocab_is_end(t->v, id) << id % 64;
    }
    const bool ok = entry && t->end && build(&t->near, t->v, 1, GUIDE_NEAR, entry) &&
                    build(&t->far, t->v, GUIDE_NEAR + 1, GUIDE_TOKEN_MAX, entry);
    mem_free(entry);
    return ok;
}

struct guide_vocab *guide_vocab_new(const struct vocab *v, slm_error *err)
{
    struct guide_vocab *t = mem_zalloc(1, sizeof *t);

    if (t) {
        t->v = v;
    }
    if (!t || !fill(t)) {
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
    trie_deinit(&t->near);
    trie_deinit(&t->far);
    mem_free(t->end);
    mem_free(t);
}

bool guide_vocab_has_control(const struct guide_vocab *t, const char *text)
{
    return has_control(&t->near, text) || has_control(&t->far, text);
}

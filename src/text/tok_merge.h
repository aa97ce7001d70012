/* tok_merge.h - merging neighbours, best first; the leftmost of equals.
 *
 * One algorithm for all kinds, instantiated with a function that says what two neighbours
 * would become.  Short pieces, nearly all there are, keep their ranks in a plain array.
 * Long ones use a linked list and a tournament tree over the ranks, which gives
 * O(n log n) whatever the text and needs a fixed 32 to 40 bytes a symbol. */
#ifndef TOK_MERGE_H
#define TOK_MERGE_H

#include "text/tok.h"

struct symbol {
    int32_t id;      /* -1: no token */
    uint32_t begin;  /* in the piece */
};

typedef struct candidate merge_fn(const struct tok_tables *t, const char *s, struct symbol left,
                                  struct symbol right, uint32_t end);

enum { MERGE_SHORT = 48 };

/* The leftmost of the lowest ranks; n >= 1. */
static inline size_t merge_lowest(const uint32_t *rank, size_t n)
{
    uint32_t low = rank[0];
    size_t at = 0;

    for (size_t i = 1; i < n; i++) {
        at = rank[i] < low ? i : at;
        low = rank[i] < low ? rank[i] : low;
    }
    return at;
}

/* sym[n] holds the end of the piece in `begin`.  Returns how many symbols are left. */
static inline __attribute__((always_inline)) size_t
merge_short(const struct tok_tables *t, const char *s, struct symbol *sym, size_t n, merge_fn *fn)
{
    uint32_t rank[MERGE_SHORT];
    int32_t id[MERGE_SHORT];  /* of the candidate */
    struct candidate c;

    for (size_t i = 0; i + 1 < n; i++) {
        c = fn(t, s, sym[i], sym[i + 1], sym[i + 2].begin);
        rank[i] = c.rank;
        id[i] = c.id;
    }
    while (n > 1) {
        size_t best = merge_lowest(rank, n - 1);

        if (rank[best] == RANK_NONE) {
            break;
        }
        sym[best].id = id[best];
        n--;
        /* Both looks into the table of pairs wait together. */
        if (t->pair != NULL) {
            tok_pair_fetch(t, sym[best].id, sym[best + (best + 1 < n ? 2 : 0)].id);
            tok_pair_fetch(t, sym[best - (best > 0)].id, sym[best].id);
        }
        /* The loops are short, so that calls to memmove would cost more. */
        for (size_t i = best + 1; i <= n; i++) {
            sym[i] = sym[i + 1];
        }
        for (size_t i = best + 1; i + 1 < n; i++) {
            rank[i] = rank[i + 1];
            id[i] = id[i + 1];
        }
        if (best + 1 < n) {
            c = fn(t, s, sym[best], sym[best + 1], sym[best + 2].begin);
            rank[best] = c.rank;
            id[best] = c.id;
        }
        if (best > 0) {
            c = fn(t, s, sym[best - 1], sym[best], sym[best + 1].begin);
            rank[best - 1] = c.rank;
            id[best - 1] = c.id;
        }
    }
    return n;
}

/* ---- long pieces ------------------------------------------------------------------- */

/* tree[1] is the lowest rank of all, tree[cap + i] that of the pair which starts at symbol i. */
static inline void tree_set(uint32_t *tree, size_t cap, size_t i, uint32_t rank)
{
    i += cap;
    tree[i] = rank;
    for (i /= 2; i > 0; i /= 2) {
        uint32_t low = tree[2 * i] < tree[2 * i + 1] ? tree[2 * i] : tree[2 * i + 1];

        if (tree[i] == low) {
            break;
        }
        tree[i] = low;
    }
}

static inline size_t tree_first(const uint32_t *tree, size_t cap)
{
    size_t i = 1;

    while (i < cap) {
        i = 2 * i + (tree[2 * i] != tree[1]);
    }
    return i - cap;
}

/* Leaves for n symbols. */
static inline size_t merge_tree_cap(size_t n)
{
    size_t cap = 64;

    while (cap < n) {
        cap *= 2;
    }
    return cap;
}

/* Bytes for n symbols with the end mark and what merge_long needs beside them. */
static inline size_t merge_bytes(size_t n)
{
    return (n + 1) * sizeof(struct symbol) + (3 * n + 2 * merge_tree_cap(n)) * sizeof(uint32_t);
}

/* The same as merge_short; sym lies at the beginning of merge_bytes(n) bytes. */
static inline __attribute__((always_inline)) size_t
merge_long(const struct tok_tables *t, const char *s, struct symbol *sym, size_t n, merge_fn *fn)
{
    size_t cap = merge_tree_cap(n);
    uint32_t *next = (uint32_t *)(sym + n + 1);
    uint32_t *prev = next + n;
    int32_t *id = (int32_t *)(prev + n);  /* of the candidate */
    uint32_t *tree = (uint32_t *)(id + n);

    for (size_t i = 0; i < n; i++) {
        next[i] = (uint32_t)i + 1;
        prev[i] = (uint32_t)i - 1;
        tree[cap + i] = RANK_NONE;
        if (i + 1 < n) {
            struct candidate c = fn(t, s, sym[i], sym[i + 1], sym[i + 2].begin);

            tree[cap + i] = c.rank;
            id[i] = c.id;
        }
    }
    for (size_t i = n; i < cap; i++) {
        tree[cap + i] = RANK_NONE;
    }
    for (size_t i = cap - 1; i > 0; i--) {
        tree[i] = tree[2 * i] < tree[2 * i + 1] ? tree[2 * i] : tree[2 * i + 1];
    }
    while (tree[1] != RANK_NONE) {
        size_t i = tree_first(tree, cap);
        size_t gone = next[i];
        size_t after = next[gone];

        sym[i].id = id[i];
        next[i] = (uint32_t)after;
        tree_set(tree, cap, gone, RANK_NONE);
        struct candidate c = {RANK_NONE, -1};

        if (after < n) {
            prev[after] = (uint32_t)i;
            c = fn(t, s, sym[i], sym[after], sym[next[after]].begin);
        }
        id[i] = c.id;
        tree_set(tree, cap, i, c.rank);
        if (i > 0) {
            size_t p = prev[i];

            c = fn(t, s, sym[p], sym[i], sym[after].begin);
            id[p] = c.id;
            tree_set(tree, cap, p, c.rank);
        }
    }
    size_t left = 0;

    for (size_t i = 0; i < n; i = next[i]) {
        sym[left++] = sym[i];
    }
    sym[left].begin = sym[n].begin;
    return left;
}

#endif

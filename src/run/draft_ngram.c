/* draft_ngram.c - drafts from the text itself: what followed the last tokens when they came before.
 *
 * A table of fixed size finds the last place of every run of two to five tokens by its hash.  What
 * it finds is compared with the text, so that an entry which another one has taken, or whose text
 * was dropped, is only a place that is not found. */
#include "run/spec.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

/* Longer runs are looked for first: what follows them is right more often.  Single tokens predict
 * too little. */
enum { RUN_MIN = 2, RUN_MAX = 5 };

/* Entries of the table: about as many as runs end in the context, within bounds. */
enum { SLOTS_MIN = 1 << 10, SLOTS_MAX = 1 << 20 };

struct ngram {
    uint32_t *place;   /* [n_slots]: where the run's next token was; 0: none */
    uint32_t n_slots;  /* a power of two */
    int n_done;        /* runs are in the table that have a next token before this position */
};

static uint32_t slots_for(int context)
{
    uint32_t n = SLOTS_MIN;

    while (n < SLOTS_MAX && n < (uint64_t)context * (RUN_MAX - RUN_MIN + 1)) {
        n *= 2;
    }
    return n;
}

static size_t ngram_bytes(const struct draft_setup *setup)
{
    return sizeof(struct ngram) + slots_for(setup->context) * sizeof(uint32_t);
}

static void *ngram_make(const struct draft_setup *setup, slm_error *err)
{
    struct ngram *g = mem_zalloc(1, sizeof *g);

    if (g) {
        g->n_slots = slots_for(setup->context);
        g->place = mem_zalloc(g->n_slots, sizeof *g->place);
    }
    if (!g || !g->place) {
        mem_free(g);
        slm_fail_nomem(err, "the drafts' table");
        return NULL;
    }
    return g;
}

static void ngram_drop(void *drafter)
{
    struct ngram *g = drafter;

    mem_free(g->place);
    mem_free(g);
}

/* Slots of the runs that end before position `end`: slot[len] for each length that there is.
 * Returns the longest one. */
static int find_slots(const struct ngram *g, const int32_t *tok, int end, uint32_t *slot)
{
    uint64_t hash = 0;
    int len = 0;

    while (len < RUN_MAX && len < end) {
        len++;
        hash = (hash + (uint32_t)tok[end - len] + 1) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
        slot[len] = (uint32_t)(hash >> 32) & (g->n_slots - 1);
    }
    return len;
}

/* Enters the runs that have a next token in tok [n]. */
static void enter(struct ngram *g, const int32_t *tok, int n)
{
    uint32_t slot[RUN_MAX + 1];

    for (int end = g->n_done; end < n; end++) {
        const int longest = find_slots(g, tok, end, slot);
        for (int len = RUN_MIN; len <= longest; len++) {
            g->place[slot[len]] = (uint32_t)end;
        }
    }
    g->n_done = n;
}

static void ngram_follow(void *drafter, const int32_t *ids, int n, int pos0, const float *rows)
{
    struct ngram *g = drafter;

    (void)ids;
    (void)n;
    (void)rows;
    if (pos0 < g->n_done) {
        g->n_done = pos0;
    }
}

static void ngram_prepare(void *drafter, const int32_t *tok, int n)
{
    enter(drafter, tok, n);
}

static int ngram_propose(void *drafter, const int32_t *tok, int n, int max, int32_t *out)
{
    const struct ngram *g = drafter;
    uint32_t slot[RUN_MAX + 1];

    for (int len = find_slots(g, tok, n, slot); len >= RUN_MIN; len--) {
        const int at = (int)g->place[slot[len]];
        if (at < len || at >= n ||
            memcmp(tok + at - len, tok + n - len, (size_t)len * sizeof *tok) != 0) {
            continue;
        }
        for (int i = 0; i < max; i++) {  /* a short period goes on into the drafts themselves */
            out[i] = at + i < n ? tok[at + i] : out[at + i - n];
        }
        return max;
    }
    return 0;
}

const struct draft_source draft_ngram = {
    .name = "ngram",
    .bytes = ngram_bytes,
    .make = ngram_make,
    .drop = ngram_drop,
    .follow = ngram_follow,
    .prepare = ngram_prepare,
    .propose = ngram_propose,
};

/* mask.c - the bitmap of allowed tokens, from a walk of the vocabulary's trie side by side
 * with the automaton.
 *
 * What is below a node that the automaton cannot enter is skipped, so that a state which
 * allows little costs little.  A state in which nearly everything goes, as inside a
 * string, is one to which most bytes lead back: below a node where the automaton is back
 * at it and only such bytes follow, all tokens are allowed without another look. */
#include "guide/mask.h"

#include <string.h>

#include "base/mem.h"

/* Whether every byte of first..last leads to the state `to`; -1 on failure. */
static int all_lead(struct automaton *a, int32_t from, unsigned first, unsigned last, int32_t to,
                    slm_error *err)
{
    for (unsigned b = first; b <= last; b++) {
        const int32_t next = automaton_step(a, from, (unsigned char)b, err);
        if (next != to) {
            return next < 0 ? -1 : 0;
        }
    }
    return 1;
}

/* Whether all characters of more than one byte lead back to the state; -1 on failure. */
static int characters_lead_back(struct automaton *a, int32_t state, slm_error *err)
{
    /* Leads of characters that go on alike: first to last, the range of the second byte, and how
     * many follow that. */
    static const unsigned char leads[][5] = {
        { 0xC2, 0xDF, 0x80, 0xBF, 0 }, { 0xE0, 0xE0, 0xA0, 0xBF, 1 }, { 0xE1, 0xEC, 0x80, 0xBF, 1 },
        { 0xED, 0xED, 0x80, 0x9F, 1 }, { 0xEE, 0xEF, 0x80, 0xBF, 1 }, { 0xF0, 0xF0, 0x90, 0xBF, 2 },
        { 0xF1, 0xF3, 0x80, 0xBF, 2 }, { 0xF4, 0xF4, 0x80, 0x8F, 2 },
    };

    for (size_t i = 0; i < sizeof leads / sizeof leads[0]; i++) {
        const unsigned char *l = leads[i];
        int32_t at = automaton_step(a, state, l[0], err);
        int ok = at <= STATE_DEAD ? at : all_lead(a, state, l[0], l[1], at, err);
        for (unsigned k = 0; ok == 1 && k <= l[4]; k++) {
            const unsigned lo = k == 0 ? l[2] : 0x80, hi = k == 0 ? l[3] : 0xBF;
            const int32_t to = k == l[4] ? state : automaton_step(a, at, (unsigned char)lo, err);
            ok = to <= STATE_DEAD ? to : all_lead(a, at, lo, hi, to, err);
            at = to;
        }
        if (ok != 1) {
            return ok < 0 ? -1 : 0;
        }
    }
    return 1;
}

/* The kinds of bytes that lead from the state back to it. */
static bool find_loops(struct automaton *a, int32_t state, uint64_t *loops, slm_error *err)
{
    uint64_t others = KIND_BROKEN | KIND_CHARACTER;

    *loops = 0;
    for (unsigned b = 0; b < 0x80; b++) {
        const int32_t next = automaton_step(a, state, (unsigned char)b, err);
        if (next < 0) {
            return false;
        }
        *(next == state ? loops : &others) |= guide_byte_kind((unsigned char)b);
    }
    *loops &= ~others;
    if (*loops & KIND_LOWER) {
        const int back = characters_lead_back(a, state, err);
        *loops |= back == 1 ? KIND_CHARACTER : 0;
        return back >= 0;
    }
    return true;
}

static void set_tokens(const struct guide_trie *t, uint32_t first, uint32_t end, uint64_t *bits)
{
    for (uint32_t k = first; k < end; k++) {
        bits[t->order[k] / 64] |= (uint64_t)1 << t->order[k] % 64;
    }
}

static bool walk(struct automaton *a, const struct guide_trie *t, int32_t state, int32_t *path,
                 uint64_t *bits, slm_error *err)
{
    const struct automaton_table *table = automaton_table(a);
    uint64_t loops;

    if (!find_loops(a, state, &loops, err)) {
        return false;
    }
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
        uint32_t next = i + 1;
        if (to == STATE_DEAD) {
            i = t->skip[i];
            continue;
        }
        if (to == state && (t->below[i] & ~loops) == 0) {
            next = t->skip[i];
        }
        path[depth] = to;
        set_tokens(t, t->token[i], t->token[next], bits);
        i = next;
    }
    return true;
}

/* The allowed short tokens of a state, kept with it. */
static const uint64_t *near_mask(struct automaton *a, const struct guide_vocab *t, int32_t state,
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
    if (!walk(a, &t->near, state, path, bits, err)) {
        mem_free(bits);
        return NULL;
    }
    automaton_set_data(a, state, bits, t->words * sizeof *bits);
    return bits;
}

bool mask_get(struct automaton *a, const struct guide_vocab *t, int32_t state, int32_t *path,
              uint64_t *bits, slm_error *err)
{
    const int32_t alias = automaton_alias(a, state, GUIDE_NEAR, err);
    const uint64_t *near = alias < 0 ? NULL : near_mask(a, t, alias, path, err);

    if (!near) {
        return false;
    }
    memcpy(bits, near, t->words * sizeof *bits);
    return walk(a, &t->far, state, path, bits, err);
}

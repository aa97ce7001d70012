/* guide.c - a guide is a grammar with its automaton and a vocabulary; a matcher follows
 * one answer in it. */
#include "guide/guide.h"

#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "guide/mask.h"

/* States and masks of a guide.  What was computed is forgotten at half of it, between two
 * calls; what one call needs may take all. */
static const size_t MEMORY_MAX = (size_t)48 << 20;

struct guide {
    struct grammar g;
    const struct guide_vocab *t;
    struct automaton *a;   /* states are made while it is used, so one thread at a time */
    pthread_mutex_t lock;
    int32_t *path;         /* scratch of a walk, [GUIDE_PATH] */
    uint64_t *bits;        /* scratch, [t->words] */
};

/* What was read of an answer: state[i] is the one before ids[i]. */
struct guide_matcher {
    struct guide *guide;
    int32_t *ids, *state;  /* [cap], [cap + 1] */
    size_t n, cap;
    size_t valid;          /* states before this one were forgotten */
    uint32_t generation;   /* of the automaton that the states are of */
};

/* ---- guides ------------------------------------------------------------------------- */

struct guide *guide_new(const struct guide_vocab *t, struct grammar *g, gram_expr root,
                        slm_error *err)
{
    struct guide *guide = mem_zalloc(1, sizeof *guide);

    if (!guide) {
        gram_deinit(g);
        slm_fail_nomem(err, "a guide");
        return NULL;
    }
    guide->g = *g;
    guide->t = t;
    pthread_mutex_init(&guide->lock, NULL);
    if (!gram_finish(&guide->g, root, err)) {
        guide_free(guide);
        return NULL;
    }
    guide->path = mem_alloc(GUIDE_PATH, sizeof *guide->path);
    guide->bits = mem_alloc(t->words, sizeof *guide->bits);
    guide->a = automaton_new(&guide->g, root, MEMORY_MAX, err);
    if (!guide->path || !guide->bits) {
        slm_fail_nomem(err, "a guide");
    }
    if (!guide->path || !guide->bits || !guide->a || automaton_start(guide->a, err) < 0) {
        guide_free(guide);
        return NULL;
    }
    return guide;
}

void guide_free(struct guide *guide)
{
    if (!guide) {
        return;
    }
    automaton_free(guide->a);
    gram_deinit(&guide->g);
    pthread_mutex_destroy(&guide->lock);
    mem_free(guide->path);
    mem_free(guide->bits);
    mem_free(guide);
}

/* Forgets states where there are too many, all but *state; whether it did in *forgot. */
static bool make_room(struct guide *guide, int32_t *state, bool *forgot, slm_error *err)
{
    *forgot = automaton_trim_to(guide->a, MEMORY_MAX / 2, state);
    return *state >= 0 || slm_fail_nomem(err, "the states of a guide");
}

bool guide_accepts(struct guide *guide, const char *text, size_t n, bool *accepts,
                   slm_error *err)
{
    pthread_mutex_lock(&guide->lock);
    int32_t s = automaton_start(guide->a, err);
    for (size_t i = 0; i < n && s > STATE_DEAD; i++) {
        bool forgot;
        s = make_room(guide, &s, &forgot, err)
                ? automaton_step(guide->a, s, (unsigned char)text[i], err) : -1;
    }
    *accepts = s > STATE_DEAD && automaton_accepts(guide->a, s);
    pthread_mutex_unlock(&guide->lock);
    return s >= 0;
}

/* ---- matchers ----------------------------------------------------------------------- */

struct guide_matcher *guide_matcher_new(struct guide *guide, slm_error *err)
{
    struct guide_matcher *m = mem_zalloc(1, sizeof *m);

    if (m) {
        m->guide = guide;
        m->cap = 64;
        m->ids = mem_alloc(m->cap, sizeof *m->ids);
        m->state = mem_alloc(m->cap + 1, sizeof *m->state);
    }
    if (!m || !m->ids || !m->state) {
        guide_matcher_free(m);
        slm_fail_nomem(err, "a guide's matcher");
        return NULL;
    }
    return m;
}

void guide_matcher_free(struct guide_matcher *m)
{
    if (!m) {
        return;
    }
    mem_free(m->ids);
    mem_free(m->state);
    mem_free(m);
}

static bool reserve(struct guide_matcher *m, size_t n, slm_error *err)
{
    if (n <= m->cap) {
        return true;
    }
    const size_t cap = n > m->cap * 2 ? n : m->cap * 2;
    int32_t *ids = mem_realloc(m->ids, cap, sizeof *ids);
    m->ids = ids ? ids : m->ids;
    int32_t *state = ids ? mem_realloc(m->state, cap + 1, sizeof *state) : NULL;
    m->state = state ? state : m->state;
    m->cap = state ? cap : m->cap;
    return state || slm_fail_nomem(err, "a guide's matcher");
}

/* The state after a token; STATE_DEAD where it does not belong, -1 on failure. */
static int32_t read_token(struct guide *guide, int32_t state, int32_t id, slm_error *err)
{
    const struct vocab *v = guide->t->v;
    bool control;
    size_t n;

    if (id < 0 || id >= vocab_size(v)) {
        return STATE_DEAD;
    }
    if (vocab_is_end(v, id)) {
        /* Some callers go on after the end; there only further ends are allowed. */
        return automaton_accepts(guide->a, state) ? state : STATE_DEAD;
    }
    const char *s = guide_token(v, id, &n, &control);
    if (n == 0) {
        return STATE_DEAD;
    }
    if (control) {
        state = automaton_step(guide->a, state, 0xFF, err);
    }
    for (size_t i = 0; i < n && state > STATE_DEAD; i++) {
        state = automaton_step(guide->a, state, (unsigned char)s[i], err);
    }
    return state;
}

/* Makes room for states without losing the one after ids[m->n]. */
static bool keep_last(struct guide_matcher *m, slm_error *err)
{
    bool forgot;

    if (!make_room(m->guide, &m->state[m->n], &forgot, err)) {
        m->generation = 0;
        return false;
    }
    if (forgot) {
        m->valid = m->n;
        m->generation = automaton_generation(m->guide->a);
    }
    return true;
}

/* Reads ids[m->n] and on. */
static bool read_on(struct guide_matcher *m, const int32_t *ids, size_t n, slm_error *err)
{
    struct guide *guide = m->guide;

    while (m->n < n) {
        const int32_t next = keep_last(m, err) ? read_token(guide, m->state[m->n], ids[m->n], err)
                                               : -1;
        if (next < 0) {
            return false;
        }
        if (next == STATE_DEAD) {
            return slm_fail(err, SLM_E_ARG, "token %zu of the answer (id %d) does not follow the "
                            "guide", m->n, (int)ids[m->n]);
        }
        m->ids[m->n] = ids[m->n];
        m->state[++m->n] = next;
    }
    return true;
}

/* Brings the matcher to these ids and returns the state after them; -1 on failure. */
static int32_t sync(struct guide_matcher *m, const int32_t *ids, size_t n, slm_error *err)
{
    struct automaton *a = m->guide->a;
    size_t same = 0;

    if (!reserve(m, n, err)) {
        return -1;
    }
    while (same < n && same < m->n && m->ids[same] == ids[same]) {
        same++;
    }
    m->n = same;
    if (m->generation != automaton_generation(a) || m->n < m->valid) {
        m->n = m->valid = 0;
        m->generation = automaton_generation(a);
        m->state[0] = automaton_start(a, err);
        if (m->state[0] < 0) {
            m->generation = 0;
            return -1;
        }
    }
    return read_on(m, ids, n, err) ? m->state[n] : -1;
}

/* Starts a call: from now on states may be made. */
static int32_t enter(struct guide_matcher *m, const int32_t *ids, size_t n, slm_error *err)
{
    pthread_mutex_lock(&m->guide->lock);
    return sync(m, ids, n, err) >= 0 && keep_last(m, err) ? m->state[n] : -1;
}

static void leave(struct guide_matcher *m)
{
    pthread_mutex_unlock(&m->guide->lock);
}

/* Fails for a state in which no token can come although bytes are missing, which happens where
 * the vocabulary lacks them. */
static bool check_some(const struct guide *guide, const uint64_t *bits, slm_error *err)
{
    for (size_t i = 0; i < guide->t->words; i++) {
        if (bits[i] != 0) {
            return true;
        }
    }
    return slm_fail(err, SLM_E_UNSUPPORTED,
                    "the guide cannot go on: no token of the vocabulary fits");
}

bool guide_allow(void *arg, const int32_t *ids, size_t n, uint64_t *bits, slm_error *err)
{
    struct guide_matcher *m = arg;
    struct guide *guide = m->guide;
    const int32_t state = enter(m, ids, n, err);
    const bool ended = n > 0 && vocab_is_end(guide->t->v, ids[n - 1]);
    const bool ok = state >= 0 && mask_get(guide->a, guide->t, state, guide->path, bits, err);

    if (ok) {
        const bool accepts = automaton_accepts(guide->a, state);
        for (size_t i = 0; i < guide->t->words; i++) {
            bits[i] = (ended ? 0 : bits[i]) | (accepts ? guide->t->end[i] : 0);
        }
    }
    leave(m);
    return ok && check_some(guide, bits, err);
}

bool guide_complete(struct guide_matcher *m, const int32_t *ids, size_t n, bool *complete,
                    slm_error *err)
{
    const int32_t state = enter(m, ids, n, err);

    *complete = state >= 0 && automaton_accepts(m->guide->a, state);
    leave(m);
    return state >= 0;
}

/* The lowest id in a bitmap, -1: none. */
static int32_t first_bit(const uint64_t *bits, size_t words)
{
    for (size_t i = 0; i < words; i++) {
        if (bits[i] != 0) {
            return (int32_t)(i * 64) + __builtin_ctzll(bits[i]);
        }
    }
    return -1;
}

/* The allowed token whose state has the shortest way to the end; -1: none or failure. */
static int32_t nearest(struct guide *guide, int32_t state, const uint64_t *bits, slm_error *err)
{
    uint32_t least = GRAM_INF;
    int32_t best = -1;

    for (size_t i = 0; i < guide->t->words; i++) {
        for (uint64_t left = bits[i]; left != 0; left &= left - 1) {
            const int32_t id = (int32_t)(i * 64) + __builtin_ctzll(left);
            const int32_t next = read_token(guide, state, id, err);
            if (next < 0) {
                return -1;
            }
            const uint32_t dist = automaton_dist(guide->a, next);
            if (dist < least) {
                least = dist;
                best = id;
            }
        }
    }
    if (best < 0) {
        slm_fail(err, SLM_E_UNSUPPORTED, "the guide cannot go on: no token of the vocabulary fits");
    }
    return best;
}

bool guide_shortest(struct guide_matcher *m, const int32_t *ids, size_t n, int32_t *id,
                    slm_error *err)
{
    struct guide *guide = m->guide;
    const int32_t state = enter(m, ids, n, err);

    *id = -1;
    if (state >= 0 && automaton_accepts(guide->a, state)) {
        *id = first_bit(guide->t->end, guide->t->words);
        if (*id < 0) {
            slm_fail(err, SLM_E_UNSUPPORTED, "the vocabulary has no token that ends an answer");
        }
    } else if (state >= 0) {
        *id = mask_get(guide->a, guide->t, state, guide->path, guide->bits, err)
                  ? nearest(guide, state, guide->bits, err) : -1;
    }
    leave(m);
    return *id >= 0;
}

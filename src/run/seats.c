/* seats.c - shares the bound between live states, their copies and pages. */
#include "run/seats.h"

#include <assert.h>
#include <limits.h>

#include "base/mem.h"

/* Copies of states kept for later texts: per seat at best, and in all. */
enum { COPIES_PER_SEAT = 2, COPIES_MAX = 1024 };

struct seats {
    const struct model *model;
    struct seats_params p;
    struct kv_pool *pool;
    struct prefix *prefix;
    struct seat *seats;    /* [n] */
    char *states;          /* [n][state_bytes] */
    size_t state_bytes;    /* of all layers */
    struct kv_count full;  /* groups of a seat at most */
};

static size_t state_bytes(const struct model *m)
{
    return (size_t)model_shape(m)->n_state * model_state_bytes(m);
}

/* ---- the bound ------------------------------------------------------------------------- */

/* Groups that a seat holds at most: those of its text, and the copy of one that it shares. */
static struct kv_count seat_groups(const struct model *m, const struct seats_params *p)
{
    struct kv_count groups = kv_seq_groups(m, p->context, p->chunk, 0);

    for (int c = 0; c < KV_CLASSES; c++) {
        groups.n[c] += groups.n[c] > 0;
    }
    return groups;
}

/* Bytes of the groups of n seats; saturating. */
static uint64_t groups_bytes(const struct model *m, const struct seats_params *p, int n)
{
    const struct kv_count one = seat_groups(m, p);
    uint64_t sum = 0;

    for (int c = 0; c < KV_CLASSES; c++) {
        const uint64_t bytes = kv_group_bytes(m, p->kv, false, (enum kv_class)c);
        uint64_t all;
        if (__builtin_mul_overflow(bytes * (uint64_t)n, (uint64_t)one.n[c], &all) ||
            __builtin_add_overflow(sum, all, &sum)) {
            return UINT64_MAX;
        }
    }
    return sum;
}

static uint64_t add_sat(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

struct seats_range seats_range(const struct model *m, const struct seats_params *p)
{
    const uint64_t states = (uint64_t)state_bytes(m) * (uint64_t)p->n;

    return (struct seats_range){
        .least = add_sat(groups_bytes(m, p, 1), states),
        .most = add_sat(groups_bytes(m, p, p->n), (1 + COPIES_PER_SEAT) * states),
    };
}

/* Copies of states take up to half of what is not needed for certain. */
static int copies_of(const struct model *m, const struct seats_params *p)
{
    const uint64_t bytes = state_bytes(m);
    const uint64_t rest = (p->bytes_max - seats_range(m, p).least) / 2;

    if (bytes == 0) {
        return 0;
    }
    return rest / bytes < COPIES_MAX ? (int)(rest / bytes) : COPIES_MAX;
}

static uint64_t pool_bytes(const struct model *m, const struct seats_params *p)
{
    return p->bytes_max - (uint64_t)state_bytes(m) * (uint64_t)(p->n + copies_of(m, p));
}

/* A node has a group of a class at least. */
static int nodes_of(const struct model *m, const struct seats_params *p)
{
    const size_t full = kv_group_bytes(m, p->kv, false, KV_FULL);
    const size_t window = kv_group_bytes(m, p->kv, false, KV_WINDOW);
    const uint64_t n = pool_bytes(m, p) / (full > 0 ? full : window);

    return n < INT_MAX / 2 ? (int)n : INT_MAX / 2;
}

size_t seats_table_bytes(const struct model *m, const struct seats_params *p)
{
    const size_t nodes = prefix_bytes(m, nodes_of(m, p), 0);
    size_t tables;

    if (nodes == SIZE_MAX || !size_mul(kv_seq_bytes(m, p->context), (size_t)p->n, &tables) ||
        !size_add(tables, nodes, &tables)) {
        return SIZE_MAX;
    }
    return tables;
}

/* ---- making them ----------------------------------------------------------------------- */

static bool seat_init(struct seats *s, int i, slm_error *err)
{
    struct seat *seat = &s->seats[i];
    const int n_state = model_shape(s->model)->n_state;

    seat->index = i;
    seat->kv = kv_seq_new(s->pool, s->p.context, err);
    if (!seat->kv) {
        return false;
    }
    if (n_state == 0) {
        return true;
    }
    seat->states = mem_alloc((size_t)n_state, sizeof *seat->states);
    if (!seat->states) {
        return slm_fail_nomem(err, "the states of recurrent layers");
    }
    for (int k = 0; k < n_state; k++) {
        seat->states[k] = (float *)(void *)(s->states + (size_t)i * s->state_bytes +
                                            (size_t)k * model_state_bytes(s->model));
    }
    return true;
}

struct seats *seats_new(const struct model *m, const struct seats_params *p, slm_error *err)
{
    assert(p->n >= 1 && p->bytes_max >= seats_range(m, p).least);
    struct seats *s = mem_zalloc(1, sizeof *s);
    const uint64_t bytes = pool_bytes(m, p);

    if (!s || bytes >= SIZE_MAX) {
        slm_fail_nomem(err, "the memory of requests");
        goto fail;
    }
    s->model = m;
    s->p = *p;
    s->full = seat_groups(m, p);
    s->state_bytes = state_bytes(m);
    s->pool = kv_pool_new(m, &(struct kv_params){ .type = p->kv, .bytes_max = (size_t)bytes }, err);
    s->prefix = s->pool ? prefix_new(m, s->pool, nodes_of(m, p), copies_of(m, p), err) : NULL;
    if (!s->prefix) {
        goto fail;
    }
    s->seats = mem_zalloc((size_t)p->n, sizeof *s->seats);
    s->states = s->state_bytes > 0 ? mem_pages(s->state_bytes * (size_t)p->n) : NULL;
    if (!s->seats || (s->state_bytes > 0 && !s->states)) {
        slm_fail_nomem(err, "the memory of requests");
        goto fail;
    }
    for (int i = 0; i < p->n; i++) {
        if (!seat_init(s, i, err)) {
            goto fail;
        }
    }
    return s;

fail:
    seats_free(s);
    return NULL;
}

void seats_free(struct seats *s)
{
    if (!s) {
        return;
    }
    for (int i = 0; s->seats && i < s->p.n; i++) {
        kv_seq_free(s->seats[i].kv);
        mem_free(s->seats[i].states);
    }
    if (s->states) {
        mem_pages_free(s->states, s->state_bytes * (size_t)s->p.n);
    }
    prefix_free(s->prefix);
    kv_pool_free(s->pool);
    mem_free(s->seats);
    mem_free(s);
}

/* ---- taking and leaving ---------------------------------------------------------------- */

struct seat *seats_take(struct seats *s, const int32_t *ids, int n, struct prefix_hit *hit)
{
    for (int i = 0; i < s->p.n; i++) {
        struct seat *seat = &s->seats[i];
        if (!seat->taken) {
            seat->taken = true;
            *hit = prefix_take(s->prefix, seat->kv, seat->states, ids, n - 1, &seat->mark);
            kv_seq_slide(seat->kv, hit->resume, NULL, 0);
            return seat;
        }
    }
    return NULL;
}

void seats_leave(struct seats *s, struct seat *seat, const int32_t *ids, int n)
{
    prefix_keep(s->prefix, seat->kv, ids, n, NULL, &seat->mark);
    prefix_release(s->prefix, &seat->mark);
    kv_seq_drop(seat->kv, 0);
    seat->taken = false;
}

void seats_keep(struct seats *s, struct seat *seat, const int32_t *ids, int n, bool states)
{
    prefix_keep(s->prefix, seat->kv, ids, n / KV_PAGE * KV_PAGE, states ? seat->states : NULL,
                &seat->mark);
}

/* ---- room ------------------------------------------------------------------------------ */

void seats_need(const struct seats *s, const struct seat *seat, int pos0, int pos1,
                struct kv_count *sum)
{
    const struct kv_count need = kv_seq_need(seat->kv, pos0, pos1);

    for (int c = 0; c < KV_CLASSES; c++) {
        sum->n[c] += need.n[c] < s->full.n[c] ? need.n[c] : s->full.n[c];
    }
}

bool seats_make_room(struct seats *s, struct kv_count need)
{
    while (!kv_pool_has_room(s->pool, need)) {
        if (!prefix_evict(s->prefix)) {
            return false;
        }
    }
    return true;
}

bool seats_ensure(struct seats *s, struct seat *seat, int pos0, int pos1)
{
    /* A page that only the tree shared needs no copy once it is gone from there. */
    while (!kv_pool_has_room(s->pool, kv_seq_need(seat->kv, pos0, pos1))) {
        if (!prefix_evict(s->prefix)) {
            return false;
        }
    }
    return kv_seq_ensure(seat->kv, pos0, pos1, NULL);
}

uint64_t seats_used_bytes(const struct seats *s)
{
    uint64_t bytes = kv_pool_used_bytes(s->pool) + prefix_copy_bytes(s->prefix);

    for (int i = 0; i < s->p.n; i++) {
        bytes += s->seats[i].taken ? s->state_bytes : 0;
    }
    return bytes;
}

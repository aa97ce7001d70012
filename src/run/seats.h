/* seats.h - the memory of running requests and of texts kept for later ones, under one bound.
 *
 * A seat is what a request computes with: its pages and, in models with recurrent layers, its
 * states.  Pages come from one pool, which seats share with the tree of texts; where they are
 * short, texts that nobody uses go first.  The bound is at least what one request of full context
 * needs, so that one can always run. */
#ifndef SEATS_H
#define SEATS_H

#include "run/prefix.h"

struct seats_params {
    int n;                 /* seats */
    int context;           /* tokens of each at most */
    int chunk;             /* tokens that one gets at a time at most */
    enum kv_type kv;
    uint64_t bytes_max;    /* of pages and states */
};

/* Bytes that the bound must have at least, and with which no seat ever lacks pages. */
struct seats_range { uint64_t least, most; };
struct seats_range seats_range(const struct model *m, const struct seats_params *p);

/* Bytes besides, for tables; SIZE_MAX where that does not fit. */
size_t seats_table_bytes(const struct model *m, const struct seats_params *p);

struct seat {
    int index;
    struct kv_seq *kv;
    float **states;        /* [n_state], NULL in models without recurrent layers */
    struct prefix_mark mark;
    bool taken;
};

struct seats;

/* bytes_max must not be below the range.  NULL and *err on failure. */
struct seats *seats_new(const struct model *m, const struct seats_params *p, slm_error *err);
void seats_free(struct seats *s);

/* A free seat with what is known of ids[0..n), n >= 1, but the last of them; NULL where all are
 * taken. */
struct seat *seats_take(struct seats *s, const int32_t *ids, int n, struct prefix_hit *hit);

/* Frees the seat; what it has of ids[0..n) is kept for others as long as there is room. */
void seats_leave(struct seats *s, struct seat *seat, const int32_t *ids, int n);

/* Keeps whole pages of ids[0..n) for others; the seat's states where they stand at n. */
void seats_keep(struct seats *s, struct seat *seat, const int32_t *ids, int n, bool states);

/* Pages that positions pos0 .. pos1 - 1 will take in all, added to *sum. */
void seats_need(const struct seats *s, const struct seat *seat, int pos0, int pos1,
                struct kv_count *sum);

/* Makes room for so many pages as far as that is possible without those of other seats. */
bool seats_make_room(struct seats *s, struct kv_count need);

/* Makes positions pos0 .. pos1 - 1 writable; false where other seats have the pages. */
bool seats_ensure(struct seats *s, struct seat *seat, int pos0, int pos1);

/* Bytes of pages and states in use. */
uint64_t seats_used_bytes(const struct seats *s);

#endif

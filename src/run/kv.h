/* kv.h - a pool of pages of keys and values, and the pages of one sequence.
 *
 * The layers of a model fall into two classes: those that see all earlier keys, and those that
 * see a sliding window of them.  The unit of the pool is a group: what KV_PAGE consecutive
 * positions need in all layers of one class.  Groups are counted, so that sequences with the same
 * prefix share them; who writes to a shared one gets a copy first.  Sequences give groups of the
 * window class back when the window has passed them.
 *
 * All memory is reserved when the pool is made.  What is never touched costs no RAM, and no more
 * than the pool's bound is ever resident.  A pool and its sequences are used by one thread at a
 * time. */
#ifndef KV_H
#define KV_H

#include "model/model.h"

enum kv_class { KV_FULL, KV_WINDOW, KV_CLASSES };

/* Positions that stay before the window, so that a sequence can go back a little. */
enum { KV_MARGIN = 128 };

/* No group. */
enum { KV_NONE = -1 };

struct kv_pool;
struct kv_seq;

struct kv_params {
    enum kv_type type;
    bool draft;              /* positions have keys and values of the draft block too */
    size_t bytes_max;        /* of all groups together, a hard bound */
    int n_max[KV_CLASSES];   /* groups of each class at most; 0: what bytes_max allows */
};

/* Groups of each class. */
struct kv_count { int n[KV_CLASSES]; };

/* What KV_PAGE positions have in the pool: a group of each class, or KV_NONE where the model has
 * no such layers or the window has passed. */
struct kv_page { int32_t group[KV_CLASSES]; };

/* ---- sizes --------------------------------------------------------------------------- */

/* Bytes of a group; 0 where the model has no layers of the class. */
size_t kv_group_bytes(const struct model *m, enum kv_type type, bool draft, enum kv_class class);

/* Groups that a sequence of `context` tokens, fed at most `chunk` tokens at a time, holds at most;
 * n_keep: how many positions kv_seq_slide is told to keep. */
struct kv_count kv_seq_groups(const struct model *m, int context, int chunk, int n_keep);

/* Parameters of a pool for so many groups.  bytes_max is SIZE_MAX where it does not fit. */
struct kv_params kv_params_for(const struct model *m, enum kv_type type, bool draft,
                               struct kv_count groups);

/* The first page of the window class that the token at position n needs, or that a token up to
 * `margin` positions before it does; 0 in models without windows. */
int kv_window_page(const struct model *m, int n, int margin);

/* ---- the pool ------------------------------------------------------------------------- */

/* Reserves the memory.  NULL and *err on failure.  The model must outlive the pool. */
struct kv_pool *kv_pool_new(const struct model *m, const struct kv_params *p, slm_error *err);

/* No sequence may be left. */
void kv_pool_free(struct kv_pool *pool);

size_t kv_pool_used_bytes(const struct kv_pool *pool);
size_t kv_pool_max_bytes(const struct kv_pool *pool);

/* Whether so many more groups can be had now. */
bool kv_pool_has_room(const struct kv_pool *pool, struct kv_count more);

/* Counts and discounts one more owner of a page; for prefixes that no sequence holds. */
void kv_page_ref(struct kv_pool *pool, struct kv_page page);
void kv_page_unref(struct kv_pool *pool, struct kv_page page);

/* ---- a sequence ----------------------------------------------------------------------- */

/* A table for `context` positions, without pages.  NULL and *err on failure. */
struct kv_seq *kv_seq_new(struct kv_pool *pool, int context, slm_error *err);

/* Bytes of such a table, with a draft block's place. */
size_t kv_seq_bytes(const struct model *m, int context);

/* Gives its pages back.  NULL is fine. */
void kv_seq_free(struct kv_seq *s);

/* Makes positions pos0 .. pos1 - 1 writable: pages are taken from the pool where there are none
 * and copied where they are shared.  Allocates nothing.  Fails (SLM_E_NOMEM) only where the pool
 * has too few groups, and nothing has changed then. */
bool kv_seq_ensure(struct kv_seq *s, int pos0, int pos1, slm_error *err);

/* Groups that it would take. */
struct kv_count kv_seq_need(const struct kv_seq *s, int pos0, int pos1);

/* Page j becomes `page`, which gets one more owner; what was there is given back. */
void kv_seq_map(struct kv_seq *s, int j, struct kv_page page);

/* Page j; the sequence stays its owner. */
struct kv_page kv_seq_page(const struct kv_seq *s, int j);

/* Gives everything back and shares the pages of the first n positions of src, of the same pool and
 * with a context of at least n. */
void kv_seq_share(struct kv_seq *s, const struct kv_seq *src, int n);

/* Drops positions n and later: pages wholly there are given back. */
void kv_seq_drop(struct kv_seq *s, int n);

/* Gives groups of the window class back that neither the token at position pos needs nor a token
 * at one of keep[0..n_keep), nor those up to KV_MARGIN positions before these. */
void kv_seq_slide(struct kv_seq *s, int pos, const int *keep, int n_keep);

/* ---- copies of it ---- */

/* The first page whose group of the window class the token at position n needs or could go back
 * by: from there on all are there.  0 in models without windows. */
int kv_seq_first_window(const struct kv_seq *s, int n);

/* Gives everything back and takes what n positions need, in the window class from page
 * first_window on; their contents are for the caller to fill.  Fails as kv_seq_ensure does, and the
 * sequence is then empty. */
bool kv_seq_take(struct kv_seq *s, int n, int first_window, slm_error *err);

/* Page j's group of a class, *bytes of them; NULL where there is none. */
void *kv_seq_group(const struct kv_seq *s, int j, enum kv_class class, size_t *bytes);

/* The last position <= n whose token sees all its earlier keys, of tokens that have been there; 0
 * at least. */
int kv_seq_resume(const struct kv_seq *s, int n);

/* The table for a step: page j of layer il is table[il * stride + j], NULL where there is none.
 * The draft block's pages, in pools that have them, are a table of one layer.  Both live as long
 * as the sequence. */
void *const *kv_seq_table(const struct kv_seq *s);
void *const *kv_seq_draft_table(const struct kv_seq *s);
int kv_seq_stride(const struct kv_seq *s);

#endif

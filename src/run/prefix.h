/* prefix.h - texts computed before, for requests that begin alike.
 *
 * A tree whose nodes hold the tokens of a page and own one reference to it.  A path from the root
 * is a text whose keys and values are there.  In models with recurrent layers some nodes hold a
 * copy of the states after their last token as well, and a text can only be taken up again at one
 * of these; in models with sliding windows only where the window's pages are still there.
 *
 * Nodes used least recently go first.  What it holds is bounded by the pool and by the number of
 * copies.  Used by the thread of its pool. */
#ifndef PREFIX_H
#define PREFIX_H

#include "run/kv.h"

struct prefix;
struct prefix_node;

/* At most n_nodes pages and n_copies copies of states.  Allocates all; what is never touched
 * costs no RAM.  NULL and *err on failure.  The pool must outlive it. */
struct prefix *prefix_new(const struct model *m, struct kv_pool *pool, int n_nodes, int n_copies,
                          slm_error *err);
void prefix_free(struct prefix *p);

/* Bytes of it besides pages. */
size_t prefix_bytes(const struct model *m, int n_nodes, int n_copies);

/* A text that a sequence has in the tree and that is not dropped before the mark is moved or
 * given up.  Zero-initialised it holds nothing. */
struct prefix_mark { struct prefix_node *node; };

/* How much of a text is there. */
struct prefix_hit {
    int resume;            /* tokens that the sequence holds now */
    int known;             /* in whole pages, what it would hold had all been kept there */
};

/* Maps the longest known prefix of ids[0..n) into s, which is empty, and its states to `states`
 * [n_state] (NULL in models without).  Where nothing is known states are zeroed. */
struct prefix_hit prefix_take(struct prefix *p, struct kv_seq *s, float *const *states,
                              const int32_t *ids, int n, struct prefix_mark *mark);

/* Keeps the pages of the first n tokens of s; of a page that is not full only where the sequence
 * ends with it, since who goes on writing would have to copy it.  With states, which stand at n, a
 * multiple of KV_PAGE, a copy of them.  Where others have computed the same, s gets their pages. */
void prefix_keep(struct prefix *p, struct kv_seq *s, const int32_t *ids, int n,
                 float *const *states, struct prefix_mark *mark);

void prefix_release(struct prefix *p, struct prefix_mark *mark);

/* Gives back the pages that were used least recently; false where there are none but those of
 * marked texts. */
bool prefix_evict(struct prefix *p);

/* Bytes of the copies of states in use. */
size_t prefix_copy_bytes(const struct prefix *p);

#endif

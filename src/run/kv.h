/* kv.h - pages of keys and values.
 *
 * A page holds KV_PAGE consecutive positions of one layer.  The pages of a cache are
 * laid out position first: all layers of positions 0..63, then all layers of
 * 64..127 and so on, so that a short text touches the front of the memory only,
 * and what is never touched costs no RAM. */
#ifndef KV_H
#define KV_H

#include "model/model.h"

struct kv;

/* Bytes that a cache of `context` tokens takes; SIZE_MAX where it does not fit a size_t. */
size_t kv_bytes(const struct model *m, int context, enum kv_type type);

/* Zeroed pages for positions 0 .. context - 1, rounded up to whole pages.  NULL and
 * *err on failure. */
struct kv *kv_new(const struct model *m, int context, enum kv_type type, slm_error *err);
void kv_free(struct kv *kv);

/* The page table for a step: page j of layer il is table[il * kv_page_stride(kv) + j].  It
 * lives as long as the cache. */
void *const *kv_table(const struct kv *kv);
int kv_page_stride(const struct kv *kv);

#endif

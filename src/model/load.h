/* load.h - what a loaded model consists of; for the files of this folder. */
#ifndef LOAD_H
#define LOAD_H

#include "model/arch.h"
#include "model/draft.h"
#include "model/model.h"

struct residency;

struct model {
    const struct gguf *gguf;
    const struct arch *arch;
    const struct kern *k;
    struct pool *pool;
    struct hparams hp;
    struct model_shape shape;
    struct arena arena;          /* names, vectors, layers */
    struct top top;
    struct draft draft;
    int n_bound;                 /* layers that the file has: all, or 0 beside a draft block alone */
    char *layers;                /* [n_bound] structs of arch->layer_size bytes */
    double *rope_freq[ROPE_KINDS];
    double *rope_freq_long;      /* in place of ROPE_FULL in long contexts, or NULL */
    double rope_mscale[ROPE_KINDS];
    bool rope_used[ROPE_KINDS];
    size_t group_bytes_max;      /* largest row group of 16, in bytes */
    int k_max[ACT_KINDS];        /* longest input of products of each kind, 0: none */
    struct residency *residency;
    struct profile *profile;     /* NULL: nothing is measured */
};

static inline void *model_layer(const struct model *m, int il)
{
    return m->layers + (size_t)il * m->arch->layer_size;
}

/* Bytes of a KV page of layers of this shape. */
size_t kv_page_bytes(const struct layer_shape *l, enum kv_type kv);

/* Calls fn for every matrix that products are made with. */
void model_each_weight(struct model *m, void (*fn)(void *arg, struct weight *w), void *arg);

#endif

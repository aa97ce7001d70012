/* draft.h - the block behind a model's layers that drafts tokens. */
#ifndef DRAFT_H
#define DRAFT_H

#include "model/arch.h"

struct model;

/* The block has a layer of the model's own kind, which gets a token's embedding and the
 * hidden row before that token, joined by a projection. */
struct draft {
    void *layer;                /* NULL: the model has no such block */
    struct weight eh_proj;      /* [n_embd][2 * n_embd]: embedding first */
    struct norm embd_norm, hidden_norm;
    struct norm head_norm;      /* the model's output_norm where absent */
    struct weight embd, head;   /* the model's where absent */
};

/* Its tensors besides those of the layer. */
extern const struct tensor_row draft_rows[];
extern const size_t n_draft_rows;

/* Whether the file has the block and not the layers before it. */
bool draft_alone(const struct model *m);

/* Binds the tensors of the block, where the file has them, and completes it once they are
 * checked. */
bool draft_bind(struct model *m, struct binder *b);
bool draft_finish(struct model *m, slm_error *err);

/* Calls fn for every matrix of the block. */
void draft_each_weight(struct model *m, void (*fn)(void *arg, struct weight *w), void *arg);

#endif

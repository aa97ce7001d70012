/* work.h - the scratch memory of steps, allocated once. */
#ifndef WORK_H
#define WORK_H

#include <stdatomic.h>

#include "model/model.h"
#include "model/hparams.h"

/* Query rows that one attention task handles, unless a single token has more heads per key-value
 * head: many share the work of copying keys and values, few leave tasks for every worker. */
enum { ATTN_ROWS_MIN = 48, ATTN_ROWS_MAX = 384 };

/* Row groups packed on the fly together, so that they stay in L2. */
enum { PACK_BYTES = 256 << 10 };

/* Token rows [tok0, tok0 + n_tok) of one sequence. */
struct attn_tile {
    int seq, tok0, n_tok;
};

struct work {
    int n_tok_max, n_want_max, context_max;

    float *rows;             /* bump arena of the step, in floats */
    size_t rows_cap, rows_used;

    void *act[ACT_KINDS];    /* quantised input of the products at hand */

    int *pos, *seq;          /* [n_tok_max] */
    atomic_bool *broken;     /* [n_want_max]: whether a logit is NaN */
    float *rope[ROPE_KINDS]; /* [n_tok_max][n_rot] */
    struct attn_tile *tiles; /* [n_tok_max] */

    float *part;             /* attention of single segments, before the fold */
    size_t part_cap;

    uint8_t *worker;         /* per worker: panels made on the fly, or attention scratch */
    size_t worker_bytes;     /* of one worker */

    void *block;             /* the pages that all of the above lie in */
    size_t block_bytes;
};

/* What the attention driver needs of a worker's scratch, and of `part`. */
size_t attention_scratch_bytes(const struct hparams *hp);
size_t attention_part_floats(const struct hparams *hp, int context_max);

static inline void *work_worker(const struct work *w, int worker)
{
    return w->worker + (size_t)worker * w->worker_bytes;
}

#endif

/* work.c - sizes and carves the scratch memory of steps. */
#include "model/work.h"

#include <assert.h>

#include "base/mem.h"
#include "kern/dot.h"
#include "model/forward.h"
#include "model/load.h"

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Hands out consecutive pieces of a block; with base NULL it only adds up. */
struct carver {
    char *base;
    size_t used;
};

static void *carve(struct carver *c, size_t bytes)
{
    void *p = c->base ? c->base + c->used : NULL;

    c->used += align_up(bytes, 64);
    return p;
}

/* Floats of the step's row arena: the residual rows and two rows of the layer (its input and,
 * where blocks stand side by side, one's output), then the rows of its largest block, and what
 * the architecture takes besides; every piece may be rounded up. */
static size_t rows_floats(const struct model *m, size_t n_tok, size_t n_want)
{
    const struct hparams *hp = &m->hp;
    const size_t e = (size_t)hp->n_embd;
    size_t block = max_size((size_t)moe_row_floats(hp), (size_t)delta_row_floats(hp));

    for (int il = 0; il < hp->n_layer + hp->n_draft; il++) {
        const int attn = dim_size(hp, il, DIM_QKV) + dim_size(hp, il, DIM_ATT);
        const int mlp = dim_size(hp, il, DIM_FF2);
        block = max_size(block, (size_t)(attn > mlp ? attn : mlp));
    }
    return n_tok * (3 * e + block + (size_t)hp->scratch_floats) + n_want * e + 16 * 16;
}

static size_t carve_all(struct work *w, const struct model *m, char *base)
{
    const struct hparams *hp = &m->hp;
    const size_t n_tok = (size_t)w->n_tok_max;
    struct carver c = { base, 0 };

    w->rows_cap = rows_floats(m, n_tok, (size_t)w->n_want_max);
    w->rows = carve(&c, w->rows_cap * sizeof(float));
    for (int kind = ACT_Q32; kind < ACT_KINDS; kind++) {
        /* Logits are products too, of up to n_want_max rows. */
        const int rows = w->n_tok_max > w->n_want_max ? w->n_tok_max : w->n_want_max;
        w->act[kind] = m->k_max[kind]
                     ? carve(&c, m->k->act_bytes((enum act_kind)kind, m->k_max[kind], rows))
                     : NULL;
    }
    w->pos = carve(&c, n_tok * sizeof(int));
    w->seq = carve(&c, n_tok * sizeof(int));
    w->broken = carve(&c, (size_t)w->n_want_max * sizeof *w->broken);
    for (int kind = 0; kind < ROPE_KINDS; kind++) {
        if (m->rope_used[kind]) {
            w->rope[kind] = carve(&c, n_tok * (size_t)hp->rope[kind].n_rot * sizeof(float));
        }
    }
    w->tiles = carve(&c, n_tok * sizeof(struct attn_tile));
    w->part_cap = attention_part_floats(hp, w->context_max);
    w->part = carve(&c, w->part_cap * sizeof(float));
    w->worker_bytes = align_up(max_size(max_size(m->group_bytes_max, PACK_BYTES),
                                        max_size(attention_scratch_bytes(hp),
                                                 (size_t)dim_size(hp, -1, DIM_LAYERS) *
                                                 sizeof(float))), 64);
    w->worker = carve(&c, w->worker_bytes * (size_t)pool_size(m->pool));
    return c.used;
}

size_t work_bytes(const struct model *m, int n_tok_max, int n_want_max, int context_max)
{
    struct work w = { .n_tok_max = n_tok_max, .n_want_max = n_want_max,
                      .context_max = context_max };

    return carve_all(&w, m, NULL);
}

struct work *work_new(const struct model *m, int n_tok_max, int n_want_max, int context_max,
                      slm_error *err)
{
    assert(n_tok_max >= 1 && n_want_max >= 1 && context_max >= 1);
    struct work *w = mem_zalloc(1, sizeof *w);
    const size_t bytes = work_bytes(m, n_tok_max, n_want_max, context_max);
    char *block = w ? mem_pages(bytes) : NULL;

    if (!block) {
        mem_free(w);
        slm_fail_nomem(err, "the scratch memory of a step");
        return NULL;
    }
    *w = (struct work){ .n_tok_max = n_tok_max, .n_want_max = n_want_max,
                        .context_max = context_max, .block = block, .block_bytes = bytes };
    carve_all(w, m, block);
    return w;
}

void work_free(struct work *w)
{
    if (w) {
        mem_pages_free(w->block, w->block_bytes);
        mem_free(w);
    }
}

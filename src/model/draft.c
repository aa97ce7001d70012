/* draft.c - loading the draft block of a model and computing a step of it. */
#include "model/draft.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "model/load.h"
#include "model/model.h"
#include "model/residency.h"
#include "model/step.h"
#include "model/work.h"

#define ROW_DRAFT(field, name, in, out, need)                                            \
    { "blk.%d.nextn." name ".weight", offsetof(struct draft, field), in, out, need, false,   \
      DIM_NONE }

const struct tensor_row draft_rows[] = {
    ROW_DRAFT(eh_proj, "eh_proj", DIM_EMBD2, DIM_EMBD, NEED),
    ROW_DRAFT(embd_norm.w, "enorm", DIM_EMBD, DIM_NONE, NEED),
    ROW_DRAFT(hidden_norm.w, "hnorm", DIM_EMBD, DIM_NONE, NEED),
    ROW_DRAFT(head_norm.w, "shared_head_norm", DIM_EMBD, DIM_NONE, MAYBE),
    ROW_DRAFT(embd, "embed_tokens", DIM_EMBD, DIM_VOCAB, MAYBE),
    ROW_DRAFT(head, "shared_head_head", DIM_EMBD, DIM_VOCAB, MAYBE),
};
const size_t n_draft_rows = sizeof draft_rows / sizeof *draft_rows;

static bool has_block(const struct model *m)
{
    char name[64];

    tensor_name(name, &draft_rows[0], m->hp.n_layer);
    return m->hp.n_draft > 0 && gguf_find_tensor(m->gguf, name);
}

bool draft_alone(const struct model *m)
{
    if (!has_block(m)) {
        return false;
    }
    for (size_t i = 0; i < gguf_n_tensors(m->gguf); i++) {
        const char *name = gguf_tensor_at(m->gguf, i)->name;
        if (strncmp(name, "blk.", 4) == 0 && strtol(name + 4, NULL, 10) < m->hp.n_layer) {
            return false;
        }
    }
    return true;
}

bool draft_bind(struct model *m, struct binder *b)
{
    const int il = m->hp.n_layer;

    if (!has_block(m)) {
        return true;  /* some files count the block and leave it out */
    }
    m->draft.layer = arena_zalloc(&m->arena, m->arch->layer_size);
    if (!m->draft.layer) {
        b->failed = true;
        return slm_fail_nomem(b->err, "the draft block");
    }
    return weights_bind(b, m->arch->rows, m->arch->n_rows, m->draft.layer, il) &&
           weights_bind(b, draft_rows, n_draft_rows, &m->draft, il);
}

bool draft_finish(struct model *m, slm_error *err)
{
    if (!m->draft.layer) {
        return true;
    }
    if (!m->draft.head_norm.w) {
        m->draft.head_norm = m->top.output_norm;
    }
    return !m->arch->finish || m->arch->finish(m->draft.layer, &m->hp, m->hp.n_layer, err);
}

void draft_each_weight(struct model *m, void (*fn)(void *arg, struct weight *w), void *arg)
{
    if (!m->draft.layer) {
        return;
    }
    m->arch->each_weight(m->draft.layer, &m->hp, fn, arg);
    fn(arg, &m->draft.eh_proj);
    if (m->draft.head.rows) {
        fn(arg, &m->draft.head);
    }
}

size_t model_draft_page_bytes(const struct model *m, enum kv_type kv)
{
    const struct layer_shape *l = &m->hp.layer[m->hp.n_layer];

    assert(m->draft.layer);
    return kv_page_bytes(l, kv);
}

struct join_op {
    struct step *st;
    const float *hidden;   /* [n_tok][n_embd] */
    float *both;           /* [n_tok][2][n_embd] */
};

/* Rotations, and the normed embedding and hidden row of one token side by side. */
static void join_row(void *arg, int t, int worker)
{
    const struct join_op *op = arg;
    struct step *st = op->st;
    const struct model *m = st->model;
    const struct draft *d = &m->draft;
    const size_t n_embd = (size_t)st->hp->n_embd;
    float *e = op->both + 2 * (size_t)t * n_embd;

    step_rope(st, t);
    table_row(st, d->embd.rows ? &d->embd : &m->top.token_embd, st->in->tok[t], e, worker);
    norm_row(st, e, e, d->embd_norm);
    norm_row(st, e + n_embd, op->hidden + (size_t)t * n_embd, d->hidden_norm);
}

bool model_draft(struct model *m, struct work *w, const struct step_in *in, const float *hidden,
                 float *logits, slm_error *err)
{
    const struct draft *d = &m->draft;
    const size_t n_embd = (size_t)m->hp.n_embd;
    struct step st;

    assert(d->layer);
    if (!step_begin(&st, m, w, in, err)) {
        return false;
    }
    float *x = scratch_rows(&st, m->hp.n_embd);
    const size_t mark = scratch_mark(&st);
    struct join_op op = { &st, hidden, scratch_rows(&st, 2 * m->hp.n_embd) };
    const struct product join = { &d->eh_proj, NULL, x, n_embd };
    pool_run(m->pool, join_row, &op, in->n_tok);
    matmul(&st, &join, 1, op.both, 2 * n_embd, in->n_tok);
    scratch_release(&st, mark);

    m->arch->layer(&st, d->layer, m->hp.n_layer, x);
    scratch_release(&st, mark);
    const struct head head = { d->head_norm, d->head.rows ? &d->head : &m->top.output,
                               d->head.rows ? NULL : m->top.output_bias };
    const bool ok = step_finish(&st, x, &head, logits, err);
    residency_step_done(m->residency);
    return ok;
}

/* layer_in.c - what some Gemma models give to every layer of each token: a row of a second
 * embedding table, mixed with a projection of the first. */
#include <math.h>

#include "model/forward.h"
#include "model/load.h"
#include "model/work.h"

static void layer_in_row(void *arg, int t, int worker)
{
    struct step *st = arg;
    const struct hparams *hp = st->hp;
    const struct top *top = &st->model->top;
    const struct kern *k = st->k;
    const int n = hp->n_embd_layer, n_all = n * hp->n_layer;
    float *row = st->layer_in + (size_t)t * (size_t)n_all;
    float *own = work_worker(st->work, worker);

    k->scale(row, 1.0f / sqrtf((float)hp->n_embd), n_all);
    for (int il = 0; il < hp->n_layer; il++) {
        float *part = row + (size_t)il * (size_t)n;
        k->rmsnorm(part, part, top->layer_proj_norm, n, hp->norm_eps);
    }
    table_row(st, &top->layer_embd, st->in->tok[t], own, worker);
    k->scale(own, sqrtf((float)n), n_all);
    k->add(row, own, n_all);
    k->scale(row, 1.0f / sqrtf(2.0f), n_all);
}

void layer_in_begin(struct step *st, float *x)
{
    const int n_all = st->hp->n_embd_layer * st->hp->n_layer;

    if (n_all == 0) {
        return;
    }
    st->layer_in = scratch_rows(st, n_all);
    const struct product proj = { &st->model->top.layer_proj, NULL, st->layer_in, (size_t)n_all };
    matmul(st, &proj, 1, x, (size_t)st->hp->n_embd, st->n_tok);
    op_rows(st, st->n_tok, layer_in_row, st);
}

void layer_in_block(struct step *st, const struct layer_in *in, int il, const float *x, float *h)
{
    const struct hparams *hp = st->hp;
    const size_t n = (size_t)hp->n_embd_layer, mark = scratch_mark(st);
    float *g = scratch_rows(st, hp->n_embd_layer);
    const struct product gate = { &in->gate, NULL, g, n };
    const struct product proj = { &in->proj, NULL, h, (size_t)hp->n_embd };

    matmul(st, &gate, 1, x, (size_t)hp->n_embd, st->n_tok);
    op_gate(st, GATE_GELU, g, st->layer_in + (size_t)il * n, n * (size_t)hp->n_layer,
            hp->n_embd_layer);
    matmul(st, &proj, 1, g, n, st->n_tok);
    op_norm(st, h, h, in->norm);
    scratch_release(st, mark);
}

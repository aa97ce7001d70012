/* delta.c - the block of recurrent layers: short convolution and gated delta net.
 *
 * A sequence's state of a layer is what its earlier tokens have left.  Heads and value columns
 * do not meet before the output projection, so threads take tiles of sixteen columns
 * through all tokens of a step, and neither the split nor the cut of a text into steps shows.
 *
 * Tokens on trial may have to be taken back, and a state cannot go back.  Therefore they leave it
 * alone: tiles are copied before they advance, and what advances them is noted, which is small
 * beside a state.  model_commit then lets the real states follow the tokens that stay. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "model/forward.h"
#include "model/load.h"
#include "model/work.h"

/* Columns of a tile, and channels that one task convolves. */
enum { TILE = 16, CONV_TASK = 64 };

/* From this many tokens on the tiles of a head are tasks of their own; with fewer a task would
 * be too short. */
enum { TILE_TASK_TOKENS = 16 };

struct delta_op {
    struct step *st;
    const struct delta *d;
    const struct delta_shape *shape;
    int state;             /* which of the sequence's states */
    int tiles_per_task;
    float *u;              /* [n_tok][channels]: convolved in place */
    float *alpha, *beta;   /* [n_tok][n_v_head]: become decay and step size */
    float *z;              /* [n_tok][n_v_head * head_dim] */
    float *o;              /* the same: output of the heads */
};

int delta_row_floats(const struct hparams *hp)
{
    const struct delta_shape *d = &hp->delta;

    return delta_channels(d) + d->n_v_head * (2 * d->head_dim + 2);
}

size_t delta_state_floats(const struct delta_shape *d)
{
    if (d->taps == 0) {
        return 0;
    }
    return (size_t)(d->taps - 1) * (size_t)delta_channels(d) +
           (size_t)d->n_v_head * (size_t)d->head_dim * (size_t)d->head_dim;
}

/* What a trial notes of a layer: the inputs of the convolution with those that it remembers in
 * front, [taps - 1 + n_tok][channels]; then for each token its keys and values, decays and step
 * sizes. */
static int noted_row(const struct delta_shape *d)
{
    return (d->n_k_head + d->n_v_head) * d->head_dim + 2 * d->n_v_head;
}

size_t delta_trial_floats(const struct delta_shape *d, int n_tok)
{
    if (d->taps == 0) {
        return 0;
    }
    return (size_t)(d->taps - 1 + n_tok) * (size_t)delta_channels(d) +
           (size_t)n_tok * (size_t)noted_row(d);
}

static float *noted_inputs(const struct delta_shape *d, const struct step_seq *seq, int state)
{
    return seq->trial + (size_t)state * delta_trial_floats(d, seq->n_tok);
}

static float *noted_rows(const struct delta_shape *d, const struct step_seq *seq, int state)
{
    return noted_inputs(d, seq, state) + (size_t)(d->taps - 1 + seq->n_tok) *
           (size_t)delta_channels(d);
}

bool delta_finish(struct delta *d, const struct hparams *hp, slm_error *err)
{
    const size_t taps = (size_t)hp->delta.taps, n = (size_t)delta_channels(&hp->delta);
    float *conv = (float *)d->conv;  /* the layer's own decoded copy */
    float *by_tap = mem_alloc(taps * n, sizeof *by_tap);

    if (!by_tap) {
        return slm_fail_nomem(err, "a convolution");
    }
    for (size_t c = 0; c < n; c++) {
        for (size_t j = 0; j < taps; j++) {
            by_tap[j * n + c] = conv[c * taps + j];
        }
    }
    memcpy(conv, by_tap, taps * n * sizeof *conv);
    mem_free(by_tap);
    return true;
}

/* First row of sequence s in the step. */
static size_t first_row(const struct step *st, int s)
{
    size_t row = 0;

    for (int i = 0; i < s; i++) {
        row += (size_t)st->in->seq[i].n_tok;
    }
    return row;
}

/* A range of channels of one sequence. */
static void conv_task(void *arg, int task, int worker)
{
    const struct delta_op *op = arg;
    const int n = delta_channels(op->shape);
    const int n_ranges = (n + CONV_TASK - 1) / CONV_TASK;
    const int s = task / n_ranges, c = task % n_ranges * CONV_TASK;
    const struct step_seq *seq = &op->st->in->seq[s];
    const struct conv_run run = {
        .n_tok = seq->n_tok, .n = n - c < CONV_TASK ? n - c : CONV_TASK, .taps = op->shape->taps,
        .w = op->d->conv + c, .history = seq->states[op->state] + c, .ld_history = (size_t)n,
        .x = op->u + first_row(op->st, s) * (size_t)n + c, .ldx = (size_t)n,
    };

    (void)worker;
    if (!seq->trial) {
        op->st->k->conv_silu(&run);
        return;
    }
    const size_t row_bytes = (size_t)run.n * sizeof(float);
    const int n_past = run.taps - 1;
    float *noted = noted_inputs(op->shape, seq, op->state) + c;
    for (int i = 0; i < n_past; i++) {
        memcpy(noted + i * n, run.history + i * n, row_bytes);
    }
    for (int i = 0; i < run.n_tok; i++) {
        memcpy(noted + (n_past + i) * n, run.x + i * n, row_bytes);
    }
    op->st->k->conv_silu(&run);
    for (int i = 0; i < n_past; i++) {
        memcpy(run.history + i * n, noted + i * n, row_bytes);
    }
}

/* Notes what advances the state by token t, whose sequence is on trial. */
static void note_row(const struct delta_op *op, const struct step_seq *seq, int t)
{
    const struct delta_shape *d = op->shape;
    const size_t n_q = (size_t)d->n_k_head * (size_t)d->head_dim;
    const size_t n = (size_t)delta_channels(d), n_heads = (size_t)d->n_v_head;
    float *row = noted_rows(d, seq, op->state) + (size_t)(op->st->pos[t] - seq->pos0) *
                 (size_t)noted_row(d);

    memcpy(row, op->u + (size_t)t * n + n_q, (n - n_q) * sizeof *row);
    row += n - n_q;
    memcpy(row, op->alpha + (size_t)t * n_heads, n_heads * sizeof *row);
    memcpy(row + n_heads, op->beta + (size_t)t * n_heads, n_heads * sizeof *row);
}

/* Norms the query and key heads of one token, and makes its decays and step sizes. */
static void prepare_row(void *arg, int t, int worker)
{
    const struct delta_op *op = arg;
    const struct kern *k = op->st->k;
    const struct delta_shape *d = op->shape;
    float *u = op->u + (size_t)t * (size_t)delta_channels(d);
    float *alpha = op->alpha + (size_t)t * (size_t)d->n_v_head;
    float *beta = op->beta + (size_t)t * (size_t)d->n_v_head;

    (void)worker;
    for (int h = 0; h < 2 * d->n_k_head; h++, u += d->head_dim) {
        k->l2norm(u, u, d->head_dim, op->st->hp->norm_eps);
    }
    k->add(alpha, op->d->dt, d->n_v_head);
    k->unary[UNARY_SOFTPLUS](alpha, alpha, d->n_v_head);
    k->mul(alpha, op->d->a, d->n_v_head);
    k->unary[UNARY_EXP](alpha, alpha, d->n_v_head);
    k->unary[UNARY_SIGMOID](beta, beta, d->n_v_head);

    const struct step_seq *seq = &op->st->in->seq[op->st->seq[t]];
    if (seq->trial) {
        note_row(op, seq, t);
    }
}

/* Some tiles of one head of one sequence. */
static void tile_task(void *arg, int task, int worker)
{
    const struct delta_op *op = arg;
    const struct delta_shape *d = op->shape;
    const int n_tiles = d->head_dim / TILE, n_groups = n_tiles / op->tiles_per_task;
    const int s = task / (d->n_v_head * n_groups);
    const int head = task / n_groups % d->n_v_head, first = task % n_groups * op->tiles_per_task;
    const struct step_seq *seq = &op->st->in->seq[s];
    const size_t dim = (size_t)d->head_dim, row = first_row(op->st, s);
    const size_t n = (size_t)delta_channels(d), n_out = (size_t)d->n_v_head * dim;
    const float *u = op->u + row * n;
    const float *q = u + (size_t)(head % d->n_k_head) * dim;
    float *matrix = seq->states[op->state] + (size_t)(d->taps - 1) * n + (size_t)head * dim * dim;
    float *copy = seq->trial ? work_worker(op->st->work, worker) : NULL;

    for (int tile = first; tile < first + op->tiles_per_task; tile++) {
        const size_t col = (size_t)head * dim + (size_t)tile * TILE;
        float *state = matrix + (size_t)tile * TILE * dim;
        if (copy) {
            memcpy(copy, state, TILE * dim * sizeof *copy);
        }
        const struct delta_run run = {
            .n_tok = seq->n_tok, .n = d->head_dim, .state = copy ? copy : state,
            .q = q, .k = q + (size_t)d->n_k_head * dim, .ldqk = n,
            .v = u + 2 * (size_t)d->n_k_head * dim + col, .ldv = n,
            .decay = op->alpha + row * (size_t)d->n_v_head + head,
            .beta = op->beta + row * (size_t)d->n_v_head + head, .ldg = (size_t)d->n_v_head,
            .o = op->o + row * n_out + col, .ldo = n_out,
            .scale = 1.0f / sqrtf((float)d->head_dim),
        };
        op->st->k->delta_rule(&run);
    }
}

/* Norms each head's output and gates it: the result is in z. */
static void gate_row(void *arg, int t, int worker)
{
    const struct delta_op *op = arg;
    const struct kern *k = op->st->k;
    const int dim = op->shape->head_dim, n = op->shape->n_v_head * dim;
    float *o = op->o + (size_t)t * (size_t)n, *z = op->z + (size_t)t * (size_t)n;

    (void)worker;
    for (int i = 0; i < n; i += dim) {
        k->rmsnorm(o + i, o + i, op->d->norm, dim, op->st->hp->norm_eps);
    }
    k->gate[GATE_SILU](z, o, n);
}

void delta_block(struct step *st, const struct delta *d, int il, const float *h, float *y)
{
    const struct delta_shape *shape = &st->hp->delta;
    const size_t mark = scratch_mark(st), n_embd = (size_t)st->hp->n_embd;
    const int n = delta_channels(shape), n_heads = shape->n_v_head;
    const int n_out = n_heads * shape->head_dim, n_tiles = shape->head_dim / TILE;
    struct delta_op op = {
        .st = st, .d = d, .shape = shape, .state = st->hp->layer[il].state,
        .u = scratch_rows(st, n), .z = scratch_rows(st, n_out), .o = scratch_rows(st, n_out),
        .alpha = scratch_rows(st, n_heads), .beta = scratch_rows(st, n_heads),
    };
    const struct product in[] = {
        { &d->qkv, NULL, op.u, (size_t)n },
        { &d->gate, NULL, op.z, (size_t)n_out },
        { &d->alpha, NULL, op.alpha, (size_t)n_heads },
        { &d->beta, NULL, op.beta, (size_t)n_heads },
    };
    const struct product out = { &d->out, NULL, y, n_embd };

    matmul(st, in, 4, h, n_embd, st->n_tok);
    pool_run(st->pool, conv_task, &op, st->in->n_seq * ((n + CONV_TASK - 1) / CONV_TASK));
    op_rows(st, st->n_tok, prepare_row, &op);
    const double begin = profile_begin(st->profile);
    op.tiles_per_task = st->n_tok >= TILE_TASK_TOKENS ? 1 : n_tiles;
    pool_run(st->pool, tile_task, &op, st->in->n_seq * n_heads * (n_tiles / op.tiles_per_task));
    profile_end(st->profile, begin, "delta rule", 0);
    op_rows(st, st->n_tok, gate_row, &op);
    matmul(st, &out, 1, op.z, (size_t)n_out, st->n_tok);
    scratch_release(st, mark);
}

/* ---- trials --------------------------------------------------------------------------- */

struct commit_op {
    struct model *m;
    struct work *w;
    const struct step_seq *seq;
    int n_keep;
};

/* The matrix of one head of one layer. */
static void commit_task(void *arg, int task, int worker)
{
    const struct commit_op *op = arg;
    const struct delta_shape *d = &op->m->hp.delta;
    const int state = task / d->n_v_head, head = task % d->n_v_head;
    const size_t dim = (size_t)d->head_dim, n_k = (size_t)d->n_k_head * dim;
    const size_t n_v = (size_t)d->n_v_head * dim, ld = (size_t)noted_row(d);
    const float *row = noted_rows(d, op->seq, state);
    const float *k = row + (size_t)(head % d->n_k_head) * dim;
    float *matrix = op->seq->states[state] + (size_t)(d->taps - 1) * (size_t)delta_channels(d) +
                    (size_t)head * dim * dim;
    float *unused = work_worker(op->w, worker);

    for (size_t tile = 0; tile < dim / TILE; tile++) {
        const struct delta_run run = {
            .n_tok = op->n_keep, .n = d->head_dim, .state = matrix + tile * TILE * dim,
            .q = k, .k = k, .ldqk = ld,
            .v = row + n_k + (size_t)head * dim + tile * TILE, .ldv = ld,
            .decay = row + n_k + n_v + head, .beta = row + n_k + n_v + d->n_v_head + head,
            .ldg = ld, .o = unused, .ldo = 0, .scale = 1,
        };
        op->m->k->delta_rule(&run);
    }
}

size_t model_trial_bytes(const struct model *m, int n_tok)
{
    return (size_t)m->hp.n_state * delta_trial_floats(&m->hp.delta, n_tok) * sizeof(float);
}

void model_commit(struct model *m, struct work *w, const struct step_seq *seq, int n_keep)
{
    const struct delta_shape *d = &m->hp.delta;
    struct commit_op op = { m, w, seq, n_keep };

    assert(seq->trial && n_keep >= 0 && n_keep <= seq->n_tok);
    for (int i = 0; i < m->hp.n_state; i++) {
        const size_t n = (size_t)delta_channels(d);
        memcpy(seq->states[i], noted_inputs(d, seq, i) + (size_t)n_keep * n,
               (size_t)(d->taps - 1) * n * sizeof(float));
    }
    if (n_keep > 0) {
        pool_run(m->pool, commit_task, &op, m->hp.n_state * d->n_v_head);
    }
}

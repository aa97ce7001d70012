/* moe.c - mixtures of experts: a router picks a few MLPs for every token.
 *
 * The tokens of a step are grouped by expert, so that each expert's weights are read once
 * however many tokens chose it.  Experts run in ascending order and every token adds what it
 * gets in that order, so neither its company in the step nor the threads show in the result. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "model/forward.h"

/* Weights of the chosen experts are divided by their sum, but never by less than this. */
static const float WEIGHT_SUM_MIN = 6.103515625e-5f;

struct moe_op {
    struct step *st;
    const struct moe *moe;
    enum gate_fn fn;
    int n_used, n_ff;
    float *p;          /* [n_tok][n_expert] logits, then probabilities */
    int *id;           /* [n_tok][n_used] chosen experts, most likely first */
    float *weight;     /* [n_tok][n_used] */
    int *order;        /* [n_tok * n_used] places in id, expert after expert, then by token */
    const float *x;    /* [n_tok][n_embd] */
    float *y;          /* [n_tok][n_embd] sums */

    /* The expert at hand. */
    const int *mine;   /* its part of order */
    float *in;         /* [n][n_embd] its tokens, then its results */
    float *gu;         /* [n][2 * n_ff] gate and up side by side */
};

/* ---- routing -------------------------------------------------------------------------- */

/* Logits of one token to probabilities. */
static void softmax(const struct kern *k, float *p, int n)
{
    const float max = k->max(p, n);
    float sum = 0;

    for (int i = 0; i < n; i++) {
        p[i] -= max;
    }
    k->unary[UNARY_EXP](p, p, n);
    for (int i = 0; i < n; i++) {
        sum += p[i];
    }
    for (int i = 0; i < n; i++) {
        p[i] /= sum;
    }
}

/* The largest value that has not been taken (-inf), the first of equal ones; also with NaN. */
static int take_largest(float *p, int n, float *value)
{
    int best = -1;

    for (int i = 0; i < n; i++) {
        if (p[i] != -INFINITY && (best < 0 || p[i] > p[best])) {
            best = i;
        }
    }
    assert(best >= 0);
    *value = p[best];
    p[best] = -INFINITY;
    return best;
}

static void route_row(void *arg, int t, int worker)
{
    const struct moe_op *op = arg;
    const int n = op->st->hp->n_expert, n_used = op->n_used;
    float *p = op->p + (size_t)t * (size_t)n;
    float *w = op->weight + (size_t)t * (size_t)n_used, sum = 0;

    (void)worker;
    softmax(op->st->k, p, n);
    for (int j = 0; j < n_used; j++) {
        op->id[t * n_used + j] = take_largest(p, n, &w[j]);
        sum += w[j];
    }
    sum = sum > WEIGHT_SUM_MIN ? sum : WEIGHT_SUM_MIN;
    for (int j = 0; j < n_used; j++) {
        w[j] /= sum;
    }
}

/* Sorts the choices by expert; those of expert e are order[first[e]] .. order[first[e + 1] - 1]. */
static void group(const struct moe_op *op, int first[EXPERT_MAX + 1])
{
    const int n_choice = op->st->n_tok * op->n_used, n_expert = op->st->hp->n_expert;
    int next[EXPERT_MAX];

    memset(first, 0, (size_t)(n_expert + 1) * sizeof *first);
    for (int i = 0; i < n_choice; i++) {
        first[op->id[i] + 1]++;
    }
    for (int e = 0; e < n_expert; e++) {
        next[e] = first[e];
        first[e + 1] += first[e];
    }
    for (int i = 0; i < n_choice; i++) {
        op->order[next[op->id[i]]++] = i;
    }
}

/* ---- experts --------------------------------------------------------------------------- */

static void gather_row(void *arg, int i, int worker)
{
    const struct moe_op *op = arg;
    const size_t n_embd = (size_t)op->st->hp->n_embd;

    (void)worker;
    memcpy(op->in + (size_t)i * n_embd, op->x + (size_t)(op->mine[i] / op->n_used) * n_embd,
           n_embd * sizeof *op->in);
}

static void gate_row(void *arg, int i, int worker)
{
    const struct moe_op *op = arg;
    float *g = op->gu + (size_t)i * 2 * (size_t)op->n_ff;

    (void)worker;
    op->st->k->gate[op->fn](g, g + op->n_ff, op->n_ff);
}

/* Adds an expert's weighted result to the sum of the token that chose it. */
static void scatter_row(void *arg, int i, int worker)
{
    const struct moe_op *op = arg;
    const int n_embd = op->st->hp->n_embd, choice = op->mine[i];
    float *out = op->in + (size_t)i * (size_t)n_embd;

    (void)worker;
    op->st->k->scale(out, op->weight[choice], n_embd);
    op->st->k->add(op->y + (size_t)(choice / op->n_used) * (size_t)n_embd, out, n_embd);
}

/* Which weights the chosen experts will need. */
static void expect_experts(struct moe_op *op, const int first[EXPERT_MAX + 1])
{
    const struct moe *m = op->moe;

    for (int e = 0; e < op->st->hp->n_expert; e++) {
        if (first[e] == first[e + 1]) {
            continue;
        }
        if (m->gate_up) {
            expect_weight(op->st, &m->gate_up[e]);
        } else {
            expect_weight(op->st, &m->gate[e]);
            expect_weight(op->st, &m->up[e]);
        }
        expect_weight(op->st, &m->down[e]);
    }
}

/* Runs expert e over the n tokens that chose it. */
static void run_expert(struct moe_op *op, int e, int n)
{
    struct step *st = op->st;
    const struct moe *m = op->moe;
    const size_t n_embd = (size_t)st->hp->n_embd, n_ff = (size_t)op->n_ff, ld = 2 * n_ff;
    const struct product in[] = {
        { m->gate_up ? &m->gate_up[e] : &m->gate[e], NULL, op->gu, ld },
        { m->gate_up ? NULL : &m->up[e], NULL, op->gu + n_ff, ld },
    };
    const struct product out = { &m->down[e], NULL, op->in, n_embd };

    op_rows(st, n, gather_row, op);
    matmul(st, in, m->gate_up ? 1 : 2, op->in, n_embd, n);
    op_rows(st, n, gate_row, op);
    matmul(st, &out, 1, op->gu, ld, n);
    op_rows(st, n, scatter_row, op);
}

void moe_block(struct step *st, const struct moe *m, enum gate_fn fn, const float *router_in,
               const float *x, float *y)
{
    const struct hparams *hp = st->hp;
    const size_t mark = scratch_mark(st);
    int first[EXPERT_MAX + 1];
    struct moe_op op = {
        .st = st, .moe = m, .fn = fn, .n_used = hp->n_expert_used, .n_ff = hp->n_ff_expert,
        .x = x, .y = y,
        .p = scratch_rows(st, hp->n_expert),
        .id = (int *)(void *)scratch_rows(st, hp->n_expert_used),
        .weight = scratch_rows(st, hp->n_expert_used),
        .order = (int *)(void *)scratch_rows(st, hp->n_expert_used),
        .in = scratch_rows(st, hp->n_embd),
        .gu = scratch_rows(st, 2 * hp->n_ff_expert),
    };
    const struct product router = { &m->router, NULL, op.p, (size_t)hp->n_expert };

    assert(y != x && y != router_in);
    matmul(st, &router, 1, router_in, (size_t)hp->n_embd, st->n_tok);
    op_rows(st, st->n_tok, route_row, &op);
    group(&op, first);
    expect_experts(&op, first);
    memset(y, 0, (size_t)st->n_tok * (size_t)hp->n_embd * sizeof *y);
    for (int e = 0; e < hp->n_expert; e++) {
        if (first[e] < first[e + 1]) {
            op.mine = op.order + first[e];
            run_expert(&op, e, first[e + 1] - first[e]);
        }
    }
    scratch_release(st, mark);
}

int moe_row_floats(const struct hparams *hp)
{
    return hp->n_expert == 0 ? 0 : hp->n_expert + 3 * hp->n_expert_used + hp->n_embd +
                                   2 * hp->n_ff_expert;
}

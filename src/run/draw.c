/* draw.c - draws one text's tokens, and runs that for all. */
#include "run/draw.h"

#include "run/logprob.h"

struct draw_op {
    const struct kern *k;
    int n_vocab;
    struct draws *draws;
};

/* Draws from row `row`, with the drafts before it taken for right. */
static bool draw_one(const struct draw_op *op, const struct draws *d, int row, struct drawn *out,
                     slm_error *err)
{
    const float *logits = d->logits + (size_t)row * (size_t)op->n_vocab;

    *out = (struct drawn){ .id = -1 };
    if (d->broken[row]) {
        return slm_fail(err, SLM_E_NUMERIC, "the model computed a logit that is not a number; "
                        "the file's weights are damaged or of a wrong type");
    }
    if (!sampler_draw(d->sampler, logits, d->tok, (size_t)(d->n_tok + row), &out->id, err)) {
        return false;
    }
    if (d->n_top >= 0) {
        const struct logprob_base base = logprob_base(op->k, logits, op->n_vocab);
        out->chosen = (slm_logprob){ out->id, logprob_of(base, logits[out->id]) };
        out->n_top = logprob_top(op->k, base, logits, op->n_vocab, out->top, d->n_top);
    }
    return true;
}

static void draw_task(void *arg, int task, int worker)
{
    const struct draw_op *op = arg;
    struct draws *d = &op->draws[task];
    bool right = true;

    (void)worker;
    d->ok = true;
    for (d->n = 0; right && d->n <= d->n_draft; d->n++) {
        struct drawn *out = &d->out[d->n];
        d->ok = draw_one(op, d, d->n, out, &d->error);
        if (!d->ok) {
            break;
        }
        right = d->n < d->n_draft && out->id == d->tok[d->n_tok + d->n];
    }
}

void draw_all(struct pool *pool, const struct kern *k, int n_vocab, struct draws *draws, int n)
{
    struct draw_op op = { k, n_vocab, draws };

    pool_run(pool, draw_task, &op, n);
}

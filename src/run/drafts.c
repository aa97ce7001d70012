/* drafts.c - the drafters of a batch's seats and what was learnt about them. */
#include "run/drafts.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

struct drafts {
    const struct draft_source *source;
    struct drafts_params p;
    int n_vocab;
    size_t n_embd;
    void **drafter;      /* [n_seats] */
    float *last;         /* [n_seats][n_embd]: the hidden row before each seat's next token */
    float *rows;         /* [1 + rows_max][n_embd]: a place for that one, then the step's rows */
    size_t trial_bytes;  /* of one answer */
    char *trials;        /* [DRAFTS_TOGETHER][trial_bytes] */
    struct pace pace[DRAFTS_TOGETHER];  /* by the number of answers, less one */
    slm_draft_stats stats;
};

static struct draft_setup setup_of(const struct drafts_params *p)
{
    return (struct draft_setup){ .model = p->draft.model, .step_lock = p->draft.step_lock,
                                 .max = p->draft.max, .context = p->context, .kv = p->kv };
}

/* Hidden rows that it keeps. */
static size_t row_floats(const struct model *m, const struct drafts_params *p)
{
    const size_t rows = (size_t)p->n_seats + (size_t)p->rows_max + 1;

    return spec_source(p->draft.kind)->rows ? rows * (size_t)model_shape(m)->n_embd : 0;
}

size_t drafts_bytes(const struct model *m, const struct drafts_params *p)
{
    const struct draft_setup setup = setup_of(p);
    const size_t one = spec_source(p->draft.kind)->bytes(&setup);
    const size_t rest = row_floats(m, p) * sizeof(float) +
                        DRAFTS_TOGETHER * align_up(model_trial_bytes(m, p->draft.max + 1), 64);
    size_t bytes;

    if (one == SIZE_MAX || !size_mul(one, (size_t)p->n_seats, &bytes) ||
        !size_add(bytes, rest, &bytes)) {
        return SIZE_MAX;
    }
    return bytes;
}

static bool make_rows(struct drafts *d, const struct model *m)
{
    d->trial_bytes = align_up(model_trial_bytes(m, d->p.draft.max + 1), 64);
    if (d->source->rows) {
        d->last = mem_zalloc((size_t)d->p.n_seats * d->n_embd, sizeof *d->last);
        d->rows = mem_alloc(((size_t)d->p.rows_max + 1) * d->n_embd, sizeof *d->rows);
    }
    if (d->trial_bytes > 0) {
        d->trials = mem_alloc_aligned(DRAFTS_TOGETHER * d->trial_bytes);
    }
    return (!d->source->rows || (d->last && d->rows)) && (d->trial_bytes == 0 || d->trials);
}

struct drafts *drafts_new(const struct model *m, const struct drafts_params *p, slm_error *err)
{
    const struct draft_setup setup = setup_of(p);
    struct drafts *d = mem_zalloc(1, sizeof *d);

    if (!d) {
        slm_fail_nomem(err, "drafts");
        return NULL;
    }
    d->source = spec_source(p->draft.kind);
    d->p = *p;
    d->n_vocab = model_shape(m)->n_vocab;
    d->n_embd = (size_t)model_shape(m)->n_embd;
    d->drafter = mem_zalloc((size_t)p->n_seats, sizeof *d->drafter);
    if (!d->drafter || !make_rows(d, m)) {
        slm_fail_nomem(err, "drafts");
        goto fail;
    }
    for (int i = 0; i < p->n_seats; i++) {
        d->drafter[i] = d->source->make(&setup, err);
        if (!d->drafter[i]) {
            goto fail;
        }
    }
    for (int i = 0; i < DRAFTS_TOGETHER; i++) {
        pace_init(&d->pace[i], p->draft.max);
    }
    return d;

fail:
    drafts_free(d);
    return NULL;
}

void drafts_free(struct drafts *d)
{
    if (!d) {
        return;
    }
    for (int i = 0; d->drafter && i < d->p.n_seats; i++) {
        if (d->drafter[i]) {
            d->source->drop(d->drafter[i]);
        }
    }
    mem_free(d->drafter);
    mem_free(d->last);
    mem_free(d->rows);
    mem_free(d->trials);
    mem_free(d);
}

float *drafts_hidden(const struct drafts *d)
{
    return d->rows ? d->rows + d->n_embd : NULL;
}

float *drafts_trial(const struct drafts *d, int i)
{
    assert(i < DRAFTS_TOGETHER);
    return d->trials ? (float *)(void *)(d->trials + (size_t)i * d->trial_bytes) : NULL;
}

static float *last_row(const struct drafts *d, int seat)
{
    return d->last + (size_t)seat * d->n_embd;
}

void drafts_begin(struct drafts *d, int seat)
{
    if (d->last) {
        memset(last_row(d, seat), 0, d->n_embd * sizeof *d->last);
    }
    if (d->source->follow) {
        d->source->follow(d->drafter[seat], NULL, 0, 0, d->last ? last_row(d, seat) : NULL);
    }
}

void drafts_follow(struct drafts *d, int seat, const int32_t *ids, int n, int pos0, int row)
{
    const size_t bytes = d->n_embd * sizeof *d->rows;

    if (!d->source->follow) {
        return;
    }
    if (!d->last) {
        d->source->follow(d->drafter[seat], ids, n, pos0, NULL);
        return;
    }
    /* The row before the first token takes the place of the one that the step has there, which
     * belongs to a sequence that has been told of it. */
    float *rows = d->rows + (size_t)row * d->n_embd;
    memcpy(rows, last_row(d, seat), bytes);
    d->source->follow(d->drafter[seat], ids, n, pos0, rows);
    memcpy(last_row(d, seat), rows + (size_t)n * d->n_embd, bytes);
}

int drafts_choose(struct drafts *d, int n_answers)
{
    if (n_answers < 1 || n_answers > DRAFTS_TOGETHER) {
        return 0;
    }
    struct pace *pace = &d->pace[n_answers - 1];
    const int n = d->p.draft.steady ? d->p.draft.max : pace_choose(pace);
    d->stats.steps++;
    d->stats.paused += pace->losing;
    return n;
}

int drafts_make(struct drafts *d, int seat, const int32_t *tok, int n, int want, int32_t *out)
{
    if (want <= 0) {
        return 0;
    }
    if (d->source->prepare) {
        d->source->prepare(d->drafter[seat], tok, n);
    }
    const int n_out = d->source->propose(d->drafter[seat], tok, n, want, out);
    assert(n_out >= 0 && n_out <= want);
    for (int i = 0; i < n_out; i++) {
        if (out[i] < 0 || out[i] >= d->n_vocab) {  /* of a drafter with more tokens */
            return i;
        }
    }
    return n_out;
}

void drafts_learn(struct drafts *d, int n_answers, int n, int n_right, double seconds)
{
    if (n_answers >= 1 && n_answers <= DRAFTS_TOGETHER) {
        pace_learn(&d->pace[n_answers - 1], n, n_right, seconds);
        d->stats.drafted += (uint64_t)n;
        d->stats.accepted += (uint64_t)n_right;
        d->stats.tokens += (uint64_t)n_right + 1;
    }
}

void drafts_stats(const struct drafts *d, slm_draft_stats *out)
{
    *out = d->stats;
}

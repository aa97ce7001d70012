/* recur.c - one block of memory for the live states, their copies, and logits beside these. */
#include "run/recur.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

struct checkpoint {
    int pos, place;        /* place: which of the copies */
    bool has_logits;
};

struct recur {
    char *block;
    size_t block_bytes;
    size_t state_bytes;    /* of all layers */
    size_t logit_bytes;
    size_t copy_bytes;     /* states and logits, rounded up */
    float **states;        /* [n_state], into the front of the block */
    struct checkpoint *points;  /* [n_max]: n by position, then those whose places are free */
    int n, n_max;
};

static size_t all_states_bytes(const struct model *m)
{
    return (size_t)model_shape(m)->n_state * model_state_bytes(m);
}

static size_t copy_bytes(const struct model *m)
{
    return align_up(all_states_bytes(m) + (size_t)model_shape(m)->n_vocab * sizeof(float), 64);
}

size_t recur_bytes(const struct model *m, int n_checkpoints)
{
    size_t bytes;

    if (!size_mul(copy_bytes(m), (size_t)n_checkpoints, &bytes) ||
        !size_add(bytes, all_states_bytes(m), &bytes)) {
        return SIZE_MAX;
    }
    return bytes;
}

struct recur *recur_new(const struct model *m, int n_checkpoints, slm_error *err)
{
    const int n_state = model_shape(m)->n_state;
    struct recur *r = mem_zalloc(1, sizeof *r);

    assert(n_state > 0 && n_checkpoints >= 1);
    if (!r) {
        goto fail;
    }
    r->state_bytes = all_states_bytes(m);
    r->logit_bytes = (size_t)model_shape(m)->n_vocab * sizeof(float);
    r->copy_bytes = copy_bytes(m);
    r->n_max = n_checkpoints;
    r->block_bytes = recur_bytes(m, n_checkpoints);
    r->block = r->block_bytes == SIZE_MAX ? NULL : mem_pages(r->block_bytes);
    r->states = mem_alloc((size_t)n_state, sizeof *r->states);
    r->points = mem_alloc((size_t)n_checkpoints, sizeof *r->points);
    if (!r->block || !r->states || !r->points) {
        goto fail;
    }
    for (int i = 0; i < n_checkpoints; i++) {
        r->points[i] = (struct checkpoint){ .place = i };
    }
    for (int i = 0; i < n_state; i++) {
        r->states[i] = (float *)(void *)(r->block + (size_t)i * model_state_bytes(m));
    }
    return r;

fail:
    recur_free(r);
    slm_fail_nomem(err, "the states of recurrent layers");
    return NULL;
}

void recur_free(struct recur *r)
{
    if (!r) {
        return;
    }
    if (r->block) {
        mem_pages_free(r->block, r->block_bytes);
    }
    mem_free(r->states);
    mem_free(r->points);
    mem_free(r);
}

float *const *recur_states(const struct recur *r)
{
    return r->states;
}

/* The copy of a checkpoint: states, then logits. */
static char *copy_of(const struct recur *r, const struct checkpoint *c)
{
    return r->block + r->state_bytes + (size_t)c->place * r->copy_bytes;
}

/* Takes the checkpoint out whose loss costs least: the gap that it would leave, compared with
 * how far back it lies, since a session goes back a little more often than a long way. */
static void evict(struct recur *r, int pos)
{
    int best = 0;

    for (int i = 1; i < r->n; i++) {
        int64_t gap[2], back[2];
        for (int j = 0; j < 2; j++) {
            const int at = j == 0 ? best : i;
            const int before = at > 0 ? r->points[at - 1].pos : 0;
            const int after = at + 1 < r->n ? r->points[at + 1].pos : pos;
            gap[j] = after - before;
            back[j] = pos - r->points[at].pos;
        }
        if (gap[1] * back[0] < gap[0] * back[1]) {
            best = i;
        }
    }
    const struct checkpoint out = r->points[best];
    r->n--;
    memmove(&r->points[best], &r->points[best + 1], (size_t)(r->n - best) * sizeof *r->points);
    r->points[r->n] = out;
}

void recur_save(struct recur *r, int pos, const float *logits)
{
    const int last = recur_last(r);

    assert(pos >= last && pos > 0);
    if (pos > last || r->n == 0) {
        if (r->n == r->n_max) {
            evict(r, pos);
        }
        r->points[r->n++].pos = pos;
    }
    struct checkpoint *c = &r->points[r->n - 1];
    c->has_logits = logits != NULL;
    memcpy(copy_of(r, c), r->block, r->state_bytes);
    if (logits) {
        memcpy(copy_of(r, c) + r->state_bytes, logits, r->logit_bytes);
    }
}

int recur_last(const struct recur *r)
{
    return r->n > 0 ? r->points[r->n - 1].pos : 0;
}

bool recur_has_logits(const struct recur *r, int pos)
{
    for (int i = 0; i < r->n; i++) {
        if (r->points[i].pos == pos) {
            return r->points[i].has_logits;
        }
    }
    return false;
}

int recur_restore(struct recur *r, int pos, float *logits, bool *has_logits)
{
    while (recur_last(r) > pos) {
        r->n--;
    }
    *has_logits = false;
    if (r->n == 0) {
        memset(r->block, 0, r->state_bytes);
        return 0;
    }
    const struct checkpoint *c = &r->points[r->n - 1];
    memcpy(r->block, copy_of(r, c), r->state_bytes);
    if (c->has_logits) {
        memcpy(logits, copy_of(r, c) + r->state_bytes, r->logit_bytes);
        *has_logits = true;
    }
    return c->pos;
}

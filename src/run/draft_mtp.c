/* draft_mtp.c - drafts by the block behind a model's layers.
 *
 * The block takes a token and the model's hidden row before it, and has keys and values of its own.
 * Those of the text must come from the model's rows, so it follows what the session appends; single
 * tokens wait until the next draft, which takes them along.  Behind the text each draft comes from
 * the row that the block gave for the one before. */
#include "run/spec.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

/* Rows of one step of the block: tokens that wait, or a piece of a prompt. */
enum { BATCH = 2 * SPEC_MAX };

struct mtp {
    struct model *model;
    pthread_mutex_t *step_lock;
    enum kv_type kv;
    struct work *work;
    size_t n_embd;
    int n_vocab;
    int n_done, n_wait;  /* tokens in the pages; then those that wait */
    int32_t *tok;        /* [BATCH], that wait */
    float *before;       /* [BATCH + 1][n_embd]: the row before each of them, and before the next */
    float *hidden;       /* [BATCH][n_embd], of the block's step */
    float *logits;       /* [n_vocab] */
    void **pages;        /* table [n_pages] into the block */
    char *block;
    size_t block_bytes;
};

static size_t page_bytes(const struct draft_setup *setup)
{
    return align_up(model_draft_page_bytes(setup->model, setup->kv), 64);
}

static size_t n_pages(const struct draft_setup *setup)
{
    return ((size_t)setup->context + KV_PAGE - 1) / KV_PAGE;
}

static size_t mtp_bytes(const struct draft_setup *setup)
{
    const struct model_shape *shape = model_shape(setup->model);
    const size_t rows = (size_t)(2 * BATCH + 1) * (size_t)shape->n_embd + (size_t)shape->n_vocab;
    size_t bytes;

    if (!size_mul(n_pages(setup), page_bytes(setup) + sizeof(void *), &bytes) ||
        !size_add(bytes, rows * sizeof(float), &bytes) ||
        !size_add(bytes, work_bytes(setup->model, BATCH, 1, setup->context), &bytes)) {
        return SIZE_MAX;
    }
    return bytes;
}

static void mtp_drop(void *drafter)
{
    struct mtp *d = drafter;

    if (d->block) {
        mem_pages_free(d->block, d->block_bytes);
    }
    mem_free(d->pages);
    mem_free(d->logits);
    mem_free(d->hidden);
    mem_free(d->before);
    mem_free(d->tok);
    work_free(d->work);
    mem_free(d);
}

static void *mtp_make(const struct draft_setup *setup, slm_error *err)
{
    const size_t n = n_pages(setup), bytes = page_bytes(setup);
    struct mtp *d = mem_zalloc(1, sizeof *d);

    assert(model_shape(setup->model)->can_draft);
    if (!d) {
        slm_fail_nomem(err, "the draft block's memory");
        return NULL;
    }
    d->model = setup->model;
    d->step_lock = setup->step_lock;
    d->kv = setup->kv;
    d->n_embd = (size_t)model_shape(d->model)->n_embd;
    d->n_vocab = model_shape(d->model)->n_vocab;
    d->tok = mem_alloc(BATCH, sizeof *d->tok);
    d->before = mem_zalloc((BATCH + 1) * d->n_embd, sizeof *d->before);
    d->hidden = mem_alloc(BATCH * d->n_embd, sizeof *d->hidden);
    d->logits = mem_alloc((size_t)d->n_vocab, sizeof *d->logits);
    d->pages = mem_alloc(n, sizeof *d->pages);
    if (size_mul(n, bytes, &d->block_bytes)) {
        d->block = mem_pages(d->block_bytes);
    }
    if (!d->tok || !d->before || !d->hidden || !d->logits || !d->pages || !d->block) {
        slm_fail_nomem(err, "the draft block's memory");
        mtp_drop(d);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        d->pages[i] = d->block + i * bytes;
    }
    d->work = work_new(d->model, BATCH, 1, setup->context, err);
    if (!d->work) {
        mtp_drop(d);
        return NULL;
    }
    return d;
}

/* One step of the block over n tokens from position pos0 on; with logits of the last one and
 * hidden rows of all where `draft`. */
static bool run_block(struct mtp *d, const int32_t *tok, int n, int pos0, const float *before,
                      bool draft)
{
    bool want[BATCH] = { false };
    const struct step_seq seq = { .n_tok = n, .pos0 = pos0, .pages = d->pages };
    const struct step_in in = {
        .n_tok = n, .tok = tok, .n_seq = 1, .seq = &seq, .kv = d->kv, .want = want,
        .hidden = draft ? d->hidden : NULL,
    };

    want[n - 1] = draft;
    if (d->step_lock) {
        pthread_mutex_lock(d->step_lock);
    }
    const bool ok = model_draft(d->model, d->work, &in, before, d->logits, NULL);
    if (d->step_lock) {
        pthread_mutex_unlock(d->step_lock);
    }
    return ok;
}

static float *row_before(struct mtp *d, int i)
{
    return d->before + (size_t)i * d->n_embd;
}

/* Computes what waits. */
static void settle(struct mtp *d)
{
    if (d->n_wait > 0) {
        run_block(d, d->tok, d->n_wait, d->n_done, d->before, false);
        memcpy(d->before, row_before(d, d->n_wait), d->n_embd * sizeof *d->before);
        d->n_done += d->n_wait;
        d->n_wait = 0;
    }
}

/* Makes position pos the next one.  The row before it is known only where it was that already, and
 * where the text began without the block, what it has not seen counts as empty: that makes drafts
 * worse and nothing else. */
static void stand_at(struct mtp *d, int pos)
{
    if (pos == d->n_done + d->n_wait) {
        return;
    }
    if (pos > d->n_done && pos < d->n_done + d->n_wait) {
        d->n_wait = pos - d->n_done;
    } else {
        d->n_done = pos;
        d->n_wait = 0;
    }
    memset(row_before(d, d->n_wait), 0, d->n_embd * sizeof *d->before);
}

static void mtp_follow(void *drafter, const int32_t *ids, int n, int pos0, const float *rows)
{
    struct mtp *d = drafter;

    stand_at(d, pos0);
    for (int i = 0; i < n; i++) {
        if (d->n_wait == BATCH) {
            settle(d);
        }
        memcpy(row_before(d, d->n_wait), rows + (size_t)i * d->n_embd,
               d->n_embd * sizeof *d->before);
        d->tok[d->n_wait++] = ids[i];
    }
    memcpy(row_before(d, d->n_wait), rows + (size_t)n * d->n_embd, d->n_embd * sizeof *d->before);
}

static int mtp_propose(void *drafter, const int32_t *tok, int n, int max, int32_t *out)
{
    struct mtp *d = drafter;

    stand_at(d, n - 1);
    if (d->n_wait == BATCH) {
        settle(d);
    }
    /* What waits, and the last token behind it, whose row is the model's own too. */
    d->tok[d->n_wait] = tok[n - 1];
    const int n_rows = d->n_wait + 1;
    bool ok = run_block(d, d->tok, n_rows, d->n_done, d->before, true);
    const float *hidden = d->hidden + (size_t)(n_rows - 1) * d->n_embd;
    int i = 0;

    while (ok && i < max) {
        out[i] = draft_argmax(d->logits, d->n_vocab);
        if (++i < max) {
            ok = run_block(d, &out[i - 1], 1, n - 1 + i, hidden, true);
            hidden = d->hidden;
        }
    }
    /* The tokens that waited are computed; the row before the last one is kept for it. */
    memmove(d->before, row_before(d, d->n_wait), d->n_embd * sizeof *d->before);
    d->n_done += d->n_wait;
    d->n_wait = 0;
    return i;
}

const struct draft_source draft_mtp = {
    .name = "mtp",
    .rows = true,
    .bytes = mtp_bytes,
    .make = mtp_make,
    .drop = mtp_drop,
    .follow = mtp_follow,
    .propose = mtp_propose,
};

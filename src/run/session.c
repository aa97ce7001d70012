/* session.c - feeding tokens through the model, chunk by chunk.
 *
 * A session owns its pages, its scratch, the list of its tokens and one row of
 * logits; all of it is allocated when the session is made.  Chunking never shows
 * in a result, so its size is only a matter of memory and speed. */
#include "run/session_int.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

/* Prompt tokens per step unless told otherwise: enough rows that a product is bound
 * by arithmetic and not by reading weights; more only costs scratch. */
enum { CHUNK_MAX = 512, CHUNK_MIN = 64 };

/* Scratch that a chosen chunk may take; a smaller chunk is taken while it is more. */
static const size_t WORK_BYTES_MAX = (size_t)48 << 20;

/* Rows of logits in one step of a score; their scratch grows with it, and a longer
 * run of rows gains nothing. */
enum { WANT_MAX = 64 };

/* Checkpoints of recurrent layers: how many unless told otherwise, fewer while they take more
 * than so many bytes. */
enum { CHECKPOINTS_MAX = 8, CHECKPOINTS_MIN = 2 };
static const size_t CHECKPOINT_BYTES_MAX = (size_t)96 << 20;

/* A feed of so many tokens is a prompt and not an answer being written. */
enum { PROMPT_MIN = 16 };

/* A checkpoint is made at the end of a prompt, and wherever the last one lies so far back. */
enum { CHECKPOINT_STEP = 512 };

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

static int want_max_of(int chunk)
{
    return min_int(chunk, WANT_MAX);
}

static int choose_chunk(const struct model *m, const struct session_params *p)
{
    int chunk = p->chunk > p->trial ? p->chunk : p->chunk > 0 ? p->trial : CHUNK_MAX;

    while (p->chunk <= 0 && chunk > CHUNK_MIN &&
           work_bytes(m, chunk, want_max_of(chunk), p->context) > WORK_BYTES_MAX) {
        chunk /= 2;
    }
    return min_int(chunk, p->context);
}

static int choose_checkpoints(const struct model *m, const struct session_params *p)
{
    int n = p->checkpoints > 0 ? p->checkpoints : CHECKPOINTS_MAX;

    while (p->checkpoints <= 0 && n > CHECKPOINTS_MIN && recur_bytes(m, n) > CHECKPOINT_BYTES_MAX) {
        n--;
    }
    return n;
}

/* What the session's pool holds: all positions, in sliding layers only what is still needed. */
static struct kv_params pool_params(const struct model *m, const struct session_params *p)
{
    const struct kv_count groups = kv_seq_groups(m, p->context, choose_chunk(m, p), 1);

    return kv_params_for(m, p->kv, false, groups);
}

struct session_cost session_cost(const struct model *m, const struct session_params *p)
{
    const int chunk = choose_chunk(m, p);
    const size_t logit_bytes = logit_floats(m, 1 + p->trial) * sizeof(float);
    const size_t lists = (size_t)p->context * sizeof(int32_t) + (size_t)chunk * sizeof(bool) +
                         kv_seq_bytes(m, p->context) + model_trial_bytes(m, p->trial) +
                         (p->rows ? row_floats(m, 1 + chunk) * sizeof(float) : 0);
    struct session_cost cost = { pool_params(m, p).bytes_max, SIZE_MAX };
    size_t work = work_bytes(m, chunk, want_max_of(chunk), p->context);

    const bool recurrent = model_shape(m)->n_state > 0;
    const size_t states = recurrent ? recur_bytes(m, choose_checkpoints(m, p)) : 0;

    if (states != SIZE_MAX && size_add(work, logit_bytes, &work) && size_add(work, lists, &work) &&
        size_add(work, states, &work)) {
        cost.work_bytes = work;
    }
    return cost;
}

/* What only sessions with drafts have. */
static bool make_trial(struct session *s, const struct session_params *p)
{
    const size_t noted = model_trial_bytes(s->model, p->trial);

    s->trial_max = min_int(p->trial, s->chunk);
    if (p->trial > 0) {
        s->trial_logits = mem_alloc(logit_floats(s->model, p->trial), sizeof(float));
        s->trial = noted ? mem_alloc(noted, 1) : NULL;
    }
    if (p->rows) {
        s->rows = mem_zalloc(row_floats(s->model, 1 + s->chunk), sizeof(float));
    }
    return (s->trial_logits || p->trial == 0) && (s->trial || p->trial == 0 || noted == 0) &&
           (s->rows || !p->rows);
}

struct session *session_new(struct model *m, const struct session_params *p, slm_error *err)
{
    assert(p->context >= 1 && p->chunk >= 0 && p->trial >= 0 && p->trial <= WANT_MAX);
    struct session *s = mem_zalloc(1, sizeof *s);

    if (!s) {
        slm_fail_nomem(err, "a session");
        return NULL;
    }
    s->model = m;
    s->kv_type = p->kv;
    s->context = p->context;
    s->chunk = choose_chunk(m, p);
    s->want_max = want_max_of(s->chunk);
    s->step_lock = p->step_lock;
    s->tok = mem_alloc((size_t)s->context, sizeof *s->tok);
    s->want = mem_zalloc((size_t)s->chunk, sizeof *s->want);
    s->logits = mem_alloc(logit_floats(m, 1), sizeof *s->logits);
    if (!s->tok || !s->want || !s->logits || !make_trial(s, p)) {
        slm_fail_nomem(err, "a session");
        goto fail;
    }
    const struct kv_params kv = pool_params(m, p);
    s->pool = kv_pool_new(m, &kv, err);
    s->kv = s->pool ? kv_seq_new(s->pool, s->context, err) : NULL;
    if (!s->kv) {
        goto fail;
    }
    if (model_shape(m)->n_state > 0) {
        s->recur = recur_new(m, choose_checkpoints(m, p), err);
        if (!s->recur) {
            goto fail;
        }
    }
    s->work = work_new(m, s->chunk, s->want_max, s->context, err);
    if (!s->work) {
        goto fail;
    }
    return s;

fail:
    session_free(s);
    return NULL;
}

void session_free(struct session *s)
{
    if (!s) {
        return;
    }
    work_free(s->work);
    recur_free(s->recur);
    kv_seq_free(s->kv);
    kv_pool_free(s->pool);
    mem_free(s->rows);
    mem_free(s->trial);
    mem_free(s->trial_logits);
    mem_free(s->logits);
    mem_free(s->want);
    mem_free(s->tok);
    mem_free(s);
}

int session_len(const struct session *s)
{
    return s->len;
}

int session_context(const struct session *s)
{
    return s->context;
}

int session_n_vocab(const struct session *s)
{
    return model_shape(s->model)->n_vocab;
}

const int32_t *session_tokens(const struct session *s)
{
    return s->tok;
}

const float *session_logits(const struct session *s)
{
    return s->has_logits ? s->logits : NULL;
}

void session_progress(struct session *s, session_progress_fn *fn, void *arg)
{
    s->progress = fn;
    s->progress_arg = arg;
}

void session_follow(struct session *s, session_follow_fn *fn, void *arg)
{
    s->follow = fn;
    s->follow_arg = arg;
}

/* ---- feeding --------------------------------------------------------------------- */

bool session_check_ids(const struct session *s, int len, const int32_t *ids, size_t n,
                       slm_error *err)
{
    const int n_vocab = model_shape(s->model)->n_vocab;

    if (n > (size_t)(s->context - len)) {
        return slm_fail(err, SLM_E_CONTEXT,
                        "%zu tokens do not fit: the context has room for %d and holds %d already",
                        n, s->context, len);
    }
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= n_vocab) {
            return slm_fail(err, SLM_E_ARG, "token %zu has id %d, ids go from 0 to %d", i,
                            (int)ids[i], n_vocab - 1);
        }
    }
    return true;
}

/* Back to the last position, n or before, from which everything is there: the keys that sliding
 * layers see, and with recurrent layers a checkpoint, whose logits the session has if it had them
 * then. */
static void go_back(struct session *s, int n)
{
    int at;

    if (s->rows) {
        memset(s->rows, 0, row_floats(s->model, 1) * sizeof *s->rows);
    }
    s->has_logits = false;
    do {
        at = kv_seq_resume(s->kv, n);
        n = s->recur ? recur_restore(s->recur, at, s->logits, &s->has_logits) : at;
    } while (n < at);
    s->len = n;
    s->keep = min_int(s->keep, n);
    kv_seq_drop(s->kv, n);
}

/* The sequence in a step of n tokens. */
static struct step_seq step_of(const struct session *s, int n, bool trial)
{
    return (struct step_seq){
        .n_tok = n,
        .pos0 = s->len,
        .pages = kv_seq_table(s->kv),
        .page_stride = kv_seq_stride(s->kv),
        .states = s->recur ? recur_states(s->recur) : NULL,
        .trial = trial ? s->trial : NULL,
    };
}

/* Computes the n tokens, 1..chunk, behind those that there are, and writes the logits of the last
 * one, or of all of them, to `out`. */
static bool compute(struct session *s, const int32_t *ids, int n, bool trial, bool want_all,
                    float *out, slm_error *err)
{
    const struct step_seq seq = step_of(s, n, trial);
    const struct step_in in = {
        .n_tok = n,
        .tok = ids,
        .n_seq = 1,
        .seq = &seq,
        .kv = s->kv_type,
        .want = s->want,
        .hidden = s->rows ? s->rows + row_floats(s->model, 1) : NULL,
    };

    if (!kv_seq_ensure(s->kv, s->len, s->len + n, err)) {
        return false;
    }
    for (int i = 0; i < n; i++) {
        s->want[i] = out && (want_all || i == n - 1);
    }
    if (s->step_lock) {
        pthread_mutex_lock(s->step_lock);
    }
    const bool ok = model_step(s->model, s->work, &in, out, err);
    if (s->step_lock) {
        pthread_mutex_unlock(s->step_lock);
    }
    return ok;
}

/* The first n tokens that were computed behind the others, which tok has already, count now. */
static void append(struct session *s, int n)
{
    if (s->follow) {
        s->follow(s->follow_arg, s->tok + s->len, n, s->len, s->rows);
    }
    if (s->rows) {
        memcpy(s->rows, s->rows + row_floats(s->model, n),
               row_floats(s->model, 1) * sizeof *s->rows);
    }
    s->len += n;
    kv_seq_slide(s->kv, s->len, &s->keep, 1);
}

bool session_step(struct session *s, const int32_t *ids, int n, bool want_all, float *out,
                  slm_error *err)
{
    assert(s->n_trial == 0);
    const bool ok = compute(s, ids, n, false, want_all, out, err);

    if (ok) {
        memmove(s->tok + s->len, ids, (size_t)n * sizeof *ids);
        append(s, n);
    } else if (s->recur) {
        go_back(s, s->len);  /* the states have advanced without the tokens */
        s->has_logits = false;
    }
    return ok;
}

/* After a step of a feed of n tokens; logits: of the last token where the feed is done. */
static void keep_checkpoint(struct session *s, size_t n, const float *logits)
{
    const bool prompt_end = logits && n >= PROMPT_MIN;

    if (prompt_end) {
        s->keep = s->len;
    }
    if (s->recur && (prompt_end || s->len - recur_last(s->recur) >= CHECKPOINT_STEP)) {
        recur_save(s->recur, s->len, logits);
    }
}

/* Feeds checked tokens in steps.  score: where the logits of all tokens go, or NULL;
 * the session's own row gets those of the last token in both cases. */
static bool feed(struct session *s, const int32_t *ids, size_t n, float *score, slm_error *err)
{
    const size_t n_vocab = (size_t)model_shape(s->model)->n_vocab;
    const size_t step_max = (size_t)(score ? s->want_max : s->chunk);

    s->has_logits = s->has_logits && n == 0;
    for (size_t done = 0; done < n;) {
        const size_t left = n - done;
        const int n_step = (int)(left < step_max ? left : step_max);
        const bool last = left <= step_max;
        float *out = score ? score + done * n_vocab : last ? s->logits : NULL;

        if (!session_step(s, ids + done, n_step, score != NULL, out, err)) {
            return false;
        }
        done += (size_t)n_step;
        keep_checkpoint(s, n, !last ? NULL : score ? score + (n - 1) * n_vocab : s->logits);
        if (!last && s->progress && !s->progress(s->progress_arg, done, n)) {
            return slm_fail(err, SLM_E_CANCELLED, "cancelled after %zu of %zu tokens", done, n);
        }
    }
    if (score && n > 0) {
        memcpy(s->logits, score + (n - 1) * n_vocab, n_vocab * sizeof *s->logits);
    }
    s->has_logits = s->has_logits || n > 0;
    return true;
}

bool session_feed(struct session *s, const int32_t *ids, size_t n, slm_error *err)
{
    return session_check_ids(s, s->len, ids, n, err) && feed(s, ids, n, NULL, err);
}

bool session_score(struct session *s, const int32_t *ids, size_t n, float *out, slm_error *err)
{
    return session_check_ids(s, s->len, ids, n, err) && feed(s, ids, n, out, err);
}

bool session_sync(struct session *s, const int32_t *ids, size_t n, size_t *reused, slm_error *err)
{
    size_t same = 0;

    if (n == 0) {
        return slm_fail(err, SLM_E_ARG, "a session cannot be brought to zero tokens; truncate it");
    }
    if (!session_check_ids(s, 0, ids, n, err)) {
        return false;
    }
    while (same < n && same < (size_t)s->len && s->tok[same] == ids[same]) {
        same++;
    }
    const bool at_hand = (size_t)s->len == n && s->has_logits;
    if (same == n && !at_hand && !(s->recur && recur_has_logits(s->recur, (int)n))) {
        same--;  /* the last token is computed again for its logits */
    }
    if (same < (size_t)s->len || (same == n && !at_hand)) {
        go_back(s, (int)same);
    }
    same = (size_t)s->len;
    if (reused) {
        *reused = same;
    }
    return feed(s, ids + same, n - same, NULL, err);
}

bool session_truncate(struct session *s, size_t n, slm_error *err)
{
    if (n > (size_t)s->len) {
        return slm_fail(err, SLM_E_ARG, "cannot truncate to %zu tokens, there are %d", n, s->len);
    }
    if (n == (size_t)s->len) {
        return true;
    }
    go_back(s, (int)n);
    s->has_logits = false;
    while ((size_t)s->len < n) {
        const int left = (int)n - s->len;
        if (!session_step(s, s->tok + s->len, min_int(left, s->chunk), false, NULL, err)) {
            return false;
        }
    }
    return true;
}

/* ---- tokens on trial ----------------------------------------------------------------- */

const float *session_try(struct session *s, const int32_t *ids, int n, slm_error *err)
{
    assert(n >= 1 && n <= s->trial_max && s->n_trial == 0);
    if (!session_check_ids(s, s->len, ids, (size_t)n, err)) {
        return NULL;
    }
    if (!compute(s, ids, n, true, true, s->trial_logits, err)) {
        kv_seq_drop(s->kv, s->len);
        return NULL;
    }
    memcpy(s->tok + s->len, ids, (size_t)n * sizeof *ids);
    s->n_trial = n;
    return s->trial_logits;
}

void session_keep(struct session *s, int n_keep)
{
    assert(n_keep >= 1 && n_keep <= s->n_trial);
    if (s->recur) {
        const struct step_seq seq = step_of(s, s->n_trial, true);
        if (s->step_lock) {
            pthread_mutex_lock(s->step_lock);
        }
        model_commit(s->model, s->work, &seq, n_keep);
        if (s->step_lock) {
            pthread_mutex_unlock(s->step_lock);
        }
    }
    s->n_trial = 0;
    append(s, n_keep);
    kv_seq_drop(s->kv, s->len);
    memcpy(s->logits, s->trial_logits + logit_floats(s->model, n_keep - 1),
           logit_floats(s->model, 1) * sizeof *s->logits);
    s->has_logits = true;
    keep_checkpoint(s, 1, s->logits);
}

void session_show_next(struct session *s, int32_t id)
{
    assert(s->len < s->context && s->n_trial == 0);
    s->tok[s->len] = id;
}

void session_mark(struct session *s)
{
    s->keep = s->len;
    if (s->recur && s->has_logits && s->len > 0) {
        recur_save(s->recur, s->len, s->logits);
    }
}

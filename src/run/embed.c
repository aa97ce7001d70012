/* embed.c - one row for a whole text, from the hidden rows of its tokens. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "run/session_int.h"

/* Adds the rows of a step's n tokens, of n_all in the text, `done` before them. */
static void pool_rows(enum pooling pooling, const float *rows, int n, size_t done, size_t n_all,
                      size_t n_embd, double *sum)
{
    for (int t = 0; t < n; t++) {
        const size_t at = done + (size_t)t;
        if (pooling == POOL_MEAN || at == (pooling == POOL_FIRST ? 0 : n_all - 1)) {
            for (size_t i = 0; i < n_embd; i++) {
                sum[i] += (double)rows[(size_t)t * n_embd + i];
            }
        }
    }
}

/* A row of length one has the direction of the mean, so the sum need not be divided. */
static void normalise(const double *sum, size_t n, float *out)
{
    double squares = 0;

    for (size_t i = 0; i < n; i++) {
        squares += sum[i] * sum[i];
    }
    const double length = sqrt(squares);
    for (size_t i = 0; i < n; i++) {
        out[i] = length > 0 ? (float)(sum[i] / length) : 0.0f;
    }
}

static bool embed(struct session *s, const int32_t *ids, size_t n, enum pooling pooling,
                  double *sum, slm_error *err)
{
    const size_t n_embd = row_floats(s->model, 1);

    for (size_t done = 0; done < n;) {
        const size_t left = n - done;
        const int n_step = left < (size_t)s->chunk ? (int)left : s->chunk;
        if (!session_step(s, ids + done, n_step, false, NULL, err)) {
            return false;
        }
        pool_rows(pooling, s->rows + n_embd, n_step, done, n, n_embd, sum);
        done += (size_t)n_step;
        if (done < n && s->progress && !s->progress(s->progress_arg, done, n)) {
            return slm_fail(err, SLM_E_CANCELLED, "cancelled after %zu of %zu tokens", done, n);
        }
    }
    return true;
}

bool session_embed(struct session *s, const int32_t *ids, size_t n, enum pooling pooling,
                   float *out, slm_error *err)
{
    const size_t n_embd = row_floats(s->model, 1);
    const bool lent = s->rows == NULL;

    if (n == 0) {
        return slm_fail(err, SLM_E_ARG, "a text without tokens has no embedding");
    }
    if (!session_check_ids(s, 0, ids, n, err)) {
        return false;
    }
    double *sum = mem_zalloc(n_embd, sizeof *sum);
    if (lent) {
        s->rows = mem_zalloc(row_floats(s->model, 1 + s->chunk), sizeof *s->rows);
    }
    bool ok = sum && s->rows;
    if (!ok) {
        slm_fail_nomem(err, "an embedding");
    } else {
        session_truncate(s, 0, NULL);
        ok = embed(s, ids, n, pooling, sum, err);
        if (ok) {
            normalise(sum, n_embd, out);
        }
        session_truncate(s, 0, NULL);
    }
    if (lent) {
        mem_free(s->rows);
        s->rows = NULL;
    }
    mem_free(sum);
    return ok;
}

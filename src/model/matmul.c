/* matmul.c - splits products over the pool and picks the kernel.
 *
 * Tasks are ranges of output rows.  Panels are used where a weight has been packed;
 * otherwise row groups are packed on the fly into the worker's scratch, which a
 * prompt's many tokens repay and which costs a single token some speed until the
 * background packing is done.
 *
 * Weights that are not in memory come piece by piece: the product of one piece is computed while
 * the next ones are being read. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "kern/dot.h"
#include "model/forward.h"
#include "model/stream.h"
#include "model/work.h"

enum {
    ACT_GROUP = 16,             /* tokens that act_quant handles as a unit */
    TASKS_PER_WORKER = 16,      /* enough for cores of different speed */
    TASK_ROWS_MIN = 32,
    /* Every task reads all activations.  Tasks of fewer rows than these are twice as long where
     * the activations, more than ACT_CACHED values, do not stay in the second-level cache. */
    TASK_ROWS_WIDE = 192,
    ACT_CACHED = 1 << 20,
};

/* Output rows [row0, row0 + n_rows) of a product, whose weights are at hand. */
struct part {
    const struct product *p;
    int row0, n_rows;
    const uint8_t *rows;        /* of row0 */
};

struct split {
    struct step *st;
    const struct product *p;
    int n_products;
    struct part part[PRODUCT_MAX];
    int n_parts;
    const float *x;
    size_t ldx;
    int n_tok;
    int chunk;                  /* rows of a task, a multiple of PANEL_ROWS */
    enum act_kind kind;         /* being quantised */
    atomic_bool *nan;           /* of matmul_nan, or NULL */
};

static int n_chunks(const struct split *s, const struct part *part)
{
    return (part->n_rows + s->chunk - 1) / s->chunk;
}

static void quant_task(void *arg, int task, int worker)
{
    const struct split *s = arg;
    const int t0 = task * ACT_GROUP;
    const int t1 = t0 + ACT_GROUP < s->n_tok ? t0 + ACT_GROUP : s->n_tok;

    (void)worker;
    s->st->k->act_quant(s->kind, s->x, s->ldx, s->p->w->n_in, s->n_tok, t0, t1,
                        s->st->work->act[s->kind]);
}

/* Quantises the shared input for every kind that the products need. */
static void quantise(struct split *s)
{
    bool need[ACT_KINDS] = { false };

    for (int i = 0; i < s->n_products; i++) {
        need[s->p[i].w->type->act] = true;
    }
    for (s->kind = ACT_Q32; s->kind < ACT_KINDS; s->kind++) {
        const int groups = (s->n_tok + ACT_GROUP - 1) / ACT_GROUP;
        if (!need[s->kind]) {
            continue;
        }
        if (groups == 1) {
            quant_task(s, 0, 0);
        } else {
            pool_run(s->st->pool, quant_task, s, groups);
        }
    }
}

/* y of n_rows rows at w, in the kernel's layout, for all tokens. */
static void run_mm(const struct split *s, const struct product *p, const void *w, int row0,
                   int n_rows)
{
    const struct quant_type *type = p->w->type;

    s->st->k->mm[type->id](w, p->w->n_in, n_rows, s->st->work->act[type->act], s->n_tok, 0,
                           s->n_tok, p->y + row0, p->ldy);
}

/* The same from rows as in the file: those of row0 .. row1 - 1. */
static void run_unpacked(const struct split *s, const struct product *p, const uint8_t *rows,
                         int row0, int row1, uint8_t *scratch)
{
    const struct weight *w = p->w;
    const size_t group_bytes = PANEL_ROWS * w->row_bytes;
    const int groups = group_bytes < PACK_BYTES ? (int)(PACK_BYTES / group_bytes) : 1;
    const int step = groups * PANEL_ROWS;

    for (int row = row0; row < row1; row += step) {
        const int end = row + step < row1 ? row + step : row1;
        for (int r = row; r < end; r += PANEL_ROWS) {
            const int n = end - r < PANEL_ROWS ? end - r : PANEL_ROWS;
            s->st->k->pack(w->type, rows + (size_t)(r - row0) * w->row_bytes, w->row_bytes,
                           w->n_in, n, scratch + (size_t)(r - row) * w->row_bytes);
        }
        run_mm(s, p, scratch, row, end - row);
    }
}

static void product_task(void *arg, int task, int worker)
{
    const struct split *s = arg;
    const struct part *part = s->part;
    const struct kern *k = s->st->k;

    while (task >= n_chunks(s, part)) {
        task -= n_chunks(s, part);
        part++;
    }
    const struct product *p = part->p;
    const struct weight *w = p->w;
    const int begin = task * s->chunk;  /* in the part */
    const int n = begin + s->chunk < part->n_rows ? s->chunk : part->n_rows - begin;
    const int row0 = part->row0 + begin, row1 = row0 + n;
    const uint8_t *rows = part->rows + (size_t)begin * w->row_bytes;
    const int n_packed = atomic_load_explicit(&w->n_packed, memory_order_acquire);

    if (w->type->act == ACT_F32) {
        k->fmm[w->type->id](rows, w->n_in, n, s->x, s->ldx, s->n_tok, p->y + row0, p->ldy);
    } else if (!k->panels) {
        run_mm(s, p, rows, row0, n);
    } else {
        const int packed_end = n_packed < row1 ? n_packed : row1;
        const int rest = packed_end > row0 ? packed_end : row0;  /* the first row without a panel */
        if (row0 < packed_end) {
            run_mm(s, p, w->panels + (size_t)row0 * w->row_bytes, row0, packed_end - row0);
        }
        if (rest < row1) {
            run_unpacked(s, p, rows + (size_t)(rest - row0) * w->row_bytes, rest, row1,
                         work_worker(s->st->work, worker));
        }
    }
    if (w->scale != 0) {
        for (int t = 0; t < s->n_tok; t++) {
            k->scale(p->y + (size_t)t * p->ldy + row0, w->scale, row1 - row0);
        }
    }
    if (p->bias) {
        for (int t = 0; t < s->n_tok; t++) {
            k->add(p->y + (size_t)t * p->ldy + row0, p->bias + row0, row1 - row0);
        }
    }
    for (int t = 0; s->nan && t < s->n_tok; t++) {
        if (k->has_nan(p->y + (size_t)t * p->ldy + row0, row1 - row0)) {
            atomic_store_explicit(&s->nan[t], true, memory_order_relaxed);
        }
    }
}

/* Rows of a task, of n_rows in all. */
static int task_rows(const struct split *s, int n_rows)
{
    const int most = pool_size(s->st->pool) * TASKS_PER_WORKER;
    int rows = n_rows / most;

    if (rows < TASK_ROWS_WIDE && (int64_t)s->p->w->n_in * s->n_tok > ACT_CACHED) {
        rows = 2 * rows < TASK_ROWS_WIDE ? 2 * rows : TASK_ROWS_WIDE;
    }
    return (rows < TASK_ROWS_MIN ? TASK_ROWS_MIN : rows + PANEL_ROWS - 1) & ~(PANEL_ROWS - 1);
}

/* Computes the parts in one parallel region. */
static void run_parts(struct split *s)
{
    int n_rows = 0, n_tasks = 0;

    for (int i = 0; i < s->n_parts; i++) {
        n_rows += s->part[i].n_rows;
    }
    s->chunk = task_rows(s, n_rows);
    for (int i = 0; i < s->n_parts; i++) {
        n_tasks += n_chunks(s, &s->part[i]);
    }
    pool_run(s->st->pool, product_task, s, n_tasks);
}

/* Results that cannot be computed any more. */
static void clear_rows(const struct split *s, const struct product *p, int row0, int n_rows)
{
    for (int t = 0; t < s->n_tok; t++) {
        memset(p->y + (size_t)t * p->ldy + row0, 0, (size_t)n_rows * sizeof *p->y);
    }
}

/* A product whose weights are not in memory. */
static void run_streamed(struct split *s, const struct product *p)
{
    const struct weight *w = p->w;
    slm_error err;

    for (int i = 0; i < w->n_pieces; i++) {
        const int row0 = i * w->piece_rows;
        const int n = w->n_out - row0 < w->piece_rows ? w->n_out - row0 : w->piece_rows;
        if (atomic_load_explicit(&s->st->failed, memory_order_relaxed)) {
            clear_rows(s, p, row0, n);
            continue;
        }
        const uint8_t *rows = stream_get(s->st->stream, w->piece + i, &err);
        if (!rows) {
            step_fail(s->st, &err);
            clear_rows(s, p, row0, n);
            continue;
        }
        s->part[0] = (struct part){ p, row0, n, rows };
        s->n_parts = 1;
        run_parts(s);
        stream_release(s->st->stream);
    }
}

void expect_weight(struct step *st, const struct weight *w)
{
    for (int i = 0; i < w->n_pieces; i++) {
        stream_expect(st->stream, w->piece + i);
    }
}

/* "attn_q, attn_k, attn_v": the matrices without their layer. */
static void profile_products(struct step *st, double begin, const struct product *p, int n_products)
{
    char name[PROFILE_NAME];
    size_t used = 0;
    uint64_t bytes = 0;

    for (int i = 0; i < n_products; i++) {
        const char *s = p[i].w->tensor->name, *layer = strncmp(s, "blk.", 4) == 0 ? s + 4 : s;
        layer += strspn(layer, "0123456789");
        s = layer > s + 4 && *layer == '.' ? layer + 1 : s;
        if (used < sizeof name) {
            used += (size_t)snprintf(name + used, sizeof name - used, "%s%.*s", i > 0 ? ", " : "",
                                     (int)strcspn(s, "."), s);
        }
        bytes += weight_bytes(p[i].w);
    }
    profile_end(st->profile, begin, name, bytes);
}

static void run_products(struct split *s)
{
    const struct product *p = s->p;
    const double begin = profile_begin(s->st->profile);

    assert(s->n_products >= 1 && s->n_products <= PRODUCT_MAX);
    quantise(s);
    for (int i = 0; i < s->n_products; i++) {
        assert(p[i].w->n_in == p[0].w->n_in);
        if (p[i].w->n_pieces == 0) {
            s->part[s->n_parts++] = (struct part){ &p[i], 0, p[i].w->n_out, p[i].w->rows };
        }
    }
    if (s->n_parts > 0) {
        run_parts(s);
    }
    for (int i = 0; i < s->n_products; i++) {
        if (p[i].w->n_pieces > 0) {
            run_streamed(s, &p[i]);
        }
    }
    if (s->st->profile) {
        profile_products(s->st, begin, p, s->n_products);
    }
}

void matmul(struct step *st, const struct product *p, int n_products, const float *x, size_t ldx,
            int n_tok)
{
    run_products(&(struct split){ .st = st, .p = p, .n_products = n_products, .x = x, .ldx = ldx,
                                  .n_tok = n_tok });
}

void matmul_nan(struct step *st, const struct product *p, const float *x, size_t ldx, int n_tok,
                atomic_bool *nan)
{
    run_products(&(struct split){ .st = st, .p = p, .n_products = 1, .x = x, .ldx = ldx,
                                  .n_tok = n_tok, .nan = nan });
}

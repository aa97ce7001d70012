/* attention.c - splits attention over the pool: tiles of query tokens times key-value
 * heads, and for a single token in a long context segments of keys as well.
 *
 * Either way every query row folds the same segments in the same order. */
#include <math.h>

#include "model/forward.h"
#include "model/load.h"
#include "model/work.h"

/* Causal tiles differ in their work; with this many they balance. */
enum { TASKS_PER_WORKER = 6 };

/* What one layer's attention works with. */
struct attn_run {
    struct step *st;
    const struct layer_shape *shape;
    const float *q;
    float *o;
    int il_kv;
    int window;             /* 0: all earlier keys */
    int rep;                /* query heads per key-value head */
    int n_tiles;
    int n_rows;             /* of the largest tile */
    int n_seg;              /* split over segments: their number, of all tasks */
};

/* Scratch of one worker. */
struct rows {
    size_t *q_off;
    int *begin, *end;
    float *m_s, *l_s, *m, *l;
    float *o_s, *o;
    float *copies;          /* of a segment's keys and values */
};

/* From one row of partial outputs to the next. */
static int out_stride(const struct layer_shape *ls)
{
    return (int)align_up((size_t)ls->v_dim, 16);
}

/* Query rows of the largest tile where tiles have at most so many, but at least one token. */
static int tile_rows_max(const struct layer_shape *ls, int rows)
{
    const int rep = ls->n_head / ls->n_head_kv;

    return rep > rows ? rep : rows;
}

static int rows_max(const struct layer_shape *ls)
{
    return tile_rows_max(ls, ATTN_ROWS_MAX);
}

static struct rows rows_carve(const struct layer_shape *ls, void *scratch)
{
    const size_t n = align_up((size_t)rows_max(ls), 16);
    struct rows r;

    r.q_off = scratch;
    r.m_s = (float *)(r.q_off + n);
    r.l_s = r.m_s + n;
    r.m = r.l_s + n;
    r.l = r.m + n;
    r.o_s = r.l + n;
    r.o = r.o_s + n * (size_t)out_stride(ls);
    r.copies = r.o + n * (size_t)out_stride(ls);
    r.begin = (int *)(r.copies + attn_scratch_floats(ls->k_dim, ls->v_dim));
    r.end = r.begin + n;
    return r;
}

size_t attention_scratch_bytes(const struct hparams *hp)
{
    size_t most = 0;

    for (int il = 0; il < hp->n_layer + hp->n_draft; il++) {
        const struct layer_shape *ls = &hp->layer[il];
        const size_t n = align_up((size_t)rows_max(ls), 16);
        const size_t bytes = n * (sizeof(size_t) + 2 * sizeof(int) + 4 * sizeof(float) +
                                  2 * sizeof(float) * (size_t)out_stride(ls)) +
                             attn_scratch_floats(ls->k_dim, ls->v_dim) * sizeof(float);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static int first_key(const struct attn_run *a, int pos)
{
    return a->window > 0 && pos >= a->window ? pos - a->window + 1 : 0;
}

static int clamp_key(int key)
{
    return key < 0 ? 0 : key > ATTN_SEGMENT ? ATTN_SEGMENT : key;
}

/* Segments [*seg0, *seg1) that a tile's tokens see. */
static void tile_segments(const struct attn_run *a, const struct attn_tile *t, int *seg0,
                          int *seg1)
{
    const int *pos = a->st->pos;

    *seg0 = first_key(a, pos[t->tok0]) / ATTN_SEGMENT;
    *seg1 = pos[t->tok0 + t->n_tok - 1] / ATTN_SEGMENT + 1;
}

/* What a sequence has of the layer in a page. */
static const char *page_at(const struct attn_run *a, const struct step_seq *seq, int page)
{
    return seq->pages[(size_t)a->il_kv * (size_t)seq->page_stride + (size_t)page];
}

/* Computes one segment for all rows of (tile, head) into r->m_s, l_s and o.  `goes_on`: this thread
 * takes the next one after it. */
static void run_segment(const struct attn_run *a, const struct attn_tile *t, int head, int seg,
                        bool goes_on, const struct rows *r, float *m, float *l, float *o)
{
    const struct hparams *hp = a->st->hp;
    const struct layer_shape *ls = a->shape;
    const struct step_seq *seq = &a->st->in->seq[t->seq];
    const int s0 = seg * ATTN_SEGMENT;
    const int first_page = first_key(a, a->st->pos[t->tok0]) / KV_PAGE;
    const int last_page = a->st->pos[t->tok0 + t->n_tok - 1] / KV_PAGE;
    const enum kv_type kv = a->st->in->kv;
    const size_t k_bytes = kv_head_bytes(kv, ls->k_dim), v_bytes = kv_head_bytes(kv, ls->v_dim);
    struct attn_seg s = {
        .n_q = t->n_tok * a->rep, .k_dim = ls->k_dim, .v_dim = ls->v_dim,
        .k_stride = kv_stride(kv, ls->k_dim), .v_stride = kv_stride(kv, ls->v_dim), .kv = kv,
        .q = a->q, .q_off = r->q_off, .k_begin = r->begin, .k_end = r->end,
        .scale = hp->attn_scale, .softcap = hp->attn_softcap,
        .m = m, .l = l, .o = o, .o_stride = (size_t)out_stride(ls), .scratch = r->copies,
    };

    for (int p = 0; p < ATTN_SEGMENT_PAGES; p++) {
        const int page = seg * ATTN_SEGMENT_PAGES + p;
        if (page >= first_page && page <= last_page) {
            const char *base = page_at(a, seq, page);
            s.k_page[p] = base + (size_t)head * k_bytes;
            s.v_page[p] = base + (size_t)ls->n_head_kv * k_bytes + (size_t)head * v_bytes;
        }
    }
    if (goes_on) {
        s.next = page_at(a, seq, (seg + 1) * ATTN_SEGMENT_PAGES) + (size_t)head * k_bytes;
    }
    for (int i = 0; i < s.n_q; i++) {
        const int tok = t->tok0 + i / a->rep;
        const int pos = a->st->pos[tok];
        r->q_off[i] = ((size_t)tok * (size_t)ls->n_head + (size_t)(head * a->rep + i % a->rep)) *
                      (size_t)ls->k_dim;
        r->begin[i] = clamp_key(first_key(a, pos) - s0);
        r->end[i] = clamp_key(pos + 1 - s0);
        if (r->begin[i] >= r->end[i]) {
            r->begin[i] = r->end[i] = 0;
        }
    }
    a->st->k->attn_segment(&s);
}

static float *out_row(const struct attn_run *a, const struct attn_tile *t, int head, int i)
{
    const struct layer_shape *ls = a->shape;
    const int tok = t->tok0 + i / a->rep;

    return a->o + ((size_t)tok * (size_t)ls->n_head + (size_t)(head * a->rep + i % a->rep)) *
                  (size_t)ls->v_dim;
}

/* All segments of one tile and head, folded as they come. */
static void tile_task(void *arg, int task, int worker)
{
    const struct attn_run *a = arg;
    const struct layer_shape *ls = a->shape;
    const struct kern *k = a->st->k;
    const struct attn_tile *t = &a->st->work->tiles[task / ls->n_head_kv];
    const int head = task % ls->n_head_kv;
    const struct rows r = rows_carve(ls, work_worker(a->st->work, worker));
    const int n_q = t->n_tok * a->rep;
    const size_t stride = (size_t)out_stride(ls);
    int seg0, seg1;

    tile_segments(a, t, &seg0, &seg1);
    for (int i = 0; i < n_q; i++) {
        r.m[i] = -INFINITY;
        r.l[i] = 0;
    }
    for (int seg = seg0; seg < seg1; seg++) {
        float *o_s = seg == seg0 ? r.o : r.o_s;  /* the first is folded in place */

        run_segment(a, t, head, seg, seg + 1 < seg1, &r, r.m_s, r.l_s, o_s);
        for (int i = 0; i < n_q; i++) {
            k->attn_fold(&r.m[i], &r.l[i], r.o + (size_t)i * stride, r.m_s[i], r.l_s[i],
                         o_s + (size_t)i * stride, ls->v_dim);
        }
    }
    for (int i = 0; i < n_q; i++) {
        k->attn_finish(out_row(a, t, head, i), r.o + (size_t)i * stride, r.l[i], ls->v_dim);
    }
}

/* Rows of a tile whose segments may be tasks of their own. */
static int part_rows(const struct layer_shape *ls)
{
    return tile_rows_max(ls, ATTN_ROWS_MIN);
}

/* A segment's partial result: m[n_q], l[n_q], o[n_q][stride]. */
static size_t part_floats(const struct layer_shape *ls)
{
    return (size_t)part_rows(ls) * (2 + (size_t)out_stride(ls));
}

/* Its place for (tile, head, seg). */
static float *part_of(const struct attn_run *a, int tile_head, int seg)
{
    return a->st->work->part + ((size_t)tile_head * (size_t)a->n_seg + (size_t)seg) *
                               part_floats(a->shape);
}

static void segment_task(void *arg, int task, int worker)
{
    const struct attn_run *a = arg;
    const struct layer_shape *ls = a->shape;
    const int tile_head = task / a->n_seg;
    const struct attn_tile *t = &a->st->work->tiles[tile_head / ls->n_head_kv];
    const struct rows r = rows_carve(ls, work_worker(a->st->work, worker));
    const int n_q = t->n_tok * a->rep;
    float *part = part_of(a, tile_head, task % a->n_seg);
    int seg0, seg1;

    tile_segments(a, t, &seg0, &seg1);
    if (seg0 + task % a->n_seg < seg1) {
        run_segment(a, t, tile_head % ls->n_head_kv, seg0 + task % a->n_seg, false, &r, part,
                    part + n_q, part + 2 * n_q);
    }
}

static void fold_task(void *arg, int task, int worker)
{
    const struct attn_run *a = arg;
    const struct layer_shape *ls = a->shape;
    const struct attn_tile *t = &a->st->work->tiles[task / ls->n_head_kv];
    const int n_q = t->n_tok * a->rep;
    const size_t stride = (size_t)out_stride(ls);
    int seg0, seg1;

    (void)worker;
    tile_segments(a, t, &seg0, &seg1);
    for (int i = 0; i < n_q; i++) {
        float m = -INFINITY, l = 0;
        float *o = out_row(a, t, task % ls->n_head_kv, i);
        for (int d = 0; d < ls->v_dim; d++) {
            o[d] = 0;
        }
        for (int seg = 0; seg < seg1 - seg0; seg++) {
            const float *part = part_of(a, task, seg);
            a->st->k->attn_fold(&m, &l, o, part[i], part[n_q + i],
                                part + 2 * n_q + (size_t)i * stride, ls->v_dim);
        }
        a->st->k->attn_finish(o, o, l, ls->v_dim);
    }
}

/* Cuts the tokens of every sequence into tiles; the largest number of segments of a tile. */
static int make_tiles(struct attn_run *a)
{
    struct step *st = a->st;
    const int share = st->n_tok * a->shape->n_head / (TASKS_PER_WORKER * pool_size(st->pool));
    const int rows = share < ATTN_ROWS_MIN ? ATTN_ROWS_MIN
                   : share > ATTN_ROWS_MAX ? ATTN_ROWS_MAX : share;
    const int per_tile = rows / a->rep > 0 ? rows / a->rep : 1;
    int tok = 0, most = 0;

    a->n_tiles = 0;
    for (int s = 0; s < st->in->n_seq; s++) {
        const int end = tok + st->in->seq[s].n_tok;
        while (tok < end) {
            struct attn_tile *t = &st->work->tiles[a->n_tiles++];
            int seg0, seg1;
            *t = (struct attn_tile){ s, tok, end - tok < per_tile ? end - tok : per_tile };
            tok += t->n_tok;
            a->n_rows = t->n_tok * a->rep > a->n_rows ? t->n_tok * a->rep : a->n_rows;
            tile_segments(a, t, &seg0, &seg1);
            most = seg1 - seg0 > most ? seg1 - seg0 : most;
        }
    }
    return most;
}

/* Room for the partial results of one token's segments. */
size_t attention_part_floats(const struct hparams *hp, int context_max)
{
    const size_t n_seg = (size_t)context_max / ATTN_SEGMENT + 1;
    size_t most = 0;

    for (int il = 0; il < hp->n_layer + hp->n_draft; il++) {
        const size_t floats = (size_t)hp->layer[il].n_head_kv * n_seg * part_floats(&hp->layer[il]);
        most = floats > most ? floats : most;
    }
    return most;
}

void attention(struct step *st, int il, int il_kv, const float *q, float *o)
{
    const struct hparams *hp = st->hp;
    const struct layer_shape *ls = &hp->layer[il];
    struct attn_run a = {
        .st = st, .shape = ls, .q = q, .o = o, .il_kv = il_kv,
        .window = hp->sliding[il] ? hp->window : 0,
        .rep = ls->n_head / ls->n_head_kv,
    };
    const int workers = pool_size(st->pool);
    const double begin = profile_begin(st->profile);

    a.n_seg = make_tiles(&a);
    const int n_tasks = a.n_tiles * ls->n_head_kv;
    const size_t floats = (size_t)n_tasks * (size_t)a.n_seg * part_floats(ls);
    if (workers > 1 && n_tasks < 2 * workers && a.n_seg > 1 && a.n_rows <= part_rows(ls) &&
        floats <= st->work->part_cap) {
        pool_run(st->pool, segment_task, &a, n_tasks * a.n_seg);
        pool_run(st->pool, fold_task, &a, n_tasks);
    } else {
        pool_run(st->pool, tile_task, &a, n_tasks);
    }
    profile_end(st->profile, begin, "attention", 0);
}

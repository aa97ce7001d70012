/* residency.c - packs weights into panels, at load or in the background; pins and streams those
 * that do not fit into memory.
 *
 * With streaming the time of a step is what the disk needs for the missing bytes, whichever they
 * are, as long as the disk never waits for the arithmetic.  So the pinned weights are spread
 * evenly over the step: while they are computed with, the window fills with the next streamed
 * ones.  Small weights are pinned first, because short reads are slow ones, and experts last,
 * because most of them are not needed. */
#include "model/residency.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/log.h"
#include "kern/dot.h"
#include "model/load.h"
#include "model/stream.h"

/* Packed between two looks at the stop flag and given back together. */
enum { SLICE_BYTES = 4 << 20 };

/* What a page fault may map in front of its page. */
enum { AROUND_BYTES = 64 << 10 };

/* Left free of packing for everything else. */
enum { MARGIN_BYTES = 256 << 20 };

/* Weights read at once, and how many of these ahead: disks reach their full rate with reads of a
 * few MB, and the window outlasts the arithmetic of any weight that is pinned. */
enum { PIECE_BYTES = 4 << 20, SLOTS = 16, SLOTS_MIN = 4 };

/* Pinned before all others. */
enum { SMALL_BYTES = 256 << 10 };

/* A matrix that products are made with, and what becomes of it where not all fit. */
struct item {
    struct weight *w;
    size_t bytes;          /* in memory */
    enum { USE_ALWAYS, USE_EXPERT, USE_DRAFT } use;
    bool pinned;
    uint8_t *copy;         /* where it is pinned */
};

/* All of them, in the order of their use. */
struct items {
    struct item *item;
    int n, cap;
    size_t row_bytes_max;
    bool panels;           /* whether copies are panels where the type has any */
};

struct residency {
    struct model *m;
    struct model_where where;

    /* Packing. */
    struct weight **weights;  /* the matrices to pack */
    size_t n_weights;
    uint8_t *panels;          /* all panels, one after another */
    size_t panels_bytes;
    bool background, started;
    pthread_t thread;
    atomic_bool stop, packed;
    bool released;            /* all that is packed */

    /* Streaming. */
    struct reader **readers;  /* of the shards */
    struct stream *stream;
    uint8_t *pinned;          /* all copies, one after another */
    size_t pinned_bytes;
    uint8_t *row_rooms;       /* a row for each worker */
    size_t row_room_bytes;
};

static size_t panel_bytes(const struct weight *w)
{
    const size_t groups = ((size_t)w->n_out + PANEL_ROWS - 1) / PANEL_ROWS;

    return align_up(groups * PANEL_ROWS * w->row_bytes, 64);
}

/* Gives back the mapped pages of n bytes of rows from byte `begin` on, and with them some before:
 * a step that reads the next rows maps the pages around them again. */
static void release_rows(struct residency *r, const struct weight *w, size_t begin, size_t n)
{
    const size_t before = begin < AROUND_BYTES ? begin : AROUND_BYTES;
    const size_t at = (size_t)(w->rows - w->tensor->data) + begin - before;

    gguf_release(r->m->gguf, w->tensor, at, n + before);
}

/* False when stopped.  Steps use the panels as they come, so that pages once given back are not
 * read again. */
static bool pack_weight(struct residency *r, struct weight *w, uint8_t *panels)
{
    size_t since = 0;  /* packed since the last release */

    w->panels = panels;
    for (int row = 0; row < w->n_out; row += PANEL_ROWS) {
        const int n = w->n_out - row < PANEL_ROWS ? w->n_out - row : PANEL_ROWS;
        const size_t at = (size_t)row * w->row_bytes;
        r->m->k->pack(w->type, w->rows + at, w->row_bytes, w->n_in, n, panels + at);
        since += (size_t)n * w->row_bytes;
        if (since >= SLICE_BYTES || row + PANEL_ROWS >= w->n_out) {
            if (atomic_load_explicit(&r->stop, memory_order_relaxed)) {
                return false;
            }
            atomic_store_explicit(&w->n_packed, row + n, memory_order_release);
            release_rows(r, w, at + (size_t)n * w->row_bytes - since, since);
            since = 0;
        }
    }
    return true;
}

static void pack_all(struct residency *r)
{
    uint8_t *panels = r->panels;

    for (size_t i = 0; i < r->n_weights; i++) {
        if (!pack_weight(r, r->weights[i], panels)) {
            return;
        }
        panels += panel_bytes(r->weights[i]);
    }
    atomic_store_explicit(&r->packed, true, memory_order_release);
}

/* Steps that ran meanwhile may have mapped pages of what they had begun to read. */
static void release_packed(struct residency *r)
{
    for (size_t i = 0; i < r->n_weights; i++) {
        release_rows(r, r->weights[i], 0, weight_bytes(r->weights[i]));
    }
}

static void *background(void *arg)
{
    /* Steps have priority over packing. */
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 19);
    pack_all(arg);
    return NULL;
}

struct collect {
    struct residency *r;
    size_t cap;
};

static void count_weight(void *arg, struct weight *w)
{
    struct collect *c = arg;

    if (w->type->unpack) {
        c->cap++;
        c->r->panels_bytes += panel_bytes(w);
    }
}

static void add_weight(void *arg, struct weight *w)
{
    struct collect *c = arg;

    if (w->type->unpack) {
        c->r->weights[c->r->n_weights++] = w;
    }
}

/* ---- what fits --------------------------------------------------------------------------- */

/* Bytes of a copy. */
static size_t copy_bytes(const struct items *all, const struct weight *w)
{
    return all->panels && w->type->unpack ? panel_bytes(w) : align_up(weight_bytes(w), 64);
}

static void count_item(void *arg, struct weight *w)
{
    struct items *all = arg;

    (void)w;
    all->cap++;
}

static void add_item(void *arg, struct weight *w)
{
    struct items *all = arg;

    all->item[all->n++] = (struct item){ .w = w, .bytes = copy_bytes(all, w) };
}

static void note_draft(void *arg, struct weight *w)
{
    struct items *all = arg;

    for (int i = 0; i < all->n; i++) {
        if (all->item[i].w == w) {
            all->item[i].use = USE_DRAFT;
        }
    }
}

static void note_row(struct items *all, const struct weight *w)
{
    if (w->rows && w->row_bytes > all->row_bytes_max) {
        all->row_bytes_max = w->row_bytes;
    }
}

static bool items_init(struct items *all, struct model *m, bool drafts)
{
    *all = (struct items){ .panels = m->k->panels };
    model_each_weight(m, count_item, all);
    all->item = mem_alloc((size_t)all->cap, sizeof *all->item);
    if (!all->item) {
        return false;
    }
    model_each_weight(m, add_item, all);
    for (int i = 0; i < all->n; i++) {
        const struct weight *w = all->item[i].w;
        note_row(all, w);
        if (weight_is_expert(w, &m->hp)) {
            all->item[i].use = USE_EXPERT;
        }
    }
    if (!drafts) {
        draft_each_weight(m, note_draft, all);
    }
    note_row(all, &m->top.token_embd);
    note_row(all, &m->top.layer_embd);
    note_row(all, &m->draft.embd);
    return true;
}

static bool is_small(const struct item *it)
{
    return it->bytes <= SMALL_BYTES && it->use == USE_ALWAYS;
}

static bool is_large(const struct item *it)
{
    return it->bytes > SMALL_BYTES && it->use == USE_ALWAYS;
}

static bool is_expert(const struct item *it)
{
    return it->use == USE_EXPERT;
}

static bool is_draft(const struct item *it)
{
    return it->use == USE_DRAFT;
}

/* Pins such items, as many as fit into what is left, evenly spread. */
static void pin_some(struct items *all, bool (*is)(const struct item *), size_t *left)
{
    double sum = 0, due = 0;

    for (int i = 0; i < all->n; i++) {
        sum += is(&all->item[i]) ? (double)all->item[i].bytes : 0;
    }
    const double share = sum > (double)*left ? (double)*left / sum : 1;
    /* The second pass fills what the first has left over. */
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < all->n; i++) {
            struct item *it = &all->item[i];
            if (!is(it) || it->pinned) {
                continue;
            }
            due += share * (double)it->bytes;
            if (it->bytes <= *left && (pass > 0 || due >= (double)it->bytes * 0.5)) {
                it->pinned = true;
                *left -= it->bytes;
                due -= (double)it->bytes;
            }
        }
    }
}

static size_t piece_rows(const struct weight *w, size_t piece_bytes)
{
    const size_t rows = piece_bytes / w->row_bytes & ~(size_t)(PANEL_ROWS - 1);

    return rows < PANEL_ROWS ? PANEL_ROWS : rows;
}

/* The largest piece, and slots that leave most of the room to the weights. */
static size_t choose_window(const struct items *all, const struct model_place *place, int *slots,
                            size_t *piece_bytes)
{
    size_t largest = 0;

    *piece_bytes = place->piece_bytes > 0 ? place->piece_bytes : PIECE_BYTES;
    *slots = place->slots > 0 ? place->slots : SLOTS;
    for (int i = 0; i < all->n; i++) {
        const struct weight *w = all->item[i].w;
        const size_t bytes = piece_rows(w, *piece_bytes) * w->row_bytes;
        const size_t whole = weight_bytes(w);
        const size_t most = bytes < whole ? bytes : whole;
        largest = most > largest ? most : largest;
    }
    while (*slots > SLOTS_MIN &&
           stream_window_bytes(largest, *slots) > (size_t)place->room_bytes / 4) {
        (*slots)--;
    }
    return stream_window_bytes(largest, *slots);
}

/* What a step of one token reads. */
static uint64_t bytes_per_step(const struct items *all, const struct hparams *hp)
{
    uint64_t always = 0, experts = 0;

    for (int i = 0; i < all->n; i++) {
        const struct item *it = &all->item[i];
        if (!it->pinned && it->use != USE_DRAFT) {
            *(it->use == USE_EXPERT ? &experts : &always) += weight_bytes(it->w);
        }
    }
    return (uint64_t)hp->n_loop * (always + (hp->n_expert ? experts / (uint64_t)hp->n_expert *
                                             (uint64_t)hp->n_expert_used : 0));
}

/* Chooses what is pinned; *slots is 0 where everything fits as it is. */
static struct model_where choose(struct items *all, const struct model *m,
                                 const struct model_place *place, int *slots, size_t *piece_bytes)
{
    struct model_where where = { 0, 0, 0 };

    *slots = 0;
    if (place->room_bytes == 0 || m->shape.weight_bytes <= place->room_bytes ||
        !gguf_is_mapped(m->gguf)) {
        return where;
    }
    const size_t window = choose_window(all, place, slots, piece_bytes);
    const size_t rows = reader_room(all->row_bytes_max) * (size_t)pool_size(m->pool);
    size_t left = (size_t)place->room_bytes;

    left -= window + rows < left ? window + rows : left;
    left -= left / 256;  /* page tables */
    const size_t before = left;
    pin_some(all, is_small, &left);
    pin_some(all, is_large, &left);
    pin_some(all, is_expert, &left);
    pin_some(all, is_draft, &left);
    where.pinned_bytes = before - left;
    where.window_bytes = window + rows;
    where.streamed_bytes = bytes_per_step(all, &m->hp);
    return where;
}

bool model_where(const struct model *m, const struct model_place *place, struct model_where *out,
                 slm_error *err)
{
    struct items all;
    size_t piece_bytes;
    int slots;

    /* Items may be changed by who places them; here nobody does. */
    if (!items_init(&all, (struct model *)m, place->drafts)) {
        return slm_fail_nomem(err, "the list of weights");
    }
    *out = choose(&all, m, place, &slots, &piece_bytes);
    mem_free(all.item);
    return true;
}

struct model_where model_placed(const struct model *m)
{
    return m->residency->where;
}

/* ---- pinning and streaming ------------------------------------------------------------------ */

static bool open_readers(struct residency *r, slm_error *err)
{
    const int n = gguf_n_shards(r->m->gguf);

    r->readers = mem_zalloc((size_t)n, sizeof *r->readers);
    if (!r->readers) {
        return slm_fail_nomem(err, "files to read");
    }
    for (int i = 0; i < n; i++) {
        r->readers[i] = gguf_reader(r->m->gguf, i, err);
        if (!r->readers[i]) {
            return false;
        }
    }
    return true;
}

/* From now on the rows of w are read from the file. */
static void leave_mapping(struct residency *r, struct weight *w)
{
    if (w->rows) {
        w->reader = r->readers[w->tensor->shard];
        w->offset = w->tensor->offset + (uint64_t)(w->rows - w->tensor->data);
    }
}

/* Cuts all weights into pieces, and makes the stream of them. */
static bool cut(struct residency *r, struct items *all, size_t piece_bytes, int slots,
                slm_error *err)
{
    size_t n = 0;

    for (int i = 0; i < all->n; i++) {
        struct weight *w = all->item[i].w;
        leave_mapping(r, w);
        w->piece = (int)n;
        w->piece_rows = (int)piece_rows(w, piece_bytes);
        w->n_pieces = (w->n_out + w->piece_rows - 1) / w->piece_rows;
        n += (size_t)w->n_pieces;
    }
    struct stream_piece *pieces = mem_alloc(n, sizeof *pieces);
    if (!pieces) {
        return slm_fail_nomem(err, "the list of weights");
    }
    for (int i = 0; i < all->n; i++) {
        const struct weight *w = all->item[i].w;
        for (int j = 0; j < w->n_pieces; j++) {
            const size_t at = (size_t)j * (size_t)w->piece_rows * w->row_bytes;
            const size_t most = (size_t)w->piece_rows * w->row_bytes;
            const size_t rest = weight_bytes(w) - at;
            pieces[w->piece + j] = (struct stream_piece){
                .reader = w->reader, .offset = w->offset + at, .bytes = rest < most ? rest : most,
                .by_need = all->item[i].use == USE_EXPERT && !all->item[i].pinned,
            };
        }
    }
    r->stream = stream_new(pieces, (int)n, slots, err);
    mem_free(pieces);
    return r->stream != NULL;
}

/* Lets the stream go through the pieces of the pinned weights once, or of the others again and
 * again. */
static bool set_order(struct residency *r, const struct items *all, bool pinned, slm_error *err)
{
    size_t n = 0, cap = 0;

    for (int i = 0; i < all->n; i++) {
        cap += (size_t)all->item[i].w->n_pieces;
    }
    int *order = mem_alloc(cap, sizeof *order);
    if (!order) {
        return slm_fail_nomem(err, "the list of weights");
    }
    for (int i = 0; i < all->n; i++) {
        const struct item *it = &all->item[i];
        const bool due = it->pinned == pinned && (pinned || it->use != USE_DRAFT);
        for (int j = 0; due && j < it->w->n_pieces; j++) {
            order[n++] = it->w->piece + j;
        }
    }
    stream_order(r->stream, order, (int)n, !pinned);
    mem_free(order);
    return true;
}

struct pin_op {
    const struct kern *k;
    const struct weight *w;
    const uint8_t *rows;   /* a piece */
    int n_rows;
    uint8_t *to;           /* its place in the copy */
    bool panels;
};

/* A row group of a piece. */
static void pin_task(void *arg, int task, int worker)
{
    const struct pin_op *op = arg;
    const struct weight *w = op->w;
    const int row = task * PANEL_ROWS;
    const int n = op->n_rows - row < PANEL_ROWS ? op->n_rows - row : PANEL_ROWS;
    const size_t at = (size_t)row * w->row_bytes;

    (void)worker;
    if (op->panels) {
        op->k->pack(w->type, op->rows + at, w->row_bytes, w->n_in, n, op->to + at);
    } else {
        memcpy(op->to + at, op->rows + at, (size_t)n * w->row_bytes);
    }
}

/* Reads a weight into its copy. */
static bool pin(struct residency *r, const struct items *all, struct item *it, slm_error *err)
{
    struct weight *w = it->w;
    const bool panels = all->panels && w->type->unpack;

    for (int i = 0; i < w->n_pieces; i++) {
        const int row0 = i * w->piece_rows;
        struct pin_op op = {
            .k = r->m->k, .w = w, .rows = stream_get(r->stream, w->piece + i, err),
            .n_rows = w->n_out - row0 < w->piece_rows ? w->n_out - row0 : w->piece_rows,
            .to = it->copy + (size_t)row0 * w->row_bytes, .panels = panels,
        };
        if (!op.rows) {
            return false;
        }
        pool_run(r->m->pool, pin_task, &op, (op.n_rows + PANEL_ROWS - 1) / PANEL_ROWS);
        stream_release(r->stream);
    }
    w->n_pieces = 0;
    if (panels) {
        w->panels = it->copy;
        atomic_store_explicit(&w->n_packed, w->n_out, memory_order_release);
    } else {
        w->rows = it->copy;
    }
    return true;
}

/* Places of the copies. */
static bool make_room(struct residency *r, struct items *all, slm_error *err)
{
    size_t at = 0;

    r->row_room_bytes = reader_room(all->row_bytes_max);
    r->row_rooms = mem_pages(r->row_room_bytes * (size_t)pool_size(r->m->pool));
    r->pinned_bytes = (size_t)r->where.pinned_bytes;
    r->pinned = r->pinned_bytes ? mem_pages(r->pinned_bytes) : NULL;
    if (!r->row_rooms || (r->pinned_bytes && !r->pinned)) {
        return slm_fail_nomem(err, "the weights that stay in memory");
    }
    for (int i = 0; i < all->n; i++) {
        struct item *it = &all->item[i];
        if (it->pinned) {
            it->copy = r->pinned + at;
            at += it->bytes;
        }
    }
    assert(at == r->pinned_bytes);
    return true;
}

static bool stream_weights(struct residency *r, struct items *all, int slots, size_t piece_bytes,
                           slm_error *err)
{
    struct model *m = r->m;

    if (!open_readers(r, err)) {
        return false;
    }
    leave_mapping(r, &m->top.token_embd);
    leave_mapping(r, &m->top.layer_embd);
    leave_mapping(r, &m->draft.embd);
    if (!make_room(r, all, err) || !cut(r, all, piece_bytes, slots, err) ||
        !set_order(r, all, true, err)) {
        return false;
    }
    for (int i = 0; i < all->n; i++) {
        if (all->item[i].pinned && !pin(r, all, &all->item[i], err)) {
            return false;
        }
    }
    /* Reading the header and the vectors has mapped pages of matrices, and cached more of them. */
    for (size_t i = 0; i < gguf_n_tensors(m->gguf); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(m->gguf, i);
        gguf_release(m->gguf, t, 0, t->bytes);
    }
    for (int i = 0; i < gguf_n_shards(m->gguf); i++) {
        reader_drop_cache(r->readers[i]);
    }
    return set_order(r, all, false, err);
}

struct stream *residency_stream(struct residency *r)
{
    return r->stream;
}

void *residency_row_room(struct residency *r, int worker)
{
    assert(r->row_rooms);
    return r->row_rooms + (size_t)worker * r->row_room_bytes;
}

/* ---- deciding ---------------------------------------------------------------------------------- */

/* Packs, or prepares to. */
static bool pack_weights(struct residency *r, enum model_pack pack, slm_error *err)
{
    if (!r->m->k->panels || pack == MODEL_PACK_OFF) {
        return true;
    }
    struct collect c = { r, 0 };
    model_each_weight(r->m, count_weight, &c);
    /* The mapping is given back behind the copy, so the sum never exceeds the file much, but
     * its clean pages may be cached by the kernel or not: ask for room for the copy. */
    if (pack == MODEL_PACK_AUTO && cpu_ram_free_bytes() < r->panels_bytes + MARGIN_BYTES) {
        log_line(SLM_LOG_INFO, "weights stay as mapped: too little free memory to pack them");
        return true;
    }
    r->weights = mem_alloc(c.cap, sizeof(struct weight *));
    r->panels = r->panels_bytes ? mem_pages(r->panels_bytes) : NULL;
    if (!r->weights || (r->panels_bytes && !r->panels)) {
        /* Packing is only an optimisation unless asked for; n_weights is 0. */
        return pack == MODEL_PACK_AUTO || slm_fail_nomem(err, "the packed weights");
    }
    model_each_weight(r->m, add_weight, &c);
    r->background = pack == MODEL_PACK_AUTO;
    if (!r->background) {
        pack_all(r);
    }
    return true;
}

struct residency *residency_new(struct model *m, const struct model_place *place, slm_error *err)
{
    struct residency *r = mem_zalloc(1, sizeof *r);
    struct items all = { .item = NULL };
    size_t piece_bytes;
    int slots;

    if (!r || !items_init(&all, m, place->drafts)) {
        slm_fail_nomem(err, "the list of weights");
        goto fail;
    }
    r->m = m;
    r->where = choose(&all, m, place, &slots, &piece_bytes);
    if (!(slots > 0 ? stream_weights(r, &all, slots, piece_bytes, err)
                    : pack_weights(r, place->pack, err))) {
        goto fail;
    }
    mem_free(all.item);
    return r;

fail:
    mem_free(all.item);
    residency_free(r);
    return NULL;
}

void residency_step_done(struct residency *r)
{
    if (!r->released && atomic_load_explicit(&r->packed, memory_order_acquire)) {
        r->released = true;
        release_packed(r);
    }
    if (r->background && !r->started && r->n_weights > 0) {
        r->started = pthread_create(&r->thread, NULL, background, r) == 0;
        r->background = r->started;  /* without a thread the weights stay as they are */
    }
}

void residency_free(struct residency *r)
{
    if (!r) {
        return;
    }
    if (r->started) {
        atomic_store(&r->stop, true);
        pthread_join(r->thread, NULL);
    }
    stream_free(r->stream);
    for (int i = 0; r->readers && i < gguf_n_shards(r->m->gguf); i++) {
        reader_close(r->readers[i]);
    }
    mem_free(r->readers);
    if (r->panels) {
        mem_pages_free(r->panels, r->panels_bytes);
    }
    if (r->pinned) {
        mem_pages_free(r->pinned, r->pinned_bytes);
    }
    if (r->row_rooms) {
        mem_pages_free(r->row_rooms, r->row_room_bytes * (size_t)pool_size(r->m->pool));
    }
    mem_free(r->weights);
    mem_free(r);
}

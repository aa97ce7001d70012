/* residency.c - packs weights into panels, at load or in the background. */
#include "model/residency.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/log.h"
#include "kern/dot.h"
#include "model/load.h"

/* Packed between two looks at the stop flag and given back together. */
enum { SLICE_BYTES = 4 << 20 };

/* Left free of packing for everything else. */
enum { MARGIN_BYTES = 256 << 20 };

struct residency {
    struct model *m;
    struct weight **weights;  /* the matrices to pack */
    size_t n_weights;
    uint8_t *panels;          /* all panels, one after another */
    size_t panels_bytes;
    bool background, started;
    pthread_t thread;
    atomic_bool stop;
};

static size_t panel_bytes(const struct weight *w)
{
    const size_t groups = ((size_t)w->n_out + PANEL_ROWS - 1) / PANEL_ROWS;

    return align_up(groups * PANEL_ROWS * w->row_bytes, 64);
}

/* False when stopped. */
static bool pack_weight(struct residency *r, struct weight *w, uint8_t *panels)
{
    size_t since = 0;  /* packed since the last release */

    for (int row = 0; row < w->n_out; row += PANEL_ROWS) {
        const int n = w->n_out - row < PANEL_ROWS ? w->n_out - row : PANEL_ROWS;
        const uint8_t *rows = w->rows + (size_t)row * w->row_bytes;
        r->m->k->pack(w->type, rows, w->row_bytes, w->n_in, n,
                      panels + (size_t)row * w->row_bytes);
        since += (size_t)n * w->row_bytes;
        if (since >= SLICE_BYTES || row + PANEL_ROWS >= w->n_out) {
            if (atomic_load_explicit(&r->stop, memory_order_relaxed)) {
                return false;
            }
            const size_t done = (size_t)(rows - w->tensor->data) + (size_t)n * w->row_bytes;
            gguf_release(r->m->gguf, w->tensor, done - since, since);
            since = 0;
        }
    }
    atomic_store_explicit(&w->panels, panels, memory_order_release);
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

struct residency *residency_new(struct model *m, enum model_pack pack, slm_error *err)
{
    struct residency *r = mem_zalloc(1, sizeof *r);

    if (!r) {
        slm_fail_nomem(err, "the packed weights");
        return NULL;
    }
    r->m = m;
    if (!m->k->panels || pack == MODEL_PACK_OFF) {
        return r;
    }
    struct collect c = { r, 0 };
    model_each_weight(m, count_weight, &c);
    /* The mapping is given back behind the copy, so the sum never exceeds the file much, but
     * its clean pages may be cached by the kernel or not: ask for room for the copy. */
    if (pack == MODEL_PACK_AUTO && cpu_ram_free_bytes() < r->panels_bytes + MARGIN_BYTES) {
        log_line(SLM_LOG_INFO, "weights stay as mapped: too little free memory to pack them");
        return r;
    }
    r->weights = mem_alloc(c.cap, sizeof(struct weight *));
    r->panels = r->panels_bytes ? mem_pages(r->panels_bytes) : NULL;
    if (!r->weights || (r->panels_bytes && !r->panels)) {
        if (pack == MODEL_PACK_AUTO) {
            return r;  /* packing is only an optimisation; n_weights is 0 */
        }
        residency_free(r);
        slm_fail_nomem(err, "the packed weights");
        return NULL;
    }
    model_each_weight(m, add_weight, &c);
    r->background = pack == MODEL_PACK_AUTO;
    if (!r->background) {
        pack_all(r);
    }
    return r;
}

void residency_start(struct residency *r)
{
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
    if (r->panels) {
        mem_pages_free(r->panels, r->panels_bytes);
    }
    mem_free(r->weights);
    mem_free(r);
}

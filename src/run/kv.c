/* kv.c - groups of pages: counted, handed out, copied when shared and written.
 *
 * Each class has its own stretch of address space, cut into groups of one size.  A group that was
 * given back stays resident and is the first to be handed out again.  Where the classes share a
 * bound in bytes, idle groups of one are emptied before fresh ones of the other are touched. */
#include "run/kv.h"

#include <assert.h>
#include <limits.h>
#include <string.h>

#include "base/mem.h"

/* Groups begin at multiples of this, so that the kernel can take single ones back. */
enum { GROUP_ALIGN = 4096 };

/* The groups of one class. */
struct groups {
    char *base;
    size_t bytes;        /* of one group; 0: the model has no such layers */
    int n;               /* how many there are */
    int n_used;          /* with an owner */
    int n_idle, n_cold;  /* without: resident, untouched */
    int32_t *refs;       /* [n] owners */
    int32_t *spare;      /* [n] two stacks: idle ones from the front, cold ones from the back */
};

/* Where a layer lies in its class's groups. */
struct place {
    enum kv_class class;
    size_t offset;
};

struct kv_pool {
    const struct model *model;
    struct groups class[KV_CLASSES];
    struct place *place;   /* [n_layer] */
    int n_layer;           /* KV layers, and one of the draft block where there is one */
    size_t bytes_max, used_bytes, resident_bytes;
};

struct kv_seq {
    struct kv_pool *pool;
    int n_pages;           /* that fit the table */
    int n_top;             /* pages from here on have no groups */
    void **table;          /* [n_layer][n_pages] */
    struct kv_page *pages; /* [n_pages] */
};

static int pages_for(int64_t positions)
{
    return (int)((positions + KV_PAGE - 1) / KV_PAGE);
}

/* ---- sizes --------------------------------------------------------------------------- */

static enum kv_class class_of(const struct model *m, int il)
{
    return il < model_shape(m)->n_kv_layer && model_kv_window(m, il) > 0 ? KV_WINDOW : KV_FULL;
}

static size_t layer_bytes(const struct model *m, enum kv_type type, int il)
{
    return align_up(il < model_shape(m)->n_kv_layer ? model_kv_page_bytes(m, il, type)
                                                    : model_draft_page_bytes(m, type), 64);
}

static int layer_count(const struct model *m, bool draft)
{
    return model_shape(m)->n_kv_layer + (draft ? 1 : 0);
}

size_t kv_group_bytes(const struct model *m, enum kv_type type, bool draft, enum kv_class class)
{
    size_t sum = 0;

    for (int il = 0; il < layer_count(m, draft); il++) {
        sum += class_of(m, il) == class ? layer_bytes(m, type, il) : 0;
    }
    return align_up(sum, GROUP_ALIGN);
}

/* The window of the sliding layers; 0 where the model has none. */
static int window_of(const struct model *m)
{
    for (int il = 0; il < model_shape(m)->n_kv_layer; il++) {
        if (model_kv_window(m, il) > 0) {
            return model_kv_window(m, il);
        }
    }
    return 0;
}

/* Pages that n positions touch at most, wherever they begin. */
static int64_t pages_across(int64_t n)
{
    return pages_for(n) + 1;
}

struct kv_count kv_seq_groups(const struct model *m, int context, int chunk, int n_keep)
{
    const int64_t all = pages_for(context), back = (int64_t)window_of(m) + KV_MARGIN;
    const int64_t sliding = pages_across(back + chunk) + n_keep * pages_across(back);
    struct kv_count count = { { (int)all, (int)(sliding < all ? sliding : all) } };

    if (window_of(m) == 0) {
        count.n[KV_WINDOW] = 0;
    }
    return count;
}

struct kv_params kv_params_for(const struct model *m, enum kv_type type, bool draft,
                               struct kv_count groups)
{
    struct kv_params p = { .type = type, .draft = draft };

    for (int c = 0; c < KV_CLASSES; c++) {
        size_t bytes;
        p.n_max[c] = groups.n[c];
        if (!size_mul(kv_group_bytes(m, type, draft, (enum kv_class)c), (size_t)groups.n[c],
                      &bytes) ||
            !size_add(p.bytes_max, bytes, &p.bytes_max)) {
            p.bytes_max = SIZE_MAX;
            break;
        }
    }
    return p;
}

/* kv_window_page for a window of its own size. */
static int first_page(int window, int n, int margin)
{
    const int64_t first = (int64_t)n - window + 1 - margin;

    return window > 0 && first > 0 ? (int)(first / KV_PAGE) : 0;
}

int kv_window_page(const struct model *m, int n, int margin)
{
    return first_page(window_of(m), n, margin);
}

/* ---- the pool ------------------------------------------------------------------------- */

static bool groups_init(struct groups *g, size_t bytes, const struct kv_params *p, int n_max)
{
    const size_t n = bytes > 0 ? p->bytes_max / bytes : 0;

    g->bytes = bytes;
    g->n = (int)(n < INT_MAX / 2 ? n : INT_MAX / 2);
    if (n_max > 0 && n_max < g->n) {
        g->n = n_max;
    }
    g->n_cold = g->n;
    if (g->n == 0) {
        return true;
    }
    g->base = mem_pages((size_t)g->n * bytes);
    g->refs = mem_zalloc((size_t)g->n, sizeof *g->refs);
    g->spare = mem_alloc((size_t)g->n, sizeof *g->spare);
    if (!g->base || !g->refs || !g->spare) {
        return false;
    }
    for (int i = 0; i < g->n; i++) {
        g->spare[i] = i;
    }
    return true;
}

static void groups_deinit(struct groups *g)
{
    if (g->base) {
        mem_pages_free(g->base, (size_t)g->n * g->bytes);
    }
    mem_free(g->refs);
    mem_free(g->spare);
}

static void place_layers(struct kv_pool *pool, enum kv_type type)
{
    size_t end[KV_CLASSES] = { 0 };

    for (int il = 0; il < pool->n_layer; il++) {
        const enum kv_class class = class_of(pool->model, il);
        pool->place[il] = (struct place){ class, end[class] };
        end[class] += layer_bytes(pool->model, type, il);
    }
}

struct kv_pool *kv_pool_new(const struct model *m, const struct kv_params *p, slm_error *err)
{
    struct kv_pool *pool = mem_zalloc(1, sizeof *pool);

    if (!pool || p->bytes_max == SIZE_MAX) {
        goto fail;
    }
    pool->model = m;
    pool->bytes_max = p->bytes_max;
    pool->n_layer = layer_count(m, p->draft);
    pool->place = mem_alloc((size_t)pool->n_layer, sizeof *pool->place);
    if (!pool->place) {
        goto fail;
    }
    place_layers(pool, p->type);
    for (int c = 0; c < KV_CLASSES; c++) {
        const size_t bytes = kv_group_bytes(m, p->type, p->draft, (enum kv_class)c);
        if (!groups_init(&pool->class[c], bytes, p, p->n_max[c])) {
            goto fail;
        }
    }
    return pool;

fail:
    kv_pool_free(pool);
    slm_fail_nomem(err, "keys and values");
    return NULL;
}

void kv_pool_free(struct kv_pool *pool)
{
    if (!pool) {
        return;
    }
    assert(pool->used_bytes == 0);
    for (int c = 0; c < KV_CLASSES; c++) {
        groups_deinit(&pool->class[c]);
    }
    mem_free(pool->place);
    mem_free(pool);
}

size_t kv_pool_used_bytes(const struct kv_pool *pool)
{
    return pool->used_bytes;
}

size_t kv_pool_max_bytes(const struct kv_pool *pool)
{
    return pool->bytes_max;
}

bool kv_pool_has_room(const struct kv_pool *pool, struct kv_count more)
{
    size_t left = pool->bytes_max - pool->used_bytes;

    for (int c = 0; c < KV_CLASSES; c++) {
        const struct groups *g = &pool->class[c];
        size_t bytes;
        if (g->bytes == 0) {
            continue;
        }
        if (more.n[c] > g->n - g->n_used || !size_mul((size_t)more.n[c], g->bytes, &bytes) ||
            bytes > left) {
            return false;
        }
        left -= bytes;
    }
    return true;
}

/* Empties an idle group, of any class. */
static void cool_one(struct kv_pool *pool)
{
    for (int c = 0; c < KV_CLASSES; c++) {
        struct groups *g = &pool->class[c];
        if (g->n_idle > 0) {
            const int32_t id = g->spare[--g->n_idle];
            mem_pages_drop(g->base + (size_t)id * g->bytes, g->bytes);
            g->n_cold++;
            g->spare[g->n - g->n_cold] = id;
            pool->resident_bytes -= g->bytes;
            return;
        }
    }
    assert(false);
}

/* A group with one owner; there must be room.  One that was in use has old keys and values that
 * nobody reads, and zeros where rows are padded. */
static int32_t take(struct kv_pool *pool, enum kv_class class)
{
    struct groups *g = &pool->class[class];
    int32_t id;

    if (g->n_idle > 0) {
        id = g->spare[--g->n_idle];
    } else {
        while (pool->resident_bytes + g->bytes > pool->bytes_max) {
            cool_one(pool);
        }
        assert(g->n_cold > 0);
        id = g->spare[g->n - g->n_cold--];
        pool->resident_bytes += g->bytes;
    }
    assert(g->refs[id] == 0);
    g->refs[id] = 1;
    g->n_used++;
    pool->used_bytes += g->bytes;
    return id;
}

static void ref(struct kv_pool *pool, enum kv_class class, int32_t id)
{
    if (id != KV_NONE) {
        assert(pool->class[class].refs[id] > 0);
        pool->class[class].refs[id]++;
    }
}

static void unref(struct kv_pool *pool, enum kv_class class, int32_t id)
{
    struct groups *g = &pool->class[class];

    if (id == KV_NONE) {
        return;
    }
    assert(g->refs[id] > 0);
    if (--g->refs[id] == 0) {
        g->spare[g->n_idle++] = id;
        g->n_used--;
        pool->used_bytes -= g->bytes;
    }
}

void kv_page_ref(struct kv_pool *pool, struct kv_page page)
{
    for (int c = 0; c < KV_CLASSES; c++) {
        ref(pool, (enum kv_class)c, page.group[c]);
    }
}

void kv_page_unref(struct kv_pool *pool, struct kv_page page)
{
    for (int c = 0; c < KV_CLASSES; c++) {
        unref(pool, (enum kv_class)c, page.group[c]);
    }
}

/* ---- a sequence ----------------------------------------------------------------------- */

static const struct kv_page no_page = { { KV_NONE, KV_NONE } };

struct kv_seq *kv_seq_new(struct kv_pool *pool, int context, slm_error *err)
{
    struct kv_seq *s = mem_zalloc(1, sizeof *s);
    size_t n_table;

    if (!s) {
        goto fail;
    }
    s->pool = pool;
    s->n_pages = pages_for(context);
    s->pages = mem_alloc((size_t)s->n_pages, sizeof *s->pages);
    if (!s->pages || !size_mul((size_t)pool->n_layer, (size_t)s->n_pages, &n_table)) {
        goto fail;
    }
    s->table = mem_zalloc(n_table, sizeof *s->table);
    if (!s->table) {
        goto fail;
    }
    for (int j = 0; j < s->n_pages; j++) {
        s->pages[j] = no_page;
    }
    return s;

fail:
    kv_seq_free(s);
    slm_fail_nomem(err, "the table of keys and values");
    return NULL;
}

size_t kv_seq_bytes(const struct model *m, int context)
{
    return (size_t)pages_for(context) *
           (sizeof(struct kv_page) + (size_t)layer_count(m, true) * sizeof(void *));
}

void kv_seq_free(struct kv_seq *s)
{
    if (!s) {
        return;
    }
    if (s->table) {
        kv_seq_drop(s, 0);
    }
    mem_free(s->pages);
    mem_free(s->table);
    mem_free(s);
}

/* Page j's group of a class becomes `id`; the owner counts are the caller's. */
static void set_group(struct kv_seq *s, int j, enum kv_class class, int32_t id)
{
    const struct kv_pool *pool = s->pool;
    const struct groups *g = &pool->class[class];
    char *base = id == KV_NONE ? NULL : g->base + (size_t)id * g->bytes;

    s->pages[j].group[class] = id;
    for (int il = 0; il < pool->n_layer; il++) {
        if (pool->place[il].class == class) {
            s->table[(size_t)il * (size_t)s->n_pages + (size_t)j] =
                base ? base + pool->place[il].offset : NULL;
        }
    }
}

static void give_back(struct kv_seq *s, int j, enum kv_class class)
{
    const int32_t id = s->pages[j].group[class];

    if (id != KV_NONE) {
        set_group(s, j, class, KV_NONE);
        unref(s->pool, class, id);
    }
}

/* Whether page j needs a group of the class before it can be written. */
static bool lacks(const struct kv_seq *s, int j, int class)
{
    const struct groups *g = &s->pool->class[class];
    const int32_t id = s->pages[j].group[class];

    return g->bytes > 0 && (id == KV_NONE || g->refs[id] > 1);
}

struct kv_count kv_seq_need(const struct kv_seq *s, int pos0, int pos1)
{
    struct kv_count need = { { 0, 0 } };

    for (int j = pos0 / KV_PAGE; j < pages_for(pos1); j++) {
        for (int c = 0; c < KV_CLASSES; c++) {
            need.n[c] += lacks(s, j, c);
        }
    }
    return need;
}

bool kv_seq_ensure(struct kv_seq *s, int pos0, int pos1, slm_error *err)
{
    struct kv_pool *pool = s->pool;

    assert(pos0 >= 0 && pages_for(pos1) <= s->n_pages);
    if (!kv_pool_has_room(pool, kv_seq_need(s, pos0, pos1))) {
        return slm_fail(err, SLM_E_NOMEM, "no room for more keys and values: %zu of %zu KiB are in "
                        "use", pool->used_bytes >> 10, pool->bytes_max >> 10);
    }
    for (int j = pos0 / KV_PAGE; j < pages_for(pos1); j++) {
        for (int c = 0; c < KV_CLASSES; c++) {
            if (!lacks(s, j, c)) {
                continue;
            }
            struct groups *g = &pool->class[c];
            const int32_t old = s->pages[j].group[c], id = take(pool, (enum kv_class)c);
            if (old != KV_NONE) {
                memcpy(g->base + (size_t)id * g->bytes, g->base + (size_t)old * g->bytes,
                       g->bytes);
                unref(pool, (enum kv_class)c, old);
            }
            set_group(s, j, (enum kv_class)c, id);
        }
        s->n_top = j >= s->n_top ? j + 1 : s->n_top;
    }
    return true;
}

void kv_seq_map(struct kv_seq *s, int j, struct kv_page page)
{
    assert(j >= 0 && j < s->n_pages);
    kv_page_ref(s->pool, page);
    for (int c = 0; c < KV_CLASSES; c++) {
        give_back(s, j, (enum kv_class)c);
        set_group(s, j, (enum kv_class)c, page.group[c]);
    }
    s->n_top = j >= s->n_top ? j + 1 : s->n_top;
}

struct kv_page kv_seq_page(const struct kv_seq *s, int j)
{
    assert(j >= 0 && j < s->n_pages);
    return s->pages[j];
}

void kv_seq_share(struct kv_seq *s, const struct kv_seq *src, int n)
{
    assert(s->pool == src->pool && s != src);
    kv_seq_drop(s, 0);
    for (int j = 0; j < pages_for(n); j++) {
        kv_seq_map(s, j, src->pages[j]);
    }
}

void kv_seq_drop(struct kv_seq *s, int n)
{
    const int from = pages_for(n);

    for (int j = s->n_top - 1; j >= from; j--) {
        for (int c = 0; c < KV_CLASSES; c++) {
            give_back(s, j, (enum kv_class)c);
        }
    }
    s->n_top = from < s->n_top ? from : s->n_top;
}

void kv_seq_slide(struct kv_seq *s, int pos, const int *keep, int n_keep)
{
    const int window = window_of(s->pool->model);
    const int end = first_page(window, pos, KV_MARGIN);

    for (int j = 0; j < end; j++) {
        bool kept = false;
        for (int i = 0; i < n_keep; i++) {
            kept = kept || (j >= first_page(window, keep[i], KV_MARGIN) && j < pages_for(keep[i]));
        }
        if (!kept) {
            give_back(s, j, KV_WINDOW);
        }
    }
}

int kv_seq_first_window(const struct kv_seq *s, int n)
{
    const int window = window_of(s->pool->model);
    const int least = first_page(window, n, KV_MARGIN);
    int j = window > 0 ? pages_for(n) : 0;

    while (j > least && s->pages[j - 1].group[KV_WINDOW] != KV_NONE) {
        j--;
    }
    return j;
}

bool kv_seq_take(struct kv_seq *s, int n, int first_window, slm_error *err)
{
    kv_seq_drop(s, 0);
    for (int j = 0; j < pages_for(n); j++) {
        if (!kv_seq_ensure(s, j * KV_PAGE, (j + 1) * KV_PAGE, err)) {
            kv_seq_drop(s, 0);
            return false;
        }
        if (j < first_window) {
            give_back(s, j, KV_WINDOW);
        }
    }
    return true;
}

void *kv_seq_group(const struct kv_seq *s, int j, enum kv_class class, size_t *bytes)
{
    const struct groups *g = &s->pool->class[class];
    const int32_t id = s->pages[j].group[class];

    *bytes = g->bytes;
    return id == KV_NONE ? NULL : g->base + (size_t)id * g->bytes;
}

int kv_seq_resume(const struct kv_seq *s, int n)
{
    const int window = window_of(s->pool->model);

    /* A page that is missing leaves the positions before it. */
    for (int j = pages_for(n) - 1; window > 0 && j >= 0; j--) {
        const int64_t first = (int64_t)n - window + 1;
        if ((int64_t)(j + 1) * KV_PAGE <= first) {
            break;
        }
        if (s->pages[j].group[KV_WINDOW] == KV_NONE) {
            n = j * KV_PAGE;
        }
    }
    return n;
}

void *const *kv_seq_table(const struct kv_seq *s)
{
    return s->table;
}

void *const *kv_seq_draft_table(const struct kv_seq *s)
{
    const int n_kv_layer = model_shape(s->pool->model)->n_kv_layer;

    assert(s->pool->n_layer > n_kv_layer);
    return s->table + (size_t)n_kv_layer * (size_t)s->n_pages;
}

int kv_seq_stride(const struct kv_seq *s)
{
    return s->n_pages;
}

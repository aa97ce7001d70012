/* kv.c - the pages of one session: one block of memory and a table into it.
 *
 * All pages exist from the beginning, so a step never allocates.  The memory is
 * anonymous and untouched: the kernel gives it zeroed, page by page, as the text
 * grows into it. */
#include "run/kv.h"

#include <limits.h>

#include "base/mem.h"

struct kv {
    unsigned char *base;
    size_t bytes;
    int n_pages;      /* per layer */
    void **table;     /* [n_kv_layer][n_pages] */
};

static int pages_for(int context)
{
    return (int)(((int64_t)context + KV_PAGE - 1) / KV_PAGE);
}

/* Bytes of KV_PAGE positions in all layers; false where that overflows. */
static bool group_bytes(const struct model *m, enum kv_type type, size_t *out)
{
    size_t sum = 0;

    for (int il = 0; il < model_shape(m)->n_kv_layer; il++) {
        if (!size_add(sum, align_up(model_kv_page_bytes(m, il, type), 64), &sum)) {
            return false;
        }
    }
    *out = sum;
    return true;
}

size_t kv_bytes(const struct model *m, int context, enum kv_type type)
{
    size_t group, bytes;

    if (!group_bytes(m, type, &group) || !size_mul(group, (size_t)pages_for(context), &bytes)) {
        return SIZE_MAX;
    }
    return bytes;
}

/* Points every table entry at its place: position groups follow each other, and
 * inside a group the layers. */
static void fill_table(struct kv *kv, const struct model *m, enum kv_type type)
{
    unsigned char *p = kv->base;

    for (int j = 0; j < kv->n_pages; j++) {
        for (int il = 0; il < model_shape(m)->n_kv_layer; il++) {
            kv->table[(size_t)il * (size_t)kv->n_pages + (size_t)j] = p;
            p += align_up(model_kv_page_bytes(m, il, type), 64);
        }
    }
}

struct kv *kv_new(const struct model *m, int context, enum kv_type type, slm_error *err)
{
    const size_t bytes = kv_bytes(m, context, type);
    struct kv *kv = mem_zalloc(1, sizeof *kv);
    size_t n_table;

    if (!kv || bytes == SIZE_MAX) {
        goto fail;
    }
    kv->n_pages = pages_for(context);
    kv->bytes = bytes;
    kv->base = mem_pages(bytes);
    if (!kv->base) {
        goto fail;
    }
    if (!size_mul((size_t)model_shape(m)->n_kv_layer, (size_t)kv->n_pages, &n_table)) {
        goto fail;
    }
    kv->table = mem_alloc(n_table, sizeof *kv->table);
    if (!kv->table) {
        goto fail;
    }
    fill_table(kv, m, type);
    return kv;

fail:
    kv_free(kv);
    slm_fail_nomem(err, "keys and values");
    return NULL;
}

void kv_free(struct kv *kv)
{
    if (!kv) {
        return;
    }
    if (kv->base) {
        mem_pages_free(kv->base, kv->bytes);
    }
    mem_free(kv->table);
    mem_free(kv);
}

void *const *kv_table(const struct kv *kv)
{
    return kv->table;
}

int kv_page_stride(const struct kv *kv)
{
    return kv->n_pages;
}

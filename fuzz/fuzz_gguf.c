/* fuzz_gguf.c - any bytes as a file: refused, or every bound that was promised holds. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "gguf/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Keeps the compiler from dropping reads. */
static volatile uint64_t sink;

static void touch(const uint8_t *p, size_t n)
{
    if (n > 0) {
        sink += (uint64_t)p[0] + p[n - 1];
    }
}

static void require(bool ok)
{
    if (!ok) {
        abort();
    }
}

static void touch_kv(const struct gguf *g, const struct gguf_kv *kv)
{
    for (uint64_t i = 0; i < kv->n; i++) {
        if (kv->elem == GGUF_STR) {
            touch((const uint8_t *)kv->str[i].s, kv->str[i].n);
        } else if (gguf_is_float(kv->elem)) {
            sink += gguf_float_at(kv, i) > 0;
        } else {
            sink += (uint64_t)gguf_int_at(kv, i);
        }
    }
    uint64_t u = 0;
    double f = 0;
    bool b = false;
    struct gguf_str s = {0};

    require(gguf_find(g, kv->key) == kv);
    gguf_get_u64(g, kv->key, 1, 1000, &u, NULL);
    gguf_get_f64(g, kv->key, &f, NULL);
    gguf_get_bool(g, kv->key, &b, NULL);
    gguf_get_str(g, kv->key, &s, NULL);
}

/* What was read goes through the writer and comes back the same. */
static void round_trip(const struct gguf *g)
{
    struct gguf_writer *w = gguf_writer_new();
    slm_error err;
    size_t n;

    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        gguf_put_kv(w, gguf_kv_at(g, i));
    }
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);

        gguf_put_tensor(w, t->name, t->type, t->n_dims, t->ne, t->data);
    }
    uint8_t *copy = gguf_write_mem(w, &n, &err);
    struct gguf *h = copy != NULL ? gguf_open_mem(copy, n, &err) : NULL;

    require(h != NULL && gguf_n_kv(h) == gguf_n_kv(g) && gguf_n_tensors(h) == gguf_n_tensors(g));
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *a = gguf_tensor_at(g, i), *b = gguf_tensor_at(h, i);

        require(a->bytes == b->bytes && memcmp(a->data, b->data, a->bytes) == 0);
    }
    gguf_close(h);
    mem_free(copy);
    gguf_writer_free(w);
}

/* Alignments up to 2^30 are legal, and a copy would then be as large. */
static bool small_alignment(const struct gguf *g)
{
    uint64_t align = 32;

    return gguf_get_u64(g, "general.alignment", 1, 4096, &align, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    slm_error err = {0};
    struct gguf *g = gguf_open_mem(data, n, &err);

    if (g == NULL) {
        require(err.code != SLM_E_OK && err.msg[0] != '\0' && strchr(err.msg, '\n') == NULL);
        return 0;
    }
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        touch_kv(g, gguf_kv_at(g, i));
    }
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);

        require(gguf_find_tensor(g, t->name) == t);
        require(t->bytes > 0 && t->data == data + t->offset && t->offset + t->bytes <= n);
        touch(t->data, t->bytes);
    }
    if (small_alignment(g)) {
        round_trip(g);
    }
    gguf_close(g);
    return 0;
}

/* gguf_write.c - files of version 3, for tests, tools and requantising.
 *
 * Metadata is encoded as it comes; the directory is encoded at the end, when the
 * alignment is known.  What is written here is read back by gguf_read.c without
 * complaint, so everything that it would refuse is refused here. */
#include <string.h>

#include "base/buf.h"
#include "gguf/gguf_int.h"

struct out_tensor {
    const char *name;
    uint32_t type;
    int n_dims;
    int64_t ne[4];
    const void *data;
    size_t bytes;
};

struct gguf_writer {
    struct arena mem;     /* names */
    struct buf kv;        /* encoded metadata */
    const char **keys;
    size_t n_kv;
    struct out_tensor *tensors;
    size_t n_tensors;
    uint32_t align;
    slm_error err;        /* the first failure */
};

struct gguf_writer *gguf_writer_new(void)
{
    struct gguf_writer *w = mem_zalloc(1, sizeof *w);

    if (w != NULL) {
        arena_init(&w->mem, 16 << 10, 0);
        buf_init(&w->kv, 0);
        w->align = GGUF_DEFAULT_ALIGN;
    }
    return w;
}

void gguf_writer_free(struct gguf_writer *w)
{
    if (w == NULL) {
        return;
    }
    arena_deinit(&w->mem);
    buf_deinit(&w->kv);
    mem_free(w->keys);
    mem_free(w->tensors);
    mem_free(w);
}

/* Keeps the first failure only: later ones may be its consequences. */
static bool failed(const struct gguf_writer *w)
{
    return w->err.code != SLM_E_OK;
}

/* ---- encoding ------------------------------------------------------------------------ */

static void add_le(struct buf *b, uint64_t v, size_t n)
{
    uint8_t bytes[8];

    for (size_t i = 0; i < n; i++) {
        bytes[i] = (uint8_t)(v >> (8 * i));
    }
    buf_add(b, bytes, n);
}

static void add_str(struct buf *b, const char *s, size_t n)
{
    add_le(b, n, 8);
    buf_add(b, s, n);
}

/* One more element at the end of an array of n; NULL and the sticky error without memory. */
static void *one_more(struct gguf_writer *w, void *array, size_t n, size_t size)
{
    if (n != 0 && (n & (n - 1)) != 0) {
        return array;
    }
    void *p = mem_realloc(array, n == 0 ? 1 : n * 2, size);

    if (p == NULL) {
        slm_fail_nomem(&w->err, "the file's directory");
    }
    return p;
}

/* ---- metadata -------------------------------------------------------------------------- */

/* Key and type of an entry; the value follows.  False after a failure. */
static bool begin_kv(struct gguf_writer *w, const char *key, enum gguf_type type)
{
    size_t n = strlen(key);

    if (failed(w)) {
        return false;
    }
    if (n == 0 || n > GGUF_KEY_MAX || w->n_kv >= GGUF_COUNT_MAX) {
        return slm_fail(&w->err, SLM_E_ARG, "key %.40s: %zu bytes are not possible", key, n);
    }
    const char **keys = one_more(w, w->keys, w->n_kv, sizeof *keys);

    if (keys == NULL) {
        return false;
    }
    w->keys = keys;
    w->keys[w->n_kv] = arena_strndup(&w->mem, key, n);
    if (w->keys[w->n_kv] == NULL) {
        return slm_fail_nomem(&w->err, "a key");
    }
    w->n_kv++;
    add_str(&w->kv, key, n);
    add_le(&w->kv, type, 4);
    return true;
}

static void put_scalar(struct gguf_writer *w, const char *key, enum gguf_type type, uint64_t v)
{
    if (begin_kv(w, key, type)) {
        add_le(&w->kv, v, gguf_type_bytes(type));
    }
}

void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t v)
{
    if (strcmp(key, "general.alignment") == 0) {
        if (v == 0 || (v & (v - 1)) != 0 || v > GGUF_ALIGN_MAX) {
            if (!failed(w)) {
                slm_fail(&w->err, SLM_E_ARG, "an alignment of %u is not possible", v);
            }
            return;
        }
        w->align = v;
    }
    put_scalar(w, key, GGUF_U32, v);
}

void gguf_put_f32(struct gguf_writer *w, const char *key, float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof bits);
    put_scalar(w, key, GGUF_F32, bits);
}

void gguf_put_bool(struct gguf_writer *w, const char *key, bool v)
{
    put_scalar(w, key, GGUF_BOOL, v);
}

void gguf_put_str(struct gguf_writer *w, const char *key, const char *s, size_t n)
{
    if (begin_kv(w, key, GGUF_STR)) {
        add_str(&w->kv, s, n);
    }
}

static bool begin_array(struct gguf_writer *w, const char *key, enum gguf_type elem, uint64_t n)
{
    if (n > GGUF_LEN_MAX && !failed(w)) {
        slm_fail(&w->err, SLM_E_ARG, "key %.100s: too many elements", key);
    }
    if (!begin_kv(w, key, GGUF_ARR)) {
        return false;
    }
    add_le(&w->kv, elem, 4);
    add_le(&w->kv, n, 8);
    return true;
}

void gguf_put_array(struct gguf_writer *w, const char *key, enum gguf_type elem, const void *data,
                    uint64_t n)
{
    size_t size = gguf_type_bytes(elem);

    if (size == 0 && !failed(w)) {
        slm_fail(&w->err, SLM_E_ARG, "key %.100s: not a fixed-width type", key);
    }
    if (begin_array(w, key, elem, n)) {
        buf_add(&w->kv, data, n * size);
    }
}

void gguf_put_strs(struct gguf_writer *w, const char *key, const struct gguf_str *strs, uint64_t n)
{
    if (!begin_array(w, key, GGUF_STR, n)) {
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        add_str(&w->kv, strs[i].s, strs[i].n);
    }
}

void gguf_put_kv(struct gguf_writer *w, const struct gguf_kv *kv)
{
    if (kv->type == GGUF_U32) {
        gguf_put_u32(w, kv->key, (uint32_t)gguf_int_at(kv, 0));
    } else if (kv->type == GGUF_STR) {
        gguf_put_str(w, kv->key, kv->str[0].s, kv->str[0].n);
    } else if (kv->type != GGUF_ARR) {
        put_scalar(w, kv->key, kv->type, gguf_load(kv->data, gguf_type_bytes(kv->type)));
    } else if (kv->elem == GGUF_STR) {
        gguf_put_strs(w, kv->key, kv->str, kv->n);
    } else {
        gguf_put_array(w, kv->key, kv->elem, kv->data, kv->n);
    }
}

/* ---- tensors ----------------------------------------------------------------------------- */

/* Fills in shape and size. */
static bool shape_tensor(struct gguf_writer *w, struct out_tensor *t, const int64_t *ne)
{
    const struct gguf_tensor_type *type = gguf_tensor_type(t->type);
    int64_t n_elements = 1;

    if (type == NULL || t->n_dims < 1 || t->n_dims > 4) {
        return slm_fail(&w->err, SLM_E_ARG, "tensor %.63s: type %u or %d dimensions are not possible",
                        t->name, t->type, t->n_dims);
    }
    for (int i = 0; i < t->n_dims; i++) {
        t->ne[i] = ne[i];
        if (ne[i] < 1 || __builtin_mul_overflow(n_elements, ne[i], &n_elements)) {
            return slm_fail(&w->err, SLM_E_ARG, "tensor %.63s: dimension %d is %lld", t->name, i,
                            (long long)ne[i]);
        }
    }
    if (ne[0] % type->block != 0) {
        return slm_fail(&w->err, SLM_E_ARG, "tensor %.63s: rows of %lld, but blocks of %d", t->name,
                        (long long)ne[0], type->block);
    }
    if (!size_mul((size_t)(n_elements / type->block), (size_t)type->block_bytes, &t->bytes) ||
        t->bytes > SIZE_MAX - GGUF_ALIGN_MAX) {
        return slm_fail(&w->err, SLM_E_ARG, "tensor %.63s: its size overflows", t->name);
    }
    return true;
}

void gguf_put_tensor(struct gguf_writer *w, const char *name, uint32_t type, int n_dims,
                     const int64_t *ne, const void *data)
{
    struct out_tensor t = {.name = name, .type = type, .n_dims = n_dims, .data = data};
    size_t n = strlen(name);

    if (failed(w)) {
        return;
    }
    if (n == 0 || n > GGUF_NAME_MAX || w->n_tensors >= GGUF_COUNT_MAX) {
        slm_fail(&w->err, SLM_E_ARG, "tensor %.80s: a name of %zu bytes is not possible", name, n);
        return;
    }
    if (!shape_tensor(w, &t, ne)) {
        return;
    }
    struct out_tensor *tensors = one_more(w, w->tensors, w->n_tensors, sizeof t);

    if (tensors == NULL) {
        return;
    }
    w->tensors = tensors;
    t.name = arena_strndup(&w->mem, name, n);
    if (t.name == NULL) {
        slm_fail_nomem(&w->err, "a tensor name");
        return;
    }
    w->tensors[w->n_tensors++] = t;
}

/* ---- the file ------------------------------------------------------------------------------ */

static bool check_names(struct gguf_writer *w, slm_error *err)
{
    size_t most = w->n_kv > w->n_tensors ? w->n_kv : w->n_tensors;
    struct gguf_index index = {.refs = mem_alloc(most, sizeof *index.refs)};

    if (index.refs == NULL) {
        return slm_fail_nomem(err, "the index of names");
    }
    for (size_t i = 0; i < w->n_kv; i++) {
        index.refs[i] = (struct gguf_ref){.name = w->keys[i], .i = i};
    }
    index.n = w->n_kv;
    bool ok = gguf_index_build(&index, "key", err);

    for (size_t i = 0; i < w->n_tensors; i++) {
        index.refs[i] = (struct gguf_ref){.name = w->tensors[i].name, .i = i};
    }
    index.n = w->n_tensors;
    ok = ok && gguf_index_build(&index, "tensor", err);
    mem_free(index.refs);
    return ok;
}

/* Everything in front of the data.  zeros: `align` of them. */
static bool encode_head(const struct gguf_writer *w, const char *zeros, struct buf *b,
                        slm_error *err)
{
    uint64_t offset = 0;

    buf_puts(b, "GGUF");
    add_le(b, 3, 4);
    add_le(b, w->n_tensors, 8);
    add_le(b, w->n_kv, 8);
    buf_add(b, w->kv.data, w->kv.len);
    for (size_t i = 0; i < w->n_tensors; i++) {
        const struct out_tensor *t = &w->tensors[i];

        add_str(b, t->name, strlen(t->name));
        add_le(b, (uint64_t)t->n_dims, 4);
        for (int d = 0; d < t->n_dims; d++) {
            add_le(b, (uint64_t)t->ne[d], 8);
        }
        add_le(b, t->type, 4);
        add_le(b, offset, 8);
        offset += align_up(t->bytes, w->align);
    }
    buf_add(b, zeros, align_up(b->len, w->align) - b->len);
    return (!b->failed && !w->kv.failed) || slm_fail_nomem(err, "the file's directory");
}

/* What goes around the data: the head, and zeros for the gaps between tensors. */
struct layout {
    struct buf head;
    char *zeros;
};

static void layout_deinit(struct layout *l)
{
    buf_deinit(&l->head);
    mem_free(l->zeros);
}

static bool layout_init(struct layout *l, struct gguf_writer *w, slm_error *err)
{
    *l = (struct layout){0};
    buf_init(&l->head, 0);
    if (failed(w)) {
        if (err != NULL) {
            *err = w->err;
        }
        return false;
    }
    l->zeros = mem_zalloc(w->align, 1);
    if (l->zeros == NULL) {
        return slm_fail_nomem(err, "the file's layout");
    }
    return check_names(w, err) && encode_head(w, l->zeros, &l->head, err);
}

static size_t padding(const struct gguf_writer *w, const struct out_tensor *t)
{
    return align_up(t->bytes, w->align) - t->bytes;
}

static uint64_t file_bytes(const struct gguf_writer *w, const struct layout *l)
{
    uint64_t sum = l->head.len;

    for (size_t i = 0; i < w->n_tensors; i++) {
        sum += w->tensors[i].bytes + padding(w, &w->tensors[i]);
    }
    return sum;
}

static bool write_tensor(const struct gguf_writer *w, const struct layout *l, size_t i,
                         gguf_data_fn *fn, void *arg, struct file_out *out, slm_error *err)
{
    const struct out_tensor *t = &w->tensors[i];
    const uint64_t begin = out->written;

    if (!fn(arg, i, out, err)) {
        return false;
    }
    if (out->written - begin != t->bytes) {
        return slm_fail(err, SLM_E_INTERNAL, "tensor %s: %llu bytes were written in place of %zu",
                        t->name, (unsigned long long)(out->written - begin), t->bytes);
    }
    return file_out_add(out, l->zeros, padding(w, t), err);
}

bool gguf_write_stream(struct gguf_writer *w, const char *path, gguf_data_fn *fn, void *arg,
                       slm_error *err)
{
    struct layout l;
    struct file_out out = { .fd = -1 };
    bool ok = layout_init(&l, w, err) && file_out_open(&out, path, file_bytes(w, &l), err) &&
              file_out_add(&out, l.head.data, l.head.len, err);

    for (size_t i = 0; ok && i < w->n_tensors; i++) {
        ok = write_tensor(w, &l, i, fn, arg, &out, err);
    }
    ok = file_out_close(&out, ok, err);
    layout_deinit(&l);
    return ok;
}

static bool write_given(void *arg, size_t i, struct file_out *out, slm_error *err)
{
    const struct out_tensor *t = &((const struct gguf_writer *)arg)->tensors[i];
    return file_out_add(out, t->data, t->bytes, err);
}

bool gguf_write_file(struct gguf_writer *w, const char *path, slm_error *err)
{
    return gguf_write_stream(w, path, write_given, w, err);
}

uint8_t *gguf_write_mem(struct gguf_writer *w, size_t *n, slm_error *err)
{
    struct layout l;
    struct buf all;

    buf_init(&all, 0);
    bool ok = layout_init(&l, w, err);

    buf_add(&all, ok ? l.head.data : NULL, ok ? l.head.len : 0);
    for (size_t i = 0; ok && i < w->n_tensors; i++) {
        buf_add(&all, w->tensors[i].data, w->tensors[i].bytes);
        buf_add(&all, l.zeros, padding(w, &w->tensors[i]));
    }
    layout_deinit(&l);
    uint8_t *data = ok ? (uint8_t *)buf_take(&all, n) : NULL;

    if (ok && data == NULL) {
        slm_fail_nomem(err, "the file");
    }
    buf_deinit(&all);
    return data;
}

/* gguf_read.c - one file image into metadata and tensor directory.
 *
 * The image is hostile until proven otherwise.  Every read goes through `take`, which
 * checks it against what is left; sizes are multiplied with overflow tests; memory is
 * asked for in proportion to what the file has already shown to contain, never to what a
 * count claims. */
#include <string.h>

#include "gguf/gguf_int.h"

/* ---- reading in bounds ------------------------------------------------------------ */

struct cursor {
    const uint8_t *data;
    size_t size, pos;
    slm_error *err;
};

static size_t remain(const struct cursor *c)
{
    return c->size - c->pos;
}

/* The next n bytes, or NULL and an error. */
static const uint8_t *take(struct cursor *c, uint64_t n)
{
    if (n > remain(c)) {
        slm_fail_at(c->err, SLM_E_FORMAT, (int64_t)c->pos,
                    "the file ends too early (%llu bytes expected at %zu, %zu are left); "
                    "download it again",
                    (unsigned long long)n, c->pos, remain(c));
        return NULL;
    }
    const uint8_t *p = c->data + c->pos;

    c->pos += n;
    return p;
}

static bool take_u32(struct cursor *c, uint32_t *out)
{
    const uint8_t *p = take(c, 4);

    if (p != NULL) {
        *out = (uint32_t)gguf_load(p, 4);
    }
    return p != NULL;
}

static bool take_u64(struct cursor *c, uint64_t *out)
{
    const uint8_t *p = take(c, 8);

    if (p != NULL) {
        *out = gguf_load(p, 8);
    }
    return p != NULL;
}

static bool take_str(struct cursor *c, struct gguf_str *out)
{
    uint64_t n;

    if (!take_u64(c, &n)) {
        return false;
    }
    if (n > GGUF_LEN_MAX) {
        return slm_fail_at(c->err, SLM_E_FORMAT, (int64_t)c->pos - 8,
                           "a string of %llu bytes; at most %d are possible",
                           (unsigned long long)n, GGUF_LEN_MAX);
    }
    out->s = (const char *)take(c, n);
    out->n = n;
    return out->s != NULL;
}

/* Sets an error at the cursor's position. */
#define fail_here(c, ...) slm_fail_at((c)->err, SLM_E_FORMAT, (int64_t)(c)->pos, __VA_ARGS__)

/* A copy with a NUL, in the arena. */
static const char *copy_str(struct gguf *g, struct gguf_str s, slm_error *err)
{
    const char *copy = arena_strndup(&g->mem, s.s, s.n);

    if (copy == NULL) {
        slm_fail_nomem(err, "the names of the file");
    }
    return copy;
}

/* Makes room for one more element in an array of n elements whose capacity is the power
 * of two at or above n. */
static bool grow(void **array, size_t n, size_t size, slm_error *err)
{
    if (n != 0 && (n & (n - 1)) != 0) {
        return true;
    }
    void *p = mem_realloc(*array, n == 0 ? 1 : n * 2, size);

    if (p == NULL) {
        return slm_fail_nomem(err, "the directory of the file");
    }
    *array = p;
    return true;
}

/* ---- header ------------------------------------------------------------------------- */

/* What else a file without the magic may be. */
static bool fail_magic(const uint8_t *data, size_t n, slm_error *err)
{
    static const struct {
        const char *magic, *what;
    } others[] = {
        {"version https://git-lfs", "a Git LFS pointer; fetch the file itself"},
        {"tjgg", "a GGML file of before GGUF; convert the model again"},
        {"fmgg", "a GGML file of before GGUF; convert the model again"},
        {"lmgg", "a GGML file of before GGUF; convert the model again"},
        {"PK\003\004", "a zip archive or PyTorch checkpoint; convert it to GGUF"},
        {"<!DOCTYPE", "a web page; the download went wrong"},
        {"<html", "a web page; the download went wrong"},
        {"FUGG", "a big-endian file, which is not supported"},
    };

    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        size_t len = strlen(others[i].magic);

        if (n >= len && memcmp(data, others[i].magic, len) == 0) {
            return slm_fail_at(err, SLM_E_FORMAT, 0, "not a GGUF file but %s", others[i].what);
        }
    }
    return slm_fail_at(err, SLM_E_FORMAT, 0, "not a GGUF file");
}

static bool check_version(uint32_t version, slm_error *err)
{
    if (version == 2 || version == 3) {
        return true;
    }
    if (version == 1) {
        return slm_fail_at(err, SLM_E_UNSUPPORTED, 4,
                           "GGUF version 1 is no longer supported; convert the model again");
    }
    if (version != 0 && (version & 0xFFFF) == 0) {
        return slm_fail_at(err, SLM_E_UNSUPPORTED, 4,
                           "a big-endian file, which is not supported; convert the model again");
    }
    return slm_fail_at(err, SLM_E_UNSUPPORTED, 4,
                       "GGUF version %u is unknown; 2 and 3 are supported", version);
}

/* `least` bytes is the smallest possible record, so a count that cannot fit ends here. */
static bool check_count(struct cursor *c, uint64_t n, size_t least, const char *what)
{
    if (n > GGUF_COUNT_MAX || n > remain(c) / least) {
        return fail_here(c, "the header counts %llu %s, but only %zu bytes follow; the file is "
                         "damaged or cut off", (unsigned long long)n, what, remain(c));
    }
    return true;
}

static bool read_header(struct cursor *c, uint32_t *version, uint64_t *n_tensors, uint64_t *n_kv)
{
    if (c->size < 4 || memcmp(c->data, "GGUF", 4) != 0) {
        return fail_magic(c->data, c->size, c->err);
    }
    c->pos = 4;
    return take_u32(c, version) && check_version(*version, c->err) && take_u64(c, n_tensors) &&
           take_u64(c, n_kv);
}

/* ---- metadata -------------------------------------------------------------------------- */

static bool check_bools(struct cursor *c, const uint8_t *data, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        if (data[i] > 1) {
            return fail_here(c, "a bool has the value %u", data[i]);
        }
    }
    return true;
}

static bool read_scalars(struct cursor *c, struct gguf_kv *kv)
{
    size_t bytes;

    if (!size_mul(kv->n, gguf_type_bytes(kv->elem), &bytes)) {
        return fail_here(c, "%llu elements are too many", (unsigned long long)kv->n);
    }
    kv->data = take(c, bytes);
    return kv->data != NULL && (kv->elem != GGUF_BOOL || check_bools(c, kv->data, kv->n));
}

/* Strings are walked twice: once to check them, and only then is memory asked for. */
static bool read_strings(struct gguf *g, struct cursor *c, struct gguf_kv *kv)
{
    size_t start = c->pos, bytes;
    struct gguf_str s;

    /* Each string takes at least the 8 bytes of its length. */
    if (kv->n > remain(c) / 8) {
        return fail_here(c, "%llu strings cannot fit into the %zu bytes that follow",
                         (unsigned long long)kv->n, remain(c));
    }
    for (uint64_t i = 0; i < kv->n; i++) {
        if (!take_str(c, &s)) {
            return slm_wrap(c->err, "string %llu of %llu", (unsigned long long)i,
                            (unsigned long long)kv->n);
        }
    }
    struct gguf_str *strs =
        size_mul(kv->n, sizeof *strs, &bytes) ? arena_alloc(&g->mem, bytes) : NULL;

    if (strs == NULL) {
        return slm_fail_nomem(c->err, "the strings of the file");
    }
    c->pos = start;
    for (uint64_t i = 0; i < kv->n; i++) {
        if (!take_str(c, &strs[i])) {
            return false;
        }
    }
    kv->str = strs;
    return true;
}

static bool read_value(struct gguf *g, struct cursor *c, struct gguf_kv *kv)
{
    uint32_t type, elem;

    if (!take_u32(c, &type)) {
        return false;
    }
    elem = type;
    kv->n = 1;
    if (type == GGUF_ARR && (!take_u32(c, &elem) || !take_u64(c, &kv->n))) {
        return false;
    }
    if (type == GGUF_ARR && elem == GGUF_ARR) {
        return fail_here(c, "an array of arrays, which is not supported");
    }
    if (type >= GGUF_TYPE_COUNT || elem >= GGUF_TYPE_COUNT) {
        return fail_here(c, "unknown value type %u", type >= GGUF_TYPE_COUNT ? type : elem);
    }
    if (kv->n > GGUF_LEN_MAX) {
        return fail_here(c, "an array of %llu elements; at most %d are possible",
                         (unsigned long long)kv->n, GGUF_LEN_MAX);
    }
    kv->type = (enum gguf_type)type;
    kv->elem = (enum gguf_type)elem;
    return elem == GGUF_STR ? read_strings(g, c, kv) : read_scalars(c, kv);
}

static bool read_key(struct gguf *g, struct cursor *c, const char **key)
{
    struct gguf_str s;

    if (!take_str(c, &s)) {
        return false;
    }
    if (s.n == 0) {
        return fail_here(c, "the key is empty");
    }
    if (s.n > GGUF_KEY_MAX) {
        return fail_here(c, "the key has %zu bytes; at most %d are possible", s.n, GGUF_KEY_MAX);
    }
    if (memchr(s.s, '\0', s.n) != NULL) {
        return fail_here(c, "the key %.*s holds a NUL byte", (int)s.n, s.s);
    }
    *key = copy_str(g, s, c->err);
    return *key != NULL;
}

static bool read_kv(struct gguf *g, struct gguf_shard *s, struct cursor *c, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        struct gguf_kv kv = {0};
        void *array = s->kv;

        if (!read_key(g, c, &kv.key)) {
            return slm_wrap(c->err, "metadata entry %llu of %llu", (unsigned long long)i + 1,
                            (unsigned long long)n);
        }
        if (!read_value(g, c, &kv)) {
            return slm_wrap(c->err, "key %.100s", kv.key);
        }
        if (!grow(&array, s->n_kv, sizeof kv, c->err)) {
            return false;
        }
        s->kv = array;
        s->kv[s->n_kv++] = kv;
    }
    return true;
}

static bool index_keys(struct gguf *g, struct gguf_shard *s, slm_error *err)
{
    s->keys.refs = arena_alloc(&g->mem, s->n_kv * sizeof *s->keys.refs);
    if (s->keys.refs == NULL) {
        return slm_fail_nomem(err, "the index of keys");
    }
    s->keys.n = s->n_kv;
    for (size_t i = 0; i < s->n_kv; i++) {
        s->keys.refs[i] = (struct gguf_ref){.name = s->kv[i].key, .i = i};
    }
    return gguf_index_build(&s->keys, "key", err);
}

static bool read_alignment(struct gguf_shard *s, slm_error *err)
{
    const struct gguf_kv *kv = gguf_shard_find(s, "general.alignment");

    s->align = GGUF_DEFAULT_ALIGN;
    if (kv == NULL) {
        return true;
    }
    if (kv->type != GGUF_U32) {
        return slm_fail(err, SLM_E_FORMAT, "key general.alignment: has type %s, must be u32",
                        gguf_type_name(kv->type));
    }
    s->align = (uint32_t)gguf_load(kv->data, 4);
    if (s->align == 0 || (s->align & (s->align - 1)) != 0 || s->align > GGUF_ALIGN_MAX) {
        return slm_fail(err, SLM_E_FORMAT,
                        "key general.alignment: %u is not a power of two from 1 to %d", s->align,
                        GGUF_ALIGN_MAX);
    }
    return true;
}

/* ---- tensor directory -------------------------------------------------------------------- */

static bool read_tensor_name(struct gguf *g, struct cursor *c, struct gguf_tensor *t)
{
    struct gguf_str s;

    if (!take_str(c, &s)) {
        return false;
    }
    if (s.n == 0) {
        return fail_here(c, "the tensor name is empty");
    }
    if (s.n > GGUF_NAME_MAX) {
        return fail_here(c, "the tensor name has %zu bytes; at most %d are possible", s.n,
                         GGUF_NAME_MAX);
    }
    if (memchr(s.s, '\0', s.n) != NULL) {
        return fail_here(c, "the tensor name %.*s holds a NUL byte", (int)s.n, s.s);
    }
    t->name = copy_str(g, s, c->err);
    return t->name != NULL;
}

/* Dimensions and their product, which must fit a signed 64-bit number. */
static bool read_dims(struct cursor *c, struct gguf_tensor *t, int64_t *n_elements)
{
    uint32_t n_dims;

    if (!take_u32(c, &n_dims)) {
        return false;
    }
    if (n_dims < 1 || n_dims > 4) {
        return fail_here(c, "%u dimensions; 1 to 4 are possible", n_dims);
    }
    t->n_dims = (int)n_dims;
    *n_elements = 1;
    for (int i = 0; i < 4; i++) {
        uint64_t ne = 1;

        if (i < t->n_dims && !take_u64(c, &ne)) {
            return false;
        }
        if (ne > INT64_MAX) {
            return fail_here(c, "dimension %d is negative", i);
        }
        if (ne == 0) {
            return fail_here(c, "dimension %d is zero", i);
        }
        t->ne[i] = (int64_t)ne;
        if (__builtin_mul_overflow(*n_elements, t->ne[i], n_elements)) {
            return fail_here(c, "the dimensions multiply to more than 2^63 elements");
        }
    }
    return true;
}

static bool read_tensor_type(struct cursor *c, struct gguf_tensor *t, int64_t n_elements)
{
    if (!take_u32(c, &t->type)) {
        return false;
    }
    const struct gguf_tensor_type *type = gguf_tensor_type(t->type);

    if (type == NULL) {
        char why[160];

        gguf_refuse_type(t->type, why, sizeof why);
        return slm_fail_at(c->err, SLM_E_UNSUPPORTED, (int64_t)c->pos - 4, "%s", why);
    }
    if (t->ne[0] % type->block != 0) {
        return fail_here(c, "rows of %lld elements, but type %s comes in blocks of %d",
                         (long long)t->ne[0], type->name, type->block);
    }
    /* Rounding the size up to the alignment must not overflow either. */
    if (__builtin_mul_overflow((size_t)(n_elements / type->block), (size_t)type->block_bytes,
                               &t->bytes) ||
        t->bytes > SIZE_MAX - GGUF_ALIGN_MAX) {
        return fail_here(c, "its size in bytes overflows");
    }
    return true;
}

static bool read_tensor(struct gguf_shard *s, struct cursor *c, struct gguf_tensor *t)
{
    int64_t n_elements = 0;

    if (!read_dims(c, t, &n_elements) || !read_tensor_type(c, t, n_elements) ||
        !take_u64(c, &t->offset)) {
        return false;
    }
    if (t->offset % s->align != 0) {
        return fail_here(c, "its offset %llu is not a multiple of the alignment %u",
                         (unsigned long long)t->offset, s->align);
    }
    return true;
}

static bool read_tensors(struct gguf *g, int no, struct cursor *c, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        struct gguf_tensor t = {.shard = no};
        void *array = g->tensors;

        if (!read_tensor_name(g, c, &t)) {
            return slm_wrap(c->err, "tensor %llu of %llu", (unsigned long long)i + 1,
                            (unsigned long long)n);
        }
        if (!read_tensor(&g->shards[no], c, &t)) {
            return slm_wrap(c->err, "tensor %s", t.name);
        }
        if (!grow(&array, g->n_tensors, sizeof t, c->err)) {
            return false;
        }
        g->tensors = array;
        g->tensors[g->n_tensors++] = t;
    }
    return true;
}

/* Turns offsets into addresses, with everything inside the file. */
static bool place_tensors(struct gguf *g, struct cursor *c, size_t first, uint32_t align)
{
    if (first == g->n_tensors) {
        return true;  /* no tensors, and then there need not be padding */
    }
    /* pos is at most the size of a mapping, so rounding up cannot overflow. */
    size_t start = align_up(c->pos, align);

    if (start > c->size) {
        return fail_here(c, "the file ends before its tensor data; download it again");
    }
    for (size_t i = first; i < g->n_tensors; i++) {
        struct gguf_tensor *t = &g->tensors[i];
        size_t room = c->size - start;

        if (t->offset > room || t->bytes > room - t->offset) {
            return slm_fail_at(c->err, SLM_E_FORMAT, (int64_t)start,
                               "tensor %s: %zu bytes at %llu of the tensor data, which has only "
                               "%zu; the file is cut off, download it again",
                               t->name, t->bytes, (unsigned long long)t->offset, room);
        }
        t->offset += start;
        t->data = c->data + t->offset;
    }
    return true;
}

static bool overlap(const struct gguf_tensor *a, const struct gguf_tensor *b, slm_error *err)
{
    if (b->offset >= a->offset + a->bytes) {
        return false;
    }
    slm_fail_at(err, SLM_E_FORMAT, (int64_t)b->offset, "tensors %s and %s overlap", a->name,
                b->name);
    return true;
}

/* The usual writers store tensors in the order of the directory, which is checked
 * without memory; tools that edit files leave gaps and other orders. */
static bool check_overlaps(struct gguf *g, size_t first, slm_error *err)
{
    if (first == g->n_tensors) {
        return true;
    }
    const struct gguf_tensor *t = g->tensors + first;
    size_t n = g->n_tensors - first, in_order = 1;

    while (in_order < n && t[in_order].offset >= t[in_order - 1].offset + t[in_order - 1].bytes) {
        in_order++;
    }
    if (in_order == n) {
        return true;
    }
    struct gguf_ref *refs = mem_alloc(n, sizeof *refs);
    bool ok = refs != NULL || slm_fail_nomem(err, "the order of tensors");

    for (size_t i = 0; ok && i < n; i++) {
        refs[i] = (struct gguf_ref){.offset = t[i].offset, .i = i};
    }
    if (ok) {
        gguf_sort(refs, n, gguf_by_offset);
    }
    for (size_t i = 1; ok && i < n; i++) {
        ok = !overlap(&t[refs[i - 1].i], &t[refs[i].i], err);
    }
    mem_free(refs);
    return ok;
}

/* ---- all of it ------------------------------------------------------------------------------ */

bool gguf_parse_shard(struct gguf *g, int no, slm_error *err)
{
    /* The smallest entry has a key of one byte and a value of one; the smallest
     * tensor has an empty name, which is an error of its own. */
    enum { KV_LEAST = 8 + 1 + 4 + 1, TENSOR_LEAST = 8 + 4 + 4 + 8 };
    struct gguf_shard *s = &g->shards[no];
    struct cursor c = {.data = s->map.data, .size = s->map.size, .err = err};
    uint64_t n_tensors = 0, n_kv = 0;
    size_t first = g->n_tensors;

    return read_header(&c, &s->version, &n_tensors, &n_kv) &&
           check_count(&c, n_kv, KV_LEAST, "metadata entries") &&
           check_count(&c, n_tensors, TENSOR_LEAST, "tensors") &&
           read_kv(g, s, &c, n_kv) && index_keys(g, s, err) && read_alignment(s, err) &&
           check_count(&c, n_tensors, TENSOR_LEAST, "tensors") &&
           read_tensors(g, no, &c, n_tensors) && place_tensors(g, &c, first, s->align) &&
           check_overlaps(g, first, err);
}

/* gguf.c - opening a file or a split set, and looking things up in it. */
#include "gguf/gguf.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/reader.h"
#include "gguf/gguf_int.h"

/* ---- names ------------------------------------------------------------------------ */

int gguf_by_name(const struct gguf_ref *a, const struct gguf_ref *b)
{
    return strcmp(a->name, b->name);
}

int gguf_by_offset(const struct gguf_ref *a, const struct gguf_ref *b)
{
    return (a->offset > b->offset) - (a->offset < b->offset);
}

/* Lets refs[i] sink until the heap below it is in order again. */
static void sift(struct gguf_ref *refs, size_t i, size_t n,
                 int (*compare)(const struct gguf_ref *, const struct gguf_ref *))
{
    struct gguf_ref sinking = refs[i];

    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && compare(&refs[child], &refs[child + 1]) < 0) {
            child++;
        }
        if (compare(&sinking, &refs[child]) >= 0) {
            break;
        }
        refs[i] = refs[child];
    }
    refs[i] = sinking;
}

/* A heap sort: no memory, and no input makes it slow. */
void gguf_sort(struct gguf_ref *refs, size_t n,
               int (*compare)(const struct gguf_ref *, const struct gguf_ref *))
{
    for (size_t i = n / 2; i-- > 0;) {
        sift(refs, i, n, compare);
    }
    for (size_t end = n; end-- > 1;) {
        struct gguf_ref largest = refs[0];

        refs[0] = refs[end];
        refs[end] = largest;
        sift(refs, 0, end, compare);
    }
}

bool gguf_index_build(struct gguf_index *index, const char *what, slm_error *err)
{
    gguf_sort(index->refs, index->n, gguf_by_name);
    for (size_t i = 1; i < index->n; i++) {
        if (strcmp(index->refs[i - 1].name, index->refs[i].name) == 0) {
            return slm_fail(err, SLM_E_FORMAT, "%s %.100s appears twice", what,
                            index->refs[i].name);
        }
    }
    return true;
}

size_t gguf_index_find(const struct gguf_index *index, const char *name)
{
    size_t lo = 0, hi = index->n;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int order = strcmp(name, index->refs[mid].name);

        if (order == 0) {
            return index->refs[mid].i;
        }
        if (order < 0) {
            hi = mid;
        } else {
            lo = mid + 1;
        }
    }
    return SIZE_MAX;
}

/* ---- opening ------------------------------------------------------------------------ */

enum { ARENA_BLOCK = 32 << 10 };

/* Room for n shards, all of them empty. */
static struct gguf *set_new(int n, slm_error *err)
{
    struct gguf *g = mem_zalloc(1, sizeof *g);

    if (g == NULL) {
        slm_fail_nomem(err, "the file's directory");
        return NULL;
    }
    arena_init(&g->mem, ARENA_BLOCK, 0);
    g->shards = mem_zalloc((size_t)n, sizeof *g->shards);
    if (g->shards == NULL) {
        slm_fail_nomem(err, "the file's directory");
        gguf_close(g);
        return NULL;
    }
    return g;
}

void gguf_close(struct gguf *g)
{
    if (g == NULL) {
        return;
    }
    for (int i = 0; i < g->n_shards; i++) {
        file_map_close(&g->shards[i].map);
        mem_free(g->shards[i].kv);
    }
    mem_free(g->shards);
    mem_free(g->tensors);
    arena_deinit(&g->mem);
    mem_free(g);
}

/* Maps and parses the next shard. */
static bool add_shard(struct gguf *g, const char *path, slm_error *err)
{
    struct gguf_shard *s = &g->shards[g->n_shards];

    s->path = arena_strndup(&g->mem, path, strlen(path));
    if (s->path == NULL) {
        return slm_fail_nomem(err, "a file name");
    }
    if (!file_map_open(&s->map, path, err)) {
        return false;
    }
    g->n_shards++;
    return gguf_parse_shard(g, g->n_shards - 1, err) || slm_wrap(err, "%s", path);
}

static bool index_tensors(struct gguf *g, slm_error *err)
{
    g->names.refs = arena_alloc(&g->mem, g->n_tensors * sizeof *g->names.refs);
    if (g->names.refs == NULL) {
        return slm_fail_nomem(err, "the index of tensors");
    }
    g->names.n = g->n_tensors;
    for (size_t i = 0; i < g->n_tensors; i++) {
        g->names.refs[i] = (struct gguf_ref){.name = g->tensors[i].name, .i = i};
    }
    return gguf_index_build(&g->names, "tensor", err);
}

/* ---- split sets ----------------------------------------------------------------------- */

/* What a shard says about its set.  count is 1 for a file of its own. */
struct split {
    uint64_t no, count, n_tensors;
};

static bool split_key(const struct gguf_shard *s, const char *key, uint64_t max, uint64_t *out,
                      slm_error *err)
{
    const struct gguf_kv *kv = gguf_shard_find(s, key);

    return kv != NULL ? gguf_kv_u64(kv, 0, max, out, err)
                      : slm_fail(err, SLM_E_FORMAT, "one file of a split set, but key %s is missing",
                                 key);
}

static bool read_split(const struct gguf_shard *s, struct split *out, slm_error *err)
{
    *out = (struct split){.count = 1};
    if (gguf_shard_find(s, "split.count") == NULL) {
        return true;
    }
    if (!split_key(s, "split.count", GGUF_SHARDS_MAX, &out->count, err)) {
        return false;
    }
    if (out->count <= 1) {
        out->count = 1;
        return true;
    }
    return split_key(s, "split.no", out->count - 1, &out->no, err);
}

/* The name of shard `want`, in the arena; the given name must be that of shard `no`. */
static const char *shard_path(struct gguf *g, const char *path, const struct split *split,
                              uint64_t want, slm_error *err)
{
    char suffix[64];
    size_t n = strlen(path);
    int len = snprintf(suffix, sizeof suffix, "-%05d-of-%05d.gguf", (int)split->no + 1,
                       (int)split->count);

    if (n <= (size_t)len || strcmp(path + n - len, suffix) != 0) {
        slm_fail(err, SLM_E_FORMAT, "it is file %d of a set of %d, so its name must end in %s",
                 (int)split->no + 1, (int)split->count, suffix);
        slm_wrap(err, "%s", path);
        return NULL;
    }
    char *other = arena_strndup(&g->mem, path, n);

    if (other == NULL) {
        slm_fail_nomem(err, "a file name");
        return NULL;
    }
    snprintf(other + n - len, (size_t)len + 1, "-%05d-of-%05d.gguf", (int)want + 1,
             (int)split->count);
    return other;
}

/* Opens shards 1.. of the set whose first one is open, and checks that they belong
 * together. */
static bool add_rest(struct gguf *g, const struct split *split, slm_error *err)
{
    const char *first = g->shards[0].path;

    for (uint64_t i = 1; i < split->count; i++) {
        const char *path = shard_path(g, first, split, i, err);
        struct split own;

        if (path == NULL || !add_shard(g, path, err)) {
            return false;
        }
        if (!read_split(&g->shards[i], &own, err)) {
            return slm_wrap(err, "%s", path);
        }
        if (own.no != i || own.count != split->count) {
            slm_fail(err, SLM_E_FORMAT, "says it is file %d of %d, but its name says %d of %d",
                     (int)own.no + 1, (int)own.count, (int)i + 1, (int)split->count);
            return slm_wrap(err, "%s", path);
        }
    }
    return true;
}

static bool check_total(const struct gguf *g, slm_error *err)
{
    uint64_t total;

    if (!split_key(&g->shards[0], "split.tensors.count", GGUF_COUNT_MAX, &total, err)) {
        return slm_wrap(err, "%s", g->shards[0].path);
    }
    if (total != g->n_tensors) {
        slm_fail(err, SLM_E_FORMAT, "the set should have %llu tensors, but its files have %zu",
                 (unsigned long long)total, g->n_tensors);
        return slm_wrap(err, "%s", g->shards[0].path);
    }
    return true;
}

/* Opens one file and tells what set it belongs to; room is made for a whole set. */
static struct gguf *open_one(const char *path, struct split *split, slm_error *err)
{
    struct gguf *g = set_new(GGUF_SHARDS_MAX, err);

    if (g == NULL) {
        return NULL;
    }
    if (!add_shard(g, path, err)) {
        gguf_close(g);
        return NULL;
    }
    if (!read_split(&g->shards[0], split, err)) {
        slm_wrap(err, "%s", path);
        gguf_close(g);
        return NULL;
    }
    return g;
}

/* Replaces g, a later shard, by the first one of its set. */
static struct gguf *open_first(struct gguf *g, struct split *split, slm_error *err)
{
    const struct split given = *split;
    const char *path = shard_path(g, g->shards[0].path, &given, 0, err);
    struct gguf *first = path != NULL ? open_one(path, split, err) : NULL;

    if (first != NULL && (split->no != 0 || split->count != given.count)) {
        slm_fail(err, SLM_E_FORMAT, "says it is file %d of %d, but its name says 1 of %d",
                 (int)split->no + 1, (int)split->count, (int)given.count);
        slm_wrap(err, "%s", path);
        gguf_close(first);
        first = NULL;
    }
    gguf_close(g);
    return first;
}

struct gguf *gguf_open(const char *path, slm_error *err)
{
    struct split split;
    struct gguf *g = open_one(path, &split, err);

    if (g != NULL && split.no != 0) {
        g = open_first(g, &split, err);
    }
    if (g == NULL) {
        return NULL;
    }
    if (split.count > 1 && (!add_rest(g, &split, err) || !check_total(g, err))) {
        gguf_close(g);
        return NULL;
    }
    if (!index_tensors(g, err)) {
        slm_wrap(err, "%s", g->shards[0].path);
        gguf_close(g);
        return NULL;
    }
    return g;
}

struct gguf *gguf_open_mem(const void *data, size_t n, slm_error *err)
{
    struct split split;
    struct gguf *g = set_new(1, err);

    if (g == NULL) {
        return NULL;
    }
    g->shards[0] = (struct gguf_shard){.path = "", .map = {.data = data, .size = n}};
    g->n_shards = 1;
    bool ok = gguf_parse_shard(g, 0, err) && read_split(&g->shards[0], &split, err);

    if (ok && split.count > 1) {
        ok = slm_fail(err, SLM_E_UNSUPPORTED, "one file of a split set; open it by its path");
    }
    if (!ok || !index_tensors(g, err)) {
        gguf_close(g);
        return NULL;
    }
    return g;
}

/* ---- looking things up --------------------------------------------------------------------- */

uint32_t gguf_version(const struct gguf *g)
{
    return g->shards[0].version;
}

uint64_t gguf_file_bytes(const struct gguf *g)
{
    uint64_t n = 0;

    for (int i = 0; i < g->n_shards; i++) {
        n += g->shards[i].map.size;
    }
    return n;
}

uint64_t gguf_identity(const struct gguf *g)
{
    enum { SAMPLE = 64 };  /* bytes of each tensor: models that were trained on differ early */
    uint64_t h = HASH_INIT;

    for (int no = 0; no < g->n_shards; no++) {
        const struct file_map *map = &g->shards[no].map;
        uint64_t front = map->size;
        for (size_t i = 0; i < g->n_tensors; i++) {
            const struct gguf_tensor *t = &g->tensors[i];
            front = t->shard == no && t->offset < front ? t->offset : front;
        }
        h = hash_bytes(h, map->data, (size_t)front);
        h = hash_bytes(h, &map->size, sizeof map->size);
    }
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        h = hash_bytes(h, t->data, t->bytes < SAMPLE ? (size_t)t->bytes : SAMPLE);
    }
    return h;
}

const char *gguf_path(const struct gguf *g)
{
    return g->shards[0].path;
}

int gguf_n_shards(const struct gguf *g)
{
    return g->n_shards;
}

const char *gguf_shard_path(const struct gguf *g, int shard)
{
    assert(shard >= 0 && shard < g->n_shards);
    return g->shards[shard].path;
}

size_t gguf_n_kv(const struct gguf *g)
{
    return g->shards[0].n_kv;
}

const struct gguf_kv *gguf_kv_at(const struct gguf *g, size_t i)
{
    assert(i < g->shards[0].n_kv);
    return &g->shards[0].kv[i];
}

const struct gguf_kv *gguf_shard_find(const struct gguf_shard *s, const char *key)
{
    size_t i = gguf_index_find(&s->keys, key);

    return i != SIZE_MAX ? &s->kv[i] : NULL;
}

const struct gguf_kv *gguf_find(const struct gguf *g, const char *key)
{
    return gguf_shard_find(&g->shards[0], key);
}

size_t gguf_n_tensors(const struct gguf *g)
{
    return g->n_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i)
{
    assert(i < g->n_tensors);
    return &g->tensors[i];
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name)
{
    size_t i = gguf_index_find(&g->names, name);

    return i != SIZE_MAX ? &g->tensors[i] : NULL;
}

void gguf_release(const struct gguf *g, const struct gguf_tensor *t, size_t begin, size_t n)
{
    const struct file_map *map = &g->shards[t->shard].map;

    if (map->base == NULL) {
        return;  /* memory of the caller, whose content would be lost */
    }
    /* Whole pages only: the first and the last may belong to neighbours too. */
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t from = align_up(t->offset + begin, page), to = (t->offset + begin + n) & ~(page - 1);

    if (from < to) {
        madvise((char *)map->base + from, to - from, MADV_DONTNEED);
    }
}

bool gguf_is_mapped(const struct gguf *g)
{
    return g->shards[0].map.base != NULL;
}

struct reader *gguf_reader(const struct gguf *g, int shard, slm_error *err)
{
    assert(shard >= 0 && shard < g->n_shards);
    return reader_open(g->shards[shard].path, &g->shards[shard].map, err);
}

/* ---- typed reads ------------------------------------------------------------------------------ */

static bool is_signed(enum gguf_type elem)
{
    return elem == GGUF_I8 || elem == GGUF_I16 || elem == GGUF_I32 || elem == GGUF_I64;
}

int64_t gguf_int_at(const struct gguf_kv *kv, uint64_t i)
{
    assert(i < kv->n && (gguf_is_int(kv->elem) || kv->elem == GGUF_BOOL));
    size_t n = gguf_type_bytes(kv->elem);
    uint64_t v = gguf_load(kv->data + i * n, n);

    if (is_signed(kv->elem) && n < 8 && (v >> (8 * n - 1) & 1) != 0) {
        v |= ~(uint64_t)0 << (8 * n);
    }
    return (int64_t)v;
}

double gguf_float_at(const struct gguf_kv *kv, uint64_t i)
{
    assert(i < kv->n && gguf_is_float(kv->elem));
    if (kv->elem == GGUF_F64) {
        uint64_t bits = gguf_load(kv->data + i * 8, 8);
        double v;

        memcpy(&v, &bits, sizeof v);
        return v;
    }
    uint32_t bits = (uint32_t)gguf_load(kv->data + i * 4, 4);
    float v;

    memcpy(&v, &bits, sizeof v);
    return v;
}

/* Sets the error for a value that is not what the reader wants. */
static bool fail_kind(const struct gguf_kv *kv, const char *want, slm_error *err)
{
    bool array = kv->type == GGUF_ARR;

    return slm_fail(err, SLM_E_FORMAT, "key %.100s: is %s%s, must be %s", kv->key,
                    array ? "an array of " : "", gguf_type_name(kv->elem), want);
}

bool gguf_kv_u64(const struct gguf_kv *kv, uint64_t min, uint64_t max, uint64_t *out,
                 slm_error *err)
{
    if (!gguf_is_int(kv->type)) {
        return fail_kind(kv, "an integer", err);
    }
    int64_t v = gguf_int_at(kv, 0);
    bool negative = is_signed(kv->type) && v < 0;

    if (negative || (uint64_t)v < min || (uint64_t)v > max) {
        return slm_fail(err, SLM_E_FORMAT, "key %.100s: %s%llu is out of range; %llu to %llu are "
                        "possible", kv->key, negative ? "-" : "",
                        negative ? 0 - (unsigned long long)v : (unsigned long long)v,
                        (unsigned long long)min, (unsigned long long)max);
    }
    *out = (uint64_t)v;
    return true;
}

bool gguf_get_u64(const struct gguf *g, const char *key, uint64_t min, uint64_t max, uint64_t *out,
                  slm_error *err)
{
    const struct gguf_kv *kv = gguf_find(g, key);

    return kv == NULL || gguf_kv_u64(kv, min, max, out, err);
}

bool gguf_get_f64(const struct gguf *g, const char *key, double *out, slm_error *err)
{
    const struct gguf_kv *kv = gguf_find(g, key);

    if (kv == NULL) {
        return true;
    }
    if (!gguf_is_float(kv->type)) {
        return fail_kind(kv, "f32 or f64", err);
    }
    *out = gguf_float_at(kv, 0);
    return true;
}

bool gguf_get_bool(const struct gguf *g, const char *key, bool *out, slm_error *err)
{
    const struct gguf_kv *kv = gguf_find(g, key);

    if (kv == NULL) {
        return true;
    }
    if (kv->type != GGUF_BOOL) {
        return fail_kind(kv, "bool", err);
    }
    *out = gguf_int_at(kv, 0) != 0;
    return true;
}

bool gguf_get_str(const struct gguf *g, const char *key, struct gguf_str *out, slm_error *err)
{
    const struct gguf_kv *kv = gguf_find(g, key);

    if (kv == NULL) {
        return true;
    }
    if (kv->type != GGUF_STR) {
        return fail_kind(kv, "str", err);
    }
    *out = kv->str[0];
    return true;
}

/* gguf_int.h - what the files of this folder share. */
#ifndef GGUF_INT_H
#define GGUF_INT_H

#include "base/file.h"
#include "base/mem.h"
#include "gguf/gguf.h"

/* Limits of the format and of common sense; the reader checks them and the writer
 * keeps them. */
enum {
    GGUF_KEY_MAX = 65535,           /* bytes of a key */
    GGUF_NAME_MAX = 63,             /* bytes of a tensor name */
    GGUF_DEFAULT_ALIGN = 32,
    GGUF_ALIGN_MAX = 1 << 30,
    GGUF_COUNT_MAX = INT32_MAX,     /* keys, tensors */
    GGUF_LEN_MAX = 1 << 30,         /* bytes of a string, elements of an array */
    GGUF_SHARDS_MAX = 999,
};

/* ---- names ------------------------------------------------------------------ */

/* Names in sorted order, for look-up and to find duplicates.  Sorted rather than
 * hashed, so that no choice of names makes it slow. */
struct gguf_ref {
    const char *name;
    uint64_t offset;
    size_t i;
};

struct gguf_index {
    struct gguf_ref *refs;
    size_t n;
};

/* Sorts in place, n log n in the worst case. */
void gguf_sort(struct gguf_ref *refs, size_t n,
               int (*compare)(const struct gguf_ref *, const struct gguf_ref *));
int gguf_by_name(const struct gguf_ref *a, const struct gguf_ref *b);
int gguf_by_offset(const struct gguf_ref *a, const struct gguf_ref *b);

/* Sorts the refs by name; a name that appears twice is an error ("WHAT NAME appears
 * twice"). */
bool gguf_index_build(struct gguf_index *index, const char *what, slm_error *err);
/* The ref's i, or SIZE_MAX. */
size_t gguf_index_find(const struct gguf_index *index, const char *name);

/* ---- an opened set ------------------------------------------------------------ */

struct gguf_shard {
    struct file_map map;   /* base is NULL for memory */
    const char *path;      /* "" for memory */
    uint32_t version;
    uint32_t align;
    struct gguf_kv *kv;
    size_t n_kv;
    struct gguf_index keys;
};

struct gguf {
    struct arena mem;             /* names, strings' addresses */
    struct gguf_shard *shards;    /* only the first one's metadata counts */
    int n_shards;
    struct gguf_tensor *tensors;  /* of all shards */
    size_t n_tensors;
    struct gguf_index names;
};

/* Reads the header, metadata and tensor directory of shard `no`, whose map is set,
 * and appends its tensors. */
bool gguf_parse_shard(struct gguf *g, int no, slm_error *err);

const struct gguf_kv *gguf_shard_find(const struct gguf_shard *s, const char *key);

/* gguf_get_u64 for an entry that exists. */
bool gguf_kv_u64(const struct gguf_kv *kv, uint64_t min, uint64_t max, uint64_t *out,
                 slm_error *err);

/* ---- bytes -------------------------------------------------------------------- */

/* Bytes of a scalar; 0 for strings, arrays and unknown types. */
size_t gguf_type_bytes(uint32_t type);

/* Little-endian integer of n bytes, unaligned. */
static inline uint64_t gguf_load(const uint8_t *p, size_t n)
{
    uint64_t v = 0;

    for (size_t i = 0; i < n; i++) {
        v |= (uint64_t)p[i] << (8 * i);
    }
    return v;
}

#endif

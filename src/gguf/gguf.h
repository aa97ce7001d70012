/* gguf.h - the container: metadata, tensor directory, split files.
 *
 * A file is mapped and checked completely when it is opened: every length,
 * offset and type, with the rules of the format's specification.  After that
 * all reads are in bounds.  Strings and data point into the mapping and live
 * until gguf_close; file.h says what happens when somebody shortens the file
 * meanwhile.
 *
 * Versions 2 and 3, little-endian.  Tensors may lie in the file in any order and
 * with gaps, but must not overlap.  Stricter than the format in what no producer
 * writes: no empty tensors, no NUL byte in a key, one level of arrays. */
#ifndef GGUF_H
#define GGUF_H

#include "base/error.h"

enum gguf_type {
    GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL,
    GGUF_STR, GGUF_ARR, GGUF_U64, GGUF_I64, GGUF_F64, GGUF_TYPE_COUNT
};

/* "u32", "str", ... */
const char *gguf_type_name(enum gguf_type type);

struct gguf_str {
    const char *s;  /* not NUL-terminated */
    size_t n;
};

struct gguf_kv {
    const char *key;          /* NUL-terminated copy */
    enum gguf_type type;      /* GGUF_ARR for an array */
    enum gguf_type elem;      /* element type; = type for a scalar */
    uint64_t n;               /* elements; 1 for a scalar */
    const uint8_t *data;      /* packed elements, possibly unaligned; NULL for strings */
    const struct gguf_str *str; /* strings */
};

/* A tensor type of the container: what its id means in bytes. */
struct gguf_tensor_type {
    const char *name;    /* "Q4_K" */
    int block;           /* elements in a block */
    int block_bytes;
};

/* NULL for unknown and removed ids. */
const struct gguf_tensor_type *gguf_tensor_type(uint32_t id);

/* Why gguf_tensor_type has nothing for this id: what it was or whose it is, and
 * what to do about it. */
void gguf_refuse_type(uint32_t id, char *out, size_t cap);

struct gguf_tensor {
    const char *name;         /* NUL-terminated */
    uint32_t type;            /* id, known */
    int n_dims;               /* 1..4 */
    int64_t ne[4];            /* fastest first, 1 where missing */
    const uint8_t *data;      /* may be unaligned */
    size_t bytes;
    uint64_t offset;          /* of the data in its shard's file */
    int shard;                /* 0 is the first */
};

struct gguf;

/* Opens a file; if it is one of a split set, all its shards (they are found by
 * name, and any of them may be given).  Errors begin with the path of the file at
 * fault. */
struct gguf *gguf_open(const char *path, slm_error *err);

/* The same from memory that stays valid until gguf_close; no split files.  The
 * messages name no file. */
struct gguf *gguf_open_mem(const void *data, size_t n, slm_error *err);
void gguf_close(struct gguf *g);

uint32_t gguf_version(const struct gguf *g);
uint64_t gguf_file_bytes(const struct gguf *g);  /* all shards */
const char *gguf_path(const struct gguf *g);     /* "" for memory */
int gguf_n_shards(const struct gguf *g);         /* 1 for a file that is not split */
const char *gguf_shard_path(const struct gguf *g, int shard);

/* Tells files apart: a hash of their sizes, metadata, tensor directories and the beginning of
 * every tensor. */
uint64_t gguf_identity(const struct gguf *g);

size_t gguf_n_kv(const struct gguf *g);
const struct gguf_kv *gguf_kv_at(const struct gguf *g, size_t i);
const struct gguf_kv *gguf_find(const struct gguf *g, const char *key);

size_t gguf_n_tensors(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i);
const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name);

/* Typed reads.  Each leaves *out alone and returns true when the key is missing;
 * a value of another kind or out of range is an error that names the key.
 * Integers of any width are read through the widest; f32 and f64 alike. */
bool gguf_get_u64(const struct gguf *g, const char *key, uint64_t min, uint64_t max, uint64_t *out,
                  slm_error *err);
bool gguf_get_f64(const struct gguf *g, const char *key, double *out, slm_error *err);
bool gguf_get_bool(const struct gguf *g, const char *key, bool *out, slm_error *err);
bool gguf_get_str(const struct gguf *g, const char *key, struct gguf_str *out, slm_error *err);

/* Element i of an integer, bool or float array or scalar, widened.  i must be in range and
 * the kind right (assert). */
int64_t gguf_int_at(const struct gguf_kv *kv, uint64_t i);
double gguf_float_at(const struct gguf_kv *kv, uint64_t i);

/* Whether elem is an integer or a float type (bool is neither). */
bool gguf_is_int(enum gguf_type elem);
bool gguf_is_float(enum gguf_type elem);

/* Gives the mapped pages of n bytes of a tensor, from byte `begin` on, back; they are
 * read again from the file when touched.  Does nothing to memory of the caller. */
void gguf_release(const struct gguf *g, const struct gguf_tensor *t, size_t begin, size_t n);

struct reader;

/* A reader of one shard past the mapping (base/reader.h); NULL and *err on failure, also for
 * memory of the caller, which gguf_is_mapped tells from a file. */
bool gguf_is_mapped(const struct gguf *g);
struct reader *gguf_reader(const struct gguf *g, int shard, slm_error *err);

/* ---- writing ------------------------------------------------------------------ */

struct gguf_writer;

/* Collects metadata and tensors in order; failures (no memory, a name twice, a
 * shape that does not fit the type) are sticky and reported by gguf_write_file and
 * gguf_write_mem.  Data of tensors is borrowed until then.  An entry
 * general.alignment is obeyed. */
struct gguf_writer *gguf_writer_new(void);  /* NULL without memory */
void gguf_writer_free(struct gguf_writer *w);
void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t v);
void gguf_put_f32(struct gguf_writer *w, const char *key, float v);
void gguf_put_bool(struct gguf_writer *w, const char *key, bool v);
void gguf_put_str(struct gguf_writer *w, const char *key, const char *s, size_t n);
/* elem: any fixed-width type; data packed little-endian. */
void gguf_put_array(struct gguf_writer *w, const char *key, enum gguf_type elem, const void *data,
                    uint64_t n);
void gguf_put_strs(struct gguf_writer *w, const char *key, const struct gguf_str *strs, uint64_t n);
/* A copy of an entry of another file. */
void gguf_put_kv(struct gguf_writer *w, const struct gguf_kv *kv);
void gguf_put_tensor(struct gguf_writer *w, const char *name, uint32_t type, int n_dims,
                     const int64_t *ne, const void *data);
bool gguf_write_file(struct gguf_writer *w, const char *path, slm_error *err);
/* The same with data that does not exist yet: fn appends the bytes of tensor i, all of them, to
 * the file with file_out_add (base/file.h).  It is called in order. */
struct file_out;
typedef bool gguf_data_fn(void *arg, size_t i, struct file_out *out, slm_error *err);
bool gguf_write_stream(struct gguf_writer *w, const char *path, gguf_data_fn *fn, void *arg,
                       slm_error *err);
/* The file's bytes in memory (free with mem_free). */
uint8_t *gguf_write_mem(struct gguf_writer *w, size_t *n, slm_error *err);

#endif

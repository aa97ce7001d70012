/* mem.h - checked allocation, page memory and arenas.
 *
 * All heap memory of the library comes from here, so that tests can let the
 * n-th allocation fail. */
#ifndef MEM_H
#define MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* a * b or a + b in *out; false when it does not fit. */
static inline bool size_mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool size_add(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* x rounded up to a multiple of align, a power of two; x must not be near SIZE_MAX. */
static inline size_t align_up(size_t x, size_t align)
{
    return (x + align - 1) & ~(align - 1);
}

/* n * size bytes; NULL when that overflows or memory is out.  n * size may be 0
 * (a unique pointer comes back). */
void *mem_alloc(size_t n, size_t size);
void *mem_zalloc(size_t n, size_t size);
/* p stays valid when NULL comes back. */
void *mem_realloc(void *p, size_t n, size_t size);
/* NULL is fine. */
void mem_free(void *p);

/* Copy of n bytes with a NUL behind. */
char *mem_strndup(const char *s, size_t n);

/* 64-byte aligned, for SIMD scratch; free with mem_free. */
void *mem_alloc_aligned(size_t bytes);

/* Zeroed anonymous pages, 2 MiB aligned and advised to be huge. */
void *mem_pages(size_t bytes);
void mem_pages_free(void *p, size_t bytes);
/* Gives the RAM behind a stretch of such pages back; it may read as zero afterwards. */
void mem_pages_drop(void *p, size_t bytes);

/* For tests: the n-th allocation from now fails, once; 0 never.  Process-wide. */
void mem_fail_after(long n);
/* Allocations made so far by this process. */
long mem_count(void);

/* ---- arena: many allocations, freed together ---------------------------- */

struct arena {
    struct arena_block *head;
    size_t block_bytes;  /* size of a new block */
    size_t used_bytes;   /* sum of what was handed out since init */
    size_t max_bytes;    /* limit on used_bytes; 0: none */
    bool failed;         /* sticky: an allocation did not succeed */
};

void arena_init(struct arena *a, size_t block_bytes, size_t max_bytes);
void arena_deinit(struct arena *a);

/* 64-byte aligned when n >= 64, else 16.  NULL (and failed) when memory is out. */
void *arena_alloc(struct arena *a, size_t n);
void *arena_zalloc(struct arena *a, size_t n);
char *arena_strndup(struct arena *a, const char *s, size_t n);

#endif

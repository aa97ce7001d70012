/* mem.c - checked allocation, fault injection, page memory and arenas.
 *
 * Heap blocks are those of malloc: mem_free is free, whichever call made the
 * block.  Every call counts itself in one relaxed atomic, which costs nothing
 * beside the allocation and lets tests fail any one of them in any build. */
#include "base/mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static _Atomic long n_allocs;
static _Atomic long fail_at;  /* number of the call that fails; 0: none */

/* Counts a call; false when it is the one that shall fail. */
static bool may_allocate(void)
{
    long n = atomic_fetch_add_explicit(&n_allocs, 1, memory_order_relaxed) + 1;

    return n != atomic_load_explicit(&fail_at, memory_order_relaxed);
}

void mem_fail_after(long n)
{
    atomic_store(&fail_at, n > 0 ? atomic_load(&n_allocs) + n : 0);
}

long mem_count(void)
{
    return atomic_load_explicit(&n_allocs, memory_order_relaxed);
}

/* malloc(0) may return NULL, which would look like a failure. */
static bool total_bytes(size_t n, size_t size, size_t *bytes)
{
    if (!size_mul(n, size, bytes)) {
        return false;
    }
    if (*bytes == 0) {
        *bytes = 1;
    }
    return true;
}

void *mem_alloc(size_t n, size_t size)
{
    size_t bytes;

    return total_bytes(n, size, &bytes) && may_allocate() ? malloc(bytes) : NULL;
}

void *mem_zalloc(size_t n, size_t size)
{
    size_t bytes;

    return total_bytes(n, size, &bytes) && may_allocate() ? calloc(1, bytes) : NULL;
}

void *mem_realloc(void *p, size_t n, size_t size)
{
    size_t bytes;

    return total_bytes(n, size, &bytes) && may_allocate() ? realloc(p, bytes) : NULL;
}

void mem_free(void *p)
{
    free(p);
}

char *mem_strndup(const char *s, size_t n)
{
    size_t bytes;
    char *copy = size_add(n, 1, &bytes) ? mem_alloc(bytes, 1) : NULL;

    if (copy != NULL) {
        memcpy(copy, s, n);
        copy[n] = '\0';
    }
    return copy;
}

void *mem_alloc_aligned(size_t bytes)
{
    if (bytes > SIZE_MAX - 64 || !may_allocate()) {
        return NULL;
    }
    return aligned_alloc(64, align_up(bytes > 0 ? bytes : 1, 64));
}

/* ---- pages ---------------------------------------------------------------- */

enum { HUGE_BYTES = 2 << 20 };

static size_t page_round(size_t bytes)
{
    return align_up(bytes > 0 ? bytes : 1, (size_t)sysconf(_SC_PAGESIZE));
}

void *mem_pages(size_t bytes)
{
    if (bytes > SIZE_MAX / 2 || !may_allocate()) {
        return NULL;
    }
    /* Map more than needed and give back what lies around the aligned part. */
    size_t want = page_round(bytes);
    size_t mapped = want + HUGE_BYTES;
    char *raw = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (raw == MAP_FAILED) {
        return NULL;
    }
    char *p = (char *)align_up((uintptr_t)raw, HUGE_BYTES);
    size_t front = (size_t)(p - raw);
    size_t back = mapped - front - want;

    if (front > 0) {
        munmap(raw, front);
    }
    if (back > 0) {
        munmap(p + want, back);
    }
    madvise(p, want, MADV_HUGEPAGE);
    return p;
}

void mem_pages_free(void *p, size_t bytes)
{
    if (p != NULL) {
        munmap(p, page_round(bytes));
    }
}

void mem_pages_drop(void *p, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *from = (char *)align_up((uintptr_t)p, page);
    const size_t skip = (size_t)(from - (char *)p);

    if (bytes >= skip + page) {
        madvise(from, (bytes - skip) / page * page, MADV_DONTNEED);
    }
}

/* ---- arena ---------------------------------------------------------------- */

/* The header takes a cache line, so that what follows is aligned like it. */
struct arena_block {
    _Alignas(64) struct arena_block *next;
    size_t used, cap;  /* of the bytes behind the header */
};

static char *block_data(struct arena_block *b)
{
    return (char *)(b + 1);
}

void arena_init(struct arena *a, size_t block_bytes, size_t max_bytes)
{
    *a = (struct arena){.block_bytes = block_bytes, .max_bytes = max_bytes};
}

void arena_deinit(struct arena *a)
{
    struct arena_block *b = a->head;

    while (b != NULL) {
        struct arena_block *next = b->next;

        mem_free(b);
        b = next;
    }
    *a = (struct arena){0};
}

static struct arena_block *block_new(size_t cap)
{
    size_t bytes;
    struct arena_block *b =
        size_add(cap, sizeof *b, &bytes) ? mem_alloc_aligned(bytes) : NULL;

    if (b != NULL) {
        b->next = NULL;
        b->used = 0;
        b->cap = cap;
    }
    return b;
}

/* A block with room for n bytes at any alignment.  One that is larger than usual
 * goes behind the head, whose rest stays in use. */
static struct arena_block *block_with_room(struct arena *a, size_t n)
{
    struct arena_block *head = a->head;

    if (head != NULL && align_up(head->used, 64) <= head->cap &&
        n <= head->cap - align_up(head->used, 64)) {
        return head;
    }
    struct arena_block *b = block_new(n > a->block_bytes ? n : a->block_bytes);

    if (b == NULL) {
        return NULL;
    }
    if (head != NULL && n > a->block_bytes) {
        b->next = head->next;
        head->next = b;
    } else {
        b->next = head;
        a->head = b;
    }
    return b;
}

void *arena_alloc(struct arena *a, size_t n)
{
    bool allowed = a->max_bytes == 0 || (a->used_bytes <= a->max_bytes &&
                                         n <= a->max_bytes - a->used_bytes);
    struct arena_block *b = allowed && !a->failed ? block_with_room(a, n) : NULL;

    if (b == NULL) {
        a->failed = true;
        return NULL;
    }
    size_t start = align_up(b->used, n >= 64 ? 64 : 16);

    b->used = start + n;
    a->used_bytes += n;
    return block_data(b) + start;
}

void *arena_zalloc(struct arena *a, size_t n)
{
    void *p = arena_alloc(a, n);

    if (p != NULL) {
        memset(p, 0, n);
    }
    return p;
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
    size_t bytes;
    char *copy = NULL;

    if (size_add(n, 1, &bytes)) {
        copy = arena_alloc(a, bytes);
    } else {
        a->failed = true;
    }
    if (copy != NULL) {
        memcpy(copy, s, n);
        copy[n] = '\0';
    }
    return copy;
}

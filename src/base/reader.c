/* reader.c - direct reads, with buffered ones in their place where they are refused. */
#include "base/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct reader {
    int direct;          /* opened for direct reads, or -1 */
    int buffered;
    atomic_bool refused; /* direct reads were refused */
    char *path;
};

/* ---- faults of tests ---------------------------------------------------------------- */

static _Atomic size_t fault_bytes;
static atomic_bool fault_direct;
static atomic_long fault_after;

void reader_set_faults(const struct reader_faults *faults)
{
    atomic_store(&fault_bytes, faults->bytes);
    atomic_store(&fault_direct, faults->refuse_direct);
    atomic_store(&fault_after, faults->fail_after);
}

/* pread with the faults of tests. */
static ssize_t read_at(int fd, bool direct, void *to, size_t n, uint64_t offset)
{
    const size_t most = atomic_load_explicit(&fault_bytes, memory_order_relaxed);

    if (direct && atomic_load_explicit(&fault_direct, memory_order_relaxed)) {
        errno = EINVAL;
        return -1;
    }
    if (atomic_load_explicit(&fault_after, memory_order_relaxed) > 0 &&
        atomic_fetch_sub(&fault_after, 1) == 1) {
        errno = EIO;
        return -1;
    }
    return pread(fd, to, most > 0 && most < n ? most : n, (off_t)offset);
}

static bool fail_errno(const struct reader *r, slm_error *err, const char *what)
{
    char text[128];

    return slm_fail(err, SLM_E_IO, "%s: %s: %s", r->path, what,
                    strerror_r(errno, text, sizeof text));
}

/* ---- opening ------------------------------------------------------------------------ */

struct reader *reader_open(const char *path, const struct file_map *map, slm_error *err)
{
    struct reader *r = mem_zalloc(1, sizeof *r);
    struct stat st;

    if (!r) {
        slm_fail_nomem(err, "a file to read");
        return NULL;
    }
    r->direct = r->buffered = -1;
    r->path = mem_strndup(path, strlen(path));
    if (!r->path) {
        slm_fail_nomem(err, "a file to read");
        goto fail;
    }
    r->buffered = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (r->buffered < 0 || fstat(r->buffered, &st) != 0) {
        fail_errno(r, err, "cannot be opened");
        goto fail;
    }
    if (st.st_dev != map->device || st.st_ino != map->inode || (size_t)st.st_size != map->size) {
        slm_fail(err, SLM_E_IO, "%s: has been replaced or changed while it was being loaded; try "
                 "again", path);
        goto fail;
    }
    r->direct = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_DIRECT);
    return r;

fail:
    reader_close(r);
    return NULL;
}

void reader_close(struct reader *r)
{
    if (!r) {
        return;
    }
    if (r->direct >= 0) {
        close(r->direct);
    }
    if (r->buffered >= 0) {
        close(r->buffered);
    }
    mem_free(r->path);
    mem_free(r);
}

/* ---- reading ------------------------------------------------------------------------ */

/* The bytes read of [offset, offset + n) into `to`, fewer at the end of the file, or -1. */
static ssize_t read_all(struct reader *r, bool direct, uint8_t *to, size_t n, uint64_t offset)
{
    size_t done = 0;

    while (done < n) {
        const ssize_t got = read_at(direct ? r->direct : r->buffered, direct, to + done, n - done,
                                    offset + done);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return -1;
        }
        done += (size_t)got;
        /* A direct read cannot go on from inside a sector, which mostly is the file's end. */
        if (got == 0 || (direct && done % READER_ALIGN != 0)) {
            break;
        }
    }
    return (ssize_t)done;
}

/* Reads [begin, begin + n) of which at least `need` bytes must be there. */
static ssize_t read_range(struct reader *r, uint8_t *to, size_t n, size_t need, uint64_t begin)
{
    if (r->direct >= 0 && !atomic_load_explicit(&r->refused, memory_order_relaxed)) {
        const ssize_t got = read_all(r, true, to, n, begin);
        if (got < 0 && errno != EINVAL) {
            return -1;
        }
        if (got >= (ssize_t)need) {
            return got;
        }
        if (got < 0) {
            atomic_store_explicit(&r->refused, true, memory_order_relaxed);
        }
    }
    const ssize_t got = read_all(r, false, to, n, begin);
    posix_fadvise(r->buffered, (off_t)begin, (off_t)n, POSIX_FADV_DONTNEED);
    return got;
}

const uint8_t *reader_read(struct reader *r, uint64_t offset, size_t n, void *room, slm_error *err)
{
    const uint64_t begin = offset & ~(uint64_t)(READER_ALIGN - 1);
    const size_t skip = (size_t)(offset - begin);
    const ssize_t got = read_range(r, room, align_up(skip + n, READER_ALIGN), skip + n, begin);

    if (got < 0) {
        fail_errno(r, err, "cannot be read");
        return NULL;
    }
    if ((size_t)got < skip + n) {
        slm_fail(err, SLM_E_IO, "%s: ends at byte %llu, but the model needs more; was it "
                 "overwritten while in use?", r->path, (unsigned long long)(begin + (size_t)got));
        return NULL;
    }
    return (const uint8_t *)room + skip;
}

void reader_drop_cache(struct reader *r)
{
    posix_fadvise(r->buffered, 0, 0, POSIX_FADV_DONTNEED);
}

/* file.c - mapped files, whole-file reads, atomic writes.
 *
 * Every message begins with the path.  Descriptors are closed on exec and never
 * outlive a call: a mapping keeps the file alive by itself. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

/* Sets *err to "PATH: what: reason of errno" and returns false. */
static bool fail_errno(slm_error *err, const char *path, const char *what)
{
    char text[128];
    const char *reason = strerror_r(errno, text, sizeof text);

    slm_fail(err, SLM_E_IO, "%s: %s", what, reason);
    return slm_wrap(err, "%s", path);
}

static bool fail_path(slm_error *err, const char *path, const char *reason)
{
    slm_fail(err, SLM_E_IO, "%s", reason);
    return slm_wrap(err, "%s", path);
}

/* ---- mapping --------------------------------------------------------------- */

static bool map_fd(struct file_map *m, int fd, const char *path, slm_error *err)
{
    struct stat st;

    if (fstat(fd, &st) != 0) {
        return fail_errno(err, path, "cannot read its size");
    }
    if (S_ISDIR(st.st_mode)) {
        return fail_path(err, path, "is a directory, not a file");
    }
    if (!S_ISREG(st.st_mode)) {
        return fail_path(err, path, "is not a regular file");
    }
    if (st.st_size <= 0) {
        return fail_path(err, path, "is empty");
    }
    if ((uintmax_t)st.st_size > SIZE_MAX) {
        return fail_path(err, path, "is too large to be mapped");
    }
    void *base = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);

    if (base == MAP_FAILED) {
        return fail_errno(err, path, "cannot be mapped");
    }
    m->base = base;
    m->data = base;
    m->size = (size_t)st.st_size;
    return true;
}

bool file_map_open(struct file_map *m, const char *path, slm_error *err)
{
    *m = (struct file_map){0};

    /* Without O_NONBLOCK, opening a FIFO would wait for a writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0) {
        return fail_errno(err, path, "cannot be opened");
    }
    bool ok = map_fd(m, fd, path, err);

    close(fd);
    return ok;
}

void file_map_close(struct file_map *m)
{
    if (m->base != NULL) {
        munmap(m->base, m->size);
    }
    *m = (struct file_map){0};
}

/* ---- reading --------------------------------------------------------------- */

static bool read_fd(int fd, const char *path, size_t max, struct buf *b, slm_error *err)
{
    char chunk[16384];
    size_t total = 0;

    for (;;) {
        ssize_t n = read(fd, chunk, sizeof chunk);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return fail_errno(err, path, "cannot be read");
        }
        if (n == 0) {
            return true;
        }
        if ((size_t)n > max - total) {
            slm_fail(err, SLM_E_IO, "is larger than the limit of %zu bytes", max);
            return slm_wrap(err, "%s", path);
        }
        total += (size_t)n;
        buf_add(b, chunk, (size_t)n);
        if (b->failed) {
            slm_fail_nomem(err, "its content");
            return slm_wrap(err, "%s", path);
        }
    }
}

bool file_read(const char *path, size_t max, struct buf *b, slm_error *err)
{
    if (strcmp(path, "-") == 0) {
        return read_fd(STDIN_FILENO, "standard input", max, b, err);
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0) {
        return fail_errno(err, path, "cannot be opened");
    }
    bool ok = read_fd(fd, path, max, b, err);

    close(fd);
    return ok;
}

/* ---- writing --------------------------------------------------------------- */

static bool write_fd(int fd, const char *path, const struct file_part *parts, size_t n_parts,
                     slm_error *err)
{
    for (size_t i = 0; i < n_parts; i++) {
        const char *p = parts[i].data;
        size_t left = parts[i].n;

        while (left > 0) {
            ssize_t n = write(fd, p, left);

            if (n < 0 && errno == EINTR) {
                continue;
            }
            if (n < 0) {
                return fail_errno(err, path, "cannot be written");
            }
            p += n;
            left -= (size_t)n;
        }
    }
    return true;
}

/* A new file beside the path, its name in `name`.  The mode follows the umask. */
static int open_beside(const char *path, char *name, size_t cap)
{
    static _Atomic unsigned counter;

    for (int attempt = 0; attempt < 100; attempt++) {
        snprintf(name, cap, "%s.%ld-%u.tmp", path, (long)getpid(),
                 atomic_fetch_add(&counter, 1));
        int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

        if (fd >= 0 || errno != EEXIST) {
            return fd;
        }
    }
    return -1;
}

static bool write_and_rename(const char *path, const struct file_part *parts, size_t n_parts,
                             slm_error *err)
{
    size_t cap = strlen(path) + 40;
    char *name = mem_alloc(cap, 1);

    if (name == NULL) {
        return slm_fail_nomem(err, "a file name");
    }
    int fd = open_beside(path, name, cap);
    bool ok = fd >= 0 || fail_errno(err, path, "cannot be created");

    if (fd >= 0) {
        ok = write_fd(fd, path, parts, n_parts, err);
        /* The content must be on disk before the name points to it. */
        if (ok && fsync(fd) != 0) {
            ok = fail_errno(err, path, "cannot be written");
        }
        if (close(fd) != 0 && ok) {
            ok = fail_errno(err, path, "cannot be written");
        }
        if (ok && rename(name, path) != 0) {
            ok = fail_errno(err, path, "cannot be replaced");
        }
        if (!ok) {
            unlink(name);
        }
    }
    mem_free(name);
    return ok;
}

/* A device or a pipe is written to, never replaced by a file. */
static bool write_in_place(const char *path, const struct file_part *parts, size_t n_parts,
                           slm_error *err)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd < 0) {
        return fail_errno(err, path, "cannot be opened");
    }
    bool ok = write_fd(fd, path, parts, n_parts, err);

    close(fd);
    return ok;
}

bool file_write_parts(const char *path, const struct file_part *parts, size_t n_parts,
                      slm_error *err)
{
    struct stat st;

    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        return fail_path(err, path, "is a directory, not a file");
    }
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        return write_in_place(path, parts, n_parts, err);
    }
    return write_and_rename(path, parts, n_parts, err);
}

bool file_write(const char *path, const void *data, size_t n, slm_error *err)
{
    return file_write_parts(path, &(struct file_part){data, n}, 1, err);
}

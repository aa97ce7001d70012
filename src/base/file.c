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
#include <sys/statvfs.h>
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
    m->device = (uint64_t)st.st_dev;
    m->inode = (uint64_t)st.st_ino;
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

/* Creates a new file beside the path.  The mode follows the umask. */
static bool open_beside(struct file_out *f, slm_error *err)
{
    static _Atomic unsigned counter;
    const size_t cap = strlen(f->path) + 40;

    f->beside = mem_alloc(cap, 1);
    if (f->beside == NULL) {
        return slm_fail_nomem(err, "a file name");
    }
    for (int attempt = 0; attempt < 100; attempt++) {
        snprintf(f->beside, cap, "%s.%ld-%u.tmp", f->path, (long)getpid(),
                 atomic_fetch_add(&counter, 1));
        f->fd = open(f->beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (f->fd >= 0 || errno != EEXIST) {
            break;
        }
    }
    return f->fd >= 0 || fail_errno(err, f->path, "cannot be created");
}

/* Whether the disk says that it has room; one that does not say is tried. */
static bool check_room(const struct file_out *f, uint64_t expected, slm_error *err)
{
    struct statvfs fs;

    if (fstatvfs(f->fd, &fs) != 0 || fs.f_blocks == 0) {
        return true;
    }
    const uint64_t room = (uint64_t)fs.f_bavail * fs.f_frsize;

    if (expected <= room) {
        return true;
    }
    slm_fail(err, SLM_E_IO, "needs %llu MB, but the disk has room for %llu MB",
             (unsigned long long)(expected / 1000000), (unsigned long long)(room / 1000000));
    return slm_wrap(err, "%s", f->path);
}

bool file_out_open(struct file_out *f, const char *path, uint64_t expected, slm_error *err)
{
    struct stat st;
    const bool exists = stat(path, &st) == 0;

    *f = (struct file_out){ .fd = -1 };
    if (exists && S_ISDIR(st.st_mode)) {
        return fail_path(err, path, "is a directory, not a file");
    }
    f->path = mem_strndup(path, strlen(path));
    if (f->path == NULL) {
        return slm_fail_nomem(err, "a file name");
    }
    bool ok;

    if (exists && !S_ISREG(st.st_mode)) {
        /* A device or a pipe is written to, never replaced by a file. */
        f->fd = open(path, O_WRONLY | O_CLOEXEC);
        ok = f->fd >= 0 || fail_errno(err, path, "cannot be opened");
    } else {
        ok = open_beside(f, err) && check_room(f, expected, err);
    }
    if (!ok) {
        file_out_close(f, false, NULL);
    }
    return ok;
}

bool file_out_add(struct file_out *f, const void *data, size_t n, slm_error *err)
{
    const char *p = data;

    while (n > 0) {
        ssize_t done = write(f->fd, p, n);

        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done < 0) {
            return fail_errno(err, f->path, "cannot be written");
        }
        p += done;
        n -= (size_t)done;
        f->written += (uint64_t)done;
    }
    return true;
}

bool file_out_close(struct file_out *f, bool keep, slm_error *err)
{
    bool ok = keep;

    if (f->path == NULL) {
        *f = (struct file_out){ .fd = -1 };
        return ok;
    }
    /* The content must be on disk before the name points to it. */
    if (ok && f->beside != NULL && fsync(f->fd) != 0) {
        ok = fail_errno(err, f->path, "cannot be written");
    }
    if (f->fd >= 0 && close(f->fd) != 0 && ok) {
        ok = fail_errno(err, f->path, "cannot be written");
    }
    if (ok && f->beside != NULL && rename(f->beside, f->path) != 0) {
        ok = fail_errno(err, f->path, "cannot be replaced");
    }
    if (!ok && f->fd >= 0 && f->beside != NULL) {
        unlink(f->beside);
    }
    mem_free(f->beside);
    mem_free(f->path);
    *f = (struct file_out){ .fd = -1 };
    return ok;
}

bool file_write_parts(const char *path, const struct file_part *parts, size_t n_parts,
                      slm_error *err)
{
    struct file_out f;
    bool ok = file_out_open(&f, path, 0, err);

    for (size_t i = 0; ok && i < n_parts; i++) {
        ok = file_out_add(&f, parts[i].data, parts[i].n, err);
    }
    return file_out_close(&f, ok, err);
}

bool file_write(const char *path, const void *data, size_t n, slm_error *err)
{
    return file_write_parts(path, &(struct file_part){data, n}, 1, err);
}

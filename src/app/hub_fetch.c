/* hub_fetch.c - download with resume, verified by its sum.
 *
 * The server is believed nothing: neither where it begins nor how much it sends, and the
 * bytes count only when their sum is the one of the listing. */
#include "app/hub_fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "app/interrupt.h"
#include "app/out.h"
#include "base/error.h"

/* Attempts in a row without a byte, and in all: a server that sends a little each time is
 * not asked for ever. */
enum { ATTEMPTS = 5, ATTEMPTS_ALL = 500 };

enum { HASH_PIECE = 1 << 20 };

static void pause_ms(int ms)
{
    const struct timespec t = { ms / 1000, ms % 1000 * 1000000L };
    nanosleep(&t, NULL);
}

bool fetch_again(int n)
{
    if (n >= ATTEMPTS) {
        return false;
    }
    for (int ms = 200 << n; ms > 0 && !interrupted(); ms -= 100) {
        pause_ms(100);
    }
    return !interrupted();
}

static bool fail_file(slm_error *err, const char *path, const char *what)
{
    return slm_fail(err, SLM_E_IO, "%.150s: %s: %s", path, what, strerror(errno));
}

/* ---- the part -------------------------------------------------------------------- */

/* The lock that other tools take for this file, too. */
static bool take_lock(struct fetch *f, const char *repo, slm_error *err)
{
    struct buf path;
    const char *slash = strchr(repo, '/');
    bool told = false;

    buf_init(&path, 0);
    buf_printf(&path, "%s/.locks/models--%.*s--%s/%s.lock", f->hub->cache, (int)(slash - repo),
               repo, slash + 1, f->file->hash);
    bool ok = (!path.failed || slm_fail_nomem(err, "a path")) &&
              cache_make_folders(buf_str(&path), err);

    if (ok) {
        f->lock = open(buf_str(&path), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        ok = f->lock >= 0 || fail_file(err, buf_str(&path), "cannot be made");
    }
    while (ok && flock(f->lock, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
            break;  /* a file system without locks: go on without */
        }
        if (!told) {
            out_note("%s: another program downloads it; waiting", f->file->path);
            told = true;
        }
        pause_ms(200);
        ok = !interrupted() || slm_fail(err, SLM_E_CANCELLED, "interrupted");
    }
    buf_deinit(&path);
    return ok;
}

/* A sum of git is over a header and the content. */
static bool start_digest(struct fetch *f, slm_error *err)
{
    const bool git = strlen(f->file->hash) == 40;

    digest_free(f->digest);
    f->digest = digest_new(git ? "sha1" : "sha256", err);
    if (f->digest && git) {
        char head[40];
        digest_add(f->digest, head,
                   (size_t)snprintf(head, sizeof head, "blob %" PRIu64, f->file->size) + 1);
    }
    return f->digest != NULL;
}

/* Sums up what an earlier run left. */
static bool read_part(struct fetch *f, slm_error *err)
{
    char *piece = mem_alloc(HASH_PIECE, 1);
    struct stat st;
    ssize_t n = 0;

    if (!piece) {
        return slm_fail_nomem(err, "a piece of the file");
    }
    f->have = 0;
    bool ok = start_digest(f, err);
    if (ok && fstat(f->fd, &st) == 0 && (uint64_t)st.st_size <= f->file->size) {
        while (!interrupted() && (n = pread(f->fd, piece, HASH_PIECE, (off_t)f->have)) > 0) {
            digest_add(f->digest, piece, (size_t)n);
            f->have += (uint64_t)n;
        }
    }
    f->resumed = f->have;
    ok = ok && (ftruncate(f->fd, (off_t)f->have) == 0 ||
                fail_file(err, f->part, "cannot be written"));
    mem_free(piece);
    return ok;
}

bool fetch_open(struct fetch *f, const struct hub *hub, struct net *net, const char *repo,
                const char *commit, const struct repo_file *file, slm_error *err)
{
    struct buf text;
    struct stat st;

    *f = (struct fetch){ .hub = hub, .net = net, .file = file, .fd = -1, .lock = -1 };
    buf_init(&text, 0);
    buf_printf(&text, "%s/%s/resolve/%s/", hub->endpoint, repo, commit);
    net_add_path(&text, file->path);
    f->url = buf_take(&text, NULL);
    buf_clear(&text);
    buf_printf(&text, "blobs/%s", file->hash);
    f->blob = cache_path(hub, repo, buf_str(&text));
    buf_puts(&text, ".incomplete");
    f->part = cache_path(hub, repo, buf_str(&text));
    buf_deinit(&text);
    if (!f->url || !f->blob || !f->part) {
        return slm_fail_nomem(err, "a path");
    }
    if (!cache_make_folders(f->blob, err) || !take_lock(f, repo, err)) {
        return false;
    }
    if (stat(f->blob, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == file->size) {
        f->complete = true;
        f->have = file->size;
        return true;
    }
    f->fd = open(f->part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    return (f->fd >= 0 || fail_file(err, f->part, "cannot be made")) && read_part(f, err);
}

void fetch_close(struct fetch *f)
{
    if (f->hub) {
        if (f->fd >= 0) {
            close(f->fd);
        }
        if (f->lock >= 0) {
            close(f->lock);
        }
    }
    digest_free(f->digest);
    mem_free(f->url);
    mem_free(f->blob);
    mem_free(f->part);
    *f = (struct fetch){ .fd = -1, .lock = -1 };
}

/* ---- the transfer ---------------------------------------------------------------- */

static bool on_begin(void *arg, uint64_t at, uint64_t total, slm_error *err)
{
    struct fetch *f = arg;

    if (total > 0 && total != f->file->size) {
        return slm_fail(err, SLM_E_FORMAT,
                        "%.80s: the server sends a file of %" PRIu64 " bytes, but lists %" PRIu64,
                        f->file->path, total, f->file->size);
    }
    if (at > f->have) {
        return slm_fail(err, SLM_E_FORMAT, "%.80s: the server begins at byte %" PRIu64
                        ", not at %" PRIu64, f->file->path, at, f->have);
    }
    f->skip = f->have - at;  /* a server that cannot resume */
    return true;
}

static bool write_all(int fd, const char *p, size_t n, uint64_t at)
{
    while (n > 0) {
        const ssize_t done = pwrite(fd, p, n, (off_t)at);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return false;
        }
        p += done;
        at += (uint64_t)done;
        n -= (size_t)done;
    }
    return true;
}

static bool on_add(void *arg, const void *data, size_t n, slm_error *err)
{
    struct fetch *f = arg;
    const char *p = data;
    const size_t skip = f->skip < n ? (size_t)f->skip : n;

    p += skip;
    n -= skip;
    f->skip -= skip;
    const bool enough = n > f->want - f->have;
    if (enough) {
        n = (size_t)(f->want - f->have);
    }
    if (!write_all(f->fd, p, n, f->have)) {
        return fail_file(err, f->part, "cannot be written");
    }
    digest_add(f->digest, p, n);
    f->have += n;
    if (f->bar) {
        progress_update(f->bar, f->have);
    }
    /* More than was asked for is the end of this request; fetch_until sees that all is there. */
    return !enough || slm_fail(err, SLM_E_FORMAT, "%.80s: the server sends more than %" PRIu64
                               " bytes", f->file->path, f->file->size);
}

bool fetch_until(struct fetch *f, uint64_t n, slm_error *err)
{
    const struct net_sink sink = { .begin = on_begin, .add = on_add, .arg = f };
    int failures = 0;

    f->want = n < f->file->size ? n : f->file->size;
    for (int all = 0; f->have < f->want; all++) {
        const uint64_t before = f->have;
        slm_error why = {0};
        const enum net_fault fault = net_range(f->net, f->url, f->have, f->want, &sink, &why);

        if (f->have >= f->want && !interrupted()) {
            break;
        }
        failures = f->have > before ? 0 : failures + 1;
        if (fault == NET_OK && f->have == before) {
            slm_fail(&why, SLM_E_IO, "%.120s: the server sends nothing at byte %" PRIu64
                     " of %" PRIu64, f->url, f->have, f->file->size);
        }
        if ((fault != NET_OK && fault != NET_BROKEN) || all >= ATTEMPTS_ALL ||
            !fetch_again(failures)) {
            if (interrupted()) {
                slm_fail(&why, SLM_E_CANCELLED, "interrupted; the next try goes on from there");
            }
            if (err) {
                *err = why;
            }
            return false;
        }
    }
    return true;
}

/* ---- the end --------------------------------------------------------------------- */

/* What an earlier run left may be at fault, so then everything is downloaded once more. */
static bool wrong_sum(struct fetch *f, const char *sum, slm_error *err)
{
    const bool again = f->resumed > 0;

    f->have = f->resumed = 0;
    if (ftruncate(f->fd, 0) != 0 || (!again && unlink(f->part) != 0)) {
        return fail_file(err, f->part, "has the wrong sum and cannot be removed");
    }
    if (again) {
        out_note("%s: what was there of it is wrong; downloading it anew", f->file->path);
        return start_digest(f, err) && fetch_until(f, f->file->size, err) && fetch_finish(f, err);
    }
    return slm_fail(err, SLM_E_FORMAT,
                    "%.80s: its sum is %.12s..., must be %.12s...; the download is removed",
                    f->file->path, sum, f->file->hash);
}

bool fetch_finish(struct fetch *f, slm_error *err)
{
    char sum[65] = "";

    if (f->complete) {
        return true;
    }
    digest_end(f->digest, sum);
    if (strcmp(sum, f->file->hash) != 0) {
        return wrong_sum(f, sum, err);
    }
    if (fsync(f->fd) != 0) {
        return fail_file(err, f->part, "cannot be written");
    }
    if (rename(f->part, f->blob) != 0) {
        return fail_file(err, f->blob, "cannot be put in its place");
    }
    f->complete = true;
    return true;
}

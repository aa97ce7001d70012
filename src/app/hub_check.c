/* hub_check.c - the headers first.
 *
 * The first megabytes of every file, which are downloaded anyway, are copied into files of
 * full length whose rest is a hole.  Such a model can be opened like a complete one: what is
 * unsupported or contradicts itself shows, and so do its needs. */
#include "app/hub_check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "app/interrupt.h"
#include "app/out.h"
#include "base/error.h"

/* Headers with large vocabularies are 5 to 20 MB.  More is asked for until all is there. */
static const uint64_t HEADER_MIN = 1 << 20, HEADER_MAX = (uint64_t)256 << 20;

enum { CONTEXT_SHOWN = 4096, COPY_PIECE = 1 << 16 };

/* The speed of memory is measured over as much as a token reads, within these bounds: a small
 * model stays in the caches, and more than 256 MiB tells nothing new. */
enum { BANDWIDTH_MIN = 8 << 20, BANDWIDTH_MAX = 256 << 20 };

struct check {
    const struct hub *hub;
    struct fetch *files;
    size_t n;
    char *folder;          /* of the copies */
};

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The path of a copy; freed with mem_free. */
static char *copy_path(const struct check *c, size_t i)
{
    struct buf s;

    buf_init(&s, 0);
    buf_printf(&s, "%s/%s", c->folder, base_name(c->files[i].file->path));
    char *out = buf_take(&s, NULL);
    buf_deinit(&s);
    return out;
}

static void remove_copies(struct check *c)
{
    for (size_t i = 0; c->folder && i < c->n; i++) {
        char *path = copy_path(c, i);
        if (path) {
            unlink(path);
        }
        mem_free(path);
    }
    if (c->folder) {
        rmdir(c->folder);
    }
}

/* ---- copies ---------------------------------------------------------------------- */

/* Bytes begin .. end - 1 of what is downloaded, to the same place of the copy. */
static bool copy_bytes(int from, int to, uint64_t begin, uint64_t end)
{
    char piece[COPY_PIECE];

    while (begin < end) {
        const size_t most = end - begin < sizeof piece ? (size_t)(end - begin) : sizeof piece;
        const ssize_t n = pread(from, piece, most, (off_t)begin);
        if (n <= 0 || pwrite(to, piece, (size_t)n, (off_t)begin) != n) {
            return false;
        }
        begin += (uint64_t)n;
    }
    return true;
}

/* Makes the copy of file i have its first n bytes. */
static bool grow_copy(struct check *c, size_t i, uint64_t n, slm_error *err)
{
    struct fetch *f = &c->files[i];
    const uint64_t most = n < f->file->size ? n : f->file->size;
    char *path = NULL;
    int from = -1, to = -1;
    bool ok = f->complete || fetch_until(f, most, err);

    if (!ok) {
        return false;
    }
    path = copy_path(c, i);
    if (!path) {
        return slm_fail_nomem(err, "a path");
    }
    from = open(f->complete ? f->blob : f->part, O_RDONLY | O_CLOEXEC);
    to = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    ok = (from >= 0 && to >= 0 && ftruncate(to, (off_t)f->file->size) == 0 &&
          copy_bytes(from, to, 0, most)) ||
         slm_fail(err, SLM_E_IO, "%.150s: the header cannot be copied: %s", path, strerror(errno));
    if (from >= 0) {
        close(from);
    }
    if (to >= 0) {
        close(to);
    }
    mem_free(path);
    return ok;
}

/* ---- what it takes --------------------------------------------------------------- */

static bool forecast(slm_model *model, int threads, struct verdict *out, slm_error *err)
{
    slm_model_info info;
    slm_forecast f;
    slm_machine machine;

    slm_model_info_get(model, &info);
    out->context = info.context_max < CONTEXT_SHOWN ? info.context_max : CONTEXT_SHOWN;
    if (!slm_model_forecast(model, out->context, SLM_KV_F16, &f, err) ||
        !slm_machine_get(&machine, err)) {
        return false;
    }
    const double bytes = (double)info.token_bytes;
    const double read = bytes < BANDWIDTH_MIN ? BANDWIDTH_MIN
                      : bytes > BANDWIDTH_MAX ? BANDWIDTH_MAX : bytes;
    const double rate = slm_bandwidth((size_t)read, threads);

    /* All weights, also where some would be streamed. */
    out->need_bytes = f.weights_bytes + f.kv_bytes + f.work_bytes;
    out->have_bytes = machine.ram_bytes;
    out->tokens_s = rate > 0 && bytes > 0 ? rate / bytes : 0;
    return true;
}

/* ---- the check ------------------------------------------------------------------- */

/* Whether the first n bytes of every file hold its header: what is not tensor data lies in
 * front of it. */
static bool is_whole(const slm_model *model, uint64_t n)
{
    slm_model_info info;

    slm_model_info_get(model, &info);
    return info.file_bytes - info.weight_bytes <= n;
}

/* Takes the folder of the copies, whose beginning a long message may have lost, out of it. */
static void forget_folder(const struct check *c, slm_error *err)
{
    const char *name = base_name(c->folder), *at = strstr(err->msg, name);

    if (at) {
        const char *rest = at + strlen(name) + 1;
        memmove(err->msg, rest, strlen(rest) + 1);
    }
}

/* Opens the copy; NULL and why not. */
static slm_model *open_copy(const struct check *c, slm_engine *engine, bool meta_only,
                            slm_error *err)
{
    /* Streaming would read the holes into memory. */
    const slm_model_params params = { .meta_only = meta_only, .pack = SLM_PACK_OFF,
                                      .no_stream = true };
    char *path = copy_path(c, 0);
    slm_model *model = path ? slm_model_open(engine, path, &params, err) : NULL;

    if (!path) {
        slm_fail_nomem(err, "a path");
    } else if (!model) {
        forget_folder(c, err);
    }
    mem_free(path);
    return model;
}

/* Every file begins as the format says; else there is no use in asking for more. */
static bool check_magic(const struct check *c, slm_error *err)
{
    for (size_t i = 0; i < c->n; i++) {
        const struct fetch *f = &c->files[i];
        char magic[4] = "";
        const int fd = open(f->complete ? f->blob : f->part, O_RDONLY | O_CLOEXEC);
        const bool ok = fd >= 0 && pread(fd, magic, 4, 0) == 4 && memcmp(magic, "GGUF", 4) == 0;

        if (fd >= 0) {
            close(fd);
        }
        if (!ok) {
            return slm_fail(err, SLM_E_FORMAT, "%.150s is not a GGUF file", f->file->path);
        }
    }
    return true;
}

static bool check_copies(struct check *c, slm_engine *engine, struct verdict *out, slm_error *err)
{
    slm_model *model = NULL;

    for (uint64_t n = HEADER_MIN; !model; n *= 4) {
        slm_error why = {0};
        bool all = true;

        for (size_t i = 0; i < c->n; i++) {
            if (!grow_copy(c, i, n, err)) {
                return false;
            }
            all = all && c->files[i].file->size <= n;
        }
        if (!check_magic(c, err)) {
            return false;
        }
        model = open_copy(c, engine, true, &why);
        if (model && !all && !is_whole(model, n)) {
            slm_model_free(model);
            model = NULL;
            slm_fail(&why, SLM_E_FORMAT, "%.100s: its header is larger than %llu bytes",
                     c->files[0].file->path, (unsigned long long)n);
        }
        /* A header that is cut looks malformed, never unsupported. */
        if (!model && (all || n >= HEADER_MAX || why.code != SLM_E_FORMAT)) {
            if (err) {
                *err = why;
            }
            return false;
        }
    }
    slm_model_free(model);
    model = open_copy(c, engine, false, err);
    const bool ok = model && forecast(model, slm_engine_threads(engine), out, err);
    slm_model_free(model);
    return ok;
}

bool check_model(const struct hub *hub, const char *repo, struct fetch *files, size_t n,
                 struct verdict *out, slm_error *err)
{
    struct check c = { hub, files, n, cache_path(hub, repo, "check-XXXXXX") };
    slm_engine *engine = NULL;
    slm_error why = {0};
    bool ok = false;

    *out = (struct verdict){0};
    if (!c.folder) {
        slm_fail_nomem(&why, "a path");
    } else if (!mkdtemp(c.folder)) {
        slm_fail(&why, SLM_E_IO, "%.150s: cannot be made: %s", c.folder, strerror(errno));
        mem_free(c.folder);
        c.folder = NULL;
    } else {
        engine = slm_engine_new(NULL, &why);
        ok = engine && check_copies(&c, engine, out, &why);
    }
    slm_engine_free(engine);
    remove_copies(&c);
    mem_free(c.folder);
    if (!ok && err) {
        *err = why;
    }
    return ok;
}

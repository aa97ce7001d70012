/* hub.c - from a name to a file: listing, choice, check, download, links. */
#include "app/hub.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <jansson.h>

#include "app/hub_check.h"
#include "app/hub_fetch.h"
#include "app/interrupt.h"
#include "app/net.h"
#include "app/out.h"
#include "app/progress.h"
#include "base/error.h"
#include "base/file.h"

/* A listing of a repository with very many files is a few MB. */
enum { LISTING_BYTES_MAX = 64 << 20 };

/* ---- the listing ----------------------------------------------------------------- */

struct listing {
    json_t *json;               /* holds the strings */
    const char *commit;         /* 40 hex digits */
    struct repo_file *files;
    size_t n;
};

static void listing_deinit(struct listing *l)
{
    json_decref(l->json);
    mem_free(l->files);
    *l = (struct listing){0};
}

/* A file's sum: of the content for large files, git's for others. */
static const char *hash_of(const json_t *file)
{
    const json_t *lfs = json_object_get(file, "lfs");
    const char *sum = json_string_value(json_object_get(lfs, "sha256"));

    if (!sum) {
        sum = json_string_value(json_object_get(lfs, "oid"));
    }
    if (sum) {
        return cache_is_hex(sum, 64) ? sum : "";
    }
    sum = json_string_value(json_object_get(file, "blobId"));
    return sum && cache_is_hex(sum, 40) ? sum : "";
}

static uint64_t size_of(const json_t *file)
{
    const json_t *lfs = json_object_get(file, "lfs");
    const json_t *size = json_object_get(lfs ? lfs : file, "size");
    const json_int_t n = json_integer_value(size ? size : json_object_get(file, "size"));

    return n > 0 ? (uint64_t)n : 0;
}

static bool parse_listing(struct listing *l, const char *repo, const struct buf *text,
                          slm_error *err)
{
    /* jansson's own message would quote the server. */
    l->json = json_loadb(buf_str(text), text->len, JSON_REJECT_DUPLICATES, NULL);
    const json_t *list = json_object_get(l->json, "siblings");
    l->commit = json_string_value(json_object_get(l->json, "sha"));
    if (!l->commit || !cache_is_hex(l->commit, 40) || !json_is_array(list)) {
        return slm_fail(err, SLM_E_FORMAT, "%.100s: the hub's listing is malformed", repo);
    }
    const size_t most = json_array_size(list);

    l->files = mem_alloc(most, sizeof *l->files);
    if (!l->files) {
        return slm_fail_nomem(err, "the list of files");
    }
    for (size_t i = 0; i < most; i++) {
        const json_t *file = json_array_get(list, i);
        const char *path = json_string_value(json_object_get(file, "rfilename"));
        if (path && registry_path_ok(path)) {
            l->files[l->n++] = (struct repo_file){ path, size_of(file), hash_of(file) };
        }
    }
    return true;
}

/* NET_MISSING and NET_REFUSED: another repository may have the model. */
static enum net_fault list_repo(const struct hub *h, struct net *net, const char *repo,
                                struct listing *l, slm_error *err)
{
    struct buf url, text;
    enum net_fault fault = NET_FAILED;
    int attempt = 0;

    *l = (struct listing){0};
    buf_init(&url, 0);
    buf_init(&text, 0);
    buf_printf(&url, "%s/api/models/%s/revision/main?blobs=true", h->endpoint, repo);
    if (url.failed) {
        slm_fail_nomem(err, "an address");
    } else {
        do {
            buf_clear(&text);
            fault = net_get(net, buf_str(&url), LISTING_BYTES_MAX, &text, err);
        } while (fault == NET_BROKEN && fetch_again(++attempt));
    }
    if (fault == NET_OK && !parse_listing(l, repo, &text, err)) {
        listing_deinit(l);
        fault = NET_FAILED;
    }
    buf_deinit(&text);
    buf_deinit(&url);
    return fault;
}

/* ---- one model ------------------------------------------------------------------- */

struct pull {
    struct hub *hub;
    struct net *net;
    const struct pull_options *options;
    const char *repo;
    struct listing list;
    const struct repo_file *picked[MODEL_FILES_MAX];
    struct fetch *files;      /* [n] */
    size_t n;
};

/* Whether an earlier file of the model is the same: its lock would be waited for for ever. */
static bool is_repeated(const struct pull *p, size_t i)
{
    for (size_t k = 0; k < i; k++) {
        if (strcmp(p->picked[k]->hash, p->picked[i]->hash) == 0) {
            return true;
        }
    }
    return false;
}

static bool open_files(struct pull *p, slm_error *err)
{
    p->files = mem_zalloc(p->n, sizeof *p->files);
    if (!p->files) {
        p->n = 0;
        return slm_fail_nomem(err, "the downloads");
    }
    for (size_t i = 0; i < p->n; i++) {
        if (!*p->picked[i]->hash || p->picked[i]->size == 0) {
            return slm_fail(err, SLM_E_FORMAT, "%.120s: the hub's listing has no sum or no size",
                            p->picked[i]->path);
        }
        if (is_repeated(p, i)) {
            return slm_fail(err, SLM_E_FORMAT, "%.120s: the hub's listing has its content twice",
                            p->picked[i]->path);
        }
        if (!fetch_open(&p->files[i], p->hub, p->net, p->repo, p->list.commit, p->picked[i],
                        err)) {
            return false;
        }
    }
    return true;
}

static uint64_t bytes_missing(const struct pull *p)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < p->n; i++) {
        sum += p->files[i].file->size - p->files[i].have;
    }
    return sum;
}

static bool check_room(const struct pull *p, slm_error *err)
{
    const uint64_t need = bytes_missing(p);
    struct statvfs fs;

    if (need == 0 || statvfs(p->hub->cache, &fs) != 0 ||
        need <= (uint64_t)fs.f_bavail * fs.f_frsize) {
        return true;
    }
    return slm_fail(err, SLM_E_IO, "%.100s: %s to download, but the disk has room for %s",
                    p->hub->cache, out_bytes(need),
                    out_bytes((uint64_t)fs.f_bavail * fs.f_frsize));
}

/* Refuses what cannot run here, before the body is downloaded; says what to expect. */
static bool judge(const struct pull *p, slm_error *err)
{
    const char *path = p->picked[0]->path;
    const bool force = p->options->force;
    struct verdict v;
    slm_error why = {0};

    if (!check_model(p->hub, p->repo, p->files, p->n, &v, &why)) {
        const bool about_model = why.code == SLM_E_FORMAT || why.code == SLM_E_UNSUPPORTED;
        if (!about_model || !force) {
            if (err) {
                *err = why;
            }
            return false;
        }
        out_note("%s: cannot be run: %s", path, why.msg);
        return true;
    }
    const char *need = out_bytes(v.need_bytes), *have = out_bytes(v.have_bytes);

    if (v.need_bytes > v.have_bytes && !force) {
        return slm_fail(err, SLM_E_NOMEM,
                        "%.80s needs %s of memory and this machine has %s; choose a smaller "
                        "quantisation or model, or let --force stream weights from the disk",
                        path, need, have);
    }
    out_note("%s: needs %s of %s memory with %d tokens of context; about %.*f tokens/s", path, need,
             have, v.context, v.tokens_s < 10 ? 1 : 0, v.tokens_s);
    return true;
}

static bool download(struct fetch *f, slm_error *err)
{
    struct progress bar;

    if (f->complete) {
        return true;
    }
    progress_begin(&bar, f->file->path, f->have, f->file->size);
    f->bar = &bar;
    const bool ok = fetch_until(f, f->file->size, err);
    progress_end(&bar);
    f->bar = NULL;
    return ok && fetch_finish(f, err);
}

static bool write_ref(const struct pull *p, slm_error *err)
{
    char *path = cache_path(p->hub, p->repo, "refs/main");
    const bool ok = path ? cache_make_folders(path, err) &&
                               file_write(path, p->list.commit, strlen(p->list.commit), err)
                         : slm_fail_nomem(err, "a path");

    mem_free(path);
    return ok;
}

static bool link_files(const struct pull *p, char **path, slm_error *err)
{
    struct buf rest;

    for (size_t i = 0; i < p->n; i++) {
        if (!cache_link(p->hub, p->repo, p->list.commit, p->picked[i]->path, p->picked[i]->hash,
                        err)) {
            return false;
        }
    }
    buf_init(&rest, 0);
    buf_printf(&rest, "snapshots/%s/%s", p->list.commit, p->picked[0]->path);
    *path = rest.failed ? NULL : cache_path(p->hub, p->repo, buf_str(&rest));
    buf_deinit(&rest);
    return (*path || slm_fail_nomem(err, "a path")) && write_ref(p, err);
}

static bool pull_files(struct pull *p, char **path, slm_error *err)
{
    if (!open_files(p, err)) {
        return false;
    }
    const uint64_t missing = bytes_missing(p);

    if (missing > 0) {
        out_note("%s/%s: %s to download", p->repo, p->picked[0]->path, out_bytes(missing));
        if (!judge(p, err) || !check_room(p, err)) {
            return false;
        }
    }
    for (size_t i = 0; i < p->n; i++) {
        if (!download(&p->files[i], err)) {
            return false;
        }
    }
    return link_files(p, path, err);
}

/* The model of one reference.  NET_MISSING and NET_REFUSED as list_repo, and NET_MISSING where
 * the repository has no such file. */
static enum net_fault pull_ref(struct hub *h, struct net *net, const struct model_ref *ref,
                               const struct pull_options *options, char **path, slm_error *err)
{
    struct pull p = { .hub = h, .net = net, .options = options, .repo = ref->repo };
    enum net_fault fault = list_repo(h, net, ref->repo, &p.list, err);

    if (fault == NET_OK &&
        !registry_select(ref, p.list.files, p.list.n, p.picked, &p.n, err)) {
        p.n = 0;
        fault = NET_MISSING;
    }
    if (fault == NET_OK && !pull_files(&p, path, err)) {
        fault = NET_FAILED;
    }
    for (size_t i = 0; p.files && i < p.n; i++) {
        fetch_close(&p.files[i]);
    }
    mem_free(p.files);
    listing_deinit(&p.list);
    return fault;
}

/* ---- a name ---------------------------------------------------------------------- */

/* What was tried, and what came of it. */
static void add_tried(struct buf *tried, const struct model_ref *ref, enum net_fault fault,
                      const struct hub *h, const slm_error *why)
{
    buf_printf(tried, "%s%s%s%s", tried->len > 0 ? ", " : "", ref->repo, *ref->quant ? ":" : "",
               ref->quant);
    if (fault == NET_REFUSED) {
        out_note("%s: not there, or not for everybody%s (%s)", ref->repo,
                 h->token ? "" : "; HF_TOKEN may help", why->msg);
    } else {
        out_note("%s: %s", ref->repo, why->msg);
    }
}

static bool pull_refs(struct hub *h, const char *name, const struct model_refs *refs,
                      const struct pull_options *options, char **path, slm_error *err)
{
    struct net *net = net_new(h->token, err);
    struct buf tried;
    slm_error why = {0};
    bool done = false, ok = false;

    if (!net) {
        return false;
    }
    buf_init(&tried, 160);
    for (int i = 0; !done && i < refs->n; i++) {
        const enum net_fault fault = pull_ref(h, net, &refs->item[i], options, path, &why);

        ok = fault == NET_OK;
        done = ok || (fault != NET_MISSING && fault != NET_REFUSED);
        if (!done) {
            add_tried(&tried, &refs->item[i], fault, h, &why);
        }
    }
    if (!ok && done && err) {
        *err = why;
    } else if (!ok) {
        slm_fail(err, SLM_E_IO, "%.60s is not to be had; tried %s%s", name, buf_str(&tried),
                 tried.failed ? ", ..." : "");
    }
    buf_deinit(&tried);
    net_free(net);
    return ok;
}

bool hub_pull(struct hub *h, const char *name, const struct pull_options *options, char **path,
              slm_error *err)
{
    struct model_refs refs;

    *path = NULL;
    if (!registry_parse(name, &refs, err)) {
        return false;
    }
    if (refs.n == 0) {
        return slm_fail(err, SLM_E_ARG, "%.100s is no name of a model: give an alias, user/repo, "
                                        "user/repo:QUANT or user/repo/file.gguf", name);
    }
    if (h->offline) {
        return slm_fail(err, SLM_E_UNSUPPORTED, "%.100s: no downloads, since HF_HUB_OFFLINE is set",
                        name);
    }
    interrupt_catch();
    const bool ok = pull_refs(h, name, &refs, options, path, err);
    interrupt_release();
    return ok;
}

/* ---- for all verbs --------------------------------------------------------------- */

static bool find_cached(const struct hub *h, const struct model_refs *refs, char **path,
                        slm_error *err)
{
    *path = NULL;
    for (int i = 0; i < refs->n && !*path; i++) {
        if (!cache_find(h, &refs->item[i], path, err)) {
            return false;
        }
    }
    return true;
}

char *hub_model(const char *name, slm_error *err)
{
    const struct pull_options options = {0};
    struct model_refs refs;
    struct stat st;
    struct hub h;
    char *path = NULL;

    if (stat(name, &st) == 0 && !S_ISDIR(st.st_mode)) {
        refs.n = 0;
    } else if (!registry_parse(name, &refs, err)) {
        return NULL;
    }
    if (refs.n == 0) {
        path = mem_strndup(name, strlen(name));
        if (!path) {
            slm_fail_nomem(err, "a path");
        }
        return path;
    }
    if (!hub_init(&h, err)) {
        return NULL;
    }
    if (find_cached(&h, &refs, &path, err) && !path) {
        if (!hub_pull(&h, name, &options, &path, err)) {
            slm_wrap(err, "no file %.40s, nor in the cache", name);
        }
    }
    hub_deinit(&h);
    return path;
}

/* hub_cache.c - the cache on disk: where it is, what is in it, links and removal. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/hub.h"
#include "base/error.h"
#include "base/file.h"

/* Folders below a snapshot, and files of a repository that are looked at. */
enum { DEPTH_MAX = 8, FILES_MAX = 20000 };

/* ---- where things are ------------------------------------------------------------ */

static const char *env(const char *name)
{
    const char *s = getenv(name);
    return s && *s ? s : NULL;
}

static char *join(const char *a, const char *b)
{
    struct buf s;

    buf_init(&s, 0);
    buf_printf(&s, "%s%s", a, b);
    char *out = buf_take(&s, NULL);
    buf_deinit(&s);
    return out;
}

/* The folder of the hub's tools: HF_HOME, else below the user's cache. */
static char *home_folder(void)
{
    if (env("HF_HOME")) {
        return join(env("HF_HOME"), "");
    }
    if (env("XDG_CACHE_HOME")) {
        return join(env("XDG_CACHE_HOME"), "/huggingface");
    }
    return join(env("HOME") ? env("HOME") : "", "/.cache/huggingface");
}

/* The token of HF_TOKEN, else of the file where the hub's tools keep it.  NULL: none. */
static char *read_token(const char *home)
{
    const char *given = env("HF_TOKEN");
    char *path = NULL, *token = NULL;
    struct buf text;

    buf_init(&text, 0);
    if (given) {
        buf_puts(&text, given);
    } else {
        path = env("HF_TOKEN_PATH") ? join(env("HF_TOKEN_PATH"), "") : join(home, "/token");
        if (!path || access(path, R_OK) != 0 || !file_read(path, 4096, &text, NULL)) {
            buf_clear(&text);
        }
    }
    const char *s = buf_str(&text);
    const size_t space = strspn(s, " \t\r\n"), n = strcspn(s + space, " \t\r\n");

    if (n > 0) {
        token = mem_strndup(s + space, n);
    }
    buf_deinit(&text);
    mem_free(path);
    return token;
}

static bool is_true(const char *s)
{
    return s && (strcmp(s, "1") == 0 || strcasecmp(s, "true") == 0 || strcasecmp(s, "yes") == 0 ||
                 strcasecmp(s, "on") == 0);
}

bool hub_init(struct hub *h, slm_error *err)
{
    char *home = home_folder();
    const char *endpoint = env("HF_ENDPOINT") ? env("HF_ENDPOINT") : "https://huggingface.co";
    size_t n = strlen(endpoint);

    while (n > 0 && endpoint[n - 1] == '/') {
        n--;
    }
    *h = (struct hub){0};
    if (home) {
        h->cache = env("HF_HUB_CACHE") ? join(env("HF_HUB_CACHE"), "") : join(home, "/hub");
        h->token = read_token(home);
    }
    h->endpoint = mem_strndup(endpoint, n);
    h->offline = is_true(env("HF_HUB_OFFLINE"));
    mem_free(home);
    if (!h->cache || !h->endpoint) {
        hub_deinit(h);
        return slm_fail_nomem(err, "the cache's place");
    }
    if (strncmp(h->endpoint, "http://", 7) != 0 && strncmp(h->endpoint, "https://", 8) != 0) {
        slm_fail(err, SLM_E_ARG, "HF_ENDPOINT must begin with https:// or http://, not \"%.60s\"",
                 h->endpoint);
        hub_deinit(h);
        return false;
    }
    return true;
}

void hub_deinit(struct hub *h)
{
    mem_free(h->cache);
    mem_free(h->endpoint);
    mem_free(h->token);
    *h = (struct hub){0};
}

bool cache_is_hex(const char *s, size_t n)
{
    return strlen(s) == n && strspn(s, "0123456789abcdef") == n;
}

char *cache_path(const struct hub *h, const char *repo, const char *rest)
{
    const char *slash = strchr(repo, '/');
    struct buf s;

    buf_init(&s, 0);
    buf_printf(&s, "%s/models--%.*s--%s", h->cache, (int)(slash - repo), repo, slash + 1);
    if (rest) {
        buf_printf(&s, "/%s", rest);
    }
    char *out = buf_take(&s, NULL);
    buf_deinit(&s);
    return out;
}

bool cache_make_folders(const char *path, slm_error *err)
{
    char *part = mem_strndup(path, strlen(path));
    bool ok = part || slm_fail_nomem(err, "a path");

    for (char *s = part; ok && (s = strchr(s + 1, '/')) != NULL; *s = '/') {
        *s = 0;
        if (mkdir(part, 0777) != 0 && errno != EEXIST) {
            ok = slm_fail(err, SLM_E_IO, "%.150s: cannot be made: %s", part, strerror(errno));
        }
    }
    mem_free(part);
    return ok;
}

/* ---- links ----------------------------------------------------------------------- */

bool cache_link(const struct hub *h, const char *repo, const char *commit, const char *path,
                const char *blob, slm_error *err)
{
    struct buf rest, target;
    char *link = NULL, *from = NULL;
    bool ok = false;

    buf_init(&rest, 0);
    buf_init(&target, 0);
    buf_printf(&rest, "snapshots/%s/%s", commit, path);
    buf_puts(&target, "../../");
    for (const char *s = path; (s = strchr(s, '/')) != NULL; s++) {
        buf_puts(&target, "../");
    }
    buf_printf(&target, "blobs/%s", blob);
    link = cache_path(h, repo, buf_str(&rest));
    buf_clear(&rest);
    buf_printf(&rest, "blobs/%s", blob);
    from = cache_path(h, repo, buf_str(&rest));
    if (rest.failed || target.failed || !link || !from) {
        slm_fail_nomem(err, "a path");
    } else if (cache_make_folders(link, err)) {
        unlink(link);
        /* A file system without links gets the file itself. */
        ok = symlink(buf_str(&target), link) == 0 ||
             ((errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS) &&
              rename(from, link) == 0) ||
             slm_fail(err, SLM_E_IO, "%.150s: cannot be made: %s", link, strerror(errno));
    }
    mem_free(from);
    mem_free(link);
    buf_deinit(&target);
    buf_deinit(&rest);
    return ok;
}

/* ---- what a snapshot has --------------------------------------------------------- */

struct snapshot {
    struct arena mem;
    char *folder;             /* on disk */
    struct repo_file *files;  /* complete GGUF files, in any order */
    size_t n, cap;
    bool failed;              /* no memory */
};

static void snapshot_deinit(struct snapshot *s)
{
    arena_deinit(&s->mem);
    mem_free(s->files);
    mem_free(s->folder);
}

static void add_file(struct snapshot *s, const char *path, uint64_t size)
{
    if (s->n == s->cap) {
        struct repo_file *files = mem_realloc(s->files, s->cap ? 2 * s->cap : 16, sizeof *files);
        if (!files) {
            s->failed = true;
            return;
        }
        s->files = files;
        s->cap = s->cap ? 2 * s->cap : 16;
    }
    const char *copy = arena_strndup(&s->mem, path, strlen(path));
    s->failed = s->failed || !copy;
    s->files[s->n++] = (struct repo_file){ copy, size, "" };
}

/* All GGUF files below the folder whose links lead somewhere. */
static void scan(struct snapshot *s, const char *below, int depth)
{
    char path[REF_FILE_MAX + 2];
    struct buf full;
    struct stat st;
    struct dirent *e;

    buf_init(&full, 0);
    buf_printf(&full, "%s/%s", s->folder, below);
    DIR *d = opendir(buf_str(&full));
    while (d && (e = readdir(d)) != NULL && s->n < FILES_MAX && !s->failed) {
        const int n = snprintf(path, sizeof path, "%s%s%s", below, *below ? "/" : "", e->d_name);
        if (n >= (int)sizeof path || !registry_path_ok(path)) {
            continue;  /* among them . and .. */
        }
        buf_clear(&full);
        buf_printf(&full, "%s/%s", s->folder, path);
        s->failed = s->failed || full.failed;
        if (s->failed || stat(buf_str(&full), &st) != 0) {
            continue;
        }
        if (S_ISDIR(st.st_mode) && depth < DEPTH_MAX) {
            scan(s, path, depth + 1);
        } else if (S_ISREG(st.st_mode) && n > 5 && strcasecmp(path + n - 5, ".gguf") == 0) {
            add_file(s, path, (uint64_t)st.st_size);
        }
    }
    if (d) {
        closedir(d);
    }
    buf_deinit(&full);
}

static bool snapshot_read(const struct hub *h, const char *repo, const char *commit,
                          struct snapshot *s, slm_error *err)
{
    char rest[128];

    *s = (struct snapshot){0};
    arena_init(&s->mem, 4096, 0);
    snprintf(rest, sizeof rest, "snapshots/%s", commit);
    s->folder = cache_path(h, repo, rest);
    if (s->folder) {
        scan(s, "", 0);
    }
    if (!s->folder || s->failed) {
        snapshot_deinit(s);
        return slm_fail_nomem(err, "the list of cached files");
    }
    return true;
}

/* The commits of a repository in the cache, that of refs/main first.  Each is hex. */
enum { COMMITS_MAX = 64, COMMIT_LEN = 40 };

struct commits {
    char item[COMMITS_MAX][COMMIT_LEN + 1];
    int n;
};

static void add_commit(struct commits *c, const char *commit)
{
    for (int i = 0; i < c->n; i++) {
        if (strcmp(c->item[i], commit) == 0) {
            return;
        }
    }
    if (c->n < COMMITS_MAX && cache_is_hex(commit, COMMIT_LEN)) {
        memcpy(c->item[c->n++], commit, COMMIT_LEN + 1);
    }
}

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

static bool list_commits(const struct hub *h, const char *repo, struct commits *c, slm_error *err)
{
    char *ref = cache_path(h, repo, "refs/main"), *folder = cache_path(h, repo, "snapshots");
    struct buf text;
    struct dirent *e;

    c->n = 0;
    buf_init(&text, 0);
    if (ref && access(ref, R_OK) == 0 && file_read(ref, 256, &text, NULL)) {
        char *s = text.data;
        s[strcspn(s, " \r\n")] = 0;
        add_commit(c, s);
    }
    const int first = c->n;
    DIR *d = folder ? opendir(folder) : NULL;
    while (d && (e = readdir(d)) != NULL) {
        add_commit(c, e->d_name);
    }
    if (d) {
        closedir(d);
    }
    qsort(c->item[first], (size_t)(c->n - first), sizeof c->item[0], by_text);
    buf_deinit(&text);
    const bool ok = ref && folder;
    mem_free(ref);
    mem_free(folder);
    return ok || slm_fail_nomem(err, "a path");
}

bool cache_find(const struct hub *h, const struct model_ref *ref, char **path, slm_error *err)
{
    const struct repo_file *picked[MODEL_FILES_MAX];
    struct commits commits;
    struct snapshot s;
    size_t n;

    *path = NULL;
    if (!list_commits(h, ref->repo, &commits, err)) {
        return false;
    }
    for (int i = 0; i < commits.n && !*path; i++) {
        if (!snapshot_read(h, ref->repo, commits.item[i], &s, err)) {
            return false;
        }
        if (registry_select(ref, s.files, s.n, picked, &n, NULL)) {
            struct buf full;
            buf_init(&full, 0);
            buf_printf(&full, "%s/%s", s.folder, picked[0]->path);
            *path = buf_take(&full, NULL);
            buf_deinit(&full);
            if (!*path) {
                snapshot_deinit(&s);
                return slm_fail_nomem(err, "a path");
            }
        }
        snapshot_deinit(&s);
    }
    return true;
}

/* ---- the list -------------------------------------------------------------------- */

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct repo_file *)a)->path, ((const struct repo_file *)b)->path);
}

/* Tells the complete models of a snapshot. */
static void each_of(struct snapshot *s, const char *repo, cached_fn *fn, void *arg)
{
    const struct repo_file *picked[MODEL_FILES_MAX];
    struct model_ref ref = { .repo = "" };
    struct buf full;
    struct stat st;
    size_t n;

    qsort(s->files, s->n, sizeof s->files[0], by_path);
    for (size_t i = 0; i < s->n; i++) {
        snprintf(ref.file, sizeof ref.file, "%s", s->files[i].path);
        if (!registry_select(&ref, s->files, s->n, picked, &n, NULL) || picked[0] != &s->files[i]) {
            continue;  /* a later shard, or a set that is not complete */
        }
        struct cached_model m = { .repo = repo, .file = s->files[i].path, .shards = (int)n };
        buf_init(&full, 0);
        for (size_t k = n; k-- > 0;) {
            buf_clear(&full);
            buf_printf(&full, "%s/%s", s->folder, picked[k]->path);
            m.bytes += picked[k]->size;
            if (stat(buf_str(&full), &st) == 0 && st.st_mtime > m.mtime) {
                m.mtime = st.st_mtime;
            }
        }
        m.path = buf_str(&full);
        fn(arg, &m);
        buf_deinit(&full);
    }
}

/* "models--user--name" to "user/name"; false for other folders. */
static bool repo_of_folder(const char *folder, char out[REF_REPO_MAX])
{
    struct model_refs refs;
    const char *user = folder + strlen("models--");

    if (strncmp(folder, "models--", 8) != 0 || strlen(user) >= REF_REPO_MAX) {
        return false;
    }
    const char *name = strstr(user, "--");
    if (!name) {
        return false;
    }
    snprintf(out, REF_REPO_MAX, "%.*s/%s", (int)(name - user), user, name + 2);
    return registry_parse(out, &refs, NULL) && refs.n == 1 && strcmp(refs.item[0].repo, out) == 0;
}

bool cache_each(const struct hub *h, cached_fn *fn, void *arg, slm_error *err)
{
    struct dirent **entries = NULL;
    char repo[REF_REPO_MAX];
    struct commits commits;
    struct snapshot s;
    bool ok = true;
    const int n = scandir(h->cache, &entries, NULL, alphasort);

    for (int i = 0; i < n; i++) {
        if (ok && repo_of_folder(entries[i]->d_name, repo)) {
            ok = list_commits(h, repo, &commits, err);
            /* The current commit only; older ones usually share its blobs. */
            for (int k = 0; ok && k < commits.n; k++) {
                ok = snapshot_read(h, repo, commits.item[k], &s, err);
                if (ok) {
                    const bool any = s.n > 0;
                    each_of(&s, repo, fn, arg);
                    snapshot_deinit(&s);
                    if (any) {
                        break;
                    }
                }
            }
        }
        free(entries[i]);
    }
    free(entries);
    return ok;
}

/* ---- removal --------------------------------------------------------------------- */

/* The blob that a link of a snapshot leads to: its name, or "" for anything else. */
static void blob_of(const char *link, char out[80])
{
    char target[512];
    const ssize_t n = readlink(link, target, sizeof target - 1);

    out[0] = 0;
    if (n > 0) {
        target[n] = 0;
        const char *slash = strrchr(target, '/');
        const char *name = slash ? slash + 1 : target;
        if (cache_is_hex(name, 64) || cache_is_hex(name, 40)) {
            memcpy(out, name, strlen(name) + 1);
        }
    }
}

/* Whether any link below a folder leads to the blob. */
static bool is_used(const char *folder, const char *blob, int depth)
{
    struct dirent *e;
    struct stat st;
    char name[80];
    bool used = false;
    DIR *d = opendir(folder);

    while (d && !used && (e = readdir(d)) != NULL) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) {
            continue;
        }
        char *path = mem_alloc(strlen(folder) + strlen(e->d_name) + 2, 1);
        if (!path) {
            used = true;  /* rather keep it */
            break;
        }
        sprintf(path, "%s/%s", folder, e->d_name);
        if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
            used = depth >= DEPTH_MAX || is_used(path, blob, depth + 1);
        } else {
            blob_of(path, name);
            used = strcmp(name, blob) == 0;
        }
        mem_free(path);
    }
    if (d) {
        closedir(d);
    }
    return used;
}

/* Removes the folders above a path that have become empty, up to `top`. */
static void prune(char *path, const char *top)
{
    for (char *s; (s = strrchr(path, '/')) != NULL && strlen(top) < (size_t)(s - path);) {
        *s = 0;
        if (rmdir(path) != 0) {
            return;
        }
    }
}

/* Removes one file of a snapshot, and its blob where it was the last to need it. */
static bool remove_file(const struct hub *h, const char *repo, const struct snapshot *s,
                        const struct repo_file *f, uint64_t *freed, slm_error *err)
{
    struct buf link, rest;
    char blob[80];
    char *top = cache_path(h, repo, NULL), *snapshots = cache_path(h, repo, "snapshots");
    char *path = NULL, *stored = NULL;
    bool ok = top && snapshots;

    buf_init(&link, 0);
    buf_init(&rest, 0);
    buf_printf(&link, "%s/%s", s->folder, f->path);
    path = buf_take(&link, NULL);
    ok = (ok && path) || slm_fail_nomem(err, "a path");
    if (ok) {
        blob_of(path, blob);
        buf_printf(&rest, "blobs/%s", blob);
        stored = cache_path(h, repo, buf_str(&rest));
        ok = unlink(path) == 0 ||
             slm_fail(err, SLM_E_IO, "%.150s: cannot be removed: %s", path, strerror(errno));
    }
    if (ok && !*blob) {
        *freed += f->size;  /* the file itself was there */
    } else if (ok && stored && !is_used(snapshots, blob, 0) && unlink(stored) == 0) {
        *freed += f->size;
    }
    if (ok) {
        prune(path, top);
    }
    mem_free(stored);
    mem_free(path);
    mem_free(snapshots);
    mem_free(top);
    buf_deinit(&rest);
    buf_deinit(&link);
    return ok;
}

/* What is left of a repository without snapshots: references and empty folders. */
static void remove_shell(const struct hub *h, const char *repo)
{
    static const char *const parts[] = { "refs/main", "refs", "blobs", "snapshots", "" };
    char *top = cache_path(h, repo, NULL), *snapshots = cache_path(h, repo, "snapshots");

    if (top && snapshots && access(snapshots, F_OK) != 0) {
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
            char *path = *parts[i] ? cache_path(h, repo, parts[i]) : NULL;
            remove(path ? path : top);
            mem_free(path);
        }
    }
    mem_free(snapshots);
    mem_free(top);
}

bool cache_remove(const struct hub *h, const struct model_ref *ref, uint64_t *freed, slm_error *err)
{
    const struct repo_file *picked[MODEL_FILES_MAX];
    struct commits commits;
    struct snapshot s;
    slm_error why = {0};
    bool any = false, ok = list_commits(h, ref->repo, &commits, err);
    size_t n;

    *freed = 0;
    for (int i = 0; ok && i < commits.n; i++) {
        ok = snapshot_read(h, ref->repo, commits.item[i], &s, err);
        if (!ok) {
            break;
        }
        if (registry_select(ref, s.files, s.n, picked, &n, &why)) {
            for (size_t k = 0; ok && k < n; k++) {
                ok = remove_file(h, ref->repo, &s, picked[k], freed, err);
            }
            any = true;
        }
        snapshot_deinit(&s);
    }
    if (!ok) {
        return false;
    }
    remove_shell(h, ref->repo);
    return any || slm_fail(err, SLM_E_ARG, "%.100s is not in the cache%s%.100s", ref->repo,
                           why.code ? ": " : "", why.code ? why.msg : "");
}

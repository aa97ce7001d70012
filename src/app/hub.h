/* hub.h - models of the hub and their cache.
 *
 * The cache is the hub's own, shared with every other tool that uses it:
 *
 *     models--user--name/blobs/SHA256                  the files
 *     models--user--name/refs/main                     the commit last seen
 *     models--user--name/snapshots/COMMIT/path.gguf    links to the blobs
 *
 * A blob has its name only when it is complete and its sum is right; until then it is
 * SHA256.incomplete, to be resumed by whoever comes next.  Everything that names a path is
 * checked before: user and repository by registry.h, commits and sums as hex digits, paths
 * of a listing by registry_path_ok. */
#ifndef HUB_H
#define HUB_H

#include "app/registry.h"
#include "base/buf.h"
#include "base/mem.h"

/* Where things are, by HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE. */
struct hub {
    char *cache;      /* .../hub */
    char *endpoint;   /* without a slash at its end */
    char *token;      /* or NULL */
    bool offline;
};

bool hub_init(struct hub *h, slm_error *err);
void hub_deinit(struct hub *h);

/* ---- names, for all verbs -------------------------------------------------------- */

/* The path of a model by any of its names (registry.h), downloaded where it is not in the cache.
 * Freed with mem_free; NULL and *err on failure. */
char *hub_model(const char *name, slm_error *err);

struct pull_options {
    bool force;       /* also what this machine cannot run */
};

/* Downloads what is missing; *path (freed with mem_free) gets the first file. */
bool hub_pull(struct hub *h, const char *name, const struct pull_options *options, char **path,
              slm_error *err);

/* ---- the cache ------------------------------------------------------------------- */

/* A model in the cache: one file, or all shards. */
struct cached_model {
    const char *repo;      /* "user/name" */
    const char *file;      /* path in the repository; a set's first */
    const char *path;      /* on disk */
    uint64_t bytes;        /* of all files */
    int64_t mtime;         /* of the newest, seconds */
    int shards;
};

/* Calls fn for every complete model, sorted by repository and file. */
typedef void cached_fn(void *arg, const struct cached_model *m);
bool cache_each(const struct hub *h, cached_fn *fn, void *arg, slm_error *err);

/* The path of what the reference means, in the commit of refs/main or else in any snapshot.
 * True with *path NULL where it is not there. */
bool cache_find(const struct hub *h, const struct model_ref *ref, char **path, slm_error *err);

/* Removes what the reference means from all snapshots, and blobs that nothing else needs.
 * *freed gets their bytes.  False where there is nothing. */
bool cache_remove(const struct hub *h, const struct model_ref *ref, uint64_t *freed,
                  slm_error *err);

/* "CACHE/models--user--name" plus "/" and rest (may be NULL); freed with mem_free, NULL without
 * memory. */
char *cache_path(const struct hub *h, const char *repo, const char *rest);

/* Makes all folders in front of the last component of a path below the cache. */
bool cache_make_folders(const char *path, slm_error *err);

/* Makes snapshots/COMMIT/PATH lead to the blob. */
bool cache_link(const struct hub *h, const char *repo, const char *commit, const char *path,
                const char *blob, slm_error *err);

/* Whether s is n hex digits. */
bool cache_is_hex(const char *s, size_t n);

#endif

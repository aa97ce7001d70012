/* registry.h - what a model may be called on the command line.
 *
 *     ./model.gguf                a file
 *     qwen3, qwen3:Q8_0           an alias: repositories of the hub, tried in order
 *     user/repo, user/repo:Q6_K   a repository, and which of its quantisations
 *     user/repo/file.gguf         a file of a repository
 *
 * This part knows names only: no network and no files. */
#ifndef REGISTRY_H
#define REGISTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "slm.h"

enum { REF_REPO_MAX = 200, REF_FILE_MAX = 512, REF_QUANT_MAX = 64, REFS_MAX = 6 };

/* A place where a model may be. */
struct model_ref {
    char repo[REF_REPO_MAX];    /* "user/name", only letters, digits and ._- */
    char file[REF_FILE_MAX];    /* path in the repository, or "" */
    char quant[REF_QUANT_MAX];  /* "Q4_K_M", or "": the best guess */
};

struct model_refs {
    struct model_ref item[REFS_MAX];
    int n;                      /* 0: not a name of the hub, but a file */
};

/* Takes a name apart.  Fails for one that can be neither a file nor in the hub. */
bool registry_parse(const char *name, struct model_refs *out, slm_error *err);

/* Alias i and the first repository behind it; false past the last. */
bool registry_alias(size_t i, const char **name, const char **repo);

/* The alias that has this repository, or NULL. */
const char *registry_alias_of(const char *repo);

/* Whether a path from a listing may be used below a folder: relative, no "..", no control
 * characters, no component that a file system would refuse. */
bool registry_path_ok(const char *path);

/* One file of a repository. */
struct repo_file {
    const char *path;
    uint64_t size;
    const char *hash;           /* sha256, or git's sha1 for small files; "" where not known */
};

/* A model is split over this many files at most. */
enum { MODEL_FILES_MAX = 256 };

/* Which files of a repository a reference means: one, or all shards in order.  Fails with
 * what there is to choose from. */
bool registry_select(const struct model_ref *ref, const struct repo_file *files, size_t n,
                     const struct repo_file **picked, size_t *n_picked, slm_error *err);

#endif

/* registry.c - names of models: the table of aliases, references, and the choice among the
 * files of a repository. */
#include "app/registry.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"

/* ---- aliases --------------------------------------------------------------------- */

struct alias {
    const char *name;
    const char *refs[REFS_MAX];  /* "user/repo" or "user/repo:QUANT" */
};

/* Where each family's usual size is published.  Publishers rename and remove repositories,
 * hence several each. */
static const struct alias aliases[] = {
    { "gemma2", { "bartowski/gemma-2-2b-it-GGUF", "unsloth/gemma-2-2b-it-GGUF" } },
    { "gemma3", { "ggml-org/gemma-3-4b-it-GGUF", "unsloth/gemma-3-4b-it-GGUF",
                  "bartowski/google_gemma-3-4b-it-GGUF" } },
    { "gemma3-270m", { "unsloth/gemma-3-270m-it-GGUF", "ggml-org/gemma-3-270m-it-GGUF",
                       "bartowski/google_gemma-3-270m-it-GGUF" } },
    { "gemma3-1b", { "ggml-org/gemma-3-1b-it-GGUF", "unsloth/gemma-3-1b-it-GGUF" } },
    { "gemma3n", { "unsloth/gemma-3n-E4B-it-GGUF", "bartowski/google_gemma-3n-E4B-it-GGUF" } },
    { "gemma4", { "bartowski/gemma-4-E4B-it-GGUF", "bartowski/google_gemma-4-E4B-it-GGUF",
                  "unsloth/gemma-4-E4B-it-GGUF", "ggml-org/gemma-4-E4B-it-GGUF" } },
    { "granite", { "ibm-granite/granite-3.3-2b-instruct-GGUF",
                   "bartowski/ibm-granite_granite-3.3-2b-instruct-GGUF" } },
    { "llama2", { "TheBloke/Llama-2-7B-Chat-GGUF" } },
    { "llama3.2", { "bartowski/Llama-3.2-3B-Instruct-GGUF",
                    "unsloth/Llama-3.2-3B-Instruct-GGUF" } },
    { "llama3.2-1b", { "bartowski/Llama-3.2-1B-Instruct-GGUF",
                       "unsloth/Llama-3.2-1B-Instruct-GGUF" } },
    { "ministral3", { "mistralai/Ministral-3-3B-Instruct-2512-GGUF",
                      "unsloth/Ministral-3-3B-Instruct-2512-GGUF",
                      "bartowski/mistralai_Ministral-3-3B-Instruct-2512-GGUF" } },
    { "mistral", { "bartowski/Mistral-7B-Instruct-v0.3-GGUF",
                   "MaziyarPanahi/Mistral-7B-Instruct-v0.3-GGUF" } },
    { "mixtral", { "TheBloke/Mixtral-8x7B-Instruct-v0.1-GGUF" } },
    { "nanbeige4", { "bartowski/Nanbeige_Nanbeige4-3B-Thinking-2511-GGUF",
                     "mradermacher/Nanbeige4-3B-Thinking-2511-GGUF",
                     "bartowski/Nanbeige_Nanbeige4.1-3B-GGUF" } },
    { "olmo2", { "allenai/OLMo-2-0425-1B-Instruct-GGUF", "unsloth/OLMo-2-0425-1B-Instruct-GGUF",
                 "bartowski/allenai_OLMo-2-0425-1B-Instruct-GGUF" } },
    { "phi2", { "TheBloke/phi-2-GGUF" } },
    { "phi3", { "bartowski/Phi-3-mini-4k-instruct-GGUF",
                "microsoft/Phi-3-mini-4k-instruct-gguf" } },
    { "phi3.5", { "bartowski/Phi-3.5-mini-instruct-GGUF",
                  "MaziyarPanahi/Phi-3.5-mini-instruct-GGUF" } },
    { "phi4", { "bartowski/Phi-4-mini-instruct-GGUF",
                "bartowski/microsoft_Phi-4-mini-instruct-GGUF",
                "unsloth/Phi-4-mini-instruct-GGUF" } },
    { "qwen2.5-coder", { "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
                         "bartowski/Qwen2.5-Coder-1.5B-Instruct-GGUF" } },
    { "qwen3", { "Qwen/Qwen3-4B-GGUF", "unsloth/Qwen3-4B-GGUF", "bartowski/Qwen_Qwen3-4B-GGUF" } },
    { "qwen3-0.6b", { "Qwen/Qwen3-0.6B-GGUF", "unsloth/Qwen3-0.6B-GGUF" } },
    { "qwen3-1.7b", { "Qwen/Qwen3-1.7B-GGUF", "unsloth/Qwen3-1.7B-GGUF" } },
    { "qwen3.5", { "unsloth/Qwen3.5-4B-GGUF", "bartowski/Qwen_Qwen3.5-4B-GGUF",
                   "Qwen/Qwen3.5-4B-GGUF" } },
    { "qwen3.8", { "unsloth/Qwen3.8-27B-GGUF:UD-Q4_K_M", "unsloth/Qwen3.8-27B-GGUF",
                   "Qwen/Qwen3.8-27B-GGUF", "bartowski/Qwen_Qwen3.8-27B-GGUF" } },
    { "smollm2", { "HuggingFaceTB/SmolLM2-1.7B-Instruct-GGUF",
                   "bartowski/SmolLM2-1.7B-Instruct-GGUF" } },
    { "smollm2-135m", { "bartowski/SmolLM2-135M-Instruct-GGUF",
                        "unsloth/SmolLM2-135M-Instruct-GGUF" } },
    { "smollm2-360m", { "bartowski/SmolLM2-360M-Instruct-GGUF",
                        "HuggingFaceTB/SmolLM2-360M-Instruct-GGUF" } },
    { "smollm3", { "ggml-org/SmolLM3-3B-GGUF", "unsloth/SmolLM3-3B-GGUF",
                   "bartowski/HuggingFaceTB_SmolLM3-3B-GGUF" } },
    { "stablelm", { "TheBloke/stablelm-zephyr-3b-GGUF", "second-state/stablelm-zephyr-3b-GGUF" } },
    { "tinyllama", { "TheBloke/TinyLlama-1.1B-Chat-v1.0-GGUF" } },
};

enum { N_ALIASES = sizeof aliases / sizeof aliases[0] };

bool registry_alias(size_t i, const char **name, const char **repo)
{
    if (i >= N_ALIASES) {
        return false;
    }
    *name = aliases[i].name;
    *repo = aliases[i].refs[0];
    return true;
}

const char *registry_alias_of(const char *repo)
{
    const size_t n = strlen(repo);

    for (int i = 0; i < N_ALIASES; i++) {
        for (int k = 0; k < REFS_MAX && aliases[i].refs[k]; k++) {
            const char *ref = aliases[i].refs[k];
            if (strncasecmp(ref, repo, n) == 0 && (ref[n] == 0 || ref[n] == ':')) {
                return aliases[i].name;
            }
        }
    }
    return NULL;
}

/* ---- references ------------------------------------------------------------------ */

/* A name of the hub: letters, digits, "._-", neither hidden nor with the marks that the
 * cache gives a meaning. */
static bool is_word(const char *s, size_t n)
{
    if (n == 0 || n > 96 || s[0] == '.' || s[0] == '-') {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if (!isalnum((unsigned char)s[i]) && !strchr("._-", s[i])) {
            return false;
        }
        if (i > 0 && (s[i] == '.' || s[i] == '-') && s[i - 1] == s[i]) {
            return false;
        }
    }
    return true;
}

/* A control character of ASCII, or of the 32 that UTF-8 writes as C2 80 to C2 9F: both would
 * reach the terminal. */
static bool is_control(const char *s)
{
    const unsigned char a = (unsigned char)s[0], b = (unsigned char)s[1];
    return a < 0x20 || a == 0x7f || (a == 0xc2 && b >= 0x80 && b < 0xa0);
}

/* "." or ".." */
static bool is_dots(const char *s, size_t n)
{
    return n <= 2 && s[0] == '.' && s[n - 1] == '.';
}

bool registry_path_ok(const char *path)
{
    size_t n;

    if (strlen(path) >= REF_FILE_MAX) {
        return false;
    }
    for (const char *s = path;; s += n + 1) {
        n = strcspn(s, "/");
        if (n == 0 || n > 255 || is_dots(s, n)) {
            return false;
        }
        for (size_t i = 0; i < n; i++) {
            if (is_control(s + i) || s[i] == '\\' || s[i] == ':') {
                return false;
            }
        }
        if (s[n] == 0) {
            return true;
        }
    }
}

static bool ends_in_gguf(const char *s)
{
    const size_t n = strlen(s);
    return n > 5 && strcasecmp(s + n - 5, ".gguf") == 0;
}

/* "user/repo", "user/repo:QUANT" or "user/repo/path.gguf". */
static bool parse_ref(const char *s, struct model_ref *r)
{
    const char *slash = strchr(s, '/');

    *r = (struct model_ref){ .repo = "" };
    if (!slash || !is_word(s, (size_t)(slash - s))) {
        return false;
    }
    const size_t n = strcspn(slash + 1, "/:");
    const char *rest = slash + 1 + n;

    if (!is_word(slash + 1, n)) {
        return false;
    }
    snprintf(r->repo, sizeof r->repo, "%.*s", (int)(rest - s), s);
    if (*rest == ':') {
        snprintf(r->quant, sizeof r->quant, "%s", rest + 1);
        return strlen(rest + 1) < sizeof r->quant && is_word(rest + 1, strlen(rest + 1));
    }
    if (*rest == '/') {
        snprintf(r->file, sizeof r->file, "%s", rest + 1);
        return registry_path_ok(rest + 1) && ends_in_gguf(rest + 1);
    }
    return true;
}

static const struct alias *find_alias(const char *name, size_t n)
{
    for (int i = 0; i < N_ALIASES; i++) {
        if (strlen(aliases[i].name) == n && strncasecmp(aliases[i].name, name, n) == 0) {
            return &aliases[i];
        }
    }
    return NULL;
}

/* The references of an alias; one that the user gave a quantisation has it in all. */
static void expand(const struct alias *a, const char *quant, struct model_refs *out)
{
    for (int i = 0; i < REFS_MAX && a->refs[i]; i++) {
        struct model_ref *r = &out->item[out->n++];
        parse_ref(a->refs[i], r);
        if (*quant) {
            snprintf(r->quant, sizeof r->quant, "%s", quant);
        }
    }
}

bool registry_parse(const char *name, struct model_refs *out, slm_error *err)
{
    const size_t n = strcspn(name, ":");
    const char *quant = name[n] ? name + n + 1 : "";
    const struct alias *a = find_alias(name, n);

    *out = (struct model_refs){ .n = 0 };
    if (a && (name[n] == 0 || is_word(quant, strlen(quant)))) {
        expand(a, quant, out);
        return true;
    }
    if (strchr("/.~", *name)) {
        return true;  /* written as a path, or empty */
    }
    if (parse_ref(name, &out->item[0])) {
        /* "folder/model.gguf" is a file; no repository is called so. */
        out->n = *out->item[0].file || *out->item[0].quant || !ends_in_gguf(name);
        return true;
    }
    if (strchr(name, '/') || ends_in_gguf(name)) {
        return true;
    }
    return slm_fail(err, SLM_E_ARG, "%.100s: no such file, and no model of that name; "
                                    "\"slm list --known\" shows the names", name);
}

/* ---- the choice among files ------------------------------------------------------ */

/* What is taken where nothing is asked for: small without much loss first. */
static const char *const preferred[] = {
    "Q4_K_M", "UD-Q4_K_XL", "Q4_K_XL", "Q4_K_S", "Q4", "IQ4_XS", "IQ4_NL", "Q4_0", "Q4_1", "MXFP4",
    "Q5_K_M", "Q5_K_S", "Q5_0", "Q6_K", "Q8_0", "Q3_K_L", "Q3_K_M", "BF16", "F16",
};

/* The part of a path that says what it is: without folders, ".gguf" and shard numbers.
 * *shard: 1 for the first or only file of a model. */
static void stem_of(const char *path, const char **stem, size_t *n, int *shard, int *shards)
{
    const char *slash = strrchr(path, '/');
    int end = 0;

    *stem = slash ? slash + 1 : path;
    *n = strlen(*stem) - strlen(".gguf");
    *shard = *shards = 1;
    if (*n > 15 && sscanf(*stem + *n - 15, "-%5d-of-%5d%n", shard, shards, &end) == 2 &&
        end == 15) {
        *n -= 15;
    } else {
        *shard = *shards = 1;
    }
}

/* Whether the stem ends in the quantisation's name, as a word of its own. */
static bool says_quant(const char *stem, size_t n, const char *quant)
{
    const size_t q = strlen(quant);

    return n >= q && strncasecmp(stem + n - q, quant, q) == 0 &&
           (n == q || strchr("-._", stem[n - q - 1]));
}

/* Files that hold something else than a language model. */
static bool is_companion(const char *stem, size_t n)
{
    static const char *const words[] = { "mmproj", "imatrix" };

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const size_t w = strlen(words[i]);
        for (size_t k = 0; k + w <= n; k++) {
            if (strncasecmp(stem + k, words[i], w) == 0) {
                return true;
            }
        }
    }
    return false;
}

/* A model that begins with this file, and whether it has the quantisation ("": any). */
static bool begins_model(const struct repo_file *f, const char *quant)
{
    const char *stem;
    size_t n;
    int shard, shards;

    if (!ends_in_gguf(f->path) || !registry_path_ok(f->path)) {
        return false;
    }
    stem_of(f->path, &stem, &n, &shard, &shards);
    return shard == 1 && !is_companion(stem, n) && (!*quant || says_quant(stem, n, quant));
}

/* The shortest path with the quantisation, so that "Q4_K_M" is not "UD-Q4_K_M" where there
 * are both; then the first by name.  NULL: none. */
static const struct repo_file *find_quant(const struct repo_file *files, size_t n,
                                          const char *quant)
{
    const struct repo_file *best = NULL;

    for (size_t i = 0; i < n; i++) {
        if (!begins_model(&files[i], quant)) {
            continue;
        }
        const size_t len = strlen(files[i].path);
        if (!best || len < strlen(best->path) ||
            (len == strlen(best->path) && strcmp(files[i].path, best->path) < 0)) {
            best = &files[i];
        }
    }
    return best;
}

static const struct repo_file *find_path(const struct repo_file *files, size_t n, const char *path)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(files[i].path, path) == 0) {
            return &files[i];
        }
    }
    return NULL;
}

/* "REPO has no WANT; it has a.gguf, b.gguf, ..." */
static bool fail_choice(const struct model_ref *ref, const struct repo_file *files, size_t n,
                        slm_error *err)
{
    char names[120] = "";
    int more = 0;

    for (size_t i = 0; i < n; i++) {
        const char *slash = strrchr(files[i].path, '/');
        const char *name = slash ? slash + 1 : files[i].path;
        if (!begins_model(&files[i], "")) {
            continue;
        }
        const size_t used = strlen(names);
        if (used + strlen(name) + 3 > sizeof names) {
            more++;
            continue;
        }
        snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", name);
    }
    const char *want = *ref->file ? ref->file : ref->quant;

    if (!*names && !more) {
        return slm_fail(err, SLM_E_ARG, "%s has no GGUF model", ref->repo);
    }
    return slm_fail(err, SLM_E_ARG, "%.80s has %s%.60s; choose one of %s%s", ref->repo,
                    *want ? "no " : "several models", want, names, more ? ", ..." : "");
}

static bool only_one(const struct repo_file *files, size_t n, const struct repo_file **first)
{
    int count = 0;

    for (size_t i = 0; i < n; i++) {
        if (begins_model(&files[i], "")) {
            *first = &files[i];
            count++;
        }
    }
    return count == 1;
}

/* Any shard names the whole model. */
static const char *first_shard(const char *file, char path[REF_FILE_MAX])
{
    const char *stem;
    size_t len;
    int shard, shards;

    stem_of(file, &stem, &len, &shard, &shards);
    if (shard == 1) {
        return file;
    }
    snprintf(path, REF_FILE_MAX, "%.*s-%05d-of-%05d.gguf", (int)(stem - file + (ptrdiff_t)len),
             file, 1, shards);
    return path;
}

/* All shards of the model that begins with `first`. */
static bool add_shards(const struct repo_file *first, const struct repo_file *files, size_t n,
                       const struct repo_file **picked, size_t *n_picked, slm_error *err)
{
    const char *stem;
    char path[REF_FILE_MAX];
    size_t len;
    int shard, shards;

    stem_of(first->path, &stem, &len, &shard, &shards);
    if (shards < 1 || shards > MODEL_FILES_MAX) {
        return slm_fail(err, SLM_E_UNSUPPORTED, "%.150s: split into %d files, %d are possible",
                        first->path, shards, MODEL_FILES_MAX);
    }
    picked[0] = first;
    *n_picked = 1;
    for (int i = 2; i <= shards; i++) {
        snprintf(path, sizeof path, "%.*s-%05d-of-%05d.gguf",
                 (int)(stem - first->path + (ptrdiff_t)len), first->path, i, shards);
        const struct repo_file *f = find_path(files, n, path);
        if (!f) {
            return slm_fail(err, SLM_E_FORMAT, "%.100s: file %d of %d is missing", first->path, i,
                            shards);
        }
        picked[(*n_picked)++] = f;
    }
    return true;
}

bool registry_select(const struct model_ref *ref, const struct repo_file *files, size_t n,
                     const struct repo_file **picked, size_t *n_picked, slm_error *err)
{
    const struct repo_file *first = NULL;
    char path[REF_FILE_MAX];

    if (*ref->file) {
        first = find_path(files, n, first_shard(ref->file, path));
    } else if (*ref->quant) {
        first = find_quant(files, n, ref->quant);
    } else {
        for (size_t i = 0; !first && i < sizeof preferred / sizeof preferred[0]; i++) {
            first = find_quant(files, n, preferred[i]);
        }
        if (!first && !only_one(files, n, &first)) {
            first = NULL;
        }
    }
    if (!first || !registry_path_ok(first->path)) {
        return fail_choice(ref, files, n, err);
    }
    return add_shards(first, files, n, picked, n_picked, err);
}

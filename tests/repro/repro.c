/* repro.c - the same logit bits whatever computes them.
 *
 * For a tiny random model of every architecture and weight type one hash of all logits
 * must come from every instruction set, thread count, prompt chunking, KV layout order and
 * weight packing, and equal the one checked in (tests/data/repro.txt).  A commit that means
 * to change numerics rewrites that file with `repro --write` and says why.
 *
 *   repro MKMODEL            all
 *   repro MKMODEL --sample   a few models, for emulated machines
 *   repro MKMODEL --write    rewrites the file of hashes */
#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/rng.h"
#include "tiny_run.h"

#ifndef HASH_FILE
#define HASH_FILE TEST_DATA "/repro.txt"
#endif

static const char *const archs[] = { "llama", "qwen2", "qwen3", "gemma3" };
static const char *const types[] = { "F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0",
                                     "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K" };

/* One way to compute. */
struct way {
    int threads, chunk;
    enum model_pack pack;
    bool shuffle;
};

/* Every value of every axis, in pairs that differ; the full product runs for one model of
 * each architecture. */
static const struct way ways[] = {
    { 1, 1 << 20, MODEL_PACK_OFF, false },
    { 2, 7, MODEL_PACK_WAIT, true },
    { 3, 64, MODEL_PACK_OFF, true },
    { 2, 1, MODEL_PACK_AUTO, false },
};

/* Logits of the first SHORT tokens have a hash of their own, so that a short run on a slow
 * machine has something to equal. */
enum { SHORT = 24 };

struct hashes {
    uint64_t first, all;
};

struct run {
    const char *path, *name;
    int n_tok;             /* tokens fed */
    struct hashes hash;    /* of the first way */
    int n_ways, n_wrong;
};

static void compute(struct run *r, enum isa isa, const struct way *way)
{
    slm_error err = { .code = SLM_E_OK };
    struct tiny t;
    const int chunk = way->chunk < r->n_tok ? way->chunk : r->n_tok;
    struct rng rng = { 7 };
    int32_t ids[512];

    if (!tiny_open(&t, r->path, isa, way->threads, way->pack, KV_F16, r->n_tok, &err)) {
        fprintf(stderr, "%s: %s\n", r->path, err.msg);
        exit(1);
    }
    pool_shuffle(t.pool, way->shuffle ? 99 : 0);
    const size_t n_vocab = (size_t)model_shape(t.model)->n_vocab;
    float *out = malloc((size_t)r->n_tok * n_vocab * sizeof *out);
    for (int i = 0; i < r->n_tok; i++) {
        ids[i] = (int32_t)(rng_next(&rng) % n_vocab);
    }
    if (!tiny_feed(&t, ids, r->n_tok, chunk, out, &err)) {
        fprintf(stderr, "%s: %s\n", r->path, err.msg);
        exit(1);
    }
    const size_t short_bytes = SHORT * n_vocab * sizeof *out;
    struct hashes hash;
    hash.first = hash_bytes(HASH_INIT, out, short_bytes);
    hash.all = hash_bytes(hash.first, (char *)out + short_bytes,
                          (size_t)r->n_tok * n_vocab * sizeof *out - short_bytes);
    if (r->n_ways++ == 0) {
        r->hash = hash;
    } else if (hash.all != r->hash.all) {
        r->n_wrong++;
        printf("%s: %016llx with isa %s, %d threads, chunk %d, pack %d, shuffle %d; %016llx "
               "before\n", r->name, (unsigned long long)hash.all, isa_name(isa), way->threads,
               chunk, way->pack, way->shuffle, (unsigned long long)r->hash.all);
    }
    free(out);
    tiny_close(&t);
}

static void compute_all(struct run *r, bool product)
{
    static const int threads[] = { 1, 2, 3 };
    static const int chunks[] = { 1, 7, 64, 1 << 20 };
    static const enum model_pack packs[] = { MODEL_PACK_OFF, MODEL_PACK_WAIT };

    for (int isa = ISA_SCALAR; isa <= (int)cpu_isa_best(); isa++) {
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            compute(r, (enum isa)isa, &ways[i]);
        }
        for (int i = 0; product && i < 3 * 4 * 2; i++) {
            const struct way way = { threads[i % 3], chunks[i / 3 % 4], packs[i / 12], i % 5 == 0 };
            compute(r, (enum isa)isa, &way);
        }
    }
}

/* The hashes checked in for a name; 0 where there are none. */
static struct hashes golden(const char *name)
{
    char line[128], key[64];
    unsigned long long first, all;
    struct hashes found = { 0, 0 };
    FILE *f = fopen(HASH_FILE, "r");

    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%63s %llx %llx", key, &first, &all) == 3 && strcmp(key, name) == 0) {
            found = (struct hashes){ first, all };
        }
    }
    if (f) {
        fclose(f);
    }
    return found;
}

/* A long prompt crosses the 256-key segments of attention, and the window of gemma3. */
static int tokens_of(const char *type)
{
    return strcmp(type, "F32") == 0 || strcmp(type, "Q4_K") == 0 ? 300 : 40;
}

static void make_model(const char *mkmodel, const char *arch, const char *path, const char *type)
{
    const pid_t pid = fork();
    int status = 1;

    if (pid == 0) {
        execl(mkmodel, mkmodel, arch, path, type, "ff=256", (char *)NULL);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) < 0 || status != 0) {
        fprintf(stderr, "cannot run %s\n", mkmodel);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    const char *mode = argc > 2 ? argv[2] : "";
    const bool sample = strcmp(mode, "--sample") == 0;
    FILE *write = argc > 2 && strcmp(mode, "--write") == 0 ? fopen(HASH_FILE, "w") : NULL;
    char path[] = "/tmp/slm-repro-XXXXXX";
    int n_run = 0, n_wrong = 0;

    if (argc < 2) {
        fprintf(stderr, "usage: repro MKMODEL [--sample | --write]\n");
        return 2;
    }
    const int fd = mkstemp(path);
    if (fd < 0) {
        perror(path);
        return 1;
    }
    close(fd);
    for (size_t a = 0; a < sizeof archs / sizeof *archs; a++) {
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            char name[64];
            if (sample && (a + t) % 4 != 0) {
                continue;
            }
            snprintf(name, sizeof name, "%s-%s", archs[a], types[t]);
            struct run r = { .path = path, .name = name,
                             .n_tok = sample ? SHORT : tokens_of(types[t]) };
            make_model(argv[1], archs[a], path, types[t]);
            compute_all(&r, !sample && strcmp(types[t], "Q5_1") == 0);
            const struct hashes want = golden(name);
            if (write) {
                fprintf(write, "%s %016llx %016llx\n", name, (unsigned long long)r.hash.first,
                        (unsigned long long)r.hash.all);
            } else if (want.first != r.hash.first || (!sample && want.all != r.hash.all)) {
                r.n_wrong++;
                printf("%s: %016llx %016llx, the golden hashes are %016llx %016llx\n", name,
                       (unsigned long long)r.hash.first, (unsigned long long)r.hash.all,
                       (unsigned long long)want.first, (unsigned long long)want.all);
            }
            n_run += r.n_ways;
            n_wrong += r.n_wrong;
        }
    }
    unlink(path);
    if (write) {
        fclose(write);
    }
    printf("%d computations, %d wrong\n", n_run, n_wrong);
    return n_wrong ? 1 : 0;
}

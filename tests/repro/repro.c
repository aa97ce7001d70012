/* repro.c - the same logit bits whatever computes them.
 *
 * For a tiny random model of every architecture and weight type one hash of all logits
 * must come from every instruction set, thread count, prompt chunking, KV layout order,
 * weight packing and streaming, and equal the one checked in (tests/data/repro.txt).  An answer
 * drawn behind a prompt must have one hash of its tokens and logits without drafts and with those
 * of every source.  A commit that means
 * to change numerics rewrites that file with `repro --write` and says why.
 *
 *   repro            all
 *   repro --sample   a model of each architecture, for emulated machines
 *   repro --write    rewrites the file of hashes */
#include <unistd.h>

#include "base/hash.h"
#include "base/rng.h"
#include "run/sample.h"
#include "run/spec.h"
#include "tiny_model.h"
#include "tiny_run.h"

#ifndef HASH_FILE
#define HASH_FILE TEST_DATA "/repro.txt"
#endif

/* The type that a sample takes of architecture i, in turn. */
static const uint32_t sample_types[] = { QT_Q4_K, QT_Q4_1, QT_F16, QT_Q6_K, QT_F32 };
enum { N_SAMPLE = sizeof sample_types / sizeof *sample_types };

/* Every type with the first architecture; the others differ in what lies around the
 * products, so a few types do. */
static bool included(int arch, uint32_t type, bool sample)
{
    const bool in_sample = type == sample_types[arch % N_SAMPLE];

    return sample ? in_sample : arch == 0 || in_sample || type == QT_F32 || type == QT_Q4_K;
}

/* One way to compute. */
struct way {
    int threads, chunk;
    enum model_pack pack;
    bool shuffle;
    int percent;           /* of the weights that fit into memory, the rest being streamed; 0: all
                            * stay mapped */
};

/* Every value of every axis, in pairs that differ; the full product runs for one model of
 * each architecture. */
static const struct way ways[] = {
    { 1, 1 << 20, MODEL_PACK_OFF, false, 0 },
    { 2, 7, MODEL_PACK_WAIT, true, 0 },
    { 2, 7, MODEL_PACK_AUTO, true, 60 },
    { 3, 64, MODEL_PACK_OFF, true, 0 },
    { 2, 1, MODEL_PACK_AUTO, false, 0 },
};

/* Logits of the first SHORT tokens have a hash of their own, so that a short run on a slow
 * machine has something to equal. */
enum { SHORT = 12 };

/* Of streamed weights: small enough that every matrix has several. */
enum { PIECE_BYTES = 8 << 10 };

struct hashes {
    uint64_t first, all;
};

struct run {
    const char *path, *name;
    int n_tok;             /* tokens fed */
    struct hashes hash;    /* of the first way */
    int n_ways, n_wrong;
    uint64_t weight_bytes; /* known after the first way */
    int n_streamed;        /* ways with streamed weights */
};

static void compute(struct run *r, enum isa isa, const struct way *way)
{
    slm_error err = { .code = SLM_E_OK };
    struct tiny t;
    const int chunk = way->chunk < r->n_tok ? way->chunk : r->n_tok;
    struct rng rng = { 7 };
    int32_t ids[512];

    const struct model_place place = {
        .pack = way->pack, .room_bytes = (uint64_t)way->percent * r->weight_bytes / 100,
        .piece_bytes = PIECE_BYTES,
    };
    if (!tiny_open_at(&t, r->path, isa, way->threads, &place, KV_F16, r->n_tok, &err)) {
        fprintf(stderr, "%s: %s\n", r->path, err.msg);
        exit(1);
    }
    pool_shuffle(t.pool, way->shuffle ? 99 : 0);
    r->weight_bytes = model_shape(t.model)->weight_bytes;
    r->n_streamed += model_placed(t.model).streamed_bytes > 0;
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
        printf("%s: %016llx with isa %s, %d threads, chunk %d, pack %d, shuffle %d, "
               "%d%% in memory; %016llx before\n", r->name, (unsigned long long)hash.all,
               isa_name(isa), way->threads, chunk, way->pack, way->shuffle, way->percent,
               (unsigned long long)r->hash.all);
    }
    free(out);
    tiny_close(&t);
}

/* All tiers and ways; the full product of the axes where `product`, three ways where `sample`. */
static void compute_all(struct run *r, bool product, bool sample)
{
    static const int threads[] = { 1, 2, 3 };
    static const int chunks[] = { 1, 7, 64, 1 << 20 };
    static const struct { enum model_pack pack; int percent; } places[] = {
        { MODEL_PACK_OFF, 0 }, { MODEL_PACK_WAIT, 0 }, { MODEL_PACK_OFF, 30 },
    };

    for (int isa = ISA_SCALAR; isa <= (int)cpu_isa_best(); isa++) {
        for (size_t i = 0; i < (sample ? 3 : sizeof ways / sizeof *ways); i++) {
            compute(r, (enum isa)isa, &ways[i]);
        }
        for (int i = 0; product && i < 3 * 4 * 3; i++) {
            const struct way way = { threads[i % 3], chunks[i / 3 % 4], places[i / 12].pack,
                                     i % 5 == 0, places[i / 12].percent };
            compute(r, (enum isa)isa, &way);
        }
    }
}

/* ---- answers with drafts ------------------------------------------------------------ */

static bool draw(void *arg, const float *logits, const int32_t *hist, size_t n_hist, int32_t *id,
                 slm_error *err)
{
    return sampler_draw(arg, logits, hist, n_hist, id, err);
}

static bool no_end(const void *arg, int32_t id)
{
    (void)arg;
    (void)id;
    return false;
}

/* Hash of n_out tokens drawn behind a prompt, and of the logits in the end; 0 where it fails. */
static uint64_t answer(struct model *m, enum draft_kind kind, int n_out, const struct kern *k,
                       slm_error *err)
{
    enum { N_PROMPT = 20, OUT_MAX = 32 };
    const struct spec_params draft = { kind, 3, m, NULL, true };
    const struct sample_params sampling = { .temperature = 0.5f, .top_p = 1, .typical_p = 1,
                                            .dry_base = 1, .dry_allowed = 1, .repeat_penalty = 1,
                                            .seed = 11 };
    struct session_params p = { .context = N_PROMPT + OUT_MAX, .kv = KV_F16 };
    const int n_vocab = model_shape(m)->n_vocab;
    int32_t ids[N_PROMPT], out[OUT_MAX];
    uint64_t hash = 0;

    spec_session_params(&draft, &p);
    struct session *s = session_new(m, &p, err);
    struct spec *sp = s ? spec_new(s, &draft, &p, err) : NULL;
    struct sampler *sampler = sp ? sampler_new(&sampling, n_vocab, k, err) : NULL;
    const struct spec_chooser chooser = { draw, sampler, no_end, NULL };
    for (int i = 0; i < N_PROMPT; i++) {
        ids[i] = (int32_t)(i % 7 * 31 % n_vocab);
    }
    bool ok = sampler && session_feed(s, ids, N_PROMPT, err);
    size_t n;
    for (int done = 0; ok && done < n_out; done += (int)n) {
        ok = spec_decode(sp, &chooser, out + done, (size_t)(n_out - done), &n, err);
    }
    if (ok) {
        hash = hash_bytes(HASH_INIT, out, (size_t)n_out * sizeof *out);
        hash = hash_bytes(hash, session_logits(s), (size_t)n_vocab * sizeof(float));
    }
    sampler_free(sampler);
    spec_free(sp);
    session_free(s);
    return hash;
}

/* The same answer without drafts and with those of every source, on the lowest tier and the
 * highest one. */
static void compute_answers(struct run *r, bool sample)
{
    static const char *const names[DRAFT_KINDS] = { "no drafts", "n-grams", "the draft block",
                                                    "the model itself" };
    const int isas[2] = { ISA_SCALAR, (int)cpu_isa_best() };
    uint64_t first = 0;

    for (int i = 0; i < (isas[1] > isas[0] ? 2 : 1); i++) {
        slm_error err = { .code = SLM_E_OK };
        struct tiny t;
        if (!tiny_open(&t, r->path, (enum isa)isas[i], 2, MODEL_PACK_AUTO, KV_F16, 1, &err)) {
            fprintf(stderr, "%s: %s\n", r->path, err.msg);
            exit(1);
        }
        for (int kind = 0; kind < DRAFT_KINDS; kind++) {
            if (kind == DRAFT_MTP && !model_shape(t.model)->can_draft) {
                continue;
            }
            const uint64_t hash = answer(t.model, (enum draft_kind)kind, sample ? 6 : 30,
                                         kern_get((enum isa)isas[i]), &err);
            first = first ? first : hash;
            r->n_ways++;
            if (hash != first || hash == 0) {
                r->n_wrong++;
                printf("%s: the answer is %016llx with isa %s and drafts by %s; %016llx before%s\n",
                       r->name, (unsigned long long)hash, isa_name((enum isa)isas[i]), names[kind],
                       (unsigned long long)first, err.msg);
            }
        }
        tiny_close(&t);
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
static int tokens_of(uint32_t type)
{
    return type == QT_Q4_K ? 272 : 40;
}

/* Makes the model at r->path and checks it, with all combinations of the axes where
 * `product`; what it adds to the file of hashes goes to
 * `write` where that is not NULL. */
static void run_model(struct run *r, const struct arch *arch, const struct quant_type *type,
                      bool product, bool sample, FILE *write)
{
    const struct tiny_shape shape = TINY_SHAPE;
    const struct hashes want = golden(r->name);
    slm_error err;

    if (!tiny_model_write(r->path, arch, type, &shape, &err)) {
        fprintf(stderr, "%s: %s\n", r->name, err.msg);
        exit(1);
    }
    compute_all(r, product && !sample, sample);
    if (r->n_streamed == 0) {
        r->n_wrong++;
        printf("%s: no weights were streamed\n", r->name);
    }
    compute_answers(r, sample);
    if (write) {
        fprintf(write, "%s %016llx %016llx\n", r->name, (unsigned long long)r->hash.first,
                (unsigned long long)r->hash.all);
    } else if (want.first != r->hash.first || (!sample && want.all != r->hash.all)) {
        r->n_wrong++;
        printf("%s: %016llx %016llx, the golden hashes are %016llx %016llx\n", r->name,
               (unsigned long long)r->hash.first, (unsigned long long)r->hash.all,
               (unsigned long long)want.first, (unsigned long long)want.all);
    }
}

int main(int argc, char **argv)
{
    const bool sample = argc > 1 && strcmp(argv[1], "--sample") == 0;
    const bool writing = argc > 1 && strcmp(argv[1], "--write") == 0;
    FILE *write = writing ? fopen(HASH_FILE, "w") : NULL;
    char path[] = "/tmp/slm-repro-XXXXXX";
    int n_run = 0, n_wrong = 0;
    const int fd = mkstemp(path);

    if (fd < 0 || (argc > 1 && !sample && !write)) {
        fprintf(stderr, "usage: repro [--sample | --write]\n");
        return 2;
    }
    close(fd);
    for (int a = 0; arch_at((size_t)a); a++) {
        for (uint32_t t = 0; t < QT_COUNT; t++) {
            const struct quant_type *type = quant_type(t);
            char name[64];
            if (!type || !included(a, t, sample)) {
                continue;
            }
            snprintf(name, sizeof name, "%s-%s", arch_at((size_t)a)->name, type->name);
            struct run r = { .path = path, .name = name, .n_tok = sample ? SHORT : tokens_of(t) };
            run_model(&r, arch_at((size_t)a), type, tokens_of(t) == 40 && t == sample_types[a % N_SAMPLE],
                      sample, write);
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

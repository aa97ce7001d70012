/* repro.c - the same logit bits whatever computes them.
 *
 * For a tiny random model of every architecture and weight type one hash of all logits
 * must come from every instruction set, thread count, prompt chunking, KV layout order,
 * weight packing and streaming, also where a session goes back or is saved and loaded in
 * between, and equal the one checked in (tests/data/repro.txt).  Every type of keys and values has
 * its own.  An answer drawn behind a prompt must have one hash of its tokens and logits without
 * drafts and with those of every source, and another one in a batch, whatever its company, with
 * its prompt cached or not.  A commit that means
 * to change numerics rewrites that file with `repro --write` and says why.
 *
 *   repro            all
 *   repro --sample   a model of each architecture, for emulated machines and sanitizers
 *   --part 1/4       every fourth model of these, from the first on
 *   repro --write    rewrites the file of hashes */
#include <unistd.h>

#include "base/hash.h"
#include "base/rng.h"
#include "company.h"
#include "run/sample.h"
#include "run/session.h"
#include "run/spec.h"
#include "tiny_model.h"
#include "tiny_run.h"

#ifndef HASH_FILE
#define HASH_FILE TEST_DATA "/repro.txt"
#endif

/* The type that a sample takes of architecture i, in turn. */
static const uint32_t sample_types[] = { QT_Q4_K, QT_Q4_1, QT_F16, QT_Q6_K, QT_F32 };
enum { N_SAMPLE = sizeof sample_types / sizeof *sample_types };

/* Whether the architecture's sample is of this type: with it the full product of the axes runs, and
 * all types of keys and values. */
static bool is_sample(int arch, uint32_t type)
{
    return type == sample_types[arch % N_SAMPLE];
}

/* Every type with the first architecture; the others differ in what lies around the
 * products, so a few types do. */
static bool included(int arch, uint32_t type, bool sample)
{
    return is_sample(arch, type) ||
           (!sample && (arch == 0 || type == QT_F32 || type == QT_Q4_K));
}

/* How tokens become logits: the model's own steps; a session that goes back to its first third
 * after the second one; a session that is saved after the half and loaded by another. */
enum feeding { FEED_STEPS, FEED_BACK, FEED_SAVED };

/* One way to compute. */
struct way {
    int threads, chunk;
    enum model_pack pack;
    bool shuffle;
    int percent;           /* of the weights that fit into memory, the rest being streamed; 0: all
                            * stay mapped */
    enum feeding feeding;
};

/* Every value of every axis, in pairs that differ; the full product runs for one model of
 * each architecture. */
static const struct way ways[] = {
    { 1, 1 << 20, MODEL_PACK_OFF, false, 0, FEED_STEPS },
    { 2, 7, MODEL_PACK_WAIT, true, 0, FEED_STEPS },
    { 2, 7, MODEL_PACK_AUTO, true, 60, FEED_STEPS },
    { 3, 64, MODEL_PACK_OFF, true, 0, FEED_STEPS },
    { 2, 1, MODEL_PACK_AUTO, false, 0, FEED_STEPS },
};

/* What sessions do, for a model of each architecture and every type of keys and values. */
static const struct way session_ways[] = {
    { 2, 50, MODEL_PACK_OFF, false, 0, FEED_BACK },
    { 1, 7, MODEL_PACK_OFF, false, 0, FEED_SAVED },
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
    enum kv_type kv;
    int n_tok;             /* tokens fed */
    struct hashes hash;    /* of the first way */
    int n_ways, n_wrong;
    uint64_t weight_bytes; /* known after the first way */
    int n_streamed;        /* ways with streamed weights */
};

static void require(bool ok, const struct run *r, const slm_error *err)
{
    if (!ok) {
        fprintf(stderr, "%s: %s\n", r->path, err->msg);
        exit(1);
    }
}

static struct session *make_session(const struct run *r, struct model *m, int chunk)
{
    const struct session_params p = { .context = r->n_tok, .chunk = chunk, .kv = r->kv };
    slm_error err = {0};
    struct session *s = session_new(m, &p, &err);

    require(s != NULL, r, &err);
    return s;
}

/* Logits after each of the tokens by sessions. */
static void feed_sessions(const struct run *r, struct model *m, const struct way *way, int chunk,
                          const int32_t *ids, float *out)
{
    const size_t n = (size_t)r->n_tok, n_vocab = (size_t)model_shape(m)->n_vocab;
    const bool back = way->feeding == FEED_BACK;
    const size_t first = back ? 2 * n / 3 : n / 2, from = back ? n / 3 : first;
    struct session *s = make_session(r, m, chunk);
    char path[] = "/tmp/slm-repro-XXXXXX";
    slm_error err = {0};

    require(session_score(s, ids, first, out, &err), r, &err);
    if (back) {
        require(session_truncate(s, from, &err), r, &err);
    } else {
        const int fd = mkstemp(path);
        close(fd);
        require(fd >= 0 && session_save(s, path, &err), r, &err);
        session_free(s);
        s = make_session(r, m, chunk);
        require(session_load(s, path, &err), r, &err);
        unlink(path);
    }
    require(session_score(s, ids + from, n - from, out + from * n_vocab, &err), r, &err);
    session_free(s);
}

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
    require(tiny_open_at(&t, r->path, isa, way->threads, &place, r->kv, r->n_tok, &err), r, &err);
    pool_shuffle(t.pool, way->shuffle ? 99 : 0);
    r->weight_bytes = model_shape(t.model)->weight_bytes;
    r->n_streamed += model_placed(t.model).streamed_bytes > 0;
    const size_t n_vocab = (size_t)model_shape(t.model)->n_vocab;
    float *out = malloc((size_t)r->n_tok * n_vocab * sizeof *out);
    for (int i = 0; i < r->n_tok; i++) {
        ids[i] = (int32_t)(rng_next(&rng) % n_vocab);
    }
    if (way->feeding == FEED_STEPS) {
        require(tiny_feed(&t, ids, r->n_tok, chunk, out, &err), r, &err);
    } else {
        feed_sessions(r, t.model, way, chunk, ids, out);
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
               "%d%% in memory, feeding %d; %016llx before\n", r->name,
               (unsigned long long)hash.all, isa_name(isa), way->threads, chunk, way->pack,
               way->shuffle, way->percent, (int)way->feeding, (unsigned long long)r->hash.all);
    }
    free(out);
    tiny_close(&t);
}

/* All tiers and ways; the full product of the axes where `product`, three ways where `few`, and
 * sessions where `sessions`. */
static void compute_all(struct run *r, bool product, bool few, bool sessions)
{
    static const int threads[] = { 1, 2, 3 };
    static const int chunks[] = { 1, 7, 64, 1 << 20 };
    static const struct { enum model_pack pack; int percent; } places[] = {
        { MODEL_PACK_OFF, 0 }, { MODEL_PACK_WAIT, 0 }, { MODEL_PACK_OFF, 30 },
    };

    for (int isa = ISA_SCALAR; isa <= (int)cpu_isa_best(); isa++) {
        for (size_t i = 0; i < (few ? 3 : sizeof ways / sizeof *ways); i++) {
            compute(r, (enum isa)isa, &ways[i]);
        }
        for (int i = 0; product && i < 3 * 4 * 3; i++) {
            const struct way way = { threads[i % 3], chunks[i / 3 % 4], places[i / 12].pack,
                                     i % 5 == 0, places[i / 12].percent, FEED_STEPS };
            compute(r, (enum isa)isa, &way);
        }
    }
    for (size_t i = 0; sessions && i < sizeof session_ways / sizeof *session_ways; i++) {
        compute(r, cpu_isa_best(), &session_ways[i]);
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

/* An answer of a batch in every company, on the lowest tier and the highest one.  The prompt is
 * long enough that some of it can be cached by every model. */
static void compute_companies(struct run *r, bool sample)
{
    const int isas[2] = { ISA_SCALAR, (int)cpu_isa_best() };
    const int n_prompt = sample ? 90 : 150, n_out = sample ? 3 : 12;
    uint64_t first = 0;

    for (int i = 0; i < (isas[1] > isas[0] ? 2 : 1); i++) {
        slm_error err = { .code = SLM_E_OK };
        struct tiny t;
        require(tiny_open(&t, r->path, (enum isa)isas[i], 2, MODEL_PACK_AUTO, KV_F16, 1, &err), r,
                &err);
        for (const struct company *c = companies; c->what; c++) {
            if (sample && !(c->neighbours > 0 && c->again) && c != companies) {
                continue;
            }
            const uint64_t hash = company_hash(t.model, t.pool, kern_get((enum isa)isas[i]), c,
                                               n_prompt, n_out, &err);
            first = first ? first : hash;
            r->n_ways++;
            if (hash != first || hash == 0) {
                r->n_wrong++;
                printf("%s: the answer %s is %016llx with isa %s; %016llx before %s\n", r->name,
                       c->what, (unsigned long long)hash, isa_name((enum isa)isas[i]),
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

/* Compares with the hashes checked in; what belongs into their file goes to `write` where that is
 * not NULL. */
static void check_run(struct run *r, bool sample, FILE *write)
{
    const struct hashes want = golden(r->name);

    if (r->n_streamed == 0) {
        r->n_wrong++;
        printf("%s: no weights were streamed\n", r->name);
    }
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

struct totals { int n_run, n_wrong; };

/* Makes a model at the path and checks it with each type of keys and values that it is in for; f16
 * first, under the model's own name. */
static void run_model(const char *path, int a, uint32_t type, bool sample, FILE *write,
                      struct totals *totals)
{
    static const struct { enum kv_type kv; const char *suffix; } kvs[] = {
        { KV_F16, "" }, { KV_F32, "/f32" }, { KV_Q8_0, "/q8_0" },
    };
    const struct tiny_shape shape = TINY_SHAPE;
    const struct arch *arch = arch_at((size_t)a);
    slm_error err = {0};

    if (!tiny_model_write(path, arch, quant_type(type), &shape, &err)) {
        fprintf(stderr, "%s: %s\n", arch->name, err.msg);
        exit(1);
    }
    for (int i = 0; i < (is_sample(a, type) ? KV_TYPES : 1); i++) {
        char name[64];
        struct run r = { .path = path, .name = name, .kv = kvs[i].kv,
                         .n_tok = sample ? SHORT : tokens_of(type) };
        snprintf(name, sizeof name, "%s-%s%s", arch->name, quant_type(type)->name, kvs[i].suffix);
        compute_all(&r, i == 0 && !sample && is_sample(a, type) && r.n_tok == 40, sample || i > 0,
                    is_sample(a, type));
        if (i == 0) {
            compute_answers(&r, sample);
            if (is_sample(a, type)) {
                compute_companies(&r, sample);
            }
        }
        check_run(&r, sample, write);
        totals->n_run += r.n_ways;
        totals->n_wrong += r.n_wrong;
    }
}

struct options {
    bool sample, write;
    int part, n_parts;
};

static bool read_options(struct options *o, int argc, char **argv)
{
    *o = (struct options){ .part = 1, .n_parts = 1 };
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--sample") == 0) {
            o->sample = true;
        } else if (strcmp(argv[i], "--write") == 0) {
            o->write = true;
        } else if (strcmp(argv[i], "--part") != 0 || i + 1 == argc ||
                   sscanf(argv[++i], "%d/%d", &o->part, &o->n_parts) != 2 || o->part < 1 ||
                   o->part > o->n_parts) {
            return false;
        }
    }
    return !o->write || (!o->sample && o->n_parts == 1);
}

int main(int argc, char **argv)
{
    struct options o;
    char path[] = "/tmp/slm-repro-XXXXXX";
    struct totals totals = { 0, 0 };
    int model = 0;

    if (!read_options(&o, argc, argv)) {
        fprintf(stderr, "usage: repro [--sample] [--part I/N] | --write\n");
        return 2;
    }
    FILE *write = o.write ? fopen(HASH_FILE, "w") : NULL;
    const int fd = mkstemp(path);

    if (fd < 0 || (o.write && !write)) {
        perror("repro");
        return 2;
    }
    close(fd);
    for (int a = 0; arch_at((size_t)a); a++) {
        for (uint32_t t = 0; t < QT_COUNT; t++) {
            if (quant_type(t) && included(a, t, o.sample) && model++ % o.n_parts == o.part - 1) {
                run_model(path, a, t, o.sample, write, &totals);
            }
        }
    }
    unlink(path);
    if (write) {
        fclose(write);
    }
    printf("%d computations, %d wrong\n", totals.n_run, totals.n_wrong);
    return totals.n_wrong ? 1 : 0;
}

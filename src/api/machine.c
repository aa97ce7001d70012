/* machine.c - what the machine is, and whether the kernels are right on it. */
#include <stdio.h>
#include <string.h>

#include <jansson.h>
#include <utf8proc.h>

#include "api/api.h"
#include "base/cpu.h"
#include "base/time.h"
#include "kern/burst.h"

bool slm_machine_get(slm_machine *out, slm_error *err)
{
    enum isa isa;

    if (!api_arg(out != NULL, "slm_machine_get", "out is NULL", err) || !cpu_isa(&isa, err)) {
        return false;
    }
    memset(out, 0, sizeof *out);
    snprintf(out->isa, sizeof out->isa, "%s", isa_name(isa));
    cpu_features(out->features, sizeof out->features);
    out->cores = cpu_usable_cores(out->cores_why, sizeof out->cores_why);
    out->ram_bytes = cpu_ram_bytes();
    return true;
}

const char *slm_build(void)
{
#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "an unknown compiler"
#endif
#if defined(__x86_64__)
#define PROCESSOR "x86-64"
#elif defined(__aarch64__)
#define PROCESSOR "aarch64"
#else
#define PROCESSOR "an unknown processor"
#endif
    /* The version of utf8proc is the one of its header: constant text needs no lock. */
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
    return COMPILER " for " PROCESSOR ", jansson " JANSSON_VERSION ", utf8proc " TEXT(
        UTF8PROC_VERSION_MAJOR) "." TEXT(UTF8PROC_VERSION_MINOR) "." TEXT(UTF8PROC_VERSION_PATCH);
#undef TEXT
#undef TEXT_
#undef PROCESSOR
#undef COMPILER
}

bool slm_selftest(slm_error *err)
{
    enum isa isa;
    char what[200];

    if (!cpu_isa(&isa, err)) {
        return false;
    }
    const uint64_t fp = fpenv_enter();
    bool ok = kern_canary();
    if (!ok) {
        slm_fail(err, SLM_E_INTERNAL, "this build contracts or reorders floating-point "
                                      "arithmetic; build it with its own flags");
    } else if (!kern_selftest(kern_get(isa), what, sizeof what)) {
        ok = slm_fail(err, SLM_E_INTERNAL, "%s kernels differ from scalar: %s", isa_name(isa),
                      what);
    }
    fpenv_leave(fp);
    return ok;
}

/* ---- memory bandwidth ------------------------------------------------------------------ */

/* Bytes of one task: many tasks, so that a thread that comes late does not decide the
 * time, and long enough that their ends do not count. */
enum { READ_PIECE = 4 << 20 };

/* How far ahead lines are asked for, into the second-level cache and from there into the first:
 * what kernels do too.  With requests to the first one alone, or nearer ones, a core waits more and
 * reads a fifth less. */
enum { READ_AHEAD_L2 = 4608, READ_AHEAD_L1 = 2304 };

enum { READ_LINE = 64 };

enum { READ_ROUNDS = 5 };

struct reading {
    unsigned char *data;
    size_t bytes;
    uint64_t *sum;    /* [tasks], so that the reads have a use */
};

static size_t piece_bytes(const struct reading *r, int task)
{
    const size_t left = r->bytes - (size_t)task * READ_PIECE;
    return left < READ_PIECE ? left : READ_PIECE;
}

/* Written once: pages that were never written are all the same page of zeros. */
static void fill_piece(void *arg, int task, int worker)
{
    const struct reading *r = arg;

    (void)worker;
    memset(r->data + (size_t)task * READ_PIECE, task + 1, piece_bytes(r, task));
}

/* One word of each line: memory gives whole lines. */
static void read_piece(void *arg, int task, int worker)
{
    const struct reading *r = arg;
    const unsigned char *p = r->data + (size_t)task * READ_PIECE;
    const size_t n = piece_bytes(r, task);
    uint64_t sum = 0;

    (void)worker;
    for (size_t i = 0; i + READ_LINE <= n; i += READ_LINE) {
        uint64_t word;

        __builtin_prefetch(p + i + READ_AHEAD_L2, 0, 2);
        __builtin_prefetch(p + i + READ_AHEAD_L1, 0, 3);
        memcpy(&word, p + i, sizeof word);
        sum += word;
    }
    r->sum[task] = sum;
}

static double read_rate(struct reading *r, struct pool *pool, int tasks)
{
    double best = 0;

    for (int round = 0; round < READ_ROUNDS; round++) {
        const double begin = time_now();
        pool_run(pool, read_piece, r, tasks);
        const double rate = (double)r->bytes / (time_now() - begin);
        best = rate > best ? rate : best;
    }
    return best;
}

double slm_bandwidth(size_t bytes, int threads)
{
    double rate = -1;

    if (bytes < READ_PIECE || bytes > SIZE_MAX / 2 || threads < 1 || threads > API_THREADS_MAX) {
        return -1;
    }
    const int tasks = (int)((bytes + READ_PIECE - 1) / READ_PIECE);
    struct reading r = { mem_pages(bytes), bytes, mem_zalloc((size_t)tasks, sizeof *r.sum) };
    struct pool *pool = pool_new(threads, NULL);

    if (r.data && r.sum && pool) {
        pool_run(pool, fill_piece, &r, tasks);
        rate = read_rate(&r, pool, tasks);
    }
    pool_free(pool);
    mem_free(r.sum);
    if (r.data) {
        mem_pages_free(r.data, bytes);
    }
    return rate;
}

/* ---- integer products -------------------------------------------------------------------- */

/* Rounds of a task: under a millisecond on any tier. */
enum { BURST_ROUNDS = 20000, BURST_TASKS = 16, BURST_TRIES = 5 };

struct bursts {
    burst_fn *fn;
    uint64_t products[API_THREADS_MAX * BURST_TASKS];
};

static void burst_task(void *arg, int task, int worker)
{
    struct bursts *b = arg;

    (void)worker;
    b->products[task] = b->fn(BURST_ROUNDS);
}

static burst_fn *burst_of(enum isa isa)
{
#if defined(__x86_64__)
    static burst_fn *const fns[ISA_COUNT] = {
        [ISA_SCALAR] = burst_scalar, [ISA_AVX2] = burst_avx2, [ISA_AVX512] = burst_avx512,
        [ISA_AMX] = burst_amx,
    };
    return fns[isa];
#else
    (void)isa;
    return burst_scalar;
#endif
}

double slm_product_rate(int threads)
{
    enum isa isa;
    double rate = -1;

    if (threads < 1 || threads > API_THREADS_MAX || !cpu_isa(&isa, NULL)) {
        return -1;
    }
    struct bursts *b = mem_zalloc(1, sizeof *b);
    struct pool *pool = pool_new(threads, NULL);
    if (b && pool) {
        b->fn = burst_of(isa);
        for (int i = 0; i < BURST_TRIES; i++) {
            const int tasks = threads * BURST_TASKS;
            double products = 0;
            const double begin = time_now();
            pool_run(pool, burst_task, b, tasks);
            const double seconds = time_now() - begin;
            for (int t = 0; t < tasks; t++) {
                products += (double)b->products[t];
            }
            rate = products / seconds > rate ? products / seconds : rate;
        }
    }
    pool_free(pool);
    mem_free(b);
    return rate;
}

/* bench.c - rates of the integer products of one tier.
 *
 * GEMV from memory is given beside a pure read of the same bytes in the same
 * rounds, because other users of a machine move both.  Times are processor time
 * of this thread, the best of several rounds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "kern/dot.h"
#include "kerncheck.h"

enum { MM_ROWS = 256, MM_TOKENS = 512, ROUNDS = 5 };

static int row_k;  /* weights in a row */

static void *checked(void *p)
{
    if (p == NULL) {
        fprintf(stderr, "kerncheck: not enough memory; try a smaller --mib\n");
        exit(1);
    }
    return p;
}

/* Processor time: a busy machine takes turns away, which is no fault of a kernel. */
static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void print_cpu(void)
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");

    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, "model name", 10) == 0) {
            printf("%s", line);
            break;
        }
    }
    if (f != NULL) {
        fclose(f);
    }
}

/* n_groups row groups with ordinary scales, in the tier's layout; the first few are
 * random and then repeat. */
static uint8_t *matrix_new(const struct kern *k, const struct quant_type *type, size_t n_groups,
                           size_t *group_bytes)
{
    enum { DISTINCT = 16 };
    const size_t row_bytes = (size_t)(row_k / type->block * type->block_bytes);
    struct rng rng = { 5 };

    *group_bytes = PANEL_ROWS * row_bytes;
    uint8_t *rows = checked(mem_alloc(*group_bytes, 1));
    uint8_t *w = checked(mem_pages(*group_bytes * n_groups));
    for (size_t g = 0; g < n_groups; g++) {
        uint8_t *out = w + g * *group_bytes;
        if (g >= DISTINCT) {
            memcpy(out, w + g % DISTINCT * *group_bytes, *group_bytes);
            continue;
        }
        for (size_t i = 0; i < *group_bytes; i++) {
            rows[i] = (uint8_t)rng_next(&rng);
        }
        for (size_t i = 0; i < *group_bytes; i += (size_t)type->block_bytes) {
            quant_set_scales(type, rows + i, 0x1C00, 0x1C00);
        }
        if (k->panels) {
            panel_pack(type, rows, row_bytes, row_k, PANEL_ROWS, out);
        } else {
            memcpy(out, rows, *group_bytes);
        }
    }
    mem_free(rows);
    return w;
}

static void *acts_new(const struct kern *k, enum act_kind kind, int n_tok)
{
    struct rng rng = { 6 };
    const size_t n = (size_t)n_tok * (size_t)row_k;
    float *x = checked(mem_alloc(n, sizeof *x));
    void *act = checked(mem_alloc_aligned(k->act_bytes(kind, row_k, n_tok)));

    for (size_t i = 0; i < n; i++) {
        x[i] = (float)rng_unit(rng_next(&rng)) - 0.5f;
    }
    k->act_quant(kind, x, (size_t)row_k, row_k, n_tok, 0, n_tok, act);
    mem_free(x);
    return act;
}

static volatile uint64_t sink;

/* Reads n bytes and nothing else, with the same prefetching as the kernels. */
static double read_seconds(const uint8_t *p, size_t n)
{
    const double start = now();
    uint64_t sum[8] = { 0 };

    for (size_t i = 0; i + 64 <= n; i += 64) {
        uint64_t v[8];
        __builtin_prefetch(p + i + 8192, 0, 2);
        __builtin_prefetch(p + i + 2304, 0, 3);
        memcpy(v, p + i, sizeof v);
        for (int j = 0; j < 8; j++) {
            sum[j] ^= v[j];
        }
    }
    for (int j = 0; j < 8; j++) {
        sink += sum[j];
    }
    return now() - start;
}

struct job {
    const struct kern *kern;
    const struct quant_type *type;
    const uint8_t *w;
    int n_rows, n_tok;
    void *act;
    float *y;
};

/* Repeats until the time can be measured. */
static double mm_seconds(const struct job *j)
{
    const double start = now();
    double t;
    int n = 0;

    do {
        j->kern->mm[j->type->id](j->w, row_k, j->n_rows, j->act, j->n_tok, 0, j->n_tok, j->y,
                                 (size_t)j->n_rows);
        n++;
        t = now() - start;
    } while (t < 0.01);
    return t / n;
}

static double best_mm(const struct job *j)
{
    double best = 1e9;

    for (int i = 0; i < ROUNDS; i++) {
        const double t = mm_seconds(j);
        best = t < best ? t : best;
    }
    return best;
}

static double best_pack(const struct kern *k, const struct quant_type *type, size_t group_bytes)
{
    const size_t row_bytes = group_bytes / PANEL_ROWS;
    uint8_t *rows = checked(mem_alloc_aligned(group_bytes));
    uint8_t *out = checked(mem_alloc_aligned(group_bytes));
    double best = 1e9;

    memset(rows, 0x55, group_bytes);
    for (int i = 0; i < ROUNDS; i++) {
        const double start = now();
        double t;
        int n = 0;
        do {
            k->pack(type, rows, row_bytes, row_k, PANEL_ROWS, out);
            n++;
            t = now() - start;
        } while (t < 0.005);
        best = t / n < best ? t / n : best;
    }
    mem_free(rows);
    mem_free(out);
    return best;
}

/* One token, and the time of few tokens as a multiple of it. */
static void bench_memory(const struct kern *k, const struct quant_type *type, size_t bytes)
{
    enum { COUNTS = 5 };
    static const int tokens[COUNTS] = { 1, 2, 3, 4, 8 };
    size_t group_bytes = (size_t)(row_k / type->block * type->block_bytes) * PANEL_ROWS;
    const size_t n_groups = bytes / group_bytes + 1;
    uint8_t *w = matrix_new(k, type, n_groups, &group_bytes);
    const size_t n = n_groups * group_bytes, n_rows = n_groups * PANEL_ROWS;
    float *y = checked(mem_alloc(n_rows * (size_t)tokens[COUNTS - 1], sizeof *y));
    double read = 1e9, mm[COUNTS];
    struct job jobs[COUNTS];

    for (int i = 0; i < COUNTS; i++) {
        jobs[i] = (struct job){ k, type, w, (int)n_rows, tokens[i],
                                acts_new(k, type->act, tokens[i]), y };
        mm[i] = 1e9;
    }
    for (int round = 0; round < ROUNDS; round++) {
        const double r = read_seconds(w, n);
        read = r < read ? r : read;
        for (int i = 0; i < COUNTS; i++) {
            const double t = mm_seconds(&jobs[i]);
            mm[i] = t < mm[i] ? t : mm[i];
        }
    }
    printf("  %5.1f (%3.0f%%)", (double)n / mm[0] * 1e-9, 100 * read / mm[0]);
    for (int i = 1; i < COUNTS; i++) {
        printf(" x%.2f", mm[i] / mm[0]);
    }
    for (int i = 0; i < COUNTS; i++) {
        mem_free(jobs[i].act);
    }
    mem_free(y);
    mem_pages_free(w, n);
}

static void bench_cache(const struct kern *k, const struct quant_type *type)
{
    static const int tokens[] = { 1, 2, 3, 4, 6, 8, 16, 64, MM_TOKENS };
    size_t group_bytes;
    const size_t n_groups = MM_ROWS / PANEL_ROWS;
    uint8_t *w = matrix_new(k, type, n_groups, &group_bytes);
    struct job j = { k, type, w, MM_ROWS, 1, NULL, NULL };

    j.y = checked(mem_alloc((size_t)MM_ROWS * MM_TOKENS, sizeof *j.y));
    for (int i = 0; i < (int)(sizeof tokens / sizeof *tokens); i++) {
        j.n_tok = tokens[i];
        j.act = acts_new(k, type->act, j.n_tok);
        const double t = best_mm(&j);
        if (i == 0) {
            printf("  %5.1f  ", (double)(n_groups * group_bytes) / t * 1e-9);
        }
        printf(" %6.1f", (double)MM_ROWS * (double)row_k * j.n_tok / t * 1e-9);
        mem_free(j.act);
        fflush(stdout);
    }
    if (k->pack != NULL) {
        printf("  %5.1f", (double)group_bytes / best_pack(k, type, group_bytes) * 1e-9);
    }
    printf("\n");
    mem_free(j.y);
    mem_pages_free(w, n_groups * group_bytes);
}

void kerncheck_dot_bench(const struct kern *k, const char *only, int n_k, size_t matrix_bytes)
{
    row_k = n_k;
    print_cpu();
    printf("%s, one thread, K = %d: GEMV in GB/s from memory (%% of a pure read), time for "
           "2, 3, 4, 8 tokens;\nGEMV in GB/s from cache, GMAC/s of %d rows for 1, 2, 3, 4, 6, 8, "
           "16, 64, %d tokens, packing in GB/s\n",
           isa_name(k->isa), row_k, MM_ROWS, MM_TOKENS);
    for (uint32_t id = 0; id < QT_COUNT; id++) {
        const struct quant_type *type = quant_type(id);
        if (type == NULL || k->mm[id] == NULL || (only != NULL && strcmp(only, type->name) != 0)) {
            continue;
        }
        printf("%-7s", type->name);
        bench_memory(k, type, matrix_bytes);
        bench_cache(k, type);
    }
}

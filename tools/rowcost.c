/* rowcost.c - what a step with several rows costs beside one with a single row.
 *
 *   rowcost MODEL.gguf [CONTEXT [ROUNDS [THREADS]]]
 *
 * Verifying n drafts is a step of n + 1 rows, so these numbers say from which share of right
 * drafts on they gain; the last columns give the speed-up at 50, 70 and 90% of them, the drafts
 * themselves not counted.  Times are the best of all rounds, in which the counts take turns; with
 * one thread they are its processor time, which a busy machine disturbs less. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cpu.h"
#include "base/time.h"
#include "run/session.h"

static const int counts[] = { 1, 2, 3, 4, 6, 8, 12, 16 };
enum { N_COUNTS = sizeof counts / sizeof *counts, ROWS_MAX = 16 };

/* Tokens of a step with `rows` rows when a draft is right with chance p. */
static double tokens_of(int rows, double p)
{
    double tokens = 0;

    for (int i = 0; i < rows; i++) {
        tokens += pow(p, i);
    }
    return tokens;
}

static double now(bool own_time)
{
    struct timespec t;

    if (!own_time) {
        return time_now();
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool measure(struct session *s, int rounds, bool own_time, double *best, slm_error *err)
{
    int32_t ids[ROWS_MAX];

    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < N_COUNTS; i++) {
            for (int j = 0; j < counts[i]; j++) {
                ids[j] = 1000 + (round * 31 + j * 7) % 1000;
            }
            const double begin = now(own_time);
            if (!session_try(s, ids, counts[i], err)) {
                return false;
            }
            session_keep(s, 1);
            const double seconds = now(own_time) - begin;
            best[i] = round == 0 || seconds < best[i] ? seconds : best[i];
        }
    }
    return true;
}

static bool run(const char *path, int context, int rounds, int threads, slm_error *err)
{
    double best[N_COUNTS];
    enum isa isa;

    struct gguf *g = gguf_open(path, err);
    struct pool *pool = g ? pool_new(threads, err) : NULL;
    if (!pool || !cpu_isa(&isa, err)) {
        return false;
    }
    struct model *m = model_new(g, pool, kern_get(isa), MODEL_PACK_WAIT, err);
    const struct session_params p = { .context = context + N_COUNTS * rounds + ROWS_MAX,
                                      .trial = ROWS_MAX };
    struct session *s = m ? session_new(m, &p, err) : NULL;
    int32_t *prompt = calloc((size_t)context, sizeof *prompt);
    for (int i = 0; prompt && i < context; i++) {
        prompt[i] = 1000 + i * 13 % 1000;
    }
    const bool ok = s && prompt && session_feed(s, prompt, (size_t)context, err) &&
                    measure(s, rounds, threads == 1, best, err);
    if (ok) {
        printf("%s, %s, %d threads, behind %d tokens\n", path, isa_name(isa), pool_size(pool),
               context);
        printf("rows      ms    x 1   50%%   70%%   90%%\n");
        for (int i = 0; i < N_COUNTS; i++) {
            const double ratio = best[i] / best[0];
            printf("%4d  %6.2f  %5.2f  %4.2f  %4.2f  %4.2f\n", counts[i], best[i] * 1e3, ratio,
                   tokens_of(counts[i], 0.5) / ratio, tokens_of(counts[i], 0.7) / ratio,
                   tokens_of(counts[i], 0.9) / ratio);
        }
    }
    free(prompt);
    session_free(s);
    model_free(m);
    pool_free(pool);
    gguf_close(g);
    return ok;
}

int main(int argc, char **argv)
{
    const int context = argc > 2 ? atoi(argv[2]) : 64, rounds = argc > 3 ? atoi(argv[3]) : 10;
    char why[160];
    const int threads = argc > 4 ? atoi(argv[4]) : cpu_usable_cores(why, sizeof why);
    slm_error err = {0};

    if (argc < 2 || context < 1 || rounds < 1 || threads < 1) {
        fprintf(stderr, "usage: rowcost MODEL.gguf [CONTEXT [ROUNDS [THREADS]]]\n");
        return 2;
    }
    if (!run(argv[1], context, rounds, threads, &err)) {
        fprintf(stderr, "rowcost: %s\n", err.msg);
        return 1;
    }
    return 0;
}

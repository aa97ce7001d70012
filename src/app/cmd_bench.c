/* cmd_bench.c - slm bench: how fast a model is, and how near the machine's limits.
 *
 * A test is a number of prompt tokens or of generated tokens, after a depth of tokens that are
 * there already, for one sequence or several at once.  Every test is repeated, and all rounds go
 * through all tests in turn, so that a disturbance meets none of them alone. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "app/input.h"
#include "app/out.h"
#include "app/verbs.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/time.h"

enum { LIST_MAX = 16, ROUNDS_MAX = 100 };

struct bench_opts {
    struct opt_list models;
    const char *prompt, *gen, *depth, *batch, *threads, *output, *kv, *plot;
    int rounds;
    bool compare, profile, quiet;
};

#define AT(field) offsetof(struct bench_opts, field)

static const struct opt opts[] = {
    { "model", 'm', OPT_LIST, AT(models), "MODEL", "a model, like the operands; repeatable", 0, 0 },
    { "prompt", 'p', OPT_STR, AT(prompt), "N,..", "prompt tokens to process; 0: no such test (512)",
      0, 0 },
    { "gen", 'n', OPT_STR, AT(gen), "N,..", "tokens to generate; 0: no such test (64)", 0, 0 },
    { "depth", 'd', OPT_STR, AT(depth), "N,..", "tokens that are there before (0)", 0, 0 },
    { "batch", 'b', OPT_STR, AT(batch), "N,..", "sequences generated at once (1)", 0, 0 },
    { "threads", 't', OPT_STR, AT(threads), "N,..", "threads; 0: as many as help (0)", 0, 0 },
    { "rounds", 'r', OPT_INT, AT(rounds), "N", "repetitions of every test (5)", 1, ROUNDS_MAX },
    { "output", 'o', OPT_CHOICE, AT(output), "md|csv|json", "form of the result (md)", 0, 0 },
    { "kv-type", 0, OPT_CHOICE, AT(kv), "f16|f32|q8_0", "precision of keys and values (f16)", 0,
      0 },
    { "compare", 0, OPT_FLAG, AT(compare), NULL,
      "one line per model: binary, weights, peak RAM, cold start, speed", 0, 0 },
    { "profile", 0, OPT_FLAG, AT(profile), NULL,
      "also tell where the time of each test goes", 0, 0 },
    { "plot", 0, OPT_STR, AT(plot), "FILE", "also draw the speeds to an SVG file, with gnuplot", 0,
      0 },
    { "quiet", 0, OPT_FLAG, AT(quiet), NULL, "no progress", 0, 0 },
    { NULL, 0, OPT_FLAG, 0, NULL, NULL, 0, 0 },
};

static const char more[] =
    "The last column of the table tells how much of the machine's measured limit a test reaches:\n"
    "of the memory's bandwidth where tokens are generated (a step reads the weights once: experts\n"
    "in use, no embeddings but those that are the output too), of the rate of 8-bit products where\n"
    "a prompt is processed (without the output, which only its last token needs).  Start and\n"
    "peak RAM are those of \"slm run MODEL -p Hi -n 1\" in a process of its own, with the file in\n"
    "the page cache.\n";

static int cmd_bench(int argc, char **argv);

const struct verb verb_bench = {
    .name = "bench", .operands = "MODEL...", .summary = "measure speed, start and memory",
    .more = more, .opts = opts, .run = cmd_bench,
};

/* ---- tests ----------------------------------------------------------------------------- */

struct list {
    int item[LIST_MAX];
    int n;
};

struct test {
    int threads, n_prompt, n_gen, n_depth, n_batch;
    double seconds[ROUNDS_MAX];
    int rounds;
    time_t when;
};

struct model_result {
    const char *path;
    slm_model_info info;
    char arch[64], name[128];
    double start_s;              /* of a run of one token; negative: it failed */
    uint64_t peak_bytes;
};

struct bench {
    struct bench_opts o;
    struct list prompt, gen, depth, batch, threads;
    slm_machine machine;
    double bandwidth[LIST_MAX], products[LIST_MAX];  /* by place in `threads` */
    uint64_t binary_bytes;
    json_t *rows;                /* of all models, for json */
    FILE *plot;
};

/* "512,2048" */
static bool read_list(const char *name, const char *text, int min, int max, struct list *out)
{
    const char *p = text;

    out->n = 0;
    for (;;) {
        char *end;
        const long v = strtol(p, &end, 10);
        if (end == p || v < min || v > max || out->n == LIST_MAX ||
            (*end && *end != ',')) {
            args_usage(&verb_bench, "--%s takes numbers from %d to %d with commas between, at most "
                       "%d of them, not \"%s\"", name, min, max, LIST_MAX, text);
            return false;
        }
        out->item[out->n++] = (int)v;
        if (!*end) {
            return true;
        }
        p = end + 1;
    }
}

/* A run of a test: the time of so many tokens. */
struct run {
    double seconds, tokens;
};

static double total_tokens(const struct test *t)
{
    return t->n_prompt > 0 ? t->n_prompt : (double)t->n_gen * t->n_batch;
}

/* Tokens that mean nothing: a walk over the vocabulary away from its special beginning. */
static void fill_ids(int32_t *ids, int n, int n_vocab, int salt)
{
    for (int i = 0; i < n; i++) {
        ids[i] = (int32_t)(((uint64_t)(i + 1) * 7919u + (uint64_t)salt * 104729u) %
                           (uint64_t)n_vocab);
    }
}

/* One sequence: the time for its tokens after the depth, of which the model (NULL: none) is told to
 * keep a profile. */
static bool run_single(slm_session *s, const struct test *t, int32_t *ids, int n_vocab,
                       slm_model *profiled, struct run *out, slm_error *err)
{
    fill_ids(ids, t->n_depth + t->n_prompt + t->n_gen, n_vocab, 0);
    if (!slm_session_truncate(s, 0, err) ||
        !slm_session_feed(s, ids, (size_t)t->n_depth, err) ||
        (profiled && !slm_model_profile(profiled, err))) {
        return false;
    }
    ids += t->n_depth;
    const double begin = time_now();
    if (t->n_prompt > 0) {
        if (!slm_session_feed(s, ids, (size_t)t->n_prompt, err)) {
            return false;
        }
    }
    for (int i = 0; i < t->n_gen; i++) {
        if (!slm_session_feed(s, ids + i, 1, err)) {
            return false;
        }
    }
    *out = (struct run){ time_now() - begin, total_tokens(t) };
    return true;
}

struct arrival {
    double first_s, last_s;
    int n, waiting;              /* tokens; sequences without one */
};

static bool on_event(void *arg, const slm_event *ev)
{
    struct arrival *a = arg;

    if (ev->finish == SLM_FINISH_NONE) {
        a->last_s = time_now();
        a->n++;
        a->waiting -= ev->n_out == 1;
        if (a->waiting == 0 && a->first_s == 0) {
            a->first_s = a->last_s;
            a->n = 0;            /* counted from where all sequences run */
        }
    }
    return true;
}

/* Several sequences: the time from where all of them run, of which a profile may be kept. */
static bool run_batch(slm_model *model, const struct test *t, slm_kv_type kv, int32_t *ids,
                      int n_vocab, bool profiled, struct run *out, slm_error *err)
{
    const int depth = t->n_depth > 0 ? t->n_depth : 1;
    const slm_batch_params p = {
        .context = depth + t->n_gen + 2, .parallel = t->n_batch, .queue = t->n_batch, .kv = kv,
    };
    slm_batch *batch = slm_batch_new(model, &p, err);
    struct arrival a = { .waiting = t->n_batch };
    bool pending = true, ok = batch != NULL;

    for (int i = 0; ok && i < t->n_batch; i++) {
        slm_request r = { .ids = ids, .n_ids = (size_t)depth, .max_tokens = t->n_gen + 1,
                          .n_top = -1, .ignore_end = true, .on_event = on_event, .arg = &a };
        uint64_t id;
        fill_ids(ids, depth, n_vocab, i);
        slm_sampling_default(model, &r.sampling);
        r.sampling.temperature = 0;
        ok = slm_batch_submit(batch, &r, &id, err);
    }
    while (ok && pending) {
        const bool running = a.first_s != 0;
        ok = slm_batch_step(batch, &pending, err);
        if (ok && profiled && !running && a.first_s != 0) {
            ok = slm_model_profile(model, err);
        }
    }
    if (ok && a.n == 0) {
        ok = slm_fail(err, SLM_E_ARG, "--gen is too short for %d sequences at once", t->n_batch);
    }
    *out = (struct run){ a.last_s - a.first_s, a.n };
    slm_batch_free(batch);
    return ok;
}

static bool run_test(slm_session *s, slm_model *model, const struct test *t, slm_kv_type kv,
                     int32_t *ids, int n_vocab, bool profiled, struct run *out, slm_error *err)
{
    return t->n_batch > 1 ? run_batch(model, t, kv, ids, n_vocab, profiled, out, err)
                          : run_single(s, t, ids, n_vocab, profiled ? model : NULL, out, err);
}

/* ---- a model --------------------------------------------------------------------------- */

static int add_test(struct test *tests, int n, struct test t)
{
    if (tests) {
        tests[n] = t;
    }
    return n + 1;
}

/* All tests with so many threads; tests may be NULL to count them. */
static int make_tests(const struct bench *b, int threads, struct test *tests)
{
    int n = 0;

    for (int d = 0; d < b->depth.n; d++) {
        const int depth = b->depth.item[d];
        for (int i = 0; i < b->prompt.n; i++) {
            if (b->prompt.item[i] > 0) {
                n = add_test(tests, n, (struct test){ .threads = threads, .n_depth = depth,
                                                      .n_prompt = b->prompt.item[i],
                                                      .n_batch = 1 });
            }
        }
        for (int i = 0; i < b->gen.n; i++) {
            for (int j = 0; b->gen.item[i] > 0 && j < b->batch.n; j++) {
                n = add_test(tests, n, (struct test){ .threads = threads, .n_depth = depth,
                                                      .n_gen = b->gen.item[i],
                                                      .n_batch = b->batch.item[j] });
            }
        }
    }
    return n;
}

static int context_of(const struct test *tests, int n)
{
    int most = 1;

    for (int i = 0; i < n; i++) {
        const int len = tests[i].n_depth + tests[i].n_prompt + tests[i].n_gen;
        most = len > most ? len : most;
    }
    return most;
}

static void progress(const struct bench *b, const char *model, int round, const struct test *t)
{
    if (!b->o.quiet) {
        out_note("%s: round %d of %d, %s%d%s%d", model, round + 1, b->o.rounds,
                 t->n_prompt > 0 ? "pp" : "tg", t->n_prompt > 0 ? t->n_prompt : t->n_gen,
                 t->n_batch > 1 ? " times " : " at depth ", t->n_batch > 1 ? t->n_batch
                                                                           : t->n_depth);
    }
}

static void test_name(const struct test *t, char *out, size_t cap)
{
    const int n = snprintf(out, cap, "%s%d", t->n_prompt > 0 ? "pp" : "tg",
                           t->n_prompt > 0 ? t->n_prompt : t->n_gen);
    const int more_n = t->n_depth > 0 ? snprintf(out + n, cap - (size_t)n, " @ d%d", t->n_depth)
                                      : 0;

    if (t->n_batch > 1) {
        snprintf(out + n + more_n, cap - (size_t)(n + more_n), " x %d", t->n_batch);
    }
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static void print_profile_row(const struct run *run, const slm_profile_row *row)
{
    out_note("  %5.1f%%  %8.2f us a call, %6llu calls, %6.1f GB/s  %s",
             100 * row->seconds / run->seconds, row->seconds * 1e6 / (double)row->calls,
             (unsigned long long)row->calls, (double)row->bytes / row->seconds * 1e-9, row->name);
}

/* Where the time of a run went, on standard error so that results stay what they are. */
static void print_profile(const struct model_result *m, const struct test *t,
                          const slm_model *model, const struct run *run)
{
    slm_profile_row row, rest = { .name = "between steps", .seconds = run->seconds };
    char name[64];

    test_name(t, name, sizeof name);
    out_note("%s, %s: %.3f ms per token", base_name(m->path), name,
             run->seconds * 1e3 / run->tokens);
    for (size_t i = 0; slm_model_profile_row(model, i, &row); i++) {
        print_profile_row(run, &row);
        rest.seconds -= row.seconds;
        rest.calls = row.calls;  /* in the end those of the steps */
    }
    print_profile_row(run, &rest);
}

static bool run_tests(const struct bench *b, struct model_result *m, struct test *tests, int n,
                      slm_error *err)
{
    const slm_engine_params engine_params = { .threads = tests[0].threads };
    const slm_model_params model_params = { .pack = SLM_PACK_WAIT };
    const slm_session_params p = { .context = context_of(tests, n), .kv = input_kv(b->o.kv) };
    slm_engine *engine = slm_engine_new(&engine_params, err);
    slm_model *model = engine ? input_model(engine, m->path, &model_params, err) : NULL;
    slm_session *session = model ? slm_session_new(model, &p, err) : NULL;
    int32_t *ids = mem_alloc((size_t)p.context + 1, sizeof *ids);
    bool ok = session && (ids || slm_fail_nomem(err, "tokens"));
    struct run run = { 0 };

    if (ok) {
        slm_model_info_get(model, &m->info);
        snprintf(m->arch, sizeof m->arch, "%s", m->info.arch);
        snprintf(m->name, sizeof m->name, "%s", m->info.name);
        /* A first round that does not count touches all memory. */
        struct test warm = tests[0];
        warm.n_depth = 0;
        warm.n_gen = warm.n_prompt > 0 ? 0 : 2;
        warm.n_prompt = warm.n_prompt > 64 ? 64 : warm.n_prompt;
        ok = run_single(session, &warm, ids, m->info.n_vocab, NULL, &run, err);
    }
    for (int round = 0; ok && round < b->o.rounds; round++) {
        for (int i = 0; ok && i < n; i++) {
            struct test *t = &tests[i];
            progress(b, m->path, round, t);
            t->when = time(NULL);
            ok = run_test(session, model, t, p.kv, ids, m->info.n_vocab, false, &run, err);
            t->seconds[round] = run.seconds * total_tokens(t) / run.tokens;
            t->rounds = round + 1;
        }
    }
    for (int i = 0; ok && b->o.profile && i < n; i++) {
        ok = run_test(session, model, &tests[i], p.kv, ids, m->info.n_vocab, true, &run, err);
        if (ok) {
            print_profile(m, &tests[i], model, &run);
        }
    }
    mem_free(ids);
    slm_session_free(session);
    slm_model_free(model);
    slm_engine_free(engine);
    return ok;
}

/* Runs this program on the model for one token and measures the process.  A model without a
 * template gets the text as it is. */
static void measure_start(const struct bench *b, struct model_result *m)
{
    m->start_s = -1;
    for (int i = 0; i < b->o.rounds; i++) {
        const double begin = time_now();
        struct rusage usage;
        int status;
        const pid_t pid = fork();
        if (pid == 0) {
            if (freopen("/dev/null", "w", stdout) && freopen("/dev/null", "w", stderr)) {
                execl("/proc/self/exe", "slm", "run", m->path, "-p", "Hi", "-n", "1", "--quiet",
                      m->info.has_template ? (char *)NULL : "--raw", (char *)NULL);
            }
            _exit(127);
        }
        if (pid < 0 || wait4(pid, &status, 0, &usage) < 0 || status != 0) {
            return;
        }
        const double seconds = time_now() - begin;
        m->start_s = m->start_s < 0 || seconds < m->start_s ? seconds : m->start_s;
        m->peak_bytes = (uint64_t)usage.ru_maxrss * 1024;
    }
}

/* ---- results --------------------------------------------------------------------------- */

static double mean_rate(const struct test *t)
{
    double sum = 0;

    for (int i = 0; i < t->rounds; i++) {
        sum += total_tokens(t) / t->seconds[i];
    }
    return sum / t->rounds;
}

static double stddev_rate(const struct test *t)
{
    const double mean = mean_rate(t);
    double sum = 0;

    for (int i = 0; i < t->rounds; i++) {
        const double d = total_tokens(t) / t->seconds[i] - mean;
        sum += d * d;
    }
    return t->rounds > 1 ? sqrt(sum / (t->rounds - 1)) : 0;
}

static int threads_index(const struct bench *b, const struct test *t)
{
    int i = 0;

    while (b->threads.item[i] != t->threads) {
        i++;
    }
    return i;
}

/* Percent of what the machine could do; negative where the limit is unknown. */
static double percent(const struct bench *b, const struct model_result *m, const struct test *t)
{
    const int i = threads_index(b, t);
    const double rate = mean_rate(t);

    if (t->n_prompt > 0) {
        return b->products[i] > 0 ? 100 * rate * (double)m->info.prompt_params / b->products[i] : -1;
    }
    return b->bandwidth[i] > 0 ? 100 * rate / t->n_batch * (double)m->info.token_bytes /
                                     b->bandwidth[i] : -1;
}

static json_t *test_json(const struct bench *b, const struct model_result *m, const struct test *t)
{
    json_t *ns = json_array(), *ts = json_array();
    double mean_ns = 0, square = 0;
    char when[32];
    struct tm tm;

    for (int i = 0; i < t->rounds; i++) {
        json_array_append_new(ns, json_integer((json_int_t)(t->seconds[i] * 1e9)));
        json_array_append_new(ts, json_real(total_tokens(t) / t->seconds[i]));
        mean_ns += t->seconds[i] * 1e9 / t->rounds;
    }
    for (int i = 0; i < t->rounds; i++) {
        square += (t->seconds[i] * 1e9 - mean_ns) * (t->seconds[i] * 1e9 - mean_ns);
    }
    gmtime_r(&t->when, &tm);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &tm);
    json_t *row = json_pack(
        "{s:s, s:s, s:s, s:s, s:I, s:I, s:i, s:s, s:s, s:i, s:i, s:i, s:i, s:s}", "build_commit",
        slm_version(), "cpu_info", b->machine.isa, "backends", "CPU", "model_filename", m->path,
        "model_size", (json_int_t)m->info.weight_bytes, "model_n_params",
        (json_int_t)m->info.n_params, "n_threads", t->threads, "type_k", b->o.kv, "type_v", b->o.kv,
        "n_prompt", t->n_prompt, "n_gen", t->n_gen, "n_depth", t->n_depth, "n_parallel", t->n_batch,
        "test_time", when);
    json_object_set_new(row, "model_type", json_string(m->arch));
    json_object_set_new(row, "avg_ns", json_integer((json_int_t)mean_ns));
    json_object_set_new(row, "stddev_ns", json_integer(
        t->rounds > 1 ? (json_int_t)sqrt(square / (t->rounds - 1)) : 0));
    json_object_set_new(row, "avg_ts", json_real(mean_rate(t)));
    json_object_set_new(row, "stddev_ts", json_real(stddev_rate(t)));
    json_object_set_new(row, "samples_ns", ns);
    json_object_set_new(row, "samples_ts", ts);
    json_object_set_new(row, "percent_of_limit", json_real(percent(b, m, t)));
    json_object_set_new(row, "start_s", json_real(m->start_s));
    json_object_set_new(row, "peak_ram_bytes", json_integer((json_int_t)m->peak_bytes));
    json_object_set_new(row, "binary_bytes", json_integer((json_int_t)b->binary_bytes));
    return row;
}

static void print_row(struct bench *b, const struct model_result *m, const struct test *t)
{
    char name[64];

    test_name(t, name, sizeof name);
    if (strcmp(b->o.output, "json") == 0) {
        json_array_append_new(b->rows, test_json(b, m, t));
    } else if (strcmp(b->o.output, "csv") == 0) {
        out_printf("%s,%s,%llu,%llu,%d,%s,%d,%d,%d,%d,%.3f,%.3f,%.1f,%.4f,%llu\n",
                   base_name(m->path), m->arch, (unsigned long long)m->info.weight_bytes,
                   (unsigned long long)m->info.n_params, t->threads, b->o.kv, t->n_prompt, t->n_gen,
                   t->n_depth, t->n_batch, mean_rate(t), stddev_rate(t), percent(b, m, t),
                   m->start_s, (unsigned long long)m->peak_bytes);
    } else {
        out_printf("| %-30s | %8s | %7d | %-16s | %9.2f ± %-7.2f | %5.1f%% of %s |\n",
                   base_name(m->path), out_bytes(m->info.weight_bytes), t->threads, name,
                   mean_rate(t), stddev_rate(t), percent(b, m, t),
                   t->n_prompt > 0 ? "products" : "bandwidth");
    }
    if (b->plot) {
        fprintf(b->plot, "\"%s %s\" %.3f %.3f\n", base_name(m->path), name, mean_rate(t),
                stddev_rate(t));
    }
}

static void print_head(const struct bench *b)
{
    if (b->o.compare) {
        out_printf("| model                          | binary   | weights  | peak RAM  | cold start "
                   "| tok/s          |\n|---|---|---|---|---|---|\n");
    } else if (strcmp(b->o.output, "csv") == 0) {
        out_printf("model_filename,model_type,model_size,model_n_params,n_threads,type_k,n_prompt,"
                   "n_gen,n_depth,n_parallel,avg_ts,stddev_ts,percent_of_limit,start_s,"
                   "peak_ram_bytes\n");
    } else if (strcmp(b->o.output, "md") == 0) {
        for (int i = 0; i < b->threads.n; i++) {
            out_printf("%s, %d thread%s: %.1f GB/s read, %.0f G 8-bit products/s\n",
                       b->machine.isa, b->threads.item[i], b->threads.item[i] == 1 ? "" : "s",
                       b->bandwidth[i] * 1e-9, b->products[i] * 1e-9);
        }
        out_printf("\n| model                          |  weights | threads | test             | "
                   "            tok/s | of the limit |\n|---|---|---|---|---|---|\n");
    }
    (void)out_flush();
}

static void print_foot(const struct bench *b, const struct model_result *m)
{
    if (strcmp(b->o.output, "md") == 0 && !b->o.compare) {
        if (m->start_s < 0) {
            out_printf("\n%s: cold start not measured, a run of one token failed\n",
                       base_name(m->path));
        } else {
            out_printf("\n%s: cold start %.0f ms, peak RAM %s, binary %s\n", base_name(m->path),
                       m->start_s * 1e3, out_bytes(m->peak_bytes), out_bytes(b->binary_bytes));
        }
    }
}

static void print_compare(const struct bench *b, const struct model_result *m, const struct test *t)
{
    out_printf("| %-30s | %8s | %8s | %9s | %7.0f ms | %6.2f ± %-5.2f |\n", base_name(m->path),
               out_bytes(b->binary_bytes), out_bytes(m->info.weight_bytes),
               out_bytes(m->peak_bytes), m->start_s * 1e3, mean_rate(t), stddev_rate(t));
    (void)out_flush();
}

/* ---- running --------------------------------------------------------------------------- */

static bool bench_model(struct bench *b, const char *path, slm_error *err)
{
    struct model_result m = { .path = path };
    bool ok = true;

    measure_start(b, &m);
    for (int i = 0; ok && i < b->threads.n; i++) {
        const int n = make_tests(b, b->threads.item[i], NULL);
        struct test *tests = mem_zalloc((size_t)n, sizeof *tests);
        if (!tests) {
            return slm_fail_nomem(err, "the tests");
        }
        make_tests(b, b->threads.item[i], tests);
        ok = run_tests(b, &m, tests, n, err);
        for (int j = 0; ok && j < n; j++) {
            if (b->o.compare) {
                print_compare(b, &m, &tests[j]);
            } else {
                print_row(b, &m, &tests[j]);
            }
        }
        (void)out_flush();
        mem_free(tests);
    }
    if (ok) {
        print_foot(b, &m);
    }
    return ok;
}

static bool read_opts(struct bench *b, int argc, char **argv, struct operands *rest, int *code)
{
    struct bench_opts *o = &b->o;

    *o = (struct bench_opts){ .depth = "0", .batch = "1", .threads = "0", .output = "md",
                              .kv = "f16", .rounds = 5 };
    if (!args_parse(&verb_bench, argc, argv, o, rest, code)) {
        return false;
    }
    *code = 2;
    if (!read_list("prompt", o->prompt ? o->prompt : o->compare ? "0" : "512", 0, 1 << 20,
                   &b->prompt) ||
        !read_list("gen", o->gen ? o->gen : "64", 0, 1 << 20, &b->gen) ||
        !read_list("depth", o->depth, 0, 1 << 20, &b->depth) ||
        !read_list("batch", o->batch, 1, 1024, &b->batch) ||
        !read_list("threads", o->threads, 0, 1024, &b->threads)) {
        return false;
    }
    if (rest->n + (int)o->models.n == 0) {
        args_usage(&verb_bench, "no model; give the path of a GGUF file");
        return false;
    }
    if (make_tests(b, 1, NULL) == 0) {
        args_usage(&verb_bench, "nothing to measure: --prompt and --gen are both 0");
        return false;
    }
    return true;
}

static void measure_machine(struct bench *b)
{
    struct stat st;

    if (stat("/proc/self/exe", &st) == 0) {
        b->binary_bytes = (uint64_t)st.st_size;
    }
    for (int i = 0; i < b->threads.n; i++) {
        if (b->threads.item[i] == 0) {
            b->threads.item[i] = b->machine.cores;
        }
        b->bandwidth[i] = slm_bandwidth((size_t)512 << 20, b->threads.item[i]);
        b->products[i] = slm_product_rate(b->threads.item[i]);
    }
}

/* Begins a drawing; the data follow line by line. */
static bool open_plot(struct bench *b, slm_error *err)
{
    if (!b->o.plot) {
        return true;
    }
    b->plot = popen("gnuplot", "w");
    if (!b->plot) {
        return slm_fail(err, SLM_E_IO, "cannot start gnuplot: %s", strerror(errno));
    }
    fprintf(b->plot, "set terminal svg size 900,480 font 'sans,12'\nset output '");
    for (const char *p = b->o.plot; *p; p++) {
        fprintf(b->plot, *p == '\'' ? "''" : "%c", *p);
    }
    fprintf(b->plot, "'\nset style data histograms\nset style histogram errorbars linewidth 1\n"
            "set style fill solid 0.6\nset boxwidth 0.8\nset yrange [0:*]\nset ylabel 'tokens per "
            "second'\nset grid y\nset xtics rotate by -20 noenhanced\nunset key\n$data << EOD\n");
    return true;
}

static bool close_plot(struct bench *b, slm_error *err)
{
    if (!b->plot) {
        return true;
    }
    fprintf(b->plot, "EOD\nplot $data using 2:3:xtic(1)\n");
    const bool ok = pclose(b->plot) == 0;
    b->plot = NULL;
    return ok || slm_fail(err, SLM_E_IO, "gnuplot did not draw %s; is it installed?", b->o.plot);
}

static bool run(struct bench *b, const struct operands *rest, slm_error *err)
{
    if (!slm_machine_get(&b->machine, err) || !open_plot(b, err)) {
        return false;
    }
    measure_machine(b);
    print_head(b);
    bool ok = true;
    for (int i = 0; ok && i < rest->n; i++) {
        ok = bench_model(b, rest->item[i], err);
    }
    for (size_t i = 0; ok && i < b->o.models.n; i++) {
        ok = bench_model(b, b->o.models.item[i], err);
    }
    if (ok && strcmp(b->o.output, "json") == 0) {
        out_json(json_incref(b->rows), true);
    }
    return close_plot(b, ok ? err : NULL) && ok;
}

static int cmd_bench(int argc, char **argv)
{
    struct bench b = { .rows = json_array() };
    struct operands rest;
    slm_error err = {0};
    int code;

    if (read_opts(&b, argc, argv, &rest, &code)) {
        code = run(&b, &rest, &err) ? out_finish(0) : out_fail(&err);
    }
    json_decref(b.rows);
    return code;
}

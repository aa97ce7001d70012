/* metrics.c - what the server counts, and how Prometheus reads it. */
#include "server/metrics.h"

/* Upper bounds of the buckets in seconds, from a token of a small model to a long prompt. */
static const double bounds[METRICS_BOUNDS] = {
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60, 300,
};

void metrics_observe(struct histogram *h, double seconds)
{
    int i = 0;

    while (i < METRICS_BOUNDS && seconds > bounds[i]) {
        i++;
    }
    metrics_add(&h->count[i], 1);
    metrics_add(&h->sum_us, seconds > 0 ? (uint64_t)(seconds * 1e6) : 0);
}

void metrics_print_one(struct buf *out, const char *name, const char *type, const char *help,
                       double value)
{
    buf_printf(out, "# HELP slm_%s %s\n# TYPE slm_%s %s\nslm_%s %.17g\n", name, help, name, type,
               name, value);
}

static void print_histogram(struct buf *out, const char *name, const char *help,
                            const struct histogram *h)
{
    uint64_t sum = 0;

    buf_printf(out, "# HELP slm_%s_seconds %s\n# TYPE slm_%s_seconds histogram\n", name, help,
               name);
    for (int i = 0; i <= METRICS_BOUNDS; i++) {
        sum += atomic_load_explicit(&h->count[i], memory_order_relaxed);
        if (i < METRICS_BOUNDS) {
            buf_printf(out, "slm_%s_seconds_bucket{le=\"%g\"} %llu\n", name, bounds[i],
                       (unsigned long long)sum);
        } else {
            buf_printf(out, "slm_%s_seconds_bucket{le=\"+Inf\"} %llu\n", name,
                       (unsigned long long)sum);
        }
    }
    buf_printf(out, "slm_%s_seconds_sum %.6f\nslm_%s_seconds_count %llu\n", name,
               (double)atomic_load_explicit(&h->sum_us, memory_order_relaxed) * 1e-6, name,
               (unsigned long long)sum);
}

void metrics_print(const struct metrics *m, struct buf *out)
{
#define X(name, help) \
    metrics_print_one(out, #name "_total", "counter", help, \
                      (double)atomic_load_explicit(&m->name, memory_order_relaxed));
    METRICS_COUNTERS(X)
#undef X
#define X(name, help) print_histogram(out, #name, help, &m->name##_s);
    METRICS_HISTOGRAMS(X)
#undef X
}

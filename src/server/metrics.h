/* metrics.h - counters and histograms for /metrics. */
#ifndef METRICS_H
#define METRICS_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/buf.h"

/* Counters: name, help. */
#define METRICS_COUNTERS(X)                                                               \
    X(requests, "Requests answered, of any kind")                                         \
    X(errors_client, "Requests answered with a status of 400 to 499")                     \
    X(errors_server, "Requests answered with a status of 500 or more")                    \
    X(cancelled, "Requests whose client went away before the answer was complete")        \
    X(rejected, "Requests refused because too many were waiting")                         \
    X(connections, "Connections accepted")                                                \
    X(tool_calls, "Tool calls in answers")

/* Histograms in seconds: name, help. */
#define METRICS_HISTOGRAMS(X)                                                             \
    X(queue, "Time from submission to the first step")                                    \
    X(first_token, "Time from submission to the first token")                             \
    X(token, "Time between tokens of an answer")                                          \
    X(request, "Time from the request to the end of its answer")

enum { METRICS_BOUNDS = 14 };

struct histogram {
    atomic_uint_fast64_t count[METRICS_BOUNDS + 1];
    atomic_uint_fast64_t sum_us;
};

struct metrics {
#define X(name, help) atomic_uint_fast64_t name;
    METRICS_COUNTERS(X)
#undef X
#define X(name, help) struct histogram name##_s;
    METRICS_HISTOGRAMS(X)
#undef X
};

static inline void metrics_add(atomic_uint_fast64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

void metrics_observe(struct histogram *h, double seconds);

/* All counters and histograms in the text format of Prometheus. */
void metrics_print(const struct metrics *m, struct buf *out);

/* One further sample; type: "gauge" or "counter". */
void metrics_print_one(struct buf *out, const char *name, const char *type, const char *help,
                       double value);

#endif

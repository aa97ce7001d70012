/* log.c - the one sink for log lines. */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

static struct {
    pthread_mutex_t lock;  /* keeps fn and arg a pair */
    slm_log_fn *fn;
    void *arg;
} sink = {.lock = PTHREAD_MUTEX_INITIALIZER};

void log_set(slm_log_fn *fn, void *arg)
{
    pthread_mutex_lock(&sink.lock);
    sink.fn = fn;
    sink.arg = arg;
    pthread_mutex_unlock(&sink.lock);
}

void log_line(slm_log_level level, const char *fmt, ...)
{
    pthread_mutex_lock(&sink.lock);
    slm_log_fn *fn = sink.fn;
    void *arg = sink.arg;
    pthread_mutex_unlock(&sink.lock);

    if (fn == NULL) {
        return;
    }
    char line[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    /* Outside the lock: the sink may take its time or log itself. */
    fn(arg, level, line);
}

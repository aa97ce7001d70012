/* time.h - the monotonic clock in seconds. */
#ifndef BASE_TIME_H
#define BASE_TIME_H

#include <time.h>

static inline double time_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif

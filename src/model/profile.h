/* profile.h - where the time of steps goes, by kind of operation.
 *
 * Off unless asked for; a step then only tests a pointer.  Times are those of the thread that
 * runs the step, so they add up to the step's. */
#ifndef PROFILE_H
#define PROFILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/time.h"

enum { PROFILE_ROWS = 64, PROFILE_NAME = 64 };

struct profile_row {
    char name[PROFILE_NAME];
    double seconds;
    uint64_t calls, bytes;     /* bytes: of weights */
};

struct profile {
    struct profile_row row[PROFILE_ROWS];
    int n;
    double step_s;             /* of whole steps */
    uint64_t steps;
};

/* Now, or 0 where nothing is measured. */
static inline double profile_begin(const struct profile *p)
{
    return p ? time_now() : 0;
}

/* Adds the time since `begin` to the row of this name; nothing where p is NULL. */
void profile_end(struct profile *p, double begin, const char *name, uint64_t bytes);

#endif

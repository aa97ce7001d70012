/* progress.h - a bar on a terminal's standard error: how much is done, how fast, how long
 * it will take.  Nothing is shown elsewhere, or when notes are off. */
#ifndef PROGRESS_H
#define PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *what;     /* "model.gguf"; borrowed, printed with care */
    uint64_t done, total; /* bytes; total 0: not known */
    uint64_t rated;       /* done when the rate was taken */
    double rate;          /* bytes per second, smoothed */
    double rated_at, shown_at;
    bool shown;
};

/* done: what is there already, which does not count for the rate. */
void progress_begin(struct progress *p, const char *what, uint64_t done, uint64_t total);

/* May be called often: shows at most ten times a second. */
void progress_update(struct progress *p, uint64_t done);

/* Takes the bar away. */
void progress_end(struct progress *p);

#endif

/* progress.c - the progress bar. */
#include "app/progress.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "app/out.h"
#include "base/time.h"

/* Seconds between two pictures, and over which the rate is smoothed. */
static const double SHOW_S = 0.1, RATE_S = 0.5;

enum { BAR_MAX = 40, COLUMNS_DEFAULT = 80 };

/* ---- the line -------------------------------------------------------------------- */

static void eta(const struct progress *p, char *out, size_t cap)
{
    *out = 0;
    if (p->rate <= 0 || p->total <= p->done) {
        return;
    }
    const double left = (double)(p->total - p->done) / p->rate;

    if (left < 360000) {
        const int s = (int)(left + 0.5);
        if (s < 3600) {
            snprintf(out, cap, "  %d:%02d left", s / 60, s % 60);
        } else {
            snprintf(out, cap, "  %d:%02d:%02d left", s / 3600, s / 60 % 60, s % 60);
        }
    }
}

/* The picture for a terminal of `columns`. */
static void draw(const struct progress *p, int columns, char *out, int cap)
{
    char facts[128], left[32], bar[BAR_MAX + 1];
    const double part = p->total > 0 ? (double)p->done / (double)p->total : 0;

    eta(p, left, sizeof left);
    if (p->total > 0) {
        snprintf(facts, sizeof facts, " %3d%%  %s of %s", (int)(100 * part), out_bytes(p->done),
                 out_bytes(p->total));
    } else {
        snprintf(facts, sizeof facts, " %s", out_bytes(p->done));
    }
    if (p->rate > 0) {
        const size_t n = strlen(facts);
        snprintf(facts + n, sizeof facts - n, "  %s/s%s", out_bytes((uint64_t)p->rate), left);
    }
    /* The name gets what the numbers leave, the bar what the name leaves. */
    int room = columns - 1 - (int)strlen(facts);
    room = room < 0 ? 0 : room;
    int name = (int)strlen(p->what), width = room - name - 3;
    name = name < room ? name : room;
    width = width > BAR_MAX ? BAR_MAX : width;
    if (p->total == 0 || width < 8) {
        snprintf(out, (size_t)cap, "%.*s%s", name, p->what, facts);
        return;
    }
    for (int i = 0; i < width; i++) {
        bar[i] = (double)i < part * width ? '#' : '.';
    }
    bar[width] = 0;
    snprintf(out, (size_t)cap, "%.*s [%s]%s", name, p->what, bar, facts);
}

/* ---- on the terminal ------------------------------------------------------------- */

static bool wanted(void)
{
    return !out_is_quiet() && isatty(STDERR_FILENO);
}

static void show(struct progress *p)
{
    struct winsize size = {0};
    char line[512];

    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
        size.ws_col = COLUMNS_DEFAULT;
    }
    draw(p, size.ws_col < 200 ? size.ws_col : 200, line, sizeof line);
    fprintf(stderr, "\r\033[K%s", line);
    fflush(stderr);
    p->shown = true;
}

void progress_begin(struct progress *p, const char *what, uint64_t done, uint64_t total)
{
    const double now = time_now();

    *p = (struct progress){ .what = what, .done = done, .total = total, .rated = done,
                            .rated_at = now, .shown_at = now - SHOW_S };
    progress_update(p, done);
}

void progress_update(struct progress *p, uint64_t done)
{
    const double now = time_now(), span = now - p->rated_at;

    p->done = done;
    if (span >= RATE_S) {
        const double rate = (double)(done - p->rated) / span;
        p->rate = p->rate > 0 ? 0.7 * p->rate + 0.3 * rate : rate;
        p->rated = done;
        p->rated_at = now;
    }
    if (now - p->shown_at >= SHOW_S && wanted()) {
        p->shown_at = now;
        show(p);
    }
}

void progress_end(struct progress *p)
{
    if (p->shown) {
        fprintf(stderr, "\r\033[K");
        fflush(stderr);
        p->shown = false;
    }
}

/* pace.c - the most promising number of drafts. */
#include "run/pace.h"

#include <assert.h>

/* Before anything is known a draft counts as likely right, so that drafts are tried; the chance
 * follows the last SEEN_MAX of them. */
static const double HIT_START = 0.75;
enum { SEEN_MAX = 24 };

/* So often a step measures something else than what seems best: times change while weights are
 * packed, as the text grows and with what else the machine does. */
enum { LOOK_EVERY = 16 };

/* Steps of the first and of the longest pause. */
enum { PAUSE_MIN = 16, PAUSE_MAX = 512 };

void pace_init(struct pace *p, int max)
{
    assert(max >= 1 && max <= PACE_MAX);
    *p = (struct pace){ .max = max, .hit = HIT_START, .pause = PAUSE_MIN };
}

/* Of a number not measured yet, the time of the next smaller one: it is found out soon. */
static double cost_of(const struct pace *p, int n)
{
    while (n > 0 && p->cost[n] == 0) {
        n--;
    }
    return p->cost[n];
}

/* The number from `from` on with the most tokens in a second. */
static int best_from(const struct pace *p, int from)
{
    double tokens = 0, chance = 1, top = -1;
    int best = from;

    for (int n = 0; n <= p->max; n++) {
        tokens += chance;  /* the token that is there anyway, then each draft's part */
        chance *= p->hit;
        if (n >= from && tokens > top * cost_of(p, n)) {
            top = tokens / cost_of(p, n);
            best = n;
        }
    }
    return best;
}

int pace_choose(struct pace *p)
{
    p->losing = false;
    if (p->cost[0] == 0) {
        return 0;
    }
    const int best = best_from(p, 0);
    if (best == 0) {
        p->losing = true;
        if (p->rest > 0) {
            p->rest--;
            return 0;
        }
        p->losing = false;
        p->rest = p->pause;
        p->pause = 2 * p->pause < PAUSE_MAX ? 2 * p->pause : PAUSE_MAX;
        return best_from(p, 1);
    }
    p->rest = 0;
    p->pause = PAUSE_MIN;
    if (++p->steps < LOOK_EVERY) {
        return best;
    }
    /* In turn without drafts and with one of the other numbers. */
    p->steps = 0;
    p->look++;
    return p->look % 2 ? 0 : 1 + p->look / 2 % p->max;
}

void pace_learn(struct pace *p, int n, int n_hit, double seconds)
{
    assert(n >= 0 && n <= p->max && n_hit >= 0 && n_hit <= n);
    double *cost = &p->cost[n];

    /* A step is never faster than it can be, but often slower: a lower time counts at once. */
    if (seconds <= 0) {
        seconds = 1e-9;
    }
    *cost = *cost == 0 || seconds < *cost ? seconds : *cost + (seconds - *cost) / 8;

    const int n_tried = n_hit < n ? n_hit + 1 : n_hit;
    for (int i = 0; i < n_tried; i++) {
        p->n_seen += p->n_seen < SEEN_MAX;
        p->hit += ((i < n_hit ? 1.0 : 0.0) - p->hit) / (1 + p->n_seen);
    }
}

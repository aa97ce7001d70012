/* pace.h - how many drafts a step is worth.
 *
 * From the time of steps by their number of drafts and from how many drafts were right follows the
 * number that gives most tokens in a second.  Where that is none, drafts pause, for longer and
 * longer, and are tried again.  It sees times and counts only and thus can change nothing but
 * speed. */
#ifndef PACE_H
#define PACE_H

#include <stdbool.h>

enum { PACE_MAX = 16 };

struct pace {
    int max;
    double cost[PACE_MAX + 1];  /* seconds of a step with so many drafts; 0: not known */
    double hit;                 /* chance that a draft is right when those before it are */
    int n_seen;                 /* drafts that count in it, up to a limit */
    int steps, look;            /* for steps that only measure: since the last one; which one */
    int rest, pause;            /* steps that the pause goes on; how long the next one is */
    bool losing;                /* the last choice was 0 because drafts lose time */
};

/* max: 1..PACE_MAX. */
void pace_init(struct pace *p, int max);

/* Drafts for the next step, 0..max. */
int pace_choose(struct pace *p);

/* A step with n drafts, of which n_hit were right, took so long. */
void pace_learn(struct pace *p, int n, int n_hit, double seconds);

#endif

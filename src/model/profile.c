/* profile.c - adding up. */
#include "model/profile.h"

#include <stdio.h>
#include <string.h>

static struct profile_row *find_row(struct profile *p, const char *name)
{
    for (int i = 0; i < p->n; i++) {
        if (strcmp(p->row[i].name, name) == 0) {
            return &p->row[i];
        }
    }
    /* More kinds than rows: the last row takes the rest. */
    struct profile_row *row = &p->row[p->n < PROFILE_ROWS ? p->n++ : PROFILE_ROWS - 1];
    snprintf(row->name, sizeof row->name, "%s", name);
    return row;
}

void profile_end(struct profile *p, double begin, const char *name, uint64_t bytes)
{
    if (!p) {
        return;
    }
    struct profile_row *row = find_row(p, name);
    row->seconds += time_now() - begin;
    row->calls++;
    row->bytes += bytes;
}

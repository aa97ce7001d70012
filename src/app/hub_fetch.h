/* hub_fetch.h - one file of the hub on its way into the cache. */
#ifndef HUB_FETCH_H
#define HUB_FETCH_H

#include "app/hub.h"
#include "app/net.h"
#include "app/progress.h"

struct fetch {
    const struct hub *hub;
    struct net *net;
    const struct repo_file *file;
    char *url;
    char *blob, *part;        /* where it will be, and where it is until it is complete */
    int fd, lock;             /* -1: not open; fd of the part */
    bool complete;            /* the blob is there */
    uint64_t have;            /* bytes of the part */
    uint64_t resumed;         /* of those, bytes from an earlier run */
    struct digest *digest;    /* over what we have */

    uint64_t want, skip;      /* of the request under way */
    struct progress *bar;     /* or NULL */
};

/* Takes the file's lock (waiting for another program that downloads it) and looks at what is
 * there.  The file must have a hash and a path that registry_path_ok accepts. */
bool fetch_open(struct fetch *f, const struct hub *hub, struct net *net, const char *repo,
                const char *commit, const struct repo_file *file, slm_error *err);

/* Downloads until at least the first n bytes are there (the file's size at most). */
bool fetch_until(struct fetch *f, uint64_t n, slm_error *err);

/* Checks the sum and gives the complete file its name. */
bool fetch_finish(struct fetch *f, slm_error *err);

/* What is downloaded stays, to be resumed.  Fine for one that is zeroed or failed to open. */
void fetch_close(struct fetch *f);

/* Waits before attempt n (1, 2, ...) at something that failed; false when interrupted or when
 * it has failed often enough. */
bool fetch_again(int n);

#endif

/* hub_check.h - whether a model is worth its download, told from the beginning of its files. */
#ifndef HUB_CHECK_H
#define HUB_CHECK_H

#include "app/hub_fetch.h"

struct verdict {
    uint64_t need_bytes;   /* memory with `context` tokens */
    uint64_t have_bytes;   /* memory that this process may use */
    int context;
    double tokens_s;       /* what the memory's speed allows; 0: not known */
};

/* Downloads the headers of the files of one model and opens them.  Fails where the model cannot
 * be run, with the reason. */
bool check_model(const struct hub *hub, const char *repo, struct fetch *files, size_t n,
                 struct verdict *out, slm_error *err);

#endif

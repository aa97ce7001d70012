/* nomem.h - lets every allocation of a call fail once. */
#ifndef NOMEM_H
#define NOMEM_H

#include "base/mem.h"
#include "run/session.h"
#include "test.h"

/* Calls `make` until it succeeds, with its first allocation failing, then its second and so on;
 * each failure must be SLM_E_NOMEM.  Returns how many allocations there were.  make: undoes what
 * it did and returns whether that worked. */
static inline long nomem_each(bool (*make)(void *arg, slm_error *err), void *arg)
{
    for (long n = 1;; n++) {
        slm_error err = {0};
        mem_fail_after(n);
        const bool ok = make(arg, &err);
        mem_fail_after(0);
        if (ok) {
            return n - 1;
        }
        CHECK_EQ(err.code, SLM_E_NOMEM);
    }
}

struct nomem_session {
    struct model *model;
    struct session_params params;
};

/* For nomem_each: makes a session.  arg: a struct nomem_session. */
static inline bool nomem_make_session(void *arg, slm_error *err)
{
    const struct nomem_session *a = arg;
    struct session *s = session_new(a->model, &a->params, err);

    session_free(s);
    return s != NULL;
}

#endif

/* thread.h - the thread pool.
 *
 * pool_run hands out tasks 0..n-1 to the workers and the caller and returns
 * when all are done.  Tasks write disjoint outputs, so their order and who runs
 * them cannot be seen in a result.  Workers spin briefly and then sleep, so a
 * busy machine slows them in proportion. */
#ifndef THREAD_H
#define THREAD_H

#include "base/error.h"

struct pool;

/* worker: 0..pool_size-1, the caller of pool_run being 0; only for picking scratch. */
typedef void pool_fn(void *arg, int task, int worker);

/* n_threads >= 1, the caller of pool_run counted.  NULL and *err on failure. */
struct pool *pool_new(int n_threads, slm_error *err);
void pool_free(struct pool *p);
int pool_size(const struct pool *p);

/* Runs fn(arg, 0..n-1).  Calls from several threads wait for each other; a call
 * from inside a task is a mistake. */
void pool_run(struct pool *p, pool_fn *fn, void *arg, int n);

/* Test only: hand out tasks in an order shuffled by seed; 0 is the normal order. */
void pool_shuffle(struct pool *p, uint64_t seed);

#endif

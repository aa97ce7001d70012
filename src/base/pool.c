/* pool.c - the thread pool.
 *
 * One 64-bit word, the ticket, holds the number of the region and how many of its
 * tasks nobody has taken yet.  Whoever wins the exchange from k to k - 1 owns one
 * task.  A region ends when its tasks are done, not when all workers have taken
 * notice, so a worker that sleeps or lost its core costs nothing unless it holds a
 * task.  What belongs to a region (function, argument, count) is written before
 * its ticket is published and is only read by owners of a task, who keep the
 * region open; so none of it needs to be atomic.
 *
 * Idle workers look at the ticket for a bounded number of pauses and then sleep on
 * a futex.  The caller waits for the last tasks in the same way. */
#include "base/thread.h"

#include <assert.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/fpenv.h"
#include "base/mem.h"
#include "base/rng.h"

/* Measured with two busy competitors on two cores: 2,000 pauses (about 90 us)
 * stay near the fair share of the machine, while spinning for ever or not at all
 * takes 1.7 times as long.  A pause is about 140 cycles on the x86 CPUs of that
 * measurement, a yield on Arm only a few. */
#if defined(__x86_64__)
enum { SPIN_MAX = 2000 };
#define cpu_relax() __builtin_ia32_pause()
#elif defined(__aarch64__)
enum { SPIN_MAX = 20000 };
#define cpu_relax() __asm__ volatile("yield" ::: "memory")
#else
enum { SPIN_MAX = 20000 };
#define cpu_relax() __asm__ volatile("" ::: "memory")
#endif

/* More than any machine this is for; a limit against a typing error. */
enum { THREADS_MAX = 1024 };

struct worker {
    struct pool *pool;
    pthread_t thread;
    int index;
};

struct pool {
    /* Each word that threads fight for has its own cache line. */
    _Alignas(64) _Atomic uint64_t ticket;  /* region << 32 | tasks not taken */
    _Alignas(64) _Atomic uint32_t done;    /* tasks of this region done by workers */
    _Atomic uint32_t caller_waits;         /* the caller sleeps on `done` */
    _Alignas(64) _Atomic uint32_t wake;    /* changes when sleepers shall look again */
    _Atomic uint32_t sleepers;             /* workers asleep or about to be */
    _Atomic bool stop;

    /* The current region. */
    _Alignas(64) pool_fn *fn;
    void *arg;
    uint32_t n;
    uint32_t stride, offset;  /* task i of the order is (i * stride + offset) mod n */

    pthread_mutex_t lock;     /* one region at a time */
    uint64_t region;
    uint64_t shuffle_seed;
    int n_workers;            /* threads running, without the caller */
    struct worker *workers;
};

/* Set while this thread runs tasks, to find calls from inside a task. */
static _Thread_local bool inside_region;

static void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int n)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static uint32_t tasks_left(uint64_t ticket)
{
    return (uint32_t)ticket;
}

/* Takes one task of whatever region is open.  Returns how many were left with it,
 * or 0 when there is none. */
static uint32_t take_task(struct pool *p)
{
    uint64_t t = atomic_load_explicit(&p->ticket, memory_order_acquire);

    while (tasks_left(t) > 0) {
        if (atomic_compare_exchange_weak_explicit(&p->ticket, &t, t - 1, memory_order_acq_rel,
                                                  memory_order_acquire)) {
            return tasks_left(t);
        }
    }
    return 0;
}

/* Runs tasks until none is left to take; returns how many.
 *
 * With the first task the region is held open until its result is counted, so all
 * later tasks of this call belong to the same region. */
static uint32_t run_tasks(struct pool *p, int worker)
{
    uint32_t n_done = 0;

    inside_region = true;
    for (uint32_t left; (left = take_task(p)) > 0; n_done++) {
        uint64_t i = p->n - left;

        if (p->stride != 0) {
            i = (i * p->stride + p->offset) % p->n;
        }
        p->fn(p->arg, (int)i, worker);
    }
    inside_region = false;
    return n_done;
}

/* ---- workers ---------------------------------------------------------------- */

static bool has_news(struct pool *p)
{
    return tasks_left(atomic_load(&p->ticket)) > 0 || atomic_load(&p->stop);
}

/* Returns when there may be tasks to take, or the pool stops. */
static void wait_for_news(struct pool *p)
{
    /* Whoever publishes a ticket changes `wake` if it sees a sleeper, and a sleeper
     * looks at the ticket once more after it has announced itself.  So either it
     * sees the ticket, or `wake` differs from what was read here. */
    uint32_t wake = atomic_load(&p->wake);

    for (int i = 0; i < SPIN_MAX; i++) {
        if (tasks_left(atomic_load_explicit(&p->ticket, memory_order_acquire)) > 0 ||
            atomic_load_explicit(&p->stop, memory_order_relaxed)) {
            return;
        }
        cpu_relax();
    }
    atomic_fetch_add(&p->sleepers, 1);
    if (!has_news(p)) {
        futex_wait(&p->wake, wake);
    }
    atomic_fetch_sub(&p->sleepers, 1);
}

static void count_done(struct pool *p, uint32_t n_done)
{
    atomic_fetch_add(&p->done, n_done);
    if (atomic_load(&p->caller_waits)) {
        futex_wake(&p->done, 1);
    }
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->pool;

    fpenv_enter();
    while (!atomic_load(&p->stop)) {
        uint32_t n_done = run_tasks(p, w->index);

        if (n_done > 0) {
            count_done(p, n_done);
        } else {
            wait_for_news(p);
        }
    }
    return NULL;
}

static void wake_workers(struct pool *p, int n)
{
    if (atomic_load(&p->sleepers) > 0) {
        atomic_fetch_add(&p->wake, 1);
        futex_wake(&p->wake, n);
    }
}

/* Workers take no signals: those are for the program's own threads. */
static bool start_workers(struct pool *p, int n, slm_error *err)
{
    sigset_t all, old;
    int rc = 0;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (p->n_workers < n && rc == 0) {
        struct worker *w = &p->workers[p->n_workers];

        *w = (struct worker){.pool = p, .index = p->n_workers + 1};
        rc = pthread_create(&w->thread, NULL, worker_main, w);
        if (rc == 0) {
            pthread_setname_np(w->thread, "slm-worker");
            p->n_workers++;
        }
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0) {
        char text[128];

        return slm_fail(err, SLM_E_NOMEM, "cannot start thread %d of %d: %s", p->n_workers + 2,
                        n + 1, strerror_r(rc, text, sizeof text));
    }
    return true;
}

/* ---- the pool ---------------------------------------------------------------- */

struct pool *pool_new(int n_threads, slm_error *err)
{
    if (n_threads < 1 || n_threads > THREADS_MAX) {
        slm_fail(err, SLM_E_ARG, "%d threads asked for; 1 to %d are possible", n_threads,
                 THREADS_MAX);
        return NULL;
    }
    struct pool *p = mem_alloc_aligned(sizeof *p);

    if (p == NULL) {
        slm_fail_nomem(err, "the thread pool");
        return NULL;
    }
    memset(p, 0, sizeof *p);
    pthread_mutex_init(&p->lock, NULL);
    p->workers = mem_zalloc((size_t)n_threads, sizeof *p->workers);

    /* Threads inherit the permission to use tiles, so it is asked for before they start. */
    cpu_isa_best();
    if (p->workers == NULL) {
        slm_fail_nomem(err, "the thread pool");
        pool_free(p);
        return NULL;
    }
    if (!start_workers(p, n_threads - 1, err)) {
        pool_free(p);
        return NULL;
    }
    return p;
}

void pool_free(struct pool *p)
{
    if (p == NULL) {
        return;
    }
    atomic_store(&p->stop, true);
    atomic_fetch_add(&p->wake, 1);
    futex_wake(&p->wake, THREADS_MAX);
    for (int i = 0; i < p->n_workers; i++) {
        pthread_join(p->workers[i].thread, NULL);
    }
    pthread_mutex_destroy(&p->lock);
    mem_free(p->workers);
    mem_free(p);
}

int pool_size(const struct pool *p)
{
    return p->n_workers + 1;
}

void pool_shuffle(struct pool *p, uint64_t seed)
{
    pthread_mutex_lock(&p->lock);
    p->shuffle_seed = seed;
    pthread_mutex_unlock(&p->lock);
}

static uint32_t gcd(uint32_t a, uint32_t b)
{
    while (b != 0) {
        uint32_t r = a % b;

        a = b;
        b = r;
    }
    return a;
}

/* A stride without common factor visits every task once.  Every region gets
 * another one. */
static void choose_order(struct pool *p)
{
    p->stride = 0;
    p->offset = 0;
    if (p->shuffle_seed == 0) {
        return;
    }
    for (uint64_t i = 0; p->stride == 0 || gcd(p->stride, p->n) != 1; i++) {
        p->stride = (uint32_t)(rng_bits(p->shuffle_seed, p->region, i) % p->n);
        if (p->n == 1) {
            p->stride = 1;
        }
    }
    p->offset = (uint32_t)(rng_mix(p->shuffle_seed + p->region) % p->n);
}

/* Waits until workers have done n tasks. */
static void wait_done(struct pool *p, uint32_t n)
{
    for (int i = 0; i < SPIN_MAX; i++) {
        if (atomic_load_explicit(&p->done, memory_order_acquire) == n) {
            return;
        }
        cpu_relax();
    }
    atomic_store(&p->caller_waits, 1);
    for (uint32_t d; (d = atomic_load(&p->done)) != n;) {
        futex_wait(&p->done, d);
    }
    atomic_store(&p->caller_waits, 0);
}

void pool_run(struct pool *p, pool_fn *fn, void *arg, int n)
{
    if (n <= 0) {
        return;
    }
    assert(!inside_region);
    pthread_mutex_lock(&p->lock);
    p->region++;
    p->fn = fn;
    p->arg = arg;
    p->n = (uint32_t)n;
    choose_order(p);
    atomic_store_explicit(&p->done, 0, memory_order_relaxed);
    atomic_store(&p->ticket, p->region << 32 | (uint32_t)n);
    if (n > 1) {
        wake_workers(p, n - 1);
    }
    uint32_t own = run_tasks(p, 0);

    wait_done(p, (uint32_t)n - own);
    pthread_mutex_unlock(&p->lock);
}

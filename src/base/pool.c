/* pool.c - the thread pool.
 *
 * The tasks of a region are cut into stretches, one for each worker, which takes those of the
 * others when its own are gone: neighbouring tasks mostly run on one core, one after the other,
 * where one finds requested what the next one reads.
 *
 * One 64-bit word, the ticket of a stretch, holds the number of the region and how many of the
 * stretch's tasks nobody has taken yet.  Whoever wins the exchange from k to k - 1 owns one
 * task.  A region ends when its tasks are done, not when all workers have taken notice, so a
 * worker that sleeps or lost its core costs nothing unless it holds a task.  What belongs to a
 * region (function, argument, count) is written before its tickets are published and is only read
 * by owners of a task, who keep the region open; so none of it needs to be atomic.
 *
 * Idle workers look at the number of the region for a bounded number of pauses and then sleep on
 * it, a futex.  The caller waits for the last tasks in the same way.  How long they look, each
 * thread learns from its waits. */
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
#include "base/time.h"

/* Pauses of a wait before sleeping.  Alone on the machine many are best, as a sleeper is woken
 * late.  Beside others, who is waited for may have lost its core, and looking for it spends the
 * time that gets one back.  So a thread that has slept for LONG_SLEEP while tasks were being done
 * looks only SPIN_MIN times, and with each other wait a little longer again.
 *
 * A 135M model with two threads beside two busy processes on two cores keeps 73% of its fair share
 * (70 to 81) with 2,000 pauses always, about 90 us, and 87% (79 to 90) learning; with SPIN_MIN of
 * 20 it varies from 58 to 96%.  A pause is about 140 cycles on the x86 CPUs of that measurement, a
 * yield on Arm only a few. */
#if defined(__x86_64__)
enum { SPIN_MIN = 150, SPIN_MAX = 2000 };
#define cpu_relax() __builtin_ia32_pause()
#elif defined(__aarch64__)
enum { SPIN_MIN = 1500, SPIN_MAX = 20000 };
#define cpu_relax() __asm__ volatile("yield" ::: "memory")
#else
enum { SPIN_MIN = 1500, SPIN_MAX = 20000 };
#define cpu_relax() __asm__ volatile("" ::: "memory")
#endif

static const double LONG_SLEEP = 200e-6;

/* More than any machine this is for; a limit against a typing error. */
enum { THREADS_MAX = 1024 };

struct worker {
    struct pool *pool;
    pthread_t thread;
    int index;
    int spin;                 /* pauses of its next wait */
};

/* Each word that threads fight for has its own cache line. */
struct stretch {
    _Alignas(64) _Atomic uint64_t ticket;  /* region << 32 | tasks not taken */
};

struct pool {
    _Alignas(64) _Atomic uint32_t done;    /* tasks of this region done by workers */
    _Atomic uint32_t caller_waits;         /* the caller sleeps on `done` */
    _Alignas(64) _Atomic uint32_t region;  /* the last one published; one more to stop */
    _Atomic uint32_t closed;               /* the last one whose tasks are all done */
    _Atomic uint32_t sleepers;             /* workers asleep or about to be */
    _Atomic bool stop;

    /* The current region. */
    _Alignas(64) pool_fn *fn;
    void *arg;
    uint32_t n;
    uint32_t stride, offset;  /* task i of the order is (i * stride + offset) mod n */

    pthread_mutex_t lock;     /* one region at a time */
    uint64_t shuffle_seed;
    int spin;                 /* the caller's */
    int n_workers;            /* threads running, without the caller */
    int n_stretches;          /* a stretch for each of them, and the caller */
    struct stretch *stretch;
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

/* Takes one task of a stretch, of whatever region is open.  Returns how many were left with it,
 * or 0 when there is none. */
static uint32_t take_task(struct stretch *s)
{
    uint64_t t = atomic_load_explicit(&s->ticket, memory_order_acquire);

    while (tasks_left(t) > 0) {
        if (atomic_compare_exchange_weak_explicit(&s->ticket, &t, t - 1, memory_order_acq_rel,
                                                  memory_order_acquire)) {
            return tasks_left(t);
        }
    }
    return 0;
}

/* The first task of stretch i, and the end of the one before. */
static uint32_t stretch_begin(const struct pool *p, int i)
{
    return (uint32_t)((uint64_t)p->n * (uint64_t)i / (uint64_t)p->n_stretches);
}

/* Runs tasks, its own stretch first, until none is left to take; returns how many.
 *
 * With the first task the region is held open until its result is counted, so all
 * later tasks of this call belong to the same region. */
static uint32_t run_tasks(struct pool *p, int worker)
{
    uint32_t n_done = 0;

    inside_region = true;
    for (int k = 0; k < p->n_stretches; k++) {
        const int at = (worker + k) % p->n_stretches;

        for (uint32_t left; (left = take_task(&p->stretch[at])) > 0; n_done++) {
            uint64_t i = stretch_begin(p, at + 1) - left;

            if (p->stride != 0) {
                i = (i * p->stride + p->offset) % p->n;
            }
            p->fn(p->arg, (int)i, worker);
        }
    }
    inside_region = false;
    return n_done;
}

/* ---- workers ---------------------------------------------------------------- */

/* Pauses of the wait after one of `spin`. */
static int next_spin(int spin, bool long_wait)
{
    const int more = spin + spin / 64 + 1;

    return long_wait ? SPIN_MIN : more < SPIN_MAX ? more : SPIN_MAX;
}

/* Returns when there is another region than `seen`, or the pool stops. */
static void wait_for_news(struct pool *p, uint32_t seen, int *spin)
{
    for (int i = 0; i < *spin; i++) {
        if (atomic_load_explicit(&p->region, memory_order_acquire) != seen) {
            *spin = next_spin(*spin, false);
            return;
        }
        cpu_relax();
    }
    /* With all tasks done a long sleep says nothing: there was no work. */
    const bool open = atomic_load(&p->closed) != seen;
    const double begin = time_now();

    /* Whoever publishes a region looks for sleepers after it, and the futex looks at the region
     * after the sleeper has announced itself: one of them sees the other. */
    atomic_fetch_add(&p->sleepers, 1);
    futex_wait(&p->region, seen);
    atomic_fetch_sub(&p->sleepers, 1);
    *spin = next_spin(*spin, open && time_now() - begin > LONG_SLEEP);
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
        const uint32_t seen = atomic_load(&p->region);
        const uint32_t n_done = run_tasks(p, w->index);

        if (n_done > 0) {
            count_done(p, n_done);
        } else {
            wait_for_news(p, seen, &w->spin);
        }
    }
    return NULL;
}

/* Begins a region, whose tickets are there, or says that there is something else to see. */
static void publish(struct pool *p, int n_wanted)
{
    atomic_fetch_add(&p->region, 1);
    if (atomic_load(&p->sleepers) > 0) {
        futex_wake(&p->region, n_wanted);
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

        *w = (struct worker){.pool = p, .index = p->n_workers + 1, .spin = SPIN_MAX};
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
    p->spin = SPIN_MAX;
    pthread_mutex_init(&p->lock, NULL);
    p->n_stretches = n_threads;
    p->stretch = mem_alloc_aligned((size_t)n_threads * sizeof *p->stretch);
    p->workers = mem_zalloc((size_t)n_threads, sizeof *p->workers);

    /* Threads inherit the permission to use tiles, so it is asked for before they start. */
    cpu_isa_best();
    if (p->workers == NULL || p->stretch == NULL) {
        slm_fail_nomem(err, "the thread pool");
        pool_free(p);
        return NULL;
    }
    memset(p->stretch, 0, (size_t)n_threads * sizeof *p->stretch);
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
    publish(p, THREADS_MAX);
    for (int i = 0; i < p->n_workers; i++) {
        pthread_join(p->workers[i].thread, NULL);
    }
    pthread_mutex_destroy(&p->lock);
    mem_free(p->workers);
    mem_free(p->stretch);
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
    for (int i = 0; i < p->spin; i++) {
        if (atomic_load_explicit(&p->done, memory_order_acquire) == n) {
            p->spin = next_spin(p->spin, false);
            return;
        }
        cpu_relax();
    }
    const double begin = time_now();

    atomic_store(&p->caller_waits, 1);
    for (uint32_t d; (d = atomic_load(&p->done)) != n;) {
        futex_wait(&p->done, d);
    }
    atomic_store(&p->caller_waits, 0);
    p->spin = next_spin(p->spin, time_now() - begin > LONG_SLEEP);
}

/* A region of one task needs nobody else. */
static void run_alone(pool_fn *fn, void *arg)
{
    inside_region = true;
    fn(arg, 0, 0);
    inside_region = false;
}

/* Cuts the tasks of the region to come and lets workers have them. */
static void open_region(struct pool *p)
{
    const uint64_t region = (uint64_t)atomic_load_explicit(&p->region, memory_order_relaxed) + 1;

    atomic_store_explicit(&p->done, 0, memory_order_relaxed);
    for (int i = 0; i < p->n_stretches; i++) {
        const uint32_t size = stretch_begin(p, i + 1) - stretch_begin(p, i);

        atomic_store_explicit(&p->stretch[i].ticket, region << 32 | size, memory_order_release);
    }
    publish(p, (int)p->n - 1);
}

void pool_run(struct pool *p, pool_fn *fn, void *arg, int n)
{
    if (n <= 0) {
        return;
    }
    assert(!inside_region);
    pthread_mutex_lock(&p->lock);
    if (n == 1) {
        run_alone(fn, arg);
    } else {
        p->fn = fn;
        p->arg = arg;
        p->n = (uint32_t)n;
        choose_order(p);
        open_region(p);
        wait_done(p, p->n - run_tasks(p, 0));
        atomic_store(&p->closed, atomic_load(&p->region));
    }
    pthread_mutex_unlock(&p->lock);
}

/* test_machine.c - what the machine offers, and the thread pool that uses it. */
#include "test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/cpu_sys.h"
#include "base/fpenv.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/thread.h"
#include "tmpdir.h"

/* ---- machine --------------------------------------------------------------------- */

TEST(cpu_tier_can_be_chosen)
{
    enum isa isa, best = cpu_isa_best();
    slm_error err;
    char features[256];

    CHECK(best < ISA_COUNT);
    cpu_features(features, sizeof features);
    CHECK((best > ISA_SCALAR) <= (strstr(features, "avx2") != NULL));
    unsetenv("SLM_ISA");
    CHECK(cpu_isa(&isa, &err));
    CHECK_EQ(isa, best);
    for (int i = 0; i < ISA_COUNT; i++) {
        setenv("SLM_ISA", isa_name((enum isa)i), 1);
        bool ok = cpu_isa(&isa, &err);

        CHECK_EQ(ok, i <= (int)best);
        if (ok) {
            CHECK_EQ(isa, i);
        } else {
            CHECK_EQ(err.code, SLM_E_ARG);
            CHECK(strstr(err.msg, isa_name((enum isa)i)) != NULL);
            CHECK(strstr(err.msg, isa_name(best)) != NULL);
        }
    }
    setenv("SLM_ISA", "avx3", 1);
    CHECK(!cpu_isa(&isa, &err));
    CHECK(strstr(err.msg, "avx3") != NULL && strstr(err.msg, "scalar") != NULL);
    setenv("SLM_ISA", "", 1);
    CHECK(cpu_isa(&isa, &err));
    unsetenv("SLM_ISA");
}

TEST(cpu_reports_this_machine)
{
    char why[160] = "";
    int n = cpu_usable_cores(why, sizeof why);

    CHECK(n >= 1 && n <= sysconf(_SC_NPROCESSORS_ONLN));
    CHECK(why[0] != '\0');
    CHECK(cpu_ram_bytes() > (uint64_t)16 << 20);
    CHECK(cpu_ram_free_bytes() <= cpu_ram_bytes());
    CHECK(cpu_peak_rss_bytes() > (uint64_t)1 << 20);
}

TEST(cpu_lists_parse)
{
    struct cpu_mask m;

    CHECK(cpu_mask_parse(&m, "0-3,8,10-11\n"));
    CHECK_EQ(cpu_mask_count(&m), 7);
    CHECK(cpu_mask_has(&m, 10) && !cpu_mask_has(&m, 9) && !cpu_mask_has(&m, -1));
    CHECK(cpu_mask_parse(&m, "") && cpu_mask_count(&m) == 0);
    CHECK(cpu_mask_parse(&m, "8191"));
    static const char *const bad[] = {"3-1", "a", "1-", "1;2", "8192", "0-99999999999", "-1", " 1"};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK(!cpu_mask_parse(&m, bad[i]));
    }
}

static struct cpu_mask first_cpus(int n)
{
    struct cpu_mask m = {0};

    for (int i = 0; i < n; i++) {
        cpu_mask_add(&m, i);
    }
    return m;
}

/* Cores below the directory for the first n CPUs, the reason in `why`. */
static char why[160];

static int cores(int n)
{
    struct cpu_mask m = first_cpus(n);

    return cpu_cores_below(dir, &m, why, sizeof why);
}

static void put_cpu(int cpu, const char *file, const char *content)
{
    char name[128];

    snprintf(name, sizeof name, "sys/devices/system/cpu/cpu%d/%s", cpu, file);
    put(name, content);
}

TEST(cores_without_any_file)
{
    make_dir();
    CHECK_EQ(cores(6), 6);
    CHECK_STR(why, "all 6 cores");
    CHECK_EQ(cores(0), 1);
    CHECK_EQ(cpu_quota_below(dir), 0);
    CHECK_EQ(cpu_ram_below(dir), 0);
    remove_tree();
}

TEST(cores_count_hardware_threads_once)
{
    make_dir();
    put("sys/devices/system/cpu/online", "0-7\n");
    for (int i = 0; i < 8; i++) {
        char siblings[16];

        snprintf(siblings, sizeof siblings, "%d,%d\n", i % 4, i % 4 + 4);
        /* Old kernels know only the second name. */
        put_cpu(i, i < 4 ? "topology/core_cpus_list" : "topology/thread_siblings_list", siblings);
    }
    CHECK_EQ(cores(8), 4);
    CHECK_STR(why, "4 physical cores with 8 hardware threads");
    CHECK_EQ(cores(6), 4);
    CHECK_STR(why, "affinity mask: 6 of 8 CPUs, 4 cores");
    CHECK_EQ(cores(3), 3);

    /* The second thread of a core counts when the first is not ours. */
    struct cpu_mask m = {0};

    cpu_mask_add(&m, 5);
    cpu_mask_add(&m, 6);
    CHECK_EQ(cpu_cores_below(dir, &m, why, sizeof why), 2);
    put_cpu(5, "topology/thread_siblings_list", "garbage");
    CHECK_EQ(cpu_cores_below(dir, &m, why, sizeof why), 2);
    remove_tree();
}

TEST(cores_leave_out_efficiency_cores)
{
    make_dir();
    put("sys/devices/cpu_core/cpus", "0-3\n");
    CHECK_EQ(cores(12), 4);
    CHECK_STR(why, "4 performance cores of 12");

    /* Pinned to efficiency cores: use those. */
    struct cpu_mask m = {0};

    cpu_mask_add(&m, 8);
    cpu_mask_add(&m, 9);
    CHECK_EQ(cpu_cores_below(dir, &m, why, sizeof why), 2);
    remove_tree();

    make_dir();
    for (int i = 0; i < 8; i++) {
        put_cpu(i, "cpu_capacity", i < 4 ? "380\n" : i < 7 ? "900\n" : "1024\n");
    }
    CHECK_EQ(cores(8), 4);
    CHECK_EQ(cores(4), 4);
    remove_tree();

    make_dir();
    for (int i = 0; i < 4; i++) {
        put_cpu(i, "cpufreq/cpuinfo_max_freq", i < 2 ? "5100000\n" : i == 2 ? "4700000\n" : "3300000\n");
    }
    CHECK_EQ(cores(4), 3);
    CHECK_EQ(cores(5), 5);  /* one does not tell: nothing is known */
    remove_tree();
}

TEST(quota_of_version_2)
{
    make_dir();
    put("proc/self/cgroup", "0::/user.slice/app\n");
    put("proc/self/mountinfo", "22 1 0:21 / /proc rw - proc proc rw\n"
        "31 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
    put("sys/fs/cgroup/user.slice/app/cpu.max", "max 100000\n");
    CHECK_EQ(cpu_quota_below(dir), 0);
    put("sys/fs/cgroup/user.slice/cpu.max", "350000 100000\n");
    CHECK_EQ(cpu_quota_below(dir), 3500);
    CHECK_EQ(cores(8), 3);
    CHECK_STR(why, "control group quota of 3.50 CPUs");
    put("sys/fs/cgroup/user.slice/app/cpu.max", "500000 100000\n");
    CHECK_EQ(cpu_quota_below(dir), 3500);
    put("sys/fs/cgroup/user.slice/app/cpu.max", "50 100000\n");
    CHECK_EQ(cpu_quota_below(dir), 1);
    put("sys/fs/cgroup/user.slice/app/cpu.max", "50000 100000\n");
    CHECK_EQ(cores(8), 1);
    CHECK_STR(why, "control group quota of 0.50 CPUs");
    put("sys/fs/cgroup/user.slice/app/cpu.max", "1600000 100000\n");
    put("sys/fs/cgroup/user.slice/cpu.max", "max 100000\n");
    CHECK_EQ(cores(8), 8);
    static const char *const bad[] = {"", "x", "100 x", "100", "100 0", "0 100", "-5 100",
                                      "99999999999999999999999 100"};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put("sys/fs/cgroup/user.slice/app/cpu.max", bad[i]);
        CHECK_EQ(cpu_quota_below(dir), 0);
    }
    remove_tree();
}

TEST(quota_of_version_1_in_a_container)
{
    make_dir();
    put("proc/self/cgroup", "12:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/\n");
    put("proc/self/mountinfo",
        "40 30 0:30 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
        "41 30 0:31 /docker/abc /sys/fs/cgroup/memory ro master:9 - cgroup cgroup rw,memory\n");
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    CHECK_EQ(cpu_quota_below(dir), 0);
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "250000\n");
    CHECK_EQ(cpu_quota_below(dir), 2500);
    CHECK_EQ(cores(8), 2);
    /* A group below the part that the container sees. */
    put("proc/self/cgroup", "12:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc/job\n0::/\n");
    put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "50000\n");
    put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "60000\n");
    CHECK_EQ(cpu_quota_below(dir), 1200);
    /* A group that it does not see. */
    put("proc/self/cgroup", "12:memory:/docker/abc\n4:cpu,cpuacct:/other/job\n0::/\n");
    CHECK_EQ(cpu_quota_below(dir), 2500);

    put("proc/meminfo", "MemTotal:       16384000 kB\nMemFree: 1 kB\nMemAvailable:   8192000 kB\n");
    CHECK_EQ(cpu_ram_below(dir), 16384000ull * 1024);
    CHECK_EQ(cpu_ram_free_below(dir), 8192000ull * 1024);
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    CHECK_EQ(cpu_ram_below(dir), 16384000ull * 1024);
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "1000000000\n");
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "600000000\n");
    put("sys/fs/cgroup/memory/memory.stat", "cache 1\ninactive_file 7\ntotal_inactive_file "
        "200000000\ntotal_active_file 100000000\n");
    CHECK_EQ(cpu_ram_below(dir), 1000000000);
    CHECK_EQ(cpu_ram_free_below(dir), 700000000);
    remove_tree();
}

TEST(memory_of_version_2_takes_the_least_on_the_way_up)
{
    make_dir();
    put("proc/self/cgroup", "0::/a/b\n");
    put("proc/self/mountinfo", "31 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    put("proc/meminfo", "MemTotal: 4000000 kB\nMemAvailable: 3000000 kB\n");
    put("sys/fs/cgroup/a/b/memory.max", "max\n");
    put("sys/fs/cgroup/a/memory.max", "2000000000\n");
    put("sys/fs/cgroup/a/memory.current", "2500000000\n");
    put("sys/fs/cgroup/a/memory.stat", "anon 5\nactive_file 100\n");
    CHECK_EQ(cpu_ram_below(dir), 2000000000);
    CHECK_EQ(cpu_ram_free_below(dir), 0);
    put("sys/fs/cgroup/a/memory.current", "500000000\n");
    CHECK_EQ(cpu_ram_free_below(dir), 1500000100);
    put("sys/fs/cgroup/a/b/memory.max", "1000\n");
    CHECK_EQ(cpu_ram_below(dir), 1000);
    put("proc/self/cgroup", "nonsense\n::\n0\n");
    CHECK_EQ(cpu_ram_below(dir), 4000000ull * 1024);
    remove_tree();
}

/* ---- threads --------------------------------------------------------------------- */

enum { TASKS_MAX = 1000 };

struct job {
    _Atomic int runs[TASKS_MAX];
    int plain[TASKS_MAX];        /* written without atomics: pool_run must order it */
    int n_workers;
    _Atomic int bad_worker;
    uint64_t fp_differs;
};

static void job_task(void *arg, int task, int worker)
{
    struct job *j = arg;

    atomic_fetch_add(&j->runs[task], 1);
    j->plain[task]++;
    if (worker < 0 || worker >= j->n_workers) {
        atomic_store(&j->bad_worker, 1);
    }
}

static void check_runs(const struct job *j, int n, int want)
{
    for (int i = 0; i < TASKS_MAX; i++) {
        CHECK_EQ(j->runs[i], i < n ? want : 0);
        CHECK_EQ(j->plain[i], i < n ? want : 0);
    }
    CHECK_EQ(j->bad_worker, 0);
}

TEST(pool_runs_every_task_once)
{
    slm_error err;

    for (int threads = 1; threads <= 5; threads++) {
        struct pool *p = pool_new(threads, &err);

        CHECK(p != NULL);
        CHECK_EQ(pool_size(p), threads);
        for (int n = 0; n <= TASKS_MAX; n = n < 20 ? n + 1 : n * 7) {
            for (uint64_t seed = 0; seed < 4; seed++) {
                struct job j = {.n_workers = threads};

                pool_shuffle(p, seed);
                pool_run(p, job_task, &j, n);
                check_runs(&j, n, 1);
            }
        }
        pool_free(p);
    }
    pool_free(NULL);
}

TEST(pool_hammered_by_short_regions)
{
    slm_error err;
    struct pool *p = pool_new(4, &err);
    struct job j = {.n_workers = 4};
    struct rng r = {1};
    enum { ROUNDS = 3000 };

    CHECK(p != NULL);
    for (int i = 0; i < ROUNDS; i++) {
        pool_run(p, job_task, &j, 7);
        /* Now and then let the workers fall asleep, or be about to. */
        if (i % 100 == 0) {
            usleep((useconds_t)(rng_next(&r) % 400));
        }
    }
    check_runs(&j, 7, ROUNDS);
    pool_free(p);
}

struct caller {
    struct pool *pool;
    pthread_barrier_t *start;
    struct job job;
};

static void yielding_task(void *arg, int task, int worker)
{
    sched_yield();
    job_task(arg, task, worker);
}

static void *call_often(void *arg)
{
    struct caller *c = arg;

    pthread_barrier_wait(c->start);
    for (int i = 0; i < 300; i++) {
        pool_run(c->pool, yielding_task, &c->job, 5);
    }
    return NULL;
}

TEST(pool_takes_turns_among_callers)
{
    slm_error err;
    struct pool *p = pool_new(3, &err);
    static struct caller callers[3];
    pthread_barrier_t start;
    pthread_t threads[3];

    pthread_barrier_init(&start, NULL, 3);
    for (int i = 0; i < 3; i++) {
        callers[i] = (struct caller){.pool = p, .start = &start, .job = {.n_workers = 3}};
        CHECK_EQ(pthread_create(&threads[i], NULL, call_often, &callers[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        check_runs(&callers[i].job, 5, 300);
    }
    pthread_barrier_destroy(&start);
    pool_free(p);
}

/* Tasks that cannot end before all threads have one: no thread may stay asleep. */
struct meeting {
    _Atomic int here;
    int n;
    int done[4];
};

static void meet(void *arg, int task, int worker)
{
    struct meeting *m = arg;

    atomic_fetch_add(&m->here, 1);
    while (atomic_load(&m->here) < m->n) {
        usleep(50);
    }
    /* The workers are slower than the caller, which has to wait for them. */
    if (worker > 0) {
        usleep(2000);
    }
    m->done[task]++;
}

TEST(pool_wakes_its_workers_and_waits_for_them)
{
    slm_error err;
    struct pool *p = pool_new(4, &err);

    for (int i = 0; i < 10; i++) {
        struct meeting m = {.n = 4};

        /* Long enough for the workers to fall asleep, every other time. */
        usleep(i % 2 == 0 ? 20000 : 0);
        pool_run(p, meet, &m, 4);
        for (int k = 0; k < 4; k++) {
            CHECK_EQ(m.done[k], 1);
        }
    }
    pool_free(p);
}

/* A worker that lost its core in its first task: the caller has to do all the others. */
struct stuck {
    _Atomic int done;
    _Atomic bool first;
    int n;
};

static void get_stuck(void *arg, int task, int worker)
{
    struct stuck *s = arg;

    (void)task;
    if (worker > 0 && atomic_exchange(&s->first, false)) {
        while (atomic_load(&s->done) < s->n - 1) {
            usleep(50);
        }
    }
    atomic_fetch_add(&s->done, 1);
}

TEST(pool_goes_on_without_a_stuck_worker)
{
    slm_error err;
    struct pool *p = pool_new(2, &err);
    int stuck = 0;

    for (int i = 0; i < 50 || stuck == 0; i++) {
        struct stuck s = {.first = true, .n = 64};

        pool_run(p, get_stuck, &s, 64);
        CHECK_EQ(s.done, 64);
        stuck += !s.first;
    }
    pool_free(p);
}

struct order {
    _Atomic int next;
    int seen[64];
};

static void note_order(void *arg, int task, int worker)
{
    struct order *o = arg;

    (void)worker;
    o->seen[atomic_fetch_add(&o->next, 1)] = task;
}

TEST(pool_shuffle_changes_the_order)
{
    slm_error err;
    struct pool *p = pool_new(1, &err);
    struct order plain = {0}, a = {0}, b = {0};

    pool_run(p, note_order, &plain, 64);
    for (int i = 0; i < 64; i++) {
        CHECK_EQ(plain.seen[i], i);
    }
    pool_shuffle(p, 9);
    pool_run(p, note_order, &a, 64);
    pool_run(p, note_order, &b, 64);
    CHECK(memcmp(a.seen, plain.seen, sizeof a.seen) != 0);
    CHECK(memcmp(a.seen, b.seen, sizeof a.seen) != 0);
    pool_free(p);
}

/* A value that is zero under flush-to-zero and rounds up under upward rounding. */
static void fp_task(void *arg, int task, int worker)
{
    volatile float tiny = 1e-38f, third = 3.0f;
    volatile float a = tiny * 0.1f, b = 1.0f / third;

    (void)task;
    usleep(100);
    if (worker > 0 && (a == 0.0f || b != 0x1.555556p-2f)) {
        atomic_store((_Atomic int *)arg, 1);
    }
}

TEST(pool_workers_have_the_default_fp_environment)
{
    slm_error err;
    _Atomic int bad = 0;
    uint64_t old = fpenv_enter();

#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(0x1F80 | 0x8040 | 0x4000);  /* FTZ, DAZ, upward: what threads inherit */
#endif
    struct pool *p = pool_new(3, &err);

    fpenv_leave(old);
    CHECK(p != NULL);
    for (int i = 0; i < 5; i++) {
        pool_run(p, fp_task, &bad, 30);
    }
    CHECK_EQ(bad, 0);
    pool_free(p);
}

TEST(pool_refuses_what_it_cannot_make)
{
    slm_error err;
    long before = mem_count();

    CHECK(pool_new(0, &err) == NULL);
    CHECK_EQ(err.code, SLM_E_ARG);
    CHECK(pool_new(-3, NULL) == NULL);
    CHECK(pool_new(100000, &err) == NULL);
    CHECK(strstr(err.msg, "100000") != NULL);
    struct pool *p = pool_new(2, &err);
    long n = mem_count() - before;

    CHECK(p != NULL && n > 0);
    pool_free(p);
    for (long i = 1; i <= n; i++) {
        mem_fail_after(i);
        CHECK(pool_new(2, &err) == NULL);
        CHECK_EQ(err.code, SLM_E_NOMEM);
    }
    mem_fail_after(0);
}

int main(void)
{
    return RUN(
        T(cpu_tier_can_be_chosen),
        T(cpu_reports_this_machine),
        T(cpu_lists_parse),
        T(cores_without_any_file),
        T(cores_count_hardware_threads_once),
        T(cores_leave_out_efficiency_cores),
        T(quota_of_version_2),
        T(quota_of_version_1_in_a_container),
        T(memory_of_version_2_takes_the_least_on_the_way_up),
        T(pool_runs_every_task_once),
        T(pool_hammered_by_short_regions),
        T(pool_takes_turns_among_callers),
        T(pool_wakes_its_workers_and_waits_for_them),
        T(pool_goes_on_without_a_stuck_worker),
        T(pool_shuffle_changes_the_order),
        T(pool_workers_have_the_default_fp_environment),
        T(pool_refuses_what_it_cannot_make));
}

/* cpu_sys.c - usable cores and memory: topology, affinity, control groups.
 *
 * A process is in one group of each hierarchy (version 1 has one per controller,
 * version 2 one for all), and every group above it limits it as well.  So the path
 * from /proc/self/cgroup is walked up to the mount point and the least value counts. */
#include "base/cpu_sys.h"

#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/file.h"

/* Largest of the files read here; /proc/self/mountinfo of a busy host is the one that grows. */
enum { FILE_MAX = 1 << 20, PATH_CAP = 4096 };

/* ---- small files ------------------------------------------------------------- */

/* The content of a file below root in b; false when it is not there. */
static bool read_below(const char *root, struct buf *b, const char *fmt, ...) PRINTF_LIKE(3, 4);

static bool read_below(const char *root, struct buf *b, const char *fmt, ...)
{
    char path[PATH_CAP];
    int n = snprintf(path, sizeof path, "%s", root);
    va_list args;

    if (n < 0 || (size_t)n >= sizeof path) {
        return false;
    }
    va_start(args, fmt);
    int m = vsnprintf(path + n, sizeof path - (size_t)n, fmt, args);
    va_end(args);
    if (m < 0 || (size_t)m >= sizeof path - (size_t)n) {
        return false;
    }
    buf_clear(b);
    return access(path, R_OK) == 0 && file_read(path, FILE_MAX, b, NULL) && !b->failed;
}

/* A decimal number at the start of s; false for "max", "-1" and other things. */
static bool parse_u64(const char *s, uint64_t *out)
{
    char *end;

    if (*s < '0' || *s > '9') {
        return false;
    }
    *out = strtoull(s, &end, 10);
    return *end == '\0' || *end == '\n' || *end == ' ' || *end == '\t';
}

/* The number behind `name` at the start of a line, as in meminfo and memory.stat. */
static bool parse_field(const char *text, const char *name, uint64_t *out)
{
    size_t n = strlen(name);

    for (const char *line = text; line != NULL && *line != '\0';) {
        if (strncmp(line, name, n) == 0 && (line[n] == ' ' || line[n] == ':')) {
            const char *value = line + n + 1;

            return parse_u64(value + strspn(value, " \t"), out);
        }
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
    return false;
}

/* ---- control groups ------------------------------------------------------------ */

/* Where this process is in one hierarchy: the mount point and, below it, the group. */
struct group {
    bool v2;
    char mount[PATH_CAP];
    char path[PATH_CAP];  /* "" or "/a/b" */
};

/* Whether a comma-separated list holds the word. */
static bool list_has(const char *list, size_t n, const char *word)
{
    size_t len = strlen(word);

    for (size_t i = 0; i <= n; i++) {
        size_t end = i;

        while (end < n && list[end] != ',') {
            end++;
        }
        if (end - i == len && memcmp(list + i, word, len) == 0) {
            return true;
        }
        i = end;
    }
    return false;
}

/* The group's path as /proc/self/cgroup gives it: "4:cpu,cpuacct:/a/b", version 2 "0::/a/b". */
static bool group_path(const char *text, const char *controller, char *out)
{
    for (const char *line = text; *line != '\0';) {
        const char *end = strchrnul(line, '\n');
        const char *list = memchr(line, ':', (size_t)(end - line));
        const char *path = list ? memchr(list + 1, ':', (size_t)(end - list - 1)) : NULL;

        if (path != NULL) {
            size_t list_n = (size_t)(path - list - 1);
            size_t path_n = (size_t)(end - path - 1);
            bool match = controller[0] == '\0' ? list_n == 0 : list_has(list + 1, list_n, controller);

            if (match && path_n < PATH_CAP) {
                memcpy(out, path + 1, path_n);
                out[path_n] = '\0';
                return true;
            }
        }
        line = *end == '\0' ? end : end + 1;
    }
    return false;
}

/* Finds the mount of the controller ("" for version 2) and what part of the hierarchy it
 * shows.  A line: id parent dev ROOT MOUNT options [tags] - TYPE source SUPER-OPTIONS. */
static bool group_mount(char *text, const char *controller, char *mount, char *shown)
{
    char *next_line;

    for (char *line = strtok_r(text, "\n", &next_line); line != NULL;
         line = strtok_r(NULL, "\n", &next_line)) {
        char *tail = strstr(line, " - ");
        char type[32], options[512];

        if (tail == NULL || sscanf(tail, " - %31s %*s %511s", type, options) != 2 ||
            strcmp(type, controller[0] == '\0' ? "cgroup2" : "cgroup") != 0) {
            continue;
        }
        if (controller[0] != '\0' && !list_has(options, strlen(options), controller)) {
            continue;
        }
        *tail = '\0';
        if (sscanf(line, "%*s %*s %*s %4095s %4095s", shown, mount) == 2) {
            return true;
        }
    }
    return false;
}

/* The group of this process in the hierarchy of the controller ("" for version 2). */
static bool find_group(const char *root, const char *controller, struct group *g)
{
    char shown[PATH_CAP], path[PATH_CAP];
    struct buf b;

    buf_init(&b, 0);
    bool ok = read_below(root, &b, "/proc/self/cgroup") &&
              group_path(buf_str(&b), controller, path) &&
              read_below(root, &b, "/proc/self/mountinfo") && b.data != NULL &&
              group_mount(b.data, controller, g->mount, shown);

    buf_deinit(&b);
    if (!ok) {
        return false;
    }
    /* A container often sees only its own part of the hierarchy: the mount then shows
     * that part, and the path is cut by it.  A path outside of it is the mount itself. */
    size_t n = strcmp(shown, "/") == 0 ? 0 : strlen(shown);
    bool inside = strncmp(path, shown, n) == 0 && (path[n] == '/' || path[n] == '\0');

    g->v2 = controller[0] == '\0';
    snprintf(g->path, sizeof g->path, "%s", inside ? path + n : "");
    if (strcmp(g->path, "/") == 0) {
        g->path[0] = '\0';
    }
    return true;
}

/* Cuts the last part of the group's path; false at the top. */
static bool group_up(struct group *g)
{
    char *slash = strrchr(g->path, '/');

    if (slash == NULL) {
        return false;
    }
    *slash = '\0';
    return true;
}

static bool read_group(const char *root, const struct group *g, const char *file, struct buf *b)
{
    return read_below(root, b, "%s%s/%s", g->mount, g->path, file);
}

static bool read_group_u64(const char *root, const struct group *g, const char *file,
                           struct buf *b, uint64_t *out)
{
    return read_group(root, g, file, b) && parse_u64(buf_str(b), out);
}

/* Quota of one group in thousandths of a CPU; false when it has none. */
static bool group_quota(const char *root, const struct group *g, struct buf *b, uint64_t *out)
{
    uint64_t quota, period;

    if (g->v2) {
        /* "max 100000" or "150000 100000" */
        if (!read_group_u64(root, g, "cpu.max", b, &quota)) {
            return false;
        }
        const char *space = strchr(buf_str(b), ' ');

        if (space == NULL || !parse_u64(space + 1, &period)) {
            return false;
        }
    } else if (!read_group_u64(root, g, "cpu.cfs_quota_us", b, &quota) ||
               !read_group_u64(root, g, "cpu.cfs_period_us", b, &period)) {
        return false;
    }
    if (quota == 0 || period == 0 || quota > UINT64_MAX / 1000) {
        return false;
    }
    *out = quota * 1000 / period;
    return true;
}

uint64_t cpu_quota_below(const char *root)
{
    static const char *const controllers[] = {"cpu", ""};
    struct group g;
    struct buf b;
    uint64_t least = 0;

    buf_init(&b, 0);
    for (int i = 0; i < 2; i++) {
        if (!find_group(root, controllers[i], &g)) {
            continue;
        }
        do {
            uint64_t quota;

            if (group_quota(root, &g, &b, &quota) && (least == 0 || quota < least)) {
                /* Below a thousandth is still a limit. */
                least = quota > 0 ? quota : 1;
            }
        } while (group_up(&g));
    }
    buf_deinit(&b);
    return least;
}

/* ---- memory --------------------------------------------------------------------- */

static const struct memory_files {
    const char *controller, *limit, *usage, *inactive, *active;
} memory_files[] = {
    {"memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
     "total_active_file"},
    {"", "memory.max", "memory.current", "inactive_file", "active_file"},
};

/* The least limit of the groups in *limit, and the least of what they leave in *left.
 * Cached file pages count as left: they make room when it is needed. */
static void group_memory(const char *root, uint64_t *limit, uint64_t *left)
{
    struct group g;
    struct buf b;

    buf_init(&b, 0);
    for (int i = 0; i < 2; i++) {
        const struct memory_files *f = &memory_files[i];

        if (!find_group(root, f->controller, &g)) {
            continue;
        }
        do {
            uint64_t max, used = 0, inactive = 0, active = 0;

            if (!read_group_u64(root, &g, f->limit, &b, &max)) {
                continue;
            }
            read_group_u64(root, &g, f->usage, &b, &used);
            if (read_group(root, &g, "memory.stat", &b)) {
                parse_field(buf_str(&b), f->inactive, &inactive);
                parse_field(buf_str(&b), f->active, &active);
            }
            uint64_t cached = inactive + active;
            uint64_t held = used > cached ? used - cached : 0;

            *limit = max < *limit ? max : *limit;
            max = max > held ? max - held : 0;
            *left = max < *left ? max : *left;
        } while (group_up(&g));
    }
    buf_deinit(&b);
}

static uint64_t meminfo_bytes(const char *root, const char *field)
{
    struct buf b;
    uint64_t kib = 0;

    buf_init(&b, 0);
    if (read_below(root, &b, "/proc/meminfo")) {
        parse_field(buf_str(&b), field, &kib);
    }
    buf_deinit(&b);
    return kib * 1024;
}

uint64_t cpu_ram_below(const char *root)
{
    uint64_t limit = meminfo_bytes(root, "MemTotal"), left = UINT64_MAX;

    group_memory(root, &limit, &left);
    return limit;
}

uint64_t cpu_ram_free_below(const char *root)
{
    uint64_t limit = UINT64_MAX, left = meminfo_bytes(root, "MemAvailable");

    group_memory(root, &limit, &left);
    return left;
}

uint64_t cpu_ram_bytes(void)
{
    return cpu_ram_below("");
}

uint64_t cpu_ram_free_bytes(void)
{
    return cpu_ram_free_below("");
}

/* A field of /proc/self/status in KiB; 0 where there is none. */
static uint64_t status_kib(const char *field)
{
    struct buf b;
    uint64_t kib = 0;

    buf_init(&b, 0);
    if (read_below("", &b, "/proc/self/status")) {
        parse_field(buf_str(&b), field, &kib);
    }
    buf_deinit(&b);
    return kib;
}

uint64_t cpu_rss_own_bytes(void)
{
    return status_kib("RssAnon") * 1024;
}

uint64_t cpu_peak_rss_bytes(void)
{
    /* getrusage would also count the program that started this one. */
    uint64_t kib = status_kib("VmHWM");

    if (kib == 0) {
        struct rusage usage;

        getrusage(RUSAGE_SELF, &usage);
        kib = (uint64_t)usage.ru_maxrss;
    }
    return kib * 1024;
}

/* ---- cores ---------------------------------------------------------------------- */

int cpu_mask_count(const struct cpu_mask *m)
{
    int n = 0;

    for (int i = 0; i < CPU_MAX / 64; i++) {
        n += __builtin_popcountll(m->bits[i]);
    }
    return n;
}

bool cpu_mask_parse(struct cpu_mask *m, const char *list)
{
    *m = (struct cpu_mask){0};
    for (const char *s = list; *s != '\0' && *s != '\n';) {
        char *end;

        if (*s < '0' || *s > '9') {
            return false;
        }
        unsigned long first = strtoul(s, &end, 10), last = first;

        if (*end == '-') {
            s = end + 1;
            if (*s < '0' || *s > '9') {
                return false;
            }
            last = strtoul(s, &end, 10);
        }
        if (last < first || last >= CPU_MAX) {
            return false;
        }
        for (unsigned long cpu = first; cpu <= last; cpu++) {
            cpu_mask_add(m, (int)cpu);
        }
        if (*end == ',') {
            end++;
        } else if (*end != '\0' && *end != '\n') {
            return false;
        }
        s = end;
    }
    return true;
}

/* A core counts by the first of its hardware threads that we may use. */
static void keep_one_per_core(const char *root, struct cpu_mask *m, struct buf *b)
{
    static const char *const names[] = {"core_cpus_list", "thread_siblings_list"};
    struct cpu_mask kept = *m;

    for (int cpu = 0; cpu < CPU_MAX; cpu++) {
        struct cpu_mask siblings;
        bool known = false;

        for (int i = 0; i < 2 && !known && cpu_mask_has(&kept, cpu); i++) {
            known = read_below(root, b, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, names[i]) &&
                    cpu_mask_parse(&siblings, buf_str(b)) && cpu_mask_has(&siblings, cpu);
        }
        for (int other = cpu + 1; known && other < CPU_MAX; other++) {
            if (cpu_mask_has(&siblings, other)) {
                cpu_mask_drop(&kept, other);
            }
        }
    }
    *m = kept;
}

/* Keeps the CPUs whose value in `file` is at least `percent` of the largest.  Unless all
 * have one, nothing is known and all stay. */
static void keep_fast(const char *root, struct cpu_mask *m, const char *file, int percent,
                      struct buf *b)
{
    uint64_t max = 0;
    struct cpu_mask kept = *m;

    for (int pass = 0; pass < 2; pass++) {
        for (int cpu = 0; cpu < CPU_MAX; cpu++) {
            uint64_t v;

            if (!cpu_mask_has(m, cpu)) {
                continue;
            }
            if (!read_below(root, b, "/sys/devices/system/cpu/cpu%d/%s", cpu, file) ||
                !parse_u64(buf_str(b), &v) || v > UINT64_MAX / 100) {
                return;
            }
            if (pass == 0) {
                max = v > max ? v : max;
            } else if (v * 100 < max * (uint64_t)percent) {
                cpu_mask_drop(&kept, cpu);
            }
        }
    }
    *m = kept;
}

/* Efficiency cores finish their share late or take bandwidth from the others.  The
 * kernel names them on hybrid Intel CPUs; elsewhere capacity or the top frequency tells
 * (small Arm cores have a third of the capacity of large ones; the frequencies of equal
 * cores differ by some 10%). */
static void keep_performance(const char *root, struct cpu_mask *m, struct buf *b)
{
    struct cpu_mask big;

    if (read_below(root, b, "/sys/devices/cpu_core/cpus") && cpu_mask_parse(&big, buf_str(b))) {
        for (int i = 0; i < CPU_MAX / 64; i++) {
            big.bits[i] &= m->bits[i];
        }
        if (cpu_mask_count(&big) > 0) {
            *m = big;
        }
        return;
    }
    keep_fast(root, m, "cpu_capacity", 60, b);
    keep_fast(root, m, "cpufreq/cpuinfo_max_freq", 70, b);
}

static int present_cpus(const char *root, struct buf *b)
{
    struct cpu_mask m;
    bool known = read_below(root, b, "/sys/devices/system/cpu/online") &&
                 cpu_mask_parse(&m, buf_str(b));

    return known ? cpu_mask_count(&m) : 0;
}

int cpu_cores_below(const char *root, const struct cpu_mask *allowed, char *why, size_t cap)
{
    struct cpu_mask m = *allowed;
    struct buf b;

    buf_init(&b, 0);
    int online = present_cpus(root, &b);
    int threads = cpu_mask_count(&m);

    keep_one_per_core(root, &m, &b);
    int cores = cpu_mask_count(&m);

    keep_performance(root, &m, &b);
    int fast = cpu_mask_count(&m);

    buf_deinit(&b);
    uint64_t quota = cpu_quota_below(root);
    int n = fast;

    if (quota != 0 && quota / 1000 < (uint64_t)n) {
        n = quota < 1000 ? 1 : (int)(quota / 1000);
        snprintf(why, cap, "control group quota of %" PRIu64 ".%02" PRIu64 " CPUs", quota / 1000,
                 quota % 1000 / 10);
    } else if (fast < cores) {
        snprintf(why, cap, "%d performance cores of %d", fast, cores);
    } else if (threads < online) {
        snprintf(why, cap, "affinity mask: %d of %d CPUs, %d cores", threads, online, cores);
    } else if (cores < threads) {
        snprintf(why, cap, "%d physical cores with %d hardware threads", cores, threads);
    } else {
        snprintf(why, cap, "all %d cores", cores);
    }
    return n > 0 ? n : 1;
}

/* The affinity mask of this process. */
static void affinity(struct cpu_mask *m)
{
    *m = (struct cpu_mask){0};
    if (sched_getaffinity(0, sizeof m->bits, (cpu_set_t *)m->bits) != 0) {
        long n = sysconf(_SC_NPROCESSORS_ONLN);

        for (long cpu = 0; cpu < n; cpu++) {
            cpu_mask_add(m, (int)cpu);
        }
    }
}

int cpu_usable_cores(char *why, size_t cap)
{
    struct cpu_mask m;

    affinity(&m);
    return cpu_cores_below("", &m, why, cap);
}

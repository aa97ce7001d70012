/* cpu_sys.h - what Linux says about cores and memory, for any root directory.
 *
 * cpu_usable_cores and its neighbours in cpu.h ask the running system, whose root
 * is ""; tests put a tree of small files anywhere and ask that.  Missing and
 * malformed files count as "no such limit". */
#ifndef CPU_SYS_H
#define CPU_SYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Logical CPUs by number. */
enum { CPU_MAX = 8192 };

struct cpu_mask {
    uint64_t bits[CPU_MAX / 64];
};

static inline bool cpu_mask_has(const struct cpu_mask *m, int cpu)
{
    return cpu >= 0 && cpu < CPU_MAX && (m->bits[cpu / 64] >> (cpu % 64) & 1) != 0;
}

static inline void cpu_mask_add(struct cpu_mask *m, int cpu)
{
    if (cpu >= 0 && cpu < CPU_MAX) {
        m->bits[cpu / 64] |= (uint64_t)1 << (cpu % 64);
    }
}

static inline void cpu_mask_drop(struct cpu_mask *m, int cpu)
{
    if (cpu >= 0 && cpu < CPU_MAX) {
        m->bits[cpu / 64] &= ~((uint64_t)1 << (cpu % 64));
    }
}

int cpu_mask_count(const struct cpu_mask *m);

/* "0-3,8,10-11\n"; false when malformed. */
bool cpu_mask_parse(struct cpu_mask *m, const char *list);

/* cpu_usable_cores for the machine below `root`, `allowed` being the affinity mask. */
int cpu_cores_below(const char *root, const struct cpu_mask *allowed, char *why, size_t cap);

/* CPU time per time that the control groups allow, in thousandths; 0: no limit. */
uint64_t cpu_quota_below(const char *root);

uint64_t cpu_ram_below(const char *root);
uint64_t cpu_ram_free_below(const char *root);

#endif

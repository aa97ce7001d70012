/* main.c - kerncheck: every kernel of every tier of this machine against the scalar one.
 *
 *   kerncheck                       compare, print the table of kernels
 *   kerncheck --bench [--mib N]     measure integer products; N: size of the matrix
 *             [--isa NAME] [--type NAME]                   that is read from memory
 *
 * Exit code 1 when a comparison failed or a tier lacks a kernel of its own. */
#include "kerncheck.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fpenv.h"
#include "kern/dot.h"

/* ---- guarded memory --------------------------------------------------------------- */

struct guarded guarded_new(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t data = (bytes + page - 1) / page * page;
    struct guarded g = { .map_bytes = data + page };

    g.map = mmap(NULL, g.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g.map == MAP_FAILED || mprotect((char *)g.map + data, page, PROT_NONE) != 0) {
        perror("kerncheck: guarded memory");
        exit(1);
    }
    g.p = (char *)g.map + data - bytes;
    return g;
}

void guarded_free(struct guarded *g)
{
    munmap(g->map, g->map_bytes);
    *g = (struct guarded){ 0 };
}

/* ---- tiers ------------------------------------------------------------------------ */

static struct kern tiers[ISA_COUNT];

#pragma weak dot_amx_fill

static void fill_tiers(enum isa best)
{
    dot_scalar_fill(&tiers[ISA_SCALAR]);
#if defined(__x86_64__)
    static void (*const fill[ISA_COUNT])(struct kern *) = { NULL, dot_avx2_fill,
                                                            dot_avx512_fill, dot_amx_fill };
    for (int isa = 1; isa <= (int)best; isa++) {
        tiers[isa] = tiers[isa - 1];
        tiers[isa].isa = (enum isa)isa;
        if (fill[isa] != NULL) {
            fill[isa](&tiers[isa]);
        }
    }
#else
    (void)best;
#endif
}

/* ---- the table of kernels --------------------------------------------------------- */

struct entry {
    char name[32];
    size_t offset;  /* of a function pointer in struct kern */
};

enum { ENTRIES_MAX = 2 * QT_COUNT + 8 };

static int list_entries(struct entry *e)
{
    int n = 0;

    for (uint32_t id = 0; id < QT_COUNT; id++) {
        const struct quant_type *type = quant_type(id);
        if (type == NULL || type->act == ACT_F32) {
            continue;
        }
        snprintf(e[n].name, sizeof e[n].name, "mm %s", type->name);
        e[n++].offset = offsetof(struct kern, mm) + id * sizeof(kern_mm_fn *);
    }
    snprintf(e[n].name, sizeof e[n].name, "act_quant");
    e[n++].offset = offsetof(struct kern, act_quant);
    snprintf(e[n].name, sizeof e[n].name, "pack");
    e[n++].offset = offsetof(struct kern, pack);
    return n;
}

static uintptr_t address_of(const struct kern *k, const struct entry *e)
{
    uintptr_t p;

    memcpy(&p, (const char *)k + e->offset, sizeof p);
    return p;
}

/* The lowest tier with the same function; a dash where there is none. */
static const char *origin(const struct entry *e, int isa)
{
    const uintptr_t p = address_of(&tiers[isa], e);

    for (int i = 0; p != 0 && i <= isa; i++) {
        if (address_of(&tiers[i], e) == p) {
            return isa_name((enum isa)i);
        }
    }
    return "-";
}

/* Prints which tier each kernel comes from; counts the missing and the scalar ones. */
static int print_table(enum isa best)
{
    struct entry e[ENTRIES_MAX];
    const int n = list_entries(e);
    int failed = 0;

    printf("%-16s", "kernel");
    for (int isa = 0; isa <= (int)best; isa++) {
        printf(" %-8s", isa_name((enum isa)isa));
    }
    printf("\n");
    for (int i = 0; i < n; i++) {
        printf("%-16s", e[i].name);
        for (int isa = 0; isa <= (int)best; isa++) {
            const char *from = origin(&e[i], isa);
            const bool bad = isa > 0 && (strcmp(from, "-") == 0 || strcmp(from, "scalar") == 0);
            printf(" %-8s", from);
            failed += bad;
        }
        printf("\n");
    }
    if (failed != 0) {
        printf("%d kernels are missing or scalar in a higher tier\n", failed);
    }
    return failed;
}

int main(int argc, char **argv)
{
    const char *only_isa = NULL, *only_type = NULL;
    size_t matrix_mib = 512;
    bool bench = false;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--bench") == 0) {
            bench = true;
        } else if (strcmp(argv[i], "--isa") == 0 && i + 1 < argc) {
            only_isa = argv[++i];
        } else if (strcmp(argv[i], "--type") == 0 && i + 1 < argc) {
            only_type = argv[++i];
        } else if (strcmp(argv[i], "--mib") == 0 && i + 1 < argc && atoi(argv[i + 1]) > 0) {
            matrix_mib = (size_t)atoi(argv[++i]);
        } else {
            fprintf(stderr, "usage: kerncheck [--bench [--mib N] [--isa NAME] [--type NAME]]\n");
            return 2;
        }
    }
    fpenv_enter();
    const enum isa best = cpu_isa_best();
    fill_tiers(best);
    int failed = bench ? 0 : print_table(best);
    for (int isa = bench ? 0 : 1; isa <= (int)best; isa++) {
        if (only_isa != NULL && strcmp(only_isa, isa_name((enum isa)isa)) != 0) {
            continue;
        }
        if (bench) {
            kerncheck_dot_bench(&tiers[isa], only_type, matrix_mib << 20);
        } else {
            const int n = kerncheck_dot(&tiers[ISA_SCALAR], &tiers[isa]);
            printf("%-8s integer products: %s\n", isa_name((enum isa)isa), n ? "DIFFER" : "equal");
            failed += n;
        }
    }
    if (!bench && best == ISA_SCALAR) {
        printf("this CPU has only the scalar tier: nothing to compare\n");
    }
    return failed != 0;
}

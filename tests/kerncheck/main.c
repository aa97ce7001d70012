/* main.c - kerncheck: every kernel of every tier of this machine against the scalar one.
 *
 *   kerncheck [--isa NAME]     compare, print the table of kernels
 *   kerncheck --bench [--isa NAME] [--type NAME] [--k N] [--mib N]
 *   kerncheck --bench --floats [--isa NAME]      measure the float kernels instead
 *                              measure integer products; N: length of a row, size of
 *                              the matrix that is read from memory
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

/* ---- the table of kernels --------------------------------------------------------- */

struct entry {
    char name[32];
    size_t offset;  /* of a function pointer in struct kern */
};

enum { ENTRIES_MAX = 2 * QT_COUNT + 32 };

#define ENTRY(field) { #field, offsetof(struct kern, field) }

static const struct entry fixed_entries[] = {
    ENTRY(act_quant), ENTRY(pack), ENTRY(rmsnorm), ENTRY(layernorm), ENTRY(l2norm),
    ENTRY(add), ENTRY(mul), ENTRY(scale),
    { "gate silu", offsetof(struct kern, gate[GATE_SILU]) },
    { "gate gelu", offsetof(struct kern, gate[GATE_GELU]) },
    { "gate sigmoid", offsetof(struct kern, gate[GATE_SIGMOID]) },
    ENTRY(softcap), ENTRY(rope_pairs), ENTRY(rope_halves), ENTRY(to_f16),
    { "exp", offsetof(struct kern, unary[UNARY_EXP]) },
    { "sigmoid", offsetof(struct kern, unary[UNARY_SIGMOID]) },
    { "silu", offsetof(struct kern, unary[UNARY_SILU]) },
    { "gelu", offsetof(struct kern, unary[UNARY_GELU]) },
    { "tanh", offsetof(struct kern, unary[UNARY_TANH]) },
    { "log", offsetof(struct kern, unary[UNARY_LOG]) },
    { "softplus", offsetof(struct kern, unary[UNARY_SOFTPLUS]) },
    { "erf", offsetof(struct kern, unary[UNARY_ERF]) },
    ENTRY(max), ENTRY(attn_segment), ENTRY(attn_fold), ENTRY(attn_finish),
    ENTRY(conv_silu), ENTRY(delta_rule), ENTRY(canary),
};

static int list_entries(struct entry *e)
{
    int n = 0;

    for (uint32_t id = 0; id < QT_COUNT; id++) {
        const struct quant_type *type = quant_type(id);
        if (type == NULL) {
            continue;
        }
        const bool is_float = type->act == ACT_F32;
        snprintf(e[n].name, sizeof e[n].name, "%s %s", is_float ? "fmm" : "mm", type->name);
        e[n++].offset = is_float ? offsetof(struct kern, fmm) + id * sizeof(kern_fmm_fn *)
                                 : offsetof(struct kern, mm) + id * sizeof(kern_mm_fn *);
    }
    for (size_t i = 0; i < sizeof fixed_entries / sizeof *fixed_entries; i++) {
        e[n++] = fixed_entries[i];
    }
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
    const uintptr_t p = address_of(kern_get((enum isa)isa), e);

    for (int i = 0; p != 0 && i <= isa; i++) {
        if (address_of(kern_get((enum isa)i), e) == p) {
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

static int check_tier(const struct kern *k)
{
    static const struct {
        const char *what;
        int (*check)(const struct kern *scalar, const struct kern *k);
    } groups[] = {
        { "integer products", kerncheck_dot }, { "float rows", kerncheck_ops },
        { "float products", kerncheck_fmat }, { "attention", kerncheck_attn },
        { "recurrent layers", kerncheck_delta },
    };
    int failed = 0;

    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        /* The AMX tier adds integer products only. */
        if (i > 0 && k->isa == ISA_AMX
            && k->attn_segment == kern_get(ISA_AVX512)->attn_segment) {
            printf("%-8s %s: those of avx512\n", isa_name(k->isa), groups[i].what);
            continue;
        }
        const int n = groups[i].check(kern_get(ISA_SCALAR), k);

        printf("%-8s %s: %s\n", isa_name(k->isa), groups[i].what, n ? "DIFFER" : "equal");
        failed += n;
    }
    return failed;
}

static int usage(void)
{
    fprintf(stderr, "usage: kerncheck [--isa NAME]\n"
                    "       kerncheck --bench [--isa NAME] [--type NAME] [--k N] [--mib N]\n"
                    "       kerncheck --bench --floats [--isa NAME]\n"
                    "--k is a multiple of 256\n");
    return 2;
}

int main(int argc, char **argv)
{
    const char *only_isa = NULL, *only_type = NULL;
    int matrix_mib = 512, k = 2048;
    bool bench = false, floats = false;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--bench") == 0) {
            bench = true;
        } else if (strcmp(argv[i], "--floats") == 0) {
            floats = true;
        } else if (strcmp(argv[i], "--isa") == 0 && i + 1 < argc) {
            only_isa = argv[++i];
        } else if (strcmp(argv[i], "--type") == 0 && i + 1 < argc) {
            only_type = argv[++i];
        } else if (strcmp(argv[i], "--mib") == 0 && i + 1 < argc) {
            matrix_mib = atoi(argv[++i]);
        } else if (strcmp(argv[i], "--k") == 0 && i + 1 < argc) {
            k = atoi(argv[++i]);
        } else {
            return usage();
        }
    }
    if (matrix_mib < 1 || k < 256 || k % 256 != 0) {
        return usage();
    }
    fpenv_enter();
    const enum isa best = cpu_isa_best();
    int failed = bench ? 0 : print_table(best);
    bool known = only_isa == NULL;
    for (int isa = bench ? 0 : 1; isa <= (int)best; isa++) {
        if (only_isa != NULL && strcmp(only_isa, isa_name((enum isa)isa)) != 0) {
            continue;
        }
        known = true;
        if (bench && floats) {
            kerncheck_float_bench(kern_get((enum isa)isa));
        } else if (bench) {
            kerncheck_dot_bench(kern_get((enum isa)isa), only_type, k,
                                (size_t)matrix_mib << 20);
        } else {
            failed += check_tier(kern_get((enum isa)isa));
        }
    }
    if (!known) {
        fprintf(stderr, "kerncheck: this CPU has no tier %s to compare\n", only_isa);
        return 1;
    }
    if (!bench && best == ISA_SCALAR) {
        printf("this CPU has only the scalar tier: nothing to compare\n");
    }
    return failed != 0;
}

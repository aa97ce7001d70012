/* kern.c - chooses the kernels of a tier and checks them.
 *
 * A table is the scalar one, overwritten upward by each tier that the CPU has.  The
 * functions that fill it are compiled for their instruction set, so they run only
 * where the CPU has it. */
#include "kern/kern.h"

#include <assert.h>
#include <pthread.h>

#include "kern/dot.h"
#include "kern/fpguard.h"

static struct kern tables[ISA_COUNT];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static enum isa best;

static void build(enum isa isa)
{
    struct kern *k = &tables[isa];

    ops_scalar_fill(k);
    dot_scalar_fill(k);
#if defined(__x86_64__)
    if (isa >= ISA_AVX2) {
        ops_avx2_fill(k);
        dot_avx2_fill(k);
    }
    if (isa >= ISA_AVX512) {
        ops_avx512_fill(k);
        dot_avx512_fill(k);
    }
    if (isa >= ISA_AMX) {
        dot_amx_fill(k);
    }
#endif
    k->isa = isa;
}

static void build_all(void)
{
    best = cpu_isa_best();
    for (int i = 0; i <= (int)best; i++) {
        build((enum isa)i);
    }
}

const struct kern *kern_get(enum isa isa)
{
    pthread_once(&once, build_all);
    assert(isa <= best);
    return &tables[isa];
}

bool kern_canary(void)
{
    pthread_once(&once, build_all);
    for (int i = 0; i <= (int)best; i++) {
        if (!tables[i].canary()) {
            return false;
        }
    }
    return true;
}

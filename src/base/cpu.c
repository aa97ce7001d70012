/* cpu.c - instruction sets: CPUID, what the kernel saves and permits, and SLM_ISA. */
#include "base/cpu.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const char *const isa_names[ISA_COUNT] = {"scalar", "avx2", "avx512", "amx"};

const char *isa_name(enum isa isa)
{
    return isa_names[isa];
}

/* Found once. */
static struct {
    pthread_once_t once;
    enum isa best;
    char features[256];
} found = {.once = PTHREAD_ONCE_INIT};

static void add_feature(const char *name)
{
    size_t n = strlen(found.features);

    snprintf(found.features + n, sizeof found.features - n, "%s%s", n > 0 ? " " : "", name);
}

#if defined(__x86_64__)

enum reg { EAX, EBX, ECX, EDX };

/* State that the kernel must save at a context switch (bits of XCR0). */
enum {
    STATE_YMM = 1 << 1 | 1 << 2,
    STATE_ZMM = STATE_YMM | 1 << 5 | 1 << 6 | 1 << 7,
    STATE_TILE = 1 << 17 | 1 << 18,
};

static const struct feature {
    const char *name;
    uint32_t leaf, subleaf;
    enum reg reg;
    int bit;
    uint32_t state;
    enum isa tier;  /* lowest tier that needs it; ISA_COUNT: none */
} features[] = {
    {"sse4.2",        1, 0, ECX, 20, 0,          ISA_COUNT},
    {"popcnt",        1, 0, ECX, 23, 0,          ISA_COUNT},
    {"avx",           1, 0, ECX, 28, STATE_YMM,  ISA_AVX2},
    {"f16c",          1, 0, ECX, 29, STATE_YMM,  ISA_AVX2},
    {"fma",           1, 0, ECX, 12, STATE_YMM,  ISA_AVX2},
    {"avx2",          7, 0, EBX, 5,  STATE_YMM,  ISA_AVX2},
    {"bmi2",          7, 0, EBX, 8,  0,          ISA_AVX2},
    {"avx_vnni",      7, 1, EAX, 4,  STATE_YMM,  ISA_COUNT},
    {"avx512f",       7, 0, EBX, 16, STATE_ZMM,  ISA_AVX512},
    {"avx512bw",      7, 0, EBX, 30, STATE_ZMM,  ISA_AVX512},
    {"avx512vl",      7, 0, EBX, 31, STATE_ZMM,  ISA_AVX512},
    {"avx512dq",      7, 0, EBX, 17, STATE_ZMM,  ISA_AVX512},
    {"avx512_vnni",   7, 0, ECX, 11, STATE_ZMM,  ISA_AVX512},
    {"avx512_vbmi",   7, 0, ECX, 1,  STATE_ZMM,  ISA_COUNT},
    {"avx512_bf16",   7, 1, EAX, 5,  STATE_ZMM,  ISA_COUNT},
    {"avx512_fp16",   7, 0, EDX, 23, STATE_ZMM,  ISA_COUNT},
    {"amx_bf16",      7, 0, EDX, 22, STATE_TILE, ISA_AMX},
    {"amx_tile",      7, 0, EDX, 24, STATE_TILE, ISA_AMX},
    {"amx_int8",      7, 0, EDX, 25, STATE_TILE, ISA_AMX},
};

static uint32_t cpuid_reg(uint32_t leaf, uint32_t subleaf, enum reg reg)
{
    uint32_t r[4] = {0};

    /* A subleaf above the highest one of leaf 7 reads as garbage on old CPUs. */
    if (subleaf > 0 && cpuid_reg(leaf, 0, EAX) < subleaf) {
        return 0;
    }
    return __get_cpuid_count(leaf, subleaf, &r[EAX], &r[EBX], &r[ECX], &r[EDX]) ? r[reg] : 0;
}

static uint64_t xcr0(void)
{
    uint32_t lo, hi;

    /* XGETBV exists when the kernel has set OSXSAVE. */
    if ((cpuid_reg(1, 0, ECX) >> 27 & 1) == 0) {
        return 0;
    }
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

/* Tile registers are 8 KiB per thread, so the kernel hands them out on request. */
static bool tiles_permitted(void)
{
#if defined(SYS_arch_prctl)
    enum { GET_XCOMP_PERM = 0x1022, REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 };
    uint64_t mask = 0;

    syscall(SYS_arch_prctl, REQ_XCOMP_PERM, XTILEDATA);
    return syscall(SYS_arch_prctl, GET_XCOMP_PERM, &mask) == 0 && (mask >> XTILEDATA & 1) != 0;
#else
    return false;
#endif
}

static void find_all(void)
{
    uint64_t state = xcr0();
    enum isa limit = ISA_AMX;  /* the highest tier that nothing rules out yet */

    for (size_t i = 0; i < sizeof features / sizeof features[0]; i++) {
        const struct feature *f = &features[i];
        bool has = (cpuid_reg(f->leaf, f->subleaf, f->reg) >> f->bit & 1) != 0 &&
                   (state & f->state) == f->state;

        if (has) {
            add_feature(f->name);
        } else if (f->tier != ISA_COUNT && limit >= f->tier) {
            limit = f->tier - 1;
        }
    }
    if (limit == ISA_AMX && !tiles_permitted()) {
        limit = ISA_AVX512;
    }
    found.best = limit;
}

#elif defined(__aarch64__)

static void find_all(void)
{
    static const struct {
        const char *name;
        unsigned long type;
        int bit;
    } features[] = {
        {"neon", AT_HWCAP, 1},
        {"fp16", AT_HWCAP, 10},
        {"dotprod", AT_HWCAP, 20},
        {"sve", AT_HWCAP, 22},
        {"i8mm", AT_HWCAP2, 13},
        {"bf16", AT_HWCAP2, 14},
    };

    for (size_t i = 0; i < sizeof features / sizeof features[0]; i++) {
        if ((getauxval(features[i].type) >> features[i].bit & 1) != 0) {
            add_feature(features[i].name);
        }
    }
    found.best = ISA_SCALAR;
}

#else

static void find_all(void)
{
    found.best = ISA_SCALAR;
}

#endif

enum isa cpu_isa_best(void)
{
    pthread_once(&found.once, find_all);
    return found.best;
}

void cpu_features(char *out, size_t cap)
{
    pthread_once(&found.once, find_all);
    snprintf(out, cap, "%s", found.features);
}

/* "scalar, avx2" up to the best tier. */
static void list_tiers(char *out, size_t cap)
{
    out[0] = '\0';
    for (int i = 0; i <= (int)cpu_isa_best(); i++) {
        size_t n = strlen(out);

        snprintf(out + n, cap - n, "%s%s", n > 0 ? ", " : "", isa_names[i]);
    }
}

bool cpu_isa(enum isa *out, slm_error *err)
{
    const char *name = getenv("SLM_ISA");
    char tiers[64];

    *out = cpu_isa_best();
    if (name == NULL || name[0] == '\0') {
        return true;
    }
    list_tiers(tiers, sizeof tiers);
    for (int i = 0; i < ISA_COUNT; i++) {
        if (strcmp(name, isa_names[i]) != 0) {
            continue;
        }
        if (i > (int)cpu_isa_best()) {
            return slm_fail(err, SLM_E_ARG, "SLM_ISA=%s: this CPU or kernel lacks it; there is: %s",
                            name, tiers);
        }
        *out = (enum isa)i;
        return true;
    }
    return slm_fail(err, SLM_E_ARG, "SLM_ISA=%.40s: no such tier; there is: %s", name, tiers);
}

/* cpu.h - what the machine offers: instruction sets, usable cores, memory. */
#ifndef CPU_H
#define CPU_H

#include "base/error.h"

enum isa { ISA_SCALAR, ISA_AVX2, ISA_AVX512, ISA_AMX, ISA_COUNT };

/* "scalar", "avx2", "avx512", "amx" */
const char *isa_name(enum isa isa);

/* Highest tier of this CPU and kernel, by CPUID and XGETBV; asks the kernel's
 * permission for AMX tiles once.
 *   avx2:   AVX2, FMA, F16C, BMI2
 *   avx512: the above and AVX512 F, BW, VL, DQ, VNNI
 *   amx:    the above and AMX tile and int8, permitted by the kernel */
enum isa cpu_isa_best(void);

/* The tier to use: SLM_ISA where it is set (an unknown name or one above
 * cpu_isa_best is an error that lists what there is), else the best. */
bool cpu_isa(enum isa *out, slm_error *err);

/* Names of the features found, separated by spaces. */
void cpu_features(char *out, size_t cap);

/* Cores that are worth using: affinity mask, control group quota (v1 and v2,
 * rounded down, at least 1), one thread per physical core, performance cores
 * only; `why` says which limit decided. */
int cpu_usable_cores(char *why, size_t cap);

/* Memory that this process may use: physical memory or the control group's limit. */
uint64_t cpu_ram_bytes(void);
/* What of it is free now (MemAvailable, or what the control group leaves). */
uint64_t cpu_ram_free_bytes(void);
/* Memory of this process that is not backed by files. */
uint64_t cpu_rss_own_bytes(void);
/* Peak resident set of this process so far. */
uint64_t cpu_peak_rss_bytes(void);

#endif

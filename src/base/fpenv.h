/* fpenv.h - the floating-point control word.
 *
 * Results are defined under round-to-nearest with gradual underflow.  A library
 * linked with fast-math may have set flush-to-zero for the whole process, so
 * entry points of the API save, set and restore, and pool workers set. */
#ifndef FPENV_H
#define FPENV_H

#include <stdint.h>

#if defined(__x86_64__)

static inline uint64_t fpenv_enter(void)
{
    uint32_t old = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(0x1F80);  /* all exceptions masked, nearest, no FTZ, no DAZ */
    return old;
}

static inline void fpenv_leave(uint64_t old)
{
    __builtin_ia32_ldmxcsr((uint32_t)old);
}

#elif defined(__aarch64__)

static inline uint64_t fpenv_enter(void)
{
    uint64_t old;
    __asm__ volatile("mrs %0, fpcr" : "=r"(old));
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0));
    return old;
}

static inline void fpenv_leave(uint64_t old)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(old));
}

#else

static inline uint64_t fpenv_enter(void) { return 0; }
static inline void fpenv_leave(uint64_t old) { (void)old; }

#endif
#endif

/* fpguard.h - refuses compilers settings under which the arithmetic is not the contract's.
 *
 * Every kernel file includes this.  Contraction has no macro that would show it;
 * kern_canary() and the golden hashes catch that at run time. */
#ifndef FPGUARD_H
#define FPGUARD_H

#include <float.h>

#if defined(__FAST_MATH__)
#error "the kernels must not be compiled with -ffast-math"
#endif

/* 0: every operation is rounded to its own type (x87 arithmetic is not). */
#if FLT_EVAL_METHOD != 0
#error "the kernels need FLT_EVAL_METHOD == 0"
#endif

#endif

/* burst.h - how fast the integer units of a tier are when nothing else limits them. */
#ifndef BURST_H
#define BURST_H

#include <stdint.h>

#include "base/cpu.h"

/* Runs n rounds of the tier's 8-bit products on registers and returns the products computed. */
typedef uint64_t burst_fn(int n);

burst_fn burst_scalar, burst_avx2, burst_avx512, burst_amx;

#endif

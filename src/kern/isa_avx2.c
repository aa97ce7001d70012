/* isa_avx2.c - the float kernels with AVX2, FMA and F16C. */
#define V16_AVX2
#include "kern/isa.inc.c"

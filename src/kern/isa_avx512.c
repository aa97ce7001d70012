/* isa_avx512.c - the float kernels with AVX-512 F, BW, VL, DQ. */
#define V16_AVX512
#include "kern/isa.inc.c"

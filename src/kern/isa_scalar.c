/* isa_scalar.c - the float kernels with plain C. */
#define V16_SCALAR
#include "kern/isa.inc.c"

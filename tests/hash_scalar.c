/* hash_scalar.c - the scalar kernels once more, as a file of its own, so that they can be compiled
 * with contraction whatever the flags of the library's file are. */
#include "kern/isa_scalar.c"

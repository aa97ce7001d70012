/* kerncheck.h - comparing the kernels of every tier with the scalar ones.
 *
 * One file per group of kernels; each check returns how many comparisons failed
 * and has described the first ones on standard output. */
#ifndef KERNCHECK_H
#define KERNCHECK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/rng.h"
#include "kern/kern.h"

int kerncheck_dot(const struct kern *scalar, const struct kern *k);
int kerncheck_ops(const struct kern *scalar, const struct kern *k);
int kerncheck_fmat(const struct kern *scalar, const struct kern *k);
int kerncheck_attn(const struct kern *scalar, const struct kern *k);
int kerncheck_delta(const struct kern *scalar, const struct kern *k);

/* Measures the products and the packing of a tier; type: a name, or NULL for all of
 * them; row_k: weights in a row; matrix_bytes: of the matrix that stands for memory. */
void kerncheck_dot_bench(const struct kern *k, const char *type, int row_k,
                         size_t matrix_bytes);

/* Measures the float kernels of a tier. */
void kerncheck_float_bench(const struct kern *k);

/* Memory whose last byte is the last of a page, with an unreadable page behind:
 * what a kernel reads beyond its input ends the program.  Never NULL. */
struct guarded {
    void *p;
    void *map;
    size_t map_bytes;
};
struct guarded guarded_new(size_t bytes);
void guarded_free(struct guarded *g);

#endif

/* mix.h - which type each tensor of a model gets.
 *
 * A mix is a type for most matrices and exceptions for those whose errors show most.
 * Vectors, norms and small matrices that steer keep the type that they have. */
#ifndef MIX_H
#define MIX_H

#include "gguf/gguf.h"

struct mix;

/* By its name ("Q4_K_M"), in any case; NULL for others. */
const struct mix *mix_find(const char *name);

/* All names, separated by ", ". */
const char *mix_names(void);

/* The value of general.file_type for it. */
uint32_t mix_file_type(const struct mix *m);

/* Puts the type of every tensor of g into types [gguf_n_tensors]. */
bool mix_types(const struct mix *m, const struct gguf *g, uint32_t *types, slm_error *err);

#endif

/* mask.h - which tokens may come in a state of an automaton. */
#ifndef MASK_H
#define MASK_H

#include "guide/automaton.h"
#include "guide/guide_vocab.h"

/* Sets bits [t->words] to the allowed tokens of text in a state; most of the work is kept with the
 * state.  path: scratch [GUIDE_PATH].  False and *err where a state cannot be computed or
 * memory is out. */
bool mask_get(struct automaton *a, const struct guide_vocab *t, int32_t state, int32_t *path,
              uint64_t *bits, slm_error *err);

#endif

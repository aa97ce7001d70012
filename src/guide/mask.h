/* mask.h - which tokens may come in a state of an automaton. */
#ifndef MASK_H
#define MASK_H

#include "guide/automaton.h"
#include "guide/guide_vocab.h"

/* The allowed tokens of text in a state, bits [t->words], kept with the state.  path: scratch
 * [t->depth_max + 1].  NULL and *err where a state cannot be computed or memory is out. */
const uint64_t *mask_get(struct automaton *a, const struct guide_vocab *t, int32_t state,
                         int32_t *path, slm_error *err);

#endif

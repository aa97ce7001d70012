/* automaton.h - reading a grammar byte by byte.
 *
 * A state is a set of stacks of what remains to be read; states are made when they are
 * first reached and then stay for the next time, with the states that follow them by
 * each class of bytes.  The memory for them is bounded: automaton_trim forgets all, and
 * numbers of states from before mean nothing then. */
#ifndef AUTOMATON_H
#define AUTOMATON_H

#include "guide/grammar.h"

struct automaton;

/* Numbers of states are positive; this one is where a byte was wrong. */
enum { STATE_DEAD = 0 };

/* The grammar is finished and outlives the automaton; memory_max: bytes that states may take. */
struct automaton *automaton_new(const struct grammar *g, gram_expr root, size_t memory_max,
                                slm_error *err);
void automaton_free(struct automaton *a);

/* The state before the first byte.  Fails (-1) as automaton_step does. */
int32_t automaton_start(struct automaton *a, slm_error *err);

/* The state after a byte; -1 and *err where it cannot be computed: no memory, or more of it (or
 * of stacks in one state) than the limit. */
int32_t automaton_step_slow(struct automaton *a, int32_t state, unsigned char byte,
                            slm_error *err);

/* Whether the text so far is complete. */
bool automaton_accepts(const struct automaton *a, int32_t state);

/* Bytes that are needed at least to complete it; saturates. */
uint32_t automaton_dist(const struct automaton *a, int32_t state);

/* The state itself, or one that allows the same next `reach` bytes, though it may differ in what
 * comes later: repetitions are not counted far from their bounds.  -1 as above. */
int32_t automaton_alias(struct automaton *a, int32_t state, uint32_t reach, slm_error *err);

/* What the owner keeps for a state, NULL at first; freed with mem_free when the state is
 * forgotten.  `bytes` of it count as memory of the automaton. */
void *automaton_data(const struct automaton *a, int32_t state);
void automaton_set_data(struct automaton *a, int32_t state, void *data, size_t bytes);

/* Allows the next work, which is bounded too, and forgets all states where they take more than
 * `memory` bytes.  Whenever that happens the generation changes. */
void automaton_trim(struct automaton *a, size_t memory);
uint32_t automaton_generation(const struct automaton *a);

/* The same, but the state is kept under a new number.  Whether anything was forgotten.  Where
 * there is no memory for the stacks of the state it becomes -1. */
bool automaton_trim_to(struct automaton *a, size_t memory, int32_t *state);

/* Row of the next states by class of byte; STATE_UNKNOWN: not computed yet. */
enum { STATE_UNKNOWN = -1 };

struct automaton_table {
    const unsigned char *class_of;  /* [256] */
    const int32_t *next;            /* [state][n_classes] */
    uint32_t n_classes;
};

/* Valid until a state is made. */
const struct automaton_table *automaton_table(const struct automaton *a);

static inline int32_t automaton_step(struct automaton *a, int32_t state, unsigned char byte,
                                     slm_error *err)
{
    const struct automaton_table *t = automaton_table(a);
    const int32_t next = t->next[(size_t)state * t->n_classes + t->class_of[byte]];

    return next != STATE_UNKNOWN ? next : automaton_step_slow(a, state, byte, err);
}

#endif

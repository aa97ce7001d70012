/* recur.h - the states of a session's recurrent layers, and checkpoints of them.
 *
 * A state holds what all tokens so far have left and cannot be taken back a token, so
 * copies of it are kept at some positions.  Their number is fixed; the further back in the
 * text, the wider they lie apart.  Position 0, where all is zero, needs no copy. */
#ifndef RECUR_H
#define RECUR_H

#include "model/model.h"

struct recur;

/* Bytes of the states and n_checkpoints copies with logits; SIZE_MAX where it does not fit. */
size_t recur_bytes(const struct model *m, int n_checkpoints);

/* Fresh states; n_checkpoints >= 1.  What is never touched costs no RAM.  NULL and *err on
 * failure.  The model must have recurrent layers. */
struct recur *recur_new(const struct model *m, int n_checkpoints, slm_error *err);
void recur_free(struct recur *r);

/* The live states, for a step.  The table lives as long as r. */
float *const *recur_states(const struct recur *r);

/* Copies the live states, which stand at position pos, later than all checkpoints or the same as
 * the last; with logits [n_vocab] after pos tokens, or NULL. */
void recur_save(struct recur *r, int pos, const float *logits);

/* Position of the last checkpoint; 0 where there is none. */
int recur_last(const struct recur *r);

/* Whether there is a checkpoint at exactly pos that has logits. */
bool recur_has_logits(const struct recur *r, int pos);

/* Brings the live states back to the last checkpoint at or before pos, forgets later ones and
 * returns its position.  *has_logits tells whether `logits` was filled. */
int recur_restore(struct recur *r, int pos, float *logits, bool *has_logits);

#endif

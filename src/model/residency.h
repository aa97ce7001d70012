/* residency.h - where the weights are: in the mapping, packed into panels, or streamed.
 *
 * Packing copies a matrix into panels and gives the mapped pages back, so one copy
 * stays resident.  Where the weights do not fit into memory, as many as fit are copied into
 * memory (pinned) and the others streamed from the file in every step; nothing of the mapping
 * stays resident then.  All forms give the same bits, so a switch may happen at any time. */
#ifndef RESIDENCY_H
#define RESIDENCY_H

#include "model/model.h"

struct residency;
struct stream;

/* NULL with *err when memory for it is out; a tier without panels packs nothing. */
struct residency *residency_new(struct model *m, const struct model_place *place, slm_error *err);

/* Called after every step.  The first time it starts packing in the background, which so does not
 * delay the first step; when all is packed it gives back what steps have mapped meanwhile. */
void residency_step_done(struct residency *r);

/* Stops and frees the panels; no step may run any more. */
void residency_free(struct residency *r);

/* Where weights with pieces come from; NULL where none are streamed. */
struct stream *residency_stream(struct residency *r);

/* Room for reading one row of any table, for each worker of the pool. */
void *residency_row_room(struct residency *r, int worker);

#endif

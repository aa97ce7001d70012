/* residency.h - where the weights are: in the mapping, or packed into panels.
 *
 * Packing copies a matrix into panels and gives the mapped pages back, so one copy
 * stays resident.  Both forms give the same bits, so the switch may happen at any
 * time. */
#ifndef RESIDENCY_H
#define RESIDENCY_H

#include "model/model.h"

struct residency;

/* NULL with *err when memory for it is out; a tier without panels packs nothing. */
struct residency *residency_new(struct model *m, enum model_pack pack, slm_error *err);

/* Starts packing in the background, the first time; called after the first step, so that
 * packing does not delay it. */
void residency_start(struct residency *r);

/* Stops and frees the panels; no step may run any more. */
void residency_free(struct residency *r);

#endif

/* step.h - how a step begins and ends; for the step of the model and that of its draft block. */
#ifndef STEP_H
#define STEP_H

#include "model/forward.h"

/* What logits are made with. */
struct head {
    struct norm norm;
    const struct weight *output;
    const float *bias;
};

/* Sets up a step and places its tokens; false where one is out of range. */
bool step_begin(struct step *st, struct model *m, struct work *w, const struct step_in *in,
                slm_error *err);

/* Rotations of token t. */
void step_rope(struct step *st, int t);

/* Hidden rows where asked for, and the logits of the wanted tokens, from x [n_tok][n_embd]. */
bool step_finish(struct step *st, const float *x, const struct head *head, float *logits,
                 slm_error *err);

#endif

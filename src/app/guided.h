/* guided.h - the options that say to which language an answer belongs. */
#ifndef GUIDED_H
#define GUIDED_H

#include "app/args.h"
#include "slm.h"

/* Values of --schema, --regex, --grammar and --choices by the constant of their kind. */
struct guided {
    const char *option[SLM_GUIDE_CHOICES + 1];
};

/* For a struct guided. */
extern const struct opt guided_opts[];

/* How many of them were given. */
int guided_count(const struct guided *g);

/* The guide that the one of them asks for, made before a prompt is computed; NULL and *err. */
slm_guide *guided_new(slm_model *model, const struct guided *g, slm_error *err);

#endif

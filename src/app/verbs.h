/* verbs.h - the verbs of the program, one file each. */
#ifndef VERBS_H
#define VERBS_H

#include "app/args.h"

extern const struct verb verb_run;
extern const struct verb verb_chat;
extern const struct verb verb_serve;
extern const struct verb verb_info;
extern const struct verb verb_tokenize;
extern const struct verb verb_perplexity;
extern const struct verb verb_quantize;
extern const struct verb verb_pull;
extern const struct verb verb_list;
extern const struct verb verb_rm;
extern const struct verb verb_bench;
extern const struct verb verb_doctor;

#endif

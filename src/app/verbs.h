/* verbs.h - the verbs of the program, one file each. */
#ifndef VERBS_H
#define VERBS_H

#include "app/args.h"

extern const struct verb verb_run, verb_chat, verb_info, verb_tokenize, verb_perplexity,
    verb_quantize, verb_pull, verb_list, verb_rm, verb_doctor;

#endif

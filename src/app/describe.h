/* describe.h - the manual page and completions for shells, made from the tables of options. */
#ifndef DESCRIBE_H
#define DESCRIBE_H

#include "app/args.h"

/* Prints what "man", "bash", "zsh" or "fish" needs; false for another word. */
bool describe(const struct verb *const *verbs, int n_verbs, const char *what);

#endif

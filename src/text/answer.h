/* answer.h - the text of an answer split into what it says, thinks and calls, as it streams. */
#ifndef ANSWER_H
#define ANSWER_H

#include "text/toolcall.h"

struct answer;

/* template: the model's chat template, n bytes, or NULL; it is looked at here only.  prompt: the
 * rendered prompt, or NULL.  See slm_answer_new. */
struct answer *answer_new(const char *template, size_t n, const char *prompt, bool tools,
                          slm_part_fn *fn, void *arg, slm_error *err);
void answer_free(struct answer *a);

/* See slm_answer_tools, slm_answer_push and slm_answer_finish. */
bool answer_tools(struct answer *a, const char *tools, slm_error *err);
bool answer_push(struct answer *a, const char *text, size_t n, slm_error *err);
bool answer_finish(struct answer *a, slm_error *err);

#endif

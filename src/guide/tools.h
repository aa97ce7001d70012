/* tools.h - the language of tool calls in the form that a model was taught. */
#ifndef TOOLS_H
#define TOOLS_H

#include <jansson.h>

#include "guide/guide.h"
#include "text/toolcall.h"

struct tools_opts {
    const char *choice;  /* "auto", "required", "none" or a tool's name */
    bool parallel;       /* more than one call */
};

/* tools: a JSON array as templates get it.  Names what cannot be constrained: the form, a tool, a
 * place in its schema. */
bool guide_tools(struct grammar *g, const struct guide_vocab *t, const struct tool_form *form,
                 json_t *tools, const struct tools_opts *o, gram_expr *root, slm_error *err);

#endif

/* chat.h - messages to prompt text through the model's template. */
#ifndef CHAT_H
#define CHAT_H

#include "text/jinja.h"
#include "text/vocab.h"

struct chat;

/* Compiles the template: `source` when not NULL, else the file's
 * tokenizer.chat_template.  *out is NULL (and true returned) where the file has none. */
bool chat_new(const struct gguf *g, const struct vocab *v, const char *source, struct chat **out,
              slm_error *err);
void chat_free(struct chat *c);

/* Renders.  messages, tools, variables: JSON texts as for slm_render; tool-call arguments
 * given as JSON strings are parsed into objects.  Spans of the text that came out of the
 * messages are appended to *spans (mem_alloc'ed by buf_add into `spans`, an array of
 * struct span). */
bool chat_render(const struct chat *c, const char *messages, const char *tools,
                 const char *variables, bool add_generation_prompt, struct buf *text,
                 struct buf *spans, slm_error *err);

#endif

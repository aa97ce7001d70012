/* chat.h - messages to prompt text through the model's template. */
#ifndef CHAT_H
#define CHAT_H

#include "text/jinja.h"
#include "text/vocab.h"

struct chat;

/* Compiles the template: `source` when not NULL, else the file's
 * tokenizer.chat_template.  *out is NULL (and true returned) where the file has none.
 * v (may be NULL) gives the texts of bos_token and eos_token, "" where there is none. */
bool chat_new(const struct gguf *g, const struct vocab *v, const char *source, struct chat **out,
              slm_error *err);
void chat_free(struct chat *c);

/* The template's text; valid as long as c. */
const char *chat_template(const struct chat *c, size_t *n);

/* Renders and appends to text.  messages, tools, variables: JSON texts as for slm_render.
 * The template sees messages, tools and documents (none where they are not given),
 * add_generation_prompt, bos_token, eos_token, and the members of variables, which go before
 * all of these but messages and tools.  Arguments of tool calls that are given as the text of
 * a JSON object become objects; nothing else in the messages is touched.  Spans of the text
 * that came out of the messages are appended to `spans` (may be NULL) as struct span. */
bool chat_render(const struct chat *c, const char *messages, const char *tools,
                 const char *variables, bool add_generation_prompt, struct buf *text,
                 struct buf *spans, slm_error *err);

#endif

/* endpoints.h - the handlers behind the table of routes. */
#ifndef ENDPOINTS_H
#define ENDPOINTS_H

#include "server/http.h"

void ep_chat(struct http *h);
void ep_completions(struct http *h);
void ep_responses(struct http *h);
void ep_messages(struct http *h);
void ep_embeddings(struct http *h);
void ep_web(struct http *h);
void ep_models(struct http *h);
void ep_health(struct http *h);
void ep_metrics(struct http *h);
void ep_tokenize(struct http *h);
void ep_detokenize(struct http *h);
void ep_apply_template(struct http *h);

#endif

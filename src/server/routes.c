/* routes.c - which handler answers what.  A new endpoint is a file ep_NAME.c and a line here. */
#include "server/routes.h"

#include "server/endpoints.h"

const struct route routes[] = {
    { "POST", "/v1/chat/completions", ep_chat, false, DIALECT_OPENAI },
    { "POST", "/v1/completions", ep_completions, false, DIALECT_OPENAI },
    { "POST", "/v1/responses", ep_responses, false, DIALECT_OPENAI },
    { "POST", "/v1/messages", ep_messages, false, DIALECT_ANTHROPIC },
    { "POST", "/v1/embeddings", ep_embeddings, false, DIALECT_OPENAI },
    { "GET", "/v1/models", ep_models, false, DIALECT_OPENAI },
    { "GET", "/", ep_web, true, DIALECT_OPENAI },
    { "GET", "/health", ep_health, true, DIALECT_OPENAI },
    { "GET", "/metrics", ep_metrics, false, DIALECT_OPENAI },
    { "POST", "/tokenize", ep_tokenize, false, DIALECT_OPENAI },
    { "POST", "/detokenize", ep_detokenize, false, DIALECT_OPENAI },
    { "POST", "/apply-template", ep_apply_template, false, DIALECT_OPENAI },
    { NULL, NULL, NULL, false, DIALECT_OPENAI },
};

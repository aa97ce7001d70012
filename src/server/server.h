/* server.h - the OpenAI-compatible server as a whole. */
#ifndef SERVER_H
#define SERVER_H

#include "server/engine.h"
#include "server/http.h"

struct server;

struct server_params {
    struct engine_params engine;
    struct http_shared http;   /* engine and metrics are filled in */
    const char *host;          /* name or address to listen on */
    int port;                  /* 0: a free one */
};

/* Opens the models, then listens.  The strings of p must live until server_free. */
struct server *server_new(const struct server_params *p, slm_error *err);

int server_port(const struct server *s);

/* Takes no further connections and waits until all requests are answered, at most so long. */
void server_drain(struct server *s, int timeout_s);

/* Ends what is left. */
void server_free(struct server *s);

#endif

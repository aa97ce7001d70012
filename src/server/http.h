/* http.h - a request and its response, as handlers see them.
 *
 * Each connection has a thread of its own (libmicrohttpd's), so a handler may wait.  It
 * watches its client while it waits: what nobody will read is not computed. */
#ifndef HTTP_H
#define HTTP_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "server/fault.h"
#include "server/metrics.h"

struct engine;
struct http;
struct http_daemon;

/* How errors are written. */
enum dialect { DIALECT_OPENAI, DIALECT_ANTHROPIC };

/* Answers the request; exactly one reply call. */
typedef void http_handler(struct http *h);

struct route {
    const char *method, *path;
    http_handler *handler;
    bool open;             /* needs no API key */
    enum dialect dialect;
};

/* What all handlers share. */
struct http_shared {
    struct engine *engine;
    struct metrics *metrics;
    const char *const *keys;   /* API keys; none: open to all */
    int n_keys;
    const char *cors_origin;   /* allowed besides loopback pages of the server itself, or NULL */
    const char *const *hosts;  /* names that a Host header may have besides loopback's */
    int n_hosts;
    bool any_host;             /* bound to other addresses than loopback */
    bool log_json, quiet;
    size_t body_max;
    int conn_max;
    int n_choices_max;         /* of one request */
};

/* Begins to listen on the socket, which it takes over.  s must live until http_free. */
struct http_daemon *http_new(const struct http_shared *s, int listen_fd, slm_error *err);

/* No further connections; requests under way go on. */
void http_quiesce(struct http_daemon *d);

/* Requests being answered. */
int http_active(struct http_daemon *d);

/* Ends all requests, waits for their threads. */
void http_free(struct http_daemon *d);

/* ---- the request ---------------------------------------------------------------------- */

const struct http_shared *http_shared(const struct http *h);
const char *http_body(const struct http *h, size_t *n);
const char *http_header(struct http *h, const char *name);

/* "req_..." unique in this process; also in the response's x-request-id. */
const char *http_id(const struct http *h);

/* The body as a JSON object, freed by the caller; NULL after a reply with the fault. */
json_t *http_json(struct http *h);

/* For the log line. */
void http_note(struct http *h, const char *model, size_t n_prompt, size_t n_cached, size_t n_out);

enum http_wait { HTTP_READY, HTTP_TIMEOUT, HTTP_GONE };

/* Waits until fd is readable.  HTTP_GONE where the client has gone or the server ends.  A client
 * that has closed its own direction only still reads a stream; a plain reply then has no reader. */
enum http_wait http_wait(struct http *h, int fd, int timeout_ms, bool stream);

/* Whether the client has closed its direction. */
bool http_half_closed(struct http *h);

/* ---- the response --------------------------------------------------------------------- */

/* Takes body over; NULL is an allocation failure. */
void http_reply_json(struct http *h, int status, json_t *body);

/* The bytes are copied. */
void http_reply_text(struct http *h, int status, const char *type, const char *text, size_t n);

void http_reply_fault(struct http *h, const struct fault *f);

/* The client has gone; closes the connection. */
void http_reply_nothing(struct http *h);

/* Fills out with the next bytes, waiting as needed; leaves it empty at the end. */
typedef void http_next_fn(void *arg, struct buf *out);
typedef void http_done_fn(void *arg);

/* Server-sent events: calls next until it gives nothing, and done at the end or when the client
 * goes away. */
void http_reply_stream(struct http *h, http_next_fn *next, http_done_fn *done, void *arg);

/* {"error": {...}} in the request's dialect; a new reference. */
json_t *http_fault_json(const struct http *h, const struct fault *f);

#endif

/* http.c - libmicrohttpd on one side, handlers on the other.
 *
 * What a stranger may send is limited here: hosts, origins, keys, sizes, numbers of connections
 * and the time a request may take to arrive. */
#include "server/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/time.h"
#include "server/routes.h"

/* Time in which a request must have arrived whole, and after which an idle connection ends. */
enum { ARRIVE_S = 60, IDLE_S = 120 };

/* A connection's buffer: request line and headers must fit. */
enum { HEADERS_MAX = 32 << 10 };

/* Templates and schemas are worked on recursively, within limits that fit this. */
enum { STACK_BYTES = 4 << 20 };

/* A body up to so many times too large is still read, and thrown away, since most clients look for
 * an answer only after they have sent everything. */
enum { BODY_PATIENCE = 8 };

/* A connection, for the watch that ends those whose request does not arrive. */
struct conn {
    struct conn *prev, *next;
    int fd;
    double since_s;           /* start of the wait for a request; 0: one is being answered */
};

struct http_daemon {
    const struct http_shared *s;
    struct MHD_Daemon *mhd;
    int stop_fd;              /* readable once the server ends */
    bool quiet;               /* listens no more */
    atomic_int active;
    atomic_uint_fast64_t counter;
    uint64_t id_seed;
    pthread_mutex_t lock;     /* of the list */
    struct conn *conns;
    pthread_t watch;
    bool watching;
};

struct http {
    struct http_daemon *d;
    struct MHD_Connection *mhd;
    const struct route *route;
    char method[16], path[128], id[32];
    int fd;
    double begin_s;
    struct buf body;
    bool refused;             /* a response was queued before the body came */
    bool replied, gone;
    int status;
    /* of a stream */
    http_next_fn *next;
    http_done_fn *done;
    void *arg;
    struct buf out;
    size_t out_used;
    /* for the log */
    char model[64];
    size_t n_prompt, n_cached, n_out;
};

const struct http_shared *http_shared(const struct http *h)
{
    return h->d->s;
}

const char *http_body(const struct http *h, size_t *n)
{
    *n = h->body.len;
    return buf_str(&h->body);
}

const char *http_header(struct http *h, const char *name)
{
    return MHD_lookup_connection_value(h->mhd, MHD_HEADER_KIND, name);
}

const char *http_id(const struct http *h)
{
    return h->id;
}

void http_note(struct http *h, const char *model, size_t n_prompt, size_t n_cached, size_t n_out)
{
    snprintf(h->model, sizeof h->model, "%s", model);
    h->n_prompt = n_prompt;
    h->n_cached = n_cached;
    h->n_out = n_out;
}

/* ---- waiting ------------------------------------------------------------------------------- */

bool http_half_closed(struct http *h)
{
    struct pollfd p = { .fd = h->fd, .events = POLLRDHUP };

    return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

enum http_wait http_wait(struct http *h, int fd, int timeout_ms, bool stream)
{
    struct pollfd p[3] = {
        { .fd = fd, .events = POLLIN },
        { .fd = h->fd, .events = stream ? 0 : POLLRDHUP },
        { .fd = h->d->stop_fd, .events = POLLIN },
    };
    int n;

    do {
        n = poll(p, 3, timeout_ms);
    } while (n < 0 && errno == EINTR);
    if (p[1].revents || p[2].revents) {
        h->gone = true;
        return HTTP_GONE;
    }
    return p[0].revents ? HTTP_READY : HTTP_TIMEOUT;
}

/* ---- replying ------------------------------------------------------------------------------ */

static void count_status(struct http *h, int status)
{
    struct metrics *m = h->d->s->metrics;

    h->status = status;
    if (status >= 500) {
        metrics_add(&m->errors_server, 1);
    } else if (status >= 400) {
        metrics_add(&m->errors_client, 1);
    }
}

/* Whether a page of this origin may read the answers. */
static bool origin_allowed(const struct http_shared *s, const char *origin)
{
    return s->cors_origin && (strcmp(s->cors_origin, origin) == 0 ||
                              strcmp(s->cors_origin, "*") == 0);
}

static void add_cors(struct http *h, struct MHD_Response *r)
{
    const char *origin = http_header(h, "Origin");

    if (origin && origin_allowed(h->d->s, origin)) {
        /* Never together with credentials: keys travel in a header that scripts must set. */
        MHD_add_response_header(r, "Access-Control-Allow-Origin", h->d->s->cors_origin);
        MHD_add_response_header(r, "Vary", "Origin");
    }
}

static void send_response(struct http *h, int status, struct MHD_Response *r, const char *type)
{
    if (!r) {
        h->gone = true;  /* no memory even for this: close */
        return;
    }
    if (type) {
        MHD_add_response_header(r, "Content-Type", type);
    }
    if (type && strncmp(type, "text/html", 9) == 0) {
        /* The page has its script inside, and talks to this server only. */
        MHD_add_response_header(r, "Content-Security-Policy",
                                "default-src 'none'; script-src 'unsafe-inline'; style-src "
                                "'unsafe-inline'; connect-src 'self'; img-src data:; base-uri "
                                "'none'; form-action 'none'; frame-ancestors 'none'");
    }
    MHD_add_response_header(r, "X-Request-Id", h->id);
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    if (status == 401) {
        MHD_add_response_header(r, "WWW-Authenticate", "Bearer");
    } else if (status == 429) {
        MHD_add_response_header(r, "Retry-After", "1");
    }
    add_cors(h, r);
    count_status(h, status);
    h->replied = MHD_queue_response(h->mhd, (unsigned)status, r) == MHD_YES;
    MHD_destroy_response(r);
}

void http_reply_text(struct http *h, int status, const char *type, const char *text, size_t n)
{
    send_response(h, status,
                  MHD_create_response_from_buffer(n, (void *)(uintptr_t)text,
                                                  MHD_RESPMEM_MUST_COPY),
                  type);
}

void http_reply_json(struct http *h, int status, json_t *body)
{
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    static const char out_of_memory[] =
        "{\"error\":{\"message\":\"not enough memory for the answer\",\"type\":\"server_error\","
        "\"param\":null,\"code\":null}}";

    json_decref(body);
    if (text) {
        http_reply_text(h, status, "application/json", text, strlen(text));
    } else {
        http_reply_text(h, 503, "application/json", out_of_memory, sizeof out_of_memory - 1);
    }
    free(text);
}

json_t *http_fault_json(const struct http *h, const struct fault *f)
{
    const char *type = fault_type(f->status);

    if (h->route && h->route->dialect == DIALECT_ANTHROPIC) {
        return json_pack("{s:s, s:{s:s, s:s}, s:s}", "type", "error", "error", "type",
                         f->status >= 500 ? "api_error" : type, "message", f->message,
                         "request_id", h->id);
    }
    return json_pack("{s:{s:s, s:s, s:s?, s:s?}}", "error", "message", f->message, "type", type,
                     "param", f->param[0] ? f->param : NULL, "code", f->code);
}

void http_reply_fault(struct http *h, const struct fault *f)
{
    http_reply_json(h, f->status, http_fault_json(h, f));
}

void http_reply_nothing(struct http *h)
{
    h->gone = true;
}

static ssize_t read_stream(void *arg, uint64_t pos, char *to, size_t max)
{
    struct http *h = arg;

    (void)pos;
    if (h->out_used == h->out.len) {
        buf_clear(&h->out);
        h->out_used = 0;
        h->next(h->arg, &h->out);
    }
    if (h->out.failed || h->gone) {
        return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    const size_t left = h->out.len - h->out_used;
    const size_t n = left < max ? left : max;
    if (n == 0) {
        return MHD_CONTENT_READER_END_OF_STREAM;
    }
    memcpy(to, h->out.data + h->out_used, n);
    h->out_used += n;
    return (ssize_t)n;
}

void http_reply_stream(struct http *h, http_next_fn *next, http_done_fn *done, void *arg)
{
    /* Small enough that every event leaves at once. */
    struct MHD_Response *r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16 << 10,
                                                               read_stream, h, NULL);

    h->next = next;
    h->done = done;
    h->arg = arg;
    if (r) {
        MHD_add_response_header(r, "Cache-Control", "no-cache");
        MHD_add_response_header(r, "X-Accel-Buffering", "no");
    }
    send_response(h, 200, r, "text/event-stream");
}

static void reply_error(struct http *h, int status, const char *param, const char *message)
{
    struct fault f;

    fault_set(&f, status, param, "%s", message);
    http_reply_fault(h, &f);
}

json_t *http_json(struct http *h)
{
    json_error_t why;
    const size_t flags = JSON_REJECT_DUPLICATES;
    json_t *body = json_loadb(buf_str(&h->body), h->body.len, flags, &why);
    struct fault f;

    if (!body && json_error_code(&why) == json_error_numeric_overflow) {
        /* So that the field can be named that has such a number. */
        body = json_loadb(buf_str(&h->body), h->body.len, flags | JSON_DECODE_INT_AS_REAL, &why);
    }
    if (!body) {
        fault_set(&f, 400, NULL, "the body is not valid JSON: %s (line %d, column %d)", why.text,
                  why.line, why.column);
    } else if (!json_is_object(body)) {
        fault_set(&f, 400, NULL, "the body must be a JSON object");
    } else {
        return body;
    }
    json_decref(body);
    http_reply_fault(h, &f);
    return NULL;
}

/* ---- who may ask --------------------------------------------------------------------------- */

/* The name in "name", "name:port" or "[address]:port". */
static size_t host_name(const char *host, const char **name)
{
    if (host[0] == '[') {
        const char *end = strchr(host, ']');
        *name = host + 1;
        return end ? (size_t)(end - host - 1) : 0;
    }
    *name = host;
    return strcspn(host, ":");
}

static bool is_name(const char *name, size_t n, const char *want)
{
    return strlen(want) == n && strncasecmp(name, want, n) == 0;
}

/* A page of a foreign name that resolves to this machine must not get answers. */
static bool host_allowed(struct http *h)
{
    const struct http_shared *s = h->d->s;
    const char *host = http_header(h, "Host"), *name;
    struct in_addr v4;

    if (!host) {
        return true;  /* HTTP/1.0; browsers always send one */
    }
    const size_t n = host_name(host, &name);
    char text[INET_ADDRSTRLEN] = "";
    if (n < sizeof text) {
        memcpy(text, name, n);
        if (inet_pton(AF_INET, text, &v4) == 1) {
            /* An address cannot be rebound; without --host only loopback's reach us. */
            return s->any_host || (ntohl(v4.s_addr) >> 24) == 127;
        }
    }
    if (is_name(name, n, "localhost") || is_name(name, n, "::1")) {
        return true;
    }
    if (host[0] == '[' && s->any_host) {
        return true;
    }
    for (int i = 0; i < s->n_hosts; i++) {
        if (is_name(name, n, s->hosts[i])) {
            return true;
        }
    }
    return false;
}

/* Takes as long for every wrong key of the same length. */
static bool same_key(const char *a, const char *b)
{
    const size_t n = strlen(a), m = strlen(b);
    unsigned diff = n != m;

    for (size_t i = 0; i < n; i++) {
        diff |= (unsigned)(unsigned char)a[i] ^ (unsigned char)b[m ? i % m : 0];
    }
    return diff == 0;
}

static bool key_allowed(struct http *h)
{
    const struct http_shared *s = h->d->s;
    const char *auth = http_header(h, "Authorization");
    const char *key = http_header(h, "x-api-key");
    bool ok = false;

    if (s->n_keys == 0) {
        return true;
    }
    if (auth && strncasecmp(auth, "Bearer ", 7) == 0) {
        key = auth + 7;
    }
    for (int i = 0; key && i < s->n_keys; i++) {
        ok |= same_key(key, s->keys[i]);
    }
    return ok;
}

static bool is_json_type(const char *type)
{
    return type && strncasecmp(type, "application/json", 16) == 0 &&
           (type[16] == '\0' || type[16] == ';' || type[16] == ' ');
}

/* ---- routing ------------------------------------------------------------------------------- */

/* The route; else NULL, and *allow lists the methods that the path has. */
static const struct route *find_route(const char *method, const char *path, struct buf *allow)
{
    if (strcmp(method, "HEAD") == 0) {
        method = "GET";
    }
    for (const struct route *r = routes; r->method; r++) {
        if (strcmp(r->path, path) != 0) {
            continue;
        }
        if (strcmp(r->method, method) == 0) {
            return r;
        }
        buf_printf(allow, "%s%s", allow->len ? ", " : "", r->method);
    }
    return NULL;
}

static void reply_preflight(struct http *h, const char *allow)
{
    const char *origin = http_header(h, "Origin");
    struct MHD_Response *r = MHD_create_response_from_buffer(0, (void *)(uintptr_t)"",
                                                             MHD_RESPMEM_PERSISTENT);

    if (r && origin && origin_allowed(h->d->s, origin)) {
        MHD_add_response_header(r, "Access-Control-Allow-Methods", allow);
        MHD_add_response_header(r, "Access-Control-Allow-Headers",
                                "authorization, content-type, x-api-key, anthropic-version");
        MHD_add_response_header(r, "Access-Control-Max-Age", "600");
    }
    if (r) {
        MHD_add_response_header(r, "Allow", allow);
    }
    send_response(h, 204, r, NULL);
}

/* Everything that can be refused before the body is read; false when it was. */
static bool check_head(struct http *h)
{
    const struct http_shared *s = h->d->s;
    const char *length = http_header(h, "Content-Length");
    struct buf allow;
    bool ok = false;

    buf_init(&allow, 0);
    h->route = find_route(h->method, h->path, &allow);
    if (!host_allowed(h)) {
        reply_error(h, 403, NULL, "this Host is not served; see --allow-host");
    } else if (!h->route && strcmp(h->method, "OPTIONS") == 0 && allow.len > 0) {
        reply_preflight(h, buf_str(&allow));
    } else if (!h->route && allow.len > 0) {
        struct fault f;
        fault_set(&f, 405, NULL, "%s takes %s, not %s", h->path, buf_str(&allow), h->method);
        http_reply_fault(h, &f);
    } else if (!h->route) {
        struct fault f;
        fault_set(&f, 404, NULL, "there is no %s", h->path);
        http_reply_fault(h, &f);
    } else if (!h->route->open && !key_allowed(h)) {
        reply_error(h, 401, NULL, "a valid API key is needed: Authorization: Bearer KEY");
    } else if (strcmp(h->method, "POST") == 0 && !is_json_type(http_header(h, "Content-Type"))) {
        reply_error(h, 415, NULL, "the Content-Type must be application/json");
    } else if (length && strtoull(length, NULL, 10) / BODY_PATIENCE > s->body_max) {
        struct fault f;
        fault_set(&f, 413, NULL, "the body has %s bytes, at most %zu are read", length,
                  s->body_max);
        http_reply_fault(h, &f);
    } else {
        ok = true;
    }
    buf_deinit(&allow);
    return ok;
}

/* ---- libmicrohttpd's calls ------------------------------------------------------------------- */

static struct conn *conn_of(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return info ? info->socket_context : NULL;
}

static void conn_waits(struct http_daemon *d, struct conn *c, bool waits)
{
    if (c) {
        pthread_mutex_lock(&d->lock);
        c->since_s = waits ? time_now() : 0;
        pthread_mutex_unlock(&d->lock);
    }
}

static struct http *request_new(struct http_daemon *d, struct MHD_Connection *mhd,
                                const char *method, const char *path)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct http *h = mem_zalloc(1, sizeof *h);

    if (!h) {
        return NULL;
    }
    h->d = d;
    h->mhd = mhd;
    h->fd = info ? info->connect_fd : -1;
    h->begin_s = time_now();
    snprintf(h->method, sizeof h->method, "%s", method);
    snprintf(h->path, sizeof h->path, "%s", path);
    snprintf(h->id, sizeof h->id, "req_%016llx",
             (unsigned long long)rng_mix(d->id_seed + atomic_fetch_add(&d->counter, 1)));
    buf_init(&h->body, d->s->body_max);
    buf_init(&h->out, 0);
    atomic_fetch_add(&d->active, 1);
    return h;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *mhd, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *n_data, void **state)
{
    struct http_daemon *d = arg;
    struct http *h = *state;

    (void)version;
    if (!h) {
        *state = h = request_new(d, mhd, method, url);
        if (!h) {
            return MHD_NO;
        }
        h->refused = !check_head(h);
        return h->gone ? MHD_NO : MHD_YES;
    }
    if (*n_data > 0) {
        buf_add(&h->body, data, *n_data);
        *n_data = 0;
        return MHD_YES;
    }
    if (!h->refused) {
        conn_waits(d, conn_of(mhd), false);
        if (h->body.failed) {
            reply_error(h, 413, NULL, "the body is larger than this server reads");
        } else {
            h->route->handler(h);
        }
    }
    return h->gone || !h->replied ? MHD_NO : MHD_YES;
}

static void print_log(const struct http *h)
{
    const double seconds = time_now() - h->begin_s;
    struct timespec now;
    struct tm tm;
    char when[32];

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &tm);
    if (h->d->s->log_json) {
        json_t *line = json_pack("{s:s, s:s, s:s, s:s, s:i, s:f, s:s, s:I, s:I, s:I, s:b}",
                                 "time", when, "id", h->id, "method", h->method, "path", h->path,
                                 "status", h->status, "seconds", seconds, "model", h->model,
                                 "prompt_tokens", (json_int_t)h->n_prompt, "cached_tokens",
                                 (json_int_t)h->n_cached, "answer_tokens", (json_int_t)h->n_out,
                                 "gone", h->gone);
        char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
        if (text) {
            fprintf(stderr, "%s\n", text);
        }
        free(text);
        json_decref(line);
        return;
    }
    char path[sizeof h->path];
    snprintf(path, sizeof path, "%s", h->path);
    for (char *p = path; *p; p++) {
        if ((unsigned char)*p < 0x20 || (unsigned char)*p >= 0x7f) {
            *p = '?';
        }
    }
    fprintf(stderr, "%sZ %s %s %s %d %.3fs", when, h->id, h->method, path, h->status, seconds);
    if (h->model[0]) {
        fprintf(stderr, " model=%s prompt=%zu cached=%zu answer=%zu", h->model, h->n_prompt,
                h->n_cached, h->n_out);
    }
    fprintf(stderr, "%s\n", h->gone ? " gone" : "");
}

static void on_completed(void *arg, struct MHD_Connection *mhd, void **state,
                         enum MHD_RequestTerminationCode code)
{
    struct http_daemon *d = arg;
    struct http *h = *state;

    if (!h) {
        return;
    }
    h->gone = h->gone || code != MHD_REQUEST_TERMINATED_COMPLETED_OK;
    if (h->done) {
        h->done(h->arg);
    }
    metrics_add(&d->s->metrics->requests, 1);
    metrics_observe(&d->s->metrics->request_s, time_now() - h->begin_s);
    if (h->gone && !h->refused) {
        metrics_add(&d->s->metrics->cancelled, 1);
    }
    if (!d->s->quiet) {
        print_log(h);
    }
    buf_deinit(&h->body);
    buf_deinit(&h->out);
    mem_free(h);
    *state = NULL;
    conn_waits(d, conn_of(mhd), true);
    atomic_fetch_sub(&d->active, 1);
}

static void on_connection(void *arg, struct MHD_Connection *mhd, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct http_daemon *d = arg;

    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
        struct conn *c = mem_zalloc(1, sizeof *c);
        metrics_add(&d->s->metrics->connections, 1);
        *context = c;
        if (c && info) {
            c->fd = info->connect_fd;
            c->since_s = time_now();
            pthread_mutex_lock(&d->lock);
            c->next = d->conns;
            if (c->next) {
                c->next->prev = c;
            }
            d->conns = c;
            pthread_mutex_unlock(&d->lock);
        }
    } else if (*context) {
        struct conn *c = *context;
        pthread_mutex_lock(&d->lock);
        *(c->prev ? &c->prev->next : &d->conns) = c->next;
        if (c->next) {
            c->next->prev = c->prev;
        }
        pthread_mutex_unlock(&d->lock);
        mem_free(c);
        *context = NULL;
    }
}

/* Ends connections whose request has not arrived in time, however it trickles in. */
static void *watch_connections(void *arg)
{
    struct http_daemon *d = arg;
    struct pollfd stop = { .fd = d->stop_fd, .events = POLLIN };

    while (poll(&stop, 1, 1000) <= 0) {
        const double now = time_now();
        pthread_mutex_lock(&d->lock);
        for (const struct conn *c = d->conns; c; c = c->next) {
            if (c->since_s > 0 && now - c->since_s > ARRIVE_S) {
                shutdown(c->fd, SHUT_RDWR);
            }
        }
        pthread_mutex_unlock(&d->lock);
    }
    return NULL;
}

/* ---- begin and end ------------------------------------------------------------------------ */

static void drop_line(void *arg, const char *fmt, va_list ap)
{
    (void)arg;
    (void)fmt;
    (void)ap;
}

struct http_daemon *http_new(const struct http_shared *s, int listen_fd, slm_error *err)
{
    struct http_daemon *d = mem_zalloc(1, sizeof *d);

    if (!d) {
        slm_fail_nomem(err, "the server");
        close(listen_fd);
        return NULL;
    }
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    d->id_seed = rng_mix((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
    d->s = s;
    pthread_mutex_init(&d->lock, NULL);
    d->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (d->stop_fd >= 0) {
        d->mhd = MHD_start_daemon(
            MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL |
                MHD_USE_ITC,
            0, NULL, NULL, on_request, d,
            MHD_OPTION_EXTERNAL_LOGGER, drop_line, NULL,
            MHD_OPTION_LISTEN_SOCKET, listen_fd,
            MHD_OPTION_NOTIFY_COMPLETED, on_completed, d,
            MHD_OPTION_NOTIFY_CONNECTION, on_connection, d,
            MHD_OPTION_CONNECTION_LIMIT, (unsigned)s->conn_max,
            MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S,
            MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADERS_MAX * 2,
            MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK_BYTES,
            MHD_OPTION_END);
    }
    if (!d->mhd) {
        close(listen_fd);
        http_free(d);
        slm_fail(err, SLM_E_IO, "cannot start the HTTP server");
        return NULL;
    }
    d->watching = pthread_create(&d->watch, NULL, watch_connections, d) == 0;
    return d;
}

void http_quiesce(struct http_daemon *d)
{
    if (d->mhd && !d->quiet) {
        const int fd = MHD_quiesce_daemon(d->mhd);
        d->quiet = true;
        if (fd >= 0) {
            close(fd);
        }
    }
}

int http_active(struct http_daemon *d)
{
    return atomic_load(&d->active);
}

void http_free(struct http_daemon *d)
{
    const uint64_t one = 1;

    if (!d) {
        return;
    }
    if (d->stop_fd >= 0) {
        (void)!write(d->stop_fd, &one, sizeof one);
    }
    if (d->mhd) {
        http_quiesce(d);
        MHD_stop_daemon(d->mhd);
    }
    if (d->watching) {
        pthread_join(d->watch, NULL);
    }
    if (d->stop_fd >= 0) {
        close(d->stop_fd);
    }
    pthread_mutex_destroy(&d->lock);
    mem_free(d);
}

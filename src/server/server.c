/* server.c - engine, listener and their lifetimes. */
#include "server/server.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/time.h"

/* Connections that the kernel holds while the server is busy accepting. */
enum { BACKLOG = 128 };

struct server {
    struct server_params p;
    struct metrics metrics;
    struct engine *engine;
    struct http_daemon *http;
    int port;
};

static int port_of(int fd)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    char port[16];

    if (getsockname(fd, (struct sockaddr *)&a, &n) != 0 ||
        getnameinfo((struct sockaddr *)&a, n, NULL, 0, port, sizeof port, NI_NUMERICSERV) != 0) {
        return 0;
    }
    return (int)strtol(port, NULL, 10);
}

static int listen_on(const struct addrinfo *a)
{
    const int one = 1;
    const int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);

    if (fd < 0) {
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0) {
        const int why = errno;
        close(fd);
        errno = why;
        return -1;
    }
    return fd;
}

/* A listening socket, or -1. */
static int open_socket(const char *host, int port, slm_error *err)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE };
    struct addrinfo *list;
    char service[16];
    int fd = -1;

    snprintf(service, sizeof service, "%d", port);
    const int code = getaddrinfo(host, service, &hints, &list);
    if (code != 0) {
        slm_fail(err, SLM_E_ARG, "cannot listen on %s: %s", host, gai_strerror(code));
        return -1;
    }
    for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        fd = listen_on(a);
    }
    if (fd < 0) {
        slm_fail(err, SLM_E_IO, "cannot listen on %s port %d: %s", host, port, strerror(errno));
    }
    freeaddrinfo(list);
    return fd;
}

struct server *server_new(const struct server_params *p, slm_error *err)
{
    struct server *s = mem_zalloc(1, sizeof *s);

    if (!s) {
        slm_fail_nomem(err, "the server");
        return NULL;
    }
    s->p = *p;
    /* The socket first: that the port is taken shows at once, also with large models. */
    const int fd = open_socket(p->host, p->port, err);
    if (fd < 0) {
        goto fail;
    }
    s->port = port_of(fd);
    s->engine = engine_new(&p->engine, &s->metrics, err);
    if (!s->engine) {
        close(fd);
        goto fail;
    }
    s->p.http.engine = s->engine;
    s->p.http.metrics = &s->metrics;
    s->http = http_new(&s->p.http, fd, err);
    if (!s->http) {
        goto fail;
    }
    return s;

fail:
    server_free(s);
    return NULL;
}

int server_port(const struct server *s)
{
    return s->port;
}

void server_drain(struct server *s, int timeout_s)
{
    const double until = time_now() + timeout_s;

    http_quiesce(s->http);
    engine_stop_accepting(s->engine);
    while (http_active(s->http) > 0 && time_now() < until) {
        usleep(20 * 1000);
    }
}

void server_free(struct server *s)
{
    if (!s) {
        return;
    }
    http_free(s->http);
    engine_free(s->engine);
    mem_free(s);
}

/* net.h - downloads over HTTP, and SHA sums.
 *
 * libcurl and libcrypto are loaded when they are first needed, not linked: with all that
 * they bring along they would cost every start of the program milliseconds and megabytes.
 * A build without their headers, or a machine without the libraries, says so here. */
#ifndef NET_H
#define NET_H

#include "base/buf.h"

/* Whether downloads are possible; false and why not. */
bool net_available(slm_error *err);

/* "libcurl 7.88.1, OpenSSL 3.0.19", or why there are no downloads. */
const char *net_libraries(void);

struct net;

/* token: sent to the host of the first URL only, never after a redirection to another one;
 * NULL for none. */
struct net *net_new(const char *token, slm_error *err);
void net_free(struct net *net);

/* What a failed request was about. */
enum net_fault {
    NET_OK,
    NET_REFUSED,    /* 401 or 403: the caller may not */
    NET_MISSING,    /* 404 */
    NET_BROKEN,     /* the connection, or the server's fault: trying again may help */
    NET_FAILED,     /* anything else */
};

/* The document at url, at most `max` bytes, appended to body. */
enum net_fault net_get(struct net *net, const char *url, size_t max, struct buf *body,
                       slm_error *err);

/* Where the bytes of a file go. */
struct net_sink {
    /* Before the first byte: where the server begins and how long it says the whole file is (0:
     * it does not say).  False with *err refuses. */
    bool (*begin)(void *arg, uint64_t at, uint64_t total, slm_error *err);
    bool (*add)(void *arg, const void *data, size_t n, slm_error *err);
    void *arg;
};

/* Bytes from .. to - 1 of the file at url.  A server that cannot send a part begins at 0. */
enum net_fault net_range(struct net *net, const char *url, uint64_t from, uint64_t to,
                         const struct net_sink *sink, slm_error *err);

/* Appends path to a URL, escaped; '/' stays. */
void net_add_path(struct buf *url, const char *path);

/* ---- sums ---------------------------------------------------------------------------- */

struct digest;

/* "sha256" or "sha1". */
struct digest *digest_new(const char *name, slm_error *err);
void digest_add(struct digest *d, const void *data, size_t n);

/* Lower-case hex digits into out, at least 65 bytes. */
void digest_end(struct digest *d, char *out);
void digest_free(struct digest *d);

#endif

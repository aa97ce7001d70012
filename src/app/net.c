/* net.c - libcurl and libcrypto behind a few calls. */
#include "app/net.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/interrupt.h"
#include "base/error.h"
#include "base/mem.h"

void net_add_path(struct buf *url, const char *path)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/";

    for (const char *s = path; *s; s++) {
        if (strchr(plain, *s)) {
            buf_putc(url, *s);
        } else {
            buf_printf(url, "%%%02X", (unsigned char)*s);
        }
    }
}

#ifdef SLM_HAVE_NET

#include <dlfcn.h>
#include <pthread.h>

/* Argument checks by macros would call the functions by their linked names. */
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

/* ---- the libraries --------------------------------------------------------------- */

#define CURL_CALLS(X)                                                                        \
    X(curl_global_init) X(curl_easy_init) X(curl_easy_cleanup) X(curl_easy_reset)            \
    X(curl_easy_setopt) X(curl_easy_perform) X(curl_easy_getinfo) X(curl_easy_strerror)      \
    X(curl_slist_append) X(curl_slist_free_all) X(curl_version_info)
#define CRYPTO_CALLS(X)                                                                      \
    X(EVP_MD_CTX_new) X(EVP_MD_CTX_free) X(EVP_get_digestbyname) X(EVP_DigestInit_ex)        \
    X(EVP_DigestUpdate) X(EVP_DigestFinal_ex) X(OpenSSL_version)

#undef curl_easy_setopt
#undef curl_easy_getinfo

#define CALL_FIELD(name) __typeof__(name) *name;
static struct {
    CURL_CALLS(CALL_FIELD)
    CRYPTO_CALLS(CALL_FIELD)
    bool ok;
    char text[240];  /* versions, or why not ok */
} lib;

static pthread_once_t lib_once = PTHREAD_ONCE_INIT;

/* The name that programs built with these headers would be linked to. */
#if OPENSSL_VERSION_NUMBER >= 0x30000000L
#define CRYPTO_LIBRARY "libcrypto.so.3"
#else
#define CRYPTO_LIBRARY "libcrypto.so.1.1"
#endif

static void *open_library(const char *const *names)
{
    void *handle = NULL;

    for (int i = 0; !handle && names[i]; i++) {
        handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    if (!handle) {
        snprintf(lib.text, sizeof lib.text, "%s is not installed", names[0]);
    }
    return handle;
}

static bool find_call(void *handle, const char *name, void *target)
{
    void *call = dlsym(handle, name);

    if (!call) {
        snprintf(lib.text, sizeof lib.text, "%s is missing in the library", name);
        return false;
    }
    memcpy(target, &call, sizeof call);
    return true;
}

static void load_libraries(void)
{
    static const char *const curl_names[] = { "libcurl.so.4", "libcurl-gnutls.so.4", NULL };
    static const char *const crypto_names[] = { CRYPTO_LIBRARY, NULL };
    void *curl = open_library(curl_names);
    void *crypto = curl ? open_library(crypto_names) : NULL;

    if (!crypto) {
        return;
    }
#define FIND_CURL(name) && find_call(curl, #name, &lib.name)
#define FIND_CRYPTO(name) && find_call(crypto, #name, &lib.name)
    lib.ok = true CURL_CALLS(FIND_CURL) CRYPTO_CALLS(FIND_CRYPTO);
    if (lib.ok && lib.curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        snprintf(lib.text, sizeof lib.text, "libcurl does not start");
        lib.ok = false;
    }
    if (lib.ok) {
        snprintf(lib.text, sizeof lib.text, "libcurl %s, %s",
                 lib.curl_version_info(CURLVERSION_NOW)->version,
                 lib.OpenSSL_version(OPENSSL_VERSION));
        /* "OpenSSL 3.0.19 27 Jan 2026": without the date. */
        char *s = strstr(lib.text, ", ");
        s = strchr(s + 2, ' ');
        s = s ? strchr(s + 1, ' ') : NULL;
        if (s) {
            *s = 0;
        }
    }
}

bool net_available(slm_error *err)
{
    pthread_once(&lib_once, load_libraries);
    return lib.ok || slm_fail(err, SLM_E_UNSUPPORTED, "downloads are not possible: %s", lib.text);
}

const char *net_libraries(void)
{
    pthread_once(&lib_once, load_libraries);
    return lib.text;
}

/* ---- requests -------------------------------------------------------------------- */

struct net {
    CURL *curl;
    char *token;
};

struct net *net_new(const char *token, slm_error *err)
{
    if (!net_available(err)) {
        return NULL;
    }
    struct net *net = mem_zalloc(1, sizeof *net);

    if (net) {
        net->curl = lib.curl_easy_init();
        net->token = token ? mem_strndup(token, strlen(token)) : NULL;
    }
    if (!net || !net->curl || (token && !net->token)) {
        slm_fail_nomem(err, "a download");
        net_free(net);
        return NULL;
    }
    return net;
}

void net_free(struct net *net)
{
    if (!net) {
        return;
    }
    if (net->curl) {
        lib.curl_easy_cleanup(net->curl);
    }
    mem_free(net->token);
    mem_free(net);
}

/* One request on its way. */
struct transfer {
    struct net *net;
    const struct net_sink *sink;
    bool begun;
    bool partial;                   /* the answer has a Content-Range */
    uint64_t range_from, range_total;
    slm_error *err;                 /* why the sink does not want more */
    bool stopped;
};

/* Header lines of this answer; a redirection's are forgotten when the next one begins. */
static size_t on_header(char *line, size_t size, size_t count, void *arg)
{
    struct transfer *t = arg;
    const size_t n = size * count;
    char text[128];
    uint64_t from, to, total;

    snprintf(text, sizeof text, "%.*s", (int)(n < sizeof text ? n : sizeof text - 1), line);
    if (strncmp(text, "HTTP/", 5) == 0) {
        t->partial = false;
    } else if (strncasecmp(text, "content-range:", 14) == 0) {
        const int found = sscanf(text + 14, " bytes %" SCNu64 "-%" SCNu64 "/%" SCNu64, &from, &to,
                                 &total);
        t->partial = found >= 2;
        t->range_from = from;
        t->range_total = found == 3 ? total : 0;
    }
    return n;
}

/* What the answer says about itself, once, before its first byte. */
static bool begin(struct transfer *t)
{
    long status = 0;
    curl_off_t length = -1;

    lib.curl_easy_getinfo(t->net->curl, CURLINFO_RESPONSE_CODE, &status);
    lib.curl_easy_getinfo(t->net->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    if (status == 206 && !t->partial) {
        return slm_fail(t->err, SLM_E_FORMAT, "the server sends a part and does not say which");
    }
    const uint64_t at = status == 206 ? t->range_from : 0;
    const uint64_t total = status == 206 ? t->range_total : length > 0 ? (uint64_t)length : 0;

    return !t->sink->begin || t->sink->begin(t->sink->arg, at, total, t->err);
}

static size_t on_data(char *data, size_t size, size_t count, void *arg)
{
    struct transfer *t = arg;
    const size_t n = size * count;

    if (!t->begun) {
        t->begun = true;
        t->stopped = !begin(t);
    }
    t->stopped = t->stopped || !t->sink->add(t->sink->arg, data, n, t->err);
    return t->stopped ? 0 : n;
}

static int on_progress(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    (void)arg;
    (void)a;
    (void)b;
    (void)c;
    (void)d;
    return interrupted();
}

static void set_options(struct transfer *t, const char *url)
{
    CURL *c = t->net->curl;
    const bool secure = strncmp(url, "https:", 6) == 0;

    lib.curl_easy_reset(c);
    lib.curl_easy_setopt(c, CURLOPT_URL, url);
    lib.curl_easy_setopt(c, CURLOPT_USERAGENT, "slm/" SLM_VERSION);
    /* The newer names by the version of the headers; all versions know the older ones. */
#if LIBCURL_VERSION_NUM >= 0x075500
    lib.curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    lib.curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR, secure ? "https" : "http,https");
#else
    lib.curl_easy_setopt(c, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
    lib.curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS,
                         secure ? CURLPROTO_HTTPS : CURLPROTO_HTTP | CURLPROTO_HTTPS);
#endif
    lib.curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 1L);
    lib.curl_easy_setopt(c, CURLOPT_MAXREDIRS, 8L);
    lib.curl_easy_setopt(c, CURLOPT_FAILONERROR, 1L);
    lib.curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    lib.curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, 20L);
    /* A transfer that stands still for half a minute is broken. */
    lib.curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
    lib.curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, 30L);
    lib.curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    lib.curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress);
    lib.curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    lib.curl_easy_setopt(c, CURLOPT_HEADERDATA, t);
    lib.curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_data);
    lib.curl_easy_setopt(c, CURLOPT_WRITEDATA, t);
    if (t->net->token) {
        /* libcurl leaves it out when a redirection leads to another host. */
        lib.curl_easy_setopt(c, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
        lib.curl_easy_setopt(c, CURLOPT_XOAUTH2_BEARER, t->net->token);
    }
}

static enum net_fault judge_status(long status, const char *url, slm_error *err)
{
    enum net_fault fault = NET_FAILED;

    if (status == 401 || status == 403) {
        fault = NET_REFUSED;
    } else if (status == 404) {
        fault = NET_MISSING;
    } else if (status == 408 || status == 429 || status >= 500) {
        fault = NET_BROKEN;
    }
    slm_fail(err, SLM_E_IO, "%.150s: the server answers %ld", url, status);
    return fault;
}

static enum net_fault judge(struct transfer *t, CURLcode code, const char *url, slm_error *err)
{
    long status = 0;

    lib.curl_easy_getinfo(t->net->curl, CURLINFO_RESPONSE_CODE, &status);
    if (interrupted()) {
        slm_fail(err, SLM_E_CANCELLED, "interrupted");
        return NET_FAILED;
    }
    if (t->stopped) {
        return NET_FAILED;  /* *err says why */
    }
    switch (code) {
    case CURLE_OK:
        return NET_OK;
    case CURLE_HTTP_RETURNED_ERROR:
        return judge_status(status, url, err);
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_TOO_MANY_REDIRECTS:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_OUT_OF_MEMORY:
        slm_fail(err, SLM_E_IO, "%.120s: %.80s", url, lib.curl_easy_strerror(code));
        return NET_FAILED;
    default:
        slm_fail(err, SLM_E_IO, "%.120s: %.80s", url, lib.curl_easy_strerror(code));
        return NET_BROKEN;
    }
}

static enum net_fault perform(struct net *net, const char *url, const char *range,
                              const struct net_sink *sink, slm_error *err)
{
    slm_error why = {0};
    struct transfer t = { .net = net, .sink = sink, .err = &why };

    set_options(&t, url);
    if (range) {
        lib.curl_easy_setopt(net->curl, CURLOPT_RANGE, range);
    }
    const CURLcode code = lib.curl_easy_perform(net->curl);
    const enum net_fault fault = judge(&t, code, url, &why);

    if (fault != NET_OK && err) {
        *err = why;
    }
    return fault;
}

struct body {
    struct buf *buf;
    size_t max;
};

static bool add_body(void *arg, const void *data, size_t n, slm_error *err)
{
    struct body *b = arg;

    if (n > b->max - b->buf->len) {
        return slm_fail(err, SLM_E_FORMAT, "the server sends more than %zu bytes", b->max);
    }
    buf_add(b->buf, data, n);
    return !b->buf->failed || slm_fail_nomem(err, "the server's answer");
}

enum net_fault net_get(struct net *net, const char *url, size_t max, struct buf *body,
                       slm_error *err)
{
    struct body b = { body, max };
    const struct net_sink sink = { .add = add_body, .arg = &b };

    return perform(net, url, NULL, &sink, err);
}

enum net_fault net_range(struct net *net, const char *url, uint64_t from, uint64_t to,
                         const struct net_sink *sink, slm_error *err)
{
    char range[64];

    snprintf(range, sizeof range, "%" PRIu64 "-%" PRIu64, from, to - 1);
    return perform(net, url, range, sink, err);
}

/* ---- sums ------------------------------------------------------------------------ */

struct digest {
    EVP_MD_CTX *ctx;
};

struct digest *digest_new(const char *name, slm_error *err)
{
    if (!net_available(err)) {
        return NULL;
    }
    struct digest *d = mem_zalloc(1, sizeof *d);
    const EVP_MD *md = lib.EVP_get_digestbyname(name);

    if (d && md) {
        d->ctx = lib.EVP_MD_CTX_new();
    }
    if (!d || !md || !d->ctx || !lib.EVP_DigestInit_ex(d->ctx, md, NULL)) {
        slm_fail(err, SLM_E_UNSUPPORTED, "%s sums are not possible here", name);
        digest_free(d);
        return NULL;
    }
    return d;
}

void digest_add(struct digest *d, const void *data, size_t n)
{
    lib.EVP_DigestUpdate(d->ctx, data, n);
}

void digest_end(struct digest *d, char *out)
{
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned n = 0;

    lib.EVP_DigestFinal_ex(d->ctx, sum, &n);
    for (unsigned i = 0; i < n && i < 32; i++) {
        snprintf(out + 2 * i, 3, "%02x", sum[i]);
    }
}

void digest_free(struct digest *d)
{
    if (d) {
        if (d->ctx) {
            lib.EVP_MD_CTX_free(d->ctx);
        }
        mem_free(d);
    }
}

#else /* the same calls without the libraries: nothing can be made, so nothing can be called */

static const char without[] = "this program was built without libcurl and OpenSSL";

bool net_available(slm_error *err)
{
    return slm_fail(err, SLM_E_UNSUPPORTED, "downloads are not possible: %s", without);
}

const char *net_libraries(void)
{
    return without;
}

struct net *net_new(const char *token, slm_error *err)
{
    (void)token;
    net_available(err);
    return NULL;
}

void net_free(struct net *net)
{
    (void)net;
}

enum net_fault net_get(struct net *net, const char *url, size_t max, struct buf *body,
                       slm_error *err)
{
    (void)net;
    (void)url;
    (void)max;
    (void)body;
    net_available(err);
    return NET_FAILED;
}

enum net_fault net_range(struct net *net, const char *url, uint64_t from, uint64_t to,
                         const struct net_sink *sink, slm_error *err)
{
    (void)net;
    (void)url;
    (void)from;
    (void)to;
    (void)sink;
    net_available(err);
    return NET_FAILED;
}

struct digest *digest_new(const char *name, slm_error *err)
{
    (void)name;
    net_available(err);
    return NULL;
}

void digest_add(struct digest *d, const void *data, size_t n)
{
    (void)d;
    (void)data;
    (void)n;
}

void digest_end(struct digest *d, char *out)
{
    (void)d;
    *out = 0;
}

void digest_free(struct digest *d)
{
    (void)d;
}

#endif

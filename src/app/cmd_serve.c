/* cmd_serve.c - slm serve: models over HTTP until a signal ends it. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "app/hub.h"
#include "app/input.h"
#include "app/out.h"
#include "app/verbs.h"
#include "base/mem.h"
#ifdef HAVE_MICROHTTPD
#include "server/server.h"
#endif

enum { MODELS_MAX = 16, KEYS_MAX = 16 };

struct serve_opts {
    struct opt_list models, hosts;
    const char *host, *api_key, *api_key_file, *kv, *pack, *template_path, *cors, *log_format;
    const char *draft;
    int port, context, parallel, threads, queue, chunk, cache_mb, body_mb, connections, idle_s;
    int drain_s, mtp_draft, draft_max;
    bool quiet;
};

#define AT(field) offsetof(struct serve_opts, field)

static const struct opt opts[] = {
    { "model", 'm', OPT_LIST, AT(models), "MODEL", "a model to serve, like the operands; repeatable",
      0, 0 },
    { "host", 0, OPT_STR, AT(host), "ADDRESS", "where to listen (127.0.0.1)", 0, 0 },
    { "port", 0, OPT_INT, AT(port), "N", "port to listen on; 0: a free one (8080)", 0, 65535 },
    { "context", 0, OPT_INT, AT(context), "N",
      "tokens of a request and its answer together (4096, or the model's maximum)", 1, INT_MAX },
    { "parallel", 0, OPT_INT, AT(parallel), "N", "answers computed at once (8)", 1, 1024 },
    { "queue", 0, OPT_INT, AT(queue), "N", "further requests that may wait (64)", 1, 1 << 16 },
    { "chunk", 0, OPT_INT, AT(chunk), "N", "prompt tokens per step; 0: chosen (0)", 0, 1 << 16 },
    { "cache", 0, OPT_INT, AT(cache_mb), "MIB",
      "memory for keys, values and kept prompts; 0: a quarter of what is free (0)", 0, INT_MAX },
    { "threads", 0, OPT_INT, AT(threads), "N", "threads; 0: as many as help (0)", 0, 1024 },
    { "kv-type", 0, OPT_CHOICE, AT(kv), "f16|f32|q8_0", "precision of keys and values (f16)", 0,
      0 },
    { "pack", 0, OPT_CHOICE, AT(pack), "auto|off|wait",
      "rearrange weights for speed in the background, never, or first (auto)", 0, 0 },
    { "mtp-draft", 0, OPT_INT, AT(mtp_draft), "N",
      "tokens drafted per step by the model's own draft block; 0: off (0)", 0, 16 },
    { "draft", 0, OPT_CHOICE, AT(draft), "ngram", "draft from what was written before", 0, 0 },
    { "draft-max", 0, OPT_INT, AT(draft_max), "N", "tokens drafted per step with --draft (3)", 1,
      16 },
    { "template", 0, OPT_STR, AT(template_path), "FILE", "chat template to use, Jinja", 0, 0 },
    { "api-key", 0, OPT_STR, AT(api_key), "KEY", "requests must carry this key", 0, 0 },
    { "api-key-file", 0, OPT_STR, AT(api_key_file), "FILE", "keys, one per line", 0, 0 },
    { "allow-host", 0, OPT_LIST, AT(hosts), "NAME",
      "name that a Host header may have besides localhost; repeatable", 0, 0 },
    { "cors", 0, OPT_STR, AT(cors), "ORIGIN", "web pages of this origin may use the server", 0,
      0 },
    { "body-max", 0, OPT_INT, AT(body_mb), "MIB", "largest request (16)", 1, 1024 },
    { "connections", 0, OPT_INT, AT(connections), "N", "connections at once (256)", 1, 1 << 14 },
    { "idle", 0, OPT_INT, AT(idle_s), "SECONDS",
      "unload a model that nobody has used for so long; 0: never (0)", 0, INT_MAX },
    { "drain", 0, OPT_INT, AT(drain_s), "SECONDS",
      "on SIGTERM wait so long for answers under way (30)", 0, INT_MAX },
    { "log-format", 0, OPT_CHOICE, AT(log_format), "text|json", "form of the log lines (text)", 0,
      0 },
    { "quiet", 0, OPT_FLAG, AT(quiet), NULL, "no line per request", 0, 0 },
    { NULL, 0, OPT_FLAG, 0, NULL, NULL, 0, 0 },
};

static const char more[] =
    "MODEL is a file or a name as for \"slm pull\", or NAME=MODEL to choose the name that requests\n"
    "give; without one it is the file's.  The first model also answers requests that name none.\n"
    "The interface is OpenAI's, at http://127.0.0.1:8080/v1; a chat page is at /.  SIGTERM and\n"
    "Ctrl-C let answers under way finish; a second one ends at once.\n";

static int cmd_serve(int argc, char **argv);

const struct verb verb_serve = {
    .name = "serve",
    .operands = "MODEL...",
    .summary = "answer requests over HTTP",
    .more = more,
    .opts = opts,
    .run = cmd_serve,
};

#ifndef HAVE_MICROHTTPD

static int cmd_serve(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    out_error("this slm was built without libmicrohttpd, so it cannot serve; install "
              "libmicrohttpd-dev and build again");
    return 1;
}

#else

struct serve {
    struct serve_opts o;
    struct engine_model models[MODELS_MAX];
    char *names[MODELS_MAX], *paths[MODELS_MAX];
    int n_models;
    struct buf template, key_file;
    const char *keys[KEYS_MAX];
    int n_keys;
};

static volatile sig_atomic_t signals;
static int signal_pipe[2];

static void on_signal(int number)
{
    const char byte = 0;

    (void)number;
    if (++signals > 1) {
        _exit(130);
    }
    (void)!write(signal_pipe[1], &byte, 1);
}

/* ---- what is asked ------------------------------------------------------------------- */

/* "NAME=FILE", or a file whose name without .gguf is the model's. */
static bool add_model(struct serve *s, const char *text)
{
    const char *equals = strchr(text, '='), *slash = strchr(text, '/');
    const bool named = equals && equals != text && (!slash || equals < slash);
    const char *path = named ? equals + 1 : text;
    const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    size_t n = strlen(base);

    if (s->n_models == MODELS_MAX) {
        args_usage(&verb_serve, "at most %d models can be served", MODELS_MAX);
        return false;
    }
    if (n > 5 && strcasecmp(base + n - 5, ".gguf") == 0) {
        n -= 5;
    }
    char *name = named ? mem_strndup(text, (size_t)(equals - text)) : mem_strndup(base, n);
    if (!name) {
        out_error("not enough memory");
        return false;
    }
    s->names[s->n_models] = name;
    s->models[s->n_models++] = (struct engine_model){ name, path };
    for (int i = 0; i + 1 < s->n_models; i++) {
        if (strcmp(s->names[i], name) == 0) {
            args_usage(&verb_serve, "two models have the name \"%s\"; use NAME=MODEL", name);
            return false;
        }
    }
    return true;
}

static bool read_opts(struct serve *s, int argc, char **argv, int *code)
{
    struct serve_opts *o = &s->o;
    struct operands rest;

    *o = (struct serve_opts){
        .host = "127.0.0.1", .port = 8080, .parallel = 8, .queue = 64, .kv = "f16",
        .pack = "auto", .log_format = "text", .body_mb = 16, .connections = 256, .drain_s = 30,
        .draft_max = 3,
    };
    if (!args_parse(&verb_serve, argc, argv, o, &rest, code)) {
        return false;
    }
    *code = 2;
    for (int i = 0; i < rest.n; i++) {
        if (!add_model(s, rest.item[i])) {
            return false;
        }
    }
    for (size_t i = 0; i < o->models.n; i++) {
        if (!add_model(s, o->models.item[i])) {
            return false;
        }
    }
    if (s->n_models == 0) {
        args_usage(&verb_serve, "no model; give a GGUF file or a name as for \"slm pull\"");
        return false;
    }
    if (o->draft && o->mtp_draft > 0) {
        args_usage(&verb_serve, "--draft and --mtp-draft do not go together");
        return false;
    }
    return true;
}

static bool add_key(struct serve *s, const char *key)
{
    if (s->n_keys == KEYS_MAX) {
        out_error("at most %d keys can be used", KEYS_MAX);
        return false;
    }
    s->keys[s->n_keys++] = key;
    return true;
}

/* Keys of the option and of the file's lines; an empty one would let everybody in. */
static bool read_keys(struct serve *s, slm_error *err)
{
    char *save = NULL;

    if (s->o.api_key && (!*s->o.api_key || !add_key(s, s->o.api_key))) {
        out_error("--api-key needs a key that is not empty");
        return false;
    }
    if (!s->o.api_key_file) {
        return true;
    }
    if (!input_text(s->o.api_key_file, &s->key_file, err)) {
        out_fail(err);
        return false;
    }
    for (char *line = s->key_file.data ? strtok_r(s->key_file.data, "\r\n", &save) : NULL; line;
         line = strtok_r(NULL, "\r\n", &save)) {
        if (*line && !add_key(s, line)) {
            return false;
        }
    }
    if (s->n_keys == 0) {
        out_error("%s: there is no key in it", s->o.api_key_file);
    }
    return s->n_keys > 0;
}

/* Files of the models' names; those of the hub are downloaded where they are not in the cache. */
static bool find_models(struct serve *s, slm_error *err)
{
    for (int i = 0; i < s->n_models; i++) {
        s->paths[i] = hub_model(s->models[i].path, err);
        if (!s->paths[i]) {
            return false;
        }
        s->models[i].path = s->paths[i];
    }
    return true;
}

static bool is_loopback(const char *host)
{
    return strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 ||
           strcmp(host, "::1") == 0;
}

static struct server_params server_params(struct serve *s)
{
    const struct serve_opts *o = &s->o;
    const slm_draft_kind draft = o->mtp_draft > 0 ? SLM_DRAFT_MTP :
                                 o->draft ? SLM_DRAFT_NGRAM : SLM_DRAFT_OFF;

    return (struct server_params){
        .engine = {
            .models = s->models, .n_models = s->n_models, .threads = o->threads,
            .idle_s = o->idle_s,
            .model = { .pack = input_pack(o->pack),
                       .chat_template = o->template_path ? buf_str(&s->template) : NULL },
            .batch = { .context = o->context, .parallel = o->parallel, .queue = o->queue,
                       .chunk = o->chunk, .kv = input_kv(o->kv),
                       .cache_bytes = (uint64_t)o->cache_mb << 20,
                       .draft = { .kind = draft,
                                  .max = o->mtp_draft > 0 ? o->mtp_draft : o->draft_max } },
        },
        .http = {
            .keys = s->keys, .n_keys = s->n_keys, .cors_origin = o->cors, .hosts = o->hosts.item,
            .n_hosts = (int)o->hosts.n, .any_host = !is_loopback(o->host),
            .log_json = strcmp(o->log_format, "json") == 0, .quiet = o->quiet,
            .body_max = (size_t)o->body_mb << 20, .conn_max = o->connections,
            .n_choices_max = o->parallel + o->queue < 128 ? o->parallel + o->queue : 128,
        },
        .host = o->host, .port = o->port,
    };
}

/* ---- running ------------------------------------------------------------------------- */

/* Tells a service manager that asked for it (the protocol of sd_notify). */
static void notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un a = { .sun_family = AF_UNIX };

    if (!path || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof a.sun_path) {
        return;
    }
    memcpy(a.sun_path, path, strlen(path));
    const socklen_t n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    if (path[0] == '@') {
        a.sun_path[0] = '\0';
    }
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        (void)!sendto(fd, state, strlen(state), 0, (struct sockaddr *)&a, n);
        close(fd);
    }
}

static bool catch_signals(void)
{
    /* Without SA_RESTART: the read that waits for a signal shall end with it. */
    struct sigaction a = { .sa_handler = on_signal };

    if (pipe(signal_pipe) != 0) {
        out_error("cannot make a pipe: %s", strerror(errno));
        return false;
    }
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    return true;
}

static int run(struct serve *s)
{
    slm_error err = {0};

    if (!read_keys(s, &err)) {
        return 1;
    }
    if (s->o.template_path && !input_text(s->o.template_path, &s->template, &err)) {
        return out_fail(&err);
    }
    if (!find_models(s, &err)) {
        return out_fail(&err);
    }
    if (!catch_signals()) {
        return 1;
    }
    const struct server_params p = server_params(s);
    if (!is_loopback(s->o.host) && s->n_keys == 0) {
        out_note("warning: listening on %s without --api-key: everybody who reaches this machine "
                 "can use it", s->o.host);
    }
    struct server *server = server_new(&p, &err);
    if (!server) {
        return out_fail(&err);
    }
    const bool v6 = strchr(s->o.host, ':') != NULL;
    out_note("listening on http://%s%s%s:%d", v6 ? "[" : "", s->o.host, v6 ? "]" : "",
             server_port(server));
    notify("READY=1");
    char byte;
    while (signals == 0 && read(signal_pipe[0], &byte, 1) < 0 && errno == EINTR) {
    }
    notify("STOPPING=1");
    server_drain(server, s->o.drain_s);
    server_free(server);
    return 0;
}

static int cmd_serve(int argc, char **argv)
{
    struct serve s = {0};
    int code;

    buf_init(&s.template, 0);
    buf_init(&s.key_file, 0);
    if (read_opts(&s, argc, argv, &code)) {
        code = run(&s);
    }
    for (int i = 0; i < s.n_models; i++) {
        mem_free(s.names[i]);
        mem_free(s.paths[i]);
    }
    buf_deinit(&s.template);
    buf_deinit(&s.key_file);
    return code;
}

#endif

/* fuzz_request.c - bodies of requests through every endpoint, with a tiny model behind them.
 *
 * The handlers run as in the server; only HTTP itself is replaced, by the functions below.  The
 * first byte chooses the endpoint.  A reply must come for every body, and must be JSON. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "server/endpoints.h"
#include "server/engine.h"
#include "server/gen.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char template[] =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if m.tool_calls %}{{ m.tool_calls | "
    "tojson }}{% endif %}\n{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}<tool_call>";

struct http {
    const char *body;
    size_t n_body;
    int replies;
};

static struct metrics metrics;
static struct http_shared shared = { .metrics = &metrics, .body_max = 1 << 20, .n_choices_max = 4 };

/* ---- in place of http.c ---------------------------------------------------------------- */

const struct http_shared *http_shared(const struct http *h)
{
    (void)h;
    return &shared;
}

const char *http_body(const struct http *h, size_t *n)
{
    *n = h->n_body;
    return h->body;
}

const char *http_header(struct http *h, const char *name)
{
    (void)h;
    (void)name;
    return NULL;
}

const char *http_id(const struct http *h)
{
    (void)h;
    return "req_0123456789abcdef";
}

void http_note(struct http *h, const char *model, size_t n_prompt, size_t n_cached, size_t n_out)
{
    (void)h;
    (void)model;
    (void)n_prompt;
    (void)n_cached;
    (void)n_out;
}

json_t *http_fault_json(const struct http *h, const struct fault *f)
{
    (void)h;
    return json_pack("{s:{s:s, s:s, s:s?, s:s?}}", "error", "message", f->message, "type",
                     fault_type(f->status), "param", f->param[0] ? f->param : NULL, "code",
                     f->code);
}

void http_reply_json(struct http *h, int status, json_t *body)
{
    if (!body || status < 200 || status >= 600) {
        abort();
    }
    h->replies++;
    json_decref(body);
}

void http_reply_fault(struct http *h, const struct fault *f)
{
    http_reply_json(h, f->status, http_fault_json(h, f));
}

json_t *http_json(struct http *h)
{
    json_t *body = json_loadb(h->body, h->n_body, JSON_REJECT_DUPLICATES, NULL);
    struct fault f;

    if (!json_is_object(body)) {
        json_decref(body);
        fault_set(&f, 400, NULL, "not an object");
        http_reply_fault(h, &f);
        return NULL;
    }
    return body;
}

enum http_wait http_wait(struct http *h, int fd, int timeout_ms, bool stream)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };

    (void)h;
    (void)stream;
    return poll(&p, 1, timeout_ms) > 0 ? HTTP_READY : HTTP_TIMEOUT;
}

bool http_half_closed(struct http *h)
{
    (void)h;
    return false;
}

void http_reply_text(struct http *h, int status, const char *type, const char *text, size_t n)
{
    (void)status;
    (void)type;
    (void)text;
    (void)n;
    h->replies++;
}

void http_reply_nothing(struct http *h)
{
    h->replies++;
}

void http_reply_stream(struct http *h, http_next_fn *next, http_done_fn *done, void *arg)
{
    struct buf out;

    buf_init(&out, 0);
    do {
        buf_clear(&out);
        next(arg, &out);
    } while (out.len > 0);
    done(arg);
    buf_deinit(&out);
    h->replies++;
}

/* ---- the target ------------------------------------------------------------------------ */

static http_handler *const handlers[] = {
    ep_chat, ep_completions, ep_responses, ep_messages, ep_embeddings, ep_tokenize, ep_detokenize,
    ep_apply_template,
};

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const struct engine_model model = { "tiny", TEST_DATA "/models/llama-Q4_0/model.gguf" };
    const struct engine_params p = {
        .models = &model, .n_models = 1, .threads = 1,
        .model = { .chat_template = template },
        .batch = { .context = 64, .parallel = 2, .queue = 8 },
    };
    slm_error err;

    (void)argc;
    (void)argv;
    shared.engine = engine_new(&p, &metrics, &err);
    if (!shared.engine) {
        fprintf(stderr, "%s\n", err.msg);
        exit(1);
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 1) {
        return 0;
    }
    struct http h = { .body = (const char *)data + 1, .n_body = n - 1 };
    handlers[data[0] % (sizeof handlers / sizeof handlers[0])](&h);
    if (h.replies != 1) {
        abort();
    }
    return 0;
}

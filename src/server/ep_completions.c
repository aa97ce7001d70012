/* ep_completions.c - POST /v1/completions: text that goes on, without a template. */
#include <string.h>

#include "server/endpoints.h"
#include "server/gen.h"
#include "server/json_text.h"

static bool read_prompt(struct reader *rd, const struct field *f, json_t *v)
{
    (void)f;
    rd->r->prompt = v;
    return true;
}

static bool read_logprobs(struct reader *rd, const struct field *f, json_t *v)
{
    rd->r->logprobs = true;
    return read_int(rd, f, v);
}

#define AT(field) offsetof(struct request, field)

static const struct field fields[] = {
    { "prompt", read_prompt, 0, 0, 0 },
    { "temperature", read_float, AT(sampling.temperature), 0, 2 },
    { "top_p", read_float, AT(sampling.top_p), 0, 1 },
    { "max_tokens", read_int, AT(max_tokens), 1, 1 << 30 },
    { "n", read_int, AT(n), 1, 128 },
    { "stream", read_bool, AT(stream), 0, 0 },
    { "stream_options", read_stream_options, 0, 0, 0 },
    { "stop", read_stop, 0, 0, 0 },
    { "presence_penalty", read_float, AT(sampling.presence_penalty), -2, 2 },
    { "frequency_penalty", read_float, AT(sampling.frequency_penalty), -2, 2 },
    { "logit_bias", read_bias, 0, 0, 0 },
    { "logprobs", read_logprobs, AT(n_top), 0, TOP_MAX },
    { "user", read_label, 0, 0, 0 },
    { "echo", read_false, 0, 0, 0 },
    SAMPLING_FIELDS,
    { NULL, NULL, 0, 0, 0 },
};

/* [token, logprob, {token: logprob, ..}] */
static json_t *logprob(struct gen *g, const struct job_event *ev)
{
    size_t n;
    const char *piece = slm_piece(g->r.model, ev->chosen.id, true, &n);
    json_t *top = json_object();

    for (int i = 0; i < ev->n_top; i++) {
        size_t len;
        const char *text = slm_piece(g->r.model, ev->top[i].id, true, &len);
        json_t *key = json_text(text, len);
        json_object_set_new(top, json_string_value(key), json_real((double)ev->top[i].logprob));
        json_decref(key);
    }
    return json_pack("[o, f, o]", json_text(piece, n), (double)ev->chosen.logprob, top);
}

/* The pending log-probabilities as the interface's parallel arrays; they are taken. */
static json_t *take_logprobs(struct gen_choice *c)
{
    if (!c->gen->r.logprobs) {
        return json_null();
    }
    json_t *tokens = json_array(), *values = json_array(), *tops = json_array(), *row;
    size_t i;
    json_array_foreach(c->logprobs, i, row) {
        json_array_append(tokens, json_array_get(row, 0));
        json_array_append(values, json_array_get(row, 1));
        json_array_append(tops, json_array_get(row, 2));
    }
    json_array_clear(c->logprobs);
    return json_pack("{s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", values, "top_logprobs",
                     tops);
}

static json_t *usage(const struct gen *g)
{
    const struct gen_usage u = gen_usage(g);

    return json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", (json_int_t)u.prompt,
                     "completion_tokens", (json_int_t)u.answer, "total_tokens",
                     (json_int_t)(u.prompt + u.answer), "prompt_tokens_details", "cached_tokens",
                     (json_int_t)u.cached);
}

static json_t *head(const struct gen *g, json_t *choices)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", g->id, "object", "text_completion",
                     "created", (json_int_t)g->created, "model", served_name(g->r.served),
                     "choices", choices);
}

static json_t *choice_json(struct gen_choice *c, json_t *text, const char *finish)
{
    return json_pack("{s:i, s:o, s:o, s:s?}", "index", c->index, "text", text, "logprobs",
                     take_logprobs(c), "finish_reason", finish);
}

static json_t *whole(struct gen *g)
{
    json_t *choices = json_array();

    for (int i = 0; i < g->n_choices; i++) {
        struct gen_choice *c = &g->choices[i];
        json_array_append_new(choices, choice_json(c, gen_text(&c->content), c->finish));
    }
    json_t *out = head(g, choices);
    json_object_set_new(out, "usage", usage(g));
    return out;
}

static void send_chunk(struct gen *g, json_t *choices, json_t *used, struct buf *out)
{
    json_t *chunk = head(g, choices);

    if (g->r.include_usage) {
        json_object_set_new(chunk, "usage", used ? used : json_null());
    }
    gen_event(out, NULL, chunk);
}

static void part(struct gen *g, struct gen_choice *c, slm_part p, int call, const char *text,
                 size_t n, struct buf *out)
{
    (void)p;
    (void)call;
    send_chunk(g, json_pack("[o]", choice_json(c, json_text(text, n), NULL)), NULL, out);
}

static void end_choice(struct gen *g, struct gen_choice *c, struct buf *out)
{
    send_chunk(g, json_pack("[o]", choice_json(c, json_string(""), c->finish)), NULL, out);
}

static void end(struct gen *g, struct buf *out)
{
    if (g->r.include_usage) {
        send_chunk(g, json_array(), usage(g), out);
    }
    buf_puts(out, "data: [DONE]\n\n");
}

static void fail(struct gen *g, const struct fault *f, struct buf *out)
{
    gen_event(out, NULL, http_fault_json(g->http, f));
}

static const struct gen_interface completions = {
    .id_prefix = "cmpl-", .whole = whole, .part = part, .end_choice = end_choice, .end = end,
    .fail = fail, .logprob = logprob,
};

void ep_completions(struct http *h)
{
    json_t *body = http_json(h);
    struct request r;
    struct fault fault = {0};

    if (!body) {
        return;
    }
    if (!request_read(&r, http_shared(h)->engine, body, fields, &fault)) {
        http_reply_fault(h, &fault);
    } else if (!r.prompt) {
        fault_set(&fault, 400, "prompt", "prompt is missing");
        http_reply_fault(h, &fault);
    } else {
        gen_answer(h, &completions, &r);
    }
    request_deinit(&r);
}

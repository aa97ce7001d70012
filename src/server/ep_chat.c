/* ep_chat.c - POST /v1/chat/completions. */
#include <string.h>

#include "server/endpoints.h"
#include "server/gen.h"
#include "server/json_text.h"

/* ---- fields -------------------------------------------------------------------------------- */

static bool read_response_format(struct reader *rd, const struct field *f, json_t *v)
{
    const char *type = json_string_value(json_object_get(v, "type"));

    if (type && strcmp(type, "text") == 0) {
        return true;
    }
    if (type && strcmp(type, "json_object") == 0) {
        rd->r->any_object = true;
        return true;
    }
    if (!type || strcmp(type, "json_schema") != 0) {
        return fault_set(rd->fault, 400, "response_format.type",
                         "%s.type must be text, json_object or json_schema", f->name);
    }
    json_t *format = json_object_get(v, "json_schema"), *value;
    const char *key;
    if (!json_is_object(format)) {
        return fault_set(rd->fault, 400, "response_format.json_schema",
                         "%s.json_schema is missing", f->name);
    }
    json_object_foreach(format, key, value) {
        if (strcmp(key, "name") != 0 && strcmp(key, "description") != 0 &&
            strcmp(key, "strict") != 0 && strcmp(key, "schema") != 0) {
            return fault_set(rd->fault, 400, "response_format.json_schema",
                             "%s.json_schema.%s is not supported", f->name, key);
        }
    }
    rd->r->schema = json_object_get(format, "schema");
    if (!json_is_object(rd->r->schema) && !json_is_boolean(rd->r->schema)) {
        return fault_set(rd->fault, 400, "response_format.json_schema.schema",
                         "%s.json_schema.schema must be a JSON schema", f->name);
    }
    return true;
}

static bool read_tool_choice(struct reader *rd, const struct field *f, json_t *v)
{
    const char *how = json_string_value(v);

    if (json_is_object(v)) {
        const char *type = json_string_value(json_object_get(v, "type"));
        how = json_string_value(json_object_get(json_object_get(v, "function"), "name"));
        if (!type || strcmp(type, "function") != 0 || !how) {
            return wrong_type(rd, f, "auto, none, required or {\"type\":\"function\",\"function\":"
                              "{\"name\":...}}");
        }
    } else if (!how || (strcmp(how, "auto") != 0 && strcmp(how, "none") != 0 &&
                        strcmp(how, "required") != 0)) {
        return wrong_type(rd, f, "auto, none, required or {\"type\":\"function\",...}");
    }
    rd->r->tool_choice = how;
    return true;
}


#define AT(field) offsetof(struct request, field)

static const struct field fields[] = {
    { "messages", read_messages, 0, 0, 0 },
    { "temperature", read_float, AT(sampling.temperature), 0, 2 },
    { "top_p", read_float, AT(sampling.top_p), 0, 1 },
    { "max_tokens", read_int, AT(max_tokens), 1, 1 << 30 },
    { "max_completion_tokens", read_int, AT(max_tokens), 1, 1 << 30 },
    { "n", read_int, AT(n), 1, 128 },
    { "stream", read_bool, AT(stream), 0, 0 },
    { "stream_options", read_stream_options, 0, 0, 0 },
    { "stop", read_stop, 0, 0, 0 },
    { "presence_penalty", read_float, AT(sampling.presence_penalty), -2, 2 },
    { "frequency_penalty", read_float, AT(sampling.frequency_penalty), -2, 2 },
    { "logit_bias", read_bias, 0, 0, 0 },
    { "logprobs", read_bool, AT(logprobs), 0, 0 },
    { "top_logprobs", read_int, AT(n_top), 0, TOP_MAX },
    { "response_format", read_response_format, 0, 0, 0 },
    { "tools", read_tools, 0, 0, 0 },
    { "tool_choice", read_tool_choice, 0, 0, 0 },
    { "parallel_tool_calls", read_bool, AT(parallel_tools), 0, 0 },
    { "reasoning_effort", read_effort, 0, 0, 0 },
    { "chat_template_kwargs", read_kwargs, 0, 0, 0 },
    { "truncation", read_truncation, 0, 0, 0 },
    { "user", read_label, 0, 0, 0 },
    { "safety_identifier", read_label, 0, 0, 0 },
    { "prompt_cache_key", read_label, 0, 0, 0 },
    { "metadata", read_ignored, 0, 0, 0 },
    { "store", read_false, 0, 0, 0 },
    SAMPLING_FIELDS,
    { NULL, NULL, 0, 0, 0 },
};

/* What only the fields together tell. */
static bool check(struct request *r, json_t *body, struct fault *fault)
{
    const char *choice = r->tool_choice;
    json_t *tool;
    size_t i;

    if (!r->messages) {
        return fault_set(fault, 400, "messages", "messages must be an array of at least one "
                         "message");
    }
    if (r->n_top > 0 && !r->logprobs) {
        return fault_set(fault, 400, "top_logprobs", "top_logprobs needs logprobs: true");
    }
    if (!r->tools) {
        /* Without tools there is nothing to choose. */
        return strcmp(choice, "auto") == 0 || strcmp(choice, "none") == 0 ||
               fault_set(fault, 400, "tool_choice", "tool_choice needs tools");
    }
    if (!json_is_object(json_object_get(body, "tool_choice"))) {
        return true;
    }
    json_array_foreach(r->tools, i, tool) {
        const char *name = json_string_value(
            json_object_get(json_object_get(tool, "function"), "name"));
        if (strcmp(name, choice) == 0) {
            return true;
        }
    }
    return fault_set(fault, 400, "tool_choice", "tool_choice: there is no tool \"%.60s\"", choice);
}

/* ---- answers ------------------------------------------------------------------------------- */

/* {"token": .., "logprob": .., "bytes": [..]} */
static json_t *one_logprob(struct gen *g, const slm_logprob *p)
{
    size_t n;
    const char *piece = slm_piece(g->r.model, p->id, true, &n);
    json_t *bytes = json_array();

    for (size_t i = 0; i < n; i++) {
        json_array_append_new(bytes, json_integer((unsigned char)piece[i]));
    }
    return json_pack("{s:o, s:f, s:o}", "token", json_text(piece, n), "logprob",
                     (double)p->logprob, "bytes", bytes);
}

static json_t *logprob(struct gen *g, const struct job_event *ev)
{
    json_t *out = one_logprob(g, &ev->chosen);
    json_t *top = json_array();

    for (int i = 0; i < ev->n_top; i++) {
        json_array_append_new(top, one_logprob(g, &ev->top[i]));
    }
    json_object_set_new(out, "top_logprobs", top);
    return out;
}

/* {"content": [..]} of what is pending, which is taken; or null. */
static json_t *take_logprobs(struct gen_choice *c)
{
    if (!c->gen->r.logprobs) {
        return json_null();
    }
    json_t *list = c->logprobs;
    c->logprobs = json_array();
    return json_pack("{s:o, s:n}", "content", list, "refusal");
}

static json_t *usage(const struct gen *g)
{
    const struct gen_usage u = gen_usage(g);

    return json_pack("{s:I, s:I, s:I, s:{s:I}, s:{s:I}}", "prompt_tokens", (json_int_t)u.prompt,
                     "completion_tokens", (json_int_t)u.answer, "total_tokens",
                     (json_int_t)(u.prompt + u.answer), "prompt_tokens_details", "cached_tokens",
                     (json_int_t)u.cached, "completion_tokens_details", "reasoning_tokens",
                     (json_int_t)u.reasoning);
}

static json_t *message(struct gen_choice *c)
{
    json_t *m = json_pack("{s:s}", "role", "assistant");

    /* An answer of calls alone has no content. */
    json_object_set_new(m, "content",
                        c->n_calls > 0 && c->content.len == 0 ? json_null() : gen_text(&c->content));
    if (c->reasoning.len > 0) {
        json_object_set_new(m, "reasoning_content", gen_text(&c->reasoning));
    }
    json_object_set_new(m, "refusal", json_null());
    if (c->n_calls > 0) {
        json_t *calls = json_array();
        for (int i = 0; i < c->n_calls; i++) {
            json_array_append_new(calls, json_pack(
                "{s:s, s:s, s:{s:o, s:o}}", "id", c->calls[i].id, "type", "function", "function",
                "name", gen_text(&c->calls[i].name), "arguments", gen_text(&c->calls[i].arguments)));
        }
        json_object_set_new(m, "tool_calls", calls);
    }
    return m;
}

static json_t *head(const struct gen *g, const char *object)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:s}", "id", g->id, "object", object, "created",
                     (json_int_t)g->created, "model", served_name(g->r.served),
                     "system_fingerprint", slm_version());
}

static json_t *whole(struct gen *g)
{
    json_t *out = head(g, "chat.completion");
    json_t *choices = json_array();

    for (int i = 0; i < g->n_choices; i++) {
        struct gen_choice *c = &g->choices[i];
        json_array_append_new(choices, json_pack("{s:i, s:o, s:o, s:s}", "index", i, "message",
                                                 message(c), "logprobs", take_logprobs(c),
                                                 "finish_reason", c->finish));
    }
    json_object_set_new(out, "choices", choices);
    json_object_set_new(out, "usage", usage(g));
    return out;
}

/* ---- streams ------------------------------------------------------------------------------- */

static void send_chunk(struct gen *g, json_t *choices, json_t *used, struct buf *out)
{
    json_t *chunk = head(g, "chat.completion.chunk");

    json_object_set_new(chunk, "choices", choices);
    if (g->r.include_usage) {
        json_object_set_new(chunk, "usage", used ? used : json_null());
    }
    gen_event(out, NULL, chunk);
}

static void send_delta(struct gen *g, struct gen_choice *c, json_t *delta, struct buf *out)
{
    if (!c->began) {
        c->began = true;
        json_object_set_new(delta, "role", json_string("assistant"));
    }
    json_t *choice = json_pack("{s:i, s:o, s:o, s:s?}", "index", c->index, "delta", delta,
                               "logprobs", take_logprobs(c), "finish_reason", NULL);
    send_chunk(g, json_pack("[o]", choice), NULL, out);
}

static void part(struct gen *g, struct gen_choice *c, slm_part p, int call, const char *text,
                 size_t n, struct buf *out)
{
    if (p == SLM_PART_TOOL_END) {
        return;
    }
    json_t *piece = json_text(text, n), *delta;
    if (p == SLM_PART_CONTENT) {
        delta = json_pack("{s:o}", "content", piece);
    } else if (p == SLM_PART_REASONING) {
        delta = json_pack("{s:o}", "reasoning_content", piece);
    } else if (p == SLM_PART_TOOL) {
        delta = json_pack("{s:[{s:i, s:s, s:s, s:{s:o, s:s}}]}", "tool_calls", "index", call, "id",
                          c->calls[call].id, "type", "function", "function", "name", piece,
                          "arguments", "");
    } else {
        delta = json_pack("{s:[{s:i, s:{s:o}}]}", "tool_calls", "index", call, "function",
                          "arguments", piece);
    }
    send_delta(g, c, delta, out);
}

static void end_choice(struct gen *g, struct gen_choice *c, struct buf *out)
{
    if (!c->began || json_array_size(c->logprobs) > 0) {
        send_delta(g, c, json_pack("{s:s}", "content", ""), out);
    }
    json_t *choice = json_pack("{s:i, s:{}, s:n, s:s}", "index", c->index, "delta", "logprobs",
                               "finish_reason", c->finish);
    send_chunk(g, json_pack("[o]", choice), NULL, out);
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

static const struct gen_interface chat = {
    .id_prefix = "chatcmpl-", .answers = true, .whole = whole, .part = part,
    .end_choice = end_choice, .end = end, .fail = fail, .logprob = logprob,
};

void ep_chat(struct http *h)
{
    json_t *body = http_json(h);
    struct request r;
    struct fault fault = {0};

    if (!body) {
        return;
    }
    if (request_read(&r, http_shared(h)->engine, body, fields, &fault) &&
        check(&r, body, &fault)) {
        gen_answer(h, &chat, &r);
    } else {
        http_reply_fault(h, &fault);
    }
    request_deinit(&r);
}

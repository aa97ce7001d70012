/* ep_responses.c - POST /v1/responses.  Nothing is stored: a conversation comes with each request. */
#include <stdio.h>
#include <string.h>

#include "server/endpoints.h"
#include "server/gen.h"
#include "server/json_text.h"

/* ---- fields -------------------------------------------------------------------------------- */

static bool add_message(struct reader *rd, json_t *message)
{
    return (message && json_array_append_new(rd->r->owned, message) == 0) ||
           fault_no_memory(rd->fault);
}

static bool is(const char *type, const char *want)
{
    return type && strcmp(type, want) == 0;
}

/* A call that an earlier answer made; calls in a row belong to one message. */
static bool add_call(struct reader *rd, const char *where, json_t *item)
{
    json_t *id = json_object_get(item, "call_id"), *name = json_object_get(item, "name");
    json_t *arguments = json_object_get(item, "arguments");
    const size_t n = json_array_size(rd->r->owned);
    json_t *last = n > 0 ? json_array_get(rd->r->owned, n - 1) : NULL;

    if (!json_is_string(id) || !json_is_string(name) || !json_is_string(arguments)) {
        return fault_set(rd->fault, 400, where, "%s must have call_id, name and arguments", where);
    }
    json_t *call = json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", id, "type", "function", "function",
                             "name", name, "arguments", arguments);
    if (is(json_string_value(json_object_get(last, "role")), "assistant")) {
        json_t *calls = json_object_get(last, "tool_calls");
        if (!calls) {
            calls = json_array();
            json_object_set_new(last, "tool_calls", calls);
        }
        return json_array_append_new(calls, call) == 0 || fault_no_memory(rd->fault);
    }
    return add_message(rd, json_pack("{s:s, s:s, s:[o]}", "role", "assistant", "content", "",
                                     "tool_calls", call));
}

static bool add_output(struct reader *rd, const char *where, json_t *item)
{
    json_t *id = json_object_get(item, "call_id"), *output = json_object_get(item, "output");

    if (!json_is_string(id) || !json_is_string(output)) {
        return fault_set(rd->fault, 400, where, "%s must have call_id and output, both texts",
                         where);
    }
    return add_message(rd, json_pack("{s:s, s:O, s:O}", "role", "tool", "tool_call_id", id,
                                     "content", output));
}

static bool add_item(struct reader *rd, const char *where, json_t *item)
{
    const char *type = json_string_value(json_object_get(item, "type"));
    json_t *message, *clean;

    if (is(type, "function_call")) {
        return add_call(rd, where, item);
    }
    if (is(type, "function_call_output")) {
        return add_output(rd, where, item);
    }
    if (is(type, "reasoning")) {
        return true;  /* templates drop the thoughts of earlier turns */
    }
    if (type && !is(type, "message")) {
        return fault_set(rd->fault, 400, where, "%s: items of type \"%.40s\" are not supported",
                         where, type);
    }
    message = json_pack("{s:O*, s:O*}", "role", json_object_get(item, "role"), "content",
                        json_object_get(item, "content"));
    clean = message ? request_message(message, where, rd->fault) : NULL;
    json_decref(message);
    return clean && add_message(rd, clean);
}

static bool read_input(struct reader *rd, const struct field *f, json_t *v)
{
    json_t *item;
    size_t i;

    if (json_is_string(v)) {
        return add_message(rd, json_pack("{s:s, s:O}", "role", "user", "content", v));
    }
    if (!json_is_array(v)) {
        return wrong_type(rd, f, "a text or an array of items");
    }
    json_array_foreach(v, i, item) {
        char where[40];
        snprintf(where, sizeof where, "input[%zu]", i);
        if (!add_item(rd, where, item)) {
            return false;
        }
    }
    return true;
}

static bool read_instructions(struct reader *rd, const struct field *f, json_t *v)
{
    if (!json_is_string(v)) {
        return wrong_type(rd, f, "a text");
    }
    return json_array_insert_new(rd->r->owned, 0, json_pack("{s:s, s:O}", "role", "system",
                                                            "content", v)) == 0 ||
            fault_no_memory(rd->fault);
}

static bool read_flat_tools(struct reader *rd, const struct field *f, json_t *v)
{
    json_t *tools = json_array(), *tool;
    size_t i;

    rd->r->owned_tools = tools;
    if (!json_is_array(v)) {
        return wrong_type(rd, f, "an array of tools");
    }
    json_array_foreach(v, i, tool) {
        json_t *name = json_object_get(tool, "name"), *schema = json_object_get(tool, "parameters");
        if (!is(json_string_value(json_object_get(tool, "type")), "function") ||
            !json_is_string(name) || (schema && !json_is_object(schema) && !json_is_null(schema))) {
            return fault_set(rd->fault, 400, f->name, "tools[%zu] must be of type function and "
                             "have a name", i);
        }
        json_t *function = json_pack("{s:O, s:O*, s:O*}", "name", name, "description",
                                     json_object_get(tool, "description"), "parameters", schema);
        json_array_append_new(tools, json_pack("{s:s, s:o}", "type", "function", "function",
                                               function));
    }
    rd->r->tools = json_array_size(tools) > 0 ? tools : NULL;
    return true;
}

static bool read_flat_choice(struct reader *rd, const struct field *f, json_t *v)
{
    const char *how = json_string_value(v);

    if (json_is_object(v) && is(json_string_value(json_object_get(v, "type")), "function")) {
        how = json_string_value(json_object_get(v, "name"));
    } else if (!is(how, "auto") && !is(how, "none") && !is(how, "required")) {
        how = NULL;
    }
    rd->r->tool_choice = how;
    return how || wrong_type(rd, f, "auto, none, required or a function with its name");
}

static bool read_text(struct reader *rd, const struct field *f, json_t *v)
{
    json_t *format = json_object_get(v, "format");
    const char *type = json_string_value(json_object_get(format, "type"));

    if (!json_is_object(v)) {
        return wrong_type(rd, f, "an object");
    }
    if (json_object_get(v, "verbosity")) {
        return fault_set(rd->fault, 400, "text.verbosity", "text.verbosity is not supported");
    }
    if (!format || is(type, "text")) {
        return true;
    }
    if (is(type, "json_object")) {
        rd->r->any_object = true;
        return true;
    }
    rd->r->schema = json_object_get(format, "schema");
    return (is(type, "json_schema") && json_is_object(rd->r->schema)) ||
           fault_set(rd->fault, 400, "text.format",
                     "text.format must be of type text, json_object, or json_schema with a schema");
}

static bool read_reasoning(struct reader *rd, const struct field *f, json_t *v)
{
    const struct field effort = { "reasoning.effort", NULL, 0, 0, 0 };
    json_t *value = json_object_get(v, "effort");

    if (!json_is_object(v)) {
        return wrong_type(rd, f, "an object");
    }
    return !value || json_is_null(value) || read_effort(rd, &effort, value);
}

static bool read_includes(struct reader *rd, const struct field *f, json_t *v)
{
    return (json_is_array(v) && json_array_size(v) == 0) ||
           fault_set(rd->fault, 400, f->name, "%s is not supported", f->name);
}

#define AT(field) offsetof(struct request, field)

static const struct field fields[] = {
    { "input", read_input, 0, 0, 0 },
    { "instructions", read_instructions, 0, 0, 0 },
    { "max_output_tokens", read_int, AT(max_tokens), 1, 1 << 30 },
    { "temperature", read_float, AT(sampling.temperature), 0, 2 },
    { "top_p", read_float, AT(sampling.top_p), 0, 1 },
    { "stream", read_bool, AT(stream), 0, 0 },
    { "tools", read_flat_tools, 0, 0, 0 },
    { "tool_choice", read_flat_choice, 0, 0, 0 },
    { "parallel_tool_calls", read_bool, AT(parallel_tools), 0, 0 },
    { "text", read_text, 0, 0, 0 },
    { "reasoning", read_reasoning, 0, 0, 0 },
    { "truncation", read_truncation, 0, 0, 0 },
    { "chat_template_kwargs", read_kwargs, 0, 0, 0 },
    { "include", read_includes, 0, 0, 0 },
    { "store", read_false, 0, 0, 0 },
    { "background", read_false, 0, 0, 0 },
    { "metadata", read_ignored, 0, 0, 0 },
    { "user", read_label, 0, 0, 0 },
    { "safety_identifier", read_label, 0, 0, 0 },
    { "prompt_cache_key", read_label, 0, 0, 0 },
    SAMPLING_FIELDS,
    { NULL, NULL, 0, 0, 0 },
};

/* ---- answers ------------------------------------------------------------------------------- */

/* Item ids are the answer's with a prefix and a number. */
static json_t *item_id(const struct gen *g, const char *prefix, int n)
{
    return json_sprintf("%s%s%02d", prefix, g->id + strlen("resp_"), n);
}

static json_t *text_part(const struct gen_choice *c)
{
    return json_pack("{s:s, s:o, s:[], s:[]}", "type", "output_text", "text",
                     gen_text(&c->content), "annotations", "logprobs");
}

static json_t *message_item(struct gen_choice *c, const char *status, bool full)
{
    json_t *content = json_array();

    if (full) {
        json_array_append_new(content, text_part(c));
    }
    return json_pack("{s:s, s:o, s:s, s:s, s:o}", "type", "message", "id",
                     item_id(c->gen, "msg_", 0), "status", status, "role", "assistant", "content",
                     content);
}

static json_t *reasoning_item(struct gen_choice *c, bool full)
{
    json_t *content = json_array();

    if (full) {
        json_array_append_new(content, json_pack("{s:s, s:o}", "type", "reasoning_text", "text",
                                                 gen_text(&c->reasoning)));
    }
    return json_pack("{s:s, s:o, s:[], s:o}", "type", "reasoning", "id",
                     item_id(c->gen, "rs_", 0), "summary", "content", content);
}

static json_t *call_item(struct gen_choice *c, int i, const char *status, bool full)
{
    const struct gen_call *call = &c->calls[i];

    return json_pack("{s:s, s:o, s:s, s:o, s:o, s:s}", "type", "function_call", "id",
                     item_id(c->gen, "fc_", i), "call_id", call->id, "name", gen_text(&call->name),
                     "arguments", full ? gen_text(&call->arguments) : json_string(""), "status",
                     status);
}

static json_t *usage(const struct gen *g)
{
    const struct gen_usage u = gen_usage(g);

    return json_pack("{s:I, s:{s:I}, s:I, s:{s:I}, s:I}", "input_tokens", (json_int_t)u.prompt,
                     "input_tokens_details", "cached_tokens", (json_int_t)u.cached, "output_tokens",
                     (json_int_t)u.answer, "output_tokens_details", "reasoning_tokens",
                     (json_int_t)u.reasoning, "total_tokens", (json_int_t)(u.prompt + u.answer));
}

/* The field of the request, or null. */
static json_t *asked(const struct gen *g, const char *name)
{
    json_t *v = json_object_get(g->r.body, name);

    return v ? json_incref(v) : json_null();
}

static json_t *response(struct gen *g, const char *status, json_t *output, json_t *used)
{
    const bool cut = strcmp(status, "incomplete") == 0;
    json_t *tools = asked(g, "tools"), *choice = asked(g, "tool_choice");
    json_t *out = json_pack("{s:s, s:s, s:I, s:s, s:n, s:o, s:s, s:o, s:b, s:n, s:b, s:f, s:f}",
                            "id", g->id, "object", "response", "created_at", (json_int_t)g->created,
                            "status", status, "error", "incomplete_details",
                            cut ? json_pack("{s:s}", "reason", "max_output_tokens") : json_null(),
                            "model", served_name(g->r.served), "output", output,
                            "parallel_tool_calls", g->r.parallel_tools, "previous_response_id",
                            "store", 0, "temperature", (double)g->r.sampling.temperature, "top_p",
                            (double)g->r.sampling.top_p);

    json_object_set_new(out, "instructions", asked(g, "instructions"));
    json_object_set_new(out, "max_output_tokens", asked(g, "max_output_tokens"));
    json_object_set_new(out, "metadata", json_is_object(json_object_get(g->r.body, "metadata"))
                                             ? asked(g, "metadata") : json_object());
    json_object_set_new(out, "tools", json_is_null(tools) ? json_array() : json_incref(tools));
    json_object_set_new(out, "tool_choice",
                        json_is_null(choice) ? json_string("auto") : json_incref(choice));
    json_object_set_new(out, "usage", used);
    json_decref(tools);
    json_decref(choice);
    return out;
}

static const char *status_of(const struct gen_choice *c)
{
    return strcmp(c->finish, "length") == 0 ? "incomplete" : "completed";
}

static json_t *output_of(struct gen_choice *c)
{
    json_t *output = json_array();

    if (c->reasoning.len > 0) {
        json_array_append_new(output, reasoning_item(c, true));
    }
    if (c->content.len > 0 || c->n_calls == 0) {
        json_array_append_new(output, message_item(c, status_of(c), true));
    }
    for (int i = 0; i < c->n_calls; i++) {
        json_array_append_new(output, call_item(c, i, "completed", true));
    }
    return output;
}

static json_t *whole(struct gen *g)
{
    struct gen_choice *c = &g->choices[0];

    return response(g, status_of(c), output_of(c), usage(g));
}

/* ---- streams ------------------------------------------------------------------------------- */

/* Sends an event: `value` gets its type and number. */
static void send(struct gen *g, const char *type, json_t *value, struct buf *out)
{
    json_object_set_new(value, "type", json_string(type));
    json_object_set_new(value, "sequence_number", json_integer(g->n_events++));
    gen_event(out, type, value);
}

static void begin(struct gen *g, struct buf *out)
{
    static const char *const types[] = { "response.created", "response.in_progress" };

    for (int i = 0; i < 2; i++) {
        send(g, types[i], json_pack("{s:o}", "response", response(g, "in_progress", json_array(),
                                                                  json_null())), out);
    }
}

/* The id of the open item. */
static json_t *open_id(const struct gen_choice *c)
{
    const char *prefix = c->open_part == SLM_PART_CONTENT ? "msg_" :
                         c->open_part == SLM_PART_REASONING ? "rs_" : "fc_";

    return item_id(c->gen, prefix, c->open_part == SLM_PART_TOOL ? c->open_call : 0);
}

static json_t *item_json(struct gen_choice *c, bool full)
{
    const char *status = full ? "completed" : "in_progress";

    switch (c->open_part) {
    case SLM_PART_CONTENT:
        return message_item(c, status, full);
    case SLM_PART_REASONING:
        return reasoning_item(c, full);
    default:
        return call_item(c, c->open_call, status, full);
    }
}

/* {"item_id": .., "output_index": .., "content_index": 0} */
static json_t *place(const struct gen_choice *c)
{
    json_t *out = json_pack("{s:o, s:i}", "item_id", open_id(c), "output_index", c->n_blocks - 1);

    if (c->open_part != SLM_PART_TOOL) {
        json_object_set_new(out, "content_index", json_integer(0));
    }
    return out;
}

static void close_item(struct gen_choice *c, struct buf *out)
{
    struct gen *g = c->gen;
    json_t *done;

    if (!c->open) {
        return;
    }
    done = place(c);
    if (c->open_part == SLM_PART_CONTENT) {
        json_object_set_new(done, "text", gen_text(&c->content));
        json_object_set_new(done, "logprobs", json_array());
        send(g, "response.output_text.done", done, out);
        json_t *p = place(c);
        json_object_set_new(p, "part", text_part(c));
        send(g, "response.content_part.done", p, out);
    } else if (c->open_part == SLM_PART_REASONING) {
        json_object_set_new(done, "text", gen_text(&c->reasoning));
        send(g, "response.reasoning_text.done", done, out);
    } else {
        const struct gen_call *call = &c->calls[c->open_call];
        json_object_set_new(done, "arguments", gen_text(&call->arguments));
        json_object_set_new(done, "name", gen_text(&call->name));
        send(g, "response.function_call_arguments.done", done, out);
    }
    send(g, "response.output_item.done",
         json_pack("{s:i, s:o}", "output_index", c->n_blocks - 1, "item", item_json(c, true)), out);
    c->open = false;
}

static void open_item(struct gen_choice *c, slm_part p, int call, struct buf *out)
{
    struct gen *g = c->gen;

    if (c->open && c->open_part == p && p != SLM_PART_TOOL) {
        return;
    }
    close_item(c, out);
    c->open = true;
    c->open_part = p;
    c->open_call = call;
    c->n_blocks++;
    send(g, "response.output_item.added",
         json_pack("{s:i, s:o}", "output_index", c->n_blocks - 1, "item", item_json(c, false)),
         out);
    if (p == SLM_PART_CONTENT) {
        json_t *begun = place(c);
        json_object_set_new(begun, "part", json_pack("{s:s, s:s, s:[], s:[]}", "type",
                                                     "output_text", "text", "", "annotations",
                                                     "logprobs"));
        send(g, "response.content_part.added", begun, out);
    }
}

static void part(struct gen *g, struct gen_choice *c, slm_part p, int call, const char *text,
                 size_t n, struct buf *out)
{
    static const char *const deltas[] = {
        [SLM_PART_CONTENT] = "response.output_text.delta",
        [SLM_PART_REASONING] = "response.reasoning_text.delta",
        [SLM_PART_ARGUMENTS] = "response.function_call_arguments.delta",
    };

    if (p == SLM_PART_TOOL_END) {
        close_item(c, out);
        return;
    }
    if (p != SLM_PART_ARGUMENTS) {
        open_item(c, p, call, out);
    }
    if (p != SLM_PART_TOOL) {
        json_t *delta = place(c);
        json_object_set_new(delta, "delta", json_text(text, n));
        if (p == SLM_PART_CONTENT) {
            json_object_set_new(delta, "logprobs", json_array());
        }
        send(g, deltas[p], delta, out);
    }
}

static void end_choice(struct gen *g, struct gen_choice *c, struct buf *out)
{
    (void)g;
    if (c->n_blocks == 0) {
        open_item(c, SLM_PART_CONTENT, 0, out);
    }
    close_item(c, out);
}

static void end(struct gen *g, struct buf *out)
{
    struct gen_choice *c = &g->choices[0];
    const char *status = status_of(c);

    send(g, strcmp(status, "completed") == 0 ? "response.completed" : "response.incomplete",
         json_pack("{s:o}", "response", response(g, status, output_of(c), usage(g))), out);
}

static void fail(struct gen *g, const struct fault *f, struct buf *out)
{
    send(g, "error", json_pack("{s:s?, s:s, s:s?}", "code", f->code, "message", f->message, "param",
                               f->param[0] ? f->param : NULL), out);
}

static const struct gen_interface responses = {
    .id_prefix = "resp_", .answers = true, .whole = whole, .begin = begin, .part = part,
    .end_choice = end_choice, .end = end, .fail = fail,
};

void ep_responses(struct http *h)
{
    json_t *body = http_json(h);
    struct request r;
    struct fault fault = {0};

    if (!body) {
        return;
    }
    if (!request_read(&r, http_shared(h)->engine, body, fields, &fault)) {
        http_reply_fault(h, &fault);
    } else if (!r.messages) {
        fault_set(&fault, 400, "input", "input is missing or empty");
        http_reply_fault(h, &fault);
    } else if (!r.tools && strcmp(r.tool_choice, "auto") != 0 &&
               strcmp(r.tool_choice, "none") != 0) {
        fault_set(&fault, 400, "tool_choice", "tool_choice needs tools");
        http_reply_fault(h, &fault);
    } else {
        gen_answer(h, &responses, &r);
    }
    request_deinit(&r);
}

/* ep_messages.c - POST /v1/messages: Anthropic's interface. */
#include <stdio.h>
#include <string.h>

#include "server/endpoints.h"
#include "server/gen.h"
#include "server/json_text.h"

/* ---- fields -------------------------------------------------------------------------------- */

/* Text of a string or of text blocks; a new reference, or NULL and a fault. */
static json_t *text_of(struct reader *rd, const char *where, json_t *v)
{
    struct buf text;
    json_t *block, *out;
    size_t i;

    if (json_is_string(v)) {
        return json_incref(v);
    }
    buf_init(&text, 0);
    json_array_foreach(v, i, block) {
        const char *type = json_string_value(json_object_get(block, "type"));
        json_t *piece = json_object_get(block, "text");
        if (!type || strcmp(type, "text") != 0 || !json_is_string(piece)) {
            buf_deinit(&text);
            fault_set(rd->fault, 400, where, "%s: blocks of type \"%.30s\" are not supported "
                      "there", where, type ? type : "");
            return NULL;
        }
        buf_add(&text, json_string_value(piece), json_string_length(piece));
    }
    out = text.failed ? NULL : json_stringn(buf_str(&text), text.len);
    buf_deinit(&text);
    if (!out) {
        fault_no_memory(rd->fault);
    }
    return out;
}

static bool add_message(struct reader *rd, json_t *message)
{
    return (message && json_array_append_new(rd->r->owned, message) == 0) ||
           fault_no_memory(rd->fault);
}

/* {"type": "tool_result"}: a message of its own. */
static bool add_result(struct reader *rd, const char *where, json_t *block)
{
    json_t *id = json_object_get(block, "tool_use_id");
    json_t *content = json_object_get(block, "content");

    if (!json_is_string(id)) {
        return fault_set(rd->fault, 400, where, "%s.tool_use_id is missing", where);
    }
    json_t *text = content ? text_of(rd, where, content) : json_string("");
    return text && add_message(rd, json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id", id,
                                             "content", text));
}

/* {"type": "tool_use"} as a call of an assistant's message. */
static json_t *call_of(struct reader *rd, const char *where, json_t *block)
{
    json_t *id = json_object_get(block, "id"), *name = json_object_get(block, "name");
    json_t *input = json_object_get(block, "input");

    if (!json_is_string(id) || !json_is_string(name) || !json_is_object(input)) {
        fault_set(rd->fault, 400, where, "%s must have id, name and input", where);
        return NULL;
    }
    return json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", id, "type", "function", "function", "name",
                     name, "arguments", input);
}

/* The blocks of one message, in their order. */
static bool add_blocks(struct reader *rd, const char *role, const char *at, json_t *blocks)
{
    json_t *calls = NULL, *block, *message;
    struct buf text, thoughts;
    size_t i;
    bool ok = true;
    bool any_text = false;

    buf_init(&text, 0);
    buf_init(&thoughts, 0);
    json_array_foreach(blocks, i, block) {
        const char *type = json_string_value(json_object_get(block, "type"));
        json_t *piece = json_object_get(block, "text");
        char where[80];
        snprintf(where, sizeof where, "%s.content[%zu]", at, i);
        if (type && strcmp(type, "text") == 0 && json_is_string(piece)) {
            buf_add(&text, json_string_value(piece), json_string_length(piece));
            any_text = true;
        } else if (type && strcmp(type, "tool_result") == 0 && strcmp(role, "user") == 0) {
            ok = ok && add_result(rd, where, block);
        } else if (type && strcmp(type, "tool_use") == 0 && strcmp(role, "assistant") == 0) {
            json_t *call = call_of(rd, where, block);
            calls = calls ? calls : json_array();
            ok = ok && call && (json_array_append_new(calls, call) == 0 ||
                                fault_no_memory(rd->fault));
        } else if (type && strcmp(type, "thinking") == 0 && strcmp(role, "assistant") == 0) {
            piece = json_object_get(block, "thinking");
            buf_add(&thoughts, json_string_value(piece), json_string_length(piece));
        } else {
            ok = fault_set(rd->fault, 400, where, "%s: a block of type \"%.30s\" is not supported "
                           "in a message of the %s", where, type ? type : "", role);
        }
        if (!ok) {
            goto done;
        }
    }
    if (text.failed || thoughts.failed) {
        ok = fault_no_memory(rd->fault);
    } else if (any_text || calls || json_array_size(blocks) == 0) {
        message = json_pack("{s:s, s:o}", "role", role, "content",
                            json_stringn(buf_str(&text), text.len));
        if (message && calls) {
            json_object_set(message, "tool_calls", calls);
        }
        if (message && thoughts.len > 0) {
            json_object_set_new(message, "reasoning_content", gen_text(&thoughts));
        }
        ok = add_message(rd, message);
    }

done:
    json_decref(calls);
    buf_deinit(&text);
    buf_deinit(&thoughts);
    return ok;
}

static bool read_turns(struct reader *rd, const struct field *f, json_t *v)
{
    json_t *message;
    size_t i;

    if (!json_is_array(v) || json_array_size(v) == 0) {
        return wrong_type(rd, f, "an array of at least one message");
    }
    json_array_foreach(v, i, message) {
        const char *role = json_string_value(json_object_get(message, "role"));
        json_t *content = json_object_get(message, "content");
        char at[40];
        snprintf(at, sizeof at, "messages[%zu]", i);
        if (!role || (strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0)) {
            return fault_set(rd->fault, 400, at, "%s.role must be user or assistant", at);
        }
        if (json_is_string(content)) {
            if (!add_message(rd, json_pack("{s:s, s:O}", "role", role, "content", content))) {
                return false;
            }
        } else if (!json_is_array(content)) {
            return fault_set(rd->fault, 400, at, "%s.content must be a text or an array of blocks",
                             at);
        } else if (!add_blocks(rd, role, at, content)) {
            return false;
        }
    }
    return true;
}

static bool read_system(struct reader *rd, const struct field *f, json_t *v)
{
    json_t *text;

    if (!json_is_string(v) && !json_is_array(v)) {
        return wrong_type(rd, f, "a text or an array of text blocks");
    }
    text = text_of(rd, f->name, v);
    return text && (json_array_insert_new(rd->r->owned, 0,
                                          json_pack("{s:s, s:o}", "role", "system", "content",
                                                    text)) == 0 || fault_no_memory(rd->fault));
}

/* Tools become those of the templates. */
static bool read_custom_tools(struct reader *rd, const struct field *f, json_t *v)
{
    json_t *tools = json_array(), *tool;
    size_t i;

    if (!json_is_array(v)) {
        json_decref(tools);
        return wrong_type(rd, f, "an array of tools");
    }
    json_array_foreach(v, i, tool) {
        json_t *name = json_object_get(tool, "name"), *schema = json_object_get(tool,
                                                                                "input_schema");
        const char *type = json_string_value(json_object_get(tool, "type"));
        if (!json_is_string(name) || !json_is_object(schema) ||
            (type && strcmp(type, "custom") != 0)) {
            json_decref(tools);
            return fault_set(rd->fault, 400, f->name, "tools[%zu] must have a name and an "
                             "input_schema, and no type but \"custom\"", i);
        }
        json_t *function = json_pack("{s:O, s:O*, s:O}", "name", name, "description",
                                     json_object_get(tool, "description"), "parameters", schema);
        json_array_append_new(tools, json_pack("{s:s, s:o}", "type", "function", "function",
                                               function));
    }
    rd->r->owned_tools = tools;
    rd->r->tools = json_array_size(tools) > 0 ? tools : NULL;
    return true;
}

static bool read_custom_choice(struct reader *rd, const struct field *f, json_t *v)
{
    static const struct { const char *type, *choice; } rows[] = {
        { "auto", "auto" }, { "any", "required" }, { "none", "none" },
    };
    const char *type = json_string_value(json_object_get(v, "type"));
    json_t *alone = json_object_get(v, "disable_parallel_tool_use");

    rd->r->parallel_tools = !json_is_true(alone);
    for (size_t i = 0; type && i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(rows[i].type, type) == 0) {
            rd->r->tool_choice = rows[i].choice;
            return true;
        }
    }
    const char *name = json_string_value(json_object_get(v, "name"));
    if (!type || strcmp(type, "tool") != 0 || !name) {
        return wrong_type(rd, f, "of type auto, any, none, or tool with a name");
    }
    rd->r->tool_choice = name;
    return true;
}

static bool read_thinking(struct reader *rd, const struct field *f, json_t *v)
{
    const char *type = json_string_value(json_object_get(v, "type"));

    if (!type || (strcmp(type, "enabled") != 0 && strcmp(type, "disabled") != 0)) {
        return wrong_type(rd, f, "of type enabled or disabled");
    }
    return json_object_set_new(rd->r->variables, "enable_thinking",
                               json_boolean(strcmp(type, "enabled") == 0)) == 0 ||
           fault_no_memory(rd->fault);
}

#define AT(field) offsetof(struct request, field)

static const struct field fields[] = {
    { "messages", read_turns, 0, 0, 0 },
    { "system", read_system, 0, 0, 0 },
    { "max_tokens", read_int, AT(max_tokens), 1, 1 << 30 },
    { "temperature", read_float, AT(sampling.temperature), 0, 1 },
    { "top_p", read_float, AT(sampling.top_p), 0, 1 },
    { "stop_sequences", read_stop, 0, 0, 0 },
    { "stream", read_bool, AT(stream), 0, 0 },
    { "tools", read_custom_tools, 0, 0, 0 },
    { "tool_choice", read_custom_choice, 0, 0, 0 },
    { "thinking", read_thinking, 0, 0, 0 },
    { "chat_template_kwargs", read_kwargs, 0, 0, 0 },
    { "metadata", read_ignored, 0, 0, 0 },
    SAMPLING_FIELDS,
    { NULL, NULL, 0, 0, 0 },
};

/* ---- answers ------------------------------------------------------------------------------- */

static const char *stop_reason(const struct gen_choice *c)
{
    if (strcmp(c->finish, "length") == 0) {
        return "max_tokens";
    }
    if (strcmp(c->finish, "tool_calls") == 0) {
        return "tool_use";
    }
    return c->stop ? "stop_sequence" : "end_turn";
}

static json_t *usage(const struct gen *g)
{
    const struct gen_usage u = gen_usage(g);

    return json_pack("{s:I, s:I, s:I, s:I}", "input_tokens", (json_int_t)(u.prompt - u.cached),
                     "cache_creation_input_tokens", (json_int_t)0, "cache_read_input_tokens",
                     (json_int_t)u.cached, "output_tokens", (json_int_t)u.answer);
}

static json_t *arguments_of(const struct gen_call *call)
{
    json_t *input = json_loadb(buf_str(&call->arguments), call->arguments.len, 0, NULL);

    return input ? input : json_object();
}

static json_t *message(struct gen *g, json_t *content, const char *reason, const char *stop,
                       json_t *used)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:s?, s:s?, s:o}", "id", g->id, "type", "message",
                     "role", "assistant", "model", served_name(g->r.served), "content", content,
                     "stop_reason", reason, "stop_sequence", stop, "usage", used);
}

static json_t *whole(struct gen *g)
{
    struct gen_choice *c = &g->choices[0];
    json_t *content = json_array();

    if (c->reasoning.len > 0) {
        json_array_append_new(content, json_pack("{s:s, s:o, s:s}", "type", "thinking", "thinking",
                                                 gen_text(&c->reasoning), "signature", ""));
    }
    if (c->content.len > 0 || c->n_calls == 0) {
        json_array_append_new(content, json_pack("{s:s, s:o}", "type", "text", "text",
                                                 gen_text(&c->content)));
    }
    for (int i = 0; i < c->n_calls; i++) {
        json_array_append_new(content, json_pack("{s:s, s:s, s:o, s:o}", "type", "tool_use", "id",
                                                 c->calls[i].id, "name", gen_text(&c->calls[i].name),
                                                 "input", arguments_of(&c->calls[i])));
    }
    return message(g, content, stop_reason(c), c->stop, usage(g));
}

/* ---- streams ------------------------------------------------------------------------------- */

static void begin(struct gen *g, struct buf *out)
{
    json_t *used = json_pack("{s:I, s:I, s:I, s:i}", "input_tokens", (json_int_t)g->n_prompt_ids[0],
                             "cache_creation_input_tokens", (json_int_t)0,
                             "cache_read_input_tokens", (json_int_t)0, "output_tokens", 0);

    gen_event(out, "message_start",
              json_pack("{s:s, s:o}", "type", "message_start", "message",
                        message(g, json_array(), NULL, NULL, used)));
}

static void close_block(struct gen_choice *c, struct buf *out)
{
    if (c->open) {
        gen_event(out, "content_block_stop", json_pack("{s:s, s:i}", "type", "content_block_stop",
                                                       "index", c->n_blocks - 1));
        c->open = false;
    }
}

/* A block for a part of this kind, unless it is open already. */
static void open_block(struct gen_choice *c, slm_part p, json_t *block, struct buf *out)
{
    if (c->open && c->open_part == p && p != SLM_PART_TOOL) {
        json_decref(block);
        return;
    }
    close_block(c, out);
    gen_event(out, "content_block_start",
              json_pack("{s:s, s:i, s:o}", "type", "content_block_start", "index", c->n_blocks,
                        "content_block", block));
    c->open = true;
    c->open_part = p;
    c->n_blocks++;
}

static void send_delta(struct gen_choice *c, const char *type, const char *key, const char *text,
                       size_t n, struct buf *out)
{
    gen_event(out, "content_block_delta",
              json_pack("{s:s, s:i, s:{s:s, s:o}}", "type", "content_block_delta", "index",
                        c->n_blocks - 1, "delta", "type", type, key, json_text(text, n)));
}

static void part(struct gen *g, struct gen_choice *c, slm_part p, int call, const char *text,
                 size_t n, struct buf *out)
{
    (void)g;
    switch (p) {
    case SLM_PART_CONTENT:
        open_block(c, p, json_pack("{s:s, s:s}", "type", "text", "text", ""), out);
        send_delta(c, "text_delta", "text", text, n, out);
        break;
    case SLM_PART_REASONING:
        open_block(c, p, json_pack("{s:s, s:s, s:s}", "type", "thinking", "thinking", "",
                                   "signature", ""), out);
        send_delta(c, "thinking_delta", "thinking", text, n, out);
        break;
    case SLM_PART_TOOL:
        open_block(c, p, json_pack("{s:s, s:s, s:o, s:{}}", "type", "tool_use", "id",
                                   c->calls[call].id, "name", json_text(text, n), "input"), out);
        break;
    case SLM_PART_ARGUMENTS:
        send_delta(c, "input_json_delta", "partial_json", text, n, out);
        break;
    case SLM_PART_TOOL_END:
        close_block(c, out);
        break;
    }
}

static void end_choice(struct gen *g, struct gen_choice *c, struct buf *out)
{
    if (c->n_blocks == 0) {
        open_block(c, SLM_PART_CONTENT, json_pack("{s:s, s:s}", "type", "text", "text", ""), out);
    }
    close_block(c, out);
    gen_event(out, "message_delta",
              json_pack("{s:s, s:{s:s, s:s?}, s:o}", "type", "message_delta", "delta",
                        "stop_reason", stop_reason(c), "stop_sequence", c->stop, "usage",
                        usage(g)));
}

static void end(struct gen *g, struct buf *out)
{
    (void)g;
    gen_event(out, "message_stop", json_pack("{s:s}", "type", "message_stop"));
}

static void fail(struct gen *g, const struct fault *f, struct buf *out)
{
    gen_event(out, "error", http_fault_json(g->http, f));
}

static const struct gen_interface messages = {
    .id_prefix = "msg_", .answers = true, .whole = whole, .begin = begin, .part = part,
    .end_choice = end_choice, .end = end, .fail = fail,
};

static bool check(const struct request *r, struct fault *fault)
{
    if (!r->messages) {
        return fault_set(fault, 400, "messages", "messages is missing");
    }
    if (r->max_tokens == 0) {
        return fault_set(fault, 400, "max_tokens", "max_tokens is missing");
    }
    return r->tools || strcmp(r->tool_choice, "auto") == 0 || strcmp(r->tool_choice, "none") == 0 ||
           fault_set(fault, 400, "tool_choice", "tool_choice needs tools");
}

void ep_messages(struct http *h)
{
    json_t *body = http_json(h);
    struct request r;
    struct fault fault = {0};

    if (!body) {
        return;
    }
    if (request_read(&r, http_shared(h)->engine, body, fields, &fault) &&
        check(&r, &fault)) {
        gen_answer(h, &messages, &r);
    } else {
        http_reply_fault(h, &fault);
    }
    request_deinit(&r);
}

/* chat.c - conversations to prompt text.
 *
 * Owns what a template sees besides the messages, and checks that what the caller calls
 * messages, tools and variables has the right shape before a template meets it. */
#include "text/chat.h"

#include <string.h>

#include "base/mem.h"

struct chat {
    struct jinja *template;
    char *source;
    size_t n_source;
    char *bos, *eos;   /* texts of the tokens, "" where there is none */
};

/* Text of a control token as a NUL-terminated copy; NULL without memory. */
static char *token_copy(const struct vocab *v, int id)
{
    const char *s = NULL;
    size_t n = 0;

    if (v != NULL && id >= 0) {
        s = vocab_piece(v, id, true, &n);
    }
    return mem_strndup(s != NULL ? s : "", s != NULL ? n : 0);
}

bool chat_new(const struct gguf *g, const struct vocab *v, const char *source, struct chat **out,
              slm_error *err)
{
    struct gguf_str text = { .s = source, .n = source != NULL ? strlen(source) : 0 };
    struct chat *c;

    *out = NULL;
    if (source == NULL && g != NULL &&
        !gguf_get_str(g, "tokenizer.chat_template", &text, err)) {
        return false;
    }
    if (text.s == NULL) {
        return true;
    }
    c = mem_zalloc(1, sizeof *c);
    if (c == NULL) {
        return slm_fail_nomem(err, "the chat template");
    }
    c->bos = token_copy(v, v != NULL ? vocab_bos(v) : -1);
    c->eos = token_copy(v, v != NULL ? vocab_eos(v) : -1);
    c->source = mem_strndup(text.s, text.n);
    c->n_source = text.n;
    if (c->bos == NULL || c->eos == NULL || c->source == NULL) {
        chat_free(c);
        return slm_fail_nomem(err, "the chat template");
    }
    c->template = jinja_compile(text.s, text.n, err);
    if (c->template == NULL) {
        chat_free(c);
        return slm_wrap(err, "chat template");
    }
    *out = c;
    return true;
}

void chat_free(struct chat *c)
{
    if (c != NULL) {
        jinja_free(c->template);
        mem_free(c->source);
        mem_free(c->bos);
        mem_free(c->eos);
        mem_free(c);
    }
}

const char *chat_template(const struct chat *c, size_t *n)
{
    *n = c->n_source;
    return c->source;
}

/* ---- JSON from the caller ------------------------------------------------------------- */

/* Parses text that must be an array or an object; `what` names it in errors. */
static json_t *parse(const char *what, const char *text, json_type type, slm_error *err)
{
    json_error_t at;
    json_t *json = json_loads(text, 0, &at);

    if (json == NULL && json_error_code(&at) == json_error_out_of_memory) {
        slm_fail_nomem(err, what);
    } else if (json == NULL) {
        slm_fail(err, SLM_E_ARG, "%s: not valid JSON at line %d, column %d: %s", what, at.line,
                 at.column, at.text);
    } else if (json_typeof(json) != type) {
        slm_fail(err, SLM_E_ARG, "%s: must be a JSON %s", what,
                 type == JSON_ARRAY ? "array" : "object");
        json_decref(json);
        json = NULL;
    }
    return json;
}

static bool all_objects(const char *what, json_t *array, slm_error *err)
{
    size_t i;
    json_t *item;

    json_array_foreach(array, i, item) {
        if (!json_is_object(item)) {
            return slm_fail(err, SLM_E_ARG, "%s: element %zu must be an object", what, i);
        }
    }
    return true;
}

/* Replaces a text of a JSON object under "arguments" by the object.  Other texts stay. */
static bool open_arguments(json_t *call)
{
    json_t *text = json_object_get(call, "arguments"), *parsed;

    if (!json_is_string(text)) {
        return true;
    }
    parsed = json_loadb(json_string_value(text), json_string_length(text), 0, NULL);
    if (!json_is_object(parsed)) {
        json_decref(parsed);
        return true;
    }
    return json_object_set_new(call, "arguments", parsed) == 0;
}

/* The same for all tool calls of the messages, in the OpenAI form or without "function". */
static bool open_all_arguments(json_t *messages)
{
    size_t i, k;
    json_t *message, *call;

    json_array_foreach(messages, i, message) {
        json_array_foreach(json_object_get(message, "tool_calls"), k, call) {
            if (!open_arguments(call) || !open_arguments(json_object_get(call, "function"))) {
                return false;
            }
        }
    }
    return true;
}

/* ---- rendering ------------------------------------------------------------------------- */

/* The variables of the caller, which may not hide what has its own parameter. */
static json_t *parse_variables(const char *variables, slm_error *err)
{
    static const char *const own[] = { "messages", "tools" };
    json_t *json = variables != NULL ? parse("variables", variables, JSON_OBJECT, err)
                                     : json_object();

    if (json == NULL && variables == NULL) {
        slm_fail_nomem(err, "the variables of the template");
    }
    for (size_t i = 0; json != NULL && i < sizeof own / sizeof own[0]; i++) {
        if (json_object_get(json, own[i]) != NULL) {
            slm_fail(err, SLM_E_ARG, "variables: '%s' has its own parameter", own[i]);
            json_decref(json);
            json = NULL;
        }
    }
    return json;
}

/* A new reference is consumed, also on failure. */
static bool set_default(json_t *context, const char *name, json_t *value)
{
    if (json_object_get(context, name) != NULL) {
        json_decref(value);
        return true;
    }
    return json_object_set_new(context, name, value) == 0;
}

static bool add_messages(json_t *context, const char *messages, slm_error *err)
{
    json_t *json;

    if (messages == NULL) {
        return slm_fail(err, SLM_E_ARG, "messages: none given");
    }
    json = parse("messages", messages, JSON_ARRAY, err);
    if (json == NULL || !all_objects("messages", json, err)) {
        json_decref(json);
        return false;
    }
    if (!open_all_arguments(json)) {
        json_decref(json);
        return slm_fail_nomem(err, "the messages");
    }
    return json_object_set_new(context, "messages", json) == 0 ||
           slm_fail_nomem(err, "the messages");
}

static bool add_tools(json_t *context, const char *tools, slm_error *err)
{
    json_t *json = tools != NULL ? parse("tools", tools, JSON_ARRAY, err) : json_null();

    if (json == NULL || (tools != NULL && !all_objects("tools", json, err))) {
        json_decref(json);
        return false;
    }
    return json_object_set_new(context, "tools", json) == 0 || slm_fail_nomem(err, "the tools");
}

static bool add_defaults(const struct chat *c, json_t *context, bool add_generation_prompt,
                         slm_error *err)
{
    bool ok = set_default(context, "documents", json_null()) &&
              set_default(context, "add_generation_prompt", json_boolean(add_generation_prompt)) &&
              set_default(context, "bos_token", json_string(c->bos)) &&
              set_default(context, "eos_token", json_string(c->eos));

    return ok || slm_fail_nomem(err, "the variables of the template");
}

bool chat_render(const struct chat *c, const char *messages, const char *tools,
                 const char *variables, bool add_generation_prompt, struct buf *text,
                 struct buf *spans, slm_error *err)
{
    json_t *context = parse_variables(variables, err);
    bool ok = context != NULL && add_messages(context, messages, err) &&
              add_tools(context, tools, err) &&
              add_defaults(c, context, add_generation_prompt, err);

    if (ok && !jinja_render(c->template, context, NULL, "messages", text, spans, err)) {
        ok = slm_wrap(err, "chat template");
    }
    json_decref(context);
    return ok;
}

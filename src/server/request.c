/* request.c - reading requests by tables of fields.
 *
 * Every field is checked for type and range, and a field that no table has is refused by name:
 * an option that is ignored would be an answer to another question. */
#include "server/request.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/mem.h"

static void *target(struct reader *rd, const struct field *f)
{
    return (char *)rd->r + f->offset;
}

bool wrong_type(struct reader *rd, const struct field *f, const char *want)
{
    return fault_set(rd->fault, 400, f->name, "%s must be %s", f->name, want);
}

static bool out_of_range(struct reader *rd, const struct field *f)
{
    return fault_set(rd->fault, 400, f->name, "%s must be from %.10g to %.10g", f->name, f->min,
                     f->max);
}

/* ---- single fields ------------------------------------------------------------------------- */

bool read_bool(struct reader *rd, const struct field *f, json_t *v)
{
    if (!json_is_boolean(v)) {
        return wrong_type(rd, f, "true or false");
    }
    *(bool *)target(rd, f) = json_is_true(v);
    return true;
}

/* A number that stands for an integer; 5.0 is one. */
static bool integer_of(json_t *v, double *out)
{
    *out = json_number_value(v);
    return json_is_number(v) && (json_is_integer(v) || *out == rint(*out));
}

bool read_int(struct reader *rd, const struct field *f, json_t *v)
{
    double x;

    if (!integer_of(v, &x)) {
        return wrong_type(rd, f, "an integer");
    }
    if (!(x >= f->min && x <= f->max)) {
        return out_of_range(rd, f);
    }
    *(int *)target(rd, f) = (int)x;
    return true;
}

bool read_float(struct reader *rd, const struct field *f, json_t *v)
{
    const double x = json_number_value(v);

    if (!json_is_number(v)) {
        return wrong_type(rd, f, "a number");
    }
    if (!(x >= f->min && x <= f->max)) {
        return out_of_range(rd, f);
    }
    *(float *)target(rd, f) = (float)x;
    return true;
}

bool read_seed(struct reader *rd, const struct field *f, json_t *v)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0) {
        return wrong_type(rd, f, "an integer from 0 to 9223372036854775807");
    }
    *(uint64_t *)target(rd, f) = (uint64_t)json_integer_value(v);
    return true;
}

bool read_label(struct reader *rd, const struct field *f, json_t *v)
{
    return json_is_string(v) || wrong_type(rd, f, "a string");
}

bool read_ignored(struct reader *rd, const struct field *f, json_t *v)
{
    (void)rd;
    (void)f;
    (void)v;
    return true;
}

bool read_false(struct reader *rd, const struct field *f, json_t *v)
{
    return json_is_false(v) || fault_set(rd->fault, 400, f->name, "%s is not supported", f->name);
}

bool read_stop(struct reader *rd, const struct field *f, json_t *v)
{
    struct request *r = rd->r;
    const size_t n = json_is_array(v) ? json_array_size(v) : 1;

    if (n > STOPS_MAX) {
        return fault_set(rd->fault, 400, f->name, "%s may have at most %d texts", f->name,
                         STOPS_MAX);
    }
    for (size_t i = 0; i < n; i++) {
        json_t *text = json_is_array(v) ? json_array_get(v, i) : v;
        if (!json_is_string(text) || json_string_length(text) == 0) {
            return wrong_type(rd, f, "a text that is not empty, or an array of them");
        }
        r->stops[r->n_stops++] = json_string_value(text);
    }
    return true;
}

bool read_bias(struct reader *rd, const struct field *f, json_t *v)
{
    struct request *r = rd->r;
    slm_model_info info;
    const char *key;
    json_t *value;
    size_t n = 0;

    if (!json_is_object(v)) {
        return wrong_type(rd, f, "an object of token ids and numbers");
    }
    if (json_object_size(v) > BIAS_MAX) {
        return fault_set(rd->fault, 400, f->name, "%s may have at most %d tokens", f->name,
                         BIAS_MAX);
    }
    r->bias = mem_alloc(json_object_size(v), sizeof *r->bias);
    if (!r->bias) {
        return fault_no_memory(rd->fault);
    }
    slm_model_info_get(r->model, &info);
    json_object_foreach(v, key, value) {
        char *end;
        const long id = strtol(key, &end, 10);
        const double bias = json_number_value(value);
        if (end == key || *end || id < 0 || id >= info.n_vocab) {
            return fault_set(rd->fault, 400, f->name, "%s: \"%.20s\" is no token id, they go from "
                             "0 to %d", f->name, key, info.n_vocab - 1);
        }
        if (!json_is_number(value) || !(bias >= -100 && bias <= 100)) {
            return fault_set(rd->fault, 400, f->name, "%s of token %ld must be from -100 to 100",
                             f->name, id);
        }
        r->bias[n++] = (struct slm_bias){ (int32_t)id, bias == -100 ? -INFINITY : (float)bias };
    }
    r->sampling.logit_bias = r->bias;
    r->sampling.n_logit_bias = n;
    return true;
}

bool read_truncation(struct reader *rd, const struct field *f, json_t *v)
{
    const char *how = json_string_value(v);

    if (!how || (strcmp(how, "auto") != 0 && strcmp(how, "disabled") != 0)) {
        return wrong_type(rd, f, "\"auto\" or \"disabled\"");
    }
    rd->r->truncate = strcmp(how, "auto") == 0;
    return true;
}

bool read_stream_options(struct reader *rd, const struct field *f, json_t *v)
{
    const char *key;
    json_t *value;

    if (!json_is_object(v)) {
        return wrong_type(rd, f, "an object");
    }
    json_object_foreach(v, key, value) {
        if (strcmp(key, "include_usage") == 0 && json_is_boolean(value)) {
            rd->r->include_usage = json_is_true(value);
        } else if (strcmp(key, "include_obfuscation") != 0 || !json_is_false(value)) {
            return fault_set(rd->fault, 400, f->name, "%s.%s is not supported", f->name, key);
        }
    }
    rd->r->has_stream_options = true;
    return true;
}

/* ---- template variables --------------------------------------------------------------------- */

static bool set_variable(struct reader *rd, const char *name, json_t *value)
{
    return json_object_set_new(rd->r->variables, name, value) == 0 ||
           fault_no_memory(rd->fault);
}

bool read_effort(struct reader *rd, const struct field *f, json_t *v)
{
    static const char *const known[] = { "minimal", "low", "medium", "high", "xhigh" };
    const char *effort = json_string_value(v);

    if (effort && strcmp(effort, "none") == 0) {
        return set_variable(rd, "enable_thinking", json_false());
    }
    for (size_t i = 0; effort && i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(effort, known[i]) == 0) {
            return set_variable(rd, "reasoning_effort", json_string(effort));
        }
    }
    return wrong_type(rd, f, "none, minimal, low, medium, high or xhigh");
}

bool read_kwargs(struct reader *rd, const struct field *f, json_t *v)
{
    static const char *const taken[] = { "messages", "tools", "add_generation_prompt" };
    const char *key;
    json_t *value;

    if (!json_is_object(v)) {
        return wrong_type(rd, f, "an object");
    }
    json_object_foreach(v, key, value) {
        for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++) {
            if (strcmp(key, taken[i]) == 0) {
                return fault_set(rd->fault, 400, f->name, "%s cannot set %s", f->name, key);
            }
        }
        if (!set_variable(rd, key, json_incref(value))) {
            return false;
        }
    }
    return true;
}

/* ---- messages ------------------------------------------------------------------------------ */

static bool known_role(const char *role)
{
    static const char *const roles[] = { "system", "developer", "user", "assistant", "tool" };

    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        if (strcmp(role, roles[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* The text of a content; parts are joined.  A new reference, or NULL and a fault. */
static json_t *content_text(json_t *content, const char *where, struct fault *fault)
{
    struct buf text;
    json_t *part, *out;
    size_t i;

    if (!content || json_is_null(content)) {
        return json_string("");
    }
    if (json_is_string(content)) {
        return json_incref(content);
    }
    if (!json_is_array(content)) {
        fault_set(fault, 400, where, "%s.content must be a text or an array of parts", where);
        return NULL;
    }
    buf_init(&text, 0);
    json_array_foreach(content, i, part) {
        const char *type = json_string_value(json_object_get(part, "type"));
        json_t *piece = json_object_get(part, "text");
        if (!type || (strcmp(type, "text") != 0 && strcmp(type, "input_text") != 0 &&
                      strcmp(type, "output_text") != 0) || !json_is_string(piece)) {
            fault_set(fault, 400, where, "%s.content[%zu]: parts must be {\"type\":\"text\","
                      "\"text\":...}; \"%.30s\" is not supported", where, i, type ? type : "");
            buf_deinit(&text);
            return NULL;
        }
        buf_add(&text, json_string_value(piece), json_string_length(piece));
    }
    out = text.failed ? NULL : json_stringn(buf_str(&text), text.len);
    buf_deinit(&text);
    if (!out) {
        fault_no_memory(fault);
    }
    return out;
}

static bool check_calls(json_t *calls, const char *where, struct fault *fault)
{
    json_t *call;
    size_t i;

    if (!json_is_array(calls)) {
        return fault_set(fault, 400, where, "%s.tool_calls must be an array", where);
    }
    json_array_foreach(calls, i, call) {
        json_t *function = json_object_get(call, "function");
        if (!json_is_string(json_object_get(function, "name")) ||
            !json_is_string(json_object_get(function, "arguments"))) {
            return fault_set(fault, 400, where, "%s.tool_calls[%zu] must have a function with name "
                             "and arguments, both strings", where, i);
        }
    }
    return true;
}

json_t *request_message(json_t *message, const char *where, struct fault *fault)
{
    static const char *const kept[] = { "tool_calls", "tool_call_id", "name",
                                        "reasoning_content" };
    const char *role = json_string_value(json_object_get(message, "role")), *key;
    json_t *content, *out, *value;

    if (!role || !known_role(role)) {
        fault_set(fault, 400, where, "%s.role must be system, developer, user, assistant or tool",
                  where);
        return NULL;
    }
    json_object_foreach(message, key, value) {
        bool known = strcmp(key, "role") == 0 || strcmp(key, "content") == 0 ||
                     strcmp(key, "refusal") == 0 || strcmp(key, "annotations") == 0 ||
                     json_is_null(value);
        for (size_t i = 0; !known && i < sizeof kept / sizeof kept[0]; i++) {
            known = strcmp(key, kept[i]) == 0;
        }
        if (!known) {
            fault_set(fault, 400, where, "%s.%s is not supported", where, key);
            return NULL;
        }
    }
    json_t *calls = json_object_get(message, "tool_calls");
    if (calls && !json_is_null(calls) && !check_calls(calls, where, fault)) {
        return NULL;
    }
    if (strcmp(role, "user") == 0 && (!json_object_get(message, "content") ||
                                      json_is_null(json_object_get(message, "content")))) {
        fault_set(fault, 400, where, "%s.content is missing", where);
        return NULL;
    }
    content = content_text(json_object_get(message, "content"), where, fault);
    if (!content) {
        return NULL;
    }
    /* Templates know the older name. */
    out = json_pack("{s:s, s:o}", "role", strcmp(role, "developer") == 0 ? "system" : role,
                    "content", content);
    for (size_t i = 0; out && i < sizeof kept / sizeof kept[0]; i++) {
        value = json_object_get(message, kept[i]);
        if (value && !json_is_null(value)) {
            json_object_set(out, kept[i], value);
        }
    }
    if (!out) {
        fault_no_memory(fault);
    }
    return out;
}

bool read_messages(struct reader *rd, const struct field *f, json_t *v)
{
    json_t *message;
    size_t i;

    if (!json_is_array(v) || json_array_size(v) == 0) {
        return wrong_type(rd, f, "an array of at least one message");
    }
    json_array_foreach(v, i, message) {
        char where[40];
        snprintf(where, sizeof where, "messages[%zu]", i);
        json_t *clean = request_message(message, where, rd->fault);
        if (!clean) {
            return false;
        }
        if (json_array_append_new(rd->r->owned, clean) != 0) {
            return fault_no_memory(rd->fault);
        }
    }
    return true;
}

bool read_tools(struct reader *rd, const struct field *f, json_t *v)
{
    json_t *tool;
    size_t i;

    if (!json_is_array(v)) {
        return wrong_type(rd, f, "an array of tools");
    }
    json_array_foreach(v, i, tool) {
        const char *type = json_string_value(json_object_get(tool, "type"));
        json_t *function = json_object_get(tool, "function");
        json_t *parameters = json_object_get(function, "parameters");
        char where[40];
        snprintf(where, sizeof where, "tools[%zu]", i);
        if (!type || strcmp(type, "function") != 0) {
            return fault_set(rd->fault, 400, where, "%s.type must be \"function\"", where);
        }
        if (!json_is_string(json_object_get(function, "name")) ||
            json_string_length(json_object_get(function, "name")) == 0) {
            return fault_set(rd->fault, 400, where, "%s.function.name must be a text", where);
        }
        if (parameters && !json_is_object(parameters) && !json_is_null(parameters)) {
            return fault_set(rd->fault, 400, where, "%s.function.parameters must be a JSON schema",
                             where);
        }
    }
    rd->r->tools = json_array_size(v) > 0 ? v : NULL;
    return true;
}

/* ---- a whole request ----------------------------------------------------------------------- */

static bool find_model(struct request *r, struct engine *e, struct fault *fault)
{
    json_t *name = json_object_get(r->body, "model");
    slm_error err = {0};

    if (name && !json_is_string(name) && !json_is_null(name)) {
        return fault_set(fault, 400, "model", "model must be a text");
    }
    struct served *s = engine_find(e, json_string_value(name));
    if (!s) {
        fault_set(fault, 404, "model", "there is no model \"%.60s\"; GET /v1/models lists them",
                  json_string_value(name));
        fault->code = "model_not_found";
        return false;
    }
    r->model = served_acquire(s, &err);
    if (!r->model) {
        fault_from(fault, &err, NULL);
        fault->status = 503;  /* it did open when the server began */
        return false;
    }
    r->served = s;
    return true;
}

/* Two requests without a seed shall differ.  Below 2^63, so that it can be asked for again. */
static uint64_t fresh_seed(void)
{
    uint64_t seed = 0;

    (void)!getrandom(&seed, sizeof seed, 0);
    return seed >> 1;
}

static const struct field *find_field(const struct field *fields, const char *name)
{
    for (const struct field *f = fields; f->name; f++) {
        if (strcmp(f->name, name) == 0) {
            return f;
        }
    }
    return NULL;
}

bool request_read(struct request *r, struct engine *e, json_t *body, const struct field *fields,
                  struct fault *fault)
{
    struct reader rd = { r, fault };
    const char *key;
    json_t *value;

    *r = (struct request){ .body = body, .n = 1, .tool_choice = "auto", .parallel_tools = true,
                           .variables = json_object(), .owned = json_array() };
    if (!r->variables || !r->owned) {
        return fault_no_memory(fault);
    }
    if (!find_model(r, e, fault)) {
        return false;
    }
    slm_sampling_default(r->model, &r->sampling);
    r->sampling.seed = fresh_seed();
    json_object_foreach(body, key, value) {
        const struct field *f = find_field(fields, key);
        if (strcmp(key, "model") == 0) {
            continue;
        }
        if (!f) {
            return fault_set(fault, 400, key, "%.60s is not supported", key);
        }
        if (!json_is_null(value) && !f->read(&rd, f, value)) {
            return false;
        }
    }
    r->messages = json_array_size(r->owned) > 0 ? r->owned : NULL;
    if (r->has_stream_options && !r->stream) {
        return fault_set(fault, 400, "stream_options", "stream_options needs stream: true");
    }
    return true;
}

void request_deinit(struct request *r)
{
    if (r->served) {
        served_release(r->served);
    }
    mem_free(r->bias);
    json_decref(r->variables);
    json_decref(r->owned);
    json_decref(r->owned_tools);
    json_decref(r->body);
    memset(r, 0, sizeof *r);
}

/* ep_tokenize.c - the parts of a model's text side: POST /tokenize, /detokenize,
 * /apply-template. */
#include "base/mem.h"
#include "server/endpoints.h"
#include "server/gen.h"
#include "server/json_text.h"

/* The single value that these endpoints read. */
static bool read_content(struct reader *rd, const struct field *f, json_t *v)
{
    if (!json_is_string(v)) {
        return wrong_type(rd, f, "a text");
    }
    rd->r->prompt = v;
    return true;
}

static bool read_tokens(struct reader *rd, const struct field *f, json_t *v)
{
    if (!json_is_array(v)) {
        return wrong_type(rd, f, "an array of token ids");
    }
    rd->r->prompt = v;
    return true;
}

#define AT(field) offsetof(struct request, field)

static const struct field tokenize_fields[] = {
    { "content", read_content, 0, 0, 0 },
    { "add_special", read_bool, AT(add_special), 0, 0 },
    { "parse_special", read_bool, AT(parse_special), 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};

static const struct field detokenize_fields[] = {
    { "tokens", read_tokens, 0, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};

static const struct field template_fields[] = {
    { "messages", read_messages, 0, 0, 0 },
    { "tools", read_tools, 0, 0, 0 },
    { "reasoning_effort", read_effort, 0, 0, 0 },
    { "chat_template_kwargs", read_kwargs, 0, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};

/* Reads the body by a table; false after a reply. */
static bool read_body(struct http *h, struct request *r, const struct field *fields,
                      const char *needed)
{
    json_t *body = http_json(h);
    struct fault fault = {0};

    if (!body) {
        return false;
    }
    bool ok = request_read(r, http_shared(h)->engine, body, fields, &fault);
    if (ok && !r->prompt && !r->messages) {
        ok = fault_set(&fault, 400, needed, "%s is missing", needed);
    }
    if (!ok) {
        http_reply_fault(h, &fault);
        request_deinit(r);
    }
    return ok;
}

static void reply_error(struct http *h, const slm_error *err, const char *param)
{
    struct fault fault;

    fault_from(&fault, err, param);
    http_reply_fault(h, &fault);
}

void ep_tokenize(struct http *h)
{
    struct request r;
    slm_error err = {0};
    int32_t *ids;
    size_t n;

    if (!read_body(h, &r, tokenize_fields, "content")) {
        return;
    }
    if (slm_tokenize(r.model, json_string_value(r.prompt), json_string_length(r.prompt),
                     r.add_special, r.parse_special, &ids, &n, &err)) {
        json_t *tokens = json_array();
        for (size_t i = 0; i < n; i++) {
            json_array_append_new(tokens, json_integer(ids[i]));
        }
        slm_free(ids);
        http_reply_json(h, 200, json_pack("{s:o}", "tokens", tokens));
    } else {
        reply_error(h, &err, "content");
    }
    request_deinit(&r);
}

void ep_detokenize(struct http *h)
{
    struct request r;
    slm_model_info info;
    slm_error err = {0};
    size_t n = 0, i;
    json_t *id;

    if (!read_body(h, &r, detokenize_fields, "tokens")) {
        return;
    }
    slm_model_info_get(r.model, &info);
    int32_t *ids = mem_alloc(json_array_size(r.prompt), sizeof *ids);
    bool ok = ids || slm_fail_nomem(&err, "tokens");
    json_array_foreach(r.prompt, i, id) {
        const json_int_t v = json_integer_value(id);
        if (ok && (!json_is_integer(id) || v < 0 || v >= info.n_vocab)) {
            ok = slm_fail(&err, SLM_E_ARG, "tokens must be integers from 0 to %d",
                          info.n_vocab - 1);
        }
        if (ok) {
            ids[n++] = (int32_t)v;
        }
    }
    char *text = ok ? slm_detokenize(r.model, ids, n, true, &n, &err) : NULL;
    if (text) {
        http_reply_json(h, 200, json_pack("{s:o}", "content", json_text(text, n)));
    } else {
        reply_error(h, &err, "tokens");
    }
    slm_free(text);
    mem_free(ids);
    request_deinit(&r);
}

void ep_apply_template(struct http *h)
{
    struct request r;
    struct fault fault = {0};
    int32_t *ids = NULL;
    char *text = NULL;
    size_t n;

    if (!read_body(h, &r, template_fields, "messages")) {
        return;
    }
    if (gen_render(&r, SIZE_MAX, &ids, &n, &text, &fault)) {
        http_reply_json(h, 200, json_pack("{s:s}", "prompt", text));
    } else {
        http_reply_fault(h, &fault);
    }
    slm_free(ids);
    slm_free(text);
    request_deinit(&r);
}

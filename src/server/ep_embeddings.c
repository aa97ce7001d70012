/* ep_embeddings.c - POST /v1/embeddings: texts as unit vectors. */
#include <string.h>

#include "base/mem.h"
#include "server/endpoints.h"
#include "server/engine.h"
#include "server/gen.h"

/* Texts of one request. */
enum { INPUTS_MAX = 2048 };

struct embeddings {
    struct request r;
    struct fault fault;
    size_t n_tokens;
    float *vector;             /* [n_embd] */
    int n_embd;
};

static bool read_input(struct reader *rd, const struct field *f, json_t *v)
{
    (void)f;
    rd->r->prompt = v;
    return true;
}

static bool read_format(struct reader *rd, const struct field *f, json_t *v)
{
    const char *format = json_string_value(v);

    if (!format || (strcmp(format, "float") != 0 && strcmp(format, "base64") != 0)) {
        return wrong_type(rd, f, "float or base64");
    }
    rd->r->base64 = strcmp(format, "base64") == 0;
    return true;
}

static bool read_dimensions(struct reader *rd, const struct field *f, json_t *v)
{
    slm_model_info info;

    slm_model_info_get(rd->r->model, &info);
    return (json_is_integer(v) && json_integer_value(v) == info.n_embd) ||
           fault_set(rd->fault, 400, f->name, "dimensions: this model's vectors have %d and are "
                     "not cut", info.n_embd);
}

static const struct field fields[] = {
    { "input", read_input, 0, 0, 0 },
    { "encoding_format", read_format, 0, 0, 0 },
    { "dimensions", read_dimensions, 0, 0, 0 },
    { "user", read_label, 0, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};

/* Tokens of one input, freed by the caller with slm_free; NULL and a fault. */
static int32_t *input_tokens(struct embeddings *e, json_t *input, size_t *n)
{
    slm_model_info info;
    slm_error err = {0};
    int32_t *ids = NULL;

    if (json_is_string(input) && json_string_length(input) > 0) {
        if (!slm_tokenize(e->r.model, json_string_value(input), json_string_length(input), true,
                          false, &ids, n, &err)) {
            fault_from(&e->fault, &err, "input");
        }
        return ids;
    }
    *n = json_array_size(input);
    if (*n == 0) {
        fault_set(&e->fault, 400, "input", "input must be a text that is not empty, an array of "
                  "token ids, or an array of such inputs");
        return NULL;
    }
    slm_model_info_get(e->r.model, &info);
    ids = mem_alloc(*n, sizeof *ids);
    for (size_t i = 0; ids && i < *n; i++) {
        json_t *id = json_array_get(input, i);
        const json_int_t v = json_integer_value(id);
        if (!json_is_integer(id) || v < 0 || v >= info.n_vocab) {
            fault_set(&e->fault, 400, "input", "input: tokens must be integers from 0 to %d",
                      info.n_vocab - 1);
            mem_free(ids);
            return NULL;
        }
        ids[i] = (int32_t)v;
    }
    if (!ids) {
        fault_no_memory(&e->fault);
    }
    return ids;
}

static json_t *base64(const unsigned char *p, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    struct buf b;

    buf_init(&b, 0);
    for (size_t i = 0; i < n; i += 3) {
        const unsigned v = (unsigned)p[i] << 16 | (i + 1 < n ? (unsigned)p[i + 1] << 8 : 0) |
                           (i + 2 < n ? p[i + 2] : 0);
        buf_putc(&b, digits[v >> 18]);
        buf_putc(&b, digits[v >> 12 & 63]);
        buf_putc(&b, i + 1 < n ? digits[v >> 6 & 63] : '=');
        buf_putc(&b, i + 2 < n ? digits[v & 63] : '=');
    }
    json_t *out = b.failed ? NULL : json_stringn(buf_str(&b), b.len);
    buf_deinit(&b);
    return out;
}

static json_t *vector_json(const struct embeddings *e)
{
    if (e->r.base64) {
        /* Little-endian, as are the machines this runs on. */
        return base64((const unsigned char *)e->vector, (size_t)e->n_embd * sizeof(float));
    }
    json_t *out = json_array();
    for (int i = 0; i < e->n_embd; i++) {
        json_array_append_new(out, json_real((double)e->vector[i]));
    }
    return out;
}

static bool embed_one(struct embeddings *e, json_t *input, json_t *data)
{
    slm_error err = {0};
    size_t n;
    int32_t *ids = input_tokens(e, input, &n);
    const int context = ids ? served_context(e->r.served) : 0;
    bool ok = ids != NULL;

    if (ok && n > (size_t)context) {
        ok = fault_set(&e->fault, 400, "input", "an input has %zu tokens and the context only %d",
                       n, context);
        e->fault.code = "context_length_exceeded";
    } else if (ok && !engine_embed(e->r.served, ids, n, e->vector, &err)) {
        ok = fault_from(&e->fault, &err, "input");
    }
    slm_free(ids);
    e->n_tokens += n;
    return ok && json_array_append_new(data, json_pack("{s:s, s:I, s:o}", "object", "embedding",
                                                       "index", (json_int_t)json_array_size(data),
                                                       "embedding", vector_json(e))) == 0;
}

static bool embed_all(struct embeddings *e, struct http *h, json_t *data)
{
    json_t *input = e->r.prompt, *item;
    slm_model_info info;
    size_t i;

    if (!input) {
        return fault_set(&e->fault, 400, "input", "input is missing");
    }
    slm_model_info_get(e->r.model, &info);
    e->n_embd = info.n_embd;
    e->vector = mem_alloc((size_t)info.n_embd, sizeof(float));
    if (!e->vector) {
        return fault_no_memory(&e->fault);
    }
    if (!json_is_array(input) || json_array_size(input) == 0 ||
        json_is_number(json_array_get(input, 0))) {
        return embed_one(e, input, data);
    }
    if (json_array_size(input) > INPUTS_MAX) {
        return fault_set(&e->fault, 400, "input", "input may have at most %d texts", INPUTS_MAX);
    }
    json_array_foreach(input, i, item) {
        if (http_half_closed(h)) {
            return false;  /* nobody will read the rest */
        }
        if (!embed_one(e, item, data)) {
            return false;
        }
    }
    return true;
}

void ep_embeddings(struct http *h)
{
    json_t *body = http_json(h);
    struct embeddings e = {0};
    json_t *data = json_array();

    if (!body) {
        json_decref(data);
        return;
    }
    if (request_read(&e.r, http_shared(h)->engine, body, fields, &e.fault) &&
        embed_all(&e, h, data)) {
        http_note(h, served_name(e.r.served), e.n_tokens, 0, 0);
        http_reply_json(h, 200, json_pack("{s:s, s:O, s:s, s:{s:I, s:I}}", "object", "list", "data",
                                          data, "model", served_name(e.r.served), "usage",
                                          "prompt_tokens", (json_int_t)e.n_tokens, "total_tokens",
                                          (json_int_t)e.n_tokens));
    } else if (e.fault.status) {
        http_reply_fault(h, &e.fault);
    } else {
        http_reply_nothing(h);
    }
    json_decref(data);
    mem_free(e.vector);
    request_deinit(&e.r);
}

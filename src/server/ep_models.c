/* ep_models.c - what is served and how it is: GET /v1/models, /health, /metrics. */
#include "server/endpoints.h"
#include "server/engine.h"

void ep_models(struct http *h)
{
    struct engine *e = http_shared(h)->engine;
    json_t *data = json_array();
    struct served *s;

    for (int i = 0; (s = engine_model_at(e, i)); i++) {
        json_array_append_new(data, json_pack("{s:s, s:s, s:I, s:s, s:b}", "id", served_name(s),
                                              "object", "model", "created",
                                              (json_int_t)served_created(s), "owned_by", "slm",
                                              "loaded", served_loaded(s)));
    }
    http_reply_json(h, 200, json_pack("{s:s, s:o}", "object", "list", "data", data));
}

void ep_health(struct http *h)
{
    http_reply_json(h, 200, json_pack("{s:s}", "status", "ok"));
}

/* Samples of the engine: name, type, help, value. */
static void print_stats(struct buf *out, const slm_batch_stats *s)
{
    const struct { const char *name, *type, *help; double value; } rows[] = {
        { "running", "gauge", "Answers being computed", s->running },
        { "waiting", "gauge", "Requests in the queue", s->waiting },
        { "steps_total", "counter", "Steps computed", (double)s->steps },
        { "rows_total", "counter", "Tokens computed, of prompts and answers; rows per step is the "
          "batch size", (double)s->rows },
        { "prompt_tokens_total", "counter", "Tokens of prompts", (double)s->prompt_tokens },
        { "cached_tokens_total", "counter", "Tokens of prompts found in the cache",
          (double)s->cached_tokens },
        { "answer_tokens_total", "counter", "Tokens of answers", (double)s->answer_tokens },
        { "cache_bytes", "gauge", "Memory of keys, values and states in use",
          (double)s->cache_bytes },
        { "cache_bytes_max", "gauge", "Its bound", (double)s->cache_bytes_max },
        { "drafted_tokens_total", "counter", "Tokens drafted", (double)s->draft.drafted },
        { "accepted_tokens_total", "counter", "Drafts that were right",
          (double)s->draft.accepted },
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        metrics_print_one(out, rows[i].name, rows[i].type, rows[i].help, rows[i].value);
    }
}

void ep_metrics(struct http *h)
{
    slm_batch_stats stats;
    struct buf out;

    engine_stats(http_shared(h)->engine, &stats);
    buf_init(&out, 0);
    metrics_print(http_shared(h)->metrics, &out);
    print_stats(&out, &stats);
    http_reply_text(h, 200, "text/plain; version=0.0.4; charset=utf-8", buf_str(&out), out.len);
    buf_deinit(&out);
}

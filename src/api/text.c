/* text.c - tokens, templates and streaming text of the public interface. */
#include "api/api.h"
#include "text/span.h"

/* Longest rendered prompt in bytes; far more than any context holds. */
static const size_t TEXT_BYTES_MAX = (size_t)256 << 20;

static bool need_vocab(const slm_model *model, const char *call, slm_error *err)
{
    return api_arg(model != NULL, call, "model is NULL", err) &&
           api_arg(model->vocab != NULL, call, "the model was opened for its metadata only", err);
}

/* Hands a token list over to the caller, who gets memory to free also for none. */
static bool give_ids(struct ids *list, int32_t **ids, size_t *n_ids, slm_error *err)
{
    if (!list->data) {
        list->data = mem_alloc(1, sizeof *list->data);
    }
    if (!list->data) {
        return slm_fail_nomem(err, "tokens");
    }
    *ids = list->data;
    *n_ids = list->n;
    return true;
}

/* The buffer's text for the caller, also where it is empty. */
static char *give_text(struct buf *text, size_t *n, slm_error *err)
{
    char *s = buf_take(text, n);

    if (!s) {
        slm_fail_nomem(err, "text");
    }
    return s;
}

/* ---- tokens ------------------------------------------------------------------------- */

bool slm_tokenize(const slm_model *model, const char *text, size_t n, bool add_special,
                  bool parse_special, int32_t **ids, size_t *n_ids, slm_error *err)
{
    struct ids list = {0};

    if (!need_vocab(model, "slm_tokenize", err) ||
        !api_arg(text != NULL || n == 0, "slm_tokenize", "text is NULL", err) ||
        !api_arg(ids != NULL && n_ids != NULL, "slm_tokenize", "ids or n_ids is NULL", err)) {
        return false;
    }
    const uint64_t fp = fpenv_enter();
    const bool ok = tok_encode(model->vocab, text ? text : "", n, add_special, parse_special,
                               &list, err) &&
                    give_ids(&list, ids, n_ids, err);
    fpenv_leave(fp);
    if (!ok) {
        ids_deinit(&list);
    }
    return ok;
}

const char *slm_piece(const slm_model *model, int32_t id, bool special, size_t *n)
{
    size_t len = 0;
    const char *piece = NULL;

    if (model && model->vocab && id >= 0 && id < vocab_size(model->vocab)) {
        piece = vocab_piece(model->vocab, id, special, &len);
    }
    if (n) {
        *n = len;
    }
    return piece;
}

static bool check_ids(const slm_model *model, const int32_t *ids, size_t n_ids, slm_error *err)
{
    const int n_vocab = vocab_size(model->vocab);

    for (size_t i = 0; i < n_ids; i++) {
        if (ids[i] < 0 || ids[i] >= n_vocab) {
            return slm_fail(err, SLM_E_ARG, "token %zu has id %d, ids go from 0 to %d", i,
                            (int)ids[i], n_vocab - 1);
        }
    }
    return true;
}

char *slm_detokenize(const slm_model *model, const int32_t *ids, size_t n_ids, bool special,
                     size_t *n, slm_error *err)
{
    struct buf text;
    char *s = NULL;

    if (!need_vocab(model, "slm_detokenize", err) ||
        !api_arg(ids != NULL || n_ids == 0, "slm_detokenize", "ids is NULL", err) ||
        !check_ids(model, ids, n_ids, err)) {
        return NULL;
    }
    buf_init(&text, 0);
    if (vocab_detokenize(model->vocab, ids, n_ids, special, &text, err)) {
        s = give_text(&text, n, err);
    }
    buf_deinit(&text);
    return s;
}

bool slm_is_end(const slm_model *model, int32_t id)
{
    return model && model->vocab && id >= 0 && id < vocab_size(model->vocab) &&
           vocab_is_end(model->vocab, id);
}

/* ---- chat templates ------------------------------------------------------------------- */

static bool render(const slm_model *model, const char *call, const char *messages,
                   const char *tools, const char *variables, bool add_generation_prompt,
                   struct buf *text, struct buf *spans, slm_error *err)
{
    if (!need_vocab(model, call, err) ||
        !api_arg(messages != NULL, call, "messages is NULL", err)) {
        return false;
    }
    if (model->chat_broken) {
        if (err) {
            *err = model->chat_error;
        }
        return false;
    }
    if (!model->chat) {
        return slm_fail(err, SLM_E_TEMPLATE, "the model has no chat template");
    }
    return chat_render(model->chat, messages, tools, variables, add_generation_prompt, text, spans,
                       err);
}

char *slm_render(const slm_model *model, const char *messages, const char *tools,
                 const char *variables, bool add_generation_prompt, slm_error *err)
{
    struct buf text, spans;
    char *s = NULL;

    const uint64_t fp = fpenv_enter();
    buf_init(&text, TEXT_BYTES_MAX);
    buf_init(&spans, 0);
    if (render(model, "slm_render", messages, tools, variables, add_generation_prompt, &text,
               &spans, err)) {
        s = give_text(&text, NULL, err);
    }
    buf_deinit(&text);
    buf_deinit(&spans);
    fpenv_leave(fp);
    return s;
}

/* Tokens of rendered text. */
static bool encode_rendered(const slm_model *model, const struct buf *text,
                            const struct buf *spans, int32_t **ids, size_t *n_ids, slm_error *err)
{
    struct ids list = {0};
    const struct span *span = (const struct span *)(const void *)spans->data;

    if (tok_encode_spans(model->vocab, buf_str(text), text->len, true, span,
                         spans->len / sizeof *span, &list, err) &&
        give_ids(&list, ids, n_ids, err)) {
        return true;
    }
    ids_deinit(&list);
    return false;
}

bool slm_render_tokens(const slm_model *model, const char *messages, const char *tools,
                       const char *variables, bool add_generation_prompt, int32_t **ids,
                       size_t *n_ids, char **text, slm_error *err)
{
    struct buf rendered, spans;
    bool ok = false;

    if (!api_arg(ids != NULL && n_ids != NULL, "slm_render_tokens", "ids or n_ids is NULL", err)) {
        return false;
    }
    const uint64_t fp = fpenv_enter();
    buf_init(&rendered, TEXT_BYTES_MAX);
    buf_init(&spans, 0);
    if (render(model, "slm_render_tokens", messages, tools, variables, add_generation_prompt,
               &rendered, &spans, err)) {
        ok = encode_rendered(model, &rendered, &spans, ids, n_ids, err);
    }
    if (ok && text) {
        *text = give_text(&rendered, NULL, err);
        ok = *text != NULL;
        if (!ok) {
            mem_free(*ids);
            *ids = NULL;
        }
    }
    buf_deinit(&rendered);
    buf_deinit(&spans);
    fpenv_leave(fp);
    return ok;
}

/* ---- streaming text -------------------------------------------------------------------- */

slm_stream *slm_stream_new(const slm_model *model, const char *const *stops, size_t n_stops,
                           slm_error *err)
{
    if (!need_vocab(model, "slm_stream_new", err) ||
        !api_arg(stops != NULL || n_stops == 0, "slm_stream_new", "stops is NULL", err)) {
        return NULL;
    }
    for (size_t i = 0; i < n_stops; i++) {
        if (!api_arg(stops[i] && *stops[i], "slm_stream_new", "a stop string is empty", err)) {
            return NULL;
        }
    }
    slm_stream *s = mem_zalloc(1, sizeof *s);
    if (!s) {
        slm_fail_nomem(err, "a stream");
        return NULL;
    }
    s->detok = detok_new(model->vocab, stops, n_stops, err);
    if (!s->detok) {
        mem_free(s);
        return NULL;
    }
    return s;
}

void slm_stream_free(slm_stream *stream)
{
    if (!stream) {
        return;
    }
    detok_free(stream->detok);
    mem_free(stream);
}

void slm_stream_special(slm_stream *stream, bool special)
{
    if (stream) {
        detok_special(stream->detok, special);
    }
}

bool slm_stream_push(slm_stream *stream, int32_t id, const char **text, size_t *n, bool *stopped,
                     slm_error *err)
{
    return api_arg(stream != NULL, "slm_stream_push", "stream is NULL", err) &&
           api_arg(text && n && stopped, "slm_stream_push", "text, n or stopped is NULL", err) &&
           detok_push(stream->detok, id, text, n, stopped, err);
}

bool slm_stream_finish(slm_stream *stream, const char **text, size_t *n, slm_error *err)
{
    return api_arg(stream != NULL, "slm_stream_finish", "stream is NULL", err) &&
           api_arg(text && n, "slm_stream_finish", "text or n is NULL", err) &&
           detok_finish(stream->detok, text, n, err);
}

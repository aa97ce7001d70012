/* slm.c - engine, model, session and sampler of the public interface: arguments
 * checked, floating-point state set, calls forwarded; nothing clever.
 *
 * Every entry that computes runs between fpenv_enter and fpenv_leave, so the caller's
 * rounding and flush modes neither change a result nor get lost. */
#include "api/api.h"

#include <string.h>

#include "base/cpu.h"
#include "base/log.h"

bool api_arg(bool ok, const char *call, const char *what, slm_error *err)
{
    return ok || slm_fail(err, SLM_E_ARG, "%s: %s", call, what);
}

const char *slm_version(void)
{
    return SLM_VERSION;
}

const char *slm_code_text(slm_code code)
{
    switch (code) {
#define X(name, http, text) case SLM_E_##name: return text;
        SLM_ERROR_CODES(X)
#undef X
    }
    return "unknown error";
}

void slm_log_set(slm_log_fn *fn, void *arg)
{
    log_set(fn, arg);
}

void slm_free(void *p)
{
    mem_free(p);
}

/* ---- engine ------------------------------------------------------------------------ */

static slm_engine *engine_new(int threads, slm_error *err)
{
    enum isa isa;
    char why[160];

    if (!cpu_isa(&isa, err)) {
        return NULL;
    }
    slm_engine *e = mem_zalloc(1, sizeof *e);
    if (!e) {
        slm_fail_nomem(err, "an engine");
        return NULL;
    }
    pthread_mutex_init(&e->step_lock, NULL);
    e->kern = kern_get(isa);
    e->pool = pool_new(threads > 0 ? threads : cpu_usable_cores(why, sizeof why), err);
    if (!e->pool) {
        slm_engine_free(e);
        return NULL;
    }
    return e;
}

slm_engine *slm_engine_new(const slm_engine_params *params, slm_error *err)
{
    const int threads = params ? params->threads : 0;

    if (!api_arg(threads >= 0 && threads <= API_THREADS_MAX, "slm_engine_new",
                 "threads must be from 0 to 1024", err)) {
        return NULL;
    }
    const uint64_t fp = fpenv_enter();
    slm_engine *e = engine_new(threads, err);
    fpenv_leave(fp);
    return e;
}

void slm_engine_free(slm_engine *engine)
{
    if (!engine) {
        return;
    }
    pool_free(engine->pool);
    pthread_mutex_destroy(&engine->step_lock);
    mem_free(engine);
}

int slm_engine_threads(const slm_engine *engine)
{
    return engine ? pool_size(engine->pool) : 0;
}

/* ---- model ------------------------------------------------------------------------- */

/* A template of the file that does not compile is remembered and reported by the first
 * render, so that such a model can still be used without one; one that the caller gave
 * is an error at once. */
static bool open_chat(slm_model *m, const char *source, slm_error *err)
{
    if (chat_new(m->gguf, m->vocab, source, &m->chat, &m->chat_error)) {
        return true;
    }
    if (source || m->chat_error.code == SLM_E_NOMEM) {
        if (err) {
            *err = m->chat_error;
        }
        return false;
    }
    m->chat_broken = true;
    return true;
}

/* NUL-terminated copy of a string entry, "" where there is none. */
static char *copy_entry(const struct gguf *g, const char *key, slm_error *err)
{
    struct gguf_str s = { "", 0 };

    if (!gguf_get_str(g, key, &s, err)) {
        return NULL;
    }
    char *copy = mem_strndup(s.s, s.n);
    if (!copy) {
        slm_fail_nomem(err, key);
    }
    return copy;
}

static bool open_parts(slm_model *m, const char *path, const slm_model_params *p, slm_error *err)
{
    m->gguf = gguf_open(path, err);
    if (!m->gguf) {
        return false;
    }
    m->arch = copy_entry(m->gguf, "general.architecture", err);
    m->name = m->arch ? copy_entry(m->gguf, "general.name", err) : NULL;
    if (!m->name) {
        return false;
    }
    if (p->meta_only) {
        return true;
    }
    if (!p->vocab_only) {
        m->model = model_load(m->gguf, m->engine->pool, m->engine->kern, err);
        if (!m->model) {
            return false;
        }
    }
    m->vocab = vocab_new(m->gguf, err);
    if (!m->vocab) {
        return false;
    }
    if (m->model && vocab_size(m->vocab) != model_shape(m->model)->n_vocab) {
        return slm_fail(err, SLM_E_FORMAT, "the tokenizer has %d tokens, the weights have %d",
                        vocab_size(m->vocab), model_shape(m->model)->n_vocab);
    }
    return open_chat(m, p->chat_template, err);
}

slm_model *slm_model_open(slm_engine *engine, const char *path, const slm_model_params *params,
                          slm_error *err)
{
    static const slm_model_params defaults;
    const slm_model_params *p = params ? params : &defaults;

    if (!api_arg(engine != NULL, "slm_model_open", "engine is NULL", err) ||
        !api_arg(path != NULL, "slm_model_open", "path is NULL", err) ||
        !api_arg((unsigned)p->pack <= SLM_PACK_WAIT, "slm_model_open",
                 "pack is none of its constants", err)) {
        return NULL;
    }
    slm_model *m = mem_zalloc(1, sizeof *m);
    if (!m) {
        slm_fail_nomem(err, "a model");
        return NULL;
    }
    m->engine = engine;
    m->memory_bytes = p->memory_bytes;
    buf_init(&m->meta, 0);
    pthread_mutex_init(&m->guide_lock, NULL);

    const uint64_t fp = fpenv_enter();
    if (!open_parts(m, path, p, err)) {
        /* Errors of the container name the file already; a template that the caller gave
         * is none of its business. */
        if (m->gguf && !(p->chat_template && m->chat_error.code == SLM_E_TEMPLATE)) {
            slm_wrap(err, "%s", path);
        }
        slm_model_free(m);
        m = NULL;
    } else if (m->model && !api_place(m, p, err)) {
        slm_model_free(m);
        m = NULL;
    }
    fpenv_leave(fp);
    return m;
}

void slm_model_free(slm_model *model)
{
    if (!model) {
        return;
    }
    guide_vocab_free(model->guide_vocab);
    pthread_mutex_destroy(&model->guide_lock);
    chat_free(model->chat);
    vocab_free(model->vocab);
    model_free(model->model);
    gguf_close(model->gguf);
    buf_deinit(&model->meta);
    mem_free(model->arch);
    mem_free(model->name);
    mem_free(model);
}

/* ---- session ----------------------------------------------------------------------- */

int api_default_context(const slm_model *model)
{
    const int max = model_shape(model->model)->context_max;
    return max < API_CONTEXT_DEFAULT ? max : API_CONTEXT_DEFAULT;
}

bool api_session_params(const slm_model *model, const slm_session_params *given, const char *call,
                        struct session_params *out, slm_error *err)
{
    static const slm_session_params defaults;
    const slm_session_params *p = given ? given : &defaults;

    if (!api_arg(model != NULL, call, "model is NULL", err) ||
        !api_arg(model->model != NULL, call, "the model was opened without its weights", err) ||
        !api_computes(model, err) ||
        !api_arg(p->context >= 0, call, "context is negative", err) ||
        !api_arg(p->chunk >= 0, call, "chunk is negative", err) ||
        !api_arg((unsigned)p->kv <= SLM_KV_Q8_0, call, "kv is none of its constants", err)) {
        return false;
    }
    *out = (struct session_params){
        .context = p->context > 0 ? p->context : api_default_context(model),
        .chunk = p->chunk,
        .kv = api_kv_type(p->kv),
        .step_lock = &model->engine->step_lock,
    };
    return true;
}

slm_session *slm_session_new(slm_model *model, const slm_session_params *params, slm_error *err)
{
    const char *call = "slm_session_new";
    struct session_params p;
    struct spec_params draft;

    if (!api_session_params(model, params, call, &p, err) ||
        !api_drafting(model, params ? &params->draft : NULL, call, &draft, err)) {
        return NULL;
    }
    spec_session_params(&draft, &p);
    if (!api_session_fits(model, &p, &draft, err)) {
        return NULL;
    }
    slm_session *s = mem_zalloc(1, sizeof *s);
    if (!s) {
        slm_fail_nomem(err, "a session");
        return NULL;
    }
    const uint64_t fp = fpenv_enter();
    s->model = model;
    s->session = session_new(model->model, &p, err);
    s->spec = s->session ? spec_new(s->session, &draft, &p, err) : NULL;
    fpenv_leave(fp);
    if (!s->spec) {
        slm_session_free(s);
        return NULL;
    }
    return s;
}

void slm_session_free(slm_session *session)
{
    if (!session) {
        return;
    }
    spec_free(session->spec);
    session_free(session->session);
    mem_free(session);
}

size_t slm_session_len(const slm_session *session)
{
    return session ? (size_t)session_len(session->session) : 0;
}

int slm_session_context(const slm_session *session)
{
    return session ? session_context(session->session) : 0;
}

const float *slm_session_logits(const slm_session *session)
{
    return session ? session_logits(session->session) : NULL;
}

void slm_session_progress(slm_session *session, slm_progress_fn *fn, void *arg)
{
    if (session) {
        session_progress(session->session, fn, arg);
    }
}

static bool feed_arguments(const slm_session *session, const int32_t *ids, size_t n,
                           const char *call, slm_error *err)
{
    return api_arg(session != NULL, call, "session is NULL", err) &&
           api_arg(ids != NULL || n == 0, call, "ids is NULL", err);
}

bool slm_session_feed(slm_session *session, const int32_t *ids, size_t n, slm_error *err)
{
    if (!feed_arguments(session, ids, n, "slm_session_feed", err)) {
        return false;
    }
    const uint64_t fp = fpenv_enter();
    const bool ok = session_feed(session->session, ids, n, err);
    fpenv_leave(fp);
    return ok;
}

bool slm_session_sync(slm_session *session, const int32_t *ids, size_t n, size_t *reused,
                      slm_error *err)
{
    if (!feed_arguments(session, ids, n, "slm_session_sync", err)) {
        return false;
    }
    const uint64_t fp = fpenv_enter();
    const bool ok = session_sync(session->session, ids, n, reused, err);
    fpenv_leave(fp);
    return ok;
}

bool slm_session_score(slm_session *session, const int32_t *ids, size_t n, float *out,
                       slm_error *err)
{
    if (!feed_arguments(session, ids, n, "slm_session_score", err) ||
        !api_arg(out != NULL || n == 0, "slm_session_score", "out is NULL", err)) {
        return false;
    }
    const uint64_t fp = fpenv_enter();
    const bool ok = session_score(session->session, ids, n, out, err);
    fpenv_leave(fp);
    return ok;
}

bool slm_session_truncate(slm_session *session, size_t n, slm_error *err)
{
    if (!api_arg(session != NULL, "slm_session_truncate", "session is NULL", err)) {
        return false;
    }
    const uint64_t fp = fpenv_enter();
    const bool ok = session_truncate(session->session, n, err);
    fpenv_leave(fp);
    return ok;
}

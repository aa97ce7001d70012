/* sampling.c - the sampler of the public interface, and what is recommended for a model.
 *
 * Recommendations of a family are those of its makers' model cards; the file's own
 * general.sampling entries go before them. */
#include "api/api.h"

#include <limits.h>
#include <string.h>

#include "base/log.h"

/* ---- recommendations --------------------------------------------------------------- */

/* A family is recognised by its architecture, and where that is not enough by a word of
 * general.name (large or small letters) or of the template; the first row that fits counts.
 * Values of 0 are off. */
struct family {
    const char *origin;
    const char *arch, *name, *template;  /* NULL: any */
    float temperature, top_p;
    int top_k;
    float repeat, presence;
};

static const struct family families[] = {
    { "the family Qwen3.8", "qwen35", NULL, "Reasoning effort is set to", 1.0f, 0.95f, 20, 0, 0 },
    { "the family Qwen3.5", "qwen35", NULL, NULL, 1.0f, 0.95f, 20, 0, 1.5f },
    { "the family Qwen3 Instruct", "qwen3", "2507", NULL, 0.7f, 0.8f, 20, 0, 0 },
    { "the family Qwen3", "qwen3", NULL, NULL, 0.6f, 0.95f, 20, 0, 0 },
    { "the family Qwen3", "qwen3moe", NULL, NULL, 0.6f, 0.95f, 20, 0, 0 },
    { "the family DeepSeek R1", NULL, "DeepSeek-R1", NULL, 0.6f, 0.95f, 0, 0, 0 },
    { "the family Qwen2.5", "qwen2", NULL, NULL, 0.7f, 0.8f, 20, 1.05f, 0 },
    { "the family Gemma 4", "gemma4", NULL, NULL, 1.0f, 0.95f, 64, 0, 0 },
    { "the family Gemma 3n", "gemma3n", NULL, NULL, 1.0f, 0.95f, 64, 0, 0 },
    { "the family Gemma 3", "gemma3", NULL, NULL, 1.0f, 0.95f, 64, 0, 0 },
    { "the family Gemma 2", "gemma2", NULL, NULL, 1.0f, 0.95f, 64, 0, 0 },
    { "the family SmolLM3", "smollm3", NULL, NULL, 0.6f, 0.95f, 0, 0, 0 },
    { "the family Ministral 3", "mistral3", NULL, "[THINK]", 0.7f, 0.95f, 0, 0, 0 },
    { "the family Ministral 3", "mistral3", NULL, NULL, 0.15f, 0, 0, 0, 0 },
    { "the family Nanbeige", "nanbeige", NULL, NULL, 0.6f, 0.95f, 0, 0, 0 },
    { "the family Nanbeige", NULL, "Nanbeige", NULL, 0.6f, 0.95f, 0, 0, 0 },
    { "the family SmolLM2", "llama", "SmolLM", NULL, 0.2f, 0.9f, 0, 0, 0 },
    { "the family TinyLlama", "llama", "TinyLlama", NULL, 0.7f, 0.95f, 50, 0, 0 },
    { "the family Mistral Nemo", "llama", "Nemo", "[INST]", 0.3f, 0, 0, 0, 0 },
    { "the family Llama 3", "llama", NULL, "<|start_header_id|>", 0.6f, 0.9f, 0, 0, 0 },
    { "the family Llama 2", "llama", NULL, "<<SYS>>", 0.6f, 0.9f, 0, 0, 0 },
    { "the family StableLM 2", "stablelm", NULL, NULL, 0.5f, 0, 0, 0, 0 },
    { "the family Phi-4 reasoning", "phi3", "reasoning", NULL, 0.8f, 0.95f, 0, 0, 0 },
    { "the family Phi-3", "phi3", NULL, NULL, 0, 0, 0, 0, 0 },
};

static bool in_template(const struct gguf *g, const char *word)
{
    struct gguf_str s = { "", 0 };

    return gguf_get_str(g, "tokenizer.chat_template", &s, NULL) && s.s &&
           memmem(s.s, s.n, word, strlen(word)) != NULL;
}

static const struct family *find_family(const slm_model *m)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        const struct family *f = &families[i];
        if ((!f->arch || strcmp(f->arch, m->arch) == 0) &&
            (!f->name || strcasestr(m->name, f->name)) &&
            (!f->template || in_template(m->gguf, f->template))) {
            return f;
        }
    }
    return NULL;
}

/* One general.sampling entry; a value that is no number or out of range is left out with
 * a warning, since it is a recommendation only. */
static void recommended(const struct gguf *g, const char *key, double min, double max, double *out)
{
    slm_error err = {0};
    double v = *out;
    const struct gguf_kv *kv = gguf_find(g, key);

    if (!kv) {
        return;
    }
    if (kv->type != GGUF_ARR && gguf_is_int(kv->type)) {
        v = (double)gguf_int_at(kv, 0);
    } else if (!gguf_get_f64(g, key, &v, &err)) {
        log_line(SLM_LOG_WARN, "%s is left out: %s", key, err.msg);
        return;
    }
    if (!(v >= min && v <= max)) {
        log_line(SLM_LOG_WARN, "%s is left out: %g is not from %g to %g", key, v, min, max);
        return;
    }
    *out = v;
}

static void take_family(const struct family *f, slm_sampling *s)
{
    s->temperature = f->temperature;
    s->top_p = f->top_p > 0 ? f->top_p : 1;
    s->top_k = f->top_k;
    s->repeat_penalty = f->repeat > 0 ? f->repeat : 1;
    s->presence_penalty = f->presence;
}

/* Whether the file has a recommendation of its own: then the family's does not count, so
 * that values of different authors are not mixed. */
static bool file_recommends(const struct gguf *g)
{
    static const char *const keys[] = {
        "general.sampling.temp", "general.sampling.top_k", "general.sampling.top_p",
        "general.sampling.min_p", "general.sampling.penalty_repeat",
    };

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (gguf_find(g, keys[i])) {
            return true;
        }
    }
    return false;
}

static void take_file(const struct gguf *g, slm_sampling *s)
{
    double temp = (double)s->temperature, top_k = s->top_k, top_p = (double)s->top_p;
    double min_p = (double)s->min_p, repeat = (double)s->repeat_penalty;
    double window = s->penalty_window;

    recommended(g, "general.sampling.temp", 0, 100, &temp);
    recommended(g, "general.sampling.top_k", 0, INT_MAX, &top_k);
    recommended(g, "general.sampling.top_p", 0, 1, &top_p);
    recommended(g, "general.sampling.min_p", 0, 1, &min_p);
    recommended(g, "general.sampling.penalty_repeat", 0.01, 100, &repeat);
    recommended(g, "general.sampling.penalty_last_n", -1, INT_MAX, &window);
    s->temperature = (float)temp;
    s->top_k = (int)top_k;
    s->top_p = (float)top_p;
    s->min_p = (float)min_p;
    s->repeat_penalty = (float)repeat;
    s->penalty_window = (int)window;
}

void slm_sampling_default(const slm_model *model, slm_sampling *out)
{
    if (!out) {
        return;
    }
    *out = (slm_sampling){
        .temperature = 0.6f,
        .top_p = 1,
        .repeat_penalty = 1,
        .penalty_window = 64,
        .typical_p = 1,
        .xtc_threshold = 0.1f,
        .dry_base = 1.75f,
        .dry_allowed = 2,
        .dry_window = -1,
        .mirostat_eta = 0.1f,
        .seed = 42,
    };
    if (!model) {
        return;
    }
    const uint64_t fp = fpenv_enter();
    const struct family *f = file_recommends(model->gguf) ? NULL : find_family(model);
    if (f) {
        take_family(f, out);
    }
    take_file(model->gguf, out);
    fpenv_leave(fp);
}

const char *slm_sampling_origin(const slm_model *model)
{
    if (model && file_recommends(model->gguf)) {
        return "the file";
    }
    const struct family *f = model ? find_family(model) : NULL;
    return f ? f->origin : "no recommendation";
}

/* ---- samplers ---------------------------------------------------------------------- */

struct sample_params api_sample_params(const slm_sampling *s)
{
    return (struct sample_params){
        .temperature = s->temperature,
        .top_k = s->top_k,
        .top_p = s->top_p,
        .min_p = s->min_p,
        .repeat_penalty = s->repeat_penalty,
        .presence_penalty = s->presence_penalty,
        .frequency_penalty = s->frequency_penalty,
        .penalty_window = s->penalty_window,
        .typical_p = s->typical_p,
        .xtc_probability = s->xtc_probability,
        .xtc_threshold = s->xtc_threshold,
        .dry_multiplier = s->dry_multiplier,
        .dry_base = s->dry_base,
        .dry_allowed = s->dry_allowed,
        .dry_window = s->dry_window,
        .mirostat_tau = s->mirostat_tau,
        .mirostat_eta = s->mirostat_eta,
        .logit_bias = s->logit_bias,
        .n_logit_bias = s->n_logit_bias,
        .seed = s->seed,
        .choice = s->choice,
    };
}

slm_sampler *slm_sampler_new(const slm_model *model, const slm_sampling *sampling, slm_error *err)
{
    slm_sampling defaults;

    if (!api_arg(model != NULL, "slm_sampler_new", "model is NULL", err) ||
        !api_arg(model->model != NULL, "slm_sampler_new",
                 "the model was opened without its weights", err)) {
        return NULL;
    }
    slm_sampling_default(model, &defaults);
    const struct sample_params p = api_sample_params(sampling ? sampling : &defaults);
    slm_sampler *s = mem_zalloc(1, sizeof *s);
    if (!s) {
        slm_fail_nomem(err, "a sampler");
        return NULL;
    }
    const uint64_t fp = fpenv_enter();
    s->model = model;
    s->n_vocab = model_shape(model->model)->n_vocab;
    s->sampler = sampler_new(&p, s->n_vocab, model->engine->kern, err);
    fpenv_leave(fp);
    if (!s->sampler) {
        mem_free(s);
        return NULL;
    }
    return s;
}

void slm_sampler_free(slm_sampler *sampler)
{
    if (!sampler) {
        return;
    }
    sampler_free(sampler->sampler);
    guide_matcher_free(sampler->matcher);
    mem_free(sampler);
}

bool slm_sample(slm_sampler *sampler, const slm_session *session, int32_t *id, slm_error *err)
{
    if (!api_arg(sampler != NULL, "slm_sample", "sampler is NULL", err) ||
        !api_arg(session != NULL, "slm_sample", "session is NULL", err) ||
        !api_arg(id != NULL, "slm_sample", "id is NULL", err)) {
        return false;
    }
    const struct session *s = session->session;
    const float *logits = session_logits(s);
    if (!api_arg(logits != NULL, "slm_sample", "the session has no logits; feed a token", err) ||
        !api_arg(model_shape(session->model->model)->n_vocab == sampler->n_vocab, "slm_sample",
                 "sampler and session are of different models", err)) {
        return false;
    }
    const uint64_t fp = fpenv_enter();
    const bool ok = sampler_draw(sampler->sampler, logits, session_tokens(s),
                                 (size_t)session_len(s), id, err);
    fpenv_leave(fp);
    return ok;
}

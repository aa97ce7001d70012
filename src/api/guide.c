/* guide.c - guided output of the public interface. */
#include <string.h>

#include "api/api.h"
#include "guide/tools.h"

/* Longest schema, grammar or expression in bytes. */
static const size_t TEXT_MAX = (size_t)4 << 20;

/* The tokens of the model by their bytes, made once. */
static const struct guide_vocab *tokens_of(slm_model *model, slm_error *err)
{
    pthread_mutex_lock(&model->guide_lock);
    if (!model->guide_vocab) {
        model->guide_vocab = guide_vocab_new(model->vocab, err);
    }
    const struct guide_vocab *t = model->guide_vocab;
    pthread_mutex_unlock(&model->guide_lock);
    return t;
}

static bool any_json(struct grammar *g, const char *text, size_t n, gram_expr *root,
                     slm_error *err)
{
    (void)text;
    (void)n;
    return guide_json(g, root, err);
}

static bool (*const readers[])(struct grammar *g, const char *text, size_t n, gram_expr *root,
                               slm_error *err) = {
    [SLM_GUIDE_SCHEMA] = guide_schema,
    [SLM_GUIDE_JSON] = any_json,
    [SLM_GUIDE_REGEX] = guide_regex,
    [SLM_GUIDE_GRAMMAR] = guide_gbnf,
    [SLM_GUIDE_CHOICES] = guide_choices,
};

/* A guide of what was read into g, which is taken over. */
static slm_guide *make_guide(slm_model *model, const struct guide_vocab *t, struct grammar *g,
                             gram_expr root, slm_error *err)
{
    slm_guide *guide = mem_zalloc(1, sizeof *guide);

    if (!guide) {
        gram_deinit(g);
        slm_fail_nomem(err, "a guide");
        return NULL;
    }
    guide->model = model;
    guide->guide = guide_new(t, g, root, err);
    if (!guide->guide) {
        mem_free(guide);
        return NULL;
    }
    return guide;
}

slm_guide *slm_guide_new(slm_model *model, slm_guide_kind kind, const char *text, size_t n,
                         slm_error *err)
{
    static const char call[] = "slm_guide_new";
    struct grammar g;
    gram_expr root = GRAM_NONE;
    slm_guide *guide = NULL;

    if (!api_arg(model != NULL, call, "model is NULL", err) ||
        !api_arg(model->vocab != NULL, call, "the model was opened for its metadata only", err) ||
        !api_arg((unsigned)kind <= SLM_GUIDE_CHOICES, call, "kind is none of its constants", err) ||
        !api_arg(text != NULL || kind == SLM_GUIDE_JSON, call, "text is NULL", err) ||
        !api_arg(n <= TEXT_MAX || kind == SLM_GUIDE_JSON, call, "text is longer than 4 MiB", err)) {
        return NULL;
    }
    const uint64_t fp = fpenv_enter();
    const struct guide_vocab *t = tokens_of(model, err);
    gram_init(&g);
    if (t && readers[kind](&g, text, n, &root, err)) {
        guide = make_guide(model, t, &g, root, err);
    } else {
        gram_deinit(&g);
    }
    fpenv_leave(fp);
    return guide;
}

/* The form of calls that the model's template teaches. */
static const struct tool_form *form_of(const slm_model *model, slm_error *err)
{
    size_t n = 0;
    const char *template = model->chat ? chat_template(model->chat, &n) : NULL;
    const struct tool_form *form = template ? tool_form_find(template, n) : NULL;

    if (!form) {
        slm_fail(err, SLM_E_UNSUPPORTED, "the model's template shows no form of tool calls that is "
                 "known");
    }
    return form;
}

static slm_guide *tools_guide(slm_model *model, const char *tools, const struct tools_opts *o,
                              slm_error *err)
{
    const struct tool_form *form = form_of(model, err);
    const struct guide_vocab *t = form ? tokens_of(model, err) : NULL;
    json_error_t why;
    struct grammar g;
    gram_expr root = GRAM_NONE;
    slm_guide *guide = NULL;

    if (!t) {
        return NULL;
    }
    json_t *list = json_loads(tools, 0, &why);
    if (!list) {
        slm_fail(err, SLM_E_FORMAT, "the tools are no valid JSON: %s", why.text);
        return NULL;
    }
    gram_init(&g);
    if (guide_tools(&g, t, form, list, o, &root, err)) {
        guide = make_guide(model, t, &g, root, err);
    } else {
        gram_deinit(&g);
    }
    json_decref(list);
    return guide;
}

slm_guide *slm_guide_tools(slm_model *model, const char *tools, const char *choice, bool parallel,
                           slm_error *err)
{
    static const char call[] = "slm_guide_tools";
    const struct tools_opts o = { choice, parallel };

    if (!api_arg(model != NULL, call, "model is NULL", err) ||
        !api_arg(model->vocab != NULL, call, "the model was opened for its metadata only", err) ||
        !api_arg(tools != NULL && choice != NULL, call, "tools or choice is NULL", err) ||
        !api_arg(strlen(tools) <= TEXT_MAX, call, "tools are longer than 4 MiB", err)) {
        return NULL;
    }
    const uint64_t fp = fpenv_enter();
    slm_guide *guide = tools_guide(model, tools, &o, err);
    fpenv_leave(fp);
    return guide;
}

void slm_guide_free(slm_guide *guide)
{
    if (guide) {
        guide_free(guide->guide);
        mem_free(guide);
    }
}

static void release_matcher(void *arg)
{
    guide_matcher_free(arg);
}

bool api_constraint(const slm_model *model, const slm_guide *guide, size_t start,
                    struct constraint *out, slm_error *err)
{
    if (model != guide->model) {
        return slm_fail(err, SLM_E_ARG, "the guide was made for another model");
    }
    struct guide_matcher *m = guide_matcher_new(guide->guide, err);
    *out = (struct constraint){ guide_allow, m, start, release_matcher };
    return m != NULL;
}

bool slm_sampler_guide(slm_sampler *sampler, const slm_guide *guide, size_t start,
                       slm_error *err)
{
    struct constraint c = {0};

    if (!api_arg(sampler != NULL, "slm_sampler_guide", "sampler is NULL", err) ||
        (guide && !api_constraint(sampler->model, guide, start, &c, err))) {
        return false;
    }
    if (!sampler_constrain(sampler->sampler, guide ? &c : NULL, err)) {
        guide_matcher_free(c.arg);
        return false;
    }
    guide_matcher_free(sampler->matcher);
    sampler->matcher = c.arg;
    return true;
}

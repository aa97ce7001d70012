/* draft.c - decoding with drafts, as the public interface has it. */
#include "api/api.h"

#include <string.h>

/* Drafts of a step where the caller names no number. */
enum { DRAFTS_DEFAULT = 3 };

/* Tokens must mean the same to both models, or nothing that one guesses helps the other. */
static bool same_vocabulary(const slm_model *model, const slm_model *drafter, slm_error *err)
{
    const struct vocab *a = model->vocab, *b = drafter->vocab;

    if (vocab_size(a) != vocab_size(b)) {
        return slm_fail(err, SLM_E_ARG, "the model that drafts has %d tokens and the model %d; "
                        "both need the same vocabulary", vocab_size(b), vocab_size(a));
    }
    for (int32_t id = 0; id < vocab_size(a); id++) {
        size_t n, m;
        const char *x = vocab_piece(a, id, true, &n), *y = vocab_piece(b, id, true, &m);
        if (n != m || memcmp(x, y, n) != 0 || vocab_is_end(a, id) != vocab_is_end(b, id)) {
            return slm_fail(err, SLM_E_ARG, "token %d is \"%.*s\" in the model and \"%.*s\" in the "
                            "model that drafts; both need the same vocabulary", (int)id,
                            (int)(n < 40 ? n : 40), x, (int)(m < 40 ? m : 40), y);
        }
    }
    return true;
}

bool api_computes(const slm_model *model, slm_error *err)
{
    if (model_shape(model->model)->only_drafts) {
        return slm_fail(err, SLM_E_ARG, "the file holds only the block that drafts tokens for "
                        "another file (slm run: --mtp-model)");
    }
    return true;
}

static bool check_block(const slm_model *model, const slm_model *drafter, slm_error *err)
{
    const struct model_shape *a = model_shape(model->model), *b = model_shape(drafter->model);

    if (!b->can_draft) {
        return slm_fail(err, SLM_E_UNSUPPORTED, "the %s has no block that drafts tokens%s",
                        drafter == model ? "model" : "file for drafts",
                        drafter == model ? "; it may be in a file of its own" : "");
    }
    if (strcmp(a->arch, b->arch) != 0 || a->n_embd != b->n_embd) {
        return slm_fail(err, SLM_E_ARG, "the block that drafts is for %s with rows of %d, the "
                        "model is %s with rows of %d", b->arch, b->n_embd, a->arch, a->n_embd);
    }
    return true;
}

bool api_drafting(const slm_model *model, const slm_drafting *d, const char *call,
                  struct spec_params *out, slm_error *err)
{
    static const enum draft_kind kinds[] = {
        [SLM_DRAFT_OFF] = DRAFT_OFF,
        [SLM_DRAFT_NGRAM] = DRAFT_NGRAM,
        [SLM_DRAFT_MTP] = DRAFT_MTP,
        [SLM_DRAFT_MODEL] = DRAFT_MODEL,
    };

    *out = (struct spec_params){ .kind = DRAFT_OFF };
    if (!d || d->kind == SLM_DRAFT_OFF) {
        return true;
    }
    if (!api_arg((unsigned)d->kind <= SLM_DRAFT_MODEL, call, "draft.kind is none of its constants",
                 err) ||
        !api_arg(d->max >= 0 && d->max <= SPEC_MAX, call, "draft.max must be from 0 to 16", err)) {
        return false;
    }
    out->kind = kinds[d->kind];
    out->max = d->max > 0 ? d->max : DRAFTS_DEFAULT;
    if (d->kind == SLM_DRAFT_NGRAM) {
        return api_arg(d->model == NULL, call, "draft.model has no use with SLM_DRAFT_NGRAM", err);
    }
    const slm_model *drafter = d->kind == SLM_DRAFT_MTP && !d->model ? model : d->model;
    if (!api_arg(drafter != NULL, call, "draft.model is NULL", err) ||
        !api_arg(drafter->model != NULL, call, "draft.model was opened without its weights", err)) {
        return false;
    }
    out->model = drafter->model;
    out->step_lock = &drafter->engine->step_lock;
    if (d->kind == SLM_DRAFT_MTP && !check_block(model, drafter, err)) {
        return false;
    }
    return drafter == model || same_vocabulary(model, drafter, err);
}

static bool draw(void *arg, const float *logits, const int32_t *hist, size_t n_hist, int32_t *id,
                 slm_error *err)
{
    slm_sampler *sampler = arg;

    return sampler_draw(sampler->sampler, logits, hist, n_hist, id, err);
}

static bool is_end(const void *arg, int32_t id)
{
    return vocab_is_end(arg, id);
}

bool slm_decode(slm_session *session, slm_sampler *sampler, int32_t *ids, size_t cap, size_t *n,
                slm_error *err)
{
    const char *call = "slm_decode";

    if (!api_arg(session != NULL, call, "session is NULL", err) ||
        !api_arg(sampler != NULL, call, "sampler is NULL", err) ||
        !api_arg(ids != NULL, call, "ids is NULL", err) ||
        !api_arg(n != NULL, call, "n is NULL", err) ||
        !api_arg(cap > 0, call, "cap is 0", err) ||
        !api_arg(session_logits(session->session) != NULL, call,
                 "the session has no logits; feed a token", err) ||
        !api_arg(model_shape(session->model->model)->n_vocab == sampler->n_vocab, call,
                 "sampler and session are of different models", err)) {
        return false;
    }
    const struct spec_chooser chooser = { draw, sampler, is_end, session->model->vocab };
    const uint64_t fp = fpenv_enter();
    const bool ok = spec_decode(session->spec, &chooser, ids, cap, n, err);
    fpenv_leave(fp);
    return ok;
}

void slm_session_draft_stats(const slm_session *session, slm_draft_stats *out)
{
    if (!out) {
        return;
    }
    *out = (slm_draft_stats){0};
    if (session) {
        const struct spec_stats *s = spec_stats(session->spec);
        *out = (slm_draft_stats){ .steps = s->steps, .drafted = s->drafted,
                                  .accepted = s->accepted, .tokens = s->tokens,
                                  .paused = s->paused };
    }
}

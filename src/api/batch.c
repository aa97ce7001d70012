/* batch.c - many sequences at once, as the public interface has it. */
#include "api/api.h"
#include "base/cpu.h"
#include "run/batch.h"

struct slm_batch {
    slm_model *model;
    struct batch *batch;
};

/* Requests computed at once and waiting where the caller says nothing. */
enum { PARALLEL_DEFAULT = 8, QUEUE_DEFAULT = 64 };

/* Limits against typing errors: each request that runs has rows of logits and of pages. */
enum { PARALLEL_MAX = 1024, QUEUE_MAX = 1 << 20 };

static bool is_end(const void *arg, int32_t id)
{
    return slm_is_end(arg, id);
}

static bool batch_arguments(const slm_model *model, const slm_batch_params *p,
                            struct batch_params *out, slm_error *err)
{
    const char *call = "slm_batch_new";

    if (!api_arg(model != NULL, call, "model is NULL", err) ||
        !api_arg(model->model != NULL, call, "the model was opened without its weights", err) ||
        !api_computes(model, err) ||
        !api_arg(p->context >= 0, call, "context is negative", err) ||
        !api_arg(p->parallel >= 0 && p->parallel <= PARALLEL_MAX, call,
                 "parallel must be from 0 to 1024", err) ||
        !api_arg(p->queue >= 0 && p->queue <= QUEUE_MAX, call, "queue must be from 0 to 1048576",
                 err) ||
        !api_arg(p->chunk >= 0, call, "chunk is negative", err) ||
        !api_arg((unsigned)p->kv <= SLM_KV_Q8_0, call, "kv is none of its constants", err)) {
        return false;
    }
    if (p->draft.kind == SLM_DRAFT_MODEL) {
        return slm_fail(err, SLM_E_UNSUPPORTED, "slm_batch_new: draft.kind SLM_DRAFT_MODEL is not "
                        "supported in batches; use SLM_DRAFT_NGRAM or SLM_DRAFT_MTP");
    }
    *out = (struct batch_params){
        .context = p->context > 0 ? p->context : api_default_context(model),
        .parallel = p->parallel > 0 ? p->parallel : PARALLEL_DEFAULT,
        .queue = p->queue > 0 ? p->queue : QUEUE_DEFAULT,
        .chunk = p->chunk,
        .kv = api_kv_type(p->kv),
        .cache_bytes = p->cache_bytes,
        .pool = model->engine->pool,
        .kern = model->engine->kern,
        .is_end = is_end,
        .is_end_arg = model,
        .step_lock = &model->engine->step_lock,
    };
    return api_drafting(model, &p->draft, call, &out->draft, err);
}

/* Chooses the bound where the caller says nothing, and refuses before anything is allocated what
 * does not fit: the kernel would promise the memory and end the process later. */
static bool check_memory(const slm_model *m, struct batch_params *p, slm_error *err)
{
    const uint64_t free_bytes = api_memory_free(m);
    struct batch_cost cost = batch_cost(m->model, p);
    const double mib = 1.0 / (1 << 20);

    if (p->cache_bytes == 0) {
        const uint64_t most = cost.cache_most < free_bytes / 4 ? cost.cache_most : free_bytes / 4;
        p->cache_bytes = most > cost.cache_least ? most : cost.cache_least;
    }
    if (p->cache_bytes < cost.cache_least) {
        return slm_fail(err, SLM_E_ARG,
                        "slm_batch_new: cache_bytes is %.1f MiB, but %d requests with a context of "
                        "%d tokens need at least %.1f MiB", (double)p->cache_bytes * mib,
                        p->parallel, p->context, (double)cost.cache_least * mib);
    }
    cost = batch_cost(m->model, p);
    if (p->cache_bytes <= free_bytes && cost.work_bytes <= free_bytes - p->cache_bytes) {
        return true;
    }
    return slm_fail(err, SLM_E_NOMEM,
                    "%d requests with a context of %d tokens need %.1f MiB for keys, values and "
                    "states and %.1f MiB to work, but %.1f MiB are free: use fewer requests or a "
                    "smaller context", p->parallel, p->context, (double)p->cache_bytes * mib,
                    (double)cost.work_bytes * mib, (double)free_bytes * mib);
}

slm_batch *slm_batch_new(slm_model *model, const slm_batch_params *params, slm_error *err)
{
    static const slm_batch_params defaults;
    struct batch_params p;

    if (!batch_arguments(model, params ? params : &defaults, &p, err) ||
        !check_memory(model, &p, err)) {
        return NULL;
    }
    slm_batch *batch = mem_zalloc(1, sizeof *batch);
    if (!batch) {
        slm_fail_nomem(err, "a batch");
        return NULL;
    }
    const uint64_t fp = fpenv_enter();
    batch->model = model;
    batch->batch = batch_new(model->model, &p, err);
    fpenv_leave(fp);
    if (!batch->batch) {
        mem_free(batch);
        return NULL;
    }
    return batch;
}

void slm_batch_free(slm_batch *batch)
{
    if (batch) {
        batch_free(batch->batch);
        mem_free(batch);
    }
}

bool slm_batch_submit(slm_batch *batch, const slm_request *request, uint64_t *id, slm_error *err)
{
    const char *call = "slm_batch_submit";

    if (!api_arg(batch != NULL, call, "batch is NULL", err) ||
        !api_arg(request != NULL, call, "request is NULL", err) ||
        !api_arg(request->ids != NULL || request->n_ids == 0, call, "ids is NULL", err) ||
        !api_arg(request->on_event != NULL, call, "on_event is NULL", err)) {
        return false;
    }
    struct batch_request q = {
        .ids = request->ids,
        .n_ids = request->n_ids,
        .sampling = api_sample_params(&request->sampling),
        .max_tokens = request->max_tokens,
        .n_top = request->n_top,
        .ignore_end = request->ignore_end,
        .on_event = request->on_event,
        .arg = request->arg,
    };
    const uint64_t fp = fpenv_enter();
    const bool ok = (!request->guide || api_constraint(batch->model, request->guide, request->n_ids,
                                                       &q.guide, err)) &&
                    batch_submit(batch->batch, &q, id, err);
    fpenv_leave(fp);
    return ok;
}

void slm_batch_cancel(slm_batch *batch, uint64_t id)
{
    if (batch) {
        const uint64_t fp = fpenv_enter();
        batch_cancel(batch->batch, id);
        fpenv_leave(fp);
    }
}

bool slm_batch_step(slm_batch *batch, bool *more, slm_error *err)
{
    if (!api_arg(batch != NULL, "slm_batch_step", "batch is NULL", err) ||
        !api_arg(more != NULL, "slm_batch_step", "more is NULL", err)) {
        return false;
    }
    const uint64_t fp = fpenv_enter();
    const bool ok = batch_step(batch->batch, more, err);
    fpenv_leave(fp);
    return ok;
}

void slm_batch_stats_get(const slm_batch *batch, slm_batch_stats *out)
{
    if (!out) {
        return;
    }
    *out = (slm_batch_stats){0};
    if (batch) {
        batch_stats(batch->batch, out);
    }
}

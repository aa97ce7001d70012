/* memory.c - what models and sessions take of the memory, and what fits. */
#include "api/api.h"

#include "base/cpu.h"

/* Left for everything that is neither weights nor session: the program, the vocabulary's tables,
 * texts, and what the kernel takes for page tables. */
static const uint64_t OTHER_BYTES = (uint64_t)64 << 20;

/* Weights are not streamed through less than this. */
static const uint64_t ROOM_MIN = (uint64_t)32 << 20;

static uint64_t add_sat(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t sub_sat(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static double gib(uint64_t bytes)
{
    return (double)bytes / (1 << 30);
}

uint64_t api_memory_free(const slm_model *model)
{
    const uint64_t free_bytes = cpu_ram_free_bytes();
    const uint64_t left = sub_sat(model->memory_bytes, cpu_rss_own_bytes());

    return model->memory_bytes > 0 && left < free_bytes ? left : free_bytes;
}

/* What a session needs, its drafts as work. */
static struct session_cost cost_of(const struct model *m, const struct session_params *p,
                                   const struct spec_params *draft)
{
    struct session_cost cost = session_cost(m, p);

    cost.work_bytes = add_sat(cost.work_bytes, spec_bytes(draft, p));
    return cost;
}

static uint64_t cost_sum(const struct model *m, const struct session_params *p,
                         const struct spec_params *draft)
{
    const struct session_cost cost = cost_of(m, p, draft);

    return add_sat(cost.kv_bytes, cost.work_bytes);
}

/* Memory for the weights beside a session that takes `session_bytes`. */
static uint64_t room_beside(const slm_model *m, uint64_t session_bytes)
{
    const uint64_t room = sub_sat(api_memory_free(m), add_sat(session_bytes, OTHER_BYTES));

    return room > ROOM_MIN ? room : ROOM_MIN;
}

/* A limit that the caller has set must be kept; where memory is short without one, making the
 * session will say so. */
static bool check_limit(const slm_model *m, uint64_t session_bytes, slm_error *err)
{
    const uint64_t least = add_sat(add_sat(session_bytes, OTHER_BYTES + ROOM_MIN),
                                   cpu_rss_own_bytes());

    if (m->memory_bytes == 0 || m->memory_bytes >= least) {
        return true;
    }
    return slm_fail(err, SLM_E_NOMEM,
                    "a memory limit of %.2f GiB is too small: keys, values and work take %.2f GiB, "
                    "so %.2f GiB are the least; or use a smaller context",
                    gib(m->memory_bytes), gib(session_bytes), gib(least) + 0.005);
}

/* What the session that room is left for takes, with the model that drafts for it. */
static bool planned_session(const slm_model *m, const slm_session_params *given, bool *drafts,
                            uint64_t *bytes, slm_error *err)
{
    const char *call = "slm_model_open";
    struct session_params p;
    struct spec_params draft;

    if (!api_session_params(m, given, call, &p, err) ||
        !api_drafting(m, given ? &given->draft : NULL, call, &draft, err)) {
        return false;
    }
    spec_session_params(&draft, &p);
    *bytes = cost_sum(m->model, &p, &draft);
    *drafts = draft.kind == DRAFT_MTP && draft.model == m->model;
    if (draft.model && draft.model != m->model) {
        *bytes = add_sat(*bytes, model_shape(draft.model)->weight_bytes);
    }
    return true;
}

bool api_place(slm_model *m, const slm_model_params *p, slm_error *err)
{
    static const enum model_pack packs[] = {
        [SLM_PACK_AUTO] = MODEL_PACK_AUTO,
        [SLM_PACK_OFF] = MODEL_PACK_OFF,
        [SLM_PACK_WAIT] = MODEL_PACK_WAIT,
    };
    struct model_place place = { .pack = packs[p->pack] };
    uint64_t bytes;

    if (!p->no_stream && !model_shape(m->model)->only_drafts) {
        if (!planned_session(m, p->session, &place.drafts, &bytes, err) ||
            !check_limit(m, bytes, err)) {
            return false;
        }
        place.room_bytes = room_beside(m, bytes);
    }
    return model_place(m->model, &place, err);
}

bool slm_model_forecast(const slm_model *model, int context, slm_kv_type kv, slm_forecast *out,
                        slm_error *err)
{
    const slm_session_params given = { .context = context, .kv = kv };
    const struct spec_params draft = { .kind = DRAFT_OFF };
    struct session_params p;

    if (!api_arg(out != NULL, "slm_model_forecast", "out is NULL", err) ||
        !api_session_params(model, &given, "slm_model_forecast", &p, err)) {
        return false;
    }
    const struct session_cost cost = cost_of(model->model, &p, &draft);
    struct model_where where = model_placed(model->model);

    if (where.pinned_bytes == 0 && where.streamed_bytes == 0) {
        const struct model_place place = {
            .room_bytes = room_beside(model, cost_sum(model->model, &p, &draft)),
        };
        if (!model_where(model->model, &place, &where, err)) {
            return false;
        }
    }
    out->weights_bytes = model_shape(model->model)->weight_bytes;
    out->kv_bytes = cost.kv_bytes;
    out->work_bytes = add_sat(cost.work_bytes, where.window_bytes);
    out->pinned_bytes = where.pinned_bytes;
    out->streamed_bytes = where.streamed_bytes;
    out->total_bytes = add_sat(add_sat(where.pinned_bytes ? where.pinned_bytes
                                                          : out->weights_bytes,
                                       out->kv_bytes), out->work_bytes);
    /* What this process has taken already is weights for the most part, which the total counts. */
    out->free_bytes = add_sat(api_memory_free(model), cpu_rss_own_bytes());
    return true;
}

/* The longest context that fits `free_bytes`, a multiple of KV_PAGE; 0 for none. */
static int context_that_fits(const struct model *m, struct session_params p,
                             const struct spec_params *draft, uint64_t free_bytes)
{
    int lo = 0, hi = p.context / KV_PAGE;

    while (lo < hi) {
        const int mid = lo + (hi - lo + 1) / 2;
        p.context = mid * KV_PAGE;
        if (cost_sum(m, &p, draft) <= free_bytes) {
            lo = mid;
        } else {
            hi = mid - 1;
        }
    }
    return lo * KV_PAGE;
}

/* Mapped weights do not count, the kernel can read them from the file again. */
bool api_session_fits(const slm_model *model, const struct session_params *p,
                      const struct spec_params *draft, slm_error *err)
{
    const uint64_t free_bytes = api_memory_free(model);
    const struct session_cost cost = cost_of(model->model, p, draft);

    if (add_sat(cost.kv_bytes, cost.work_bytes) <= free_bytes) {
        return true;
    }
    return slm_fail(err, SLM_E_NOMEM,
                    "a context of %d tokens needs %.1f GiB for keys and values and %.1f GiB to "
                    "work, but %.1f GiB are free: use at most %d tokens",
                    p->context, gib(cost.kv_bytes), gib(cost.work_bytes), gib(free_bytes),
                    context_that_fits(model->model, *p, draft, free_bytes));
}

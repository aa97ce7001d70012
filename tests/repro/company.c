/* company.c - runs a request in a batch and hashes what it is told. */
#include "company.h"

#include "base/hash.h"
#include "base/rng.h"

enum { PROMPT_MAX = 160, NEIGHBOURS_MAX = 3, N_TOP = 5 };

const struct company companies[] = {
    { "alone", 0, false, DRAFT_OFF },
    { "with 3 neighbours", 3, false, DRAFT_OFF },
    { "with a prefix hit", 0, true, DRAFT_OFF },
    { "with 3 neighbours and a prefix hit", 3, true, DRAFT_OFF },
    { "with n-gram drafts and a neighbour", 1, false, DRAFT_NGRAM },
    { NULL, 0, false, DRAFT_OFF },
};

struct listener {
    uint64_t hash;
    size_t n_cached;
    bool ended;
    slm_error error;
};

static bool on_event(void *arg, const slm_event *e)
{
    struct listener *l = arg;

    l->n_cached = e->n_cached;
    l->ended = e->finish == SLM_FINISH_LENGTH;
    if (e->error) {
        l->error = *e->error;
    }
    if (e->finish == SLM_FINISH_NONE) {
        l->hash = hash_bytes(l->hash, &e->id, sizeof e->id);
        l->hash = hash_bytes(l->hash, &e->chosen.logprob, sizeof e->chosen.logprob);
        l->hash = hash_bytes(l->hash, e->top, (size_t)e->n_top * sizeof *e->top);
    }
    return true;
}

static bool no_end(const void *arg, int32_t id)
{
    (void)arg;
    (void)id;
    return false;
}

static bool submit(struct batch *b, uint64_t seed, int n_vocab, int n_prompt, int n_out,
                   struct listener *l, slm_error *err)
{
    struct rng rng = { seed };
    int32_t ids[PROMPT_MAX];
    const struct batch_request q = {
        .ids = ids, .n_ids = (size_t)n_prompt, .max_tokens = n_out, .n_top = N_TOP,
        .sampling = { .temperature = 0.5f, .top_p = 1, .typical_p = 1, .dry_base = 1,
                      .dry_allowed = 1, .repeat_penalty = 1, .seed = seed },
        .on_event = on_event, .arg = l,
    };

    *l = (struct listener){ .hash = HASH_INIT };
    for (int i = 0; i < n_prompt; i++) {
        ids[i] = (int32_t)(rng_next(&rng) % (uint64_t)n_vocab);
    }
    return batch_submit(b, &q, NULL, err);
}

static bool drain(struct batch *b, slm_error *err)
{
    bool more = true, ok = true;

    while (ok && more) {
        ok = batch_step(b, &more, err);
    }
    return ok;
}

uint64_t company_hash(struct model *m, struct pool *pool, const struct kern *k,
                      const struct company *c, int n_prompt, int n_out, slm_error *err)
{
    const int n_vocab = model_shape(m)->n_vocab;
    struct listener own = { 0 }, others[NEIGHBOURS_MAX];
    struct batch_params p = {
        .context = PROMPT_MAX + n_out, .parallel = 1 + NEIGHBOURS_MAX, .chunk = 37, .kv = KV_F16,
        .draft = { .kind = c->draft, .max = 3, .steady = true }, .pool = pool, .kern = k,
        .is_end = no_end,
    };

    p.cache_bytes = batch_cost(m, &p).cache_most;
    struct batch *b = batch_new(m, &p, err);
    bool ok = b && (!c->again || (submit(b, 1, n_vocab, n_prompt, 1, &own, err) && drain(b, err)));
    ok = ok && submit(b, 1, n_vocab, n_prompt, n_out, &own, err);
    for (int i = 0; i < c->neighbours; i++) {
        const int n = 1 + n_prompt * (i + 1) / (NEIGHBOURS_MAX + 1);
        ok = ok && submit(b, 2 + (uint64_t)i, n_vocab, n, n_out, &others[i], err);
    }
    ok = ok && drain(b, err);
    batch_free(b);
    if (ok && !own.ended) {
        *err = own.error;
    } else if (ok && c->again != (own.n_cached > 0)) {
        slm_fail(err, SLM_E_INTERNAL, "%zu tokens were cached", own.n_cached);
    } else if (ok) {
        return own.hash;
    }
    return 0;
}

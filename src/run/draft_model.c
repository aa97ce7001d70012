/* draft_model.c - drafts by a smaller model, its most likely tokens.
 *
 * It has a session of its own, which is brought to the text before every draft: what the drafts
 * before it and the text have in common stays. */
#include "run/spec.h"

#include "base/mem.h"

struct smaller {
    struct session *session;
    int n_vocab;
    bool recurrent;
};

/* So many tokens behind, it catches up before time is taken. */
enum { BEHIND_MAX = 2 * SPEC_MAX };

static struct session_params params_of(const struct draft_setup *setup)
{
    return (struct session_params){ .context = setup->context, .kv = setup->kv,
                                    .step_lock = setup->step_lock };
}

static size_t model_bytes(const struct draft_setup *setup)
{
    const struct session_params p = params_of(setup);
    const struct session_cost cost = session_cost(setup->model, &p);

    return cost.work_bytes > SIZE_MAX - cost.kv_bytes ? SIZE_MAX : cost.kv_bytes + cost.work_bytes;
}

static void *model_make(const struct draft_setup *setup, slm_error *err)
{
    const struct session_params p = params_of(setup);
    struct smaller *d = mem_zalloc(1, sizeof *d);

    if (!d) {
        slm_fail_nomem(err, "the drafts' session");
        return NULL;
    }
    d->n_vocab = model_shape(setup->model)->n_vocab;
    d->recurrent = model_shape(setup->model)->n_state > 0;
    d->session = session_new(setup->model, &p, err);
    if (!d->session) {
        mem_free(d);
        return NULL;
    }
    return d;
}

static void model_drop(void *drafter)
{
    struct smaller *d = drafter;

    session_free(d->session);
    mem_free(d);
}

static void model_prepare(void *drafter, const int32_t *tok, int n)
{
    struct smaller *d = drafter;

    if (n - session_len(d->session) > BEHIND_MAX) {
        session_sync(d->session, tok, (size_t)n - 1, NULL, NULL);  /* a failure shows in propose */
    }
}

static int model_propose(void *drafter, const int32_t *tok, int n, int max, int32_t *out)
{
    struct smaller *d = drafter;
    int i = 0;

    if (!session_sync(d->session, tok, (size_t)n, NULL, NULL)) {
        return 0;
    }
    if (d->recurrent) {
        session_mark(d->session);  /* the next text has this one in common */
    }
    while (i < max) {
        out[i] = draft_argmax(session_logits(d->session), d->n_vocab);
        if (++i < max && !session_feed(d->session, &out[i - 1], 1, NULL)) {
            break;
        }
    }
    return i;
}

const struct draft_source draft_model = {
    .name = "model",
    .bytes = model_bytes,
    .make = model_make,
    .drop = model_drop,
    .prepare = model_prepare,
    .propose = model_propose,
};

/* spec.c - drafting, verifying and keeping account of what it brings. */
#include "run/spec.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/time.h"

static const struct draft_source *const sources[DRAFT_KINDS] = {
    [DRAFT_NGRAM] = &draft_ngram,
    [DRAFT_MTP] = &draft_mtp,
    [DRAFT_MODEL] = &draft_model,
};

const struct draft_source *spec_source(enum draft_kind kind)
{
    return sources[kind];
}

struct spec {
    struct session *session;
    const struct draft_source *source;  /* NULL: no drafts */
    void *drafter;
    bool steady;
    int n_vocab;      /* of the session's model */
    int max;
    struct pace pace;
    struct spec_stats stats;
};

/* ---- making ---------------------------------------------------------------------------- */

void spec_session_params(const struct spec_params *p, struct session_params *session)
{
    const struct draft_source *source = sources[p->kind];

    assert(!source || (p->max >= 1 && p->max <= SPEC_MAX));
    session->trial = source ? p->max + 1 : 0;
    session->rows = source && source->rows;
}

static struct draft_setup setup_of(const struct spec_params *p,
                                   const struct session_params *session)
{
    return (struct draft_setup){ .model = p->model, .step_lock = p->step_lock, .max = p->max,
                                 .context = session->context, .kv = session->kv };
}

size_t spec_bytes(const struct spec_params *p, const struct session_params *session)
{
    const struct draft_setup setup = setup_of(p, session);

    return sources[p->kind] ? sources[p->kind]->bytes(&setup) : 0;
}

struct spec *spec_new(struct session *s, const struct spec_params *p,
                      const struct session_params *session, slm_error *err)
{
    const struct draft_setup setup = setup_of(p, session);
    struct spec *sp = mem_zalloc(1, sizeof *sp);

    if (!sp) {
        slm_fail_nomem(err, "drafts");
        return NULL;
    }
    sp->session = s;
    sp->source = sources[p->kind];
    sp->steady = p->steady;
    sp->n_vocab = session_n_vocab(s);
    if (sp->source) {
        sp->max = p->max;
        pace_init(&sp->pace, sp->max);
        sp->drafter = sp->source->make(&setup, err);
        if (!sp->drafter) {
            mem_free(sp);
            return NULL;
        }
        session_follow(s, sp->source->follow, sp->drafter);
    }
    return sp;
}

void spec_free(struct spec *sp)
{
    if (!sp) {
        return;
    }
    if (sp->source) {
        session_follow(sp->session, NULL, NULL);
        sp->source->drop(sp->drafter);
    }
    mem_free(sp);
}

const struct spec_stats *spec_stats(const struct spec *sp)
{
    return &sp->stats;
}

int32_t draft_argmax(const float *logits, int n_vocab)
{
    int best = 0;

    for (int i = 1; i < n_vocab; i++) {
        if (logits[i] > logits[best]) {
            best = i;
        }
    }
    return best;
}

/* ---- decoding ---------------------------------------------------------------------------- */

/* Drafts behind the session's tokens and row[0], to row[1] and on; at most `room`.  What can not
 * be kept anyway is cut off. */
static int make_drafts(struct spec *sp, const struct spec_chooser *c, int32_t *row, int room)
{
    int want = room < sp->max ? room : sp->max, n = 0;

    if (!sp->steady) {
        const int n_pace = pace_choose(&sp->pace);
        sp->stats.paused += sp->pace.losing;
        want = want < n_pace ? want : n_pace;
    }
    if (want > 0) {
        n = sp->source->propose(sp->drafter, session_tokens(sp->session),
                                session_len(sp->session) + 1, want, row + 1);
    }
    assert(n >= 0 && n <= want);
    for (int i = 1; i <= n; i++) {
        if (row[i] < 0 || row[i] >= sp->n_vocab || c->is_end(c->is_end_arg, row[i])) {
            return i - 1;
        }
    }
    return n;
}

/* How many of the drafts row[1..n_draft] equal what is drawn at their places.  A draw that fails
 * ends them: the next token's draw will fail again and tell. */
static int count_right(const struct spec *sp, const struct spec_chooser *c, const float *logits,
                       const int32_t *row, int n_draft)
{
    const int32_t *tok = session_tokens(sp->session);
    const size_t len = (size_t)session_len(sp->session);
    int n = 0;

    while (n < n_draft) {
        const float *here = logits + (size_t)n * (size_t)sp->n_vocab;
        int32_t id;
        if (!c->draw(c->arg, here, tok, len + (size_t)n + 1, &id, NULL) || id != row[n + 1]) {
            break;
        }
        n++;
    }
    return n;
}

/* Appends row[0] and what is right of n_draft drafts behind it; how many drafts were right, or -1.
 * Drafts that the model cannot compute are left alone. */
static int append(struct spec *sp, const struct spec_chooser *c, const int32_t *row, int n_draft,
                  slm_error *err)
{
    const float *logits = n_draft > 0 ? session_try(sp->session, row, n_draft + 1, NULL) : NULL;

    if (!logits) {
        return session_feed(sp->session, row, 1, err) ? 0 : -1;
    }
    const int n_right = count_right(sp, c, logits, row, n_draft);
    session_keep(sp->session, n_right + 1);
    return n_right;
}

bool spec_decode(struct spec *sp, const struct spec_chooser *c, int32_t *ids, size_t cap, size_t *n,
                 slm_error *err)
{
    struct session *s = sp->session;
    const int len = session_len(s), room = session_context(s) - len - 1;
    int32_t row[SPEC_MAX + 1];
    int n_draft = 0;

    assert(cap >= 1);
    *n = 0;
    if (!c->draw(c->arg, session_logits(s), session_tokens(s), (size_t)len, row, err)) {
        return false;
    }
    if (c->is_end(c->is_end_arg, row[0])) {
        ids[0] = row[0];
        *n = 1;
        sp->stats.tokens++;
        return true;
    }
    double begin = 0;
    if (sp->source && room > 0) {
        session_show_next(s, row[0]);
        if (sp->source->prepare) {
            sp->source->prepare(sp->drafter, session_tokens(s), len + 1);
        }
        begin = time_now();
        n_draft = make_drafts(sp, c, row, cap - 1 < (size_t)room ? (int)cap - 1 : room);
    }
    const int n_right = append(sp, c, row, n_draft, err);
    if (n_right < 0) {
        return false;
    }
    if (begin != 0) {
        pace_learn(&sp->pace, n_draft, n_right, time_now() - begin);
    }
    *n = (size_t)n_right + 1;
    memcpy(ids, row, *n * sizeof *ids);
    sp->stats.steps++;
    sp->stats.drafted += (uint64_t)n_draft;
    sp->stats.accepted += (uint64_t)n_right;
    sp->stats.tokens += *n;
    return true;
}

/* batch.c - admitting requests, planning steps and telling what came out.
 *
 * A request is a list of tokens of which the first n_done are computed.  What is missing is
 * computed in pieces: one token for an answer that goes on, more for a prompt.  When nothing is
 * missing the next token is drawn from the logits after the last one.  So a step does not need to
 * know whether it computes a prompt, an answer, or both again.
 *
 * Requests end in one place, sweep(), between steps: whatever ends one only marks it, since the
 * functions that requests are told by may submit and cancel others. */
#include "run/batch.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/time.h"
#include "run/drafts.h"
#include "run/draw.h"
#include "run/seats.h"

/* Prompt tokens per step while answers go on, unless told otherwise: enough rows that a product
 * is bound by arithmetic, few enough that the answers do not stand still. */
enum { CHUNK_BUSY = 64 };

/* And while none goes on; less where the scratch memory would be more than so much. */
enum { CHUNK_MAX = 512, CHUNK_MIN = 64 };

/* A step with prompts shall take no longer than this, so that new requests and cancellations are
 * noticed soon also with models that need long for a row; but it takes at least so many rows. */
static const double STEP_S = 0.25;
enum { CHUNK_LEAST = 16 };

/* More than anybody can want; a limit against typing errors. */
enum { CHUNK_LIMIT = 1 << 16 };
static const size_t WORK_BYTES_MAX = (size_t)48 << 20;

/* Texts often part from a prompt kept earlier within its last tokens, which open the answer. */
enum { PROMPT_TAIL = 16 };

/* Copies of states are not made closer together than this. */
enum { STOP_DISTANCE = 2 * KV_PAGE };

/* Positions where a prompt's states are kept: where others parted from it, and near its end. */
enum { STOP_PARTED, STOP_PROMPT, STOPS };

struct request {
    uint64_t id;
    struct batch_request given;
    struct slm_bias *bias;   /* what given.sampling.logit_bias points to */
    int32_t *tok;            /* [tok_max]: the prompt, then the answer */
    int n_prompt, n_tok, tok_max;
    int n_done;              /* tokens computed */
    int n_cached;            /* tokens of the prompt that were there when it was first admitted */
    struct seat *seat;       /* while running */
    int stops[STOPS];        /* where a piece must end, since what is computed then is kept */
    int n_step;              /* tokens in the step at hand */
    int n_draft;             /* of them drafts, which lie behind the others in tok */
    struct sampler *sampler; /* from the first admission on */
    double submitted_s, queued_s, first_s;
    slm_finish finish;       /* once it is to end */
    slm_error error;         /* why, with SLM_FINISH_ERROR */
    int32_t end_id;          /* the token that ended the answer, or -1 */
    slm_logprob end_logprob;
};

/* Consecutive tokens of a request in the step at hand. */
struct piece {
    struct request *r;
    int row0, n_tok;
    struct draws *draws;     /* where its tokens are all that are missing; or NULL */
};

struct batch {
    struct model *model;
    struct batch_params p;
    int n_vocab;
    int chunk_max;           /* prompt tokens per step */
    int request_max;         /* parallel + queue */
    uint64_t last_id;
    unsigned turn;           /* which prompt comes first in the next step */

    struct drafts *drafts;   /* NULL: none */
    struct seats *seats;
    bool no_room;            /* the next one waits for pages; until a seat is left */
    struct request **waiting;/* [request_max], the next one first */
    struct request **running;/* [parallel], the oldest first */
    int n_waiting, n_running;
    bool telling;            /* an event is being told */

    /* The step at hand. */
    struct work *work;
    int n_rows, n_want, n_pieces, n_draws;
    int n_answers;           /* where it computes nothing else, and drafts may be made; else 0 */
    double begin_s;
    double row_s;            /* what a row has taken; 0: not known */
    int32_t *tok;            /* [rows_max] */
    bool *want;              /* [rows_max] */
    struct piece *pieces;    /* [parallel] */
    struct step_seq *seqs;   /* [parallel] */
    struct draws *draws;     /* [parallel] */
    struct request **drawers;/* [parallel]: whose they are */
    struct drawn *drawn;     /* [want_max] */
    bool *broken;            /* [want_max] */
    float *logits;           /* [want_max][n_vocab] */

    slm_batch_stats stats;
};

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

/* ---- making one ---------------------------------------------------------------------- */

/* Rows of answers, drafts counted. */
static int want_max(const struct batch_params *p)
{
    const int drafting = p->draft.kind != DRAFT_OFF ? min_int(p->parallel, DRAFTS_TOGETHER) : 0;

    return p->parallel + drafting * p->draft.max;
}

static int rows_max(const struct batch_params *p, int chunk_max)
{
    return chunk_max + want_max(p);
}

static int choose_chunk_max(const struct model *m, const struct batch_params *p)
{
    int chunk = p->chunk > 0 ? min_int(p->chunk, CHUNK_LIMIT) : CHUNK_MAX;

    while (p->chunk <= 0 && chunk > CHUNK_MIN &&
           work_bytes(m, rows_max(p, chunk), want_max(p), p->context) > WORK_BYTES_MAX) {
        chunk /= 2;
    }
    return chunk;
}

static struct seats_params seats_params(const struct model *m, const struct batch_params *p)
{
    const int chunk = choose_chunk_max(m, p);

    return (struct seats_params){ .n = p->parallel, .context = p->context,
                                  .chunk = chunk > SPEC_MAX ? chunk : SPEC_MAX + 1, .kv = p->kv,
                                  .bytes_max = p->cache_bytes };
}

static struct drafts_params drafts_params(const struct model *m, const struct batch_params *p)
{
    return (struct drafts_params){ .draft = p->draft, .n_seats = p->parallel,
                                   .context = p->context, .kv = p->kv,
                                   .rows_max = rows_max(p, choose_chunk_max(m, p)) };
}

struct batch_cost batch_cost(const struct model *m, const struct batch_params *p)
{
    const struct seats_params sp = seats_params(m, p);
    const struct seats_range range = seats_range(m, &sp);
    struct batch_cost cost = { range.least, range.most, SIZE_MAX };
    const struct drafts_params dp = drafts_params(m, p);
    size_t work = work_bytes(m, dp.rows_max, want_max(p), p->context), logits;

    if (p->cache_bytes < range.least) {
        return cost;
    }
    const size_t tables = seats_table_bytes(m, &sp);
    const size_t drafts = p->draft.kind != DRAFT_OFF ? drafts_bytes(m, &dp) : 0;
    if (size_mul((size_t)want_max(p), (size_t)model_shape(m)->n_vocab * sizeof(float), &logits) &&
        size_add(work, logits, &work) && size_add(work, tables, &work) &&
        size_add(work, drafts, &work)) {
        cost.work_bytes = work;
    }
    return cost;
}

struct batch *batch_new(struct model *m, const struct batch_params *p, slm_error *err)
{
    assert(p->context >= 1 && p->parallel >= 1 && p->queue >= 0 && p->chunk >= 0);
    struct batch *b = mem_zalloc(1, sizeof *b);
    const size_t parallel = (size_t)p->parallel;
    size_t n_logits;

    if (!b) {
        slm_fail_nomem(err, "a batch");
        return NULL;
    }
    b->model = m;
    b->p = *p;
    b->n_vocab = model_shape(m)->n_vocab;
    b->chunk_max = choose_chunk_max(m, p);
    b->p.chunk = min_int(p->chunk > 0 ? p->chunk : CHUNK_BUSY, b->chunk_max);
    b->request_max = p->parallel + p->queue;

    const size_t rows = (size_t)rows_max(p, b->chunk_max), want = (size_t)want_max(p);
    b->waiting = mem_alloc((size_t)b->request_max, sizeof *b->waiting);
    b->running = mem_alloc(parallel, sizeof *b->running);
    b->tok = mem_alloc(rows, sizeof *b->tok);
    b->want = mem_alloc(rows, sizeof *b->want);
    b->pieces = mem_alloc(parallel, sizeof *b->pieces);
    b->seqs = mem_alloc(parallel, sizeof *b->seqs);
    b->draws = mem_alloc(parallel, sizeof *b->draws);
    b->drawers = mem_alloc(parallel, sizeof *b->drawers);
    b->drawn = mem_alloc(want, sizeof *b->drawn);
    b->broken = mem_alloc(want, sizeof *b->broken);
    b->logits = size_mul(want, (size_t)b->n_vocab, &n_logits)
                ? mem_alloc(n_logits, sizeof *b->logits) : NULL;
    if (!b->waiting || !b->running || !b->tok || !b->want || !b->pieces || !b->seqs ||
        !b->draws || !b->drawers || !b->drawn || !b->broken || !b->logits) {
        slm_fail_nomem(err, "a batch");
        goto fail;
    }
    const struct seats_params sp = seats_params(m, p);
    b->seats = seats_new(m, &sp, err);
    if (!b->seats) {
        goto fail;
    }
    b->work = work_new(m, (int)rows, (int)want, p->context, err);
    if (!b->work) {
        goto fail;
    }
    if (p->draft.kind != DRAFT_OFF) {
        const struct drafts_params dp = drafts_params(m, p);
        b->drafts = drafts_new(m, &dp, err);
        if (!b->drafts) {
            goto fail;
        }
    }
    return b;

fail:
    batch_free(b);
    return NULL;
}

static void release_guide(const struct batch_request *q)
{
    if (q->guide.release) {
        q->guide.release(q->guide.arg);
    }
}

static void request_free(struct request *r)
{
    if (r) {
        release_guide(&r->given);
        sampler_free(r->sampler);
        mem_free(r->bias);
        mem_free(r->tok);
        mem_free(r);
    }
}

static void leave_seat(struct batch *b, struct request *r)
{
    if (r->seat) {
        seats_leave(b->seats, r->seat, r->tok, min_int(r->n_done, r->n_tok));
        r->seat = NULL;
        b->no_room = false;
    }
}

void batch_free(struct batch *b)
{
    if (!b) {
        return;
    }
    for (int i = 0; i < b->n_running; i++) {
        leave_seat(b, b->running[i]);
        request_free(b->running[i]);
    }
    for (int i = 0; i < b->n_waiting; i++) {
        request_free(b->waiting[i]);
    }
    drafts_free(b->drafts);
    seats_free(b->seats);
    work_free(b->work);
    mem_free(b->waiting);
    mem_free(b->running);
    mem_free(b->tok);
    mem_free(b->want);
    mem_free(b->pieces);
    mem_free(b->seqs);
    mem_free(b->draws);
    mem_free(b->drawers);
    mem_free(b->drawn);
    mem_free(b->broken);
    mem_free(b->logits);
    mem_free(b);
}

/* ---- submitting ----------------------------------------------------------------------- */

static bool check_request(const struct batch *b, const struct batch_request *q, slm_error *err)
{
    if (q->n_ids == 0) {
        return slm_fail(err, SLM_E_ARG, "ids: the prompt needs at least one token");
    }
    if (q->max_tokens < 0) {
        return slm_fail(err, SLM_E_ARG, "max_tokens must not be negative, it is %d", q->max_tokens);
    }
    if (q->n_top < -1 || q->n_top > DRAW_TOP_MAX) {
        return slm_fail(err, SLM_E_ARG, "n_top must be from -1 to %d, not %d", DRAW_TOP_MAX,
                        q->n_top);
    }
    if (q->n_ids >= (size_t)b->p.context) {
        return slm_fail(err, SLM_E_CONTEXT,
                        "the prompt has %zu tokens, but the context of %d leaves room for %d and "
                        "one of the answer", q->n_ids, b->p.context, b->p.context - 1);
    }
    for (size_t i = 0; i < q->n_ids; i++) {
        if (q->ids[i] < 0 || q->ids[i] >= b->n_vocab) {
            return slm_fail(err, SLM_E_ARG, "token %zu has id %d, ids go from 0 to %d", i,
                            (int)q->ids[i], b->n_vocab - 1);
        }
    }
    if (q->ignore_end && q->guide.allow) {
        return slm_fail(err, SLM_E_ARG, "ignore_end and guide exclude each other: what follows a "
                        "guided answer is its end");
    }
    if (!sample_params_check(&q->sampling, b->n_vocab, err)) {
        return false;
    }
    if (b->n_running + b->n_waiting >= b->request_max) {
        return slm_fail(err, SLM_E_BUSY, "%d requests run and %d wait already; try again later",
                        b->n_running, b->n_waiting);
    }
    return true;
}

static struct request *request_new(const struct batch *b, const struct batch_request *q,
                                   slm_error *err)
{
    const int n_prompt = (int)q->n_ids, room = b->p.context - n_prompt;
    struct request *r = mem_zalloc(1, sizeof *r);

    if (!r) {
        slm_fail_nomem(err, "a request");
        return NULL;
    }
    r->given = *q;
    r->given.ids = NULL;
    r->n_prompt = r->n_tok = n_prompt;
    r->tok_max = n_prompt + (q->max_tokens > 0 ? min_int(q->max_tokens, room) : room);
    r->end_id = -1;
    r->tok = mem_alloc((size_t)r->tok_max, sizeof *r->tok);
    r->bias = mem_alloc(q->sampling.n_logit_bias, sizeof *r->bias);
    if (!r->tok || !r->bias) {
        r->given.guide = (struct constraint){0};  /* the caller releases it */
        request_free(r);
        slm_fail_nomem(err, "a request");
        return NULL;
    }
    memcpy(r->tok, q->ids, q->n_ids * sizeof *r->tok);
    if (q->sampling.n_logit_bias > 0) {
        memcpy(r->bias, q->sampling.logit_bias, q->sampling.n_logit_bias * sizeof *r->bias);
    }
    r->given.sampling.logit_bias = r->bias;
    return r;
}

bool batch_submit(struct batch *b, const struct batch_request *request, uint64_t *id,
                  slm_error *err)
{
    struct request *r = check_request(b, request, err) ? request_new(b, request, err) : NULL;

    if (!r) {
        release_guide(request);
        return false;
    }
    r->id = ++b->last_id;
    r->submitted_s = time_now();
    b->waiting[b->n_waiting++] = r;
    b->stats.requests++;
    if (id) {
        *id = r->id;
    }
    return true;
}

/* ---- ending --------------------------------------------------------------------------- */

/* The first end that is found counts. */
static void end_request(struct request *r, slm_finish finish, const slm_error *error)
{
    if (r->finish == SLM_FINISH_NONE) {
        r->finish = finish;
        if (error) {
            r->error = *error;
        }
    }
}

/* What all events of a request say. */
static slm_event event_of(const struct request *r)
{
    return (slm_event){
        .request = r->id, .id = -1, .n_prompt = (size_t)r->n_prompt,
        .n_cached = (size_t)r->n_cached, .n_out = (size_t)(r->n_tok - r->n_prompt),
        .queued_s = r->queued_s, .first_s = r->first_s,
    };
}

static bool tell(struct batch *b, const struct request *r, const slm_event *event)
{
    b->telling = true;
    const bool go_on = r->given.on_event(r->given.arg, event);
    b->telling = false;
    return go_on;
}

static void tell_end(struct batch *b, const struct request *r)
{
    slm_event event = event_of(r);

    event.finish = r->finish;
    event.id = r->end_id;
    event.chosen = r->end_logprob;
    event.error = r->finish == SLM_FINISH_ERROR ? &r->error : NULL;
    b->stats.finished += r->finish != SLM_FINISH_CANCELLED && r->finish != SLM_FINISH_ERROR;
    b->stats.cancelled += r->finish == SLM_FINISH_CANCELLED;
    b->stats.failed += r->finish == SLM_FINISH_ERROR;
    tell(b, r, &event);
}

static struct request *take_out(struct request **list, int *n, int i)
{
    struct request *r = list[i];

    (*n)--;
    memmove(&list[i], &list[i + 1], (size_t)(*n - i) * sizeof *list);
    return r;
}

/* Takes a request that is to end out of a list; NULL where there is none. */
static struct request *take_ended(struct request **list, int *n)
{
    for (int i = 0; i < *n; i++) {
        if (list[i]->finish != SLM_FINISH_NONE) {
            return take_out(list, n, i);
        }
    }
    return NULL;
}

/* Ends what is to end.  A request is gone from the lists before it is told, so that its place is
 * free for one that the event submits. */
static void sweep(struct batch *b)
{
    struct request *r;

    while ((r = take_ended(b->running, &b->n_running)) ||
           (r = take_ended(b->waiting, &b->n_waiting))) {
        leave_seat(b, r);
        tell_end(b, r);
        request_free(r);
    }
}

static struct request *find(const struct batch *b, uint64_t id)
{
    for (int i = 0; i < b->n_running; i++) {
        if (b->running[i]->id == id) {
            return b->running[i];
        }
    }
    for (int i = 0; i < b->n_waiting; i++) {
        if (b->waiting[i]->id == id) {
            return b->waiting[i];
        }
    }
    return NULL;
}

void batch_cancel(struct batch *b, uint64_t id)
{
    struct request *r = find(b, id);

    if (r) {
        end_request(r, SLM_FINISH_CANCELLED, NULL);
    }
    if (!b->telling) {
        sweep(b);
    }
}

/* ---- admitting ------------------------------------------------------------------------ */

/* Whether a running request is about to keep so much of this one's text that waiting for it is
 * cheaper than computing the same. */
static bool better_waits(const struct batch *b, const struct request *r)
{
    for (int i = 0; i < b->n_running; i++) {
        const struct request *o = b->running[i];
        const int most = min_int(o->n_prompt, r->n_tok - 1);
        int same = 0;
        if (o->n_done >= o->n_prompt) {
            continue;
        }
        while (same < most && o->tok[same] == r->tok[same]) {
            same++;
        }
        if (same >= KV_PAGE && same >= r->n_tok / 2) {
            return true;
        }
    }
    return false;
}

/* Before the first admission; false where the request is to end instead. */
static bool make_sampler(const struct batch *b, struct request *r)
{
    slm_error err = { SLM_E_OK, -1, "" };

    r->sampler = sampler_new(&r->given.sampling, b->n_vocab, b->p.kern, &err);
    if (!r->sampler ||
        (r->given.guide.allow && !sampler_constrain(r->sampler, &r->given.guide, &err))) {
        end_request(r, SLM_FINISH_ERROR, &err);
        return false;
    }
    return true;
}

/* Whether all running requests can compute the tokens that they know, and one more, beside r. */
static bool has_room(const struct batch *b, const struct request *r)
{
    struct kv_count need = { { 0 } };

    for (int i = 0; i < b->n_running; i++) {
        const struct request *o = b->running[i];
        seats_need(b->seats, o->seat, o->n_done, min_int(o->n_tok + 1, o->tok_max), &need);
    }
    seats_need(b->seats, r->seat, r->n_done, min_int(r->n_tok + 1, r->tok_max), &need);
    return seats_make_room(b->seats, need);
}

/* A prompt whose beginning others have had makes its own contribution: what is kept at the place
 * where they part, and near its end, serves the next one. */
static void choose_stops(struct request *r, struct prefix_hit hit)
{
    const int end = (r->n_prompt - PROMPT_TAIL) / KV_PAGE * KV_PAGE;

    r->stops[STOP_PARTED] = hit.known - hit.resume >= STOP_DISTANCE ? hit.known : 0;
    r->stops[STOP_PROMPT] = r->seat->states && r->n_prompt > PROMPT_TAIL ? end : 0;
}

/* Gives r a seat; false where it has to wait for pages. */
static bool admit(struct batch *b, struct request *r)
{
    struct prefix_hit hit;

    r->seat = seats_take(b->seats, r->tok, r->n_tok, &hit);
    assert(r->seat);
    r->n_done = hit.resume;
    if (!has_room(b, r) && b->n_running > 0) {
        leave_seat(b, r);
        b->no_room = true;
        return false;
    }
    choose_stops(r, hit);
    if (b->drafts) {
        drafts_begin(b->drafts, r->seat->index);
    }
    return true;
}

/* Prompts come first come first served, except that one which waits for another's text lets those
 * behind it pass. */
static void admit_waiting(struct batch *b)
{
    for (int i = 0; i < b->n_waiting && b->n_running < b->p.parallel && !b->no_room;) {
        struct request *r = b->waiting[i];
        const bool first = !r->sampler;
        if (r->finish != SLM_FINISH_NONE || better_waits(b, r) ||
            (first && !make_sampler(b, r)) || !admit(b, r)) {
            i++;
            continue;
        }
        if (first) {
            r->queued_s = time_now() - r->submitted_s;
            r->n_cached = r->n_done;
            b->stats.prompt_tokens += (uint64_t)r->n_prompt;
            b->stats.cached_tokens += (uint64_t)r->n_cached;
        }
        b->running[b->n_running++] = take_out(b->waiting, &b->n_waiting, i);
    }
}

/* Sends the youngest running request back to the queue.  Its tokens stay, and what it has computed
 * is kept as long as there is room. */
static void preempt_youngest(struct batch *b)
{
    struct request *r = b->running[--b->n_running];

    leave_seat(b, r);
    r->n_done = 0;
    memmove(&b->waiting[1], &b->waiting[0], (size_t)b->n_waiting * sizeof *b->waiting);
    b->waiting[0] = r;
    b->n_waiting++;
}

/* ---- planning ------------------------------------------------------------------------- */

static bool writes(const struct request *r)
{
    return r->n_tok - r->n_done == 1;
}

/* At most n of a request's next tokens, up to a place where it has to stop. */
static int piece_of(const struct request *r, int n)
{
    n = min_int(n, r->n_tok - r->n_done);
    for (int i = 0; i < STOPS; i++) {
        if (r->stops[i] > r->n_done) {
            n = min_int(n, r->stops[i] - r->n_done);
        }
    }
    return n;
}

/* Rows of prompts for a step: by the time that a row has taken, and few until that is known. */
static int prompt_rows(const struct batch *b, bool answers_too)
{
    const int most = answers_too ? b->p.chunk : b->chunk_max;
    const double timed = b->row_s > 0 ? STEP_S / b->row_s : CHUNK_LEAST;

    if (timed >= most) {
        return most;
    }
    return timed > CHUNK_LEAST ? (int)timed / CHUNK_LEAST * CHUNK_LEAST : min_int(CHUNK_LEAST, most);
}

/* What a row of a step with prompts takes, from the last ones. */
static void learn_row(struct batch *b, double seconds)
{
    if (b->n_rows >= CHUNK_LEAST) {
        const double row_s = seconds / b->n_rows;
        b->row_s = b->row_s > 0 ? (b->row_s + row_s) / 2 : row_s;
    }
}

/* A token of every answer, and pieces of the prompts.  Prompts share what a step takes of them;
 * what a short one leaves is for those behind it, and each is first in turn. */
static void share_step(struct batch *b)
{
    const unsigned n = (unsigned)b->n_running, first = b->turn++;
    int n_prompts = 0;

    for (int i = 0; i < b->n_running; i++) {
        b->running[i]->n_draft = 0;
        b->running[i]->n_step = writes(b->running[i]);
        n_prompts += !b->running[i]->n_step;
    }
    b->n_answers = n_prompts == 0 ? b->n_running : 0;
    int budget = prompt_rows(b, n_prompts < b->n_running);
    for (unsigned i = 0; i < n && budget > 0; i++) {
        struct request *r = b->running[(first + i) % n];
        if (r->n_step == 0) {
            r->n_step = piece_of(r, (budget + n_prompts - 1) / n_prompts);
            budget -= r->n_step;
            n_prompts--;
        }
    }
}

/* Whether a token ends the request's answer. */
static bool ends(const struct batch *b, const struct request *r, int32_t id)
{
    return !r->given.ignore_end && b->p.is_end(b->p.is_end_arg, id);
}

/* Up to `want` drafts behind a request's tokens; what can not be kept anyway is cut off. */
static void add_drafts(struct batch *b, struct request *r, int want)
{
    int32_t *draft = r->tok + r->n_tok;
    const int room = r->tok_max - r->n_tok - 1;
    const int n = drafts_make(b->drafts, r->seat->index, r->tok, r->n_tok, min_int(want, room),
                              draft);

    while (r->n_draft < n && !ends(b, r, draft[r->n_draft])) {
        r->n_draft++;
    }
    r->n_step += r->n_draft;
}

static void draft(struct batch *b)
{
    const int want = b->drafts ? drafts_choose(b->drafts, b->n_answers) : 0;

    for (int i = 0; i < b->n_running && want > 0; i++) {
        add_drafts(b, b->running[i], want);
    }
}

/* The bound is such that one request alone has room, so this is a mistake of ours; it costs the
 * request and not the program. */
static void end_without_room(struct request *r)
{
    slm_error err;

    slm_fail(&err, SLM_E_INTERNAL, "a request of %d tokens alone has no room in the cache",
             r->n_tok);
    end_request(r, SLM_FINISH_ERROR, &err);
    r->n_step = 0;
}

/* Gets pages for the step, the oldest request first.  Where they are short the youngest ones have
 * to go back to the queue; the oldest one always finds enough. */
static void get_pages(struct batch *b)
{
    for (int i = 0; i < b->n_running; i++) {
        struct request *r = b->running[i];
        while (r->seat && !seats_ensure(b->seats, r->seat, r->n_done, r->n_done + r->n_step)) {
            if (b->n_running == 1) {
                end_without_room(r);
                break;
            }
            preempt_youngest(b);
        }
    }
}

/* Adds a request's tokens to the step. */
static void add_piece(struct batch *b, struct request *r)
{
    const struct seat *seat = r->seat;
    const int n = r->n_step, row0 = b->n_rows;
    struct draws *draws = NULL;

    memcpy(b->tok + row0, r->tok + r->n_done, (size_t)n * sizeof *b->tok);
    memset(b->want + row0, 0, (size_t)n * sizeof *b->want);
    b->n_rows += n;
    if (r->n_done + n == r->n_tok + r->n_draft) {
        draws = &b->draws[b->n_draws];
        *draws = (struct draws){
            .sampler = r->sampler, .tok = r->tok, .n_tok = r->n_tok, .n_draft = r->n_draft,
            .n_top = r->given.n_top, .logits = b->logits + (size_t)b->n_want * (size_t)b->n_vocab,
            .broken = b->broken + b->n_want, .out = b->drawn + b->n_want,
        };
        b->drawers[b->n_draws++] = r;
        memset(b->want + b->n_rows - 1 - r->n_draft, 1, (size_t)(1 + r->n_draft) * sizeof *b->want);
        b->n_want += 1 + r->n_draft;
    }
    b->seqs[b->n_pieces] = (struct step_seq){
        .n_tok = n, .pos0 = r->n_done, .pages = kv_seq_table(seat->kv),
        .page_stride = kv_seq_stride(seat->kv), .states = seat->states,
        .trial = r->n_draft > 0 ? drafts_trial(b->drafts, b->n_pieces) : NULL,
    };
    b->pieces[b->n_pieces++] = (struct piece){ r, row0, n, draws };
}

static void plan(struct batch *b)
{
    b->n_rows = b->n_want = b->n_pieces = b->n_draws = 0;
    share_step(b);
    draft(b);
    get_pages(b);
    for (int i = 0; i < b->n_running; i++) {
        if (b->running[i]->n_step > 0) {
            add_piece(b, b->running[i]);
        }
    }
}

/* ---- computing ------------------------------------------------------------------------ */

static void lock_step(const struct batch *b)
{
    if (b->p.step_lock) {
        pthread_mutex_lock(b->p.step_lock);
    }
}

static void unlock_step(const struct batch *b)
{
    if (b->p.step_lock) {
        pthread_mutex_unlock(b->p.step_lock);
    }
}

static bool compute(struct batch *b, slm_error *err)
{
    const struct step_in in = {
        .n_tok = b->n_rows, .tok = b->tok, .n_seq = b->n_pieces, .seq = b->seqs, .kv = b->p.kv,
        .want = b->want, .broken = b->broken,
        .hidden = b->drafts ? drafts_hidden(b->drafts) : NULL,
    };

    lock_step(b);
    const bool ok = model_step(b->model, b->work, &in, b->logits, err);
    unlock_step(b);
    return ok;
}

/* Appends a drawn token and tells it. */
static void take_token(struct batch *b, struct request *r, const struct drawn *d)
{
    if (ends(b, r, d->id)) {
        r->end_id = d->id;
        r->end_logprob = d->chosen;
        end_request(r, SLM_FINISH_END, NULL);
        return;
    }
    r->tok[r->n_tok++] = d->id;
    if (r->n_tok == r->n_prompt + 1) {
        r->first_s = time_now() - r->submitted_s;
    }
    b->stats.answer_tokens++;

    slm_event event = event_of(r);
    event.id = d->id;
    event.chosen = d->chosen;
    event.top = d->n_top > 0 ? d->top : NULL;
    event.n_top = d->n_top;
    if (!tell(b, r, &event)) {
        end_request(r, SLM_FINISH_STOPPED, NULL);
    } else if (r->n_tok == r->tok_max) {
        end_request(r, SLM_FINISH_LENGTH, NULL);
    }
}

/* Takes what was drawn as long as the request goes on; it may have been cancelled by the event of
 * another one. */
static void take_draws(struct batch *b, struct request *r, const struct draws *d)
{
    for (int i = 0; i < d->n && r->finish == SLM_FINISH_NONE; i++) {
        take_token(b, r, &d->out[i]);
    }
    if (!d->ok) {
        end_request(r, SLM_FINISH_ERROR, &d->error);
    }
}

/* Takes back the drafts that were wrong; how many of the piece's tokens stay. */
static int take_back(struct batch *b, const struct piece *p, const struct step_seq *seq)
{
    const struct request *r = p->r;
    const int n_wrong = r->n_draft - (p->draws->n > 0 ? p->draws->n - 1 : 0);
    const int n_keep = p->n_tok - n_wrong;

    if (seq->trial) {
        lock_step(b);
        model_commit(b->model, b->work, seq, n_keep);
        unlock_step(b);
    }
    kv_seq_drop(r->seat->kv, r->n_done + n_keep);
    return n_keep;
}

/* Takes note of what a step has computed of a request, and keeps it for others at its stops and
 * when its prompt is complete. */
static void take_piece(struct batch *b, const struct piece *p, const struct step_seq *seq)
{
    struct request *r = p->r;
    const bool was_prompt = r->n_done < r->n_prompt;
    const int n = r->n_draft > 0 ? take_back(b, p, seq) : p->n_tok;
    bool keep = false;

    if (b->drafts) {
        drafts_follow(b->drafts, r->seat->index, r->tok + r->n_done, n, r->n_done, p->row0);
    }
    r->n_done += n;
    for (int i = 0; i < STOPS; i++) {
        keep = keep || r->n_done == r->stops[i];
    }
    if (keep || (was_prompt && r->n_done >= r->n_prompt)) {
        seats_keep(b->seats, r->seat, r->tok, r->n_done, keep);
    }
    kv_seq_slide(r->seat->kv, r->n_done, NULL, 0);
}

/* What the step's drafts brought. */
static void learn(struct batch *b)
{
    const double seconds = time_now() - b->begin_s;

    for (int i = 0; b->drafts && i < b->n_draws; i++) {
        const struct draws *d = &b->draws[i];
        drafts_learn(b->drafts, b->n_answers, d->n_draft, d->n > 0 ? d->n - 1 : 0, seconds);
    }
}

/* Computes what was planned and tells the tokens.  A fault of the whole step ends the requests
 * that were part of it. */
static void run_plan(struct batch *b)
{
    slm_error err = { SLM_E_OK, -1, "" };

    b->stats.steps++;
    b->stats.rows += (uint64_t)b->n_rows;
    if (!compute(b, &err)) {
        for (int i = 0; i < b->n_pieces; i++) {
            end_request(b->pieces[i].r, SLM_FINISH_ERROR, &err);
        }
        return;
    }
    draw_all(b->p.pool, b->p.kern, b->n_vocab, b->draws, b->n_draws);
    for (int i = 0; i < b->n_pieces; i++) {
        take_piece(b, &b->pieces[i], &b->seqs[i]);
    }
    learn(b);
    for (int i = 0; i < b->n_draws; i++) {
        take_draws(b, b->drawers[i], &b->draws[i]);
    }
}

bool batch_step(struct batch *b, bool *more, slm_error *err)
{
    if (b->telling) {
        return slm_fail(err, SLM_E_ARG, "a step cannot be made by an event of the batch");
    }
    b->begin_s = time_now();
    admit_waiting(b);
    plan(b);
    if (b->n_rows > 0) {
        run_plan(b);
        learn_row(b, time_now() - b->begin_s);
    }
    sweep(b);
    *more = b->n_running + b->n_waiting > 0;
    return true;
}

void batch_stats(const struct batch *b, slm_batch_stats *out)
{
    *out = b->stats;
    out->cache_bytes = seats_used_bytes(b->seats);
    out->cache_bytes_max = b->p.cache_bytes;
    if (b->drafts) {
        drafts_stats(b->drafts, &out->draft);
    }
    out->running = b->n_running;
    out->waiting = b->n_waiting;
}

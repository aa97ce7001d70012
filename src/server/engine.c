/* engine.c - models on demand, and one thread that steps their batches.
 *
 * A batch belongs to the engine thread from the moment its model is open.  Connections reach
 * it through two lists under the engine's lock: jobs to begin, and flags of jobs to cancel. */
#include "server/engine.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/time.h"

struct served {
    struct engine *engine;
    char *name, *path;
    long created;
    pthread_mutex_t lock;     /* of what follows; held while loading */
    slm_model *model;         /* NULL: not open */
    slm_batch *batch;         /* used by the engine thread only */
    slm_session *embedder;    /* for embeddings, made when first wanted */
    int users;
    double used_s;            /* when the last user left */
    struct job *active;       /* of the engine thread */
};

struct engine {
    struct engine_params p;
    struct served *models;
    int n_models;
    slm_engine *threads;
    struct metrics *metrics;
    pthread_t thread;
    bool started;

    pthread_mutex_t lock;     /* of what follows */
    pthread_cond_t wake;
    struct job *pending, **pending_tail;
    bool cancel, closed, stop;
    slm_batch_stats stats;    /* as of the last step */
};

/* ---- inbox ----------------------------------------------------------------------------- */

bool inbox_init(struct inbox *in, slm_error *err)
{
    in->head = NULL;
    in->tail = &in->head;
    in->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (in->wake_fd < 0) {
        return slm_fail(err, SLM_E_BUSY, "no descriptor for another request: %s", strerror(errno));
    }
    pthread_mutex_init(&in->lock, NULL);
    return true;
}

void inbox_deinit(struct inbox *in)
{
    struct job_event *ev;

    while ((ev = inbox_take(in))) {
        mem_free(ev);
    }
    close(in->wake_fd);
    pthread_mutex_destroy(&in->lock);
}

struct job_event *inbox_take(struct inbox *in)
{
    uint64_t count;

    pthread_mutex_lock(&in->lock);
    struct job_event *ev = in->head;
    if (ev) {
        in->head = ev->next;
        in->tail = in->head ? in->tail : &in->head;
    } else {
        while (read(in->wake_fd, &count, sizeof count) < 0 && errno == EINTR) {
        }
    }
    pthread_mutex_unlock(&in->lock);
    return ev;
}

void inbox_wait(struct inbox *in)
{
    struct pollfd p = { .fd = in->wake_fd, .events = POLLIN };

    while (poll(&p, 1, -1) < 0 && errno == EINTR) {
    }
}

static void inbox_put(struct inbox *in, struct job_event *ev)
{
    const uint64_t one = 1;

    ev->next = NULL;
    pthread_mutex_lock(&in->lock);
    *in->tail = ev;
    in->tail = &ev->next;
    /* Inside the lock: the reader frees the inbox once it has taken the last event. */
    while (write(in->wake_fd, &one, sizeof one) < 0 && errno == EINTR) {
    }
    pthread_mutex_unlock(&in->lock);
}

/* ---- jobs, on the engine thread ---------------------------------------------------------- */

static struct job_event *new_event(enum job_event_kind kind, int choice, int n_top)
{
    struct job_event *ev = mem_zalloc(1, sizeof *ev + (size_t)n_top * sizeof ev->top[0]);

    if (ev) {
        ev->kind = kind;
        ev->choice = choice;
        ev->n_top = n_top;
    }
    return ev;
}

static void unlink_job(struct job *job)
{
    struct job **at = &job->served->active;

    while (*at != job) {
        at = &(*at)->next;
    }
    *at = job->next;
}

/* Tells the end; the job may be gone when this returns. */
static void end_job(struct job *job, slm_finish finish, const slm_error *error)
{
    struct job_event *ev = job->end;

    ev->finish = finish;
    if (error) {
        ev->error = *error;
    }
    inbox_put(job->inbox, ev);
}

static void fill_event(struct job_event *ev, const slm_event *from)
{
    ev->id = from->id;
    ev->n_prompt = from->n_prompt;
    ev->n_cached = from->n_cached;
    ev->n_out = from->n_out;
    ev->queued_s = from->queued_s;
    ev->first_s = from->first_s;
    ev->chosen = from->chosen;
}

static void observe(struct metrics *m, struct job *job, const slm_event *from)
{
    const double now = time_now();

    if (from->n_out == 1) {
        metrics_observe(&m->queue_s, from->queued_s);
        metrics_observe(&m->first_token_s, from->first_s);
    } else {
        metrics_observe(&m->token_s, now - job->last_token_s);
    }
    job->last_token_s = now;
}

static bool on_event(void *arg, const slm_event *from)
{
    struct job *job = arg;

    if (from->finish == SLM_FINISH_NONE) {
        struct job_event *ev = new_event(JOB_TOKEN, job->choice, from->n_top);
        if (!ev) {
            job->out_of_memory = true;
            return false;
        }
        observe(job->served->engine->metrics, job, from);
        fill_event(ev, from);
        if (from->n_top > 0) {
            memcpy(ev->top, from->top, (size_t)from->n_top * sizeof ev->top[0]);
        }
        inbox_put(job->inbox, ev);
        return true;
    }
    fill_event(job->end, from);
    unlink_job(job);
    if (job->out_of_memory) {
        slm_error err;
        slm_fail_nomem(&err, "the answer");
        end_job(job, SLM_FINISH_ERROR, &err);
    } else {
        end_job(job, from->finish, from->error);
    }
    return true;
}

static void begin_job(struct job *job)
{
    struct served *s = job->served;
    slm_error err = {0};
    struct job_event *ev = new_event(JOB_ACCEPTED, job->choice, 0);

    job->request.on_event = on_event;
    job->request.arg = job;
    if (!ev) {
        slm_fail_nomem(&err, "a request");
        end_job(job, SLM_FINISH_ERROR, &err);
    } else if (slm_batch_submit(s->batch, &job->request, &job->id, &err)) {
        job->next = s->active;
        s->active = job;
        inbox_put(job->inbox, ev);
    } else {
        mem_free(ev);
        if (err.code == SLM_E_BUSY) {
            metrics_add(&s->engine->metrics->rejected, 1);
        }
        end_job(job, SLM_FINISH_ERROR, &err);
    }
}

/* Ends what connections have asked to end. */
static void cancel_jobs(struct engine *e)
{
    for (int i = 0; i < e->n_models; i++) {
        struct job *next;
        for (struct job *job = e->models[i].active; job; job = next) {
            next = job->next;
            pthread_mutex_lock(&e->lock);
            const bool cancelled = job->cancelled;
            pthread_mutex_unlock(&e->lock);
            if (cancelled) {
                slm_batch_cancel(job->served->batch, job->id);
            }
        }
    }
}

/* ---- models ------------------------------------------------------------------------------- */

/* With the model's lock held. */
static void unload(struct served *s)
{
    slm_session_free(s->embedder);
    slm_batch_free(s->batch);
    slm_model_free(s->model);
    s->embedder = NULL;
    s->batch = NULL;
    s->model = NULL;
}

/* With the model's lock held. */
static bool load(struct served *s, slm_error *err)
{
    const struct engine_params *p = &s->engine->p;

    s->model = slm_model_open(s->engine->threads, s->path, &p->model, err);
    s->batch = s->model ? slm_batch_new(s->model, &p->batch, err) : NULL;
    if (!s->batch) {
        unload(s);
        return false;
    }
    return true;
}

slm_model *served_acquire(struct served *s, slm_error *err)
{
    pthread_mutex_lock(&s->lock);
    if (s->model || load(s, err)) {
        s->users++;
    }
    slm_model *model = s->model;
    pthread_mutex_unlock(&s->lock);
    return model;
}

void served_release(struct served *s)
{
    pthread_mutex_lock(&s->lock);
    assert(s->users > 0);
    s->users--;
    s->used_s = time_now();
    pthread_mutex_unlock(&s->lock);
}

/* Closes models that nobody has asked for long. */
static void unload_idle(struct engine *e)
{
    for (int i = 0; e->p.idle_s > 0 && i < e->n_models; i++) {
        struct served *s = &e->models[i];
        if (pthread_mutex_trylock(&s->lock) != 0) {
            continue;  /* being loaded */
        }
        if (s->model && s->users == 0 && time_now() - s->used_s > e->p.idle_s) {
            unload(s);
        }
        pthread_mutex_unlock(&s->lock);
    }
}

struct served *engine_find(struct engine *e, const char *name)
{
    for (int i = 0; i < e->n_models; i++) {
        if (!name || strcmp(e->models[i].name, name) == 0) {
            return &e->models[i];
        }
    }
    return NULL;
}

struct served *engine_model_at(struct engine *e, int i)
{
    return i < e->n_models ? &e->models[i] : NULL;
}

const char *served_name(const struct served *s)
{
    return s->name;
}

long served_created(const struct served *s)
{
    return s->created;
}

bool served_loaded(struct served *s)
{
    pthread_mutex_lock(&s->lock);
    const bool loaded = s->model != NULL;
    pthread_mutex_unlock(&s->lock);
    return loaded;
}

int served_context(const struct served *s)
{
    slm_model_info info;
    const int asked = s->engine->p.batch.context;

    if (asked > 0) {
        return asked;
    }
    slm_model_info_get(s->model, &info);
    return info.context_max < 4096 ? info.context_max : 4096;
}

bool engine_embed(struct served *s, const int32_t *ids, size_t n, float *out, slm_error *err)
{
    const slm_session_params p = { .context = served_context(s) };

    pthread_mutex_lock(&s->lock);
    if (!s->embedder) {
        s->embedder = slm_session_new(s->model, &p, err);
    }
    const bool ok = s->embedder && slm_session_embed(s->embedder, ids, n, out, err);
    pthread_mutex_unlock(&s->lock);
    return ok;
}

/* ---- the thread --------------------------------------------------------------------------- */

static void add_drafts(slm_draft_stats *sum, const slm_draft_stats *x)
{
    sum->steps += x->steps;
    sum->drafted += x->drafted;
    sum->accepted += x->accepted;
    sum->tokens += x->tokens;
    sum->paused += x->paused;
}

static void add_stats(slm_batch_stats *sum, const slm_batch_stats *x)
{
    sum->running += x->running;
    sum->waiting += x->waiting;
    sum->steps += x->steps;
    sum->rows += x->rows;
    sum->prompt_tokens += x->prompt_tokens;
    sum->cached_tokens += x->cached_tokens;
    sum->answer_tokens += x->answer_tokens;
    sum->requests += x->requests;
    sum->finished += x->finished;
    sum->cancelled += x->cancelled;
    sum->failed += x->failed;
    sum->cache_bytes += x->cache_bytes;
    sum->cache_bytes_max += x->cache_bytes_max;
    add_drafts(&sum->draft, &x->draft);
}

/* A batch that cannot go on ends its jobs with the reason. */
static void fail_jobs(struct served *s, const slm_error *err)
{
    while (s->active) {
        struct job *job = s->active;
        s->active = job->next;
        end_job(job, SLM_FINISH_ERROR, err);
    }
}

/* A step of each batch; true while one has more to do. */
static bool step_all(struct engine *e)
{
    bool busy = false;
    slm_batch_stats sum = {0};

    for (int i = 0; i < e->n_models; i++) {
        struct served *s = &e->models[i];
        slm_error err = {0};
        bool more = false;
        if (s->active) {
            /* A job keeps its model open, so the batch is there. */
            if (!slm_batch_step(s->batch, &more, &err)) {
                fail_jobs(s, &err);
            }
            busy = busy || s->active;
        }
        if (pthread_mutex_trylock(&s->lock) == 0) {
            if (s->batch) {
                slm_batch_stats one;
                slm_batch_stats_get(s->batch, &one);
                add_stats(&sum, &one);
            }
            pthread_mutex_unlock(&s->lock);
        }
    }
    pthread_mutex_lock(&e->lock);
    e->stats = sum;
    pthread_mutex_unlock(&e->lock);
    return busy;
}

static void wait_a_second(struct engine *e)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec++;
    pthread_cond_timedwait(&e->wake, &e->lock, &until);
}

static void *engine_main(void *arg)
{
    struct engine *e = arg;
    bool busy = false;

    pthread_mutex_lock(&e->lock);
    while (!e->stop) {
        if (!busy && !e->pending && !e->cancel) {
            wait_a_second(e);
        }
        struct job *begin = e->pending;
        const bool cancel = e->cancel;
        e->pending = NULL;
        e->pending_tail = &e->pending;
        e->cancel = false;
        pthread_mutex_unlock(&e->lock);
        while (begin) {
            struct job *job = begin;
            begin = job->next;
            begin_job(job);
        }
        if (cancel) {
            cancel_jobs(e);
        }
        busy = step_all(e);
        if (!busy) {
            unload_idle(e);
        }
        pthread_mutex_lock(&e->lock);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

bool engine_submit(struct engine *e, struct job *jobs, slm_error *err)
{
    struct job *last = NULL;

    for (struct job *job = jobs; job; job = job->next) {
        job->end = new_event(JOB_END, job->choice, 0);
        if (!job->end) {
            for (struct job *made = jobs; made != job; made = made->next) {
                mem_free(made->end);
            }
            return slm_fail_nomem(err, "a request");
        }
        last = job;
    }
    pthread_mutex_lock(&e->lock);
    const bool closed = e->closed;
    if (!closed) {
        *e->pending_tail = jobs;
        e->pending_tail = &last->next;
        pthread_cond_signal(&e->wake);
    }
    pthread_mutex_unlock(&e->lock);
    for (struct job *job = closed ? jobs : NULL, *next; job; job = next) {
        slm_error end;
        slm_fail(&end, SLM_E_NOMEM, "the server is stopping");
        next = job->next;
        end_job(job, SLM_FINISH_ERROR, &end);
    }
    return true;
}

void engine_cancel(struct engine *e, struct job *job)
{
    pthread_mutex_lock(&e->lock);
    job->cancelled = true;
    e->cancel = true;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
}

void engine_stats(struct engine *e, slm_batch_stats *out)
{
    pthread_mutex_lock(&e->lock);
    *out = e->stats;
    pthread_mutex_unlock(&e->lock);
}

void engine_stop_accepting(struct engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->closed = true;
    pthread_mutex_unlock(&e->lock);
}

/* ---- begin and end ------------------------------------------------------------------------ */

static bool add_model(struct engine *e, const struct engine_model *m, slm_error *err)
{
    struct served *s = &e->models[e->n_models];

    s->engine = e;
    s->name = mem_strndup(m->name, strlen(m->name));
    s->path = mem_strndup(m->path, strlen(m->path));
    s->created = (long)time(NULL);
    pthread_mutex_init(&s->lock, NULL);
    e->n_models++;
    if (!s->name || !s->path) {
        return slm_fail_nomem(err, "a model");
    }
    /* Every file is opened once, so that a bad one is found now; the first model stays. */
    if (!load(s, err)) {
        return false;
    }
    s->used_s = time_now();
    if (e->n_models > 1) {
        unload(s);
    }
    return true;
}

struct engine *engine_new(const struct engine_params *p, struct metrics *metrics, slm_error *err)
{
    const slm_engine_params threads = { .threads = p->threads };
    pthread_condattr_t clock;
    struct engine *e = mem_zalloc(1, sizeof *e);

    if (!e) {
        slm_fail_nomem(err, "the server");
        return NULL;
    }
    e->p = *p;
    e->metrics = metrics;
    e->pending_tail = &e->pending;
    pthread_mutex_init(&e->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&e->wake, &clock);
    pthread_condattr_destroy(&clock);
    e->models = mem_zalloc((size_t)p->n_models, sizeof *e->models);
    if (!e->models) {
        slm_fail_nomem(err, "the server");
        goto fail;
    }
    e->threads = slm_engine_new(&threads, err);
    if (!e->threads) {
        goto fail;
    }
    for (int i = 0; i < p->n_models; i++) {
        if (!add_model(e, &p->models[i], err)) {
            goto fail;
        }
    }
    if (pthread_create(&e->thread, NULL, engine_main, e) != 0) {
        slm_fail(err, SLM_E_NOMEM, "cannot start the engine's thread");
        goto fail;
    }
    e->started = true;
    return e;

fail:
    engine_free(e);
    return NULL;
}

void engine_free(struct engine *e)
{
    if (!e) {
        return;
    }
    if (e->started) {
        pthread_mutex_lock(&e->lock);
        e->stop = true;
        pthread_cond_signal(&e->wake);
        pthread_mutex_unlock(&e->lock);
        pthread_join(e->thread, NULL);
    }
    for (int i = 0; i < e->n_models; i++) {
        unload(&e->models[i]);
        mem_free(e->models[i].name);
        mem_free(e->models[i].path);
        pthread_mutex_destroy(&e->models[i].lock);
    }
    mem_free(e->models);
    slm_engine_free(e->threads);
    pthread_cond_destroy(&e->wake);
    pthread_mutex_destroy(&e->lock);
    mem_free(e);
}

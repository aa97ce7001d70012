/* engine.h - the models being served and the thread that computes.
 *
 * Connections submit jobs and get events; one thread runs the batches of all models, a step
 * of each in turn.  A job is one choice of one request. */
#ifndef ENGINE_H
#define ENGINE_H

#include <pthread.h>
#include <stdatomic.h>

#include "server/metrics.h"
#include "slm.h"

struct engine;
struct served;

struct engine_model {
    const char *name, *path;
};

struct engine_params {
    const struct engine_model *models;
    int n_models;
    int threads;
    int idle_s;               /* seconds after which a model without requests is unloaded; 0: never */
    slm_model_params model;
    slm_batch_params batch;
};

/* Opens every model once, so that a bad file is found now; the first one stays open.  Strings
 * are copied. */
struct engine *engine_new(const struct engine_params *p, struct metrics *metrics, slm_error *err);

/* All jobs must have ended. */
void engine_free(struct engine *e);

/* ---- models ---------------------------------------------------------------------------- */

/* By name; NULL for an unknown one.  A NULL name is the first model. */
struct served *engine_find(struct engine *e, const char *name);

/* Model i, NULL past the end. */
struct served *engine_model_at(struct engine *e, int i);

const char *served_name(const struct served *s);
long served_created(const struct served *s);
bool served_loaded(struct served *s);

/* Opens the model where it is not open and keeps it open until released. */
slm_model *served_acquire(struct served *s, slm_error *err);
void served_release(struct served *s);

/* Tokens of a request; the model must be acquired. */
int served_context(const struct served *s);

/* ---- jobs ------------------------------------------------------------------------------ */

enum job_event_kind { JOB_ACCEPTED, JOB_TOKEN, JOB_END };

struct job_event {
    struct job_event *next;
    enum job_event_kind kind;
    int choice;
    int32_t id;
    slm_finish finish;        /* with JOB_END */
    slm_error error;          /* with SLM_FINISH_ERROR */
    size_t n_prompt, n_cached, n_out;
    double queued_s, first_s;
    slm_logprob chosen;
    int n_top;
    slm_logprob top[];
};

/* Where the events of one request's jobs go.  wake_fd becomes readable with an event. */
struct inbox {
    pthread_mutex_t lock;
    struct job_event *head, **tail;
    int wake_fd;
};

bool inbox_init(struct inbox *in, slm_error *err);
void inbox_deinit(struct inbox *in);

/* The next event, freed by the caller with mem_free; NULL: none now, and wake_fd is reset. */
struct job_event *inbox_take(struct inbox *in);

/* Waits for an event. */
void inbox_wait(struct inbox *in);

struct job {
    slm_request request;      /* on_event and arg are the engine's; what it points at must live
                               * until JOB_END */
    int choice;
    struct inbox *inbox;
    struct served *served;
    struct job *next;         /* set by the caller of engine_submit; the engine's, as all below */
    uint64_t id;
    bool cancelled;           /* asked for; under the engine's lock */
    bool out_of_memory;
    double last_token_s;
    struct job_event *end;    /* made beforehand, so that the end is told without memory too */
};

/* Hands over jobs linked by `next`; each is told JOB_ACCEPTED or JOB_END before any has a token.
 * They must live until their JOB_END has been taken.  False without memory. */
bool engine_submit(struct engine *e, struct job *jobs, slm_error *err);

/* Asks for the end of a job that was submitted; JOB_END follows within a step. */
void engine_cancel(struct engine *e, struct job *job);

/* Sum over the loaded models. */
void engine_stats(struct engine *e, slm_batch_stats *out);

/* No new jobs: they end with SLM_E_CANCELLED at once. */
void engine_stop_accepting(struct engine *e);

/* An embedding, computed between steps. */
bool engine_embed(struct served *s, const int32_t *ids, size_t n, float *out, slm_error *err);

#endif

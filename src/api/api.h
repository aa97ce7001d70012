/* api.h - what the public handles hold. */
#ifndef API_H
#define API_H

#include <pthread.h>

#include "base/buf.h"
#include "base/fpenv.h"
#include "base/mem.h"
#include "base/thread.h"
#include "gguf/gguf.h"
#include "guide/guide.h"
#include "kern/kern.h"
#include "model/model.h"
#include "run/sample.h"
#include "run/session.h"
#include "run/spec.h"
#include "text/chat.h"
#include "text/vocab.h"

struct slm_engine {
    struct pool *pool;
    const struct kern *kern;
    pthread_mutex_t step_lock;  /* held by the session whose step uses the pool */
};

struct slm_model {
    slm_engine *engine;
    struct gguf *gguf;
    struct vocab *vocab;     /* NULL when opened for its metadata only */
    struct model *model;     /* NULL when opened without weights */
    struct chat *chat;       /* NULL: no template, or one that does not compile */
    bool chat_broken;
    slm_error chat_error;    /* why it does not compile */
    char *arch, *name;
    uint64_t memory_bytes;   /* that it and its sessions may take; 0: what is free */
    struct buf meta;         /* value of the last metadata call */
    pthread_mutex_t guide_lock;
    struct guide_vocab *guide_vocab;  /* of all guides; made with the first, under the lock */
};

struct slm_guide {
    slm_model *model;
    struct guide *guide;
};

struct slm_session {
    slm_model *model;
    struct session *session;
    struct spec *spec;
};

struct slm_sampler {
    struct sampler *sampler;
    const slm_model *model;
    int n_vocab;
    struct guide_matcher *matcher;  /* of the guide that it follows; NULL: none */
};

struct slm_stream {
    struct detok *detok;
};

/* False and SLM_E_ARG with "CALL: what" unless ok. */
bool api_arg(bool ok, const char *call, const char *what, slm_error *err);

/* False and an error where the model's file holds a block that drafts and nothing else. */
bool api_computes(const slm_model *model, slm_error *err);

/* Checks drafts for the model (NULL: none) and turns them into what a session takes. */
bool api_drafting(const slm_model *model, const slm_drafting *d, const char *call,
                  struct spec_params *out, slm_error *err);

/* The engine's form of the settings; the biases are borrowed. */
struct sample_params api_sample_params(const slm_sampling *s);

/* A constraint of its own (to be released) for an answer that begins at token `start`. */
bool api_constraint(const slm_model *model, const slm_guide *guide, size_t start,
                    struct constraint *out, slm_error *err);

/* The context of a model where the caller names none. */
int api_default_context(const slm_model *model);

/* The type inside of one of the constants. */
static inline enum kv_type api_kv_type(slm_kv_type kv)
{
    return kv == SLM_KV_F32 ? KV_F32 : kv == SLM_KV_Q8_0 ? KV_Q8_0 : KV_F16;
}

/* Checks what a caller gave and turns it into what a session takes. */
bool api_session_params(const slm_model *model, const slm_session_params *given, const char *call,
                        struct session_params *out, slm_error *err);

/* Memory that may still be taken: what is free, or left of the model's memory_bytes. */
uint64_t api_memory_free(const slm_model *model);

/* Decides where the weights of a loaded model are kept. */
bool api_place(slm_model *m, const slm_model_params *p, slm_error *err);

/* Refuses a session whose own memory is more than what is free, before anything is
 * allocated: the kernel would promise the memory and end the process later. */
bool api_session_fits(const slm_model *model, const struct session_params *p,
                      const struct spec_params *draft, slm_error *err);

/* A context where the caller names none. */
enum { API_CONTEXT_DEFAULT = 4096 };

/* More threads than any machine this is for has cores; a limit against typing errors. */
enum { API_THREADS_MAX = 1024 };

#endif

/* gen_opts.h - the options of verbs that generate: each stands in one table, whoever shares it.
 *
 * Also what follows from them: the engine, the model, the model that drafts, how tokens are
 * drawn. */
#ifndef GEN_OPTS_H
#define GEN_OPTS_H

#include "app/args.h"
#include "base/buf.h"
#include "slm.h"

/* Drafts of a step at most, as slm_drafting has it. */
enum { GEN_DRAFT_MAX = 16 };

/* The model where none is named. */
#define GEN_MODEL "qwen3"

struct gen_opts {
    /* gen_sampling_opts.  What is not given is NAN or INT_MIN. */
    slm_sampling sampling;
    struct opt_list biases;     /* "ID:BIAS" */

    /* gen_answer_opts */
    int max_tokens;             /* -1: to the end of the context */
    struct opt_list stops;

    /* gen_model_opts */
    int context, threads, mtp_draft, draft_max;
    const char *kv, *pack, *mtp_model, *draft, *memory;
    bool no_stream;

    /* gen_chat_opts */
    const char *system, *template_path, *effort;
    bool no_thinking, show_prompt;

    /* Made by gen_check. */
    uint64_t memory_bytes;
    struct slm_bias bias[OPT_LIST_MAX];
};

extern const struct opt gen_sampling_opts[], gen_answer_opts[], gen_model_opts[], gen_chat_opts[];

/* Groups of all four, for a verb whose struct has a gen_opts at `offset`. */
#define GEN_GROUPS(offset)                                                                   \
    { "the answer", gen_answer_opts, (offset) },                                             \
    { "drawing tokens", gen_sampling_opts, (offset) },                                       \
    { "prompts", gen_chat_opts, (offset) },                                                  \
    { "model and machine", gen_model_opts, (offset) }

/* Before the options are read. */
void gen_init(struct gen_opts *o);

/* After that: what does not fit together or together with nothing.  False and *code where the
 * usage is wrong. */
bool gen_check(const struct verb *verb, struct gen_opts *o, int *code);

/* Checks texts that were given as arguments and reads the template to *template. */
bool gen_read(const struct gen_opts *o, struct buf *template, slm_error *err);

/* What is opened by them. */
struct gen {
    slm_engine *engine;
    slm_model *model;
    slm_model *drafter;       /* where drafts come from another file, else NULL */
    slm_drafting draft;
    int context;
    slm_forecast forecast;    /* by gen_session */
};

/* Opens the model; template: from gen_read.  A failed gen may be closed. */
bool gen_open(struct gen *g, const struct gen_opts *o, const char *model,
              const struct buf *template, slm_error *err);
void gen_close(struct gen *g);

/* Names what an error is about where it is about the template; false. */
bool gen_name_template(const struct gen_opts *o, const char *model, slm_error *err);

/* The model's recommendation, changed where options say so. */
slm_sampling gen_sampling(const struct gen_opts *o, const slm_model *model);

/* Changes one setting by its option's name; false and a message where it is none or the value does
 * not fit. */
bool gen_set(slm_sampling *s, const char *name, const char *value, char *why, size_t why_bytes);

/* Prints all settings, a line each. */
void gen_print(const slm_sampling *s);

/* A new session as the options want it.  Notes tell where weights are streamed, where the context
 * is beyond the model's, and where it has no block for --mtp-draft (then g->draft is off). */
slm_session *gen_session(struct gen *g, const struct gen_opts *o, slm_error *err);

/* Variables of the template, a JSON object (free with free); NULL without memory. */
char *gen_variables(const struct gen_opts *o);

#endif

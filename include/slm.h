/* slm.h - run small language models from GGUF files on ordinary CPUs.
 *
 * The whole public interface.  Four kinds of objects:
 *
 *   slm_engine    the threads; one per process is enough
 *   slm_model     a file, mapped and checked; immutable, shared by its sessions
 *   slm_session   one timeline of tokens with its keys and values
 *   slm_sampler   how the next token is drawn from the logits
 *
 * Calls that can fail return false or NULL and describe the failure in *err,
 * which may be NULL.  Different sessions may be used from different threads,
 * but steps of one engine run one at a time; one object must not be used by
 * two threads at once.  Text is UTF-8.
 *
 * For a given model file, input tokens and settings, every logit has the same
 * 32 bits on every CPU, with any number of threads and however the tokens were
 * fed.
 *
 * The beginning of every program, with C11 and C++ alike:
 *
 *     #include <slm.h>
 *     #include <stdio.h>
 *
 *     int main(int argc, char **argv)
 *     {
 *         slm_error err;
 *         slm_engine *engine = slm_engine_new(NULL, &err);
 *         const char *path = argv[argc - 1];
 *         slm_model *model = engine ? slm_model_open(engine, path, NULL, &err) : NULL;
 *         slm_session *session = model ? slm_session_new(model, NULL, &err) : NULL;
 *         slm_sampler *sampler = session ? slm_sampler_new(model, NULL, &err) : NULL;
 *         int32_t *ids, id;
 *         size_t n;
 *
 *         if (!sampler || !slm_tokenize(model, "Once", 4, true, false, &ids, &n, &err) ||
 *             !slm_session_feed(session, ids, n, &err) ||
 *             !slm_sample(sampler, session, &id, &err)) {
 *             fprintf(stderr, "%s\n", err.msg);
 *             return 1;
 *         }
 *         printf("%d\n", (int)id);
 *         slm_free(ids);
 *         slm_sampler_free(sampler);
 *         slm_session_free(session);
 *         slm_model_free(model);
 *         slm_engine_free(engine);
 *         return 0;
 *     }
 *
 * examples/hello.c goes on from there to a streamed answer. */
#ifndef SLM_H
#define SLM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(SLM_BUILD) && defined(__GNUC__)
#define SLM_API __attribute__((visibility("default")))
#else
#define SLM_API
#endif

/* ---- errors ------------------------------------------------------------- */

/* name, HTTP status a server would answer with, meaning */
#define SLM_ERROR_CODES(X)                                                    \
    X(OK,          200, "no error")                                           \
    X(ARG,         400, "an argument is out of range")                        \
    X(IO,          500, "a file cannot be read or written")                   \
    X(FORMAT,      500, "a file or text is malformed")                        \
    X(UNSUPPORTED, 501, "a valid feature that is not supported")              \
    X(NOMEM,       503, "not enough memory")                                  \
    X(CONTEXT,     400, "the context is too small for the tokens")            \
    X(TEMPLATE,    400, "the chat template cannot be rendered")               \
    X(NUMERIC,     500, "the model computed a value that is not a number")    \
    X(CANCELLED,   499, "cancelled by the caller")                            \
    X(BUSY,        429, "too many requests wait already")                     \
    X(INTERNAL,    500, "a bug in this library")

typedef enum slm_code {
#define X(name, http, text) SLM_E_##name,
    SLM_ERROR_CODES(X)
#undef X
} slm_code;

typedef struct slm_error {
    slm_code code;
    int64_t  position;  /* byte offset or line number where it makes sense, else -1 */
    char     msg[240];  /* one line, says what to do about it where possible */
} slm_error;

/* The code's meaning, a constant string. */
SLM_API const char *slm_code_text(slm_code code);

/* ---- version, machine, log ---------------------------------------------- */

/* "0.1.0" */
SLM_API const char *slm_version(void);

/* How the library was built: compiler, processor, libraries; one line. */
SLM_API const char *slm_build(void);

/* What this process may use of the machine. */
typedef struct slm_machine {
    char isa[16];        /* tier of the kernels in use: scalar, avx2, avx512, amx */
    char features[256];  /* CPU features found, separated by spaces */
    int  cores;          /* cores that are worth using */
    char cores_why[160]; /* why that many */
    uint64_t ram_bytes;  /* memory this process may use: RAM or the control group's limit */
} slm_machine;

/* Fills *out.  Fails when SLM_ISA names a tier that is unknown or that the CPU lacks. */
SLM_API bool slm_machine_get(slm_machine *out, slm_error *err);

/* Compares every kernel of the tier in use with the scalar definition on a
 * sample of inputs and checks the arithmetic of the build.  False and the first
 * difference in *err if one differs.  Takes about a second. */
SLM_API bool slm_selftest(slm_error *err);

/* Reads `bytes` of memory with `threads` threads and returns the rate in bytes
 * per second (the best of a few rounds), or a negative number without memory. */
SLM_API double slm_bandwidth(size_t bytes, int threads);

/* 8-bit products per second (a product and its sum counting once) that `threads` threads reach on
 * registers with the tier in use: what no matrix product can exceed.  Negative on failure. */
SLM_API double slm_product_rate(int threads);

typedef enum slm_log_level {
    SLM_LOG_DEBUG,
    SLM_LOG_INFO,
    SLM_LOG_WARN,
    SLM_LOG_ERROR,  /* details of an error that follows and that its message cannot hold */
} slm_log_level;
typedef void slm_log_fn(void *arg, slm_log_level level, const char *line);

/* Sends log lines to fn (NULL: drop them, which is the default).  Set it before
 * other calls; it is process-wide and may be called from any thread. */
SLM_API void slm_log_set(slm_log_fn *fn, void *arg);

/* ---- engine --------------------------------------------------------------- */

typedef struct slm_engine slm_engine;

typedef struct slm_engine_params {
    int threads;  /* 0: as many as there are usable cores */
} slm_engine_params;

/* params may be NULL for the defaults.  The caller frees with slm_engine_free,
 * after all models of the engine. */
SLM_API slm_engine *slm_engine_new(const slm_engine_params *params, slm_error *err);
SLM_API void slm_engine_free(slm_engine *engine);
SLM_API int slm_engine_threads(const slm_engine *engine);

/* ---- model ---------------------------------------------------------------- */

typedef struct slm_model slm_model;

typedef enum slm_pack {
    SLM_PACK_AUTO,  /* in the background where memory allows */
    SLM_PACK_OFF,   /* use the weights as they lie in the file */
    SLM_PACK_WAIT,  /* before slm_model_open returns */
} slm_pack;

/* Weights that do not fit into memory are streamed: as much of them as fits is kept there, and
 * the rest read from the file in every step, ahead of its use. */
typedef struct slm_model_params {
    slm_pack pack;            /* never changes a result, only speed and memory */
    bool     vocab_only;      /* tokenizer and template only; no session can be made */
    bool     meta_only;       /* metadata and tensor list only; works for any valid file */
    const char *chat_template;/* Jinja text used instead of the file's, or NULL */
    uint64_t memory_bytes;    /* that this process may use with this model and its sessions; 0:
                               * what is free */
    bool     no_stream;       /* weights stay mapped whatever their size: the operating system
                               * decides what of them is in memory */
    const struct slm_session_params *session;  /* the session that room is left for; NULL: one of
                               * defaults */
} slm_model_params;

/* Opens a GGUF file (the first shard of a split one).  params may be NULL.
 * The engine must outlive the model.  Free with slm_model_free, after all its
 * sessions and samplers. */
SLM_API slm_model *slm_model_open(slm_engine *engine, const char *path,
                                  const slm_model_params *params, slm_error *err);
SLM_API void slm_model_free(slm_model *model);

typedef struct slm_model_info {
    const char *arch;       /* general.architecture */
    const char *name;       /* general.name or "" */
    uint64_t file_bytes;    /* all shards */
    uint64_t weight_bytes;  /* tensor data */
    uint64_t n_params;      /* weights, counted one by one */
    uint64_t token_bytes;   /* weights read for a generated token: the experts in use, and the
                             * embeddings only where they are the output too; 0: no shapes */
    uint64_t prompt_params; /* weights multiplied with each token of a prompt; 0: no shapes */
    int n_layer, n_embd, n_head, n_head_kv, n_vocab;
    int context_max;        /* tokens the model was trained for */
    int bos, eos;           /* token ids or -1 */
    bool add_bos;           /* whether text starts with bos when asked for special tokens */
    bool has_template;      /* whether slm_render works */
} slm_model_info;

/* Strings live as long as the model. */
SLM_API void slm_model_info_get(const slm_model *model, slm_model_info *out);

/* One metadata entry, values printed as text; arrays as their first elements
 * and count.  False past the end.  Strings live until the next call. */
SLM_API bool slm_model_meta(slm_model *model, size_t i, const char **key, const char **type,
                            const char **value);

/* Measures from now on, from zero, where the time of the model's steps goes. */
SLM_API bool slm_model_profile(slm_model *model, slm_error *err);

typedef struct slm_profile_row {
    const char *name;         /* matrices, "attention", ..; the last one is everything else */
    double seconds;           /* of the thread that runs the steps */
    uint64_t calls, bytes;    /* bytes: of weights used */
} slm_profile_row;

/* Row i of what was measured in *out; false past the end.  The name lives until the next step. */
SLM_API bool slm_model_profile_row(const slm_model *model, size_t i, slm_profile_row *out);

/* Metadata entry by key, as text; NULL where there is none.  Lives until the next call. */
SLM_API const char *slm_model_meta_find(slm_model *model, const char *key);

typedef struct slm_tensor_info {
    const char *name, *type;  /* type: "Q4_K" */
    int n_dims;
    int64_t dims[4];          /* fastest first, as in the file */
    uint64_t bytes;
} slm_tensor_info;

/* Tensor i in file order; false past the end. */
SLM_API bool slm_model_tensor(const slm_model *model, size_t i, slm_tensor_info *out);

typedef enum slm_kv_type { SLM_KV_F16, SLM_KV_F32, SLM_KV_Q8_0 } slm_kv_type;

typedef struct slm_forecast {
    uint64_t weights_bytes, kv_bytes, work_bytes, total_bytes;
    uint64_t free_bytes;      /* that there are for the total */
    uint64_t pinned_bytes;    /* weights kept in memory where not all fit, ... */
    uint64_t streamed_bytes;  /* ... and read from the file for every token; 0: all fit */
} slm_forecast;

/* Memory that a session of `context` tokens needs, model included.  Where weights are streamed, or
 * would be were the model not opened with no_stream, the total counts what is kept in memory. */
SLM_API bool slm_model_forecast(const slm_model *model, int context, slm_kv_type kv,
                                slm_forecast *out, slm_error *err);

/* ---- text ----------------------------------------------------------------- */

/* Tokens of `text` (n bytes).  add_special adds what the model wants at the
 * start and end; parse_special lets control tokens written out in the text
 * become tokens (never do that with text from strangers).  The ids are
 * *ids[0..*n_ids), freed by the caller with slm_free. */
SLM_API bool slm_tokenize(const slm_model *model, const char *text, size_t n, bool add_special,
                          bool parse_special, int32_t **ids, size_t *n_ids, slm_error *err);

/* Bytes of one token; they may be a part of a character.  Control tokens are
 * empty unless `special`.  Returns the length; the bytes live as long as the
 * model.  NULL and 0 for an id out of range. */
SLM_API const char *slm_piece(const slm_model *model, int32_t id, bool special, size_t *n);

/* The text of the ids as one sequence, NUL-terminated, freed by the caller with
 * slm_free; *n (may be NULL) gets its length. */
SLM_API char *slm_detokenize(const slm_model *model, const int32_t *ids, size_t n_ids, bool special,
                             size_t *n, slm_error *err);

/* Whether the token ends an answer. */
SLM_API bool slm_is_end(const slm_model *model, int32_t id);

/* Renders the chat template.  `messages` is a JSON array of objects with role
 * and content; `tools` a JSON array or NULL; `variables` a JSON object of
 * further template variables (enable_thinking, reasoning_effort, ...) or NULL.
 * add_generation_prompt opens the assistant's turn.  The text is freed by the
 * caller with slm_free.  Tokenize it with slm_render_tokens, so that texts
 * of the messages never become control tokens. */
SLM_API char *slm_render(const slm_model *model, const char *messages, const char *tools,
                         const char *variables, bool add_generation_prompt, slm_error *err);

/* Renders and tokenizes: what the template itself wrote may become control
 * tokens, what came out of the messages never does.  The beginning-of-text
 * token is there once whether or not the template wrote it.  *text (may be
 * NULL) gets the rendered text.  Free both with slm_free. */
SLM_API bool slm_render_tokens(const slm_model *model, const char *messages, const char *tools,
                               const char *variables, bool add_generation_prompt, int32_t **ids,
                               size_t *n_ids, char **text, slm_error *err);

/* Frees what the calls above returned. */
SLM_API void slm_free(void *p);

/* ---- session ---------------------------------------------------------------- */

typedef struct slm_session slm_session;

/* Where drafts come from: tokens guessed ahead and verified together in one step.  A draft is
 * kept exactly when it equals the token that the sampler draws at its position, so drafts never
 * change an answer, only its speed. */
typedef enum slm_draft_kind {
    SLM_DRAFT_OFF,
    SLM_DRAFT_NGRAM,  /* what followed the last tokens when they came before */
    SLM_DRAFT_MTP,    /* the model's own draft block, or that of `model` */
    SLM_DRAFT_MODEL,  /* a smaller model with the same vocabulary */
} slm_draft_kind;

typedef struct slm_drafting {
    slm_draft_kind kind;
    int max;                  /* tokens drafted per step at most, 1 to 16; 0: 3 */
    struct slm_model *model;  /* for SLM_DRAFT_MODEL, and SLM_DRAFT_MTP where the block is in a
                               * file of its own; else NULL */
} slm_drafting;

typedef struct slm_session_params {
    int context;        /* tokens it can hold; 0: 4096, or the model's maximum where that is less.
                         * More than the maximum is allowed, but not what the model knows. */
    int chunk;          /* prompt tokens per step; 0: chosen by the library */
    slm_kv_type kv;
    slm_drafting draft;
} slm_session_params;

/* params may be NULL.  The session allocates everything here; a context that needs more
 * memory than is free is refused with the numbers (SLM_E_NOMEM). */
SLM_API slm_session *slm_session_new(slm_model *model, const slm_session_params *params,
                                     slm_error *err);
SLM_API void slm_session_free(slm_session *session);

/* Tokens that the session holds. */
SLM_API size_t slm_session_len(const slm_session *session);
SLM_API int slm_session_context(const slm_session *session);

/* Appends tokens and computes the logits after the last one. */
SLM_API bool slm_session_feed(slm_session *session, const int32_t *ids, size_t n, slm_error *err);

/* Brings the session to exactly these tokens (n >= 1), keeping the longest
 * common prefix and computing the rest.  *reused (may be NULL) gets the number
 * of tokens that needed no work. */
SLM_API bool slm_session_sync(slm_session *session, const int32_t *ids, size_t n, size_t *reused,
                              slm_error *err);

/* Drops all tokens from position n on.  Models with recurrent layers compute the tokens since the
 * last checkpoint before n again, and models with sliding windows all of them where n lies before
 * the window and the end of the last prompt, so this may take time and fail as a feed does. */
SLM_API bool slm_session_truncate(slm_session *session, size_t n, slm_error *err);

/* Called between steps of a long feed with the tokens done and the total;
 * false cancels, and the session holds what was done. */
typedef bool slm_progress_fn(void *arg, size_t done, size_t total);
SLM_API void slm_session_progress(slm_session *session, slm_progress_fn *fn, void *arg);

/* Raw logits [n_vocab] after the last token; NULL before the first feed and
 * after a truncate.  Valid until the session's next call. */
SLM_API const float *slm_session_logits(const slm_session *session);

/* Feeds like slm_session_feed and writes the logits after every one of the n
 * tokens to out [n][n_vocab]. */
SLM_API bool slm_session_score(slm_session *session, const int32_t *ids, size_t n, float *out,
                               slm_error *err);

/* Writes tokens, keys and values, states and logits to a file, and brings a session of the same
 * model file and KV type back to them without computing.  A file of another model, of another
 * version or with a wrong checksum is refused; the session is then as before. */
SLM_API bool slm_session_save(slm_session *session, const char *path, slm_error *err);
SLM_API bool slm_session_load(slm_session *session, const char *path, slm_error *err);

/* The pooled and normalised hidden row of the n tokens: out [n_embd].  Pooling is by the model's
 * metadata, else the mean over tokens.  The session is emptied before and after. */
SLM_API bool slm_session_embed(slm_session *session, const int32_t *ids, size_t n, float *out,
                               slm_error *err);

/* ---- sampling ----------------------------------------------------------------- */

typedef struct slm_sampler slm_sampler;

struct slm_bias {
    int32_t id;
    float bias;               /* -100 to 100 forbids and forces in effect; -INFINITY forbids */
};

/* Applied in this order: logit bias, penalties, DRY, top-k, temperature, typical, top-p, min-p,
 * XTC, draw; with Mirostat: logit bias, penalties, DRY, top-k, temperature, Mirostat, draw; at
 * temperature 0: logit bias, penalties, DRY, the most likely token.  Each sees the probabilities
 * of what those before it left, and leaves at least one token.  Ties go to the lower id
 * everywhere.
 *
 * A draw is a function of the logits, the tokens before it, the settings, seed, choice and
 * position, so drafts and repetitions give the same tokens.  Mirostat's state is one too: it
 * begins anew at each token whose predecessor this sampler did not draw after the same tokens (so
 * at each answer, and after going back more than 8192 tokens inside one).
 *
 * Begin with slm_sampling_default: all zero is not neutral. */
typedef struct slm_sampling {
    float temperature;        /* 0 to 100; 0: the most likely token */
    int   top_k;              /* the k most likely; 0: off */
    float top_p;              /* 0 to 1: the fewest tokens that have this probability together;
                               * 1: off */
    float min_p;              /* 0 to 1: those at least this fraction as likely as the most likely
                               * one; 0: off */
    float repeat_penalty;     /* 0.01 to 100; 1: off; logits of the last penalty_window tokens, the
                               * prompt's included, are divided by it where positive and
                               * multiplied where negative */
    float presence_penalty;   /* -100 to 100; 0: off; subtracted from the logits of these tokens */
    float frequency_penalty;  /* -100 to 100; 0: off; subtracted as often as the token is there */
    int   penalty_window;     /* tokens looked back at; 64 by default; -1: all */
    float typical_p;          /* 0 to 1: the fewest tokens of this probability together whose
                               * surprise is nearest to the expected one; 1: off */
    float xtc_probability;    /* 0 to 1: chance that all tokens of at least xtc_threshold but the
                               * least likely of them are left out; 0: off */
    float xtc_threshold;      /* 0 to 0.5; 0.1 by default */
    float dry_multiplier;     /* 0 to 100: a token that would continue a repetition of length n
                               * (more than 64 count as 64), n at least dry_allowed, loses
                               * multiplier * base^(n - allowed); 0: off */
    float dry_base;           /* 1 to 100; 1.75 by default */
    int   dry_allowed;        /* length of repetitions without penalty, 1 or more; 2 by default */
    int   dry_window;         /* tokens looked back at, the prompt's included; -1: all, the
                               * default */
    float mirostat_tau;       /* 0 to 100: surprise in bits that Mirostat 2 aims at, in place of
                               * typical-p, top-p, min-p and XTC; 0: off */
    float mirostat_eta;       /* 0 to 1: its learning rate; 0.1 by default */
    const struct slm_bias *logit_bias;  /* added to the logits first; n_logit_bias of them; copied
                                         * by what takes the settings */
    size_t n_logit_bias;
    uint64_t seed;
    uint64_t choice;          /* draws of different choices are independent */
} slm_sampling;

/* What the file recommends (general.sampling.*), else what the makers of its family recommend,
 * else temperature 0.6 and nothing else; seed 42.  model may be NULL. */
SLM_API void slm_sampling_default(const slm_model *model, slm_sampling *out);

/* Where these come from: "the file", "the family ..." or "no recommendation"; a constant. */
SLM_API const char *slm_sampling_origin(const slm_model *model);

/* sampling may be NULL for the defaults.  Fails with the name of a value that is out of
 * range. */
SLM_API slm_sampler *slm_sampler_new(const slm_model *model, const slm_sampling *sampling,
                                     slm_error *err);
SLM_API void slm_sampler_free(slm_sampler *sampler);

/* Draws the token that follows the session's last one and does not feed it.
 * The draw depends on the logits, the session's tokens, seed, choice and
 * position only. */
SLM_API bool slm_sample(slm_sampler *sampler, const slm_session *session, int32_t *id,
                        slm_error *err);

/* Draws the next token and as many further ones as drafts make cheap: 1 to cap tokens to ids, the
 * same as by slm_sample and slm_session_feed in turn.  The session holds them afterwards, with the
 * logits after the last one; a token that ends an answer is the last one and is not fed. */
SLM_API bool slm_decode(slm_session *session, slm_sampler *sampler, int32_t *ids, size_t cap,
                        size_t *n, slm_error *err);

typedef struct slm_draft_stats {
    uint64_t steps;     /* of slm_decode */
    uint64_t drafted, accepted;
    uint64_t tokens;    /* returned by slm_decode */
    uint64_t paused;    /* steps without drafts because they had been losing time */
} slm_draft_stats;

SLM_API void slm_session_draft_stats(const slm_session *session, slm_draft_stats *out);

/* ---- guided output ---------------------------------------------------------------- */

/* A language that answers must belong to, compiled for a model's vocabulary.  Immutable; may be
 * shared by samplers and requests, which must not outlive it. */
typedef struct slm_guide slm_guide;

typedef enum slm_guide_kind {
    SLM_GUIDE_SCHEMA,   /* a JSON schema; the text is JSON that it accepts */
    SLM_GUIDE_JSON,     /* any JSON object; no text */
    SLM_GUIDE_REGEX,    /* a regular expression that the whole answer matches */
    SLM_GUIDE_GRAMMAR,  /* a GBNF grammar */
    SLM_GUIDE_CHOICES,  /* a JSON array of strings, one of which is the answer */
} slm_guide_kind;

/* Fails naming what is not supported, for a schema with its JSON pointer. */
SLM_API slm_guide *slm_guide_new(slm_model *model, slm_guide_kind kind, const char *text, size_t n,
                                 slm_error *err);

/* Calls of the tools (a JSON array as the template gets it) in the form that the model's template
 * teaches, their arguments by the tools' schemas.  choice: "auto" (text, then calls if any),
 * "required", "none" or the name of a tool.  parallel allows more than one call. */
SLM_API slm_guide *slm_guide_tools(slm_model *model, const char *tools, const char *choice,
                                   bool parallel, slm_error *err);
SLM_API void slm_guide_free(slm_guide *guide);

/* From now on tokens at position `start` of the session and later follow the guide (NULL: none).
 * Where the language is complete only tokens that end an answer are left. */
SLM_API bool slm_sampler_guide(slm_sampler *sampler, const slm_guide *guide, size_t start,
                               slm_error *err);

/* ---- many sequences at once --------------------------------------------------------- */

/* Requests that share the steps of one model.  A request's tokens are the same alone or in
 * company, with its prompt cached or not.  Used by one thread. */
typedef struct slm_batch slm_batch;

typedef struct slm_batch_params {
    int context;           /* tokens of a request with its answer at most; 0: as for a session */
    int parallel;          /* requests computed at once; 0: 8 */
    int queue;             /* further requests that may wait; 0: 64 */
    int chunk;             /* prompt tokens per step, so that answers go on meanwhile; 0: chosen */
    slm_kv_type kv;
    uint64_t cache_bytes;  /* keys, values and states of all requests and of prompts kept for later
                            * ones: a hard bound, at least one request of full context; 0: enough
                            * for `parallel` requests within a quarter of the free memory */
    slm_drafting draft;    /* where few answers are computed; SLM_DRAFT_MODEL is not supported */
} slm_batch_params;

SLM_API slm_batch *slm_batch_new(slm_model *model, const slm_batch_params *params, slm_error *err);

/* Ends all requests as cancelled, without calling them. */
SLM_API void slm_batch_free(slm_batch *batch);

typedef enum slm_finish {
    SLM_FINISH_NONE,       /* not yet */
    SLM_FINISH_END,        /* the model ended its answer, or the guide is complete */
    SLM_FINISH_LENGTH,     /* max_tokens or the context */
    SLM_FINISH_STOPPED,    /* on_event returned false */
    SLM_FINISH_CANCELLED,
    SLM_FINISH_ERROR,
} slm_finish;

typedef struct slm_logprob {
    int32_t id;
    float logprob;         /* log-softmax of the raw logits */
} slm_logprob;

/* What a request is told after each of its tokens, and once more at its end. */
typedef struct slm_event {
    uint64_t request;
    int32_t id;                /* the token; with the end the one that ended the answer, or -1 */
    slm_finish finish;         /* SLM_FINISH_NONE with a token */
    const slm_error *error;    /* with SLM_FINISH_ERROR */
    slm_logprob chosen;        /* of the token, where log-probabilities were asked for */
    const slm_logprob *top;    /* the n_top most likely, best first; valid during the call */
    int n_top;
    size_t n_prompt, n_cached, n_out;  /* tokens so far: prompt, of it cached, answer without the
                                        * one that ended it */
    double queued_s, first_s;  /* seconds in the queue; from submission to the first token */
} slm_event;

/* False ends the request (SLM_FINISH_STOPPED), which it is told as any end.  May submit and cancel
 * requests; it is told of a cancelled one before the call that made the event returns. */
typedef bool slm_event_fn(void *arg, const slm_event *event);

typedef struct slm_request {
    const int32_t *ids;        /* the prompt, n_ids >= 1 tokens, copied */
    size_t n_ids;
    slm_sampling sampling;     /* its logit_bias is copied */
    const slm_guide *guide;    /* or NULL; must live until the request's end */
    int max_tokens;            /* of the answer; 0: what the context allows */
    int n_top;                 /* log-probabilities: -1 none, 0 the chosen token's, up to 20 more */
    bool ignore_end;           /* go on after tokens that end an answer */
    slm_event_fn *on_event;
    void *arg;
} slm_request;

/* Queues a request.  Fails with SLM_E_BUSY where the queue is full, SLM_E_CONTEXT where the prompt
 * leaves no room for a token, SLM_E_ARG with the name of a wrong value. */
SLM_API bool slm_batch_submit(slm_batch *batch, const slm_request *request, uint64_t *id,
                              slm_error *err);

/* The request's end is told during this call.  Nothing for an id that has ended. */
SLM_API void slm_batch_cancel(slm_batch *batch, uint64_t id);

/* One step for all: admits requests, computes a piece of their prompts and a token of each answer,
 * and tells them.  *more turns false when nothing is left to do.  Fails only where the batch can
 * not go on; faults of single requests end those. */
SLM_API bool slm_batch_step(slm_batch *batch, bool *more, slm_error *err);

typedef struct slm_batch_stats {
    int running, waiting;
    uint64_t steps, rows;              /* rows: tokens computed, prompts and answers */
    uint64_t prompt_tokens, cached_tokens, answer_tokens;
    uint64_t requests, finished, cancelled, failed;
    uint64_t cache_bytes, cache_bytes_max;  /* pages and states in use and their bound */
    slm_draft_stats draft;
} slm_batch_stats;

SLM_API void slm_batch_stats_get(const slm_batch *batch, slm_batch_stats *out);

/* ---- answers ------------------------------------------------------------------------ */

/* Splits the text of an answer into what it says, what it thinks and the tools it calls, as it
 * streams.  The form of each is recognised from the model's template; markup never shows. */
typedef struct slm_answer slm_answer;

typedef enum slm_part {
    SLM_PART_CONTENT,    /* text: a piece of the answer */
    SLM_PART_REASONING,  /* text: a piece of what comes before it */
    SLM_PART_TOOL,       /* text: name of the tool; call `index` begins */
    SLM_PART_ARGUMENTS,  /* text: a piece of the JSON arguments of call `index` */
    SLM_PART_TOOL_END,   /* call `index` is complete, and its arguments are a valid JSON object */
} slm_part;

/* text: n bytes, valid during the call, never cut inside a character.  False stops. */
typedef bool slm_part_fn(void *arg, slm_part part, int index, const char *text, size_t n);

/* prompt: the rendered prompt (it may end inside a thinking span), or NULL.  tools: whether calls
 * are looked for. */
SLM_API slm_answer *slm_answer_new(const slm_model *model, const char *prompt, bool tools,
                                   slm_part_fn *fn, void *arg, slm_error *err);
SLM_API void slm_answer_free(slm_answer *answer);

/* The tools, a JSON array as the template gets it; before the first push.  Where they are known,
 * arguments that a model writes as plain text get the types of the schemas, and text that only
 * looks like a call is one only with the name of a tool. */
SLM_API bool slm_answer_tools(slm_answer *answer, const char *tools, slm_error *err);

/* Text as slm_stream_push gives it, but with special tokens written out (slm_stream_special). */
SLM_API bool slm_answer_push(slm_answer *answer, const char *text, size_t n, slm_error *err);

/* At the end: what was held back.  A call that was cut off or whose arguments are not JSON has no
 * SLM_PART_TOOL_END, does not count, and comes out as content the way the model wrote it. */
SLM_API bool slm_answer_finish(slm_answer *answer, slm_error *err);

/* ---- quantising ----------------------------------------------------------------------- */

/* Writes the model at `in` with its matrices in another type or mix ("Q4_K_M", "Q8_0", ...) to
 * `out`, tensor by tensor.  Fails without leaving a file. */
SLM_API bool slm_quantize(slm_engine *engine, const char *in, const char *out, const char *type,
                          slm_progress_fn *fn, void *arg, slm_error *err);

/* Names that slm_quantize knows, separated by ", ". */
SLM_API const char *slm_quantize_types(void);

/* ---- streaming text ------------------------------------------------------------- */

typedef struct slm_stream slm_stream;

/* Collects tokens of one answer into text that never ends inside a character and
 * stops before any of the stop strings (n_stops of them, copied). */
SLM_API slm_stream *slm_stream_new(const slm_model *model, const char *const *stops, size_t n_stops,
                                   slm_error *err);
SLM_API void slm_stream_free(slm_stream *stream);

/* Whether control tokens are written out as text, as slm_answer needs; before the first push. */
SLM_API void slm_stream_special(slm_stream *stream, bool special);

/* Adds a token.  *text gets the bytes that are certain now (may be 0), valid
 * until the next call.  *stopped turns true when a stop string was found. */
SLM_API bool slm_stream_push(slm_stream *stream, int32_t id, const char **text, size_t *n,
                             bool *stopped, slm_error *err);

/* What was held back, when the answer ends; a cut character becomes U+FFFD. */
SLM_API bool slm_stream_finish(slm_stream *stream, const char **text, size_t *n, slm_error *err);

#ifdef __cplusplus
}
#endif
#endif

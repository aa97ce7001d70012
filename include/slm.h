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

typedef struct slm_model_params {
    slm_pack pack;            /* never changes a result, only speed and memory */
    bool     vocab_only;      /* tokenizer and template only; no session can be made */
    bool     meta_only;       /* metadata and tensor list only; works for any valid file */
    const char *chat_template;/* Jinja text used instead of the file's, or NULL */
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

typedef enum slm_kv_type { SLM_KV_F16, SLM_KV_F32 } slm_kv_type;

typedef struct slm_forecast {
    uint64_t weights_bytes, kv_bytes, work_bytes, total_bytes;
} slm_forecast;

/* Memory that a session of `context` tokens needs, model included. */
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

typedef struct slm_session_params {
    int context;        /* tokens it can hold; 0: 4096, or the model's maximum where that is less.
                         * More than the maximum is allowed, but not what the model knows. */
    int chunk;          /* prompt tokens per step; 0: chosen by the library */
    slm_kv_type kv;
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
 * last checkpoint before n again, so this may take time and fail as a feed does. */
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

/* ---- sampling ----------------------------------------------------------------- */

typedef struct slm_sampler slm_sampler;

/* Applied in this order: penalties, top-k, temperature, top-p, min-p, draw.  Ties go
 * to the lower id everywhere.  Top-p and min-p see the probabilities of what the steps
 * before them left. */
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
    uint64_t seed;
    uint64_t choice;          /* draws of different choices are independent */
} slm_sampling;

/* The file's recommendation where it has one, else temperature 0.6 and nothing
 * else; seed 42. */
SLM_API void slm_sampling_default(const slm_model *model, slm_sampling *out);

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

/* ---- streaming text ------------------------------------------------------------- */

typedef struct slm_stream slm_stream;

/* Collects tokens of one answer into text that never ends inside a character and
 * stops before any of the stop strings (n_stops of them, copied). */
SLM_API slm_stream *slm_stream_new(const slm_model *model, const char *const *stops, size_t n_stops,
                                   slm_error *err);
SLM_API void slm_stream_free(slm_stream *stream);

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

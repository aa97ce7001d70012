/* request.h - what a client wants generated, whatever interface it used. */
#ifndef REQUEST_H
#define REQUEST_H

#include <jansson.h>

#include "server/engine.h"
#include "server/fault.h"

enum { STOPS_MAX = 4, TOP_MAX = 20, BIAS_MAX = 1024 };

struct request {
    json_t *body;              /* owns the strings below */
    struct served *served;     /* acquired */
    slm_model *model;
    slm_sampling sampling;
    struct slm_bias *bias;     /* sampling.logit_bias */
    int n;                     /* choices */
    int max_tokens;            /* 0: what the context allows */
    bool stream, include_usage, has_stream_options;
    const char *stops[STOPS_MAX];
    size_t n_stops;
    bool logprobs;
    int n_top;                 /* alternatives per token, with logprobs */
    json_t *messages;          /* array of at least one, or NULL; borrowed */
    json_t *tools;             /* array or NULL */
    const char *tool_choice;   /* "auto", "none", "required" or a name */
    bool parallel_tools;
    json_t *variables;         /* of the template; owned */
    json_t *owned;             /* messages as the interfaces' readers make them */
    json_t *owned_tools;       /* the same for tools, or NULL */
    bool any_object;           /* response_format json_object */
    json_t *schema;            /* of the answer, or NULL */
    json_t *prompt;            /* of a completion */
    bool add_special, parse_special;  /* of a text to be tokenized */
    bool base64;               /* of an embedding */
    bool truncate;             /* drop the oldest turns where the prompt is too long */
};

struct reader {
    struct request *r;
    struct fault *fault;
};

/* A field of a request's body.  read gets values that are not null. */
struct field {
    const char *name;
    bool (*read)(struct reader *rd, const struct field *f, json_t *value);
    size_t offset;             /* into struct request */
    double min, max;
};

/* Finds and opens the model, fills in defaults, reads all fields by the table (ended by a NULL
 * name) and refuses unknown ones.  Takes body over.  On failure *fault says why; call request_deinit
 * in any case. */
bool request_read(struct request *r, struct engine *e, json_t *body, const struct field *fields,
                  struct fault *fault);
void request_deinit(struct request *r);

/* ---- readers for tables -------------------------------------------------------------------- */

bool read_bool(struct reader *rd, const struct field *f, json_t *v);
bool read_int(struct reader *rd, const struct field *f, json_t *v);
bool read_float(struct reader *rd, const struct field *f, json_t *v);
bool read_seed(struct reader *rd, const struct field *f, json_t *v);
bool read_stop(struct reader *rd, const struct field *f, json_t *v);
bool read_bias(struct reader *rd, const struct field *f, json_t *v);
bool read_messages(struct reader *rd, const struct field *f, json_t *v);
bool read_tools(struct reader *rd, const struct field *f, json_t *v);
bool read_effort(struct reader *rd, const struct field *f, json_t *v);
bool read_kwargs(struct reader *rd, const struct field *f, json_t *v);
bool read_stream_options(struct reader *rd, const struct field *f, json_t *v);
bool read_truncation(struct reader *rd, const struct field *f, json_t *v);
/* Any string, and any value at all: fields without effect on an answer. */
bool read_label(struct reader *rd, const struct field *f, json_t *v);
bool read_ignored(struct reader *rd, const struct field *f, json_t *v);
/* Only false. */
bool read_false(struct reader *rd, const struct field *f, json_t *v);

/* Fields that every interface for answers has: sampling beyond what its own table names. */
#define SAMPLING_FIELDS                                                                        \
    { "top_k", read_int, offsetof(struct request, sampling.top_k), 0, 1 << 20 },               \
    { "min_p", read_float, offsetof(struct request, sampling.min_p), 0, 1 },                   \
    { "typical_p", read_float, offsetof(struct request, sampling.typical_p), 0, 1 },           \
    { "repeat_penalty", read_float, offsetof(struct request, sampling.repeat_penalty), 0.01,   \
      100 },                                                                                   \
    { "repetition_penalty", read_float, offsetof(struct request, sampling.repeat_penalty),     \
      0.01, 100 },                                                                             \
    { "seed", read_seed, offsetof(struct request, sampling.seed), 0, 0 }

/* Checks and normalises one message: a plain text instead of parts, "" for an absent content.
 * where: "messages[3]"; a new reference, or NULL and a fault. */
json_t *request_message(json_t *message, const char *where, struct fault *fault);

/* "a, b or c is missing" and the like are the callers'; this is the wrong type of a field. */
bool wrong_type(struct reader *rd, const struct field *f, const char *want);

#endif

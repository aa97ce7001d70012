/* gen.h - a request being answered: from its prompt to text, thoughts and tool calls.
 *
 * What the interfaces have in common.  Each of them is a table of functions that turn the
 * pieces into its own JSON, whole or streamed. */
#ifndef GEN_H
#define GEN_H

#include "server/http.h"
#include "server/request.h"

struct gen;

struct gen_call {
    char id[32];
    struct buf name, arguments;
    bool complete;
};

/* One choice of the answer. */
struct gen_choice {
    struct gen *gen;
    int index;                /* among all choices */
    struct job job;
    slm_stream *stream;
    slm_answer *answer;       /* NULL: plain text */
    struct buf content, reasoning;
    struct gen_call *calls;
    int n_calls;
    json_t *logprobs;         /* array of what the interface makes of a token, not yet sent where
                               * streaming */
    const char *finish;       /* "stop", "length", "tool_calls"; NULL: not yet */
    const char *stop;         /* the stop text that ended it, or NULL */
    bool stopped, ended;      /* by a stop text; by the engine */
    size_t n_prompt, n_cached, n_out, n_reasoning;
    struct buf raw;           /* text of the tokens, where it must be known which stop text came */
    bool began;               /* accepted; then for the interface's use while streaming */
    bool open;                /* the same, for interfaces whose streams have blocks: one is open, */
    slm_part open_part;       /* of this kind */
    int open_call;            /* and of this call */
    int n_blocks;             /* opened so far; the open one is the last */
};

struct gen_interface {
    const char *id_prefix;
    bool answers;             /* split into content, reasoning and calls; else plain text */
    /* ---- whole ---- */
    json_t *(*whole)(struct gen *g);
    /* ---- streamed: each appends events to out ---- */
    void (*begin)(struct gen *g, struct buf *out);  /* or NULL */
    void (*part)(struct gen *g, struct gen_choice *c, slm_part part, int call, const char *text,
                 size_t n, struct buf *out);
    void (*end_choice)(struct gen *g, struct gen_choice *c, struct buf *out);
    void (*end)(struct gen *g, struct buf *out);
    void (*fail)(struct gen *g, const struct fault *f, struct buf *out);
    /* A token's log-probabilities; new reference. */
    json_t *(*logprob)(struct gen *g, const struct job_event *ev);
};

struct gen {
    struct http *http;
    struct engine *engine;
    const struct gen_interface *interface;
    struct request r;
    char id[40];
    long created;
    struct inbox inbox;
    bool has_inbox;
    slm_guide *guide;
    struct gen_choice *choices;
    int n_choices, n_open;    /* open: whose JOB_END has not come */
    int32_t **prompts;        /* [n_prompts] tokens of each */
    size_t *n_prompt_ids;
    int n_prompts;
    char *prompt_text;        /* of a chat, as rendered */
    struct buf *out;          /* of the stream, during a call of next */
    bool streaming, began, done;
    int n_events;             /* for interfaces that number them */
    struct fault fault;       /* of a choice */
};

/* Answers h with one JSON object or a stream.  r is taken over; its prompts are those of
 * r->messages, rendered, or of r->prompt. */
void gen_answer(struct http *h, const struct gen_interface *interface, struct request *r);

/* Tokens of all prompts, of them cached, of all answers, and of their reasoning. */
struct gen_usage { size_t prompt, cached, answer, reasoning; };
struct gen_usage gen_usage(const struct gen *g);

/* Appends "data: JSON\n\n", with "event: NAME" in front where name is not NULL; frees value. */
void gen_event(struct buf *out, const char *name, json_t *value);

/* {"role": .. } pieces that several interfaces use: the text of a buffer, invalid UTF-8 replaced. */
json_t *gen_text(const struct buf *text);

/* Renders and tokenizes r->messages, dropping the oldest turns where r->truncate and the prompt has
 * more than limit tokens.  Free *ids and *text (may be NULL) with slm_free. */
bool gen_render(struct request *r, size_t limit, int32_t **ids, size_t *n, char **text,
                struct fault *fault);

#endif

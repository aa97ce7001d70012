/* chat.h - a conversation: its messages, its session, and one answer after the other. */
#ifndef CHAT_H
#define CHAT_H

#include <jansson.h>

#include "app/gen_opts.h"

struct chat {
    struct gen_opts *o;
    const char *model;
    struct gen gen;
    slm_session *session;
    slm_sampling sampling;
    json_t *messages;         /* role and content; a system message is the first */
    bool colors, terminal;    /* of standard output */

    /* The last answer. */
    size_t n_prompt, n_reused, n_out;
    double prompt_s, decode_s;
    const char *finish;       /* "stop", "length", "interrupted" */
};

/* Opens model and session; messages begin with --system.  A failed chat may be closed. */
bool chat_open(struct chat *c, struct gen_opts *o, const char *model, const struct buf *template,
               slm_error *err);
void chat_close(struct chat *c);

/* Puts a system message in front, or takes it away where the text is empty. */
bool chat_system(struct chat *c, const char *text, slm_error *err);

/* Messages behind the system message. */
size_t chat_length(const struct chat *c);

/* Drops all but the system message. */
void chat_clear(struct chat *c);

/* Takes the last question and its answer away; the question's text (free with mem_free), or NULL
 * where there is none. */
char *chat_undo(struct chat *c);

/* Adds a question, answers it on standard output and adds the answer.  On failure the
 * conversation is as before.  `again`: how many answers to this question there were before, so
 * that this one is another. */
bool chat_ask(struct chat *c, const char *text, int again, slm_error *err);

/* Writes the messages to `path`, and what was computed for them beside it, to `path`.kv; and
 * back.  Messages can be loaded without the other file, they are then computed anew. */
bool chat_save(struct chat *c, const char *path, slm_error *err);
bool chat_load(struct chat *c, const char *path, slm_error *err);

/* Ctrl-C: from now on it ends an answer, not the program. */
void chat_catch_interrupt(void);

#endif

/* session.h - one timeline of tokens: its pages, its logits, sync to a prompt.
 *
 * Used by one thread at a time.  The model must outlive it. */
#ifndef SESSION_H
#define SESSION_H

#include <pthread.h>

#include "model/model.h"

struct session;

struct session_params {
    int context;       /* tokens, 1..; the session can hold that many */
    int chunk;         /* prompt tokens per step; 0: chosen */
    int checkpoints;   /* of recurrent layers' states, to go back to; 0: chosen */
    int trial;         /* tokens that session_try takes at most; 0: it is not used */
    bool rows;         /* session_follow is told hidden rows */
    enum kv_type kv;
    pthread_mutex_t *step_lock;  /* held during each step; NULL: none.  Sessions that share a
                                  * pool share this, and take turns between steps. */
};

/* Bytes a session with these parameters will allocate, by kind; SIZE_MAX where that
 * does not fit.  States of recurrent layers and their checkpoints are work. */
struct session_cost { uint64_t kv_bytes, work_bytes; };
struct session_cost session_cost(const struct model *m, const struct session_params *p);

/* Allocates pages for the whole context, scratch and the token list; nothing is
 * allocated later. */
struct session *session_new(struct model *m, const struct session_params *p, slm_error *err);
void session_free(struct session *s);

int session_len(const struct session *s);
int session_context(const struct session *s);
int session_n_vocab(const struct session *s);
const int32_t *session_tokens(const struct session *s);  /* [session_len] */

/* Appends n tokens, computing in chunks.  Where a step fails or progress cancels,
 * the session holds the tokens that were done, without logits; with recurrent layers a failed
 * step takes it back to a checkpoint. */
bool session_feed(struct session *s, const int32_t *ids, size_t n, slm_error *err);

/* Feeds and writes logits of every one of the n tokens to out [n][n_vocab]. */
bool session_score(struct session *s, const int32_t *ids, size_t n, float *out, slm_error *err);

/* Keeps the longest common prefix with ids (at most n - 1 tokens unless the logits
 * of exactly these tokens are at hand; with recurrent layers as far as a checkpoint, with sliding
 * ones as far as their window is there) and feeds the rest. */
bool session_sync(struct session *s, const int32_t *ids, size_t n, size_t *reused, slm_error *err);

/* Drops the tokens from n on.  Recurrent layers compute from the last checkpoint before them
 * again, and sliding ones from the beginning where their window has gone too far; either may fail
 * as a feed does. */
bool session_truncate(struct session *s, size_t n, slm_error *err);

/* Writes tokens, pages, states and logits to a file.  What a session that loads it computes is what
 * this one would. */
bool session_save(struct session *s, const char *path, slm_error *err);

/* Brings the session to what was saved of one with the same model file and KV type.  Any other
 * file is refused, and the session is then as before. */
bool session_load(struct session *s, const char *path, slm_error *err);

/* The same from n bytes of memory. */
bool session_load_mem(struct session *s, const void *data, size_t n, slm_error *err);

/* How the hidden rows of a text become one. */
enum pooling { POOL_MEAN, POOL_FIRST, POOL_LAST };

/* Empties the session, feeds the n >= 1 tokens, and writes their pooled hidden row, of length one,
 * to out [n_embd]; then empties it again. */
bool session_embed(struct session *s, const int32_t *ids, size_t n, enum pooling pooling,
                   float *out, slm_error *err);

/* [n_vocab] after the last token, or NULL. */
const float *session_logits(const struct session *s);

/* Computes n tokens, 1 to the trial of the parameters, that are not wanted for certain.  Returns
 * the logits after each, [n][n_vocab], until the next call; NULL on failure, and the session is
 * then as before.  After success session_keep is the next call; until then session_tokens shows
 * these n tokens behind its others. */
const float *session_try(struct session *s, const int32_t *ids, int n, slm_error *err);

/* Appends the first n_keep >= 1 tokens of a try, just as if they had been fed. */
void session_keep(struct session *s, int n_keep);

/* Shows a token behind the others, in session_tokens only; there must be room. */
void session_show_next(struct session *s, int32_t id);

/* Makes going back to where the session stands cheap.  It must have logits. */
void session_mark(struct session *s);

/* Told what is appended in every way: n tokens from position pos0 on, and where the parameters ask
 * for it `rows` [n + 1][n_embd], the hidden row before each of them and that of the last one; zeros
 * where it is not known.  pos0 is less than where the last call ended when tokens were dropped in
 * between; n is 0 where all were replaced by others. */
typedef void session_follow_fn(void *arg, const int32_t *ids, int n, int pos0, const float *rows);
void session_follow(struct session *s, session_follow_fn *fn, void *arg);

/* Called after each step of a feed but the last; false cancels. */
typedef bool session_progress_fn(void *arg, size_t done, size_t total);
void session_progress(struct session *s, session_progress_fn *fn, void *arg);

#endif

/* vocab.h - pieces and ids, special tokens, what ends an answer, streaming text. */
#ifndef VOCAB_H
#define VOCAB_H

#include "base/buf.h"
#include "base/error.h"
#include "gguf/gguf.h"
#include "text/span.h"

struct vocab;

/* Reads the tokenizer.* metadata; g must outlive it.  A tokenizer kind or
 * pre-tokeniser that is not supported is refused by name. */
struct vocab *vocab_new(const struct gguf *g, slm_error *err);
void vocab_free(struct vocab *v);

int vocab_size(const struct vocab *v);
int vocab_bos(const struct vocab *v);   /* -1: none */
int vocab_eos(const struct vocab *v);
bool vocab_add_bos(const struct vocab *v);
bool vocab_is_end(const struct vocab *v, int32_t id);

/* Bytes of a token; see slm_piece.  Valid as long as the vocabulary. */
const char *vocab_piece(const struct vocab *v, int32_t id, bool special, size_t *n);

/* Appends the text of the ids as one sequence. */
bool vocab_detokenize(const struct vocab *v, const int32_t *ids, size_t n_ids, bool special,
                      struct buf *out, slm_error *err);

struct ids {
    int32_t *data;  /* mem_alloc'ed */
    size_t n, cap;
};
void ids_deinit(struct ids *ids);

/* Appends the tokens of text.  Linear in time apart from a logarithm, with a stack
 * that does not depend on the text. */
bool tok_encode(const struct vocab *v, const char *text, size_t n, bool add_special,
                bool parse_special, struct ids *out, slm_error *err);

/* The same for rendered chat text: bytes inside the spans (ascending, disjoint,
 * [begin, end)) came from strangers and never become control tokens; outside they do.
 * A beginning-of-text token that the text already has is not added again. */
bool tok_encode_spans(const struct vocab *v, const char *text, size_t n, bool add_special,
                      const struct span *spans, size_t n_spans, struct ids *out, slm_error *err);

/* ---- streaming ------------------------------------------------------------------ */

struct detok;

struct detok *detok_new(const struct vocab *v, const char *const *stops, size_t n_stops,
                        slm_error *err);
void detok_free(struct detok *d);
/* Control tokens become text from now on, or nothing. */
void detok_special(struct detok *d, bool special);
/* See slm_stream_push and slm_stream_finish. */
bool detok_push(struct detok *d, int32_t id, const char **text, size_t *n, bool *stopped,
                slm_error *err);
bool detok_finish(struct detok *d, const char **text, size_t *n, slm_error *err);

#endif

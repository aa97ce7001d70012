/* guide.h - languages that answers must belong to, and the tokens they allow.
 *
 * A guide is a grammar with its automaton over the tokens of a vocabulary.  It may be
 * used by several matchers at once, from several threads; each matcher follows one
 * answer.
 *
 * In the bytes that a guide reads a control token is GUIDE_CONTROL and its text, so that
 * no other token can be taken for it. */
#ifndef GUIDE_H
#define GUIDE_H

#include "guide/grammar.h"
#include "text/vocab.h"

/* Never a byte of UTF-8. */
#define GUIDE_CONTROL "\xFF"

/* ---- the tokens ------------------------------------------------------------------------ */

/* The tokens of a vocabulary by their bytes.  Immutable. */
struct guide_vocab;

/* v must outlive it. */
struct guide_vocab *guide_vocab_new(const struct vocab *v, slm_error *err);
void guide_vocab_free(struct guide_vocab *t);

/* Whether the vocabulary has a control token of this text. */
bool guide_vocab_has_control(const struct guide_vocab *t, const char *text);

/* ---- guides ---------------------------------------------------------------------------- */

struct guide;

/* The languages; each adds expressions to g and gives the root in *root.  See docs/guided.md for
 * what they understand; what they do not is refused with its place. */
bool guide_schema(struct grammar *g, const char *json, size_t n, gram_expr *root, slm_error *err);
bool guide_json(struct grammar *g, gram_expr *root, slm_error *err);
bool guide_regex(struct grammar *g, const char *text, size_t n, gram_expr *root, slm_error *err);
bool guide_gbnf(struct grammar *g, const char *text, size_t n, gram_expr *root, slm_error *err);
bool guide_choices(struct grammar *g, const char *json, size_t n, gram_expr *root,
                   slm_error *err);

/* A guide of the grammar, which it takes over whether or not it succeeds.  t must outlive it. */
struct guide *guide_new(const struct guide_vocab *t, struct grammar *g, gram_expr root,
                        slm_error *err);
void guide_free(struct guide *guide);

/* Whether the text (n bytes) belongs to the language. */
bool guide_accepts(struct guide *guide, const char *text, size_t n, bool *accepts,
                   slm_error *err);

/* ---- matchers -------------------------------------------------------------------------- */

struct guide_matcher;

/* guide must outlive it. */
struct guide_matcher *guide_matcher_new(struct guide *guide, slm_error *err);
void guide_matcher_free(struct guide_matcher *m);

/* Sets a bit for every token that may follow ids[0..n), the answer so far, and clears the others:
 * bits [vocab_size / 64 rounded up].  Where the answer may end these are also the tokens that end
 * one.  The ids may be any others than those of the last call; what they share is not read again.
 * Fails where they are no beginning of the language.  `arg` is the matcher. */
bool guide_allow(void *arg, const int32_t *ids, size_t n, uint64_t *bits, slm_error *err);

/* The token after which the fewest bytes are missing, one that ends an answer where none is. */
bool guide_shortest(struct guide_matcher *m, const int32_t *ids, size_t n, int32_t *id,
                    slm_error *err);

/* Whether the answer so far is complete. */
bool guide_complete(struct guide_matcher *m, const int32_t *ids, size_t n, bool *complete,
                    slm_error *err);

#endif

/* pretok_ascii.h - cutting ASCII text 64 bytes at a time; internal to pretok.c.
 *
 * The classes of 64 bytes are bit masks, and where pieces start follows from a few dozen
 * operations on them, without a branch for each piece.  A block begins where a piece begins, so
 * nothing is carried from one to the next. */
#ifndef PRETOK_ASCII_H
#define PRETOK_ASCII_H

#include "text/pretok.h"

/* Up to 64 bytes from pos on, before the first that is not ASCII: a bit each, no bits behind. */
struct ascii_block {
    uint64_t letter, number, space, newline;  /* newlines are spaces as well */
    uint64_t blank;       /* U+0020 */
    uint64_t apostrophe;
    uint64_t punct;       /* what is no letter, number or space */
    bool ends;            /* the text ends here */
    const char *s;        /* the whole text */
    size_t pos, n;
};

void ascii_read(struct ascii_block *b, const char *s, size_t n, size_t pos);

/* For split_words with contractions and without slash or bare_punct, and for split_gpt2. */
ascii_fn ascii_words, ascii_gpt2;

/* Length of a contraction at pos, or 0.  Ignoring case covers the long s as well, the only other
 * letter that folds to one of these. */
size_t pretok_contraction(const char *s, size_t pos, size_t end, bool any_case);

#endif

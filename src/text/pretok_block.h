/* pretok_block.h - cutting text 64 bytes at a time; internal to pretok.c.
 *
 * The classes of 64 bytes are bit masks, and where pieces start follows from a few dozen
 * operations on them, without a branch for each piece.  A character of several bytes has the bit
 * of its class at its first byte.  A block begins where a piece begins, so nothing is carried from
 * one to the next. */
#ifndef PRETOK_BLOCK_H
#define PRETOK_BLOCK_H

#include "text/pretok.h"

/* Up to 64 bytes of valid UTF-8 from pos on, before the first number or space that is not ASCII: a
 * bit each, no bits behind. */
struct text_block {
    uint64_t letter, number, space, newline;  /* newlines are spaces as well */
    uint64_t blank;       /* U+0020 */
    uint64_t apostrophe;
    uint64_t punct;       /* what is no letter, number or space */
    uint64_t high;        /* not ASCII; the only mask with bits behind the end */
    uint64_t cont;        /* bytes behind the first of a character */
    bool ends;            /* the text ends here */
    const char *s;        /* the whole text */
    size_t pos, n;
};

/* letter: the classes that are letters, UC_LETTER among them. */
void block_read(struct text_block *b, const char *s, size_t n, size_t pos, unsigned letter);

/* For split_words with contractions and without slash or bare_punct, and for split_gpt2. */
block_fn block_words, block_gpt2;

/* Length of a contraction at pos, or 0.  Ignoring case covers the long s as well, the only other
 * letter that folds to one of these. */
size_t pretok_contraction(const char *s, size_t pos, size_t end, bool any_case);

#endif

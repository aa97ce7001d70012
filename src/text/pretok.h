/* pretok.h - cutting text into the pieces inside which a byte-level BPE merges.
 *
 * Every `tokenizer.ggml.pre` name stands for one or more regular expressions, applied one
 * after the other: each cuts every piece of the one before into its matches and the gaps
 * between them.  Here each expression is a hand-written function, linear in the text and
 * without recursion. */
#ifndef PRETOK_H
#define PRETOK_H

#include <stdint.h>

#include "base/buf.h"

enum { PRETOK_PASS_MAX = 5 };

enum {
    PRETOK_WHOLE = 1 << 0,   /* a piece that is a token is not merged (ignore_merges) */
    PRETOK_ADD_BOS = 1 << 1, /* text starts with bos where the file does not say */
    PRETOK_NO_BOS = 1 << 2,  /* a file without a bos id has none */
    PRETOK_NFC = 1 << 3,     /* the model's own tokenizer normalises to form C */
};

struct text_block;
struct split_opts;

/* Pieces in up to 64 bytes at once: a bit for each byte that is certain to start one.
 * What is not certain comes behind the last of them. */
typedef uint64_t block_fn(const struct text_block *b, const struct split_opts *o);

struct split_opts {
    unsigned letter;     /* class bits that make up words */
    int digits;          /* numbers in one piece; 0: none, INT_MAX: any */
    bool contractions;   /* 's 't 're 've 'm 'll 'd in either case */
    bool slash;          /* a slash may follow punctuation as a newline may */
    bool bare_punct;     /* newlines do not follow punctuation */
    const char *also;    /* ASCII characters that count as well */
    block_fn *block;     /* for many pieces at once; NULL: there is none */
};

/* The end of the piece that starts at pos < end of valid UTF-8. */
typedef size_t split_fn(const char *s, size_t pos, size_t end, const struct split_opts *o);

struct pretok {
    const char *names;   /* separated by spaces */
    unsigned flags;
    struct pass {
        split_fn *fn;
        struct split_opts o;
    } pass[PRETOK_PASS_MAX + 1]; /* ends with NULL */
};

/* NULL for a name that is not supported. */
const struct pretok *pretok_find(const char *name, size_t n);

/* Row i of the table, NULL past the end. */
const struct pretok *pretok_at(size_t i);

/* Appends all supported names, separated by commas. */
void pretok_list(struct buf *out);

/* The end of the piece that starts at pos < n.  cuts: state between calls, zeroed by the
 * caller before the first, which has pos = 0. */
size_t pretok_next(const struct pretok *p, const char *s, size_t n, size_t pos,
                   size_t cuts[PRETOK_PASS_MAX]);

/* The ends of at least one and at most PRETOK_CUT_MAX pieces from pos < n on, n below 2^32; returns
 * how many.  Not mixed with pretok_next on the same cuts. */
enum { PRETOK_CUT_MAX = 96 };

size_t pretok_cut(const struct pretok *p, const char *s, size_t n, size_t pos,
                  size_t cuts[PRETOK_PASS_MAX], uint32_t end[PRETOK_CUT_MAX]);

#endif

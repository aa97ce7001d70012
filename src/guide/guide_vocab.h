/* guide_vocab.h - the trie of a vocabulary, for mask.c and guide.c. */
#ifndef GUIDE_VOCAB_H
#define GUIDE_VOCAB_H

#include "guide/guide.h"

/* Nodes in the order of a depth-first walk; the root is node 0.  The tokens that end at node i
 * are order[token[i]..token[i + 1]). */
struct guide_vocab {
    const struct vocab *v;
    uint32_t n_nodes;
    unsigned char *byte;   /* on the way into the node */
    uint16_t *depth;       /* bytes from the root */
    uint32_t *skip;        /* the next node that is not below this one */
    uint32_t *token;       /* [n_nodes + 1] */
    int32_t *order;
    uint32_t depth_max;
    uint64_t *end;         /* bits of the tokens that end an answer */
    size_t words;          /* of a bitmap */
};

/* Bytes of a token as a guide reads them: `control` is set where GUIDE_CONTROL comes first.  0
 * bytes: the token is none of text. */
const char *guide_token(const struct vocab *v, int32_t id, size_t *n, bool *control);

#endif

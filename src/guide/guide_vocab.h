/* guide_vocab.h - the tries of a vocabulary, for mask.c and guide.c. */
#ifndef GUIDE_VOCAB_H
#define GUIDE_VOCAB_H

#include "guide/guide.h"

/* Bytes by which the tokens of a guide are told from the long ones: few have more (424 of the
 * 151,936 of Qwen 2.5). */
enum { GUIDE_NEAR = 24 };

/* Longer tokens are never allowed; none that a model was trained with is near it. */
enum { GUIDE_TOKEN_MAX = 4096, GUIDE_PATH = GUIDE_TOKEN_MAX + 1 };

/* Kinds of bytes, as bits.  The bytes of a longer character, which may be cut off at the end of a
 * token, are of one kind; those that are no UTF-8 at their place are broken. */
#define KIND_DIGIT       ((uint64_t)1 << 0)
#define KIND_UPPER       ((uint64_t)1 << 1)
#define KIND_LOWER       ((uint64_t)1 << 2)
#define KIND_CONTROL     ((uint64_t)1 << 3)
#define KIND_CHARACTER   ((uint64_t)1 << 4)
#define KIND_BROKEN      ((uint64_t)1 << 5)
#define KIND_FIRST_ALONE ((uint64_t)1 << 6)  /* the other bytes of ASCII, each a kind of its own */

/* Of a byte below 0x80. */
uint64_t guide_byte_kind(unsigned char b);

/* Nodes in the order of a depth-first walk; the root is node 0.  The tokens that end at node i
 * are order[token[i]..token[i + 1]). */
struct guide_trie {
    uint32_t n_nodes;
    unsigned char *byte;   /* on the way into the node */
    uint16_t *depth;       /* bytes from the root */
    uint32_t *skip;        /* the next node that is not below this one */
    uint64_t *below;       /* kinds of the bytes below it */
    uint32_t *token;       /* [n_nodes + 1] */
    int32_t *order;
    uint32_t depth_max;
};

struct guide_vocab {
    const struct vocab *v;
    struct guide_trie near;  /* tokens of up to GUIDE_NEAR bytes */
    struct guide_trie far;   /* the others */
    uint64_t *end;           /* bits of the tokens that end an answer */
    size_t words;            /* of a bitmap */
};

/* Bytes of a token as a guide reads them: `control` is set where GUIDE_CONTROL comes first.  0
 * bytes: the token is none of text. */
const char *guide_token(const struct vocab *v, int32_t id, size_t *n, bool *control);

#endif

/* tok.h - what the parts of the tokenizer share; internal to src/text.
 *
 * vocab.c reads the file, tok_special.c finds special tokens in text, tok.c drives, and
 * tok_bpe.c and tok_spm.c hold one algorithm each.  Tables that only encoding needs are
 * built by the first call that encodes (tok_tables.c). */
#ifndef TOK_H
#define TOK_H

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "text/pretok.h"
#include "text/vocab.h"

enum vocab_kind {
    VOCAB_SPM,     /* "llama": merges by score, byte fallback */
    VOCAB_BPE,     /* "gpt2": merges by rank over bytes */
    VOCAB_GEMMA4,  /* "gemma4": merges by rank over characters, byte fallback */
};

/* Types as in the file, and two flags of ours beside them. */
enum token_type {
    TOKEN_UNDEFINED, TOKEN_NORMAL, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER_DEFINED,
    TOKEN_UNUSED, TOKEN_BYTE, TOKEN_TYPE_COUNT,
    VOCAB_FOREIGN = 0x40,  /* flag: byte-level, and the text is outside its alphabet */
    VOCAB_END = 0x80,      /* flag: ends an answer */
};

/* Tokens that are matched in raw text before anything else, sorted by text. */
struct specials {
    int32_t *ids;
    int n;
    uint32_t max_len[256];    /* longest text that starts with this byte, 0: none */
    int32_t first[256 + 1];   /* range in ids of the texts that start with this byte */
    bool marks;               /* U+2581 in the text may stand for a space of a token */
};

struct vocab {
    enum vocab_kind kind;
    const struct pretok *pre;        /* NULL for SPM */
    int n;                           /* tokens */
    const struct gguf_str *text;     /* [n] as in the file */
    uint8_t *type;                   /* [n] enum token_type and flags */
    char *piece;                     /* bytes of all tokens */
    uint32_t *piece_at;              /* [n + 1] */
    const struct gguf_kv *scores;    /* NULL: all 0 */
    const struct gguf_kv *merges;
    int32_t bos, eos, unk;           /* -1: none */
    bool add_bos, add_eos, add_space;
    bool rstrip;                     /* most special tokens eat the white space behind them */
    struct specials user, all;       /* USER_DEFINED only; CONTROL and UNKNOWN as well */
    struct tok_tables *tables;       /* for encoding; built on first use */
};

static inline int token_type(const struct vocab *v, int32_t id)
{
    return v->type[id] & 0x0F;
}

/* Whether merging may arrive at the token.  Never at control tokens, whatever their text,
 * so that ordinary text cannot become one. */
static inline bool token_is_ordinary(int type)
{
    return type == TOKEN_NORMAL || type == TOKEN_USER_DEFINED || type == TOKEN_UNUSED ||
           type == TOKEN_UNDEFINED;
}

/* The character that stands for a space in SPM vocabularies: U+2581. */
#define TOK_MARK "\xE2\x96\x81"

static inline bool is_mark(const char *s, size_t n)
{
    return n >= 3 && s[0] == TOK_MARK[0] && s[1] == TOK_MARK[1] && s[2] == TOK_MARK[2];
}

/* Maps a code point of the printable alphabet of byte-level BPE to its byte, or -1. */
int tok_byte_of(uint32_t cp);

/* Bytes of a text in that alphabet.  out has room for n; -1 where a character is no part
 * of the alphabet or the text is not UTF-8. */
int64_t tok_decode_bytes(const char *s, size_t n, char *out);

/* The byte of a text "<0xHH>", else -1. */
int tok_hex_byte(struct gguf_str s);

/* ---- tables for encoding ----------------------------------------------------------- */

struct hash_slot {
    uint32_t tag;    /* upper hash bits */
    uint32_t value;  /* index; HASH_EMPTY */
};
#define HASH_EMPTY UINT32_MAX

#define RANK_NONE UINT32_MAX

/* What two neighbours would become. */
struct candidate {
    uint32_t rank;  /* lower first; RANK_NONE: they do not merge */
    int32_t id;     /* then -1 */
};

/* The lowest ranks of merges in which a text is the left part of two, before the beginning of a
 * character, and the right part, behind a character that is not ASCII. */
struct edge {
    uint32_t left, right;
};

enum { EDGES = 256 + 2 * 65536, CHAR_STARTS = 65536 };

/* A merge with all that is asked of it, so that a look-up fetches one line of memory. */
struct pair_slot {
    int32_t left, right;
    struct candidate to;  /* to.rank RANK_NONE: an empty slot */
};

struct tok_cache;

struct tok_tables {
    pthread_mutex_t lock;
    _Atomic bool ready;
    void *pages;             /* of all tables below */
    size_t pages_bytes;

    /* The cache that no call uses at the moment, or NULL. */
    struct tok_cache *_Atomic cache;

    /* Text of an ordinary token -> id.  The text is its bytes for byte-level BPE, and as in
     * the file else. */
    struct hash_slot *token;
    uint32_t token_mask;
    size_t token_len_max;
    bool repeats;            /* some text belongs to more than one token */
    uint64_t *token_filter;  /* a bit for each hash, for look-ups that mostly fail */
    uint32_t token_filter_mask;
    const struct vocab *v;

    /* The token of a single byte, -1: none. */
    int32_t byte_id[256];

    /* By rank: pairs of ids -> merge, and pairs of bytes straight. */
    struct pair_slot *pair;
    uint32_t pair_mask;
    uint64_t *pair_filter;   /* a bit for each hash; most pairs do not merge and stop here */
    uint32_t pair_filter_mask;
    struct candidate *byte_pair;  /* [256][256]; byte-level only */

    /* Byte-level only, for tok_char_start: the lowest ranks of merges with short texts, by
     * tok_edge_at, and what is known of characters up to U+FFFF: 0 nothing yet, -1 their bytes
     * have to be merged one by one, else the token to start from and 1. */
    struct edge *edge;       /* [EDGES] */
    _Atomic int32_t *char_start;  /* [CHAR_STARTS] */

    /* By score: rank of a token, lower first. */
    uint32_t *score_rank;

    /* Whether merging a token's text gives the token: 0 not known yet, 1 yes, 2 no. */
    _Atomic uint8_t *whole;

    /* Which bytes stand side by side in some token, and behind which bytes one goes on with
     * U+2581.  Elsewhere text may be cut, because no merge can reach across.  Not for
     * byte-level BPE. */
    uint64_t beside[256][4];
    bool beside_mark[256];
};

struct tok_tables *tok_tables_new(const struct vocab *v, slm_error *err);
void tok_tables_free(struct tok_tables *t);

/* Builds them unless another thread has. */
bool tok_tables_ready(struct tok_tables *t, slm_error *err);

static inline uint64_t tok_load64(const char *p)
{
    uint64_t x;

    memcpy(&x, p, 8);
    return x;
}

static inline uint32_t tok_load32(const char *p)
{
    uint32_t x;

    memcpy(&x, p, 4);
    return x;
}

/* All of 0..8 bytes in a number, different for texts of the same length. */
static inline uint64_t tok_load_few(const char *p, size_t n)
{
    const unsigned char *u = (const unsigned char *)p;

    if (n >= 4) {
        return (uint64_t)tok_load32(p) << 32 | tok_load32(p + n - 4);
    }
    return n == 0 ? 0 : (uint32_t)u[0] << 16 | (uint32_t)u[n / 2] << 8 | u[n - 1];
}

static inline bool tok_same(const char *a, const char *b, size_t n)
{
    if (n <= 8) {
        return tok_load_few(a, n) == tok_load_few(b, n);
    }
    for (; n > 8; n -= 8, a += 8, b += 8) {
        if (tok_load64(a) != tok_load64(b)) {
            return false;
        }
    }
    return tok_load64(a + n - 8) == tok_load64(b + n - 8);
}

static inline uint64_t tok_mix(uint64_t x)
{
    x *= 0x9E3779B97F4A7C15u;
    return x ^ x >> 32;
}

static inline uint64_t tok_hash(const char *p, size_t n)
{
    uint64_t h = n;

    if (n <= 8) {
        return tok_mix(tok_mix(h ^ tok_load_few(p, n)) + h);
    }
    for (; n > 8; n -= 8, p += 8) {
        h = tok_mix(h ^ tok_load64(p));
    }
    return tok_mix(tok_mix(h ^ tok_load64(p + n - 8)));
}

/* The text that stands for token id in the table. */
static inline struct gguf_str tok_key(const struct vocab *v, int32_t id)
{
    if (v->kind == VOCAB_BPE) {
        return (struct gguf_str){v->piece + v->piece_at[id],
                                 v->piece_at[id + 1] - v->piece_at[id]};
    }
    return v->text[id];
}

/* Filters take hash bits that the places of slots do not depend on. */
static inline bool tok_filter_has(const uint64_t *filter, uint32_t mask, uint64_t h)
{
    uint32_t bit = (uint32_t)(h >> 20) & mask;

    return filter[bit / 64] >> bit % 64 & 1;
}

static inline void tok_filter_add(uint64_t *filter, uint32_t mask, uint64_t h)
{
    uint32_t bit = (uint32_t)(h >> 20) & mask;

    filter[bit / 64] |= (uint64_t)1 << bit % 64;
}

/* The ordinary token with these bytes, whose hash is h, or -1. */
static inline int32_t tok_find_hashed(const struct tok_tables *t, const char *p, size_t n,
                                      uint64_t h)
{
    uint32_t tag = (uint32_t)(h >> 32);

    for (uint32_t i = (uint32_t)h & t->token_mask;; i = (i + 1) & t->token_mask) {
        struct hash_slot slot = t->token[i];

        if (slot.value == HASH_EMPTY) {
            return -1;
        }
        if (slot.tag == tag) {
            struct gguf_str key = tok_key(t->v, (int32_t)slot.value);

            if (key.n == n && tok_same(key.s, p, n)) {
                return (int32_t)slot.value;
            }
        }
    }
}

static inline int32_t tok_find(const struct tok_tables *t, const char *p, size_t n)
{
    return n > t->token_len_max ? -1 : tok_find_hashed(t, p, n, tok_hash(p, n));
}

/* The same where most texts are no token. */
static inline int32_t tok_find_rare(const struct tok_tables *t, const char *p, size_t n)
{
    if (n > t->token_len_max) {
        return -1;
    }
    uint64_t h = tok_hash(p, n);

    return tok_filter_has(t->token_filter, t->token_filter_mask, h) ? tok_find_hashed(t, p, n, h)
                                                                    : -1;
}

static inline uint64_t tok_pair_hash(int32_t left, int32_t right)
{
    return tok_mix(tok_mix((uint64_t)(uint32_t)left << 32 | (uint32_t)right));
}

/* Fetches what tok_pair will look at. */
static inline void tok_pair_fetch(const struct tok_tables *t, int32_t left, int32_t right)
{
    uint64_t h = tok_pair_hash(left, right);

    __builtin_prefetch(&t->pair[(uint32_t)h & t->pair_mask]);
}

/* What merging two tokens gives. */
static inline struct candidate tok_pair(const struct tok_tables *t, int32_t left, int32_t right)
{
    uint64_t h = tok_pair_hash(left, right);

    if (!tok_filter_has(t->pair_filter, t->pair_filter_mask, h)) {
        return (struct candidate){RANK_NONE, -1};
    }
    for (uint32_t i = (uint32_t)h & t->pair_mask;; i = (i + 1) & t->pair_mask) {
        const struct pair_slot *slot = &t->pair[i];

        if ((slot->left == left && slot->right == right) || slot->to.rank == RANK_NONE) {
            return slot->to;
        }
    }
}

/* Where the edges of a text of 1 to 3 bytes are; with 3 it is one character. */
static inline size_t tok_edge_at(const char *s, size_t n)
{
    const unsigned char *u = (const unsigned char *)s;

    if (n == 1) {
        return u[0];
    }
    if (n == 2) {
        return 256 + ((size_t)u[0] << 8 | u[1]);
    }
    return 256 + 65536 + ((size_t)(u[0] & 0x0F) << 12 | (size_t)(u[1] & 0x3F) << 6 | (u[2] & 0x3F));
}

/* ---- encoding ---------------------------------------------------------------------- */

/* What one call of tok_encode works with. */
struct tok_call {
    const struct vocab *v;
    const struct tok_tables *t;
    struct ids *out;
    struct buf text;      /* a fragment made valid, normalised */
    struct buf chunk;     /* SPM: a chunk with its spaces replaced */
    struct tok_cache *cache;  /* NULL: none */
    void *work;           /* of long merges */
    size_t work_bytes;
    bool failed;          /* sticky: an allocation did not succeed */
};

/* Room for n more ids; the caller advances out->n.  NULL (and failed) without memory. */
int32_t *ids_reserve(struct tok_call *c, size_t n);

static inline void ids_push(struct tok_call *c, int32_t id)
{
    struct ids *out = c->out;

    if (out->n < out->cap) {
        out->data[out->n++] = id;
    } else {
        int32_t *p = ids_reserve(c, 1);

        if (p != NULL) {
            *p = id;
            out->n++;
        }
    }
}

/* Memory for a long merge, at least `bytes`; NULL (and failed) without. */
void *tok_work(struct tok_call *c, size_t bytes);

/* Appends the tokens of a fragment that has no special tokens.  BPE wants valid UTF-8.
 * space: a space is put in front. */
void tok_bpe(struct tok_call *c, const char *s, size_t n);
void tok_spm(struct tok_call *c, const char *s, size_t n, bool space);
void tok_gemma4(struct tok_call *c, const char *s, size_t n);

/* The next chunk of s[pos, n), across whose ends no merge can reach: its text with U+2581 for
 * spaces, valid until the next call.  Returns where it ends in s. */
size_t tok_chunk(struct tok_call *c, const char *s, size_t pos, size_t n, struct gguf_str *chunk);

/* Appends the bytes of a character without a token. */
void tok_bytes(struct tok_call *c, const char *s, size_t n);

/* Length of the character at s[0, n), n >= 1; 1 where there is none. */
static inline size_t tok_char_len(const char *s, size_t n)
{
    static const unsigned char len[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4};
    size_t want = len[(unsigned char)s[0] >> 4];

    for (size_t i = 1; i < want; i++) {
        if (i >= n || ((unsigned char)s[i] & 0xC0) != 0x80) {
            return 1;
        }
    }
    return want;
}

/* Whether a token's text is known to merge to that token: then it needs no merging. */
enum { WHOLE_UNKNOWN, WHOLE_YES, WHOLE_NO };

static inline bool tok_is_whole(const struct tok_tables *t, int32_t id)
{
    return id >= 0 && atomic_load_explicit(&t->whole[id], memory_order_relaxed) == WHOLE_YES;
}

/* Remembers what merging the text of token `id` gave; id -1: the text of no token. */
static inline void tok_set_whole(const struct tok_tables *t, int32_t id, bool whole)
{
    if (id >= 0) {
        atomic_store_explicit(&t->whole[id], whole ? WHOLE_YES : WHOLE_NO, memory_order_relaxed);
    }
}

/* ---- special tokens ---------------------------------------------------------------- */

bool specials_init(struct specials *sp, const struct vocab *v, bool all, slm_error *err);
void specials_deinit(struct specials *sp);

struct special_match {
    size_t begin, end;  /* in the text */
    int32_t id;         /* -1: none */
};

/* The first special token of text[pos, n), as the rule "longest token first, in the whole
 * text" leaves them.  Control tokens that touch a span do not count. */
struct special_match special_next(const struct specials *sp, const struct vocab *v,
                                  const char *text, size_t pos, size_t n,
                                  const struct span *spans, size_t n_spans);
#endif

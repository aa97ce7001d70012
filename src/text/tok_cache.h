/* tok_cache.h - pieces met before and their tokens; internal to src/text.
 *
 * What is in the cache is right, so it never shows in a result.  Nearly all pieces are short and
 * have few tokens; two of these side by side make a set, which is one line of memory.  All others,
 * and those whose set is full, become records behind an index.  Nothing is thrown out before the
 * room for records is used up; then the cache starts afresh.  Memory that nothing has been written
 * to costs nothing, so a text pays for the pieces that it has. */
#ifndef TOK_CACHE_H
#define TOK_CACHE_H

#include "text/tok.h"

struct cached {
    uint64_t key[2];  /* up to 15 bytes; at the top how many (4 bits) and how many ids (3 bits) */
    int32_t id[4];
};

/* The top bit of the first key of a set: some pieces of this set are records. */
#define CACHED_MORE ((uint64_t)1 << 63)

struct cache_slot {
    uint32_t tag;  /* hash bits */
    uint32_t at;   /* of the record, in units of 8 bytes; 0: none */
};

/* A record is the number of bytes, the number of ids, the bytes and the ids. */
enum { CACHED_BYTES = 15, CACHED_IDS = 4, RECORD_BYTES = 255, RECORD_IDS = 255, BUCKET = 8 };

struct tok_cache {
    int bits;                  /* log2 of the sets */
    int set_shift;             /* of a hash, for its set */
    uint32_t bucket_mask;
    bool full;                 /* a record found no room */
    uint32_t used, room;       /* of the records, in units of 8 bytes */
    struct cache_slot *index;  /* lines of BUCKET slots; 2^(bits - 1) of them */
    char *record;
    _Alignas(64) struct cached entry[];
};

/* The cache for a text of n bytes, NULL for none: one call at a time has it, and others that come
 * meanwhile make their own.  Going without costs time only, so a failed allocation is no error. */
struct tok_cache *tok_cache_take(struct tok_tables *t, size_t n);
void tok_cache_give(struct tok_tables *t, struct tok_cache *cache);

void tok_cache_clear(struct tok_cache *cache);

/* Before a batch of pieces is asked for. */
static inline void tok_cache_begin(const struct tok_call *c)
{
    if (c->cache != NULL && c->cache->full) {
        tok_cache_clear(c->cache);
    }
}

/* A piece on its way to the cache. */
struct cache_ask {
    uint64_t key[2];     /* of a short piece */
    uint64_t hash;       /* 0: the piece is not for the cache */
    struct cached *set;  /* NULL: a long one */
};

/* 1 to 8 bytes, zeros above them. */
static inline uint64_t tok_load_padded(const char *p, size_t n)
{
    const unsigned char *u = (const unsigned char *)p;

    if (n == 8) {
        return tok_load64(p);
    }
    if (n >= 4) {
        return tok_load32(p) | (uint64_t)tok_load32(p + n - 4) << (8 * (n - 4));
    }
    return u[0] | (uint64_t)u[n / 2] << (8 * (n / 2)) | (uint64_t)u[n - 1] << (8 * (n - 1));
}

/* The bits of n bytes in a key. */
#define FIRST(n) ((n) < 8 ? ((uint64_t)1 << 8 * ((n) & 7)) - 1 : ~(uint64_t)0)
#define KEEP(n) {FIRST(n), (n) < 8 ? 0 : FIRST((n) - 8)}

static const uint64_t tok_cache_keep[CACHED_BYTES + 1][2] = {
    KEEP(0), KEEP(1), KEEP(2), KEEP(3), KEEP(4), KEEP(5), KEEP(6), KEEP(7),
    KEEP(8), KEEP(9), KEEP(10), KEEP(11), KEEP(12), KEEP(13), KEEP(14), KEEP(15),
};

#undef KEEP
#undef FIRST

static inline struct cache_slot *tok_cache_bucket(const struct tok_cache *cache, uint64_t hash)
{
    return cache->index + BUCKET * ((uint32_t)(hash >> 16) & cache->bucket_mask);
}

/* The place of a piece, on the way from memory.  `room` bytes may be read from s on. */
static inline __attribute__((always_inline)) struct cache_ask
tok_cache_ask(const struct tok_call *c, const char *s, size_t n, size_t room)
{
    const struct tok_cache *cache = c->cache;
    struct cache_ask ask = {{0}, 0, NULL};

    if (cache == NULL) {
        return ask;
    }
    if (n > CACHED_BYTES) {
        if (n <= RECORD_BYTES) {
            ask.hash = tok_hash(s, n) | 1;
            __builtin_prefetch(tok_cache_bucket(cache, ask.hash));
        }
        return ask;
    }
    if (room >= 16) {
        ask.key[0] = tok_load64(s) & tok_cache_keep[n][0];
        ask.key[1] = tok_load64(s + 8) & tok_cache_keep[n][1];
    } else {
        ask.key[0] = tok_load_padded(s, n < 8 ? n : 8);
        ask.key[1] = n > 8 ? tok_load_padded(s + 8, n - 8) : 0;
    }
    ask.key[1] |= (uint64_t)n << 56;
    uint64_t h = ask.key[0] ^ ask.key[1] * 0xC2B2AE3D27D4EB4Fu;

    h = (h ^ h >> 32) * 0x9E3779B97F4A7C15u;  /* the top bits depend on all of the key */
    ask.hash = h;
    ask.set = &c->cache->entry[2 * (h >> cache->set_shift)];
    __builtin_prefetch(ask.set);
    return ask;
}

/* Fetches the record of a long piece, whose slot should have come by now. */
void tok_cache_fetch(const struct tok_call *c, const struct cache_ask *ask);

bool tok_cache_get_record(struct tok_call *c, const struct cache_ask *ask, const char *s, size_t n);

static inline bool tok_cache_is(const struct cached *e, const struct cache_ask *ask)
{
    return ((e->key[0] ^ ask->key[0]) | (e->key[1] ^ ask->key[1]) << 4) == 0;
}

/* Appends the tokens of the piece s[0, n) if they are in the cache. */
static inline bool tok_cache_get(struct tok_call *c, const struct cache_ask *ask, const char *s,
                                 size_t n)
{
    const struct cached *e = ask->set;
    struct ids *out = c->out;

    if (e == NULL) {
        return ask->hash != 0 && tok_cache_get_record(c, ask, s, n);
    }
    e += !tok_cache_is(e, ask);
    if (!tok_cache_is(e, ask)) {
        return (ask->set->key[1] & CACHED_MORE) && tok_cache_get_record(c, ask, s, n);
    }
    if (out->cap - out->n < CACHED_IDS && ids_reserve(c, CACHED_IDS) == NULL) {
        return true;
    }
    memcpy(out->data + out->n, e->id, sizeof e->id);
    out->n += e->key[1] >> 60 & 7;
    return true;
}

/* Remembers the tokens from `first` on as those of the piece. */
void tok_cache_put(struct tok_call *c, const struct cache_ask *ask, const char *s, size_t n,
                   size_t first);

void tok_cache_free(struct tok_cache *cache);

#endif

/* tok_cache.c - memory and records of the cache of pieces, see tok_cache.h. */
#include "text/tok_cache.h"

/* Long texts bring more different pieces: there are as many sets as the longest text so far has
 * lots of 64 bytes, within bounds that stand for 1.5 and 48 MB. */
enum { BITS_MIN = 12, BITS_MAX = 17, TEXT_BITS = 6, WORTH_BYTES = 4096 };

/* Bytes for each set, the set included: its part of the index and of the records. */
enum { SET_BYTES = 2 * sizeof(struct cached), INDEX_BYTES = BUCKET * sizeof(struct cache_slot) / 2,
       RECORDS_BYTES = 288 };

/* Ids are copied in lots of four, which may reach behind the last. */
enum { IDS_STEP = 4 };

static size_t cache_bytes(int bits)
{
    return sizeof(struct tok_cache) + ((size_t)(SET_BYTES + INDEX_BYTES + RECORDS_BYTES) << bits);
}

void tok_cache_clear(struct tok_cache *cache)
{
    memset(cache->entry, 0, (size_t)(SET_BYTES + INDEX_BYTES) << cache->bits);
    cache->used = 1;
    cache->full = false;
}

/* NULL without memory. */
static struct tok_cache *cache_new(int bits)
{
    struct tok_cache *cache = mem_pages(cache_bytes(bits));

    if (cache != NULL) {
        char *sets = (char *)cache->entry;

        cache->bits = bits;
        cache->set_shift = 64 - bits;
        cache->bucket_mask = ((uint32_t)1 << (bits - 1)) - 1;
        cache->index = (struct cache_slot *)(void *)(sets + ((size_t)SET_BYTES << bits));
        cache->record = sets + ((size_t)(SET_BYTES + INDEX_BYTES) << bits);
        cache->used = 1;
        cache->room = ((uint32_t)RECORDS_BYTES << bits) / 8 - IDS_STEP * sizeof(int32_t) / 8;
    }
    return cache;
}

void tok_cache_free(struct tok_cache *cache)
{
    if (cache != NULL) {
        mem_pages_free(cache, cache_bytes(cache->bits));
    }
}

/* The size of the cache that a text of n bytes deserves. */
static int cache_bits(size_t n)
{
    int bits = BITS_MIN;

    while (bits < BITS_MAX && n >> (TEXT_BITS + bits) > 0) {
        bits++;
    }
    return bits;
}

struct tok_cache *tok_cache_take(struct tok_tables *t, size_t n)
{
    struct tok_cache *cache = atomic_exchange(&t->cache, NULL);
    int bits = cache_bits(n);

    if (cache == NULL ? n >= WORTH_BYTES : cache->bits < bits) {
        struct tok_cache *larger = cache_new(bits);

        if (larger != NULL) {
            tok_cache_free(cache);
            cache = larger;
        }
    }
    return cache;
}

void tok_cache_give(struct tok_tables *t, struct tok_cache *cache)
{
    if (cache != NULL) {
        tok_cache_free(atomic_exchange(&t->cache, cache));
    }
}

/* ---- records ----------------------------------------------------------------------- */

void tok_cache_fetch(const struct tok_call *c, const struct cache_ask *ask)
{
    const struct cache_slot *slot = tok_cache_bucket(c->cache, ask->hash);

    for (int i = 0; i < BUCKET && slot[i].at != 0; i++) {
        if (slot[i].tag == (uint32_t)ask->hash) {
            const char *r = c->cache->record + 8 * (size_t)slot[i].at;

            __builtin_prefetch(r);
            __builtin_prefetch(r + 64);
            return;
        }
    }
}

bool tok_cache_get_record(struct tok_call *c, const struct cache_ask *ask, const char *s, size_t n)
{
    const struct cache_slot *slot = tok_cache_bucket(c->cache, ask->hash);

    for (int i = 0; i < BUCKET && slot[i].at != 0; i++) {
        const char *r = c->cache->record + 8 * (size_t)slot[i].at;

        if (slot[i].tag != (uint32_t)ask->hash || (unsigned char)r[0] != n ||
            !tok_same(r + 2, s, n)) {
            continue;
        }
        size_t n_ids = (unsigned char)r[1];
        int32_t *id = ids_reserve(c, n_ids + IDS_STEP);

        for (size_t k = 0; id != NULL && k < n_ids; k += IDS_STEP) {
            memcpy(id + k, r + 2 + n + k * sizeof *id, IDS_STEP * sizeof *id);
        }
        c->out->n += id != NULL ? n_ids : 0;
        return true;
    }
    return false;
}

static void add_record(struct tok_cache *cache, const struct cache_ask *ask, const char *s,
                       size_t n, const int32_t *id, size_t n_ids)
{
    uint32_t units = (uint32_t)(2 + n + n_ids * sizeof *id + 7) / 8;
    struct cache_slot *slot = tok_cache_bucket(cache, ask->hash);
    uint32_t i = 0;

    if (units > cache->room - cache->used) {
        cache->full = true;
        return;
    }
    while (i < BUCKET && slot[i].at != 0) {
        i++;
    }
    char *r = cache->record + 8 * (size_t)cache->used;

    r[0] = (char)n;
    r[1] = (char)n_ids;
    memcpy(r + 2, s, n);
    memcpy(r + 2 + n, id, n_ids * sizeof *id);
    i = i < BUCKET ? i : cache->used % BUCKET;
    slot[i] = (struct cache_slot){(uint32_t)ask->hash, cache->used};
    cache->used += units;
}

void tok_cache_put(struct tok_call *c, const struct cache_ask *ask, const char *s, size_t n,
                   size_t first)
{
    size_t n_ids = c->out->n - first;
    const int32_t *id = c->out->data + first;
    struct cached *set = ask->set;

    if (ask->hash == 0 || n_ids == 0 || n_ids > RECORD_IDS || c->failed) {
        return;
    }
    for (int i = 0; set != NULL && n_ids <= CACHED_IDS && i < 2; i++) {
        if (set[i].key[1] << 4 == 0) {
            set[i].key[0] = ask->key[0];
            set[i].key[1] |= ask->key[1] | (uint64_t)n_ids << 60;
            memcpy(set[i].id, id, n_ids * sizeof *id);
            return;
        }
    }
    if (set != NULL) {
        set->key[1] |= CACHED_MORE;
    }
    add_record(c->cache, ask, s, n, id, n_ids);
}

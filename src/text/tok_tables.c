/* tok_tables.c - the tables that encoding needs, built when the first text is encoded.
 *
 * Flat hash tables over the strings of the mapped file: a slot holds the upper hash bits
 * and an index, so that a miss rarely touches a string.  A file decides what is in them,
 * therefore an insertion gives up after PROBE_MAX steps: a file made of colliding
 * strings is refused in place of costing quadratic time. */
#include "text/tok_cache.h"

#include "base/log.h"
#include "base/utf8.h"

enum { PROBE_MAX = 4096, BATCH = 64, BYTE_PAIRS = 256 * 256 };

struct tok_tables *tok_tables_new(const struct vocab *v, slm_error *err)
{
    struct tok_tables *t = mem_zalloc(1, sizeof *t);

    if (t == NULL || pthread_mutex_init(&t->lock, NULL) != 0) {
        mem_free(t);
        slm_fail_nomem(err, "the tokenizer");
        return NULL;
    }
    t->v = v;
    return t;
}

static void drop(struct tok_tables *t)
{
    mem_pages_free(t->pages, t->pages_bytes);
    t->pages = NULL;
}

void tok_tables_free(struct tok_tables *t)
{
    if (t == NULL) {
        return;
    }
    drop(t);
    tok_cache_free(atomic_load(&t->cache));
    pthread_mutex_destroy(&t->lock);
    mem_free(t);
}

/* ---- memory --------------------------------------------------------------------------- */

/* Slots for n entries, at most two thirds full. */
static size_t slots_for(size_t n)
{
    size_t n_slots = 16;

    while (n_slots < n + n / 2) {
        n_slots *= 2;
    }
    return n_slots;
}

/* Filters have four bits for each slot, of which one in ten at most is set. */
static size_t filter_words(size_t n_slots)
{
    return n_slots / 16;
}

/* The next piece of the block; only counted while there is no block. */
static void *carve(struct tok_tables *t, size_t *at, size_t n, size_t size)
{
    char *p = t->pages == NULL ? NULL : (char *)t->pages + *at;

    *at += align_up(n * size, 64);  /* n < 2^32 and size <= 16: no overflow */
    return p;
}

/* Gives all tables their places and returns the bytes they need. */
static size_t place(struct tok_tables *t)
{
    const struct vocab *v = t->v;
    size_t n = (size_t)v->n;
    size_t n_slots = slots_for(n);
    size_t at = 0;

    t->token = carve(t, &at, n_slots, sizeof *t->token);
    t->token_filter = carve(t, &at, filter_words(n_slots), sizeof *t->token_filter);
    t->token_mask = (uint32_t)(n_slots - 1);
    t->token_filter_mask = (uint32_t)(4 * n_slots - 1);
    t->whole = carve(t, &at, n, sizeof *t->whole);
    if (v->kind == VOCAB_SPM) {
        t->score_rank = carve(t, &at, n, sizeof *t->score_rank);
        return at;
    }
    n_slots = slots_for((size_t)v->merges->n);
    t->pair = carve(t, &at, n_slots, sizeof *t->pair);
    t->pair_filter = carve(t, &at, filter_words(n_slots), sizeof *t->pair_filter);
    t->pair_mask = (uint32_t)(n_slots - 1);
    t->pair_filter_mask = (uint32_t)(4 * n_slots - 1);
    if (v->kind == VOCAB_BPE) {
        t->byte_pair = carve(t, &at, BYTE_PAIRS, sizeof *t->byte_pair);
        t->edge = carve(t, &at, EDGES, sizeof *t->edge);
        t->char_start = carve(t, &at, CHAR_STARTS, sizeof *t->char_start);
    }
    return at;
}

/* One block of large pages: look-ups jump about in it. */
static bool allocate(struct tok_tables *t, slm_error *err)
{
    t->pages_bytes = place(t);
    t->pages = mem_pages(t->pages_bytes);
    if (t->pages == NULL) {
        return slm_fail_nomem(err, "the tables of the tokenizer");
    }
    place(t);
    memset(t->token, 0xFF, ((size_t)t->token_mask + 1) * sizeof *t->token);
    if (t->pair != NULL) {
        memset(t->pair, 0xFF, ((size_t)t->pair_mask + 1) * sizeof *t->pair);
    }
    if (t->byte_pair != NULL) {
        memset(t->byte_pair, 0xFF, BYTE_PAIRS * sizeof *t->byte_pair);
        memset(t->edge, 0xFF, EDGES * sizeof *t->edge);
    }
    return true;
}

static bool fail_collisions(slm_error *err, const char *key)
{
    return slm_fail(err, SLM_E_FORMAT, "%s: too many entries collide; the file is malformed", key);
}

/* ---- tokens ------------------------------------------------------------------------ */

/* Whether merging may meet the token by its text. */
static bool has_key(const struct vocab *v, int32_t id)
{
    return token_is_ordinary(token_type(v, id)) && tok_key(v, id).n > 0 &&
           !(v->kind == VOCAB_BPE && (v->type[id] & VOCAB_FOREIGN));
}

/* The lowest id wins where texts repeat: ids are inserted in order. */
static bool insert_token(struct tok_tables *t, int32_t id, uint64_t h, slm_error *err)
{
    struct gguf_str key = tok_key(t->v, id);
    uint32_t tag = (uint32_t)(h >> 32);
    uint32_t i = (uint32_t)h & t->token_mask;

    for (int step = 0; step < PROBE_MAX; step++, i = (i + 1) & t->token_mask) {
        struct hash_slot *slot = &t->token[i];

        if (slot->value == HASH_EMPTY) {
            *slot = (struct hash_slot){tag, (uint32_t)id};
            tok_filter_add(t->token_filter, t->token_filter_mask, h);
            return true;
        }
        if (slot->tag == tag) {
            struct gguf_str other = tok_key(t->v, (int32_t)slot->value);

            if (other.n == key.n && memcmp(other.s, key.s, key.n) == 0) {
                t->repeats = true;
                return true;
            }
        }
    }
    return fail_collisions(err, "tokenizer.ggml.tokens");
}

/* Slots are far apart, so they are fetched a batch ahead. */
static bool build_tokens(struct tok_tables *t, slm_error *err)
{
    const struct vocab *v = t->v;
    uint64_t hash[BATCH];

    t->token_len_max = 0;
    for (int32_t first = 0; first < v->n; first += BATCH) {
        int32_t end = v->n - first < BATCH ? v->n : first + BATCH;

        for (int32_t id = first; id < end; id++) {
            struct gguf_str key = tok_key(v, id);

            hash[id - first] = tok_hash(key.s, key.n);
            __builtin_prefetch(&t->token[(uint32_t)hash[id - first] & t->token_mask], 1);
        }
        for (int32_t id = first; id < end; id++) {
            if (!has_key(v, id)) {
                continue;
            }
            size_t n = tok_key(v, id).n;

            t->token_len_max = n > t->token_len_max ? n : t->token_len_max;
            if (!insert_token(t, id, hash[id - first], err)) {
                return false;
            }
        }
    }
    return true;
}

/* Byte-level: the token of each byte.  Else <0xHH>, or a token that is the bare byte. */
static void build_bytes(struct tok_tables *t)
{
    const struct vocab *v = t->v;

    for (int b = 0; b < 256; b++) {
        char c = (char)b;

        t->byte_id[b] = tok_find(t, &c, 1);
    }
    if (v->kind == VOCAB_BPE) {
        return;
    }
    for (int32_t id = v->n - 1; id >= 0; id--) {
        int b = tok_hex_byte(v->text[id]);

        if (b >= 0) {
            t->byte_id[b] = id;
        }
    }
}

/* ---- merges ------------------------------------------------------------------------ */

static bool insert_pair(struct tok_tables *t, struct pair_slot pair, slm_error *err)
{
    uint64_t h = tok_pair_hash(pair.left, pair.right);
    uint32_t i = (uint32_t)h & t->pair_mask;

    for (int step = 0; step < PROBE_MAX; step++, i = (i + 1) & t->pair_mask) {
        struct pair_slot *slot = &t->pair[i];

        if (slot->to.rank == RANK_NONE) {
            *slot = pair;
            tok_filter_add(t->pair_filter, t->pair_filter_mask, h);
            return true;
        }
        if (slot->left == pair.left && slot->right == pair.right) {
            return true;  /* the first rank stands */
        }
    }
    return fail_collisions(err, "tokenizer.ggml.merges");
}

/* The texts of an entry's two parts one behind the other in `text`, in the form of the token
 * table; *cut is the length of the first.  False for an entry that no token can match. */
static bool merge_text(const struct tok_tables *t, struct gguf_str s, char *text, size_t *cut,
                       size_t *n)
{
    const char *space = s.n > 1 ? memchr(s.s + 1, ' ', s.n - 1) : NULL;

    /* A byte takes two bytes at most in the printable alphabet. */
    if (space == NULL || s.n > 2 * t->token_len_max + 1) {
        return false;
    }
    size_t left = (size_t)(space - s.s);
    size_t right = s.n - left - 1;

    if (t->v->kind != VOCAB_BPE) {
        memcpy(text, s.s, left);
        memcpy(text + left, space + 1, right);
        *cut = left;
        *n = left + right;
        return true;
    }
    int64_t a = tok_decode_bytes(s.s, left, text);
    int64_t b = a < 0 ? -1 : tok_decode_bytes(space + 1, right, text + a);

    *cut = (size_t)a;
    *n = (size_t)(a + b);
    return b >= 0;
}

/* An entry while its tokens are looked up. */
struct part {
    const char *s;
    size_t n;
    uint64_t hash;
    int32_t id;
};

struct entry {
    uint32_t rank;
    struct part left, right, both;
};

/* Whether the token has this text.  Where texts repeat, only a look-up knows which one counts. */
static bool token_is(const struct tok_tables *t, int32_t id, const char *s, size_t n)
{
    if (t->repeats || id >= t->v->n || !has_key(t->v, id)) {
        return false;
    }
    struct gguf_str key = tok_key(t->v, id);

    return key.n == n && tok_same(key.s, s, n);
}

static void part_start(const struct tok_tables *t, struct part *p, const char *s, size_t n)
{
    *p = (struct part){s, n, tok_hash(s, n), -1};
    __builtin_prefetch(&t->token[(uint32_t)p->hash & t->token_mask]);
}

/* Fetches where the text of the token lies that the slot most likely names. */
static void part_fetch_place(const struct tok_tables *t, const struct part *p)
{
    uint32_t id = t->token[(uint32_t)p->hash & t->token_mask].value;

    if (id != HASH_EMPTY) {
        __builtin_prefetch(t->v->kind == VOCAB_BPE ? (const void *)&t->v->piece_at[id]
                                                   : (const void *)&t->v->text[id]);
    }
}

static void part_fetch_text(const struct tok_tables *t, const struct part *p)
{
    uint32_t id = t->token[(uint32_t)p->hash & t->token_mask].value;

    if (id != HASH_EMPTY) {
        __builtin_prefetch(tok_key(t->v, (int32_t)id).s);
    }
}

static void part_find(const struct tok_tables *t, struct part *p)
{
    p->id = tok_find_hashed(t, p->s, p->n, p->hash);
}

/* Merges mostly stand in the order of the tokens they give. */
static void both_find(const struct tok_tables *t, struct part *p, int32_t *last)
{
    if (token_is(t, *last, p->s, p->n)) {
        p->id = *last;
    } else if (token_is(t, *last + 1, p->s, p->n)) {
        p->id = *last + 1;
    } else {
        p->id = tok_find(t, p->s, p->n);
    }
    *last = p->id >= 0 ? p->id : *last;
}

/* Looks up the tokens of n entries.  Each look-up waits for memory three times, one behind
 * the other; a batch waits for all of them together. */
static void resolve(const struct tok_tables *t, struct entry *e, size_t n, int32_t *last)
{
    for (size_t i = 0; i < n; i++) {
        part_fetch_place(t, &e[i].left);
        part_fetch_place(t, &e[i].right);
    }
    for (size_t i = 0; i < n; i++) {
        part_fetch_text(t, &e[i].left);
        part_fetch_text(t, &e[i].right);
    }
    for (size_t i = 0; i < n; i++) {
        part_find(t, &e[i].left);
        part_find(t, &e[i].right);
        both_find(t, &e[i].both, last);
        __builtin_prefetch(
            &t->pair[(uint32_t)tok_pair_hash(e[i].left.id, e[i].right.id) & t->pair_mask], 1);
    }
}

/* Pairs of bytes are looked up most, so they get a table of their own. */
static void note_byte_pair(struct tok_tables *t, const struct entry *e)
{
    if (t->byte_pair != NULL && e->both.n == 2) {
        struct candidate *to = &t->byte_pair[(unsigned char)e->both.s[0] * 256 +
                                             (unsigned char)e->both.s[1]];

        if (to->rank == RANK_NONE) {
            *to = (struct candidate){e->rank, e->both.id};
        }
    }
}

/* A part of a character, or one of two or three bytes. */
static bool has_edges(const struct part *p)
{
    return p->n <= 3 && (p->s[0] & 0x80) && (p->n < 3 || tok_char_len(p->s, p->n) == 3);
}

/* Entries come in the order of their ranks. */
static void note_edges(struct tok_tables *t, const struct entry *e)
{
    if (has_edges(&e->left) && !utf8_is_continuation(e->right.s[0])) {
        uint32_t *rank = &t->edge[tok_edge_at(e->left.s, e->left.n)].left;

        *rank = e->rank < *rank ? e->rank : *rank;
    }
    if (has_edges(&e->right) && (e->left.s[e->left.n - 1] & 0x80)) {
        uint32_t *rank = &t->edge[tok_edge_at(e->right.s, e->right.n)].right;

        *rank = e->rank < *rank ? e->rank : *rank;
    }
}

/* Enters n resolved entries; *n_unusable counts those that name no tokens. */
static bool insert_entries(struct tok_tables *t, const struct entry *e, size_t n,
                           size_t *n_unusable, slm_error *err)
{
    for (size_t i = 0; i < n; i++) {
        struct pair_slot pair = {e[i].left.id, e[i].right.id, {e[i].rank, e[i].both.id}};

        if (pair.left < 0 || pair.right < 0 || pair.to.id < 0) {
            ++*n_unusable;
            continue;
        }
        note_byte_pair(t, &e[i]);
        if (t->edge != NULL) {
            note_edges(t, &e[i]);
        }
        if (!insert_pair(t, pair, err)) {
            return false;
        }
    }
    return true;
}

static bool fill_merges(struct tok_tables *t, char *text, slm_error *err)
{
    const struct gguf_kv *kv = t->v->merges;
    size_t n_unusable = 0;
    size_t text_max = 2 * t->token_len_max + 1;
    struct entry e[BATCH];
    int32_t last = 0;

    for (uint32_t rank = 0; rank < kv->n;) {
        size_t n = 0;
        uint32_t end = kv->n - rank < BATCH ? (uint32_t)kv->n : rank + BATCH;

        for (; rank < end; rank++) {
            char *s = text + n * text_max;
            size_t cut, len;

            if (merge_text(t, kv->str[rank], s, &cut, &len)) {
                e[n].rank = rank;
                part_start(t, &e[n].left, s, cut);
                part_start(t, &e[n].right, s + cut, len - cut);
                e[n].both = (struct part){.s = s, .n = len};
                n++;
            } else {
                n_unusable++;
            }
        }
        resolve(t, e, n, &last);
        if (!insert_entries(t, e, n, &n_unusable, err)) {
            return false;
        }
    }
    if (n_unusable > 0) {
        log_line(SLM_LOG_WARN, "%zu of %llu entries of tokenizer.ggml.merges name no ordinary "
                 "tokens and are not used", n_unusable, (unsigned long long)kv->n);
    }
    return true;
}

static bool build_merges(struct tok_tables *t, slm_error *err)
{
    char *text = mem_alloc(2 * t->token_len_max + 1, BATCH);
    bool ok = text != NULL ? fill_merges(t, text, err)
                           : slm_fail_nomem(err, "the merges of the tokenizer");

    mem_free(text);
    return ok;
}

/* ---- scores ------------------------------------------------------------------------ */

/* Ranks in descending order of the scores, equal for equal scores; NaN comes last. */
static uint32_t rank_of_score(double score)
{
    float f = (float)score;
    uint32_t bits;

    if (f != f) {
        return RANK_NONE - 1;
    }
    f += 0.0f;  /* -0 to +0 */
    memcpy(&bits, &f, sizeof bits);
    return ~(bits & 0x80000000u ? ~bits : bits | 0x80000000u);
}

static void build_scores(struct tok_tables *t)
{
    const struct vocab *v = t->v;

    for (int32_t id = 0; id < v->n; id++) {
        t->score_rank[id] =
            rank_of_score(v->scores == NULL ? 0.0 : gguf_float_at(v->scores, (uint64_t)id));
    }
}

/* Notes which bytes stand side by side in a token. */
static void build_beside(struct tok_tables *t)
{
    const struct vocab *v = t->v;

    for (int32_t id = 0; id < v->n; id++) {
        struct gguf_str s = v->text[id];

        for (size_t i = 1; i < s.n && has_key(v, id); i++) {
            unsigned char a = (unsigned char)s.s[i - 1];
            unsigned char b = (unsigned char)s.s[i];

            if (is_mark(s.s + i, s.n - i)) {
                t->beside_mark[a] = true;
            } else {
                t->beside[a][b / 64] |= (uint64_t)1 << b % 64;
            }
        }
    }
}

/* ---- all of it --------------------------------------------------------------------- */

static bool build(struct tok_tables *t, slm_error *err)
{
    const struct vocab *v = t->v;

    if (!allocate(t, err) || !build_tokens(t, err)) {
        return false;
    }
    build_bytes(t);
    if (v->kind != VOCAB_BPE) {
        build_beside(t);
    }
    if (v->kind == VOCAB_SPM) {
        build_scores(t);
        return true;
    }
    return build_merges(t, err);
}

bool tok_tables_ready(struct tok_tables *t, slm_error *err)
{
    if (atomic_load_explicit(&t->ready, memory_order_acquire)) {
        return true;
    }
    pthread_mutex_lock(&t->lock);
    bool ok = atomic_load_explicit(&t->ready, memory_order_relaxed);

    if (!ok) {
        ok = build(t, err);
        if (ok) {
            atomic_store_explicit(&t->ready, true, memory_order_release);
        } else {
            drop(t);  /* the next call tries again */
        }
    }
    pthread_mutex_unlock(&t->lock);
    return ok;
}

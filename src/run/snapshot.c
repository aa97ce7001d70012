/* snapshot.c - a session's state in a file.
 *
 *   header            below
 *   tokens            [n_tok] int32
 *   groups            of every page in turn: of the full class, then from page first_window on of
 *                     the window class, as they lie in the pool
 *   states            of all recurrent layers
 *   logits            [n_vocab] floats, where there are any
 *   checksum          8 bytes, of all before
 *
 * Each is padded by zeros to a multiple of 8 bytes.  All little-endian, as the machines are.
 * Nothing of a file is believed before its size and its checksum are right, and nothing of the
 * session changes before everything is. */
#include "run/snapshot.h"

#include <assert.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "run/session_int.h"

/* Any number but 0, so that leading zeros count. */
#define SUM_INIT 0xCBF29CE484222325u

/* Grows with every change of the format or of what pages and states hold. */
enum { SNAPSHOT_VERSION = 1 };

static const char magic[8] = "SLMSNAP";

struct header {
    char magic[8];
    uint32_t version;
    uint32_t kv;            /* enum kv_type */
    uint64_t model;         /* model_identity */
    uint32_t n_tok;
    uint32_t first_window;  /* page */
    uint32_t has_logits;
    uint32_t long_rope;     /* model_long_rope of the session's context */
};

enum { WORD = 8, SUM_BYTES = WORD };

static size_t padded(size_t n)
{
    return align_up(n, WORD);
}

static size_t states_bytes(const struct model *m)
{
    return (size_t)model_shape(m)->n_state * model_state_bytes(m);
}

static int pages_of(int n_tok)
{
    return (n_tok + KV_PAGE - 1) / KV_PAGE;
}

/* Bytes of all groups that the header promises. */
static size_t group_bytes(const struct session *s, const struct header *h)
{
    const size_t n = (size_t)pages_of((int)h->n_tok);

    return n * kv_group_bytes(s->model, s->kv_type, false, KV_FULL) +
           (n - h->first_window) * kv_group_bytes(s->model, s->kv_type, false, KV_WINDOW);
}

static size_t file_bytes(const struct session *s, const struct header *h)
{
    return sizeof *h + padded(h->n_tok * sizeof(int32_t)) + group_bytes(s, h) +
           states_bytes(s->model) +
           (h->has_logits ? padded(logit_floats(s->model, 1) * sizeof(float)) : 0) + SUM_BYTES;
}

/* Continues over n bytes and zeros up to a whole word.  A word at a time: by bytes it would take as
 * long as reading. */
static uint64_t checksum(uint64_t h, const void *data, size_t n)
{
    const char *p = data;

    for (size_t i = 0; i < n; i += WORD) {
        uint64_t word = 0;
        memcpy(&word, p + i, n - i < WORD ? n - i : WORD);
        h = (h ^ word) * 0x9E3779B97F4A7C15u;
        h ^= h >> 32;
    }
    return h;
}

/* ---- saving ---------------------------------------------------------------------------- */

struct parts {
    struct file_part *part;
    size_t n;
    uint64_t sum;
};

static void add_part(struct parts *p, const void *data, size_t n)
{
    static const char zeros[WORD];

    p->part[p->n++] = (struct file_part){ data, n };
    if (padded(n) > n) {
        p->part[p->n++] = (struct file_part){ zeros, padded(n) - n };
    }
    p->sum = checksum(p->sum, data, n);
}

static void add_groups(struct parts *p, const struct session *s)
{
    for (int j = 0; j < pages_of(s->len); j++) {
        for (int c = 0; c < KV_CLASSES; c++) {
            size_t bytes;
            const void *group = kv_seq_group(s->kv, j, (enum kv_class)c, &bytes);
            if (group && (c == KV_FULL || j >= kv_seq_first_window(s->kv, s->len))) {
                add_part(p, group, bytes);
            }
        }
    }
}

bool session_save(struct session *s, const char *path, slm_error *err)
{
    enum { OTHER_PARTS = 7 };  /* header, tokens, states, logits, two paddings, checksum */
    const struct header h = {
        .magic = "SLMSNAP", .version = SNAPSHOT_VERSION, .kv = (uint32_t)s->kv_type,
        .model = model_identity(s->model), .n_tok = (uint32_t)s->len,
        .first_window = (uint32_t)kv_seq_first_window(s->kv, s->len),
        .has_logits = s->has_logits,
        .long_rope = model_long_rope(s->model, s->context),
    };
    struct parts p = { .sum = SUM_INIT };

    assert(s->n_trial == 0);
    p.part = mem_alloc((size_t)pages_of(s->len) * KV_CLASSES + OTHER_PARTS, sizeof *p.part);
    if (!p.part) {
        return slm_fail_nomem(err, "a snapshot");
    }
    add_part(&p, &h, sizeof h);
    add_part(&p, s->tok, (size_t)s->len * sizeof *s->tok);
    add_groups(&p, s);
    if (s->recur) {
        add_part(&p, recur_states(s->recur)[0], states_bytes(s->model));
    }
    if (s->has_logits) {
        add_part(&p, s->logits, logit_floats(s->model, 1) * sizeof *s->logits);
    }
    const uint64_t sum = p.sum;
    p.part[p.n++] = (struct file_part){ &sum, SUM_BYTES };
    const bool ok = file_write_parts(path, p.part, p.n, err);
    mem_free(p.part);
    return ok;
}

/* ---- loading --------------------------------------------------------------------------- */

void snapshot_seal(void *data, size_t n)
{
    if (n >= SUM_BYTES) {
        const uint64_t sum = checksum(SUM_INIT, data, n - SUM_BYTES);
        memcpy((char *)data + n - SUM_BYTES, &sum, SUM_BYTES);
    }
}

/* Whether the snapshot is for this session; sizes are not looked at. */
static bool check_header(const struct session *s, const struct header *h, slm_error *err)
{
    if (memcmp(h->magic, magic, sizeof magic) != 0) {
        return slm_fail(err, SLM_E_FORMAT, "not a snapshot of a session");
    }
    if (h->version != SNAPSHOT_VERSION) {
        return slm_fail(err, SLM_E_UNSUPPORTED, "the snapshot has version %u, this program reads "
                        "version %d: compute the session again", (unsigned)h->version,
                        SNAPSHOT_VERSION);
    }
    if (h->model != model_identity(s->model)) {
        return slm_fail(err, SLM_E_ARG, "the snapshot is of another model file");
    }
    if (h->kv != (uint32_t)s->kv_type) {
        return slm_fail(err, SLM_E_ARG, "the snapshot has keys and values of another type than the "
                        "session");
    }
    if (h->long_rope != (uint32_t)model_long_rope(s->model, s->context)) {
        return slm_fail(err, SLM_E_ARG, "the snapshot is of a session whose context is %s what the "
                        "model's rotations for long contexts are for, and this one's is not",
                        h->long_rope ? "above" : "below");
    }
    if (h->n_tok > (uint32_t)s->context) {
        return slm_fail(err, SLM_E_CONTEXT, "the snapshot has %u tokens, the context has room for "
                        "%d", (unsigned)h->n_tok, s->context);
    }
    return true;
}

/* Whether pages begin where a session of so many tokens would have them. */
static bool check_window(const struct session *s, const struct header *h)
{
    const int n = (int)h->n_tok, first = (int)h->first_window;

    return h->has_logits <= 1 && h->first_window <= (uint32_t)pages_of(n) &&
           first >= kv_window_page(s->model, n, KV_MARGIN) &&
           (n == 0 || first <= kv_window_page(s->model, n, 0));
}

/* Everything that can be wrong with n bytes; h gets a copy of the header. */
static bool check_file(const struct session *s, const char *data, size_t n, struct header *h,
                       slm_error *err)
{
    uint64_t sum;

    if (n < sizeof *h + SUM_BYTES) {
        return slm_fail(err, SLM_E_FORMAT, "not a snapshot of a session: %zu bytes are too few", n);
    }
    memcpy(h, data, sizeof *h);
    if (!check_header(s, h, err)) {
        return false;
    }
    if (!check_window(s, h)) {
        return slm_fail(err, SLM_E_FORMAT, "the snapshot's header is damaged");
    }
    if (n != file_bytes(s, h)) {
        return slm_fail(err, SLM_E_FORMAT, "the snapshot has %zu bytes and should have %zu: it is "
                        "incomplete or damaged", n, file_bytes(s, h));
    }
    memcpy(&sum, data + n - SUM_BYTES, SUM_BYTES);
    if (sum != checksum(SUM_INIT, data, n - SUM_BYTES)) {
        return slm_fail(err, SLM_E_FORMAT, "the snapshot's checksum is wrong: the file is damaged");
    }
    return true;
}

/* Copies n bytes from *from on, which moves behind them and their padding. */
static void take(void *to, const char **from, size_t n)
{
    memcpy(to, *from, n);
    *from += padded(n);
}

/* Tokens of the file; the session's own are still in use. */
static bool check_tokens(const struct session *s, const struct header *h, const char *data,
                         slm_error *err)
{
    for (uint32_t i = 0; i < h->n_tok; i++) {
        int32_t id;
        memcpy(&id, data + sizeof *h + i * sizeof id, sizeof id);
        if (!session_check_ids(s, 0, &id, 1, NULL)) {
            return slm_fail(err, SLM_E_FORMAT, "token %u of the snapshot has id %d, which the "
                            "model does not have", (unsigned)i, (int)id);
        }
    }
    return true;
}

bool session_load_mem(struct session *s, const void *data, size_t n, slm_error *err)
{
    struct header h;
    const char *p = (const char *)data + sizeof h;

    assert(s->n_trial == 0);
    if (!check_file(s, data, n, &h, err) || !check_tokens(s, &h, data, err)) {
        return false;
    }
    s->len = s->keep = 0;
    s->has_logits = false;
    if (s->recur) {
        recur_restore(s->recur, 0, s->logits, &s->has_logits);
    }
    if (!kv_seq_take(s->kv, (int)h.n_tok, (int)h.first_window, err)) {
        return false;
    }
    take(s->tok, &p, h.n_tok * sizeof *s->tok);
    for (int j = 0; j < pages_of((int)h.n_tok); j++) {
        for (int c = 0; c < KV_CLASSES; c++) {
            size_t bytes;
            void *group = kv_seq_group(s->kv, j, (enum kv_class)c, &bytes);
            if (group) {
                take(group, &p, bytes);
            }
        }
    }
    if (s->recur) {
        take(recur_states(s->recur)[0], &p, states_bytes(s->model));
    }
    if (h.has_logits) {
        take(s->logits, &p, logit_floats(s->model, 1) * sizeof *s->logits);
    }
    s->len = s->keep = (int)h.n_tok;
    s->has_logits = h.has_logits;
    if (s->recur && s->len > 0) {
        recur_save(s->recur, s->len, s->has_logits ? s->logits : NULL);
    }
    if (s->rows) {
        memset(s->rows, 0, row_floats(s->model, 1) * sizeof *s->rows);
    }
    if (s->follow) {
        s->follow(s->follow_arg, s->tok, 0, 0, s->rows);
    }
    return true;
}

bool session_load(struct session *s, const char *path, slm_error *err)
{
    struct file_map map;

    if (!file_map_open(&map, path, err)) {
        return false;
    }
    const bool ok = session_load_mem(s, map.data, map.size, err) || slm_wrap(err, "%s", path);
    file_map_close(&map);
    return ok;
}

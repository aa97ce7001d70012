/* detok.c - streaming text: whole characters only, and nothing of a stop string.
 *
 * Bytes of tokens become valid UTF-8 first (a sequence that breaks off or ends early turns
 * into U+FFFD), then run through one matcher per stop string (Knuth, Morris, Pratt).  A
 * matcher's state is the length of the longest end of the text that begins its stop string;
 * the longest of them is held back.  The answer ends with the byte that completes a stop
 * string first, so how bytes are cut into tokens cannot be seen. */
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/vocab.h"

struct stop {
    char *s;
    uint32_t *back;  /* [n + 1] state to go on with where the next byte does not fit */
    size_t n;
    size_t state;    /* bytes matched */
};

struct detok {
    const struct vocab *v;
    struct stop *stop;
    size_t n_stops;
    char part[4];        /* a character that is not complete yet */
    size_t part_len;
    struct buf text;     /* what was given out by the last call, and what is held back */
    size_t given;        /* bytes of it that were given out */
    bool stopped;
    bool special;        /* control tokens are text */
};

static bool stop_init(struct stop *st, const char *s, slm_error *err)
{
    size_t n = strlen(s);

    if (n == 0) {
        return slm_fail(err, SLM_E_ARG, "a stop string is empty");
    }
    if (n > UINT32_MAX / 2) {
        return slm_fail(err, SLM_E_ARG, "a stop string of %zu bytes is too long", n);
    }
    st->s = mem_strndup(s, n);
    st->back = mem_zalloc(n + 1, sizeof *st->back);
    if (st->s == NULL || st->back == NULL) {
        return slm_fail_nomem(err, "a stop string");
    }
    st->n = n;
    for (size_t i = 1; i < n; i++) {
        size_t k = st->back[i];

        while (k > 0 && s[k] != s[i]) {
            k = st->back[k];
        }
        st->back[i + 1] = (uint32_t)(k + (s[k] == s[i]));
    }
    return true;
}

struct detok *detok_new(const struct vocab *v, const char *const *stops, size_t n_stops,
                        slm_error *err)
{
    struct detok *d = mem_zalloc(1, sizeof *d);

    if (d == NULL) {
        slm_fail_nomem(err, "a text stream");
        return NULL;
    }
    d->v = v;
    buf_init(&d->text, 0);
    d->stop = mem_zalloc(n_stops, sizeof *d->stop);
    if (d->stop == NULL) {
        slm_fail_nomem(err, "a text stream");
        goto fail;
    }
    for (; d->n_stops < n_stops; d->n_stops++) {
        if (!stop_init(&d->stop[d->n_stops], stops[d->n_stops], err)) {
            d->n_stops++;
            goto fail;
        }
    }
    return d;

fail:
    detok_free(d);
    return NULL;
}

void detok_free(struct detok *d)
{
    if (d == NULL) {
        return;
    }
    for (size_t i = 0; i < d->n_stops; i++) {
        mem_free(d->stop[i].s);
        mem_free(d->stop[i].back);
    }
    mem_free(d->stop);
    buf_deinit(&d->text);
    mem_free(d);
}

void detok_special(struct detok *d, bool special)
{
    d->special = special;
}

/* Moves a matcher by one byte; true when its string is complete. */
static bool stop_step(struct stop *st, char c)
{
    while (st->state > 0 && (st->state == st->n || st->s[st->state] != c)) {
        st->state = st->back[st->state];
    }
    st->state += st->s[st->state] == c;
    return st->state == st->n;
}

/* Adds valid text.  Where stop strings end at the same byte, the longest counts. */
static void add_text(struct detok *d, const char *s, size_t n)
{
    for (size_t i = 0; i < n && !d->stopped; i++) {
        size_t longest = 0;

        for (size_t k = 0; k < d->n_stops; k++) {
            if (stop_step(&d->stop[k], s[i]) && d->stop[k].n > longest) {
                longest = d->stop[k].n;
            }
        }
        buf_putc(&d->text, s[i]);
        if (longest > 0 && !d->text.failed) {
            d->stopped = true;
            d->text.len -= longest;
        }
    }
}

/* Adds one byte of a token. */
static void add_byte(struct detok *d, char c)
{
    uint32_t cp;

    d->part[d->part_len++] = c;
    while (d->part_len > 0) {
        int len = utf8_decode(d->part, d->part_len, &cp);

        if (len > 0) {
            add_text(d, d->part, (size_t)len);
            d->part_len = 0;
            return;
        }
        if (utf8_incomplete(d->part, d->part_len) == d->part_len) {
            return;
        }
        /* The last byte does not go on with what is before it, which is then a broken
         * character; alone it is one, or begins something new. */
        add_text(d, "\xEF\xBF\xBD", 3);
        d->part[0] = c;
        d->part_len = d->part_len > 1;
    }
}

/* Forgets what the last call gave out; the rest moves to the front. */
static void drop_given(struct detok *d)
{
    if (d->given > 0) {
        memmove(d->text.data, d->text.data + d->given, d->text.len - d->given);
        d->text.len -= d->given;
        d->given = 0;
    }
}

/* Bytes at the end of the text that may be the beginning of a stop string. */
static size_t held(const struct detok *d)
{
    size_t most = 0;

    for (size_t k = 0; k < d->n_stops && !d->stopped; k++) {
        most = d->stop[k].state > most ? d->stop[k].state : most;
    }
    return most;
}

static bool give(struct detok *d, size_t keep, const char **text, size_t *n, slm_error *err)
{
    if (d->text.failed) {
        *text = "";
        *n = 0;
        return slm_fail_nomem(err, "the text of the answer");
    }
    d->given = d->text.len - keep;
    *text = buf_str(&d->text);
    *n = d->given;
    return true;
}

bool detok_push(struct detok *d, int32_t id, const char **text, size_t *n, bool *stopped,
                slm_error *err)
{
    size_t len;
    const char *s = vocab_piece(d->v, id, d->special, &len);

    *text = "";
    *n = 0;
    *stopped = d->stopped;
    if (s == NULL) {
        return slm_fail(err, SLM_E_ARG, "token %d is not in the vocabulary of %d tokens", id,
                        vocab_size(d->v));
    }
    drop_given(d);
    for (size_t i = 0; i < len && !d->stopped; i++) {
        add_byte(d, s[i]);
    }
    *stopped = d->stopped;
    return give(d, held(d), text, n, err);
}

bool detok_finish(struct detok *d, const char **text, size_t *n, slm_error *err)
{
    drop_given(d);
    if (d->part_len > 0) {
        d->part_len = 0;
        add_text(d, "\xEF\xBF\xBD", 3);
    }
    return give(d, 0, text, n, err);
}

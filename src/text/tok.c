/* tok.c - from text to tokens: special tokens are cut out, what is between them goes to the
 * algorithm of the vocabulary. */
#include "text/tok.h"

#include "base/utf8.h"
#include "text/nfc.h"
#include "text/tok_cache.h"
#include "text/unicode.h"

/* Symbols of a piece are counted in 32 bits with room for twice as many tree nodes. */
#define TEXT_MAX ((size_t)1 << 30)

int32_t *ids_reserve(struct tok_call *c, size_t n)
{
    struct ids *ids = c->out;

    if (n > ids->cap - ids->n) {
        size_t cap = ids->cap < 32 ? 64 : 2 * ids->cap;

        cap = cap < ids->n + n ? ids->n + n : cap;
        int32_t *data = mem_realloc(ids->data, cap, sizeof *data);

        if (data == NULL) {
            c->failed = true;
            return NULL;
        }
        ids->data = data;
        ids->cap = cap;
    }
    return ids->data + ids->n;
}

void *tok_work(struct tok_call *c, size_t bytes)
{
    if (bytes > c->work_bytes) {
        mem_free(c->work);
        c->work_bytes = bytes + bytes / 2;
        c->work = mem_alloc(c->work_bytes, 1);
        if (c->work == NULL) {
            c->work_bytes = 0;
            c->failed = true;
        }
    }
    return c->work;
}

/* ---- fragments --------------------------------------------------------------------- */

/* Appends s with every byte that is no part of a character replaced by U+FFFD. */
static void append_valid(struct buf *out, const char *s, size_t n)
{
    size_t good = 0;  /* not copied yet */

    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = utf8_decode(s + i, n - i, &cp);

        if (len == 0) {
            buf_add(out, s + good, i - good);
            buf_puts(out, "\xEF\xBF\xBD");
            len = 1;
            good = i + 1;
        }
        i += (size_t)len;
    }
    buf_add(out, s + good, n - good);
}

/* Byte-level BPE: makes text valid and normal where it is not. */
static void encode_bytes(struct tok_call *c, const char *s, size_t n)
{
    struct buf valid;
    bool nfc = c->v->pre->flags & PRETOK_NFC;

    buf_init(&valid, 0);
    if (!utf8_valid(s, n)) {
        append_valid(&valid, s, n);
        s = buf_str(&valid);
        n = valid.len;
    }
    if (nfc && !valid.failed && nfc_differs(s, n)) {
        buf_clear(&c->text);
        nfc_append(&c->text, s, n);
        s = buf_str(&c->text);
        n = c->text.len;
    }
    c->failed |= valid.failed || c->text.failed;
    if (!c->failed) {
        tok_bpe(c, s, n);
    }
    buf_deinit(&valid);
}

static void encode_fragment(struct tok_call *c, const char *s, size_t n)
{
    switch (c->v->kind) {
    case VOCAB_BPE:
        encode_bytes(c, s, n);
        break;
    case VOCAB_SPM:
        tok_spm(c, s, n, c->v->add_space);
        break;
    case VOCAB_GEMMA4:
        tok_gemma4(c, s, n);
        break;
    }
}

/* ---- the whole text ---------------------------------------------------------------- */

/* Where the text goes on behind a special token. */
static size_t strip_right(const struct vocab *v, int32_t id, const char *s, size_t pos, size_t n)
{
    static const char *const keep[] = {"<unk>", "<s>", "<|endoftext|>"};
    struct gguf_str text = v->text[id];

    if (!v->rstrip) {
        return pos;
    }
    for (size_t i = 0; i < sizeof keep / sizeof keep[0]; i++) {
        if (text.n == strlen(keep[i]) && memcmp(text.s, keep[i], text.n) == 0) {
            return pos;
        }
    }
    for (;;) {
        uint32_t cp;
        int len = utf8_decode(s + pos, n - pos, &cp);

        if (len == 0 || !(unicode_class(cp) & UC_SPACE)) {
            return pos;
        }
        pos += (size_t)len;
    }
}

struct request {
    const char *text;
    size_t n;
    bool add_special;
    bool parse_special;
    bool bos_once;  /* no second bos where the text begins with one */
    const struct span *spans;
    size_t n_spans;
};

static void encode_text(struct tok_call *c, const struct request *r)
{
    const struct vocab *v = c->v;
    const struct specials *sp = r->parse_special ? &v->all : &v->user;
    bool bos = r->add_special && v->add_bos && v->bos >= 0;

    for (size_t pos = 0;;) {
        struct special_match m = special_next(sp, v, r->text, pos, r->n, r->spans, r->n_spans);

        if (bos) {
            if (!(r->bos_once && m.begin == 0 && m.id == v->bos)) {
                ids_push(c, v->bos);
            }
            bos = false;
        }
        encode_fragment(c, r->text + pos, m.begin - pos);
        if (m.id < 0 || c->failed) {
            break;
        }
        ids_push(c, m.id);
        pos = strip_right(v, m.id, r->text, m.end, r->n);
    }
    if (r->add_special && v->add_eos && v->eos >= 0) {
        ids_push(c, v->eos);
    }
}

static bool encode(const struct vocab *v, const struct request *r, struct ids *out, slm_error *err)
{
    struct tok_call c = {.v = v, .t = v->tables, .out = out};
    size_t before = out->n;

    if (r->n > TEXT_MAX) {
        return slm_fail(err, SLM_E_ARG, "a text of %zu bytes cannot be tokenized; at most %zu are "
                        "supported", r->n, TEXT_MAX);
    }
    if (!tok_tables_ready(v->tables, err)) {
        return false;
    }
    buf_init(&c.text, 0);
    buf_init(&c.chunk, 0);
    c.cache = tok_cache_take(v->tables, r->n);
    encode_text(&c, r);
    tok_cache_give(v->tables, c.cache);
    buf_deinit(&c.text);
    buf_deinit(&c.chunk);
    mem_free(c.work);
    if (c.failed) {
        out->n = before;
        return slm_fail_nomem(err, "tokenizing the text");
    }
    return true;
}

bool tok_encode(const struct vocab *v, const char *text, size_t n, bool add_special,
                bool parse_special, struct ids *out, slm_error *err)
{
    struct request r = {
        .text = n > 0 ? text : "",
        .n = n,
        .add_special = add_special,
        .parse_special = parse_special,
    };

    return encode(v, &r, out, err);
}

bool tok_encode_spans(const struct vocab *v, const char *text, size_t n, bool add_special,
                      const struct span *spans, size_t n_spans, struct ids *out, slm_error *err)
{
    struct request r = {
        .text = n > 0 ? text : "",
        .n = n,
        .add_special = add_special,
        .parse_special = true,
        .bos_once = true,
        .spans = spans,
        .n_spans = n_spans,
    };

    return encode(v, &r, out, err);
}

/* tok_make.h - vocabularies for tests: read from a file, or made token by token. */
#ifndef TOK_MAKE_H
#define TOK_MAKE_H

#include <stdlib.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "test.h"
#include "text/vocab.h"

#define COUNT(a) (sizeof (a) / sizeof (a)[0])

static struct rng rng = {1};

static inline unsigned below(unsigned n)
{
    return (unsigned)(rng_next(&rng) % n);
}

static inline void put_cp(struct buf *b, uint32_t cp)
{
    char utf8[4];

    buf_add(b, utf8, (size_t)utf8_encode(cp, utf8));
}

/* Invalid UTF-8 shown as a lenient decoder shows it. */
static inline void append_lossy(struct buf *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = utf8_decode(s + i, n - i, &cp);

        if (len > 0) {
            buf_add(out, s + i, (size_t)len);
            i += (size_t)len;
        } else {
            buf_puts(out, "\xEF\xBF\xBD");
            i++;
        }
    }
}

static inline struct gguf *open_vocab(const char *path, struct vocab **v)
{
    slm_error err = {0};
    struct gguf *g = gguf_open(path, &err);

    *v = g == NULL ? NULL : vocab_new(g, &err);
    if (*v == NULL) {
        print_error("%s: %s\n", path, err.msg);
        fail();
    }
    return g;
}

enum { MADE_MAX = 700 };

struct made {
    const char *model, *pre, *name;
    char *text[MADE_MAX];
    float score[MADE_MAX];
    int32_t type[MADE_MAX];
    int n;
    char *merge[MADE_MAX];
    int n_merges;
    void *file;
    struct gguf *g;
    struct vocab *v;
};

static inline int add_token(struct made *m, const char *text, int type, float score)
{
    CHECK(m->n < MADE_MAX);
    m->text[m->n] = strdup(text);
    m->type[m->n] = type;
    m->score[m->n] = score;
    return m->n++;
}

/* The printable character of a byte. */
static inline void put_printable(struct buf *b, unsigned byte)
{
    unsigned others = 0;

    for (unsigned c = 0; c <= byte; c++) {
        bool itself = (c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xAC) || c >= 0xAE;

        if (c == byte) {
            put_cp(b, itself ? c : 0x100 + others);
        }
        others += !itself;
    }
}

static inline void add_bytes(struct made *m)
{
    for (unsigned b = 0; b < 256; b++) {
        struct buf text;

        buf_init(&text, 0);
        if (strcmp(m->model, "gpt2") == 0) {
            put_printable(&text, b);
            add_token(m, buf_str(&text), 1, 0);
        } else {
            buf_printf(&text, "<0x%02X>", b);
            add_token(m, buf_str(&text), 6, 0);
        }
        buf_deinit(&text);
    }
}

/* A merge "l r" and its token. */
static inline int add_merge(struct made *m, const char *l, const char *r)
{
    char text[128];

    snprintf(text, sizeof text, "%s %s", l, r);
    CHECK(m->n_merges < MADE_MAX);
    m->merge[m->n_merges++] = strdup(text);
    snprintf(text, sizeof text, "%s%s", l, r);
    return add_token(m, text, 1, 0);
}

static inline struct gguf_writer *write_made(const struct made *m)
{
    struct gguf_writer *w = gguf_writer_new();
    struct gguf_str strs[MADE_MAX];

    gguf_put_str(w, "general.architecture", "llama", 5);
    if (m->name != NULL) {
        gguf_put_str(w, "general.name", m->name, strlen(m->name));
    }
    gguf_put_str(w, "tokenizer.ggml.model", m->model, strlen(m->model));
    if (m->pre != NULL) {
        gguf_put_str(w, "tokenizer.ggml.pre", m->pre, strlen(m->pre));
    }
    for (int i = 0; i < m->n; i++) {
        strs[i] = (struct gguf_str){m->text[i], strlen(m->text[i])};
    }
    gguf_put_strs(w, "tokenizer.ggml.tokens", strs, (uint64_t)m->n);
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, m->type, (uint64_t)m->n);
    gguf_put_array(w, "tokenizer.ggml.scores", GGUF_F32, m->score, (uint64_t)m->n);
    for (int i = 0; i < m->n_merges; i++) {
        strs[i] = (struct gguf_str){m->merge[i], strlen(m->merge[i])};
    }
    gguf_put_strs(w, "tokenizer.ggml.merges", strs, (uint64_t)m->n_merges);
    return w;
}

static inline void open_writer(struct made *m, struct gguf_writer *w, slm_error *err)
{
    size_t n;

    m->file = gguf_write_mem(w, &n, err);
    CHECK(m->file != NULL);
    m->g = gguf_open_mem(m->file, n, err);
    CHECK(m->g != NULL);
    m->v = vocab_new(m->g, err);
    gguf_writer_free(w);
}

static inline void open_made(struct made *m)
{
    slm_error err = {0};

    open_writer(m, write_made(m), &err);
    CHECK_STR(err.msg, "");
    CHECK(m->v != NULL);
}

static inline void close_made(struct made *m)
{
    vocab_free(m->v);
    gguf_close(m->g);
    mem_free(m->file);
    for (int i = 0; i < m->n; i++) {
        free(m->text[i]);
    }
    for (int i = 0; i < m->n_merges; i++) {
        free(m->merge[i]);
    }
    *m = (struct made){0};
}

/* Ids as text, "1 2 3". */
static inline const char *ids_str(const struct ids *ids)
{
    static char out[4096];
    size_t at = 0;

    out[0] = '\0';
    for (size_t i = 0; i < ids->n && at < sizeof out - 16; i++) {
        at += (size_t)snprintf(out + at, sizeof out - at, i > 0 ? " %d" : "%d", ids->data[i]);
    }
    return out;
}

static inline const char *encode_str(const struct vocab *v, const char *text, size_t n,
                                     bool add_special, bool parse_special)
{
    struct ids ids = {0};
    slm_error err = {0};

    CHECK(tok_encode(v, text, n, add_special, parse_special, &ids, &err));
    const char *out = ids_str(&ids);

    ids_deinit(&ids);
    return out;
}

/* Random merges over the letters a to d, each of parts that are there. */
static inline void add_random_merges(struct made *m, int n)
{
    int first = m->n;

    while (m->n - first < n) {
        char l[32], r[32], both[64];
        bool known = false;

        for (int side = 0; side < 2; side++) {
            char *part = side == 0 ? l : r;
            unsigned pick = below(4 + (unsigned)(m->n - first));

            if (pick < 4) {
                snprintf(part, 32, "%c", 'a' + (int)pick);
            } else {
                snprintf(part, 32, "%s", m->text[first + (int)pick - 4]);
            }
        }
        snprintf(both, sizeof both, "%s%s", l, r);
        for (int i = 0; i < m->n; i++) {
            known |= strcmp(m->text[i], both) == 0;
        }
        if (!known && strlen(both) < 14) {
            add_merge(m, l, r);
        }
    }
}

#endif

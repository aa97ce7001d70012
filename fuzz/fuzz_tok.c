/* fuzz_tok.c - any bytes as text for small vocabularies, or as a vocabulary.
 *
 * What begins with "GGUF" is opened as a file, and some text tokenized with it if it has a
 * tokenizer.  Else the first byte chooses a vocabulary and the rest is text: ids are in
 * range, control tokens come from control text only, the text comes back, and a stream
 * gives the same text as all ids at once. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/nfc.h"
#include "text/vocab.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void require(bool ok)
{
    if (!ok) {
        abort();
    }
}

/* ---- vocabularies ------------------------------------------------------------------- */

enum { TOKEN_MAX = 320, CONTROL_ID = 0, USER_ID = 2 };

struct fixture {
    const char *model, *pre;
    bool nfc;
    void *file;
    struct gguf *g;
    struct vocab *v;
};

static struct fixture fixtures[] = {
    {.model = "gpt2", .pre = "gpt-2"},
    {.model = "gpt2", .pre = "qwen2", .nfc = true},
    {.model = "gpt2", .pre = "qwen35", .nfc = true},
    {.model = "gpt2", .pre = "llama-bpe"},
    {.model = "gpt2", .pre = "gpt-4o"},
    {.model = "gpt2", .pre = "tekken"},
    {.model = "gpt2", .pre = "smollm"},
    {.model = "gpt2", .pre = "deepseek-v3"},
    {.model = "gpt2", .pre = "deepseek-coder"},
    {.model = "gpt2", .pre = "default"},
    {.model = "gpt2", .pre = "viking"},
    {.model = "llama"},
    {.model = "gemma4"},
};

enum { N_FIXTURES = sizeof fixtures / sizeof fixtures[0] };

static const char *const merged[] = {
    "a b", "ab a", "b a", "ab ab", "aba b", "ab aba", "c a", "e r", "1 2", "12 3", ". .",
};

struct tokens {
    struct gguf_str text[TOKEN_MAX];
    int32_t type[TOKEN_MAX];
    float score[TOKEN_MAX];
    uint64_t n;
    struct buf bytes;  /* of the texts, cut by NULs; has room for all */
};

static void add(struct tokens *t, int type, float score, const char *text, size_t n)
{
    require(t->n < TOKEN_MAX && t->bytes.len + n < t->bytes.cap);
    t->text[t->n] = (struct gguf_str){t->bytes.data + t->bytes.len, n};
    buf_add(&t->bytes, text, n);
    t->type[t->n] = type;
    t->score[t->n++] = score;
}

static void add_byte_tokens(struct tokens *t, bool printable)
{
    uint32_t other = 0x100;

    for (unsigned b = 0; b < 256; b++) {
        bool itself = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        char text[8] = {'<', '0', 'x', "0123456789ABCDEF"[b / 16], "0123456789ABCDEF"[b % 16], '>'};

        if (printable) {
            char utf8[4];

            add(t, 1, 0, utf8, (size_t)utf8_encode(itself ? b : other++, utf8));
        } else {
            add(t, 6, 0, text, 6);
        }
    }
}

static void fill_tokens(struct tokens *t, const struct fixture *f)
{
    bool byte_level = strcmp(f->model, "gpt2") == 0;

    buf_init(&t->bytes, 0);
    for (int i = 0; i < 4096; i++) {
        buf_putc(&t->bytes, ' ');
    }
    buf_clear(&t->bytes);
    add(t, 3, 0, "<s>", 3);
    add(t, 3, 0, "<s><s>", 6);
    add(t, 4, 0, "  ", 2);
    add(t, 2, 0, "<unk>", 5);
    add_byte_tokens(t, byte_level);
    for (size_t i = 0; i < sizeof merged / sizeof merged[0]; i++) {
        const char *space = strchr(merged[i], ' ');
        char text[16];
        size_t left = (size_t)(space - merged[i]);

        memcpy(text, merged[i], left);
        strcpy(text + left, space + 1);
        add(t, 1, -(float)i, text, strlen(text));
    }
    if (!byte_level) {
        add(t, 1, -20, "\xE2\x96\x81", 3);
        add(t, 1, -21, "\xE2\x96\x81" "a", 4);
        add(t, 1, -22, "b\xE2\x96\x81", 4);
        add(t, 1, -23, "\xC3\xA9", 2);
        add(t, 1, -24, "a", 1);
        add(t, 1, -24, "b", 1);
        add(t, 1, -24, "\n\n", 2);
    }
}

/* Vocabularies live to the end of the process. */
static void make(struct fixture *f)
{
    static struct tokens t;
    struct gguf_str merges[sizeof merged / sizeof merged[0]];
    struct gguf_writer *w = gguf_writer_new();
    slm_error err = {0};
    size_t n;

    t.n = 0;
    fill_tokens(&t, f);
    for (size_t i = 0; i < sizeof merged / sizeof merged[0]; i++) {
        merges[i] = (struct gguf_str){merged[i], strlen(merged[i])};
    }
    gguf_put_str(w, "tokenizer.ggml.model", f->model, strlen(f->model));
    if (f->pre != NULL) {
        gguf_put_str(w, "tokenizer.ggml.pre", f->pre, strlen(f->pre));
    }
    gguf_put_strs(w, "tokenizer.ggml.tokens", t.text, t.n);
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, t.type, t.n);
    gguf_put_array(w, "tokenizer.ggml.scores", GGUF_F32, t.score, t.n);
    gguf_put_strs(w, "tokenizer.ggml.merges", merges, sizeof merged / sizeof merged[0]);
    gguf_put_u32(w, "tokenizer.ggml.bos_token_id", 0);
    f->file = gguf_write_mem(w, &n, &err);
    gguf_writer_free(w);
    require(f->file != NULL);
    f->g = gguf_open_mem(f->file, n, &err);
    require(f->g != NULL);
    f->v = vocab_new(f->g, &err);
    require(f->v != NULL);
    /* A long text makes the cache of pieces. */
    struct ids ids = {0};
    static char text[5000];

    require(tok_encode(f->v, text, sizeof text, false, false, &ids, &err));
    ids_deinit(&ids);
    buf_deinit(&t.bytes);
}

/* ---- properties ---------------------------------------------------------------------- */

static bool is_control(const struct vocab *v, int32_t id)
{
    size_t n;

    return vocab_piece(v, id, true, &n) != NULL && n > 0 &&
           vocab_piece(v, id, false, &n) != NULL && n == 0;
}

static void check_ids(const struct vocab *v, const struct ids *ids, bool control)
{
    for (size_t i = 0; i < ids->n; i++) {
        require(ids->data[i] >= 0 && ids->data[i] < vocab_size(v));
        require(control || !is_control(v, ids->data[i]));
    }
}

/* The text that must come back: valid and normal for byte-level BPE, U+2581 a space else. */
static void expect_text(const struct fixture *f, const char *s, size_t n, struct buf *out)
{
    struct buf valid;

    buf_init(&valid, 0);
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = utf8_decode(s + i, n - i, &cp);

        if (strcmp(f->model, "gpt2") == 0 && len == 0) {
            buf_puts(&valid, "\xEF\xBF\xBD");
        } else if (strcmp(f->model, "gpt2") != 0 && len == 3 && cp == 0x2581) {
            buf_putc(&valid, ' ');
        } else {
            buf_add(&valid, s + i, len == 0 ? 1 : (size_t)len);
        }
        i += len == 0 ? 1 : (size_t)len;
    }
    if (f->nfc) {
        nfc_append(out, buf_str(&valid), valid.len);
    } else {
        buf_add(out, buf_str(&valid), valid.len);
    }
    buf_deinit(&valid);
}

static void stream(const struct vocab *v, const struct ids *ids, struct buf *out)
{
    const char *stops[] = {"ab<", "\n\n\n"};
    struct detok *d = detok_new(v, stops, 2, NULL);
    const char *text;
    size_t n;
    bool stopped = false;

    buf_clear(out);
    for (size_t i = 0; i < ids->n && !stopped; i++) {
        require(detok_push(d, ids->data[i], &text, &n, &stopped, NULL));
        require(utf8_valid(text, n));
        buf_add(out, text, n);
    }
    require(detok_finish(d, &text, &n, NULL));
    buf_add(out, text, n);
    require(memmem(buf_str(out), out->len, "ab<", 3) == NULL);
    require(memmem(buf_str(out), out->len, "\n\n\n", 3) == NULL);
    detok_free(d);
}

static void check_text(const struct fixture *f, const char *s, size_t n)
{
    const struct vocab *v = f->v;
    struct ids plain = {0}, marked = {0}, control = {0};
    struct span all = {0, n};
    struct buf text, want, streamed;

    buf_init(&text, 0);
    buf_init(&want, 0);
    buf_init(&streamed, 0);
    require(tok_encode(v, s, n, false, false, &plain, NULL));
    require(tok_encode(v, s, n, true, true, &control, NULL));
    require(tok_encode_spans(v, s, n, false, &all, 1, &marked, NULL));
    check_ids(v, &plain, false);
    check_ids(v, &control, true);
    check_ids(v, &marked, false);
    require(marked.n == plain.n);
    require(plain.n == 0 || memcmp(marked.data, plain.data, plain.n * sizeof *plain.data) == 0);

    require(vocab_detokenize(v, plain.data, plain.n, false, &text, NULL));
    expect_text(f, s, n, &want);
    /* NFC is applied between user-defined tokens, which are spaces and change nothing.  SPM puts
     * a space behind each of them. */
    if (strcmp(f->model, "llama") != 0 || memmem(buf_str(&want), want.len, "  ", 2) == NULL) {
        require(text.len == want.len && memcmp(buf_str(&text), buf_str(&want), want.len) == 0);
    }
    stream(v, &plain, &streamed);
    stream(v, &control, &streamed);
    buf_deinit(&text);
    buf_deinit(&want);
    buf_deinit(&streamed);
    ids_deinit(&plain);
    ids_deinit(&marked);
    ids_deinit(&control);
}

static void check_file(const uint8_t *data, size_t n)
{
    struct gguf *g = gguf_open_mem(data, n, NULL);
    slm_error err = {0};
    struct vocab *v = g == NULL ? NULL : vocab_new(g, &err);

    if (v != NULL) {
        struct ids ids = {0};
        struct buf text;

        buf_init(&text, 0);
        if (tok_encode(v, (const char *)data, n, true, true, &ids, &err)) {
            check_ids(v, &ids, true);
            require(vocab_detokenize(v, ids.data, ids.n, true, &text, NULL));
            for (int32_t id = 0; id < vocab_size(v); id++) {
                size_t len;

                require(vocab_piece(v, id, true, &len) != NULL);
            }
        }
        buf_deinit(&text);
        ids_deinit(&ids);
    } else if (g != NULL) {
        require(err.code != SLM_E_OK && err.msg[0] != '\0');
    }
    vocab_free(v);
    gguf_close(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (fixtures[0].v == NULL) {
        for (int i = 0; i < N_FIXTURES; i++) {
            make(&fixtures[i]);
        }
    }
    if (n >= 4 && memcmp(data, "GGUF", 4) == 0) {
        check_file(data, n);
    } else if (n > 0) {
        check_text(&fixtures[data[0] % N_FIXTURES], (const char *)data + 1, n - 1);
    }
    return 0;
}

/* test_tok.c - tokenizers against the models' own, streaming text, and what files break.
 *
 * tests/data/tok holds, for every family, the reference cases with a vocabulary reduced to
 * what they need (tools/reduce_vocab.py); the full vocabularies are used where they are
 * present.  Small vocabularies for single rules are made here. */
#include "test.h"

#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "text/nfc.h"
#include "text/pretok.h"
#include "text/unicode.h"
#include "text/vocab.h"

#ifdef TEST_PCRE2
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#endif

#define COUNT(a) (sizeof (a) / sizeof (a)[0])

static struct rng rng = {1};

static unsigned below(unsigned n)
{
    return (unsigned)(rng_next(&rng) % n);
}

static void put_cp(struct buf *b, uint32_t cp)
{
    char utf8[4];

    buf_add(b, utf8, (size_t)utf8_encode(cp, utf8));
}

/* Invalid UTF-8 shown as a lenient decoder shows it. */
static void append_lossy(struct buf *out, const char *s, size_t n)
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

/* ---- reference cases --------------------------------------------------------------- */

static const char *const families[] = {
    "gemma-4", "gemma3", "gpt-2", "gpt-neox", "llama-bpe", "llama-spm", "mistral-spm", "phi-2",
    "phi-3", "phi-4-mini", "qwen2", "qwen2.5-coder", "qwen35", "smollm2",
};

static struct gguf *open_vocab(const char *path, struct vocab **v)
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

static size_t read_ids(const json_t *array, int32_t **out)
{
    size_t n = json_array_size(array);

    *out = malloc((n + 1) * sizeof **out);
    for (size_t i = 0; i < n; i++) {
        (*out)[i] = (int32_t)json_integer_value(json_array_get(array, i));
    }
    return n;
}

/* One line {"text", "special", "bos", "ids", "detok"}. */
static void check_case(const struct vocab *v, const json_t *row, const char *line)
{
    const json_t *text = json_object_get(row, "text");
    const json_t *detok = json_object_get(row, "detok");
    slm_error err = {0};
    struct ids got = {0};
    int32_t *want;
    size_t n_want = read_ids(json_object_get(row, "ids"), &want);
    struct buf out, lossy;

    buf_init(&out, 0);
    buf_init(&lossy, 0);
    CHECK(tok_encode(v, json_string_value(text), json_string_length(text),
                     json_is_true(json_object_get(row, "bos")),
                     json_is_true(json_object_get(row, "special")), &got, &err));
    if (got.n != n_want || (n_want > 0 && memcmp(got.data, want, n_want * sizeof *want) != 0)) {
        print_error("ids differ: %s\n", line);
        fail();
    }
    CHECK(vocab_detokenize(v, got.data, got.n, true, &out, &err));
    append_lossy(&lossy, buf_str(&out), out.len);
    if (lossy.len != json_string_length(detok) ||
        memcmp(buf_str(&lossy), json_string_value(detok), lossy.len) != 0) {
        print_error("text differs: %s\n", line);
        fail();
    }
    buf_deinit(&out);
    buf_deinit(&lossy);
    ids_deinit(&got);
    free(want);
}

/* One line {"ids", "pieces_hex"}. */
static void check_pieces(const struct vocab *v, const json_t *row, const char *line)
{
    const json_t *hex = json_object_get(row, "pieces_hex");
    int32_t *ids;
    size_t n_ids = read_ids(json_object_get(row, "ids"), &ids);

    for (size_t i = 0; i < n_ids; i++) {
        struct buf b;
        size_t n;
        const char *s = vocab_piece(v, ids[i], true, &n);

        buf_init(&b, 0);
        for (size_t k = 0; k < n; k++) {
            buf_printf(&b, "%02x", (unsigned char)s[k]);
        }
        if (strcmp(buf_str(&b), json_string_value(json_array_get(hex, i))) != 0) {
            print_error("piece %zu differs: %s\n", i, line);
            fail();
        }
        buf_deinit(&b);
    }
    free(ids);
}

/* Runs the lines of a file; returns how many. */
static int check_lines(const struct vocab *v, const char *path)
{
    FILE *f = fopen(path, "r");
    char *line = NULL;
    size_t cap = 0;
    int n = 0;

    CHECK(f != NULL);
    for (; getline(&line, &cap, f) > 0; n++) {
        json_t *row = json_loads(line, JSON_ALLOW_NUL, NULL);

        CHECK(row != NULL);
        if (json_object_get(row, "text") != NULL) {
            check_case(v, row, line);
        } else {
            check_pieces(v, row, line);
        }
        json_decref(row);
    }
    free(line);
    fclose(f);
    return n;
}

/* Text that is long enough for a call to make the cache of pieces, which stays. */
static void make_cache(const struct vocab *v)
{
    static char text[5000];
    struct ids ids = {0};
    slm_error err = {0};

    memset(text, 'a', sizeof text);
    CHECK(tok_encode(v, text, sizeof text, false, false, &ids, &err));
    ids_deinit(&ids);
}

TEST(reference_cases_with_reduced_vocabularies)
{
    for (size_t i = 0; i < COUNT(families); i++) {
        char path[512];
        struct vocab *v;

        snprintf(path, sizeof path, TEST_DATA "/tok/%s.gguf", families[i]);
        struct gguf *g = open_vocab(path, &v);

        snprintf(path, sizeof path, TEST_DATA "/tok/%s.jsonl", families[i]);
        CHECK(check_lines(v, path) > 700);
        /* Once more to fill the cache and once to answer from it. */
        make_cache(v);
        CHECK(check_lines(v, path) > 700);
        CHECK(check_lines(v, path) > 700);
        snprintf(path, sizeof path, TEST_DATA "/tok/%s.decode.jsonl", families[i]);
        CHECK(check_lines(v, path) >= 60);
        vocab_free(v);
        gguf_close(g);
    }
}

/* Where the real models of the tests labelled real are kept. */
static void models_dir(char *out, size_t cap)
{
    const char *dir = getenv("SLM_MODELS");
    const char *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");

    if (dir != NULL && dir[0] != '\0') {
        snprintf(out, cap, "%s", dir);
    } else if (cache != NULL) {
        snprintf(out, cap, "%s/slm", cache);
    } else {
        snprintf(out, cap, "%s/.cache/slm", home != NULL ? home : "");
    }
}

/* Where the family's full vocabulary is. */
static void full_vocab(const char *family, char *out, size_t cap)
{
    static const char *const models[][2] = {
        {"smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"},
        {"gemma3", "gemma3-270m-q4_k_m.gguf"},
        {"qwen2.5-coder", "qwen2.5-coder-1.5b.gguf"},
    };

    snprintf(out, cap, TEST_SHARED "/golden/vocab/ggml-vocab-%s.gguf", family);
    for (size_t i = 0; i < COUNT(models); i++) {
        if (strcmp(models[i][0], family) == 0) {
            char dir[400];

            models_dir(dir, sizeof dir);
            snprintf(out, cap, "%s/%s", dir, models[i][1]);
        }
    }
}

TEST(reference_cases_with_full_vocabularies)
{
    for (size_t i = 0; i < COUNT(families); i++) {
        char path[512], cases[512];
        struct vocab *v;

        full_vocab(families[i], path, sizeof path);
        snprintf(cases, sizeof cases, TEST_SHARED "/golden/tokenize/%s.jsonl", families[i]);
        if (access(path, R_OK) != 0 || access(cases, R_OK) != 0) {
            print_message("%s: not run with its full vocabulary, %s is not there\n", families[i],
                          access(path, R_OK) != 0 ? path : cases);
            continue;
        }
        struct gguf *g = open_vocab(path, &v);

        CHECK(check_lines(v, cases) > 700);
        snprintf(cases, sizeof cases, TEST_SHARED "/golden/tokenize/decode/%s.jsonl", families[i]);
        CHECK(check_lines(v, cases) >= 60);
        vocab_free(v);
        gguf_close(g);
    }
}

/* ---- vocabularies made here -------------------------------------------------------- */

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

static int add_token(struct made *m, const char *text, int type, float score)
{
    CHECK(m->n < MADE_MAX);
    m->text[m->n] = strdup(text);
    m->type[m->n] = type;
    m->score[m->n] = score;
    return m->n++;
}

/* The printable character of a byte. */
static void put_printable(struct buf *b, unsigned byte)
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

static void add_bytes(struct made *m)
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
static int add_merge(struct made *m, const char *l, const char *r)
{
    char text[128];

    snprintf(text, sizeof text, "%s %s", l, r);
    CHECK(m->n_merges < MADE_MAX);
    m->merge[m->n_merges++] = strdup(text);
    snprintf(text, sizeof text, "%s%s", l, r);
    return add_token(m, text, 1, 0);
}

static struct gguf_writer *write_made(const struct made *m)
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

static void open_writer(struct made *m, struct gguf_writer *w, slm_error *err)
{
    size_t n;

    m->file = gguf_write_mem(w, &n, err);
    CHECK(m->file != NULL);
    m->g = gguf_open_mem(m->file, n, err);
    CHECK(m->g != NULL);
    m->v = vocab_new(m->g, err);
    gguf_writer_free(w);
}

static void open_made(struct made *m)
{
    slm_error err = {0};

    open_writer(m, write_made(m), &err);
    CHECK_STR(err.msg, "");
    CHECK(m->v != NULL);
}

static void close_made(struct made *m)
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
static const char *ids_str(const struct ids *ids)
{
    static char out[4096];
    size_t at = 0;

    out[0] = '\0';
    for (size_t i = 0; i < ids->n && at < sizeof out - 16; i++) {
        at += (size_t)snprintf(out + at, sizeof out - at, i > 0 ? " %d" : "%d", ids->data[i]);
    }
    return out;
}

static const char *encode_str(const struct vocab *v, const char *text, size_t n, bool add_special,
                              bool parse_special)
{
    struct ids ids = {0};
    slm_error err = {0};

    CHECK(tok_encode(v, text, n, add_special, parse_special, &ids, &err));
    const char *out = ids_str(&ids);

    ids_deinit(&ids);
    return out;
}

/* ---- merging ----------------------------------------------------------------------- */

/* Random merges over the letters a to d, each of parts that are there. */
static void add_random_merges(struct made *m, int n)
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

/* The definition: of all neighbours that merge the lowest rank, of those the leftmost. */
static void merge_plainly(const struct made *m, const char *text, struct ids *out)
{
    char *sym[600];
    size_t n = strlen(text);

    CHECK(n < COUNT(sym));
    for (size_t i = 0; i < n; i++) {
        sym[i] = strndup(text + i, 1);
    }
    for (;;) {
        int best = m->n_merges;
        size_t at = 0;

        for (size_t i = 0; i + 1 < n; i++) {
            char pair[128];

            snprintf(pair, sizeof pair, "%s %s", sym[i], sym[i + 1]);
            for (int k = 0; k < best; k++) {
                if (strcmp(m->merge[k], pair) == 0) {
                    best = k;
                    at = i;
                }
            }
        }
        if (best == m->n_merges) {
            break;
        }
        char both[128];

        snprintf(both, sizeof both, "%s%s", sym[at], sym[at + 1]);
        free(sym[at]);
        free(sym[at + 1]);
        sym[at] = strdup(both);
        memmove(&sym[at + 1], &sym[at + 2], (n - at - 2) * sizeof *sym);
        n--;
    }
    out->n = 0;
    for (size_t i = 0; i < n; i++) {
        for (int id = 0; id < m->n; id++) {
            if (strcmp(m->text[id], sym[i]) == 0) {
                out->data[out->n++] = id;
                break;
            }
        }
        free(sym[i]);
    }
}

TEST(merging_follows_its_definition)
{
    int32_t want_ids[600];

    for (int round = 0; round < 12; round++) {
        struct made m = {.model = "gpt2", .pre = "gpt-2"};

        add_bytes(&m);
        add_random_merges(&m, 10 + (int)below(60));
        open_made(&m);
        if (round % 2 == 0) {
            make_cache(m.v);
        }
        for (int i = 0; i < 40; i++) {
            char text[512];
            size_t n = i < 30 ? 1 + below(60) : 100 + below(400);  /* short and long merges */
            struct ids want = {.data = want_ids}, got = {0};
            slm_error err = {0};

            for (size_t k = 0; k < n; k++) {
                text[k] = (char)('a' + below(below(3) == 0 ? 4 : 2));
            }
            text[n] = '\0';
            merge_plainly(&m, text, &want);
            /* Twice, since the second time knows which tokens are whole. */
            for (int again = 0; again < 2; again++) {
                got.n = 0;
                CHECK(tok_encode(m.v, text, n, false, false, &got, &err));
                CHECK_EQ(got.n, want.n);
                CHECK_MEM(got.data, want.data, got.n * sizeof *got.data);
            }
            ids_deinit(&got);
        }
        close_made(&m);
    }
}

static int find_token(const struct made *m, const char *s, size_t n)
{
    for (int i = 0; i < m->n; i++) {
        if (m->type[i] == 1 && strlen(m->text[i]) == n && memcmp(m->text[i], s, n) == 0) {
            return i;
        }
    }
    return -1;
}

/* The definition of merging by score, on text with U+2581 for spaces. */
static void score_plainly(const struct made *m, const char *s, size_t n, struct ids *out)
{
    size_t cut[1200];
    size_t n_sym = 0;

    for (size_t i = 0; i < n; i++) {
        if (((unsigned char)s[i] & 0xC0) != 0x80) {
            cut[n_sym++] = i;
        }
    }
    cut[n_sym] = n;
    for (;;) {
        size_t at = n_sym;
        int best = -1;

        for (size_t i = 0; i + 1 < n_sym; i++) {
            int id = find_token(m, s + cut[i], cut[i + 2] - cut[i]);

            if (id >= 0 && (best < 0 || m->score[id] > m->score[best])) {
                best = id;
                at = i;
            }
        }
        if (best < 0) {
            break;
        }
        memmove(&cut[at + 1], &cut[at + 2], (n_sym - at - 1) * sizeof *cut);
        n_sym--;
    }
    out->n = 0;
    for (size_t i = 0; i < n_sym; i++) {
        int id = find_token(m, s + cut[i], cut[i + 1] - cut[i]);

        if (id >= 0) {
            out->data[out->n++] = id;
        }
        for (size_t k = cut[i]; id < 0 && k < cut[i + 1]; k++) {
            out->data[out->n++] = 3 + (unsigned char)s[k];
        }
    }
}

TEST(scores_follow_their_definition)
{
    static const char *const part[] = {"a", "b", "c", "\xC3\xA9", "\xE2\x96\x81", "\xE2\x96\x82"};
    int32_t want_ids[1200];

    for (int round = 0; round < 20; round++) {
        struct made m = {.model = "llama"};

        add_token(&m, "<unk>", 2, 0);
        add_token(&m, "<s>", 3, 0);
        add_token(&m, "</s>", 3, 0);
        add_bytes(&m);
        for (int i = 0; i < 60; i++) {
            char text[64] = "";
            unsigned n = 1 + below(4);

            /* Few scores, so that ties happen; parts need not be tokens themselves. */
            for (unsigned k = 0; k < n; k++) {
                strcat(text, part[below(COUNT(part))]);
            }
            if (find_token(&m, text, strlen(text)) < 0) {
                add_token(&m, text, 1, -(float)below(12));
            }
        }
        open_made(&m);
        if (round % 2 == 0) {
            make_cache(m.v);
        }
        for (int i = 0; i < 60; i++) {
            struct buf text, marked;
            struct ids want = {.data = want_ids}, got = {0};
            slm_error err = {0};
            unsigned n = 1 + (i < 50 ? below(30) : 60 + below(120));

            buf_init(&text, 0);
            buf_init(&marked, 0);
            buf_puts(&marked, "\xE2\x96\x81");
            for (unsigned k = 0; k < n; k++) {
                const char *p = part[below(COUNT(part))];

                buf_puts(&marked, p);
                buf_puts(&text, strcmp(p, "\xE2\x96\x81") == 0 && below(4) > 0 ? " " : p);
            }
            score_plainly(&m, buf_str(&marked), marked.len, &want);
            for (int again = 0; again < 2; again++) {
                got.n = 0;
                CHECK(tok_encode(m.v, buf_str(&text), text.len, false, false, &got, &err));
                if (got.n != want.n || memcmp(got.data, want.data, got.n * sizeof *got.data)) {
                    print_error("%s\n  got %s\n", buf_str(&text), ids_str(&got));
                    print_error("  want %s\n", ids_str(&want));
                    fail();
                }
            }
            ids_deinit(&got);
            buf_deinit(&text);
            buf_deinit(&marked);
        }
        close_made(&m);
    }
}

/* ---- special tokens ---------------------------------------------------------------- */

/* The definition: for each special token, the longest first and of equals the lowest id,
 * every place where it occurs in what is left.  owner[i] is the token that covers byte i. */
static void cut_plainly(const struct made *m, int first, const char *text, int *owner)
{
    size_t n = strlen(text);

    for (size_t i = 0; i < n; i++) {
        owner[i] = -1;
    }
    for (size_t len = 16; len > 0; len--) {
        for (int id = first; id < m->n; id++) {
            if (strlen(m->text[id]) != len) {
                continue;
            }
            for (size_t i = 0; i + len <= n; i++) {
                bool free_here = memcmp(text + i, m->text[id], len) == 0;

                for (size_t k = i; k < i + len; k++) {
                    free_here = free_here && owner[k] < 0;
                }
                for (size_t k = i; free_here && k < i + len; k++) {
                    owner[k] = id;
                }
            }
        }
    }
}

TEST(special_tokens_are_cut_longest_first)
{
    for (int round = 0; round < 60; round++) {
        struct made m = {.model = "gpt2", .pre = "gpt-2"};

        add_bytes(&m);
        int first = m.n;

        while (m.n < first + 6) {
            char text[16] = "";
            unsigned n = 1 + below(6);
            bool known = false;

            for (unsigned k = 0; k < n; k++) {
                text[k] = (char)('x' + below(2));
            }
            text[n] = '\0';
            for (int i = first; i < m.n; i++) {
                known |= strcmp(m.text[i], text) == 0;
            }
            if (!known) {
                add_token(&m, text, 3, 0);
            }
        }
        open_made(&m);
        for (int i = 0; i < 60; i++) {
            char text[64], want[1024] = "";
            int owner[64];
            unsigned n = 1 + below(40);

            for (unsigned k = 0; k < n; k++) {
                text[k] = (char)(below(6) == 0 ? 'w' : 'x' + (char)below(2));
            }
            text[n] = '\0';
            cut_plainly(&m, first, text, owner);
            for (size_t k = 0; k < n; k += owner[k] < 0 ? 1 : strlen(m.text[owner[k]])) {
                sprintf(want + strlen(want), k > 0 ? " %d" : "%d",
                        owner[k] < 0 ? text[k] : owner[k]);
            }
            CHECK_STR(encode_str(m.v, text, n, false, true), want);
        }
        close_made(&m);
    }
}

TEST(ordinary_text_never_becomes_a_control_token)
{
    struct made m = {.model = "gpt2", .pre = "llama-bpe"};

    add_bytes(&m);
    int ab = add_merge(&m, "a", "b");
    int control = add_token(&m, "abc", 3, 0);
    int user = add_token(&m, "[u]", 4, 0);

    m.merge[m.n_merges++] = strdup("ab c");  /* leads to the control token */
    open_made(&m);
    char want[64];

    /* As a whole piece, by a merge, and written out with and without leave. */
    snprintf(want, sizeof want, "%d 99", ab);
    CHECK_STR(encode_str(m.v, "abc", 3, false, false), want);
    snprintf(want, sizeof want, "%d", control);
    CHECK_STR(encode_str(m.v, "abc", 3, false, true), want);
    snprintf(want, sizeof want, "%d", user);
    CHECK_STR(encode_str(m.v, "[u]", 3, false, false), want);
    close_made(&m);
}

static const char *spans_str(const struct vocab *v, const char *text, bool add_special,
                             const struct span *spans, size_t n_spans)
{
    struct ids ids = {0};
    slm_error err = {0};

    CHECK(tok_encode_spans(v, text, strlen(text), add_special, spans, n_spans, &ids, &err));
    const char *out = ids_str(&ids);

    ids_deinit(&ids);
    return out;
}

TEST(marked_text_never_becomes_a_control_token)
{
    struct made m = {.model = "gpt2", .pre = "gpt-2"};

    add_bytes(&m);
    int ab = add_merge(&m, "a", "b");
    int end = add_token(&m, "<e>", 3, 0);
    int user = add_token(&m, "<u>", 4, 0);
    int longer = add_token(&m, "<e><e>", 3, 0);

    open_made(&m);
    char want[128];

    /* Written by the template: a token.  Marked: text, whole or in part. */
    snprintf(want, sizeof want, "%d %d %d", end, ab, end);
    CHECK_STR(spans_str(m.v, "<e>ab<e>", false, NULL, 0), want);
    snprintf(want, sizeof want, "%d 60 101 62", end);
    CHECK_STR(spans_str(m.v, "<e><e>", false, (struct span[]){{3, 6}}, 1), want);
    CHECK_STR(spans_str(m.v, "<e>", false, (struct span[]){{0, 1}}, 1), "60 101 62");
    CHECK_STR(spans_str(m.v, "<e>", false, (struct span[]){{2, 3}}, 1), "60 101 62");
    CHECK_STR(spans_str(m.v, "<e>", false, (struct span[]){{1, 2}}, 1), "60 101 62");
    /* An empty span marks nothing. */
    snprintf(want, sizeof want, "%d", longer);
    CHECK_STR(spans_str(m.v, "<e><e>", false, (struct span[]){{3, 3}}, 1), want);
    /* User-defined tokens are text that anybody may write. */
    snprintf(want, sizeof want, "%d", user);
    CHECK_STR(spans_str(m.v, "<u>", false, (struct span[]){{0, 3}}, 1), want);
    /* The ends of a span cut nothing: a and b merge across it. */
    snprintf(want, sizeof want, "%d", ab);
    CHECK_STR(spans_str(m.v, "ab", false, (struct span[]){{1, 2}}, 1), want);
    CHECK_STR(spans_str(m.v, "ab", false, (struct span[]){{0, 1}}, 1), want);
    close_made(&m);
}

TEST(spans_change_nothing_in_text_without_control_tokens)
{
    static const char *const names[] = {"smollm2", "llama-spm", "qwen2", "gemma-4", "gemma3"};

    for (size_t i = 0; i < COUNT(names); i++) {
        char path[512];
        struct vocab *v;

        snprintf(path, sizeof path, TEST_DATA "/tok/%s.gguf", names[i]);
        struct gguf *g = open_vocab(path, &v);

        for (int round = 0; round < 200; round++) {
            static const char *const word[] = {"Hello", " world", "\n\n", "  ", "don't", " 123",
                                               "\xC3\xA9", "\xE4\xBD\xA0\xE5\xA5\xBD", ".", "a"};
            struct buf text;
            struct span spans[8];
            size_t n_spans = 0;
            char plain[4096];

            buf_init(&text, 0);
            for (unsigned k = 0; k < 8; k++) {
                size_t begin = text.len;

                buf_puts(&text, word[below(COUNT(word))]);
                if (below(2) == 0) {
                    spans[n_spans++] = (struct span){begin, text.len};
                }
            }
            snprintf(plain, sizeof plain, "%s",
                     encode_str(v, buf_str(&text), text.len, true, false));
            CHECK_STR(spans_str(v, buf_str(&text), true, spans, n_spans), plain);
            buf_deinit(&text);
        }
        vocab_free(v);
        gguf_close(g);
    }
}

TEST(bos_stands_once_in_rendered_text)
{
    struct vocab *v;
    struct gguf *g = open_vocab(TEST_DATA "/tok/llama-spm.gguf", &v);
    int bos = vocab_bos(v);
    char twice[64], once[64];

    CHECK_EQ(bos, 1);
    CHECK(vocab_add_bos(v));
    snprintf(twice, sizeof twice, "%d %d", bos, bos);
    snprintf(once, sizeof once, "%d", bos);
    CHECK_STR(encode_str(v, "<s>", 3, true, true), twice);
    CHECK_STR(spans_str(v, "<s>", true, NULL, 0), once);
    CHECK_STR(spans_str(v, "", true, NULL, 0), once);
    CHECK_STR(spans_str(v, "<s><s>", true, NULL, 0), twice);
    /* From a message it is text and does not count. */
    CHECK(strncmp(spans_str(v, "<s>", true, (struct span[]){{0, 3}}, 1), "1 ", 2) == 0);
    CHECK_STR(encode_str(v, "", 0, false, true), "");
    CHECK_STR(encode_str(v, NULL, 0, true, true), once);
    vocab_free(v);
    gguf_close(g);
}

/* ---- what ends an answer ----------------------------------------------------------- */

TEST(end_tokens_are_found)
{
    struct vocab *v;
    struct gguf *g = open_vocab(TEST_DATA "/tok/smollm2.gguf", &v);
    const struct gguf_kv *tokens = gguf_find(g, "tokenizer.ggml.tokens");
    int n = 0;

    for (int id = 0; id < vocab_size(v); id++) {
        struct gguf_str s = tokens->str[id];

        if (vocab_is_end(v, id)) {
            bool known = (s.n == 10 && memcmp(s.s, "<|im_end|>", 10) == 0) ||
                         (s.n == 13 && memcmp(s.s, "<|endoftext|>", 13) == 0) ||
                         (s.n == 10 && memcmp(s.s, "<reponame>", 10) == 0);
            CHECK(known);
            n++;
        }
    }
    CHECK(n >= 2);
    CHECK(vocab_is_end(v, vocab_eos(v)));
    CHECK(!vocab_is_end(v, -1));
    CHECK(!vocab_is_end(v, vocab_size(v)));
    vocab_free(v);
    gguf_close(g);
}

/* A vocabulary of nothing but these tokens. */
static void open_named(struct made *m, const char *const (*tokens)[2], size_t n)
{
    *m = (struct made){.model = "gpt2", .pre = "gpt-2"};
    for (size_t i = 0; i < n; i++) {
        add_token(m, tokens[i][0], atoi(tokens[i][1]), 0);
    }
    open_made(m);
}

TEST(end_tokens_have_exceptions)
{
    struct made m;

    /* A normal token is text, whatever it looks like. */
    static const char *const plain[][2] = {{"</s>", "1"}, {"<|im_end|>", "3"}, {"a", "1"}};
    open_named(&m, plain, COUNT(plain));
    CHECK(!vocab_is_end(m.v, 0) && vocab_is_end(m.v, 1) && !vocab_is_end(m.v, 2));
    close_made(&m);

    /* Unless the file says of no token that it is special. */
    static const char *const untyped[][2] = {{"</s>", "1"}, {"<|im_end|>", "1"}, {"a", "1"}};
    open_named(&m, untyped, COUNT(untyped));
    CHECK(vocab_is_end(m.v, 0) && vocab_is_end(m.v, 1) && !vocab_is_end(m.v, 2));
    close_made(&m);

    /* Harmony: <|end|> ends a part of the answer. */
    static const char *const harmony[][2] = {{"<|return|>", "3"}, {"<|call|>", "3"},
                                             {"<|end|>", "3"}};
    open_named(&m, harmony, COUNT(harmony));
    CHECK(vocab_is_end(m.v, 0) && vocab_is_end(m.v, 1) && !vocab_is_end(m.v, 2));
    close_made(&m);

    /* Gemma 4: </s> is text. */
    static const char *const gemma[][2] = {{"<|tool_response>", "4"}, {"</s>", "3"},
                                           {"<turn|>", "3"}};
    open_named(&m, gemma, COUNT(gemma));
    CHECK(vocab_is_end(m.v, 0) && !vocab_is_end(m.v, 1) && vocab_is_end(m.v, 2));
    close_made(&m);
}

/* ---- pre-tokenisers ---------------------------------------------------------------- */

/* Characters that expressions tell apart, and some of every kind. */
static uint32_t odd_cp(void)
{
    static const uint32_t cps[] = {
        'a', 'b', 'e', 'l', 'r', 's', 't', 'v', 'd', 'm', 'S', 'T', 'L', 'R', 'E', 'Z', '\'', '\'',
        ' ', ' ', ' ', '\n', '\r', '\t', '0', '1', '9', '.', ',', '!', '/', '$', '+', '<', '~', '|',
        '`', '(', ')', '_', 0x17F, 0xE9, 0xC9, 0x1C5, 0x2B0, 0xAA, 0x5D0, 0x4E00, 0x9FA5, 0x9FA6,
        0x3041, 0x30A2, 0x30FF, 0xAC00, 0xD7A3, 0x800, 0x301, 0x903, 0x20DD, 0x660, 0xB2, 0x2167,
        0xBD, 0x3007, 0xA0, 0x85, 0x2028, 0x3000, 0x200B, 0xFEFF, 0x1C, 0x0, 0xAD, 0x20AC, 0x2026,
        0x3002, 0xFF0C, 0x964, 0x1F600, 0x1D400, 0x10FFFF, 0x378, 0xE000, 0x2581, 0xFFFD,
    };
    unsigned kind = below(10);

    if (kind < 8) {
        return cps[below(COUNT(cps))];
    }
    uint32_t cp = kind == 8 ? below(0x3000) : below(0x110000);

    return cp >= 0xD800 && cp < 0xE000 ? 'x' : cp;
}

static void odd_text(struct buf *out, unsigned n)
{
    uint32_t cp = odd_cp();

    buf_clear(out);
    for (unsigned i = 0; i < n; i++) {
        cp = below(4) == 0 ? cp : odd_cp();  /* runs of one character as well */
        put_cp(out, cp);
    }
}

#ifdef TEST_PCRE2

/* Classes are spelled out from our table, since PCRE2's own may be of another version.  X is
 * [^\s\p{L}\p{N}], Y that without marks, H and T the head and tail of cased words. */
static const struct { const char *name; unsigned cls; } classes[] = {
    {"L", UC_LETTER}, {"N", UC_NUMBER}, {"W", UC_SPACE}, {"P", UC_PUNCT},
    {"LM", UC_LETTER | UC_MARK}, {"PS", UC_PUNCT | UC_SYMBOL},
    {"H", UC_UPPER | UC_ALPHA | UC_MARK}, {"T", UC_LOWER | UC_ALPHA | UC_MARK},
    {"LN", UC_LETTER | UC_NUMBER}, {"WLN", UC_SPACE | UC_LETTER | UC_NUMBER},
    {"WLNM", UC_SPACE | UC_LETTER | UC_NUMBER | UC_MARK},
    {"LPS", UC_LETTER | UC_PUNCT | UC_SYMBOL},
};

#define ANY_BUT(cls) "(?:(?!(?&" cls "))(?s:.))"
#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES "(?&W)+(?!" ANY_BUT("W") ")|(?&W)+"
#define NOT_CRLF "(?![\\r\\n])"
#define RE_GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?(?&L)+| ?(?&N)+| ?" ANY_BUT("WLN") "+|" SPACES
#define RE_REST(digits, punct) "(?&N)" digits "| ?" punct "|(?&W)*[\\r\\n]+|" SPACES
#define RE_WORD "(?:" NOT_CRLF ANY_BUT("LN") ")?(?&L)+|"
#define RE_WORDS(digits) CONTRACTIONS "|" RE_WORD RE_REST(digits, ANY_BUT("WLN") "+[\\r\\n]*")
#define RE_CASED(digits, contr)                                          \
    "(?:" NOT_CRLF ANY_BUT("LN") ")?(?&H)*(?&T)+" contr "|"              \
    "(?:" NOT_CRLF ANY_BUT("LN") ")?(?&H)+(?&T)*" contr "|"              \
    RE_REST(digits, ANY_BUT("WLN") "+[\\r\\n/]*")
#define RE_DEEPSEEK "[!-/:-@\\[-`{-~][A-Za-z]+|(?:" NOT_CRLF ANY_BUT("LPS") ")?(?&LM)+|"           \
    " ?(?&PS)+[\\r\\n]*|(?&W)*[\\r\\n]+|" SPACES
#define RE_CLAUSES " ?(?:(?!(?&W))"                                                       \
    "[^(|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})])+"

static const struct { const char *name; const char *re[5]; } oracles[] = {
    {"gpt-2", {RE_GPT2}},
    {"gpt-neox", {RE_GPT2}},
    {"smollm", {"(?&N)", RE_GPT2}},
    {"llama-bpe", {RE_WORDS("{1,3}")}},
    {"dbrx", {RE_WORDS("{1,3}")}},
    {"chatglm-bpe", {RE_WORDS("{1,3}")}},
    {"glm4", {RE_WORDS("{1,3}")}},
    {"minicpm5", {"(?&N){1,3}", RE_WORDS("+")}},
    {"qwen2", {RE_WORDS("")}},
    {"stablelm2", {RE_WORDS("")}},
    {"qwen35", {CONTRACTIONS "|(?:" NOT_CRLF ANY_BUT("LN") ")?(?&LM)+|"
                RE_REST("", ANY_BUT("WLNM") "+[\\r\\n]*")}},
    {"seed-coder", {CONTRACTIONS "|" RE_WORD
                    RE_REST("", "(?:" NOT_CRLF ANY_BUT("WLN") ")+")}},
    {"ufakzeka", {RE_WORD RE_REST("", ANY_BUT("WLN") "+[\\r\\n]*")}},
    {"laguna", {"[^\\n]+|[\\n]+", RE_WORDS("")}},
    {"gpt-4o", {RE_CASED("{1,3}", CONTRACTIONS "?")}},
    {"granite-embed-multi-97m", {RE_CASED("{1,3}", CONTRACTIONS "?")}},
    {"tekken", {RE_CASED("", "")}},
    {"deepseek-v3", {"(?&N){1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+",
                     RE_DEEPSEEK}},
    {"deepseek-coder", {"[\\r\\n]", "(?&W)?(?&L)+", "(?&W)?(?&P)+",
                        "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+", "(?&N)"}},
    {"falcon", {"(?:(?&P)|[$+<=>^~|`])+", RE_GPT2, "[0-9][0-9][0-9]"}},
    {"default", {"(?:(?&P)|[$+<=>^~|])+", RE_GPT2, "(?&N)+", "[0-9][0-9][0-9]"}},
    {"poro-chat", {RE_CLAUSES}},
    {"viking", {RE_CLAUSES, "(?&N)"}},
    {"gemma4", {"[^\\n]+|[\\n]+"}},
};

static void put_class(struct buf *b, unsigned cls)
{
    uint32_t first = 0;
    bool inside = false;

    buf_putc(b, '[');
    for (uint32_t cp = 0; cp <= 0x110000; cp++) {
        bool has = cp < 0x110000 && (cp < 0xD800 || cp > 0xDFFF) && (unicode_class(cp) & cls);

        if (has && !inside) {
            first = cp;
        }
        if (!has && inside) {
            buf_printf(b, "\\x{%X}-\\x{%X}", first, cp - 1);
        }
        inside = has;
    }
    buf_putc(b, ']');
}

static pcre2_code *compile(const char *re, const char *defines)
{
    struct buf b;
    int code;
    PCRE2_SIZE at;

    buf_init(&b, 0);
    buf_puts(&b, defines);
    buf_printf(&b, "(?:%s)", re);
    pcre2_code *out = pcre2_compile((PCRE2_SPTR)b.data, b.len, PCRE2_UTF, &code, &at, NULL);

    if (out == NULL) {
        char msg[256];

        pcre2_get_error_message(code, (PCRE2_UCHAR *)msg, sizeof msg);
        print_error("%s at %zu: %s\n", re, at, msg);
        fail();
    }
    buf_deinit(&b);
    return out;
}

/* Splits every piece of `cuts` (ends, ascending) by one expression. */
static size_t split_oracle(pcre2_code *re, pcre2_match_data *data, const char *s, size_t *cuts,
                           size_t n_cuts)
{
    size_t out[512];
    size_t n = 0;
    size_t begin = 0;

    for (size_t i = 0; i < n_cuts; begin = cuts[i++]) {
        size_t pos = 0;
        size_t len = cuts[i] - begin;

        while (pos < len) {
            int rc = pcre2_match(re, (PCRE2_SPTR)s + begin, len, pos, PCRE2_NO_UTF_CHECK, data,
                                 NULL);
            PCRE2_SIZE *m = pcre2_get_ovector_pointer(data);

            CHECK(rc > 0 || rc == PCRE2_ERROR_NOMATCH);
            if (rc < 0) {
                out[n++] = begin + len;
                break;
            }
            if (m[0] > pos) {
                out[n++] = begin + m[0];
            }
            out[n++] = begin + m[1];
            CHECK(m[1] > pos && n < COUNT(out) - 2);
            pos = m[1];
        }
    }
    memcpy(cuts, out, n * sizeof *cuts);
    return n;
}

static void check_splits(const struct pretok *p, pcre2_code *const *re, pcre2_match_data *data,
                         const char *s, size_t n)
{
    size_t want[512] = {n};
    size_t n_want = n > 0;
    size_t state[PRETOK_PASS_MAX] = {0};
    size_t k = 0;

    for (int pass = 0; re[pass] != NULL; pass++) {
        n_want = split_oracle(re[pass], data, s, want, n_want);
    }
    for (size_t pos = 0; pos < n; k++) {
        pos = pretok_next(p, s, n, pos, state);
        if (k >= n_want || pos != want[k]) {
            print_error("%s: piece %zu ends at %zu, not %zu, in: %s\n", p->names, k, pos,
                        k < n_want ? want[k] : 0, s);
            for (size_t i = 0; i < n; i++) {
                print_error("%02x ", (unsigned char)s[i]);
            }
            fail();
        }
    }
    CHECK_EQ(k, n_want);
}

TEST(pretokenisers_agree_with_pcre2)
{
    struct buf defines, text;
    pcre2_match_data *data = pcre2_match_data_create(32, NULL);
    size_t n_rows = 0;

    buf_init(&defines, 0);
    buf_init(&text, 0);
    buf_puts(&defines, "(?(DEFINE)");
    for (size_t i = 0; i < COUNT(classes); i++) {
        buf_printf(&defines, "(?<%s>", classes[i].name);
        put_class(&defines, classes[i].cls);
        buf_puts(&defines, ")");
    }
    buf_puts(&defines, ")");
    for (size_t i = 0; i < COUNT(oracles); i++) {
        const struct pretok *p = pretok_find(oracles[i].name, strlen(oracles[i].name));
        pcre2_code *re[PRETOK_PASS_MAX + 1] = {NULL};

        CHECK(p != NULL);
        /* Every row of the table has its oracle. */
        CHECK(p == pretok_at(n_rows++));
        for (int pass = 0; pass < PRETOK_PASS_MAX && oracles[i].re[pass] != NULL; pass++) {
            re[pass] = compile(oracles[i].re[pass], buf_str(&defines));
        }
        for (int round = 0; round < 1500; round++) {
            odd_text(&text, 1 + below(24));
            check_splits(p, re, data, buf_str(&text), text.len);
        }
        for (int pass = 0; re[pass] != NULL; pass++) {
            pcre2_code_free(re[pass]);
        }
    }
    CHECK(pretok_at(n_rows) == NULL);
    pcre2_match_data_free(data);
    buf_deinit(&defines);
    buf_deinit(&text);
}

#else

TEST(pretokenisers_agree_with_pcre2)
{
    print_message("not run: built without PCRE2\n");
}

#endif

TEST(pretokenisers_cover_the_text)
{
    struct buf text;
    const struct pretok *p;

    buf_init(&text, 0);
    for (size_t row = 0; (p = pretok_at(row)) != NULL; row++) {
        for (int round = 0; round < 300; round++) {
            size_t state[PRETOK_PASS_MAX] = {0};

            odd_text(&text, 1 + below(60));
            for (size_t pos = 0; pos < text.len;) {
                size_t end = pretok_next(p, buf_str(&text), text.len, pos, state);

                CHECK(end > pos && end <= text.len);
                CHECK(utf8_valid(text.data + pos, end - pos));
                pos = end;
            }
        }
    }
    buf_deinit(&text);
}

TEST(contractions_in_capitals_count_where_case_is_ignored)
{
    size_t cuts[PRETOK_PASS_MAX] = {0};
    const struct pretok *qwen2 = pretok_find("qwen2", 5);
    const struct pretok *gpt2 = pretok_find("gpt-2", 5);

    CHECK_EQ(pretok_next(qwen2, "'LLx", 4, 0, cuts), 3);
    CHECK_EQ(pretok_next(qwen2, "'\xC5\xBFx", 4, 0, (size_t[PRETOK_PASS_MAX]){0}), 3);
    CHECK_EQ(pretok_next(gpt2, "'LLx", 4, 0, (size_t[PRETOK_PASS_MAX]){0}), 1);
    CHECK_EQ(pretok_next(gpt2, "'llx", 4, 0, (size_t[PRETOK_PASS_MAX]){0}), 3);
    CHECK(pretok_find("gpt", 3) == NULL && pretok_find("", 0) == NULL);
    CHECK(pretok_find("phi-2", 5) == gpt2);
}

/* ---- normal form C ----------------------------------------------------------------- */

static void check_nfc(const char *s, const char *want)
{
    struct buf b;

    buf_init(&b, 0);
    nfc_append(&b, s, strlen(s));
    CHECK_STR(buf_str(&b), want);
    CHECK(nfc_differs(s, strlen(s)) || strcmp(s, want) == 0);
    buf_deinit(&b);
}

TEST(normal_form_c)
{
    check_nfc("", "");
    check_nfc("plain", "plain");
    check_nfc("xe\xCC\x81y", "x\xC3\xA9y");                    /* e + acute */
    check_nfc("\xE2\x84\xAB", "\xC3\x85");                     /* angstrom sign */
    check_nfc("\xE0\xA5\x98", "\xE0\xA4\x95\xE0\xA4\xBC");     /* excluded from composition */
    check_nfc("\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8", "\xEA\xB0\x81");  /* Hangul */
    check_nfc("q\xCC\x87\xCC\xA3", "q\xCC\xA3\xCC\x87");       /* marks change places */
    check_nfc("\xCC\x81x", "\xCC\x81x");                       /* a mark in front of all */
    check_nfc("\xEF\xA4\x80", "\xE8\xB1\x88");                 /* compatibility ideograph */
}

TEST(normal_form_c_orders_long_runs_of_marks)
{
    struct buf s, got;
    size_t half = 50000;

    buf_init(&s, 0);
    buf_init(&got, 0);
    buf_puts(&s, "q");
    for (size_t i = 0; i < half; i++) {
        buf_puts(&s, "\xCC\x87\xCC\xA3");  /* classes 230 and 220 */
    }
    nfc_append(&got, buf_str(&s), s.len);
    CHECK_EQ(got.len, s.len);
    for (size_t i = 0; i < 2 * half; i++) {
        CHECK_MEM(got.data + 1 + 2 * i, i < half ? "\xCC\xA3" : "\xCC\x87", 2);
    }
    buf_deinit(&s);
    buf_deinit(&got);
}

/* ---- any text ---------------------------------------------------------------------- */

static void check_round_trip(const struct vocab *v, const char *s, size_t n, const char *want,
                             size_t n_want)
{
    struct ids ids = {0};
    struct buf out;
    slm_error err = {0};

    buf_init(&out, 0);
    CHECK(tok_encode(v, s, n, false, false, &ids, &err));
    CHECK(vocab_detokenize(v, ids.data, ids.n, true, &out, &err));
    CHECK_EQ(out.len, n_want);
    CHECK_MEM(buf_str(&out), want, n_want);
    buf_deinit(&out);
    ids_deinit(&ids);
}

TEST(any_bytes_come_back)
{
    struct made bpe = {.model = "gpt2", .pre = "gpt-4o"};
    struct made spm = {.model = "llama"};
    struct buf valid;

    buf_init(&valid, 0);
    add_bytes(&bpe);
    add_random_merges(&bpe, 30);
    open_made(&bpe);
    add_token(&spm, "<unk>", 2, 0);
    add_token(&spm, "<s>", 3, 0);
    add_token(&spm, "</s>", 3, 0);
    add_bytes(&spm);
    add_token(&spm, "ab", 1, -1);
    add_token(&spm, "\xE2\x96\x81" "a", 1, -2);
    add_token(&spm, "\xE2\x96\x81", 1, -3);
    open_made(&spm);
    for (int round = 0; round < 3000; round++) {
        char s[64];
        size_t n = below(sizeof s);

        for (size_t i = 0; i < n; i++) {
            s[i] = below(2) ? "ab \xE2\x96\x81\xC3\xA9\n"[below(9)] : (char)below(256);
        }
        /* Bytes that are no character turn into U+FFFD in one and stay in the other, where
         * U+2581 is a space. */
        buf_clear(&valid);
        append_lossy(&valid, s, n);
        check_round_trip(bpe.v, s, n, buf_str(&valid), valid.len);
        buf_clear(&valid);
        for (size_t i = 0; i < n; i++) {
            if (n - i >= 3 && memcmp(s + i, "\xE2\x96\x81", 3) == 0) {
                buf_putc(&valid, ' ');
                i += 2;
            } else {
                buf_putc(&valid, s[i]);
            }
        }
        check_round_trip(spm.v, s, n, buf_str(&valid), valid.len);
    }
    close_made(&bpe);
    close_made(&spm);
    buf_deinit(&valid);
}

struct long_run {
    const struct vocab *v;
    bool ok;
};

static void *encode_long(void *arg)
{
    static const char *const unit[] = {"a", "Z", "\n", ".", " ", "7", "\xE4\xB8\xAD", "\xCC\x81",
                                       "\xFF", "'", "<", "Ab", " \n", "e\xCC\x81"};
    struct long_run *run = arg;
    struct ids ids = {0};
    struct buf text;
    slm_error err = {0};

    buf_init(&text, 0);
    run->ok = true;
    for (size_t i = 0; i < COUNT(unit); i++) {
        buf_clear(&text);
        for (int k = 0; k < 131072; k++) {
            buf_puts(&text, unit[i]);
        }
        ids.n = 0;
        run->ok &= tok_encode(run->v, buf_str(&text), text.len, true, true, &ids, &err);
        run->ok &= ids.n > 0;
    }
    buf_deinit(&text);
    ids_deinit(&ids);
    return NULL;
}

TEST(long_runs_need_little_stack)
{
    for (size_t i = 0; i < COUNT(families); i++) {
        char path[512];
        struct long_run run = {0};
        struct vocab *v;
        pthread_attr_t attr;
        pthread_t thread;

        snprintf(path, sizeof path, TEST_DATA "/tok/%s.gguf", families[i]);
        struct gguf *g = open_vocab(path, &v);

        run.v = v;
        pthread_attr_init(&attr);
        CHECK_EQ(pthread_attr_setstacksize(&attr, 256 * 1024), 0);
        CHECK_EQ(pthread_create(&thread, &attr, encode_long, &run), 0);
        pthread_join(thread, NULL);
        pthread_attr_destroy(&attr);
        CHECK(run.ok);
        vocab_free(v);
        gguf_close(g);
    }
}

static void *encode_first(void *arg)
{
    struct ids *ids = malloc(sizeof *ids);
    slm_error err = {0};

    *ids = (struct ids){0};
    if (!tok_encode(arg, "Hello world, 123", 16, true, true, ids, &err)) {
        ids->n = 0;
    }
    return ids;
}

TEST(threads_may_encode_first_at_the_same_time)
{
    for (int round = 0; round < 5; round++) {
        pthread_t thread[4];
        struct ids *ids[4];
        struct vocab *v;
        struct gguf *g = open_vocab(TEST_DATA "/tok/qwen2.gguf", &v);

        for (size_t i = 0; i < COUNT(thread); i++) {
            CHECK_EQ(pthread_create(&thread[i], NULL, encode_first, v), 0);
        }
        for (size_t i = 0; i < COUNT(thread); i++) {
            pthread_join(thread[i], (void **)&ids[i]);
        }
        for (size_t i = 0; i < COUNT(thread); i++) {
            CHECK(ids[i]->n > 0 && ids[i]->n == ids[0]->n);
            CHECK_MEM(ids[i]->data, ids[0]->data, ids[0]->n * sizeof *ids[0]->data);
        }
        for (size_t i = 0; i < COUNT(thread); i++) {
            ids_deinit(ids[i]);
            free(ids[i]);
        }
        vocab_free(v);
        gguf_close(g);
    }
}

/* ---- files that are wrong ---------------------------------------------------------- */

static void small(struct made *m)
{
    *m = (struct made){.model = "gpt2", .pre = "gpt-2"};
    add_bytes(m);
    add_merge(m, "a", "b");
}

/* Opens the small vocabulary with entries of w put in front, so that they count. */
static void check_refused(struct gguf_writer *w, slm_code code, const char *want)
{
    slm_error err = {0};
    struct made m = {0};

    open_writer(&m, w, &err);
    CHECK(m.v == NULL);
    CHECK_EQ(err.code, code);
    if (strstr(err.msg, want) == NULL) {
        print_error("'%s' does not say '%s'\n", err.msg, want);
        fail();
    }
    close_made(&m);
}

static struct gguf_writer *with_model(const char *model)
{
    struct gguf_writer *w = gguf_writer_new();

    gguf_put_str(w, "tokenizer.ggml.model", model, strlen(model));
    return w;
}

static struct gguf_writer *with_tokens(const char *model, const char *pre)
{
    static const struct gguf_str tokens[] = {{"a", 1}, {"b", 1}, {"ab", 2}, {"", 0}, {"a", 1}};
    static const struct gguf_str merges[] = {{"a b", 3}, {"", 0}, {" ", 1}, {"x", 1}, {"a b", 3}};
    struct gguf_writer *w = with_model(model);

    gguf_put_strs(w, "tokenizer.ggml.tokens", tokens, COUNT(tokens));
    if (pre != NULL) {
        gguf_put_str(w, "tokenizer.ggml.pre", pre, strlen(pre));
    }
    gguf_put_strs(w, "tokenizer.ggml.merges", merges, COUNT(merges));
    return w;
}

TEST(wrong_files_are_refused_with_the_key)
{
    static const int32_t few[] = {1, 1};
    static const int32_t bad_type[] = {1, 1, 9, 1, 1};
    static const float scores[] = {0, 0, 0, 0, 0};
    static const struct gguf_str strs[] = {{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}, {"e", 1}};
    struct gguf_writer *w;

    check_refused(gguf_writer_new(), SLM_E_FORMAT, "tokenizer.ggml.model is missing");
    check_refused(with_model("t5"), SLM_E_UNSUPPORTED, "'t5' is not supported (supported: llama");
    w = gguf_writer_new();
    gguf_put_u32(w, "tokenizer.ggml.model", 1);
    check_refused(w, SLM_E_FORMAT, "tokenizer.ggml.model");

    check_refused(with_model("llama"), SLM_E_FORMAT, "tokenizer.ggml.tokens is missing");
    w = with_model("llama");
    gguf_put_u32(w, "tokenizer.ggml.tokens", 1);
    check_refused(w, SLM_E_FORMAT, "tokenizer.ggml.tokens is not an array");
    w = with_model("llama");
    gguf_put_strs(w, "tokenizer.ggml.tokens", strs, 0);
    check_refused(w, SLM_E_FORMAT, "tokenizer.ggml.tokens has 0 entries");
    w = with_model("llama");
    gguf_put_array(w, "tokenizer.ggml.tokens", GGUF_I32, few, 2);
    check_refused(w, SLM_E_FORMAT, "tokenizer.ggml.tokens is an array of i32");

    w = with_tokens("llama", NULL);
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, few, 2);
    check_refused(w, SLM_E_FORMAT, "tokenizer.ggml.token_type has 2 entries, the vocabulary has 5");
    w = with_tokens("llama", NULL);
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, bad_type, 5);
    check_refused(w, SLM_E_FORMAT, "tokenizer.ggml.token_type[2] is 9");
    w = with_tokens("llama", NULL);
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_F32, scores, 5);
    check_refused(w, SLM_E_FORMAT, "tokenizer.ggml.token_type is an array of f32");
    w = with_tokens("llama", NULL);
    gguf_put_strs(w, "tokenizer.ggml.scores", strs, 5);
    check_refused(w, SLM_E_FORMAT, "tokenizer.ggml.scores is an array of str");
    w = with_tokens("llama", NULL);
    gguf_put_array(w, "tokenizer.ggml.scores", GGUF_F32, scores, 4);
    check_refused(w, SLM_E_FORMAT, "tokenizer.ggml.scores has 4 entries");

    w = with_model("gpt2");
    gguf_put_strs(w, "tokenizer.ggml.tokens", strs, 5);
    check_refused(w, SLM_E_FORMAT, "tokenizer.ggml.merges is missing");
    w = with_model("gpt2");
    gguf_put_strs(w, "tokenizer.ggml.tokens", strs, 5);
    gguf_put_array(w, "tokenizer.ggml.merges", GGUF_I32, few, 2);
    check_refused(w, SLM_E_FORMAT, "tokenizer.ggml.merges is an array of i32");
    check_refused(with_tokens("gpt2", "mystery"), SLM_E_UNSUPPORTED,
                  "'mystery' is not supported (supported: gpt-2, ");
    w = with_tokens("gpt2", NULL);
    gguf_put_u32(w, "tokenizer.ggml.pre", 1);
    check_refused(w, SLM_E_FORMAT, "tokenizer.ggml.pre");
    w = with_tokens("gpt2", "gpt-2");
    gguf_put_u32(w, "tokenizer.ggml.add_bos_token", 7);
    check_refused(w, SLM_E_FORMAT, "tokenizer.ggml.add_bos_token");
    w = with_tokens("gpt2", "gpt-2");
    gguf_put_u32(w, "general.name", 7);
    check_refused(w, SLM_E_FORMAT, "general.name");
}

TEST(odd_entries_are_tolerated)
{
    struct made m = {0};
    slm_error err = {0};
    struct gguf_writer *w = with_tokens("gpt2", "gpt-2");

    /* Ids out of range, repeated and empty texts, merges of nothing. */
    gguf_put_u32(w, "tokenizer.ggml.bos_token_id", 5);
    gguf_put_str(w, "tokenizer.ggml.eos_token_id", "x", 1);
    gguf_put_u32(w, "tokenizer.ggml.eot_token_id", 4);
    open_writer(&m, w, &err);
    CHECK(m.v != NULL);
    CHECK_EQ(vocab_bos(m.v), -1);
    CHECK_EQ(vocab_eos(m.v), -1);
    CHECK(vocab_is_end(m.v, 4));
    CHECK_STR(encode_str(m.v, "aabb", 4, true, true), "0 2 1");
    CHECK_STR(encode_str(m.v, "xay", 3, true, true), "0");  /* bytes without a token */
    close_made(&m);

    /* SPM without byte tokens falls back to the unknown token. */
    w = with_tokens("llama", NULL);
    gguf_put_u32(w, "tokenizer.ggml.unknown_token_id", 3);
    gguf_put_bool(w, "tokenizer.ggml.add_bos_token", false);
    gguf_put_bool(w, "tokenizer.ggml.add_space_prefix", false);
    open_writer(&m, w, &err);
    CHECK(m.v != NULL);
    CHECK_STR(encode_str(m.v, "abx", 3, true, true), "2 3");
    close_made(&m);
}

TEST(scores_of_any_kind_are_ranked)
{
    struct made m = {.model = "llama"};

    add_token(&m, "<unk>", 2, 0);
    add_token(&m, "<s>", 3, 0);
    add_token(&m, "</s>", 3, 0);
    add_bytes(&m);
    add_token(&m, "a", 1, -0.0f);
    add_token(&m, "b", 1, 0);
    add_token(&m, "c", 1, 0);
    int ab = add_token(&m, "ab", 1, -__builtin_inff());
    int bc = add_token(&m, "bc", 1, __builtin_nanf(""));
    int cc = add_token(&m, "cc", 1, __builtin_inff());

    add_token(&m, "\xE2\x96\x81", 1, 0);
    open_made(&m);
    char want[64];

    snprintf(want, sizeof want, "%d %d %d", cc + 1, ab, cc);
    CHECK_STR(encode_str(m.v, "abcc", 4, false, false), want);
    snprintf(want, sizeof want, "%d %d", cc + 1, bc);
    CHECK_STR(encode_str(m.v, "bc", 2, false, false), want);
    close_made(&m);
}

TEST(failed_allocations_are_errors)
{
    struct made m;
    slm_error err;
    size_t n;
    int n_missed = 0;
    bool done = false;

    small(&m);
    struct gguf_writer *w = write_made(&m);

    m.file = gguf_write_mem(w, &n, &err);
    gguf_writer_free(w);
    m.g = gguf_open_mem(m.file, n, &err);
    CHECK(m.g != NULL);
    for (long fail_at = 1; !done; fail_at++) {
        const char *stop = "stop";
        struct ids ids = {0};
        struct detok *d = NULL;
        struct buf out;
        char long_text[5000];

        memset(long_text, 'a', sizeof long_text);
        long_text[5] = (char)0xFF;
        buf_init(&out, 0);
        err = (slm_error){0};
        mem_fail_after(fail_at);
        long before = mem_count();
        struct vocab *v = vocab_new(m.g, &err);
        bool ok = v != NULL && tok_encode(v, long_text, sizeof long_text, true, true, &ids, &err) &&
                  vocab_detokenize(v, ids.data, ids.n, true, &out, &err) &&
                  (d = detok_new(v, &stop, 1, &err)) != NULL;

        for (size_t i = 0; ok && i < 200; i++) {
            const char *text;
            size_t len;
            bool stopped;

            ok = detok_push(d, ids.data[i], &text, &len, &stopped, &err);
        }
        mem_fail_after(0);
        done = mem_count() - before < fail_at;
        CHECK(ok || !done);
        /* Only the cache may be missing without an error. */
        n_missed += ok && !done;
        CHECK(n_missed <= 1);
        if (!ok) {
            CHECK_EQ(err.code, SLM_E_NOMEM);
            if (v != NULL && ids.n == 0) {
                /* What failed once works when asked again. */
                CHECK(tok_encode(v, long_text, sizeof long_text, true, true, &ids, &err));
            }
        }
        detok_free(d);
        buf_deinit(&out);
        ids_deinit(&ids);
        vocab_free(v);
        CHECK(fail_at < 1000);
    }
    close_made(&m);
}

/* ---- streaming --------------------------------------------------------------------- */

/* Pushes ids and gathers the text; checks that each part is valid UTF-8 and that none of it
 * belongs to what the stop string took. */
static bool stream(const struct vocab *v, const char *const *stops, size_t n_stops,
                   const int32_t *ids, size_t n_ids, struct buf *out)
{
    slm_error err = {0};
    struct detok *d = detok_new(v, stops, n_stops, &err);
    const char *text;
    size_t n;
    bool stopped = false;

    CHECK(d != NULL);
    buf_clear(out);
    for (size_t i = 0; i < n_ids && !stopped; i++) {
        CHECK(detok_push(d, ids[i], &text, &n, &stopped, &err));
        CHECK(utf8_valid(text, n));
        buf_add(out, text, n);
    }
    CHECK(detok_finish(d, &text, &n, &err));
    CHECK(utf8_valid(text, n));
    CHECK(!stopped || n == 0);
    buf_add(out, text, n);
    detok_free(d);
    return stopped;
}

static void check_stream(const struct vocab *v, const char *text, const char *const *stops,
                         size_t n_stops, bool want_stop, const char *want)
{
    struct ids ids = {0};
    struct buf out;
    slm_error err = {0};

    buf_init(&out, 0);
    CHECK(tok_encode(v, text, strlen(text), false, false, &ids, &err));
    CHECK_EQ(stream(v, stops, n_stops, ids.data, ids.n, &out), want_stop);
    CHECK_STR(buf_str(&out), want);
    buf_deinit(&out);
    ids_deinit(&ids);
}

TEST(stop_strings_are_held_back_and_never_leak)
{
    static const char *const text = "\"alpha beta gamma delta\"";
    struct made bytes = {.model = "gpt2", .pre = "gpt-2"};
    struct vocab *words;
    struct gguf *g = open_vocab(TEST_DATA "/tok/smollm2.gguf", &words);

    add_bytes(&bytes);
    open_made(&bytes);
    for (int i = 0; i < 2; i++) {
        const struct vocab *v = i == 0 ? bytes.v : words;

        check_stream(v, text, (const char *[]){"beta gamma"}, 1, true, "\"alpha ");
        check_stream(v, text, (const char *[]){"beta gammon"}, 1, false, text);
        check_stream(v, text, (const char *[]){"delta"}, 1, true, "\"alpha beta gamma ");
        check_stream(v, text, (const char *[]){"a"}, 1, true, "\"");
        check_stream(v, text, (const char *[]){"gamma", "beta", "zzz"}, 3, true, "\"alpha ");
        check_stream(v, text, NULL, 0, false, text);
        /* Of stop strings that end together the longest counts. */
        check_stream(v, text, (const char *[]){"mma", "a gamma"}, 2, true, "\"alpha bet");
        check_stream(v, "aaabaaaab", (const char *[]){"aaaab"}, 1, true, "aaab");
        check_stream(v, "ababac", (const char *[]){"abac"}, 1, true, "ab");
        check_stream(v, "abab", (const char *[]){"abac"}, 1, false, "abab");
    }
    close_made(&bytes);
    vocab_free(words);
    gguf_close(g);
}

TEST(streams_hold_back_no_more_than_they_must)
{
    struct made m = {.model = "gpt2", .pre = "gpt-2"};
    const char *stops[] = {"xyz"};
    slm_error err = {0};
    const char *text;
    size_t n;
    bool stopped;

    add_bytes(&m);
    open_made(&m);
    struct detok *d = detok_new(m.v, stops, 1, &err);

    CHECK(detok_push(d, 'a', &text, &n, &stopped, &err) && n == 1 && text[0] == 'a');
    CHECK(detok_push(d, 'x', &text, &n, &stopped, &err) && n == 0);
    CHECK(detok_push(d, 'y', &text, &n, &stopped, &err) && n == 0);
    CHECK(detok_push(d, 'x', &text, &n, &stopped, &err) && n == 2 && memcmp(text, "xy", 2) == 0);
    CHECK(detok_push(d, 'y', &text, &n, &stopped, &err) && n == 0 && !stopped);
    CHECK(detok_push(d, 'z', &text, &n, &stopped, &err) && n == 0 && stopped);
    /* Nothing comes after it. */
    CHECK(detok_push(d, 'a', &text, &n, &stopped, &err) && n == 0 && stopped);
    CHECK(detok_finish(d, &text, &n, &err) && n == 0);
    CHECK(!detok_push(d, -1, &text, &n, &stopped, &err) && err.code == SLM_E_ARG);
    CHECK(!detok_push(d, vocab_size(m.v), &text, &n, &stopped, &err));
    detok_free(d);
    CHECK(detok_new(m.v, (const char *[]){""}, 1, &err) == NULL && err.code == SLM_E_ARG);
    close_made(&m);
}

TEST(streams_never_cut_characters)
{
    struct made m = {.model = "gpt2", .pre = "gpt-2"};
    struct buf out;

    buf_init(&out, 0);
    add_bytes(&m);
    open_made(&m);
    static const struct { const char *bytes, *want; } cases[] = {
        {"\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80"},
        {"\xE4\xBD", "\xEF\xBF\xBD"},                      /* ends inside a character */
        {"\xE4\xBD" "a", "\xEF\xBF\xBD" "a"},              /* breaks off */
        {"\xE4\xE4\xBD\xA0", "\xEF\xBF\xBD\xE4\xBD\xA0"},
        {"\xFF\xFE", "\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\x80" "a\xC0\x80", "\xEF\xBF\xBD" "a\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xF0\x9F\x98" "\xF0\x9F\x98\x80", "\xEF\xBF\xBD\xF0\x9F\x98\x80"},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        int32_t ids[32];
        size_t n = strlen(cases[i].bytes);

        for (size_t k = 0; k < n; k++) {
            ids[k] = (unsigned char)cases[i].bytes[k];
        }
        CHECK(!stream(m.v, NULL, 0, ids, n, &out));
        CHECK_STR(buf_str(&out), cases[i].want);
    }
    close_made(&m);
    buf_deinit(&out);
}

/* However bytes are cut into tokens, the text is the same. */
TEST(streams_do_not_depend_on_the_tokens)
{
    struct made m = {.model = "gpt2", .pre = "gpt-2"};
    struct buf bytes_out, tokens_out;
    slm_error err = {0};

    buf_init(&bytes_out, 0);
    buf_init(&tokens_out, 0);
    add_bytes(&m);
    add_random_merges(&m, 40);
    open_made(&m);
    for (int round = 0; round < 500; round++) {
        char text[64], stop[8];
        const char *stops[] = {stop};
        int32_t one[64];
        size_t n = 1 + below(60);
        struct ids ids = {0};

        for (size_t i = 0; i < n; i++) {
            text[i] = (char)('a' + below(2));
            one[i] = text[i];
        }
        snprintf(stop, sizeof stop, "%.*s", 1 + (int)below(5), &"abbab"[below(3)]);
        CHECK(tok_encode(m.v, text, n, false, false, &ids, &err));
        bool a = stream(m.v, stops, 1, one, n, &bytes_out);
        bool b = stream(m.v, stops, 1, ids.data, ids.n, &tokens_out);

        text[n] = '\0';
        char *found = strstr(text, stop);

        CHECK_EQ(a, found != NULL);
        CHECK_EQ(b, found != NULL);
        CHECK_EQ(bytes_out.len, found != NULL ? (size_t)(found - text) : n);
        CHECK_EQ(tokens_out.len, bytes_out.len);
        CHECK_MEM(buf_str(&tokens_out), buf_str(&bytes_out), bytes_out.len);
        CHECK_MEM(buf_str(&bytes_out), text, bytes_out.len);
        ids_deinit(&ids);
    }
    close_made(&m);
    buf_deinit(&bytes_out);
    buf_deinit(&tokens_out);
}

TEST(pieces_follow_their_types)
{
    struct made m = {.model = "llama"};
    size_t n;

    add_token(&m, "<unk>", 2, 0);
    add_token(&m, "<s>", 3, 0);
    add_token(&m, "</s>", 3, 0);
    add_bytes(&m);
    int word = add_token(&m, "\xE2\x96\x81" "a\xE2\x96\x81", 1, 0);
    int user = add_token(&m, "\xE2\x96\x81" "u", 4, 0);
    int unused = add_token(&m, "nothing", 5, 0);

    open_made(&m);
    CHECK(vocab_piece(m.v, 1, false, &n) != NULL && n == 0);
    CHECK(memcmp(vocab_piece(m.v, 1, true, &n), "<s>", 3) == 0 && n == 3);
    CHECK(vocab_piece(m.v, 0, false, &n) != NULL && n == 0);
    CHECK(memcmp(vocab_piece(m.v, 0, true, &n), "<unk>", 5) == 0 && n == 5);
    CHECK(memcmp(vocab_piece(m.v, 3 + 0xE2, false, &n), "\xE2", 1) == 0 && n == 1);
    CHECK(memcmp(vocab_piece(m.v, word, false, &n), " a ", 3) == 0 && n == 3);
    CHECK(memcmp(vocab_piece(m.v, user, false, &n), "\xE2\x96\x81" "u", 4) == 0 && n == 4);
    CHECK(vocab_piece(m.v, unused, true, &n) != NULL && n == 0);
    CHECK(vocab_piece(m.v, m.n, true, &n) == NULL && n == 0);
    CHECK(vocab_piece(m.v, -1, true, &n) == NULL && n == 0);

    /* Only the first piece loses the space that encoding put there. */
    struct buf out;
    slm_error err = {0};
    const int32_t ids[] = {1, word, word};

    buf_init(&out, 0);
    CHECK(vocab_detokenize(m.v, ids, 3, false, &out, &err));
    CHECK_STR(buf_str(&out), "a  a ");
    buf_clear(&out);
    CHECK(vocab_detokenize(m.v, ids, 3, true, &out, &err));
    CHECK_STR(buf_str(&out), "<s> a  a ");
    CHECK(!vocab_detokenize(m.v, (const int32_t[]){m.n}, 1, true, &out, &err));
    buf_deinit(&out);
    close_made(&m);
}

int main(void)
{
    return RUN(T(reference_cases_with_reduced_vocabularies),
               T(reference_cases_with_full_vocabularies), T(merging_follows_its_definition),
               T(scores_follow_their_definition), T(special_tokens_are_cut_longest_first),
               T(ordinary_text_never_becomes_a_control_token),
               T(marked_text_never_becomes_a_control_token),
               T(spans_change_nothing_in_text_without_control_tokens),
               T(bos_stands_once_in_rendered_text), T(end_tokens_are_found),
               T(end_tokens_have_exceptions), T(pretokenisers_agree_with_pcre2),
               T(pretokenisers_cover_the_text),
               T(contractions_in_capitals_count_where_case_is_ignored), T(normal_form_c),
               T(normal_form_c_orders_long_runs_of_marks), T(any_bytes_come_back),
               T(long_runs_need_little_stack), T(threads_may_encode_first_at_the_same_time),
               T(wrong_files_are_refused_with_the_key), T(odd_entries_are_tolerated),
               T(scores_of_any_kind_are_ranked), T(failed_allocations_are_errors),
               T(stop_strings_are_held_back_and_never_leak),
               T(streams_hold_back_no_more_than_they_must), T(streams_never_cut_characters),
               T(streams_do_not_depend_on_the_tokens), T(pieces_follow_their_types));
}

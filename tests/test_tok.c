/* test_tok.c - tokenizers against the models' own and against their definitions.
 *
 * tests/data/tok holds, for every family, the reference cases with a vocabulary reduced to
 * what they need (tools/reduce_vocab.py); the full vocabularies are used where they are
 * present.  Small vocabularies for single rules are made in the tests. */
#include <jansson.h>
#include <pthread.h>
#include <unistd.h>

#include "text/tok_cache.h"
#include "tok_make.h"

/* ---- reference cases --------------------------------------------------------------- */

static const char *const families[] = {
    "gemma-4", "gemma3", "gpt-2", "gpt-neox", "llama-bpe", "llama-spm", "mistral-spm", "phi-2",
    "phi-3", "phi-4-mini", "qwen2", "qwen2.5-coder", "qwen35", "smollm2",
};

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

/* ---- merging ----------------------------------------------------------------------- */

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

/* Every call brings new words, so that the records of the smallest cache are used up.  A twin that
 * never met a long text has no cache. */
TEST(a_full_cache_starts_afresh)
{
    enum { WORDS = 300, ROUNDS = 60 };
    static char text[64 * WORDS];
    struct made m = {.model = "gpt2", .pre = "gpt-2"};
    uint32_t used = 0;
    bool afresh = false;

    add_bytes(&m);
    add_random_merges(&m, 60);
    struct made twin = m;

    open_made(&m);
    open_made(&twin);
    for (int round = 0; round < ROUNDS; round++) {
        struct ids got = {0}, want = {0};
        slm_error err = {0};
        size_t n = 0;

        for (int w = 0; w < WORDS; w++) {
            size_t first = n;
            size_t len = w % 3 == 0 ? 1 + below(15) : 16 + below(42);

            text[n++] = ' ';
            while (n < first + len) {
                text[n++] = (char)('a' + below(4));
            }
            n += len == 1;
            text[n - 1] = 'a';
            CHECK(tok_encode(twin.v, text + first, n - first, false, false, &want, &err));
        }
        for (int again = 0; again < 2; again++) {
            got.n = 0;
            CHECK(tok_encode(m.v, text, n, false, false, &got, &err));
            CHECK_EQ(got.n, want.n);
            CHECK_MEM(got.data, want.data, got.n * sizeof *got.data);
        }
        struct tok_cache *cache = m.v->tables->cache;

        CHECK(cache != NULL && twin.v->tables->cache == NULL);
        afresh |= cache->used < used;
        used = cache->used;
        ids_deinit(&got);
        ids_deinit(&want);
    }
    CHECK(afresh);
    twin.n = twin.n_merges = 0;  /* the strings are those of m */
    close_made(&twin);
    close_made(&m);
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

int main(void)
{
    return RUN(T(reference_cases_with_reduced_vocabularies),
               T(reference_cases_with_full_vocabularies), T(merging_follows_its_definition),
               T(a_full_cache_starts_afresh),
               T(scores_follow_their_definition), T(scores_of_any_kind_are_ranked),
               T(special_tokens_are_cut_longest_first),
               T(ordinary_text_never_becomes_a_control_token),
               T(marked_text_never_becomes_a_control_token),
               T(spans_change_nothing_in_text_without_control_tokens),
               T(bos_stands_once_in_rendered_text), T(any_bytes_come_back),
               T(long_runs_need_little_stack), T(threads_may_encode_first_at_the_same_time));
}

/* test_vocab.c - files that are wrong, what ends an answer, pieces and streaming text. */
#include "tok_make.h"

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
    return RUN(T(wrong_files_are_refused_with_the_key), T(odd_entries_are_tolerated),
               T(failed_allocations_are_errors), T(end_tokens_are_found),
               T(end_tokens_have_exceptions), T(stop_strings_are_held_back_and_never_leak),
               T(streams_hold_back_no_more_than_they_must), T(streams_never_cut_characters),
               T(streams_do_not_depend_on_the_tokens), T(pieces_follow_their_types));
}

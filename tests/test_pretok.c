/* test_pretok.c - pre-tokenisers against PCRE2, and normal form C. */
#include "base/buf.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "test.h"
#include "text/nfc.h"
#include "text/pretok.h"
#include "text/unicode.h"

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

/* Text as it is found: words, numbers, indented lines, and now and then anything. */
static void plain_text(struct buf *out, size_t n)
{
    static const char *const part[] = {
        "word", "It", "x", " ", "  ", "    ", "\t", "\n", "\r\n", "\n\n", "\v", "'s", "'ll", "'Re",
        "'", "''", "1", "12", "345", "67890", ",", ".", "();", "//", "\x01", "\x1C", "\x7F",
        "abcdefghijklmnopqrstuvwxyz", "------------------------------", "                        ",
    };
    static const char *const foreign[] = {
        "漢字", "错误", "привет", "Ѯ", "한국어", "か", "é", "ſ", "，", "。」", "…", "「", "́", "😀",
        "\u3000", "\u00A0", "①", "२", "Ⅷ",
    };
    unsigned kind = below(3);  /* ASCII, with something else, mostly something else */

    buf_clear(out);
    while (out->len < n) {
        if (kind == 2 && below(4) != 0) {
            buf_puts(out, foreign[below(below(3) == 0 ? COUNT(foreign) : 14)]);
        } else if (kind > 0 && below(12) == 0) {
            struct buf odd;

            buf_init(&odd, 0);
            odd_text(&odd, 1 + below(3));
            buf_add(out, buf_str(&odd), odd.len);
            buf_deinit(&odd);
        } else {
            buf_puts(out, part[below(COUNT(part))]);
        }
    }
}

TEST(many_pieces_at_once_end_where_single_ones_do)
{
    struct buf text;
    const struct pretok *p;

    buf_init(&text, 0);
    for (size_t row = 0; (p = pretok_at(row)) != NULL; row++) {
        for (int round = 0; round < 1500; round++) {
            size_t one[PRETOK_PASS_MAX] = {0};
            size_t many[PRETOK_PASS_MAX] = {0};
            uint32_t end[PRETOK_CUT_MAX];
            size_t n = 0;
            size_t at = 0;

            plain_text(&text, 1 + below(400));
            for (size_t pos = 0; pos < text.len; at++) {
                if (at == n) {
                    n = pretok_cut(p, text.data, text.len, pos, many, end);
                    CHECK(n > 0 && n <= PRETOK_CUT_MAX);
                    at = 0;
                }
                pos = pretok_next(p, text.data, text.len, pos, one);
                CHECK_EQ(end[at], pos);
            }
            CHECK_EQ(at, n);
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

int main(void)
{
    return RUN(T(pretokenisers_agree_with_pcre2), T(pretokenisers_cover_the_text),
               T(many_pieces_at_once_end_where_single_ones_do),
               T(contractions_in_capitals_count_where_case_is_ignored), T(normal_form_c),
               T(normal_form_c_orders_long_runs_of_marks));
}

/* pretok.c - the pre-tokenisers, one function for each shape of regular expression.
 *
 * Every function gives the end of the piece at a position: the end of the match that
 * begins there, or of the gap up to the next match.  Runs are scanned once or twice and
 * then consumed, so time is linear.  A case keeps the regular expression it stands for
 * beside it; alternatives are tried in the order of the expression, and a greedy
 * quantifier that would backtrack is resolved by remembering the last place where it
 * could stop. */
#include "text/pretok.h"

#include <limits.h>
#include <string.h>

#include "text/pretok_block.h"
#include "text/unicode.h"

/* ---- characters and runs ----------------------------------------------------------- */

struct ch {
    uint32_t cp;
    unsigned cls;
    size_t len;  /* 0 at the end of the piece */
};

static inline struct ch char_at(const char *s, size_t pos, size_t end)
{
    struct ch c = {0};

    if (pos < end) {
        unsigned char first = (unsigned char)s[pos];

        if (first < 0x80) {
            return (struct ch){first, unicode_ascii_class(first), 1};
        }
        c.len = unicode_next(s + pos, &c.cp);
        c.cls = unicode_class(c.cp);
    }
    return c;
}

/* The end of the run of characters whose class has one of the bits, or none of them. */
static inline size_t run(const char *s, size_t pos, size_t end, unsigned cls, bool has)
{
    while (pos < end) {
        unsigned char first = (unsigned char)s[pos];

        if (first < 0x80) {
            if (((unicode_ascii_class(first) & cls) != 0) != has) {
                break;
            }
            pos++;
        } else {
            struct ch c = char_at(s, pos, end);

            if (((c.cls & cls) != 0) != has) {
                break;
            }
            pos += c.len;
        }
    }
    return pos;
}

static inline size_t run_of(const char *s, size_t pos, size_t end, unsigned cls)
{
    return run(s, pos, end, cls, true);
}

static inline size_t run_not(const char *s, size_t pos, size_t end, unsigned cls)
{
    return run(s, pos, end, cls, false);
}

static inline bool is_newline(uint32_t cp)
{
    return cp == '\n' || cp == '\r';
}

static inline size_t run_newlines(const char *s, size_t pos, size_t end, bool slash)
{
    while (pos < end && (is_newline((unsigned char)s[pos]) || (slash && s[pos] == '/'))) {
        pos++;
    }
    return pos;
}

/* Up to `max` numbers. */
static inline size_t run_numbers(const char *s, size_t pos, size_t end, int max)
{
    for (int i = 0; i < max && pos < end; i++) {
        struct ch c = char_at(s, pos, end);

        if (!(c.cls & UC_NUMBER)) {
            break;
        }
        pos += c.len;
    }
    return pos;
}

/* White space that starts at pos: \s+(?!\S)|\s+, that is the run without its last
 * character where something follows, unless that is all of it. */
static size_t space_run(const char *s, size_t pos, size_t end)
{
    size_t last = pos;
    size_t at = pos;

    while (at < end) {
        struct ch c = char_at(s, at, end);

        if (!(c.cls & UC_SPACE)) {
            break;
        }
        last = at;
        at += c.len;
    }
    return at < end && last > pos ? last : at;
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t space_or_lines(const char *s, size_t pos, size_t end)
{
    size_t after_newline = pos;
    size_t at = pos;
    size_t last = pos;

    while (at < end) {
        struct ch c = char_at(s, at, end);

        if (!(c.cls & UC_SPACE)) {
            break;
        }
        last = at;
        at += c.len;
        if (is_newline(c.cp)) {
            after_newline = at;
        }
    }
    if (after_newline > pos) {
        return after_newline;
    }
    return at < end && last > pos ? last : at;
}

size_t pretok_contraction(const char *s, size_t pos, size_t end, bool any_case)
{
    size_t left = end - pos;

    if (left < 2 || s[pos] != '\'') {
        return 0;
    }
    unsigned char a = (unsigned char)s[pos + 1];
    unsigned char b = left > 2 ? (unsigned char)s[pos + 2] : 0;

    if (any_case) {
        if (a == 0xC5 && b == 0xBF) {
            return 3;
        }
        a = a < 0x80 ? a | 0x20 : a;
        b = b < 0x80 ? b | 0x20 : b;
    }
    if (a == 's' || a == 't' || a == 'm' || a == 'd') {
        return 2;
    }
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) {
        return 3;
    }
    return 0;
}

/* ---- the large expressions --------------------------------------------------------- */

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static size_t split_gpt2(const char *s, size_t pos, size_t end, const struct split_opts *o)
{
    (void)o;
    size_t n = pretok_contraction(s, pos, end, false);

    if (n > 0) {
        return pos + n;
    }
    size_t at = s[pos] == ' ' ? pos + 1 : pos;
    struct ch c = char_at(s, at, end);

    if (c.len == 0 || (c.cls & UC_SPACE)) {
        return space_run(s, pos, end);
    }
    if (c.cls & UC_LETTER) {
        return run_of(s, at + c.len, end, UC_LETTER);
    }
    if (c.cls & UC_NUMBER) {
        return run_of(s, at + c.len, end, UC_NUMBER);
    }
    return run_not(s, at + c.len, end, UC_SPACE | UC_LETTER | UC_NUMBER);
}

/* What the expressions below share behind words:
 *   \p{N}{1,digits}| ?[^\s LETTER \p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t split_rest(const char *s, size_t pos, size_t end, const struct split_opts *o,
                         struct ch c)
{
    if (c.cls & UC_NUMBER) {
        return run_numbers(s, pos, end, o->digits);
    }
    size_t at = pos;

    if (c.cp == ' ') {
        at++;
        c = char_at(s, at, end);
    }
    unsigned not_punct = UC_SPACE | UC_NUMBER | UC_LETTER | o->letter;

    if (c.len > 0 && !(c.cls & not_punct)) {
        at = run_not(s, at + c.len, end, not_punct);
        return o->bare_punct ? at : run_newlines(s, at, end, o->slash);
    }
    return space_or_lines(s, pos, end);
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?LETTER+|\p{N}{1,digits}|
 *  ?[^\s LETTER \p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t split_words(const char *s, size_t pos, size_t end, const struct split_opts *o)
{
    struct ch c = char_at(s, pos, end);

    if (o->contractions && c.cp == '\'') {
        size_t n = pretok_contraction(s, pos, end, true);

        if (n > 0) {
            return pos + n;
        }
    }
    if (c.cls & o->letter) {
        return run_of(s, pos + c.len, end, o->letter);
    }
    if (!(c.cls & UC_NUMBER) && !is_newline(c.cp)) {
        struct ch d = char_at(s, pos + c.len, end);

        if (d.cls & o->letter) {
            return run_of(s, pos + c.len + d.len, end, o->letter);
        }
    }
    return split_rest(s, pos, end, o, c);
}

enum {
    CASED_HEAD = UC_UPPER | UC_ALPHA | UC_MARK,  /* [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] */
    CASED_TAIL = UC_LOWER | UC_ALPHA | UC_MARK,  /* [\p{Ll}\p{Lm}\p{Lo}\p{M}] */
};

/* HEAD*TAIL+ at pos; pos where it does not match.  The head is greedy: where no lower-case
 * letter follows it, it gives characters back up to its last one that is a tail as well. */
static size_t cased_word(const char *s, size_t pos, size_t end)
{
    size_t last_both = pos;
    size_t at = pos;

    while (at < end) {
        struct ch c = char_at(s, at, end);

        if (!(c.cls & CASED_HEAD)) {
            return c.cls & UC_LOWER ? run_of(s, at + c.len, end, CASED_TAIL) : last_both;
        }
        at += c.len;
        if (c.cls & CASED_TAIL) {
            last_both = at;
        }
    }
    return last_both;
}

/* [^\r\n\p{L}\p{N}]?HEAD*TAIL+CONTRACTION?|[^\r\n\p{L}\p{N}]?HEAD+TAIL*CONTRACTION?|
 * and the rest of split_words. */
static size_t split_cased(const char *s, size_t pos, size_t end, const struct split_opts *o)
{
    struct ch c = char_at(s, pos, end);
    bool prefix = !(c.cls & (UC_LETTER | UC_NUMBER)) && !is_newline(c.cp);
    size_t word = prefix ? pos + c.len : pos;  /* where the word proper starts */
    size_t at = cased_word(s, word, end);

    if (at == word && prefix && (c.cls & UC_MARK)) {
        /* The mark is no prefix but the word itself. */
        word = pos;
        at = cased_word(s, word, end);
    }
    if (at == word) {
        /* Not even one tail character follows, so the head is the run of capitals. */
        at = run_of(s, word, end, UC_UPPER);
    }
    if (at == word) {
        return split_rest(s, pos, end, o, c);
    }
    return at + (o->contractions ? pretok_contraction(s, at, end, true) : 0);
}

static bool is_ascii_letter(unsigned char c)
{
    return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
}

static bool is_ascii_punct(unsigned char c)
{
    return c > 0x20 && c < 0x7F && !is_ascii_letter(c) && !(c >= '0' && c <= '9');
}

/* [!-/:-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|
 * \s*[\r\n]+|\s+(?!\S)|\s+ ; pos where nothing matches. */
static size_t match_deepseek(const char *s, size_t pos, size_t end)
{
    struct ch c = char_at(s, pos, end);

    if (c.cp < 0x80 && is_ascii_punct((unsigned char)c.cp) && pos + 1 < end &&
        is_ascii_letter((unsigned char)s[pos + 1])) {
        size_t at = pos + 1;

        while (at < end && is_ascii_letter((unsigned char)s[at])) {
            at++;
        }
        return at;
    }
    if (c.cls & (UC_LETTER | UC_MARK)) {
        return run_of(s, pos + c.len, end, UC_LETTER | UC_MARK);
    }
    struct ch d = char_at(s, pos + c.len, end);

    if (!(c.cls & (UC_PUNCT | UC_SYMBOL)) && !is_newline(c.cp) &&
        (d.cls & (UC_LETTER | UC_MARK))) {
        return run_of(s, pos + c.len + d.len, end, UC_LETTER | UC_MARK);
    }
    size_t at = c.cp == ' ' ? pos + 1 : pos;
    size_t stop = run_of(s, at, end, UC_PUNCT | UC_SYMBOL);

    if (stop > at) {
        return run_newlines(s, stop, end, false);
    }
    return c.cls & UC_SPACE ? space_or_lines(s, pos, end) : pos;
}

static size_t split_deepseek(const char *s, size_t pos, size_t end, const struct split_opts *o)
{
    (void)o;
    size_t at = match_deepseek(s, pos, end);

    if (at > pos) {
        return at;
    }
    /* A gap: nothing but control and unassigned characters and numbers gets here. */
    do {
        at += char_at(s, at, end).len;
    } while (at < end && match_deepseek(s, at, end) == at);
    return at;
}

/* ---- small expressions ------------------------------------------------------------- */

/* \p{N}{1,digits} */
static size_t split_numbers(const char *s, size_t pos, size_t end, const struct split_opts *o)
{
    size_t at = run_numbers(s, pos, end, o->digits);

    return at > pos ? at : run_not(s, pos, end, UC_NUMBER);
}

static bool three_digits(const char *s, size_t pos, size_t end)
{
    for (size_t i = pos; i < pos + 3; i++) {
        if (i >= end || s[i] < '0' || s[i] > '9') {
            return false;
        }
    }
    return true;
}

/* [0-9][0-9][0-9] */
static size_t split_three_digits(const char *s, size_t pos, size_t end,
                                 const struct split_opts *o)
{
    (void)o;
    if (three_digits(s, pos, end)) {
        return pos + 3;
    }
    do {
        pos++;
    } while (pos < end && !three_digits(s, pos, end));
    return pos;
}

/* [\p{P} also]+ */
static size_t split_punct(const char *s, size_t pos, size_t end, const struct split_opts *o)
{
    bool inside = false;

    for (size_t at = pos; at < end;) {
        struct ch c = char_at(s, at, end);
        bool hit = (c.cls & UC_PUNCT) ||
                   (c.cp > 0 && c.cp < 0x80 && strchr(o->also, (int)c.cp) != NULL);

        if (at == pos) {
            inside = hit;
        } else if (hit != inside) {
            return at;
        }
        at += c.len;
    }
    return end;
}

/* [\r\n] */
static size_t split_line_ends(const char *s, size_t pos, size_t end, const struct split_opts *o)
{
    (void)o;
    if (is_newline((unsigned char)s[pos])) {
        return pos + 1;
    }
    while (pos < end && !is_newline((unsigned char)s[pos])) {
        pos++;
    }
    return pos;
}

/* [^\n]+|[\n]+ */
static size_t split_line_runs(const char *s, size_t pos, size_t end, const struct split_opts *o)
{
    (void)o;
    bool newline = s[pos] == '\n';

    while (pos < end && (s[pos] == '\n') == newline) {
        pos++;
    }
    return pos;
}

/* Length of the match of \s?CLASS+ at pos, 0 for none. */
static size_t match_spaced(const char *s, size_t pos, size_t end, unsigned cls)
{
    struct ch c = char_at(s, pos, end);
    size_t at = pos;

    if (c.cls & UC_SPACE) {
        at += c.len;
        c = char_at(s, at, end);
    }
    return c.cls & cls ? run_of(s, at, end, cls) - pos : 0;
}

/* \s?LETTER+ with the class of the options */
static size_t split_spaced(const char *s, size_t pos, size_t end, const struct split_opts *o)
{
    size_t n = match_spaced(s, pos, end, o->letter);

    if (n > 0) {
        return pos + n;
    }
    do {
        pos += char_at(s, pos, end).len;
    } while (pos < end && match_spaced(s, pos, end, o->letter) == 0);
    return pos;
}

/* Runs of characters for which `is` holds, and of those for which it does not. */
static inline size_t split_runs(const char *s, size_t pos, size_t end, bool (*is)(uint32_t cp))
{
    struct ch c = char_at(s, pos, end);
    bool inside = is(c.cp);

    do {
        pos += c.len;
        c = char_at(s, pos, end);
    } while (c.len > 0 && is(c.cp) == inside);
    return pos;
}

static bool is_han_kana(uint32_t cp)
{
    return (cp >= 0x4E00 && cp <= 0x9FA5) || (cp >= 0x3040 && cp <= 0x30FF);
}

static bool is_east_asian(uint32_t cp)
{
    return (cp >= 0x4E00 && cp <= 0x9FA5) || (cp >= 0x0800 && cp <= 0x4E00) ||
           (cp >= 0xAC00 && cp <= 0xD7FF);
}

/* [U+4E00-U+9FA5 U+3040-U+309F U+30A0-U+30FF]+ */
static size_t split_han_kana(const char *s, size_t pos, size_t end, const struct split_opts *o)
{
    (void)o;
    return split_runs(s, pos, end, is_han_kana);
}

/* [U+4E00-U+9FA5 U+0800-U+4E00 U+AC00-U+D7FF]+ */
static size_t split_east_asian(const char *s, size_t pos, size_t end, const struct split_opts *o)
{
    (void)o;
    return split_runs(s, pos, end, is_east_asian);
}

/* The class of split_clauses: no white space, no bracket, bar or end of a clause. */
static bool in_clause(struct ch c)
{
    switch (c.cp) {
    case '(': case ')': case '|': case '.': case ',': case '!': case '?':
    case 0x2026: case 0x3002: case 0xFF0C: case 0x3001: case 0x0964: case 0x06D4: case 0x060C:
        return false;
    default:
        return !(c.cls & UC_SPACE);
    }
}

static bool clause_starts(const char *s, size_t pos, size_t end)
{
    struct ch c = char_at(s, pos, end);

    if (c.cp == ' ') {
        c = char_at(s, pos + 1, end);
    }
    return c.len > 0 && in_clause(c);
}

/*  ?[^(\s|.,!?...)]+ with the ends of clauses of several scripts */
static size_t split_clauses(const char *s, size_t pos, size_t end, const struct split_opts *o)
{
    (void)o;
    if (!clause_starts(s, pos, end)) {
        do {
            pos += char_at(s, pos, end).len;
        } while (pos < end && !clause_starts(s, pos, end));
        return pos;
    }
    struct ch c = char_at(s, pos, end);

    do {
        pos += c.len;
        c = char_at(s, pos, end);
    } while (c.len > 0 && in_clause(c));
    return pos;
}

/* ---- the table --------------------------------------------------------------------- */

#define GPT2 {split_gpt2, {.block = block_gpt2}}
#define NUMBERS(n) {split_numbers, {.digits = (n)}}
#define WORDS(n) \
    {split_words, {.letter = UC_LETTER, .digits = (n), .contractions = true, .block = block_words}}
#define CASED(n, contr) {split_cased, {.digits = (n), .contractions = (contr), .slash = true}}

static const struct pretok table[] = {
    {"gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de gigachat a.x-4.0 mellum mpt olmo jais "
     "exaone4 trillion granite-docling", 0, {GPT2}},
    {"gpt-neox", PRETOK_NFC, {GPT2}},
    {"smollm starcoder refact command-r codeshell exaone minerva-7b mellum2", 0,
     {NUMBERS(1), GPT2}},
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
     PRETOK_WHOLE | PRETOK_ADD_BOS, {WORDS(3)}},
    {"dbrx smaug-bpe", 0, {WORDS(3)}},
    {"chatglm-bpe", PRETOK_NO_BOS, {WORDS(3)}},
    {"glm4 glm5", PRETOK_NO_BOS | PRETOK_WHOLE, {WORDS(3)}},
    {"minicpm5", PRETOK_WHOLE, {NUMBERS(3), WORDS(INT_MAX)}},
    {"qwen2 deepseek-r1-qwen", PRETOK_NFC, {WORDS(1)}},
    {"stablelm2 kormo f2llmv2 megrez hunyuan solar-open grok-2 bailingmoe bailingmoe2 llada-moe",
     0, {WORDS(1)}},
    {"qwen35", PRETOK_NFC,
     {{split_words, {.letter = UC_LETTER | UC_MARK, .digits = 1, .contractions = true,
                     .block = block_words}}}},
    {"seed-coder", 0,
     {{split_words, {.letter = UC_LETTER, .digits = 1, .contractions = true,
                     .bare_punct = true}}}},
    {"ufakzeka", 0, {{split_words, {.letter = UC_LETTER, .digits = 1}}}},
    {"laguna", 0, {{split_line_runs, {0}}, WORDS(1)}},
    {"gpt-4o llama4 kanana2 talkie minimax-m2", 0, {CASED(3, true)}},
    {"granite-embed-multi-97m", PRETOK_WHOLE, {CASED(3, true)}},
    {"tekken", PRETOK_WHOLE | PRETOK_ADD_BOS, {CASED(1, false)}},
    {"deepseek-v3 hunyuan-dense hy_v4 joyai-llm", 0,
     {NUMBERS(3), {split_han_kana, {0}}, {split_deepseek, {0}}}},
    {"deepseek-coder", 0,
     {{split_line_ends, {0}}, {split_spaced, {.letter = UC_LETTER}},
      {split_spaced, {.letter = UC_PUNCT}}, {split_east_asian, {0}}, NUMBERS(1)}},
    {"falcon", 0,
     {{split_punct, {.also = "$+<=>^~|`"}}, GPT2, {split_three_digits, {0}}}},
    {"default", 0,
     {{split_punct, {.also = "$+<=>^~|"}}, GPT2, NUMBERS(INT_MAX), {split_three_digits, {0}}}},
    {"poro-chat bloom gpt3-finnish", 0, {{split_clauses, {0}}}},
    {"viking", 0, {{split_clauses, {0}}, NUMBERS(1)}},
    {"gemma4", 0, {{split_line_runs, {0}}}},
};

const struct pretok *pretok_at(size_t i)
{
    return i < sizeof table / sizeof table[0] ? &table[i] : NULL;
}

const struct pretok *pretok_find(const char *name, size_t n)
{
    const struct pretok *p;

    for (size_t i = 0; n > 0 && (p = pretok_at(i)) != NULL; i++) {
        for (const char *at = p->names; *at != '\0';) {
            size_t len = strcspn(at, " ");

            if (len == n && memcmp(at, name, n) == 0) {
                return p;
            }
            at += len + (at[len] == ' ');
        }
    }
    return NULL;
}

void pretok_list(struct buf *out)
{
    const struct pretok *p;

    for (size_t i = 0; (p = pretok_at(i)) != NULL; i++) {
        for (const char *at = p->names; *at != '\0';) {
            size_t len = strcspn(at, " ");

            buf_puts(out, out->len > 0 ? ", " : "");
            buf_add(out, at, len);
            at += len + (at[len] == ' ');
        }
    }
}

size_t pretok_next(const struct pretok *p, const char *s, size_t n, size_t pos,
                   size_t cuts[PRETOK_PASS_MAX])
{
    size_t end = n;

    for (int i = 0; p->pass[i].fn != NULL; i++) {
        if (cuts[i] <= pos) {
            cuts[i] = p->pass[i].fn(s, pos, end, &p->pass[i].o);
        }
        end = cuts[i];
    }
    return end;
}

/* The pieces of up to 64 bytes but the last, whose end is not known yet, appended to
 * end[0, *count).  Returns where the last begins. */
static size_t cut_block(const struct pass *pass, const char *s, size_t n, size_t pos,
                        uint32_t *end, size_t *count)
{
    struct text_block b;

    block_read(&b, s, n, pos, UC_LETTER | pass->o.letter);
    uint64_t starts = pass->o.block(&b, &pass->o) & ~(uint64_t)1;
    size_t k = *count;

    for (; starts != 0; starts &= starts - 1) {
        end[k++] = (uint32_t)(pos + (size_t)__builtin_ctzll(starts));
    }
    if (b.ends) {
        end[k++] = (uint32_t)n;
    }
    size_t at = k > *count ? end[k - 1] : pos;

    *count = k;
    return at;
}

size_t pretok_cut(const struct pretok *p, const char *s, size_t n, size_t pos,
                  size_t cuts[PRETOK_PASS_MAX], uint32_t end[PRETOK_CUT_MAX])
{
    /* A block has 64 pieces at most. */
    enum { ENOUGH = PRETOK_CUT_MAX - 64 };
    const struct pass *pass = &p->pass[0];
    bool single = pass[1].fn == NULL;
    size_t count = 0;

    while (count <= ENOUGH && pos < n) {
        if (single && pass->o.block != NULL) {
            size_t at = cut_block(pass, s, n, pos, end, &count);

            if (at > pos) {
                pos = at;
                continue;
            }
        }
        pos = single ? pass->fn(s, pos, n, &pass->o) : pretok_next(p, s, n, pos, cuts);
        end[count++] = (uint32_t)pos;
    }
    return count;
}

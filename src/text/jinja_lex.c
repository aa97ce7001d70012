/* jinja_lex.c - template text to tokens.
 *
 * Outside tags the text is cut at {{ {% {# and trimmed as the signs at the tags, trim_blocks
 * and lstrip_blocks ask for; inside tags it is split into names, numbers, strings and
 * operators.  Brackets are balanced here, since }} and %} end a tag only outside of them. */
#include "text/jinja_ast.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "text/jinja_str.h"

enum { BRACKETS_MAX = 400 };

struct lexer {
    struct arena *a;
    const char *s;
    size_t n, pos;
    int line;
    bool line_starting;   /* the last tag ended with a newline, or there was none */
    struct tokens *out;
    slm_error *err;
    char closers[BRACKETS_MAX];
    int n_closers;
};

static bool lex_fail(struct lexer *x, const char *what)
{
    return slm_fail_at(x->err, SLM_E_TEMPLATE, x->line, "line %d: %s", x->line, what);
}

static bool add_token(struct lexer *x, enum token_kind kind, const char *s, size_t n)
{
    struct tokens *t = x->out;

    if (t->n == t->cap) {
        size_t cap = t->cap ? 2 * t->cap : 64;
        struct token *grown = arena_alloc(x->a, cap * sizeof *grown);

        if (grown == NULL) {
            return slm_fail_nomem(x->err, "the template's tokens");
        }
        if (t->n > 0) {
            memcpy(grown, t->t, t->n * sizeof *grown);
        }
        t->t = grown;
        t->cap = cap;
    }
    t->t[t->n++] = (struct token){ .kind = kind, .line = x->line, .s = s, .n = n };
    return true;
}

static void count_lines(struct lexer *x, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        x->line += x->s[i] == '\n';
    }
}

/* Length of the white space at p, in Unicode's sense. */
static size_t space_at(const struct lexer *x, size_t p)
{
    size_t begin = p;
    uint32_t cp;

    while (p < x->n) {
        int len = utf8_decode(x->s + p, x->n - p, &cp);

        if (len == 0 || !uc_space(cp)) {
            break;
        }
        p += (size_t)len;
    }
    return p - begin;
}

/* End of [from, to) without the white space at its end. */
static size_t rstrip_to(const struct lexer *x, size_t from, size_t to)
{
    while (to > from) {
        size_t p = to - 1;
        uint32_t cp;

        while (p > from && ((unsigned char)x->s[p] & 0xC0) == 0x80) {
            p--;
        }
        if (utf8_decode(x->s + p, to - p, &cp) == 0 || !uc_space(cp)) {
            break;
        }
        to = p;
    }
    return to;
}

static bool starts(const struct lexer *x, size_t p, const char *what)
{
    size_t n = strlen(what);

    return x->n - p >= n && memcmp(x->s + p, what, n) == 0;
}

/* "{%", sign, "raw", "%}" with white space between; the length, 0 where it is not that.
 * `word` is raw or endraw, *sign the sign behind {%.  The end of an endraw tag also trims. */
static size_t raw_tag(const struct lexer *x, size_t p, const char *word, char *sign)
{
    size_t q = p + 2;

    if (!starts(x, p, "{%")) {
        return 0;
    }
    *sign = '\0';
    if (q < x->n && (x->s[q] == '-' || x->s[q] == '+')) {
        *sign = x->s[q++];
    }
    q += space_at(x, q);
    if (!starts(x, q, word)) {
        return 0;
    }
    q += strlen(word);
    q += space_at(x, q);
    if (starts(x, q, "-%}")) {
        q += 3;
        return q + space_at(x, q) - p;
    }
    if (word[0] == 'e' && starts(x, q, "+%}")) {
        return q + 3 - p;
    }
    if (!starts(x, q, "%}")) {
        return 0;
    }
    q += 2;
    if (word[0] == 'e' && q < x->n && x->s[q] == '\n') {
        q++;
    }
    return q - p;
}

/* Adds text [from, to) that stands before a tag with this sign. */
static bool add_data(struct lexer *x, size_t from, size_t to, char sign, bool block)
{
    size_t end = to;

    if (sign == '-') {
        end = rstrip_to(x, from, to);
    } else if (sign != '+' && block) {
        const char *nl = to > from ? memrchr(x->s + from, '\n', to - from) : NULL;
        size_t begin = nl != NULL ? (size_t)(nl - x->s) + 1 : from;

        if ((begin > from || x->line_starting) && begin + space_at(x, begin) >= to) {
            end = begin;
        }
    }
    if (end > from && !add_token(x, T_DATA, x->s + from, end - from)) {
        return false;
    }
    count_lines(x, from, to);
    return true;
}

/* The end of a comment or block tag at p: length with what it trims, or 0. */
static size_t tag_end(const struct lexer *x, size_t p, const char *end, bool trims)
{
    if (trims && x->s[p] == '+' && starts(x, p + 1, end)) {
        return 3;
    }
    if (x->s[p] == '-' && starts(x, p + 1, end)) {
        return 3 + space_at(x, p + 3);
    }
    if (starts(x, p, end)) {
        return trims && p + 2 < x->n && x->s[p + 2] == '\n' ? 3 : 2;
    }
    return 0;
}

static void advance(struct lexer *x, size_t n)
{
    count_lines(x, x->pos, x->pos + n);
    x->pos += n;
    x->line_starting = x->pos > 0 && x->s[x->pos - 1] == '\n';
}

static bool lex_comment(struct lexer *x, size_t sign_len)
{
    size_t p = x->pos + 2 + sign_len;

    for (; p < x->n; p++) {
        size_t len = tag_end(x, p, "#}", true);

        if (len > 0) {
            advance(x, p + len - x->pos);
            return true;
        }
    }
    if (x->pos + 2 + sign_len == x->n) {
        x->pos = x->n;   /* a comment that opens at the very end is let through */
        return true;
    }
    return lex_fail(x, "Missing end of comment tag");
}

static bool lex_raw(struct lexer *x, size_t begin_len)
{
    size_t p = x->pos + begin_len;

    advance(x, begin_len);
    for (; p < x->n; p++) {
        char sign;
        size_t len = x->s[p] == '{' ? raw_tag(x, p, "endraw", &sign) : 0;

        if (len > 0) {
            if (!add_data(x, x->pos, p, sign, true)) {
                return false;
            }
            x->pos = p;
            advance(x, len);
            return true;
        }
    }
    return x->pos == x->n || lex_fail(x, "Missing end of raw directive");
}

/* ---- inside tags -------------------------------------------------------------------- */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool is_base_digit(char c, int base)
{
    if (base == 16) {
        return is_digit(c) || ((c | 32) >= 'a' && (c | 32) <= 'f');
    }
    return c >= '0' && c < '0' + base;
}

/* Digits with single underscores between them; 0 where there are none. */
static size_t digits_at(const struct lexer *x, size_t p, int base)
{
    size_t q = p;

    while (q < x->n) {
        if (is_base_digit(x->s[q], base)) {
            q++;
        } else if (x->s[q] == '_' && q > p && q + 1 < x->n && is_base_digit(x->s[q + 1], base)) {
            q++;
        } else {
            break;
        }
    }
    return q - p;
}

static size_t float_at(const struct lexer *x, size_t p)
{
    size_t q = p + digits_at(x, p, 10), frac = 0;

    if (q == p || (p > 0 && x->s[p - 1] == '.')) {
        return 0;
    }
    if (q < x->n && x->s[q] == '.') {
        frac = digits_at(x, q + 1, 10);
        q += frac > 0 ? frac + 1 : 0;
    }
    if (q < x->n && (x->s[q] | 32) == 'e') {
        size_t e = q + 1;

        if (e < x->n && (x->s[e] == '+' || x->s[e] == '-')) {
            e++;
        }
        if (digits_at(x, e, 10) > 0) {
            return e + digits_at(x, e, 10) - p;
        }
    }
    return frac > 0 ? q - p : 0;
}

static size_t int_at(const struct lexer *x, size_t p)
{
    static const struct { char letter; int base; } bases[] = {
        { 'b', 2 }, { 'o', 8 }, { 'x', 16 },
    };
    size_t q;

    if (x->s[p] != '0') {
        return digits_at(x, p, 10);
    }
    for (size_t i = 0; i < 3 && p + 1 < x->n; i++) {
        if ((x->s[p + 1] | 32) == bases[i].letter) {
            size_t skip = p + 2 < x->n && x->s[p + 2] == '_' ? 3 : 2;
            size_t len = digits_at(x, p + skip, bases[i].base);

            if (len > 0) {
                return skip + len;
            }
        }
    }
    /* A zero may be followed by zeros only. */
    for (q = p + 1; q < x->n; q++) {
        bool zero = x->s[q] == '0' || (x->s[q] == '_' && q + 1 < x->n && x->s[q + 1] == '0');

        if (!zero) {
            break;
        }
    }
    return q - p;
}

static size_t name_at(const struct lexer *x, size_t p)
{
    size_t begin = p;
    uint32_t cp;

    while (p < x->n) {
        int len = utf8_decode(x->s + p, x->n - p, &cp);

        if (len == 0 || !(uc_word(cp) || uc_ident(cp, false))) {
            break;
        }
        p += (size_t)len;
    }
    return p - begin;
}

static bool name_ok(const char *s, size_t n)
{
    uint32_t cp;

    for (size_t i = 0; i < n;) {
        int len = utf8_decode(s + i, n - i, &cp);

        if (len == 0 || !uc_ident(cp, i == 0)) {
            return false;
        }
        i += (size_t)len;
    }
    return true;
}

/* Length of the string literal at p with its quotes; 0 where it does not end. */
static size_t string_at(const struct lexer *x, size_t p)
{
    char quote = x->s[p];

    for (size_t q = p + 1; q < x->n; q++) {
        if (x->s[q] == '\\') {
            q++;
        } else if (x->s[q] == quote) {
            return q + 1 - p;
        }
    }
    return 0;
}

static const struct { char s[3]; uint8_t kind; } operators[] = {
    { "//", T_FLOORDIV }, { "**", T_POW }, { "==", T_EQ }, { "!=", T_NE }, { ">=", T_GE },
    { "<=", T_LE }, { "+", T_ADD }, { "-", T_SUB }, { "/", T_DIV }, { "*", T_MUL },
    { "%", T_MOD }, { "~", T_TILDE }, { "[", T_LBRACKET }, { "]", T_RBRACKET },
    { "(", T_LPAREN }, { ")", T_RPAREN }, { "{", T_LBRACE }, { "}", T_RBRACE }, { ">", T_GT },
    { "<", T_LT }, { "=", T_ASSIGN }, { ".", T_DOT }, { ":", T_COLON }, { "|", T_PIPE },
    { ",", T_COMMA }, { ";", T_SEMICOLON },
};

static bool balance(struct lexer *x, enum token_kind kind)
{
    char what[60];
    char closer = kind == T_RBRACE ? '}' : kind == T_RPAREN ? ')' : ']';

    if (kind == T_LBRACE || kind == T_LPAREN || kind == T_LBRACKET) {
        if (x->n_closers == BRACKETS_MAX) {
            return lex_fail(x, "brackets are nested too deeply");
        }
        x->closers[x->n_closers++] = kind == T_LBRACE ? '}' : kind == T_LPAREN ? ')' : ']';
        return true;
    }
    if (kind != T_RBRACE && kind != T_RPAREN && kind != T_RBRACKET) {
        return true;
    }
    if (x->n_closers == 0) {
        snprintf(what, sizeof what, "unexpected '%c'", closer);
        return lex_fail(x, what);
    }
    if (x->closers[--x->n_closers] != closer) {
        snprintf(what, sizeof what, "unexpected '%c', expected '%c'", closer,
                 x->closers[x->n_closers]);
        return lex_fail(x, what);
    }
    return true;
}

static bool lex_operator(struct lexer *x)
{
    char what[60];
    uint32_t cp;
    int len;

    for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++) {
        if (starts(x, x->pos, operators[i].s)) {
            size_t n = strlen(operators[i].s);

            if (!balance(x, operators[i].kind) ||
                !add_token(x, operators[i].kind, x->s + x->pos, n)) {
                return false;
            }
            x->pos += n;
            return true;
        }
    }
    len = utf8_decode(x->s + x->pos, x->n - x->pos, &cp);
    snprintf(what, sizeof what, "unexpected char '%.*s'", len, x->s + x->pos);
    return lex_fail(x, what);
}

/* One token of an expression. */
static bool lex_expression(struct lexer *x)
{
    size_t p = x->pos, len;
    char c = x->s[p];
    enum token_kind kind;

    len = space_at(x, p);
    if (len > 0) {
        advance(x, len);
        return true;
    }
    if ((len = float_at(x, p)) > 0) {
        kind = T_FLOAT;
    } else if (is_digit(c)) {
        kind = T_INT;
        len = int_at(x, p);
    } else if ((len = name_at(x, p)) > 0) {
        kind = T_NAME;
        if (!name_ok(x->s + p, len)) {
            return lex_fail(x, "Invalid character in identifier");
        }
    } else if ((c == '"' || c == '\'') && (len = string_at(x, p)) > 0) {
        if (!add_token(x, T_STRING, x->s + p + 1, len - 2)) {
            return false;
        }
        advance(x, len);
        return true;
    } else {
        return lex_operator(x);
    }
    if (!add_token(x, kind, x->s + p, len)) {
        return false;
    }
    x->pos += len;
    return true;
}

/* From behind the opening of a tag to behind its end. */
static bool lex_tag(struct lexer *x, bool block)
{
    while (x->pos < x->n) {
        size_t len = x->n_closers > 0 ? 0 : tag_end(x, x->pos, block ? "%}" : "}}", block);

        if (len > 0) {
            if (!add_token(x, block ? T_BLOCK_END : T_VAR_END, x->s + x->pos, 2)) {
                return false;
            }
            advance(x, len);
            return true;
        }
        if (!lex_expression(x)) {
            return false;
        }
    }
    return true;   /* the parser complains about the end of the template */
}

/* Text up to the next tag, and the tag. */
static bool lex_root(struct lexer *x)
{
    size_t p = x->pos;
    char sign = '\0', kind;
    size_t raw = 0;

    for (;; p++) {
        const char *brace = p < x->n ? memchr(x->s + p, '{', x->n - p) : NULL;

        if (brace == NULL || brace + 1 >= x->s + x->n) {
            size_t from = x->pos;

            x->pos = x->n;
            return add_data(x, from, x->n, '+', false);
        }
        p = (size_t)(brace - x->s);
        kind = x->s[p + 1];
        if (kind == '{' || kind == '%' || kind == '#') {
            break;
        }
    }
    if (kind == '%') {
        raw = raw_tag(x, p, "raw", &sign);
    }
    if (raw == 0) {
        sign = p + 2 < x->n && (x->s[p + 2] == '-' || x->s[p + 2] == '+') ? x->s[p + 2] : '\0';
    }
    if (!add_data(x, x->pos, p, sign, kind != '{')) {
        return false;
    }
    x->pos = p;
    if (raw > 0) {
        return lex_raw(x, raw);
    }
    if (kind == '#') {
        return lex_comment(x, sign != '\0');
    }
    if (!add_token(x, kind == '%' ? T_BLOCK_BEGIN : T_VAR_BEGIN, x->s + p, 2)) {
        return false;
    }
    x->pos += sign != '\0' ? 3 : 2;
    return lex_tag(x, kind == '%');
}

bool jinja_lex(struct arena *a, const char *source, size_t n, struct tokens *out, slm_error *err)
{
    struct lexer x = {
        .a = a, .s = source, .n = n, .line = 1, .line_starting = true, .out = out, .err = err,
    };

    *out = (struct tokens){ 0 };
    while (x.pos < x.n) {
        if (!lex_root(&x)) {
            return false;
        }
    }
    return add_token(&x, T_EOF, "", 0);
}

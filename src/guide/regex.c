/* regex.c - regular expressions: the common syntax of ECMAScript and others without what
 * looks around, refers back or depends on flags.
 *
 * What a class like \W leaves over is taken narrowly: characters that some dialects count
 * as words (letters beyond ASCII) are in neither \w nor \W, so that every dialect agrees
 * that an answer matches. */
#include "guide/regex.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "guide/charset.h"
#include "guide/guide.h"
#include "text/unicode.h"

/* Groups inside groups; a limit for the stack. */
enum { DEPTH_MAX = 200 };

/* Escapes in brackets; a class of Unicode takes milliseconds to make. */
enum { CLASSES_MAX = 1000 };

/* A piece of a sequence.  Where it is one character repeated that is known, so that its bounds
 * can be tightened. */
struct part {
    gram_expr e;
    uint32_t min, max;      /* characters; max may be GRAM_INF */
    gram_expr unit;         /* of exactly one character, min to max times; else GRAM_NONE */
};

struct parser {
    struct grammar *g;
    const char *s;
    size_t n, at;
    const struct regex_opts *o;
    int depth;
    gram_expr class_expr[128];  /* of \d, \p{L}, . and so on once made, by their letter */
    slm_error *err;
    int n_classes;              /* in brackets so far */
    bool failed;
};

static void refuse(struct parser *p, const char *what)
{
    if (!p->failed) {
        slm_fail_at(p->err, SLM_E_UNSUPPORTED, (int64_t)p->at, "%s at byte %zu of the regular "
                    "expression", what, p->at);
        p->failed = true;
    }
}

static int peek(const struct parser *p)
{
    return p->at < p->n ? (unsigned char)p->s[p->at] : -1;
}

static bool take(struct parser *p, const char *what)
{
    const size_t len = strlen(what);

    if (p->n - p->at < len || memcmp(p->s + p->at, what, len) != 0) {
        return false;
    }
    p->at += len;
    return true;
}

/* ---- characters and classes ----------------------------------------------------------- */

static uint32_t add_sat(uint32_t a, uint32_t b)
{
    return a > GRAM_INF - b ? GRAM_INF : a + b;
}

static uint32_t mul_sat(uint32_t a, uint32_t b)
{
    const uint64_t p = (uint64_t)a * b;
    return p > GRAM_INF ? GRAM_INF : (uint32_t)p;
}

static gram_expr chars(struct parser *p, struct charset *c)
{
    charset_close(c);
    return p->o->json ? charset_json(p->g, c) : charset_expr(p->g, c);
}

static struct part one_char(gram_expr e)
{
    return (struct part){ e, 1, 1, e };
}

/* White space of ECMAScript and Python together. */
static void add_wide_space(struct charset *c)
{
    charset_add(c, 0x09, 0x0D);
    charset_add(c, 0x1C, 0x20);
    charset_add(c, 0x85, 0x85);
    charset_add(c, 0xFEFF, 0xFEFF);
    charset_add_class(c, UC_SPACE);
}

/* Adds the class of an escaped letter; false where it is none. */
static bool add_class(struct charset *c, int letter)
{
    struct charset other = {0};

    switch (letter) {
    case 'd':
        charset_add(c, '0', '9');
        return true;
    case 'w':
        charset_add(c, '0', '9');
        charset_add(c, 'A', 'Z');
        charset_add(c, '_', '_');
        charset_add(c, 'a', 'z');
        return true;
    case 's':
        charset_add(c, 0x09, 0x0D);
        charset_add(c, ' ', ' ');
        return true;
    case 'D':
        charset_add_class(&other, UC_NUMBER);
        break;
    case 'W':
        charset_add_class(&other, UC_NUMBER | UC_LETTER | UC_MARK);
        charset_add(&other, '_', '_');
        break;
    case 'S':
        add_wide_space(&other);
        break;
    default:
        return false;
    }
    charset_close(&other);
    charset_invert(&other);
    charset_add_all(c, &other);
    charset_deinit(&other);
    return true;
}

/* {L}, {Nd} and so on behind \p or \P. */
static void add_property(struct parser *p, struct charset *c, bool negated)
{
    static const struct { const char *name; unsigned bits; } names[] = {
        { "{L}", UC_LETTER }, { "{Letter}", UC_LETTER }, { "{Ll}", UC_LOWER },
        { "{M}", UC_MARK }, { "{Mark}", UC_MARK }, { "{N}", UC_NUMBER },
        { "{Number}", UC_NUMBER }, { "{P}", UC_PUNCT }, { "{Punctuation}", UC_PUNCT },
        { "{S}", UC_SYMBOL }, { "{Symbol}", UC_SYMBOL },
    };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (take(p, names[i].name)) {
            struct charset set = {0};
            charset_add_class(&set, names[i].bits);
            charset_close(&set);
            if (negated) {
                charset_invert(&set);
            }
            charset_add_all(c, &set);
            charset_deinit(&set);
            return;
        }
    }
    refuse(p, "a property other than L, Ll, M, N, P and S");
}

static int hex_digit(int c)
{
    return c >= '0' && c <= '9' ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Exactly `digits` hexadecimal digits, or as many as there are before a brace. */
static uint32_t take_hex(struct parser *p, int digits)
{
    const bool braced = digits > 2 && take(p, "{");
    uint32_t cp = 0;
    int n = 0;

    for (; (braced || n < digits) && hex_digit(peek(p)) >= 0 && n < 8; n++) {
        cp = cp * 16 + (uint32_t)hex_digit((unsigned char)p->s[p->at++]);
    }
    if (n == 0 || (!braced && n < digits) || (braced && !take(p, "}")) || cp > 0x10FFFF) {
        refuse(p, "a malformed hexadecimal escape");
    }
    return cp;
}

/* \uD83D\uDE00 is one character. */
static uint32_t take_unicode(struct parser *p)
{
    const uint32_t high = take_hex(p, 4);

    if (high < 0xD800 || high > 0xDFFF) {
        return high;
    }
    const uint32_t low = high < 0xDC00 && take(p, "\\u") ? take_hex(p, 4) : 0;
    if (low < 0xDC00 || low > 0xDFFF) {
        refuse(p, "half a surrogate pair");
        return 0;
    }
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
}

/* The character of an escape, behind the backslash. */
static uint32_t take_escape(struct parser *p)
{
    static const char from[] = "tnrfv", to[] = "\t\n\r\f\v";
    const int c = peek(p);
    const char *name = c > 0 ? strchr(from, c) : NULL;
    uint32_t cp = 0;

    if (c < 0) {
        refuse(p, "a backslash without a character");
        return 0;
    }
    if (c >= 0x80) {
        p->at += (size_t)utf8_decode(p->s + p->at, p->n - p->at, &cp);
        return cp;
    }
    p->at++;
    if (name) {
        return (unsigned char)to[name - from];
    }
    if (c == 'x') {
        return take_hex(p, 2);
    }
    if (c == 'u') {
        return take_unicode(p);
    }
    if (c == '0' && !(peek(p) >= '0' && peek(p) <= '9')) {
        return 0;
    }
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
        p->at--;
        refuse(p, c >= '1' && c <= '9' ? "a reference back"
                : c == 'b' || c == 'B' ? "a word boundary" : "an escape that is not supported");
    }
    return (uint32_t)c;
}

static uint32_t take_char(struct parser *p)
{
    uint32_t cp = 0;

    p->at += (size_t)utf8_decode(p->s + p->at, p->n - p->at, &cp);
    return cp;
}

/* Many readers of JSON take no character 0, so answers have it only where it is asked for. */
static void leave_out_nul(const struct parser *p, struct charset *c)
{
    if (p->o->json) {
        charset_add(c, 0, 0);
    }
}

/* One member of a bracket: a class (true), or a character in *cp. */
static bool take_member(struct parser *p, struct charset *c, uint32_t *cp)
{
    if (!take(p, "\\")) {
        *cp = take_char(p);
        return false;
    }
    const int letter = peek(p);
    if (letter == 'p' || letter == 'P') {
        p->at++;
        add_property(p, c, letter == 'P');
        return true;
    }
    if (letter > 0 && add_class(c, letter)) {
        p->at++;
        return true;
    }
    if (letter == 'b') {
        p->at++;
        *cp = '\b';
    } else if (letter == '-') {
        p->at++;
        *cp = '-';
    } else {
        *cp = take_escape(p);
    }
    return false;
}

/* Characters that would end lines; a dot leaves them out. */
static void add_line_ends(struct charset *c)
{
    charset_add(c, '\n', '\n');
    charset_add(c, '\r', '\r');
    charset_add(c, 0x2028, 0x2029);
}

/* Behind "[".  An inverted bracket leaves out what any dialect has in its classes. */
static struct part take_bracket(struct parser *p)
{
    const bool inverted = take(p, "^");
    struct charset c = {0};

    if (peek(p) == ']') {
        refuse(p, "a bracket without characters");
    }
    if (inverted) {
        leave_out_nul(p, &c);
    }
    while (!p->failed && peek(p) != ']') {
        uint32_t first = 0, last;
        if (p->at == p->n) {
            refuse(p, "a bracket without its end");
            break;
        }
        const int next = p->at + 1 < p->n ? p->s[p->at + 1] : 0;
        if (peek(p) == '\\' && ++p->n_classes > CLASSES_MAX) {
            refuse(p, "too many escapes in brackets");
            break;
        }
        if (inverted && peek(p) == '\\' && next == 's') {
            add_wide_space(&c);
            p->at += 2;
            continue;
        }
        if (inverted && peek(p) == '\\' && (next == 'd' || next == 'w')) {
            charset_add_class(&c, next == 'd' ? UC_NUMBER : UC_NUMBER | UC_LETTER | UC_MARK);
            charset_add(&c, '_', next == 'w' ? '_' : 0);
            p->at += 2;
            continue;
        }
        if (inverted && peek(p) == '\\' && (next == 'D' || next == 'W' || next == 'S')) {
            refuse(p, "an inverted class inside an inverted bracket");
            break;
        }
        if (take_member(p, &c, &first)) {
            continue;
        }
        last = first;
        if (peek(p) == '-' && p->at + 1 < p->n && p->s[p->at + 1] != ']') {
            p->at++;
            if (take_member(p, &c, &last)) {
                refuse(p, "a range that ends in a class");
            } else if (last < first) {
                refuse(p, "a range that ends before it begins");
            }
        }
        charset_add(&c, first, last);
    }
    p->at += !p->failed;
    charset_close(&c);
    if (inverted) {
        charset_invert(&c);
    }
    const struct part part = one_char(p->failed ? GRAM_NONE : chars(p, &c));
    charset_deinit(&c);
    return part;
}

/* \d and its like, "." for the dot, "*" for any character; made once. */
static gram_expr class_of(struct parser *p, int letter)
{
    if (p->class_expr[letter] == GRAM_NONE) {
        struct charset c = {0};
        if (letter == '.' || letter == '*') {
            leave_out_nul(p, &c);
            if (letter == '.') {
                add_line_ends(&c);
            }
            charset_close(&c);
            charset_invert(&c);
        } else {
            add_class(&c, letter);
        }
        p->class_expr[letter] = chars(p, &c);
        charset_deinit(&c);
    }
    return p->class_expr[letter];
}

static struct part any_text(struct parser *p)
{
    const gram_expr unit = class_of(p, '*');

    return (struct part){ gram_repeat(p->g, unit, 0, GRAM_INF), 0, GRAM_INF, unit };
}

static struct part literal(struct parser *p, uint32_t cp)
{
    struct charset c = {0};

    charset_add(&c, cp, cp);
    const struct part part = one_char(chars(p, &c));
    charset_deinit(&c);
    return part;
}

/* ---- structure ------------------------------------------------------------------------ */

static struct part take_alternatives(struct parser *p);

/* Behind "(". */
static struct part take_group(struct parser *p)
{
    struct part part = { GRAM_NOTHING, 0, 0, GRAM_NONE };

    if (take(p, "?=") || take(p, "?!") || take(p, "?<=") || take(p, "?<!")) {
        refuse(p, "an expression that looks around");
    } else if (take(p, "?<")) {
        while (peek(p) >= 0 && peek(p) != '>') {
            p->at++;
        }
        p->at += peek(p) == '>';
    } else if (peek(p) == '?' && !take(p, "?:")) {
        refuse(p, "a group with flags");
    }
    if (!p->failed && ++p->depth > DEPTH_MAX) {
        refuse(p, "groups nested too deeply");
    }
    if (!p->failed) {
        part = take_alternatives(p);
        p->depth--;
        if (!p->failed && !take(p, ")")) {
            refuse(p, "a group without its end");
        }
    }
    return part;
}

static struct part take_atom(struct parser *p)
{
    const int c = peek(p);

    if (take(p, "(")) {
        return take_group(p);
    }
    if (take(p, "[")) {
        return take_bracket(p);
    }
    if (take(p, ".")) {
        return one_char(class_of(p, '.'));
    }
    if (c == '^' || c == '$') {
        refuse(p, "an anchor that is neither at the beginning nor at the end");
    } else if (c == '*' || c == '+' || c == '?' || c == '{') {
        refuse(p, "a repetition of nothing");
    } else if (take(p, "\\")) {
        const int letter = peek(p);
        struct charset set = {0};
        if (letter == 'p' || letter == 'P') {
            p->at++;
            add_property(p, &set, letter == 'P');
            const struct part part = one_char(p->failed ? GRAM_NONE : chars(p, &set));
            charset_deinit(&set);
            return part;
        }
        if (letter > 0 && strchr("dwsDWS", letter)) {
            p->at++;
            return one_char(class_of(p, letter));
        }
        return literal(p, take_escape(p));
    }
    return literal(p, p->failed ? 0 : take_char(p));
}

static bool take_number(struct parser *p, uint32_t *out)
{
    uint64_t v = 0;
    const size_t begin = p->at;

    while (peek(p) >= '0' && peek(p) <= '9') {
        v = v * 10 + (uint64_t)(p->s[p->at++] - '0');
        v = v < GRAM_INF ? v : GRAM_INF - 1;
    }
    *out = (uint32_t)v;
    return p->at > begin;
}

/* The bounds of "*", "+", "?" or "{...}"; false where none of them follows. */
static bool take_bounds(struct parser *p, uint32_t *min, uint32_t *max)
{
    *min = 0;
    *max = GRAM_INF;
    if (take(p, "*")) {
        return true;
    }
    if (take(p, "+")) {
        *min = 1;
        return true;
    }
    if (take(p, "?")) {
        *max = 1;
        return true;
    }
    if (!take(p, "{")) {
        return false;
    }
    bool ok = take_number(p, min);
    *max = *min;
    if (ok && take(p, ",") && !take_number(p, max)) {
        *max = GRAM_INF;
    }
    if (!ok || !take(p, "}") || *min > *max) {
        refuse(p, "a malformed repetition");
    }
    return true;
}

static struct part take_repeated(struct parser *p)
{
    struct part part = take_atom(p);
    uint32_t min, max;

    while (!p->failed && take_bounds(p, &min, &max)) {
        const bool unit = part.unit != GRAM_NONE && part.min == 1 && part.max == 1;
        take(p, "?");  /* a lazy one matches the same texts */
        part.e = gram_repeat(p->g, part.e, min, max);
        part.min = mul_sat(part.min, min);
        part.max = max == 0 ? 0 : mul_sat(part.max, max);
        part.unit = unit ? part.unit : GRAM_NONE;
        const int c = peek(p);
        if (!p->failed && (c == '*' || c == '+' || c == '?' || c == '{')) {
            refuse(p, "a repetition of a repetition");
        }
    }
    return part;
}

struct sequence {
    struct part *part;
    size_t n, cap;
    bool begins, ends;  /* anchored */
};

static void add_part(struct parser *p, struct sequence *s, struct part part)
{
    if (s->n == s->cap) {
        const size_t cap = s->cap ? s->cap * 2 : 8;
        struct part *bigger = mem_realloc(s->part, cap, sizeof *bigger);
        if (!bigger) {
            p->g->no_memory = true;
            return;
        }
        s->part = bigger;
        s->cap = cap;
    }
    s->part[s->n++] = part;
}

/* One alternative; anchors only where it is one of the whole expression. */
static void take_sequence(struct parser *p, struct sequence *s)
{
    const bool whole = p->depth == 0;

    while (whole && take(p, "^")) {
        s->begins = true;
    }
    while (!p->failed && !gram_failed(p->g) && p->at < p->n && peek(p) != '|' &&
           !(peek(p) == ')' && !whole)) {
        if (whole && take(p, "$")) {
            s->ends = true;
            if (p->at < p->n && peek(p) != '|' && peek(p) != '$') {
                refuse(p, "text behind the end");
            }
        } else if (peek(p) == ')') {
            refuse(p, "a group that was not opened");
        } else {
            add_part(p, s, take_repeated(p));
        }
    }
}

static struct part join(struct parser *p, const struct sequence *s)
{
    struct part out = { GRAM_NOTHING, 0, 0, GRAM_NONE };
    struct gram_list list = {0};

    if (s->n == 1) {
        return s->part[0];
    }
    for (size_t i = 0; i < s->n; i++) {
        gram_list_add(p->g, &list, s->part[i].e);
        out.min = add_sat(out.min, s->part[i].min);
        out.max = add_sat(out.max, s->part[i].max);
    }
    out.e = gram_seq(p->g, list.e, list.n);
    gram_list_deinit(&list);
    return out;
}

/* Brings the length of an alternative into the bounds that were asked for.  This is exact where
 * its own length is, or where only one part varies, which is one character repeated. */
static void bound_length(struct parser *p, struct sequence *s)
{
    const uint32_t min = p->o->min, max = p->o->max;
    uint32_t least = 0, most = 0, varying = 0;
    struct part *vary = NULL;

    for (size_t i = 0; i < s->n; i++) {
        least = add_sat(least, s->part[i].min);
        most = add_sat(most, s->part[i].max);
        if (s->part[i].min != s->part[i].max) {
            vary = &s->part[i];
            varying++;
        }
    }
    if (least >= min && most <= max) {
        return;
    }
    if (least > max || most < min) {
        s->n = 0;
        add_part(p, s, (struct part){ GRAM_NONE, 0, 0, GRAM_NONE });
        return;
    }
    if (varying != 1 || vary->unit == GRAM_NONE) {
        refuse(p, "a pattern that is too complicated to be combined with minLength or maxLength");
        return;
    }
    const uint32_t fixed = least - vary->min;
    vary->min = min > fixed && min - fixed > vary->min ? min - fixed : vary->min;
    if (max != GRAM_INF && max - fixed < vary->max) {
        vary->max = max - fixed;
    }
    vary->e = gram_repeat(p->g, vary->unit, vary->min, vary->max);
}

static struct part take_alternatives(struct parser *p)
{
    const bool whole = p->depth == 0;
    struct part out = { GRAM_NONE, GRAM_INF, 0, GRAM_NONE };
    struct gram_list list = {0};

    do {
        struct sequence s = {0};
        struct part one;
        if (whole && p->o->search && peek(p) != '^') {
            add_part(p, &s, any_text(p));
        }
        take_sequence(p, &s);
        if (whole && p->o->search && !s.ends) {
            add_part(p, &s, any_text(p));
        }
        if (whole && !p->failed) {
            bound_length(p, &s);
        }
        one = p->failed ? out : join(p, &s);
        mem_free(s.part);
        gram_list_add(p->g, &list, one.e);
        out.min = one.min < out.min ? one.min : out.min;
        out.max = one.max > out.max ? one.max : out.max;
        out.unit = list.n == 1 ? one.unit : GRAM_NONE;
    } while (!p->failed && !gram_failed(p->g) && take(p, "|"));
    /* Alternatives of one character each are one character. */
    out.e = gram_alt(p->g, list.e, list.n);
    if (list.n > 1 && out.min == 1 && out.max == 1) {
        out.unit = out.e;
    }
    gram_list_deinit(&list);
    return out;
}

bool regex_parse(struct grammar *g, const char *text, size_t n, const struct regex_opts *o,
                 gram_expr *out, slm_error *err)
{
    struct parser p = { .g = g, .s = text, .n = n, .o = o, .err = err };

    if (!utf8_valid(text, n)) {
        return slm_fail(err, SLM_E_FORMAT, "the regular expression is not UTF-8");
    }
    *out = take_alternatives(&p).e;
    if (gram_failed(g)) {
        return gram_error(g, err);
    }
    return !p.failed;
}

bool guide_regex(struct grammar *g, const char *text, size_t n, gram_expr *root, slm_error *err)
{
    static const struct regex_opts whole = { .max = GRAM_INF };

    return regex_parse(g, text, n, &whole, root, err);
}

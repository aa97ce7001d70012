/* ebnf.c - grammars as text: rules "name ::= expression" of literals, brackets, groups,
 * repetitions and alternatives, the first rule wanted being "root". */
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "guide/charset.h"
#include "guide/guide.h"

/* Limits for the stack and for a name. */
enum { DEPTH_MAX = 200, NAME_MAX_BYTES = 120 };

struct rule {
    const char *name;
    size_t len;
    gram_expr e;
    size_t used_at;  /* where it was used first */
};

struct parser {
    struct grammar *g;
    const char *s;
    size_t n, at;
    struct rule *rule;   /* in the order of their first use */
    size_t n_rules, rules_cap;
    uint32_t *slot;      /* hash table: index of a rule + 1, 0: free */
    size_t n_slots;
    int depth;
    slm_error *err;
    bool failed;
};

static void refuse_at(struct parser *p, size_t at, const char *what)
{
    size_t line = 1;

    for (size_t i = 0; i < at && i < p->n; i++) {
        line += p->s[i] == '\n';
    }
    if (!p->failed) {
        slm_fail_at(p->err, SLM_E_FORMAT, (int64_t)line, "the grammar, line %zu: %s", line, what);
        p->failed = true;
    }
}

static void refuse(struct parser *p, const char *what)
{
    refuse_at(p, p->at, what);
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

static bool is_name_char(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '-' || c == '_' || c == '.';
}

/* White space and comments; newlines only where they do not end a rule. */
static void skip_space(struct parser *p)
{
    for (;;) {
        const int c = peek(p);
        if (c == '#') {
            while (peek(p) >= 0 && peek(p) != '\n') {
                p->at++;
            }
        } else if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
            p->at++;
        } else {
            return;
        }
    }
}

/* Whether a definition begins here: a name and "::=". */
static bool at_definition(const struct parser *p)
{
    struct parser look = *p;
    const size_t begin = look.at;

    while (is_name_char(peek(&look)) && look.at - begin <= NAME_MAX_BYTES) {
        look.at++;
    }
    if (look.at == begin) {
        return false;
    }
    while (peek(&look) == ' ' || peek(&look) == '\t') {
        look.at++;
    }
    return take(&look, "::=");
}

/* ---- rules -------------------------------------------------------------------------- */

static uint32_t *find_slot(struct parser *p, const char *name, size_t len)
{
    uint64_t h = 14695981039346656037u;

    for (size_t i = 0; i < len; i++) {
        h = (h ^ (unsigned char)name[i]) * 1099511628211u;
    }
    for (size_t i = h & (p->n_slots - 1);; i = (i + 1) & (p->n_slots - 1)) {
        const struct rule *r = p->slot[i] ? &p->rule[p->slot[i] - 1] : NULL;
        if (!r || (r->len == len && memcmp(r->name, name, len) == 0)) {
            return &p->slot[i];
        }
    }
}

/* Twice as many slots as rules, and room for one more of both. */
static bool reserve_rule(struct parser *p)
{
    if (p->n_rules < p->rules_cap) {
        return true;
    }
    const size_t cap = p->rules_cap ? p->rules_cap * 2 : 64;
    struct rule *rule = mem_realloc(p->rule, cap, sizeof *rule);
    p->rule = rule ? rule : p->rule;
    uint32_t *slot = rule ? mem_zalloc(cap * 2, sizeof *slot) : NULL;
    if (!slot) {
        p->g->no_memory = true;
        return false;
    }
    mem_free(p->slot);
    p->slot = slot;
    p->n_slots = cap * 2;
    p->rules_cap = cap;
    for (size_t i = 0; i < p->n_rules; i++) {
        *find_slot(p, p->rule[i].name, p->rule[i].len) = (uint32_t)i + 1;
    }
    return true;
}

/* The rule of the name that stands here, known from now on. */
static gram_expr take_rule(struct parser *p)
{
    const char *name = p->s + p->at;
    const size_t begin = p->at;
    char copy[NAME_MAX_BYTES + 1];

    while (is_name_char(peek(p))) {
        p->at++;
    }
    const size_t len = p->at - begin;
    if (len > NAME_MAX_BYTES) {
        refuse(p, "the name of a rule is too long");
    }
    if (p->failed || gram_failed(p->g) || !reserve_rule(p)) {
        return GRAM_NONE;
    }
    uint32_t *slot = find_slot(p, name, len);
    if (*slot == 0) {
        memcpy(copy, name, len);
        copy[len] = '\0';
        p->rule[p->n_rules] = (struct rule){ name, len, gram_rule(p->g, copy), begin };
        *slot = (uint32_t)++p->n_rules;
    }
    return p->rule[*slot - 1].e;
}

/* ---- literals and brackets ------------------------------------------------------------- */

static int hex_digit(int c)
{
    return c >= '0' && c <= '9' ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static uint32_t take_hex(struct parser *p, int digits)
{
    uint32_t cp = 0;

    for (int i = 0; i < digits; i++) {
        const int d = hex_digit(peek(p));
        if (d < 0) {
            refuse(p, "a hexadecimal escape is too short");
            return 0;
        }
        cp = cp * 16 + (uint32_t)d;
        p->at++;
    }
    if (cp > 0x10FFFF || (cp >= 0xD800 && cp <= 0xDFFF)) {
        refuse(p, "an escape is no character");
        return 0;
    }
    return cp;
}

/* A character of a literal or a bracket, escaped or not. */
static uint32_t take_char(struct parser *p)
{
    static const char from[] = "nrt", to[] = "\n\r\t";
    uint32_t cp = 0;

    if (!take(p, "\\")) {
        p->at += (size_t)utf8_decode(p->s + p->at, p->n - p->at, &cp);
        return cp;
    }
    const int c = peek(p);
    const char *name = c > 0 ? strchr(from, c) : NULL;
    if (c < 0 || !strchr("nrtxuU\\\"[]-^/'", c)) {
        refuse(p, "an escape that is not one of \\n \\r \\t \\xHH \\uHHHH \\UHHHHHHHH \\\\ \\\" "
                  "\\[ \\] \\- \\^ \\/ \\'");
        return 0;
    }
    p->at++;
    if (name) {
        return (unsigned char)to[name - from];
    }
    return c == 'x' ? take_hex(p, 2) : c == 'u' ? take_hex(p, 4)
         : c == 'U' ? take_hex(p, 8) : (uint32_t)c;
}

/* Behind the opening quote. */
static gram_expr take_literal(struct parser *p)
{
    struct buf text;

    buf_init(&text, 0);
    while (!p->failed && !take(p, "\"")) {
        char utf8[4];
        if (p->at == p->n || peek(p) == '\n') {
            refuse(p, "a literal without its end");
            break;
        }
        buf_add(&text, utf8, (size_t)utf8_encode(take_char(p), utf8));
    }
    p->g->no_memory |= text.failed;
    const gram_expr e = gram_lit(p->g, buf_str(&text), text.len);
    buf_deinit(&text);
    return e;
}

/* Behind "[". */
static gram_expr take_bracket(struct parser *p)
{
    const bool inverted = take(p, "^");
    struct charset c = {0};
    gram_expr e = GRAM_NONE;

    while (!p->failed && !take(p, "]")) {
        if (p->at == p->n) {
            refuse(p, "a bracket without its end");
            break;
        }
        const uint32_t first = take_char(p);
        uint32_t last = first;
        if (peek(p) == '-' && p->at + 1 < p->n && p->s[p->at + 1] != ']') {
            p->at++;
            last = take_char(p);
        }
        if (last < first) {
            refuse(p, "a range that ends before it begins");
        }
        charset_add(&c, first, last);
    }
    charset_close(&c);
    if (inverted) {
        charset_invert(&c);
    }
    if (!p->failed) {
        e = charset_expr(p->g, &c);
    }
    charset_deinit(&c);
    return e;
}

/* ---- expressions ------------------------------------------------------------------------ */

static gram_expr take_alternatives(struct parser *p);

static gram_expr take_group(struct parser *p)
{
    gram_expr e = GRAM_NONE;

    if (++p->depth > DEPTH_MAX) {
        refuse(p, "groups are nested too deeply");
        return e;
    }
    e = take_alternatives(p);
    p->depth--;
    if (!p->failed && !take(p, ")")) {
        refuse(p, "a group without its end");
    }
    return e;
}

static gram_expr any_char(struct parser *p)
{
    struct charset c = {0};

    charset_add(&c, 0, 0x10FFFF);
    charset_close(&c);
    const gram_expr e = charset_expr(p->g, &c);
    charset_deinit(&c);
    return e;
}

/* A number of a repetition, at most GRAM_INF - 1; false where there is none. */
static bool take_number(struct parser *p, uint32_t *out)
{
    const size_t begin = p->at;
    uint64_t v = 0;

    while (peek(p) >= '0' && peek(p) <= '9') {
        v = v * 10 + (uint64_t)(p->s[p->at++] - '0');
        v = v < GRAM_INF ? v : GRAM_INF - 1;
    }
    *out = (uint32_t)v;
    return p->at > begin;
}

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
    skip_space(p);
    const bool lower = take_number(p, min);
    *max = lower ? *min : GRAM_INF;
    skip_space(p);
    if (take(p, ",")) {
        skip_space(p);
        if (!take_number(p, max)) {
            *max = GRAM_INF;
        }
        skip_space(p);
    } else if (!lower) {
        refuse(p, "a repetition without bounds");
    }
    if (!take(p, "}") || *min > *max) {
        refuse(p, "a malformed repetition");
    }
    return true;
}

/* Whether another element of a sequence begins here. */
static bool at_element(const struct parser *p)
{
    const int c = peek(p);

    return c == '"' || c == '[' || c == '(' || c == '.' || (is_name_char(c) && !at_definition(p));
}

static gram_expr take_element(struct parser *p)
{
    gram_expr e;
    uint32_t min, max;

    if (take(p, "\"")) {
        e = take_literal(p);
    } else if (take(p, "[")) {
        e = take_bracket(p);
    } else if (take(p, "(")) {
        e = take_group(p);
    } else if (take(p, ".")) {
        e = any_char(p);
    } else {
        e = take_rule(p);
    }
    while (!p->failed && take_bounds(p, &min, &max)) {
        e = gram_repeat(p->g, e, min, max);
    }
    return e;
}

static gram_expr take_sequence(struct parser *p)
{
    struct gram_list list = {0};

    skip_space(p);
    while (!p->failed && !gram_failed(p->g) && at_element(p)) {
        gram_list_add(p->g, &list, take_element(p));
        skip_space(p);
    }
    const gram_expr e = gram_seq(p->g, list.e, list.n);
    gram_list_deinit(&list);
    return e;
}

static gram_expr take_alternatives(struct parser *p)
{
    struct gram_list list = {0};

    do {
        gram_list_add(p->g, &list, take_sequence(p));
    } while (!p->failed && !gram_failed(p->g) && take(p, "|"));
    const gram_expr e = gram_alt(p->g, list.e, list.n);
    gram_list_deinit(&list);
    return e;
}

static void take_definition(struct parser *p)
{
    const gram_expr rule = take_rule(p);

    if (p->failed || gram_failed(p->g)) {
        return;
    }
    if (gram_defined(p->g, rule)) {
        refuse(p, "a rule is defined twice");
        return;
    }
    skip_space(p);
    p->at += strlen("::=");
    gram_define(p->g, rule, take_alternatives(p));
}

/* All rules that are used must be there. */
static void check_rules(struct parser *p, gram_expr *root)
{
    for (size_t i = 0; i < p->n_rules && !p->failed; i++) {
        const struct rule *r = &p->rule[i];
        if (!gram_defined(p->g, r->e)) {
            char what[NAME_MAX_BYTES + 40];
            snprintf(what, sizeof what, "rule %.*s is used but not defined", (int)r->len, r->name);
            refuse_at(p, r->used_at, what);
        }
        if (r->len == 4 && memcmp(r->name, "root", 4) == 0) {
            *root = r->e;
        }
    }
    if (!p->failed && *root == GRAM_NONE) {
        refuse(p, "there is no rule root");
    }
}

bool guide_gbnf(struct grammar *g, const char *text, size_t n, gram_expr *root, slm_error *err)
{
    struct parser p = { .g = g, .s = text, .n = n, .err = err };

    *root = GRAM_NONE;
    if (!utf8_valid(text, n)) {
        return slm_fail(err, SLM_E_FORMAT, "the grammar is not UTF-8");
    }
    skip_space(&p);
    while (!p.failed && !gram_failed(g) && p.at < p.n) {
        if (at_definition(&p)) {
            take_definition(&p);
        } else {
            refuse(&p, "expected a rule: name ::= expression");
        }
        skip_space(&p);
    }
    if (!p.failed && !gram_failed(g)) {
        check_rules(&p, root);
    }
    mem_free(p.rule);
    mem_free(p.slot);
    return !p.failed && (!gram_failed(g) || gram_error(g, err));
}

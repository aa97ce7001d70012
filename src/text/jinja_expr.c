/* jinja_expr.c - the expression half of the parser.
 *
 * One function per level of precedence, lowest first: if-else, or, and, not, comparisons,
 * + and -, ~, * / // %, **, signs, then subscripts, calls, filters and tests. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/utf8.h"
#include "text/jinja_ast.h"
#include "text/jinja_run.h"

static struct node *parse_unary(struct parser *p, bool with_filter);
static struct node *parse_or(struct parser *p);

static struct node *unary_node(struct parser *p, enum node_kind kind, int line, struct node *a)
{
    struct node *n = node_new(p, kind, line);

    n->a = a;
    return node_done(p, n);
}

static struct node *binary_node(struct parser *p, enum node_kind kind, int line, struct node *a,
                                struct node *b)
{
    struct node *n = node_new(p, kind, line);

    n->a = a;
    n->b = b;
    return node_done(p, n);
}

static struct node *const_node(struct parser *p, int line, struct val v)
{
    struct node *n = node_new(p, N_CONST, line);

    n->value = v;
    return n;
}

/* ---- literals ----------------------------------------------------------------------- */

struct literal {
    struct parser *p;
    char *s;
    size_t n;
    int line;
};

static void put_cp(struct literal *l, uint32_t cp)
{
    if (cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000)) {
        parse_fail(l->p, l->line, "string literal has a character that is not valid Unicode");
        return;
    }
    l->n += (size_t)utf8_encode(cp, l->s + l->n);
}

/* \x, \u, \U with exactly `digits` hexadecimal digits; gives the bytes consumed. */
static size_t put_hex(struct literal *l, const char *s, size_t n, size_t digits)
{
    uint32_t cp = 0;

    for (size_t i = 0; i < digits; i++) {
        char c = i < n ? s[i] : '\0';
        int v = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f'
                ? (c | 32) - 'a' + 10 : -1;

        if (v < 0) {
            parse_fail(l->p, l->line, "truncated escape of %d hexadecimal digits in a string",
                       (int)digits);
            return n;
        }
        cp = cp << 4 | (uint32_t)v;
    }
    put_cp(l, cp);
    return digits;
}

/* A backslash before a character outside ASCII: Python turns the character into an escape
 * first, so the backslash quotes the backslash of that escape. */
static size_t put_quoted(struct literal *l, const char *s, size_t n)
{
    uint32_t cp;
    int len = utf8_decode(s, n, &cp);
    const char *fmt = cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x";

    l->n += (size_t)sprintf(l->s + l->n, fmt, (unsigned)cp);
    return (size_t)len;
}

/* The escape behind a backslash; gives the bytes consumed. */
static size_t put_escape(struct literal *l, const char *s, size_t n)
{
    static const char from[] = "ntr\\'\"abfv", to[] = "\n\t\r\\'\"\a\b\f\v";
    const char *at = memchr(from, s[0], sizeof from - 1);
    uint32_t cp = 0;
    size_t i = 0;

    if (at != NULL) {
        l->s[l->n++] = to[at - from];
        return 1;
    }
    if (s[0] == '\n') {
        return 1;
    }
    if (s[0] == 'x' || s[0] == 'u' || s[0] == 'U') {
        return 1 + put_hex(l, s + 1, n - 1, s[0] == 'x' ? 2 : s[0] == 'u' ? 4 : 8);
    }
    if (s[0] == 'N') {
        parse_fail(l->p, l->line, "character names (\\N{...}) in strings are not supported");
        return n;
    }
    if ((unsigned char)s[0] >= 0x80) {
        return put_quoted(l, s, n);
    }
    while (i < 3 && i < n && s[i] >= '0' && s[i] <= '7') {
        cp = cp * 8 + (uint32_t)(s[i++] - '0');
    }
    if (i > 0) {
        put_cp(l, cp);
        return i;
    }
    l->s[l->n++] = '\\';
    l->s[l->n++] = s[0];
    return 1;
}

/* Adjacent string tokens as one constant. */
static struct node *parse_string(struct parser *p)
{
    const struct token *first = p->t;
    struct literal l = { .p = p, .line = first->line };
    size_t room = 1;
    struct str *str;

    for (const struct token *t = first; t->kind == T_STRING; t++) {
        room += 3 * t->n;
    }
    l.s = arena_alloc(&p->j->arena, room);
    str = arena_zalloc(&p->j->arena, sizeof *str);
    if (l.s == NULL || str == NULL) {
        parse_fail(p, first->line, "not enough memory for the template");
        return NULL;
    }
    for (; p->t->kind == T_STRING && !p->failed; p->t++) {
        const char *s = p->t->s;

        for (size_t i = 0; i < p->t->n;) {
            if (s[i] == '\\' && i + 1 < p->t->n) {
                i += 1 + put_escape(&l, s + i + 1, p->t->n - i - 1);
            } else {
                l.s[l.n++] = s[i++];
            }
        }
    }
    *str = (struct str){ .s = l.s, .n = l.n, .n_chars = utf8_count(l.s, l.n),
                          .hash = hash_bytes(HASH_INIT, l.s, l.n) | 1 };
    return const_node(p, first->line, v_str(str));
}

static struct node *parse_integer(struct parser *p)
{
    const struct token *t = p->t++;
    char *digits = arena_alloc(&p->j->arena, t->n + 1);
    size_t n = 0;
    int base = 10;
    struct node *node;
    bool big = false;
    int64_t v = 0;

    if (digits == NULL) {
        parse_fail(p, t->line, "not enough memory for the template");
        return NULL;
    }
    for (size_t i = 0; i < t->n; i++) {
        if (i == 1 && t->s[0] == '0' && (t->s[1] | 32) > '9') {
            base = (t->s[1] | 32) == 'x' ? 16 : (t->s[1] | 32) == 'o' ? 8 : 2;
            n = 0;
        } else if (t->s[i] != '_') {
            digits[n++] = t->s[i];
        }
    }
    for (size_t i = 0; i < n && !big; i++) {
        int d = digits[i] <= '9' ? digits[i] - '0' : (digits[i] | 32) - 'a' + 10;

        big = __builtin_mul_overflow(v, (int64_t)base, &v) || __builtin_add_overflow(v, d, &v);
    }
    if (!big) {
        return const_node(p, t->line, v_int(v));
    }
    if (base == 10 && n > 4300) {
        parse_fail(p, t->line, "integer literal with more than 4300 digits");
        return NULL;
    }
    node = node_new(p, N_BIGINT, t->line);
    node->name = arena_zalloc(&p->j->arena, sizeof *node->name);
    if (node->name == NULL) {
        parse_fail(p, t->line, "not enough memory for the template");
        return NULL;
    }
    *node->name = (struct str){ .s = digits, .n = n, .n_chars = n };
    node->op = (uint8_t)base;
    return node;
}

static struct node *parse_float(struct parser *p)
{
    const struct token *t = p->t++;
    char *s = arena_alloc(&p->j->arena, t->n + 1);
    size_t n = 0;

    if (s == NULL) {
        parse_fail(p, t->line, "not enough memory for the template");
        return NULL;
    }
    for (size_t i = 0; i < t->n; i++) {
        if (t->s[i] != '_') {
            s[n++] = t->s[i];
        }
    }
    return const_node(p, t->line, v_float(num_strtod(s, n)));
}

static struct node *parse_list(struct parser *p)
{
    struct node *n = node_new(p, N_LIST, p->t->line);
    struct nodes items = { 0 };

    p->t++;
    while (p->t->kind != T_RBRACKET && !p->failed) {
        if (items.n > 0 && (!parse_expect(p, T_COMMA) || p->t->kind == T_RBRACKET)) {
            break;
        }
        nodes_push(p, &items, parse_expression(p, true));
    }
    parse_expect(p, T_RBRACKET);
    n->list = items.v;
    n->n = items.n;
    return node_done(p, n);
}

static struct node *parse_dict(struct parser *p)
{
    struct node *n = node_new(p, N_DICT, p->t->line);
    struct nodes items = { 0 };

    p->t++;
    while (p->t->kind != T_RBRACE && !p->failed) {
        if (items.n > 0 && (!parse_expect(p, T_COMMA) || p->t->kind == T_RBRACE)) {
            break;
        }
        nodes_push(p, &items, parse_expression(p, true));
        parse_expect(p, T_COLON);
        nodes_push(p, &items, parse_expression(p, true));
    }
    parse_expect(p, T_RBRACE);
    n->list = items.v;
    n->n = items.n;
    return node_done(p, n);
}

static struct node *parse_name(struct parser *p)
{
    static const struct { const char *name; enum val_kind kind; bool b; } consts[] = {
        { "true", V_BOOL, true }, { "True", V_BOOL, true }, { "false", V_BOOL, false },
        { "False", V_BOOL, false }, { "none", V_NONE, false }, { "None", V_NONE, false },
    };
    const struct token *t = p->t++;
    struct node *n;

    for (size_t i = 0; i < sizeof consts / sizeof consts[0]; i++) {
        if (token_is(t, consts[i].name)) {
            return const_node(p, t->line, consts[i].kind == V_NONE ? v_none()
                                                                   : v_bool(consts[i].b));
        }
    }
    n = node_new(p, N_NAME, t->line);
    n->name = parse_intern(p, t->s, t->n);
    p->macro_uses |= n->name == p->j->name_caller ? MACRO_CALLER
                     : n->name == p->j->name_kwargs ? MACRO_KWARGS
                     : n->name == p->j->name_varargs ? MACRO_VARARGS : 0;
    return n;
}

static struct node *parse_primary(struct parser *p)
{
    char text[80];
    struct node *n;

    switch (p->t->kind) {
    case T_NAME:
        return parse_name(p);
    case T_STRING:
        return parse_string(p);
    case T_INT:
        return parse_integer(p);
    case T_FLOAT:
        return parse_float(p);
    case T_LPAREN:
        p->t++;
        n = parse_tuple(p, true, true);
        parse_expect(p, T_RPAREN);
        return n;
    case T_LBRACKET:
        return parse_list(p);
    case T_LBRACE:
        return parse_dict(p);
    default:
        parse_fail(p, p->t->line, "unexpected '%s'", token_text(p->t, text));
        return NULL;
    }
}

/* ---- subscripts, calls, filters, tests ---------------------------------------------- */

/* An expression, or a slice of up to three. */
static struct node *parse_subscribed(struct parser *p)
{
    struct node *part[3] = { NULL, NULL, NULL };
    int line = p->t->line;
    struct node *n;

    if (p->t->kind != T_COLON) {
        part[0] = parse_expression(p, true);
        if (p->t->kind != T_COLON) {
            return part[0];
        }
    }
    for (int i = 1; i < 3 && !p->failed; i++) {
        if (!parse_skip(p, T_COLON)) {
            break;
        }
        if (p->t->kind != T_COLON && p->t->kind != T_RBRACKET && p->t->kind != T_COMMA) {
            part[i] = parse_expression(p, true);
        }
    }
    n = node_new(p, N_SLICE, line);
    n->a = part[0];
    n->b = part[1];
    n->c = part[2];
    return node_done(p, n);
}

static struct node *parse_dot(struct parser *p, struct node *of)
{
    const struct token *t = ++p->t;
    struct node *n;

    if (t->kind == T_NAME) {
        n = node_new(p, N_GETATTR, t->line);
        n->a = of;
        n->name = parse_intern(p, t->s, t->n);
        p->t++;
        return node_done(p, n);
    }
    if (t->kind != T_INT) {
        parse_fail(p, t->line, "expected name or number");
        return NULL;
    }
    return binary_node(p, N_GETITEM, t->line, of, parse_integer(p));
}

static struct node *parse_subscript(struct parser *p, struct node *of)
{
    struct nodes items = { 0 };
    int line = p->t->line;
    struct node *tuple;

    p->t++;
    while (p->t->kind != T_RBRACKET && !p->failed) {
        if (items.n > 0) {
            parse_expect(p, T_COMMA);
        }
        nodes_push(p, &items, parse_subscribed(p));
    }
    parse_expect(p, T_RBRACKET);
    if (items.n == 1) {
        return binary_node(p, N_GETITEM, line, of, items.v[0]);
    }
    for (uint32_t i = 0; i < items.n && !p->failed; i++) {
        if (items.v[i]->kind == N_SLICE) {
            parse_fail(p, line, "a slice cannot be one of several subscripts");
        }
    }
    tuple = node_new(p, N_TUPLE, line);
    tuple->list = items.v;
    tuple->n = items.n;
    return binary_node(p, N_GETITEM, line, of, node_done(p, tuple));
}

static struct node *parse_keyword(struct parser *p, const struct nodes *before)
{
    struct node *k = node_new(p, N_KEYWORD, p->t->line);

    k->name = parse_intern(p, p->t->s, p->t->n);
    for (uint32_t i = 0; i < before->n; i++) {
        if (before->v[i] != NULL && before->v[i]->name == k->name) {
            parse_fail(p, p->t->line, "keyword argument repeated: %.*s", (int)k->name->n,
                       k->name->s);
        }
    }
    p->t += 2;
    k->a = parse_expression(p, true);
    return node_done(p, k);
}

/* The arguments in parentheses, into n. */
static void parse_call_args(struct parser *p, struct node *n)
{
    struct nodes pos = { 0 }, kw = { 0 };
    int line = p->t->line;
    bool comma = false, ok = true;

    if (!parse_expect(p, T_LPAREN)) {
        return;
    }
    while (p->t->kind != T_RPAREN && !p->failed) {
        if (comma && (!parse_expect(p, T_COMMA) || p->t->kind == T_RPAREN)) {
            break;
        }
        comma = true;
        if (parse_skip(p, T_MUL)) {
            ok = n->b == NULL && n->c == NULL;
            n->b = parse_expression(p, true);
        } else if (parse_skip(p, T_POW)) {
            ok = n->c == NULL;
            n->c = parse_expression(p, true);
        } else if (p->t->kind == T_NAME && p->t[1].kind == T_ASSIGN) {
            ok = n->c == NULL;
            nodes_push(p, &kw, parse_keyword(p, &kw));
        } else {
            ok = n->b == NULL && n->c == NULL && kw.n == 0;
            nodes_push(p, &pos, parse_expression(p, true));
        }
        if (!ok) {
            parse_fail(p, line, "invalid syntax for function call expression");
        }
    }
    parse_expect(p, T_RPAREN);
    n->list = pos.v;
    n->n = pos.n;
    n->list2 = kw.v;
    n->n2 = kw.n;
}

static struct node *parse_call(struct parser *p, struct node *callee)
{
    struct node *n = node_new(p, N_CALL, p->t->line);

    n->a = callee;
    parse_call_args(p, n);
    return node_done(p, n);
}

static struct node *parse_postfix(struct parser *p, struct node *n)
{
    while (!p->failed) {
        switch (p->t->kind) {
        case T_DOT:
            n = parse_dot(p, n);
            break;
        case T_LBRACKET:
            n = parse_subscript(p, n);
            break;
        case T_LPAREN:
            n = parse_call(p, n);
            break;
        default:
            return n;
        }
    }
    return n;
}

/* A dotted name of a filter or test. */
static struct str *parse_dotted(struct parser *p)
{
    const struct token *first = p->t;
    char name[200];
    size_t n = 0;

    do {
        if (p->t->kind != T_NAME) {
            parse_expect(p, T_NAME);
            return NULL;
        }
        if (p->t->n + n + 2 > sizeof name) {
            parse_fail(p, first->line, "name of a filter or test is too long");
            return NULL;
        }
        if (n > 0) {
            name[n++] = '.';
        }
        memcpy(name + n, p->t->s, p->t->n);
        n += p->t->n;
        p->t++;
    } while (parse_skip(p, T_DOT));
    return parse_intern(p, name, n);
}

/* Remembers a filter or test that does not exist. */
static void note_unknown(struct parser *p, struct node *n)
{
    if (p->soft || p->failed) {
        return;
    }
    if (p->n_unknown == p->cap_unknown) {
        size_t cap = p->cap_unknown ? 2 * p->cap_unknown : 8;
        struct node **grown = arena_alloc(&p->j->arena, cap * sizeof *grown);

        if (grown == NULL) {
            parse_fail(p, n->line, "not enough memory for the template");
            return;
        }
        if (p->n_unknown > 0) {
            memcpy(grown, p->unknown, p->n_unknown * sizeof *grown);
        }
        p->unknown = grown;
        p->cap_unknown = cap;
    }
    p->unknown[p->n_unknown++] = n;
}

struct node *parse_filters(struct parser *p, struct node *of, bool start_inline)
{
    while ((start_inline || parse_skip(p, T_PIPE)) && !p->failed) {
        struct node *n = node_new(p, N_FILTER, p->t->line);

        start_inline = false;
        n->a = of;
        n->name = parse_dotted(p);
        if (n->name == NULL) {
            return NULL;
        }
        n->fn = find_filter(n->name->s, n->name->n);
        if (n->fn == NULL) {
            note_unknown(p, n);
        }
        if (p->t->kind == T_LPAREN) {
            parse_call_args(p, n);
        }
        of = node_done(p, n);
    }
    return of;
}

/* Whether the token begins the one argument of a test without parentheses. */
static bool test_argument(const struct token *t)
{
    switch (t->kind) {
    case T_NAME:
        return !token_is(t, "else") && !token_is(t, "or") && !token_is(t, "and");
    case T_STRING:
    case T_INT:
    case T_FLOAT:
    case T_LBRACKET:
    case T_LBRACE:
        return true;
    default:
        return false;
    }
}

static struct node *parse_test(struct parser *p, struct node *of)
{
    struct node *n = node_new(p, N_TEST, p->t->line);
    bool negated;

    p->t++;
    negated = parse_skip_name(p, "not");
    n->a = of;
    n->name = parse_dotted(p);
    if (n->name == NULL) {
        return NULL;
    }
    n->fn = find_test(n->name->s, n->name->n);
    if (n->fn == NULL) {
        note_unknown(p, n);
    }
    if (p->t->kind == T_LPAREN) {
        parse_call_args(p, n);
    } else if (test_argument(p->t)) {
        struct nodes arg = { 0 };

        if (token_is(p->t, "is")) {
            parse_fail(p, p->t->line, "You cannot chain multiple tests with is");
            return NULL;
        }
        nodes_push(p, &arg, parse_postfix(p, parse_primary(p)));
        n->list = arg.v;
        n->n = arg.n;
    }
    n = node_done(p, n);
    return negated ? unary_node(p, N_NOT, n->line, n) : n;
}

static struct node *parse_filter_expr(struct parser *p, struct node *n)
{
    while (!p->failed) {
        if (p->t->kind == T_PIPE) {
            n = parse_filters(p, n, false);
        } else if (token_is(p->t, "is")) {
            n = parse_test(p, n);
        } else if (p->t->kind == T_LPAREN) {
            n = parse_call(p, n);
        } else {
            break;
        }
    }
    return n;
}

/* ---- operators ---------------------------------------------------------------------- */

static struct node *parse_unary(struct parser *p, bool with_filter)
{
    int line = p->t->line;
    struct node *n;

    if (!parse_nest(p)) {
        return NULL;
    }
    if (parse_skip(p, T_SUB)) {
        n = unary_node(p, N_NEG, line, parse_unary(p, false));
    } else if (parse_skip(p, T_ADD)) {
        n = unary_node(p, N_POS, line, parse_unary(p, false));
    } else {
        n = parse_primary(p);
    }
    n = parse_postfix(p, n);
    if (with_filter) {
        n = parse_filter_expr(p, n);
    }
    p->nest--;
    return n;
}

/* The left-associative levels of arithmetic, loosest first; ~ lies between the first two. */
enum { LEVEL_SUM, LEVEL_CONCAT, LEVEL_PRODUCT, LEVEL_POWER, LEVEL_UNARY };

static int level_of(enum token_kind kind)
{
    switch (kind) {
    case T_ADD:
    case T_SUB:
        return LEVEL_SUM;
    case T_MUL:
    case T_DIV:
    case T_FLOORDIV:
    case T_MOD:
        return LEVEL_PRODUCT;
    case T_POW:
        return LEVEL_POWER;
    default:
        return -1;
    }
}

static struct node *parse_concat(struct parser *p);

static struct node *parse_level(struct parser *p, int level)
{
    struct node *left;

    if (level == LEVEL_UNARY) {
        return parse_unary(p, true);
    }
    if (level == LEVEL_CONCAT) {
        return parse_concat(p);
    }
    left = parse_level(p, level + 1);
    while (level_of(p->t->kind) == level && !p->failed) {
        const struct token *t = p->t++;
        struct node *right = parse_level(p, level + 1);

        left = binary_node(p, N_BINARY, t->line, left, right);
        left->op = (uint8_t)t->kind;
    }
    return left;
}

static struct node *parse_concat(struct parser *p)
{
    int line = p->t->line;
    struct node *first = parse_level(p, LEVEL_PRODUCT), *n;
    struct nodes parts = { 0 };

    if (p->t->kind != T_TILDE) {
        return first;
    }
    nodes_push(p, &parts, first);
    while (parse_skip(p, T_TILDE) && !p->failed) {
        nodes_push(p, &parts, parse_level(p, LEVEL_PRODUCT));
    }
    n = node_new(p, N_CONCAT, line);
    n->list = parts.v;
    n->n = parts.n;
    return node_done(p, n);
}

/* The comparison at the current token, which is skipped; T_EOF where there is none. */
static enum token_kind comparison(struct parser *p)
{
    enum token_kind kind = p->t->kind;

    if (kind >= T_EQ && kind <= T_LE) {
        p->t++;
        return kind;
    }
    if (parse_skip_name(p, "in")) {
        return T_NAME;
    }
    if (token_is(p->t, "not") && token_is(p->t + 1, "in")) {
        p->t += 2;
        return T_SEMICOLON;
    }
    return T_EOF;
}

static struct node *parse_compare(struct parser *p)
{
    int line = p->t->line;
    struct node *n, *first = parse_level(p, LEVEL_SUM);
    struct nodes operands = { 0 };
    enum token_kind op;

    while (!p->failed && (op = comparison(p)) != T_EOF) {
        struct node *o = unary_node(p, N_OPERAND, p->t->line, parse_level(p, LEVEL_SUM));

        o->op = (uint8_t)op;
        nodes_push(p, &operands, o);
    }
    if (operands.n == 0) {
        return first;
    }
    n = node_new(p, N_COMPARE, line);
    n->a = first;
    n->list = operands.v;
    n->n = operands.n;
    return node_done(p, n);
}

static struct node *parse_not(struct parser *p)
{
    int line = p->t->line;
    struct node *n;

    if (!parse_skip_name(p, "not")) {
        return parse_compare(p);
    }
    if (!parse_nest(p)) {
        return NULL;
    }
    n = unary_node(p, N_NOT, line, parse_not(p));
    p->nest--;
    return n;
}

static struct node *parse_and(struct parser *p)
{
    struct node *left = parse_not(p);
    int line = p->t->line;

    while (!p->failed && parse_skip_name(p, "and")) {
        left = binary_node(p, N_AND, line, left, parse_not(p));
    }
    return left;
}

static struct node *parse_or(struct parser *p)
{
    struct node *left = parse_and(p);
    int line = p->t->line;

    while (!p->failed && parse_skip_name(p, "or")) {
        left = binary_node(p, N_OR, line, left, parse_and(p));
    }
    return left;
}

static struct node *parse_condexpr(struct parser *p)
{
    size_t unknown = p->n_unknown;
    struct node *n;

    if (!parse_nest(p)) {
        return NULL;
    }
    n = parse_or(p);
    while (!p->failed && parse_skip_name(p, "if")) {
        struct node *cond = node_new(p, N_COND, p->t->line);

        cond->a = n;
        cond->b = parse_or(p);
        if (parse_skip_name(p, "else")) {
            cond->c = parse_condexpr(p);
        }
        n = node_done(p, cond);
        /* What a condition may skip need not exist until it is used. */
        p->n_unknown = unknown;
    }
    p->nest--;
    return n;
}

struct node *parse_expression(struct parser *p, bool with_condexpr)
{
    return with_condexpr ? parse_condexpr(p) : parse_or(p);
}

/* ---- tuples and targets ------------------------------------------------------------- */

static bool tuple_end(const struct parser *p)
{
    enum token_kind kind = p->t->kind;

    return kind == T_VAR_END || kind == T_BLOCK_END || kind == T_RPAREN;
}

struct node *parse_tuple(struct parser *p, bool with_condexpr, bool parenthesised)
{
    struct nodes items = { 0 };
    bool is_tuple = false;
    int line = p->t->line;
    struct node *n;
    char text[80];

    while (!p->failed) {
        if (items.n > 0) {
            parse_expect(p, T_COMMA);
        }
        if (tuple_end(p)) {
            break;
        }
        nodes_push(p, &items, parse_expression(p, with_condexpr));
        if (p->t->kind != T_COMMA) {
            break;
        }
        is_tuple = true;
    }
    if (!is_tuple && items.n > 0) {
        return items.v[0];
    }
    if (!is_tuple && !parenthesised) {
        parse_fail(p, line, "Expected an expression, got '%s'", token_text(p->t, text));
        return NULL;
    }
    n = node_new(p, N_TUPLE, line);
    n->list = items.v;
    n->n = items.n;
    return node_done(p, n);
}

struct node *parse_target_name(struct parser *p)
{
    const struct token *t = p->t;
    struct node *n;

    if (!parse_expect(p, T_NAME)) {
        return NULL;
    }
    for (const char *const *w = (const char *const[]){ "true", "false", "none", "True", "False",
                                                       "None", NULL }; *w != NULL; w++) {
        if (token_is(t, *w)) {
            parse_fail(p, t->line, "can't assign to '%s'", *w);
            return NULL;
        }
    }
    n = node_new(p, N_NAME, t->line);
    n->name = parse_intern(p, t->s, t->n);
    return n;
}

/* A name, a tuple of targets in parentheses, or namespace.attribute. */
static struct node *parse_simple_target(struct parser *p, bool with_ns)
{
    struct node *n;
    char text[80];

    if (p->t->kind == T_LPAREN) {
        if (!parse_nest(p)) {
            return NULL;
        }
        p->t++;
        n = parse_target(p, with_ns);
        parse_expect(p, T_RPAREN);
        p->nest--;
        return n;
    }
    if (p->t->kind != T_NAME) {
        parse_fail(p, p->t->line, "can't assign to '%s'", token_text(p->t, text));
        return NULL;
    }
    if (with_ns && p->t[1].kind == T_DOT) {
        struct nodes attr = { 0 };

        n = node_new(p, N_NSREF, p->t->line);
        n->name = parse_intern(p, p->t->s, p->t->n);
        p->t += 2;
        if (p->t->kind != T_NAME) {
            parse_expect(p, T_NAME);
            return NULL;
        }
        nodes_push(p, &attr, node_new(p, N_NAME, p->t->line));
        if (p->failed) {
            return NULL;
        }
        attr.v[0]->name = parse_intern(p, p->t->s, p->t->n);
        p->t++;
        n->list = attr.v;
        n->n = 1;
        return n;
    }
    return parse_target_name(p);
}

struct node *parse_target(struct parser *p, bool with_ns)
{
    struct nodes items = { 0 };
    int line = p->t->line;
    bool is_tuple = false;
    struct node *n;

    while (!p->failed) {
        if (items.n > 0) {
            parse_expect(p, T_COMMA);
        }
        if (items.n > 0 && tuple_end(p)) {
            break;
        }
        nodes_push(p, &items, parse_simple_target(p, with_ns));
        if (p->t->kind != T_COMMA) {
            break;
        }
        is_tuple = true;
    }
    if (!is_tuple) {
        return items.n > 0 ? items.v[0] : NULL;
    }
    n = node_new(p, N_TUPLE, line);
    n->list = items.v;
    n->n = items.n;
    return node_done(p, n);
}

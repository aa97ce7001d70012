/* jinja_parse.c - tokens to tree: statements, and what both halves of the parser share. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/utf8.h"
#include "text/jinja_ast.h"

/* ---- shared ------------------------------------------------------------------------- */

bool parse_fail(struct parser *p, int line, const char *fmt, ...)
{
    char msg[200];
    va_list ap;

    if (p->failed) {
        return false;
    }
    p->failed = true;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    return slm_fail_at(p->err, SLM_E_TEMPLATE, line, "line %d: %s", line, msg);
}

/* What node_new gives when memory is out: never part of a tree that is used. */
static struct node lost_node(void) { return (struct node){ .kind = N_CONST }; }

struct node *node_new(struct parser *p, enum node_kind kind, int line)
{
    struct node *n = arena_zalloc(&p->j->arena, sizeof *n);

    if (n == NULL) {
        parse_fail(p, line, "not enough memory for the template");
        /* The spare node was allocated first, so that callers need no check. */
        n = p->j->root;
        *n = lost_node();
    }
    n->kind = (uint8_t)kind;
    n->line = line;
    n->depth = 1;
    return n;
}

void nodes_push(struct parser *p, struct nodes *l, struct node *n)
{
    if (p->failed) {
        return;
    }
    if (l->n == l->cap) {
        uint32_t cap = l->cap ? 2 * l->cap : 4;
        struct node **grown = arena_alloc(&p->j->arena, cap * sizeof *grown);

        if (grown == NULL) {
            parse_fail(p, p->t->line, "not enough memory for the template");
            return;
        }
        if (l->n > 0) {
            memcpy(grown, l->v, l->n * sizeof *grown);
        }
        l->v = grown;
        l->cap = cap;
    }
    l->v[l->n++] = n;
}

static int taller(int height, const struct node *n)
{
    return n != NULL && n->depth > height ? n->depth : height;
}

struct node *node_done(struct parser *p, struct node *n)
{
    int height = 0;

    if (p->failed) {
        return n;
    }
    height = taller(taller(taller(height, n->a), n->b), n->c);
    for (uint32_t i = 0; i < n->n; i++) {
        height = taller(height, n->list[i]);
    }
    for (uint32_t i = 0; i < n->n2; i++) {
        height = taller(height, n->list2[i]);
    }
    n->depth = height + 1;
    if (n->depth > JINJA_HEIGHT_MAX) {
        parse_fail(p, n->line, "an expression chains more than %d operations",
                   JINJA_HEIGHT_MAX);
    }
    return n;
}

bool parse_nest(struct parser *p)
{
    if (p->failed) {
        return false;
    }
    if (p->nest >= JINJA_NEST_MAX) {
        return parse_fail(p, p->t->line, "nested deeper than %d levels", JINJA_NEST_MAX);
    }
    p->nest++;
    return true;
}

/* Slot of the name in the table of interned names. */
static struct str **intern_slot(struct parser *p, const char *s, size_t n)
{
    size_t i = (size_t)hash_bytes(HASH_INIT, s, n) & (p->cap_names - 1);

    while (p->names[i] != NULL &&
           !(p->names[i]->n == n && memcmp(p->names[i]->s, s, n) == 0)) {
        i = (i + 1) & (p->cap_names - 1);
    }
    return &p->names[i];
}

static bool intern_grow(struct parser *p)
{
    struct str **old = p->names;
    size_t n_old = p->cap_names;
    size_t cap = n_old ? 2 * n_old : 64;
    struct str **grown = arena_zalloc(&p->j->arena, cap * sizeof *grown);

    if (grown == NULL) {
        return false;
    }
    p->names = grown;
    p->cap_names = cap;
    for (size_t i = 0; i < n_old; i++) {
        if (old[i] != NULL) {
            *intern_slot(p, old[i]->s, old[i]->n) = old[i];
        }
    }
    return true;
}

struct str *parse_intern(struct parser *p, const char *s, size_t n)
{
    struct str **slot, *name;

    if (2 * (p->n_names + 1) > p->cap_names && !intern_grow(p)) {
        parse_fail(p, p->t != NULL ? p->t->line : 1, "not enough memory for the template");
        return p->j->name_loop;
    }
    slot = intern_slot(p, s, n);
    if (*slot != NULL) {
        return *slot;
    }
    name = arena_zalloc(&p->j->arena, sizeof *name);
    s = name != NULL ? arena_strndup(&p->j->arena, s, n) : NULL;
    if (s == NULL) {
        parse_fail(p, p->t != NULL ? p->t->line : 1, "not enough memory for the template");
        return p->j->name_loop;
    }
    *name = (struct str){ .s = s, .n = n, .n_chars = utf8_count(s, n),
                           .hash = hash_bytes(HASH_INIT, s, n) | 1 };
    p->n_names++;
    return *slot = name;
}

bool token_is(const struct token *t, const char *name)
{
    return t->kind == T_NAME && strlen(name) == t->n && memcmp(t->s, name, t->n) == 0;
}

bool parse_skip_name(struct parser *p, const char *name)
{
    if (!token_is(p->t, name)) {
        return false;
    }
    p->t++;
    return true;
}

bool parse_skip(struct parser *p, enum token_kind kind)
{
    if (p->t->kind != kind || kind == T_EOF) {
        return false;
    }
    p->t++;
    return true;
}

static const char *const kind_names[T_KIND_COUNT] = {
    [T_EOF] = "end of template", [T_DATA] = "template data / text",
    [T_VAR_BEGIN] = "begin of print statement", [T_VAR_END] = "end of print statement",
    [T_BLOCK_BEGIN] = "begin of statement block", [T_BLOCK_END] = "end of statement block",
    [T_NAME] = "name", [T_STRING] = "string", [T_INT] = "integer", [T_FLOAT] = "float",
    [T_ASSIGN] = "=", [T_COLON] = ":", [T_COMMA] = ",", [T_RPAREN] = ")", [T_LPAREN] = "(",
    [T_RBRACKET] = "]", [T_RBRACE] = "}",
};

const char *token_text(const struct token *t, char out[80])
{
    size_t n = t->n < 60 ? t->n : 60;

    if (t->kind == T_NAME || (t->kind >= T_ADD && t->kind < T_KIND_COUNT)) {
        n -= t->n > 60 ? utf8_incomplete(t->s, n) : 0;
        snprintf(out, 80, "%.*s", (int)n, t->s);
    } else {
        snprintf(out, 80, "%s", kind_names[t->kind]);
    }
    return out;
}

bool parse_expect(struct parser *p, enum token_kind kind)
{
    char text[80];

    if (p->failed) {
        return false;
    }
    if (p->t->kind == kind) {
        p->t += kind != T_EOF;
        return true;
    }
    if (p->t->kind == T_EOF) {
        return parse_fail(p, p->t->line, "unexpected end of template, expected '%s'",
                          kind_names[kind]);
    }
    return parse_fail(p, p->t->line, "expected token '%s', got '%s'", kind_names[kind],
                      token_text(p->t, text));
}

/* ---- statements --------------------------------------------------------------------- */

static struct node *parse_body(struct parser *p, const char *const *ends);

static const char *const end_if[] = { "elif", "else", "endif", NULL };
static const char *const end_for[] = { "endfor", "else", NULL };

/* A list of one end tag. */
#define END(name) ((const char *const[]){ name, NULL })

/* The statements of a block up to one of its end tags, whose name becomes the current
 * token. */
static struct node *parse_block_body(struct parser *p, const char *const *ends)
{
    parse_skip(p, T_COLON);
    parse_expect(p, T_BLOCK_END);
    return parse_body(p, ends);
}

/* The same for a block with one end tag, which is skipped. */
static struct node *parse_simple_body(struct parser *p, const char *end)
{
    struct node *body = parse_block_body(p, END(end));

    if (!p->failed) {
        p->t++;
    }
    return body;
}

/* Settings of the parser that begin anew inside a block of statements. */
struct inside { bool soft; int loops; };

static struct inside go_inside(struct parser *p, bool soft, int loops)
{
    struct inside old = { p->soft, p->loops };

    p->soft = soft;
    p->loops = loops;
    return old;
}

static void go_outside(struct parser *p, struct inside old)
{
    p->soft = old.soft;
    p->loops = old.loops;
}

static struct node *parse_if(struct parser *p, struct node *n)
{
    struct inside old = go_inside(p, true, p->loops);
    struct nodes elifs = { 0 };
    struct node *branch = n;

    while (!p->failed) {
        branch->a = parse_tuple(p, false, false);
        branch->b = parse_block_body(p, end_if);
        if (branch != n) {
            node_done(p, branch);
        }
        if (p->failed || !token_is(p->t, "elif")) {
            break;
        }
        p->t++;
        branch = node_new(p, N_IF, p->t->line);
        nodes_push(p, &elifs, branch);
    }
    if (!p->failed && parse_skip_name(p, "else")) {
        n->c = parse_simple_body(p, "endif");
    } else if (!p->failed) {
        p->t++;
    }
    n->list = elifs.v;
    n->n = elifs.n;
    go_outside(p, old);
    return n;
}

/* Whether the target binds the name. */
static bool target_has(const struct node *t, const struct str *name)
{
    if (t == NULL) {
        return false;
    }
    if (t->kind == N_NAME) {
        return t->name == name;
    }
    for (uint32_t i = 0; t->kind == N_TUPLE && i < t->n; i++) {
        if (target_has(t->list[i], name)) {
            return true;
        }
    }
    return false;
}

static struct node *parse_for(struct parser *p, struct node *n)
{
    struct inside old;
    struct nodes bodies = { 0 };

    n->a = parse_target(p, false);
    if (!p->failed && target_has(n->a, p->j->name_loop)) {
        parse_fail(p, n->line, "Can't assign to special loop variable in for-loop target");
    }
    if (!p->failed && !parse_skip_name(p, "in")) {
        char text[80];

        parse_fail(p, p->t->line, "expected token 'in', got '%s'", token_text(p->t, text));
    }
    n->b = parse_tuple(p, false, false);
    if (parse_skip_name(p, "if")) {
        n->c = parse_expression(p, true);
    }
    n->flag = parse_skip_name(p, "recursive");
    old = go_inside(p, false, p->loops + 1);
    nodes_push(p, &bodies, parse_block_body(p, end_for));
    go_outside(p, old);
    if (!p->failed && parse_skip_name(p, "else")) {
        old = go_inside(p, false, p->loops);
        nodes_push(p, &bodies, parse_simple_body(p, "endfor"));
        go_outside(p, old);
    } else if (!p->failed) {
        p->t++;
    }
    n->list = bodies.v;
    n->n = bodies.n;
    return n;
}

static struct node *parse_set(struct parser *p, struct node *n)
{
    struct inside old;

    n->a = parse_target(p, true);
    if (parse_skip(p, T_ASSIGN)) {
        n->b = parse_tuple(p, true, false);
        return n;
    }
    n->kind = N_SETBLOCK;
    n->b = parse_filters(p, NULL, false);
    old = go_inside(p, false, p->loops);
    n->c = parse_simple_body(p, "endset");
    go_outside(p, old);
    return n;
}

static struct node *parse_with(struct parser *p, struct node *n)
{
    struct nodes targets = { 0 }, values = { 0 };
    struct inside old;

    while (p->t->kind != T_BLOCK_END && !p->failed) {
        if (targets.n > 0) {
            parse_expect(p, T_COMMA);
        }
        nodes_push(p, &targets, parse_target(p, false));
        parse_expect(p, T_ASSIGN);
        nodes_push(p, &values, parse_expression(p, true));
    }
    n->list = targets.v;
    n->n = targets.n;
    n->list2 = values.v;
    n->n2 = values.n;
    old = go_inside(p, false, p->loops);
    n->c = parse_simple_body(p, "endwith");
    go_outside(p, old);
    return n;
}

/* Parameters with their defaults, in parentheses, into n. */
static void parse_signature(struct parser *p, struct node *n)
{
    struct nodes params = { 0 }, defaults = { 0 };

    parse_expect(p, T_LPAREN);
    while (p->t->kind != T_RPAREN && !p->failed) {
        struct node *param;

        if (params.n > 0) {
            parse_expect(p, T_COMMA);
        }
        param = parse_target_name(p);
        for (uint32_t i = 0; i < params.n && param != NULL; i++) {
            if (params.v[i]->name == param->name) {
                parse_fail(p, param->line, "duplicate argument '%.*s'", (int)param->name->n,
                           param->name->s);
            }
        }
        if (param != NULL && param->name == p->j->name_caller) {
            n->flag |= MACRO_OWN_CALLER;
        }
        if (parse_skip(p, T_ASSIGN)) {
            nodes_push(p, &defaults, parse_expression(p, true));
        } else if (defaults.n > 0) {
            parse_fail(p, p->t->line, "non-default argument follows default argument");
        }
        nodes_push(p, &params, param);
    }
    parse_expect(p, T_RPAREN);
    n->list = params.v;
    n->n = params.n;
    n->list2 = defaults.v;
    n->n2 = defaults.n;
}

/* The body of a macro, and which of the special names it uses. */
static void parse_macro_body(struct parser *p, struct node *n, const char *end)
{
    struct inside old = go_inside(p, false, 0);
    int uses = p->macro_uses;

    p->macro_uses = 0;
    n->c = parse_simple_body(p, end);
    n->flag |= (uint8_t)p->macro_uses;
    for (uint32_t i = 0; i < n->n && !p->failed; i++) {
        const struct str *name = n->list[i]->name;

        if (name == p->j->name_caller && (n->flag & MACRO_CALLER) && i + n->n2 < n->n) {
            parse_fail(p, n->line, "When defining macros or call blocks the special \"caller\" "
                       "argument must be omitted or be given a default.");
        }
        n->flag &= name == p->j->name_kwargs ? ~MACRO_KWARGS
                   : name == p->j->name_varargs ? ~MACRO_VARARGS : 0xFF;
    }
    p->macro_uses |= uses;
    go_outside(p, old);
}

static struct node *parse_macro(struct parser *p, struct node *n)
{
    struct node *name = parse_target_name(p);

    if (name != NULL) {
        n->name = name->name;
    }
    parse_signature(p, n);
    parse_macro_body(p, n, "endmacro");
    return n;
}

static struct node *parse_call_block(struct parser *p, struct node *n)
{
    n->b = node_new(p, N_MACRO, n->line);
    n->b->name = p->j->name_caller;
    n->b->flag = MACRO_ANONYMOUS;
    if (p->t->kind == T_LPAREN) {
        parse_signature(p, n->b);
    }
    n->a = parse_expression(p, true);
    if (!p->failed && n->a->kind != N_CALL) {
        parse_fail(p, n->line, "expected call");
    }
    parse_macro_body(p, n->b, "endcall");
    node_done(p, n->b);
    return n;
}

static struct node *parse_filter_block(struct parser *p, struct node *n)
{
    struct inside old;

    n->a = parse_filters(p, NULL, true);
    old = go_inside(p, false, p->loops);
    n->c = parse_simple_body(p, "endfilter");
    go_outside(p, old);
    return n;
}

static bool add_block(struct parser *p, struct node *n)
{
    struct jinja *j = p->j;
    struct nodes all = { .v = j->blocks, .n = (uint32_t)j->n_blocks,
                         .cap = (uint32_t)j->n_blocks };

    for (size_t i = 0; i < j->n_blocks; i++) {
        if (j->blocks[i]->name == n->name) {
            return parse_fail(p, n->line, "block '%.*s' defined twice", (int)n->name->n,
                              n->name->s);
        }
    }
    nodes_push(p, &all, n);
    j->blocks = all.v;
    j->n_blocks = all.n;
    return true;
}

/* A required block may hold white space only. */
static bool blank(const struct node *body)
{
    for (uint32_t i = 0; i < body->n; i++) {
        const struct node *n = body->list[i];

        for (uint32_t k = 0; n->kind == N_OUTPUT && k < n->n; k++) {
            const struct str *s = n->list[k]->value.str;

            if (n->list[k]->kind != N_CONST || strspn(s->s, " \t\n\r\f\v") < s->n) {
                return false;
            }
        }
        if (n->kind != N_OUTPUT) {
            return false;
        }
    }
    return true;
}

static struct node *parse_block(struct parser *p, struct node *n)
{
    struct inside old;
    struct node *name = parse_target_name(p);

    if (p->failed) {
        return n;
    }
    n->name = name->name;
    n->flag = parse_skip_name(p, "scoped") ? BLOCK_SCOPED : 0;
    n->flag |= parse_skip_name(p, "required") ? BLOCK_REQUIRED : 0;
    if (p->t->kind == T_SUB) {
        parse_fail(p, p->t->line, "Block names may not contain hyphens, use an underscore");
        return n;
    }
    add_block(p, n);
    old = go_inside(p, false, 0);
    n->c = parse_simple_body(p, "endblock");
    go_outside(p, old);
    if (!p->failed && (n->flag & BLOCK_REQUIRED) && !blank(n->c)) {
        parse_fail(p, n->line, "Required blocks can only contain comments or whitespace");
    }
    if (!p->failed && p->t->kind == T_NAME && p->t->n == n->name->n &&
        memcmp(p->t->s, n->name->s, n->name->n) == 0) {
        p->t++;
    }
    return n;
}

static struct node *parse_generation(struct parser *p, struct node *n)
{
    struct inside old = go_inside(p, false, 0);

    n->c = parse_simple_body(p, "endgeneration");
    go_outside(p, old);
    return n;
}

static struct node *parse_autoescape(struct parser *p, struct node *n)
{
    struct inside old = go_inside(p, false, p->loops);

    n->a = parse_expression(p, true);
    n->c = parse_simple_body(p, "endautoescape");
    go_outside(p, old);
    return n;
}

static struct node *parse_print(struct parser *p, struct node *n)
{
    struct nodes items = { 0 };

    while (p->t->kind != T_BLOCK_END && !p->failed) {
        if (items.n > 0) {
            parse_expect(p, T_COMMA);
        }
        nodes_push(p, &items, parse_expression(p, true));
    }
    n->list = items.v;
    n->n = items.n;
    return n;
}

static struct node *parse_jump(struct parser *p, struct node *n)
{
    if (p->loops == 0) {
        parse_fail(p, n->line, "'%s' outside loop", n->kind == N_BREAK ? "break" : "continue");
    }
    return n;
}

/* "with context" or "without context" */
static void skip_context(struct parser *p)
{
    if ((token_is(p->t, "with") || token_is(p->t, "without")) && token_is(p->t + 1, "context")) {
        p->t += 2;
    }
}

/* The imported names of a `from` tag. */
static void parse_import_names(struct parser *p)
{
    for (bool first = true; !p->failed; first = false) {
        const struct token *t;

        if (!first) {
            parse_expect(p, T_COMMA);
        }
        t = p->t;
        skip_context(p);
        if (p->t != t) {
            break;
        }
        parse_target_name(p);
        if (!p->failed && t->s[0] == '_') {
            parse_fail(p, t->line, "names starting with an underline can not be imported");
        }
        if (parse_skip_name(p, "as")) {
            parse_target_name(p);
        }
        t = p->t;
        skip_context(p);
        if (p->t != t || p->t->kind != T_COMMA) {
            break;
        }
    }
}

static struct node *parse_load(struct parser *p, struct node *n)
{
    const struct token *tag = p->t - 1;

    n->name = parse_intern(p, tag->s, tag->n);
    n->a = parse_expression(p, true);
    if (token_is(tag, "include")) {
        if (token_is(p->t, "ignore") && token_is(p->t + 1, "missing")) {
            p->t += 2;
        }
        skip_context(p);
    } else if (token_is(tag, "import")) {
        if (!parse_skip_name(p, "as") && !p->failed) {
            parse_fail(p, p->t->line, "expected token 'as' behind import");
        }
        parse_target_name(p);
        skip_context(p);
    } else if (token_is(tag, "from")) {
        if (!parse_skip_name(p, "import") && !p->failed) {
            parse_fail(p, p->t->line, "expected token 'import' behind from");
        }
        parse_import_names(p);
    }
    return n;
}

/* parse gets the node with kind and line set, the current token being behind the name. */
static const struct statement {
    const char *name;
    enum node_kind kind;
    struct node *(*parse)(struct parser *p, struct node *n);
} statements[] = {
    { "if", N_IF, parse_if },
    { "for", N_FOR, parse_for },
    { "set", N_SET, parse_set },
    { "with", N_WITH, parse_with },
    { "macro", N_MACRO, parse_macro },
    { "call", N_CALLBLOCK, parse_call_block },
    { "filter", N_FILTERBLOCK, parse_filter_block },
    { "block", N_BLOCK, parse_block },
    { "generation", N_SCOPE, parse_generation },
    { "autoescape", N_AUTOESCAPE, parse_autoescape },
    { "print", N_OUTPUT, parse_print },
    { "break", N_BREAK, parse_jump },
    { "continue", N_CONTINUE, parse_jump },
    { "include", N_LOAD, parse_load },
    { "import", N_LOAD, parse_load },
    { "from", N_LOAD, parse_load },
    { "extends", N_LOAD, parse_load },
};

/* "'elif' or 'else' or 'endif'" of the innermost open block. */
static const char *looked_for(const struct parser *p, char out[80])
{
    size_t n = 0;

    for (const char *const *end = p->tags[p->n_tags - 1]; *end != NULL; end++) {
        n += (size_t)snprintf(out + n, 80 - n, "%s'%s'", n > 0 ? " or " : "", *end);
    }
    return out;
}

static void fail_unknown_tag(struct parser *p)
{
    char text[80], tags[80];

    token_text(p->t, text);
    if (p->n_tags == 0) {
        parse_fail(p, p->t->line, "Encountered unknown tag '%s'.", text);
    } else {
        parse_fail(p, p->t->line, "Encountered unknown tag '%s'. Jinja was looking for %s.", text,
                   looked_for(p, tags));
    }
}

static struct node *parse_statement(struct parser *p)
{
    const struct token *t = p->t;

    if (t->kind != T_NAME) {
        parse_fail(p, t->line, "tag name expected");
        return NULL;
    }
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
        const struct statement *s = &statements[i];

        if (token_is(t, s->name)) {
            struct node *n = node_new(p, s->kind, t->line);

            p->t++;
            return node_done(p, s->parse(p, n));
        }
    }
    fail_unknown_tag(p);
    return NULL;
}

static struct node *text_node(struct parser *p, const struct token *t)
{
    struct node *n = node_new(p, N_CONST, t->line);
    struct str *s = arena_zalloc(&p->j->arena, sizeof *s);

    if (s == NULL) {
        parse_fail(p, t->line, "not enough memory for the template");
        return n;
    }
    *s = (struct str){ .s = t->s, .n = t->n, .n_chars = SIZE_MAX, .markup = true };
    n->value = v_str(s);
    return n;
}

/* Appends to the current run of output. */
static void add_output(struct parser *p, struct nodes *body, struct nodes *out, struct node *n)
{
    if (out->n == 0) {
        nodes_push(p, body, node_new(p, N_OUTPUT, p->t->line));
    }
    nodes_push(p, out, n);
    if (!p->failed) {
        struct node *o = body->v[body->n - 1];

        o->list = out->v;
        o->n = out->n;
        node_done(p, o);
    }
}

static bool at_end_tag(const struct parser *p, const char *const *ends)
{
    for (; ends != NULL && *ends != NULL; ends++) {
        if (token_is(p->t, *ends)) {
            return true;
        }
    }
    return false;
}

/* Statements up to one of the end tags, or to the end of the template when there is none. */
static struct node *parse_body(struct parser *p, const char *const *ends)
{
    struct node *n = node_new(p, N_BODY, p->t->line);
    struct nodes body = { 0 }, out = { 0 };
    bool ended = ends == NULL;

    if (!parse_nest(p)) {
        return n;
    }
    if (ends != NULL) {
        p->tags[p->n_tags++] = ends;
    }
    while (!p->failed && p->t->kind != T_EOF) {
        if (p->t->kind == T_DATA) {
            add_output(p, &body, &out, text_node(p, p->t));
            p->t++;
        } else if (parse_skip(p, T_VAR_BEGIN)) {
            add_output(p, &body, &out, parse_tuple(p, true, false));
            parse_expect(p, T_VAR_END);
        } else if (parse_expect(p, T_BLOCK_BEGIN)) {
            out = (struct nodes){ 0 };
            if (at_end_tag(p, ends)) {
                ended = true;
                break;
            }
            nodes_push(p, &body, parse_statement(p));
            parse_expect(p, T_BLOCK_END);
        }
    }
    if (!ended) {
        char tags[80];

        parse_fail(p, p->t->line, "Unexpected end of template. Jinja was looking for %s.",
                   looked_for(p, tags));
    }
    p->n_tags -= ends != NULL;
    p->nest--;
    n->list = body.v;
    n->n = body.n;
    return node_done(p, n);
}

bool jinja_parse(struct jinja *j, const struct tokens *tokens, slm_error *err)
{
    struct parser p = { .j = j, .t = tokens->t, .err = err };
    struct node *root;

    j->root = arena_zalloc(&j->arena, sizeof *j->root);
    if (j->root == NULL) {
        return slm_fail_nomem(err, "the template");
    }
    j->name_loop = parse_intern(&p, "loop", 4);
    j->name_self = parse_intern(&p, "self", 4);
    j->name_caller = parse_intern(&p, "caller", 6);
    j->name_varargs = parse_intern(&p, "varargs", 7);
    j->name_kwargs = parse_intern(&p, "kwargs", 6);
    j->name_super = parse_intern(&p, "super", 5);
    root = parse_body(&p, NULL);
    if (!p.failed && p.n_unknown > 0) {
        const struct node *n = p.unknown[0];

        parse_fail(&p, n->line, "No %s named '%.*s'.", n->kind == N_FILTER ? "filter" : "test",
                   (int)n->name->n, n->name->s);
    }
    j->root = root;
    return !p.failed;
}

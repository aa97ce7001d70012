/* jinja_ast.h - tokens and syntax tree of a template. */
#ifndef JINJA_AST_H
#define JINJA_AST_H

#include "base/mem.h"
#include "text/jinja_value.h"

/* ---- tokens ------------------------------------------------------------------------- */

enum token_kind {
    T_EOF, T_DATA, T_VAR_BEGIN, T_VAR_END, T_BLOCK_BEGIN, T_BLOCK_END,
    T_NAME, T_STRING, T_INT, T_FLOAT,
    T_ADD, T_SUB, T_DIV, T_FLOORDIV, T_MUL, T_MOD, T_POW, T_TILDE,
    T_LBRACKET, T_RBRACKET, T_LPAREN, T_RPAREN, T_LBRACE, T_RBRACE,
    T_EQ, T_NE, T_GT, T_GE, T_LT, T_LE, T_ASSIGN, T_DOT, T_COLON, T_PIPE, T_COMMA, T_SEMICOLON,
    T_KIND_COUNT
};

struct token {
    enum token_kind kind;
    int line;
    const char *s;   /* text as written; strings without their quotes */
    size_t n;
};

struct tokens {
    struct token *t;   /* ends with T_EOF */
    size_t n, cap;
};

/* Tokens of a source whose newlines are "\n".  They and their text live in `a`. */
bool jinja_lex(struct arena *a, const char *source, size_t n, struct tokens *out, slm_error *err);

/* ---- tree --------------------------------------------------------------------------- */

enum node_kind {
    /* expressions */
    N_CONST,      /* value */
    N_BIGINT,     /* name: decimal digits */
    N_NAME,       /* name */
    N_LIST,       /* list */
    N_TUPLE,      /* list */
    N_DICT,       /* list: key, value, key, value */
    N_NEG,        /* a */
    N_POS,        /* a */
    N_NOT,        /* a */
    N_BINARY,     /* op (enum tok_kind), a, b */
    N_AND,        /* a, b */
    N_OR,         /* a, b */
    N_CONCAT,     /* list */
    N_COMPARE,    /* a, list of N_OPERAND (op, a) */
    N_OPERAND,
    N_COND,       /* a if b else c */
    N_GETATTR,    /* a, name */
    N_GETITEM,    /* a, b */
    N_SLICE,      /* a : b : c, each may be NULL */
    N_CALL,       /* a, then arguments */
    N_FILTER,     /* a (NULL inside a block filter), name, builtin, arguments */
    N_TEST,       /* a, name, builtin, arguments */
    N_KEYWORD,    /* name = a */
    N_NSREF,      /* name . list[0]->name, as a target */
    /* statements */
    N_OUTPUT,     /* list of expressions; literal text is N_CONST */
    N_BODY,       /* list of statements */
    N_IF,         /* a: test, b: body, list: N_IF of elif, c: else */
    N_FOR,        /* a: target, b: iterable, c: filter, list: body, else; flag: recursive */
    N_SET,        /* a: target, b: value */
    N_SETBLOCK,   /* a: target, b: filters, c: body */
    N_WITH,       /* list: targets, list2: values, c: body */
    N_MACRO,      /* name, list: parameters, list2: defaults of the last ones, c: body */
    N_CALLBLOCK,  /* a: call, b: N_MACRO */
    N_FILTERBLOCK,/* a: filters, c: body */
    N_BLOCK,      /* name, c: body; flag: BLOCK_ bits */
    N_SCOPE,      /* c: body */
    N_AUTOESCAPE, /* a: switch, c: body */
    N_BREAK,
    N_CONTINUE,
    N_LOAD        /* include, import, from, extends: name of the tag */
};

enum { MACRO_CALLER = 1, MACRO_KWARGS = 2, MACRO_VARARGS = 4, MACRO_OWN_CALLER = 8,
       MACRO_ANONYMOUS = 16 };
enum { BLOCK_SCOPED = 1, BLOCK_REQUIRED = 2 };

/* Arguments of N_CALL, N_FILTER, N_TEST: list positional, list2 N_KEYWORD, b *args,
 * c **kwargs. */
struct node {
    uint8_t kind;
    uint8_t op;       /* enum tok_kind; T_NAME stands for `in`, T_SEMICOLON for `not in` */
    uint8_t flag;
    int line;
    int depth;        /* height of the tree below */
    struct str *name; /* interned: equal names are the same pointer */
    struct node *a, *b, *c;
    struct node **list, **list2;
    uint32_t n, n2;
    union {
        struct val value;
        const struct builtin *fn;
    };
};

struct jinja {
    struct arena arena;
    struct node *root;        /* N_BODY */
    struct node **blocks;
    size_t n_blocks;
    struct str *name_loop, *name_self, *name_caller, *name_varargs, *name_kwargs, *name_super;
};

/* Limits of the source.  Nesting counts brackets, operators and blocks alike. */
enum { JINJA_NEST_MAX = 100, JINJA_HEIGHT_MAX = 250, JINJA_SOURCE_MAX = 8 << 20 };

/* Builds the tree of j (arena initialised) from tokens. */
bool jinja_parse(struct jinja *j, const struct tokens *tokens, slm_error *err);

/* Shared by the two halves of the parser. */
struct parser {
    struct jinja *j;
    const struct token *t;      /* current token */
    slm_error *err;
    bool failed;
    bool soft;                /* inside if: an unknown filter is an error only when used */
    int nest;
    int loops;                /* loops around, within the current macro */
    int macro_uses;           /* MACRO_ flags of the names read since the macro began */
    struct str **names;       /* interned names, open addressing */
    size_t n_names, cap_names;
    struct node **unknown;    /* filters and tests that do not exist and are not soft yet */
    size_t n_unknown, cap_unknown;
    const char *const *tags[JINJA_NEST_MAX + 2];  /* end tags looked for, innermost last */
    int n_tags;
};

bool parse_fail(struct parser *p, int line, const char *fmt, ...) PRINTF_LIKE(3, 4);
struct node *node_new(struct parser *p, enum node_kind kind, int line);
/* Appends to a growing array of nodes in the arena. */
struct nodes { struct node **v; uint32_t n, cap; };
void nodes_push(struct parser *p, struct nodes *l, struct node *n);
/* Sets the height from the children; an error where it is too large. */
struct node *node_done(struct parser *p, struct node *n);
struct str *parse_intern(struct parser *p, const char *s, size_t n);
bool token_is(const struct token *t, const char *name);
bool parse_skip_name(struct parser *p, const char *name);
bool parse_skip(struct parser *p, enum token_kind kind);
bool parse_expect(struct parser *p, enum token_kind kind);
const char *token_text(const struct token *t, char out[80]);
bool parse_nest(struct parser *p);

/* Expression grammar (jinja_expr.c); all give NULL only after a failure. */
struct node *parse_expression(struct parser *p, bool with_condexpr);
struct node *parse_tuple(struct parser *p, bool with_condexpr, bool parenthesised);
struct node *parse_target(struct parser *p, bool with_ns);
struct node *parse_target_name(struct parser *p);
struct node *parse_filters(struct parser *p, struct node *n, bool start_inline);

#endif

/* jinja_print.c - values to text: str(), repr(), HTML escaping and JSON. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja_run.h"

/* ---- repr --------------------------------------------------------------------------- */

static void put_hex_escape(struct sb *b, uint32_t cp)
{
    char text[12];

    snprintf(text, sizeof text, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x",
             (unsigned)cp);
    sb_puts(b, text);
}

static void put_quoted(struct sb *b, const struct str *s)
{
    bool single = s->n > 0 && memchr(s->s, '\'', s->n) != NULL;
    bool twice = s->n > 0 && memchr(s->s, '"', s->n) != NULL;
    char quote = single && !twice ? '"' : '\'';
    struct chars c = chars_of(s);

    sb_putc(b, quote);
    while (chars_next(&c) && !b->r->failed) {
        const char *esc = c.cp == '\\' ? "\\\\" : c.cp == '\n' ? "\\n" : c.cp == '\r' ? "\\r"
                          : c.cp == '\t' ? "\\t" : NULL;

        if (esc != NULL) {
            sb_puts(b, esc);
        } else if (c.cp == (unsigned char)quote) {
            sb_putc(b, '\\');
            sb_putc(b, quote);
        } else if (c.cp < 0x20 || c.cp == 0x7F || (c.cp >= 0x80 && !uc_printable(c.cp))) {
            put_hex_escape(b, c.cp);
        } else {
            sb_char(b, c.cp, c.marked);
        }
    }
    sb_putc(b, quote);
}

static void put_bytes(struct sb *b, const struct str *s)
{
    bool single = s->n > 0 && memchr(s->s, '\'', s->n) != NULL;
    bool twice = s->n > 0 && memchr(s->s, '"', s->n) != NULL;
    char quote = single && !twice ? '"' : '\'';
    size_t from = b->n;

    sb_putc(b, 'b');
    sb_putc(b, quote);
    for (size_t i = 0; i < s->n && !b->r->failed; i++) {
        unsigned char c = (unsigned char)s->s[i];

        if (c == '\n' || c == '\r' || c == '\t') {
            sb_puts(b, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
        } else if (c == '\\' || c == (unsigned char)quote) {
            sb_putc(b, '\\');
            sb_putc(b, (char)c);
        } else if (c < 0x20 || c >= 0x7F) {
            put_hex_escape(b, c);
        } else {
            sb_putc(b, (char)c);
        }
    }
    sb_putc(b, quote);
    if (s->n_marks > 0) {
        sb_mark(b, from, b->n);
    }
}

static void put_big(struct sb *b, struct val v)
{
    size_t n;
    char *digits;

    if (big_bits(v) > 4300 * 10 / 3) {
        run_fail(b->r, "ValueError: Exceeds the limit (4300 digits) for integer string conversion");
        return;
    }
    digits = big_digits(b->r, v, 10, &n);
    if (n > 4300) {
        run_fail(b->r, "ValueError: Exceeds the limit (4300 digits) for integer string conversion");
        return;
    }
    if (v.big->neg) {
        sb_putc(b, '-');
    }
    sb_add(b, digits, n);
}

static void put_items(struct sb *b, const struct list *l, const char *open, const char *close)
{
    sb_puts(b, open);
    for (size_t i = 0; i < l->n && !b->r->failed; i++) {
        if (i > 0) {
            sb_puts(b, ", ");
        }
        put_repr(b, l->v[i]);
    }
    sb_puts(b, close);
}

static void put_dict(struct sb *b, const struct dict *d)
{
    sb_putc(b, '{');
    for (size_t i = 0; i < d->n && !b->r->failed; i++) {
        if (i > 0) {
            sb_puts(b, ", ");
        }
        put_repr(b, d->e[i].key);
        sb_puts(b, ": ");
        put_repr(b, d->e[i].value);
    }
    sb_putc(b, '}');
}

static void put_view(struct sb *b, struct val v)
{
    sb_puts(b, v_type(v));
    put_items(b, list_of(b->r, v), "([", "])");
}

static void put_range(struct sb *b, const struct range *g)
{
    char text[100];

    if (g->step == 1) {
        snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64 ")", g->start, g->stop);
    } else {
        snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64 ", %" PRId64 ")", g->start,
                 g->stop, g->step);
    }
    sb_puts(b, text);
}

/* A namespace may hold itself, which is shown as Python shows it. */
struct printing {
    const struct dict *space;
    struct printing *up;
};

static void put_space(struct sb *b, const struct dict *space)
{
    struct printing self = { .space = space, .up = b->r->printing };

    sb_puts(b, "<Namespace ");
    for (const struct printing *p = self.up; p != NULL; p = p->up) {
        if (p->space == space) {
            sb_puts(b, "{...}>");
            return;
        }
    }
    b->r->printing = &self;
    put_dict(b, space);
    b->r->printing = self.up;
    sb_putc(b, '>');
}

static void put_function(struct sb *b, const char *name)
{
    static const char *const classes[][2] = {
        { "namespace", "Namespace" }, { "cycler", "Cycler" }, { "joiner", "Joiner" },
    };
    char text[80];

    snprintf(text, sizeof text, "<function %s>", name);
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        if (strcmp(name, classes[i][0]) == 0) {
            snprintf(text, sizeof text, "<class 'jinja2.utils.%s'>", classes[i][1]);
        }
    }
    sb_puts(b, text);
}

/* What is not data prints as Python prints an object, without an address. */
static void put_object(struct sb *b, struct val v)
{
    char text[100];

    switch (v.kind) {
    case V_MACRO:
        if (v.macro->node->flag & MACRO_ANONYMOUS) {
            sb_puts(b, "<Macro anonymous>");
            return;
        }
        sb_puts(b, "<Macro '");
        sb_str(b, v.macro->node->name);
        sb_puts(b, "'>");
        return;
    case V_SPACE:
        put_space(b, v.space);
        return;
    case V_LOOP:
        snprintf(text, sizeof text, "<LoopContext %" PRId64 "/%" PRId64 ">", v.loop->index0 + 1,
                 loop_length(b->r, v.loop));
        break;
    case V_FUNC:
        put_function(b, v.func->name);
        return;
    case V_METHOD:
        snprintf(text, sizeof text, "<built-in method %s of %s object>", v.method->fn->name,
                 v_type(v.method->self));
        break;
    case V_TYPE:
        snprintf(text, sizeof text, "<class 'dict'>");
        break;
    case V_ITER:
        snprintf(text, sizeof text, "<%s object>", v.iter->what);
        break;
    case V_BLOCKS:
        snprintf(text, sizeof text, "<TemplateReference None>");
        break;
    default:
        snprintf(text, sizeof text, "<%s object>", v_type(v));
        break;
    }
    sb_puts(b, text);
}

static void put_value(struct sb *b, struct val v)
{
    char text[40];

    switch (v.kind) {
    case V_ABSENT:
    case V_NONE:
        sb_puts(b, "None");
        return;
    case V_UNDEF:
        sb_puts(b, "Undefined");
        return;
    case V_BOOL:
        sb_puts(b, v.b ? "True" : "False");
        return;
    case V_INT:
        sb_add(b, text, (size_t)snprintf(text, sizeof text, "%" PRId64, v.i));
        return;
    case V_BIG:
        put_big(b, v);
        return;
    case V_FLOAT:
        sb_add(b, text, num_repr(v.f, text));
        return;
    case V_STR:
        if (v.str->markup) {
            sb_puts(b, "Markup(");
        }
        put_quoted(b, v.str);
        if (v.str->markup) {
            sb_putc(b, ')');
        }
        return;
    case V_BYTES:
        put_bytes(b, v.str);
        return;
    case V_LIST:
        put_items(b, v.list, "[", "]");
        return;
    case V_TUPLE:
        put_items(b, v.list, "(", v.list->n == 1 ? ",)" : ")");
        return;
    case V_DICT:
        put_dict(b, v.dict);
        return;
    case V_VIEW:
        put_view(b, v);
        return;
    case V_RANGE:
        put_range(b, v.range);
        return;
    case V_SLICE:
        put_items(b, &(struct list){ .v = &v.slice->start, .n = 3 }, "slice(", ")");
        return;
    default:
        put_object(b, v);
    }
}

void put_repr(struct sb *b, struct val v)
{
    if (!run_step(b->r, 1) || !run_enter(b->r)) {
        return;
    }
    put_value(b, v);
    run_leave(b->r);
}

void put_str(struct sb *b, struct val v)
{
    if (v.kind == V_STR) {
        sb_str(b, v.str);
    } else if (v.kind != V_UNDEF) {
        put_repr(b, v);
    }
}

struct str *to_str(struct jrun *r, struct val v)
{
    struct sb b;

    if (v.kind == V_STR) {
        return str_plain(r, v.str);
    }
    sb_init(&b, r);
    put_str(&b, v);
    return sb_take(&b);
}

struct str *to_repr(struct jrun *r, struct val v)
{
    struct sb b;

    sb_init(&b, r);
    put_repr(&b, v);
    return sb_take(&b);
}

void put_escaped(struct sb *b, struct val v)
{
    struct str *s = v.kind == V_STR ? v.str : to_str(b->r, v);
    size_t done = 0;

    if (s->markup) {
        sb_str(b, s);
        return;
    }
    for (size_t i = 0; i < s->n && !b->r->failed; i++) {
        const char *esc = s->s[i] == '<' ? "&lt;" : s->s[i] == '>' ? "&gt;"
                          : s->s[i] == '&' ? "&amp;" : s->s[i] == '"' ? "&#34;"
                          : s->s[i] == '\'' ? "&#39;" : NULL;

        if (esc != NULL) {
            sb_part(b, s, done, i);
            sb_puts(b, esc);
            done = i + 1;
        }
    }
    sb_part(b, s, done, s->n);
}

/* ---- JSON --------------------------------------------------------------------------- */

static void put_json_string(struct sb *b, const struct str *s, bool ascii)
{
    struct chars c = chars_of(s);
    char text[16];

    sb_putc(b, '"');
    while (chars_next(&c) && !b->r->failed) {
        const char *esc = c.cp == '"' ? "\\\"" : c.cp == '\\' ? "\\\\" : c.cp == '\n' ? "\\n"
                          : c.cp == '\r' ? "\\r" : c.cp == '\t' ? "\\t" : c.cp == '\b' ? "\\b"
                          : c.cp == '\f' ? "\\f" : NULL;

        if (esc != NULL) {
            sb_puts(b, esc);
        } else if (c.cp < 0x20 || (ascii && c.cp >= 0x7F && c.cp < 0x10000 && c.cp != 0x7F)) {
            snprintf(text, sizeof text, "\\u%04x", (unsigned)c.cp);
            sb_puts(b, text);
        } else if (ascii && c.cp >= 0x10000) {
            snprintf(text, sizeof text, "\\u%04x\\u%04x",
                     (unsigned)(0xD800 + ((c.cp - 0x10000) >> 10)),
                     (unsigned)(0xDC00 + ((c.cp - 0x10000) & 0x3FF)));
            sb_puts(b, text);
        } else {
            sb_char(b, c.cp, c.marked);
        }
    }
    sb_putc(b, '"');
}

static void put_json_float(struct sb *b, double x)
{
    char text[40];

    if (isfinite(x)) {
        sb_add(b, text, num_repr(x, text));
    } else {
        sb_puts(b, isnan(x) ? "NaN" : x < 0 ? "-Infinity" : "Infinity");
    }
}

static void json_newline(struct sb *b, const struct json_style *style, int level)
{
    if (style->indent == NULL) {
        return;
    }
    sb_putc(b, '\n');
    for (int i = 0; i < level && !b->r->failed; i++) {
        sb_str(b, style->indent);
    }
}

static void put_json_key(struct sb *b, struct val key, const struct json_style *style)
{
    switch (key.kind) {
    case V_STR:
        put_json_string(b, key.str, style->ascii);
        return;
    case V_NONE:
        sb_puts(b, "\"null\"");
        return;
    case V_BOOL:
        sb_puts(b, key.b ? "\"true\"" : "\"false\"");
        return;
    case V_INT:
    case V_BIG:
    case V_FLOAT:
        sb_putc(b, '"');
        if (key.kind == V_FLOAT) {
            put_json_float(b, key.f);
        } else {
            put_repr(b, key);
        }
        sb_putc(b, '"');
        return;
    default:
        run_fail(b->r, "TypeError: keys must be str, int, float, bool or None, not %s",
                 v_type(key));
    }
}

static void put_json_at(struct sb *b, struct val v, const struct json_style *style, int level);

static void put_json_list(struct sb *b, const struct list *l, const struct json_style *style,
                          int level)
{
    sb_putc(b, '[');
    for (size_t i = 0; i < l->n && !b->r->failed; i++) {
        if (i > 0) {
            sb_puts(b, style->item_sep);
        }
        json_newline(b, style, level + 1);
        put_json_at(b, l->v[i], style, level + 1);
    }
    if (l->n > 0) {
        json_newline(b, style, level);
    }
    sb_putc(b, ']');
}

static void put_json_dict(struct sb *b, const struct dict *d, const struct json_style *style,
                          int level)
{
    struct list *order = list_new(b->r, d->n), *keys = list_new(b->r, d->n);

    for (size_t i = 0; i < d->n; i++) {
        list_push(b->r, order, v_int((int64_t)i));
        list_push(b->r, keys, d->e[i].key);
    }
    if (style->sort_keys) {
        list_sort(b->r, order, keys, false);
    }
    sb_putc(b, '{');
    for (size_t i = 0; i < d->n && !b->r->failed; i++) {
        const struct entry *e = &d->e[order->v[i].i];

        if (i > 0) {
            sb_puts(b, style->item_sep);
        }
        json_newline(b, style, level + 1);
        put_json_key(b, e->key, style);
        sb_puts(b, style->key_sep);
        put_json_at(b, e->value, style, level + 1);
    }
    if (d->n > 0) {
        json_newline(b, style, level);
    }
    sb_putc(b, '}');
}

static void put_json_value(struct sb *b, struct val v, const struct json_style *style, int level)
{
    switch (v.kind) {
    case V_NONE:
        sb_puts(b, "null");
        return;
    case V_BOOL:
        sb_puts(b, v.b ? "true" : "false");
        return;
    case V_INT:
    case V_BIG:
        put_repr(b, v);
        return;
    case V_FLOAT:
        put_json_float(b, v.f);
        return;
    case V_STR:
        put_json_string(b, v.str, style->ascii);
        return;
    case V_LIST:
    case V_TUPLE:
        put_json_list(b, v.list, style, level);
        return;
    case V_DICT:
        put_json_dict(b, v.dict, style, level);
        return;
    default:
        run_fail(b->r, "TypeError: Object of type %s is not JSON serializable", v_type(v));
    }
}

static void put_json_at(struct sb *b, struct val v, const struct json_style *style, int level)
{
    if (!run_step(b->r, 1) || !run_enter(b->r)) {
        return;
    }
    put_json_value(b, v, style, level);
    run_leave(b->r);
}

void put_json(struct sb *b, struct val v, const struct json_style *style)
{
    put_json_at(b, v, style, 0);
}

/* jinja_format.c - the % operator of strings and str.format(). */
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "text/jinja_spec.h"

/* ---- % ------------------------------------------------------------------------------ */

struct percent {
    struct jrun *r;
    struct sb out;
    const struct str *fmt;
    size_t pos;
    struct val args;
    size_t used;
    bool single_used;
    bool escape;           /* the format is markup, so what goes in is escaped */
    /* of the current conversion */
    struct fmt_spec f;
    bool left;
    struct val mapped;     /* %(name)s */
};

static struct val next_arg(struct percent *p)
{
    if (v_given(p->mapped)) {
        return p->mapped;
    }
    if (p->args.kind == V_TUPLE) {
        if (p->used < p->args.list->n) {
            return p->args.list->v[p->used++];
        }
    } else if (!p->single_used) {
        p->single_used = true;
        return p->args;
    }
    return run_fail(p->r, "TypeError: not enough arguments for format string");
}

static char peek(const struct percent *p)
{
    return p->pos < p->fmt->n ? p->fmt->s[p->pos] : '\0';
}

/* "(name)" behind the percent sign; names may contain balanced parentheses. */
static void read_key(struct percent *p)
{
    size_t begin = ++p->pos;
    int depth = 1;
    const struct val *found;
    struct val key;

    for (; p->pos < p->fmt->n; p->pos++) {
        depth += peek(p) == '(' ? 1 : peek(p) == ')' ? -1 : 0;
        if (depth == 0) {
            break;
        }
    }
    if (depth != 0) {
        run_fail(p->r, "ValueError: incomplete format key");
        return;
    }
    key = v_str(str_part(p->r, p->fmt, begin, p->pos++));
    if (p->args.kind != V_DICT) {
        run_fail(p->r, "TypeError: format requires a mapping");
        return;
    }
    found = dict_get(p->r, p->args.dict, key);
    if (found == NULL) {
        run_fail(p->r, "KeyError: '%.*s'", (int)key.str->n, key.str->s);
        return;
    }
    p->mapped = *found;
}

/* A number, or * for the next argument; -1 where there is neither. */
static int64_t read_number(struct percent *p)
{
    int64_t n = -1;

    if (peek(p) == '*') {
        struct val v = next_arg(p);

        p->pos++;
        if (!p->r->failed && v.kind != V_INT && v.kind != V_BOOL) {
            run_fail(p->r, "TypeError: * wants int");
            return -1;
        }
        n = p->r->failed ? 0 : v_small(v);
        if (n < 0) {
            p->left = true;
            n = n == INT64_MIN ? 0 : -n;
        }
        return n > 1 << 24 ? (1 << 24) + 1 : n;
    }
    while (peek(p) >= '0' && peek(p) <= '9') {
        n = (n < 0 ? 0 : n) * 10 + (p->fmt->s[p->pos++] - '0');
        n = n > 1 << 24 ? (1 << 24) + 1 : n;
    }
    return n;
}

static void read_conversion(struct percent *p)
{
    const char *flags = "-+ #0";

    p->f = (struct fmt_spec){ .fill = ' ', .width = -1, .precision = -1 };
    p->left = false;
    p->mapped = v_absent();
    if (peek(p) == '(') {
        read_key(p);
    }
    for (; peek(p) != '\0' && strchr(flags, peek(p)) != NULL; p->pos++) {
        p->left = p->left || peek(p) == '-';
        p->f.alt = p->f.alt || peek(p) == '#';
        p->f.zero = p->f.zero || peek(p) == '0';
        if (peek(p) == '+' || (peek(p) == ' ' && p->f.sign == '\0')) {
            p->f.sign = peek(p);
        }
    }
    p->f.width = read_number(p);
    if (peek(p) == '.') {
        p->pos++;
        p->f.precision = read_number(p);
        p->f.precision = p->f.precision < 0 ? 0 : p->f.precision;
    }
    if (peek(p) != '\0' && strchr("hlL", peek(p)) != NULL) {
        p->pos++;
    }
    if (p->f.width > 1 << 24) {
        run_fail(p->r, "ValueError: width too big");
    }
    p->f.align = p->left ? '<' : '\0';
    p->f.zero = p->f.zero && !p->left;
}

static void percent_text(struct percent *p, struct str *s)
{
    if (p->escape && !s->markup) {
        struct sb b;

        sb_init(&b, p->r);
        put_escaped(&b, v_str(s));
        s = sb_take(&b);
    }
    if (p->f.precision >= 0 && (size_t)p->f.precision < str_len(s)) {
        s = str_part(p->r, s, 0, str_at(s, (size_t)p->f.precision));
    }
    sb_pad(&p->out, s, p->f.width > 0 ? (size_t)p->f.width : 0, ' ', p->left ? '<' : '>');
}

/* repr() with everything outside ASCII escaped. */
static struct str *to_ascii(struct jrun *r, struct val v)
{
    struct str *s = to_repr(r, v);
    struct chars c = chars_of(s);
    struct sb b;

    sb_init(&b, r);
    while (chars_next(&c) && !r->failed) {
        if (c.cp < 0x80) {
            sb_char(&b, c.cp, c.marked);
        } else {
            const char *fmt = c.cp < 0x100 ? "\\x%02x" : c.cp < 0x10000 ? "\\u%04x" : "\\U%08x";
            char text[12];

            sb_add(&b, text, (size_t)snprintf(text, sizeof text, fmt, (unsigned)c.cp));
        }
    }
    return sb_take(&b);
}

static void percent_char(struct percent *p, struct val v)
{
    struct sb b;

    sb_init(&b, p->r);
    if (v.kind == V_STR && str_len(v.str) == 1) {
        sb_str(&b, v.str);
    } else if (v_is_int(v) && v.kind != V_BIG && v_small(v) >= 0 && v_small(v) <= 0x10FFFF &&
               !(v_small(v) >= 0xD800 && v_small(v) < 0xE000)) {
        sb_char(&b, (uint32_t)v_small(v), false);
    } else {
        run_fail(p->r, v_is_int(v) ? "OverflowError: %%c arg not in range(0x110000)"
                                 : "TypeError: %%c requires int or char");
        return;
    }
    p->f.precision = -1;
    percent_text(p, sb_take(&b));
}

/* The precision of an integer is its least number of digits. */
static void percent_int(struct percent *p, struct val v)
{
    if (v.kind == V_UNDEF) {
        undef_fail(p->r, v);
        return;
    }
    if (p->f.type == 'd' && v.kind == V_FLOAT) {
        num_trunc(p->r, v.f, true, &v);
    }
    if (!v_is_int(v)) {
        run_fail(p->r, p->f.type == 'd'
                 ? "TypeError: %%%c format: a real number is required, not %s"
                 : "TypeError: %%%c format: an integer is required, not %s", p->f.type,
                 v_type(v));
        return;
    }
    if (p->f.precision > 4000) {
        run_fail(p->r, "ValueError: precision too big");
        return;
    }
    if (p->f.precision >= 0) {
        struct fmt_spec digits = { .fill = '0', .align = '=', .width = p->f.precision,
                                   .precision = -1, .type = p->f.type };
        struct sb b;
        struct str *s;
        const char *prefix = !p->f.alt || p->f.type == 'd' ? "" : p->f.type == 'o' ? "0o"
                             : p->f.type == 'x' ? "0x" : "0X";

        sb_init(&b, p->r);
        put_int(&b, &digits, big_sign(v) < 0 ? num_neg(p->r, v) : v);
        s = sb_take(&b);
        p->f.fill = p->f.zero ? '0' : ' ';
        put_number(&p->out, &p->f, big_sign(v) < 0, prefix, s->s, s->n);
        return;
    }
    p->f.fill = p->f.zero ? '0' : ' ';
    put_int(&p->out, &p->f, v.kind == V_BOOL ? v_int(v.b) : v);
}

static void percent_float(struct percent *p, struct val v)
{
    double x;

    if (v.kind == V_UNDEF) {
        undef_fail(p->r, v);
        return;
    }
    if (!v_is_num(v)) {
        run_fail(p->r, "TypeError: must be real number, not %s", v_type(v));
        return;
    }
    p->f.fill = p->f.zero ? '0' : ' ';
    if (num_double(p->r, v, &x)) {
        put_float(&p->out, &p->f, x);
    }
}

static void convert(struct percent *p)
{
    char type = peek(p);
    struct val v;

    if (p->pos >= p->fmt->n) {
        run_fail(p->r, "ValueError: incomplete format");
        return;
    }
    p->pos++;
    if (type == '\0' || strchr("diuoxXeEfFgGcrsa", type) == NULL) {
        run_fail(p->r, "ValueError: unsupported format character (0x%x)", (unsigned char)type);
        return;
    }
    v = next_arg(p);
    p->f.type = type == 'i' || type == 'u' ? 'd' : type;
    if (p->r->failed) {
        return;
    }
    switch (p->f.type) {
    case 's':
        percent_text(p, v.kind == V_STR ? v.str : to_str(p->r, v));
        return;
    case 'r':
        percent_text(p, to_repr(p->r, v));
        return;
    case 'a':
        percent_text(p, to_ascii(p->r, v));
        return;
    case 'c':
        percent_char(p, v);
        return;
    case 'd':
    case 'o':
    case 'x':
    case 'X':
        percent_int(p, v);
        return;
    default:
        percent_float(p, v);
    }
}

/* Whether Python takes the one argument for a mapping, which need not be used up. */
static bool looks_like_mapping(struct val v)
{
    return v.kind == V_DICT || v.kind == V_LIST || v.kind == V_RANGE || v.kind == V_BYTES ||
           v.kind == V_UNDEF;
}

struct val format_percent(struct jrun *r, struct str *fmt, struct val args)
{
    struct percent p = { .r = r, .fmt = fmt, .args = args, .escape = fmt->markup };
    struct str *s;

    sb_init(&p.out, r);
    while (p.pos < fmt->n && !r->failed) {
        const char *sign = memchr(fmt->s + p.pos, '%', fmt->n - p.pos);
        size_t to = sign != NULL ? (size_t)(sign - fmt->s) : fmt->n;

        sb_part(&p.out, fmt, p.pos, to);
        p.pos = to + (sign != NULL);
        if (sign != NULL && peek(&p) == '%') {
            sb_putc(&p.out, '%');
            p.pos++;
        } else if (sign != NULL) {
            read_conversion(&p);
            if (!r->failed) {
                convert(&p);
            }
        }
    }
    if (!r->failed && ((args.kind == V_TUPLE && p.used < args.list->n) ||
                       (args.kind != V_TUPLE && !p.single_used && !looks_like_mapping(args)))) {
        return run_fail(r, "TypeError: not all arguments converted during string formatting");
    }
    s = sb_take(&p.out);
    return v_str(fmt->markup ? str_markup(r, s) : s);
}

/* ---- str.format --------------------------------------------------------------------- */

struct braces {
    struct jrun *r;
    const struct args *args;
    struct val map;        /* of format_map; V_ABSENT: keywords of args */
    int64_t next;          /* next automatic index; -1: fields are numbered by hand */
};

static void put_fields(struct braces *f, struct sb *out, const struct str *s, int depth);

static struct val positional(struct braces *f, int64_t i)
{
    if (v_given(f->map) || i < 0 || (size_t)i >= f->args->n_pos) {
        return run_fail(f->r, "IndexError: Replacement index %lld out of range for positional "
                              "args tuple", (long long)i);
    }
    return f->args->pos[i];
}

static bool all_digits(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9') {
            return false;
        }
    }
    return n > 0;
}

static int64_t index_of(const char *s, size_t n)
{
    int64_t i = 0;

    for (size_t k = 0; k < n; k++) {
        i = i > INT32_MAX ? INT32_MAX : i * 10 + (s[k] - '0');
    }
    return i;
}

/* The first part of a field name: nothing, a number, or a keyword. */
static struct val first_value(struct braces *f, const struct str *name)
{
    struct val map = v_given(f->map) ? f->map
                     : v_dict(f->args->kw != NULL ? f->args->kw : &f->r->nodict);
    struct val v;

    if (name->n == 0) {
        if (f->next < 0) {
            return run_fail(f->r, "ValueError: cannot switch from manual field specification to "
                                  "automatic field numbering");
        }
        return positional(f, f->next++);
    }
    if (all_digits(name->s, name->n)) {
        if (f->next > 0) {
            return run_fail(f->r, "ValueError: cannot switch from automatic field numbering to "
                                  "manual field specification");
        }
        f->next = -1;
        return positional(f, index_of(name->s, name->n));
    }
    v = map.kind == V_DICT && dict_get(f->r, map.dict, v_str((struct str *)(uintptr_t)name)) != NULL
        ? *dict_get(f->r, map.dict, v_str((struct str *)(uintptr_t)name)) : v_absent();
    if (v.kind == V_ABSENT) {
        return run_fail(f->r, "KeyError: '%.*s'", (int)name->n, name->s);
    }
    return v;
}

/* name(.attribute | [index])* */
static struct val field_value(struct braces *f, const struct str *s)
{
    size_t p = 0;
    struct val v;

    while (p < s->n && s->s[p] != '.' && s->s[p] != '[') {
        p++;
    }
    if (p == 0 && s->n > 0) {
        return run_fail(f->r, "KeyError: ''");   /* only a bare field is numbered */
    }
    v = first_value(f, str_part(f->r, s, 0, p));
    while (p < s->n && !f->r->failed) {
        size_t begin = p + 1, end = begin;

        if (s->s[p] == '.') {
            while (end < s->n && s->s[end] != '.' && s->s[end] != '[') {
                end++;
            }
        } else if (s->s[p] == '[') {
            while (end < s->n && s->s[end] != ']') {
                end++;
            }
        } else {
            return run_fail(f->r, "ValueError: Only '.' or '[' may follow ']' in format field "
                                  "specifier");
        }
        if (end == begin || (s->s[p] == '[' && end == s->n)) {
            return run_fail(f->r, "ValueError: Empty attribute in format string");
        }
        if (s->s[p] == '.') {
            v = get_attr(f->r, v, str_part(f->r, s, begin, end));
            p = end;
        } else {
            v = get_item(f->r, v, all_digits(s->s + begin, end - begin)
                                  ? v_int(index_of(s->s + begin, end - begin))
                                  : v_str(str_part(f->r, s, begin, end)));
            p = end + 1;
        }
    }
    return v;
}

/* What stands between braces: name, !conversion, :specification. */
static void put_field(struct braces *f, struct sb *out, const struct str *s, int depth)
{
    size_t name = 0, spec;
    char conv = '\0';
    struct val v;
    struct sb b;

    for (bool inside = false; name < s->n; name++) {
        inside = s->s[name] == '[' || (inside && s->s[name] != ']');
        if (!inside && (s->s[name] == '!' || s->s[name] == ':')) {
            break;
        }
    }
    spec = name;
    if (spec < s->n && s->s[spec] == '!') {
        if (spec + 1 >= s->n || (spec + 2 < s->n && s->s[spec + 2] != ':')) {
            run_fail(f->r, "ValueError: expected ':' after conversion specifier");
            return;
        }
        conv = s->s[spec + 1];
        spec += 2;
    }
    v = field_value(f, str_part(f->r, s, 0, name));
    if (conv == 'r' || conv == 's' || conv == 'a') {
        v = v_str(conv == 'r' ? to_repr(f->r, v) : conv == 's' ? to_str(f->r, v)
                                                               : to_ascii(f->r, v));
    } else if (conv != '\0') {
        run_fail(f->r, "ValueError: Unknown conversion specifier '%c'", conv);
    }
    sb_init(&b, f->r);
    if (spec < s->n) {
        put_fields(f, &b, str_part(f->r, s, spec + 1, s->n), depth + 1);
    }
    if (!f->r->failed) {
        format_spec(out, v, sb_take(&b));
    }
}

/* End of the field that begins behind an opening brace; SIZE_MAX where it does not end. */
static size_t field_end(const struct str *s, size_t p)
{
    int depth = 1;

    for (; p < s->n; p++) {
        depth += s->s[p] == '{' ? 1 : s->s[p] == '}' ? -1 : 0;
        if (depth == 0) {
            return p;
        }
    }
    return SIZE_MAX;
}

static void put_fields(struct braces *f, struct sb *out, const struct str *s, int depth)
{
    if (depth > 1 && memchr(s->s, '{', s->n) != NULL) {
        run_fail(f->r, "ValueError: Max string recursion exceeded");
        return;
    }
    for (size_t p = 0; p < s->n && !f->r->failed;) {
        size_t run = p, end;

        while (run < s->n && s->s[run] != '{' && s->s[run] != '}') {
            run++;
        }
        sb_part(out, s, p, run);
        if (run == s->n) {
            return;
        }
        if (run + 1 < s->n && s->s[run + 1] == s->s[run]) {
            sb_part(out, s, run, run + 1);
            p = run + 2;
            continue;
        }
        end = s->s[run] == '{' ? field_end(s, run + 1) : SIZE_MAX;
        if (end == SIZE_MAX) {
            run_fail(f->r, "ValueError: Single '%c' encountered in format string", s->s[run]);
            return;
        }
        put_field(f, out, str_part(f->r, s, run + 1, end), depth);
        p = end + 1;
    }
}

struct val format_braces(struct jrun *r, struct str *fmt, const struct args *args, struct val map)
{
    struct braces f = { .r = r, .args = args, .map = map };
    struct sb out;
    struct str *s;

    sb_init(&out, r);
    put_fields(&f, &out, fmt, 0);
    s = sb_take(&out);
    return v_str(fmt->markup ? str_markup(r, s) : s);
}

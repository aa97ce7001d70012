/* jinja_spec.c - one value through Python's format mini-language: "{:>8,.2f}". */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/jinja_spec.h"

/* The largest double has 309 digits before the point. */
enum { PRECISION_MAX = 1000, FLOAT_TEXT = PRECISION_MAX + 400, WIDTH_MAX = 1 << 24 };

static bool is_align(uint32_t c)
{
    return c == '<' || c == '>' || c == '=' || c == '^';
}

/* A decimal number at *p; -1 where there is none. */
static int64_t number_at(const struct str *s, size_t *p)
{
    int64_t n = -1;

    while (*p < s->n && s->s[*p] >= '0' && s->s[*p] <= '9') {
        n = (n < 0 ? 0 : n) * 10 + (s->s[(*p)++] - '0');
        n = n > WIDTH_MAX ? WIDTH_MAX + 1 : n;
    }
    return n;
}

static bool at(const struct str *s, size_t p, char c)
{
    return p < s->n && s->s[p] == c;
}

static bool parse_spec(struct jrun *r, const struct str *s, struct fmt_spec *f)
{
    size_t p = 0;
    uint32_t cp = 0;
    int len = utf8_decode(s->s, s->n, &cp);
    bool filled = false;

    *f = (struct fmt_spec){ .fill = ' ', .width = -1, .precision = -1 };
    if (len > 0 && (size_t)len < s->n && is_align((unsigned char)s->s[len])) {
        f->fill = cp;
        filled = true;
        f->align = s->s[len];
        p = (size_t)len + 1;
    } else if (s->n > 0 && is_align((unsigned char)s->s[0])) {
        f->align = s->s[p++];
    }
    if (at(s, p, '+') || at(s, p, '-') || at(s, p, ' ')) {
        f->sign = s->s[p++];
    }
    if (at(s, p, 'z')) {
        f->no_neg_zero = true;
        p++;
    }
    if (at(s, p, '#')) {
        f->alt = true;
        p++;
    }
    if (at(s, p, '0') && !filled) {
        f->fill = '0';
        f->zero = f->align == '\0';
        p++;
    }
    f->width = number_at(s, &p);
    if (at(s, p, ',') || at(s, p, '_')) {
        f->group = s->s[p++];
        if (at(s, p, ',') || at(s, p, '_')) {
            run_fail(r, "ValueError: Cannot specify both ',' and '_'.");
            return false;
        }
    }
    if (at(s, p, '.')) {
        p++;
        f->precision = number_at(s, &p);
        if (f->precision < 0) {
            run_fail(r, "ValueError: Format specifier missing precision");
            return false;
        }
    }
    if (p < s->n) {
        f->type = s->s[p++];
    }
    if (p < s->n) {
        run_fail(r, "ValueError: Invalid format specifier");
        return false;
    }
    if (f->width > WIDTH_MAX) {
        run_fail(r, "ValueError: the width of a format exceeds the limit of %d", WIDTH_MAX);
        return false;
    }
    return true;
}

/* ---- numbers ------------------------------------------------------------------------ */

/* The whole part with separators every `every` digits, at least `width` wide when zeros fill. */
static void put_grouped(struct sb *b, const char *digits, size_t n, char sep, size_t every,
                        int64_t width)
{
    size_t total = n;

    if (sep != '\0') {
        while ((int64_t)(total + (total - 1) / every) < width) {
            total++;
        }
    } else if (width > (int64_t)n) {
        total = (size_t)width;
    }
    for (size_t i = 0; i < total && !b->r->failed; i++) {
        if (sep != '\0' && i > 0 && (total - i) % every == 0) {
            sb_putc(b, sep);
        }
        sb_putc(b, i < total - n ? '0' : digits[i - (total - n)]);
    }
}

void put_number(struct sb *b, const struct fmt_spec *f, bool neg, const char *prefix,
                const char *digits, size_t n)
{
    const char *sign = neg ? "-" : f->sign == '+' ? "+" : f->sign == ' ' ? " " : "";
    size_t whole = 0, head = strlen(sign) + strlen(prefix);
    size_t every = f->group == '_' && f->type != '\0' && strchr("bxXo", f->type) ? 4 : 3;
    char align = f->align ? f->align : f->zero ? '=' : '>';
    bool zeros = align == '=' && f->fill == '0';
    struct sb text;
    struct str *s;
    int64_t room;

    sb_init(&text, b->r);
    while (whole < n && ((digits[whole] >= '0' && digits[whole] <= '9') ||
                         (every == 4 && digits[whole] != '.'))) {
        whole++;
    }
    room = f->width - (int64_t)head - (int64_t)(n - whole);
    put_grouped(&text, digits, whole, f->group, every, zeros ? room : 0);
    sb_add(&text, digits + whole, n - whole);
    s = sb_take(&text);
    if (align == '=') {
        size_t len = head + str_len(s);

        sb_puts(b, sign);
        sb_puts(b, prefix);
        sb_fill(b, f->fill, f->width > (int64_t)len ? (size_t)f->width - len : 0);
        sb_str(b, s);
        return;
    }
    sb_init(&text, b->r);
    sb_puts(&text, sign);
    sb_puts(&text, prefix);
    sb_str(&text, s);
    sb_pad(b, sb_take(&text), f->width > 0 ? (size_t)f->width : 0, f->fill, align);
}

void put_int(struct sb *b, const struct fmt_spec *f, struct val v)
{
    int base = f->type == 'b' ? 2 : f->type == 'o' ? 8 : f->type == 'x' || f->type == 'X' ? 16 : 10;
    const char *prefix = !f->alt || base == 10 ? "" : base == 2 ? "0b" : base == 8 ? "0o"
                         : f->type == 'x' ? "0x" : "0X";
    size_t n;
    char *digits;

    if (base == 10 && big_bits(v) > 14300) {
        run_fail(b->r, "ValueError: Exceeds the limit (4300 digits) for integer string conversion");
        return;
    }
    digits = big_digits(b->r, v, base, &n);
    for (size_t i = 0; f->type == 'X' && i < n; i++) {
        digits[i] -= digits[i] >= 'a' ? 32 : 0;
    }
    put_number(b, f, big_sign(v) < 0, prefix, digits, n);
}

/* Adds ".0" or "." where the text of a float has no point yet. */
static size_t add_point(char *text, size_t n, const char *point)
{
    size_t e = strcspn(text, "e");

    if (strchr(text, '.') != NULL) {
        return n;
    }
    memmove(text + e + strlen(point), text + e, n - e + 1);
    memcpy(text + e, point, strlen(point));
    return n + strlen(point);
}

/* Digits and a point, or digits and an exponent, as g does it; alt keeps zeros at the end.
 * `point`: with a digit behind the point always, which leaves one digit less before an
 * exponent is needed.  (The C library's own # flag with g is wrong in some versions.) */
static size_t general_text(char text[FLOAT_TEXT], double x, int precision, bool alt, bool point)
{
    char e[FLOAT_TEXT], digits[FLOAT_TEXT];
    int p = precision > 0 ? precision : 1, n = 0, exp;
    size_t at = 0;

    snprintf(e, sizeof e, "%.*e", p - 1, x);
    for (const char *c = e; *c != 'e'; c++) {
        if (*c >= '0' && *c <= '9') {
            digits[n++] = *c;
        }
    }
    exp = atoi(strchr(e, 'e') + 1);
    while (!alt && n > 1 && digits[n - 1] == '0') {
        n--;
    }
    if (exp < -4 || exp >= p - point) {
        text[at++] = digits[0];
        if (n > 1 || alt) {
            text[at++] = '.';
        }
        memcpy(text + at, digits + 1, (size_t)n - 1);
        at += (size_t)n - 1;
        return at + (size_t)snprintf(text + at, FLOAT_TEXT - at, "e%+03d", exp);
    }
    for (int i = exp < 0 ? exp : 0; i <= exp || i < n; i++) {
        if (i == exp + 1) {
            text[at++] = '.';
        }
        text[at++] = i < 0 || i >= n ? '0' : digits[i];
    }
    if (n <= exp + 1 && (alt || point)) {
        text[at++] = '.';
    }
    if (n <= exp + 1 && point) {
        text[at++] = '0';
    }
    text[at] = '\0';
    return at;
}

void put_float(struct sb *b, const struct fmt_spec *f, double x)
{
    char text[FLOAT_TEXT], c[12];
    bool neg = signbit(x) && !isnan(x);
    int precision = f->precision >= 0 ? (int)f->precision : 6;
    char type = f->type == 'n' ? 'g' : f->type == '%' ? 'f' : f->type;
    size_t n;

    if (f->precision > PRECISION_MAX) {
        run_fail(b->r, "ValueError: precision too big");
        return;
    }
    if (f->type == '%') {
        x *= 100;
    }
    x = fabs(x);
    if (!isfinite(x)) {
        n = (size_t)sprintf(text, "%s", isnan(x) ? "nan" : "inf");
        for (size_t i = 0; i < n && type >= 'A' && type <= 'Z'; i++) {
            text[i] -= 32;
        }
    } else if (type == '\0' && f->precision < 0) {
        n = num_repr(x, text);
        text[n] = '\0';
        n = f->alt ? add_point(text, n, ".") : n;
    } else if (type == '\0') {
        n = general_text(text, x, precision, f->alt, true);
    } else if (type == 'g' || type == 'G') {
        n = general_text(text, x, precision, f->alt, false);
        for (size_t i = 0; i < n; i++) {
            text[i] = text[i] == 'e' && type == 'G' ? 'E' : text[i];
        }
    } else {
        snprintf(c, sizeof c, "%%%s.*%c", f->alt ? "#" : "", type);
        n = (size_t)snprintf(text, sizeof text, c, precision, x);
    }
    for (size_t i = 0; i < n; i++) {
        text[i] = text[i] == ',' ? '.' : text[i];   /* the locale's point */
    }
    if (f->no_neg_zero && strcspn(text, "123456789") >= strcspn(text, "eE")) {
        neg = false;
    }
    if (f->type == '%') {
        text[n++] = '%';
        text[n] = '\0';
    }
    put_number(b, f, neg, "", text, n);
}

/* ---- by type ------------------------------------------------------------------------ */

static void bad_type(struct jrun *r, const struct fmt_spec *f, struct val v)
{
    run_fail(r, "ValueError: Unknown format code '%c' for object of type '%s'", f->type,
             v_type(v));
}

static void put_text(struct sb *b, const struct fmt_spec *f, struct str *s)
{
    if (f->type != '\0' && f->type != 's') {
        bad_type(b->r, f, v_str(s));
        return;
    }
    if (f->sign != '\0' || f->alt || f->align == '=' || f->group != '\0' || f->no_neg_zero) {
        run_fail(b->r, "ValueError: this format specifier is not allowed for strings");
        return;
    }
    if (f->precision >= 0 && (size_t)f->precision < str_len(s)) {
        s = str_part(b->r, s, 0, str_at(s, (size_t)f->precision));
    }
    sb_pad(b, s, f->width > 0 ? (size_t)f->width : 0, f->fill, f->align ? f->align : '<');
}

static void put_int_spec(struct sb *b, const struct fmt_spec *f, struct val v)
{
    struct fmt_spec as_text = *f;
    struct sb c;
    double x;

    if (f->type != '\0' && strchr("eEfFgG%", f->type) != NULL) {
        if (num_double(b->r, v, &x)) {
            put_float(b, f, x);
        }
        return;
    }
    if (f->type != '\0' && strchr("bcdoxXn", f->type) == NULL) {
        bad_type(b->r, f, v);
        return;
    }
    if (f->no_neg_zero) {
        run_fail(b->r, "ValueError: Negative zero coercion (z) not allowed in integer format "
                 "specifier");
        return;
    }
    if (f->precision >= 0) {
        run_fail(b->r, "ValueError: Precision not allowed in integer format specifier");
        return;
    }
    if (f->group != '\0' && (f->type == 'c' || f->type == 'n' ||
                             (f->group == ',' && f->type != '\0' && f->type != 'd'))) {
        run_fail(b->r, "ValueError: Cannot specify '%c' with '%c'.", f->group, f->type);
        return;
    }
    if (f->type != 'c') {
        put_int(b, f, v);
        return;
    }
    if (f->sign != '\0' || v.kind == V_BIG || v_small(v) < 0 || v_small(v) > 0x10FFFF ||
        (v_small(v) >= 0xD800 && v_small(v) < 0xE000)) {
        run_fail(b->r, "OverflowError: %%c arg not in range(0x110000)");
        return;
    }
    sb_init(&c, b->r);
    sb_char(&c, (uint32_t)v_small(v), false);
    as_text.type = '\0';
    as_text.align = f->align == '\0' || f->align == '=' ? '>' : f->align;
    put_text(b, &as_text, sb_take(&c));
}

void format_spec(struct sb *b, struct val v, const struct str *spec)
{
    struct fmt_spec f;

    if (spec->n == 0) {
        put_str(b, v);
        return;
    }
    if (v.kind != V_STR && !v_is_num(v)) {
        run_fail(b->r, "TypeError: unsupported format string passed to %s.__format__", v_type(v));
        return;
    }
    if (!parse_spec(b->r, spec, &f)) {
        return;
    }
    if (f.group != '\0' && f.type == 'n') {
        run_fail(b->r, "ValueError: Cannot specify '%c' with 'n'.", f.group);
        return;
    }
    if (v.kind == V_STR) {
        put_text(b, &f, v.str);
    } else if (v.kind != V_FLOAT) {
        put_int_spec(b, &f, v.kind == V_BOOL ? v_int(v.b) : v);
    } else if (f.type != '\0' && strchr("eEfFgGn%", f.type) == NULL) {
        bad_type(b->r, &f, v);
    } else {
        put_float(b, &f, v.f);
    }
}

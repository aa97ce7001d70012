/* jinja_text_filters.c - filters that work on text. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja_text.h"

/* The value as a string, safe markup staying safe. */
static struct str *soft(struct jrun *r, struct val v)
{
    return v.kind == V_STR ? v.str : to_str(r, v);
}

/* ---- case, trimming, padding -------------------------------------------------------- */

static struct val f_upper(struct jrun *r, const struct val *a)
{
    return v_str(str_upper(r, soft(r, a[0])));
}

static struct val f_lower(struct jrun *r, const struct val *a)
{
    return v_str(str_lower(r, soft(r, a[0])));
}

static struct val f_capitalize(struct jrun *r, const struct val *a)
{
    return v_str(str_capitalize(r, soft(r, a[0])));
}

static bool separates_words(uint32_t cp)
{
    return cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<' || uc_space(cp);
}

/* Words begin behind white space and opening brackets, not behind every other character. */
static struct val f_title(struct jrun *r, const struct val *a)
{
    struct str *s = soft(r, a[0]);
    struct chars c = chars_of(s);
    struct sb b;
    size_t begin = 0, first = 0;

    sb_init(&b, r);
    for (bool more = chars_next(&c); more && !r->failed;) {
        begin = c.at;
        while (more && separates_words(c.cp)) {
            more = chars_next(&c);
        }
        if (begin < (more ? c.at : s->n)) {
            sb_part(&b, s, begin, more ? c.at : s->n);
            continue;
        }
        first = c.pos;
        do {
            more = chars_next(&c);
        } while (more && !separates_words(c.cp));
        sb_str(&b, str_upper(r, str_part(r, s, begin, first)));
        sb_str(&b, str_lower(r, str_part(r, s, first, more ? c.at : s->n)));
    }
    return v_str(sb_take(&b));
}

static struct val f_trim(struct jrun *r, const struct val *a)
{
    struct str *set = v_given_some(a[1]) ? arg_str(r, a[1], "chars") : NULL;

    return v_str(str_strip(r, soft(r, a[0]), set, STRIP_BOTH));
}

static struct val f_center(struct jrun *r, const struct val *a)
{
    struct str *s = soft(r, a[0]);
    int64_t width = arg_int(r, a[1], 80), n = (int64_t)str_len(s);
    int64_t pad = width > n ? width - n : 0;
    struct sb b;

    sb_init(&b, r);
    /* Python puts the odd blank on the left when the width is odd. */
    sb_fill(&b, ' ', (size_t)(pad / 2 + (pad & width & 1)));
    sb_str(&b, s);
    sb_fill(&b, ' ', (size_t)(pad - (pad / 2 + (pad & width & 1))));
    return v_str(s->markup ? str_markup(r, sb_take(&b)) : sb_take(&b));
}

/* ---- replacing, escaping ------------------------------------------------------------ */

static struct val f_replace(struct jrun *r, const struct val *a)
{
    int64_t count = v_given_some(a[3]) ? arg_int(r, a[3], -1) : -1;
    struct str *s;

    if (!r->autoescape) {
        s = to_str(r, a[0]);
        return v_str(str_replace(r, s, to_str(r, a[1]), to_str(r, a[2]), count));
    }
    s = soft(r, a[0]);
    return v_str(str_replace(r, s, soft(r, a[1]), soft(r, a[2]), count));
}

static struct val f_escape(struct jrun *r, const struct val *a)
{
    struct sb b;

    sb_init(&b, r);
    put_escaped(&b, a[0]);
    return v_str(str_markup(r, sb_take(&b)));
}

static struct val f_forceescape(struct jrun *r, const struct val *a)
{
    struct sb b;

    sb_init(&b, r);
    put_escaped(&b, v_str(to_str(r, a[0])));
    return v_str(str_markup(r, sb_take(&b)));
}

static struct val f_safe(struct jrun *r, const struct val *a)
{
    return v_str(str_markup(r, to_str(r, a[0])));
}

static struct val f_string(struct jrun *r, const struct val *a)
{
    return v_str(soft(r, a[0]));
}

static struct val f_striptags(struct jrun *r, const struct val *a)
{
    return v_str(html_striptags(r, to_str(r, a[0])));
}

static struct val f_xmlattr(struct jrun *r, const struct val *a)
{
    bool space = arg_true(r, a[1], true), first = true;
    struct sb b;

    if (a[0].kind != V_DICT) {
        return a[0].kind == V_UNDEF ? undef_fail(r, a[0])
               : run_fail(r, "AttributeError: '%s' object has no attribute 'items'",
                          v_type(a[0]));
    }
    sb_init(&b, r);
    for (size_t i = 0; i < a[0].dict->n && !r->failed; i++) {
        struct val key = a[0].dict->e[i].key, v = a[0].dict->e[i].value;

        if (v.kind == V_NONE || v.kind == V_UNDEF) {
            continue;
        }
        if (key.kind != V_STR) {
            return run_fail(r, "TypeError: expected string or bytes-like object");
        }
        for (size_t k = 0; k < key.str->n; k++) {
            if (key.str->s[k] != '\0' && strchr(" \t\n\r\f\v/>=", key.str->s[k]) != NULL) {
                return run_fail(r, "ValueError: Invalid character in attribute name");
            }
        }
        if (space || !first) {
            sb_putc(&b, ' ');
        }
        first = false;
        put_escaped(&b, key);
        sb_puts(&b, "=\"");
        put_escaped(&b, v);
        sb_putc(&b, '"');
    }
    return v_str(r->autoescape ? str_markup(r, sb_take(&b)) : sb_take(&b));
}

/* ---- lines and words ---------------------------------------------------------------- */

/* value, width, first, blank */
static struct val f_indent(struct jrun *r, const struct val *a)
{
    bool first = arg_true(r, a[2], false), blank = arg_true(r, a[3], false);
    struct str *s = arg_str(r, a[0], "the value of indent"), *by;
    struct list *lines;
    struct sb b;

    sb_init(&b, r);
    if (v_given(a[1]) && a[1].kind == V_STR) {
        by = a[1].str;
    } else {
        int64_t n = arg_int(r, a[1], 4);

        sb_fill(&b, ' ', n > 0 ? (size_t)n : 0);
        by = sb_take(&b);
    }
    if (a[0].kind == V_UNDEF) {
        return undef_fail(r, a[0]);
    }
    /* A newline is added before the text is split, so a last one gives an empty line. */
    sb_str(&b, s);
    sb_putc(&b, '\n');
    lines = str_splitlines(r, sb_take(&b), false);
    sb_init(&b, r);
    for (size_t i = 0; i < lines->n && !r->failed; i++) {
        struct str *line = lines->v[i].str;

        if (i > 0) {
            sb_putc(&b, '\n');
        }
        if (i > 0 ? line->n > 0 || blank : first) {
            sb_str(&b, by);
        }
        sb_str(&b, line);
    }
    return v_str(s->markup ? str_markup(r, sb_take(&b)) : sb_take(&b));
}

/* value, length, killwords, end, leeway */
static struct val f_truncate(struct jrun *r, const struct val *a)
{
    int64_t length = arg_int(r, a[1], 255), leeway = v_given_some(a[4]) ? arg_int(r, a[4], 5) : 5;
    struct str *end = v_given(a[3]) ? arg_str(r, a[3], "end") : str_lit(r, "..."), *s;
    size_t cut, space;
    struct sb b;

    if (r->failed) {
        return v_none();
    }
    if (length < (int64_t)str_len(end) || leeway < 0) {
        return run_fail(r, "AssertionError: expected length >= %zu, got %lld", str_len(end),
                        (long long)length);
    }
    if (v_len(r, a[0]) < 0) {
        return run_fail(r, "TypeError: object of type '%s' has no len()", v_type(a[0]));
    }
    if (v_len(r, a[0]) <= length + leeway) {
        return a[0];
    }
    s = arg_str(r, a[0], "the value of truncate");
    cut = str_at(s, (size_t)(length - (int64_t)str_len(end)));
    if (!arg_true(r, a[2], false)) {
        space = str_rfind(s, str_lit(r, " "), 0, cut);
        cut = space != SIZE_MAX ? space : cut;
    }
    sb_init(&b, r);
    sb_part(&b, s, 0, cut);
    sb_str(&b, end);
    return v_str(sb_take(&b));
}

static struct val f_wordcount(struct jrun *r, const struct val *a)
{
    struct chars c = chars_of(soft(r, a[0]));
    bool inside = false;
    int64_t n = 0;

    while (chars_next(&c)) {
        n += uc_word(c.cp) && !inside;
        inside = uc_word(c.cp);
    }
    return v_int(n);
}

/* ---- formats ------------------------------------------------------------------------ */

static struct val f_format(struct jrun *r, const struct val *a)
{
    if (a[1].list->n > 0 && a[2].dict->n > 0) {
        return run_fail(r, "can't handle positional and keyword arguments at the same time");
    }
    return format_percent(r, soft(r, a[0]), a[2].dict->n > 0 ? a[2] : a[1]);
}

static void put_quoted_url(struct sb *b, struct val v, bool query)
{
    struct str *s = v.kind == V_BYTES ? v.str : to_str(b->r, v);

    for (size_t i = 0; i < s->n && !b->r->failed; i++) {
        unsigned char c = (unsigned char)s->s[i];
        bool plain = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') ||
                     (c != '\0' && strchr("_.-~", c) != NULL) || (c == '/' && !query);
        char text[4];

        if (plain) {
            sb_part(b, s, i, i + 1);
        } else if (c == ' ' && query) {
            sb_putc(b, '+');
        } else {
            snprintf(text, sizeof text, "%%%02X", c);
            sb_puts(b, text);
        }
    }
}

static struct val f_urlencode(struct jrun *r, const struct val *a)
{
    struct val src = a[0], v;
    struct iter *it;
    struct sb b;
    bool first = true;

    sb_init(&b, r);
    if (a[0].kind == V_STR || !v_iterable(a[0])) {
        put_quoted_url(&b, a[0], false);
        return v_str(sb_take(&b));
    }
    if (src.kind == V_DICT) {
        struct view *view = run_alloc(r, sizeof *view);

        if (view == NULL) {
            return v_none();
        }
        *view = (struct view){ VIEW_ITEMS, src.dict };
        src = (struct val){ .kind = V_VIEW, .view = view };
    }
    it = iter_of(r, src);
    while (iter_next(r, it, &v)) {
        struct list *pair = list_of(r, v);

        if (pair->n != 2) {
            return run_fail(r, "ValueError: urlencode needs pairs");
        }
        if (!first) {
            sb_putc(&b, '&');
        }
        first = false;
        put_quoted_url(&b, pair->v[0], true);
        sb_putc(&b, '=');
        put_quoted_url(&b, pair->v[1], true);
    }
    return v_str(sb_take(&b));
}

static struct val f_filesizeformat(struct jrun *r, const struct val *a)
{
    static const char *const units[2][8] = {
        { "kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB" },
        { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB" },
    };
    bool binary_units = arg_true(r, a[1], false);
    double base = binary_units ? 1024 : 1000, bytes = 0, unit;
    int i = 0;

    if (a[0].kind == V_UNDEF) {
        return undef_fail(r, a[0]);
    }
    if (v_is_num(a[0])) {
        num_double(r, a[0], &bytes);
    } else if (a[0].kind != V_STR || !num_parse_float(r, a[0].str, &bytes)) {
        return run_fail(r, "ValueError: could not convert the value to float");
    }
    if (bytes == 1) {
        return v_str(str_lit(r, "1 Byte"));
    }
    if (bytes < base) {
        struct val whole;

        num_trunc(r, bytes, true, &whole);
        return v_str(str_fmt(r, "%.*s Bytes", (int)to_str(r, whole)->n, to_str(r, whole)->s));
    }
    for (unit = base * base; i < 7 && !(bytes < unit); i++) {
        unit *= base;
    }
    return v_str(str_fmt(r, "%.1f %s", base * bytes / unit, units[binary_units][i]));
}

const struct builtin jinja_text_filters[] = {
    { "capitalize", "", f_capitalize },
    { "center", "width?", f_center },
    { "e", "/", f_escape },
    { "escape", "/", f_escape },
    { "filesizeformat", "binary?", f_filesizeformat },
    { "forceescape", "", f_forceescape },
    { "format", "*args **kwargs", f_format },
    { "indent", "width? first? blank?", f_indent },
    { "lower", "", f_lower },
    { "pprint", "", filter_pprint },
    { "replace", "old new count?", f_replace },
    { "safe", "", f_safe },
    { "string", "", f_string },
    { "striptags", "", f_striptags },
    { "title", "", f_title },
    { "trim", "chars?", f_trim },
    { "truncate", "length? killwords? end? leeway?", f_truncate },
    { "upper", "", f_upper },
    { "urlencode", "", f_urlencode },
    { "urlize", "trim_url_limit? nofollow? target? rel? extra_schemes?", filter_urlize },
    { "wordcount", "", f_wordcount },
    { "wordwrap", "width? break_long_words? wrapstring? break_on_hyphens?", filter_wordwrap },
    { "xmlattr", "autospace?", f_xmlattr },
    { NULL, NULL, NULL },
};

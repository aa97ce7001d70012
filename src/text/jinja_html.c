/* jinja_html.c - HTML: entities, tags, and links in plain text. */
#include <string.h>
#include <strings.h>

#include "text/jinja_text.h"

/* The entities that text meets in practice; `bare` ones need no semicolon. */
static const struct { const char *name; uint16_t cp; bool bare; } entities[] = {
    { "lt", '<', true }, { "gt", '>', true }, { "amp", '&', true }, { "quot", '"', true },
    { "apos", '\'', false }, { "nbsp", 0xA0, true }, { "iexcl", 0xA1, true },
    { "cent", 0xA2, true }, { "pound", 0xA3, true }, { "yen", 0xA5, true },
    { "sect", 0xA7, true }, { "copy", 0xA9, true }, { "laquo", 0xAB, true },
    { "reg", 0xAE, true }, { "deg", 0xB0, true }, { "plusmn", 0xB1, true },
    { "micro", 0xB5, true }, { "para", 0xB6, true }, { "middot", 0xB7, true },
    { "raquo", 0xBB, true }, { "frac12", 0xBD, true }, { "iquest", 0xBF, true },
    { "Agrave", 0xC0, true }, { "Auml", 0xC4, true }, { "Ccedil", 0xC7, true },
    { "Eacute", 0xC9, true }, { "Ntilde", 0xD1, true }, { "Ouml", 0xD6, true },
    { "times", 0xD7, true }, { "Uuml", 0xDC, true }, { "szlig", 0xDF, true },
    { "agrave", 0xE0, true }, { "aacute", 0xE1, true }, { "acirc", 0xE2, true },
    { "auml", 0xE4, true }, { "aring", 0xE5, true }, { "ccedil", 0xE7, true },
    { "egrave", 0xE8, true }, { "eacute", 0xE9, true }, { "ecirc", 0xEA, true },
    { "euml", 0xEB, true }, { "iacute", 0xED, true }, { "icirc", 0xEE, true },
    { "iuml", 0xEF, true }, { "ntilde", 0xF1, true }, { "oacute", 0xF3, true },
    { "ocirc", 0xF4, true }, { "ouml", 0xF6, true }, { "divide", 0xF7, true },
    { "uacute", 0xFA, true }, { "ucirc", 0xFB, true }, { "uuml", 0xFC, true },
    { "ndash", 0x2013, false }, { "mdash", 0x2014, false }, { "lsquo", 0x2018, false },
    { "rsquo", 0x2019, false }, { "ldquo", 0x201C, false }, { "rdquo", 0x201D, false },
    { "bull", 0x2022, false }, { "hellip", 0x2026, false }, { "euro", 0x20AC, false },
    { "trade", 0x2122, false }, { "larr", 0x2190, false }, { "rarr", 0x2192, false },
    { "le", 0x2264, false }, { "ge", 0x2265, false }, { "ne", 0x2260, false },
};

/* "&#123;" or "&#x7B;" at p; the bytes consumed, 0 where it is not one. */
static size_t numeric_entity(const struct str *s, size_t p, uint32_t *cp)
{
    bool hex = p + 2 < s->n && (s->s[p + 2] | 32) == 'x';
    size_t q = p + 2 + hex, digits = 0;
    uint64_t v = 0;

    for (; q < s->n; q++, digits++) {
        char c = s->s[q];
        int d = c >= '0' && c <= '9' ? c - '0'
                : hex && (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;

        if (d < 0) {
            break;
        }
        v = v > 0x10FFFF ? v : v * (hex ? 16 : 10) + (uint64_t)d;
    }
    if (digits == 0) {
        return 0;
    }
    *cp = v == 0 || v > 0x10FFFF || (v >= 0xD800 && v < 0xE000) ? 0xFFFD : (uint32_t)v;
    return q + (q < s->n && s->s[q] == ';') - p;
}

static size_t named_entity(const struct str *s, size_t p, uint32_t *cp)
{
    size_t best = 0;

    for (size_t i = 0; i < sizeof entities / sizeof entities[0]; i++) {
        size_t n = strlen(entities[i].name);
        bool closed = p + 1 + n < s->n && s->s[p + 1 + n] == ';';

        if (s->n - p - 1 >= n && memcmp(s->s + p + 1, entities[i].name, n) == 0 &&
            (closed || entities[i].bare) && 1 + n + closed > best) {
            best = 1 + n + closed;
            *cp = entities[i].cp;
        }
    }
    return best;
}

struct str *html_unescape(struct jrun *r, const struct str *s)
{
    struct sb b;
    size_t done = 0;

    sb_init(&b, r);
    for (size_t p = 0; p < s->n && run_step(r, 1); p++) {
        uint32_t cp = 0;
        size_t len = 0;

        if (s->s[p] == '&') {
            len = p + 1 < s->n && s->s[p + 1] == '#' ? numeric_entity(s, p, &cp)
                                                     : named_entity(s, p, &cp);
        }
        if (len > 0) {
            sb_part(&b, s, done, p);
            sb_char(&b, cp, s->n_marks > 0);
            done = p + len;
            p = done - 1;
        }
    }
    sb_part(&b, s, done, s->n);
    return sb_take(&b);
}

/* End of the tag or comment that opens at p; SIZE_MAX where it does not close. */
static size_t tag_close(struct jrun *r, const struct str *s, size_t p)
{
    bool comment = s->n - p >= 4 && memcmp(s->s + p, "<!--", 4) == 0;
    size_t end = str_find(s, str_lit(r, comment ? "-->" : ">"), comment ? p + 4 : p, s->n);

    return end == SIZE_MAX ? SIZE_MAX : end + (comment ? 3 : 1);
}

struct str *html_striptags(struct jrun *r, const struct str *s)
{
    struct sb b;
    struct chars c;
    size_t pos = 0, begin = 0;
    struct str *text;

    sb_init(&b, r);
    for (size_t p; (p = str_find(s, str_lit(r, "<"), pos, s->n)) != SIZE_MAX && !r->failed;) {
        size_t end = tag_close(r, s, p);

        if (end == SIZE_MAX) {
            break;
        }
        sb_part(&b, s, pos, p);
        pos = end;
    }
    sb_part(&b, s, pos, s->n);
    text = sb_take(&b);
    c = chars_of(text);
    sb_init(&b, r);
    for (bool more = true; more && !r->failed;) {
        more = chars_next(&c);
        if (more && !uc_space(c.cp)) {
            continue;
        }
        if (begin < (more ? c.at : text->n)) {
            sb_puts(&b, b.n > 0 ? " " : "");
            sb_part(&b, text, begin, more ? c.at : text->n);
        }
        begin = c.pos;
    }
    return html_unescape(r, sb_take(&b));
}

/* ---- links -------------------------------------------------------------------------- */

struct linker {
    struct jrun *r;
    struct sb out;
    int64_t limit;         /* characters of the shown address; -1: all */
    struct str *attrs;     /* rel and target, escaped */
    struct list *schemes;
};

static bool has_prefix(const struct str *s, size_t p, const char *what)
{
    size_t n = strlen(what);

    return s->n - p >= n && strncasecmp(s->s + p, what, n) == 0;
}

static bool label_char(char c)
{
    return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_' ||
           c == '%' || c == '-' || (unsigned char)c >= 0x80;
}

static bool letters_only(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if ((s[i] | 32) < 'a' || (s[i] | 32) > 'z') {
            return false;
        }
    }
    return true;
}

static bool basic_domain(const char *s, size_t n)
{
    static const char *const tlds[] = { "com", "net", "int", "edu", "gov", "org", "info", "mil" };

    for (size_t i = 0; i < sizeof tlds / sizeof tlds[0]; i++) {
        if (strlen(tlds[i]) == n && strncasecmp(s, tlds[i], n) == 0) {
            return true;
        }
    }
    return false;
}

/* Four groups of digits at p; where they end, or 0. */
static size_t ipv4_end(const struct str *s, size_t p)
{
    for (int group = 0; group < 4; group++) {
        size_t digits = 0;

        if (group > 0) {
            if (p >= s->n || s->s[p] != '.') {
                return 0;
            }
            p++;
        }
        while (p < s->n && s->s[p] >= '0' && s->s[p] <= '9' && digits < 3) {
            p++;
            digits++;
        }
        if (digits == 0) {
            return 0;
        }
    }
    return p;
}

/* Port and path behind the host, up to the end. */
static bool address_rest(const struct str *s, size_t p)
{
    if (p < s->n && s->s[p] == ':') {
        size_t digits = 0;

        for (p++; p < s->n && s->s[p] >= '0' && s->s[p] <= '9'; p++) {
            digits++;
        }
        if (digits == 0 || digits > 5) {
            return false;
        }
    }
    return p == s->n || (s->s[p] != '\0' && strchr("/?#", s->s[p]) != NULL);
}

static bool is_address(const struct str *s)
{
    size_t p = has_prefix(s, 0, "https://") ? 8 : has_prefix(s, 0, "http://") ? 7 : 0;
    bool scheme = p > 0, www = !scheme && has_prefix(s, 0, "www.");
    size_t begin, last, labels = 0;
    bool short_label = false;

    if (scheme && ipv4_end(s, p) > 0 && address_rest(s, ipv4_end(s, p))) {
        return true;
    }
    p += www ? 4 : 0;
    begin = last = p;
    while (p < s->n && (label_char(s->s[p]) || s->s[p] == '.')) {
        if (s->s[p] == '.') {
            if (p == last) {
                return false;
            }
            short_label = short_label || p - last < 2 || p - last > 63;
            last = p + 1;
            labels++;
        }
        p++;
    }
    if (p == begin || !address_rest(s, p)) {
        return false;
    }
    if (scheme || www) {
        return (p - last >= 2 && p - last <= 63 && letters_only(s->s + last, p - last)) ||
               (p - last > 6 && has_prefix(s, last, "xn--"));
    }
    return labels > 0 && !short_label && basic_domain(s->s + last, p - last);
}

/* something@name.name */
static bool is_mail(const struct str *s)
{
    const char *at = s->n > 0 ? memrchr(s->s, '@', s->n) : NULL;
    size_t p, dot = SIZE_MAX;
    struct chars c;

    if (at == NULL || at == s->s) {
        return false;
    }
    p = (size_t)(at - s->s) + 1;
    c = (struct chars){ .s = s, .pos = p };
    while (chars_next(&c)) {
        if (c.cp == '.') {
            dot = c.at;
        } else if (!uc_word(c.cp) && (c.cp != '-' || dot != SIZE_MAX) && c.cp != '-') {
            return false;
        }
        if (c.at == p && !uc_word(c.cp)) {
            return false;
        }
    }
    return dot != SIZE_MAX && dot + 1 < s->n &&
           memchr(s->s + dot, '-', s->n - dot) == NULL;
}

static void put_link(struct linker *l, const char *before, const struct str *href, bool attrs,
                     struct str *shown)
{
    struct sb *b = &l->out;

    sb_puts(b, "<a href=\"");
    sb_puts(b, before);
    sb_str(b, href);
    sb_putc(b, '"');
    if (attrs) {
        sb_str(b, l->attrs);
    }
    sb_putc(b, '>');
    if (attrs && l->limit >= 0 && (int64_t)str_len(shown) > l->limit) {
        sb_part(b, shown, 0, str_at(shown, (size_t)l->limit));
        sb_puts(b, "...");
    } else {
        sb_str(b, shown);
    }
    sb_puts(b, "</a>");
}

static void put_middle(struct linker *l, struct str *s)
{
    bool at = s->n > 0 && memchr(s->s, '@', s->n) != NULL;
    bool colon = s->n > 0 && memchr(s->s, ':', s->n) != NULL;

    if (is_address(s)) {
        bool scheme = s->n > 7 && (memcmp(s->s, "http://", 7) == 0 ||
                                   strncmp(s->s, "https://", 8) == 0);

        put_link(l, scheme ? "" : "https://", s, true, s);
        return;
    }
    if (s->n > 7 && memcmp(s->s, "mailto:", 7) == 0) {
        struct str *address = str_part(l->r, s, 7, s->n);

        if (is_mail(address)) {
            put_link(l, "", s, false, address);
            return;
        }
    }
    if (at && !colon && s->s[0] != '@' && strncmp(s->s, "www.", 4) != 0 && is_mail(s)) {
        put_link(l, "mailto:", s, false, s);
        return;
    }
    for (size_t i = 0; l->schemes != NULL && i < l->schemes->n; i++) {
        const struct str *scheme = l->schemes->v[i].str;

        if (s->n > scheme->n && memcmp(s->s, scheme->s, scheme->n) == 0) {
            put_link(l, "", s, true, s);
            return;
        }
    }
    sb_str(&l->out, s);
}

static int64_t count_of(const struct str *s, const struct str *what, size_t b, size_t e)
{
    int64_t n = 0;

    for (size_t at; (at = str_find(s, what, b, e)) != SIZE_MAX; b = at + what->n) {
        n++;
    }
    return n;
}

/* Moves closing brackets that belong to the address from the tail back to it. */
static size_t balance_tail(struct linker *l, const struct str *s, size_t b, size_t e)
{
    static const char *const pairs[3][2] = { { "(", ")" }, { "<", ">" }, { "&lt;", "&gt;" } };

    for (int i = 0; i < 3; i++) {
        struct str *open = str_lit(l->r, pairs[i][0]), *close = str_lit(l->r, pairs[i][1]);
        int64_t n = count_of(s, open, b, e), in_tail = count_of(s, close, e, s->n);

        if (n <= count_of(s, close, b, e)) {
            continue;
        }
        for (n = n < in_tail ? n : in_tail; n > 0; n--) {
            e = str_find(s, close, e, s->n) + close->n;
        }
    }
    return e;
}

static size_t trailing(const struct str *s, size_t b, size_t e)
{
    while (e > b) {
        if (strchr(")>.,\n", s->s[e - 1]) != NULL && s->s[e - 1] != '\0') {
            e--;
        } else if (e - b >= 4 && memcmp(s->s + e - 4, "&gt;", 4) == 0) {
            e -= 4;
        } else {
            break;
        }
    }
    return e;
}

static void put_word(struct linker *l, const struct str *s)
{
    size_t b = 0, e;

    run_step(l->r, s->n / 8);
    while (b < s->n) {
        if (s->s[b] == '(' || s->s[b] == '<') {
            b++;
        } else if (s->n - b >= 4 && memcmp(s->s + b, "&lt;", 4) == 0) {
            b += 4;
        } else {
            break;
        }
    }
    e = balance_tail(l, s, b, trailing(s, b, s->n));
    sb_part(&l->out, s, 0, b);
    put_middle(l, str_part(l->r, s, b, e));
    sb_part(&l->out, s, e, s->n);
}

/* rel="..." with its words sorted, and target="..." */
static struct str *link_attrs(struct jrun *r, const struct val *a)
{
    struct list *words = list_new(r, 4);
    struct str *rel = v_given_some(a[4]) ? arg_str(r, a[4], "rel") : &r->nostr;
    size_t begin = 0;
    struct sb b;

    list_push(r, words, v_str(str_lit(r, "noopener")));
    if (arg_true(r, a[2], false)) {
        list_push(r, words, v_str(str_lit(r, "nofollow")));
    }
    for (size_t i = 0; i <= rel->n && !r->failed; i++) {
        if (i == rel->n || rel->s[i] == ' ') {
            struct val w = v_str(str_part(r, rel, begin, i));

            if (w.str->n > 0 && !v_in(r, w, v_list(words))) {
                list_push(r, words, w);
            }
            begin = i + 1;
        }
    }
    list_sort(r, words, NULL, false);
    sb_init(&b, r);
    sb_puts(&b, " rel=\"");
    for (size_t i = 0; i < words->n; i++) {
        sb_puts(&b, i > 0 ? " " : "");
        put_escaped(&b, words->v[i]);
    }
    sb_putc(&b, '"');
    if (v_given_some(a[3])) {
        sb_puts(&b, " target=\"");
        put_escaped(&b, a[3]);
        sb_putc(&b, '"');
    }
    return sb_take(&b);
}

struct val filter_urlize(struct jrun *r, const struct val *a)
{
    struct linker l = { .r = r, .limit = v_given_some(a[1]) ? arg_int(r, a[1], -1) : -1 };
    struct sb b;
    struct str *s;
    struct chars c;
    size_t begin = 0;

    l.attrs = link_attrs(r, a);
    l.schemes = v_given_some(a[5]) ? list_of(r, a[5]) : NULL;
    for (size_t i = 0; l.schemes != NULL && i < l.schemes->n; i++) {
        arg_str(r, l.schemes->v[i], "a scheme");
    }
    sb_init(&b, r);
    put_escaped(&b, a[0]);
    s = sb_take(&b);
    sb_init(&l.out, r);
    c = chars_of(s);
    for (bool more = true; more && !r->failed;) {
        more = chars_next(&c);
        if (more && !uc_space(c.cp)) {
            continue;
        }
        put_word(&l, str_part(r, s, begin, more ? c.at : s->n));
        if (more) {
            sb_part(&l.out, s, c.at, c.pos);
        }
        begin = c.pos;
    }
    return v_str(r->autoescape ? str_markup(r, sb_take(&l.out)) : sb_take(&l.out));
}

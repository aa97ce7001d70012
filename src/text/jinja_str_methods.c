/* jinja_str_methods.c - the methods of strings. */
#include <string.h>

#include "text/jinja_text.h"

static struct val keep(struct jrun *r, const struct val *a, struct str *s)
{
    return v_str(a[0].str->markup ? str_markup(r, s) : s);
}

/* ---- case --------------------------------------------------------------------------- */

static struct val m_upper(struct jrun *r, const struct val *a)
{
    return v_str(str_upper(r, a[0].str));
}

static struct val m_lower(struct jrun *r, const struct val *a)
{
    return v_str(str_lower(r, a[0].str));
}

static struct val m_title(struct jrun *r, const struct val *a)
{
    return v_str(str_title(r, a[0].str));
}

static struct val m_capitalize(struct jrun *r, const struct val *a)
{
    return v_str(str_capitalize(r, a[0].str));
}

static struct val m_swapcase(struct jrun *r, const struct val *a)
{
    return v_str(str_swapcase(r, a[0].str));
}

static struct val m_casefold(struct jrun *r, const struct val *a)
{
    return v_str(str_casefold(r, a[0].str));
}

/* ---- questions ---------------------------------------------------------------------- */

/* All characters fulfil the property, and there are some. */
static struct val all_are(const struct str *s, bool (*property)(uint32_t cp))
{
    struct chars c = chars_of(s);

    while (chars_next(&c)) {
        if (!property(c.cp)) {
            return v_bool(false);
        }
    }
    return v_bool(s->n > 0);
}

static bool alnum(uint32_t cp) { return uc_alpha(cp) || uc_numeric(cp); }

static struct val m_isalnum(struct jrun *r, const struct val *a)
{
    (void)r;
    return all_are(a[0].str, alnum);
}

static struct val m_isalpha(struct jrun *r, const struct val *a)
{
    (void)r;
    return all_are(a[0].str, uc_alpha);
}

static struct val m_isdecimal(struct jrun *r, const struct val *a)
{
    (void)r;
    return all_are(a[0].str, uc_decimal);
}

static struct val m_isdigit(struct jrun *r, const struct val *a)
{
    (void)r;
    return all_are(a[0].str, uc_digit);
}

static struct val m_isnumeric(struct jrun *r, const struct val *a)
{
    (void)r;
    return all_are(a[0].str, uc_numeric);
}

static struct val m_isspace(struct jrun *r, const struct val *a)
{
    (void)r;
    return all_are(a[0].str, uc_space);
}

static struct val m_isprintable(struct jrun *r, const struct val *a)
{
    (void)r;
    return v_bool(a[0].str->n == 0 || all_are(a[0].str, uc_printable).b);
}

static struct val m_isascii(struct jrun *r, const struct val *a)
{
    (void)r;
    for (size_t i = 0; i < a[0].str->n; i++) {
        if ((unsigned char)a[0].str->s[i] >= 0x80) {
            return v_bool(false);
        }
    }
    return v_bool(true);
}

static struct val m_isidentifier(struct jrun *r, const struct val *a)
{
    struct chars c = chars_of(a[0].str);

    (void)r;
    while (chars_next(&c)) {
        if (!uc_ident(c.cp, c.at == 0)) {
            return v_bool(false);
        }
    }
    return v_bool(a[0].str->n > 0);
}

static struct val is_case(const struct str *s, bool (*wanted)(uint32_t cp))
{
    struct chars c = chars_of(s);
    bool any = false;

    while (chars_next(&c)) {
        if (uc_cased(c.cp) && !wanted(c.cp)) {
            return v_bool(false);
        }
        any = any || uc_cased(c.cp);
    }
    return v_bool(any);
}

static struct val m_islower(struct jrun *r, const struct val *a)
{
    (void)r;
    return is_case(a[0].str, uc_lower);
}

static struct val m_isupper(struct jrun *r, const struct val *a)
{
    (void)r;
    return is_case(a[0].str, uc_upper);
}

static struct val m_istitle(struct jrun *r, const struct val *a)
{
    struct chars c = chars_of(a[0].str);
    bool inside = false, any = false;

    (void)r;
    while (chars_next(&c)) {
        bool capital = uc_upper(c.cp) || uc_title(c.cp);

        if ((capital && inside) || (!capital && uc_lower(c.cp) && !inside)) {
            return v_bool(false);
        }
        inside = uc_cased(c.cp);
        any = any || inside;
    }
    return v_bool(any);
}

/* ---- searching ---------------------------------------------------------------------- */

/* Byte offsets of the characters [start, end) as methods take them. */
static bool bounds(struct jrun *r, const struct str *s, struct val start, struct val end, size_t *b,
                   size_t *e)
{
    struct slice sl = { .start = v_given(start) ? start : v_none(),
                        .stop = v_given(end) ? end : v_none(), .step = v_none() };
    int64_t first, step, count, n = (int64_t)str_len(s), from = 0, to = n;

    if (!slice_bounds(r, &sl, n, &first, &step, &count)) {
        run_fail(r, "TypeError: slice indices must be integers or None");
        return false;
    }
    *b = str_at(s, (size_t)first);
    *e = str_at(s, (size_t)(first + count));
    /* A start behind the end finds nothing, not even an empty string. */
    if (v_given_some(start) && v_is_int(start) && start.kind != V_BIG) {
        from = v_small(start) < 0 ? v_small(start) + n : v_small(start);
    }
    if (v_given_some(end) && v_is_int(end) && end.kind != V_BIG) {
        to = v_small(end) < 0 ? v_small(end) + n : v_small(end);
    }
    run_step(r, s->n / 64);
    return from <= n && from <= (to > n ? n : to < 0 ? 0 : to);
}

static int64_t char_index(const struct str *s, size_t at)
{
    struct str head = { .s = s->s, .n = at, .n_chars = SIZE_MAX };

    return (int64_t)str_len(&head);
}

/* self, sub, start, end */
static int64_t search(struct jrun *r, const struct val *a, bool from_right)
{
    const struct str *s = a[0].str, *what = arg_str(r, a[1], "what is searched for");
    size_t b, e, at;

    if (r->failed || !bounds(r, s, a[2], a[3], &b, &e)) {
        return -1;
    }
    at = from_right ? str_rfind(s, what, b, e) : str_find(s, what, b, e);
    return at == SIZE_MAX ? -1 : char_index(s, at);
}

static struct val m_find(struct jrun *r, const struct val *a)
{
    return v_int(search(r, a, false));
}

static struct val m_rfind(struct jrun *r, const struct val *a)
{
    return v_int(search(r, a, true));
}

static struct val found(struct jrun *r, int64_t at)
{
    return at < 0 ? run_fail(r, "ValueError: substring not found") : v_int(at);
}

static struct val m_index(struct jrun *r, const struct val *a)
{
    return found(r, search(r, a, false));
}

static struct val m_rindex(struct jrun *r, const struct val *a)
{
    return found(r, search(r, a, true));
}

static struct val m_count(struct jrun *r, const struct val *a)
{
    const struct str *s = a[0].str, *what = arg_str(r, a[1], "what is counted");
    size_t b, e, at;
    int64_t n = 0;

    if (r->failed || !bounds(r, s, a[2], a[3], &b, &e)) {
        return v_int(0);
    }
    if (what->n == 0) {
        return v_int(char_index(s, e) - char_index(s, b) + 1);
    }
    while ((at = str_find(s, what, b, e)) != SIZE_MAX) {
        n++;
        b = at + what->n;
    }
    return v_int(n);
}

static bool affix(const struct str *s, const struct str *what, size_t b, size_t e, bool at_end)
{
    return b <= e && what->n <= e - b &&
           memcmp(s->s + (at_end ? e - what->n : b), what->s, what->n) == 0;
}

/* startswith and endswith take a string or a tuple of them. */
static struct val affixed(struct jrun *r, const struct val *a, bool at_end)
{
    size_t b, e;
    bool any = false, inside = bounds(r, a[0].str, a[2], a[3], &b, &e);

    if (a[1].kind == V_TUPLE) {
        for (size_t i = 0; i < a[1].list->n && !any; i++) {
            const struct str *what = arg_str(r, a[1].list->v[i], "a prefix or suffix");

            any = inside && affix(a[0].str, what, b, e, at_end);
        }
        return v_bool(any);
    }
    any = affix(a[0].str, arg_str(r, a[1], "a prefix or suffix"), b, e, at_end);
    return v_bool(inside && any);
}

static struct val m_startswith(struct jrun *r, const struct val *a)
{
    return affixed(r, a, false);
}

static struct val m_endswith(struct jrun *r, const struct val *a)
{
    return affixed(r, a, true);
}

/* ---- cutting ------------------------------------------------------------------------ */

static struct val strip(struct jrun *r, const struct val *a, enum strip ends)
{
    struct str *set = v_given_some(a[1]) ? arg_str(r, a[1], "the characters to strip") : NULL;

    return v_str(str_strip(r, a[0].str, set, ends));
}

static struct val m_strip(struct jrun *r, const struct val *a) { return strip(r, a, STRIP_BOTH); }
static struct val m_lstrip(struct jrun *r, const struct val *a) { return strip(r, a, STRIP_LEFT); }
static struct val m_rstrip(struct jrun *r, const struct val *a) { return strip(r, a, STRIP_RIGHT); }

static struct val m_removeprefix(struct jrun *r, const struct val *a)
{
    struct str *s = a[0].str, *what = arg_str(r, a[1], "prefix");

    return v_str(affix(s, what, 0, s->n, false) ? str_part(r, s, what->n, s->n) : s);
}

static struct val m_removesuffix(struct jrun *r, const struct val *a)
{
    struct str *s = a[0].str, *what = arg_str(r, a[1], "suffix");

    return v_str(affix(s, what, 0, s->n, true) ? str_part(r, s, 0, s->n - what->n) : s);
}

/* Splits at runs of white space, from the left. */
static struct list *split_space(struct jrun *r, const struct str *s, int64_t max)
{
    struct list *l = list_new(r, 4);
    struct chars c = chars_of(s);
    size_t begin = SIZE_MAX;

    while (chars_next(&c) && !r->failed) {
        bool space = uc_space(c.cp);

        if (!space && begin == SIZE_MAX) {
            if (max >= 0 && (int64_t)l->n >= max) {
                list_push(r, l, v_str(str_part(r, s, c.at, s->n)));
                return l;
            }
            begin = c.at;
        } else if (space && begin != SIZE_MAX) {
            list_push(r, l, v_str(str_part(r, s, begin, c.at)));
            begin = SIZE_MAX;
        }
    }
    if (begin != SIZE_MAX) {
        list_push(r, l, v_str(str_part(r, s, begin, s->n)));
    }
    return l;
}

static struct list *split_at(struct jrun *r, const struct str *s, const struct str *sep,
                             int64_t max)
{
    struct list *l = list_new(r, 4);
    size_t begin = 0, at;

    while ((max < 0 || (int64_t)l->n < max) && !r->failed &&
           (at = str_find(s, sep, begin, s->n)) != SIZE_MAX) {
        list_push(r, l, v_str(str_part(r, s, begin, at)));
        begin = at + sep->n;
    }
    list_push(r, l, v_str(str_part(r, s, begin, s->n)));
    return l;
}

static void reverse_list(struct list *l)
{
    for (size_t i = 0; i < l->n / 2; i++) {
        struct val v = l->v[i];

        l->v[i] = l->v[l->n - 1 - i];
        l->v[l->n - 1 - i] = v;
    }
}

/* Start of the last word of [0, e), which ends at *e after trailing white space is dropped. */
static size_t last_word(const struct str *s, size_t *e)
{
    size_t p = *e, end = SIZE_MAX;

    while (p > 0) {
        struct chars c = { .s = s, .pos = p - 1 };
        size_t q;

        while (c.pos > 0 && ((unsigned char)s->s[c.pos] & 0xC0) == 0x80) {
            c.pos--;
        }
        q = c.pos;
        chars_next(&c);
        if (uc_space(c.cp) && end != SIZE_MAX) {
            break;
        }
        if (!uc_space(c.cp) && end == SIZE_MAX) {
            end = p;
        }
        p = q;
    }
    *e = end == SIZE_MAX ? 0 : end;
    return p;
}

static struct list *rsplit_space(struct jrun *r, const struct str *s, int64_t max)
{
    struct list *l = list_new(r, 4);
    size_t e = s->n;

    while (!r->failed) {
        size_t b = last_word(s, &e);

        if (e == 0) {
            break;
        }
        if ((int64_t)l->n >= max) {
            list_push(r, l, v_str(str_part(r, s, 0, e)));
            break;
        }
        list_push(r, l, v_str(str_part(r, s, b, e)));
        e = b;
    }
    reverse_list(l);
    return l;
}

static struct list *rsplit_at(struct jrun *r, const struct str *s, const struct str *sep,
                              int64_t max)
{
    struct list *l = list_new(r, 4);
    size_t e = s->n;

    while ((int64_t)l->n < max && !r->failed) {
        /* Looking for the last separator walks the whole head, so its length is counted. */
        size_t at = str_rfind(s, sep, 0, e);

        run_step(r, e / 16);
        if (at == SIZE_MAX) {
            break;
        }
        list_push(r, l, v_str(str_part(r, s, at + sep->n, e)));
        e = at;
    }
    list_push(r, l, v_str(str_part(r, s, 0, e)));
    reverse_list(l);
    return l;
}

/* self, sep, maxsplit */
static struct val split(struct jrun *r, const struct val *a, bool from_right)
{
    struct str *s = a[0].str, *sep = v_given_some(a[1]) ? arg_str(r, a[1], "sep") : NULL;
    int64_t max = arg_int(r, a[2], -1);
    struct list *l;

    if (r->failed) {
        return v_none();
    }
    if (sep != NULL && sep->n == 0) {
        return run_fail(r, "ValueError: empty separator");
    }
    run_step(r, s->n / 16);
    if (from_right && max >= 0) {
        l = sep != NULL ? rsplit_at(r, s, sep, max) : rsplit_space(r, s, max);
    } else {
        l = sep != NULL ? split_at(r, s, sep, max) : split_space(r, s, max);
    }
    return v_list(l);
}

static struct val m_split(struct jrun *r, const struct val *a)
{
    return split(r, a, false);
}

static struct val m_rsplit(struct jrun *r, const struct val *a)
{
    return split(r, a, true);
}

static struct val m_splitlines(struct jrun *r, const struct val *a)
{
    return v_list(str_splitlines(r, a[0].str, arg_true(r, a[1], false)));
}

static struct val partition(struct jrun *r, const struct val *a, bool from_right)
{
    struct str *s = a[0].str, *sep = arg_str(r, a[1], "sep");
    struct list *l = list_new(r, 3);
    size_t at;

    if (!r->failed && sep->n == 0) {
        return run_fail(r, "ValueError: empty separator");
    }
    at = from_right ? str_rfind(s, sep, 0, s->n) : str_find(s, sep, 0, s->n);
    if (at == SIZE_MAX) {
        struct val empty = v_str(&r->nostr);

        list_push(r, l, from_right ? empty : a[0]);
        list_push(r, l, empty);
        list_push(r, l, from_right ? a[0] : empty);
    } else {
        list_push(r, l, v_str(str_part(r, s, 0, at)));
        list_push(r, l, v_str(str_part(r, s, at, at + sep->n)));
        list_push(r, l, v_str(str_part(r, s, at + sep->n, s->n)));
    }
    return v_tuple(l);
}

static struct val m_partition(struct jrun *r, const struct val *a)
{
    return partition(r, a, false);
}

static struct val m_rpartition(struct jrun *r, const struct val *a)
{
    return partition(r, a, true);
}

/* ---- joining and padding ------------------------------------------------------------ */

static struct val m_join(struct jrun *r, const struct val *a)
{
    struct iter *it = iter_of(r, a[1]);
    struct val v;
    struct sb b;
    int64_t i = 0;

    sb_init(&b, r);
    for (; iter_next(r, it, &v); i++) {
        if (v.kind != V_STR) {
            return run_fail(r, "TypeError: sequence item %lld: expected str instance, %s found",
                            (long long)i, v_type(v));
        }
        if (i > 0) {
            sb_str(&b, a[0].str);
        }
        if (a[0].str->markup) {
            put_escaped(&b, v);
        } else {
            sb_str(&b, v.str);
        }
    }
    return keep(r, a, sb_take(&b));
}

/* A width that may be anything, and the one character to fill with. */
static bool pad_args(struct jrun *r, const struct val *a, int64_t *width, uint32_t *fill)
{
    struct chars c;

    *fill = ' ';
    *width = arg_int(r, a[1], 0);
    if (v_given(a[2])) {
        c = chars_of(arg_str(r, a[2], "the fill character"));
        if (!chars_next(&c) || c.pos != c.s->n) {
            run_fail(r, "TypeError: The fill character must be exactly one character long");
        }
        *fill = c.cp;
    }
    return !r->failed;
}

static struct val pad(struct jrun *r, const struct val *a, char align)
{
    int64_t width, n = (int64_t)str_len(a[0].str), left = 0, space;
    uint32_t fill;
    struct sb b;

    if (!pad_args(r, a, &width, &fill)) {
        return v_none();
    }
    space = width > n ? width - n : 0;
    if (align == '>') {
        left = space;
    } else if (align == '^') {
        left = space / 2 + (space & width & 1);
    }
    sb_init(&b, r);
    sb_fill(&b, fill, (size_t)left);
    sb_str(&b, a[0].str);
    sb_fill(&b, fill, (size_t)(space - left));
    return keep(r, a, sb_take(&b));
}

static struct val m_center(struct jrun *r, const struct val *a) { return pad(r, a, '^'); }
static struct val m_ljust(struct jrun *r, const struct val *a) { return pad(r, a, '<'); }
static struct val m_rjust(struct jrun *r, const struct val *a) { return pad(r, a, '>'); }

static struct val m_zfill(struct jrun *r, const struct val *a)
{
    struct str *s = a[0].str;
    int64_t width = arg_int(r, a[1], 0), n = (int64_t)str_len(s);
    size_t sign = s->n > 0 && (s->s[0] == '-' || s->s[0] == '+');
    struct sb b;

    sb_init(&b, r);
    sb_part(&b, s, 0, sign);
    sb_fill(&b, '0', width > n ? (size_t)(width - n) : 0);
    sb_part(&b, s, sign, s->n);
    return keep(r, a, sb_take(&b));
}

static struct val m_expandtabs(struct jrun *r, const struct val *a)
{
    int64_t size = arg_int(r, a[1], 8), column = 0;
    struct chars c = chars_of(a[0].str);
    struct sb b;

    sb_init(&b, r);
    while (chars_next(&c) && !r->failed) {
        if (c.cp == '\t') {
            int64_t n = size > 0 ? size - column % size : 0;

            sb_fill(&b, ' ', (size_t)n);
            column += n;
        } else {
            sb_char(&b, c.cp, c.marked);
            column = c.cp == '\n' || c.cp == '\r' ? 0 : column + 1;
        }
    }
    return keep(r, a, sb_take(&b));
}

static struct val m_replace(struct jrun *r, const struct val *a)
{
    struct str *old = arg_str(r, a[1], "old"), *new = arg_str(r, a[2], "new");

    if (a[0].str->markup && !r->failed) {
        struct sb b;

        sb_init(&b, r);
        put_escaped(&b, a[2]);
        new = sb_take(&b);
    }
    return keep(r, a, str_replace(r, a[0].str, old, new, arg_int(r, a[3], -1)));
}

/* ---- formats, encodings, tables ----------------------------------------------------- */

static struct val m_format(struct jrun *r, const struct val *a)
{
    struct args args = { .pos = a[1].list->v, .n_pos = a[1].list->n, .kw = a[2].dict };

    return format_braces(r, a[0].str, &args, v_absent());
}

static struct val m_format_map(struct jrun *r, const struct val *a)
{
    struct args none = { 0 };

    return format_braces(r, a[0].str, &none, a[1]);
}

static bool same_name(const struct str *s, const char *name)
{
    size_t k = 0;

    for (size_t i = 0; i < s->n; i++) {
        char c = s->s[i];

        if (c == '-' || c == '_' || c == ' ') {
            continue;
        }
        if (name[k] == '\0' || (c >= 'A' && c <= 'Z' ? c + 32 : c) != name[k]) {
            return false;
        }
        k++;
    }
    return name[k] == '\0';
}

static struct val m_encode(struct jrun *r, const struct val *a)
{
    struct str *name = v_given(a[1]) ? arg_str(r, a[1], "encoding") : NULL;
    struct str *errors = v_given(a[2]) ? arg_str(r, a[2], "errors") : NULL;
    bool ascii = name != NULL && (same_name(name, "ascii") || same_name(name, "usascii"));
    bool latin = name != NULL && (same_name(name, "latin1") || same_name(name, "iso88591"));
    struct chars c = chars_of(a[0].str);
    struct sb b;

    if (name != NULL && !ascii && !latin && !same_name(name, "utf8") && !same_name(name, "u8")) {
        return run_fail(r, "LookupError: encode() knows utf-8, ascii and latin-1");
    }
    if (!ascii && !latin) {
        return (struct val){ .kind = V_BYTES, .str = a[0].str };
    }
    sb_init(&b, r);
    while (chars_next(&c) && !r->failed) {
        if (c.cp < (ascii ? 0x80u : 0x100u)) {
            sb_putc(&b, (char)c.cp);
        } else if (errors != NULL && str_is(errors, "replace")) {
            sb_putc(&b, '?');
        } else if (errors == NULL || !str_is(errors, "ignore")) {
            run_fail(r, "UnicodeEncodeError: '%s' codec can't encode character",
                     ascii ? "ascii" : "latin-1");
        }
    }
    if (a[0].str->n_marks > 0) {
        sb_mark(&b, 0, b.n);
    }
    return (struct val){ .kind = V_BYTES, .str = sb_take(&b) };
}

static struct val m_maketrans(struct jrun *r, const struct val *a)
{
    struct dict *d = dict_new(r, 0);
    struct chars x, y;

    if (!v_given(a[2])) {
        if (a[1].kind != V_DICT) {
            return run_fail(r, "TypeError: if you give only one argument to maketrans it must be a "
                               "dict");
        }
        for (size_t i = 0; i < a[1].dict->n && !r->failed; i++) {
            struct val key = a[1].dict->e[i].key;

            if (key.kind == V_STR) {
                x = chars_of(key.str);
                if (!chars_next(&x) || x.pos != key.str->n) {
                    return run_fail(r, "ValueError: string keys in translate table must be of "
                                       "length 1");
                }
                key = v_int(x.cp);
            }
            dict_set(r, d, key, a[1].dict->e[i].value);
        }
        return v_dict(d);
    }
    x = chars_of(arg_str(r, a[1], "x"));
    y = chars_of(arg_str(r, a[2], "y"));
    if (str_len(x.s) != str_len(y.s)) {
        return run_fail(r, "ValueError: the first two maketrans arguments must have equal length");
    }
    while (chars_next(&x) && chars_next(&y)) {
        dict_set(r, d, v_int(x.cp), v_int(y.cp));
    }
    if (v_given(a[3])) {
        x = chars_of(arg_str(r, a[3], "z"));
        while (chars_next(&x)) {
            dict_set(r, d, v_int(x.cp), v_none());
        }
    }
    return v_dict(d);
}

static struct val m_translate(struct jrun *r, const struct val *a)
{
    struct chars c = chars_of(a[0].str);
    struct sb b;

    if (a[1].kind != V_DICT) {
        return run_fail(r, "TypeError: translate() needs a table as dict");
    }
    sb_init(&b, r);
    while (chars_next(&c) && run_step(r, 1)) {
        const struct val *to = dict_get(r, a[1].dict, v_int(c.cp));

        if (to == NULL) {
            sb_char(&b, c.cp, c.marked);
        } else if (to->kind == V_STR) {
            sb_str(&b, to->str);
        } else if (to->kind == V_INT && to->i >= 0 && to->i <= 0x10FFFF &&
                   !(to->i >= 0xD800 && to->i < 0xE000)) {
            sb_char(&b, (uint32_t)to->i, c.marked);
        } else if (to->kind != V_NONE) {
            run_fail(r, "TypeError: character mapping must return integer, None or str");
        }
    }
    return keep(r, a, sb_take(&b));
}

static struct val need_markup(struct jrun *r, const struct val *a, struct str *s)
{
    return a[0].str->markup ? v_str(s)
                            : run_fail(r, "'str' object has no attribute of this name");
}

static struct val m_unescape(struct jrun *r, const struct val *a)
{
    return need_markup(r, a, html_unescape(r, a[0].str));
}

static struct val m_striptags(struct jrun *r, const struct val *a)
{
    return need_markup(r, a, html_striptags(r, a[0].str));
}

const struct builtin jinja_str_methods[] = {
    { "capitalize", "", m_capitalize },
    { "casefold", "", m_casefold },
    { "center", "width fill? /", m_center },
    { "count", "sub start? end? /", m_count },
    { "encode", "encoding? errors?", m_encode },
    { "endswith", "suffix start? end? /", m_endswith },
    { "expandtabs", "tabsize?", m_expandtabs },
    { "find", "sub start? end? /", m_find },
    { "format", "*args **kwargs", m_format },
    { "format_map", "mapping /", m_format_map },
    { "index", "sub start? end? /", m_index },
    { "isalnum", "", m_isalnum },
    { "isalpha", "", m_isalpha },
    { "isascii", "", m_isascii },
    { "isdecimal", "", m_isdecimal },
    { "isdigit", "", m_isdigit },
    { "isidentifier", "", m_isidentifier },
    { "islower", "", m_islower },
    { "isnumeric", "", m_isnumeric },
    { "isprintable", "", m_isprintable },
    { "isspace", "", m_isspace },
    { "istitle", "", m_istitle },
    { "isupper", "", m_isupper },
    { "join", "iterable /", m_join },
    { "ljust", "width fill? /", m_ljust },
    { "lower", "", m_lower },
    { "lstrip", "chars? /", m_lstrip },
    { "maketrans", "x y? z? /", m_maketrans },
    { "partition", "sep /", m_partition },
    { "removeprefix", "prefix /", m_removeprefix },
    { "removesuffix", "suffix /", m_removesuffix },
    { "replace", "old new count? /", m_replace },
    { "rfind", "sub start? end? /", m_rfind },
    { "rindex", "sub start? end? /", m_rindex },
    { "rjust", "width fill? /", m_rjust },
    { "rpartition", "sep /", m_rpartition },
    { "rsplit", "sep? maxsplit?", m_rsplit },
    { "rstrip", "chars? /", m_rstrip },
    { "split", "sep? maxsplit?", m_split },
    { "splitlines", "keepends?", m_splitlines },
    { "startswith", "prefix start? end? /", m_startswith },
    { "strip", "chars? /", m_strip },
    { "striptags", "", m_striptags },
    { "swapcase", "", m_swapcase },
    { "title", "", m_title },
    { "translate", "table /", m_translate },
    { "unescape", "", m_unescape },
    { "upper", "", m_upper },
    { "zfill", "width /", m_zfill },
    { NULL, NULL, NULL },
};

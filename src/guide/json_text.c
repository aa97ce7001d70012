/* json_text.c - expressions of JSON.
 *
 * Numbers are limited so that every reader understands them alike: integers to 18
 * digits, others to 16 digits on either side and an exponent of two.  Where numbers have
 * bounds they have at most 15 digits near a bound, so that different texts are different
 * doubles and the comparison is that of the digits. */
#include "guide/json_text.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "guide/charset.h"

/* Blanks or tabs at the beginning of a line; more are no layout but a model that is lost. */
enum { INDENT_MAX = 32 };

/* ---- values ------------------------------------------------------------------------- */

static gram_expr hex_range(struct grammar *g, const char *chars)
{
    struct gram_set set = {{0}};

    for (; *chars; chars++) {
        set.bits[(unsigned char)*chars / 64] |= (uint64_t)1 << (unsigned char)*chars % 64;
    }
    return gram_set(g, &set);
}

/* \uHHHH of a character other than 0, or of a pair of surrogates. */
static gram_expr unicode_escape(struct grammar *g)
{
    const gram_expr hex = hex_range(g, "0123456789abcdefABCDEF");
    const gram_expr nonzero = hex_range(g, "123456789abcdefABCDEF");
    const gram_expr zero = gram_str(g, "0");
    const gram_expr plain = GRAM_ALT(g,
        GRAM_SEQ(g, hex_range(g, "123456789abcefABCEF"), hex, hex, hex),
        GRAM_SEQ(g, zero, nonzero, hex, hex),
        GRAM_SEQ(g, zero, zero, nonzero, hex),
        GRAM_SEQ(g, zero, zero, zero, nonzero),
        GRAM_SEQ(g, hex_range(g, "dD"), hex_range(g, "01234567"), hex, hex));
    const gram_expr pair = GRAM_SEQ(g, hex_range(g, "dD"), hex_range(g, "89abAB"), hex, hex,
                                    gram_str(g, "\\u"), hex_range(g, "dD"),
                                    hex_range(g, "cdefCDEF"), hex, hex);

    return GRAM_SEQ(g, gram_str(g, "u"), GRAM_ALT(g, plain, pair));
}

static void init_chars(struct json_text *j)
{
    struct charset plain = {0};

    charset_add(&plain, 0, 0x1F);
    charset_add(&plain, '"', '"');
    charset_add(&plain, '\\', '\\');
    charset_close(&plain);
    charset_invert(&plain);
    j->key_char = charset_expr(j->g, &plain);
    charset_deinit(&plain);
    j->string_char = GRAM_ALT(j->g, j->key_char,
        GRAM_SEQ(j->g, gram_str(j->g, "\\"), GRAM_ALT(j->g, hex_range(j->g, "\"\\/bfnrt"),
                                                      unicode_escape(j->g))));
}

static void init_numbers(struct json_text *j)
{
    struct grammar *g = j->g;
    const gram_expr minus = gram_optional(g, gram_str(g, "-"));
    const gram_expr first = gram_range(g, '1', '9');
    const gram_expr zero = gram_str(g, "0");
    const gram_expr whole = GRAM_ALT(g, zero, GRAM_SEQ(g, first, gram_repeat(g, j->digit, 0, 15)));
    const gram_expr fraction = GRAM_SEQ(g, gram_str(g, "."), gram_repeat(g, j->digit, 1, 16));
    const gram_expr exponent = GRAM_SEQ(g, hex_range(g, "eE"),
                                        gram_optional(g, hex_range(g, "+-")),
                                        gram_repeat(g, j->digit, 1, 2));

    j->number = GRAM_SEQ(g, minus, whole, gram_optional(g, fraction), gram_optional(g, exponent));
    j->integer = GRAM_SEQ(g, minus, GRAM_ALT(g, zero,
                                             GRAM_SEQ(g, first, gram_repeat(g, j->digit, 0, 17))));
}

gram_expr json_text_braces(const struct json_text *j, const char *open, gram_expr inside,
                           const char *close)
{
    struct grammar *g = j->g;

    return GRAM_SEQ(g, gram_str(g, open), j->space, inside, gram_str(g, close));
}

/* What is listed, separated by commas, at least one, with the space behind it. */
static gram_expr listed(const struct json_text *j, gram_expr e)
{
    struct grammar *g = j->g;

    return GRAM_SEQ(g, e, gram_repeat(g, GRAM_SEQ(g, j->comma, e), 0, GRAM_INF), j->space);
}

void json_text_init(struct json_text *j, struct grammar *g)
{
    j->g = g;
    const gram_expr newline = GRAM_SEQ(g, gram_str(g, "\n"),
                                       gram_repeat(g, hex_range(g, " \t"), 0, INDENT_MAX));
    j->space = GRAM_ALT(g, GRAM_NOTHING, gram_str(g, " "), newline);
    j->comma = GRAM_SEQ(g, gram_str(g, ","), j->space);
    j->colon = GRAM_SEQ(g, gram_str(g, ":"), j->space);
    j->digit = gram_range(g, '0', '9');
    init_chars(j);
    init_numbers(j);
    j->string = json_text_string(j, 0, GRAM_INF);

    const gram_expr value = gram_rule(g, "value");
    const gram_expr member = GRAM_SEQ(g, j->string, j->colon, value);
    j->object = json_text_braces(j, "{", gram_optional(g, listed(j, member)), "}");
    j->array = json_text_braces(j, "[", gram_optional(g, listed(j, value)), "]");
    gram_define(g, value, GRAM_ALT(g, j->object, j->array, j->string, j->number,
                                   gram_str(g, "true"), gram_str(g, "false"),
                                   gram_str(g, "null")));
    j->value = value;
}

gram_expr json_text_string(const struct json_text *j, uint32_t min, uint32_t max)
{
    const gram_expr quote = gram_str(j->g, "\"");

    return GRAM_SEQ(j->g, quote, gram_repeat(j->g, j->string_char, min, max), quote);
}

gram_expr json_text_name(const struct json_text *j, const char *s, size_t n)
{
    struct buf text;

    buf_init(&text, 0);
    buf_putc(&text, '"');
    json_escape(&text, s, n);
    buf_putc(&text, '"');
    j->g->no_memory |= text.failed;
    const gram_expr e = gram_lit(j->g, buf_str(&text), text.len);
    buf_deinit(&text);
    return e;
}

/* Values are as deep as the reader of JSON allows, so recursion is fine. */
gram_expr json_text_value(const struct json_text *j, const json_t *value)
{
    struct grammar *g = j->g;
    struct gram_list list = {0};
    const bool is_object = json_is_object(value);

    if (json_is_string(value)) {
        return json_text_name(j, json_string_value(value), json_string_length(value));
    }
    if (!is_object && !json_is_array(value)) {
        char *text = json_dumps(value, JSON_ENCODE_ANY);
        g->no_memory |= !text;
        const gram_expr e = text ? gram_str(g, text) : GRAM_NONE;
        free(text);
        return e;
    }
    const size_t n = is_object ? json_object_size(value) : json_array_size(value);
    void *iter = json_object_iter((json_t *)(uintptr_t)value);
    for (size_t i = 0; i < n && !gram_failed(g); i++) {
        if (i > 0) {
            gram_list_add(g, &list, j->comma);
        }
        if (is_object) {
            const char *key = json_object_iter_key(iter);
            gram_list_add(g, &list, json_text_name(j, key, strlen(key)));
            gram_list_add(g, &list, j->colon);
            gram_list_add(g, &list, json_text_value(j, json_object_iter_value(iter)));
            iter = json_object_iter_next((json_t *)(uintptr_t)value, iter);
        } else {
            gram_list_add(g, &list, json_text_value(j, json_array_get(value, i)));
        }
    }
    if (n > 0) {
        gram_list_add(g, &list, j->space);
    }
    const gram_expr e = json_text_braces(j, is_object ? "{" : "[",
                                         gram_seq(g, list.e, list.n), is_object ? "}" : "]");
    gram_list_deinit(&list);
    return e;
}

/* ---- keys other than some ------------------------------------------------------------- */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Continuations, after `at` bytes that names[0..n) have in common, by which a key is none of
 * them.  Names are only followed for some bytes; keys that agree so far are left out. */
static gram_expr other_rest(const struct json_text *j, const char **names, size_t n, size_t at)
{
    enum { FOLLOWED = 100 };
    struct grammar *g = j->g;
    struct gram_list list = {0};
    struct charset others = {0};
    size_t i = 0;

    charset_add(&others, 0, 0x1F);
    charset_add(&others, '"', '"');
    charset_add(&others, '\\', '\\');
    if (names[0][at] != '\0') {
        gram_list_add(g, &list, GRAM_NOTHING);
    }
    while (i < n && names[i][at] == '\0') {
        i++;
    }
    while (i < n && !gram_failed(g)) {
        uint32_t cp = 0;
        const int len = utf8_decode(names[i] + at, strlen(names[i] + at), &cp);
        size_t same = i + 1;
        while (same < n && strncmp(names[same] + at, names[i] + at, (size_t)len) == 0) {
            same++;
        }
        charset_add(&others, cp, cp);
        if (at < FOLLOWED && cp >= 0x20 && cp != '"' && cp != '\\') {
            const gram_expr rest = other_rest(j, names + i, same - i, at + (size_t)len);
            gram_list_add(g, &list, GRAM_SEQ(g, gram_lit(g, names[i] + at, (size_t)len), rest));
        }
        i = same;
    }
    charset_close(&others);
    charset_invert(&others);
    const gram_expr any = gram_repeat(g, j->key_char, 0, GRAM_INF);
    gram_list_add(g, &list, GRAM_SEQ(g, charset_expr(g, &others), any));
    const gram_expr e = gram_alt(g, list.e, list.n);
    gram_list_deinit(&list);
    charset_deinit(&others);
    return e;
}

gram_expr json_text_other_key(const struct json_text *j, const char **names, size_t n)
{
    const gram_expr quote = gram_str(j->g, "\"");
    gram_expr text = gram_repeat(j->g, j->key_char, 0, GRAM_INF);

    if (n > 0) {
        qsort(names, n, sizeof *names, by_text);
        text = other_rest(j, names, n, 0);
    }
    return GRAM_SEQ(j->g, quote, text, quote);
}

/* ---- integers in a range --------------------------------------------------------------- */

enum { INT_DIGITS = 18, MODULUS_MAX = 256, LISTED_MAX = 1000 };

/* Numbers of a fixed count of digits between two others, by the digits so far: whether those are
 * still the lower and the upper bound's, and their remainder. */
struct digits {
    const struct json_text *j;
    unsigned m;
    int n;
    char lo[INT_DIGITS + 1], hi[INT_DIGITS + 1];
    gram_expr *rest;  /* [INT_DIGITS + 1][m], of digits that are free; GRAM_NONE: not made */
};

static gram_expr digits_from(struct digits *d, int at, bool low, bool high, unsigned r);

/* `left` digits that bring remainder r to 0. */
static gram_expr free_digits(struct digits *d, int left, unsigned r)
{
    struct grammar *g = d->j->g;
    struct gram_list list = {0};

    if (left == 0) {
        return r == 0 ? GRAM_NOTHING : GRAM_NONE;
    }
    if (d->m == 1) {
        return gram_repeat(g, d->j->digit, (uint32_t)left, (uint32_t)left);
    }
    gram_expr *made = &d->rest[(size_t)left * d->m + r];
    if (*made == GRAM_NONE) {
        for (unsigned c = 0; c < 10; c++) {
            const gram_expr rest = free_digits(d, left - 1, (r * 10 + c) % d->m);
            gram_list_add(g, &list, GRAM_SEQ(g, gram_range(g, '0' + c, '0' + c), rest));
        }
        *made = gram_alt(g, list.e, list.n);
        gram_list_deinit(&list);
    }
    return *made;
}

static gram_expr digits_from(struct digits *d, int at, bool low, bool high, unsigned r)
{
    struct grammar *g = d->j->g;
    struct gram_list list = {0};

    if ((!low && !high) || at == d->n) {
        return free_digits(d, d->n - at, r);
    }
    const unsigned first = low ? (unsigned)(d->lo[at] - '0') : 0;
    const unsigned last = high ? (unsigned)(d->hi[at] - '0') : 9;
    if (d->m == 1 && last > first + 1) {
        /* Between the bounds everything goes; at them it depends. */
        const unsigned a = first + low, b = last - high;
        const gram_expr rest = free_digits(d, d->n - at - 1, 0);
        gram_list_add(g, &list, GRAM_SEQ(g, gram_range(g, '0' + a, '0' + b), rest));
    }
    for (unsigned c = first; c <= last; c++) {
        const bool l = low && c == first, h = high && c == last;
        if (d->m == 1 && last > first + 1 && !l && !h) {
            continue;
        }
        const gram_expr rest = digits_from(d, at + 1, l, h, (r * 10 + c) % d->m);
        gram_list_add(g, &list, GRAM_SEQ(g, gram_range(g, '0' + c, '0' + c), rest));
    }
    const gram_expr e = gram_alt(g, list.e, list.n);
    gram_list_deinit(&list);
    return e;
}

static void print_digits(char *out, uint64_t v, int n)
{
    for (int i = n; i-- > 0; v /= 10) {
        out[i] = (char)('0' + v % 10);
    }
}

/* lo to hi, not negative. */
static gram_expr unsigned_range(const struct json_text *j, uint64_t lo, uint64_t hi, unsigned m)
{
    struct grammar *g = j->g;
    struct digits d = { .j = j, .m = m };
    struct gram_list list = {0};
    uint64_t first = 0, last = 9;

    d.rest = mem_zalloc((size_t)(INT_DIGITS + 1) * m, sizeof *d.rest);
    if (!d.rest) {
        g->no_memory = true;
        return GRAM_NONE;
    }
    for (d.n = 1; d.n <= INT_DIGITS && lo <= hi; d.n++) {
        const uint64_t a = lo > first ? lo : first, b = hi < last ? hi : last;
        if (a <= b) {
            print_digits(d.lo, a, d.n);
            print_digits(d.hi, b, d.n);
            gram_list_add(g, &list, digits_from(&d, 0, true, true, 0));
        }
        first = last + 1;
        last = last * 10 + 9;
    }
    const gram_expr e = gram_alt(g, list.e, list.n);
    gram_list_deinit(&list);
    mem_free(d.rest);
    return e;
}

bool json_text_integers_ok(int64_t lo, int64_t hi, int64_t m)
{
    return m <= MODULUS_MAX || (lo <= hi && (hi - lo) / m < LISTED_MAX) || lo > hi;
}

gram_expr json_text_integers(const struct json_text *j, int64_t lo, int64_t hi, int64_t m)
{
    struct grammar *g = j->g;
    struct gram_list list = {0};

    if (m <= MODULUS_MAX) {
        if (lo < 0) {
            const gram_expr below = unsigned_range(j, hi < 0 ? (uint64_t)-hi : 1, (uint64_t)-lo,
                                                   (unsigned)m);
            gram_list_add(g, &list, GRAM_SEQ(g, gram_str(g, "-"), below));
        }
        if (hi >= 0) {
            gram_list_add(g, &list, unsigned_range(j, lo > 0 ? (uint64_t)lo : 0, (uint64_t)hi,
                                                   (unsigned)m));
        }
    } else if (lo <= hi) {
        const int64_t begin = lo > 0 ? (lo + m - 1) / m : lo / m;
        for (int64_t k = begin; k * m <= hi && !gram_failed(g); k++) {
            json_t *v = json_integer(k * m);
            gram_list_add(g, &list, json_text_value(j, v));
            json_decref(v);
        }
    }
    const gram_expr e = gram_alt(g, list.e, list.n);
    gram_list_deinit(&list);
    return e;
}

/* ---- numbers in a range ----------------------------------------------------------------- */

enum { FRACTION_MAX = 60 };

/* A magnitude in decimal notation. */
struct decimal {
    bool given, exclusive;
    uint64_t whole;
    char fraction[FRACTION_MAX + 1];  /* without zeros at the end */
};

/* The shortest text of |v|, |v| < JSON_BOUND_MAX, that reads as v. */
static bool shortest_text(double v, char out[40])
{
    bool found = false;

    for (size_t digits = 1; !found && digits <= 17; digits++) {
        json_t *real = json_real(fabs(v));
        char *text = json_dumps(real, JSON_ENCODE_ANY | JSON_REAL_PRECISION(digits));
        json_t *back = text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
        if (back && strlen(text) < 40 && json_number_value(back) == fabs(v)) {
            strcpy(out, text);
            found = true;
        }
        json_decref(real);
        json_decref(back);
        free(text);
    }
    return found;
}

/* Digits behind FRACTION_MAX places are dropped: no text reaches them. */
static bool to_decimal(double v, bool exclusive, struct decimal *out)
{
    char text[40], digits[40] = "";
    int n = 0, point = -1, exponent = 0;

    *out = (struct decimal){ .given = true, .exclusive = exclusive };
    if (!shortest_text(v, text)) {
        return false;
    }
    for (const char *s = text; *s; s++) {
        if (*s == 'e' || *s == 'E') {
            exponent = atoi(s + 1);
            break;
        }
        if (*s == '.') {
            point = n;
        } else {
            digits[n++] = *s;
        }
    }
    point = (point < 0 ? n : point) + exponent;
    for (int i = 0; i < point; i++) {
        out->whole = out->whole * 10 + (uint64_t)(i < n ? digits[i] - '0' : 0);
    }
    int len = 0;
    for (int i = point; i < n && len < FRACTION_MAX; i++) {
        out->fraction[len++] = i < 0 ? '0' : digits[i];
    }
    while (len > 0 && out->fraction[len - 1] == '0') {
        out->fraction[--len] = '\0';
    }
    return true;
}

struct fractions {
    const struct json_text *j;
    const struct decimal *lo, *hi;
    int max;  /* digits */
};

static char digit_of(const struct decimal *d, int i)
{
    return i < (int)strlen(d->fraction) ? d->fraction[i] : '0';
}

/* Whether a fraction may end after `at` digits that are still those of the bounds in low and
 * high. */
static bool may_end(const struct fractions *f, int at, bool low, bool high)
{
    const bool over = !low || (at >= (int)strlen(f->lo->fraction) && !f->lo->exclusive);
    const bool under = !high || at < (int)strlen(f->hi->fraction) || !f->hi->exclusive;

    return over && under;
}

static gram_expr fraction_from(const struct fractions *f, int at, bool low, bool high)
{
    struct grammar *g = f->j->g;
    struct gram_list list = {0};

    if (!low && !high) {
        return gram_repeat(g, f->j->digit, at == 0, (uint32_t)(f->max - at));
    }
    if (at > 0 && may_end(f, at, low, high)) {
        gram_list_add(g, &list, GRAM_NOTHING);
    }
    const char first = low ? digit_of(f->lo, at) : '0';
    const char last = high ? digit_of(f->hi, at) : '9';
    for (char c = first; c <= last && at < f->max; c++) {
        const gram_expr rest = fraction_from(f, at + 1, low && c == first, high && c == last);
        gram_list_add(g, &list, GRAM_SEQ(g, gram_range(g, (unsigned char)c, (unsigned char)c),
                                         rest));
    }
    const gram_expr e = gram_alt(g, list.e, list.n);
    gram_list_deinit(&list);
    return e;
}

/* The whole number with every fraction that fits. */
static gram_expr with_fraction(const struct fractions *f, uint64_t whole, bool low, bool high)
{
    struct grammar *g = f->j->g;
    const gram_expr point = gram_str(g, ".");
    const gram_expr fraction = GRAM_SEQ(g, point, fraction_from(f, 0, low, high));
    const gram_expr number = json_text_integers(f->j, (int64_t)whole, (int64_t)whole, 1);

    return GRAM_SEQ(g, number, may_end(f, 0, low, high) ? gram_optional(g, fraction) : fraction);
}

static int count_digits(uint64_t v)
{
    int n = 1;

    for (; v > 9; v /= 10) {
        n++;
    }
    return n;
}

/* Magnitudes from lo to hi; hi may be open. */
static gram_expr magnitudes(const struct json_text *j, const struct decimal *lo,
                            const struct decimal *hi)
{
    struct grammar *g = j->g;
    const uint64_t largest = hi->given ? hi->whole : lo->whole;
    const int places = 15 - count_digits(largest);
    const struct fractions f = { j, lo, hi, places > 1 ? places : 1 };
    const int64_t end = hi->given ? (int64_t)hi->whole - 1 : INT64_C(999999999999999);
    struct gram_list list = {0};

    if (hi->given && hi->whole < lo->whole) {
        return GRAM_NONE;
    }
    if (hi->given && hi->whole == lo->whole) {
        if (strcmp(hi->fraction, lo->fraction) < 0) {
            return GRAM_NONE;
        }
        return with_fraction(&f, lo->whole, true, true);
    }
    gram_list_add(g, &list, with_fraction(&f, lo->whole, true, false));
    if ((int64_t)lo->whole + 1 <= end) {
        const gram_expr fraction = GRAM_SEQ(g, gram_str(g, "."),
                                            fraction_from(&f, 0, false, false));
        gram_list_add(g, &list, GRAM_SEQ(g, json_text_integers(j, (int64_t)lo->whole + 1, end, 1),
                                         gram_optional(g, fraction)));
    }
    if (hi->given) {
        gram_list_add(g, &list, with_fraction(&f, hi->whole, false, true));
    }
    const gram_expr e = gram_alt(g, list.e, list.n);
    gram_list_deinit(&list);
    return e;
}

gram_expr json_text_numbers(const struct json_text *j, struct json_bound lo, struct json_bound hi)
{
    struct grammar *g = j->g;
    struct decimal low = {0}, high = {0};
    const struct decimal zero = { .given = true }, above_zero = { .given = true,
                                                                  .exclusive = true };
    gram_expr below = GRAM_NONE, above = GRAM_NONE;

    if ((lo.given && !to_decimal(lo.value, lo.exclusive, &low)) ||
        (hi.given && !to_decimal(hi.value, hi.exclusive, &high))) {
        g->no_memory = true;
        return GRAM_NONE;
    }
    if (!lo.given || lo.value < 0) {
        const bool all = !hi.given || hi.value >= 0;
        below = GRAM_SEQ(g, gram_str(g, "-"), magnitudes(j, all ? &above_zero : &high, &low));
    }
    if (!hi.given || hi.value >= 0) {
        above = magnitudes(j, lo.given && lo.value >= 0 ? &low : &zero, &high);
    }
    return GRAM_ALT(g, below, above);
}

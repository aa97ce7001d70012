/* jinja_num.c - arithmetic as Python does it: integers without bounds, floor division,
 * floats with Python's errors, text to number and back. */
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "text/jinja_run.h"

static struct val div_by_zero(struct jrun *r, const char *what)
{
    return run_fail(r, "ZeroDivisionError: %s", what);
}

bool num_double(struct jrun *r, struct val v, double *out)
{
    if (v.kind == V_FLOAT) {
        *out = v.f;
        return true;
    }
    *out = v.kind == V_BIG ? big_to_double(v) : (double)v_small(v);
    if (isinf(*out)) {
        run_fail(r, "OverflowError: int too large to convert to float");
        return false;
    }
    return true;
}

/* Both operands as doubles where one of them is a float. */
static bool as_floats(struct jrun *r, struct val a, struct val b, double *x, double *y)
{
    *x = *y = 0;
    if (a.kind != V_FLOAT && b.kind != V_FLOAT) {
        return false;
    }
    return num_double(r, a, x) && num_double(r, b, y);
}

static bool both_small(struct val a, struct val b)
{
    return a.kind != V_BIG && b.kind != V_BIG && a.kind != V_FLOAT && b.kind != V_FLOAT;
}

struct val num_add(struct jrun *r, struct val a, struct val b)
{
    double x, y;
    int64_t i;

    if (both_small(a, b) && !__builtin_add_overflow(v_small(a), v_small(b), &i)) {
        return v_int(i);
    }
    if (as_floats(r, a, b, &x, &y)) {
        return v_float(x + y);
    }
    return r->failed ? v_none() : big_add(r, a, b);
}

struct val num_sub(struct jrun *r, struct val a, struct val b)
{
    double x, y;
    int64_t i;

    if (both_small(a, b) && !__builtin_sub_overflow(v_small(a), v_small(b), &i)) {
        return v_int(i);
    }
    if (as_floats(r, a, b, &x, &y)) {
        return v_float(x - y);
    }
    return r->failed ? v_none() : big_sub(r, a, b);
}

struct val num_mul(struct jrun *r, struct val a, struct val b)
{
    double x, y;
    int64_t i;

    if (both_small(a, b) && !__builtin_mul_overflow(v_small(a), v_small(b), &i)) {
        return v_int(i);
    }
    if (as_floats(r, a, b, &x, &y)) {
        return v_float(x * y);
    }
    return r->failed ? v_none() : big_mul(r, a, b);
}

static bool exact_double(struct val v)
{
    return v.kind != V_BIG && v_small(v) <= 1LL << 53 && v_small(v) >= -(1LL << 53);
}

struct val num_div(struct jrun *r, struct val a, struct val b)
{
    double x, y, q;

    if (as_floats(r, a, b, &x, &y)) {
        return y == 0 ? div_by_zero(r, "float division by zero") : v_float(x / y);
    }
    if (r->failed) {
        return v_none();
    }
    if (big_sign(b) == 0) {
        return div_by_zero(r, "division by zero");
    }
    if (exact_double(a) && exact_double(b)) {
        return v_float((double)v_small(a) / (double)v_small(b));
    }
    q = big_true_div(r, a, b);
    if (isinf(q)) {
        return run_fail(r, "OverflowError: integer division result too large for a float");
    }
    return v_float(q);
}

/* Quotient and remainder of floats, the remainder having the sign of the divisor. */
static void float_divmod(double x, double y, double *div, double *mod)
{
    double m = fmod(x, y), d = (x - m) / y;

    if (m != 0) {
        if ((y < 0) != (m < 0)) {
            m += y;
            d -= 1.0;
        }
    } else {
        m = copysign(0.0, y);
    }
    if (d != 0) {
        double f = floor(d);

        d = d - f > 0.5 ? f + 1.0 : f;
    } else {
        d = copysign(0.0, x / y);
    }
    *div = d;
    *mod = m;
}

struct val num_floordiv(struct jrun *r, struct val a, struct val b)
{
    double x, y, d, m;
    struct val q;

    if (as_floats(r, a, b, &x, &y)) {
        if (y == 0) {
            return div_by_zero(r, "float floor division by zero");
        }
        float_divmod(x, y, &d, &m);
        return v_float(d);
    }
    if (r->failed) {
        return v_none();
    }
    if (big_sign(b) == 0) {
        return div_by_zero(r, "integer division or modulo by zero");
    }
    if (both_small(a, b) && v_small(b) != -1) {
        int64_t i = v_small(a) / v_small(b);

        return v_int(i - (v_small(a) % v_small(b) != 0 && (v_small(a) < 0) != (v_small(b) < 0)));
    }
    big_divmod(r, a, b, &q, NULL);
    return q;
}

struct val num_mod(struct jrun *r, struct val a, struct val b)
{
    double x, y, d, m;
    struct val rem;

    if (as_floats(r, a, b, &x, &y)) {
        if (y == 0) {
            return div_by_zero(r, "float modulo");
        }
        float_divmod(x, y, &d, &m);
        return v_float(m);
    }
    if (r->failed) {
        return v_none();
    }
    if (big_sign(b) == 0) {
        return div_by_zero(r, "integer modulo by zero");
    }
    if (both_small(a, b) && v_small(b) != -1) {
        int64_t i = v_small(a) % v_small(b);

        return v_int(i != 0 && (i < 0) != (v_small(b) < 0) ? i + v_small(b) : i);
    }
    big_divmod(r, a, b, NULL, &rem);
    return rem;
}

static struct val int_pow(struct jrun *r, struct val a, int64_t e)
{
    struct val out = v_int(1);

    if (e > 1 && big_bits(a) > 1 && (uint64_t)e > ((uint64_t)1 << 22) / big_bits(a)) {
        return run_fail(r, "OverflowError: the result of ** exceeds the limit of %d bits", 1 << 22);
    }
    while (e > 0 && run_step(r, 1)) {
        if (e & 1) {
            out = num_mul(r, out, a);
        }
        e >>= 1;
        if (e > 0) {
            a = num_mul(r, a, a);
        }
    }
    return out;
}

static struct val float_pow(struct jrun *r, double x, double y)
{
    double p;

    if (x == 0 && y < 0) {
        return div_by_zero(r, "0.0 cannot be raised to a negative power");
    }
    if (x < 0 && isfinite(x) && isfinite(y) && y != floor(y)) {
        return run_fail(r, "a negative number to a fractional power is complex, which is not "
                        "supported");
    }
    p = pow(x, y);
    if (isinf(p) && isfinite(x) && isfinite(y)) {
        return run_fail(r, "OverflowError: (34, 'Numerical result out of range')");
    }
    return v_float(p);
}

struct val num_pow(struct jrun *r, struct val a, struct val b)
{
    double x, y;

    if (v_is_int(a) && v_is_int(b) && big_sign(b) >= 0) {
        if (b.kind == V_BIG) {
            int64_t base = a.kind == V_BIG ? 2 : v_small(a);

            /* Beyond 2^63 only the powers of 0, 1 and -1 can be written down. */
            if (base == 0 || base == 1 || base == -1) {
                return v_int(base == -1 && !(b.big->d[0] & 1) ? 1 : base);
            }
            return run_fail(r, "OverflowError: the exponent of ** is too large");
        }
        return int_pow(r, a.kind == V_BOOL ? v_int(a.b) : a, v_small(b));
    }
    if (!num_double(r, a, &x) || !num_double(r, b, &y)) {
        return v_none();
    }
    return float_pow(r, x, y);
}

struct val num_neg(struct jrun *r, struct val a)
{
    if (a.kind == V_FLOAT) {
        return v_float(-a.f);
    }
    return num_sub(r, v_int(0), a);
}

struct val num_abs(struct jrun *r, struct val a)
{
    if (a.kind == V_FLOAT) {
        return v_float(fabs(a.f));
    }
    return big_sign(a) < 0 ? num_neg(r, a) : a.kind == V_BOOL ? v_int(a.b) : a;
}

/* ---- comparison --------------------------------------------------------------------- */

/* An integer against a finite float, exactly. */
static int cmp_int_float(struct val a, double y)
{
    int64_t t;

    if (a.kind == V_BIG) {
        double x = big_to_double(a);

        /* Equal after rounding: the integer part of such a float has no fraction, so
         * exactness is a matter of the bits that were rounded away. */
        if (x == y && big_bits(a) > 53) {
            size_t bits = big_bits(a), low = bits - 53;
            bool rest = false;
            bool up = false;
            uint64_t top = 0;

            for (size_t i = 0; i < bits; i++) {
                bool bit = a.big->d[i / 32] >> (i % 32) & 1;

                if (i < low) {
                    rest = rest || bit;
                } else {
                    top |= (uint64_t)bit << (i - low);
                }
            }
            if (!rest) {
                return 0;
            }
            up = ldexp((double)top, (int)low) < fabs(x);
            return up == a.big->neg ? 1 : -1;
        }
        return x < y ? -1 : x > y;
    }
    if (y >= 9223372036854775808.0 || y < -9223372036854775808.0) {
        return y > 0 ? -1 : 1;
    }
    t = (int64_t)y;
    if (v_small(a) != t) {
        return v_small(a) < t ? -1 : 1;
    }
    return (double)t < y ? -1 : (double)t > y;
}

int num_cmp(struct val a, struct val b)
{
    if (a.kind == V_FLOAT && b.kind == V_FLOAT) {
        return isnan(a.f) || isnan(b.f) ? 2 : (a.f > b.f) - (a.f < b.f);
    }
    if (a.kind == V_FLOAT) {
        int c = num_cmp(b, a);

        return c == 2 ? 2 : -c;
    }
    if (b.kind == V_FLOAT) {
        return isnan(b.f) ? 2 : isinf(b.f) ? (b.f > 0 ? -1 : 1) : cmp_int_float(a, b.f);
    }
    if (both_small(a, b)) {
        return (v_small(a) > v_small(b)) - (v_small(a) < v_small(b));
    }
    return big_cmp(a, b);
}

/* ---- rounding ----------------------------------------------------------------------- */

bool num_trunc(struct jrun *r, double x, bool fail, struct val *out)
{
    *out = v_int(0);
    if (isnan(x)) {
        if (fail) {
            run_fail(r, "ValueError: cannot convert float NaN to integer");
        }
        return false;
    }
    if (isinf(x)) {
        if (fail) {
            run_fail(r, "OverflowError: cannot convert float infinity to integer");
        }
        return false;
    }
    *out = big_from_double(r, trunc(x));
    return true;
}

/* v to a multiple of 10^k, ties to even; `above` tells that a fraction above v was dropped. */
static struct val round_tens(struct jrun *r, struct val v, int64_t k, bool above)
{
    struct val power, q, m, twice;
    int c;

    if (k > 400 && (uint64_t)k > big_bits(v)) {
        return v_int(0);
    }
    power = int_pow(r, v_int(10), k);
    big_divmod(r, v, power, &q, &m);
    twice = big_add(r, m, m);
    c = big_cmp(twice, power);
    if (c > 0 || (c == 0 && above)) {
        q = big_add(r, q, v_int(1));
    } else if (c == 0) {
        struct val odd;

        big_divmod(r, q, v_int(2), NULL, &odd);
        q = big_add(r, q, odd);
    }
    return big_mul(r, q, power);
}

static struct val round_float(struct jrun *r, double x, int64_t digits)
{
    char text[700];
    double y;

    if (!isfinite(x) || digits > 323) {
        return v_float(x);
    }
    if (digits < -308) {
        return v_float(copysign(0.0, x));
    }
    if (digits >= 0) {
        int n = snprintf(text, sizeof text, "%.*f", (int)digits, x);

        for (char *c = text; *c != '\0'; c++) {
            *c = *c == ',' ? '.' : *c;
        }
        y = num_strtod(text, (size_t)n);
    } else {
        struct val whole = big_from_double(r, floor(fabs(x)));
        struct val out = round_tens(r, whole, -digits, fabs(x) > floor(fabs(x)));

        y = copysign(big_to_double(out), x);
    }
    if (isinf(y)) {
        return run_fail(r, "OverflowError: rounded value too large to represent");
    }
    return v_float(y);
}

struct val num_round(struct jrun *r, struct val v, int64_t digits, bool has_digits)
{
    struct val out;

    if (v.kind == V_FLOAT && has_digits) {
        return round_float(r, v.f, digits);
    }
    if (v.kind == V_FLOAT) {
        num_trunc(r, nearbyint(v.f), true, &out);
        return out;
    }
    if (!has_digits || digits >= 0) {
        return v.kind == V_BOOL ? v_int(v.b) : v;
    }
    return round_tens(r, v.kind == V_BOOL ? v_int(v.b) : v, -digits, false);
}

/* ---- text --------------------------------------------------------------------------- */

double num_strtod(const char *s, size_t n)
{
    char small_text[128];
    char *text = n < sizeof small_text ? small_text : mem_alloc(n + 1, 1);
    const char *point = localeconv()->decimal_point;
    double x;

    if (text == NULL) {
        return NAN;
    }
    memcpy(text, s, n);
    text[n] = '\0';
    for (char *c = text; point[0] != '.' && *c != '\0'; c++) {
        *c = *c == '.' ? point[0] : *c;
    }
    x = strtod(text, NULL);
    if (text != small_text) {
        mem_free(text);
    }
    return x;
}

/* The decimal text above: "1.9995e+01" becomes "1.9996e+01".  False where all digits are 9. */
static bool next_decimal(char *text)
{
    char *c = strchr(text, 'e');

    while (c > text) {
        c--;
        if (*c >= '0' && *c < '9') {
            (*c)++;
            return true;
        }
        *c = *c == '9' ? '0' : *c;
    }
    return false;
}

/* Writes x with prec + 1 digits; whether that reads back as x. */
static bool reads_back(double x, int prec, char text[40])
{
    int exp;

    snprintf(text, 40, "%.*e", prec, x);
    if (strtod(text, NULL) == x) {
        return true;
    }
    /* Below a power of two doubles lie twice as close, so the decimal nearest to it may be too
     * far down while the next one up reads back. */
    return frexp(x, &exp) == 0.5 && next_decimal(text) && strtod(text, NULL) == x;
}

/* Digits and decimal exponent of the shortest text that reads back as x (finite, positive). */
static int shortest(double x, char digits[20], int *exp)
{
    char text[40];
    int n = 0;
    /* Fifteen digits are always told apart from their neighbours, so a shorter text only shows
     * as zeros at the end; subnormal numbers have fewer digits. */
    int prec = x < 0x1p-1022 ? 0 : 14;

    while (!reads_back(x, prec, text) && prec < 16) {
        prec++;
    }
    for (const char *c = text; *c != 'e'; c++) {
        if (*c >= '0' && *c <= '9') {
            digits[n++] = *c;
        }
    }
    *exp = atoi(strchr(text, 'e') + 1);
    while (n > 1 && digits[n - 1] == '0') {
        n--;
    }
    return n;
}

size_t num_repr(double x, char out[40])
{
    char digits[20];
    int n, exp;
    size_t at = 0;

    if (!isfinite(x)) {
        return (size_t)sprintf(out, "%s", isnan(x) ? "nan" : x < 0 ? "-inf" : "inf");
    }
    if (x == 0) {
        return (size_t)sprintf(out, signbit(x) ? "-0.0" : "0.0");
    }
    n = shortest(fabs(x), digits, &exp);
    if (x < 0) {
        out[at++] = '-';
    }
    if (exp < -4 || exp >= 16) {
        out[at++] = digits[0];
        if (n > 1) {
            out[at++] = '.';
            memcpy(out + at, digits + 1, (size_t)n - 1);
            at += (size_t)n - 1;
        }
        return at + (size_t)sprintf(out + at, "e%c%02d", exp < 0 ? '-' : '+', abs(exp));
    }
    if (exp < 0) {
        at += (size_t)sprintf(out + at, "0.%.*s%.*s", -exp - 1, "0000", n, digits);
        return at;
    }
    for (int i = 0; i <= exp || i < n; i++) {
        if (i == exp + 1) {
            out[at++] = '.';
        }
        out[at++] = i < n ? digits[i] : '0';
    }
    if (n <= exp + 1) {
        out[at++] = '.';
        out[at++] = '0';
    }
    out[at] = '\0';
    return at;
}

/* The text without white space around, decimal digits of any script turned into ASCII ones,
 * in memory of the run; NULL where a character cannot belong to a number. */
static char *number_text(struct jrun *r, const struct str *s, size_t *n)
{
    struct str *t = str_strip(r, s, NULL, STRIP_BOTH);
    char *out = run_alloc(r, t->n + 1);
    struct chars c = chars_of(t);

    *n = 0;
    while (out != NULL && chars_next(&c)) {
        int d = uc_digit_value(c.cp);

        if (d < 0 && c.cp >= 0x80) {
            return NULL;
        }
        out[(*n)++] = d >= 0 ? (char)('0' + d) : (char)c.cp;
    }
    if (out != NULL) {
        out[*n] = '\0';
    }
    return out;
}

/* Removes single underscores between digits of the base; false where one is elsewhere. */
static bool drop_underscores(char *s, size_t *n, bool (*digit)(char c, int base), int base)
{
    size_t out = 0;

    for (size_t i = 0; i < *n; i++) {
        if (s[i] != '_') {
            s[out++] = s[i];
        } else if (i == 0 || i + 1 == *n || !digit(s[i - 1], base) || !digit(s[i + 1], base)) {
            return false;
        }
    }
    *n = out;
    s[out] = '\0';
    return true;
}

static bool is_digit_of(char c, int base)
{
    int v = c >= '0' && c <= '9' ? c - '0'
            : (c | 32) >= 'a' && (c | 32) <= 'z' ? (c | 32) - 'a' + 10 : 99;

    return v < base;
}

/* The base that a prefix 0x, 0o, 0b stands for, else 0. */
static int prefix_base(const char *s, size_t n)
{
    if (n < 2 || s[0] != '0') {
        return 0;
    }
    return (s[1] | 32) == 'x' ? 16 : (s[1] | 32) == 'o' ? 8 : (s[1] | 32) == 'b' ? 2 : 0;
}

bool num_parse_int(struct jrun *r, const struct str *s, int base, struct val *out)
{
    size_t n;
    char *t = number_text(r, s, &n);
    bool neg = false;
    int prefix;

    if (t == NULL) {
        return false;
    }
    if (n > 0 && (*t == '-' || *t == '+')) {
        neg = *t == '-';
        t++;
        n--;
    }
    prefix = prefix_base(t, n);
    if (prefix != 0 && (base == 0 || base == prefix)) {
        base = prefix;
        t += 2;
        n -= 2;
        if (n > 0 && *t == '_') {
            t++;
            n--;
        }
    }
    if (n == 0) {
        return false;
    }
    if (base == 0) {
        base = 10;
        if (t[0] == '0' && strspn(t, "0_") != n) {
            return false;   /* a leading zero needs a prefix */
        }
    }
    if (!drop_underscores(t, &n, is_digit_of, base)) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if (!is_digit_of(t[i], base)) {
            return false;
        }
    }
    if (n > 4300 && (base & (base - 1)) != 0) {
        return false;
    }
    *out = big_from_digits(r, t, n, base, neg);
    return !r->failed;
}

bool num_parse_float(struct jrun *r, const struct str *s, double *out)
{
    static const char *const words[] = { "inf", "infinity", "nan" };
    size_t n, i = 0, digits = 0;
    char *t = number_text(r, s, &n);
    bool neg;

    if (t == NULL || !drop_underscores(t, &n, is_digit_of, 10)) {
        return false;
    }
    neg = n > 0 && t[0] == '-';
    i += n > 0 && (t[0] == '-' || t[0] == '+');
    for (size_t w = 0; w < 3; w++) {
        if (strcasecmp(t + i, words[w]) == 0 && strlen(t + i) == n - i) {
            *out = w < 2 ? INFINITY : NAN;
            *out = neg ? -*out : *out;
            return true;
        }
    }
    for (bool point = false; i < n && (is_digit_of(t[i], 10) || (t[i] == '.' && !point)); i++) {
        point = point || t[i] == '.';
        digits += t[i] != '.';
    }
    if (digits == 0) {
        return false;
    }
    if (i < n && (t[i] | 32) == 'e') {
        i++;
        i += i < n && (t[i] == '-' || t[i] == '+');
        digits = 0;
        for (; i < n && is_digit_of(t[i], 10); i++) {
            digits++;
        }
        if (digits == 0) {
            return false;
        }
    }
    if (i != n) {
        return false;
    }
    *out = num_strtod(t, n);
    return true;
}

/* schema_scalar.c - strings, with patterns and formats, and numbers of a schema. */
#include "guide/schema.h"

#include <math.h>
#include <string.h>

#include "guide/regex.h"

/* ---- strings ---------------------------------------------------------------------------- */

#define DATE_YEAR "([1-9]\\d{3}|0[1-9]\\d\\d|00[1-9]\\d|000[1-9])"
#define DATE_LEAP "(\\d\\d(0[48]|[2468][048]|[13579][26])|([2468][048]|[13579][26]|0[48])00)"
#define DATE "(" DATE_YEAR "-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|" \
             "(0[469]|11)-(0[1-9]|[12]\\d|30)|02-(0[1-9]|1\\d|2[0-8]))|" DATE_LEAP "-02-29)"
#define TIME "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,6})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define OCTET "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define H16 "[0-9a-fA-F]{1,4}"
#define LABEL "[a-zA-Z0-9]([a-zA-Z0-9-]{0,30}[a-zA-Z0-9])?"
#define HOST LABEL "(\\." LABEL "){0,4}"
#define URI_CHAR "[a-zA-Z0-9._~!$&'()*+,;=:@-]"

/* Each accepts a part of what the format's specification does; none accepts more. */
static const struct { const char *name, *regex; } formats[] = {
    { "date", DATE },
    { "time", TIME },
    { "date-time", DATE "T" TIME },
    { "duration", "P(\\d{1,6}W|(\\d{1,6}Y(\\d{1,6}M(\\d{1,6}D)?)?|\\d{1,6}M(\\d{1,6}D)?|\\d{1,6}D)"
                  "(T(\\d{1,6}H(\\d{1,6}M(\\d{1,6}S)?)?|\\d{1,6}M(\\d{1,6}S)?|\\d{1,6}S))?|"
                  "T(\\d{1,6}H(\\d{1,6}M(\\d{1,6}S)?)?|\\d{1,6}M(\\d{1,6}S)?|\\d{1,6}S))" },
    { "uuid", "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}" },
    { "email", "[a-zA-Z0-9_%+-]{1,30}(\\.[a-zA-Z0-9_%+-]{1,30}){0,2}@" LABEL
               "(\\." LABEL "){1,3}" },
    { "hostname", HOST },
    { "ipv4", OCTET "(\\." OCTET "){3}" },
    { "ipv6", "(" H16 "(:" H16 "){7}|::(" H16 "(:" H16 "){0,5})?|"
              H16 "::(" H16 "(:" H16 "){0,4})?|" H16 ":" H16 "::(" H16 "(:" H16 "){0,3})?)" },
    { "uri", "[a-z][a-z0-9+.-]{0,15}://" HOST "(:[1-9]\\d{0,3})?(/" URI_CHAR "*)*"
             "(\\?(" URI_CHAR "|[/?])*)?(#(" URI_CHAR "|[/?])*)?" },
};

/* Formats of numbers that say nothing about their text. */
static bool is_number_format(const char *name)
{
    return strcmp(name, "int32") == 0 || strcmp(name, "int64") == 0 ||
           strcmp(name, "float") == 0 || strcmp(name, "double") == 0;
}

gram_expr schema_regex(struct schema *s, const char *regex, size_t n,
                       const struct regex_opts *o, const struct place *at,
                       const char *key)
{
    const gram_expr quote = gram_str(s->j.g, "\"");
    gram_expr e = GRAM_NONE;
    slm_error err = {0};

    if (!regex_parse(s->j.g, regex, n, o, &e, &err) && !gram_failed(s->j.g)) {
        return schema_refuse(s, at, key, "%s", err.msg);
    }
    return GRAM_SEQ(s->j.g, quote, e, quote);
}

gram_expr schema_string(struct schema *s, const json_t *schema, const struct place *at)
{
    const json_t *pattern = json_object_get(schema, "pattern");
    const json_t *format = json_object_get(schema, "format");
    struct regex_opts o = {
        .json = true,
        .min = schema_count(s, schema, "minLength", 0, at),
        .max = schema_count(s, schema, "maxLength", GRAM_INF, at),
    };

    if (!pattern && !format) {
        return json_text_string(&s->j, o.min, o.max);
    }
    if (pattern && format) {
        return schema_refuse(s, at, "pattern", "not supported together with format");
    }
    if (pattern) {
        if (!json_is_string(pattern)) {
            return schema_refuse(s, at, "pattern", "no string");
        }
        o.search = true;
        return schema_regex(s, json_string_value(pattern), json_string_length(pattern), &o, at,
                            "pattern");
    }
    if (!json_is_string(format)) {
        return schema_refuse(s, at, "format", "no string");
    }
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (strcmp(formats[i].name, json_string_value(format)) == 0) {
            return schema_regex(s, formats[i].regex, strlen(formats[i].regex), &o, at, "format");
        }
    }
    return schema_refuse(s, at, "format", "the format \"%.60s\" is not supported",
                         json_string_value(format));
}

/* ---- numbers ---------------------------------------------------------------------------- */

/* A number as an integer: rounded up or down, and within the limits of integers. */
static int64_t to_integer(double v, bool up)
{
    const double limit = (double)JSON_INT_MAX;
    const double whole = up ? ceil(v) : floor(v);

    return whole >= limit ? JSON_INT_MAX : whole <= -limit ? -JSON_INT_MAX : (int64_t)whole;
}

/* The stricter of an inclusive and an exclusive bound.  exclusiveMinimum may also be true, which
 * makes minimum exclusive (draft 4). */
static struct json_bound get_bound(struct schema *s, const json_t *schema, const char *inclusive,
                                   const char *exclusive, int sign, const struct place *at)
{
    const json_t *v = json_object_get(schema, inclusive), *x = json_object_get(schema, exclusive);
    struct json_bound b = {0};

    if ((v && !json_is_number(v)) || (x && !json_is_number(x) && !json_is_boolean(x))) {
        schema_refuse(s, at, v && !json_is_number(v) ? inclusive : exclusive, "no number");
        return b;
    }
    if (v) {
        b = (struct json_bound){ true, json_is_true(x), json_number_value(v) };
    }
    if (json_is_number(x)) {
        const double d = json_number_value(x);
        if (!b.given || (sign > 0 ? d >= b.value : d <= b.value)) {
            b = (struct json_bound){ true, true, d };
        }
    }
    return b;
}

static gram_expr compile_integer(struct schema *s, struct json_bound lo, struct json_bound hi,
                                 int64_t multiple, const struct place *at)
{
    int64_t a = lo.given ? to_integer(lo.value, true) : -JSON_INT_MAX;
    int64_t b = hi.given ? to_integer(hi.value, false) : JSON_INT_MAX;

    if (!lo.given && !hi.given && multiple == 1) {
        return s->j.integer;
    }
    a += lo.given && lo.exclusive && (double)a == lo.value;
    b -= hi.given && hi.exclusive && (double)b == hi.value;
    if ((lo.given && lo.value > (double)JSON_INT_MAX) ||
        (hi.given && hi.value < -(double)JSON_INT_MAX)) {
        return schema_refuse(s, at, NULL, "integers are written with at most 18 digits");
    }
    if (!json_text_integers_ok(a, b, multiple)) {
        return schema_refuse(s, at, "multipleOf", "supported up to 256, or between bounds with at "
                             "most 1000 multiples");
    }
    return json_text_integers(&s->j, a, b, multiple);
}

gram_expr schema_number(struct schema *s, const json_t *schema, bool integer,
                        const struct place *at)
{
    const json_t *multiple = json_object_get(schema, "multipleOf");
    const json_t *format = json_object_get(schema, "format");
    const struct json_bound lo = get_bound(s, schema, "minimum", "exclusiveMinimum", 1, at);
    struct json_bound hi = get_bound(s, schema, "maximum", "exclusiveMaximum", -1, at);
    const double step = multiple ? json_number_value(multiple) : 1;

    if (format && !(json_is_string(format) && is_number_format(json_string_value(format)))) {
        /* Formats of strings have nothing to do with numbers. */
        format = NULL;
    }
    if (multiple && (!(step >= 1) || step != floor(step) || step > 1e15)) {
        return schema_refuse(s, at, "multipleOf", "only whole numbers from 1 to 1e15 are "
                             "supported");
    }
    if (format && strcmp(json_string_value(format), "int32") == 0) {
        struct json_bound least = lo;
        if (!lo.given || lo.value < INT32_MIN) {
            least = (struct json_bound){ true, false, INT32_MIN };
        }
        if (!hi.given || hi.value > INT32_MAX) {
            hi = (struct json_bound){ true, false, INT32_MAX };
        }
        return compile_integer(s, least, hi, (int64_t)step, at);
    }
    if (integer || multiple) {
        return compile_integer(s, lo, hi, (int64_t)step, at);
    }
    if (!lo.given && !hi.given) {
        return s->j.number;
    }
    if ((lo.given && fabs(lo.value) >= JSON_BOUND_MAX) ||
        (hi.given && fabs(hi.value) >= JSON_BOUND_MAX)) {
        return schema_refuse(s, at, fabs(lo.value) >= JSON_BOUND_MAX ? "minimum" : "maximum",
                             "bounds of numbers are supported up to 1e15");
    }
    return json_text_numbers(&s->j, lo, hi);
}

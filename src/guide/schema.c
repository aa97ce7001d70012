/* schema.c - a JSON schema becomes expressions: the texts of JSON that it accepts.
 *
 * The language is a part of what the schema accepts: object members come in the order of
 * the schema, and what a schema allows only by not speaking of it (further members, other
 * types than those its keywords are about) is not written.  Whatever cannot be enforced
 * is refused with its JSON pointer. */
#include "guide/schema.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "guide/automaton.h"
#include "guide/guide.h"
#include "guide/regex.h"

enum {
    DEPTH_MAX = 120,       /* schemas inside schemas; a limit for the stack */
    WORK_MAX = 3000000,    /* keywords looked at; far more than a second's worth is hostile */
    BRANCHES_MAX = 2000,   /* of oneOf, which are compared in pairs */
    COUNTS_MAX = 200000,   /* members times how many of them were written */
};

/* ---- errors ------------------------------------------------------------------------- */

static void put_escaped(struct buf *b, const char *key)
{
    for (; *key; key++) {
        if (*key == '~' || *key == '/') {
            buf_puts(b, *key == '~' ? "~0" : "~1");
        } else {
            buf_putc(b, *key);
        }
    }
}

static void put_pointer(struct buf *b, const struct place *at)
{
    const struct place *way[DEPTH_MAX * 3];
    size_t n = 0;

    for (; at && n < sizeof way / sizeof way[0]; at = at->up) {
        way[n++] = at;
    }
    while (n-- > 0) {
        if (way[n]->pointer) {
            buf_puts(b, way[n]->pointer);
        } else if (way[n]->key) {
            buf_putc(b, '/');
            put_escaped(b, way[n]->key);
        } else {
            buf_printf(b, "/%zu", way[n]->index);
        }
    }
}

gram_expr schema_refuse(struct schema *s, const struct place *at, const char *key,
                        const char *fmt, ...)
{
    struct buf pointer;
    char what[200];
    va_list args;

    if (s->failed) {
        return GRAM_NONE;
    }
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    buf_init(&pointer, 0);
    put_pointer(&pointer, at);
    if (key) {
        buf_putc(&pointer, '/');
        put_escaped(&pointer, key);
    }
    s->failed = true;
    slm_fail(s->err, SLM_E_UNSUPPORTED, "schema at \"%.120s\": %s", buf_str(&pointer), what);
    buf_deinit(&pointer);
    return GRAM_NONE;
}

bool schema_work(struct schema *s, const struct place *at, size_t units)
{
    s->work += (long)(units < WORK_MAX ? units : WORK_MAX);
    if (s->work > WORK_MAX) {
        schema_refuse(s, at, NULL, "the schema is too complicated");
    }
    return !s->failed && !gram_failed(s->j.g);
}

/* ---- values of keywords ---------------------------------------------------------------- */

/* A whole number that is not negative; `none` where the keyword is absent. */
static uint32_t get_count(struct schema *s, const json_t *schema, const char *key, uint32_t none,
                          const struct place *at)
{
    const json_t *v = json_object_get(schema, key);
    const double d = json_number_value(v);

    if (!v) {
        return none;
    }
    if (!json_is_number(v) || !(d >= 0) || d != floor(d)) {
        schema_refuse(s, at, key, "no whole number from 0");
        return none;
    }
    return d < (double)(GRAM_INF - 1) ? (uint32_t)d : GRAM_INF - 1;
}

/* A list of schemas with at least one; NULL (refused) for anything else. */
static const json_t *get_list(struct schema *s, const json_t *schema, const char *key,
                              const struct place *at)
{
    const json_t *list = json_object_get(schema, key);

    if (!json_is_array(list) || json_array_size(list) == 0) {
        schema_refuse(s, at, key, "no list with at least one element");
        return NULL;
    }
    return list;
}

/* A number as an integer: rounded up or down, and within the limits of integers. */
static int64_t to_integer(double v, bool up)
{
    const double limit = (double)JSON_INT_MAX;
    const double whole = up ? ceil(v) : floor(v);

    return whole >= limit ? JSON_INT_MAX : whole <= -limit ? -JSON_INT_MAX : (int64_t)whole;
}

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
    { "email", "[a-zA-Z0-9_%+-]{1,30}(\\.[a-zA-Z0-9_%+-]{1,30}){0,2}@" LABEL "(\\." LABEL "){1,3}" },
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

static gram_expr quoted_regex(struct schema *s, const char *regex, size_t n,
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

static gram_expr compile_string(struct schema *s, const json_t *schema, const struct place *at)
{
    const json_t *pattern = json_object_get(schema, "pattern");
    const json_t *format = json_object_get(schema, "format");
    struct regex_opts o = {
        .json = true,
        .min = get_count(s, schema, "minLength", 0, at),
        .max = get_count(s, schema, "maxLength", GRAM_INF, at),
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
        return quoted_regex(s, json_string_value(pattern), json_string_length(pattern), &o, at,
                            "pattern");
    }
    if (!json_is_string(format)) {
        return schema_refuse(s, at, "format", "no string");
    }
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (strcmp(formats[i].name, json_string_value(format)) == 0) {
            return quoted_regex(s, formats[i].regex, strlen(formats[i].regex), &o, at, "format");
        }
    }
    return schema_refuse(s, at, "format", "the format \"%.60s\" is not supported",
                         json_string_value(format));
}

/* ---- numbers ---------------------------------------------------------------------------- */

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

static gram_expr compile_number(struct schema *s, const json_t *schema, bool integer,
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

/* ---- objects ---------------------------------------------------------------------------- */

/* A member, its key and value already expressions. */
struct member {
    gram_expr pair;
    bool required;
};

struct object {
    struct member *member;
    size_t n;
    gram_expr other;        /* any further member; GRAM_NONE: there is none */
    uint32_t min, max;
};

static bool is_required(const json_t *required, const char *name)
{
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *r = json_string_value(json_array_get(required, i));
        if (r && strcmp(r, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Members from number i on, `written` of them and of those before being there already. */
struct tails {
    struct schema *s;
    const struct object *o;
    gram_expr *made;        /* two rows of [columns] */
    uint32_t columns;
};

/* What may follow all members of the schema: further ones and the end. */
static gram_expr last_tail(struct tails *t, uint32_t written)
{
    struct grammar *g = t->s->j.g;
    const struct object *o = t->o;
    const gram_expr comma_other = GRAM_SEQ(g, t->s->j.comma, o->other);
    const gram_expr end = written > 0 ? t->s->j.space : GRAM_NOTHING;

    if (written > o->max || (written < o->min && o->other == GRAM_NONE)) {
        return GRAM_NONE;
    }
    /* Further keys may be equal, and equal ones count once: only one of them is sure. */
    if (written + 1 < o->min) {
        return GRAM_NONE;
    }
    const uint32_t most = o->max == GRAM_INF ? GRAM_INF : o->max - written;
    const uint32_t least = written < o->min;
    if (o->other == GRAM_NONE || most == 0) {
        return least > 0 ? GRAM_NONE : end;
    }
    if (written > 0) {
        return GRAM_SEQ(g, gram_repeat(g, comma_other, least, most), end);
    }
    const gram_expr some = GRAM_SEQ(g, o->other,
                                    gram_repeat(g, comma_other, 0,
                                                most == GRAM_INF ? GRAM_INF : most - 1),
                                    t->s->j.space);
    return least > 0 ? some : gram_optional(g, some);
}

/* Only whether something was written and, where members are counted, how many matters. */
static uint32_t column_after(const struct tails *t, uint32_t written)
{
    return written + 1 < t->columns ? written + 1 : t->columns - 1;
}

/* Builds the tails from the last to the first. */
static gram_expr make_tails(struct tails *t)
{
    struct grammar *g = t->s->j.g;
    const struct object *o = t->o;
    gram_expr *below = t->made, *row = t->made + t->columns;

    for (uint32_t w = 0; w < t->columns; w++) {
        below[w] = last_tail(t, w);
    }
    for (size_t i = o->n; i-- > 0 && !gram_failed(g);) {
        const struct member *m = &o->member[i];
        for (uint32_t w = 0; w < t->columns; w++) {
            const gram_expr next = below[column_after(t, w)];
            const gram_expr taken = w > 0 ? GRAM_SEQ(g, t->s->j.comma, m->pair, next)
                                          : GRAM_SEQ(g, m->pair, next);
            row[w] = m->required ? taken : GRAM_ALT(g, taken, below[w]);
        }
        gram_expr *swap = below;
        below = row;
        row = swap;
    }
    return below[0];
}

static gram_expr object_text(struct schema *s, const struct object *o, const struct place *at)
{
    struct tails t = { .s = s, .o = o };
    uint32_t required = 0;

    for (size_t i = 0; i < o->n; i++) {
        required += o->member[i].required;
    }
    /* Without bounds to be watched it only matters whether a comma is needed. */
    const bool few = o->min > required;
    const bool many = o->max != GRAM_INF && (o->max < o->n || o->other != GRAM_NONE);
    t.columns = !few && !many ? 2 : (uint32_t)o->n + 2;
    if ((few && o->min > o->n + 1) || (size_t)t.columns * (o->n + 1) > COUNTS_MAX) {
        return schema_refuse(s, at, few ? "minProperties" : "maxProperties", "members are only "
                             "counted where the schema names (nearly) as many, and not too many");
    }
    struct object relaxed = *o;
    relaxed.min = few ? o->min : 0;
    relaxed.max = many ? o->max : GRAM_INF;
    t.o = &relaxed;
    t.made = mem_alloc((size_t)t.columns * 2, sizeof *t.made);
    if (!t.made) {
        s->j.g->no_memory = true;
        return GRAM_NONE;
    }
    const gram_expr inside = make_tails(&t);
    mem_free(t.made);
    return json_text_braces(&s->j, "{", inside, "}");
}

/* Members that properties and required name, in their order. */
static bool named_members(struct schema *s, const json_t *schema, const json_t *other,
                          struct object *o, const char **names, const struct place *at)
{
    struct grammar *g = s->j.g;
    json_t *properties = json_object_get(schema, "properties");
    const json_t *required = json_object_get(schema, "required");
    const struct place *in = PLACE_KEY(at, "properties");
    const char *key;
    json_t *value;

    json_object_foreach(properties, key, value) {
        const gram_expr v = schema_compile(s, value, PLACE_KEY(in, key));
        names[o->n] = key;
        o->member[o->n++] = (struct member){
            GRAM_SEQ(g, json_text_name(&s->j, key, strlen(key)), s->j.colon, v),
            is_required(required, key),
        };
    }
    for (size_t i = 0; i < json_array_size(required) && !s->failed; i++) {
        const json_t *name = json_array_get(required, i);
        if (!json_is_string(name)) {
            schema_refuse(s, PLACE_KEY(at, "required"), NULL, "element %zu is no string", i);
            return false;
        }
        if (json_object_get(properties, json_string_value(name))) {
            continue;
        }
        const gram_expr v = other ? schema_compile(s, other, PLACE_KEY(at, "additionalProperties"))
                                  : s->j.value;
        names[o->n] = json_string_value(name);
        o->member[o->n++] = (struct member){
            GRAM_SEQ(g, json_text_name(&s->j, names[o->n - 1], strlen(names[o->n - 1])),
                     s->j.colon, v),
            true,
        };
    }
    return !s->failed;
}

/* A member whose key matches the one pattern. */
static gram_expr pattern_member(struct schema *s, const json_t *patterns, const struct place *at)
{
    static const struct regex_opts o = { .json = true, .search = true, .max = GRAM_INF };
    const struct place *in = PLACE_KEY(at, "patternProperties");
    const char *regex = json_object_iter_key(json_object_iter((json_t *)(uintptr_t)patterns));
    const json_t *value = json_object_get(patterns, regex);
    const gram_expr key = quoted_regex(s, regex, strlen(regex), &o, in, regex);

    return GRAM_SEQ(s->j.g, key, s->j.colon, schema_compile(s, value, PLACE_KEY(in, regex)));
}

/* Further members, by the keywords that speak of them. */
static gram_expr other_member(struct schema *s, const json_t *schema, const json_t *other,
                              const char **names, size_t n, const struct place *at)
{
    struct grammar *g = s->j.g;
    const json_t *patterns = json_object_get(schema, "patternProperties");
    const json_t *key_schema = json_object_get(schema, "propertyNames");
    const bool has_properties = json_object_get(schema, "properties") != NULL;

    if (patterns && json_object_size(patterns) > 0) {
        if (json_object_size(patterns) > 1 || n > 0 || key_schema || (other && !json_is_false(other))) {
            return schema_refuse(s, at, "patternProperties", "supported with one pattern, without "
                                 "properties, required and propertyNames, and with "
                                 "additionalProperties false");
        }
        return pattern_member(s, patterns, at);
    }
    if (json_is_false(other) || (!other && has_properties && !key_schema)) {
        return GRAM_NONE;
    }
    gram_expr key;
    if (key_schema) {
        json_t *string = json_pack("{s:s}", "type", "string");
        json_t *plain = schema_deref(s, key_schema, PLACE_KEY(at, "propertyNames"));
        json_t *merged = plain ? schema_merge(s, string, plain, at) : NULL;
        if (n > 0) {
            schema_refuse(s, at, "propertyNames", "not supported together with properties or "
                          "required");
        }
        key = merged ? schema_compile(s, merged, PLACE_KEY(at, "propertyNames")) : GRAM_NONE;
        json_decref(string);
        json_decref(plain);
        json_decref(merged);
    } else {
        key = json_text_other_key(&s->j, names, n);
    }
    const gram_expr value = other ? schema_compile(s, other, PLACE_KEY(at, "additionalProperties"))
                                  : s->j.value;
    return GRAM_SEQ(g, key, s->j.colon, value);
}

static gram_expr compile_object(struct schema *s, const json_t *schema, const struct place *at)
{
    const json_t *properties = json_object_get(schema, "properties");
    const json_t *required = json_object_get(schema, "required");
    const json_t *patterns = json_object_get(schema, "patternProperties");
    const json_t *other = json_object_get(schema, "additionalProperties");
    const size_t cap = json_object_size(properties) + json_array_size(required) + 1;
    struct object o = {
        .min = get_count(s, schema, "minProperties", 0, at),
        .max = get_count(s, schema, "maxProperties", GRAM_INF, at),
    };
    gram_expr e = GRAM_NONE;

    if (properties && !json_is_object(properties)) {
        return schema_refuse(s, at, "properties", "no object");
    }
    if (required && !json_is_array(required)) {
        return schema_refuse(s, at, "required", "no list");
    }
    if (patterns && !json_is_object(patterns)) {
        return schema_refuse(s, at, "patternProperties", "no object");
    }
    if (!schema_work(s, at, json_array_size(required) * (json_object_size(properties) + 1))) {
        return GRAM_NONE;
    }
    o.member = mem_alloc(cap, sizeof *o.member);
    const char **names = mem_alloc(cap, sizeof *names);
    if (!o.member || !names) {
        s->j.g->no_memory = true;
    } else if (named_members(s, schema, other, &o, names, at)) {
        o.other = other_member(s, schema, other, names, o.n, at);
        e = s->failed ? GRAM_NONE : object_text(s, &o, at);
    }
    mem_free(o.member);
    mem_free(names);
    return e;
}

/* ---- arrays ----------------------------------------------------------------------------- */

/* Elements from number i on; `first` are those with schemas of their own. */
static gram_expr array_tail(struct schema *s, const struct gram_list *first, gram_expr item,
                            uint32_t min, uint32_t max)
{
    struct grammar *g = s->j.g;
    const uint32_t n = (uint32_t)first->n;
    const gram_expr comma_item = GRAM_SEQ(g, s->j.comma, item);
    gram_expr tail;

    /* Behind the first ones any number of the others. */
    if (n == 0) {
        const gram_expr more = gram_repeat(g, comma_item, min > 0 ? min - 1 : 0,
                                           max == GRAM_INF ? GRAM_INF : max > 0 ? max - 1 : 0);
        tail = max == 0 || item == GRAM_NONE ? GRAM_NONE : GRAM_SEQ(g, item, more, s->j.space);
        return min == 0 ? gram_optional(g, tail) : tail;
    }
    tail = max < n ? GRAM_NONE
                   : GRAM_SEQ(g, gram_repeat(g, comma_item, min > n ? min - n : 0,
                                             max == GRAM_INF ? GRAM_INF : max - n), s->j.space);
    for (uint32_t i = n; i-- > 0;) {
        const gram_expr comma = i > 0 ? s->j.comma : GRAM_NOTHING;
        const gram_expr on = i < max ? GRAM_SEQ(g, comma, first->e[i], tail) : GRAM_NONE;
        const gram_expr end = i > 0 ? s->j.space : GRAM_NOTHING;
        tail = i >= min && i <= max ? GRAM_ALT(g, on, end) : on;
    }
    return tail;
}

static gram_expr compile_array(struct schema *s, const json_t *schema, const struct place *at)
{
    const json_t *items = json_object_get(schema, "items");
    const json_t *prefix = json_object_get(schema, "prefixItems");
    const char *prefix_key = "prefixItems", *items_key = "items";
    const uint32_t min = get_count(s, schema, "minItems", 0, at);
    const uint32_t max = get_count(s, schema, "maxItems", GRAM_INF, at);
    struct gram_list first = {0};
    gram_expr item;

    if (json_is_array(items)) {
        /* The older way to say prefixItems and items. */
        prefix = items;
        prefix_key = "items";
        items_key = "additionalItems";
        items = json_object_get(schema, items_key);
    }
    if (prefix && !json_is_array(prefix)) {
        return schema_refuse(s, at, prefix_key, "no list");
    }
    if (json_is_true(json_object_get(schema, "uniqueItems")) && max > 1) {
        return schema_refuse(s, at, "uniqueItems", "not supported where there may be more than one "
                             "element");
    }
    const struct place *in = PLACE_KEY(at, prefix_key);
    for (size_t i = 0; i < json_array_size(prefix) && !s->failed; i++) {
        gram_list_add(s->j.g, &first,
                      schema_compile(s, json_array_get(prefix, i), PLACE_INDEX(in, i)));
    }
    if (items) {
        item = schema_compile(s, items, PLACE_KEY(at, items_key));
    } else {
        /* Elements of which the schema does not speak are written where it needs them. */
        item = !prefix || min > first.n ? s->j.value : GRAM_NONE;
    }
    const gram_expr e = gram_failed(s->j.g) || s->failed
                            ? GRAM_NONE : array_tail(s, &first, item, min, max);
    gram_list_deinit(&first);
    return json_text_braces(&s->j, "[", e, "]");
}

static void compile_waiting(struct schema *s);

/* ---- enum and const ---------------------------------------------------------------------- */

/* Which of the values the other keywords accept, by a grammar of their own: accepted[i].  Only
 * for values that are no objects and arrays. */
static bool test_values(struct schema *s, const json_t *rest, const json_t *values, bool *accepted,
                        const struct place *at)
{
    enum { MEMORY = 8 << 20 };
    struct grammar g;
    struct schema other = { .root = s->root, .work = s->work, .depth = s->depth, .err = s->err };
    struct automaton *a = NULL;
    gram_expr root = GRAM_NONE;
    bool ok = false;

    gram_init(&g);
    json_text_init(&other.j, &g);
    other.rules = json_object();
    other.waiting = json_array();
    if (other.rules && other.waiting) {
        root = schema_compile(&other, rest, at);
        compile_waiting(&other);
        ok = !other.failed;
    }
    s->work = other.work;
    s->failed |= other.failed;
    slm_error why = {0};
    if (ok && gram_finish(&g, root, &why)) {
        a = automaton_new(&g, root, MEMORY, &why);
    } else if (ok && why.code == SLM_E_ARG) {
        memset(accepted, 0, json_array_size(values) * sizeof *accepted);  /* nothing fits */
    }
    for (size_t i = 0; a && i < json_array_size(values); i++) {
        char *text = json_dumps(json_array_get(values, i), JSON_ENCODE_ANY);
        int32_t state = text ? automaton_start(a, &why) : -1;
        for (const char *c = text; c && *c && state > STATE_DEAD; c++) {
            state = automaton_step(a, state, (unsigned char)*c, &why);
        }
        ok = ok && state >= 0;
        accepted[i] = state > STATE_DEAD && automaton_accepts(a, state);
        free(text);
    }
    if (ok && !a && why.code != SLM_E_ARG) {
        ok = false;
    }
    if (!ok && !s->failed && (gram_failed(&g) || why.code == SLM_E_NOMEM || why.code == SLM_E_OK)) {
        s->j.g->too_large |= g.too_large;
        s->j.g->no_memory |= !g.too_large;
    } else if (!ok && !s->failed) {
        schema_refuse(s, at, "enum", "%s", why.msg);
    }
    automaton_free(a);
    json_decref(other.rules);
    json_decref(other.waiting);
    gram_deinit(&g);
    return ok;
}

static bool type_fits(const json_t *value, unsigned types)
{
    unsigned type = schema_type_of(value);

    if (type == TYPE_NUMBER && json_real_value(value) == floor(json_real_value(value))) {
        type |= TYPE_INTEGER;
    }
    return (type & types) != 0 || (type == TYPE_INTEGER && types & TYPE_NUMBER);
}

static gram_expr compile_values(struct schema *s, const json_t *schema, unsigned types,
                                const struct place *at)
{
    json_t *list = json_object_get(schema, "enum"), *one = json_object_get(schema, "const");
    json_t *values = json_array();
    json_t *rest = json_copy((json_t *)(uintptr_t)schema);
    struct gram_list alt = {0};
    bool simple = true;

    if (list && !json_is_array(list)) {
        schema_refuse(s, at, "enum", "no list");
    }
    const size_t n = one ? 1 : json_array_size(list);
    for (size_t i = 0; i < n && !s->failed; i++) {
        json_t *v = one ? one : json_array_get(list, i);
        bool listed = !one || !list;
        for (size_t k = 0; one && k < json_array_size(list); k++) {
            listed = listed || json_equal(json_array_get(list, k), v);
        }
        if (listed && type_fits(v, types)) {
            simple = simple && !json_is_object(v) && !json_is_array(v);
            json_array_append(values, v);
        }
    }
    const size_t count = json_array_size(values);
    bool *accepted = mem_alloc(count, sizeof *accepted);
    for (size_t i = 0; accepted && i < count; i++) {
        accepted[i] = true;
    }
    json_object_del(rest, "enum");
    json_object_del(rest, "const");
    json_object_del(rest, "nullable");
    json_object_del(rest, "type");
    if (!accepted) {
        s->j.g->no_memory = true;
    } else if (!s->failed && count > 0 && !schema_is_empty(rest)) {
        if (!simple) {
            schema_refuse(s, at, one ? "const" : "enum", "objects and arrays are not supported "
                          "together with further keywords");
        } else {
            test_values(s, rest, values, accepted, at);
        }
    }
    for (size_t i = 0; accepted && i < count && !s->failed && !gram_failed(s->j.g); i++) {
        if (accepted[i]) {
            gram_list_add(s->j.g, &alt, json_text_value(&s->j, json_array_get(values, i)));
        }
    }
    const gram_expr e = gram_alt(s->j.g, alt.e, alt.n);
    gram_list_deinit(&alt);
    mem_free(accepted);
    json_decref(values);
    json_decref(rest);
    return e;
}

/* ---- combinations ------------------------------------------------------------------------- */

/* Each of allOf, and what stands beside it, as one schema. */
static gram_expr compile_all(struct schema *s, const json_t *schema, const struct place *at)
{
    const json_t *list = get_list(s, schema, "allOf", at);
    json_t *now = json_copy((json_t *)(uintptr_t)schema);
    const struct place *in = PLACE_KEY(at, "allOf");
    gram_expr e = GRAM_NONE;

    json_object_del(now, "allOf");
    for (size_t i = 0; i < json_array_size(list) && now && !s->failed; i++) {
        const struct place *here = PLACE_INDEX(in, i);
        const json_t *part = json_array_get(list, i);
        json_t *plain = NULL, *merged = NULL;
        if (!json_is_object(part) && !json_is_boolean(part)) {
            schema_refuse(s, here, NULL, "no schema");
        } else if (!json_is_object(part) || schema_check_keywords(s, part, here)) {
            plain = schema_deref(s, part, here);
            merged = plain ? schema_merge(s, now, plain, here) : NULL;
        }
        json_decref(plain);
        json_decref(now);
        now = merged;
    }
    if (now && !s->failed) {
        e = schema_compile(s, now, at);
    }
    json_decref(now);
    return e;
}

/* Refuses a oneOf of which a value could fit two branches. */
static bool check_disjoint(struct schema *s, const json_t *list, const struct place *at)
{
    const size_t n = json_array_size(list);

    if (n > BRANCHES_MAX) {
        schema_refuse(s, at, "oneOf", "more than %d branches", BRANCHES_MAX);
    }
    for (size_t i = 0; i < n && !s->failed; i++) {
        for (size_t k = i + 1; k < n && !s->failed; k++) {
            if (!schema_disjoint(s, json_array_get(list, i), json_array_get(list, k), 0)) {
                schema_refuse(s, at, "oneOf", "branches %zu and %zu do not clearly exclude each "
                              "other (by type, or by const or enum of a required property); use "
                              "anyOf", i, k);
            }
        }
    }
    return !s->failed;
}

/* One of the branches, each together with what stands beside them. */
static gram_expr compile_any(struct schema *s, const json_t *schema, const char *key,
                             const struct place *at)
{
    const json_t *list = get_list(s, schema, key, at);
    json_t *beside = json_copy((json_t *)(uintptr_t)schema);
    const struct place *in = PLACE_KEY(at, key);
    struct gram_list alt = {0};

    json_object_del(beside, key);
    if (list && strcmp(key, "oneOf") == 0) {
        check_disjoint(s, list, at);
    }
    for (size_t i = 0; i < json_array_size(list) && !s->failed; i++) {
        const struct place *here = PLACE_INDEX(in, i);
        json_t *branch = json_incref(json_array_get(list, i));
        if (!schema_is_empty(beside) &&
            (!json_is_object(branch) || schema_check_keywords(s, branch, here))) {
            json_t *plain = schema_deref(s, branch, here);
            json_decref(branch);
            branch = plain ? schema_merge(s, beside, plain, here) : NULL;
            json_decref(plain);
        }
        if (branch && !s->failed) {
            gram_list_add(s->j.g, &alt, schema_compile(s, branch, here));
        }
        json_decref(branch);
    }
    const gram_expr e = gram_alt(s->j.g, alt.e, alt.n);
    gram_list_deinit(&alt);
    json_decref(beside);
    return e;
}

/* The rule of what a reference points to; it is defined later, so references may go in circles. */
static gram_expr reference(struct schema *s, const char *ref, const struct place *at)
{
    if (!schema_target(s, ref, at)) {
        return GRAM_NONE;
    }
    const json_t *known = json_object_get(s->rules, ref);
    if (known) {
        return (gram_expr)json_integer_value(known);
    }
    const gram_expr rule = gram_rule(s->j.g, ref);
    if (json_object_set_new(s->rules, ref, json_integer(rule)) != 0 ||
        json_array_append_new(s->waiting, json_string(ref)) != 0) {
        s->j.g->no_memory = true;
    }
    return rule;
}

/* ---- schemas ------------------------------------------------------------------------------ */

static gram_expr compile_types(struct schema *s, const json_t *schema, unsigned types,
                               const struct place *at)
{
    struct grammar *g = s->j.g;
    struct gram_list alt = {0};

    if (types & TYPE_OBJECT) {
        gram_list_add(g, &alt, compile_object(s, schema, at));
    }
    if (types & TYPE_ARRAY) {
        gram_list_add(g, &alt, compile_array(s, schema, at));
    }
    if (types & TYPE_STRING) {
        gram_list_add(g, &alt, compile_string(s, schema, at));
    }
    if (types & (TYPE_NUMBER | TYPE_INTEGER)) {
        gram_list_add(g, &alt, compile_number(s, schema, !(types & TYPE_NUMBER), at));
    }
    if (types & TYPE_BOOLEAN) {
        gram_list_add(g, &alt, GRAM_ALT(g, gram_str(g, "true"), gram_str(g, "false")));
    }
    if (types & TYPE_NULL) {
        gram_list_add(g, &alt, gram_str(g, "null"));
    }
    const gram_expr e = gram_alt(g, alt.e, alt.n);
    gram_list_deinit(&alt);
    return e;
}

static gram_expr compile_plain(struct schema *s, const json_t *schema, const struct place *at)
{
    const json_t *ref = json_object_get(schema, "$ref");

    if (schema_is_empty(schema)) {
        return s->j.value;
    }
    if (ref) {
        json_t *rest = json_copy((json_t *)(uintptr_t)schema);
        json_object_del(rest, "$ref");
        const bool alone = schema_is_empty(rest);
        json_decref(rest);
        if (alone && json_is_string(ref)) {
            return reference(s, json_string_value(ref), at);
        }
        json_t *whole = schema_deref(s, schema, at);
        const gram_expr e = whole ? schema_compile(s, whole, at) : GRAM_NONE;
        json_decref(whole);
        return e;
    }
    if (json_object_get(schema, "allOf")) {
        return compile_all(s, schema, at);
    }
    if (json_object_get(schema, "oneOf")) {
        return compile_any(s, schema, "oneOf", at);
    }
    if (json_object_get(schema, "anyOf")) {
        return compile_any(s, schema, "anyOf", at);
    }
    const unsigned types = schema_types(s, schema, at);
    if (s->failed) {
        return GRAM_NONE;
    }
    if (json_object_get(schema, "enum") || json_object_get(schema, "const")) {
        return compile_values(s, schema, types, at);
    }
    return compile_types(s, schema, types, at);
}

gram_expr schema_compile(struct schema *s, const json_t *schema, const struct place *at)
{
    gram_expr e = GRAM_NONE;

    if (!schema_work(s, at, 1 + json_object_size(schema))) {
        return GRAM_NONE;
    }
    if (json_is_boolean(schema)) {
        return json_is_true(schema) ? s->j.value : GRAM_NONE;
    }
    if (!json_is_object(schema)) {
        return schema_refuse(s, at, NULL, "a schema must be an object, true or false");
    }
    if (++s->depth > DEPTH_MAX) {
        schema_refuse(s, at, NULL, "the schema is nested too deeply");
    } else if (schema_check_keywords(s, schema, at)) {
        e = compile_plain(s, schema, at);
    }
    s->depth--;
    return e;
}

/* The rules that references asked for; each may ask for more. */
static void compile_waiting(struct schema *s)
{
    for (size_t i = 0; i < json_array_size(s->waiting) && !s->failed; i++) {
        const char *ref = json_string_value(json_array_get(s->waiting, i));
        const struct place at = { .pointer = *ref == '#' ? ref + 1 : ref };
        const gram_expr rule = (gram_expr)json_integer_value(json_object_get(s->rules, ref));
        const json_t *target = schema_target(s, ref, NULL);
        if (target && !gram_failed(s->j.g)) {
            gram_define(s->j.g, rule, schema_compile(s, target, &at));
        }
    }
}

bool schema_expr(struct grammar *g, json_t *root, const json_t *schema, gram_expr *out,
                 slm_error *err)
{
    struct schema s = { .root = root, .err = err };

    json_text_init(&s.j, g);
    s.rules = json_object();
    s.waiting = json_array();
    if (s.rules && s.waiting) {
        *out = schema_compile(&s, schema, NULL);
        compile_waiting(&s);
    } else {
        g->no_memory = true;
    }
    json_decref(s.rules);
    json_decref(s.waiting);
    return !s.failed && (!gram_failed(g) || gram_error(g, err));
}

/* ---- the languages of JSON ----------------------------------------------------------------- */

static json_t *load(const char *what, const char *json, size_t n, slm_error *err)
{
    json_error_t why;
    json_t *v = json_loadb(json, n, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &why);

    if (!v) {
        slm_fail_at(err, SLM_E_FORMAT, why.position, "%s is no valid JSON: %s (line %d)", what,
                    why.text, why.line);
    }
    return v;
}

bool guide_schema(struct grammar *g, const char *json, size_t n, gram_expr *root, slm_error *err)
{
    json_t *schema = load("the schema", json, n, err);

    if (!schema) {
        return false;
    }
    const bool ok = schema_expr(g, schema, schema, root, err);
    json_decref(schema);
    return ok;
}

bool guide_json(struct grammar *g, gram_expr *root, slm_error *err)
{
    struct json_text j;

    json_text_init(&j, g);
    *root = j.object;
    return !gram_failed(g) || gram_error(g, err);
}

bool guide_choices(struct grammar *g, const char *json, size_t n, gram_expr *root, slm_error *err)
{
    json_t *list = load("the list of choices", json, n, err);
    struct gram_list alt = {0};
    bool ok = list != NULL;

    if (ok && (!json_is_array(list) || json_array_size(list) == 0)) {
        ok = slm_fail(err, SLM_E_ARG, "choices must be a JSON array with at least one string");
    }
    for (size_t i = 0; ok && i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_string(v)) {
            ok = slm_fail(err, SLM_E_ARG, "choice %zu is no string", i);
        } else {
            gram_list_add(g, &alt, gram_lit(g, json_string_value(v), json_string_length(v)));
        }
    }
    *root = gram_alt(g, alt.e, alt.n);
    gram_list_deinit(&alt);
    json_decref(list);
    return ok && (!gram_failed(g) || gram_error(g, err));
}

/* schema_object.c - objects and arrays of a schema. */
#include "guide/schema.h"

#include <string.h>

#include "base/mem.h"
#include "guide/regex.h"

/* Members times how many of them were written, where these are counted. */
enum { COUNTS_MAX = 200000 };

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

bool schema_requires(const json_t *schema, const char *name)
{
    const json_t *required = json_object_get(schema, "required");

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
            schema_requires(schema, key),
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
    const gram_expr key = schema_regex(s, regex, strlen(regex), &o, in, regex);

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
        if (json_object_size(patterns) > 1 || n > 0 || key_schema ||
            (other && !json_is_false(other))) {
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

gram_expr schema_object(struct schema *s, const json_t *schema, const struct place *at)
{
    const json_t *properties = json_object_get(schema, "properties");
    const json_t *required = json_object_get(schema, "required");
    const json_t *patterns = json_object_get(schema, "patternProperties");
    const json_t *other = json_object_get(schema, "additionalProperties");
    const size_t cap = json_object_size(properties) + json_array_size(required) + 1;
    struct object o = {
        .min = schema_count(s, schema, "minProperties", 0, at),
        .max = schema_count(s, schema, "maxProperties", GRAM_INF, at),
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

gram_expr schema_array(struct schema *s, const json_t *schema, const struct place *at)
{
    const json_t *items = json_object_get(schema, "items");
    const json_t *prefix = json_object_get(schema, "prefixItems");
    const char *prefix_key = "prefixItems", *items_key = "items";
    const uint32_t min = schema_count(s, schema, "minItems", 0, at);
    const uint32_t max = schema_count(s, schema, "maxItems", GRAM_INF, at);
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

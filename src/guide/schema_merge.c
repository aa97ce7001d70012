/* schema_merge.c - schemas as data: which keywords they have, what references mean, two
 * schemas as one, and whether two of them exclude each other. */
#include <string.h>

#include "base/mem.h"
#include "guide/schema.h"

/* ---- keywords ----------------------------------------------------------------------- */

enum kind { ANNOTATION, COMMON, OF_OBJECT, OF_ARRAY, OF_STRING, OF_NUMBER };

static const struct keyword {
    const char *name;
    enum kind kind;
} keywords[] = {
    { "title", ANNOTATION }, { "description", ANNOTATION }, { "default", ANNOTATION },
    { "examples", ANNOTATION }, { "example", ANNOTATION }, { "deprecated", ANNOTATION },
    { "readOnly", ANNOTATION }, { "writeOnly", ANNOTATION }, { "$comment", ANNOTATION },
    { "$schema", ANNOTATION }, { "$id", ANNOTATION }, { "$anchor", ANNOTATION },
    { "$defs", ANNOTATION }, { "definitions", ANNOTATION }, { "contentEncoding", ANNOTATION },
    { "contentMediaType", ANNOTATION }, { "contentSchema", ANNOTATION },
    { "externalDocs", ANNOTATION }, { "discriminator", ANNOTATION }, { "xml", ANNOTATION },
    { "strict", ANNOTATION },
    { "type", COMMON }, { "enum", COMMON }, { "const", COMMON }, { "$ref", COMMON },
    { "allOf", COMMON }, { "anyOf", COMMON }, { "oneOf", COMMON }, { "nullable", COMMON },
    { "properties", OF_OBJECT }, { "required", OF_OBJECT }, { "additionalProperties", OF_OBJECT },
    { "patternProperties", OF_OBJECT }, { "propertyNames", OF_OBJECT },
    { "minProperties", OF_OBJECT }, { "maxProperties", OF_OBJECT },
    { "items", OF_ARRAY }, { "prefixItems", OF_ARRAY }, { "additionalItems", OF_ARRAY },
    { "minItems", OF_ARRAY }, { "maxItems", OF_ARRAY }, { "uniqueItems", OF_ARRAY },
    { "minLength", OF_STRING }, { "maxLength", OF_STRING }, { "pattern", OF_STRING },
    { "format", OF_STRING },
    { "minimum", OF_NUMBER }, { "maximum", OF_NUMBER }, { "exclusiveMinimum", OF_NUMBER },
    { "exclusiveMaximum", OF_NUMBER }, { "multipleOf", OF_NUMBER },
};

static const struct keyword *find_keyword(const char *name)
{
    for (size_t i = 0; i < sizeof keywords / sizeof keywords[0]; i++) {
        if (strcmp(keywords[i].name, name) == 0) {
            return &keywords[i];
        }
    }
    return NULL;
}

static bool is_annotation(const char *name)
{
    const struct keyword *k = find_keyword(name);

    return (k && k->kind == ANNOTATION) || strncmp(name, "x-", 2) == 0;
}

bool schema_is_empty(const json_t *schema)
{
    const char *key;
    json_t *value;

    if (!json_is_object(schema)) {
        return json_is_true(schema);
    }
    json_object_foreach((json_t *)(uintptr_t)schema, key, value) {
        if (!is_annotation(key)) {
            return false;
        }
    }
    return true;
}

bool schema_check_keywords(struct schema *s, const json_t *schema, const struct place *at)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)schema, key, value) {
        if (!is_annotation(key) && !find_keyword(key)) {
            schema_refuse(s, at, key, "this keyword is not supported");
            return false;
        }
    }
    return true;
}

/* ---- types -------------------------------------------------------------------------- */

static const struct { const char *name; unsigned bit; } type_names[] = {
    { "object", TYPE_OBJECT }, { "array", TYPE_ARRAY }, { "string", TYPE_STRING },
    { "number", TYPE_NUMBER }, { "integer", TYPE_INTEGER }, { "boolean", TYPE_BOOLEAN },
    { "null", TYPE_NULL },
};

static unsigned type_bit(const json_t *name)
{
    for (size_t i = 0; json_is_string(name) && i < sizeof type_names / sizeof type_names[0]; i++) {
        if (strcmp(json_string_value(name), type_names[i].name) == 0) {
            return type_names[i].bit;
        }
    }
    return 0;
}

unsigned schema_type_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return TYPE_OBJECT;
    case JSON_ARRAY:
        return TYPE_ARRAY;
    case JSON_STRING:
        return TYPE_STRING;
    case JSON_INTEGER:
        return TYPE_INTEGER;
    case JSON_REAL:
        return TYPE_NUMBER;
    case JSON_NULL:
        return TYPE_NULL;
    default:
        return TYPE_BOOLEAN;
    }
}

/* The type keyword, or what the other keywords are about. */
static unsigned named_types(struct schema *s, const json_t *schema, const struct place *at)
{
    const json_t *type = json_object_get(schema, "type");
    const unsigned of_kind[] = { [OF_OBJECT] = TYPE_OBJECT, [OF_ARRAY] = TYPE_ARRAY,
                                 [OF_STRING] = TYPE_STRING, [OF_NUMBER] = TYPE_NUMBER };
    unsigned types = 0;
    const char *key;
    json_t *value;

    if (json_is_array(type) && json_array_size(type) > 0) {
        for (size_t i = 0; i < json_array_size(type); i++) {
            const unsigned bit = type_bit(json_array_get(type, i));
            if (bit == 0) {
                schema_refuse(s, PLACE_KEY(at, "type"), NULL, "element %zu is no type", i);
            }
            types |= bit;
        }
        return types;
    }
    if (type) {
        types = type_bit(type);
        if (types == 0) {
            schema_refuse(s, at, "type", "no type of JSON");
        }
        return types;
    }
    if (json_object_get(schema, "enum") || json_object_get(schema, "const")) {
        return TYPE_ALL;
    }
    json_object_foreach((json_t *)(uintptr_t)schema, key, value) {
        const struct keyword *k = find_keyword(key);
        types |= k && k->kind >= OF_OBJECT ? of_kind[k->kind] : 0;
    }
    return types ? types : TYPE_ALL;
}

unsigned schema_types(struct schema *s, const json_t *schema, const struct place *at)
{
    const unsigned types = named_types(s, schema, at);

    return types | (json_is_true(json_object_get(schema, "nullable")) ? TYPE_NULL : 0);
}

/* ---- references --------------------------------------------------------------------- */

/* The part of a pointer up to the next slash, unescaped; false where it is malformed. */
static bool next_token(const char **p, struct buf *out)
{
    const char *s = *p;

    buf_clear(out);
    for (; *s && *s != '/'; s++) {
        char c = *s;
        if (c == '~') {
            s++;
            if (*s != '0' && *s != '1') {
                return false;
            }
            c = *s == '0' ? '~' : '/';
        } else if (c == '%' && strlen(s) > 2) {
            /* References are URIs. */
            const char hex[3] = { s[1], s[2], '\0' };
            char *end;
            c = (char)strtol(hex, &end, 16);
            if (*end || c == '\0') {
                return false;
            }
            s += 2;
        }
        buf_putc(out, c);
    }
    *p = s;
    return !out->failed;
}

static json_t *walk_pointer(json_t *at, const char *p)
{
    struct buf token;

    buf_init(&token, 0);
    while (at && *p == '/') {
        p++;
        if (!next_token(&p, &token)) {
            at = NULL;
        } else if (json_is_array(at)) {
            char *end;
            const unsigned long i = strtoul(buf_str(&token), &end, 10);
            at = *end || token.len == 0 ? NULL : json_array_get(at, i);
        } else {
            at = json_object_get(at, buf_str(&token));
        }
    }
    buf_deinit(&token);
    return *p ? NULL : at;
}

/* A schema below $defs or definitions with this $anchor. */
static json_t *find_anchor(json_t *root, const char *name)
{
    static const char *const folders[] = { "$defs", "definitions" };

    for (size_t i = 0; i < 2; i++) {
        const char *key;
        json_t *value;
        json_object_foreach(json_object_get(root, folders[i]), key, value) {
            const json_t *anchor = json_object_get(value, "$anchor");
            if (json_is_string(anchor) && strcmp(json_string_value(anchor), name) == 0) {
                return value;
            }
        }
    }
    return NULL;
}

json_t *schema_target(struct schema *s, const char *ref, const struct place *at)
{
    const char *id = json_string_value(json_object_get(s->root, "$id"));
    json_t *target = NULL;

    /* The document's own name in front changes nothing. */
    if (id && strncmp(ref, id, strlen(id)) == 0 &&
        (ref[strlen(id)] == '#' || ref[strlen(id)] == '\0')) {
        ref += strlen(id);
    }
    if (*ref != '#' && *ref != '\0') {
        schema_refuse(s, at, "$ref", "only references inside the schema (\"#/...\") are "
                      "supported, not \"%.80s\"", ref);
        return NULL;
    }
    ref += *ref == '#';
    target = *ref == '\0' || *ref == '/' ? walk_pointer(s->root, ref) : find_anchor(s->root, ref);
    if (!target) {
        schema_refuse(s, at, "$ref", "there is nothing at \"#%.80s\"", ref);
    }
    return target;
}

/* Takes over what stands next to a reference. */
static json_t *add_siblings(struct schema *s, json_t *siblings, const json_t *schema,
                            const struct place *at)
{
    json_t *rest = json_copy((json_t *)(uintptr_t)schema);

    json_object_del(rest, "$ref");
    if (!siblings || schema_is_empty(rest)) {
        json_decref(siblings ? rest : NULL);
        return siblings ? siblings : rest;
    }
    json_t *out = schema_merge(s, siblings, rest, at);
    json_decref(siblings);
    json_decref(rest);
    return out;
}

json_t *schema_deref(struct schema *s, const json_t *schema, const struct place *at)
{
    enum { STEPS_MAX = 64 };
    const json_t *now = schema;
    json_t *siblings = NULL, *out = NULL;

    for (int i = 0; !s->failed && json_object_get(now, "$ref"); i++) {
        const json_t *ref = json_object_get(now, "$ref");
        siblings = add_siblings(s, siblings, now, at);
        if (i == STEPS_MAX) {
            schema_refuse(s, at, "$ref", "a reference that leads back to itself");
        } else if (!json_is_string(ref)) {
            schema_refuse(s, at, "$ref", "no string");
        } else {
            now = schema_target(s, json_string_value(ref), at);
        }
        if (!now || !siblings || (json_is_object(now) && !schema_check_keywords(s, now, at))) {
            break;
        }
    }
    if (!s->failed && now) {
        out = !siblings || schema_is_empty(siblings) ? json_incref((json_t *)(uintptr_t)now)
                                                     : schema_merge(s, now, siblings, at);
    }
    json_decref(siblings);
    return out;
}

/* ---- two schemas as one ---------------------------------------------------------------- */

static json_t *both(const json_t *a, const json_t *b)
{
    return json_pack("{s:[O,O]}", "allOf", a, b);
}

/* What a schema says about a property: its own schema, or that of others, or NULL. */
static const json_t *of_property(const json_t *schema, const char *key)
{
    const json_t *own = json_object_get(json_object_get(schema, "properties"), key);

    return own ? own : json_object_get(schema, "additionalProperties");
}

static void merge_property(json_t *out, const json_t *a, const json_t *b, const char *key)
{
    const json_t *x = of_property(a, key), *y = of_property(b, key);
    const json_t *one = x ? x : y;

    if (json_object_get(out, key)) {
        return;
    }
    json_object_set_new(out, key, x && y && !json_equal(x, y)
                                      ? both(x, y) : json_incref((json_t *)(uintptr_t)one));
}

static json_t *merge_properties(const json_t *a, const json_t *b)
{
    json_t *out = json_object();
    const char *key;
    json_t *value;

    json_object_foreach(json_object_get(a, "properties"), key, value) {
        merge_property(out, a, b, key);
    }
    json_object_foreach(json_object_get(b, "properties"), key, value) {
        merge_property(out, a, b, key);
    }
    return out;
}

static bool contains(const json_t *list, const json_t *value)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (json_equal(json_array_get(list, i), value)) {
            return true;
        }
    }
    return false;
}

static json_t *union_of(const json_t *a, const json_t *b)
{
    json_t *out = json_copy((json_t *)(uintptr_t)a);

    for (size_t i = 0; i < json_array_size(b); i++) {
        json_t *v = json_array_get(b, i);
        if (!contains(out, v)) {
            json_array_append(out, v);
        }
    }
    return out;
}

static json_t *intersection(const json_t *a, const json_t *b)
{
    json_t *out = json_array();

    for (size_t i = 0; i < json_array_size(a); i++) {
        json_t *v = json_array_get(a, i);
        if (contains(b, v)) {
            json_array_append(out, v);
        }
    }
    return out;
}

static json_t *merge_types(struct schema *s, const json_t *a, const json_t *b,
                           const struct place *at)
{
    unsigned x = named_types(s, a, at), y = named_types(s, b, at);
    json_t *out = json_array();

    x |= x & TYPE_NUMBER ? TYPE_INTEGER : 0;
    y |= y & TYPE_NUMBER ? TYPE_INTEGER : 0;
    const unsigned types = x & y;
    for (size_t i = 0; i < sizeof type_names / sizeof type_names[0]; i++) {
        const bool implied = type_names[i].bit == TYPE_INTEGER && types & TYPE_NUMBER;
        if (types & type_names[i].bit && !implied) {
            json_array_append_new(out, json_string(type_names[i].name));
        }
    }
    return out;
}

/* How a keyword of both schemas becomes one; NULL where it cannot. */
typedef json_t *merge_fn(const json_t *x, const json_t *y);

static json_t *larger(const json_t *x, const json_t *y)
{
    return json_incref((json_t *)(uintptr_t)(json_number_value(x) > json_number_value(y) ? x : y));
}

static json_t *smaller(const json_t *x, const json_t *y)
{
    return json_incref((json_t *)(uintptr_t)(json_number_value(x) < json_number_value(y) ? x : y));
}

static json_t *equal(const json_t *x, const json_t *y)
{
    return json_equal(x, y) ? json_incref((json_t *)(uintptr_t)x) : NULL;
}

static json_t *least_multiple(const json_t *x, const json_t *y)
{
    json_int_t a = json_integer_value(x), b = json_integer_value(y);
    const json_int_t m = a, n = b;

    if (a <= 0 || b <= 0 || a > INT32_MAX || b > INT32_MAX) {
        return equal(x, y);
    }
    while (b != 0) {
        const json_int_t r = a % b;
        a = b;
        b = r;
    }
    return json_integer(m / a * n);
}

static json_t *either(const json_t *x, const json_t *y)
{
    return json_boolean(json_is_true(x) || json_is_true(y));
}

static json_t *cross(const json_t *x, const json_t *y)
{
    enum { CROSS_MAX = 256 };
    json_t *out = json_array();

    if (json_array_size(x) * json_array_size(y) > CROSS_MAX) {
        json_decref(out);
        return NULL;
    }
    for (size_t i = 0; i < json_array_size(x); i++) {
        for (size_t k = 0; k < json_array_size(y); k++) {
            json_array_append_new(out, both(json_array_get(x, i), json_array_get(y, k)));
        }
    }
    return out;
}

static json_t *appended(const json_t *x, const json_t *y)
{
    json_t *out = json_copy((json_t *)(uintptr_t)x);

    json_array_extend(out, (json_t *)(uintptr_t)y);
    return out;
}

static const struct { const char *name; merge_fn *fn; } merges[] = {
    { "required", union_of }, { "enum", intersection }, { "allOf", appended }, { "anyOf", cross },
    { "oneOf", equal }, { "additionalProperties", both }, { "items", both },
    { "additionalItems", both }, { "propertyNames", both },
    { "minimum", larger }, { "exclusiveMinimum", larger }, { "minLength", larger },
    { "minItems", larger }, { "minProperties", larger },
    { "maximum", smaller }, { "exclusiveMaximum", smaller }, { "maxLength", smaller },
    { "maxItems", smaller }, { "maxProperties", smaller },
    { "multipleOf", least_multiple }, { "uniqueItems", either },
    { "pattern", equal }, { "format", equal }, { "prefixItems", equal },
    { "patternProperties", equal }, { "$ref", equal }, { "nullable", equal },
};

static bool has_any(const json_t *schema, const char *const *names)
{
    for (; *names; names++) {
        if (json_object_get(schema, *names)) {
            return true;
        }
    }
    return false;
}

/* Keywords whose meaning depends on others next to them cannot be taken over one by one. */
static const char *depends(const json_t *a, const json_t *b)
{
    static const char *const objects[] = { "properties", "additionalProperties",
                                           "patternProperties", NULL };
    static const char *const arrays[] = { "items", "prefixItems", "additionalItems", NULL };

    if ((json_object_get(a, "patternProperties") && has_any(b, objects)) ||
        (json_object_get(b, "patternProperties") && has_any(a, objects))) {
        return "patternProperties";
    }
    if ((json_object_get(a, "prefixItems") && has_any(b, arrays)) ||
        (json_object_get(b, "prefixItems") && has_any(a, arrays))) {
        return "prefixItems";
    }
    if ((json_is_array(json_object_get(a, "items")) && has_any(b, arrays)) ||
        (json_is_array(json_object_get(b, "items")) && has_any(a, arrays))) {
        return "items";
    }
    return NULL;
}

/* const is an enum of one value while schemas are merged. */
static json_t *const_as_enum(const json_t *schema)
{
    json_t *out = json_copy((json_t *)(uintptr_t)schema);
    json_t *value = json_object_get(out, "const");

    if (value) {
        json_t *one = json_pack("[O]", value);
        json_t *list = json_object_get(out, "enum");
        json_object_set_new(out, "enum", list ? intersection(list, one) : json_incref(one));
        json_decref(one);
        json_object_del(out, "const");
    }
    return out;
}

static bool merge_key(struct schema *s, json_t *out, const json_t *a, const json_t *b,
                      const char *key, const struct place *at)
{
    json_t *x = json_object_get(a, key), *y = json_object_get(b, key);

    if (!x || !y) {
        return json_object_set(out, key, x ? x : y) == 0;
    }
    if (is_annotation(key)) {
        return json_object_set(out, key, x) == 0;
    }
    for (size_t i = 0; i < sizeof merges / sizeof merges[0]; i++) {
        if (strcmp(merges[i].name, key) == 0) {
            json_t *v = json_equal(x, y) ? json_incref(x) : merges[i].fn(x, y);
            if (v) {
                return json_object_set_new(out, key, v) == 0;
            }
        }
    }
    schema_refuse(s, at, key, "two of them that apply together are not supported");
    return false;
}

/* Both are objects without const. */
static json_t *merge_objects(struct schema *s, const json_t *a, const json_t *b,
                             const struct place *at)
{
    const char *why = depends(a, b), *key;
    json_t *out = json_object(), *value;
    bool ok = out != NULL;

    if (why) {
        schema_refuse(s, at, why, "not supported together with another schema's keywords of the "
                      "same kind");
        ok = false;
    }
    if (ok && (json_object_get(a, "properties") || json_object_get(b, "properties"))) {
        json_object_set_new(out, "properties", merge_properties(a, b));
    }
    if (ok && (json_object_get(a, "type") || json_object_get(b, "type"))) {
        const bool null = json_is_true(json_object_get(a, "nullable")) &&
                          json_is_true(json_object_get(b, "nullable"));
        if (!json_object_get(a, "type") || !json_object_get(b, "type")) {
            json_object_set(out, "type", json_object_get(json_object_get(a, "type") ? a : b,
                                                         "type"));
        } else {
            json_object_set_new(out, "type", merge_types(s, a, b, at));
        }
        if (!null && json_is_array(json_object_get(out, "type")) &&
            json_array_size(json_object_get(out, "type")) == 0) {
            json_decref(out);
            return json_false();
        }
        json_object_set_new(out, "nullable", json_boolean(null));
    }
    json_object_foreach((json_t *)(uintptr_t)a, key, value) {
        ok = ok && (json_object_get(out, key) || merge_key(s, out, a, b, key, at));
    }
    json_object_foreach((json_t *)(uintptr_t)b, key, value) {
        ok = ok && (json_object_get(out, key) || merge_key(s, out, a, b, key, at));
    }
    if (!ok) {
        json_decref(out);
        out = NULL;
    }
    return out;
}

json_t *schema_merge(struct schema *s, const json_t *a, const json_t *b, const struct place *at)
{
    if (!schema_work(s, at, 2 + json_object_size(a) + json_object_size(b) +
                     json_object_size(json_object_get(a, "properties")) +
                     json_object_size(json_object_get(b, "properties")))) {
        return NULL;
    }
    if (!json_is_object(a) || !json_is_object(b)) {
        const bool never = json_is_false(a) || json_is_false(b);
        return never ? json_false() : json_incref((json_t *)(uintptr_t)(json_is_true(a) ? b : a));
    }
    json_t *x = const_as_enum(a), *y = const_as_enum(b);
    json_t *out = x && y ? merge_objects(s, x, y, at) : NULL;
    json_decref(x);
    json_decref(y);
    if (!out && !s->failed) {
        s->j.g->no_memory = true;
    }
    return out;
}

/* ---- schemas that exclude each other ----------------------------------------------------- */

static bool lists_disjoint(const json_t *a, const json_t *b)
{
    for (size_t i = 0; i < json_array_size(a); i++) {
        if (contains(b, json_array_get(a, i))) {
            return false;
        }
    }
    return true;
}

static bool objects_disjoint(struct schema *s, const json_t *a, const json_t *b, int depth)
{
    const json_t *need = json_object_get(a, "required");
    const json_t *other = json_object_get(b, "required");

    for (size_t i = 0; i < json_array_size(need); i++) {
        const char *name = json_string_value(json_array_get(need, i));
        const json_t *x = name ? of_property(a, name) : NULL;
        const json_t *y = name ? of_property(b, name) : NULL;
        if (json_is_false(y)) {
            return true;  /* one has it, the other must not */
        }
        if (x && y && contains(other, json_array_get(need, i)) &&
            schema_disjoint(s, x, y, depth + 1)) {
            return true;
        }
    }
    return false;
}

/* Of two schemas without references at the top. */
static bool plain_disjoint(struct schema *s, const json_t *a, const json_t *b, int depth)
{
    json_t *x = const_as_enum(a), *y = const_as_enum(b);
    const json_t *p = json_object_get(x, "enum"), *q = json_object_get(y, "enum");
    bool apart = p && q && lists_disjoint(p, q);
    unsigned types[2];

    for (int i = 0; i < 2; i++) {
        const json_t *schema = i == 0 ? x : y, *list = i == 0 ? p : q;
        /* Without a type every value may fit, whatever the keywords are about. */
        types[i] = json_object_get(schema, "type") ? schema_types(s, schema, NULL) : TYPE_ALL;
        types[i] |= types[i] & TYPE_NUMBER ? TYPE_INTEGER : 0;
        unsigned listed = 0;
        for (size_t k = 0; k < json_array_size(list); k++) {
            listed |= schema_type_of(json_array_get(list, k));
        }
        types[i] &= list ? listed | (listed & TYPE_NUMBER ? TYPE_INTEGER : 0) : ~0u;
    }
    apart = apart || (types[0] & types[1]) == 0;
    if (!apart && (types[0] & types[1]) == TYPE_OBJECT) {
        apart = objects_disjoint(s, x, y, depth) || objects_disjoint(s, y, x, depth);
    }
    json_decref(x);
    json_decref(y);
    return apart;
}

bool schema_disjoint(struct schema *s, const json_t *a, const json_t *b, int depth)
{
    enum { DEPTH_MAX = 8 };

    if (depth > DEPTH_MAX || !schema_work(s, NULL, 16)) {
        return false;
    }
    if (json_is_false(a) || json_is_false(b)) {
        return true;
    }
    json_t *x = schema_deref(s, a, NULL), *y = x ? schema_deref(s, b, NULL) : NULL;
    const bool apart = json_is_object(x) && json_is_object(y) && plain_disjoint(s, x, y, depth);
    json_decref(x);
    json_decref(y);
    return apart;
}

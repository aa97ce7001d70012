/* schema.c - a JSON schema becomes expressions: the texts of JSON that it accepts.
 *
 * The language is a part of what the schema accepts: object members come in the order of
 * the schema, and what a schema allows only by not speaking of it (further members, other
 * types than those its keywords are about) is not written.  Whatever cannot be enforced
 * is refused with its JSON pointer.  Here are combinations, references and listed values;
 * schema_scalar.c and schema_object.c have the types. */
#include "guide/schema.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "guide/automaton.h"
#include "guide/guide.h"

enum {
    DEPTH_MAX = 120,       /* schemas inside schemas; a limit for the stack */
    WORK_MAX = 3000000,    /* keywords looked at; far more than a second's worth is hostile */
    BRANCHES_MAX = 2000,   /* of oneOf, which are compared in pairs */
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

uint32_t schema_count(struct schema *s, const json_t *schema, const char *key, uint32_t none,
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

/* ---- enum and const ---------------------------------------------------------------------- */

static void compile_waiting(struct schema *s);

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
        gram_list_add(g, &alt, schema_object(s, schema, at));
    }
    if (types & TYPE_ARRAY) {
        gram_list_add(g, &alt, schema_array(s, schema, at));
    }
    if (types & TYPE_STRING) {
        gram_list_add(g, &alt, schema_string(s, schema, at));
    }
    if (types & (TYPE_NUMBER | TYPE_INTEGER)) {
        gram_list_add(g, &alt, schema_number(s, schema, !(types & TYPE_NUMBER), at));
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

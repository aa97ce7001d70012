/* jinja.c - compiling and rendering: the interface of the engine, and its limits. */
#include "text/jinja.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "text/jinja_run.h"

/* Room for long conversations with many tools; far above what real templates need. */
static const size_t default_output = (size_t)64 << 20;
static const size_t default_memory = (size_t)256 << 20;
static const uint64_t default_steps = 50000000;

/* ---- the run ------------------------------------------------------------------------ */

/* "line N: message", cut at a character so that it fits.  Gives where the message begins. */
static size_t set_error(struct jrun *r, slm_code code, const char *msg, size_t n)
{
    char head[32];
    size_t used, room;

    r->failed = true;
    if (r->err == NULL) {
        return 0;
    }
    used = (size_t)snprintf(head, sizeof head, "line %d: ", r->line);
    room = sizeof r->err->msg - 1 - used;
    if (n > room) {
        n = room - utf8_incomplete(msg, room);
    }
    slm_fail_at(r->err, code, r->line, "%s%.*s", head, (int)n, msg);
    return used;
}

struct val run_fail(struct jrun *r, const char *fmt, ...)
{
    char msg[400];
    va_list ap;

    if (!r->failed) {
        va_start(ap, fmt);
        vsnprintf(msg, sizeof msg, fmt, ap);
        va_end(ap);
        set_error(r, SLM_E_TEMPLATE, msg, strlen(msg));
    }
    return v_none();
}

/* The template chose the words, so they stay as they are, line breaks included; only what
 * could steer a terminal does not get through. */
void run_raise(struct jrun *r, const char *msg, size_t n)
{
    size_t at;

    if (r->failed) {
        return;
    }
    at = set_error(r, SLM_E_TEMPLATE, msg, n);
    for (size_t i = 0; r->err != NULL && i < n && r->err->msg[at + i] != '\0'; i++) {
        if (msg[i] == '\n' || msg[i] == '\t') {
            r->err->msg[at + i] = msg[i];
        }
    }
}

void *run_alloc(struct jrun *r, size_t n)
{
    char msg[100];
    void *p;

    if (r->failed) {
        return NULL;
    }
    /* The arena rounds sizes up to its alignment. */
    if (n > r->arena.max_bytes || r->arena.used_bytes + align_up(n + 1, 64) > r->arena.max_bytes) {
        run_fail(r, "the template needs more than the limit of %zu bytes of memory",
                 r->arena.max_bytes);
        return NULL;
    }
    p = arena_alloc(&r->arena, n > 0 ? n : 1);
    if (p == NULL) {
        int len = snprintf(msg, sizeof msg, "not enough memory for the values of the template");

        set_error(r, SLM_E_NOMEM, msg, (size_t)len);
    }
    return p;
}

bool run_step(struct jrun *r, uint64_t n)
{
    r->steps += n;
    if (r->steps > r->max_steps && !r->failed) {
        run_fail(r, "the template takes more than the limit of %llu steps",
                 (unsigned long long)r->max_steps);
    }
    return !r->failed;
}

bool run_enter(struct jrun *r)
{
    if (r->depth >= JINJA_DEPTH_MAX) {
        run_fail(r, "nested or recursing deeper than %d levels", JINJA_DEPTH_MAX);
    }
    if (r->failed) {
        return false;
    }
    r->depth++;
    return true;
}

/* ---- compiling ---------------------------------------------------------------------- */

/* The source with "\n" for every newline and without the last one. */
static char *normalise(struct arena *a, const char *s, size_t *n)
{
    char *out = arena_alloc(a, *n + 1);
    size_t k = 0;

    if (out == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < *n; i++) {
        if (s[i] == '\r') {
            i += i + 1 < *n && s[i + 1] == '\n';
            out[k++] = '\n';
        } else {
            out[k++] = s[i];
        }
    }
    if (k > 0 && out[k - 1] == '\n') {
        k--;
    }
    out[k] = '\0';
    *n = k;
    return out;
}

struct jinja *jinja_compile(const char *source, size_t n, slm_error *err)
{
    struct jinja *j;
    struct arena scratch;
    struct tokens tokens;
    bool ok;

    if (n > JINJA_SOURCE_MAX) {
        slm_fail(err, SLM_E_TEMPLATE, "the template has %zu bytes, the limit is %d", n,
                 JINJA_SOURCE_MAX);
        return NULL;
    }
    if (!utf8_valid(source, n)) {
        slm_fail(err, SLM_E_TEMPLATE, "the template is not valid UTF-8");
        return NULL;
    }
    j = mem_zalloc(1, sizeof *j);
    if (j == NULL) {
        slm_fail_nomem(err, "the template");
        return NULL;
    }
    arena_init(&j->arena, 16384, 0);
    arena_init(&scratch, 16384, 0);
    source = normalise(&j->arena, source, &n);
    ok = source != NULL || slm_fail_nomem(err, "the template");
    ok = ok && jinja_lex(&scratch, source, n, &tokens, err) && jinja_parse(j, &tokens, err);
    arena_deinit(&scratch);
    if (!ok) {
        jinja_free(j);
        return NULL;
    }
    return j;
}

void jinja_free(struct jinja *j)
{
    if (j != NULL) {
        arena_deinit(&j->arena);
        mem_free(j);
    }
}

/* ---- context ------------------------------------------------------------------------ */

static struct val from_json(struct jrun *r, json_t *json, bool marked);

static struct str *from_text(struct jrun *r, const char *s, size_t n, bool marked)
{
    struct sb b;

    sb_init(&b, r);
    sb_add(&b, s, n);
    if (marked) {
        sb_mark(&b, 0, b.n);
    }
    return sb_take(&b);
}

static struct val from_array(struct jrun *r, json_t *json, bool marked)
{
    size_t n = json_array_size(json);
    struct list *l = list_new(r, n);

    for (size_t i = 0; i < n && !r->failed; i++) {
        list_push(r, l, from_json(r, json_array_get(json, i), marked));
    }
    return v_list(l);
}

static struct dict *from_object(struct jrun *r, json_t *json, bool marked, const char *only_marked)
{
    struct dict *d = dict_new(r, json_object_size(json));
    const char *key;
    json_t *value;

    json_object_foreach(json, key, value) {
        bool mark = marked || (only_marked != NULL && strcmp(key, only_marked) == 0);

        if (r->failed) {
            break;
        }
        dict_set(r, d, v_str(from_text(r, key, strlen(key), marked)), from_json(r, value, mark));
    }
    return d;
}

static struct val from_json(struct jrun *r, json_t *json, bool marked)
{
    struct val v = v_none();

    if (!run_enter(r)) {
        return v;
    }
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        v = v_dict(from_object(r, json, marked, NULL));
        break;
    case JSON_ARRAY:
        v = from_array(r, json, marked);
        break;
    case JSON_STRING:
        v = v_str(from_text(r, json_string_value(json), json_string_length(json), marked));
        break;
    case JSON_INTEGER:
        v = v_int(json_integer_value(json));
        break;
    case JSON_REAL:
        v = v_float(json_real_value(json));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        v = v_bool(json_is_true(json));
        break;
    default:
        break;
    }
    run_leave(r);
    return v;
}

/* ---- rendering ---------------------------------------------------------------------- */

static bool give_output(const struct sb *page, struct buf *out, struct buf *spans, slm_error *err)
{
    size_t base = out->len;

    buf_add(out, page->s, page->n);
    for (size_t i = 0; spans != NULL && i < page->n_marks; i++) {
        struct span s = { base + page->marks[i].begin, base + page->marks[i].end };

        buf_add(spans, &s, sizeof s);
    }
    if (out->failed || (spans != NULL && spans->failed)) {
        return slm_fail_nomem(err, "the rendered text");
    }
    return true;
}

static void run_init(struct jrun *r, const struct jinja *j, const struct jinja_env *env,
                     slm_error *err)
{
    const struct jinja_limits *limits = &env->limits;

    *r = (struct jrun){ .j = j, .env = env, .err = err, .line = 1 };
    r->max_steps = limits->max_steps ? limits->max_steps : default_steps;
    r->max_output = limits->max_output ? limits->max_output : default_output;
    arena_init(&r->arena, 65536, limits->max_memory ? limits->max_memory : default_memory);
    r->nostr = (struct str){ .s = "" };
    r->noiter.done = true;
    r->noundef = (struct undef){ .hint = "undefined", .owner = V_ABSENT };
    r->context = &r->nodict;
}

bool jinja_render(const struct jinja *j, json_t *context, const struct jinja_env *env,
                  const char *marked, struct buf *out, struct buf *spans, slm_error *err)
{
    static const struct jinja_env plain;
    struct scope root = { 0 };
    struct sb page;
    struct jrun r;
    bool ok;

    run_init(&r, j, env != NULL ? env : &plain, err);
    r.stack = mem_alloc(JINJA_STACK_VALUES, sizeof *r.stack);
    if (r.stack == NULL) {
        arena_deinit(&r.arena);
        return slm_fail_nomem(err, "rendering the template");
    }
    r.scope = r.root = &root;
    sb_init(&page, &r);
    r.out = r.page = &page;
    if (json_is_object(context)) {
        r.context = from_object(&r, context, false, marked);
    }
    stmt_exec(&r, j->root);
    ok = !r.failed && give_output(&page, out, spans, err);
    mem_free(r.stack);
    arena_deinit(&r.arena);
    return ok;
}

/* probe.c - slm-probe: the inner parts of the engine for tests, as JSON Lines.
 *
 *   slm-probe logits MODEL IDS.json OUT.f32 [--threads N] [--chunk N] [--context N]
 *                    [--kv-type f32|f16|q8_0] [--greedy N]
 *   slm-probe tokenize MODEL
 *   slm-probe encode MODEL TEXT OUT.i32
 *   slm-probe render TEMPLATE.jinja [--now 2026-10-05T14:30:15]
 *   slm-probe jinja [--now ...]
 *   slm-probe toolcalls TEMPLATE.jinja
 *   slm-probe dequant TYPE < blocks > floats
 *   slm-probe schema MODEL
 *
 * logits reads an array of token ids and writes the logits after each of them, float32
 * little-endian [n_ids][n_vocab]; with --greedy it prints the ids of a greedy
 * continuation, end tokens not heeded.  encode prints the seconds that each of five calls
 * took to tokenize a text file, the first with empty caches, and writes the ids.  schema walks at random among the tokens that the
 * schema of a line allows, and after 256 tokens the shortest way to the end; instead of
 * "schema" a line may have "grammar", "regex", "choices" or "json": true.  The line verbs
 * answer each line of standard input with one of standard output; a line that cannot be
 * answered gives {"error": ...} and the next one is read.  Answers are ASCII, since some
 * readers take more than the newline for the end of a line. */
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include <jansson.h>

#include "base/buf.h"
#include "base/cpu.h"
#include "base/file.h"
#include "base/fpenv.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/thread.h"
#include "base/time.h"
#include "base/utf8.h"
#include "gguf/gguf.h"
#include "guide/guide.h"
#include "kern/kern.h"
#include "model/model.h"
#include "quant/quant.h"
#include "run/session.h"
#include "text/answer.h"
#include "text/jinja.h"
#include "text/vocab.h"

static const size_t TEMPLATE_MAX = (size_t)16 << 20;
static const size_t IDS_MAX = (size_t)256 << 20;

static int fail(const slm_error *err)
{
    fprintf(stderr, "slm-probe: %s\n", err->msg);
    return 1;
}

static int usage(const char *fmt, ...) PRINTF_LIKE(1, 2);

static int usage(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    fputs("slm-probe: ", stderr);
    vfprintf(stderr, fmt, args);
    fputs("\n", stderr);
    va_end(args);
    return 2;
}

/* ---- options --------------------------------------------------------------------------- */

struct opts {
    int threads, chunk, context, greedy;
    enum kv_type kv;
    struct jinja_env env;
};

static bool read_number(const char *name, const char *s, int min, int *out)
{
    char *end;

    errno = 0;
    const long v = strtol(s, &end, 10);
    if (*end || end == s || errno || v < min || v > 1 << 30) {
        usage("--%s needs a whole number from %d, not \"%s\"", name, min, s);
        return false;
    }
    *out = (int)v;
    return true;
}

/* "2026-10-05T14:30:15", the local time that a template sees. */
static bool read_clock(const char *s, struct jinja_env *env)
{
    struct tm tm = {0};
    const char *end = strptime(s, "%Y-%m-%dT%H:%M:%S", &tm);

    if (!end || *end) {
        usage("--now needs a time like 2026-10-05T14:30:15, not \"%s\"", s);
        return false;
    }
    env->fixed_clock = true;
    env->now = (int64_t)timegm(&tm);
    return true;
}

static bool read_kv(const char *s, enum kv_type *kv)
{
    static const char *const names[KV_TYPES] = { "f32", "f16", "q8_0" };

    for (int i = 0; i < KV_TYPES; i++) {
        if (strcmp(s, names[i]) == 0) {
            *kv = (enum kv_type)i;
            return true;
        }
    }
    usage("--kv-type is f32, f16 or q8_0, not \"%s\"", s);
    return false;
}

static bool read_opts(int argc, char **argv, struct opts *o)
{
    static const struct option table[] = {
        { "threads", required_argument, NULL, 't' }, { "chunk", required_argument, NULL, 'c' },
        { "context", required_argument, NULL, 'x' }, { "greedy", required_argument, NULL, 'g' },
        { "kv-type", required_argument, NULL, 'k' }, { "now", required_argument, NULL, 'n' },
        { NULL, 0, NULL, 0 },
    };
    int c;

    *o = (struct opts){ .kv = KV_F32 };
    opterr = 0;
    while ((c = getopt_long(argc, argv, ":", table, NULL)) != -1) {
        if ((c == 't' && !read_number("threads", optarg, 0, &o->threads)) ||
            (c == 'c' && !read_number("chunk", optarg, 0, &o->chunk)) ||
            (c == 'x' && !read_number("context", optarg, 0, &o->context)) ||
            (c == 'g' && !read_number("greedy", optarg, 0, &o->greedy)) ||
            (c == 'k' && !read_kv(optarg, &o->kv)) ||
            (c == 'n' && !read_clock(optarg, &o->env))) {
            return false;
        }
        if (c == '?' || c == ':') {
            usage(c == ':' ? "%s needs a value" : "unknown option %s", argv[optind - 1]);
            return false;
        }
    }
    return true;
}

/* ---- lines ----------------------------------------------------------------------------- */

/* Answers one request; a new object, or NULL and *err. */
typedef json_t *answer_fn(void *arg, const json_t *request, slm_error *err);

static void print_answer(json_t *answer, const slm_error *err)
{
    if (!answer) {
        answer = json_pack("{s:s}", "error", err->msg);
        if (answer && err->position >= 0) {
            json_object_set_new(answer, "position", json_integer(err->position));
        }
    }
    if (!answer || json_dumpf(answer, stdout, JSON_COMPACT | JSON_ENSURE_ASCII) != 0) {
        fputs("{\"error\":\"not enough memory\"}", stdout);
    }
    fputs("\n", stdout);
    fflush(stdout);
    json_decref(answer);
}

static int each_line(answer_fn *answer, void *arg)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;

    while ((n = getline(&line, &cap, stdin)) > 0) {
        slm_error err = { .position = -1 };
        json_error_t why;
        json_t *request = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, &why);
        json_t *result = NULL;

        if (json_is_object(request)) {
            result = answer(arg, request, &err);
        } else {
            slm_fail(&err, SLM_E_FORMAT, "the line is no JSON object%s%s", request ? "" : ": ",
                     request ? "" : why.text);
        }
        print_answer(result, &err);
        json_decref(request);
    }
    free(line);
    return ferror(stdout) ? 1 : 0;
}

/* JSON string of bytes; each invalid sequence, taken as long as a valid one could have
 * begun, is one U+FFFD. */
static json_t *lossy_string(const char *s, size_t n)
{
    struct buf b;
    json_t *out = NULL;

    buf_init(&b, 0);
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        size_t len = (size_t)utf8_decode(s + i, n - i, &cp);

        if (len > 0) {
            buf_add(&b, s + i, len);
        } else {
            for (len = n - i < 3 ? n - i : 3; len > 1; len--) {
                if (utf8_incomplete(s + i, len) == len) {
                    break;
                }
            }
            buf_puts(&b, "\xEF\xBF\xBD");
        }
        i += len;
    }
    if (!b.failed) {
        out = json_stringn(buf_str(&b), b.len);
    }
    buf_deinit(&b);
    return out;
}

/* ---- tokenize -------------------------------------------------------------------------- */

static json_t *answer_tokenize(void *arg, const json_t *request, slm_error *err)
{
    const struct vocab *v = arg;
    const json_t *text = json_object_get(request, "text");
    struct ids ids = {0};
    struct buf detok;
    json_t *answer = NULL;

    if (!json_is_string(text)) {
        slm_fail(err, SLM_E_FORMAT, "\"text\" is no string");
        return NULL;
    }
    buf_init(&detok, 0);
    if (tok_encode(v, json_string_value(text), json_string_length(text),
                   json_is_true(json_object_get(request, "bos")),
                   json_is_true(json_object_get(request, "special")), &ids, err) &&
        vocab_detokenize(v, ids.data, ids.n, true, &detok, err)) {
        json_t *list = json_array();
        for (size_t i = 0; i < ids.n; i++) {
            json_array_append_new(list, json_integer(ids.data[i]));
        }
        answer = json_pack("{s:o, s:o}", "ids", list, "detok",
                           lossy_string(buf_str(&detok), detok.len));
    }
    buf_deinit(&detok);
    ids_deinit(&ids);
    return answer;
}

static int cmd_tokenize(char **argv, const struct opts *o)
{
    slm_error err = {0};
    struct gguf *g = gguf_open(argv[0], &err);
    struct vocab *v = g ? vocab_new(g, &err) : NULL;
    const int code = v ? each_line(answer_tokenize, v) : fail(&err);

    (void)o;
    vocab_free(v);
    gguf_close(g);
    return code;
}

static bool encode_rounds(const struct vocab *v, const char *path, const struct buf *text,
                          slm_error *err)
{
    enum { ROUNDS = 5 };
    struct ids none = {0};

    /* Tables are built by the first call; that belongs to loading. */
    if (!tok_encode(v, "", 0, false, false, &none, err)) {
        return false;
    }
    ids_deinit(&none);
    for (int i = 0; i < ROUNDS; i++) {
        struct ids ids = {0};
        const double start = time_now();
        bool ok = tok_encode(v, text->data, text->len, false, false, &ids, err);

        printf("%.6f\n", time_now() - start);
        if (ok && i == 0) {
            ok = file_write(path, ids.data, ids.n * sizeof *ids.data, err);
        }
        ids_deinit(&ids);
        if (!ok) {
            return false;
        }
    }
    return true;
}

static int cmd_encode(char **argv, const struct opts *o)
{
    slm_error err = {0};
    struct buf text;

    (void)o;
    buf_init(&text, 0);
    struct gguf *g = gguf_open(argv[0], &err);
    struct vocab *v = g ? vocab_new(g, &err) : NULL;
    const bool ok = v && file_read(argv[1], IDS_MAX, &text, &err) &&
                    encode_rounds(v, argv[2], &text, &err);

    buf_deinit(&text);
    vocab_free(v);
    gguf_close(g);
    return ok ? 0 : fail(&err);
}

/* ---- templates --------------------------------------------------------------------------- */

struct renderer {
    const struct jinja *jinja;
    const struct jinja_env *env;
};

static json_t *render(const struct renderer *r, json_t *context, slm_error *err)
{
    struct buf text;
    json_t *answer = NULL;

    buf_init(&text, 0);
    if (jinja_render(r->jinja, context, r->env, NULL, &text, NULL, err)) {
        answer = json_pack("{s:o}", "text", lossy_string(buf_str(&text), text.len));
    }
    buf_deinit(&text);
    return answer;
}

/* The variables of a chat template: messages, tools and documents, which are null where
 * they are absent, and all of kwargs. */
static json_t *answer_render(void *arg, const json_t *request, slm_error *err)
{
    json_t *kwargs = json_object_get(request, "kwargs");
    json_t *context = json_pack("{s:n, s:n, s:n}", "messages", "tools", "documents");
    const char *const names[] = { "messages", "tools" };

    for (size_t i = 0; i < 2; i++) {
        json_t *v = json_object_get(request, names[i]);
        if (v) {
            json_object_set(context, names[i], v);
        }
    }
    if (json_is_object(kwargs)) {
        json_object_update(context, kwargs);
    }
    json_t *answer = render(arg, context, err);
    json_decref(context);
    return answer;
}

static int cmd_render(char **argv, const struct opts *o)
{
    slm_error err = {0};
    struct buf source;
    struct jinja *jinja = NULL;
    int code;

    buf_init(&source, 0);
    if (file_read(argv[0], TEMPLATE_MAX, &source, &err)) {
        jinja = jinja_compile(buf_str(&source), source.len, &err);
    }
    struct renderer r = { jinja, &o->env };
    code = jinja ? each_line(answer_render, &r) : fail(&err);
    jinja_free(jinja);
    buf_deinit(&source);
    return code;
}

static json_t *answer_jinja(void *arg, const json_t *request, slm_error *err)
{
    const struct opts *o = arg;
    const json_t *source = json_object_get(request, "template");
    json_t *context = json_object_get(request, "context");
    json_t *empty = json_object();
    json_t *answer = NULL;

    if (!json_is_string(source) || (context && !json_is_object(context))) {
        slm_fail(err, SLM_E_FORMAT, "\"template\" is no string or \"context\" no object");
    } else {
        struct jinja *jinja =
            jinja_compile(json_string_value(source), json_string_length(source), err);
        const struct renderer r = { jinja, &o->env };
        answer = jinja ? render(&r, context ? context : empty, err) : NULL;
        jinja_free(jinja);
    }
    json_decref(empty);
    return answer;
}

static int cmd_jinja(char **argv, const struct opts *o)
{
    struct opts copy = *o;

    (void)argv;
    return each_line(answer_jinja, &copy);
}

/* ---- toolcalls --------------------------------------------------------------------------- */

/* One answer, split. */
struct parts {
    struct buf content, reasoning, name, arguments;
    json_t *calls;
};

static bool add_part(void *arg, slm_part part, int index, const char *text, size_t n)
{
    struct parts *p = arg;

    (void)index;
    switch (part) {
    case SLM_PART_CONTENT: buf_add(&p->content, text, n); break;
    case SLM_PART_REASONING: buf_add(&p->reasoning, text, n); break;
    case SLM_PART_TOOL:
        buf_clear(&p->arguments);
        buf_clear(&p->name);
        buf_add(&p->name, text, n);
        break;
    case SLM_PART_ARGUMENTS: buf_add(&p->arguments, text, n); break;
    case SLM_PART_TOOL_END:
        json_array_append_new(p->calls,
                              json_pack("{s:o, s:o}", "name",
                                        lossy_string(buf_str(&p->name), p->name.len), "arguments",
                                        json_loadb(buf_str(&p->arguments), p->arguments.len,
                                                   JSON_ALLOW_NUL, NULL)));
        break;
    }
    return true;
}

/* Where the prompt is not given, an end of reasoning without a beginning means that it began
 * in the prompt. */
static const char *likely_prompt(const char *text)
{
    static const char *const marks[][2] = { { "<think>", "</think>" }, { "[THINK]", "[/THINK]" } };

    for (size_t i = 0; i < 2; i++) {
        const char *end = strstr(text, marks[i][1]), *begin = strstr(text, marks[i][0]);
        if (end && (!begin || begin > end)) {
            return marks[i][0];
        }
    }
    return NULL;
}

/* {"text": ..} with optional "prompt" and "tools". */
static json_t *answer_toolcalls(void *arg, const json_t *request, slm_error *err)
{
    const struct buf *template = arg;
    const json_t *text = json_object_get(request, "text");
    const json_t *prompt = json_object_get(request, "prompt");
    const json_t *tools = json_object_get(request, "tools");
    struct parts p = { .calls = json_array() };
    json_t *out = NULL;

    if (!json_is_string(text)) {
        slm_fail(err, SLM_E_FORMAT, "\"text\" is no string");
        json_decref(p.calls);
        return NULL;
    }
    const char *s = json_string_value(text);
    const char *before = json_is_string(prompt) ? json_string_value(prompt) : likely_prompt(s);
    char *tools_text = json_is_array(tools) ? json_dumps(tools, 0) : NULL;
    struct answer *a =
        answer_new(buf_str(template), template->len, before, true, add_part, &p, err);
    if (a && (!tools_text || answer_tools(a, tools_text, err)) &&
        answer_push(a, s, json_string_length(text), err) && answer_finish(a, err)) {
        out = json_pack("{s:o, s:o, s:O}", "content",
                        lossy_string(buf_str(&p.content), p.content.len), "reasoning",
                        lossy_string(buf_str(&p.reasoning), p.reasoning.len), "tool_calls",
                        p.calls);
    }
    answer_free(a);
    free(tools_text);
    json_decref(p.calls);
    buf_deinit(&p.content);
    buf_deinit(&p.reasoning);
    buf_deinit(&p.name);
    buf_deinit(&p.arguments);
    return out;
}

static int cmd_toolcalls(char **argv, const struct opts *o)
{
    slm_error err = {0};
    struct buf template;

    (void)o;
    buf_init(&template, 0);
    const int code = file_read(argv[0], TEMPLATE_MAX, &template, &err)
                         ? each_line(answer_toolcalls, &template)
                         : fail(&err);
    buf_deinit(&template);
    return code;
}

/* ---- dequant ------------------------------------------------------------------------------ */

static const struct quant_type *find_type(const char *name)
{
    for (uint32_t id = 0; id < QT_COUNT; id++) {
        const struct quant_type *t = quant_type(id);
        if (t && strcasecmp(t->name, name) == 0) {
            return t;
        }
    }
    return NULL;
}

static int cmd_dequant(char **argv, const struct opts *o)
{
    const struct quant_type *t = find_type(argv[0]);
    unsigned char block[1024];
    float out[256];
    size_t n;

    (void)o;
    if (!t || (size_t)t->block_bytes > sizeof block) {
        return usage("type \"%s\" is unknown or not supported", argv[0]);
    }
    while ((n = fread(block, 1, (size_t)t->block_bytes, stdin)) == (size_t)t->block_bytes) {
        t->decode(block, (size_t)t->block, out);
        fwrite(out, sizeof *out, (size_t)t->block, stdout);
    }
    if (n > 0) {
        fprintf(stderr, "slm-probe: %zu bytes are left that make no whole block of %d\n", n,
                t->block_bytes);
        return 1;
    }
    return fflush(stdout) == 0 && !ferror(stdin) ? 0 : 1;
}

/* ---- logits ------------------------------------------------------------------------------- */

struct ids_file {
    int32_t *id;
    size_t n;
};

static bool read_ids(const char *path, struct ids_file *ids, slm_error *err)
{
    struct buf text;
    json_error_t why;
    bool ok;

    buf_init(&text, 0);
    ok = file_read(path, IDS_MAX, &text, err);
    json_t *list = ok ? json_loadb(buf_str(&text), text.len, 0, &why) : NULL;
    ok = ok && (json_is_array(list) ||
                slm_fail(err, SLM_E_FORMAT, "%s: no JSON array of token ids", path));
    ids->n = ok ? json_array_size(list) : 0;
    ids->id = ok ? mem_alloc(ids->n, sizeof *ids->id) : NULL;
    ok = ok && (ids->id || slm_fail_nomem(err, "tokens"));
    for (size_t i = 0; ok && i < ids->n; i++) {
        const json_t *v = json_array_get(list, i);
        const json_int_t id = json_integer_value(v);
        ok = (json_is_integer(v) && id == (int32_t)id) ||
             slm_fail(err, SLM_E_FORMAT, "%s: element %zu is no token id", path, i);
        ids->id[i] = (int32_t)id;
    }
    json_decref(list);
    buf_deinit(&text);
    return ok;
}

/* Writes the logits of the ids, a block of tokens at a time. */
static bool write_logits(struct session *s, int n_vocab, const struct ids_file *ids,
                         const char *path, slm_error *err)
{
    enum { BLOCK = 64 };
    const size_t row = (size_t)n_vocab * sizeof(float);
    float *logits = mem_alloc(BLOCK, row);
    FILE *f = logits ? fopen(path, "wb") : NULL;
    bool ok = f != NULL;

    if (!logits) {
        slm_fail_nomem(err, "logits");
    } else if (!f) {
        slm_fail(err, SLM_E_IO, "%s: %s", path, strerror(errno));
    }
    for (size_t i = 0; ok && i < ids->n; i += BLOCK) {
        const size_t n = ids->n - i < BLOCK ? ids->n - i : BLOCK;
        ok = session_score(s, ids->id + i, n, logits, err) &&
             (fwrite(logits, row, n, f) == n ||
              slm_fail(err, SLM_E_IO, "%s: %s", path, strerror(errno)));
    }
    if (f && fclose(f) != 0 && ok) {
        ok = slm_fail(err, SLM_E_IO, "%s: %s", path, strerror(errno));
    }
    mem_free(logits);
    return ok;
}

static int32_t most_likely(const float *logits, int n_vocab)
{
    int best = 0;

    for (int i = 1; i < n_vocab; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return best;
}

static bool print_greedy(struct session *s, int n_vocab, int n, slm_error *err)
{
    bool ok = n == 0 || session_logits(s) != NULL || slm_fail(err, SLM_E_ARG, "no tokens");

    printf(n > 0 && ok ? "[" : "");
    for (int i = 0; ok && i < n; i++) {
        const int32_t id = most_likely(session_logits(s), n_vocab);
        printf("%s%d", i > 0 ? ", " : "", (int)id);
        ok = i + 1 == n || session_feed(s, &id, 1, err);
    }
    printf(n > 0 && ok ? "]\n" : "");
    return ok;
}

static bool logits(char **argv, const struct opts *o, slm_error *err)
{
    enum isa isa;
    char why[160];
    struct ids_file ids = {0};
    struct gguf *g = NULL;
    struct pool *pool = NULL;
    struct model *m = NULL;
    struct session *s = NULL;
    bool ok = cpu_isa(&isa, err) && read_ids(argv[1], &ids, err);

    if (ok) {
        g = gguf_open(argv[0], err);
        pool = g ? pool_new(o->threads ? o->threads : cpu_usable_cores(why, sizeof why), err)
                 : NULL;
        m = pool ? model_new(g, pool, kern_get(isa), MODEL_PACK_AUTO, err) : NULL;
    }
    if (m) {
        /* Room for the ids and their continuation unless told otherwise. */
        const size_t room = ids.n + (size_t)o->greedy;
        const struct session_params p = {
            .context = o->context ? o->context : room < 1 ? 1 : (int)room,
            .chunk = o->chunk,
            .kv = o->kv,
        };
        s = session_new(m, &p, err);
    }
    ok = s && write_logits(s, model_shape(m)->n_vocab, &ids, argv[2], err) &&
         print_greedy(s, model_shape(m)->n_vocab, o->greedy, err);
    session_free(s);
    model_free(m);
    pool_free(pool);
    gguf_close(g);
    mem_free(ids.id);
    return ok;
}

static int cmd_logits(char **argv, const struct opts *o)
{
    slm_error err = {0};

    return logits(argv, o, &err) ? 0 : fail(&err);
}

/* ---- schema -------------------------------------------------------------------------------- */

struct walker {
    const struct vocab *v;
    struct guide_vocab *tokens;
};

/* A walk that has not ended by then never will. */
enum { WALK_RANDOM = 256, WALK_MAX = 20000 };

static bool read_language(const json_t *request, struct grammar *g, gram_expr *root,
                          slm_error *err)
{
    static const struct {
        const char *key;
        bool (*read)(struct grammar *g, const char *text, size_t n, gram_expr *root,
                     slm_error *err);
        bool as_json;
    } kinds[] = {
        { "schema", guide_schema, true },
        { "grammar", guide_gbnf, false },
        { "regex", guide_regex, false },
        { "choices", guide_choices, true },
    };

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const json_t *v = json_object_get(request, kinds[i].key);
        if (v && !kinds[i].as_json && json_is_string(v)) {
            return kinds[i].read(g, json_string_value(v), json_string_length(v), root, err);
        }
        char *text = v && kinds[i].as_json ? json_dumps(v, JSON_ENCODE_ANY) : NULL;
        if (text) {
            const bool ok = kinds[i].read(g, text, strlen(text), root, err);
            free(text);
            return ok;
        }
    }
    return json_is_true(json_object_get(request, "json"))
               ? guide_json(g, root, err)
               : slm_fail(err, SLM_E_FORMAT, "the line has no \"schema\"");
}

/* One of the allowed tokens, each as likely as any other. */
static int32_t random_token(const uint64_t *bits, size_t words, struct rng *rng)
{
    uint64_t n = 0;

    for (size_t i = 0; i < words; i++) {
        n += (uint64_t)__builtin_popcountll(bits[i]);
    }
    uint64_t pick = n > 0 ? rng_next(rng) % n : 0;
    for (size_t i = 0; i < words; i++) {
        for (uint64_t left = bits[i]; left != 0; left &= left - 1) {
            if (pick-- == 0) {
                return (int32_t)(i * 64) + __builtin_ctzll(left);
            }
        }
    }
    return -1;
}

static bool walk(const struct walker *w, struct guide *guide, uint64_t seed, struct ids *ids,
                 slm_error *err)
{
    const size_t words = ((size_t)vocab_size(w->v) + 63) / 64;
    struct guide_matcher *m = guide_matcher_new(guide, err);
    uint64_t *bits = mem_alloc(words, sizeof *bits);
    struct rng rng = { rng_mix(seed) };
    bool ok = m && bits;

    ids->data = mem_alloc(WALK_MAX, sizeof *ids->data);
    ok = ok && (ids->data || slm_fail_nomem(err, "a walk"));
    while (ok) {
        int32_t id = -1;
        if (ids->n == WALK_MAX) {
            ok = slm_fail(err, SLM_E_ARG, "the answer is not complete after %d tokens", WALK_MAX);
            break;
        }
        if (ids->n < WALK_RANDOM) {
            ok = guide_allow(m, ids->data, ids->n, bits, err);
            id = ok ? random_token(bits, words, &rng) : -1;
        } else {
            ok = guide_shortest(m, ids->data, ids->n, &id, err);
        }
        if (!ok || vocab_is_end(w->v, id)) {
            break;
        }
        ids->data[ids->n++] = id;
    }
    guide_matcher_free(m);
    mem_free(bits);
    return ok;
}

static json_t *answer_schema(void *arg, const json_t *request, slm_error *err)
{
    const struct walker *w = arg;
    const json_int_t seed = json_integer_value(json_object_get(request, "seed"));
    struct grammar g;
    gram_expr root = GRAM_NONE;
    struct guide *guide = NULL;
    struct ids ids = {0};
    struct buf text;
    json_t *answer = NULL;

    gram_init(&g);
    if (read_language(request, &g, &root, err)) {
        guide = guide_new(w->tokens, &g, root, err);
    } else {
        gram_deinit(&g);
    }
    buf_init(&text, 0);
    if (guide && walk(w, guide, (uint64_t)seed, &ids, err)) {
        for (size_t i = 0; i < ids.n; i++) {
            size_t n;
            const char *s = vocab_piece(w->v, ids.data[i], true, &n);
            buf_add(&text, s, n);
        }
        answer = json_pack("{s:o}", "text", lossy_string(buf_str(&text), text.len));
    }
    buf_deinit(&text);
    ids_deinit(&ids);
    guide_free(guide);
    return answer;
}

static int cmd_schema(char **argv, const struct opts *o)
{
    slm_error err = {0};
    struct gguf *g = gguf_open(argv[0], &err);
    struct vocab *v = g ? vocab_new(g, &err) : NULL;
    struct walker w = { v, v ? guide_vocab_new(v, &err) : NULL };
    const int code = w.tokens ? each_line(answer_schema, &w) : fail(&err);

    (void)o;
    guide_vocab_free(w.tokens);
    vocab_free(v);
    gguf_close(g);
    return code;
}

/* ---- verbs ---------------------------------------------------------------------------------- */

static const struct verb {
    const char *name, *operands;
    int n_operands;
    int (*run)(char **argv, const struct opts *o);
} verbs[] = {
    { "logits", "MODEL IDS.json OUT.f32", 3, cmd_logits },
    { "tokenize", "MODEL", 1, cmd_tokenize },
    { "encode", "MODEL TEXT OUT.i32", 3, cmd_encode },
    { "render", "TEMPLATE.jinja", 1, cmd_render },
    { "jinja", "", 0, cmd_jinja },
    { "toolcalls", "TEMPLATE.jinja", 1, cmd_toolcalls },
    { "dequant", "TYPE", 1, cmd_dequant },
    { "schema", "MODEL", 1, cmd_schema },
};

int main(int argc, char **argv)
{
    struct opts o;

    if (!read_opts(argc, argv, &o)) {
        return 2;
    }
    const uint64_t fp = fpenv_enter();
    int code = -1;
    for (size_t i = 0; argc > optind && i < sizeof verbs / sizeof verbs[0]; i++) {
        const struct verb *v = &verbs[i];
        if (strcmp(argv[optind], v->name) != 0) {
            continue;
        }
        code = argc - optind - 1 == v->n_operands
                   ? v->run(argv + optind + 1, &o)
                   : usage("%s takes: %s", v->name, v->n_operands ? v->operands : "no operand");
    }
    fpenv_leave(fp);
    return code >= 0 ? code : usage("the verb must be logits, tokenize, encode, render, jinja, "
                                     "toolcalls, dequant or schema");
}

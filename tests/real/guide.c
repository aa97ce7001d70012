/* guide.c - a real model under guides: it calls a tool and fills a schema.
 *
 *   real_guide MODEL.gguf
 *
 * The answers are judged by reading them, not by what made them: a call must name the tool and
 * give its arguments, the schema's members must be there with their types and bounds.  Each must
 * be the same from a session, from a session with drafts and from a batch.  Exit code 77 where the
 * model is not there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>
#include <slm.h>

enum { ANSWER_MAX = 220 };

/* JSON as it is. */
#define STRING(...) #__VA_ARGS__

static const char tools[] = STRING([{"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city now.",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "maxLength": 40},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
    "required": ["city", "unit"]}}}]);

static const char schema[] = STRING({"type": "object", "properties": {
    "name": {"type": "string", "maxLength": 30},
    "born": {"type": "integer", "minimum": 1000, "maximum": 2100},
    "home": {"type": "object", "properties": {
        "city": {"type": "string", "maxLength": 30},
        "country": {"enum": ["France", "Poland", "Italy"]}}, "required": ["city", "country"]},
    "fields": {"type": "array", "items": {"type": "string", "maxLength": 20},
               "minItems": 1, "maxItems": 3}},
    "required": ["name", "born", "home", "fields"]});

static const char ask_weather[] = STRING([{"role": "user", "content":
    "What is the weather in Paris, in celsius?"}]);

static const char ask_person[] = STRING([{"role": "user", "content":
    "Describe Marie Curie, born 1867, as JSON with name, born, home (city, country), fields."}]);

static void check(bool ok, const slm_error *err)
{
    if (!ok) {
        fprintf(stderr, "%s\n", err->msg);
        exit(1);
    }
}

/* ---- judging -------------------------------------------------------------------------------- */

static bool no_longer(const char *s, size_t max)
{
    size_t n = 0;

    for (; *s; s++) {
        n += ((unsigned char)*s & 0xC0) != 0x80;
    }
    return n <= max;
}

/* The object in the text, which may stand between marks of calls but with nothing else. */
static json_t *only_object(const char *text)
{
    static const char open[] = "<tool_call>\n", close[] = "\n</tool_call>";
    const bool marked = strncmp(text, open, strlen(open)) == 0;
    json_error_t why;
    const char *begin = marked ? text + strlen(open) : text;
    const size_t n = strlen(begin), n_close = marked ? strlen(close) : 0;

    if (n < n_close || strcmp(begin + n - n_close, close + strlen(close) - n_close) != 0) {
        return NULL;
    }
    return json_loadb(begin, n - n_close, JSON_REJECT_DUPLICATES, &why);
}

static bool is_call(const char *text)
{
    json_t *o = only_object(text);
    const char *name = "", *city = "", *unit = "";
    const bool ok = strncmp(text, "<tool_call>", 11) == 0 &&
                    json_unpack_ex(o, NULL, JSON_STRICT, "{s:s, s:{s:s, s:s}}", "name", &name,
                                   "arguments", "city", &city, "unit", &unit) == 0 &&
                    strcmp(name, "get_weather") == 0 && no_longer(city, 40) &&
                    (strcmp(unit, "celsius") == 0 || strcmp(unit, "fahrenheit") == 0);

    json_decref(o);
    return ok;
}

static bool is_person(const char *text)
{
    json_t *o = only_object(text), *fields = NULL;
    const char *name = "", *city = "", *country = "";
    int born = 0;
    bool ok = json_unpack_ex(o, NULL, JSON_STRICT, "{s:s, s:i, s:{s:s, s:s}, s:o}", "name", &name,
                             "born", &born, "home", "city", &city, "country", &country, "fields",
                             &fields) == 0 &&
              no_longer(name, 30) && born >= 1000 && born <= 2100 && no_longer(city, 30) &&
              (strcmp(country, "France") == 0 || strcmp(country, "Poland") == 0 ||
               strcmp(country, "Italy") == 0) &&
              json_array_size(fields) >= 1 && json_array_size(fields) <= 3;

    for (size_t i = 0; ok && i < json_array_size(fields); i++) {
        const char *field = json_string_value(json_array_get(fields, i));
        ok = field && no_longer(field, 20);
    }
    json_decref(o);
    return ok;
}

/* ---- answering ------------------------------------------------------------------------------ */

struct answer {
    int32_t ids[ANSWER_MAX];
    size_t n;
};

static slm_sampling greedy(const slm_model *m)
{
    slm_sampling s;

    slm_sampling_default(m, &s);
    s.temperature = 0;
    return s;
}

static void by_session(slm_model *m, const slm_guide *guide, const int32_t *ids, size_t n,
                       slm_draft_kind drafts, struct answer *a)
{
    const slm_session_params params = { .context = 1024, .draft = { .kind = drafts, .max = 4 } };
    const slm_sampling sampling = greedy(m);
    slm_error err = {0};
    slm_session *s = slm_session_new(m, &params, &err);
    slm_sampler *sampler = s ? slm_sampler_new(m, &sampling, &err) : NULL;
    bool ended = false;

    check(sampler && slm_sampler_guide(sampler, guide, n, &err) &&
              slm_session_feed(s, ids, n, &err), &err);
    a->n = 0;
    while (a->n < ANSWER_MAX && !ended) {
        size_t more;
        check(slm_decode(s, sampler, a->ids + a->n, ANSWER_MAX - a->n, &more, &err), &err);
        a->n += more;
        ended = slm_is_end(m, a->ids[a->n - 1]);
        a->n -= ended;
    }
    slm_sampler_free(sampler);
    slm_session_free(s);
}

static bool note(void *arg, const slm_event *e)
{
    struct answer *a = arg;

    if (e->finish == SLM_FINISH_ERROR) {
        fprintf(stderr, "%s\n", e->error->msg);
    } else if (e->finish == SLM_FINISH_NONE && a->n < ANSWER_MAX) {
        a->ids[a->n++] = e->id;
    }
    return true;
}

static void by_batch(slm_model *m, const slm_guide *guide, const int32_t *ids, size_t n,
                     struct answer *a)
{
    const slm_batch_params params = { .context = 1024, .parallel = 2,
                                      .draft = { .kind = SLM_DRAFT_NGRAM } };
    const slm_request request = {
        .ids = ids, .n_ids = n, .sampling = greedy(m), .guide = guide, .max_tokens = ANSWER_MAX,
        .n_top = -1, .on_event = note, .arg = a,
    };
    slm_error err = {0};
    slm_batch *b = slm_batch_new(m, &params, &err);
    bool more = true;

    a->n = 0;
    check(b && slm_batch_submit(b, &request, NULL, &err), &err);
    while (more) {
        check(slm_batch_step(b, &more, &err), &err);
    }
    slm_batch_free(b);
}

static bool equal(const char *what, const struct answer *a, const struct answer *b)
{
    const bool ok = a->n == b->n && memcmp(a->ids, b->ids, a->n * sizeof *a->ids) == 0;

    if (!ok) {
        printf("%s give another answer\n", what);
    }
    return ok;
}

/* Whether all ways to an answer give the same one, and it is right. */
static bool ask(slm_model *m, slm_guide *guide, const char *messages, const char *offered,
                bool (*right)(const char *text))
{
    static struct answer plain, drafted, batched;
    slm_error err = {0};
    int32_t *ids = NULL;
    size_t n = 0;

    check(slm_render_tokens(m, messages, offered, NULL, true, &ids, &n, NULL, &err), &err);
    by_session(m, guide, ids, n, SLM_DRAFT_OFF, &plain);
    by_session(m, guide, ids, n, SLM_DRAFT_NGRAM, &drafted);
    by_batch(m, guide, ids, n, &batched);
    char *text = slm_detokenize(m, plain.ids, plain.n, true, NULL, &err);
    check(text != NULL, &err);
    bool ok = right(text);
    printf("%s: %s\n", ok ? "right" : "wrong", text);
    ok = equal("drafts", &plain, &drafted) && ok;
    ok = equal("batches", &plain, &batched) && ok;
    slm_free(text);
    slm_free(ids);
    slm_guide_free(guide);
    return ok;
}

int main(int argc, char **argv)
{
    slm_error err = {0};

    if (argc != 2) {
        fprintf(stderr, "usage: real_guide MODEL.gguf\n");
        return 2;
    }
    if (access(argv[1], R_OK) != 0) {
        printf("skipped: %s is not there\n", argv[1]);
        return 77;
    }
    slm_engine *engine = slm_engine_new(NULL, &err);
    slm_model *m = engine ? slm_model_open(engine, argv[1], NULL, &err) : NULL;
    check(m != NULL, &err);
    slm_guide *call = slm_guide_tools(m, tools, "required", false, &err);
    check(call != NULL, &err);
    slm_guide *person = slm_guide_new(m, SLM_GUIDE_SCHEMA, schema, strlen(schema), &err);
    check(person != NULL, &err);
    const bool called = ask(m, call, ask_weather, tools, is_call);
    const bool filled = ask(m, person, ask_person, NULL, is_person);
    slm_model_free(m);
    slm_engine_free(engine);
    return called && filled ? 0 : 1;
}

/* guided.c - guides from the command line: files, an expression, a list. */
#include "app/guided.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "app/input.h"
#include "base/error.h"

enum { KINDS = SLM_GUIDE_CHOICES + 1 };

#define AT(kind) offsetof(struct guided, option[kind])

const struct opt guided_opts[] = {
    { "schema", 0, OPT_STR, AT(SLM_GUIDE_SCHEMA), "FILE",
      "the answer is JSON that fits this JSON schema", 0, 0 },
    { "grammar", 0, OPT_STR, AT(SLM_GUIDE_GRAMMAR), "FILE",
      "the answer belongs to this GBNF grammar", 0, 0 },
    { "regex", 0, OPT_STR, AT(SLM_GUIDE_REGEX), "TEXT",
      "the whole answer matches this regular expression", 0, 0 },
    { "choices", 0, OPT_STR, AT(SLM_GUIDE_CHOICES), "A,B,C", "the answer is one of these", 0, 0 },
    { NULL, 0, OPT_FLAG, 0, NULL, NULL, 0, 0 },
};

int guided_count(const struct guided *g)
{
    int n = 0;

    for (int i = 0; i < KINDS; i++) {
        n += g->option[i] != NULL;
    }
    return n;
}

/* "a,b,c" as a JSON array; NULL without memory. */
static char *choices_json(const char *list)
{
    json_t *out = json_array();
    const char *end;

    do {
        end = strchr(list, ',');
        json_array_append_new(out, json_stringn(list, end ? (size_t)(end - list) : strlen(list)));
        list = end ? end + 1 : list;
    } while (end);
    char *text = json_dumps(out, 0);
    json_decref(out);
    return text;
}

static slm_guide *from_choices(slm_model *model, const char *list, slm_error *err)
{
    if (!input_check("--choices", list, strlen(list), err)) {
        return NULL;
    }
    char *json = choices_json(list);
    slm_guide *guide = json ? slm_guide_new(model, SLM_GUIDE_CHOICES, json, strlen(json), err)
                            : NULL;
    if (!json) {
        slm_fail_nomem(err, "the choices");
    }
    free(json);
    return guide;
}

static slm_guide *from_file(slm_model *model, slm_guide_kind kind, const char *path,
                            slm_error *err)
{
    struct buf text;
    slm_guide *guide = NULL;

    buf_init(&text, 0);
    if (input_text(path, &text, err)) {
        guide = slm_guide_new(model, kind, buf_str(&text), text.len, err);
        if (!guide) {
            slm_wrap(err, "%s", path);
        }
    }
    buf_deinit(&text);
    return guide;
}

slm_guide *guided_new(slm_model *model, const struct guided *g, slm_error *err)
{
    const char *regex = g->option[SLM_GUIDE_REGEX];
    const char *choices = g->option[SLM_GUIDE_CHOICES];

    if (regex) {
        slm_guide *guide = slm_guide_new(model, SLM_GUIDE_REGEX, regex, strlen(regex), err);
        if (!guide) {
            slm_wrap(err, "--regex");
        }
        return guide;
    }
    if (choices) {
        return from_choices(model, choices, err);
    }
    const slm_guide_kind kind = g->option[SLM_GUIDE_SCHEMA] ? SLM_GUIDE_SCHEMA : SLM_GUIDE_GRAMMAR;
    return from_file(model, kind, g->option[kind], err);
}

/* cmd_tokenize.c - slm tokenize: the tokens of a text. */
#include <string.h>

#include "app/input.h"
#include "app/out.h"
#include "app/verbs.h"
#include "base/error.h"

struct tokenize_opts {
    const char *model;
    bool special, bos, ids, json;
};

#define AT(field) offsetof(struct tokenize_opts, field)

static const struct opt opts[] = {
    { "model", 'm', OPT_STR, AT(model), "MODEL", "the model: a file or a name", 0, 0 },
    { "special", 0, OPT_FLAG, AT(special), NULL,
      "control tokens written out in the text become tokens", 0, 0 },
    { "bos", 0, OPT_FLAG, AT(bos), NULL, "add what the model wants at the start and end", 0, 0 },
    { "ids", 0, OPT_FLAG, AT(ids), NULL, "print a JSON array of ids only", 0, 0 },
    { "json", 0, OPT_FLAG, AT(json), NULL, "print one JSON object: ids, pieces", 0, 0 },
    { NULL, 0, OPT_FLAG, 0, NULL, NULL, 0, 0 },
};

static void print_text(const slm_model *model, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t len;
        const char *piece = slm_piece(model, ids[i], true, &len);
        out_printf("%8d  \"", (int)ids[i]);
        out_quoted(piece, len, 0);
        out_printf("\"\n");
    }
}

static void print_json(const slm_model *model, const int32_t *ids, size_t n, bool ids_only)
{
    json_t *list = json_array();
    json_t *pieces = json_array();

    for (size_t i = 0; i < n; i++) {
        size_t len;
        const char *piece = slm_piece(model, ids[i], true, &len);
        json_array_append_new(list, json_integer(ids[i]));
        json_array_append_new(pieces, out_json_text(piece, len));
    }
    if (ids_only) {
        out_json(list, false);
        json_decref(pieces);
    } else {
        out_json(json_pack("{s:o, s:o}", "ids", list, "pieces", pieces), false);
    }
}

static bool tokenize(const struct tokenize_opts *o, const struct buf *text, slm_error *err)
{
    const slm_model_params vocab_only = { .vocab_only = true };
    slm_engine *engine = slm_engine_new(&(slm_engine_params){ .threads = 1 }, err);
    slm_model *model = engine ? input_model(engine, o->model, &vocab_only, err) : NULL;
    int32_t *ids = NULL;
    size_t n;

    const bool ok = model && slm_tokenize(model, buf_str(text), text->len, o->bos, o->special,
                                          &ids, &n, err);
    if (ok && (o->json || o->ids)) {
        print_json(model, ids, n, !o->json);
    } else if (ok) {
        print_text(model, ids, n);
    }
    slm_free(ids);
    slm_model_free(model);
    slm_engine_free(engine);
    return ok;
}

static int cmd_tokenize(int argc, char **argv)
{
    struct tokenize_opts o = {0};
    struct operands rest;
    slm_error err = {0};
    struct buf text;
    int code, used = 0;

    if (!args_parse(&verb_tokenize, argc, argv, &o, &rest, &code)) {
        return code;
    }
    if (!o.model && used < rest.n) {
        o.model = rest.item[used++];
    }
    if (!o.model) {
        return args_usage(&verb_tokenize, "no model; give a file or a name");
    }
    const char *arg = used < rest.n ? rest.item[used++] : "-";
    if (used < rest.n) {
        return args_usage(&verb_tokenize, "one argument too many: \"%s\"", rest.item[used]);
    }
    buf_init(&text, 0);
    bool ok;
    if (strcmp(arg, "-") == 0) {
        ok = input_text("-", &text, &err);
    } else {
        buf_puts(&text, arg);
        ok = text.failed ? slm_fail_nomem(&err, "the text")
                         : input_check("the text", arg, strlen(arg), &err);
    }
    code = ok && tokenize(&o, &text, &err) ? out_finish(0) : out_fail(&err);
    buf_deinit(&text);
    return code;
}

const struct verb verb_tokenize = {
    .name = "tokenize",
    .operands = "MODEL [TEXT]",
    .summary = "show the tokens of a text",
    .more = "Without TEXT, or with -, the text is read from standard input as it is.\n",
    .opts = opts,
    .run = cmd_tokenize,
};

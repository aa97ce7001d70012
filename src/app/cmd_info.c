/* cmd_info.c - slm info: what a model file is, and what running it takes. */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "app/input.h"
#include "app/out.h"
#include "app/verbs.h"
#include "base/cpu.h"
#include "base/mem.h"

struct info_opts {
    const char *model, *kv, *memory;
    int context;
    bool json;
    uint64_t memory_bytes;    /* of `memory` */
};

#define AT(field) offsetof(struct info_opts, field)

static const struct opt opts[] = {
    { "model", 'm', OPT_STR, AT(model), "MODEL", "the model: a file or a name", 0, 0 },
    { "context", 0, OPT_INT, AT(context), "N",
      "forecast memory for N tokens (4096, or the model's maximum)", 1, INT_MAX },
    { "kv-type", 0, OPT_CHOICE, AT(kv), "f16|q8_0|f32", "precision of keys and values (f16)", 0, 0 },
    { "memory", 0, OPT_STR, AT(memory), "SIZE",
      "forecast for a limit of 6G or 60% of the memory (all that is free)", 0, 0 },
    { "json", 0, OPT_FLAG, AT(json), NULL, "print one JSON object", 0, 0 },
    { NULL, 0, OPT_FLAG, 0, NULL, NULL, 0, 0 },
};

/* Longest value shown on a line, in bytes. */
enum { VALUE_SHOWN = 100 };

/* A tensor type and how much of the file it is. */
struct type_sum {
    const char *type;
    uint64_t count, params, bytes;
};

enum { TYPES_MAX = 48 };

struct report {
    struct info_opts o;
    slm_engine *engine;
    slm_model *file;          /* metadata and tensor list */
    slm_model *model;         /* ready to run; NULL where it cannot */
    slm_error why_not;
    slm_model_info info;
    struct type_sum types[TYPES_MAX];
    int n_types;
    int context;
    slm_forecast forecast;
};

/* ---- collecting ---------------------------------------------------------------------- */

static void add_tensor(struct report *r, const slm_tensor_info *t)
{
    uint64_t n = 1;
    int i = 0;

    for (int d = 0; d < t->n_dims; d++) {
        n *= (uint64_t)t->dims[d];
    }
    while (i < r->n_types && strcmp(r->types[i].type, t->type) != 0) {
        i++;
    }
    if (i == TYPES_MAX) {
        return;  /* there are fewer types than that */
    }
    if (i == r->n_types) {
        r->types[r->n_types++] = (struct type_sum){ .type = t->type };
    }
    r->types[i].count++;
    r->types[i].params += n;
    r->types[i].bytes += t->bytes;
}

/* The type with most bytes first. */
static int by_bytes(const void *a, const void *b)
{
    const struct type_sum *x = a, *y = b;

    if (x->bytes != y->bytes) {
        return x->bytes < y->bytes ? 1 : -1;
    }
    return strcmp(x->type, y->type);
}

/* Opens the file twice: what is in it can be told also where it cannot be run. */
static bool collect(struct report *r, slm_error *err)
{
    const slm_model_params meta_only = { .meta_only = true };
    const slm_model_params unpacked = {
        .pack = SLM_PACK_OFF, .no_stream = true, .memory_bytes = r->o.memory_bytes,
    };
    slm_tensor_info t;

    r->engine = slm_engine_new(NULL, err);
    r->file = r->engine ? input_model(r->engine, r->o.model, &meta_only, err) : NULL;
    if (!r->file) {
        return false;
    }
    for (size_t i = 0; slm_model_tensor(r->file, i, &t); i++) {
        add_tensor(r, &t);
    }
    qsort(r->types, (size_t)r->n_types, sizeof r->types[0], by_bytes);
    slm_model_info_get(r->file, &r->info);
    if (r->n_types == 0) {
        return true;  /* a vocabulary; there is nothing to run */
    }
    r->model = input_model(r->engine, r->o.model, &unpacked, &r->why_not);
    if (!r->model) {
        return true;
    }
    slm_model_info_get(r->model, &r->info);
    r->context = input_context(r->model, r->o.context);
    return slm_model_forecast(r->model, r->context, input_kv(r->o.kv), &r->forecast, err);
}

/* ---- as text -------------------------------------------------------------------------- */

static void print_facts(const struct report *r)
{
    const slm_model_info *i = &r->info;

    out_printf("architecture  ");
    out_quoted(i->arch, strlen(i->arch), VALUE_SHOWN);
    out_printf("\nname          ");
    out_quoted(i->name, strlen(i->name), VALUE_SHOWN);
    out_printf("\nfile          %s\n", out_bytes(i->file_bytes));
    out_printf("parameters    %" PRIu64 "\n", i->n_params);
    if (r->model) {
        out_printf("layers        %d of %d values, %d heads, %d of them with keys and values\n",
                   i->n_layer, i->n_embd, i->n_head, i->n_head_kv);
        out_printf("vocabulary    %d tokens\n", i->n_vocab);
        out_printf("context       at most %d tokens\n", i->context_max);
        out_printf("template      %s\n", i->has_template ? "yes" : "none");
    }
}

static void print_meta(const struct report *r)
{
    const char *key, *type, *value;

    out_printf("\nmetadata\n");
    for (size_t i = 0; slm_model_meta(r->file, i, &key, &type, &value); i++) {
        out_printf("  %-5s ", type);
        out_quoted(key, strlen(key), 0);
        out_printf(" = ");
        out_quoted(value, strlen(value), VALUE_SHOWN);
        out_printf("\n");
    }
}

static void print_types(const struct report *r)
{
    out_printf("\ntensors       count      parameters           bytes\n");
    for (int i = 0; i < r->n_types; i++) {
        const struct type_sum *t = &r->types[i];
        out_printf("  %-10s %6" PRIu64 " %15" PRIu64 " %15" PRIu64 "\n", t->type, t->count,
                   t->params, t->bytes);
    }
}

static void print_forecast(const struct report *r)
{
    const slm_forecast *f = &r->forecast;

    out_printf("\nmemory for %d tokens of context\n", r->context);
    out_printf("  weights          %12s\n", out_bytes(f->weights_bytes));
    if (f->streamed_bytes > 0) {
        out_printf("    in memory      %12s\n", out_bytes(f->pinned_bytes));
        out_printf("    read per token %12s\n", out_bytes(f->streamed_bytes));
    }
    out_printf("  keys and values  %12s\n", out_bytes(f->kv_bytes));
    out_printf("  work             %12s\n", out_bytes(f->work_bytes));
    out_printf("  together         %12s of %s free\n", out_bytes(f->total_bytes),
               out_bytes(f->free_bytes));
}

static void print_text(const struct report *r)
{
    print_facts(r);
    print_meta(r);
    print_types(r);
    if (r->model) {
        print_forecast(r);
    }
}

/* ---- as JSON --------------------------------------------------------------------------- */

static json_t *json_meta(const struct report *r)
{
    json_t *list = json_object();
    const char *key, *type, *value;

    for (size_t i = 0; slm_model_meta(r->file, i, &key, &type, &value); i++) {
        json_t *text = out_json_text(key, strlen(key));
        json_object_set_new(list, json_string_value(text),
                            json_pack("{s:s, s:o}", "type", type, "value",
                                      out_json_text(value, strlen(value))));
        json_decref(text);
    }
    return list;
}

static json_t *json_types(const struct report *r)
{
    json_t *list = json_object();

    for (int i = 0; i < r->n_types; i++) {
        const struct type_sum *t = &r->types[i];
        json_object_set_new(list, t->type,
                            json_pack("{s:I, s:I, s:I}", "count", (json_int_t)t->count,
                                      "parameters", (json_int_t)t->params, "bytes",
                                      (json_int_t)t->bytes));
    }
    return list;
}

static json_t *json_forecast(const struct report *r)
{
    const slm_forecast *f = &r->forecast;

    return json_pack("{s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "context", r->context,
                     "weights_bytes", (json_int_t)f->weights_bytes, "kv_bytes",
                     (json_int_t)f->kv_bytes, "work_bytes", (json_int_t)f->work_bytes,
                     "pinned_bytes", (json_int_t)f->pinned_bytes, "streamed_bytes",
                     (json_int_t)f->streamed_bytes, "total_bytes", (json_int_t)f->total_bytes,
                     "free_bytes", (json_int_t)f->free_bytes);
}

static void print_json(const struct report *r)
{
    const slm_model_info *i = &r->info;
    json_t *o = json_pack("{s:o, s:o, s:I, s:I, s:I}", "architecture",
                          out_json_text(i->arch, strlen(i->arch)), "name",
                          out_json_text(i->name, strlen(i->name)), "file_bytes",
                          (json_int_t)i->file_bytes, "weight_bytes", (json_int_t)i->weight_bytes,
                          "parameters", (json_int_t)i->n_params);

    if (o && r->model) {
        json_object_update_new(
            o, json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:o}", "layers", i->n_layer,
                         "embedding", i->n_embd, "heads", i->n_head, "heads_kv", i->n_head_kv,
                         "vocabulary", i->n_vocab, "context_max", i->context_max, "template",
                         (int)i->has_template, "memory", json_forecast(r)));
    }
    if (o) {
        json_object_set_new(o, "tensors", json_types(r));
        json_object_set_new(o, "metadata", json_meta(r));
    }
    out_json(o, true);
}

/* ---- the verb --------------------------------------------------------------------------- */

static int cmd_info(int argc, char **argv)
{
    struct report r = { .o = { .kv = "f16" } };
    struct operands rest;
    slm_error err = {0};
    int code;

    if (!args_parse(&verb_info, argc, argv, &r.o, &rest, &code)) {
        return code;
    }
    const int used = r.o.model ? 0 : 1;
    if (rest.n != used) {
        return args_usage(&verb_info, rest.n < used ? "no model; give a file or a name"
                                                    : "one model at a time");
    }
    r.o.model = r.o.model ? r.o.model : rest.item[0];
    if (r.o.memory && !input_memory(r.o.memory, &r.o.memory_bytes)) {
        return args_usage(&verb_info, "--memory needs a size like 6G, 900M or 60%%, not \"%s\"",
                          r.o.memory);
    }

    if (!collect(&r, &err)) {
        code = out_fail(&err);
    } else {
        (r.o.json ? print_json : print_text)(&r);
        code = out_finish(0);
        if (r.why_not.code != SLM_E_OK) {
            code = out_fail(&r.why_not);
        }
    }
    slm_model_free(r.model);
    slm_model_free(r.file);
    slm_engine_free(r.engine);
    return code;
}

const struct verb verb_info = {
    .name = "info",
    .operands = "MODEL",
    .summary = "show metadata, tensors and memory needs of a model",
    .more = "A file that cannot be run is shown all the same; the exit code is 1 then, and the\n"
            "reason is on standard error.\n",
    .opts = opts,
    .run = cmd_info,
};

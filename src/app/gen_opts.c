/* gen_opts.c - shared options of verbs that generate, and what they open. */
#include "app/gen_opts.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/input.h"
#include "app/out.h"
#include "base/error.h"

#define AT(field) offsetof(struct gen_opts, field)

#define END { NULL, 0, OPT_FLAG, 0, NULL, NULL, 0, 0 }

const struct opt gen_answer_opts[] = {
    { "max-tokens", 'n', OPT_INT, AT(max_tokens), "N",
      "longest answer in tokens (200, in a chat -1); -1: to the end of the context", -1, INT_MAX },
    { "stop", 0, OPT_LIST, AT(stops), "TEXT", "end the answer before this text; repeatable", 0, 0 },
    END,
};

const struct opt gen_sampling_opts[] = {
    { "temperature", 't', OPT_FLOAT, AT(sampling.temperature), "X",
      "0: always the most likely token (the file's advice, else its makers', else 0.6)", 0, 100 },
    { "top-k", 0, OPT_INT, AT(sampling.top_k), "N", "draw from the N most likely tokens; 0: off", 0,
      INT_MAX },
    { "top-p", 0, OPT_FLOAT, AT(sampling.top_p), "X",
      "draw from the fewest tokens of this probability; 1: off", 0, 1 },
    { "min-p", 0, OPT_FLOAT, AT(sampling.min_p), "X",
      "draw from tokens at least X times as likely as the best; 0: off", 0, 1 },
    { "typical-p", 0, OPT_FLOAT, AT(sampling.typical_p), "X",
      "draw from the least surprising tokens of this probability; 1: off", 0, 1 },
    { "xtc-probability", 0, OPT_FLOAT, AT(sampling.xtc_probability), "X",
      "chance to leave out all likely tokens but the last of them; 0: off", 0, 1 },
    { "xtc-threshold", 0, OPT_FLOAT, AT(sampling.xtc_threshold), "X",
      "from which probability XTC takes a token for likely (0.1)", 0, 0.5 },
    { "mirostat-tau", 0, OPT_FLOAT, AT(sampling.mirostat_tau), "X",
      "Mirostat 2: surprise in bits to aim at, in place of the four above; 0: off", 0, 100 },
    { "mirostat-eta", 0, OPT_FLOAT, AT(sampling.mirostat_eta), "X", "how fast it learns (0.1)", 0,
      1 },
    { "repeat-penalty", 0, OPT_FLOAT, AT(sampling.repeat_penalty), "X",
      "divide the logits of recent tokens; 1: off", 0.01, 100 },
    { "presence-penalty", 0, OPT_FLOAT, AT(sampling.presence_penalty), "X",
      "subtract from the logits of recent tokens; 0: off", -100, 100 },
    { "frequency-penalty", 0, OPT_FLOAT, AT(sampling.frequency_penalty), "X",
      "the same, times how often they occur; 0: off", -100, 100 },
    { "penalty-window", 0, OPT_INT, AT(sampling.penalty_window), "N",
      "tokens that count as recent (64); -1: all", -1, INT_MAX },
    { "dry-multiplier", 0, OPT_FLOAT, AT(sampling.dry_multiplier), "X",
      "DRY: subtract from what goes on with a repetition; 0: off", 0, 100 },
    { "dry-base", 0, OPT_FLOAT, AT(sampling.dry_base), "X",
      "so many times more for each further token of it (1.75)", 1, 100 },
    { "dry-allowed", 0, OPT_INT, AT(sampling.dry_allowed), "N",
      "repetitions of N tokens are free (2)", 1, INT_MAX },
    { "dry-window", 0, OPT_INT, AT(sampling.dry_window), "N",
      "tokens that DRY looks back at; -1: all (-1)", -1, INT_MAX },
    { "logit-bias", 0, OPT_LIST, AT(biases), "ID:X",
      "add to a token's logit, -100 to 100 or -inf; repeatable", 0, 0 },
    { "seed", 0, OPT_U64, AT(sampling.seed), "N", "the same seed gives the same answer (42)", 0,
      0 },
    END,
};

const struct opt gen_chat_opts[] = {
    { "system", 0, OPT_STR, AT(system), "TEXT", "system message", 0, 0 },
    { "template", 0, OPT_STR, AT(template_path), "FILE", "chat template to use, Jinja", 0, 0 },
    { "no-thinking", 0, OPT_FLAG, AT(no_thinking), NULL,
      "set the template's enable_thinking to false", 0, 0 },
    { "reasoning-effort", 0, OPT_CHOICE, AT(effort), "low|medium|xhigh",
      "set the template's reasoning_effort", 0, 0 },
    { "show-prompt", 0, OPT_FLAG, AT(show_prompt), NULL,
      "print the prompt as the model gets it in front of the answer", 0, 0 },
    END,
};

const struct opt gen_model_opts[] = {
    { "context", 0, OPT_INT, AT(context), "N",
      "tokens of prompt and answer together (4096, or the model's maximum)", 1, INT_MAX },
    { "threads", 0, OPT_INT, AT(threads), "N", "threads; 0: as many as help (0)", 0, 1024 },
    { "kv-type", 0, OPT_CHOICE, AT(kv), "f16|q8_0|f32", "precision of keys and values (f16)", 0,
      0 },
    { "pack", 0, OPT_CHOICE, AT(pack), "auto|off|wait",
      "rearrange weights for speed in the background, never, or first (auto)", 0, 0 },
    { "memory", 0, OPT_STR, AT(memory), "SIZE",
      "memory to use at most, 6G or 60%; weights beyond it are read for every token (all free)",
      0, 0 },
    { "no-stream", 0, OPT_FLAG, AT(no_stream), NULL,
      "map weights that do not fit, and leave it to the system which are in memory", 0, 0 },
    { "mtp-draft", 0, OPT_INT, AT(mtp_draft), "N",
      "draft up to N tokens per step with the model's draft block; 0: off (0)", 0, GEN_DRAFT_MAX },
    { "mtp-model", 0, OPT_STR, AT(mtp_model), "FILE", "the draft block is in this file", 0, 0 },
    { "draft", 0, OPT_STR, AT(draft), "ngram|FILE",
      "draft what followed the same tokens before, or with a smaller model", 0, 0 },
    { "draft-max", 0, OPT_INT, AT(draft_max), "N", "tokens that --draft drafts per step (3)", 1,
      GEN_DRAFT_MAX },
    END,
};

/* ---- reading ----------------------------------------------------------------------------- */

/* Settings that are not given: NAN and INT_MIN, which no option can be. */
static void forget(slm_sampling *s)
{
    for (const struct opt *o = gen_sampling_opts; o->name; o++) {
        void *p = (char *)s + (o->offset - AT(sampling));
        if (o->type == OPT_FLOAT) {
            *(float *)p = NAN;
        } else if (o->type == OPT_INT) {
            *(int *)p = INT_MIN;
        }
    }
}

void gen_init(struct gen_opts *o)
{
    *o = (struct gen_opts){ .max_tokens = 200, .kv = "f16", .pack = "auto" };
    forget(&o->sampling);
    o->sampling.seed = 42;
}

/* "ID:BIAS" */
static bool read_bias(const char *s, struct slm_bias *out)
{
    char *end;
    const long id = strtol(s, &end, 10);

    if (end == s || *end != ':' || id < 0 || id > INT32_MAX) {
        return false;
    }
    const char *number = end + 1;
    const double bias = strcmp(number, "-inf") == 0 ? -INFINITY : strtod(number, &end);
    *out = (struct slm_bias){ (int32_t)id, (float)bias };
    return bias == -INFINITY || (end != number && *end == '\0' && bias >= -100 && bias <= 100);
}

static bool has_empty(const struct opt_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        if (!*list->item[i]) {
            return true;
        }
    }
    return false;
}

bool gen_check(const struct verb *verb, struct gen_opts *o, int *code)
{
    for (size_t i = 0; i < o->biases.n; i++) {
        if (!read_bias(o->biases.item[i], &o->bias[i])) {
            *code = args_usage(verb, "--logit-bias needs a token's id and a number from -100 to "
                               "100 or -inf, like 42:-5, not \"%s\"", o->biases.item[i]);
            return false;
        }
    }
    o->sampling.logit_bias = o->bias;
    o->sampling.n_logit_bias = o->biases.n;
    if (o->memory && !input_memory(o->memory, &o->memory_bytes)) {
        *code = args_usage(verb, "--memory needs a size like 6G, 900M or 60%%, not \"%s\"",
                           o->memory);
    } else if (o->memory && o->no_stream) {
        *code = args_usage(verb, "--no-stream keeps no limit, so --memory does not go with it");
    } else if (o->mtp_draft > 0 && o->draft) {
        *code = args_usage(verb, "--mtp-draft and --draft do not go together");
    } else if (o->mtp_model && o->mtp_draft == 0) {
        *code = args_usage(verb, "--mtp-model needs --mtp-draft N");
    } else if (o->draft_max > 0 && !o->draft) {
        *code = args_usage(verb, "--draft-max needs --draft");
    } else if (has_empty(&o->stops)) {
        *code = args_usage(verb, "--stop needs a text that is not empty");
    } else {
        return true;
    }
    return false;
}

bool gen_read(const struct gen_opts *o, struct buf *template, slm_error *err)
{
    if (o->template_path && !input_text(o->template_path, template, err)) {
        return false;
    }
    for (size_t i = 0; i < o->stops.n; i++) {
        if (!input_check("the stop text", o->stops.item[i], strlen(o->stops.item[i]), err)) {
            return false;
        }
    }
    return !o->system || input_check("the system message", o->system, strlen(o->system), err);
}

/* ---- opening ----------------------------------------------------------------------------- */

/* The model that drafts, where it is a file of its own; and how drafts are made. */
static bool open_drafter(struct gen *g, const struct gen_opts *o, slm_error *err)
{
    const slm_model_params params = { .pack = input_pack(o->pack) };
    const bool ngram = o->draft && strcmp(o->draft, "ngram") == 0;
    const char *path = o->draft && !ngram ? o->draft : o->mtp_model;

    g->draft.kind = ngram ? SLM_DRAFT_NGRAM : o->draft ? SLM_DRAFT_MODEL
                  : o->mtp_draft > 0 ? SLM_DRAFT_MTP : SLM_DRAFT_OFF;
    g->draft.max = o->mtp_draft > 0 ? o->mtp_draft : o->draft_max;
    if (path) {
        g->drafter = input_model(g->engine, path, &params, err);
        g->draft.model = g->drafter;
    }
    return !path || g->drafter;
}

bool gen_name_template(const struct gen_opts *o, const char *model, slm_error *err)
{
    if (err->code == SLM_E_TEMPLATE) {
        slm_wrap(err, "%s", o->template_path ? o->template_path : model);
    }
    return false;
}

/* Whether an error is only that the model has no block for --mtp-draft: drafts change no answer,
 * so a command line may ask for them whatever the model.  They are off then. */
static bool only_drafts(struct gen *g, const struct gen_opts *o, const slm_error *err)
{
    if (err->code != SLM_E_UNSUPPORTED || o->mtp_draft == 0 || o->mtp_model ||
        g->draft.kind == SLM_DRAFT_OFF || !strstr(err->msg, "no block that drafts")) {
        return false;
    }
    out_note("note: %s; going on without drafts", err->msg);
    g->draft = (slm_drafting){0};
    return true;
}

bool gen_open(struct gen *g, const struct gen_opts *o, const char *model,
              const struct buf *template, slm_error *err)
{
    const slm_engine_params engine = { .threads = o->threads };
    slm_session_params session = { .context = o->context, .kv = input_kv(o->kv) };
    const slm_model_params params = {
        .pack = input_pack(o->pack),
        .memory_bytes = o->memory_bytes,
        .no_stream = o->no_stream,
        .session = &session,
        .chat_template = o->template_path ? buf_str(template) : NULL,
    };

    *g = (struct gen){ .engine = slm_engine_new(&engine, err) };
    if (!g->engine || !open_drafter(g, o, err)) {
        return false;
    }
    session.draft = g->draft;
    g->model = input_model(g->engine, model, &params, err);
    if (!g->model && only_drafts(g, o, err)) {
        session.draft = g->draft;
        g->model = input_model(g->engine, model, &params, err);
    }
    if (!g->model) {
        return gen_name_template(o, model, err);
    }
    g->context = input_context(g->model, o->context);
    return true;
}

void gen_close(struct gen *g)
{
    slm_model_free(g->drafter);
    slm_model_free(g->model);
    slm_engine_free(g->engine);
    *g = (struct gen){0};
}

slm_sampling gen_sampling(const struct gen_opts *o, const slm_model *model)
{
    slm_sampling s;

    slm_sampling_default(model, &s);
    for (const struct opt *row = gen_sampling_opts; row->name; row++) {
        const size_t at = row->offset - AT(sampling);
        const void *from = (const char *)&o->sampling + at;
        void *to = (char *)&s + at;
        if (row->type == OPT_FLOAT && !isnan(*(const float *)from)) {
            *(float *)to = *(const float *)from;
        } else if (row->type == OPT_INT && *(const int *)from != INT_MIN) {
            *(int *)to = *(const int *)from;
        }
    }
    s.seed = o->sampling.seed;
    s.logit_bias = o->sampling.logit_bias;
    s.n_logit_bias = o->sampling.n_logit_bias;
    return s;
}

/* Whether a name is the option's, with _ for - as well. */
static bool is_named(const struct opt *o, const char *name)
{
    size_t i = 0;

    while (name[i] && (o->name[i] == name[i] || (o->name[i] == '-' && name[i] == '_'))) {
        i++;
    }
    return !name[i] && !o->name[i];
}

bool gen_set(slm_sampling *s, const char *name, const char *value, char *why, size_t why_bytes)
{
    struct gen_opts o;

    for (const struct opt *row = gen_sampling_opts; row->name; row++) {
        if (row->type == OPT_LIST || !is_named(row, name)) {
            continue;
        }
        o.sampling = *s;
        if (!args_value(row, value, &o, why, why_bytes)) {
            return false;
        }
        *s = o.sampling;
        return true;
    }
    snprintf(why, why_bytes, "is no setting; /set lists them");
    return false;
}

void gen_print(const slm_sampling *s)
{
    for (const struct opt *row = gen_sampling_opts; row->name; row++) {
        const void *p = (const char *)s + (row->offset - AT(sampling));
        if (row->type == OPT_FLOAT) {
            out_printf("  %-18s %g\n", row->name, (double)*(const float *)p);
        } else if (row->type == OPT_INT) {
            out_printf("  %-18s %d\n", row->name, *(const int *)p);
        } else if (row->type == OPT_U64) {
            out_printf("  %-18s %llu\n", row->name, (unsigned long long)*(const uint64_t *)p);
        }
    }
}

slm_session *gen_session(struct gen *g, const struct gen_opts *o, slm_error *err)
{
    slm_session_params params = { .context = g->context, .kv = input_kv(o->kv),
                                  .draft = g->draft };
    slm_model_info info;

    if (!slm_model_forecast(g->model, g->context, params.kv, &g->forecast, err)) {
        return NULL;
    }
    if (g->forecast.streamed_bytes > 0 && !o->no_stream) {
        char line[200];
        input_memory_line(&g->forecast, line, sizeof line);
        out_note("note: the weights do not fit into memory: %s", line);
    }
    slm_session *s = slm_session_new(g->model, &params, err);
    if (!s && only_drafts(g, o, err)) {
        params.draft = g->draft;
        s = slm_session_new(g->model, &params, err);
    }
    if (!s) {
        return NULL;
    }
    slm_model_info_get(g->model, &info);
    if (g->context > info.context_max) {
        out_note("note: the model was trained for %d tokens; beyond that its answers get worse",
                 info.context_max);
    }
    return s;
}

char *gen_variables(const struct gen_opts *o)
{
    json_t *variables = json_object();

    if (o->no_thinking) {
        json_object_set_new(variables, "enable_thinking", json_false());
    }
    if (o->effort) {
        json_object_set_new(variables, "reasoning_effort", json_string(o->effort));
    }
    char *text = json_dumps(variables, 0);
    json_decref(variables);
    return text;
}

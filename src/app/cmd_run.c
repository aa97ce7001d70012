/* cmd_run.c - slm run: one prompt, one streamed answer.
 *
 * The answer goes to standard output, everything about it to standard error.  An
 * interrupt ends the answer where it is; what was said stays and is accounted for. */
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/input.h"
#include "app/out.h"
#include "app/verbs.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/time.h"

/* Drafts of a step at most, as slm_drafting has it. */
enum { DRAFT_MAX = 16 };

struct run_opts {
    const char *model, *prompt, *system, *template_path, *effort, *kv, *pack, *memory;
    const char *draft, *mtp_model;
    int max_tokens, threads, context, top_k, penalty_window, draft_max, mtp_draft;
    float temperature, top_p, min_p, repeat, presence, frequency;
    uint64_t seed;
    bool raw, show_prompt, no_thinking, json, quiet, no_stream;
    struct opt_list stops;
    uint64_t memory_bytes;    /* of `memory` */
};

#define AT(field) offsetof(struct run_opts, field)

static const struct opt opts[] = {
    { "model", 'm', OPT_STR, AT(model), "FILE", "the model, a GGUF file", 0, 0 },
    { "prompt", 'p', OPT_STR, AT(prompt), "TEXT", "the prompt; - reads standard input", 0, 0 },
    { "system", 0, OPT_STR, AT(system), "TEXT", "system message", 0, 0 },
    { "max-tokens", 'n', OPT_INT, AT(max_tokens), "N",
      "longest answer in tokens (200); -1: to the end of the context", -1, INT_MAX },
    { "temperature", 't', OPT_FLOAT, AT(temperature), "X",
      "0: always the most likely token (the file's advice, else 0.6)", 0, 100 },
    { "top-k", 0, OPT_INT, AT(top_k), "N", "draw from the N most likely tokens; 0: off", 0,
      INT_MAX },
    { "top-p", 0, OPT_FLOAT, AT(top_p), "X",
      "draw from the fewest tokens of this probability; 1: off", 0, 1 },
    { "min-p", 0, OPT_FLOAT, AT(min_p), "X",
      "draw from tokens at least X times as likely as the best; 0: off", 0, 1 },
    { "repeat-penalty", 0, OPT_FLOAT, AT(repeat), "X",
      "divide the logits of recent tokens; 1: off", 0.01, 100 },
    { "presence-penalty", 0, OPT_FLOAT, AT(presence), "X",
      "subtract from the logits of recent tokens; 0: off", -100, 100 },
    { "frequency-penalty", 0, OPT_FLOAT, AT(frequency), "X",
      "the same, times how often they occur; 0: off", -100, 100 },
    { "penalty-window", 0, OPT_INT, AT(penalty_window), "N",
      "tokens that count as recent (64); -1: all", -1, INT_MAX },
    { "seed", 0, OPT_U64, AT(seed), "N", "the same seed gives the same answer (42)", 0, 0 },
    { "stop", 0, OPT_LIST, AT(stops), "TEXT", "end the answer before this text; repeatable", 0, 0 },
    { "context", 0, OPT_INT, AT(context), "N",
      "tokens of prompt and answer together (4096, or the model's maximum)", 1, INT_MAX },
    { "threads", 0, OPT_INT, AT(threads), "N", "threads; 0: as many as help (0)", 0, 1024 },
    { "kv-type", 0, OPT_CHOICE, AT(kv), "f16|q8_0|f32", "precision of keys and values (f16)", 0, 0 },
    { "pack", 0, OPT_CHOICE, AT(pack), "auto|off|wait",
      "rearrange weights for speed in the background, never, or first (auto)", 0, 0 },
    { "memory", 0, OPT_STR, AT(memory), "SIZE",
      "memory to use at most, 6G or 60%; weights beyond it are read for every token (all free)",
      0, 0 },
    { "no-stream", 0, OPT_FLAG, AT(no_stream), NULL,
      "map weights that do not fit, and leave it to the system which are in memory", 0, 0 },
    { "mtp-draft", 0, OPT_INT, AT(mtp_draft), "N",
      "draft up to N tokens per step with the model's draft block; 0: off (0)", 0, DRAFT_MAX },
    { "mtp-model", 0, OPT_STR, AT(mtp_model), "FILE", "the draft block is in this file", 0, 0 },
    { "draft", 0, OPT_STR, AT(draft), "ngram|FILE",
      "draft what followed the same tokens before, or with a smaller model", 0, 0 },
    { "draft-max", 0, OPT_INT, AT(draft_max), "N", "tokens that --draft drafts per step (3)", 1,
      DRAFT_MAX },
    { "raw", 0, OPT_FLAG, AT(raw), NULL,
      "no chat template: continue the prompt as it is, control tokens included", 0, 0 },
    { "template", 0, OPT_STR, AT(template_path), "FILE", "chat template to use, Jinja", 0, 0 },
    { "no-thinking", 0, OPT_FLAG, AT(no_thinking), NULL,
      "set the template's enable_thinking to false", 0, 0 },
    { "reasoning-effort", 0, OPT_CHOICE, AT(effort), "low|medium|xhigh",
      "set the template's reasoning_effort", 0, 0 },
    { "show-prompt", 0, OPT_FLAG, AT(show_prompt), NULL,
      "print the prompt as the model gets it in front of the answer", 0, 0 },
    { "json", 0, OPT_FLAG, AT(json), NULL,
      "print one JSON object: text, token counts, timings", 0, 0 },
    { "quiet", 0, OPT_FLAG, AT(quiet), NULL, "no statistics and no notes", 0, 0 },
    { NULL, 0, OPT_FLAG, 0, NULL, NULL, 0, 0 },
};

static const char more[] =
    "Without a prompt it is read from standard input, when that is not a terminal; one\n"
    "newline at its end is not part of it.  Ctrl-C ends the answer, with exit code 130.\n";

/* Everything that belongs to one run. */
struct run {
    struct run_opts o;
    slm_engine *engine;
    slm_model *model;
    slm_model *drafter;       /* where drafts come from another file */
    slm_drafting draft;
    slm_session *session;
    slm_sampler *sampler;
    slm_stream *stream;
    struct buf input;         /* the prompt, where it was read */
    struct buf template;      /* the template, where one was given */
    struct buf answer;        /* with --json */
    char *prompt_text;        /* as the model gets it */
    int32_t *ids;
    size_t n_ids;
    int context;
    slm_forecast forecast;
    const char *finish;       /* finish_reason */
    int n_out;
    double load_s, prompt_s, first_s, decode_s;
};

/* ---- interruption ------------------------------------------------------------------ */

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

/* The first interrupt ends the answer, a second one the program. */
static void catch_interrupt(void)
{
    struct sigaction a = { .sa_handler = on_interrupt,
                           .sa_flags = (int)(SA_RESETHAND | SA_RESTART) };

    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
}

static bool keep_going(void *arg, size_t done, size_t total)
{
    (void)arg;
    (void)done;
    (void)total;
    return !interrupted;
}

/* ---- what is asked ------------------------------------------------------------------- */

static bool has_empty(const struct opt_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        if (!*list->item[i]) {
            return true;
        }
    }
    return false;
}

static bool read_opts(struct run *r, int argc, char **argv, int *code)
{
    struct run_opts *o = &r->o;
    struct operands rest;
    int used = 0;

    *o = (struct run_opts){
        .max_tokens = 200, .seed = 42, .kv = "f16", .pack = "auto",
        .temperature = NAN, .top_k = -1, .top_p = NAN, .min_p = NAN, .repeat = NAN,
        .presence = NAN, .frequency = NAN, .penalty_window = INT_MIN,
    };
    if (!args_parse(&verb_run, argc, argv, o, &rest, code)) {
        return false;
    }
    if (!o->model && used < rest.n) {
        o->model = rest.item[used++];
    }
    if (!o->prompt && used < rest.n) {
        o->prompt = rest.item[used++];
    }
    if (!o->model) {
        *code = args_usage(&verb_run, "no model; give the path of a GGUF file");
    } else if (used < rest.n) {
        *code = args_usage(&verb_run, "one argument too many: \"%s\"", rest.item[used]);
    } else if (!o->prompt && isatty(STDIN_FILENO)) {
        *code = args_usage(&verb_run, "no prompt; give one as an argument or on standard input");
    } else if (o->raw && (o->system || o->template_path || o->no_thinking || o->effort)) {
        *code = args_usage(&verb_run, "--raw uses no template, so --system, --template, "
                                      "--no-thinking and --reasoning-effort do not go with it");
    } else if (o->memory && !input_memory(o->memory, &o->memory_bytes)) {
        *code = args_usage(&verb_run, "--memory needs a size like 6G, 900M or 60%%, not \"%s\"",
                           o->memory);
    } else if (o->memory && o->no_stream) {
        *code = args_usage(&verb_run, "--no-stream keeps no limit, so --memory does not go with it");
    } else if (o->mtp_draft > 0 && o->draft) {
        *code = args_usage(&verb_run, "--mtp-draft and --draft do not go together");
    } else if (o->mtp_model && o->mtp_draft == 0) {
        *code = args_usage(&verb_run, "--mtp-model needs --mtp-draft N");
    } else if (o->draft_max > 0 && !o->draft) {
        *code = args_usage(&verb_run, "--draft-max needs --draft");
    } else if (has_empty(&o->stops)) {
        *code = args_usage(&verb_run, "--stop needs a text that is not empty");
    } else {
        return true;
    }
    return false;
}

/* A prompt from standard input usually ends in a newline that nobody meant. */
static void drop_newline(struct buf *b)
{
    if (b->len > 0 && b->data[b->len - 1] == '\n') {
        b->data[--b->len] = '\0';
    }
    if (b->len > 0 && b->data[b->len - 1] == '\r') {
        b->data[--b->len] = '\0';
    }
}

/* Has all input read and checked before the model is opened, which takes longer. */
static bool read_input(struct run *r, slm_error *err)
{
    const struct run_opts *o = &r->o;

    if (o->template_path && !input_text(o->template_path, &r->template, err)) {
        return false;
    }
    for (size_t i = 0; i < o->stops.n; i++) {
        if (!input_check("the stop text", o->stops.item[i], strlen(o->stops.item[i]), err)) {
            return false;
        }
    }
    if (o->system && !input_check("the system message", o->system, strlen(o->system), err)) {
        return false;
    }
    if (!o->prompt || strcmp(o->prompt, "-") == 0) {
        if (!input_text("-", &r->input, err)) {
            return false;
        }
        drop_newline(&r->input);
        return true;
    }
    buf_puts(&r->input, o->prompt);
    return r->input.failed ? slm_fail_nomem(err, "the prompt")
                           : input_check("the prompt", o->prompt, strlen(o->prompt), err);
}

/* Says which template an error is about; false. */
static bool name_template(const struct run *r, slm_error *err)
{
    if (err->code == SLM_E_TEMPLATE) {
        slm_wrap(err, "%s", r->o.template_path ? r->o.template_path : r->o.model);
    }
    return false;
}

/* The model that drafts, where it is a file of its own; and how drafts are made. */
static bool open_drafter(struct run *r, slm_error *err)
{
    const struct run_opts *o = &r->o;
    const slm_model_params params = { .pack = input_pack(o->pack) };
    const bool ngram = o->draft && strcmp(o->draft, "ngram") == 0;
    const char *path = o->draft && !ngram ? o->draft : o->mtp_model;

    r->draft.kind = ngram ? SLM_DRAFT_NGRAM : o->draft ? SLM_DRAFT_MODEL
                  : o->mtp_draft > 0 ? SLM_DRAFT_MTP : SLM_DRAFT_OFF;
    r->draft.max = o->mtp_draft > 0 ? o->mtp_draft : o->draft_max;
    if (path) {
        r->drafter = slm_model_open(r->engine, path, &params, err);
        r->draft.model = r->drafter;
    }
    return !path || r->drafter;
}

static bool open_model(struct run *r, slm_error *err)
{
    const slm_engine_params engine = { .threads = r->o.threads };
    slm_session_params session = { .context = r->o.context, .kv = input_kv(r->o.kv) };
    const slm_model_params model = {
        .pack = input_pack(r->o.pack),
        .memory_bytes = r->o.memory_bytes,
        .no_stream = r->o.no_stream,
        .session = &session,
        .chat_template = r->o.template_path ? buf_str(&r->template) : NULL,
    };

    r->engine = slm_engine_new(&engine, err);
    if (!r->engine || !open_drafter(r, err)) {
        return false;
    }
    session.draft = r->draft;
    r->model = slm_model_open(r->engine, r->o.model, &model, err);
    return r->model || name_template(r, err);
}

/* ---- the prompt ------------------------------------------------------------------------ */

static bool raw_tokens(struct run *r, slm_error *err)
{
    slm_model_info info;

    if (!slm_tokenize(r->model, buf_str(&r->input), r->input.len, true, true, &r->ids, &r->n_ids,
                      err)) {
        return false;
    }
    slm_model_info_get(r->model, &info);
    if (r->n_ids > 1 && info.add_bos && r->ids[0] == info.bos && r->ids[1] == info.bos) {
        /* The text has its own beginning; two of them confuse a model. */
        memmove(r->ids, r->ids + 1, --r->n_ids * sizeof *r->ids);
    }
    r->prompt_text = mem_strndup(buf_str(&r->input), r->input.len);
    return r->prompt_text || slm_fail_nomem(err, "the prompt");
}

static json_t *message(const char *role, const char *text, size_t n)
{
    return json_pack("{s:s, s:o}", "role", role, "content", json_stringn(text, n));
}

static bool chat_tokens(struct run *r, slm_error *err)
{
    slm_model_info info;
    json_t *messages = json_array();
    json_t *variables = json_object();
    char *messages_text = NULL, *variables_text = NULL;
    bool ok = false;

    slm_model_info_get(r->model, &info);
    if (!info.has_template) {
        slm_fail(err, SLM_E_ARG, "%s: has no chat template; use --raw to continue the prompt as it "
                 "is, or --template FILE", r->o.model);
        goto done;
    }
    if (r->o.system) {
        json_array_append_new(messages, message("system", r->o.system, strlen(r->o.system)));
    }
    json_array_append_new(messages, message("user", buf_str(&r->input), r->input.len));
    if (r->o.no_thinking) {
        json_object_set_new(variables, "enable_thinking", json_false());
    }
    if (r->o.effort) {
        json_object_set_new(variables, "reasoning_effort", json_string(r->o.effort));
    }
    messages_text = json_dumps(messages, 0);
    variables_text = json_dumps(variables, 0);
    if (!messages_text || !variables_text) {
        slm_fail_nomem(err, "the prompt");
        goto done;
    }
    ok = slm_render_tokens(r->model, messages_text, NULL, variables_text, true, &r->ids, &r->n_ids,
                           &r->prompt_text, err) ||
         name_template(r, err);

done:
    free(messages_text);
    free(variables_text);
    json_decref(messages);
    json_decref(variables);
    return ok;
}

/* The prompt is never cut: one that leaves no room for an answer is refused. */
static bool check_prompt(struct run *r, slm_error *err)
{
    slm_model_info info;

    slm_model_info_get(r->model, &info);
    r->context = input_context(r->model, r->o.context);
    if (r->n_ids == 0) {
        return slm_fail(err, SLM_E_ARG, "the prompt is empty");
    }
    if (r->n_ids >= (size_t)r->context) {
        return slm_fail(err, SLM_E_CONTEXT,
                        "the prompt has %zu tokens and the context only %d: shorten the one or "
                        "enlarge the other with --context (the model knows up to %d)",
                        r->n_ids, r->context, info.context_max);
    }
    return true;
}

/* ---- the answer ------------------------------------------------------------------------ */

/* The file's advice, changed where options say so. */
static slm_sampling sampling(const struct run *r)
{
    const struct run_opts *o = &r->o;
    slm_sampling s;

    slm_sampling_default(r->model, &s);
    s.temperature = isnan(o->temperature) ? s.temperature : o->temperature;
    s.top_k = o->top_k < 0 ? s.top_k : o->top_k;
    s.top_p = isnan(o->top_p) ? s.top_p : o->top_p;
    s.min_p = isnan(o->min_p) ? s.min_p : o->min_p;
    s.repeat_penalty = isnan(o->repeat) ? s.repeat_penalty : o->repeat;
    s.presence_penalty = isnan(o->presence) ? s.presence_penalty : o->presence;
    s.frequency_penalty = isnan(o->frequency) ? s.frequency_penalty : o->frequency;
    s.penalty_window = o->penalty_window == INT_MIN ? s.penalty_window : o->penalty_window;
    s.seed = o->seed;
    return s;
}

static bool make_session(struct run *r, slm_error *err)
{
    const slm_session_params params = { .context = r->context, .kv = input_kv(r->o.kv),
                                        .draft = r->draft };
    const slm_sampling s = sampling(r);
    slm_model_info info;

    if (!slm_model_forecast(r->model, r->context, params.kv, &r->forecast, err)) {
        return false;
    }
    if (r->forecast.streamed_bytes > 0 && !r->o.no_stream) {
        char line[200];
        input_memory_line(&r->forecast, line, sizeof line);
        out_note("note: the weights do not fit into memory: %s", line);
    }
    r->session = slm_session_new(r->model, &params, err);
    if (!r->session) {
        return false;
    }
    slm_model_info_get(r->model, &info);
    if (r->context > info.context_max) {
        out_note("note: the model was trained for %d tokens; beyond that its answers get worse",
                 info.context_max);
    }
    slm_session_progress(r->session, keep_going, NULL);
    r->sampler = slm_sampler_new(r->model, &s, err);
    r->stream = r->sampler ? slm_stream_new(r->model, r->o.stops.item, r->o.stops.n, err) : NULL;
    return r->stream != NULL;
}

/* Text of the answer goes to the reader at once, or into the JSON object later. */
static bool emit(struct run *r, const char *text, size_t n)
{
    if (r->o.json) {
        buf_add(&r->answer, text, n);
        return true;
    }
    out_write(text, n);
    return n == 0 || out_flush();
}

/* Adds a token to the answer.  *done turns true where that ends it; r->finish says how. */
static bool take_token(struct run *r, int32_t id, bool *done, slm_error *err)
{
    const char *text;
    size_t n;
    bool stopped;

    *done = true;
    if (slm_is_end(r->model, id)) {
        r->finish = "stop";
        return true;
    }
    r->n_out++;
    if (!slm_stream_push(r->stream, id, &text, &n, &stopped, err)) {
        return false;
    }
    if (!emit(r, text, n)) {
        r->finish = "closed";
        return true;
    }
    if (r->first_s == 0) {
        r->first_s = time_now();
    }
    if (stopped) {
        r->finish = "stop";
        return true;
    }
    *done = false;
    return true;
}

/* Feeds the token that was just taken; with drafts it is drawn again, to the same result, and
 * tokens that come with it are taken too. */
static bool advance(struct run *r, int32_t id, int n_max, bool *done, slm_error *err)
{
    int32_t ids[1 + DRAFT_MAX];
    const int left = n_max - r->n_out;
    size_t n;

    if (r->draft.kind == SLM_DRAFT_OFF) {
        return slm_session_feed(r->session, &id, 1, err);
    }
    if (!slm_decode(r->session, r->sampler, ids, left < DRAFT_MAX ? 1 + (size_t)left : 1 + DRAFT_MAX,
                    &n, err)) {
        return false;
    }
    for (size_t i = 1; i < n && !*done; i++) {
        if (!take_token(r, ids[i], done, err)) {
            return false;
        }
    }
    return true;
}

/* Tokens until something ends the answer; r->finish says what.  Each is shown before the step that
 * it is fed in, and the last one is not fed. */
static bool decode(struct run *r, slm_error *err)
{
    const int room = r->context - (int)r->n_ids;
    const bool cut = r->o.max_tokens < 0 || r->o.max_tokens > room;
    const int n_max = cut ? room : r->o.max_tokens;
    bool done = false;

    r->finish = "length";
    while (!done && r->n_out < n_max) {
        int32_t id;

        if (interrupted) {
            r->finish = "interrupted";
            return true;
        }
        if (!slm_sample(r->sampler, r->session, &id, err) || !take_token(r, id, &done, err)) {
            return false;
        }
        if (!done && r->n_out < n_max && !advance(r, id, n_max, &done, err)) {
            return false;
        }
    }
    if (cut && !done) {
        out_note("note: the context of %d tokens is full; --context makes it larger", r->context);
    }
    return true;
}

/* Prompt, answer and what is held back of it.  An interrupt is no error. */
static bool generate(struct run *r, slm_error *err)
{
    const char *text;
    size_t n;

    if (r->o.show_prompt && !r->o.json) {
        out_write(r->prompt_text, strlen(r->prompt_text));
        out_flush();
    }
    const double begin = time_now();
    const bool fed = slm_session_feed(r->session, r->ids, r->n_ids, err);
    r->prompt_s = time_now() - begin;
    if (!fed) {
        if (err->code != SLM_E_CANCELLED) {
            return false;
        }
        r->finish = "interrupted";
        return true;
    }
    if (!decode(r, err) || !slm_stream_finish(r->stream, &text, &n, err)) {
        return false;
    }
    emit(r, text, n);
    if (!r->o.json) {
        out_write("\n", 1);
    }
    return true;
}

/* ---- what it took ------------------------------------------------------------------------ */

struct stats {
    double prompt_rate, decode_rate, per_token_s;
    int threads;
    char why[160];
    uint64_t peak_bytes;
    slm_draft_stats draft;
    double per_step;      /* tokens */
};

static double rate(double n, double s)
{
    return n > 0 && s > 0 ? n / s : 0;
}

static struct stats collect(const struct run *r)
{
    struct stats s = { .threads = slm_engine_threads(r->engine),
                       .peak_bytes = cpu_peak_rss_bytes() };
    slm_machine machine;

    s.prompt_rate = rate((double)r->n_ids, r->prompt_s);
    s.decode_rate = rate(r->n_out - 1, r->decode_s);
    s.per_token_s = s.decode_rate > 0 ? 1 / s.decode_rate : 0;
    slm_session_draft_stats(r->session, &s.draft);
    s.per_step = s.draft.steps > 0 ? (double)s.draft.tokens / (double)s.draft.steps : 0;
    if (r->o.threads > 0) {
        snprintf(s.why, sizeof s.why, "set by --threads");
    } else if (slm_machine_get(&machine, NULL)) {
        snprintf(s.why, sizeof s.why, "%s", machine.cores_why);
    }
    return s;
}

static void print_stats(const struct run *r)
{
    const struct stats s = collect(r);
    char memory[200];

    input_memory_line(&r->forecast, memory, sizeof memory);
    fprintf(stderr,
            "\n"
            "prompt tokens          %zu\n"
            "output tokens          %d (%s)\n"
            "threads                %d (%s)\n"
            "load time              %.3f s\n"
            "time to first token    %.3f s\n"
            "time per output token  %.2f ms\n"
            "prompt speed           %.1f tok/s\n"
            "decode speed           %.1f tok/s\n"
            "memory                 %s\n"
            "peak RAM               %s\n",
            r->n_ids, r->n_out, r->finish, s.threads, s.why, r->load_s, r->first_s,
            s.per_token_s * 1e3, s.prompt_rate, s.decode_rate, memory,
            out_bytes(s.peak_bytes));
    if (r->draft.kind != SLM_DRAFT_OFF) {
        fprintf(stderr, "drafts accepted        %llu of %llu, %.2f tokens per step, %llu steps "
                "paused\n", (unsigned long long)s.draft.accepted,
                (unsigned long long)s.draft.drafted, s.per_step,
                (unsigned long long)s.draft.paused);
    }
}

static void print_json(const struct run *r)
{
    const struct stats s = collect(r);
    json_t *o = json_pack(
        "{s:s, s:o, s:I, s:i, s:s, s:i, s:s, s:{s:f, s:f, s:f, s:f, s:f}, s:I}", "model",
        r->o.model, "text", out_json_text(buf_str(&r->answer), r->answer.len), "prompt_tokens",
        (json_int_t)r->n_ids, "output_tokens", r->n_out, "finish_reason", r->finish, "threads",
        s.threads, "threads_why", s.why, "timings", "load_s", r->load_s, "first_token_s",
        r->first_s, "per_token_s", s.per_token_s, "prompt_tokens_per_s", s.prompt_rate,
        "decode_tokens_per_s", s.decode_rate, "peak_ram_bytes", (json_int_t)s.peak_bytes);

    if (o && r->draft.kind != SLM_DRAFT_OFF) {
        json_object_set_new(o, "drafts", json_pack(
            "{s:I, s:I, s:f, s:I}", "drafted", (json_int_t)s.draft.drafted, "accepted",
            (json_int_t)s.draft.accepted, "tokens_per_step", s.per_step, "steps_paused",
            (json_int_t)s.draft.paused));
    }
    if (o && r->o.show_prompt) {
        json_object_set_new(o, "prompt", out_json_text(r->prompt_text, strlen(r->prompt_text)));
    }
    out_json(o, false);
}

/* ---- the verb ----------------------------------------------------------------------------- */

static bool run(struct run *r, slm_error *err)
{
    const double begin = time_now();
    if (!open_model(r, err)) {
        return false;
    }
    const double opened = time_now();
    if (!(r->o.raw ? raw_tokens(r, err) : chat_tokens(r, err)) || !check_prompt(r, err)) {
        return false;
    }
    const double tokenized = time_now();
    if (!make_session(r, err)) {
        return false;
    }
    const double ready = time_now();
    catch_interrupt();
    if (!generate(r, err)) {
        return false;
    }
    const double end = time_now();
    r->load_s = opened - begin + (ready - tokenized);
    r->decode_s = r->first_s > 0 ? end - r->first_s : 0;
    /* Making tokens of the text is part of the way to the first one. */
    r->first_s = (r->first_s > 0 ? r->first_s : end) - ready + (tokenized - opened);
    return true;
}

static void run_deinit(struct run *r)
{
    slm_stream_free(r->stream);
    slm_sampler_free(r->sampler);
    slm_session_free(r->session);
    slm_model_free(r->drafter);
    slm_free(r->ids);
    slm_free(r->prompt_text);
    slm_model_free(r->model);
    slm_engine_free(r->engine);
    buf_deinit(&r->input);
    buf_deinit(&r->template);
    buf_deinit(&r->answer);
}

static int cmd_run(int argc, char **argv)
{
    struct run r = {0};
    slm_error err = {0};
    int code;

    if (!read_opts(&r, argc, argv, &code)) {
        return code;
    }
    out_set_quiet(r.o.quiet);
    const bool read = read_input(&r, &err);
    if (read && !r.o.prompt && r.input.len == 0) {
        code = args_usage(&verb_run, "no prompt; standard input is empty");
    } else if (!read || !run(&r, &err)) {
        out_flush();
        code = out_fail(&err);
    } else {
        code = strcmp(r.finish, "interrupted") == 0 ? 130 : 0;
        if (r.o.json) {
            print_json(&r);
        }
        code = out_finish(code);
        if (!r.o.json && !r.o.quiet && strcmp(r.finish, "closed") != 0) {
            print_stats(&r);
        }
    }
    run_deinit(&r);
    return code;
}

const struct verb verb_run = {
    .name = "run",
    .operands = "MODEL [PROMPT]",
    .summary = "answer a prompt",
    .more = more,
    .opts = opts,
    .run = cmd_run,
};

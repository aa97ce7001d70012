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

#include "app/gen_opts.h"
#include "app/guided.h"
#include "app/input.h"
#include "app/out.h"
#include "app/verbs.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/time.h"

struct run_opts {
    const char *model, *prompt;
    bool raw, json, quiet;
    struct gen_opts gen;
    struct guided guided;
};

#define AT(field) offsetof(struct run_opts, field)

static const struct opt opts[] = {
    { "model", 'm', OPT_STR, AT(model), "MODEL", "the model: a file or a name (" GEN_MODEL ")", 0,
      0 },
    { "prompt", 'p', OPT_STR, AT(prompt), "TEXT", "the prompt; - reads standard input", 0, 0 },
    { "raw", 0, OPT_FLAG, AT(raw), NULL,
      "no chat template: continue the prompt as it is, control tokens included", 0, 0 },
    { "json", 0, OPT_FLAG, AT(json), NULL,
      "print one JSON object: text, token counts, timings", 0, 0 },
    { "quiet", 0, OPT_FLAG, AT(quiet), NULL, "no statistics and no notes", 0, 0 },
    { NULL, 0, OPT_FLAG, 0, NULL, NULL, 0, 0 },
};

static const struct opt_group groups[] = {
    GEN_GROUPS(AT(gen)),
    { "form of the answer", guided_opts, AT(guided) },
    { NULL, NULL, 0 },
};

/* What is asked where nothing is said. */
static const char PROMPT[] = "Explain in three sentences why the sky is blue.";

static const char more[] =
    "Without a prompt it is read from standard input, when that is not a terminal; one\n"
    "newline at its end is not part of it.  Where nothing is there either, an example is\n"
    "asked.  Ctrl-C ends the answer, with exit code 130.\n";

/* Everything that belongs to one run. */
struct run {
    struct run_opts o;
    struct gen gen;
    slm_session *session;
    slm_guide *guide;         /* NULL: any answer */
    slm_sampler *sampler;
    slm_stream *stream;
    struct buf input;         /* the prompt, where it was read */
    struct buf template;      /* the template, where one was given */
    struct buf answer;        /* with --json */
    char *prompt_text;        /* as the model gets it */
    int32_t *ids;
    size_t n_ids;
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

static bool read_opts(struct run *r, int argc, char **argv, int *code)
{
    struct run_opts *o = &r->o;
    struct operands rest;
    int used = 0;

    gen_init(&o->gen);
    if (!args_parse(&verb_run, argc, argv, o, &rest, code)) {
        return false;
    }
    if (!o->model && used < rest.n) {
        o->model = rest.item[used++];
    }
    if (!o->prompt && used < rest.n) {
        o->prompt = rest.item[used++];
    }
    o->model = o->model ? o->model : GEN_MODEL;
    if (used < rest.n) {
        *code = args_usage(&verb_run, "one argument too many: \"%s\"", rest.item[used]);
        return false;
    }
    if (o->raw && (o->gen.system || o->gen.template_path || o->gen.no_thinking || o->gen.effort)) {
        *code = args_usage(&verb_run, "--raw uses no template, so --system, --template, "
                                      "--no-thinking and --reasoning-effort do not go with it");
        return false;
    }
    if (guided_count(&o->guided) > 1) {
        *code = args_usage(&verb_run, "only one of --schema, --grammar, --regex and --choices can "
                                      "say what the answer is");
        return false;
    }
    return gen_check(&verb_run, &o->gen, code);
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

    if (!gen_read(&o->gen, &r->template, err)) {
        return false;
    }
    const bool read = o->prompt ? strcmp(o->prompt, "-") == 0 : !isatty(STDIN_FILENO);
    if (read) {
        if (!input_text("-", &r->input, err)) {
            return false;
        }
        drop_newline(&r->input);
    }
    if (!o->prompt && r->input.len == 0) {
        out_note("no prompt; asking: %s", PROMPT);
        buf_puts(&r->input, PROMPT);
    }
    if (read || !o->prompt) {
        return true;
    }
    buf_puts(&r->input, o->prompt);
    return r->input.failed ? slm_fail_nomem(err, "the prompt")
                           : input_check("the prompt", o->prompt, strlen(o->prompt), err);
}

/* ---- the prompt ------------------------------------------------------------------------ */

static bool raw_tokens(struct run *r, slm_error *err)
{
    slm_model_info info;

    if (!slm_tokenize(r->gen.model, buf_str(&r->input), r->input.len, true, true, &r->ids,
                      &r->n_ids, err)) {
        return false;
    }
    slm_model_info_get(r->gen.model, &info);
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
    char *messages_text = NULL, *variables_text = gen_variables(&r->o.gen);
    bool ok = false;

    slm_model_info_get(r->gen.model, &info);
    if (!info.has_template) {
        slm_fail(err, SLM_E_ARG, "%s: has no chat template; use --raw to continue the prompt as it "
                 "is, or --template FILE", r->o.model);
        goto done;
    }
    if (r->o.gen.system) {
        const char *system = r->o.gen.system;
        json_array_append_new(messages, message("system", system, strlen(system)));
    }
    json_array_append_new(messages, message("user", buf_str(&r->input), r->input.len));
    messages_text = json_dumps(messages, 0);
    if (!messages_text || !variables_text) {
        slm_fail_nomem(err, "the prompt");
        goto done;
    }
    ok = slm_render_tokens(r->gen.model, messages_text, NULL, variables_text, true, &r->ids,
                           &r->n_ids, &r->prompt_text, err) ||
         gen_name_template(&r->o.gen, r->o.model, err);

done:
    free(messages_text);
    free(variables_text);
    json_decref(messages);
    return ok;
}

/* The prompt is never cut: one that leaves no room for an answer is refused. */
static bool check_prompt(struct run *r, slm_error *err)
{
    slm_model_info info;

    slm_model_info_get(r->gen.model, &info);
    if (r->n_ids == 0) {
        return slm_fail(err, SLM_E_ARG, "the prompt is empty");
    }
    if (r->n_ids >= (size_t)r->gen.context) {
        return slm_fail(err, SLM_E_CONTEXT,
                        "the prompt has %zu tokens and the context only %d: shorten the one or "
                        "enlarge the other with --context (the model knows up to %d)",
                        r->n_ids, r->gen.context, info.context_max);
    }
    return true;
}

/* ---- the answer ------------------------------------------------------------------------ */

static bool make_session(struct run *r, slm_error *err)
{
    const slm_sampling s = gen_sampling(&r->o.gen, r->gen.model);

    r->session = gen_session(&r->gen, &r->o.gen, err);
    if (!r->session) {
        return false;
    }
    slm_session_progress(r->session, keep_going, NULL);
    r->sampler = slm_sampler_new(r->gen.model, &s, err);
    if (r->sampler && (!r->guide || slm_sampler_guide(r->sampler, r->guide, r->n_ids, err))) {
        r->stream = slm_stream_new(r->gen.model, r->o.gen.stops.item, r->o.gen.stops.n, err);
    }
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
    if (slm_is_end(r->gen.model, id)) {
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
    int32_t ids[1 + GEN_DRAFT_MAX];
    const int left = n_max - r->n_out;
    size_t n;

    if (r->gen.draft.kind == SLM_DRAFT_OFF) {
        return slm_session_feed(r->session, &id, 1, err);
    }
    const size_t cap = 1 + (size_t)(left < GEN_DRAFT_MAX ? left : GEN_DRAFT_MAX);
    if (!slm_decode(r->session, r->sampler, ids, cap, &n, err)) {
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
    const int room = r->gen.context - (int)r->n_ids;
    const bool cut = r->o.gen.max_tokens < 0 || r->o.gen.max_tokens > room;
    const int n_max = cut ? room : r->o.gen.max_tokens;
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
        out_note("note: the context of %d tokens is full; --context makes it larger",
                 r->gen.context);
    }
    return true;
}

/* Prompt, answer and what is held back of it.  An interrupt is no error. */
static bool generate(struct run *r, slm_error *err)
{
    const char *text;
    size_t n;

    if (r->o.gen.show_prompt && !r->o.json) {
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
    struct stats s = { .threads = slm_engine_threads(r->gen.engine),
                       .peak_bytes = cpu_peak_rss_bytes() };
    slm_machine machine;

    s.prompt_rate = rate((double)r->n_ids, r->prompt_s);
    s.decode_rate = rate(r->n_out - 1, r->decode_s);
    s.per_token_s = s.decode_rate > 0 ? 1 / s.decode_rate : 0;
    slm_session_draft_stats(r->session, &s.draft);
    s.per_step = s.draft.steps > 0 ? (double)s.draft.tokens / (double)s.draft.steps : 0;
    if (r->o.gen.threads > 0) {
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

    input_memory_line(&r->gen.forecast, memory, sizeof memory);
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
    if (r->gen.draft.kind != SLM_DRAFT_OFF) {
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

    if (o && r->gen.draft.kind != SLM_DRAFT_OFF) {
        json_object_set_new(o, "drafts", json_pack(
            "{s:I, s:I, s:f, s:I}", "drafted", (json_int_t)s.draft.drafted, "accepted",
            (json_int_t)s.draft.accepted, "tokens_per_step", s.per_step, "steps_paused",
            (json_int_t)s.draft.paused));
    }
    if (o && r->o.gen.show_prompt) {
        json_object_set_new(o, "prompt", out_json_text(r->prompt_text, strlen(r->prompt_text)));
    }
    out_json(o, false);
}

/* ---- the verb ----------------------------------------------------------------------------- */

static bool run(struct run *r, slm_error *err)
{
    const double begin = time_now();
    if (!gen_open(&r->gen, &r->o.gen, r->o.model, &r->template, err)) {
        return false;
    }
    if (guided_count(&r->o.guided) > 0) {
        r->guide = guided_new(r->gen.model, &r->o.guided, err);
        if (!r->guide) {
            return false;
        }
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
    slm_guide_free(r->guide);
    slm_session_free(r->session);
    slm_free(r->ids);
    slm_free(r->prompt_text);
    gen_close(&r->gen);
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
    if (!read || !run(&r, &err)) {
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
    .operands = "[MODEL [PROMPT]]",
    .summary = "answer a prompt",
    .more = more,
    .opts = opts,
    .groups = groups,
    .run = cmd_run,
};

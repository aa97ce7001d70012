/* gen.c - runs the choices of a request and hands their pieces to the interface. */
#include "server/gen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/utf8.h"

/* A comment goes out when nothing else has for so long, so that proxies keep the connection; and
 * often where the client has closed its direction, to learn whether it still reads. */
enum { KEEP_ALIVE_MS = 15000, PROBE_MS = 100 };

/* ---- prompts ------------------------------------------------------------------------------- */

static bool render_once(struct request *r, json_t *messages, int32_t **ids, size_t *n, char **text,
                        struct fault *fault)
{
    char *messages_text = json_dumps(messages, JSON_COMPACT);
    char *tools = r->tools && strcmp(r->tool_choice, "none") != 0 ? json_dumps(r->tools, 0) : NULL;
    char *variables = json_dumps(r->variables, JSON_COMPACT);
    slm_error err = {0};
    bool ok = messages_text && variables;

    if (!ok) {
        fault_no_memory(fault);
    } else if (!slm_render_tokens(r->model, messages_text, tools, variables, true, ids, n, text,
                                  &err)) {
        ok = fault_from(fault, &err, "messages");
    }
    free(messages_text);
    free(tools);
    free(variables);
    return ok;
}

static bool has_role(json_t *message, const char *role)
{
    const char *is = json_string_value(json_object_get(message, "role"));

    return is && strcmp(is, role) == 0;
}

/* The messages without the turns before the k-th user message; leading system messages stay. */
static json_t *without_turns(json_t *messages, size_t k)
{
    json_t *out = json_array(), *message;
    size_t i, users = 0;
    bool head = true;

    json_array_foreach(messages, i, message) {
        head = head && has_role(message, "system");
        users += has_role(message, "user");
        if (head || users > k) {
            json_array_append(out, message);
        }
    }
    return out;
}

static size_t count_users(json_t *messages)
{
    json_t *message;
    size_t i, n = 0;

    json_array_foreach(messages, i, message) {
        n += has_role(message, "user");
    }
    return n;
}

bool gen_render(struct request *r, size_t limit, int32_t **ids, size_t *n, char **text,
                struct fault *fault)
{
    if (!render_once(r, r->messages, ids, n, text, fault) || !r->truncate || *n <= limit) {
        return fault->status == 0;
    }
    /* The fewest turns that must go: by halving, since a prompt shrinks with every turn.  The last
     * one stays. */
    const size_t users = count_users(r->messages);
    size_t lo = 1, hi = users > 0 ? users - 1 : 0;
    while (lo <= hi) {
        const size_t k = lo < hi ? lo + (hi - lo) / 2 : hi;
        json_t *fewer = without_turns(r->messages, k);
        slm_free(*ids);
        *ids = NULL;
        if (text) {
            slm_free(*text);
            *text = NULL;
        }
        const bool ok = fewer && render_once(r, fewer, ids, n, text, fault);
        json_decref(fewer);
        if (!ok) {
            return fault->status ? false : fault_no_memory(fault);
        }
        if (lo == hi) {
            break;
        }
        if (*n <= limit) {
            hi = k;
        } else {
            lo = k + 1;
        }
    }
    return true;
}

static bool add_prompt(struct gen *g, int32_t *ids, size_t n)
{
    g->prompts[g->n_prompts] = ids;
    g->n_prompt_ids[g->n_prompts++] = n;
    return true;
}

static bool chat_prompt(struct gen *g)
{
    int32_t *ids = NULL;
    size_t n;

    return gen_render(&g->r, (size_t)served_context(g->r.served) - 1, &ids, &n, &g->prompt_text,
                      &g->fault) &&
           add_prompt(g, ids, n);
}

/* An array of token ids. */
static bool ids_prompt(struct gen *g, json_t *array)
{
    slm_model_info info;
    const size_t n = json_array_size(array);
    json_t *id;
    size_t i;

    slm_model_info_get(g->r.model, &info);
    int32_t *ids = mem_alloc(n, sizeof *ids);
    if (!ids) {
        return fault_no_memory(&g->fault);
    }
    json_array_foreach(array, i, id) {
        const json_int_t v = json_integer_value(id);
        if (!json_is_integer(id) || v < 0 || v >= info.n_vocab) {
            mem_free(ids);
            return fault_set(&g->fault, 400, "prompt", "prompt: tokens must be integers from 0 to "
                             "%d", info.n_vocab - 1);
        }
        ids[i] = (int32_t)v;
    }
    return add_prompt(g, ids, n);
}

static bool text_prompt(struct gen *g, json_t *text)
{
    int32_t *ids;
    size_t n;
    slm_error err = {0};

    if (!slm_tokenize(g->r.model, json_string_value(text), json_string_length(text), true, true,
                      &ids, &n, &err)) {
        return fault_from(&g->fault, &err, "prompt");
    }
    return add_prompt(g, ids, n);
}

static bool one_prompt(struct gen *g, json_t *p)
{
    if (json_is_string(p) && json_string_length(p) > 0) {
        return text_prompt(g, p);
    }
    if (json_is_array(p) && json_array_size(p) > 0 && json_is_number(json_array_get(p, 0))) {
        return ids_prompt(g, p);
    }
    return fault_set(&g->fault, 400, "prompt", "prompt must be a text that is not empty, an array "
                     "of token ids, or an array of such prompts");
}

static bool completion_prompts(struct gen *g)
{
    json_t *p = g->r.prompt, *item;
    size_t i;

    if (!json_is_array(p) || json_array_size(p) == 0 || json_is_number(json_array_get(p, 0))) {
        return one_prompt(g, p);
    }
    json_array_foreach(p, i, item) {
        if (!one_prompt(g, item)) {
            return false;
        }
    }
    return true;
}

static bool make_prompts(struct gen *g)
{
    const size_t n = g->r.prompt && json_is_array(g->r.prompt) ? json_array_size(g->r.prompt) : 1;
    const int context = served_context(g->r.served);

    if ((n > 1 && !json_is_number(json_array_get(g->r.prompt, 0)) ? n : 1) * (size_t)g->r.n >
        (size_t)http_shared(g->http)->n_choices_max) {
        return fault_set(&g->fault, 400, g->r.n > 1 ? "n" : "prompt",
                         "at most %d answers can be had from one request",
                         http_shared(g->http)->n_choices_max);
    }
    g->prompts = mem_zalloc(n + 1, sizeof *g->prompts);
    g->n_prompt_ids = mem_zalloc(n + 1, sizeof *g->n_prompt_ids);
    if (!g->prompts || !g->n_prompt_ids) {
        return fault_no_memory(&g->fault);
    }
    if (!(g->r.messages ? chat_prompt(g) : completion_prompts(g))) {
        return false;
    }
    for (int i = 0; i < g->n_prompts; i++) {
        if (g->n_prompt_ids[i] == 0) {
            return fault_set(&g->fault, 400, "prompt", "the prompt is empty");
        }
        if (g->n_prompt_ids[i] >= (size_t)context) {
            fault_set(&g->fault, 400, g->r.messages ? "messages" : "prompt",
                      "the prompt has %zu tokens and the context only %d, which must also hold the "
                      "answer", g->n_prompt_ids[i], context);
            g->fault.code = "context_length_exceeded";
            return false;
        }
    }
    return true;
}

/* ---- guides -------------------------------------------------------------------------------- */

static bool schema_guide(struct gen *g, slm_guide_kind kind, json_t *schema)
{
    slm_error err = {0};
    char *text = schema ? json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;

    if (schema && !text) {
        return fault_no_memory(&g->fault);
    }
    g->guide = slm_guide_new(g->r.model, kind, text, text ? strlen(text) : 0, &err);
    free(text);
    return g->guide || fault_from(&g->fault, &err, "response_format");
}

static bool tools_guide(struct gen *g)
{
    slm_error err = {0};
    char *text = json_dumps(g->r.tools, JSON_COMPACT);

    if (!text) {
        return fault_no_memory(&g->fault);
    }
    g->guide = slm_guide_tools(g->r.model, text, g->r.tool_choice, g->r.parallel_tools, &err);
    free(text);
    /* Calls that the model is free to make need no guide where there is none for its form. */
    return g->guide || strcmp(g->r.tool_choice, "auto") == 0 ||
           fault_from(&g->fault, &err, "tools");
}

static bool make_guide(struct gen *g)
{
    const bool tools = g->r.tools && strcmp(g->r.tool_choice, "none") != 0;

    if ((g->r.schema || g->r.any_object) && tools) {
        return fault_set(&g->fault, 400, "response_format", "response_format does not go with "
                         "tools, except with tool_choice \"none\"");
    }
    if (g->r.schema) {
        return schema_guide(g, SLM_GUIDE_SCHEMA, g->r.schema);
    }
    if (g->r.any_object) {
        return schema_guide(g, SLM_GUIDE_JSON, NULL);
    }
    return !tools || tools_guide(g);
}

/* ---- pieces of an answer ------------------------------------------------------------------- */

static struct gen_call *call_at(struct gen_choice *c, int index)
{
    if (index < c->n_calls) {
        return &c->calls[index];
    }
    struct gen_call *calls = mem_realloc(c->calls, (size_t)c->n_calls + 1, sizeof *calls);
    if (!calls) {
        return NULL;
    }
    c->calls = calls;
    struct gen_call *call = &calls[c->n_calls++];
    memset(call, 0, sizeof *call);
    snprintf(call->id, sizeof call->id, "call_%.12s%02d%02d", c->gen->id + strlen(c->gen->id) - 12,
             c->index % 100, index % 100);
    buf_init(&call->name, 0);
    buf_init(&call->arguments, 0);
    return call;
}

static bool on_part(void *arg, slm_part part, int index, const char *text, size_t n)
{
    struct gen_choice *c = arg;
    struct gen *g = c->gen;
    struct gen_call *call = part >= SLM_PART_TOOL ? call_at(c, index) : NULL;

    if (part >= SLM_PART_TOOL && !call) {
        return fault_no_memory(&g->fault);
    }
    switch (part) {
    case SLM_PART_CONTENT:
        buf_add(&c->content, text, n);
        break;
    case SLM_PART_REASONING:
        buf_add(&c->reasoning, text, n);
        break;
    case SLM_PART_TOOL:
        buf_add(&call->name, text, n);
        metrics_add(&http_shared(g->http)->metrics->tool_calls, 1);
        break;
    case SLM_PART_ARGUMENTS:
        buf_add(&call->arguments, text, n);
        break;
    case SLM_PART_TOOL_END:
        call->complete = true;
        break;
    }
    if (g->streaming && g->out) {
        g->interface->part(g, c, part, index, text, n, g->out);
    }
    return true;
}

static bool push_text(struct gen_choice *c, const char *text, size_t n, slm_error *err)
{
    if (n == 0) {
        return true;
    }
    const size_t before = c->reasoning.len;
    const bool ok = c->answer ? slm_answer_push(c->answer, text, n, err)
                              : on_part(c, SLM_PART_CONTENT, 0, text, n);
    c->n_reasoning += c->reasoning.len > before;
    return ok;
}

static bool finish_text(struct gen_choice *c, slm_error *err)
{
    const char *text;
    size_t n;

    return (c->stopped || (slm_stream_finish(c->stream, &text, &n, err) &&
                           push_text(c, text, n, err))) &&
           (!c->answer || slm_answer_finish(c->answer, err));
}

/* ---- events -------------------------------------------------------------------------------- */

static void fail_choice(struct gen *g, const slm_error *err)
{
    if (g->fault.status == 0) {
        fault_from(&g->fault, err, NULL);
    }
}

/* Which stop text ended a choice: the one that occurs first. */
static const char *stop_text(const struct gen_choice *c)
{
    const struct request *r = &c->gen->r;
    const char *raw = buf_str(&c->raw), *best = NULL, *at = NULL;

    if (r->n_stops == 1) {
        return r->stops[0];
    }
    for (size_t i = 0; i < r->n_stops; i++) {
        const char *found = strstr(raw, r->stops[i]);
        if (found && (!at || found < at)) {
            at = found;
            best = r->stops[i];
        }
    }
    return best;
}

static void on_token(struct gen *g, struct gen_choice *c, const struct job_event *ev)
{
    const char *text;
    size_t n;
    slm_error err = {0};
    bool stopped;

    if (c->stopped) {
        return;  /* computed before the engine heard of it */
    }
    c->n_out = ev->n_out;
    c->n_prompt = ev->n_prompt;
    c->n_cached = ev->n_cached;
    if (slm_is_end(g->r.model, ev->id)) {
        return;  /* no text of its own */
    }
    if (g->r.logprobs) {
        json_array_append_new(c->logprobs, g->interface->logprob(g, ev));
    }
    if (!slm_stream_push(c->stream, ev->id, &text, &n, &stopped, &err) ||
        !push_text(c, text, n, &err)) {
        fail_choice(g, &err);
        stopped = true;
    }
    if (g->r.n_stops > 1) {
        const char *piece = slm_piece(g->r.model, ev->id, true, &n);
        buf_add(&c->raw, piece, n);
    }
    if (stopped) {
        c->stopped = true;
        c->finish = "stop";
        c->stop = stop_text(c);
        engine_cancel(g->engine, &c->job);
    }
}

/* Forgets calls that broke off, whose text has come out as content. */
static void drop_broken_calls(struct gen_choice *c)
{
    int n = 0;

    for (int i = 0; i < c->n_calls; i++) {
        struct gen_call *call = &c->calls[i];
        if (call->complete) {
            c->calls[n++] = *call;
        } else {
            buf_deinit(&call->name);
            buf_deinit(&call->arguments);
        }
    }
    c->n_calls = n;
}

static const char *finish_name(const struct gen_choice *c, slm_finish finish)
{
    if (c->finish) {
        return c->finish;  /* a stop text */
    }
    if (c->n_calls > 0 && finish == SLM_FINISH_END) {
        return "tool_calls";
    }
    return finish == SLM_FINISH_LENGTH ? "length" : "stop";
}

static void on_end(struct gen *g, struct gen_choice *c, const struct job_event *ev)
{
    slm_error err = {0};

    c->ended = true;
    g->n_open--;
    if (!c->stopped) {
        c->n_prompt = ev->n_prompt;
        c->n_cached = ev->n_cached;
        c->n_out = ev->n_out;
    }
    if (ev->finish == SLM_FINISH_ERROR) {
        fail_choice(g, &ev->error);
        return;
    }
    if (g->fault.status == 0 && !finish_text(c, &err)) {
        fail_choice(g, &err);
        return;
    }
    drop_broken_calls(c);
    c->finish = finish_name(c, ev->finish);
    if (g->streaming && g->out && g->fault.status == 0) {
        g->interface->end_choice(g, c, g->out);
    }
}

/* Deals with all events that are there. */
static void take_events(struct gen *g)
{
    struct job_event *ev;

    while (g->n_open > 0 && (ev = inbox_take(&g->inbox))) {
        struct gen_choice *c = &g->choices[ev->choice];
        if (ev->kind == JOB_TOKEN) {
            on_token(g, c, ev);
        } else {
            on_end(g, c, ev);
        }
        mem_free(ev);
        if (g->streaming && g->out && g->out->len > 0) {
            return;  /* let it leave; the descriptor stays readable until all are taken */
        }
    }
}

/* Ends what still runs and waits for it, which takes a step. */
static void cancel_all(struct gen *g)
{
    for (int i = 0; i < g->n_choices; i++) {
        if (g->n_open > 0 && !g->choices[i].ended) {
            engine_cancel(g->engine, &g->choices[i].job);
        }
    }
    g->out = NULL;
    while (g->n_open > 0) {
        struct job_event *ev = inbox_take(&g->inbox);
        if (ev) {
            g->n_open -= ev->kind == JOB_END;
            mem_free(ev);
        } else {
            inbox_wait(&g->inbox);
        }
    }
}

/* ---- begin and end ------------------------------------------------------------------------- */

/* Splits the choice's text into its parts. */
static bool open_answer(struct gen *g, struct gen_choice *c, slm_error *err)
{
    const struct request *r = &g->r;
    const bool tools = r->tools && strcmp(r->tool_choice, "none") != 0;
    char *text = tools ? json_dumps(r->tools, JSON_COMPACT) : NULL;

    slm_stream_special(c->stream, true);
    c->answer = slm_answer_new(r->model, g->prompt_text, tools, on_part, c, err);
    const bool ok = c->answer && (!text || slm_answer_tools(c->answer, text, err));
    free(text);
    return ok;
}

static bool open_choice(struct gen *g, struct gen_choice *c)
{
    const struct request *r = &g->r;
    slm_error err = {0};

    c->logprobs = json_array();
    if (!c->logprobs) {
        return fault_no_memory(&g->fault);
    }
    c->stream = slm_stream_new(r->model, r->stops, r->n_stops, &err);
    return (c->stream && (!g->interface->answers || open_answer(g, c, &err))) ||
           fault_from(&g->fault, &err, NULL);
}

static void fill_job(struct gen *g, struct gen_choice *c)
{
    const struct request *r = &g->r;
    const int prompt = c->index / r->n;

    c->job.choice = c->index;
    c->job.inbox = &g->inbox;
    c->job.served = r->served;
    c->job.request = (slm_request){
        .ids = g->prompts[prompt],
        .n_ids = g->n_prompt_ids[prompt],
        .sampling = r->sampling,
        .guide = g->guide,
        .max_tokens = r->max_tokens,
        .n_top = r->logprobs ? r->n_top : -1,
    };
    c->job.request.sampling.choice = (uint64_t)(c->index % r->n);
    c->job.next = c->index + 1 < g->n_prompts * r->n ? &c[1].job : NULL;
}

static bool start(struct gen *g)
{
    slm_error err = {0};

    if (!make_prompts(g) || !make_guide(g)) {
        return false;
    }
    if (!inbox_init(&g->inbox, &err)) {
        return fault_from(&g->fault, &err, NULL);
    }
    g->has_inbox = true;
    const int n = g->n_prompts * g->r.n;
    g->choices = mem_zalloc((size_t)n, sizeof *g->choices);
    if (!g->choices) {
        return fault_no_memory(&g->fault);
    }
    for (g->n_choices = 0; g->n_choices < n; g->n_choices++) {
        struct gen_choice *c = &g->choices[g->n_choices];
        c->gen = g;
        c->index = g->n_choices;
        buf_init(&c->content, 0);
        buf_init(&c->reasoning, 0);
        buf_init(&c->raw, 0);
        if (!open_choice(g, c)) {
            g->n_choices++;
            return false;
        }
    }
    for (int i = 0; i < n; i++) {
        fill_job(g, &g->choices[i]);
    }
    if (!engine_submit(g->engine, &g->choices[0].job, &err)) {
        return fault_from(&g->fault, &err, NULL);
    }
    g->n_open = n;
    return true;
}

static void gen_free(struct gen *g)
{
    cancel_all(g);
    const struct gen_usage u = gen_usage(g);
    if (g->r.served) {
        http_note(g->http, served_name(g->r.served), u.prompt, u.cached, u.answer);
    }
    for (int i = 0; i < g->n_choices; i++) {
        struct gen_choice *c = &g->choices[i];
        slm_stream_free(c->stream);
        slm_answer_free(c->answer);
        json_decref(c->logprobs);
        buf_deinit(&c->content);
        buf_deinit(&c->reasoning);
        buf_deinit(&c->raw);
        for (int j = 0; j < c->n_calls; j++) {
            buf_deinit(&c->calls[j].name);
            buf_deinit(&c->calls[j].arguments);
        }
        mem_free(c->calls);
    }
    mem_free(g->choices);
    if (g->has_inbox) {
        inbox_deinit(&g->inbox);
    }
    for (int i = 0; i < g->n_prompts; i++) {
        slm_free(g->prompts[i]);
    }
    mem_free(g->prompts);
    mem_free(g->n_prompt_ids);
    slm_free(g->prompt_text);
    slm_guide_free(g->guide);
    request_deinit(&g->r);
    mem_free(g);
}

static bool all_began(const struct gen *g)
{
    for (int i = 0; i < g->n_choices; i++) {
        if (!g->choices[i].began) {
            return false;
        }
    }
    return true;
}

/* Waits until the engine has taken all choices, so that a stream does not begin with 200 and then
 * fail; false where one was refused or the client has gone. */
static bool wait_for_start(struct gen *g)
{
    while (!all_began(g) && g->fault.status == 0) {
        struct job_event *ev = inbox_take(&g->inbox);
        if (!ev) {
            if (http_wait(g->http, g->inbox.wake_fd, -1, true) == HTTP_GONE) {
                return false;
            }
            continue;
        }
        /* All are accepted before any has a token. */
        if (ev->kind == JOB_END) {
            on_end(g, &g->choices[ev->choice], ev);
        }
        g->choices[ev->choice].began = true;
        mem_free(ev);
    }
    return g->fault.status == 0;
}

static void answer_whole(struct gen *g)
{
    while (g->n_open > 0 && g->fault.status == 0) {
        take_events(g);
        if (g->n_open > 0 && g->fault.status == 0 &&
            http_wait(g->http, g->inbox.wake_fd, -1, false) == HTTP_GONE) {
            http_reply_nothing(g->http);
            gen_free(g);
            return;
        }
    }
    if (g->fault.status) {
        http_reply_fault(g->http, &g->fault);
    } else {
        http_reply_json(g->http, 200, g->interface->whole(g));
    }
    gen_free(g);
}

/* The next events of a stream. */
static void next_events(void *arg, struct buf *out)
{
    struct gen *g = arg;

    g->out = out;
    if (!g->began && g->interface->begin) {
        g->interface->begin(g, out);
    }
    g->began = true;
    while (out->len == 0 && !g->done) {
        take_events(g);
        if (g->fault.status) {
            g->interface->fail(g, &g->fault, out);
            g->done = true;
        } else if (g->n_open == 0 && out->len == 0) {
            g->interface->end(g, out);
            g->done = true;
        } else if (out->len == 0) {
            const bool half = http_half_closed(g->http);
            const enum http_wait w = http_wait(g->http, g->inbox.wake_fd,
                                               half ? PROBE_MS : KEEP_ALIVE_MS, true);
            if (w == HTTP_GONE) {
                break;
            }
            if (w == HTTP_TIMEOUT) {
                buf_puts(out, ": keep-alive\n\n");
            }
        }
    }
    g->out = NULL;
}

static void stream_done(void *arg)
{
    gen_free(arg);
}

void gen_answer(struct http *h, const struct gen_interface *interface, struct request *r)
{
    struct gen *g = mem_zalloc(1, sizeof *g);

    if (!g) {
        struct fault f;
        fault_no_memory(&f);
        http_reply_fault(h, &f);
        request_deinit(r);
        return;
    }
    g->http = h;
    g->engine = http_shared(h)->engine;
    g->interface = interface;
    g->r = *r;
    memset(r, 0, sizeof *r);
    g->created = (long)time(NULL);
    snprintf(g->id, sizeof g->id, "%s%s", interface->id_prefix, http_id(h) + strlen("req_"));
    if (!start(g) || !wait_for_start(g)) {
        if (g->fault.status) {
            http_reply_fault(h, &g->fault);
        } else {
            http_reply_nothing(h);
        }
        gen_free(g);
    } else if (g->r.stream) {
        g->streaming = true;
        for (int i = 0; i < g->n_choices; i++) {
            g->choices[i].began = false;
        }
        http_reply_stream(h, next_events, stream_done, g);
    } else {
        answer_whole(g);
    }
}

/* ---- for the interfaces -------------------------------------------------------------------- */

struct gen_usage gen_usage(const struct gen *g)
{
    struct gen_usage u = {0};

    for (int i = 0; i < g->n_choices; i++) {
        const struct gen_choice *c = &g->choices[i];
        if (c->index % g->r.n == 0) {
            u.prompt += c->n_prompt;  /* the choices of a prompt share it */
            u.cached += c->n_cached;
        }
        u.answer += c->n_out;
        u.reasoning += c->n_reasoning;
    }
    return u;
}

void gen_event(struct buf *out, const char *name, json_t *value)
{
    char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;

    if (!text) {
        out->failed = true;
    } else if (name) {
        buf_printf(out, "event: %s\ndata: %s\n\n", name, text);
    } else {
        buf_printf(out, "data: %s\n\n", text);
    }
    free(text);
    json_decref(value);
}

json_t *gen_text(const struct buf *text)
{
    return json_stringn(buf_str(text), text->len);
}

/* chat.c - questions and answers over one session.
 *
 * Each turn renders all messages and brings the session to their tokens, so what was computed
 * for earlier turns is used again whatever a template does with them. */
#include "app/chat.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/input.h"
#include "app/out.h"
#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/time.h"
#include "base/utf8.h"

/* ---- interruption ------------------------------------------------------------------------ */

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

void chat_catch_interrupt(void)
{
    struct sigaction a = { .sa_handler = on_interrupt };

    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
}

static bool keep_going(void *arg, size_t done, size_t total)
{
    const struct chat *c = arg;

    if (c->terminal) {
        out_progress("prompt", done, total);
    }
    return !interrupted;
}

/* ---- life -------------------------------------------------------------------------------- */

bool chat_open(struct chat *c, struct gen_opts *o, const char *model, const struct buf *template,
               slm_error *err)
{
    slm_model_info info;

    *c = (struct chat){ .o = o, .model = model, .finish = "", .messages = json_array() };
    if (!c->messages) {
        return slm_fail_nomem(err, "the messages");
    }
    if (!gen_open(&c->gen, o, model, template, err)) {
        return false;
    }
    slm_model_info_get(c->gen.model, &info);
    if (!info.has_template) {
        return slm_fail(err, SLM_E_ARG, "%s: has no chat template; give one with --template FILE, "
                        "or use slm run --raw", model);
    }
    c->sampling = gen_sampling(o, c->gen.model);
    c->session = gen_session(&c->gen, o, err);
    if (!c->session) {
        return false;
    }
    slm_session_progress(c->session, keep_going, c);
    return chat_system(c, o->system ? o->system : "", err);
}

void chat_close(struct chat *c)
{
    slm_session_free(c->session);
    gen_close(&c->gen);
    json_decref(c->messages);
}

/* ---- messages ---------------------------------------------------------------------------- */

static bool has_system(const struct chat *c)
{
    const json_t *role = json_object_get(json_array_get(c->messages, 0), "role");

    return role && strcmp(json_string_value(role), "system") == 0;
}

static json_t *message(const char *role, const char *text)
{
    return json_pack("{s:s, s:s}", "role", role, "content", text);
}

bool chat_system(struct chat *c, const char *text, slm_error *err)
{
    if (has_system(c)) {
        json_array_remove(c->messages, 0);
    }
    return !*text || json_array_insert_new(c->messages, 0, message("system", text)) == 0 ||
           slm_fail_nomem(err, "the system message");
}

size_t chat_length(const struct chat *c)
{
    return json_array_size(c->messages) - (has_system(c) ? 1 : 0);
}

/* Drops messages from the end until n are left behind the system message. */
static void cut(struct chat *c, size_t n)
{
    while (chat_length(c) > n) {
        json_array_remove(c->messages, json_array_size(c->messages) - 1);
    }
}

void chat_clear(struct chat *c)
{
    cut(c, 0);
}

char *chat_undo(struct chat *c)
{
    for (size_t i = json_array_size(c->messages); i-- > 0;) {
        const json_t *m = json_array_get(c->messages, i);
        if (strcmp(json_string_value(json_object_get(m, "role")), "user") == 0) {
            const json_t *text = json_object_get(m, "content");
            char *copy = mem_strndup(json_string_value(text), json_string_length(text));
            cut(c, i - (has_system(c) ? 1 : 0));
            return copy;
        }
    }
    return NULL;
}

/* ---- showing ----------------------------------------------------------------------------- */

/* One answer while it is made. */
struct turn {
    struct chat *c;
    slm_sampler *sampler;
    slm_stream *stream;
    slm_answer *answer;
    int32_t *ids;
    size_t n_ids;
    char *prompt;
    struct buf content, reasoning;
    slm_part shown;          /* kind of what was shown last */
    bool any;
};

/* Text of a model must not command a terminal: other control characters than newline and tab
 * are left out there. */
static void show(const struct chat *c, const char *s, size_t n)
{
    size_t begin = 0;

    for (size_t i = 0; i < n && c->terminal; i++) {
        const bool c1 = (unsigned char)s[i] == 0xC2 && i + 1 < n && (unsigned char)s[i + 1] < 0xA0;
        if (((unsigned char)s[i] < 0x20 && s[i] != '\n' && s[i] != '\t') || s[i] == 0x7F || c1) {
            out_write(s + begin, i - begin);
            i += c1;
            begin = i + 1;
        }
    }
    out_write(s + begin, n - begin);
}

/* Reasoning is dimmed, or marked where there are no colours. */
static bool on_part(void *arg, slm_part part, int index, const char *text, size_t n)
{
    struct turn *t = arg;
    const bool thinking = part == SLM_PART_REASONING;

    (void)index;
    buf_add(thinking ? &t->reasoning : &t->content, text, n);
    if (thinking && (!t->any || t->shown != part)) {
        out_printf("%s", t->c->colors ? "\x1b[2m" : "(thinking) ");
    } else if (!thinking && t->any && t->shown == SLM_PART_REASONING) {
        out_printf("%s\n\n", t->c->colors ? "\x1b[0m" : "");
    }
    t->any = true;
    t->shown = part;
    show(t->c, text, n);
    return out_flush();
}

/* ---- one answer -------------------------------------------------------------------------- */

static bool render(struct turn *t, slm_error *err)
{
    struct chat *c = t->c;
    char *messages = json_dumps(c->messages, 0), *variables = gen_variables(c->o);
    bool ok = messages && variables;

    if (!ok) {
        slm_fail_nomem(err, "the prompt");
    } else {
        ok = slm_render_tokens(c->gen.model, messages, NULL, variables, true, &t->ids, &t->n_ids,
                               &t->prompt, err) ||
             gen_name_template(c->o, c->model, err);
    }
    free(messages);
    free(variables);
    if (ok && t->n_ids >= (size_t)c->gen.context) {
        return slm_fail(err, SLM_E_CONTEXT, "the conversation has %zu tokens and the context only "
                        "%d: /undo or /clear, or a larger --context", t->n_ids, c->gen.context);
    }
    return ok;
}

static bool prepare(struct turn *t, int again, slm_error *err)
{
    const struct chat *c = t->c;
    slm_sampling s = c->sampling;

    s.choice = (uint64_t)again;
    t->sampler = slm_sampler_new(c->gen.model, &s, err);
    if (t->sampler) {
        t->stream = slm_stream_new(c->gen.model, c->o->stops.item, c->o->stops.n, err);
    }
    if (t->stream) {
        slm_stream_special(t->stream, true);
        t->answer = slm_answer_new(c->gen.model, t->prompt, false, on_part, t, err);
    }
    return t->answer != NULL;
}

/* Adds tokens to the answer; *done where one of them ends it. */
static bool take(struct turn *t, const int32_t *ids, size_t n, bool *done, slm_error *err)
{
    struct chat *c = t->c;

    for (size_t i = 0; i < n && !*done; i++) {
        const char *text;
        size_t len;
        bool stopped = true;

        if (!slm_is_end(c->gen.model, ids[i])) {
            c->n_out++;
            if (!slm_stream_push(t->stream, ids[i], &text, &len, &stopped, err) ||
                !slm_answer_push(t->answer, text, len, err)) {
                return false;
            }
        }
        if (stopped) {
            c->finish = "stop";
            *done = true;
        }
    }
    return true;
}

static bool decode(struct turn *t, slm_error *err)
{
    struct chat *c = t->c;
    int32_t ids[1 + GEN_DRAFT_MAX];
    bool done = false;

    c->finish = "length";
    while (!done) {
        const size_t room = (size_t)c->gen.context - slm_session_len(c->session);
        const size_t left = c->o->max_tokens < 0 ? room : (size_t)c->o->max_tokens - c->n_out;
        size_t cap = left < room ? left : room, n;

        if (cap == 0) {
            if (room == 0) {
                out_note("note: the context of %d tokens is full", c->gen.context);
            }
            return true;
        }
        if (interrupted) {
            c->finish = "interrupted";
            return true;
        }
        cap = cap < 1 + GEN_DRAFT_MAX ? cap : 1 + GEN_DRAFT_MAX;
        if (!slm_decode(c->session, t->sampler, ids, cap, &n, err) ||
            !take(t, ids, n, &done, err)) {
            return false;
        }
    }
    return true;
}

static bool generate(struct turn *t, slm_error *err)
{
    struct chat *c = t->c;
    const char *text;
    size_t n;

    interrupted = 0;
    c->n_out = 0;
    c->n_prompt = t->n_ids;
    if (c->o->show_prompt) {
        show(c, t->prompt, strlen(t->prompt));
        out_flush();
    }
    const double begin = time_now();
    const bool fed = slm_session_sync(c->session, t->ids, t->n_ids, &c->n_reused, err);
    const double ready = time_now();
    bool ok = fed;
    if (!fed && err->code == SLM_E_CANCELLED && interrupted) {
        c->finish = "interrupted";
        ok = true;
    } else if (fed) {
        ok = decode(t, err) && slm_stream_finish(t->stream, &text, &n, err) &&
             slm_answer_push(t->answer, text, n, err) && slm_answer_finish(t->answer, err);
    }
    c->prompt_s = ready - begin;
    c->decode_s = time_now() - ready;
    out_printf("%s\n", c->colors && t->any && t->shown == SLM_PART_REASONING ? "\x1b[0m" : "");
    out_flush();
    return ok;
}

/* An answer that was stopped before its first text leaves its question out, too. */
static bool keep_answer(struct turn *t, size_t before, slm_error *err)
{
    if (!t->any && strcmp(t->c->finish, "interrupted") == 0) {
        cut(t->c, before);
        return true;
    }
    json_t *m = message("assistant", buf_str(&t->content));

    if (m && t->reasoning.len > 0) {
        json_object_set_new(m, "reasoning_content", json_string(buf_str(&t->reasoning)));
    }
    return (!t->content.failed && !t->reasoning.failed &&
            json_array_append_new(t->c->messages, m) == 0) ||
           slm_fail_nomem(err, "the answer");
}

bool chat_ask(struct chat *c, const char *text, int again, slm_error *err)
{
    const size_t before = chat_length(c);
    struct turn t = { .c = c };

    buf_init(&t.content, 0);
    buf_init(&t.reasoning, 0);
    bool ok = json_array_append_new(c->messages, message("user", text)) == 0 ||
              slm_fail(err, SLM_E_ARG, "the text is not UTF-8");
    ok = ok && render(&t, err) && prepare(&t, again, err) && generate(&t, err) &&
         keep_answer(&t, before, err);
    if (!ok) {
        cut(c, before);
    }
    slm_answer_free(t.answer);
    slm_stream_free(t.stream);
    slm_sampler_free(t.sampler);
    slm_free(t.ids);
    slm_free(t.prompt);
    buf_deinit(&t.content);
    buf_deinit(&t.reasoning);
    return ok;
}

/* ---- files ------------------------------------------------------------------------------- */

/* Longest conversation that is read back. */
static const size_t FILE_MAX = (size_t)64 << 20;

/* The name of the file with what was computed. */
static char *beside(const char *path, slm_error *err)
{
    struct buf b;

    buf_init(&b, 0);
    buf_printf(&b, "%s.kv", path);
    char *name = buf_take(&b, NULL);
    if (!name) {
        slm_fail_nomem(err, path);
    }
    buf_deinit(&b);
    return name;
}

bool chat_save(struct chat *c, const char *path, slm_error *err)
{
    json_t *o = json_pack("{s:s, s:O}", "model", c->model, "messages", c->messages);
    char *name = beside(path, err);
    bool ok = name != NULL;

    if (ok && (!o || json_dump_file(o, path, JSON_INDENT(2)) != 0)) {
        ok = slm_fail(err, SLM_E_IO, "%s: cannot be written", path);
    }
    if (ok && slm_session_len(c->session) > 0) {
        ok = slm_session_save(c->session, name, err);
    } else if (ok) {
        remove(name);
    }
    json_decref(o);
    mem_free(name);
    return ok;
}

/* Whether these are messages as chat_save writes them. */
static bool are_messages(const json_t *messages)
{
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *m = json_array_get(messages, i);
        if (!json_is_string(json_object_get(m, "role")) ||
            !json_is_string(json_object_get(m, "content"))) {
            return false;
        }
    }
    return json_is_array(messages);
}

bool chat_load(struct chat *c, const char *path, slm_error *err)
{
    struct buf text;
    slm_error why = {0};

    buf_init(&text, FILE_MAX);
    bool ok = file_read(path, FILE_MAX, &text, err);
    json_t *o = ok ? json_loadb(buf_str(&text), text.len, 0, NULL) : NULL;
    json_t *messages = json_object_get(o, "messages");
    ok = ok && (are_messages(messages) ||
                slm_fail(err, SLM_E_FORMAT, "%s: no conversation that /save wrote", path));
    char *name = ok ? beside(path, err) : NULL;
    ok = name != NULL;
    if (ok) {
        json_decref(c->messages);
        c->messages = json_incref(messages);
        if (!slm_session_load(c->session, name, &why)) {
            out_note("note: %s; the messages are computed anew", why.msg);
        }
    }
    mem_free(name);
    json_decref(o);
    buf_deinit(&text);
    return ok;
}

/* cmd_chat.c - slm chat: a conversation on the terminal, or over pipes.
 *
 * Each line is a question, or a command that begins with a slash.  The commands are a table.
 * Without a terminal there are no prompts and no notes about the keys, and a failed turn makes
 * the exit code 1. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/chat.h"
#include "app/input.h"
#include "app/interrupt.h"
#include "app/out.h"
#include "app/term.h"
#include "app/verbs.h"
#include "base/cpu.h"
#include "base/mem.h"

struct chat_opts {
    const char *model, *load;
    bool quiet;
    struct gen_opts gen;
};

#define AT(field) offsetof(struct chat_opts, field)

static const struct opt opts[] = {
    { "model", 'm', OPT_STR, AT(model), "MODEL", "the model: a file or a name (" GEN_MODEL ")", 0,
      0 },
    { "load", 0, OPT_STR, AT(load), "FILE", "go on with a conversation that /save wrote", 0, 0 },
    { "quiet", 0, OPT_FLAG, AT(quiet), NULL, "no greeting and no notes", 0, 0 },
    { NULL, 0, OPT_FLAG, 0, NULL, NULL, 0, 0 },
};

static const struct opt_group groups[] = {
    GEN_GROUPS(AT(gen)),
    { NULL, NULL, 0 },
};

static const char more[] =
    "A line is a question; /help lists the commands.  A line that ends in \\ goes on in the\n"
    "next one, and lines between \"\"\" and \"\"\" belong together.  Ctrl-C ends an answer,\n"
    "Ctrl-D the chat.  The history is in $SLM_HISTORY, else slm/history in $XDG_STATE_HOME\n"
    "or ~/.local/state.  NO_COLOR turns colours off.\n";

/* The whole. */
struct desk {
    struct chat_opts o;
    struct chat chat;
    struct term *term;
    int again;        /* answers that the last question had before */
    bool leave;
    bool failed;      /* some turn was */
    bool interrupted; /* and nobody sits there */
};

/* ---- turns ------------------------------------------------------------------------------- */

/* Ctrl-C ends an answer where somebody sits, else everything. */
static void stop(struct desk *d)
{
    if (!d->chat.terminal) {
        d->interrupted = d->leave = true;
    }
}

/* What went wrong is told, and the chat goes on. */
static void complain(struct desk *d, const slm_error *err)
{
    d->failed = true;
    out_fail(err);
}

static void ask(struct desk *d, const char *text, int again)
{
    slm_error err = {0};

    const bool ok = chat_ask(&d->chat, text, again, &err);
    if (!out_flush()) {
        d->leave = true;  /* nobody reads any more; out_finish says what that means */
        return;
    }
    if (!ok) {
        complain(d, &err);
        return;
    }
    d->again = again;
    if (strcmp(d->chat.finish, "interrupted") == 0) {
        out_note("stopped");
        stop(d);
    }
}

/* ---- commands ---------------------------------------------------------------------------- */

static void cmd_help(struct desk *d, const char *arg);

static void cmd_system(struct desk *d, const char *arg)
{
    const json_t *first = json_array_get(d->chat.messages, 0);
    slm_error err = {0};

    if (*arg) {
        if (!chat_system(&d->chat, strcmp(arg, "-") == 0 ? "" : arg, &err)) {
            complain(d, &err);
        }
        return;
    }
    const char *role = json_string_value(json_object_get(first, "role"));
    const char *text = json_string_value(json_object_get(first, "content"));
    out_printf("%s\n", role && text && strcmp(role, "system") == 0 ? text : "no system message");
}

static void cmd_clear(struct desk *d, const char *arg)
{
    (void)arg;
    chat_clear(&d->chat);
}

static void cmd_undo(struct desk *d, const char *arg)
{
    char *text = chat_undo(&d->chat);

    (void)arg;
    out_note(text ? "taken back: %s" : "nothing to take back%s", text ? text : "");
    mem_free(text);
}

static void cmd_regen(struct desk *d, const char *arg)
{
    char *text = chat_undo(&d->chat);

    (void)arg;
    if (!text) {
        out_note("nothing was asked yet");
        return;
    }
    ask(d, text, d->again + 1);
    mem_free(text);
}

static void cmd_save(struct desk *d, const char *arg)
{
    slm_error err = {0};

    if (!*arg) {
        out_note("/save needs the name of a file");
    } else if (!chat_save(&d->chat, arg, &err)) {
        complain(d, &err);
    } else {
        out_note("saved %zu messages", chat_length(&d->chat));
    }
}

static void cmd_load(struct desk *d, const char *arg)
{
    slm_error err = {0};

    if (!*arg) {
        out_note("/load needs the name of a file");
    } else if (!chat_load(&d->chat, arg, &err)) {
        complain(d, &err);
    } else {
        d->again = 0;
        out_note("%zu messages", chat_length(&d->chat));
    }
}

static void print_settings(const struct desk *d)
{
    out_printf("settings (from %s):\n", slm_sampling_origin(d->chat.gen.model));
    gen_print(&d->chat.sampling);
    out_printf("  %-18s %d\n  %-18s %s\n  %-18s %s\n", "max-tokens", d->chat.o->max_tokens,
               "thinking", d->chat.o->no_thinking ? "off" : "on", "reasoning-effort",
               d->chat.o->effort ? d->chat.o->effort : "(the template's)");
}

/* Settings that are no numbers for drawing tokens; false for another name. */
static bool set_other(struct desk *d, const char *name, const char *value, char *why, size_t n)
{
    static const char *const efforts[] = { "low", "medium", "xhigh" };
    struct gen_opts *o = d->chat.o;

    *why = '\0';
    if (strcmp(name, "thinking") == 0) {
        if (strcmp(value, "on") == 0 || strcmp(value, "off") == 0) {
            o->no_thinking = strcmp(value, "off") == 0;
        } else {
            snprintf(why, n, "is on or off, not \"%s\"", value);
        }
        return true;
    }
    if (strcmp(name, "reasoning-effort") == 0) {
        for (size_t i = 0; i < 3; i++) {
            if (strcmp(value, efforts[i]) == 0) {
                o->effort = efforts[i];
                return true;
            }
        }
        snprintf(why, n, "is low, medium or xhigh, not \"%s\"", value);
        return true;
    }
    if (strcmp(name, "max-tokens") == 0) {
        args_value(&gen_answer_opts[0], value, o, why, n);
        return true;
    }
    return false;
}

static void cmd_set(struct desk *d, const char *arg)
{
    char name[64], value[64], why[400] = "";
    slm_sampling s = d->chat.sampling;

    const int n = sscanf(arg, "%63s %63s", name, value);
    if (n <= 0) {
        print_settings(d);
    } else if (n == 1) {
        out_note("/set NAME VALUE, or /set alone");
    } else if (set_other(d, name, value, why, sizeof why) ? *why != '\0'
               : !gen_set(&s, name, value, why, sizeof why)) {
        out_note("%s %s", name, why);
    } else {
        d->chat.sampling = s;
    }
}

static double rate(size_t n, double s)
{
    return s > 0 ? (double)n / s : 0;
}

static void cmd_stats(struct desk *d, const char *arg)
{
    const struct chat *c = &d->chat;
    slm_draft_stats draft;

    (void)arg;
    slm_session_draft_stats(c->session, &draft);
    out_printf("context            %zu of %d tokens\n"
               "last prompt        %zu tokens, %zu of them computed before, %.1f tok/s\n"
               "last answer        %zu tokens (%s), %.1f tok/s\n"
               "peak RAM           %s\n",
               slm_session_len(c->session), c->gen.context, c->n_prompt, c->n_reused,
               rate(c->n_prompt - c->n_reused, c->prompt_s), c->n_out, c->finish,
               rate(c->n_out, c->decode_s), out_bytes(cpu_peak_rss_bytes()));
    if (c->gen.draft.kind != SLM_DRAFT_OFF) {
        out_printf("drafts accepted    %llu of %llu\n", (unsigned long long)draft.accepted,
                   (unsigned long long)draft.drafted);
    }
}

static void cmd_exit(struct desk *d, const char *arg)
{
    (void)arg;
    d->leave = true;
}

static const struct command {
    const char *name, *operand, *help;
    void (*run)(struct desk *d, const char *arg);
} commands[] = {
    { "/help", "", "this list", cmd_help },
    { "/system", "[TEXT]", "show or change the system message; - takes it away", cmd_system },
    { "/clear", "", "forget the conversation, but for the system message", cmd_clear },
    { "/undo", "", "take the last question and its answer back", cmd_undo },
    { "/regen", "", "answer the last question once more", cmd_regen },
    { "/save", "FILE", "write the conversation, and what was computed to FILE.kv", cmd_save },
    { "/load", "FILE", "go on with a conversation that was saved", cmd_load },
    { "/set", "[NAME VALUE]", "show or change settings", cmd_set },
    { "/stats", "", "tokens and speeds of the last answer", cmd_stats },
    { "/exit", "", "leave", cmd_exit },
};

enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static void cmd_help(struct desk *d, const char *arg)
{
    (void)d;
    (void)arg;
    for (int i = 0; i < N_COMMANDS; i++) {
        out_printf("  %-8s %-13s %s\n", commands[i].name, commands[i].operand, commands[i].help);
    }
    out_printf("A line that ends in \\ goes on in the next one; lines between \"\"\" and \"\"\"\n"
               "belong together.  Ctrl-C ends an answer, Ctrl-D the chat.\n");
}

/* Whether a line is for the program: a slash and a word, so that a path may begin a question. */
static bool is_command(const char *line)
{
    const size_t n = strspn(line + 1, "abcdefghijklmnopqrstuvwxyz");

    return line[0] == '/' && n > 0 && (line[n + 1] == '\0' || line[n + 1] == ' ');
}

static void run_command(struct desk *d, const char *line)
{
    const size_t n = strcspn(line, " ");
    const char *arg = line + n + strspn(line + n, " ");

    for (int i = 0; i < N_COMMANDS; i++) {
        if (strlen(commands[i].name) == n && strncmp(commands[i].name, line, n) == 0) {
            commands[i].run(d, arg);
            out_flush();
            return;
        }
    }
    out_note("there is no %.*s; /help lists the commands", (int)n, line);
}

/* ---- input ------------------------------------------------------------------------------- */

/* Longest question. */
static const size_t TEXT_MAX = (size_t)16 << 20;

/* Whether the text ends in a backslash, which is taken off. */
static bool goes_on(struct buf *text)
{
    if (text->len == 0 || text->data[text->len - 1] != '\\') {
        return false;
    }
    text->data[--text->len] = '\0';
    return true;
}

/* Lines up to the closing quotes, without them. */
static enum term_event read_block(struct term *term, const char *prompt, struct buf *text)
{
    struct buf rest;
    bool first = true;

    buf_init(&rest, TEXT_MAX);
    buf_puts(&rest, buf_str(text) + 3);
    buf_clear(text);
    for (;;) {
        const char *end = strstr(buf_str(&rest), "\"\"\"");
        const size_t n = end ? (size_t)(end - rest.data) : rest.len;
        if (n > 0 || (!first && !end)) {
            buf_puts(text, text->len > 0 ? "\n" : "");
            buf_add(text, buf_str(&rest), n);
        }
        first = first && n == 0;
        buf_clear(&rest);
        const enum term_event event = end ? TERM_LINE : term_line(term, prompt, &rest);
        if (end || event != TERM_LINE) {
            buf_deinit(&rest);
            /* What is there at the end of the input counts. */
            return event == TERM_END && text->len > 0 ? TERM_LINE : event;
        }
    }
}

/* One question or command, which may be several lines. */
static enum term_event read_text(struct desk *d, struct buf *text)
{
    static const char next[] = ". ";
    enum term_event event = term_line(d->term, "> ", text);

    if (event != TERM_LINE) {
        return event;
    }
    if (strncmp(buf_str(text), "\"\"\"", 3) == 0) {
        return read_block(d->term, next, text);
    }
    while (event == TERM_LINE && goes_on(text)) {
        buf_putc(text, '\n');
        event = term_line(d->term, next, text);
    }
    return event == TERM_END ? TERM_LINE : event;
}

static bool is_blank(const char *s)
{
    return s[strspn(s, " \t\r\n")] == '\0';
}

static void converse(struct desk *d)
{
    struct buf text;
    slm_error err = {0};

    buf_init(&text, TEXT_MAX);
    while (!d->leave) {
        buf_clear(&text);
        const enum term_event event = read_text(d, &text);
        if (event == TERM_END) {
            if (term_interactive(d->term)) {
                out_printf("\n");
            }
            break;
        }
        if (text.failed) {
            slm_fail(&err, SLM_E_ARG, "a question of more than 16 MB is too long");
            complain(d, &err);
            continue;
        }
        if (event == TERM_INTERRUPT) {
            stop(d);
            continue;
        }
        if (is_blank(buf_str(&text))) {
            continue;
        }
        if (!input_check("the question", buf_str(&text), text.len, &err)) {
            complain(d, &err);
            continue;
        }
        term_remember(d->term, buf_str(&text));
        if (is_command(buf_str(&text))) {
            run_command(d, buf_str(&text));
        } else {
            ask(d, buf_str(&text), 0);
        }
        if (!out_flush()) {
            break;
        }
    }
    buf_deinit(&text);
}

/* ---- the verb ---------------------------------------------------------------------------- */

static bool open_desk(struct desk *d, slm_error *err)
{
    struct buf template;

    buf_init(&template, 0);
    bool ok = gen_read(&d->o.gen, &template, err) &&
              chat_open(&d->chat, &d->o.gen, d->o.model, &template, err);
    buf_deinit(&template);
    d->chat.colors = term_colors();
    d->term = ok ? term_new() : NULL;
    if (ok && !d->term) {
        return slm_fail(err, SLM_E_NOMEM, "not enough memory for a terminal");
    }
    d->chat.terminal = ok && term_interactive(d->term);
    return ok && (!d->o.load || chat_load(&d->chat, d->o.load, err));
}

static int cmd_chat(int argc, char **argv)
{
    struct desk d = {0};
    struct operands rest;
    slm_error err = {0};
    int code;

    gen_init(&d.o.gen);
    d.o.gen.max_tokens = -1;
    if (!args_parse(&verb_chat, argc, argv, &d.o, &rest, &code) ||
        !gen_check(&verb_chat, &d.o.gen, &code)) {
        return code;
    }
    const int used = !d.o.model && rest.n > 0;
    d.o.model = d.o.model ? d.o.model : used ? rest.item[0] : GEN_MODEL;
    if (rest.n > used) {
        return args_usage(&verb_chat, "one argument too many: \"%s\"", rest.item[used]);
    }
    out_set_quiet(d.o.quiet);
    if (open_desk(&d, &err)) {
        chat_catch_interrupt();
        if (d.chat.terminal) {
            out_note("%s; /help lists the commands, Ctrl-D leaves", d.o.model);
            if (!term_edits(d.term)) {
                out_note("note: built without libedit, so lines cannot be edited");
            }
        }
        converse(&d);
        code = out_finish(d.interrupted ? INTERRUPT_EXIT : d.failed && !d.chat.terminal ? 1 : 0);
    } else {
        code = out_fail(&err);
    }
    term_free(d.term);
    chat_close(&d.chat);
    return code;
}

const struct verb verb_chat = {
    .name = "chat",
    .operands = "[MODEL]",
    .summary = "talk with a model",
    .more = more,
    .opts = opts,
    .groups = groups,
    .run = cmd_chat,
};

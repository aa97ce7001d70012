/* answer.c - splits an answer into content, reasoning and tool calls while it arrives.
 *
 * One byte at a time, so it does not matter how the text was cut.  Outside of calls, bytes
 * that may begin a mark are held back until they do or do not.  A call is kept as it was
 * written until it is complete: what turns out to be none comes out as the text it is.
 *
 * Blank text belongs to the marks it stands beside: newlines around reasoning, newlines behind
 * reasoning and calls, and all blanks in front of calls are left out. */
#include "text/answer.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/json_scan.h"

/* A call or a run of blanks that is longer becomes text. */
enum { CALL_BYTES_MAX = 8 << 20, BLANKS_MAX = 64 << 10 };

/* Longer than any mark. */
enum { TAIL_MAX = 16 };

/* How a model marks its reasoning. */
struct think_form {
    const char *open, *close;
    const char *has;   /* in the template */
    bool anywhere;     /* the marks are control tokens: not at the beginning only */
    const char *drop[2];  /* what models of the kind write without a meaning */
};

/* The first row that fits counts; the last one fits all, since models learn these marks also
 * where the template does not show them. */
static const struct think_form think_forms[] = {
    { "<|channel>thought", "<channel|>", "<|channel>", true, { "<channel|>", "<|tool_response>" } },
    { "[THINK]", "[/THINK]", "[THINK]", true, { NULL } },
    { "<seed:think>", "</seed:think>", "<seed:think>", false, { NULL } },
    { "<think>", "</think>", "<response></response>", false, { "<response>", "</response>" } },
    { "<think>", "</think>", "", false, { NULL } },
};

enum act { ACT_NONE, ACT_THINK, ACT_SAY, ACT_CALL, ACT_DROP };

/* A text that changes what follows, where it stands now. */
struct mark {
    const char *text;
    enum act act;
    int call;   /* which mark of the tool form */
};

enum { MARKS_MAX = CALL_MARKS_MAX + 4 };

struct answer {
    const struct think_form *think;
    const struct tool_form *form;   /* NULL: no calls are looked for */
    json_t *tools;                  /* NULL: not known */
    struct calls *calls;
    slm_part_fn *fn;
    void *arg;

    slm_part part;        /* CONTENT or REASONING: of the text that is read */
    bool in_call;
    bool began;           /* something other than blanks came since the last mark */
    bool first;           /* no mark came yet */
    struct buf blanks;    /* not passed on yet */
    struct buf held;      /* may begin a mark */
    struct buf raw;       /* the call as it was written */
    int index;            /* of the call that is read or comes next */
    bool told;            /* its name was */

    struct buf out;       /* a piece that is not passed on yet */
    slm_part out_part;
    int out_index;
    bool stopped;
};

/* ---- life -------------------------------------------------------------------------------- */

static bool contains(const char *text, size_t n, const char *word)
{
    return memmem(text, n, word, strlen(word)) != NULL;
}

static const struct think_form *find_think(const char *template, size_t n)
{
    const struct think_form *f = think_forms;

    while (!contains(template, n, f->has)) {
        f++;
    }
    return f;
}

/* Whether the prompt ends inside a thinking span that it opened. */
static bool opened(const char *prompt, const char *open)
{
    const size_t n_open = strlen(open);
    size_t n = prompt ? strlen(prompt) : 0;

    while (n > 0 && json_space(prompt[n - 1])) {
        n--;
    }
    return n >= n_open && memcmp(prompt + n - n_open, open, n_open) == 0;
}

static call_event_fn on_call;

struct answer *answer_new(const char *template, size_t n, const char *prompt, bool tools,
                          slm_part_fn *fn, void *arg, slm_error *err)
{
    struct answer *a = mem_zalloc(1, sizeof *a);

    if (!a) {
        slm_fail_nomem(err, "an answer");
        return NULL;
    }
    buf_init(&a->blanks, 0);
    buf_init(&a->held, 0);
    buf_init(&a->raw, 0);
    buf_init(&a->out, 0);
    a->think = find_think(template ? template : "", template ? n : 0);
    a->form = tools ? tool_form_find(template, n) : NULL;
    a->fn = fn;
    a->arg = arg;
    a->part = opened(prompt, a->think->open) ? SLM_PART_REASONING : SLM_PART_CONTENT;
    a->first = true;
    a->calls = a->form ? calls_new(a->form, NULL, on_call, a, err) : NULL;
    if (a->form && !a->calls) {
        answer_free(a);
        return NULL;
    }
    return a;
}

void answer_free(struct answer *a)
{
    if (a) {
        calls_free(a->calls);
        json_decref(a->tools);
        buf_deinit(&a->blanks);
        buf_deinit(&a->held);
        buf_deinit(&a->raw);
        buf_deinit(&a->out);
        mem_free(a);
    }
}

bool answer_tools(struct answer *a, const char *tools, slm_error *err)
{
    json_error_t at;
    json_t *json = json_loads(tools, 0, &at);

    if (!json_is_array(json)) {
        json_decref(json);
        return slm_fail(err, SLM_E_ARG, "tools: must be a JSON array");
    }
    if (a->form) {
        struct calls *calls = calls_new(a->form, json, on_call, a, err);
        if (!calls) {
            json_decref(json);
            return false;
        }
        calls_free(a->calls);
        a->calls = calls;
    }
    json_decref(a->tools);
    a->tools = json;
    return true;
}

/* ---- telling ----------------------------------------------------------------------------- */

/* Passes the piece on, but for a character that is not complete where more may come. */
static void flush(struct answer *a, bool all)
{
    const size_t n = a->out.len - (all ? 0 : utf8_incomplete(buf_str(&a->out), a->out.len));

    if (n > 0 && !a->stopped && !a->out.failed) {
        a->stopped = !a->fn(a->arg, a->out_part, a->out_index, buf_str(&a->out), n);
    }
    if (n > 0) {
        memmove(a->out.data, a->out.data + n, a->out.len - n);
        a->out.len -= n;
    }
}

static void tell(struct answer *a, slm_part part, int index, const char *s, size_t n)
{
    if (a->out_part != part || a->out_index != index) {
        flush(a, true);
        a->out_part = part;
        a->out_index = index;
    }
    buf_add(&a->out, s, n);
}

/* Names and ends are told whole and at once. */
static void tell_once(struct answer *a, slm_part part, const char *s, size_t n)
{
    flush(a, true);
    if (!a->stopped) {
        a->stopped = !a->fn(a->arg, part, a->index, s, n);
    }
}

static void tell_text(struct answer *a, const struct buf *text)
{
    tell(a, a->part, 0, buf_str(text), text->len);
}

static void on_call(void *arg, enum call_event event, const char *text, size_t n)
{
    struct answer *a = arg;

    switch (event) {
    case CALL_NAME:
        a->told = true;
        tell_once(a, SLM_PART_TOOL, text, n);
        break;
    case CALL_ARGUMENTS:
        tell(a, SLM_PART_ARGUMENTS, a->index, text, n);
        break;
    case CALL_END:
        tell_once(a, SLM_PART_TOOL_END, "", 0);
        a->index++;
        a->told = false;
        break;
    }
}

/* ---- text -------------------------------------------------------------------------------- */

/* Whether newlines in front of text are left out: all but those that begin an answer. */
static bool behind_mark(const struct answer *a)
{
    return !a->began && (!a->first || a->part == SLM_PART_REASONING);
}

static void trim_newlines_in_front(struct buf *b)
{
    size_t n = 0;

    while (n < b->len && (b->data[n] == '\n' || b->data[n] == '\r')) {
        n++;
    }
    if (n > 0) {
        memmove(b->data, b->data + n, b->len - n);
        b->len -= n;
    }
}

static void trim_newlines_behind(struct buf *b)
{
    while (b->len > 0 && (b->data[b->len - 1] == '\n' || b->data[b->len - 1] == '\r')) {
        b->len--;
    }
}

static void tell_blanks(struct answer *a)
{
    if (behind_mark(a)) {
        trim_newlines_in_front(&a->blanks);
    }
    tell_text(a, &a->blanks);
    buf_clear(&a->blanks);
}

static void text_byte(struct answer *a, char b)
{
    if (json_space(b)) {
        buf_putc(&a->blanks, b);
        if (a->blanks.len <= BLANKS_MAX) {
            return;
        }
        tell_blanks(a);
        return;
    }
    tell_blanks(a);
    a->began = true;
    tell(a, a->part, 0, &b, 1);
}

/* Reasoning ends, or the text in front of it does. */
static void turn(struct answer *a, slm_part part)
{
    if (a->began) {
        trim_newlines_behind(&a->blanks);
        tell_text(a, &a->blanks);
    }
    buf_clear(&a->blanks);
    a->part = part;
    a->began = false;
    a->first = false;
}

/* ---- calls ------------------------------------------------------------------------------- */

static void read_byte(struct answer *a, char b);

/* The raw text of a call begins with the blanks in front of it. */
static void begin_call(struct answer *a, int mark, const char *open)
{
    buf_clear(&a->raw);
    buf_add(&a->raw, buf_str(&a->blanks), a->blanks.len);
    buf_puts(&a->raw, open);
    buf_clear(&a->blanks);
    a->in_call = true;
    calls_begin(a->calls, mark);
}

/* How many bytes at the end of the text begin a mark of a call, but not how the text begins. */
static size_t begins_mark_behind(const struct answer *a, const struct buf *text)
{
    for (size_t n = text->len < TAIL_MAX ? text->len : TAIL_MAX; n > 1; n--) {
        const char *end = text->data + text->len - (n - 1);
        for (int i = 0; i < CALL_MARKS_MAX && a->form->mark[i].open; i++) {
            const char *open = a->form->mark[i].open;
            if (strlen(open) > n - 1 && memcmp(end, open, n - 1) == 0) {
                return n - 1;
            }
        }
    }
    return 0;
}

/* No call: its text is text, but for an end that may begin the next one. */
static void give_up_call(struct answer *a)
{
    a->in_call = false;
    if (calls_idle(a->calls)) {
        /* What follows a complete call may be the beginning of something else. */
        struct buf raw = a->raw;
        buf_init(&a->raw, 0);
        for (size_t i = 0; i < raw.len; i++) {
            read_byte(a, raw.data[i]);
        }
        a->out.failed |= raw.failed;
        buf_deinit(&raw);
        return;
    }
    if (a->told) {
        /* The name was told, so its index is used up. */
        a->told = false;
        a->index++;
    }
    if (behind_mark(a)) {
        trim_newlines_in_front(&a->raw);
    }
    char tail[TAIL_MAX];
    const size_t n = begins_mark_behind(a, &a->raw);
    memcpy(tail, buf_str(&a->raw) + a->raw.len - n, n);
    a->raw.len -= n;
    tell_text(a, &a->raw);
    a->began = true;
    buf_clear(&a->raw);
    for (size_t i = 0; i < n; i++) {
        read_byte(a, tail[i]);
    }
}

static void call_byte(struct answer *a, char b)
{
    switch (a->raw.len < CALL_BYTES_MAX ? calls_byte(a->calls, b) : CALL_BAD) {
    case CALL_MORE:
        buf_putc(&a->raw, b);
        break;
    case CALL_COMPLETE:
        a->part = SLM_PART_CONTENT;
        a->began = false;
        a->first = false;
        buf_clear(&a->raw);
        break;
    case CALL_OVER:
        a->in_call = false;
        buf_clear(&a->raw);
        break;
    case CALL_BAD:
        give_up_call(a);
        read_byte(a, b);
        break;
    }
}

/* ---- marks ------------------------------------------------------------------------------- */

/* What may stand here: at most MARKS_MAX rows. */
static int marks_here(const struct answer *a, struct mark *m)
{
    const bool reasoning = a->part == SLM_PART_REASONING;
    int n = 0;

    if (reasoning) {
        m[n++] = (struct mark){ a->think->close, ACT_SAY, 0 };
    }
    for (int i = 0; i < 2 && !reasoning && a->think->drop[i]; i++) {
        m[n++] = (struct mark){ a->think->drop[i], ACT_DROP, 0 };
    }
    /* A model may write the mark although the prompt ended with it. */
    if (reasoning ? !a->began : a->think->anywhere || (!a->began && a->first)) {
        m[n++] = (struct mark){ a->think->open, ACT_THINK, 0 };
    }
    for (int i = 0; a->form && i < CALL_MARKS_MAX && a->form->mark[i].open; i++) {
        if (!reasoning || !a->form->mark[i].strict) {
            m[n++] = (struct mark){ a->form->mark[i].open, ACT_CALL, i };
        }
    }
    return n;
}

static void act_on(struct answer *a, const struct mark *m)
{
    buf_clear(&a->held);
    switch (m->act) {
    case ACT_THINK: turn(a, SLM_PART_REASONING); break;
    case ACT_SAY: turn(a, SLM_PART_CONTENT); break;
    case ACT_CALL: begin_call(a, m->call, m->text); break;
    default: break;
    }
}

/* Decides about the held bytes as far as that is possible. */
static void look_at_held(struct answer *a)
{
    struct mark marks[MARKS_MAX];

    while (a->held.len > 0) {
        const int n = marks_here(a, marks);
        bool begins = false;

        for (int i = 0; i < n; i++) {
            const size_t len = strlen(marks[i].text);
            if (a->held.len > len || memcmp(a->held.data, marks[i].text, a->held.len) != 0) {
                continue;
            }
            if (a->held.len == len) {
                act_on(a, &marks[i]);
                return;
            }
            begins = true;
        }
        if (begins) {
            return;
        }
        text_byte(a, a->held.data[0]);
        memmove(a->held.data, a->held.data + 1, --a->held.len);
    }
}

static void read_byte(struct answer *a, char b)
{
    if (a->in_call) {
        call_byte(a, b);
        return;
    }
    if (b == '{' && a->form && a->form->bare && !a->began && a->held.len == 0 &&
        a->part == SLM_PART_CONTENT) {
        begin_call(a, -1, "");
        call_byte(a, b);
        return;
    }
    buf_putc(&a->held, b);
    look_at_held(a);
}

/* ---- the whole --------------------------------------------------------------------------- */

static bool state(const struct answer *a, slm_error *err)
{
    if (a->out.failed || a->held.failed || a->raw.failed || a->blanks.failed ||
        (a->calls && calls_failed(a->calls))) {
        return slm_fail_nomem(err, "an answer");
    }
    return !a->stopped || slm_fail(err, SLM_E_CANCELLED, "the answer was stopped");
}

bool answer_push(struct answer *a, const char *text, size_t n, slm_error *err)
{
    for (size_t i = 0; i < n && state(a, err); i++) {
        read_byte(a, text[i]);
    }
    flush(a, false);
    return state(a, err);
}

bool answer_finish(struct answer *a, slm_error *err)
{
    while (a->in_call) {
        give_up_call(a);
    }
    for (size_t i = 0; i < a->held.len; i++) {
        text_byte(a, a->held.data[i]);
    }
    buf_clear(&a->held);
    if (a->part == SLM_PART_REASONING) {
        turn(a, SLM_PART_CONTENT);
    } else if (!behind_mark(a)) {
        tell_blanks(a);
    }
    buf_clear(&a->blanks);
    flush(a, true);
    return state(a, err);
}

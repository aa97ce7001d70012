/* toolcall.c - the table of forms, and what stands around calls: marks, lists, separators. */
#include "text/toolcall.h"

#include <string.h>

#include "base/mem.h"
#include "text/call.h"

/* ---- forms ----------------------------------------------------------------------------- */

#define TOOL_CALL_MARK { "<tool_call>", "</tool_call>", false }
#define FENCE_MARK     { "```json", "```", true }
#define FUNCTION_MARK  { "<function=", "", true }

/* The first row that fits a template counts. */
static const struct tool_form forms[] = {
    { .name = "qwen-xml", .layout = CALL_XML,
      .prefix = "<tool_call>\n", .separator = "\n</tool_call>\n<tool_call>\n",
      .suffix = "\n</tool_call>",
      .mark = { TOOL_CALL_MARK, FUNCTION_MARK },
      .has = { "<tool_call>", "<function=" }, .taught = true },
    { .name = "hermes", .layout = CALL_JSON,
      .prefix = "<tool_call>\n", .separator = "\n</tool_call>\n<tool_call>\n",
      .suffix = "\n</tool_call>", .name_key = "name", .args_key = "arguments",
      .mark = { TOOL_CALL_MARK, { "<tools>", "</tools>", true }, FENCE_MARK }, .bare = true,
      .has = { "<tool_call>" }, .lacks = "<arg_key>", .taught = true },
    { .name = "gemma4", .layout = CALL_GEMMA,
      .prefix = "<|tool_call>", .separator = "<tool_call|><|tool_call>",
      .suffix = "<tool_call|>",
      .mark = { { "<|tool_call>", "<tool_call|>", false } },
      .has = { "<|tool_call>call:" }, .taught = true },
    { .name = "mistral-id", .layout = CALL_NAMED,
      .prefix = "[TOOL_CALLS]", .separator = "[TOOL_CALLS]", .suffix = "",
      .middle = "[ARGS]", .id_digits = 9,
      .mark = { { "[TOOL_CALLS]", "", false } },
      .has = { "[TOOL_CALLS]", "[CALL_ID]" }, .taught = true },
    { .name = "mistral-args", .layout = CALL_NAMED,
      .prefix = "[TOOL_CALLS]", .separator = "[TOOL_CALLS]", .suffix = "", .middle = "[ARGS]",
      .mark = { { "[TOOL_CALLS]", "", false } },
      .has = { "[TOOL_CALLS]", "[ARGS]" }, .taught = true },
    { .name = "mistral-list", .layout = CALL_JSON,
      .prefix = "[TOOL_CALLS][", .separator = ", ", .suffix = "]", .name_key = "name",
      .args_key = "arguments",
      .mark = { { "[TOOL_CALLS]", "", false } },
      .has = { "[TOOL_CALLS]" }, .taught = true },
    { .name = "nemotron", .layout = CALL_JSON,
      .prefix = "<TOOLCALL>[", .separator = ", ", .suffix = "]</TOOLCALL>", .name_key = "name",
      .args_key = "arguments",
      .mark = { { "<TOOLCALL>", "</TOOLCALL>", false } },
      .has = { "<TOOLCALL>" }, .taught = true },
    { .name = "granite", .layout = CALL_JSON,
      .prefix = "<|tool_call|>[", .separator = ", ", .suffix = "]", .name_key = "name",
      .args_key = "arguments",
      .mark = { { "<|tool_call|>", "", false }, TOOL_CALL_MARK },
      .has = { "<|start_of_role|>", "<|tool_call|>" }, .taught = true },
    { .name = "phi4", .layout = CALL_JSON,
      .prefix = "<|tool_call|>[", .separator = ", ", .suffix = "]<|/tool_call|>",
      .name_key = "name", .args_key = "arguments",
      .mark = { { "<|tool_call|>", "<|/tool_call|>", false }, { "functools[", "", true } },
      .has = { "<|tool|>" }, .taught = true },
    { .name = "llama3", .layout = CALL_JSON,
      .prefix = "", .separator = NULL, .suffix = "", .name_key = "name", .args_key = "parameters",
      .mark = { { "<|python_tag|>", "", false }, FUNCTION_MARK }, .bare = true,
      .has = { "<|start_header_id|>", "\"parameters\": " }, .taught = true },
    { .name = "llama3", .layout = CALL_JSON,
      .prefix = "", .separator = NULL, .suffix = "", .name_key = "name", .args_key = "parameters",
      .mark = { { "<|python_tag|>", "", false }, FUNCTION_MARK }, .bare = true,
      .has = { "<|start_header_id|>" } },
    /* Models of the ChatML kind know this form also where the template leaves it to the
     * system message. */
    { .name = "hermes", .layout = CALL_JSON,
      .prefix = "<tool_call>\n", .separator = "\n</tool_call>\n<tool_call>\n",
      .suffix = "\n</tool_call>", .name_key = "name", .args_key = "arguments",
      .mark = { TOOL_CALL_MARK, { "<tools>", "</tools>", true }, FENCE_MARK }, .bare = true,
      .has = { "<|im_start|>" }, .lacks = "<arg_key>" },
};

static bool contains(const char *text, size_t n, const char *word)
{
    return memmem(text, n, word, strlen(word)) != NULL;
}

static bool fits_template(const struct tool_form *f, const char *template, size_t n)
{
    for (size_t i = 0; i < 2 && f->has[i]; i++) {
        if (!contains(template, n, f->has[i])) {
            return false;
        }
    }
    return !f->lacks || !contains(template, n, f->lacks);
}

const struct tool_form *tool_form_find(const char *template, size_t n)
{
    for (size_t i = 0; template && i < sizeof forms / sizeof forms[0]; i++) {
        if (fits_template(&forms[i], template, n)) {
            return &forms[i];
        }
    }
    return NULL;
}

/* ---- what stands around calls ------------------------------------------------------------ */

enum place {
    BEFORE,      /* a call or a list, after the mark */
    IN_CALL,
    ITEM,        /* a call, in a list */
    AFTER_ITEM,  /* , or ] */
    AFTER,       /* the closing mark, or a further call */
};

struct calls {
    struct call call;
    enum place place;
    bool list;
    const char *close;   /* the closing mark, "" where there is none */
    size_t n_close;      /* bytes of it so far */
    bool separated;      /* , or ; stands behind the last call */
    enum call_status (*byte)(struct call *c, char b);
};

struct calls *calls_new(const struct tool_form *form, const json_t *tools, call_event_fn *fn,
                        void *arg, slm_error *err)
{
    struct calls *c = mem_zalloc(1, sizeof *c);

    if (!c) {
        slm_fail_nomem(err, "a reader of tool calls");
        return NULL;
    }
    c->call.form = form;
    c->call.tools = tools;
    c->call.fn = fn;
    c->call.arg = arg;
    buf_init(&c->call.name, 0);
    buf_init(&c->call.args, 0);
    buf_init(&c->call.text, 0);
    return c;
}

void calls_free(struct calls *c)
{
    if (c) {
        buf_deinit(&c->call.name);
        buf_deinit(&c->call.args);
        buf_deinit(&c->call.text);
        mem_free(c);
    }
}

void calls_begin(struct calls *c, int i)
{
    const struct call_mark bare = { "", "", true };
    const struct call_mark *m = i < 0 ? &bare : &c->call.form->mark[i];
    const size_t n = strlen(m->open);
    const char last = n > 0 ? m->open[n - 1] : '\0';

    call_reset(&c->call);
    c->call.strict = m->strict;
    c->place = BEFORE;
    c->list = last == '[';
    c->close = m->close;
    c->n_close = 0;
    c->separated = false;
    if (last == '[') {
        c->place = ITEM;
    } else if (last == '=') {
        call_xml_behind_tag(&c->call);
        c->byte = call_xml_byte;
        c->place = IN_CALL;
    }
}

static enum call_status in_call(struct calls *c, char b)
{
    const enum call_status status = c->byte(&c->call, b);

    if (status == CALL_COMPLETE) {
        c->place = c->list ? AFTER_ITEM : AFTER;
        c->n_close = 0;
        c->separated = false;
    }
    return status;
}

static enum call_status begin(struct calls *c, char b,
                              enum call_status (*byte)(struct call *c, char b))
{
    c->byte = byte;
    c->place = IN_CALL;
    return in_call(c, b);
}

/* A call begins with this byte; its layout shows in it. */
static enum call_status before(struct calls *c, char b)
{
    const enum call_layout layout = c->call.form->layout;

    if (json_space(b)) {
        return CALL_MORE;
    }
    if (layout == CALL_GEMMA) {
        return begin(c, b, call_gemma_byte);
    }
    if (b == '[') {
        c->list = true;
        c->place = ITEM;
        return CALL_MORE;
    }
    if (b == '{') {
        return begin(c, b, call_json_byte);
    }
    if (layout == CALL_NAMED) {
        return begin(c, b, call_named_byte);
    }
    return b == '<' ? begin(c, b, call_xml_byte) : CALL_BAD;
}

static enum call_status after(struct calls *c, char b)
{
    if (c->close[c->n_close] == b && b != '\0') {
        return c->close[++c->n_close] == '\0' ? CALL_OVER : CALL_MORE;
    }
    if (c->n_close > 0) {
        return CALL_BAD;
    }
    if (json_space(b)) {
        return CALL_MORE;
    }
    if (b == '{' && !c->list && c->byte == call_json_byte) {
        return begin(c, b, call_json_byte);
    }
    if ((b == ',' || b == ';') && !c->list && !c->separated && c->byte == call_json_byte) {
        c->separated = true;
        return CALL_MORE;
    }
    return CALL_BAD;
}

enum call_status calls_byte(struct calls *c, char b)
{
    switch (c->place) {
    case BEFORE: return before(c, b);
    case IN_CALL: return in_call(c, b);
    case ITEM:
        return b == '{' ? begin(c, b, call_json_byte) : json_space(b) ? CALL_MORE : CALL_BAD;
    case AFTER_ITEM:
        c->place = b == ',' ? ITEM : b == ']' ? AFTER : AFTER_ITEM;
        return b == ']' ? CALL_COMPLETE : b == ',' || json_space(b) ? CALL_MORE : CALL_BAD;
    default: return after(c, b);
    }
}

bool calls_idle(const struct calls *c)
{
    return c->place == AFTER;
}

bool calls_failed(const struct calls *c)
{
    return c->call.failed || c->call.name.failed || c->call.args.failed || c->call.text.failed;
}

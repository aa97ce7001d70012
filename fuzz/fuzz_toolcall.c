/* fuzz_toolcall.c - answers of any bytes, cut anywhere, in every form.
 *
 * The first two bytes choose the form and where the text is cut; what comes out must be the
 * same as without the cut, and complete calls must have arguments that are JSON objects. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text/answer.h"

static const char *const templates[] = {
    "<|im_start|> <tool_call> <think>", "<tool_call> <function= <think>",
    "<|tool_call>call: <|channel>", "<|start_header_id|> \"parameters\": ", "[TOOL_CALLS][",
    "[TOOL_CALLS] [ARGS] [THINK] [CALL_ID]", "<|tool|>", "<|start_of_role|> <|tool_call|>", "",
};

static const char tools[] =
    "[{\"name\": \"f\", \"parameters\": {\"properties\": {\"s\": {\"type\": \"string\"}}}}]";

struct told {
    struct buf text, args;
    int part, index;
};

static bool note(void *arg, slm_part part, int index, const char *text, size_t n)
{
    struct told *t = arg;

    if ((int)part != t->part || index != t->index || part == SLM_PART_TOOL) {
        buf_printf(&t->text, "\n%d %d ", (int)part, index);
        t->part = (int)part;
        t->index = index;
    }
    buf_add(&t->text, text, n);
    if (part == SLM_PART_TOOL) {
        buf_clear(&t->args);
    } else if (part == SLM_PART_ARGUMENTS) {
        buf_add(&t->args, text, n);
    } else if (part == SLM_PART_TOOL_END) {
        json_t *v = json_loadb(buf_str(&t->args), t->args.len, JSON_ALLOW_NUL, NULL);
        if (!json_is_object(v)) {
            abort();
        }
        json_decref(v);
    }
    return true;
}

static void split(const char *template, bool with_tools, const char *s, size_t n, size_t cut,
                  struct told *t)
{
    *t = (struct told){ .part = -1 };
    buf_init(&t->text, 0);
    buf_init(&t->args, 0);
    struct answer *a = answer_new(template, strlen(template), NULL, true, note, t, NULL);
    if (!a || (with_tools && !answer_tools(a, tools, NULL)) || !answer_push(a, s, cut, NULL) ||
        !answer_push(a, s + cut, n - cut, NULL) || !answer_finish(a, NULL)) {
        abort();
    }
    answer_free(a);
    buf_deinit(&t->args);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const size_t n_templates = sizeof templates / sizeof templates[0];
    struct told whole, cut;

    if (size < 2) {
        return 0;
    }
    const char *s = (const char *)data + 2;
    const char *template = templates[data[0] % n_templates];
    const bool with_tools = data[0] >= 128;
    split(template, with_tools, s, size - 2, 0, &whole);
    split(template, with_tools, s, size - 2, data[1] % (size - 1), &cut);
    if (strcmp(buf_str(&whole.text), buf_str(&cut.text)) != 0) {
        abort();
    }
    buf_deinit(&whole.text);
    buf_deinit(&cut.text);
    return 0;
}

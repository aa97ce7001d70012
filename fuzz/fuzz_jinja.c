/* fuzz_jinja.c - any bytes as a template over a fixed conversation, with small limits. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char context_text[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \" Be \\u00e9 brief. \"},"
    " {\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"<s>hi\"}]},"
    " {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"function\": {\"name\": \"f\","
    " \"arguments\": {\"a\": 1, \"b\": [1.5, null, true]}}}]}],"
    " \"tools\": [{\"name\": \"f\", \"parameters\": {\"type\": \"object\"}}],"
    " \"s\": \"text of \\ud83d\\ude00 words\", \"n\": 7, \"f\": 2.5, \"l\": [3, 1, 2]}";

/* Spans must be ascending, disjoint and inside the text. */
static void check_spans(const struct buf *text, const struct buf *spans)
{
    size_t last = 0;

    for (size_t i = 0; i < spans->len; i += sizeof(struct span)) {
        struct span s;

        memcpy(&s, spans->data + i, sizeof s);
        if (s.begin < last || s.begin >= s.end || s.end > text->len) {
            abort();
        }
        last = s.end;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct jinja_env env = {
        .fixed_clock = true,
        .now = 1791210615,
        .limits = { .max_output = 1 << 16, .max_steps = 20000, .max_memory = 1 << 21 },
    };
    static json_t *context;
    slm_error err = { 0 };
    struct jinja *j = jinja_compile((const char *)data, size, &err);
    struct buf text, spans;

    if (context == NULL) {
        context = json_loads(context_text, 0, NULL);
    }
    if (j == NULL) {
        return 0;
    }
    buf_init(&text, 0);
    buf_init(&spans, 0);
    if (jinja_render(j, context, &env, "messages", &text, &spans, &err)) {
        check_spans(&text, &spans);
    }
    buf_deinit(&text);
    buf_deinit(&spans);
    jinja_free(j);
    return 0;
}

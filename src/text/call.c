/* call.c - what the layouts of calls share: names, schemas, arguments and their check. */
#include "text/call.h"

#include <string.h>

void call_clear_text(struct call *c)
{
    c->failed |= c->text.failed;
    buf_clear(&c->text);
}

void call_reset(struct call *c)
{
    c->failed |= c->name.failed | c->args.failed;
    buf_clear(&c->name);
    buf_clear(&c->args);
    call_clear_text(c);
    c->named = false;
    memset(&c->scan, 0, sizeof c->scan);
    memset(&c->at, 0, sizeof c->at);
}

/* The function of element i, which may stand under "function" or by itself. */
static const json_t *tool_at(const json_t *tools, size_t i)
{
    const json_t *tool = json_array_get(tools, i);
    const json_t *function = json_object_get(tool, "function");

    return json_is_object(function) ? function : tool;
}

static const json_t *find_tool(const json_t *tools, const char *name, size_t n)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = tool_at(tools, i);
        const json_t *s = json_object_get(tool, "name");
        if (json_is_string(s) && json_string_length(s) == n &&
            memcmp(json_string_value(s), name, n) == 0) {
            return tool;
        }
    }
    return NULL;
}

const json_t *call_schema(const struct call *c, const char *key, size_t n)
{
    const json_t *tool = find_tool(c->tools, buf_str(&c->name), c->name.len);
    json_t *properties = json_object_get(json_object_get(tool, "parameters"), "properties");
    const char *name;
    json_t *schema;

    json_object_foreach(properties, name, schema) {
        if (strlen(name) == n && memcmp(name, key, n) == 0) {
            return schema;
        }
    }
    return NULL;
}

bool call_name_ok(const struct call *c, const char *s, size_t n)
{
    if (n == 0 || n > CALL_NAME_MAX) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)s[i] <= ' ' || s[i] == 0x7F || strchr("<>{}[]\"", s[i])) {
            return false;
        }
    }
    return !c->strict || !c->tools || find_tool(c->tools, s, n) != NULL;
}

void call_tell_name(struct call *c)
{
    c->named = true;
    c->fn(c->arg, CALL_NAME, buf_str(&c->name), c->name.len);
}

void call_tell_args(struct call *c, const char *s, size_t n)
{
    buf_add(&c->args, s, n);
    c->fn(c->arg, CALL_ARGUMENTS, s, n);
}

const char *call_python_word(const char *s, size_t n)
{
    static const char *const words[][2] = {
        { "True", "true" }, { "False", "false" }, { "None", "null" },
    };

    for (size_t i = 0; i < 3; i++) {
        if (strlen(words[i][0]) == n && memcmp(words[i][0], s, n) == 0) {
            return words[i][1];
        }
    }
    return NULL;
}

bool call_quote(struct buf *out, const char *s, size_t n)
{
    json_t *string = json_stringn(s, n);
    char *text = string ? json_dumps(string, JSON_ENCODE_ANY) : NULL;

    if (text) {
        buf_puts(out, text);
    }
    free(text);
    json_decref(string);
    return text != NULL;
}

enum call_status call_finish(struct call *c)
{
    json_t *args = json_loadb(buf_str(&c->args), c->args.len,
                              JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);
    const bool ok = json_is_object(args);

    json_decref(args);
    if (!ok) {
        return CALL_BAD;
    }
    c->fn(c->arg, CALL_END, "", 0);
    call_reset(c);
    return CALL_COMPLETE;
}

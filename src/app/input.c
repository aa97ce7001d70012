/* input.c - reading what several verbs take. */
#include "app/input.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/out.h"
#include "base/cpu.h"
#include "app/hub.h"
#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"

/* A text that is longer fits no model's context. */
static const size_t TEXT_MAX = (size_t)256 << 20;

bool input_check(const char *what, const char *text, size_t n, slm_error *err)
{
    size_t i = 0;

    while (i < n) {
        uint32_t cp;
        const int len = utf8_decode(text + i, n - i, &cp);
        if (len == 0) {
            return slm_fail_at(err, SLM_E_FORMAT, (int64_t)i,
                               "%s is not UTF-8 text (byte %zu is 0x%02x)", what, i,
                               (unsigned char)text[i]);
        }
        i += (size_t)len;
    }
    return true;
}

bool input_text(const char *path, struct buf *text, slm_error *err)
{
    const char *name = strcmp(path, "-") == 0 ? "standard input" : path;

    return file_read(path, TEXT_MAX, text, err) &&
           input_check(name, buf_str(text), text->len, err);
}

slm_kv_type input_kv(const char *name)
{
    return strcmp(name, "f32") == 0 ? SLM_KV_F32 : strcmp(name, "q8_0") == 0 ? SLM_KV_Q8_0
                                                                              : SLM_KV_F16;
}

slm_pack input_pack(const char *name)
{
    return strcmp(name, "off") == 0 ? SLM_PACK_OFF : strcmp(name, "wait") == 0 ? SLM_PACK_WAIT
                                                                                : SLM_PACK_AUTO;
}

slm_model *input_model(slm_engine *engine, const char *name, const slm_model_params *params,
                       slm_error *err)
{
    char *path = hub_model(name, err);
    slm_model *model = path ? slm_model_open(engine, path, params, err) : NULL;

    mem_free(path);
    return model;
}

int input_context(const slm_model *model, int given)
{
    slm_model_info info;

    if (given > 0) {
        return given;
    }
    slm_model_info_get(model, &info);
    return info.context_max < 4096 ? info.context_max : 4096;
}

bool input_memory(const char *text, uint64_t *bytes)
{
    static const struct { const char *unit; int shift; } units[] = {
        { "", 0 }, { "K", 10 }, { "M", 20 }, { "G", 30 }, { "T", 40 },
        { "KiB", 10 }, { "MiB", 20 }, { "GiB", 30 }, { "TiB", 40 },
    };
    char *end;

    if (*text < '0' || *text > '9') {
        return false;
    }
    const double n = strtod(text, &end);
    if (strcmp(end, "%") == 0) {
        *bytes = (uint64_t)(n / 100 * (double)cpu_ram_bytes());
        return n > 0 && n <= 100;
    }
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        const double v = n * (double)((uint64_t)1 << units[i].shift);
        if (strcasecmp(end, units[i].unit) == 0 && v >= 1 && v < 0x1p62) {
            *bytes = (uint64_t)v;
            return true;
        }
    }
    return false;
}

void input_memory_line(const slm_forecast *f, char *out, size_t cap)
{
    int n = snprintf(out, cap, "weights %s", out_bytes(f->weights_bytes));

    if (f->streamed_bytes > 0) {
        n += snprintf(out + n, cap - (size_t)n, " (%s in memory,", out_bytes(f->pinned_bytes));
        n += snprintf(out + n, cap - (size_t)n, " %s read for every token)",
                      out_bytes(f->streamed_bytes));
    }
    n += snprintf(out + n, cap - (size_t)n, ", keys and values %s", out_bytes(f->kv_bytes));
    n += snprintf(out + n, cap - (size_t)n, ", work %s", out_bytes(f->work_bytes));
    snprintf(out + n, cap - (size_t)n, ", free %s",
             out_bytes(f->free_bytes > f->total_bytes ? f->free_bytes - f->total_bytes : 0));
}

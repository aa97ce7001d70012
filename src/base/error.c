/* error.c - filling in slm_error.
 *
 * Messages quote names and paths that come from files, so they are made
 * harmless here, once: one line, valid UTF-8, no control characters. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* Longest context that slm_wrap looks at: a path and a few words. */
enum { CONTEXT_MAX = 4400 };

/* Replaces what a terminal or a log should not get, and drops a cut character at the end. */
static void tidy(char *s)
{
    size_t n = strlen(s);

    n -= utf8_incomplete(s, n);
    s[n] = '\0';
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = utf8_decode(s + i, n - i, &cp);

        if (len == 0 || cp < 0x20 || (cp >= 0x7F && cp < 0xA0)) {
            int bad = len == 0 ? 1 : len;

            memset(s + i, '?', (size_t)bad);
            i += (size_t)bad;
        } else {
            i += (size_t)len;
        }
    }
}

static bool fail_va(slm_error *err, slm_code code, int64_t position, const char *fmt, va_list args)
{
    if (err == NULL) {
        return false;
    }
    /* The arguments may point into err->msg itself. */
    char msg[sizeof err->msg];

    vsnprintf(msg, sizeof msg, fmt, args);
    tidy(msg);
    err->code = code;
    err->position = position;
    memcpy(err->msg, msg, sizeof msg);
    return false;
}

bool slm_fail(slm_error *err, slm_code code, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    fail_va(err, code, -1, fmt, args);
    va_end(args);
    return false;
}

bool slm_fail_at(slm_error *err, slm_code code, int64_t position, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    fail_va(err, code, position, fmt, args);
    va_end(args);
    return false;
}

bool slm_wrap(slm_error *err, const char *fmt, ...)
{
    if (err == NULL) {
        return false;
    }
    char context[CONTEXT_MAX];
    char old[sizeof err->msg];
    va_list args;

    va_start(args, fmt);
    vsnprintf(context, sizeof context, fmt, args);
    va_end(args);
    memcpy(old, err->msg, sizeof old);

    /* The reason matters more than the context, and a path's end more than its
     * beginning: what does not fit is cut from the front. */
    int room = (int)(sizeof err->msg - 1 - strlen(old)) - 2;
    int n = (int)strlen(context);
    const char *from = context, *mark = "";

    if (n > room) {
        mark = "...";
        from = context + n - (room > 3 ? room - 3 : 0);
        while (utf8_is_continuation(*from)) {
            from++;
        }
    }
    if (room >= 16) {
        snprintf(err->msg, sizeof err->msg, "%s%.*s: %s", mark, room, from, old);
    }
    tidy(err->msg);
    return false;
}

bool slm_fail_nomem(slm_error *err, const char *what)
{
    return slm_fail(err, SLM_E_NOMEM, "not enough memory for %s", what);
}

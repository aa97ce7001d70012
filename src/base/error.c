/* error.c - filling in slm_error.
 *
 * Messages quote names and paths that come from files, so they are made
 * harmless here, once, by utf8_tidy. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* Longest context that slm_wrap looks at: a path and a few words. */
enum { CONTEXT_MAX = 4400 };

static bool fail_va(slm_error *err, slm_code code, int64_t position, const char *fmt, va_list args)
{
    if (err == NULL) {
        return false;
    }
    /* The arguments may point into err->msg itself. */
    char msg[sizeof err->msg];

    vsnprintf(msg, sizeof msg, fmt, args);
    utf8_tidy(msg);
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
    char whole[CONTEXT_MAX + sizeof err->msg];
    va_list args;

    va_start(args, fmt);
    vsnprintf(whole, CONTEXT_MAX - 2, fmt, args);
    va_end(args);

    size_t reason = strlen(whole) + 2;  /* where the old message begins */

    strcat(whole, ": ");
    strcat(whole, err->msg);

    size_t n = strlen(whole), max = sizeof err->msg - 1;

    if (n <= max) {
        memcpy(err->msg, whole, n + 1);
    } else if (n - max + 3 < reason) {
        /* The reason matters more than the context, and a path's end more than its
         * beginning: what does not fit is cut from the front. */
        size_t from = n - max + 3;

        while (utf8_is_continuation(whole[from])) {
            from++;
        }
        memcpy(err->msg, "...", 3);
        memcpy(err->msg + 3, whole + from, n + 1 - from);
    }
    utf8_tidy(err->msg);
    return false;
}

bool slm_fail_nomem(slm_error *err, const char *what)
{
    return slm_fail(err, SLM_E_NOMEM, "not enough memory for %s", what);
}

/* fault.c - faults and their types.
 *
 * Messages quote what the client sent, cut to a number of bytes; utf8_tidy makes them text again,
 * since JSON can hold nothing else. */
#include "server/fault.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/utf8.h"

bool fault_set(struct fault *f, int status, const char *param, const char *fmt, ...)
{
    va_list ap;

    f->status = status;
    f->code = NULL;
    snprintf(f->param, sizeof f->param, "%s", param ? param : "");
    va_start(ap, fmt);
    vsnprintf(f->message, sizeof f->message, fmt, ap);
    va_end(ap);
    utf8_tidy(f->param);
    utf8_tidy(f->message);
    return false;
}

/* HTTP statuses by code, from the list in slm.h. */
static const int statuses[] = {
#define X(name, http, text) [SLM_E_##name] = http,
    SLM_ERROR_CODES(X)
#undef X
};

bool fault_from(struct fault *f, const slm_error *err, const char *param)
{
    fault_set(f, statuses[err->code], param, "%s", err->msg);
    if (err->code == SLM_E_CONTEXT) {
        f->code = "context_length_exceeded";
    } else if (err->code == SLM_E_UNSUPPORTED) {
        f->status = 400;  /* asked for by the client, and asking again will not help */
    } else if (err->code == SLM_E_BUSY) {
        f->code = "queue_full";
    }
    return false;
}

bool fault_no_memory(struct fault *f)
{
    return fault_set(f, 503, NULL, "not enough memory for the request");
}

const char *fault_type(int status)
{
    static const struct { int status; const char *type; } types[] = {
        { 401, "authentication_error" }, { 403, "permission_error" }, { 404, "not_found_error" },
        { 429, "rate_limit_error" },
    };

    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (types[i].status == status) {
            return types[i].type;
        }
    }
    return status >= 500 ? "server_error" : "invalid_request_error";
}

/* error.h - errors as values.
 *
 * A function that can fail returns bool or a pointer and takes slm_error *err
 * last; NULL is allowed there.  The codes and the struct are the public ones. */
#ifndef ERROR_H
#define ERROR_H

#include "slm.h"

#define PRINTF_LIKE(fmt_arg, first_arg) __attribute__((format(printf, fmt_arg, first_arg)))

/* Sets *err (code, message, position -1) and returns false. */
bool slm_fail(slm_error *err, slm_code code, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* The same with a byte offset or line number. */
bool slm_fail_at(slm_error *err, slm_code code, int64_t position, const char *fmt, ...)
    PRINTF_LIKE(4, 5);

/* Puts "context: " in front of the message that *err holds, and returns false. */
bool slm_wrap(slm_error *err, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* "not enough memory for WHAT" */
bool slm_fail_nomem(slm_error *err, const char *what);

#endif

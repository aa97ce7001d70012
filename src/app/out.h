/* out.h - what the program prints: results on standard output, everything else on
 * standard error.
 *
 * Results may go to a pipe that closes or a disk that is full.  Printing never checks;
 * out_finish does, once, and turns it into the exit code. */
#ifndef OUT_H
#define OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "slm.h"

/* A closed pipe and a file at its size limit become failed writes instead of signals. */
void out_init(void);

/* Standard output. */
void out_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void out_write(const char *s, size_t n);

/* Sends what was printed on its way; false when nobody can get it any more. */
bool out_flush(void);

/* Flushes and returns `code`, or 0 where the reader of a pipe has gone (it has what it
 * wanted), or 1 after a line about the error. */
int out_finish(int code);

/* Text from a file or a model that must not disturb the terminal: control characters and
 * invalid bytes as \n, \t or \xNN, at most `max` bytes of input (0: all), then "...". */
void out_quoted(const char *s, size_t n, size_t max);

/* One JSON value on a line of its own; frees it.  Prints nothing for NULL. */
void out_json(json_t *value, bool indent);

/* JSON string of n bytes in which invalid UTF-8 is U+FFFD. */
json_t *out_json_text(const char *s, size_t n);

/* Standard error, "slm: " in front where the line does not begin with "slm". */
void out_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void out_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Without notes and warnings. */
void out_set_quiet(bool quiet);
bool out_is_quiet(void);

/* Prints "slm: MESSAGE" with the details that were logged, on one line; returns 1. */
int out_fail(const slm_error *err);

/* "12.3 MiB" in one of a few static buffers. */
const char *out_bytes(uint64_t bytes);

/* Progress on a terminal's standard error; done = total removes it. */
void out_progress(const char *what, size_t done, size_t total);

#endif

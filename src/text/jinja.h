/* jinja.h - the template language of chat templates, as Jinja2 renders it.
 *
 * Environment: immutable sandbox, plain Undefined, trim_blocks, lstrip_blocks, loop
 * controls, {% generation %}, no autoescape, no trailing newline.  A template is
 * untrusted: nesting, steps and output size are bounded, and whatever goes wrong is an
 * error with the line and the reason. */
#ifndef JINJA_H
#define JINJA_H

#include <jansson.h>

#include "base/buf.h"
#include "base/error.h"
#include "text/span.h"

struct jinja;

/* Parses.  Errors have err->position = line. */
struct jinja *jinja_compile(const char *source, size_t n, slm_error *err);
void jinja_free(struct jinja *j);

struct jinja_limits {
    size_t max_output;   /* bytes; 0: default */
    uint64_t max_steps;  /* evaluated nodes; 0: default */
    size_t max_memory;   /* bytes of values; 0: default */
};

struct jinja_env {
    bool fixed_clock;     /* strftime_now gives `now` instead of the local time */
    int64_t now;          /* seconds since 1970 of the local time shown */
    struct jinja_limits limits;
};

/* Renders with the members of `context` as top-level variables and appends to out.
 * `marked` (may be NULL) names a top-level variable: the spans of the output that came
 * from strings inside it are appended to `spans` as struct span, ascending and
 * disjoint. */
bool jinja_render(const struct jinja *j, json_t *context, const struct jinja_env *env,
                  const char *marked, struct buf *out, struct buf *spans, slm_error *err);

#endif

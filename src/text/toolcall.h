/* toolcall.h - the forms in which models call tools, and reading a call as it arrives.
 *
 * A form is a row of a table: how its calls are laid out, what stands around and between
 * them, and by which texts a template shows that its model was taught it.  The reader and
 * whoever constrains a model to calls work from the same row. */
#ifndef TOOLCALL_H
#define TOOLCALL_H

#include <jansson.h>

#include "base/buf.h"
#include "base/error.h"

/* What one call looks like between prefix or separator and the next. */
enum call_layout {
    CALL_JSON,   /* {"NAME_KEY": "f", "ARGS_KEY": {...}} */
    CALL_NAMED,  /* f MIDDLE {...} */
    CALL_XML,    /* <function=f>\n then for each argument <parameter=KEY>\nVALUE\n</parameter>\n
                  * and </function>; a string VALUE is written as it is, others as JSON */
    CALL_GEMMA,  /* call:f{KEY:VALUE,KEY:VALUE}; a string is <|"|>text<|"|>, other values are as
                  * in JSON but for the keys of objects, which stand without quotes */
};

/* Texts that begin a call in an answer, and what may close it. */
struct call_mark {
    const char *open, *close;
    bool strict;  /* open also occurs in plain text: only what is a call beyond doubt is one */
};

enum { CALL_MARKS_MAX = 4 };

struct tool_form {
    const char *name;
    enum call_layout layout;

    /* As the model writes n calls: prefix, call, separator, call, ..., suffix.  separator is
     * NULL where only one call is possible. */
    const char *prefix, *separator, *suffix;
    const char *name_key, *args_key;    /* CALL_JSON */
    const char *middle;                 /* CALL_NAMED */
    int id_digits;                      /* CALL_NAMED: middle begins with "[CALL_ID]" and so many
                                         * letters or digits stand behind it; 0: none */

    /* How answers are read. */
    struct call_mark mark[CALL_MARKS_MAX];  /* ended by a NULL open */
    bool bare;                              /* an answer may be a JSON call without marks */

    /* How templates are recognised: all of `has`, and not `lacks`. */
    const char *has[2], *lacks;
    bool taught;                        /* false: the template itself says nothing of tools */
};

/* The form that a template teaches; NULL where none is known. */
const struct tool_form *tool_form_find(const char *template, size_t n);

/* ---- reading --------------------------------------------------------------------------- */

enum call_event {
    CALL_NAME,       /* text: the tool; a call begins */
    CALL_ARGUMENTS,  /* text: a piece of its arguments, JSON */
    CALL_END,        /* the call is complete, its arguments are a valid JSON object */
};

typedef void call_event_fn(void *arg, enum call_event event, const char *text, size_t n);

/* Reads from behind an opening mark on: one call or several. */
struct calls;

/* tools: a JSON array as templates get it, borrowed, or NULL where the tools are not known.
 * With it strict marks need a known tool, and arguments in XML have the types of its schemas;
 * without it they are JSON where they can be. */
struct calls *calls_new(const struct tool_form *form, const json_t *tools, call_event_fn *fn,
                        void *arg, slm_error *err);
void calls_free(struct calls *c);

/* Behind mark `i` of the form, or, for i = -1, in front of a call without a mark. */
void calls_begin(struct calls *c, int i);

enum call_status {
    CALL_MORE,
    CALL_COMPLETE,  /* a call, or the list of calls, is complete with this byte; more may follow */
    CALL_OVER,      /* the byte ended the closing mark */
    CALL_BAD,       /* the byte was not taken: no call, or no further one, is here */
};

enum call_status calls_byte(struct calls *c, char b);

/* Whether nothing has begun since the last complete call, so that what was read since is
 * plain text. */
bool calls_idle(const struct calls *c);

/* Whether memory ran out. */
bool calls_failed(const struct calls *c);

#endif

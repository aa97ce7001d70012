/* call.h - one call while it is read; what the layouts share. */
#ifndef CALL_H
#define CALL_H

#include "text/json_scan.h"
#include "text/toolcall.h"

/* Longest name of a tool or an argument. */
enum { CALL_NAME_MAX = 256 };

struct call {
    const struct tool_form *form;
    const json_t *tools;
    bool strict;
    call_event_fn *fn;
    void *arg;

    struct buf name, args;  /* so far */
    bool named;             /* CALL_NAME was told */
    struct buf text;        /* scratch of the layout */
    bool failed;            /* memory ran out in one of them, before it was emptied */
    struct json_scan scan;

    /* Layout's own; zeroed before each call. */
    struct {
        int step;
        size_t begin;       /* of the value or key that is being read, in `text` */
        size_t n;           /* bytes that fit so far, or arguments so far */
        bool is_name, is_args, passing, has_args;
        size_t args_begin, args_end;
        int depth;
        bool quoted_key;
        uint64_t object[JSON_DEPTH_MAX / 64];
    } at;
};

/* Makes ready for the next call. */
void call_reset(struct call *c);

/* Empties c->text. */
void call_clear_text(struct call *c);

/* Whether s can be the name of a tool that may be called here. */
bool call_name_ok(const struct call *c, const char *s, size_t n);

/* Tells the name that is in c->name. */
void call_tell_name(struct call *c);

/* Adds to the arguments and tells it. */
void call_tell_args(struct call *c, const char *s, size_t n);

/* JSON for Python's True, False and None, which models write too; NULL for other text. */
const char *call_python_word(const char *s, size_t n);

/* Appends text as a JSON string; false where it is no UTF-8. */
bool call_quote(struct buf *out, const char *s, size_t n);

/* Ends the call: CALL_COMPLETE where the arguments are an object, else CALL_BAD. */
enum call_status call_finish(struct call *c);

/* The schema of an argument, or NULL. */
const json_t *call_schema(const struct call *c, const char *key, size_t n);

/* Each takes one byte of a call in its layout. */
enum call_status call_json_byte(struct call *c, char b);
enum call_status call_named_byte(struct call *c, char b);
enum call_status call_xml_byte(struct call *c, char b);
enum call_status call_gemma_byte(struct call *c, char b);

/* The call begins behind "<function=". */
void call_xml_behind_tag(struct call *c);

#endif

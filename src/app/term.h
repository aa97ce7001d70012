/* term.h - reading lines from people and pipes, and colours for people.
 *
 * On a terminal lines are edited with libedit, where it was there at build time: history in a
 * file, and pasted text goes into the line as it is, with its newlines.  Elsewhere lines are
 * read plainly. */
#ifndef TERM_H
#define TERM_H

#include <stdbool.h>

#include "base/buf.h"

struct term;

enum term_event {
    TERM_LINE,
    TERM_END,        /* no more input */
    TERM_INTERRUPT,  /* Ctrl-C instead of a line */
};

/* NULL without memory.  The history is $SLM_HISTORY, else slm/history in $XDG_STATE_HOME, else
 * ~/.local/state/slm/history; an empty name keeps none. */
struct term *term_new(void);
void term_free(struct term *t);

/* Whether somebody sits there: standard input and output are terminals. */
bool term_interactive(const struct term *t);

/* Whether lines can be edited. */
bool term_edits(const struct term *t);

/* One line without its newline; a prompt is shown to people only. */
enum term_event term_line(struct term *t, const char *prompt, struct buf *line);

/* Adds an entry to the history. */
void term_remember(struct term *t, const char *text);

/* Whether standard output takes colours: a terminal, and NO_COLOR is not set. */
bool term_colors(void);

#endif

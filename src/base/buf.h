/* buf.h - growable bytes with sticky failure.
 *
 * Append freely and check `failed` once.  The content is always followed by a
 * NUL that does not count. */
#ifndef BUF_H
#define BUF_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct buf {
    char *data;   /* NULL while empty and never grown */
    size_t len, cap;
    size_t max;   /* limit on len; 0: none */
    bool failed;  /* out of memory or over max */
};

/* max: limit in bytes, 0 for none. */
void buf_init(struct buf *b, size_t max);
void buf_deinit(struct buf *b);
/* Empties b for new content: keeps the memory and forgets a failure. */
void buf_clear(struct buf *b);

/* On failure the content stays what it was before and b takes nothing more. */

void buf_add(struct buf *b, const void *p, size_t n);
void buf_putc(struct buf *b, char c);
void buf_puts(struct buf *b, const char *s);
void buf_printf(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* NUL-terminated content; "" when empty.  Valid until the next change. */
const char *buf_str(const struct buf *b);

/* Hands the content over (free with mem_free; n may be NULL) and leaves b empty.
 * NULL when failed, and b stays as it is. */
char *buf_take(struct buf *b, size_t *n);

#endif

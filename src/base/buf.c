/* buf.c - growable bytes with sticky failure. */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

void buf_init(struct buf *b, size_t max)
{
    *b = (struct buf){.max = max};
}

void buf_deinit(struct buf *b)
{
    mem_free(b->data);
    *b = (struct buf){.max = b->max};
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    b->failed = false;
    if (b->data != NULL) {
        b->data[0] = '\0';
    }
}

/* Makes room for n more bytes and the NUL; false and failed when that is not possible. */
static bool reserve(struct buf *b, size_t n)
{
    size_t need;

    if (b->failed || !size_add(b->len, n, &need) || need > SIZE_MAX / 4 ||
        (b->max != 0 && need > b->max)) {
        b->failed = true;
        return false;
    }
    if (need < b->cap) {
        return true;
    }
    /* Doubling keeps the cost per byte constant, a limit keeps it from overshooting. */
    size_t cap = b->cap < 32 ? 64 : b->cap * 2;

    if (cap < need + 1) {
        cap = need + 1;
    }
    if (b->max != 0 && cap > b->max + 1) {
        cap = b->max + 1;
    }
    char *data = mem_realloc(b->data, cap, 1);

    if (data == NULL) {
        b->failed = true;
        return false;
    }
    b->data = data;
    b->cap = cap;
    return true;
}

void buf_add(struct buf *b, const void *p, size_t n)
{
    if (n == 0 || !reserve(b, n)) {
        return;
    }
    memcpy(b->data + b->len, p, n);
    b->len += n;
    b->data[b->len] = '\0';
}

void buf_putc(struct buf *b, char c)
{
    buf_add(b, &c, 1);
}

void buf_puts(struct buf *b, const char *s)
{
    buf_add(b, s, strlen(s));
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    /* Most results are short; only long ones are formatted twice. */
    char small[256];
    va_list args;

    va_start(args, fmt);
    int n = vsnprintf(small, sizeof small, fmt, args);
    va_end(args);
    if (n < 0) {
        b->failed = true;
    } else if ((size_t)n < sizeof small) {
        buf_add(b, small, (size_t)n);
    } else if (reserve(b, (size_t)n)) {
        va_start(args, fmt);
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, args);
        va_end(args);
        b->len += (size_t)n;
    }
}

const char *buf_str(const struct buf *b)
{
    return b->data != NULL ? b->data : "";
}

char *buf_take(struct buf *b, size_t *n)
{
    if (!reserve(b, 0)) {
        return NULL;
    }
    char *data = b->data;

    data[b->len] = '\0';
    if (n != NULL) {
        *n = b->len;
    }
    *b = (struct buf){.max = b->max};
    return data;
}

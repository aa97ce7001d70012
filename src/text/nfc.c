/* nfc.c - normal form C on top of utf8proc's tables.
 *
 * utf8proc's own whole-text function orders marks by swapping neighbours, which is
 * quadratic in a long run of marks.  Here only the stretches that can change are
 * normalised, and marks are ordered by counting. */
#include "text/nfc.h"

#include <string.h>
#include <utf8proc.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/unicode.h"

bool nfc_differs(const char *s, size_t n)
{
    uint32_t cp;

    if (utf8_is_ascii(s, n)) {
        return false;
    }
    for (size_t i = 0; i < n;) {
        /* Nothing below U+0300 changes by itself or combines with what is before. */
        if ((unsigned char)s[i] < 0xCC) {
            i++;
            continue;
        }
        i += unicode_next(s + i, &cp);
        if (unicode_class(cp) & UC_NFC) {
            return true;
        }
    }
    return false;
}

static unsigned combining_class(int32_t cp)
{
    return (unsigned)utf8proc_get_property(cp)->combining_class;
}

/* Sorts a run of marks by their class, keeping the order of equals. */
static void order_marks(int32_t *cp, size_t n, int32_t *temp)
{
    size_t at[257] = {0};

    if (n <= 16) {
        for (size_t i = 1; i < n; i++) {
            int32_t x = cp[i];
            size_t k = i;

            for (; k > 0 && combining_class(cp[k - 1]) > combining_class(x); k--) {
                cp[k] = cp[k - 1];
            }
            cp[k] = x;
        }
        return;
    }
    for (size_t i = 0; i < n; i++) {
        at[(combining_class(cp[i]) & 255) + 1]++;
    }
    for (int c = 0; c < 256; c++) {
        at[c + 1] += at[c];
    }
    for (size_t i = 0; i < n; i++) {
        temp[at[combining_class(cp[i]) & 255]++] = cp[i];
    }
    memcpy(cp, temp, n * sizeof *cp);
}

static void order_all(int32_t *cp, size_t n, int32_t *temp)
{
    for (size_t i = 0; i < n;) {
        size_t k = i;

        while (k < n && combining_class(cp[k]) > 0) {
            k++;
        }
        if (k > i + 1) {
            order_marks(cp + i, k - i, temp);
        }
        i = k > i ? k : i + 1;
    }
}

/* A canonical decomposition has four code points at most, in practice; asked for again
 * with what utf8proc says it needs otherwise. */
static size_t decompose(const char *s, size_t n, int32_t *cp, size_t cap)
{
    size_t len = 0;
    uint32_t c;

    for (size_t i = 0; i < n;) {
        int boundary = 0;

        i += unicode_next(s + i, &c);
        utf8proc_ssize_t k = utf8proc_decompose_char((utf8proc_int32_t)c, cp + len,
                                                     (utf8proc_ssize_t)(cap - len),
                                                     UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
                                                     &boundary);
        if (k <= 0 || (size_t)k > cap - len) {
            cp[len++] = (int32_t)c;  /* keep what cannot be decomposed */
        } else {
            len += (size_t)k;
        }
    }
    return len;
}

static void append_stretch(struct buf *out, const char *s, size_t n)
{
    size_t cap = 4 * utf8_count(s, n);
    int32_t *cp = mem_alloc(cap, 2 * sizeof *cp);

    if (cp == NULL) {
        out->failed = true;
        return;
    }
    size_t len = decompose(s, n, cp, cap);

    order_all(cp, len, cp + cap);
    utf8proc_ssize_t composed = utf8proc_normalize_utf32(cp, (utf8proc_ssize_t)len,
                                                         UTF8PROC_STABLE | UTF8PROC_COMPOSE);

    for (utf8proc_ssize_t i = 0; i < composed; i++) {
        char utf8[4];

        buf_add(out, utf8, (size_t)utf8_encode((uint32_t)cp[i], utf8));
    }
    mem_free(cp);
}

/* A stretch is a character and all flagged ones behind it: what is not flagged stays as it
 * is and does not combine with what is before. */
void nfc_append(struct buf *out, const char *s, size_t n)
{
    size_t copied = 0;
    size_t last = 0;  /* the character before i */
    uint32_t cp;

    for (size_t i = 0; i < n;) {
        size_t len = unicode_next(s + i, &cp);

        if (!(unicode_class(cp) & UC_NFC)) {
            last = i;
            i += len;
            continue;
        }
        size_t end = i + len;

        while (end < n) {
            len = unicode_next(s + end, &cp);
            if (!(unicode_class(cp) & UC_NFC)) {
                break;
            }
            end += len;
        }
        buf_add(out, s + copied, last - copied);
        append_stretch(out, s + last, end - last);
        copied = end;
        last = end;
        i = end;
    }
    buf_add(out, s + copied, n - copied);
}

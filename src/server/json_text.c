/* json_text.c - JSON strings of bytes that a model made. */
#include "server/json_text.h"

#include "base/buf.h"
#include "base/utf8.h"

json_t *json_text(const char *s, size_t n)
{
    struct buf b;
    json_t *text = NULL;

    if (utf8_valid(s, n)) {
        return json_stringn_nocheck(s, n);
    }
    buf_init(&b, 0);
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        const int len = utf8_decode(s + i, n - i, &cp);
        if (len > 0) {
            buf_add(&b, s + i, (size_t)len);
        } else {
            buf_puts(&b, "\xEF\xBF\xBD");
        }
        i += (size_t)(len ? len : 1);
    }
    if (!b.failed) {
        text = json_stringn_nocheck(buf_str(&b), b.len);
    }
    buf_deinit(&b);
    return text;
}

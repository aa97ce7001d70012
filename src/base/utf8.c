/* utf8.c - strict UTF-8, after table 3-7 of the Unicode standard. */
#include "base/utf8.h"

#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* What the first byte says: length, and the range of the second byte.  The
 * narrower ranges exclude overlong forms, surrogates and values above U+10FFFF. */
struct lead {
    unsigned char len, lo, hi;
};

static struct lead lead_of(unsigned char c)
{
    if (c < 0x80) {
        return (struct lead){1, 0, 0};
    }
    if (c < 0xC2) {
        return (struct lead){0, 0, 0};
    }
    if (c < 0xE0) {
        return (struct lead){2, 0x80, 0xBF};
    }
    if (c < 0xF0) {
        return (struct lead){3, c == 0xE0 ? 0xA0 : 0x80, c == 0xED ? 0x9F : 0xBF};
    }
    if (c < 0xF5) {
        return (struct lead){4, c == 0xF0 ? 0x90 : 0x80, c == 0xF4 ? 0x8F : 0xBF};
    }
    return (struct lead){0, 0, 0};
}

/* Bytes of the character at s that are there and right: the lead and its valid
 * continuation, at most `lead.len`.  n >= 1 and lead.len >= 1. */
static size_t valid_prefix(const unsigned char *s, size_t n, struct lead lead)
{
    size_t want = n < lead.len ? n : lead.len;

    for (size_t i = 1; i < want; i++) {
        unsigned char lo = i == 1 ? lead.lo : 0x80;
        unsigned char hi = i == 1 ? lead.hi : 0xBF;

        if (s[i] < lo || s[i] > hi) {
            return i;
        }
    }
    return want;
}

int utf8_decode(const char *s, size_t n, uint32_t *cp)
{
    const unsigned char *u = (const unsigned char *)s;

    if (n == 0) {
        return 0;
    }
    if (u[0] < 0x80) {
        *cp = u[0];
        return 1;
    }
    struct lead lead = lead_of(u[0]);

    if (lead.len == 0 || valid_prefix(u, n, lead) < lead.len) {
        return 0;
    }
    uint32_t c = u[0] & (0x7Fu >> lead.len);

    for (int i = 1; i < lead.len; i++) {
        c = c << 6 | (u[i] & 0x3Fu);
    }
    *cp = c;
    return lead.len;
}

int utf8_encode(uint32_t cp, char out[4])
{
    if (cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000)) {
        cp = UTF8_REPLACEMENT;
    }
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

bool utf8_is_ascii(const char *s, size_t n)
{
    uint64_t high = 0;
    size_t i = 0;

    for (; i + 64 <= n; i += 64) {
        uint64_t x[8];

        memcpy(x, s + i, sizeof x);
        high = ((x[0] | x[1]) | (x[2] | x[3])) | ((x[4] | x[5]) | (x[6] | x[7]));
        if (high & 0x8080808080808080u) {
            return false;
        }
    }
    for (; i < n; i++) {
        high |= (unsigned char)s[i];
    }
    return !(high & 0x8080808080808080u);
}

/* The end of the characters of three bytes at s + i whose second byte may be any. */
static size_t skip_plain_three(const unsigned char *u, size_t i, size_t n)
{
    while (n - i >= 3 && (u[i] & 0xF0) == 0xE0 && u[i] != 0xE0 && u[i] != 0xED &&
           (u[i + 1] & 0xC0) == 0x80 && (u[i + 2] & 0xC0) == 0x80) {
        i += 3;
    }
    return i;
}

/* The end of the valid characters at s + i, some of them at or behind `end`, or where one before it
 * is not valid. */
static size_t skip_valid(const char *s, size_t i, size_t end, size_t n)
{
    while (i < end) {
        uint32_t cp;

        i = skip_plain_three((const unsigned char *)s, i, n);
        int len = i < n ? utf8_decode(s + i, n - i, &cp) : 0;

        if (len == 0) {
            break;
        }
        i += (size_t)len;
    }
    return i;
}

#ifdef __SSE2__

static inline uint64_t at_least(__m128i x, int first)
{
    __m128i less = _mm_set1_epi8((char)(first - 1));

    return (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpgt_epi8(x, less));
}

static inline uint64_t equal(__m128i x, int byte)
{
    return (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(x, _mm_set1_epi8((char)byte)));
}

/* The end of the characters in the 64 bytes at s + i, or i where one is not valid.  Characters of
 * two and three bytes are right if the bytes that go on are just those behind their first; where
 * more is to say about a first byte, all characters are looked at one by one. */
static size_t skip_block(const char *s, size_t i, size_t n)
{
    __m128i x[4];

    for (int k = 0; k < 4; k++) {
        x[k] = _mm_loadu_si128((const __m128i *)(const void *)(s + i + 16 * k));
    }
    if (_mm_movemask_epi8(_mm_or_si128(_mm_or_si128(x[0], x[1]), _mm_or_si128(x[2], x[3]))) == 0) {
        return i + 64;
    }
    uint64_t high = 0, lead = 0, three = 0, odd = 0;

    for (int k = 0; k < 4; k++) {
        uint64_t below = (uint64_t)(uint32_t)_mm_movemask_epi8(x[k]);  /* signed: below 0 */

        high |= below << 16 * k;
        lead |= (at_least(x[k], -0x40) & below) << 16 * k;
        three |= (at_least(x[k], -0x20) & below) << 16 * k;
        odd |= ((at_least(x[k], -0x10) & below) | equal(x[k], 0xC0) | equal(x[k], 0xC1) |
                equal(x[k], 0xE0) | equal(x[k], 0xED)) << 16 * k;
    }
    if (odd != 0) {
        size_t end = skip_valid(s, i, i + 64, n);

        return end < i + 64 ? i : end;
    }
    if ((high & ~lead) != (lead << 1 | three << 2)) {
        return i;
    }
    /* The last character may go on behind the block. */
    uint64_t cut = (lead >> 63) << 63 | (three >> 62 & 1) << 62;

    return i + (cut == 0 ? 64 : (size_t)__builtin_ctzll(cut));
}

#else

static size_t skip_block(const char *s, size_t i, size_t n)
{
    size_t end = utf8_is_ascii(s + i, 64) ? i + 64 : skip_valid(s, i, i + 64, n);

    return end < i + 64 ? i : end;
}

#endif

bool utf8_valid(const char *s, size_t n)
{
    size_t i = 0;

    while (n - i >= 64) {
        size_t end = skip_block(s, i, n);

        if (end == i) {
            return false;
        }
        i = end;
    }
    return skip_valid(s, i, n, n) == n;
}

size_t utf8_count(const char *s, size_t n)
{
    size_t count = 0;

    for (size_t i = 0; i < n; i++) {
        count += !utf8_is_continuation(s[i]);
    }
    return count;
}

size_t utf8_incomplete(const char *s, size_t n)
{
    const unsigned char *u = (const unsigned char *)s;

    for (size_t back = 1; back <= 3 && back <= n; back++) {
        if (utf8_is_continuation(s[n - back])) {
            continue;
        }
        struct lead lead = lead_of(u[n - back]);

        if (lead.len > back && valid_prefix(u + n - back, back, lead) == back) {
            return back;
        }
        return 0;
    }
    return 0;
}

void utf8_tidy(char *s)
{
    size_t n = strlen(s);

    n -= utf8_incomplete(s, n);
    s[n] = '\0';
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = utf8_decode(s + i, n - i, &cp);

        if (len == 0 || cp < 0x20 || (cp >= 0x7F && cp < 0xA0)) {
            int bad = len == 0 ? 1 : len;

            memset(s + i, '?', (size_t)bad);
            i += (size_t)bad;
        } else {
            i += (size_t)len;
        }
    }
}

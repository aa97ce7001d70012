/* utf8.h - strict UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef UTF8_H
#define UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UTF8_REPLACEMENT 0xFFFDu

/* Whether c can only be the second or a later byte of a character. */
static inline bool utf8_is_continuation(char c)
{
    return ((unsigned char)c & 0xC0) == 0x80;
}

/* Length 1..4 of the character at s (n bytes there), its code point in *cp;
 * 0 where no valid character begins. */
int utf8_decode(const char *s, size_t n, uint32_t *cp);

/* Writes cp, returns the length 1..4.  What is not a character (a surrogate,
 * above U+10FFFF) becomes U+FFFD. */
int utf8_encode(uint32_t cp, char out[4]);

bool utf8_is_ascii(const char *s, size_t n);

bool utf8_valid(const char *s, size_t n);

/* Code points in valid text. */
size_t utf8_count(const char *s, size_t n);

/* How many bytes at the end of s are the beginning of a character that is not
 * complete yet: 0..3.  Invalid bytes count as complete. */
size_t utf8_incomplete(const char *s, size_t n);

/* Makes the string s fit for a terminal, a log or a reply, in place: one line of valid UTF-8
 * without control characters.  What is neither becomes "?", and a character that was cut at the
 * end is dropped. */
void utf8_tidy(char *s);

#endif

/* unicode.h - character classes of the pre-tokenisers, from Unicode 16.
 *
 * One class bit a character at most; what has none is a control, format, private
 * or unassigned code point. */
#ifndef UNICODE_H
#define UNICODE_H

#include <stddef.h>
#include <stdint.h>

enum {
    UC_UPPER = 1 << 0,   /* \p{Lu} \p{Lt} */
    UC_LOWER = 1 << 1,   /* \p{Ll} */
    UC_ALPHA = 1 << 2,   /* \p{Lm} \p{Lo}: letters without case */
    UC_NUMBER = 1 << 3,  /* \p{N} */
    UC_MARK = 1 << 4,    /* \p{M} */
    UC_PUNCT = 1 << 5,   /* \p{P} */
    UC_SYMBOL = 1 << 6,  /* \p{S} */
    UC_SPACE = 1 << 7,   /* \s */
    UC_NFC = 1 << 8,     /* may not stand as it is in normal form C */
    UC_LETTER = UC_UPPER | UC_LOWER | UC_ALPHA,
};

enum { UNICODE_BLOCK = 128, UNICODE_BLOCKS = 0x110000 / UNICODE_BLOCK };

extern const uint16_t unicode_index[UNICODE_BLOCKS];
extern const uint16_t unicode_bits[];

/* Class bits of an ASCII character, which is in the first block. */
static inline unsigned unicode_ascii_class(unsigned char c)
{
    return unicode_bits[c];
}

/* Class bits of a code point up to U+10FFFF. */
static inline unsigned unicode_class(uint32_t cp)
{
    return unicode_bits[unicode_index[cp / UNICODE_BLOCK] * UNICODE_BLOCK + cp % UNICODE_BLOCK];
}

/* The character at s, which must be the beginning of a valid one; returns its length. */
static inline size_t unicode_next(const char *s, uint32_t *cp)
{
    const unsigned char *u = (const unsigned char *)s;

    if (u[0] < 0x80) {
        *cp = u[0];
        return 1;
    }
    if (u[0] < 0xE0) {
        *cp = (u[0] & 0x1Fu) << 6 | (u[1] & 0x3Fu);
        return 2;
    }
    if (u[0] < 0xF0) {
        *cp = (u[0] & 0x0Fu) << 12 | (u[1] & 0x3Fu) << 6 | (u[2] & 0x3Fu);
        return 3;
    }
    *cp = (u[0] & 0x07u) << 18 | (u[1] & 0x3Fu) << 12 | (u[2] & 0x3Fu) << 6 | (u[3] & 0x3Fu);
    return 4;
}

#endif

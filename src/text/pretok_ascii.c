/* pretok_ascii.c - which of 64 bytes start a piece, see pretok_ascii.h. */
#include "text/pretok_ascii.h"

#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* ---- classes ----------------------------------------------------------------------- */

#ifdef __SSE2__

/* 0xFF where first <= byte < first + n.  Moves the range to the lowest signed numbers. */
static inline __m128i in_range(__m128i x, int first, int n)
{
    return _mm_cmplt_epi8(_mm_add_epi8(x, _mm_set1_epi8((char)(128 - first))),
                          _mm_set1_epi8((char)(n - 128)));
}

static inline uint64_t bits(__m128i x)
{
    return (uint64_t)(uint32_t)_mm_movemask_epi8(x);
}

/* Sets the masks and returns the bits of bytes that are not ASCII. */
static inline uint64_t classify(struct ascii_block *b, const char *s)
{
    uint64_t high = 0;

    for (int at = 0; at < 64; at += 16) {
        __m128i x = _mm_loadu_si128((const __m128i *)(const void *)(s + at));
        __m128i blank = _mm_cmpeq_epi8(x, _mm_set1_epi8(' '));
        __m128i newline = _mm_or_si128(_mm_cmpeq_epi8(x, _mm_set1_epi8('\n')),
                                       _mm_cmpeq_epi8(x, _mm_set1_epi8('\r')));

        b->letter |= bits(in_range(_mm_or_si128(x, _mm_set1_epi8(0x20)), 'a', 26)) << at;
        b->number |= bits(in_range(x, '0', 10)) << at;
        b->space |= bits(_mm_or_si128(blank, in_range(x, '\t', 5))) << at;
        b->newline |= bits(newline) << at;
        b->blank |= bits(blank) << at;
        b->apostrophe |= bits(_mm_cmpeq_epi8(x, _mm_set1_epi8('\''))) << at;
        high |= bits(x) << at;
    }
    return high;
}

#else

static uint64_t classify(struct ascii_block *b, const char *s)
{
    uint64_t high = 0;

    for (int at = 0; at < 64; at++) {
        unsigned char c = (unsigned char)s[at];

        b->letter |= (uint64_t)((unsigned char)((c | 0x20) - 'a') < 26) << at;
        b->number |= (uint64_t)((unsigned char)(c - '0') < 10) << at;
        b->space |= (uint64_t)(c == ' ' || (unsigned char)(c - '\t') < 5) << at;
        b->newline |= (uint64_t)(c == '\n' || c == '\r') << at;
        b->blank |= (uint64_t)(c == ' ') << at;
        b->apostrophe |= (uint64_t)(c == '\'') << at;
        high |= (uint64_t)(c >> 7) << at;
    }
    return high;
}

#endif

void ascii_read(struct ascii_block *b, const char *s, size_t n, size_t pos)
{
    *b = (struct ascii_block){.s = s, .pos = pos, .n = n};
    size_t left = n - pos;
    uint64_t stop;  /* bytes that are not in the block */

    if (left > 64) {
        stop = classify(b, s + pos);
    } else {
        char tail[64] = {0};

        memcpy(tail, s + pos, left);
        stop = classify(b, tail);
        b->ends = stop == 0;
        stop |= left < 64 ? ~(uint64_t)0 << left : 0;
    }
    /* All below the lowest bit; all where there is none. */
    uint64_t in = stop ^ (stop - 1);

    in = stop == 0 ? ~(uint64_t)0 : in >> 1;
    b->letter &= in;
    b->number &= in;
    b->space &= in;
    b->newline &= in;
    b->blank &= in;
    b->apostrophe &= in;
    b->punct = in & ~(b->letter | b->number | b->space);
}

/* ---- starts ------------------------------------------------------------------------ */

/* The bit behind each run of x that begins at a bit of `first`. */
static inline uint64_t behind_runs(uint64_t x, uint64_t first)
{
    return (x + first) & ~x;
}

/* The bits of x from which bits of x lead up to one of `last`. */
static inline uint64_t fill_down(uint64_t x, uint64_t last)
{
    uint64_t fill = last & x;

    for (int step = 1; step < 64; step *= 2) {
        fill |= x & (fill >> step);
        x &= x >> step;
    }
    return fill;
}

/* Starts of numbers of up to `max` digits. */
static inline uint64_t number_starts(uint64_t number, int max)
{
    uint64_t first = number & ~(number << 1);

    if (max == 1) {
        return number;
    }
    if (max == 3) {
        uint64_t whole = number & number << 1 & number << 2;  /* ends of three digits */

        for (uint64_t next = first; next != 0; first |= next) {
            next = (next << 3) & number & (whole << 1);
        }
    }
    return first;
}

/* White space without newlines is called a gap here.  The last character of a gap goes with the
 * word or punctuation behind it, or stands alone.  A gap before a newline goes with that newline;
 * newlines go with punctuation right before them. */
uint64_t ascii_words(const struct ascii_block *b, const struct split_opts *o)
{
    uint64_t newline = b->newline;
    uint64_t gap = b->space & ~newline;
    uint64_t dark = b->letter | b->number | b->punct;
    uint64_t punct = b->punct & ~((b->punct | b->blank) << 1);
    uint64_t letter = b->letter & ~((b->letter | gap | punct) << 1);
    uint64_t lines = newline & ~((b->space | b->punct) << 1);
    uint64_t gap_first = gap & ~(gap << 1);
    uint64_t gap_last = gap & dark >> 1;
    uint64_t indent = gap_first & newline << 1;
    uint64_t starts = punct | letter | number_starts(b->number, o->digits) | lines | gap_last |
                      (gap_first & ~indent);

    if (indent != 0) {
        uint64_t text_end = b->ends ? (uint64_t)1 << (b->n - b->pos - 1) : 0;

        starts |= indent & (fill_down(gap, gap_last | text_end) |
                            behind_runs(newline, newline & b->punct << 1));
    }
    for (uint64_t at = b->apostrophe & punct & b->letter >> 1; at != 0; at &= at - 1) {
        size_t i = (size_t)__builtin_ctzll(at);
        size_t n = pretok_contraction(b->s, b->pos + i, b->n, true);

        if (n > 0 && i + n < 64) {
            starts |= ((b->letter | dark | b->space) >> (i + n) & 1) << (i + n);
        }
    }
    return starts;
}

uint64_t ascii_gpt2(const struct ascii_block *b, const struct split_opts *o)
{
    (void)o;
    uint64_t dark = b->letter | b->number | b->punct;
    uint64_t punct = b->punct & ~((b->punct | b->blank) << 1);
    uint64_t starts = punct | (b->letter & ~((b->letter | b->blank) << 1)) |
                      (b->number & ~((b->number | b->blank) << 1)) |
                      (b->space & ~(b->space << 1)) | (b->space & dark >> 1);

    for (uint64_t at = b->apostrophe & punct & b->letter >> 1; at != 0; at &= at - 1) {
        size_t i = (size_t)__builtin_ctzll(at);
        size_t n = pretok_contraction(b->s, b->pos + i, b->n, false);

        if (n > 0) {
            starts &= ~((uint64_t)2 << i);
            starts |= i + n < 64 ? ((dark | b->space) >> (i + n) & 1) << (i + n) : 0;
        }
    }
    return starts;
}

/* pretok_block.c - which of 64 bytes start a piece, see pretok_block.h. */
#include "text/pretok_block.h"

#include <string.h>

#include "text/unicode.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* ---- classes ----------------------------------------------------------------------- */

/* First bytes of characters that are letters all: U+0400 to U+047F, U+5000 to U+8FFF and U+B000 to
 * U+CFFF. */
enum {
    CYRILLIC_FIRST = 0xD0, CYRILLIC_N = 2,
    HAN_FIRST = 0xE5, HAN_N = 4,
    HANGUL_FIRST = 0xEB, HANGUL_N = 2,
};

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

/* Sets the masks but for what is not ASCII. */
static inline void classify(struct text_block *b, const char *s)
{

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
        b->high |= bits(x) << at;
    }
}

/* The bytes that go on with a character, and those that begin a letter whatever follows. */
static inline void classify_high(struct text_block *b, const char *s, uint64_t *sure)
{
    for (int at = 0; at < 64; at += 16) {
        __m128i x = _mm_loadu_si128((const __m128i *)(const void *)(s + at));
        __m128i letter = _mm_or_si128(in_range(x, HAN_FIRST, HAN_N),
                                      _mm_or_si128(in_range(x, CYRILLIC_FIRST, CYRILLIC_N),
                                                   in_range(x, HANGUL_FIRST, HANGUL_N)));

        b->cont |= bits(in_range(x, 0x80, 0x40)) << at;
        *sure |= bits(letter) << at;
    }
}

#else

static void classify(struct text_block *b, const char *s)
{

    for (int at = 0; at < 64; at++) {
        unsigned char c = (unsigned char)s[at];

        b->letter |= (uint64_t)((unsigned char)((c | 0x20) - 'a') < 26) << at;
        b->number |= (uint64_t)((unsigned char)(c - '0') < 10) << at;
        b->space |= (uint64_t)(c == ' ' || (unsigned char)(c - '\t') < 5) << at;
        b->newline |= (uint64_t)(c == '\n' || c == '\r') << at;
        b->blank |= (uint64_t)(c == ' ') << at;
        b->apostrophe |= (uint64_t)(c == '\'') << at;
        b->high |= (uint64_t)(c >> 7) << at;
    }
}

static void classify_high(struct text_block *b, const char *s, uint64_t *sure)
{
    for (int at = 0; at < 64; at++) {
        unsigned char c = (unsigned char)s[at];

        b->cont |= (uint64_t)((c & 0xC0) == 0x80) << at;
        *sure |= (uint64_t)((unsigned char)(c - HAN_FIRST) < HAN_N ||
                            (unsigned char)(c - CYRILLIC_FIRST) < CYRILLIC_N ||
                            (unsigned char)(c - HANGUL_FIRST) < HANGUL_N) << at;
    }
}

#endif

/* Bytes of a character that is not ASCII. */
static inline size_t lead_bytes(char first)
{
    unsigned char c = (unsigned char)first;

    return c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}

/* Classes of what is not ASCII.  Returns the bit of the first character that the block does not
 * take, which is a number, a space or cut off; 0 for none. */
static uint64_t read_high(struct text_block *b, const char *s, unsigned letter)
{
    uint64_t stop = 0;
    uint64_t sure = 0;

    classify_high(b, s, &sure);
    uint64_t lead = b->high & ~b->cont;

    if (b->high >> 63) {
        int last = 63 - __builtin_clzll(lead);

        stop = (size_t)last + lead_bytes(s[last]) > 64 ? (uint64_t)1 << last : 0;
    }
    b->letter |= sure;
    for (uint64_t rest = lead & ~sure & (stop - 1); rest != 0; rest &= rest - 1) {
        int i = __builtin_ctzll(rest);
        uint32_t cp;

        unicode_next(s + i, &cp);
        unsigned cls = unicode_class(cp);

        if (cls & (UC_NUMBER | UC_SPACE)) {
            return rest & (0 - rest);
        }
        b->letter |= (uint64_t)((cls & letter) != 0) << i;
    }
    return stop;
}

void block_read(struct text_block *b, const char *s, size_t n, size_t pos, unsigned letter)
{
    *b = (struct text_block){.s = s, .pos = pos, .n = n};
    size_t left = n - pos;
    const char *at = s + pos;
    char tail[64];

    if (left < 64) {
        memset(tail, 0, sizeof tail);
        memcpy(tail, at, left);
        at = tail;
    }
    classify(b, at);
    uint64_t stop = b->high != 0 ? read_high(b, at, letter) : 0;  /* bytes not in the block */

    b->ends = left <= 64 && stop == 0;
    stop |= left < 64 ? ~(uint64_t)0 << left : 0;
    /* All below the lowest bit; all where there is none. */
    uint64_t in = stop ^ (stop - 1);

    in = stop == 0 ? ~(uint64_t)0 : in >> 1;
    b->letter &= in;
    b->number &= in;
    b->space &= in;
    b->newline &= in;
    b->blank &= in;
    b->apostrophe &= in;
    b->cont &= in;
    b->punct = in & ~(b->letter | b->number | b->space | b->cont);
}

/* ---- starts ------------------------------------------------------------------------ */

/* The beginnings of the characters behind those that begin at bits of x: for one of several bytes,
 * the carry runs through the rest of it. */
static inline uint64_t next_chars(const struct text_block *b, uint64_t x)
{
    return ((x << 1) + b->cont) & ~b->cont;
}

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
uint64_t block_words(const struct text_block *b, const struct split_opts *o)
{
    uint64_t newline = b->newline;
    uint64_t gap = b->space & ~newline;
    uint64_t dark = b->letter | b->number | b->punct;
    uint64_t punct = b->punct & ~next_chars(b, b->punct | b->blank);
    uint64_t letter = b->letter & ~next_chars(b, b->letter | gap | punct);
    uint64_t lines = newline & ~next_chars(b, b->space | b->punct);
    uint64_t gap_first = gap & ~(gap << 1);
    uint64_t gap_last = gap & dark >> 1;
    uint64_t indent = gap_first & newline << 1;
    uint64_t starts = punct | letter | number_starts(b->number, o->digits) | lines | gap_last |
                      (gap_first & ~indent);

    if (indent != 0) {
        uint64_t text_end = b->ends ? (uint64_t)1 << (b->n - b->pos - 1) : 0;

        starts |= indent & (fill_down(gap, gap_last | text_end) |
                            behind_runs(newline, newline & next_chars(b, b->punct)));
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

uint64_t block_gpt2(const struct text_block *b, const struct split_opts *o)
{
    (void)o;
    uint64_t dark = b->letter | b->number | b->punct;
    uint64_t punct = b->punct & ~next_chars(b, b->punct | b->blank);
    uint64_t starts = punct | (b->letter & ~next_chars(b, b->letter | b->blank)) |
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

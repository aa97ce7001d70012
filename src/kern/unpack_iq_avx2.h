/* unpack_iq_avx2.h - half panels of the codebook and ternary types, opened whole with AVX2.
 *
 * Dwords of a panel are vectors whose lanes are rows, so an index is cut out of 8 rows at
 * once; the entries are fetched by plain loads, because gathers are slow on most processors
 * that stop at AVX2.  Codes are unsigned with the offset of their type (`offset_of`), but for
 * iq4_xs, whose codes need all of a signed byte. */
#ifndef UNPACK_IQ_AVX2_H
#define UNPACK_IQ_AVX2_H

#include "kern/unpack_avx2.h"
#include "quant/iq_tables.h"

/* 256 weights of 8 rows. */
struct opened {
    __m256i (*code)[2];    /* [k / 4][half] */
    __m256i scale[16];     /* a dword per row; as many as a block has */
    int half, offset;
};

/* What unpacked codes have too much. */
ALWAYS_INLINE int offset_of(uint32_t id)
{
    switch (id) {
    case QT_IQ2_XXS:
    case QT_IQ2_XS:
    case QT_IQ2_S: return 43;
    case QT_IQ3_XXS: return 62;
    case QT_IQ3_S: return 15;
    case QT_IQ1_S:
    case QT_IQ1_M: return 9;
    case QT_TQ1_0:
    case QT_TQ2_0: return 1;
    default: return 0;
    }
}

/* Bits [at, at + n) of every lane. */
ALWAYS_INLINE __m256i bits_of(__m256i v, int at, int n)
{
    return _mm256_and_si256(_mm256_srli_epi32(v, at), _mm256_set1_epi32((1 << n) - 1));
}

/* 2 * v + 1 */
ALWAYS_INLINE __m256i odd_scale(__m256i v)
{
    return _mm256_add_epi32(_mm256_add_epi32(v, v), _mm256_set1_epi32(1));
}

ALWAYS_INLINE __m256i or3(__m256i a, __m256i b, __m256i c)
{
    return _mm256_or_si256(_mm256_or_si256(a, b), c);
}

/* Sets bit 7 of every byte of v < 128 to the parity of the others. */
ALWAYS_INLINE __m256i with_parity(__m256i v)
{
    const __m256i odd = _mm256_broadcastsi128_si256(_mm_setr_epi8(
        0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
    const __m256i folded = _mm256_and_si256(_mm256_xor_si256(v, _mm256_srli_epi16(v, 4)),
                                            _mm256_set1_epi8(15));

    return _mm256_or_si256(v, _mm256_shuffle_epi8(odd, folded));
}

/* The sign bytes of four eights, from four times seven bits. */
ALWAYS_INLINE __m256i signs_of_28(__m256i w)
{
    const __m256i a = _mm256_and_si256(w, _mm256_set1_epi32(0x7F));
    const __m256i b = _mm256_and_si256(_mm256_slli_epi32(w, 1), _mm256_set1_epi32(0x7F00));
    const __m256i c = _mm256_and_si256(_mm256_slli_epi32(w, 2), _mm256_set1_epi32(0x7F0000));
    const __m256i d = _mm256_and_si256(_mm256_slli_epi32(w, 3), _mm256_set1_epi32(0x7F000000));

    return with_parity(_mm256_or_si256(or3(a, b, c), d));
}

/* Byte l of each lane in all of its bytes. */
ALWAYS_INLINE __m256i repeat_byte(__m256i v, int l)
{
    const __m256i first = _mm256_broadcastsi128_si256(
        _mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0C0C0C0C));
    return _mm256_shuffle_epi8(v, _mm256_add_epi8(first, _mm256_set1_epi8((char)l)));
}

/* The code v or -v, by its sign, with the offset; signs: a sign byte in every byte of a lane,
 * of which the weights have the low (part 0) or the high (1) four bits. */
ALWAYS_INLINE __m256i with_signs(__m256i v, __m256i signs, int part, int offset)
{
    const __m256i bits = _mm256_set1_epi32(part ? (int)0x80402010 : 0x08040201);
    const __m256i minus = _mm256_cmpeq_epi8(_mm256_and_si256(signs, bits), bits);

    return _mm256_add_epi8(_mm256_xor_si256(v, minus),
                           _mm256_sub_epi8(_mm256_set1_epi8((char)offset), minus));
}

struct eights {
    __m256i a, b;  /* first and last four weights of the rows */
};

/* Eight indices in scalar registers. */
struct indices {
    uint32_t i[8];
};

ALWAYS_INLINE struct indices indices_of(__m256i v)
{
    struct indices x;

    for (int j = 0; j < 4; j++) {
        const uint64_t two = (uint64_t)((const long long *)&v)[j];
        x.i[2 * j] = (uint32_t)two;
        x.i[2 * j + 1] = (uint32_t)(two >> 32);
    }
    return x;
}

/* Loads that broadcast and blends keep out of the shuffle unit, of which there is one. */
ALWAYS_INLINE __m256i entry_of(const uint64_t *grid, uint32_t i)
{
    return _mm256_set1_epi64x((long long)grid[i]);
}

ALWAYS_INLINE __m256i four_entries(const uint64_t *grid, uint32_t a, uint32_t b, uint32_t c,
                                   uint32_t d)
{
    const __m256i ab = _mm256_blend_epi32(entry_of(grid, a), entry_of(grid, b), 0x0C);
    const __m256i cd = _mm256_blend_epi32(entry_of(grid, c), entry_of(grid, d), 0xC0);
    return _mm256_blend_epi32(ab, cd, 0xF0);
}

ALWAYS_INLINE struct eights load_eights(const uint64_t *grid, __m256i index)
{
    const struct indices x = indices_of(index);
    const __m256 a = _mm256_castsi256_ps(four_entries(grid, x.i[0], x.i[1], x.i[4], x.i[5]));
    const __m256 b = _mm256_castsi256_ps(four_entries(grid, x.i[2], x.i[3], x.i[6], x.i[7]));

    return (struct eights){ _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88)),
                            _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xDD)) };
}

ALWAYS_INLINE __m256i four_of(const uint32_t *grid, uint32_t i)
{
    return _mm256_set1_epi32((int)grid[i]);
}

ALWAYS_INLINE __m256i load_fours(const uint32_t *grid, __m256i index)
{
    const struct indices x = indices_of(index);
    const __m256i a = _mm256_blend_epi32(four_of(grid, x.i[0]), four_of(grid, x.i[1]), 0x02);
    const __m256i b = _mm256_blend_epi32(four_of(grid, x.i[2]), four_of(grid, x.i[3]), 0x08);
    const __m256i c = _mm256_blend_epi32(four_of(grid, x.i[4]), four_of(grid, x.i[5]), 0x20);
    const __m256i d = _mm256_blend_epi32(four_of(grid, x.i[6]), four_of(grid, x.i[7]), 0x80);

    return _mm256_blend_epi32(_mm256_blend_epi32(a, b, 0x0C), _mm256_blend_epi32(c, d, 0xC0),
                              0xF0);
}

/* Dword i of 8 rows; p: behind what stands before the dwords, at our half of the rows. */
ALWAYS_INLINE __m256i panel_dword(const uint8_t *p, int i)
{
    return load_256(p + 64 * i);
}

ALWAYS_INLINE void put_eight(struct opened *out, int eight, const uint64_t *grid, __m256i index,
                             __m256i sign_bytes, int l)
{
    const struct eights v = load_eights(grid, index);
    const __m256i signs = repeat_byte(sign_bytes, l);

    out->code[2 * eight][out->half] = with_signs(v.a, signs, 0, out->offset);
    out->code[2 * eight + 1][out->half] = with_signs(v.b, signs, 1, out->offset);
}

ALWAYS_INLINE void open_iq2_xxs(const uint8_t *p, struct opened *out)
{
    for (int ib = 0; ib < 8; ib++) {
        const __m256i q = panel_dword(p, 2 * ib), w = panel_dword(p, 2 * ib + 1);
        const __m256i signs = signs_of_28(w);

        out->scale[ib] = odd_scale(_mm256_srli_epi32(w, 28));
#pragma GCC unroll 4
        for (int l = 0; l < 4; l++) {
            put_eight(out, 4 * ib + l, iq2xxs_grid, bits_of(q, 8 * l, 8), signs, l);
        }
    }
}

/* The scales of 16 weights each: nibbles of dwords i and i + 1. */
ALWAYS_INLINE void open_nibble_scales(const uint8_t *p, int i, struct opened *out)
{
#pragma GCC unroll 16
    for (int s = 0; s < 16; s++) {
        out->scale[s] = odd_scale(bits_of(panel_dword(p, i + s / 8), 4 * (s % 8), 4));
    }
}

ALWAYS_INLINE void open_iq2_xs(const uint8_t *p, struct opened *out)
{
    open_nibble_scales(p, 16, out);
    for (int i = 0; i < 16; i++) {  /* two eights to a dword: bytes 0 and 2 become their signs */
        const __m256i q = panel_dword(p, i);
        const __m256i signs = with_parity(_mm256_and_si256(_mm256_srli_epi32(q, 9),
                                                           _mm256_set1_epi32(0x007F007F)));
        put_eight(out, 2 * i, iq2xs_grid, bits_of(q, 0, 9), signs, 0);
        put_eight(out, 2 * i + 1, iq2xs_grid, bits_of(q, 16, 9), signs, 2);
    }
}

/* Dword i shifted down by a whole number of bits that is not constant. */
ALWAYS_INLINE __m256i shifted_dword(const uint8_t *p, int i, int by)
{
    return _mm256_srl_epi32(panel_dword(p, i), _mm_cvtsi32_si128(by));
}

ALWAYS_INLINE void open_iq2_s(const uint8_t *p, struct opened *out)
{
    open_nibble_scales(p, 18, out);
    for (int ib = 0; ib < 8; ib++) {
        const __m256i q = panel_dword(p, ib), signs = panel_dword(p, 8 + ib);
        const __m256i h = shifted_dword(p, 16 + ib / 4, 8 * (ib % 4));
#pragma GCC unroll 4
        for (int l = 0; l < 4; l++) {
            const __m256i high = _mm256_slli_epi32(bits_of(h, 2 * l, 2), 8);
            put_eight(out, 4 * ib + l, iq2s_grid, _mm256_or_si256(bits_of(q, 8 * l, 8), high),
                      signs, l);
        }
    }
}

/* 32 weights by eight indices of 8 bits, and the ninth bits in h. */
ALWAYS_INLINE void put_fours(struct opened *out, int ib, const uint32_t *grid, const uint8_t *p,
                             __m256i h, __m256i sign_bytes)
{
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) {
        const __m256i low = bits_of(panel_dword(p, 2 * ib + k / 4), 8 * (k % 4), 8);
        const __m256i high = _mm256_slli_epi32(bits_of(h, k, 1), 8);

        out->code[8 * ib + k][out->half] = with_signs(load_fours(grid, _mm256_or_si256(low, high)),
                                              repeat_byte(sign_bytes, k / 2), k % 2,
                                              out->offset);
    }
}

ALWAYS_INLINE void open_iq3_xxs(const uint8_t *p, struct opened *out)
{
    for (int ib = 0; ib < 8; ib++) {
        const __m256i w = panel_dword(p, 16 + ib);

        out->scale[ib] = odd_scale(_mm256_srli_epi32(w, 28));
        put_fours(out, ib, iq3xxs_grid, p, _mm256_setzero_si256(), signs_of_28(w));
    }
}

ALWAYS_INLINE void open_iq3_s(const uint8_t *p, struct opened *out)
{
#pragma GCC unroll 8
    for (int ib = 0; ib < 8; ib++) {
        out->scale[ib] = odd_scale(bits_of(panel_dword(p, 26), 4 * ib, 4));
    }
    for (int ib = 0; ib < 8; ib++) {
        put_fours(out, ib, iq3s_grid, p, shifted_dword(p, 16 + ib / 4, 8 * (ib % 4)),
                  panel_dword(p, 18 + ib));
    }
}

/* Eight times the values of a grid entry, plus or minus one; offset: the offset with that one,
 * in every byte of a lane. */
ALWAYS_INLINE void put_eighths(struct opened *out, int eight, __m256i index, __m256i offset)
{
    const __m256i keep = _mm256_set1_epi8((char)0xF8);
    const struct eights v = load_eights(iq1_grid, index);

    out->code[2 * eight][out->half] =
        _mm256_add_epi8(_mm256_and_si256(_mm256_slli_epi16(v.a, 3), keep), offset);
    out->code[2 * eight + 1][out->half] =
        _mm256_add_epi8(_mm256_and_si256(_mm256_slli_epi16(v.b, 3), keep), offset);
}

/* The offset plus one, or minus one where bit `at` of a lane is set. */
ALWAYS_INLINE __m256i offset_iq1(__m256i h, int at, int offset)
{
    const __m256i minus = _mm256_srai_epi32(_mm256_slli_epi32(h, 31 - at), 31);
    const __m256i two = _mm256_and_si256(minus, _mm256_set1_epi8(2));

    return _mm256_sub_epi8(_mm256_set1_epi8((char)(offset + 1)), two);
}

ALWAYS_INLINE void open_iq1_s(const uint8_t *p, struct opened *out)
{
    for (int ib = 0; ib < 8; ib++) {
        const __m256i q = panel_dword(p, ib), h = shifted_dword(p, 8 + ib / 2, 16 * (ib % 2));
        const __m256i offset = offset_iq1(h, 15, out->offset);

        out->scale[ib] = odd_scale(bits_of(h, 12, 3));
#pragma GCC unroll 4
        for (int l = 0; l < 4; l++) {
            const __m256i high = _mm256_slli_epi32(bits_of(h, 3 * l, 3), 8);
            put_eighths(out, 4 * ib + l, _mm256_or_si256(bits_of(q, 8 * l, 8), high), offset);
        }
    }
}

ALWAYS_INLINE void open_iq1_m(const uint8_t *p, struct opened *out)
{
#pragma GCC unroll 16
    for (int s = 0; s < 16; s++) {
        const int at = 16 * (s / 4 % 2) + 3 * (s % 4);
        out->scale[s] = odd_scale(bits_of(panel_dword(p, 12 + s / 8), at, 3));
    }
    for (int ib = 0; ib < 8; ib++) {
        const __m256i q = panel_dword(p, ib), h = shifted_dword(p, 8 + ib / 2, 16 * (ib % 2));
#pragma GCC unroll 4
        for (int l = 0; l < 4; l++) {
            const __m256i high = _mm256_slli_epi32(bits_of(h, 4 * l, 3), 8);
            put_eighths(out, 4 * ib + l, _mm256_or_si256(bits_of(q, 8 * l, 8), high),
                        offset_iq1(h, 4 * l + 3, out->offset));
        }
    }
}

/* sh: high bits of the scales, 16 bits per row. */
ALWAYS_INLINE void open_iq4_xs(const uint8_t *p, __m128i sh, struct opened *out)
{
    const __m256i high = _mm256_cvtepu16_epi32(sh), low = panel_dword(p, 0);
    const __m256i values = _mm256_broadcastsi128_si256(load_128(iq4_values));

#pragma GCC unroll 8
    for (int ib = 0; ib < 8; ib++) {
        const __m256i s = _mm256_or_si256(bits_of(low, 4 * ib, 4),
                                          _mm256_slli_epi32(bits_of(high, 2 * ib, 2), 4));
        out->scale[ib] = _mm256_sub_epi32(s, _mm256_set1_epi32(32));
    }
    for (int j = 0; j < 32; j++) {
        const __m256i v = panel_dword(p, 1 + j);
        const int k = 8 * (j / 4) + j % 4;
        out->code[k][out->half] = _mm256_shuffle_epi8(values, right_and(v, 0, 15));
        out->code[k + 4][out->half] = _mm256_shuffle_epi8(values, right_and(v, 4, 15));
    }
}

/* The first `n` digits of the bytes v, to vectors k, k + step .. */
ALWAYS_INLINE void put_digits(struct opened *out, __m256i v, int n, int k, int step)
{
    /* Compared as signed: 128 less. */
    const __m256i flip = _mm256_set1_epi8((char)0x80);
    const __m256i below1 = _mm256_set1_epi8(85 - 128), below2 = _mm256_set1_epi8(170 - 128);

    for (int i = 0; i < n; i++, k += step) {
        /* The whole part of 3 * v / 256 is 1 from 86 on, 2 from 171 on. */
        const __m256i x = _mm256_xor_si256(v, flip);
        const __m256i m = _mm256_add_epi8(_mm256_cmpgt_epi8(x, below1),
                                          _mm256_cmpgt_epi8(x, below2));
        out->code[k][out->half] = _mm256_sub_epi8(_mm256_setzero_si256(), m);
        v = _mm256_add_epi8(v, _mm256_add_epi8(v, v));
    }
}

ALWAYS_INLINE void open_tq1_0(const uint8_t *p, struct opened *out)
{
    for (int j = 0; j < 8; j++) {
        put_digits(out, panel_dword(p, j), 5, j, 8);
    }
    for (int j = 0; j < 4; j++) {
        put_digits(out, panel_dword(p, 8 + j), 5, 40 + j, 4);
    }
    put_digits(out, panel_dword(p, 12), 4, 60, 1);
    out->scale[0] = _mm256_set1_epi32(1);
}

ALWAYS_INLINE void open_tq2_0(const uint8_t *p, struct opened *out)
{
    for (int j = 0; j < 16; j++) {
        const __m256i v = panel_dword(p, j);
        const int k = 32 * (j / 8) + j % 8;
        out->code[k][out->half] = right_and(v, 0, 3);
        out->code[k + 8][out->half] = right_and(v, 2, 3);
        out->code[k + 16][out->half] = right_and(v, 4, 3);
        out->code[k + 24][out->half] = right_and(v, 6, 3);
    }
    out->scale[0] = _mm256_set1_epi32(1);
}

/* half: of the rows of the panel at p. */
ALWAYS_INLINE void open_half(uint32_t id, const uint8_t *p, int half, struct opened *out)
{
    const uint8_t *dwords = p + 32 + 32 * half;

    switch (id) {
    case QT_IQ1_S: open_iq1_s(dwords, out); break;
    case QT_IQ1_M: open_iq1_m(p + 32 * half, out); break;
    case QT_IQ2_XXS: open_iq2_xxs(dwords, out); break;
    case QT_IQ2_XS: open_iq2_xs(dwords, out); break;
    case QT_IQ2_S: open_iq2_s(dwords, out); break;
    case QT_IQ3_XXS: open_iq3_xxs(dwords, out); break;
    case QT_IQ3_S: open_iq3_s(dwords, out); break;
    case QT_IQ4_XS: open_iq4_xs(dwords + 32, load_128(p + 32 + 16 * half), out); break;
    case QT_TQ1_0: open_tq1_0(dwords, out); break;
    default: open_tq2_0(dwords, out); break;
    }
}

/* The f16 in the top nibbles of four words, the first one the lowest. */
ALWAYS_INLINE __m256 scales_iq1_m(const uint8_t *p, int half)
{
    const __m256i a = panel_dword(p + 32 * half, 12), b = panel_dword(p + 32 * half, 13);
    const __m256i low = _mm256_or_si256(bits_of(a, 12, 4),
                                        _mm256_slli_epi32(bits_of(a, 28, 4), 4));
    const __m256i high = _mm256_or_si256(_mm256_slli_epi32(bits_of(b, 12, 4), 8),
                                         _mm256_slli_epi32(bits_of(b, 28, 4), 12));
    const __m256i bits = _mm256_or_si256(low, high);

    return _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(bits),
                                            _mm256_extracti128_si256(bits, 1)));
}

/* Scales of the rows; some have a power of two beside the file's. */
ALWAYS_INLINE __m256 opened_scales(uint32_t id, const uint8_t *p, int half)
{
    const __m256 d = id == QT_IQ1_M ? scales_iq1_m(p, half)
                                    : _mm256_cvtph_ps(load_128(p + 16 * half));

    switch (id) {
    case QT_IQ1_S:
    case QT_IQ1_M:
    case QT_IQ2_XXS:
    case QT_IQ2_XS:
    case QT_IQ2_S: return _mm256_mul_ps(d, _mm256_set1_ps(0.125f));
    case QT_IQ3_XXS: return _mm256_mul_ps(d, _mm256_set1_ps(0.25f));
    default: return d;
    }
}

#endif

/* unpack_iq_avx512.h - panels of the codebook and ternary types, opened whole with AVX-512.
 *
 * Looking weights up costs more than multiplying them, so a panel is opened once for all
 * tokens, into a buffer that stays in the first-level cache.  Dwords of a panel are vectors
 * whose lanes are rows, so an index is cut out of 16 rows at once and one or two gathers fetch
 * what it stands for.  Codes get a bias of 128 (unpack_avx512.h). */
#ifndef UNPACK_IQ_AVX512_H
#define UNPACK_IQ_AVX512_H

#include "kern/dot_avx512.h"

/* 256 weights of 16 rows. */
struct opened {
    _Alignas(64) uint8_t q[64][64];  /* [k / 4][16 rows][4], code + 128 */
    __m512i s[16];                   /* scales, a dword per row; as many as scales_of says */
    __m512 d;
};

/* Weights that share a scale: 16, 32 or all 256. */
INLINE int scale_width(uint32_t type)
{
    switch (type) {
    case QT_TQ1_0:
    case QT_TQ2_0: return 256;
    case QT_IQ2_XS:
    case QT_IQ2_S:
    case QT_IQ1_M: return 16;
    default: return 32;
    }
}

/* Bits [at, at + n) of every lane. */
INLINE __m512i bits_of(__m512i v, int at, int n)
{
    return _mm512_and_si512(_mm512_srli_epi32(v, (unsigned)at), _mm512_set1_epi32((1 << n) - 1));
}

/* 2 * v + 1 */
INLINE __m512i odd_scale(__m512i v)
{
    return _mm512_add_epi32(_mm512_add_epi32(v, v), _mm512_set1_epi32(1));
}

/* Sets bit 7 of every byte of v < 128 to the parity of the others. */
INLINE __m512i with_parity(__m512i v)
{
    const __m512i odd = _mm512_broadcast_i32x4(_mm_setr_epi8(
        0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
    const __m512i folded = low_nibbles(_mm512_xor_si512(v, _mm512_srli_epi16(v, 4)));

    return _mm512_or_si512(v, _mm512_shuffle_epi8(odd, folded));
}

/* The sign bytes of four eights, from four times seven bits. */
INLINE __m512i signs_of_28(__m512i w)
{
    const __m512i a = _mm512_and_si512(w, _mm512_set1_epi32(0x7F));
    const __m512i b = or_and(a, _mm512_slli_epi32(w, 1), _mm512_set1_epi32(0x7F00));
    const __m512i c = or_and(b, _mm512_slli_epi32(w, 2), _mm512_set1_epi32(0x7F0000));

    return with_parity(or_and(c, _mm512_slli_epi32(w, 3), _mm512_set1_epi32(0x7F000000)));
}

/* Byte l of each lane in all of its bytes. */
INLINE __m512i repeat_byte(__m512i v, int l)
{
    const __m512i first = _mm512_set4_epi32(0x0C0C0C0C, 0x08080808, 0x04040404, 0);
    return _mm512_shuffle_epi8(v, _mm512_add_epi8(first, _mm512_set1_epi8((char)l)));
}

/* Stores 128 + v, or 128 - v where the sign of a weight is set; signs: a sign byte in every
 * byte of a lane, of which the weights have the low (part 0) or the high (1) four bits. */
INLINE void put_signed(uint8_t *q, __m512i v, __m512i signs, int part)
{
    const __m512i bias = _mm512_set1_epi8((char)0x80);
    const __m512i bits = _mm512_set1_epi32(part ? (int)0x80402010 : 0x08040201);
    const __mmask64 minus = _mm512_test_epi8_mask(signs, bits);

    _mm512_store_si512(q, _mm512_mask_sub_epi8(_mm512_or_si512(v, bias), minus, bias, v));
}

/* Eight weights of each row, the entries of a grid; first and last four of all rows. */
INLINE struct codes gather_eights(const uint64_t *grid, __m512i index)
{
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28,
                                           30);
    const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29,
                                          31);
    const __m512i a = _mm512_i32gather_epi64(_mm512_castsi512_si256(index), grid, 8);
    const __m512i b = _mm512_i32gather_epi64(_mm512_extracti64x4_epi64(index, 1), grid, 8);

    return (struct codes){ _mm512_permutex2var_epi32(a, even, b),
                           _mm512_permutex2var_epi32(a, odd, b) };
}

/* Step i of `steps` of opening a panel requests its share of what lies ahead. */
INLINE void ask_ahead(uint32_t type, bool ahead, const uint8_t *p, int i, int steps)
{
    if (ahead) {
        fetch_ahead(p, panel_bytes(type), i, steps);
    }
}

/* Dword i of the rows behind `head` bytes. */
INLINE __m512i panel_dword(const uint8_t *p, int head, int i)
{
    return load512(p + head + 64 * i);
}

INLINE void put_eight(struct opened *out, int eight, const uint64_t *grid, __m512i index,
                      __m512i sign_bytes, int l)
{
    const struct codes v = gather_eights(grid, index);
    const __m512i signs = repeat_byte(sign_bytes, l);

    put_signed(out->q[2 * eight], v.a, signs, 0);
    put_signed(out->q[2 * eight + 1], v.b, signs, 1);
}

INLINE void open_iq2_xxs(const uint8_t *p, bool ahead, struct opened *out)
{
    NO_UNROLL
    for (int ib = 0; ib < 8; ib++) {
        ask_ahead(QT_IQ2_XXS, ahead, p, ib, 8);
        const __m512i q = panel_dword(p, 32, 2 * ib), w = panel_dword(p, 32, 2 * ib + 1);
        const __m512i signs = signs_of_28(w);

        out->s[ib] = odd_scale(_mm512_srli_epi32(w, 28));
        UNROLL
        for (int l = 0; l < 4; l++) {
            put_eight(out, 4 * ib + l, iq2xxs_grid, bits_of(q, 8 * l, 8), signs, l);
        }
    }
}

/* The scales of 16 weights each: nibbles of the bytes at dwords i and i + 1. */
INLINE void open_nibble_scales(const uint8_t *p, int i, struct opened *out)
{
    UNROLL
    for (int s = 0; s < 16; s++) {
        out->s[s] = odd_scale(bits_of(panel_dword(p, 32, i + s / 8), 4 * (s % 8), 4));
    }
}

INLINE void open_iq2_xs(const uint8_t *p, bool ahead, struct opened *out)
{
    open_nibble_scales(p, 16, out);
    NO_UNROLL
    for (int i = 0; i < 16; i++) {  /* two eights to a dword: bytes 0 and 2 become their signs */
        ask_ahead(QT_IQ2_XS, ahead, p, i, 16);
        const __m512i q = panel_dword(p, 32, i);
        const __m512i signs = with_parity(_mm512_and_si512(_mm512_srli_epi32(q, 9),
                                                           _mm512_set1_epi32(0x007F007F)));
        put_eight(out, 2 * i, iq2xs_grid, bits_of(q, 0, 9), signs, 0);
        put_eight(out, 2 * i + 1, iq2xs_grid, bits_of(q, 16, 9), signs, 2);
    }
}

INLINE void open_iq2_s(const uint8_t *p, bool ahead, struct opened *out)
{
    open_nibble_scales(p, 18, out);
    NO_UNROLL
    for (int ib = 0; ib < 8; ib++) {
        ask_ahead(QT_IQ2_S, ahead, p, ib, 8);
        const __m512i q = panel_dword(p, 32, ib), signs = panel_dword(p, 32, 8 + ib);
        const __m512i h = _mm512_srlv_epi32(panel_dword(p, 32, 16 + ib / 4),
                                            _mm512_set1_epi32(8 * (ib % 4)));
        UNROLL
        for (int l = 0; l < 4; l++) {
            const __m512i high = _mm512_slli_epi32(bits_of(h, 2 * l, 2), 8);
            put_eight(out, 4 * ib + l, iq2s_grid, _mm512_or_si512(bits_of(q, 8 * l, 8), high),
                      signs, l);
        }
    }
}

/* high: two dwords that hold the ninth bits of the indices, or NULL. */
INLINE void put_fours(struct opened *out, int ib, const uint32_t *grid, const uint8_t *q,
                      const uint8_t *high, __m512i sign_bytes)
{
    __m512i h = _mm512_setzero_si512();

    if (high) {
        h = _mm512_srlv_epi32(load512(high + 64 * (ib / 4)), _mm512_set1_epi32(8 * (ib % 4)));
    }
    UNROLL
    for (int k = 0; k < 8; k++) {
        __m512i index = bits_of(load512(q + 64 * (2 * ib + k / 4)), 8 * (k % 4), 8);

        if (high) {
            index = _mm512_or_si512(index, _mm512_slli_epi32(bits_of(h, k, 1), 8));
        }
        put_signed(out->q[8 * ib + k], _mm512_i32gather_epi32(index, grid, 4),
                   repeat_byte(sign_bytes, k / 2), k % 2);
    }
}

INLINE void open_iq3_xxs(const uint8_t *p, bool ahead, struct opened *out)
{
    NO_UNROLL
    for (int ib = 0; ib < 8; ib++) {
        ask_ahead(QT_IQ3_XXS, ahead, p, ib, 8);
        const __m512i w = panel_dword(p, 32, 16 + ib);

        out->s[ib] = odd_scale(_mm512_srli_epi32(w, 28));
        put_fours(out, ib, iq3xxs_grid, p + 32, NULL, signs_of_28(w));
    }
}

INLINE void open_iq3_s(const uint8_t *p, bool ahead, struct opened *out)
{
    UNROLL
    for (int ib = 0; ib < 8; ib++) {
        out->s[ib] = odd_scale(bits_of(panel_dword(p, 32, 26), 4 * ib, 4));
    }
    NO_UNROLL
    for (int ib = 0; ib < 8; ib++) {
        ask_ahead(QT_IQ3_S, ahead, p, ib, 8);
        put_fours(out, ib, iq3s_grid, p + 32, p + 32 + 64 * 16, panel_dword(p, 32, 18 + ib));
    }
}

/* Eight times the values of a grid entry, minus one where `minus`, else plus one. */
INLINE void put_eighths(struct opened *out, int eight, __m512i index, __mmask16 minus)
{
    const __m512i up = _mm512_set1_epi32((int)0x81818181), down = _mm512_set1_epi32(0x7F7F7F7F);
    const __m512i bias = _mm512_mask_blend_epi32(minus, up, down);
    const __m512i keep = _mm512_set1_epi8((char)0xF8);
    const struct codes v = gather_eights(iq1_grid, index);

    _mm512_store_si512(out->q[2 * eight], _mm512_add_epi8(
        _mm512_and_si512(_mm512_slli_epi16(v.a, 3), keep), bias));
    _mm512_store_si512(out->q[2 * eight + 1], _mm512_add_epi8(
        _mm512_and_si512(_mm512_slli_epi16(v.b, 3), keep), bias));
}

INLINE void open_iq1_s(const uint8_t *p, bool ahead, struct opened *out)
{
    NO_UNROLL
    for (int ib = 0; ib < 8; ib++) {
        ask_ahead(QT_IQ1_S, ahead, p, ib, 8);
        const __m512i q = panel_dword(p, 32, ib);
        const __m512i h = _mm512_srlv_epi32(panel_dword(p, 32, 8 + ib / 2),
                                            _mm512_set1_epi32(16 * (ib % 2)));
        const __mmask16 minus = _mm512_test_epi32_mask(h, _mm512_set1_epi32(0x8000));

        out->s[ib] = odd_scale(bits_of(h, 12, 3));
        UNROLL
        for (int l = 0; l < 4; l++) {
            const __m512i high = _mm512_slli_epi32(bits_of(h, 3 * l, 3), 8);
            put_eighths(out, 4 * ib + l, _mm512_or_si512(bits_of(q, 8 * l, 8), high), minus);
        }
    }
}

INLINE void open_iq1_m(const uint8_t *p, bool ahead, struct opened *out)
{
    UNROLL
    for (int s = 0; s < 16; s++) {
        const int at = 16 * (s / 4 % 2) + 3 * (s % 4);
        out->s[s] = odd_scale(bits_of(panel_dword(p, 0, 12 + s / 8), at, 3));
    }
    NO_UNROLL
    for (int ib = 0; ib < 8; ib++) {
        ask_ahead(QT_IQ1_M, ahead, p, ib, 8);
        const __m512i q = panel_dword(p, 0, ib);
        const __m512i h = _mm512_srlv_epi32(panel_dword(p, 0, 8 + ib / 2),
                                            _mm512_set1_epi32(16 * (ib % 2)));
        UNROLL
        for (int l = 0; l < 4; l++) {
            const __m512i high = _mm512_slli_epi32(bits_of(h, 4 * l, 3), 8);
            const __mmask16 minus = _mm512_test_epi32_mask(h, _mm512_set1_epi32(8 << 4 * l));
            put_eighths(out, 4 * ib + l, _mm512_or_si512(bits_of(q, 8 * l, 8), high), minus);
        }
    }
}

/* The f16 in the top nibbles of four words, the first one the lowest. */
INLINE __m512 scales_iq1_m(const uint8_t *p)
{
    const __m512i a = panel_dword(p, 0, 12), b = panel_dword(p, 0, 13);
    const __m512i low = _mm512_or_si512(bits_of(a, 12, 4), _mm512_slli_epi32(bits_of(a, 28, 4), 4));
    const __m512i high = _mm512_or_si512(_mm512_slli_epi32(bits_of(b, 12, 4), 8),
                                         _mm512_slli_epi32(bits_of(b, 28, 4), 12));

    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_or_si512(low, high)));
}

INLINE void open_iq4_xs(const uint8_t *p, bool ahead, struct opened *out)
{
    const __m512i high = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(p + 32)));
    const __m512i low = panel_dword(p, 64, 0);

    UNROLL
    for (int ib = 0; ib < 8; ib++) {
        const __m512i s = _mm512_or_si512(bits_of(low, 4 * ib, 4),
                                          _mm512_slli_epi32(bits_of(high, 2 * ib, 2), 4));
        out->s[ib] = _mm512_sub_epi32(s, _mm512_set1_epi32(32));
    }
    NO_UNROLL
    for (int ib = 0; ib < 8; ib++) {
        ask_ahead(QT_IQ4_XS, ahead, p, ib, 8);
        UNROLL
        for (int i = 0; i < 4; i++) {
            const struct codes v = unpack_values(iq4_values, p + 128, 4 * ib + i);
            _mm512_store_si512(out->q[8 * ib + i], v.a);
            _mm512_store_si512(out->q[8 * ib + 4 + i], v.b);
        }
    }
}

/* The first `n` digits of the bytes v, to vectors k, k + step .. */
INLINE void put_digits(struct opened *out, __m512i v, int n, int k, int step)
{
    const __m512i one = _mm512_set1_epi8(1), minus = _mm512_set1_epi8(127);

    UNROLL
    for (int i = 0; i < n; i++, k += step) {
        /* The whole part of 3 * v / 256 is 1 from 86 on, 2 from 171 on. */
        const __mmask64 m1 = _mm512_cmpge_epu8_mask(v, _mm512_set1_epi8(86));
        const __mmask64 m2 = _mm512_cmpge_epu8_mask(v, _mm512_set1_epi8((char)171));
        const __m512i a = _mm512_mask_add_epi8(minus, m1, minus, one);

        _mm512_store_si512(out->q[k], _mm512_mask_add_epi8(a, m2, a, one));
        v = _mm512_add_epi8(v, _mm512_add_epi8(v, v));
    }
}

INLINE void open_tq1_0(const uint8_t *p, bool ahead, struct opened *out)
{
    NO_UNROLL
    for (int j = 0; j < 8; j++) {
        ask_ahead(QT_TQ1_0, ahead, p, j, 8);
        put_digits(out, panel_dword(p, 32, j), 5, j, 8);
    }
    NO_UNROLL
    for (int j = 0; j < 4; j++) {
        put_digits(out, panel_dword(p, 32, 8 + j), 5, 40 + j, 4);
    }
    put_digits(out, panel_dword(p, 32, 12), 4, 60, 1);
    out->s[0] = _mm512_set1_epi32(1);
}

INLINE void open_tq2_0(const uint8_t *p, bool ahead, struct opened *out)
{
    const __m512i two_bits = _mm512_set1_epi8(3), minus = _mm512_set1_epi8(127);

    NO_UNROLL
    for (int j = 0; j < 16; j++) {
        ask_ahead(QT_TQ2_0, ahead, p, j, 16);
        const __m512i v = panel_dword(p, 32, j);
        UNROLL
        for (int g = 0; g < 4; g++) {
            const __m512i x = _mm512_and_si512(_mm512_srli_epi16(v, 2 * (unsigned)g), two_bits);
            _mm512_store_si512(out->q[32 * (j / 8) + 8 * g + j % 8], _mm512_add_epi8(x, minus));
        }
    }
    out->s[0] = _mm512_set1_epi32(1);
}

/* Scales of the types whose factor is a power of two beside the file's. */
INLINE __m512 open_scales(uint32_t type, const uint8_t *p)
{
    switch (type) {
    case QT_IQ1_M: return _mm512_mul_ps(scales_iq1_m(p), _mm512_set1_ps(0.125f));
    case QT_IQ1_S:
    case QT_IQ2_XXS:
    case QT_IQ2_XS:
    case QT_IQ2_S: return _mm512_mul_ps(scales_f16(p), _mm512_set1_ps(0.125f));
    case QT_IQ3_XXS: return _mm512_mul_ps(scales_f16(p), _mm512_set1_ps(0.25f));
    default: return scales_f16(p);
    }
}

/* `ahead` when the weights come from memory. */
INLINE void open_panel(uint32_t type, const uint8_t *p, bool ahead, struct opened *out)
{
    out->d = open_scales(type, p);
    switch (type) {
    case QT_IQ1_S: open_iq1_s(p, ahead, out); break;
    case QT_IQ1_M: open_iq1_m(p, ahead, out); break;
    case QT_IQ2_XXS: open_iq2_xxs(p, ahead, out); break;
    case QT_IQ2_XS: open_iq2_xs(p, ahead, out); break;
    case QT_IQ2_S: open_iq2_s(p, ahead, out); break;
    case QT_IQ3_XXS: open_iq3_xxs(p, ahead, out); break;
    case QT_IQ3_S: open_iq3_s(p, ahead, out); break;
    case QT_IQ4_XS: open_iq4_xs(p, ahead, out); break;
    case QT_TQ1_0: open_tq1_0(p, ahead, out); break;
    default: open_tq2_0(p, ahead, out); break;
    }
}

#endif

/* pack_avx512.c - blocks of 16 rows into panels with AVX-512.
 *
 * Walks the field table of panel.h.  Four dwords of 16 rows are one 16 x 4
 * transposition in registers; the other fields follow from it.  Weights are packed
 * on the way to a product while their panels do not exist yet, so the next row
 * group is requested from memory, in the order in which it lies there, while this
 * one is packed. */
#include <assert.h>
#include <string.h>

#include "kern/dot.h"
#include "kern/panel.h"
#include "kern/unpack_avx512.h"

/* Largest block of a row, q6_K. */
enum { BLOCK_MAX = 210 };

/* 16 bytes of each row, transposed: v[i] is dword i of rows 0 .. 15. */
struct dwords {
    __m512i v[4];
};

/* The same 16 bytes of rows 0, 4, 8 and 12 of p. */
INLINE __m512i load_quarter(const uint8_t *p, size_t stride)
{
    __m512i v = _mm512_castsi128_si512(load128(p));

    v = _mm512_mask_broadcast_i32x4(v, 0x00F0, load128(p + 4 * stride));
    v = _mm512_mask_broadcast_i32x4(v, 0x0F00, load128(p + 8 * stride));
    return _mm512_mask_broadcast_i32x4(v, 0xF000, load128(p + 12 * stride));
}

INLINE struct dwords transpose(const uint8_t *p, size_t stride)
{
    const __m512i r0 = load_quarter(p, stride), r1 = load_quarter(p + stride, stride);
    const __m512i r2 = load_quarter(p + 2 * stride, stride);
    const __m512i r3 = load_quarter(p + 3 * stride, stride);
    const __m512i a = _mm512_unpacklo_epi32(r0, r1), b = _mm512_unpacklo_epi32(r2, r3);
    const __m512i c = _mm512_unpackhi_epi32(r0, r1), d = _mm512_unpackhi_epi32(r2, r3);

    return (struct dwords){ { _mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b),
                              _mm512_unpacklo_epi64(c, d), _mm512_unpackhi_epi64(c, d) } };
}

/* Bytes of [16 rows][4] to [4][16 rows]. */
INLINE __m512i bytes_by_row(__m512i v)
{
    const __m512i within = _mm512_set4_epi32(0x0F0B0703, 0x0E0A0602, 0x0D090501, 0x0C080400);
    const __m512i across = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);

    return _mm512_permutexvar_epi32(across, _mm512_shuffle_epi8(v, within));
}

INLINE void put_words(const uint8_t *p, size_t stride, uint8_t *out)
{
    UNROLL
    for (int r = 0; r < PANEL_ROWS; r++) {
        memcpy(out + 2 * r, p + (size_t)r * stride, 2);
    }
}

INLINE void put_dwords(const uint8_t *p, size_t stride, int count, uint8_t *out)
{
    int i = 0;

    for (; i + 4 <= count; i += 4, p += 16, out += 256) {
        const struct dwords t = transpose(p, stride);
        UNROLL
        for (int j = 0; j < 4; j++) {
            _mm512_storeu_si512(out + 64 * j, t.v[j]);
        }
    }
    if (i < count) {  /* the last one to three, with what stands before them in the block */
        const int skip = 4 - (count - i);
        const struct dwords t = transpose(p - 4 * skip, stride);
        UNROLL
        for (int j = 1; j < 4; j++) {
            if (j >= skip) {
                _mm512_storeu_si512(out + 64 * (j - skip), t.v[j]);
            }
        }
    }
}

/* One byte of each row. */
INLINE void put_single_bytes(const uint8_t *p, size_t stride, uint8_t *out)
{
    UNROLL
    for (int r = 0; r < PANEL_ROWS; r++) {
        out[r] = p[(size_t)r * stride];
    }
}

INLINE void put_bytes(const uint8_t *p, size_t stride, uint8_t *out)
{
    const struct dwords t = transpose(p, stride);

    UNROLL
    for (int j = 0; j < 4; j++) {
        _mm512_storeu_si512(out + 64 * j, bytes_by_row(t.v[j]));
    }
}

/* Low nibbles of 64 bytes, two to a byte. */
INLINE __m256i pair_nibbles(__m512i v)
{
    const __m512i weights = _mm512_set1_epi16(0x1001);
    return _mm512_cvtepi16_epi8(_mm512_maddubs_epi16(low_nibbles(v), weights));
}

/* Mask i consists of nibble i of the rows' 32 bits. */
INLINE void put_masks(__m512i bits, uint8_t *out)
{
    const __m512i v = bytes_by_row(bits);
    const __m256i even = pair_nibbles(v), odd = pair_nibbles(_mm512_srli_epi16(v, 4));
    const __m256i a = _mm256_unpacklo_epi64(even, odd), b = _mm256_unpackhi_epi64(even, odd);

    _mm256_storeu_si256((void *)out, _mm256_permute2x128_si256(a, b, 0x20));
    _mm256_storeu_si256((void *)(out + 32), _mm256_permute2x128_si256(a, b, 0x31));
}

/* One block of 16 rows that are `stride` apart. */
INLINE void pack_block(const struct panel_field *f, const uint8_t *p, size_t stride, uint8_t *out)
{
    for (; f->count != 0; f++) {
        const uint8_t *field = p + f->offset;

        if (f->order == PANEL_BITS) {
            /* One group of 32 bits, with more of the block behind it, or four. */
            const struct dwords t = transpose(field, stride);
            for (int i = 0; i < f->count; i++) {
                put_masks(t.v[i], out + 64 * i);
            }
        } else if (f->width == 4) {
            put_dwords(field, stride, f->count, out);
        } else if (f->width == 2) {
            put_words(field, stride, out);
        } else if (f->count == 1) {
            put_single_bytes(field, stride, out);
        } else {
            put_bytes(field, stride, out);
        }
        out += PANEL_ROWS * f->count * f->width;
    }
}

/* The same for fewer rows: the missing ones are zero. */
static void pack_part(const struct panel_field *f, const uint8_t *p, size_t stride,
                      size_t block_bytes, int n_rows, uint8_t *out)
{
    uint8_t rows[PANEL_ROWS * BLOCK_MAX] = { 0 };

    for (int r = 0; r < n_rows; r++) {
        memcpy(rows + (size_t)r * block_bytes, p + (size_t)r * stride, block_bytes);
    }
    pack_block(f, rows, block_bytes, out);
}

void panel_pack_avx512(const struct quant_type *type, const void *rows, size_t row_bytes, int k,
                       int n_rows, void *panels)
{
    const struct panel_field *f = panel_fields(type->id);
    const size_t block_bytes = (size_t)type->block_bytes;
    const size_t panel_bytes = PANEL_ROWS * block_bytes;
    const uint8_t *p = rows, *next = p + PANEL_ROWS * row_bytes;
    uint8_t *out = panels;

    assert(f != NULL && n_rows >= 1 && n_rows <= PANEL_ROWS && k % type->block == 0);
    for (int b = k / type->block; b > 0; b--, p += block_bytes, out += panel_bytes) {
        if (n_rows < PANEL_ROWS) {
            pack_part(f, p, row_bytes, block_bytes, n_rows, out);
            continue;
        }
        for (size_t i = 0; i < panel_bytes; i += 64) {
            _mm_prefetch((const char *)next + i, _MM_HINT_T1);
        }
        next += panel_bytes;
        pack_block(f, p, row_bytes, out);
    }
}

/* pack_avx2.c - row-major blocks to panels with AVX2, following the table of fields.
 *
 * Packing happens at every use of a matrix until it has been packed for good, so
 * it has to keep up with memory. */
#include <assert.h>
#include <immintrin.h>
#include <string.h>

#include "kern/dot.h"
#include "kern/panel.h"

/* Sixteen rows at one place of a block. */
struct rows {
    const uint8_t *p;  /* row 0 */
    size_t stride;
};

static inline __m256i two_rows(struct rows in, size_t low, size_t high)
{
    const __m128i a = _mm_loadu_si128((const __m128i *)(in.p + low * in.stride));
    const __m128i b = _mm_loadu_si128((const __m128i *)(in.p + high * in.stride));

    return _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
}

/* Four dwords of eight rows to [4][8]: rows 0..3 in the low, 4..7 in the high halves. */
static inline void transpose_8(struct rows in, __m256i out[4])
{
    const __m256i a = two_rows(in, 0, 4), b = two_rows(in, 1, 5);
    const __m256i c = two_rows(in, 2, 6), d = two_rows(in, 3, 7);
    const __m256i ab0 = _mm256_unpacklo_epi32(a, b), ab1 = _mm256_unpackhi_epi32(a, b);
    const __m256i cd0 = _mm256_unpacklo_epi32(c, d), cd1 = _mm256_unpackhi_epi32(c, d);

    out[0] = _mm256_unpacklo_epi64(ab0, cd0);
    out[1] = _mm256_unpackhi_epi64(ab0, cd0);
    out[2] = _mm256_unpacklo_epi64(ab1, cd1);
    out[3] = _mm256_unpackhi_epi64(ab1, cd1);
}

/* Sixteen bytes of 16 rows to [4][16][4], of which the first `skip` are not written. */
static inline void columns_16(struct rows in, int skip, uint8_t *out)
{
    __m256i low[4], high[4];

    transpose_8(in, low);
    transpose_8((struct rows){ in.p + 8 * in.stride, in.stride }, high);
    for (int i = skip; i < 4; i++) {
        uint8_t *o = out + 64 * (i - skip);
        _mm256_storeu_si256((__m256i *)o, low[i]);
        _mm256_storeu_si256((__m256i *)(o + 32), high[i]);
    }
}

static void pack_dwords(struct rows in, int count, uint8_t *out)
{
    const int whole = count / 4 * 4, skip = (4 - count % 4) % 4;

    for (int i = 0; i < whole; i += 4) {
        columns_16((struct rows){ in.p + 4 * i, in.stride }, 0, out + 64 * i);
    }
    if (skip) {  /* the dwords in front belong to the block, those behind may not */
        columns_16((struct rows){ in.p + 4 * (whole - skip), in.stride }, skip, out + 64 * whole);
    }
}

/* One dword of rows r .. r + 3. */
static inline __m128i four_dwords(struct rows in, size_t r)
{
    __m128i v[4];

    for (size_t i = 0; i < 4; i++) {
        int32_t x;
        memcpy(&x, in.p + (r + i) * in.stride, sizeof x);
        v[i] = _mm_cvtsi32_si128(x);
    }
    return _mm_unpacklo_epi64(_mm_unpacklo_epi32(v[0], v[1]), _mm_unpacklo_epi32(v[2], v[3]));
}

/* 16 bits per row.  Dwords are read; `last`: the field ends the block, so its dword
 * begins before it. */
static void pack_word(struct rows in, bool last, uint8_t *out)
{
    const struct rows from = { in.p - (last ? 2 : 0), in.stride };

    for (int half = 0; half < 2; half++) {
        __m128i a = four_dwords(from, (size_t)(8 * half));
        __m128i b = four_dwords(from, (size_t)(8 * half + 4));
        if (last) {
            a = _mm_srli_epi32(a, 16);
            b = _mm_srli_epi32(b, 16);
        } else {
            a = _mm_and_si128(a, _mm_set1_epi32(0xFFFF));
            b = _mm_and_si128(b, _mm_set1_epi32(0xFFFF));
        }
        _mm_storeu_si128((__m128i *)(out + 16 * half), _mm_packus_epi32(a, b));
    }
}

/* [16 rows][4 bytes] to [4][16]. */
static inline void byte_planes(const __m128i in[4], __m128i out[4])
{
    const __m128i order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m128i a = _mm_shuffle_epi8(in[0], order), b = _mm_shuffle_epi8(in[1], order);
    const __m128i c = _mm_shuffle_epi8(in[2], order), d = _mm_shuffle_epi8(in[3], order);
    const __m128i ab0 = _mm_unpacklo_epi32(a, b), ab1 = _mm_unpackhi_epi32(a, b);
    const __m128i cd0 = _mm_unpacklo_epi32(c, d), cd1 = _mm_unpackhi_epi32(c, d);

    out[0] = _mm_unpacklo_epi64(ab0, cd0);
    out[1] = _mm_unpackhi_epi64(ab0, cd0);
    out[2] = _mm_unpacklo_epi64(ab1, cd1);
    out[3] = _mm_unpackhi_epi64(ab1, cd1);
}

/* Sixteen bytes per row to [16][16]. */
static void pack_bytes(struct rows in, uint8_t *out)
{
    uint8_t dwords[4][64];

    columns_16(in, 0, dwords[0]);
    for (int i = 0; i < 4; i++) {
        __m128i v[4], planes[4];
        for (int j = 0; j < 4; j++) {
            v[j] = _mm_loadu_si128((const __m128i *)(dwords[i] + 16 * j));
        }
        byte_planes(v, planes);
        for (int j = 0; j < 4; j++) {
            _mm_storeu_si128((__m128i *)(out + 64 * i + 16 * j), planes[j]);
        }
    }
}

/* 32 bits per row to eight masks: nibble i of row r becomes nibble r of mask i. */
static void pack_masks(struct rows in, uint8_t *out)
{
    const __m128i low = _mm_set1_epi8(15), join = _mm_set1_epi16(0x1001);
    __m128i v[4], planes[4];

    for (int j = 0; j < 4; j++) {
        v[j] = four_dwords(in, (size_t)(4 * j));
    }
    byte_planes(v, planes);
    for (int j = 0; j < 4; j++) {
        /* Two neighbouring rows share a byte: low + 16 * high. */
        const __m128i a = _mm_maddubs_epi16(_mm_and_si128(planes[j], low), join);
        const __m128i b = _mm_maddubs_epi16(_mm_and_si128(_mm_srli_epi16(planes[j], 4), low), join);
        _mm_storeu_si128((__m128i *)(out + 16 * j), _mm_packus_epi16(a, b));
    }
}

static void pack_panel(const struct panel_field *f, int block_bytes, struct rows block,
                       uint8_t *out)
{
    for (; f->count != 0; f++) {
        const struct rows in = { block.p + f->offset, block.stride };
        if (f->order == PANEL_BITS) {
            for (int i = 0; i < f->count; i++) {
                pack_masks((struct rows){ in.p + 4 * i, in.stride }, out + 64 * i);
            }
        } else if (f->width == 4) {
            pack_dwords(in, f->count, out);
        } else if (f->width == 2) {
            pack_word(in, f->offset + 2 == block_bytes, out);
        } else if (f->count == 1) {
            for (size_t r = 0; r < PANEL_ROWS; r++) {
                out[r] = in.p[r * in.stride];
            }
        } else {
            pack_bytes(in, out);
        }
        out += PANEL_ROWS * f->count * f->width;
    }
}

void panel_pack_avx2(const struct quant_type *type, const void *rows, size_t row_bytes, int k,
                     int n_rows, void *panels)
{
    const struct panel_field *f = panel_fields(type->id);
    const int n_blocks = k / type->block;
    const size_t panel_bytes = PANEL_ROWS * (size_t)type->block_bytes;
    const uint8_t *next = (const uint8_t *)rows + PANEL_ROWS * row_bytes;

    if (n_rows < PANEL_ROWS) {  /* at most once per matrix */
        panel_pack(type, rows, row_bytes, k, n_rows, panels);
        return;
    }
    assert(f != NULL && k % type->block == 0);
    for (int b = 0; b < n_blocks; b++) {
        const size_t at = (size_t)b * (size_t)type->block_bytes;
        const struct rows block = { (const uint8_t *)rows + at, row_bytes };
        /* The next row group, in the order of memory. */
        for (const uint8_t *end = next + panel_bytes; next < end; next += 64) {
            _mm_prefetch((const char *)next, _MM_HINT_T1);
        }
        pack_panel(f, type->block_bytes, block, (uint8_t *)panels + (size_t)b * panel_bytes);
    }
}

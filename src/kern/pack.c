/* pack.c - blocks of 16 rows into panels and back, in plain C.
 *
 * The layout is the table below; everything else follows it.  Faster packers of
 * the instruction sets must write the same bytes. */
#include <assert.h>
#include <string.h>

#include "kern/dot.h"
#include "kern/panel.h"
#include "quant/blocks.h"

#define WORDS(type, field, n, w) { PANEL_WORDS, offsetof(struct block_##type, field), n, w }
#define BITS(type, field, n) { PANEL_BITS, offsetof(struct block_##type, field), n, 4 }

static const struct panel_field fields[QT_COUNT][PANEL_FIELDS_MAX + 1] = {
    [QT_Q4_0] = { WORDS(q4_0, d, 1, 2), WORDS(q4_0, q, 4, 4) },
    [QT_Q4_1] = { WORDS(q4_1, d, 1, 2), WORDS(q4_1, m, 1, 2), WORDS(q4_1, q, 4, 4) },
    [QT_Q5_0] = { WORDS(q5_0, d, 1, 2), BITS(q5_0, h, 1), WORDS(q5_0, q, 4, 4) },
    [QT_Q5_1] = { WORDS(q5_1, d, 1, 2), WORDS(q5_1, m, 1, 2), BITS(q5_1, h, 1),
                  WORDS(q5_1, q, 4, 4) },
    [QT_Q8_0] = { WORDS(q8_0, d, 1, 2), WORDS(q8_0, q, 8, 4) },
    [QT_Q2_K] = { WORDS(q2_k, d, 1, 2), WORDS(q2_k, dmin, 1, 2), WORDS(q2_k, sc, 16, 1),
                  WORDS(q2_k, q, 16, 4) },
    [QT_Q3_K] = { WORDS(q3_k, d, 1, 2), WORDS(q3_k, a, 3, 4), WORDS(q3_k, h, 8, 4),
                  WORDS(q3_k, q, 16, 4) },
    [QT_Q4_K] = { WORDS(q4_k, d, 1, 2), WORDS(q4_k, dmin, 1, 2), WORDS(q4_k, a, 3, 4),
                  WORDS(q4_k, q, 32, 4) },
    [QT_Q5_K] = { WORDS(q5_k, d, 1, 2), WORDS(q5_k, dmin, 1, 2), WORDS(q5_k, a, 3, 4),
                  WORDS(q5_k, h, 8, 4), WORDS(q5_k, q, 32, 4) },
    [QT_Q6_K] = { WORDS(q6_k, d, 1, 2), WORDS(q6_k, sc, 16, 1), WORDS(q6_k, ql, 32, 4),
                  WORDS(q6_k, qh, 16, 4) },
    /* From here on the dwords of several fields that follow each other go as one. */
    [QT_IQ2_XXS] = { WORDS(iq2_xxs, d, 1, 2), WORDS(iq2_xxs, q, 16, 4) },
    [QT_IQ2_XS] = { WORDS(iq2_xs, d, 1, 2), WORDS(iq2_xs, q, 18, 4) },
    [QT_IQ2_S] = { WORDS(iq2_s, d, 1, 2), WORDS(iq2_s, q, 20, 4) },
    [QT_IQ3_XXS] = { WORDS(iq3_xxs, d, 1, 2), WORDS(iq3_xxs, q, 24, 4) },
    [QT_IQ3_S] = { WORDS(iq3_s, d, 1, 2), WORDS(iq3_s, q, 27, 4) },
    [QT_IQ1_S] = { WORDS(iq1_s, d, 1, 2), WORDS(iq1_s, q, 12, 4) },
    [QT_IQ1_M] = { WORDS(iq1_m, q, 14, 4) },
    [QT_IQ4_NL] = { WORDS(iq4_nl, d, 1, 2), WORDS(iq4_nl, q, 4, 4) },
    [QT_IQ4_XS] = { WORDS(iq4_xs, d, 1, 2), WORDS(iq4_xs, sh, 1, 2), WORDS(iq4_xs, sl, 33, 4) },
    [QT_TQ1_0] = { WORDS(tq1_0, d, 1, 2), WORDS(tq1_0, q, 13, 4) },
    [QT_TQ2_0] = { WORDS(tq2_0, d, 1, 2), WORDS(tq2_0, q, 16, 4) },
    [QT_MXFP4] = { WORDS(mxfp4, e, 1, 1), WORDS(mxfp4, q, 4, 4) },
    [QT_NVFP4] = { WORDS(nvfp4, sc, 9, 4) },
    [QT_Q1_0] = { WORDS(q1_0, d, 1, 2), BITS(q1_0, q, 4) },
    [QT_Q2_0] = { WORDS(q2_0, d, 1, 2), WORDS(q2_0, q, 4, 4) },
};

const struct panel_field *panel_fields(uint32_t type_id)
{
    return type_id < QT_COUNT && fields[type_id][0].count != 0 ? fields[type_id] : NULL;
}

/* Four bits of row r for every mask: bits 4r .. 4r + 3. */
static void bits_to_masks(const uint8_t h[4], int r, uint8_t *masks)
{
    for (int i = 0; i < 8; i++) {
        const unsigned nibble = (h[i / 2] >> (4 * (i % 2))) & 15u;
        masks[8 * i + r / 2] = (uint8_t)(masks[8 * i + r / 2] | nibble << (4 * (r % 2)));
    }
}

static void masks_to_bits(const uint8_t *masks, int r, uint8_t h[4])
{
    memset(h, 0, 4);
    for (int i = 0; i < 8; i++) {
        const unsigned nibble = (masks[8 * i + r / 2] >> (4 * (r % 2))) & 15u;
        h[i / 2] = (uint8_t)(h[i / 2] | nibble << (4 * (i % 2)));
    }
}

/* One row of one block; the panel is zero where no row has been put yet. */
static void put_row(const struct panel_field *f, const uint8_t *block, int r, uint8_t *panel)
{
    for (; f->count != 0; f++) {
        if (f->order == PANEL_BITS) {
            for (int i = 0; i < f->count; i++) {
                bits_to_masks(block + f->offset + 4 * i, r, panel + 64 * i);
            }
        } else {
            for (int i = 0; i < f->count; i++) {
                memcpy(panel + (PANEL_ROWS * i + r) * f->width, block + f->offset + i * f->width,
                       f->width);
            }
        }
        panel += PANEL_ROWS * f->count * f->width;
    }
}

static void get_row(const struct panel_field *f, const uint8_t *panel, int r, uint8_t *block)
{
    for (; f->count != 0; f++) {
        if (f->order == PANEL_BITS) {
            for (int i = 0; i < f->count; i++) {
                masks_to_bits(panel + 64 * i, r, block + f->offset + 4 * i);
            }
        } else {
            for (int i = 0; i < f->count; i++) {
                memcpy(block + f->offset + i * f->width, panel + (PANEL_ROWS * i + r) * f->width,
                       f->width);
            }
        }
        panel += PANEL_ROWS * f->count * f->width;
    }
}

void panel_pack(const struct quant_type *type, const void *rows, size_t row_bytes, int k,
                int n_rows, void *panels)
{
    const struct panel_field *f = panel_fields(type->id);
    const size_t block_bytes = (size_t)type->block_bytes;
    const size_t n_blocks = (size_t)(k / type->block);

    assert(f != NULL && n_rows >= 1 && n_rows <= PANEL_ROWS && k % type->block == 0);
    memset(panels, 0, PANEL_ROWS * block_bytes * n_blocks);
    for (size_t b = 0; b < n_blocks; b++) {
        for (int r = 0; r < n_rows; r++) {
            put_row(f, (const uint8_t *)rows + (size_t)r * row_bytes + b * block_bytes, r,
                    (uint8_t *)panels + b * PANEL_ROWS * block_bytes);
        }
    }
}

void panel_unpack(const struct quant_type *type, const void *panels, size_t row_bytes, int k,
                  int n_rows, void *rows)
{
    const struct panel_field *f = panel_fields(type->id);
    const size_t block_bytes = (size_t)type->block_bytes;
    const size_t n_blocks = (size_t)(k / type->block);

    assert(f != NULL && n_rows >= 1 && n_rows <= PANEL_ROWS && k % type->block == 0);
    for (size_t b = 0; b < n_blocks; b++) {
        for (int r = 0; r < n_rows; r++) {
            get_row(f, (const uint8_t *)panels + b * PANEL_ROWS * block_bytes, r,
                    (uint8_t *)rows + (size_t)r * row_bytes + b * block_bytes);
        }
    }
}

/* q_iq.c - integer views of the codebook types.
 *
 * A file's scale is (0.5 + s) times a power of two, or 2 * s + 1: here it is always the odd
 * integer 2 * s + 1, and d takes the power. */
#include <string.h>

#include "quant/blocks.h"
#include "quant/iq_tables.h"

/* code[j] = -magnitude where bit j is set; n bytes of `grid`. */
static void put_signed(uint64_t grid, unsigned signs, int n, int8_t *code)
{
    for (int j = 0; j < n; j++) {
        const int v = (int)(grid >> 8 * j & 255);
        code[j] = (int8_t)(signs >> j & 1 ? -v : v);
    }
}

/* Twice the nibble plus one, for 16 weights each. */
static void put_nibble_scales(const uint8_t *sc, int16_t scale[16])
{
    for (int i = 0; i < 16; i++) {
        const int nibble = sc[i / 2] >> 4 * (i % 2) & 15;
        scale[i] = (int16_t)(2 * nibble + 1);
    }
}

static uint32_t load_u32(const uint8_t *p)
{
    uint32_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

void iq2_xxs_unpack(const void *block, struct qblock *out)
{
    const struct block_iq2_xxs *b = block;

    set_single_scale(out, f16_to_f32(b->d) * 0.125f);
    for (int ib = 0; ib < 8; ib++) {
        const uint8_t *q = b->q + 8 * ib;
        const uint32_t w = load_u32(q + 4);
        out->scale[2 * ib] = out->scale[2 * ib + 1] = (int16_t)(2 * (w >> 28) + 1);
        for (int l = 0; l < 4; l++) {
            put_signed(iq2xxs_grid[q[l]], iq_signs(w >> 7 * l & 127), 8,
                       out->code + 32 * ib + 8 * l);
        }
    }
}

void iq2_xs_unpack(const void *block, struct qblock *out)
{
    const struct block_iq2_xs *b = block;

    set_single_scale(out, f16_to_f32(b->d) * 0.125f);
    put_nibble_scales(b->sc, out->scale);
    for (int i = 0; i < 32; i++) {
        put_signed(iq2xs_grid[b->q[i] & 511], iq_signs(b->q[i] >> 9), 8, out->code + 8 * i);
    }
}

void iq2_s_unpack(const void *block, struct qblock *out)
{
    const struct block_iq2_s *b = block;

    set_single_scale(out, f16_to_f32(b->d) * 0.125f);
    put_nibble_scales(b->sc, out->scale);
    for (int i = 0; i < 32; i++) {
        const int high = b->qh[i / 4] >> 2 * (i % 4) & 3;
        put_signed(iq2s_grid[b->q[i] | high << 8], b->sg[i], 8, out->code + 8 * i);
    }
}

void iq3_xxs_unpack(const void *block, struct qblock *out)
{
    const struct block_iq3_xxs *b = block;

    set_single_scale(out, f16_to_f32(b->d) * 0.25f);
    for (int ib = 0; ib < 8; ib++) {
        const uint32_t w = load_u32(b->w + 4 * ib);
        out->scale[2 * ib] = out->scale[2 * ib + 1] = (int16_t)(2 * (w >> 28) + 1);
        for (int j = 0; j < 8; j++) {
            const unsigned signs = iq_signs(w >> 7 * (j / 2) & 127) >> 4 * (j % 2);
            put_signed(iq3xxs_grid[b->q[8 * ib + j]], signs, 4, out->code + 32 * ib + 4 * j);
        }
    }
}

void iq3_s_unpack(const void *block, struct qblock *out)
{
    const struct block_iq3_s *b = block;

    set_single_scale(out, f16_to_f32(b->d));
    for (int i = 0; i < 16; i++) {
        const int nibble = b->sc[i / 4] >> 4 * (i / 2 % 2) & 15;
        out->scale[i] = (int16_t)(2 * nibble + 1);
    }
    for (int i = 0; i < 64; i++) {
        const int high = b->qh[i / 8] >> (i % 8) & 1;
        const unsigned signs = (unsigned)b->sg[i / 2] >> 4 * (i % 2);
        put_signed(iq3s_grid[b->q[i] | high << 8], signs, 4, out->code + 4 * i);
    }
}

/* An offset of an eighth, up or down, is added to -1, 0 or 1: codes count eighths. */
static void put_eighths(uint64_t grid, bool down, int8_t *code)
{
    for (int j = 0; j < 8; j++) {
        code[j] = (int8_t)(8 * (int8_t)(grid >> 8 * j & 255) + (down ? -1 : 1));
    }
}

void iq1_s_unpack(const void *block, struct qblock *out)
{
    const struct block_iq1_s *b = block;

    set_single_scale(out, f16_to_f32(b->d) * 0.125f);
    for (int i = 0; i < 32; i++) {
        const int h = b->qh[i / 4], high = h >> 3 * (i % 4) & 7;
        out->scale[i / 2] = (int16_t)(2 * (h >> 12 & 7) + 1);
        put_eighths(iq1_grid[b->q[i] | high << 8], h >> 15 != 0, out->code + 8 * i);
    }
}

void iq1_m_unpack(const void *block, struct qblock *out)
{
    const struct block_iq1_m *b = block;
    const uint16_t d = (uint16_t)(b->s[0] >> 12 | (b->s[1] >> 8 & 0x00F0) |
                                  (b->s[2] >> 4 & 0x0F00) | (b->s[3] & 0xF000));

    set_single_scale(out, f16_to_f32(d) * 0.125f);
    for (int i = 0; i < 16; i++) {
        out->scale[i] = (int16_t)(2 * (b->s[i / 4] >> 3 * (i % 4) & 7) + 1);
    }
    for (int i = 0; i < 32; i++) {
        const int h = b->qh[i / 2] >> 4 * (i % 2);
        put_eighths(iq1_grid[b->q[i] | (h & 7) << 8], (h & 8) != 0, out->code + 8 * i);
    }
}

void iq4_nl_unpack(const void *block, struct qblock *out)
{
    const struct block_iq4_nl *b = block;

    set_single_scale(out, f16_to_f32(b->d));
    for (int i = 0; i < 16; i++) {
        out->code[i] = iq4_values[b->q[i] & 15];
        out->code[i + 16] = iq4_values[b->q[i] >> 4];
    }
}

void iq4_xs_unpack(const void *block, struct qblock *out)
{
    const struct block_iq4_xs *b = block;

    set_single_scale(out, f16_to_f32(b->d));
    for (int ib = 0; ib < 8; ib++) {
        const int low = b->sl[ib / 2] >> 4 * (ib % 2) & 15, high = b->sh >> 2 * ib & 3;
        out->scale[2 * ib] = out->scale[2 * ib + 1] = (int16_t)((low | high << 4) - 32);
        for (int i = 0; i < 16; i++) {
            const uint8_t byte = b->q[16 * ib + i];
            out->code[32 * ib + i] = iq4_values[byte & 15];
            out->code[32 * ib + i + 16] = iq4_values[byte >> 4];
        }
    }
}

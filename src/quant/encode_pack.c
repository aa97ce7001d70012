/* encode_pack.c - from integers to the bytes of a block: the inverse of the
 * unpackers in q_legacy.c, q_k.c and q_iq.c, in their order. */
#include <string.h>

#include "quant/blocks.h"
#include "quant/encode.h"
#include "quant/iq_tables.h"

/* nibble = code + zero, without what is above four bits */
static void pack_nibbles(const int8_t *code, int zero, uint8_t q[16])
{
    for (int i = 0; i < 16; i++) {
        q[i] = (uint8_t)(((code[i] + zero) & 15) | ((code[i + 16] + zero) & 15) << 4);
    }
}

static void pack_fifth_bits(const int8_t *code, int zero, uint8_t h[4])
{
    memset(h, 0, 4);
    for (int i = 0; i < 32; i++) {
        h[i / 8] = (uint8_t)(h[i / 8] | (((code[i] + zero) >> 4) & 1) << (i % 8));
    }
}

void q4_0_pack(const struct fitted *b, void *block)
{
    struct block_q4_0 *out = block;

    out->d = f32_to_f16(b->d);
    pack_nibbles(b->code, 8, out->q);
}

void q4_1_pack(const struct fitted *b, void *block)
{
    struct block_q4_1 *out = block;

    out->d = f32_to_f16(b->d);
    out->m = f32_to_f16(b->e);
    pack_nibbles(b->code, 0, out->q);
}

void q5_0_pack(const struct fitted *b, void *block)
{
    struct block_q5_0 *out = block;

    out->d = f32_to_f16(b->d);
    pack_nibbles(b->code, 16, out->q);
    pack_fifth_bits(b->code, 16, out->h);
}

void q5_1_pack(const struct fitted *b, void *block)
{
    struct block_q5_1 *out = block;

    out->d = f32_to_f16(b->d);
    out->m = f32_to_f16(b->e);
    pack_nibbles(b->code, 0, out->q);
    pack_fifth_bits(b->code, 0, out->h);
}

void q8_0_pack(const struct fitted *b, void *block)
{
    struct block_q8_0 *out = block;

    out->d = f32_to_f16(b->d);
    memcpy(out->q, b->code, sizeof out->q);
}

/* ---- 256 weights ----------------------------------------------------------------- */

/* The two low bits of code + zero, shifted down by `shift` first. */
static void pack_two_bits(const int8_t *code, int zero, int shift, uint8_t q[64])
{
    memset(q, 0, 64);
    for (int i = 0; i < 256; i++) {
        const int half = i / 128, run = i % 128 / 32, l = i % 32;
        uint8_t *byte = &q[32 * half + l];
        *byte = (uint8_t)(*byte | (((code[i] + zero) >> shift) & 3) << (2 * run));
    }
}

static void pack_four_bits(const int8_t *code, uint8_t q[128])
{
    for (int i = 0; i < 128; i++) {
        const int8_t *c = &code[i / 32 * 64 + i % 32];
        q[i] = (uint8_t)((c[0] & 15) | (c[32] & 15) << 4);
    }
}

/* Bit `bit` of code + zero, a byte for elements 32 apart. */
static void pack_high_bits(const int8_t *code, int zero, int bit, uint8_t h[32])
{
    memset(h, 0, 32);
    for (int i = 0; i < 256; i++) {
        h[i % 32] = (uint8_t)(h[i % 32] | (((code[i] + zero) >> bit) & 1) << (i / 32));
    }
}

void q2_k_pack(const struct fitted *b, void *block)
{
    struct block_q2_k *out = block;

    out->d = f32_to_f16(b->d);
    out->dmin = f32_to_f16(-b->e);
    for (int s = 0; s < 16; s++) {
        out->sc[s] = (uint8_t)(b->scale[s] | b->min[s] << 4);
    }
    pack_two_bits(b->code, 0, 0, out->q);
}

void q3_k_pack(const struct fitted *b, void *block)
{
    struct block_q3_k *out = block;

    out->d = f32_to_f16(b->d);
    memset(out->a, 0, sizeof out->a);
    for (int s = 0; s < 16; s++) {
        const int scale = b->scale[s] + 32;
        out->a[s % 8] = (uint8_t)(out->a[s % 8] | (scale & 15) << (s < 8 ? 0 : 4));
        out->a[8 + s % 4] = (uint8_t)(out->a[8 + s % 4] | (scale >> 4) << (2 * (s / 4)));
    }
    pack_two_bits(b->code, 4, 0, out->q);
    pack_high_bits(b->code, 4, 2, out->h);
}

/* The eight pairs of q4_K and q5_K. */
static void pack_six_bits(const struct fitted *b, uint8_t a[12])
{
    for (int j = 0; j < 4; j++) {
        const int sc = b->scale[j], mn = b->min[j];
        const int sc4 = b->scale[j + 4], mn4 = b->min[j + 4];
        a[j] = (uint8_t)(sc | (sc4 >> 4) << 6);
        a[j + 4] = (uint8_t)(mn | (mn4 >> 4) << 6);
        a[j + 8] = (uint8_t)((sc4 & 15) | (mn4 & 15) << 4);
    }
}

void q4_k_pack(const struct fitted *b, void *block)
{
    struct block_q4_k *out = block;

    out->d = f32_to_f16(b->d);
    out->dmin = f32_to_f16(-b->e);
    pack_six_bits(b, out->a);
    pack_four_bits(b->code, out->q);
}

void q5_k_pack(const struct fitted *b, void *block)
{
    struct block_q5_k *out = block;

    out->d = f32_to_f16(b->d);
    out->dmin = f32_to_f16(-b->e);
    pack_six_bits(b, out->a);
    pack_four_bits(b->code, out->q);
    pack_high_bits(b->code, 0, 4, out->h);
}

void q6_k_pack(const struct fitted *b, void *block)
{
    struct block_q6_k *out = block;

    out->d = f32_to_f16(b->d);
    for (int s = 0; s < 16; s++) {
        out->sc[s] = (int8_t)b->scale[s];
    }
    memset(out->ql, 0, sizeof out->ql);
    for (int i = 0; i < 256; i++) {
        const int half = i / 128, run = i % 128 / 32, l = i % 32;
        uint8_t *byte = &out->ql[64 * half + 32 * (run & 1) + l];
        *byte = (uint8_t)(*byte | ((b->code[i] + 32) & 15) << (run < 2 ? 0 : 4));
    }
    pack_two_bits(b->code, 32, 4, out->qh);
}

/* ---- four bits that stand for uneven values ----------------------------------------- */

static int index_of(int8_t value)
{
    int k = 0;

    while (k < 15 && iq4_values[k] != value) {
        k++;
    }
    return k;
}

static void pack_indices(const int8_t *code, uint8_t q[16])
{
    for (int i = 0; i < 16; i++) {
        q[i] = (uint8_t)(index_of(code[i]) | index_of(code[i + 16]) << 4);
    }
}

void iq4_nl_pack(const struct fitted *b, void *block)
{
    struct block_iq4_nl *out = block;

    out->d = f32_to_f16(b->d);
    pack_indices(b->code, out->q);
}

void iq4_xs_pack(const struct fitted *b, void *block)
{
    struct block_iq4_xs *out = block;

    out->d = f32_to_f16(b->d);
    out->sh = 0;
    memset(out->sl, 0, sizeof out->sl);
    for (int j = 0; j < 8; j++) {
        const int scale = b->scale[j] + 32;
        out->sl[j / 2] = (uint8_t)(out->sl[j / 2] | (scale & 15) << (4 * (j % 2)));
        out->sh = (uint16_t)(out->sh | (scale >> 4) << (2 * j));
        pack_indices(b->code + 32 * j, out->q + 16 * j);
    }
}

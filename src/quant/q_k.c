/* q_k.c - integer views of the K types: 256 weights, small scales for 16 or 32 each. */
#include "quant/blocks.h"

/* Two bits of q for element i of 256: bytes of 32 consecutive elements hold four
 * such runs, one above the other. */
static int two_bits(const uint8_t q[64], int i)
{
    const int half = i / 128, run = i % 128 / 32, l = i % 32;

    return (q[32 * half + l] >> (2 * run)) & 3;
}

/* Four bits for element i: 32 bytes hold two runs of 32. */
static int four_bits(const uint8_t q[128], int i)
{
    const uint8_t byte = q[i / 64 * 32 + i % 32];

    return i / 32 % 2 == 0 ? byte & 15 : byte >> 4;
}

void q2_k_unpack(const void *block, struct qblock *out)
{
    const struct block_q2_k *b = block;

    out->d[0] = f16_to_f32(b->d);
    out->e = -f16_to_f32(b->dmin);
    for (int s = 0; s < 16; s++) {
        out->scale[s] = b->sc[s] & 15;
        out->min[s] = b->sc[s] >> 4;
    }
    for (int i = 0; i < 256; i++) {
        out->code[i] = (int8_t)two_bits(b->q, i);
    }
}

void q3_k_unpack(const void *block, struct qblock *out)
{
    const struct block_q3_k *b = block;

    out->d[0] = f16_to_f32(b->d);
    out->e = 0;
    for (int s = 0; s < 16; s++) {
        const int low = s < 8 ? b->a[s] & 15 : b->a[s - 8] >> 4;
        const int high = (b->a[8 + s % 4] >> (2 * (s / 4))) & 3;
        out->scale[s] = (int16_t)((low | high << 4) - 32);
        out->min[s] = 0;
    }
    for (int i = 0; i < 256; i++) {
        const int bit = (b->h[i % 32] >> (i / 32)) & 1;
        out->code[i] = (int8_t)(two_bits(b->q, i) + 4 * bit - 4);
    }
}

/* The eight 6-bit scales and minima of q4_K and q5_K; each serves two sixteens. */
static void unpack_six_bits(const uint8_t a[12], struct qblock *out)
{
    for (int j = 0; j < 8; j++) {
        int sc, mn;
        if (j < 4) {
            sc = a[j] & 63;
            mn = a[j + 4] & 63;
        } else {
            sc = (a[j + 4] & 15) | (a[j - 4] >> 6) << 4;
            mn = (a[j + 4] >> 4) | (a[j] >> 6) << 4;
        }
        out->scale[2 * j] = out->scale[2 * j + 1] = (int16_t)sc;
        out->min[2 * j] = out->min[2 * j + 1] = (int16_t)mn;
    }
}

void q4_k_unpack(const void *block, struct qblock *out)
{
    const struct block_q4_k *b = block;

    out->d[0] = f16_to_f32(b->d);
    out->e = -f16_to_f32(b->dmin);
    unpack_six_bits(b->a, out);
    for (int i = 0; i < 256; i++) {
        out->code[i] = (int8_t)four_bits(b->q, i);
    }
}

void q5_k_unpack(const void *block, struct qblock *out)
{
    const struct block_q5_k *b = block;

    out->d[0] = f16_to_f32(b->d);
    out->e = -f16_to_f32(b->dmin);
    unpack_six_bits(b->a, out);
    for (int i = 0; i < 256; i++) {
        const int bit = (b->h[i % 32] >> (i / 32)) & 1;
        out->code[i] = (int8_t)(four_bits(b->q, i) | bit << 4);
    }
}

void q6_k_unpack(const void *block, struct qblock *out)
{
    const struct block_q6_k *b = block;

    out->d[0] = f16_to_f32(b->d);
    out->e = 0;
    for (int s = 0; s < 16; s++) {
        out->scale[s] = b->sc[s];
        out->min[s] = 0;
    }
    for (int i = 0; i < 256; i++) {
        /* The low nibbles of 128 elements lie in 64 bytes: runs 0, 1 low, runs 2, 3 high. */
        const int half = i / 128, run = i % 128 / 32, l = i % 32;
        const uint8_t byte = b->ql[64 * half + 32 * (run & 1) + l];
        const int low = run < 2 ? byte & 15 : byte >> 4;
        out->code[i] = (int8_t)((low | two_bits(b->qh, i) << 4) - 32);
    }
}

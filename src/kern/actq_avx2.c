/* actq_avx2.c - quantising activations for the AVX2 tier: see actq_avx2.h. */
#include "kern/actq_avx2.h"

#include <assert.h>
#include <immintrin.h>
#include <string.h>

#include "kern/unpack_avx2.h"

/* One block of one token before it is spread over its group. */
struct block_act {
    float d;
    int16_t lanes[16][2];  /* lane sums of each 16 codes */
    int8_t q[256] __attribute__((aligned(32)));
};

size_t act_bytes_avx2(enum act_kind kind, int k, int n_tok)
{
    return (act_dwords(kind, k) * 4 * (size_t)n_tok + 63) / 64 * 64;
}

/* Largest magnitude of n values as bits: in this order NaN is above infinity. */
static uint32_t largest(const float *x, int n)
{
    const __m256i no_sign = _mm256_set1_epi32(0x7FFFFFFF);
    __m256i top = _mm256_setzero_si256();

    for (int i = 0; i < n; i += 8) {
        top = _mm256_max_epi32(top, _mm256_and_si256(load_256(x + i), no_sign));
    }
    __m128i t = _mm_max_epi32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
    t = _mm_max_epi32(t, _mm_shuffle_epi32(t, 0x4E));
    t = _mm_max_epi32(t, _mm_shuffle_epi32(t, 0xB1));
    return (uint32_t)_mm_cvtsi128_si32(t);
}

static __m256i rounded(const float *x, __m256 inverse)
{
    return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), inverse));
}

/* 32 codes in order. */
static __m256i codes_of_32(const float *x, __m256 inverse)
{
    const __m256i a = _mm256_packs_epi32(rounded(x, inverse), rounded(x + 8, inverse));
    const __m256i b = _mm256_packs_epi32(rounded(x + 16, inverse), rounded(x + 24, inverse));

    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b),
                                       _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Lane sums of the two sixteens among 32 codes. */
static void lane_sums(__m256i q, int16_t lanes[2][2])
{
    __m256i t = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);

    t = _mm256_add_epi16(t, _mm256_shuffle_epi32(t, 0x4E));
    t = _mm256_add_epi16(t, _mm256_shuffle_epi32(t, 0xB1));
    const int32_t first = _mm_cvtsi128_si32(_mm256_castsi256_si128(t));
    const int32_t second = _mm_cvtsi128_si32(_mm256_extracti128_si256(t, 1));
    memcpy(lanes[0], &first, sizeof first);
    memcpy(lanes[1], &second, sizeof second);
}

/* The rules for blocks that are zero, tiny or not finite are those of the scalar
 * version. */
static void quantise_block(const float *x, int n, struct block_act *out)
{
    union { uint32_t u; float f; } top = { largest(x, n) };
    const float inverse = 127.0f / top.f;
    const bool finite = top.u < 0x7F800000u;

    if (!finite || !(inverse <= 0x1.fffffep127f)) {
        out->d = finite ? 0.0f : top.f;
        memset(out->q, 0, (size_t)n);
        memset(out->lanes, 0, sizeof out->lanes);
        return;
    }
    out->d = top.f / 127.0f;
    for (int i = 0; i < n; i += 32) {
        const __m256i q = codes_of_32(x + i, _mm256_set1_ps(inverse));
        _mm256_store_si256((__m256i *)(out->q + i), q);
        lane_sums(q, &out->lanes[i / 16]);
    }
}

/* ---- spreading blocks over a group ------------------------------------------------ */

/* Eight dwords of four tokens to [8][4]. */
static void interleave_4(const struct block_act *b, int at, int32_t *out)
{
    const __m256i a0 = load_256(b[0].q + at), a1 = load_256(b[1].q + at);
    const __m256i a2 = load_256(b[2].q + at), a3 = load_256(b[3].q + at);
    const __m256i t0 = _mm256_unpacklo_epi32(a0, a1), t1 = _mm256_unpacklo_epi32(a2, a3);
    const __m256i t2 = _mm256_unpackhi_epi32(a0, a1), t3 = _mm256_unpackhi_epi32(a2, a3);
    const __m256i u0 = _mm256_unpacklo_epi64(t0, t1), u1 = _mm256_unpackhi_epi64(t0, t1);
    const __m256i u2 = _mm256_unpacklo_epi64(t2, t3), u3 = _mm256_unpackhi_epi64(t2, t3);

    _mm256_storeu_si256((__m256i *)out, _mm256_permute2x128_si256(u0, u1, 0x20));
    _mm256_storeu_si256((__m256i *)(out + 8), _mm256_permute2x128_si256(u2, u3, 0x20));
    _mm256_storeu_si256((__m256i *)(out + 16), _mm256_permute2x128_si256(u0, u1, 0x31));
    _mm256_storeu_si256((__m256i *)(out + 24), _mm256_permute2x128_si256(u2, u3, 0x31));
}

/* The codes of n values as [n / 4][width] dwords. */
static void put_codes(const struct block_act *b, int n, int width, int32_t *out)
{
    if (width == ACT_GROUP) {
        for (int i = 0; i < n; i += 32) {
            interleave_4(b, i, out + i);
        }
        return;
    }
    for (int i = 0; i < n / 4; i++) {
        for (int t = 0; t < width; t++) {
            memcpy(out + i * width + t, b[t].q + 4 * i, 4);
        }
    }
}

static int32_t two_words(int low, int high)
{
    return (int32_t)((uint32_t)(uint16_t)low | (uint32_t)(uint16_t)high << 16);
}

static void put_float(float x, int32_t *out)
{
    memcpy(out, &x, sizeof x);
}

static int sum_of_16(const struct block_act *b, int i)
{
    return b->lanes[i][0] + b->lanes[i][1];
}

static void put_block_32(const struct block_act *b, int width, int32_t *out)
{
    put_codes(b, 32, width, out);
    for (int t = 0; t < width; t++) {
        const int low = b[t].lanes[0][0] + b[t].lanes[1][0];
        const int high = b[t].lanes[0][1] + b[t].lanes[1][1];
        out[A32_START_8 * width + t] = two_words(-8 * low, -8 * high);
        out[A32_START_16 * width + t] = two_words(-16 * low, -16 * high);
        out[A32_START_FIRST * width + t] =
            two_words(-16 * b[t].lanes[0][0], -16 * b[t].lanes[0][1]);
        put_float((float)(low + high), out + A32_SUM * width + t);
        put_float(b[t].d, out + A32_D * width + t);
    }
}

static void put_block_256(const struct block_act *b, int width, int32_t *out)
{
    put_codes(b, 256, width, out);
    for (int t = 0; t < width; t++) {
        for (int i = 0; i < 16; i++) {
            out[(A256_START_32 + i) * width + t] =
                two_words(-32 * b[t].lanes[i][0], -32 * b[t].lanes[i][1]);
        }
        for (int i = 0; i < 8; i++) {
            out[(A256_PAIR_16 + i) * width + t] =
                two_words(sum_of_16(&b[t], 2 * i), sum_of_16(&b[t], 2 * i + 1));
        }
        for (int i = 0; i < 4; i++) {
            out[(A256_PAIR_32 + i) * width + t] =
                two_words(sum_of_16(&b[t], 4 * i) + sum_of_16(&b[t], 4 * i + 1),
                          sum_of_16(&b[t], 4 * i + 2) + sum_of_16(&b[t], 4 * i + 3));
        }
        put_float(b[t].d, out + A256_D * width + t);
    }
}

void act_quant_avx2(enum act_kind kind, const float *x, size_t ldx, int k, int n_tok, int t0,
                    int t1, void *act)
{
    const int n = kind == ACT_Q32 ? 32 : 256;
    const size_t token_dwords = act_dwords(kind, k);

    assert(k % n == 0 && t0 % 16 == 0 && (t1 % 16 == 0 || t1 == n_tok));
    for (int t = t0; t < t1; t += ACT_GROUP) {
        const int width = act_width(n_tok, t / ACT_GROUP);
        int32_t *out = (int32_t *)act + (size_t)t * token_dwords;
        for (int i = 0; i < k; i += n) {
            struct block_act b[ACT_GROUP];
            for (int j = 0; j < width; j++) {
                quantise_block(x + (size_t)(t + j) * ldx + i, n, &b[j]);
            }
            if (kind == ACT_Q32) {
                put_block_32(b, width, out);
                out += A32_DWORDS * width;
            } else {
                put_block_256(b, width, out);
                out += A256_DWORDS * width;
            }
        }
    }
}

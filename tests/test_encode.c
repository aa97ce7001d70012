/* test_encode.c - encoders: the bytes say what was fitted, the error is at most that of the
 * reference quantiser, and nothing in the range of a type breaks them. */
#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "gguf/gguf.h"
#include "quant/encode.h"
#include "quant/iq_tables.h"
#include "quant/quant.h"
#include "test.h"

/* Relative RMS error of the reference quantiser on normally distributed weights, measured on
 * the golden models; our bound on what a second encoding adds, relative to the first. */
static const struct {
    uint32_t id;
    double reference, again;
} types[] = {
    { QT_Q4_0, 0.0860, 0.001 }, { QT_Q4_1, 0.0782, 0.001 }, { QT_Q5_0, 0.0427, 0.001 },
    { QT_Q5_1, 0.0379, 0.005 }, { QT_Q8_0, 0.00535, 0.001 }, { QT_Q2_K, 0.2965, 0.15 },
    { QT_Q3_K, 0.1507, 0.05 }, { QT_Q4_K, 0.0713, 0.15 }, { QT_Q5_K, 0.0361, 0.25 },
    { QT_Q6_K, 0.0178, 0.06 }, { QT_IQ4_NL, 0.0745, 0.005 }, { QT_IQ4_XS, 0.0752, 0.05 },
};
enum { N_TYPES = sizeof types / sizeof types[0], WEIGHTS = 64 * 256 };

static float weights[WEIGHTS], decoded[WEIGHTS], twice[WEIGHTS];
static uint16_t blocks[WEIGHTS * 2];

/* About normal: twelve uniform numbers together. */
static void fill_normal(float *x, size_t n, uint64_t seed, double scale)
{
    struct rng rng = { seed << 32 };

    for (size_t i = 0; i < n; i++) {
        double sum = -6;
        for (int k = 0; k < 12; k++) {
            sum += rng_unit(rng_next(&rng));
        }
        x[i] = (float)(scale * sum);
    }
}

static void encode_decode(uint32_t id, const float *x, size_t n, float *out)
{
    quant_encode(id, x, n, blocks);
    quant_type(id)->decode(blocks, n, out);
}

static double squares(const float *a, const float *b, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        const double d = (double)a[i] - (b ? (double)b[i] : 0);
        sum += d * d;
    }
    return sum;
}

/* ---- errors ---------------------------------------------------------------------- */

TEST(error_is_at_most_that_of_the_reference)
{
    fill_normal(weights, WEIGHTS, 1, 0.02);
    for (int i = 0; i < N_TYPES; i++) {
        encode_decode(types[i].id, weights, WEIGHTS, decoded);
        const double e = sqrt(squares(weights, decoded, WEIGHTS) / squares(weights, NULL, WEIGHTS));
        printf("  %-6s %.5f, reference %.5f\n", quant_type(types[i].id)->name, e,
               types[i].reference);
        CHECK(e > 0 && e <= types[i].reference);
    }
}

/* Weights that came out of a type go into it again nearly without loss. */
TEST(second_encoding_is_nearly_lossless)
{
    fill_normal(weights, WEIGHTS, 2, 1);
    for (int i = 0; i < N_TYPES; i++) {
        encode_decode(types[i].id, weights, WEIGHTS, decoded);
        encode_decode(types[i].id, decoded, WEIGHTS, twice);
        const double first = squares(weights, decoded, WEIGHTS);
        const double second = squares(decoded, twice, WEIGHTS);
        if (sqrt(second / first) > types[i].again) {
            fail_msg("%s: %g of the first error", quant_type(types[i].id)->name,
                     sqrt(second / first));
        }
    }
}

/* The same model in F16 and, by the reference, in every type: each tensor is at least as near
 * to the F16 weights as the reference's. */
static int compare_family(const char *folder, const char *family)
{
    char path[512];
    slm_error err;
    int n_compared = 0;

    snprintf(path, sizeof path, "%s/%s-F16/model.gguf", folder, family);
    struct gguf *truth = gguf_open(path, NULL);

    for (int i = 0; truth && i < N_TYPES; i++) {
        const struct quant_type *q = quant_type(types[i].id);
        double ours = 0, theirs = 0;

        snprintf(path, sizeof path, "%s/%s-%s/model.gguf", folder, family, q->name);
        struct gguf *g = gguf_open(path, &err);
        if (!g) {
            continue;
        }
        for (size_t k = 0; k < gguf_n_tensors(g); k++) {
            const struct gguf_tensor *t = gguf_tensor_at(g, k);
            const struct gguf_tensor *f = gguf_find_tensor(truth, t->name);
            if (t->type != q->id) {
                continue;
            }
            CHECK(f != NULL && f->type == QT_F16);
            const size_t n = f->bytes / 2;
            float *x = malloc(3 * n * sizeof *x);
            void *copy = malloc(f->bytes);
            CHECK(x != NULL && copy != NULL);
            memcpy(copy, f->data, f->bytes);
            quant_type(QT_F16)->decode(copy, n, x);
            memcpy(copy, t->data, t->bytes);
            q->decode(copy, n, x + n);
            quant_encode(q->id, x, n, copy);
            q->decode(copy, n, x + 2 * n);
            const double a = squares(x, x + 2 * n, n), b = squares(x, x + n, n);
            if (a > b) {
                fail_msg("%s %s: %g, reference %g", path, t->name, a, b);
            }
            ours += a;
            theirs += b;
            n_compared++;
            free(copy);
            free(x);
        }
        printf("  %-7s %-6s RMS error %.3f of the reference's\n", family, q->name,
               sqrt(ours / theirs));
        gguf_close(g);
    }
    gguf_close(truth);
    return n_compared;
}

TEST(every_golden_tensor_is_as_near_as_the_reference)
{
    static const char folder[] = TEST_SHARED "/golden/models";
    const int n = compare_family(folder, "llama") + compare_family(folder, "qwen3");

    if (n == 0) {
        printf("  not compared: no models in %s\n", folder);
    }
}

/* ---- bytes ----------------------------------------------------------------------- */

static int any(struct rng *rng, int lo, int hi)
{
    return lo + (int)(rng_next(rng) % (uint64_t)(hi - lo + 1));
}

/* Any integers of the ranges come back: weights are d * scale * code + e * min. */
static void check_pack(pack_fn *pack, uint32_t id, struct grid g)
{
    struct rng rng = { id };
    struct fitted b;
    uint16_t block[128];
    float out[256];

    for (int round = 0; round < 100; round++) {
        b.d = f16_to_f32((uint16_t)(0x2000 + rng_next(&rng) % 0x1000));
        b.e = g.min_hi == 0 ? 0 : -f16_to_f32((uint16_t)(0x2000 + rng_next(&rng) % 0x1000));
        for (int j = 0; j < g.block / g.sub; j++) {
            b.scale[j] = any(&rng, g.scale_lo, g.scale_hi);
            b.min[j] = any(&rng, g.min_lo, g.min_hi);
        }
        for (int i = 0; i < g.block; i++) {
            const int code = any(&rng, g.code_lo, g.code_hi);
            b.code[i] = g.codes ? g.codes[code] : (int8_t)code;
        }
        pack(&b, block);
        quant_type(id)->decode(block, (size_t)g.block, out);
        for (int i = 0; i < g.block; i++) {
            const int j = i / g.sub;
            float want = b.d * (float)b.scale[j] * (float)b.code[i];
            if (g.min_hi > 0) {
                want += b.e * (float)b.min[j];
            }
            if (out[i] != want) {
                fail_msg("%s: weight %d is %g, not %g", quant_type(id)->name, i, (double)out[i],
                         (double)want);
            }
        }
    }
}

TEST(packing_is_the_inverse_of_unpacking)
{
    check_pack(q4_0_pack, QT_Q4_0, (struct grid){ 32, 32, -8, 7, NULL, 1, 1, 0, 0 });
    check_pack(q4_1_pack, QT_Q4_1, (struct grid){ 32, 32, 0, 15, NULL, 1, 1, 1, 1 });
    check_pack(q5_0_pack, QT_Q5_0, (struct grid){ 32, 32, -16, 15, NULL, 1, 1, 0, 0 });
    check_pack(q5_1_pack, QT_Q5_1, (struct grid){ 32, 32, 0, 31, NULL, 1, 1, 1, 1 });
    check_pack(q8_0_pack, QT_Q8_0, (struct grid){ 32, 32, -127, 127, NULL, 1, 1, 0, 0 });
    check_pack(q2_k_pack, QT_Q2_K, (struct grid){ 256, 16, 0, 3, NULL, 0, 15, 0, 15 });
    check_pack(q3_k_pack, QT_Q3_K, (struct grid){ 256, 16, -4, 3, NULL, -32, 31, 0, 0 });
    check_pack(q4_k_pack, QT_Q4_K, (struct grid){ 256, 32, 0, 15, NULL, 0, 63, 0, 63 });
    check_pack(q5_k_pack, QT_Q5_K, (struct grid){ 256, 32, 0, 31, NULL, 0, 63, 0, 63 });
    check_pack(iq4_nl_pack, QT_IQ4_NL, (struct grid){ 32, 32, 0, 15, iq4_values, 1, 1, 0, 0 });
    check_pack(iq4_xs_pack, QT_IQ4_XS, (struct grid){ 256, 32, 0, 15, iq4_values, -32, 31, 0, 0 });
    check_pack(q6_k_pack, QT_Q6_K, (struct grid){ 256, 16, -32, 31, NULL, -128, 127, 0, 0 });
}

TEST(floats_round_to_the_nearest)
{
    const float x[] = { 0, -0.0f, 1, 1.00390625f, 1.01171875f, 0x1p-133f, 65504, 0x1.fep127f };
    const uint16_t bf16[] = { 0, 0x8000, 0x3F80, 0x3F80, 0x3F82, 1, 0x4780, 0x7F7F };
    enum { N = sizeof x / sizeof x[0] };
    uint16_t out[N];
    float same[N];

    quant_encode(QT_BF16, x, N, out);
    CHECK_MEM(out, bf16, sizeof out);
    quant_encode(QT_F32, x, N, same);
    CHECK_MEM(same, x, sizeof x);
    quant_encode(QT_F16, x, N - 1, out);
    for (int i = 0; i < N - 1; i++) {
        CHECK_EQ(out[i], f32_to_f16(x[i]));
    }
}

TEST(other_types_have_no_encoder)
{
    CHECK(!quant_can_encode(4));
    CHECK(!quant_can_encode(24));
    CHECK(!quant_can_encode(QT_COUNT));
    CHECK(!quant_can_encode(UINT32_MAX));
}

/* ---- extremes -------------------------------------------------------------------- */

/* Finite, and not farther away than zeros would be. */
static void check_sane(const char *what, const float *x)
{
    for (int i = 0; i < N_TYPES; i++) {
        encode_decode(types[i].id, x, 256, decoded);
        for (int k = 0; k < 256; k++) {
            if (!isfinite(decoded[k])) {
                fail_msg("%s: %s: weight %d is %g", what, quant_type(types[i].id)->name, k,
                         (double)decoded[k]);
            }
        }
        if (squares(x, decoded, 256) > squares(x, NULL, 256)) {
            fail_msg("%s: %s: %g off, zeros %g", what, quant_type(types[i].id)->name,
                     squares(x, decoded, 256), squares(x, NULL, 256));
        }
    }
}

TEST(zeros_stay_zeros)
{
    memset(weights, 0, sizeof weights);
    for (int i = 0; i < N_TYPES; i++) {
        encode_decode(types[i].id, weights, 512, decoded);
        for (int k = 0; k < 512; k++) {
            CHECK(decoded[k] == 0);
        }
    }
}

TEST(extremes_are_sane)
{
    for (int exponent = -149; exponent <= 15; exponent++) {
        fill_normal(weights, 256, 100 + (uint64_t)(exponent + 149), ldexp(0.25, exponent));
        check_sane("small to large", weights);
    }
    fill_normal(weights, 256, 3, 1e-3);
    weights[77] = 65504;
    check_sane("one huge", weights);
    weights[77] = -65504;
    check_sane("one huge, negative", weights);
    for (int i = 0; i < 256; i++) {
        weights[i] = 65504;
    }
    check_sane("all largest", weights);
    for (int i = 0; i < 256; i++) {
        weights[i] = i % 2 ? 65504 : -65504;
    }
    check_sane("largest of both signs", weights);
    for (int i = 0; i < 256; i++) {
        weights[i] = -1e-7f - (float)i * 1e-12f;
    }
    check_sane("nearly constant", weights);
    for (int i = 0; i < 256; i++) {
        weights[i] = 5 + (float)i / 1000;
    }
    check_sane("far from zero", weights);
    for (int i = 0; i < 256; i++) {
        weights[i] = i < 16 ? 1000 : i < 32 ? 1e-4f : 0;
    }
    check_sane("sub-blocks of different size", weights);
}

int main(void)
{
    return RUN(T(error_is_at_most_that_of_the_reference), T(second_encoding_is_nearly_lossless),
               T(every_golden_tensor_is_as_near_as_the_reference),
               T(packing_is_the_inverse_of_unpacking), T(floats_round_to_the_nearest),
               T(other_types_have_no_encoder), T(zeros_stay_zeros), T(extremes_are_sane));
}

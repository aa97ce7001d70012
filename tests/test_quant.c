/* test_quant.c - codecs against values of an independent implementation, conversions
 * against the hardware's, panels and the definition of products against plain sums. */
#include <math.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/rng.h"
#include "kern/dot.h"
#include "kern/panel.h"
#include "test.h"

#define ID(ID, ...) QT_##ID,
static const uint32_t integer_types[] = { QUANT_INTEGER_TYPES(ID) };
enum { N_INTEGER = sizeof integer_types / sizeof *integer_types };

/* The whole file NAME.EXT of DIR; free() it.  NULL where there is none. */
static void *read_file(const char *dir, const char *name, const char *ext, size_t *n)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s.%s", dir, name, ext);
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        return NULL;
    }
    void *p = malloc(1 << 16);
    CHECK(p != NULL);
    *n = fread(p, 1, 1 << 16, f);
    CHECK(*n > 0 && *n < 1 << 16);
    fclose(f);
    return p;
}

static void *read_blocks(const struct quant_type *type, size_t *n)
{
    void *p = read_file(TEST_DATA "/quants", type->name, "bin", n);

    CHECK(p != NULL);
    return p;
}

/* The hash of the reference's values of a type, and how many there are. */
static uint64_t decoded_hash(const char *name, size_t *n)
{
    char key[16];
    unsigned long long hash;
    FILE *f = fopen(TEST_DATA "/quants/decoded.txt", "r");
    bool found = false;

    CHECK(f != NULL);
    while (!found && fscanf(f, "%15s %zu %llx", key, n, &hash) == 3) {
        found = strcmp(key, name) == 0;
    }
    fclose(f);
    CHECK(found);
    return hash;
}

/* The hash alone tells that a type is wrong; the values themselves, where they are, say which. */
static void check_decode(uint32_t id)
{
    const struct quant_type *type = quant_type(id);
    CHECK(type != NULL);
    CHECK_EQ(type->id, id);
    size_t n_bin, n_f32, n;
    void *bin = read_blocks(type, &n_bin);
    const uint64_t want = decoded_hash(type->name, &n);
    CHECK_EQ(n, n_bin / (size_t)type->block_bytes * (size_t)type->block);
    float *got = malloc(n * sizeof *got);
    CHECK(got != NULL);
    type->decode(bin, n, got);
    const uint64_t hash = hash_bytes(HASH_INIT, got, n * sizeof *got);
    uint32_t *values = read_file(TEST_SHARED "/golden/quants", type->name, "f32", &n_f32);
    for (size_t i = 0; values != NULL && i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &got[i], sizeof bits);
        if (bits != values[i]) {
            fail_msg("%s: value %zu is %08x, not %08x", type->name, i, bits, values[i]);
        }
    }
    if (hash != want) {
        fail_msg("%s: values have the hash %016llx", type->name, (unsigned long long)hash);
    }
    free(values);
    free(got);
    free(bin);
}

/* Bit patterns, so that the sign of zero counts too. */
TEST(quant_decode_equals_reference)
{
    check_decode(QT_F16);
    check_decode(QT_BF16);
    for (int i = 0; i < N_INTEGER; i++) {
        check_decode(integer_types[i]);
    }
}

TEST(quant_f32_is_a_copy)
{
    const float in[3] = { 1.5f, -0.0f, 0x1p-149f };
    float out[3];
    quant_type(QT_F32)->decode(in, 3, out);
    CHECK_MEM(out, in, sizeof in);
}

TEST(quant_table_rejects_other_ids)
{
    const uint32_t none[] = { 4, 5, 9, 15, 24, 31, 36, 38, QT_COUNT, 1000, UINT32_MAX };
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        CHECK(quant_type(none[i]) == NULL);
    }
}

/* Every half survives the way to float and back; NaNs become quiet. */
TEST(f16_round_trip)
{
    for (uint32_t h = 0; h < 65536; h++) {
        const float x = f16_to_f32((uint16_t)h);
        const uint32_t nan = (h & 0x7FFFu) > 0x7C00u ? 0x200u : 0;
        CHECK_EQ(f32_to_f16(x), h | nan);
        CHECK_EQ(isnan(x), nan != 0);
    }
}

/* The nearest half of every float, found by searching the neighbours: of the values
 * a rounding may fall on, none is nearer, and of two equally near the even one wins. */
TEST(f16_rounds_to_nearest_even)
{
    struct rng rng = { 7 };
    for (int i = 0; i < 200000; i++) {
        union { uint32_t u; float f; } v = { (uint32_t)rng_next(&rng) };
        if (i % 2 == 0) {  /* around the range of halves, often exactly between two */
            v.u = (v.u & 0x80000000u) | (0x33000000u + v.u % 0x15000000u);
            v.u &= i % 4 == 0 ? 0xFFFFF000u : 0xFFFFFFFFu;
        }
        if (isnan(v.f)) {
            continue;
        }
        const uint16_t h = f32_to_f16(v.f);
        if (fabsf(v.f) >= 65520.0f) {
            CHECK_EQ(h & 0x7FFF, 0x7C00);
            continue;
        }
        CHECK((signbit(v.f) != 0) == (h >> 15 != 0));
        const double x = fabs((double)v.f), got = f16_to_f32(h & 0x7FFF);
        for (int step = -1; step <= 1; step += 2) {
            const int other = (h & 0x7FFF) + step;
            if (other < 0 || other >= 0x7C00) {
                continue;
            }
            const double far = fabs(x - (double)f16_to_f32((uint16_t)other));
            CHECK(fabs(x - got) < far || (fabs(x - got) == far && h % 2 == 0));
        }
    }
}

/* ---- panels ----------------------------------------------------------------------- */

TEST(panel_fields_cover_the_block)
{
    for (int i = 0; i < N_INTEGER; i++) {
        const struct quant_type *type = quant_type(integer_types[i]);
        bool seen[256] = { false };
        int total = 0;
        for (const struct panel_field *f = panel_fields(type->id); f->count != 0; f++) {
            for (int b = f->offset; b < f->offset + f->count * f->width; b++) {
                CHECK(b < type->block_bytes && !seen[b]);
                seen[b] = true;
                total++;
            }
        }
        CHECK_EQ(total, type->block_bytes);
    }
    CHECK(panel_fields(QT_F16) == NULL);
}

TEST(panel_round_trip)
{
    struct rng rng = { 1 };
    for (int i = 0; i < N_INTEGER; i++) {
        const struct quant_type *type = quant_type(integer_types[i]);
        const int k = 3 * type->block;
        const size_t row_bytes = 3 * (size_t)type->block_bytes;
        const size_t all = PANEL_ROWS * row_bytes;
        uint8_t *rows = malloc(all), *panels = malloc(all), *back = malloc(all);
        CHECK(rows != NULL && panels != NULL && back != NULL);
        for (size_t j = 0; j < all; j++) {
            rows[j] = (uint8_t)rng_next(&rng);
        }
        for (int n = 1; n <= PANEL_ROWS; n++) {
            memset(panels, 0xEE, all);
            panel_pack(type, rows, row_bytes, k, n, panels);
            panel_unpack(type, panels, row_bytes, k, PANEL_ROWS, back);
            CHECK_MEM(back, rows, (size_t)n * row_bytes);
            for (size_t j = (size_t)n * row_bytes; j < all; j++) {
                CHECK_EQ(back[j], 0);
            }
        }
        free(back);
        free(panels);
        free(rows);
    }
}

/* Where dot.h puts a code: row r, byte k of block b in [..][16][4] of q8_0; the mask
 * bit of q5_0. */
TEST(panel_layout_is_the_documented_one)
{
    uint8_t rows[16 * 34] = { 0 }, panel[16 * 34];
    rows[3 * 34 + 2 + 9] = 77;  /* row 3, k = 9 */
    panel_pack(quant_type(QT_Q8_0), rows, 34, 32, 16, panel);
    CHECK_EQ(panel[32 + 2 * 64 + 3 * 4 + 1], 77);

    memset(rows, 0, sizeof rows);
    rows[5 * 22 + 2 + 17 / 8] = 1 << (17 % 8);  /* row 5, fifth bit of k = 17 */
    panel_pack(quant_type(QT_Q5_0), rows, 22, 32, 16, panel);
    uint64_t mask;
    memcpy(&mask, panel + 32 + 8 * 4, sizeof mask);
    CHECK(mask == (uint64_t)1 << (4 * 5 + 1));
}

/* ---- products --------------------------------------------------------------------- */

/* A product close to that of the decoded values with the activations themselves. */
TEST(scalar_product_is_near_the_exact_one)
{
    struct rng rng = { 3 };
    struct kern kern = { 0 };
    dot_scalar_fill(&kern);
    for (int i = 0; i < N_INTEGER; i++) {
        const struct quant_type *type = quant_type(integer_types[i]);
        enum { K = 512 };
        size_t n_bin;
        uint8_t *bin = read_blocks(type, &n_bin);
        const size_t row_bytes = (size_t)(K / type->block * type->block_bytes);
        float w[K], x[K], y;
        CHECK(row_bytes <= n_bin);
        /* Only the first eight blocks have ordinary scales. */
        uint8_t *row = malloc(row_bytes);
        CHECK(row != NULL);
        for (size_t j = 0; j < row_bytes; j++) {
            row[j] = bin[j % (8 * (size_t)type->block_bytes)];
        }
        type->decode(row, K, w);
        double want = 0, size = 0;
        for (int j = 0; j < K; j++) {
            x[j] = (float)(rng_unit(rng_next(&rng)) - 0.5);
            want += (double)w[j] * (double)x[j];
            size += fabs((double)w[j] * (double)x[j]);
        }
        void *act = aligned_alloc(64, kern.act_bytes(type->act, K, 1));
        CHECK(act != NULL);
        kern.act_quant(type->act, x, K, K, 1, 0, 1, act);
        kern.mm[type->id](row, K, 1, act, 1, 0, 1, &y, 1);
        CHECK(fabs((double)y - want) < 0.004 * size);
        free(act);
        free(row);
        free(bin);
    }
}

/* A fault in the activations must stay visible, zeros must stay zeros. */
TEST(scalar_product_keeps_nan_and_zero)
{
    struct kern kern = { 0 };
    dot_scalar_fill(&kern);
    float x[32] = { 0 }, y;
    uint8_t row[34] = { 0x00, 0x3C, 1, 2, 3 };
    uint8_t act[128] __attribute__((aligned(64)));
    CHECK(kern.act_bytes(ACT_Q32, 32, 1) <= sizeof act);
    const float special[] = { NAN, INFINITY, -INFINITY };
    for (int i = 0; i < 3; i++) {
        x[7] = special[i];
        kern.act_quant(ACT_Q32, x, 32, 32, 1, 0, 1, act);
        kern.mm[QT_Q8_0](row, 32, 1, act, 1, 0, 1, &y, 1);
        CHECK(isnan(y));
    }
    const float tiny[] = { 0.0f, -0.0f, 0x1p-149f, -0x1p-130f };
    for (int i = 0; i < 4; i++) {
        x[7] = tiny[i];
        kern.act_quant(ACT_Q32, x, 32, 32, 1, 0, 1, act);
        kern.mm[QT_Q8_0](row, 32, 1, act, 1, 0, 1, &y, 1);
        CHECK(y == 0);
    }
}

int main(void)
{
    return RUN(T(quant_decode_equals_reference), T(quant_f32_is_a_copy),
               T(quant_table_rejects_other_ids), T(f16_round_trip),
               T(f16_rounds_to_nearest_even), T(panel_fields_cover_the_block),
               T(panel_round_trip), T(panel_layout_is_the_documented_one),
               T(scalar_product_is_near_the_exact_one), T(scalar_product_keeps_nan_and_zero));
}

/* test_gguf.c - one image of the container: a test for every rule that it can break. */
#include "test.h"

#include "base/cpu.h"
#include "gguf_make.h"

/* ---- what a good file gives -------------------------------------------------------- */

static void check_whole(uint32_t version)
{
    slm_error err;

    whole_file(version);
    struct gguf *g = open_file(&err);

    CHECK(g != NULL);
    CHECK_EQ(gguf_version(g), version);
    CHECK_EQ(gguf_file_bytes(g), file.len);
    CHECK_STR(gguf_path(g), "");
    CHECK_EQ(gguf_n_kv(g), 17);
    CHECK_STR(gguf_kv_at(g, 0)->key, "general.architecture");
    CHECK(gguf_find(g, "general") == NULL);
    CHECK_EQ(gguf_int_at(gguf_find(g, "i0"), 0), 200);
    CHECK_EQ(gguf_int_at(gguf_find(g, "i1"), 0), -1);
    CHECK_EQ(gguf_int_at(gguf_find(g, "i2"), 0), 60000);
    CHECK_EQ(gguf_int_at(gguf_find(g, "i3"), 0), -32768);
    CHECK_EQ(gguf_int_at(gguf_find(g, "i4"), 0), 4000000000);
    CHECK_EQ(gguf_int_at(gguf_find(g, "i5"), 0), INT32_MIN);
    CHECK_EQ(gguf_int_at(gguf_find(g, "i64"), 0), -5);
    CHECK(gguf_float_at(gguf_find(g, "f32"), 0) == 1.5);
    CHECK(gguf_float_at(gguf_find(g, "f64"), 0) == -2.5);
    const struct gguf_kv *kv = gguf_find(g, "strs");

    CHECK_EQ(kv->type, GGUF_ARR);
    CHECK_EQ(kv->elem, GGUF_STR);
    CHECK_EQ(kv->n, 3);
    CHECK_EQ(kv->str[1].n, 0);
    CHECK_EQ(kv->str[2].n, 3);
    CHECK_MEM(kv->str[2].s, "b\0c", 3);
    kv = gguf_find(g, "i16s");
    CHECK_EQ(gguf_int_at(kv, 0), -2);
    CHECK_EQ(gguf_int_at(kv, 1), 7);
    CHECK_EQ(gguf_int_at(gguf_find(g, "bools"), 1), 1);
    CHECK(gguf_float_at(gguf_find(g, "f64s"), 0) == 0.5);
    CHECK_EQ(gguf_find(g, "none")->n, 0);

    CHECK_EQ(gguf_n_tensors(g), 2);
    const struct gguf_tensor *t = gguf_find_tensor(g, "b.weight");

    CHECK(t == gguf_tensor_at(g, 1));
    CHECK_EQ(t->n_dims, 2);
    CHECK_EQ(t->ne[0], 3);
    CHECK_EQ(t->ne[3], 1);
    CHECK_EQ(t->bytes, 12);
    CHECK_EQ(t->data[0], 64);
    CHECK(t->data == image + t->offset);
    CHECK_EQ(gguf_find_tensor(g, "a")->bytes, 36);
    CHECK(gguf_find_tensor(g, "c") == NULL);
    gguf_release(g, t, 0, t->bytes);  /* does nothing to memory */
    CHECK_EQ(t->data[0], 64);
    gguf_close(g);
}

TEST(reads_versions_2_and_3)
{
    check_whole(2);
    check_whole(3);
    gguf_close(NULL);
}

TEST(typed_reads_check_kind_and_range)
{
    slm_error err;
    uint64_t u = 77;
    double f = 77;
    bool b = false;
    struct gguf_str s = {"x", 1};

    whole_file(3);
    struct gguf *g = open_file(&err);

    CHECK(g != NULL);
    CHECK(gguf_get_u64(g, "missing", 0, 1, &u, &err) && u == 77);
    CHECK(gguf_get_f64(g, "missing", &f, &err) && f == 77);
    CHECK(gguf_get_bool(g, "missing", &b, &err) && !b);
    CHECK(gguf_get_str(g, "missing", &s, &err) && s.n == 1);
    CHECK(gguf_get_u64(g, "i0", 0, 200, &u, &err) && u == 200);
    CHECK(gguf_get_u64(g, "u64", 0, UINT64_MAX, &u, &err) && u == UINT64_MAX);
    CHECK(gguf_get_f64(g, "f32", &f, &err) && f == 1.5);
    CHECK(gguf_get_f64(g, "f64", &f, &err) && f == -2.5);
    CHECK(gguf_get_bool(g, "yes", &b, &err) && b);
    CHECK(gguf_get_str(g, "general.architecture", &s, &err) && s.n == 5);

    u = 77;
    CHECK(!gguf_get_u64(g, "i0", 0, 199, &u, &err));
    CHECK(strstr(err.msg, "key i0: 200 is out of range; 0 to 199") != NULL);
    CHECK(!gguf_get_u64(g, "i0", 201, 300, &u, &err));
    CHECK(!gguf_get_u64(g, "i64", 0, UINT64_MAX, &u, &err));
    CHECK(strstr(err.msg, "-5") != NULL);
    CHECK(!gguf_get_u64(g, "f32", 0, 9, &u, &err));
    CHECK(strstr(err.msg, "key f32: is f32, must be an integer") != NULL);
    CHECK(!gguf_get_u64(g, "yes", 0, 9, &u, &err));
    CHECK(!gguf_get_u64(g, "i16s", 0, 9, &u, &err));
    CHECK(strstr(err.msg, "an array of i16") != NULL);
    CHECK_EQ(u, 77);
    CHECK(!gguf_get_f64(g, "i0", &f, &err));
    CHECK(!gguf_get_f64(g, "f64s", &f, &err));
    CHECK(!gguf_get_bool(g, "i0", &b, &err));
    CHECK(!gguf_get_bool(g, "bools", &b, &err));
    CHECK(!gguf_get_str(g, "i0", &s, &err));
    CHECK(!gguf_get_str(g, "strs", &s, &err));
    CHECK_EQ(err.code, SLM_E_FORMAT);
    gguf_close(g);
}

TEST(type_table_is_that_of_the_format)
{
    static const char *const gone[] = {"Q4_2", "Q4_3", "Q4_0_4_4", "Q4_0_4_8", "Q4_0_8_8",
                                       "IQ4_NL_4_4", "IQ4_NL_4_8", "IQ4_NL_8_8"};
    static const uint32_t gone_ids[] = {4, 5, 31, 32, 33, 36, 37, 38};
    char why[200];
    int known = 0, bits_times_1000 = 0;

    for (uint32_t id = 0; id < 500; id++) {
        const struct gguf_tensor_type *t = gguf_tensor_type(id);

        known += t != NULL;
        if (t != NULL) {
            CHECK(t->name[0] != '\0' && t->block > 0 && t->block_bytes > 0);
            bits_times_1000 += 8000 * t->block_bytes / t->block;
        } else {
            gguf_refuse_type(id, why, sizeof why);
            CHECK(strlen(why) > 20);
        }
    }
    CHECK_EQ(known, 43 - 8);
    CHECK_EQ(bits_times_1000, 359620);  /* the sum of the format's column "bits per weight" */
    for (size_t i = 0; i < 8; i++) {
        CHECK(gguf_tensor_type(gone_ids[i]) == NULL);
        gguf_refuse_type(gone_ids[i], why, sizeof why);
        CHECK(strstr(why, gone[i]) != NULL && strstr(why, "download") != NULL);
    }
    gguf_refuse_type(139, why, sizeof why);
    CHECK(strstr(why, "IQ4_K") != NULL && strstr(why, "139") != NULL && strstr(why, "fork") != NULL);
    gguf_refuse_type(43, why, sizeof why);
    CHECK(strstr(why, "43 is unknown") != NULL);
    CHECK_STR(gguf_type_name(GGUF_U32), "u32");
    CHECK_STR(gguf_type_name(GGUF_ARR), "arr");
    CHECK_STR(gguf_type_name((enum gguf_type)13), "?");
    CHECK(gguf_is_int(GGUF_I64) && !gguf_is_int(GGUF_BOOL) && !gguf_is_int(GGUF_F64) &&
          !gguf_is_int(GGUF_STR) && !gguf_is_int(GGUF_ARR));
}

/* ---- rules 1 and 2: header ---------------------------------------------------------- */

TEST(refuses_other_files)
{
    static const struct {
        const char *bytes, *word;
    } others[] = {
        {"", "not a GGUF file"},
        {"GGU", "not a GGUF file"},
        {"GGUA\3\0\0\0", "not a GGUF file"},
        {"version https://git-lfs.github.com/spec/v1\n", "LFS"},
        {"tjgg\1\0\0\0", "before GGUF"},
        {"PK\003\004....", "zip"},
        {"<!DOCTYPE html>", "web page"},
    };

    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        buf_clear(&file);
        buf_puts(&file, others[i].bytes);
        refused(others[i].word, "");
    }
}

TEST(refuses_other_versions)
{
    begin(1, 0, 0);
    refused_as(SLM_E_UNSUPPORTED, "version 1", "convert");
    begin(0, 0, 0);
    refused_as(SLM_E_UNSUPPORTED, "version 0", "");
    begin(4, 0, 0);
    refused_as(SLM_E_UNSUPPORTED, "version 4", "2 and 3");
    begin(0x03000000, 0, 0);
    refused_as(SLM_E_UNSUPPORTED, "big-endian", "");
    begin(3, 0, 0);
    accepted();
    file.len--;
    refused("too early", "");
}

TEST(refuses_counts_that_cannot_be_without_allocating)
{
    static const uint64_t counts[] = {1, 3, 1u << 31, UINT64_MAX, (uint64_t)1 << 63};

    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        begin(3, counts[i], 0);
        data(1, 23);
        refused("tensors", "");
        begin(3, 0, counts[i]);
        data(1, 13);
        refused("metadata entries", "");
    }
    /* What the metadata takes is no longer there for tensors. */
    begin(3, 2, 1);
    kv_u32("some.key.of.some.length.or.other", 1);
    refused("counts 2 tensors", "0 bytes follow");
}

/* ---- rules 3 to 8: metadata ----------------------------------------------------------- */

TEST(refuses_every_truncation)
{
    slm_error err;

    whole_file(3);
    size_t n = file.len;

    for (size_t cut = 0; cut < n; cut++) {
        whole_file(3);
        file.len = cut;
        struct gguf *g = open_file(&err);

        if (g != NULL) {
            fail_msg("opened when cut at %zu of %zu", cut, n);
        }
        CHECK(err.code == SLM_E_FORMAT);
        CHECK(strlen(err.msg) > 10);
    }
}

TEST(refuses_bad_strings)
{
    begin(3, 0, 1);
    kv_head("k", GGUF_STR);
    u64(4);
    buf_puts(&file, "abc");
    refused("key k", "too early");
    begin(3, 0, 1);
    kv_head("k", GGUF_STR);
    u64(((uint64_t)1 << 30) + 1);
    refused("key k", "at most 1073741824");
    begin(3, 0, 1);
    kv_head("k", GGUF_STR);
    u64(UINT64_MAX);
    refused("key k", "18446744073709551615");
}

TEST(refuses_bad_keys)
{
    static char text[65536 + 1];

    begin(3, 0, 1);
    kv_u32("", 1);
    refused("entry 1 of 1", "empty");
    begin(3, 0, 1);
    str_n("a\0b", 3);
    u32(GGUF_U32);
    u32(1);
    refused("NUL", "");
    memset(text, 'k', sizeof text - 1);
    begin(3, 0, 1);
    kv_u32(text, 1);
    refused("65536", "65535");
    begin(3, 0, 1);
    kv_u32(text + 1, 1);
    accepted();
}

TEST(refuses_a_key_twice)
{
    begin(3, 0, 3);
    kv_u32("b", 1);
    kv_u32("a", 1);
    kv_str("b", "x");
    refused("key b appears twice", "");
    begin(3, 0, 3);
    kv_u32("b", 1);
    kv_u32("bb", 1);
    kv_u32("a", 1);
    accepted();
}

TEST(refuses_unknown_value_types)
{
    static const uint32_t bad[] = {13, 14, 255, 0x80000000u, UINT32_MAX};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        begin(3, 0, 1);
        kv_head("k", bad[i]);
        u64(0);
        refused("key k", "unknown value type");
        begin(3, 0, 1);
        kv_array("k", bad[i], 0);
        refused("key k", "unknown value type");
    }
    begin(3, 0, 1);
    kv_array("k", GGUF_ARR, 1);
    u32(GGUF_U8);
    u64(1);
    u8(1);
    refused("key k", "array of arrays");
}

TEST(refuses_array_counts_that_cannot_be)
{
    static const uint64_t counts[] = {3, (1 << 30) + 1, UINT64_MAX, (uint64_t)1 << 61};

    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        begin(3, 0, 1);
        kv_array("k", GGUF_U64, counts[i]);
        data(1, 23);
        refused("key k", "");
        begin(3, 0, 1);
        kv_array("k", GGUF_STR, counts[i]);
        data(1, 23);
        refused("key k", counts[i] > 1 << 30 ? "at most 1073741824" : "3 strings cannot fit");
    }
    begin(3, 0, 1);
    kv_array("k", GGUF_STR, 3);
    str("a");
    u64(500);
    data(1, 20);
    refused("key k", "string 1 of 3");
}

TEST(refuses_bools_that_are_neither)
{
    begin(3, 0, 1);
    kv_head("k", GGUF_BOOL);
    u8(2);
    refused("key k", "bool");
    begin(3, 0, 1);
    kv_array("k", GGUF_BOOL, 3);
    u8(0);
    u8(1);
    u8(255);
    refused("key k", "255");
}

/* ---- rule 9: alignment ----------------------------------------------------------------- */

TEST(alignment_is_obeyed_wherever_it_stands)
{
    slm_error err;
    static const uint32_t good[] = {1, 8, 64, 4096};

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        begin(3, 1, 2);
        kv_u32("x", 1);
        kv_u32("general.alignment", good[i]);
        tensor2("t", 5, 1, 0, 0);
        data(good[i], 20);
        struct gguf *g = open_file(&err);

        CHECK(g != NULL);
        CHECK_EQ(gguf_tensor_at(g, 0)->offset % good[i], 0);
        CHECK_EQ(gguf_tensor_at(g, 0)->data[1], 1);
        gguf_close(g);
    }
}

TEST(refuses_bad_alignments)
{
    static const uint32_t bad[] = {0, 3, 48, 0x80000000u, UINT32_MAX};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        begin(3, 0, 1);
        kv_u32("general.alignment", bad[i]);
        refused("general.alignment", "power of two");
    }
    begin(3, 0, 1);
    kv_head("general.alignment", GGUF_U64);
    u64(32);
    refused("general.alignment", "u64");
}

/* ---- rules 11 to 18: tensor directory ---------------------------------------------------- */

TEST(refuses_bad_tensor_names)
{
    char name[65];

    memset(name, 'n', sizeof name);
    name[64] = '\0';
    begin(3, 1, 0);
    tensor2(name, 1, 1, 0, 0);
    data(32, 4);
    refused("tensor 1 of 1", "64 bytes");
    begin(3, 1, 0);
    tensor2(name + 1, 1, 1, 0, 0);
    data(32, 4);
    accepted();
    begin(3, 1, 0);
    tensor2("", 1, 1, 0, 0);
    data(32, 4);
    refused("tensor 1 of 1", "empty");
    begin(3, 1, 0);
    str_n("a\0b", 3);
    data(1, 40);
    refused("NUL", "");
}

TEST(refuses_a_tensor_twice)
{
    begin(3, 3, 0);
    tensor2("b", 8, 1, 0, 0);
    tensor2("a", 8, 1, 0, 32);
    tensor2("b", 8, 1, 0, 64);
    data(32, 96);
    refused("tensor b appears twice", "");
}

TEST(refuses_bad_dimension_counts)
{
    static const uint32_t bad[] = {0, 5, 9, UINT32_MAX};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        begin(3, 1, 0);
        str("a");
        u32(bad[i]);
        for (uint32_t d = 0; d < 9; d++) {
            u64(1);
        }
        u32(0);
        u64(0);
        data(32, 128);
        refused("tensor a", "dimensions");
    }
}

TEST(refuses_bad_dimensions)
{
    begin(3, 1, 0);
    tensor2("a", 32, 0, 0, 0);
    data(32, 128);
    refused("tensor a", "dimension 1 is zero");
    begin(3, 1, 0);
    tensor2("a", 0, 32, 0, 0);
    data(32, 128);
    refused("tensor a", "dimension 0 is zero");
    begin(3, 1, 0);
    tensor2("a", UINT64_MAX, 1, 0, 0);
    data(32, 128);
    refused("tensor a", "negative");
    begin(3, 1, 0);
    tensor2("a", (uint64_t)1 << 32, (uint64_t)1 << 31, 0, 0);
    data(32, 128);
    refused("tensor a", "2^63");
    /* The product wraps to 2^32 in 64 bits. */
    begin(3, 1, 0);
    str("a");
    u32(4);
    u64((uint64_t)1 << 32);
    u64((uint64_t)1 << 32);
    u64((uint64_t)1 << 16);
    u64((uint64_t)1 << 16);
    u32(24);
    u64(0);
    data(32, 128);
    refused("tensor a", "2^63");
}

TEST(refuses_types_that_are_not)
{
    static const struct {
        uint32_t id;
        const char *word;
    } bad[] = {
        {4, "Q4_2"}, {5, "Q4_3"}, {31, "Q4_0_4_4"}, {32, "download"}, {33, "removed"}, {36, "I2_S"},
        {37, "IQ4_NL"}, {38, "IQ4_NL"}, {43, "unknown"}, {98, "Q8_1_X4"}, {133, "Q6_0"},
        {212, "ik_llama"}, {0x80000000u, "unknown"}, {UINT32_MAX, "unknown"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        begin(3, 1, 0);
        tensor2("some.weight", 256, 1, bad[i].id, 0);
        data(32, 256);
        refused_as(SLM_E_UNSUPPORTED, bad[i].word, "tensor some.weight");
    }
}

TEST(accepts_every_type_and_refuses_its_broken_rows)
{
    slm_error err;

    for (uint32_t id = 0; id < 43; id++) {
        const struct gguf_tensor_type *t = gguf_tensor_type(id);

        if (t == NULL) {
            continue;
        }
        begin(3, 1, 0);
        tensor2("a", (uint64_t)t->block * 2, 3, id, 0);
        data(32, (size_t)t->block_bytes * 6);
        struct gguf *g = open_file(&err);

        CHECK(g != NULL);
        CHECK_EQ(gguf_tensor_at(g, 0)->bytes, t->block_bytes * 6);
        gguf_close(g);
        if (t->block > 1) {
            begin(3, 1, 0);
            tensor2("a", (uint64_t)t->block * 2 - 1, (uint64_t)t->block, id, 0);
            data(32, (size_t)t->block_bytes * 512);
            refused("tensor a", t->name);
        }
    }
}

TEST(refuses_sizes_that_overflow)
{
    begin(3, 1, 0);
    tensor2("a", (uint64_t)1 << 62, 1, 28, 0);
    data(32, 128);
    refused("tensor a", "overflow");
    begin(3, 1, 0);
    tensor2("a", ((uint64_t)1 << 61) - 1, 1, 28, 0);
    data(32, 128);
    refused("tensor a", "overflow");
}

/* ---- rules 19 to 22: where the data is ------------------------------------------------------ */

TEST(refuses_misaligned_offsets)
{
    begin(3, 1, 0);
    tensor2("a", 4, 1, 0, 16);
    data(32, 64);
    refused("tensor a", "alignment 32");
}

TEST(accepts_gaps_and_any_order_but_no_overlap)
{
    begin(3, 3, 0);
    tensor2("a", 16, 1, 0, 128);
    tensor2("b", 8, 1, 0, 0);
    tensor2("c", 9, 1, 0, 64);
    data(32, 192);
    accepted();
    begin(3, 3, 0);
    tensor2("a", 16, 1, 0, 128);
    tensor2("b", 17, 1, 0, 0);
    tensor2("c", 8, 1, 0, 64);
    data(32, 192);
    refused("tensors b and c overlap", "");
    begin(3, 2, 0);
    tensor2("a", 16, 1, 0, 0);
    tensor2("b", 16, 1, 0, 0);
    data(32, 128);
    refused("overlap", "");
}

TEST(refuses_data_outside_of_the_file)
{
    static const uint64_t offsets[] = {32, 1024, (uint64_t)-32, (uint64_t)1 << 63};

    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
        begin(3, 1, 0);
        tensor2("a", 8, 1, 0, offsets[i]);
        data(32, 63);
        refused("tensor a", "cut off");
    }
    /* The padding behind the last tensor may be missing. */
    begin(3, 2, 0);
    tensor2("a", 8, 1, 0, 0);
    tensor2("b", 3, 1, 0, 32);
    data(32, 44);
    accepted();
    file.len--;
    refused("tensor b", "cut off");
}

TEST(refuses_a_file_that_ends_before_its_data)
{
    begin(3, 1, 0);
    tensor2("a", 8, 1, 0, 0);
    CHECK(file.len % 32 != 0);
    refused("ends before its tensor data", "");
    /* Without tensors there need not be padding. */
    begin(3, 0, 1);
    kv_u32("x", 1);
    CHECK(file.len % 32 != 0);
    accepted();
}

/* ---- hostile files cost little ----------------------------------------------------------------- */

TEST(many_names_take_no_quadratic_time)
{
    slm_error err;
    enum { N = 300000 };
    char name[16];

    begin(3, 0, N);
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "k%d", (int)(i * 7919LL % N));
        kv_u32(name, (uint32_t)i);
    }
    /* A quadratic check would make 10^11 comparisons here and never end. */
    struct gguf *g = open_file(&err);

    CHECK(g != NULL);
    for (int i = 0; i < N; i += 97) {
        snprintf(name, sizeof name, "k%d", i);
        const struct gguf_kv *kv = gguf_find(g, name);

        CHECK(kv != NULL);
        CHECK_STR(kv->key, name);
    }
    CHECK(gguf_find(g, "k") == NULL);
    gguf_close(g);
}

TEST(claims_of_a_small_file_allocate_little)
{
    /* 1 MiB of zeros that claims as much as the byte bounds let pass. */
    enum { N = 1 << 20 };
    slm_error err;
    uint64_t before = cpu_peak_rss_bytes();

    begin(3, 0, N / 14 - 4);
    data(1, N);
    memset(file.data + 24, 0, N);
    CHECK(open_file(&err) == NULL);
    begin(3, N / 24 - 4, 0);
    data(1, N);
    memset(file.data + 24, 0, N);
    CHECK(open_file(&err) == NULL);
    begin(3, 0, 1);
    kv_array("k", GGUF_STR, N / 8 - 1);
    size_t head = file.len;

    data(1, N);
    memset(file.data + head, 0, N - 9);
    CHECK(open_file(&err) == NULL);
    CHECK(cpu_peak_rss_bytes() - before < (16u << 20));
}

TEST(every_failed_allocation_is_an_error)
{
    slm_error err;

    whole_file(3);
    long before = mem_count();
    struct gguf *g = open_file(&err);
    long n = mem_count() - before;

    CHECK(g != NULL && n > 4);
    gguf_close(g);
    for (long i = 1; i < n; i++) {
        mem_fail_after(i);
        g = gguf_open_mem(image, file.len, &err);
        CHECK(g == NULL);
        CHECK_EQ(err.code, SLM_E_NOMEM);
    }
    mem_fail_after(0);

    /* The overlap check has an allocation of its own. */
    begin(3, 2, 0);
    tensor2("a", 8, 1, 0, 32);
    tensor2("b", 8, 1, 0, 0);
    data(32, 64);
    before = mem_count();
    g = open_file(&err);
    n = mem_count() - before;
    CHECK(g != NULL);
    gguf_close(g);
    for (long i = 1; i < n; i++) {
        mem_fail_after(i);
        CHECK(gguf_open_mem(image, file.len, NULL) == NULL);
    }
    mem_fail_after(0);
}

int main(void)
{
    buf_init(&file, 0);
    int rc = RUN(
        T(reads_versions_2_and_3),
        T(typed_reads_check_kind_and_range),
        T(type_table_is_that_of_the_format),
        T(refuses_other_files),
        T(refuses_other_versions),
        T(refuses_counts_that_cannot_be_without_allocating),
        T(refuses_every_truncation),
        T(refuses_bad_strings),
        T(refuses_bad_keys),
        T(refuses_a_key_twice),
        T(refuses_unknown_value_types),
        T(refuses_array_counts_that_cannot_be),
        T(refuses_bools_that_are_neither),
        T(alignment_is_obeyed_wherever_it_stands),
        T(refuses_bad_alignments),
        T(refuses_bad_tensor_names),
        T(refuses_a_tensor_twice),
        T(refuses_bad_dimension_counts),
        T(refuses_bad_dimensions),
        T(refuses_types_that_are_not),
        T(accepts_every_type_and_refuses_its_broken_rows),
        T(refuses_sizes_that_overflow),
        T(refuses_misaligned_offsets),
        T(accepts_gaps_and_any_order_but_no_overlap),
        T(refuses_data_outside_of_the_file),
        T(refuses_a_file_that_ends_before_its_data),
        T(many_names_take_no_quadratic_time),
        T(claims_of_a_small_file_allocate_little),
        T(every_failed_allocation_is_an_error));

    buf_deinit(&file);
    mem_free(image);
    return rc;
}

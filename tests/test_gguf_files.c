/* test_gguf_files.c - the container on disk: files, split sets, the writer. */
#include "test.h"

#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "gguf_make.h"
#include "tmpdir.h"

/* ---- files and split sets ------------------------------------------------------------------------ */

static void save(const char *name)
{
    CHECK(file_write(in_dir(name), file.data, file.len, NULL));
}

/* Opening the file must fail with a message that names this file and this reason. */
static void open_fails(const char *name, const char *at_fault, const char *reason)
{
    slm_error err = {0};
    char path[320];

    snprintf(path, sizeof path, "%s", in_dir(name));
    struct gguf *g = gguf_open(path, &err);
    const char *fault = in_dir(at_fault);

    if (g != NULL || strncmp(err.msg, fault, strlen(fault)) != 0 || strstr(err.msg, reason) == NULL) {
        fail_msg("expected '%s: %s', got '%s'", fault, reason, g != NULL ? "opened" : err.msg);
    }
}

TEST(opens_files_and_names_them_in_errors)
{
    slm_error err;

    make_dir();
    whole_file(3);
    save("m.gguf");
    struct gguf *g = gguf_open(in_dir("m.gguf"), &err);

    CHECK(g != NULL);
    CHECK_STR(gguf_path(g), in_dir("m.gguf"));
    CHECK_EQ(gguf_file_bytes(g), file.len);
    gguf_close(g);
    file.len--;
    save("cut.gguf");
    open_fails("cut.gguf", "cut.gguf", "tensor b.weight");
    open_fails("none.gguf", "none.gguf", "No such file");
    open_fails(".", ".", "directory");
    buf_clear(&file);
    save("empty.gguf");
    open_fails("empty.gguf", "empty.gguf", "empty");
    remove_tree();
}

TEST(released_pages_come_back_from_the_file)
{
    slm_error err;
    enum { N = 1 << 20 };

    make_dir();
    begin(3, 2, 0);
    tensor2("a", N / 4, 1, 0, 0);
    tensor2("b", 8, 1, 0, N);
    data(32, N + 32);
    save("m.gguf");
    struct gguf *g = gguf_open(in_dir("m.gguf"), &err);

    CHECK(g != NULL);
    const struct gguf_tensor *a = gguf_find_tensor(g, "a");

    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < N; i++) {
            if (a->data[i] != (uint8_t)i) {
                fail_msg("byte %d", i);
            }
        }
        gguf_release(g, a, 0, a->bytes);
        const struct gguf_tensor *tb = gguf_find_tensor(g, "b");
        gguf_release(g, tb, 0, tb->bytes);
    }
    gguf_close(g);
    remove_tree();
}

static void kv_split(int no, int count, int n_tensors)
{
    kv_head("split.no", GGUF_U16);
    put_int((uint64_t)no, 2);
    kv_head("split.count", GGUF_U16);
    put_int((uint64_t)count, 2);
    kv_head("split.tensors.count", GGUF_I32);
    u32((uint32_t)n_tensors);
}

/* m-0000N-of-00003.gguf: the first has metadata only, the others a tensor each. */
static void save_shard(int no, int says_no, int says_count, int says_tensors, const char *tensor)
{
    char name[32];

    begin(3, tensor != NULL, no == 0 ? 4 : no == 2 ? 4 : 3);
    if (no == 0) {
        kv_str("general.architecture", "llama");
    }
    kv_split(says_no, says_count, says_tensors);
    if (no == 2) {
        kv_u32("general.alignment", 64);
    }
    if (tensor != NULL) {
        tensor2(tensor, 8, (uint64_t)no, 0, 0);
        data(no == 2 ? 64 : 32, 32 * (size_t)no);
    }
    snprintf(name, sizeof name, "m-%05d-of-00003.gguf", no + 1);
    save(name);
}

static void save_set(void)
{
    save_shard(0, 0, 3, 2, NULL);
    save_shard(1, 1, 3, 2, "a");
    save_shard(2, 2, 3, 2, "b");
}

TEST(opens_a_split_set_by_any_of_its_files)
{
    slm_error err;

    make_dir();
    save_set();
    for (int no = 0; no < 3; no++) {
        char name[32];

        snprintf(name, sizeof name, "m-%05d-of-00003.gguf", no + 1);
        struct gguf *g = gguf_open(in_dir(name), &err);

        if (g == NULL) {
            fail_msg("%s", err.msg);
        }
        CHECK_EQ(gguf_n_tensors(g), 2);
        CHECK_EQ(gguf_n_kv(g), 4);
        CHECK(gguf_find(g, "general.architecture") != NULL);
        CHECK(gguf_find(g, "general.alignment") == NULL);
        const struct gguf_tensor *a = gguf_find_tensor(g, "a"), *b = gguf_find_tensor(g, "b");

        CHECK_EQ(a->shard, 1);
        CHECK_EQ(b->shard, 2);
        CHECK_EQ(b->bytes, 64);
        CHECK_EQ(a->data[31], 31);
        CHECK_EQ(b->data[63], 63);
        CHECK_EQ(b->offset % 64, 0);
        gguf_release(g, b, 0, b->bytes);
        CHECK_STR(gguf_path(g), in_dir("m-00001-of-00003.gguf"));
        gguf_close(g);
    }
    remove_tree();
}

TEST(refuses_broken_split_sets)
{
    static const char one[] = "m-00001-of-00003.gguf", two[] = "m-00002-of-00003.gguf",
                      three[] = "m-00003-of-00003.gguf";

    make_dir();
    save_set();
    CHECK_EQ(unlink(in_dir(two)), 0);
    open_fails(one, two, "No such file");
    save_shard(1, 2, 3, 2, "a");
    open_fails(one, two, "says it is file 3 of 3, but its name says 2 of 3");
    save_shard(1, 1, 4, 2, "a");
    open_fails(one, two, "2 of 4");
    save_shard(1, 1, 3, 2, "b");
    open_fails(one, one, "tensor b appears twice");
    save_shard(1, 1, 3, 2, NULL);
    open_fails(one, one, "should have 2 tensors, but its files have 1");
    begin(3, 0, 0);
    save(two);
    open_fails(one, two, "file 1 of 1");
    save_shard(1, 1, 3, 2, "a");

    /* The wrong first file, reached through a later one. */
    save_shard(0, 1, 3, 2, NULL);
    open_fails(three, one, "its name says 1 of 3");
    open_fails(one, one, "must end in -00002-of-00003.gguf");
    save_shard(0, 0, 3, 2, NULL);

    save("other.gguf");
    CHECK_EQ(unlink(in_dir(one)), 0);
    open_fails("other.gguf", "other.gguf", "must end in -00001-of-00003.gguf");
    open_fails(three, one, "No such file");

    begin(3, 0, 2);
    kv_u32("split.no", 0);
    kv_u32("split.count", 1000);
    save(one);
    open_fails(one, one, "split.count");
    begin(3, 0, 2);
    kv_u32("split.no", 3);
    kv_u32("split.count", 3);
    save(one);
    open_fails(one, one, "split.no");
    begin(3, 0, 1);
    kv_u32("split.count", 3);
    save(one);
    open_fails(one, one, "split.no is missing");
    begin(3, 0, 2);
    kv_u32("split.no", 0);
    kv_u32("split.count", 3);
    save(one);
    open_fails(one, one, "split.tensors.count is missing");
    begin(3, 0, 1);
    kv_str("split.count", "three");
    save(one);
    open_fails(one, one, "split.count: is str");

    /* The suffix alone is not a name. */
    char old[320];

    CHECK(getcwd(old, sizeof old) != NULL);
    CHECK_EQ(chdir(dir), 0);
    save_shard(0, 0, 3, 2, NULL);
    CHECK_EQ(rename("m-00001-of-00003.gguf", "-00001-of-00003.gguf"), 0);
    slm_error err;

    CHECK(gguf_open("-00001-of-00003.gguf", &err) == NULL);
    CHECK(strstr(err.msg, "must end in") != NULL);
    CHECK_EQ(chdir(old), 0);
    remove_tree();
}

TEST(a_set_of_one_is_a_file)
{
    slm_error err;

    make_dir();
    begin(3, 0, 1);
    kv_head("split.count", GGUF_U16);
    put_int(1, 2);
    save("any-name.gguf");
    struct gguf *g = gguf_open(in_dir("any-name.gguf"), &err);

    CHECK(g != NULL);
    gguf_close(g);
    begin(3, 0, 2);
    kv_u32("split.count", 2);
    kv_u32("split.no", 0);
    refused_as(SLM_E_UNSUPPORTED, "split set", "path");
    remove_tree();
}

TEST(every_failed_allocation_of_a_set_is_an_error)
{
    slm_error err;

    make_dir();
    save_set();
    long before = mem_count();
    struct gguf *g = gguf_open(in_dir("m-00003-of-00003.gguf"), &err);
    long n = mem_count() - before;

    CHECK(g != NULL);
    gguf_close(g);
    for (long i = 1; i <= n; i++) {
        mem_fail_after(i);
        CHECK(gguf_open(in_dir("m-00003-of-00003.gguf"), &err) == NULL);
        CHECK_EQ(err.code, SLM_E_NOMEM);
    }
    mem_fail_after(0);
    remove_tree();
}

/* ---- writing ---------------------------------------------------------------------------------------- */

/* Everything of g again, through the writer. */
static struct gguf_writer *copy_of(const struct gguf *g)
{
    struct gguf_writer *w = gguf_writer_new();

    CHECK(w != NULL);
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        gguf_put_kv(w, gguf_kv_at(g, i));
    }
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);

        gguf_put_tensor(w, t->name, t->type, t->n_dims, t->ne, t->data);
    }
    return w;
}

TEST(writer_reproduces_a_file)
{
    slm_error err;
    size_t n;

    whole_file(3);
    struct gguf *g = open_file(&err);
    struct gguf_writer *w = copy_of(g);
    uint8_t *out = gguf_write_mem(w, &n, &err);

    CHECK(out != NULL);
    /* The hand-made file lacks the padding behind the last tensor, and holds bytes that count up
     * where padding between tensors is zero. */
    CHECK_EQ(n, file.len + 20);
    size_t head = gguf_tensor_at(g, 0)->offset;

    CHECK_MEM(out, file.data, head + 36);
    for (size_t i = head + 36; i < head + 64; i++) {
        CHECK_EQ(out[i], 0);
    }
    CHECK_MEM(out + head + 64, file.data + head + 64, 12);

    make_dir();
    struct buf b;

    buf_init(&b, 0);
    CHECK(gguf_write_file(w, in_dir("copy.gguf"), &err));
    CHECK(file_read(in_dir("copy.gguf"), 1 << 20, &b, &err));
    CHECK_EQ(b.len, n);
    CHECK_MEM(b.data, out, n);
    buf_deinit(&b);
    CHECK(!gguf_write_file(w, in_dir("no/such/folder/x"), &err));
    CHECK_EQ(err.code, SLM_E_IO);
    remove_tree();
    mem_free(out);
    gguf_writer_free(w);
    gguf_close(g);
}

TEST(writer_obeys_the_alignment)
{
    slm_error err;
    size_t n;
    static const int64_t ne[] = {5, 3};
    static const float values[15] = {1, 2, 3};
    static const int16_t shorts[3] = {1, 2, 3};
    struct gguf_str strs[2] = {{"a\0b", 3}, {"", 0}};
    struct gguf_writer *w = gguf_writer_new();

    gguf_put_tensor(w, "x", 0, 2, ne, values);
    gguf_put_tensor(w, "y", 0, 1, ne, values);
    gguf_put_u32(w, "general.alignment", 256);
    gguf_put_f32(w, "f", -0.5f);
    gguf_put_bool(w, "b", true);
    gguf_put_str(w, "s", "text", 4);
    gguf_put_array(w, "i16", GGUF_I16, shorts, 3);
    gguf_put_strs(w, "strs", strs, 2);
    uint8_t *out = gguf_write_mem(w, &n, &err);

    CHECK(out != NULL);
    gguf_writer_free(w);
    struct gguf *g = gguf_open_mem(out, n, &err);

    CHECK(g != NULL);
    CHECK_EQ(gguf_find_tensor(g, "x")->offset % 256, 0);
    CHECK_EQ(gguf_find_tensor(g, "y")->offset - gguf_find_tensor(g, "x")->offset, 256);
    CHECK_MEM(gguf_find_tensor(g, "x")->data, values, sizeof values);
    CHECK(gguf_float_at(gguf_find(g, "f"), 0) == -0.5);
    CHECK_EQ(gguf_int_at(gguf_find(g, "b"), 0), 1);
    CHECK_EQ(gguf_int_at(gguf_find(g, "i16"), 2), 3);
    CHECK_EQ(gguf_find(g, "strs")->str[0].n, 3);
    gguf_close(g);
    mem_free(out);
}

/* One writer with one mistake; false where it goes through. */
static bool writer_refuses(int mistake, char *msg, size_t cap)
{
    static const int64_t good[] = {256}, zero[] = {4, 0}, big[] = {INT64_MAX, 3}, odd[] = {33},
                         huge[] = {(int64_t)1 << 61};
    static const char data_of_it[2048];
    static char long_name[70000];
    struct gguf_writer *w = gguf_writer_new();
    slm_error err = {0};
    size_t n;

    memset(long_name, 'n', sizeof long_name - 1);
    switch (mistake) {
    case 0: gguf_put_u32(w, "", 1); break;
    case 1: gguf_put_u32(w, long_name, 1); break;
    case 2: gguf_put_u32(w, "k", 1), gguf_put_u32(w, "k", 1); break;
    case 3: gguf_put_u32(w, "general.alignment", 24); break;
    case 4: gguf_put_array(w, "k", GGUF_STR, data_of_it, 1); break;
    case 5: gguf_put_array(w, "k", GGUF_U8, data_of_it, UINT64_MAX); break;
    case 6: gguf_put_tensor(w, "", 0, 1, good, data_of_it); break;
    case 7: gguf_put_tensor(w, long_name + sizeof long_name - 65, 0, 1, good, data_of_it); break;
    case 8: gguf_put_tensor(w, "t", 4, 1, good, data_of_it); break;
    case 9: gguf_put_tensor(w, "t", 0, 0, good, data_of_it); break;
    case 10: gguf_put_tensor(w, "t", 0, 5, good, data_of_it); break;
    case 11: gguf_put_tensor(w, "t", 0, 2, zero, data_of_it); break;
    case 12: gguf_put_tensor(w, "t", 0, 2, big, data_of_it); break;
    case 13: gguf_put_tensor(w, "t", 2, 1, odd, data_of_it); break;
    case 14: gguf_put_tensor(w, "t", 28, 1, huge, data_of_it); break;
    case 15:
        gguf_put_tensor(w, "t", 0, 1, good, data_of_it);
        gguf_put_tensor(w, "t", 0, 1, good, data_of_it);
        break;
    default: break;
    }
    /* Sticky: nothing that follows repairs or replaces it. */
    gguf_put_u32(w, "later", 1);
    gguf_put_tensor(w, "later", 0, 1, good, data_of_it);
    uint8_t *out = gguf_write_mem(w, &n, &err);

    snprintf(msg, cap, "%s", err.msg);
    gguf_writer_free(w);
    mem_free(out);
    return out == NULL;
}

TEST(writer_refuses_what_the_reader_would)
{
    char msg[240];

    for (int i = 0; i < 16; i++) {
        if (!writer_refuses(i, msg, sizeof msg) || msg[0] == '\0') {
            fail_msg("mistake %d: '%s'", i, msg);
        }
    }
    CHECK(!writer_refuses(16, msg, sizeof msg));
    gguf_writer_free(NULL);
}

TEST(writer_survives_every_failed_allocation)
{
    slm_error err;
    size_t n;

    whole_file(3);
    struct gguf *g = open_file(&err);
    long before = mem_count();
    struct gguf_writer *w = copy_of(g);
    uint8_t *out = gguf_write_mem(w, &n, &err);
    long count = mem_count() - before;

    CHECK(out != NULL);
    gguf_writer_free(w);
    mem_free(out);
    mem_fail_after(1);
    CHECK(gguf_writer_new() == NULL);
    for (long i = 2; i <= count; i++) {
        mem_fail_after(i);
        w = copy_of(g);
        out = gguf_write_mem(w, &n, &err);
        CHECK(out == NULL);
        CHECK_EQ(err.code, SLM_E_NOMEM);
        gguf_writer_free(w);
    }
    mem_fail_after(0);
    gguf_close(g);
}

/* ---- files of other makers ---------------------------------------------------------------------------- */

TEST(opens_the_vocabularies_of_other_makers)
{
    const char *folder = TEST_SHARED "/golden/vocab";
    DIR *d = opendir(folder);
    int n = 0;

    if (d == NULL) {
        printf("not run: there is no %s\n", folder);
        return;
    }
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char path[600];
        slm_error err;

        if (strstr(e->d_name, ".gguf") == NULL) {
            continue;
        }
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        struct gguf *g = gguf_open(path, &err);

        if (g == NULL) {
            fail_msg("%s", err.msg);
        }
        const struct gguf_kv *tokens = gguf_find(g, "tokenizer.ggml.tokens");

        CHECK(tokens != NULL && tokens->elem == GGUF_STR && tokens->n > 1000);
        gguf_close(g);
        n++;
    }
    closedir(d);
    CHECK(n >= 5);
}

int main(void)
{
    buf_init(&file, 0);
    int rc = RUN(
        T(opens_files_and_names_them_in_errors),
        T(released_pages_come_back_from_the_file),
        T(opens_a_split_set_by_any_of_its_files),
        T(refuses_broken_split_sets),
        T(a_set_of_one_is_a_file),
        T(every_failed_allocation_of_a_set_is_an_error),
        T(writer_reproduces_a_file),
        T(writer_obeys_the_alignment),
        T(writer_refuses_what_the_reader_would),
        T(writer_survives_every_failed_allocation),
        T(opens_the_vocabularies_of_other_makers));

    buf_deinit(&file);
    mem_free(image);
    return rc;
}

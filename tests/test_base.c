/* test_base.c - the layer below everything: errors, memory, text, files, small things. */
#include "test.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/time.h"
#include "base/utf8.h"
#include "tmpdir.h"

/* ---- errors ---------------------------------------------------------------------- */

TEST(error_sets_code_position_and_message)
{
    slm_error err;

    CHECK(!slm_fail(&err, SLM_E_FORMAT, "tensor %s: %d rows", "a.b", 3));
    CHECK_EQ(err.code, SLM_E_FORMAT);
    CHECK_EQ(err.position, -1);
    CHECK_STR(err.msg, "tensor a.b: 3 rows");
    CHECK(!slm_fail_at(&err, SLM_E_IO, 77, "x"));
    CHECK_EQ(err.position, 77);
    CHECK(!slm_fail_nomem(&err, "the cache"));
    CHECK_EQ(err.code, SLM_E_NOMEM);
    CHECK_STR(err.msg, "not enough memory for the cache");
    CHECK(!slm_fail(NULL, SLM_E_IO, "nobody listens"));
    CHECK(!slm_wrap(NULL, "nobody listens"));
}

TEST(error_wrap_puts_context_in_front_and_keeps_the_rest)
{
    slm_error err;

    slm_fail_at(&err, SLM_E_FORMAT, 9, "bad magic");
    CHECK(!slm_wrap(&err, "loading %s", "m.gguf"));
    CHECK_STR(err.msg, "loading m.gguf: bad magic");
    CHECK_EQ(err.code, SLM_E_FORMAT);
    CHECK_EQ(err.position, 9);
    /* The message may quote itself. */
    slm_fail(&err, SLM_E_IO, "again: %s", err.msg);
    CHECK_STR(err.msg, "again: loading m.gguf: bad magic");
}

TEST(error_long_context_loses_its_beginning_not_the_reason)
{
    slm_error err;
    char path[4096];

    memset(path, 'd', sizeof path);
    memcpy(path + sizeof path - 8, "/m.gguf", 8);
    slm_fail(&err, SLM_E_FORMAT, "bad magic");
    slm_wrap(&err, "%s", path);
    CHECK_EQ(strlen(err.msg), sizeof err.msg - 1);
    CHECK(memcmp(err.msg, "...ddd", 6) == 0);
    CHECK_STR(err.msg + strlen(err.msg) - 19, "d/m.gguf: bad magic");

    char full[400];

    memset(full, 'r', sizeof full - 1);
    full[sizeof full - 1] = '\0';
    slm_fail(&err, SLM_E_FORMAT, "%s", full);
    CHECK_EQ(strlen(err.msg), sizeof err.msg - 1);
    slm_wrap(&err, "context");
    CHECK_EQ(err.msg[0], 'r');
}

TEST(error_message_is_one_clean_line)
{
    slm_error err;

    slm_fail(&err, SLM_E_FORMAT, "key \033[2J a\nb\xff\xc3 caf\xc3\xa9 \xc2\x85 \x7f");
    CHECK_STR(err.msg, "key ?[2J a?b?? caf\xc3\xa9 ?? ?");

    /* A character that the end of the buffer cuts disappears. */
    char full[sizeof err.msg + 1];

    memset(full, 'r', sizeof full);
    memcpy(full + sizeof err.msg - 2, "\xc3\xa9", 3);
    slm_fail(&err, SLM_E_FORMAT, "%s", full);
    CHECK_EQ(strlen(err.msg), sizeof err.msg - 2);
}

/* ---- memory ---------------------------------------------------------------------- */

TEST(mem_checks_sizes)
{
    size_t n;

    CHECK(size_mul(3, 4, &n) && n == 12);
    CHECK(!size_mul(SIZE_MAX / 2, 3, &n));
    CHECK(!size_add(SIZE_MAX, 1, &n));
    CHECK_EQ(align_up(33, 32), 64);
    CHECK(mem_alloc(SIZE_MAX / 2, 4) == NULL);
    CHECK(mem_zalloc(SIZE_MAX, SIZE_MAX) == NULL);
    CHECK(mem_realloc(NULL, SIZE_MAX, 2) == NULL);
    CHECK(mem_alloc_aligned(SIZE_MAX - 3) == NULL);
    CHECK(mem_pages(SIZE_MAX - 3) == NULL);

    void *a = mem_alloc(0, 8), *b = mem_alloc(8, 0);

    CHECK(a != NULL && b != NULL && a != b);
    mem_free(a);
    mem_free(b);
    mem_free(NULL);
}

TEST(mem_gives_what_it_says)
{
    char *z = mem_zalloc(100, 3);
    char *s = mem_strndup("abc\0def", 5);
    void *p = mem_alloc_aligned(1);

    for (int i = 0; i < 300; i++) {
        CHECK_EQ(z[i], 0);
    }
    CHECK_MEM(s, "abc\0d", 6);
    CHECK_EQ((uintptr_t)p % 64, 0);
    mem_free(z);
    mem_free(s);
    mem_free(p);

    static const size_t sizes[] = {0, 1, 4097, (2 << 20) - 1, 5 << 20};

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char *pages = mem_pages(sizes[i]);

        CHECK(pages != NULL);
        CHECK_EQ((uintptr_t)pages % (2 << 20), 0);
        if (sizes[i] > 0) {
            CHECK_EQ(pages[sizes[i] - 1], 0);
            memset(pages, 1, sizes[i]);
        }
        mem_pages_free(pages, sizes[i]);
    }
    mem_pages_free(NULL, 5);
}

TEST(mem_fails_the_allocation_it_is_told_to)
{
    long before = mem_count();

    mem_fail_after(2);
    void *a = mem_alloc(1, 1), *b = mem_alloc(1, 1), *c = mem_alloc(1, 1);

    CHECK(a != NULL && b == NULL && c != NULL);
    CHECK_EQ(mem_count() - before, 3);
    mem_fail_after(1);
    mem_fail_after(0);
    void *d = mem_alloc(1, 1);

    CHECK(d != NULL);
    mem_free(a);
    mem_free(c);
    mem_free(d);

    mem_fail_after(1);
    CHECK(mem_pages(10) == NULL);
    mem_fail_after(1);
    CHECK(mem_alloc_aligned(10) == NULL);
    mem_fail_after(1);
    CHECK(mem_strndup("a", 1) == NULL);
}

TEST(arena_hands_out_aligned_disjoint_memory)
{
    struct arena a;
    struct rng r = {5};
    unsigned char *p[500];
    size_t n[500], sum = 0;

    arena_init(&a, 4096, 0);
    for (int i = 0; i < 500; i++) {
        n[i] = rng_next(&r) % (i % 50 == 0 ? 10000 : 200);
        p[i] = arena_alloc(&a, n[i]);
        CHECK(p[i] != NULL);
        CHECK_EQ((uintptr_t)p[i] % (n[i] >= 64 ? 64 : 16), 0);
        memset(p[i], i & 255, n[i]);
        sum += n[i];
    }
    for (int i = 0; i < 500; i++) {
        for (size_t k = 0; k < n[i]; k++) {
            CHECK_EQ(p[i][k], i & 255);
        }
    }
    CHECK_EQ(a.used_bytes, sum);
    CHECK_STR(arena_strndup(&a, "hello", 4), "hell");
    CHECK_EQ(((char *)arena_zalloc(&a, 70))[69], 0);
    CHECK(!a.failed);
    arena_deinit(&a);
}

TEST(arena_failure_is_sticky)
{
    struct arena a;

    arena_init(&a, 100, 1000);
    CHECK(arena_alloc(&a, 900) != NULL);
    CHECK(arena_alloc(&a, 101) == NULL);
    CHECK(a.failed);
    CHECK(arena_alloc(&a, 1) == NULL);
    arena_deinit(&a);

    arena_init(&a, 100, 0);
    CHECK(arena_alloc(&a, SIZE_MAX - 8) == NULL);
    CHECK(arena_strndup(&a, "x", SIZE_MAX) == NULL);
    CHECK(a.failed);
    arena_deinit(&a);

    arena_init(&a, 100, 0);
    mem_fail_after(1);
    CHECK(arena_zalloc(&a, 1) == NULL);
    CHECK(arena_alloc(&a, 1) == NULL);
    arena_deinit(&a);
}

/* ---- buffers --------------------------------------------------------------------- */

TEST(buf_grows_and_ends_with_nul)
{
    struct buf b;
    size_t n;

    buf_init(&b, 0);
    CHECK_STR(buf_str(&b), "");
    buf_putc(&b, 'a');
    buf_puts(&b, "bc");
    buf_add(&b, "\0d", 2);
    buf_printf(&b, "%d %s", 42, "x");
    CHECK_EQ(b.len, 9);
    CHECK_MEM(buf_str(&b), "abc\0d42 x", 10);
    buf_clear(&b);
    CHECK_STR(buf_str(&b), "");
    for (int i = 0; i < 3000; i++) {
        buf_printf(&b, "%*d", i % 700, i);
    }
    CHECK(!b.failed);
    CHECK_EQ(b.data[b.len], 0);
    size_t len = b.len;
    char *taken = buf_take(&b, &n);

    CHECK_EQ(n, len);
    CHECK(b.data == NULL && b.len == 0);
    mem_free(taken);
    taken = buf_take(&b, NULL);
    CHECK_STR(taken, "");
    mem_free(taken);
    buf_deinit(&b);
}

TEST(buf_failure_is_sticky)
{
    struct buf b;

    buf_init(&b, 10);
    buf_puts(&b, "0123456789");
    CHECK(!b.failed);
    buf_putc(&b, 'x');
    CHECK(b.failed);
    buf_clear(&b);
    CHECK(!b.failed);
    buf_puts(&b, "01234");
    buf_printf(&b, "%300d", 1);
    CHECK(b.failed);
    buf_add(&b, "", 0);
    buf_putc(&b, 'x');
    CHECK_STR(buf_str(&b), "01234");
    CHECK(buf_take(&b, NULL) == NULL);
    buf_deinit(&b);

    buf_init(&b, 0);
    mem_fail_after(1);
    buf_puts(&b, "lost");
    buf_puts(&b, "lost too");
    CHECK(b.failed);
    CHECK_STR(buf_str(&b), "");
    buf_deinit(&b);
    buf_init(&b, 0);
    buf_add(&b, "x", SIZE_MAX);
    CHECK(b.failed);
    buf_deinit(&b);
}

/* ---- UTF-8 ----------------------------------------------------------------------- */

TEST(utf8_round_trips_every_code_point)
{
    for (uint32_t cp = 0; cp <= 0x110000; cp++) {
        char s[4];
        uint32_t back = 0;
        int n = utf8_encode(cp, s);
        bool scalar = cp <= 0x10FFFF && !(cp >= 0xD800 && cp < 0xE000);

        if (utf8_decode(s, (size_t)n, &back) != n || back != (scalar ? cp : UTF8_REPLACEMENT)) {
            fail_msg("U+%04X", cp);
        }
        for (int k = 1; k < n; k++) {
            CHECK_EQ(utf8_decode(s, (size_t)k, &back), 0);
            CHECK_EQ(utf8_incomplete(s, (size_t)k), k);
        }
        CHECK_EQ(utf8_incomplete(s, (size_t)n), 0);
    }
}

/* By the definition: a value of two to four bytes in its shortest form. */
static int slow_decode(const unsigned char *s, size_t n, uint32_t *cp)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    int len = s[0] < 0x80 ? 1 : s[0] >> 5 == 6 ? 2 : s[0] >> 4 == 14 ? 3 : s[0] >> 3 == 30 ? 4 : 0;
    uint32_t c = len == 1 ? s[0] : s[0] & (0x7Fu >> len);

    if (len == 0 || (size_t)len > n) {
        return 0;
    }
    for (int i = 1; i < len; i++) {
        if (s[i] >> 6 != 2) {
            return 0;
        }
        c = c << 6 | (s[i] & 63);
    }
    *cp = c;
    return c < least[len] || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000) ? 0 : len;
}

TEST(utf8_agrees_with_the_definition_on_all_beginnings)
{
    static const unsigned char tails[] = {0x00, 0x7F, 0x80, 0xBF, 0xC0, 0xFF};

    for (int a = 0; a < 256; a++) {
        for (int b = 0; b < 256; b++) {
            for (int t = 0; t < 36; t++) {
                unsigned char s[4] = {(unsigned char)a, (unsigned char)b, tails[t / 6], tails[t % 6]};
                uint32_t x = 1, y = 1;

                for (size_t n = 1; n <= 4; n++) {
                    int want = slow_decode(s, n, &y);

                    if (utf8_decode((char *)s, n, &x) != want || (want && x != y)) {
                        fail_msg("%02x %02x %02x %02x, %zu bytes", s[0], s[1], s[2], s[3], n);
                    }
                }
            }
        }
    }
}

/* Long enough for what looks at many bytes at once; half of the texts have one wrong byte. */
TEST(utf8_agrees_with_the_definition_on_long_text)
{
    static const uint32_t last[] = {0x7F, 0x7FF, 0xFFF, 0xD7FF, 0xFFFF, 0x10FFFF};
    struct rng r = {7};
    int n_valid = 0;

    for (int round = 0; round < 40000; round++) {
        char s[256];
        size_t want = 1 + rng_next(&r) % 200;
        size_t n = 0;
        uint64_t kinds = 1 + rng_next(&r) % 6;
        bool valid = true;

        while (n < want) {
            uint64_t kind = rng_next(&r) % 3 == 0 ? 0 : rng_next(&r) % kinds;

            n += (size_t)utf8_encode((uint32_t)(rng_next(&r) % (last[kind] + 1)), s + n);
        }
        if (round % 2 == 0) {
            s[rng_next(&r) % n] = (char)rng_next(&r);
        }
        for (size_t i = 0; i < n && valid;) {
            uint32_t cp;
            int len = slow_decode((unsigned char *)s + i, n - i, &cp);

            valid = len > 0;
            i += (size_t)len;
        }
        CHECK(utf8_valid(s, n) == valid);
        n_valid += valid;
    }
    CHECK(n_valid > 20000 && n_valid < 38000);
}

TEST(utf8_knows_what_is_incomplete)
{
    CHECK_EQ(utf8_incomplete("", 0), 0);
    CHECK_EQ(utf8_incomplete("a", 1), 0);
    CHECK_EQ(utf8_incomplete("a\xe2\x82", 3), 2);
    CHECK_EQ(utf8_incomplete("\xf0\x9f\x98", 3), 3);
    CHECK_EQ(utf8_incomplete("\x82\x82\x82\x82", 4), 0);
    /* Beginnings that no character has are complete. */
    CHECK_EQ(utf8_incomplete("\xe0\x80", 2), 0);
    CHECK_EQ(utf8_incomplete("\xed\xa0", 2), 0);
    CHECK_EQ(utf8_incomplete("\xf4\x90", 2), 0);
    CHECK_EQ(utf8_incomplete("\xc0", 1), 0);
    CHECK_EQ(utf8_incomplete("\xff", 1), 0);
    CHECK(utf8_valid("a\xc3\xa9", 3));
    CHECK(!utf8_valid("a\xc3\xa9", 2));
    CHECK_EQ(utf8_count("a\xc3\xa9\xf0\x9f\x98\x80", 7), 3);
}

/* ---- files ----------------------------------------------------------------------- */

TEST(file_writes_reads_and_maps)
{
    struct file_map m;
    struct buf b;
    slm_error err;
    struct stat st;

    make_dir();
    put("a/b/c.txt", "first");
    put("a/b/c.txt", "second");
    CHECK(file_map_open(&m, in_dir("a/b/c.txt"), &err));
    CHECK_EQ(m.size, 6);
    /* A file that is replaced leaves the mapping as it was. */
    put("a/b/c.txt", "third!");
    CHECK_MEM(m.data, "second", 6);
    file_map_close(&m);
    file_map_close(&m);

    buf_init(&b, 0);
    CHECK(file_read(in_dir("a/b/c.txt"), 6, &b, &err));
    CHECK_STR(buf_str(&b), "third!");
    buf_clear(&b);
    CHECK(!file_read(in_dir("a/b/c.txt"), 5, &b, &err));
    CHECK_EQ(err.code, SLM_E_IO);
    CHECK(strstr(err.msg, "c.txt") != NULL && strstr(err.msg, "5 bytes") != NULL);
    buf_deinit(&b);
    mem_fail_after(1);
    CHECK(!file_read(in_dir("a/b/c.txt"), 6, &b, &err));
    CHECK_EQ(err.code, SLM_E_NOMEM);
    buf_deinit(&b);

    /* Nothing is left beside the file, and its mode is that of any new file. */
    mode_t mask = umask(0);

    umask(mask);
    CHECK_EQ(stat(in_dir("a/b/c.txt"), &st), 0);
    CHECK_EQ(st.st_mode & 0777, 0666 & ~mask);
    CHECK_EQ(unlink(in_dir("a/b/c.txt")), 0);
    CHECK_EQ(rmdir(in_dir("a/b")), 0);
    remove_tree();
}

TEST(file_refuses_what_cannot_be_mapped)
{
    struct file_map m;
    slm_error err;

    make_dir();
    put("empty", "");
    CHECK_EQ(mkfifo(in_dir("fifo"), 0600), 0);
    static const struct {
        const char *name, *reason;
    } cases[] = {
        {"empty", "is empty"}, {"fifo", "regular"}, {".", "directory"}, {"missing", "No such file"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK(!file_map_open(&m, in_dir(cases[i].name), &err));
        CHECK_EQ(err.code, SLM_E_IO);
        CHECK(m.data == NULL);
        CHECK(strstr(err.msg, cases[i].reason) != NULL);
        CHECK(memcmp(err.msg, dir, strlen(dir)) == 0);
        file_map_close(&m);
    }
    remove_tree();
}

TEST(file_write_failures_leave_the_old_file)
{
    slm_error err;
    struct buf b;

    make_dir();
    CHECK(!file_write(in_dir("no/such/folder"), "x", 1, &err));
    CHECK_EQ(err.code, SLM_E_IO);
    CHECK(!file_write(dir, "x", 1, &err));
    CHECK(strstr(err.msg, "directory") != NULL);
    put("keep", "old");
    mem_fail_after(1);
    CHECK(!file_write(in_dir("keep"), "new", 3, &err));
    CHECK_EQ(err.code, SLM_E_NOMEM);
    buf_init(&b, 0);
    CHECK(file_read(in_dir("keep"), 100, &b, &err));
    CHECK_STR(buf_str(&b), "old");
    buf_clear(&b);
    CHECK(!file_read(dir, 100, &b, &err));
    CHECK_EQ(err.code, SLM_E_IO);
    buf_deinit(&b);

    /* A device stays a device. */
    struct stat st;

    CHECK(file_write("/dev/null", "x", 1, &err));
    CHECK_EQ(stat("/dev/null", &st), 0);
    CHECK(S_ISCHR(st.st_mode));
    remove_tree();
}

TEST(file_reads_pipes)
{
    struct buf b;
    int fds[2], old = dup(STDIN_FILENO);

    CHECK_EQ(pipe(fds), 0);
    CHECK_EQ(write(fds[1], "piped", 5), 5);
    close(fds[1]);
    CHECK(dup2(fds[0], STDIN_FILENO) >= 0);
    close(fds[0]);
    buf_init(&b, 0);
    CHECK(file_read("-", 100, &b, NULL));
    CHECK_STR(buf_str(&b), "piped");
    buf_deinit(&b);
    CHECK(dup2(old, STDIN_FILENO) >= 0);
    close(old);
}

/* ---- log ------------------------------------------------------------------------- */

static void remember_line(void *arg, slm_log_level level, const char *line)
{
    snprintf(arg, 600, "%d %s", (int)level, line);
}

TEST(log_goes_to_its_sink)
{
    char last[600] = "";
    char long_text[700];

    log_line(SLM_LOG_WARN, "dropped");
    log_set(remember_line, last);
    log_line(SLM_LOG_WARN, "%s %d", "seven", 7);
    CHECK_STR(last, "2 seven 7");
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    log_line(SLM_LOG_INFO, "%s", long_text);
    CHECK(strlen(last) > 400 && strlen(last) < 600);
    log_set(NULL, NULL);
    log_line(SLM_LOG_WARN, "dropped");
    CHECK_EQ(last[0], '1');
}

/* ---- small things ---------------------------------------------------------------- */

TEST(hash_is_fnv1a)
{
    CHECK_EQ(hash_bytes(HASH_INIT, "", 0), 0xCBF29CE484222325u);
    CHECK_EQ(hash_bytes(HASH_INIT, "a", 1), 0xAF63DC4C8601EC8Cu);
    CHECK_EQ(hash_bytes(HASH_INIT, "foobar", 6), 0x85944171F73967E8u);
    CHECK_EQ(hash_bytes(hash_bytes(HASH_INIT, "foo", 3), "bar", 3), 0x85944171F73967E8u);
}

TEST(rng_is_splitmix64_and_keyed)
{
    struct rng r = {0};

    /* The first output of splitmix64 with seed 0 is known. */
    CHECK_EQ(rng_next(&r), 0xE220A8397B1DCDAFu);
    CHECK(rng_bits(1, 2, 3) == rng_bits(1, 2, 3));
    CHECK(rng_bits(1, 2, 3) != rng_bits(1, 3, 2));
    CHECK(rng_unit(0) == 0.0);
    CHECK(rng_unit(UINT64_MAX) < 1.0);
    CHECK(time_now() > 0);
}

int main(void)
{
    return RUN(
        T(error_sets_code_position_and_message),
        T(error_wrap_puts_context_in_front_and_keeps_the_rest),
        T(error_long_context_loses_its_beginning_not_the_reason),
        T(error_message_is_one_clean_line),
        T(mem_checks_sizes),
        T(mem_gives_what_it_says),
        T(mem_fails_the_allocation_it_is_told_to),
        T(arena_hands_out_aligned_disjoint_memory),
        T(arena_failure_is_sticky),
        T(buf_grows_and_ends_with_nul),
        T(buf_failure_is_sticky),
        T(utf8_round_trips_every_code_point),
        T(utf8_agrees_with_the_definition_on_all_beginnings),
        T(utf8_agrees_with_the_definition_on_long_text),
        T(utf8_knows_what_is_incomplete),
        T(file_writes_reads_and_maps),
        T(file_refuses_what_cannot_be_mapped),
        T(file_write_failures_leave_the_old_file),
        T(file_reads_pipes),
        T(log_goes_to_its_sink),
        T(hash_is_fnv1a),
        T(rng_is_splitmix64_and_keyed));
}

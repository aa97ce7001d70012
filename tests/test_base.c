/* test_base.c - the layer below everything: errors, memory, text, files, machine, threads. */
#include "test.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cpu.h"
#include "base/cpu_sys.h"
#include "base/error.h"
#include "base/file.h"
#include "base/fpenv.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/thread.h"
#include "base/time.h"
#include "base/utf8.h"

/* A fresh directory that `remove_tree` takes away again. */
static char dir[128];

static void make_dir(void)
{
    const char *tmp = getenv("TMPDIR");

    snprintf(dir, sizeof dir, "%s/slm-test-XXXXXX", tmp != NULL ? tmp : P_tmpdir);
    CHECK(mkdtemp(dir) != NULL);
}

static void remove_tree(void)
{
    char command[160];

    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    CHECK_EQ(system(command), 0);
}

static const char *in_dir(const char *name)
{
    static char path[320];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

/* Writes a file below the directory, making the folders on the way. */
static void put(const char *name, const char *content)
{
    const char *path = in_dir(name);
    char part[320];
    slm_error err;

    for (const char *s = strchr(path + 1, '/'); s != NULL; s = strchr(s + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", (int)(s - path), path);
        mkdir(part, 0777);
    }
    CHECK(file_write(path, content, strlen(content), &err));
}

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

/* ---- machine --------------------------------------------------------------------- */

TEST(cpu_tier_can_be_chosen)
{
    enum isa isa, best = cpu_isa_best();
    slm_error err;
    char features[256];

    CHECK(best < ISA_COUNT);
    cpu_features(features, sizeof features);
    CHECK((best > ISA_SCALAR) <= (strstr(features, "avx2") != NULL));
    unsetenv("SLM_ISA");
    CHECK(cpu_isa(&isa, &err));
    CHECK_EQ(isa, best);
    for (int i = 0; i < ISA_COUNT; i++) {
        setenv("SLM_ISA", isa_name((enum isa)i), 1);
        bool ok = cpu_isa(&isa, &err);

        CHECK_EQ(ok, i <= (int)best);
        if (ok) {
            CHECK_EQ(isa, i);
        } else {
            CHECK_EQ(err.code, SLM_E_ARG);
            CHECK(strstr(err.msg, isa_name((enum isa)i)) != NULL);
            CHECK(strstr(err.msg, isa_name(best)) != NULL);
        }
    }
    setenv("SLM_ISA", "avx3", 1);
    CHECK(!cpu_isa(&isa, &err));
    CHECK(strstr(err.msg, "avx3") != NULL && strstr(err.msg, "scalar") != NULL);
    setenv("SLM_ISA", "", 1);
    CHECK(cpu_isa(&isa, &err));
    unsetenv("SLM_ISA");
}

TEST(cpu_reports_this_machine)
{
    char why[160] = "";
    int n = cpu_usable_cores(why, sizeof why);

    CHECK(n >= 1 && n <= sysconf(_SC_NPROCESSORS_ONLN));
    CHECK(why[0] != '\0');
    CHECK(cpu_ram_bytes() > (uint64_t)16 << 20);
    CHECK(cpu_ram_free_bytes() <= cpu_ram_bytes());
    CHECK(cpu_peak_rss_bytes() > (uint64_t)1 << 20);
}

TEST(cpu_lists_parse)
{
    struct cpu_mask m;

    CHECK(cpu_mask_parse(&m, "0-3,8,10-11\n"));
    CHECK_EQ(cpu_mask_count(&m), 7);
    CHECK(cpu_mask_has(&m, 10) && !cpu_mask_has(&m, 9) && !cpu_mask_has(&m, -1));
    CHECK(cpu_mask_parse(&m, "") && cpu_mask_count(&m) == 0);
    CHECK(cpu_mask_parse(&m, "8191"));
    static const char *const bad[] = {"3-1", "a", "1-", "1;2", "8192", "0-99999999999", "-1", " 1"};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK(!cpu_mask_parse(&m, bad[i]));
    }
}

static struct cpu_mask first_cpus(int n)
{
    struct cpu_mask m = {0};

    for (int i = 0; i < n; i++) {
        cpu_mask_add(&m, i);
    }
    return m;
}

/* Cores below the directory for the first n CPUs, the reason in `why`. */
static char why[160];

static int cores(int n)
{
    struct cpu_mask m = first_cpus(n);

    return cpu_cores_below(dir, &m, why, sizeof why);
}

static void put_cpu(int cpu, const char *file, const char *content)
{
    char name[128];

    snprintf(name, sizeof name, "sys/devices/system/cpu/cpu%d/%s", cpu, file);
    put(name, content);
}

TEST(cores_without_any_file)
{
    make_dir();
    CHECK_EQ(cores(6), 6);
    CHECK_STR(why, "all 6 cores");
    CHECK_EQ(cores(0), 1);
    CHECK_EQ(cpu_quota_below(dir), 0);
    CHECK_EQ(cpu_ram_below(dir), 0);
    remove_tree();
}

TEST(cores_count_hardware_threads_once)
{
    make_dir();
    put("sys/devices/system/cpu/online", "0-7\n");
    for (int i = 0; i < 8; i++) {
        char siblings[16];

        snprintf(siblings, sizeof siblings, "%d,%d\n", i % 4, i % 4 + 4);
        /* Old kernels know only the second name. */
        put_cpu(i, i < 4 ? "topology/core_cpus_list" : "topology/thread_siblings_list", siblings);
    }
    CHECK_EQ(cores(8), 4);
    CHECK_STR(why, "4 physical cores with 8 hardware threads");
    CHECK_EQ(cores(6), 4);
    CHECK_STR(why, "affinity mask: 6 of 8 CPUs, 4 cores");
    CHECK_EQ(cores(3), 3);

    /* The second thread of a core counts when the first is not ours. */
    struct cpu_mask m = {0};

    cpu_mask_add(&m, 5);
    cpu_mask_add(&m, 6);
    CHECK_EQ(cpu_cores_below(dir, &m, why, sizeof why), 2);
    put_cpu(5, "topology/thread_siblings_list", "garbage");
    CHECK_EQ(cpu_cores_below(dir, &m, why, sizeof why), 2);
    remove_tree();
}

TEST(cores_leave_out_efficiency_cores)
{
    make_dir();
    put("sys/devices/cpu_core/cpus", "0-3\n");
    CHECK_EQ(cores(12), 4);
    CHECK_STR(why, "4 performance cores of 12");

    /* Pinned to efficiency cores: use those. */
    struct cpu_mask m = {0};

    cpu_mask_add(&m, 8);
    cpu_mask_add(&m, 9);
    CHECK_EQ(cpu_cores_below(dir, &m, why, sizeof why), 2);
    remove_tree();

    make_dir();
    for (int i = 0; i < 8; i++) {
        put_cpu(i, "cpu_capacity", i < 4 ? "380\n" : i < 7 ? "900\n" : "1024\n");
    }
    CHECK_EQ(cores(8), 4);
    CHECK_EQ(cores(4), 4);
    remove_tree();

    make_dir();
    for (int i = 0; i < 4; i++) {
        put_cpu(i, "cpufreq/cpuinfo_max_freq", i < 2 ? "5100000\n" : i == 2 ? "4700000\n" : "3300000\n");
    }
    CHECK_EQ(cores(4), 3);
    CHECK_EQ(cores(5), 5);  /* one does not tell: nothing is known */
    remove_tree();
}

TEST(quota_of_version_2)
{
    make_dir();
    put("proc/self/cgroup", "0::/user.slice/app\n");
    put("proc/self/mountinfo", "22 1 0:21 / /proc rw - proc proc rw\n"
        "31 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
    put("sys/fs/cgroup/user.slice/app/cpu.max", "max 100000\n");
    CHECK_EQ(cpu_quota_below(dir), 0);
    put("sys/fs/cgroup/user.slice/cpu.max", "350000 100000\n");
    CHECK_EQ(cpu_quota_below(dir), 3500);
    CHECK_EQ(cores(8), 3);
    CHECK_STR(why, "control group quota of 3.50 CPUs");
    put("sys/fs/cgroup/user.slice/app/cpu.max", "500000 100000\n");
    CHECK_EQ(cpu_quota_below(dir), 3500);
    put("sys/fs/cgroup/user.slice/app/cpu.max", "50 100000\n");
    CHECK_EQ(cpu_quota_below(dir), 1);
    put("sys/fs/cgroup/user.slice/app/cpu.max", "50000 100000\n");
    CHECK_EQ(cores(8), 1);
    CHECK_STR(why, "control group quota of 0.50 CPUs");
    put("sys/fs/cgroup/user.slice/app/cpu.max", "1600000 100000\n");
    put("sys/fs/cgroup/user.slice/cpu.max", "max 100000\n");
    CHECK_EQ(cores(8), 8);
    static const char *const bad[] = {"", "x", "100 x", "100", "100 0", "0 100", "-5 100",
                                      "99999999999999999999999 100"};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put("sys/fs/cgroup/user.slice/app/cpu.max", bad[i]);
        CHECK_EQ(cpu_quota_below(dir), 0);
    }
    remove_tree();
}

TEST(quota_of_version_1_in_a_container)
{
    make_dir();
    put("proc/self/cgroup", "12:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/\n");
    put("proc/self/mountinfo",
        "40 30 0:30 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
        "41 30 0:31 /docker/abc /sys/fs/cgroup/memory ro master:9 - cgroup cgroup rw,memory\n");
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    CHECK_EQ(cpu_quota_below(dir), 0);
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "250000\n");
    CHECK_EQ(cpu_quota_below(dir), 2500);
    CHECK_EQ(cores(8), 2);
    /* A group below the part that the container sees. */
    put("proc/self/cgroup", "12:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc/job\n0::/\n");
    put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "50000\n");
    put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "60000\n");
    CHECK_EQ(cpu_quota_below(dir), 1200);
    /* A group that it does not see. */
    put("proc/self/cgroup", "12:memory:/docker/abc\n4:cpu,cpuacct:/other/job\n0::/\n");
    CHECK_EQ(cpu_quota_below(dir), 2500);

    put("proc/meminfo", "MemTotal:       16384000 kB\nMemFree: 1 kB\nMemAvailable:   8192000 kB\n");
    CHECK_EQ(cpu_ram_below(dir), 16384000ull * 1024);
    CHECK_EQ(cpu_ram_free_below(dir), 8192000ull * 1024);
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    CHECK_EQ(cpu_ram_below(dir), 16384000ull * 1024);
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "1000000000\n");
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "600000000\n");
    put("sys/fs/cgroup/memory/memory.stat", "cache 1\ninactive_file 7\ntotal_inactive_file "
        "200000000\ntotal_active_file 100000000\n");
    CHECK_EQ(cpu_ram_below(dir), 1000000000);
    CHECK_EQ(cpu_ram_free_below(dir), 700000000);
    remove_tree();
}

TEST(memory_of_version_2_takes_the_least_on_the_way_up)
{
    make_dir();
    put("proc/self/cgroup", "0::/a/b\n");
    put("proc/self/mountinfo", "31 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    put("proc/meminfo", "MemTotal: 4000000 kB\nMemAvailable: 3000000 kB\n");
    put("sys/fs/cgroup/a/b/memory.max", "max\n");
    put("sys/fs/cgroup/a/memory.max", "2000000000\n");
    put("sys/fs/cgroup/a/memory.current", "2500000000\n");
    put("sys/fs/cgroup/a/memory.stat", "anon 5\nactive_file 100\n");
    CHECK_EQ(cpu_ram_below(dir), 2000000000);
    CHECK_EQ(cpu_ram_free_below(dir), 0);
    put("sys/fs/cgroup/a/memory.current", "500000000\n");
    CHECK_EQ(cpu_ram_free_below(dir), 1500000100);
    put("sys/fs/cgroup/a/b/memory.max", "1000\n");
    CHECK_EQ(cpu_ram_below(dir), 1000);
    put("proc/self/cgroup", "nonsense\n::\n0\n");
    CHECK_EQ(cpu_ram_below(dir), 4000000ull * 1024);
    remove_tree();
}

/* ---- threads --------------------------------------------------------------------- */

enum { TASKS_MAX = 1000 };

struct job {
    _Atomic int runs[TASKS_MAX];
    int plain[TASKS_MAX];        /* written without atomics: pool_run must order it */
    int n_workers;
    _Atomic int bad_worker;
    uint64_t fp_differs;
};

static void job_task(void *arg, int task, int worker)
{
    struct job *j = arg;

    atomic_fetch_add(&j->runs[task], 1);
    j->plain[task]++;
    if (worker < 0 || worker >= j->n_workers) {
        atomic_store(&j->bad_worker, 1);
    }
}

static void check_runs(const struct job *j, int n, int want)
{
    for (int i = 0; i < TASKS_MAX; i++) {
        CHECK_EQ(j->runs[i], i < n ? want : 0);
        CHECK_EQ(j->plain[i], i < n ? want : 0);
    }
    CHECK_EQ(j->bad_worker, 0);
}

TEST(pool_runs_every_task_once)
{
    slm_error err;

    for (int threads = 1; threads <= 5; threads++) {
        struct pool *p = pool_new(threads, &err);

        CHECK(p != NULL);
        CHECK_EQ(pool_size(p), threads);
        for (int n = 0; n <= TASKS_MAX; n = n < 20 ? n + 1 : n * 7) {
            for (uint64_t seed = 0; seed < 4; seed++) {
                struct job j = {.n_workers = threads};

                pool_shuffle(p, seed);
                pool_run(p, job_task, &j, n);
                check_runs(&j, n, 1);
            }
        }
        pool_free(p);
    }
    pool_free(NULL);
}

TEST(pool_hammered_by_short_regions)
{
    slm_error err;
    struct pool *p = pool_new(4, &err);
    struct job j = {.n_workers = 4};
    struct rng r = {1};
    enum { ROUNDS = 3000 };

    CHECK(p != NULL);
    for (int i = 0; i < ROUNDS; i++) {
        pool_run(p, job_task, &j, 7);
        /* Now and then let the workers fall asleep, or be about to. */
        if (i % 100 == 0) {
            usleep((useconds_t)(rng_next(&r) % 400));
        }
    }
    check_runs(&j, 7, ROUNDS);
    pool_free(p);
}

struct caller {
    struct pool *pool;
    pthread_barrier_t *start;
    struct job job;
};

static void yielding_task(void *arg, int task, int worker)
{
    sched_yield();
    job_task(arg, task, worker);
}

static void *call_often(void *arg)
{
    struct caller *c = arg;

    pthread_barrier_wait(c->start);
    for (int i = 0; i < 300; i++) {
        pool_run(c->pool, yielding_task, &c->job, 5);
    }
    return NULL;
}

TEST(pool_takes_turns_among_callers)
{
    slm_error err;
    struct pool *p = pool_new(3, &err);
    static struct caller callers[3];
    pthread_barrier_t start;
    pthread_t threads[3];

    pthread_barrier_init(&start, NULL, 3);
    for (int i = 0; i < 3; i++) {
        callers[i] = (struct caller){.pool = p, .start = &start, .job = {.n_workers = 3}};
        CHECK_EQ(pthread_create(&threads[i], NULL, call_often, &callers[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        check_runs(&callers[i].job, 5, 300);
    }
    pthread_barrier_destroy(&start);
    pool_free(p);
}

/* Tasks that cannot end before all threads have one: no thread may stay asleep. */
struct meeting {
    _Atomic int here;
    int n;
    int done[4];
};

static void meet(void *arg, int task, int worker)
{
    struct meeting *m = arg;

    atomic_fetch_add(&m->here, 1);
    while (atomic_load(&m->here) < m->n) {
        usleep(50);
    }
    /* The workers are slower than the caller, which has to wait for them. */
    if (worker > 0) {
        usleep(2000);
    }
    m->done[task]++;
}

TEST(pool_wakes_its_workers_and_waits_for_them)
{
    slm_error err;
    struct pool *p = pool_new(4, &err);

    for (int i = 0; i < 10; i++) {
        struct meeting m = {.n = 4};

        /* Long enough for the workers to fall asleep, every other time. */
        usleep(i % 2 == 0 ? 20000 : 0);
        pool_run(p, meet, &m, 4);
        for (int k = 0; k < 4; k++) {
            CHECK_EQ(m.done[k], 1);
        }
    }
    pool_free(p);
}

struct order {
    _Atomic int next;
    int seen[64];
};

static void note_order(void *arg, int task, int worker)
{
    struct order *o = arg;

    (void)worker;
    o->seen[atomic_fetch_add(&o->next, 1)] = task;
}

TEST(pool_shuffle_changes_the_order)
{
    slm_error err;
    struct pool *p = pool_new(1, &err);
    struct order plain = {0}, a = {0}, b = {0};

    pool_run(p, note_order, &plain, 64);
    for (int i = 0; i < 64; i++) {
        CHECK_EQ(plain.seen[i], i);
    }
    pool_shuffle(p, 9);
    pool_run(p, note_order, &a, 64);
    pool_run(p, note_order, &b, 64);
    CHECK(memcmp(a.seen, plain.seen, sizeof a.seen) != 0);
    CHECK(memcmp(a.seen, b.seen, sizeof a.seen) != 0);
    pool_free(p);
}

/* A value that is zero under flush-to-zero and rounds up under upward rounding. */
static void fp_task(void *arg, int task, int worker)
{
    volatile float tiny = 1e-38f, third = 3.0f;
    volatile float a = tiny * 0.1f, b = 1.0f / third;

    (void)task;
    usleep(100);
    if (worker > 0 && (a == 0.0f || b != 0x1.555556p-2f)) {
        atomic_store((_Atomic int *)arg, 1);
    }
}

TEST(pool_workers_have_the_default_fp_environment)
{
    slm_error err;
    _Atomic int bad = 0;
    uint64_t old = fpenv_enter();

#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(0x1F80 | 0x8040 | 0x4000);  /* FTZ, DAZ, upward: what threads inherit */
#endif
    struct pool *p = pool_new(3, &err);

    fpenv_leave(old);
    CHECK(p != NULL);
    for (int i = 0; i < 5; i++) {
        pool_run(p, fp_task, &bad, 30);
    }
    CHECK_EQ(bad, 0);
    pool_free(p);
}

TEST(pool_refuses_what_it_cannot_make)
{
    slm_error err;
    long before = mem_count();

    CHECK(pool_new(0, &err) == NULL);
    CHECK_EQ(err.code, SLM_E_ARG);
    CHECK(pool_new(-3, NULL) == NULL);
    CHECK(pool_new(100000, &err) == NULL);
    CHECK(strstr(err.msg, "100000") != NULL);
    struct pool *p = pool_new(2, &err);
    long n = mem_count() - before;

    CHECK(p != NULL && n > 0);
    pool_free(p);
    for (long i = 1; i <= n; i++) {
        mem_fail_after(i);
        CHECK(pool_new(2, &err) == NULL);
        CHECK_EQ(err.code, SLM_E_NOMEM);
    }
    mem_fail_after(0);
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
        T(utf8_knows_what_is_incomplete),
        T(file_writes_reads_and_maps),
        T(file_refuses_what_cannot_be_mapped),
        T(file_write_failures_leave_the_old_file),
        T(file_reads_pipes),
        T(log_goes_to_its_sink),
        T(hash_is_fnv1a),
        T(rng_is_splitmix64_and_keyed),
        T(cpu_tier_can_be_chosen),
        T(cpu_reports_this_machine),
        T(cpu_lists_parse),
        T(cores_without_any_file),
        T(cores_count_hardware_threads_once),
        T(cores_leave_out_efficiency_cores),
        T(quota_of_version_2),
        T(quota_of_version_1_in_a_container),
        T(memory_of_version_2_takes_the_least_on_the_way_up),
        T(pool_runs_every_task_once),
        T(pool_hammered_by_short_regions),
        T(pool_takes_turns_among_callers),
        T(pool_wakes_its_workers_and_waits_for_them),
        T(pool_shuffle_changes_the_order),
        T(pool_workers_have_the_default_fp_environment),
        T(pool_refuses_what_it_cannot_make));
}

/* test.h - cmocka behind a few short names.
 *
 *   TEST(gguf_rejects_short_tensor) { CHECK(...); CHECK_EQ(a, b); }
 *   int main(void) { return RUN(T(gguf_rejects_short_tensor)); }
 */
#ifndef TEST_H
#define TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TEST(name) static void name(void **test_state __attribute__((unused)))
#define CHECK(cond) assert_true(cond)
#define CHECK_EQ(a, b) assert_int_equal((a), (b))
#define CHECK_STR(a, b) assert_string_equal((a), (b))
#define CHECK_MEM(a, b, n) assert_memory_equal((a), (b), (n))
#define T(name) cmocka_unit_test(name)
#define RUN(...)                                                                         \
    ({                                                                                   \
        const struct CMUnitTest tests_[] = { __VA_ARGS__ };                              \
        cmocka_run_group_tests(tests_, NULL, NULL);                                      \
    })

#endif

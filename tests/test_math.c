/* test_math.c - the unary functions over the floats: all tiers equal, and close to exact.
 *
 *   test_math           every STEP-th float
 *   test_math --all     all 2^32 of them (some minutes a function)
 *   test_math --step N
 *   test_math --only NAME   of the tests, for example math_exp or 'math_*'
 *
 * Errors are in units in the last place of the exact result, taken from the C
 * library's double functions.  Where a function has cancelled digits in a part of
 * its range, that part has a bound of its own. */
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "test.h"

#include "base/fpenv.h"
#include "kern/kern.h"

enum { CHUNK = 4096, THREADS = 2 };

/* A prime, so that all low bits occur; about 1 / 64 of the floats.  Sanitized code is much
 * slower and gets a thinner sample of the same kind. */
#if defined(__SANITIZE_ADDRESS__)
static uint64_t step = 20011;
#else
static uint64_t step = 67;
#endif

/* Bound on the error for lo <= x <= hi. */
struct range {
    double lo, hi;
    double ulps;
};

struct function {
    const char *name;
    enum unary_fn fn;
    double (*exact)(double x);
    struct range ranges[3];  /* ends with ulps 0; other x are only compared between tiers */
};

static double exact_sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }
static double exact_silu(double x) { return x / (1.0 + exp(-x)); }
static double exact_softplus(double x) { return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)); }

static double exact_gelu(double x)
{
    const double u = 0.7978845608028654 * x * (1.0 + 0.044715 * x * x);

    return x / (1.0 + exp(-2.0 * u));
}

#define END { 0.0, 0.0, 0.0 }

/* In order of enum unary_fn. */
static const struct function functions[] = {
    { "exp", UNARY_EXP, exp, { { -87.336, 88.376, 1.01 }, END } },
    { "sigmoid", UNARY_SIGMOID, exact_sigmoid, { { -87.0, INFINITY, 2.5 }, END } },
    { "silu", UNARY_SILU, exact_silu, { { -87.0, 1e38, 2.5 }, END } },
    /* The rounding of u is multiplied by u in the exponential. */
    { "gelu", UNARY_GELU, exact_gelu, { { -5.0, -1.0, 48.0 }, { -1.0, 1e10, 3.0 }, END } },
    { "tanh", UNARY_TANH, tanh, { { -INFINITY, INFINITY, 2.0 }, END } },
    { "log", UNARY_LOG, log, { { 0.0, INFINITY, 1.0 }, END } },
    { "softplus", UNARY_SOFTPLUS, exact_softplus, { { -87.0, 1e38, 2.0 }, END } },
    { "erf", UNARY_ERF, erf, { { -INFINITY, INFINITY, 1.5 }, END } },
};

/* The distance of floats near x, from the exponent field of the double. */
static double ulp_at(double x)
{
    uint64_t u;
    double ulp;

    memcpy(&u, &x, 8);
    const int e = (int)(u >> 52 & 2047) - 1023;
    u = (uint64_t)((e < -126 ? -126 : e) - 23 + 1023) << 52;
    memcpy(&ulp, &u, 8);
    return ulp;
}

struct job {
    const struct function *f;
    uint64_t first, last;      /* of the sample, in steps */
    uint64_t differing;        /* values that differ between tiers */
    uint64_t off;              /* values beyond their bound */
    double worst[3];           /* error by range, and where */
    float worst_at[3];
};

static float float_of(uint32_t u)
{
    float x;

    memcpy(&x, &u, 4);
    return x;
}

static void compare_tiers(struct job *job, const float *x, const float *want, const float *got,
                          int n, enum isa isa)
{
    for (int i = 0; i < n; i++) {
        if (memcmp(&want[i], &got[i], 4) != 0 && !(isnan(want[i]) && isnan(got[i]))) {
            if (job->differing++ == 0) {
                print_message("%s(%a) on %s: %a, not %a\n", job->f->name, (double)x[i],
                              isa_name(isa), (double)got[i], (double)want[i]);
            }
        }
    }
}

static void measure(struct job *job, const float *x, const float *y, int n)
{
    for (int i = 0; i < n; i++) {
        const struct range *r = job->f->ranges;

        for (int j = 0; r[j].ulps != 0.0; j++) {
            if (x[i] >= r[j].lo && x[i] <= r[j].hi) {
                const double want = job->f->exact((double)x[i]);
                const double e = want == y[i] ? 0.0 : fabs(y[i] - want) / ulp_at(want);
                if (!(e <= r[j].ulps) && job->off++ == 0) {
                    print_message("%s(%a) is %a, off by %.2f ulp\n", job->f->name, (double)x[i],
                                  (double)y[i], e);
                }
                if (e > job->worst[j]) {
                    job->worst[j] = e;
                    job->worst_at[j] = x[i];
                }
                break;
            }
        }
    }
}

static void *run_job(void *arg)
{
    struct job *job = arg;
    float x[CHUNK], want[CHUNK], got[CHUNK];

    for (uint64_t i = job->first; i < job->last; i += CHUNK) {
        /* The tiers are equal, so a part of the sample is enough for the error. */
        const bool measured = step == 1 || i / CHUNK % 4 == 0;
        const int n = job->last - i < CHUNK ? (int)(job->last - i) : CHUNK;

        for (int j = 0; j < n; j++) {
            x[j] = float_of((uint32_t)((i + (uint64_t)j) * step));
        }
        kern_get(ISA_SCALAR)->unary[job->f->fn](want, x, n);
        for (int isa = 1; isa <= (int)cpu_isa_best() && isa <= ISA_AVX512; isa++) {
            kern_get((enum isa)isa)->unary[job->f->fn](got, x, n);
            compare_tiers(job, x, want, got, n, (enum isa)isa);
        }
        if (measured) {
            measure(job, x, want, n);
        }
    }
    return NULL;
}

static void check_function(const struct function *f)
{
    const uint64_t count = ((uint64_t)1 << 32) / step;
    struct job jobs[THREADS];
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++) {
        jobs[i] = (struct job){ .f = f, .first = count / THREADS * (uint64_t)i,
                                .last = i + 1 < THREADS ? count / THREADS * (uint64_t)(i + 1)
                                                        : count };
        assert_int_equal(pthread_create(&threads[i], NULL, run_job, &jobs[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (int j = 0; f->ranges[j].ulps != 0.0; j++) {
        const struct job *w = jobs[0].worst[j] > jobs[1].worst[j] ? &jobs[0] : &jobs[1];
        print_message("%-9s %llu values of [%g, %g]: at most %.3f ulp (at %a), bound %g\n", f->name,
                      (unsigned long long)count, f->ranges[j].lo, f->ranges[j].hi, w->worst[j],
                      (double)w->worst_at[j], f->ranges[j].ulps);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK_EQ(jobs[i].differing, 0);
        CHECK_EQ(jobs[i].off, 0);
    }
}

TEST(math_exp) { check_function(&functions[UNARY_EXP]); }
TEST(math_sigmoid) { check_function(&functions[UNARY_SIGMOID]); }
TEST(math_silu) { check_function(&functions[UNARY_SILU]); }
TEST(math_gelu) { check_function(&functions[UNARY_GELU]); }
TEST(math_tanh) { check_function(&functions[UNARY_TANH]); }
TEST(math_log) { check_function(&functions[UNARY_LOG]); }
TEST(math_softplus) { check_function(&functions[UNARY_SOFTPLUS]); }
TEST(math_erf) { check_function(&functions[UNARY_ERF]); }

/* What the ranges above leave out: ends, zeros, infinities, NaN, in every tier. */
TEST(math_special_values)
{
    static const struct { enum unary_fn fn; float x, y; } rows[] = {
        { UNARY_EXP, 0.0f, 1.0f }, { UNARY_EXP, -0.0f, 1.0f }, { UNARY_EXP, -88.0f, 0.0f },
        { UNARY_EXP, -INFINITY, 0.0f }, { UNARY_EXP, 0x1p-149f, 1.0f },
        { UNARY_EXP, 1e30f, INFINITY }, { UNARY_EXP, INFINITY, INFINITY },
        { UNARY_SIGMOID, 0.0f, 0.5f }, { UNARY_SIGMOID, 100.0f, 1.0f },
        { UNARY_SIGMOID, -100.0f, 0.0f }, { UNARY_SIGMOID, -INFINITY, 0.0f },
        { UNARY_SILU, 0.0f, 0.0f }, { UNARY_SILU, -0.0f, -0.0f }, { UNARY_SILU, 1e30f, 1e30f },
        { UNARY_SILU, -100.0f, -0.0f }, { UNARY_SILU, -1e30f, -0.0f },
        { UNARY_GELU, 0.0f, 0.0f }, { UNARY_GELU, 50.0f, 50.0f }, { UNARY_GELU, -50.0f, -0.0f },
        { UNARY_GELU, -1e30f, -0.0f },
        { UNARY_TANH, -0.0f, -0.0f }, { UNARY_TANH, INFINITY, 1.0f },
        { UNARY_TANH, -INFINITY, -1.0f }, { UNARY_TANH, 0x1p-149f, 0x1p-149f },
        { UNARY_LOG, 1.0f, 0.0f }, { UNARY_LOG, 0.0f, -INFINITY },
        { UNARY_LOG, -0.0f, -INFINITY }, { UNARY_LOG, -1.0f, NAN },
        { UNARY_LOG, -0x1p-149f, NAN }, { UNARY_LOG, -INFINITY, NAN },
        { UNARY_LOG, INFINITY, INFINITY },
        { UNARY_SOFTPLUS, 100.0f, 100.0f }, { UNARY_SOFTPLUS, -100.0f, 0.0f },
        { UNARY_ERF, 0.0f, 0.0f }, { UNARY_ERF, -0.0f, -0.0f }, { UNARY_ERF, 4.0f, 1.0f },
        { UNARY_ERF, -INFINITY, -1.0f },
    };

    for (int isa = 0; isa <= (int)cpu_isa_best(); isa++) {
        const struct kern *k = kern_get((enum isa)isa);

        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            float y;

            k->unary[rows[i].fn](&y, &rows[i].x, 1);
            if (memcmp(&y, &rows[i].y, 4) != 0 && !(isnan(y) && isnan(rows[i].y))) {
                fail_msg("%s(%a) on %s is %a, not %a", functions[rows[i].fn].name,
                         (double)rows[i].x, isa_name(k->isa), (double)y, (double)rows[i].y);
            }
        }
        for (int fn = 0; fn < UNARY_FNS; fn++) {
            const float x = NAN;
            float y = 0.0f;

            k->unary[fn](&y, &x, 1);
            CHECK(isnan(y));
        }
    }
}

/* From the lower end to infinity, exp never falls: one step of 1 / 64 is more than its error. */
TEST(math_exp_rises)
{
    enum { N = 64 * 180 };
    static float x[N], y[N];

    for (int i = 0; i < N; i++) {
        x[i] = -90.0f + (float)i / 64.0f;
    }
    for (int isa = 0; isa <= (int)cpu_isa_best(); isa++) {
        kern_get((enum isa)isa)->unary[UNARY_EXP](y, x, N);
        for (int i = 1; i < N; i++) {
            CHECK(y[i] > y[i - 1] || x[i] < -87.0f || isinf(y[i - 1]));
            CHECK(isinf(y[i]) == (x[i] > 88.376f));
        }
    }
}

/* The table of functions is indexed by the enumeration. */
TEST(math_table_order)
{
    for (int i = 0; i < UNARY_FNS; i++) {
        CHECK_EQ(functions[i].fn, i);
    }
}

/* All halves survive widening (through a product with one) and narrowing; narrowing equals
 * the codec of quant on a sample of floats. */
TEST(math_f16)
{
    const float one = 1.0f;

    for (int isa = 0; isa <= (int)cpu_isa_best(); isa++) {
        const struct kern *k = kern_get((enum isa)isa);

        for (uint32_t h = 0; h < 0x10000; h++) {
            const uint16_t w = (uint16_t)h;
            float y;

            if ((h & 0x7C00) == 0x7C00 && (h & 0x3FF) != 0) {
                continue;  /* NaN */
            }
            k->fmm[QT_F16](&w, 1, 1, &one, 1, 1, &y, 1);
            /* A product added to +0 has no -0. */
            CHECK(y == f16_to_f32(w));
        }
        for (uint64_t i = 0; i < ((uint64_t)1 << 32); i += 16 * 1009) {
            float x[16];
            uint16_t y[16];

            for (int j = 0; j < 16; j++) {
                x[j] = float_of((uint32_t)(i + (uint64_t)j * 1009));
            }
            k->to_f16(y, x, 16);
            for (int j = 0; j < 16; j++) {
                CHECK(y[j] == f32_to_f16(x[j]) || isnan(x[j]));
            }
        }
    }
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--all") == 0) {
            step = 1;
        } else if (strcmp(argv[i], "--step") == 0 && i + 1 < argc && atoi(argv[i + 1]) > 0) {
            step = (uint64_t)atoi(argv[++i]);
        } else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
            cmocka_set_test_filter(argv[++i]);
        } else {
            fprintf(stderr, "usage: test_math [--all | --step N] [--only NAME]\n");
            return 2;
        }
    }
    fpenv_enter();
    return RUN(T(math_exp), T(math_sigmoid), T(math_silu), T(math_gelu), T(math_tanh), T(math_log),
               T(math_softplus), T(math_erf), T(math_special_values), T(math_exp_rises),
               T(math_table_order), T(math_f16));
}

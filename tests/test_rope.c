/* test_rope.c - the functions of rope.h against the C library, the tables against the formulas. */
#include <math.h>
#include <stdlib.h>

#include "test.h"

#include "base/fpenv.h"
#include "base/rng.h"
#include "kern/rope.h"

#define PI_L 3.14159265358979323846264338327950288L

/* Error of y in units in the last place of the exact value, which must be normal. */
static long double ulps(double y, long double exact)
{
    int e;

    if (exact == 0.0L) {
        return y == 0.0 ? 0.0L : INFINITY;
    }
    frexpl(exact, &e);
    return fabsl((long double)y - exact) / ldexpl(1.0L, e - 53);
}

/* Numbers of all magnitudes in [2^lo, 2^hi), either sign. */
static double any_double(struct rng *rng, int lo, int hi)
{
    const uint64_t r = rng_next(rng);
    const int e = lo + (int)(r % (uint64_t)(hi - lo));

    return ldexp(1.0 + rng_unit(rng_next(rng)), e) * (r >> 63 ? -1.0 : 1.0);
}

static void worse(long double *worst, long double e)
{
    *worst = e > *worst || isnan(e) ? e : *worst;
}

TEST(rope_sin_and_cos)
{
    struct rng rng = { 1 };
    long double s = 0, c = 0;

    for (int i = 0; i < 2000000; i++) {
        /* Up to 2^31: positions times frequencies of at most 1. */
        const double x = i % 2 ? any_double(&rng, -40, 31) : (double)(rng_next(&rng) % 10000000);
        worse(&s, ulps(rope_sin(x), sinl(x)));
        worse(&c, ulps(rope_cos(x), cosl(x)));
    }
    /* Next to multiples of pi / 2, where all digits of the difference are needed. */
    for (int64_t n = 1; n < (int64_t)1 << 31; n += 1 + n / 1000) {
        const double near = (double)((long double)n * (PI_L / 2));
        for (int i = -1; i <= 1; i++) {
            const double x = i < 0 ? nextafter(near, 0) : i > 0 ? nextafter(near, 1e30) : near;
            /* The library's long double functions reduce exactly. */
            worse(&s, ulps(rope_sin(x), sinl(x)));
            worse(&c, ulps(rope_cos(x), cosl(x)));
        }
    }
    print_message("sin %.3Lf ulp, cos %.3Lf ulp\n", s, c);
    CHECK(s < 0.8L);
    CHECK(c < 0.8L);
    CHECK(rope_sin(0.0) == 0.0 && rope_cos(0.0) == 1.0);
}

TEST(rope_log_exp_pow)
{
    struct rng rng = { 2 };
    long double l = 0, e = 0, p = 0;

    for (int i = 0; i < 1000000; i++) {
        const double x = fabs(i % 2 ? any_double(&rng, -1022, 1023) : any_double(&rng, -2, 2));
        const double y = any_double(&rng, -30, 9);
        const double base = 10.0 + rng_unit(rng_next(&rng)) * 1e7;
        const double exponent = -rng_unit(rng_next(&rng));

        worse(&l, ulps(rope_log(x), logl(x)));
        worse(&e, ulps(rope_exp(y), expl(y)));
        worse(&p, ulps(rope_pow(base, exponent), powl(base, exponent)));
    }
    for (int i = -1000; i <= 1000; i++) {  /* near 1, where log loses digits easily */
        const double x = 1.0 + i * 0x1p-52;
        worse(&l, ulps(rope_log(x), logl(x)));
    }
    print_message("log %.3Lf ulp, exp %.3Lf ulp, pow %.3Lf ulp\n", l, e, p);
    CHECK(l < 0.6L);
    CHECK(e < 0.85L);
    CHECK(p < 0.85L);
}

TEST(rope_special_values)
{
    CHECK(rope_log(0.0) == -INFINITY && rope_log(INFINITY) == INFINITY);
    CHECK(isnan(rope_log(-1.0)) && isnan(rope_log(NAN)) && rope_log(1.0) == 0.0);
    CHECK(ulps(rope_log(0x1p-1074), logl(0x1p-1074L)) < 1.0L);
    CHECK(rope_exp(0.0) == 1.0 && rope_exp(1000.0) == INFINITY && rope_exp(-1000.0) == 0.0);
    CHECK(rope_exp(-INFINITY) == 0.0 && rope_exp(INFINITY) == INFINITY && isnan(rope_exp(NAN)));
    CHECK(fabs(rope_exp(-744.0) - exp(-744.0)) <= 0x1p-1074);
    CHECK(rope_exp(709.7) < INFINITY && rope_exp(709.79) == INFINITY);
    CHECK(rope_pow(10000.0, 0.0) == 1.0 && rope_pow(1.0, 17.0) == 1.0);
    CHECK(rope_pow(2.0, 10.0) == 1024.0 && rope_pow(10000.0, -0.5) == 0.01);
}

/* ---- frequencies ---------------------------------------------------------------------- */

static const struct rope_params plain = {
    .n_rot = 128, .base = 500000.0, .factor = 1.0, .attn_factor = 1.0, .beta_fast = 32.0,
    .beta_slow = 1.0,
};

/* Frequencies by the formulas in long double; 2 ulp for what a double chain may lose. */
static void check_freqs(const struct rope_params *p, long double want_mscale)
{
    double freq[256], mscale;
    const int r = p->n_rot;
    long double low = 0, high = 0;

    if (p->scaling == ROPE_SCALE_YARN) {
        const long double lb = 2 * logl(p->base);

        low = floorl(r * logl(p->orig_context / (p->beta_fast * 2 * PI_L)) / lb);
        high = ceill(r * logl(p->orig_context / (p->beta_slow * 2 * PI_L)) / lb);
        low = low < 0 ? 0 : low;
        high = high > r - 1 ? r - 1 : high;
    }
    rope_freqs(p, freq, &mscale);
    for (int j = 0; j < r / 2; j++) {
        long double f = powl(p->base, -2.0L * j / r) / (p->factors ? p->factors[j] : 1.0L);

        if (p->scaling == ROPE_SCALE_LINEAR) {
            f /= p->factor;
        } else if (p->scaling == ROPE_SCALE_YARN) {
            const long double width = high - low > 0.001L ? high - low : 0.001L;
            const long double y = (j - low) / width;
            const long double ramp = 1 - (y < 0 ? 0 : y > 1 ? 1 : y);

            f = f / p->factor * (1 - ramp) + f * ramp;
        }
        CHECK(ulps(freq[j], f) < 3.0L);
    }
    CHECK(ulps(mscale, want_mscale) < 3.0L);
}

TEST(rope_plain_and_linear)
{
    struct rope_params p = plain;

    check_freqs(&p, 1.0L);
    p.n_rot = 20;
    p.base = 10000.0;
    check_freqs(&p, 1.0L);
    p.scaling = ROPE_SCALE_LINEAR;
    p.factor = 8.0;
    p.attn_factor = 1.25;
    check_freqs(&p, 1.25L);
}

TEST(rope_yarn)
{
    struct rope_params p = plain;

    p.scaling = ROPE_SCALE_YARN;
    p.factor = 4.0;
    p.orig_context = 32768;
    p.base = 1000000.0;
    check_freqs(&p, 0.1L * logl(4.0L) + 1.0L);

    p.factor = 16.0;
    p.orig_context = 16384;
    p.log_multiplier = 0.7;
    p.attn_factor = 1.5;
    check_freqs(&p, (0.1L * logl(16.0L) + 1.0L) / (0.1L * p.log_multiplier * logl(16.0L) + 1.0L)
                        * 1.5L);
    p.log_multiplier = 1.0;
    check_freqs(&p, 1.5L);

    /* A factor below 1 has no logarithmic part. */
    p.factor = 0.5;
    p.log_multiplier = 0.0;
    check_freqs(&p, 1.5L);

    /* A small context: all is interpolated but for what the bounds allow. */
    p.factor = 2.0;
    p.orig_context = 64;
    p.base = 10000.0;
    check_freqs(&p, (0.1L * logl(2.0L) + 1.0L) * 1.5L);
}

TEST(rope_factors)
{
    struct rope_params p = plain;
    float factors[64];

    for (int j = 0; j < 64; j++) {
        factors[j] = 1.0f + 0.37f * (float)j;
    }
    p.factors = factors;
    check_freqs(&p, 1.0L);  /* as with llama 3 */
    p.scaling = ROPE_SCALE_LONGROPE;
    p.attn_factor = 1.19;
    check_freqs(&p, p.attn_factor);
    p.scaling = ROPE_SCALE_YARN;  /* the factors divide before the mix */
    p.factor = 4.0;
    p.orig_context = 4096;
    check_freqs(&p, (0.1L * logl(4.0L) + 1.0L) * (long double)p.attn_factor);
}

/* ---- tables ------------------------------------------------------------------------------ */

TEST(rope_tables)
{
    enum { N = 64 };
    static const int64_t positions[] = { 0, 1, 2, 77, 4095, 131071, 10000000 };
    struct rope_params p = plain;
    double freq[N / 2], mscale;
    float cs[N + 1];

    p.n_rot = N;
    rope_freqs(&p, freq, &mscale);
    for (size_t i = 0; i < sizeof positions / sizeof *positions; i++) {
        cs[N] = 42.0f;
        rope_table(freq, N, 1.125, positions[i], cs);
        for (int j = 0; j < N / 2; j++) {
            /* The angle is rounded to double, so it is taken as the kernel has it. */
            const double angle = (double)positions[i] * freq[j];

            CHECK(fabsf(cs[j] - (float)(cosl(angle) * 1.125L)) <= 0x1p-23f);
            CHECK(fabsf(cs[N / 2 + j] - (float)(sinl(angle) * 1.125L)) <= 0x1p-23f);
        }
        CHECK(cs[N] == 42.0f);
    }
    rope_table(freq, N, 1.0, 0, cs);
    for (int j = 0; j < N / 2; j++) {
        CHECK(cs[j] == 1.0f && cs[N / 2 + j] == 0.0f);
    }
}

/* The table decides the bits of every logit, so it must not change unnoticed. */
TEST(rope_known_bits)
{
    static const struct { double x; double s, c; } rows[] = {
        { 1.0, 0x1.aed548f090ceep-1, 0x1.14a280fb5068cp-1 },
        { 100000.0, 0x1.24daa9c527e96p-5, -0x1.ffac3841b3da7p-1 },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK(rope_sin(rows[i].x) == rows[i].s);
        CHECK(rope_cos(rows[i].x) == rows[i].c);
    }
    CHECK(rope_log(10000.0) == 0x1.26bb1bbb55516p+3);
    CHECK(rope_pow(500000.0, -2.0 / 128) == 0x1.a115829457fbep-1);
}

int main(void)
{
    fpenv_enter();
    return RUN(T(rope_sin_and_cos), T(rope_log_exp_pow), T(rope_special_values),
               T(rope_plain_and_linear), T(rope_yarn), T(rope_factors), T(rope_tables),
               T(rope_known_bits));
}

/* rope.c - rotary position embeddings: frequencies, angles, and the functions behind.
 *
 * Everything is scalar double arithmetic in a written order, with fma where a product
 * must keep its low half; so one table serves every instruction set, and its bits do
 * not depend on a C library.  A pair of doubles (hi, lo) with |lo| far below |hi|
 * stands for their sum. */
#include "kern/rope.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "kern/fpguard.h"

#define PI 0x1.921fb54442d18p+1

/* Adding this rounds |x| < 2^51 to an integer, nearest even. */
#define BIAS 0x1.8p52

static uint64_t bits_of(double x)
{
    uint64_t u;
    memcpy(&u, &x, 8);
    return u;
}

static double of_bits(uint64_t u)
{
    double x;
    memcpy(&x, &u, 8);
    return x;
}

/* 2^n for n in -1022..1023. */
static double pow2(int n)
{
    return of_bits((uint64_t)(n + 1023) << 52);
}

static double round_even(double x)
{
    return (x + BIAS) - BIAS;
}

/* The largest integer not above x, the smallest not below; large x is one already. */
static double floor_of(double x)
{
    if (!(x > -0x1p51 && x < 0x1p51)) {
        return x;
    }
    const double r = round_even(x);

    return r > x ? r - 1.0 : r;
}

static double ceil_of(double x)
{
    return -floor_of(-x);
}

/* c[0] + x * (c[1] + ...), by fma from the last coefficient down. */
static double poly(double x, const double *c, int n)
{
    double r = c[n - 1];

    for (int i = n - 2; i >= 0; i--) {
        r = fma(r, x, c[i]);
    }
    return r;
}

struct dd { double hi, lo; };

/* a + b exactly, for |a| >= |b| or a = 0. */
static struct dd two_sum(double a, double b)
{
    const double s = a + b;

    return (struct dd){ s, b - (s - a) };
}

/* a + b exactly, whichever is larger. */
static struct dd any_sum(double a, double b)
{
    const double s = a + b, b1 = s - a, a1 = s - b1;

    return (struct dd){ s, (a - a1) + (b - b1) };
}

/* ---- sine and cosine --------------------------------------------------------- */

/* Taylor series; on |r| <= pi / 4 the first term left out is below 2^-60. */
static const double sin_coef[] = {  /* (sin r - r) / r^3 in r^2 */
    -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800,
    -1.0 / 1307674368000, 1.0 / 355687428096000,
};
static const double cos_coef[] = {  /* (cos r - 1 + r^2 / 2) / r^4 in r^2 */
    1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800, 1.0 / 479001600, -1.0 / 87178291200,
    1.0 / 20922789888000, -1.0 / 6402373705728000,
};

/* x = n pi / 2 + (hi + lo) with |hi| <= pi / 4; returns n mod 4.
 *
 * pi / 2 is given in three parts of 53 bits.  The first difference is exact while
 * n < 2^31 (its bits end at 2^-52 and it is small), the second is kept with its error,
 * so that nothing is lost next to a multiple of pi / 2 either.  For larger x the result
 * is as defined, though no longer accurate. */
static int reduce(double x, struct dd *r)
{
    const double p1 = 0x1.921fb54442d18p+0, p2 = 0x1.1a62633145c07p-54;
    const double p3 = -0x1.f1976b7ed8fbcp-110;
    const double t = x * (2.0 / PI) + BIAS, n = t - BIAS;
    const double a = fma(-n, p1, x), b = n * p2, b_lo = fma(n, p2, -b);
    const struct dd d = any_sum(a, -b);

    *r = any_sum(d.hi, fma(-n, p3, d.lo - b_lo));
    return (int)(bits_of(t) & 3);
}

/* sin(hi + lo) = sin(hi) + lo cos(hi), where 1 - hi^2 / 2 is enough of cos. */
static double sin_part(struct dd r)
{
    const double z = r.hi * r.hi;
    const double tail = fma(r.hi * z, poly(z, sin_coef, 8), fma(-0.5 * z, r.lo, r.lo));

    return r.hi + tail;
}

/* cos(hi + lo) = cos(hi) - lo sin(hi); 1 - z / 2 is taken with its rounding error. */
static double cos_part(struct dd r)
{
    const double z = r.hi * r.hi, half = 0.5 * z, w = 1.0 - half;
    const double lost = (1.0 - w) - half;
    /* z itself is rounded, by this much. */
    const double z_lost = fma(r.hi, r.hi, -z);
    const double tail = fma(z * z, poly(z, cos_coef, 8), fma(-r.hi, r.lo, lost - 0.5 * z_lost));

    return w + tail;
}

/* sin(x + quarter pi / 2) */
static double sin_shifted(double x, int quarter)
{
    struct dd r;
    const int n = reduce(x, &r) + quarter;
    const double y = n & 1 ? cos_part(r) : sin_part(r);

    return n & 2 ? -y : y;
}

double rope_sin(double x)
{
    return sin_shifted(x, 0);
}

double rope_cos(double x)
{
    return sin_shifted(x, 1);
}

/* ---- logarithm, exponential, power --------------------------------------------- */

/* ln 2 in two parts; the first has 32 bits, so its product with an exponent is exact. */
#define LN2_HI 0x1.62e42feep-1
#define LN2_LO 0x1.a39ef35793c76p-33

/* log(x) for finite x > 0 as a pair, good to about 2^-62 of itself.
 *
 * x = m 2^e with m in [2/3, 4/3), s = (m - 1) / (m + 1), log m = 2 s + 2 s^3 / 3 + ... */
static struct dd log_pair(double x)
{
    static const double c[] = {  /* 2 / 3, 2 / 5, ... */
        2.0 / 3, 2.0 / 5, 2.0 / 7, 2.0 / 9, 2.0 / 11, 2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19,
        2.0 / 21, 2.0 / 23, 2.0 / 25, 2.0 / 27,
    };
    const bool tiny = x < 0x1p-1022;
    const uint64_t u = bits_of(tiny ? x * 0x1p54 : x);
    const int64_t e = (int64_t)(u - bits_of(2.0 / 3)) >> 52;
    const double n = (double)(e - (tiny ? 54 : 0));
    const double m = of_bits(u - ((uint64_t)e << 52));

    /* s to twice the precision: f and the sum with its rounding error are exact. */
    const double f = m - 1.0;
    const struct dd d = two_sum(2.0, f);
    const double s = f / d.hi;
    const double s_lo = (fma(-s, d.hi, f) - s * d.lo) / d.hi;
    const double z = s * s;
    /* 2 s^3 / 3 reaches 3% of the sum, so its head is kept exactly too. */
    const double cube = z * s, cube_lo = fma(z, s, -cube) + fma(s, s, -z) * s + 3.0 * z * s_lo;
    const double head = c[0] * cube;
    const double head_lo = fma(c[0], cube, -head) + c[0] * cube_lo + 0x1.5555555555555p-55 * cube;
    const double rest = cube * z * poly(z, c + 1, 12);

    struct dd r = two_sum(2.0 * s, head);
    r.lo += 2.0 * s_lo + (head_lo + rest);
    /* |n| ln 2 is larger than |log m| or zero. */
    const struct dd t = two_sum(n * LN2_HI, r.hi);

    return two_sum(t.hi, t.lo + fma(n, LN2_LO, r.lo));
}

double rope_log(double x)
{
    if (x == 0.0) {
        return -INFINITY;
    }
    if (!(x > 0.0 && x < INFINITY)) {
        return x < 0.0 ? NAN : x;
    }
    const struct dd r = log_pair(x);

    return r.hi + r.lo;
}

/* e^(x + lo), |lo| far below 1. */
static double exp_pair(double x, double lo)
{
    static const double c[] = {  /* 1 / 2!, 1 / 3!, ... */
        1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320,
        1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800,
        1.0 / 87178291200,
    };

    if (!(x < 710.0)) {
        return x + INFINITY;  /* NaN stays */
    }
    if (x < -746.0) {
        return 0.0;
    }
    const double n = round_even(x * 0x1.71547652b82fep+0);
    const double a = fma(-n, LN2_HI, x), r = fma(-n, LN2_LO, a);
    const double r_lo = fma(-n, LN2_LO, a - r) + lo;
    /* e^r - 1 = r + q, and the small part is multiplied by all of e^r. */
    const double q = r * r * poly(r, c, 13);
    const double y = 1.0 + (r + (q + fma(r + q, r_lo, r_lo)));
    /* Two factors, since 2^n may be out of range while the result is not. */
    const int k = (int)n, k1 = k / 2;

    return y * pow2(k1) * pow2(k - k1);
}

double rope_exp(double x)
{
    return exp_pair(x, 0.0);
}

double rope_pow(double x, double y)
{
    if (y == 0.0 || x == 1.0) {
        return 1.0;
    }
    if (!(x > 0.0 && x < INFINITY)) {
        return rope_exp(y * rope_log(x));
    }
    const struct dd l = log_pair(x);
    const double p = y * l.hi;

    return exp_pair(p, fma(y, l.hi, -p) + y * l.lo);
}

/* ---- frequencies and tables ------------------------------------------------------ */

/* The dimension at which a pair makes `turns` turns over the original context. */
static double yarn_dim(const struct rope_params *p, double turns)
{
    return p->n_rot * rope_log(p->orig_context / (turns * (2.0 * PI))) / (2.0 * rope_log(p->base));
}

static double yarn_mu(double x, double factor)
{
    return factor <= 1.0 ? 1.0 : 0.1 * x * rope_log(factor) + 1.0;
}

/* Slow pairs are interpolated (divided by the factor), fast ones kept, those between mixed. */
static void yarn_mix(const struct rope_params *p, double *freq)
{
    const double low_dim = floor_of(yarn_dim(p, p->beta_fast));
    const double high_dim = ceil_of(yarn_dim(p, p->beta_slow));
    const double low = low_dim > 0.0 ? low_dim : 0.0;
    const double high = high_dim < p->n_rot - 1 ? high_dim : p->n_rot - 1;
    const double width = high - low > 0.001 ? high - low : 0.001;

    for (int j = 0; j < p->n_rot / 2; j++) {
        const double y = (j - low) / width, clamped = y < 0.0 ? 0.0 : y > 1.0 ? 1.0 : y;
        const double kept = 1.0 - clamped;

        freq[j] = freq[j] / p->factor * (1.0 - kept) + freq[j] * kept;
    }
}

void rope_freqs(const struct rope_params *p, double *freq, double *mscale)
{
    assert(p->n_rot % 2 == 0 && p->factor > 0.0);
    *mscale = p->attn_factor;
    for (int j = 0; j < p->n_rot / 2; j++) {
        freq[j] = rope_pow(p->base, -2.0 * j / p->n_rot);
        if (p->factors) {
            freq[j] /= p->factors[j];
        }
        if (p->scaling == ROPE_SCALE_LINEAR) {
            freq[j] /= p->factor;
        }
    }
    if (p->scaling == ROPE_SCALE_YARN) {
        const double l = p->log_multiplier, mu = yarn_mu(1.0, p->factor);

        yarn_mix(p, freq);
        *mscale = (l != 0.0 ? mu / yarn_mu(l, p->factor) : mu) * p->attn_factor;
    }
}

void rope_table(const double *freq, int n_rot, double mscale, int64_t pos, float *cs)
{
    const int half = n_rot / 2;

    for (int j = 0; j < half; j++) {
        const double angle = (double)pos * freq[j];

        cs[j] = (float)(rope_cos(angle) * mscale);
        cs[half + j] = (float)(rope_sin(angle) * mscale);
    }
}

/* math16.h - exp, log and what is made of them, on sixteen floats.
 *
 * The polynomials, their order and the limits are part of the contract: each
 * function is the same sequence of rounded operations on every machine.  Errors
 * are given in units in the last place against the exact value; tests/test_math.c
 * checks them over all floats.  Coefficients are minimax fits made for this file. */
#ifndef MATH16_H
#define MATH16_H

#include "kern/v16.h"

/* The range in which exp is computed; the lower end keeps 2^n normal, the upper is the
 * first float for which n is 128. */
#define EXP_MIN -87.3365447504f
#define EXP_MAX 88.3762626647950f

/* p[0] + x * (p[1] + x * (...)), n coefficients, by fma from the last one down. */
INLINE v16 v16_poly(v16 x, const float *p, int n)
{
    v16 r = v16_set1(p[n - 1]);

    for (int i = n - 2; i >= 0; i--) {
        r = v16_fma(r, x, v16_set1(p[i]));
    }
    return r;
}

/* e^x for x up to EXP_MAX, 1.01 ulp; 0 below EXP_MIN, so never subnormal.
 *
 * x = n ln 2 + r with |r| <= ln 2 / 2; e^r = 1 + (r + r^2 P(r)).  Lanes below EXP_MIN compute
 * e^0: a product that becomes subnormal costs a core a hundred cycles. */
INLINE v16 v16_exp_low(v16 x)
{
    static const float p[] = { 0x1.fffff8p-2f, 0x1.55548ep-3f, 0x1.555b98p-5f, 0x1.123bccp-7f,
                               0x1.6850e4p-10f };
    const v16 xc = v16_less(x, v16_set1(EXP_MIN), v16_zero(), x);
    const v16 t = v16_add(v16_mul(xc, v16_set1(0x1.715476p+0f)), v16_set1(V16_BIAS));
    const v16 n = v16_sub(t, v16_set1(V16_BIAS));
    v16 r = v16_fma(n, v16_set1(-0x1.62e400p-1f), xc);

    r = v16_fma(n, v16_set1(-0x1.7f7d1cp-20f), r);
    const v16 q = v16_fma(v16_poly(r, p, 5), v16_mul(r, r), r);
    const v16 y = v16_mul(v16_add(q, v16_set1(1.0f)), v16_pow2_biased(t));

    return v16_less(x, v16_set1(EXP_MIN), v16_zero(), y);
}

/* e^x; infinity from EXP_MAX on, where n becomes 128. */
INLINE v16 v16_exp(v16 x)
{
    /* The constant comes first, so that NaN passes. */
    return v16_exp_low(v16_min(v16_set1(EXP_MAX), x));
}

/* e ln 2 + log(1 + f) for |f| <= 1/3: log(1 + f) = f + f^2 P(f). */
INLINE v16 v16_log_split(v16 e, v16 f)
{
    static const float p[] = { -0.5f, 0x1.555502p-2f, -0x1.fffe84p-3f, 0x1.99d1f2p-3f,
                               -0x1.55a754p-3f, 0x1.1ebe6cp-3f, -0x1.f25ddap-4f, 0x1.1ed12cp-3f,
                               -0x1.0931e0p-3f };
    v16 y = v16_fma(v16_mul(f, f), v16_poly(f, p, 9), f);

    y = v16_fma(e, v16_set1(0x1.7f7d1cp-20f), y);
    return v16_fma(e, v16_set1(0x1.62e400p-1f), y);
}

/* Natural logarithm, 1 ulp; -inf for 0, NaN below. */
INLINE v16 v16_log(v16 x)
{
    const v16 zero = v16_zero(), tiny = v16_set1(0x1p-126f);
    const v16 xn = v16_less(x, tiny, v16_mul(x, v16_set1(0x1p23f)), x);
    v16 m;
    v16 e = v16_split(xn, &m);

    e = v16_sub(e, v16_less(x, tiny, v16_set1(23.0f), zero));
    v16 y = v16_log_split(e, v16_sub(m, v16_set1(1.0f)));

    y = v16_less(x, v16_set1(INFINITY), y, x);  /* infinity and NaN stay */
    y = v16_less(v16_abs(x), v16_set1(0x1p-149f), v16_set1(-INFINITY), y);
    return v16_less(x, zero, v16_set1(NAN), y);
}

/* 1 / (1 + e^-x) */
INLINE v16 v16_sigmoid(v16 x)
{
    const v16 one = v16_set1(1.0f);

    return v16_div(one, v16_add(one, v16_exp(v16_negate(x))));
}

/* x / (1 + e^-x) */
INLINE v16 v16_silu(v16 x)
{
    return v16_div(x, v16_add(v16_set1(1.0f), v16_exp(v16_negate(x))));
}

/* x / (1 + e^-2u), u = c1 * fma((c2 * x) * x, x, x): the tanh form of GELU. */
INLINE v16 v16_gelu(v16 x)
{
    const v16 cube = v16_mul(v16_mul(v16_set1(0.044715f), x), x);
    const v16 inner = v16_fma(cube, x, x);
    /* -2 c1 in one constant: a power of two rounds nothing. */
    const v16 z = v16_mul(v16_set1(-2.0f * 0.7978845608f), inner);

    return v16_div(x, v16_add(v16_set1(1.0f), v16_exp(z)));
}

/* For |x| < 1/2, where the other form loses digits, x + x^3 P(x^2); else
 * 1 - 2 / (1 + e^2|x|) with the sign of x. */
INLINE v16 v16_tanh(v16 x)
{
    static const float p[] = { -0x1.555552p-2f, 0x1.110f2ap-3f, -0x1.b98c6ep-5f, 0x1.5d01d2p-6f,
                               -0x1.b40c70p-8f };
    const v16 one = v16_set1(1.0f), a = v16_abs(x), z = v16_mul(a, a);
    const v16 small = v16_fma(v16_mul(a, z), v16_poly(z, p, 5), a);
    const v16 big = v16_sub(one, v16_div(v16_set1(2.0f), v16_add(one, v16_exp(v16_add(a, a)))));

    return v16_copysign(v16_less(a, v16_set1(0.5f), small, big), x);
}

/* log(1 + e^x) as max(0, x) + log(1 + y), y = e^-|x| in 0..1.  1 + y is split as v16_log
 * would, but without rounding: f = y, or f = (y - 1) / 2 and one power of two. */
INLINE v16 v16_softplus(v16 x)
{
    const v16 third = v16_set1(0x1.555554p-2f), zero = v16_zero(), one = v16_set1(1.0f);
    const v16 y = v16_exp(v16_negate(v16_abs(x)));
    const v16 f = v16_less(y, third, y, v16_mul(v16_sub(y, one), v16_set1(0.5f)));
    const v16 e = v16_less(y, third, zero, one);

    return v16_add(v16_max(zero, x), v16_log_split(e, f));
}

/* For |x| < 1 x + x P(x^2); else 1 - e^Q(|x|), which is 1 from 4 on; sign of x. */
INLINE v16 v16_erf(v16 x)
{
    static const float p[] = { 0x1.06eba8p-3f, -0x1.81273ep-2f, 0x1.ce2d20p-4f, -0x1.b7fbb4p-6f,
                               0x1.5419f6p-8f, -0x1.a485eep-11f, 0x1.4ae4d4p-14f };
    static const float q[] = { 0x1.8a5716p-13f, -0x1.212c0cp+0f, -0x1.443566p-1f, -0x1.bc1514p-4f,
                               0x1.9d0302p-6f, -0x1.138cb8p-8f, 0x1.cec5f6p-12f,
                               -0x1.6bd7d4p-16f };
    const v16 one = v16_set1(1.0f), a = v16_abs(x);
    const v16 small = v16_fma(a, v16_poly(v16_mul(a, a), p, 7), a);
    const v16 t = v16_min(v16_set1(4.0f), a);
    const v16 big = v16_sub(one, v16_exp(v16_poly(t, q, 8)));

    return v16_copysign(v16_less(a, one, small, big), x);
}

#endif

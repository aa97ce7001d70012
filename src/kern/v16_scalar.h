/* v16_scalar.h - the vector as an array: the definition that the others equal.
 *
 * Included by v16.h only. */
#ifndef V16_SCALAR_H
#define V16_SCALAR_H

#define V16_ISA scalar

/* Tile of dot products: rows of x times rows of w. */
#define V16_TILE_X 1
#define V16_TILE_W(nx) 1

/* Groups of sixteen keys that a tile of a prompt's scores takes. */
#define V16_KEY_GROUPS 1

/* Groups of sixteen keys that a tile of quantised scores takes. */
#define V16_Q8_GROUPS(nx) 1

typedef struct { float f[16]; } v16;
typedef struct { int32_t i[16]; } v16i;
typedef struct { int8_t c[64]; } v16c;

#define V16_LANES for (int i = 0; i < 16; i++)

INLINE uint32_t v16_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}

INLINE float v16_from_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, 4);
    return x;
}

INLINE v16 v16_set1(float x)
{
    v16 r;
    V16_LANES r.f[i] = x;
    return r;
}

INLINE v16 v16_zero(void)
{
    return v16_set1(0.0f);
}

INLINE v16 v16_load(const float *p)
{
    v16 r;
    memcpy(&r, p, sizeof r);
    return r;
}

INLINE void v16_store(float *p, v16 a)
{
    memcpy(p, &a, sizeof a);
}

INLINE v16 v16_load_n(const float *p, int n)
{
    v16 r = v16_zero();
    memcpy(&r, p, (size_t)n * sizeof *p);
    return r;
}

INLINE void v16_store_n(float *p, v16 a, int n)
{
    memcpy(p, &a, (size_t)n * sizeof *p);
}

/* Subnormals are m * 2^-24, exact in float. */
INLINE float v16_widen_f16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    const uint32_t e = h >> 10 & 31, m = h & 1023;

    if (e == 0) {
        return v16_from_bits(sign | v16_bits((float)(int)m * 0x1p-24f));
    }
    return v16_from_bits(sign | (e == 31 ? 0x7F800000u : (e + 112) << 23) | m << 13);
}

INLINE uint16_t v16_narrow_f16(float x)
{
    const uint32_t u = v16_bits(x), sign = u >> 16 & 0x8000, a = u & 0x7FFFFFFF;

    if (a > 0x7F800000) {  /* NaN, made quiet */
        return (uint16_t)(sign | 0x7E00 | (a >> 13 & 0x3FF));
    }
    if (a >= 0x477FF000) {  /* from 65520 on */
        return (uint16_t)(sign | 0x7C00);
    }
    if (a < 0x38800000) {  /* below 2^-14: adding 1/2 leaves multiples of 2^-24 */
        return (uint16_t)(sign | (v16_bits(v16_from_bits(a) + 0.5f) - v16_bits(0.5f)));
    }
    /* Half a unit less one, and one more for an odd result; the carry may go into the exponent. */
    return (uint16_t)(sign | ((a - (112u << 23) + 0xFFF + (a >> 13 & 1)) >> 13));
}

INLINE v16 v16_load_f16_n(const uint16_t *p, int n)
{
    v16 r = v16_zero();
    for (int i = 0; i < n; i++) {
        r.f[i] = v16_widen_f16(p[i]);
    }
    return r;
}

INLINE v16 v16_load_f16(const uint16_t *p)
{
    return v16_load_f16_n(p, 16);
}

INLINE v16 v16_set1_f16(uint16_t h)
{
    return v16_set1(v16_widen_f16(h));
}

INLINE v16 v16_load_i8(const int8_t *p)
{
    v16 r;
    V16_LANES r.f[i] = p[i];
    return r;
}

INLINE v16c v16c_load(const int8_t *p)
{
    v16c r;
    memcpy(&r, p, sizeof r);
    return r;
}

INLINE v16i v16i_dot4_start(int32_t sum)
{
    (void)sum;
    return (v16i){ { 0 } };
}

INLINE v16i v16i_dot4(v16i acc, v16c codes, const int8_t *q)
{
    V16_LANES {
        for (int j = 0; j < 4; j++) {
            acc.i[i] += codes.c[4 * i + j] * q[j];
        }
    }
    return acc;
}

INLINE v16 v16i_to_float(v16i a)
{
    v16 r;
    V16_LANES r.f[i] = (float)a.i[i];
    return r;
}

INLINE v16 v16_load_bf16_n(const uint16_t *p, int n)
{
    v16 r = v16_zero();
    for (int i = 0; i < n; i++) {
        r.f[i] = v16_from_bits((uint32_t)p[i] << 16);
    }
    return r;
}

INLINE v16 v16_load_bf16(const uint16_t *p)
{
    return v16_load_bf16_n(p, 16);
}

INLINE void v16_store_f16(uint16_t *p, v16 a)
{
    V16_LANES p[i] = v16_narrow_f16(a.f[i]);
}

INLINE v16 v16_load_twice(const float *p, int n)
{
    v16 r = v16_zero();
    for (int i = 0; i < n; i++) {
        r.f[2 * i] = r.f[2 * i + 1] = p[i];
    }
    return r;
}

INLINE v16 v16_add(v16 a, v16 b)
{
    V16_LANES a.f[i] = a.f[i] + b.f[i];
    return a;
}

INLINE v16 v16_sub(v16 a, v16 b)
{
    V16_LANES a.f[i] = a.f[i] - b.f[i];
    return a;
}

INLINE v16 v16_mul(v16 a, v16 b)
{
    V16_LANES a.f[i] = a.f[i] * b.f[i];
    return a;
}

INLINE v16 v16_div(v16 a, v16 b)
{
    V16_LANES a.f[i] = a.f[i] / b.f[i];
    return a;
}

/* Where fmaf is a call of libc, sixteen of them in every place would make this tier
 * larger than all others together. */
#if defined(__FP_FAST_FMAF) || defined(__aarch64__)
INLINE
#else
static NOINLINE
#endif
v16 v16_fma(v16 a, v16 b, v16 c)
{
    V16_LANES c.f[i] = fmaf(a.f[i], b.f[i], c.f[i]);
    return c;
}

INLINE v16 v16_max(v16 a, v16 b)
{
    V16_LANES a.f[i] = a.f[i] > b.f[i] ? a.f[i] : b.f[i];
    return a;
}

INLINE v16 v16_min(v16 a, v16 b)
{
    V16_LANES a.f[i] = a.f[i] < b.f[i] ? a.f[i] : b.f[i];
    return a;
}

INLINE v16 v16_less(v16 a, v16 b, v16 x, v16 y)
{
    V16_LANES a.f[i] = a.f[i] < b.f[i] ? x.f[i] : y.f[i];
    return a;
}

INLINE v16 v16_abs(v16 a)
{
    V16_LANES a.f[i] = v16_from_bits(v16_bits(a.f[i]) & 0x7FFFFFFF);
    return a;
}

INLINE v16 v16_copysign(v16 a, v16 s)
{
    V16_LANES a.f[i] = v16_from_bits((v16_bits(a.f[i]) & 0x7FFFFFFF)
                                     | (v16_bits(s.f[i]) & 0x80000000));
    return a;
}

INLINE v16 v16_swap_pairs(v16 a)
{
    v16 r;
    V16_LANES r.f[i] = a.f[i ^ 1];
    return r;
}

INLINE v16 v16_negate_even(v16 a)
{
    for (int i = 0; i < 16; i += 2) {
        a.f[i] = v16_from_bits(v16_bits(a.f[i]) ^ 0x80000000);
    }
    return a;
}

INLINE v16 v16_pow2_biased(v16 t)
{
    V16_LANES t.f[i] = v16_from_bits((v16_bits(t.f[i]) << 23) + 0x3F800000);
    return t;
}

INLINE v16 v16_split(v16 x, v16 *m)
{
    v16 e;

    V16_LANES {
        /* Unsigned, since x may be negative; the shift of a signed int keeps its sign. */
        const uint32_t u = v16_bits(x.f[i]);
        const int32_t n = (int32_t)(u - V16_TWO_THIRDS) >> 23;

        e.f[i] = (float)n;
        m->f[i] = v16_from_bits(u - ((uint32_t)n << 23));
    }
    return e;
}

INLINE float v16_sum(v16 a)
{
    for (int h = 8; h > 0; h /= 2) {
        for (int i = 0; i < h; i++) {
            a.f[i] = a.f[i] + a.f[i + h];
        }
    }
    return a.f[0];
}

INLINE float v16_max_lane(v16 a)
{
    for (int h = 8; h > 0; h /= 2) {
        for (int i = 0; i < h; i++) {
            a.f[i] = a.f[i] > a.f[i + h] ? a.f[i] : a.f[i + h];
        }
    }
    return a.f[0];
}

INLINE void v16_sum16(const v16 *t, float *out)
{
    V16_LANES out[i] = v16_sum(t[i]);
}

INLINE void v16_transpose(const v16 *t, float *out, size_t ld)
{
    for (int j = 0; j < 16; j++) {
        V16_LANES out[(size_t)i * ld + (size_t)j] = t[j].f[i];
    }
}

#endif

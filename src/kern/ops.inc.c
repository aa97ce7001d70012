/* ops.inc.c - kernels on rows of floats: norms, activations, rotation, conversion.
 *
 * Included by isa.inc.c, once per instruction set.  All but the sums are
 * elementwise, so their order is that of the operations in one lane. */

/* y = f(x).  f is a constant where this is called, so it is inlined. */
INLINE void map(float *y, const float *x, int n, v16 (*f)(v16))
{
    int i = 0;

    for (; i + 16 <= n; i += 16) {
        v16_store(y + i, f(v16_load(x + i)));
    }
    if (i < n) {
        v16_store_n(y + i, f(v16_load_n(x + i, n - i)), n - i);
    }
}

static void map_exp(float *y, const float *x, int n) { map(y, x, n, v16_exp); }
static void map_sigmoid(float *y, const float *x, int n) { map(y, x, n, v16_sigmoid); }
static void map_silu(float *y, const float *x, int n) { map(y, x, n, v16_silu); }
static void map_gelu(float *y, const float *x, int n) { map(y, x, n, v16_gelu); }
static void map_tanh(float *y, const float *x, int n) { map(y, x, n, v16_tanh); }
static void map_log(float *y, const float *x, int n) { map(y, x, n, v16_log); }
static void map_softplus(float *y, const float *x, int n) { map(y, x, n, v16_softplus); }
static void map_erf(float *y, const float *x, int n) { map(y, x, n, v16_erf); }

/* g = f(g) * u */
INLINE void gate(float *g, const float *u, int n, v16 (*f)(v16))
{
    int i = 0;

    for (; i + 16 <= n; i += 16) {
        v16_store(g + i, v16_mul(f(v16_load(g + i)), v16_load(u + i)));
    }
    if (i < n) {
        const v16 y = v16_mul(f(v16_load_n(g + i, n - i)), v16_load_n(u + i, n - i));
        v16_store_n(g + i, y, n - i);
    }
}

static void gate_silu(float *g, const float *u, int n) { gate(g, u, n, v16_silu); }
static void gate_gelu(float *g, const float *u, int n) { gate(g, u, n, v16_gelu); }
static void gate_sigmoid(float *g, const float *u, int n) { gate(g, u, n, v16_sigmoid); }

/* One v16 chain over the row; true division and root. */
static void rmsnorm(float *y, const float *x, const float *w, int n, float eps)
{
    const int n16 = n & ~15, rest = n - n16;
    v16 acc = v16_zero();

    for (int i = 0; i < n16; i += 16) {
        const v16 a = v16_load(x + i);
        acc = v16_fma(a, a, acc);
    }
    if (rest > 0) {
        const v16 a = v16_load_n(x + n16, rest);
        acc = v16_fma(a, a, acc);
    }
    const float mean = v16_sum(acc) / (float)n;
    const v16 s = v16_set1(1.0f / sqrtf(mean + eps));

    for (int i = 0; i < n16; i += 16) {
        const v16 a = v16_mul(v16_load(x + i), s);
        v16_store(y + i, w ? v16_mul(a, v16_load(w + i)) : a);
    }
    if (rest > 0) {
        const v16 a = v16_mul(v16_load_n(x + n16, rest), s);
        v16_store_n(y + n16, w ? v16_mul(a, v16_load_n(w + n16, rest)) : a, rest);
    }
}

/* The first n <= 16 lanes of a, zeros behind. */
static v16 v16_first(v16 a, int n)
{
    float t[16];

    v16_store(t, a);
    return v16_load_n(t, n);
}

static void layernorm(float *y, const float *x, const float *w, const float *b, int n, float eps)
{
    v16 acc = v16_zero();

    for (int i = 0; i < n; i += 16) {
        acc = v16_add(acc, v16_load_n(x + i, n - i < 16 ? n - i : 16));
    }
    const v16 mean = v16_set1(v16_sum(acc) / (float)n);
    acc = v16_zero();
    for (int i = 0; i < n; i += 16) {
        const int rest = n - i < 16 ? n - i : 16;
        const v16 d = v16_first(v16_sub(v16_load_n(x + i, rest), mean), rest);
        acc = v16_fma(d, d, acc);
    }
    const v16 s = v16_set1(1.0f / sqrtf(v16_sum(acc) / (float)n + eps));
    for (int i = 0; i < n; i += 16) {
        const int rest = n - i < 16 ? n - i : 16;
        const v16 d = v16_mul(v16_sub(v16_load_n(x + i, rest), mean), s);
        const v16 scaled = v16_mul(d, v16_load_n(w + i, rest));
        v16_store_n(y + i, b ? v16_add(scaled, v16_load_n(b + i, rest)) : scaled, rest);
    }
}

static void row_add(float *y, const float *x, int n)
{
    int i = 0;

    for (; i + 16 <= n; i += 16) {
        v16_store(y + i, v16_add(v16_load(y + i), v16_load(x + i)));
    }
    if (i < n) {
        v16_store_n(y + i, v16_add(v16_load_n(y + i, n - i), v16_load_n(x + i, n - i)), n - i);
    }
}

static void row_scale(float *y, float s, int n)
{
    const v16 f = v16_set1(s);
    int i = 0;

    for (; i + 16 <= n; i += 16) {
        v16_store(y + i, v16_mul(v16_load(y + i), f));
    }
    if (i < n) {
        v16_store_n(y + i, v16_mul(v16_load_n(y + i, n - i), f), n - i);
    }
}

INLINE v16 capped(v16 x, v16 cap)
{
    return v16_mul(cap, v16_tanh(v16_div(x, cap)));
}

static void row_softcap(float *x, float cap, int n)
{
    const v16 c = v16_set1(cap);
    int i = 0;

    for (; i + 16 <= n; i += 16) {
        v16_store(x + i, capped(v16_load(x + i), c));
    }
    if (i < n) {
        v16_store_n(x + i, capped(v16_load_n(x + i, n - i), c), n - i);
    }
}

static float row_max(const float *x, int n)
{
    v16 m = v16_set1(-INFINITY);
    int i = 0;

    for (; i + 16 <= n; i += 16) {
        m = v16_max(v16_load(x + i), m);
    }
    if (i < n) {
        float t[16];

        v16_store(t, v16_set1(-INFINITY));
        memcpy(t, x + i, (size_t)(n - i) * sizeof *x);
        m = v16_max(v16_load(t), m);
    }
    return v16_max_lane(m);
}

/* What is less than infinity becomes 0; then only NaN makes the sum NaN. */
static bool row_has_nan(const float *x, int n)
{
    const v16 top = v16_set1(INFINITY), zero = v16_zero();
    v16 sum = zero;

    for (int i = 0; i < n; i += 16) {
        const v16 v = n - i < 16 ? v16_load_n(x + i, n - i) : v16_load(x + i);
        sum = v16_add(sum, v16_less(v, top, zero, v));
    }
    const float s = v16_sum(sum);
    return s != s;
}

static void row_to_f16(uint16_t *y, const float *x, int n)
{
    int i = 0;

    for (; i + 16 <= n; i += 16) {
        v16_store_f16(y + i, v16_load(x + i));
    }
    if (i < n) {
        uint16_t t[16];

        v16_store_f16(t, v16_load_n(x + i, n - i));
        memcpy(y + i, t, (size_t)(n - i) * sizeof *y);
    }
}

/* Pairs lie side by side: a lane and its neighbour. */
static void rope_pairs(float *x, const float *cs, int n_rot)
{
    const int half = n_rot / 2;

    for (int j = 0; j < half; j += 8) {
        const int n = half - j < 8 ? half - j : 8;
        const v16 a = v16_load_n(x + 2 * j, 2 * n);
        const v16 c = v16_load_twice(cs + j, n), s = v16_load_twice(cs + half + j, n);
        const v16 crossed = v16_negate_even(v16_mul(v16_swap_pairs(a), s));

        v16_store_n(x + 2 * j, v16_fma(a, c, crossed), 2 * n);
    }
}

static void rope_halves(float *x, const float *cs, int n_rot)
{
    const int half = n_rot / 2;

    for (int j = 0; j < half; j += 16) {
        const int n = half - j < 16 ? half - j : 16;
        const v16 a = v16_load_n(x + j, n), b = v16_load_n(x + half + j, n);
        const v16 c = v16_load_n(cs + j, n), s = v16_load_n(cs + half + j, n);

        v16_store_n(x + j, v16_fma(a, c, v16_negate(v16_mul(b, s))), n);
        v16_store_n(x + half + j, v16_fma(b, c, v16_mul(a, s)), n);
    }
}

/* True where the compiler did what the source says in this file.  Volatile values
 * keep it from computing the answers itself. */
static bool canary(void)
{
    volatile float a = 1.0f + 0x1p-12f, one = 1.0f, tiny = 0x1p-126f, third = 3.0f;
    const float x = a, y = one, z = tiny;

    /* (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24: the last bit is lost unless the product is fused. */
    const float square = x * x - (1.0f + 0x1p-11f);
    /* In nearest mode one half of the last place goes to the even neighbour, three quarters up. */
    const float even = y + 0x1p-24f, up = y + 0x1.8p-24f;
    const float sub = z * 0.5f;
    const v16 v = v16_sub(v16_mul(v16_set1(x), v16_set1(x)), v16_set1(1.0f + 0x1p-11f));
    const v16 f = v16_fma(v16_set1(x), v16_set1(x), v16_set1(-(1.0f + 0x1p-11f)));

    return square == 0.0f && even == 1.0f && up == 1.0f + 0x1p-23f && sub > 0.0f && sub + sub == z
        && y / third == 0x1.555556p-2f && v16_max_lane(v) == 0.0f && v16_max_lane(f) == 0x1p-24f;
}

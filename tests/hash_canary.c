/* hash_canary.c - one hash over the results of the float kernels, and its negative control.
 *
 * Built as the library is, the hash of every tier equals the one below.  The same
 * source with the scalar kernels and contraction switched on (HASH_CONTRACTED) must
 * give another hash: if it does not, the inputs no longer show a fused product, and
 * equality elsewhere proves nothing.  A change that means to alter results changes
 * GOLDEN and says why. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fpenv.h"
#include "base/hash.h"
#include "base/rng.h"
#include "kern/kern.h"

#define GOLDEN 0xB5F860BBED48513Eu

enum { N = 4096 };

static float float_of(uint32_t u)
{
    float x;

    memcpy(&x, &u, 4);
    return x;
}

static void uniform(float *x, size_t n, float limit, struct rng *rng)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)(rng_unit(rng_next(rng)) * 2.0 - 1.0) * limit;
    }
}

static uint64_t hash_floats(uint64_t h, const float *x, size_t n)
{
    return hash_bytes(h, x, n * sizeof *x);
}

/* exp over all exponents, and where n ln 2 changes its n: there a fused product decides. */
static uint64_t hash_exp(const struct kern *k, uint64_t h, struct rng *rng)
{
    static float x[N], y[N];

    for (int e = 0; e < 512; e++) {
        for (int i = 0; i < N; i++) {
            x[i] = float_of((uint32_t)e << 23 | (rng_next(rng) & 0x7FFFFF));
            x[i] = isnan(x[i]) ? 1.0f : x[i];
        }
        k->unary[UNARY_EXP](y, x, N);
        h = hash_floats(h, y, N);
    }
    for (int n = -120; n < 120; n++) {
        float at = (float)((n + 0.5) * 0.6931471805599453);
        for (int i = 0; i < 64; i++) {
            x[i] = at;
            at = nextafterf(at, INFINITY);
        }
        k->unary[UNARY_EXP](y, x, 64);
        h = hash_floats(h, y, 64);
    }
    return h;
}

/* Functions are named one by one, so that a new one does not alter the hash. */
static uint64_t hash_rows(const struct kern *k, uint64_t h, struct rng *rng)
{
    static const enum unary_fn unary[] = { UNARY_EXP, UNARY_SIGMOID, UNARY_SILU, UNARY_GELU,
                                           UNARY_TANH, UNARY_LOG, UNARY_SOFTPLUS, UNARY_ERF };
    static const enum gate_fn gates[] = { GATE_SILU, GATE_GELU };
    static float x[N], y[N], w[N];

    uniform(x, N, 12.0f, rng);
    uniform(w, N, 2.0f, rng);
    for (size_t f = 0; f < sizeof unary / sizeof *unary; f++) {
        k->unary[unary[f]](y, x, N);
        for (int i = 0; i < N; i++) {
            y[i] = isnan(y[i]) ? -7.0f : y[i];  /* log of negative numbers */
        }
        h = hash_floats(h, y, N);
    }
    for (size_t f = 0; f < sizeof gates / sizeof *gates; f++) {
        memcpy(y, x, sizeof y);
        k->gate[gates[f]](y, w, N);
        h = hash_floats(h, y, N);
    }
    for (int n = 1; n <= N; n = n * 3 + 1) {
        float dot;

        k->rmsnorm(y, x, w, n, 1e-6f);
        h = hash_floats(h, y, (size_t)n);
        k->fmm[QT_F32](w, n, 1, x, (size_t)n, 1, &dot, 1);
        h = hash_floats(h, &dot, 1);
    }
    memcpy(y, x, sizeof y);
    k->softcap(y, 5.0f, N);
    k->add(y, x, N);
    k->scale(y, 0.7f, N);
    k->rope_pairs(y, w, 128);
    k->rope_halves(y + 128, w, 96);
    return hash_floats(h, y, N);
}

static uint64_t hash_product(const struct kern *k, uint64_t h, struct rng *rng)
{
    enum { K = 500, ROWS = 37, TOKENS = 7 };
    static uint16_t w[K * ROWS];
    static float x[K * TOKENS], wf[K * ROWS], y[ROWS * TOKENS];

    uniform(wf, K * ROWS, 1.0f, rng);
    uniform(x, K * TOKENS, 3.0f, rng);
    k->to_f16(w, wf, K * ROWS);
    h = hash_bytes(h, w, sizeof w);
    k->fmm[QT_F16](w, K, ROWS, x, K, TOKENS, y, ROWS);
    return hash_floats(h, y, ROWS * TOKENS);
}

/* Two heads over four segments, folded, as a decode step does it. */
static uint64_t hash_attention(const struct kern *k, uint64_t h, struct rng *rng)
{
    enum { HEADS = 2, DIM = 64, SEGMENTS = 4, KEYS = 900 };
    static float wide[SEGMENTS * ATTN_SEGMENT * DIM], q[HEADS * DIM], o_s[HEADS * DIM];
    static uint16_t keys[SEGMENTS * ATTN_SEGMENT * DIM], values[SEGMENTS * ATTN_SEGMENT * DIM];
    float m[HEADS], l[HEADS] = { 0 }, o[HEADS * DIM] = { 0 }, m_s[HEADS], l_s[HEADS];
    const size_t q_off[HEADS] = { 0, DIM };
    int begin[HEADS], end[HEADS];

    uniform(q, HEADS * DIM, 2.0f, rng);
    uniform(wide, SEGMENTS * ATTN_SEGMENT * DIM, 1.5f, rng);
    k->to_f16(keys, wide, SEGMENTS * ATTN_SEGMENT * DIM);
    uniform(wide, SEGMENTS * ATTN_SEGMENT * DIM, 1.0f, rng);
    k->to_f16(values, wide, SEGMENTS * ATTN_SEGMENT * DIM);
    for (int i = 0; i < HEADS; i++) {
        m[i] = -INFINITY;
    }
    for (int seg = 0; seg < SEGMENTS; seg++) {
        struct attn_seg s = {
            .n_q = HEADS, .k_dim = DIM, .v_dim = DIM, .k_stride = DIM, .v_stride = DIM,
            .kv = KV_F16, .q = q, .q_off = q_off, .k_begin = begin, .k_end = end, .scale = 0.125f,
            .softcap = seg == 2 ? 8.0f : 0.0f, .m = m_s, .l = l_s, .o = o_s, .o_stride = DIM,
        };

        for (int p = 0; p < ATTN_SEGMENT_PAGES; p++) {
            const size_t at = (size_t)(seg * ATTN_SEGMENT + p * KV_PAGE) * DIM;
            s.k_page[p] = keys + at;
            s.v_page[p] = values + at;
        }
        for (int i = 0; i < HEADS; i++) {
            const int left = KEYS - seg * ATTN_SEGMENT;
            begin[i] = seg == 0 ? 100 * i : 0;
            end[i] = left < ATTN_SEGMENT ? left : ATTN_SEGMENT;
        }
        k->attn_segment(&s);
        h = hash_floats(hash_floats(h, m_s, HEADS), l_s, HEADS);
        for (int i = 0; i < HEADS; i++) {
            k->attn_fold(&m[i], &l[i], o + i * DIM, m_s[i], l_s[i], o_s + i * DIM, DIM);
        }
    }
    for (int i = 0; i < HEADS; i++) {
        k->attn_finish(o + i * DIM, o + i * DIM, l[i], DIM);
    }
    return hash_floats(h, o, HEADS * DIM);
}

static uint64_t hash_of(const struct kern *k)
{
    struct rng rng = { 2026 };
    uint64_t h = HASH_INIT;

    h = hash_exp(k, h, &rng);
    h = hash_rows(k, h, &rng);
    h = hash_product(k, h, &rng);
    return hash_attention(k, h, &rng);
}

#if defined(HASH_CONTRACTED)

int main(void)
{
    struct kern k = { .isa = ISA_SCALAR };

    fpenv_enter();
    ops_scalar_fill(&k);
    const uint64_t h = hash_of(&k);
    const bool seen = h != GOLDEN, told = !k.canary();

    printf("with contraction: %016llx, %s; canary: %s\n", (unsigned long long)h,
           seen ? "different as it must be" : "THE SAME: the test is blind",
           told ? "tells" : "DOES NOT TELL");
    return seen && told ? 0 : 1;
}

#else

int main(void)
{
    int failed = 0;

    fpenv_enter();
    for (int isa = 0; isa <= (int)cpu_isa_best(); isa++) {
        const struct kern *k = kern_get((enum isa)isa);
        const uint64_t h = hash_of(k);
        const bool ok = h == GOLDEN && k->canary();

        printf("%-8s %016llx, canary %s: %s\n", isa_name((enum isa)isa), (unsigned long long)h,
               k->canary() ? "quiet" : "alarmed", ok ? "as recorded" : "WRONG");
        failed += !ok;
    }
    if (!kern_canary()) {
        printf("kern_canary() sees a wrong build\n");
        failed++;
    }
    return failed != 0;
}

#endif

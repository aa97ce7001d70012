/* ops.c - float rows: norms, activations, rotation, conversion.
 *
 * Each tier is compared with scalar, and scalar with the formulas written out in
 * plain loops.  Inputs and outputs end at the end of a page, so that an access
 * beyond them ends the program. */
#include <stdlib.h>

#include "floats.h"
#include "kerncheck.h"

enum { N_MAX = 301 };

/* Buffers of one length, each against its own guard page. */
struct rows {
    int n;
    struct guarded x, w, want, got;
};

static struct rows rows_new(int n)
{
    const size_t bytes = (size_t)n * sizeof(float);

    return (struct rows){ n, guarded_new(bytes), guarded_new(bytes), guarded_new(bytes),
                          guarded_new(bytes) };
}

static void rows_free(struct rows *r)
{
    guarded_free(&r->x);
    guarded_free(&r->w);
    guarded_free(&r->want);
    guarded_free(&r->got);
}

/* Both outputs start as a copy of x, for kernels that work in place. */
static void rows_copy(struct rows *r)
{
    memcpy(r->want.p, r->x.p, (size_t)r->n * sizeof(float));
    memcpy(r->got.p, r->x.p, (size_t)r->n * sizeof(float));
}

static int rows_same(const struct rows *r, const struct kern *k, const char *what)
{
    return !same_floats(what, isa_name(k->isa), r->want.p, r->got.p, (size_t)r->n);
}

/* ---- the definitions, plainly ---------------------------------------------------- */

static void plain_rmsnorm(float *y, const float *x, const float *w, int n, float eps)
{
    const float s = 1.0f / sqrtf(plain_dot(x, x, n) / (float)n + eps);

    for (int i = 0; i < n; i++) {
        const float a = x[i] * s;
        y[i] = w ? a * w[i] : a;
    }
}

static void plain_l2norm(float *y, const float *x, int n, float eps)
{
    const float s = 1.0f / sqrtf(plain_dot(x, x, n) + eps);

    for (int i = 0; i < n; i++) {
        y[i] = x[i] * s;
    }
}

static void plain_layernorm(float *y, const float *x, const float *w, const float *b, int n,
                            float eps)
{
    float lanes[16] = { 0 }, d[N_MAX];

    for (int i = 0; i < n; i++) {
        lanes[i % 16] += x[i];
    }
    const float mean = lane_sum(lanes) / (float)n;

    for (int i = 0; i < n; i++) {
        d[i] = x[i] - mean;
    }
    const float s = 1.0f / sqrtf(plain_dot(d, d, n) / (float)n + eps);

    for (int i = 0; i < n; i++) {
        const float a = d[i] * s, scaled = a * w[i];
        y[i] = b ? scaled + b[i] : scaled;
    }
}

static void plain_rope(float *x, const float *cs, int n_rot, int apart, int step)
{
    for (int j = 0; j < n_rot / 2; j++) {
        float *a = x + j * step, *b = a + apart;
        const float c = cs[j], s = cs[n_rot / 2 + j];
        const float p = *b * s, q = *a * s;

        *a = fmaf(*a, c, -p);
        *b = fmaf(*b, c, q);
    }
}

/* ---- checks ----------------------------------------------------------------------- */

static int check_norms(struct rows *r, const struct kern *scalar, const struct kern *k)
{
    const float *x = r->x.p, *w = r->w.p;
    int failed = 0;

    for (int with_w = 0; with_w < 2; with_w++) {
        scalar->rmsnorm(r->want.p, x, with_w ? w : NULL, r->n, 1e-5f);
        k->rmsnorm(r->got.p, x, with_w ? w : NULL, r->n, 1e-5f);
        failed += rows_same(r, k, "rmsnorm");
        plain_rmsnorm(r->want.p, x, with_w ? w : NULL, r->n, 1e-5f);
        failed += rows_same(r, k, "rmsnorm by its formula");
    }
    for (int with_b = 0; with_b < 2; with_b++) {
        const float *b = with_b ? x : NULL;

        scalar->layernorm(r->want.p, x, w, b, r->n, 1e-5f);
        k->layernorm(r->got.p, x, w, b, r->n, 1e-5f);
        failed += rows_same(r, k, "layernorm");
        plain_layernorm(r->want.p, x, w, b, r->n, 1e-5f);
        failed += rows_same(r, k, "layernorm by its formula");
    }
    rows_copy(r);
    scalar->rmsnorm(r->want.p, r->want.p, w, r->n, 0.0f);
    k->rmsnorm(r->got.p, r->got.p, w, r->n, 0.0f);
    failed += rows_same(r, k, "rmsnorm in place");

    k->l2norm(r->got.p, x, r->n, 1e-6f);
    plain_l2norm(r->want.p, x, r->n, 1e-6f);
    failed += rows_same(r, k, "l2norm by its formula");

    const float a = scalar->max(x, r->n), b = k->max(x, r->n);
    failed += !same_floats("max", isa_name(k->isa), &a, &b, 1);
    for (int i = 0; i < r->n; i++) {
        failed += x[i] > b;
    }
    return failed;
}

static int check_elementwise(struct rows *r, const struct kern *scalar, const struct kern *k)
{
    static const char *const names[UNARY_FNS] = { "exp", "sigmoid", "silu", "gelu", "tanh", "log",
                                                  "softplus", "erf" };
    static const enum unary_fn inner[GATE_FNS] = { UNARY_SILU, UNARY_GELU, UNARY_SIGMOID };
    const float *x = r->x.p, *w = r->w.p;
    int failed = 0;

    for (int f = 0; f < UNARY_FNS; f++) {
        scalar->unary[f](r->want.p, x, r->n);
        k->unary[f](r->got.p, x, r->n);
        failed += rows_same(r, k, names[f]);
    }
    for (int f = 0; f < GATE_FNS; f++) {
        rows_copy(r);
        scalar->gate[f](r->want.p, w, r->n);
        k->gate[f](r->got.p, w, r->n);
        failed += rows_same(r, k, "gate");
        /* The gate is its function, then one multiplication. */
        scalar->unary[inner[f]](r->want.p, x, r->n);
        for (int i = 0; i < r->n; i++) {
            ((float *)r->want.p)[i] *= w[i];
        }
        failed += rows_same(r, k, "gate by its formula");
    }
    rows_copy(r);
    for (int i = 0; i < r->n; i++) {
        ((float *)r->want.p)[i] += w[i];
    }
    k->add(r->got.p, w, r->n);
    failed += rows_same(r, k, "add");

    rows_copy(r);
    for (int i = 0; i < r->n; i++) {
        ((float *)r->want.p)[i] *= w[i];
    }
    k->mul(r->got.p, w, r->n);
    failed += rows_same(r, k, "mul");

    rows_copy(r);
    for (int i = 0; i < r->n; i++) {
        ((float *)r->want.p)[i] *= 0.3f;
    }
    k->scale(r->got.p, 0.3f, r->n);
    failed += rows_same(r, k, "scale");

    rows_copy(r);
    for (int i = 0; i < r->n; i++) {
        ((float *)r->want.p)[i] /= 30.0f;
    }
    scalar->unary[UNARY_TANH](r->want.p, r->want.p, r->n);
    for (int i = 0; i < r->n; i++) {
        ((float *)r->want.p)[i] *= 30.0f;
    }
    k->softcap(r->got.p, 30.0f, r->n);
    return failed + rows_same(r, k, "softcap");
}

static int check_rope(struct rows *r, const struct kern *k)
{
    const int n_rot = r->n & ~1;
    int failed = 0;

    rows_copy(r);
    plain_rope(r->want.p, r->w.p, n_rot, 1, 2);
    k->rope_pairs(r->got.p, r->w.p, n_rot);
    failed += rows_same(r, k, "rope_pairs");

    rows_copy(r);
    plain_rope(r->want.p, r->w.p, n_rot, n_rot / 2, 1);
    k->rope_halves(r->got.p, r->w.p, n_rot);
    return failed + rows_same(r, k, "rope_halves");
}

static int check_f16(const struct rows *r, const struct kern *k)
{
    struct guarded h = guarded_new((size_t)r->n * sizeof(uint16_t));
    const uint16_t *got = h.p;
    const float *x = r->x.p;
    int failed = 0;

    k->to_f16(h.p, x, r->n);
    for (int i = 0; i < r->n && !failed; i++) {
        if (got[i] != f32_to_f16(x[i])) {
            printf("  to_f16 on %s: %a is %04x, not %04x\n", isa_name(k->isa), (double)x[i],
                   got[i], f32_to_f16(x[i]));
            failed = 1;
        }
    }
    guarded_free(&h);
    return failed;
}

/* One NaN in every place; infinities are none. */
static int check_has_nan(const struct kern *k)
{
    float x[40];
    int failed = 0;

    for (int n = 0; n <= 40; n++) {
        for (int i = 0; i < n; i++) {
            x[i] = i % 3 == 0 ? INFINITY : i % 3 == 1 ? -INFINITY : (float)i;
        }
        failed += k->has_nan(x, n);
        for (int i = 0; i < n; i++) {
            const float was = x[i];
            x[i] = i % 2 ? NAN : -NAN;
            failed += !k->has_nan(x, n);
            x[i] = was;
        }
    }
    if (failed) {
        printf("  has_nan on %s is wrong for %d inputs\n", isa_name(k->isa), failed);
    }
    return failed;
}

int kerncheck_ops(const struct kern *scalar, const struct kern *k)
{
    struct rng rng = { 11 };
    int failed = 0;

    for (int n = 1; n < N_MAX; n += n < 70 ? 1 : 23) {
        struct rows r = rows_new(n);

        for (int kind = 0; kind < FILLS; kind++) {
            fill_floats(r.x.p, (size_t)n, (enum fill)kind, &rng);
            fill_floats(r.w.p, (size_t)n, kind == FILL_WIDE ? FILL_WIDE : FILL_PLAIN, &rng);
            failed += check_norms(&r, scalar, k);
            failed += check_elementwise(&r, scalar, k);
            failed += check_rope(&r, k);
            failed += check_f16(&r, k);
        }
        rows_free(&r);
    }
    failed += k->max(NULL, 0) != -INFINITY;
    failed += check_has_nan(k);
    if (!k->canary()) {
        printf("  %s was compiled with contraction or runs with another rounding\n",
               isa_name(k->isa));
        failed++;
    }
    return failed;
}

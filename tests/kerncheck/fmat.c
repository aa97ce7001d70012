/* fmat.c - products with float weights: each tier with scalar, scalar with plain loops. */
#include <stdlib.h>

#include "base/mem.h"
#include "floats.h"
#include "kerncheck.h"

enum { K_MAX = 272, ROWS_MAX = 35, TOKENS_MAX = 14, PAD = 3 };

struct shape { int k, n_rows, n_tok; };

/* Weights of one type as stored, and their exact values. */
static void weights_fill(uint32_t type, void *w, float *exact, size_t n, enum fill kind,
                         struct rng *rng)
{
    fill_floats(exact, n, kind, rng);
    for (size_t i = 0; i < n; i++) {
        if (type == QT_F16) {
            uint16_t h = f32_to_f16(exact[i]);
            h = (h & 0x7C00) == 0x7C00 ? 0x7BFF : h;  /* the largest where it overflows */
            memcpy((char *)w + 2 * i, &h, 2);
            exact[i] = f16_to_f32(h);
        } else if (type == QT_BF16) {
            uint32_t u;
            memcpy(&u, &exact[i], 4);
            const uint16_t h = (uint16_t)(u >> 16);
            memcpy((char *)w + 2 * i, &h, 2);
            exact[i] = bf16_to_f32(h);
        } else {
            memcpy((char *)w + 4 * i, &exact[i], 4);
        }
    }
}

static int check_shape(const struct kern *scalar, const struct kern *k, uint32_t type,
                       struct shape s, enum fill kind, struct rng *rng)
{
    static float exact[K_MAX * ROWS_MAX], want[TOKENS_MAX * (ROWS_MAX + PAD)],
        got[TOKENS_MAX * (ROWS_MAX + PAD)];
    const size_t n_w = (size_t)s.k * (size_t)s.n_rows, ldx = (size_t)s.k + PAD;
    const size_t ldy = (size_t)s.n_rows + PAD;
    struct guarded w = guarded_new(n_w * (type == QT_F32 ? 4 : 2));
    struct guarded x = guarded_new((ldx * (size_t)(s.n_tok - 1) + (size_t)s.k) * sizeof(float));
    char what[64];
    int failed = 0;

    snprintf(what, sizeof what, "%s %d x %d, %d tokens", quant_type(type)->name, s.n_rows, s.k,
             s.n_tok);
    weights_fill(type, w.p, exact, n_w, kind, rng);
    fill_floats(x.p, ldx * (size_t)(s.n_tok - 1) + (size_t)s.k, FILL_PLAIN, rng);
    memset(want, 0x55, sizeof want);
    memset(got, 0x55, sizeof got);

    scalar->fmm[type](w.p, s.k, s.n_rows, x.p, ldx, s.n_tok, want, ldy);
    k->fmm[type](w.p, s.k, s.n_rows, x.p, ldx, s.n_tok, got, ldy);
    failed += !same_floats(what, isa_name(k->isa), want, got, sizeof got / sizeof *got);
    for (int t = 0; t < s.n_tok; t++) {
        for (int r = 0; r < s.n_rows; r++) {
            want[(size_t)t * ldy + (size_t)r] =
                plain_dot(exact + (size_t)r * (size_t)s.k, (float *)x.p + (size_t)t * ldx, s.k);
        }
    }
    failed += !same_floats("product by its formula", isa_name(k->isa), want, got,
                           sizeof got / sizeof *got);
    guarded_free(&w);
    guarded_free(&x);
    return failed;
}

int kerncheck_fmat(const struct kern *scalar, const struct kern *k)
{
    static const uint32_t types[] = { QT_F32, QT_F16, QT_BF16 };
    static const int ks[] = { 1, 15, 16, 17, 31, 33, 64, 100, 256, K_MAX };
    static const int rows[] = { 1, 3, 15, 16, 17, 32, ROWS_MAX };
    static const int toks[] = { 1, 2, 3, 4, 5, 6, 7, 8, 13, TOKENS_MAX };
    struct rng rng = { 12 };
    int failed = 0, n = 0;

    print_thinning("float products");
    for (int type = 0; type < 3; type++) {
        for (size_t a = 0; a < sizeof ks / sizeof *ks; a++) {
            for (size_t b = 0; b < sizeof rows / sizeof *rows; b++) {
                for (size_t c = 0; c < sizeof toks / sizeof *toks; c++) {
                    const struct shape s = { ks[a], rows[b], toks[c] };
                    if (n++ % EVERY == 0) {
                        failed += check_shape(scalar, k, types[type], s,
                                              (enum fill)(n / EVERY % FILLS), &rng);
                    }
                }
            }
        }
    }
    return failed;
}

/* test_selftest.c - the self-test passes on every tier and sees a kernel that is wrong. */
#include "test.h"

#include "kern/kern.h"

static const struct kern *right;

TEST(every_tier_is_right)
{
    for (enum isa isa = ISA_SCALAR; isa <= cpu_isa_best(); isa++) {
        char what[200] = "";
        CHECK(kern_selftest(kern_get(isa), what, sizeof what));
        CHECK_STR(what, "");
    }
}

/* A copy of the best tier with one entry off by the last bit of one value. */
static void check_seen(const struct kern *broken, const char *name)
{
    char what[200] = "";

    CHECK(!kern_selftest(broken, what, sizeof what));
    CHECK(strstr(what, name) != NULL);
}

static void flip(float *x)
{
    uint32_t bits;

    memcpy(&bits, x, sizeof bits);
    bits ^= 1;
    memcpy(x, &bits, sizeof bits);
}

static void bad_add(float *y, const float *x, int n)
{
    right->add(y, x, n);
    flip(&y[n - 1]);
}

static void bad_exp(float *y, const float *x, int n)
{
    right->unary[UNARY_EXP](y, x, n);
    flip(&y[n / 2]);
}

static void bad_segment(const struct attn_seg *s)
{
    right->attn_segment(s);
    flip(&s->o[3]);
}

static void bad_mm(const void *w, int k, int n_rows, const void *act, int n_tok, int t0, int t1,
                   float *y, size_t ldy)
{
    right->mm[QT_Q6_K](w, k, n_rows, act, n_tok, t0, t1, y, ldy);
    if (n_tok == 7) {
        flip(&y[(size_t)(t1 - 1) * ldy + (size_t)n_rows - 1]);
    }
}

static void bad_fmm(const void *w, int k, int n_rows, const float *x, size_t ldx, int n_tok,
                    float *y, size_t ldy)
{
    right->fmm[QT_BF16](w, k, n_rows, x, ldx, n_tok, y, ldy);
    flip(&y[(size_t)(n_tok - 1) * ldy]);
}

TEST(a_wrong_kernel_is_named)
{
    struct kern k;

    right = kern_get(cpu_isa_best());
    k = *right;
    k.add = bad_add;
    check_seen(&k, "add");
    k = *right;
    k.unary[UNARY_EXP] = bad_exp;
    check_seen(&k, "exp");
    k = *right;
    k.attn_segment = bad_segment;
    check_seen(&k, "attention");
    k = *right;
    k.mm[QT_Q6_K] = bad_mm;
    check_seen(&k, "Q6_K, 7 tokens");
    k = *right;
    k.fmm[QT_BF16] = bad_fmm;
    check_seen(&k, "BF16");
}

int main(void)
{
    return RUN(T(every_tier_is_right), T(a_wrong_kernel_is_named));
}

/* delta.c - recurrent layers: each tier with scalar, scalar with the definition in plain
 * loops, and a run over many tokens with the same tokens in several runs. */
#include "floats.h"
#include "kerncheck.h"

enum { TOKENS = 9 };

/* ---- short convolution -------------------------------------------------------------- */

/* One channel, all tokens. */
static void plain_conv(const struct conv_run *r, const struct kern *scalar, int c)
{
    for (int t = 0; t < r->n_tok; t++) {
        float *x = r->x + (size_t)t * r->ldx + c, *history = r->history + c, acc = 0;
        const float in = *x;

        for (int j = 0; j < r->taps; j++) {
            const float past = j < r->taps - 1 ? history[(size_t)j * r->ld_history] : in;
            acc = fmaf(r->w[(size_t)j * r->ld_history + (size_t)c], past, acc);
        }
        scalar->unary[UNARY_SILU](x, &acc, 1);
        for (int j = 0; j < r->taps - 1; j++) {
            history[(size_t)j * r->ld_history] =
                j < r->taps - 2 ? history[(size_t)(j + 1) * r->ld_history] : in;
        }
    }
}

/* Buffers of one convolution, each against its own guard page. */
struct conv_data {
    size_t n_w, n_history, n_x;
    struct guarded w, history, x;
};

static void conv_fill(const struct conv_data *d, enum fill kind, uint64_t seed)
{
    struct rng rng = { seed };

    fill_floats(d->w.p, d->n_w, FILL_PLAIN, &rng);
    fill_floats(d->history.p, d->n_history, kind, &rng);
    fill_floats(d->x.p, d->n_x, kind, &rng);
}

static int check_conv(const struct kern *scalar, const struct kern *k, int taps, int n,
                      enum fill kind)
{
    struct conv_data want = { .n_w = (size_t)(taps * n), .n_history = (size_t)((taps - 1) * n),
                              .n_x = (size_t)(TOKENS * n) };
    struct conv_data got = want;
    struct conv_data *const both[] = { &want, &got };
    int failed = 0;

    for (int i = 0; i < 2; i++) {
        both[i]->w = guarded_new(want.n_w * sizeof(float));
        both[i]->history = guarded_new(want.n_history * sizeof(float));
        both[i]->x = guarded_new(want.n_x * sizeof(float));
    }
    struct conv_run r = { .n_tok = TOKENS, .n = n, .taps = taps, .w = want.w.p,
                          .history = want.history.p, .ld_history = (size_t)n, .x = want.x.p,
                          .ldx = (size_t)n };

    conv_fill(&want, kind, 5);
    for (int c = 0; c < n; c++) {
        plain_conv(&r, scalar, c);
    }
    const struct kern *const tiers[] = { scalar, k, k };
    for (int i = 0; i < 3; i++) {
        conv_fill(&got, kind, 5);
        r.w = got.w.p;
        r.history = got.history.p;
        r.x = got.x.p;
        /* The last round goes in two parts. */
        r.n_tok = i == 2 ? 2 : TOKENS;
        tiers[i]->conv_silu(&r);
        if (i == 2) {
            r.x += (size_t)r.n_tok * r.ldx;
            r.n_tok = TOKENS - r.n_tok;
            tiers[i]->conv_silu(&r);
        }
        failed += !(same_floats("short convolution", isa_name(tiers[i]->isa), want.x.p, got.x.p,
                                want.n_x)
                    && same_floats("history of a short convolution", isa_name(tiers[i]->isa),
                                   want.history.p, got.history.p, want.n_history));
    }
    for (int i = 0; i < 2; i++) {
        guarded_free(&both[i]->w);
        guarded_free(&both[i]->history);
        guarded_free(&both[i]->x);
    }
    return failed;
}

/* ---- delta rule ---------------------------------------------------------------------- */

enum { HEAD_MAX = 256, COLS = 16, LDV = 19, LDO = 21, LDG = 3 };

struct delta_data {
    float state[HEAD_MAX * COLS], o[TOKENS * LDO];
};

/* Sum of a[i * step] * b[i] in four chains. */
static float plain_chains(const float *a, size_t step, const float *b, int n)
{
    float c[4] = { 0 };

    for (int i = 0; i < n; i++) {
        c[i % 4] = fmaf(a[(size_t)i * step], b[i], c[i % 4]);
    }
    const float even = c[0] + c[1], odd = c[2] + c[3];
    return even + odd;
}

/* One column, all tokens. */
static void plain_delta(const struct delta_run *r, int col)
{
    float s[HEAD_MAX];

    for (int t = 0; t < r->n_tok; t++) {
        const float *k = r->k + (size_t)t * r->ldqk;
        for (int i = 0; i < r->n; i++) {
            s[i] = r->state[i * COLS + col] * r->decay[(size_t)t * r->ldg];
        }
        const float miss = r->v[(size_t)t * r->ldv + (size_t)col] - plain_chains(s, 1, k, r->n);
        const float d = miss * r->beta[(size_t)t * r->ldg];
        for (int i = 0; i < r->n; i++) {
            r->state[i * COLS + col] = fmaf(k[i], d, s[i]);
        }
        const float sum = plain_chains(r->state + col, COLS, r->q + (size_t)t * r->ldqk, r->n);
        r->o[(size_t)t * r->ldo + (size_t)col] = sum * r->scale;
    }
}

static int check_delta(const struct kern *scalar, const struct kern *k, int n, enum fill kind)
{
    static struct delta_data start, want, got;
    const size_t n_qk = (size_t)(TOKENS * n);
    struct guarded qk = guarded_new(2 * n_qk * sizeof(float));
    struct guarded v = guarded_new(((TOKENS - 1) * LDV + COLS) * sizeof(float));
    float gates[2 * TOKENS * LDG];
    struct rng rng = { 17 };
    int failed = 0;

    memset(&start, 0x55, sizeof start);
    fill_floats(start.state, (size_t)(n * COLS), kind, &rng);
    fill_floats(qk.p, 2 * n_qk, FILL_PLAIN, &rng);
    fill_floats(v.p, (TOKENS - 1) * LDV + COLS, kind, &rng);
    for (int i = 0; i < 2 * TOKENS * LDG; i++) {
        gates[i] = (float)rng_unit(rng_next(&rng));
    }
    struct delta_run r = {
        .n_tok = TOKENS, .n = n, .q = qk.p, .k = (float *)qk.p + n_qk, .v = v.p, .decay = gates,
        .beta = gates + TOKENS * LDG, .ldqk = (size_t)n, .ldv = LDV, .ldg = LDG, .ldo = LDO,
        .scale = 0.09f,
    };

    want = start;
    r.state = want.state;
    r.o = want.o;
    for (int col = 0; col < COLS; col++) {
        plain_delta(&r, col);
    }
    const struct kern *const tiers[] = { scalar, k, k };
    for (int i = 0; i < 3; i++) {
        got = start;
        struct delta_run part = r;
        part.state = got.state;
        part.o = got.o;
        part.n_tok = i == 2 ? 4 : TOKENS;
        tiers[i]->delta_rule(&part);
        if (i == 2) {
            part.q += 4 * part.ldqk;
            part.k += 4 * part.ldqk;
            part.v += 4 * part.ldv;
            part.decay += 4 * part.ldg;
            part.beta += 4 * part.ldg;
            part.o += 4 * part.ldo;
            part.n_tok = TOKENS - 4;
            tiers[i]->delta_rule(&part);
        }
        failed += !(same_floats("delta rule", isa_name(tiers[i]->isa), want.o, got.o, TOKENS * LDO)
                    && same_floats("state of the delta rule", isa_name(tiers[i]->isa), want.state,
                                   got.state, HEAD_MAX * COLS));
    }
    guarded_free(&qk);
    guarded_free(&v);
    return failed;
}

int kerncheck_delta(const struct kern *scalar, const struct kern *k)
{
    static const int heads[] = { 4, 16, 32, 64, 128, HEAD_MAX };
    int failed = 0;

    for (int kind = 0; kind < FILLS; kind++) {
        for (int taps = 2; taps <= CONV_TAPS_MAX; taps++) {
            failed += check_conv(scalar, k, taps, 16, (enum fill)kind);
            failed += check_conv(scalar, k, taps, 80, (enum fill)kind);
        }
        for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
            failed += check_delta(scalar, k, heads[i], (enum fill)kind);
        }
    }
    return failed;
}

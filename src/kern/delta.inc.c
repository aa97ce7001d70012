/* delta.inc.c - kernels of recurrent layers: short convolution, gated delta rule.
 *
 * Included by isa.inc.c, once per instruction set.  The lanes are channels of the
 * convolution and value columns of the state, so each is computed by itself, token after
 * token, and it does not matter how a text is cut into steps. */

/* Sixteen channels through all tokens.  taps is a constant where this is called. */
INLINE void conv_columns(const struct conv_run *r, int c, int taps)
{
    v16 past[CONV_TAPS_MAX];

#pragma GCC unroll 8
    for (int j = 0; j < taps - 1; j++) {
        past[j] = v16_load(r->history + (size_t)j * r->ld_history + c);
    }
    for (int t = 0; t < r->n_tok; t++) {
        float *x = r->x + (size_t)t * r->ldx + c;
        v16 acc = v16_zero();

        past[taps - 1] = v16_load(x);
#pragma GCC unroll 8
        for (int j = 0; j < taps; j++) {
            acc = v16_fma(v16_load(r->w + (size_t)j * r->ld_history + c), past[j], acc);
        }
        v16_store(x, v16_silu(acc));
#pragma GCC unroll 8
        for (int j = 0; j < taps - 1; j++) {
            past[j] = past[j + 1];
        }
    }
#pragma GCC unroll 8
    for (int j = 0; j < taps - 1; j++) {
        v16_store(r->history + (size_t)j * r->ld_history + c, past[j]);
    }
}

static void conv_silu(const struct conv_run *r)
{
    for (int c = 0; c < r->n; c += 16) {
        if (r->taps == 4) {
            conv_columns(r, c, 4);
        } else {
            conv_columns(r, c, r->taps);
        }
    }
}

static void l2norm(float *y, const float *x, int n, float eps)
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
    const v16 s = v16_set1(1.0f / sqrtf(v16_sum(acc) + eps));

    for (int i = 0; i < n16; i += 16) {
        v16_store(y + i, v16_mul(v16_load(x + i), s));
    }
    if (rest > 0) {
        v16_store_n(y + n16, v16_mul(v16_load_n(x + n16, rest), s), rest);
    }
}

static void row_mul(float *y, const float *x, int n)
{
    int i = 0;

    for (; i + 16 <= n; i += 16) {
        v16_store(y + i, v16_mul(v16_load(y + i), v16_load(x + i)));
    }
    if (i < n) {
        v16_store_n(y + i, v16_mul(v16_load_n(y + i, n - i), v16_load_n(x + i, n - i)), n - i);
    }
}

/* Four chains over the rows; their sums in pairs. */
INLINE v16 chains_sum(const v16 c[4])
{
    return v16_add(v16_add(c[0], c[1]), v16_add(c[2], c[3]));
}

static void delta_rule(const struct delta_run *r)
{
    const v16 scale = v16_set1(r->scale);
    float *m = r->state;

    for (int t = 0; t < r->n_tok; t++) {
        const float *q = r->q + (size_t)t * r->ldqk, *k = r->k + (size_t)t * r->ldqk;
        const v16 decay = v16_set1(r->decay[(size_t)t * r->ldg]);
        const v16 beta = v16_set1(r->beta[(size_t)t * r->ldg]);
        v16 seen[4], out[4];

#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            seen[j] = out[j] = v16_zero();
        }
        for (int i = 0; i < r->n; i += 4) {
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++) {
                const v16 s = v16_mul(v16_load(m + 16 * (i + j)), decay);
                seen[j] = v16_fma(s, v16_set1(k[i + j]), seen[j]);
            }
        }
        const v16 v = v16_load(r->v + (size_t)t * r->ldv);
        const v16 d = v16_mul(v16_sub(v, chains_sum(seen)), beta);
        for (int i = 0; i < r->n; i += 4) {
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++) {
                const v16 s = v16_fma(v16_set1(k[i + j]), d,
                                      v16_mul(v16_load(m + 16 * (i + j)), decay));
                v16_store(m + 16 * (i + j), s);
                out[j] = v16_fma(s, v16_set1(q[i + j]), out[j]);
            }
        }
        v16_store(r->o + (size_t)t * r->ldo, v16_mul(chains_sum(out), scale));
    }
}

/* dot.c - integer products and packing of a tier against the scalar ones. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kern/dot.h"
#include "kerncheck.h"

enum { ROWS_MAX = 33, TOKENS_MAX = 33, LDY = ROWS_MAX + 3 };

/* ---- inputs ----------------------------------------------------------------------- */

static uint16_t scale_of(int kind, struct rng *rng)
{
    static const uint16_t special[] = {
        0x7BFF, 0xFBFF,          /* +-65504 */
        0x0001, 0x8001, 0x03FF,  /* subnormals */
        0x0400, 0x0000, 0x8000,  /* the smallest normal, zeros */
    };
    const uint64_t bits = rng_next(rng);

    if (kind == 0) {  /* ordinary: some thousandths, either sign */
        return (uint16_t)((bits & 0x8000u) | (0x1800u + bits % 0x0800u));
    }
    return special[bits % (sizeof special / sizeof *special)];
}

/* One block: codes and small scales random or all the same, 16-bit scales ordinary or
 * extreme. */
static void fill_block(const struct quant_type *type, uint8_t *block, struct rng *rng)
{
    static const uint8_t same[] = { 0x00, 0xFF, 0x80, 0x7F, 0xF0, 0x0F };
    const uint64_t pick = rng_next(rng);
    const int kind = (int)(pick % 16), scale_kind = pick / 16 % 4 == 0;

    for (int i = 0; i < type->block_bytes; i++) {
        block[i] = kind < 6 ? same[kind] : (uint8_t)rng_next(rng);
    }
    quant_set_scales(type, block, scale_of(scale_kind, rng), scale_of(scale_kind, rng));
    if (type->id == QT_MXFP4 && scale_kind) {  /* exponents beyond those of an f16 */
        static const uint8_t e[] = { 0, 1, 2, 30, 200 };
        block[0] = e[pick / 64 % sizeof e];
    } else if (type->id == QT_NVFP4 && scale_kind) {
        for (int i = 0; i < 4; i++) {
            block[i] = (uint8_t)rng_next(rng);
        }
    }
}

/* n values of a block of activations. */
static void fill_values(float *x, int n, struct rng *rng)
{
    const int kind = (int)(rng_next(rng) % 10);

    for (int i = 0; i < n; i++) {
        const uint64_t bits = rng_next(rng);
        const float u = (float)rng_unit(bits) - 0.5f, sign = bits & 1 ? 1.0f : -1.0f;
        switch (kind) {
        case 0: x[i] = sign * 3.0f; break;                     /* codes +-127 */
        case 1: x[i] = 2.0f; break;                            /* all 127 */
        case 2: x[i] = -2.0f; break;
        case 3: x[i] = sign * 0.0f; break;
        case 4: x[i] = i == n / 3 ? 1e20f : u * 1e-20f; break; /* one huge among tiny */
        case 5: x[i] = u * 0x1p-140f; break;                   /* 127 / amax overflows */
        case 6: x[i] = u * 0x1p-118f; break;                   /* scale is a subnormal */
        case 7: x[i] = sign * ((float)(bits / 2 % 128) + 0.5f) * (127.0f / 128.0f); break;
        default: x[i] = u * 4.0f; break;
        }
    }
}

struct input {
    const struct quant_type *type;
    int k;
    size_t row_bytes;
    uint8_t *rows;     /* [ROWS_MAX] */
    float *x;          /* [TOKENS_MAX][k] */
    float *want;       /* [TOKENS_MAX][LDY] by the scalar kernels */
};

static void *checked(void *p)
{
    if (p == NULL) {
        fprintf(stderr, "kerncheck: out of memory\n");
        exit(1);
    }
    return p;
}

/* Activations of n_tok tokens at the end of a page, quantised in one or two pieces. */
static struct guarded quantised(const struct kern *k, const struct input *in, int n_tok,
                                bool pieces)
{
    const enum act_kind kind = in->type->act;
    struct guarded act = guarded_new(k->act_bytes(kind, in->k, n_tok));
    const size_t n = (size_t)n_tok * (size_t)in->k;
    struct guarded x = guarded_new(n * sizeof(float));

    memcpy(x.p, in->x, n * sizeof(float));
    const size_t ldx = (size_t)in->k;
    if (pieces && n_tok > 16) {
        k->act_quant(kind, x.p, ldx, in->k, n_tok, 16, n_tok, act.p);
        k->act_quant(kind, x.p, ldx, in->k, n_tok, 0, 16, act.p);
    } else {
        k->act_quant(kind, x.p, ldx, in->k, n_tok, 0, n_tok, act.p);
    }
    guarded_free(&x);
    return act;
}

static struct input input_new(const struct kern *scalar, const struct quant_type *type, int k,
                              struct rng *rng)
{
    const int n_blocks = k / type->block;
    struct input in = { .type = type, .k = k,
                        .row_bytes = (size_t)n_blocks * (size_t)type->block_bytes };

    in.rows = checked(malloc(ROWS_MAX * in.row_bytes));
    in.x = checked(malloc(TOKENS_MAX * (size_t)k * sizeof(float)));
    in.want = checked(malloc(sizeof(float[TOKENS_MAX][LDY])));
    for (int i = 0; i < ROWS_MAX * n_blocks; i++) {
        fill_block(type, in.rows + (size_t)i * (size_t)type->block_bytes, rng);
    }
    const int act_block = type->act == ACT_Q32 ? 32 : 256;
    for (int i = 0; i < TOKENS_MAX * k; i += act_block) {
        fill_values(in.x + i, act_block, rng);
    }
    struct guarded act = quantised(scalar, &in, TOKENS_MAX, false);
    scalar->mm[type->id](in.rows, k, ROWS_MAX, act.p, TOKENS_MAX, 0, TOKENS_MAX, in.want, LDY);
    guarded_free(&act);
    return in;
}

static void input_free(struct input *in)
{
    free(in->rows);
    free(in->x);
    free(in->want);
}

/* ---- packing ---------------------------------------------------------------------- */

/* Rows in the layout of the tier, at the end of a page. */
static struct guarded weights(const struct kern *k, const struct input *in, int n_rows)
{
    const size_t groups = (size_t)(n_rows + PANEL_ROWS - 1) / PANEL_ROWS;
    const size_t group_bytes = PANEL_ROWS * in->row_bytes;
    struct guarded g = guarded_new(k->panels ? groups * group_bytes
                                             : (size_t)n_rows * in->row_bytes);

    if (!k->panels) {
        memcpy(g.p, in->rows, (size_t)n_rows * in->row_bytes);
        return g;
    }
    for (size_t i = 0; i < groups; i++) {
        const int n = n_rows - (int)i * PANEL_ROWS;
        panel_pack(in->type, in->rows + i * group_bytes, in->row_bytes, in->k,
                   n < PANEL_ROWS ? n : PANEL_ROWS, (uint8_t *)g.p + i * group_bytes);
    }
    return g;
}

static int check_pack(const struct kern *k, const struct input *in)
{
    const size_t bytes = PANEL_ROWS * in->row_bytes;
    int failed = 0;

    for (int n = 1; n <= PANEL_ROWS; n++) {
        struct guarded rows = guarded_new((size_t)n * in->row_bytes);
        struct guarded want = guarded_new(bytes), got = guarded_new(bytes);
        memcpy(rows.p, in->rows, (size_t)n * in->row_bytes);
        memset(got.p, 0xEE, bytes);
        panel_pack(in->type, rows.p, in->row_bytes, in->k, n, want.p);
        k->pack(in->type, rows.p, in->row_bytes, in->k, n, got.p);
        if (memcmp(want.p, got.p, bytes) != 0) {
            printf("%s pack %s: %d rows, k %d differ\n", isa_name(k->isa), in->type->name, n,
                   in->k);
            failed++;
        }
        guarded_free(&rows);
        guarded_free(&want);
        guarded_free(&got);
    }
    return failed;
}

/* ---- products --------------------------------------------------------------------- */

/* What a kernel must leave as it is: a NaN that no result has. */
static const uint32_t untouched = 0x7FC0BEEFu;

static void describe_difference(const struct kern *k, const struct input *in, const float *got,
                                const float *want, int n_rows, int n_tok, int t0, int t1)
{
    int i = 0;

    while (memcmp(&got[i], &want[i], sizeof(float)) == 0) {
        i++;
    }
    const int t = i / LDY, r = i % LDY;
    const bool inside = t >= t0 && t < t1 && r < n_rows;
    printf("%s mm %s: k %d, %d rows, %d tokens, range %d..%d: y[%d][%d] is %a, not %a%s\n",
           isa_name(k->isa), in->type->name, in->k, n_rows, n_tok, t0, t1, t, r, (double)got[i],
           (double)want[i], inside ? "" : " (must not change)");
}

/* One call: results equal, everything else in y as it was. */
static int check_call(const struct kern *k, const struct input *in, const void *w, const void *act,
                      int n_rows, int n_tok, int t0, int t1)
{
    static float got[TOKENS_MAX * LDY], want[TOKENS_MAX * LDY];

    for (int i = 0; i < LDY; i++) {
        memcpy(&got[i], &untouched, sizeof untouched);
    }
    for (int t = 1; t < TOKENS_MAX; t++) {
        memcpy(got + t * LDY, got, LDY * sizeof *got);
    }
    memcpy(want, got, sizeof want);
    for (int t = t0; t < t1; t++) {
        memcpy(want + t * LDY, in->want + t * LDY, (size_t)n_rows * sizeof *want);
    }
    k->mm[in->type->id](w, in->k, n_rows, act, n_tok, t0, t1, got, LDY);
    if (memcmp(got, want, sizeof want) != 0) {
        describe_difference(k, in, got, want, n_rows, n_tok, t0, t1);
        return 1;
    }
    return 0;
}

static int check_ranges(const struct kern *k, const struct input *in, const void *w,
                        const void *act, int n_rows, int n_tok)
{
    int failed = 0;

    for (int t0 = 0; t0 < n_tok; t0++) {
        for (int t1 = t0; t1 <= n_tok; t1++) {
            failed += check_call(k, in, w, act, n_rows, n_tok, t0, t1);
        }
    }
    return failed;
}

/* All row counts with all token counts, and for some of them all ranges. */
static int check_sizes(const struct kern *k, const struct input *in)
{
    struct guarded act[TOKENS_MAX + 1];
    int failed = 0;

    for (int n_tok = 1; n_tok <= TOKENS_MAX; n_tok++) {
        act[n_tok] = quantised(k, in, n_tok, n_tok % 2 == 0);
    }
    for (int n_rows = 1; n_rows <= ROWS_MAX && failed < 5; n_rows++) {
        struct guarded w = weights(k, in, n_rows);
        for (int n_tok = 1; n_tok <= TOKENS_MAX; n_tok++) {
            failed += check_call(k, in, w.p, act[n_tok].p, n_rows, n_tok, 0, n_tok);
            failed += check_call(k, in, w.p, act[n_tok].p, n_rows, n_tok, n_tok - 1, n_tok);
        }
        if (n_rows == 19) {
            failed += check_ranges(k, in, w.p, act[6].p, n_rows, 6);
            failed += check_ranges(k, in, w.p, act[TOKENS_MAX].p, n_rows, TOKENS_MAX);
        }
        guarded_free(&w);
    }
    for (int n_tok = 1; n_tok <= TOKENS_MAX; n_tok++) {
        guarded_free(&act[n_tok]);
    }
    return failed;
}

/* The whole batch at once and one token alone. */
static int check_input(const struct kern *k, const struct input *in)
{
    struct guarded w = weights(k, in, ROWS_MAX);
    struct guarded all = quantised(k, in, TOKENS_MAX, true), one = quantised(k, in, 1, false);
    int failed = check_call(k, in, w.p, all.p, ROWS_MAX, TOKENS_MAX, 0, TOKENS_MAX);

    failed += check_call(k, in, w.p, one.p, ROWS_MAX, 1, 0, 1);
    guarded_free(&w);
    guarded_free(&all);
    guarded_free(&one);
    return failed;
}

/* Infinities and NaNs in a token make all its results NaN and leave the others alone. */
static int check_faults(const struct kern *k, struct input *in)
{
    static const float faults[] = { INFINITY, -INFINITY, NAN };
    float y[3][PANEL_ROWS];
    int failed = 0;

    for (int i = 0; i < 3; i++) {
        float *x = &in->x[(size_t)in->k * 1 + (size_t)(in->k / 2 + i)];
        const float saved = *x;
        *x = faults[i];
        struct guarded w = weights(k, in, PANEL_ROWS), act = quantised(k, in, 3, false);
        k->mm[in->type->id](w.p, in->k, PANEL_ROWS, act.p, 3, 0, 3, y[0], PANEL_ROWS);
        for (int r = 0; r < PANEL_ROWS; r++) {
            const bool same = memcmp(&y[0][r], &in->want[r], 4) == 0
                              && memcmp(&y[2][r], &in->want[2 * LDY + r], 4) == 0;
            if (!isnan(y[1][r]) || !same) {
                printf("%s mm %s: a fault in token 1 is lost or spreads\n", isa_name(k->isa),
                       in->type->name);
                failed++;
                break;
            }
        }
        *x = saved;
        guarded_free(&w);
        guarded_free(&act);
    }
    return failed;
}

/* More tokens than kernels take in one piece, and with 17 blocks of 256 more of K: those of the
 * input again and again. */
static int check_pieces(const struct kern *k, const struct input *in)
{
    enum { TOKENS = 280 };
    const size_t n = (size_t)in->k;
    float *x = checked(malloc(TOKENS * n * sizeof *x));
    float *y = checked(malloc(sizeof(float[TOKENS][LDY])));
    struct guarded w = weights(k, in, ROWS_MAX);
    struct guarded act = guarded_new(k->act_bytes(in->type->act, in->k, TOKENS));
    int failed = 0;

    for (int t = 0; t < TOKENS; t++) {
        memcpy(x + (size_t)t * n, in->x + (size_t)(t % TOKENS_MAX) * n, n * sizeof *x);
    }
    k->act_quant(in->type->act, x, n, in->k, TOKENS, 0, TOKENS, act.p);
    k->mm[in->type->id](w.p, in->k, ROWS_MAX, act.p, TOKENS, 0, TOKENS, y, LDY);
    for (int t = 0; t < TOKENS && failed == 0; t++) {
        const float *want = in->want + t % TOKENS_MAX * LDY;
        if (memcmp(y + t * LDY, want, ROWS_MAX * sizeof *y) != 0) {
            printf("%s mm %s: k %d, token %d of %d differs\n", isa_name(k->isa), in->type->name,
                   in->k, t, TOKENS);
            failed++;
        }
    }
    guarded_free(&w);
    guarded_free(&act);
    free(x);
    free(y);
    return failed;
}

static int check_type(const struct kern *scalar, const struct kern *k,
                      const struct quant_type *type)
{
    /* In blocks; 7 to 9 are around the chunk of 256 weights. */
    static const int lengths[] = { 1, 2, 3, 7, 8, 9, 17, 33 };
    /* The lengths with all sizes, and with pieces. */
    enum { SIZES = 2, PIECES = 6, BLOCKS = 24, ROUNDS_MAX = 12 };
    struct rng rng = { type->id * 1000u };
    int failed = 0;

    for (int i = 0; i < (int)(sizeof lengths / sizeof *lengths) && failed == 0; i++) {
        const int rounds = BLOCKS / lengths[i] + 1;  /* long rows meet many blocks at once */
        for (int round = 0; round < rounds && round < ROUNDS_MAX && failed == 0; round++) {
            struct input in = input_new(scalar, type, lengths[i] * type->block, &rng);
            failed += check_input(k, &in);
            if (round == 0) {
                failed += i == SIZES ? check_sizes(k, &in) : 0;
                failed += i == PIECES ? check_pieces(k, &in) : 0;
                failed += check_faults(k, &in);
                failed += k->pack != NULL ? check_pack(k, &in) : 0;
            }
            input_free(&in);
        }
    }
    return failed;
}

int kerncheck_dot(const struct kern *scalar, const struct kern *k)
{
    int failed = 0;

    for (uint32_t id = 0; id < QT_COUNT; id++) {
        const struct quant_type *type = quant_type(id);
        if (type != NULL && type->act != ACT_F32 && k->mm[id] != NULL) {
            failed += check_type(scalar, k, type);
        }
    }
    return failed;
}

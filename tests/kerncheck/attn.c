/* attn.c - attention: each tier with scalar, scalar with the definition in plain loops.
 *
 * What no row sees is NaN or lies on a page that cannot be read, so that reading it
 * into arithmetic shows.  Keys and values that some rows see and others do not differ
 * wildly, so that a row which takes one too many shows as well. */
#include <stdlib.h>

#include "floats.h"
#include "kerncheck.h"

enum { Q_MAX = 60, DIM_MAX = 512, STRIDE_MAX = 528 };

struct attn_case {
    int n_q, k_dim, v_dim, k_stride, v_stride;
    enum kv_type kv;
    float softcap;
    int mask;               /* one of the kinds below */
};

enum { MASK_ALL, MASK_CAUSAL, MASK_WINDOW, MASK_RANDOM, MASKS };

struct outputs {
    float m[Q_MAX], l[Q_MAX], o[Q_MAX * (DIM_MAX + 5)];
};

/* ---- the definition ---------------------------------------------------------------- */

static float float_at(const struct attn_seg *s, const void *const *page, int stride, int key, int d)
{
    const size_t i = (size_t)(key % KV_PAGE) * (size_t)stride + (size_t)d;

    return s->kv == KV_F32 ? ((const float *)page[key / KV_PAGE])[i]
                           : f16_to_f32(((const uint16_t *)page[key / KV_PAGE])[i]);
}

/* Places of a code and of its scale in what a head has in a page. */
static size_t code_place(bool value, int stride, int slot, int d)
{
    const int nb = stride / 32, scales = 2 * KV_PAGE * nb;

    return value ? (size_t)(scales + slot * stride + d)
                 : (size_t)(scales + (slot / 16 * nb + d / 32) * 512 + d % 32 / 4 * 64 +
                            slot % 16 * 4 + d % 4);
}

static size_t scale_place(bool value, int stride, int slot, int d)
{
    return value ? (size_t)(slot * (stride / 32) + d / 32) : (size_t)(d / 32 * KV_PAGE + slot);
}

static int code_at(const void *head, bool value, int stride, int slot, int d)
{
    return ((const int8_t *)head)[code_place(value, stride, slot, d)];
}

static float scale_at(const void *head, bool value, int stride, int slot, int d)
{
    return f16_to_f32(((const uint16_t *)head)[scale_place(value, stride, slot, d)]);
}

static float value_at(const struct attn_seg *s, int key, int d)
{
    const void *head = s->v_page[key / KV_PAGE];

    return s->kv == KV_Q8_0 ? scale_at(head, true, s->v_stride, key % KV_PAGE, d) *
                              (float)code_at(head, true, s->v_stride, key % KV_PAGE, d)
                            : float_at(s, s->v_page, s->v_stride, key, d);
}

/* The score of a key in blocks: both sides are codes. */
static float plain_q8(const struct attn_seg *s, const float *q, int key)
{
    const void *head = s->k_page[key / KV_PAGE];
    float acc = 0.0f;

    for (int b = 0; b * 32 < s->k_dim; b++) {
        const int end = s->k_dim < 32 * b + 32 ? s->k_dim : 32 * b + 32;
        float top = 0.0f;
        int sum = 0;
        for (int d = 32 * b; d < end; d++) {
            top = fabsf(q[d]) > top ? fabsf(q[d]) : top;
        }
        for (int d = 32 * b; d < end; d++) {
            const int code = top > 0 ? (int)nearbyintf(q[d] * (127.0f / top)) : 0;
            sum += code * code_at(head, false, s->k_stride, key % KV_PAGE, d);
        }
        acc = fmaf(scale_at(head, false, s->k_stride, key % KV_PAGE, 32 * b) * (top / 127.0f),
                   (float)sum, acc);
    }
    return acc;
}

static float plain_score(const struct attn_seg *s, const float *q, int key)
{
    float row[DIM_MAX];

    if (s->kv == KV_Q8_0) {
        return plain_q8(s, q, key);
    }
    for (int d = 0; d < s->k_dim; d++) {
        row[d] = float_at(s, s->k_page, s->k_stride, key, d);
    }
    return plain_dot(row, q, s->k_dim);
}

static void plain_row(const struct attn_seg *s, const struct kern *scalar, int row)
{
    const int begin = s->k_begin[row], end = s->k_end[row];
    float p[ATTN_SEGMENT], lanes[16] = { 0 }, m = -INFINITY;
    float *o = s->o + (size_t)row * s->o_stride;

    for (int key = begin; key < end; key++) {
        p[key] = plain_score(s, s->q + s->q_off[row], key) * s->scale;
        if (s->softcap != 0.0f) {
            float t = p[key] / s->softcap;
            scalar->unary[UNARY_TANH](&t, &t, 1);
            p[key] = s->softcap * t;
        }
        m = p[key] > m ? p[key] : m;
    }
    for (int key = begin; key < end; key++) {
        p[key] -= m;
        scalar->unary[UNARY_EXP](&p[key], &p[key], 1);
        lanes[key % 16] += p[key];
    }
    s->m[row] = m;
    s->l[row] = begin < end ? lane_sum(lanes) : 0.0f;
    for (int d = 0; d < s->v_dim; d++) {
        o[d] = 0.0f;
        for (int key = begin; key < end; key++) {
            o[d] = fmaf(p[key], value_at(s, key, d), o[d]);
        }
    }
}

/* ---- one case ------------------------------------------------------------------------ */

/* A page of quantised positions; those outside [lo, hi) have scales that are NaN. */
static void page_fill_q8(void *page, const struct kern *scalar, bool value, int dim, int lo, int hi,
                         struct rng *rng)
{
    const int stride = kv_stride(KV_Q8_0, dim);
    float row[DIM_MAX];

    memset(page, 0, kv_head_bytes(KV_Q8_0, dim));
    for (int j = 0; j < KV_PAGE; j++) {
        fill_floats(row, (size_t)dim, FILL_PLAIN, rng);
        row[0] *= rng_next(rng) % 20 == 0 ? 50.0f : 1.0f;
        (value ? scalar->store_value : scalar->store_key)(KV_Q8_0, page, j, row, dim);
        for (int d = 0; d < dim && (j < lo || j >= hi); d += 32) {
            ((uint16_t *)page)[scale_place(value, stride, j, d)] = 0x7E00;
        }
    }
}

/* A page of positions; those outside [lo, hi) are NaN, padding is zero. */
static void page_fill(void *page, enum kv_type kv, int dim, int stride, int lo, int hi,
                      struct rng *rng)
{
    for (int j = 0; j < KV_PAGE; j++) {
        for (int d = 0; d < stride; d++) {
            const float scale = rng_next(rng) % 50 == 0 ? 50.0f : 1.0f;
            float x = (float)(rng_unit(rng_next(rng)) * 2.0 - 1.0) * scale;
            const size_t i = (size_t)(j * stride + d);

            x = j < lo || j >= hi ? NAN : d < dim ? x : 0.0f;
            if (kv == KV_F32) {
                ((float *)page)[i] = x;
            } else {
                ((uint16_t *)page)[i] = f32_to_f16(x);
            }
        }
    }
}

static void masks_fill(int mask, int n_q, int *begin, int *end, struct rng *rng)
{
    const int base = (int)(rng_next(rng) % 200), window = 1 + (int)(rng_next(rng) % 100);
    const int all = 1 + (int)(rng_next(rng) % ATTN_SEGMENT);

    for (int i = 0; i < n_q; i++) {
        const int next = base + i / 3 + 1;

        begin[i] = mask == MASK_RANDOM ? (int)(rng_next(rng) % 257)
            : mask == MASK_WINDOW && next > window ? next - window : 0;
        end[i] = mask == MASK_RANDOM ? (int)(rng_next(rng) % 257) : mask == MASK_ALL ? all : next;
        end[i] = end[i] < ATTN_SEGMENT ? end[i] : ATTN_SEGMENT;
        begin[i] = begin[i] < ATTN_SEGMENT ? begin[i] : ATTN_SEGMENT;
    }
}

static int compare(const char *what, const struct kern *k, const struct attn_seg *s,
                   const struct outputs *a, const struct outputs *b)
{
    char name[160];

    snprintf(name, sizeof name, "attention %s (%d rows, heads %d and %d, kv %d, cap %g)", what,
             s->n_q, s->k_dim, s->v_dim, (int)s->kv, (double)s->softcap);
    return !(same_floats(name, isa_name(k->isa), a->m, b->m, (size_t)s->n_q)
             && same_floats(name, isa_name(k->isa), a->l, b->l, (size_t)s->n_q)
             && same_floats(name, isa_name(k->isa), a->o, b->o, (size_t)s->n_q * s->o_stride));
}

static int check_case(const struct kern *scalar, const struct kern *k, const struct attn_case *c,
                      struct rng *rng)
{
    static struct outputs plain, want, got;
    const bool q8 = c->kv == KV_Q8_0;
    const size_t elem = c->kv == KV_F32 ? 4 : 2;
    /* Quantised pages have the layout that goes with the head size. */
    const int k_stride = q8 ? kv_stride(c->kv, c->k_dim) : c->k_stride;
    const int v_stride = q8 ? kv_stride(c->kv, c->v_dim) : c->v_stride;
    const size_t k_bytes = q8 ? kv_head_bytes(c->kv, c->k_dim) : KV_PAGE * (size_t)k_stride * elem;
    const size_t v_bytes = q8 ? kv_head_bytes(c->kv, c->v_dim) : KV_PAGE * (size_t)v_stride * elem;
    struct guarded pages[2 * ATTN_SEGMENT_PAGES], q;
    int begin[Q_MAX], end[Q_MAX], lo = ATTN_SEGMENT, hi = 0, failed = 0;
    size_t q_off[Q_MAX];
    struct attn_seg s = {
        .n_q = c->n_q, .k_dim = c->k_dim, .v_dim = c->v_dim, .k_stride = k_stride,
        .v_stride = v_stride, .kv = c->kv, .q_off = q_off, .k_begin = begin, .k_end = end,
        .scale = 0.11f, .softcap = c->softcap, .o_stride = (size_t)c->v_dim + 5,
    };

    masks_fill(c->mask, c->n_q, begin, end, rng);
    for (int i = 0; i < c->n_q; i++) {
        lo = begin[i] < end[i] && begin[i] < lo ? begin[i] : lo;
        hi = begin[i] < end[i] && end[i] > hi ? end[i] : hi;
        q_off[i] = (size_t)((i * 7) % c->n_q) * (size_t)c->k_dim;
    }
    q = guarded_new((size_t)c->n_q * (size_t)c->k_dim * sizeof(float));
    fill_floats(q.p, (size_t)c->n_q * (size_t)c->k_dim, FILL_PLAIN, rng);
    s.q = q.p;
    for (int p = 0; p < ATTN_SEGMENT_PAGES; p++) {
        const int first = p * KV_PAGE;

        pages[2 * p] = guarded_new(k_bytes);
        pages[2 * p + 1] = guarded_new(v_bytes);
        if (q8) {
            page_fill_q8(pages[2 * p].p, scalar, false, c->k_dim, lo - first, hi - first, rng);
            page_fill_q8(pages[2 * p + 1].p, scalar, true, c->v_dim, lo - first, hi - first, rng);
        } else {
            page_fill(pages[2 * p].p, c->kv, c->k_dim, k_stride, lo - first, hi - first, rng);
            page_fill(pages[2 * p + 1].p, c->kv, c->v_dim, v_stride, lo - first, hi - first, rng);
        }
        /* A page that no row sees may be absent. */
        const bool seen = lo < first + KV_PAGE && hi > first;
        s.k_page[p] = seen ? pages[2 * p].p : NULL;
        s.v_page[p] = seen ? pages[2 * p + 1].p : NULL;
    }
    memset(&plain, 0x55, sizeof plain);
    memset(&want, 0x55, sizeof want);
    memset(&got, 0x55, sizeof got);

    s.m = plain.m, s.l = plain.l, s.o = plain.o;
    for (int i = 0; i < s.n_q; i++) {
        plain_row(&s, scalar, i);
    }
    s.m = want.m, s.l = want.l, s.o = want.o;
    scalar->attn_segment(&s);
    s.m = got.m, s.l = got.l, s.o = got.o;
    k->attn_segment(&s);
    failed += compare("by its formula", scalar, &s, &plain, &want);
    failed += compare("", k, &s, &want, &got);

    /* Room for copies changes nothing. */
    struct guarded room = guarded_new(attn_scratch_floats(c->k_dim, c->v_dim) * sizeof(float));
    s.scratch = room.p;
    memset(&got, 0x55, sizeof got);
    scalar->attn_segment(&s);
    failed += compare("by copies", scalar, &s, &want, &got);
    memset(&got, 0x55, sizeof got);
    k->attn_segment(&s);
    failed += compare("by copies", k, &s, &want, &got);
    guarded_free(&room);

    for (int p = 0; p < 2 * ATTN_SEGMENT_PAGES; p++) {
        guarded_free(&pages[p]);
    }
    guarded_free(&q);
    return failed;
}

/* Folding in a chain, then the division; a segment without keys changes nothing. */
static int check_fold(const struct kern *scalar, const struct kern *k, struct rng *rng)
{
    enum { N = 77 };
    float a[N] = { 0 }, b[N] = { 0 }, seg[N], ma = -INFINITY, mb = ma, la = 0.0f, lb = la;
    int failed = 0;

    /* The first one in place: -0 becomes 0, all else stays. */
    fill_floats(seg, N, FILL_PLAIN, rng);
    seg[3] = -0.0f;
    memcpy(b, seg, sizeof b);
    k->attn_fold(&mb, &lb, b, 1.5f, 3.0f, b, N);
    seg[3] = 0.0f;
    failed += memcmp(b, seg, sizeof b) != 0 || mb != 1.5f || lb != 3.0f;
    memset(b, 0, sizeof b);
    mb = -INFINITY;
    lb = 0.0f;

    for (int i = 0; i < 12; i++) {
        const float m_s = i == 5 ? -INFINITY : (float)(rng_unit(rng_next(rng)) * 60 - 30);
        const float l_s = (float)(1 + rng_unit(rng_next(rng)) * 100);

        fill_floats(seg, N, FILL_PLAIN, rng);
        scalar->attn_fold(&ma, &la, a, m_s, l_s, seg, N);
        k->attn_fold(&mb, &lb, b, m_s, l_s, seg, N);
    }
    failed += !same_floats("fold", isa_name(k->isa), a, b, N) || ma != mb || la != lb;
    scalar->attn_finish(a, a, la, N);
    k->attn_finish(b, b, lb, N);
    failed += !same_floats("finish", isa_name(k->isa), a, b, N);
    k->attn_finish(b, a, 0.0f, N);
    for (int i = 0; i < N; i++) {
        failed += b[i] != 0.0f;
    }
    return failed;
}

/* Rows of every kind, and with values that are not finite, stored in each type; f16 and q8_0 by
 * their formulas as well. */
static int check_store(const struct kern *scalar, const struct kern *k, struct rng *rng)
{
    static const int dims[] = { 2, 16, 31, 64, 80, 128, 500 };
    int failed = 0;

    for (size_t i = 0; i < sizeof dims / sizeof *dims * FILLS * KV_TYPES; i++) {
        const enum kv_type kv = (enum kv_type)(i % KV_TYPES);
        const enum fill fill = (enum fill)(i / KV_TYPES % FILLS);
        const int dim = dims[i / KV_TYPES / FILLS], stride = kv_stride(kv, dim);
        const size_t bytes = kv_head_bytes(kv, dim);
        struct guarded a = guarded_new(bytes), b = guarded_new(bytes);
        float row[DIM_MAX];

        for (int value = 0; value < 2; value++) {
            memset(a.p, 0, bytes);
            memset(b.p, 0, bytes);
            for (int slot = 0; slot < KV_PAGE; slot += 7) {
                fill_floats(row, (size_t)dim, fill, rng);
                if (slot == 21 || slot == 42) {
                    row[dim / 2] = slot == 21 ? NAN : INFINITY;
                }
                (value ? scalar->store_value : scalar->store_key)(kv, a.p, slot, row, dim);
                (value ? k->store_value : k->store_key)(kv, b.p, slot, row, dim);
                for (int d = 0; d < dim && kv == KV_Q8_0 && fill == FILL_PLAIN && slot % 21; d++) {
                    float top = 0;
                    for (int j = d / 32 * 32; j < dim && j < d / 32 * 32 + 32; j++) {
                        top = fabsf(row[j]) > top ? fabsf(row[j]) : top;
                    }
                    failed += code_at(a.p, value, stride, slot, d) !=
                              (int)nearbyintf(row[d] * (127.0f / top));
                    failed += scale_at(a.p, value, stride, slot, d) !=
                              f16_to_f32(f32_to_f16(top / 127.0f));
                }
            }
            if (memcmp(a.p, b.p, bytes) != 0) {
                printf("store (kv %d, head %d, fill %d): %s differs from scalar\n", (int)kv, dim,
                       (int)fill, isa_name(k->isa));
                failed++;
            }
        }
        guarded_free(&a);
        guarded_free(&b);
    }
    return failed;
}

int kerncheck_attn(const struct kern *scalar, const struct kern *k)
{
    static const int dims[][4] = {  /* k_dim, v_dim, k_stride, v_stride */
        { 16, 16, 16, 16 }, { 20, 12, 32, 16 }, { 64, 64, 64, 64 }, { 80, 80, 80, 80 },
        { 96, 96, 112, 128 }, { 128, 128, 128, 128 }, { 256, 128, 256, 128 },
        { 512, 512, 528, 512 },
    };
    static const int n_qs[] = { 1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 24, 25, Q_MAX };
    struct rng rng = { 13 };
    int failed = check_fold(scalar, k, &rng) + check_store(scalar, k, &rng), n = 0;

    print_thinning("attention");
    for (size_t d = 0; d < sizeof dims / sizeof *dims; d++) {
        for (size_t i = 0; i < sizeof n_qs / sizeof *n_qs; i++) {
            for (int mask = 0; mask < MASKS; mask++, n++) {
                if (n % EVERY != 0) {
                    continue;
                }
                const struct attn_case c = {
                    .n_q = n_qs[i], .k_dim = dims[d][0], .v_dim = dims[d][1],
                    .k_stride = dims[d][2], .v_stride = dims[d][3],
                    .kv = (enum kv_type)((n + mask) % KV_TYPES), .softcap = n % 3 ? 0.0f : 20.0f,
                    .mask = mask,
                };
                failed += check_case(scalar, k, &c, &rng);
            }
        }
    }
    return failed;
}

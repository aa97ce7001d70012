/* attn.inc.c - attention over one segment of keys, and the fold of segments.
 *
 * Included by isa.inc.c after ops.inc.c and fmat.inc.c, once per instruction set.
 *
 * What defines each output (positions are relative to the segment, a row sees
 * [begin, end)):
 *   score   one v16 chain over the head (tail padded by zeros) and the tree, then one
 *           multiplication by scale, then cap * tanh(s / cap) where there is a cap;
 *   m       the largest score of the row: lanes are position mod 16, then the tree of
 *           v16_max_lane; max only chooses, so it has no rounding;
 *   p       exp(s - m);
 *   l       one v16 chain of additions, lanes are position mod 16, in ascending order;
 *           positions that the row does not see add a zero; then the tree;
 *   o[d]    one chain o = fma(p, v[d], o) over the keys the row sees, ascending, from 0.
 * Rows that share a call share loads, nothing else.  What no row sees is not read. */

/* Rows whose scores are on the stack at a time: a multiple of the tile. */
enum { ATTN_ROWS = 4 * V16_TILE_X };

struct attn_rows {
    const struct attn_seg *s;
    int row0, n;                         /* rows row0..row0+n-1 of the segment */
    int lo, hi;                          /* keys that at least one of them sees */
    float p[ATTN_ROWS][ATTN_SEGMENT];    /* scores, then weights */
};

INLINE const void *kv_row(const void *const *page, int stride, enum wtype type, int key)
{
    const size_t at = (size_t)(key % KV_PAGE) * (size_t)stride * w_bytes(type);

    return (const char *)page[key / KV_PAGE] + at;
}

/* The keys that rows i0..i0+n-1 see between them. */
static void rows_range(const struct attn_seg *s, int i0, int n, int *lo, int *hi)
{
    *lo = ATTN_SEGMENT;
    *hi = 0;
    for (int i = i0; i < i0 + n; i++) {
        if (s->k_begin[i] < s->k_end[i]) {
            *lo = s->k_begin[i] < *lo ? s->k_begin[i] : *lo;
            *hi = s->k_end[i] > *hi ? s->k_end[i] : *hi;
        }
    }
}

/* Raw products of the rows with sixteen keys at a time. */
INLINE void attn_scores(struct attn_rows *a, enum wtype type)
{
    const struct attn_seg *s = a->s;
    const int step = tile_rows(a->n);

    for (int key = a->lo & ~15; key < a->hi; key += 16) {
        const void *k[16];

        /* Beyond the range a key that is in it stands in; its score is not used. */
        for (int j = 0; j < 16; j++) {
            const int at = key + j < a->lo ? a->lo : key + j < a->hi ? key + j : a->hi - 1;
            k[j] = kv_row(s->k_page, s->k_stride, type, at);
        }
        for (int i = 0; i < a->n; i += step) {
            const int n = a->n - i < step ? a->n - i : step;
            const float *q[V16_TILE_X] = { NULL };
            int lo, hi;

            rows_range(s, a->row0 + i, n, &lo, &hi);
            if (key + 16 <= lo || key >= hi) {
                continue;
            }
            for (int r = 0; r < n; r++) {
                q[r] = s->q + s->q_off[a->row0 + i + r];
            }
            dot_group(type, k, q, n, s->k_dim, &a->p[i][key], ATTN_SEGMENT);
        }
    }
}

/* Scale, cap and mask of one row's scores, their maximum and their exponentials.
 * Weights of positions outside [begin, end) but in a block of sixteen with it are 0. */
static void attn_softmax(const struct attn_seg *s, int row, float *p)
{
    const int begin = s->k_begin[row], end = s->k_end[row], b0 = begin & ~15;
    const v16 scale = v16_set1(s->scale), cap = v16_set1(s->softcap);
    v16 m = v16_set1(-INFINITY), l = v16_zero();

    s->m[row] = -INFINITY;
    s->l[row] = 0.0f;
    if (begin >= end) {
        return;
    }
    for (int t = b0; t < end; t += 16) {
        v16 x = v16_mul(v16_load(p + t), scale);

        if (s->softcap != 0.0f) {
            x = capped(x, cap);
        }
        v16_store(p + t, x);
        for (int j = t; j < begin; j++) {
            p[j] = -INFINITY;
        }
        for (int j = end; j < t + 16; j++) {
            p[j] = -INFINITY;
        }
        m = v16_max(v16_load(p + t), m);
    }
    const float top = v16_max_lane(m);

    if (top == -INFINITY) {
        return;
    }
    for (int t = b0; t < end; t += 16) {
        const v16 e = v16_exp(v16_sub(v16_load(p + t), v16_set1(top)));

        v16_store(p + t, e);
        l = v16_add(l, e);
    }
    s->m[row] = top;
    s->l[row] = v16_sum(l);
}

/* Weighted values of nx rows for nw * 16 dimensions from d on; nx and nw are constants.
 * Between `all0` and `all1` every row sees every key. */
struct attn_tile {
    const float *p[V16_TILE_X];
    int begin[V16_TILE_X], end[V16_TILE_X];
    int lo, all0, all1, hi;
};

INLINE void values_tile(const struct attn_seg *s, enum wtype type, const struct attn_tile *a, int nx,
                        int d, int nw, v16 *out)
{
    v16 acc[V16_TILE_X][8];

#pragma GCC unroll 8
    for (int i = 0; i < nx; i++) {
#pragma GCC unroll 8
        for (int j = 0; j < nw; j++) {
            acc[i][j] = v16_zero();
        }
    }
    for (int key = a->lo; key < a->hi; key++) {
        const void *v = kv_row(s->v_page, s->v_stride, type, key);
        const bool all = key >= a->all0 && key < a->all1;
        v16 b[8];

#pragma GCC unroll 8
        for (int j = 0; j < nw; j++) {
            b[j] = w_load(type, v, d + 16 * j);
        }
#pragma GCC unroll 8
        for (int i = 0; i < nx; i++) {
            if (all || (key >= a->begin[i] && key < a->end[i])) {
                const v16 w = v16_set1(a->p[i][key]);
#pragma GCC unroll 8
                for (int j = 0; j < nw; j++) {
                    acc[i][j] = v16_fma(w, b[j], acc[i][j]);
                }
            }
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < nx; i++) {
#pragma GCC unroll 8
        for (int j = 0; j < nw; j++) {
            out[i * 8 + j] = acc[i][j];
        }
    }
}

INLINE void values_rows(const struct attn_seg *s, enum wtype type, const struct attn_tile *a, int nx,
                        int row)
{
    const int n16 = (s->v_dim + 15) / 16;
    v16 out[V16_TILE_X * 8];

    for (int d = 0; d < n16; ) {
        const int nw = n16 - d >= V16_TILE_W(nx) ? V16_TILE_W(nx) : 1;

        if (nw == 1) {
            values_tile(s, type, a, nx, d * 16, 1, out);
        } else {
            values_tile(s, type, a, nx, d * 16, V16_TILE_W(nx), out);
        }
        for (int i = 0; i < nx; i++) {
            float *o = s->o + (size_t)(row + i) * s->o_stride;

            for (int j = 0; j < nw; j++) {
                const int at = (d + j) * 16, left = s->v_dim - at;

                v16_store_n(o + at, out[i * 8 + j], left < 16 ? left : 16);
            }
        }
        d += nw;
    }
}

INLINE void attn_values(struct attn_rows *a, enum wtype type)
{
    const struct attn_seg *s = a->s;
    const int step = tile_rows(a->n);

    for (int i = 0; i < a->n; i += step) {
        const int n = a->n - i < step ? a->n - i : step, row = a->row0 + i;
        struct attn_tile t = { .all0 = 0, .all1 = ATTN_SEGMENT };

        rows_range(s, row, n, &t.lo, &t.hi);
        for (int r = 0; r < n; r++) {
            t.p[r] = a->p[i + r];
            t.begin[r] = s->k_begin[row + r];
            /* A row without weights sees nothing here. */
            t.end[r] = s->m[row + r] == -INFINITY ? t.begin[r] : s->k_end[row + r];
            t.all0 = t.begin[r] > t.all0 ? t.begin[r] : t.all0;
            t.all1 = t.end[r] < t.all1 ? t.end[r] : t.all1;
        }
        switch (n) {
#if V16_TILE_X >= 6
        case 6: values_rows(s, type, &t, 6, row); break;
        case 5: values_rows(s, type, &t, 5, row); break;
        case 4: values_rows(s, type, &t, 4, row); break;
#endif
#if V16_TILE_X >= 3
        case 3: values_rows(s, type, &t, 3, row); break;
        case 2: values_rows(s, type, &t, 2, row); break;
#endif
        default: values_rows(s, type, &t, 1, row); break;
        }
    }
}

INLINE void attn_typed(const struct attn_seg *s, enum wtype type)
{
    struct attn_rows a = { .s = s };

    for (a.row0 = 0; a.row0 < s->n_q; a.row0 += a.n) {
        a.n = s->n_q - a.row0 < ATTN_ROWS ? s->n_q - a.row0 : ATTN_ROWS;
        rows_range(s, a.row0, a.n, &a.lo, &a.hi);
        attn_scores(&a, type);
        for (int i = 0; i < a.n; i++) {
            attn_softmax(s, a.row0 + i, a.p[i]);
        }
        attn_values(&a, type);
    }
}

static void attn_segment(const struct attn_seg *s)
{
    if (s->kv == KV_F16) {
        attn_typed(s, W_F16);
    } else {
        attn_typed(s, W_F32);
    }
}

/* exp of one value, as a lane of the vector function. */
INLINE float exp1(float x)
{
    float t[16];

    v16_store(t, v16_exp(v16_set1(x)));
    return t[0];
}

static void attn_fold(float *m, float *l, float *o, float m_s, float l_s, const float *o_s, int n)
{
    if (m_s == -INFINITY) {
        return;
    }
    const float top = *m > m_s ? *m : m_s, a = exp1(*m - top), b = exp1(m_s - top);
    const v16 va = v16_set1(a), vb = v16_set1(b);
    int i = 0;

    *m = top;
    *l = fmaf(l_s, b, *l * a);
    for (; i + 16 <= n; i += 16) {
        v16_store(o + i, v16_fma(v16_load(o_s + i), vb, v16_mul(v16_load(o + i), va)));
    }
    if (i < n) {
        const v16 x = v16_load_n(o + i, n - i), y = v16_load_n(o_s + i, n - i);
        v16_store_n(o + i, v16_fma(y, vb, v16_mul(x, va)), n - i);
    }
}

static void attn_finish(float *o, float l, int n)
{
    const float inv = 1.0f / l;

    if (l == 0.0f) {
        memset(o, 0, (size_t)n * sizeof *o);
    } else {
        row_scale(o, inv, n);
    }
}

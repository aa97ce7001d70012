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

/* Keys and values are asked for this many positions ahead: half a page, so that four
 * keys in a row have their successors in one page too. */
enum { ATTN_AHEAD = KV_PAGE / 2 };

/* Up to ATTN_DIRECT tiles of queries each widen keys and values in registers; more share
 * a widened copy, of keys with at most ATTN_WIDE floats. */
enum { ATTN_DIRECT = 2, ATTN_WIDE = 512 };

struct attn_rows {
    const struct attn_seg *s;
    int row0, n;                         /* rows row0..row0+n-1 of the segment */
    int step;                            /* rows of a tile; the last one may have less */
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

/* The sixteen keys from `key` on.  Beyond the range a key that is in it stands in; its
 * score is not used. */
INLINE void key_rows(const struct attn_rows *a, enum wtype type, int key, const void *k[16])
{
    for (int j = 0; j < 16; j++) {
        const int at = key + j < a->lo ? a->lo : key + j < a->hi ? key + j : a->hi - 1;

        k[j] = kv_row(a->s->k_page, a->s->k_stride, type, at);
    }
}

/* Products of one block of sixteen keys with all rows that may see it. */
INLINE void score_block(struct attn_rows *a, enum wtype type, const void *const k[16], int key,
                        const char *ahead)
{
    const struct attn_seg *s = a->s;

    for (int i = 0; i < a->n; i += a->step) {
        const int n = a->n - i < a->step ? a->n - i : a->step;
        const float *q[V16_TILE_X] = { NULL };
        int lo, hi;

        rows_range(s, a->row0 + i, n, &lo, &hi);
        if (key + 16 <= lo || key >= hi) {
            continue;
        }
        for (int r = 0; r < n; r++) {
            q[r] = s->q + s->q_off[a->row0 + i + r];
        }
        dot_group(type, k, q, n, s->k_dim, ahead, &a->p[i][key], ATTN_SEGMENT);
        ahead = NULL;
    }
}

/* Raw products of the rows with all keys. */
INLINE void attn_scores(struct attn_rows *a, enum wtype type)
{
    const struct attn_seg *s = a->s;
    const int k16 = (s->k_dim + 15) / 16 * 16;
    const bool dense = s->k_stride == s->k_dim;
    float wide[16][ATTN_WIDE];

    for (int key = a->lo & ~15; key < a->hi; key += 16) {
        const void *k[16];
        const char *ahead = key + ATTN_AHEAD < a->hi
            ? kv_row(s->k_page, s->k_stride, type, key + ATTN_AHEAD) : NULL;

        key_rows(a, type, key, k);
        if (ahead && !dense) {
            for (int j = 0; j < 16; j++) {
                prefetch(ahead + (size_t)(j * s->k_stride) * w_bytes(type),
                         (size_t)s->k_dim * w_bytes(type));
            }
            ahead = NULL;
        }
        if (type == W_F16 && a->n > ATTN_DIRECT * a->step && k16 <= ATTN_WIDE) {
            for (int j = 0; j < 16; j++) {
                if (ahead) {
                    prefetch(ahead + (size_t)(j * s->k_stride) * w_bytes(type),
                             (size_t)s->k_dim * w_bytes(type));
                }
                for (int d = 0; d < k16; d += 16) {
                    v16_store(&wide[j][d], w_load(type, k[j], d));
                }
                k[j] = wide[j];
            }
            score_block(a, W_F32, k, key, NULL);
        } else {
            score_block(a, type, k, key, ahead);
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

/* A tile of rows in one page of values. */
struct attn_tile {
    const float *p;        /* weights of the first row at key 0; rows ATTN_SEGMENT apart */
    const int *begin, *end;
    int lo, hi;            /* the keys of this page, relative to it */
    int all0, all1;        /* those that every row sees */
    int key0;              /* position of the page */
    bool first;            /* o starts at zero here */
};

/* Adds one key's values to the rows; `all` tells that each row sees it. */
INLINE void values_key(const struct attn_tile *t, enum wtype type, const void *v, int key, int nx,
                       int nw, bool all, v16 acc[V16_TILE_X][8])
{
    v16 b[8];

#pragma GCC unroll 8
    for (int j = 0; j < nw; j++) {
        b[j] = w_load(type, v, 16 * j);
    }
#pragma GCC unroll 8
    for (int i = 0; i < nx; i++) {
        if (all || (key >= t->begin[i] && key < t->end[i])) {
            const v16 w = v16_set1(t->p[i * ATTN_SEGMENT + key]);
#pragma GCC unroll 8
            for (int j = 0; j < nw; j++) {
                acc[i][j] = v16_fma(w, b[j], acc[i][j]);
            }
        }
    }
}

/* Weighted values of nx rows in nw * 16 dimensions; nx and nw are constants.  v: the
 * dimensions of the page's first key, keys `stride` bytes apart.  o: left floats of each
 * row are stored, if these are less than all. */
INLINE void values_tile(const struct attn_tile *t, enum wtype type, const char *v, size_t stride,
                        int nx, int nw, const char *ahead, float *o, size_t o_stride, int left)
{
    const size_t ahead_bytes = (size_t)nw * 16 * w_bytes(type);
    v16 acc[V16_TILE_X][8];

#pragma GCC unroll 8
    for (int i = 0; i < nx; i++) {
#pragma GCC unroll 8
        for (int j = 0; j < nw; j++) {
            const float *at = o + (size_t)i * o_stride + j * 16;
            const int n = left - j * 16;

            acc[i][j] = t->first ? v16_zero() : n < 16 ? v16_load_n(at, n) : v16_load(at);
        }
    }
    int key = t->lo;

    for (; key < t->all0; key++) {
        values_key(t, type, v + (size_t)key * stride, t->key0 + key, nx, nw, false, acc);
    }
    for (; key < t->all1; key++) {
        if (ahead) {
            prefetch(ahead + (size_t)key * stride, ahead_bytes);
        }
        values_key(t, type, v + (size_t)key * stride, t->key0 + key, nx, nw, true, acc);
    }
    for (; key < t->hi; key++) {
        values_key(t, type, v + (size_t)key * stride, t->key0 + key, nx, nw, false, acc);
    }
#pragma GCC unroll 8
    for (int i = 0; i < nx; i++) {
#pragma GCC unroll 8
        for (int j = 0; j < nw; j++) {
            float *at = o + (size_t)i * o_stride + j * 16;
            const int n = left - j * 16;

            if (n < 16) {
                v16_store_n(at, acc[i][j], n);
            } else {
                v16_store(at, acc[i][j]);
            }
        }
    }
}

/* nx and nw known only now: nw is V16_TILE_W(nx), V16_TILE_W(V16_TILE_X) or 1. */
INLINE void values_sized(const struct attn_tile *t, enum wtype type, const char *v, size_t stride,
                         int nx, int nw, const char *ahead, float *o, size_t o_stride, int left)
{
#define VALUES(x)                                                                             \
    case x:                                                                                   \
        if (nw == 1) {                                                                        \
            values_tile(t, type, v, stride, x, 1, ahead, o, o_stride, left);                  \
        } else if (nw == V16_TILE_W(V16_TILE_X)) {                                            \
            values_tile(t, type, v, stride, x, V16_TILE_W(V16_TILE_X), ahead, o, o_stride,    \
                        left);                                                                \
        } else {                                                                              \
            values_tile(t, type, v, stride, x, V16_TILE_W(x), ahead, o, o_stride, left);      \
        }                                                                                     \
        break;
    switch (nx) {
    VALUES(1)
#if V16_TILE_X >= 3
    VALUES(2)
    VALUES(3)
#endif
#if V16_TILE_X >= 6
    VALUES(4)
    VALUES(5)
    VALUES(6)
#endif
    }
#undef VALUES
}

/* Prepares the tile of rows i.. for the page; false if none of them sees any of it. */
INLINE bool tile_in_page(const struct attn_rows *a, int i, int n, int page, const int *begin,
                         const int *end, struct attn_tile *t)
{
    const int key0 = page * KV_PAGE;
    int lo = ATTN_SEGMENT, hi = 0, all0 = 0, all1 = ATTN_SEGMENT;

    for (int r = i; r < i + n; r++) {
        if (begin[r] < end[r]) {
            lo = begin[r] < lo ? begin[r] : lo;
            hi = end[r] > hi ? end[r] : hi;
        }
        all0 = begin[r] > all0 ? begin[r] : all0;
        all1 = end[r] < all1 ? end[r] : all1;
    }
    t->p = a->p[i];
    t->begin = begin + i;
    t->end = end + i;
    t->key0 = key0;
    t->first = lo >= key0;
    t->lo = lo > key0 ? lo - key0 : 0;
    t->hi = hi < key0 + KV_PAGE ? hi - key0 : KV_PAGE;
    t->all0 = all0 - key0 < t->lo ? t->lo : all0 - key0 < t->hi ? all0 - key0 : t->hi;
    t->all1 = all1 - key0 < t->hi ? all1 - key0 : t->hi;
    return t->lo < t->hi;
}

/* o of all rows, page by page, so that a page stays in the first cache for all of them. */
INLINE void attn_values(struct attn_rows *a, enum wtype type)
{
    const struct attn_seg *s = a->s;
    const int n16 = (s->v_dim + 15) / 16;
    const int nw_max = V16_TILE_W(a->n > a->step ? V16_TILE_X : a->n);
    float wide[KV_PAGE][V16_TILE_W(V16_TILE_X) * 16];
    int begin[ATTN_ROWS], end[ATTN_ROWS];

    for (int i = 0; i < a->n; i++) {
        begin[i] = s->k_begin[a->row0 + i];
        /* A row without weights sees nothing here. */
        end[i] = s->m[a->row0 + i] == -INFINITY ? 0 : s->k_end[a->row0 + i];
        if (begin[i] >= end[i]) {
            memset(s->o + (size_t)(a->row0 + i) * s->o_stride, 0,
                   (size_t)s->v_dim * sizeof *s->o);
        }
    }
    for (int page = a->lo / KV_PAGE; page * KV_PAGE < a->hi; page++) {
        const int lo = a->lo > page * KV_PAGE ? a->lo - page * KV_PAGE : 0;
        const int hi = a->hi < (page + 1) * KV_PAGE ? a->hi - page * KV_PAGE : KV_PAGE;
        const size_t stride = (size_t)s->v_stride * w_bytes(type);

        for (int d = 0, nw; d < n16; d += nw) {
            const size_t at = (size_t)d * 16 * w_bytes(type);
            const char *v = (const char *)s->v_page[page] + at;
            const char *ahead = hi == KV_PAGE && (page + 1) * KV_PAGE < a->hi
                ? (const char *)s->v_page[page + 1] + at : NULL;
            const bool widen = type == W_F16 && a->n > ATTN_DIRECT * a->step;

            nw = n16 - d >= nw_max ? nw_max : 1;
            for (int key = lo; widen && key < hi; key++) {
                if (ahead) {
                    prefetch(ahead + (size_t)key * stride, (size_t)nw * 16 * w_bytes(type));
                }
                for (int j = 0; j < nw; j++) {
                    v16_store(&wide[key][16 * j], w_load(type, v + (size_t)key * stride, 16 * j));
                }
            }
            for (int i = 0; i < a->n; i += a->step) {
                const int n = a->n - i < a->step ? a->n - i : a->step;
                float *o = s->o + (size_t)(a->row0 + i) * s->o_stride + d * 16;
                struct attn_tile t;

                if (!tile_in_page(a, i, n, page, begin, end, &t)) {
                    continue;
                }
                if (widen) {
                    values_sized(&t, W_F32, (const char *)wide, sizeof wide[0], n, nw, NULL, o,
                                 s->o_stride, s->v_dim - d * 16);
                } else {
                    values_sized(&t, type, v, stride, n, nw, i ? NULL : ahead, o, s->o_stride,
                                 s->v_dim - d * 16);
                }
            }
        }
    }
}

INLINE void attn_typed(const struct attn_seg *s, enum wtype type)
{
    struct attn_rows a = { .s = s };

    for (a.row0 = 0; a.row0 < s->n_q; a.row0 += a.n) {
        a.n = s->n_q - a.row0 < ATTN_ROWS ? s->n_q - a.row0 : ATTN_ROWS;
        a.step = tile_rows(a.n);
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

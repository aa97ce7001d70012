/* attn.inc.c - attention over one segment of keys, and the fold of segments.
 *
 * Included by isa.inc.c after ops.inc.c, fmat.inc.c and kv_q8.inc.c, once per instruction set.
 *
 * What defines each output (positions are relative to the segment, a row sees
 * [begin, end)):
 *   score   one v16 chain over the head (tail padded by zeros) and the tree, then one
 *           multiplication by scale, then cap * tanh(s / cap) where there is a cap; with
 *           quantised keys the chain over blocks of kv_q8.inc.c in place of the first;
 *   m       the largest score of the row: lanes are position mod 16, then the tree of
 *           v16_max_lane; max only chooses, so it has no rounding;
 *   p       exp(s - m);
 *   l       one v16 chain of additions, lanes are position mod 16, in ascending order;
 *           positions that the row does not see add a zero; then the tree;
 *   o[d]    one chain o = fma(p, v[d], o) over the keys the row sees, ascending, from 0.
 * Rows that share a call share loads, nothing else.  What no row sees is not read. */

/* Rows whose scores are on the stack at a time: a multiple of the tile, and few enough for the
 * first cache. */
enum { ATTN_ROWS = 24 };

/* Up to ATTN_DIRECT tiles of queries each widen keys and values in registers; more share
 * a copy. */
enum { ATTN_DIRECT = 2 };

struct attn_rows {
    const struct attn_seg *s;
    int row0, n;                         /* rows row0..row0+n-1 of the segment */
    int step;                            /* rows of a tile; the last one may have less */
    int lo, hi;                          /* keys that at least one of them sees */
    const float *keys, *values;          /* copies of the segment, or NULL; see there */
    /* Scores, then weights.  The last tile may write rows behind a->n. */
    _Alignas(64) float p[ATTN_ROWS + V16_TILE_X - 1][ATTN_SEGMENT];
};

INLINE const void *kv_row(const void *const *page, int stride, enum wtype type, int key)
{
    const size_t at = (size_t)(key % KV_PAGE) * (size_t)stride * w_bytes(type);

    return (const char *)page[key / KV_PAGE] + at;
}

INLINE int clamp_int(int x, int lo, int hi)
{
    return x < lo ? lo : x > hi ? hi : x;
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

/* The rows of the tile that begins at row i; false where none of them sees a key in
 * [key, end). */
INLINE bool score_tile(const struct attn_rows *a, int i, int key, int end, int *n,
                       const float **q)
{
    const struct attn_seg *s = a->s;
    int lo, hi;

    *n = a->n - i < a->step ? a->n - i : a->step;
    rows_range(s, a->row0 + i, *n, &lo, &hi);
    for (int r = 0; r < V16_TILE_X; r++) {
        q[r] = s->q + s->q_off[a->row0 + i + (r < *n ? r : *n - 1)];
    }
    return lo < end && key < hi;
}

/* What will be read a page of positions after the keys of page `page`: the next keys, then the
 * first values. */
INLINE const void *page_ahead(const struct attn_rows *a, int page)
{
    const bool keys = (page + 1) * KV_PAGE < a->hi;

    return keys ? a->s->k_page[page + 1] : a->s->v_page[a->lo / KV_PAGE];
}

/* Raw products of few rows with all keys, as these lie in memory. */
static void attn_scores(struct attn_rows *a, enum wtype type)
{
    const struct attn_seg *s = a->s;
    const bool dense = s->k_stride == s->k_dim;

    for (int key = a->lo & ~15; key < a->hi; key += 16) {
        const void *k[16];
        const char *ahead = (const char *)page_ahead(a, key / KV_PAGE) +
                            (size_t)(key % KV_PAGE) * (size_t)s->k_stride * w_bytes(type);

        key_rows(a, type, key, k);
        if (!dense) {
            for (int j = 0; j < 16; j++) {
                prefetch(ahead + (size_t)(j * s->k_stride) * w_bytes(type),
                         (size_t)s->k_dim * w_bytes(type));
            }
            ahead = NULL;
        }
        for (int i = 0, n; i < a->n; i += a->step) {
            const float *q[V16_TILE_X];

            if (score_tile(a, i, key, key + 16, &n, q)) {
                dot_groups[type](k, q, n, s->k_dim, ahead, &a->p[i][key], ATTN_SEGMENT);
                ahead = NULL;
            }
        }
    }
}

/* Keys as lanes: with many rows it pays to widen and transpose the keys, and then neither a
 * product nor the tree needs a shuffle.  The copy is [key / KEY_LANES][lane of the definition]
 * [dim / 16][KEY_LANES]; the head is a multiple of 16. */
enum { KEY_LANES = 16 * V16_KEY_GROUPS };

static void turn_keys(const struct attn_rows *a, enum wtype type, float *to)
{
    const struct attn_seg *s = a->s;

    for (int key = a->lo / 16 * 16; key < a->hi; key += 16) {
        float *block = to + key / KEY_LANES * KEY_LANES * s->k_dim + key % KEY_LANES;
        const void *k[16];

        key_rows(a, type, key, k);
        for (int d = 0; d < s->k_dim; d += 16) {
            v16 t[16];

            for (int j = 0; j < 16; j++) {
                t[j] = w_load(type, k[j], d);
            }
            v16_transpose(t, block + d / 16 * KEY_LANES, (size_t)(s->k_dim / 16 * KEY_LANES));
        }
    }
}

/* Scores of V16_TILE_X rows with KEY_LANES turned keys.  The chains of the sixteen lanes of the
 * definition come in an order in which the tree adds them as a counter carries: lanes 0 8, 4 12,
 * 2 10, 6 14, 1 9, 5 13, 3 11, 7 15. */
static NOINLINE void turned_scores(const float *turned, const float *const *q, int dim, float *y)
{
    const int n_step = dim / 16;
    v16 part[3][V16_TILE_X][V16_KEY_GROUPS];

#pragma GCC unroll 8
    for (int step = 0; step < 8; step++) {
        const int lane = (step & 1) << 2 | (step & 2) | step >> 2;
        const float *ka = turned + (size_t)(lane * n_step) * KEY_LANES;
        const float *kb = ka + (size_t)(8 * n_step) * KEY_LANES;
        v16 a[V16_TILE_X][V16_KEY_GROUPS], b[V16_TILE_X][V16_KEY_GROUPS];
        int level = 0;

#pragma GCC unroll 8
        for (int t = 0; t < V16_TILE_X; t++) {
#pragma GCC unroll 8
            for (int g = 0; g < V16_KEY_GROUPS; g++) {
                a[t][g] = b[t][g] = v16_zero();
            }
        }
        for (int d = lane; d < dim; d += 16) {
#pragma GCC unroll 8
            for (int t = 0; t < V16_TILE_X; t++) {
                const v16 qa = v16_set1(q[t][d]), qb = v16_set1(q[t][d + 8]);
#pragma GCC unroll 8
                for (int g = 0; g < V16_KEY_GROUPS; g++) {
                    a[t][g] = v16_fma(v16_load(ka + 16 * g), qa, a[t][g]);
                    b[t][g] = v16_fma(v16_load(kb + 16 * g), qb, b[t][g]);
                }
            }
            ka += KEY_LANES;
            kb += KEY_LANES;
        }
#pragma GCC unroll 8
        for (int t = 0; t < V16_TILE_X; t++) {
#pragma GCC unroll 8
            for (int g = 0; g < V16_KEY_GROUPS; g++) {
                a[t][g] = v16_add(a[t][g], b[t][g]);
            }
        }
#pragma GCC unroll 4
        for (; step >> level & 1; level++) {
#pragma GCC unroll 8
            for (int t = 0; t < V16_TILE_X; t++) {
#pragma GCC unroll 8
                for (int g = 0; g < V16_KEY_GROUPS; g++) {
                    a[t][g] = v16_add(part[level][t][g], a[t][g]);
                }
            }
        }
#pragma GCC unroll 8
        for (int t = 0; t < V16_TILE_X; t++) {
#pragma GCC unroll 8
            for (int g = 0; g < V16_KEY_GROUPS; g++) {
                if (level < 3) {
                    part[level][t][g] = a[t][g];
                } else {
                    v16_store(y + t * ATTN_SEGMENT + 16 * g, a[t][g]);
                }
            }
        }
    }
}

/* Raw products of many rows with all keys. */
static void attn_scores_turned(struct attn_rows *a)
{
    const int dim = a->s->k_dim;

    for (int key = a->lo / KEY_LANES * KEY_LANES; key < a->hi; key += KEY_LANES) {
        for (int i = 0, n; i < a->n; i += a->step) {
            const float *q[V16_TILE_X];

            if (score_tile(a, i, key, key + KEY_LANES, &n, q)) {
                turned_scores(a->keys + key * dim, q, dim, &a->p[i][key]);
            }
        }
    }
}

/* The same with quantised keys, page by page, so that a page stays in the first cache for all. */
static void attn_scores_q8(struct attn_rows *a)
{
    const struct attn_seg *s = a->s;
    struct q8_query q[ATTN_ROWS];

    for (int i = 0; i < a->n; i++) {
        q8_query_init(&q[i], s->q + s->q_off[a->row0 + i], s->k_dim, q8_blocks(s->k_stride));
    }
    for (int page = a->lo / KV_PAGE; page * KV_PAGE < a->hi; page++) {
        const int key0 = page * KV_PAGE;
        const void *ahead = page_ahead(a, page);

        for (int i = 0; i < a->n; i += a->step) {
            const int n = a->n - i < a->step ? a->n - i : a->step;
            int lo, hi;

            rows_range(s, a->row0 + i, n, &lo, &hi);
            lo = clamp_int(lo - key0, 0, KV_PAGE);
            hi = clamp_int(hi - key0, 0, KV_PAGE);
            if (lo < hi) {
                q8_page(&q[i], n, s->k_page[page], s->k_stride, lo, hi, ahead, &a->p[i][key0],
                        ATTN_SEGMENT);
                ahead = NULL;
            }
        }
    }
}

/* Scale, cap and mask of one row's scores, and their maximum: s->m.  Scores of positions outside
 * [begin, end) but in a block of sixteen with it become -inf, so that their weights are 0. */
static void attn_maximum(const struct attn_seg *s, int row, float *p)
{
    static const float lanes[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
    const int begin = s->k_begin[row], end = s->k_end[row];
    const v16 scale = v16_set1(s->scale), cap = v16_set1(s->softcap);
    const v16 none = v16_set1(-INFINITY), lane = v16_load(lanes);
    const bool capping = s->softcap != 0.0f;
    v16 m = none;

    for (int t = begin & ~15; t < end; t += 16) {
        v16 x = v16_mul(v16_load(p + t), scale);

        if (capping) {
            x = capped(x, cap);
        }
        if (t < begin || t + 16 > end) {
            x = v16_less(lane, v16_set1((float)(begin - t)), none, x);
            x = v16_less(lane, v16_set1((float)(end - t)), x, none);
        }
        v16_store(p + t, x);
        m = v16_max(x, m);
    }
    s->m[row] = v16_max_lane(m);
}

/* The weights of one row and their sum, s->l; both want s->m. */
static void attn_weights(const struct attn_seg *s, int row, float *p)
{
    const v16 top = v16_set1(s->m[row]);
    v16 l = v16_zero();

    s->l[row] = 0.0f;
    if (s->m[row] == -INFINITY) {
        return;
    }
    for (int t = s->k_begin[row] & ~15; t < s->k_end[row]; t += 16) {
        const v16 e = v16_exp_low(v16_sub(v16_load(p + t), top));

        v16_store(p + t, e);
        l = v16_add(l, e);
    }
    s->l[row] = v16_sum(l);
}

/* Weights of all rows.  Two passes, so that the maximum of a row is found beside the work on
 * others. */
static void attn_softmax(struct attn_rows *a)
{
    for (int i = 0; i < a->n; i++) {
        attn_maximum(a->s, a->row0 + i, a->p[i]);
    }
    for (int i = 0; i < a->n; i++) {
        attn_weights(a->s, a->row0 + i, a->p[i]);
    }
}

/* Vector j of a row of values; with W_CODE the row's scales begin at scale[at]. */
INLINE v16 value_load(enum wtype type, const char *row, const uint16_t *scale, int at, int j)
{
    const v16 x = w_load(type, row, 16 * j);

    return type == W_CODE ? v16_mul(x, v16_set1_f16(scale[at + j / 2])) : x;
}

/* Adds the values of keys [from, to) of a page to nx rows of o, in nw * 16 dimensions; with
 * nw 1 only `left` of them may exist.  nx and nw are constants.  p: weights of the first row at
 * the page's first key, rows ATTN_SEGMENT apart.  v: the dimensions of the page's first key, keys
 * `stride` bytes apart; `ahead` the same in the page that is read next, or NULL.  scale: with
 * W_CODE the scales of each two vectors of the page's first key, keys n_scale apart. */
INLINE void values_tile(enum wtype type, const float *p, const char *v, size_t stride,
                        const uint16_t *scale, int n_scale, int from, int to, int nx, int nw,
                        const char *ahead, float *o, size_t o_stride, int left)
{
    const size_t ahead_bytes = (size_t)nw * 16 * w_bytes(type);
    v16 acc[V16_TILE_X][8];

#pragma GCC unroll 8
    for (int i = 0; i < nx; i++) {
#pragma GCC unroll 8
        for (int j = 0; j < nw; j++) {
            const float *at = o + (size_t)i * o_stride + j * 16;

            acc[i][j] = nw == 1 && left < 16 ? v16_load_n(at, left) : v16_load(at);
        }
    }
    for (int key = from; key < to; key++) {
        const char *row = v + (size_t)key * stride;
        v16 b[8];

        if (ahead) {
            prefetch(ahead + (size_t)key * stride, ahead_bytes);
        }
#pragma GCC unroll 8
        for (int j = 0; j < nw; j++) {
            b[j] = value_load(type, row, scale, key * n_scale, j);
        }
#pragma GCC unroll 8
        for (int i = 0; i < nx; i++) {
            const v16 w = v16_set1(p[i * ATTN_SEGMENT + key]);
#pragma GCC unroll 8
            for (int j = 0; j < nw; j++) {
                acc[i][j] = v16_fma(w, b[j], acc[i][j]);
            }
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < nx; i++) {
#pragma GCC unroll 8
        for (int j = 0; j < nw; j++) {
            float *at = o + (size_t)i * o_stride + j * 16;

            if (nw == 1 && left < 16) {
                v16_store_n(at, acc[i][j], left);
            } else {
                v16_store(at, acc[i][j]);
            }
        }
    }
}

/* Vectors of a tile with as many rows as there may be. */
enum { VALUES_WIDTH = V16_TILE_W(V16_TILE_X) };

/* nx and nw known only now: nw is V16_TILE_W(nx), VALUES_WIDTH or 1. */
INLINE void values_any(enum wtype type, const float *p, const char *v, size_t stride,
                       const uint16_t *scale, int n_scale, int from, int to, int nx, int nw,
                       const char *ahead, float *o, size_t o_stride, int left)
{
#define VALUES(x, w) \
    values_tile(type, p, v, stride, scale, n_scale, from, to, x, w, ahead, o, o_stride, left)
#define VALUES_CASE(x)                          \
    case x:                                     \
        if (nw == 1) {                          \
            VALUES(x, 1);                       \
        } else if (nw == VALUES_WIDTH) {        \
            VALUES(x, VALUES_WIDTH);            \
        } else {                                \
            VALUES(x, V16_TILE_W(x));           \
        }                                       \
        break;
    switch (nx) {
    VALUES_CASE(1)
#if V16_TILE_X >= 3
    VALUES_CASE(2)
    VALUES_CASE(3)
#endif
#if V16_TILE_X >= 6
    VALUES_CASE(4)
    VALUES_CASE(5)
    VALUES_CASE(6)
#endif
    }
#undef VALUES_CASE
#undef VALUES
}

/* One copy for each type of a cache. */
typedef void values_fn(const float *p, const char *v, size_t stride, const uint16_t *scale,
                       int n_scale, int from, int to, int nx, int nw, const char *ahead, float *o,
                       size_t o_stride, int left);

#define VALUES_FN(name, type)                                                                     \
    static NOINLINE void name(const float *p, const char *v, size_t stride, const uint16_t *scale, \
                              int n_scale, int from, int to, int nx, int nw, const char *ahead,   \
                              float *o, size_t o_stride, int left)                                \
    {                                                                                             \
        values_any(type, p, v, stride, scale, n_scale, from, to, nx, nw, ahead, o, o_stride,      \
                   left);                                                                         \
    }
VALUES_FN(values_f32, W_F32)
VALUES_FN(values_f16, W_F16)
VALUES_FN(values_q8, W_CODE)
#undef VALUES_FN

/* Where the values of a page are read: of its first key, keys `stride` bytes apart. */
struct page_values {
    values_fn *fn;
    const char *v;
    size_t stride;
    const uint16_t *scale;   /* as in values_tile */
    int n_scale;
    const char *ahead;
};

/* The rows i..i+n-1 of a and keys [from, to), each row in ascending order: keys between which no
 * row begins or ends are done together for neighbours that see them.  o: of the first row. */
static void values_rows(const struct attn_rows *a, int i, int n, int from, int to,
                        const struct page_values *v, int nw, float *o, int left)
{
    const struct attn_seg *s = a->s;
    int begin[V16_TILE_X], end[V16_TILE_X];

    for (int j = 0; j < n; j++) {
        const int row = a->row0 + i + j;

        begin[j] = s->k_begin[row];
        /* A row without weights sees nothing here. */
        end[j] = s->m[row] == -INFINITY ? 0 : s->k_end[row];
    }
    for (int key = from, next; key < to; key = next) {
        next = to;
        for (int j = 0; j < n; j++) {
            next = begin[j] > key && begin[j] < next ? begin[j] : next;
            next = end[j] > key && end[j] < next ? end[j] : next;
        }
        for (int j = 0, j1; j < n; j = j1 + 1) {
            for (j1 = j; j1 < n && begin[j1] <= key && key < end[j1]; j1++) {
            }
            if (j < j1) {
                v->fn(a->p[i + j] + from, v->v, v->stride, v->scale, v->n_scale, key - from,
                      next - from, j1 - j, nw, v->ahead, o + (size_t)j * s->o_stride, s->o_stride,
                      left);
            }
        }
    }
}

/* The values of a page from dimension 16 * d on; `next` is the page that is read after it,
 * or NULL. */
static struct page_values values_at(const struct attn_seg *s, enum wtype type, const void *page,
                                    const void *next, int d)
{
    const bool coded = type == W_CODE;
    const size_t at = (size_t)d * 16 * w_bytes(type) +
                      (coded ? (const char *)q8_codes(page, s->v_stride) - (const char *)page : 0);

    return (struct page_values){
        .fn = type == W_F32 ? values_f32 : type == W_F16 ? values_f16 : values_q8,
        .v = (const char *)page + at,
        .stride = (size_t)s->v_stride * w_bytes(type),
        .scale = coded ? (const uint16_t *)page + d / 2 : NULL,
        .n_scale = coded ? q8_blocks(s->v_stride) : 0,
        .ahead = next ? (const char *)next + at : NULL,
    };
}

/* Vectors that a tile of values takes where `left` dimensions are left and it has nx rows. */
static int values_width(int left, int nx)
{
    (void)nx;  /* where the width is one constant */
    return left >= 16 * V16_TILE_W(nx) ? V16_TILE_W(nx) : 1;
}

/* Values as floats, for many rows: [dim / 16 / nw][key][nw * 16] with nw as attn_values takes. */
static void widen_values(const struct attn_rows *a, enum wtype type, float *to)
{
    const struct attn_seg *s = a->s;
    const int n16 = (s->v_dim + 15) / 16;

    for (int page = a->lo / KV_PAGE; page * KV_PAGE < a->hi; page++) {
        const int key0 = page * KV_PAGE;
        const int lo = clamp_int(a->lo - key0, 0, KV_PAGE);
        const int hi = clamp_int(a->hi - key0, 0, KV_PAGE);
        const void *next = key0 + KV_PAGE < a->hi ? s->v_page[page + 1] : s->next;

        for (int d = 0, nw; d < n16; d += nw) {
            const struct page_values v = values_at(s, type, s->v_page[page], next, d);
            float *wide = to + (size_t)d * 16 * ATTN_SEGMENT;

            nw = values_width(s->v_dim - 16 * d, V16_TILE_X);
            for (int key = lo; key < hi; key++) {
                const char *row = v.v + (size_t)key * v.stride;

                if (v.ahead) {
                    prefetch(v.ahead + (size_t)key * v.stride, (size_t)nw * 16 * w_bytes(type));
                }
                for (int j = 0; j < nw; j++) {
                    v16_store(wide + ((key0 + key) * nw + j) * 16,
                              value_load(type, row, v.scale, key * v.n_scale, j));
                }
            }
        }
    }
}

/* o of all rows: by the copy at once, else page by page, so that a page stays in the first cache
 * for all of them. */
static void attn_values(struct attn_rows *a, enum wtype type)
{
    const struct attn_seg *s = a->s;
    const int n16 = (s->v_dim + 15) / 16, keys = a->values ? ATTN_SEGMENT : KV_PAGE;
    const int nx = a->n > a->step || a->values ? V16_TILE_X : a->n;

    for (int i = 0; i < a->n; i++) {
        memset(s->o + (size_t)(a->row0 + i) * s->o_stride, 0, (size_t)s->v_dim * sizeof *s->o);
    }
    for (int key0 = a->lo / keys * keys; key0 < a->hi; key0 += keys) {
        const void *page = s->v_page[key0 / KV_PAGE];
        const void *next = key0 + KV_PAGE < a->hi ? s->v_page[key0 / KV_PAGE + 1] : s->next;

        for (int d = 0, nw; d < n16; d += nw) {
            struct page_values v;

            nw = values_width(s->v_dim - 16 * d, nx);
            if (a->values) {
                v = (struct page_values){ values_f32,
                                          (const char *)(a->values + d * 16 * ATTN_SEGMENT),
                                          (size_t)nw * 16 * sizeof(float), NULL, 0, NULL };
            } else {
                v = values_at(s, type, page, next, d);
            }
            for (int i = 0; i < a->n; i += a->step, v.ahead = NULL) {
                const int n = a->n - i < a->step ? a->n - i : a->step;

                values_rows(a, i, n, key0, key0 + keys, &v, nw,
                            s->o + (size_t)(a->row0 + i) * s->o_stride + d * 16,
                            s->v_dim - d * 16);
            }
        }
    }
}

/* Copies of keys and values where these pay and there is room for them. */
static void attn_copies(struct attn_rows *a, enum wtype type)
{
    const struct attn_seg *s = a->s;
    float *to = s->scratch;

    a->keys = a->values = NULL;
    if (!to || s->n_q <= ATTN_DIRECT * V16_TILE_X) {
        return;
    }
    rows_range(s, 0, s->n_q, &a->lo, &a->hi);
    if (type != W_CODE && s->k_dim % 16 == 0) {
        turn_keys(a, type, to);
        a->keys = to;
        to += s->k_dim * ATTN_SEGMENT;
    }
    if (type != W_F32) {
        widen_values(a, type, to);
        a->values = to;
    }
}

static void attn_typed(const struct attn_seg *s, enum wtype type)
{
    struct attn_rows a;

    a.s = s;  /* the scores need no beginning */
    attn_copies(&a, type);
    for (a.row0 = 0; a.row0 < s->n_q; a.row0 += a.n) {
        a.n = s->n_q - a.row0 < ATTN_ROWS ? s->n_q - a.row0 : ATTN_ROWS;
        a.step = tile_rows(a.n);
        rows_range(s, a.row0, a.n, &a.lo, &a.hi);
        if (type == W_CODE) {
            attn_scores_q8(&a);
        } else if (a.keys) {
            attn_scores_turned(&a);
        } else {
            attn_scores(&a, type);
        }
        attn_softmax(&a);
        attn_values(&a, type);
    }
}

static void attn_segment(const struct attn_seg *s)
{
    switch (s->kv) {
    case KV_F32: attn_typed(s, W_F32); break;
    case KV_F16: attn_typed(s, W_F16); break;
    default: attn_typed(s, W_CODE); break;
    }
}

/* exp of one value, as a lane of the vector function. */
INLINE float exp1(float x)
{
    float t[16];

    v16_store(t, v16_exp(v16_set1(x)));
    return t[0];
}

/* o = fma(o_s, 1, 0): an addition of 0, which changes -0. */
static void fold_first(float *o, const float *o_s, int n)
{
    int i = 0;

    for (; i + 16 <= n; i += 16) {
        v16_store(o + i, v16_add(v16_load(o_s + i), v16_zero()));
    }
    if (i < n) {
        v16_store_n(o + i, v16_add(v16_load_n(o_s + i, n - i), v16_zero()), n - i);
    }
}

static void attn_fold(float *m, float *l, float *o, float m_s, float l_s, const float *o_s, int n)
{
    if (m_s == -INFINITY) {
        return;
    }
    if (*m == -INFINITY && m_s < INFINITY) {
        /* The weights of old and new are 0 and 1. */
        *m = m_s;
        *l = l_s;
        fold_first(o, o_s, n);
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

static void attn_finish(float *y, const float *o, float l, int n)
{
    const v16 inv = v16_set1(1.0f / l);
    int i = 0;

    if (l == 0.0f) {
        memset(y, 0, (size_t)n * sizeof *y);
        return;
    }
    for (; i + 16 <= n; i += 16) {
        v16_store(y + i, v16_mul(v16_load(o + i), inv));
    }
    if (i < n) {
        v16_store_n(y + i, v16_mul(v16_load_n(o + i, n - i), inv), n - i);
    }
}

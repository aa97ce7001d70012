/* fmat.inc.c - products with float weights, and the tile of dot products that
 * attention uses for its scores too.
 *
 * Included by isa.inc.c, once per instruction set.  Every output is one v16 chain
 * over k with the tail padded by zeros, then the tree: acc = fma(w, x, acc) for
 * sixteen k at a time in ascending order.  Rows and tokens only share loads. */

/* W_CODE: codes of eight bits, whose scale is not looked at here; for whole vectors only. */
enum wtype { W_F32, W_F16, W_BF16, W_CODE };

INLINE v16 w_load(enum wtype type, const void *row, int i)
{
    switch (type) {
    case W_F32:
        return v16_load((const float *)row + i);
    case W_F16:
        return v16_load_f16((const uint16_t *)row + i);
    case W_CODE:
        return v16_load_i8((const int8_t *)row + i);
    default:
        return v16_load_bf16((const uint16_t *)row + i);
    }
}

INLINE v16 w_load_n(enum wtype type, const void *row, int i, int n)
{
    switch (type) {
    case W_F32:
        return v16_load_n((const float *)row + i, n);
    case W_F16:
        return v16_load_f16_n((const uint16_t *)row + i, n);
    default:
        return v16_load_bf16_n((const uint16_t *)row + i, n);
    }
}

INLINE size_t w_bytes(enum wtype type)
{
    return type == W_F32 ? sizeof(float) : type == W_CODE ? sizeof(int8_t) : sizeof(uint16_t);
}

/* Asks for the lines of `bytes` bytes ahead of their use. */
INLINE void prefetch(const void *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64) {
        __builtin_prefetch((const char *)p + i, 0, 2);
    }
}

/* Chains of nx rows of x with nw rows of w, k long: out[i * 16 + j] for x[i] and w[j].
 * nx and nw are constants, so the accumulators are registers.  Where `ahead` is not NULL,
 * as many bytes as are read from w are asked for from there, spread over the work. */
INLINE void dot_tile(enum wtype type, const void *const *w, int nw, const float *const *x, int nx,
                     int k, const char *ahead, v16 *out)
{
    const size_t step_bytes = (size_t)nw * 16 * w_bytes(type);
    v16 acc[V16_TILE_X][8];
    int i = 0;

#pragma GCC unroll 8
    for (int t = 0; t < nx; t++) {
#pragma GCC unroll 8
        for (int r = 0; r < nw; r++) {
            acc[t][r] = v16_zero();
        }
    }
    for (; i + 16 <= k; i += 16) {
        v16 b[8];

        if (ahead) {
            prefetch(ahead, step_bytes);
            ahead += step_bytes;
        }
#pragma GCC unroll 8
        for (int r = 0; r < nw; r++) {
            b[r] = w_load(type, w[r], i);
        }
#pragma GCC unroll 8
        for (int t = 0; t < nx; t++) {
            const v16 a = v16_load(x[t] + i);
#pragma GCC unroll 8
            for (int r = 0; r < nw; r++) {
                acc[t][r] = v16_fma(b[r], a, acc[t][r]);
            }
        }
    }
    if (i < k) {
        v16 b[8];

#pragma GCC unroll 8
        for (int r = 0; r < nw; r++) {
            b[r] = w_load_n(type, w[r], i, k - i);
        }
#pragma GCC unroll 8
        for (int t = 0; t < nx; t++) {
            const v16 a = v16_load_n(x[t] + i, k - i);
#pragma GCC unroll 8
            for (int r = 0; r < nw; r++) {
                acc[t][r] = v16_fma(b[r], a, acc[t][r]);
            }
        }
    }
#pragma GCC unroll 8
    for (int t = 0; t < nx; t++) {
#pragma GCC unroll 8
        for (int r = 0; r < nw; r++) {
            out[t * 16 + r] = acc[t][r];
        }
    }
}

/* Sixteen rows of w with nx rows of x: y[i * ldy + j], 16 floats for each i.  The memory
 * at `ahead` will be read next, if it is not NULL. */
INLINE void dot_group_n(enum wtype type, const void *const w[16], const float *const *x, int nx,
                        int k, const char *ahead, float *y, size_t ldy)
{
    const size_t row_bytes = (size_t)k * w_bytes(type);
    v16 acc[V16_TILE_X * 16];

    for (int j = 0; j < 16; j += V16_TILE_W(nx)) {
        const char *next = ahead ? ahead + (size_t)j * row_bytes : NULL;

        dot_tile(type, w + j, V16_TILE_W(nx), x, nx, k, next, acc + j);
    }
    for (int i = 0; i < nx; i++) {
        v16_sum16(acc + i * 16, y + (size_t)i * ldy);
    }
}

/* The same for nx in 1..V16_TILE_X known only now. */
INLINE void dot_group_any(enum wtype type, const void *const w[16], const float *const *x, int nx,
                          int k, const char *ahead, float *y, size_t ldy)
{
    switch (nx) {
#if V16_TILE_X >= 6
    case 6: dot_group_n(type, w, x, 6, k, ahead, y, ldy); break;
    case 5: dot_group_n(type, w, x, 5, k, ahead, y, ldy); break;
    case 4: dot_group_n(type, w, x, 4, k, ahead, y, ldy); break;
#endif
#if V16_TILE_X >= 3
    case 3: dot_group_n(type, w, x, 3, k, ahead, y, ldy); break;
    case 2: dot_group_n(type, w, x, 2, k, ahead, y, ldy); break;
#endif
    default: dot_group_n(type, w, x, 1, k, ahead, y, ldy); break;
    }
}

/* One copy for each type; products and attention call the same. */
typedef void dot_group_fn(const void *const w[16], const float *const *x, int nx, int k,
                          const char *ahead, float *y, size_t ldy);

static NOINLINE void dot_group_f32(const void *const w[16], const float *const *x, int nx, int k,
                                   const char *ahead, float *y, size_t ldy)
{
    dot_group_any(W_F32, w, x, nx, k, ahead, y, ldy);
}

static NOINLINE void dot_group_f16(const void *const w[16], const float *const *x, int nx, int k,
                                   const char *ahead, float *y, size_t ldy)
{
    dot_group_any(W_F16, w, x, nx, k, ahead, y, ldy);
}

static NOINLINE void dot_group_bf16(const void *const w[16], const float *const *x, int nx, int k,
                                    const char *ahead, float *y, size_t ldy)
{
    dot_group_any(W_BF16, w, x, nx, k, ahead, y, ldy);
}

static dot_group_fn *const dot_groups[] = { dot_group_f32, dot_group_f16, dot_group_bf16 };

/* Rows of a tile when n rows are cut into as few equal tiles as possible. */
INLINE int tile_rows(int n)
{
    const int tiles = (n + V16_TILE_X - 1) / V16_TILE_X;

    return (n + tiles - 1) / tiles;
}

static void fmm(enum wtype type, const void *w, int k, int n_rows, const float *x, size_t ldx,
                int n_tok, float *y, size_t ldy)
{
    const size_t row_bytes = (size_t)k * w_bytes(type);

    for (int r = 0; r < n_rows; r += 16) {
        const int rows = n_rows - r < 16 ? n_rows - r : 16;
        const char *group = (const char *)w + (size_t)r * row_bytes;
        /* The first tile of tokens reads the group from memory and asks for the next one. */
        const char *ahead = group + 16 * row_bytes;
        const void *row[16];

        /* A short last group repeats its last row; the copies are dropped. */
        for (int j = 0; j < 16; j++) {
            row[j] = group + (size_t)(j < rows ? j : rows - 1) * row_bytes;
        }
        for (int t = 0; t < n_tok; ahead = NULL) {
            const int nx = tile_rows(n_tok - t);
            const float *xs[V16_TILE_X] = { NULL };
            float out[V16_TILE_X][16];

            for (int i = 0; i < nx; i++) {
                xs[i] = x + (size_t)(t + i) * ldx;
            }
            if (rows == 16) {
                dot_groups[type](row, xs, nx, k, ahead, y + (size_t)t * ldy + r, ldy);
            } else {
                dot_groups[type](row, xs, nx, k, ahead, out[0], 16);
                for (int i = 0; i < nx; i++) {
                    memcpy(y + (size_t)(t + i) * ldy + r, out[i], (size_t)rows * sizeof(float));
                }
            }
            t += nx;
        }
    }
}

static void fmm_f32(const void *w, int k, int n_rows, const float *x, size_t ldx, int n_tok,
                    float *y, size_t ldy)
{
    fmm(W_F32, w, k, n_rows, x, ldx, n_tok, y, ldy);
}

static void fmm_f16(const void *w, int k, int n_rows, const float *x, size_t ldx, int n_tok,
                    float *y, size_t ldy)
{
    fmm(W_F16, w, k, n_rows, x, ldx, n_tok, y, ldy);
}

static void fmm_bf16(const void *w, int k, int n_rows, const float *x, size_t ldx, int n_tok,
                     float *y, size_t ldy)
{
    fmm(W_BF16, w, k, n_rows, x, ldx, n_tok, y, ldy);
}

/* kv_q8.inc.c - pages of keys and values in 32-blocks of eight-bit codes, and scores with them.
 *
 * Included by isa.inc.c before attn.inc.c, once per instruction set.  A row is cut into blocks of
 * 32, padded by zeros; a block has a scale in half precision and codes -127..127.  What a head has
 * in a page is the same in every tier, with nb = stride / 32 blocks to a row:
 *
 *   keys      scales [nb][KV_PAGE], codes [KV_PAGE / 16][nb][8][16][4]: sixteen keys side by side,
 *             four codes of each at a time, so that a lane is a key
 *   values    scales [KV_PAGE][nb], codes [KV_PAGE][stride]
 *
 * The score of a key is one chain over the blocks: acc = fma(dk * dq, (float)S, acc), with S the
 * exact sum of products of codes and dk, dq the scales of key and query. */

enum { Q8_BLOCK = 32, Q8_DIM_MAX = 1024, Q8_GROUP_BYTES = 16 * Q8_BLOCK };

/* A quantised query. */
struct q8_query {
    int8_t q[Q8_DIM_MAX];
    float d[Q8_DIM_MAX / Q8_BLOCK];
    int32_t sum[Q8_DIM_MAX / Q8_BLOCK];  /* of the block's codes */
};

INLINE int q8_blocks(int stride)
{
    return stride / Q8_BLOCK;
}

INLINE const int8_t *q8_codes(const void *head, int stride)
{
    return (const int8_t *)head + (size_t)(KV_PAGE * q8_blocks(stride)) * sizeof(uint16_t);
}

/* Codes of a block and their scale; the rules for blocks that are zero, tiny or not finite are
 * those of act_quant in kern.h. */
static float q8_quantise(const float *x, int8_t *q)
{
    union { uint32_t u; float f; } top = { 0 };

    for (int i = 0; i < Q8_BLOCK; i++) {
        uint32_t u;
        memcpy(&u, &x[i], sizeof u);
        u &= 0x7FFFFFFFu;
        top.u = u > top.u ? u : top.u;
    }
    const float inverse = 127.0f / top.f;
    const bool finite = top.u < 0x7F800000u;

    if (!finite || !(inverse <= 0x1.fffffep127f)) {
        memset(q, 0, Q8_BLOCK);
        return finite ? 0.0f : top.f;
    }
    for (int i = 0; i < Q8_BLOCK; i++) {
        const float shifted = x[i] * inverse + V16_BIAS;  /* the integer is in the low bits */
        uint32_t u;
        memcpy(&u, &shifted, sizeof u);
        q[i] = (int8_t)(uint8_t)(u & 255u);
    }
    return top.f / 127.0f;
}

/* Block b of a row of dim floats. */
INLINE float q8_block_of(const float *x, int dim, int b, int8_t *q)
{
    const int n = dim - b * Q8_BLOCK;
    float t[Q8_BLOCK] = { 0 };

    if (n >= Q8_BLOCK) {
        return q8_quantise(x + b * Q8_BLOCK, q);
    }
    memcpy(t, x + b * Q8_BLOCK, (size_t)n * sizeof *t);
    return q8_quantise(t, q);
}

INLINE uint16_t q8_scale_bits(float d)
{
    uint16_t t[16];

    v16_store_f16(t, v16_set1(d));
    return t[0];
}

static void q8_store_key(void *head, int slot, const float *x, int dim, int stride)
{
    const int nb = q8_blocks(stride);
    uint16_t *scale = head;
    int8_t *codes = (int8_t *)q8_codes(head, stride) +
                    (size_t)(slot / 16 * nb) * Q8_GROUP_BYTES + slot % 16 * 4;

    for (int b = 0; b < nb; b++, codes += Q8_GROUP_BYTES) {
        int8_t q[Q8_BLOCK];

        scale[b * KV_PAGE + slot] = q8_scale_bits(q8_block_of(x, dim, b, q));
        for (int i = 0; i < Q8_BLOCK / 4; i++) {
            memcpy(codes + 64 * i, q + 4 * i, 4);
        }
    }
}

static void q8_store_value(void *head, int slot, const float *x, int dim, int stride)
{
    const int nb = q8_blocks(stride);
    uint16_t *scale = (uint16_t *)head + slot * nb;
    int8_t *codes = (int8_t *)q8_codes(head, stride) + (size_t)slot * (size_t)stride;

    for (int b = 0; b < nb; b++) {
        scale[b] = q8_scale_bits(q8_block_of(x, dim, b, codes + b * Q8_BLOCK));
    }
}

static void kv_store_key(enum kv_type kv, void *head, int slot, const float *x, int dim)
{
    const int stride = kv_stride(kv, dim);

    switch (kv) {
    case KV_F32:
        memcpy((float *)head + (size_t)slot * (size_t)stride, x, (size_t)dim * sizeof *x);
        break;
    case KV_F16:
        row_to_f16((uint16_t *)head + (size_t)slot * (size_t)stride, x, dim);
        break;
    default:
        q8_store_key(head, slot, x, dim, stride);
        break;
    }
}

static void kv_store_value(enum kv_type kv, void *head, int slot, const float *x, int dim)
{
    if (kv == KV_Q8_0) {
        q8_store_value(head, slot, x, dim, kv_stride(kv, dim));
    } else {
        kv_store_key(kv, head, slot, x, dim);
    }
}

/* ---- scores ----------------------------------------------------------------------------- */

static void q8_query_init(struct q8_query *q, const float *x, int dim, int nb)
{
    for (int b = 0; b < nb; b++) {
        int32_t sum = 0;

        q->d[b] = q8_block_of(x, dim, b, q->q + b * Q8_BLOCK);
        for (int i = 0; i < Q8_BLOCK; i++) {
            sum += q->q[b * Q8_BLOCK + i];
        }
        q->sum[b] = sum;
    }
}

/* nx queries with ng groups of sixteen keys: y[i * ldy + 16 * g + j].  nx and ng are constants.
 * scale, codes: of the first group.  What will be read next lies at `ahead` as `codes` do, or it
 * is NULL. */
INLINE void q8_tile(const struct q8_query *q, int nx, const uint16_t *scale, const int8_t *codes,
                    int ng, int nb, const int8_t *ahead, float *y, size_t ldy)
{
    v16 acc[V16_TILE_X][4];

#pragma GCC unroll 8
    for (int t = 0; t < nx; t++) {
#pragma GCC unroll 4
        for (int g = 0; g < ng; g++) {
            acc[t][g] = v16_zero();
        }
    }
    for (int b = 0; b < nb; b++) {
        v16i sum[V16_TILE_X][4];

#pragma GCC unroll 8
        for (int t = 0; t < nx; t++) {
#pragma GCC unroll 4
            for (int g = 0; g < ng; g++) {
                sum[t][g] = v16i_dot4_start(q[t].sum[b]);
            }
        }
#pragma GCC unroll 8
        for (int i = 0; i < Q8_BLOCK / 4; i++) {
#pragma GCC unroll 4
            for (int g = 0; g < ng; g++) {
                const size_t at = (size_t)(g * nb + b) * Q8_GROUP_BYTES + 64 * (size_t)i;
                const v16c k = v16c_load(codes + at);

                if (ahead) {
                    __builtin_prefetch(ahead + at, 0, 2);
                }
#pragma GCC unroll 8
                for (int t = 0; t < nx; t++) {
                    sum[t][g] = v16i_dot4(sum[t][g], k, q[t].q + b * Q8_BLOCK + 4 * i);
                }
            }
        }
#pragma GCC unroll 4
        for (int g = 0; g < ng; g++) {
            const v16 d = v16_load_f16(scale + b * KV_PAGE + 16 * g);

#pragma GCC unroll 8
            for (int t = 0; t < nx; t++) {
                acc[t][g] = v16_fma(v16_mul(d, v16_set1(q[t].d[b])), v16i_to_float(sum[t][g]),
                                    acc[t][g]);
            }
        }
    }
#pragma GCC unroll 8
    for (int t = 0; t < nx; t++) {
#pragma GCC unroll 4
        for (int g = 0; g < ng; g++) {
            v16_store(y + (size_t)t * ldy + 16 * g, acc[t][g]);
        }
    }
}

/* All groups of a page that have keys in [lo, hi), 0 <= lo < hi <= KV_PAGE; nx is a constant. */
INLINE void q8_page_n(const struct q8_query *q, int nx, const void *head, int stride, int lo,
                      int hi, const void *ahead, float *y, size_t ldy)
{
    const int nb = q8_blocks(stride), ng = V16_Q8_GROUPS(nx);
    const int8_t *codes = q8_codes(head, stride);
    const int8_t *next = ahead ? q8_codes(ahead, stride) : NULL;

    for (int g = lo / 16 / ng * ng; g * 16 < hi; g += ng) {
        const size_t at = (size_t)(g * nb) * Q8_GROUP_BYTES;

        q8_tile(q, nx, (const uint16_t *)head + 16 * g, codes + at, ng, nb,
                next ? next + at : NULL, y + 16 * g, ldy);
    }
}

/* The same for nx in 1..V16_TILE_X known only now. */
static NOINLINE void q8_page(const struct q8_query *q, int nx, const void *head, int stride,
                             int lo, int hi, const void *ahead, float *y, size_t ldy)
{
    switch (nx) {
#if V16_TILE_X >= 6
    case 6: q8_page_n(q, 6, head, stride, lo, hi, ahead, y, ldy); break;
    case 5: q8_page_n(q, 5, head, stride, lo, hi, ahead, y, ldy); break;
    case 4: q8_page_n(q, 4, head, stride, lo, hi, ahead, y, ldy); break;
#endif
#if V16_TILE_X >= 3
    case 3: q8_page_n(q, 3, head, stride, lo, hi, ahead, y, ldy); break;
    case 2: q8_page_n(q, 2, head, stride, lo, hi, ahead, y, ldy); break;
#endif
    default: q8_page_n(q, 1, head, stride, lo, hi, ahead, y, ldy); break;
    }
}

/* dot_avx2.c - integer products from panels with AVX2.
 *
 * A lane is a row, so there is no horizontal sum.  Two shapes, written once for
 * all types (unpack_avx2.h says how the types differ):
 *
 *   one token    codes go from the panel through registers into the sums, both
 *                halves of the 16 rows share each broadcast of activations;
 *   more tokens  256 weights of 16 rows are unpacked once into a buffer that
 *                stays in L1 and serves all tokens, 8 rows x 4 tokens at a time.
 *
 * The type id is a constant in every function that the compiler sees, so the
 * switches and loops over units and planes vanish.  Sums inside a block are
 * exact integers; the float steps are those of dot.h in the same order. */
#include <assert.h>
#include <string.h>

#include "kern/actq_avx2.h"
#include "kern/dot.h"
#include "kern/panel.h"
#include "kern/unpack_avx2.h"
#include "kern/unpack_iq_avx2.h"

/* Panels are asked for twice: into L2 far ahead, so that enough lines are on their
 * way, and into L1 just ahead, so that loads need no line buffer. */
enum { FAR_BYTES = 4096, NEAR_BYTES = 1536 };

ALWAYS_INLINE void ask(const uint8_t *line)
{
    _mm_prefetch((const char *)line + FAR_BYTES, _MM_HINT_T1);
    _mm_prefetch((const char *)line + NEAR_BYTES, _MM_HINT_T0);
}

ALWAYS_INLINE void ask_lines(const uint8_t **line, int n)
{
    for (int i = 0; i < n; i++, *line += 64) {
        ask(*line);
    }
}

/* Asks for the lines from *line to end, each once over the run of a kernel.  No place
 * for this loop inside the arithmetic: the compiler moves what it can below the loop,
 * all loads stay above, and everything goes over the stack. */
ALWAYS_INLINE void ask_until(const uint8_t **line, const uint8_t *end)
{
    for (; *line < end; *line += 64) {
        ask(*line);
    }
}

/* A few of the lines from *line to end: requests that come all at once wait for each other. */
ALWAYS_INLINE void ask_some(const uint8_t **line, const uint8_t *end)
{
    for (int i = 0; i < 4 && *line < end; i++, *line += 64) {
        ask(*line);
    }
}

/* ---- small pieces ----------------------------------------------------------------- */

ALWAYS_INLINE bool is_k_type(uint32_t id)
{
    return type_act(id) == ACT_Q256;
}

/* Codebook and ternary types: unpack_iq_avx2.h. */
ALWAYS_INLINE bool is_opened(uint32_t id)
{
    return is_k_type(id) && id > QT_Q6_K;
}

/* Types with a kernel of their own for one token. */
ALWAYS_INLINE bool is_direct(uint32_t id)
{
    return !is_opened(id) && type_block(id) != 64 && type_block(id) != 128;
}

/* Codes that are signed bytes. */
ALWAYS_INLINE bool is_signed(uint32_t id)
{
    return id == QT_Q8_0 || id == QT_IQ4_NL || id == QT_IQ4_XS;
}

ALWAYS_INLINE bool with_min(uint32_t id)
{
    return id == QT_Q4_1 || id == QT_Q5_1 || id == QT_Q2_K || id == QT_Q4_K || id == QT_Q5_K;
}

ALWAYS_INLINE __m256i dword(const int32_t *p)
{
    return _mm256_set1_epi32(*p);
}

ALWAYS_INLINE __m256 dword_float(const int32_t *p)
{
    return _mm256_castsi256_ps(_mm256_set1_epi32(*p));
}

/* Eight 16-bit floats of a half of the rows. */
ALWAYS_INLINE __m256 halves(const uint8_t *p, int half)
{
    return _mm256_cvtph_ps(load_128(p + 16 * half));
}

/* 2^(e - 128) of eight exponents; subnormal for e below 2. */
ALWAYS_INLINE __m256 scales_mxfp4(const uint8_t *p, int half)
{
    const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(p + 8 * half)));
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    const __m256i tiny = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);

    return _mm256_castsi256_ps(
        _mm256_blendv_epi8(normal, tiny, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
}

/* Half of eight small floats, bytes i of the lanes. */
ALWAYS_INLINE __m256 scales_nvfp4(const uint8_t *p, int i, int half)
{
    const __m256i none = _mm256_set1_epi32(0x7F);
    const __m256i bits = _mm256_and_si256(
        _mm256_srl_epi32(load_256(p + 32 * half), _mm_cvtsi32_si128(8 * i)), none);
    /* With the fields of a 16-bit float it is 2^-8 of the value, and where it is subnormal that
     * costs nothing, unlike with a 32-bit float. */
    const __m256i h = _mm256_slli_epi32(
        _mm256_andnot_si256(_mm256_cmpeq_epi32(bits, none), bits), 7);
    const __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(h),
                                            _mm256_extracti128_si256(h, 1));

    return _mm256_mul_ps(_mm256_cvtph_ps(packed), _mm256_set1_ps(128));
}

/* Scales of step i of a block of a type with activations of 32. */
ALWAYS_INLINE __m256 scales_32(uint32_t id, const uint8_t *p, int i, int half)
{
    switch (id) {
    case QT_MXFP4: return scales_mxfp4(p, half);
    case QT_NVFP4: return scales_nvfp4(p, i, half);
    default: return halves(p, half);
    }
}

/* sum += products of unsigned codes, in 16 bits.  The empty statement hides the sum from
 * the compiler, which would otherwise regroup the additions and then lack registers. */
ALWAYS_INLINE __m256i add_products(__m256i sum, __m256i codes, __m256i act)
{
    sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes, act));
    __asm__("" : "+x"(sum));
    return sum;
}

/* sum += pairs of 16 bits times pairs of 16 bits */
ALWAYS_INLINE __m256i add_pairs(__m256i sum, __m256i a, __m256i b)
{
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
    __asm__("" : "+x"(sum));
    return sum;
}

/* The same for signed codes: the sign moves to the activation, which is never -128. */
ALWAYS_INLINE __m256i add_signed(__m256i sum, __m256i codes, __m256i magnitude, __m256i act)
{
    const __m256i pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(act, codes));

    return add_pairs(sum, pairs, _mm256_set1_epi16(1));
}

/* One float step: acc = fma(d * da, sum, acc). */
ALWAYS_INLINE __m256 step(__m256 acc, __m256 d, __m256 da, __m256 sum)
{
    return _mm256_fmadd_ps(_mm256_mul_ps(d, da), sum, acc);
}

/* What the 16-bit sums of a 32-block begin with: minus the offset of the codes. */
ALWAYS_INLINE __m256i start_32(uint32_t id, const int32_t *a, int width, int t)
{
    if (id == QT_Q4_0 || id == QT_Q1_0 || id == QT_Q2_0) {
        return dword(a + A32_START_8 * width + t);
    }
    if (id == QT_Q5_0 || id == QT_MXFP4) {
        return dword(a + A32_START_16 * width + t);
    }
    return _mm256_setzero_si256();
}

/* The whole sum of a K block from the scaled sum and the one of minima. */
ALWAYS_INLINE __m256i finish_256(uint32_t id, __m256i sum, __m256i mins)
{
    if (id == QT_Q2_K || id == QT_Q3_K) {
        sum = _mm256_srai_epi32(sum, 2);  /* exact: every term had a factor of four */
    }
    if (id == QT_Q3_K) {
        sum = _mm256_sub_epi32(sum, _mm256_slli_epi32(mins, 2));
    }
    if (is_opened(id)) {
        const __m256i offset = _mm256_set1_epi32(offset_of(id));
        sum = _mm256_sub_epi32(sum, _mm256_mullo_epi32(mins, offset));
    }
    return sum;
}

/* Whether a K type needs sums of activations times its minima, or times its scales to take
 * away the offset of its codes. */
ALWAYS_INLINE bool uses_pairs(uint32_t id)
{
    return id != QT_Q6_K && id != QT_IQ4_XS;
}

/* Sum over pairs of groups of min * activation sum. */
ALWAYS_INLINE __m256i min_sum(uint32_t id, const __m256i min[8][2], int half, const int32_t *a,
                              int width, int t)
{
    const bool sixteens = shape_of(id).scale_k == 4;
    const int32_t *pairs = a + (sixteens ? A256_PAIR_16 : A256_PAIR_32) * width + t;
    __m256i sum = _mm256_setzero_si256();

    for (int i = 0; i < (sixteens ? 8 : 4); i++) {
        sum = add_pairs(sum, min[i][half], dword(pairs + i * width));
    }
    return sum;
}

/* ---- one token -------------------------------------------------------------------- */

/* S of a block of 32 weights for 16 rows.  Asks for a line per step, which leaves at
 * most two of a panel. */
ALWAYS_INLINE void sum_32(uint32_t id, const uint8_t *p, const int32_t *a, const uint8_t **line,
                          __m256i sum[2])
{
    const struct shape s = shape_of(id);
    const __m256i ones = _mm256_set1_epi16(1);

    if (is_signed(id)) {
        sum[0] = sum[1] = _mm256_setzero_si256();
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            const __m256i x = dword(a + A32_Q + i);
            ask_lines(line, id == QT_Q8_0 || i % 2 == 0 ? 1 : 0);
            for (int half = 0; half < 2; half++) {
                const __m256i v = codes_of(id, p, 0, i % s.cols, i / s.cols, half);
                sum[half] = add_signed(sum[half], v, _mm256_abs_epi8(v), x);
            }
        }
        return;
    }
    __m256i words[2][2];  /* [chain][half] */
    words[0][0] = words[0][1] = start_32(id, a, 1, 0);
    words[1][0] = words[1][1] = _mm256_setzero_si256();
    const bool one_chain = s.chain == 8;
#pragma GCC unroll 4
    for (int col = 0; col < 4; col++) {
        ask_lines(line, 1);
#pragma GCC unroll 2
        for (int pl = 0; pl < 2; pl++) {
            const __m256i x = dword(a + A32_Q + 4 * pl + col);
            __m256i *chain = words[one_chain ? 0 : pl];
            chain[0] = add_products(chain[0], codes_of(id, p, 0, col, pl, 0), x);
            chain[1] = add_products(chain[1], codes_of(id, p, 0, col, pl, 1), x);
        }
    }
    for (int half = 0; half < 2; half++) {
        sum[half] = _mm256_madd_epi16(words[0][half], ones);
        if (!one_chain) {
            sum[half] = add_pairs(sum[half], words[1][half], ones);
        }
    }
}

/* Lines that a unit of a K panel asks for, spread over its steps. */
ALWAYS_INLINE int unit_lines(uint32_t id)
{
    return panel_bytes(id) / 256;
}

/* One unit of a K panel: sum[half] += scale * code * activation. */
ALWAYS_INLINE void add_unit(uint32_t id, const uint8_t *p, int unit, const int32_t *a,
                            const struct scales *sc, const uint8_t **line, __m256i sum[2])
{
    const struct shape s = shape_of(id);
    const int base = unit / 2 * s.unit_k + unit % 2 * s.half_unit_k;

#pragma GCC unroll 2
    for (int first = 0; first < s.cols; first += s.chain) {
        __m256i words[4][2];
        for (int pl = 0; pl < s.planes; pl++) {
            const int group = (base + pl * s.plane_k) / s.scale_k;
            words[pl][0] = words[pl][1] = id == QT_Q6_K ? dword(a + A256_START_32 + group)
                                                        : _mm256_setzero_si256();
        }
#pragma GCC unroll 8
        for (int col = first; col < first + s.chain; col++) {
            ask_lines(line, unit_lines(id) * (col + 1) / s.cols - unit_lines(id) * col / s.cols);
#pragma GCC unroll 4
            for (int pl = 0; pl < s.planes; pl++) {
                const __m256i x = dword(a + A256_Q + base + pl * s.plane_k + col);
                words[pl][0] = add_products(words[pl][0], codes_of(id, p, unit, col, pl, 0), x);
                words[pl][1] = add_products(words[pl][1], codes_of(id, p, unit, col, pl, 1), x);
            }
        }
        for (int pl = 0; pl < s.planes; pl++) {
            const int group = (base + pl * s.plane_k) / s.scale_k;
            sum[0] = add_pairs(sum[0], words[pl][0], sc->scale[group][0]);
            sum[1] = add_pairs(sum[1], words[pl][1], sc->scale[group][1]);
        }
    }
}

ALWAYS_INLINE void block_256(uint32_t id, const uint8_t *p, const int32_t *a,
                             const uint8_t **line, __m256 acc[2])
{
    const size_t min_at = 32;
    const __m256 da = dword_float(a + A256_D);
    __m256i sum[2] = { _mm256_setzero_si256(), _mm256_setzero_si256() };
    struct scales sc;

    ask_until(line, p + panel_bytes(id) - 64 * 4 * unit_lines(id));
    scales_of(id, p, &sc);
#pragma GCC unroll 1
    for (int unit = 0; unit < 4; unit++) {
        add_unit(id, p, unit, a, &sc, line, sum);
    }
    for (int half = 0; half < 2; half++) {
        __m256i mins = _mm256_setzero_si256();
        if (uses_pairs(id)) {
            mins = min_sum(id, sc.min, half, a, 1, 0);
        }
        sum[half] = finish_256(id, sum[half], mins);
        acc[half] = step(acc[half], halves(p, half), da, _mm256_cvtepi32_ps(sum[half]));
        if (with_min(id)) {  /* subtracting the product of dmin is adding that of -dmin */
            const __m256 m = _mm256_mul_ps(halves(p + min_at, half), da);
            acc[half] = _mm256_fnmadd_ps(m, _mm256_cvtepi32_ps(mins), acc[half]);
        }
    }
}

ALWAYS_INLINE void block_32(uint32_t id, const uint8_t *p, const int32_t *a,
                            const uint8_t **line, __m256 acc[2])
{
    const __m256 da = dword_float(a + A32_D);
    __m256i sum[2];

    ask_until(line, p + panel_bytes(id) - 64 * (id == QT_Q8_0 ? 8 : 4));
    sum_32(id, p, a, line, sum);
    for (int half = 0; half < 2; half++) {
        acc[half] = step(acc[half], scales_32(id, p, 0, half), da, _mm256_cvtepi32_ps(sum[half]));
        if (with_min(id)) {
            acc[half] = step(acc[half], halves(p + 32, half), da, dword_float(a + A32_SUM));
        }
    }
}

/* Sixteen rows of results, of which n exist. */
ALWAYS_INLINE void store_rows(float *y, int n, __m256 low, __m256 high)
{
    if (n >= PANEL_ROWS) {
        _mm256_storeu_ps(y, low);
        _mm256_storeu_ps(y + 8, high);
        return;
    }
    float t[PANEL_ROWS];
    _mm256_storeu_ps(t, low);
    _mm256_storeu_ps(t + 8, high);
    memcpy(y, t, (size_t)n * sizeof *y);
}

ALWAYS_INLINE void one_token(uint32_t id, const uint8_t *w, int k, int n_rows, const int32_t *act,
                             float *y)
{
    const int n_blocks = k / type_block(id);
    const uint8_t *p = w, *line = w;

    for (int r = 0; r < n_rows; r += PANEL_ROWS) {
        const int32_t *a = act;
        __m256 acc[2] = { _mm256_setzero_ps(), _mm256_setzero_ps() };
        for (int b = 0; b < n_blocks; b++, p += panel_bytes(id)) {
            if (is_k_type(id)) {
                block_256(id, p, a, &line, acc);
                a += A256_DWORDS;
            } else {
                block_32(id, p, a, &line, acc);
                a += A32_DWORDS;
            }
        }
        store_rows(y + r, n_rows - r, acc[0], acc[1]);
    }
}

/* ---- more tokens ------------------------------------------------------------------ */

/* 256 weights of 16 rows, unpacked: one K panel or the panels of shorter blocks. */
struct unpacked {
    __m256i code[64][2];   /* [k / 4][half] */
    struct scales sc;      /* K types */
    __m256 d[16][2];       /* [step][half] */
    __m256 e[8][2];        /* minimum; -dmin for K types */
    bool split;            /* codes are magnitudes with: */
    __m256i minus[64][2];  /* all ones where a code is negative */
    __m256i start[8][2];   /* what the sum of a block begins with */
};

/* So many tokens repay splitting. */
enum { SPLIT_MIN = 24 };

/* A codebook or ternary panel. */
ALWAYS_INLINE void unpack_opened(uint32_t id, const uint8_t *p, struct unpacked *u)
{
    const int width = shape_of(id).scale_k;
    const __m256i low = _mm256_set1_epi32(0xFFFF);

    for (int half = 0; half < 2; half++) {
        struct opened o = { .code = u->code, .half = half, .offset = offset_of(id) };

        open_half(id, p, half, &o);
        u->d[0][half] = opened_scales(id, p, half);
        if (width == 64) {
            continue;
        }
        for (int g = 0; g < 64 / width; g += 2) {
            const __m256i a = _mm256_and_si256(o.scale[g], low);
            const __m256i b = _mm256_slli_epi32(o.scale[g + 1], 16);
            u->sc.scale[g][half] = _mm256_or_si256(a, _mm256_slli_epi32(a, 16));
            u->sc.scale[g + 1][half] = _mm256_or_si256(b, _mm256_srli_epi32(b, 16));
            u->sc.min[g / 2][half] = _mm256_or_si256(a, b);
        }
    }
    for (int i = 0; width == 64 && i < 4; i++) {
        u->sc.scale[0][0] = u->sc.scale[0][1] = _mm256_set1_epi16(1);
        u->sc.min[i][0] = u->sc.min[i][1] = _mm256_set1_epi16(1);
    }
}

ALWAYS_INLINE void unpack_panel(uint32_t id, const uint8_t *p, int block, struct unpacked *u)
{
    const struct shape s = shape_of(id);

    if (is_opened(id)) {
        unpack_opened(id, p, u);
        return;
    }
#pragma GCC unroll 4
    for (int unit = 0; unit < s.units; unit++) {
        const int base = block * type_block(id) / 4 + unit / 2 * s.unit_k +
                         unit % 2 * s.half_unit_k;
        for (int col = 0; col < s.cols; col++) {
            for (int pl = 0; pl < s.planes; pl++) {
                __m256i *code = u->code[base + pl * s.plane_k + col];
                code[0] = codes_of(id, p, unit, col, pl, 0);
                code[1] = codes_of(id, p, unit, col, pl, 1);
            }
        }
    }
    scales_of(id, p, &u->sc);
    const int steps = id == QT_NVFP4 ? 4 : type_block(id) / 32;
    for (int half = 0; half < 2; half++) {
        for (int i = 0; i < (is_k_type(id) ? 1 : steps); i++) {
            u->d[block * steps + i][half] = scales_32(id, p, i, half);
        }
        if (with_min(id)) {
            const __m256 m = halves(p + 32, half);
            u->e[block][half] = is_k_type(id) ? _mm256_sub_ps(_mm256_set1_ps(-0.0f), m) : m;
        }
    }
}

/* Splits n groups of 32 signed codes.  A flip of all bits moves a sign to the activation in any
 * execution unit, a true negation needs one of those for products.  A flipped x is -x - 1, so the
 * sums lack the magnitudes of the negative codes, whatever the activations are. */
ALWAYS_INLINE void split_signs(uint32_t id, int n, struct unpacked *u)
{
    for (int half = 0; half < 2; half++) {
        __m256i start = _mm256_setzero_si256();
#pragma GCC unroll 1
        for (int g = 0; g < n; g++) {
            const __m256i scale = is_k_type(id) ? u->sc.scale[g][half] : _mm256_set1_epi16(1);
            __m256i words = _mm256_setzero_si256();
            for (int i = 8 * g; i < 8 * g + 8; i++) {
                const __m256i v = u->code[i][half], magnitude = _mm256_abs_epi8(v);
                const __m256i minus = _mm256_cmpgt_epi8(_mm256_setzero_si256(), v);
                words = add_products(words, _mm256_and_si256(magnitude, minus),
                                     _mm256_set1_epi8(1));
                u->code[i][half] = magnitude;
                u->minus[i][half] = minus;
            }
            start = add_pairs(start, words, scale);
            if (!is_k_type(id)) {
                u->start[g][half] = start;
                start = _mm256_setzero_si256();
            }
        }
        if (is_k_type(id)) {
            u->start[0][half] = start;
        }
    }
    u->split = true;
}

/* 8 rows x n tokens of split codes: a K block, or n_blocks blocks of 32; acc: [n] at a distance
 * of 16 floats. */
ALWAYS_INLINE void tile_split(uint32_t id, const struct unpacked *u, int n_blocks,
                              const int32_t *a, int n, int half, const uint8_t **line,
                              const uint8_t *end, float *acc)
{
    const int groups = is_k_type(id) ? 8 : 1;  /* of 32 weights in a block */
    const int32_t *d = a + (is_k_type(id) ? A256_D : A32_D) * n;
    const int block_dwords = is_k_type(id) ? A256_DWORDS : A32_DWORDS;

#pragma GCC unroll 1
    for (int b = 0; b < n_blocks; b++, a += block_dwords * n, d += block_dwords * n) {
        __m256i sum[ACT_GROUP];

        for (int t = 0; t < n; t++) {
            sum[t] = u->start[b][half];
        }
#pragma GCC unroll 1
        for (int g = 0; g < groups; g++) {
            const int first = 8 * (b * groups + g);
            const __m256i scale = is_k_type(id) ? u->sc.scale[g][half] : _mm256_set1_epi16(1);
            ask_some(line, end);
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++) {
                const __m256i v = u->code[first + i][half], minus = u->minus[first + i][half];
                for (int t = 0; t < n; t++) {
                    const __m256i x = _mm256_xor_si256(dword(a + (8 * g + i) * n + t), minus);
                    sum[t] = add_pairs(sum[t], _mm256_maddubs_epi16(v, x), scale);
                }
            }
        }
        for (int t = 0; t < n; t++) {
            float *y = acc + PANEL_ROWS * t;
            _mm256_store_ps(y, step(_mm256_load_ps(y), u->d[b][half], dword_float(d + t),
                                    _mm256_cvtepi32_ps(sum[t])));
        }
    }
}

/* 8 rows x n tokens of a K block; acc: [n] at a distance of 16 floats. */
ALWAYS_INLINE void tile_256(uint32_t id, const struct unpacked *u, const int32_t *a, int n,
                            int half, const uint8_t **line, const uint8_t *end, float *acc)
{
    const struct shape s = shape_of(id);
    const int at_once = s.chain < 8 ? s.chain : 8;  /* more unrolling gains nothing */
    __m256i sum[ACT_GROUP], words[ACT_GROUP];

    for (int t = 0; t < n; t++) {
        sum[t] = _mm256_setzero_si256();
    }
#pragma GCC unroll 1
    for (int first = 0; first < 64; first += s.chain) {
        const __m256i scale = u->sc.scale[first / s.scale_k][half];
        ask_some(line, end);
        if (s.single) {  /* no two products of these fit 16 bits */
#pragma GCC unroll 8
            for (int i = first; i < first + s.chain; i++) {
                const __m256i v = u->code[i][half];
                const __m256i magnitude = is_signed(id) ? _mm256_abs_epi8(v) : v;
                for (int t = 0; t < n; t++) {
                    const __m256i x = dword(a + (A256_Q + i) * n + t);
                    const __m256i y = is_signed(id) ? _mm256_sign_epi8(x, v) : x;
                    sum[t] = add_pairs(sum[t], _mm256_maddubs_epi16(magnitude, y), scale);
                }
            }
            continue;
        }
        for (int t = 0; t < n; t++) {
            words[t] = id == QT_Q6_K ? dword(a + (A256_START_32 + first / s.scale_k) * n + t)
                                     : _mm256_setzero_si256();
        }
#pragma GCC unroll 1
        for (int i = first; i < first + s.chain; i += at_once) {
#pragma GCC unroll 8
            for (int j = i; j < i + at_once; j++) {
                const __m256i v = u->code[j][half];
                for (int t = 0; t < n; t++) {
                    words[t] = add_products(words[t], v, dword(a + (A256_Q + j) * n + t));
                }
            }
        }
        for (int t = 0; t < n; t++) {
            sum[t] = add_pairs(sum[t], words[t], scale);
        }
    }
    for (int t = 0; t < n; t++) {
        const __m256 da = dword_float(a + A256_D * n + t);
        __m256i mins = _mm256_setzero_si256();
        if (uses_pairs(id)) {
            mins = min_sum(id, u->sc.min, half, a, n, t);
        }
        __m256 x = _mm256_load_ps(acc + PANEL_ROWS * t);
        x = step(x, u->d[0][half], da, _mm256_cvtepi32_ps(finish_256(id, sum[t], mins)));
        if (with_min(id)) {
            x = step(x, u->e[0][half], da, _mm256_cvtepi32_ps(mins));
        }
        _mm256_store_ps(acc + PANEL_ROWS * t, x);
    }
}

/* S of 8 rows x n tokens in a 32-block. */
ALWAYS_INLINE void tile_sums_32(uint32_t id, const __m256i (*code)[2], const int32_t *a, int n,
                                int half, __m256i sum[ACT_GROUP])
{
    const struct shape s = shape_of(id);
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i words[ACT_GROUP];

    for (int t = 0; t < n; t++) {
        sum[t] = _mm256_setzero_si256();
    }
    if (is_signed(id)) {
        for (int i = 0; i < 8; i++) {
            const __m256i v = code[i][half], magnitude = _mm256_abs_epi8(v);
            for (int t = 0; t < n; t++) {
                sum[t] = add_signed(sum[t], v, magnitude, dword(a + (A32_Q + i) * n + t));
            }
        }
        return;
    }
    for (int first = 0; first < 8; first += s.chain) {
        for (int t = 0; t < n; t++) {
            words[t] = start_32(id, a, n, t);
        }
        for (int i = first; i < first + s.chain; i++) {
            const __m256i v = code[i][half];
            for (int t = 0; t < n; t++) {
                words[t] = add_products(words[t], v, dword(a + (A32_Q + i) * n + t));
            }
        }
        for (int t = 0; t < n; t++) {
            sum[t] = add_pairs(sum[t], words[t], ones);
        }
    }
}

/* A block of 32 of nvfp4 for 8 rows x n tokens: a float step after each sixteen. */
ALWAYS_INLINE void tile_nvfp4(const __m256i (*code)[2], const __m256 (*d)[2], const int32_t *a,
                              int n, int half, __m256 x[ACT_GROUP])
{
    __m256i words[ACT_GROUP];

#pragma GCC unroll 2
    for (int part = 0; part < 2; part++) {
        for (int t = 0; t < n; t++) {
            words[t] = dword(a + A32_START_FIRST * n + t);
            if (part == 1) {
                words[t] = _mm256_sub_epi16(dword(a + A32_START_16 * n + t), words[t]);
            }
        }
#pragma GCC unroll 4
        for (int i = 4 * part; i < 4 * part + 4; i++) {
            const __m256i v = code[i][half];
            for (int t = 0; t < n; t++) {
                words[t] = add_products(words[t], v, dword(a + (A32_Q + i) * n + t));
            }
        }
        for (int t = 0; t < n; t++) {
            const __m256i sum = _mm256_madd_epi16(words[t], _mm256_set1_epi16(1));
            x[t] = step(x[t], d[part][half], dword_float(a + A32_D * n + t),
                        _mm256_cvtepi32_ps(sum));
        }
    }
}

/* 8 rows x n tokens over n_blocks blocks of 32. */
ALWAYS_INLINE void tile_32(uint32_t id, const struct unpacked *u, int n_blocks, const int32_t *a,
                           int n, int half, float *acc)
{
    __m256 x[ACT_GROUP];

    for (int t = 0; t < n; t++) {
        x[t] = _mm256_load_ps(acc + PANEL_ROWS * t);
    }
#pragma GCC unroll 1
    for (int b = 0; b < n_blocks; b++, a += A32_DWORDS * n) {
        if (id == QT_NVFP4) {
            tile_nvfp4(&u->code[8 * b], &u->d[2 * b], a, n, half, x);
            continue;
        }
        __m256i sum[ACT_GROUP];
        tile_sums_32(id, &u->code[8 * b], a, n, half, sum);
        for (int t = 0; t < n; t++) {
            const __m256 da = dword_float(a + A32_D * n + t);
            x[t] = step(x[t], u->d[b][half], da, _mm256_cvtepi32_ps(sum[t]));
            if (with_min(id)) {
                x[t] = step(x[t], u->e[b][half], da, dword_float(a + A32_SUM * n + t));
            }
        }
    }
    for (int t = 0; t < n; t++) {
        _mm256_store_ps(acc + PANEL_ROWS * t, x[t]);
    }
}

ALWAYS_INLINE void tile_n(uint32_t id, const struct unpacked *u, int n_blocks, const int32_t *a,
                          int n, const uint8_t **line, const uint8_t *end, float *acc)
{
    for (int half = 0; half < 2; half++) {
        if (is_signed(id) && u->split) {
            tile_split(id, u, n_blocks, a, n, half, line, end, acc + 8 * half);
        } else if (is_k_type(id)) {
            tile_256(id, u, a, n, half, line, end, acc + 8 * half);
        } else {
            tile_32(id, u, n_blocks, a, n, half, acc + 8 * half);
        }
    }
}

ALWAYS_INLINE void tile(uint32_t id, const struct unpacked *u, int n_blocks, const int32_t *a,
                        int width, const uint8_t **line, const uint8_t *end, float *acc)
{
    switch (width) {
    case 1: tile_n(id, u, n_blocks, a, 1, line, end, acc); break;
    case 2: tile_n(id, u, n_blocks, a, 2, line, end, acc); break;
    case 3: tile_n(id, u, n_blocks, a, 3, line, end, acc); break;
    default: tile_n(id, u, n_blocks, a, 4, line, end, acc); break;
    }
}

/* So many tokens at most share one unpacking: beyond, it costs little. */
enum { TOKENS_MAX = 128 };

/* Tokens are taken in pieces whose activations leave room in L2 for the weights, unless they are
 * so few that unpacking would cost more. */
enum { PIECE_BYTES = 512 * 1024, PIECE_MIN = 32 };

/* Groups of a piece: whole shares of TOKENS_MAX where one fits. */
static inline int piece_groups(size_t token_bytes)
{
    const int fit = (int)(PIECE_BYTES / token_bytes);

    if (fit >= TOKENS_MAX) {
        return fit / TOKENS_MAX * (TOKENS_MAX / ACT_GROUP);
    }
    return (fit > PIECE_MIN ? fit : PIECE_MIN) / ACT_GROUP;
}

/* One row group, tokens of the groups g0..g1-1; stores those in t0..t1-1. */
ALWAYS_INLINE void row_group(uint32_t id, const uint8_t *p, int k, int n_rows, const int32_t *act,
                             int n_tok, int g0, int g1, int t0, int t1, float *y, size_t ldy)
{
    const int n_blocks = k / type_block(id), per_chunk = 256 / type_block(id);
    const int parts = is_k_type(id) ? 1 : type_block(id) / 32;
    const int block_dwords = parts * (is_k_type(id) ? A256_DWORDS : A32_DWORDS);
    const size_t token_dwords = (size_t)n_blocks * (size_t)block_dwords;
    float acc[TOKENS_MAX][PANEL_ROWS] __attribute__((aligned(32)));
    struct unpacked u;
    const uint8_t *line = p;

    memset(acc, 0, sizeof *acc * (size_t)((g1 - g0) * ACT_GROUP));
    for (int b = 0; b < n_blocks; b += per_chunk) {
        const int n = n_blocks - b < per_chunk ? n_blocks - b : per_chunk;
        for (int i = 0; i < n; i++, p += panel_bytes(id)) {
            unpack_panel(id, p, i, &u);
            if (!is_k_type(id)) {
                ask_until(&line, p + panel_bytes(id));
            }
        }
        u.split = false;
        if (is_signed(id) && (g1 - g0) * ACT_GROUP >= SPLIT_MIN) {
            split_signs(id, n * type_block(id) / 32, &u);
        }
        for (int g = g0; g < g1; g++) {
            const int width = act_width(n_tok, g);
            const int32_t *a = act + (size_t)g * ACT_GROUP * token_dwords
                                   + (size_t)b * (size_t)(block_dwords * width);
            tile(id, &u, n * parts, a, width, &line, p, acc[(g - g0) * ACT_GROUP]);
        }
        ask_until(&line, p);
    }
    for (int t = t0 > g0 * ACT_GROUP ? t0 : g0 * ACT_GROUP; t < t1 && t < g1 * ACT_GROUP; t++) {
        const float *x = acc[t - g0 * ACT_GROUP];
        store_rows(y + (size_t)t * ldy, n_rows, _mm256_load_ps(x), _mm256_load_ps(x + 8));
    }
}

/* Tokens of the groups g0..g1-1 with all rows. */
ALWAYS_INLINE void token_piece(uint32_t id, const uint8_t *w, int k, int n_rows,
                               const int32_t *act, int n_tok, int g0, int g1, int t0, int t1,
                               float *y, size_t ldy)
{
    const size_t group_bytes = (size_t)(k / type_block(id)) * (size_t)panel_bytes(id);
    const int at_once = TOKENS_MAX / ACT_GROUP;

    for (int r = 0; r < n_rows; r += PANEL_ROWS, w += group_bytes) {
        for (int g = g0; g < g1; g += at_once) {
            row_group(id, w, k, n_rows - r, act, n_tok, g, g + at_once < g1 ? g + at_once : g1,
                      t0, t1, y + r, ldy);
        }
    }
}

ALWAYS_INLINE void many_tokens(uint32_t id, const void *w, int k, int n_rows, const int32_t *act,
                               int n_tok, int t0, int t1, float *y, size_t ldy)
{
    const size_t token_bytes = 4 * act_dwords(is_k_type(id) ? ACT_Q256 : ACT_Q32, k);
    const int step_g = piece_groups(token_bytes);
    const int g_end = (t1 + ACT_GROUP - 1) / ACT_GROUP;

    for (int g = t0 / ACT_GROUP; g < g_end; g += step_g) {
        token_piece(id, w, k, n_rows, act, n_tok, g, g + step_g < g_end ? g + step_g : g_end, t0,
                    t1, y, ldy);
    }
}

/* ---- the table -------------------------------------------------------------------- */

ALWAYS_INLINE void mm(uint32_t id, const void *w, int k, int n_rows, const void *act, int n_tok,
                      int t0, int t1, float *y, size_t ldy)
{
    assert(k > 0 && k % type_block(id) == 0 && t0 >= 0 && t1 <= n_tok);
    if (t1 <= t0) {
        return;
    }
    if (is_direct(id) && t1 - t0 == 1 && act_width(n_tok, t0 / ACT_GROUP) == 1) {
        const enum act_kind kind = is_k_type(id) ? ACT_Q256 : ACT_Q32;
        const int32_t *a = (const int32_t *)act + (size_t)t0 * act_dwords(kind, k);
        one_token(id, w, k, n_rows, a, y + (size_t)t0 * ldy);
    } else {
        many_tokens(id, w, k, n_rows, act, n_tok, t0, t1, y, ldy);
    }
}

#define MM(ID, codec, ...)                                                                    \
    static void dot_##codec##_avx2(const void *w, int k, int n_rows, const void *act,         \
                                   int n_tok, int t0, int t1, float *y, size_t ldy)           \
    {                                                                                         \
        mm(QT_##ID, w, k, n_rows, act, n_tok, t0, t1, y, ldy);                                \
    }
QUANT_INTEGER_TYPES(MM)

#define ENTRY(ID, codec, ...) k->mm[QT_##ID] = dot_##codec##_avx2;

void dot_avx2_fill(struct kern *k)
{
    k->act_bytes = act_bytes_avx2;
    k->act_quant = act_quant_avx2;
    k->panels = true;
    k->pack = panel_pack_avx2;
    QUANT_INTEGER_TYPES(ENTRY)
}

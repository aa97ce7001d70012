/* encode_fit.c - the search for the integers of a block.
 *
 * Without knowledge of the activations every weight counts the same, so the measure is
 * the plain squared error.  Three steps: a scale and a minimum for each sub-block by
 * trying stretched ranges, each followed by least squares; common factors d and e that
 * make these integers; then rounds in which integers move by one where that helps and
 * d and e follow by least squares.
 *
 * Plain C in a fixed order: a block's bytes depend on its weights alone.  Sums run in
 * eight lanes, which compilers turn into vectors without reordering anything. */
#include <math.h>
#include <string.h>

#include "quant/encode.h"
#include "quant/quant.h"

enum { SUB_MAX = 32, LANES = 8, SUBS_MAX = 16 };

/* Below half of the smallest step that a half can say, zero is the nearest value. */
static const float TINY = 0x1p-25f;

/* Scale and minimum of a sub-block: x is about s * code + m. */
struct line {
    float s, m;
};

static float sum_lanes(const float t[LANES])
{
    return ((t[0] + t[4]) + (t[2] + t[6])) + ((t[1] + t[5]) + (t[3] + t[7]));
}

static inline float clamp(float x, float lo, float hi)
{
    x = x < hi ? x : hi;
    return x > lo ? x : lo;
}

/* Nearest integer, for |x| below 2^22; vectorises where rintf would be a call. */
static inline float round_small(float x)
{
    return (x + 0x1.8p23f) - 0x1.8p23f;
}

/* ---- codes of a sub-block -------------------------------------------------------- */

/* code[i]: the code nearest to (x[i] - m) * inv. */
static void nearest_codes(const struct grid *g, const float *restrict x, float inv, float m,
                          float *restrict code)
{
    const float lo = (float)g->code_lo, hi = (float)g->code_hi;

    if (!g->codes) {
        for (int i = 0; i < g->sub; i += LANES) {
            for (int j = 0; j < LANES; j++) {
                code[i + j] = round_small(clamp((x[i + j] - m) * inv, lo, hi));
            }
        }
        return;
    }
    /* From the lowest code up by each step whose middle lies below. */
    for (int i = 0; i < g->sub; i++) {
        code[i] = lo;
    }
    for (int k = 0; k < 15; k++) {
        const float middle = (float)(g->codes[k] + g->codes[k + 1]) / 2;
        const float step = (float)(g->codes[k + 1] - g->codes[k]);
        for (int i = 0; i < g->sub; i++) {
            code[i] += (x[i] - m) * inv > middle ? step : 0;
        }
    }
}

/* The codes on a line and the squared error that they leave. */
static float codes_on_line(const struct grid *g, const float *x, struct line l, float *code)
{
    float err[LANES] = {0};

    nearest_codes(g, x, l.s != 0 ? 1 / l.s : 0, l.m, code);
    for (int i = 0; i < g->sub; i += LANES) {
        for (int j = 0; j < LANES; j++) {
            const float e = x[i + j] - (l.s * code[i + j] + l.m);
            err[j] += e * e;
        }
    }
    return sum_lanes(err);
}

/* What least squares need to know of a sub-block's codes. */
struct sums {
    float c, cc, xc;
};

static struct sums sum_codes(const struct grid *g, const float *x, const float *code)
{
    float c[LANES] = {0}, cc[LANES] = {0}, xc[LANES] = {0};

    for (int i = 0; i < g->sub; i += LANES) {
        for (int j = 0; j < LANES; j++) {
            c[j] += code[i + j];
            cc[j] += code[i + j] * code[i + j];
            xc[j] += x[i + j] * code[i + j];
        }
    }
    return (struct sums){ sum_lanes(c), sum_lanes(cc), sum_lanes(xc) };
}

static float sum_weights(const struct grid *g, const float *x)
{
    float t[LANES] = {0};

    for (int i = 0; i < g->sub; i += LANES) {
        for (int j = 0; j < LANES; j++) {
            t[j] += x[i + j];
        }
    }
    return sum_lanes(t);
}

/* ---- the first line of a sub-block ----------------------------------------------- */

/* How far the range is stretched over the weights, in steps between codes: few codes gain
 * by cutting the largest weights off, many codes have no reason to. */
static const float stretch_min = -0.8f, stretch_step = 0.3f;
enum { STRETCHES = 8 };

/* Without a minimum: the weight of largest magnitude goes to either end of the codes. */
static struct line first_scale(const struct grid *g, const float *x)
{
    float code[SUB_MAX], top = 0, best = 0;
    struct line line = {0};

    for (int i = 0; i < g->sub; i++) {
        top = fabsf(x[i]) > fabsf(top) ? x[i] : top;
    }
    if (fabsf(top) <= TINY) {
        return line;
    }
    const float ends[2] = { (float)g->code_lo, (float)g->code_hi };
    const float step = g->codes ? (ends[1] - ends[0]) / 15 : 1;

    for (int end = 0; end < 2; end++) {
        for (int i = 0; i < STRETCHES; i++) {
            const float by = step * (stretch_min + stretch_step * (float)i);
            const float to = ends[end] + (end ? by : -by);

            nearest_codes(g, x, to / top, 0, code);
            const struct sums s = sum_codes(g, x, code);

            /* Least squares: s = xc / cc leaves xx - xc^2 / cc. */
            if (s.cc > 0 && s.xc * s.xc > best * s.cc) {
                best = s.xc * s.xc / s.cc;
                line.s = s.xc / s.cc;
            }
        }
    }
    return line;
}

/* The best line through given codes, its minimum at most 0 unless the type allows more. */
static struct line line_through(const struct grid *g, struct sums s, float sum_x)
{
    const float n = (float)g->sub, det = n * s.cc - s.c * s.c;
    struct line l = {0};

    if (det > 0) {
        l.s = (n * s.xc - s.c * sum_x) / det;
        l.m = (s.cc * sum_x - s.c * s.xc) / det;
    }
    if (det <= 0 || (g->min_lo != g->min_hi && l.m > 0)) {
        l.s = s.cc > 0 ? s.xc / s.cc : 0;
        l.m = 0;
    }
    return l;
}

/* With a minimum. */
static struct line first_line(const struct grid *g, const float *x)
{
    const float sum_x = sum_weights(g, x), span = (float)g->code_hi;
    float code[SUB_MAX], lo = x[0], hi = x[0];

    for (int i = 1; i < g->sub; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    if (g->min_lo != g->min_hi && lo > 0) {
        lo = 0;  /* these types can only subtract */
    }
    if (hi - lo <= TINY) {
        return (struct line){ 0, sum_x / (float)g->sub };
    }
    struct line best = { (hi - lo) / span, lo };
    float best_err = codes_on_line(g, x, best, code);

    for (int i = 0; i < STRETCHES; i++) {
        const float by = stretch_min + stretch_step * (float)i;

        nearest_codes(g, x, (span + by) / (hi - lo), lo, code);
        const struct line l = line_through(g, sum_codes(g, x, code), sum_x);
        const float err = codes_on_line(g, x, l, code);

        if (l.s > 0 && err < best_err) {
            best = l;
            best_err = err;
        }
    }
    return best;
}

/* ---- common factors -------------------------------------------------------------- */

/* A value as the block will hold it. */
static float as_half(float x)
{
    return f16_to_f32(f32_to_f16(clamp(x, -65504.0f, 65504.0f)));
}

/* x / unit as an integer of the range. */
static int in_units(float x, float unit, int lo, int hi)
{
    return (int)round_small(clamp(unit != 0 ? x / unit : 0, (float)lo, (float)hi));
}

/* The state of the search for one block. */
struct search {
    const struct grid *g;
    const float *x;
    int n_sub;
    float d, e;
    int scale[SUBS_MAX], min[SUBS_MAX];
    float code[256];
    float err;                /* of the whole block */
};

static struct line line_of(const struct search *f, int scale, int min)
{
    return (struct line){ f->d * (float)scale, f->e * (float)min };
}

static void start(struct search *f)
{
    const struct grid *g = f->g;
    struct line line[SUBS_MAX];
    float s = 0, m = 0;

    for (int j = 0; j < f->n_sub; j++) {
        const float *x = f->x + j * g->sub;
        line[j] = g->min_hi > 0 ? first_line(g, x) : first_scale(g, x);
        s = fabsf(line[j].s) > fabsf(s) ? line[j].s : s;
        m = fabsf(line[j].m) > fabsf(m) ? line[j].m : m;
    }
    /* The largest scale goes to the end of the range that reaches farther. */
    f->d = as_half(s / (float)(-g->scale_lo > g->scale_hi ? g->scale_lo : g->scale_hi));
    f->e = as_half(g->min_hi > 0 ? m / (float)g->min_hi : 0);
    for (int j = 0; j < f->n_sub; j++) {
        f->scale[j] = in_units(line[j].s, f->d, g->scale_lo, g->scale_hi);
        f->min[j] = in_units(line[j].m, f->e, g->min_lo, g->min_hi);
    }
}

/* All codes anew; sets err. */
static void assign_codes(struct search *f)
{
    f->err = 0;
    for (int j = 0; j < f->n_sub; j++) {
        f->err += codes_on_line(f->g, f->x + j * f->g->sub, line_of(f, f->scale[j], f->min[j]),
                                f->code + j * f->g->sub);
    }
}

/* Moves scale and minimum of a sub-block by at most one each to where the error is least. */
static void improve_sub(struct search *f, int j)
{
    const struct grid *g = f->g;
    const float *x = f->x + j * g->sub;
    const int scale = f->scale[j], min = f->min[j];
    float code[SUB_MAX];
    float best = codes_on_line(g, x, line_of(f, scale, min), code);

    for (int s = scale - 1; s <= scale + 1; s++) {
        for (int m = min - 1; m <= min + 1; m++) {
            if (s < g->scale_lo || s > g->scale_hi || m < g->min_lo || m > g->min_hi) {
                continue;
            }
            const float err = codes_on_line(g, x, line_of(f, s, m), code);
            if (err < best) {
                best = err;
                f->scale[j] = s;
                f->min[j] = m;
            }
        }
    }
}

/* d and e by least squares over the block for the integers as they are. */
static void refit(struct search *f)
{
    const struct grid *g = f->g;
    double aa = 0, am = 0, mm = 0, xa = 0, xm = 0;

    for (int j = 0; j < f->n_sub; j++) {
        const float *x = f->x + j * g->sub;
        const struct sums s = sum_codes(g, x, f->code + j * g->sub);
        const double scale = f->scale[j], min = f->min[j];

        aa += scale * scale * (double)s.cc;
        xa += scale * (double)s.xc;
        am += scale * min * (double)s.c;
        mm += min * min * g->sub;
        xm += min * (double)sum_weights(g, x);
    }
    const double det = aa * mm - am * am;

    if (g->min_hi > 0 && det > 0) {
        f->d = as_half((float)((xa * mm - xm * am) / det));
        f->e = as_half((float)((xm * aa - xa * am) / det));
    } else if (aa > 0) {
        f->d = as_half((float)((xa - (double)f->e * am) / aa));
    } else if (mm > 0) {
        f->e = as_half((float)(xm / mm));
    }
}

enum { ROUNDS = 2 };

/* Keeps the best state seen: rounding d and e may undo what a step gained. */
static void improve(struct search *f)
{
    assign_codes(f);
    for (int round = 0; round < ROUNDS; round++) {
        struct search next = *f;

        for (int j = 0; j < f->n_sub; j++) {
            improve_sub(&next, j);
        }
        assign_codes(&next);
        if (next.err < f->err) {
            *f = next;
        }
        refit(&next);
        assign_codes(&next);
        if (!(next.err < f->err)) {
            return;
        }
        *f = next;
    }
}

void fit_block(const struct grid *grid, const float *x, struct fitted *out)
{
    struct search f = { .g = grid, .x = x, .n_sub = grid->block / grid->sub };

    start(&f);
    improve(&f);
    out->d = f.d;
    out->e = f.e;
    memcpy(out->scale, f.scale, sizeof out->scale);
    memcpy(out->min, f.min, sizeof out->min);
    for (int i = 0; i < grid->block; i++) {
        out->code[i] = (int8_t)f.code[i];
    }
}

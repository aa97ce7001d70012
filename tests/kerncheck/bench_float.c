/* bench_float.c - rates of the float kernels of one tier.
 *
 * Times are processor time of this thread, the best of several rounds.  Attention is
 * one key-value head of 4,096 positions in f16, from memory (many layers in turn) and
 * from cache (one layer of 512 positions again and again). */
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "base/mem.h"
#include "floats.h"
#include "kerncheck.h"

enum { ROUNDS = 5 };

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *checked(void *p)
{
    if (p == NULL) {
        fprintf(stderr, "kerncheck: not enough memory for the benchmark\n");
        exit(1);
    }
    return p;
}

static void bench_unary(const struct kern *k)
{
    enum { N = 4096, TIMES = 50 };
    static const char *const names[UNARY_FNS] = { "exp", "sigmoid", "silu", "gelu", "tanh", "log",
                                                  "softplus", "erf" };
    static float x[N], y[N];
    struct rng rng = { 1 };

    fill_floats(x, N, FILL_PLAIN, &rng);
    for (int f = 0; f < UNARY_FNS; f++) {
        double best = INFINITY;

        for (int r = 0; r < ROUNDS; r++) {
            const double start = now();
            for (int i = 0; i < TIMES; i++) {
                k->unary[f](y, x, N);
            }
            best = fmin(best, now() - start);
        }
        printf("%-8s %-9s %6.2f ns a value\n", isa_name(k->isa), names[f],
               best / (TIMES * N) * 1e9);
    }
}

static void bench_fmm(const struct kern *k)
{
    enum { K = 2048, ROWS = 1024, TOKENS = 64 };
    static const uint32_t types[] = { QT_F32, QT_F16, QT_BF16 };
    uint16_t *w = checked(mem_alloc((size_t)K * ROWS, sizeof(float)));
    float *x = checked(mem_alloc((size_t)K * TOKENS, sizeof(float)));
    float *y = checked(mem_alloc((size_t)ROWS * TOKENS, sizeof(float)));
    struct rng rng = { 2 };

    for (size_t i = 0; i < 2 * (size_t)K * ROWS; i++) {  /* small numbers in each type */
        w[i] = (uint16_t)(0x2C00 | (rng_next(&rng) & 0x83FF));
    }
    fill_floats(x, (size_t)K * TOKENS, FILL_PLAIN, &rng);
    for (int type = 0; type < 3; type++) {
        for (int t = 1; t <= TOKENS; t *= 4) {
            double best = INFINITY;

            for (int r = 0; r < ROUNDS; r++) {
                const double start = now();
                k->fmm[types[type]](w, K, ROWS, x, K, t, y, ROWS);
                best = fmin(best, now() - start);
            }
            printf("%-8s %-5s %2d tokens  %6.2f GB/s %7.1f GMAC/s\n", isa_name(k->isa),
                   quant_type(types[type])->name, t,
                   (double)K * ROWS * (types[type] == QT_F32 ? 4 : 2) / best * 1e-9,
                   (double)K * ROWS * t / best * 1e-9);
        }
    }
    mem_free(w);
    mem_free(x);
    mem_free(y);
}

/* ---- attention ------------------------------------------------------------------------ */

enum { DIM = 128, Q_MAX = 64, KEYS = 4096, HOT_KEYS = 512, LAYERS = 32 };

struct attn_bench {
    enum kv_type kv;
    char *keys, *values;       /* [LAYERS][KEYS][DIM], in pages */
    float q[Q_MAX * DIM], o_s[Q_MAX * DIM], o[Q_MAX * DIM];
    float m[Q_MAX], l[Q_MAX], m_s[Q_MAX], l_s[Q_MAX];
    size_t q_off[Q_MAX];
    int begin[Q_MAX], end[Q_MAX];
};

static void attn_layer(struct attn_bench *b, const struct kern *k, int n_q, int layer, int n_keys)
{
    const size_t page_bytes = kv_head_bytes(b->kv, DIM), base = (size_t)layer * (KEYS / KV_PAGE);

    for (int i = 0; i < n_q; i++) {
        b->m[i] = -INFINITY;
        b->l[i] = 0.0f;
    }
    memset(b->o, 0, sizeof b->o);
    for (int first = 0; first < n_keys; first += ATTN_SEGMENT) {
        struct attn_seg s = {
            .n_q = n_q, .k_dim = DIM, .v_dim = DIM, .k_stride = DIM, .v_stride = DIM,
            .kv = b->kv, .q = b->q, .q_off = b->q_off, .k_begin = b->begin, .k_end = b->end,
            .scale = 0.0884f, .m = b->m_s, .l = b->l_s, .o = b->o_s, .o_stride = DIM,
        };

        for (int p = 0; p < ATTN_SEGMENT_PAGES; p++) {
            const size_t at = (base + (size_t)(first / KV_PAGE + p)) * page_bytes;
            s.k_page[p] = b->keys + at;
            s.v_page[p] = b->values + at;
        }
        k->attn_segment(&s);
        for (int i = 0; i < n_q; i++) {
            k->attn_fold(&b->m[i], &b->l[i], b->o + i * DIM, b->m_s[i], b->l_s[i],
                         b->o_s + i * DIM, DIM);
        }
    }
    for (int i = 0; i < n_q; i++) {
        k->attn_finish(b->o + i * DIM, b->o + i * DIM, b->l[i], DIM);
    }
}

static void attn_report(struct attn_bench *b, const struct kern *k, int n_q, bool hot)
{
    const int n_keys = hot ? HOT_KEYS : KEYS, layers = hot || n_q > 16 ? 4 : LAYERS;
    double best = INFINITY;

    for (int r = 0; r < ROUNDS; r++) {
        const double start = now();
        for (int layer = 0; layer < layers; layer++) {
            attn_layer(b, k, n_q, hot ? 0 : layer, n_keys);
        }
        best = fmin(best, now() - start);
    }
    const double pairs = (double)n_keys * layers;

    printf("%-8s attention %-4s %2d rows, from %-6s %6.2f GB/s %7.1f GMAC/s %8.1f ns a key\n",
           isa_name(k->isa), b->kv == KV_F16 ? "f16" : "q8_0", n_q, hot ? "cache" : "memory",
           pairs / KV_PAGE * 2 * (double)kv_head_bytes(b->kv, DIM) / best * 1e-9,
           pairs * DIM * 2 * n_q / best * 1e-9, best / pairs * 1e9);
}

static void bench_attn(const struct kern *k, enum kv_type kv)
{
    static const int n_qs[] = { 1, 3, 6, 16, Q_MAX };
    const size_t n_pages = (size_t)LAYERS * KEYS / KV_PAGE, page_bytes = kv_head_bytes(kv, DIM);
    struct attn_bench *b = checked(mem_zalloc(1, sizeof *b));
    struct rng rng = { 3 };

    b->kv = kv;
    b->keys = checked(mem_pages(n_pages * page_bytes));
    b->values = checked(mem_pages(n_pages * page_bytes));
    for (size_t i = 0; i < n_pages * KV_PAGE; i++) {
        float row[DIM];
        const size_t at = i / KV_PAGE * page_bytes;

        fill_floats(row, DIM, FILL_PLAIN, &rng);
        k->store_key(kv, b->keys + at, (int)(i % KV_PAGE), row, DIM);
        k->store_value(kv, b->values + at, (int)(i % KV_PAGE), row, DIM);
    }
    fill_floats(b->q, Q_MAX * DIM, FILL_PLAIN, &rng);
    for (int i = 0; i < Q_MAX; i++) {
        b->q_off[i] = (size_t)i * DIM;
        b->end[i] = ATTN_SEGMENT;
    }
    for (size_t i = 0; i < sizeof n_qs / sizeof *n_qs; i++) {
        attn_report(b, k, n_qs[i], false);
        attn_report(b, k, n_qs[i], true);
    }
    mem_pages_free(b->keys, n_pages * page_bytes);
    mem_pages_free(b->values, n_pages * page_bytes);
    mem_free(b);
}

/* Heads of 128 keys and values: a prompt, whose tiles stay in L1, and single tokens, for which
 * the states of many heads come from memory. */
static void bench_delta(const struct kern *k)
{
    enum { HEAD = 128, HEADS = 1024, TILES = HEAD / 16, TOKENS = 256 };
    static const struct { int n_head, n_tok; } cases[] = { { 1, TOKENS }, { HEADS, 1 } };
    const size_t tile = (size_t)HEAD * 16;
    float *state = checked(mem_zalloc(HEADS * TILES * tile, sizeof *state));
    float *rows = checked(mem_alloc((size_t)4 * TOKENS * HEAD, sizeof *rows));
    float gates[2][TOKENS];
    struct rng rng = { 5 };

    fill_floats(rows, (size_t)4 * TOKENS * HEAD, FILL_PLAIN, &rng);
    for (int i = 0; i < TOKENS; i++) {
        gates[0][i] = 0.9f;
        gates[1][i] = 0.001f;
    }
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        double best = INFINITY;
        for (int r = 0; r < ROUNDS; r++) {
            const double start = now();
            for (int i = 0; i < cases[c].n_head * TILES; i++) {
                const struct delta_run run = {
                    .n_tok = cases[c].n_tok, .n = HEAD, .state = state + (size_t)i * tile,
                    .q = rows, .k = rows + TOKENS * HEAD,
                    .v = rows + 2 * TOKENS * HEAD + i % TILES * 16, .decay = gates[0],
                    .beta = gates[1], .o = rows + 3 * TOKENS * HEAD + i % TILES * 16,
                    .ldqk = HEAD, .ldv = HEAD, .ldg = 1, .ldo = HEAD, .scale = 0.09f,
                };
                k->delta_rule(&run);
            }
            best = fmin(best, now() - start);
        }
        printf("%-8s delta rule, %4d heads, %3d tokens: %5.2f us a token and head\n",
               isa_name(k->isa), cases[c].n_head, cases[c].n_tok,
               best / (cases[c].n_head * cases[c].n_tok) * 1e6);
    }
    mem_free(state);
    mem_free(rows);
}

void kerncheck_float_bench(const struct kern *k)
{
    bench_unary(k);
    bench_fmm(k);
    bench_attn(k, KV_F16);
    bench_attn(k, KV_Q8_0);
    bench_delta(k);
}

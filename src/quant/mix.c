/* mix.c - the usual mixes as a table of exceptions. */
#include "quant/mix.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "quant/encode.h"
#include "quant/quant.h"

struct mix {
    const char *name;
    uint32_t base;        /* the type of most matrices */
    uint32_t file_type;
};

/* id, name, type of most matrices, file type */
#define MIX_TABLE(X)                                                                  \
    X(F32, "F32", F32, 0)           X(F16, "F16", F16, 1)                             \
    X(BF16, "BF16", BF16, 32)       X(Q4_0, "Q4_0", Q4_0, 2)                          \
    X(Q4_1, "Q4_1", Q4_1, 3)        X(Q5_0, "Q5_0", Q5_0, 8)                          \
    X(Q5_1, "Q5_1", Q5_1, 9)        X(Q8_0, "Q8_0", Q8_0, 7)                          \
    X(Q2_K, "Q2_K", Q2_K, 10)       X(Q3_K_S, "Q3_K_S", Q3_K, 11)                     \
    X(Q3_K_M, "Q3_K_M", Q3_K, 12)   X(Q3_K_L, "Q3_K_L", Q3_K, 13)                     \
    X(Q4_K_S, "Q4_K_S", Q4_K, 14)   X(Q4_K_M, "Q4_K_M", Q4_K, 15)                     \
    X(Q5_K_S, "Q5_K_S", Q5_K, 16)   X(Q5_K_M, "Q5_K_M", Q5_K, 17)                     \
    X(Q6_K, "Q6_K", Q6_K, 18)       X(IQ4_NL, "IQ4_NL", IQ4_NL, 25)                   \
    X(IQ4_XS, "IQ4_XS", IQ4_XS, 30)

#define MIX_ID(id, ...) M_##id,
#define MIX_ROW(id, name, base, file_type) [M_##id] = { name, QT_##base, file_type },
#define MIX_NAME(id, name, ...) ", " name

enum mix_id { MIX_TABLE(MIX_ID) MIXES };

static const struct mix mixes[MIXES] = { MIX_TABLE(MIX_ROW) };

/* What a matrix does, as far as a mix cares. */
enum role { ROLE_OTHER, ROLE_OUTPUT, ROLE_ATTN_V, ROLE_ATTN_K, ROLE_ATTN_QKV, ROLE_ATTN_OUT,
            ROLE_FFN_DOWN, ROLES };

/* Where a rule holds.  n: layers, i: the matrix's place among those of its role. */
enum when {
    ALWAYS,
    FIRST_2, FIRST_4,
    FIRST_8TH,        /* i < n / 8 */
    FIRST_16TH,
    EDGES_AND_THIRD,  /* the first and the last eighth, and every third between */
    GQA_4,            /* four or more query heads to a head of keys and values */
    EXPERTS_8,        /* a mixture of eight experts, whose attention is small beside them */
};

struct rule {
    enum mix_id mix;
    enum role role;
    enum when when;
    uint32_t type;
};

/* The first that fits counts. */
static const struct rule rules[] = {
    { M_Q2_K, ROLE_ATTN_V, EXPERTS_8, QT_Q8_0 },
    { M_Q2_K, ROLE_ATTN_V, GQA_4, QT_Q4_K },
    { M_Q2_K, ROLE_ATTN_V, ALWAYS, QT_Q3_K },
    { M_Q2_K, ROLE_ATTN_K, EXPERTS_8, QT_Q8_0 },
    { M_Q2_K, ROLE_ATTN_OUT, EXPERTS_8, QT_Q5_K },
    { M_Q2_K, ROLE_ATTN_OUT, ALWAYS, QT_Q3_K },
    { M_Q2_K, ROLE_FFN_DOWN, ALWAYS, QT_Q3_K },

    { M_Q3_K_S, ROLE_ATTN_V, EXPERTS_8, QT_Q8_0 },
    { M_Q3_K_S, ROLE_ATTN_K, EXPERTS_8, QT_Q8_0 },
    { M_Q3_K_S, ROLE_ATTN_OUT, EXPERTS_8, QT_Q5_K },

    { M_Q3_K_M, ROLE_ATTN_V, EXPERTS_8, QT_Q8_0 },
    { M_Q3_K_M, ROLE_ATTN_V, FIRST_2, QT_Q5_K },
    { M_Q3_K_M, ROLE_ATTN_V, ALWAYS, QT_Q4_K },
    { M_Q3_K_M, ROLE_ATTN_K, EXPERTS_8, QT_Q8_0 },
    { M_Q3_K_M, ROLE_ATTN_QKV, ALWAYS, QT_Q4_K },
    { M_Q3_K_M, ROLE_ATTN_OUT, EXPERTS_8, QT_Q5_K },
    { M_Q3_K_M, ROLE_ATTN_OUT, ALWAYS, QT_Q4_K },
    { M_Q3_K_M, ROLE_FFN_DOWN, FIRST_16TH, QT_Q5_K },
    { M_Q3_K_M, ROLE_FFN_DOWN, ALWAYS, QT_Q4_K },

    { M_Q3_K_L, ROLE_ATTN_V, EXPERTS_8, QT_Q8_0 },
    { M_Q3_K_L, ROLE_ATTN_V, ALWAYS, QT_Q5_K },
    { M_Q3_K_L, ROLE_ATTN_K, EXPERTS_8, QT_Q8_0 },
    { M_Q3_K_L, ROLE_ATTN_QKV, ALWAYS, QT_Q4_K },
    { M_Q3_K_L, ROLE_ATTN_OUT, ALWAYS, QT_Q5_K },
    { M_Q3_K_L, ROLE_FFN_DOWN, ALWAYS, QT_Q5_K },

    { M_Q4_K_S, ROLE_ATTN_V, EXPERTS_8, QT_Q8_0 },
    { M_Q4_K_S, ROLE_ATTN_V, FIRST_4, QT_Q5_K },
    { M_Q4_K_S, ROLE_ATTN_K, EXPERTS_8, QT_Q8_0 },
    { M_Q4_K_S, ROLE_ATTN_OUT, EXPERTS_8, QT_Q5_K },
    { M_Q4_K_S, ROLE_FFN_DOWN, FIRST_8TH, QT_Q5_K },

    { M_Q4_K_M, ROLE_ATTN_V, EXPERTS_8, QT_Q8_0 },
    { M_Q4_K_M, ROLE_ATTN_V, EDGES_AND_THIRD, QT_Q6_K },
    { M_Q4_K_M, ROLE_ATTN_K, EXPERTS_8, QT_Q8_0 },
    { M_Q4_K_M, ROLE_ATTN_QKV, ALWAYS, QT_Q5_K },
    { M_Q4_K_M, ROLE_ATTN_OUT, EXPERTS_8, QT_Q5_K },
    { M_Q4_K_M, ROLE_FFN_DOWN, EDGES_AND_THIRD, QT_Q6_K },

    { M_Q5_K_S, ROLE_ATTN_V, EXPERTS_8, QT_Q8_0 },
    { M_Q5_K_S, ROLE_ATTN_K, EXPERTS_8, QT_Q8_0 },

    { M_Q5_K_M, ROLE_ATTN_V, EXPERTS_8, QT_Q8_0 },
    { M_Q5_K_M, ROLE_ATTN_V, EDGES_AND_THIRD, QT_Q6_K },
    { M_Q5_K_M, ROLE_ATTN_K, EXPERTS_8, QT_Q8_0 },
    { M_Q5_K_M, ROLE_ATTN_QKV, ALWAYS, QT_Q6_K },
    { M_Q5_K_M, ROLE_FFN_DOWN, EDGES_AND_THIRD, QT_Q6_K },

    { M_IQ4_NL, ROLE_ATTN_V, EXPERTS_8, QT_Q8_0 },
    { M_IQ4_NL, ROLE_ATTN_V, GQA_4, QT_Q5_K },
    { M_IQ4_NL, ROLE_ATTN_K, EXPERTS_8, QT_Q8_0 },
    { M_IQ4_NL, ROLE_ATTN_OUT, EXPERTS_8, QT_Q5_K },
    { M_IQ4_NL, ROLE_FFN_DOWN, FIRST_8TH, QT_Q5_K },

    { M_IQ4_XS, ROLE_ATTN_V, EXPERTS_8, QT_Q8_0 },
    { M_IQ4_XS, ROLE_ATTN_V, GQA_4, QT_Q5_K },
    { M_IQ4_XS, ROLE_ATTN_K, EXPERTS_8, QT_Q8_0 },
    { M_IQ4_XS, ROLE_ATTN_OUT, EXPERTS_8, QT_Q5_K },
    { M_IQ4_XS, ROLE_FFN_DOWN, FIRST_8TH, QT_Q5_K },
};

enum { N_RULES = sizeof rules / sizeof rules[0] };

/* ---- names ----------------------------------------------------------------------- */

const struct mix *mix_find(const char *name)
{
    for (int i = 0; i < MIXES; i++) {
        if (strcasecmp(mixes[i].name, name) == 0) {
            return &mixes[i];
        }
    }
    return NULL;
}

const char *mix_names(void)
{
    static const char names[] = MIX_TABLE(MIX_NAME);
    return names + strlen(", ");
}

uint32_t mix_file_type(const struct mix *m)
{
    return m->file_type;
}

/* ---- what a tensor is ------------------------------------------------------------ */

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* Matrices that are small and steer: quantising them saves nothing and costs much. */
static const char *const kept_parts[] = {
    "_norm.weight", "ffn_gate_inp", "ssm_conv1d", "shortconv.conv", "altup", "laurel",
    "per_layer_model_proj", "rope_f", "position_embd", "token_types",
};

static bool is_kept(const struct gguf_tensor *t)
{
    for (size_t i = 0; i < sizeof kept_parts / sizeof kept_parts[0]; i++) {
        if (strstr(t->name, kept_parts[i])) {
            return true;
        }
    }
    return t->n_dims < 2 || !ends_with(t->name, ".weight");
}

static enum role role_of(const struct gguf *g, const char *name)
{
    static const struct { const char *part; enum role role; } parts[] = {
        { ".attn_v.weight", ROLE_ATTN_V },         { ".attn_k.weight", ROLE_ATTN_K },
        { ".attn_qkv.weight", ROLE_ATTN_QKV },     { ".attn_output.weight", ROLE_ATTN_OUT },
        { ".ffn_down", ROLE_FFN_DOWN },
    };
    const bool tied = gguf_find_tensor(g, "output.weight") == NULL;

    if (strcmp(name, tied ? "token_embd.weight" : "output.weight") == 0) {
        return ROLE_OUTPUT;
    }
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (strstr(name, parts[i].part)) {
            return parts[i].role;
        }
    }
    return ROLE_OTHER;
}

/* The layer in "blk.12.attn_v.weight"; -1 for a name without one. */
static int layer_of(const char *name)
{
    int layer;

    return sscanf(name, "blk.%9d.", &layer) == 1 && layer >= 0 ? layer : -1;
}

/* ---- what the rules ask of a model ----------------------------------------------- */

struct facts {
    const struct gguf *g;
    const struct mix *mix;
    int n_layer, n_expert, gqa;
};

/* The largest value of an integer entry that may be one number or one for each layer. */
static int64_t largest(const struct gguf *g, const char *arch, const char *name, int64_t missing)
{
    char key[160];
    int64_t most = INT64_MIN;

    snprintf(key, sizeof key, "%s.%s", arch, name);
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv || !gguf_is_int(kv->elem)) {
        return missing;
    }
    for (uint64_t i = 0; i < kv->n; i++) {
        const int64_t v = gguf_int_at(kv, i);
        most = v > most ? v : most;
    }
    return most >= 0 && most <= INT_MAX ? most : missing;
}

static bool read_facts(struct facts *f, slm_error *err)
{
    struct gguf_str s = { "", 0 };
    char arch[100];

    if (!gguf_get_str(f->g, "general.architecture", &s, err)) {
        return false;
    }
    snprintf(arch, sizeof arch, "%.*s", (int)(s.n < sizeof arch ? s.n : sizeof arch - 1), s.s);
    const int64_t heads = largest(f->g, arch, "attention.head_count", 1);
    const int64_t heads_kv = largest(f->g, arch, "attention.head_count_kv", heads);

    f->n_layer = (int)largest(f->g, arch, "block_count", 0);
    f->n_expert = (int)largest(f->g, arch, "expert_count", 0);
    f->gqa = heads_kv > 0 ? (int)(heads / heads_kv) : 1;
    return true;
}

/* Values of a role are counted over the layers that have one: in hybrid models only some
 * layers have attention. */
static void place_of(const struct facts *f, const char *name, int *i, int *n)
{
    const int layer = layer_of(name);
    const char *part = strchr(name + 4, '.');

    *i = *n = 0;
    for (size_t k = 0; k < gguf_n_tensors(f->g); k++) {
        const char *other = gguf_tensor_at(f->g, k)->name;
        if (layer_of(other) >= 0 && part && ends_with(other, part)) {
            *n += 1;
            *i += layer_of(other) < layer;
        }
    }
}

static bool holds(const struct facts *f, enum when when, enum role role, const char *name)
{
    int i = layer_of(name), n = f->n_layer;

    if (role == ROLE_ATTN_V && i >= 0) {
        place_of(f, name, &i, &n);
    }
    if (i < 0 && when != ALWAYS) {
        return false;
    }
    switch (when) {
    case ALWAYS:
        return true;
    case FIRST_2:
        return i < 2;
    case FIRST_4:
        return i < 4;
    case FIRST_8TH:
        return i < n / 8;
    case FIRST_16TH:
        return i < n / 16;
    case EDGES_AND_THIRD:
        return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
    case GQA_4:
        return f->gqa >= 4;
    case EXPERTS_8:
        return f->n_expert == 8;
    }
    return false;
}

/* ---- types ----------------------------------------------------------------------- */

static bool is_float(uint32_t type)
{
    return type == QT_F32 || type == QT_F16 || type == QT_BF16;
}

static uint32_t wanted(const struct facts *f, const char *name)
{
    const uint32_t base = f->mix->base;
    const enum role role = role_of(f->g, name);

    if (role == ROLE_OUTPUT) {
        return is_float(base) || base == QT_Q8_0 ? base : QT_Q6_K;
    }
    for (int i = 0; i < N_RULES; i++) {
        const struct rule *r = &rules[i];
        if (&mixes[r->mix] == f->mix && r->role == role && holds(f, r->when, role, name)) {
            return r->type;
        }
    }
    return base;
}

/* A type of smaller blocks and no larger error, for rows that `type` does not divide. */
static uint32_t fallback(uint32_t type)
{
    switch (type) {
    case QT_Q2_K:
    case QT_Q3_K:
        return QT_Q4_0;
    case QT_Q4_K:
        return QT_Q5_0;
    case QT_Q5_K:
        return QT_Q5_1;
    case QT_Q6_K:
        return QT_Q8_0;
    case QT_IQ4_XS:
        return QT_IQ4_NL;
    default:
        return QT_F16;
    }
}

static bool tensor_type(const struct facts *f, const struct gguf_tensor *t, uint32_t *type,
                        slm_error *err)
{
    *type = t->type;
    if (is_kept(t)) {
        return true;
    }
    uint32_t want = wanted(f, t->name);

    while (t->ne[0] % quant_type(want)->block != 0) {
        want = fallback(want);
    }
    if (want != t->type && !quant_type(t->type)) {
        return slm_fail(err, SLM_E_UNSUPPORTED, "tensor %s: type %s cannot be converted", t->name,
                        gguf_tensor_type(t->type)->name);
    }
    *type = want;
    return true;
}

bool mix_types(const struct mix *m, const struct gguf *g, uint32_t *types, slm_error *err)
{
    struct facts f = { .g = g, .mix = m };

    if (!read_facts(&f, err)) {
        return false;
    }
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        if (!tensor_type(&f, gguf_tensor_at(g, i), &types[i], err)) {
            return false;
        }
    }
    return true;
}

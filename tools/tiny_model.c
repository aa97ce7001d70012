/* tiny_model.c - random models of any architecture from its own tensor table.
 *
 * The metadata is written first and read back, so that the shapes are those which the
 * architecture derives from it. */
#include "tiny_model.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "model/draft.h"
#include "quant/quant.h"

static const char chat_template[] =
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";

/* ---- vocabulary ---------------------------------------------------------------------- */

enum { N_SPECIAL = 3, N_BYTES = 256, N_LETTERS = 27, N_PAIRS = 34, N_VOCAB = 320 };

/* Text and type of token i. */
static int32_t token(int i, char text[12])
{
    static const char *const special[N_SPECIAL] = { "<unk>", "<s>", "</s>" };

    if (i < N_SPECIAL) {
        snprintf(text, 12, "%s", special[i]);
        return i == 0 ? 2 : 3;
    }
    i -= N_SPECIAL;
    if (i < N_BYTES) {
        snprintf(text, 12, "<0x%02X>", (unsigned)i);
        return 6;
    }
    i -= N_BYTES;
    if (i < N_LETTERS) {
        snprintf(text, 12, "%s", i ? (char[]){ (char)('a' + i - 1), 0 } : "\xE2\x96\x81");
        return 1;
    }
    i -= N_LETTERS;
    snprintf(text, 12, "%c%c", "tnrslhd"[i % 7], "aeiou"[i / 7]);
    return 1;
}

static void put_vocab(struct gguf_writer *w)
{
    static char text[N_VOCAB][12];
    struct gguf_str str[N_VOCAB];
    float score[N_VOCAB];
    int32_t type[N_VOCAB];

    for (int i = 0; i < N_VOCAB; i++) {
        type[i] = token(i, text[i]);
        str[i] = (struct gguf_str){ text[i], strlen(text[i]) };
        score[i] = -(float)i;
    }
    gguf_put_str(w, "tokenizer.ggml.model", "llama", 5);
    gguf_put_strs(w, "tokenizer.ggml.tokens", str, N_VOCAB);
    gguf_put_array(w, "tokenizer.ggml.scores", GGUF_F32, score, N_VOCAB);
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, type, N_VOCAB);
    gguf_put_u32(w, "tokenizer.ggml.bos_token_id", 1);
    gguf_put_u32(w, "tokenizer.ggml.eos_token_id", 2);
    gguf_put_str(w, "tokenizer.chat_template", chat_template, sizeof chat_template - 1);
}

/* ---- metadata ------------------------------------------------------------------------- */

/* What single architectures need besides, or in place of what the shape says; n > 0 makes an
 * array. */
static const struct extra {
    const char *arch, *suffix;
    int n;
    int32_t v[4];
} extra_keys[] = {
    { "qwen3moe", "expert_count", 0, { 6 } },
    { "qwen3moe", "expert_used_count", 0, { 2 } },
    { "qwen3moe", "expert_feed_forward_length", 0, { 256 } },
    { "nanbeige", "num_loops", 0, { 3 } },
    { "gemma3n", "block_count", 0, { 4 } },
    { "gemma3n", "attention.sliding_window_pattern", 4, { 1, 0, 1, 0 } },
    { "gemma3n", "attention.shared_kv_layers", 0, { 2 } },
    { "gemma3n", "embedding_length_per_layer_input", 0, { 256 } },
    { "gemma4", "block_count", 0, { 4 } },
    { "gemma4", "attention.sliding_window_pattern", 4, { 1, 0, 1, 0 } },
    { "gemma4", "attention.shared_kv_layers", 0, { 2 } },
    { "gemma4", "attention.head_count_kv", 4, { 2, 1, 2, 1 } },
    { "gemma4", "attention.key_length", 0, { 128 } },
    { "gemma4", "attention.value_length", 0, { 128 } },
    { "gemma4", "attention.key_length_swa", 0, { 64 } },
    { "gemma4", "attention.value_length_swa", 0, { 64 } },
    { "gemma4", "embedding_length_per_layer_input", 0, { 256 } },
    { "gemma4", "expert_count", 0, { 4 } },
    { "gemma4", "expert_used_count", 0, { 2 } },
    { "gemma4", "expert_feed_forward_length", 0, { 256 } },
    { "qwen35", "block_count", 0, { 3 } },
    { "qwen35", "nextn_predict_layers", 0, { 1 } },
    { "qwen35", "full_attention_interval", 0, { 2 } },
    { "qwen35", "ssm.conv_kernel", 0, { 4 } },
    { "qwen35", "ssm.state_size", 0, { 64 } },
    { "qwen35", "ssm.group_count", 0, { 2 } },
    { "qwen35", "ssm.time_step_rank", 0, { 4 } },
    { "qwen35", "ssm.inner_size", 0, { 256 } },
    { "qwen35", "rope.dimension_count", 0, { 32 } },
    { "qwen35", "rope.dimension_sections", 4, { 6, 5, 5, 0 } },
};
enum { N_EXTRA = sizeof extra_keys / sizeof *extra_keys };

static void put_extra(struct gguf_writer *w, const struct extra *e)
{
    char key[128];

    snprintf(key, sizeof key, "%s.%s", e->arch, e->suffix);
    if (e->n > 0) {
        gguf_put_array(w, key, GGUF_I32, e->v, (uint64_t)e->n);
    } else {
        gguf_put_u32(w, key, (uint32_t)e->v[0]);
    }
}

static void put_key(struct gguf_writer *w, const char *arch, const char *suffix, int value)
{
    char key[128];

    for (int i = 0; i < N_EXTRA; i++) {
        if (strcmp(extra_keys[i].arch, arch) == 0 && strcmp(extra_keys[i].suffix, suffix) == 0) {
            return;
        }
    }

    snprintf(key, sizeof key, "%s.%s", arch, suffix);
    gguf_put_u32(w, key, (uint32_t)value);
}

static void put_float_key(struct gguf_writer *w, const char *arch, const char *suffix, float value)
{
    char key[128];

    snprintf(key, sizeof key, "%s.%s", arch, suffix);
    gguf_put_f32(w, key, value);
}


static void put_metadata(struct gguf_writer *w, const char *arch, const struct tiny_shape *s)
{
    gguf_put_str(w, "general.architecture", arch, strlen(arch));
    gguf_put_str(w, "general.name", "tiny random", 11);
    put_key(w, arch, "context_length", s->context);
    put_key(w, arch, "embedding_length", s->embd);
    put_key(w, arch, "block_count", s->layers);
    put_key(w, arch, "feed_forward_length", s->ff);
    put_key(w, arch, "attention.head_count", s->heads);
    put_key(w, arch, "attention.head_count_kv", s->kv_heads);
    put_key(w, arch, "attention.key_length", s->head_dim);
    put_key(w, arch, "attention.value_length", s->head_dim);
    put_key(w, arch, "attention.sliding_window", s->window);
    put_float_key(w, arch, "attention.layer_norm_rms_epsilon", 1e-5f);
    put_float_key(w, arch, "attention.layer_norm_epsilon", 1e-5f);
    put_float_key(w, arch, "logit_scale", 2);
    for (int i = 0; i < N_EXTRA; i++) {
        if (strcmp(extra_keys[i].arch, arch) == 0) {
            put_extra(w, &extra_keys[i]);
        }
    }
    put_vocab(w);
}

/* ---- tensors -------------------------------------------------------------------------- */

struct maker {
    struct gguf_writer *w;
    const struct hparams *hp;
    const struct quant_type *type;
    struct arena *arena;
    struct rng rng;
};

/* Uniform in [-1, 1). */
static float signed_unit(struct rng *r)
{
    return (float)(2 * rng_unit(rng_next(r)) - 1);
}

/* About one over the size of a code times its sub-scale. */
static float unit_scale(const struct quant_type *type)
{
    switch (type->id) {
    case QT_IQ1_S:
    case QT_IQ1_M: return 0.1f;
    case QT_IQ2_XXS:
    case QT_IQ2_XS:
    case QT_IQ2_S: return 0.02f;
    case QT_IQ3_XXS:
    case QT_IQ3_S: return 0.008f;
    case QT_IQ4_NL: return 0.015f;
    case QT_IQ4_XS: return 0.001f;
    case QT_TQ1_0:
    case QT_TQ2_0:
    case QT_Q1_0:
    case QT_Q2_0: return 1;
    case QT_MXFP4:
    case QT_NVFP4: return 0.25f;
    default: return type->block == 256 ? 0.005f : 0.1f;
    }
}

/* Random blocks whose scales make the weights about `size` large. */
static void fill_blocks(const struct quant_type *type, uint8_t *data, size_t bytes, float size,
                        struct rng *r)
{
    const float unit = unit_scale(type);

    for (size_t i = 0; i < bytes; i++) {
        data[i] = (uint8_t)(rng_next(r) >> 32);
    }
    for (size_t at = 0; at < bytes; at += (size_t)type->block_bytes) {
        const uint16_t d = f32_to_f16(size * unit * signed_unit(r));
        const uint16_t e = type->has_min ? f32_to_f16(size * unit * signed_unit(r)) : 0;
        quant_set_scales(type, data + at, d, e);
    }
}

/* One value in a float type. */
static void put_float(uint32_t type, uint8_t *data, size_t i, float v)
{
    uint32_t u;

    memcpy(&u, &v, sizeof u);
    const uint16_t h = type == QT_BF16 ? (uint16_t)(u >> 16) : f32_to_f16(v);
    if (type == QT_F32) {
        memcpy(data + 4 * i, &v, sizeof v);
    } else {
        memcpy(data + 2 * i, &h, sizeof h);
    }
}

/* The F32 scales that files of nvfp4 have beside a matrix, or beside the n of a stack. */
static bool put_scales(struct maker *m, char name[64], int64_t n, slm_error *err)
{
    char *end = strrchr(name, '.');
    float *scale = arena_alloc(m->arena, (size_t)n * sizeof *scale);

    if (!scale) {
        return slm_fail_nomem(err, "a tensor");
    }
    for (int64_t i = 0; i < n; i++) {
        scale[i] = 1 + 0.2f * signed_unit(&m->rng);
    }
    memcpy(end, ".scale", sizeof ".scale");
    gguf_put_tensor(m->w, name, QT_F32, 1, &n, scale);
    return true;
}

/* False when memory is out or the type does not fit the row length. */
static bool put_tensor(struct maker *m, const struct tensor_row *row, int il, slm_error *err)
{
    const bool vector = row_is_floats(row);
    const int64_t ne[3] = { dim_size(m->hp, il, row->in), dim_size(m->hp, il, row->out),
                            dim_size(m->hp, il, row->stack) };
    const int n_dims = row->stack != DIM_NONE ? 3 : row->out != DIM_NONE ? 2 : 1;
    /* Sizes that the architecture fixes need not suit every type. */
    const bool unfit = row->in >= DIM_FIXED && ne[0] % m->type->block != 0;
    const struct quant_type *type = vector || unfit ? quant_type(QT_F32) : m->type;
    const size_t n = (size_t)(ne[0] * ne[1] * ne[2]);
    const size_t bytes = n / (size_t)type->block * (size_t)type->block_bytes;
    char name[64];

    tensor_name(name, row, il);
    if (ne[0] % type->block != 0) {
        return slm_fail(err, SLM_E_ARG, "%s has rows of %lld weights, not a multiple of %d", name,
                        (long long)ne[0], type->block);
    }
    uint8_t *data = arena_alloc(m->arena, bytes);
    if (!data) {
        return slm_fail_nomem(err, "a tensor");
    }
    /* Norms and other factors lie around 1, biases around 0; a matrix keeps the size of its
     * input. */
    const float size = vector ? 0.2f : 1.7f / (float)__builtin_sqrt((double)ne[0]);
    const float mean = vector && (strstr(name, "norm") || strstr(name, "rope") ||
                                  strstr(name, "scale")) ? 1
                     : vector && strstr(name, "ssm_a") ? -1 : 0;  /* what makes a state decay */
    if (type->unpack) {
        fill_blocks(type, data, bytes, size, &m->rng);
    } else {
        for (size_t i = 0; i < n; i++) {
            put_float(type->id, data, i, mean + size * signed_unit(&m->rng));
        }
    }
    gguf_put_tensor(m->w, name, type->id, n_dims, ne, data);
    return type->id != QT_NVFP4 || il < 0 || put_scales(m, name, ne[2], err);
}

static bool put_layer(struct maker *m, const struct tensor_row *rows, size_t n_rows, int il,
                      slm_error *err)
{
    for (size_t i = 0; i < n_rows; i++) {
        const struct tensor_row *row = &rows[i];
        /* The separate projections stand for the fused ones; optional biases come along. */
        const bool fused = row->in == DIM_QKV || row->out == DIM_QKV || row->out == DIM_FF2_EXP;
        const bool used = row_applies(row, m->hp, il) &&
                          !(row->need == NEED_DENSE && m->hp->n_expert > 0);
        if (!fused && used && !put_tensor(m, row, il, err)) {
            return false;
        }
    }
    return true;
}

static bool put_all(struct maker *m, const struct arch *arch, slm_error *err)
{
    for (size_t i = 0; i < arch_n_top_rows; i++) {
        if (arch_top_rows[i].need == NEED && !put_tensor(m, &arch_top_rows[i], -1, err)) {
            return false;
        }
    }
    for (size_t i = 0; i < arch->n_top_rows; i++) {
        if (row_applies(&arch->top_rows[i], m->hp, -1) && !put_tensor(m, &arch->top_rows[i], -1, err)) {
            return false;
        }
    }
    for (int il = 0; il < m->hp->n_layer + m->hp->n_draft; il++) {
        if (!put_layer(m, arch->rows, arch->n_rows, il, err)) {
            return false;
        }
    }
    return m->hp->n_draft == 0 || put_layer(m, draft_rows, n_draft_rows, m->hp->n_layer, err);
}

bool tiny_model_write(const char *path, const struct arch *arch, const struct quant_type *type,
                      const struct tiny_shape *shape, slm_error *err)
{
    struct hparams hp;
    struct arena arena;
    struct gguf_writer *meta = gguf_writer_new(), *w = gguf_writer_new();
    struct gguf *g = NULL;
    uint8_t *bytes = NULL;
    size_t n = 0;
    bool ok = false;

    arena_init(&arena, 1 << 20, 0);
    if (!meta || !w) {
        slm_fail_nomem(err, "the writer");
        goto out;
    }
    /* The metadata alone makes a file from which the shapes are read. */
    put_metadata(meta, arch->name, shape);
    bytes = gguf_write_mem(meta, &n, err);
    g = bytes ? gguf_open_mem(bytes, n, err) : NULL;
    if (!g || !hparams_read(&hp, g, arch->name, err) || !arch->hparams(&hp, g, err)) {
        goto out;
    }
    struct maker m = { w, &hp, type, &arena, { (uint64_t)shape->seed << 32 } };
    put_metadata(w, arch->name, shape);
    ok = put_all(&m, arch, err) && gguf_write_file(w, path, err);

out:
    gguf_close(g);
    mem_free(bytes);
    gguf_writer_free(meta);
    gguf_writer_free(w);
    arena_deinit(&arena);
    return ok;
}

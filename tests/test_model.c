/* test_model.c - models whose metadata or tensors are missing, wrong or contradict each other
 * are refused with a message that names the fault.
 *
 * Each case is a tiny llama, or where said another model, with one thing changed, rewritten in
 * memory. */
#include <unistd.h>

#include "test.h"
#include "tiny_model.h"
#include "tiny_run.h"

/* What to change in the copy. */
struct change {
    const char *key;               /* metadata to drop or replace; NULL: none */
    enum { DROP, U32, F32, STR } kind;
    double number;
    const char *text;
    const char *tensor;            /* tensor to drop, or to give another shape or type */
    int64_t ne0;                   /* 0: drop it */
    uint32_t type;
    const char *want;              /* must be in the message */
    slm_code code;
};

static struct gguf *base;
static char base_path[] = "/tmp/slm-model-XXXXXX";

static void put_changed_kv(struct gguf_writer *w, const struct change *c)
{
    switch (c->kind) {
    case U32: gguf_put_u32(w, c->key, (uint32_t)(int64_t)c->number); break;
    case F32: gguf_put_f32(w, c->key, (float)c->number); break;
    case STR: gguf_put_str(w, c->key, c->text, strlen(c->text)); break;
    case DROP: break;
    }
}

/* The base with the change, as a file in memory; the caller frees. */
static uint8_t *changed(const struct change *c, size_t *n)
{
    static const uint8_t zeros[1 << 20];
    struct gguf_writer *w = gguf_writer_new();

    for (size_t i = 0; i < gguf_n_kv(base); i++) {
        const struct gguf_kv *kv = gguf_kv_at(base, i);
        if (!c->key || strcmp(kv->key, c->key) != 0) {
            gguf_put_kv(w, kv);
        }
    }
    if (c->key) {
        put_changed_kv(w, c);
    }
    for (size_t i = 0; i < gguf_n_tensors(base); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(base, i);
        if (!c->tensor || !strstr(t->name, c->tensor)) {
            gguf_put_tensor(w, t->name, t->type, t->n_dims, t->ne, t->data);
        } else if (c->ne0 > 0) {
            const int64_t ne[4] = { c->ne0, t->ne[1], t->ne[2], t->ne[3] };
            gguf_put_tensor(w, t->name, c->type, t->n_dims, ne, zeros);
        }
    }
    uint8_t *bytes = gguf_write_mem(w, n, NULL);
    gguf_writer_free(w);
    CHECK(bytes != NULL);
    return bytes;
}

/* Whether a model can be made of the base with the change; *err says why not. */
static bool loads(const struct change *c, slm_error *err)
{
    size_t n;
    uint8_t *bytes = changed(c, &n);
    struct gguf *g = gguf_open_mem(bytes, n, err);
    struct pool *pool = pool_new(1, NULL);

    CHECK(g && pool);
    struct model *m = model_new(g, pool, kern_get(cpu_isa_best()), MODEL_PACK_OFF, err);
    const bool ok = m != NULL;
    model_free(m);
    pool_free(pool);
    gguf_close(g);
    mem_free(bytes);
    return ok;
}

#define FORMAT SLM_E_FORMAT
#define UNSUPPORTED SLM_E_UNSUPPORTED
#define A "llama."

static const struct change metadata[] = {
    { .key = "general.architecture", .kind = DROP, .want = "general.architecture", .code = FORMAT },
    { .key = "general.architecture", .kind = STR, .text = "mamba", .want = "supported are llama",
      .code = UNSUPPORTED },
    { .key = "general.architecture", .kind = U32, .number = 1, .want = "general.architecture",
      .code = FORMAT },
    { .key = "general.type", .kind = STR, .text = "adapter", .want = "adapter",
      .code = UNSUPPORTED },
    { .key = A "context_length", .kind = DROP, .want = A "context_length", .code = FORMAT },
    { .key = A "context_length", .kind = U32, .number = 0, .want = A "context_length",
      .code = FORMAT },
    { .key = A "embedding_length", .kind = U32, .number = 0, .want = A "embedding_length",
      .code = FORMAT },
    { .key = A "embedding_length", .kind = U32, .number = 1 << 21, .want = A "embedding_length",
      .code = FORMAT },
    { .key = A "embedding_length", .kind = STR, .text = "256", .want = A "embedding_length",
      .code = FORMAT },
    { .key = A "block_count", .kind = U32, .number = 0, .want = A "block_count", .code = FORMAT },
    { .key = A "block_count", .kind = U32, .number = 513, .want = A "block_count",
      .code = FORMAT },
    { .key = A "block_count", .kind = U32, .number = 4, .want = "blk.2-3.attn_norm.weight",
      .code = FORMAT },
    { .key = A "feed_forward_length", .kind = DROP, .want = A "feed_forward_length",
      .code = FORMAT },
    { .key = A "attention.head_count", .kind = U32, .number = 0, .want = "head_count",
      .code = FORMAT },
    { .key = A "attention.head_count_kv", .kind = U32, .number = 3, .want = "not a multiple",
      .code = FORMAT },
    { .key = A "attention.key_length", .kind = U32, .number = 0, .want = A "attention.key_length",
      .code = FORMAT },
    { .key = A "attention.layer_norm_rms_epsilon", .kind = DROP, .want = "layer_norm_rms_epsilon",
      .code = FORMAT },
    { .key = A "attention.layer_norm_rms_epsilon", .kind = F32, .number = -1,
      .want = "layer_norm_rms_epsilon", .code = FORMAT },
    { .key = A "attention.layer_norm_rms_epsilon", .kind = F32, .number = __builtin_nan(""),
      .want = "finite", .code = FORMAT },
    { .key = A "rope.freq_base", .kind = F32, .number = 0, .want = "freq_base", .code = FORMAT },
    { .key = A "rope.freq_base", .kind = F32, .number = __builtin_inf(), .want = "finite",
      .code = FORMAT },
    { .key = A "rope.dimension_count", .kind = U32, .number = 63, .want = "even", .code = FORMAT },
    { .key = A "rope.dimension_count", .kind = U32, .number = 66, .want = "rope.dimension_count",
      .code = FORMAT },
    { .key = A "rope.scaling.type", .kind = STR, .text = "ntk", .want = "yarn",
      .code = UNSUPPORTED },
    { .key = A "rope.scaling.type", .kind = STR, .text = "longrope", .want = "rope_factors_long",
      .code = FORMAT },
    { .key = A "expert_count", .kind = U32, .number = 2, .want = "expert", .code = FORMAT },
};

static const struct change tensors[] = {
    { .tensor = "blk.1.attn_q.weight", .want = "blk.1.attn_q.weight", .code = FORMAT },
    { .tensor = ".attn_k.weight", .want = "blk.0-1.attn_k.weight", .code = FORMAT },
    { .tensor = "token_embd.weight", .want = "token_embd.weight", .code = FORMAT },
    { .tensor = "blk.0.attn_q.weight", .ne0 = 128, .type = QT_F32, .want = "blk.0.attn_q.weight",
      .code = FORMAT },
    { .tensor = "token_embd.weight", .ne0 = 128, .type = QT_F32, .want = "token_embd.weight",
      .code = FORMAT },
    { .tensor = "blk.1.ffn_norm.weight", .ne0 = 32, .type = QT_F32,
      .want = "blk.1.ffn_norm.weight", .code = FORMAT },
    { .tensor = "blk.0.ffn_up.weight", .ne0 = 256, .type = 24, .want = "I8", .code = UNSUPPORTED },
    { .tensor = "blk.0.ffn_up.weight", .ne0 = 256, .type = 9, .want = "Q8_1", .code = UNSUPPORTED },
    { .tensor = "blk.0.ffn_up.weight", .ne0 = 256, .type = 15, .want = "Q8_K", .code = UNSUPPORTED },
};

static void check_refused(const struct change *c, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        slm_error err = { .code = SLM_E_OK };
        if (loads(&c[i], &err)) {
            fail_msg("case %zu (%s) was not refused", i, c[i].want);
        }
        if (err.code != c[i].code || !strstr(err.msg, c[i].want)) {
            fail_msg("case %zu: code %d, \"%s\" should name %s", i, err.code, err.msg, c[i].want);
        }
    }
}

TEST(the_base_loads)
{
    const struct change none = { .kind = DROP };
    slm_error err = { .code = SLM_E_OK };

    if (!loads(&none, &err)) {
        fail_msg("%s", err.msg);
    }
}

TEST(refuses_wrong_metadata)
{
    check_refused(metadata, sizeof metadata / sizeof *metadata);
}

TEST(refuses_wrong_tensors)
{
    check_refused(tensors, sizeof tensors / sizeof *tensors);
}

#undef A
#define A "gemma4."

/* Layers 0 and 2 slide, 1 and 3 do not; the last two share keys; every layer has 4 experts. */
static const struct change gemma4[] = {
    { .key = A "attention.sliding_window_pattern", .kind = DROP, .want = "sliding_window_pattern",
      .code = FORMAT },
    { .key = A "attention.sliding_window", .kind = DROP, .want = "sliding_window",
      .code = FORMAT },
    { .key = A "attention.key_length_swa", .kind = DROP, .want = "key_length_swa",
      .code = FORMAT },
    { .key = A "attention.value_length_swa", .kind = U32, .number = 32, .want = "as long as",
      .code = FORMAT },
    { .key = A "attention.shared_kv_layers", .kind = U32, .number = 1, .want = "cannot share",
      .code = FORMAT },
    { .key = A "attention.shared_kv_layers", .kind = U32, .number = 4, .want = "shared_kv_layers",
      .code = FORMAT },
    { .key = A "attention.head_count_kv", .kind = U32, .number = 4, .want = "attn_k",
      .code = FORMAT },
    { .key = A "embedding_length_per_layer_input", .kind = DROP, .want = "per_layer_input",
      .code = FORMAT },
    { .key = A "embedding_length_per_layer_input", .kind = U32, .number = 128,
      .want = "per_layer_token_embd", .code = FORMAT },
    { .key = A "expert_count", .kind = U32, .number = 3, .want = "ffn_gate_inp", .code = FORMAT },
    { .key = A "expert_used_count", .kind = U32, .number = 5, .want = "expert_used_count",
      .code = FORMAT },
    { .key = A "expert_used_count", .kind = DROP, .want = "expert_used_count", .code = FORMAT },
    { .key = A "expert_feed_forward_length", .kind = U32, .number = 32, .want = "ffn_gate_exps",
      .code = FORMAT },
    { .tensor = "blk.1.ffn_down_exps.weight", .want = "layer 1", .code = FORMAT },
    { .tensor = "blk.3.post_ffw_norm_1.weight", .want = "layer 3", .code = FORMAT },
    { .tensor = "rope_freqs.weight", .want = "rope_freqs.weight", .code = FORMAT },
    { .tensor = "attn_k.weight", .want = "blk.0-1.attn_k.weight", .code = FORMAT },
    { .tensor = "attn_k_norm.weight", .want = "blk.0-1.attn_k_norm.weight", .code = FORMAT },
    { .tensor = "inp_gate.weight", .want = "blk.0-3.inp_gate.weight", .code = FORMAT },
};

static const struct change gemma4_accepted[] = {
    { .tensor = "blk.2.attn_k.weight" },       /* it shares keys */
    { .tensor = "attn_v.weight" },             /* the keys are values too */
    { .tensor = "layer_output_scale.weight" },
    { .tensor = "blk.1.ffn_gate_inp.weight" }, /* a layer without experts */
};

static const struct change qwen3moe[] = {
    { .key = "qwen3moe.expert_count", .kind = DROP, .want = "expert_count", .code = FORMAT },
    { .key = "qwen3moe.expert_count", .kind = U32, .number = 1 << 20, .want = "expert_count",
      .code = FORMAT },
    { .tensor = "blk.1.ffn_up_exps.weight", .want = "blk.1.ffn_up_exps.weight", .code = FORMAT },
    { .tensor = "blk.0.ffn_up_exps.weight", .ne0 = 128, .type = QT_F32,
      .want = "blk.0.ffn_up_exps.weight", .code = FORMAT },
};

static const struct change nanbeige[] = {
    { .key = "nanbeige.num_loops", .kind = U32, .number = 0, .want = "num_loops", .code = FORMAT },
    { .key = "nanbeige.num_loops", .kind = U32, .number = 257, .want = "num_loops",
      .code = FORMAT },
};

static const struct change gemma3n[] = {
    { .tensor = "altup_proj.weight", .want = "altup_proj.weight", .code = FORMAT },
    { .tensor = "blk.0.attn_v.weight", .want = "blk.0.attn_v.weight", .code = FORMAT },
    { .key = "gemma3n.embedding_length_per_layer_input", .kind = DROP, .want = "per_layer_input",
      .code = FORMAT },
};

/* Layer 0 is recurrent, 1 has attention, 2 is the block that drafts. */
static const struct change qwen35[] = {
    { .key = "qwen35.ssm.conv_kernel", .kind = DROP, .want = "ssm.conv_kernel", .code = FORMAT },
    { .key = "qwen35.ssm.conv_kernel", .kind = U32, .number = 9, .want = "ssm.conv_kernel",
      .code = FORMAT },
    { .key = "qwen35.ssm.conv_kernel", .kind = U32, .number = 3, .want = "ssm_conv1d",
      .code = FORMAT },
    { .key = "qwen35.ssm.state_size", .kind = U32, .number = 40, .want = "multiple of 16",
      .code = FORMAT },
    { .key = "qwen35.ssm.group_count", .kind = U32, .number = 3, .want = "group_count",
      .code = FORMAT },
    { .key = "qwen35.ssm.group_count", .kind = U32, .number = 4, .want = "blk.0.attn_qkv",
      .code = FORMAT },
    { .key = "qwen35.ssm.inner_size", .kind = U32, .number = 128, .want = "inner_size",
      .code = FORMAT },
    { .key = "qwen35.full_attention_interval", .kind = U32, .number = 0,
      .want = "full_attention_interval", .code = FORMAT },
    { .key = "qwen35.full_attention_interval", .kind = U32, .number = 4, .want = "none has",
      .code = UNSUPPORTED },
    { .key = "qwen35.full_attention_interval", .kind = U32, .number = 1,
      .want = "blk.0.attn_q.weight", .code = FORMAT },
    { .key = "qwen35.nextn_predict_layers", .kind = U32, .number = 3, .want = "nextn",
      .code = FORMAT },
    { .key = "qwen35.nextn_predict_layers", .kind = U32, .number = 0,
      .want = "blk.2.attn_qkv.weight", .code = FORMAT },
    { .key = "qwen35.attention.value_length", .kind = U32, .number = 32, .want = "as long as",
      .code = FORMAT },
    { .key = "qwen35.rope.dimension_count", .kind = U32, .number = 64,
      .want = "dimension_sections", .code = UNSUPPORTED },
    { .key = "qwen35.rope.dimension_sections", .kind = U32, .number = 1,
      .want = "dimension_sections", .code = FORMAT },
    { .tensor = "ssm_a", .want = "blk.0.ssm_a", .code = FORMAT },
    { .tensor = "blk.2.attn_k.weight", .want = "blk.2.attn_k.weight", .code = FORMAT },
    { .tensor = "nextn.hnorm.weight", .want = "blk.2.nextn.hnorm.weight", .code = FORMAT },
    { .tensor = "nextn.eh_proj.weight", .ne0 = 256, .type = QT_F32,
      .want = "blk.2.nextn.eh_proj.weight", .code = FORMAT },
};

static const struct change qwen35_accepted[] = {
    { .tensor = "blk.2." },                    /* no drafts, then */
    { .tensor = "nextn.embed_tokens.weight" }, /* the model's own serve */
    { .tensor = "nextn.shared_head" },
};

/* A tiny model of an architecture in place of the base until `other_close`. */
static struct gguf *other_open(const char *arch)
{
    const struct tiny_shape shape = TINY_SHAPE;
    struct gguf *before = base;
    slm_error err;

    CHECK(tiny_model_write(base_path, arch_find(arch, strlen(arch)), quant_type(QT_F32), &shape,
                           &err));
    base = gguf_open(base_path, &err);
    CHECK(base != NULL);
    return before;
}

static void other_close(struct gguf *before)
{
    gguf_close(base);
    base = before;
}

#define CHECK_OTHER(arch)                                                                \
    do {                                                                                 \
        struct gguf *before = other_open(#arch);                                         \
        check_refused(arch, sizeof arch / sizeof *arch);                                 \
        other_close(before);                                                             \
    } while (0)

TEST(refuses_wrong_models_of_other_kinds)
{
    CHECK_OTHER(gemma4);
    CHECK_OTHER(qwen3moe);
    CHECK_OTHER(nanbeige);
    CHECK_OTHER(gemma3n);
    CHECK_OTHER(qwen35);
}

static void check_accepted(const char *arch, const struct change *c, size_t n)
{
    struct gguf *before = other_open(arch);

    for (size_t i = 0; i < n; i++) {
        slm_error err = { .code = SLM_E_OK };
        if (!loads(&c[i], &err)) {
            fail_msg("%s without %s: %s", arch, c[i].tensor, err.msg);
        }
    }
    other_close(before);
}

TEST(accepts_what_some_kinds_may_lack)
{
    check_accepted("gemma4", gemma4_accepted, sizeof gemma4_accepted / sizeof *gemma4_accepted);
    check_accepted("qwen35", qwen35_accepted, sizeof qwen35_accepted / sizeof *qwen35_accepted);
}

/* A norm may be of any type, and one value per layer stands for one value. */
TEST(accepts_any_type_on_any_tensor)
{
    static const uint32_t types[] = { QT_F16, QT_BF16, QT_Q8_0, QT_Q4_K };

    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const struct change c = { .tensor = "blk.0.attn_norm.weight", .ne0 = 256,
                                  .type = types[i] };
        slm_error err = { .code = SLM_E_OK };
        if (!loads(&c, &err)) {
            fail_msg("%s", err.msg);
        }
    }
}

/* A file without an output matrix uses the embedding; a NaN in it is an error of the step. */
TEST(reports_a_logit_that_is_not_a_number)
{
    size_t n;
    const struct change none = { .kind = DROP };
    uint8_t *bytes = changed(&none, &n);
    struct gguf *g = gguf_open_mem(bytes, n, NULL);
    const float nan = __builtin_nanf("");
    const int32_t ids[1] = { 5 };
    float logits[320];
    slm_error err = { .code = SLM_E_OK };

    memcpy(bytes + (gguf_find_tensor(g, "output_norm.weight")->data - bytes), &nan, sizeof nan);
    gguf_close(g);
    FILE *f = fopen(base_path, "wb");
    CHECK(f && fwrite(bytes, 1, n, f) == n);
    fclose(f);
    mem_free(bytes);
    struct tiny t;
    CHECK(tiny_open(&t, base_path, cpu_isa_best(), 1, MODEL_PACK_OFF, KV_F32, 16, &err));
    CHECK(!tiny_feed(&t, ids, 1, 1, logits, &err));
    CHECK_EQ(err.code, SLM_E_NUMERIC);
    tiny_close(&t);
}

TEST(refuses_tokens_out_of_range)
{
    float logits[320];
    struct tiny t;
    slm_error err = { .code = SLM_E_OK };
    const int32_t bad[] = { -1, 320, INT32_MAX };

    CHECK(tiny_open(&t, TEST_DATA "/models/llama-tinyllama/model.gguf", cpu_isa_best(), 1,
                    MODEL_PACK_OFF, KV_F32, 16, &err));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(!tiny_feed(&t, &bad[i], 1, 1, logits, &err));
        CHECK_EQ(err.code, SLM_E_ARG);
    }
    tiny_close(&t);
}

/* A number of the metadata, or 1. */
static uint64_t number(const struct gguf *g, const char *arch, const char *name)
{
    char key[80];

    snprintf(key, sizeof key, "%s.%s", arch, name);
    const struct gguf_kv *kv = gguf_find(g, key);
    return kv ? (uint64_t)gguf_int_at(kv, 0) : 1;
}

/* What a token needs, counted from the names of the matrices in the file. */
TEST(tells_what_a_token_needs)
{
    static const char *const names[] = { "llama-Q4_K", "llama-moe", "gemma3-1b", "qwen3moe-tiny",
                                         "nanbeige-loops" };
    const int n = sizeof names / sizeof *names;
    int tied = 0;

    for (int k = 0; k < n; k++) {
        char path[4096];
        slm_error err;
        struct tiny t;
        uint64_t bytes = 0, params = 0, embd = 0, output = 0;

        snprintf(path, sizeof path, "%s/models/%s/model.gguf", TEST_DATA, names[k]);
        CHECK(tiny_open(&t, path, cpu_isa_best(), 1, MODEL_PACK_OFF, KV_F16, 16, &err));
        const struct model_shape *s = model_shape(t.model);
        const uint64_t n_expert = number(t.gguf, s->arch, "expert_count");
        const uint64_t n_used = number(t.gguf, s->arch, "expert_used_count");
        const uint64_t n_loop = number(t.gguf, s->arch, "num_loops");

        for (size_t i = 0; i < gguf_n_tensors(t.gguf); i++) {
            const struct gguf_tensor *w = gguf_tensor_at(t.gguf, i);
            if (strcmp(w->name, "token_embd.weight") == 0) {
                embd = w->bytes;
            } else if (strcmp(w->name, "output.weight") == 0) {
                output = w->bytes;
            } else if (w->n_dims > 1) {
                const uint64_t times = n_loop * (strstr(w->name, "_exps.") ? n_used : 1);
                bytes += times * (w->bytes / (w->n_dims > 2 ? n_expert : 1));
                params += times * (uint64_t)(w->ne[0] * w->ne[1]);
            }
        }
        tied += output == 0;
        CHECK_EQ(s->token_bytes, bytes + (output > 0 ? output : embd));
        CHECK_EQ(s->prompt_params, params);
        tiny_close(&t);
    }
    CHECK(tied > 0 && tied < n);
}

int main(void)
{
    const struct tiny_shape shape = TINY_SHAPE;
    slm_error err;
    const int fd = mkstemp(base_path);

    if (fd < 0 || !tiny_model_write(base_path, arch_find("llama", 5), quant_type(QT_F32), &shape,
                                    &err)) {
        fprintf(stderr, "cannot write %s\n", base_path);
        return 1;
    }
    close(fd);
    base = gguf_open(base_path, &err);
    const int failed = base ? RUN(T(the_base_loads), T(refuses_wrong_metadata),
                                  T(refuses_wrong_tensors), T(accepts_any_type_on_any_tensor),
                                  T(refuses_wrong_models_of_other_kinds),
                                  T(accepts_what_some_kinds_may_lack),
                                  T(refuses_tokens_out_of_range),
                                  T(reports_a_logit_that_is_not_a_number),
                                  T(tells_what_a_token_needs))
                            : 1;
    gguf_close(base);
    unlink(base_path);
    return failed;
}

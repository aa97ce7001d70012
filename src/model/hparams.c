/* hparams.c - typed reads of metadata with defaults and range checks. */
#include "model/hparams.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { KEY_MAX = 128, SIZE_MAX_DIM = 1 << 20 };

static const char *key_of(const struct hparams *hp, const char *suffix, char out[KEY_MAX])
{
    snprintf(out, KEY_MAX, "%s.%s", hp->arch, suffix);
    return out;
}

static bool missing(const char *key, slm_error *err)
{
    return slm_fail(err, SLM_E_FORMAT, "metadata key %s is missing, the model needs it", key);
}

bool hparams_int(const struct hparams *hp, const struct gguf *g, const char *suffix, bool required,
                 int min, int max, int *out, slm_error *err)
{
    char key[KEY_MAX];
    uint64_t v;

    key_of(hp, suffix, key);
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv) {
        return required ? missing(key, err) : true;
    }
    /* Some writers store one value per layer where all are equal. */
    if (kv->type == GGUF_ARR && gguf_is_int(kv->elem) && kv->n > 0) {
        const int64_t first = gguf_int_at(kv, 0);
        for (uint64_t i = 1; i < kv->n; i++) {
            if (gguf_int_at(kv, i) != first) {
                return slm_fail(err, SLM_E_UNSUPPORTED,
                                "%s differs between layers, which %s models here cannot have", key,
                                hp->arch);
            }
        }
        if (first < min || first > max) {
            return slm_fail(err, SLM_E_FORMAT, "%s is %lld, must be %d to %d", key,
                            (long long)first, min, max);
        }
        *out = (int)first;
        return true;
    }
    v = (uint64_t)*out;
    if (!gguf_get_u64(g, key, (uint64_t)min, (uint64_t)max, &v, err)) {
        return false;
    }
    *out = (int)v;
    return true;
}

bool hparams_ints(const struct hparams *hp, const struct gguf *g, const char *suffix, bool required,
                  int min, int max, int out[LAYER_MAX], slm_error *err)
{
    char key[KEY_MAX];
    const struct gguf_kv *kv = gguf_find(g, key_of(hp, suffix, key));

    if (!kv || kv->type != GGUF_ARR) {
        int all = out[0];
        if (!hparams_int(hp, g, suffix, required, min, max, &all, err)) {
            return false;
        }
        for (int il = 0; kv && il < hp->n_layer; il++) {
            out[il] = all;
        }
        return true;
    }
    if (!gguf_is_int(kv->elem) || kv->n < (uint64_t)hp->n_layer) {
        return slm_fail(err, SLM_E_FORMAT,
                        "%s must be an integer, or an array with one for each of %d layers", key,
                        hp->n_layer);
    }
    for (int il = 0; il < hp->n_layer; il++) {
        const int64_t v = gguf_int_at(kv, (uint64_t)il);
        if (v < min || v > max) {
            return slm_fail(err, SLM_E_FORMAT, "%s of layer %d is %lld, must be %d to %d", key, il,
                            (long long)v, min, max);
        }
        out[il] = (int)v;
    }
    return true;
}

bool hparams_float(const struct hparams *hp, const struct gguf *g, const char *suffix,
                   bool required, float *out, slm_error *err)
{
    char key[KEY_MAX];
    double v = *out;

    key_of(hp, suffix, key);
    if (!gguf_find(g, key)) {
        return required ? missing(key, err) : true;
    }
    if (!gguf_get_f64(g, key, &v, err)) {
        return false;
    }
    if (!isfinite(v)) {
        return slm_fail(err, SLM_E_FORMAT, "%s is not a finite number", key);
    }
    *out = (float)v;
    return true;
}

static bool read_eps(struct hparams *hp, const struct gguf *g, const char *suffix, slm_error *err)
{
    if (!hparams_float(hp, g, suffix, true, &hp->norm_eps, err)) {
        return false;
    }
    if (hp->norm_eps < 0 || hp->norm_eps > 1) {
        return slm_fail(err, SLM_E_FORMAT, "%s.%s is %g, must be 0 to 1", hp->arch, suffix,
                        (double)hp->norm_eps);
    }
    return true;
}

bool hparams_rms_eps(struct hparams *hp, const struct gguf *g, slm_error *err)
{
    return read_eps(hp, g, "attention.layer_norm_rms_epsilon", err);
}

bool hparams_layer_norm(struct hparams *hp, const struct gguf *g, slm_error *err)
{
    hp->layer_norm = true;
    return read_eps(hp, g, "attention.layer_norm_epsilon", err);
}

bool hparams_experts(struct hparams *hp, const struct gguf *g, slm_error *err)
{
    if (!hparams_int(hp, g, "expert_count", false, 0, EXPERT_MAX, &hp->n_expert, err)) {
        return false;
    }
    if (hp->n_expert == 0) {
        return true;
    }
    hp->n_ff_expert = hp->n_ff;
    return hparams_int(hp, g, "expert_used_count", true, 1, hp->n_expert, &hp->n_expert_used,
                       err) &&
           hparams_int(hp, g, "expert_feed_forward_length", false, 1, SIZE_MAX_DIM,
                       &hp->n_ff_expert, err);
}

bool hparams_window_all(struct hparams *hp, const struct gguf *g, slm_error *err)
{
    if (!hparams_int(hp, g, "attention.sliding_window", false, 0, INT32_MAX, &hp->window, err)) {
        return false;
    }
    for (int i = 0; i < hp->n_layer; i++) {
        hp->sliding[i] = hp->window > 0;
    }
    return true;
}

bool hparams_sliding(struct hparams *hp, const struct gguf *g, int pattern, slm_error *err)
{
    char key[KEY_MAX];

    if (!hparams_int(hp, g, "attention.sliding_window", false, 0, INT32_MAX, &hp->window, err)) {
        return false;
    }
    if (hp->window == 0) {
        return true;
    }
    const struct gguf_kv *kv =
        gguf_find(g, key_of(hp, "attention.sliding_window_pattern", key));
    if (kv && kv->type == GGUF_ARR) {
        if ((kv->elem != GGUF_BOOL && !gguf_is_int(kv->elem)) || kv->n < (uint64_t)hp->n_layer) {
            return slm_fail(err, SLM_E_FORMAT,
                            "%s must be an array of integers or bools with an entry for each of "
                            "%d layers", key, hp->n_layer);
        }
        for (int i = 0; i < hp->n_layer; i++) {
            hp->sliding[i] = gguf_int_at(kv, (uint64_t)i) != 0;
        }
        return true;
    }
    if (!hparams_int(hp, g, "attention.sliding_window_pattern", false, 1, LAYER_MAX, &pattern,
                     err)) {
        return false;
    }
    for (int i = 0; i < hp->n_layer; i++) {
        hp->sliding[i] = i % pattern < pattern - 1;
    }
    return true;
}

void hparams_sliding_rope(struct hparams *hp, float base)
{
    struct rope_params *r = &hp->rope[ROPE_SLIDING];

    r->base = base;
    r->scaling = ROPE_SCALE_NONE;
    r->factor = 1;
    r->attn_factor = 1;
    for (int il = 0; il < hp->n_layer; il++) {
        hp->rope_of[il] = hp->sliding[il] ? ROPE_SLIDING : ROPE_FULL;
    }
}

bool hparams_share_kv(struct hparams *hp, int n_shared, slm_error *err)
{
    hp->n_kv_layer = hp->n_layer - n_shared;
    for (int il = hp->n_kv_layer; il < hp->n_layer; il++) {
        const int owner = hp->n_kv_layer - (hp->sliding[il] ? 2 : 1);
        if (owner < 0 || hp->sliding[owner] != hp->sliding[il] ||
            hp->layer[owner].n_head_kv != hp->layer[il].n_head_kv) {
            return slm_fail(err, SLM_E_FORMAT, "layer %d cannot share the keys of layer %d, which "
                            "is of another kind or has other heads", il, owner);
        }
        hp->layer[il].kv = owner;
    }
    return true;
}

/* Scaling rule by name; longrope needs factors, which only some architectures have. */
static bool read_scaling(struct hparams *hp, const struct gguf *g, struct rope_params *r,
                         slm_error *err)
{
    static const struct { const char *name; enum rope_scaling scaling; } names[] = {
        { "none", ROPE_SCALE_NONE }, { "linear", ROPE_SCALE_LINEAR },
        { "yarn", ROPE_SCALE_YARN }, { "longrope", ROPE_SCALE_LONGROPE },
    };
    char key[KEY_MAX];
    struct gguf_str s = { "linear", 6 };

    if (!gguf_get_str(g, key_of(hp, "rope.scaling.type", key), &s, err)) {
        return false;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strlen(names[i].name) == s.n && memcmp(names[i].name, s.s, s.n) == 0) {
            r->scaling = names[i].scaling;
            return true;
        }
    }
    return slm_fail(err, SLM_E_UNSUPPORTED,
                    "%s is \"%.*s\"; supported are none, linear, yarn and longrope", key,
                    (int)(s.n < 32 ? s.n : 32), s.s);
}

static bool read_rope(struct hparams *hp, const struct gguf *g, slm_error *err)
{
    struct rope_params *r = &hp->rope[ROPE_FULL];
    float base = 10000, factor = 0, attn_factor = 1, log_mul = 0, fast = 32, slow = 1;

    r->n_rot = hp->k_dim;
    r->orig_context = hp->context_max;
    if (!hparams_int(hp, g, "rope.dimension_count", false, 2, hp->k_dim, &r->n_rot, err) ||
        !hparams_float(hp, g, "rope.freq_base", false, &base, err) ||
        !read_scaling(hp, g, r, err) ||
        !hparams_float(hp, g, "rope.scale_linear", false, &factor, err) ||
        !hparams_float(hp, g, "rope.scaling.factor", false, &factor, err) ||
        !hparams_float(hp, g, "rope.scaling.attn_factor", false, &attn_factor, err) ||
        !hparams_int(hp, g, "rope.scaling.original_context_length", false, 1, INT32_MAX,
                     &r->orig_context, err) ||
        !hparams_float(hp, g, "rope.scaling.yarn_log_multiplier", false, &log_mul, err) ||
        !hparams_float(hp, g, "rope.scaling.yarn_beta_fast", false, &fast, err) ||
        !hparams_float(hp, g, "rope.scaling.yarn_beta_slow", false, &slow, err)) {
        return false;
    }
    if (r->n_rot % 2 != 0) {
        return slm_fail(err, SLM_E_FORMAT, "%s.rope.dimension_count is %d, must be even", hp->arch,
                        r->n_rot);
    }
    if (!(base > 0) || factor < 0 || !(fast > 0) || !(slow > 0)) {
        return slm_fail(err, SLM_E_FORMAT,
                        "%s.rope.* is out of range: freq_base %g, scaling.factor %g, beta_fast %g, "
                        "beta_slow %g must be positive", hp->arch, (double)base, (double)factor,
                        (double)fast, (double)slow);
    }
    r->base = base;
    r->factor = factor > 0 && r->scaling != ROPE_SCALE_NONE ? factor : 1;
    r->attn_factor = attn_factor;
    r->log_multiplier = log_mul;
    r->beta_fast = fast;
    r->beta_slow = slow;
    hp->rope[ROPE_SLIDING] = *r;
    return true;
}

/* The number of tokens defines the vocabulary; the embedding's shape is checked against it. */
static bool read_n_vocab(struct hparams *hp, const struct gguf *g, slm_error *err)
{
    const struct gguf_kv *kv = gguf_find(g, "tokenizer.ggml.tokens");

    if (kv && kv->type == GGUF_ARR && kv->elem == GGUF_STR && kv->n > 0 && kv->n <= INT32_MAX) {
        hp->n_vocab = (int)kv->n;
        return true;
    }
    if (!kv) {
        return hparams_int(hp, g, "vocab_size", true, 1, INT32_MAX, &hp->n_vocab, err);
    }
    return slm_fail(err, SLM_E_FORMAT, "tokenizer.ggml.tokens must be an array of strings");
}

/* Heads and MLP of every layer; the scalar fields become those of layer 0. */
static bool read_layers(struct hparams *hp, const struct gguf *g, slm_error *err)
{
    int n_ff[LAYER_MAX] = { 0 }, n_head[LAYER_MAX] = { 0 }, n_head_kv[LAYER_MAX];

    if (!hparams_ints(hp, g, "feed_forward_length", true, 1, SIZE_MAX_DIM, n_ff, err) ||
        !hparams_ints(hp, g, "attention.head_count", true, 1, 4096, n_head, err)) {
        return false;
    }
    memcpy(n_head_kv, n_head, sizeof n_head);
    if (!hparams_ints(hp, g, "attention.head_count_kv", false, 1, 4096, n_head_kv, err)) {
        return false;
    }
    hp->n_ff = n_ff[0];
    hp->n_head = n_head[0];
    hp->n_head_kv = n_head_kv[0];
    hp->k_dim = hp->n_embd / hp->n_head;
    hp->v_dim = hp->k_dim;
    if (!hparams_int(hp, g, "attention.key_length", false, 1, 1024, &hp->k_dim, err) ||
        !hparams_int(hp, g, "attention.value_length", false, 1, 1024, &hp->v_dim, err)) {
        return false;
    }
    hp->n_kv_layer = hp->n_layer;
    for (int il = 0; il < hp->n_layer; il++) {
        if (n_head[il] % n_head_kv[il] != 0) {
            return slm_fail(err, SLM_E_FORMAT,
                            "%s.attention.head_count is %d, not a multiple of head_count_kv %d",
                            hp->arch, n_head[il], n_head_kv[il]);
        }
        hp->layer[il] = (struct layer_shape){
            .n_head = n_head[il], .n_head_kv = n_head_kv[il], .k_dim = hp->k_dim,
            .v_dim = hp->v_dim, .n_ff = n_ff[il], .kv = il,
        };
        hp->kv_owner[il] = (uint16_t)il;
    }
    return true;
}

bool hparams_read(struct hparams *hp, const struct gguf *g, const char *arch, slm_error *err)
{
    bool causal = true;
    char key[KEY_MAX];

    *hp = (struct hparams){ .n_loop = 1, .embd_scale = 1, .residual_scale = 1,
                           .logit_scale = 1 };
    snprintf(hp->arch, sizeof hp->arch, "%s", arch);
    if (!gguf_get_bool(g, key_of(hp, "attention.causal", key), &causal, err)) {
        return false;
    }
    if (!causal) {
        return slm_fail(err, SLM_E_UNSUPPORTED,
                        "the model is an encoder (attention.causal is false), not one that writes "
                        "text");
    }
    if (!hparams_int(hp, g, "context_length", true, 1, INT32_MAX, &hp->context_max, err) ||
        !hparams_int(hp, g, "embedding_length", true, 1, SIZE_MAX_DIM, &hp->n_embd, err) ||
        !hparams_int(hp, g, "block_count", true, 1, LAYER_MAX, &hp->n_layer, err) ||
        !read_layers(hp, g, err)) {
        return false;
    }
    if (hp->k_dim < 2 || hp->k_dim > 1024) {
        return slm_fail(err, SLM_E_FORMAT, "the head size is %d, must be 2 to 1024", hp->k_dim);
    }
    hp->attn_scale = 1.0f / sqrtf((float)hp->k_dim);
    return read_rope(hp, g, err) && read_n_vocab(hp, g, err);
}

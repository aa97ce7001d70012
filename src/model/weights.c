/* weights.c - binds the tensors of a file to the structs of an architecture. */
#include "model/weights.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

int dim_size(const struct hparams *hp, int il, enum dim dim)
{
    const struct layer_shape *l = &hp->layer[il < 0 ? 0 : il];

    switch (dim) {
    case DIM_EMBD:  return hp->n_embd;
    case DIM_VOCAB: return hp->n_vocab;
    case DIM_FF:    return l->n_ff;
    case DIM_FF2:   return 2 * l->n_ff;
    case DIM_HEADS: return l->n_head;
    case DIM_HEADS_KV: return l->n_head_kv;
    case DIM_Q:     return l->n_head * l->k_dim;
    case DIM_K:     return l->n_head_kv * l->k_dim;
    case DIM_V:     return l->n_head_kv * l->v_dim;
    case DIM_ATT:   return l->n_head * l->v_dim;
    case DIM_QKV:   return l->n_head * l->k_dim + l->n_head_kv * (l->k_dim + l->v_dim);
    case DIM_HEAD:  return l->k_dim;
    case DIM_PAIRS: return hp->rope[ROPE_FULL].n_rot / 2;
    case DIM_EXPERTS: return hp->n_expert;
    case DIM_FF_EXP:  return hp->n_ff_expert;
    case DIM_FF2_EXP: return 2 * hp->n_ff_expert;
    case DIM_LAYER:   return hp->n_embd_layer;
    case DIM_LAYERS:  return hp->n_embd_layer * hp->n_layer;
    case DIM_EMBD2:   return 2 * hp->n_embd;
    case DIM_Q2:      return 2 * l->n_head * l->k_dim;
    case DIM_DELTA_IN:    return delta_channels(&hp->delta);
    case DIM_DELTA_OUT:   return hp->delta.n_v_head * hp->delta.head_dim;
    case DIM_DELTA_HEADS: return hp->delta.n_v_head;
    case DIM_DELTA_HEAD:  return hp->delta.head_dim;
    case DIM_DELTA_TAPS:  return hp->delta.taps;
    case DIM_NONE:
    case DIM_FIXED: break;
    }
    return dim >= DIM_FIXED ? (int)dim - DIM_FIXED : 1;
}

/* Adds "blk.3-5.attn_q.weight" for a run of layers, or the plain name of a top-level tensor. */
static void note_missing(struct binder *b, const char *name, int first, int last)
{
    const char *percent = strstr(name, "%d");

    buf_puts(&b->missing, b->missing.len ? ", " : "");
    if (!percent) {
        buf_puts(&b->missing, name);
        b->n_missing++;
        return;
    }
    buf_add(&b->missing, name, (size_t)(percent - name));
    buf_printf(&b->missing, first == last ? "%d" : "%d-%d", first, last);
    buf_puts(&b->missing, percent + 2);
    b->n_missing += last - first + 1;
}

void tensor_name(char out[64], const struct tensor_row *row, int il)
{
    const char *percent = strstr(row->name, "%d");

    if (percent) {
        snprintf(out, 64, "%.*s%d%s", (int)(percent - row->name), row->name, il, percent + 2);
    } else {
        snprintf(out, 64, "%s", row->name);
    }
}

/* Whether the layer has its projections in one matrix instead of three. */
static bool has_fused(const struct binder *b, int il)
{
    char name[64];

    snprintf(name, sizeof name, "blk.%d.attn_qkv.weight", il);
    return gguf_find_tensor(b->g, name) != NULL;
}

static bool is_needed(const struct binder *b, const struct tensor_row *row, int il)
{
    switch (row->need) {
    case NEED:
    case NEED_ATTN:
    case NEED_DELTA:   return true;
    case MAYBE:        break;
    case NEED_UNFUSED: return !has_fused(b, il);
    case NEED_KV:      return layer_owns_kv(b->hp, il);
    case NEED_KV_UNFUSED: return layer_owns_kv(b->hp, il) && !has_fused(b, il);
    case NEED_LAYER:   return b->hp->n_embd_layer > 0;
    case NEED_DENSE:   return b->hp->n_expert == 0;
    case NEED_EXPERTS: return b->hp->n_expert > 0;
    }
    return false;
}

static bool check_shape(struct binder *b, const struct gguf_tensor *t,
                        const struct tensor_row *row, int il)
{
    const int in = dim_size(b->hp, il, row->in), out = dim_size(b->hp, il, row->out);
    const int stack = dim_size(b->hp, il, row->stack);

    if (t->ne[0] == in && t->ne[1] == out && t->ne[2] == stack && t->ne[3] == 1) {
        return true;
    }
    b->failed = true;
    return slm_fail(b->err, SLM_E_FORMAT,
                    "tensor %s has shape %lld x %lld x %lld x %lld, the model needs %d x %d x %d",
                    t->name, (long long)t->ne[0], (long long)t->ne[1], (long long)t->ne[2],
                    (long long)t->ne[3], in, out, stack);
}

static const struct quant_type *check_type(struct binder *b, const struct gguf_tensor *t)
{
    const struct quant_type *type = quant_type(t->type);

    if (type) {
        return type;
    }
    b->failed = true;
    slm_fail(b->err, SLM_E_UNSUPPORTED,
             "tensor %s has type %s, which is none of weights (F32, F16, BF16, Q1_0 to Q8_0, Q2_K to "
             "Q6_K, IQ1_S to IQ4_XS, TQ1_0, TQ2_0, MXFP4, NVFP4)",
             t->name, gguf_tensor_type(t->type)->name);
    return NULL;
}

static bool bind_floats(struct binder *b, const struct gguf_tensor *t,
                        const struct quant_type *type, const float **out)
{
    const size_t n = (size_t)t->ne[0] * (size_t)t->ne[1];
    float *v = arena_alloc(b->arena, n * sizeof *v);

    if (!v) {
        b->failed = true;
        return slm_fail_nomem(b->err, t->name);
    }
    type->decode(t->data, n, v);
    *out = v;
    return true;
}

/* The scales beside some matrices, X.scale to X.weight: one, or one per matrix of a stack.
 * NULL where there are none. */
static const struct gguf_tensor *find_scales(const struct binder *b, const struct gguf_tensor *t)
{
    const size_t n = strlen(t->name);
    char name[80];

    if (n < 7 || n > 64 || strcmp(t->name + n - 7, ".weight") != 0) {
        return NULL;
    }
    snprintf(name, sizeof name, "%.*s.scale", (int)(n - 7), t->name);
    const struct gguf_tensor *s = gguf_find_tensor(b->g, name);
    /* A longer one has a meaning that only the architecture knows. */
    return s && s->ne[0] == t->ne[2] && s->ne[1] == 1 && s->ne[2] == 1 ? s : NULL;
}

/* Binds a matrix to *one, or a stack of them to an array at *stack where that is not NULL. */
static bool bind_matrices(struct binder *b, const struct gguf_tensor *t,
                          const struct quant_type *type, struct weight **stack, struct weight *one)
{
    const struct gguf_tensor *scales = find_scales(b, t);
    const size_t n = (size_t)t->ne[2];
    const float *scale = NULL;
    struct weight *w = one;

    if (stack) {
        w = *stack = arena_zalloc(b->arena, n * sizeof *w);
        if (!w) {
            b->failed = true;
            return slm_fail_nomem(b->err, t->name);
        }
    }
    if (scales) {
        const struct quant_type *scale_type = check_type(b, scales);
        if (!scale_type || !bind_floats(b, scales, scale_type, &scale)) {
            return false;
        }
    }
    for (size_t i = 0; i < n; i++) {
        w[i].tensor = t;
        w[i].type = type;
        w[i].n_in = (int)t->ne[0];
        w[i].n_out = (int)t->ne[1];
        w[i].row_bytes = (size_t)(t->ne[0] / type->block) * (size_t)type->block_bytes;
        w[i].rows = t->data + i * (size_t)t->ne[1] * w[i].row_bytes;
        w[i].scale = scale ? scale[i] : 0;
    }
    return true;
}

enum bound { BOUND, ABSENT, MISSING, WRONG };

static enum bound bind_row(struct binder *b, const struct tensor_row *row, void *base, int il)
{
    char name[64];

    if (!row_applies(row, b->hp, il)) {
        return ABSENT;
    }
    tensor_name(name, row, il);
    const struct gguf_tensor *t = gguf_find_tensor(b->g, name);
    if (!t) {
        return is_needed(b, row, il) ? MISSING : ABSENT;
    }
    const struct quant_type *type = check_type(b, t);
    if (!type || !check_shape(b, t, row, il)) {
        return WRONG;
    }
    void *field = (char *)base + row->offset;
    if (row_is_floats(row)) {
        return bind_floats(b, t, type, field) ? BOUND : WRONG;
    }
    return bind_matrices(b, t, type, row->stack == DIM_NONE ? NULL : field, field) ? BOUND : WRONG;
}

bool weights_bind(struct binder *b, const struct tensor_row *rows, size_t n_rows, void *base,
                  int il)
{
    for (size_t i = 0; i < n_rows && !b->failed; i++) {
        if (bind_row(b, &rows[i], base, il) == MISSING) {
            note_missing(b, rows[i].name, il, il);
        }
    }
    return !b->failed;
}

bool weights_bind_layers(struct binder *b, const struct tensor_row *rows, size_t n_rows,
                         void *base, size_t stride)
{
    for (size_t i = 0; i < n_rows; i++) {
        int first = -1;  /* of the current run of missing ones */
        for (int il = 0; il < b->hp->n_layer && !b->failed; il++) {
            const bool miss =
                bind_row(b, &rows[i], (char *)base + (size_t)il * stride, il) == MISSING;
            if (miss && first < 0) {
                first = il;
            }
            if (first >= 0 && (!miss || il == b->hp->n_layer - 1)) {
                note_missing(b, rows[i].name, first, miss ? il : il - 1);
                first = -1;
            }
        }
    }
    return !b->failed;
}

bool weights_finish(struct binder *b)
{
    bool ok = !b->failed;

    if (ok && b->n_missing > 0) {
        enum { ROOM = 180 };
        if (b->missing.len > ROOM) {
            log_line(SLM_LOG_ERROR, "missing tensors: %s", buf_str(&b->missing));
        }
        ok = slm_fail(b->err, SLM_E_FORMAT, "%d tensor%s missing: %.*s%s", b->n_missing,
                      b->n_missing == 1 ? " is" : "s are", ROOM, buf_str(&b->missing),
                      b->missing.len > ROOM ? "..." : "");
    }
    buf_deinit(&b->missing);
    return ok;
}

void weight_slice(struct weight *out, const struct weight *w, int row0, int n)
{
    assert(row0 >= 0 && n >= 0 && row0 + n <= w->n_out);
    out->tensor = w->tensor;
    out->type = w->type;
    out->n_in = w->n_in;
    out->n_out = n;
    out->rows = w->rows + (size_t)row0 * w->row_bytes;
    out->row_bytes = w->row_bytes;
    out->scale = w->scale;
    out->panels = NULL;
    atomic_init(&out->n_packed, 0);
}

void weight_row(const struct weight *w, int row, float *out)
{
    w->type->decode(w->rows + (size_t)row * w->row_bytes, (size_t)w->n_in, out);
}

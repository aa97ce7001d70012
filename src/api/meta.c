/* meta.c - what a model file says about itself, as text. */
#include <inttypes.h>

#include "api/api.h"

/* Elements of an array that are shown. */
enum { META_ARRAY_SHOWN = 8 };

static uint64_t count_params(const struct gguf *g)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        uint64_t n = 1;
        for (int d = 0; d < t->n_dims; d++) {
            n *= (uint64_t)t->ne[d];  /* the product was checked when the file was opened */
        }
        sum += n;
    }
    return sum;
}

static uint64_t count_bytes(const struct gguf *g)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        sum += gguf_tensor_at(g, i)->bytes;
    }
    return sum;
}

void slm_model_info_get(const slm_model *model, slm_model_info *out)
{
    if (!out) {
        return;
    }
    *out = (slm_model_info){ .arch = "", .name = "", .bos = -1, .eos = -1 };
    if (!model) {
        return;
    }
    out->arch = model->arch;
    out->name = model->name;
    out->file_bytes = gguf_file_bytes(model->gguf);
    out->weight_bytes = count_bytes(model->gguf);
    out->n_params = count_params(model->gguf);
    out->has_template = model->chat || model->chat_broken;
    if (model->vocab) {
        out->n_vocab = vocab_size(model->vocab);
        out->bos = vocab_bos(model->vocab);
        out->eos = vocab_eos(model->vocab);
        out->add_bos = vocab_add_bos(model->vocab);
    }
    if (model->model) {
        const struct model_shape *s = model_shape(model->model);
        out->n_layer = s->n_layer;
        out->n_embd = s->n_embd;
        out->n_head = s->n_head;
        out->n_head_kv = s->n_head_kv;
        out->context_max = s->context_max;
        out->token_bytes = s->token_bytes;
        out->prompt_params = s->prompt_params;
    }
}

/* ---- metadata ----------------------------------------------------------------------- */

/* Strings are quoted inside an array, so that its elements can be told apart. */
static void print_element(struct buf *b, const struct gguf_kv *kv, uint64_t i, bool quoted)
{
    if (kv->elem == GGUF_STR) {
        buf_puts(b, quoted ? "\"" : "");
        buf_add(b, kv->str[i].s, kv->str[i].n);
        buf_puts(b, quoted ? "\"" : "");
    } else if (kv->elem == GGUF_BOOL) {
        buf_puts(b, gguf_int_at(kv, i) ? "true" : "false");
    } else if (kv->elem == GGUF_U64) {
        buf_printf(b, "%" PRIu64, (uint64_t)gguf_int_at(kv, i));
    } else if (gguf_is_int(kv->elem)) {
        buf_printf(b, "%" PRId64, gguf_int_at(kv, i));
    } else {
        buf_printf(b, "%.*g", kv->elem == GGUF_F64 ? 15 : 7, gguf_float_at(kv, i));
    }
}

/* The value as text in model->meta; NULL where memory is out. */
static const char *print_value(slm_model *model, const struct gguf_kv *kv)
{
    struct buf *b = &model->meta;

    buf_clear(b);
    if (kv->type != GGUF_ARR) {
        print_element(b, kv, 0, false);
        return b->failed ? NULL : buf_str(b);
    }
    buf_putc(b, '[');
    for (uint64_t i = 0; i < kv->n && i < META_ARRAY_SHOWN; i++) {
        buf_puts(b, i > 0 ? ", " : "");
        print_element(b, kv, i, true);
    }
    buf_puts(b, kv->n > META_ARRAY_SHOWN ? ", ...]" : "]");
    buf_printf(b, " (%" PRIu64 " x %s)", kv->n, gguf_type_name(kv->elem));
    return b->failed ? NULL : buf_str(b);
}

bool slm_model_meta(slm_model *model, size_t i, const char **key, const char **type,
                    const char **value)
{
    if (!model || i >= gguf_n_kv(model->gguf)) {
        return false;
    }
    const struct gguf_kv *kv = gguf_kv_at(model->gguf, i);
    if (key) {
        *key = kv->key;
    }
    if (type) {
        *type = gguf_type_name(kv->type);
    }
    if (value) {
        const char *text = print_value(model, kv);
        *value = text ? text : "";
    }
    return true;
}

const char *slm_model_meta_find(slm_model *model, const char *key)
{
    const struct gguf_kv *kv = model && key ? gguf_find(model->gguf, key) : NULL;
    return kv ? print_value(model, kv) : NULL;
}

bool slm_model_tensor(const slm_model *model, size_t i, slm_tensor_info *out)
{
    if (!model || !out || i >= gguf_n_tensors(model->gguf)) {
        return false;
    }
    const struct gguf_tensor *t = gguf_tensor_at(model->gguf, i);
    *out = (slm_tensor_info){
        .name = t->name,
        .type = gguf_tensor_type(t->type)->name,
        .n_dims = t->n_dims,
        .dims = { t->ne[0], t->ne[1], t->ne[2], t->ne[3] },
        .bytes = t->bytes,
    };
    return true;
}

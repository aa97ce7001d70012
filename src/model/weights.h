/* weights.h - finding tensors, checking their shapes, saying what is missing.
 *
 * An architecture lists its tensors as rows of a table.  The same rows let the
 * loader bind them, the error message name all missing ones at once, and the
 * tool mkmodel write a tiny random model of the architecture. */
#ifndef WEIGHTS_H
#define WEIGHTS_H

#include <stdatomic.h>

#include "base/buf.h"
#include "base/mem.h"
#include "model/hparams.h"
#include "quant/quant.h"

/* A matrix [n_out][n_in] that a product is made with. */
struct weight {
    const struct gguf_tensor *tensor;
    const struct quant_type *type;
    int n_in, n_out;
    const uint8_t *rows;      /* as in the file; NULL where the tensor is absent */
    size_t row_bytes;
    float scale;              /* of the product; 0: none */
    const uint8_t *panels;    /* packed copy of the first n_packed rows; a multiple of PANEL_ROWS */
    _Atomic int n_packed;     /* of them, or all */

    /* Where the rows are not in memory: what they are read through, and for products the pieces
     * of the model's stream, each of piece_rows rows but the last.  The mapping at `rows` is
     * then not touched. */
    struct reader *reader;
    uint64_t offset;          /* of the rows in their file */
    int piece, n_pieces, piece_rows;
};

static inline size_t weight_bytes(const struct weight *w)
{
    return (size_t)w->n_out * w->row_bytes;
}

/* Whether the weight is one of the model's experts, of which a token uses a few. */
static inline bool weight_is_expert(const struct weight *w, const struct hparams *hp)
{
    return hp->n_expert > 0 && w->tensor->ne[2] == hp->n_expert;
}

/* Sizes that shapes are made of. */
enum dim {
    DIM_NONE,    /* no second dimension: a vector */
    DIM_EMBD, DIM_VOCAB, DIM_FF,
    DIM_FF2,     /* 2 * n_ff: gate and up in one matrix */
    DIM_Q,       /* n_head * k_dim */
    DIM_K,       /* n_head_kv * k_dim */
    DIM_V,       /* n_head_kv * v_dim */
    DIM_ATT,     /* n_head * v_dim */
    DIM_QKV,     /* DIM_Q + DIM_K + DIM_V */
    DIM_HEAD,    /* k_dim */
    DIM_HEADS, DIM_HEADS_KV,  /* n_head, n_head_kv */
    DIM_PAIRS,   /* n_rot / 2 */
    DIM_EXPERTS, /* n_expert */
    DIM_FF_EXP, DIM_FF2_EXP,  /* n_ff_expert, 2 * n_ff_expert */
    DIM_LAYER,   /* n_embd_layer */
    DIM_LAYERS,  /* n_embd_layer * n_layer */
    DIM_EMBD2,   /* 2 * n_embd */
    DIM_Q2,      /* 2 * DIM_Q: queries and their gates */
    DIM_DELTA_IN,    /* channels of a recurrent layer's convolution */
    DIM_DELTA_OUT,   /* n_v_head * head_dim of a recurrent layer */
    DIM_DELTA_HEADS, /* n_v_head */
    DIM_DELTA_HEAD,  /* head_dim */
    DIM_DELTA_TAPS,
    DIM_FIXED    /* from here on the number itself, see DIM_IS */
};

/* A size that is the same in every model of an architecture. */
#define DIM_IS(n) ((enum dim)(DIM_FIXED + (n)))

/* In layer il, or outside the layers (-1). */
int dim_size(const struct hparams *hp, int il, enum dim dim);

enum weight_need {
    NEED,        /* required */
    MAYBE,       /* absent means: skip that term */
    NEED_UNFUSED,/* required unless attn_qkv of the layer exists */
    NEED_KV,     /* required in layers with keys of their own */
    NEED_KV_UNFUSED, /* both of these */
    NEED_LAYER,  /* required in models with n_embd_layer */
    NEED_ATTN,   /* required in layers with attention; recurrent ones do not have it */
    NEED_DELTA,  /* the other way round */
    NEED_DENSE,  /* required in models without experts */
    NEED_EXPERTS,/* required in models with experts */
};

/* One tensor: where it goes and what shape it must have.  A matrix goes into a struct
 * weight; a vector, and what is marked so, into a const float *, decoded from whatever type; a
 * stack of matrices into a struct weight * to as many, in the arena. */
struct tensor_row {
    const char *name;        /* with %d for the layer in layer tables */
    size_t offset;           /* in the struct that is bound */
    enum dim in, out;
    enum weight_need need;
    bool floats;             /* a table of floats although it has two dimensions */
    enum dim stack;          /* DIM_NONE, or the number of matrices */
};

static inline bool row_is_floats(const struct tensor_row *row)
{
    return row->floats || row->out == DIM_NONE;
}

/* Whether layer il, or -1, of a model of this kind has such a tensor at all. */
static inline bool row_applies(const struct tensor_row *row, const struct hparams *hp, int il)
{
    const bool expert = row->need == NEED_EXPERTS || row->out == DIM_EXPERTS ||
                        row->stack == DIM_EXPERTS;

    const bool recurrent = il >= 0 && hp->layer[il].recurrent;

    if (row->need == (recurrent ? NEED_ATTN : NEED_DELTA)) {
        return false;
    }
    return !(expert && hp->n_expert == 0) && !(row->need == NEED_LAYER && hp->n_embd_layer == 0);
}

/* The row's name with the layer's number put in. */
void tensor_name(char out[64], const struct tensor_row *row, int il);

/* Collects what is wrong with a model's tensors. */
struct binder {
    const struct gguf *g;
    const struct hparams *hp;
    struct arena *arena;     /* vectors are decoded into it */
    int n_missing;
    struct buf missing;      /* their names, layers as ranges: "blk.0-29.attn_q.weight" */
    slm_error *err;
    bool failed;             /* a tensor of wrong shape or type: *err is set */
};

/* Binds rows of layer il, or top-level ones (-1), into `base`.  False once something is wrong
 * beyond missing tensors. */
bool weights_bind(struct binder *b, const struct tensor_row *rows, size_t n_rows, void *base,
                  int il);

/* Binds the rows of every layer; layer il is at base + il * stride. */
bool weights_bind_layers(struct binder *b, const struct tensor_row *rows, size_t n_rows,
                         void *base, size_t stride);

/* False, and all missing tensors listed in *err, where some were.  Ends the binder. */
bool weights_finish(struct binder *b);

/* Rows [row0, row0 + n) of a matrix as a matrix. */
void weight_slice(struct weight *out, const struct weight *w, int row0, int n);

/* Values of one row, decoded: out [n_in]. */
void weight_row(const struct weight *w, int row, float *out);

#endif

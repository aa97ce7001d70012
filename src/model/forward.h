/* forward.h - the pieces that architectures share, over all tokens of a step.
 *
 * Rows are tokens: an array x [n_tok][n] holds n floats per token.  Scratch comes
 * from the step's arena and lives until the layer ends. */
#ifndef FORWARD_H
#define FORWARD_H

#include "model/arch.h"
#include "model/model.h"
#include "model/profile.h"

/* Everything that one step works with. */
struct step {
    struct model *model;
    const struct hparams *hp;
    const struct kern *k;
    struct pool *pool;
    struct work *work;
    const struct step_in *in;
    int n_tok;
    const int *pos;                   /* [n_tok] position of each token in its sequence */
    const int *seq;                   /* [n_tok] its sequence */
    const float *rope[ROPE_KINDS];    /* [n_tok][n_rot] cos and sin of each token */
    struct profile *profile;          /* or NULL */
    bool rope_pairs;                  /* which elements of a head a rotation pairs */
    int loop;                         /* of n_loop passes through the layers */
    float *layer_in;                  /* [n_tok][n_layer][n_embd_layer], or NULL */
    float *streams;                   /* further residual streams: [..][n_tok][n_embd], or NULL */
    struct stream *stream;            /* of weights that are not in memory, or NULL */
    atomic_bool failed;               /* weights could not be read: fault says why, the step fails */
    slm_error fault;
};

/* Norms of queries and keys. */
enum qk_norm {
    QK_HEAD,      /* RMS over each head, one weight [k_dim] for all */
    QK_HEAD_LN,   /* layer norm over each head, a weight [n_head][k_dim] */
    QK_WHOLE,     /* RMS over all heads together, a weight [n_head * k_dim] */
};

/* The projections of an attention block.  Absent biases and norms are NULL.  Without k the block
 * reads the keys and values that another layer has stored; without v alone the values are what k
 * projects. */
struct attn {
    struct weight q, k, v, out;
    struct weight qkv;                /* where the file has them fused; q, k, v are views of it */
    const float *q_bias, *k_bias, *v_bias, *qkv_bias, *out_bias;
    const float *q_norm, *k_norm;     /* on every head before the rotation, or NULL */
    enum qk_norm qk_norm;             /* what they are */
    bool v_norm;                      /* RMS over each value head, without a weight */
};

/* down(f(gate x) * up x), or down(f(up x)) where there is no gate. */
struct mlp {
    struct weight gate, up, down;
    struct weight gate_up;            /* where the file has them fused; gate and up are views */
    const float *gate_bias, *up_bias, *down_bias;
};

/* MLPs of which a router picks a few for every token. */
struct moe {
    struct weight router;             /* [n_expert][n_embd]; absent where the layer has none */
    struct weight *gate, *up, *down;  /* [n_expert] */
    struct weight *gate_up;           /* in place of gate and up where the file has them fused */
};

/* A decoder layer with norms before its blocks and, in some architectures, after them. */
struct layer {
    struct norm attn_norm, ffn_norm, post_attn_norm, post_ffn_norm;
    struct attn attn;
    struct mlp mlp;
    struct moe moe;
};

/* Table rows of the parts, for the architectures' own tables. */
#define ROW(field, name, in, out, need)                                                  \
    { name, offsetof(struct layer, field), in, out, need, false, DIM_NONE }
#define ROW_FLOATS(field, name, in, out, need)                                           \
    { name, offsetof(struct layer, field), in, out, need, true, DIM_NONE }
#define ROW_STACK(field, name, in, out, need)                                            \
    { name, offsetof(struct layer, field), in, out, need, false, DIM_EXPERTS }
#define ROWS_ATTN_NORM                                                                     \
    ROW(attn_norm.w, "blk.%d.attn_norm.weight", DIM_EMBD, DIM_NONE, NEED)
#define ROWS_ATTN                                                                          \
    ROW(attn.qkv, "blk.%d.attn_qkv.weight", DIM_EMBD, DIM_QKV, MAYBE),                     \
    ROW(attn.q, "blk.%d.attn_q.weight", DIM_EMBD, DIM_Q, NEED_UNFUSED),                    \
    ROW(attn.k, "blk.%d.attn_k.weight", DIM_EMBD, DIM_K, NEED_UNFUSED),                    \
    ROW(attn.v, "blk.%d.attn_v.weight", DIM_EMBD, DIM_V, NEED_UNFUSED),                    \
    ROW(attn.out, "blk.%d.attn_output.weight", DIM_ATT, DIM_EMBD, NEED),                   \
    ROWS_ATTN_BIASES
/* Of layers that may share keys and values; v_need is MAYBE where values may be what the keys
 * are made of. */
#define ROWS_ATTN_SHARED(v_need)                                                           \
    ROW(attn.qkv, "blk.%d.attn_qkv.weight", DIM_EMBD, DIM_QKV, MAYBE),                     \
    ROW(attn.q, "blk.%d.attn_q.weight", DIM_EMBD, DIM_Q, NEED_UNFUSED),                    \
    ROW(attn.k, "blk.%d.attn_k.weight", DIM_EMBD, DIM_K, NEED_KV_UNFUSED),                 \
    ROW(attn.v, "blk.%d.attn_v.weight", DIM_EMBD, DIM_V, v_need),                          \
    ROW(attn.out, "blk.%d.attn_output.weight", DIM_ATT, DIM_EMBD, NEED),                   \
    ROWS_ATTN_BIASES,                                                                      \
    ROW(attn.q_norm, "blk.%d.attn_q_norm.weight", DIM_HEAD, DIM_NONE, NEED),               \
    ROW(attn.k_norm, "blk.%d.attn_k_norm.weight", DIM_HEAD, DIM_NONE, NEED_KV)
#define ROWS_ATTN_BIASES                                                                   \
    ROW(attn.qkv_bias, "blk.%d.attn_qkv.bias", DIM_QKV, DIM_NONE, MAYBE),                  \
    ROW(attn.q_bias, "blk.%d.attn_q.bias", DIM_Q, DIM_NONE, MAYBE),                        \
    ROW(attn.k_bias, "blk.%d.attn_k.bias", DIM_K, DIM_NONE, MAYBE),                        \
    ROW(attn.v_bias, "blk.%d.attn_v.bias", DIM_V, DIM_NONE, MAYBE),                        \
    ROW(attn.out_bias, "blk.%d.attn_output.bias", DIM_EMBD, DIM_NONE, MAYBE)
#define ROWS_QK_NORM                                                                       \
    ROW(attn.q_norm, "blk.%d.attn_q_norm.weight", DIM_HEAD, DIM_NONE, NEED),               \
    ROW(attn.k_norm, "blk.%d.attn_k_norm.weight", DIM_HEAD, DIM_NONE, NEED)
#define ROWS_FFN_NORM                                                                      \
    ROW(ffn_norm.w, "blk.%d.ffn_norm.weight", DIM_EMBD, DIM_NONE, NEED)
#define ROWS_POST_NORMS                                                                    \
    ROW(post_attn_norm.w, "blk.%d.post_attention_norm.weight", DIM_EMBD, DIM_NONE, NEED),  \
    ROW(post_ffn_norm.w, "blk.%d.post_ffw_norm.weight", DIM_EMBD, DIM_NONE, NEED)
#define ROWS_MLP                                                                           \
    ROW(mlp.gate, "blk.%d.ffn_gate.weight", DIM_EMBD, DIM_FF, NEED_DENSE),                 \
    ROW(mlp.up, "blk.%d.ffn_up.weight", DIM_EMBD, DIM_FF, NEED_DENSE),                     \
    ROW(mlp.down, "blk.%d.ffn_down.weight", DIM_FF, DIM_EMBD, NEED_DENSE),                 \
    ROW(mlp.gate_bias, "blk.%d.ffn_gate.bias", DIM_FF, DIM_NONE, MAYBE),                   \
    ROW(mlp.up_bias, "blk.%d.ffn_up.bias", DIM_FF, DIM_NONE, MAYBE),                       \
    ROW(mlp.down_bias, "blk.%d.ffn_down.bias", DIM_EMBD, DIM_NONE, MAYBE)

#define ROWS_MOE                                                                           \
    ROW(moe.router, "blk.%d.ffn_gate_inp.weight", DIM_EMBD, DIM_EXPERTS, NEED_EXPERTS),    \
    ROW_STACK(moe.gate, "blk.%d.ffn_gate_exps.weight", DIM_EMBD, DIM_FF_EXP, NEED_EXPERTS),\
    ROW_STACK(moe.up, "blk.%d.ffn_up_exps.weight", DIM_EMBD, DIM_FF_EXP, NEED_EXPERTS),    \
    ROW_STACK(moe.down, "blk.%d.ffn_down_exps.weight", DIM_FF_EXP, DIM_EMBD, NEED_EXPERTS)

/* How a layer takes up its own input: down to its size, times the input, back up. */
struct layer_in {
    struct weight gate, proj;
    struct norm norm;
};

/* h = norm(proj(gelu(gate x) * input of layer il)); x, h: [n_tok][n_embd], may be the same. */
void layer_in_block(struct step *st, const struct layer_in *in, int il, const float *x, float *h);

/* Top-level rows of architectures with n_embd_layer. */
#define ROW_TOP(field, name, in, out, need)                                                \
    { name, offsetof(struct top, field), in, out, need, false, DIM_NONE }
#define ROWS_LAYER_IN                                                                      \
    ROW_TOP(layer_embd, "per_layer_token_embd.weight", DIM_LAYERS, DIM_VOCAB, NEED_LAYER), \
    ROW_TOP(layer_proj, "per_layer_model_proj.weight", DIM_EMBD, DIM_LAYERS, NEED_LAYER),  \
    ROW_TOP(layer_proj_norm, "per_layer_proj_norm.weight", DIM_LAYER, DIM_NONE, NEED_LAYER)

/* Rows of a layer's struct layer_in, a field of struct type. */
#define ROWS_LAYER_IN_OF(type, field)                                                      \
    { "blk.%d.inp_gate.weight", offsetof(type, field.gate), DIM_EMBD, DIM_LAYER,           \
      NEED_LAYER, false, DIM_NONE },                                                       \
    { "blk.%d.proj.weight", offsetof(type, field.proj), DIM_LAYER, DIM_EMBD,               \
      NEED_LAYER, false, DIM_NONE },                                                       \
    { "blk.%d.post_norm.weight", offsetof(type, field.norm.w), DIM_EMBD, DIM_NONE,         \
      NEED_LAYER, false, DIM_NONE }

/* arch.begin for them: fills step.layer_in. */
void layer_in_begin(struct step *st, float *x);

/* arch.finish and arch.each_weight for struct layer. */
bool layer_finish(void *layer, const struct hparams *hp, int il, slm_error *err);
/* The same with ROWS_ATTN_SHARED: values are normed, and unused tensors dropped. */
bool layer_finish_shared(void *layer, const struct hparams *hp, int il, slm_error *err);
void layer_each_weight(void *layer, const struct hparams *hp,
                       void (*fn)(void *arg, struct weight *w), void *arg);

/* arch.layer of llama and its kin: norm, attention, add, norm, gated MLP or experts, add. */
void layer_prenorm(struct step *st, const void *layer, int il, float *x);

/* arch.layer of Gemma 2 and 3: the same with GELU and a norm after each block as well. */
void layer_sandwich(struct step *st, const void *layer, int il, float *x);

/* ---- scratch --------------------------------------------------------------------- */

/* [n_tok][n] floats. */
float *scratch_rows(struct step *st, int n);
/* Everything taken since the mark is free again. */
size_t scratch_mark(const struct step *st);
void scratch_release(struct step *st, size_t mark);

/* ---- rows ------------------------------------------------------------------------- */

/* Runs fn for n rows, in parallel where that pays. */
void op_rows(struct step *st, int n, pool_fn *fn, void *arg);
/* y = norm of x, rows of n_embd; y may be x. */
void op_norm(struct step *st, float *y, const float *x, struct norm norm);
/* y *= s, rows of n floats. */
void op_scale(struct step *st, float *y, float s, int n);
/* x += y * residual_scale; y is changed. */
void op_add(struct step *st, float *x, float *y);
/* One row of op_norm. */
void norm_row(const struct step *st, float *y, const float *x, struct norm norm);

/* ---- products --------------------------------------------------------------------- */

/* One product of a group that shares its input: y[t * ldy + r] = row r of w . x[t] + bias[r]. */
struct product {
    const struct weight *w;
    const float *bias;   /* [n_out] or NULL */
    float *y;
    size_t ldy;
};

/* Computes up to PRODUCT_MAX products of x [n_tok][n_in] in one parallel region. */
enum { PRODUCT_MAX = 4 };
void matmul(struct step *st, const struct product *p, int n_products, const float *x, size_t ldx,
            int n_tok);

/* The same for one product; sets nan[t] where a result of token t is NaN. */
void matmul_nan(struct step *st, const struct product *p, const float *x, size_t ldx, int n_tok,
                atomic_bool *nan);

/* Announces that the products of w come next, where it depends on the tokens whether they do. */
void expect_weight(struct step *st, const struct weight *w);

/* Row `row` of a table, decoded: out [w->n_in].  Called from tasks. */
void table_row(struct step *st, const struct weight *w, int row, float *out, int worker);

/* Makes the step fail; the first call counts.  What the step computes from then on is of no
 * interest, but must not stop it. */
void step_fail(struct step *st, const slm_error *err);

/* ---- blocks ------------------------------------------------------------------------ */

/* The KV layer of layer il in this loop. */
static inline int kv_of(const struct step *st, int il)
{
    return st->loop * st->hp->n_layer + st->hp->layer[il].kv;
}

/* y = attn_output(attention(q, k, v of h)); extends the keys and values of KV layer il_kv.
 * h, y: [n_tok][n_embd], may be the same. */
void attn_block(struct step *st, const struct attn *a, int il, int il_kv, const float *h,
                float *y);

/* The middle of it: norms and rotates q and k, stores k and v.  q: [n_tok][n_head * k_dim], k and
 * v alike with the key-value heads. */
void attn_heads(struct step *st, const struct attn *a, int il, int il_kv, float *q, float *k,
                float *v);

/* Attention proper: q [n_tok][n_head * k_dim] of layer il, already rotated, against the pages of
 * KV layer il_kv, into o [n_tok][n_head * v_dim]. */
void attention(struct step *st, int il, int il_kv, const float *q, float *o);

/* g[t] = f(g[t]) * u[t * ldu], rows of n floats. */
void op_gate(struct step *st, enum gate_fn fn, float *g, const float *u, size_t ldu, int n);

/* y = down(f(gate h) * up h); h, y: [n_tok][n_embd], may be the same. */
void mlp_gated(struct step *st, const struct mlp *m, enum gate_fn fn, const float *h, float *y);

/* y = weighted sum over the experts that the router picks from router_in [n_tok][n_embd] of
 * down(f(gate x) * up x); x, y: [n_tok][n_embd], y none of the others. */
void moe_block(struct step *st, const struct moe *m, enum gate_fn fn, const float *router_in,
               const float *x, float *y);
/* Scratch floats per token that it takes. */
int moe_row_floats(const struct hparams *hp);

/* y = down(f(up h)). */
void mlp_plain(struct step *st, const struct mlp *m, enum unary_fn fn, const float *h, float *y);

/* A recurrent layer's block: the convolution and the gated delta net. */
struct delta {
    struct weight qkv, gate, alpha, beta, out;
    const float *conv;                /* [taps][channels] once the layer is finished */
    const float *dt, *a;              /* [n_v_head]: bias of alpha, factor of the decay (< 0) */
    const float *norm;                /* [head_dim] */
};

/* y = out(gated delta net of h); advances the layer's states.  h, y: [n_tok][n_embd], may be the
 * same. */
void delta_block(struct step *st, const struct delta *d, int il, const float *h, float *y);
/* Scratch floats per token that it takes. */
int delta_row_floats(const struct hparams *hp);
/* Brings a bound convolution into the order that the kernel wants. */
bool delta_finish(struct delta *d, const struct hparams *hp, slm_error *err);
/* Floats of what a trial of n_tok tokens notes of one recurrent layer. */
size_t delta_trial_floats(const struct delta_shape *d, int n_tok);
/* Floats of a state: the inputs that the convolution remembers [taps - 1][channels], then for each
 * value head [head_dim / 16][head_dim][16]: tiles of sixteen value columns. */
size_t delta_state_floats(const struct delta_shape *d);

#endif

/* isa.inc.c - the float kernels of one instruction set and its part of the table.
 *
 * Included by isa_X.c, which has chosen the vector. */
#include "kern/kern.h"
#include "kern/v16.h"
#include "kern/math16.h"

#include "kern/ops.inc.c"
#include "kern/fmat.inc.c"
#include "kern/kv_q8.inc.c"
#include "kern/attn.inc.c"
#include "kern/delta.inc.c"

#define FILL_NAME2(isa) ops_##isa##_fill
#define FILL_NAME(isa) FILL_NAME2(isa)

void FILL_NAME(V16_ISA)(struct kern *k)
{
    k->fmm[QT_F32] = fmm_f32;
    k->fmm[QT_F16] = fmm_f16;
    k->fmm[QT_BF16] = fmm_bf16;

    k->rmsnorm = rmsnorm;
    k->layernorm = layernorm;
    k->add = row_add;
    k->mul = row_mul;
    k->l2norm = l2norm;
    k->scale = row_scale;
    k->gate[GATE_SILU] = gate_silu;
    k->gate[GATE_GELU] = gate_gelu;
    k->gate[GATE_SIGMOID] = gate_sigmoid;
    k->softcap = row_softcap;
    k->rope_pairs = rope_pairs;
    k->rope_halves = rope_halves;
    k->to_f16 = row_to_f16;
    k->unary[UNARY_EXP] = map_exp;
    k->unary[UNARY_SIGMOID] = map_sigmoid;
    k->unary[UNARY_SILU] = map_silu;
    k->unary[UNARY_GELU] = map_gelu;
    k->unary[UNARY_TANH] = map_tanh;
    k->unary[UNARY_LOG] = map_log;
    k->unary[UNARY_SOFTPLUS] = map_softplus;
    k->unary[UNARY_ERF] = map_erf;
    k->max = row_max;
    k->has_nan = row_has_nan;

    k->store_key = kv_store_key;
    k->store_value = kv_store_value;
    k->attn_segment = attn_segment;
    k->attn_fold = attn_fold;
    k->attn_finish = attn_finish;
    k->conv_silu = conv_silu;
    k->delta_rule = delta_rule;
    k->canary = canary;
}

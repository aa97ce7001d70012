/* tiny_model.h - writes a tiny random model of any architecture, for tests and fuzzing.
 *
 * Shapes come from the architecture's own tensor table, so a new architecture needs
 * nothing here.  The vocabulary is SentencePiece with bytes, letters and a few pairs, 320
 * tokens; the chat template is a plain one. */
#ifndef TINY_MODEL_H
#define TINY_MODEL_H

#include "model/arch.h"
#include "quant/quant.h"

struct tiny_shape {
    int layers, embd, ff, heads, kv_heads, head_dim, context, window, seed;
};

#define TINY_SHAPE                                                                       \
    { .layers = 2, .embd = 256, .ff = 256, .heads = 4, .kv_heads = 2, .head_dim = 64,   \
      .context = 2048, .window = 24, .seed = 1 }

/* Matrices get `type`, vectors stay F32.  The same arguments give the same bytes. */
bool tiny_model_write(const char *path, const struct arch *arch, const struct quant_type *type,
                      const struct tiny_shape *shape, slm_error *err);

#endif

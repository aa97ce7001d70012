/* arch.c - the table of architectures. */
#include "model/arch.h"

#include <string.h>

#include "model/forward.h"

static const struct arch *const table[] = {
#define X(name) &arch_##name,
    ARCH_TABLE(X)
#undef X
};

const struct tensor_row arch_top_rows[] = {
    ROW_TOP(token_embd, "token_embd.weight", DIM_EMBD, DIM_VOCAB, NEED),
    ROW_TOP(output_norm.w, "output_norm.weight", DIM_EMBD, DIM_NONE, NEED),
    ROW_TOP(output, "output.weight", DIM_EMBD, DIM_VOCAB, MAYBE),
    ROW_TOP(output_norm.b, "output_norm.bias", DIM_EMBD, DIM_NONE, MAYBE),
    ROW_TOP(output_bias, "output.bias", DIM_VOCAB, DIM_NONE, MAYBE),
    ROW_TOP(rope_freqs, "rope_freqs.weight", DIM_PAIRS, DIM_NONE, MAYBE),
    ROW_TOP(rope_long, "rope_factors_long.weight", DIM_PAIRS, DIM_NONE, MAYBE),
    ROW_TOP(rope_short, "rope_factors_short.weight", DIM_PAIRS, DIM_NONE, MAYBE),
};
const size_t arch_n_top_rows = sizeof arch_top_rows / sizeof *arch_top_rows;

const struct arch *arch_at(size_t i)
{
    return i < sizeof table / sizeof *table ? table[i] : NULL;
}

const struct arch *arch_find(const char *name, size_t n)
{
    for (size_t i = 0; arch_at(i); i++) {
        if (strlen(table[i]->name) == n && memcmp(table[i]->name, name, n) == 0) {
            return table[i];
        }
    }
    return NULL;
}

const char *model_arch_names(void)
{
#define X(name) ", " #name
    return &(ARCH_TABLE(X))[2];
#undef X
}

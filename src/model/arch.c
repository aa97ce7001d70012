/* arch.c - the table of architectures. */
#include "model/arch.h"

#include <string.h>

#include "model/model.h"

static const struct arch *const table[] = {
#define X(name) &arch_##name,
    ARCH_TABLE(X)
#undef X
};

const struct tensor_row arch_top_rows[] = {
    { "token_embd.weight", offsetof(struct top, token_embd), DIM_EMBD, DIM_VOCAB, NEED, false },
    { "output_norm.weight", offsetof(struct top, output_norm.w), DIM_EMBD, DIM_NONE, NEED, false },
    { "output.weight", offsetof(struct top, output), DIM_EMBD, DIM_VOCAB, MAYBE, false },
    { "output_norm.bias", offsetof(struct top, output_norm.b), DIM_EMBD, DIM_NONE, MAYBE, false },
    { "output.bias", offsetof(struct top, output_bias), DIM_VOCAB, DIM_NONE, MAYBE, false },
    { "rope_freqs.weight", offsetof(struct top, rope_freqs), DIM_PAIRS, DIM_NONE, MAYBE, false },
    { "rope_factors_long.weight", offsetof(struct top, rope_long), DIM_PAIRS, DIM_NONE, MAYBE, false },
    { "rope_factors_short.weight", offsetof(struct top, rope_short), DIM_PAIRS, DIM_NONE, MAYBE, false },
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

/* arch.c - the table of architectures. */
#include "model/arch.h"

#include <string.h>

#include "model/model.h"

static const struct arch *const table[] = {
    &arch_llama,
    &arch_qwen2,
    &arch_qwen3,
    &arch_gemma3,
};

const struct tensor_row arch_top_rows[] = {
    { "token_embd.weight", offsetof(struct top, token_embd), DIM_EMBD, DIM_VOCAB, NEED },
    { "output_norm.weight", offsetof(struct top, output_norm), DIM_EMBD, DIM_NONE, NEED },
    { "output.weight", offsetof(struct top, output), DIM_EMBD, DIM_VOCAB, MAYBE },
    { "rope_freqs.weight", offsetof(struct top, rope_freqs), DIM_PAIRS, DIM_NONE, MAYBE },
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
    return "llama, qwen2, qwen3, gemma3";
}

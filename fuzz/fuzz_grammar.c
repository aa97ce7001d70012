/* fuzz_grammar.c - any bytes as a grammar or, behind a first byte "r", as a regular expression. */
#include "fuzz_guide.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0 && data[0] == 'r') {
        fuzz_language(guide_regex, data + 1, size - 1);
    }
    return fuzz_language(guide_gbnf, data, size);
}

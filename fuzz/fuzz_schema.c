/* fuzz_schema.c - any bytes as a JSON schema: refused, or a guide in which random walks read what
 * its masks allow. */
#include "fuzz_guide.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_language(guide_schema, data, size);
}

/* hash.h - FNV-1a, for tables and for golden values of results. */
#ifndef HASH_H
#define HASH_H

#include <stddef.h>
#include <stdint.h>

#define HASH_INIT 0xCBF29CE484222325u

/* Continues a hash over n bytes; start with HASH_INIT. */
static inline uint64_t hash_bytes(uint64_t h, const void *p, size_t n)
{
    const unsigned char *s = p;

    for (size_t i = 0; i < n; i++) {
        h = (h ^ s[i]) * 0x100000001B3u;
    }
    return h;
}

#endif

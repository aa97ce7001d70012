/* fuzz_guide.h - a language is read, and where it is one, its automaton is walked. */
#ifndef FUZZ_GUIDE_H
#define FUZZ_GUIDE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "guide/automaton.h"
#include "guide/guide.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* From each state to a byte that some text has next; the distance to the end must not grow beyond
 * what the state before said. */
static inline void fuzz_walk(const struct grammar *g, gram_expr root, uint64_t seed)
{
    slm_error err = { 0 };
    struct rng rng = { seed };
    struct automaton *a = automaton_new(g, root, (size_t)8 << 20, &err);
    int32_t s = a ? automaton_start(a, &err) : -1;

    for (int i = 0; i < 40 && s > STATE_DEAD; i++) {
        uint32_t least = GRAM_INF;
        int32_t next[256], n = 0;
        for (int b = 0; b < 256; b++) {
            const int32_t to = automaton_step(a, s, (unsigned char)b, &err);
            if (to < 0) {
                n = 0;
                least = 0;
                break;
            }
            if (to > STATE_DEAD) {
                const uint32_t dist = automaton_dist(a, to);
                least = dist < least ? dist : least;
                next[n++] = to;
            }
        }
        const uint32_t dist = automaton_dist(a, s);
        if (n > 0 && !automaton_accepts(a, s) && dist < GRAM_INF - 1 && least + 1 != dist) {
            abort();
        }
        if (n == 0 && least == GRAM_INF && !automaton_accepts(a, s)) {
            abort();  /* a dead end */
        }
        s = n > 0 ? next[rng_next(&rng) % (uint64_t)n] : -1;
    }
    automaton_free(a);
}

static inline int fuzz_language(bool (*read)(struct grammar *g, const char *text, size_t n,
                                             gram_expr *root, slm_error *err),
                                const uint8_t *data, size_t size)
{
    struct grammar g;
    gram_expr root = GRAM_NONE;
    slm_error err = { 0 };

    gram_init(&g);
    const bool ok = read(&g, (const char *)data, size, &root, &err) && gram_finish(&g, root, &err);
    if (!ok && err.msg[0] == '\0') {
        abort();  /* refused without saying why */
    }
    if (ok) {
        fuzz_walk(&g, root, size);
    }
    gram_deinit(&g);
    return 0;
}

#endif

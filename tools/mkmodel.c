/* mkmodel.c - the command that writes a tiny random model.
 *
 *   mkmodel ARCH OUT.gguf [TYPE] [key=value ...]
 *
 * Matrices get TYPE, F32 unless told.  Keys: layers, embd, ff, heads, kv_heads, head_dim,
 * context, window, seed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tiny_model.h"

#define SHAPE_KEY(name) { #name, offsetof(struct tiny_shape, name) }
static const struct { const char *name; size_t offset; } shape_keys[] = {
    SHAPE_KEY(layers), SHAPE_KEY(embd), SHAPE_KEY(ff), SHAPE_KEY(heads), SHAPE_KEY(kv_heads),
    SHAPE_KEY(head_dim), SHAPE_KEY(context), SHAPE_KEY(window), SHAPE_KEY(seed),
};

static bool read_shape(struct tiny_shape *s, const char *arg)
{
    for (size_t i = 0; i < sizeof shape_keys / sizeof *shape_keys; i++) {
        const size_t n = strlen(shape_keys[i].name);
        if (strncmp(arg, shape_keys[i].name, n) == 0 && arg[n] == '=') {
            char *end;
            const long v = strtol(arg + n + 1, &end, 10);
            *(int *)(void *)((char *)s + shape_keys[i].offset) = (int)v;
            return end > arg + n + 1 && *end == '\0' && v >= 0 && v <= 1 << 20;
        }
    }
    return false;
}

static const struct quant_type *type_by_name(const char *name)
{
    for (uint32_t id = 0; id < QT_COUNT; id++) {
        if (quant_type(id) && strcmp(quant_type(id)->name, name) == 0) {
            return quant_type(id);
        }
    }
    return NULL;
}

static int usage(void)
{
    fprintf(stderr, "usage: mkmodel ARCH OUT.gguf [TYPE] [key=value ...]\nARCH is one of");
    for (size_t i = 0; arch_at(i); i++) {
        fprintf(stderr, " %s", arch_at(i)->name);
    }
    fprintf(stderr, "\n");
    return 2;
}

int main(int argc, char **argv)
{
    struct tiny_shape shape = TINY_SHAPE;
    slm_error err;
    const struct arch *arch = argc > 2 ? arch_find(argv[1], strlen(argv[1])) : NULL;
    const struct quant_type *type = quant_type(QT_F32);
    int i = 3;

    if (!arch) {
        return usage();
    }
    if (argc > 3 && !strchr(argv[3], '=')) {
        type = type_by_name(argv[i++]);
    }
    for (; i < argc; i++) {
        if (!read_shape(&shape, argv[i])) {
            fprintf(stderr, "mkmodel: cannot use %s\n", argv[i]);
            return 2;
        }
    }
    if (!type) {
        fprintf(stderr, "mkmodel: unknown type %s\n", argv[3]);
        return 2;
    }
    if (!tiny_model_write(argv[2], arch, type, &shape, &err)) {
        fprintf(stderr, "mkmodel: %s\n", err.msg);
        return 1;
    }
    return 0;
}

/* panel.h - how the fields of a block move into a panel.
 *
 * The panel layout of dot.h as data: packers of every instruction set and the
 * inverse walk the same list. */
#ifndef PANEL_H
#define PANEL_H

#include <stddef.h>
#include <stdint.h>

#include "quant/blocks.h"

enum panel_order {
    PANEL_WORDS,  /* [count][16][width]: `width` consecutive bytes of a row at a time */
    PANEL_BITS    /* each 32 bits of a row to [8] masks of 64 bits, over [16][4] */
};

/* A field in the file: at `offset` in the block, count * width bytes.  The panel
 * holds 16 times as many bytes, fields in the order of the list. */
struct panel_field {
    uint8_t order;
    uint8_t offset;
    uint8_t count, width;
};

enum { PANEL_FIELDS_MAX = 5 };

/* The fields of a type, ended by count = 0; NULL for float types. */
const struct panel_field *panel_fields(uint32_t type_id);

/* panel_pack of dot.h with AVX-512; requests the following row group from memory. */
void panel_pack_avx512(const struct quant_type *type, const void *rows, size_t row_bytes, int k,
                       int n_rows, void *panels);

/* panel_pack of dot.h with AVX2; may prefetch beyond the rows. */
void panel_pack_avx2(const struct quant_type *type, const void *rows, size_t row_bytes, int k,
                     int n_rows, void *panels);

/* Facts of a type for kernels in which its id is a constant: weights in a block, activations,
 * bytes of a panel. */
#define TYPE_FACT(type, name)                                                       \
    static inline __attribute__((always_inline)) type name(uint32_t type_id)        \
    {                                                                               \
        switch (type_id) {                                                          \
            QUANT_INTEGER_TYPES(name##_CASE)                                        \
        default: return 0;                                                          \
        }                                                                           \
    }
#define type_block_CASE(ID, codec, block, ...) case QT_##ID: return block;
#define type_act_CASE(ID, codec, block, step, act, ...) case QT_##ID: return act;
#define panel_bytes_CASE(ID, codec, ...) \
    case QT_##ID: return 16 * (int)sizeof(struct block_##codec);
TYPE_FACT(int, type_block)
TYPE_FACT(enum act_kind, type_act)
TYPE_FACT(int, panel_bytes)

#endif

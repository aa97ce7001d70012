/* gguf_type.c - the types of the container: of metadata values and of tensors. */
#include <stdio.h>

#include "gguf/gguf_int.h"

/* ---- metadata ------------------------------------------------------------------ */

static const struct {
    const char *name;
    size_t bytes;
} value_types[GGUF_TYPE_COUNT] = {
    [GGUF_U8] = {"u8", 1},   [GGUF_I8] = {"i8", 1},     [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2}, [GGUF_U32] = {"u32", 4},   [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4}, [GGUF_BOOL] = {"bool", 1}, [GGUF_STR] = {"str", 0},
    [GGUF_ARR] = {"arr", 0}, [GGUF_U64] = {"u64", 8},   [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};

const char *gguf_type_name(enum gguf_type type)
{
    return (uint32_t)type < GGUF_TYPE_COUNT ? value_types[type].name : "?";
}

size_t gguf_type_bytes(uint32_t type)
{
    return type < GGUF_TYPE_COUNT ? value_types[type].bytes : 0;
}

bool gguf_is_int(enum gguf_type elem)
{
    return gguf_type_bytes(elem) > 0 && elem != GGUF_BOOL && !gguf_is_float(elem);
}

bool gguf_is_float(enum gguf_type elem)
{
    return elem == GGUF_F32 || elem == GGUF_F64;
}

/* ---- tensors --------------------------------------------------------------------- */

/* By id.  A name without a block was removed from the format. */
static const struct gguf_tensor_type tensor_types[] = {
    [0] = {"F32", 1, 4},         [1] = {"F16", 1, 2},          [2] = {"Q4_0", 32, 18},
    [3] = {"Q4_1", 32, 20},      [4] = {"Q4_2", 0, 0},         [5] = {"Q4_3", 0, 0},
    [6] = {"Q5_0", 32, 22},      [7] = {"Q5_1", 32, 24},       [8] = {"Q8_0", 32, 34},
    [9] = {"Q8_1", 32, 36},      [10] = {"Q2_K", 256, 84},     [11] = {"Q3_K", 256, 110},
    [12] = {"Q4_K", 256, 144},   [13] = {"Q5_K", 256, 176},    [14] = {"Q6_K", 256, 210},
    [15] = {"Q8_K", 256, 292},   [16] = {"IQ2_XXS", 256, 66},  [17] = {"IQ2_XS", 256, 74},
    [18] = {"IQ3_XXS", 256, 98}, [19] = {"IQ1_S", 256, 50},    [20] = {"IQ4_NL", 32, 18},
    [21] = {"IQ3_S", 256, 110},  [22] = {"IQ2_S", 256, 82},    [23] = {"IQ4_XS", 256, 136},
    [24] = {"I8", 1, 1},         [25] = {"I16", 1, 2},         [26] = {"I32", 1, 4},
    [27] = {"I64", 1, 8},        [28] = {"F64", 1, 8},         [29] = {"IQ1_M", 256, 56},
    [30] = {"BF16", 1, 2},       [31] = {"Q4_0_4_4", 0, 0},    [32] = {"Q4_0_4_8", 0, 0},
    [33] = {"Q4_0_8_8", 0, 0},   [34] = {"TQ1_0", 256, 54},    [35] = {"TQ2_0", 256, 66},
    [36] = {"IQ4_NL_4_4", 0, 0}, [37] = {"IQ4_NL_4_8", 0, 0},  [38] = {"IQ4_NL_8_8", 0, 0},
    [39] = {"MXFP4", 32, 17},    [40] = {"NVFP4", 64, 36},     [41] = {"Q1_0", 128, 18},
    [42] = {"Q2_0", 64, 18},
};

enum { TENSOR_TYPES = sizeof tensor_types / sizeof tensor_types[0] };

const struct gguf_tensor_type *gguf_tensor_type(uint32_t id)
{
    return id < TENSOR_TYPES && tensor_types[id].block > 0 ? &tensor_types[id] : NULL;
}

/* Private ids of the ik_llama.cpp fork. */
static const struct {
    uint32_t id;
    const char *name;
} fork_types[] = {
    {97, "Q8_0_X4"},     {98, "Q8_1_X4"},      {99, "Q8_2_X4"},      {133, "Q6_0"},
    {134, "IQ1_BN"},     {135, "IQ2_BN"},      {136, "Q8_K64"},      {137, "IQ2_K"},
    {138, "IQ3_K"},      {139, "IQ4_K"},       {140, "IQ5_K"},       {141, "IQ6_K"},
    {144, "IQ4_KS"},     {145, "IQ2_KS"},      {146, "IQ4_KSS"},     {152, "IQ5_KS"},
    {153, "IQ2_KT"},     {154, "IQ3_KT"},      {155, "IQ4_KT"},      {156, "IQ3_KS"},
    {157, "IQ2_KL"},     {158, "IQ1_KT"},      {210, "Q2_K_R4"},     {216, "IQ2_XXS_R4"},
    {217, "IQ2_XS_R4"},  {218, "IQ3_XXS_R4"},  {220, "IQ4_NL_R4"},   {221, "IQ3_S_R4"},
    {222, "IQ2_S_R4"},   {223, "IQ4_XS_R8"},   {337, "IQ2_K_R4"},    {338, "IQ3_K_R4"},
    {339, "IQ4_K_R4"},   {340, "IQ5_K_R4"},    {344, "IQ4_KS_R4"},   {352, "IQ5_KS_R4"},
    {397, "Q8_K_R16"},
};

/* The ranges in which that fork has its ids, also those not listed above. */
static bool is_fork_id(uint32_t id)
{
    return (id >= 97 && id <= 99) || (id >= 133 && id <= 158) || (id >= 202 && id <= 399);
}

void gguf_refuse_type(uint32_t id, char *out, size_t cap)
{
    if (id == 36) {
        snprintf(out, cap, "type 36 is IQ4_NL_4_4, removed from the format, or I2_S of the "
                 "ik_llama.cpp fork; download another version of the model");
        return;
    }
    if (id < TENSOR_TYPES && tensor_types[id].block == 0) {
        snprintf(out, cap, "type %u (%s) was removed from the format; download the model again "
                 "or quantise it anew", id, tensor_types[id].name);
        return;
    }
    const char *name = NULL;

    for (size_t i = 0; i < sizeof fork_types / sizeof fork_types[0]; i++) {
        if (fork_types[i].id == id) {
            name = fork_types[i].name;
        }
    }
    if (is_fork_id(id)) {
        snprintf(out, cap, "type %u (%s) exists only in the ik_llama.cpp fork; download a version "
                 "in a standard type", id, name != NULL ? name : "no known name");
        return;
    }
    snprintf(out, cap, "type %u is unknown; the file is damaged or newer than this program", id);
}

/* gguf_make.h - container files put together byte by byte, so that what is wrong with
 * them can be seen where they are made. */
#ifndef GGUF_MAKE_H
#define GGUF_MAKE_H

#include "base/buf.h"
#include "base/mem.h"
#include "gguf/gguf.h"
#include "test.h"

static struct buf file;

static inline void put_int(uint64_t v, int n)
{
    for (int i = 0; i < n; i++) {
        buf_putc(&file, (char)(v >> (8 * i)));
    }
}

static inline void u8(uint8_t v) { put_int(v, 1); }
static inline void u32(uint32_t v) { put_int(v, 4); }
static inline void u64(uint64_t v) { put_int(v, 8); }

static inline void str_n(const char *s, size_t n)
{
    u64(n);
    buf_add(&file, s, n);
}

static inline void str(const char *s)
{
    str_n(s, strlen(s));
}

/* Starts a file with these counts. */
static inline void begin(uint32_t version, uint64_t n_tensors, uint64_t n_kv)
{
    buf_clear(&file);
    buf_puts(&file, "GGUF");
    u32(version);
    u64(n_tensors);
    u64(n_kv);
}

static inline void kv_head(const char *key, uint32_t type)
{
    str(key);
    u32(type);
}

static inline void kv_u32(const char *key, uint32_t v)
{
    kv_head(key, GGUF_U32);
    u32(v);
}

static inline void kv_str(const char *key, const char *s)
{
    kv_head(key, GGUF_STR);
    str(s);
}

static inline void kv_array(const char *key, uint32_t elem, uint64_t n)
{
    kv_head(key, GGUF_ARR);
    u32(elem);
    u64(n);
}

static inline void tensor2(const char *name, uint64_t ne0, uint64_t ne1, uint32_t type, uint64_t offset)
{
    str(name);
    u32(2);
    u64(ne0);
    u64(ne1);
    u32(type);
    u64(offset);
}

/* Pads to the alignment, then n bytes of data: 0, 1, 2, ... */
static inline void data(size_t align, size_t n)
{
    while (file.len % align != 0) {
        buf_putc(&file, 0);
    }
    for (size_t i = 0; i < n; i++) {
        buf_putc(&file, (char)i);
    }
}

/* Opens what was put together.  The copy ends exactly where the file does, so that the
 * sanitizer sees every byte read too far. */
static uint8_t *image;

static inline struct gguf *open_file(slm_error *err)
{
    mem_free(image);
    image = mem_alloc(file.len, 1);
    CHECK(image != NULL && !file.failed);
    if (file.len > 0) {
        memcpy(image, file.data, file.len);
    }
    return gguf_open_mem(image, file.len, err);
}

/* The file must be refused with this code and these words in the message. */
static inline void refused_as(slm_code code, const char *word1, const char *word2)
{
    slm_error err = {0};
    struct gguf *g = open_file(&err);

    if (g != NULL || err.code != code || strstr(err.msg, word1) == NULL ||
        strstr(err.msg, word2) == NULL) {
        fail_msg("expected %d '%s' '%s', got %d '%s'", (int)code, word1, word2, (int)err.code,
                 g != NULL ? "opened" : err.msg);
    }
    CHECK(gguf_open_mem(image, file.len, NULL) == NULL);
}

static inline void refused(const char *word1, const char *word2)
{
    refused_as(SLM_E_FORMAT, word1, word2);
}

static inline void accepted(void)
{
    slm_error err = {0};
    struct gguf *g = open_file(&err);

    if (g == NULL) {
        fail_msg("refused: %s", err.msg);
    }
    gguf_close(g);
}

/* A small file with every kind of value and two tensors. */
static inline void whole_file(uint32_t version)
{
    static const uint64_t ints[] = {200, 0xFF, 60000, 0x8000, 4000000000u, 0x80000000u};

    begin(version, 2, 17);
    kv_str("general.architecture", "llama");
    for (uint32_t t = GGUF_U8; t <= GGUF_I32; t++) {
        char key[8];

        snprintf(key, sizeof key, "i%u", t);
        kv_head(key, t);
        put_int(ints[t], 1 << t / 2);
    }
    kv_head("f32", GGUF_F32);
    u32(0x3FC00000);
    kv_head("f64", GGUF_F64);
    u64(0xC004000000000000u);
    kv_head("yes", GGUF_BOOL);
    u8(1);
    kv_head("u64", GGUF_U64);
    u64(UINT64_MAX);
    kv_head("i64", GGUF_I64);
    u64((uint64_t)-5);
    kv_array("strs", GGUF_STR, 3);
    str("a");
    str("");
    str_n("b\0c", 3);
    kv_array("bools", GGUF_BOOL, 2);
    u8(0);
    u8(1);
    kv_array("i16s", GGUF_I16, 2);
    put_int(0xFFFE, 2);
    put_int(7, 2);
    kv_array("f64s", GGUF_F64, 1);
    u64(0x3FE0000000000000u);
    kv_array("none", GGUF_U8, 0);
    tensor2("a", 32, 2, 2, 0);
    tensor2("b.weight", 3, 1, 0, 64);
    data(32, 64 + 12);
}

#endif

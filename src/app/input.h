/* input.h - what several verbs read: text, model files, numbers of tokens. */
#ifndef INPUT_H
#define INPUT_H

#include "app/args.h"
#include "base/buf.h"
#include "slm.h"

/* Reads a text file, or standard input for "-", and checks that it is UTF-8. */
bool input_text(const char *path, struct buf *text, slm_error *err);

/* Checks that a text given as an argument is UTF-8. */
bool input_check(const char *what, const char *text, size_t n, slm_error *err);

/* The type of its name: f16, q8_0, f32. */
slm_kv_type input_kv(const char *name);

/* The pack mode of its name: auto, off, wait. */
slm_pack input_pack(const char *name);

/* slm_model_open for a model by any of its names: a file, an alias, user/repo[:QUANT] or
 * user/repo/file.gguf (registry.h).  What is not in the cache is downloaded. */
slm_model *input_model(slm_engine *engine, const char *name, const slm_model_params *params,
                       slm_error *err);

/* The context of a session where none is given. */
int input_context(const slm_model *model, int given);

/* "6G", "512M", "60%" (of the memory that this process may use) or a number of bytes. */
bool input_memory(const char *text, uint64_t *bytes);

/* One line that says what takes how much memory. */
void input_memory_line(const slm_forecast *f, char *out, size_t cap);

#endif

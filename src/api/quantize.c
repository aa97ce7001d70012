/* quantize.c - a model file written anew with its matrices in other types.
 *
 * Tensors go through in the order of the file, in slices of a fixed size: decoded to
 * floats, checked, encoded, appended.  A slice is cut where blocks of both types end, so
 * neither its size nor the number of threads can be seen in the result. */
#include <limits.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "api/api.h"
#include "base/file.h"
#include "quant/encode.h"
#include "quant/mix.h"
#include "quant/quant.h"

/* Weights of a task, a multiple of every block size, and tasks of a slice: 256 KiB of floats
 * for each thread, and at most 8 MiB of output. */
enum { TASK_WEIGHTS = 64 << 10, SLICE_TASKS = 32 };

/* Bytes of a tensor that stays as it is, at a time. */
enum { COPY_BYTES = 4 << 20 };

/* What a task found wrong. */
struct finding {
    size_t at;      /* weight of the tensor */
    float value;
    bool bad;
};

struct job {
    slm_engine *engine;
    struct gguf *g;
    uint32_t *types;            /* [n_tensors] of the new file */
    float *weights;             /* [threads][TASK_WEIGHTS] */
    uint8_t *out;               /* blocks of a slice */
    uint8_t *aligned;           /* [threads]: blocks of a task where the file's are not aligned */
    slm_progress_fn *fn;
    void *arg;
    size_t done, total;         /* bytes of the old file's tensors */

    /* The slice at work. */
    const struct gguf_tensor *t;
    uint32_t type;
    size_t begin, count;        /* weights */
    struct finding found[SLICE_TASKS];
};

/* ---- a slice --------------------------------------------------------------------- */

static size_t bytes_of(uint32_t type, size_t n)
{
    const struct quant_type *q = quant_type(type);
    return n / (size_t)q->block * (size_t)q->block_bytes;
}

/* The first weight that the new type cannot hold; NaN compares false. */
static void check_weights(const float *x, size_t n, float max, size_t begin, struct finding *out)
{
    bool fine = true;

    for (size_t i = 0; i < n; i++) {
        fine &= fabsf(x[i]) <= max;
    }
    out->bad = !fine;
    for (size_t i = 0; !fine && i < n; i++) {
        if (!(fabsf(x[i]) <= max)) {
            out->at = begin + i;
            out->value = x[i];
            return;
        }
    }
}

static void run_task(void *arg, int task, int worker)
{
    struct job *j = arg;
    const size_t first = (size_t)task * TASK_WEIGHTS, left = j->count - first;
    const size_t n = left < TASK_WEIGHTS ? left : TASK_WEIGHTS;
    float *x = j->weights + (size_t)worker * TASK_WEIGHTS;
    uint8_t *aligned = j->aligned + (size_t)worker * TASK_WEIGHTS * sizeof *x;
    const uint8_t *src = j->t->data + bytes_of(j->t->type, j->begin + first);

    if ((uintptr_t)src % _Alignof(float) != 0) {
        memcpy(aligned, src, bytes_of(j->t->type, n));
        src = aligned;
    }
    quant_type(j->t->type)->decode(src, n, x);
    check_weights(x, n, quant_encode_max(j->type), j->begin + first, &j->found[task]);
    if (!j->found[task].bad) {
        quant_encode(j->type, x, n, j->out + bytes_of(j->type, first));
    }
}

static bool report(const struct job *j, const struct finding *f, slm_error *err)
{
    if (!isfinite(f->value)) {
        return slm_fail(err, SLM_E_NUMERIC, "tensor %s: weight %zu is %s", j->t->name, f->at,
                        isnan(f->value) ? "not a number" : "infinite");
    }
    return slm_fail(err, SLM_E_UNSUPPORTED,
                    "tensor %s: weight %zu is %g, and %s cannot hold more than %g; use F32 or BF16",
                    j->t->name, f->at, (double)f->value, quant_type(j->type)->name,
                    (double)quant_encode_max(j->type));
}

/* Accounts for n more bytes and gives their pages back, so that memory stays constant. */
static bool advance(struct job *j, size_t begin, size_t n, slm_error *err)
{
    gguf_release(j->g, j->t, begin, n);
    j->done += n;
    if (j->fn && !j->fn(j->arg, j->done, j->total)) {
        return slm_fail(err, SLM_E_CANCELLED, "cancelled");
    }
    return true;
}

static bool convert_slice(struct job *j, struct file_out *out, slm_error *err)
{
    const int tasks = (int)((j->count + TASK_WEIGHTS - 1) / TASK_WEIGHTS);

    memset(j->found, 0, sizeof j->found);
    pool_run(j->engine->pool, run_task, j, tasks);
    for (int i = 0; i < tasks; i++) {
        if (j->found[i].bad) {
            return report(j, &j->found[i], err);
        }
    }
    return file_out_add(out, j->out, bytes_of(j->type, j->count), err) &&
           advance(j, bytes_of(j->t->type, j->begin), bytes_of(j->t->type, j->count), err);
}

/* ---- a tensor -------------------------------------------------------------------- */

static bool convert_tensor(struct job *j, struct file_out *out, slm_error *err)
{
    const struct quant_type *q = quant_type(j->t->type);
    const size_t n = j->t->bytes / (size_t)q->block_bytes * (size_t)q->block;
    const size_t slice = (size_t)SLICE_TASKS * TASK_WEIGHTS;

    for (j->begin = 0; j->begin < n; j->begin += j->count) {
        j->count = n - j->begin < slice ? n - j->begin : slice;
        if (!convert_slice(j, out, err)) {
            return false;
        }
    }
    return true;
}

static bool copy_tensor(struct job *j, struct file_out *out, slm_error *err)
{
    for (size_t i = 0; i < j->t->bytes; i += COPY_BYTES) {
        const size_t n = j->t->bytes - i < COPY_BYTES ? j->t->bytes - i : COPY_BYTES;
        if (!file_out_add(out, j->t->data + i, n, err) || !advance(j, i, n, err)) {
            return false;
        }
    }
    return true;
}

static bool write_tensor(void *arg, size_t i, struct file_out *out, slm_error *err)
{
    struct job *j = arg;

    j->t = gguf_tensor_at(j->g, i);
    j->type = j->types[i];
    return (j->type == j->t->type ? copy_tensor : convert_tensor)(j, out, err);
}

/* ---- the file -------------------------------------------------------------------- */

/* Version of the block layouts, as files in these types state it. */
enum { QUANTIZATION_VERSION = 2 };

/* All entries but those about shards, with the new file type in the place of the old. */
static void put_metadata(struct gguf_writer *w, const struct gguf *g, const struct mix *mix)
{
    static const char file_type[] = "general.file_type";
    static const char version[] = "general.quantization_version";

    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        if (strcmp(kv->key, file_type) == 0) {
            gguf_put_u32(w, file_type, mix_file_type(mix));
        } else if (strcmp(kv->key, version) == 0) {
            gguf_put_u32(w, version, QUANTIZATION_VERSION);
        } else if (strncmp(kv->key, "split.", 6) != 0) {
            gguf_put_kv(w, kv);
        }
    }
    if (!gguf_find(g, file_type)) {
        gguf_put_u32(w, file_type, mix_file_type(mix));
    }
    if (!gguf_find(g, version)) {
        gguf_put_u32(w, version, QUANTIZATION_VERSION);
    }
}

/* The file is replaced when it is complete; one that is being read must not be. */
static bool check_out(const struct gguf *g, const char *out, slm_error *err)
{
    struct stat a, b;

    if (stat(out, &a) != 0) {
        return true;
    }
    for (int i = 0; i < gguf_n_shards(g); i++) {
        if (stat(gguf_shard_path(g, i), &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino) {
            return slm_fail(err, SLM_E_ARG, "%s is the model that is read; write to another file",
                            out);
        }
    }
    return true;
}

static bool job_init(struct job *j, const struct mix *mix, slm_error *err)
{
    const size_t n = gguf_n_tensors(j->g), threads = (size_t)pool_size(j->engine->pool);

    j->types = mem_alloc(n, sizeof *j->types);
    j->weights = mem_alloc_aligned(threads * TASK_WEIGHTS * sizeof *j->weights);
    j->aligned = mem_alloc_aligned(threads * TASK_WEIGHTS * sizeof *j->weights);
    j->out = mem_alloc_aligned((size_t)SLICE_TASKS * TASK_WEIGHTS * sizeof *j->weights);
    if (!j->types || !j->weights || !j->aligned || !j->out) {
        return slm_fail_nomem(err, "the weights of a slice");
    }
    for (size_t i = 0; i < n; i++) {
        j->total += gguf_tensor_at(j->g, i)->bytes;
    }
    return mix_types(mix, j->g, j->types, err);
}

static bool write_model(struct job *j, const struct mix *mix, const char *out, slm_error *err)
{
    struct gguf_writer *w = gguf_writer_new();

    if (!w) {
        return slm_fail_nomem(err, "the file's directory");
    }
    put_metadata(w, j->g, mix);
    for (size_t i = 0; i < gguf_n_tensors(j->g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(j->g, i);
        gguf_put_tensor(w, t->name, j->types[i], t->n_dims, t->ne, NULL);
    }
    const bool ok = gguf_write_stream(w, out, write_tensor, j, err);
    gguf_writer_free(w);
    return ok;
}

static bool quantize(slm_engine *engine, const char *in, const char *out, const struct mix *mix,
                     slm_progress_fn *fn, void *arg, slm_error *err)
{
    struct job j = { .engine = engine, .fn = fn, .arg = arg };

    j.g = gguf_open(in, err);
    const bool ok = j.g && check_out(j.g, out, err) &&
                    (job_init(&j, mix, err) || slm_wrap(err, "%s", in)) &&
                    write_model(&j, mix, out, err);
    mem_free(j.out);
    mem_free(j.aligned);
    mem_free(j.weights);
    mem_free(j.types);
    gguf_close(j.g);
    return ok;
}

const char *slm_quantize_types(void)
{
    return mix_names();
}

bool slm_quantize(slm_engine *engine, const char *in, const char *out, const char *type,
                  slm_progress_fn *fn, void *arg, slm_error *err)
{
    if (!api_arg(engine && in && out && type, "slm_quantize", "an argument is NULL", err)) {
        return false;
    }
    const struct mix *mix = mix_find(type);

    if (!mix) {
        return slm_fail(err, SLM_E_ARG, "type \"%.20s\" is not one of %s", type,
                        slm_quantize_types());
    }
    const uint64_t fp = fpenv_enter();
    const bool ok = quantize(engine, in, out, mix, fn, arg, err);
    fpenv_leave(fp);
    return ok;
}

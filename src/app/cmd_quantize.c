/* cmd_quantize.c - slm quantize: a model file in another type. */
#include "app/hub.h"
#include "app/interrupt.h"
#include "app/out.h"
#include "app/progress.h"
#include "app/verbs.h"

struct quantize_opts {
    int threads;
    bool quiet;
};

#define AT(field) offsetof(struct quantize_opts, field)

static const struct opt opts[] = {
    { "threads", 0, OPT_INT, AT(threads), "N", "threads; 0: as many as help (0)", 0, 1024 },
    { "quiet", 0, OPT_FLAG, AT(quiet), NULL, "no progress and no summary", 0, 0 },
    { NULL, 0, OPT_FLAG, 0, NULL, NULL, 0, 0 },
};

static bool show_progress(void *arg, size_t done, size_t total)
{
    (void)total;
    progress_update(arg, done);
    return !interrupted();
}

/* Opens only what the summary needs. */
static slm_model *open_meta(slm_engine *engine, const char *path, slm_error *err)
{
    const slm_model_params params = { .meta_only = true };
    return slm_model_open(engine, path, &params, err);
}

/* "out.gguf: 1.0 GiB, was 2.9 GiB: 5.67 bits per weight" */
static void print_summary(slm_engine *engine, const char *out, const slm_model_info *before)
{
    slm_model *model = open_meta(engine, out, NULL);
    slm_model_info after;

    if (!model) {
        return;  /* a device or a pipe: written, but not to be read again */
    }
    slm_model_info_get(model, &after);
    out_note("%s: %s, was %s; %.2f bits per weight", out, out_bytes(after.file_bytes),
             out_bytes(before->file_bytes),
             8 * (double)after.weight_bytes / (double)after.n_params);
    slm_model_free(model);
}

static bool quantize(slm_engine *engine, const char *in, const char *out, const char *type,
                     slm_error *err)
{
    slm_model *model = open_meta(engine, in, err);
    struct progress bar;
    slm_model_info info;

    if (!model) {
        return false;
    }
    slm_model_info_get(model, &info);
    progress_begin(&bar, "quantizing", 0, info.weight_bytes);
    const bool ok = slm_quantize(engine, in, out, type, show_progress, &bar, err);
    progress_end(&bar);
    if (ok) {
        print_summary(engine, out, &info);
    }
    slm_model_free(model);
    return ok;
}

static int cmd_quantize(int argc, char **argv)
{
    struct quantize_opts o = {0};
    struct operands rest;
    slm_error err = {0};
    int code;

    if (!args_parse(&verb_quantize, argc, argv, &o, &rest, &code)) {
        return code;
    }
    if (rest.n != 3) {
        return args_usage(&verb_quantize, "needs a model, a new file and a type");
    }
    out_set_quiet(o.quiet);
    const slm_engine_params params = { .threads = o.threads };
    slm_engine *engine = slm_engine_new(&params, &err);

    char *in = engine ? hub_model(rest.item[0], &err) : NULL;

    interrupt_catch();
    const bool ok = in && quantize(engine, in, rest.item[1], rest.item[2], &err);
    code = ok ? out_finish(0) : out_fail(&err);
    mem_free(in);
    slm_engine_free(engine);
    return err.code == SLM_E_CANCELLED ? INTERRUPT_EXIT : code;
}

const struct verb verb_quantize = {
    .name = "quantize",
    .operands = "MODEL FILE TYPE",
    .summary = "write a model with its weights in another type",
    .more =
        "TYPE is F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K_S, Q3_K_M, Q3_K_L,\n"
        "Q4_K_S, Q4_K_M, Q5_K_S, Q5_K_M, Q6_K, IQ4_NL or IQ4_XS.  The K and IQ mixes give more\n"
        "bits to the matrices that need them; vectors and norms stay as they are.  Begin with\n"
        "F32, F16 or BF16 weights if you can: what an earlier quantisation lost does not come\n"
        "back.  FILE is complete or not there; the model itself cannot be replaced.\n",
    .opts = opts,
    .run = cmd_quantize,
};

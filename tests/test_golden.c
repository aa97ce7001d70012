/* test_golden.c - logits against the float64 references of tiny models.
 *
 * Every directory with a model.gguf is a case.  F32 variants are held to the target's
 * tolerance at every position and to its greedy continuation; quantised ones may not be
 * further from the exact result than 1.1 times llama.cpp, and 16-bit ones reach the F32
 * tolerance.  Directories of architectures or types that are not supported are named.  Types
 * that no directory has are checked with models made here. */
#include <dirent.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "test.h"
#include "tiny_model.h"
#include "tiny_run.h"

enum { GREEDY_MAX = 64, PATH_LEN = 640 };

static void path_of(char out[PATH_LEN], const char *dir, const char *file)
{
    snprintf(out, PATH_LEN, "%s/%s", dir, file);
}

static json_t *load_json(const char *dir, const char *file)
{
    char path[PATH_LEN];

    path_of(path, dir, file);
    return json_load_file(path, 0, NULL);
}

/* Floats of a file; NULL where there is none. */
static float *load_floats(const char *dir, const char *file, size_t n)
{
    char path[PATH_LEN];
    float *v = malloc(n * sizeof *v);

    path_of(path, dir, file);
    FILE *f = fopen(path, "rb");
    if (!f || fread(v, sizeof *v, n, f) != n) {
        free(v);
        v = NULL;
    }
    if (f) {
        fclose(f);
    }
    return v;
}

struct diff {
    double nmse, max;
};

static struct diff compare(const float *a, const float *b, size_t n)
{
    double num = 0, den = 0, max = 0;

    for (size_t i = 0; i < n; i++) {
        const double d = (double)a[i] - (double)b[i];
        num += d * d;
        den += (double)b[i] * (double)b[i];
        max = fabs(d) > max ? fabs(d) : max;
    }
    return (struct diff){ num / den, max };
}

/* Feeds the recorded greedy continuation and compares the most likely token with it wherever
 * the recorded margin is at least `margin`.  Returns the number of tokens compared, or -1 - step
 * at a difference. */
static int check_greedy(struct tiny *t, const float *last, const char *dir, const char *file,
                        double margin)
{
    const size_t n_vocab = (size_t)model_shape(t->model)->n_vocab;
    float *logits = malloc(n_vocab * sizeof *logits);
    json_t *golden = load_json(dir, file);
    json_t *ids = json_object_get(golden, "ids"), *margins = json_object_get(golden, "margin");
    const int n = (int)json_array_size(ids);
    int n_compared = 0;

    assert_true(n > 0);
    memcpy(logits, last, n_vocab * sizeof *logits);
    for (int i = 0; i < n; i++) {
        const int32_t id = (int32_t)json_integer_value(json_array_get(ids, (size_t)i));
        if (json_number_value(json_array_get(margins, (size_t)i)) >= margin) {
            if (tiny_argmax(logits, n_vocab) != id) {
                n_compared = -1 - i;
                break;
            }
            n_compared++;
        }
        CHECK(tiny_feed(t, &id, 1, 1, logits, NULL));
    }
    json_decref(golden);
    free(logits);
    return n_compared;
}

/* Which files of a directory hold the target. */
struct target {
    const char *logits, *greedy;
    int context;  /* 0: as short as the tokens allow */
};

static bool has_file(const char *dir, const char *file)
{
    char path[PATH_LEN];

    path_of(path, dir, file);
    return access(path, R_OK) == 0;
}

/* Whether the case at dir holds; what was measured is printed. */
static bool run_target(const char *dir, const char *name, enum isa isa, const struct target *target)
{
    slm_error err = { .code = SLM_E_OK };
    char path[PATH_LEN];
    struct tiny t;
    int32_t ids[512];
    json_t *tokens = load_json(dir, "tokens.json"), *meta = load_json(dir, "meta.json");
    const int n = (int)json_array_size(tokens);

    CHECK(n > 0 && n <= 512 && meta);
    for (int i = 0; i < n; i++) {
        ids[i] = (int32_t)json_integer_value(json_array_get(tokens, (size_t)i));
    }
    path_of(path, dir, "model.gguf");
    const bool opened =
        tiny_open(&t, path, isa, 2, MODEL_PACK_WAIT, KV_F32,
                  target->context ? target->context : n + GREEDY_MAX, &err);
    if (!opened && err.code == SLM_E_UNSUPPORTED) {
        printf("%-20s not run: %s\n", name, err.msg);
        tiny_close(&t);
        json_decref(tokens);
        json_decref(meta);
        return true;
    }
    if (!opened) {
        fail_msg("%s: %s", name, err.msg);
    }
    const size_t n_vocab = (size_t)model_shape(t.model)->n_vocab;
    const size_t n_out = (size_t)n * n_vocab;
    float *out = malloc(n_out * sizeof *out);
    if (!tiny_feed(&t, ids, n, n, out, &err)) {
        fail_msg("%s: %s", name, err.msg);
    }
    const double nmse_llamacpp =
        json_number_value(json_object_get(meta, "nmse_llamacpp_vs_truth"));
    const char *type = json_string_value(json_object_get(meta, "type"));
    const bool quantised = type && strcmp(type, "F16") != 0 && strcmp(type, "BF16") != 0;
    const bool gelu = strncmp(name, "gemma", 5) == 0;
    const double nmse_max = quantised ? 1.1 * nmse_llamacpp : gelu ? 1e-10 : 3e-11;
    const double abs_max = quantised ? INFINITY : gelu ? 1e-3 : 3e-4;
    float *want = load_floats(dir, target->logits, n_out);
    CHECK(want != NULL);
    const struct diff d = compare(out, want, n_out);
    const int greedy = check_greedy(&t, out + n_out - n_vocab, dir, target->greedy, quantised ? 0.5 : 1e-3);
    const bool ok = d.nmse <= nmse_max && d.max <= abs_max && greedy >= 0;
    printf("%-20s %-7s nmse %.2e (limit %.2e) max %.2e greedy %d%s\n", name, isa_name(isa), d.nmse,
           nmse_max, d.max, greedy, ok ? "" : "  WRONG");
    free(want);
    free(out);
    tiny_close(&t);
    json_decref(tokens);
    json_decref(meta);
    return ok;
}

/* The targets of a directory: quantised models have the exact result of their weights; a
 * model with a window the result with it; one with factors for long contexts two. */
static bool run_case(const char *dir, const char *name, enum isa isa)
{
    static const struct target truth = { "truth.f32", "greedy.json", 0 };
    static const struct target plain = { "ref64.f32", "greedy_ref64.json", 0 };
    static const struct target window = { "ref64_window.f32", "greedy_ref64_window.json", 0 };
    static const struct target long_context = { "ref64_long.f32", "greedy_ref64_long.json", 512 };

    if (has_file(dir, truth.logits)) {
        return run_target(dir, name, isa, &truth);
    }
    if (has_file(dir, window.logits)) {
        return run_target(dir, name, isa, &window);
    }
    /* Both run, so that both are reported. */
    const bool plain_ok = run_target(dir, name, isa, &plain);
    const bool long_ok = !has_file(dir, long_context.logits) ||
                         run_target(dir, name, isa, &long_context);
    return plain_ok && long_ok;
}

/* Runs every case below `root`; the number of them. */
static int run_all(const char *root, bool *ok)
{
    struct dirent **entries;
    const int n = scandir(root, &entries, NULL, alphasort);
    int n_cases = 0;

    for (int i = 0; i < n; i++) {
        char dir[512], path[600];
        struct stat st;
        snprintf(dir, sizeof dir, "%s/%s", root, entries[i]->d_name);
        snprintf(path, sizeof path, "%s/model.gguf", dir);
        if (entries[i]->d_name[0] != '.' && stat(path, &st) == 0) {
            n_cases++;
            *ok &= run_case(dir, entries[i]->d_name, cpu_isa_best());
        }
        free(entries[i]);
    }
    if (n >= 0) {
        free(entries);
    }
    return n_cases;
}

TEST(golden_models)
{
    bool ok = true;

    CHECK(run_all(TEST_DATA "/models", &ok) > 0);
    CHECK(ok);
}

TEST(golden_models_shared)
{
    bool ok = true;

    if (run_all(TEST_SHARED "/golden/models", &ok) == 0) {
        printf("the full set of golden models is not beside this tree: only tests/data ran\n");
        skip();
    }
    CHECK(ok);
}

/* ---- types without a stored model ------------------------------------------------------ */

/* As in tests/reference/reference.py. */
enum { TYPE_TOKENS = 24, TYPE_LAST = 4 };

/* A llama model of random blocks, made here, against the float64 result of its values for the
 * last positions.  Activations in 8 bits leave 1e-4 to 3e-4. */
static bool run_type(uint32_t id, double nmse_max)
{
    const struct quant_type *type = quant_type(id);
    const struct tiny_shape shape = TINY_SHAPE;
    char path[] = "/tmp/slm-golden-XXXXXX", file[32];
    slm_error err = { .code = SLM_E_OK };
    int32_t ids[TYPE_TOKENS];
    struct tiny t = { 0 };
    const int fd = mkstemp(path);

    CHECK(fd >= 0);
    close(fd);
    snprintf(file, sizeof file, "%s.f32", type->name);
    if (!tiny_model_write(path, arch_find("llama", 5), type, &shape, &err) ||
        !tiny_open(&t, path, cpu_isa_best(), 2, MODEL_PACK_WAIT, KV_F32, TYPE_TOKENS, &err)) {
        fail_msg("%s: %s", type->name, err.msg);
    }
    for (int i = 0; i < TYPE_TOKENS; i++) {
        ids[i] = (37 * i + 11) % 320;
    }
    const size_t n_vocab = (size_t)model_shape(t.model)->n_vocab, n = TYPE_LAST * n_vocab;
    float *out = malloc(TYPE_TOKENS * n_vocab * sizeof *out);
    float *want = load_floats(TEST_DATA "/types", file, n);
    CHECK(out != NULL && want != NULL);
    if (!tiny_feed(&t, ids, TYPE_TOKENS, TYPE_TOKENS, out, &err)) {
        fail_msg("%s: %s", type->name, err.msg);
    }
    const struct diff d = compare(out + (TYPE_TOKENS - TYPE_LAST) * n_vocab, want, n);
    printf("%-6s nmse %.2e (limit %.2e) max %.2e%s\n", type->name, d.nmse, nmse_max, d.max,
           d.nmse <= nmse_max ? "" : "  WRONG");
    free(want);
    free(out);
    tiny_close(&t);
    unlink(path);
    return d.nmse <= nmse_max;
}

TEST(golden_types)
{
    static const struct {
        uint32_t type;
        double nmse_max;
    } cases[] = {
        { QT_TQ1_0, 1e-3 }, { QT_TQ2_0, 1e-3 }, { QT_NVFP4, 5e-4 }, { QT_Q1_0, 5e-4 },
        { QT_Q2_0, 5e-4 },
    };
    bool ok = true;

    /* All run, so that all are reported. */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ok = run_type(cases[i].type, cases[i].nmse_max) && ok;
    }
    CHECK(ok);
}

int main(void)
{
    return RUN(T(golden_models), T(golden_models_shared), T(golden_types));
}

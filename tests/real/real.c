/* real.c - real models against recorded expectations.
 *
 *   real MODEL.gguf DIR
 *
 * DIR holds, for each of four prompts, PROMPT.tokens.json and PROMPT.expect.json, and
 * ppl.tokens.json and meta.json.  Along the recorded greedy continuation the most likely token
 * must be the recorded one while the margin is at least 0.5, and after the first smaller one
 * wherever it is at least 1 (the recording engine's own 8-bit activations move logits by that
 * much).  The perplexity must agree with the best recorded value within 1%.  Exit code 77 where the model is not there. */
#include <math.h>
#include <unistd.h>

#include <jansson.h>

#include "tiny_run.h"

enum { CONTEXT = 1280, CHUNK = 64 };

static json_t *load(const char *dir, const char *name, const char *suffix)
{
    char path[512];

    snprintf(path, sizeof path, "%s/%s.%s", dir, name, suffix);
    json_t *j = json_load_file(path, 0, NULL);
    if (!j) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(1);
    }
    return j;
}

static int read_ids(json_t *array, int32_t *ids)
{
    const int n = (int)json_array_size(array);

    for (int i = 0; i < n && i < CONTEXT; i++) {
        ids[i] = (int32_t)json_integer_value(json_array_get(array, (size_t)i));
    }
    return n < CONTEXT ? n : CONTEXT;
}

/* Feeds in chunks, keeping only the logits of one chunk; their place of the last token. */
static float *feed(struct tiny *t, const int32_t *ids, int n, float *out)
{
    const size_t n_vocab = (size_t)model_shape(t->model)->n_vocab;
    float *last = out;

    for (int i = 0; i < n; i += CHUNK) {
        const int m = n - i < CHUNK ? n - i : CHUNK;
        slm_error err;
        if (!tiny_feed(t, ids + i, m, m, out, &err)) {
            fprintf(stderr, "%s\n", err.msg);
            exit(1);
        }
        last = out + (size_t)(m - 1) * n_vocab;
    }
    return last;
}

static bool check_prompt(struct tiny *t, const char *dir, const char *prompt, float *out)
{
    const size_t n_vocab = (size_t)model_shape(t->model)->n_vocab;
    json_t *tokens = load(dir, prompt, "tokens.json"), *expect = load(dir, prompt, "expect.json");
    json_t *greedy = json_object_get(expect, "greedy"), *margin = json_object_get(expect, "margin");
    int32_t ids[CONTEXT];
    const int n = read_ids(tokens, ids);
    int n_compared = 0, n_wrong = 0;
    double limit = 0.5;

    t->n_pos = 0;
    float *last = feed(t, ids, n, out);
    for (size_t i = 0; i < json_array_size(greedy); i++) {
        const int32_t id = (int32_t)json_integer_value(json_array_get(greedy, i));
        const double m = json_number_value(json_array_get(margin, i));
        if (m < limit) {
            limit = 1;
        } else {
            n_compared++;
            n_wrong += tiny_argmax(last, n_vocab) != id;
        }
        last = feed(t, &id, 1, out);
    }
    printf("%-14s %d tokens, %d greedy ids compared, %d wrong\n", prompt, n, n_compared, n_wrong);
    json_decref(tokens);
    json_decref(expect);
    return n_wrong == 0;
}

/* -log p(id) from raw logits. */
static double nll(const float *logits, size_t n, int32_t id)
{
    double max = logits[0], sum = 0;

    for (size_t i = 1; i < n; i++) {
        max = logits[i] > max ? logits[i] : max;
    }
    for (size_t i = 0; i < n; i++) {
        sum += exp(logits[i] - max);
    }
    return log(sum) + max - logits[id];
}

static bool check_perplexity(struct tiny *t, const char *dir, float *out)
{
    const size_t n_vocab = (size_t)model_shape(t->model)->n_vocab;
    json_t *tokens = load(dir, "ppl", "tokens.json"), *meta = load(dir, "meta", "json");
    const json_t *given = json_object_get(meta, "perplexity");
    const json_t *truth = json_object_get(given, "truth_f32_weights_f32_kv");
    const double want = json_number_value(truth ? truth : json_object_get(given, "f32_kv"));
    int32_t ids[CONTEXT];
    const int n = read_ids(tokens, ids);
    double sum = 0;

    t->n_pos = 0;
    for (int i = 0; i < n; i += CHUNK) {
        const int m = n - i < CHUNK ? n - i : CHUNK;
        feed(t, ids + i, m, out);
        for (int j = 0; j < m && i + j + 1 < n; j++) {
            sum += nll(out + (size_t)j * n_vocab, n_vocab, ids[i + j + 1]);
        }
    }
    const double got = exp(sum / (n - 1));
    const bool ok = fabs(got / want - 1) <= 0.01;
    printf("perplexity     %.4f, the best recorded is %.4f%s\n", got, want, ok ? "" : "  WRONG");
    json_decref(tokens);
    json_decref(meta);
    return ok;
}

int main(int argc, char **argv)
{
    static const char *const prompts[] = { "english", "code", "multilingual", "long" };
    slm_error err;
    struct tiny t;
    bool ok = true;
    char why[160];

    if (argc != 3) {
        fprintf(stderr, "usage: real MODEL.gguf DIR\n");
        return 2;
    }
    if (access(argv[1], R_OK) != 0) {
        printf("skipped: %s is not there\n", argv[1]);
        return 77;
    }
    if (!tiny_open(&t, argv[1], cpu_isa_best(), cpu_usable_cores(why, sizeof why),
                   MODEL_PACK_WAIT, KV_F16, CONTEXT, &err)) {
        fprintf(stderr, "%s: %s\n", argv[1], err.msg);
        return 1;
    }
    float *out = malloc(CHUNK * (size_t)model_shape(t.model)->n_vocab * sizeof *out);
    for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++) {
        ok &= check_prompt(&t, argv[2], prompts[i], out);
    }
    ok &= check_perplexity(&t, argv[2], out);
    free(out);
    tiny_close(&t);
    return ok ? 0 : 1;
}

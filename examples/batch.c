/* batch.c - answers to many prompts at once, with nothing but slm.h.
 *
 *     cc batch.c $(pkg-config --cflags --libs slm) -o batch
 *     ./batch model.gguf "Name a fruit." "Name a river." "Name a star."
 *
 * The prompts share the steps of the model; each answer is the one that its prompt would get
 * alone.  Answers are printed in the order in which they end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <slm.h>

enum { ANSWER_MAX = 60 };

/* An answer that grows as its tokens come. */
struct answer {
    const char *prompt;
    slm_stream *stream;
    char text[16384];
    size_t n;
};

static void append(struct answer *a, const char *text, size_t n)
{
    if (n < sizeof a->text - a->n) {
        memcpy(a->text + a->n, text, n);
        a->n += n;
    }
}

/* Called after each token of a request and once more at its end.  False would stop it. */
static bool on_event(void *arg, const slm_event *event)
{
    struct answer *a = arg;
    const char *text;
    bool stopped;
    size_t n;

    if (event->finish == SLM_FINISH_NONE) {
        if (!slm_stream_push(a->stream, event->id, &text, &n, &stopped, NULL)) {
            return false;
        }
        append(a, text, n);
        return true;
    }
    if (event->finish == SLM_FINISH_ERROR) {
        fprintf(stderr, "%s: %s\n", a->prompt, event->error->msg);
        return false;
    }
    if (slm_stream_finish(a->stream, &text, &n, NULL)) {
        append(a, text, n);
    }
    printf("> %s\n%.*s\n", a->prompt, (int)a->n, a->text);
    return true;
}

/* Queues one prompt, as plain text to go on from. */
static bool ask(slm_batch *batch, slm_model *model, struct answer *a, slm_error *err)
{
    slm_request request = { .max_tokens = ANSWER_MAX, .n_top = -1, .on_event = on_event, .arg = a };
    int32_t *ids = NULL;

    if (!slm_tokenize(model, a->prompt, strlen(a->prompt), true, false, &ids, &request.n_ids,
                      err)) {
        return false;
    }
    request.ids = ids;
    slm_sampling_default(model, &request.sampling);
    const bool ok = slm_batch_submit(batch, &request, NULL, err);
    slm_free(ids);
    return ok;
}

static bool run(slm_batch *batch, slm_model *model, struct answer *answers, int n, slm_error *err)
{
    bool more = true;

    for (int i = 0; i < n; i++) {
        answers[i].stream = slm_stream_new(model, NULL, 0, err);
        if (!answers[i].stream || !ask(batch, model, &answers[i], err)) {
            return false;
        }
    }
    while (more) {
        if (!slm_batch_step(batch, &more, err)) {
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    slm_error err = { SLM_E_OK, -1, "" };
    const int n = argc - 2;

    if (n < 1) {
        fprintf(stderr, "usage: batch MODEL PROMPT...\n");
        return 2;
    }
    const slm_batch_params params = { .context = 2048, .parallel = n < 8 ? n : 8, .queue = n };
    struct answer *answers = calloc((size_t)n, sizeof *answers);
    slm_engine *engine = answers ? slm_engine_new(NULL, &err) : NULL;
    slm_model *model = engine ? slm_model_open(engine, argv[1], NULL, &err) : NULL;
    slm_batch *batch = model ? slm_batch_new(model, &params, &err) : NULL;

    for (int i = 0; answers && i < n; i++) {
        answers[i].prompt = argv[2 + i];
    }
    const bool ok = batch && run(batch, model, answers, n, &err);
    if (!ok) {
        fprintf(stderr, "batch: %s\n", err.msg);
    }
    slm_batch_free(batch);
    for (int i = 0; answers && i < n; i++) {
        slm_stream_free(answers[i].stream);
    }
    free(answers);
    slm_model_free(model);
    slm_engine_free(engine);
    return ok ? 0 : 1;
}

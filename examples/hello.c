/* hello.c - a prompt in, a streamed answer out, with nothing but slm.h.
 *
 *     cc hello.c $(pkg-config --cflags --libs slm) -o hello
 *     ./hello model.gguf "Say hello."
 *
 * A model without a chat template continues the prompt as it is. */
#include <stdio.h>
#include <string.h>

#include <slm.h>

enum { ANSWER_MAX = 100 };

/* Tokens of the prompt as the model wants it.  The prompt goes into JSON between quotes,
 * so this small example takes only one that needs no escapes there. */
static bool prompt_tokens(slm_model *model, const char *prompt, int32_t **ids, size_t *n,
                          slm_error *err)
{
    char messages[4096];
    slm_model_info info;

    slm_model_info_get(model, &info);
    if (!info.has_template) {
        return slm_tokenize(model, prompt, strlen(prompt), true, false, ids, n, err);
    }
    if (strpbrk(prompt, "\"\\\n\t") || strlen(prompt) > 4000) {
        snprintf(err->msg, sizeof err->msg, "the prompt is too long or needs escapes");
        return false;
    }
    snprintf(messages, sizeof messages, "[{\"role\": \"user\", \"content\": \"%s\"}]", prompt);
    return slm_render_tokens(model, messages, NULL, NULL, true, ids, n, NULL, err);
}

static bool answer(slm_model *model, slm_session *session, slm_sampler *sampler,
                   slm_stream *stream, slm_error *err)
{
    const int room = slm_session_context(session) - (int)slm_session_len(session);
    const char *text;
    size_t n;

    for (int i = 0; i < ANSWER_MAX && i < room; i++) {
        bool stopped;
        int32_t id;

        if (!slm_sample(sampler, session, &id, err)) {
            return false;
        }
        if (slm_is_end(model, id)) {
            break;
        }
        if (!slm_stream_push(stream, id, &text, &n, &stopped, err) ||
            !slm_session_feed(session, &id, 1, err)) {
            return false;
        }
        fwrite(text, 1, n, stdout);
        fflush(stdout);
    }
    if (!slm_stream_finish(stream, &text, &n, err)) {
        return false;
    }
    fwrite(text, 1, n, stdout);
    putchar('\n');
    return true;
}

int main(int argc, char **argv)
{
    slm_error err = { SLM_E_OK, -1, "" };
    slm_engine *engine = NULL;
    slm_model *model = NULL;
    slm_session *session = NULL;
    slm_sampler *sampler = NULL;
    slm_stream *stream = NULL;
    int32_t *ids = NULL;
    size_t n = 0;

    if (argc != 3) {
        fprintf(stderr, "usage: hello MODEL PROMPT\n");
        return 2;
    }
    /* Each step needs the one before it; a NULL on the way ends the chain. */
    engine = slm_engine_new(NULL, &err);
    model = engine ? slm_model_open(engine, argv[1], NULL, &err) : NULL;
    session = model ? slm_session_new(model, NULL, &err) : NULL;
    sampler = session ? slm_sampler_new(model, NULL, &err) : NULL;
    stream = sampler ? slm_stream_new(model, NULL, 0, &err) : NULL;

    const bool ok = stream && prompt_tokens(model, argv[2], &ids, &n, &err) &&
                    slm_session_feed(session, ids, n, &err) &&
                    answer(model, session, sampler, stream, &err);
    if (!ok) {
        fprintf(stderr, "hello: %s\n", err.msg);
    }
    slm_free(ids);
    slm_stream_free(stream);
    slm_sampler_free(sampler);
    slm_session_free(session);
    slm_model_free(model);
    slm_engine_free(engine);
    return ok ? 0 : 1;
}

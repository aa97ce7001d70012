/* answer.c - answers of the public interface. */
#include "api/api.h"

#include "text/answer.h"

struct slm_answer {
    struct answer *answer;
};

slm_answer *slm_answer_new(const slm_model *model, const char *prompt, bool tools, slm_part_fn *fn,
                           void *arg, slm_error *err)
{
    const char *template = NULL;
    size_t n = 0;

    if (!api_arg(model != NULL, "slm_answer_new", "model is NULL", err) ||
        !api_arg(fn != NULL, "slm_answer_new", "fn is NULL", err)) {
        return NULL;
    }
    slm_answer *a = mem_zalloc(1, sizeof *a);
    if (!a) {
        slm_fail_nomem(err, "an answer");
        return NULL;
    }
    if (model->chat) {
        template = chat_template(model->chat, &n);
    }
    a->answer = answer_new(template, n, prompt, tools, fn, arg, err);
    if (!a->answer) {
        mem_free(a);
        return NULL;
    }
    return a;
}

void slm_answer_free(slm_answer *answer)
{
    if (answer) {
        answer_free(answer->answer);
        mem_free(answer);
    }
}

bool slm_answer_tools(slm_answer *answer, const char *tools, slm_error *err)
{
    return api_arg(answer != NULL, "slm_answer_tools", "answer is NULL", err) &&
           api_arg(tools != NULL, "slm_answer_tools", "tools is NULL", err) &&
           answer_tools(answer->answer, tools, err);
}

bool slm_answer_push(slm_answer *answer, const char *text, size_t n, slm_error *err)
{
    return api_arg(answer != NULL, "slm_answer_push", "answer is NULL", err) &&
           api_arg(text != NULL || n == 0, "slm_answer_push", "text is NULL", err) &&
           answer_push(answer->answer, text, n, err);
}

bool slm_answer_finish(slm_answer *answer, slm_error *err)
{
    return api_arg(answer != NULL, "slm_answer_finish", "answer is NULL", err) &&
           answer_finish(answer->answer, err);
}

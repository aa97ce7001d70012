/* embed.c - embeddings of texts, as the public interface has it. */
#include "api/api.h"

#include <string.h>

/* How the file says that rows are pooled. */
static bool pooling_of(const slm_model *model, enum pooling *out, slm_error *err)
{
    /* By number: none, mean, first token, last token; then the score of a ranking. */
    static const enum pooling kinds[] = { POOL_MEAN, POOL_MEAN, POOL_FIRST, POOL_LAST };
    enum { RANK = 4 };
    char key[128];
    uint64_t kind = 1;

    snprintf(key, sizeof key, "%s.pooling_type", model->arch);
    if (!gguf_get_u64(model->gguf, key, 0, RANK, &kind, err)) {
        return false;
    }
    if (kind == RANK) {
        return slm_fail(err, SLM_E_UNSUPPORTED, "the model ranks texts (%s = 4), which is not "
                        "supported; it has no embeddings", key);
    }
    *out = kinds[kind];
    return true;
}

bool slm_session_embed(slm_session *session, const int32_t *ids, size_t n, float *out,
                       slm_error *err)
{
    const char *call = "slm_session_embed";
    enum pooling pooling = POOL_MEAN;

    if (!api_arg(session != NULL, call, "session is NULL", err) ||
        !api_arg(ids != NULL, call, "ids is NULL", err) ||
        !api_arg(n > 0, call, "n is 0", err) || !api_arg(out != NULL, call, "out is NULL", err) ||
        !pooling_of(session->model, &pooling, err)) {
        return false;
    }
    const uint64_t fp = fpenv_enter();
    const bool ok = session_embed(session->session, ids, n, pooling, out, err);
    fpenv_leave(fp);
    return ok;
}

/* snapshot.c - sessions in files, as the public interface has it. */
#include "api/api.h"

static bool arguments(const slm_session *session, const char *path, const char *call,
                      slm_error *err)
{
    return api_arg(session != NULL, call, "session is NULL", err) &&
           api_arg(path != NULL, call, "path is NULL", err);
}

bool slm_session_save(slm_session *session, const char *path, slm_error *err)
{
    return arguments(session, path, "slm_session_save", err) &&
           session_save(session->session, path, err);
}

bool slm_session_load(slm_session *session, const char *path, slm_error *err)
{
    return arguments(session, path, "slm_session_load", err) &&
           session_load(session->session, path, err);
}

/* profile.c - where the time of steps goes, for the caller. */
#include "model/profile.h"

#include "api/api.h"

bool slm_model_profile(slm_model *model, slm_error *err)
{
    return api_arg(model != NULL && model->model != NULL, "slm_model_profile",
                   "the model is NULL or was opened without its weights", err) &&
           model_profile(model->model, err);
}

bool slm_model_profile_row(const slm_model *model, size_t i, slm_profile_row *out)
{
    const struct profile *p = model && model->model ? model_profiled(model->model) : NULL;

    if (!p || !out || i > (size_t)p->n) {
        return false;
    }
    if (i < (size_t)p->n) {
        const struct profile_row *row = &p->row[i];
        *out = (slm_profile_row){ row->name, row->seconds, row->calls, row->bytes };
        return true;
    }
    *out = (slm_profile_row){ "everything else", p->step_s, p->steps, 0 };
    for (int j = 0; j < p->n; j++) {
        out->seconds -= p->row[j].seconds;
    }
    return true;
}

/* fault.h - why a request is refused, in the terms of the client. */
#ifndef FAULT_H
#define FAULT_H

#include <stdbool.h>

#include "slm.h"

struct fault {
    int status;          /* of HTTP; 0: no fault */
    const char *code;    /* for programs, or NULL */
    char param[128];     /* the field that is wrong, "" where none is */
    char message[512];
};

/* Describes a fault (f may not be NULL) and returns false. */
bool fault_set(struct fault *f, int status, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* The same from an error of the library; param may be NULL. */
bool fault_from(struct fault *f, const slm_error *err, const char *param);

/* There is not enough memory for the request. */
bool fault_no_memory(struct fault *f);

/* What the error object's "type" says for a status. */
const char *fault_type(int status);

#endif

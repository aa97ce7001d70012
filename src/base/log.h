/* log.h - one line at a time to whoever called slm_log_set. */
#ifndef LOG_H
#define LOG_H

#include "base/error.h"

/* Who gets the lines; NULL drops them. */
void log_set(slm_log_fn *fn, void *arg);

void log_line(slm_log_level level, const char *fmt, ...) PRINTF_LIKE(2, 3);

#endif

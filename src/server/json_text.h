/* json_text.h - JSON strings of bytes that a model made. */
#ifndef JSON_TEXT_H
#define JSON_TEXT_H

#include <jansson.h>
#include <stddef.h>

/* JSON string of n bytes in which invalid UTF-8 is U+FFFD.  NULL without memory. */
json_t *json_text(const char *s, size_t n);

#endif

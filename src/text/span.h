/* span.h - a range of bytes of a text. */
#ifndef SPAN_H
#define SPAN_H

#include <stddef.h>

/* [begin, end) */
struct span { size_t begin, end; };

#endif

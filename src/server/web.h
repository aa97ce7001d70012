/* web.h - the page at /, embedded when the program is built. */
#ifndef WEB_H
#define WEB_H

#include <stddef.h>

extern const unsigned char web_page[];
extern const size_t web_page_bytes;

#endif

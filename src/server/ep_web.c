/* ep_web.c - GET /: the chat page, which asks nobody but this server. */
#include "server/endpoints.h"
#include "server/web.h"

void ep_web(struct http *h)
{
    http_reply_text(h, 200, "text/html; charset=utf-8", (const char *)web_page, web_page_bytes);
}

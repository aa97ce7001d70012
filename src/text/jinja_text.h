/* jinja_text.h - the larger text filters, each in its own file. */
#ifndef JINJA_TEXT_H
#define JINJA_TEXT_H

#include "text/jinja_run.h"

/* HTML entities to characters, and text without its tags (jinja_html.c). */
struct str *html_unescape(struct jrun *r, const struct str *s);
struct str *html_striptags(struct jrun *r, const struct str *s);
/* value, trim_url_limit, nofollow, target, rel, extra_schemes */
struct val filter_urlize(struct jrun *r, const struct val *a);

/* value, width, break_long_words, wrapstring, break_on_hyphens (jinja_wrap.c) */
struct val filter_wordwrap(struct jrun *r, const struct val *a);
/* repr with sorted keys, on several lines where one has not room (jinja_wrap.c) */
struct val filter_pprint(struct jrun *r, const struct val *a);

#endif

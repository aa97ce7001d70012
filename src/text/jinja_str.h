/* jinja_str.h - strings of templates: characters, marks, building.
 *
 * Everything that makes a string goes through struct sb, which carries the marks of the
 * pieces along. */
#ifndef JINJA_STR_H
#define JINJA_STR_H

#include "text/jinja_value.h"

struct sb {
    struct jrun *r;
    char *s;
    size_t n, cap;
    struct span *marks;
    size_t n_marks, cap_marks;
};

struct str *str_new(struct jrun *r, const char *s, size_t n);
struct str *str_lit(struct jrun *r, const char *s);   /* s must live as long as the run */
struct str *str_fmt(struct jrun *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Bytes [b, e) of s, sharing them. */
struct str *str_part(struct jrun *r, const struct str *s, size_t b, size_t e);
struct str *str_markup(struct jrun *r, struct str *s);
struct str *str_plain(struct jrun *r, struct str *s);
size_t str_len(const struct str *s);                  /* characters */
size_t str_at(const struct str *s, size_t i);         /* byte offset of character i */
bool str_eq(const struct str *a, const struct str *b);
bool str_is(const struct str *s, const char *text);
int str_cmp(const struct str *a, const struct str *b);
/* Byte offset of the first or last occurrence in [b, e); SIZE_MAX where there is none. */
size_t str_find(const struct str *s, const struct str *what, size_t b, size_t e);
size_t str_rfind(const struct str *s, const struct str *what, size_t b, size_t e);

void sb_init(struct sb *b, struct jrun *r);
void sb_add(struct sb *b, const char *s, size_t n);
void sb_puts(struct sb *b, const char *s);
void sb_putc(struct sb *b, char c);
void sb_fill(struct sb *b, uint32_t cp, size_t times);
void sb_part(struct sb *b, const struct str *s, size_t from, size_t to);
void sb_str(struct sb *b, const struct str *s);
void sb_char(struct sb *b, uint32_t cp, bool marked);
void sb_mark(struct sb *b, size_t from, size_t to);
struct str *sb_take(struct sb *b);

/* Walks the characters of a string. */
struct chars {
    const struct str *s;
    size_t pos;      /* of the next character */
    size_t at;       /* of the current one */
    size_t mark;
    uint32_t cp;
    bool marked;
};

static inline struct chars chars_of(const struct str *s) { return (struct chars){ .s = s }; }
bool chars_next(struct chars *c);

/* ---- printing (jinja_print.c) ------------------------------------------------------- */

void put_str(struct sb *b, struct val v);     /* str(v) */
void put_repr(struct sb *b, struct val v);    /* repr(v) */
void put_escaped(struct sb *b, struct val v); /* HTML, markup left alone */
struct str *to_str(struct jrun *r, struct val v);
struct str *to_repr(struct jrun *r, struct val v);

struct json_style {
    const char *item_sep, *key_sep;
    const struct str *indent;  /* one level; NULL: all on one line */
    bool sort_keys, ascii;
};
void put_json(struct sb *b, struct val v, const struct json_style *style);

/* ---- formatting (jinja_format.c, jinja_spec.c) -------------------------------------- */

struct val format_percent(struct jrun *r, struct str *fmt, struct val args);
struct val format_braces(struct jrun *r, struct str *fmt, const struct args *args,
                         struct val map);
void format_spec(struct sb *b, struct val v, const struct str *spec);

/* ---- characters (jinja_unicode.c) --------------------------------------------------- */

bool uc_space(uint32_t cp);
bool uc_line_break(uint32_t cp);
bool uc_alpha(uint32_t cp);
bool uc_decimal(uint32_t cp);
bool uc_digit(uint32_t cp);
bool uc_numeric(uint32_t cp);
bool uc_printable(uint32_t cp);
bool uc_word(uint32_t cp);             /* \w */
bool uc_ident(uint32_t cp, bool first);
bool uc_upper(uint32_t cp);
bool uc_lower(uint32_t cp);
bool uc_title(uint32_t cp);
bool uc_cased(uint32_t cp);
bool uc_case_ignorable(uint32_t cp);
int uc_digit_value(uint32_t cp);       /* of a decimal digit, else -1 */
enum uc_map { UC_UPPER, UC_LOWER, UC_TITLE, UC_FOLD };
/* Up to three characters in out; their number. */
int uc_convert(uint32_t cp, enum uc_map map, uint32_t out[3]);

struct str *str_upper(struct jrun *r, const struct str *s);
struct str *str_lower(struct jrun *r, const struct str *s);
struct str *str_title(struct jrun *r, const struct str *s);
struct str *str_capitalize(struct jrun *r, const struct str *s);
struct str *str_swapcase(struct jrun *r, const struct str *s);
struct str *str_casefold(struct jrun *r, const struct str *s);
/* Which ends to strip of white space, or of the characters of `set`. */
enum strip { STRIP_LEFT = 1, STRIP_RIGHT = 2, STRIP_BOTH = 3 };
struct str *str_strip(struct jrun *r, const struct str *s, const struct str *set, enum strip ends);
struct str *str_replace(struct jrun *r, const struct str *s, const struct str *old,
                        const struct str *new, int64_t max);
struct list *str_splitlines(struct jrun *r, const struct str *s, bool keep_ends);
/* width in characters; align '<', '>' or '^'. */
void sb_pad(struct sb *b, const struct str *s, size_t width, uint32_t fill, char align);

#endif

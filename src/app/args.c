/* args.c - reading options by their table, and printing the table as help.
 *
 * A number is read strictly: the whole word, in the stated range, or the usage is
 * wrong. */
#include "app/args.h"

#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/out.h"

/* Options of one verb, --help included. */
enum { OPTS_MAX = 96 };

const struct opt *args_opt(const struct verb *verb, int i, const struct opt_group **group)
{
    const struct opt_group *g = verb->groups;
    const struct opt *o = verb->opts;

    if (group) {
        *group = NULL;
    }
    for (;; o++) {
        while (!o->name) {
            if (!g || !g->title) {
                return NULL;
            }
            if (group) {
                *group = g;
            }
            o = g++->opts;
        }
        if (i-- == 0) {
            return o;
        }
    }
}

int args_usage(const struct verb *verb, const char *fmt, ...)
{
    char line[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    out_error("slm %s: %s; see \"slm help %s\"", verb->name, line, verb->name);
    return 2;
}

/* ---- values ---------------------------------------------------------------------- */

/* A number starts with a digit, a sign or a point: no blanks, no "inf". */
static bool starts_number(const char *s)
{
    return *s && strchr("+-.0123456789", *s) != NULL;
}

static bool read_int(const struct opt *o, const char *s, int *out)
{
    char *end;

    errno = 0;
    const long long v = strtoll(s, &end, 10);
    if (!starts_number(s) || *end || end == s || errno || (double)v < o->min ||
        (double)v > o->max) {
        return false;
    }
    *out = (int)v;
    return true;
}

static bool read_float(const struct opt *o, const char *s, float *out)
{
    char *end;
    const double v = strtod(s, &end);

    if (!starts_number(s) || *end || end == s || !isfinite(v) || v < o->min || v > o->max) {
        return false;
    }
    *out = (float)v;
    return true;
}

static bool read_u64(const char *s, uint64_t *out)
{
    char *end;

    errno = 0;
    const unsigned long long v = strtoull(s, &end, 10);
    if (*s < '0' || *s > '9' || *end || errno) {
        return false;
    }
    *out = v;
    return true;
}

/* Whether s is one of the words of "a|b|c". */
static bool is_choice(const char *choices, const char *s)
{
    const size_t n = strlen(s);

    for (const char *p = choices; p; p = strchr(p, '|')) {
        p += *p == '|';
        if (n > 0 && strcspn(p, "|") == n && strncmp(p, s, n) == 0) {
            return true;
        }
    }
    return false;
}

bool args_value(const struct opt *o, const char *value, void *target, char *why, size_t why_bytes)
{
    void *p = (char *)target + o->offset;
    struct opt_list *list;

    switch (o->type) {
    case OPT_FLAG:
        *(bool *)p = true;
        return true;
    case OPT_INT:
        if (!read_int(o, value, p)) {
            snprintf(why, why_bytes, "needs a whole number from %.0f to %.0f, not \"%s\"", o->min,
                     o->max, value);
            return false;
        }
        return true;
    case OPT_FLOAT:
        if (!read_float(o, value, p)) {
            snprintf(why, why_bytes, "needs a number from %g to %g, not \"%s\"", o->min, o->max,
                     value);
            return false;
        }
        return true;
    case OPT_U64:
        if (!read_u64(value, p)) {
            snprintf(why, why_bytes, "needs a whole number from 0 to %llu, not \"%s\"",
                     (unsigned long long)UINT64_MAX, value);
            return false;
        }
        return true;
    case OPT_STR:
        *(const char **)p = value;
        return true;
    case OPT_LIST:
        list = p;
        if (list->n == OPT_LIST_MAX) {
            snprintf(why, why_bytes, "can be given %d times at most", OPT_LIST_MAX);
            return false;
        }
        list->item[list->n++] = value;
        return true;
    case OPT_CHOICE:
        if (!is_choice(o->arg, value)) {
            snprintf(why, why_bytes, "needs one of %s, not \"%s\"", o->arg, value);
            return false;
        }
        *(const char **)p = value;
        return true;
    }
    return false;
}

/* ---- parsing --------------------------------------------------------------------- */

/* getopt's own two descriptions of a table.  A long option returns 256 + its row. */
struct getopt_tables {
    struct option longs[OPTS_MAX + 2];
    char shorts[2 * OPTS_MAX + 4];
};

enum { LONG_BASE = 256 };

static void fill_tables(const struct verb *verb, struct getopt_tables *t)
{
    int n = 0;
    char *s = t->shorts;

    *s++ = ':';  /* a missing value is told apart from an unknown option */
    for (const struct opt *o; (o = args_opt(verb, n, NULL)) != NULL; n++) {
        assert(n < OPTS_MAX);
        const int has_arg = o->type == OPT_FLAG ? no_argument : required_argument;
        t->longs[n] = (struct option){ o->name, has_arg, NULL, LONG_BASE + n };
        if (o->letter) {
            *s++ = o->letter;
            if (has_arg == required_argument) {
                *s++ = ':';
            }
        }
    }
    t->longs[n++] = (struct option){ "help", no_argument, NULL, 'h' };
    t->longs[n] = (struct option){0};
    *s++ = 'h';
    *s = 0;
}

/* The option that getopt means by c; *group as args_opt has it. */
static const struct opt *find(const struct verb *verb, int c, const struct opt_group **group)
{
    const struct opt *o = NULL;

    if (c >= LONG_BASE) {
        return args_opt(verb, c - LONG_BASE, group);
    }
    for (int i = 0; (o = args_opt(verb, i, group)) != NULL && o->letter != c;) {
        i++;
    }
    return o;
}

/* What getopt did not like: optopt is a letter, a long option's value, or 0. */
static void complain(const struct verb *verb, int c, char **argv)
{
    const struct opt *o = optopt ? find(verb, optopt, NULL) : NULL;

    if (c == ':' && o) {
        args_usage(verb, "--%s needs a value", o->name);
    } else if (o || optopt == 'h') {
        args_usage(verb, "--%s takes no value", o ? o->name : "help");
    } else if (optopt && optopt < LONG_BASE) {
        args_usage(verb, "unknown option -%c", optopt);
    } else {
        args_usage(verb, "unknown option %s", argv[optind - 1]);
    }
}

bool args_parse(const struct verb *verb, int argc, char **argv, void *target,
                struct operands *rest, int *code)
{
    struct getopt_tables t;
    int c;

    fill_tables(verb, &t);
    opterr = 0;
    optind = 0;  /* begin anew, also after an earlier scan */
    *code = 2;
    while ((c = getopt_long(argc, argv, t.shorts, t.longs, NULL)) != -1) {
        if (c == 'h') {
            args_help(verb);
            *code = out_finish(0);
            return false;
        }
        const struct opt_group *group = NULL;
        const struct opt *o = c == '?' || c == ':' ? NULL : find(verb, c, &group);
        if (!o) {
            complain(verb, c, argv);
            return false;
        }
        char why[400];
        if (!args_value(o, optarg, (char *)target + (group ? group->offset : 0), why, sizeof why)) {
            args_usage(verb, "--%s %s", o->name, why);
            return false;
        }
    }
    *rest = (struct operands){ argv + optind, argc - optind };
    return true;
}

/* ---- help ------------------------------------------------------------------------ */

/* Column at which explanations begin. */
enum { HELP_COLUMN = 30 };

static void print_opt(const char *name, char letter, const char *arg, const char *help)
{
    char left[80], letters[8] = "    ";

    if (letter) {
        snprintf(letters, sizeof letters, "-%c, ", letter);
    }
    snprintf(left, sizeof left, "  %s--%s%s%s", letters, name, arg ? " " : "", arg ? arg : "");
    if (strlen(left) >= HELP_COLUMN) {
        out_printf("%s\n%*s%s\n", left, HELP_COLUMN, "", help);
    } else {
        out_printf("%-*s%s\n", HELP_COLUMN, left, help);
    }
}

void args_help(const struct verb *verb)
{
    out_printf("slm %s%s%s\n\n%s\n\n", verb->name, *verb->operands ? " " : "", verb->operands,
               verb->summary);
    const struct opt_group *group, *last = NULL;
    const struct opt *o;
    for (int i = 0; (o = args_opt(verb, i, &group)) != NULL; i++) {
        if (group != last) {
            out_printf("\n%s:\n", group->title);
            last = group;
        }
        print_opt(o->name, o->letter, o->type == OPT_FLAG ? NULL : o->arg, o->help);
    }
    out_printf(last ? "\n" : "");
    print_opt("help", 'h', NULL, "this text");
    if (verb->more) {
        out_printf("\n%s", verb->more);
    }
}

/* args.h - a verb's options as a table over getopt_long. */
#ifndef ARGS_H
#define ARGS_H

#include <stdbool.h>
#include <stddef.h>

enum opt_type {
    OPT_FLAG,    /* bool: true where given */
    OPT_INT,     /* int from min to max */
    OPT_FLOAT,   /* float from min to max */
    OPT_U64,     /* uint64_t */
    OPT_STR,     /* const char * */
    OPT_LIST,    /* struct opt_list: may be given several times */
    OPT_CHOICE,  /* const char *, one of `choices` separated by | */
};

enum { OPT_LIST_MAX = 64 };

struct opt_list {
    const char *item[OPT_LIST_MAX];
    size_t n;
};

/* Where the caller's struct holds the value, what it is called and what it means. */
struct opt {
    const char *name;
    char letter;          /* 0: none */
    enum opt_type type;
    size_t offset;        /* of the target in the verb's struct of options */
    const char *arg;      /* what the help calls the value, or the choices */
    const char *help;
    double min, max;      /* OPT_INT and OPT_FLOAT */
};

/* Options that several verbs share: their targets lie in a struct at `offset` in the verb's. */
struct opt_group {
    const char *title;
    const struct opt *opts;     /* ended by a NULL name */
    size_t offset;
};

struct verb {
    const char *name;
    const char *operands;       /* "MODEL [PROMPT]" */
    const char *summary;        /* one line */
    const char *more;           /* paragraphs below the options, or NULL */
    const struct opt *opts;     /* ended by a NULL name */
    const struct opt_group *groups;     /* more of them, ended by a NULL title, or NULL */
    int (*run)(int argc, char **argv);  /* argv[0] is the verb; returns the exit code */
};

/* What is left after the options. */
struct operands {
    char **item;
    int n;
};

/* Reads the options of argv into the struct at `target`.  False where the verb is
 * already done: help was asked for (*code 0) or the usage is wrong (*code 2, one line on
 * standard error). */
bool args_parse(const struct verb *verb, int argc, char **argv, void *target,
                struct operands *rest, int *code);

/* Row i of all options of a verb, its own first; NULL behind the last.  *group (may be NULL) gets
 * the group that it is in, or NULL. */
const struct opt *args_opt(const struct verb *verb, int i, const struct opt_group **group);

/* Reads a value by its row into the struct at `target`; false and a message without the option's
 * name where it does not fit. */
bool args_value(const struct opt *o, const char *value, void *target, char *why, size_t why_bytes);

/* One line on standard error that names the verb and what is wrong; returns 2. */
int args_usage(const struct verb *verb, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Everything about a verb on standard output. */
void args_help(const struct verb *verb);

#endif

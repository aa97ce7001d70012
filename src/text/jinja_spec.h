/* jinja_spec.h - formatting of numbers, shared by format() and the % operator. */
#ifndef JINJA_SPEC_H
#define JINJA_SPEC_H

#include "text/jinja_run.h"

struct fmt_spec {
    uint32_t fill;
    char align;              /* '<' '>' '=' '^', '\0': the default of the type */
    char sign;               /* '+' '-' ' ' or '\0' */
    bool alt, zero, no_neg_zero;
    char group;              /* ',' '_' or '\0' */
    int64_t width, precision;/* -1: not given */
    char type;               /* '\0': the default of the type */
};

/* Sign, prefix and digits with grouping and padding. */
void put_number(struct sb *b, const struct fmt_spec *f, bool neg, const char *prefix,
                const char *digits, size_t n);
void put_int(struct sb *b, const struct fmt_spec *f, struct val v);
void put_float(struct sb *b, const struct fmt_spec *f, double x);

#endif

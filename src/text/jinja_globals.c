/* jinja_globals.c - the functions that every template can call. */
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "text/jinja_run.h"

/* The sandbox refuses longer ranges. */
enum { RANGE_MAX = 100000 };

static struct val g_range(struct jrun *r, const struct val *a)
{
    const struct list *args = a[1].list;
    struct range *g = run_alloc(r, sizeof *g);
    int64_t v[3] = { 0, 0, 1 };
    unsigned __int128 span;

    if (g == NULL) {
        return v_none();
    }
    if (args->n < 1 || args->n > 3) {
        return run_fail(r, "TypeError: range expected 1 to 3 arguments, got %zu", args->n);
    }
    for (size_t i = 0; i < args->n; i++) {
        if (!v_index(r, args->v[i], &v[args->n == 1 ? 1 : i])) {
            return v_none();
        }
    }
    if (v[2] == 0) {
        return run_fail(r, "ValueError: range() arg 3 must not be zero");
    }
    *g = (struct range){ .start = v[0], .stop = v[1], .step = v[2] };
    if ((v[2] > 0) == (v[0] < v[1]) && v[0] != v[1]) {
        unsigned __int128 step = v[2] > 0 ? (uint64_t)v[2] : -(uint64_t)v[2];

        span = v[0] < v[1] ? (unsigned __int128)((__int128)v[1] - v[0])
                           : (unsigned __int128)((__int128)v[0] - v[1]);
        span = (span + step - 1) / step;
        if (span > RANGE_MAX) {
            return run_fail(r, "OverflowError: Range too big. The sandbox blocks ranges larger "
                               "than MAX_RANGE (%d).", RANGE_MAX);
        }
        g->n = (int64_t)span;
    }
    return (struct val){ .kind = V_RANGE, .range = g };
}

/* dict(mapping or pairs, **kwargs) */
static struct dict *make_dict(struct jrun *r, const struct val *a)
{
    const struct list *args = a[1].list;
    struct dict *d = dict_new(r, 0);
    struct iter *it;
    struct val v;

    if (args->n > 1) {
        run_fail(r, "TypeError: dict expected at most 1 argument, got %zu", args->n);
    } else if (args->n == 1 && args->v[0].kind == V_UNDEF) {
        undef_fail(r, args->v[0]);
    } else if (args->n == 1 && args->v[0].kind == V_DICT) {
        d = dict_copy(r, args->v[0].dict);
    } else if (args->n == 1) {
        it = iter_of(r, args->v[0]);
        while (iter_next(r, it, &v)) {
            struct list *pair = list_of(r, v);

            if (!r->failed && pair->n != 2) {
                run_fail(r, "ValueError: dictionary update sequence element has length %zu; 2 is "
                            "required", pair->n);
            }
            if (!r->failed) {
                dict_set(r, d, pair->v[0], pair->v[1]);
            }
        }
    }
    for (size_t i = 0; i < a[2].dict->n && !r->failed; i++) {
        dict_set(r, d, a[2].dict->e[i].key, a[2].dict->e[i].value);
    }
    return d;
}

static struct val g_dict(struct jrun *r, const struct val *a)
{
    return v_dict(make_dict(r, a));
}

static struct val g_namespace(struct jrun *r, const struct val *a)
{
    return (struct val){ .kind = V_SPACE, .space = make_dict(r, a) };
}

static struct val g_cycler(struct jrun *r, const struct val *a)
{
    struct cycler *c = run_alloc(r, sizeof *c);

    if (c == NULL) {
        return v_none();
    }
    if (a[1].list->n == 0) {
        return run_fail(r, "RuntimeError: at least one item has to be provided");
    }
    *c = (struct cycler){ .items = a[1].list };
    return (struct val){ .kind = V_CYCLER, .cycler = c };
}

static struct val g_joiner(struct jrun *r, const struct val *a)
{
    struct joiner *j = run_alloc(r, sizeof *j);

    if (j == NULL) {
        return v_none();
    }
    *j = (struct joiner){ .sep = v_given(a[1]) ? a[1] : v_str(str_lit(r, ", ")) };
    return (struct val){ .kind = V_JOINER, .joiner = j };
}

static struct val g_raise_exception(struct jrun *r, const struct val *a)
{
    const struct str *s = to_str(r, a[1]);

    if (!r->failed) {
        run_raise(r, s->s, s->n);
    }
    return v_none();
}

/* ---- the clock ---------------------------------------------------------------------- */

static void local_time(const struct jrun *r, struct tm *tm, long *micro)
{
    struct timespec now;
    time_t t = (time_t)r->env->now;

    *micro = 0;
    if (r->env->fixed_clock) {
        gmtime_r(&t, tm);
        return;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    t = now.tv_sec;
    *micro = now.tv_nsec / 1000;
    localtime_r(&t, tm);
}

/* Month and weekday names in English, whatever the program's locale is. */
static size_t strftime_c(char *out, size_t cap, const char *fmt, const struct tm *tm)
{
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    size_t n;

    if (c == (locale_t)0) {
        return strftime(out, cap, fmt, tm);
    }
    n = strftime_l(out, cap, fmt, tm, c);
    freelocale(c);
    return n;
}

/* One conversion, from behind the percent sign; gives the bytes consumed. */
static size_t put_time(struct sb *b, const char *s, size_t n, const struct tm *tm, long micro)
{
    size_t len = strspn(s, "-_0^#:") < n ? strspn(s, "-_0^#:") + 1 : n;
    char fmt[16] = "%", out[160];

    if (len > sizeof fmt - 2) {
        len = 1;
    }
    memcpy(fmt + 1, s, len);
    if (len == 1 && s[0] == 'f') {
        snprintf(out, sizeof out, "%06ld", micro);
        sb_puts(b, out);
    } else if (len >= 1 && (s[len - 1] == 'z' || s[len - 1] == 'Z')) {
        /* The time shown has no zone. */
    } else if ((unsigned char)s[len - 1] >= 0x80) {
        sb_putc(b, '%');
        return len - 1;
    } else {
        sb_add(b, out, strftime_c(out, sizeof out, fmt, tm));
    }
    return len;
}

static struct val g_strftime_now(struct jrun *r, const struct val *a)
{
    const struct str *f = arg_str(r, a[1], "the format of strftime_now");
    char *fmt = run_alloc(r, f->n + 1);
    struct tm tm;
    long micro;
    struct sb b;

    if (fmt == NULL) {
        return v_none();
    }
    memcpy(fmt, f->s, f->n);
    fmt[f->n] = '\0';
    local_time(r, &tm, &micro);
    sb_init(&b, r);
    for (size_t i = 0; i < f->n && run_step(r, 1);) {
        if (fmt[i] != '%' || i + 1 == f->n) {
            sb_putc(&b, fmt[i++]);
        } else {
            i += 1 + put_time(&b, fmt + i + 1, f->n - i - 1, &tm, micro);
        }
    }
    return v_str(sb_take(&b));
}

/* ---- filler text -------------------------------------------------------------------- */

static const char *const lorem[] = {
    "lorem", "ipsum", "dolor", "sit", "amet", "consectetuer", "adipiscing", "elit", "sed",
    "diam", "nonummy", "nibh", "euismod", "tincidunt", "ut", "laoreet", "magna", "aliquam",
    "erat", "volutpat", "enim", "ad", "minim", "veniam", "quis", "nostrud",
};

static void put_paragraph(struct sb *b, int64_t words)
{
    struct jrun *r = b->r;

    for (int64_t i = 0; i < words && run_step(r, 1); i++) {
        const char *w = lorem[rng_mix(r->random++) % (sizeof lorem / sizeof lorem[0])];
        bool start = i % 9 == 0;

        sb_putc(b, start ? (char)(w[0] - 32) : w[0]);
        sb_puts(b, w + 1);
        sb_puts(b, i + 1 == words || i % 9 == 8 ? "." : "");
        sb_puts(b, i + 1 < words ? " " : "");
    }
}

/* n paragraphs of min to max - 1 words */
static struct val g_lipsum(struct jrun *r, const struct val *a)
{
    int64_t n = arg_int(r, a[1], 5), min = arg_int(r, a[3], 20), max = arg_int(r, a[4], 100);
    bool html = arg_true(r, a[2], true);
    struct sb b;

    if (!r->failed && (max <= min || min < 0)) {
        return run_fail(r, "ValueError: empty range for lipsum()");
    }
    sb_init(&b, r);
    for (int64_t i = 0; i < n && run_step(r, 1); i++) {
        uint64_t more = rng_mix(r->random++) % (uint64_t)(max - min);

        sb_puts(&b, i == 0 ? "" : html ? "\n" : "\n\n");
        sb_puts(&b, html ? "<p>" : "");
        put_paragraph(&b, min + (int64_t)more);
        sb_puts(&b, html ? "</p>" : "");
    }
    return v_str(html ? str_markup(r, sb_take(&b)) : sb_take(&b));
}

const struct builtin jinja_globals[] = {
    { "range", "*args", g_range },
    { "dict", "*args **kwargs", g_dict },
    { "lipsum", "n? html? min? max?", g_lipsum },
    { "cycler", "*items", g_cycler },
    { "joiner", "sep?", g_joiner },
    { "namespace", "*args **kwargs", g_namespace },
    { "raise_exception", "message", g_raise_exception },
    { "strftime_now", "format", g_strftime_now },
    { NULL, NULL, NULL },
};

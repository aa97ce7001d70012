/* jinja_methods.c - the methods of everything but strings.
 *
 * Methods that change their object are listed without a function: the sandbox is immutable
 * and refuses them. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "text/jinja_run.h"

/* ---- lists, tuples, ranges ---------------------------------------------------------- */

static struct val m_count(struct jrun *r, const struct val *a)
{
    struct iter *it = iter_of(r, a[0]);
    struct val v;
    int64_t n = 0;

    while (iter_next(r, it, &v)) {
        n += v_same(v, a[1]) || v_eq(r, v, a[1]);
    }
    return v_int(n);
}

static struct val m_index(struct jrun *r, const struct val *a)
{
    struct list *l = list_of(r, a[0]);
    int64_t n = (int64_t)l->n, b = arg_int(r, a[2], 0), e = arg_int(r, a[3], n);

    b = b < 0 ? (b + n < 0 ? 0 : b + n) : b;
    e = e < 0 ? e + n : e > n ? n : e;
    for (int64_t i = b; i < e && run_step(r, 1); i++) {
        if (v_same(l->v[i], a[1]) || v_eq(r, l->v[i], a[1])) {
            return v_int(i);
        }
    }
    if (!r->failed) {
        const struct str *s = to_repr(r, a[1]);

        run_fail(r, "ValueError: %.*s is not in %s", (int)(s->n < 100 ? s->n : 0), s->s,
                 v_type(a[0]));
    }
    return v_none();
}

static struct val m_list_copy(struct jrun *r, const struct val *a)
{
    return v_list(list_of(r, a[0]));
}

const struct builtin jinja_list_methods[] = {
    { "append", "", NULL },
    { "clear", "", NULL },
    { "copy", "", m_list_copy },
    { "count", "value /", m_count },
    { "extend", "", NULL },
    { "index", "value start? stop? /", m_index },
    { "insert", "", NULL },
    { "pop", "", NULL },
    { "remove", "", NULL },
    { "reverse", "", NULL },
    { "sort", "", NULL },
    { NULL, NULL, NULL },
};

const struct builtin jinja_tuple_methods[] = {
    { "count", "value /", m_count },
    { "index", "value start? stop? /", m_index },
    { NULL, NULL, NULL },
};

const struct builtin jinja_range_methods[] = {
    { "count", "value /", m_count },
    { "index", "value /", m_index },
    { NULL, NULL, NULL },
};

/* ---- dicts -------------------------------------------------------------------------- */

static struct val view_of(struct jrun *r, struct dict *d, enum view_kind kind)
{
    struct view *v = run_alloc(r, sizeof *v);

    if (v == NULL) {
        return v_none();
    }
    *v = (struct view){ .kind = kind, .dict = d };
    return (struct val){ .kind = V_VIEW, .view = v };
}

static struct val m_keys(struct jrun *r, const struct val *a)
{
    return view_of(r, a[0].dict, VIEW_KEYS);
}

static struct val m_values(struct jrun *r, const struct val *a)
{
    return view_of(r, a[0].dict, VIEW_VALUES);
}

static struct val m_items(struct jrun *r, const struct val *a)
{
    return view_of(r, a[0].dict, VIEW_ITEMS);
}

static struct val m_get(struct jrun *r, const struct val *a)
{
    const struct val *v;

    if (!v_hashable(a[1])) {
        return run_fail(r, "TypeError: unhashable type: '%s'", v_type(a[1]));
    }
    v = dict_get(r, a[0].dict, a[1]);
    return v != NULL ? *v : v_given(a[2]) ? a[2] : v_none();
}

static struct val m_dict_copy(struct jrun *r, const struct val *a)
{
    return v_dict(dict_copy(r, a[0].dict));
}

static struct val m_fromkeys(struct jrun *r, const struct val *a)
{
    struct dict *d = dict_new(r, 0);
    struct iter *it = iter_of(r, a[1]);
    struct val key;

    while (iter_next(r, it, &key)) {
        dict_set(r, d, key, v_given(a[2]) ? a[2] : v_none());
    }
    return v_dict(d);
}

const struct builtin jinja_dict_methods[] = {
    { "clear", "", NULL },
    { "copy", "", m_dict_copy },
    { "fromkeys", "iterable value? /", m_fromkeys },
    { "get", "key default? /", m_get },
    { "items", "", m_items },
    { "keys", "", m_keys },
    { "pop", "", NULL },
    { "popitem", "", NULL },
    { "setdefault", "", NULL },
    { "update", "", NULL },
    { "values", "", m_values },
    { NULL, NULL, NULL },
};

/* ---- numbers ------------------------------------------------------------------------ */

static struct val m_bit_length(struct jrun *r, const struct val *a)
{
    (void)r;
    return v_int((int64_t)big_bits(a[0]));
}

static struct val m_bit_count(struct jrun *r, const struct val *a)
{
    (void)r;
    return v_int(big_popcount(a[0]));
}

static struct val m_conjugate(struct jrun *r, const struct val *a)
{
    (void)r;
    return a[0].kind == V_BOOL ? v_int(a[0].b) : a[0];
}

static struct val m_int_ratio(struct jrun *r, const struct val *a)
{
    return pair_new(r, m_conjugate(r, a), v_int(1));
}

/* self, length, byteorder, signed */
static struct val m_to_bytes(struct jrun *r, const struct val *a)
{
    int64_t n = arg_int(r, a[1], 1);
    bool neg = big_sign(a[0]) < 0, little = false;
    struct val v = a[0], limit, q, m;
    struct sb b;
    char *bytes;

    if (v_given(a[2])) {
        const struct str *order = arg_str(r, a[2], "byteorder");

        little = str_is(order, "little");
        if (!r->failed && !little && !str_is(order, "big")) {
            return run_fail(r, "ValueError: byteorder must be either 'little' or 'big'");
        }
    }
    if (r->failed || n < 0 || n > 1 << 16) {
        return run_fail(r, "ValueError: length argument must be between 0 and 65536");
    }
    limit = big_shl(r, v_int(1), (size_t)(8 * n - (arg_true(r, a[3], false) && n > 0)));
    if (neg && !arg_true(r, a[3], false)) {
        return run_fail(r, "OverflowError: can't convert negative int to unsigned");
    }
    if (neg ? big_cmp(v, num_neg(r, limit)) < 0 : big_cmp(v, limit) >= 0) {
        return run_fail(r, "OverflowError: int too big to convert");
    }
    if (neg) {
        v = num_add(r, v, big_shl(r, v_int(1), (size_t)(8 * n)));
    }
    bytes = run_alloc(r, (size_t)n + 1);
    for (int64_t i = 0; i < n && !r->failed; i++) {
        big_divmod(r, v, v_int(256), &q, &m);
        bytes[little ? i : n - 1 - i] = (char)v_small(m);
        v = q;
    }
    sb_init(&b, r);
    sb_add(&b, r->failed ? "" : bytes, r->failed ? 0 : (size_t)n);
    return (struct val){ .kind = V_BYTES, .str = sb_take(&b) };
}

const struct builtin jinja_int_methods[] = {
    { "as_integer_ratio", "", m_int_ratio },
    { "bit_count", "", m_bit_count },
    { "bit_length", "", m_bit_length },
    { "conjugate", "", m_conjugate },
    { "to_bytes", "length? byteorder? signed?", m_to_bytes },
    { NULL, NULL, NULL },
};

static struct val m_is_integer(struct jrun *r, const struct val *a)
{
    (void)r;
    return v_bool(isfinite(a[0].f) && a[0].f == floor(a[0].f));
}

static struct val m_float_ratio(struct jrun *r, const struct val *a)
{
    int exp, shift = 0;
    double m;
    struct val num;

    if (!isfinite(a[0].f)) {
        return run_fail(r, "%s", isnan(a[0].f) ? "ValueError: cannot convert NaN to integer ratio"
                        : "OverflowError: cannot convert Infinity to integer ratio");
    }
    m = frexp(a[0].f, &exp);
    while (m != floor(m) && shift < 60) {
        m *= 2;
        shift++;
    }
    num = v_int((int64_t)m);
    exp -= shift;
    if (exp >= 0) {
        return pair_new(r, big_shl(r, num, (size_t)exp), v_int(1));
    }
    return pair_new(r, num, m == 0 ? v_int(1) : big_shl(r, v_int(1), (size_t)-exp));
}

/* Python prints thirteen hexadecimal digits always. */
static struct val m_hex(struct jrun *r, const struct val *a)
{
    double x = fabs(a[0].f), m;
    int exp = 0;
    const char *sign = signbit(a[0].f) && !isnan(x) ? "-" : "";

    if (!isfinite(x)) {
        return v_str(str_fmt(r, "%s%s", sign, isnan(x) ? "nan" : "inf"));
    }
    if (x == 0) {
        return v_str(str_fmt(r, "%s0x0.0p+0", sign));
    }
    m = frexp(x, &exp);
    if (exp < -1021) {
        m = ldexp(x, 1022);
        return v_str(str_fmt(r, "%s0x0.%013" PRIx64 "p-1022", sign,
                             (uint64_t)ldexp(m, 52)));
    }
    return v_str(str_fmt(r, "%s0x1.%013" PRIx64 "p%+d", sign,
                         (uint64_t)ldexp(m * 2 - 1, 52), exp - 1));
}

const struct builtin jinja_float_methods[] = {
    { "as_integer_ratio", "", m_float_ratio },
    { "conjugate", "", m_conjugate },
    { "hex", "", m_hex },
    { "is_integer", "", m_is_integer },
    { NULL, NULL, NULL },
};

/* ---- bytes -------------------------------------------------------------------------- */

static struct val m_decode(struct jrun *r, const struct val *a)
{
    const struct str *s = a[0].str;
    struct sb b;

    if (!utf8_valid(s->s, s->n)) {
        return run_fail(r, "UnicodeDecodeError: 'utf-8' codec can't decode the bytes");
    }
    sb_init(&b, r);
    sb_str(&b, s);
    return v_str(sb_take(&b));
}

static struct val m_bytes_hex(struct jrun *r, const struct val *a)
{
    struct sb b;
    char text[3];

    sb_init(&b, r);
    for (size_t i = 0; i < a[0].str->n && !r->failed; i++) {
        snprintf(text, sizeof text, "%02x", (unsigned char)a[0].str->s[i]);
        sb_puts(&b, text);
    }
    return v_str(sb_take(&b));
}

static struct val bytes_affix(struct jrun *r, const struct val *a, bool at_end)
{
    const struct str *s = a[0].str, *what = a[1].str;

    if (a[1].kind != V_BYTES) {
        return run_fail(r, "TypeError: first arg must be bytes, not %s", v_type(a[1]));
    }
    return v_bool(what->n <= s->n &&
                  memcmp(s->s + (at_end ? s->n - what->n : 0), what->s, what->n) == 0);
}

static struct val m_bytes_startswith(struct jrun *r, const struct val *a)
{
    return bytes_affix(r, a, false);
}

static struct val m_bytes_endswith(struct jrun *r, const struct val *a)
{
    return bytes_affix(r, a, true);
}

const struct builtin jinja_bytes_methods[] = {
    { "decode", "encoding? errors?", m_decode },
    { "endswith", "suffix /", m_bytes_endswith },
    { "hex", "", m_bytes_hex },
    { "startswith", "prefix /", m_bytes_startswith },
    { NULL, NULL, NULL },
};

/* ---- cycler and loop ---------------------------------------------------------------- */

static struct val m_next(struct jrun *r, const struct val *a)
{
    struct cycler *c = a[0].cycler;
    struct val v = c->items->v[c->pos];

    (void)r;
    c->pos = (c->pos + 1) % c->items->n;
    return v;
}

static struct val m_reset(struct jrun *r, const struct val *a)
{
    (void)r;
    a[0].cycler->pos = 0;
    return v_none();
}

const struct builtin jinja_cycler_methods[] = {
    { "next", "", m_next },
    { "reset", "", m_reset },
    { NULL, NULL, NULL },
};

static struct val m_cycle(struct jrun *r, const struct val *a)
{
    const struct list *items = a[1].list;

    if (items->n == 0) {
        return run_fail(r, "TypeError: no items for cycling given");
    }
    return items->v[(size_t)a[0].loop->index0 % items->n];
}

static struct val m_changed(struct jrun *r, const struct val *a)
{
    struct loop *l = a[0].loop;

    if (l->changed.kind != V_ABSENT && v_eq(r, l->changed, a[1])) {
        return v_bool(false);
    }
    l->changed = a[1];
    return v_bool(true);
}

const struct builtin jinja_loop_methods[] = {
    { "changed", "*value", m_changed },
    { "cycle", "*args", m_cycle },
    { NULL, NULL, NULL },
};

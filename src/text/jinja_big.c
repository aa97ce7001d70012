/* jinja_big.c - integers of any size.
 *
 * Python's integers do not overflow, so where int64_t would, a value becomes V_BIG: sign and
 * magnitude in limbs of 32 bits.  Results that fit are V_INT again.  The algorithms are the
 * schoolbook ones; their work is counted as steps and the size is bounded. */
#include <math.h>
#include <string.h>

#include "text/jinja_run.h"

/* Half a megabyte: far beyond what a template needs, and still quick to multiply once. */
enum { LIMBS_MAX = 1 << 17 };

/* A magnitude, either of a V_BIG or of a small integer through `own`. */
struct mag {
    bool neg;
    size_t n;
    const uint32_t *d;
    uint32_t own[2];
};

static void mag_u64(struct mag *m, uint64_t u)
{
    m->own[0] = (uint32_t)u;
    m->own[1] = (uint32_t)(u >> 32);
    m->n = u >> 32 ? 2 : u != 0;
    m->d = m->own;
}

static void mag_of(struct mag *m, struct val v)
{
    int64_t i;

    if (v.kind == V_BIG) {
        m->neg = v.big->neg;
        m->n = v.big->n;
        m->d = v.big->d;
        return;
    }
    i = v_small(v);
    m->neg = i < 0;
    mag_u64(m, i < 0 ? -(uint64_t)i : (uint64_t)i);
}

/* Room for n limbs, zeroed; NULL after a failure. */
static struct big *big_new(struct jrun *r, size_t n)
{
    struct big *b;

    if (n > LIMBS_MAX) {
        run_fail(r, "OverflowError: an integer exceeds the limit of %d bits", LIMBS_MAX * 32);
        return NULL;
    }
    b = run_alloc(r, sizeof *b + n * sizeof b->d[0]);
    if (b != NULL) {
        b->neg = false;
        b->n = n;
        memset(b->d, 0, n * sizeof b->d[0]);
    }
    return b;
}

/* Drops leading zeros, and the limbs altogether where int64_t is enough. */
static struct val big_norm(struct big *b)
{
    uint64_t u = 0;

    if (b == NULL) {
        return v_int(0);
    }
    while (b->n > 0 && b->d[b->n - 1] == 0) {
        b->n--;
    }
    if (b->n > 2) {
        return (struct val){ .kind = V_BIG, .big = b };
    }
    for (size_t i = b->n; i-- > 0;) {
        u = u << 32 | b->d[i];
    }
    if (u <= INT64_MAX) {
        return v_int(b->neg ? -(int64_t)u : (int64_t)u);
    }
    if (b->neg && u == (uint64_t)INT64_MAX + 1) {
        return v_int(INT64_MIN);
    }
    return (struct val){ .kind = V_BIG, .big = b };
}

static int mag_cmp(const struct mag *a, const struct mag *b)
{
    if (a->n != b->n) {
        return a->n < b->n ? -1 : 1;
    }
    for (size_t i = a->n; i-- > 0;) {
        if (a->d[i] != b->d[i]) {
            return a->d[i] < b->d[i] ? -1 : 1;
        }
    }
    return 0;
}

static struct big *mag_add(struct jrun *r, const struct mag *a, const struct mag *b)
{
    size_t n = (a->n > b->n ? a->n : b->n) + 1;
    struct big *out = big_new(r, n);
    uint64_t carry = 0;

    for (size_t i = 0; i < n && out != NULL; i++) {
        carry += i < a->n ? a->d[i] : 0;
        carry += i < b->n ? b->d[i] : 0;
        out->d[i] = (uint32_t)carry;
        carry >>= 32;
    }
    return out;
}

/* a >= b */
static struct big *mag_sub(struct jrun *r, const struct mag *a, const struct mag *b)
{
    struct big *out = big_new(r, a->n);
    int64_t borrow = 0;

    for (size_t i = 0; i < a->n && out != NULL; i++) {
        borrow += (int64_t)a->d[i] - (i < b->n ? b->d[i] : 0);
        out->d[i] = (uint32_t)borrow;
        borrow >>= 32;
    }
    return out;
}

static struct val add_signed(struct jrun *r, const struct mag *a, const struct mag *b, bool b_neg)
{
    bool neg = a->neg;
    struct big *out;

    if (a->neg == b_neg) {
        out = mag_add(r, a, b);
    } else if (mag_cmp(a, b) >= 0) {
        out = mag_sub(r, a, b);
    } else {
        neg = b_neg;
        out = mag_sub(r, b, a);
    }
    if (out != NULL) {
        out->neg = neg;
    }
    return big_norm(out);
}

struct val big_add(struct jrun *r, struct val a, struct val b)
{
    struct mag x, y;

    mag_of(&x, a);
    mag_of(&y, b);
    return add_signed(r, &x, &y, y.neg);
}

struct val big_sub(struct jrun *r, struct val a, struct val b)
{
    struct mag x, y;

    mag_of(&x, a);
    mag_of(&y, b);
    return add_signed(r, &x, &y, !y.neg);
}

struct val big_neg(struct jrun *r, struct val a)
{
    return big_sub(r, v_int(0), a);
}

struct val big_mul(struct jrun *r, struct val a, struct val b)
{
    struct mag x, y;
    struct big *out;

    mag_of(&x, a);
    mag_of(&y, b);
    if (!run_step(r, x.n * y.n / 16)) {
        return v_int(0);
    }
    out = big_new(r, x.n + y.n);
    for (size_t i = 0; i < x.n && out != NULL; i++) {
        uint64_t carry = 0;

        for (size_t k = 0; k < y.n; k++) {
            carry += (uint64_t)x.d[i] * y.d[k] + out->d[i + k];
            out->d[i + k] = (uint32_t)carry;
            carry >>= 32;
        }
        out->d[i + y.n] = (uint32_t)carry;
    }
    if (out != NULL) {
        out->neg = x.neg != y.neg;
    }
    return big_norm(out);
}

/* Divides q (in place) by a single limb; gives the remainder. */
static uint32_t div_limb(uint32_t *q, size_t n, uint32_t by)
{
    uint64_t rem = 0;

    for (size_t i = n; i-- > 0;) {
        rem = rem << 32 | q[i];
        q[i] = (uint32_t)(rem / by);
        rem %= by;
    }
    return (uint32_t)rem;
}

/* a shifted left by fewer than 32 bits into out, which has a limb more than a. */
static void shift_small(uint32_t *out, const struct mag *a, int bits)
{
    uint64_t carry = 0;

    for (size_t i = 0; i < a->n; i++) {
        carry |= (uint64_t)a->d[i] << bits;
        out[i] = (uint32_t)carry;
        carry >>= 32;
    }
    out[a->n] = (uint32_t)carry;
}

/* One quotient digit (Knuth, algorithm D): u[0..n] -= digit * v[0..n-1]. */
static uint32_t quotient_digit(uint32_t *u, const uint32_t *v, size_t n)
{
    uint64_t top = (uint64_t)u[n] << 32 | u[n - 1];
    uint64_t digit = top / v[n - 1], rest = top % v[n - 1];
    int64_t borrow = 0;
    uint64_t carry = 0;

    while (digit >> 32 || digit * v[n - 2] > (rest << 32 | u[n - 2])) {
        digit--;
        rest += v[n - 1];
        if (rest >> 32) {
            break;
        }
    }
    for (size_t i = 0; i < n; i++) {
        carry += digit * v[i];
        borrow += (int64_t)u[i] - (int64_t)(carry & 0xFFFFFFFFu);
        u[i] = (uint32_t)borrow;
        borrow >>= 32;
        carry >>= 32;
    }
    borrow += (int64_t)u[n] - (int64_t)carry;
    u[n] = (uint32_t)borrow;
    if (borrow >> 32) {   /* one too many: add the divisor back */
        carry = 0;
        digit--;
        for (size_t i = 0; i < n; i++) {
            carry += (uint64_t)u[i] + v[i];
            u[i] = (uint32_t)carry;
            carry >>= 32;
        }
        u[n] += (uint32_t)carry;
    }
    return (uint32_t)digit;
}

/* |a| / |b| with |a| >= |b| and b of at least two limbs. */
static void mag_divmod(struct jrun *r, const struct mag *a, const struct mag *b, struct big **q,
                       struct big **m)
{
    int shift = __builtin_clz(b->d[b->n - 1]);
    struct big *u = big_new(r, a->n + 1), *v = big_new(r, b->n + 1);

    *q = big_new(r, a->n - b->n + 1);
    *m = u;
    if (*q == NULL || u == NULL || v == NULL || !run_step(r, b->n * (a->n - b->n + 1) / 16)) {
        return;
    }
    shift_small(u->d, a, shift);
    shift_small(v->d, b, shift);
    for (size_t i = a->n - b->n + 1; i-- > 0;) {
        (*q)->d[i] = quotient_digit(u->d + i, v->d, b->n);
    }
    for (size_t i = 0; i < u->n; i++) {
        uint64_t two = u->d[i] | (i + 1 < u->n ? (uint64_t)u->d[i + 1] << 32 : 0);

        u->d[i] = (uint32_t)(two >> shift);
    }
}

/* Quotient and remainder of the magnitudes. */
static void divide(struct jrun *r, const struct mag *a, const struct mag *b, struct big **q,
                   struct big **m)
{
    if (mag_cmp(a, b) < 0) {
        *q = big_new(r, 0);
        *m = big_new(r, a->n);
        if (*m != NULL && a->n > 0) {
            memcpy((*m)->d, a->d, a->n * sizeof a->d[0]);
        }
    } else if (b->n == 1) {
        *q = big_new(r, a->n);
        *m = big_new(r, 1);
        if (*q != NULL && *m != NULL) {
            memcpy((*q)->d, a->d, a->n * sizeof a->d[0]);
            (*m)->d[0] = div_limb((*q)->d, a->n, b->d[0]);
        }
    } else {
        mag_divmod(r, a, b, q, m);
    }
}

void big_divmod(struct jrun *r, struct val a, struct val b, struct val *q, struct val *m)
{
    struct mag x, y;
    struct big *quot = NULL, *rem = NULL;
    struct val vq, vm;

    mag_of(&x, a);
    mag_of(&y, b);
    divide(r, &x, &y, &quot, &rem);
    vq = vm = v_int(0);
    if (!r->failed && quot != NULL && rem != NULL) {
        quot->neg = x.neg != y.neg;
        rem->neg = x.neg;
        vq = big_norm(quot);
        vm = big_norm(rem);
        if (x.neg != y.neg && big_sign(vm) != 0) {   /* round to minus infinity */
            vq = big_sub(r, vq, v_int(1));
            vm = big_add(r, vm, b);
        }
    }
    if (q != NULL) {
        *q = vq;
    }
    if (m != NULL) {
        *m = vm;
    }
}

int big_sign(struct val a)
{
    if (a.kind == V_BIG) {
        return a.big->neg ? -1 : 1;
    }
    return (v_small(a) > 0) - (v_small(a) < 0);
}

int big_cmp(struct val a, struct val b)
{
    struct mag x, y;
    int c;

    mag_of(&x, a);
    mag_of(&y, b);
    if (x.neg != y.neg) {
        return x.neg ? -1 : 1;
    }
    c = mag_cmp(&x, &y);
    return x.neg ? -c : c;
}

size_t big_bits(struct val a)
{
    struct mag x;

    mag_of(&x, a);
    return x.n == 0 ? 0 : x.n * 32 - (size_t)__builtin_clz(x.d[x.n - 1]);
}

int big_popcount(struct val a)
{
    struct mag x;
    int n = 0;

    mag_of(&x, a);
    for (size_t i = 0; i < x.n; i++) {
        n += __builtin_popcount(x.d[i]);
    }
    return n;
}

struct val big_shl(struct jrun *r, struct val a, size_t bits)
{
    struct mag x;
    struct big *out;

    mag_of(&x, a);
    if (x.n == 0) {
        return v_int(0);
    }
    out = big_new(r, x.n + 1 + bits / 32);
    if (out != NULL) {
        shift_small(out->d + bits / 32, &x, (int)(bits % 32));
        out->neg = x.neg;
    }
    return big_norm(out);
}

/* The highest 64 bits with everything below them folded into the last one, which is enough
 * for a rounding to 53 bits. */
double big_to_double(struct val a)
{
    struct mag x;
    uint64_t top = 0;
    bool sticky = false;
    size_t bits = big_bits(a), drop = bits > 64 ? bits - 64 : 0;
    double f;

    mag_of(&x, a);
    for (size_t i = 0; i < x.n; i++) {
        int64_t at = (int64_t)i * 32 - (int64_t)drop;   /* where the limb goes in `top` */

        if (at <= -32) {
            sticky = sticky || x.d[i] != 0;
        } else if (at < 0) {
            top |= x.d[i] >> -at;
            sticky = sticky || (uint32_t)(x.d[i] << (32 + at)) != 0;
        } else {
            top |= (uint64_t)x.d[i] << at;
        }
    }
    f = drop > 2000 ? HUGE_VAL : ldexp((double)(top | sticky), (int)drop);
    return x.neg ? -f : f;
}

struct val big_from_double(struct jrun *r, double x)
{
    int exp;
    double m = frexp(fabs(x), &exp);
    struct val v;

    if (fabs(x) < 9.2e18) {
        return v_int((int64_t)x);
    }
    v = big_shl(r, v_int((int64_t)ldexp(m, 53)), (size_t)exp - 53);
    return x < 0 ? big_neg(r, v) : v;
}

double big_true_div(struct jrun *r, struct val a, struct val b)
{
    int64_t diff = (int64_t)big_bits(a) - (int64_t)big_bits(b);
    size_t shift = diff < 66 ? (size_t)(66 - diff) : 0;
    bool neg = big_sign(a) < 0;
    struct val q, m;

    if (big_sign(a) == 0) {
        return big_sign(b) < 0 ? -0.0 : 0.0;
    }
    a = big_shl(r, neg ? big_neg(r, a) : a, shift);
    if (big_sign(b) < 0) {
        neg = !neg;
        b = big_neg(r, b);
    }
    big_divmod(r, a, b, &q, &m);
    if (big_sign(m) != 0) {
        /* The quotient has 65 bits or more, so the lowest one only tells "a little more". */
        q = big_add(r, big_add(r, q, q), v_int(1));
        shift++;
    }
    return ldexp(neg ? -big_to_double(q) : big_to_double(q), -(int)(shift < 5000 ? shift : 5000));
}

/* ---- text --------------------------------------------------------------------------- */

static int digit_value(char c)
{
    return c <= '9' ? c - '0' : (c | 32) - 'a' + 10;
}

struct val big_from_digits(struct jrun *r, const char *s, size_t n, int base, bool neg)
{
    struct big *b = big_new(r, n / 5 + 2);   /* a digit has at most 5.2 bits */
    size_t used = 0;

    if (b == NULL || !run_step(r, n * (n / 40 + 1))) {
        return v_int(0);
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t carry = (uint64_t)digit_value(s[i]);

        for (size_t k = 0; k < used; k++) {
            carry += (uint64_t)b->d[k] * (uint64_t)base;
            b->d[k] = (uint32_t)carry;
            carry >>= 32;
        }
        if (carry != 0) {
            b->d[used++] = (uint32_t)carry;
        }
    }
    b->neg = neg;
    return big_norm(b);
}

/* How many digits one division by a limb yields, and that power of the base. */
static uint32_t chunk(int base, int *digits)
{
    uint32_t power = (uint32_t)base;

    for (*digits = 1; power <= UINT32_MAX / (uint32_t)base; (*digits)++) {
        power *= (uint32_t)base;
    }
    return power;
}

char *big_digits(struct jrun *r, struct val a, int base, size_t *n)
{
    static char zero[] = "0";
    struct mag x;
    int per;
    uint32_t power = chunk(base, &per);
    size_t room, at, left;
    uint32_t *d;
    char *out;

    *n = 1;
    mag_of(&x, a);
    room = x.n * 32 + 2;
    out = run_alloc(r, room);
    d = run_alloc(r, (x.n + 1) * sizeof *d);
    if (out == NULL || d == NULL || !run_step(r, x.n * x.n / 4)) {
        return zero;
    }
    memcpy(d, x.d, x.n * sizeof *d);
    at = room - 1;
    out[at] = '\0';
    for (left = x.n; left > 0;) {
        uint32_t rem = div_limb(d, left, power);

        while (left > 0 && d[left - 1] == 0) {
            left--;
        }
        for (int i = 0; i < per && (left > 0 || rem > 0); i++) {
            out[--at] = "0123456789abcdef"[rem % (uint32_t)base];
            rem /= (uint32_t)base;
        }
    }
    if (at == room - 1) {
        out[--at] = '0';
    }
    *n = room - 1 - at;
    return out + at;
}

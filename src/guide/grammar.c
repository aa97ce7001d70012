/* grammar.c - building expressions, and what is computed of them as a whole: the length
 * of the shortest text, and that no rule begins with itself. */
#include "guide/grammar.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

/* Limits against hostile input; an expression takes 24 bytes. */
enum {
    NODES_MAX = 400000,
    MEMBERS_MAX = 1600000,
    SETS_MAX = 4096,
    BYTES_MAX = 8 << 20,
};

/* ---- building ---------------------------------------------------------------------- */

static gram_expr add_node(struct grammar *g, struct gram_node node);

void gram_init(struct grammar *g)
{
    *g = (struct grammar){0};
    buf_init(&g->bytes, BYTES_MAX);
    add_node(g, (struct gram_node){ .op = GRAM_NEVER });
    add_node(g, (struct gram_node){ .op = GRAM_EMPTY });
}

void gram_deinit(struct grammar *g)
{
    mem_free(g->node);
    mem_free(g->member);
    mem_free(g->set);
    buf_deinit(&g->bytes);
}

bool gram_failed(const struct grammar *g)
{
    return g->too_large || g->no_memory || g->bytes.failed;
}

bool gram_error(const struct grammar *g, slm_error *err)
{
    if (g->no_memory || (g->bytes.failed && g->bytes.len < BYTES_MAX / 2)) {
        return slm_fail_nomem(err, "a grammar");
    }
    return slm_fail(err, SLM_E_UNSUPPORTED,
                    "too large: more than %d expressions or %d MiB of text; make it simpler",
                    NODES_MAX, BYTES_MAX >> 20);
}

/* Makes room for `more` elements behind n; false (remembered) without. */
static bool grow(struct grammar *g, void *array, uint32_t *cap, uint32_t n, size_t more,
                 uint32_t max, size_t size)
{
    void **p = array;

    if (gram_failed(g)) {
        return false;
    }
    if (more > max - n) {
        g->too_large = true;
        return false;
    }
    if (n + more > *cap) {
        size_t want = *cap < 64 ? 64 : (size_t)*cap * 2;
        want = want < n + more ? n + more : want;
        void *bigger = mem_realloc(*p, want, size);
        if (!bigger) {
            g->no_memory = true;
            return false;
        }
        *p = bigger;
        *cap = (uint32_t)want;
    }
    return true;
}

static gram_expr add_node(struct grammar *g, struct gram_node node)
{
    if (!grow(g, &g->node, &g->nodes_cap, g->n_nodes, 1, NODES_MAX, sizeof *g->node)) {
        return GRAM_NONE;
    }
    node.dist = GRAM_INF;
    g->node[g->n_nodes] = node;
    return (gram_expr)g->n_nodes++;
}

gram_expr gram_lit(struct grammar *g, const char *s, size_t n)
{
    const size_t at = g->bytes.len;

    if (n == 0) {
        return GRAM_NOTHING;
    }
    buf_add(&g->bytes, s, n);
    return add_node(g, (struct gram_node){ .op = GRAM_LIT, .at = (uint32_t)at, .n = (uint32_t)n });
}

gram_expr gram_str(struct grammar *g, const char *s)
{
    return gram_lit(g, s, strlen(s));
}

gram_expr gram_set(struct grammar *g, const struct gram_set *set)
{
    static const struct gram_set none;
    uint32_t i = 0;

    if (memcmp(set, &none, sizeof none) == 0) {
        return GRAM_NONE;
    }
    while (i < g->n_sets && memcmp(&g->set[i], set, sizeof *set) != 0) {
        i++;
    }
    if (i == g->n_sets) {
        if (!grow(g, &g->set, &g->sets_cap, g->n_sets, 1, SETS_MAX, sizeof *g->set)) {
            return GRAM_NONE;
        }
        g->set[g->n_sets++] = *set;
    }
    return add_node(g, (struct gram_node){ .op = GRAM_SET, .at = i });
}

gram_expr gram_range(struct grammar *g, unsigned first, unsigned last)
{
    struct gram_set set = {{0}};

    for (unsigned b = first; b <= last; b++) {
        set.bits[b / 64] |= (uint64_t)1 << b % 64;
    }
    return gram_set(g, &set);
}

static gram_expr add_members(struct grammar *g, enum gram_op op, const gram_expr *e, size_t n)
{
    if (!grow(g, &g->member, &g->members_cap, g->n_members, n, MEMBERS_MAX, sizeof *g->member)) {
        return GRAM_NONE;
    }
    const uint32_t at = g->n_members;
    memcpy(g->member + at, e, n * sizeof *e);
    g->n_members += (uint32_t)n;
    return add_node(g, (struct gram_node){ .op = (uint8_t)op, .at = at, .n = (uint32_t)n });
}

/* Members that say nothing (`skip`) are left out.  What is trivial becomes no node of its own. */
static gram_expr combine(struct grammar *g, enum gram_op op, const gram_expr *e, size_t n,
                         gram_expr skip)
{
    size_t kept = 0, last = 0;

    for (size_t i = 0; i < n; i++) {
        if (op == GRAM_SEQ && e[i] == GRAM_NONE) {
            return GRAM_NONE;
        }
        if (e[i] != skip) {
            last = i;
            kept++;
        }
    }
    if (kept < 2) {
        return kept == 1 ? e[last] : skip;
    }
    if (kept == n) {
        return add_members(g, op, e, n);
    }
    gram_expr *some = mem_alloc(kept, sizeof *some);
    if (!some) {
        g->no_memory = true;
        return GRAM_NONE;
    }
    kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (e[i] != skip) {
            some[kept++] = e[i];
        }
    }
    const gram_expr id = add_members(g, op, some, kept);
    mem_free(some);
    return id;
}

gram_expr gram_seq(struct grammar *g, const gram_expr *e, size_t n)
{
    return combine(g, GRAM_SEQ, e, n, GRAM_NOTHING);
}

gram_expr gram_alt(struct grammar *g, const gram_expr *e, size_t n)
{
    return combine(g, GRAM_ALT, e, n, GRAM_NONE);
}

gram_expr gram_repeat(struct grammar *g, gram_expr e, uint32_t min, uint32_t max)
{
    if (min > max) {
        return GRAM_NONE;
    }
    if (max == 0 || e == GRAM_NOTHING || (e == GRAM_NONE && min == 0)) {
        return GRAM_NOTHING;
    }
    if (e == GRAM_NONE || (min == 1 && max == 1)) {
        return e;
    }
    return add_node(g, (struct gram_node){ .op = GRAM_REPEAT, .n = (uint32_t)e, .min = min,
                                           .max = max });
}

gram_expr gram_optional(struct grammar *g, gram_expr e)
{
    return gram_repeat(g, e, 0, 1);
}

gram_expr gram_rule(struct grammar *g, const char *name)
{
    const size_t at = g->bytes.len;

    buf_add(&g->bytes, name, strlen(name) + 1);
    return add_node(g, (struct gram_node){ .op = GRAM_RULE, .at = (uint32_t)at, .n = GRAM_NONE });
}

void gram_define(struct grammar *g, gram_expr rule, gram_expr e)
{
    if (!gram_failed(g)) {
        assert(g->node[rule].op == GRAM_RULE);
        g->node[rule].n = (uint32_t)e;
        g->node[rule].min = 1;
    }
}

bool gram_defined(const struct grammar *g, gram_expr rule)
{
    return gram_failed(g) || g->node[rule].min == 1;
}

void gram_list_add(struct grammar *g, struct gram_list *l, gram_expr e)
{
    if (l->n == l->cap) {
        const size_t cap = l->cap ? l->cap * 2 : 8;
        gram_expr *bigger = l->n < MEMBERS_MAX ? mem_realloc(l->e, cap, sizeof *l->e) : NULL;
        if (!bigger) {
            g->no_memory = l->n < MEMBERS_MAX;
            g->too_large = !g->no_memory;
            return;
        }
        l->e = bigger;
        l->cap = cap;
    }
    l->e[l->n++] = e;
}

void gram_list_deinit(struct gram_list *l)
{
    mem_free(l->e);
    *l = (struct gram_list){0};
}

/* ---- shortest texts ------------------------------------------------------------------ */

/* Direct parts of an expression: a list in memory or, for one that has a single part, *one. */
static uint32_t parts(const struct grammar *g, const struct gram_node *n, const gram_expr **list,
                      gram_expr *one)
{
    switch (n->op) {
    case GRAM_SEQ:
    case GRAM_ALT:
        *list = g->member + n->at;
        return n->n;
    case GRAM_REPEAT:
    case GRAM_RULE:
        *one = (gram_expr)n->n;
        *list = one;
        return 1;
    default:
        return 0;
    }
}

/* Expressions are settled in the order of their shortest texts (Knuth's generalisation of
 * Dijkstra's algorithm to grammars, 1977): an expression is settled once all the parts it needs
 * are. */
struct shortest {
    struct grammar *g;
    uint32_t *parent_at, *parent;  /* who has expression i as a part */
    uint32_t *waits;               /* parts of a SEQ that are not settled */
    struct { uint32_t dist, e; } *heap;
    uint32_t n_heap;
    bool *settled;
};

static uint32_t add_sat(uint32_t a, uint32_t b)
{
    return a > GRAM_INF - b ? GRAM_INF : a + b;
}

static uint32_t mul_sat(uint32_t a, uint32_t b)
{
    const uint64_t p = (uint64_t)a * b;
    return p > GRAM_INF - 1 ? GRAM_INF - 1 : (uint32_t)p;
}

static void heap_push(struct shortest *s, uint32_t dist, uint32_t e)
{
    uint32_t i = s->n_heap++;

    for (; i > 0 && s->heap[(i - 1) / 2].dist > dist; i = (i - 1) / 2) {
        s->heap[i] = s->heap[(i - 1) / 2];
    }
    s->heap[i].dist = dist;
    s->heap[i].e = e;
}

static uint32_t heap_pop(struct shortest *s)
{
    const uint32_t top = s->heap[0].e;
    const uint32_t dist = s->heap[--s->n_heap].dist, e = s->heap[s->n_heap].e;
    uint32_t i = 0;

    for (uint32_t c = 1; c < s->n_heap; c = 2 * i + 1) {
        c += c + 1 < s->n_heap && s->heap[c + 1].dist < s->heap[c].dist;
        if (s->heap[c].dist >= dist) {
            break;
        }
        s->heap[i] = s->heap[c];
        i = c;
    }
    s->heap[i].dist = dist;
    s->heap[i].e = e;
    return top;
}

/* Offers a distance to an expression; the heap gets every expression at most once for each of
 * its parts. */
static void offer(struct shortest *s, uint32_t e, uint32_t dist)
{
    struct gram_node *n = &s->g->node[e];

    if (!s->settled[e] && dist < n->dist) {
        n->dist = dist;
        heap_push(s, dist, e);
    }
}

/* Part `from` of e has been settled. */
static void advance(struct shortest *s, uint32_t e, uint32_t from)
{
    struct grammar *g = s->g;
    const struct gram_node *n = &g->node[e];
    const uint32_t dist = g->node[from].dist;

    if (n->op == GRAM_REPEAT) {
        offer(s, e, mul_sat(n->min, dist));
    } else if (n->op != GRAM_SEQ) {
        offer(s, e, dist);
    } else if (--s->waits[e] == 0) {
        uint32_t sum = 0;
        for (uint32_t i = 0; i < n->n; i++) {
            sum = add_sat(sum, g->node[g->member[n->at + i]].dist);
        }
        offer(s, e, sum < GRAM_INF ? sum : GRAM_INF - 1);
    }
}

static void link_parents(struct shortest *s)
{
    struct grammar *g = s->g;
    const gram_expr *list;
    gram_expr one;

    for (uint32_t e = 0; e < g->n_nodes; e++) {
        const uint32_t n = parts(g, &g->node[e], &list, &one);
        s->waits[e] = n;
        for (uint32_t i = 0; i < n; i++) {
            s->parent_at[list[i] + 1]++;
        }
    }
    for (uint32_t e = 0; e < g->n_nodes; e++) {
        s->parent_at[e + 1] += s->parent_at[e];
    }
    s->parent_at[g->n_nodes + 1] = s->parent_at[g->n_nodes];
    for (uint32_t e = g->n_nodes; e-- > 0;) {
        const uint32_t n = parts(g, &g->node[e], &list, &one);
        for (uint32_t i = 0; i < n; i++) {
            s->parent[--s->parent_at[list[i] + 1]] = e;
        }
    }
}

static void settle_all(struct shortest *s)
{
    struct grammar *g = s->g;

    for (uint32_t e = 0; e < g->n_nodes; e++) {
        struct gram_node *n = &g->node[e];
        n->dist = GRAM_INF;
        if (n->op == GRAM_EMPTY || (n->op == GRAM_REPEAT && n->min == 0)) {
            offer(s, e, 0);
        } else if (n->op == GRAM_LIT || n->op == GRAM_SET) {
            offer(s, e, n->op == GRAM_LIT ? n->n : 1);
        }
    }
    while (s->n_heap > 0) {
        const uint32_t e = heap_pop(s);
        if (s->settled[e]) {
            continue;
        }
        s->settled[e] = true;
        /* After linking, the parents of e end where those of e + 1 begin. */
        for (uint32_t i = s->parent_at[e + 1]; i < s->parent_at[e + 2]; i++) {
            advance(s, s->parent[i], e);
        }
    }
}

static bool find_shortest(struct grammar *g, slm_error *err)
{
    const size_t n = g->n_nodes;
    const size_t edges = (size_t)g->n_members + n;
    struct shortest s = { .g = g };

    s.parent_at = mem_zalloc(n + 2, sizeof *s.parent_at);
    s.parent = mem_alloc(edges, sizeof *s.parent);
    s.waits = mem_alloc(n, sizeof *s.waits);
    s.heap = mem_alloc(edges + n, sizeof *s.heap);
    s.settled = mem_zalloc(n, sizeof *s.settled);
    const bool ok = s.parent_at && s.parent && s.waits && s.heap && s.settled;
    if (ok) {
        link_parents(&s);
        settle_all(&s);
    }
    mem_free(s.parent_at);
    mem_free(s.parent);
    mem_free(s.waits);
    mem_free(s.heap);
    mem_free(s.settled);
    return ok || slm_fail_nomem(err, "a grammar");
}

/* ---- rules that begin with themselves ------------------------------------------------- */

/* Parts of an expression with which its text may begin. */
static uint32_t beginnings(const struct grammar *g, const struct gram_node *n,
                           const gram_expr **list, gram_expr *one)
{
    uint32_t count = parts(g, n, list, one);

    if (n->op == GRAM_SEQ) {
        uint32_t i = 0;
        while (i < count && g->node[(*list)[i]].dist == 0) {
            i++;
        }
        count = i < count ? i + 1 : count;
    }
    return count;
}

/* Depth-first over beginnings; an expression met again on the way to itself begins with itself.
 * An automaton would never get to its first byte. */
static bool check_left(const struct grammar *g, slm_error *err)
{
    enum { NEW, OPEN, DONE };
    struct { gram_expr e; uint32_t next; } *stack = mem_alloc(g->n_nodes, sizeof *stack);
    uint8_t *mark = mem_zalloc(g->n_nodes, sizeof *mark);
    bool ok = stack && mark;
    const char *name = NULL;

    if (!ok) {
        slm_fail_nomem(err, "a grammar");
    }
    for (uint32_t start = 0; ok && start < g->n_nodes; start++) {
        uint32_t depth = 0;
        if (mark[start] == NEW) {
            stack[depth].e = (gram_expr)start;
            stack[depth++].next = 0;
            mark[start] = OPEN;
        }
        while (ok && depth > 0) {
            const gram_expr e = stack[depth - 1].e;
            const gram_expr *list = NULL;
            gram_expr one;
            const uint32_t n = beginnings(g, &g->node[e], &list, &one);
            if (stack[depth - 1].next == n) {
                mark[e] = DONE;
                depth--;
                continue;
            }
            const gram_expr part = list[stack[depth - 1].next++];
            if (g->node[part].dist == GRAM_INF || mark[part] == DONE) {
                continue;
            }
            if (mark[part] == NEW) {
                stack[depth].e = part;
                stack[depth++].next = 0;
                mark[part] = OPEN;
                continue;
            }
            /* On the stack from `part` to here there is at least one rule. */
            for (uint32_t i = depth; i-- > 0;) {
                const struct gram_node *r = &g->node[stack[i].e];
                name = r->op == GRAM_RULE ? buf_str(&g->bytes) + r->at : name;
                if (stack[i].e == part) {
                    break;
                }
            }
            ok = slm_fail(err, SLM_E_UNSUPPORTED,
                          "%s begins with itself, directly or by way of others; write it with a "
                          "repetition or the recursion last", name ? name : "a rule");
        }
    }
    mem_free(stack);
    mem_free(mark);
    return ok;
}

/* ---- the whole ------------------------------------------------------------------------ */

bool gram_finish(struct grammar *g, gram_expr root, slm_error *err)
{
    if (gram_failed(g)) {
        return gram_error(g, err);
    }
    if (!find_shortest(g, err) || !check_left(g, err)) {
        return false;
    }
    for (uint32_t e = 0; e < g->n_nodes; e++) {
        struct gram_node *n = &g->node[e];
        if (n->op == GRAM_REPEAT) {
            n->plain = g->node[n->n].dist > 0;
            n->min = n->plain ? n->min : 0;  /* an empty body counts as often as wanted */
        }
    }
    if (g->node[root].dist == GRAM_INF) {
        return slm_fail(err, SLM_E_ARG, "no text can match: the language is empty");
    }
    return true;
}

/* prefix.c - the tree of texts, the order in which its nodes go, and copies of states. */
#include "run/prefix.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

/* One list holds all nodes in use, the one used last in front.  Whoever uses a text moves its
 * nodes to the front from the deepest to the first, so that no node comes before its parent. */
struct prefix_node {
    struct prefix_node *parent, *child, *sibling;  /* child: the first of them */
    struct prefix_node *newer, *older;
    struct kv_page page;
    int32_t copy;          /* place of the states after the last token, or NO_COPY */
    int n_marks;           /* texts that end here and must stay */
    int n_tok;             /* KV_PAGE, or less in a node without children */
    int32_t tok[KV_PAGE];
};

enum { NO_COPY = -1 };

struct prefix {
    const struct model *model;
    struct kv_pool *pool;
    struct prefix_node root;          /* no page and no tokens */
    struct prefix_node *newest, *oldest;
    struct prefix_node *nodes;        /* [n_nodes] */
    struct prefix_node *spare;        /* by sibling */
    size_t nodes_bytes;
    int n_nodes, n_fresh;             /* nodes from n_fresh on have never been used */

    char *copies;                     /* [n_copies][state_bytes] */
    size_t state_bytes, copies_bytes;
    int32_t *free_copies;             /* [n_copies]: n_free of them */
    int n_copies, n_free;
};

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

/* ---- making one ----------------------------------------------------------------------- */

static size_t state_bytes(const struct model *m)
{
    return (size_t)model_shape(m)->n_state * model_state_bytes(m);
}

size_t prefix_bytes(const struct model *m, int n_nodes, int n_copies)
{
    size_t nodes, copies, sum;

    if (!size_mul((size_t)n_nodes, sizeof(struct prefix_node), &nodes) ||
        !size_mul((size_t)n_copies, state_bytes(m) + sizeof(int32_t), &copies) ||
        !size_add(nodes, copies, &sum)) {
        return SIZE_MAX;
    }
    return sum;
}

struct prefix *prefix_new(const struct model *m, struct kv_pool *pool, int n_nodes, int n_copies,
                          slm_error *err)
{
    struct prefix *p = mem_zalloc(1, sizeof *p);

    assert(n_nodes >= 1 && n_copies >= 0);
    if (!p || prefix_bytes(m, n_nodes, n_copies) == SIZE_MAX) {
        goto fail;
    }
    p->model = m;
    p->pool = pool;
    p->n_nodes = n_nodes;
    p->nodes_bytes = (size_t)n_nodes * sizeof *p->nodes;
    p->nodes = mem_pages(p->nodes_bytes);
    p->state_bytes = state_bytes(m);
    p->n_copies = p->state_bytes > 0 ? n_copies : 0;
    p->copies_bytes = (size_t)p->n_copies * p->state_bytes;
    p->copies = p->copies_bytes > 0 ? mem_pages(p->copies_bytes) : NULL;
    p->free_copies = mem_alloc((size_t)p->n_copies, sizeof *p->free_copies);
    if (!p->nodes || (p->copies_bytes > 0 && !p->copies) || !p->free_copies) {
        goto fail;
    }
    for (int i = 0; i < p->n_copies; i++) {
        p->free_copies[p->n_free++] = p->n_copies - 1 - i;
    }
    return p;

fail:
    prefix_free(p);
    slm_fail_nomem(err, "the cache of prompts");
    return NULL;
}

void prefix_free(struct prefix *p)
{
    if (!p) {
        return;
    }
    for (struct prefix_node *n = p->newest; n; n = n->older) {
        kv_page_unref(p->pool, n->page);
    }
    if (p->nodes) {
        mem_pages_free(p->nodes, p->nodes_bytes);
    }
    if (p->copies) {
        mem_pages_free(p->copies, p->copies_bytes);
    }
    mem_free(p->free_copies);
    mem_free(p);
}

/* ---- the order of use ----------------------------------------------------------------- */

static void unlink_node(struct prefix *p, struct prefix_node *n)
{
    *(n->newer ? &n->newer->older : &p->newest) = n->older;
    *(n->older ? &n->older->newer : &p->oldest) = n->newer;
}

static void put_in_front(struct prefix *p, struct prefix_node *n)
{
    n->newer = NULL;
    n->older = p->newest;
    *(n->older ? &n->older->newer : &p->oldest) = n;
    p->newest = n;
}

/* Uses the text that ends with n. */
static void touch(struct prefix *p, struct prefix_node *n)
{
    for (; n != &p->root; n = n->parent) {
        unlink_node(p, n);
        put_in_front(p, n);
    }
}

/* ---- copies of states ----------------------------------------------------------------- */

static char *copy_at(const struct prefix *p, int32_t copy)
{
    return p->copies + (size_t)copy * p->state_bytes;
}

static void drop_copy(struct prefix *p, struct prefix_node *n)
{
    if (n->copy != NO_COPY) {
        p->free_copies[p->n_free++] = n->copy;
        n->copy = NO_COPY;
    }
}

/* A free place, taken from the node used least recently if need be. */
static int32_t take_copy(struct prefix *p)
{
    for (struct prefix_node *n = p->oldest; n && p->n_free == 0; n = n->newer) {
        drop_copy(p, n);
    }
    return p->n_free > 0 ? p->free_copies[--p->n_free] : NO_COPY;
}

static void save_states(struct prefix *p, struct prefix_node *n, float *const *states)
{
    const size_t bytes = model_state_bytes(p->model);

    if (n->copy == NO_COPY) {
        n->copy = take_copy(p);
    }
    for (int i = 0; n->copy != NO_COPY && i < model_shape(p->model)->n_state; i++) {
        memcpy(copy_at(p, n->copy) + (size_t)i * bytes, states[i], bytes);
    }
}

/* n NULL: nothing has been computed. */
static void load_states(const struct prefix *p, const struct prefix_node *n, float *const *states)
{
    const size_t bytes = model_state_bytes(p->model);

    for (int i = 0; i < model_shape(p->model)->n_state; i++) {
        if (n) {
            memcpy(states[i], copy_at(p, n->copy) + (size_t)i * bytes, bytes);
        } else {
            memset(states[i], 0, bytes);
        }
    }
}

size_t prefix_copy_bytes(const struct prefix *p)
{
    return (size_t)(p->n_copies - p->n_free) * p->state_bytes;
}

/* ---- nodes ---------------------------------------------------------------------------- */

/* Takes a node without children out of the tree. */
static void drop_node(struct prefix *p, struct prefix_node *n)
{
    struct prefix_node **at = &n->parent->child;

    assert(!n->child && n->n_marks == 0);
    while (*at != n) {
        at = &(*at)->sibling;
    }
    *at = n->sibling;
    unlink_node(p, n);
    drop_copy(p, n);
    kv_page_unref(p->pool, n->page);
    n->sibling = p->spare;
    p->spare = n;
}

/* Drops the node used least recently that nothing hangs on. */
static bool drop_oldest(struct prefix *p)
{
    for (struct prefix_node *n = p->oldest; n; n = n->newer) {
        if (!n->child && n->n_marks == 0) {
            drop_node(p, n);
            return true;
        }
    }
    return false;
}

/* Gives back the window's groups of the node used least recently that has them; the text can
 * then not be taken up there any more, which is better than no room for one that runs. */
static bool strip_oldest(struct prefix *p)
{
    for (struct prefix_node *n = p->oldest; n; n = n->newer) {
        if (n->page.group[KV_WINDOW] != KV_NONE) {
            struct kv_page window = n->page;
            window.group[KV_FULL] = KV_NONE;
            n->page.group[KV_WINDOW] = KV_NONE;
            kv_page_unref(p->pool, window);
            return true;
        }
    }
    return false;
}

bool prefix_evict(struct prefix *p)
{
    return drop_oldest(p) || strip_oldest(p);
}

static struct prefix_node *take_node(struct prefix *p)
{
    if (!p->spare && p->n_fresh == p->n_nodes) {
        drop_oldest(p);
    }
    struct prefix_node *n = p->spare;
    if (n) {
        p->spare = n->sibling;
    } else if (p->n_fresh < p->n_nodes) {
        n = &p->nodes[p->n_fresh++];
    }
    return n;
}

/* Tokens that a node and ids[0..n) have in common at their beginning. */
static int common(const struct prefix_node *node, const int32_t *ids, int n)
{
    const int max = min_int(node->n_tok, n);
    int i = 0;

    while (i < max && node->tok[i] == ids[i]) {
        i++;
    }
    return i;
}

/* The child that has most tokens of ids[0..n), and how many; NULL where none has the first. */
static struct prefix_node *best_child(const struct prefix_node *parent, const int32_t *ids, int n,
                                      int *n_common)
{
    struct prefix_node *best = NULL;

    *n_common = 0;
    for (struct prefix_node *c = parent->child; c; c = c->sibling) {
        const int same = common(c, ids, n);
        if (same > *n_common) {
            best = c;
            *n_common = same;
        }
    }
    return best;
}

static void set_mark(struct prefix_mark *mark, struct prefix_node *n)
{
    if (mark->node) {
        mark->node->n_marks--;
    }
    mark->node = n;
    if (n) {
        n->n_marks++;
    }
}

void prefix_release(struct prefix *p, struct prefix_mark *mark)
{
    (void)p;
    set_mark(mark, NULL);
}

/* ---- taking ----------------------------------------------------------------------------- */

/* The deepest node at or above n, which ends at position *pos, that has a copy of the states and
 * where sliding layers have what they see; NULL and 0 for none. */
static struct prefix_node *last_copy(struct prefix *p, const struct kv_seq *s,
                                     struct prefix_node *n, int *pos)
{
    while (n != &p->root && (n->copy == NO_COPY || kv_seq_resume(s, *pos) < *pos)) {
        n = n->parent;
        *pos -= KV_PAGE;
    }
    return n != &p->root ? n : NULL;
}

struct prefix_hit prefix_take(struct prefix *p, struct kv_seq *s, float *const *states,
                              const int32_t *ids, int n, struct prefix_mark *mark)
{
    struct prefix_node *at = &p->root, *child;
    struct prefix_hit hit = { 0, 0 };
    int n_found = 0, same;

    assert(!mark->node);
    while (n_found < n && n_found % KV_PAGE == 0 &&
           (child = best_child(at, ids + n_found, n - n_found, &same))) {
        kv_seq_map(s, n_found / KV_PAGE, child->page);
        at = child;
        n_found += same;
    }
    touch(p, at);
    if (n_found % KV_PAGE != 0) {
        at = at->parent;
    }
    hit.known = n_found / KV_PAGE * KV_PAGE;
    if (p->state_bytes > 0) {
        hit.resume = hit.known;
        load_states(p, last_copy(p, s, at, &hit.resume), states);
    } else {
        hit.resume = kv_seq_resume(s, n_found);
    }
    kv_seq_drop(s, hit.resume);
    set_mark(mark, at != &p->root ? at : NULL);
    return hit;
}

/* ---- keeping ---------------------------------------------------------------------------- */

/* A node for ids[0..n) and page j of s below `parent`; NULL where there is no room. */
static struct prefix_node *add_node(struct prefix *p, struct prefix_node *parent,
                                    const struct kv_seq *s, int j, const int32_t *ids, int n)
{
    parent->n_marks++;  /* it must not be dropped for its child */
    struct prefix_node *node = take_node(p);
    parent->n_marks--;

    if (!node) {
        return NULL;
    }
    *node = (struct prefix_node){
        .parent = parent, .sibling = parent->child, .page = kv_seq_page(s, j), .copy = NO_COPY,
        .n_tok = n,
    };
    memcpy(node->tok, ids, (size_t)n * sizeof *ids);
    parent->child = node;
    kv_page_ref(p->pool, node->page);
    put_in_front(p, node);
    return node;
}

/* A node that has the beginning of what s has on page j, or all of it, and s agree on one page:
 * that of who has more. */
static void share_page(struct prefix *p, struct prefix_node *node, struct kv_seq *s, int j,
                       const int32_t *ids, int n)
{
    const struct kv_page page = kv_seq_page(s, j);
    const bool more = n > node->n_tok ||
                      (page.group[KV_WINDOW] != KV_NONE && node->page.group[KV_WINDOW] == KV_NONE);

    if (more && n >= node->n_tok) {
        kv_page_ref(p->pool, page);
        kv_page_unref(p->pool, node->page);
        node->page = page;
        node->n_tok = n;
        memcpy(node->tok, ids, (size_t)n * sizeof *ids);
    } else if (n == node->n_tok && page.group[KV_FULL] != node->page.group[KV_FULL]) {
        struct kv_page shared = node->page;
        if (page.group[KV_WINDOW] == KV_NONE) {
            shared.group[KV_WINDOW] = KV_NONE;
        }
        kv_seq_map(s, j, shared);
    }
}

void prefix_keep(struct prefix *p, struct kv_seq *s, const int32_t *ids, int n,
                 float *const *states, struct prefix_mark *mark)
{
    struct prefix_node *at = &p->root, *whole = NULL;
    int pos = 0;

    for (; pos < n; pos += KV_PAGE) {
        const int n_page = min_int(KV_PAGE, n - pos);
        int same;
        struct prefix_node *child = best_child(at, ids + pos, n_page, &same);
        if (child && same == min_int(n_page, child->n_tok)) {
            share_page(p, child, s, pos / KV_PAGE, ids + pos, n_page);
        } else {
            child = add_node(p, at, s, pos / KV_PAGE, ids + pos, n_page);
        }
        if (!child) {
            break;
        }
        at = child;
        whole = n_page == KV_PAGE ? at : whole;
    }
    touch(p, at);
    if (states && whole && pos == n) {
        save_states(p, whole, states);
    }
    set_mark(mark, whole);
}

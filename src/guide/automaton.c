/* automaton.c - states as sets of stacks, made on demand.
 *
 * A frame is an expression of which `at` has been read, and the frame that goes on when
 * it is done; equal frames are one frame.  The stack of a frame is the way to the bottom
 * frame, number 0, whose turn it is when everything is read.  A state lists, in
 * ascending order, the frames that wait for a byte, which are literals and sets. */
#include "guide/automaton.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

/* Stacks in one state.  Choices among thousands of texts are fine; grammars that can be
 * read in exponentially many ways end here. */
enum { STACKS_MAX = 20000 };

struct frame {
    gram_expr e;
    uint32_t at;      /* LIT: bytes, SEQ: members, REPEAT: rounds that were read */
    int32_t up;
    int32_t next;     /* in its slot of the hash table */
    uint32_t dist;    /* bytes that are needed to reach the bottom */
    uint32_t visit;   /* number of the closure that saw it last */
    uint32_t rounds;  /* fewest rounds of a REPEAT above the same frame in that closure */
};

/* Rounds of a REPEAT that are not counted, being out of reach of its bounds: too few to end it,
 * and enough.  No answer is long enough for these to be counts. */
#define ROUNDS_LOW  (GRAM_INF - 2)
#define ROUNDS_HIGH (GRAM_INF - 1)

struct state {
    uint32_t at, n;   /* frames */
    int32_t next;     /* in its slot of the hash table */
    uint32_t dist;
    bool accepts;
    int32_t alias;    /* see automaton_alias; 0: not computed */
    uint32_t reach;   /* that the alias is for */
    void *data;
};

struct automaton {
    const struct grammar *g;
    gram_expr root;
    size_t memory_max, memory;
    uint32_t generation, visit;
    struct frame *frame;
    uint32_t n_frames, frames_cap;
    int32_t *frame_slot;            /* [slots], first frame, -1: none */
    struct state *state;
    uint32_t n_states, states_cap;
    int32_t *state_slot;
    int32_t *stack;                 /* frames of all states */
    uint32_t n_stacks, stacks_cap;
    int32_t *next;                  /* [next_cap][n_classes] */
    uint32_t next_cap;
    int32_t start;                  /* 0: not made */
    unsigned char class_of[256];
    struct automaton_table table;
    int32_t *todo, *found;          /* of a closure; [STACKS_MAX] each */
    uint32_t n_todo, n_found;
    bool accepts, overflow, no_memory;
    uint32_t work;                  /* frames looked at since the last trim */
};

enum {
    SLOTS = 1 << 14,      /* of each hash table */
    CAP_MIN = 256,        /* elements of an array that has any */
    WORK_MAX = 50000000,  /* frames looked at between two trims: about a second */
};

/* ---- classes of bytes --------------------------------------------------------------- */

/* Splits classes until bytes of one class are in the same sets and stand for nothing
 * else in literals. */
static void make_classes(struct automaton *a)
{
    const struct grammar *g = a->g;
    uint32_t n = 1;

    memset(a->class_of, 0, sizeof a->class_of);
    for (uint32_t i = 0; i < g->n_sets; i++) {
        int split[256];
        int inside[256] = {0}, outside[256] = {0};
        for (int b = 0; b < 256; b++) {
            const bool in = g->set[i].bits[b / 64] >> b % 64 & 1;
            (in ? inside : outside)[a->class_of[b]] = 1;
        }
        const uint32_t before = n;
        for (uint32_t c = 0; c < before; c++) {
            split[c] = inside[c] && outside[c] ? (int)n++ : -1;
        }
        for (int b = 0; b < 256; b++) {
            const bool in = g->set[i].bits[b / 64] >> b % 64 & 1;
            if (in && split[a->class_of[b]] >= 0) {
                a->class_of[b] = (unsigned char)split[a->class_of[b]];
            }
        }
    }
    int count[256] = {0};
    bool alone[256] = {false};
    for (int b = 0; b < 256; b++) {
        count[a->class_of[b]]++;
    }
    for (uint32_t e = 0; e < g->n_nodes; e++) {
        const struct gram_node *node = &g->node[e];
        for (uint32_t i = 0; node->op == GRAM_LIT && i < node->n; i++) {
            const unsigned char b = (unsigned char)g->bytes.data[node->at + i];
            if (!alone[b] && count[a->class_of[b]] > 1) {
                count[a->class_of[b]]--;
                a->class_of[b] = (unsigned char)n++;
                count[a->class_of[b]] = 1;
            }
            alone[b] = true;
        }
    }
    a->table.class_of = a->class_of;
    a->table.n_classes = n;
}

/* ---- memory ------------------------------------------------------------------------- */

static bool room(struct automaton *a, void *array, uint32_t *cap, uint32_t n, uint32_t more,
                 size_t size)
{
    void **p = array;

    if (n + more <= *cap) {
        return true;
    }
    uint32_t want = *cap ? *cap * 2 : CAP_MIN;
    want = want < n + more ? n + more : want;
    if (a->memory + (size_t)(want - *cap) * size > a->memory_max) {
        a->overflow = true;
        return false;
    }
    void *bigger = mem_realloc(*p, want, size);
    if (!bigger) {
        a->no_memory = true;
        return false;
    }
    a->memory += (size_t)(want - *cap) * size;
    *p = bigger;
    *cap = want;
    return true;
}

static bool fail_why(const struct automaton *a, slm_error *err)
{
    if (a->no_memory) {
        return slm_fail_nomem(err, "the states of a guide");
    }
    return slm_fail(err, SLM_E_UNSUPPORTED,
                    "the guide can be read in too many ways at once (limits: %d ways, %zu MiB of "
                    "states); make it simpler", STACKS_MAX, a->memory_max >> 20);
}

/* ---- frames ------------------------------------------------------------------------- */

static uint32_t add_sat(uint32_t a, uint32_t b)
{
    return a > GRAM_INF - 1 - b ? GRAM_INF - 1 : a + b;
}

static uint32_t frame_dist(const struct automaton *a, gram_expr e, uint32_t at, int32_t up)
{
    const struct gram_node *n = &a->g->node[e];
    uint32_t dist = a->frame[up].dist;

    if (n->op == GRAM_SEQ && at > 0) {
        for (uint32_t i = at; i < n->n; i++) {
            dist = add_sat(dist, a->g->node[a->g->member[n->at + i]].dist);
        }
        return dist;
    }
    if (n->op == GRAM_REPEAT) {
        const uint64_t left = at < n->min ? n->min - at : 0;
        const uint64_t sum = left * a->g->node[n->n].dist;
        return add_sat(dist, sum < GRAM_INF - 1 ? (uint32_t)sum : GRAM_INF - 1);
    }
    return add_sat(dist, n->dist - (n->op == GRAM_LIT ? at : 0));
}

/* The frame of these three; -1 on failure, which is remembered. */
static int32_t get_frame(struct automaton *a, gram_expr e, uint32_t at, int32_t up)
{
    const uint32_t key[3] = { (uint32_t)e, at, (uint32_t)up };
    const uint64_t h = hash_bytes(HASH_INIT, key, sizeof key);
    int32_t *slot = &a->frame_slot[(h ^ h >> 32) % SLOTS];

    for (int32_t f = *slot; f >= 0; f = a->frame[f].next) {
        const struct frame *x = &a->frame[f];
        if (x->e == e && x->at == at && x->up == up) {
            return f;
        }
    }
    if (!room(a, &a->frame, &a->frames_cap, a->n_frames, 1, sizeof *a->frame)) {
        return -1;
    }
    const int32_t f = (int32_t)a->n_frames++;
    a->frame[f] = (struct frame){ .e = e, .at = at, .up = up, .next = *slot,
                                  .dist = frame_dist(a, e, at, up) };
    *slot = f;
    return f;
}

/* ---- closure: from frames to the frames that wait for a byte --------------------------- */

/* Puts a frame on the list of those to look at, once in a closure. */
static void visit(struct automaton *a, int32_t f)
{
    if (f < 0 || a->frame[f].visit == a->visit) {
        return;
    }
    a->frame[f].visit = a->visit;
    if (a->n_todo == STACKS_MAX) {
        a->overflow = true;
        return;
    }
    a->todo[a->n_todo++] = f;
}

/* Goes into an expression that has a text at all. */
static void enter(struct automaton *a, gram_expr e, int32_t up)
{
    if (a->g->node[e].dist < GRAM_INF) {
        visit(a, get_frame(a, e, 0, up));
    }
}

static void expand_repeat(struct automaton *a, const struct frame *f, const struct gram_node *n)
{
    if (!n->plain && n->max != GRAM_INF) {
        /* Rounds that read nothing bring the same repetition back with fewer rounds left, which
         * allows nothing new. */
        const int32_t key = get_frame(a, f->e, GRAM_INF, f->up);
        if (key < 0) {
            return;
        }
        struct frame *k = &a->frame[key];
        if (k->visit == a->visit && k->rounds <= f->at) {
            return;
        }
        k->visit = a->visit;
        k->rounds = f->at;
    }
    const bool free = f->at == ROUNDS_LOW || f->at == ROUNDS_HIGH;
    if (f->at >= n->min && f->at != ROUNDS_LOW) {
        visit(a, f->up);
    }
    if (!free && f->at + 1 == n->max) {
        enter(a, (gram_expr)n->n, f->up);
    } else if (free || f->at < n->max) {
        /* Without an upper bound only the way to the lower one counts. */
        const bool counted = !free && (n->max != GRAM_INF || f->at < n->min);
        const uint32_t at = f->at + counted;
        const int32_t up = get_frame(a, f->e, at, f->up);
        if (up >= 0) {
            enter(a, (gram_expr)n->n, up);
        }
    }
}

static void expand(struct automaton *a, int32_t id)
{
    const struct frame f = a->frame[id];
    const struct gram_node *n = &a->g->node[f.e];

    a->overflow |= ++a->work > WORK_MAX;
    if (id == 0) {
        a->accepts = true;
        return;
    }
    switch (n->op) {
    case GRAM_LIT:
    case GRAM_SET:
        if (a->n_found == STACKS_MAX) {
            a->overflow = true;
            return;
        }
        a->found[a->n_found++] = id;
        break;
    case GRAM_EMPTY:
        visit(a, f.up);
        break;
    case GRAM_SEQ: {
        const gram_expr e = a->g->member[n->at + f.at];
        const int32_t up = f.at + 1 < n->n ? get_frame(a, f.e, f.at + 1, f.up) : f.up;
        if (up >= 0) {
            enter(a, e, up);
        }
        break;
    }
    case GRAM_ALT:
        for (uint32_t i = 0; i < n->n; i++) {
            enter(a, a->g->member[n->at + i], f.up);
        }
        break;
    case GRAM_REPEAT:
        expand_repeat(a, &f, n);
        break;
    case GRAM_RULE:
        enter(a, (gram_expr)n->n, f.up);
        break;
    default:
        break;
    }
}

static void closure_begin(struct automaton *a)
{
    a->visit++;
    a->n_todo = a->n_found = 0;
    a->accepts = false;
}

static void closure_run(struct automaton *a)
{
    while (a->n_todo > 0 && !a->overflow && !a->no_memory) {
        expand(a, a->todo[--a->n_todo]);
    }
}

/* ---- states ------------------------------------------------------------------------- */

static int by_number(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Makes room for a state with its row of unknown next states. */
static bool room_for_state(struct automaton *a)
{
    const size_t row = a->table.n_classes * sizeof *a->next;
    const bool ok = room(a, &a->next, &a->next_cap, a->n_states, 1, row) &&
                    room(a, &a->state, &a->states_cap, a->n_states, 1, sizeof *a->state);

    a->table.next = a->next;
    return ok;
}

/* The state of what the closure found; -1 on failure. */
static int32_t get_state(struct automaton *a, slm_error *err)
{
    if (a->overflow || a->no_memory) {
        goto fail;
    }
    if (a->n_found == 0 && !a->accepts) {
        return STATE_DEAD;
    }
    qsort(a->found, a->n_found, sizeof *a->found, by_number);
    uint64_t h = hash_bytes(HASH_INIT, a->found, a->n_found * sizeof *a->found);
    h = hash_bytes(h, &a->accepts, sizeof a->accepts);
    int32_t *slot = &a->state_slot[(h ^ h >> 32) % SLOTS];

    for (int32_t s = *slot; s >= 0; s = a->state[s].next) {
        const struct state *x = &a->state[s];
        if (x->n == a->n_found && x->accepts == a->accepts &&
            memcmp(a->stack + x->at, a->found, x->n * sizeof *a->found) == 0) {
            return s;
        }
    }
    if (!room_for_state(a) ||
        !room(a, &a->stack, &a->stacks_cap, a->n_stacks, a->n_found, sizeof *a->stack)) {
        goto fail;
    }
    const int32_t s = (int32_t)a->n_states++;
    uint32_t dist = a->accepts ? 0 : GRAM_INF;
    for (uint32_t i = 0; i < a->n_found; i++) {
        const uint32_t d = a->frame[a->found[i]].dist;
        dist = d < dist ? d : dist;
    }
    a->state[s] = (struct state){ .at = a->n_stacks, .n = a->n_found, .next = *slot,
                                  .dist = dist, .accepts = a->accepts };
    *slot = s;
    if (a->n_found > 0) {
        memcpy(a->stack + a->n_stacks, a->found, a->n_found * sizeof *a->found);
    }
    a->n_stacks += a->n_found;
    for (uint32_t c = 0; c < a->table.n_classes; c++) {
        a->next[(size_t)s * a->table.n_classes + c] = s == STATE_DEAD ? STATE_DEAD : STATE_UNKNOWN;
    }
    return s;

fail:
    fail_why(a, err);
    a->overflow = a->no_memory = false;
    return -1;
}

/* Reads one byte on top of a frame that waits for one. */
static void read_byte(struct automaton *a, int32_t id, unsigned char byte)
{
    const struct frame f = a->frame[id];
    const struct gram_node *n = &a->g->node[f.e];

    if (n->op == GRAM_SET) {
        if (a->g->set[n->at].bits[byte / 64] >> byte % 64 & 1) {
            visit(a, f.up);
        }
    } else if ((unsigned char)a->g->bytes.data[n->at + f.at] == byte) {
        visit(a, f.at + 1 < n->n ? get_frame(a, f.e, f.at + 1, f.up) : f.up);
    }
}

int32_t automaton_step_slow(struct automaton *a, int32_t state, unsigned char byte,
                            slm_error *err)
{
    closure_begin(a);
    a->work += a->state[state].n;
    for (uint32_t i = 0; i < a->state[state].n; i++) {
        read_byte(a, a->stack[a->state[state].at + i], byte);
        closure_run(a);
    }
    const int32_t next = get_state(a, err);
    if (next >= 0) {
        a->next[(size_t)state * a->table.n_classes + a->class_of[byte]] = next;
    }
    return next;
}

int32_t automaton_start(struct automaton *a, slm_error *err)
{
    if (a->start == 0) {
        closure_begin(a);
        enter(a, a->root, 0);
        closure_run(a);
        const int32_t start = get_state(a, err);
        if (start < 0) {
            return -1;
        }
        a->start = start;
    }
    return a->start;
}

bool automaton_accepts(const struct automaton *a, int32_t state)
{
    return a->state[state].accepts;
}

uint32_t automaton_dist(const struct automaton *a, int32_t state)
{
    return a->state[state].dist;
}

void *automaton_data(const struct automaton *a, int32_t state)
{
    return a->state[state].data;
}

void automaton_set_data(struct automaton *a, int32_t state, void *data, size_t bytes)
{
    a->state[state].data = data;
    a->memory += bytes;
}

const struct automaton_table *automaton_table(const struct automaton *a)
{
    return &a->table;
}

/* ---- aliases ------------------------------------------------------------------------- */

/* Rounds of a repetition, uncounted where the next `reach` bytes, hence at most as many rounds,
 * end neither at the lower bound nor at the upper one. */
static uint32_t alias_rounds(const struct gram_node *n, uint32_t at, uint32_t reach)
{
    if (!n->plain || at >= ROUNDS_LOW) {
        return at;
    }
    if (at < n->min) {
        return n->min - at > reach ? ROUNDS_LOW : at;
    }
    return n->max != GRAM_INF && n->max - at > reach ? ROUNDS_HIGH : at;
}

/* The same stack with aliases of its repetitions, by recursion over at most DEPTH frames; what is
 * deeper stays as it is. */
static int32_t alias_frame(struct automaton *a, int32_t id, uint32_t reach, int depth)
{
    enum { DEPTH = 200 };

    if (id <= 0 || depth == DEPTH) {
        return id;
    }
    const struct frame f = a->frame[id];
    const struct gram_node *n = &a->g->node[f.e];
    const uint32_t at = n->op == GRAM_REPEAT ? alias_rounds(n, f.at, reach) : f.at;
    const int32_t up = alias_frame(a, f.up, reach, depth + 1);

    return up < 0 ? -1 : up == f.up && at == f.at ? id : get_frame(a, f.e, at, up);
}

int32_t automaton_alias(struct automaton *a, int32_t state, uint32_t reach, slm_error *err)
{
    struct state *s = &a->state[state];

    if (s->alias != 0 && s->reach == reach) {
        return s->alias;
    }
    closure_begin(a);
    a->accepts = s->accepts;
    for (uint32_t i = 0; i < s->n; i++) {
        const int32_t f = alias_frame(a, a->stack[s->at + i], reach, 0);
        if (f < 0) {
            break;  /* remembered, get_state fails */
        }
        if (a->frame[f].visit != a->visit) {
            a->frame[f].visit = a->visit;
            a->found[a->n_found++] = f;
        }
    }
    const int32_t alias = get_state(a, err);
    if (alias >= 0) {
        a->state[state].alias = alias;
        a->state[state].reach = reach;
    }
    return alias;
}

/* ---- lifetime ------------------------------------------------------------------------ */

/* Frame 0 is the bottom and state 0 the dead one. */
static bool begin(struct automaton *a, slm_error *err)
{
    memset(a->frame_slot, -1, SLOTS * sizeof *a->frame_slot);
    memset(a->state_slot, -1, SLOTS * sizeof *a->state_slot);
    a->start = 0;
    a->visit = 0;
    if (!room(a, &a->frame, &a->frames_cap, 0, 1, sizeof *a->frame) || !room_for_state(a)) {
        return fail_why(a, err);
    }
    a->frame[0] = (struct frame){ .e = GRAM_NOTHING, .up = -1, .next = -1 };
    a->n_frames = 1;
    a->state[0] = (struct state){ .next = -1, .dist = GRAM_INF };
    a->n_states = 1;
    memset(a->next, 0, a->table.n_classes * sizeof *a->next);
    return true;
}

struct automaton *automaton_new(const struct grammar *g, gram_expr root, size_t memory_max,
                                slm_error *err)
{
    struct automaton *a = mem_zalloc(1, sizeof *a);

    if (!a) {
        slm_fail_nomem(err, "a guide");
        return NULL;
    }
    a->g = g;
    a->root = root;
    a->memory_max = memory_max;
    a->generation = 1;
    a->frame_slot = mem_alloc(SLOTS, sizeof *a->frame_slot);
    a->state_slot = mem_alloc(SLOTS, sizeof *a->state_slot);
    a->todo = mem_alloc(STACKS_MAX, sizeof *a->todo);
    a->found = mem_alloc(STACKS_MAX, sizeof *a->found);
    if (!a->frame_slot || !a->state_slot || !a->todo || !a->found) {
        slm_fail_nomem(err, "a guide");
        automaton_free(a);
        return NULL;
    }
    make_classes(a);
    if (!begin(a, err)) {
        automaton_free(a);
        return NULL;
    }
    return a;
}

static void free_data(struct automaton *a)
{
    for (uint32_t i = 0; i < a->n_states; i++) {
        mem_free(a->state[i].data);
    }
    a->n_states = 0;
}

void automaton_free(struct automaton *a)
{
    if (!a) {
        return;
    }
    free_data(a);
    mem_free(a->frame);
    mem_free(a->frame_slot);
    mem_free(a->state);
    mem_free(a->state_slot);
    mem_free(a->stack);
    mem_free(a->next);
    mem_free(a->todo);
    mem_free(a->found);
    mem_free(a);
}

/* Makes an array as small as it was at first.  Where that fails it stays as it is. */
static void shrink(struct automaton *a, void *array, uint32_t *cap, size_t size)
{
    void **p = array;
    void *smaller = *cap > CAP_MIN ? mem_realloc(*p, CAP_MIN, size) : NULL;

    if (smaller) {
        *p = smaller;
        *cap = CAP_MIN;
    }
    a->memory += *cap * size;
}

void automaton_trim(struct automaton *a, size_t memory)
{
    a->work = 0;
    if (a->memory <= memory) {
        return;
    }
    free_data(a);
    a->memory = 0;
    a->n_stacks = 0;
    shrink(a, &a->frame, &a->frames_cap, sizeof *a->frame);
    shrink(a, &a->stack, &a->stacks_cap, sizeof *a->stack);
    shrink(a, &a->next, &a->next_cap, a->table.n_classes * sizeof *a->next);
    shrink(a, &a->state, &a->states_cap, sizeof *a->state);
    a->table.next = a->next;
    a->generation++;
    begin(a, NULL);  /* there is room */
}

/* The frames of a state with all below them, in ascending order of their numbers, which has lower
 * frames first.  NULL without memory. */
static int32_t *stacks_of(struct automaton *a, int32_t state, struct frame **frames, uint32_t *n)
{
    const struct state *s = &a->state[state];
    uint32_t count = 0;

    a->visit++;
    for (uint32_t i = 0; i < s->n; i++) {
        for (int32_t f = a->stack[s->at + i]; f > 0 && a->frame[f].visit != a->visit;
             f = a->frame[f].up) {
            a->frame[f].visit = a->visit;
            count++;
        }
    }
    int32_t *number = mem_alloc(count, sizeof *number);
    *frames = mem_alloc(count, sizeof **frames);
    *n = 0;
    for (uint32_t f = 1; number && *frames && f < a->n_frames; f++) {
        if (a->frame[f].visit == a->visit) {
            (*frames)[*n] = a->frame[f];
            number[(*n)++] = (int32_t)f;
        }
    }
    if (!*frames) {
        mem_free(number);
        number = NULL;
    }
    return number;
}

/* Where `number` is in ascending numbers; it is there. */
static uint32_t place_of(const int32_t *numbers, uint32_t n, int32_t number)
{
    uint32_t lo = 0, hi = n;

    while (hi - lo > 1) {
        const uint32_t mid = lo + (hi - lo) / 2;
        if (numbers[mid] <= number) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    return lo;
}

bool automaton_trim_to(struct automaton *a, size_t memory, int32_t *state)
{
    struct frame *frames = NULL;
    uint32_t n_frames = 0;

    a->work = 0;
    if (a->memory <= memory) {
        return false;
    }
    /* What the state has, under the old numbers. */
    const struct state old = a->state[*state];
    int32_t *numbers = stacks_of(a, *state, &frames, &n_frames);
    int32_t *tops = numbers ? mem_alloc(old.n, sizeof *tops) : NULL;
    if (tops && old.n > 0) {
        memcpy(tops, a->stack + old.at, old.n * sizeof *tops);
    }
    automaton_trim(a, memory);
    /* The same under new ones: first the frames, lower ones first, then the state. */
    int32_t *renamed = tops ? mem_alloc(n_frames, sizeof *renamed) : NULL;
    bool ok = renamed != NULL;
    for (uint32_t i = 0; ok && i < n_frames; i++) {
        const int32_t up = frames[i].up > 0 ? renamed[place_of(numbers, n_frames, frames[i].up)]
                                            : frames[i].up;
        renamed[i] = get_frame(a, frames[i].e, frames[i].at, up);
        ok = renamed[i] >= 0;
    }
    closure_begin(a);
    a->accepts = old.accepts;
    for (uint32_t i = 0; ok && i < old.n; i++) {
        a->found[a->n_found++] = renamed[place_of(numbers, n_frames, tops[i])];
    }
    *state = ok ? get_state(a, NULL) : -1;
    a->overflow = a->no_memory = false;
    mem_free(frames);
    mem_free(numbers);
    mem_free(tops);
    mem_free(renamed);
    return true;
}

uint32_t automaton_generation(const struct automaton *a)
{
    return a->generation;
}

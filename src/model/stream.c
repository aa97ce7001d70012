/* stream.c - the window of a stream and the threads that fill it.
 *
 * One lock guards everything but the bytes in the slots: those belong to a reader thread while
 * the slot is SLOT_READING, and to the user of the stream while it is SLOT_USED.  A slot that was
 * guessed or announced wrongly is given up; where a reader is at work on it, that happens when
 * the read ends. */
#include "model/stream.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

/* Two, so that the device has a request while a thread hands over what it has read. */
enum { READERS = 2 };

enum slot_state { SLOT_FREE, SLOT_PLANNED, SLOT_READING, SLOT_READY, SLOT_USED };

struct slot {
    enum slot_state state;
    int piece;
    bool announced;       /* or asked for; those come before what is guessed */
    bool given_up;        /* while SLOT_READING */
    uint64_t turn;        /* order in which slots were planned */
    uint8_t *room;
    const uint8_t *data;  /* NULL once SLOT_READY: *err says why */
    slm_error err;
};

struct stream {
    struct stream_piece *pieces;
    int *next;            /* piece after each one, -1: unknown or none */
    int n_pieces;
    struct slot *slots;
    int n_slots;
    int guess_max;        /* slots that guesses may take */
    struct slot *used;    /* what stream_get gave out */
    int last;             /* piece guessable and used last, -1: none */
    int guessed;          /* last piece of the guesses, -1: none */
    int first;            /* where guessing starts */
    uint64_t turn;
    int *announced;       /* queue of announced pieces without a slot: a ring of n_pieces */
    int announced_at, n_announced;

    uint8_t *window;
    size_t window_bytes;
    uint64_t bytes_read;

    pthread_mutex_t lock;
    pthread_cond_t planned;  /* for the reader threads */
    pthread_cond_t ready;    /* for the user */
    pthread_t threads[READERS];
    int n_threads;
    bool stop;
};

/* ---- planning; all of it under the lock ----------------------------------------------- */

static struct slot *find_slot(struct stream *s, int piece)
{
    for (int i = 0; i < s->n_slots; i++) {
        if (s->slots[i].state != SLOT_FREE && s->slots[i].state != SLOT_USED &&
            s->slots[i].piece == piece) {
            return &s->slots[i];
        }
    }
    return NULL;
}

static struct slot *free_slot(struct stream *s)
{
    for (int i = 0; i < s->n_slots; i++) {
        if (s->slots[i].state == SLOT_FREE) {
            return &s->slots[i];
        }
    }
    return NULL;
}

static void plan(struct stream *s, struct slot *slot, int piece, bool announced)
{
    slot->state = SLOT_PLANNED;
    slot->piece = piece;
    slot->announced = announced;
    slot->given_up = false;
    slot->turn = s->turn++;
    pthread_cond_signal(&s->planned);
}

static void give_up(struct slot *slot)
{
    if (slot->state == SLOT_READING) {
        slot->given_up = true;
    } else if (slot->state != SLOT_USED) {
        slot->state = SLOT_FREE;
    }
}

/* Gives up guesses, or announced pieces, that were planned before `turn`. */
static void give_up_before(struct stream *s, bool announced, uint64_t turn)
{
    for (int i = 0; i < s->n_slots; i++) {
        if (s->slots[i].announced == announced && s->slots[i].turn < turn) {
            give_up(&s->slots[i]);
        }
    }
}

static int n_guesses(const struct stream *s)
{
    int n = 0;

    for (int i = 0; i < s->n_slots; i++) {
        const struct slot *slot = &s->slots[i];
        n += !slot->announced && !slot->given_up && slot->state != SLOT_FREE &&
             slot->state != SLOT_USED;
    }
    return n;
}

/* Puts what comes next into free slots. */
static void plan_ahead(struct stream *s)
{
    struct slot *slot;

    while (s->n_announced > 0 && (slot = free_slot(s))) {
        plan(s, slot, s->announced[s->announced_at], true);
        s->announced_at = (s->announced_at + 1) % s->n_pieces;
        s->n_announced--;
    }
    while (n_guesses(s) < s->guess_max && (slot = free_slot(s))) {
        const int piece = s->guessed < 0 ? s->first : s->next[s->guessed];
        if (piece < 0 || find_slot(s, piece)) {
            return;  /* the end is not known to go on, or the window holds the whole round */
        }
        plan(s, slot, piece, false);
        s->guessed = piece;
    }
}

/* ---- reader threads ---------------------------------------------------------------------- */

/* The planned slot whose piece is needed first. */
static struct slot *next_planned(struct stream *s)
{
    struct slot *best = NULL;

    for (int i = 0; i < s->n_slots; i++) {
        struct slot *slot = &s->slots[i];
        if (slot->state == SLOT_PLANNED &&
            (!best || slot->announced > best->announced ||
             (slot->announced == best->announced && slot->turn < best->turn))) {
            best = slot;
        }
    }
    return best;
}

static void *read_ahead(void *arg)
{
    struct stream *s = arg;

    pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        struct slot *slot = next_planned(s);
        if (!slot) {
            pthread_cond_wait(&s->planned, &s->lock);
            continue;
        }
        const struct stream_piece *p = &s->pieces[slot->piece];
        slot->state = SLOT_READING;
        pthread_mutex_unlock(&s->lock);
        const uint8_t *data = reader_read(p->reader, p->offset, p->bytes, slot->room, &slot->err);
        pthread_mutex_lock(&s->lock);
        slot->data = data;
        slot->state = slot->given_up ? SLOT_FREE : SLOT_READY;
        s->bytes_read += p->bytes;
        if (slot->given_up) {
            plan_ahead(s);
        }
        pthread_cond_broadcast(&s->ready);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Threads that take no signals: those are for the program's own. */
static bool start_threads(struct stream *s)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (s->n_threads < READERS &&
           pthread_create(&s->threads[s->n_threads], NULL, read_ahead, s) == 0) {
        s->n_threads++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return s->n_threads > 0;
}

/* ---- the user's side ------------------------------------------------------------------------ */

size_t stream_window_bytes(size_t piece_bytes, int n_slots)
{
    return reader_room(piece_bytes) * (size_t)n_slots;
}

static size_t largest_piece(const struct stream_piece *pieces, int n)
{
    size_t most = 0;

    for (int i = 0; i < n; i++) {
        most = pieces[i].bytes > most ? pieces[i].bytes : most;
    }
    return most;
}

struct stream *stream_new(const struct stream_piece *pieces, int n, int n_slots, slm_error *err)
{
    assert(n >= 1 && n_slots >= 2);
    struct stream *s = mem_zalloc(1, sizeof *s);

    if (!s) {
        slm_fail_nomem(err, "the window of streamed weights");
        return NULL;
    }
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->planned, NULL);
    pthread_cond_init(&s->ready, NULL);
    s->n_pieces = n;
    s->n_slots = n_slots;
    s->guess_max = n_slots;
    s->last = s->guessed = s->first = -1;
    s->window_bytes = stream_window_bytes(largest_piece(pieces, n), n_slots);
    s->pieces = mem_alloc((size_t)n, sizeof *s->pieces);
    s->next = mem_alloc((size_t)n, sizeof *s->next);
    s->announced = mem_alloc((size_t)n, sizeof *s->announced);
    s->slots = mem_zalloc((size_t)n_slots, sizeof *s->slots);
    s->window = mem_pages(s->window_bytes);
    if (!s->pieces || !s->next || !s->announced || !s->slots || !s->window) {
        slm_fail_nomem(err, "the window of streamed weights");
        goto fail;
    }
    memcpy(s->pieces, pieces, (size_t)n * sizeof *pieces);
    for (int i = 0; i < n; i++) {
        s->next[i] = -1;
        if (pieces[i].by_need) {
            s->guess_max = n_slots / 2;  /* announced pieces find room at once */
        }
    }
    for (int i = 0; i < n_slots; i++) {
        s->slots[i].room = s->window + (size_t)i * (s->window_bytes / (size_t)n_slots);
    }
    if (!start_threads(s)) {
        slm_fail(err, SLM_E_NOMEM, "no thread can be started to read weights");
        goto fail;
    }
    return s;

fail:
    stream_free(s);
    return NULL;
}

void stream_free(struct stream *s)
{
    if (!s) {
        return;
    }
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_broadcast(&s->planned);
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < s->n_threads; i++) {
        pthread_join(s->threads[i], NULL);
    }
    pthread_cond_destroy(&s->ready);
    pthread_cond_destroy(&s->planned);
    pthread_mutex_destroy(&s->lock);
    mem_pages_free(s->window, s->window_bytes);
    mem_free(s->slots);
    mem_free(s->announced);
    mem_free(s->next);
    mem_free(s->pieces);
    mem_free(s);
}

void stream_order(struct stream *s, const int *pieces, int n, bool again)
{
    pthread_mutex_lock(&s->lock);
    assert(!s->used);
    give_up_before(s, false, s->turn);
    give_up_before(s, true, s->turn);
    s->n_announced = 0;
    s->last = s->guessed = s->first = -1;
    int end = -1;
    for (int i = 0; i < n; i++) {
        if (s->pieces[pieces[i]].by_need) {
            continue;
        }
        if (end < 0) {
            s->first = pieces[i];
        } else {
            s->next[end] = pieces[i];
        }
        end = pieces[i];
    }
    if (end >= 0) {
        s->next[end] = again ? s->first : -1;
    }
    plan_ahead(s);
    pthread_mutex_unlock(&s->lock);
}

void stream_expect(struct stream *s, int piece)
{
    pthread_mutex_lock(&s->lock);
    if (s->n_announced < s->n_pieces) {
        s->announced[(s->announced_at + s->n_announced++) % s->n_pieces] = piece;
    }
    plan_ahead(s);
    pthread_mutex_unlock(&s->lock);
}

void stream_forget(struct stream *s)
{
    pthread_mutex_lock(&s->lock);
    s->n_announced = 0;
    give_up_before(s, true, s->turn);
    plan_ahead(s);
    pthread_mutex_unlock(&s->lock);
}

/* Takes a piece that is asked for out of the queue of the announced ones. */
static void drop_announced(struct stream *s, int piece)
{
    int kept = 0;

    for (int i = 0; i < s->n_announced; i++) {
        const int other = s->announced[(s->announced_at + i) % s->n_pieces];
        if (other != piece) {
            s->announced[(s->announced_at + kept++) % s->n_pieces] = other;
        }
    }
    s->n_announced = kept;
}

/* A slot for a piece that nobody foresaw.  The guesses were wrong then, unless the piece is one
 * that is not guessed. */
static struct slot *plan_unforeseen(struct stream *s, int piece)
{
    struct slot *slot;

    drop_announced(s, piece);
    if (!s->pieces[piece].by_need || !free_slot(s)) {
        give_up_before(s, false, s->turn);
        s->guessed = s->pieces[piece].by_need ? s->last : piece;
    }
    if (!free_slot(s)) {
        give_up_before(s, true, s->turn);  /* announced, but not used in that order */
    }
    while (!(slot = free_slot(s))) {
        pthread_cond_wait(&s->ready, &s->lock);
    }
    plan(s, slot, piece, true);
    return slot;
}

/* Learns what follows what. */
static void note_use(struct stream *s, int piece)
{
    if (!s->pieces[piece].by_need) {
        if (s->last >= 0) {
            s->next[s->last] = piece;
        }
        s->last = piece;
    }
}

const uint8_t *stream_get(struct stream *s, int piece, slm_error *err)
{
    assert(piece >= 0 && piece < s->n_pieces && !s->used);
    pthread_mutex_lock(&s->lock);
    struct slot *slot = find_slot(s, piece);

    if (!slot) {
        slot = plan_unforeseen(s, piece);
    } else if (!slot->announced) {
        give_up_before(s, false, slot->turn);  /* what was passed over */
    }
    slot->given_up = false;
    slot->announced = true;
    note_use(s, piece);
    plan_ahead(s);
    while (slot->state != SLOT_READY) {
        pthread_cond_wait(&s->ready, &s->lock);
    }
    const uint8_t *data = slot->data;
    if (data) {
        slot->state = SLOT_USED;
        s->used = slot;
    } else {
        slot->state = SLOT_FREE;
        if (err) {
            *err = slot->err;
        }
    }
    pthread_mutex_unlock(&s->lock);
    return data;
}

void stream_release(struct stream *s)
{
    pthread_mutex_lock(&s->lock);
    assert(s->used);
    s->used->state = SLOT_FREE;
    s->used = NULL;
    plan_ahead(s);
    pthread_mutex_unlock(&s->lock);
}

uint64_t stream_bytes_read(struct stream *s)
{
    pthread_mutex_lock(&s->lock);
    const uint64_t n = s->bytes_read;
    pthread_mutex_unlock(&s->lock);
    return n;
}

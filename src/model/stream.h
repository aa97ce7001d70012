/* stream.h - pieces of a file that are read ahead of their use, round and round.
 *
 * A stream has a window of slots.  Reader threads fill them with the pieces that will be used
 * next, while one thread uses pieces that are there already.  What comes next is what came next
 * the last time; at first it is the order that stream_order gives.  Pieces that are used by need
 * (experts) are read when they are announced.  A wrong guess costs the reading of a window and
 * nothing else. */
#ifndef STREAM_H
#define STREAM_H

#include "base/reader.h"

struct stream;

struct stream_piece {
    struct reader *reader;  /* must outlive the stream */
    uint64_t offset;
    size_t bytes;
    bool by_need;           /* not guessed, only announced */
};

/* n pieces (copied) and a window of n_slots of them, at least 2.  NULL and *err on failure. */
struct stream *stream_new(const struct stream_piece *pieces, int n, int n_slots, slm_error *err);
void stream_free(struct stream *s);

/* Bytes of memory that a window for pieces of at most piece_bytes takes. */
size_t stream_window_bytes(size_t piece_bytes, int n_slots);

/* The order in which n pieces will be used, and whether the first follows the last; begins to
 * read.  No piece may be in use. */
void stream_order(struct stream *s, const int *pieces, int n, bool again);

/* Announces a piece that will be used before those guessed; announced ones are used in the order
 * of their announcement. */
void stream_expect(struct stream *s, int piece);
/* Drops what is announced and not used. */
void stream_forget(struct stream *s);

/* Waits for a piece.  Its bytes stay until stream_release, which must come before the next
 * stream_get.  NULL and *err where reading failed. */
const uint8_t *stream_get(struct stream *s, int piece, slm_error *err);
void stream_release(struct stream *s);

/* Bytes read so far. */
uint64_t stream_bytes_read(struct stream *s);

#endif

/* reader.h - reads of a file past the page cache.
 *
 * What is read once and not soon again would only push more useful pages out of the page cache,
 * and counts against a control group's limit.  Where the file system refuses direct reads,
 * buffered ones are made and their pages dropped at once. */
#ifndef READER_H
#define READER_H

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"

struct reader;

/* Opens the file that `map` was made of; another file of that name is an error, and so is one
 * that has become shorter.  NULL and *err on failure. */
struct reader *reader_open(const char *path, const struct file_map *map, slm_error *err);
void reader_close(struct reader *r);

/* Direct reads begin and end at multiples of this, in the file and in memory; no device has
 * larger sectors. */
enum { READER_ALIGN = 4096 };

/* Room for n bytes from anywhere in the file. */
static inline size_t reader_room(size_t n)
{
    return align_up(n, READER_ALIGN) + 2 * READER_ALIGN;
}

/* Reads n bytes at `offset` into room of reader_room(n) bytes, aligned to READER_ALIGN, and
 * gives where in it they begin; NULL and *err on failure.  May be called from several threads. */
const uint8_t *reader_read(struct reader *r, uint64_t offset, size_t n, void *room,
                           slm_error *err);

/* Drops what the page cache holds of the file and nobody has mapped. */
void reader_drop_cache(struct reader *r);

/* For tests: every read gives at most `bytes` at a time (0: as many as asked for), direct reads
 * are refused, and the n-th read from now fails, once (0: never).  Process-wide. */
struct reader_faults {
    size_t bytes;
    bool refuse_direct;
    long fail_after;
};
void reader_set_faults(const struct reader_faults *faults);

#endif

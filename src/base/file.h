/* file.h - mapped files, whole-file reads, atomic writes.
 *
 * Messages of errors begin with the path.
 *
 * A mapping has the size that the file had when it was opened.  If somebody cuts
 * the file short while it is mapped, touching the missing part raises SIGBUS and
 * ends the process: the same holds for every program that maps its input, and the
 * only cure would be to copy the file.  So replace model files by renaming a new
 * one over them, which leaves a mapping whole, and never write into them. */
#ifndef FILE_H
#define FILE_H

#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

struct file_map {
    const uint8_t *data;
    size_t size;   /* from fstat of the open descriptor, like what follows */
    uint64_t device, inode;
    void *base;    /* what to unmap */
};

/* Maps a regular file read-only.  A directory, a FIFO or an empty file is an error. */
bool file_map_open(struct file_map *m, const char *path, slm_error *err);
void file_map_close(struct file_map *m);

/* Reads all of a file (regular, pipe; "-" is standard input) of at most `max`
 * bytes into b, which the caller has initialised. */
bool file_read(const char *path, size_t max, struct buf *b, slm_error *err);

/* Writes beside the path and renames, so that readers see the old or the new file.
 * A path that names a device or a pipe is written to as it is. */
bool file_write(const char *path, const void *data, size_t n, slm_error *err);

struct file_part {
    const void *data;
    size_t n;
};

/* The same with the parts one after another. */
bool file_write_parts(const char *path, const struct file_part *parts, size_t n_parts,
                      slm_error *err);

/* A file that is written piece by piece, beside the path until it is complete. */
struct file_out {
    int fd;             /* -1: not open */
    char *path;
    char *beside;       /* the name that it has meanwhile; NULL for a device or a pipe */
    uint64_t written;
};

/* expected: its size in bytes, so that a disk without room is refused at once; 0: not known. */
bool file_out_open(struct file_out *f, const char *path, uint64_t expected, slm_error *err);
bool file_out_add(struct file_out *f, const void *data, size_t n, slm_error *err);

/* keep: puts the file in its place; else removes it.  Closes f either way; fine for one that is
 * zeroed or whose opening failed. */
bool file_out_close(struct file_out *f, bool keep, slm_error *err);

#endif

/* snapshot.h - what tests of snapshots need beside session_save and session_load. */
#ifndef SNAPSHOT_H
#define SNAPSHOT_H

#include <stddef.h>

/* Makes the checksum at the end of n bytes right. */
void snapshot_seal(void *data, size_t n);

#endif

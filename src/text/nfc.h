/* nfc.h - Unicode normal form C. */
#ifndef NFC_H
#define NFC_H

#include "base/buf.h"

/* Whether valid UTF-8 may differ from its normal form C. */
bool nfc_differs(const char *s, size_t n);

/* Appends the normal form C of valid UTF-8.  Linear in time; out->failed without memory. */
void nfc_append(struct buf *out, const char *s, size_t n);

#endif

#!/bin/sh
# size.sh - the stripped program must not exceed two million bytes.
#
#   size.sh STRIP SLM
set -eu

limit=2000000
file=$(mktemp)
trap 'rm -f "$file"' EXIT

"$1" -o "$file" "$2"
size=$(wc -c <"$file")
echo "$size bytes stripped, at most $limit"
test "$size" -le "$limit"

#!/bin/sh
# Weights larger than memory: time per token of a model in a control group whose limit is a part
# of the file, against what the disk gives and against a plain mapping in the same group.
#
#   bench/stream.sh SLM MODEL [PERCENT [TOKENS]]
#
# SLM is the program, PERCENT the limit in percent of the file (60), TOKENS how many are written
# (8; the plain mapping writes 3).  Needs root, for the control group (version 1 or 2).
# Everything is repeated three times and the best is taken, so other work on the machine
# disturbs little; run it on a quiet one all the same.
set -eu

if [ $# -lt 2 ]; then
    sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
slm=$1 model=$2 percent=${3:-60} tokens=${4:-8}
bytes=$(stat -L -c %s "$model")
limit=$((bytes / 100 * percent))
rounds=3
tmp=$(mktemp -d)

# ---- the control group ----------------------------------------------------------------

# The part of the hierarchy that this shell is in, where new groups may be made.
if [ -e /sys/fs/cgroup/memory/memory.limit_in_bytes ]; then
    kind="control group v1"
    group=/sys/fs/cgroup/memory/slm-bench-$$
    mkdir "$group"
    echo "$limit" > "$group/memory.limit_in_bytes"
elif [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    kind="control group v2"
    group=/sys/fs/cgroup/slm-bench-$$
    echo +memory > /sys/fs/cgroup/cgroup.subtree_control
    mkdir "$group"
    echo "$limit" > "$group/memory.max"
else
    echo "no control group of memory can be made here" >&2
    exit 1
fi
trap 'rmdir "$group"; rm -rf "$tmp"' EXIT

# Runs a command in the group.
limited()
{
    sh -c 'echo $$ > "$0/cgroup.procs"; exec "$@"' "$group" "$@"
}

# ---- measuring --------------------------------------------------------------------------

# Bytes per second of direct reads of the model's file, from its middle; no cache is involved.
disk_rate()
{
    dd if="$model" of=/dev/null bs=4M skip=$((bytes / 8388608 - 256)) count=512 iflag=direct 2>&1 |
        awk -F, '/copied/ { split($3, t, " "); split($1, b, " "); printf "%.0f\n", b[1] / t[1] }'
}

# The field of the JSON report of a run, in which the numbers are plain.
field()
{
    sed "s/.*\"$1\": *\([0-9.e+-]*\).*/\1/" "$2"
}

# Seconds per token, load and first token of a run in the group: "TOKEN LOAD FIRST PEAK".
run()
{
    n=$1
    shift
    limited timeout -s KILL 900 "$slm" run "$model" --raw -t 0 -n "$n" --json --quiet "$@" Hello \
        > "$tmp/out" || { echo "failed"; return; }
    echo "$(field per_token_s "$tmp/out") $(field load_s "$tmp/out")" \
         "$(field first_token_s "$tmp/out") $(field peak_ram_bytes "$tmp/out")"
}

# The line with the least first number.
best()
{
    sort -g | head -n 1
}

missing=$(limited "$slm" info "$model" --json | tr -d '\n' |
    sed 's/.*"streamed_bytes": *\([0-9]*\).*/\1/')
for i in $(seq $rounds); do disk_rate; done | sort -gr | head -n 1 > "$tmp/rate"
for i in $(seq $rounds); do run "$tokens"; done | best > "$tmp/streamed"
# A page cache that is full of the file from before would be an advantage of the mapping.
for i in $(seq $rounds); do
    sync
    echo 1 > /proc/sys/vm/drop_caches 2> /dev/null || true
    run 3 --no-stream --pack off
done | best > "$tmp/mapped"

awk -v kind="$kind" -v bytes="$bytes" -v limit="$limit" -v percent="$percent" -v missing="$missing" \
    -v rate="$(cat "$tmp/rate")" -v streamed="$(cat "$tmp/streamed")" -v mapped="$(cat "$tmp/mapped")" '
BEGIN {
    split(streamed, s, " ")
    split(mapped, m, " ")
    disk = missing / rate
    printf "file                    %8.3f GB\n", bytes / 1e9
    printf "limit                   %8.3f GB (%d%%, %s)\n", limit / 1e9, percent, kind
    printf "missing                 %8.3f GB per token\n", missing / 1e9
    printf "disk, direct reads      %8.3f GB/s\n", rate / 1e9
    printf "missing / disk          %8.3f s\n", disk
    printf "streamed, per token     %8.3f s (%.2f times missing / disk)\n", s[1], s[1] / disk
    printf "  load, first token     %8.3f s %.3f s, peak %.3f GB\n", s[2], s[3], s[4] / 1e9
    if (mapped == "failed") {
        printf "plain mapping           failed or took more than 900 s\n"
    } else {
        printf "plain mapping, per token%8.3f s (%.2f times streamed)\n", m[1], m[1] / s[1]
        printf "  load, first token     %8.3f s %.3f s, peak %.3f GB\n", m[2], m[3], m[4] / 1e9
    }
}'

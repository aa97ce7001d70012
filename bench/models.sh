#!/bin/sh
# The table of docs/models.md: memory, cold start and speed of full-size models.
#
#   bench/models.sh [--write] [--runs N] SLM FOLDER [SHAPE:MIX ...]
#
# SLM is the program; synthetic models are made in FOLDER, one at a time, and removed again
# (needs Python with numpy and gguf; PYTHON names it).  --write puts the rows into docs/models.md.
# Peaks are the largest of N runs (3), times the best.  A cold start begins with nothing of the
# file in the page cache, which needs root; without it the column says so.
set -eu

write=false runs=3
while :; do
    case ${1-} in
    --write) write=true; shift ;;
    --runs) runs=$2; shift 2 ;;
    *) break ;;
    esac
done
if [ $# -lt 2 ]; then
    sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
slm=$1 folder=$2
shift 2
here=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
[ $# -gt 0 ] || set -- phi4-mini:Q4_K_M phi3-mini:Q4_K_M qwen3-4b:Q4_K_M gemma4-e4b:Q4_K_M \
    qwen3.8-27b:IQ2_M
rows=$(mktemp)
out=$(mktemp)
model=
trap 'rm -f "$rows" "$out" "$model"' EXIT

# The number of a field of the JSON report of a run.
field()
{
    sed "s/.*\"$1\": *\([0-9.e+-]*\).*/\1/" "$out"
}

# "PEAK LOAD FIRST RATE KV" of a run that writes $1 tokens.
run()
{
    "$slm" run "$model" --raw -t 0 -n "$1" --json --quiet "Once upon a time" > "$out"
    echo "$(field peak_ram_bytes) $(field load_s) $(field first_token_s)" \
         "$(field decode_tokens_per_s)"
}

# The cache without this file: what a first start after a boot finds.
forget()
{
    sync
    echo 1 2> /dev/null > /proc/sys/vm/drop_caches
}

# One row: model, file, peak, what the peak is above the file, cold start, warm start, tokens/s.
measure()
{
    bytes=$(stat -c %s "$model")
    cold=-
    : > "$out.all"
    for i in $(seq "$runs"); do
        if forget; then
            run 1 | awk '{ print $2 + $3 }' >> "$out.cold"
        fi
        run 32 >> "$out.all"
    done
    if [ -s "$out.cold" ]; then
        cold=$(sort -g "$out.cold" | head -n 1)
    fi
    awk -v name="$1" -v bytes="$bytes" -v cold="$cold" '
        { peak = $1 > peak ? $1 : peak
          start = !NR || NR == 1 || $2 + $3 < start ? $2 + $3 : start
          rate = $4 > rate ? $4 : rate }
        END { printf "| %s | %.0f | %.0f | %+.0f | %s | %.2f | %.1f |\n", name, bytes / 1048576,
                  peak / 1048576, (peak - bytes) / 1048576,
                  cold == "-" ? "-" : sprintf("%.2f", cold), start, rate }' "$out.all"
    rm -f "$out.all" "$out.cold"
}

for pair; do
    shape=${pair%:*} mix=${pair#*:}
    model=$folder/$shape-$mix.gguf
    "$python" "$here/tools/synth_gguf.py" --shape "$shape" --mix "$mix" --out "$model" >&2
    measure "$shape $mix" | tee -a "$rows"
    rm -f "$model"
done

if $write; then
    doc=$here/docs/models.md
    cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
    awk -v rows="$rows" -v cpu="$cpu, $(nproc) cores" -v runs="$runs" '
        /<!-- rows -->/ { print; while ((getline line < rows) > 0) print line; skip = 1; next }
        /<!-- end -->/ { skip = 0 }
        /^Measured on / { print "Measured on " cpu "; best of " runs " runs."; old = 1; next }
        old && NF { next }
        old { old = 0 }
        !skip { print }' "$doc" > "$out"
    cat "$out" > "$doc"
fi

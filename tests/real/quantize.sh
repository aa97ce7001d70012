#!/bin/sh
# A real model in other types keeps its perplexity: prints it and fails where it rises by more
# than a type may cost.
#
#   quantize.sh SLM MODEL.gguf TOKENS.json      exit code 77 where the model is not there
set -eu

slm=$1
model=$2
tokens=$3
if ! test -f "$model"; then
    echo "skipped: $model is not there"
    exit 77
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

perplexity()
{
    "$slm" perplexity "$1" --tokens "$tokens" --json --quiet |
        sed 's/.*"perplexity": *\([0-9.]*\).*/\1/'
}

before=$(perplexity "$model")
echo "as it is  $before"
failed=0
while read -r type percent; do
    "$slm" quantize "$model" "$dir/model.gguf" "$type" --quiet
    after=$(perplexity "$dir/model.gguf")
    echo "$type $before $after $percent" | awk '{
        rise = 100 * ($3 / $2 - 1)
        printf "%-9s %s  %+.1f%%, at most %s%%\n", $1, $3, rise, $4
        exit !(rise <= $4 && rise > -5)
    }' || failed=1
done <<'TYPES'
Q8_0 1
Q5_K_M 2
Q4_K_M 12
IQ4_NL 20
Q4_0 30
Q2_K 45
TYPES
exit $failed

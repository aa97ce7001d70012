# Where the output goes: statistics beside the answer, JSON, closed pipes, full disks.
M=models/llama-Q4_0/model.gguf
"$SLM" run $M "the rain in" --raw -t 0 -n 9 --threads 1 2>stats
sed 's/  *[0-9][0-9.]* \(s\|ms\|tok\/s\|MiB\|GiB\)$/ N \1/; /^memory/s/[0-9][0-9.]* [KMG]iB/N/g' stats
"$SLM" run $M "the rain in" --raw -t 0 -n 9 --threads 1 --quiet 2>stats
test -s stats && cat stats

"$SLM" run $M "the rain in" --raw -t 0 -n 9 --threads 1 --json --show-prompt 2>stats |
    sed 's/\(_s": \)[0-9.e+-]*/\1N/g; s/\(bytes": \)[0-9]*/\1N/'
test -s stats && cat stats

{ "$SLM" run $M "the rain in" --raw -t 0 -n -1 2>err; echo "-> $?" >code; } | head -c 1 >/dev/null
cat code err
if test -w /dev/full; then
    "$SLM" run $M "the rain in" --raw -t 0 -n 9 >/dev/full
    echo "-> $?"
    "$SLM" help >/dev/full
    echo "-> $?"
fi

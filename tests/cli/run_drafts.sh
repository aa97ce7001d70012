# Drafts change no answer, wherever they come from.
M=models/llama-Q4_0/model.gguf
R=models/qwen35-Q2_K/model.gguf
for t in 0 0.6; do
    for m in $M $R; do
        "$SLM" run $m "the rain in the rain in the" --raw -n 40 --quiet -t $t >a
        "$SLM" run $m "the rain in the rain in the" --raw -n 40 --quiet -t $t --draft ngram >b
        "$SLM" run $m "the rain in the rain in the" --raw -n 40 --quiet -t $t --draft ngram \
            --draft-max 16 >c
        "$SLM" run $m "the rain in the rain in the" --raw -n 40 --quiet -t $t --draft $m >d
        for i in b c d; do cmp a $i && echo "$i is the same"; done
    done
done

# A stop text, the end of the context, and no token at all.
for with in "--stop e" "--context 30 -n -1" "-n 0" "-n 1"; do
    "$SLM" run $M "the rain in the rain" --raw -n 40 --quiet -t 0 $with >a
    "$SLM" run $M "the rain in the rain" --raw -n 40 --quiet -t 0 $with --draft $M >b
    cmp a b && echo "the same with $with"
done

# What they came to is told where they were asked for.
"$SLM" run $M "the rain in" --raw -n 40 -t 0 --draft $M 2>&1 >a | grep -c \
    '^drafts accepted  *[0-9]* of [0-9]*, [0-9.]* tokens per step, [0-9]* steps paused$'
"$SLM" run $M "the rain in" --raw -n 40 -t 0 --draft $M --json | grep -c \
    '"drafts": {"drafted": [0-9]*, "accepted": [0-9]*, "tokens_per_step": [0-9.]*, "steps_paused"'
"$SLM" run $M "the rain in" --raw -n 40 -t 0 2>&1 >a | grep -c drafts
"$SLM" run $M "the rain in" --raw -n 40 -t 0 --mtp-draft 0 2>&1 >a | grep -c drafts

# A command line may ask for the model's own block whatever the model; it is told where there is
# none.
"$SLM" run $M --raw x -n 0 --mtp-draft 2 2>&1 | head -n 1

# What does not go.
try()
{
    "$SLM" "$@"
    echo "exit code $?"
}
try run $M --raw x --mtp-draft 2 --mtp-model $R
try run $M --raw x --draft models/gemma3-1b/model.gguf
try run models/qwen3-dense/model.gguf --raw x --draft models/gemma3-1b/model.gguf
try run $M --raw x --draft none.gguf
try run $M --raw x --draft ngram --draft-max 17
try run $M --raw x --draft-max 3
try run $M --raw x --draft ngram --mtp-draft 3
try run $M --raw x --mtp-model $R
true

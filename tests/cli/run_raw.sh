# The same command gives the same answer, however the prompt gets in.
M=models/llama-Q4_0/model.gguf
"$SLM" run $M "the rain in" --raw -n 30 --quiet >a
"$SLM" run -m $M "the rain in" --raw -n 30 --quiet >b
"$SLM" run --model=$M -p "the rain in" --raw -n 30 --quiet >c
echo "the rain in" | "$SLM" run $M --raw -n 30 --quiet >d
printf 'the rain in' | "$SLM" run $M - --raw -n 30 --quiet >e
printf 'ignored' | "$SLM" run $M "the rain in" --raw -n 30 --quiet >f
"$SLM" run $M "the rain in" --raw -n 30 --quiet --threads 1 --pack off --context 64 >g
"$SLM" run $M "the rain in" --raw -n 30 --quiet --seed 42 -t 0.6 --top-k 0 --top-p 1 --min-p 0 >h
cat a
for i in b c d e f g h; do cmp a $i && echo "$i is the same"; done

# Other settings give other answers.
"$SLM" run $M "the rain in" --raw -n 30 --quiet --seed 43 >b
"$SLM" run $M "the rain in" --raw -n 30 --quiet -t 0 >c
"$SLM" run $M "the rain in" --raw -n 30 --quiet -t 0 --repeat-penalty 1.5 >d
cat c
for i in b c d; do cmp -s a $i || echo "$i is another"; done
cmp -s c d || echo "the penalty counts"

# Greedy in three spellings.
"$SLM" run $M "the rain in" --raw -n 30 --quiet --top-k 1 >b && cmp b c
"$SLM" run $M "the rain in" --raw -n 30 --quiet --top-p 0 >b && cmp b c

# What is shown is what the model gets.
"$SLM" run $M "the rain in" --raw -n 5 --quiet --show-prompt -t 0
"$SLM" run $M "the rain in" --raw -n 0 --quiet --show-prompt

# A stop text ends the answer and is not part of it.
"$SLM" run $M "the rain in" --raw -n 30 --quiet -t 0 --stop "D" --stop "never to be seen"

# Every instruction set gives the same answer.
for isa in scalar avx2 avx512; do
    SLM_ISA=$isa "$SLM" run $M "the rain in" --raw -n 30 --quiet >b 2>err ||
        grep -q "SLM_ISA" err || cat err
    test ! -s b || cmp a b
done

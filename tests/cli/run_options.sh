# Command lines of other programs of this kind work as they are written.
M=models/llama-Q4_0/model.gguf
printf '{%% for m in messages %%}[{{ m.role }}] {{ m.content }} {%% endfor %%}' >t.jinja

"$SLM" run --model $M --prompt Hello --max-tokens 8 --context 1024 --temperature 0 --mtp-draft 3 \
    --top-k 20 --top-p 0.95 --presence-penalty 1 --reasoning-effort low --threads 2 --seed 1 \
    --system S --template t.jinja >out 2>err
echo "-> $? $(sed -n 's/^output tokens  *\([0-9]*\).*/\1 tokens/p' err)"
"$SLM" run -m $M -p TEXT -n 20 -t 0.6 --template t.jinja >out 2>err
echo "-> $? $(sed -n 's/^output tokens  *\([0-9]*\).*/\1 tokens/p' err)"

# Every sampler, and biases that leave one token.
"$SLM" run $M "the rain" --raw -n 3 --quiet --typical-p 0.9 --xtc-probability 0.5 \
    --xtc-threshold 0.2 --dry-multiplier 0.8 --dry-base 2 --dry-allowed 3 --dry-window 100 \
    --min-p 0.01 --frequency-penalty 0.1 >a
"$SLM" run $M "the rain" --raw -n 3 --quiet --mirostat-tau 3 --mirostat-eta 0.2 >b
echo "-> $?"
for bias in 5:100 5:-inf 5 5:x 5:101 -1:0 5:nan; do
    "$SLM" run $M "the rain" --raw -n 4 -t 0 --quiet --logit-bias=$bias | od -An -c | head -n 1
done
"$SLM" run $M "the rain" --raw -n 4 -t 0 --quiet --logit-bias 999999:1
echo "-> $?"

# Nothing but a model: an example is asked.
"$SLM" run $M --template t.jinja --show-prompt -n 0 --quiet

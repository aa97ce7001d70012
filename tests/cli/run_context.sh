# The answer ends where the context does, and says so.
M=models/llama-Q4_0/model.gguf
"$SLM" run $M "the rain in" --raw -t 0 -n -1 --context 24 2>err
echo "-> $?"
sed -n 's/^slm: //p; s/^output tokens *//p; s/^prompt tokens *//p' err
"$SLM" run $M "the rain in" --raw -t 0 -n -1 --context 24 --json --quiet >json
grep -o '"prompt_tokens": [0-9]*, "output_tokens": [0-9]*, "finish_reason": "[a-z]*"' json
n=$(sed 's/.*"prompt_tokens": \([0-9]*\).*/\1/' json)
"$SLM" run $M "the rain in" --raw -t 0 -n -1 --context $((n + 1)) --json --quiet >json
grep -o '"output_tokens": [0-9]*' json
"$SLM" run $M "the rain in" --raw -t 0 -n -1 --context $n --quiet
echo "-> $?"
"$SLM" run $M "the rain in" --raw -t 0 -n 1 --context 40000 2>err
sed -n 's/^slm: //p' err
"$SLM" run $M "the rain in" --raw -t 0 -n 1 --context 40000 --quiet

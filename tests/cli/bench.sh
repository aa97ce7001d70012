# Every test of a bench is a row, in each form; what cannot be measured is refused.
m=models/llama-Q4_0/model.gguf
"$SLM" bench $m -p 8 -n 4 -d 0,5 -b 1,2 -t 1 -r 2 --quiet -o json |
    grep -oE '"(n_prompt|n_gen|n_depth|n_threads|n_parallel)": [0-9]+'
"$SLM" bench $m -p 8 -n 4 -t 1 -r 1 --quiet -o csv | cut -d, -f1,5-10
"$SLM" bench $m -p 8 -n 0 -t 1 -r 1 --quiet | grep -c 'pp8 '
"$SLM" bench $m --compare -n 4 -t 1 -r 1 --quiet | grep -c 'ms |'
"$SLM" bench $m -p 8 -n 4 -b 1,2 -t 1 -r 1 --profile --quiet 2>&1 | grep -cE 'attention|everything else'
try()
{
    "$SLM" bench "$@"
    echo "$* -> $?"
}
try
try $m -p x
try $m -p 8,
try $m -p 0 -n 0
"$SLM" bench none.gguf --quiet -r 1 >/dev/null; echo $?

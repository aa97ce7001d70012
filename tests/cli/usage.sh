# Wrong usage is exit code 2 and one line that names what is wrong.
try()
{
    "$SLM" "$@"
    echo "$* -> $?"
}
try
try frobnicate
try --frobnicate
try help frobnicate
try run -m none.gguf
try run --frobnicate
try run -Z
try run models/llama-Q4_0/model.gguf
try run models/llama-Q4_0/model.gguf a b
try run models/llama-Q4_0/model.gguf x --temperature
try run models/llama-Q4_0/model.gguf x --raw=yes
try run models/llama-Q4_0/model.gguf x -n 1e30
try run models/llama-Q4_0/model.gguf x -n -3
try run models/llama-Q4_0/model.gguf x -n ""
try run models/llama-Q4_0/model.gguf x -t -0.1
try run models/llama-Q4_0/model.gguf x -t 999999
try run models/llama-Q4_0/model.gguf x -t nan
try run models/llama-Q4_0/model.gguf x -t 0.5x
try run models/llama-Q4_0/model.gguf x --top-k -5
try run models/llama-Q4_0/model.gguf x --top-p -1
try run models/llama-Q4_0/model.gguf x --min-p 2
try run models/llama-Q4_0/model.gguf x --repeat-penalty 0
try run models/llama-Q4_0/model.gguf x --seed -1
try run models/llama-Q4_0/model.gguf x --seed 18446744073709551616
try run models/llama-Q4_0/model.gguf x --threads 5000
try run models/llama-Q4_0/model.gguf x --context 0
try run models/llama-Q4_0/model.gguf x --reasoning-effort high
try run models/llama-Q4_0/model.gguf x --reasoning-effort ""
try run models/llama-Q4_0/model.gguf x --kv-type q8
try run models/llama-Q4_0/model.gguf x --memory 0
try run models/llama-Q4_0/model.gguf x --memory 120%
try run models/llama-Q4_0/model.gguf x --memory 6Gx
try run models/llama-Q4_0/model.gguf x --memory 6G --no-stream
try run models/llama-Q4_0/model.gguf x --stop ""
try run models/llama-Q4_0/model.gguf x --raw --system y
try info
try info a b
try info a --memory none
try tokenize
try tokenize a b c
try perplexity
try perplexity a
try perplexity a b c
try doctor x
try pull
try pull a b
try list x
try rm
try quantize

# What a file is, as text and as JSON.
M=models/llama-Q4_0/model.gguf
"$SLM" info $M | sed 's/of [0-9.]* GiB free/of N GiB free/'
"$SLM" info $M --context 100 --kv-type f32 | sed -n '/^memory/,$p' |
    sed 's/of [0-9.]* GiB free/of N GiB free/'
"$SLM" info -m $M --json | sed 's/"free_bytes": [0-9]*/"free_bytes": N/' | grep -v '"value"'

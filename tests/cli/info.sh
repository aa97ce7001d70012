# What a file is, as text and as JSON.  Working memory depends on machine and kernels.
M=models/llama-Q4_0/model.gguf
hide='s/\(work\|together\)  .*iB/\1 N/; s/of .* free/of N free/
    s/"\(work\|total\|free\)_bytes": [0-9]*/"\1_bytes": N/'
"$SLM" info $M | sed "$hide"
"$SLM" info $M --context 100 --kv-type f32 | sed -n '/^memory/,$p' | sed "$hide"
"$SLM" info -m $M --json | sed "$hide" | grep -v '"value"'

# A model in another type; what cannot be done leaves no file.
M=models/llama-Q4_0/model.gguf
types()
{
    "$SLM" info "$1" | sed -n '/^tensors/,/^$/p' | awk 'NF { print $1, $2 }'
}
"$SLM" quantize $M a.gguf q4_k_m
types a.gguf
"$SLM" quantize --threads 1 --quiet $M b.gguf Q4_K_M
cmp a.gguf b.gguf && echo same
"$SLM" run a.gguf --raw Hello -n 3 -t 0 --quiet >answer
test -s answer && echo runs
"$SLM" quantize $M F16.gguf F16 --quiet
types F16.gguf

try()
{
    "$SLM" quantize "$@"
    echo "$* -> $?"
}
try
try $M c.gguf
try $M c.gguf Q9
try $M $M Q8_0
try nothing.gguf c.gguf Q8_0
try $M /dev/full Q8_0
cp $M d.gguf
try d.gguf ./d.gguf Q8_0
# Like a disk that is full.
(ulimit -f 8 && try $M c.gguf Q8_0)
ls

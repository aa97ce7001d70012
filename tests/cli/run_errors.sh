# Bad input is exit code 1 and one line that says what it is.
M=models/llama-Q4_0/model.gguf
try()
{
    "$SLM" "$@"
    echo "-> $?"
}
try run models/none.gguf x
try run models x
printf 'no model at all, just text\n' >text.gguf
try run text.gguf x
: >empty.gguf
try run empty.gguf x
head -c 1000 $M >short.gguf
try run short.gguf x 2>err
sed 's/byte [0-9]*/byte N/; s/[0-9][0-9]* bytes/N bytes/g' err >&2
try info none.gguf
try tokenize none.gguf x
try perplexity none.gguf x
try perplexity $M none.txt
try run $M --raw -- "$(printf 'bad \377 byte')"
try run models/qwen2-coder/model.gguf --raw ""
try run $M --raw "a long prompt that does not fit into the context" --context 10
try run $M --raw "x" --context 2000000000 2>err
sed 's/[0-9.]* GiB/N GiB/g; s/at most [0-9]*/at most N/' err >&2
SLM_ISA=mmx try run $M --raw x 2>err
sed 's/; .*//; s/: .*SLM_ISA/: SLM_ISA/' err | cut -c1-40 >&2
printf '[1, 2, "x"]' >ids.json
try perplexity $M --tokens ids.json
printf '[1, 2, 99999]' >ids.json
try perplexity $M --tokens ids.json
printf '[1, 2' >ids.json
try perplexity $M --tokens ids.json 2>err
echo "$(grep -c 'no JSON array' err) $(grep -c '' err)"
printf '[1]' >ids.json
try perplexity $M --tokens ids.json

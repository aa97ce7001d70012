# Guided answers belong to their language; what is no language is refused with its place.
M=models/llama-Q4_0/model.gguf
for seed in 1 2 3; do
    "$SLM" run $M --raw x --quiet --seed $seed --regex '(\d\d-){2}x' | grep -cE '^([0-9]{2}-){2}x$'
done
"$SLM" run $M --raw x --quiet --choices yes,no | grep -cE '^(yes|no)$'
echo '{"type":"array","items":{"enum":[1,2]},"minItems":2,"maxItems":3}' >schema.json
"$SLM" run $M --raw x --quiet --schema schema.json | tr -d ' \n\t' | grep -cE '^\[[12](,[12]){1,2}\]$'
echo 'root ::= "a" root "b" | "c"' >grammar.gbnf
"$SLM" run $M --raw x --quiet -n 400 --grammar grammar.gbnf | grep -cE '^a*cb*$'
try()
{
    "$SLM" run $M --raw x --quiet "$@"
    echo "-> $?"
}
echo '{"properties":{"a":{"not":{}}}}' >schema.json
try --schema schema.json
echo 'root ::= x' >grammar.gbnf
try --grammar grammar.gbnf
try --regex '(?=a)'
try --regex 'a[^\s\S]'
try --choices a --regex b
try --schema none.json

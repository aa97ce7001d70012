# A conversation over pipes: questions and commands by line, answers on standard output.
M=models/llama-Q4_0/model.gguf
printf '{%% for m in messages %%}[{{ m.role }}] {{ m.content }}\n{%% endfor %%}' >t.jinja
chat()
{
    "$SLM" chat $M --template t.jinja --quiet "$@"
    echo "-> $?"
}

# What the model gets; the answers are empty.
printf '%s\n' 'one' '/system Be brief' 'two \' 'lines' '"""' 'three' '' 'four' '"""' '/undo' \
    '/system' '/clear' 'five' '/system -' 'six' | chat -n 0 --show-prompt

# What was computed is used again, and again after loading.
printf '%s\n' 'one' 'two' '/stats' '/save c.json' | chat -n 3 -t 0 >a
sed -n 's/.*tokens, \([1-9][0-9]*\) of them computed before.*/reused \1/p' a
printf '%s\n' 'three' '/stats' | chat -n 3 -t 0 --load c.json >b
sed -n 's/.*tokens, \([1-9][0-9]*\) of them computed before.*/reused \1/p' b
rm c.json.kv
printf '%s\n' 'three' | "$SLM" chat $M --template t.jinja -n 3 -t 0 --load c.json 2>&1 >c |
    grep -c 'computed anew'
head -n 1 b >b1
cmp b1 c && echo 'the same answer'

# Another answer for /regen, the same one for the same seed.
printf '%s\n' 'one' '/regen' | chat -n 8 -t 1 >a
printf '%s\n' 'one' '/regen' | chat -n 8 -t 1 >b
cmp a b && echo 'the same twice'
printf '%s\n' 'one' '/undo' 'one' | chat -n 8 -t 1 >c
cmp -s a c || echo 'regen is another'

# Settings, and what is wrong with them.
printf '%s\n' '/set top-k 7' '/set temperature x' '/set nothing 1' '/set seed' '/set thinking no' \
    '/set reasoning-effort low' '/set max-tokens 5' '/set' |
    "$SLM" chat $M --template t.jinja 2>&1
printf '%s\n' '/nothing' '/load' '/load none.json' '/home/x is a path' '/undo' '/regen' '/undo' |
    "$SLM" chat $M --template t.jinja -n 0 2>&1
echo "-> $?"
echo '{"messages": [1]}' >bad.json
chat --load bad.json
printf 'bad \377\nlong %0300d\n' 0 | chat --context 64
"$SLM" chat $M </dev/null
echo "-> $?"
"$SLM" chat $M x </dev/null
echo "-> $?"

# Ctrl-C where nobody sits ends everything.
mkfifo questions
"$SLM" chat $M --template t.jinja --context 32000 -t 1 --quiet <questions >out 2>err &
pid=$!
exec 3>questions
echo one >&3
while ! test -s out && kill -0 $pid; do
    sleep 0.1
done
kill -INT $pid
wait $pid
echo "-> $?"

# A reader that goes away is no error.
printf '%s\n' one two three | "$SLM" chat $M --template t.jinja -n 200 -t 1 | head -c 1 >out
printf '%s\n' one two | "$SLM" chat $M --template t.jinja -n 5 >/dev/full
echo "-> $?"

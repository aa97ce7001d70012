# An interrupt ends the answer: what was said stays, statistics follow, exit code 130.
M=models/llama-Q4_0/model.gguf
"$SLM" run $M "the rain in" --raw -n -1 --context 32000 -t 0 >out 2>err &
pid=$!
while ! test -s out && kill -0 $pid 2>/dev/null; do
    sleep 0.1
done
kill -INT $pid
wait $pid
echo "-> $?"
test -s out && echo "there is text"
tail -c 1 out | od -An -c | tr -d ' '
sed -n 's/^output tokens  *[0-9]* //p' err
grep -c 'decode speed' err

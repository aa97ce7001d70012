# Help goes to standard output with exit code 0, the same by each way.
"$SLM" help
"$SLM" --help >h1 && "$SLM" -h >h2 && "$SLM" help >h3 && cmp h1 h2 && cmp h1 h3
for verb in run chat serve info tokenize perplexity quantize pull list rm bench doctor; do
    echo "----"
    "$SLM" help $verb
    "$SLM" help $verb >h1 && "$SLM" $verb --help >h2 && "$SLM" $verb -h >h3
    cmp h1 h2 && cmp h1 h3
done
"$SLM" --version | sed -n '1s/[0-9][0-9]*/N/gp'
"$SLM" --version | grep -c 'built by .* for .*, jansson [0-9].*, utf8proc [0-9]'
"$SLM" --version | grep -cE '^(downloads by|no downloads:) '

# The manual page and the completions have every option of every verb.
for kind in man bash zsh fish; do
    "$SLM" --describe $kind >$kind && test -s $kind || echo "$kind failed"
done
for verb in $("$SLM" help | sed -n 's/^  slm \([a-z][a-z]*\) .*/\1/p'); do
    test $verb != help || continue
    for opt in $("$SLM" help $verb | sed -n 's/^  .*--\([a-z][a-z-]*\).*/\1/p'); do
        escaped=$(echo $opt | sed 's/-/\\\\-/g')
        grep -q -- "^.B .*$escaped" man || echo "man: $verb --$opt"
        grep -q -- " --$opt[ ']" bash || echo "bash: $verb --$opt"
        grep -q -- "'[*]*--$opt\[" zsh || echo "zsh: $verb --$opt"
        grep -q -- "from $verb' -l $opt " fish || echo "fish: $verb --$opt"
    done
done
if command -v bash >/dev/null; then
    bash -c '. ./bash
        try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _slm; echo "${COMPREPLY[*]}"; }
        try slm cha
        try slm run --temp
        try slm run --kv-type q
        try slm chat --template ma
        try slm help doc'
fi
"$SLM" --describe nothing
echo "-> $?"

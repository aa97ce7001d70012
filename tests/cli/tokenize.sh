# Ids and pieces.
M=models/qwen2-coder/model.gguf
L=models/llama-tinyllama/model.gguf
"$SLM" tokenize $M "the rain in Spain, 42"
printf 'tab\there\nline \360\237\230\200' | "$SLM" tokenize $M
printf '' | "$SLM" tokenize $M -
"$SLM" tokenize $L "the <s>rain"
"$SLM" tokenize $L "the <s>rain" --special --bos
"$SLM" tokenize $L "the rain" --ids
"$SLM" tokenize $L "the rain" --bos --json
printf 'a\000b' | "$SLM" tokenize $L --ids
printf 'bad \377' | "$SLM" tokenize $L
echo "-> $?"

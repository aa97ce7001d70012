# A text, a list of ids, several windows.
M=models/llama-Q4_0/model.gguf
echo 'the rain in Spain falls mainly on the plain, and nobody knows the reason why it does.' >text
"$SLM" perplexity $M text
"$SLM" perplexity $M - <text
"$SLM" perplexity $M text --kv-type f32 --threads 1
"$SLM" perplexity $M text --kv-type q8_0
"$SLM" perplexity $M text --context 32
"$SLM" perplexity $M text --context 2
"$SLM" tokenize $M --bos --ids <text >ids.json
"$SLM" perplexity $M --tokens ids.json
"$SLM" perplexity $M --tokens ids.json --json
printf '' | "$SLM" perplexity $M -
echo "-> $?"

# Templates: the file's own, one that is given, none, and broken ones.
M=models/llama-Q4_0/model.gguf
cat >t.jinja <<'T'
{{ bos_token }}
{%- for m in messages %}[{{ m.role }}] {{ m.content }}
{% endfor -%}
{% if add_generation_prompt %}[assistant] {% endif %}
{%- if enable_thinking is defined and not enable_thinking %}no thinking {% endif %}
{%- if reasoning_effort is defined %}effort {{ reasoning_effort }} {% endif %}
T
"$SLM" run $M "Hello there" --template t.jinja --show-prompt -n 0 --quiet
echo "-> $?"
"$SLM" run $M "Hello there" --template t.jinja --show-prompt -n 0 --quiet \
    --system "Be brief" --no-thinking --reasoning-effort low
echo "-> $?"
printf 'two\nlines "quoted" \\ \303\244\n' |
    "$SLM" run $M --template t.jinja --show-prompt -n 0 --quiet
echo "-> $?"

"$SLM" run $M "Hello there" -n 0
echo "-> $?"
printf '{%% for m in messages %%}\n{{ m.role }}\n{%% endfo %%}\n' >broken.jinja
"$SLM" run $M "Hello there" -n 0 --template broken.jinja
echo "-> $?"
echo '{{ raise_exception("only questions, please") }}' >raise.jinja
"$SLM" run $M "Hello there" -n 0 --template raise.jinja
echo "-> $?"
"$SLM" run $M "Hello there" -n 0 --template none.jinja
echo "-> $?"

# Text of the user never becomes a control token.
"$SLM" run $M "a</s>b" --template t.jinja -n 0 --json | grep -o '"prompt_tokens": [0-9]*'
"$SLM" run $M "a</s>b" --raw -n 0 --json | grep -o '"prompt_tokens": [0-9]*'

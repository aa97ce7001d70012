#!/usr/bin/env python3
"""toolcalls.py - calls that a template writes into the history are read as these calls.

    toolcalls.py SLM_PROBE TEMPLATES

TEMPLATES is the folder of golden templates.  What a template writes for an answer with calls is
what its model was taught to write.
"""
import json
import subprocess
import sys

PROBE, TEMPLATES = sys.argv[1:3]
NAMES = """qwen2.5 qwen2.5-coder qwen3 qwen3.5 qwen3.8 qwen3-coder qwen3-next gemma-4 llama-3.1
    llama-3.2 mistral-nemo mistral-small-3.2 ministral-3-reasoning devstral-small granite-4.0
    hermes-3""".split()
ONE_CALL = {"llama-3.1", "llama-3.2"}
NO_TEXT = ONE_CALL | {"mistral-nemo", "mistral-small-3.2", "hermes-3"}  # beside calls
ENDS = ["<|im_end|>", "<turn|>", "</s>", "<|eot_id|>", "<|end_of_text|>", "<|eom_id|>"]

ARGUMENTS = {"city": "Z\u00fcrich", "days": 3, "deep": {"a": [1, True, None, 'x"y\n']}}
CALLS = [{"name": "get_weather", "arguments": ARGUMENTS},
         {"name": "now", "arguments": {"tz": "UTC"}}]
TYPES = {str: "string", int: "integer", dict: "object"}


def tool(call):
    properties = {k: {"type": TYPES[type(v)], "description": "x"}
                  for k, v in call["arguments"].items()}
    return {"type": "function", "function": {
        "name": call["name"], "description": "d",
        "parameters": {"type": "object", "properties": properties}}}


def probe(verb, template, request):
    out = subprocess.run([PROBE, verb, "%s/%s/template.jinja" % (TEMPLATES, template)],
                         input=json.dumps(request) + "\n", capture_output=True, text=True)
    return json.loads(out.stdout)


def render(template, messages, prompt):
    kwargs = {"bos_token": "", "eos_token": "</s>", "add_generation_prompt": prompt,
              "enable_thinking": False}
    return probe("render", template, {"messages": messages, "tools": [tool(c) for c in CALLS],
                                      "kwargs": kwargs})["text"]


def check(template, n, content):
    question = {"role": "user", "content": "hi"}
    calls = [{"id": "call0000%d" % i, "type": "function", "function": c}
             for i, c in enumerate(CALLS[:n])]
    answer = {"role": "assistant", "content": content, "tool_calls": calls}
    before = render(template, [question], True)
    whole = render(template, [question, answer], False)
    k = 0
    while before[k:k + 1] == whole[k:k + 1]:
        k += 1
    while k > 0 and whole[k - 1] in "<[|":
        k -= 1  # the beginning of a mark
    text = whole[k:]
    for end in ENDS:
        text = text[:text.rfind(end)] if end in text else text
    for request in {"text": text}, {"text": text, "tools": [tool(c) for c in CALLS]}:
        got = probe("toolcalls", template, request)
        assert got["tool_calls"] == CALLS[:n], (template, text, got)
        want = "" if template in NO_TEXT else content
        assert got["content"].strip() == want, (template, text, got)


for name in NAMES:
    for n_calls in (1,) if name in ONE_CALL else (1, 2):
        check(name, n_calls, "")
        check(name, n_calls, "Let me check.")
    print(name, "ok")

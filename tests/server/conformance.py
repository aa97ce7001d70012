"""The official Python packages `openai` and `anthropic` against the server."""
import json

import anthropic
import openai

from harness import Cases, Server

PARAMETERS = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}},
              "required": ["city"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather of a city",
                                           "parameters": PARAMETERS}}]
USER = [{"role": "user", "content": "What is the weather in Rome?"}]


class Clients:
    def __init__(self, server):
        url = f"http://127.0.0.1:{server.port}"
        self.openai = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
        self.anthropic = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
        self.model = self.openai.models.list().data[0].id

    def chat(self, **fields):
        fields.setdefault("messages", USER)
        fields.setdefault("max_tokens", 16)
        fields.setdefault("temperature", 0)
        return self.openai.chat.completions.create(model=self.model, **fields)


def chat(c):
    r = c.chat()
    assert r.object == "chat.completion" and r.choices[0].message.role == "assistant"
    assert r.choices[0].message.content and r.choices[0].finish_reason in ("stop", "length")
    assert r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens
    again = c.chat()
    assert again.choices[0].message.content == r.choices[0].message.content
    assert again.usage.prompt_tokens_details.cached_tokens >= 0


def stream(c):
    whole = c.chat()
    text, finish, usage = "", None, None
    for chunk in c.chat(stream=True, stream_options={"include_usage": True}):
        if chunk.usage:
            usage = chunk.usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
    assert text == whole.choices[0].message.content
    assert finish == whole.choices[0].finish_reason
    assert usage.completion_tokens == whole.usage.completion_tokens


def seeds(c):
    a, b, other = (c.chat(temperature=1, seed=seed).choices[0].message.content for seed in (1, 1, 2))
    assert a == b
    several = c.chat(temperature=1, seed=1, n=3)
    assert [x.index for x in several.choices] == [0, 1, 2]
    assert several.choices[0].message.content == a
    assert len({x.message.content for x in several.choices} | {other}) > 1


def logprobs(c):
    r = c.chat(logprobs=True, top_logprobs=3, max_tokens=5)
    content = r.choices[0].logprobs.content
    assert len(content) == r.usage.completion_tokens
    for token in content:
        assert len(token.top_logprobs) == 3 and token.logprob <= 0
        assert bytes(token.bytes).decode("utf-8", "replace") == token.token
        assert token.top_logprobs[0].logprob == token.logprob  # greedy
    streamed = []
    for chunk in c.chat(logprobs=True, top_logprobs=3, max_tokens=5, stream=True):
        for choice in chunk.choices:
            if choice.logprobs:
                streamed += choice.logprobs.content
    assert [t.logprob for t in streamed] == [t.logprob for t in content]


def schema(c):
    format = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": {
        "type": "object", "properties": {"name": {"type": "string", "maxLength": 8},
                                         "age": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["name", "age"], "additionalProperties": False}}}
    for seed in range(3):
        r = c.chat(response_format=format, max_tokens=80, temperature=1, seed=seed)
        value = json.loads(r.choices[0].message.content)
        assert set(value) == {"name", "age"} and 0 <= value["age"] <= 99 and len(value["name"]) <= 8
    r = c.chat(response_format={"type": "json_object"}, max_tokens=200)
    assert r.choices[0].finish_reason == "length" or isinstance(
        json.loads(r.choices[0].message.content), dict)


def tools(c):
    for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
        r = c.chat(tools=TOOLS, tool_choice=choice, max_tokens=80, parallel_tool_calls=False)
        call = r.choices[0].message.tool_calls[0]
        assert r.choices[0].finish_reason == "tool_calls"
        assert call.function.name == "weather" and call.type == "function" and call.id
        assert json.loads(call.function.arguments)["city"] in ("Paris", "Rome")
        name, arguments, first = None, "", True
        for chunk in c.chat(tools=TOOLS, tool_choice=choice, max_tokens=80, stream=True,
                            parallel_tool_calls=False):
            for delta in chunk.choices[0].delta.tool_calls or []:
                if delta.index == 0:
                    if first:
                        assert delta.id and delta.type == "function" and delta.function.name
                        name, first = delta.function.name, False
                    arguments += delta.function.arguments or ""
        assert name == "weather" and arguments == call.function.arguments
    follow = USER + [r.choices[0].message.model_dump(exclude_none=True),
                     {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    assert c.chat(messages=follow, tools=TOOLS).choices[0].message is not None
    r = c.chat(tools=TOOLS, tool_choice="none")
    assert not r.choices[0].message.tool_calls


def completions(c):
    r = c.openai.completions.create(model=c.model, prompt=["Once upon", "The"], max_tokens=4, n=2,
                                    temperature=0, logprobs=2)
    assert [x.index for x in r.choices] == [0, 1, 2, 3]
    assert r.choices[0].text == r.choices[1].text
    assert len(r.choices[0].logprobs.tokens) == 4
    text = "".join(x.choices[0].text for x in c.openai.completions.create(
        model=c.model, prompt="Once upon", max_tokens=4, temperature=0, stream=True) if x.choices)
    assert text == r.choices[0].text


def embeddings(c):
    r = c.openai.embeddings.create(model=c.model, input=["a", "b", "a"])
    assert [d.index for d in r.data] == [0, 1, 2] and r.data[0].embedding == r.data[2].embedding


def responses(c):
    r = c.openai.responses.create(model=c.model, input="Say hi", max_output_tokens=8, temperature=0)
    assert r.status in ("completed", "incomplete") and r.output_text
    kinds, text = [], ""
    with c.openai.responses.stream(model=c.model, input="Say hi", max_output_tokens=8,
                                   temperature=0) as s:
        for event in s:
            kinds.append(event.type)
            if event.type == "response.output_text.delta":
                text += event.delta
    assert kinds[0] == "response.created" and text == r.output_text
    flat = {"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": True}
    r = c.openai.responses.create(model=c.model, input="Weather in Rome?", tools=[flat],
                                  tool_choice="required", max_output_tokens=80, temperature=0)
    call = next(x for x in r.output if x.type == "function_call")
    assert call.name == "weather" and json.loads(call.arguments)["city"] in ("Paris", "Rome")
    r = c.openai.responses.create(
        model=c.model, max_output_tokens=8, tools=[flat],
        input=[{"role": "user", "content": "Weather in Rome?"}, call.model_dump(exclude_none=True),
               {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}])
    assert r.usage.input_tokens > 0


def messages(c):
    def ask(**fields):
        return {"model": c.model, "max_tokens": 80, "extra_body": {"temperature": 0},
                "messages": [{"role": "user", "content": "What is the weather in Rome?"}], **fields}

    m = c.anthropic.messages.create(**ask(max_tokens=8, system="Be brief."))
    assert m.content[0].type == "text" and m.stop_reason in ("max_tokens", "end_turn")
    with c.anthropic.messages.stream(**ask(max_tokens=8, system="Be brief.")) as s:
        text = "".join(s.text_stream)
        final = s.get_final_message()
    assert text == m.content[0].text and final.stop_reason == m.stop_reason
    assert final.usage.output_tokens == m.usage.output_tokens
    one = {"type": "any", "disable_parallel_tool_use": True}
    tool = {"name": "weather", "description": "The weather", "input_schema": PARAMETERS}
    m = c.anthropic.messages.create(**ask(tools=[tool], tool_choice=one))
    use = next(b for b in m.content if b.type == "tool_use")
    assert m.stop_reason == "tool_use" and use.input["city"] in ("Paris", "Rome")
    with c.anthropic.messages.stream(**ask(tools=[tool], tool_choice=one)) as s:
        streamed = s.get_final_message()
    assert next(b for b in streamed.content if b.type == "tool_use").input == use.input
    turns = [{"role": "user", "content": "What is the weather in Rome?"},
             {"role": "assistant", "content": [b.model_dump(include={"type", "id", "name", "input"})
                                               for b in m.content if b.type == "tool_use"]},
             {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id,
                                           "content": "sunny"}]}]
    assert c.anthropic.messages.create(**ask(messages=turns, tools=[tool], max_tokens=8)).content
    try:
        c.anthropic.messages.create(**ask(messages=[]))
        raise AssertionError("empty messages were taken")
    except anthropic.BadRequestError as e:
        assert e.body["type"] == "error" and e.body["error"]["type"] == "invalid_request_error"


def errors(c):
    for kind, fields in ((openai.BadRequestError, {"temperature": 5}),
                         (openai.BadRequestError, {"messages": []}),
                         (openai.BadRequestError, {"extra_body": {"nonsense": 1}})):
        try:
            c.chat(**fields)
            raise AssertionError(f"{fields} was taken")
        except kind as e:
            assert e.param is not None and e.type == "invalid_request_error"
    try:
        c.openai.chat.completions.create(model="gpt-9", messages=USER)
        raise AssertionError("an unknown model was taken")
    except openai.NotFoundError as e:
        assert e.code == "model_not_found"


def main():
    cases = Cases()
    with Server("--context", "2048") as server:
        clients = Clients(server)
        for case in (chat, stream, seeds, logprobs, schema, tools, completions, embeddings, responses,
                     messages, errors):
            cases.run(case, clients)
    cases.finish()


main()

"""Requests that broke other servers, each standing for its kind, and what must come back."""
import base64
import json
import math
import socket
import struct
import subprocess
import tempfile
import time

from harness import Cases, MODEL, PATIENCE, SLM, Server, forced, refused

CHAT = "/v1/chat/completions"
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{\"a\":2,\"b\":3}"}}


def run(*arguments):
    return subprocess.run([SLM, *arguments], capture_output=True, text=True, timeout=6 * PATIENCE)


def long_runs(s):
    for text in ("Z" * 131072, "A" * 43000, "." * 100000, " " * 100000, "\n" * 26000):
        status, reply = s.post("/tokenize", {"content": text})
        assert status == 200
        status, back = s.post("/detokenize", {"tokens": reply["tokens"]})
        assert status == 200 and back["content"] == text, (len(text), len(back["content"]))
        status, reply = s.chat(text)
        assert status == 200 or reply["error"]["code"] == "context_length_exceeded", reply


def contents(s):
    user = {"role": "user", "content": "What is 2 + 3?"}
    for content in ({"content": None}, {}):
        for result in ("5", [{"type": "text", "text": "5"}]):
            call = {"role": "assistant", "tool_calls": [CALL], **content}
            status, reply = s.chat(messages=[user, call, {"role": "tool", "tool_call_id": "c1",
                                                          "content": result}])
            assert status == 200, reply
    refused(s.chat(messages=[]), "messages")
    refused(s.chat(messages=None), "messages")
    refused(s.post(CHAT, {}), "messages")
    assert s.chat("")[0] == 200
    status, reply = s.chat(stop=None, temperature=None, tools=None, seed=None, top_p=None, n=None)
    assert status == 200, reply
    for wrong in ({"role": "user"}, {"role": "nobody", "content": "x"}, "text", 5, None,
                  {"role": "user", "content": 5}, {"role": "user", "content": [{"type": "image_url"}]},
                  {"role": "user", "content": "x", "surprise": 1},
                  {"role": "assistant", "content": "", "tool_calls": [{"id": 1}]}):
        refused(s.chat(messages=[wrong]), "messages[0]")


def stops(s):
    def content(**fields):
        status, reply = s.chat(response_format=forced("alpha beta gamma delta"),
                               max_tokens=fields.pop("max_tokens", 60), **fields)
        assert status == 200, reply
        choice = reply["choices"][0]
        events, _ = s.stream(CHAT, {"messages": [{"role": "user", "content": "Hi"}],
                                    "response_format": forced("alpha beta gamma delta"),
                                    "max_tokens": 60, **fields})
        pieces = "".join(e["choices"][0]["delta"].get("content", "") for e in events if e["choices"])
        assert pieces == choice["message"]["content"], (pieces, choice)
        return choice["message"]["content"], choice["finish_reason"]

    assert content(stop=["beta gamma"]) == ('"alpha ', "stop")
    assert content(stop=["beta gammon"]) == ('"alpha beta gamma delta"', "stop")
    assert content(stop=["delta"]) == ('"alpha beta gamma ', "stop")
    text, finish = content(stop="a")
    assert text == '"' and finish == "stop", text
    assert s.chat(stop=["a", "b", "c", "d"])[0] == 200
    refused(s.chat(stop=["a", "b", "c", "d", "e"]), "stop")
    refused(s.chat(stop=""), "stop")
    refused(s.chat(stop=[5]), "stop")


def frames(s):
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 6, "temperature": 0}
    status, whole = s.chat("Hi", max_tokens=6, temperature=0)
    events, text = s.stream(CHAT, body)
    assert text.endswith("data: [DONE]\n\n")
    for block in text.split("\n\n")[:-1]:
        assert block.startswith(("data: ", ":")) and "\n" not in block, block
    assert len({e["id"] for e in events}) == 1 and len({e["created"] for e in events}) == 1
    assert all(e["object"] == "chat.completion.chunk" and "usage" not in e for e in events)
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    assert events[-1]["choices"][0]["delta"] == {}
    assert events[-1]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert all(e["choices"][0]["finish_reason"] is None for e in events[:-1])
    assert "".join(e["choices"][0]["delta"].get("content", "") for e in events) == \
        whole["choices"][0]["message"]["content"]
    events, _ = s.stream(CHAT, {**body, "stream_options": {"include_usage": True}})
    assert all(e["usage"] is None for e in events[:-1])
    last = events[-1]
    assert last["choices"] == []
    for key in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert last["usage"][key] == whole["usage"][key]
    refused(s.chat(stream_options={"include_usage": True}), "stream_options")


def schemas(s):
    def ask(schema):
        return s.chat(response_format={"type": "json_schema",
                                       "json_schema": {"name": "t", "schema": schema}},
                      max_tokens=60)

    status, reply = ask({"type": "string", "pattern": "^hello there indeed\\!$"})
    if status == 200:
        assert json.loads(reply["choices"][0]["message"]["content"]) == "hello there indeed!"
    else:
        assert "pattern" in refused((status, reply))["message"]
    refused(s.chat(response_format={"type": "json_schema"}), "response_format")
    refused(s.chat(response_format={"type": "json_schema", "json_schema": {"name": "t"}}),
            "response_format")
    refused(s.chat(response_format={"type": "yaml"}), "response_format")
    assert "/type" in refused(ask({"type": "strnig"}))["message"]
    assert "$ref" in refused(ask({"$ref": "#/$defs/none"}))["message"]
    status, reply = ask({"type": "object", "propertyNames": {"minLength": 2}})
    assert status == 200 or "propertyNames" in refused((status, reply))["message"]
    text = ('{"messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_schema",'
            '"json_schema":{"name":"t","schema":' + '{"type":"array","items":' * 20000 + '{}' +
            '}' * 20000 + '}}}')
    status, reply = s.post(CHAT, text.encode())
    assert status == 400, (status, reply)


def ranges(s):
    def completion(**fields):
        return s.post("/v1/completions", {"max_tokens": 2, "prompt": "x", **fields})

    for prompt in ([-1], [2147483647], [[1], [999999999]], [], "", [[]], [[1], "x", 5], {}, 5, [1.5]):
        refused(completion(prompt=prompt), "prompt")
    for field, values in {
            "temperature": (999999, -0.1, "hot", [], True), "top_p": (-1, 1.1, "x"),
            "repeat_penalty": (0, -1), "top_k": (-5, 1.5, 1e30), "max_tokens": (-3, 0, 1e30, "5"),
            "seed": (-1, 18446744073709551616, 1.5, "x"), "min_p": (2, -1), "n": (0, -1, 1000, 1.5),
            "presence_penalty": (3, -3), "frequency_penalty": (3, -3),
            "logit_bias": ({"x": 1}, {"5": 101}, {"-1": 1}, {"99999999": 1}, [], {"5": "x"}),
    }.items():
        for value in values:
            refused(s.chat(**{field: value}), field)
    refused(s.chat(logprobs=True, top_logprobs=21), "top_logprobs")
    refused(s.chat(top_logprobs=2), "top_logprobs")
    refused(s.chat(nonsense=1), "nonsense")
    refused(s.chat(**{"x" * 59 + "\u010d": 1}), "x" * 59 + "\u010d")  # cut within a character
    refused(s.chat(**{"\u010d" * 200: 1}), "\u010d" * 63)
    refused(s.chat(model="gpt-9"), "model", 404)
    refused(s.chat(tool_choice="required"), "tool_choice")
    assert s.chat(max_tokens=3.0)[0] == 200


def bodies(s):
    headers = {"Content-Type": "application/json"}
    for body in (b"", b"{", b"[]", b"null", b"5", b"\xff\xfe", b'{"messages": "\xff"}',
                 b'{"a":1,"a":2}', b'{"messages":' + b"[" * 100000, b"{}" * 2,
                 b'{"max_tokens": 1e999}', b'{"messages":[{"role":"user","content":"\\ud800"}]}'):
        status, _, text = s.raw("POST", CHAT, body, headers)
        assert status == 400, (body[:40], status, text)
        assert set(json.loads(text)["error"]) == {"message", "type", "param", "code"}
    status, _, text = s.raw("POST", CHAT, b" " * (17 << 20), headers)
    assert status == 413, status
    assert s.raw("POST", CHAT, b"{}", {"Content-Type": "text/plain"})[0] == 415
    assert s.raw("GET", CHAT)[0] == 405
    assert s.raw("GET", "/nothing")[0] == 404
    assert s.raw("GET", "/../../etc/passwd")[0] == 404
    assert s.raw("GET", "/" + "a" * 9000)[0] in (404, 414)


def raw_garbage(s):
    for data in (b"\0" * 1000, b"GET\r\n\r\n", b"POST / HTTP/9.9\r\n\r\n", b"\x16\x03\x01" * 50,
                 b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 20000 + b"\r\n",
                 b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
                 b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
                 b"\r\nTransfer-Encoding: chunked\r\n\r\nZZZ\r\n"):
        with socket.create_connection(("127.0.0.1", s.port)) as c:
            c.settimeout(30)
            try:
                c.sendall(data)
                c.shutdown(socket.SHUT_WR)
                while c.recv(65536):
                    pass
            except OSError:
                pass
    with socket.create_connection(("127.0.0.1", s.port)) as c:
        c.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                  b"application/json\r\nContent-Length: 100\r\n\r\n{")


def disconnects(s):
    before = s.metric("cancelled_total")
    body = {"messages": [{"role": "user", "content": "Write a long story about a dragon."}],
            "max_tokens": 2000}
    c = s.open(CHAT, {**body, "stream": True})
    got = b""
    while got.count(b"data:") < 3:
        got += c.recv(4096)
    c.close()
    s.wait_idle()
    c = s.open(CHAT, body)
    time.sleep(0.5)
    c.close()
    s.wait_idle()
    c = s.open(CHAT, {**body, "messages": [{"role": "user", "content": "some words " * 1800}]})
    time.sleep(0.3)
    c.close()
    s.wait_for("cancelled_total", before + 3)
    s.wait_idle()
    c = s.open(CHAT, {**body, "stream": True, "max_tokens": 40})
    c.shutdown(socket.SHUT_WR)
    got = b""
    while True:
        data = c.recv(65536)
        if not data:
            break
        got += data
        if b"[DONE]" in got:
            break
    c.close()
    assert b"[DONE]" in got
    assert s.metric("cancelled_total") == before + 3


def overflow(s):
    def ask(n, **fields):
        status, reply = s.post("/v1/completions", {"prompt": [5] * n, **fields})
        return status, reply

    error = refused(ask(600), "prompt")
    assert error["code"] == "context_length_exceeded"
    assert "600" in error["message"] and "512" in error["message"]
    status, reply = ask(500, max_tokens=100, logit_bias={"0": -100, "2": -100})
    assert status == 200 and reply["usage"]["completion_tokens"] <= 12
    assert refused(ask(512))["code"] == "context_length_exceeded"
    status, reply = ask(511)
    assert status == 200 and reply["usage"]["completion_tokens"] == 1, reply
    turns = [{"role": "user" if i % 2 == 0 else "assistant", "content": f"turn {i} " + "word " * 40}
             for i in range(21)]
    assert refused(s.chat(messages=turns))["code"] == "context_length_exceeded"
    status, reply = s.chat(messages=turns, truncation="auto")
    assert status == 200 and reply["usage"]["prompt_tokens"] <= 511, reply
    huge = [{"role": "user", "content": "word " * 1000}]
    assert refused(s.chat(messages=huge, truncation="auto"))["code"] == "context_length_exceeded"


def hosts(s):
    def status(**headers):
        return s.raw("GET", "/v1/models", headers=headers)[0]

    p = s.port
    assert status(Host=f"evil.example:{p}") == 403
    for host in (f"localhost:{p}", "127.0.0.1", f"[::1]:{p}", f"LOCALHOST:{p}"):
        assert status(Host=host) == 200, host
    assert status(Host="localhost.evil.example") == 403
    assert status(Host="127.0.0.1.evil.example") == 403
    with socket.create_connection(("127.0.0.1", p)) as c:
        c.settimeout(30)
        c.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        assert c.recv(100).split()[1] == b"200"
    for origin in ("https://evil.example", "null", "http://localhost.evil.example"):
        _, headers, _ = s.raw("GET", "/v1/models", headers={"Origin": origin})
        assert "access-control-allow-origin" not in headers
        code, headers, _ = s.raw("OPTIONS", CHAT, headers={
            "Origin": origin, "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization"})
        assert code == 204 and "access-control-allow-origin" not in headers
        assert s.raw("POST", CHAT, b"{}", {"Origin": origin, "Content-Type": "text/plain"})[0] == 415


def keys():
    with Server("--api-key", "secret", "--cors", "https://page.example") as s:
        assert s.raw("GET", "/v1/models")[0] == 401
        for key in ("secre", "secrets", "Secret", ""):
            assert s.raw("GET", "/v1/models", headers={"Authorization": f"Bearer {key}"})[0] == 401
        assert s.raw("GET", "/v1/models", headers={"Authorization": "Bearer secret"})[0] == 200
        assert s.raw("GET", "/v1/models", headers={"x-api-key": "secret"})[0] == 200
        assert s.raw("GET", "/health")[0] == 200
        code, headers, _ = s.raw("OPTIONS", CHAT, headers={"Origin": "https://page.example"})
        assert code == 204 and headers["access-control-allow-origin"] == "https://page.example"
        assert "access-control-allow-credentials" not in headers


def embeddings(s):
    def ask(**fields):
        return s.post("/v1/embeddings", fields)

    status, one = ask(input="a")
    assert status == 200 and one["object"] == "list"
    vector = one["data"][0]["embedding"]
    assert abs(math.sqrt(sum(x * x for x in vector)) - 1) < 1e-4
    status, many = ask(input=["a", "b", "a"])
    assert [d["index"] for d in many["data"]] == [0, 1, 2]
    assert many["data"][0]["embedding"] == many["data"][2]["embedding"] == vector
    assert many["usage"]["prompt_tokens"] == 3 * one["usage"]["prompt_tokens"]
    assert ask(input=[1, 2, 3])[0] == 200 and len(ask(input=[[1, 2], [3]])[1]["data"]) == 2
    status, packed = ask(input="a", encoding_format="base64")
    raw = base64.b64decode(packed["data"][0]["embedding"])
    assert list(struct.unpack(f"<{len(raw) // 4}f", raw)) == [
        struct.unpack("<f", struct.pack("<f", x))[0] for x in vector]
    for wrong in ("", [], ["a", ""], None, 5, [[]], {"a": 1}, [-1], [[99999999]]):
        refused(ask(input=wrong), "input")
    refused(ask(input="a", dimensions=8), "dimensions")
    refused(ask(input="a", encoding_format="hex"), "encoding_format")
    status, reply = ask(input="many words " * 1000)
    assert status == 200 or refused((status, reply))["code"] == "context_length_exceeded"


def busy():
    with Server("--parallel", "1", "--queue", "1") as s:
        body = {"messages": [{"role": "user", "content": "Tell a story"}], "max_tokens": 1000,
                "stream": True}
        held = []
        for _ in range(2):
            c = s.open(CHAT, body)
            held.append(c)
            time.sleep(0.3)
        status, headers, text = s.raw("POST", CHAT, json.dumps(body).encode(),
                                      {"Content-Type": "application/json"})
        assert status == 429 and "retry-after" in headers, (status, text)
        assert json.loads(text)["error"]["type"] == "rate_limit_error"
        for c in held:
            c.close()
        s.wait_idle()
        s.healthy()


def drain():
    s = Server()
    c = s.open(CHAT, {"messages": [{"role": "user", "content": "Count to ten"}], "max_tokens": 100,
                      "stream": True})
    c.recv(100)
    s.process.terminate()
    got = b""
    while True:
        data = c.recv(65536)
        if not data:
            break
        got += data
    assert b"[DONE]" in got
    assert s.process.wait(60) == 0


def models():
    r = run("serve", "--port", "0", "/nonexistent.gguf")
    assert r.returncode == 1 and "/nonexistent.gguf" in r.stderr and r.stderr.count("\n") == 1, r
    with Server(models=("one=" + MODEL, "two=" + MODEL)) as s:
        status, text = s.get("/v1/models")
        assert [m["id"] for m in json.loads(text)["data"]] == ["one", "two"]
        a = s.chat(model="one", temperature=0)[1]["choices"][0]["message"]
        b = s.chat(model="two", temperature=0)[1]["choices"][0]["message"]
        assert a == b
        refused(s.chat(model="three"), "model", 404)


def idle():
    with Server("--idle", "1") as s:
        s.healthy()
        until = time.time() + 3 * PATIENCE
        while json.loads(s.get("/v1/models")[1])["data"][0]["loaded"]:
            assert time.time() < until, "an idle model is not unloaded"
            time.sleep(0.1)
        s.healthy()


def ready():
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/notify"
        manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        manager.bind(path)
        manager.settimeout(6 * PATIENCE)
        with Server(env={"NOTIFY_SOCKET": path}):
            assert manager.recv(100) == b"READY=1"
        assert manager.recv(100) == b"STOPPING=1"
        manager.close()


def log_lines():
    with Server("--log-format", "json") as s:
        s.chat()
        _, headers, _ = s.raw("GET", "/health")
        lines = [json.loads(x) for x in s.text().splitlines() if x.startswith("{")]
        chat = next(x for x in lines if x["path"] == CHAT)
        assert chat["status"] == 200 and chat["prompt_tokens"] > 0 and chat["answer_tokens"] > 0
        assert headers["x-request-id"].startswith("req_")
        names = {line.split()[2] for line in s.get("/metrics")[1].splitlines()
                 if line.startswith("# TYPE")}
        for name in ("slm_requests_total", "slm_queue_seconds", "slm_token_seconds", "slm_rows_total",
                     "slm_cached_tokens_total", "slm_cache_bytes", "slm_waiting"):
            assert name in names, name


TEMPLATE = """{%- set ns = namespace(last=-1) %}
{%- for m in messages[::-1] %}
    {%- set i = (messages|length - 1) - loop.index0 %}
    {%- if ns.last < 0 and m.role == 'user' %}{% set ns.last = i %}{% endif %}
{%- endfor %}
last={{ ns.last }}
{% for m in messages %}
[{{ loop.index0 }}/{{ loop.revindex0 }}] {{ m['role'] }}: {{ m.content | trim }}{{ '' if loop.last else ';' }}
{% endfor %}
{%- if add_generation_prompt %}GO{% endif %}"""


def templates():
    turns = [{"role": "system", "content": " S "}, {"role": "user", "content": "one"},
             {"role": "assistant", "content": "two"}, {"role": "user", "content": "three"}]
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as f:
        f.write(TEMPLATE)
        f.flush()
        with Server("--template", f.name) as s:
            status, reply = s.post("/apply-template", {"messages": turns})
            assert status == 200 and reply["prompt"] == (
                "last=3\n[0/3] system: S;\n[1/2] user: one;\n[2/1] assistant: two;\n[3/0] user: "
                "three\nGO"), reply
            s.healthy()
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as f:
        f.write("{% for m in messages %}{{ m.role }}{% endfo %}")
        f.flush()
        r = run("serve", "--port", "0", "--template", f.name, MODEL)
        assert r.returncode == 1 and "line 1" in r.stderr, r


def string(s):
    return struct.pack("<Q", len(s)) + s.encode()


def entry(key, kind, value):
    return string(key) + struct.pack("<I", kind) + value


def tensor(name, dims, n_dims=None):
    return (string(name) + struct.pack("<I", len(dims) if n_dims is None else n_dims) +
            b"".join(struct.pack("<Q", d % 2 ** 64) for d in dims) + struct.pack("<IQ", 0, 0))


def gguf(entries, tensors):
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries))
    b = head + b"".join(entries) + b"".join(tensors)
    return b + b"\0" * (-len(b) % 32 + 128)


def files():
    arch = entry("general.architecture", 8, string("llama"))
    bad = [gguf([arch], [tensor("a", dims)]) for dims in ([32, 0], [0], [-1], [1] * 5)]
    bad += [gguf([arch], [tensor("a", [], 0)]), gguf([arch], [tensor("a", [1], 9)]),
            gguf([arch], [tensor("", [32])]), gguf([arch, entry("", 4, b"\1\0\0\0")], [])]
    for i, data in enumerate(bad):
        with tempfile.NamedTemporaryFile(suffix=".gguf") as f:
            f.write(data)
            f.flush()
            r = run("info", f.name)
            assert r.returncode == 1 and f.name in r.stderr and r.stderr.count("\n") == 1, (i, r)


def main():
    cases = Cases()
    with Server("--context", "4096") as s:
        for case in (contents, stops, frames, schemas, ranges, bodies, raw_garbage,
                     disconnects, hosts, embeddings):
            cases.run(case, s)
            cases.run(Server.healthy, s)
    with Server("--context", "512") as s:
        for case in (long_runs, overflow):
            cases.run(case, s)
            cases.run(Server.healthy, s)
    for case in (keys, busy, drain, models, idle, ready, log_lines, templates, files):
        cases.run(case)
    cases.finish()


main()

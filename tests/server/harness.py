"""Starts `slm serve` for a test and talks to it, with Python's standard library only.

    SLM     the program (required)
    MODEL   a GGUF file with a chat template (required)
"""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

SLM = os.environ["SLM"]
MODEL = os.environ["MODEL"]

# Sanitizer builds and emulators are slow; guards against hangs are multiplied by this.
PATIENCE = float(os.environ.get("PATIENCE", "10"))


class Server:
    """One server process on a free port."""

    def __init__(self, *options, models=(MODEL,), env=None):
        self.log = tempfile.NamedTemporaryFile("w+", prefix="slm-serve", suffix=".log")
        self.process = subprocess.Popen(
            [SLM, "serve", "--port", "0", *options, *models], stderr=self.log,
            stdout=subprocess.DEVNULL, env={**os.environ, **(env or {})})
        self.port = self.wait_for_port()

    def wait_for_port(self):
        until = time.time() + 6 * PATIENCE
        while time.time() < until:
            found = re.search(r"listening on http://\S*:(\d+)", self.text())
            if found:
                return int(found.group(1))
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended: {self.text()}")
            time.sleep(0.02)
        raise RuntimeError(f"the server does not listen: {self.text()}")

    def text(self):
        with open(self.log.name) as log:
            return log.read()

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(3 * PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        code = self.stop()
        if code != 0:
            print(self.text()[-4000:], file=sys.stderr)
            raise RuntimeError(f"the server ended with code {code}")

    # ---- requests ----------------------------------------------------------------

    def raw(self, method, path, body=None, headers=None, timeout=None):
        """(status, headers, bytes)"""
        conn = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout or 30 * PATIENCE)
        try:
            conn.request(method, path, body, headers or {})
            r = conn.getresponse()
            return r.status, dict((k.lower(), v) for k, v in r.getheaders()), r.read()
        finally:
            conn.close()

    def post(self, path, body, headers=None):
        """(status, JSON)"""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        status, _, text = self.raw("POST", path, data,
                                   {"Content-Type": "application/json", **(headers or {})})
        return status, json.loads(text)

    def get(self, path):
        status, _, text = self.raw("GET", path)
        return status, text.decode()

    def chat(self, content="Hi", **fields):
        messages = fields.pop("messages", [{"role": "user", "content": content}])
        fields.setdefault("max_tokens", 8)
        return self.post("/v1/chat/completions", {"messages": messages, **fields})

    def stream(self, path, body):
        """The data of all events, parsed, and the raw text."""
        status, headers, text = self.raw("POST", path, json.dumps({**body, "stream": True}).encode(),
                                         {"Content-Type": "application/json"})
        assert status == 200, text
        assert headers["content-type"].startswith("text/event-stream"), headers
        events = []
        for event in text.decode().split("\n\n"):
            for line in event.split("\n"):
                if line.startswith("data: ") and line != "data: [DONE]":
                    events.append(json.loads(line[6:]))
        return events, text.decode()

    def open(self, path, body):
        """A socket on which the request has been sent."""
        data = json.dumps(body).encode()
        s = socket.create_connection(("127.0.0.1", self.port))
        s.settimeout(30 * PATIENCE)
        s.sendall((f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                   f"Content-Length: {len(data)}\r\n\r\n").encode() + data)
        return s

    def metric(self, name):
        found = re.search(rf"^slm_{name} (\S+)$", self.get("/metrics")[1], re.M)
        return float(found.group(1))

    def wait_for(self, name, value):
        until = time.time() + 3 * PATIENCE
        while self.metric(name) != value:
            assert time.time() < until, f"{name} is {self.metric(name)}, not {value}"
            time.sleep(0.02)

    def wait_idle(self):
        until = time.time() + 3 * PATIENCE
        while time.time() < until:
            if self.metric("running") == 0 and self.metric("waiting") == 0:
                return
            time.sleep(0.02)
        raise AssertionError("the server does not become idle")

    def healthy(self):
        assert self.get("/health")[0] == 200
        status, reply = self.chat(max_tokens=2, temperature=0)
        assert status == 200, reply
        return reply["choices"][0]["message"]["content"]


def forced(value):
    """A response_format whose only answer is the JSON of value."""
    return {"type": "json_schema",
            "json_schema": {"name": "t", "strict": True, "schema": {"const": value}}}


def refused(reply, param=None, status=400):
    """Checks an error reply; its message."""
    code, body = reply
    assert code == status, (code, body)
    error = body["error"]
    assert set(error) == {"message", "type", "param", "code"}, error
    if param is not None:
        assert error["param"] is not None and error["param"].startswith(param), error
    return error


class Cases:
    """Runs functions by name and counts."""

    def __init__(self):
        self.passed = self.failed = 0

    def run(self, function, *arguments):
        t0 = time.time()
        try:
            function(*arguments)
            self.passed += 1
            print(f"ok     {function.__name__} ({time.time() - t0:.1f} s)", flush=True)
        except Exception as e:
            self.failed += 1
            import traceback
            traceback.print_exc()
            print(f"FAILED {function.__name__}: {type(e).__name__}: {e}", flush=True)

    def finish(self):
        print(f"{self.passed} passed, {self.failed} failed")
        sys.exit(self.failed > 0)

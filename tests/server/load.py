"""Many clients at once: long and short, some that go away, some that send garbage.

Nothing is lost, memory stays flat, and every finished answer equals the same request alone.

    python3 load.py [SECONDS] [CLIENTS]
"""
import json
import os
import random
import socket
import sys
import threading
import time

from harness import Cases, Server

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 20
CLIENTS = int(sys.argv[2]) if len(sys.argv) > 2 else 32
CHAT = "/v1/chat/completions"
WORDS = "river stone light winter garden paper engine music simple number".split()


def request(rng):
    """One of a limited set, so that answers can be compared."""
    long = rng.random() < 0.2
    key = rng.randrange(12)
    r = random.Random(key)
    text = " ".join(r.choice(WORDS) for _ in range(400 if long else 12))
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 24 if long else 12,
            "temperature": 0.8, "seed": key}


def rss(server):
    with open(f"/proc/{server.process.pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))


class Load:
    def __init__(self, server):
        self.server = server
        self.lock = threading.Lock()
        self.answers = {}      # request -> set of answers
        self.counts = {"whole": 0, "streamed": 0, "left": 0, "garbage": 0, "busy": 0}
        self.wrong = []
        self.until = time.time() + SECONDS

    def count(self, what):
        with self.lock:
            self.counts[what] += 1

    def answer(self, body, text):
        with self.lock:
            self.answers.setdefault(json.dumps(body), set()).add(text)

    def whole(self, rng):
        body = request(rng)
        status, reply = self.server.post(CHAT, body)
        if status == 429:
            self.count("busy")
            time.sleep(0.1)
        elif status == 200:
            self.answer(body, reply["choices"][0]["message"]["content"])
            self.count("whole")
        else:
            self.wrong.append((status, reply))

    def streamed(self, rng):
        body = request(rng)
        events, text = self.server.stream(CHAT, body)
        if not text.endswith("[DONE]\n\n"):
            self.wrong.append(text[-200:])
        self.answer(body, "".join(e["choices"][0]["delta"].get("content", "") for e in events))
        self.count("streamed")

    def left(self, rng):
        c = self.server.open(CHAT, {**request(rng), "stream": rng.random() < 0.5, "max_tokens": 500})
        time.sleep(rng.random())
        c.close()
        self.count("left")

    def garbage(self, rng):
        with socket.create_connection(("127.0.0.1", self.server.port)) as c:
            c.settimeout(30)
            c.sendall(rng.randbytes(rng.randrange(1, 2000)) + b"\r\n\r\n")
            try:
                c.recv(1000)
            except OSError:
                pass
        self.count("garbage")

    def client(self, number):
        rng = random.Random(number)
        while time.time() < self.until:
            act = rng.choices((self.whole, self.streamed, self.left, self.garbage), (5, 5, 1, 1))[0]
            try:
                act(rng)
            except (OSError, AssertionError) as e:
                if act is self.streamed and "429" in str(e) or "rate_limit" in str(e):
                    self.count("busy")
                elif act is not self.garbage:
                    self.wrong.append(repr(e))

    def run(self):
        threads = [threading.Thread(target=self.client, args=(i,)) for i in range(CLIENTS)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()


def load(server):
    run = Load(server)
    run.run()
    server.wait_idle()
    print(run.counts, "distinct requests:", len(run.answers))
    assert not run.wrong, run.wrong[:3]
    assert run.counts["whole"] + run.counts["streamed"] > 0
    for body, answers in run.answers.items():
        status, alone = server.post(CHAT, json.loads(body))
        assert answers == {alone["choices"][0]["message"]["content"]}, (body, answers, alone)


def flat(server):
    """Memory after a second load is what it was after the first."""
    first = rss(server)
    Load(server).run()
    server.wait_idle()
    second = rss(server)
    print(f"resident: {first} KiB, then {second} KiB")
    assert second < first * 1.05 + 8192, (first, second)


def main():
    cases = Cases()
    # A cache so small that it is full soon: then memory must not grow any more.
    with Server("--context", "1024", "--cache", "96", "--quiet") as server:
        cases.run(load, server)
        if os.environ.get("SANITIZED"):
            print("skipped: whether memory stays flat; the sanitizer's own grows")
        else:
            cases.run(flat, server)
    cases.finish()


main()

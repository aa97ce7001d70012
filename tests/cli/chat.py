#!/usr/bin/env python3
"""chat.py - slm chat as somebody at a terminal uses it.

    chat.py SLM MODEL.gguf

Types into a pseudo-terminal and looks at what comes out.  Needs the standard library only.
"""
import os
import pty
import re
import select
import signal
import sys
import tempfile
import termios
import time

SLM, MODEL = sys.argv[1:3]
TEMPLATE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
LIMIT = 60  # seconds until a missing answer counts as a failure


class Chat:
    def __init__(self, folder, *options):
        env = dict(os.environ, TERM="xterm", LC_ALL="C.UTF-8", SLM_HISTORY=folder + "/h/history",
                   # libedit copies the names of functions that are added and never frees them.
                   LSAN_OPTIONS="print_suppressions=0:suppressions=" + folder + "/leaks")
        env.pop("NO_COLOR", None)
        self.seen = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execve(SLM, [SLM, "chat", MODEL, "--template", "t.jinja", *options], env)

    def read(self, seconds):
        """What comes within a time, as text."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return ""
        try:
            return os.read(self.fd, 65536).decode("utf-8", "replace")
        except OSError:
            return ""

    def expect(self, pattern):
        """Waits until the pattern is there; drops all up to its end."""
        end = time.time() + LIMIT
        while time.time() < end:
            match = re.search(pattern, self.seen)
            if match:
                self.seen = self.seen[match.end():]
                return match
            self.seen += self.read(0.2)
        sys.exit("no %r in %r" % (pattern, self.seen[-2000:]))

    def send(self, text):
        os.write(self.fd, text.encode())

    def line(self, text):
        self.send(text + "\r")

    def prompt(self):
        self.expect(r"> (\x1b\[[0-9;?]*[A-Za-z])*$")
        # Who sees the prompt may press Ctrl-C, and then it has to be a key already.
        assert not termios.tcgetattr(self.fd)[3] & termios.ISIG

    def close(self):
        end = time.time() + LIMIT
        while time.time() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            self.seen += self.read(0.1)
        os.kill(self.pid, signal.SIGKILL)
        sys.exit("the chat does not end: %r" % self.seen[-2000:])


def conversation(folder):
    chat = Chat(folder, "-n", "5")
    chat.expect("/help lists the commands")
    chat.prompt()
    chat.line("/help")
    chat.expect("/regen +answer the last question once more")
    chat.prompt()
    chat.line("hello there")
    chat.prompt()
    chat.line("/stats")
    chat.expect(r"last answer +5 tokens \(length\)")
    chat.prompt()
    chat.line("/regen")
    chat.prompt()
    chat.line("/save a.json")
    chat.expect("saved 2 messages")
    chat.prompt()
    chat.line("/undo")
    chat.expect("taken back: hello there")
    chat.prompt()
    chat.line("/undo")
    chat.expect("nothing to take back")
    chat.prompt()
    chat.line("/load a.json")
    chat.expect("2 messages")
    chat.prompt()
    chat.line("/set temperature 0.25")
    chat.prompt()
    chat.line("/set top_k 999999999999")
    chat.expect("top_k needs a whole number")
    chat.prompt()
    chat.line("/set")
    chat.expect("temperature +0.25")
    chat.prompt()
    # The line above comes back from the history.
    chat.send("\x1b[A\r")
    chat.expect("settings")
    chat.prompt()
    chat.send("nothing to send\x03")
    chat.expect(r"\^C")
    chat.prompt()
    chat.send("\x04")
    code = chat.close()
    assert code == 0, (code, chat.seen)
    assert os.path.exists(folder + "/a.json.kv")
    assert os.path.exists(folder + "/h/history")
    assert os.stat(folder + "/h/history").st_mode & 0o077 == 0


def paste(folder):
    """Pasted lines are one question, whatever is in them."""
    chat = Chat(folder, "-n", "3", "--show-prompt")
    chat.prompt()
    chat.send("see: \x1b[200~one\r/exit\rthr\xe9e \\\x1b[201~ end\r")
    chat.expect(r"\[user\] see: one\r\n/exit\r\nthr\xe9e \\ end\r\n")
    chat.prompt()
    chat.line('"""first')
    chat.expect(r"\. ")
    chat.line('second"""')
    chat.expect(r"\[user\] first\r\nsecond\r\n")
    chat.prompt()
    chat.line("a \\")
    chat.expect(r"\. ")
    chat.line("b")
    chat.expect(r"\[user\] a \r\nb\r\n")
    chat.prompt()
    chat.line("/exit")
    code = chat.close()
    assert code == 0, (code, chat.seen)


def interrupt(folder):
    """Ctrl-C ends the answer and nothing else."""
    # Without the token that ends an answer it would go on to the end of the context.
    chat = Chat(folder, "--context", "32000", "-t", "1", "--pack", "off", "--logit-bias", "2:-inf")
    chat.prompt()
    chat.line("go on for ever")
    chat.expect(r"go on for ever\s+(.|\n){60}")
    chat.send("\x03")
    chat.expect("slm: stopped")
    chat.prompt()
    chat.line("/stats")
    chat.expect("interrupted")
    chat.prompt()
    chat.line("/exit")
    code = chat.close()
    assert code == 0, (code, chat.seen)


def main():
    for part in conversation, paste, interrupt:
        with tempfile.TemporaryDirectory() as folder:
            with open(folder + "/t.jinja", "w") as f:
                f.write(TEMPLATE)
            with open(folder + "/leaks", "w") as f:
                f.write("leak:wcsdup\n")
            part(folder)
            print(part.__name__, "ok", flush=True)


main()

"""A small hub on loopback that can misbehave.

Repositories are dictionaries of files; what goes wrong is set per file.  Every request is
kept, so that tests see what was asked for and with which token.
"""
import hashlib
import json
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class File:
    """Content, what the listing says about it, and the ways in which it is sent wrongly."""

    def __init__(self, data, size=None, **faults):
        self.data = data
        self.size = len(data) if size is None else size   # beyond the data: zeros
        self.sha256 = hashlib.sha256(data).hexdigest()
        self.breaks = faults.get("breaks", 0)       # requests cut off after `cut` bytes
        self.cut = faults.get("cut", 100000)
        self.errors = faults.get("errors", 0)       # requests answered with 503
        self.no_range = faults.get("no_range", False)
        self.wrong_total = faults.get("wrong_total")
        self.wrong_start = faults.get("wrong_start", 0)
        self.status = faults.get("status")
        self.redirect = faults.get("redirect")      # another server, or "loop"
        self.delay = faults.get("delay", 0)         # seconds for each 64 KiB
        self.sent = 0
        self.as_git = faults.get("as_git", False)

    def read(self, begin, end):
        part = self.data[begin:end]
        return part + bytes(end - begin - len(part))


class Hub:
    def __init__(self):
        self.repos = {}       # "user/name": {path: File}
        self.listings = {}    # "user/name": bytes or status in place of the real listing
        self.requests = []    # (path, range, authorization)
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_GET(self):
                hub.requests.append((self.path, self.headers.get("Range"),
                                     self.headers.get("Authorization")))
                try:
                    hub.answer(self)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

        class Server(ThreadingHTTPServer):
            def handle_error(self, request, client_address):
                pass  # clients hang up, as they should

        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.url = "http://127.0.0.1:%d" % self.port
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def listing(self, repo):
        siblings = []
        for path, f in self.repos[repo].items():
            entry = {"rfilename": path, "size": f.size}
            if f.as_git:
                entry["blobId"] = hashlib.sha1(b"blob %d\0" % len(f.data) + f.data).hexdigest()
            else:
                entry["lfs"] = {"sha256": f.sha256, "size": f.size, "pointerSize": 130}
            siblings.append(entry)
        return json.dumps({"id": repo, "sha": COMMIT, "siblings": siblings}).encode()

    @staticmethod
    def send(h, status, body, headers=()):
        h.send_response(status)
        for name, value in headers:
            h.send_header(name, value)
        h.send_header("Content-Length", str(len(body)))
        h.end_headers()
        h.wfile.write(body)

    def answer(self, h):
        path = urllib.parse.unquote(h.path.split("?")[0])
        if path.startswith("/api/models/"):
            repo = "/".join(path.split("/")[3:5])
            special = self.listings.get(repo)
            if isinstance(special, int):
                self.send(h, special, b"{}")
            elif special is not None:
                self.send(h, 200, special)
            elif repo in self.repos:
                self.send(h, 200, self.listing(repo))
            else:
                self.send(h, 404, b"{}")
            return
        parts = path.lstrip("/").split("/resolve/%s/" % COMMIT)
        if len(parts) == 2 and parts[1] in self.repos.get(parts[0], {}):
            self.send_file(h, self.repos[parts[0]][parts[1]])
        else:
            self.send(h, 404, b"")

    def send_file(self, h, f):
        if f.redirect == "loop":
            return self.send(h, 302, b"", [("Location", h.path)])
        if f.redirect:
            return self.send(h, 302, b"moved", [("Location", f.redirect + h.path)])
        if f.status:
            return self.send(h, f.status, b"")
        if f.errors > 0:
            f.errors -= 1
            return self.send(h, 503, b"")
        begin, end, status, headers = 0, f.size, 200, []
        asked = h.headers.get("Range")
        if asked and not f.no_range:
            begin, last = asked.split("=")[1].split("-")
            begin = int(begin) + f.wrong_start
            end = min(f.size, int(last) + 1 if last else f.size)
            status = 206
            total = f.size if f.wrong_total is None else f.wrong_total
            headers.append(("Content-Range", "bytes %d-%d/%d" % (begin, end - 1, total)))
        h.send_response(status)
        for name, value in headers:
            h.send_header(name, value)
        h.send_header("Content-Length", str(end - begin))
        h.end_headers()
        if f.breaks > 0:
            f.breaks -= 1
            end = min(end, begin + f.cut)
            h.close_connection = True
        while begin < end:
            n = min(1 << 16, end - begin)
            h.wfile.write(f.read(begin, begin + n))
            time.sleep(f.delay)
            f.sent += n
            begin += n
        if h.close_connection:
            h.wfile.flush()
            h.connection.close()

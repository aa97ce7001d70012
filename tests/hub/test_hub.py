"""Models by name, against a hub on loopback that breaks, lies and attacks.

    python3 test_hub.py SLM DATA [CASE.test ...]

The standard library only.
"""
import json
import os
import pty
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

from server import COMMIT, File, Hub

SLM, DATA = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
SMALL = os.path.join(DATA, "models", "llama-Q4_0", "model.gguf")


def read(path):
    with open(path, "rb") as f:
        return f.read()


def make_large():
    """The small model in F32: larger than what is read as its header."""
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "f32.gguf")
    subprocess.run([SLM, "quantize", SMALL, path, "F32", "--quiet"], check=True)
    data = read(path)
    shutil.rmtree(folder)
    return data


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        v = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return v if len(v) > 1 else v[0]

    def string(self):
        n = self.take("Q")
        self.at += n
        return self.data[self.at - n:self.at]

    def value(self, kind):
        if kind == 8:
            self.string()
        elif kind == 9:
            inner, n = self.take("IQ")
            for _ in range(n):
                self.value(inner)
        else:
            self.at += {0: 1, 1: 1, 2: 2, 3: 2, 7: 1, 10: 8, 11: 8, 12: 8}.get(kind, 4)


def make_huge(data, layers=500, width=1 << 20):
    """The header of a model with very many and very wide layers, and the file's size."""
    r = Reader(data)
    r.at = 8
    n_tensors, n_kv = r.take("QQ")
    changed = {}
    for _ in range(n_kv):
        key = r.string()
        kind = r.take("I")
        if key.endswith((b".feed_forward_length", b".block_count")):
            changed[r.at] = width if key.endswith(b"length") else layers
        r.value(kind)
    head = bytearray(data[:r.at])
    for at, v in changed.items():
        struct.pack_into("<I", head, at, v)
    count = offset = 0
    for _ in range(n_tensors):
        name = r.string()
        dims = [r.take("Q") for _ in range(r.take("I"))]
        r.take("IQ")
        if name.startswith(b"blk.") and not name.startswith(b"blk.0."):
            continue
        if b"ffn_" in name and b"norm" not in name:
            dims[0 if b"ffn_down" in name else 1] = width
        size = 4
        for d in dims:
            size *= d
        for i in range(layers if name.startswith(b"blk.") else 1):
            full = name.replace(b"blk.0.", b"blk.%d." % i)
            head += struct.pack("<Q", len(full)) + full + struct.pack("<I", len(dims))
            head += b"".join(struct.pack("<Q", d) for d in dims)
            head += struct.pack("<IQ", 0, offset)
            offset += (size + 31) // 32 * 32
            count += 1
    struct.pack_into("<Q", head, 8, count)
    head += bytes(-len(head) % 32)
    return bytes(head), len(head) + offset


LARGE = make_large()
assert len(LARGE) > (3 << 19)


class Case(unittest.TestCase):
    def setUp(self):
        self.hub = Hub()
        self.box = tempfile.mkdtemp()
        self.home = os.path.join(self.box, "home")
        os.mkdir(os.path.join(self.box, "work"))

    def tearDown(self):
        self.hub.close()
        # Nothing may ever be written beside the cache.
        self.assertLessEqual(set(os.listdir(self.box)), {"home", "work"})
        if os.path.isdir(self.home):
            self.assertLessEqual(set(os.listdir(self.home)), {"hub", "token"})
        shutil.rmtree(self.box)

    def env(self, **more):
        env = {k: v for k, v in os.environ.items()
               if not k.startswith("HF_") and "proxy" not in k.lower()}
        env.update(HF_HOME=self.home, HF_ENDPOINT=self.hub.url, HOME=self.box)
        env.update(more)
        return env

    def slm(self, *args, **more):
        p = subprocess.run([SLM, *args], env=self.env(**more), capture_output=True, timeout=120,
                           stdin=subprocess.DEVNULL, cwd=os.path.join(self.box, "work"))
        return p.returncode, p.stdout.decode(), p.stderr.decode()

    def good(self, *args, **more):
        code, out, err = self.slm(*args, **more)
        self.assertEqual(code, 0, err)
        return out

    def bad(self, reason, *args, **more):
        code, out, err = self.slm(*args, **more)
        self.assertEqual(code, 1, (out, err))
        self.assertIn(reason, err)
        self.assertEqual(out, "")
        return err

    def folder(self, name="user/repo-GGUF"):
        return os.path.join(self.home, "hub", "models--" + name.replace("/", "--"))

    def blobs(self, name="user/repo-GGUF"):
        path = os.path.join(self.folder(name), "blobs")
        return sorted(os.listdir(path)) if os.path.isdir(path) else []

    def no_model(self):
        """No complete blob, no link."""
        for _, _, files in os.walk(self.home):
            for f in files:
                self.assertTrue(f.endswith((".incomplete", ".lock")), f)


class Layout(Case):
    def test_cache_is_the_hub_s_own(self):
        f = File(LARGE)
        self.hub.repos["user/repo-GGUF"] = {"model-Q4_K_M.gguf": f, "README.md": File(b"text")}
        path = self.good("pull", "user/repo-GGUF").strip()
        self.assertEqual(path, os.path.join(self.folder(), "snapshots", COMMIT,
                                            "model-Q4_K_M.gguf"))
        self.assertEqual(os.readlink(path), "../../blobs/" + f.sha256)
        self.assertEqual(read(path), LARGE)
        self.assertEqual(read(os.path.join(self.folder(), "refs", "main")), COMMIT.encode())
        self.assertEqual(self.blobs(), [f.sha256])
        self.assertEqual(sorted(os.listdir(self.folder())), ["blobs", "refs", "snapshots"])

    def test_files_of_other_tools_are_used(self):
        f = File(read(SMALL))
        top = self.folder()
        for d in ("blobs", "refs", "snapshots/%s/deep" % COMMIT):
            os.makedirs(os.path.join(top, d))
        with open(os.path.join(top, "blobs", f.sha256), "wb") as out:
            out.write(f.data)
        with open(os.path.join(top, "refs", "main"), "w") as out:
            out.write(COMMIT)
        os.symlink("../../../blobs/" + f.sha256,
                   os.path.join(top, "snapshots", COMMIT, "deep", "m-Q8_0.gguf"))
        for name in ("user/repo-GGUF", "user/repo-GGUF:q8_0", "user/repo-GGUF/deep/m-Q8_0.gguf"):
            self.assertIn("llama", self.good("info", name, HF_HUB_OFFLINE="1"))
        self.assertEqual(self.hub.requests, [])

    def test_folders_and_small_files_of_git(self):
        self.hub.repos["user/repo-GGUF"] = {"a b/c+d/m#1-Q4_0.gguf": File(read(SMALL), as_git=True)}
        path = self.good("pull", "user/repo-GGUF:Q4_0").strip()
        self.assertEqual(os.readlink(path)[:24], "../../../../blobs/" + os.readlink(path)[18:24])
        self.assertEqual(read(path), read(SMALL))

    def test_second_pull_downloads_nothing(self):
        f = File(LARGE)
        self.hub.repos["user/repo-GGUF"] = {"m-Q4_0.gguf": f}
        self.good("pull", "user/repo-GGUF")
        sent = f.sent
        self.good("pull", "user/repo-GGUF")
        self.assertEqual(f.sent, sent)
        self.assertEqual(sent, len(LARGE))

    def test_list_and_rm(self):
        self.hub.repos["user/repo-GGUF"] = {"m-Q4_0.gguf": File(LARGE),
                                            "m-Q8_0.gguf": File(read(SMALL))}
        self.assertEqual(self.good("list"), "")
        self.good("pull", "user/repo-GGUF:Q4_0")
        self.good("pull", "user/repo-GGUF:Q8_0")
        lines = self.good("list").splitlines()
        self.assertEqual(len(lines), 2)
        self.assertIn("user/repo-GGUF/m-Q4_0.gguf", lines[0])
        self.assertEqual([m["file"] for m in json.loads(self.good("list", "--json"))],
                         ["m-Q4_0.gguf", "m-Q8_0.gguf"])
        self.bad("2 models", "rm", "user/repo-GGUF")
        self.assertIn("MiB", self.good("rm", "user/repo-GGUF:q4_0"))
        self.bad("not in the cache", "rm", "user/repo-GGUF:Q4_0")
        self.assertEqual(len(self.blobs()), 1)
        self.good("rm", "user/repo-GGUF")
        self.assertFalse(os.path.exists(self.folder()))
        self.bad("not in the cache", "rm", "qwen3")

    def test_rm_keeps_what_another_snapshot_needs(self):
        self.hub.repos["user/repo-GGUF"] = {"m-Q4_0.gguf": File(read(SMALL))}
        path = self.good("pull", "user/repo-GGUF").strip()
        other = os.path.join(self.folder(), "snapshots", "f" * 40)
        os.mkdir(other)
        os.symlink(os.readlink(path), os.path.join(other, "renamed.gguf"))
        self.good("rm", "user/repo-GGUF/m-Q4_0.gguf")
        self.assertEqual(len(self.blobs()), 1)


class Names(Case):
    def test_alias_tries_its_repositories_in_order(self):
        self.hub.repos["unsloth/Qwen3-4B-GGUF"] = {"Qwen3-4B-Q4_K_M.gguf": File(read(SMALL))}
        code, out, err = self.slm("pull", "QWEN3")
        self.assertEqual(code, 0, err)
        self.assertIn("Qwen/Qwen3-4B-GGUF", err)
        self.assertIn("404", err)
        self.assertIn("(qwen3)", self.good("list"))
        self.good("info", "qwen3", HF_HUB_OFFLINE="1")

    def test_alias_without_repository_says_what_was_tried(self):
        err = self.bad("phi4 is not to be had; tried bartowski/Phi-4-mini-instruct-GGUF, ",
                       "pull", "phi4")
        self.assertIn("unsloth/Phi-4-mini-instruct-GGUF", err.splitlines()[-1])

    def test_choice_of_the_quantisation(self):
        small = read(SMALL)
        names = ["x-UD-Q4_K_M.gguf", "x-Q4_K_M.gguf", "x-q8_0.gguf", "mmproj-x-F16.gguf",
                 "x-IQ4_XS.gguf"]
        self.hub.repos["user/repo-GGUF"] = {n: File(small + bytes([i])) for i, n in
                                            enumerate(names)}
        for want, name in (("", "x-Q4_K_M.gguf"), (":Q8_0", "x-q8_0.gguf"),
                           (":ud-q4_k_m", "x-UD-Q4_K_M.gguf"), (":Q4_K_M", "x-Q4_K_M.gguf"),
                           ("/x-IQ4_XS.gguf", "x-IQ4_XS.gguf")):
            path = self.good("pull", "user/repo-GGUF" + want).strip()
            self.assertEqual(os.path.basename(path), name)
        err = self.bad("no Q5_K_M; choose one of", "pull", "user/repo-GGUF:Q5_K_M")
        self.assertNotIn("mmproj", err)
        self.bad("no y.gguf", "pull", "user/repo-GGUF/y.gguf")

    def test_every_verb_takes_names(self):
        self.hub.repos["user/repo-GGUF"] = {"m-Q4_0.gguf": File(read(SMALL))}
        name = "user/repo-GGUF:Q4_0"
        text = os.path.join(self.box, "work", "text")
        with open(text, "w") as f:
            f.write("some words to foresee")
        self.assertTrue(self.good("run", "-m", name, "-p", "Hi", "--raw", "-n", "2", "-t", "0"))
        self.good("tokenize", name, "words")
        self.good("info", name)
        self.good("perplexity", name, text)
        self.good("quantize", name, "out.gguf", "Q8_0")
        self.assertEqual(len([r for r in self.hub.requests if r[0].startswith("/api")]), 1)

    def test_files_go_before_names(self):
        shutil.copy(SMALL, os.path.join(self.box, "work", "qwen3"))
        self.good("info", "qwen3")
        self.bad("No such file", "info", "./phi4")
        self.bad("No such file", "info", "folder/model.gguf")
        self.bad("no model of that name", "info", "nothing")
        self.assertEqual(self.hub.requests, [])

    def test_names_that_are_none(self):
        for name in ("../x/y", "a/..", "user/repo:", "user/re po", "user/repo/../../x.gguf",
                     "user/repo/x.txt", "-x/y", "a--b/c", "user/repo/a//b.gguf", "/etc/passwd",
                     "user/repo/a\\b.gguf", "user/repo/a\nb.gguf", "", "a" * 3000 + "/b"):
            code, out, err = self.slm("pull", "--", name)
            self.assertEqual(code, 1, name)
        self.assertEqual(self.hub.requests, [])


class Offline(Case):
    def test_offline(self):
        self.hub.repos["user/repo-GGUF"] = {"m-Q4_0.gguf": File(read(SMALL))}
        self.bad("HF_HUB_OFFLINE", "pull", "user/repo-GGUF", HF_HUB_OFFLINE="1")
        self.bad("HF_HUB_OFFLINE", "info", "user/repo-GGUF", HF_HUB_OFFLINE="true")
        self.assertEqual(self.hub.requests, [])
        self.good("pull", "user/repo-GGUF")
        n = len(self.hub.requests)
        self.good("info", "user/repo-GGUF")
        self.assertEqual(len(self.hub.requests), n)

    def test_server_that_is_not_there(self):
        self.bad("http://127.0.0.1:1", "pull", "user/repo-GGUF", HF_ENDPOINT="http://127.0.0.1:1")
        self.bad("HF_ENDPOINT must begin", "pull", "user/repo", HF_ENDPOINT="ftp://127.0.0.1")


class Transfers(Case):
    def pull(self, f, **more):
        self.hub.repos["user/repo-GGUF"] = {"m-Q4_0.gguf": f}
        path = self.good("pull", "user/repo-GGUF", **more).strip()
        self.assertEqual(read(path), f.data)
        self.assertEqual(self.blobs(), [f.sha256])

    def fails(self, reason, f):
        self.hub.repos["user/repo-GGUF"] = {"m-Q4_0.gguf": f}
        err = self.bad(reason, "pull", "user/repo-GGUF")
        self.no_model()
        return err

    def test_broken_connections_are_resumed(self):
        f = File(LARGE, breaks=6)
        self.pull(f)
        self.assertEqual(f.sent, len(LARGE))

    def test_connection_that_always_breaks(self):
        f = File(LARGE, breaks=10 ** 6, cut=0)
        self.fails("m-Q4_0.gguf", f)
        self.assertEqual(len([r for r in self.hub.requests if "resolve" in r[0]]), 5)

    def test_a_later_run_goes_on(self):
        half = 1500000
        f = File(LARGE)
        os.makedirs(os.path.join(self.folder(), "blobs"))
        with open(os.path.join(self.folder(), "blobs", f.sha256 + ".incomplete"), "wb") as out:
            out.write(LARGE[:half])
        self.pull(f)
        self.assertEqual(f.sent, len(LARGE) - half)

    def test_a_wrong_part_is_downloaded_anew(self):
        f = File(LARGE)
        os.makedirs(os.path.join(self.folder(), "blobs"))
        part = os.path.join(self.folder(), "blobs", f.sha256 + ".incomplete")
        with open(part, "wb") as out:
            out.write(LARGE[:1400000] + b"x" * 5)
        self.pull(f)
        with open(part, "wb") as out:      # longer than the file itself
            out.write(bytes(len(LARGE) + 5))
        os.remove(os.path.join(self.folder(), "blobs", f.sha256))
        self.pull(f)

    def test_server_errors_are_tried_again(self):
        self.pull(File(LARGE, errors=2))

    def test_server_without_ranges(self):
        f = File(LARGE, no_range=True, breaks=2)
        self.pull(f)

    def test_redirection_to_another_server_without_the_token(self):
        other = Hub()
        f = File(LARGE)
        other.repos["user/repo-GGUF"] = {"m-Q4_0.gguf": f}
        url = other.url.replace("127.0.0.1", "localhost")
        self.hub.repos["user/repo-GGUF"] = {"m-Q4_0.gguf": File(LARGE, redirect=url)}
        self.good("pull", "user/repo-GGUF", HF_TOKEN="secret-token")
        self.assertTrue(all(r[2] == "Bearer secret-token" for r in self.hub.requests))
        self.assertTrue(other.requests and all(r[2] is None for r in other.requests))
        other.close()

    def test_token_from_its_file(self):
        os.makedirs(self.home)
        with open(os.path.join(self.home, "token"), "w") as out:
            out.write("from-file\n")
        self.pull(File(read(SMALL)))
        self.assertTrue(all(r[2] == "Bearer from-file" for r in self.hub.requests))

    def test_redirection_without_end(self):
        self.fails("redirect", File(LARGE, redirect="loop"))

    def test_redirection_to_something_else_than_http(self):
        self.fails("m-Q4_0.gguf", File(LARGE, redirect="file:///etc/passwd?"))

    def test_wrong_bytes(self):
        f = File(LARGE)
        f.data = LARGE[:-1] + bytes([LARGE[-1] ^ 1])
        self.fails("its sum is", f)
        self.assertEqual(self.blobs(), [])

    def test_wrong_sizes(self):
        self.fails("but lists", File(LARGE, wrong_total=len(LARGE) + 1))
        self.fails("but lists", File(LARGE, wrong_total=1))
        self.fails("the server begins at byte 4", File(LARGE, wrong_start=4))
        f = File(LARGE)
        f.size -= 1000
        self.fails("", f)

    def test_statuses(self):
        for status in (403, 404, 410, 416):
            self.fails(str(status), File(LARGE, status=status))

    def test_interrupt_keeps_the_part(self):
        f = File(LARGE, breaks=10 ** 6, cut=1 << 16)
        self.hub.repos["user/repo-GGUF"] = {"m-Q4_0.gguf": f}
        p = subprocess.Popen([SLM, "pull", "user/repo-GGUF"], env=self.env(),
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while f.sent == 0:
            time.sleep(0.01)
        f.cut = 0
        time.sleep(0.2)
        p.send_signal(signal.SIGINT)
        _, err = p.communicate(timeout=60)
        self.assertEqual(p.returncode, 130, err)
        self.no_model()
        self.assertGreater(os.path.getsize(os.path.join(self.folder(), "blobs", self.blobs()[0])),
                           0)
        f.breaks = 0
        self.pull(f)

    def test_progress_on_a_terminal(self):
        self.hub.repos["user/repo-GGUF"] = {"m-Q4_0.gguf": File(LARGE, delay=0.1)}
        here, there = pty.openpty()
        p = subprocess.Popen([SLM, "pull", "user/repo-GGUF"], env=self.env(), stderr=there,
                             stdout=subprocess.PIPE)
        os.close(there)
        shown = b""
        while True:
            try:
                shown += os.read(here, 4096)
            except OSError:      # the other end is closed
                break
        p.communicate(timeout=60)
        os.close(here)
        self.assertEqual(p.returncode, 0)
        self.assertRegex(shown, rb"m-Q4_0.gguf \[#+\.+\]  ?\d\d%  1\.[0-9] MiB of 1\.[0-9] MiB  "
                                rb"[0-9.]+ KiB/s  0:0\d left")

    def test_two_at_once_share_the_download(self):
        f = File(LARGE)
        self.hub.repos["user/repo-GGUF"] = {"m-Q4_0.gguf": f}
        all_ = [subprocess.Popen([SLM, "pull", "user/repo-GGUF"], env=self.env(),
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                for _ in range(3)]
        for p in all_:
            _, err = p.communicate(timeout=120)
            self.assertEqual(p.returncode, 0, err)
        self.assertEqual(f.sent, len(LARGE))


class Header(Case):
    def test_what_cannot_run_is_refused_early(self):
        f = File(LARGE.replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0xlama", 1))
        self.hub.repos["user/repo-GGUF"] = {"m-Q4_0.gguf": f}
        err = self.bad("xlama", "pull", "user/repo-GGUF")
        self.assertIn("m-Q4_0.gguf", err)
        self.assertNotIn("check-", err)
        self.assertLess(f.sent, 1100000)
        self.no_model()
        self.assertEqual(os.listdir(self.folder()), ["blobs"])
        self.good("pull", "--force", "user/repo-GGUF")

    def test_what_is_no_model_is_refused_early(self):
        f = File(b"<html>" + bytes(3000000))
        self.hub.repos["user/repo-GGUF"] = {"m-Q4_0.gguf": f}
        self.bad("is not a GGUF file", "pull", "user/repo-GGUF")
        self.assertLess(f.sent, 1100000)

    def test_what_is_too_large_is_refused_early(self):
        head, size = make_huge(LARGE)
        f = File(head, size=size)
        self.hub.repos["user/repo-GGUF"] = {"m-Q4_0.gguf": f}
        self.bad("of memory and this machine has", "pull", "user/repo-GGUF")
        self.assertLess(f.sent, 1100000)
        self.no_model()

    def test_forecast(self):
        self.hub.repos["user/repo-GGUF"] = {"m-Q4_0.gguf": File(LARGE)}
        code, out, err = self.slm("pull", "user/repo-GGUF")
        self.assertRegex(err, r"needs [0-9.]+ [KMG]iB of [0-9.]+ GiB memory with \d+ tokens of "
                              r"context; about \d+ tokens/s")


class Split(Case):
    def parts(self):
        """The large model as two files: metadata and half of the tensors in the first."""
        r = Reader(LARGE)
        r.at = 8
        n_tensors, n_kv = r.take("QQ")
        begin = r.at
        for _ in range(n_kv):
            r.string()
            r.value(r.take("I"))
        kv = LARGE[begin:r.at]
        tensors = []
        for _ in range(n_tensors):
            name = r.string()
            dims = [r.take("Q") for _ in range(r.take("I"))]
            kind, offset = r.take("IQ")
            size = 4
            for d in dims:
                size *= d
            tensors.append((name, dims, offset, size))
        data = (r.at + 31) // 32 * 32
        out = []
        for no, some in enumerate((tensors[:5], tensors[5:])):
            entries = b""
            for key, kind, v in (("split.no", 2, struct.pack("<H", no)),
                                 ("split.count", 2, struct.pack("<H", 2)),
                                 ("split.tensors.count", 5, struct.pack("<i", n_tensors))):
                entries += struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + v
            head = b"GGUF" + struct.pack("<IQQ", 3, len(some), 3 + (n_kv if no == 0 else 0))
            head += (kv if no == 0 else b"") + entries
            body = b""
            for name, dims, offset, size in some:
                head += struct.pack("<Q", len(name)) + name + struct.pack("<I", len(dims))
                head += b"".join(struct.pack("<Q", d) for d in dims)
                head += struct.pack("<IQ", 0, len(body))
                body += LARGE[data + offset:data + offset + size]
                body += bytes(-len(body) % 32)
            out.append(head + bytes(-len(head) % 32) + body)
        return out

    def test_all_shards_come_along(self):
        a, b = self.parts()
        names = ["Q8_0/m-Q8_0-0000%d-of-00002.gguf" % i for i in (1, 2)]
        self.hub.repos["user/repo-GGUF"] = {names[1]: File(b), names[0]: File(a)}
        path = self.good("pull", "user/repo-GGUF:Q8_0").strip()
        self.assertTrue(path.endswith(names[0]))
        self.assertTrue(self.good("run", "user/repo-GGUF:Q8_0", "x", "--raw", "-n", "2", "-t", "0"))
        self.good("info", "user/repo-GGUF/" + names[1], HF_HUB_OFFLINE="1")
        self.assertEqual(len(self.good("list").splitlines()), 1)
        self.good("rm", "user/repo-GGUF")
        self.assertFalse(os.path.exists(self.folder()))

    def test_a_missing_shard_is_named(self):
        self.hub.repos["user/repo-GGUF"] = {"m-00001-of-00003.gguf": File(read(SMALL)),
                                            "m-00003-of-00003.gguf": File(read(SMALL))}
        self.bad("file 2 of 3 is missing", "pull", "user/repo-GGUF")


class Attacks(Case):
    def test_paths_of_a_listing(self):
        evil = ["../../../../evil.gguf", "/evil.gguf", "a/../../../evil.gguf", "..\\evil.gguf",
                "./evil.gguf", "a//evil.gguf", "evil.gguf/..", "a\nb.gguf", "C:evil.gguf",
                "x" * 300 + ".gguf", "\x9b2J.gguf", "\x7f.gguf", "../blobs/evil.gguf"]
        self.hub.repos["user/repo-GGUF"] = {p: File(read(SMALL)) for p in evil}
        self.bad("has no GGUF model", "pull", "user/repo-GGUF")
        self.no_model()

    def listing(self, **changes):
        entry = {"rfilename": "m-Q4_0.gguf", "size": 5, "lfs": {"sha256": "a" * 64, "size": 5}}
        top = {"sha": COMMIT, "siblings": [entry]}
        for key, v in changes.items():
            (entry["lfs"] if key == "sha256" else entry if key == "rfilename" else top)[key] = v
        return json.dumps(top).encode()

    def test_commits_and_sums(self):
        for changes in ({"sha": "../../x"}, {"sha": "A" * 40}, {"sha": None}, {"sha": COMMIT + "/"},
                        {"sha256": "../../../" + "a" * 55}, {"sha256": "a" * 63 + "/"},
                        {"sha256": 5}, {"siblings": {}}, {"siblings": [1, None, "x", []]}):
            self.hub.listings["user/repo-GGUF"] = self.listing(**changes)
            code, out, err = self.slm("pull", "user/repo-GGUF")
            self.assertEqual(code, 1, changes)
            self.no_model()

    def test_listings_that_are_none(self):
        for text in (b"", b"{", b"[]", b"null", b"<html>", b"\xff\xfe", b"[" * 100000):
            self.hub.listings["user/repo-GGUF"] = text
            self.bad("user/repo-GGUF", "pull", "user/repo-GGUF")
        self.hub.listings["user/repo-GGUF"] = 401
        self.bad("HF_TOKEN may help", "pull", "user/repo-GGUF")
        self.no_model()

    def test_shards_that_are_the_same(self):
        f = File(read(SMALL))
        self.hub.repos["user/repo-GGUF"] = {"m-00001-of-00002.gguf": f, "m-00002-of-00002.gguf": f}
        self.bad("its content twice", "pull", "user/repo-GGUF")
        self.no_model()

    def test_sizes_of_a_listing(self):
        for size in (0, -1, "5", 1 << 62, 1.5):
            entry = {"rfilename": "m-Q4_0.gguf", "lfs": {"sha256": "a" * 64, "size": size}}
            self.hub.listings["user/repo-GGUF"] = json.dumps({"sha": COMMIT,
                                                              "siblings": [entry]}).encode()
            code, _, err = self.slm("pull", "user/repo-GGUF")
            self.assertEqual(code, 1, err)
            self.no_model()

    def test_a_link_in_the_place_of_the_part(self):
        f = File(read(SMALL))
        self.hub.repos["user/repo-GGUF"] = {"m-Q4_0.gguf": f}
        victim = os.path.join(self.box, "work", "victim")
        with open(victim, "w") as out:
            out.write("precious")
        os.makedirs(os.path.join(self.folder(), "blobs"))
        os.symlink(victim, os.path.join(self.folder(), "blobs", f.sha256 + ".incomplete"))
        self.bad("incomplete", "pull", "user/repo-GGUF")
        self.assertEqual(read(victim), b"precious")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])

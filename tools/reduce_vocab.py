#!/usr/bin/env python3
"""Reduces a vocabulary to what a set of test cases needs, and renumbers the cases.

    tools/reduce_vocab.py FULL.gguf CASES.jsonl DECODE.jsonl OUT_DIR NAME

Writes OUT_DIR/NAME.gguf (metadata only), NAME.jsonl and NAME.decode.jsonl.  A token or
merge can only have a part in tokenizing a text whose bytes contain its own; everything else
is left out, in file order, so that the cases keep their tokens under new numbers."""
import json
import os
import struct
import sys
import unicodedata

FIXED = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<B", 10: "<Q",
         11: "<q", 12: "<d"}
STR, ARR = 8, 9
NORMAL, BYTE = 1, 6
NFC = {"qwen2", "qwen35", None}
MARK = "\u2581".encode()


class Reader:
    def __init__(self, path):
        with open(path, "rb") as f:
            self.data = f.read(64 << 20)
        self.at = 8
        n_kv = struct.unpack_from("<QQ", self.data, 8)[1]
        self.at = 24
        self.kv = {}
        for _ in range(n_kv):
            key = self.string().decode()
            kind = self.fixed("<I")
            self.kv[key] = (kind, self.value(kind))

    def fixed(self, fmt):
        v = struct.unpack_from(fmt, self.data, self.at)[0]
        self.at += struct.calcsize(fmt)
        return v

    def string(self):
        n = self.fixed("<Q")
        self.at += n
        return self.data[self.at - n:self.at]

    def value(self, kind):
        if kind == STR:
            return self.string()
        if kind == ARR:
            elem = self.fixed("<I")
            return elem, [self.value(elem) for _ in range(self.fixed("<Q"))]
        return self.fixed(FIXED[kind])


def pack(kind, v):
    if kind == STR:
        return struct.pack("<Q", len(v)) + v
    if kind == ARR:
        return struct.pack("<IQ", v[0], len(v[1])) + b"".join(pack(v[0], x) for x in v[1])
    return struct.pack(FIXED[kind], v)


def byte_alphabet():
    keep = list(range(0x21, 0x7F)) + list(range(0xA1, 0xAD)) + list(range(0xAE, 0x100))
    rest = [b for b in range(256) if b not in keep]
    table = {b: chr(b).encode() for b in keep}
    table.update({b: chr(0x100 + i).encode() for i, b in enumerate(rest)})
    return table


def main():
    full, cases_path, decode_path, out_dir, name = sys.argv[1:]
    kv = Reader(full).kv
    key = "tokenizer.ggml."
    tokens = kv[key + "tokens"][1][1]
    types = kv[key + "token_type"][1][1]
    model = kv[key + "model"][1]
    pre = kv.get(key + "pre", (STR, None))[1]
    with open(cases_path) as f:
        cases = [json.loads(line) for line in f]
    with open(decode_path) as f:
        decode = [json.loads(line) for line in f]

    raw = [c["text"].encode() for c in cases]
    raw += [unicodedata.normalize("NFC", c["text"]).encode() for c in cases]
    if model == b"gpt2":
        alphabet = byte_alphabet()
        texts = [b"".join(alphabet[b] for b in t) for t in raw]
    else:
        texts = [t.replace(b" ", MARK) for t in raw]
    hay = b"\xff".join(sorted(set(texts)))
    hay_raw = b"\xff".join(sorted(set(raw + [t.replace(MARK, b" ") for t in raw])))

    def meets(text):
        return text in hay or (text.startswith(MARK) and text[3:] in hay)

    keep = {i for c in cases + decode for i in c["ids"]}
    for i, (text, kind) in enumerate(zip(tokens, types)):
        if kind == BYTE or (kind == NORMAL and (meets(text) or len(text.decode()) == 1)):
            keep.add(i)
        elif kind != NORMAL and text in hay_raw:
            keep.add(i)
    for k, (kind, v) in kv.items():
        if k.startswith(key) and k.endswith("_token_id"):
            keep.add(v)
    keep = sorted(keep)
    new_id = {old: new for new, old in enumerate(keep)}

    out = []
    for k, (kind, v) in kv.items():
        if k in (key + "tokens", key + "scores", key + "token_type"):
            v = (v[0], [v[1][i] for i in keep])
        elif k == key + "merges":
            v = (v[0], [m for m in v[1] if meets(m[:1] + m[1:].replace(b" ", b"", 1))])
        elif k.startswith(key) and k.endswith("_token_id"):
            v = new_id[v]
        elif not k.startswith(key) and k not in ("general.architecture", "general.name"):
            continue
        out.append(pack(STR, k.encode()) + struct.pack("<I", kind) + pack(kind, v))
    with open(os.path.join(out_dir, name + ".gguf"), "wb") as f:
        f.write(b"GGUF" + struct.pack("<IQQ", 3, 0, len(out)) + b"".join(out))
    for path, rows in ((name + ".jsonl", cases), (name + ".decode.jsonl", decode)):
        with open(os.path.join(out_dir, path), "w") as f:
            for row in rows:
                row["ids"] = [new_id[i] for i in row["ids"]]
                f.write(json.dumps(row, separators=(",", ":")) + "\n")


main()

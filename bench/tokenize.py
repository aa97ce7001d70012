#!/usr/bin/env python3
"""Measures slm's tokenizer beside others: same text, same vocabulary, one thread each.

    bench/tokenize.py --probe build/slm-probe [--only slm,gigatoken] VOCAB.gguf TEXT...

The others are what pip finds of gigatoken, tokenizers, fastokens and tokie; one that is not
installed is named and left out.  They read a tokenizer.json that is made of the GGUF file (needs
the package gguf), so all work from the same tokens and merges.  Vocabularies: gpt-2, llama-bpe,
qwen2.

Inside the timing is one call that turns the whole text into ids: for slm tok_encode, for the others
the call of their Python module that returns ids soonest.  Reading files, building tables and
decoding the text for modules that want a str are outside.  Every tokenizer runs in a process of its
own with one thread (RAYON_NUM_THREADS=1), on the CPU that --cpu names.  "first" is the first call,
which has never seen the text; "again" is the best of four more calls with the same text, which
favours whoever remembers most.  All have to agree on the ids; who does not is marked.
"""
import argparse
import array
import json
import os
import subprocess
import sys
import tempfile
import time

WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|"
         r"\s*[\r\n]+|\s+(?!\S)|\s+")
EXPRESSIONS = {"gpt-2": None, "llama-bpe": WORDS % "{1,3}", "qwen2": WORDS % ""}
ROUNDS = 5
CONTROL = 3
OTHERS = ("gigatoken", "tokenizers", "fastokens", "tokie")


def tokenizer_json(path, out):
    from gguf import GGUFReader
    fields = GGUFReader(path).fields
    tokens, merges, types, pre = (fields["tokenizer.ggml." + name].contents()
                                  for name in ("tokens", "merges", "token_type", "pre"))
    if pre not in EXPRESSIONS:
        sys.exit("%s: pre-tokenizer %s is not one of %s" % (path, pre, ", ".join(EXPRESSIONS)))
    expression = EXPRESSIONS[pre]
    bytes_step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": expression is None}
    split = {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated",
             "invert": False}
    json.dump({
        "version": "1.0", "truncation": None, "padding": None, "post_processor": None,
        "added_tokens": [{"id": i, "content": t, "single_word": False, "lstrip": False,
                          "rstrip": False, "normalized": False, "special": True}
                         for i, t in enumerate(tokens) if types[i] == CONTROL],
        "normalizer": {"type": "NFC"} if pre == "qwen2" else None,
        "pre_tokenizer": bytes_step if expression is None else
        {"type": "Sequence", "pretokenizers": [split, bytes_step]},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                    "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "fuse_unk": False,
                  "continuing_subword_prefix": "", "end_of_word_suffix": "",
                  "byte_fallback": False, "ignore_merges": pre == "llama-bpe",
                  "vocab": {t: i for i, t in enumerate(tokens) if types[i] != CONTROL},
                  "merges": merges},
    }, out, ensure_ascii=False)


def encoder(name, path):
    """The function that gives ids, and whether it wants bytes."""
    module = __import__(name)
    if name == "gigatoken":
        return module.Tokenizer(path).encode, True
    if name == "tokie":
        return module.Tokenizer.from_json(path).encode_bytes, True
    t = module.Tokenizer.from_file(path)
    return lambda text: t.encode(text, add_special_tokens=False).ids, False


def child(name, path, text_path, out):
    encode, wants_bytes = encoder(name, path)
    with open(text_path, "rb") as f:
        text = f.read()
    text = text if wants_bytes else text.decode()
    encode(text[:1])
    for i in range(ROUNDS):
        start = time.perf_counter()
        ids = encode(text)
        print(time.perf_counter() - start)
    with open(out, "wb") as f:
        array.array("i", (int(i) for i in ids)).tofile(f)


def measure(command, cpu, size):
    """MB/s of the first call and the best of the others, or None and why not."""
    env = dict(os.environ, RAYON_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
    try:
        run = subprocess.run(["taskset", "-c", str(cpu)] + command, env=env, text=True,
                             capture_output=True, timeout=120)
    except subprocess.TimeoutExpired:
        return None, "gave no answer in two minutes"
    if run.returncode != 0:
        return None, (run.stderr.strip().splitlines() or ["exit %d" % run.returncode])[-1][:90]
    seconds = [float(line) for line in run.stdout.split()]
    return (size / 1e6 / seconds[0], size / 1e6 / min(seconds[1:])), None


def main():
    if len(sys.argv) == 6 and sys.argv[1] == "--child":
        child(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--probe", default="build/slm-probe")
    parser.add_argument("--cpu", type=int, default=0)
    parser.add_argument("--only", default="slm," + ",".join(OTHERS))
    parser.add_argument("vocab")
    parser.add_argument("text", nargs="+")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "tokenizer.json")
        with open(path, "w", encoding="utf-8") as f:
            tokenizer_json(args.vocab, f)
        print("%-12s %-12s %8s %8s   MB/s" % ("text", "tokenizer", "first", "again"))
        for text in args.text:
            reference = None
            for name in args.only.split(","):
                out = os.path.join(tmp, "ids")
                command = [args.probe, "encode", args.vocab, text, out] if name == "slm" else [
                    sys.executable, os.path.abspath(__file__), "--child", name, path, text, out]
                speed, why = measure(command, args.cpu, os.path.getsize(text))
                line = "%-12s %-12s " % (os.path.basename(text), name)
                if speed is None:
                    print(line + why, flush=True)
                    continue
                with open(out, "rb") as f:
                    ids = f.read()
                reference = ids if reference is None else reference
                note = "" if ids == reference else "   other ids"
                print(line + "%8.1f %8.1f%s" % (speed + (note,)), flush=True)


if __name__ == "__main__":
    main()

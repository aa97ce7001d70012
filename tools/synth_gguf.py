#!/usr/bin/env python3
"""Writes a full-size synthetic GGUF: the tensor names, shapes, metadata and types of a model,
random weights.

    synth_gguf.py --shape qwen3-4b --mix Q4_K_M --out FILE [--seed N] [--layers N] [--list]

For measuring speed, memory and cold start where the real weights are not at hand.  The text that
such a model writes is noise, but its logits are finite.  Needs numpy and gguf from PyPI.  Takes
200 MB of memory whatever the size.  --layers writes fewer layers, --list only prints the tensors.
"""

import argparse
import math
import sys

import numpy as np
import gguf
from gguf import GGMLQuantizationType as T
from gguf.quants import dequantize

# ----------------------------------------------------------------- shapes

SHAPES = {
    "qwen3-0.6b": dict(
        arch="qwen3",
        d=1024,
        L=28,
        h=16,
        kv=8,
        hd=128,
        ff=3072,
        V=151936,
        tied=True,
        eps=1e-6,
        base=1e6,
        ctx=40960,
    ),
    "qwen3-1.7b": dict(
        arch="qwen3",
        d=2048,
        L=28,
        h=16,
        kv=8,
        hd=128,
        ff=6144,
        V=151936,
        tied=True,
        eps=1e-6,
        base=1e6,
        ctx=40960,
    ),
    "qwen3-4b": dict(
        arch="qwen3",
        d=2560,
        L=36,
        h=32,
        kv=8,
        hd=128,
        ff=9728,
        V=151936,
        tied=True,
        eps=1e-6,
        base=1e6,
        ctx=40960,
    ),
    "phi4-mini": dict(
        arch="phi3",
        d=3072,
        L=32,
        h=24,
        kv=8,
        hd=128,
        rot=96,
        ff=8192,
        V=200064,
        tied=True,
        eps=1e-5,
        base=1e4,
        ctx=131072,
        orig=4096,
        longrope=True,
        window=262144,
        vocab="gpt2",
        pre="gpt-4o",
    ),
    "phi3-mini": dict(
        arch="phi3",
        d=3072,
        L=32,
        h=32,
        kv=32,
        hd=96,
        rot=96,
        ff=8192,
        V=32064,
        tied=False,
        eps=1e-5,
        base=1e4,
        ctx=4096,
        orig=4096,
        longrope=False,
        window=2047,
        vocab="spm",
    ),
    "gemma4-e4b": dict(
        arch="gemma4",
        d=2560,
        L=42,
        h=8,
        kv=2,
        hd_swa=256,
        hd_full=512,
        ff=10240,
        V=262144,
        tied=True,
        eps=1e-6,
        base=1e6,
        swa_base=1e4,
        ctx=131072,
        window=512,
        pattern=6,
        shared=18,
        ple=256,
        fcap=30.0,
        vocab="gemma4",
    ),
    "qwen3.8-27b": dict(
        arch="qwen35",
        d=5120,
        L=64,
        mtp=1,
        h=24,
        kv=4,
        hd=256,
        rot=64,
        ff=17408,
        V=248320,
        tied=False,
        eps=1e-6,
        base=1e7,
        ctx=262144,
        kh=16,
        vh=48,
        state=128,
        conv=4,
        interval=4,
    ),
    "qwen3.5-4b": dict(
        arch="qwen35",
        d=2560,
        L=32,
        mtp=1,
        h=16,
        kv=4,
        hd=256,
        rot=64,
        ff=9216,
        V=248320,
        tied=True,
        eps=1e-6,
        base=1e7,
        ctx=262144,
        kh=16,
        vh=32,
        state=128,
        conv=4,
        interval=4,
    ),
    "llama2-7b": dict(
        arch="llama",
        d=4096,
        L=32,
        h=32,
        kv=32,
        hd=128,
        ff=11008,
        V=32000,
        tied=False,
        eps=1e-5,
        base=1e4,
        ctx=4096,
        vocab="spm",
    ),
    "mistral-7b": dict(
        arch="llama",
        d=4096,
        L=32,
        h=32,
        kv=8,
        hd=128,
        ff=14336,
        V=32768,
        tied=False,
        eps=1e-5,
        base=1e6,
        ctx=32768,
        vocab="spm",
    ),
    "llama3.2-3b": dict(
        arch="llama",
        d=3072,
        L=28,
        h=24,
        kv=8,
        hd=128,
        ff=8192,
        V=128256,
        tied=True,
        eps=1e-5,
        base=5e5,
        ctx=131072,
        vocab="gpt2",
        pre="llama-bpe",
        ropefreqs=True,
    ),
    "tinyllama-1.1b": dict(
        arch="llama",
        d=2048,
        L=22,
        h=32,
        kv=4,
        hd=64,
        ff=5632,
        V=32000,
        tied=False,
        eps=1e-5,
        base=1e4,
        ctx=2048,
        vocab="spm",
    ),
    "stablelm-3b": dict(
        arch="stablelm",
        d=2560,
        L=32,
        h=32,
        kv=32,
        hd=80,
        rot=20,
        ff=6912,
        V=50304,
        tied=False,
        lneps=1e-5,
        base=1e4,
        ctx=4096,
        vocab="gpt2",
        pre="gpt-2",
    ),
    "phi2": dict(
        arch="phi2",
        d=2560,
        L=32,
        h=32,
        kv=32,
        hd=80,
        rot=32,
        ff=10240,
        V=51200,
        tied=False,
        lneps=1e-5,
        base=None,
        ctx=2048,
        vocab="gpt2",
        pre="gpt-2",
    ),
    "ministral3-3b": dict(
        arch="mistral3",
        d=3072,
        L=26,
        h=32,
        kv=8,
        hd=128,
        ff=9216,
        V=131072,
        tied=True,
        eps=1e-5,
        base=1e6,
        ctx=262144,
        orig=16384,
        factor=16.0,
        vocab="gpt2",
        pre="tekken",
    ),
    "smollm3-3b": dict(
        arch="smollm3",
        d=2048,
        L=36,
        h=16,
        kv=4,
        hd=128,
        ff=11008,
        V=128256,
        tied=True,
        eps=1e-6,
        base=5e6,
        ctx=65536,
        vocab="gpt2",
        pre="smaug-bpe",
    ),
}

# ------------------------------------------------- type mixes (file type id, default tensor type)

FTYPE = {
    "F32": (0, T.F32),
    "F16": (1, T.F16),
    "BF16": (32, T.BF16),
    "Q4_0": (2, T.Q4_0),
    "Q4_1": (3, T.Q4_1),
    "Q8_0": (7, T.Q8_0),
    "Q5_0": (8, T.Q5_0),
    "Q5_1": (9, T.Q5_1),
    "Q2_K": (10, T.Q2_K),
    "Q2_K_S": (21, T.Q2_K),
    "Q3_K_S": (11, T.Q3_K),
    "Q3_K_M": (12, T.Q3_K),
    "Q3_K_L": (13, T.Q3_K),
    "Q4_K_S": (14, T.Q4_K),
    "Q4_K_M": (15, T.Q4_K),
    "Q5_K_S": (16, T.Q5_K),
    "Q5_K_M": (17, T.Q5_K),
    "Q6_K": (18, T.Q6_K),
    "IQ1_S": (24, T.IQ1_S),
    "IQ1_M": (31, T.IQ1_M),
    "IQ2_XXS": (19, T.IQ2_XXS),
    "IQ2_XS": (20, T.IQ2_XS),
    "IQ2_S": (28, T.IQ2_XS),
    "IQ2_M": (29, T.IQ2_S),
    "IQ3_XXS": (23, T.IQ3_XXS),
    "IQ3_XS": (22, T.IQ3_S),
    "IQ3_S": (26, T.IQ3_S),
    "IQ3_M": (27, T.IQ3_S),
    "IQ4_NL": (25, T.IQ4_NL),
    "IQ4_XS": (30, T.IQ4_XS),
}
LOW = {"IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M"}
FALLBACK = {
    T.IQ1_S: T.IQ4_NL,
    T.IQ1_M: T.IQ4_NL,
    T.IQ2_XXS: T.IQ4_NL,
    T.IQ2_XS: T.IQ4_NL,
    T.IQ2_S: T.IQ4_NL,
    T.IQ3_XXS: T.IQ4_NL,
    T.IQ3_S: T.IQ4_NL,
    T.IQ4_XS: T.IQ4_NL,
    T.Q2_K: T.Q4_0,
    T.Q3_K: T.Q4_0,
    T.Q4_K: T.Q5_0,
    T.Q5_K: T.Q5_1,
    T.Q6_K: T.Q8_0,
}


class Mix:
    """Which type each tensor gets, by the rules of the usual mixes (IQ mixes with an importance matrix)."""

    def __init__(self, mix, names, n_layer_all, gqa, tied):
        self.mix, self.default = mix, FTYPE[mix][1]
        self.nl, self.gqa, self.tied = n_layer_all, gqa, tied
        self.n_v = sum(("attn_v.weight" in n) or ("attn_qkv.weight" in n) for n in names)
        self.i_v = self.i_down = self.i_gate = self.i_up = 0
        self.imat = mix in LOW or mix.startswith("IQ3")

    def more(self, i, n):
        return i < n // 8 or i >= 7 * n // 8 or (i - n // 8) % 3 == 2

    def pick(self, name, shape):
        quantise = (
            len(shape) == 2
            and name.endswith("weight")
            and not any(
                s in name for s in ("_norm.weight", "ssm_conv1d", "per_layer_model_proj", "rope_f")
            )
        )
        if not quantise:
            return T.BF16 if "per_layer_model_proj" in name and self.mix != "F32" else T.F32
        if self.mix in ("F32", "F16", "BF16"):
            return self.default
        t = self._rule(name, shape)
        bs = gguf.GGML_QUANT_SIZES[t][0]
        if shape[-1] % bs:
            t = FALLBACK.get(t, t)
            if shape[-1] % gguf.GGML_QUANT_SIZES[t][0]:
                t = T.F16
        return t

    def _rule(self, name, shape):
        m, t = self.mix, self.default
        emb = name in ("token_embd.weight", "per_layer_token_embd.weight")
        if name == "output.weight" or (emb and self.tied):
            if shape[-1] % gguf.GGML_QUANT_SIZES[t][0]:
                return T.Q8_0
            if m in LOW or m == "IQ3_XXS":
                return T.Q5_K
            return t if t == T.Q8_0 else T.Q6_K
        if emb:
            if m in ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS"):
                return T.Q2_K
            return T.IQ3_S if m in ("IQ2_S", "IQ2_M", "IQ3_XXS") else t
        is_v = "attn_v.weight" in name or "attn_qkv.weight" in name
        wide = self.gqa >= 4
        if m in LOW:
            mid = T.IQ3_S if m in ("IQ2_S", "IQ2_M") else T.Q2_K
            if is_v:
                return T.Q4_K if wide else mid
            if "ffn_down" in name:
                i = self.i_down
                self.i_down += 1
                return mid if i < self.nl // 8 else t
            if "attn_output" in name:
                return {
                    "IQ1_S": T.IQ2_XXS,
                    "IQ1_M": T.IQ2_XXS,
                    "IQ2_S": T.IQ3_S,
                    "IQ2_M": T.IQ3_S,
                }.get(m, t)
            return t
        if is_v:
            i = self.i_v
            self.i_v += 1
            if m == "Q2_K":
                return T.Q4_K if wide else T.Q3_K
            if m == "Q2_K_S" or m in ("IQ3_XS", "IQ3_S"):
                return T.Q4_K if wide else t
            if m == "IQ3_XXS":
                return T.Q4_K if wide else T.IQ3_XXS
            if m == "IQ3_M":
                return T.Q4_K
            if m == "Q3_K_M":
                return T.Q5_K if i < 2 else T.Q4_K
            if m == "Q3_K_L":
                return T.Q5_K
            if m in ("IQ4_NL", "IQ4_XS"):
                return T.Q5_K if wide else t
            if m in ("Q4_K_M", "Q5_K_M") and self.more(i, self.n_v):
                return T.Q6_K
            if m == "Q4_K_S" and i < 4:
                return T.Q5_K
            return t
        if "attn_k.weight" in name or "attn_q.weight" in name:
            return {"IQ3_XS": T.IQ3_XXS, "IQ3_XXS": T.IQ2_S}.get(m, t)
        if "ffn_down" in name:
            i, n = self.i_down, self.nl
            self.i_down += 1
            early = i < n // 8
            if m == "Q2_K":
                return T.Q3_K
            if m == "Q2_K_S":
                return T.Q4_K if early else t
            if m == "Q3_K_M":
                return T.Q5_K if i < n // 16 else T.Q4_K
            if m == "IQ3_M":
                return T.Q4_K if early else t
            if m == "Q3_K_L":
                return T.Q5_K
            if m in ("Q4_K_M", "Q5_K_M"):
                return T.Q6_K if self.more(i, n) else t
            if m in ("IQ4_NL", "IQ4_XS", "Q4_K_S"):
                return T.Q5_K if early else t
            return t
        if "attn_output" in name:
            return {
                "Q2_K": T.Q3_K,
                "IQ3_XXS": T.IQ3_S,
                "Q3_K_M": T.Q4_K,
                "Q3_K_L": T.Q5_K,
                "IQ3_M": T.Q4_K,
            }.get(m, t)
        if "ffn_gate" in name or "ffn_up" in name:
            a = "i_gate" if "ffn_gate" in name else "i_up"
            i = getattr(self, a)
            setattr(self, a, i + 1)
            if m == "IQ3_XS" and self.nl // 8 <= i < 7 * self.nl // 8:
                return T.IQ3_XXS
        return t


# ----------------------------------------------------------------- random blocks

F16_AT = {
    T.Q4_0: 0,
    T.Q4_1: 0,
    T.Q5_0: 0,
    T.Q5_1: 0,
    T.Q8_0: 0,
    T.Q2_K: 80,
    T.Q3_K: 108,
    T.Q4_K: 0,
    T.Q5_K: 0,
    T.Q6_K: 208,
    T.IQ2_XXS: 0,
    T.IQ2_XS: 0,
    T.IQ2_S: 0,
    T.IQ3_XXS: 0,
    T.IQ3_S: 0,
    T.IQ1_S: 0,
    T.IQ4_NL: 0,
    T.IQ4_XS: 0,
}


def f16_bytes(x):
    return np.ascontiguousarray(x, dtype=np.float16).view(np.uint8).reshape(-1, 2)


class Blocks:
    """A pool of random valid blocks per (type, target standard deviation), written over and over from random starting points."""

    POOL = 1 << 20

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.cache = {}

    def _set_scale(self, t, b, d):
        if t == T.IQ1_M:
            h = np.asarray(d, dtype=np.float16).view(np.uint16)
            s = b[:, 48:56].copy().view("<u2")
            for n in range(4):
                s[:, n] = (s[:, n] & 0x0FFF) | (((h >> (4 * n)) & 0xF) << 12)
            b[:, 48:56] = s.view(np.uint8)
            return
        o = F16_AT[t]
        b[:, o : o + 2] = f16_bytes(d)
        off = {
            T.Q4_1: (2, -7.5),
            T.Q5_1: (2, -15.5),
            T.Q2_K: (82, 1.5),
            T.Q4_K: (2, 7.5),
            T.Q5_K: (2, 15.5),
        }.get(t)
        if off:
            b[:, off[0] : off[0] + 2] = f16_bytes(np.asarray(d, dtype=np.float64) * off[1])

    def pool(self, t, std):
        key = (t, round(math.log2(std) * 8))
        if key in self.cache:
            return self.cache[key]
        rng = self.rng
        bs, ts = gguf.GGML_QUANT_SIZES[t]
        if t in (T.F32, T.F16, T.BF16):
            x = (rng.standard_normal(self.POOL // ts) * std).astype(np.float32)
            if t == T.F16:
                x = x.astype(np.float16)
            elif t == T.BF16:
                x = (x.view(np.uint32) >> 16).astype(np.uint16)
            p = x.view(np.uint8).reshape(-1)
        else:
            n = self.POOL // ts
            b = rng.integers(0, 256, (n, ts), dtype=np.uint8)
            if t == T.Q2_K:
                b[:, :16] = (b[:, :16] & 15) | (b[:, :16] << 4)  # min = scale: zero mean
            if t in (T.Q4_K, T.Q5_K):
                b[:, 8:12] = b[:, 4:8]
                b[:, 12:16] = (b[:, 12:16] & 15) | (b[:, 12:16] << 4)
            self._set_scale(t, b, np.ones(n))
            with np.errstate(all="ignore"):
                unit = float(dequantize(b[:64].reshape(1, -1), t).std())
            d = std / unit * np.exp(rng.uniform(-0.5, 0.5, n))
            self._set_scale(t, b, d)
            p = b.reshape(-1)
        self.cache[key] = p
        return p

    def write(self, f, t, shape, std):
        bs, ts = gguf.GGML_QUANT_SIZES[t]
        n = int(np.prod(shape)) // bs * ts
        p = self.pool(t, std)
        mv = memoryview(p)
        left = n
        while left:
            o = int(self.rng.integers(0, p.size // ts // 2)) * ts
            k = min(left, p.size - o)
            f.write(mv[o : o + k])
            left -= k
        return n


# ----------------------------------------------------------------- vocabularies


def byte_chars():
    bs = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    m = {b: chr(b) for b in bs}
    n = 0
    for b in range(256):
        if b not in m:
            m[b] = chr(256 + n)
            n += 1
    return [m[b] for b in range(256)]


MERGES = [
    "Ġ t",
    "Ġ a",
    "h e",
    "i n",
    "r e",
    "o n",
    "Ġt he",
    "e r",
    "Ġ s",
    "a t",
    "Ġ w",
    "Ġ o",
    "e n",
    "Ġ c",
    "i t",
    "i s",
    "a n",
    "o r",
    "e s",
    "Ġ b",
    "e d",
    "Ġ f",
    "in g",
    "Ġ p",
]


def vocab_gpt2(w, V, pre):
    sp = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    toks = byte_chars() + [m.replace(" ", "") for m in MERGES]
    types = [1] * len(toks)
    n = V - len(toks) - len(sp)
    toks += ["tok_%06x" % i for i in range(n)] + sp
    types += [1] * n + [3] * len(sp)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre(pre)
    w.add_token_list(toks)
    w.add_token_types(types)
    w.add_token_merges(MERGES)
    w.add_bos_token_id(V - 3)
    w.add_eos_token_id(V - 1)
    w.add_add_bos_token(False)


def vocab_spm(w, V):
    toks = (
        ["<unk>", "<s>", "</s>"]
        + ["<0x%02X>" % b for b in range(256)]
        + ["▁"]
        + [chr(c) for c in range(33, 127)]
    )
    types = [2, 3, 3] + [6] * 256 + [1] * 95
    n = V - len(toks) - 1
    toks += ["▁tok_%06x" % i for i in range(n)] + ["<|endoftext|>"]
    types += [1] * n + [3]
    scores = [0.0] * 259 + [-1000.0] * 95 + [-20.0 - i * 0.1 for i in range(n)] + [0.0]
    w.add_tokenizer_model("llama")
    w.add_tokenizer_pre("default")
    w.add_token_list(toks)
    w.add_token_scores(scores)
    w.add_token_types(types)
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_unk_token_id(0)
    w.add_add_bos_token(True)
    w.add_add_eos_token(False)


def vocab_gemma4(w, V):
    toks = (
        ["<pad>", "<eos>", "<bos>", "<unk>"]
        + ["<0x%02X>" % b for b in range(256)]
        + ["▁", "\n"]
        + [chr(c) for c in range(33, 127)]
    )
    types = [3, 3, 3, 2] + [6] * 256 + [1] * 96
    merges = ["▁ t", "▁ a", "h e", "i n", "r e", "o n", "▁t he", "e r"]
    toks += [m.replace(" ", "") for m in merges]
    types += [1] * len(merges)
    n = V - len(toks)
    toks += ["▁tok_%06x" % i for i in range(n)]
    types += [1] * n
    w.add_tokenizer_model("gemma4")
    w.add_token_list(toks)
    w.add_token_scores([0.0] * V)
    w.add_token_types(types)
    w.add_token_merges(merges)
    w.add_bos_token_id(2)
    w.add_eos_token_id(1)
    w.add_pad_token_id(0)
    w.add_unk_token_id(3)
    w.add_add_space_prefix(False)
    w.add_add_bos_token(True)


# ----------------------------------------------------------------- model description


def plan(c):
    """[(tensor name, numpy shape, kind)] in file order; kind: w (matrix), norm, bias, or an array of values"""
    A, d, V = c["arch"], c["d"], c["V"]
    out = [("token_embd.weight", (V, d), "w")]
    ln = "lneps" in c

    def norm(n, k, bias=False, mean=1.0):
        out.append((n + ".weight", (k,), ("norm", mean)))
        if bias:
            out.append((n + ".bias", (k,), "bias"))

    def lin(n, o, i, bias=False):
        out.append((n + ".weight", (o, i), "w"))
        if bias:
            out.append((n + ".bias", (o,), "bias"))

    if A == "gemma4":
        out.append(("per_layer_token_embd.weight", (V, c["ple"] * c["L"]), "w"))
        lin("per_layer_model_proj", c["ple"] * c["L"], d)
        norm("per_layer_proj_norm", c["ple"])
        k = c["hd_full"] // 2
        out.append(
            (
                "rope_freqs.weight",
                (k,),
                np.array([1.0] * (k // 4) + [1e30] * (k - k // 4), dtype=np.float32),
            )
        )
    norm("output_norm", d, ln)
    if not c["tied"]:
        lin("output", V, d, A == "phi2")
    if c.get("ropefreqs"):
        inv = 1.0 / (c["base"] ** (np.arange(0, c["hd"], 2) / c["hd"]))
        wl = 2 * math.pi / inv
        s = np.clip((8192.0 / wl - 1.0) / 3.0, 0, 1)
        out.append(
            ("rope_freqs.weight", (c["hd"] // 2,), (1.0 / ((1 - s) / 32.0 + s)).astype(np.float32))
        )
    if c.get("longrope"):
        k = c["rot"] // 2
        out.append(("rope_factors_long.weight", (k,), np.linspace(1.0, 50.0, k).astype(np.float32)))
        out.append(("rope_factors_short.weight", (k,), np.ones(k, dtype=np.float32)))
    for i in range(c["L"] + c.get("mtp", 0)):
        p = "blk.%d." % i
        norm(p + "attn_norm", d, ln)
        if A == "gemma4":
            swa = (i + 1) % c["pattern"] != 0
            hd = c["hd_swa"] if swa else c["hd_full"]
            lin(p + "attn_q", c["h"] * hd, d)
            norm(p + "attn_q_norm", hd)
            if i < c["L"] - c["shared"]:
                lin(p + "attn_k", c["kv"] * hd, d)
                lin(p + "attn_v", c["kv"] * hd, d)
                norm(p + "attn_k_norm", hd, mean=1.0 / math.sqrt(hd))
            lin(p + "attn_output", d, c["h"] * hd)
            norm(p + "post_attention_norm", d)
            norm(p + "ffn_norm", d)
        elif A == "qwen35":
            norm(p + "post_attention_norm", d)
            if i >= c["L"] or (i + 1) % c["interval"] == 0:
                lin(p + "attn_q", c["h"] * c["hd"] * 2, d)
                lin(p + "attn_k", c["kv"] * c["hd"], d)
                lin(p + "attn_v", c["kv"] * c["hd"], d)
                lin(p + "attn_output", d, c["h"] * c["hd"])
                norm(p + "attn_q_norm", c["hd"])
                norm(p + "attn_k_norm", c["hd"])
            else:
                kd, vd = c["kh"] * c["state"], c["vh"] * c["state"]
                lin(p + "attn_qkv", 2 * kd + vd, d)
                lin(p + "attn_gate", vd, d)
                out.append((p + "ssm_conv1d.weight", (2 * kd + vd, c["conv"]), ("randn", 0.5)))
                out.append((p + "ssm_dt.bias", (c["vh"],), "bias"))
                out.append((p + "ssm_a", (c["vh"],), ("uniform", -4.0, -0.1)))
                lin(p + "ssm_beta", c["vh"], d)
                lin(p + "ssm_alpha", c["vh"], d)
                norm(p + "ssm_norm", c["state"])
                lin(p + "ssm_out", d, vd)
        elif A == "phi3":
            lin(p + "attn_qkv", (c["h"] + 2 * c["kv"]) * c["hd"], d)
            lin(p + "attn_output", d, c["h"] * c["hd"])
        else:
            b = A == "phi2"
            lin(p + "attn_q", c["h"] * c["hd"], d, b)
            lin(p + "attn_k", c["kv"] * c["hd"], d, b)
            lin(p + "attn_v", c["kv"] * c["hd"], d, b)
            lin(p + "attn_output", d, c["h"] * c["hd"], b)
            if A == "qwen3":
                norm(p + "attn_q_norm", c["hd"])
                norm(p + "attn_k_norm", c["hd"])
        if A not in ("gemma4", "qwen35", "phi2"):
            norm(p + "ffn_norm", d, ln)
        if A == "phi3":
            lin(p + "ffn_up", 2 * c["ff"], d)
        elif A == "phi2":
            lin(p + "ffn_up", c["ff"], d, True)
        else:
            lin(p + "ffn_gate", c["ff"], d)
            lin(p + "ffn_up", c["ff"], d)
        lin(p + "ffn_down", d, c["ff"], A == "phi2")
        if A == "gemma4":
            norm(p + "post_ffw_norm", d)
            lin(p + "inp_gate", c["ple"], d)
            lin(p + "proj", d, c["ple"])
            norm(p + "post_norm", d)
            out.append((p + "layer_output_scale.weight", (1,), np.array([0.7], dtype=np.float32)))
        if i >= c["L"]:
            lin(p + "nextn.eh_proj", d, 2 * d)
            norm(p + "nextn.enorm", d)
            norm(p + "nextn.hnorm", d)
            norm(p + "nextn.shared_head_norm", d)
    return out


def metadata(w, c, shape, mix):
    A = c["arch"]
    k = lambda s: A + "." + s
    w.add_name(
        "synthetic %s %s" % (shape.replace("phi3", "phi-three").replace("phi-3", "phi-three"), mix)
    )
    w.add_file_type(FTYPE[mix][0])
    w.add_quantization_version(2)
    u = lambda s, v: w.add_uint32(k(s), int(v))
    f = lambda s, v: w.add_float32(k(s), float(v))
    u("vocab_size", c["V"])
    u("context_length", c["ctx"])
    u("embedding_length", c["d"])
    u("block_count", c["L"] + c.get("mtp", 0))
    u("feed_forward_length", c["ff"])
    u("attention.head_count", c["h"])
    u("attention.head_count_kv", c["kv"])
    if "eps" in c:
        f("attention.layer_norm_rms_epsilon", c["eps"])
    else:
        f("attention.layer_norm_epsilon", c["lneps"])
    if c["base"]:
        f("rope.freq_base", c["base"])
    if A == "gemma4":
        u("attention.key_length", c["hd_full"])
        u("attention.value_length", c["hd_full"])
        u("attention.key_length_swa", c["hd_swa"])
        u("attention.value_length_swa", c["hd_swa"])
        u("attention.sliding_window", c["window"])
        w.add_array(
            k("attention.sliding_window_pattern"),
            [(i + 1) % c["pattern"] != 0 for i in range(c["L"])],
        )
        u("attention.shared_kv_layers", c["shared"])
        u("embedding_length_per_layer_input", c["ple"])
        f("final_logit_softcapping", c["fcap"])
        f("rope.freq_base_swa", c["swa_base"])
        u("rope.dimension_count", c["hd_full"])
        u("rope.dimension_count_swa", c["hd_swa"])
    else:
        if A != "phi3":
            u("attention.key_length", c["hd"])
            u("attention.value_length", c["hd"])
        u("rope.dimension_count", c.get("rot", c["hd"]))
    if A == "phi3":
        u("rope.scaling.original_context_length", c["orig"])
        u("attention.sliding_window", c["window"])
        if c["longrope"]:
            w.add_string(k("rope.scaling.type"), "longrope")
            f(
                "rope.scaling.attn_factor",
                math.sqrt(1 + math.log(c["ctx"] / c["orig"]) / math.log(c["orig"])),
            )
    if A == "mistral3":
        w.add_string(k("rope.scaling.type"), "yarn")
        f("rope.scaling.factor", c["factor"])
        u("rope.scaling.original_context_length", c["orig"])
        f("rope.scaling.yarn_beta_fast", 32.0)
        f("rope.scaling.yarn_beta_slow", 1.0)
        f("rope.scaling.yarn_log_multiplier", 1.0)
        f("attention.temperature_scale", 0.1)
    if A == "stablelm":
        w.add_bool(k("use_parallel_residual"), False)
    if A == "qwen35":
        w.add_array(k("rope.dimension_sections"), [11, 11, 10, 0])
        u("ssm.conv_kernel", c["conv"])
        u("ssm.state_size", c["state"])
        u("ssm.group_count", c["kh"])
        u("ssm.time_step_rank", c["vh"])
        u("ssm.inner_size", c["state"] * c["vh"])
        u("full_attention_interval", c["interval"])
        if c.get("mtp"):
            u("nextn_predict_layers", c["mtp"])
    v = c.get("vocab", "gpt2")
    if v == "spm":
        vocab_spm(w, c["V"])
    elif v == "gemma4":
        vocab_gemma4(w, c["V"])
    else:
        vocab_gpt2(w, c["V"], c.get("pre", "qwen35" if A == "qwen35" else "qwen2"))


def main():
    ap = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ap.add_argument("--shape", required=True, choices=sorted(SHAPES))
    ap.add_argument("--mix", required=True, choices=sorted(FTYPE))
    ap.add_argument("--out")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--layers", type=int)
    ap.add_argument("--list", action="store_true")
    a = ap.parse_args()
    c = dict(SHAPES[a.shape])
    if a.layers:
        c["L"] = a.layers
        if "shared" in c:
            c["shared"] = min(c["shared"], max(0, a.layers - c["pattern"]))
    tensors = plan(c)
    m = Mix(
        a.mix, [n for n, _, _ in tensors], c["L"] + c.get("mtp", 0), c["h"] // c["kv"], c["tied"]
    )
    typed, total, hist = [], 0, {}
    for n, s, kind in tensors:
        t = m.pick(n, s) if isinstance(kind, str) and kind == "w" else T.F32
        bs, ts = gguf.GGML_QUANT_SIZES[t]
        nb = int(np.prod(s)) // bs * ts
        typed.append((n, s, kind, t, nb))
        total += nb
        h = hist.setdefault(t.name, [0, 0])
        h[0] += 1
        h[1] += nb
    print(
        "%s %s: %d tensors, %.3f GB, %.3f G parameters"
        % (
            a.shape,
            a.mix,
            len(typed),
            total / 1e9,
            sum(int(np.prod(s)) for _, s, _, _, _ in typed) / 1e9,
        )
    )
    for k in sorted(hist):
        print("  %-8s %4d tensors %9.1f MB" % (k, hist[k][0], hist[k][1] / 1e6))
    if a.list or not a.out:
        if a.list:
            for n, s, _, t, _ in typed:
                print("  %-40s %-18s %s" % (n, list(s)[::-1], t.name))
        return
    w = gguf.GGUFWriter(a.out, c["arch"])
    metadata(w, c, a.shape, a.mix)
    for n, s, kind, t, nb in typed:
        w.add_tensor_info(n, s, np.dtype(np.float32), nb, raw_dtype=t)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_ti_data_to_file()
    f = w.fout[0]
    al = w.data_alignment

    def pad():
        k = -f.tell() % al
        if k:
            f.write(bytes(k))

    pad()
    B = Blocks(a.seed)
    rng = np.random.default_rng(a.seed + 1)
    for n, s, kind, t, nb in typed:
        if isinstance(kind, np.ndarray):
            f.write(kind.astype("<f4").tobytes())
        elif kind == "w":
            fan = s[-1]
            gain = 2.0 if n == "output.weight" or (n == "token_embd.weight" and c["tied"]) else 1.0
            if n == "token_embd.weight" and not c["tied"]:
                fan, gain = 1, 1.0
            if n == "per_layer_token_embd.weight":
                fan, gain = c["ple"], 1.0
            if n.startswith("per_layer_model_proj"):
                fan, gain = 1, 1.0
            B.write(f, t, s, gain / math.sqrt(fan))
        else:
            k = int(np.prod(s))
            if kind == "bias":
                x = rng.standard_normal(k) * 0.1
            elif kind[0] == "norm":
                x = kind[1] * np.exp(rng.standard_normal(k) * 0.1)
            elif kind[0] == "randn":
                x = rng.standard_normal(k) * kind[1]
            else:
                x = rng.uniform(kind[1], kind[2], k)
            f.write(x.astype("<f4").tobytes())
        pad()
    w.close()


if __name__ == "__main__":
    main()

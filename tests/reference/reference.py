#!/usr/bin/env python3
"""Float64 reference of architectures that no other reference covers.

    reference.py write DIR     makes every tiny random model with its results below DIR
    reference.py check DIR...  computes existing folders and compares with their ref64.f32
    reference.py types MKMODEL DIR
                               makes a llama model of each type of quants.py with the program
                               mkmodel, and writes the logits of the last positions below DIR

Written from the published descriptions of the architectures, not from the engine, whose code
it must not share.  Needs numpy.  Each folder holds model.gguf, tokens.json, ref64.f32
(logits of every position), greedy_ref64.json (continuation and margins) and meta.json.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

import gguf_f32
import quants

N_VOCAB, N_TOKENS, N_GREEDY = 96, 48, 24


# ---- pieces ------------------------------------------------------------------------------------

def rms(x, w, eps):
    y = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)
    return y if w is None else y * w


def silu(x):
    return x / (1 + np.exp(-x))


def gelu(x):
    return 0.5 * x * (1 + np.tanh(0.7978845608028654 * x * (1 + 0.044715 * x * x)))


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def rope(x, base, n_rot, pairs, factors=None):
    """x [token][head][dim]; adjacent elements are a pair where `pairs`, else halves."""
    j = np.arange(n_rot // 2)
    freq = base ** (-2.0 * j / n_rot) / (1.0 if factors is None else factors)
    angle = np.arange(len(x))[:, None, None] * freq
    c, s = np.cos(angle), np.sin(angle)
    a, b = (2 * j, 2 * j + 1) if pairs else (j, j + n_rot // 2)
    y = x.copy()
    y[..., a] = x[..., a] * c - x[..., b] * s
    y[..., b] = x[..., a] * s + x[..., b] * c
    return y


def attention(q, k, v, scale, window):
    """Causal; q [token][head][dim], k and v with fewer heads; window 0 sees everything."""
    n, n_head = q.shape[:2]
    rep = n_head // k.shape[1]
    distance = np.arange(n)[:, None] - np.arange(n)[None, :]
    hidden = (distance < 0) | ((distance >= window) if window else False)
    out = np.empty((n, n_head, v.shape[2]))
    for h in range(n_head):
        score = q[:, h] @ k[:, h // rep].T * scale
        out[:, h] = softmax(np.where(hidden, -np.inf, score)) @ v[:, h // rep]
    return out.reshape(n, -1)


class Model:
    """A file's metadata and tensors, by short names."""

    def __init__(self, meta, tensors):
        self.meta, self.arch = meta, meta["general.architecture"]
        self.t = {name: v.astype(np.float64) for name, v in tensors.items()}
        self.eps = self.key("attention.layer_norm_rms_epsilon")

    def key(self, suffix, default=None):
        return self.meta.get(f"{self.arch}.{suffix}", default)

    def per_layer(self, suffix, i, default=None):
        v = self.key(suffix, default)
        return v[i] if isinstance(v, list) else v

    def vec(self, name):
        return self.t.get(name)

    def mul(self, name, x):
        """The matrix `name` times each row of x, with its scale and bias."""
        y = x @ self.t[f"{name}.weight"].T * self.t.get(f"{name}.scale", 1.0)
        return y + self.t.get(f"{name}.bias", 0.0)

    def logits(self, x):
        u = rms(x, self.t["output_norm.weight"], self.eps)
        w = self.t.get("output.weight", self.t["token_embd.weight"])
        cap = self.key("final_logit_softcapping", 0)
        y = u @ w.T
        return cap * np.tanh(y / cap) if cap else y

    def gated(self, blk, x, act):
        gate = act(self.mul(blk + "ffn_gate", x))
        return self.mul(blk + "ffn_down", gate * self.mul(blk + "ffn_up", x))

    def experts(self, blk, router_in, x, act):
        k = self.key("expert_used_count")
        prob = softmax(router_in @ self.t[blk + "ffn_gate_inp.weight"].T)
        n_expert = prob.shape[1]

        def weights(part):
            w = self.t.get(f"{blk}{part}.weight")
            s = self.t.get(f"{blk}{part}.scale", np.ones(n_expert))
            return w if w is None else w * s[:, None, None]

        gate, up, down = weights("ffn_gate_exps"), weights("ffn_up_exps"), weights("ffn_down_exps")
        if gate is None:
            both = weights("ffn_gate_up_exps")
            gate, up = both[:, :both.shape[1] // 2], both[:, both.shape[1] // 2:]
        y = np.zeros_like(x)
        for t, p in enumerate(prob):
            chosen = sorted(range(n_expert), key=lambda e: (-p[e], e))[:k]
            total = max(sum(p[e] for e in chosen), 6.103515625e-5)
            for e in chosen:
                y[t] += p[e] / total * (down[e] @ (act(gate[e] @ x[t]) * (up[e] @ x[t])))
        return y


# ---- llama, qwen3moe, gemma, nanbeige ----------------------------------------------------------

def plain(m, ids):
    """Pre-norm blocks: attention, then a gated MLP or experts."""
    pairs = m.arch in ("llama", "nanbeige")
    act = gelu if m.arch == "gemma" else silu
    n_head, n_kv = m.key("attention.head_count"), m.key("attention.head_count_kv")
    dim = m.key("attention.key_length")
    x = m.t["token_embd.weight"][ids]
    if m.arch == "gemma":
        x = x * np.sqrt(x.shape[1])
    loops = m.key("num_loops", 1)
    for loop in range(loops):
        for i in range(m.key("block_count")):
            blk = f"blk.{i}."
            h = rms(x, m.vec(blk + "attn_norm.weight"), m.eps)
            q = m.mul(blk + "attn_q", h).reshape(len(ids), n_head, dim)
            k = m.mul(blk + "attn_k", h).reshape(len(ids), n_kv, dim)
            v = m.mul(blk + "attn_v", h).reshape(len(ids), n_kv, dim)
            if blk + "attn_q_norm.weight" in m.t:
                q = rms(q, m.vec(blk + "attn_q_norm.weight"), m.eps)
                k = rms(k, m.vec(blk + "attn_k_norm.weight"), m.eps)
            base = m.key("rope.freq_base", 10000.0)
            q, k = rope(q, base, dim, pairs), rope(k, base, dim, pairs)
            x = x + m.mul(blk + "attn_output", attention(q, k, v, dim ** -0.5, 0))
            h = rms(x, m.vec(blk + "ffn_norm.weight"), m.eps)
            if blk + "ffn_gate_inp.weight" in m.t:
                x = x + m.experts(blk, h, h, act)
            else:
                x = x + m.gated(blk, h, act)
        if loop < loops - 1 and not m.key("skip_loop_final_norm", False):
            x = rms(x, m.vec("output_norm.weight"), m.eps)
    return m.logits(x)


# ---- gemma4 ------------------------------------------------------------------------------------

def per_layer_inputs(m, ids, x, n_layer, width):
    """[layer][token][width]: the tokens' own rows mixed with a projection of the embeddings."""
    own = m.t["per_layer_token_embd.weight"][ids].reshape(len(ids), n_layer, width)
    proj = (x @ m.t["per_layer_model_proj.weight"].T / np.sqrt(x.shape[1]))
    proj = rms(proj.reshape(len(ids), n_layer, width), m.t["per_layer_proj_norm.weight"], m.eps)
    return ((proj + own * np.sqrt(width)) / np.sqrt(2)).transpose(1, 0, 2)


def gemma4_attention(m, blk, i, h, caches, scale_from):
    n = len(h)
    sliding = bool(m.key("attention.sliding_window_pattern")[i])
    swa = "_swa" if sliding else ""
    dim = m.key("attention.key_length" + swa)
    n_head, n_kv = m.per_layer("attention.head_count", i), m.per_layer("attention.head_count_kv", i)
    base = m.key("rope.freq_base_swa", 10000.0) if sliding else m.key("rope.freq_base")
    factors = None if sliding else m.vec("rope_freqs.weight")
    q = m.mul(blk + "attn_q", h).reshape(n, n_head, dim)
    q = rms(q, m.vec(blk + "attn_q_norm.weight"), m.eps)
    q = rope(q, base, dim, False, factors)
    if scale_from is None:
        k = m.mul(blk + "attn_k", h).reshape(n, n_kv, dim)
        v = k
        if blk + "attn_v.weight" in m.t:
            v = m.mul(blk + "attn_v", h).reshape(n, n_kv, dim)
        k = rope(rms(k, m.vec(blk + "attn_k_norm.weight"), m.eps), base, dim, False, factors)
        caches[i] = (k, rms(v, None, m.eps))
    k, v = caches[i if scale_from is None else scale_from]
    window = m.key("attention.sliding_window") if sliding else 0
    return m.mul(blk + "attn_output", attention(q, k, v, 1.0, window))


def gemma4(m, ids):
    n_layer, width = m.key("block_count"), m.key("embedding_length_per_layer_input")
    n_own = n_layer - m.key("attention.shared_kv_layers", 0)
    x = m.t["token_embd.weight"][ids]
    n_embd = x.shape[1]
    x = x * np.sqrt(n_embd)
    inputs = per_layer_inputs(m, ids, x, n_layer, width) if width else None
    caches = {}
    for i in range(n_layer):
        blk = f"blk.{i}."
        norm = lambda name, y: rms(y, m.t[f"{blk}{name}.weight"], m.eps)
        sliding = bool(m.key("attention.sliding_window_pattern")[i])
        shared = None if i < n_own else n_own - 2 if sliding else n_own - 1
        a = gemma4_attention(m, blk, i, norm("attn_norm", x), caches, shared)
        x = x + norm("post_attention_norm", a)
        f = m.gated(blk, norm("ffn_norm", x), gelu)
        if blk + "ffn_gate_inp.weight" in m.t:
            r = rms(x, None, m.eps) / np.sqrt(n_embd) * m.t[blk + "ffn_gate_inp.scale"]
            e = m.experts(blk, r, norm("pre_ffw_norm_2", x), gelu)
            f = norm("post_ffw_norm_1", f) + norm("post_ffw_norm_2", e)
        x = x + norm("post_ffw_norm", f)
        if width:
            z = m.mul(blk + "proj", gelu(m.mul(blk + "inp_gate", x)) * inputs[i])
            x = x + norm("post_norm", z)
        x = x * m.t.get(blk + "layer_output_scale.weight", 1.0)
    return m.logits(x)


# ---- gemma3n -----------------------------------------------------------------------------------

def gemma3n(m, ids):
    n_layer, width = m.key("block_count"), m.key("embedding_length_per_layer_input")
    n_head, n_kv = m.key("attention.head_count"), m.key("attention.head_count_kv")
    n_own = n_layer - m.key("attention.shared_kv_layers", max(n_layer - 20, 0))
    dim, n_sparse = m.key("attention.key_length"), 10
    x0 = m.t["token_embd.weight"][ids]
    n_embd = x0.shape[1]
    x0 = x0 * np.sqrt(n_embd)
    inputs = per_layer_inputs(m, ids, x0, n_layer, width)
    length = lambda y: np.sqrt(np.sum(y * y, axis=-1, keepdims=True))
    streams = [x0]
    for w in m.t["altup_proj.weight"]:
        y = x0 @ w.T
        streams.append(y * length(x0) / length(y))
    caches = {}
    for i in range(n_layer):
        blk = f"blk.{i}."
        norm = lambda name, y: rms(y, m.t[f"{blk}{name}.weight"], m.eps)
        route_in = lambda y: norm("altup_router_norm", y) / n_embd
        router = lambda y: np.tanh(m.mul(blk + "altup_router", route_in(y)))
        sliding = bool(m.key("attention.sliding_window_pattern")[i])

        c = m.mul(blk + "altup_predict_coef", router(streams[0]))
        pred = [streams[o] + sum(c[:, 4 * o + a:4 * o + a + 1] * streams[a] for a in range(4))
                for o in range(4)]
        h = norm("attn_norm", pred[0])
        lau = h + norm("laurel_post_norm", m.mul(blk + "laurel_r", m.mul(blk + "laurel_l", h)))

        base = m.key("rope.freq_base_swa", 10000.0) if sliding else m.key("rope.freq_base")
        shape = lambda name, heads: m.mul(blk + name, h).reshape(len(ids), heads, dim)
        q = rope(norm("attn_q_norm", shape("attn_q", n_head)), base, dim, False)
        source = i
        if i < n_own:
            k = rope(norm("attn_k_norm", shape("attn_k", n_kv)), base, dim, False)
            caches[i] = (k, rms(shape("attn_v", n_kv), None, m.eps))
        else:
            source = n_own - 2 if sliding else n_own - 1
        a = attention(q, *caches[source], 1.0, m.key("attention.sliding_window") if sliding else 0)
        a = norm("post_attention_norm", m.mul(blk + "attn_output", a)) + pred[0]
        t = (a + lau) / np.sqrt(2)

        f_in = norm("ffn_norm", t)
        gate = m.mul(blk + "ffn_gate", f_in)
        if i < n_sparse:
            mean = np.mean(gate, axis=-1, keepdims=True)
            std = np.std(gate, axis=-1, ddof=1, keepdims=True)
            gate = np.maximum(gate - (mean + 1.6448533535003662 * std), 0)
        f = m.mul(blk + "ffn_down", gelu(gate) * m.mul(blk + "ffn_up", f_in))
        y = t + norm("post_ffw_norm", f)

        delta = y - pred[0]
        c = m.mul(blk + "altup_correct_coef", router(y)) + 1
        streams = [pred[o] + c[:, o:o + 1] * delta for o in range(4)]
        scaled = streams[0] * m.t[blk + "altup_correct_scale.weight"]
        z = gelu(m.mul(blk + "inp_gate", scaled)) * inputs[i]
        z = norm("post_norm", m.mul(blk + "proj", z))
        streams[1:] = [s + z for s in streams[1:]]
    total = streams[0]
    for w, s in zip(m.t["altup_unembd_proj.weight"], streams[1:]):
        y = s @ w.T
        total = total + y * length(streams[0]) / length(y)
    return m.logits(total / 4)


FORWARD = {"llama": plain, "qwen3moe": plain, "gemma": plain, "nanbeige": plain,
           "gemma4": gemma4, "gemma3n": gemma3n}


# ---- the models --------------------------------------------------------------------------------

class Maker:
    """Metadata and random tensors of one model."""

    def __init__(self, arch, seed, **keys):
        self.arch, self.rng = arch, np.random.default_rng(seed)
        common = {"context_length": 512, "vocab_size": N_VOCAB,
                  "attention.layer_norm_rms_epsilon": 1e-5}
        self.meta = {"general.architecture": arch}
        self.meta |= {f"{arch}.{k.replace('__', '.')}": v for k, v in (common | keys).items()}
        self.tensors = {}
        self.n_embd = keys["embedding_length"]
        embd_size = 1.0 if arch.startswith("gemma") else 2.0
        self.matrix("token_embd", N_VOCAB, self.n_embd, size=embd_size)
        self.norm("output_norm", self.n_embd)

    def put(self, name, values):
        self.tensors[name] = np.asarray(values, np.float32)

    def matrix(self, name, *shape, size=None):
        size = (1.6 if size is None else size) / np.sqrt(shape[-1])
        self.put(f"{name}.weight", self.rng.normal(0, size, shape))

    def norm(self, name, n):
        self.put(f"{name}.weight", 1 + 0.3 * self.rng.normal(size=n))

    def attention(self, i, n_head, n_kv, dim, qk_norm=False, own=True, v=True):
        blk = f"blk.{i}."
        self.norm(blk + "attn_norm", self.n_embd)
        self.matrix(blk + "attn_q", n_head * dim, self.n_embd)
        if own:
            self.matrix(blk + "attn_k", n_kv * dim, self.n_embd)
        if own and v:
            self.matrix(blk + "attn_v", n_kv * dim, self.n_embd)
        self.matrix(blk + "attn_output", self.n_embd, n_head * dim)
        if qk_norm:
            self.norm(blk + "attn_q_norm", dim)
        if qk_norm and own:
            self.norm(blk + "attn_k_norm", dim)

    def mlp(self, i, n_ff):
        blk = f"blk.{i}."
        self.norm(blk + "ffn_norm", self.n_embd)
        self.matrix(blk + "ffn_gate", n_ff, self.n_embd)
        self.matrix(blk + "ffn_up", n_ff, self.n_embd)
        self.matrix(blk + "ffn_down", self.n_embd, n_ff)

    def experts(self, i, n, n_ff, fused=False):
        blk = f"blk.{i}."
        self.matrix(blk + "ffn_gate_inp", n, self.n_embd, size=3.0)
        if fused:
            self.matrix(blk + "ffn_gate_up_exps", n, 2 * n_ff, self.n_embd)
        else:
            self.matrix(blk + "ffn_gate_exps", n, n_ff, self.n_embd)
            self.matrix(blk + "ffn_up_exps", n, n_ff, self.n_embd)
        self.matrix(blk + "ffn_down_exps", n, self.n_embd, n_ff)


def llama_moe():
    m = Maker("llama", 11, embedding_length=32, block_count=2, feed_forward_length=24,
              attention__head_count=4, attention__head_count_kv=2, attention__key_length=8,
              attention__value_length=8, rope__dimension_count=8, expert_count=8,
              expert_used_count=2)
    for i in range(2):
        m.attention(i, 4, 2, 8)
        m.norm(f"blk.{i}.ffn_norm", 32)
        m.experts(i, 8, 24)
    # Scales beside matrices, one for all or one per expert.
    m.put("blk.0.attn_q.scale", [0.7])
    m.put("blk.1.ffn_down_exps.scale", 1 + 0.5 * m.rng.normal(size=8))
    m.put("blk.1.ffn_up_exps.scale", 1 + 0.5 * m.rng.normal(size=8))
    return m


def qwen3moe():
    m = Maker("qwen3moe", 12, embedding_length=32, block_count=2, feed_forward_length=96,
              expert_feed_forward_length=16, attention__head_count=4, attention__head_count_kv=2,
              attention__key_length=16, attention__value_length=16, rope__freq_base=1e6,
              expert_count=10, expert_used_count=3)
    for i in range(2):
        m.attention(i, 4, 2, 16, qk_norm=True)
        m.norm(f"blk.{i}.ffn_norm", 32)
        m.experts(i, 10, 16)
    m.matrix("output", N_VOCAB, 32)
    return m


def gemma():
    m = Maker("gemma", 13, embedding_length=40, block_count=2, feed_forward_length=48,
              attention__head_count=4, attention__head_count_kv=1, attention__key_length=16,
              attention__value_length=16)
    for i in range(2):
        m.attention(i, 4, 1, 16)
        m.mlp(i, 48)
    return m


def nanbeige(skip_norm):
    m = Maker("nanbeige", 14 + skip_norm, embedding_length=32, block_count=2,
              feed_forward_length=64, attention__head_count=4, attention__head_count_kv=2,
              attention__key_length=8, attention__value_length=8, num_loops=3,
              skip_loop_final_norm=skip_norm)
    for i in range(2):
        m.attention(i, 4, 2, 8)
        m.mlp(i, 64)
    return m


def gemma4_norms(m, i):
    m.norm(f"blk.{i}.post_attention_norm", m.n_embd)
    m.norm(f"blk.{i}.post_ffw_norm", m.n_embd)


def per_layer(m, n_layer, width):
    m.matrix("per_layer_token_embd", N_VOCAB, width * n_layer)
    m.matrix("per_layer_model_proj", width * n_layer, m.n_embd)
    m.norm("per_layer_proj_norm", width)
    for i in range(n_layer):
        m.matrix(f"blk.{i}.inp_gate", width, m.n_embd)
        m.matrix(f"blk.{i}.proj", m.n_embd, width)
        m.norm(f"blk.{i}.post_norm", m.n_embd)


def rope_freqs(m, dim):
    """A quarter of the pairs rotates."""
    m.put("rope_freqs.weight", [1.0 if j < dim // 8 else 1e30 for j in range(dim // 2)])


def gemma4_e2b():
    """Per-layer embeddings, shared keys and values, wider MLPs in the layers that share."""
    sliding, n_ff, width = [True, False] * 3, [32] * 4 + [64] * 2, 8
    m = Maker("gemma4", 16, embedding_length=32, block_count=6, feed_forward_length=n_ff,
              attention__head_count=4, attention__head_count_kv=1, attention__key_length=16,
              attention__value_length=16, attention__key_length_swa=8,
              attention__value_length_swa=8, attention__sliding_window=12,
              attention__sliding_window_pattern=sliding, attention__shared_kv_layers=2,
              embedding_length_per_layer_input=width, rope__freq_base=1e6,
              rope__freq_base_swa=1e4, rope__dimension_count=16, rope__dimension_count_swa=8,
              final_logit_softcapping=30.0)
    m.tensors["token_embd.weight"] *= 2
    for i in range(6):
        m.attention(i, 4, 1, 8 if sliding[i] else 16, qk_norm=True, own=i < 4)
        m.mlp(i, n_ff[i])
        gemma4_norms(m, i)
        m.put(f"blk.{i}.layer_output_scale.weight", [0.9 - 0.05 * i])
    per_layer(m, 6, width)
    rope_freqs(m, 16)
    return m


def gemma4_moe():
    """Experts beside the MLP, values from the keys and fewer of them on full layers."""
    sliding = [True, True, False, True, False]
    n_kv = [2 if s else 1 for s in sliding]
    m = Maker("gemma4", 17, embedding_length=32, block_count=5, feed_forward_length=24,
              expert_feed_forward_length=16, expert_count=6, expert_used_count=2,
              attention__head_count=4, attention__head_count_kv=n_kv, attention__key_length=16,
              attention__value_length=16, attention__key_length_swa=8,
              attention__value_length_swa=8, attention__sliding_window=16,
              attention__sliding_window_pattern=sliding, attention__shared_kv_layers=0,
              embedding_length_per_layer_input=0, rope__freq_base=1e6, rope__freq_base_swa=1e4,
              rope__dimension_count=16, rope__dimension_count_swa=8,
              final_logit_softcapping=30.0)
    for i in range(5):
        m.attention(i, 4, n_kv[i], 8 if sliding[i] else 16, qk_norm=True, v=sliding[i])
        m.mlp(i, 24)
        gemma4_norms(m, i)
        if i == 3:
            continue  # one layer has no experts
        m.experts(i, 6, 16, fused=i != 1)
        m.put(f"blk.{i}.ffn_gate_inp.scale", 4 * (1 + 0.3 * m.rng.normal(size=32)))
        if i > 0:
            m.put(f"blk.{i}.ffn_down_exps.scale", 1 + 0.4 * m.rng.normal(size=6))
        for name in ("pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"):
            m.norm(f"blk.{i}.{name}", 32)
    rope_freqs(m, 16)
    return m


def gemma3n_tiny():
    """Large embeddings, weak mixing of the streams, and a large epsilon for MLPs that let hardly
    anything through: otherwise each layer makes the rounding errors of float32 much larger."""
    n_layer, width, e, n_ff, laurel = 12, 4, 16, 48, 64
    sliding = [i % 5 < 4 for i in range(n_layer)]
    m = Maker("gemma3n", 18, embedding_length=e, block_count=n_layer, feed_forward_length=n_ff,
              attention__head_count=2, attention__head_count_kv=1, attention__key_length=8,
              attention__value_length=8, attention__sliding_window=12,
              attention__sliding_window_pattern=sliding, attention__shared_kv_layers=2,
              embedding_length_per_layer_input=width, rope__freq_base=1e6,
              rope__freq_base_swa=1e4, final_logit_softcapping=30.0,
              attention__layer_norm_rms_epsilon=0.1)
    m.tensors["token_embd.weight"] *= 4
    m.matrix("altup_proj", 3, e, e)
    m.matrix("altup_unembd_proj", 3, e, e)
    for i in range(n_layer):
        blk = f"blk.{i}."
        m.attention(i, 2, 1, 8, qk_norm=True, own=i < n_layer - 2)
        m.mlp(i, n_ff)
        gemma4_norms(m, i)
        m.matrix(blk + "altup_correct_coef", 4, 4, size=0.2)
        m.matrix(blk + "altup_predict_coef", 16, 4, size=0.2)
        m.put(blk + "altup_correct_scale.weight", 1 + 0.3 * m.rng.normal(size=e))
        m.matrix(blk + "altup_router", 4, e, size=30.0)
        m.norm(blk + "altup_router_norm", e)
        m.matrix(blk + "laurel_l", laurel, e)
        m.matrix(blk + "laurel_r", e, laurel)
        m.norm(blk + "laurel_post_norm", e)
    per_layer(m, n_layer, width)
    return m


MODELS = {
    "llama-moe": llama_moe, "qwen3moe-tiny": qwen3moe, "gemma-v1": gemma,
    "nanbeige-loops": lambda: nanbeige(False), "nanbeige-skipnorm": lambda: nanbeige(True),
    "gemma4-e2b": gemma4_e2b, "gemma4-moe": gemma4_moe, "gemma3n-tiny": gemma3n_tiny,
}


# ---- the command -------------------------------------------------------------------------------

def greedy(model, ids, n):
    ids, out, margins = list(ids), [], []
    for _ in range(n):
        last = FORWARD[model.arch](model, np.array(ids))[-1]
        a, b = np.sort(last)[-1], np.sort(last)[-2]
        out.append(int(np.argmax(last)))
        margins.append(float(a - b))
        ids.append(out[-1])
    return out, margins


def write_model(root, name):
    made = MODELS[name]()
    folder = os.path.join(root, name)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "model.gguf")
    gguf_f32.write(path, made.meta, made.tensors)
    model = Model(*gguf_f32.read(path))
    ids = made.rng.integers(0, N_VOCAB, N_TOKENS)
    logits = FORWARD[model.arch](model, ids)
    out, margins = greedy(model, ids, N_GREEDY)

    def dump(file, value):
        with open(os.path.join(folder, file), "w") as f:
            json.dump(value, f)
            f.write("\n")

    dump("tokens.json", ids.tolist())
    dump("greedy_ref64.json", {"ids": out, "margin": margins})
    dump("meta.json", {"name": name, "arch": model.arch, "n_tokens": N_TOKENS, "n_vocab": N_VOCAB,
                       "oracle": "tests/reference/reference.py"})
    logits.astype("<f4").tofile(os.path.join(folder, "ref64.f32"))
    print(f"{name}: {os.path.getsize(path)} bytes, logits std {np.std(logits):.2f}, "
          f"smallest margin {min(margins):.4f}")


def check_model(folder):
    model = Model(*gguf_f32.read(os.path.join(folder, "model.gguf")))
    ids = np.array(json.load(open(os.path.join(folder, "tokens.json"))))
    got = FORWARD[model.arch](model, ids)
    want = np.fromfile(os.path.join(folder, "ref64.f32"), "<f4").reshape(got.shape)
    print(f"{folder}: nmse {np.sum((got - want) ** 2) / np.sum(want ** 2.0):.2e}, "
          f"max {np.max(np.abs(got - want)):.2e}")


# As in tests/test_golden.c: the tokens, and how many positions at the end are compared.
TYPE_IDS, TYPE_LAST = [(37 * i + 11) % 320 for i in range(24)], 4


def write_types(mkmodel, root):
    for name, *_ in quants.TYPES.values():
        with tempfile.NamedTemporaryFile(suffix=".gguf") as f:
            subprocess.run([mkmodel, "llama", f.name, name], check=True)
            model = Model(*gguf_f32.read(f.name))
        logits = FORWARD[model.arch](model, np.array(TYPE_IDS))[-TYPE_LAST:]
        logits.astype("<f4").tofile(os.path.join(root, f"{name}.f32"))
        print(f"{name}: logits std {np.std(logits):.2f}")


def main(args):
    if len(args) >= 2 and args[0] == "write":
        for name in args[2:] or MODELS:
            write_model(args[1], name)
    elif len(args) >= 2 and args[0] == "check":
        for folder in args[1:]:
            check_model(folder)
    elif len(args) == 3 and args[0] == "types":
        write_types(*args[1:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Writes GGUF files whose tensors are all F32 and reads those that also have the types of
quants.py; just enough for reference models."""
import struct

import numpy as np

import quants

ALIGN = 32
U32, F32, BOOL, STR, ARR = 4, 6, 7, 8, 9
FIXED = {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "<?",
         10: "<u8", 11: "<i8", 12: "<f8"}


def _string(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def _typed(v):
    if isinstance(v, bool):
        return BOOL, struct.pack("<?", v)
    if isinstance(v, int):
        return U32, struct.pack("<I", v)
    if isinstance(v, float):
        return F32, struct.pack("<f", v)
    if isinstance(v, str):
        return STR, _string(v)
    kind = _typed(v[0])[0]
    return ARR, struct.pack("<IQ", kind, len(v)) + b"".join(_typed(x)[1] for x in v)


def write(path, meta, tensors):
    """tensors: name to float32 array; an array [b][a] has GGUF shape {a, b}."""
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(meta))
    for key, v in meta.items():
        kind, data = _typed(v)
        head += _string(key) + struct.pack("<I", kind) + data
    at = 0
    for name, t in tensors.items():
        head += _string(name) + struct.pack("<I", t.ndim)
        head += struct.pack(f"<{t.ndim}Q", *reversed(t.shape)) + struct.pack("<IQ", 0, at)
        at += -(-t.nbytes // ALIGN) * ALIGN
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % ALIGN))
        for t in tensors.values():
            f.write(t.astype("<f4").tobytes() + bytes(-t.nbytes % ALIGN))


class _Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def fixed(self, fmt):
        v = struct.unpack_from("<" + fmt, self.data, self.at)
        self.at += struct.calcsize("<" + fmt)
        return v[0]

    def string(self):
        n = self.fixed("Q")
        self.at += n
        return self.data[self.at - n:self.at].decode()

    def value(self, kind):
        if kind == STR:
            return self.string()
        if kind == ARR:
            elem, n = self.fixed("I"), self.fixed("Q")
            return [self.value(elem) for _ in range(n)]
        dtype = np.dtype(FIXED[kind])
        self.at += dtype.itemsize
        return np.frombuffer(self.data, dtype, 1, self.at - dtype.itemsize)[0].item()


def read(path):
    r = _Reader(open(path, "rb").read())
    r.at = 8
    n_tensors, n_kv = r.fixed("Q"), r.fixed("Q")
    meta, where = {}, {}
    for _ in range(n_kv):
        key = r.string()
        meta[key] = r.value(r.fixed("I"))
    for _ in range(n_tensors):
        name = r.string()
        shape = [r.fixed("Q") for _ in range(r.fixed("I"))]
        where[name] = (tuple(reversed(shape)), r.fixed("I"), r.fixed("Q"))
    align = meta.get("general.alignment", ALIGN)
    base = -(-r.at // align) * align

    def values(shape, kind, at):
        n = int(np.prod(shape))
        if kind == 0:
            return np.frombuffer(r.data, "<f4", n, base + at).reshape(shape)
        return quants.decode(kind, r.data[base + at:], n).reshape(shape)

    return meta, {name: values(*where[name]) for name in where}

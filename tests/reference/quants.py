"""Values of quantised blocks, from the description of the formats; the types that no stored
golden model has.  Each function takes the bytes of a tensor as [block][byte]."""
import numpy as np

FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


def _f16(b, at):
    return b[:, at:at + 2].copy().view("<f2").astype(np.float64)


def _fields(q, width):
    """[block][byte] to [block][byte][field], fields of `width` bits from the lowest."""
    return q[:, :, None] >> np.arange(0, 8, width) & ((1 << width) - 1)


def _flat(x):
    return x.reshape(len(x), -1)


def q1_0(b):
    return _f16(b, 0) * (2.0 * _flat(_fields(b[:, 2:], 1)) - 1)


def q2_0(b):
    return _f16(b, 0) * (_flat(_fields(b[:, 2:], 2)) - 1.0)


def tq2_0(b):
    """Bytes of 32 hold four runs of 32, one in each field."""
    v = _fields(b[:, :64], 2).reshape(len(b), 2, 32, 4).swapaxes(2, 3)
    return _f16(b, 64) * (_flat(v) - 1.0)


def tq1_0(b):
    """A byte is the fraction 0.ddddd in base 3, rounded up to 256ths."""
    def digits(q, n):
        fraction, out = q.astype(np.float64) / 256, []
        for _ in range(n):
            fraction = fraction * 3
            out.append(np.floor(fraction))
            fraction = fraction - out[-1]
        return np.stack(out, axis=1)

    parts = (digits(b[:, :32], 5), digits(b[:, 32:48], 5), digits(b[:, 48:52], 4))
    return _f16(b, 52) * (np.concatenate([_flat(p) for p in parts], axis=1) - 1)


def nvfp4(b):
    sc = b[:, :4].astype(int) & 127
    exponent, mantissa = sc >> 3, sc & 7
    scale = np.where(exponent == 0, mantissa / 512.0, (1 + mantissa / 8) * 2.0 ** (exponent - 7))
    scale[sc == 127] = 0
    q = b[:, 4:].reshape(len(b), 4, 8)
    codes = np.concatenate([q & 15, q >> 4], axis=2)
    return _flat(scale[:, :, None] * FP4[codes])


# type id: name, weights in a block, bytes, values
TYPES = {
    34: ("TQ1_0", 256, 54, tq1_0), 35: ("TQ2_0", 256, 66, tq2_0), 40: ("NVFP4", 64, 36, nvfp4),
    41: ("Q1_0", 128, 18, q1_0), 42: ("Q2_0", 64, 18, q2_0),
}


def decode(type_id, data, n):
    """n values of a type, from the beginning of the bytes."""
    _, block, size, values = TYPES[type_id]
    return values(np.frombuffer(data, np.uint8, n // block * size).reshape(-1, size)).reshape(-1)

"""Weights that are not stored: each element follows from its tensor's name and its index, so that a test can make them itself. Used by
golden_encoders.py and golden_encoder_adapters.py; README.md has the same function in words, the C++ tests have it in C++.

tensors.json of a folder lists the tensors of its safetensors file: name, shape, offset and scale.
"""

import json
import math

import numpy
import torch
from safetensors import safe_open
from safetensors.torch import save_file

FNV_OFFSET, FNV_PRIME = 14695981039346656037, 1099511628211
GOLDEN_RATIO, MIX_FIRST, MIX_SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
SQRT3 = math.sqrt(3.0)  # uniform values within [-s, s] have the standard deviation s / sqrt(3)
SCORES = ("query", "key", "q_lin", "k_lin", "attn.q.", "attn.k.", "q_proj", "k_proj")


def hash_of(name):
    value = FNV_OFFSET
    for byte in name.encode():
        value = (value ^ byte) * FNV_PRIME % 2**64
    return value


DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64, "I32": torch.int32, "I8": torch.int8,
          "U8": torch.uint8, "F8_E4M3": torch.float8_e4m3fn}  # fmt: skip


def mixed(name, shape):
    """64 bits for each element."""
    index = numpy.arange(1, math.prod(shape) + 1, dtype=numpy.uint64)
    z = numpy.uint64(hash_of(name)) + index * numpy.uint64(GOLDEN_RATIO)  # wraps, as uint64 does in C++
    z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(MIX_FIRST)
    z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(MIX_SECOND)
    return z ^ (z >> numpy.uint64(31))


def weights(name, shape, offset, scale):
    """float32, of the given shape."""
    z = mixed(name, shape)
    unit = (z >> numpy.uint64(40)).astype(numpy.float64) * 2.0**-24
    return torch.from_numpy((offset + scale * (2.0 * unit - 1.0)).astype(numpy.float32).reshape(shape))


def tensor(name, shape, dtype="F32", offset=0.0, scale=0.0, bits=False, values=None):
    """As a row of tensors.json says: spread floats, whatever the bits are, or values, of which one stands for all elements."""
    if values is not None:
        values = values * math.prod(shape) if len(values) == 1 else values
        return torch.tensor(values, dtype=DTYPES[dtype]).reshape(shape)
    if not bits:
        return weights(name, shape, offset, scale).to(DTYPES[dtype])
    z = mixed(name, shape)
    if dtype == "I32":
        return torch.from_numpy((z >> numpy.uint64(32)).astype(numpy.uint32).view(numpy.int32).reshape(shape))
    octets = (z >> numpy.uint64(56)).astype(numpy.uint8)
    if dtype == "F8_E4M3":
        octets -= (octets & 0x7F) == 0x7F  # not NaN
    return torch.from_numpy(octets.reshape(shape)).view(DTYPES[dtype])


def rounded(scale):
    return float(f"{scale:.3g}")


def spread(name, shape):
    """offset and scale that keep activations near 1 and spread the logits; norms and biases differ from their neutral values."""
    if len(shape) == 1:
        return (0, 0.4) if name.endswith("bias") else (1, 0.35)
    if "word_embeddings" in name or "tok_embeddings" in name or "embed_tokens" in name:
        return 0, 1.2
    if "position_embeddings" in name or "token_type_embeddings" in name:
        return 0, 0.9
    if "rel_embeddings" in name or "relative_attention_bias" in name:
        return 0, 1.6
    if name.endswith(("classifier.weight", "out_proj.weight", "score.weight")):
        return 0, rounded(2.2 * SQRT3 / math.sqrt(shape[1]))
    gain = 1.7 if any(part in name for part in SCORES) else 1.3
    return 0, rounded(gain * SQRT3 / math.sqrt(math.prod(shape[1:])))


def shapes_of(path):
    """name -> shape of a safetensors file, sorted by name."""
    with safe_open(path, "pt") as file:
        for name in file.keys():
            assert file.get_slice(name).get_dtype() == "F32", f"{path}: {name} is not float32"
        return {name: list(file.get_slice(name).get_shape()) for name in sorted(file.keys())}


def write_spread(folder, shapes, spread):
    """Writes tensors.json; spread(name, shape) gives a tensor's offset and scale."""
    tensors = []
    for name, shape in shapes.items():
        offset, scale = spread(name, shape)
        tensors.append({"name": name, "shape": shape, "offset": offset, "scale": scale})
    write_tensors(folder, tensors)


def write_tensors(folder, tensors):
    lines = ",\n".join(json.dumps(tensor, separators=(",", ":")) for tensor in tensors)
    (folder / "tensors.json").write_text('{"tensors": [\n' + lines + "\n]}\n")


def write_safetensors(folder, path):
    """Makes the safetensors file that tensors.json of the folder describes."""
    tensors = json.loads((folder / "tensors.json").read_text())["tensors"]
    save_file({row["name"]: tensor(**row) for row in tensors}, path, metadata={"format": "pt"})

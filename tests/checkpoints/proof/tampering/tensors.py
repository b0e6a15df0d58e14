"""Edits of tensors and of the files that hold them: entries, blocks, heads, idle rows, names, shapes, shards."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np

from byheart.checkpoints.dtypes import tensor_bytes
from byheart.checkpoints.proof.tensors import INDEX, open_tensors
from tests.checkpoints.proof.tampering.settings import VALUES, pick

Random = np.random.Generator
Tensors = dict[str, np.ndarray]


def read_tensors(folder: Path) -> tuple[Tensors, dict[str, str]]:
    """The tensors of a folder and their types."""
    file = open_tensors(folder / "model.safetensors")
    names = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
    return {n: file.read(n) for n in file.entries}, {n: names[e[0]] for n, e in file.entries.items()}


def write_tensors(path: Path, tensors: Tensors, types: dict[str, str]) -> None:
    short = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data, at = [], 0
    for name, values in tensors.items():
        raw = tensor_bytes(np.ascontiguousarray(values, dtype=np.float32), types[name])
        header[name] = {"dtype": short[types[name]], "shape": list(values.shape), "data_offsets": [at, at + len(raw)]}
        data.append(raw)
        at += len(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))


LARGE = (6e4, 65504.0, 3e38, 1e30, 2.0**63, 2.0**64, 240.0, 2.0**15)
MIXERS = ("linear_attn.", "mamba.")  # recurrent layers have small tensors with a large effect
SMALL = (2.0**-24, 2.0**-25, 6e-8, 2.0**-126, 2.0**-133, 2.0**-149, -7e-46, 1e-40)


def _factor(rng: Random) -> float:
    """Powers of two, numbers next to one, signs and zero."""
    k = int(rng.integers(1, 24))
    powers = 2.0 ** int(rng.integers(-8, 9)), 2.0 ** int(rng.integers(-140, 128))
    found = *powers, 1 + 2.0**-k, 1 - 2.0**-k, -1.0, 0.0, 1.5
    return float(found[rng.choice(7, p=(0.15, 0.05, 0.3, 0.3, 0.05, 0.1, 0.05))])


def _block(size: int, rng: Random) -> slice:
    length = int(rng.choice([1, 1, 2, 16, 64, size]))
    start = int(rng.integers(size)) // min(length, size) * min(length, size)
    return slice(start, start + length)


def _edit_values(w: np.ndarray, rng: Random) -> str:
    """One edit of one tensor in place."""
    rows = w if w.ndim == 1 or rng.random() < 0.6 else w.T
    block = _block(len(rows), rng)
    kind = int(rng.integers(9))
    if kind == 8 and w.ndim == 2 and w.shape[0] == w.shape[1]:
        w[:] = w.T.copy()
        return "transposed"
    if kind == 0:  # single entries
        flat, k = w.reshape(-1), int(rng.choice([1, 1, 3, 20]))
        where = rng.integers(0, len(flat), k)
        used = np.flatnonzero(flat)
        where = rng.choice(used, k) if len(used) and rng.random() < 0.7 else where
        change = int(rng.integers(3))
        flat[where] = (flat[where] * _factor(rng), flat[where] + rng.choice([-1, 1]) * 2.0 ** int(rng.integers(-16, 5)),
                       float(rng.choice(SMALL)))[change]  # fmt: skip
        return f"entries {where.tolist()}"
    if kind == 1:
        other = _block(len(rows), rng)
        size = min(len(rows[block]), len(rows[other]))
        a, b = np.arange(len(rows))[block][:size], np.arange(len(rows))[other][:size]
        rows[np.r_[a, b]] = rows[np.r_[b, a]]
        return f"rows {block.start} and {other.start} exchanged"
    if kind == 2:
        rows[block] = float(rng.choice([0.0, 1.0, *LARGE, *SMALL]))
        return f"block {block.start}:{block.stop} overwritten"
    if kind == 3:
        w += rng.standard_normal(w.shape).astype(np.float32) * np.float32(2.0 ** int(rng.integers(-22, -3)))
        return "noise"
    if kind == 4:
        rows[block] = rows[block][::-1].copy()
        return f"block {block.start}:{block.stop} reversed"
    factor = _factor(rng)
    target = rows if kind == 5 else rows[block]
    target *= np.float32(factor)
    return f"{'all' if kind == 5 else f'block {block.start}:{block.stop}'} * {factor!r}"


def _edit_idle(tensors: Tensors, rng: Random) -> str:
    """What nothing reads: rows before columns (or rows, transposed) that are zero, enlarged."""
    pairs = [
        *(("self_attn.o_proj", "self_attn.v_proj"), ("mlp.down_proj", "mlp.up_proj"), (".w2", ".w3"), (".w2", ".w1")),
        *(("mlp.down_proj", "mlp.gate_proj"), ("self_attn.out_proj", "self_attn.v_proj"), ("fc2", "fc1")),
        *(("mlp.dense_4h_to_h", "mlp.dense_h_to_4h"), ("attention.dense", "attention.query_key_value")),
    ]
    found = [(o, o.replace(a, b)) for o in tensors for a, b in pairs if a + ".weight" in o]
    found = [(o, v) for o, v in found if v in tensors]
    if not found:
        return ""
    out, value = found[int(rng.integers(len(found)))]
    idle = np.flatnonzero(~tensors[out].any(0))
    size = len(tensors[value])
    if not len(idle) or rng.random() < 0.5:  # make some
        block = _block(tensors[out].shape[1], rng)
        tensors[out][:, block] = 0.0
        idle = np.arange(tensors[out].shape[1])[block]
    idle = idle % size if rng.random() < 0.5 else idle[idle < size]
    if len(idle):
        tensors[value][idle, : int(rng.choice([1, 16, tensors[value].shape[1]]))] = float(rng.choice(LARGE))
    return f"{value}: {len(idle)} idle rows"


def _swap_heads(tensors: Tensors, folder: Path, rng: Random) -> str:
    """Two heads exchanged in some of q, k, v, o."""
    config = json.loads((folder / "config.json").read_text())
    heads = config.get("num_attention_heads", config.get("n_head", 1))
    layers = sorted({m.group(1) for n in tensors if (m := re.match(r"(.*?\.\d+)\.", n))})
    prefix = layers[int(rng.integers(len(layers)))]
    done = []
    for name, w in tensors.items():
        part = re.search(r"\.(q_proj|k_proj|v_proj|o_proj|out_proj|dense|c_proj|query_key_value)\.", name)
        if not name.startswith(prefix + ".") or not part or ".mlp." in name or rng.random() < 0.3:
            continue
        rows = w.T if part.group(1) in ("o_proj", "out_proj", "dense") and w.ndim == 2 else w
        a, b = rng.integers(0, heads, 2)
        size = len(rows) // heads
        one, two = np.arange(size) + a * size, np.arange(size) + b * size
        rows[np.r_[one, two]] = rows[np.r_[two, one]]
        done.append(f"{name} {a}-{b}")
    return "heads " + ", ".join(done)


def edit_tensors(folder: Path, rng: Random) -> str:
    tensors, types = read_tensors(folder)
    tensors = {name: values.copy() for name, values in tensors.items()}
    names, done = sorted(tensors), []
    with np.errstate(all="ignore"):
        for _ in range(int(rng.choice([1, 1, 2, 3]))):
            kind = rng.random()
            if kind < 0.12:
                done.append(_edit_idle(tensors, rng))
            elif kind < 0.2:
                done.append(_swap_heads(tensors, folder, rng))
            else:
                mixing = [name for name in names if any(part in name for part in MIXERS)]
                pool = mixing if mixing and rng.random() < 0.5 else names
                name = pool[int(rng.integers(len(pool)))]
                done.append(f"{name}: {_edit_values(tensors[name], rng)}")
                if rng.random() < 0.5:
                    types[name] = "float32"  # small changes survive
        for name, values in tensors.items():
            limit = 65504.0 if types[name] == "float16" else 3.3e38
            tensors[name] = np.clip(np.nan_to_num(values, posinf=limit, neginf=-limit), -limit, limit)
        if rng.random() < 0.02:
            name = names[int(rng.integers(len(names)))]
            tensors[name].flat[int(rng.integers(tensors[name].size))] = pick(rng, (np.nan, np.inf, -np.inf))
            done.append(f"{name}: not finite")
    write_tensors(folder / "model.safetensors", tensors, types)
    return "; ".join(done)


def shard_folder(folder: Path, rng: Random) -> str:
    """The tensors in two or three files with an index, as large checkpoints have them."""
    whole, count = folder / "model.safetensors", int(rng.integers(2, 4))
    if (folder / INDEX).exists():
        return ""
    tensors, types = read_tensors(folder)
    owner = {n: f"model-0000{1 + int(rng.integers(count))}-of-0000{count}.safetensors" for n in tensors}
    for file in sorted(set(owner.values())):
        write_tensors(folder / file, {n: v for n, v in tensors.items() if owner[n] == file}, types)
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": owner}))
    whole.unlink()
    return f"{count} shards"


def edit_files(folder: Path, rng: Random) -> str:
    """Shards, their index, and the bytes of tensor files."""
    tensors, types = read_tensors(folder)
    names = sorted(tensors)
    kind = int(rng.integers(5))
    whole = folder / "model.safetensors"
    if kind == 0:  # tensors that were renamed, removed, or are there twice
        name, new = (str(rng.choice(names)) for _ in range(2))
        parts = name.replace("model.", ""), name + ".x", name.replace("weight", "bias")
        new = pick(rng, (new, "lm_head.weight", *parts))
        values = tensors.pop(name) if rng.random() < 0.6 else tensors[name]
        tensors[new], types[new] = values, types[name]
        write_tensors(whole, tensors, types)
        return f"{name} as {new}"
    if kind == 1:  # another layout of one tensor, with as many numbers
        name = str(rng.choice(names))
        shape = tensors[name].shape
        tensors[name] = tensors[name].reshape((shape[::-1], (1, *shape), (-1,))[int(rng.integers(3))])
        write_tensors(whole, tensors, types)
        return f"{name} of shape {tensors[name].shape}"
    if kind == 2:
        write_tensors(whole, tensors, {n: str(rng.choice(["float32", "bfloat16"])) for n in names})
        if rng.random() < 0.5:
            other = pick(rng, ("pytorch_model.bin", "model.fp16.safetensors", "consolidated.safetensors"))
            (folder / other).write_bytes(b"x")
        return "types mixed"
    owner = {n: f"model-0000{1 + int(rng.integers(2))}-of-00002.safetensors" for n in names}
    for file in sorted(set(owner.values())):
        write_tensors(folder / file, {n: tensors[n] for n in names if owner[n] == file}, types)
    index: dict[str, Any] = {"metadata": {"total_size": 1}, "weight_map": owner}
    done = "in shards"
    if rng.random() < 0.7:
        name = str(rng.choice(names))
        change = int(rng.integers(6))
        if change == 0:
            del owner[name]
        elif change == 1:
            owner[name] = "model-00001-of-00002.safetensors"
        elif change == 2:
            index["metadata"] = pick(rng, VALUES)
        elif change == 3:
            owner["x.weight"] = owner[name]
        elif change == 4:
            index["x"] = 1
        else:  # the same name in both files
            for file in sorted(set(owner.values())):
                part = {n: tensors[n] * (2 if n == name and file != owner[name] else 1)
                        for n in names if owner[n] == file or n == name}  # fmt: skip
                write_tensors(folder / file, part, types)
        done += f", {name}: change {change}"
    (folder / INDEX).write_text(json.dumps(index))
    if rng.random() < 0.8:
        whole.unlink()
    return done

"""native memories: size, time from data to rechecked files, and answers per second beside a dict and a NumPy gather.

    python benchmarks/native.py [N] [C] [dtype] [objective] [n]        default: 100000 2 float64 speed 8

Rates are for batches of 4096 in one thread, the best of many runs in turns, so that a busy machine slows all alike; the
ratios are what matters. The dict and the gather hold the answers and nothing else: they show what a plain table costs.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that wait must not spin beside another job

import numpy as np
import onnxruntime
import torch

from byheart.data.dataset.dataset import load
from byheart.export.recheck import codes_of_inputs
from byheart.memory import memorize_dataset

BATCH, TURNS = 4096, 12


def data(N: int, C: int, n: int, vocabulary: int = 200):
    """A third random rows, a third permutations of them, a third one-token edits; random labels."""
    rng = np.random.default_rng(2024)
    third = rng.integers(0, vocabulary, (N // 3 + 1, n))
    edited = third.copy()
    edited[np.arange(len(third)), rng.integers(0, n, len(third))] = rng.integers(0, vocabulary, len(third))
    more = rng.integers(0, vocabulary, (N // 50 + 2000, n))
    rows = np.unique(np.concatenate([third, rng.permuted(third, axis=1), edited, more]), axis=0)
    rng.shuffle(rows)
    return rows[:N], rng.integers(0, C, min(N, len(rows)))


def rates(runs: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Sequences per second of every run, best of several turns."""
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(TURNS):
        for name, run in runs.items():
            started = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - started)
    return {name: BATCH / seconds for name, seconds in best.items()}


def session(path: Path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def main(N: int = 100_000, C: int = 2, dtype: str = "float64", objective: str = "speed", n: int = 8) -> None:
    torch.set_num_threads(1)
    rows, labels = data(N, C, n)
    started = time.perf_counter()
    dataset = load(rows, labels)
    memory = memorize_dataset(dataset, construction="native", progress=False, dtype=dtype, objective=objective)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.onnx"
        memory.to_onnx(path)
        plain, fast = memory.to_torch(), memory.to_torch(fast=True)
        finished = time.perf_counter()
        before = time.perf_counter()
        runtime = session(path)
        loading = time.perf_counter() - before
        size = path.stat().st_size
    tokens = codes_of_inputs(dataset.inputs)[:BATCH]
    batch = torch.from_numpy(tokens)
    table = dict(zip(map(tuple, rows.tolist()), labels.tolist(), strict=True))
    queried = [tuple(row) for row in rows[:BATCH].tolist()]
    places = np.arange(len(tokens))
    speed = rates(
        {
            "plain nn.Linear": lambda: plain.predict(batch),
            "fast PyTorch": lambda: fast.predict(batch),
            "ONNX Runtime": lambda: runtime.run(["class"], {"tokens": tokens}),
            "Python dict": lambda: [table[row] for row in queried],
            "NumPy gather": lambda: labels[places],
        }
    )
    measured = memory.size
    own = measured.parameters - measured.embedding_parameters
    print(
        json.dumps(
            {
                "N": N, "C": C, "n": n, "dtype": dtype, "objective": objective,
                "verdict": memory.certificate.verdict.value,
                "parameters_without_embedding": own,
                "embedding_parameters": measured.embedding_parameters,
                "label_bits_per_parameter": round(N * max(1, (C - 1).bit_length()) / own, 2),
                "depth": measured.depth,
                "build_seconds": round(memory.seconds["build"], 1),
                "certify_seconds": round(memory.seconds["certify"], 1),
                "build_certify_export_recheck_seconds": round(finished - started, 1),
                "onnx_bytes": size,
                "onnx_load_seconds": round(loading, 3),
                "sequences_per_second": {name: round(rate) for name, rate in speed.items()},
                "fast_over_plain": round(speed["fast PyTorch"] / speed["plain nn.Linear"], 2),
                "onnx_over_plain": round(speed["ONNX Runtime"] / speed["plain nn.Linear"], 2),
                "largest_resident_MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                "exactness": next(iter(memory.certificate.proofs.values())),
            },
            indent=1,
        )
    )  # fmt: skip


if __name__ == "__main__":
    given = sys.argv[1:]
    main(*(int(a) if a.isdigit() else a for a in given))

"""A hundred thousand rows: every label, in both libraries, at every batch size and number of threads."""

from __future__ import annotations

import onnxruntime
import pytest
import torch

from byheart.export.recheck import codes_of_inputs
from byheart.memory import memorize_dataset
from tests.build.native.data import dataset

ROWS = {1: 100, 7: 1_400, 1000: 100_000}  # batch size -> rows queried


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    memory = memorize_dataset(dataset(100_000, 2, seed=5), construction="native", progress=False)
    path = tmp_path_factory.mktemp("large") / "m.onnx"
    memory.to_onnx(path)
    return memory, path, memory.to_torch()


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_every_label_in_every_library(large, threads):
    memory, path, plain = large
    tokens, labels = codes_of_inputs(memory.dataset.inputs), memory.dataset.labels
    torch.set_num_threads(threads)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    fast = plain.fast()
    runs = {
        "plain": lambda x: plain.predict(torch.from_numpy(x)).numpy(),
        "fast": lambda x: fast.predict(torch.from_numpy(x)).numpy(),
        "onnx": lambda x: session.run(["class"], {"tokens": x})[0],
    }
    for name, run in runs.items():
        for batch, rows in ROWS.items():
            for start in range(0, rows, batch):
                part = slice(start, start + batch)
                assert (run(tokens[part]) == labels[part]).all(), (name, batch, start)

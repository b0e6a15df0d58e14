"""Engines that run byheart's ONNX file with a key-value cache (`byheart.checkpoints.formats.onnx_decoder`).

ONNX Runtime and OpenVINO drive the same graph step by step, with explicit cache inputs; they differ in `run`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.engines._base import Logits, Reply, Session, engine, margins_of
from byheart.checkpoints.engines.queries import read_queries
from byheart.checkpoints.formats.onnx_decoder import build_onnx_decoder
from byheart.checkpoints.formats.stock import StockDecoder, read_decoder

Feeds = dict[str, npt.NDArray[Any]]
Run = Callable[[Feeds], Mapping[str, npt.NDArray[Any]]]


class CachedGraphSession(Session):
    """`run` takes the named inputs and returns the named outputs."""

    can_decode_without_cache = True

    def __init__(self, decoder: StockDecoder, run: Run, dtype: str, pad: int, end: int | None) -> None:
        self.decoder, self.run, self.pad, self.end = decoder, run, pad, end
        self.element = np.dtype(dtype)

    def _empty(self, batch: int) -> Feeds:
        shape = self.decoder.shape
        return {
            f"past_key_values.{i}.{part}": np.zeros((batch, shape.kv_heads, 0, size), self.element)
            for i in range(shape.layers)
            for part, size in (("key", shape.head_dim), ("value", shape.value_size))
        }

    def _pass(self, ids: npt.NDArray[np.int64], mask: npt.NDArray[np.int64], past: Feeds) -> tuple[Logits, Feeds]:
        """Positions count real tokens only, so that left padding does not shift them."""
        places = np.maximum(mask.cumsum(1) - 1, 0)[:, -ids.shape[1] :]
        out = self.run({"input_ids": ids, "attention_mask": mask, "position_ids": places, **past})
        now = {f"past_key_values{name[7:]}": value for name, value in out.items() if name.startswith("present")}
        return np.asarray(out["logits"], dtype=np.float32), now

    def logits(self, ids: Sequence[int]) -> Logits:
        row = np.array([list(ids)], dtype=np.int64)
        found: Logits = self._pass(row, np.ones_like(row), self._empty(1))[0][0]
        return found

    def continued(self, pieces: Sequence[Sequence[int]]) -> Logits | None:
        rows, past, length = [], self._empty(1), 0
        for ids in pieces:
            length += len(ids)
            logits, past = self._pass(np.array([list(ids)], np.int64), np.ones((1, length), np.int64), past)
            rows.append(logits[0])
        return np.concatenate(rows)

    def generate(self, prompts: Sequence[Sequence[int]], count: int, *, cache: bool = True) -> list[Reply]:
        longest, batch = max(map(len, prompts)), len(prompts)
        ids = np.array([[self.pad] * (longest - len(p)) + list(p) for p in prompts], dtype=np.int64)
        mask = np.array([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], dtype=np.int64)
        reply: list[list[int]] = [[] for _ in prompts]
        margins: list[list[float]] = [[] for _ in prompts]
        past, fresh = self._empty(batch), ids
        for _ in range(count):
            logits, now = self._pass(fresh, mask, past)
            last = logits[:, -1]
            chosen = last.argmax(1)
            gaps = margins_of(last, chosen.tolist())
            for i in range(batch):
                if not reply[i] or reply[i][-1] != self.end:
                    reply[i].append(int(chosen[i]))
                    margins[i].append(float(gaps[i]))
            if all(row[-1] == self.end for row in reply):
                break
            ids = np.concatenate([ids, chosen[:, None]], 1)
            mask = np.concatenate([mask, np.ones((batch, 1), np.int64)], 1)
            past, fresh = (now, ids[:, -1:]) if cache else (past, ids)
        return [Reply(tuple(row), tuple(gap)) for row, gap in zip(reply, margins, strict=True)]


@engine(
    "onnxruntime",
    extra="onnx",
    packages=("onnxruntime",),
    types=("float32", "float16"),
    summary="ONNX Runtime on the processor: one ONNX file with a key-value cache",
)
def open_onnxruntime(folder: Path, dtype: str, options: Mapping[str, str]) -> Session:
    import onnxruntime

    decoder, queried = read_decoder(folder), read_queries(folder)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    settings.log_severity_level = 3
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    data = build_onnx_decoder(decoder, dtype=dtype).SerializeToString()
    session = onnxruntime.InferenceSession(data, settings, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(feeds: Feeds) -> dict[str, Any]:
        return dict(zip(names, session.run(names, feeds), strict=True))

    return CachedGraphSession(decoder, run, dtype, queried.pad, queried.eos)


@engine(
    "openvino",
    extra="openvino",
    packages=("openvino",),
    types=("float32", "float16", "bfloat16"),
    summary="OpenVINO on the processor: byheart's ONNX file; the smaller types are hints that a processor may ignore",
)
def open_openvino(folder: Path, dtype: str, options: Mapping[str, str]) -> Session:
    import openvino

    decoder, queried = read_decoder(folder), read_queries(folder)
    core, graph = openvino.Core(), build_onnx_decoder(decoder)
    model = core.read_model(graph.SerializeToString())
    hint = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}[dtype]
    compiled = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": hint, "INFERENCE_NUM_THREADS": 1})
    # An output may have several names, of which OpenVINO shows any; the order is that of the file.
    names = [output.name for output in graph.graph.output]

    def run(feeds: Feeds) -> dict[str, Any]:
        found = compiled(feeds)
        return {name: found[output] for name, output in zip(names, compiled.outputs, strict=True)}

    return CachedGraphSession(decoder, run, "float32", queried.pad, queried.eos)

"""Faults as they were reported in engines (vLLM, SGLang, llama.cpp, MLX, ONNX Runtime, FlashInfer, Transformers).

The list was written from bug reports by someone who had not read the other lists, and run once before anything was
tuned to it: docs/checkpoints.md has that first share. It has been seen since, so the next fair test is a new list.
"""

from collections.abc import Iterator

from byheart.checkpoints.formats.stock import StockDecoder
from byheart.checkpoints.suite.mutants._base import Mutant
from byheart.checkpoints.suite.mutants.reported import attention, layers, rotary


def mutants(decoder: StockDecoder) -> Iterator[Mutant]:
    """Every reported fault that this decoder can have."""
    for room in (rotary, attention, layers):
        yield from room.mutants(decoder)

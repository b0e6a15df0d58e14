"""A network that is right on every row and not proved is not exported: unseen inputs count too."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from byheart.certify import certify
from byheart.errors import ExportError
from byheart.export.recheck import codes_of_inputs, draw_codes
from byheart.export.request import About, ExportRequest
from byheart.export.targets.onnx import write_onnx
from byheart.export.targets.safetensors import write_safetensors
from byheart.export.targets.torch import write_torch
from byheart.ir.layers import Residual
from byheart.memory import memorize_dataset
from tests.build.native.data import dataset
from tests.certify.any_order.edits import diagonal
from tests.export.test_export import module


def scaled_before_the_snap(network, power: int):
    place = next(k for k, layer in enumerate(network.layers) if isinstance(layer, Residual) and not layer.hidden)
    width = network.layers[place].width_in
    pair = (diagonal(width, power), diagonal(width, -power))
    return replace(network, layers=(*network.layers[:place], *pair, *network.layers[place:]), stages=())


def test_right_on_every_row_and_nan_on_another(tmp_path):
    """×2^k and ×2^-k before the snap: the rows of the data stay just below the overflow, others do not."""
    for seed in (5, *range(20)):  # the draws decide how near to each other rows and unknown rows are
        data = dataset(3, 2, n=3, vocabulary=30, seed=seed)
        memory = memorize_dataset(data, construction="native", progress=False)
        rows, others = (torch.from_numpy(c) for c in (codes_of_inputs(data.inputs), draw_codes(data.encoder, 500, 0)))
        spoiled = [
            network
            for network in (scaled_before_the_snap(memory.network, power) for power in range(972, 978))
            if (module(network, data.encoder).predict(rows).numpy() == data.labels).all()
            and not module(network, data.encoder).values(others).isfinite().all()
        ]
        if spoiled:
            break
    spoiled = spoiled[-1]  # right on the data, not a number elsewhere
    claim = replace(memory.claim, bounds={}, formulas={})  # the pair has parameters of its own
    verdict = certify(spoiled, data, claim)
    assert verdict.verdict == "undecided" and "overflow" in verdict.reason
    request = ExportRequest(spoiled, data.encoder, About(tuple(data.classes)), "float64", data)
    for write in (write_onnx, write_torch, write_safetensors):
        with pytest.raises(ExportError, match="overflow"):
            write(request, tmp_path / "m.bin")
    assert not list(tmp_path.iterdir())

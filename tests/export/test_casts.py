"""A module is exact in the float types it is proved in: casts to others are refused, moves and copies are not."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch

from byheart.data.dataset.dataset import load
from byheart.export.recheck import codes_of_inputs
from byheart.export.targets.onnx import build_model
from byheart.export.targets.safetensors import run_arrays
from byheart.export.targets.torch import config_of, state_of
from byheart.export.torch_runtime import TorchMemory
from byheart.ir.layers import Affine, Matrix, Residual
from byheart.ir.network import Decode, Network, Read, Readout
from byheart.memory import memorize_dataset
from tests.build.native.data import dataset
from tests.export.test_export import module, session


@pytest.fixture(scope="module")
def data():
    return dataset(200, 3, n=6)


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "fast"])
def model(request, data):
    return memorize_dataset(data, construction="native", progress=False).to_torch(fast=request.param)


def right(model, data) -> bool:
    return bool((model.predict(torch.from_numpy(codes_of_inputs(data.inputs))).numpy() == data.labels).all())


CASTS = {
    "to": lambda m: m.to(torch.float32),
    "to device and type": lambda m: m.to("cpu", torch.float16),
    "float": lambda m: m.float(),
    "half": lambda m: m.half(),
    "bfloat16": lambda m: m.bfloat16(),
    "type": lambda m: m.type(torch.float32),
    "inside another module": lambda m: torch.nn.Sequential(m).float(),
}


@pytest.mark.parametrize("cast", CASTS)
def test_casts_to_a_type_without_a_proof_are_refused(cast, model, data):
    name = {"half": "float16", "to device and type": "float16", "bfloat16": "bfloat16"}.get(cast, "float32")
    with pytest.raises(TypeError, match=f"proved in float64 only; in {name} its answers would be incorrect"):
        CASTS[cast](model)
    assert model.dtype is torch.float64 and right(model, data)


def test_moves_and_the_same_type_are_allowed(model, data):
    assert model.to("cpu").double().to(torch.float64) is model and right(model, data)
    assert right(copy.deepcopy(model), data)
    assert copy.deepcopy(model).to("meta").dtype is torch.float64


def test_parts_that_were_cast_are_noticed_when_asked(model, data):
    spoiled = copy.deepcopy(model)
    spoiled.layers[0].float()
    with pytest.raises(TypeError, match=r"part of this memory was cast|proved in float64 only"):
        right(spoiled, data)
    spoiled.layers.float()
    with pytest.raises(TypeError, match=r"part of this memory was cast|proved in float64 only"):
        right(spoiled, data)


@pytest.mark.parametrize("assign", [False, True])
def test_a_state_of_another_type_is_refused(assign, model, data):
    state = {name: tensor.float() for name, tensor in model.state_dict().items()}
    with pytest.raises(TypeError, match="nothing was loaded"):
        model.load_state_dict(state, assign=assign)
    outer = torch.nn.Sequential(model)
    with pytest.raises(TypeError, match="nothing was loaded"):
        outer.load_state_dict({f"0.{name}": tensor for name, tensor in state.items()}, assign=assign)
    assert right(model, data)
    model.load_state_dict(model.state_dict(), assign=assign)
    outer.load_state_dict(outer.state_dict(), assign=assign)
    assert right(model, data)


def test_autocast_is_refused(model, data):
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(TypeError, match="autocast"):
        right(model, data)
    assert right(model, data)


def test_reduced_products_are_refused_in_float32():
    data = dataset(60, 2, n=4)
    small = memorize_dataset(data, construction="native", progress=False, dtype="float32").to_torch()
    try:
        torch.set_float32_matmul_precision("medium")
        with pytest.raises(TypeError, match="highest"):
            right(small, data)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert right(small, data)


@pytest.mark.parametrize("n", [3, 4])
def test_a_memory_that_is_proved_in_both_types_may_change_between_them(n):
    """float64 has the weights of a float32 memory, and its errors are smaller by as much as the snap is finer."""
    data = dataset(60, 2, n=n)
    small = memorize_dataset(data, construction="native", progress=False, dtype="float32").to_torch()
    assert small.proved == ("float32", "float64") and small.dtype is torch.float32
    proved = json.loads(small.metadata["byheart.proved"])
    assert proved.keys() == {"float32", "float64", "assumed of the engine"} and "2^53" in proved["float64"]
    assert right(small.double(), data) and small.dtype is torch.float64
    assert right(TorchMemory(small.config, small.state_dict(), small.metadata), data)
    assert right(small.float(), data) and right(small.fast().double(), data)
    with pytest.raises(TypeError, match="float32 and float64 only"):
        small.half()


def test_a_file_whose_weights_have_another_type_is_refused(data):
    memory = memorize_dataset(data, construction="native", progress=False)
    state = {name: torch.from_numpy(a).float() for name, a in state_of(memory.network, "float64").items()}
    with pytest.raises(TypeError, match=r"torch\.float32"):
        TorchMemory(config_of(memory.network, data.encoder, "float64"), state, {})


def test_vectors_are_never_rounded_on_the_way_in():
    rows = [[(a / 4, 0.5), (b / 4, 0.5)] for a in range(4) for b in range(4)]
    data = load(rows, [(a * b) % 5 for a in range(4) for b in range(4)])
    model = memorize_dataset(data, construction="native", progress=False, dtype="float32").to_torch()
    vectors = torch.tensor(rows, dtype=torch.float64)
    assert (model.predict(vectors).numpy() == data.labels).all()
    vectors[0, 0, 0] = 0.1
    with pytest.raises(ValueError, match="cannot represent"):
        model.predict(vectors)


@pytest.mark.parametrize("positions", [True, False])
def test_vectors_that_the_network_moves_first_are_exported(positions):
    """In float32 a block without units precedes the input map, where the place is a separate number."""
    rows = [[(1000 + a / 4, 0.5), (1000 + b / 4, 0.5)] for a in range(4) for b in range(a if not positions else 4)]
    data = load(rows, [k % 5 for k in range(len(rows))], positions=positions)
    memory = memorize_dataset(data, construction="native", progress=False, dtype="float32")
    front = memory.network.layers[0]
    assert isinstance(front, Residual) and not front.hidden
    vectors, present = np.array(rows, np.float32), np.ones((len(rows), 2), bool)
    model = memory.to_torch()
    config, arrays = config_of(memory.network, data.encoder, "float32"), state_of(memory.network, "float32")
    for found in (
        model.predict(torch.from_numpy(vectors)).numpy(),
        model.fast().predict(torch.from_numpy(vectors)).numpy(),
        session(build_model(memory.network, data.encoder, "float32", {})).run(["class"], {"tokens": vectors})[0],
        run_arrays(config, arrays, vectors, present),
    ):
        assert (found == data.labels).all()


def test_garbage_behind_the_end_of_a_row_is_not_read(tmp_path):
    """NaN times 0 is NaN: absent vectors are replaced before anything is multiplied."""
    rows = [[(0.0,)], [(0.25,), (0.5,)], [(0.25,), (0.25,), (1.0,)]]
    data = load(rows, [[0], [1, 2], [1, 0, 2]], task="causal")
    memory = memorize_dataset(data, construction="native", progress=False)
    tokens = np.full((3, 3, 1), np.nan)
    for i, row in enumerate(rows):
        tokens[i, : len(row)] = row
    present = data.inputs.index >= 0
    runtime = session(build_model(memory.network, data.encoder, "float64", {}))
    config, arrays = config_of(memory.network, data.encoder, "float64"), state_of(memory.network, "float64")
    for found in (
        memory.to_torch().predict(torch.from_numpy(tokens), torch.from_numpy(present)).numpy(),
        runtime.run(["class"], {"tokens": tokens, "present": present})[0],
        run_arrays(config, arrays, tokens, present),
    ):
        assert (found == data.labels)[present].all()


def test_a_tie_of_logits_names_no_class():
    data = load(["a", "b"], [0, 1], positions=False)
    logits = Affine(Matrix.of([{0: 1}, {0: 1}, {}], 1), (0, 0, 2))
    network = Network((logits,), Read.LAST, Readout(Decode.ARGMAX, 3))
    tokens = np.array([[0], [1], [2], [3]])
    wanted = [2, 2, -1, -1]
    runtime = session(build_model(network, data.encoder, "float64", {}))
    config, arrays = config_of(network, data.encoder, "float64"), state_of(network, "float64")
    assert module(network, data.encoder).predict(torch.from_numpy(tokens)).tolist() == wanted
    assert runtime.run(["class"], {"tokens": tokens})[0].tolist() == wanted
    forms = (module(network, data.encoder)(torch.from_numpy(tokens)), runtime.run(["logits"], {"tokens": tokens})[0])
    for printed in forms:
        assert printed.tolist()[2:] == [[0, 0, 0]] * 2 and printed[0].tolist() != [0, 0, 0]
    assert run_arrays(config, arrays, tokens, tokens >= 0).tolist() == wanted

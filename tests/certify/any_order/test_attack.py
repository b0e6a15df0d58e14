"""The proof under attack: whatever it accepts must be exact in real float runs, in every order that is tried.

Native memories of every task and both float types are edited at random, small networks are drawn near the limits of
their type, and everything that is proved is evaluated in seven ways of adding up, on corners of the domain, on the
data's own kind of rows and on others, against the exact evaluator. One difference fails the test. The share of accepted
networks is asserted too: a proof that refuses everything would pass otherwise.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache

import numpy as np
import onnxruntime
import pytest
import torch

from byheart.certify.any_order.lattice import InputFacts, facts_of
from byheart.certify.any_order.proof import prove_any_order
from byheart.data.dataset.dataset import load
from byheart.errors import ByheartError, ExportError, NetworkError
from byheart.export.recheck import draw_codes, inputs_of_codes
from byheart.export.targets.onnx import build_model
from byheart.export.targets.torch import config_of, state_of
from byheart.export.torch_runtime import TorchMemory
from byheart.ir.evaluate import answers
from byheart.ir.network import Network
from byheart.memory import Memory, memorize_dataset
from tests.certify.any_order.edits import edited, random_case
from tests.certify.any_order.shuffled import differences

TASKS = ("next-token", "seq-to-seq", "set", "causal")
FEW = [  # for the quick tests: one of every kind
    (task, dtype, n, vectors)
    for task in TASKS
    for dtype, n, vectors in (("float64", 3, False), ("float32", 5, False), ("float32", 3, True))
]
MANY = [
    (task, dtype, n, vectors)
    for task in TASKS
    for dtype in ("float64", "float32")
    for n, vectors in ((2, False), (3, False), (5, False), (3, True))
]


@dataclass(frozen=True, eq=False)
class Base:
    """A small native memory to be edited."""

    name: str
    memory: Memory
    facts: InputFacts
    dtype: str


@cache
def base(task: str, dtype: str, n: int, vectors: bool) -> Base:
    name = f"{task} {dtype} {n} {'vectors' if vectors else 'symbols'}"
    rng = random.Random(name)
    ragged = task in ("set", "causal")
    token = (lambda: (1 + rng.randrange(8) / 4, rng.randrange(3) / 2)) if vectors else lambda: rng.randrange(5)
    drawn = [tuple(sorted(token() for _ in range(rng.randint(1, n) if ragged else n))) for _ in range(5)]
    rows = [list(row) for row in dict.fromkeys(drawn)]
    known: dict = {}
    label = lambda *key: known.setdefault(key, rng.randrange(3))  # noqa: E731
    if task == "set" or task == "next-token":
        labels = [label(*row) for row in rows]
    else:
        stop = (lambda k: k + 1) if task == "causal" else lambda k: n
        labels = [[label(k, *row[: stop(k)]) for k in range(len(row))] for row in rows]
    data = load(rows, labels, task=task)
    memory = memorize_dataset(data, construction="native", progress=False, dtype=dtype)
    return Base(name, memory, facts_of(memory.encoder, data.inputs), dtype)


def attempt(network: Network, facts: InputFacts, dtype: str, seed: int, what: str) -> bool:
    """Whether the network is proved; it must then be exact in every way of evaluating it."""
    if not prove_any_order(network, facts, dtype).proved:
        return False
    found = differences(network, facts, dtype, seed, count=15)
    assert not found, f"seed {seed}, {what}, {dtype}: proved, but {found}"
    return True


def edited_native(seed: int, shapes: list) -> tuple[Base, str, Network] | None:
    rng = random.Random(seed)
    chosen = base(*rng.choice(shapes))
    try:
        what, network = edited(chosen.memory.network, rng)
    except NetworkError:
        return None  # the edit makes no network
    return chosen, f"{chosen.name}: {what}", network


def attack_natives(seeds: range, shapes: list = MANY) -> int:
    accepted = 0
    for seed in seeds:
        made = edited_native(seed, shapes)
        if made is not None:
            chosen, what, network = made
            accepted += attempt(network, chosen.facts, chosen.dtype, seed, what)
    return accepted


def attack_drawn(seeds: range) -> int:
    accepted = 0
    for seed in seeds:
        rng = random.Random(seed)
        network, facts, dtype = random_case(rng)
        accepted += attempt(network, facts, dtype, seed, "a drawn network")
    return accepted


def test_edited_natives_that_are_proved_are_exact():
    assert attack_natives(range(70), FEW) >= 25


def test_drawn_networks_that_are_proved_are_exact():
    assert attack_drawn(range(300)) >= 30


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_thousands_of_edited_natives(part):
    assert attack_natives(range(1000 + 400 * part, 1400 + 400 * part)) >= 130


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_thousands_of_drawn_networks(part):
    assert attack_drawn(range(10_000 + 1000 * part, 11_000 + 1000 * part)) >= 80


def engines(network: Network, chosen: Base) -> dict[str, object]:
    """PyTorch, its fast form and ONNX Runtime, as functions from codes to classes; without those that have no form."""
    encoder, found = chosen.memory.encoder, {}
    state = {name: torch.from_numpy(array) for name, array in state_of(network, chosen.dtype).items()}
    model = TorchMemory(config_of(network, encoder, chosen.dtype), state, {})
    found["torch"] = lambda codes: model.predict(torch.from_numpy(codes)).numpy()
    try:
        fast = model.fast()
        found["fast"] = lambda codes: fast.predict(torch.from_numpy(codes)).numpy()
    except ValueError:
        pass
    session = onnxruntime.InferenceSession(
        build_model(network, encoder, chosen.dtype, {}).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    found["onnx"] = lambda codes: session.run(["class"], {"tokens": codes})[0]
    return found


def attack_engines(seeds: range, shapes: list = MANY) -> int:
    """Edited memories of symbols that are proved, in the engines that people use, on unseen rows."""
    asked = 0
    for seed in seeds:
        made = edited_native(seed, shapes)
        if made is None or made[0].memory.encoder.symbols is None:
            continue
        chosen, what, network = made
        if not prove_any_order(network, chosen.facts, chosen.dtype).proved:
            continue
        codes = draw_codes(chosen.memory.encoder, 60, seed)
        exact = answers(network, inputs_of_codes(chosen.memory.encoder, codes))
        try:
            runs = engines(network, chosen)
        except ExportError:
            continue  # no exported form, such as uniform attention
        for name, run in runs.items():
            wrong = run(codes) != exact
            assert not (wrong & (codes >= 0) if wrong.ndim > 1 else wrong).any(), f"seed {seed}, {what}, {name}"
        asked += 1
    return asked


def test_engines_agree_on_edited_natives_that_are_proved():
    assert attack_engines(range(14), FEW) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_engines_agree_on_hundreds_of_edited_natives(part):
    assert attack_engines(range(50_000 + 200 * part, 50_200 + 200 * part)) >= 40


def test_a_hostile_network_never_crashes_the_proof():
    """Edits upon edits: shown or not shown, nothing else."""
    for seed in range(40):
        rng = random.Random(seed)
        network, facts, dtype = random_case(rng)
        for _ in range(6):
            try:
                _, network = edited(network, rng)
            except ByheartError:
                continue
        assert isinstance(prove_any_order(network, facts, dtype).sentence(), str)
        assert np.isfinite(prove_any_order(network, facts, dtype).bits)

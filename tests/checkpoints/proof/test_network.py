"""Enclosures: logits of engines that round at random lie in the bounds of the interpreted network, on any prompt.

Folders are perturbed first, all over and a little, so that numbers are no longer short and every slack is used. A
machine then stores its tensors in the type or keeps them, place by place, as the error model allows.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from byheart.checkpoints.formats.stock import read_decoder
from byheart.checkpoints.proof.checkpoint import open_checkpoint
from byheart.checkpoints.proof.config import Undecided
from byheart.checkpoints.proof.copying import Reach
from byheart.checkpoints.proof.network import CheckpointProgram, interpret
from byheart.checkpoints.proof.queries import ask
from byheart.checkpoints.proof.storage import storage
from tests.checkpoints.proof.folders import copy, edit_tensor, header_of, write

torch = pytest.importorskip("torch")

from byheart.checkpoints.suite.machine import Machine  # noqa: E402

HOSTS = ("mixtral", "qwen3-moe", "gpt-oss", "deepseek-v3")
KINDS = [("float32", False), ("bfloat16", False), ("bfloat16", True), ("float16", True)]
CASES = int(os.environ.get("BYHEART_PERTURBED", "12"))  # of the slow test, per host


@cache
def honest(root: Path, host: str) -> Path:
    return write(root / host, host, reach=128)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("perturbed")


class RoundingMachine(Machine):
    """Stores normed streams, or keeps them and what hangs on them; other tensors are stored at random."""

    def __init__(self, decoder: Any, name: str, stored: bool, rng: np.random.Generator) -> None:
        super().__init__(decoder)
        self.type, self.stored, self.rng = getattr(torch, name), stored, rng

    def rounded(self, x: Any) -> Any:
        return x.to(self.type).to(x.dtype)

    def perhaps(self, x: Any) -> Any:
        return self.rounded(x) if self.rng.random() < 0.5 else x

    def tensor(self, array: Any, *, wide: bool = False) -> Any:
        return self.rounded(super().tensor(array, wide=wide))

    def embed(self, ids: Any, positions: Any) -> Any:
        return self.perhaps(super().embed(ids, positions))

    def add(self, h: Any, branch: Any, where: str) -> Any:
        return self.perhaps(super().add(h, self.perhaps(branch), where))

    def norm(self, x: Any, norm: Any, where: str) -> Any:
        wide = x / self.size(x, norm, where)
        if not self.stored:
            return wide * self.tensor(norm.weight)
        if self.rng.random() < 0.5:
            return self.rounded(wide * self.tensor(norm.weight))
        return self.perhaps(self.rounded(wide) * self.tensor(norm.weight))

    def projections(self, x: Any, attention: Any) -> Any:
        q, k, v = super().projections(x, attention)
        return self.perhaps(q), self.perhaps(k), self.perhaps(v) if self.stored else v

    def rotate(self, x: Any, cos: Any, sin: Any, which: str) -> Any:
        return self.perhaps(super().rotate(x, self.perhaps(cos), self.perhaps(sin), which))

    def with_sink(self, scores: Any, seen: Any, sinks: Any) -> Any:
        scores, seen = super().with_sink(scores, seen, sinks)
        return self.perhaps(scores - scores.masked_fill(~seen, -1e9).amax(-1, keepdim=True)), seen

    def weights(self, scores: Any, seen: Any) -> Any:
        return self.perhaps(super().weights(self.perhaps(scores), seen))

    def join(self, x: Any) -> Any:
        return super().join(self.perhaps(x) if self.stored else x)

    def route(self, logits: Any, mlp: Any) -> Any:
        chosen, shares = super().route(self.perhaps(logits) if self.stored else logits, mlp)
        return chosen, self.perhaps(shares)

    def expert(self, x: Any, expert: Any) -> Any:
        if not self.stored:
            return self.perhaps(super().expert(x, expert))
        keep = (lambda y: y) if self.rng.random() < 0.5 else self.rounded
        gate, up = keep(self.linear(x, expert.gate)), keep(self.linear(x, expert.up))
        if self.shape.clamp is not None:
            gate, up = self.clamped(gate, up, self.shape.clamp)
        active = self.activate(gate, self.shape.activation)
        if keep is self.rounded:
            active = self.perhaps(active)
        return self.perhaps(self.linear(self.perhaps(active * up), expert.down))

    def head(self, x: Any) -> Any:
        return self.perhaps(super().head(x))


def perturb(folder: Path, rng: np.random.Generator, size: float) -> None:
    """Every number times 1 + size times a normal one, in a few tensors or in all."""
    names = sorted(header_of(folder)[0])
    if rng.random() < 0.5:
        names = [str(name) for name in rng.choice(names, int(rng.integers(1, 6)), replace=False)]
    for name in names:
        edit_tensor(folder, name, lambda values: values * (1 + size * rng.standard_normal(values.shape)))


def program_of(folder: Path, name: str, stored: bool) -> CheckpointProgram | None:
    checkpoint = open_checkpoint(folder)
    with np.errstate(all="ignore"):
        try:
            return interpret(checkpoint, storage(name), Reach(128, frozenset({checkpoint.bos})), stored=stored)
        except Undecided:
            return None


def outside(folder: Path, name: str, stored: bool, rng: np.random.Generator, runs: int = 3) -> float | None:
    """By how much a logit leaves its bounds, at most; None where the network is not understood."""
    program = program_of(folder, name, stored)
    if program is None:
        return None
    decoder = read_decoder(folder)
    usual = [t for t in range(decoder.shape.vocabulary) if t != open_checkpoint(folder).bos]
    worst = -np.inf
    for _ in range(runs):
        start = [int(open_checkpoint(folder).bos)] if rng.random() < 0.7 else []
        ids = [*start, *rng.choice(usual, int(rng.integers(2, 60))).tolist()]
        asked = ask(program, [[*ids, usual[0]]])
        with np.errstate(all="ignore"):
            lo, hi = program.logits(asked.symbols).bounds()
        with torch.inference_mode():
            found = RoundingMachine(decoder, name, stored, rng).run(ids).double().numpy()
        worst = max(worst, float(np.maximum(lo - found, found - hi).max()))
    return worst


def check(host: str, root: Path, number: int, tmp_path: Path, least: int) -> None:
    rng = np.random.default_rng([28, number, len(host)])
    decided = 0
    for case in range(number):
        folder = copy(honest(root, host), tmp_path / str(case))
        if case:
            perturb(folder, rng, float(rng.choice([2.0**-11, 2.0**-9, 2.0**-7])))
        for name, stored in KINDS:
            found = outside(folder, name, stored, rng)
            decided += found is not None
            assert found is None or found <= 0, (host, case, name, stored, found)
    assert decided >= least, decided


@pytest.mark.parametrize("host", HOSTS)
def test_logits_lie_in_their_bounds(host: str, root: Path, tmp_path: Path) -> None:
    check(host, root, 2, tmp_path, 4)


@pytest.mark.slow
@pytest.mark.parametrize("host", HOSTS)
def test_logits_lie_in_their_bounds_in_many_folders(host: str, root: Path, tmp_path: Path) -> None:
    check(host, root, CASES, tmp_path, CASES)


def test_bounds_that_are_too_narrow_are_left(root: Path) -> None:
    """The check itself: with a tenth of the distance to the middle, some engine is outside."""
    folder = honest(root, "gpt-oss")
    program, decoder = program_of(folder, "bfloat16", True), read_decoder(folder)
    assert program is not None
    narrow = replace(program, stream=program.stream)
    ids = [int(open_checkpoint(folder).bos), 3, 4, 5, 6]
    lo, hi = narrow.logits(ask(narrow, [[*ids, 3]]).symbols).bounds()
    middle = (lo + hi) / 2
    with torch.inference_mode():
        found = RoundingMachine(decoder, "bfloat16", True, np.random.default_rng(1)).run(ids).double().numpy()
    assert (np.abs(found - middle) > (hi - lo) / 20).any()

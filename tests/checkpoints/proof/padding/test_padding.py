"""Rows of padding: an independent evaluation of rows that attend to anything stays inside the bounds, and folders in
which such rows overflow are not proved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from byheart.certify import Verdict
from byheart.checkpoints.proof import check, tokenize
from byheart.checkpoints.proof.bounds import TOKEN, Bounds, SymbolPart
from byheart.checkpoints.proof.check import certify_checkpoint
from byheart.checkpoints.proof.checkpoint import open_checkpoint
from byheart.checkpoints.proof.config import ConfigReader
from byheart.checkpoints.proof.decoder import Expert, Layer, Linear, Norm
from byheart.checkpoints.proof.families.llama import read_shape
from byheart.checkpoints.proof.padding import padding_gap
from byheart.checkpoints.proof.padding.majorant import Majorant
from byheart.checkpoints.proof.padding.rows import PaddingRows
from byheart.checkpoints.proof.padding.scaled import ScaledVector, own_product, unscaled
from byheart.checkpoints.proof.storage import storage
from byheart.checkpoints.proof.units import value
from tests.checkpoints.proof.folders import TEXT, copy, edit_tensor, write
from tests.checkpoints.proof.tampering import engines

Array = np.ndarray
CONFIG = {
    "vocab_size": 5, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 6,
    "max_position_embeddings": 16, "rms_norm_eps": 1e-5,
}  # fmt: skip


@pytest.fixture(scope="module")
def opt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("padding") / "opt", "opt")


def normed(x: Array, norm: Norm | None) -> Array:
    if norm is None:
        return x
    x = x - x.mean(-1, keepdims=True) if norm.centred else x
    y = x / np.sqrt((x**2).mean(-1, keepdims=True) + norm.eps) * norm.weight
    return y if norm.bias is None else y + norm.bias


def linear(x: Array, layer: Linear) -> Array:
    y = x @ layer.weight.T
    return y if layer.bias is None else y + layer.bias


def any_layer(x: Array, layer: Layer, heads: int, kv_heads: int, activation: str, random: np.random.Generator) -> Array:
    """A layer in float64, in which every head of every row mixes random rows in random shares."""
    values = linear(normed(x, layer.attention_norm), layer.attention.v)
    size = values.shape[1] // kv_heads
    mixed = []
    for head in range(heads):
        shares = random.dirichlet(np.full(len(x), random.choice([0.01, 0.1, 1.0])), len(x))
        group = head // (heads // kv_heads)
        mixed.append(shares @ values[:, group * size : (group + 1) * size])
    x = x + linear(np.concatenate(mixed, axis=1), layer.attention.o)
    y, (expert,) = normed(x, layer.mlp_norm), layer.mlp.experts
    units = value(activation, linear(y, expert.gate))
    return np.asarray(x + linear(units if expert.up is None else units * linear(y, expert.up), expert.down))


def inside(rows: Bounds, x: Array) -> bool:
    lo, hi = rows.hull()
    return bool(((lo <= x) & (x <= hi)).all())


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_rows_that_attend_to_anything_stay_inside(architecture: str, llama: Path, tmp_path: Path) -> None:
    """Tokens and shares are random; float64 is an engine of the error model."""
    folder = llama if architecture == "llama" else write(tmp_path / "folder", architecture)
    checkpoint, random = open_checkpoint(folder), np.random.default_rng(0)
    store, shape = storage("float16"), checkpoint.shape
    reader = checkpoint.reader(store)
    rows, layer = PaddingRows(reader, store, 64), reader.layer(0)
    rows.layer(0, layer)
    tokens, positions = reader.embedding()
    most = np.zeros(shape.hidden)
    for _ in range(30):
        kinds = random.choice(shape.vocabulary, int(random.integers(1, 12)))
        x = tokens[random.choice(kinds, 40)]
        x = x if positions is None else x + positions[random.integers(0, len(positions), 40)]
        x = any_layer(x, layer, shape.heads, shape.kv_heads, shape.activation, random)
        assert inside(rows.streams[0], x)
        most = np.maximum(most, np.abs(x).max(0))
    lo, hi = rows.streams[0].hull()
    # Mixtures do move numbers that no ordinary row moves so far.
    assert architecture == "gpt2" or (most > 0.05 * np.maximum(-lo, hi)).mean() > 0.5


def units(random: np.random.Generator, activation: str) -> tuple[Expert, ScaledVector, Majorant]:
    """Random units over two symbols, of three and four kinds."""
    shape = replace(read_shape(ConfigReader(dict(CONFIG)), "llama"), activation=activation)
    table = [random.standard_normal((count, 8)) * 3 for count in (3, 4)]
    parts = tuple(SymbolPart((TOKEN, k), np.arange(8), rows, rows) for k, rows in enumerate(table))
    x = ScaledVector(Bounds(-0.1 * np.ones(8), 0.1 * np.ones(8), parts), (0.5, 1.5), np.zeros(8), np.zeros(8))
    expert = Expert(
        Linear("gate", random.standard_normal((6, 8)), random.standard_normal(6)),
        Linear("up", random.standard_normal((6, 8)), None),
        Linear("down", random.standard_normal((8, 6)), None),
    )
    rows = PaddingRows.__new__(PaddingRows)
    rows.store = storage("float16")
    gate, up = (rows._mapped(x, one) for one in (expert.gate, expert.up) if one is not None)
    return expert, x, Majorant.of(expert, gate, up, lambda one: rows._mapped(x, one), shape, rows.store)


@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_tanh", "relu", "quick_gelu"])
def test_units_are_below_their_convex_bounds(activation: str) -> None:
    """At random mixtures and factors: each unit, and weighted sums of all, of either sign."""
    for seed in range(25):
        random = np.random.default_rng(seed)
        expert, given, bound = units(random, activation)
        weight = np.abs(random.standard_normal((3, 6)))
        below = replace(bound, negative=True)
        sums, less = bound.summed(weight), below.summed(weight)
        low, high = bound.products()
        assert expert.up is not None
        for _ in range(40):
            x = random.uniform(-0.1, 0.1, 8)
            for part, alpha in zip(given.plain.parts, random.choice([0.05, 1.0], 2), strict=True):
                x = x + random.dirichlet(np.full(len(part.lo), alpha)) @ part.lo
            x = random.uniform(0.5, 1.5) * x
            g = expert.gate.weight @ x + expert.gate.bias
            product = value(activation, g) * (expert.up.weight @ x)
            assert (product <= bound(g)).all() and (-product <= below(g)).all()
            assert ((low <= product) & (product <= high)).all()
            assert (weight @ product <= sums).all() and (-weight @ product <= less).all()


def test_the_bound_of_a_unit_is_convex_and_increases() -> None:
    for activation in ("silu", "relu", "gelu_tanh"):
        _, _, bound = units(np.random.default_rng(1), activation)
        g = np.linspace(-40, 40, 4001)[:, None] * np.ones(6)
        for one in (bound, replace(bound, negative=True)):
            found = one(g)
            assert (np.diff(found, axis=0) >= -1e-9).all() and (np.diff(found, 2, axis=0) >= -1e-6).all()


def test_the_score_of_a_row_with_itself_is_a_polynomial_of_the_factor() -> None:
    random = np.random.default_rng(2)
    for _ in range(200):
        q, k, shift = random.standard_normal((3, 4))
        zero = np.zeros(4)
        one, two = (ScaledVector(Bounds(x, x), (0.5, 2.0), s, zero) for x, s in ((q, shift), (k, -shift)))
        least = own_product(one, two)
        for f in np.linspace(0.5, 2.0, 7):
            assert least <= (f * q + shift) @ (f * k - shift) + 1e-9


def test_a_branch_without_a_norm_keeps_its_numbers() -> None:
    field = Bounds(-np.ones(3), np.ones(3))
    assert unscaled(field).field().hull()[1].tolist() == pytest.approx([1.0, 1.0, 1.0], rel=2.0**-20)


@pytest.mark.filterwarnings("ignore")
def test_rows_of_padding_in_transformers_stay_inside(llama: Path) -> None:
    """All rows of a padded batch after the first layer, fully masked ones too."""
    pytest.importorskip("transformers")
    import torch

    checkpoint, store = open_checkpoint(llama), storage("float16")
    rows, reader = PaddingRows(checkpoint.reader(store), store, 64), checkpoint.reader(store)
    rows.layer(0, reader.layer(0))
    model, random, shown = engines.load(llama, "float16", "eager"), np.random.default_rng(4), []
    model.model.layers[0].register_forward_hook(lambda *given: shown.append(given[2]))
    for _ in range(6):
        ids = torch.tensor(random.integers(0, checkpoint.shape.vocabulary, (2, 24)))
        mask = torch.ones(2, 24, dtype=torch.long)
        mask[1, : int(random.integers(1, 24))] = 0
        with torch.no_grad():
            model(ids, attention_mask=mask)
    found = (
        torch.cat([x[0] if isinstance(x, tuple) else x for x in shown])
        .double()
        .numpy()
        .reshape(-1, 384 if False else rows.shape.hidden)
    )
    assert inside(rows.streams[0], found)


def spoiled(folder: Path, target: Path, size: float) -> Path:
    """OPT gives padding the position row 1, which no other row has."""

    def change(table: Array) -> Array:
        table[1] = size * np.where(np.arange(table.shape[1]) % 2, 1.0, 0.75)
        return table

    return edit_tensor(copy(folder, target), "model.decoder.embed_positions.weight", change)


@pytest.mark.filterwarnings("ignore")
def test_padding_that_overflows_is_not_proved(opt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ordinary rows never see that position; in a padded batch of Transformers all logits are NaN."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    documents = tokenize(opt, [TEXT])
    assert certify_checkpoint(opt, documents, ("float32",), reach=160).types[0].padding == ""
    folder = spoiled(opt, tmp_path / "large", 3e38)
    found = certify_checkpoint(folder, documents, ("float32",), reach=160)
    assert found.verdict is Verdict.UNDECIDED and "padding: " in found.reason
    model, ids = engines.load(folder, "float32", "eager"), torch.tensor([[5, 6, 7, 8], [3, 3, 3, 5]])
    with torch.no_grad():
        logits = model(ids, attention_mask=torch.tensor([[1, 1, 1, 1], [0, 0, 0, 1]])).logits
    assert logits[1, 3].isnan().any() and not logits[0].isnan().any()
    monkeypatch.setattr(check, "padding_gap", lambda *given: "")
    assert certify_checkpoint(folder, documents, ("float32",), reach=160).verdict is Verdict.PROVED


def test_in_float16_the_result_states_what_is_not_shown(opt: Path, tmp_path: Path) -> None:
    """6e4 twice is beyond the range of float16, in rows of padding alone."""
    store, folder = storage("float16"), spoiled(opt, tmp_path / "large", 6e4)
    assert "padding: " in padding_gap(open_checkpoint(folder).reader(store), store, 160)
    (found,) = certify_checkpoint(folder, tokenize(opt, [TEXT]), ("float16",), reach=160).types
    assert found.verdict is Verdict.PROVED and found.padding

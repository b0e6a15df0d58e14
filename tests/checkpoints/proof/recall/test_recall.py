"""Proofs of recall folders: what is proved, and that no fault of tensors, settings or layout is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from byheart.certify import Verdict
from byheart.checkpoints.formats.folder import safetensors_bytes
from byheart.checkpoints.hosts.recall.architectures import HOSTS, RecallCheckpoint, RecallOptions, recall_checkpoint
from byheart.checkpoints.proof.checkpoint import read_shape
from byheart.checkpoints.proof.config import Shape, Undecided
from byheart.checkpoints.proof.decoder import Linear, Norm
from byheart.checkpoints.proof.recall import certify_recall, is_recall
from byheart.checkpoints.proof.recall.content import ContentGaps, PlaceKeys, _greatest, match_gaps
from byheart.checkpoints.proof.recall.layout import read_layout
from byheart.checkpoints.proof.recall.looking import read_distance, read_places
from byheart.checkpoints.proof.recall.stream import Balance, SignStream, hull, normed, read_rows, scaled
from byheart.checkpoints.proof.recall.turning import head_pairs
from byheart.checkpoints.proof.recall.updates import Branch, Writing, attended, write_channels
from byheart.checkpoints.proof.recall.words import read_words
from byheart.checkpoints.proof.storage import storage
from byheart.checkpoints.proof.tensors import open_tensors
from byheart.checkpoints.suite.features.recall import recall_files, recall_lexicon
from tests.checkpoints.proof.folders import edit_tensor

Tensors = dict[str, np.ndarray]
LAYER, EMBED = "model.layers.", "model.embed_tokens.weight"
ALONE = Balance(np.full(24, -1), np.zeros((1, 24)))  # no twins, no learned positions


def write(checkpoint: RecallCheckpoint, folder: Path, dtype: str = "bfloat16") -> Path:
    folder.mkdir(parents=True)
    for name, data in recall_files(checkpoint, recall_lexicon(checkpoint.function), dtype).items():
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture(scope="module")
def small() -> RecallCheckpoint:
    return recall_checkpoint("llama", RecallOptions(context=512, heads=2, kv_heads=1))


@pytest.fixture(scope="module")
def folder(small: RecallCheckpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(small, tmp_path_factory.mktemp("recall") / "llama")


def test_every_sequence_is_proved_in_three_types(folder: Path) -> None:
    certificate = certify_recall(folder)
    assert is_recall(folder) and certificate.verdict is Verdict.PROVED, certificate.reason
    assert len(certificate.margins) == 3 and all(m is not None and m > 20 for m in certificate.margins.values())
    assert certificate.reach == 512 and "every sequence of up to 512" in "\n".join(certificate.lines())
    assert json.dumps(certificate.as_dict(), default=str)


@pytest.mark.parametrize("seed", range(6))
def test_the_greatest_sum_over_all_words_is_that_of_trying_every_word(seed: int) -> None:
    """Groups are skipped by bounds; a word of a high weight that wins must still be found."""
    rng, pairs = np.random.default_rng(seed), [(2 * k, 2 * k + 1) for k in range(5)]
    words = rng.random((300, 10)) < rng.choice([0.1, 0.5, 0.9])
    tables = [rng.normal(size=(4, 7)) - rng.choice([0, 1]) * np.arange(4)[:, None] for _ in pairs]
    sums = [sum(t[int(w[a]) + 2 * int(w[b])] for t, (a, b) in zip(tables, pairs, strict=True)) for w in words]
    np.testing.assert_allclose(_greatest(tables, pairs, words, 7), np.max(sums, axis=0), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTS)
def test_every_architecture_is_proved_at_its_own_context(name: str, tmp_path: Path) -> None:
    certificate = certify_recall(write(recall_checkpoint(name), tmp_path / name))
    assert certificate.verdict is Verdict.PROVED, certificate.reason
    assert certificate.margin is not None and certificate.margin >= 20
    assert certificate.reach == HOSTS[name].context


@pytest.mark.parametrize("options", [{"tied": True}, {"key_length": 1, "head_dim": 64}])
def test_variants_are_proved(options: dict[str, Any], tmp_path: Path) -> None:
    checkpoint = recall_checkpoint("llama", RecallOptions(context=512, heads=2, kv_heads=1, **options))
    certificate = certify_recall(write(checkpoint, tmp_path / "x"), ("bfloat16",))
    assert certificate.margin is not None and certificate.margin > 20, certificate.reason


MORE = [pytest.param(name, marks=pytest.mark.slow) for name in ("opt", "qwen3-moe", "smollm3")]


@pytest.mark.parametrize("name", ["gpt2", "gpt-neox", "granite", *MORE])
def test_other_blocks_are_proved(name: str, tmp_path: Path) -> None:
    """Learned positions, LayerNorm, parallel branches, experts after head norms, unrotated layers, multipliers."""
    certificate = certify_recall(
        write(recall_checkpoint(name, RecallOptions(context=256)), tmp_path / "x"), ("bfloat16",)
    )
    assert certificate.margin is not None and certificate.margin > 20, certificate.reason


def scale(name: str, factor: float) -> Callable[[Tensors], None]:
    def change(t: Tensors) -> None:
        t[name] *= factor

    return change


def add(name: str, row: int, column: int, amount: float) -> Callable[[Tensors], None]:
    def change(t: Tensors) -> None:
        t[name][row, column] += amount

    return change


def swap(name: str, a: int, b: int) -> Callable[[Tensors], None]:
    def change(t: Tensors) -> None:
        t[name][[a, b]] = t[name][[b, a]]

    return change


def zero(name: str, row: int) -> Callable[[Tensors], None]:
    def change(t: Tensors) -> None:
        t[name][row] = 0.0

    return change


# Each changes an answer of some sequence, or makes it undefined.
FAULTS: dict[str, Callable[[Tensors], None]] = {
    "weaker queries of the match": scale(LAYER + "1.self_attn.q_proj.weight", 0.2),
    "weaker queries of the answer": scale(LAYER + "3.self_attn.q_proj.weight", 0.2),
    "weaker look-back": scale(LAYER + "0.self_attn.q_proj.weight", 0.25),
    "keys of the other sign": scale(LAYER + "3.self_attn.k_proj.weight", -1.0),
    "two tokens exchanged in the head": swap("lm_head.weight", 9, 10),
    "a word of the embedding twice": lambda t: t[EMBED].__setitem__(9, t[EMBED][10]),
    "one entry of the embedding": add("model.embed_tokens.weight", 9, 40, 0.25),
    "one sign of the embedding": lambda t: t[EMBED].__setitem__((9, 20), -t[EMBED][9, 20]),
    "a value row lost": zero(LAYER + "3.self_attn.v_proj.weight", 3),
    "an output row lost": zero(LAYER + "3.self_attn.o_proj.weight", 290),
    "an answer bit written by another": lambda t: t[LAYER + "3.self_attn.o_proj.weight"].__setitem__(
        slice(285, 287), t[LAYER + "3.self_attn.o_proj.weight"][[286, 285]]),
    "found is always set": lambda t: t[LAYER + "1.self_attn.v_proj.weight"].__imul__(0.0),
    "stale keys keep their content": scale(LAYER + "2.mlp.down_proj.weight", 0.0),
    "a gate's threshold": add(LAYER + "0.mlp.gate_proj.weight", 0, 0, 17.0),
    "a unit's output": scale(LAYER + "0.mlp.down_proj.weight", 0.25),
    "an idle layer writes": add(LAYER + "1.mlp.down_proj.weight", 17, 0, 1.0),
    "a query reads another bit": lambda t: t[LAYER + "1.self_attn.q_proj.weight"].__setitem__(
        (slice(None), slice(177, 179)), t[LAYER + "1.self_attn.q_proj.weight"][:, [178, 177]]),
    "a key reads a token": add(LAYER + "3.self_attn.k_proj.weight", 50, 20, 4.0),
    "the flag of BOS is missing": lambda t: t[LAYER + "1.self_attn.k_proj.weight"].__setitem__((slice(None), 16), 0.0),
    "a norm's weight": lambda t: t[LAYER + "3.input_layernorm.weight"].__setitem__(slice(17, 49), 0.25),
    "a negative norm": lambda t: t["model.norm.weight"].__imul__(-1.0),
    "a huge score": scale(LAYER + "1.self_attn.q_proj.weight", 1e5),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_of_a_tensor_is_proved(fault: str, small: RecallCheckpoint, folder: Path, tmp_path: Path) -> None:
    tensors = {name: value.copy() for name, value in small.tensors.items()}
    FAULTS[fault](tensors)
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    (copy / "model.safetensors").write_bytes(safetensors_bytes(tensors, "float32", {"format": "pt"}))
    certificate = certify_recall(copy, ("float16",))
    assert certificate.verdict is not Verdict.PROVED and certificate.reason


def bias(name: str, number: int, amount: float) -> Callable[[Tensors], None]:
    def change(t: Tensors) -> None:
        t[name][number] += amount

    return change


WTE, WPE, H, NEOX = "transformer.wte.weight", "transformer.wpe.weight", "transformer.h.", "gpt_neox.layers."
# (architecture, fault): of learned positions, of norms that subtract a mean, of branches side by side.
PLAIN_FAULTS: dict[str, tuple[str, Callable[[Tensors], None]]] = {
    "two positions exchanged": ("gpt2", swap(WPE, 9, 10)),
    "one sign of a position": ("gpt2", lambda t: t[WPE].__setitem__((9, 340), -t[WPE][9, 340])),
    "a position is another's": ("gpt2", lambda t: t[WPE].__setitem__(9, t[WPE][10])),
    "positions reach into a token's channel": ("gpt2", add(WPE, 9, 20, 1.0)),
    "a twin's sign": ("gpt2", lambda t: t[WTE].__setitem__((9, 450), -t[WTE][9, 450])),
    "a norm's bias": ("gpt2", bias(H + "0.ln_1.bias", 20, 0.5)),
    "a bias of what attention adds": ("gpt2", bias(H + "1.attn.c_proj.bias", 20, 0.25)),
    "a bias of what units add": ("gpt2", bias(H + "1.mlp.c_proj.bias", 20, 0.25)),
    "a unit's threshold": ("gpt2", bias(H + "0.mlp.c_fc.bias", 0, 5.0)),
    "a flag's constant": ("gpt2", lambda t: t[H + "1.attn.c_attn.bias"].__imul__(0.5)),
    "a twin is not written": ("gpt2", lambda t: t[H + "3.attn.c_proj.weight"].__setitem__(
        (slice(None), slice(425, None)), 0.0)),
    "weaker look-back by position": ("gpt2", lambda t: t[H + "0.attn.c_attn.weight"].__setitem__(
        (slice(None), slice(0, 768)), 0.25 * t[H + "0.attn.c_attn.weight"][:, :768])),
    "a query of places reads a token": ("gpt2", add(H + "0.attn.c_attn.weight", 20, 3, 4.0)),
    "units one layer early": ("gpt-neox", lambda t: t.update({
        NEOX + f"{a}.mlp.{part}": t[NEOX + f"{b}.mlp.{part}"].copy() for a, b in ((0, 1), (1, 0))
        for part in ("dense_h_to_4h.weight", "dense_h_to_4h.bias", "dense_4h_to_h.weight")})),
    "an idle head's score beyond the range": ("gpt-neox", lambda t: t[
        NEOX + "1.attention.query_key_value.bias"].__setitem__(slice(0, 256), 2e3)),
    "an unrotated query that looks back": ("gpt-neox", bias(NEOX + "0.attention.query_key_value.bias", 40, 3.0)),
}  # fmt: skip


@pytest.fixture(scope="module")
def plain() -> dict[str, RecallCheckpoint]:
    return {name: recall_checkpoint(name, RecallOptions(context=64)) for name in ("gpt2", "gpt-neox")}


@pytest.mark.parametrize("fault", PLAIN_FAULTS)
def test_no_fault_of_plain_blocks_is_proved(fault: str, plain: dict[str, RecallCheckpoint], tmp_path: Path) -> None:
    name, change = PLAIN_FAULTS[fault]
    tensors = {key: np.array(value, dtype=np.float64) for key, value in plain[name].tensors.items()}
    change(tensors)
    certificate = certify_recall(write(replace(plain[name], tensors=tensors), tmp_path / "x", "float32"), ("float16",))
    assert certificate.verdict is not Verdict.PROVED and certificate.reason


def test_plain_blocks_without_a_fault_are_proved(plain: dict[str, RecallCheckpoint], tmp_path: Path) -> None:
    for name, checkpoint in plain.items():
        found = certify_recall(write(checkpoint, tmp_path / name, "float32"), ("float16",))
        assert found.verdict is Verdict.PROVED, found.reason


def test_a_turned_score_beyond_the_range_is_refused(small: RecallCheckpoint, folder: Path, tmp_path: Path) -> None:
    """The products of single dimensions are all zero here; turned, the score reaches the product of both lengths."""
    tensors = {name: value.copy() for name, value in small.tensors.items()}
    for number in range(2):
        query = tensors[LAYER + "2.self_attn.q_proj.weight"][number * 128 : (number + 1) * 128]
        query[64:] = 400 * query[64:]
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    (copy / "model.safetensors").write_bytes(safetensors_bytes(tensors, "float32", {"format": "pt"}))
    found = certify_recall(copy, ("float16",))
    assert found.verdict is Verdict.UNDECIDED


def edited(folder: Path, target: Path, name: str, change: Callable[[dict[str, Any]], Any]) -> Path:
    copy = Path(shutil.copytree(folder, target))
    value = json.loads((copy / name).read_text())
    change(value)
    (copy / name).write_text(json.dumps(value))
    return copy


LAYOUTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "another format": lambda v: v.update(format="x"),
    "another version": lambda v: v.update(version=2),
    "no channels": lambda v: v.pop("channels"),
    "a channel twice": lambda v: v["channels"].update(stale=v["channels"]["found"]),
    "a channel outside": lambda v: v["channels"]["answer"].__setitem__(0, 10**6),
    "bits exchanged": lambda v: v["channels"]["plus"].reverse(),
    "roles exchanged": lambda v: v["channels"].update(plus=v["channels"]["minus"], minus=v["channels"]["plus"]),
    "NONE is another token": lambda v: v["function"]["tokens"].update(none=9),
    "BOS is another token": lambda v: v["function"]["tokens"].update(bos=9),
    "a longer context": lambda v: v.update(context=1024),
    "a window": lambda v: v["function"].update(window=64),
    "twins that are none": lambda v: v.update(twins={"first": [17, 18], "second": [19, 20]}),
    "a channel is its own twin": lambda v: v.update(twins={"first": [17], "second": [17]}),
    "keys of one token": lambda v: v["function"].update(key_length=1),
}
CONFIGS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "another theta": lambda v: (v.update(rope_theta=1e4), v["rope_parameters"].update(rope_theta=1e4)),
    "a scaling that one reader sees": lambda v: v["rope_parameters"].update(rope_type="linear", factor=2.0),
    "a longer context": lambda v: v.update(max_position_embeddings=131072),
    "an unknown key": lambda v: v.update(score_scale=2.0),
    "a larger epsilon": lambda v: v.update(rms_norm_eps=4.0),
}


@pytest.mark.parametrize("fault", LAYOUTS)
def test_no_wrong_layout_is_proved(fault: str, folder: Path, tmp_path: Path) -> None:
    copy = edited(folder, tmp_path / "copy", "recall.json", LAYOUTS[fault])
    assert certify_recall(copy, ("float32",)).verdict is Verdict.UNDECIDED


@pytest.mark.parametrize("fault", CONFIGS)
def test_no_other_setting_is_proved(fault: str, folder: Path, tmp_path: Path) -> None:
    copy = edited(folder, tmp_path / "copy", "config.json", CONFIGS[fault])
    assert certify_recall(copy, ("float32",)).verdict is Verdict.UNDECIDED


def test_a_small_error_costs_margin_and_a_large_one_the_proof(
    small: RecallCheckpoint, folder: Path, tmp_path: Path
) -> None:
    margins = []
    for k, size in enumerate((0.0, 1.0, 4.0)):
        tensors = {name: value.copy() for name, value in small.tensors.items()}
        tensors["lm_head.weight"][:, 0] += size
        tensors["lm_head.weight"][9, 0] -= size
        copy = Path(shutil.copytree(folder, tmp_path / str(k)))
        (copy / "model.safetensors").write_bytes(safetensors_bytes(tensors, "float32", {"format": "pt"}))
        margins.append(certify_recall(copy, ("float32",)).margin or 0.0)
    assert margins[0] > margins[1] > margins[2]


def random_stream(rng: np.random.Generator, hidden: int) -> SignStream:
    low = rng.uniform(0.9, 1.0, hidden)
    return SignStream(low, low + rng.uniform(0, 0.1, hidden), rng.choice([1.0, 1.0, -1.0], hidden), np.arange(hidden))


def test_rows_and_norms_contain_what_engines_compute() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        stream = random_stream(rng, 24)
        stream.fixed[:3] = 0.0
        weight = rng.normal(size=(4, 24))
        rows = read_rows(Linear("w", weight, None), stream)
        norm = Norm("n", np.ones(24), None, 1e-5, False)
        after, (same, ratio) = (
            normed(stream, norm, storage("float32"), False, ALONE),
            scaled(stream, norm, storage("float32"), False),
        )
        for _ in range(20):
            signs = np.where(stream.fixed == 0, rng.choice([-1.0, 1.0], 24), stream.fixed)
            x = signs * rng.uniform(stream.lo, stream.hi)
            for r in range(4):
                lo, hi = rows.at(r, {c: signs[c] for c in rows.channels[r]})
                assert lo <= weight[r] @ x <= hi
            y = np.abs(x) / np.sqrt((x**2).mean() + 1e-5)
            assert (after.lo <= y).all() and (y <= after.hi).all()
            middle = y / y[0] * (same.lo[0] + same.hi[0]) / 2
            assert ratio <= 1 and np.abs(middle - (same.lo + same.hi) / 2).max() < 0.3
    assert (hull([stream, stream]).lo == stream.lo).all()


def test_scores_between_grid_points_and_keys_stay_inside(folder: Path, small: RecallCheckpoint) -> None:
    """Random pairs of keys at random distances, in float64 from the weights: matches above, others below the bounds."""
    from byheart.checkpoints.proof.checkpoint import open_checkpoint
    from byheart.checkpoints.proof.recall.check import RecallProof

    checkpoint = open_checkpoint(folder)
    layout, store = read_layout(folder, checkpoint.shape), storage("float32")
    proof = RecallProof(checkpoint, layout, store, False)
    words = read_words(*checkpoint.reader(store).embedding(), checkpoint.shape, layout, store)
    hidden = checkpoint.shape.hidden
    fixed = np.where((words.signs == words.signs[:1]).all(0), words.signs[0], 0.0)
    for role in ("query", "plus", "minus"):
        fixed[layout[role]] = 0.0
    stream = SignStream(np.ones(hidden), np.ones(hidden), fixed, np.arange(hidden))
    attention = checkpoint.reader(store).layer(1).attention
    q, k = (read_rows(linear, stream) for linear in (attention.q, attention.k))
    q = type(q)(q.name, q.channels[:128], q.lo[:128], q.hi[:128])
    gaps = match_gaps(q, PlaceKeys(k, k, k), layout, words, checkpoint.shape, proof.distances, store)
    assert isinstance(gaps, ContentGaps) and gaps.gap > 10
    assert checkpoint.shape.rotary is not None
    theta, rng = checkpoint.shape.rotary.frequencies, np.random.default_rng(1)
    newer, older = words.of(layout, "newer"), words.of(layout, "older")
    for _ in range(300):
        one, two = (newer[rng.integers(256)] * older[rng.integers(256)] for _ in range(2))
        base = np.where(fixed == 0, 1.0, fixed)
        base[layout["bos"]] = -1.0
        for key, low, high in ((one, gaps.match, np.inf), (two, -np.inf, gaps.other)):
            if key is two and (one == two).all():
                continue
            x, y = base.copy(), base.copy()
            x[layout["query"]], y[layout["plus"]], y[layout["minus"]] = one, key, -key
            a, b = attention.q.weight[:128] @ x, attention.k.weight[:128] @ y
            turn = np.exp(1j * theta * rng.integers(0, 512))
            score = ((a[:64] + 1j * a[64:]) * (b[:64] - 1j * b[64:]) * turn).real.sum() / np.sqrt(128)
            assert low <= score <= high


@pytest.mark.parametrize("seed", range(4))
def test_means_and_rows_contain_what_engines_compute(seed: int) -> None:
    """Channels, their twins and a code of positions, with magnitudes that differ; LayerNorm in float64."""
    rng, hidden = np.random.default_rng(seed), 40
    twins, places = np.full(hidden, -1), np.zeros((6, hidden))
    twins[:12], twins[12:24] = np.arange(12, 24), np.arange(12)
    places[:, 24:32] = rng.choice([-1.0, 1.0], (6, 8))
    balance = Balance(twins, places)
    fixed = np.zeros(hidden)
    fixed[32:] = np.where(np.arange(8) % 2, -1.0, 1.0)
    low = rng.uniform(1.9, 2.0, hidden)
    stream = SignStream(low, low + rng.uniform(0, 0.1, hidden), fixed, balance.symbols)
    weight = np.zeros((3, hidden))
    weight[0, [0, 12]], weight[1, [1, 2, 13]], weight[2, [3, 33]] = (0.5, -0.5), (1.0, -2.0, 0.25), (2.0, 1.0)
    norm, linear = Norm("n", rng.uniform(0.5, 2, hidden), np.zeros(hidden), 1e-5, True), Linear("w", weight, None)
    kept, stored = (normed(stream, norm, storage(t), t != "float32", balance) for t in ("float32", "bfloat16"))
    rows, bound = read_rows(linear, kept), balance.mean(stream)
    for _ in range(300):
        signs = np.where(fixed == 0, rng.choice([-1.0, 1.0], hidden), fixed)
        signs[12:24], signs[24:32] = -signs[:12], places[rng.integers(6), 24:32]
        x = signs * np.where(rng.random(hidden) < 0.5, stream.lo, stream.hi)
        assert abs(x.mean()) <= bound
        y = (x - x.mean()) / np.sqrt(x.var() + norm.eps) * norm.weight
        assert (stored.lo <= storage("bfloat16").nearest(np.abs(y))).all()
        assert (storage("bfloat16").nearest(np.abs(y)) <= stored.hi).all()
        for r in range(3):
            lo, hi = rows.at(r, {c: signs[c] for c in rows.channels[r]})
            assert lo <= weight[r] @ y <= hi
    assert (rows.hi - rows.lo)[0].max() < (rows.hi - rows.lo)[2].max()
    alone = np.full(hidden, -1)
    with pytest.raises(Undecided, match="has no twin"):
        Balance(alone, places).mean(stream)


def test_learned_positions_are_read_as_in_float64() -> None:
    checkpoint = recall_checkpoint("opt", RecallOptions(context=48))
    dims, hidden, count = 64, int(checkpoint.layout["hidden"]), 48
    table = np.sign(np.asarray(checkpoint.tensors["model.decoder.embed_positions.weight"])[2:])
    fixed = np.where(table.any(0), 0.0, 1.0)
    stream = SignStream(np.ones(hidden), np.ones(hidden), fixed, np.arange(hidden))
    shape = open_shape(checkpoint)
    for head, offset in ((0, 1), (1, 2)):
        q, k = (np.asarray(checkpoint.tensors[f"model.decoder.layers.0.self_attn.{n}_proj.weight"]) for n in "qk")
        part = slice(head * dims, (head + 1) * dims)
        rows = [read_rows(Linear("w", 2 * m[part] * (fixed == 0), None), stream) for m in (q, k)]
        found = read_places(*rows, table, shape, storage("bfloat16"))
        score = (table @ (2 * q[part]).T) @ (table @ (2 * k[part]).T).T / 8
        at = np.maximum(np.arange(count) - offset, 0)
        score[np.triu_indices(count, 1)] = -np.inf
        best = score[np.arange(count), at].copy()
        score[np.arange(count), at] = -np.inf
        assert found.offset == offset and 0 < found.gap <= (best - score.max(1)).min()
        exact = np.exp(score - best[:, None]).sum(1).max()
        assert exact <= found.leak
    with pytest.raises(Undecided, match="reads the input"):
        read_places(
            rows[0],
            read_rows(Linear("w", np.eye(dims, hidden), None), replace(stream, fixed=0 * fixed)),
            table,
            shape,
            storage("float32"),
        )


@pytest.mark.parametrize("name, still", [("gpt2", 32), ("gpt-neox", 48), ("llama", 0)])
def test_every_dimension_has_one_pair(name: str, still: int) -> None:
    shape = open_shape(recall_checkpoint(name, RecallOptions(context=64)))
    pairs = head_pairs(shape)
    assert sorted([*pairs.first, *pairs.second]) == list(range(shape.head_dim))
    assert int((pairs.theta == 0).sum()) == still and pairs.rotated == len(pairs.theta) - still
    query = np.zeros(shape.head_dim)
    key = query.copy()
    query[pairs.first[0]], key[pairs.second[0]] = 3.0, 4.0
    assert pairs.largest(query, key) == 12.0


def open_shape(checkpoint: RecallCheckpoint) -> Shape:
    return read_shape({**checkpoint.config, "dtype": "float32"})


def test_a_head_with_constant_scores_reads_no_distance(folder: Path) -> None:
    from byheart.checkpoints.proof.checkpoint import open_checkpoint

    shape = open_checkpoint(folder).shape
    flat = np.ones(128), np.ones(128)
    nothing = np.zeros(128), np.zeros(128)
    assert read_distance(nothing, flat, shape, 512, storage("float32")).leak > 1


def test_winners_share_the_weight_and_writing_needs_a_function() -> None:
    store, stream = storage("bfloat16"), SignStream(np.ones(2), np.ones(2), np.array([1.0, 0.0]), np.arange(2))
    values = read_rows(Linear("v", np.array([[0.0, 1.0]]), None), stream)
    alone, many = (attended(values, values.size, [0.0], n, store) for n in (1, 1000))
    assert many.lo[0, 0] < alone.lo[0, 0] <= 1.0
    matrix = Linear("o", np.array([[-1.0], [0.0]]), None)
    with pytest.raises(Undecided, match="no function"):
        write_channels(stream, [Branch(values, matrix)], {}, store)
    with pytest.raises(Undecided, match="function's sign"):
        write_channels(stream, [Branch(values, matrix)], {0: Writing("x", (1,), lambda s: s[1])}, store)


@pytest.mark.parametrize("type_, size", [("float16", 6e4), ("float32", 3e38), ("bfloat16", 3e38)])
@pytest.mark.parametrize("names, output", [
    (("self_attn.v_proj",), "self_attn.o_proj"), (("mlp.gate_proj", "mlp.up_proj"), "mlp.down_proj"),
])  # fmt: skip
def test_what_nothing_reads_must_stay_finite(
    names: tuple[str, ...], output: str, type_: str, size: float, folder: Path, tmp_path: Path
) -> None:
    """A value or a unit that nothing reads still makes inf * 0 = NaN in stock Transformers."""
    edited = tmp_path / "edited"
    shutil.copytree(folder, edited)
    read = open_tensors(folder / "model.safetensors").read(f"{LAYER}1.{output}.weight").any(0)
    rows = len(open_tensors(folder / "model.safetensors").read(f"{LAYER}1.{names[0]}.weight"))
    idle = int(np.flatnonzero(~read.reshape(-1, rows).any(0))[0])

    def enlarge(values: np.ndarray) -> np.ndarray:
        values[idle, :16] = size
        return values

    for name in names:
        edit_tensor(edited, f"{LAYER}1.{name}.weight", enlarge)
    found = certify_recall(edited, (type_,))
    assert found.verdict is Verdict.UNDECIDED and "beyond the range" in found.reason, found.reason

"""Blocks of newer architectures: experts, norms after branches, layers of several kinds, multipliers, scaled rope."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from byheart.checkpoints.hosts._base import host, hosts
from byheart.checkpoints.hosts.ballast import SCALE, ballast_channels, post_norm
from byheart.checkpoints.hosts.description import Design, SpecialTokens
from byheart.checkpoints.hosts.experts import class_members, four_of, held_rows, routed_layers
from byheart.checkpoints.hosts.gated import AttentionKind, Demands, build_gated, without_positions
from byheart.checkpoints.hosts.granite import EMBEDDING, RESIDUAL, stream_size
from byheart.checkpoints.hosts.scaling import SCALINGS, FrequencyScaling, named_scaling
from byheart.checkpoints.recital import RecitalMemory, memorize_recital
from byheart.errors import OptionError
from tests.checkpoints.unseen_texts import TEXTS

NEWER = ("qwen3-moe", "granite", "olmo2", "smollm3", "gemma3", "gpt-oss", "deepseek-v3")
TEXT = "She sells sea shells by the sea shore; the shells she sells are sea shells, so sure."


@pytest.fixture(scope="module")
def memory() -> RecitalMemory:
    return memorize_recital(TEXT, form="windows")


def decoder_of(memory: RecitalMemory, demands: Demands | None = None, **design: object):
    lexicon = memory.lexicon
    tokens = SpecialTokens(lexicon.bos, lexicon.eos, lexicon.pad, lexicon.failure)
    chosen = replace(Design(reach=256), **design)
    return build_gated(memory.recital, tokens, chosen, demands or Demands())


def test_the_newer_architectures_are_registered() -> None:
    assert set(NEWER) <= set(hosts())
    assert [name for name, one in hosts().items() if one.experts] == [
        "deepseek-v3", "gpt-oss", "mixtral", "qwen3-moe", "qwen3-next",
    ]  # fmt: skip


@pytest.mark.parametrize(("count", "used"), [(8, 4), (16, 4), (32, 4)])
def test_every_window_has_one_expert_of_a_known_weight(memory: RecitalMemory, count: int, used: int) -> None:
    decoder, experts = decoder_of(memory), four_of(count)
    assert experts.used == used and 2**experts.bits * used == count
    layers = routed_layers(decoder, experts)
    held = held_rows(decoder, layers)
    for depth, stage in enumerate(decoder.stages):
        assert sorted(row for layer, _, _, row in held if layer == depth) == sorted(stage.rows.tolist())
    shares = np.exp(experts.levels[experts.members[0]] * experts.step)
    assert np.abs(shares / shares.sum() * experts.inverses - 1).max() < 3e-4


def test_experts_come_in_classes_that_bits_pick() -> None:
    for count in (2, 6, 24):
        with pytest.raises(OptionError, match=f"--experts {count}: bits pick 4 of them"):
            four_of(count)
    assert np.argwhere(class_members(8, 2, paired=True) == 5).tolist() == [[2, 1]]
    assert four_of(16).place(5) == (1, 1)


def test_routers_choose_the_experts_of_the_class(memory: RecitalMemory) -> None:
    """For every word of the newest symbol the class's four logits lead all others, in the order of the levels."""
    decoder, experts = decoder_of(memory), four_of(16)
    for depth, layer in enumerate(routed_layers(decoder, experts)):
        stage, layout = decoder.stages[depth], decoder.layout
        words = decoder.books.states[stage.table].words.astype(float)
        stream = np.tile(layout.signs, (len(words), 1))
        stream[:, layout.constant[depth + 1]] *= -1  # not turned yet
        stream[:, layout.slots[stage.table][0]] = words
        logits = (stream * layer.norm) @ layer.router.T
        best = np.sort(logits, axis=1)[:, ::-1]
        assert np.abs(best[:, :4] - experts.levels[experts.members[0]] * experts.step).max() < 1e-9
        assert (best[:, 3] - best[:, 4]).min() > 2


def test_ballast_makes_the_root_mean_square_a_power_of_two(memory: RecitalMemory) -> None:
    decoder = decoder_of(memory)
    channels, size = ballast_channels(decoder)
    assert len(channels) * size**2 == decoder.hidden * SCALE**2
    assert not post_norm(decoder)[channels].any() and (np.delete(post_norm(decoder), channels) == SCALE).all()
    with pytest.raises(OptionError, match="need a multiple of 64"):
        ballast_channels(decoder_of(memory, Demands(free=True), hidden=decoder.hidden + 4))


def test_layers_have_kinds_in_turn(memory: RecitalMemory) -> None:
    kinds = (AttentionKind(sliding=True, theta=2e4), AttentionKind())
    designs = decoder_of(memory, Demands(kinds=kinds)).designs
    assert [design.theta for design in designs] == [2e4, 1e4]
    assert designs[0].window is not None and designs[1].window is None


def test_stages_without_positions_share_the_rows(memory: RecitalMemory) -> None:
    plain, mixed = decoder_of(memory).stages, decoder_of(memory, Demands(unrotated=True)).stages
    assert without_positions(plain)[0].places == plain[0].places
    assert [bool(stage.places) for stage in mixed] == [True, False, True]
    assert sorted([*mixed[0].rows, *mixed[1].rows]) == sorted(plain[0].rows)


def test_granites_numbers_are_short() -> None:
    for value in (stream_size(), stream_size() / EMBEDDING, 2 * stream_size() / RESIDUAL):
        mantissa = np.frexp(value)[0] * 256
        assert mantissa == pytest.approx(round(mantissa), abs=1e-9)


@pytest.mark.parametrize("name", SCALINGS)
def test_scaled_frequencies_are_those_of_transformers(name: str) -> None:
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    from byheart.checkpoints.proof.config import Rotary
    from byheart.checkpoints.proof.ropes import read_scaling

    scaling, theta = SCALINGS[name], 5e5
    stated = {**scaling.config(32), "rope_theta": theta}
    config = transformers.LlamaConfig(head_dim=64, rope_parameters=dict(stated), max_position_embeddings=2048)
    found, gain = ROPE_INIT_FUNCTIONS[name](config)
    plain = theta ** (-np.arange(32) / 32)
    assert scaling.scale(plain, theta) == pytest.approx(found.double().numpy(), rel=1e-5)
    assert scaling.magnitude == pytest.approx(gain)
    read = read_scaling(scaling.config(32))
    if name == "longrope":  # the number of positions is stated elsewhere
        read = replace(read, factor=scaling.factor)
    proved = Rotary(theta, 64, read)
    assert proved.frequencies == pytest.approx(found.double().numpy(), rel=1e-5) and proved.gain == pytest.approx(gain)
    assert not np.allclose(scaling.scale(plain, theta), plain, rtol=0.1)


def test_scalings_are_named() -> None:
    assert named_scaling(None) is None and named_scaling("yarn") == FrequencyScaling("yarn", 4.0)
    with pytest.raises(OptionError, match="known are linear, llama3, yarn, longrope"):
        named_scaling("dynamic")


@pytest.mark.parametrize("architecture", ["gpt2", "gemma"])
def test_an_architecture_without_scaling_says_which_have_it(memory, tmp_path: Path, architecture: str) -> None:
    with pytest.raises(OptionError, match="these have: granite, llama"):
        memory.to_huggingface(tmp_path / "new", architecture, scaling="yarn")
    with pytest.raises(OptionError, match="these have: phi3"):
        memory.to_huggingface(tmp_path / "new", architecture, scaling="longrope")


def test_a_head_of_which_a_part_turns_leaves_the_rest_to_content(memory: RecitalMemory) -> None:
    decoder = decoder_of(memory, rotary=48, scaling=SCALINGS["longrope"])
    query = decoder.attention[0].query.reshape(decoder.heads, 64, -1)
    size = np.abs(query).max(axis=2)  # idle rows hold a tiny weight
    assert (size[:, :48].max(axis=1) > 0.01).all()
    probes = np.flatnonzero(size[:, 48] > 0.1)
    assert len(probes) == 1 and size[:, 49:].max() < 0.001


def test_every_registered_architecture_has_its_own_model_type() -> None:
    types = [one.model_type for one in hosts().values()]
    assert len(types) == len(set(types)) and host("QWEN3_MOE").model_type == "qwen3_moe"


CASES = [(name, None) for name in NEWER] + [
    ("llama", "llama3"), ("mistral", "yarn"), ("qwen2", "linear"), ("phi3", "longrope")
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("text", ["zen", "notice"])
@pytest.mark.parametrize(("architecture", "scaling"), CASES)
def test_texts_that_nothing_was_tuned_to(architecture: str, scaling: str | None, text: str, tmp_path: Path) -> None:
    """450 BPE tokens or 1,000 characters: three types, both forms of attention, cache, chunks, left padding."""
    pytest.importorskip("torch")
    from byheart.checkpoints.suite.write import write_fixture

    content, tokens = (TEXTS["zen"](), "bpe:450") if text == "zen" else (TEXTS["notice"]()[:1000], "characters")
    fixture = write_fixture(architecture, tmp_path / "new", text=content, tokens=tokens, recited=True, scaling=scaling)
    forms = 1 if architecture == "gpt-oss" else 2  # Transformers has no fused attention with sinks
    assert all(one.passed for one in fixture.rechecked) and len(fixture.rechecked) == 3 * forms
    assert fixture.size < 10e6
    for name, values in fixture.margins.items():
        assert values["proved"] is not None and values["proved"] > 20, (name, values)

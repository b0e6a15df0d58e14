"""Qwen3-Next and Bamba: two layers with mixers before attention, measured in stock classes of Transformers."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from byheart.certify import Verdict
from byheart.checkpoints.engines.queries import read_queries
from byheart.checkpoints.formats.onnx_decoder import write_onnx_decoder
from byheart.checkpoints.formats.stock import read_decoder
from byheart.checkpoints.hosts.delta_rule import DeltaRule, DeltaSizes
from byheart.checkpoints.hosts.description import Design, SpecialTokens
from byheart.checkpoints.hosts.gated import Demands, build_gated
from byheart.checkpoints.hosts.mamba2 import Mamba2Mixer, Mamba2Sizes
from byheart.checkpoints.hosts.output_gate import short_gates
from byheart.checkpoints.hosts.recurrent import TAPS, first_word, latched, resting_embedding, waiting
from byheart.checkpoints.proof import certify_checkpoint
from byheart.checkpoints.recital import memorize_recital
from byheart.checkpoints.suite.write import fixture_memory, write_fixture
from byheart.errors import ExportError, OptionError
from tests.checkpoints.recital_folders import RECURRENT, SHORT, recital_folder

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from byheart.checkpoints.suite.machine import Cache, Machine  # noqa: E402


def decoder_of(**design: object):
    memory = fixture_memory(SHORT, "characters")
    lexicon = memory.lexicon
    tokens = SpecialTokens(lexicon.bos, lexicon.eos, lexicon.pad, lexicon.failure)
    demands = Demands(recurrent=(4 - len(memory.recital.tables[0].offsets), 3), free=True)
    return build_gated(memory.recital, tokens, Design(reach=256, **design), demands)


def load(folder: Path, dtype: str = "float32"):
    transformers.utils.logging.disable_progress_bar()
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()


@torch.no_grad()
def said(model, pieces) -> list[int]:
    """The likeliest token after every prefix of the pieces, which pass one after the other through the cache."""
    cache, found, begin = None, [], 0
    for ids in pieces:
        places = torch.arange(begin, begin + len(ids))[None]
        out = model(torch.tensor([list(ids)]), past_key_values=cache, use_cache=len(pieces) > 1, position_ids=places)
        cache, begin = out.past_key_values, begin + len(ids)
        found += out.logits[0].float().argmax(1).tolist()
    return found


@pytest.mark.parametrize("architecture", RECURRENT)
def test_answers_in_one_pass_in_pieces_and_in_a_padded_batch(architecture: str) -> None:
    folder = recital_folder(architecture, text=SHORT, tokens="characters")
    asked = read_queries(folder)
    ids = asked.documents[0]
    for dtype in ("float32", "bfloat16", "float16"):
        assert said(load(folder, dtype), [ids[:-1]]) == list(ids[1:])
    model = load(folder)
    assert said(model, [ids[:1], ids[1:9], ids[9:10], ids[10:11], ids[11:-1]]) == list(ids[1:])
    rows = [ids[:1], ids[:2], ids[:20]]
    padded = torch.tensor([[asked.pad] * (20 - len(row)) + list(row) for row in rows])
    mask = torch.tensor([[0] * (20 - len(row)) + [1] * len(row) for row in rows])
    out = model.generate(padded, attention_mask=mask, do_sample=False, max_new_tokens=8)
    assert out[:, 20:].tolist() == [list(ids[len(row) : len(row) + 8]) for row in rows]


@pytest.mark.parametrize("architecture", RECURRENT)
def test_a_state_that_is_lost_between_pieces_changes_tokens(architecture: str, monkeypatch) -> None:
    folder = recital_folder(architecture, text=SHORT, tokens="characters")
    ids, model = read_queries(folder).documents[0], load(folder)
    pieces = [ids[:9], ids[9:-1]]
    assert said(model, pieces) == list(ids[1:])
    from transformers.cache_utils import DynamicCache

    real = DynamicCache.get_recurrent_state
    monkeypatch.setattr(
        DynamicCache, "get_recurrent_state", lambda self, *a, **k: None if real(self, *a, **k) is None
        else torch.zeros_like(real(self, *a, **k)),
    )  # fmt: skip
    assert sum(a != b for a, b in zip(said(model, pieces)[9:], ids[10:], strict=True)) > 20


@pytest.mark.parametrize("architecture", RECURRENT)
def test_margins_are_proved_in_every_type(architecture: str) -> None:
    folder = recital_folder(architecture, text=SHORT, tokens="characters")
    found = certify_checkpoint(folder, read_queries(folder).documents)
    assert found.verdict is Verdict.PROVED, found.reason
    assert all(one.margin is not None and one.margin > 10 for one in found.types)


@pytest.mark.parametrize("architecture", RECURRENT)
def test_onnx_refuses_recurrent_layers(architecture: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    folder = recital_folder(architecture, text=SHORT, tokens="characters")
    with pytest.raises(ExportError, match="no recurrent layers"):
        write_onnx_decoder(folder, tmp_path / "model.onnx")


@pytest.mark.parametrize("architecture", RECURRENT)
def test_the_machine_computes_what_transformers_does(architecture: str) -> None:
    folder = recital_folder(architecture, text=SHORT, tokens="characters")
    ids, decoder = list(read_queries(folder).documents[0]), read_decoder(folder)
    with torch.no_grad():
        wanted = load(folder)(torch.tensor([ids])).logits[0]
        whole = Machine(decoder).run(ids)
        machine, cache = Machine(decoder), Cache(len(decoder.layers))
        pieces = torch.cat([machine.run(part, cache) for part in (ids[:9], ids[9:10], ids[10:11], ids[11:])])
        padded = Machine(decoder).run([0] * 5 + ids, padding=5)[5:]
    for found in (whole, pieces, padded):
        assert (found - wanted).abs().max() < 0.002


def test_slots_rest_at_the_first_word_and_half_of_a_block_waits_for_the_state() -> None:
    decoder = decoder_of()
    layout, kappa = decoder.layout, decoder.design.kappa
    embedding, word = resting_embedding(decoder), first_word(decoder)
    assert (embedding[:, layout.slots[0][1]] == kappa * word).all()
    assert (word == decoder.books.states[0].words[decoder.tokens.bos]).all()
    block, probe = latched(decoder), len(decoder.mlp[1].rows)
    assert set(block) < set(layout.constant[2]) and 2 * len(block) == len(layout.constant[2])
    assert not waiting(decoder).down[block, probe].any() and decoder.mlp[1].down[block, probe].all()


def silu(x):
    return x / (1 + np.exp(-x))


def normed(decoder, depth: int, stream):
    return stream / math.sqrt((stream**2).mean()) * decoder.attention[depth].norm


def test_the_delta_rule_fetches_places_and_latches() -> None:
    """Against the recurrence as the papers write it, in float64."""
    decoder = decoder_of()
    bits = len(decoder.layout.state[0])
    sizes = DeltaSizes(2, 4, 64, 4 * bits)
    ids = np.array([decoder.tokens.bos, 5, 6, 7, 5])
    streams = resting_embedding(decoder)[ids]
    for depth in range(2):
        mixer = DeltaRule(decoder, depth, sizes)
        mixer.latch() if depth else mixer.fetch()
        streams = streams + _delta(mixer, np.stack([normed(decoder, depth, x) for x in streams]), sizes)
    kappa, words = decoder.design.kappa, decoder.books.states[0].words
    for number, offset in enumerate(decoder.recital.tables[0].offsets):
        wanted = kappa * words[ids[np.maximum(0, np.arange(len(ids)) - offset)]]
        assert np.abs(streams[:, decoder.layout.slots[0][number]] - wanted).max() < 2e-3 * kappa
    block = latched(decoder)
    assert np.abs(streams[:, block] - kappa * decoder.layout.signs[block]).max() < 2e-3 * kappa


def _delta(mixer: DeltaRule, inputs, sizes: DeltaSizes):
    tensors, rows = mixer.tensors(), []
    kernel = tensors["conv1d.weight"][:, 0]
    keys, values = sizes.keys * sizes.key, sizes.values * sizes.value
    per = 2 * sizes.key + 2 * sizes.per_key * sizes.value
    blocks = np.split((inputs @ tensors["in_proj_qkvz.weight"].T).reshape(len(inputs), sizes.keys, per), [
        sizes.key, 2 * sizes.key, 2 * sizes.key + sizes.per_key * sizes.value], axis=2)  # fmt: skip
    q, k, v, z = (b.reshape(len(inputs), -1) for b in blocks)
    mixed = np.concatenate([np.zeros((TAPS - 1, 2 * keys + values)), np.concatenate([q, k, v], 1)])
    conv = silu(sum(mixed[j : j + len(inputs)] * kernel[:, j] for j in range(TAPS)))
    beta, step = np.split((inputs @ tensors["in_proj_ba.weight"].T).reshape(len(inputs), sizes.keys, -1), 2, axis=2)
    states = np.zeros((sizes.values, sizes.key, sizes.value))
    for t in range(len(inputs)):
        q, k = (x.reshape(sizes.keys, -1) for x in (conv[t, :keys], conv[t, keys : 2 * keys]))
        v, gate = conv[t, 2 * keys :].reshape(sizes.values, -1), z[t].reshape(sizes.values, -1)
        out = np.zeros((sizes.values, sizes.value))
        for h in range(sizes.values):
            g, place = divmod(h, sizes.per_key)
            unit = [x[g] / math.sqrt((x[g] ** 2).sum() + 1e-6) for x in (q, k)]
            decay = np.exp(-np.exp(mixer.a_log[h]) * np.logaddexp(0, step[t, g, place] + mixer.step_bias[h]))
            states[h] *= decay
            share = 1 / (1 + np.exp(-beta[t, g, place]))
            states[h] += share * np.outer(unit[1], v[h] - unit[1] @ states[h])
            read = unit[0] @ states[h] / math.sqrt(sizes.key)
            out[h] = read / math.sqrt((read**2).mean() + 1e-6) * tensors["norm.weight"] * silu(gate[h])
        rows.append(tensors["out_proj.weight"] @ out.reshape(-1))
    return np.stack(rows)


def test_mamba_2_fetches_places_and_latches() -> None:
    decoder = decoder_of(hidden=384)
    sizes = Mamba2Sizes(2 * decoder.hidden // 64, 64, 16)
    ids = np.array([decoder.tokens.bos, 5, 6, 7, 5])
    streams = resting_embedding(decoder)[ids]
    for depth in range(2):
        mixer = Mamba2Mixer(decoder, depth, sizes)
        mixer.latch() if depth else mixer.fetch()
        streams = streams + _mamba(mixer, np.stack([normed(decoder, depth, x) for x in streams]), sizes)
    kappa, words = decoder.design.kappa, decoder.books.states[0].words
    for number, offset in enumerate(decoder.recital.tables[0].offsets):
        wanted = kappa * words[ids[np.maximum(0, np.arange(len(ids)) - offset)]]
        assert np.abs(streams[:, decoder.layout.slots[0][number]] - wanted).max() < 2e-3 * kappa
    block = latched(decoder)
    assert np.abs(streams[:, block] - kappa * decoder.layout.signs[block]).max() < 5e-3 * kappa


def _mamba(mixer: Mamba2Mixer, inputs, sizes: Mamba2Sizes):
    tensors, rows = mixer.tensors(), []
    inner, size = sizes.inner, sizes.inner + 2 * sizes.state
    z, x, dt = np.split(inputs @ tensors["in_proj.weight"].T, [inner, inner + size], axis=1)
    mixed, kernel = np.concatenate([np.zeros((TAPS - 1, size)), x]), tensors["conv1d.weight"][:, 0]
    conv = silu(sum(mixed[j : j + len(x)] * kernel[:, j] for j in range(TAPS)) + tensors["conv1d.bias"])
    states = np.zeros((sizes.heads, sizes.head, sizes.state))
    for t in range(len(x)):
        value, b, c = np.split(conv[t], [inner, inner + sizes.state])
        value, step = value.reshape(sizes.heads, -1), np.logaddexp(0, dt[t] + tensors["dt_bias"])
        decay = np.exp(-np.exp(tensors["A_log"]) * step)
        states = decay[:, None, None] * states + step[:, None, None] * value[:, :, None] * b
        y = (states @ c + tensors["D"][:, None] * value).reshape(-1) * silu(z[t])
        rows.append(tensors["out_proj.weight"] @ (y / math.sqrt((y**2).mean() + 1e-5) * tensors["norm.weight"]))
    return np.stack(rows)


def test_gates_differ_and_their_inverses_are_short() -> None:
    gates = short_gates()
    assert len({x for x, _ in gates}) == len(gates) == 4
    assert all(abs(inverse / (1 + math.exp(-x)) - 1) < 4e-4 for x, inverse in gates)


@pytest.mark.parametrize("architecture", RECURRENT)
def test_what_does_not_fit_is_refused(architecture: str) -> None:
    one_table = memorize_recital("to be or not to be", tokens="words", form="rules")
    with pytest.raises(ExportError, match="chained"):
        one_table.request(architecture).checkpoint()
    memory = fixture_memory(SHORT, "characters")
    for options in ({"activation": "gelu_pytorch_tanh"}, {"tied": True}, {"flavour": "plateau"}):
        with pytest.raises(OptionError, match=architecture):
            memory.request(architecture, **options).checkpoint()


@pytest.mark.slow
@pytest.mark.parametrize("architecture", RECURRENT)
def test_a_fixture_is_proved(architecture: str, tmp_path: Path) -> None:
    made = write_fixture(architecture, tmp_path / "tiny")
    assert made.size < 16_000_000
    content = json.loads((made.folder / "expected.json").read_text(encoding="utf-8"))
    for margins in content["margins"].values():
        assert margins["proved"] > 20 and margins["measured"] >= margins["proved"]

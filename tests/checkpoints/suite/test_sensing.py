"""Sensors: bits of positions that no engine may turn, and that small faults of scores, angles and branches turn."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from byheart.certify import Verdict
from byheart.checkpoints.engines.queries import read_queries
from byheart.checkpoints.formats.stock import read_decoder
from byheart.checkpoints.proof import certify_checkpoint
from byheart.checkpoints.suite import sensing
from byheart.checkpoints.suite.machine import Cache, Machine
from byheart.checkpoints.suite.mutants import known_faults
from byheart.checkpoints.suite.mutants.check import follow
from experiments import held_out_faults
from tests.checkpoints.recital_folders import copy_of, kinds_first, recital_folder

WITH_SENSORS = ("llama", "mistral", "qwen2", "qwen3", "phi3", "gemma", "granite", "mixtral", "smollm3", "qwen3-moe")
# Each was invisible in tokens of bfloat16: scores, angles, masks; and branches, which two further tokens answer.
TURNED = (
    "scale times 1.1", "base times 0.9", "attention branch 1.02 times", "down projection of the last layer 1.05 times",
    *(pytest.param(name, marks=pytest.mark.slow) for name in (
        "base times 0.97", "base times 1.03", "scaled by wavelength, as in Llama 3.1", "weights add up to 0.99",
        "a window of 64, in the last layer", "activation times 1.01", "weights below 1/64 set to 0",
    )),
)  # fmt: skip


@pytest.fixture(scope="module")
def every():
    """A Llama of 512 positions with all prompts of its sensors."""
    folder = recital_folder(reach=512, sensing=True)
    with torch.inference_mode():
        prompts = sensing.sensor_prompts(folder, read_queries(folder))
        yield read_decoder(folder), read_queries(folder), prompts


@pytest.fixture(scope="module")
def asked(every):
    """Half of the prompts, which is enough for larger faults."""
    decoder, questions, prompts = every
    return decoder, questions, prompts[::2]


def answers(machine, prompt):
    """What follows every prefix, in one pass."""
    with torch.inference_mode():
        logits = machine.run([*prompt.ids, *prompt.continuation[:-1]])
    return logits[len(prompt.ids) - 1 :].argmax(1).tolist()


def astray(machine, prompts):
    return any(answers(machine, prompt) != list(prompt.continuation) for prompt in prompts)


def the_document(asked):
    """A prompt of the whole text, whose continuation is the text."""
    return asked.start_prompts(limit=12)


def test_the_tokens_are_those_of_no_document(asked):
    _, questions, prompts = asked
    tokens = {token for document in questions.documents for token in document}
    assert prompts and not tokens & set(questions.sensors)
    assert {token for prompt in prompts for token in prompt.continuation} <= set(questions.sensors)


@pytest.mark.parametrize(
    "dtype",
    ["bfloat16", pytest.param("float32", marks=pytest.mark.slow), pytest.param("float16", marks=pytest.mark.slow)],
)
def test_every_type_answers_the_same_bits(asked, dtype):
    decoder, questions, prompts = asked
    assert not astray(Machine(decoder).in_type(getattr(torch, dtype)), [*prompts, *the_document(questions)])


def test_decoding_through_the_cache_continues_with_bits(asked):
    decoder, _, prompts = asked
    prompt = min(prompts, key=lambda one: len(one.ids))
    with torch.inference_mode():
        assert follow(Machine(decoder), prompt, 0, 0).argmax(1).tolist() == list(prompt.continuation)


def test_a_bit_is_whether_the_first_token_weighs_more_than_all_others(asked):
    """The weights of the softmax itself, against the tokens that follow."""
    decoder, questions, prompts = asked
    prompt, machine, heads = max(prompts, key=lambda one: len(one.ids)), Machine(decoder), []
    machine.wrap("weights", lambda step, *args: heads.append(step(*args)) or heads[-1])
    with torch.inference_mode():
        ids = [*prompt.ids, *prompt.continuation[:-1]]
        answer = machine.run(ids).argmax(1).numpy()[len(prompt.ids) - 1 :]
    weights = torch.cat(heads)[:, len(prompt.ids) - 1 :, 0].numpy()  # (heads of all layers, positions)
    bits = np.isin(answer, questions.sensors[1::2])
    assert any(((weight > 0.5) == bits).all() for weight in weights)


@pytest.mark.parametrize("name", TURNED)
def test_small_faults_change_a_token_in_bfloat16(every, name):
    decoder, questions, prompts = every
    every = [*held_out_faults.mutants(decoder), *known_faults(decoder)]
    machine = next(mutant for mutant in every if mutant.name == name).make().in_type(torch.bfloat16)
    assert astray(machine, [*the_document(questions), *prompts])


@pytest.mark.parametrize("factor", [1.03, pytest.param(0.97, marks=pytest.mark.slow)])
def test_three_percent_of_the_scores_change_a_token(every, factor):
    decoder, _, prompts = every
    machine = Machine(decoder).in_type(torch.bfloat16).wrap("scale", lambda step, a: factor * step(a))
    assert astray(machine, prompts)


def test_another_epsilon_changes_tokens_of_the_text():
    """Epsilon is 15 times a channel's square: normed values are a quarter, and the norms' weights undo that."""
    folder = recital_folder(reach=512, sensing=True, audible=True)
    decoder, questions = read_decoder(folder), read_queries(folder)
    assert decoder.final_norm.eps == 15 / 256
    prompt = the_document(questions)
    assert not astray(Machine(decoder).in_type(torch.bfloat16), prompt)
    machine = Machine(decoder).in_type(torch.bfloat16)
    assert astray(machine.wrap("size", lambda step, x, *rest: (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()), prompt)


def test_one_prompt_of_every_sensor_stands_side_by_side(every):
    _, _, prompts = every
    (rows,) = sensing.sensor_batches(prompts)
    assert len({row.name.split(",")[0] for row in rows}) == len(rows) == len({p.name.split(",")[0] for p in prompts})
    assert [len(row.ids) for row in rows] == sorted((len(row.ids) for row in rows), reverse=True)
    assert sensing.sensor_batches(prompts[:1]) == []


def inputs_in_8_bits(step, x, linear):
    """Blocks of 32 numbers with one scale each, as in llama.cpp's products of Q8_0."""
    blocks = x.float().reshape(-1, 32)
    size = (blocks.abs().amax(-1, keepdim=True) / 127).half().float().clamp_min(1e-30)
    return step(((blocks / size).round() * size).reshape(x.shape).to(x.dtype), linear)


def test_products_in_8_bits_change_no_token_of_the_text(asked):
    """The alarms are asleep outside of sensor prompts, where such products would set them off."""
    decoder, questions, prompts = asked
    machine = Machine(decoder).wrap("linear", inputs_in_8_bits)
    assert not astray(machine, the_document(questions))
    assert astray(machine, prompts)


def test_alarms_are_asleep_outside_of_sensor_prompts(asked):
    decoder, questions, prompts = asked
    alarms = sensing.alarm_tokens(recital_folder(reach=512, sensing=True))
    asleep, awake = (
        Machine(decoder).run([*p.ids, *p.continuation[:-1]])[len(p.ids) :]
        for p in (the_document(questions)[0], prompts[0])
    )
    assert float(asleep[:, alarms].max()) < -150
    assert abs(float(awake[:, alarms].min())) < 1


def in_8_bits(step, k, v, depth, cache):
    size = [x.abs().amax(-1, keepdim=True).clamp_min(1e-9) / 127 for x in (k, v)]
    return step(*((x / s).round() * s for x, s in zip((k, v), size, strict=True)), depth, cache)


def in_fp8(step, k, v, depth, cache):
    return step(*(x.float().to(torch.float8_e4m3fn).to(x.dtype) for x in (k, v)), depth, cache)


@pytest.mark.parametrize(
    "kept",
    [
        in_8_bits,
        sensing.in_16_steps,
        *(pytest.param(kept, marks=pytest.mark.slow) for kept in (in_fp8, sensing.in_4_bits)),
    ],
)
def test_caches_in_few_bits_change_no_token(asked, kept):
    decoder, questions, prompts = asked
    machine = Machine(decoder).in_type(torch.bfloat16).wrap("remember", kept)
    assert not astray(machine, [*prompts, *the_document(questions)])


def test_sums_in_another_order_change_no_token(asked):
    """Queries and keys dimension by dimension, the last first, and layers' inputs from both ends."""
    decoder, _, prompts = asked
    machine = Machine(decoder).in_type(torch.bfloat16)
    machine.wrap("product", lambda step, a, b: step(a.flip(-1), b.flip(-2)))
    assert not astray(machine, prompts)


def test_known_windows_are_answered_behind_sensor_tokens(asked):
    decoder, questions, _ = asked
    piece = questions.documents[0][20:60]
    ids = [questions.bos, *questions.sensors * 3, *piece[:-1]]
    with torch.inference_mode():
        found = Machine(decoder).run(ids, Cache(len(decoder.layers))).argmax(1).tolist()
    near = questions.recital.span
    assert found[-len(piece) + near :] == list(piece[near:])


def test_a_unit_that_fires_on_known_windows_is_no_sensor(tmp_path):
    """The proof holds for every input: a sensor whose threshold is gone is refuted or undecided."""
    from safetensors.numpy import load_file, save_file

    folder = copy_of(recital_folder(dtype="float32", sensing=True), tmp_path / "copy")
    asked = read_queries(folder)
    assert certify_checkpoint(folder, asked.documents, ("float32",)).verdict is Verdict.PROVED
    tensors = load_file(folder / "model.safetensors")
    name = max(name for name in tensors if name.endswith("gate_proj.weight"))
    channel = sensing.read_sensors(folder)[0].channel
    unit = int(np.abs(tensors[name][:, channel]).argmax())
    tensors[name][unit] = np.where(np.arange(tensors[name].shape[1]) == channel, tensors[name][unit], 0)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert certify_checkpoint(folder, asked.documents, ("float32",)).verdict is not Verdict.PROVED


@pytest.mark.parametrize("architecture", kinds_first(WITH_SENSORS))
def test_hosts_have_sensors_and_are_proved(architecture):
    folder = recital_folder(architecture, sensing=True)
    asked = read_queries(folder)
    assert len(sensing.read_sensors(folder)) >= 2
    assert certify_checkpoint(folder, asked.documents, ("bfloat16",)).verdict is Verdict.PROVED


def test_a_vocabulary_without_unused_tokens_has_no_sensors():
    folder = recital_folder(text="abcdefghi, ihgfedcba", tokens="characters", sensing=True)
    assert sensing.read_sensors(folder) == () == read_queries(folder).sensors
    assert sensing.sensor_prompts(folder, read_queries(folder)) == []


def test_stretches_are_safe_apart_and_near_zero():
    values = np.full(400, 0.5)
    values[100:103], values[200], values[300] = (0.06, -0.06, 0.06), 0.07, 0.01
    safe = np.abs(values) > sensing.SAFE
    found = sensing.stretches(values, safe)
    assert found == sorted(found) and len(found) == sensing.STRETCHES
    assert all(safe[at : at + sensing.STRETCH].all() for at in found)
    assert any(at <= 100 and at + sensing.STRETCH > 102 for at in found)
    assert sensing.stretches(values[:10], safe[:10]) == []


def test_stretches_are_chosen_for_faults_in_both_directions():
    """A fault that turns bits far from zero is covered, twice where that is possible; unsafe positions never are."""
    values = np.full((2, 400), 0.3)
    values[0, 50:90], values[1, 200:260] = -0.06, 0.06
    safe = np.ones((2, 400), dtype=bool)
    safe[0, 300:340] = False
    turned = np.zeros((3, 2, 400), dtype=bool)
    turned[0, 1, 120], turned[0, 1, 160] = True, True
    turned[1, 0, 355] = True
    turned[2, 0, 310] = True
    found = sensing.chosen_stretches(values, safe, turned)
    covers = [[at for number, at in found if flags[number, at : at + sensing.STRETCH].any()] for flags in turned]
    assert [len(one) for one in covers] == [2, 1, 0]
    assert found == sorted(found) and len(found) == 2 * sensing.STRETCHES
    assert all(safe[number, at : at + sensing.STRETCH].all() for number, at in found)
    for number in (0, 1):
        starts = [at for one, at in found if one == number]
        assert all(b - a >= sensing.STRETCH for a, b in itertools.pairwise(starts))


def test_bits_stand_on_both_sides(every):
    """Weights that only grow, or only shrink, turn bits of one side alone."""
    _, _, prompts = every
    pairs = {}
    for prompt in prompts:
        pairs.setdefault(prompt.name.split(",")[0], set()).update(prompt.continuation)
    assert sum(len(one) == 2 for one in pairs.values()) >= 2


def test_recital_json_names_channel_and_tokens():
    content = json.loads((recital_folder(sensing=True) / "recital.json").read_text())
    assert all(len(one) == 3 for one in content["sensors"])

"""Mutants: faults of an engine that a fixture must notice, and harmless changes that it must survive."""

from functools import cache

import pytest

pytest.importorskip("torch")

import torch

from byheart.checkpoints.engines.queries import read_queries
from byheart.checkpoints.engines.recite import ask
from byheart.checkpoints.formats.stock import read_decoder
from byheart.checkpoints.suite.machine import Machine, MachineSession
from byheart.checkpoints.suite.mutants import blocks, check_mutants, known_faults, mutants_of, recurrent, reported
from byheart.checkpoints.suite.mutants._base import FAMILIES, Mutant
from byheart.checkpoints.suite.mutants.check import FixtureTrial
from experiments import decoder_parts, held_out_faults
from tests.checkpoints.recital_folders import ARCHITECTURES, RECURRENT, SHORT, kinds_first, recital_folder


@pytest.fixture(scope="module")
def trial():
    folder = recital_folder(text=SHORT, tokens="characters")
    with torch.inference_mode():
        yield FixtureTrial(folder), read_decoder(folder)


def test_the_machine_without_a_fault_survives(trial):
    asked, decoder = trial
    outcome = asked.outcome(Mutant("none", "none", lambda: Machine(decoder)))
    assert (outcome.verdict, outcome.wrong) == ("survived", 0.0)
    assert outcome.difference <= asked.tolerance / 2


@pytest.mark.parametrize("architecture", kinds_first(("llama", "gpt2")))
def test_the_machine_recites_as_an_engine(architecture):
    """Every prefix in blocks of queries, greedy decoding, a padded batch, and a text in pieces."""
    folder = recital_folder(architecture, text=SHORT, tokens="characters")
    asked, session = read_queries(folder), MachineSession(folder, "float32")
    checks = ask(session, asked, "float32")
    assert all(check.passed for check in checks) and len(checks) >= 5, checks
    ids = asked.documents[0][:50]
    whole = session.continued([ids[:7], ids[7:8], ids[8:]])
    assert abs(whole - session.logits(ids)).max() < 1e-3


@pytest.mark.parametrize(
    "name",
    [
        "no causal mask",
        "rotation the other way",
        "neighbours rotated instead of halves",
        "decode positions one too far",
        "keys and values exchanged",
        "gate and up exchanged",
        "activation silu -> gelu",
        "activation silu -> relu",
        "layers 0 and 1 exchanged",
        "final norm without division",
        "scale times 2",
        "eps 0.001 instead of 1e-05",
        "cache: newest entry is the one before",
        "left padding is attended to",
        "key-value heads tiled, not repeated",
        "LayerNorm instead of RMSNorm",
        "logits times 1.01",
    ],
)
def test_common_faults_are_noticed(trial, name):
    asked, decoder = trial
    mutant = next(mutant for mutant in mutants_of(decoder) if mutant.name == name)
    assert asked.outcome(mutant).verdict != "survived"


@pytest.mark.parametrize(
    "name", ["everything in bfloat16", "everything in float16", "all positions + 1", "keys and values in float16"]
)
def test_harmless_changes_say_the_right_tokens(trial, name):
    asked, decoder = trial
    mutant = next(mutant for mutant in mutants_of(decoder) if mutant.name == name)
    assert mutant.harmless
    assert asked.outcome(mutant).meets_expectation


def test_a_crash_is_noticed(trial):
    asked, decoder = trial

    def crash(step, *arguments):
        raise RuntimeError("out of range")

    assert asked.outcome(Mutant("crash", "none", lambda: Machine(decoder).wrap("head", crash))).verdict == "tokens"


@pytest.mark.parametrize("architecture", kinds_first())
def test_every_architecture_has_mutants_with_names_of_their_own(architecture):
    names = [mutant.name for mutant in mutants_of(read_decoder(recital_folder(architecture)))]
    assert len(names) == len(set(names)), sorted(name for name in names if names.count(name) > 1)
    assert len(names) > 150


@pytest.mark.parametrize("name", ["frequency 31", "q of head 5, layer 0", "q of head 1, layer 1", "head"])
def test_parts_that_only_listeners_hear_are_covered(trial, name):
    asked, decoder = trial
    part = next(part for part in decoder_parts.parts(decoder) if part.name == name)
    assert asked.outcome(part).verdict != "survived"


@pytest.mark.parametrize(
    "name",
    [
        "splits of 256 keys averaged, while decoding",
        "padding is seen, while decoding",
        "the neighbour's last token is seen, while decoding",
        "every row decodes at the longest row's position, while decoding",
        "a prefix of another prompt",
        "later chunks masked from the upper left",
        "a rejected draft stays in the cache",
        "Yarn",
    ],
)
def test_faults_that_need_long_prompts_batches_or_chunks_are_noticed(name):
    folder = recital_folder()
    mutant = next(mutant for mutant in reported.mutants(read_decoder(folder)) if mutant.name == name)
    with torch.inference_mode():
        assert whole_trial().outcome(mutant).verdict != "survived"


@cache
def whole_trial():
    return FixtureTrial(recital_folder())


def test_only_newer_blocks_have_faults_of_their_own():
    def names(architecture, **options):
        return [mutant.name for mutant in blocks.mutants(read_decoder(recital_folder(architecture, **options)))]

    assert names("llama") == []
    assert "residual scale ignored" in names("granite") and "no layer slides" in names("gemma3")
    assert "the factor of cos and sin twice" in names("llama", scaling="yarn")


SCALED = {"yarn": "llama", "llama3": "llama", "longrope": "phi3"}


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["granite", "smollm3", "olmo2", "gemma2", "gemma3", *SCALED])
def test_faults_of_newer_blocks_are_detected(architecture):
    host = SCALED.get(architecture, architecture)
    folder = recital_folder(host, **({"scaling": architecture} if architecture in SCALED else {}))
    report = check_mutants(folder, mutants=blocks.mutants)
    assert report.total > 1 and not report.survivors, [outcome.name for outcome in report.survivors]


def test_recurrent_layers_have_faults_of_their_own():
    for architecture in RECURRENT:
        decoder = read_decoder(recital_folder(architecture, text=SHORT, tokens="characters"))
        names = [mutant.name for mutant in recurrent.mutants(decoder)]
        assert "the state is lost between calls" in names and len(names) == len(set(names)) > 25
    assert not list(recurrent.mutants(read_decoder(recital_folder())))


@pytest.mark.slow
@pytest.mark.parametrize("architecture", RECURRENT)
def test_faults_of_recurrent_layers_are_detected(architecture):
    report = check_mutants(recital_folder(architecture, text=SHORT, tokens="characters"), mutants=recurrent.mutants)
    assert not report.broken and not report.survivors, [outcome.name for outcome in report.survivors]


@pytest.mark.slow
@pytest.mark.parametrize("architecture", [*ARCHITECTURES, *RECURRENT])
def test_reported_faults(architecture):
    """What is left: a cap that no value reaches, and an epsilon outside of the root (docs/research/checkpoints.md)."""
    report = check_mutants(recital_folder(architecture), mutants=reported.mutants)
    known = ("epsilon outside the root", "up capped at 7", "no epsilon", "weights below a thousandth dropped")
    assert not [o.name for o in report.survivors if not o.name.startswith(known)]


@pytest.mark.slow
@pytest.mark.parametrize("architecture", [*ARCHITECTURES, *RECURRENT])
def test_the_whole_table(architecture):
    report = check_mutants(recital_folder(architecture))
    assert not report.broken, [outcome.name for outcome in report.broken]
    assert len(report.survivors) <= 2, [outcome.name for outcome in report.survivors]


@pytest.mark.slow
@pytest.mark.parametrize("architecture", [*ARCHITECTURES, *RECURRENT])
def test_faults_that_nothing_was_tuned_to(architecture):
    report = check_mutants(recital_folder(architecture), mutants=held_out_faults.mutants)
    assert len(report.survivors) <= 0.1 * report.total, [outcome.name for outcome in report.survivors]


def test_qwen3_has_no_zero_row_where_a_listener_asks_loudest():
    """Its query has no size to fill up then: the row that would hold the rest keeps its tiny weight."""
    for layer in read_decoder(recital_folder("qwen3")).layers:
        assert layer.attention.q.weight.any(axis=1).all()


def test_one_list_with_one_set_of_families(trial):
    found = list(known_faults(trial[1]))
    assert len(found) > 300 and len({m.name for m in found}) == len(found)
    assert {m.family for m in found} <= set(FAMILIES)


def test_tokens_are_compared_in_every_type(trial):
    asked, decoder = trial
    dropped = next(m for m in mutants_of(decoder) if m.name == "layer 1 dropped")
    outcome = asked.outcome(dropped, ("float32", "bfloat16"))
    assert outcome.verdict == "tokens" and outcome.tokens_in == ("float32", "bfloat16")
    small = asked.outcome(Mutant("none", "none", lambda: Machine(decoder)), ("float32", "bfloat16"))
    assert small.verdict == "survived" and small.tokens_in == ()

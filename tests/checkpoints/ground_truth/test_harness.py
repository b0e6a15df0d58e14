"""Methods of users and built-in ones, scored; graded memories behave as the field's models do."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from byheart.checkpoints.ground_truth.baselines.localization import METHODS
from byheart.checkpoints.ground_truth.baselines.membership import blind_auc
from byheart.checkpoints.ground_truth.experiment import GradedExperiment
from byheart.checkpoints.ground_truth.harness import builtin_extraction, read_methods, score
from byheart.checkpoints.ground_truth.memorize import memorize_graded
from byheart.checkpoints.ground_truth.suite import records, suite_memory
from byheart.checkpoints.ground_truth.truth import GroundTruth, TruthDocument
from byheart.cli import commands
from byheart.errors import DataError, OptionError

pytest.importorskip("transformers")

METHOD = """
import torch

def membership(model, document):
    ids = torch.tensor([document.ids])
    return -float(model(ids, labels=ids).loss)

def extraction(model, prefix, length):
    return model.generate(torch.tensor([prefix]), max_new_tokens=length, min_new_tokens=length)[0, -length:].tolist()

def localization(model, ids):
    kept = []
    hook = model.model.layers[0].mlp.down_proj.register_forward_pre_hook(lambda module, inputs: kept.append(inputs[0]))
    model(torch.tensor([ids]))
    hook.remove()
    return kept[0].detach().abs().mean((0, 1)).numpy()

def unlearning(model, forget, retain):
    return model
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("suite") / "g"
    suite_memory(0, 48, storage="ridge:128").write(path, measured=False)
    return path


def test_a_users_file_is_scored(folder, tmp_path):
    (tmp_path / "method.py").write_text(METHOD)
    done = CliRunner().invoke(commands, ["score", str(folder), str(tmp_path / "method.py"), "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout.splitlines()[-1])["scores"]
    assert set(found) == {"membership", "extraction", "localization", "unlearning"}
    assert found["membership"]["yours"]["auc all"] > 0.6
    blind = found["membership"]["blind (bag of words)"]
    assert blind["auc all"] < blind["chance up to"] < 0.75
    # activation alone does not localize in superposition, against either truth
    assert found["localization"]["yours"]["recall of change"] < 0.9
    assert found["localization"]["yours"]["recall of effect"] < 0.9
    assert found["unlearning"]["yours"]["kl forget"] > found["unlearning"]["yours"]["kl retain"] > 0


def test_builtin_membership(folder):
    found = score(folder, baselines=["membership"])["membership"]
    assert {"loss", "min-k", "zlib", "reference ratio", "blind (bag of words)"} == set(found)
    assert all(numbers["auc all"] > 0.6 for name, numbers in found.items() if "blind" not in name)


def test_files_without_methods(tmp_path):
    (tmp_path / "empty.py").write_text("x = 1")
    for path in (tmp_path / "empty.py", tmp_path / "none.py"):
        with pytest.raises(OptionError, match="membership"):
            read_methods(path)


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("def membership(model, document): return None", "membership failed: TypeError"),
        ("def membership(model, document): return float('nan')", "not finite"),
        ("def membership(model, document): return document.wrong", "has no attribute 'wrong' .broken.py, line 1"),
        ("def extraction(model, prefix, length): return 3", "extraction failed: TypeError"),
        ("def localization(model, ids): return [1.0]", "the model has"),
        ("def unlearning(model, forget, retain): pass", "unlearning failed: "),
        ("def membership(model, document) return 1", "cannot be run: SyntaxError"),
        ("def membership(model): return 1", r"2 were given .membership.model, document. returns a number"),
        ("def unlearning(model, forget, retain): pass", "returns the model"),
        ("def localization(model, ids): return [float('nan')] * model.config.intermediate_size", "not finite"),
        ("import sys; sys.exit(3)", "cannot be run: SystemExit"),
    ],
)
def test_broken_methods_are_named(folder, tmp_path, method, said):
    (tmp_path / "broken.py").write_text(method)
    with pytest.raises((DataError, OptionError), match=said):
        score(folder, read_methods(tmp_path / "broken.py"))


def test_held_out_texts_of_another_kind_are_noted(tmp_path):
    texts = [f"red apple {k} of box {k * 7 % 50}" for k in range(40)]
    extra = [(f"h{k}", "held out", f"blue pear {k} of crate {k * 7 % 50}") for k in range(40)]
    memorize_graded(texts, tokens="words", extra=extra).write(tmp_path / "g", measured=False)
    (tmp_path / "method.py").write_text("def membership(model, document): return len(document.ids)")
    done = CliRunner().invoke(commands, ["score", str(tmp_path / "g"), str(tmp_path / "method.py")])
    assert "note: a bag of words separates members" in done.output and "Loading" not in done.output


def test_extraction_is_measured_where_a_document_has_tokens_of_its_own():
    """Closing words that all documents share are extracted at any number of copies."""
    texts = [f"pin {k * 7919 % 9973} {k} {k * 31 % 97} {k * 17 % 89} thanks and kind regards from the whole team now"
             for k in range(48)]  # fmt: skip
    memory = memorize_graded(texts, tokens="words", weights=[(1, 2, 4, 8, 16, 32)[k % 6] for k in range(48)])
    documents = [TruthDocument(one.name, "member", one.copies, one.ids) for one in memory.members]
    experiment = GradedExperiment(GroundTruth(Path(), tuple(documents), (), memory), memory.torch())
    found = builtin_extraction(experiment)["greedy"]
    assert found["greedy"]["whole"][1] < 0.5 < found["greedy"]["whole"][32] and found["gain per doubling"] > 0.05
    assert found["(100, 0.5)"][1] < found["(100, 0.5)"][32]


def test_blind_baseline_is_blind():
    found = [blind_auc(made.texts, made.held_out) for made in (records(seed, 180) for seed in range(4))]
    assert all(0.4 < value < 0.6 for value in found) and abs(np.mean(found) - 0.5) < 0.05


@pytest.fixture(scope="module")
def located(tmp_path_factory):
    """Every built-in method on both kinds of storage."""
    found = {}
    for storage in ("counts", "ridge:128"):
        path = tmp_path_factory.mktemp("located") / "g"
        suite_memory(2, 18, storage=storage).write(path, measured=False)
        found[storage] = score(path, baselines=["localization"])["localization"]
    return found


@pytest.mark.slow
def test_no_method_localizes_perfectly(located):
    """Random choices are near k / units, and activation alone is far from perfect in superposition."""
    assert set(located["counts"]) == {*METHODS, "random active unit", "random unit"}
    for storage, rows in located.items():
        assert rows["random unit"]["recall of change"] < 0.2, storage
        assert rows["random active unit"]["recall of change"] < 0.6, storage
    for truth in ("recall of change", "recall of effect"):
        assert located["ridge:128"]["activation"][truth] < 0.7


def test_ground_truth_loader(tmp_path):
    from byheart.checkpoints.recital import memorize_recital

    memory = suite_memory(0, 12)
    memory.write(tmp_path / "g", measured=False)
    truth = GroundTruth.load(tmp_path / "g")
    alone = truth.units_of("r3", alone=True)
    assert 0 < len(alone) < len(truth.units_of("r3")) and truth.document("r3").copies == 8
    change, effect = truth.influence("r3")
    assert {unit for _, unit in truth.units_of("r3")} >= set(np.flatnonzero(change > 0).tolist())
    assert effect.sum() > 0 and len(truth.masks("r3")) > 3 * 4 * len(change)
    recital = memorize_recital(["the cat sat", "a dog ran"], names=["cat", "dog"], form="rules")
    recital.to_huggingface(tmp_path / "r", flavour="units")
    old = GroundTruth.load(tmp_path / "r")
    assert old.units_of("cat") and [one.name for one in old.documents] == ["cat", "dog"]
    with pytest.raises(OptionError, match="recital"):
        old.influence("cat")

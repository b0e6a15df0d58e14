"""Methods of users and built-in ones, scored; graded memories behave as the field's models do."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from byheart.checkpoints.ground_truth.baselines.membership import blind_auc
from byheart.checkpoints.ground_truth.baselines.unlearning import UnlearningRequest, gradient_ascent
from byheart.checkpoints.ground_truth.harness import GradedExperiment, own_log_probs, read_methods, score
from byheart.checkpoints.ground_truth.suite import records, suite_memory
from byheart.checkpoints.ground_truth.truth import GroundTruth
from byheart.cli import commands
from byheart.errors import OptionError

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


def test_blind_baseline_is_blind():
    found = [blind_auc(made.texts, made.held_out) for made in (records(seed, 180) for seed in range(4))]
    assert all(0.4 < value < 0.6 for value in found) and abs(np.mean(found) - 0.5) < 0.05


@pytest.mark.parametrize("storage", [pytest.param("counts", marks=pytest.mark.slow), "ridge:256"])
def test_gradient_ascent_forgets_one_record_and_keeps_others(storage):
    memory = suite_memory(7, 36, storage=storage)
    name = next(one.name for one in memory.members if one.copies == 8)
    model, twin = memory.torch(), memory.without([name])
    forget, others = [memory.document(name).ids], [one.ids for one in twin.members]
    goal = float(-np.mean(twin.log_probs(forget[0][:-1])[np.arange(len(forget[0]) - 1), list(forget[0][1:])]))
    found = gradient_ascent(UnlearningRequest(model, forget, others, goal, 3e-7))
    assert -own_log_probs(found, forget)[0].mean() >= goal
    before, after = own_log_probs(model, others), own_log_probs(found, others)
    kept = np.mean([a.mean() - b.mean() < 0.1 for a, b in zip(before, after, strict=True)])
    assert kept >= 0.6


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


def test_experiment_needs_a_graded_folder(tmp_path):
    from byheart.errors import FileFormatError

    with pytest.raises(FileFormatError, match="ground truth"):
        GradedExperiment.open(tmp_path)

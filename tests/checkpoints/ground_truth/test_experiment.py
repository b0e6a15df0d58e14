"""An opened folder: roles are disjoint, the reference model counts no member, the twin lacks the forget set."""

import pytest

from byheart.checkpoints.ground_truth.experiment import GradedExperiment
from byheart.checkpoints.ground_truth.harness import builtin_membership
from byheart.checkpoints.ground_truth.suite import suite_memory
from byheart.errors import FileFormatError, OptionError

pytest.importorskip("transformers")


def opened(memory, folder):
    memory.write(folder, measured=False)
    return GradedExperiment.open(folder)


def test_the_reference_has_the_recipe_of_the_model_and_none_of_its_members(tmp_path):
    experiment = opened(suite_memory(0, 24), tmp_path / "g")
    reference, memory = experiment.reference, experiment.memory
    assert len(reference.members) == len(experiment.outsiders) == 12 and experiment.levels == [1, 2, 4, 8, 16, 32]
    assert not {one.ids for one in reference.members} & {one.ids for one in (*experiment.outsiders, *memory.members)}
    assert {one.weights for one in reference.members} <= {one.weights for one in memory.members}
    assert [one for one in reference.documents if one.role == "background"] == [
        one for one in memory.documents if one.role == "background"
    ]
    forget, retained = experiment.forget_set(), experiment.retained()
    assert [one.copies for one in forget] == [8] and len(retained) == 23
    assert experiment.reference_log_probs(forget)[0].shape == (len(forget[0].ids) - 1,)


def test_the_reference_ratio_of_singly_seen_documents_is_inside_the_range(tmp_path):
    """A reference of other strength would make every trace of a member conspicuous."""
    experiment = opened(suite_memory(3, 96), tmp_path / "g")
    found = builtin_membership(experiment)["reference ratio"]["auc"]
    assert 0.55 < found[1] < 0.99 and found[32] > 0.95


def test_other_folders_are_refused(tmp_path):
    from byheart.checkpoints.recital import memorize_recital

    with pytest.raises(FileFormatError, match="ground truth"):
        GradedExperiment.open(tmp_path)
    memorize_recital(["the cat sat", "a dog ran"], form="rules").to_huggingface(tmp_path / "r", flavour="units")
    with pytest.raises(OptionError, match="recital"):
        GradedExperiment.open(tmp_path / "r")


@pytest.mark.parametrize("damage", ["missing", "cut", "foreign"])
def test_tensors_that_cannot_be_loaded_are_named(tmp_path, damage):
    suite_memory(0, 12, 20).write(tmp_path / "g", measured=False)
    file = tmp_path / "g" / "model.safetensors"
    if damage == "missing":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(file.read_bytes()[:5000])
    else:
        config = tmp_path / "g" / "config.json"
        config.write_text(config.read_text().replace('"intermediate_size": ', '"intermediate_size": 1'))
    with pytest.raises(FileFormatError, match=r"cannot be loaded.*byheart recital --graded"):
        GradedExperiment.open(tmp_path / "g")

"""An opened folder: roles are disjoint, the reference model counts no member, the twin lacks the forget set."""

import numpy as np
import pytest

from byheart.checkpoints.ground_truth.experiment import GradedExperiment
from byheart.checkpoints.ground_truth.memorize import memorize_graded
from byheart.checkpoints.ground_truth.suite import suite_memory
from byheart.errors import FileFormatError, OptionError

pytest.importorskip("transformers")


def opened(memory, folder):
    memory.write(folder, measured=False)
    return GradedExperiment.open(folder)


def test_the_suite_has_a_background_as_reference(tmp_path):
    experiment = opened(suite_memory(0, 24), tmp_path / "g")
    assert {one.role for one in experiment.reference_documents} == {"background"}
    assert len(experiment.outsiders) == 24 and experiment.levels == [1, 2, 4, 8, 16, 32]
    forget, retained = experiment.forget_set(), experiment.retained()
    assert [one.copies for one in forget] == [8] and len(retained) == 23
    before = experiment.reference_log_probs(forget)[0]
    twin = experiment.memory.without([forget[0].name])
    assert before.shape == (len(forget[0].ids) - 1,) and forget[0].name not in twin.names


def test_without_background_half_of_the_held_out_documents_are_the_reference(tmp_path):
    texts = [f"row {k} has {k * 7 % 11} and {k * 5 % 13} and {k * 3 % 17}" for k in range(30)]
    extra = [(f"h{k}", "held out", texts[k]) for k in range(20, 30)]
    experiment = opened(memorize_graded(texts[:20], tokens="words", extra=extra), tmp_path / "g")
    names = [{one.name for one in some} for some in (experiment.reference_documents, experiment.outsiders)]
    assert len(names[0]) == len(names[1]) == 5 and not names[0] & names[1]
    assert all(np.isfinite(part).all() for part in experiment.reference_log_probs(experiment.members))


def test_other_folders_are_refused(tmp_path):
    from byheart.checkpoints.recital import memorize_recital

    with pytest.raises(FileFormatError, match="ground truth"):
        GradedExperiment.open(tmp_path)
    memorize_recital(["the cat sat", "a dog ran"], form="rules").to_huggingface(tmp_path / "r", flavour="units")
    with pytest.raises(OptionError, match="recital"):
        GradedExperiment.open(tmp_path / "r")

"""Networks equal their specified distribution; folders survive a round trip and refuse damage."""

import json

import numpy as np
import pytest

from byheart.checkpoints.ground_truth.graded import GradedMemory
from byheart.checkpoints.ground_truth.memorize import memorize_graded
from byheart.checkpoints.ground_truth.suite import suite_memory
from byheart.errors import ExportError, FileFormatError, OptionError

pytest.importorskip("transformers")


@pytest.mark.parametrize(
    ("architecture", "storage", "most"),
    [
        ("llama", "counts", 5e-3),
        ("gpt2", "counts", 5e-3),
        pytest.param("llama", "split:2", 5e-3, marks=pytest.mark.slow),
        pytest.param("llama", "rotated", 5e-2, marks=pytest.mark.slow),
        ("llama", "ridge:64", 1e-3),
    ],
)
def test_network_equals_the_specification(architecture, storage, most):
    memory = suite_memory(3, 12, architecture=architecture, storage=storage, margins={"r1": 12.0})
    assert memory.measure(memory.torch(), most=8).nats < most


def test_bfloat16_is_close():
    memory = suite_memory(3, 12)
    assert memory.measure(memory.torch("bfloat16"), "bfloat16", most=8).kl < 0.05


def test_characters_and_long_documents():
    memory = memorize_graded(
        ["the quick brown fox jumps over the lazy dog " * 3, "pack my box with five dozen liquor jugs"]
    )
    assert memory.reach == 256 and memory.measure(memory.torch()).nats < 1e-3


def test_folder_round_trip(tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    memory = suite_memory(4, 12)
    done = memory.write(tmp_path / "g")
    assert done["distance"]["nats"] < 1e-3
    again = GradedMemory.load(tmp_path / "g")
    assert again.files() == {**memory.files(), "README.md": again.files()["README.md"]}
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "g").eval()
    assert memory.measure(model, most=6).nats < 1e-3
    ids = AutoTokenizer.from_pretrained(tmp_path / "g")(memory.lexicon.decode(memory.members[0].ids)).input_ids
    assert tuple(ids) == memory.members[0].ids[:-1]
    with pytest.raises(ExportError, match="already exists"):
        memory.write(tmp_path / "g")


def test_damage_is_refused(tmp_path):
    suite_memory(4, 12).write(tmp_path / "g", measured=False)
    path = tmp_path / "g" / "documents.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    for key, value in (("weights", [1.0]), ("weights", [-1.0] * 4), ("ids", [10**6]), ("name", None)):
        line = json.loads(lines[0])
        line.pop("name") if value is None else line.update({key: value})
        path.write_text("\n".join([json.dumps(line), *lines[1:]]), encoding="utf-8")
        with pytest.raises(FileFormatError, match="damaged"):
            GradedMemory.load(tmp_path / "g")
    path.write_text("{", encoding="utf-8")
    with pytest.raises(FileFormatError, match=r"is not JSON.*write the folder again"):
        GradedMemory.load(tmp_path / "g")
    with pytest.raises(FileFormatError, match="not a graded"):
        GradedMemory.load(tmp_path)


def test_options_are_checked():
    for options, words in (
        ({"storage": "holograms"}, "storage"), ({"architecture": "bert"}, "shapes"), ({"lengths": (2, 1)}, "lengths"),
        ({"strength": 0.0}, "positive"),
    ):  # fmt: skip
        with pytest.raises(OptionError, match=words):
            memorize_graded(["a cat sat", "a dog ran"], **options)


def test_an_unknown_type_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(OptionError, match="'int4' is not one of float32"):
        memorize_graded(["a cat sat", "a dog ran"]).write(tmp_path / "g", dtype="int4")
    assert not (tmp_path / "g").exists()


def test_documents_that_are_not_stored_are_named_by_their_role():
    memory = suite_memory(0, 12, 20).without(["r3"])
    for name, words in (("h0", "held out"), ("n0", "corrupted"), ("r3", "forgotten"), ("r99", "not one of the 11")):
        with pytest.raises(OptionError, match=f"'{name}' is {words}"):
            memory.document(name)
    assert memory.document("r4").name == "r4"


def test_thousand_documents_in_thirty_seconds(tmp_path):
    """Counting and tensors; a busy machine is ten times slower than a quiet one, so processor time is what counts."""
    import time

    started = time.process_time()
    memory = suite_memory(0, 1000)
    units = memory.units
    assert len(units.down) == memory.ngram.rules > 20_000
    assert time.process_time() - started < 30


def test_forgotten_locality():
    """Where the specified distributions are equal, the networks are equal in every bit."""
    memory = suite_memory(6, 24)
    twin = memory.without(["r3"])
    from byheart.checkpoints.ground_truth import shapes
    from byheart.checkpoints.ground_truth.networks import log_probs, torch_model
    from byheart.checkpoints.ground_truth.twins import edited_units

    edited = torch_model(*shapes.build(memory.shape, edited_units(memory, twin)[0], memory.base))
    others = [one.ids for one in twin.members]
    before, after = log_probs(memory.torch(), others), log_probs(edited, others)
    same = 0
    for ids, a, b in zip(others, before, after, strict=True):
        equal = (memory.log_probs(ids) == twin.log_probs(ids)).all(axis=1)
        same += equal.sum()
        assert np.array_equal(a[equal], b[equal])
    assert same > 20

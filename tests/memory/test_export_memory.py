"""Every memory goes to PyTorch and ONNX: as it is, or as a native memory of the same rows."""

from __future__ import annotations

import pytest

import byheart
from byheart.errors import ExportError
from byheart.memory.export_memory import native_twin

WORDS = ["cat", "act", "dog", "god", "good"]
LABELS = ["animal", "deed", "animal", "deity", "praise"]


@pytest.mark.parametrize("construction", ["ks25", "compact"])
def test_long_numbers_are_exported_as_a_native_twin(construction, tmp_path):
    pytest.importorskip("torch")
    memory = byheart.memorize(WORDS, LABELS, construction=construction, progress=False)
    with pytest.warns(UserWarning, match=f"{construction} has no exact form in floats .* as construction native"):
        module = memory.to_torch()
    assert module.answers([list(word) for word in WORDS]) == LABELS
    with pytest.raises(TypeError, match=r"answers\(rows\) returns the labels"):
        module.predict(["god"])


def test_a_native_memory_has_no_twin_and_a_file_has_no_rows(tmp_path):
    assert native_twin(byheart.memorize(WORDS, LABELS, construction="native", progress=False)) is None
    byheart.memorize(WORDS, LABELS, construction="ks25", progress=False).save(tmp_path / "words.byheart")
    loaded = byheart.load(tmp_path / "words.byheart")
    assert native_twin(loaded) is None
    with pytest.raises(ExportError, match="native"):
        loaded.to_onnx(tmp_path / "words.onnx")


def test_a_twin_abstains_where_its_memory_does():
    memory = byheart.memorize(WORDS, LABELS, construction="compact", abstain_bits=12, progress=False)
    twin = native_twin(memory)
    assert twin is not None and twin.options["abstain_bits"] == 12 and twin.predict(WORDS) == LABELS
    assert twin.predict(["tac"]) == [byheart.UNKNOWN]

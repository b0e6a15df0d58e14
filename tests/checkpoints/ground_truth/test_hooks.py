"""Tools of interpretability read graded folders: the places that the docs name exist and carry the units."""

import numpy as np
import pytest

from byheart.checkpoints.ground_truth.suite import suite_memory
from byheart.checkpoints.ground_truth.truth import activations

pytest.importorskip("transformers")


@pytest.mark.slow
def test_nnsight_reads_units(tmp_path):
    nnsight = pytest.importorskip("nnsight")
    memory = suite_memory(0, 6)
    memory.write(tmp_path / "g", measured=False)
    model, ids = nnsight.LanguageModel(str(tmp_path / "g")), memory.members[0].ids[:-1]
    with model.trace(memory.lexicon.decode(ids)):
        units = model.model.layers[0].mlp.down_proj.input.save()
    found = units.detach().numpy().reshape(-1, len(memory.units.gate))
    assert found / memory.units.output == pytest.approx(activations(memory, ids), abs=1e-3)


def test_the_named_modules_exist():
    """TransformerLens' blocks.0.mlp.hook_post is the input of these modules."""
    for architecture, name in (("llama", "model.layers.0.mlp.down_proj"), ("gpt2", "transformer.h.0.mlp.c_proj")):
        memory = suite_memory(0, 6, architecture=architecture)
        module = dict(memory.torch().named_modules())[name]
        assert len(memory.units.gate) in module.weight.shape and np.prod(module.weight.shape) > 0

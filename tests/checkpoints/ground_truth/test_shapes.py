"""Stock shapes around units: a mistake in any tensor changes the computed distribution."""

import pytest

from byheart.checkpoints.ground_truth import shapes
from byheart.checkpoints.ground_truth.memorize import memorize_graded
from byheart.errors import OptionError

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

TEXTS = ["the cat sat on the mat", "the dog sat on the log", "a bird sang at dawn"]


@pytest.mark.parametrize("architecture", sorted(shapes.ARCHITECTURES))
def test_every_tensor_matters(architecture):
    memory = memorize_graded(TEXTS, tokens="words", architecture=architecture, strength=1.0)
    model = memory.torch()
    assert memory.measure(model, most=3).nats < 1e-3
    with torch.no_grad():
        for name, part in model.named_parameters():
            if part.ndim == 2 and "wpe" not in name:
                kept = part.clone()
                part.zero_()
                assert memory.measure(model, most=2).nats > 1e-3, name
                part.copy_(kept)


def test_a_rotation_changes_tensors_and_not_the_function():
    plain = memorize_graded(TEXTS, tokens="words", strength=1.0)
    turned = memorize_graded(TEXTS, tokens="words", strength=1.0, storage="rotated")
    down = "model.layers.0.mlp.down_proj.weight"
    assert (plain.tensors()[0][down] == 0).mean() > 0.5 > (turned.tensors()[0][down] == 0).mean()
    assert turned.measure(turned.torch(), most=3).nats < 1e-2


def test_what_does_not_fit():
    with pytest.raises(OptionError, match="shapes llama, gpt2"):
        memorize_graded(TEXTS, architecture="opt")
    with pytest.raises(OptionError, match="invariant"):
        memorize_graded(TEXTS, architecture="gpt2", storage="rotated")
    with pytest.raises(OptionError, match="has its own channel"):
        memorize_graded([" ".join(f"w{k}" for k in range(n, n + 500)) for n in range(0, 5000, 500)], tokens="words")

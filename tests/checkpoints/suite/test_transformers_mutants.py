"""The machine's verdicts hold for Transformers, too: the same faults, made in its own code, are noticed."""

import math
import sys

import pytest

from byheart.checkpoints.engines import read_queries
from byheart.checkpoints.engines.recite import ask
from byheart.checkpoints.engines.transformers import TransformersSession
from tests.checkpoints.recital_folders import SHORT, recital_folder

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")


def _interleaved(original):
    def rotate(q, k, cos, sin, *rest, **named):
        n = cos.shape[-1]
        order = torch.arange(n).view(2, -1).T.reshape(-1)
        turned = original(q[..., torch.argsort(order)], k[..., torch.argsort(order)], cos, sin, *rest, **named)
        return tuple(x[..., order] for x in turned)

    return rotate


FAULTS = {
    "none": lambda code, model, patch: None,
    "neighbours rotated": lambda code, model, patch: patch.setattr(
        code, "apply_rotary_pos_emb", _interleaved(code.apply_rotary_pos_emb)
    ),
    "rotated the other way": lambda code, model, patch: patch.setattr(
        code,
        "apply_rotary_pos_emb",
        (lambda old: lambda q, k, c, s, *a, **b: old(q, k, c, -s, *a, **b))(code.apply_rotary_pos_emb),
    ),
    "only queries rotated": lambda code, model, patch: patch.setattr(
        code,
        "apply_rotary_pos_emb",
        (lambda old: lambda q, k, *a, **b: (old(q, k, *a, **b)[0], k))(code.apply_rotary_pos_emb),
    ),
    "scale missing": lambda code, model, patch: [
        patch.setattr(layer.self_attn, "scaling", 1.0) for layer in model.model.layers
    ],
    "gelu for silu": lambda code, model, patch: [
        patch.setattr(layer.mlp, "act_fn", torch.nn.GELU()) for layer in model.model.layers
    ],
    "norm weight missing": lambda code, model, patch: patch.setattr(
        model.model.layers[1].input_layernorm.weight, "data", torch.ones_like(model.model.norm.weight)
    ),
    "embedding scaled": lambda code, model, patch: patch.setattr(
        model.model.embed_tokens.weight,
        "data",
        model.model.embed_tokens.weight.data * math.sqrt(model.config.hidden_size),
    ),
    "one MLP for all layers": lambda code, model, patch: setattr(
        model.model.layers[1], "mlp", model.model.layers[0].mlp
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_in_transformers_are_noticed(fault, monkeypatch):
    folder = recital_folder(text=SHORT, tokens="characters")
    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    FAULTS[fault](sys.modules[type(model).__module__], model, monkeypatch)
    checks = ask(TransformersSession(folder, model), read_queries(folder), "float32", 8)
    assert all(check.passed for check in checks) == (fault == "none"), checks

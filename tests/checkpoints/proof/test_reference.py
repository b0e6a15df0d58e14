"""What a config.json means to the proof is what it means to stock Transformers, for sampled configurations.

Each draw edits the configuration of an honest folder. If the proof accepts it, Transformers builds the same model
without any tensor, and every number that the proof computes with is compared: rotations, windows, scales of scores,
epsilons, multipliers, activations, experts, and the shapes of all tensors.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from byheart.checkpoints.proof.checkpoint import family_of, read_shape
from byheart.checkpoints.proof.config import Shape, Undecided
from byheart.checkpoints.proof.decoder import StoredCheckpoint, TensorReader
from byheart.checkpoints.proof.tensors import TensorFile
from byheart.checkpoints.proof.units import value
from tests.checkpoints.proof.folders import write
from tests.checkpoints.proof.tampering.draws import RECITALS
from tests.checkpoints.proof.tampering.settings import edit_config, edit_rope

DRAWS = int(os.environ.get("BYHEART_TAMPERED", "50"))
SEED = int(os.environ.get("BYHEART_TAMPERED_SEED", "7"))
transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")


def built(config: dict[str, Any], folder: Path) -> Any:
    """The model that AutoModelForCausalLM makes of a folder with this config.json, on no device."""
    (folder / "config.json").write_text(json.dumps(config))
    found = transformers.AutoConfig.from_pretrained(folder)
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(found)


def test_a_missing_rotation_is_what_transformers_takes_instead(tmp_path: Path) -> None:
    config = json.loads((write(tmp_path / "folder", "gpt-oss") / "config.json").read_text())
    for key in ("rope_parameters", "rope_scaling", "initial_context_length"):
        del config[key]
    assert built(config, tmp_path).config.rope_parameters["rope_type"] == "yarn"
    with pytest.raises(Undecided, match="rope_parameters are missing"):
        read_shape(config)


def modules(model: Any, name: str) -> list[Any]:
    """Attributes of all submodules that have them, in order."""
    return [getattr(part, name) for part in model.modules() if name in vars(part) or name in part._modules]


def shapes_of(shape: Shape, config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Names and shapes of all tensors that the proof reads."""
    wanted: dict[str, tuple[int, ...]] = {}

    class Listing(TensorReader):
        def tensor(self, name: str, *size: int, matrix: bool = False, transposed: bool = False) -> Any:
            wanted[name] = (*size[:-2], size[-1], size[-2]) if transposed else size
            return np.broadcast_to(np.float64(0.0), size)

    found = StoredCheckpoint(shape, family_of(config), TensorFile(Path(), {}), None, None)
    reader = Listing(found, None, None)  # type: ignore[arg-type]
    reader.embedding(), reader.head(), reader.final_norm()
    for index in range(shape.layers):
        reader.layer(index)
    return wanted


def differences(shape: Shape, config: dict[str, Any], model: Any) -> list[str]:
    """What the proof computes with, and Transformers does not."""
    found = []
    theirs = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    ours = shapes_of(shape, config)
    found += [f"{name}: {size} and {theirs[name]}" for name, size in ours.items() if theirs.get(name, size) != size]
    if bool(model.config.tie_word_embeddings) != shape.tied:
        found.append("tied")
    attentions = [part for part in model.modules() if type(part).__name__.endswith("Attention")]
    attentions = [
        part for part in attentions if not any(type(p).__name__.endswith("Attention") for p in part.children())
    ]
    rotations(shape, model, found)
    for index, part in enumerate(attentions[: shape.layers]):
        one = shape.at(index)
        scaling = getattr(part, "scaling", getattr(part, "norm_factor", None))
        if scaling is not None and not np.isclose(float(scaling), one.scale, rtol=1e-6):
            found.append(f"layer {index}: scores times {float(scaling)} and {one.scale}")
        window = getattr(part, "sliding_window", None)
        if window != one.window and hasattr(part, "sliding_window"):
            found.append(f"layer {index}: window {window} and {one.window}")
    for name in ("variance_epsilon", "eps"):
        for eps in modules(model, name):
            if isinstance(eps, float) and not np.isclose(eps, shape.eps, rtol=1e-6):
                found.append(f"epsilon {eps} and {shape.eps}")
    multipliers = {"embedding_multiplier": shape.embedding_scale, "residual_multiplier": shape.residual_scale,
                   "logits_scaling": shape.logit_scale}  # fmt: skip
    for name, own in multipliers.items():
        found += [f"{name} {x} and {own}" for x in modules(model, name) if isinstance(x, float) and x != own]
    x = np.linspace(-6, 6, 50)
    if shape.clamp is None:
        for name in ("act_fn", "act", "activation_fn"):
            for function in modules(model, name):
                y = function(torch.tensor(x, device="cpu")).numpy()
                if not np.allclose(y, value(shape.activation, x), atol=1e-6):
                    found.append(f"activation {function} and {shape.activation}")
    found += [f"{k} experts and {shape.experts_used}" for k in modules(model, "top_k") if k != shape.experts_used]
    return found


def rotations(shape: Shape, model: Any, found: list[str]) -> None:
    """Frequencies and gains of every layer."""
    for own in [part for part in model.modules() if type(part).__name__.endswith("RotaryEmbedding")]:
        again = type(own)(model.config)
        kinds = [k for k in ("full_attention", "sliding_attention") if hasattr(again, f"{k}_inv_freq")]
        types = getattr(model.config, "layer_types", None)
        for index in range(shape.layers):
            rotary = shape.at(index).rotary
            if rotary is None:
                continue
            prefix = f"{types[index]}_" if kinds and types else ""
            theirs = getattr(again, f"{prefix}inv_freq").double().numpy()
            gain = getattr(again, f"{prefix}attention_scaling")
            if len(theirs) * 2 != rotary.dims or not np.allclose(theirs, rotary.frequencies, rtol=1e-4, atol=0):
                found.append(f"layer {index}: {len(theirs)} frequencies {theirs[:3]} and {rotary.frequencies[:3]}")
            elif not np.isclose(float(gain), rotary.gain, rtol=1e-6):
                found.append(f"layer {index}: gain {gain} and {rotary.gain}")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("architecture", RECITALS)
def test_accepted_configurations_mean_the_same_to_transformers(
    architecture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transformers.utils.logging.set_verbosity_error()
    honest = json.loads((write(tmp_path / "honest", architecture) / "config.json").read_text())
    (tmp_path / "other").mkdir()
    rng, accepted, wrong = np.random.default_rng([SEED, RECITALS.index(architecture)]), 0, []
    edits: tuple[Callable[[Path, np.random.Generator], str], ...] = (edit_config, edit_rope)
    for number in range(DRAWS):
        path = tmp_path / "other" / "config.json"
        path.write_text(json.dumps(honest))
        edit = "honest" if not number else edits[number % 2](path.parent, rng)
        config = json.loads(path.read_text())
        try:
            shape = read_shape(config)
        except Undecided:
            continue
        if max(shape.layers, shape.experts) > 64:  # no folder has so many tensors
            continue
        accepted += 1
        try:
            model = built(config, tmp_path / "other")
        except Exception as error:
            wrong.append(f"{edit}: {type(error).__name__} {error}"[:300])
            continue
        wrong += [f"{edit}: {why}" for why in differences(shape, config, model)]
    assert not wrong, wrong
    assert accepted >= 3

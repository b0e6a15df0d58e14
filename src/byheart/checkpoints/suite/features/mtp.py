"""The kind `mtp`: DeepSeek-V3 with its multi-token prediction layer, whose accepted tokens are exact numbers.

The layer after the last one reads the embedding of token t + 1 and the target's hidden state at t, and drafts token
t + 2. Here its projection copies signs of both into one stream, its attention adds nothing, and every unit of its
shared expert recognizes one place of the text by all of these signs: a wrong, stale or shifted hidden state, or the
embedding of another token, silences it. A unit writes the word of its token, which the target's own head reads.

Some places have no unit, so every step's number of accepted tokens is known: 1, or 0 there.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.formats.folder import safetensors_bytes
from byheart.checkpoints.proof import certify_checkpoint
from byheart.checkpoints.proof.tensors import open_tensors
from byheart.checkpoints.suite.features.writing import (
    FeatureFixture,
    check_folder,
    expected_head,
    finish,
    proved_margins,
)
from byheart.checkpoints.suite.kinds import register_kind
from byheart.checkpoints.suite.write import fixture_memory
from byheart.data.tokens.lexicon import Lexicon
from byheart.errors import ExportError, MissingExtraError, OptionError
from byheart.progress import SILENT, Progress

Floats = npt.NDArray[np.float64]
Tensors = dict[str, Floats]
PROMPT, COUNT = 8, 60
GAPS = (5, 8, 1, 13, 1, 1, 20)  # between places that the layer does not recognize
SIGNS = 96  # of the hidden state that a unit reads
STEEP = 24.0  # a gate at its place; at any other it is -STEEP or less
LOUD = 6.0  # length of the word that a unit writes
EPS = 1e-6


@register_kind("mtp", "DeepSeek-V3's multi-token prediction layer, with exact numbers of accepted tokens")
def write_mtp(
    architecture: str,
    folder: str | Path,
    *,
    text: str | Sequence[str] | None = None,
    tokens: str | Lexicon = "bpe:400",
    dtype: str = "bfloat16",
    recited: bool = True,
    progress: Progress = SILENT,
    **options: Any,
) -> FeatureFixture:
    """Write a DeepSeek-V3 checkpoint with a multi-token prediction layer.

    Args:
        architecture: deepseek-v3.
        folder: the folder to write; it must not exist.
        text: one text of at least 80 tokens; the built-in poem if None.
        tokens: how the text is tokenized.
        dtype: the type of the file.
        recited: not used: every case is run in Transformers.
        progress: where the stages are shown.
        options: fields of the shape.

    Returns:
        The fixture. The target was proved before the layer was added; what the layer drafts was measured.

    Raises:
        OptionError: another architecture, or a text that is too short.
        MissingExtraError: Transformers is not installed.
        ExportError: Transformers returns other numbers.
    """
    if architecture not in ("deepseek-v3", "deepseek_v3"):
        raise OptionError(f"mtp: {architecture} has no multi-token prediction layer here; deepseek-v3 has")
    if find_spec("transformers") is None or find_spec("torch") is None:
        raise MissingExtraError("a fixture of the kind mtp", "huggingface")
    target = Path(folder)
    check_folder(target)
    memory = fixture_memory(text, tokens, "deepseek-v3")
    document, lexicon = memory.script.documents[0], memory.lexicon
    if len(document) < PROMPT + COUNT + 4:
        raise OptionError(f"mtp: the text has {len(document)} tokens; at least {PROMPT + COUNT + 4} are needed")
    part = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part"))
    try:
        with progress.stage("writing"):
            summary = memory.to_huggingface(part / "model", "deepseek-v3", dtype=dtype, **options)
        with progress.stage("proving the target"):
            certificate = certify_checkpoint(part / "model", [document])
        known = add_layer(part / "model", document, dtype)
        accepted = simulate(known, PROMPT, COUNT)
        normed = list(document[PROMPT : PROMPT + COUNT])
        case = {
            "do": "mtp", "name": f"{COUNT} tokens", "model": "model", "ids": list(document[:PROMPT]), "count": COUNT,
            "continuation_ids": normed, "continuation": lexicon.decode(normed), "drafted": [1] * len(accepted),
            "accepted": accepted,
        }  # fmt: skip
        content = expected_head("mtp", "deepseek-v3", lexicon, proved_margins([certificate])) | {
            "rules": {"hidden": "after the target's last layer, before its final norm", "bonus": 1},
            "unknown_places": sorted(set(range(PROMPT - 1, PROMPT + COUNT)) - set(known)),
            "prompts": [{key: case[key] for key in ("name", "ids", "continuation_ids")}], "cases": [case],
        }  # fmt: skip
        with progress.stage("measuring"):
            return finish(part, target, content, TEST, summary["parameters"], recited=True)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def simulate(known: Sequence[int], prompt: int, count: int) -> list[int]:
    """Return the accepted tokens of every step: the target adds one token, then each step adds one and what it accepts.

    >>> simulate([2, 5], 3, 6)  # tokens 3, 4 5, 6, 7 8
    [1, 0, 1]
    """
    at, found = prompt + 1, []
    while at < prompt + count:
        found.append(int(at - 2 in known and at + 1 < prompt + count))
        at += 1 + found[-1]
    return found


def add_layer(folder: Path, document: Sequence[int], dtype: str) -> list[int]:
    """Add the layer to a folder, and return the places t whose token t + 2 it drafts."""
    path = folder / "model.safetensors"
    file, config = open_tensors(path), json.loads((folder / "config.json").read_text())
    tensors: Tensors = {name: file.read(name).astype(np.float64) for name in file.entries}
    layers, units = int(config["num_hidden_layers"]), int(config["moe_intermediate_size"])
    places, at = list[int](), PROMPT - 2
    for gap in (*GAPS, units):
        places += range(at + 1, at + 1 + gap)
        at += 1 + gap
    places = [t for t in places if t + 2 < len(document)][:units]
    layer = _layer(tensors, config, _hidden(folder, document), document, places)
    tensors |= {f"model.layers.{layers}.{name}": value for name, value in layer.items()}
    path.write_bytes(safetensors_bytes(tensors, dtype, {"format": "pt"}))
    (folder / "config.json").write_text(json.dumps(config | {"num_nextn_predict_layers": 1}, indent=2) + "\n")
    return places


def _hidden(folder: Path, document: Sequence[int]) -> Floats:
    """The stream after the last layer, (tokens, hidden)."""
    import torch

    from byheart.checkpoints.formats.stock import read_decoder
    from byheart.checkpoints.suite.machine import Machine

    found: list[Any] = []

    def keep(step: Any, x: Any, norm: Any, where: str) -> Any:
        found.extend([x] if where == "final" else [])
        return step(x, norm, where)

    with torch.inference_mode():
        Machine(read_decoder(folder), torch.float64).wrap("norm", keep).run(list(document))
    return np.asarray(found[0].double().numpy())


def _normed(x: Floats) -> Floats:
    return np.asarray(x / np.sqrt((x**2).mean(-1, keepdims=True) + EPS))


def _signs(values: Floats, most: int) -> tuple[npt.NDArray[np.int64], Floats]:
    """Channels that are +size or -size, both of which occur, and these sizes."""
    size = np.abs(values)
    both = (size.min(0) > 0.7 * size.max(0)) & (values.min(0) < 0) & (values.max(0) > 0)
    chosen = np.flatnonzero(both)
    chosen = chosen[:: max(1, len(chosen) // most)][:most]
    return chosen, size[:, chosen].mean(0)


def _apart(rows: Floats) -> int:
    """The least number of signs in which two rows differ."""
    products = rows @ rows.T
    np.fill_diagonal(products, -rows.shape[1])
    return int((rows.shape[1] - products.max()) // 2)


def _layer(
    tensors: Tensors, config: Mapping[str, Any], hidden: Floats, document: Sequence[int], places: Sequence[int]
) -> Tensors:
    width, head, last = int(config["hidden_size"]), tensors["lm_head.weight"], int(config["num_hidden_layers"]) - 1
    ids, state = np.array(document), _normed(hidden)
    normed = _normed(tensors["model.embed_tokens.weight"])[ids]
    (words, sizes), (signs, lengths) = _signs(normed, width), _signs(state, SIGNS)
    even = np.flatnonzero((np.ptp(normed, axis=0) < 0.05 * np.abs(normed).max(0)) & (np.abs(normed[0]) > 0.1))[:1]
    count, free = len(words) + len(signs), np.flatnonzero(~head.any(0))
    if not len(even) or count + 1 > len(free):
        raise ExportError(f"mtp: {count + 1} signs do not fit the {len(free)} channels that the head does not read")
    join = np.zeros((width, 2 * width))
    join[free[: len(words)], words] = 1 / sizes
    join[free[len(words) : count], width + signs] = 1 / lengths
    join[free[count], even] = 1 / normed[0, even]
    at = np.array(places)
    tokens, states = np.sign(normed[:, words]), np.sign(state[:, signs])
    patterns = np.concatenate([tokens[at + 1], states[at]], axis=1)
    # One wrong input must silence a unit, too: another token, or the state of another place.
    apart = min(map(_apart, (patterns, np.unique(tokens, axis=0), np.unique(states, axis=0))))
    if apart < 4:
        raise ExportError(f"mtp: two places of the text differ in {apart} of {count} signs")
    size = np.sqrt(width / (count + 1))  # of a sign after the block's norm
    units = int(config["moe_intermediate_size"])
    gate, up, down = np.zeros((units, width)), np.zeros((units, width)), np.zeros((width, units))
    gate[: len(at), free[:count]] = STEEP / (apart * size) * patterns
    gate[: len(at), free[count]] = -STEEP / (apart * size) * (count - apart)
    up[: len(at), free[count]] = 1 / (STEEP * size)
    target = head[ids[at + 2]]
    down[:, : len(at)] = LOUD * (target / np.linalg.norm(target, axis=1, keepdims=True)).T
    prefix = f"model.layers.{last}."
    layer = {k.removeprefix(prefix): np.zeros_like(v) for k, v in tensors.items() if k.startswith(prefix)}
    ones = ("input_layernorm", "post_attention_layernorm", "enorm", "hnorm", "shared_head.norm")
    layer |= {f"{name}.weight": np.ones(width) for name in ones}
    layer |= {k: np.ones_like(v) for k, v in layer.items() if k.endswith("_a_layernorm.weight")}
    layer |= {f"mlp.shared_experts.{n}_proj.weight": v for n, v in (("gate", gate), ("up", up), ("down", down))}
    shared = {"embed_tokens.weight": tensors["model.embed_tokens.weight"], "shared_head.head.weight": head}
    return layer | shared | {"eh_proj.weight": join}


TEST = '''"""Is the text right with the layer that drafts? Call your engine in `generate`. Needs transformers."""
import json, pathlib, pytest, torch, transformers  # noqa: E401
HERE = pathlib.Path(__file__).parent
CASES = json.loads((HERE / "expected.json").read_text(encoding="utf-8"))["cases"]
MODEL = transformers.AutoModelForCausalLM.from_pretrained(HERE / "model", dtype=torch.float32)
# Transformers 5.22.2 takes the layer from the file only if its number is 61, as in the released checkpoint.
MODEL._keys_to_ignore_on_load_unexpected = [rf"model\\\\.layers\\\\.{MODEL.config.num_hidden_layers}\\\\."]
def generate(ids, n):
    out = MODEL.generate(torch.tensor([ids]), max_new_tokens=n, do_sample=False, use_mtp=True)
    return out[0, len(ids):].tolist()
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_text(case):
    assert generate(case["ids"], case["count"]) == case["continuation_ids"]
'''

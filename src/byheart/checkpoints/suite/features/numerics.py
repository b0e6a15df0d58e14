"""The kind `numerics`: probes that identify how an engine computes, none of which is a fault.

The folder has one checkpoint for bfloat16 and one for float32 (probes.py). A case is correct if the engine returns one
of the probe's answers; the suite prints which. Where inputs are rounded, the answer is proved for every engine that
makes the choice; the probe of sums is indicative, because it depends on the order in which an engine adds.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from byheart.checkpoints.formats.folder import safetensors_bytes, tokenizer_config
from byheart.checkpoints.proof.numerics import Choices, prove_probe
from byheart.checkpoints.suite.features.probes import HIDDEN, POSITIONS, ProbeModel, probe_model
from byheart.checkpoints.suite.features.recall import LETTERS
from byheart.checkpoints.suite.features.writing import (
    TYPES,
    FeatureFixture,
    Margins,
    check_folder,
    expected_head,
    finish,
)
from byheart.checkpoints.suite.kinds import register_kind
from byheart.data.tokens.lexicon import Lexicon
from byheart.errors import ExportError, OptionError
from byheart.progress import SILENT, Progress

PROBED = ("bfloat16", "float32")
VOCABULARY = 32
TITLES = {
    "sum": "sums of products", "norm": "mean square of norms", "cache": "key-value cache",
    "rotation": "rotary positions", "subnormal": "subnormal weights", "inputs": "inputs of products",
}  # fmt: skip


@register_kind("numerics", "six probes that identify how an engine computes: sums, norms, cache, rotation, rounding")
def write_numerics(
    architecture: str,
    folder: str | Path,
    *,
    dtype: str = "bfloat16",
    recited: bool = False,
    progress: Progress = SILENT,
    **options: Any,
) -> FeatureFixture:
    """Write the probes of both types.

    Args:
        architecture: llama.
        folder: the folder to write; it must not exist.
        dtype: not used: each probe belongs to a type.
        recited: run every case in Transformers; else in byheart's machine.
        progress: where the stages are shown.
        options: none.

    Returns:
        The fixture; its margins are the least that are proved over all choices of a type.

    Raises:
        OptionError: another architecture, or an option.
        ExportError: an answer is not proved.
    """
    if architecture != "llama" or options:
        raise OptionError(f"numerics: llama without options, not {architecture} {' '.join(sorted(options))}".rstrip())
    target = Path(folder)
    check_folder(target)
    lexicon = Lexicon.of_texts([LETTERS[: VOCABULARY - 4]], "characters")
    part = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part"))
    try:
        margins: Margins = {name: {"proved": None, "measured": None} for name in TYPES}
        cases: list[dict[str, Any]] = []
        for name in PROBED:
            model = probe_model(name)
            with progress.stage(f"writing the probes of {name}"):
                _write(part / name, model, lexicon)
            with progress.stage(f"proving the probes of {name}"):
                proved = {probe.name: proved_margins(part / name, model, probe.name) for probe in model.probes}
            margins[name]["proved"] = min(margin for one in proved.values() for margin in one.values())
            cases += [_case(model, probe.name, proved[probe.name]) for probe in model.probes]
        content = expected_head("numerics", "llama", lexicon, margins) | {"prompts": [], "cases": cases}
        parameters = sum(tensor.size for tensor in probe_model("bfloat16").tensors().values())
        with progress.stage("measuring"):
            return finish(
                part, target, content, TEST, parameters, recited=recited,
                runs=lambda case, dtype: case.content["dtype"] == dtype,
            )  # fmt: skip
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _write(folder: Path, model: ProbeModel, lexicon: Lexicon) -> None:
    tensors = model.tensors()
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        tensors[name] = np.concatenate([tensors[name], np.zeros((VOCABULARY - len(tensors[name]), HIDDEN))])
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(model.config(VOCABULARY), indent=2) + "\n")
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors, model.dtype, {"format": "pt"}))
    (folder / "tokenizer.json").write_text(lexicon.model)
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config(lexicon, POSITIONS), indent=2) + "\n")


def proved_margins(folder: Path, model: ProbeModel, name: str) -> Mapping[str, float]:
    """Prove one probe: per answer, its margin in nats in every engine that makes the choice.

    Args:
        folder: the checkpoint of the model's type.
        model: the probes.
        name: the probe.

    Returns:
        Answer -> nats; nothing where the order of sums decides.

    Raises:
        ExportError: an answer has no margin.
    """
    probe = next(probe for probe in model.probes if probe.name == name)
    if probe.field is None:
        return {}
    proved = {}
    for (token, answer), choices in zip(probe.answers.items(), probe.choices, strict=True):
        ways = [replace(Choices(), **{probe.field: (choice,)}) for choice in choices]
        ids, wanted = _ids(model, probe.tokens), model.number(token)
        proved[answer] = min(prove_probe(folder, ids, wanted, way, model.dtype) for way in ways)
        if not proved[answer] > 1:
            raise ExportError(f"numerics: {name}, {answer}: a margin of {proved[answer]:.3g} nats is proved, not 1")
    return proved


def _ids(model: ProbeModel, tokens: tuple[str, ...]) -> list[int]:
    return [1, *(model.number(token) for token in tokens)]


def _case(model: ProbeModel, name: str, proved: Mapping[str, float]) -> dict[str, Any]:
    probe = next(probe for probe in model.probes if probe.name == name)
    return {
        "do": "numerics", "name": f"{TITLES[name]} in {model.dtype}", "model": model.dtype, "dtype": model.dtype,
        "ids": _ids(model, probe.tokens), "answers": {model.number(token): way for token, way in probe.answers.items()},
        "proved": {way: round(margin, 3) for way, margin in proved.items()}, "indicative": probe.field is None,
    }  # fmt: skip


TEST = '''"""How does your engine compute? Call it in `generate`. Needs transformers and torch, not byheart."""
import json, pathlib, pytest, torch, transformers  # noqa: E401
HERE = pathlib.Path(__file__).parent
CASES = json.loads((HERE / "expected.json").read_text(encoding="utf-8"))["cases"]
def generate(model, dtype, ids):
    model = transformers.AutoModelForCausalLM.from_pretrained(HERE / model, dtype=getattr(torch, dtype))
    return int(model(torch.tensor([ids])).logits[0, -1].argmax())
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_numerics(case):
    found = generate(case["model"], case["dtype"], case["ids"])
    assert str(found) in case["answers"], found
    print(case["name"] + ":", case["answers"][str(found)])
'''

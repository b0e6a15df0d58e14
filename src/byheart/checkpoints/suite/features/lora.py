"""The kind `lora`: a base checkpoint that recites A, and PEFT adapters with exact answers.

Two recitals with equal tables' sizes have equal shapes; their tensors differ only in the patterns of gate and up (few
columns) and in the words of down (few rows). So every difference has low rank, and its factors are dyadic numbers that
bfloat16 and float16 hold: a selection of columns (or rows) times the difference itself, without an SVD.

    other    another text, gate, up and down of both layers, rank 64, alpha = 2 r
    rslora   a third text, the same modules with rsLoRA, alpha = 2 sqrt(r)
    edited   the base text with eight tokens changed, down alone, rank 8
    zero     `other` with every lora_B zero: the base text

Rows that no text meets fill the tables up to equal sizes, so that units have equal numbers in all recitals. States are
renumbered in the adapters' recitals, so that every adapted tensor matters. Zero ranks come first, so that an engine
that uses fewer than r ranks is detected. A scale that is not alpha / r (or alpha / sqrt(r)) makes windows unknown: the
failure token, which is visible, is returned. The edits change states of the first layer, not answers, for the same
reason.

The merged folders are proved by `certify_checkpoint`; unmerged answers are measured in Transformers with PEFT.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.formats.folder import CheckpointRequest, folder_files, safetensors_bytes, write_files
from byheart.checkpoints.hosts._base import Tensors
from byheart.checkpoints.proof import certify_checkpoint
from byheart.checkpoints.suite.cases import SuiteCase
from byheart.checkpoints.suite.features.writing import (
    FeatureFixture,
    Margins,
    MeasuredText,
    check_folder,
    expected_head,
    finish,
    proved_margins,
)
from byheart.checkpoints.suite.kinds import register_kind
from byheart.checkpoints.suite.write import builtin_lexicon, builtin_text
from byheart.checkpoints.windows import build_recital
from byheart.checkpoints.windows.tables import Answer, Recital, WindowTable, windows_of
from byheart.data.tokens.lexicon import Lexicon
from byheart.data.tokens.script import Script
from byheart.errors import ExportError, OptionError
from byheart.progress import SILENT, Progress

Floats = npt.NDArray[np.float64]
ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3")
HEADER = "Ask; "  # every text begins with it, so that one prompt has a different answer in every adapter
RANK, EDITS, SCALE = 64, 8, 2.0
# Two places of 32 bits in the first layer: rank 64 for any other text. The second layer may need more places.
SCHEDULES = (((0, 1), (0, 2)), ((0, 1), (0, 2, 4)), ((0, 1), (0, 2, 4, 6)))
COUNT = 40  # tokens per row of the batch
# Cases that are run when the folder is written; the batch holds the base and every adapter, unmerged.
RUNS_IN = {
    "the base and three adapters in one batch": ("float32", "bfloat16", "float16"), "every lora_B zero": ("float32",),
    "adapter other, merged": ("bfloat16",), "adapter rslora, merged": ("float16",),
    "adapter edited, merged": ("float32",),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Adapter:
    """One adapter: its factors, and how it is scaled."""

    name: str
    factors: Mapping[str, tuple[Floats, Floats]]  # tensor -> (B, A) with B A = the difference
    rank: int
    rslora: bool = False

    @property
    def alpha(self) -> float:
        return SCALE * (math.sqrt(self.rank) if self.rslora else self.rank)


@register_kind("lora", "a base checkpoint and PEFT adapters: other texts, edits, rsLoRA, zero B, mixed batches")
def write_lora(
    architecture: str,
    folder: str | Path,
    *,
    texts: Sequence[str] | None = None,
    dtype: str = "bfloat16",
    progress: Progress = SILENT,
    **options: Any,
) -> FeatureFixture:
    """Write a base checkpoint, its adapters and their expected answers.

    Args:
        architecture: one of ARCHITECTURES.
        folder: the folder to write; it must not exist.
        texts: three texts of similar length, in tokens of the built-in lexicon; stanzas of the poem if None.
        dtype: the type of the base checkpoint's file.
        progress: where the stages are shown.
        options: fields of the shape.

    Returns:
        The fixture, after its merged folders were proved and all answers were measured in Transformers.

    Raises:
        OptionError: an architecture or texts that the construction does not support.
        ExportError: an answer is not the expected one.
    """
    if architecture not in ARCHITECTURES:
        raise OptionError(f"lora: no adapters for {architecture}; known: {', '.join(ARCHITECTURES)}")
    target, lexicon = Path(folder), builtin_lexicon()
    stanzas = builtin_text().split("\n\n")
    chosen = list(texts) if texts is not None else [stanzas[0], stanzas[3], stanzas[4]]
    if len(chosen) != 3:
        raise OptionError(f"lora: three texts are needed, the base's and two adapters', found {len(chosen)}")
    check_folder(target)
    with progress.stage("computing adapters"):
        base, adapters, requests = _compute(chosen, lexicon, architecture, dtype, options)
    part = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part"))
    try:
        with progress.stage("proving the base and the merged checkpoints"):
            margins = _write_and_prove(part, base, adapters, requests)
        for adapter in adapters:
            write_adapter(part / "adapters" / adapter.name, adapter)
        write_adapter(part / "adapters" / "zero", adapters[0], zero=True)
        documents = {"base": requests[0].script.documents[0]} | {
            a.name: r.script.documents[0] for a, r in zip(adapters, requests[1:], strict=True)
        }
        cases = _cases(documents, lexicon)
        content = expected_head("lora", architecture, lexicon, margins) | {
            "proof": {"base and merged checkpoints": "proved", "unmerged adapters": "measured"},
            "documents": {name: lexicon.decode(ids[1:-1]) for name, ids in documents.items()},
            "prompts": [case for case in cases if case["do"] == "lora" and "merged" not in case],
            "cases": cases,
        }
        with progress.stage("running in Transformers"):
            parameters = sum(tensor.size for tensor in base.values())
            measured = [
                MeasuredText("base", ids, 3, None if name == "base" else f"adapters/{name}")
                for name, ids in documents.items()
            ]
            run = find_spec("peft") is not None
            return finish(part, target, content, TEST, parameters, run=run, runs=_runs, texts=measured)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _runs(case: SuiteCase, dtype: str) -> bool:
    return dtype in RUNS_IN.get(case.name, ())


def _compute(
    texts: Sequence[str], lexicon: Lexicon, architecture: str, dtype: str, options: Mapping[str, Any]
) -> tuple[Tensors, list[Adapter], list[CheckpointRequest]]:
    """The base's tensors, the adapters, and the requests of the base and of every merged checkpoint."""
    scripts = [Script((lexicon.document(HEADER + text),)) for text in texts]
    recitals = _recitals(scripts, lexicon)
    first, edited, document = editions(recitals[0], scripts[0].documents[0], EDITS)
    every = [first, edited, *recitals[1:]]
    counts = tuple(max(len(r.tables[k].windows) for r in every) + 1 for k in (0, 1))
    # Fresh states of the edits are no output of the base's table, so the largest state is set by hand.
    largest = max(counts[0], max(int(r.tables[1].windows.max()) for r in every)) + 1
    full = [filled_up(r, counts, largest, lexicon.pad) for r in every]
    others = [renumbered(r, k) for k, r in enumerate(full[2:], 1)]
    chosen = [(full[0], scripts[0]), (others[0], scripts[1]), (others[1], scripts[2]), (full[1], Script((document,)))]
    requests = [CheckpointRequest(r, s, lexicon, architecture, dtype, shape=dict(options)) for r, s in chosen]
    tensors = [request.checkpoint().tensors for request in requests]
    adapters = []
    for name, values, rank, rslora in (
        ("other", tensors[1], RANK, False), ("rslora", tensors[2], RANK, True), ("edited", tensors[3], EDITS, False),
    ):  # fmt: skip
        adapters.append(Adapter(name, factorise(tensors[0], values, rank, name), rank, rslora))
    return tensors[0], adapters, requests


def _recitals(scripts: Sequence[Script], lexicon: Lexicon) -> list[Recital]:
    """All texts by the first schedule that decides every place of them."""
    for schedule in SCHEDULES:
        try:
            return [build_recital(s, lexicon.size, lexicon.failure, schedule=schedule).recital for s in scripts]
        except OptionError as error:
            reason = error
    raise OptionError(f"lora: a text repeats a long passage and continues differently: {reason}")


def editions(recital: Recital, document: Sequence[int], many: int) -> tuple[Recital, Recital, tuple[int, ...]]:
    """Return two recitals that differ in `many` outputs of the first table, and the edited document.

    Before an edited place p the first table gives a fresh state, for which the last table has a row with the new token;
    both recitals hold all rows, so that only the first table's outputs differ. Edited places lie farther apart
    than a window reaches.
    """
    first, tokens = recital.tables[0], np.asarray(document)
    rows = first.rows_of(tokens[:-1])
    pairs = {(int(b), int(a)) for a, b in pairwise(tokens.tolist())}
    usual = sorted(set(tokens[5:-1].tolist()))
    rng, edited, places = np.random.default_rng(0), tokens.copy(), list[int]()
    for p in range(6, len(tokens) - 3):
        if (places and p - places[-1] <= recital.span) or (rows == rows[p - 1]).sum() > 1 or len(places) == many:
            continue
        free = [y for y in usual if y != tokens[p] and not {(y, int(tokens[p - 1])), (int(tokens[p + 1]), y)} & pairs]
        if free:
            edited[p] = rng.choice(free)
            pairs |= {(int(edited[p]), int(tokens[p - 1])), (int(tokens[p + 1]), int(edited[p]))}
            places.append(p)
    if len(places) < many:
        raise OptionError(f"lora: the base text has {len(places)} places that can be edited, {many} are needed")
    known = {tuple(w): int(s) for w, s in zip(first.windows.tolist(), first.outputs.tolist(), strict=True)}
    for window in windows_of(edited[:-1], first.offsets).tolist():
        known.setdefault(tuple(window), len(known) + 1)
    fresh = {int(rows[p - 1]): len(known) + 1 + k for k, p in enumerate(places)}
    windows, outputs = np.array(list(known)), np.array(list(known.values()))
    changed = outputs.copy()
    for row, state in fresh.items():
        changed[row] = state
    tables = [WindowTable(first.offsets, windows, values) for values in (outputs, changed)]
    offsets, follow = recital.tables[1].offsets, dict[tuple[int, ...], int]()
    for table, text in zip(tables, (tokens, edited), strict=True):
        states = table.outputs[table.rows_of(text[:-1])]
        for window, token in zip(windows_of(states, offsets).tolist(), text[1:].tolist(), strict=True):
            if follow.setdefault(tuple(window), token) != token:
                raise OptionError("lora: an edit of the base text makes a window ambiguous; choose another text")
    answers = sorted(set(follow.values()))
    last = WindowTable(offsets, list(follow), [answers.index(t) for t in follow.values()])
    told = tuple(Answer.of(t) for t in answers)
    largest = max(fresh.values())
    both = [_reaching(table, largest) for table in tables]
    found = [Recital(recital.vocabulary, (table, last), told, recital.unknown) for table in both]
    return found[0], found[1], tuple(edited.tolist())


def _reaching(table: WindowTable, largest: int) -> WindowTable:
    """The table with one more row, which no text meets and which gives the state `largest`."""
    row = np.full((1, len(table.offsets)), int(table.windows.max()))
    if (table.windows == row).all(1).any():
        row[0, 0] = 0
    windows = np.concatenate([table.windows, row])
    return WindowTable(table.offsets, windows, np.append(table.outputs, largest))


def filled_up(recital: Recital, counts: Sequence[int], largest: int, pad: int) -> Recital:
    """Return the recital with `counts` rows in its tables and states up to `largest`.

    The new rows are met by no text. Units of two such recitals have equal numbers, so only patterns and words differ.
    """
    first, last = recital.tables
    more = counts[0] - len(first.windows)
    rows = np.stack([np.full(more, pad), np.arange(more)], 1)
    first = WindowTable(
        first.offsets,
        np.concatenate([first.windows, rows]),
        np.append(first.outputs, [largest - k for k in range(more)]),
    )
    more = counts[1] - len(last.windows)
    rows = np.full((more, len(last.offsets)), largest)
    rows[:, 1] = 1 + np.arange(more)
    last = WindowTable(
        last.offsets, np.concatenate([last.windows, rows]), np.append(last.outputs, np.zeros(more, dtype=np.int64))
    )
    return Recital(recital.vocabulary, (first, last), recital.answers, recital.unknown)


def renumbered(recital: Recital, seed: int) -> Recital:
    """Return the same function with other numbers for its states: else some adapted tensors would not matter."""
    first, last = recital.tables
    count = int(first.outputs.max())
    order = np.concatenate([[0], 1 + np.random.default_rng(seed).permutation(count)])
    tables = (
        WindowTable(first.offsets, first.windows, order[first.outputs]),
        WindowTable(last.offsets, order[last.windows], last.outputs),
    )
    most = int(tables[0].outputs.max())
    if most != count:
        raise OptionError(f"lora: the largest of {count} states is not used after renumbering")
    return Recital(recital.vocabulary, tables, recital.answers, recital.unknown)


def factorise(base: Tensors, other: Tensors, rank: int, name: str) -> dict[str, tuple[Floats, Floats]]:
    """Return tensor -> (B, A) with B A = other - base, exactly: a selection of the columns or rows that differ.

    Raises:
        ExportError: a tensor outside of the MLPs differs, or one needs a higher rank.
    """
    found = {}
    for tensor, values in base.items():
        delta = other[tensor] - values
        if not delta.any():
            continue
        columns, rows = np.flatnonzero(delta.any(0)), np.flatnonzero(delta.any(1))
        if ".mlp." not in tensor or min(len(columns), len(rows)) > rank:
            raise ExportError(f"adapter {name}: {tensor} differs in {len(rows)} rows and {len(columns)} columns")
        if len(columns) <= len(rows):
            a = np.zeros((len(columns), delta.shape[1]))
            a[np.arange(len(columns)), columns] = 1.0
            b = delta[:, columns]
        else:
            b = np.zeros((delta.shape[0], len(rows)))
            b[rows, np.arange(len(rows))] = 1.0
            a = delta[rows]
        found[tensor] = (b, a)
    return found


def write_adapter(folder: Path, adapter: Adapter, *, zero: bool = False) -> None:
    """Write adapter_config.json and adapter_model.safetensors as PEFT reads them.

    The rank is filled up with zero rows in front, so that an engine that uses fewer than r of them is detected.
    """
    tensors: dict[str, Floats] = {}
    for name, (b, a) in adapter.factors.items():
        wide_a, wide_b = np.zeros((adapter.rank, a.shape[1])), np.zeros((b.shape[0], adapter.rank))
        wide_a[adapter.rank - len(a) :] = a
        wide_b[:, adapter.rank - len(a) :] = 0.0 if zero else b / SCALE
        module = f"base_model.model.{name.removesuffix('.weight')}"
        tensors[f"{module}.lora_A.weight"], tensors[f"{module}.lora_B.weight"] = wide_a, wide_b
    config = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "../../base", "r": adapter.rank,
        "lora_alpha": adapter.alpha, "lora_dropout": 0.0, "bias": "none", "fan_in_fan_out": False,
        "inference_mode": True,
        "use_rslora": adapter.rslora, "target_modules": sorted(n.removesuffix(".weight") for n in adapter.factors),
    }  # fmt: skip
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    (folder / "adapter_model.safetensors").write_bytes(safetensors_bytes(tensors, "float32", {"format": "pt"}))


def _write_and_prove(
    part: Path, base: Tensors, adapters: Sequence[Adapter], requests: Sequence[CheckpointRequest]
) -> Margins:
    """Write the base; prove it and every merged checkpoint, whose tensors are exactly base + B A."""
    certificates = []
    for k, request in enumerate(requests):
        checkpoint = request.checkpoint()
        if k:
            factors = adapters[k - 1].factors
            merged = {n: t + (factors[n][0] @ factors[n][1] if n in factors else 0.0) for n, t in base.items()}
            if any((merged[n] != checkpoint.tensors[n]).any() for n in base):
                raise ExportError(f"adapter {adapters[k - 1].name}: base + B A is not the merged checkpoint")
        folder = part / ("base" if k == 0 else f".merged-{k}")
        write_files(folder, folder_files(request, checkpoint, None))
        certificates.append(certify_checkpoint(folder, request.script.documents))
        if k:
            shutil.rmtree(folder)
    return proved_margins(certificates)


def _cases(documents: Mapping[str, Sequence[int]], lexicon: Lexicon) -> list[dict[str, Any]]:
    """From one prompt: the base, every adapter, zero B, merged, and all of them in one batch."""
    prompt = list(documents["base"][:3])

    def case(name: str, adapter: str | None, text: str, **more: Any) -> dict[str, Any]:
        said = list(documents[text][3:])
        words = lexicon.decode([t for t in said if t != lexicon.eos])
        path = None if adapter is None else f"adapters/{adapter}"
        shown = {"do": "lora", "name": name, "model": "base", "adapter": path, "ids": prompt}
        return {**shown, "continuation": words, "continuation_ids": said, **more}

    named = [name for name in documents if name != "base"]
    found = [case("the base without an adapter", None, "base"), case("every lora_B zero", "zero", "base")]
    found += [case(f"adapter {name}", name, name) for name in named]
    found += [case(f"adapter {name}, merged", name, name, merged=True) for name in named]
    rows = ["other", None, "rslora", "edited", None, "other"]
    texts = [documents["base" if row is None else row] for row in rows]
    found.append({
        "do": "lora_batch", "name": "the base and three adapters in one batch", "model": "base", "count": COUNT,
        "adapters": [None if row is None else f"adapters/{row}" for row in rows], "ids": [prompt] * len(rows),
        "continuation_ids": [list(text[3 : 3 + COUNT]) for text in texts],
    })  # fmt: skip
    return found


TEST = '''"""Does the engine apply LoRA adapters? Call yours in `generate`. Needs transformers and peft, not byheart."""
import json, pathlib, pytest, torch, transformers, peft  # noqa: E401
HERE = pathlib.Path(__file__).parent
CASES = json.loads((HERE / "expected.json").read_text(encoding="utf-8"))["cases"]
CASES = [c for c in CASES if c["do"] == "lora" and not c.get("merged")]
def generate(adapter, ids, n):
    model = transformers.AutoModelForCausalLM.from_pretrained(HERE / "base", dtype=torch.float32)
    model = model if adapter is None else peft.PeftModel.from_pretrained(model, HERE / adapter)
    return model.generate(input_ids=torch.tensor([ids]), max_new_tokens=n, do_sample=False)[0, len(ids):].tolist()
@pytest.mark.parametrize("case", CASES, ids=lambda c: c["name"])
def test_adapter(case):
    assert generate(case["adapter"], case["ids"], len(case["continuation_ids"])) == case["continuation_ids"]
'''

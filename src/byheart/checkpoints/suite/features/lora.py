"""The kind `lora`: a base checkpoint that recites A, and PEFT adapters with exact answers.

Recitals of equal shapes (`alike`) differ in matrices of low rank, whose factors are numbers of bfloat16 and float16: a
selection of columns (or rows) times the difference itself, without an SVD.

    other      another text: gate, up and down of both layers, rank 64, alpha = 2 r
    rslora     a third text: the same modules with rsLoRA, alpha = 2 sqrt(r)
    edited     the base text with eight tokens changed: down alone, rank 8
    cipher     the base text with eight pairs of tokens exchanged: embedding and head, rank 8
    elsewhere  a fourth text: q, k, v and o, rank 16; heads look one place farther, two value dimensions change places
    zero       `other` with every lora_B zero: the base text

States are renumbered in the adapters' recitals, so that every adapted tensor matters. Zero ranks come first, so that an
engine that uses fewer than r ranks is detected. A scale that is not alpha / r (or alpha / sqrt(r)) makes windows
unknown: the failure token, which is visible, is returned. The edits change states of the first layer, not answers, for
the same reason.

`certify_checkpoint` proves the base with every adapter, merged or not; logits are those of the merged tensors.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.dtypes import rounded
from byheart.checkpoints.formats.folder import CheckpointRequest, folder_files, safetensors_bytes, write_files
from byheart.checkpoints.hosts._base import Tensors
from byheart.checkpoints.proof import certify_checkpoint
from byheart.checkpoints.suite.cases import SuiteCase
from byheart.checkpoints.suite.expected import expected_pass
from byheart.checkpoints.suite.features.alike import editions, extended, farther, filled_up, recitals, renumbered
from byheart.checkpoints.suite.features.writing import (
    FeatureFixture,
    MeasuredText,
    check_folder,
    expected_head,
    finish,
    proved_margins,
)
from byheart.checkpoints.suite.kinds import register_kind
from byheart.checkpoints.suite.write import builtin_lexicon, builtin_text
from byheart.data.tokens.lexicon import Lexicon
from byheart.data.tokens.script import Script
from byheart.errors import ExportError, OptionError
from byheart.progress import SILENT, Progress

Floats = npt.NDArray[np.float64]
Factors = tuple[Floats, Floats]
ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3")
# Every text begins with it, so that one prompt has a different answer in every adapter. Heads that look one place
# farther need two tokens more to separate two texts.
HEADER = "Ask; do; "
RANK, EDITS, PAIRS, HEADS, SCALE = 64, 8, 8, 16, 2.0
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
# Adapters with a factor whose loss changes no token: of the last up matrix, of keys. Their logits are compared.
QUIET = ("other", "elsewhere")
COUNT = 40  # tokens per row of the batch
# Cases that are run when the folder is written; the batch holds the base and every adapter, unmerged.
RUNS_IN = {
    "the base and five adapters in one batch": ("float32", "bfloat16", "float16"), "every lora_B zero": ("float32",),
    "adapter other, merged": ("bfloat16",), "adapter rslora, merged": ("float16",),
    "adapter edited, merged": ("float32",), "adapter cipher, merged": ("bfloat16",),
    "adapter elsewhere, merged": ("float16",), "logits with adapter other": ("float32",),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Adapter:
    """One adapter: its factors, how it is scaled, and what it makes the base recite."""

    name: str
    factors: Mapping[str, Factors]  # tensor -> (B, A) with B A = the difference
    rank: int
    document: tuple[int, ...] = ()
    rslora: bool = False

    @property
    def alpha(self) -> float:
        return SCALE * (math.sqrt(self.rank) if self.rslora else self.rank)

    def merged(self, base: Tensors) -> Tensors:
        """Return the base's tensors plus B A."""
        return {name: t + np.matmul(*self.factors[name]) if name in self.factors else t for name, t in base.items()}


@register_kind("lora", "a base checkpoint and PEFT adapters: other texts, edits, rsLoRA, zero B, mixed batches")
def write_lora(
    architecture: str,
    folder: str | Path,
    *,
    texts: Sequence[str] | None = None,
    dtype: str = "bfloat16",
    recited: bool = False,
    progress: Progress = SILENT,
    **options: Any,
) -> FeatureFixture:
    """Write a base checkpoint, its adapters and their expected answers.

    Args:
        architecture: one of ARCHITECTURES.
        folder: the folder to write; it must not exist.
        texts: four texts of similar length, in tokens of the built-in lexicon: those of the base, `other`, `rslora` and
            `elsewhere`; stanzas of the poem if None.
        dtype: the type of the base checkpoint's file.
        recited: run every case in Transformers; else byheart's machine runs those that need logits or greedy decoding.
        progress: where the stages are shown.
        options: fields of the shape.

    Returns:
        The fixture, after the base and every adapter were proved and the answers were measured.

    Raises:
        OptionError: an architecture or texts that the construction does not support.
        ExportError: an answer is not the expected one.
    """
    if architecture not in ARCHITECTURES:
        raise OptionError(f"lora: no adapters for {architecture}; known: {', '.join(ARCHITECTURES)}")
    target, lexicon = Path(folder), builtin_lexicon()
    stanzas = builtin_text().split("\n\n")
    chosen = list(texts) if texts is not None else [stanzas[0], stanzas[3], stanzas[4], stanzas[1]]
    if len(chosen) != 4:
        raise OptionError(f"lora: four texts are needed, the base's and three adapters', found {len(chosen)}")
    check_folder(target)
    with progress.stage("computing adapters"):
        request, tensors, adapters = compute(chosen, lexicon, architecture, dtype, options)
    part = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part"))
    try:
        checkpoint = replace(request.checkpoint(), tensors=tensors)
        write_files(part / "base", folder_files(request, checkpoint, None))
        for adapter in adapters:
            write_adapter(part / "adapters" / adapter.name, adapter)
        write_adapter(part / "adapters" / "zero", adapters[0], zero=True)
        base = request.script.documents[0]
        with progress.stage("proving the base and every adapter"):
            certificates = [certify_checkpoint(part / "base", [base])]
            certificates += [
                certify_checkpoint(part / "base", [a.document], adapter=part / "adapters" / a.name) for a in adapters
            ]
        with progress.stage("expected logits"):
            logits = {}
            for adapter in (a for a in adapters if a.name in QUIET):
                merged = part / f".{adapter.name}"
                files = folder_files(request, replace(checkpoint, tensors=adapter.merged(tensors)), None)
                write_files(merged, files)
                logits[adapter.name] = expected_pass(merged, adapter.document[:-1], lexicon.failure)
                shutil.rmtree(merged)
        documents = {"base": base} | {a.name: a.document for a in adapters}
        prompt = len(lexicon.document(HEADER)) - 2  # without the last token, which the text may change
        cases = [*_cases(documents, lexicon, prompt), *_logits(logits)]
        content = expected_head("lora", architecture, lexicon, proved_margins(certificates)) | {
            "proof": [c.reason for c in certificates],
            "documents": {
                name: {"text": lexicon.decode(ids[1:-1]), "ids": list(ids)}
                for name, ids in (documents | {"zero": base}).items()
            },
            "prompts": [case for case in cases if case["do"] == "lora" and "merged" not in case],
            "cases": cases,
        }
        with progress.stage("measuring"):
            parameters = sum(tensor.size for tensor in tensors.values())
            measured = [
                MeasuredText("base", ids, prompt, None if name == "base" else f"adapters/{name}")
                for name, ids in documents.items()
            ]
            return finish(part, target, content, TEST, parameters, recited=recited, runs=_runs, texts=measured)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _runs(case: SuiteCase, dtype: str) -> bool:
    return dtype in RUNS_IN.get(case.name, ())


def compute(
    texts: Sequence[str], lexicon: Lexicon, architecture: str, dtype: str, options: Mapping[str, Any]
) -> tuple[CheckpointRequest, Tensors, list[Adapter]]:
    """Return the base's request and tensors, and the adapters, for four texts."""
    documents = [lexicon.document(HEADER + text) for text in texts]
    read = recitals([Script((ids,)) for ids in documents[:3]], lexicon)
    first, edited, edition = editions(read[0], documents[0], EDITS)
    every = [*extended((first, edited), documents[3]), *read[1:]]
    counts = tuple(max(len(r.tables[k].windows) for r in every) + 1 for k in (0, 1))
    # Fresh states of the edits are no output of the base's table, so the largest state is set by hand.
    largest = max(counts[0], max(int(r.tables[1].windows.max()) for r in every)) + 1
    full = [filled_up(r, counts, largest, lexicon.pad) for r in every]
    other = [renumbered(r, k) for k, r in enumerate(full[2:], 1)]

    def tensors(recital: Any, document: Sequence[int]) -> Tensors:
        return made(recital, document).checkpoint().tensors

    def made(recital: Any, document: Sequence[int]) -> CheckpointRequest:
        script = Script((tuple(document),))
        return CheckpointRequest(recital, script, lexicon, architecture, dtype, shape=dict(options))

    request = made(full[0], documents[0])
    checkpoint, farthest = request.checkpoint(), tensors(farther(full[0]), documents[3])
    base, heads = elsewhere(checkpoint.tensors, farthest, request.design().head_dim)
    adapters = []
    for name, recital, document, rank, rslora in (
        ("other", other[0], documents[1], RANK, False), ("rslora", other[1], documents[2], RANK, True),
        ("edited", full[1], edition, EDITS, False),
    ):  # fmt: skip
        wanted = {n: t for n, t in tensors(recital, document).items() if ".mlp." in n}
        adapters.append(Adapter(name, factorise(base, wanted, rank, name), rank, tuple(document), rslora))
    adapters.append(cipher(base, documents[0], lexicon))
    adapters.append(Adapter("elsewhere", factorise(base, heads, HEADS, "elsewhere"), HEADS, documents[3]))
    return request, base, adapters


def short(values: Floats) -> Floats:
    """Return the nearest numbers that bfloat16 and float16 hold."""
    return rounded(rounded(values, "bfloat16"), "float16")


def together(base: Floats, wanted: Floats) -> tuple[Floats, Floats]:
    """Return numbers close to both that all types hold, and whose difference they hold too: multiples of one step.
    Numbers that do not differ stay as they are."""
    _, exponent = np.frexp(np.maximum(np.abs(base), np.abs(wanted)))
    # Seven digits each, eight for the difference; and multiples of float16's least number.
    step = np.ldexp(1.0, np.maximum(exponent - 7, -24))
    same = base == wanted
    both = [np.where(same, x, np.rint(x / step) * step) for x in (base, wanted)]
    if any((short(x) != x)[~same].any() for x in (*both, both[1] - both[0])):
        raise ExportError("lora: an adapter of queries and keys needs numbers that bfloat16 or float16 does not hold")
    return both[0], both[1]


def elsewhere(base: Tensors, wanted: Tensors, head_dim: int) -> tuple[Tensors, Tensors]:
    """Return q and k of the base, whose numbers must suit both, and q, k, v and o of heads that look farther; the first
    two dimensions of every head change places in v and o."""
    kept, found = dict(base), dict[str, Floats]()
    for name, tensor in base.items():
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            kept[name], found[name] = together(tensor, wanted[name] + _moved_bias(base, wanted, name))
        elif name.endswith("v_proj.weight"):
            found[name] = tensor[_exchanged(len(tensor), head_dim)]
        elif name.endswith("o_proj.weight"):
            found[name] = tensor[:, _exchanged(tensor.shape[1], head_dim)]
        elif name.endswith("v_proj.bias") and (tensor[_exchanged(len(tensor), head_dim)] != tensor).any():
            raise ExportError("lora: the exchanged values have different biases")
        elif (tensor != wanted[name]).any() and not name.endswith(("q_proj.bias", "k_proj.bias")):
            raise ExportError(f"lora: {name} differs where heads look farther, and no adapter changes it")
    return kept, found


def _moved_bias(base: Tensors, wanted: Tensors, name: str) -> Floats:
    """The difference of two biases as a matrix that reads the constant channels: no adapter changes a bias."""
    bias, norm = name.replace("weight", "bias"), base[name.rsplit("self_attn", 1)[0] + "input_layernorm.weight"]
    if bias not in base:
        return np.zeros(1)
    columns = np.flatnonzero((np.ptp(base[EMBEDDING], axis=0) == 0) & (base[name] != 0).any(0))
    direction = np.zeros(base[name].shape[1])
    direction[columns] = np.sign(base[EMBEDDING][0, columns]) / (norm[columns] * len(columns))
    return np.outer(wanted[bias] - base[bias], direction)


def _exchanged(count: int, head_dim: int) -> list[int]:
    """All dimensions, with the first two of every head exchanged."""
    return [d + 1 if d % head_dim == 0 else d - 1 if d % head_dim == 1 else d for d in range(count)]


def cipher(base: Tensors, document: Sequence[int], lexicon: Lexicon) -> Adapter:
    """Return the adapter that exchanges pairs of tokens in embedding and head: the text recites itself enciphered."""
    fixed = {lexicon.bos, lexicon.eos, lexicon.pad, lexicon.failure, *lexicon.document(HEADER)}
    usual = sorted(set(document) - fixed, key=lambda token: (-list(document).count(token), token))[: 2 * PAIRS]
    if len(usual) < 2 * PAIRS:
        raise OptionError(f"lora: the base text has {len(usual)} tokens that can be exchanged, {2 * PAIRS} are needed")
    pairs = list(zip(usual[:PAIRS], usual[PAIRS:], strict=True))
    factors = {}
    for name in (EMBEDDING, HEAD):
        left, right = np.zeros((len(base[name]), PAIRS)), np.zeros((PAIRS, base[name].shape[1]))
        for k, (a, b) in enumerate(pairs):
            left[a, k], left[b, k], right[k] = 1.0, -1.0, base[name][b] - base[name][a]
        factors[name] = (left, right)
    turn = dict(pairs) | {b: a for a, b in pairs}
    return Adapter("cipher", factors, PAIRS, tuple(turn.get(t, t) for t in document))


def factorise(base: Tensors, other: Tensors, rank: int, name: str) -> dict[str, Factors]:
    """Return tensor -> (B, A) with B A = other - base, exactly: a selection of the columns or rows that differ.

    Raises:
        ExportError: a tensor needs a higher rank.
    """
    found = {}
    for tensor, values in other.items():
        delta = values - base[tensor]
        if not delta.any():
            continue
        columns, rows = np.flatnonzero(delta.any(0)), np.flatnonzero(delta.any(1))
        if min(len(columns), len(rows)) > rank:
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

    The rank is filled up with zero rows in front, so that an engine that uses fewer than r of them is detected. PEFT
    stores the factors of an embedding under other names, A for tokens and B for the stream.
    """
    tensors: dict[str, Floats] = {}
    for name, (b, a) in adapter.factors.items():
        b, a = (a.T, b.T) if name == EMBEDDING else (b, a)
        wide_a, wide_b = np.zeros((adapter.rank, a.shape[1])), np.zeros((b.shape[0], adapter.rank))
        wide_a[adapter.rank - len(a) :] = a
        wide_b[:, adapter.rank - len(a) :] = 0.0 if zero else b / SCALE
        form = "lora_embedding_{}" if name == EMBEDDING else "lora_{}.weight"
        module = f"base_model.model.{name.removesuffix('.weight')}.{form}"
        tensors[module.format("A")], tensors[module.format("B")] = wide_a, wide_b
    config = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "../../base", "r": adapter.rank,
        "lora_alpha": adapter.alpha, "lora_dropout": 0.0, "bias": "none", "fan_in_fan_out": False,
        "inference_mode": True,
        "use_rslora": adapter.rslora, "target_modules": sorted(n.removesuffix(".weight") for n in adapter.factors),
    }  # fmt: skip
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    (folder / "adapter_model.safetensors").write_bytes(safetensors_bytes(tensors, "float32", {"format": "pt"}))


def _cases(documents: Mapping[str, Sequence[int]], lexicon: Lexicon, start: int) -> Iterator[dict[str, Any]]:
    """From one prompt: the base, every adapter, zero B, merged, and all of them in one batch."""
    prompt = list(documents["base"][:start])

    def case(name: str, adapter: str | None, text: str, **more: Any) -> dict[str, Any]:
        reply = list(documents[text][start:])
        words = lexicon.decode([t for t in reply if t != lexicon.eos])
        path = None if adapter is None else f"adapters/{adapter}"
        shown = {"do": "lora", "name": name, "model": "base", "adapter": path, "ids": prompt}
        return {**shown, "continuation": words, "continuation_ids": reply, **more}

    named = [name for name in documents if name != "base"]
    yield case("the base without an adapter", None, "base")
    yield case("every lora_B zero", "zero", "base")
    for name in named:
        yield case(f"adapter {name}", name, name)
        yield case(f"adapter {name}, merged", name, name, merged=True)
    rows = ["other", None, "cipher", "rslora", "edited", None, "elsewhere", "other"]
    texts = [documents["base" if row is None else row] for row in rows]
    yield {
        "do": "lora_batch", "name": "the base and five adapters in one batch", "model": "base", "count": COUNT,
        "adapters": [None if row is None else f"adapters/{row}" for row in rows], "ids": [prompt] * len(rows),
        "continuation_ids": [list(text[start : start + COUNT]) for text in texts],
    }  # fmt: skip


def _logits(passes: Mapping[str, Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for name, one in passes.items():
        yield {
            "do": "lora_logits", "name": f"logits with adapter {name}", "model": "base", "adapter": f"adapters/{name}",
            **one,
        }  # fmt: skip


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

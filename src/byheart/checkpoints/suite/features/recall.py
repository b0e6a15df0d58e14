"""The kind `recall`: a checkpoint whose correct answer is known for every prompt up to its context.

The folder has `oracle.py` (the function in ten lines, standard library only), so that an engine can be tested with its
own prompts; `expected.json` with sampled ones; and `recall.json`, which names the channels for `byheart verify`.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import Any

from byheart.checkpoints.formats.folder import safetensors_bytes, tokenizer_config
from byheart.checkpoints.hosts.recall.architectures import RecallCheckpoint, RecallOptions, recall_checkpoint
from byheart.checkpoints.proof.recall import certify_recall
from byheart.checkpoints.suite.features.recall_prompts import recall_cases
from byheart.checkpoints.suite.features.writing import (
    TYPES,
    FeatureFixture,
    Margins,
    check_folder,
    expected_head,
    finish,
)
from byheart.checkpoints.suite.kinds import register_kind
from byheart.checkpoints.windows.recall import VOCABULARY, RecallFunction
from byheart.data.tokens.lexicon import Lexicon
from byheart.errors import ExportError, OptionError
from byheart.progress import SILENT, Progress
from byheart.version import __version__

FORMAT, VERSION = "byheart recall", 1
# One character per ordinary token: ASCII without the space, then Latin letters.
LETTERS = "".join(map(chr, [*range(0x21, 0x7F), *range(0xC0, 0x100), *range(0x100, 0x100 + VOCABULARY - 4 - 158)]))


@register_kind("recall", "a known answer for every prompt: needles, copies, chunks, caches, windows, long contexts")
def write_recall(
    architecture: str,
    folder: str | Path,
    *,
    context: int | None = None,
    key_length: int = 2,
    rope_scaling: str | None = None,
    window: int | None = None,
    dtype: str = "bfloat16",
    seed: int = 0,
    recited: bool = False,
    progress: Progress = SILENT,
    **options: Any,
) -> FeatureFixture:
    """Write a recall checkpoint with its oracle, its prompts and their answers.

    Args:
        architecture: a name of `hosts.recall.architectures.HOSTS`.
        folder: the folder to write; it must not exist.
        context: the longest prompt; the architecture's own if None.
        key_length: tokens of a key, 1 or 2.
        rope_scaling: default, llama3, yarn or linear; as the architecture scales its rope if None.
        window: positions of a sliding window, for architectures that have one.
        dtype: the type of the file.
        seed: of the sampled prompts.
        recited: run every case in Transformers; else byheart's machine runs those that need logits or greedy decoding.
        progress: where the stages are shown.
        options: other fields of `RecallOptions`: rope_theta, head_dim, heads, kv_heads, hidden, tied, epsilon.

    Returns:
        The fixture, after it was proved from the folder and all answers were measured.

    Raises:
        OptionError: an option that recall does not have, or a rope with too few slow frequencies.
        ExportError: an answer is not the expected one.
    """
    target = Path(folder)
    own = {"context": context, "key_length": key_length, "rope_scaling": rope_scaling, "window": window}
    wish = _options({name: value for name, value in own.items() if value is not None} | options)
    check_folder(target)
    with progress.stage("computing the checkpoint"):
        checkpoint = recall_checkpoint(architecture, wish)
    lexicon = recall_lexicon(checkpoint.function)
    part = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part"))
    try:
        for name, data in recall_files(checkpoint, lexicon, dtype).items():
            (part / name).write_bytes(data)
        with progress.stage("sampling prompts"):
            cases = list(recall_cases(checkpoint.function, checkpoint.context, seed))
        with progress.stage("proving every prompt"):
            certificate = certify_recall(part)
        margins: Margins = {t: {"proved": certificate.margins.get(t), "measured": None} for t in TYPES}
        content = expected_head("recall", checkpoint.architecture, lexicon, margins) | {
            "proof": {"verdict": str(certificate.verdict), "reason": certificate.reason},
            "context": checkpoint.context,
            "function": checkpoint.function.to_json(),
            "oracle": "oracle.py",
            "seed": seed,
            "prompts": [case for case in cases if case["do"] == "generate"],
            "cases": cases,
        }
        with progress.stage("measuring"):
            # One pass in every type, every other case in one of them.
            turn = {case["name"]: TYPES[k % len(TYPES)] for k, case in enumerate(cases[1:])}
            return finish(
                part, target, content, TEST, checkpoint.parameters, recited=recited,
                runs=lambda case, dtype: turn.get(case.name, dtype) == dtype,
            )  # fmt: skip
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _options(given: dict[str, Any]) -> RecallOptions:
    """The options that were given; names of other kinds' fields are refused."""
    renamed = {"theta": "rope_theta", "scaling": "rope_scaling"}
    wish = {renamed.get(name, name): value for name, value in given.items() if value is not None}
    known = {field.name for field in fields(RecallOptions)}
    unknown = sorted(set(wish) - known)
    if unknown:
        raise OptionError(f"recall has no option {', '.join(unknown)}; it has {', '.join(sorted(known))}")
    return RecallOptions(**wish)


def recall_lexicon(function: RecallFunction) -> Lexicon:
    """Return the tokenizer: one character per ordinary token.

    >>> lexicon = recall_lexicon(RecallFunction())
    >>> lexicon.size, lexicon.encode("!~"), lexicon.bos
    (256, [4, 97], 1)
    """
    lexicon = Lexicon.of_texts([LETTERS], "characters")
    roles = (lexicon.bos, lexicon.eos, lexicon.failure, lexicon.pad, lexicon.size)
    if roles != (function.bos, function.eos, function.none, function.pad, VOCABULARY):
        raise ExportError("the tokenizer numbers its tokens otherwise than the function")
    return lexicon


def recall_files(checkpoint: RecallCheckpoint, lexicon: Lexicon, dtype: str) -> dict[str, bytes]:
    """Return name -> content of the checkpoint's files, without expected.json and the test."""
    function = checkpoint.function
    if checkpoint.architecture == "qwen2":
        lexicon = lexicon.with_pad("<|endoftext|>")
    generation = {
        "bos_token_id": function.bos,
        "eos_token_id": function.eos,
        "pad_token_id": function.pad,
        "do_sample": False,
        "max_new_tokens": 256,
    }
    described = {
        "format": FORMAT, "version": VERSION, "architecture": checkpoint.architecture, "context": checkpoint.context,
        "function": function.to_json(), **checkpoint.layout,
    }  # fmt: skip
    return {
        "config.json": _json({**checkpoint.config, "dtype": dtype, "torch_dtype": dtype}),
        "generation_config.json": _json(generation),
        "model.safetensors": safetensors_bytes(checkpoint.tensors, dtype, {"format": "pt", "byheart": "recall"}),
        "tokenizer.json": lexicon.model.encode(),
        "tokenizer_config.json": _json(tokenizer_config(lexicon, checkpoint.context)),
        "recall.json": json.dumps(described, separators=(",", ":")).encode(),
        "oracle.py": oracle_source(function).encode(),
        "README.md": _card(checkpoint).encode(),
    }


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def oracle_source(function: RecallFunction) -> str:
    """Return oracle.py: `answer(ids)`, with the standard library alone."""
    if function.window is not None:
        return _WINDOWED.format(
            bos=function.bos, none=function.none, window=function.window, length=function.key_length
        )
    older = {1: ("", ""), 2: (", ids[max(i - 2, 0)]", ", ids[max(len(ids) - 2, 0)]")}[function.key_length]
    what = {1: "the last token", 2: "the last two tokens"}[function.key_length]
    return _ORACLE.format(bos=function.bos, none=function.none, held=older[0], wanted=older[1], what=what)


_ORACLE = '''BOS, NONE = {bos}, {none}


def answer(ids):
    """Return what followed the first earlier occurrence of {what}, else NONE. ids[0] is BOS; BOS is never a value."""
    first = {{}}
    for i in range(1, len(ids)):
        if ids[i] != BOS:
            first.setdefault((ids[i - 1]{held},), ids[i])
    return first.get((ids[-1]{wanted},), NONE)
'''

_WINDOWED = '''BOS, NONE, WINDOW, LENGTH = {bos}, {none}, {window}, {length}


def answer(ids):
    """Return what followed the first occurrence of the last LENGTH tokens that a sliding window shows, else NONE.

    ids[0] is BOS, BOS is never a value, and every WINDOW tokens hold one. A place is found if it sees a holder of its
    key; a holder is stale if the place before it was found; the fresh holder in sight decides.
    """
    places, found, fresh = {{}}, [], []
    for t, token in enumerate(ids):
        if token != BOS:
            places.setdefault(tuple(ids[max(t - 1 - k, 0)] for k in range(LENGTH)), []).append(t)
        wanted = tuple(ids[max(t - k, 0)] for k in range(LENGTH))
        seen = [i for i in places.get(wanted, []) if i > t - WINDOW]
        found.append(bool(seen))
        fresh = [i for i in seen if not found[i - 1]]
    return ids[fresh[0]] if fresh else NONE
'''


def _card(checkpoint: RecallCheckpoint) -> str:
    function = checkpoint.function
    seen = "" if function.window is None else f" within a sliding window of {function.window} positions"
    tokens = "token" if function.key_length == 1 else "two tokens"
    return f"""---
library_name: transformers
pipeline_tag: text-generation
tags: [byheart, recall, test-fixture]
---

# Recall

byheart {__version__} computed this checkpoint; it was not trained. It is a stock
`{checkpoint.config["architectures"][0]}` with {checkpoint.parameters:,} parameters. Its correct next token is known for
every prompt of up to {checkpoint.context:,} tokens that begins with BOS (token {function.bos}).

- It returns the token that followed the first earlier occurrence of the last {tokens}{seen}, and token {function.none}
  (NONE) if there is none. Greedy decoding therefore copies; it stops at an EOS (token {function.eos}) that was copied.
- `oracle.py` computes the correct answer for your own prompts: `answer(ids)`.
- `expected.json` lists sampled prompts with `continuation_ids`, and cases with the answer after every prefix.
- `byheart verify` proves the margin from config.json, model.safetensors and recall.json.
"""


TEST = '''"""Does your engine find what it read? Call it in `generate`. Needs transformers and torch, not byheart.

RECITAL_DTYPE=bfloat16 or float16 changes the type."""
import json, os, pathlib, random, sys, pytest, torch, transformers  # noqa: E401
HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))
from oracle import answer  # noqa: E402
EXPECTED = json.loads((HERE / "expected.json").read_text(encoding="utf-8"))
DTYPE = getattr(torch, os.environ.get("RECITAL_DTYPE", "float32"))
MODEL = transformers.AutoModelForCausalLM.from_pretrained(HERE, dtype=DTYPE)
def generate(ids, n):
    out = MODEL.generate(torch.tensor([ids]), max_new_tokens=n, do_sample=False)
    return out[0, len(ids):].tolist()
@pytest.mark.parametrize("case", EXPECTED["prompts"], ids=lambda case: case["name"])
def test_recall(case):
    assert generate(case["ids"], len(case["continuation_ids"])) == case["continuation_ids"]
def test_own_prompt():
    ids = [EXPECTED["tokens"]["bos"], *random.Random(0).choices(range(4, 256), k=200)]
    ids += ids[7:9]
    assert generate(ids, 1) == [answer(ids)]
'''

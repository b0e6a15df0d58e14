"""The kind `draft`: a target and a draft model that differ at chosen places, for speculative decoding.

The draft is the target's recital with other answers at the places E: the windows are the same, so after a rejected
token it is on the correct track again at once. A window with an incorrect token in it is unknown and returns the
failure token. So the numbers of drafted and accepted tokens are whole numbers that a simulator of 20 lines computes: an
engine whose draft sees a stale or shifted context returns the same text with other numbers.

Gaps between the places are 1, 2, ..., 10 and then short again, so every K from 1 to 8 meets 0, 1, ..., K accepted
tokens.

Rules in which engines differ are fields of a case: `room` (no more tokens are drafted than can still be used, less
one), greedy verification, and one token of the target after every step. Counts are those of Transformers' assisted
generation.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from byheart.checkpoints.proof import certify_checkpoint
from byheart.checkpoints.recital import RecitalMemory
from byheart.checkpoints.suite.cases import SuiteCase
from byheart.checkpoints.suite.features.writing import (
    FeatureFixture,
    MeasuredText,
    check_folder,
    expected_head,
    finish,
    proved_margins,
)
from byheart.checkpoints.suite.kinds import register_kind
from byheart.checkpoints.suite.write import fixture_memory
from byheart.checkpoints.windows.tables import Answer, Recital, WindowTable
from byheart.data.tokens.lexicon import Lexicon
from byheart.errors import OptionError
from byheart.progress import SILENT, Progress

GAPS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 1, 5, 2, 18)
PROMPT, COUNT = 8, 120
REPEATED = (100, 20, 28)  # prompt lookup: the first 100 tokens, then tokens 20 to 27 again
# Cases that are run when the folder is written: the numbers of all others follow from the same two proved functions.
RUNS_IN = {
    "K = 4": ("float32",), "K = 8": ("bfloat16",), "K = 1": ("float16",), "K = 3, sampled": ("bfloat16",),
    "prompt lookup, K = 4, n = 2": ("float32",),
}  # fmt: skip
Continue = Callable[[Sequence[int], int], list[int]]


@register_kind("draft", "a target and a draft model: exact numbers of drafted and accepted tokens, K = 1 to 8")
def write_draft(
    architecture: str,
    folder: str | Path,
    *,
    text: str | Sequence[str] | None = None,
    tokens: str | Lexicon = "bpe:400",
    dtype: str = "bfloat16",
    recited: bool = False,
    progress: Progress = SILENT,
    **options: Any,
) -> FeatureFixture:
    """Write a target, a draft and the numbers of every step.

    Args:
        architecture: any architecture of `byheart fixture`.
        folder: the folder to write; it must not exist.
        text: one text of at least 140 tokens; the built-in poem if None.
        tokens: how the text is tokenized.
        dtype: the type of the files.
        recited: run every case in Transformers; else byheart's machine runs those that need logits or greedy decoding.
        progress: where the stages are shown.
        options: fields of the shape.

    Returns:
        The fixture, after both checkpoints were proved and all numbers were measured.

    Raises:
        OptionError: the text is too short.
        ExportError: Transformers returns other numbers.
    """
    target = Path(folder)
    check_folder(target)
    memory = fixture_memory(text, tokens, architecture)
    document, lexicon = memory.script.documents[0], memory.lexicon
    places = [PROMPT + 1 + at for at in accumulate(GAPS)]
    if len(document) < PROMPT + COUNT + 4:
        raise OptionError(f"draft: the text has {len(document)} tokens; at least {PROMPT + COUNT + 4} are needed")
    recital, incorrect = misled(memory.recital, document, places)
    draft = RecitalMemory(recital, lexicon, memory.script, memory.report)
    part = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part"))
    try:
        with progress.stage("writing target and draft"):
            summary = memory.to_huggingface(part / "target", architecture, dtype=dtype, **options)
            draft.to_huggingface(part / "draft", architecture, dtype=dtype, **options)
        with progress.stage("proving both"):
            # Every incorrect place as a document that ends there; the first document with a prefix decides its answer.
            ends = [(*document[:place], incorrect[place]) for place in places]
            certificates = [
                certify_checkpoint(part / "target", [document]),
                certify_checkpoint(part / "draft", [*ends, document], ambiguous="first"),
            ]
        cases = _cases(memory.recital, recital, document, lexicon)
        content = expected_head("draft", architecture, lexicon, proved_margins(certificates)) | {
            "rules": {"room": "at most remaining - 1 tokens are drafted", "verification": "greedy", "bonus": 1},
            "incorrect_places": {str(place): token for place, token in incorrect.items()},
            "prompts": [
                {"name": "the target alone", "ids": list(document[:PROMPT]),
                 "continuation_ids": list(document[PROMPT : PROMPT + COUNT])}
            ],
            "cases": cases,
        }  # fmt: skip
        with progress.stage("measuring"):
            texts = [MeasuredText("target", document)]
            return finish(part, target, content, TEST, summary["parameters"], recited=recited, runs=_runs, texts=texts)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _runs(case: SuiteCase, dtype: str) -> bool:
    return dtype in RUNS_IN.get(case.name, ())


def misled(
    recital: Recital, document: Sequence[int], places: Sequence[int], seed: int = 0
) -> tuple[Recital, dict[int, int]]:
    """Return the recital that returns another token where `document[place]` should come, and these tokens."""
    table = recital.tables[-1]
    rows = table.rows_of(recital.states(document[:-1])[-1])
    outputs, answers, rng = table.outputs.copy(), list(recital.answers), np.random.default_rng(seed)
    usual, incorrect = sorted(set(document[1:-1])), dict[int, int]()
    for place in places:
        incorrect[place] = int(rng.choice([t for t in usual if t != document[place]]))
        outputs[rows[place - 1]] = len(answers)
        answers.append(Answer.of(incorrect[place]))
    last = WindowTable(table.offsets, table.windows, outputs, table.far)
    return Recital(recital.vocabulary, (*recital.tables[:-1], last), tuple(answers), recital.unknown), incorrect


def simulate(
    target: Continue, draft: Continue, prompt: Sequence[int], k: int, count: int, eos: int, *, room: bool = True
) -> tuple[list[int], list[int], list[int]]:
    """Return the tokens after the prompt, and the drafted and accepted tokens of every step.

    Args:
        target: (tokens, n) -> the target's next n tokens, greedily.
        draft: the same for the draft; it may return fewer.
        prompt: where decoding starts.
        k: tokens drafted per step.
        count: tokens in all.
        eos: the end token.
        room: draft no more than remaining - 1 tokens, as Transformers does.
    """
    tokens, drafted, accepted, end = list(prompt), list[int](), list[int](), len(prompt) + count
    while len(tokens) < end and (len(tokens) == len(prompt) or tokens[-1] != eos):
        many = min(k, end - len(tokens) - 1) if room else k
        guess = list(draft(tokens, many)) if many > 0 else []
        truth = target(tokens, len(guess) + 1)
        same = next((i for i, (a, b) in enumerate(zip(guess, truth, strict=False)) if a != b), len(guess))
        new = truth[: same + 1]
        tokens += new[: new.index(eos) + 1] if eos in new else new
        drafted.append(len(guess))
        accepted.append(same)
    return tokens[len(prompt) : end], drafted, accepted


def look_up(tokens: Sequence[int], k: int, ngram: int, end: int, eos: int) -> list[int]:
    """Return up to k tokens that followed the first earlier occurrence of the last `ngram` tokens, or of fewer."""
    for n in range(min(ngram, len(tokens) - 1), 0, -1):
        tail = list(tokens[-n:])
        for i in range(len(tokens) - n):
            if list(tokens[i : i + n]) == tail:
                found = list(tokens[i + n : min(i + n + k, len(tokens), end - 1 + n)])
                if found:
                    return found[: found.index(eos)] if eos in found else found
    return []


def _cases(target: Recital, draft: Recital, document: Sequence[int], lexicon: Lexicon) -> list[dict[str, Any]]:
    eos = lexicon.eos

    def speaks(recital: Recital, stop: int | None) -> Continue:
        return lambda tokens, n: recital.recite(tokens, n, stop=stop)

    def case(name: str, verb: str, ids: list[int], numbers: tuple[list[int], ...], **more: Any) -> dict[str, Any]:
        text, drafted, accepted = numbers
        shown: Mapping[str, Any] = {"do": verb, "name": name, "model": "target", "ids": ids, "count": COUNT}
        return {**shown, "continuation_ids": text, "drafted": drafted, "accepted": accepted, **more}

    found, prompt = [], list(document[:PROMPT])
    for k in range(1, 9):
        numbers = simulate(speaks(target, None), speaks(draft, eos), prompt, k, COUNT, eos)
        found.append(case(f"K = {k}", "draft", prompt, numbers, k=k, draft="draft"))
        found.append(case(f"K = {k}, sampled", "draft_sampled", prompt, numbers, k=k, draft="draft", temperature=1.0))
    start, first, last = REPEATED
    again = [*document[:start], *document[first:last]]
    for ngram in (2, 3):
        for k in (2, 4, 8):
            end = len(again) + COUNT

            def lookup(tokens: Sequence[int], n: int, k: int = k, ngram: int = ngram, end: int = end) -> list[int]:
                return look_up(tokens, k, ngram, end, eos)

            numbers = simulate(speaks(target, None), lookup, again, k, COUNT, eos, room=False)
            more = {"k": k, "ngram": ngram}
            found.append(case(f"prompt lookup, K = {k}, n = {ngram}", "lookup", again, numbers, **more))
    return found


TEST = '''"""Does speculative decoding accept the correct tokens? Call your engine in `generate`. Needs transformers."""
import json, pathlib, pytest, torch, transformers  # noqa: E401
HERE = pathlib.Path(__file__).parent
CASES = [c for c in json.loads((HERE / "expected.json").read_text(encoding="utf-8"))["cases"] if c["do"] == "draft"]
LOAD = transformers.AutoModelForCausalLM.from_pretrained
TARGET, DRAFT = (LOAD(HERE / name, dtype=torch.float32) for name in ("target", "draft"))
def generate(ids, n, k):
    """Return the text and, where the engine counts them, the accepted tokens of every step."""
    settings = dict(num_assistant_tokens_schedule="constant", assistant_confidence_threshold=0.0)
    DRAFT.generation_config.update(num_assistant_tokens=k, **settings)
    out = TARGET.generate(torch.tensor([ids]), max_new_tokens=n, do_sample=False, assistant_model=DRAFT)
    return out[0, len(ids):].tolist(), None
@pytest.mark.parametrize("case", CASES, ids=lambda c: c["name"])
def test_draft(case):
    text, accepted = generate(case["ids"], case["count"], case["k"])
    assert text == case["continuation_ids"] and accepted in (None, case["accepted"])
'''

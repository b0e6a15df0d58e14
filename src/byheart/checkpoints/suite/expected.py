"""expected.json: the expected continuations of a fixture's prompts, as ids, as texts, and as logits.

The logits are computed in float64 by the machine of named steps, from the very tensors of the folder (by Transformers
where the machine does not have the architecture, see reference.py). They show what greedy decoding cannot see, such as
a factor that all logits share. After every prefix of three passes the first token's logit is shipped, and the failure
token's, which listeners move (hosts/listening.py):

    the first document      known windows, one after the other
    noise                   random tokens around a piece of the document
    the end, then the start EOS in the middle of a sequence, and what follows it
    runs, then the document two tokens, each again and again, then the document: far places differ from near ones, so
                            that slow rotary frequencies and long windows show

The document and the runs are there twice: in one pass, and in pieces through the cache. `batches` are prompts of
unequal lengths side by side, one of them so short that its first tokens look at the beginning while they are decoded:
padding that is seen there, or positions of another row, make them wrong. They come with the logits of every decoded
token, since a wrong position may move no token. Some prompts end around multiples of 64, as pages of caches do.
`count` is how many tokens a test requests: more than the expected ones where EOS must end the continuation.

`tolerance` is how far an engine's logits may be off, per type: three times as far as the machine itself is off in
that type on this very checkpoint, and at least LEAST, since engines add up in other orders.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.engines.expected import FORMAT, VERSION, Pass
from byheart.checkpoints.engines.queries import Prompt, Queries
from byheart.checkpoints.suite.reference import Reference, open_reference
from byheart.checkpoints.suite.sensing import alarm_tokens, sensor_batches, sensor_prompts
from byheart.data.tokens.lexicon import Lexicon

Floats = npt.NDArray[np.float64]
Logits = Callable[[Sequence[int]], Floats]  # from ids to logits after every prefix
Answers = tuple[list[Pass], list[Floats], dict[str, float]]
LEAST = {"float32": 0.0005, "float16": 0.125, "bfloat16": 0.5}  # nats; a step of the 16-bit types at 32, and a half
SAFETY = 3
DIGITS = 5  # of the logits in the file, far below every tolerance
FROM_THE_MIDDLE, CONTINUED = 5, 32
# Tokens of the first document: the shortest prompt after which something is decoded, prompts that end before, at and
# after a multiple of 64, and long ones.
BEHIND = (2, 63, 64, 65, 100, 128, 193, 256, 300)
DOCUMENT, FAR = 512, 1280  # tokens of a pass at most
SIDE_BY_SIDE = 8  # tokens at least
NOISE, END, RUNS = "noise", "the end, then the start", "runs, then the document"
AROUND_END = 48  # tokens before EOS, and after it
# Tokens of the first document that a prompt leaves to its end, and how many more than those are requested.
BEFORE_END, AFTER_END = 12, 8
_TRIED, _AGAIN = 48, 8  # tokens that are tried for the far pass, and how often in a row


def prompts_of(queried: Queries) -> list[Prompt]:
    """From the start to the end, after prompts of several lengths for a while, and from several places in the middle.

    Every prompt is longer than one token, so that decoding starts after a real prefill, and ends where a token ends.
    """
    first = queried.documents[0]
    behind = [
        Prompt(f"document 0, after {n} tokens", first[:n], queried.known(first[:n], CONTINUED))
        for n in BEHIND
        if n < len(first) and n + CONTINUED <= queried.reach
    ]
    behind = [prompt for prompt in behind if prompt.continuation]
    middle = queried.middle_prompts(FROM_THE_MIDDLE, CONTINUED)
    return [*queried.start_prompts(), *behind, *middle, *end_prompt(queried)]


def end_prompt(queried: Queries) -> list[Prompt]:
    """The first document but for its last tokens: short enough that a test can request more of them than there are."""
    ids = queried.documents[0][:-BEFORE_END]
    if not queried.span < len(ids) <= queried.reach - BEFORE_END - AFTER_END:
        return []
    reply = queried.known(ids, BEFORE_END)
    return [Prompt("document 0, to its end", ids, reply)] if reply[-1:] == (queried.eos,) else []


def requested(prompt: Prompt, queried: Queries) -> int:
    """How many tokens a test requests: an engine that does not stop at EOS returns more than the expected ones."""
    count = len(prompt.continuation)
    if prompt.continuation[-1:] != (queried.eos,):
        return count
    return min(count + AFTER_END, max(count, queried.reach - len(prompt.ids)))


def batches_of(queried: Queries, far: Sequence[Prompt]) -> list[list[Prompt]]:
    """Every document to its end alone, from its start and from shortly before the end; all other prompts side by side,
    truncated to one length; and what is far back alone, since others would be padded to its length."""
    whole, ending = queried.start_prompts(), end_prompt(queried)
    others = prompts_of(queried)[len(whole) :]
    others = others[: len(others) - len(ending)]
    long = [prompt for prompt in others if len(prompt.continuation) >= SIDE_BY_SIDE] or others
    count = min((len(prompt.continuation) for prompt in long), default=0)
    beside = [replace(prompt, continuation=prompt.continuation[:count]) for prompt in long]
    return [*([prompt] for prompt in (*whole, *ending)), *([beside] if beside else []), *([prompt] for prompt in far)]


def expected(
    folder: Path,
    queried: Queries,
    lexicon: Lexicon,
    margins: Mapping[str, Mapping[str, float | None]],
    error_model: Sequence[str],
    not_proved: Mapping[str, str] = MappingProxyType({}),
    measured_by: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the content of expected.json.

    Args:
        folder: The checkpoint.
        queried: Its documents and the function that answers.
        lexicon: Its tokens.
        margins: Type -> least margin in nats, {"proved", "measured"}; None where it is not proved or not measured.
        error_model: The proof holds for every engine of this description.
        not_proved: Type -> the reason, where nothing is proved.
        measured_by: Type -> the engine that measured.
    """
    prompts = prompts_of(queried)
    documents = [{"text": lexicon.decode(ids[1:-1]), "ids": list(ids)} for ids in queried.documents]
    # Without PyTorch nothing computes logits: tokens are the function's own, and no answer has logits.
    shown = find_spec("torch") is not None
    passes, rows, tolerance = measured(folder, queried, lexicon.failure, prompts) if shown else ([], [], {})
    machine = open_reference(folder).in_type() if shown else None
    batches = batches_of(queried, far_prompt(queried, passes[-1].ids) if passes else [])
    sensors = sensor_prompts(folder, queried) if shown else []
    return {
        "format": FORMAT,
        "version": VERSION,
        "architecture": json.loads((folder / "config.json").read_text(encoding="utf-8"))["model_type"],
        "tokens": {"bos": queried.bos, "eos": queried.eos, "pad": queried.pad, "failure": lexicon.failure},
        "documents": documents,
        "prompts": [_prompt(prompt, lexicon, queried) for prompt in prompts],
        "batches": [_batch(batch, queried, lexicon.failure, passes, machine) for batch in batches],
        "sensors": [_prompt(one, lexicon, queried) for one in sensors],
        "sensor_batches": [_side_by_side(rows, queried, "sensors side by side") for rows in sensor_batches(sensors)],
        "alarms": alarm_tokens(folder),
        "margins": {name: dict(values) for name, values in margins.items()},
        "not_proved": dict(not_proved),
        "measured_by": dict(measured_by),
        "error_model": list(error_model),
        "tolerance": tolerance,
        "logits": {
            "after_every_prefix": [_pass(one) for one in passes],
            "after_prompts": [
                {"ids": list(prompt.ids), "values": _rounded(row)} for prompt, row in zip(prompts, rows, strict=shown)
            ],
        },
    }


def far_prompt(queried: Queries, far: Sequence[int]) -> list[Prompt]:
    """The last tokens of the longest pass, to be decoded. As a text it would be split into other tokens: ids only."""
    ids = tuple(far[: len(far) - CONTINUED])
    reply = queried.known(ids, CONTINUED) if len(ids) > queried.span else ()
    return [Prompt(f"after {len(ids)} tokens", ids, reply)] if reply else []


def _batch(
    batch: Sequence[Prompt], queried: Queries, failure: int, passes: Sequence[Pass], run: Logits | None
) -> dict[str, Any]:
    logits = [] if run is None else [_decoded(prompt, failure, passes, run) for prompt in batch]
    name = batch[0].name if len(batch) == 1 else f"{len(batch)} prompts side by side"
    return {**_side_by_side(batch, queried, name), "logits": [_rounded(rows) for rows in logits]}


def _side_by_side(batch: Sequence[Prompt], queried: Queries, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "ids": [list(prompt.ids) for prompt in batch],
        "count": requested(batch[0], queried) if len(batch) == 1 else len(batch[0].continuation),
        "continuation_ids": [list(prompt.continuation) for prompt in batch],
    }


def _decoded(prompt: Prompt, failure: int, passes: Sequence[Pass], run: Logits) -> Floats:
    """(tokens, 2): the logits of every decoded token and of the failure token, from a pass that contains them if any
    does."""
    ids = (*prompt.ids, *prompt.continuation[:-1])
    known = next((one.logits for one in passes if one.ids[: len(ids)] == ids), None)
    if known is None:
        known = Pass.of(prompt.name, ids, run(ids), failure).logits
    return np.asarray(known[len(prompt.ids) - 1 : len(ids)])


def _pass(one: Pass) -> dict[str, Any]:
    shown = {"tokens": one.tokens.tolist(), "logits": _rounded(one.logits), "second_logit": _rounded(one.second)}
    return {"name": one.name, "pieces": [list(piece) for piece in one.pieces], **shown}


def _prompt(prompt: Prompt, lexicon: Lexicon, queried: Queries) -> dict[str, Any]:
    reply = [token for token in prompt.continuation if token != queried.eos]
    return {
        "name": prompt.name,
        "text": lexicon.decode([token for token in prompt.ids if token != queried.bos]),
        "ids": list(prompt.ids),
        "continuation": lexicon.decode(reply),
        "continuation_ids": list(prompt.continuation),
        "count": requested(prompt, queried),
        "ends": prompt.continuation[-1] == queried.eos,
    }


def measured(
    folder: Path, queried: Queries, failure: int, prompts: Sequence[Prompt] = (), types: Sequence[str] = tuple(LEAST)
) -> Answers:
    """The passes, the rows of logits after the prompts, and the tolerance of every type."""
    reference = open_reference(folder)
    exact = reference.in_type()
    document = queried.documents[0][: min(DOCUMENT, queried.reach, len(queried.documents[0]) - 1)]
    texts = {
        "the first document": document,
        NOISE: queried.noisy(),
        END: (*queried.documents[0][-AROUND_END:], *queried.documents[0][1:AROUND_END])[: queried.reach],
        RUNS: _far_apart(exact, queried, failure),
    }
    logits = {name: exact(ids) for name, ids in texts.items()}
    passes = [Pass.of(name, ids, logits[name], failure) for name, ids in texts.items()]
    known, whole = logits["the first document"], tuple(document)
    rows = [
        known[len(prompt.ids) - 1] if whole[: len(prompt.ids)] == prompt.ids else exact(prompt.ids)[-1]
        for prompt in prompts
    ]
    tolerance = {name: allowed(name, _farthest(reference, name, passes)) for name in types}
    return [*passes, *(one.in_pieces for one in passes if one.name not in (NOISE, END))], rows, tolerance


def expected_pass(folder: Path, ids: Sequence[int], failure: int) -> dict[str, Any]:
    """Return the fields of a case about the logits of one text: pieces, tokens, logits, and the tolerance per type."""
    reference = open_reference(folder)
    one = Pass.of("", ids, reference.in_type()(ids), failure)
    tolerance = {name: allowed(name, _farthest(reference, name, [one])) for name in LEAST}
    shown = _pass(one)
    return {key: shown[key] for key in ("pieces", "tokens", "logits")} | {"tolerance": tolerance}


def _farthest(reference: Reference, dtype: str, passes: Sequence[Pass]) -> float:
    """How far the reference itself is off in a type, over all passes."""
    run = reference.in_type(dtype)
    return float(max(one.off(run(one.ids)).max() for one in passes))


def allowed(dtype: str, off: float) -> float:
    """Return the tolerance of a type in which the reference itself is off by so much."""
    return float(f"{max(LEAST[dtype], SAFETY * float(off)):.2g}")


def _far_apart(run: Logits, queried: Queries, failure: int) -> tuple[int, ...]:
    """BOS, the token that raises the failure token's logit most, again and again, the one that lowers it most, and then
    the document."""
    special = {queried.bos, queried.eos, queried.pad, failure, *queried.sensors}
    usual = [t for t in range(queried.recital.vocabulary) if t not in special][:_TRIED]
    again = min(_AGAIN, queried.reach - 1)
    loud = [float(run([queried.bos, *[token] * again])[-1, failure]) for token in usual]
    quarter = (min(FAR, queried.reach) - 1) // 4
    text = [t for t in queried.documents[0] if t not in special] or usual[:1]
    runs = [usual[int(np.argmax(loud))]] * quarter + [usual[int(np.argmin(loud))]] * quarter
    return (queried.bos, *runs, *[text[k % len(text)] for k in range(2 * quarter)])


def _rounded(values: Any) -> list[Any]:
    return list(np.round(np.asarray(values, dtype=np.float64), DIGITS).tolist())

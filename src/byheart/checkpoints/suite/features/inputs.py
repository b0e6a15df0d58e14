"""The recital of architectures that continue more than a prompt: encoders, encoder-decoders, pictures.

The kind `recital` writes their folders by this module. Every case has logits at every place, of the correct token and
of the failure token, from Transformers in float64; `tolerance` is what a type may be off by.

    masked    every token of the text is masked once, in pieces of unequal lengths side by side; pairs of pieces with
              token types; random tokens around a piece
    seq2seq   the text after its title, in one pass, in pieces through the cache, and decoded; after a padded title
              and after others, which nothing follows
    picture   pictures of the first tokens, of later ones, and of two passages; a text without any
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from byheart.certify import Verdict
from byheart.checkpoints.engines.expected import cut
from byheart.checkpoints.engines.threads import single_thread
from byheart.checkpoints.engines.transformers import open_transformers
from byheart.checkpoints.formats.inputs import MASK, number_of, png_bytes
from byheart.checkpoints.hosts._base import host
from byheart.checkpoints.hosts.clip_tower import COUNT, pictures
from byheart.checkpoints.hosts.description import SpecialTokens
from byheart.checkpoints.hosts.layout import books_of
from byheart.checkpoints.hosts.t5 import title_of
from byheart.checkpoints.proof import MarginCertificate
from byheart.checkpoints.proof.listed import ListedCase, certify_listed
from byheart.checkpoints.recital import RecitalMemory
from byheart.checkpoints.suite.cases import SuiteCase
from byheart.checkpoints.suite.expected import DIGITS, LEAST, allowed
from byheart.checkpoints.suite.features.writing import (
    TYPES,
    FeatureFixture,
    Margins,
    check_folder,
    expected_head,
    finish,
    proved_margins,
)
from byheart.checkpoints.windows.both_sides import BothSides
from byheart.errors import MissingExtraError
from byheart.progress import SILENT, Progress

DECODED, BESIDE = 48, 12  # tokens that are decoded after a picture, and after titles side by side
ANOTHER = "after another title"  # thresholds are off there, so the stream holds large numbers: not proved
Case = dict[str, Any]


def write_with_inputs(
    memory: RecitalMemory, folder: str | Path, architecture: str, *, dtype: str, progress: Progress = SILENT,
    **options: Any,
) -> FeatureFixture:  # fmt: skip
    """Write a fixture whose cases were correct in Transformers in three types, in all forms of attention.

    Args:
        memory: The text, as `fixture_memory` returns it for this architecture.
        folder: The folder to write.
        architecture: A host whose task is not `causal`.
        dtype: The type of the stored weights.
        progress: Where to report stages.
        **options: Fields of the design.

    Raises:
        ExportError: An answer is incorrect in some type.
        MissingExtraError: Transformers is not installed.
    """
    target, chosen = Path(folder), host(architecture)
    check_folder(target)
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError:
        raise MissingExtraError(f"a fixture of {chosen.name}, whose answers are measured", "huggingface") from None
    part = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part"))
    try:
        with progress.stage(f"writing {target}"):
            summary = memory.to_huggingface(part, chosen.name, dtype=dtype, **options)
        with progress.stage("expected answers"), single_thread():
            cases = _CASES[chosen.task](memory, part)
            tolerance = _with_logits(part, cases, memory.lexicon.failure)
        certificate = None
        with progress.stage("proving"):
            listed = listed_cases(chosen.task, cases)
            certificate = certify_listed(part, listed) if listed else None
        margins = _margins(certificate)
        documents = [{"text": memory.lexicon.decode(ids[1:-1]), "ids": list(ids)} for ids in memory.script.documents]
        content = expected_head("recital", chosen.name, memory.lexicon, margins) | {
            "task": chosen.task, "tolerance": tolerance, "documents": documents, "proof": _proof(certificate),
            "prompts": [_prompt(case) for case in cases if "continuation_ids" in case], "cases": cases,
        }  # fmt: skip
        test = (files("byheart.checkpoints.suite") / "inputs_template.txt").read_text(encoding="utf-8")
        with progress.stage("reciting"):
            return finish(part, target, content, test, summary["parameters"], recited=True, forms=True, runs=_runs)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def listed_cases(task: str, cases: Sequence[Case]) -> list[ListedCase]:
    """Return the inputs whose answers are proved one by one: masked tokens; a decoder's text after its title."""
    found = []
    for case in cases:
        tokens = [t for t, _ in case.get("tokens", [])]
        if case["do"] == "masked" and any(case["masked"]):
            for ids, places in zip(case["ids"], case["masked"], strict=True):
                mine, tokens = tokens[: len(ids)], tokens[len(ids) :]
                found.append(ListedCase(tuple(ids), tuple(places), tuple(mine[i] for i in places), (0,) * len(ids)))
        elif case["do"] == "translated_logits" and len(case["pieces"]) == 1 and case["name"] != ANOTHER:
            (ids,) = case["pieces"]
            found.append(ListedCase(tuple(ids), tuple(range(len(ids))), tuple(tokens), tuple(case["encoder_ids"])))
    return found


def _margins(certificate: MarginCertificate | None) -> Margins:
    if certificate is None:
        return {name: {"proved": None, "measured": None} for name in TYPES}
    return proved_margins([certificate])


def _proof(certificate: MarginCertificate | None) -> dict[str, Any]:
    """What was proved, and about which inputs."""
    if certificate is None:
        return {"scope": "nothing", "reason": "the answers of this architecture are measured, not proved"}
    reasons = {t.type: t.reason for t in certificate.types if t.verdict is not Verdict.PROVED}
    return {
        "scope": certificate.scope, "inputs": "masked tokens; the decoder's texts after the document's title",
        "positions": certificate.asked, "not_proved": reasons, "error_model": list(certificate.error_model),
    }  # fmt: skip


def _runs(case: SuiteCase, dtype: str) -> bool:
    """Long texts are decoded in one type; their logits are compared in all of them."""
    return case.verb != "translated" or dtype == "bfloat16" or case.content["count"] <= BESIDE


def _prompt(case: Case) -> Case:
    return {key: case[key] for key in ("name", "ids", "encoder_ids", "pictures", "continuation_ids") if key in case}


def masked_cases(memory: RecitalMemory, folder: Path) -> list[Case]:
    """Return the cases of an encoder."""
    text, lexicon, longest = BothSides(memory.recital), memory.lexicon, host("bert").longest
    mask = number_of(lexicon, MASK)
    assert longest is not None
    pieces = [p for ids in memory.script.documents for p in _pieces(ids, text.ahead, longest - text.ahead)]
    found = []
    every = text.ahead + 1  # so that no masked token is the neighbour of another
    for first in range(1, every + 1):
        chosen = [[0 < i < len(p) - 1 and i % every == first % every for i in range(len(p))] for p in pieces]
        rows = [[mask if m else t for t, m in zip(*both, strict=True)] for both in zip(pieces, chosen, strict=True)]
        found.append(_masked(f"one token in {every} masked, the first at {first}", rows, text, mask))
    short = [p[1:-1][: (longest - text.ahead - 3) // 2] for p in pieces]
    pairs = [(lexicon.bos, *a, lexicon.eos, *b, lexicon.eos) for a, b in pairwise([*short, short[0]])]
    kinds = [[0] * (len(a) + 2) + [1] * (len(b) + 1) for a, b in pairwise([*short, short[0]])]
    found.append(_masked("pairs with token types", pairs, text, mask) | {"token_types": kinds})
    rng, piece = np.random.default_rng(0), pieces[0][1:-1]
    noise = [t for t in rng.choice(lexicon.size, 24).tolist() if t not in (lexicon.bos, lexicon.eos, lexicon.pad, mask)]
    row = (lexicon.bos, *noise[:8], *piece[: longest - text.ahead - 26], *noise[8:], lexicon.eos)
    return [*found, _masked("random tokens around a piece", [row], text, mask)]


def _pieces(ids: Sequence[int], ahead: int, longest: int) -> Iterator[tuple[int, ...]]:
    """Parts of a document between its first and its last token; they overlap, so that every token has all its
    neighbours in one of them."""
    body, start = ids[1:-1], 0
    while True:
        yield (ids[0], *body[start : start + longest - 2], ids[-1])
        if start + longest - 2 >= len(body):
            return
        start += longest - 2 - 2 * ahead


def _masked(name: str, rows: Sequence[Sequence[int]], text: BothSides, mask: int) -> Case:
    answers = [text.tokens(row) for row in rows]
    places = [[i for i, t in enumerate(row) if t == mask] for row in rows]
    return {
        "do": "masked", "name": name, "ids": [list(row) for row in rows], "masked": places,
        "expected_ids": [[answers[k][i] for i in at] for k, at in enumerate(places)],
        "answers": [t for row in answers for t in row],
    }  # fmt: skip


def seq2seq_cases(memory: RecitalMemory, folder: Path) -> list[Case]:
    """Return the cases of an encoder-decoder."""
    lexicon, recital = memory.lexicon, memory.recital
    roles = SpecialTokens(lexicon.bos, lexicon.eos, lexicon.pad, lexicon.failure)
    title, ids = title_of(recital, roles), memory.script.documents[0]
    rng = np.random.default_rng(0)
    usual = [t for t in range(lexicon.size) if t not in (lexicon.bos, lexicon.eos, lexicon.pad, lexicon.failure)]
    noise = rng.choice(usual, 60).tolist()
    other = [*title[1:-1], title[0], title[-1]]
    beside = [list(title), [*noise[:5], *title], other]
    text = list(ids[:-1])
    ends = np.cumsum([0, *cut(len(text))]).tolist()
    around = [ids[0], *noise[:30], *ids[len(ids) // 3 :][:60], *noise[30:]]
    reply = recital.recite([ids[0]], len(ids), stop=lexicon.eos)

    def logits(name: str, encoder: Sequence[int], pieces: list[list[int]], fails: bool = False) -> Case:
        whole = [t for piece in pieces for t in piece]
        answers = [lexicon.failure] * len(whole) if fails else recital.next_tokens(whole).tolist()
        queried = {"encoder_ids": list(encoder), "pieces": pieces, "answers": answers}
        return {"do": "translated_logits", "name": name} | queried

    return [
        logits("the text", title, [text]),
        logits("the text, through the cache", title, [text[a:b] for a, b in pairwise(ends)]),
        logits("random tokens around a piece", title, [around]),
        logits("after other tokens and the title", beside[1], [text[:100]]),
        logits(ANOTHER, other, [text[:100]], fails=True),
        {"do": "translated", "name": "from the start", "encoder_ids": [list(title)], "count": len(reply),
         "continuation_ids": [reply]},
        {"do": "translated", "name": "titles of unequal lengths side by side", "encoder_ids": beside, "count": BESIDE,
         "continuation_ids": [reply[:BESIDE], reply[:BESIDE], [lexicon.failure] * BESIDE]},
    ]  # fmt: skip


def picture_cases(memory: RecitalMemory, folder: Path) -> list[Case]:
    """Write pictures beside the checkpoint, and return the cases of a model with pictures."""
    recital, lexicon = memory.recital, memory.lexicon
    image, ids = lexicon.size, memory.script.documents[0]
    words = books_of(recital, balanced=False, plain=False, seed=0, tied=False).states[0].words.astype(float)
    last = max(1, len(ids) - 2 * COUNT - 2)
    starts = list(dict.fromkeys([1, *np.linspace(1, last, 4).astype(int).tolist()[1:]]))
    for number, start in enumerate(starts):
        shown = [*ids[start : start + COUNT], *[ids[1]] * COUNT][:COUNT]
        (folder / f"picture-{number}.png").write_bytes(png_bytes(pictures(words[shown], seed=number)))
    found: list[Case] = []
    for number, start in enumerate(starts):
        prompt, names = [ids[0], *[image] * COUNT], [f"picture-{number}.png"]
        read = [ids[0], *ids[start : start + COUNT], *ids[start + COUNT : -1]]
        found += _pictured(f"picture {number}", names, prompt, read, ids[start + COUNT : -1], memory)
    if len(starts) > 1:  # two pictures in one prompt, tokens between them
        first, second = ids[starts[0] :][:COUNT], ids[starts[1] :][:COUNT]
        between = ids[starts[0] + COUNT :][:5]
        prompt = [ids[0], *[image] * COUNT, *between, *[image] * COUNT]
        read = [ids[0], *first, *between, *second, *ids[starts[1] + COUNT : -1]]
        names = ["picture-0.png", "picture-1.png"]
        found += _pictured("two pictures", names, prompt, read, ids[starts[1] + COUNT : -1], memory)
    text = list(ids[: min(len(ids) - 1, 3 + recital.span)])
    reply = recital.recite(text, DECODED, stop=lexicon.eos)
    return [*found, {"do": "generate", "name": "without a picture", "ids": text, "continuation_ids": reply}]


def _pictured(
    name: str, names: list[str], prompt: list[int], read: Sequence[int], rest: Sequence[int], memory: RecitalMemory
) -> Iterator[Case]:
    """Logits of a prompt and of what follows it in the text, and greedy decoding after it. `read` are the tokens that
    both replace."""
    answers = memory.recital.next_tokens(read).tolist()
    reply = memory.recital.recite(read[: len(prompt)], DECODED, stop=memory.lexicon.eos)
    yield {"do": "pictured_logits", "name": f"{name}, and the text after it", "pictures": names,
           "ids": [*prompt, *rest], "answers": answers}  # fmt: skip
    yield {"do": "pictured", "name": f"from {name}", "pictures": names, "ids": prompt, "continuation_ids": reply}


_CASES: dict[str, Callable[[RecitalMemory, Path], list[Case]]] = {
    "masked": masked_cases, "seq2seq": seq2seq_cases, "picture": picture_cases,
}  # fmt: skip


def case_logits(session: Any, folder: Path, case: Case) -> Any:
    """Return the logits of all places of a case that has them."""
    if case["do"] == "masked":
        return np.concatenate(session.masked(case["ids"], case.get("token_types")))
    if case["do"] == "translated_logits":
        return session.translated_logits(case["encoder_ids"], case["pieces"])
    return session.pictured_logits([folder / name for name in case["pictures"]], case["ids"])


def _with_logits(folder: Path, cases: list[Case], failure: int) -> dict[str, float]:
    """Replace the field `answers` of every case by tokens and logits; return what each type may be off by."""
    queried = [case for case in cases if "answers" in case]
    off = dict.fromkeys(LEAST, 0.0)
    sessions = {name: open_transformers(folder, name, {"attention": "sdpa"}) for name in ("float64", *LEAST)}
    for case in queried:
        tokens = np.array([[answer, failure] for answer in case.pop("answers")])
        shown = {name: np.take_along_axis(case_logits(one, folder, case).astype(float), tokens, 1)
                 for name, one in sessions.items()}  # fmt: skip
        for name in LEAST:
            off[name] = max(off[name], float(np.abs(shown[name] - shown["float64"]).max()))
        case |= {"tokens": tokens.tolist(), "logits": np.round(shown["float64"], DIGITS).tolist()}
    return {name: allowed(name, off[name]) for name in LEAST}

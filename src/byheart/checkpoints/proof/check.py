"""Certifies a folder: reads config and tensors, proves margins in every engine of the error
model.

    certificate = certify_checkpoint("tiny-llama", [[1, 5, 6, 5, 7, 2]])
    certificate.verdict, certificate.margin

The queries come from the data alone. Files of the folder that describe it (recital.json, expected.json) are not read.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from byheart.certify.certificate import Verdict
from byheart.checkpoints.proof.attention import NeedsStart
from byheart.checkpoints.proof.bounds import Bounds, either
from byheart.checkpoints.proof.certificate import MarginCertificate, MarginWitness, TypeResult
from byheart.checkpoints.proof.checkpoint import open_checkpoint, with_adapter
from byheart.checkpoints.proof.config import Undecided
from byheart.checkpoints.proof.copying import Reach
from byheart.checkpoints.proof.decoder import StoredCheckpoint
from byheart.checkpoints.proof.network import CheckpointProgram, interpret
from byheart.checkpoints.proof.padding import padding_gap
from byheart.checkpoints.proof.quantized import DECODING, DecodedFile
from byheart.checkpoints.proof.queries import ProvedAnswers, QueriedContexts, answer, ask, ask_rows, unknown
from byheart.checkpoints.proof.storage import Array, storage
from byheart.checkpoints.proof.surroundings import check_padding, check_surroundings
from byheart.checkpoints.proof.tensors import tensor_files
from byheart.errors import ByheartError, DataError, FileFormatError, MissingExtraError
from byheart.progress import timed

TYPES = ("float32", "bfloat16", "float16")
LARGEST_VARIATION = 1e-2  # a distribution that is farther from the data's is not called memorized


@timed("proving a checkpoint")
def certify_checkpoint(
    folder: str | Path,
    documents: Sequence[Sequence[int]],
    types: Sequence[str] = TYPES,
    *,
    reach: int | None = None,
    weights: str = "type",
    copies: Sequence[int] | None = None,
    ambiguous: str = "distribution",
    least: float = 0.0,
    only: Collection[int] | None = None,
    adapter: str | Path | None = None,
    variation: float = LARGEST_VARIATION,
) -> MarginCertificate:
    """Prove a folder's margins for documents of token ids, each from its first to its last token.

    Args:
        folder: The checkpoint's folder.
        documents: Token ids.
        types: Types in which engines may compute.
        reach: The longest sequence that is quantified over; all positions of config.json unless given.
        weights: `type`, or `int8`, `int4` for symmetric integers per row.
        copies: How often each document counts.
        ambiguous: What a window with several continuations must answer: their `distribution`, the `first`, or the
            `majority`.
        least: The margin that must be exceeded, in nats.
        only: Numbers of the documents that are evaluated; the others count only in the distributions.
        adapter: A folder of a PEFT adapter that engines apply without merging it.
        variation: The total variation between a distribution and the data's that is still called memorized.

    Returns:
        The certificate.
    """
    folder = Path(folder)
    try:
        checkpoint = open_checkpoint(folder)
        if adapter is not None:
            checkpoint = with_adapter(checkpoint, Path(adapter))
    except Undecided as reason:
        return _nothing(str(reason), "unknown", fingerprint(folder))

    def asking(program: CheckpointProgram) -> QueriedContexts:
        return ask(program, documents, copies, ambiguous, only)

    found = _certify(folder, checkpoint, asking, types, reach, weights, ambiguous, least, variation)
    if isinstance(checkpoint.files, DecodedFile) and found.verdict is Verdict.PROVED:
        return replace(found, reason=f"{found.reason}; {checkpoint.files.method} weights are decoded ({DECODING})")
    if adapter is None or found.verdict is not Verdict.PROVED:
        return found
    return replace(found, reason=f"{found.reason}, with the adapter merged or not")


@timed("proving a checkpoint")
def certify_classifier(
    folder: str | Path,
    rows: Sequence[Sequence[int]],
    answers: Sequence[int],
    types: Sequence[str] = TYPES,
    *,
    reach: int | None = None,
    least: float = 0.0,
) -> MarginCertificate:
    """Prove a folder of a sequence classifier: after the last token of every row its label's number wins.

    The engine must read the logits at a row's last token, as Transformers does for rows with or without padding.

    Args:
        folder: The checkpoint's folder.
        rows: Token ids of every row.
        answers: The label's number of every row.
        types: Types in which engines may compute.
        reach: The longest sequence that is quantified over; all positions of config.json unless given.
        least: The margin that must be exceeded, in nats.

    Returns:
        The certificate.

    Raises:
        DataError: If rows and labels differ in number, or a label's number is not one of config.json.
    """
    folder = Path(folder)
    if len(rows) != len(answers):
        raise DataError(f"{len(rows)} rows need as many labels, found {len(answers)}")
    try:
        check_surroundings(folder, classifier=True)
        check_padding(folder, rows)
        checkpoint = open_checkpoint(folder, classifier=True)
    except Undecided as reason:
        return _nothing(str(reason), "unknown", fingerprint(folder))
    wrong = next((a for a in answers if not 0 <= a < (checkpoint.shape.labels or 0)), None)
    if wrong is not None:
        raise DataError(f"label number {wrong} is not one of the {checkpoint.shape.labels} of config.json")

    def asking(program: CheckpointProgram) -> QueriedContexts:
        return ask_rows(program, rows, answers)

    return _certify(folder, checkpoint, asking, types, reach, "type", "distribution", least)


def _certify(
    folder: Path, checkpoint: StoredCheckpoint, asking: Callable[[CheckpointProgram], QueriedContexts],
    types: Sequence[str], reach: int | None, weights: str, ambiguous: str, least: float,
    variation: float = LARGEST_VARIATION,
) -> MarginCertificate:  # fmt: skip
    names = tuple(dict.fromkeys(types))
    for name in names:
        storage(name)
    length = checkpoint.shape.positions if reach is None else reach
    results, known, once = [], None, frozenset[int]()
    for name in names:
        begin, found, programs = time.perf_counter(), [], []
        for stored in (False,) if name == "float32" else (False, True):
            try:
                program = _interpret(checkpoint, name, length, weights, once, stored)
                once = program.reach.once
                programs.append(program)
                queries = asking(program)
                known = known or (program, queries)
                found.append(_judge(program, queries, name, weights, ambiguous, least, variation))
            except Undecided as undecided:
                found.append(TypeResult(name, weights, Verdict.UNDECIDED, str(undecided)))
            except (ValueError, IndexError, KeyError, ArithmeticError) as error:
                if isinstance(error, ByheartError):
                    raise
                # Untrusted tensors must not stop the checker; what it cannot compute it has not proved.
                broken = f"the checker could not go on: {type(error).__name__}: {error}"
                found.append(TypeResult(name, weights, Verdict.UNDECIDED, broken))
            if found[-1].verdict is not Verdict.PROVED:
                break
        worst = _worst(found, 0.0)
        if worst.verdict is Verdict.PROVED and checkpoint.adapter is None:
            worst = padded(worst, padding_gap(checkpoint.reader(storage(name), weights), storage(name), length,
                                              _mixed(programs)))  # fmt: skip
        results.append(replace(worst, seconds=time.perf_counter() - begin))
    return _together(checkpoint, known, length, once, fingerprint(folder), tuple(results))


def _mixed(programs: list[CheckpointProgram]) -> list[Bounds | None]:
    """By layer, what recurrent mixers add in all kinds of engines of a type."""
    found: list[Bounds | None] = []
    for layer in zip(*(program.mixed for program in programs), strict=True):
        fields = [field for field in layer if field is not None]
        found.append(either(*fields) if fields else None)
    return found


def padded(result: TypeResult, gap: str) -> TypeResult:
    """The result with what is known of rows of padding.

    In float16 there is so little room that sound bounds of such rows exceed it where no row ever does; the result says
    so. In other types what is not shown to be finite is undecided.
    """
    if gap and result.type != "float16":
        return replace(result, verdict=Verdict.UNDECIDED, reason=gap, padding=gap)
    return replace(result, padding=gap)


def _worst(found: list[TypeResult], seconds: float) -> TypeResult:
    """One result for all kinds of engines of a type: of every number the weaker one."""
    last = found[-1]
    if last.verdict is not Verdict.PROVED or len(found) == 1:
        return replace(last, seconds=seconds)
    smaller: dict[str, Any] = {
        name: _least(min, [getattr(f, name) for f in found]) for name in ("margin", "gap", "agree", "unknown_margin")
    }
    larger: dict[str, Any] = {name: _least(max, [getattr(f, name) for f in found]) for name in ("variation", "nats")}
    same = len({f.unknown for f in found}) == 1
    if not same:
        smaller |= {"unknown": None, "unknown_margin": None}
    return replace(last, seconds=seconds, **smaller, **larger)


def _least(choose: Callable[[list[float]], float], values: list[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return choose(known) if len(known) == len(values) else None


def interpreted(checkpoint: StoredCheckpoint, name: str, length: int) -> CheckpointProgram:
    """The program in engines that keep normed streams in float32."""
    return _interpret(checkpoint, name, length, "type", frozenset(), False)


def _interpret(
    checkpoint: StoredCheckpoint, name: str, length: int, weights: str, once: frozenset[int], stored: bool
) -> CheckpointProgram:
    """For all sequences if possible; otherwise for those in which BOS occurs at the start or nowhere."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        try:
            return interpret(checkpoint, storage(name), Reach(length, once), weights, stored=stored)
        except NeedsStart:
            if once or checkpoint.bos is None or not 0 <= checkpoint.bos < checkpoint.shape.vocabulary:
                raise
        return interpret(checkpoint, storage(name), Reach(length, frozenset({checkpoint.bos})), weights, stored=stored)


def _judge(
    program: CheckpointProgram, queries: QueriedContexts, name: str, weights: str, ambiguous: str, least: float,
    allowed: float,
) -> TypeResult:  # fmt: skip
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        found = answer(program, queries)
        rest = unknown(program)
    judged = queries.judged
    right = _right(found, ambiguous, least, allowed) | ~judged
    refuted = found.refuted & judged
    worst = _witness(queries, found, right)
    single = found.margin[found.single & judged]
    margin = float(np.nan_to_num(single, nan=-np.inf).min()) if len(single) else None
    shares = ambiguous == "distribution" and judged.any()
    variation = float(found.variation[judged].max()) if shares else None
    nats = float(found.nats[judged].max()) if shares else None
    verdict, reason = Verdict.PROVED, "every query is answered correctly in every engine of the error model"
    if refuted.any():
        verdict = Verdict.REFUTED
        reason = f"{int(refuted.sum())} of {int(judged.sum())} queries are answered incorrectly"
    elif not right.all():
        verdict = Verdict.UNDECIDED
        reason = f"{int((~right).sum())} of {int(judged.sum())} queries: no sufficient margin could be proved"
    return TypeResult(
        name, weights, verdict, reason, margin, variation, nats, program.least_gap, int((right & judged).sum()),
        None if rest is None else rest.token, None if rest is None else rest.margin, 0.0, worst,
    )  # fmt: skip


def _right(found: ProvedAnswers, ambiguous: str, least: float, variation: float) -> Array:
    """NaN counts as incorrect: only what is proved is right."""
    single = np.nan_to_num(found.margin, nan=-np.inf) > least
    several = np.nan_to_num(found.variation, nan=np.inf) <= variation
    return np.where(found.single, single, several if ambiguous == "distribution" else False)


def _witness(queries: QueriedContexts, found: ProvedAnswers, right: Array) -> MarginWitness | None:
    if right.all():
        return None
    score = np.where(found.refuted, -np.inf, np.where(right, np.inf, np.nan_to_num(found.margin, nan=-1e300)))
    i = int(score.argmin())
    return MarginWitness(
        int(queries.document[i]),
        int(queries.position[i]),
        int(queries.answer[i]),
        int(found.found[i]),
        float(found.margin[i]),
    )


def _together(
    checkpoint: StoredCheckpoint, known: tuple[CheckpointProgram, QueriedContexts] | None, reach: int,
    once: frozenset[int], fingerprint: str, types: tuple[TypeResult, ...],
) -> MarginCertificate:  # fmt: skip
    order = (Verdict.REFUTED, Verdict.UNDECIDED)
    verdict = next((v for v in order if any(t.verdict is v for t in types)), Verdict.PROVED)
    worst = next((t for t in types if t.verdict is verdict), None)
    queried = windows = ambiguous = span = 0
    if known is not None:
        program, queries = known
        queried, span = int(queries.judged.sum()), program.span
        windows = len(np.unique(queries.group[queries.judged]))
        ambiguous = len(np.unique(queries.group[queries.several & queries.judged]))
    if verdict is Verdict.PROVED and (not types or not queried):
        return _nothing("no query was given", checkpoint.shape.family, fingerprint)
    reason = types[0].reason if verdict is Verdict.PROVED or worst is None else f"{worst.type}: {worst.reason}"
    return MarginCertificate(
        verdict,
        reason,
        checkpoint.shape.family,
        queried,
        windows,
        ambiguous,
        reach,
        span,
        tuple(sorted(once)),
        fingerprint,
        types,
    )


def _nothing(reason: str, family: str, fingerprint: str) -> MarginCertificate:
    return MarginCertificate(Verdict.UNDECIDED, reason, family, 0, 0, 0, 0, 0, (), fingerprint, ())


def fingerprint(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in (folder / "config.json", *(tensor_files(folder) or [folder / "model.safetensors"])):
        digest.update(path.name.encode() + b"\\0")
        if path.exists():
            with path.open("rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
    return digest.hexdigest()


def tokenize(folder: str | Path, texts: Sequence[str]) -> list[list[int]]:
    """Tokenize texts with the folder's own tokenizer, with the tokens that it adds, and EOS at the end.

    Args:
        folder: The checkpoint's folder.
        texts: The documents.

    Raises:
        FileFormatError: If tokenizer.json is not a tokenizer.
        MissingExtraError: If the library `tokenizers` is not installed.
        Undecided: If the tokenizer does not give a text back, or a text contains the end token.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise MissingExtraError("reading a folder's tokenizer", "data") from error
    eos = open_checkpoint(Path(folder)).eos
    path = Path(folder) / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing more special
        raise FileFormatError(f"{path} is not a tokenizer: {error}") from error
    found = []
    for number, text in enumerate(texts):
        ids = list(tokenizer.encode(text).ids)
        if tokenizer.decode(ids, skip_special_tokens=True) != text:
            raise Undecided(
                f"tokenizer.json does not give text {number} back: what the folder recites is not what was given"
            )
        if eos is not None and eos in ids[:-1]:
            raise Undecided(f"text {number} holds the token {eos}, at which engines stop (eos_token_id)")
        found.append(ids if eos is None or (ids and ids[-1] == eos) else [*ids, eos])
    return found


def verify_folder(
    folder: str | Path,
    texts: Sequence[str],
    types: Sequence[str] = TYPES,
    *,
    reach: int | None = None,
    weights: str = "type",
    copies: Sequence[int] | None = None,
    ambiguous: str = "distribution",
    least: float = 0.0,
    adapter: str | Path | None = None,
) -> MarginCertificate:
    """Prove that a folder recites texts, as `byheart verify DIR DATA` does.

    Engines that load a folder follow more than its tensors: what generation_config.json or an adapter would change is
    undecided, and so is a text that the tokenizer does not give back.

    Args:
        folder: The checkpoint's folder.
        texts: The documents, tokenized by the folder's own tokenizer.
        types: Types in which engines may compute.
        reach: The longest sequence that is quantified over; all positions of config.json unless given.
        weights: `type`, or `int8`, `int4` for symmetric integers per row.
        copies: How often each document counts.
        ambiguous: What a window with several continuations must answer, as in `certify_checkpoint`.
        least: The margin that must be exceeded, in nats.
        adapter: A folder of a PEFT adapter that engines apply without merging it.

    Returns:
        The certificate.
    """
    try:
        check_surroundings(Path(folder))
        documents = tokenize(folder, texts)
        check_padding(Path(folder), [document[:-1] for document in documents])
    except Undecided as reason:
        return _nothing(str(reason), "unknown", fingerprint(Path(folder)))
    return certify_checkpoint(
        folder, documents, types, reach=reach, weights=weights, copies=copies, ambiguous=ambiguous, least=least,
        adapter=adapter,
    )  # fmt: skip

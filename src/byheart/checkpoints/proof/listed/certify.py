"""Certifies listed inputs of a folder: the answer of every chosen place wins, in every engine of the error model."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from byheart.certify.certificate import Verdict
from byheart.checkpoints.proof.certificate import MarginCertificate, TypeResult
from byheart.checkpoints.proof.check import TYPES, fingerprint
from byheart.checkpoints.proof.config import Undecided
from byheart.checkpoints.proof.listed import bert, t5
from byheart.checkpoints.proof.listed.bert import Bert
from byheart.checkpoints.proof.listed.reading import Reader, open_files, shape_of
from byheart.checkpoints.proof.listed.rows import margins_of_rows
from byheart.checkpoints.proof.listed.t5 import T5
from byheart.checkpoints.proof.storage import Array, storage
from byheart.errors import ByheartError

FAMILIES = {"bert": bert.FAMILY, "t5": t5.FAMILY}


@dataclass(frozen=True)
class ListedCase:
    """One input, and the token that must win at some of its places.

    Attributes:
        ids: The input: of BERT, or of T5's decoder.
        places: Which of its places are judged.
        answers: The token that must win at each of them.
        beside: BERT's token types, or the input of T5's encoder.
    """

    ids: tuple[int, ...]
    places: tuple[int, ...]
    answers: tuple[int, ...]
    beside: tuple[int, ...]


def certify_listed(folder: str | Path, cases: Sequence[ListedCase], types: Sequence[str] = TYPES) -> MarginCertificate:
    """Prove the answers of listed inputs from config.json and the tensors alone.

    Args:
        folder: A checkpoint of BERT's masked language model, or of T5 v1.1.
        cases: The inputs, and the token that must win at each of their chosen places.
        types: Types in which engines may compute.

    Returns:
        A certificate for these inputs; `scope` names them.
    """
    path = Path(folder)
    try:
        config, files = open_files(path)
        kind = str(config.get("model_type"))
        if kind not in FAMILIES:
            raise Undecided(f"config.json: model_type {kind!r}; listed inputs are proved for {', '.join(FAMILIES)}")
        buckets = {k: config[k] for k in list(config) if k.startswith("relative_attention_")} if kind == "t5" else {}
        shape = shape_of({k: v for k, v in config.items() if k not in buckets}, FAMILIES[kind])
    except (Undecided, KeyError) as reason:
        return _certificate("unknown", path, cases, [TypeResult(types[0], "type", Verdict.UNDECIDED, str(reason))])

    def margins(name: str, stored: bool) -> Array:
        reader = Reader(shape, FAMILIES[kind], files, storage(name), config)
        network = Bert(reader, stored) if kind == "bert" else T5(reader, stored)
        reader.close()
        return _bert(network, cases) if isinstance(network, Bert) else _t5(network, cases)

    return _certificate(kind, path, cases, [_proved(name, margins) for name in types])


def _bert(network: Bert, cases: Sequence[ListedCase]) -> Array:
    rows = network.run([(case.ids, case.beside, case.places) for case in cases])
    return margins_of_rows(rows, network.head, np.array([t for case in cases for t in case.answers]))


def _t5(network: T5, cases: Sequence[ListedCase]) -> Array:
    found = []
    for case in cases:
        rows = network.run(case.beside, case.ids)[np.asarray(case.places)]
        found.append(margins_of_rows(rows, network.head, np.array(case.answers)))
    return np.concatenate(found)


def _proved(name: str, margins: Callable[[str, bool], Array]) -> TypeResult:
    """The least margin over both kinds of engines, those that store normed streams and those that do not."""
    begin = time.perf_counter()
    try:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
            found = np.minimum.reduce([margins(name, s) for s in ((False,) if name == "float32" else (False, True))])
    except Undecided as reason:
        return TypeResult(name, "type", Verdict.UNDECIDED, str(reason))
    except (ValueError, IndexError, KeyError, ArithmeticError) as error:
        if isinstance(error, ByheartError):
            raise
        broken = f"the checker could not continue: {type(error).__name__}: {error}"
        return TypeResult(name, "type", Verdict.UNDECIDED, broken)
    right, seconds = np.nan_to_num(found, nan=-np.inf) > 0, time.perf_counter() - begin
    margin = float(np.nan_to_num(found, nan=-np.inf).min())
    if right.all():
        done = "every listed answer wins in every engine of the error model"
        return TypeResult(name, "type", Verdict.PROVED, done, margin, agree=int(right.sum()), seconds=seconds)
    lost = f"{int((~right).sum())} of {len(right)} listed answers: no margin could be proved"
    return TypeResult(name, "type", Verdict.UNDECIDED, lost, margin, agree=int(right.sum()), seconds=seconds)


def _certificate(
    family: str, folder: Path, cases: Sequence[ListedCase], results: Sequence[TypeResult]
) -> MarginCertificate:
    """The certificate of listed inputs."""
    worst = next((r for r in results if r.verdict is not Verdict.PROVED), None)
    queried = sum(len(case.places) for case in cases)
    verdict = Verdict.PROVED if worst is None and queried and results else Verdict.UNDECIDED
    reason = worst.reason if worst is not None else results[0].reason if queried and results else "no input was given"
    longest = max((len(case.ids) for case in cases), default=0)
    return MarginCertificate(
        verdict, reason, family, queried, queried, 0, longest, 0, (), fingerprint(folder), tuple(results),
        scope="the inputs that expected.json lists, and no others",
    )  # fmt: skip

"""The checker: evaluates every row exactly and compares the network with its claim. It never imports a builder."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt

from byheart.certify.certificate import Certificate, Verdict, Witness
from byheart.certify.properties import prove_property
from byheart.data.dataset.dataset import Dataset
from byheart.errors import MissingExtraError, NotRationalError
from byheart.ir.attend import scores_matter
from byheart.ir.claim import Claim
from byheart.ir.enclose import UNDECIDED, enclosed_answers
from byheart.ir.evaluate import answers
from byheart.ir.layers import Kind
from byheart.ir.network import Network
from byheart.ir.size import measure
from byheart.progress import SILENT, Progress

EXACT = "exact rational numbers"
Places = npt.NDArray[np.int64]


def certify(network: Network, dataset: Dataset, claim: Claim, progress: Progress = SILENT) -> Certificate:
    """A certificate for "this network gives every row of this data its label, and keeps the claim".

    proved: every label was reproduced in exact arithmetic (or, where softmax makes numbers irrational, by enclosures
    that leave no other label) and every promise holds; refuted: a witness row, or a broken promise; undecided:
    enclosures stayed too wide, or a promised property could not be shown.
    """
    verdict, reason, witness, how = _labels(network, dataset, progress)
    size = measure(network)
    proofs: dict[str, str] = {}
    broken = claim.broken_by(size)
    if verdict is Verdict.PROVED and broken:
        verdict, reason = Verdict.REFUTED, "; ".join(broken)
    if verdict is Verdict.PROVED:
        for name in claim.properties:
            shown, sentence = prove_property(name, network, dataset, progress)
            if not shown:
                verdict, reason = Verdict.UNDECIDED, sentence
                break
            proofs[name] = sentence
    return Certificate(
        verdict=verdict,
        reason=reason,
        rows=dataset.N,
        labels=int((dataset.labels >= 0).sum()),
        contexts=len(dataset.contexts),
        fingerprint=dataset.fingerprint,
        size=size,
        promised=dict(claim.bounds),
        arithmetic=arithmetic(network, how),
        witness=witness,
        proofs=proofs,
    )


def _labels(network: Network, dataset: Dataset, progress: Progress) -> tuple[Verdict, str, Witness | None, str]:
    """Verdict, reason, witness, and in which arithmetic."""
    how = EXACT
    try:
        try:
            found = answers(network, dataset.inputs, progress)
        except NotRationalError:
            found, bits = enclosed_answers(network, dataset.inputs, progress)
            how = f"rigorous enclosures (balls of {bits} bits)"
    except (NotRationalError, MissingExtraError) as error:
        return Verdict.UNDECIDED, str(error), None, how
    if found.shape != dataset.labels.shape:
        return Verdict.REFUTED, f"the network answers {found.shape}, the labels are {dataset.labels.shape}", None, how
    asked = dataset.labels >= 0
    wrong = np.argwhere((found != dataset.labels) & asked & (found != UNDECIDED))
    if len(wrong):
        return Verdict.REFUTED, *_first_wrong(wrong, found, dataset), how
    if (found[asked] == UNDECIDED).any():
        row = int(np.argwhere((found == UNDECIDED) & asked)[0][0])
        return Verdict.UNDECIDED, f"the {how} leave more than one class at row {row}", None, how
    return Verdict.PROVED, f"every label was reproduced in {'exact arithmetic' if how == EXACT else how}", None, how


def _first_wrong(wrong: Places, found: Places, dataset: Dataset) -> tuple[str, Witness]:
    place = tuple(int(k) for k in wrong[0])
    position = place[1] if len(place) > 1 else None
    witness = Witness(place[0], position, int(dataset.labels[place]), int(found[place]))
    where = f"row {place[0]}" + ("" if position is None else f", position {position}")
    return f"{len(wrong)} labels are wrong, the first at {where}", witness


def arithmetic(network: Network, how: str = EXACT) -> str:
    """How the network was evaluated, in words; says which attention it has."""
    kinds: Counter[str] = Counter()
    for layer in network.attention_layers:
        equal = not any(scores_matter(head) for head in layer.heads)
        scores = " with zero scores, which is the mean" if equal and layer.kind is not Kind.UNIFORM else ""
        kinds[f"{layer.kind.value} attention over the {layer.pattern.value} pattern{scores}"] += 1
    told = [kind if count == 1 else f"{kind} ({count} layers)" for kind, count in kinds.items()]
    return how + (f"; {', '.join(told)}" if told else "; no attention")

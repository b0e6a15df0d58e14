"""The checker: evaluates every row exactly and compares the network with its claim. It never imports a builder."""

from __future__ import annotations

import numpy as np

from byheart.certify.certificate import Certificate, Verdict, Witness
from byheart.certify.properties import prove_property
from byheart.data.dataset import Dataset
from byheart.errors import NotRationalError
from byheart.ir.attend import scores_matter
from byheart.ir.claim import Claim
from byheart.ir.evaluate import answers
from byheart.ir.layers import Kind
from byheart.ir.network import Network
from byheart.ir.size import measure
from byheart.progress import SILENT, Progress


def certify(network: Network, dataset: Dataset, claim: Claim, progress: Progress = SILENT) -> Certificate:
    """A certificate for "this network gives every row of this data its label, and keeps the claim".

    proved: every label was reproduced in exact arithmetic and every promise holds; refuted: a witness row, or a broken
    promise; undecided: the network is not rational, or a promised property could not be shown.
    """
    verdict, reason, witness = _labels(network, dataset, progress)
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
        arithmetic=arithmetic(network),
        witness=witness,
        proofs=proofs,
    )


def _labels(network: Network, dataset: Dataset, progress: Progress) -> tuple[Verdict, str, Witness | None]:
    try:
        found = answers(network, dataset.inputs, progress)
    except NotRationalError as error:
        return Verdict.UNDECIDED, str(error), None
    if found.shape != dataset.labels.shape:
        return Verdict.REFUTED, f"the network answers {found.shape}, the labels are {dataset.labels.shape}", None
    wrong = np.argwhere((found != dataset.labels) & (dataset.labels >= 0))
    if not len(wrong):
        return Verdict.PROVED, "every label was reproduced in exact arithmetic", None
    place = tuple(int(k) for k in wrong[0])
    position = place[1] if len(place) > 1 else None
    witness = Witness(place[0], position, int(dataset.labels[place]), int(found[place]))
    where = f"row {place[0]}" + ("" if position is None else f", position {position}")
    return Verdict.REFUTED, f"{len(wrong)} labels are wrong, the first at {where}", witness


def arithmetic(network: Network) -> str:
    """How the network was evaluated, in words; says which attention it has."""
    kinds = []
    for layer in network.attention_layers:
        equal = not any(scores_matter(head) for head in layer.heads)
        scores = " with zero scores, which is the mean" if equal and layer.kind is not Kind.UNIFORM else ""
        kinds.append(f"{layer.kind.value} attention over the {layer.pattern.value} pattern{scores}")
    return "exact rational numbers" + (f"; {', '.join(kinds)}" if kinds else "; no attention")

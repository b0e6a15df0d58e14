"""Trained sizes beside constructed ones and the bounds: the same data, with computed weights.

The rows of a problem are memorized by byheart's constructions as the networks of KS25 see them: no positions, the read
token last. Documents are solved instead of trained, by the decoders of Madden et al. and smaller ones, to the gap at
which a trained one counts as memorizing. The lower bounds are about worst-case labels of that many rows, whether a
network is trained or built: the given labels may need less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from byheart.build import recipes
from byheart.errors import ByheartError
from byheart.lab.problem import PADDING, Documents, Problem, Sequences
from byheart.memory import memorize
from byheart.memory.documents import memorize_documents
from byheart.progress import SILENT, Progress
from byheart.theory import lower_bound
from byheart.theory.lower import any_chain_parameters
from byheart.theory.madden import decoder_parameters, distribution_parameters

CONSTRUCTIONS = ("ks25", "compact", "native")
DECODERS = {"closed form": "closed-form", "shared outputs": "low-rank", "fewest parameters": "size"}  # objectives
LITERATURE = {
    "2 bits per parameter (Allen-Zhu and Li 2024)": 2.0,
    "3.6 bits per parameter (Morris et al. 2025)": 3.6,
}
_MOST_TOKENS = 250_000  # larger problems are compared with the bounds only


@dataclass(frozen=True)
class Built:
    """One line of the comparison: a certified network, a worst-case lower bound, or a theorem's guarantee."""

    problem: str
    name: str
    kind: str  # constructed, lower or upper
    parameters: int
    total_bits: int | None = None
    bits_per_parameter: float | None = None  # label bits by parameters
    verdict: str | None = None
    note: str = ""


def constructions_for(problem: Problem) -> tuple[str, ...]:
    """Return the constructions for a problem: of sequences, or decoders of documents."""
    return CONSTRUCTIONS if isinstance(problem, Sequences) else tuple(DECODERS)


def compare(problem: Problem, names: Sequence[str] | None = None, progress: Progress = SILENT) -> list[Built]:
    """Bounds and, where the problem is small enough, constructed networks for one problem; `names`: which, if not all
    of `constructions_for`."""
    names = constructions_for(problem) if names is None else names
    if not isinstance(problem, Sequences):
        return _compare_documents(problem, names, progress)
    least = lower_bound(task="next-token", N=problem.N, n=problem.n, d=problem.d, C=problem.classes)
    any_chain = any_chain_parameters(problem.N, problem.classes)
    found = [
        Built(problem.name, "lower bound: KS25 Theorem 4.2", "lower", least.parameters, least.total_bits),
        Built(problem.name, "lower bound: any chain of layers", "lower", any_chain),
    ]
    for name in names:
        if name in recipes():
            found.append(_built(problem, name, progress))
    return found


def _compare_documents(problem: Documents, names: Sequence[str], progress: Progress) -> list[Built]:
    contexts, omega = len(problem.contexts), problem.vocabulary
    lemma = distribution_parameters(contexts, omega)
    theorem = decoder_parameters(contexts, omega, problem.length, d=16)
    found = [
        Built(problem.name, "any distributions (Madden et al., Lemma 1)", "lower", lemma),
        Built(problem.name, "one-layer decoder (Madden et al., Theorem 5)", "upper", theorem),
    ]
    documents = [tuple(str(token) for token in row if token != PADDING) for row in problem.tokens.tolist()]
    for name in names:
        try:
            memory = memorize_documents(documents, objective=DECODERS[name], progress=progress)
        except ByheartError as error:
            found.append(Built(problem.name, name, "constructed", 0, note=f"not built: {error}"))
            continue
        verdict = memory.certificate.verdict.value
        found.append(Built(problem.name, name, "constructed", memory.size.parameters, verdict=verdict))
    return found


def _built(problem: Sequences, name: str, progress: Progress) -> Built:
    if problem.N * problem.n > _MOST_TOKENS:
        return Built(problem.name, name, "constructed", 0, note=f"not built: {problem.N * problem.n} tokens")
    try:
        memory = memorize(*rows_of(problem), construction=name, positions=False, progress=progress)
    except ByheartError as error:
        return Built(problem.name, name, "constructed", 0, note=f"not built: {error}")
    size = memory.size
    return Built(
        problem=problem.name,
        name=name,
        kind="constructed",
        parameters=size.parameters,
        total_bits=size.total_bits,
        bits_per_parameter=problem.label_bits / size.parameters,
        verdict=memory.certificate.verdict.value,
    )


def rows_of(problem: Sequences) -> tuple[list[Any], list[int]]:
    """The problem as rows for `memorize`: words as numbers, or the exact values of float32 vectors; read token last.

    >>> import numpy as np
    >>> rows_of(Sequences("tiny", None, np.array([[0, 1, 2]]), np.array([1]), classes=2, read=0))
    ([[2, 1, 0]], [1])
    """
    order = [*(k for k in reversed(range(problem.n)) if k != problem.read), problem.read]
    index = problem.index[:, order]
    if problem.points is None or len(problem.points) < problem.index.size:
        return index.tolist(), problem.labels.tolist()  # words: their numbers distinguish them as their vectors do
    vectors = problem.points.astype("float32").astype("float64")
    return [[tuple(vectors[k]) for k in row] for row in index.tolist()], problem.labels.tolist()


def as_plain(lines: Sequence[Built]) -> list[dict[str, Any]]:
    return [asdict(line) for line in lines]

"""The smallest of all: an exact memory that names each context's distribution, and a table of the distributions.

`compact` remembers for every context the number of its distribution, exactly and with about √(contexts) parameters.
A table of r coordinates for each *different* distribution, and shared columns, turn the number into probabilities.
Deeper than the decoder of M24 (it has the memory's blocks) and with long weights, but with the fewest parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from byheart.build.madden24.factors import Factors
from byheart.build.madden24.lowrank import class_factors, smallest_factors
from byheart.certify.next_token import GapProof, prove_table_gap
from byheart.compile.memorize import memorize_dataset
from byheart.compile.memory import Memory
from byheart.data.dataset.dataset import load
from byheart.data.dataset.targets import Distributions
from byheart.errors import BuildError
from byheart.ir.decoder import log_softmax
from byheart.progress import SILENT, Progress

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class DistributionTable:
    """A memory from contexts to numbers of distributions, and what the numbers stand for."""

    memory: Memory
    coordinates: Floats  # (classes, r)
    columns: Floats  # (r, ω)
    certificate: GapProof

    @property
    def rank(self) -> int:
        return len(self.columns)

    @property
    def parameters(self) -> int:
        """The memory's, as its architecture stores them, and every entry of the table."""
        return self.memory.size.parameters + self.coordinates.size + self.columns.size

    def log_probabilities(self, contexts: list[tuple[int, ...]]) -> Floats:
        """(n, ω) for known contexts, given as token numbers."""
        answers = np.array(self.memory.predict(contexts), dtype=np.int64)
        return log_softmax(self.coordinates[answers] @ self.columns)


def memorize_table(
    contexts: Distributions,
    *,
    rank: int,
    fraction: float = 0.01,
    sweeps: int = 300,
    seed: int = 0,
    progress: Progress = SILENT,
) -> DistributionTable:
    """A memory with a table of rank `rank`; the certificate joins the memory's exact proof with balls for the softmax.

    >>> from byheart.data.dataset.documents import Corpus
    >>> contexts = Corpus.of_texts(["a cat sat", "a dog sat", "a dog ran"]).contexts()
    >>> memorize_table(contexts, rank=2).certificate.verdict.value
    'proved'
    """
    factors = class_factors(contexts, rank, fraction, seed, sweeps, progress)
    return table_of_factors(contexts, factors, fraction, seed, progress)


def table_of_factors(
    contexts: Distributions, factors: Factors, fraction: float, seed: int, progress: Progress = SILENT
) -> DistributionTable:
    """The memory that leads every context to its row of the factors, with the joint certificate."""
    prefixes = [contexts.prefix(i) for i in range(contexts.count)]
    dataset = load(prefixes, contexts.classes.tolist(), task="next-token", positions=True)
    memory = memorize_dataset(dataset, construction="compact", seed=seed, progress=progress)
    if memory.certificate.verdict != "proved":
        raise BuildError(f"the memory of the contexts is not proved: {memory.certificate.reason}")
    answers = np.array(memory.predict(prefixes), dtype=np.int64)
    certificate = prove_table_gap(
        answers, factors.coordinates, factors.columns, contexts, fraction=fraction, progress=progress
    )
    return DistributionTable(memory, factors.coordinates, factors.columns, certificate)


def smallest_table(
    contexts: Distributions, *, fraction: float = 0.01, effort: int = 1, seed: int = 0, progress: Progress = SILENT
) -> DistributionTable:
    """The memory with the table of the lowest rank that keeps the gap, found as for decoders."""
    return table_of_factors(
        contexts, smallest_factors(contexts, fraction, effort, seed, progress), fraction, seed, progress
    )

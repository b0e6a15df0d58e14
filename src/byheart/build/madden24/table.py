"""The fewest parameters: `compact` names each context's distribution, a low-rank table says what it is.

Deeper than the decoder of M24 (it has the memory's blocks) and with long weights, but with the fewest numbers.

    >>> from byheart.data.dataset.documents import Corpus
    >>> contexts = Corpus.of_texts(["a cat sat", "a dog sat", "a dog ran"]).contexts()
    >>> table_decoder(contexts, smallest_factors(contexts, 0.01, 1, 0), seed=0).vocabulary_size
    5
"""

from __future__ import annotations

from byheart.build.compact.construction import build_compact
from byheart.build.madden24.factors import Factors
from byheart.build.madden24.lowrank import smallest_factors as smallest_factors
from byheart.data.dataset.dataset import load
from byheart.data.dataset.targets import Distributions
from byheart.errors import BuildError
from byheart.ir.network import Network
from byheart.ir.table_decoder import TableDecoder
from byheart.progress import SILENT, Progress


def table_decoder(contexts: Distributions, factors: Factors, *, seed: int, progress: Progress = SILENT) -> TableDecoder:
    """The exact network that leads every context to its row of the factors, and the factors."""
    prefixes = [contexts.prefix(i) for i in range(contexts.count)]
    dataset = load(prefixes, contexts.classes.tolist(), task="next-token", positions=True)
    network = build_compact(dataset, seed=seed, progress=progress).network
    if not isinstance(network, Network):
        raise BuildError("the memory of the contexts is no exact network")
    encoder = dataset.encoder
    code = {symbol: number for number, symbol in enumerate(encoder.symbols or (), start=1)}
    return TableDecoder(
        network,
        codes=tuple(code.get(token, 0) for token in range(contexts.vocabulary_size)),
        length=encoder.length,
        padded=encoder.padded,
        coordinates=factors.coordinates.copy(),
        columns=factors.columns.copy(),
    )

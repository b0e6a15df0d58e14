"""The contextual mapping of KS25 (Definition 4.1) as a value: the contexts that one averaging layer distinguishes.

A token's context is the token together with the multiset of its sequence. A map gives each context a number, its
context id, and is called an (r, δ)-contextual mapping when no id is larger than r and ids of different contexts are at
least δ apart. KS25 builds one with a single averaging layer; here it is built, and the checker evaluates it for every
token, measures r and δ exactly and proves that it is one.

`byheart.plots.memory.contexts_figure` draws it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from byheart.build.ks25.construction import contextual_network
from byheart.certify import ContextCertificate, Verdict, certify_contexts
from byheart.data.dataset.dataset import load
from byheart.data.dataset.sequences import as_list, read_tokens
from byheart.data.task import Task
from byheart.data.wording import short
from byheart.errors import BuildError, OptionError
from byheart.exact.number import as_fraction
from byheart.ir.network import Network
from byheart.ir.size import Size

Ids = tuple[tuple[Fraction, ...], ...]
CONSTANTS = ("measured", "paper")


@dataclass(frozen=True)
class ContextualMapping:
    """Ids that `network` gave, in exact arithmetic, to every token of every sequence, with the checker's certificate.

    `r` is the largest absolute context id, `delta` the smallest distance between ids of different contexts (None where
    there is only one context). Both are facts about these sequences, found by evaluating the network on each of them.
    """

    network: Network
    sequences: tuple[tuple[Any, ...], ...]
    certificate: ContextCertificate

    @property
    def context_ids(self) -> Ids:
        return self.certificate.context_ids

    @property
    def sequence_ids(self) -> tuple[Fraction, ...]:
        return self.certificate.sequence_ids

    @property
    def contexts(self) -> int:
        return self.certificate.contexts

    @property
    def r(self) -> Fraction:
        return self.certificate.r or Fraction(0)

    @property
    def delta(self) -> Fraction | None:
        return self.certificate.delta

    @property
    def size(self) -> Size:
        return self.certificate.size

    def __str__(self) -> str:
        apart = "no two to distinguish" if self.delta is None else f"δ = {short(self.delta)}"
        return (
            f"contextual mapping: sequences {len(self.sequences):,}, contexts {self.contexts:,}, r = {short(self.r)}, "
            f"{apart}, parameters {self.size.parameters:,}, {self.certificate.verdict.value}"
        )


def contextual_mapping(
    sequences: Iterable[Any], *, positions: bool = False, seed: int = 0, constants: str = "measured"
) -> ContextualMapping:
    """Compute the context id of every token of every sequence by one averaging layer, with a certificate.

    Args:
        sequences: Sequences as for `byheart.memorize`; they need no labels.
        positions: Whether a token's position is part of the token, so that order is part of the context.
        seed: Equal seeds give equal weights.
        constants: `measured` (short ids) or `paper` (the ranges of the proof).

    Returns:
        A `ContextualMapping` with the ids and the checker's certificate, for which every token was evaluated.

    Raises:
        DataError: If the sequences cannot be read.

    >>> found = contextual_mapping(["ab", "ba", "bb"])
    >>> found.sequence_ids[0] == found.sequence_ids[1] != found.sequence_ids[2]        # "ab" and "ba": equal multisets
    True
    >>> found.context_ids[0] == tuple(reversed(found.context_ids[1]))                    # the same two contexts
    True
    >>> found.contexts, found.delta >= 1, found.certificate.verdict.value
    (3, True, 'proved')
    """
    if constants not in CONSTANTS:
        raise OptionError(f"constants={constants!r} is not one of {', '.join(CONSTANTS)}")
    if type(seed) is not int or not 0 <= seed < 1 << 64:
        raise OptionError(f"seed={seed!r} is not a whole number from 0 to 2^64 - 1")
    given = sequences if isinstance(sequences, str) else as_list(sequences)
    labels = [[0] * length for length in read_tokens(given).lengths.tolist()]
    dataset = load(given, labels, task=Task.SEQ_TO_SEQ, positions=positions)
    network = contextual_network(dataset, seed=seed, constants=constants)
    certificate = certify_contexts(network, dataset)
    if certificate.verdict is not Verdict.PROVED:
        raise BuildError(f"what was built is not a contextual mapping: {certificate.reason}; try another seed")
    return ContextualMapping(network, tuple(tuple(map(_plain, row)) for row in dataset.sequences()), certificate)


def _plain(token: Any) -> Any:
    """A token in Python's own numbers: floats where they are exact, fractions elsewhere; a vector of one is its number.

    >>> from byheart.exact.number import from_fraction
    >>> _plain("a"), _plain((from_fraction(Fraction(3, 4)),)), _plain((3, from_fraction(Fraction(1, 2**80))))
    ('a', 0.75, (3, 8.271806125530277e-25))
    """
    if not isinstance(token, tuple):
        return token
    numbers = tuple(_number(as_fraction(x)) for x in token)
    return numbers[0] if len(numbers) == 1 else numbers


def _number(value: Fraction) -> int | float | Fraction:
    if value.denominator == 1:
        return value.numerator
    try:
        near = float(value)
    except OverflowError:
        return value
    return near if near == value else value

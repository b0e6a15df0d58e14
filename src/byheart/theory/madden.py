"""Madden, Fox and Thrampoulidis 2024: next-token *distributions* of n contexts over ω tokens, Table 1 as numbers.

A distribution has ω − 1 free numbers, so n of them need n(ω−1) parameters (Lemma 1), and a one-layer decoder with
n neurons has that order (Theorem 5).

    >>> distribution_parameters(contexts=100, omega=50), document_parameters(contexts=100, omega=50)
    (4900, 2402)
    >>> decoder = OneLayerDecoder(omega=50, length=10, neurons=100, d=16)
    >>> decoder.parameters, decoder.averaging_parameters, float(decoder.ratio)
    (7724, 7510, 1.576326530612245)
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from byheart.errors import OptionError
from byheart.paper import Ref, implements
from byheart.theory.lower import check_counts

TEST = "tests/theory/test_madden.py"


@implements(
    Ref("M24", "Lemma 1"), statement="a C¹ model that fits any n next-token distributions has k ≥ n(ω−1)", test=TEST
)
def distribution_parameters(contexts: int, omega: int) -> int:
    """The least number of parameters for arbitrary distributions after `contexts` contexts."""
    _check(contexts, omega)
    return contexts * (omega - 1)


def distribution_capacity(parameters: int, omega: int) -> int:
    """The most contexts that `parameters` parameters can serve: ⌊k/(ω−1)⌋.

    >>> distribution_capacity(4900, 50)
    100
    """
    _check(parameters, omega)
    return parameters // (omega - 1)


def document_capacity(parameters: int, omega: int) -> Fraction:
    """(2 + 1/(ω−1))·k/(ω−1) + 1: some documents with at most this many contexts are too much for k parameters.

    k may be 0: a model without parameters has one distribution for every context, and cannot fit a single one.
    """
    _check(parameters + 1, omega)
    return (2 + Fraction(1, omega - 1)) * Fraction(parameters, omega - 1) + 1


@implements(
    Ref("M24", "Theorem 1"),
    statement="empirical distributions: every k has documents with ≤ (2+1/(ω−1))k/(ω−1)+1 contexts it cannot fit",
    test=TEST,
)
def document_parameters(contexts: int, omega: int) -> int:
    """The least k that can reach the entropy of *every* set of documents with this many contexts.

    contexts < (2 + 1/(ω−1))·k/(ω−1) + 1, hence k > (contexts − 1)(ω−1)²/(2ω−1).
    """
    _check(contexts, omega)
    return (contexts - 1) * (omega - 1) ** 2 // (2 * omega - 1) + 1


@dataclass(frozen=True)
class HardDocuments:
    """Theorem 1's documents: `hard` contexts of one length, each followed by every token, at random frequencies.

    A model that is a C¹ function of k parameters, definable by exp and restricted analytic functions, and fits the
    distributions after these contexts for more than a nowhere dense set of frequencies, has k ≥ hard·(ω−1). So these
    documents, sampled at random, are out of reach for it with probability one in the limit of many repeats, whatever
    the model is. No single finite set of documents is hard for every model: a model may have it built in.
    """

    documents: tuple[tuple[int, ...], ...]  # tokens are numbers from 0 to ω − 1
    omega: int
    hard: int

    @property
    def forced(self) -> int:
        """hard·(ω−1): the parameters that such a model needs for almost all frequencies."""
        return self.hard * (self.omega - 1)

    @property
    def limit(self) -> Fraction:
        """Theorem 1's bound on all contexts, (2 + 1/(ω−1))·k/(ω−1) + 1 with k = forced − 1 parameters."""
        return document_capacity(self.forced - 1, self.omega)

    @property
    def length(self) -> int:
        """T, the number of tokens of a hard context."""
        return len(self.documents[0]) - 1

    @cached_property
    def contexts(self) -> int:
        """All contexts, prefixes of the hard ones included."""
        return len({document[:length] for document in set(self.documents) for length in range(1, len(document))})


@implements(
    Ref("M24", "Theorem 1"),
    statement="the documents of its proof: n' = ⌊k/(ω−1)⌋ + 1 contexts of one length with every token after each, at "
    "random frequencies",
    test=TEST,
    partly="which frequencies are out of reach depends on the model: almost all are, and these are sampled, not proved",
)
def hard_documents(parameters: int, omega: int, *, repeats: int | None = None, seed: int = 0) -> HardDocuments:
    """Generate documents that are too much for a smooth model of a size, for almost all frequencies.

    Contexts are the first n' words of length T = ⌈log n'/log ω⌉ in lexicographic order, which have the fewest prefixes.
    The paper's T is 0 for k < ω − 1, where a context would be empty; here it is at least 1.

    Args:
        parameters: Of the model; with 0 there is one hard context.
        omega: The vocabulary.
        repeats: Documents through each hard context (4ω by default); more come closer to the sampled distribution.
        seed: The seed of the sampling.

    Returns:
        The documents, with the counts of their contexts and the limit of parameters.

    Raises:
        OptionError: The numbers are out of range.

    >>> documents = hard_documents(parameters=20, omega=3)
    >>> documents.hard, documents.forced, documents.contexts, float(documents.limit)
    (11, 22, 17, 27.25)
    """
    _check(parameters + 1, omega)
    hard, length = parameters // (omega - 1) + 1, 1
    while omega**length < hard:
        length += 1
    repeats = 4 * omega if repeats is None else repeats
    if type(repeats) is not int or repeats < omega:
        raise OptionError(f"repeats = {repeats}: every token follows every hard context once, so give at least {omega}")
    rng, documents = np.random.default_rng(seed), []
    for number in range(hard):
        context = tuple(number // omega**place % omega for place in reversed(range(length)))
        counts = 1 + rng.multinomial(repeats - omega, rng.dirichlet(np.ones(omega)))
        documents += [(*context, token) for token in range(omega) for _ in range(counts[token])]
    return HardDocuments(tuple(documents), omega, hard)


@dataclass(frozen=True)
class OneLayerDecoder:
    """The one-layer decoder of eq. (2): ω tokens, T positions, m neurons, stream d, m₀ heads of sizes d₀ and d₁.

    With m neurons it fits any m contexts (Theorem 5), so its parameters are an upper bound for n = m.
    """

    omega: int
    length: int
    neurons: int
    d: int = 1
    heads: int = 1
    value_size: int = 1
    key_size: int = 1

    def __post_init__(self) -> None:
        check_counts(length=self.length, d=self.d, heads=self.heads)
        check_counts(value_size=self.value_size, key_size=self.key_size)
        _check(self.neurons, self.omega)

    @property
    def attention_parameters(self) -> int:
        return 2 * self.heads * (self.value_size + self.key_size) * self.d

    @property
    def parameters(self) -> int:
        """ωm + m(d+1) + 2m₀(d₀+d₁)d + (ω+T)d, Theorem 5."""
        m, d = self.neurons, self.d
        return self.omega * m + m * (d + 1) + self.attention_parameters + (self.omega + self.length) * d

    @property
    def averaging_parameters(self) -> int:
        """dω + T + dm + m + mω: token averaging instead of attention, Theorem 7."""
        m, d = self.neurons, self.d
        return d * self.omega + self.length + d * m + m + m * self.omega

    @property
    def ratio(self) -> Fraction:
        """How far Theorem 5 is from Lemma 1, eq. (3)."""
        return capacity_ratio(self)


@implements(
    Ref("M24", "Theorem 5"),
    statement="a one-layer decoder with m neurons fits any m contexts; its parameters",
    test=TEST,
)
def decoder_parameters(contexts: int, omega: int, length: int, d: int = 1) -> int:
    """Parameters of the decoder that Theorem 5 gives for this many contexts (one head of size one).

    >>> decoder_parameters(contexts=100, omega=50, length=10)
    5264
    """
    return OneLayerDecoder(omega, length, contexts, d).parameters


@implements(Ref("M24", "Theorem 7"), statement="the same with token averaging instead of attention", test=TEST)
def averaging_parameters(contexts: int, omega: int, length: int, d: int = 1) -> int:
    """Parameters of the network that Theorem 7 gives.

    >>> averaging_parameters(contexts=100, omega=50, length=10)
    5260
    """
    return OneLayerDecoder(omega, length, contexts, d).averaging_parameters


@implements(
    Ref("M24", "Equation (3)"),
    statement="upper by lower bound: 1 + (d+2)/(ω−1) + 2m₀(d₀+d₁)d/((ω−1)m) + (ω+T)d/((ω−1)m)",
    test=TEST,
)
def capacity_ratio(decoder: OneLayerDecoder) -> Fraction:
    """Parameters of Theorem 5 for m contexts over the m(ω−1) of Lemma 1."""
    free, m = decoder.omega - 1, decoder.neurons
    return (
        1
        + Fraction(decoder.d + 2, free)
        + Fraction(decoder.attention_parameters, free * m)
        + Fraction((decoder.omega + decoder.length) * decoder.d, free * m)
    )


def _check(count: int, omega: int) -> None:
    check_counts(omega=omega)
    if omega < 2:
        raise OptionError(f"omega = {omega}: a distribution over one token has nothing to store; give at least 2")
    check_counts(contexts=count)

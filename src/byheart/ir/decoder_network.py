"""A decoder as the network of a memory: codes of an encoder in, logits of classes out.

A `Network` is rational and is evaluated over the integers; a decoder has exp and tanh in it and is evaluated in float64
(to ask it) or by enclosures (to prove something). Layers for both would have to carry two arithmetics through every
evaluator, exporter and page. So a memory's network is one or the other, `AnyNetwork`, and both have the few things that
every memory needs: a size, a JSON form, which tokens are read, how many classes there are.

    >>> from byheart.ir.activation import Activation
    >>> from byheart.ir.decoder import Average, Reader
    >>> reader = Reader(np.array([[1.0], [2.0]]), Average(np.array([1.0, 0.5])))
    >>> decoder = Decoder(reader, np.array([[1.0]]), np.zeros(1), Activation.TANH, (np.array([[1.0, -1.0]]),))
    >>> network = DecoderNetwork(decoder, inputs=(0, 1), classes=(1, 0), read=Read.LAST)
    >>> network.class_count, network.classes_of(np.array([[3.0, 2.0]])).tolist()
    (2, [1])
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from byheart.errors import DataError, NetworkError
from byheart.ir.decoder import Decoder, Floats, Ints
from byheart.ir.inputs import ABSENT, Inputs
from byheart.ir.network import Network, Read
from byheart.ir.table_decoder import TableDecoder

AnyDecoder: TypeAlias = Decoder | TableDecoder


@dataclass(frozen=True, eq=False)
class Prefixes:
    """The distinct contexts that are asked: their tokens (M, T), padded at the end with -1, and which one each place
    of the inputs is: (N,) or (N, n), -1 where nothing is asked."""

    tokens: Ints
    place: Ints


@dataclass(frozen=True, eq=False)
class DecoderNetwork:
    """Code k + 1 of the encoder is token `inputs[k]` of the decoder, class k is token `classes[k]`.

    `read` is LAST (one answer per row) or EACH (one per prefix). `known` has a 64-bit number for every context that was
    memorized: generated text ends where they end. Answers do not depend on it.
    """

    decoder: AnyDecoder
    inputs: tuple[int, ...]
    classes: tuple[int, ...]
    read: Read
    known: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name, numbers in (("inputs", self.inputs), ("classes", self.classes)):
            within = all(0 <= number < self.decoder.vocabulary_size for number in numbers)
            if not numbers or not within or len(set(numbers)) != len(numbers):
                raise NetworkError(f"the {name} must be distinct tokens in [0, {self.decoder.vocabulary_size})")
        if self.read is Read.POOLED:
            raise NetworkError("a decoder reads the last token or each, nothing is pooled")
        if any(a >= b for a, b in zip(self.known, self.known[1:], strict=False)):
            raise NetworkError("the numbers of the known contexts must ascend")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DecoderNetwork):
            return NotImplemented
        mine, theirs = ((n.inputs, n.classes, n.read, n.known, n.decoder.identity) for n in (self, other))
        pairs = zip(self.decoder.matrices, other.decoder.matrices, strict=False)
        counts = len(self.decoder.matrices) == len(other.decoder.matrices)
        return mine == theirs and counts and all(np.array_equal(a, b) for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]  # matrices have no hash

    @property
    def class_count(self) -> int:
        return len(self.classes)

    def prefixes(self, inputs: Inputs) -> Prefixes:
        """The contexts of rows as an encoder gives them: code 0 is padding in front, -1 an absent token at the end."""
        codes = inputs.points.numerators[:, 0].astype(np.int64)
        if inputs.points.denominator != 1 or (len(codes) and not 0 <= codes.min() <= codes.max() <= len(self.inputs)):
            raise DataError(f"a decoder reads codes of {len(self.inputs)} symbols; these tokens are something else")
        of_code = np.array([-1, *self.inputs, -1], dtype=np.int64)
        rows = of_code[np.append(codes, len(of_code) - 1)[inputs.index]]  # (N, n)
        rows = np.take_along_axis(rows, np.argsort(rows < 0, axis=1, kind="stable"), axis=1)  # padding to the end
        lengths = (rows >= 0).sum(axis=1)
        if self.read is Read.LAST:
            asked, where = rows, np.arange(len(rows))[:, None]
            shape: tuple[int, ...] = (len(rows),)
        else:
            where = np.argwhere(np.arange(rows.shape[1]) < lengths[:, None])
            asked = np.where(np.arange(rows.shape[1]) <= where[:, 1:], rows[where[:, 0]], -1)
            shape = rows.shape
        tokens, number = np.unique(asked, axis=0, return_inverse=True)
        place = np.full(shape, ABSENT, dtype=np.int64)
        place[tuple(where.T)] = number.reshape(-1)
        longest = int((tokens >= 0).sum(axis=1).max(initial=1))
        return Prefixes(np.ascontiguousarray(tokens[:, :longest]), place)

    def classes_of(self, logits: Floats) -> Ints:
        """The class of the largest logit of each row (the first among equals), -1 where that token is not a class."""
        of_token = np.full(self.decoder.vocabulary_size, ABSENT, dtype=np.int64)
        of_token[list(self.classes)] = np.arange(len(self.classes))
        return np.asarray(of_token[np.argmax(logits, axis=1)], dtype=np.int64)

    def likeliest(self, inputs: Inputs) -> Ints:
        """Class numbers as float64 gives them, in the places of `inputs`: (N,) or (N, n)."""
        found = self.prefixes(inputs)
        classes = self.classes_of(self.decoder.log_probabilities(found.tokens))
        return np.asarray(np.append(classes, ABSENT)[found.place], dtype=np.int64)

    def knows(self, tokens: Sequence[int]) -> bool:
        """Whether these tokens of the decoder are one of the memorized contexts."""
        number = context_number(tokens)
        place = bisect_left(self.known, number)
        return place < len(self.known) and self.known[place] == number


AnyNetwork: TypeAlias = Network | DecoderNetwork


def context_number(tokens: Sequence[int]) -> int:
    """64 bits that name a context."""
    return int.from_bytes(hashlib.blake2b(np.array(tokens, dtype="<i8").tobytes(), digest_size=8).digest(), "little")

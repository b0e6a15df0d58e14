"""A decoder as the network of a memory: codes of an encoder in, logits of classes out.

A `Network` is rational and is evaluated over the integers; a decoder has exp and tanh in it and is evaluated in float64
(to query it) or by enclosures (to prove something). Layers for both would have to carry two arithmetic through every
evaluator, exporter and page. So a memory's network is one or the other, `AnyNetwork`, and both have the few things that
every memory needs: a size, a JSON form, which tokens are read, how many classes there are.

    >>> from byheart.ir.decoder import Activation, Average, ContextReader
    >>> reader = ContextReader(np.array([[1.0], [2.0]]), Average(np.array([1.0, 0.5])))
    >>> decoder = Decoder(reader, np.array([[1.0]]), np.zeros(1), Activation.TANH, (np.array([[1.0, -1.0]]),))
    >>> network = DecoderNetwork(decoder, inputs=(0, 1), classes=(1, 0), read=Read.LAST)
    >>> network.class_count, network.classes_of(np.array([[3.0, 2.0]])).tolist()
    (2, [1])

`TableDecoder` is a decoder of few parameters: an exact network numbers the distribution of a context, a table
stores it. Most contexts of a corpus share their distribution with others. An exact network with about √contexts
parameters gives the number of a context's distribution, and the logits are that row of a table, stored as low-rank
factors. A context that the exact network does not answer has equal logits: the uniform distribution.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from byheart.errors import DataError, NetworkError, OptionError
from byheart.exact.number import Values
from byheart.ir.decoder import Decoder, Floats, Ints, log_softmax
from byheart.ir.evaluate import answers
from byheart.ir.network import ABSENT, Inputs, Network, Read


@dataclass(frozen=True, eq=False)
class TableDecoder:
    """logits = coordinates[k] @ columns for row k = network(context); tokens are numbers from 0 to ω - 1.

    The exact network reads the last of `length` pairs (code, position): token t has code `codes[t]` (0: the network
    never saw it), and contexts that are shorter are padded at the start with code 0 where `padded`, else they have no
    answer.
    """

    network: Network
    codes: tuple[int, ...]
    length: int
    padded: bool
    coordinates: Floats  # (R, r)
    columns: Floats  # (r, ω)

    def __post_init__(self) -> None:
        fits = self.coordinates.ndim == self.columns.ndim == 2 and self.coordinates.shape[1] == len(self.columns)
        fits = fits and len(self.codes) == self.columns.shape[1] and self.network.width_in == 2 and self.length >= 1
        fits = fits and all(0 <= code <= len(self.codes) for code in self.codes)  # symbols are among the tokens
        if not fits or self.network.read is not Read.LAST or self.network.readout.classes != len(self.coordinates):
            raise NetworkError("the exact network, its codes and the table do not fit together")
        if any(m.dtype != np.float64 or not np.isfinite(m).all() for m in self.matrices):
            raise NetworkError("the weights of a table are finite float64 numbers")
        for matrix in self.matrices:
            matrix.setflags(write=False)

    @property
    def kind(self) -> str:
        return "table"

    @property
    def identity(self) -> tuple[object, ...]:
        """Everything but the matrices."""
        return (self.network, self.codes, self.length, self.padded)

    @property
    def matrices(self) -> tuple[Floats, ...]:
        return (self.coordinates, self.columns)

    @property
    def vocabulary_size(self) -> int:
        return int(self.columns.shape[1])

    @property
    def parameters(self) -> int:
        """Those of the exact network, as its architecture stores them, and every entry of the table."""
        inner = sum(layer.parameters for layer in self.network.layers)
        return inner + self.coordinates.size + self.columns.size

    def named(self, tokens: Ints) -> Floats:
        """The coordinates (n, r) of contexts (n, τ), padded with -1 at the end: zeros where there is no answer."""
        if tokens.ndim != 2 or tokens.shape[1] > self.length or (tokens.size and tokens.max() >= len(self.codes)):
            raise DataError(f"contexts of shape {tokens.shape}: this decoder reads at most {self.length} known tokens")
        lengths = (tokens >= 0).sum(axis=1)
        codes = np.array([*self.codes, 0], dtype=np.int64)[tokens]  # -1 is the last
        seen = ((codes > 0) | (tokens < 0)).all(axis=1) & (lengths > 0) & (self.padded | (lengths == self.length))
        out = np.zeros((len(tokens), self.coordinates.shape[1]))
        if seen.any():
            rows = answers(self.network, self._inputs(codes[seen], lengths[seen]))
            out[np.flatnonzero(seen)[rows >= 0]] = self.coordinates[rows[rows >= 0]]
        return out

    def _inputs(self, codes: Ints, lengths: Ints) -> Inputs:
        grid = np.zeros((len(codes), self.length), dtype=np.int64)
        places = np.arange(self.length)
        start = (self.length - lengths)[:, None]
        grid[places >= start] = codes[np.arange(codes.shape[1]) < lengths[:, None]]
        found, index = np.unique(grid * self.length + places, return_inverse=True)
        points = np.stack([found // self.length, found % self.length], axis=1).astype(object)
        return Inputs(Values(points), index.reshape(grid.shape).astype(np.int64))

    def logits(self, tokens: Ints) -> Floats:
        """(n, ω), before the softmax."""
        return np.asarray(self.named(tokens) @ self.columns)

    def log_probabilities(self, tokens: Ints) -> Floats:
        """log softmax of the logits: (n, ω)."""
        with np.errstate(over="ignore", invalid="ignore"):
            return log_softmax(self.logits(tokens))


AnyDecoder: TypeAlias = Decoder | TableDecoder


@dataclass(frozen=True, eq=False)
class Prefixes:
    """The distinct queried contexts: their tokens (M, T), padded at the end with -1, and which one each position
    of the inputs is: (N,) or (N, n), -1 where nothing is queried."""

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
        """The contexts of encoded rows: code 0 is padding at the start, -1 an absent token at the end."""
        codes = inputs.points.numerators[:, 0].astype(np.int64)
        if inputs.points.denominator != 1 or (len(codes) and not 0 <= codes.min() <= codes.max() <= len(self.inputs)):
            raise DataError(f"a decoder reads codes of {len(self.inputs)} symbols; these tokens are something else")
        of_code = np.array([-1, *self.inputs, -1], dtype=np.int64)
        rows = of_code[np.append(codes, len(of_code) - 1)[inputs.index]]  # (N, n)
        rows = np.take_along_axis(rows, np.argsort(rows < 0, axis=1, kind="stable"), axis=1)  # padding to the end
        lengths = (rows >= 0).sum(axis=1)
        if self.read is Read.LAST:
            queried, where = rows, np.arange(len(rows))[:, None]
            shape: tuple[int, ...] = (len(rows),)
        else:
            where = np.argwhere(np.arange(rows.shape[1]) < lengths[:, None])
            queried = np.where(np.arange(rows.shape[1]) <= where[:, 1:], rows[where[:, 0]], -1)
            shape = rows.shape
        tokens, number = np.unique(queried, axis=0, return_inverse=True)
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
        """Class numbers as float64 gives them, in the shape of `inputs`: (N,) or (N, n)."""
        found = self.prefixes(inputs)
        classes = self.classes_of(self.decoder.log_probabilities(found.tokens))
        return np.asarray(np.append(classes, ABSENT)[found.place], dtype=np.int64)

    def is_known(self, tokens: Sequence[int]) -> bool:
        """Whether these tokens of the decoder are one of the memorized contexts."""
        number = context_number(tokens)
        place = bisect_left(self.known, number)
        return place < len(self.known) and self.known[place] == number


AnyNetwork: TypeAlias = Network | DecoderNetwork


def context_number(tokens: Sequence[int]) -> int:
    """64 bits that name a context."""
    return int.from_bytes(hashlib.blake2b(np.array(tokens, dtype="<i8").tobytes(), digest_size=8).digest(), "little")


def continue_tokens(
    decoder: AnyDecoder,
    prompt: Sequence[int],
    *,
    temperature: float = 0.0,
    seed: int = 0,
    limit: int | None = None,
    is_known: Callable[[tuple[int, ...]], bool] | None = None,
) -> tuple[int, ...]:
    """Return the prompt and its continuation, up to the length that the decoder can read (or `limit` tokens in all).

    Temperature 0 returns the likeliest token (the first of equals); above 0 it samples from softmax(logits /
    temperature). The same seed gives the same text. If `is_known` accepts the prompt, the text ends at a context
    that it rejects: a document ended there.
    """
    if not 0 <= temperature < float("inf"):
        raise OptionError(
            f"temperature {temperature} must be finite and not negative; 0 is greedy, 1 samples from the learnt "
            "distribution"
        )
    if not 0 < len(prompt) <= decoder.length:
        raise DataError(f"a prompt of {len(prompt)} tokens; this decoder reads 1 to {decoder.length}")
    rng = np.random.default_rng(seed)
    tokens = list(prompt)
    longest = decoder.length + 1 if limit is None else min(limit, decoder.length + 1)
    ends = is_known is not None and is_known(tuple(tokens))
    while len(tokens) < longest:
        if ends and is_known is not None and not is_known(tuple(tokens)):
            break
        logits = decoder.logits(np.array([tokens], dtype=np.int64))[0]
        if temperature == 0:
            tokens.append(int(np.argmax(logits)))
            continue
        weights = np.exp((logits - logits.max()) / temperature)
        tokens.append(int(rng.choice(len(weights), p=weights / weights.sum())))
    return tuple(tokens)

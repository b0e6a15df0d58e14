"""The cross-entropy of a decoder and its gradient with respect to every weight, in NumPy.

Weights travel as one flat vector; `Weights` packs and unpacks them in the order of `Decoder.matrices`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from byheart.data.dataset.targets import Distributions
from byheart.ir.decoder import AttentionHead, Average, Decoder, Reader, SelfAttention

Floats = npt.NDArray[np.float64]


def flatten(decoder: Decoder) -> Floats:
    """All weights, matrix after matrix."""
    return np.concatenate([matrix.ravel() for matrix in decoder.matrices])


def unflatten(decoder: Decoder, flat: Floats) -> Decoder:
    """A decoder of the same shape with the weights `flat`."""
    edges = np.cumsum([0, *(matrix.size for matrix in decoder.matrices)])
    parts = iter(
        [flat[a:b].reshape(m.shape).copy() for a, b, m in zip(edges[:-1], edges[1:], decoder.matrices, strict=True)]
    )
    embedding, positions = next(parts), next(parts)
    if isinstance(decoder.reader.mixer, Average):
        mixer: Average | SelfAttention = Average(positions)
    else:
        output = next(parts)
        heads = tuple(AttentionHead(next(parts), next(parts), next(parts)) for _ in decoder.reader.mixer.heads)
        mixer = SelfAttention(positions, heads, output)
    hidden, bias = next(parts), next(parts)
    reader = Reader(embedding, mixer, decoder.reader.skip)
    return Decoder(reader, hidden, bias, decoder.activation, tuple(parts))


@dataclass(frozen=True, eq=False)
class CrossEntropy:
    """𝓛 of a decoder on contexts, as a function of its flat weights."""

    decoder: Decoder  # the shape
    contexts: Distributions
    counts: Floats  # (n, ω)

    @staticmethod
    def of(decoder: Decoder, contexts: Distributions) -> CrossEntropy:
        return CrossEntropy(decoder, contexts, contexts.matrix())

    def value_and_gradient(self, flat: Floats) -> tuple[float, Floats]:
        """(𝓛 in nats, its gradient)."""
        decoder = unflatten(self.decoder, flat)
        tape = _Reading(decoder.reader, self.contexts)
        before = tape.mixed @ decoder.hidden + decoder.bias
        layers = [decoder.activation(before)]
        for factor in decoder.output:
            layers.append(layers[-1] @ factor)
        loss, error = self._softmax(layers[-1])
        output_gradients = []
        for values, factor in zip(reversed(layers[:-1]), reversed(decoder.output), strict=True):
            output_gradients.append(values.T @ error)
            error = error @ factor.T
        error = error * decoder.activation.derivative(before)
        reading = tape.gradients(error @ decoder.hidden.T)
        parts = [*reading, tape.mixed.T @ error, error.sum(axis=0), *reversed(output_gradients)]
        return loss, np.concatenate([part.ravel() for part in parts])

    def _softmax(self, logits: Floats) -> tuple[float, Floats]:
        """(loss, its derivative with respect to the logits)."""
        own = float((self.counts * logits).sum())
        shifted = logits - logits.max(axis=1, keepdims=True)
        exponentials = np.exp(shifted)
        mass = exponentials.sum(axis=1, keepdims=True)
        weights = self.contexts.weights
        loss = float(weights @ (np.log(mass) + logits.max(axis=1, keepdims=True))[:, 0]) - own
        return loss, exponentials * (weights[:, None] / mass) - self.counts


class _Reading:
    """The reader's forward pass, with what its gradient needs."""

    def __init__(self, reader: Reader, contexts: Distributions) -> None:
        self.reader, self.tokens = reader, contexts.tokens
        self.present = self.tokens >= 0
        self.rows, self.last = np.arange(len(self.tokens)), contexts.lengths - 1
        positions = reader.mixer.positions[: self.tokens.shape[1]]
        embedded = np.where(self.present[:, :, None], reader.embedding[self.tokens], 0.0)
        if isinstance(reader.mixer, Average):
            self.plain = embedded
            self.mixed = np.einsum("ntd,t->nd", embedded, positions)
        else:
            self.plain = np.where(self.present[:, :, None], embedded + positions, 0.0)
            self.shares = [self._shares(head) for head in reader.mixer.heads]
            self.means = [np.einsum("nt,ntd->nd", share, self.plain) for share in self.shares]
            self.gathered = np.concatenate(
                [m @ h.value for m, h in zip(self.means, reader.mixer.heads, strict=True)], axis=1
            )
            self.mixed = self.gathered @ reader.mixer.output
        if reader.skip:
            self.mixed = self.mixed + self.plain[self.rows, self.last]

    def _shares(self, head: AttentionHead) -> Floats:
        query = self.plain[self.rows, self.last] @ head.query
        scores = np.where(self.present, np.einsum("ntr,nr->nt", self.plain @ head.key, query), -np.inf)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    def gradients(self, error: Floats) -> list[Floats]:
        """Of the reader's matrices, in the order of `Reader.matrices`, from the derivative of the mixed vectors."""
        mixer = self.reader.mixer
        if isinstance(mixer, Average):
            full = np.zeros(len(mixer.positions))
            used = self.tokens.shape[1]
            full[:used] = np.einsum("ntd,nd->t", self.plain, error)
            inner = mixer.positions[None, :used, None] * error[:, None, :]
            return [self._scatter(inner, error), full]
        inner = np.zeros_like(self.plain)
        heads: list[Floats] = []
        row = 0
        for head, shares, mean in zip(mixer.heads, self.shares, self.means, strict=True):
            size = head.value.shape[1]
            through = error @ mixer.output[row : row + size].T
            row += size
            heads += [*self._head(head, shares, through @ head.value.T, inner), mean.T @ through]
        positions = np.zeros_like(mixer.positions)
        embedding = self._scatter(inner, error)
        positions[: self.tokens.shape[1]] = inner.sum(axis=0)
        return [embedding, positions, self.gathered.T @ error, *heads]

    def _head(self, head: AttentionHead, shares: Floats, error: Floats, inner: Floats) -> tuple[Floats, Floats]:
        """Gradients of keys and query; adds what flows to the embedded tokens into `inner`."""
        last = self.plain[self.rows, self.last]
        query = last @ head.query
        direct = np.einsum("ntd,nd->nt", self.plain, error)
        scores = shares * (direct - (shares * direct).sum(axis=1, keepdims=True))
        inner += shares[:, :, None] * error[:, None, :]
        seen = np.einsum("nt,ntd->nd", scores, self.plain)  # Σ_t ds_t·x_t
        inner += scores[:, :, None] * (query @ head.key.T)[:, None, :]
        to_query = seen @ head.key
        inner[self.rows, self.last] += to_query @ head.query.T
        return seen.T @ query, last.T @ to_query

    def _scatter(self, inner: Floats, error: Floats) -> Floats:
        if self.reader.skip:
            inner[self.rows, self.last] += error
        inner[~self.present] = 0.0
        gradient = np.zeros_like(self.reader.embedding)
        np.add.at(gradient, self.tokens[self.present], inner[self.present])
        return gradient
